package stage1_test

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage1"
)

func formOf(t *testing.T, spec council.AnswerForm) *stage1.Form {
	t.Helper()
	f, err := stage1.NewForm(spec)
	if err != nil {
		t.Fatalf("%+v: %v", spec, err)
	}
	return f
}

// Without references, a line without "ANSWER:" is an answer only if its form shows that it is one. TestGrade and
// TestFinalLines of internal/trial have more texts.
func TestRead(t *testing.T) {
	exact := council.AnswerForm{Type: council.FormExact}
	normalised := council.AnswerForm{Type: council.FormNormalised}
	choice := council.AnswerForm{Type: council.FormChoice, Options: []string{"Yes", "Not yet"}}
	number := council.AnswerForm{Type: council.FormNumber}
	value := council.AnswerForm{Type: council.FormJSON}
	for _, c := range []struct {
		spec council.AnswerForm
		text string
		form string // "" if there is no answer
	}{
		{exact, "Some words.\n**ANSWER: New York**", "New York"},
		{exact, "New York", ""},
		{exact, "ANSWER:", ""},
		{normalised, "Some words.\nANSWER: *New  York*.", "new york"},
		{normalised, "York", ""},
		{choice, "Some words.\nANSWER: yes, because it is even", "Yes"},
		{choice, "**not yet**", "Not yet"},
		{choice, "Not now", ""},
		{choice, "Never in my life", ""},
		{choice, "ANSWER: Never in my life", ""},
		{choice, "ANSWER: Yes or not yet", ""},
		{number, "ANSWER: 1,500 of all the eggs", "1500"},
		{number, "1500 m", "1500"},
		{number, "0", "0"},
		{number, "1500 of all the eggs", ""},
		{number, "none", ""},
		{number, "<think>ANSWER: 7</think>\nANSWER: 8", "8"},
		{value, "It is {\"b\": 1.0, \"a\": \"\"}.", `{"a":"","b":1}`},
		{value, "It is true.", ""},
	} {
		form, ok := formOf(t, c.spec).Read(c.text)
		if form != c.form || ok != (c.form != "") {
			t.Errorf("%s, %q: %q %v, want %q", c.spec.Type, c.text, form, ok, c.form)
		}
	}
}

// The copy takes longer lines without "ANSWER:". The original does not change.
func TestWithLines(t *testing.T) {
	f := formOf(t, council.AnswerForm{Type: council.FormNormalised})
	two := f.WithLines(2)
	for text, want := range map[string]string{"Paris": "paris", "New York": "new york", "Not New York": ""} {
		if got, ok := two.Read(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v", text, got, ok)
		}
		if got, ok := f.Read(text); ok {
			t.Errorf("%q: %q without lines", text, got)
		}
	}
	choice := formOf(t, council.AnswerForm{Type: council.FormChoice, Options: []string{"no", "not for me"}})
	if got, _ := choice.WithLines(1).Read("not for me"); got != "not for me" {
		t.Errorf("a copy with shorter lines reads %q", got)
	}
	for _, text := range []string{"ANSWER: perhaps", "ANSWER: yes"} { // A grader counts these as wrong, and a vote as nothing.
		got, graded := choice.WithLines(1).Read(text)
		if _, ok := choice.Read(text); ok || !graded || got == "" {
			t.Errorf("%q: read %v, graded %v %q", text, ok, graded, got)
		}
	}
}

// The canonical form of an answer alone is what Read finds behind "ANSWER:".
func TestCanonical(t *testing.T) {
	options := []string{"Yes", "No"}
	for _, c := range []struct {
		spec       council.AnswerForm
		text, want string // want is "" if the text is no answer
	}{
		{council.AnswerForm{Type: council.FormExact}, " x_1 ", "x_1"},
		{council.AnswerForm{Type: council.FormExact}, " ", ""},
		{council.AnswerForm{Type: council.FormNormalised}, "“York.”", "york"},
		{council.AnswerForm{Type: council.FormNormalised}, "*.", ""},
		{council.AnswerForm{Type: council.FormChoice, Options: options}, "yes", "Yes"},
		{council.AnswerForm{Type: council.FormChoice, Options: options}, "yes, I think", ""},
		{council.AnswerForm{Type: council.FormNumber}, "1/2", "0.5"},
		{council.AnswerForm{Type: council.FormNumber}, "about 5", ""},
		{council.AnswerForm{Type: council.FormJSON}, "[1.0]", "[1]"},
		{council.AnswerForm{Type: council.FormJSON}, "", ""},
	} {
		f := formOf(t, c.spec)
		got, ok := f.Canonical(c.text)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s, %q: %q %v, want %q", c.spec.Type, c.text, got, ok, c.want)
		}
		if !ok {
			continue
		}
		rendering := got
		if f.Instruction() != "" {
			rendering = "ANSWER: " + got
		}
		if again, _ := f.Read(rendering); again != got {
			t.Errorf("%s: %q is read as %q", c.spec.Type, rendering, again)
		}
	}
}

// Members are asked for the line that Read looks for. JSON needs no line.
func TestInstruction(t *testing.T) {
	for spec, want := range map[*council.AnswerForm]string{
		{Type: council.FormExact}:                                  "answer alone",
		{Type: council.FormNormalised}:                             "answer alone",
		{Type: council.FormChoice, Options: []string{"Yes", "No"}}: "one of these, and nothing else: Yes, No.",
		{Type: council.FormNumber}:                                 "one number",
	} {
		if got := formOf(t, *spec).Instruction(); !strings.Contains(got, `"ANSWER:"`) || !strings.Contains(got, want) {
			t.Errorf("%s: %q", spec.Type, got)
		}
	}
	if got := formOf(t, council.AnswerForm{Type: council.FormJSON}).Instruction(); got != "" {
		t.Errorf("JSON: %q", got)
	}
}

// Each mistake says what to write.
func TestNewFormMistakes(t *testing.T) {
	options := func(all ...string) council.AnswerForm {
		return council.AnswerForm{Type: council.FormChoice, Options: all}
	}
	for _, c := range []struct {
		spec council.AnswerForm
		says string
	}{
		{council.AnswerForm{}, "use exact, normalised, choice, number, json"},
		{council.AnswerForm{Type: "regex"}, `no form "regex"`},
		{council.AnswerForm{Type: council.FormNumber, Options: []string{"1", "2"}}, "remove them"},
		{options(), "two or more"},
		{options("A"), "fewer than two options"},
		{council.AnswerForm{Type: council.FormChoice, Options: []string{}}, "fewer than two options"},
		{options("A", "a."), "twice"},
		{options("A", " "), "empty"},
		{options("A", "B\nC"), "line break"},
	} {
		if _, err := stage1.NewForm(c.spec); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.spec, err, c.says)
		}
	}
}
