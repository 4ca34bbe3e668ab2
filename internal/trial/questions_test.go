package trial_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/trial"
	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	file := "\ufeff" + `{"id":"a","query":"What?","reference":"x"}` + "\r\n\r\n" +
		`{"id":"b","messages":[{"role":"user","content":"What?"}],"reference":[1,2],"grader":{"type":"number"},"group":"g","labels":{"k":"v"}}` + "\n" +
		`  {"id":"c","query":"Why?","category":"math","language":"de","reference":null}`
	questions, problems := trial.Read([]byte(file), "exact")
	if len(problems) > 0 || len(questions) != 3 {
		t.Fatal(questions, problems)
	}
	a, b, c := questions[0], questions[1], questions[2]
	if !a.Closed() || !b.Closed() || c.Closed() || a.Cluster() != "a" || b.Cluster() != "group g" || b.Labels["k"] != "v" {
		t.Errorf("%+v", questions)
	}
	if r := a.Request(); r.Query != "What?" || r.AnswerForm == nil || r.AnswerForm.Type != "exact" {
		t.Errorf("asked is %+v", r)
	}
	if r := b.Request(); r.Messages[0].Content != "What?" || r.AnswerForm == nil || r.AnswerForm.Type != "number" {
		t.Errorf("asked is %+v", r)
	}
	if r := c.Request(); r.Query != "Why?" || r.Category != "math" || r.Language != "de" || r.AnswerForm != nil {
		t.Errorf("asked is %+v", r)
	}
}

func TestReadRefuses(t *testing.T) {
	for line, want := range map[string]trial.Code{
		"{\"id\":\"\xff\"}":         trial.NotUTF8,
		"{":                         trial.NotJSON,
		`{"id":"a","id":"b"}`:       trial.NotJSON,
		`{"id":"a","query":"w"} {}`: trial.NotJSON,
		`["a"]`:                     trial.NotObject,
		strings.Repeat(" 1", 3<<20): trial.TooLong,
		`{"id":"a","qery":"w"}`:     trial.UnknownField,
		`{"ID":"a","query":"w"}`:    trial.UnknownField,
		`{"id":"a","query":7}`:      trial.BadField,
		`{"id":"a","query":"w","category":"cats"}`:                          trial.BadField,
		`{"id":"a","query":"w","language":"deutsch"}`:                       trial.BadField,
		`{"id":"a","query":"w","messages":[{"role":"user","content":"w"}]}`: trial.BadField,
		`{"id":"` + strings.Repeat("a", 201) + `","query":"w"}`:             trial.BadField,
		`{"query":"w"}`:                          trial.MissingID,
		`{"id":"first","query":"w"}`:             trial.DuplicateID,
		`{"id":"a","query":" "}`:                 trial.NoQuestion,
		`{"id":"a","query":"w","reference":"x"}`: trial.BadGrader,
		`{"id":"a","query":"w","reference":"x","grader":{"type":"guess"}}`:             trial.BadGrader,
		`{"id":"a","query":"w","grader":{"type":"exact"}}`:                             trial.BadReference,
		`{"id":"a","query":"w","reference":"x","grader":{"type":"number"}}`:            trial.BadReference,
		`{"id":"a","query":"w","reference":"x","grader":{"type":"exact","what":true}}`: trial.UnknownField,
	} {
		questions, problems := trial.Read([]byte(`{"id":"first","query":"w"}`+"\n\n"+line+"\n"), "")
		if len(problems) != 1 || problems[0].Code != want || problems[0].Line != 3 || problems[0].Detail == "" || len(questions) != 1 {
			t.Errorf("%.80q: %v, want %s", line, problems, want)
		}
	}
	if _, problems := trial.Read([]byte("\n \n"), ""); len(problems) != 1 {
		t.Errorf("an empty file: %v", problems)
	}
}

// Whatever a file holds, each line that is not empty is a question or a problem.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"id":"a","query":"w","reference":[1,2],"grader":{"type":"number","abs":1}}`), "")
	f.Add([]byte("\ufeff{\"id\":\"a\",\"query\":\"w\",\"reference\":\"(\"}\r\n{}"), "regex")
	f.Fuzz(func(t *testing.T, file []byte, grader string) {
		questions, problems := trial.Read(file, grader)
		lines := 0
		for line := range strings.Lines(strings.TrimPrefix(string(file), "\ufeff")) {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		if len(questions)+len(problems) != max(1, lines) {
			t.Fatalf("%d questions and %d problems of %d lines", len(questions), len(problems), lines)
		}
		ids := map[string]bool{}
		for _, q := range questions {
			if q.ID == "" || ids[q.ID] {
				t.Fatalf("the id %q is empty or stands twice", q.ID)
			}
			ids[q.ID] = true
			q.Request()
		}
	})
}

func TestReadIsLinear(t *testing.T) {
	for _, pattern := range []string{`{"id":"a"}` + "\n", "[", `{"a":`, "\n", `{"id":"a","query":"w"} `} {
		growth.LinearTo(t, growth.Large/4, func(n int) func() {
			file := []byte(strings.Repeat(pattern, n/len(pattern)))
			return func() { trial.Read(file, "") }
		})
	}
}

func TestVote(t *testing.T) {
	right, wrong, other := trial.Member{Form: "7", Score: new(1.0)}, trial.Member{Form: "8", Score: new(0.0)}, trial.Member{Form: "9", Score: new(0.0)}
	none := trial.Member{Ungradable: true}
	for _, tt := range []struct {
		members []trial.Member
		want    *float64
	}{
		{[]trial.Member{right, right, wrong}, new(1.0)},
		{[]trial.Member{right, wrong, wrong}, new(0.0)},
		{[]trial.Member{right, wrong}, new(0.5)},
		{[]trial.Member{right, wrong, other}, new(1.0 / 3)},
		{[]trial.Member{right, none, none}, new(1.0)},
		{[]trial.Member{none, none}, nil},
		{nil, nil},
	} {
		if diff := cmp.Diff(tt.want, trial.Vote(tt.members)); diff != "" {
			t.Errorf("%v: %s", tt.members, diff)
		}
	}
}

// The vote counts what can be read without the reference, so that a reference changes no vote. Scores need no line with
// "ANSWER:" if a text is as short as the reference.
func TestMemberForms(t *testing.T) {
	for _, tt := range []struct {
		question string // its reference and grader
		answers  []string
		forms    []string
		scores   []*float64
		vote     *float64
	}{
		{
			`"reference":"New York","grader":{"type":"normalised"}`,
			[]string{"New York", "ANSWER: Rome", "I do not know"},
			[]string{"", "rome", ""},
			[]*float64{new(1.0), new(0.0), nil},
			new(0.0),
		},
		{`"reference":"x","grader":{"type":"exact"}`, []string{"x", "y"}, []string{"", ""}, []*float64{new(1.0), new(0.0)}, nil},
		{
			`"reference":"A","grader":{"type":"choice","options":["A","B"]}`,
			[]string{"a", "ANSWER: A", "B"},
			[]string{"A", "A", "B"},
			[]*float64{new(1.0), new(1.0), new(0.0)},
			new(1.0),
		},
		{`"reference":7,"grader":{"type":"number"}`, []string{"7 eggs", "ANSWER: 7.0"}, []string{"7", "7"}, []*float64{new(1.0), new(1.0)}, new(1.0)},
		{`"reference":"^x","grader":{"type":"regex"}`, []string{"xY", "", "y"}, []string{"xy", "", "y"}, []*float64{new(1.0), nil, new(0.0)}, new(0.5)},
		{`"reference":[1],"grader":{"type":"json"}`, []string{"[1.0]", "none"}, []string{"[1]", ""}, []*float64{new(1.0), nil}, new(1.0)},
	} {
		questions, problems := trial.Read([]byte(`{"id":"a","query":"w",`+tt.question+`}`), "")
		if problems != nil {
			t.Fatal(problems)
		}
		r := trial.Result{Arms: map[string]*trial.Arm{trial.ArmCouncil: {}, trial.ArmVote: {}}}
		for i := range tt.answers {
			id := strconv.Itoa(i)
			r.Members = append(r.Members, trial.Member{ID: id, Answer: &tt.answers[i]})
			r.Arms["member:"+id] = &trial.Arm{}
		}
		results := []trial.Result{r}
		plan := trial.Plan{Chairmen: []council.Member{{}}, Arms: []string{trial.ArmCouncil, trial.ArmVote}}
		trial.Compare(plan, []trial.Prepared{{Question: questions[0]}}, results)
		var forms []string
		var scores []*float64
		for _, m := range results[0].Members {
			forms = append(forms, m.Form)
			scores = append(scores, m.Score)
		}
		if diff := cmp.Diff([]any{tt.forms, tt.scores, tt.vote}, []any{forms, scores, r.Arms[trial.ArmVote].Score}); diff != "" {
			t.Errorf("%s: %s", tt.question, diff)
		}
	}
}

// A question with a right answer has the form of its grader. A regex is no form.
func TestAnswerForm(t *testing.T) {
	for line, want := range map[string]*council.AnswerForm{
		`{"id":"a","query":"w"}`: nil,
		`{"id":"a","query":"w","reference":"x","grader":{"type":"regex"}}`:                      nil,
		`{"id":"a","query":"w","reference":"x"}`:                                                {Type: council.FormExact},
		`{"id":"a","query":"w","reference":7,"grader":{"type":"number","abs":1}}`:               {Type: council.FormNumber},
		`{"id":"a","query":"w","reference":"A","grader":{"type":"choice","options":["A","B"]}}`: {Type: council.FormChoice, Options: []string{"A", "B"}},
	} {
		questions, problems := trial.Read([]byte(line), trial.GraderExact)
		if problems != nil {
			t.Fatal(problems)
		}
		if diff := cmp.Diff(want, questions[0].AnswerForm()); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}
