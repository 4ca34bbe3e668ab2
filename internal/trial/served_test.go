package trial

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/worth"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// lineup is a council of the roster, as far as lines of compare change it.
type lineup struct {
	Members    []string            `yaml:"members"`
	Chairman   string              `yaml:"chairman"`
	Mode       council.Mode        `yaml:"mode"`
	First      int                 `yaml:"first"`
	AnswerForm *council.AnswerForm `yaml:"answer_form"`
}

// paste returns a council of the roster with a line in it. It takes the line as it is printed.
func paste(t *testing.T, line string) lineup {
	t.Helper()
	var roster struct {
		Councils map[string]lineup `yaml:"councils"`
	}
	text := "councils:\n  four: {" + line + "}\n"
	if err := yaml.Unmarshal([]byte(text), &roster); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return roster.Councils["four"]
}

// world has simulated models that are reached over HTTP, and questions to which they often know the answer.
type world struct {
	client    *llm.Client
	models    []string
	questions []Question
}

func newWorld(t *testing.T, questions int, grader string) world {
	t.Helper()
	var lines strings.Builder
	for i := range questions {
		fmt.Fprintf(&lines, `{"id":"q%d","query":"Which of the numbers has the place %d?","reference":"%d","grader":%s,`+
			`"labels":{"sim_right":"%d","sim_wrong":"%d|%d"}}`+"\n", i, i, i%5, grader, i%5, i%5+10, i%5+20)
	}
	closed, err := simllm.ReadClosed([]byte(lines.String()))
	if err != nil || len(closed) != questions {
		t.Fatal(len(closed), err)
	}
	models := simllm.Council()[:4]
	for i := range models {
		models[i].Latency = simllm.Latency{}
		models[i].Ability = simllm.NewAbility(0.7 - 0.05*float64(i))
	}
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: models, Closed: closed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	w := world{}
	if w.client, err = llm.New(llm.Options{
		Providers: []llm.Provider{{BaseURL: sim.URL()}, {Name: "sim", BaseURL: sim.URL()}}, AttemptTimeout: time.Minute,
		DialTimeout: time.Second, MaxCallsPerProvider: 64, MaxReplyBytes: 1 << 20,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.Close)
	for _, m := range models {
		w.models = append(w.models, "sim:"+m.Name)
	}
	var problems []LineProblem
	if w.questions, problems = Read([]byte(lines.String()), ""); problems != nil {
		t.Fatal(problems)
	}
	return w
}

// council returns a pipeline whose council is that of the world, as a line of the roster changes it.
func (w world) council(t *testing.T, c lineup, completer council.Completer) *pipeline.Pipeline {
	t.Helper()
	if c.Members == nil {
		c.Members = w.models
	}
	p, err := pipeline.New(pipeline.Options{
		Completer: completer, Log: slog.New(slog.DiscardHandler), Version: "test",
		Lineup: pipeline.Lineup{
			MaxModels: 12, Models: c.Members, AllowedModels: w.models, Mode: c.Mode, First: c.First, Form: c.AnswerForm,
			// The chairman is not the first member, so that a line that changes the members keeps it.
			Chairman: w.models[1],
		},
		MaxQueryBytes: 1 << 16, Limits: council.Limits{Timeout: time.Minute}, Draws: pipeline.Draws{Order: council.OrderBalanced},
		Rules: council.Rules{PartialBallots: council.PolicyAvailable},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// compare asks the questions of the world as councild compare does.
func (w world) compare(t *testing.T, arms ...string) (Plan, []Prepared, []Result) {
	t.Helper()
	return w.run(t, lineup{}, func(p *Plan) {
		p.Margin = 0.05
		p.Samples = 6
		p.Ensemble = p.Chairmen[0]
		var err error
		if p.Arms, err = Arms(arms, p.Members, true); err != nil {
			t.Fatal(err)
		}
	})
}

// run asks the questions of the world. If the function shape, which completes the plan, is nil, the run is a batch and
// the council is asked as the lineup says. It returns the plan, the questions and the results.
func (w world) run(t *testing.T, c lineup, shape func(*Plan)) (Plan, []Prepared, []Result) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	calls := openCalls(t, out+".calls")
	t.Cleanup(func() { _ = calls.Close() })
	p := w.council(t, c, calls.Completer(w.client))
	prepare := func(q Question) council.Plan {
		r := q.Request()
		r.Whole = shape != nil
		plan, err := p.Prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	plan := New([]byte("file"), w.questions, prepare(w.questions[0]), "")
	if shape != nil {
		shape(&plan)
	}
	o := Options{Council: p, Calls: calls, Plan: plan, Out: out, MaxCostUSD: 1e6, Concurrency: 4}
	for _, q := range plan.Ordered(w.questions) {
		o.Questions = append(o.Questions, Prepared{Question: q, Session: plan.Of(q.ID, prepare(q))})
	}
	outcome, err := Run(t.Context(), o)
	if err != nil || len(outcome.Results) != len(w.questions) {
		t.Fatal(len(outcome.Results), outcome.Stopped, err)
	}
	return plan, o.Questions, outcome.Results
}

// A council of the roster that has the line of an arm serves the answers of that arm, byte for byte, and costs what
// compare says that the arm costs.
func TestLineServesItsArm(t *testing.T) {
	testkit.Slow(t)
	w := newWorld(t, 40, `{"type":"number"}`)
	plan, questions, results := w.compare(t, ArmVote, "first:2", "first:3", "synthesis", "ensemble", "placebo")
	form := formOf(questions)
	Compare(plan, questions, results)
	lines := map[string]string{}
	for arm := range results[0].Arms {
		lines[arm] = plan.rosterLine(arm, form)
	}
	want := map[string]string{
		"council": "mode: council", "ranked": "mode: ranked", "synthesis": "mode: synthesis", "placebo": "",
		"vote":     "mode: vote, answer_form: {type: number}",
		"first:2":  "first: 2, answer_form: {type: number}",
		"first:3":  "first: 3, answer_form: {type: number}",
		"ensemble": `members: [` + strings.Repeat(`"sim:birch", `, 5) + `"sim:birch"], mode: synthesis`,
	}
	for _, m := range w.models {
		want["member:"+m] = `members: ["` + m + `"], mode: single`
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Fatal(diff)
	}
	for _, arm := range slices.Sorted(maps.Keys(lines)) {
		if lines[arm] == "" {
			continue
		}
		served := w.council(t, paste(t, lines[arm]), w.client)
		tied := 0
		convened := 0
		sum := 0.0
		for i, q := range questions {
			session := w.serve(t, served, q, lines[arm])
			measured := results[i].Arms[arm]
			if text := results[i].text(arm); text == "" || session.Answer != text {
				t.Errorf("%s, %s: served is %q, and measured %q", arm, q.ID, session.Answer, text)
			}
			cost := session.Metadata.Usage.CostUSD
			if cost == nil || measured.CostUSD == nil || *cost != *measured.CostUSD {
				t.Errorf("%s, %s: served for %v, and measured as %v", arm, q.ID, cost, measured.CostUSD)
			}
			if from := measured.AnswerFrom; from != nil {
				if diff := cmp.Diff(*from, session.AnswerFrom); diff != "" {
					t.Errorf("%s, %s: %s", arm, q.ID, diff)
				}
				if len(from.Tied) > 0 {
					tied++
				}
			}
			if n := callsOf(session); n != measured.Calls {
				t.Errorf("%s, %s: served with %d calls, and measured with %d", arm, q.ID, n, measured.Calls)
			}
			if f := session.Metadata.First; f != nil && f.Convened {
				convened++
			}
			sum += *cost
		}
		ratio := costRatio(results, arm)
		whole, _ := costOf(results, ArmCouncil)
		if ratio == nil || sum/whole/(*ratio) > 1.001 || sum/whole/(*ratio) < 0.999 {
			t.Errorf("%s: the bill is %.4f of the council's, and compare says %v", arm, sum/whole, ratio)
		}
		if begins := strings.HasPrefix(arm, armFirst); begins != (convened > 0 && convened < len(questions)) {
			t.Errorf("%s: the council was convened %d times", arm, convened)
		}
		t.Logf("%s: %.1f %% of the bill, %d of %d answers are tied, convened %d times: %s",
			arm, 100**ratio, tied, len(questions), convened, lines[arm])
	}
}

// serve asks a question of a council that has a line. The seed and the key of the markers are those of the comparison. A
// line that names a form has to suffice, so the request then names none. An ensemble gets the bodies of the comparison,
// because without them a simulated model says the same each time.
func (w world) serve(t *testing.T, p *pipeline.Pipeline, q Prepared, line string) *council.Session {
	t.Helper()
	r := q.Request()
	if strings.Contains(line, "answer_form") {
		r.AnswerForm = nil
	}
	plan, err := p.Prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(q.Session.Conversation, plan.Conversation); diff != "" {
		t.Fatal(diff)
	}
	plan.Seed = q.Session.Seed
	plan.MarkerKey = q.Session.MarkerKey
	if strings.Count(line, "birch") > 1 {
		for i := range plan.Stages[0].Seats {
			plan.Stages[0].Seats[i].Profile = &council.Profile{
				Body: map[string]json.RawMessage{"seed": json.RawMessage(strconv.Itoa(i + 1))},
			}
		}
	}
	session, err := p.Run(t.Context(), plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// callsOf returns how many calls a session made.
func callsOf(s *council.Session) int {
	n := len(s.Stage1) + len(s.Stage2)
	for _, v := range s.Stage2 {
		if v.Repair != nil {
			n++
		}
	}
	if s.Stage3 != nil {
		n++
	}
	return n
}

// The line of a comparison serves the cheapest arm that the council is shown not to beat.
func TestRosterLine(t *testing.T) {
	number := &council.AnswerForm{Type: council.FormNumber}
	arm := func(usd *float64, calls int) *Arm { return &Arm{CostUSD: usd, Calls: calls} }
	results := []Result{{Arms: map[string]*Arm{
		ArmCouncil: arm(new(0.9), 9), ArmRanked: arm(new(0.8), 8), ArmVote: arm(new(0.4), 4), "first:2": arm(new(0.5), 5),
		"synthesis": arm(nil, 5), "ensemble": arm(nil, 9), "member:gpt": arm(new(0.1), 1), "member:gpt#2": arm(new(0.2), 1),
	}}}
	plan := Plan{Ensemble: council.Member{ID: "gpt"}, Samples: 3, Chairmen: []council.Member{{ID: "chair:1"}}}
	for _, tt := range []struct {
		verdict worth.Verdict
		short   []string
		form    *council.AnswerForm
		want    string
		ratio   float64
	}{
		{worth.Pays, nil, nil, "mode: council", 1},
		{worth.Undecided, nil, number, "", 0},
		{worth.DoesNotPay, []string{ArmRanked, ArmVote, "first:2"}, number, "mode: vote, answer_form: {type: number}", 0.4 / 0.9},
		{worth.DoesNotPay, []string{ArmRanked, ArmVote, "first:2"}, nil, "mode: ranked", 0.8 / 0.9},
		{worth.DoesNotPay, []string{ArmVote}, nil, "", 0},
		{worth.DoesNotPay, []string{"first:2", ArmRanked}, number, "first: 2, answer_form: {type: number}", 0.5 / 0.9},
		{worth.DoesNotPay, []string{ArmVote, "member:gpt#2"}, number, "members: [gpt], mode: single", 0.2 / 0.9},
		{worth.DoesNotPay, []string{"ensemble", "synthesis"}, number, "mode: synthesis", 0}, // fewer calls, at unknown cost
		{worth.DoesNotPay, []string{"ensemble"}, number, `members: [gpt, gpt, gpt], mode: synthesis, chairman: "chair:1"`, 0},
		{worth.DoesNotPay, []string{"synthesis", ArmRanked}, number, "mode: ranked", 0.8 / 0.9},
	} {
		r := plan.roster(worth.Report{Verdict: tt.verdict, Short: tt.short}, tt.form, results)
		got := ""
		if r.RosterLine != nil {
			got = *r.RosterLine
		}
		ratio := 0.0
		if r.RosterCost != nil {
			ratio = *r.RosterCost
		}
		if got != tt.want || ratio-tt.ratio > 1e-12 || tt.ratio-ratio > 1e-12 || (r.RosterArm == nil) != (tt.want == "") {
			t.Errorf("%s %v: %q at %v, want %q at %v", tt.verdict, tt.short, got, ratio, tt.want, tt.ratio)
		}
	}
}

// Whatever the names of models and options are, the line is YAML with these names.
func TestRosterLineIsYAML(t *testing.T) {
	names := []string{
		"gpt", "~openai/gpt-latest", "local:llama3:8b", "a b", "yes", "NO", "null", "7", "1e3", "[x]", "{y}", "a,b", "a: b", "# c",
		`"`, `\`, "'", "é", "日本", "\t", "\x1b", "\u202e", "-", "a#b", "&a", "*a", "!a", "%a", "@a", "😀", "a  b",
	}
	form := council.AnswerForm{Type: council.FormChoice, Options: names}
	got := paste(t, members(names...)+", first: 2, answer_form: "+flow(form))
	want := lineup{Members: slices.Clone(names), First: 2, AnswerForm: &form}
	for i, name := range want.Members {
		want.Members[i] = council.ModelOf(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Questions of one form share that form. Questions of several forms have no common form.
func TestFormOf(t *testing.T) {
	of := func(forms ...*council.AnswerForm) []Prepared {
		all := make([]Prepared, len(forms))
		for i := range forms {
			all[i].Session.Form = forms[i]
		}
		return all
	}
	ab := &council.AnswerForm{Type: council.FormChoice, Options: []string{"A", "B"}}
	again := &council.AnswerForm{Type: council.FormChoice, Options: []string{"A", "B"}}
	abc := &council.AnswerForm{Type: council.FormChoice, Options: []string{"A", "B", "C"}}
	for name, tt := range map[string]struct {
		questions []Prepared
		want      *council.AnswerForm
	}{
		"none":      {of(), nil},
		"the same":  {of(ab, again), ab},
		"different": {of(ab, abc), nil},
		"a regex":   {of(ab, nil), nil},
		"all regex": {of(nil, nil), nil},
	} {
		if diff := cmp.Diff(tt.want, formOf(tt.questions)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The instruction of a form stands below the question, in the same words as ever.
func TestInstructionOfAForm(t *testing.T) {
	const number = "End your answer with a line of its own that begins with \"ANSWER:\" and holds one number, and nothing else."
	turns := []council.Message{{Role: "user", Content: "Two."}, {Role: "assistant", Content: "Yes?"}, {Role: "user", Content: "More? "}}
	last := slices.Clone(turns)
	last[2].Content += "\n\n" + number
	w := newWorld(t, 1, `{"type":"number"}`)
	p := w.council(t, lineup{}, w.client)
	for text, want := range map[string][]council.Message{
		`"query":"What?"`: {{Role: "user", Content: "What?\n\n" + number}},
		`"messages":[{"role":"user","content":"Two."},{"role":"assistant","content":"Yes?"},{"role":"user","content":"More? "}]`: last,
	} {
		questions, problems := Read([]byte(`{"id":"a",`+text+`,"reference":7,"grader":{"type":"number","abs":1}}`), "")
		if problems != nil {
			t.Fatal(problems)
		}
		plan, err := p.Prepare(questions[0].Request())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, plan.Asked()); diff != "" {
			t.Error(diff)
		}
	}
}

// Questions without a form are put to all members at once, so first:2 is the council.
func TestFirstWithoutAForm(t *testing.T) {
	w := newWorld(t, 3, `{"type":"regex"}`)
	_, questions, results := w.compare(t, ArmVote, "first:2")
	for i, r := range results {
		if questions[i].Session.Form != nil || r.Arms["first:2"].Calls != r.Arms[ArmCouncil].Calls || r.text("first:2") != r.Answer ||
			*r.Arms["first:2"].CostUSD != *r.Arms[ArmCouncil].CostUSD {
			t.Errorf("%+v, want %+v", r.Arms["first:2"], r.Arms[ArmCouncil])
		}
		if r.Arms[ArmVote].AnswerFrom != nil || r.Arms[ArmVote].Failed {
			t.Errorf("the vote is %+v", r.Arms[ArmVote])
		}
	}
}

// A batch asks as the mode of the council says, and its rows have what such a session serves.
func TestBatchInEveryMode(t *testing.T) {
	w := newWorld(t, 8, `{"type":"number"}`)
	for line, arms := range map[string]string{
		"mode: council":   "council ranked vote",
		"mode: ranked":    "council ranked vote",
		"mode: synthesis": "council vote",
		"mode: vote, answer_form: {type: number}": "council vote",
		`members: ["sim:cedar"], mode: single`:    "council vote",
		"mode: council, first: 2":                 "council ranked vote",
		"mode: ranked, first: 2":                  "council ranked vote",
	} {
		c := paste(t, line)
		plan, questions, results := w.run(t, c, nil)
		served := w.council(t, c, w.client)
		convened := 0
		for i, r := range results {
			session := w.serve(t, served, questions[i], line)
			if r.Answer == "" || r.Answer != session.Answer || r.Mode != c.Mode || r.Status != session.Status || r.Arms[ArmCouncil].Failed {
				t.Errorf("%s, %s: the row is %+v, and served is %q", line, r.ID, r, session.Answer)
			}
			if diff := cmp.Diff([]any{session.AnswerFrom, session.Metadata.First}, []any{r.AnswerFrom, r.First}); diff != "" {
				t.Errorf("%s, %s: %s", line, r.ID, diff)
			}
			usage := session.Metadata.Usage
			if *r.Arms[ArmCouncil].CostUSD != *usage.CostUSD || *r.Usage.CostUSD != *usage.CostUSD || r.Arms[ArmCouncil].Calls != callsOf(session) {
				t.Errorf("%s, %s: the row costs %v, and the session %v", line, r.ID, *r.Arms[ArmCouncil].CostUSD, *usage.CostUSD)
			}
			if g := questions[i].grader.Grade(session.Answer); diffScore(g.Score, r.Score) {
				t.Errorf("%s, %s: the score is %v, want %v", line, r.ID, r.Score, g.Score)
			}
			var names []string
			for name := range r.Arms {
				if !strings.HasPrefix(name, armMember) {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			want := arms
			if r.endedAfterFirst() {
				want = "council"
			}
			if got := strings.Join(names, " "); got != want || len(r.Members) != len(session.Stage1) {
				t.Errorf("%s, %s: the arms are %s, want %s", line, r.ID, got, want)
			}
			if !r.endedAfterFirst() {
				convened++
			}
		}
		rows, ids, err := Seats(ResultFile{Plan: plan, Results: results, Ended: true})
		switch {
		case c.First > 0 && convened == len(results):
			t.Errorf("%s: all members were asked at each question", line)
		case c.First > 0 && (err == nil || !strings.Contains(err.Error(), "only its first members")):
			t.Errorf("%s: %v", line, err)
		case c.First == 0 && (err != nil || len(rows) != len(results) || len(ids) != len(plan.Members)):
			t.Errorf("%s: %d rows, %v", line, len(rows), err)
		}
		plan.Settings() // needs no chairman
	}
}

func diffScore(a, b *float64) bool { return (a == nil) != (b == nil) || a != nil && *a != *b }

// The reference does not change how many members agree. Of equally frequent answers, the answer that a vote serves
// counts.
func TestAlike(t *testing.T) {
	member := func(form string, score float64) Member { return Member{ID: "m" + form, Form: form, Score: &score} }
	for _, tt := range []struct {
		members []Member
		n       int
		right   []bool // one of these
	}{
		{[]Member{member("7", 1), member("7", 1), member("8", 0)}, 2, []bool{true}},
		{[]Member{member("7", 1), member("8", 0), member("8", 0), {ID: "failed"}}, 2, []bool{false}},
		{[]Member{member("7", 1), member("8", 0)}, 1, []bool{true, false}},
		{[]Member{{ID: "failed"}}, 0, []bool{false}},
	} {
		seen := map[bool]int{}
		for seed := range int64(40) {
			n, right := alike(Result{Members: tt.members, Seed: seed})
			if n != tt.n {
				t.Errorf("%d members agree, want %d", n, tt.n)
			}
			seen[right]++
		}
		if got := slices.Collect(maps.Keys(seen)); len(got) != len(tt.right) || !slices.Contains(got, tt.right[0]) {
			t.Errorf("%+v: right is %v, want %v", tt.members, seen, tt.right)
		}
	}
}

// A ranking without a ballot takes the first answer, as a session in the mode ranked does. Without a quorum, no mode has
// an answer.
func TestPicked(t *testing.T) {
	seat := func(id, text string) council.Answer {
		a := council.Answer{Model: id, Status: council.OutcomeError, Spent: council.Spent{Usage: council.NoUsage()}}
		if text != "" {
			a.Status = council.OutcomeOK
			a.Response = &text
		}
		return a
	}
	form := &council.AnswerForm{Type: council.FormNumber}
	plan := council.Plan{Form: form, Stages: council.Stages(council.ModeCouncil, []council.Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}, nil, nil)}
	for _, tt := range []struct {
		answers []council.Answer
		refuse  bool
		ranked  *council.AnswerFrom
		vote    *council.AnswerFrom
	}{
		{
			[]council.Answer{seat("a", ""), seat("b", "ANSWER: 1"), seat("c", "ANSWER: 1")},
			false,
			&council.AnswerFrom{Rule: council.RuleFirst, Model: "b"}, &council.AnswerFrom{Rule: council.RuleCommonest, Model: "b"},
		},
		{
			[]council.Answer{seat("a", "no"), seat("b", "no"), seat("c", "no")},
			false,
			&council.AnswerFrom{Rule: council.RuleFirst, Model: "a"}, nil,
		},
		{[]council.Answer{seat("a", ""), seat("b", "ANSWER: 1"), seat("c", "ANSWER: 1")}, true, nil, nil},
		{[]council.Answer{seat("a", ""), seat("b", ""), seat("c", "ANSWER: 1")}, false, nil, nil},
	} {
		session := &council.Session{Stage1: tt.answers}
		if tt.refuse {
			plan.OnPartial = council.PartialRefuse
			session.Degradation = []council.Degradation{{Stage: council.Stage1, Model: "a"}}
		} else {
			plan.OnPartial = council.PartialAccept
		}
		for mode, want := range map[council.Mode]*council.AnswerFrom{council.ModeRanked: tt.ranked, council.ModeVote: tt.vote} {
			arm := picked(mode, plan, session, answered(tt.answers))
			if arm.Failed != (want == nil) || want != nil && (arm.AnswerFrom.Rule != want.Rule || arm.AnswerFrom.Model != want.Model) {
				t.Errorf("%s of %v: %+v, want %+v", mode, tt.answers, arm, want)
			}
		}
	}
}

// A comparison asks all members, so the mode and the first members of a council do not change what it measures.
func TestCompareAsksEverybody(t *testing.T) {
	w := newWorld(t, 3, `{"type":"number"}`)
	shape := func(p *Plan) { p.Arms = []string{ArmCouncil, ArmRanked, "first:2"} }
	want, _, results := w.run(t, lineup{}, shape)
	for _, line := range []string{"mode: vote, answer_form: {type: number}", "mode: ranked, first: 2", "mode: council, first: 1"} {
		plan, _, got := w.run(t, paste(t, line), shape)
		if diff := cmp.Diff(want, plan); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
		if diff := cmp.Diff(results, got); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}

func TestArmFirst(t *testing.T) {
	members := []council.Member{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}}
	all, err := Arms([]string{"member:a", "first:3", "first:2", ArmVote}, members, true)
	if got := strings.Join(all, " "); err != nil || got != "council best vote ranked first:2 first:3 member:a" {
		t.Errorf("%s, %v", got, err)
	}
	for name, want := range map[string]string{
		"first:1": "of 4 members", "first:4": "of 4 members", "first:02": "is not an arm", "first:": "is not an arm", "first:-2": "of 4 members",
	} {
		if _, err := Arms([]string{name}, members, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := Arms([]string{"first:2"}, members, false); err == nil || !strings.Contains(err.Error(), "needs right answers") {
		t.Error(err)
	}
}
