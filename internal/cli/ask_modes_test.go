package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// numbers is a provider of models that answer with the number 7. The model other answers with 8.
func numbers(t *testing.T) *simllm.Running {
	t.Helper()
	var models []simllm.Model
	for _, name := range []string{"a", "b", "other"} {
		models = append(models, simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) {
			answer := "ANSWER: 7"
			if name == "other" {
				answer = "ANSWER: 8"
			}
			return answer, task.Kind == simllm.Question
		}})
	}
	return daemontest.Provider(t, models...)
}

// What ask prints names whose text the answer is, and no stage that did not run.
func TestAskInEachMode(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BASE_URL": numbers(t).URL(), "MODELS": "a,b,other", "DATA_DIR": "off"})
	for _, tt := range []struct {
		name  string
		args  []string
		want  string
		ranks bool
	}{
		{"council", []string{"--mode", "council"}, "Answer     the synthesis of a\n", true},
		{"ranked", []string{"--mode", "ranked"}, "which was ranked first", true},
		{"synthesis", []string{"--mode", "synthesis"}, "Answer     the synthesis of a\n", false},
		{"vote", []string{"--mode", "vote", "--answer-form", "number"}, "Answer     the most frequent one, which 2 members gave, in the words of a\n", false},
		{"choice", []string{"--mode", "vote", "--answer-form", "choice:7,8"}, "Answer     the most frequent one, which 2 members gave, in the words of a\n", false},
		{"single", []string{"--mode", "single", "--models", "a"}, "Answer     that of a\n", false},
		{"one begins", []string{"--first", "1"}, "Asked      1 of 3 members was asked, so no other member has seen the question\n           No daemon keeps", false},
		{
			"two begin",
			[]string{"--first", "2", "--answer-form", "number"},
			"2 of 3 members were asked: they gave the same answer, which is no proof\n           No daemon keeps", false,
		},
		{
			"two differ",
			[]string{"--first", "2", "--answer-form", "number", "--models", "a,other,b"},
			"a and other began and gave different answers, so all members were asked\n", true,
		},
	} {
		code, stdout, stderr := command(t, append([]string{"ask", "How many?"}, tt.args...)...)
		if code != exitOK || !strings.Contains(stdout, tt.want) || strings.Contains(stdout, "Ranking ") != tt.ranks {
			t.Errorf("%s: exit %d: %s%s", tt.name, code, stdout, stderr)
		}
	}
	for _, tt := range [][]string{
		{"--mode", "judge", "--mode: \"judge\" is not a mode of a council; use council"},
		{"--mode", "vote", "--answer-form: a vote counts equal answers, and no form of the answers is given; give one, such as --answer-form number"},
		{"--first", "0", "--first: "},
		{"--first", "3", "from 1 to 2"},
		{"--answer-form", "essay", "--answer-form: it cannot be used"},
		{"--answer-form", "choice", "--answer-form: it cannot be used"},
	} {
		code, _, stderr := command(t, append([]string{"ask", "How many?"}, tt[:2]...)...)
		if code != exitUsage || !strings.Contains(stderr, tt[2]) {
			t.Errorf("%s: exit %d: %s", tt, code, stderr)
		}
	}
}

// A daemon's session that its first member decided can be convened, once.
func TestAskConvenes(t *testing.T) {
	provider := numbers(t)
	d := startDaemon(t, map[string]string{"BASE_URL": provider.URL(), "MODELS": "a,b,other"})
	code, stdout, stderr := command(t, "ask", "--server", d.URL(), "--first", "1", "How many?")
	_, convene, found := strings.Cut(stdout, "To ask the other members too: councild ")
	if code != exitOK || !found {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	args := strings.Fields(convene)[:5]
	id := args[4]
	if want := []string{"ask", "--server", d.URL(), "--convene", id}; !cmp.Equal(args, want) {
		t.Fatalf("the command is %q", args)
	}
	if _, shown, _ := command(t, "sessions", "show", "--server", d.URL(), id); !strings.Contains(shown, strings.Join(args, " ")) {
		t.Errorf("sessions show prints %s", shown)
	}
	code, stdout, stderr = command(t, args...)
	for _, want := range []string{"a had answered before, and the other members were asked afterwards\n", "Answer     " +
		"the synthesis of a\n", "Ranking "} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("exit %d, %q is missing: %s%s", code, want, stdout, stderr)
		}
	}
	if n := provider.Stats().Models["a"].Requests; n != 3 {
		t.Errorf("a had %d requests, want an answer, a review and a synthesis", n)
	}
	if code, _, stderr := command(t, args...); code != exitError || !strings.Contains(stderr, "the council was convened already") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	for _, tt := range [][]string{
		{"leave out the question", "Why?"}, {"leave one of them out", "--estimate"}, {"leave one of them out", "--follow", id}, {"leave out --mode", "--mode", "vote"},
	} {
		code, _, stderr := command(t, append([]string{"ask", "--convene", id}, tt[1:]...)...)
		if code != exitUsage || !strings.Contains(stderr, tt[0]) {
			t.Errorf("%s: exit %d: %s", tt, code, stderr)
		}
	}
	if code, _, stderr := command(t, "ask", "--server", d.URL(), "--convene", "none"); code != exitError || !strings.Contains(stderr, "councild sessions list") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// The estimate names the other modes and the members that begin.
func TestAskEstimatesModes(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BASE_URL": numbers(t).URL(), "MODELS": "a,b,other", "DATA_DIR": "off"})
	_, stdout, stderr := command(t, "ask", "--estimate", "--first", "1", "How many?")
	for _, want := range []string{"1  if the members that begin decide\n", "6  in the mode ranked\n", "4  in the mode synthesis\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing: %s%s", want, stdout, stderr)
		}
	}
	_, stdout, _ = command(t, "ask", "--estimate", "--json", "--mode", "ranked", "How many?")
	var e spend.Estimate
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || e.Mode != council.ModeRanked || e.ByMode[council.ModeCouncil].Calls != 7 {
		t.Errorf("%v: %s", err, stdout)
	}
}

// The progress mentions only stages that run.
func TestProgressInEachMode(t *testing.T) {
	text := "x"
	answer := func(model string) council.Answer {
		return council.Answer{Model: model, Response: &text, Spent: council.Spent{LatencyMS: 1000}}
	}
	given := answer("a")
	given.Given = true
	for name, tt := range map[string]struct {
		script []any
		steps  string
	}{
		"ranked": {
			[]any{
				council.Started{Models: []string{"a", "b"}, Reviewers: []string{"a"}, Mode: council.ModeRanked},
				answer("a"),
				[]council.Answer{},
				council.Review{Model: "a", Status: council.OutcomeOK},
				council.Tally{},
				council.Delta{Text: "An answer."},
				&council.Session{},
			}, "asking 2 models ...\n  a answered in 1.0 s\n  a reviewed in 0.0 s\n",
		},
		"synthesis": {
			[]any{
				council.Started{Models: []string{"a", "b"}, Chairman: "b", Mode: council.ModeSynthesis},
				answer("a"),
				[]council.Answer{},
				council.Delta{Text: "An answer."},
				council.Synthesis{Model: "b"},
				&council.Session{},
			}, "asking 2 models ...\n  a answered in 1.0 s\nthe chairman writes ...\n  b wrote the answer in 0.0 s\n",
		},
		"first, the same": {
			[]any{
				council.Started{Models: []string{"a", "b", "c"}, Reviewers: []string{"a"}, Chairman: "b", Mode: council.ModeCouncil, First: 2},
				answer("a"), answer("b"),
				council.FirstAsked{Asked: []string{"a", "b"}, Same: new(true), Why: council.FirstSame},
				[]council.Answer{},
				council.Delta{Text: "An answer."},
				&council.Session{},
			},
			"asking 2 models ...\n  a answered in 1.0 s\n  b answered in 1.0 s\n" +
				"2 of 3 members were asked: they gave the same answer, which is no proof\n",
		},
		"first, different": {
			[]any{
				council.Started{Models: []string{"a", "b", "c"}, Reviewers: []string{"a"}, Chairman: "b", Mode: council.ModeCouncil, First: 2},
				council.FirstAsked{Asked: []string{"a", "b"}, Same: new(false), Convened: true, Why: council.FirstDifferent},
				[]council.Answer{},
				council.Tally{},
				council.Delta{Text: "An answer."},
				council.Synthesis{Model: "b"},
			},
			"asking 2 models ...\na and b began and gave different answers, so all members were asked\nasking 1 more ...\n" +
				"the chairman writes ...\n  b wrote the answer in 0.0 s\n",
		},
		"convened": {
			[]any{
				council.Started{Models: []string{"a", "b"}, Reviewers: []string{"a"}, Chairman: "b", Mode: council.ModeCouncil},
				given, answer("b"),
				[]council.Answer{},
				council.Tally{},
				council.Delta{Text: "An answer."},
				council.Synthesis{Model: "b"},
			},
			"asking 2 models ...\n  a answered earlier\n  b answered in 1.0 s\nthe chairman writes ...\n  b wrote " +
				"the answer in 0.0 s\n",
		},
	} {
		var steps, text bytes.Buffer
		p := &progress{steps: &steps, answer: &text}
		for _, data := range tt.script {
			p.Observe(council.Event{Data: data})
		}
		if diff := cmp.Diff(tt.steps, steps.String()); diff != "" || text.String() != "An answer.\n\n" {
			t.Errorf("%s: the answer is %q, the steps %s", name, text.String(), diff)
		}
	}
}
