package mcpserver_test

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// Each mode of a question makes its calls, and its result says whose text the answer is.
func TestModes(t *testing.T) {
	sim := daemontest.Provider(t, daemontest.Members()...)
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c"})
	p := connect(t, d.URL(), "", "2026-07-28")
	for mode, tt := range map[string]struct {
		calls int
		from  string
	}{
		"council": {7, "the synthesis of a"}, "ranked": {6, "ranked first"}, "synthesis": {4, "the synthesis of a"},
	} {
		before := calls(sim)
		r, text, isError := p.call("council", map[string]any{"question": question, "mode": mode})
		if isError || r.AnswerFrom == nil || !strings.Contains(*r.AnswerFrom, tt.from) || !strings.Contains(text, "The answer is "+*r.AnswerFrom) {
			t.Errorf("%s: %+v: %s", mode, r, text)
		}
		if made := calls(sim) - before; made != tt.calls || r.First != nil {
			t.Errorf("%s: %d calls, %+v", mode, made, r)
		}
		if ranked := mode != "synthesis"; (r.Agreement != nil) != ranked || (len(r.Ranking) > 0) != ranked {
			t.Errorf("%s: the ranking is %+v, the agreement %v", mode, r.Ranking, r.Agreement)
		}
	}
	before := calls(sim)
	p.fails("council", map[string]any{"question": question, "mode": "judge"}, "enum")
	p.fails("council", map[string]any{"question": question, "mode": "vote"}, "answer_form", `{"type": "number"}`)
	p.fails("council", map[string]any{"question": question, "mode": "single"}, "mode: the mode single asks one model")
	p.fails("council", map[string]any{"question": question, "first": 3}, "first", "from 1 to 2")
	if n := calls(sim); n != before {
		t.Errorf("refused questions cost %d calls", n-before)
	}
}

// A session that its first member decided can be convened, and is convened once.
func TestConvene(t *testing.T) {
	sim := daemontest.Provider(t, daemontest.Members()...)
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c", "API_TOKENS": tokenOne + "," + tokenTwo})
	p := connect(t, d.URL(), tokenOne, "2026-07-28")
	first, text, _ := p.call("council", map[string]any{"question": question, "first": 1})
	if first.First == nil || !strings.Contains(*first.First, "only a was asked") || !strings.Contains(text, "call convene with session_id") {
		t.Fatalf("%+v: %s", first, text)
	}
	if n := calls(sim); n != 1 {
		t.Errorf("%d calls", n)
	}
	arguments := map[string]any{"session_id": first.SessionID}
	r := p.must("convene", arguments)
	if r.SessionID == first.SessionID || r.Status != council.StatusComplete || len(r.Ranking) != 3 || *r.AnswerFrom != "the synthesis of a" {
		t.Errorf("%+v", r)
	}
	if n := calls(sim); n != 7 {
		t.Errorf("%d calls", n)
	}
	if again := p.must("convene", arguments); again.SessionID != r.SessionID {
		t.Errorf("convened again, in %s", again.SessionID)
	}
	p.fails("convene", map[string]any{"session_id": r.SessionID}, "read its answer")
	connect(t, d.URL(), tokenTwo, "2026-07-28").fails("convene", arguments, "there is no session")
	if n := calls(sim); n != 7 {
		t.Errorf("%d calls in the end", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, report := range p.progress {
		if report.Total != 0 && report.Progress > report.Total {
			t.Errorf("report %d: %+v", i, report)
		}
	}
}
