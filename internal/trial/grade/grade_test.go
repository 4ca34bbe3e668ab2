package grade_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/trial/grade"
)

type gradedCase struct {
	Grader    grade.Spec      `json:"grader"`
	Reference json.RawMessage `json:"reference"`
	Answer    string          `json:"answer"`
	Score     *float64        `json:"score"`
	Why       string          `json:"why"`
}

func vectors(tb testing.TB) []gradedCase {
	tb.Helper()
	data, err := os.ReadFile("testdata/graders.json")
	if err != nil {
		tb.Fatal(err)
	}
	var all struct {
		Cases []gradedCase `json:"cases"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		tb.Fatal(err)
	}
	return all.Cases
}

func score(s *float64) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// The cases are decided in the reference values, not computed.
func TestVectors(t *testing.T) {
	for _, c := range vectors(t) {
		g, err := grade.New(c.Grader, c.Reference)
		if err != nil {
			t.Errorf("%+v %s: %v", c.Grader, c.Reference, err)
			continue
		}
		if got := g.Grade(c.Answer); score(got.Score) != score(c.Score) || (got.Form == "") != (got.Score == nil) {
			t.Errorf("%s, reference %s, answer %q: %s %q, want %s: %s",
				c.Grader.Type, c.Reference, c.Answer, score(got.Score), got.Form, score(c.Score), c.Why)
		}
	}
}

// Answers as models write them, beside the reference values.
func TestGrade(t *testing.T) {
	right, wrong, none := "1", "0", "null"
	letters := []string{"A", "B", "C", "D"}
	for _, c := range []struct {
		spec      grade.Spec
		reference string
		text      string
		score     string
	}{
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "**ANSWER: x_1**", right},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "**ANSWER:** x_1", right},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "__ANSWER__: x_1", right},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "> ### Answer : x_1\r\n\r\n", right},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "ANSWER： x_1", right},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "My answers: x_1", none},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "The ANSWER: x_1", none},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "x_1\nx_1", none},
		{grade.Spec{Type: grade.Exact}, `"x_1"`, "", none},
		{grade.Spec{Type: grade.Exact}, `["New York", "York"]`, "New York", right},
		{grade.Spec{Type: grade.Normalised}, `"New York"`, "new york, of course", none},
		{grade.Spec{Type: grade.Normalised}, `"Ångström"`, "ANSWER: ÅNGSTRÖM", right},
		{grade.Spec{Type: grade.Normalised}, `"kelvin"`, "ANSWER: \u212aelvin", right},
		{grade.Spec{Type: grade.Normalised}, `"i"`, "ANSWER: \u0130", wrong},
		{grade.Spec{Type: grade.Normalised}, `"yes"`, "ANSWER: “Yes.”", right},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"B"`, "ANSWER: A, B", none},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"B"`, "ANSWER: B and C are right", none},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"B"`, "ANSWER: A/B", none},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"B"`, "ANSWER: B. Because of this", right},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"B"`, "ANSWER: [B]", right},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"b"`, "ANSWER: B2", wrong},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"B"`, "(B)", right},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"B"`, "E", wrong},
		{grade.Spec{Type: grade.Choice, Options: []string{"yes", "yes, but"}}, `"yes, but"`, "ANSWER: yes, but late", right},
		{grade.Spec{Type: grade.Choice, Options: []string{"yes", "no"}}, `"no"`, "ANSWER: not sure", wrong},
		{grade.Spec{Type: grade.Number}, `18`, "18", right},
		{grade.Spec{Type: grade.Number}, `18`, "**18** eggs", right},
		{grade.Spec{Type: grade.Number}, `18`, "18 eggs", right},
		{grade.Spec{Type: grade.Number}, `18`, "18 is what is left of them", none},
		{grade.Spec{Type: grade.Number}, `18`, `ANSWER: \boxed{18}`, right},
		{grade.Spec{Type: grade.Number}, `-18`, "ANSWER: -$18.00", right},
		{grade.Spec{Type: grade.Number}, `[17, "18"]`, "ANSWER: +18", right},
		{grade.Spec{Type: grade.Number}, `18`, "ANSWER: x = 18", none},
		{grade.Spec{Type: grade.Number}, `18`, "ANSWER: 18/0", none},
		{grade.Spec{Type: grade.Number}, `18`, "ANSWER: 2^4", none},
		{grade.Spec{Type: grade.Number}, `0`, "ANSWER: -0", right},
		{grade.Spec{Type: grade.Number}, `18`, "ANSWER: eighteen", none},
		{grade.Spec{Type: grade.Number, Abs: new(0.0)}, `18`, "ANSWER: 18.00000001", right},
		{grade.Spec{Type: grade.Number, Abs: new(0.0), Rel: new(0.0)}, `18`, "ANSWER: 18.00000001", wrong},
		{grade.Spec{Type: grade.Regex}, `["a+", "b+"]`, "xbby", right},
		{grade.Spec{Type: grade.Regex}, `"a+"`, " ", none},
		{grade.Spec{Type: grade.JSON}, `true`, "true", right},
		{grade.Spec{Type: grade.JSON}, `true`, "It is true", none},
		{grade.Spec{Type: grade.JSON}, `[1]`, "[see below] [1.0]", right},
		{grade.Spec{Type: grade.JSON}, `[1]`, "[1] {broken", right},
		{grade.Spec{Type: grade.JSON}, `{"a":{"b":1}}`, `{"a":{"b":1,"b":1}}`, none},
		{grade.Spec{Type: grade.JSON}, `[0]`, "[-0.0]", right},
		{grade.Spec{Type: grade.JSON}, `[12345678901234567890]`, "[12345678901234567891]", wrong},
		{grade.Spec{Type: grade.JSON}, `[0]`, "[1e999]", none},
		{grade.Spec{Type: grade.JSON}, `[0]`, "[1e-999999999999999999999]", right},
		{grade.Spec{Type: grade.JSON}, `[0]`, "[1e999999999999999999999]", none},
		{grade.Spec{Type: grade.JSON}, `{"total":2500000}`, `{"total":2500000.00}`, right},
		{grade.Spec{Type: grade.JSON}, `{"total":2500000}`, `{"total":2.5e6}`, right},
		{grade.Spec{Type: grade.JSON}, `[12345678901234567890]`, "[12345678901234567890.0]", right},
		{grade.Spec{Type: grade.JSON}, `[12345678901234567890]`, "[12345678901234567890.1]", wrong},
		{grade.Spec{Type: grade.JSON}, `[-1000000000000000000000000]`, "[-1E+24]", right},
		{grade.Spec{Type: grade.JSON}, `[0.00000001]`, "[1e-8]", right},
		{grade.Spec{Type: grade.JSON}, `[-120.50]`, "[-1.205e2]", right},
	} {
		g, err := grade.New(c.spec, json.RawMessage(c.reference))
		if err != nil {
			t.Errorf("%+v, %s: %v", c.spec, c.reference, err)
			continue
		}
		if got := g.Grade(c.text); score(got.Score) != c.score {
			t.Errorf("%s, reference %s, text %q: %s %q, want %s", c.spec.Type, c.reference, c.text, score(got.Score), got.Form, c.score)
		}
	}
}

// Answers that mean the same have the same form, so that votes can be counted.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		spec  grade.Spec
		texts []string
		form  string
	}{
		{grade.Spec{Type: grade.Number}, []string{"ANSWER: 1,500", "ANSWER: 1.5e3", "ANSWER: 3000/2", "1500 m"}, "1500"},
		{grade.Spec{Type: grade.Choice, Options: []string{"Yes", "No"}}, []string{"ANSWER: yes", "**Answer:** YES.", "Yes"}, "Yes"},
		{grade.Spec{Type: grade.Normalised}, []string{"ANSWER: The  Hague", "ANSWER: *the hague*."}, "the hague"},
		{grade.Spec{Type: grade.JSON}, []string{`{"b": 1.0, "a": [2e0]}`, "```json\n{\"a\":[2],\"b\":1}\n```"}, `{"a":[2],"b":1}`},
		{grade.Spec{Type: grade.JSON}, []string{"[2500000]", "[2500000.00]", "[2.5e6]"}, "[2500000]"},
		{grade.Spec{Type: grade.JSON}, []string{"[25e30]", "[2.50E+31]", "[0.025e33]", "[25" + strings.Repeat("0", 30) + "]"}, "[25e30]"},
		{grade.Spec{Type: grade.JSON}, []string{"[0.0012]", "[1.2e-3]", "[0.00120]"}, "[0.0012]"},
		{grade.Spec{Type: grade.JSON}, []string{"[-12.5]", "[-1.25e1]", "[-125e-1]"}, "[-12.5]"},
		{grade.Spec{Type: grade.JSON}, []string{"[1e-30]", "[0.1e-29]"}, "[1e-30]"},
	} {
		reference := json.RawMessage(`"No"`)
		if c.spec.Type == grade.Number || c.spec.Type == grade.JSON {
			reference = json.RawMessage(`7`)
		}
		g, err := grade.New(c.spec, reference)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.texts {
			if got := g.Grade(text); got.Form != c.form || score(got.Score) != "0" {
				t.Errorf("%s %q: %q, %s, want %q", c.spec.Type, text, got.Form, score(got.Score), c.form)
			}
		}
	}
}

// Each mistake is named with its code and says what to write.
func TestMistakes(t *testing.T) {
	letters := []string{"A", "B"}
	for _, c := range []struct {
		spec            grade.Spec
		reference, code string
		says            string
	}{
		{grade.Spec{}, `"x"`, grade.CodeGrader, "use exact, normalised, choice, number, regex, json"},
		{grade.Spec{Type: "fuzzy"}, `"x"`, grade.CodeGrader, `"fuzzy"`},
		{grade.Spec{Type: grade.Choice}, `"x"`, grade.CodeGrader, "two or more"},
		{grade.Spec{Type: grade.Choice, Options: []string{"A"}}, `"A"`, grade.CodeGrader, "one option"},
		{grade.Spec{Type: grade.Choice, Options: []string{"A", "a"}}, `"A"`, grade.CodeGrader, "twice"},
		{grade.Spec{Type: grade.Choice, Options: []string{"A", ""}}, `"A"`, grade.CodeGrader, "empty"},
		{grade.Spec{Type: grade.Exact, Options: letters}, `"A"`, grade.CodeGrader, "remove them"},
		{grade.Spec{Type: grade.Exact, Abs: new(1.0)}, `"A"`, grade.CodeGrader, "remove them"},
		{grade.Spec{Type: grade.Number, Rel: new(-1.0)}, `1`, grade.CodeGrader, "at least 0"},
		{grade.Spec{Type: grade.Choice, Options: letters}, `"C"`, grade.CodeReference, "write one of A, B"},
		{grade.Spec{Type: grade.Exact}, ``, grade.CodeReference, "in quotes"},
		{grade.Spec{Type: grade.Exact}, `null`, grade.CodeReference, "in quotes"},
		{grade.Spec{Type: grade.Exact}, `7`, grade.CodeReference, "in quotes"},
		{grade.Spec{Type: grade.Exact}, `[]`, grade.CodeReference, "there is none"},
		{grade.Spec{Type: grade.Exact}, `" "`, grade.CodeReference, "empty"},
		{grade.Spec{Type: grade.Normalised}, `"*."`, grade.CodeReference, "empty"},
		{grade.Spec{Type: grade.Exact}, `"a\nb"`, grade.CodeReference, "line break"},
		{grade.Spec{Type: grade.Number}, `"about 5"`, grade.CodeReference, "no finite number"},
		{grade.Spec{Type: grade.Number}, `"1e999"`, grade.CodeReference, "no finite number"},
		{grade.Spec{Type: grade.Number}, `true`, grade.CodeReference, "in quotes"},
		{grade.Spec{Type: grade.Regex}, `"("`, grade.CodeReference, "RE2"},
		{grade.Spec{Type: grade.JSON}, `{"a":1,"a":2}`, grade.CodeReference, "twice"},
		{grade.Spec{Type: grade.JSON}, ``, grade.CodeReference, "no JSON value"},
	} {
		_, err := grade.New(c.spec, json.RawMessage(c.reference))
		mistake, ok := errors.AsType[*grade.Error](err)
		if !ok || mistake.Code != c.code || !strings.Contains(mistake.Message, c.says) {
			t.Errorf("%+v, %s: %v, want %s and %q", c.spec, c.reference, err, c.code, c.says)
		}
	}
}

// What is asked for below a question is what the grader reads, and only where it reads a line.
func TestInstruction(t *testing.T) {
	for _, c := range vectors(t) {
		g, err := grade.New(c.Grader, c.Reference)
		if err != nil {
			t.Fatal(err)
		}
		reads := g.Type() != grade.Regex && g.Type() != grade.JSON
		if strings.Contains(g.Instruction(), `"ANSWER:"`) != reads || reads == (g.Instruction() == "") {
			t.Errorf("%s: %q", g.Type(), g.Instruction())
		}
	}
}

// Whatever a text holds, it is graded without a panic, its grade is 1, 0 or none, and what was
// read from it is read again from its own rendering.
func FuzzGrade(f *testing.F) {
	for _, c := range vectors(f) {
		f.Add(c.Answer)
	}
	f.Add("ANSWER: \"\"*.\"*.")
	f.Add("\"\vA")  // blanks that stand among quotes
	f.Add(`\\ \\A`) // a command of LaTeX that appears when another is removed
	f.Add(`\le\leftft(A`)
	f.Add(strings.Repeat(`\`, 20) + " A")
	f.Add(`\\$5\$`)
	f.Add(strings.Repeat("[", 2000) + "{")
	var graders []*grade.Grader
	for _, c := range vectors(f) {
		g, err := grade.New(c.Grader, c.Reference)
		if err != nil {
			f.Fatal(err)
		}
		graders = append(graders, g)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, g := range graders {
			got := g.Grade(text)
			if (got.Score == nil) != (got.Form == "") || got.Score != nil && *got.Score != 0 && *got.Score != 1 {
				t.Fatalf("%s %q: %s %q", g.Type(), text, score(got.Score), got.Form)
			}
			if got.Score == nil {
				continue
			}
			rendering := got.Form
			if g.Instruction() != "" {
				rendering = "Some words.\nANSWER: " + rendering
			}
			again := g.Grade(rendering)
			if again.Form != got.Form || g.Type() != grade.Regex && score(again.Score) != score(got.Score) {
				t.Fatalf("%s %q: %s %q, and its rendering %s %q", g.Type(), text, score(got.Score), got.Form, score(again.Score), again.Form)
			}
		}
	})
}

// The time is in proportion to the text, whatever somebody writes into it.
func TestHostile(t *testing.T) {
	testkit.Slow(t)
	seen := map[string]bool{}
	for _, c := range vectors(t) {
		g, err := grade.New(c.Grader, c.Reference)
		if err != nil {
			t.Fatal(err)
		}
		if seen[g.Type()] {
			continue
		}
		seen[g.Type()] = true
		for _, pattern := range []string{"[", `\`, `\ `, `\text{`, `$`, `\$`, `{"a":`, `{"a":1,"a":`, `["`, "ANSWER:\n", "ANSWER: 1,", `."`, "*ANSWER", "A or ", "[1,", " ", "[ "} {
			growth.LinearTo(t, growth.Large/4, func(n int) func() {
				text := strings.Repeat(pattern, n/len(pattern))
				return func() { g.Grade(text) }
			})
		}
		growth.LinearTo(t, growth.Large/4, func(n int) func() {
			text := strings.Repeat("[", n/2) + `"` + strings.Repeat("a", n/2)
			return func() { g.Grade(text) }
		})
	}
}
