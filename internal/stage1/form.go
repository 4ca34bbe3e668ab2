package stage1

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm/thinking"
)

// Form reads answers in a form. It is safe for concurrent use.
type Form struct {
	spec    council.AnswerForm
	options []string // the options of the spec in normal form, in the same order
	// words is the largest number of words in a line without "ANSWER:" that is an answer. FormNumber and FormJSON do not
	// use it.
	words int
	// graded says that FormChoice takes an answer that is no option, because a grader counts it as wrong.
	graded bool
}

// NewForm returns a Form. The error says what is wrong with the spec, and how to fix it.
func NewForm(spec council.AnswerForm) (*Form, error) {
	types := []string{
		council.FormExact, council.FormNormalised, council.FormChoice, council.FormNumber, council.FormJSON,
	}
	if !slices.Contains(types, spec.Type) {
		return nil, fmt.Errorf("there is no form %.64q: use %s", spec.Type, strings.Join(types, ", "))
	}
	if (spec.Options != nil) != (spec.Type == council.FormChoice) {
		return nil, errors.New("options belong to the type choice, and it needs them: write two or more, or remove them")
	}
	f := &Form{spec: spec}
	seen := map[string]bool{}
	for _, option := range spec.Options {
		form := normalForm(option)
		if form == "" || seen[form] || strings.ContainsAny(option, "\r\n") {
			return nil, fmt.Errorf("the option %.64q is empty, has a line break, or is given twice: "+
				"write each option once, on one line", option)
		}
		seen[form] = true
		f.options = append(f.options, form)
		f.words = max(f.words, len(strings.Fields(option)))
	}
	if spec.Type == council.FormChoice && len(f.options) < 2 {
		return nil, errors.New("there are fewer than two options: write two or more")
	}
	return f, nil
}

// WithLines returns a copy of f for a grader. With FormChoice, the copy also takes an answer that is no option. If a text is one line without "ANSWER:" and has at most the given number of words, the
// copy also takes it as an answer.
func (f *Form) WithLines(words int) *Form {
	longer := *f
	longer.words = max(f.words, words)
	longer.graded = true
	return &longer
}

// Instruction returns a text that stands below the question. It tells members and the chairman the form of the answer,
// so that Read can read the answer. It returns "" for FormJSON.
func (f *Form) Instruction() string {
	const line = `End your answer with a line of its own that begins with "ANSWER:" and holds `
	switch f.spec.Type {
	case council.FormChoice:
		return line + "one of these, and nothing else: " + strings.Join(f.spec.Options, ", ") + "."
	case council.FormNumber:
		return line + "one number, and nothing else."
	case council.FormExact, council.FormNormalised:
		return line + "the answer alone, in as few words as it takes."
	default:
		return ""
	}
}

// Read returns the answer of a text in canonical form, in time proportional to the length of the text. Answers with the
// same form count as the same answer. Read ignores what a model thinks before it answers. If the text holds no clear
// answer, Read returns "" and false.
func (f *Form) Read(text string) (form string, ok bool) {
	text = thinking.Outside(thinking.Split(text).Answer)
	if f.spec.Type == council.FormJSON {
		return readJSON(text)
	}
	answer, labelled := answerLine(text)
	if !labelled {
		if answer = onlyLine(text); answer == "" {
			return "", false
		}
	}
	switch f.spec.Type {
	case council.FormNumber:
		behind := anyProse
		if !labelled {
			behind = unitOnly
		}
		return numberIn(answer, behind)
	case council.FormChoice:
		form, ok = f.option(answer)
		ok = ok && (f.graded || slices.Contains(f.spec.Options, form))
	case council.FormNormalised:
		form = normalForm(answer)
		ok = form != ""
	default:
		form = answer
		ok = form != ""
	}
	if !ok || !labelled && len(strings.Fields(form)) > f.words {
		return "", false
	}
	return form, true
}

// Canonical returns the canonical form of a text that is nothing but an answer, such as a right answer. For FormChoice,
// the text has to be an option. If the text is no answer, Canonical returns "" and false.
func (f *Form) Canonical(text string) (form string, ok bool) {
	switch f.spec.Type {
	case council.FormJSON:
		return readJSON(text)
	case council.FormNumber:
		return numberIn(text, unitOnly)
	case council.FormChoice:
		if at := slices.Index(f.options, normalForm(text)); at >= 0 {
			form = f.spec.Options[at]
		}
	case council.FormNormalised:
		form = normalForm(text)
	default:
		form = strings.TrimFunc(text, unicode.IsSpace)
	}
	return form, form != ""
}
