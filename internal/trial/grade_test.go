package trial_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/trial"
)

type gradedCase struct {
	Grader    trial.GraderSpec `json:"grader"`
	Reference json.RawMessage  `json:"reference"`
	Answer    string           `json:"answer"`
	Score     *float64         `json:"score"`
	Why       string           `json:"why"`
}

func graderVectors(tb testing.TB) []gradedCase {
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

func scoreText(s *float64) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// The cases are decided in the reference values, not computed.
func TestGraderVectors(t *testing.T) {
	for _, c := range graderVectors(t) {
		g, err := trial.NewGrader(c.Grader, c.Reference)
		if err != nil {
			t.Errorf("%+v %s: %v", c.Grader, c.Reference, err)
			continue
		}
		if got := g.Grade(c.Answer); scoreText(got.Score) != scoreText(c.Score) || (got.Form == "") != (got.Score == nil) {
			t.Errorf("%s, reference %s, answer %q: %s %q, want %s: %s",
				c.Grader.Type, c.Reference, c.Answer, scoreText(got.Score), got.Form, scoreText(c.Score), c.Why)
		}
	}
}

// Answers as models write them, beside the reference values.
func TestGrade(t *testing.T) {
	right, wrong, none := "1", "0", "null"
	letters := []string{"A", "B", "C", "D"}
	for _, c := range []struct {
		spec      trial.GraderSpec
		reference string
		text      string
		score     string
	}{
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "**ANSWER: x_1**", right},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "**ANSWER:** x_1", right},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "__ANSWER__: x_1", right},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "> ### Answer : x_1\r\n\r\n", right},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "ANSWER： x_1", right},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "My answers: x_1", none},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "The ANSWER: x_1", none},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "x_1\nx_1", none},
		{trial.GraderSpec{Type: trial.GraderExact}, `"x_1"`, "", none},
		{trial.GraderSpec{Type: trial.GraderExact}, `["New York", "York"]`, "New York", right},
		{trial.GraderSpec{Type: trial.GraderNormalised}, `"New York"`, "new york, of course", none},
		{trial.GraderSpec{Type: trial.GraderNormalised}, `"Ångström"`, "ANSWER: ÅNGSTRÖM", right},
		{trial.GraderSpec{Type: trial.GraderNormalised}, `"kelvin"`, "ANSWER: \u212aelvin", right},
		{trial.GraderSpec{Type: trial.GraderNormalised}, `"i"`, "ANSWER: \u0130", wrong},
		{trial.GraderSpec{Type: trial.GraderNormalised}, `"yes"`, "ANSWER: “Yes.”", right},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"B"`, "ANSWER: A, B", none},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"B"`, "ANSWER: B and C are right", none},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"B"`, "ANSWER: A/B", none},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"B"`, "ANSWER: B. Because of this", right},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"B"`, "ANSWER: [B]", right},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"b"`, "ANSWER: B2", wrong},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"B"`, "(B)", right},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"B"`, "E", wrong},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"yes", "yes, but"}}, `"yes, but"`, "ANSWER: yes, but late", right},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"yes", "no"}}, `"no"`, "ANSWER: not sure", wrong},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "18", right},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "**18** eggs", right},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "18 eggs", right},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "18 is what is left of them", none},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, `ANSWER: \boxed{18}`, right},
		{trial.GraderSpec{Type: trial.GraderNumber}, `-18`, "ANSWER: -$18.00", right},
		{trial.GraderSpec{Type: trial.GraderNumber}, `[17, "18"]`, "ANSWER: +18", right},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "ANSWER: x = 18", none},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "ANSWER: 18/0", none},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "ANSWER: 2^4", none},
		{trial.GraderSpec{Type: trial.GraderNumber}, `0`, "ANSWER: -0", right},
		{trial.GraderSpec{Type: trial.GraderNumber}, `18`, "ANSWER: eighteen", none},
		{trial.GraderSpec{Type: trial.GraderNumber, Abs: new(0.0)}, `18`, "ANSWER: 18.00000001", right},
		{trial.GraderSpec{Type: trial.GraderNumber, Abs: new(0.0), Rel: new(0.0)}, `18`, "ANSWER: 18.00000001", wrong},
		{trial.GraderSpec{Type: trial.GraderRegex}, `["a+", "b+"]`, "xbby", right},
		{trial.GraderSpec{Type: trial.GraderRegex}, `"a+"`, " ", none},
		{trial.GraderSpec{Type: trial.GraderJSON}, `true`, "true", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `true`, "It is true", none},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[1]`, "[see below] [1.0]", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[1]`, "[1] {broken", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `{"a":{"b":1}}`, `{"a":{"b":1,"b":1}}`, none},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[0]`, "[-0.0]", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[12345678901234567890]`, "[12345678901234567891]", wrong},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[0]`, "[1e999]", none},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[0]`, "[1e-999999999999999999999]", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[0]`, "[1e999999999999999999999]", none},
		{trial.GraderSpec{Type: trial.GraderJSON}, `{"total":2500000}`, `{"total":2500000.00}`, right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `{"total":2500000}`, `{"total":2.5e6}`, right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[12345678901234567890]`, "[12345678901234567890.0]", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[12345678901234567890]`, "[12345678901234567890.1]", wrong},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[-1000000000000000000000000]`, "[-1E+24]", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[0.00000001]`, "[1e-8]", right},
		{trial.GraderSpec{Type: trial.GraderJSON}, `[-120.50]`, "[-1.205e2]", right},
	} {
		g, err := trial.NewGrader(c.spec, json.RawMessage(c.reference))
		if err != nil {
			t.Errorf("%+v, %s: %v", c.spec, c.reference, err)
			continue
		}
		if got := g.Grade(c.text); scoreText(got.Score) != c.score {
			t.Errorf("%s, reference %s, text %q: %s %q, want %s", c.spec.Type, c.reference, c.text, scoreText(got.Score), got.Form, c.score)
		}
	}
}

// Answers that mean the same have the same form, so that votes can be counted.
func TestGradeForms(t *testing.T) {
	for _, c := range []struct {
		spec  trial.GraderSpec
		texts []string
		form  string
	}{
		{trial.GraderSpec{Type: trial.GraderNumber}, []string{"ANSWER: 1,500", "ANSWER: 1.5e3", "ANSWER: 3000/2", "1500 m"}, "1500"},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"Yes", "No"}}, []string{"ANSWER: yes", "**Answer:** YES.", "Yes"}, "Yes"},
		{trial.GraderSpec{Type: trial.GraderNormalised}, []string{"ANSWER: The  Hague", "ANSWER: *the hague*."}, "the hague"},
		{trial.GraderSpec{Type: trial.GraderJSON}, []string{`{"b": 1.0, "a": [2e0]}`, "```json\n{\"a\":[2],\"b\":1}\n```"}, `{"a":[2],"b":1}`},
		{trial.GraderSpec{Type: trial.GraderJSON}, []string{"[2500000]", "[2500000.00]", "[2.5e6]"}, "[2500000]"},
		{trial.GraderSpec{Type: trial.GraderJSON}, []string{"[25e30]", "[2.50E+31]", "[0.025e33]", "[25" + strings.Repeat("0", 30) + "]"}, "[25e30]"},
		{trial.GraderSpec{Type: trial.GraderJSON}, []string{"[0.0012]", "[1.2e-3]", "[0.00120]"}, "[0.0012]"},
		{trial.GraderSpec{Type: trial.GraderJSON}, []string{"[-12.5]", "[-1.25e1]", "[-125e-1]"}, "[-12.5]"},
		{trial.GraderSpec{Type: trial.GraderJSON}, []string{"[1e-30]", "[0.1e-29]"}, "[1e-30]"},
	} {
		reference := json.RawMessage(`"No"`)
		if c.spec.Type == trial.GraderNumber || c.spec.Type == trial.GraderJSON {
			reference = json.RawMessage(`7`)
		}
		g, err := trial.NewGrader(c.spec, reference)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.texts {
			if got := g.Grade(text); got.Form != c.form || scoreText(got.Score) != "0" {
				t.Errorf("%s %q: %q, %s, want %q", c.spec.Type, text, got.Form, scoreText(got.Score), c.form)
			}
		}
	}
}

// Each mistake is named with its code and says what to write.
func TestGraderMistakes(t *testing.T) {
	letters := []string{"A", "B"}
	for _, c := range []struct {
		spec      trial.GraderSpec
		reference string
		code      trial.Code
		says      string
	}{
		{trial.GraderSpec{}, `"x"`, trial.BadGrader, "use exact, normalised, choice, number, regex, json"},
		{trial.GraderSpec{Type: "fuzzy"}, `"x"`, trial.BadGrader, `"fuzzy"`},
		{trial.GraderSpec{Type: trial.GraderChoice}, `"x"`, trial.BadGrader, "two or more"},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"A"}}, `"A"`, trial.BadGrader, "fewer than two options"},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"A", "a"}}, `"A"`, trial.BadGrader, "twice"},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: []string{"A", ""}}, `"A"`, trial.BadGrader, "empty"},
		{trial.GraderSpec{Type: trial.GraderExact, Options: letters}, `"A"`, trial.BadGrader, "remove them"},
		{trial.GraderSpec{Type: trial.GraderExact, Abs: new(1.0)}, `"A"`, trial.BadGrader, "remove them"},
		{trial.GraderSpec{Type: trial.GraderNumber, Rel: new(-1.0)}, `1`, trial.BadGrader, "at least 0"},
		{trial.GraderSpec{Type: trial.GraderChoice, Options: letters}, `"C"`, trial.BadReference, "write one of A, B"},
		{trial.GraderSpec{Type: trial.GraderExact}, ``, trial.BadReference, "in quotes"},
		{trial.GraderSpec{Type: trial.GraderExact}, `null`, trial.BadReference, "in quotes"},
		{trial.GraderSpec{Type: trial.GraderExact}, `7`, trial.BadReference, "in quotes"},
		{trial.GraderSpec{Type: trial.GraderExact}, `[]`, trial.BadReference, "there is none"},
		{trial.GraderSpec{Type: trial.GraderExact}, `" "`, trial.BadReference, "empty"},
		{trial.GraderSpec{Type: trial.GraderNormalised}, `"*."`, trial.BadReference, "empty"},
		{trial.GraderSpec{Type: trial.GraderExact}, `"a\nb"`, trial.BadReference, "line break"},
		{trial.GraderSpec{Type: trial.GraderNumber}, `"about 5"`, trial.BadReference, "not a finite number"},
		{trial.GraderSpec{Type: trial.GraderNumber}, `"1e999"`, trial.BadReference, "not a finite number"},
		{trial.GraderSpec{Type: trial.GraderNumber}, `true`, trial.BadReference, "in quotes"},
		{trial.GraderSpec{Type: trial.GraderRegex}, `"("`, trial.BadReference, "RE2"},
		{trial.GraderSpec{Type: trial.GraderJSON}, `{"a":1,"a":2}`, trial.BadReference, "twice"},
		{trial.GraderSpec{Type: trial.GraderJSON}, ``, trial.BadReference, "not a JSON value"},
	} {
		_, err := trial.NewGrader(c.spec, json.RawMessage(c.reference))
		mistake, ok := errors.AsType[*trial.GradeError](err)
		if !ok || mistake.Code != c.code || !strings.Contains(mistake.Message, c.says) {
			t.Errorf("%+v, %s: %v, want %s and %q", c.spec, c.reference, err, c.code, c.says)
		}
	}
}

// What is asked for below a question is what the grader reads, and only where it reads a line.
func TestGraderInstruction(t *testing.T) {
	for _, c := range graderVectors(t) {
		g, err := trial.NewGrader(c.Grader, c.Reference)
		if err != nil {
			t.Fatal(err)
		}
		reads := g.Type() != trial.GraderRegex && g.Type() != trial.GraderJSON
		if strings.Contains(g.Instruction(), `"ANSWER:"`) != reads || reads == (g.Instruction() == "") {
			t.Errorf("%s: %q", g.Type(), g.Instruction())
		}
	}
}

// Whatever a text holds, it is graded without a panic, its grade is 1, 0 or none, and what was
// read from it is read again from its own rendering.
func FuzzGrade(f *testing.F) {
	for _, c := range graderVectors(f) {
		f.Add(c.Answer)
	}
	f.Add("ANSWER: \"\"*.\"*.")
	f.Add("\"\vA")  // blanks that stand among quotes
	f.Add(`\\ \\A`) // a command of LaTeX that appears when another is removed
	f.Add(`\le\leftft(A`)
	f.Add(strings.Repeat(`\`, 20) + " A")
	f.Add(`\\$5\$`)
	f.Add(strings.Repeat("[", 2000) + "{")
	var graders []*trial.Grader
	for _, c := range graderVectors(f) {
		g, err := trial.NewGrader(c.Grader, c.Reference)
		if err != nil {
			f.Fatal(err)
		}
		graders = append(graders, g)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, g := range graders {
			got := g.Grade(text)
			if (got.Score == nil) != (got.Form == "") || got.Score != nil && *got.Score != 0 && *got.Score != 1 {
				t.Fatalf("%s %q: %s %q", g.Type(), text, scoreText(got.Score), got.Form)
			}
			if got.Score == nil {
				continue
			}
			rendering := got.Form
			if g.Instruction() != "" {
				rendering = "Some words.\nANSWER: " + rendering
			}
			again := g.Grade(rendering)
			if again.Form != got.Form || g.Type() != trial.GraderRegex && scoreText(again.Score) != scoreText(got.Score) {
				t.Fatalf("%s %q: %s %q, and its rendering %s %q", g.Type(), text, scoreText(got.Score), got.Form, scoreText(again.Score), again.Form)
			}
		}
	})
}

// The time is in proportion to the text, whatever somebody writes into it.
func TestGradeHostile(t *testing.T) {
	testkit.Slow(t)
	seen := map[string]bool{}
	for _, c := range graderVectors(t) {
		g, err := trial.NewGrader(c.Grader, c.Reference)
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
