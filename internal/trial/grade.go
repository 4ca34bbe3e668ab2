package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/councild/councild/internal/llm/thinking"
)

// GradeVersion names the rules of the graders and the words of [Grader.Instruction]. Scores of
// different versions are not compared.
const GradeVersion = "grade-3"

// The types of graders. The first four read the answer from the last line that begins with "ANSWER:". The word may be
// in upper or lower case, and in any markup. If there is no such line, a text of one line can be the answer.
const (
	// GraderExact accepts exactly the characters of a reference.
	GraderExact = "exact"
	// GraderNormalised ignores case, white space, outer quotes and markup, and a full stop at the end.
	GraderNormalised = "normalised"
	// GraderChoice accepts the option that is the reference.
	GraderChoice = "choice"
	// GraderNumber accepts the value of a reference, within a tolerance.
	GraderNumber = "number"
	// GraderRegex accepts a text that matches the reference, which is an expression in RE2 syntax.
	GraderRegex = "regex"
	// GraderJSON compares the whole text if it is JSON, and otherwise the last JSON object or array in the text. It
	// compares numbers by value.
	GraderJSON = "json"
)

// GraderSpec says how answers are compared. It is a part of a question in a questions file.
type GraderSpec struct {
	Type    string   `json:"type"`
	Options []string `json:"options,omitempty"` // the options of GraderChoice, two or more
	// Abs and Rel are the tolerances of GraderNumber, at least 0. The answer may differ from the reference by Abs, or by
	// Rel times the reference, whichever is larger. Nil stands for 1e-9.
	Abs *float64 `json:"abs,omitempty"`
	Rel *float64 `json:"rel,omitempty"`
}

// GradeError says why a GraderSpec or a reference is wrong, and how to fix it.
type GradeError struct {
	Code    Code // BadGrader or BadReference
	Message string
}

func (e *GradeError) Error() string { return string(e.Code) + ": " + e.Message }

// Grade is the result of grading a text.
type Grade struct {
	// Score is 1 for a right answer and 0 for a wrong one. It is nil if the text holds no
	// answer that can be graded.
	Score *float64
	// Form is the answer in canonical form. Answers with the same form count as the same answer. Form does not depend on
	// the reference. It is "" if Score is nil.
	Form string
}

// Grader compares answers with a reference. It is safe for concurrent use.
type Grader struct {
	spec       GraderSpec
	references []string         // the right answers in canonical form, empty for GraderNumber and GraderRegex
	numbers    []float64        // the right answers of GraderNumber
	patterns   []*regexp.Regexp // the right answers of GraderRegex
	options    []string         // the options of the spec in normal form, in the same order
	// words is the largest number of words in a reference or an option. A longer line without "ANSWER:" is no answer.
	words int
}

// NewGrader returns a grader. For GraderJSON, a reference is any JSON value. Otherwise it is a string, or a list of
// strings that are all right answers. For GraderNumber, numbers may take the place of strings. The error is a
// *[GradeError].
func NewGrader(s GraderSpec, reference json.RawMessage) (*Grader, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	g := &Grader{spec: s}
	for _, option := range s.Options {
		g.options = append(g.options, normalForm(option))
	}
	if s.Type == GraderJSON {
		value, ok := readJSON(string(reference))
		if !ok {
			return nil, badReference("it is not a JSON value, or an object in it has a key twice: write one JSON value")
		}
		g.references = []string{value}
		return g, nil
	}
	texts, err := readReferences(reference, s.Type == GraderNumber)
	if err != nil {
		return nil, err
	}
	for _, text := range texts {
		if err := g.add(text); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// check returns what is wrong with a GraderSpec.
func (s GraderSpec) check() error {
	types := []string{GraderExact, GraderNormalised, GraderChoice, GraderNumber, GraderRegex, GraderJSON}
	if !slices.Contains(types, s.Type) {
		return badGrader("there is no grader %.64q: use %s", s.Type, strings.Join(types, ", "))
	}
	if (s.Options != nil) != (s.Type == GraderChoice) {
		return badGrader("options belong to the grader choice, and it needs them: write two or more, or remove them")
	}
	if (s.Abs != nil || s.Rel != nil) && s.Type != GraderNumber {
		return badGrader("abs and rel belong to the grader number: remove them")
	}
	for _, tolerance := range []*float64{s.Abs, s.Rel} {
		if tolerance != nil && (*tolerance < 0 || math.IsInf(*tolerance, 0) || math.IsNaN(*tolerance)) {
			return badGrader("a tolerance is %v: write a number of at least 0", *tolerance)
		}
	}
	if s.Type == GraderChoice {
		return checkOptions(s.Options)
	}
	return nil
}

// checkOptions returns what is wrong with the options of a choice.
func checkOptions(options []string) error {
	seen := map[string]bool{}
	for _, option := range options {
		form := normalForm(option)
		if form == "" || seen[form] || strings.ContainsAny(option, "\r\n") {
			return badGrader("the option %.64q is empty, has a line break, or is given twice: "+
				"write each option once, on one line", option)
		}
		seen[form] = true
	}
	if len(options) < 2 {
		return badGrader("there are fewer than two options: write two or more")
	}
	return nil
}

func badGrader(format string, args ...any) error {
	return &GradeError{BadGrader, fmt.Sprintf(format, args...)}
}

func badReference(format string, args ...any) error {
	return &GradeError{BadReference, fmt.Sprintf(format, args...)}
}

// readReferences returns the strings of a reference. If numbers is true, it also takes JSON numbers, and returns their
// text.
func readReferences(reference json.RawMessage, numbers bool) ([]string, error) {
	var elements []json.RawMessage
	if json.Unmarshal(reference, &elements) != nil || elements == nil { // elements is nil for null.
		elements = []json.RawMessage{reference}
	}
	texts := make([]string, 0, len(elements))
	for _, element := range elements {
		var text string
		var value json.Number
		switch {
		case !bytes.Equal(element, []byte("null")) && json.Unmarshal(element, &text) == nil:
			texts = append(texts, text)
		case numbers && json.Unmarshal(element, &value) == nil && value != "":
			texts = append(texts, value.String())
		default:
			return nil, badReference("%.64q is not a string: write the right answer, "+
				"or a list of right answers, in quotes", element)
		}
	}
	if len(texts) == 0 {
		return nil, badReference("there is none: write the right answer, or a list of right answers")
	}
	return texts, nil
}

// add adds a right answer to the grader. The error is a *GradeError.
func (g *Grader) add(text string) error {
	switch g.spec.Type {
	case GraderRegex:
		pattern, err := regexp.Compile(text)
		if err != nil {
			return badReference("%.100q is not an expression in RE2 syntax: %.200s", text, err.Error())
		}
		g.patterns = append(g.patterns, pattern)
		return nil
	case GraderNumber:
		value, ok := readNumber(text, unitOnly)
		if !ok {
			return badReference("%.64q is no finite number: write digits, such as 1234.5, 1/2 or 1e6", text)
		}
		g.numbers = append(g.numbers, value)
		return nil
	}
	if strings.ContainsAny(text, "\r\n") {
		return badReference("%.64q has a line break, and answers are read from one line: "+
			"write it on one line, or use the grader regex or json", text)
	}
	form := strings.TrimFunc(text, unicode.IsSpace)
	if g.spec.Type == GraderNormalised {
		form = normalForm(text)
	}
	if form == "" {
		return badReference("%.64q is empty: write the right answer", text)
	}
	if g.spec.Type == GraderChoice {
		at := slices.Index(g.options, normalForm(text))
		if at < 0 {
			return badReference("%.64q is not among the options: write one of %s",
				text, strings.Join(g.spec.Options, ", "))
		}
		form = g.spec.Options[at]
		for _, option := range g.spec.Options {
			g.words = max(g.words, len(strings.Fields(option)))
		}
	}
	g.references = append(g.references, form)
	g.words = max(g.words, len(strings.Fields(form)))
	return nil
}

// Type returns the type of the grader.
func (g *Grader) Type() string { return g.spec.Type }

// Instruction returns a text that stands below the question. It tells members and the chairman the form of the answer,
// so that the grader can read the answer. It returns "" for the types that read the whole text.
func (g *Grader) Instruction() string {
	const line = `End your answer with a line of its own that begins with "ANSWER:" and holds `
	switch g.spec.Type {
	case GraderChoice:
		return line + "one of these, and nothing else: " + strings.Join(g.spec.Options, ", ") + "."
	case GraderNumber:
		return line + "one number, and nothing else."
	case GraderExact, GraderNormalised:
		return line + "the answer alone, in as few words as it takes."
	default:
		return ""
	}
}

// Grade grades a text, in time proportional to its length.
func (g *Grader) Grade(text string) Grade {
	form, ok := g.read(text)
	if !ok {
		return Grade{}
	}
	return Grade{Score: new(g.score(text, form)), Form: form}
}

// read returns the answer of a text in canonical form. It reports false if the text holds no answer.
func (g *Grader) read(text string) (form string, ok bool) {
	text = thinking.Outside(thinking.Split(text).Answer)
	switch g.spec.Type {
	case GraderRegex:
		form = normalForm(text)
		return form, form != ""
	case GraderJSON:
		return readJSON(text)
	}
	answer, labelled := answerLine(text)
	if !labelled {
		if answer = onlyLine(text); answer == "" {
			return "", false
		}
	}
	switch g.spec.Type {
	case GraderNumber:
		behind := anyProse
		if !labelled {
			behind = unitOnly
		}
		value, ok := readNumber(answer, behind)
		return numberText(value), ok
	case GraderChoice:
		form, ok = g.option(answer)
	case GraderNormalised:
		form = normalForm(answer)
		ok = form != ""
	default:
		form = answer
		ok = form != ""
	}
	if !labelled && len(strings.Fields(form)) > g.words {
		return "", false
	}
	return form, ok
}

// score returns 1 if an answer is right, and otherwise 0. The argument form is the answer of the text in canonical
// form.
func (g *Grader) score(text, form string) float64 {
	right := slices.Contains(g.references, form)
	switch g.spec.Type {
	case GraderRegex:
		right = slices.ContainsFunc(g.patterns, func(p *regexp.Regexp) bool { return p.MatchString(text) })
	case GraderNumber:
		value, _ := readNumber(form, unitOnly)
		right = slices.ContainsFunc(g.numbers, func(want float64) bool { return g.close(value, want) })
	}
	if right {
		return 1
	}
	return 0
}

// close reports whether a number differs from a reference by no more than the tolerance.
func (g *Grader) close(value, want float64) bool {
	tolerance := func(t *float64) float64 {
		if t == nil {
			return 1e-9
		}
		return *t
	}
	return math.Abs(value-want) <= max(tolerance(g.spec.Abs), tolerance(g.spec.Rel)*math.Abs(want))
}
