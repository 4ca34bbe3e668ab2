package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm/thinking"
	"github.com/councild/councild/internal/stage1"
)

// GradeVersion names the rules of the graders and the words of [Grader.Instruction]. Scores of
// different versions are not compared.
const GradeVersion = "grade-3"

// The types of graders. All except GraderRegex are also types of [council.AnswerForm].
const (
	// GraderExact accepts exactly the characters of a reference.
	GraderExact = council.FormExact
	// GraderNormalised ignores case, white space, outer quotes and markup, and a full stop at the end.
	GraderNormalised = council.FormNormalised
	// GraderChoice accepts the option that is the reference.
	GraderChoice = council.FormChoice
	// GraderNumber accepts the value of a reference, within a tolerance.
	GraderNumber = council.FormNumber
	// GraderRegex accepts a text that matches the reference, which is an expression in RE2 syntax.
	GraderRegex = "regex"
	// GraderJSON accepts the JSON value of the reference. It compares numbers by value.
	GraderJSON = council.FormJSON
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
	// Form is the answer in canonical form. Whether a text of one line without "ANSWER:" is an answer depends on the
	// references. Its Form does not. Form is "" if Score is nil.
	Form string
}

// Grader compares answers with a reference. It is safe for concurrent use.
type Grader struct {
	spec GraderSpec
	// alone reads answers in a way that does not depend on the references. For GraderRegex, it only brings texts into a
	// canonical form.
	alone *stage1.Form
	// reader does the same as alone, but also takes a text of one line without "ANSWER:" that has no more words than
	// the longest reference.
	reader     *stage1.Form
	references []string         // the right answers in canonical form, empty for GraderRegex
	patterns   []*regexp.Regexp // the right answers of GraderRegex
}

// NewGrader returns a grader. For GraderJSON, a reference is any JSON value. Otherwise it is a string, or a list of
// strings that are all right answers. For GraderNumber, numbers may take the place of strings. The error is a
// *[GradeError].
func NewGrader(s GraderSpec, reference json.RawMessage) (*Grader, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	form := council.AnswerForm{Type: s.Type, Options: s.Options}
	if s.Type == GraderRegex {
		form.Type = council.FormNormalised
	}
	alone, err := stage1.NewForm(form)
	if err != nil {
		return nil, badGrader("%s", err.Error())
	}
	g := &Grader{spec: s, alone: alone, reader: alone}
	if s.Type == GraderJSON {
		value, ok := alone.Canonical(string(reference))
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
	words := 0
	for _, r := range g.references {
		words = max(words, len(strings.Fields(r)))
	}
	g.reader = alone.WithLines(words)
	return g, nil
}

// check returns what is wrong with a GraderSpec. It leaves the options to [stage1.NewForm].
func (s GraderSpec) check() error {
	types := []string{GraderExact, GraderNormalised, GraderChoice, GraderNumber, GraderRegex, GraderJSON}
	if !slices.Contains(types, s.Type) {
		return badGrader("there is no grader %.64q: use %s", s.Type, strings.Join(types, ", "))
	}
	if (s.Abs != nil || s.Rel != nil) && s.Type != GraderNumber {
		return badGrader("abs and rel belong to the grader number: remove them")
	}
	for _, tolerance := range []*float64{s.Abs, s.Rel} {
		if tolerance != nil && (*tolerance < 0 || math.IsInf(*tolerance, 0) || math.IsNaN(*tolerance)) {
			return badGrader("a tolerance is %v: write a number of at least 0", *tolerance)
		}
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
	if g.spec.Type == GraderRegex {
		pattern, err := regexp.Compile(text)
		if err != nil {
			return badReference("%.100q is not an expression in RE2 syntax: %.200s", text, err.Error())
		}
		g.patterns = append(g.patterns, pattern)
		return nil
	}
	form, ok := g.alone.Canonical(text)
	switch {
	case g.spec.Type == GraderNumber && !ok:
		return badReference("%.64q is not a finite number: write digits, such as 1234.5, 1/2 or 1e6", text)
	case g.spec.Type != GraderNumber && strings.ContainsAny(text, "\r\n"):
		return badReference("%.64q has a line break, and answers are read from one line: "+
			"write it on one line, or use the grader regex or json", text)
	case g.spec.Type == GraderChoice && !ok && strings.TrimSpace(text) != "":
		return badReference("%.64q is not among the options: write one of %s", text, strings.Join(g.spec.Options, ", "))
	case !ok:
		return badReference("%.64q is empty: write the right answer", text)
	}
	g.references = append(g.references, form)
	return nil
}

// Type returns the type of the grader.
func (g *Grader) Type() string { return g.spec.Type }

// Instruction returns a text that stands below the question. It tells members and the chairman the form of the answer,
// so that the grader can read the answer. It returns "" for the types that read the whole text.
func (g *Grader) Instruction() string {
	if g.spec.Type == GraderRegex {
		return ""
	}
	return g.alone.Instruction()
}

// Grade grades a text, in time proportional to its length.
func (g *Grader) Grade(text string) Grade {
	form, ok := g.read(g.reader, text)
	if !ok {
		return Grade{}
	}
	return Grade{Score: new(g.score(text, form)), Form: form}
}

// form returns the answer of a text in canonical form, or "" if the text holds no answer. Unlike the Form of a Grade,
// the result does not depend on the references.
func (g *Grader) form(text string) string {
	form, _ := g.read(g.alone, text)
	return form
}

// read returns the answer of a text in canonical form. It reports false if the text holds no answer.
func (g *Grader) read(f *stage1.Form, text string) (form string, ok bool) {
	if g.spec.Type == GraderRegex {
		return f.Canonical(thinking.Outside(thinking.Split(text).Answer))
	}
	return f.Read(text)
}

// score returns 1 if an answer is right, and otherwise 0. The argument form is the answer of the text in canonical
// form.
func (g *Grader) score(text, form string) float64 {
	right := slices.Contains(g.references, form)
	switch g.spec.Type {
	case GraderRegex:
		right = slices.ContainsFunc(g.patterns, func(p *regexp.Regexp) bool { return p.MatchString(text) })
	case GraderNumber:
		right = slices.ContainsFunc(g.references, func(r string) bool { return g.close(number(form), number(r)) })
	}
	if right {
		return 1
	}
	return 0
}

// number returns the value of a number in canonical form.
func number(form string) float64 {
	value, _ := strconv.ParseFloat(form, 64)
	return value
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
