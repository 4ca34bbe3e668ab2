package mcpserver_test

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit/daemontest"
)

// The tool judge returns the judges' result as data and as text, and a call that is repeated pays once.
func TestJudge(t *testing.T) {
	sim := daemontest.Provider(t, daemontest.Members()...)
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c"})
	p := connect(t, d.URL(), "", "2026-07-28")
	arguments := map[string]any{"question": "Why is the sky blue?", "answers": []map[string]any{
		{"id": "x", "text": "It scatters.", "author": "a"}, {"id": "y", "text": "The sea."},
	}}
	r, text, isError := p.call("judge", arguments)
	judgement, ok := r.Judgement.(map[string]any)
	if isError || !ok || judgement["verdict"] == nil || len(judgement["ballots"].([]any)) != 2 || r.Answer != nil || len(r.Ranking) != 2 {
		t.Fatalf("%+v: %s", r, text)
	}
	for _, want := range []string{"a was not asked: it may not read x: its own model wrote it", "b: ", "c: ", "cost: ", "session " + r.SessionID} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q: %s", want, text)
		}
	}
	if _, again, _ := p.call("council_result", map[string]any{"session_id": r.SessionID}); again != text {
		t.Errorf("read again: %s", again)
	}
	if same, _, _ := p.call("judge", arguments); same.SessionID != r.SessionID {
		t.Errorf("judged again, in %s", same.SessionID)
	}
	if n := calls(sim); n != 4 {
		t.Errorf("%d calls", n)
	}
	p.fails("judge", map[string]any{"question": "?", "answers": []map[string]any{{"id": "x", "text": "1"}}}, "no rubric is given")
	p.fails("judge", map[string]any{"question": "?", "answers": []map[string]any{}}, "minItems")
	p.fails("judge", map[string]any{"question": "?", "answers": []map[string]any{{"id": "x", "text": "1"}, {"id": "x", "text": "2"}}}, "is given twice")
	if n := calls(sim); n != 4 {
		t.Errorf("refused calls cost: %d", n)
	}
	_, text, isError = p.call("judge", map[string]any{
		"question": "Why?", "answers": []map[string]any{{"id": "x", "text": "It scatters."}}, "rubric": []string{"It is short."},
	})
	if isError || !strings.Contains(text, "It is short. (") || !strings.Contains(text, "not the probability that it holds") {
		t.Errorf("a rubric: %s", text)
	}
}
