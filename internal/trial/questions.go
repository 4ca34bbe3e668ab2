// Package trial asks a council the questions of a file, one after the other or several at once. It stores each reply
// before it uses it. If the process ends, the same command continues the run, and pays for no finished call twice.
//
// A batch only answers the questions. A comparison compares the council with other ways to answer, the arms. A [Grader]
// compares answers with the right ones. If the questions have no right answers, judges compare the arms. [Import] reads
// judgements that other programs have collected, and writes them as bias records or as graded rows.
//
// The package leaves to others how a council answers (pipeline), what a comparison proves (worth), and how a report
// looks (render).
//
// # Decisions
//
// A grader never guesses. It does not take the last number of a text, or an option that the text only mentions. If it
// finds no clear answer, the text is ungradable.
//
// Import never guesses either. It rejects a line that does not say at which positions answers were shown, on which
// scale they were scored, or who wrote them.
package trial

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage1"
)

// Question is a line of a questions file.
type Question struct {
	ID        string            `json:"id"`                  // 1 to 200 characters, unique in the file
	Query     string            `json:"query,omitempty"`     // the question, or else Messages has it
	Messages  []council.Message `json:"messages,omitempty"`  // as in POST /v1/council
	Category  string            `json:"category,omitempty"`  // as in POST /v1/council
	Language  string            `json:"language,omitempty"`  // as in POST /v1/council
	Reference json.RawMessage   `json:"reference,omitempty"` // the right answer, in the form that NewGrader takes
	Grader    *GraderSpec       `json:"grader,omitempty"`    // how to compare an answer with Reference
	// Group names the source of the question. Questions of one group are one cluster. Without a group, a question is a
	// cluster of its own.
	Group  string            `json:"group,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // copied to the result

	grader *Grader // nil if there is no right answer
}

// Cluster returns a name for the question's cluster, from its group or its id.
func (q *Question) Cluster() string {
	if q.Group != "" {
		return "group " + q.Group
	}
	return q.ID
}

// Request returns the request for the question. Its answer form makes the instruction of the form stand below the
// question.
func (q *Question) Request() council.Request {
	return council.Request{
		Query: q.Query, Messages: q.Messages, Category: q.Category, Language: q.Language, AnswerForm: q.AnswerForm(),
	}
}

// Code says what is wrong with a line in a questions file or in an import.
type Code string

// The codes that questions files and imports share.
const (
	NotUTF8   Code = "not_utf8"
	NotJSON   Code = "not_json"   // The line is not one JSON value. In a questions file, an object may also have a key twice.
	NotObject Code = "not_object" // The line is JSON, but not an object.
	TooLong   Code = "too_long"   // The limit is maxLine or maxImportLine.
	BadField  Code = "bad_field"  // A value is of the wrong type, out of range or not on its closed list.
)

// The codes that only questions files have.
const (
	UnknownField Code = "unknown_field"
	MissingID    Code = "missing_id"
	DuplicateID  Code = "duplicate_id"
	NoQuestion   Code = "no_question"
	BadGrader    Code = "bad_grader"
	BadReference Code = "bad_reference"
)

// LineProblem is a problem of a line in a questions file.
type LineProblem struct {
	Line   int // from 1
	Code   Code
	Detail string // what is wrong, and how to fix it
}

func (p LineProblem) String() string { return fmt.Sprintf("line %d: %s: %s", p.Line, p.Code, p.Detail) }

const (
	maxLine = 4 << 20 // in bytes
	maxID   = 200     // in characters, but in bytes for JudgeBench and MT-bench
)

// Read reads a questions file, which has one JSON object on each line. It returns all problems of the file. The
// argument grader is the type for references without a grader. If it is "", such references are a problem. Read takes
// time proportional to the length of the file.
func Read(file []byte, grader string) ([]Question, []LineProblem) {
	var questions []Question
	var problems []LineProblem
	seen := map[string]int{} // line by id
	file = bytes.TrimPrefix(file, []byte("\ufeff"))
	n := 0
	for line := range bytes.Lines(file) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		q, problem := readLine(line, grader)
		if problem == nil && seen[q.ID] > 0 {
			problem = badLine(DuplicateID, "%.64q is also the id of line %d: give each question its own id",
				q.ID, seen[q.ID])
		}
		if problem != nil {
			problem.Line = n
			problems = append(problems, *problem)
			continue
		}
		seen[q.ID] = n
		questions = append(questions, q)
	}
	if n == 0 || len(questions)+len(problems) == 0 {
		problems = append(problems, LineProblem{
			Line:   1,
			Code:   NoQuestion,
			Detail: "the file is empty: write one JSON object a line",
		})
	}
	return questions, problems
}

func readLine(line []byte, grader string) (q Question, problem *LineProblem) {
	if problem = q.decode(line); problem == nil {
		problem = q.check()
	}
	if problem == nil {
		problem = q.findGrader(grader)
	}
	return q, problem
}

// badLine returns a problem whose line is not known yet.
func badLine(code Code, format string, args ...any) *LineProblem {
	return &LineProblem{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// decode reads the JSON of a line.
func (q *Question) decode(line []byte) *LineProblem {
	switch {
	case len(line) > maxLine:
		return badLine(TooLong, "it has %d bytes, %d are allowed: shorten it", len(line), maxLine)
	case !utf8.Valid(line):
		return badLine(NotUTF8, "convert the file to UTF-8")
	case !stage1.IsJSON(string(line)):
		return badLine(NotJSON, "write one JSON object a line, each key once, and nothing after it")
	case line[0] != '{':
		return badLine(NotObject, "write one JSON object a line")
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(line, &members) // The line is an object.
	known := fields()
	for name := range members {
		if !slices.Contains(known, name) { // The decoder below would take names that differ only in case.
			return badLine(UnknownField, "%.64q is not a field: use %s", name, strings.Join(known, ", "))
		}
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err := d.Decode(q)
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := cmp.Or(wrong.Field, "the line")
		return badLine(BadField, "%s is a %s, and has to be %s", field, wrong.Value, typeName(wrong.Type))
	}
	return badLine(UnknownField, "%s: remove it", strings.TrimPrefix(err.Error(), "json: "))
}

// check returns what is wrong with a question. It does not check the reference and the grader.
func (q *Question) check() *LineProblem {
	switch {
	case q.ID == "":
		return badLine(MissingID, "give the question an id")
	case utf8.RuneCountInString(q.ID) > maxID:
		return badLine(BadField, "the id has more than %d characters", maxID)
	case strings.TrimSpace(q.Query) == "" && len(q.Messages) == 0:
		return badLine(NoQuestion, "give it a query, or messages")
	case q.Query != "" && len(q.Messages) > 0:
		return badLine(BadField, "query and messages are both given: give one of them")
	case q.Category != "" && !slices.Contains(council.Categories(), q.Category):
		return badLine(BadField, "category: %.64q is not a category: use %s",
			q.Category, strings.Join(council.Categories(), ", "))
	case q.Language != "" && !council.IsLanguage(q.Language):
		return badLine(BadField, "language: %.64q is not a code: use two lower-case letters, such as en", q.Language)
	default:
		return nil
	}
}

// findGrader makes the grader of a question with a right answer. The argument usual is the grader's type if the
// question names no grader.
func (q *Question) findGrader(usual string) *LineProblem {
	if isNull(q.Reference) {
		if q.Grader != nil {
			return badLine(BadReference, "there is a grader, and no reference: give the right answer, or remove the grader")
		}
		q.Reference = nil
		return nil
	}
	if q.Grader == nil {
		if usual == "" {
			return badLine(BadGrader, `there is a reference, and no grader: `+
				`give one, such as {"type": "number"}, or name one with --grader`)
		}
		q.Grader = &GraderSpec{Type: usual}
	}
	g, err := NewGrader(*q.Grader, q.Reference)
	if wrong, ok := errors.AsType[*GradeError](err); ok {
		return badLine(wrong.Code, "%s", wrong.Message)
	}
	q.grader = g
	return nil
}

func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// fields returns the names of the fields of a Question.
func fields() (names []string) {
	for f := range reflect.TypeFor[Question]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// typeName returns the JSON name for the type of a field, with its article.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

// Closed reports whether the question has a right answer.
func (q *Question) Closed() bool { return q.grader != nil }

// AnswerForm returns the form in which members answer the question. It returns nil for GraderRegex, and for a question
// without a right answer.
func (q *Question) AnswerForm() *council.AnswerForm {
	if q.grader == nil || q.grader.Type() == GraderRegex {
		return nil
	}
	return &council.AnswerForm{Type: q.Grader.Type, Options: q.Grader.Options}
}
