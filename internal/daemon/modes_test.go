package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// modes is a roster with a council of each mode. Its models know the example questions: local is always wrong, and the
// others are always right.
const modes = `version: 1
default: deep
classes: [public, internal]
models:
  gpt: {model: "sim:amber?accuracy=1", maker: a, clearance: internal}
  skeptic: {model: "sim:birch?accuracy=1", maker: b, clearance: internal}
  local: {model: "sim:cedar?accuracy=0", clearance: public}
councils:
  quick: {members: [gpt, skeptic, local], mode: ranked, data_class: public}
  count: {members: [gpt, skeptic, local], mode: vote, answer_form: {type: number}, data_class: public}
  solo: {members: [gpt], mode: single}
  four: {members: [gpt, gpt, gpt, gpt], mode: synthesis}
  deep: {members: [gpt, skeptic, local], first: 2, answer_form: {type: choice, options: [A, B]}, data_class: public}
  alone: {members: [gpt, skeptic], first: 1}
`

// The example questions.
const (
	rolls  = "A bakery packs 17 rolls into each of 23 bags and has 9 rolls left over. How many rolls did it bake?"
	herons = "Every heron in the park is a bird. Some birds in the park cannot fly. Does it follow that some herons in the park cannot fly?"
)

// counter counts the calls to models.
type counter struct {
	council.Completer
	calls atomic.Int64
}

// Complete implements council.Completer.
func (c *counter) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	c.calls.Add(1)
	return c.Completer.Complete(ctx, call)
}

// engineOf starts an engine with a roster of simulated models, and returns a function that returns how many calls it has
// made since the last time.
func engineOf(t *testing.T, roster string) (e *daemon.Engine, calls func() int64) {
	t.Helper()
	var c counter
	models := simllm.Council()
	for i := range models {
		models[i].Latency = simllm.Latency{}
	}
	e, err := daemon.NewEngine(t.Context(), daemon.EngineOptions{
		Config:    daemontest.Load(t, map[string]string{"MODELS": "", "ROSTER": writeRoster(t, roster)}),
		Simulated: simllm.Default().With(1, models), Log: slog.New(slog.DiscardHandler),
		Keep: func(inner council.Completer) council.Completer {
			c.Completer = inner
			return &c
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(context.WithoutCancel(t.Context())) })
	return e, func() int64 { return c.calls.Swap(0) }
}

func TestModesOfARoster(t *testing.T) {
	e, calls := engineOf(t, modes)
	yesOrNo := &council.AnswerForm{Type: council.FormChoice, Options: []string{"yes", "no"}}
	for name, c := range map[string]struct {
		request council.Request
		mode    council.Mode
		rule    council.AnswerRule
		calls   int64
		answer  string // the end of the answer, where it is known
	}{
		"quick":      {council.Request{Council: "quick", Query: rolls}, council.ModeRanked, council.RuleTop, 6, "400"},
		"count":      {council.Request{Council: "count", Query: rolls}, council.ModeVote, council.RuleCommonest, 3, "ANSWER: 400"},
		"solo":       {council.Request{Council: "solo", Query: rolls}, council.ModeSingle, council.RuleOnly, 1, "400"},
		"four":       {council.Request{Council: "four", Query: rolls}, council.ModeSynthesis, council.RuleWritten, 5, ""},
		"alone":      {council.Request{Council: "alone", Query: rolls}, council.ModeCouncil, council.RuleFirst, 1, "400"},
		"the same":   {council.Request{Query: herons, AnswerForm: yesOrNo}, council.ModeCouncil, council.RuleFirst, 2, "ANSWER: no"},
		"different":  {council.Request{Query: herons, AnswerForm: yesOrNo, Models: []string{"gpt", "local", "skeptic"}}, council.ModeCouncil, council.RuleWritten, 7, ""},
		"unreadable": {council.Request{Query: herons, AnswerForm: &council.AnswerForm{Type: council.FormNumber}}, council.ModeCouncil, council.RuleWritten, 7, ""},

		// OpenAI's clients name a council as a model. Its mode applies, unless the request names one.
		"council/quick": {council.Request{Models: []string{"quick"}, Direct: true, Query: rolls}, council.ModeRanked, council.RuleTop, 6, "400"},
		"council/quick with a mode": {
			council.Request{Models: []string{"quick"}, Direct: true, Query: rolls, Mode: council.ModeSynthesis},
			council.ModeSynthesis, council.RuleWritten, 4, "",
		},
		"council/gpt": {council.Request{Models: []string{"gpt"}, Direct: true, Query: rolls}, council.ModeSingle, council.RuleOnly, 1, "400"},
	} {
		plan, err := e.Prepare(c.request)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, err := e.Run(t.Context(), plan, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := calls(); s.Mode != c.mode || s.AnswerFrom.Rule != c.rule || n != c.calls || !strings.HasSuffix(s.Answer, c.answer) {
			t.Errorf("%s: mode %s, rule %s, %d calls, answer %q, want %+v", name, s.Mode, s.AnswerFrom.Rule, n, s.Answer, c)
		}
	}
	offers, err := e.Offers("")
	if err != nil || len(offers) != 6 {
		t.Errorf("%d offers, %v", len(offers), err)
	}
}

// A council that is convened may see the question only if all its seats may, in the roster that is in force.
func TestConvene(t *testing.T) {
	e, calls := engineOf(t, modes)
	first := func(r council.Request) (council.Plan, *council.Session) {
		t.Helper()
		plan, err := e.Prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Run(t.Context(), plan, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return plan, s
	}
	plan, s := first(council.Request{Council: "alone", Query: rolls})
	whole, err := e.Convene(plan, s)
	if err != nil {
		t.Fatal(err)
	}
	calls()
	s, err = e.Run(t.Context(), whole, nil, nil)
	if n := calls(); err != nil || n != 4 || s.AnswerFrom.Rule != council.RuleWritten || s.Metadata.GivenFrom != plan.SessionID {
		t.Errorf("%d calls, want 4: %+v, %v", n, s.AnswerFrom, err)
	}
	if whole.DataClass != "internal" {
		t.Errorf("the class is %q", whole.DataClass)
	}
	if _, err := e.Convene(whole, s); errCode(err) != council.CodeConflict {
		t.Errorf("a second time: %v", err)
	}
	for name, c := range map[string]struct {
		old, new string
		code     council.Code
	}{
		"another clearance":      {"maker: b, clearance: internal", "maker: b, clearance: public", council.CodeForbidden},
		"a roster without alone": {"  alone: {members: [gpt, skeptic], first: 1}\n", "", council.CodeConflict},
	} {
		plan, s := first(council.Request{Council: "alone", Query: rolls})
		other, _ := engineOf(t, strings.Replace(modes, c.old, c.new, 1))
		whole, err := other.Convene(plan, s)
		if errCode(err) != c.code {
			t.Errorf("%s: %v, class %s", name, err, whole.DataClass)
		}
	}
}

func errCode(err error) council.Code {
	e, ok := errors.AsType[*council.Error](err)
	if !ok {
		return ""
	}
	return e.Code
}

func TestShownModes(t *testing.T) {
	cfg := daemontest.Load(t, map[string]string{"MODELS": ""})
	shown, err := daemon.ShowRoster(cfg, writeRoster(t, modes), simllm.Default())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range shown.Councils {
		lines = append(lines, fmt.Sprintln(c.Name, c.Mode, c.First, c.AnswerForm != nil, c.Reviewers, c.Chairmen))
	}
	const want = `quick ranked 0 false [gpt skeptic local] []
count vote 0 true [] []
solo single 0 false [] []
four synthesis 0 false [] [gpt]
deep council 2 true [gpt skeptic local] [gpt]
alone council 1 false [gpt skeptic] [gpt]
`
	if diff := cmp.Diff(want, strings.Join(lines, "")); diff != "" {
		t.Errorf("councils (-want +got):\n%s", diff)
	}
	if len(shown.Warnings) != 1 || !strings.Contains(shown.Warnings[0], "the council alone has two members") {
		t.Errorf("warnings %v", shown.Warnings)
	}
}

// Daemons without a roster have a mode too.
func TestModeOfTheSettings(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"MODELS": "sim:amber", "MODE": "single"})
	if s := d.Ask(t, anyQuestion); s.Mode != council.ModeSingle || len(s.Stage1) != 1 || s.Stage2 == nil || s.Stage3 != nil {
		t.Errorf("%s, %d answers", s.Mode, len(s.Stage1))
	}
	if code, data := d.Call(t, "GET", "/v1/councils", ""); code != 200 {
		t.Errorf("%d %s", code, data)
	}
	if code, data := d.Call(t, "GET", "/readyz", ""); code != 200 {
		t.Errorf("%d %s", code, data)
	}
}

// The figures of a council do not come from sessions that make other calls, although the same members take part.
func TestLatelyInEachMode(t *testing.T) {
	env := map[string]string{"MODELS": "", "ROSTER": writeRoster(t, `version: 1
default: whole
models:
  a: {model: "sim:amber"}
  b: {model: "sim:birch"}
  c: {model: "sim:cedar"}
councils:
  whole: {members: [a, b, c]}
  alone: {members: [a, b, c], first: 1}
  quick: {members: [a, b, c], mode: ranked}
  count: {members: [a, b, c], mode: vote, answer_form: {type: exact}}
  free: {members: [a, b, c], mode: synthesis}
`)}
	d := daemontest.Start(t, env)
	s := d.Ask(t, `{"query":"Who?","council":"alone"}`)
	if status, data := d.Call(t, "POST", "/v1/council/"+s.ID+"/convene", ""); status != 200 {
		t.Fatalf("%d %s", status, data)
	}
	d.Ask(t, `{"query":"Who?","council":"quick"}`)
	_, data := d.Call(t, "GET", "/v1/councils", "")
	var list struct {
		Councils []struct {
			Name   string
			Lately *struct{ Sessions int }
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Councils {
		sessions := 0
		if c.Lately != nil {
			sessions = c.Lately.Sessions
		}
		if want := map[string]int{"alone": 1, "quick": 1}[c.Name]; sessions != want {
			t.Errorf("%s: the figures cover %d sessions, want %d", c.Name, sessions, want)
		}
	}
}
