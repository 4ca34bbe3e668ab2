package pipeline_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

func TestProbe(t *testing.T) {
	const repeats = 3
	h := build(t, members(4), func(o *pipeline.Options) { o.Recorder = &notebook{err: errors.New("a probe must not write here")} })
	plan := h.plan(t, council.Request{})
	sessions, err := h.Probe(t.Context(), plan, repeats, h.notes)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, s := range h.sim.Stats().Models {
		calls += s.Requests
	}
	if want := 4 + repeats*4; calls != want || len(sessions) != 1+repeats || len(h.notes.batches) != repeats {
		t.Fatalf("%d calls for %d sessions with records of %d", calls, len(sessions), len(h.notes.batches))
	}
	seen := make([]map[[2]string]council.BiasMetricRecord, repeats) // by reviewer and candidate
	for n, records := range h.notes.batches {
		seen[n] = map[[2]string]council.BiasMetricRecord{}
		for _, r := range records {
			seen[n][[2]string{r.ReviewerID, r.ModelID}] = r
			if want := fmt.Sprintf("%s-%d", plan.SessionID, n+1); r.SessionID != want || r.BlockID == nil ||
				*r.BlockID != plan.SessionID || sessions[n+1].ID != want {
				t.Fatalf("round %d: %+v", n+1, r)
			}
		}
		if len(seen[n]) != 4*3 {
			t.Fatalf("round %d: %d records", n+1, len(seen[n]))
		}
		for pair, r := range seen[n] {
			first := seen[0][pair]
			want := *first.Position
			if n%2 == 1 {
				want = first.NShown - 1 - want
			}
			if *r.Position != want || r.ResponseLengthChars != first.ResponseLengthChars {
				t.Errorf("round %d: %v at place %d, want %d", n+1, pair, *r.Position, want)
			}
		}
	}
	for _, s := range sessions[1:] { // label order is presentation order
		for _, v := range s.Stage2 {
			for place, shown := range v.Slate {
				if v.Slate[place].Label != council.Label("Response "+string(rune('A'+place))) ||
					v.LabelToModel[shown.Label].Model != shown.Member {
					t.Errorf("%s: %v", s.ID, v.Slate)
				}
			}
		}
	}
}

func TestProbeThatFails(t *testing.T) {
	tests := []struct {
		name     string
		models   []simllm.Model
		mutate   func(*pipeline.Options)
		code     council.Code
		sessions int
	}{
		{"no quorum", append(members(1), simllm.Troubled()[:2]...), func(*pipeline.Options) {}, council.CodeNoQuorum, 1},
		{"one answer", append(members(1), simllm.Troubled()[:2]...), func(o *pipeline.Options) { o.Quorum = 1 }, council.CodeNoQuorum, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := build(t, tt.models, tt.mutate)
			sessions, err := h.Probe(t.Context(), h.plan(t, council.Request{}), 2, h.notes)
			e, ok := errors.AsType[*council.Error](err)
			if !ok || e.Code != tt.code || len(sessions) != tt.sessions {
				t.Errorf("%d sessions, %v", len(sessions), err)
			}
		})
	}
}

func TestProbeThatCannotWrite(t *testing.T) {
	h := build(t, members(3))
	full := &notebook{err: errors.New("full")}
	if sessions, err := h.Probe(t.Context(), h.plan(t, council.Request{}), 2, full); !errors.Is(err, full.err) || len(sessions) != 2 ||
		sessions[1].Persisted {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}
}

// A reviewer that fails is a record without a score, and the probe goes on.
func TestProbeWithAFailingReviewer(t *testing.T) {
	models := members(3)
	models[1] = with(models[1], simllm.Fault{Kind: simllm.BallotProse})
	h := build(t, models)
	sessions, err := h.Probe(t.Context(), h.plan(t, council.Request{}), 2, h.notes)
	if err != nil {
		t.Fatal(err)
	}
	status := map[council.BallotStatus]int{}
	for _, records := range h.notes.batches {
		for _, r := range records {
			status[r.Status]++
		}
	}
	if diff := cmp.Diff(map[council.BallotStatus]int{council.BallotOK: 8, council.BallotInvalid: 4}, status); diff != "" {
		t.Error(diff)
	}
	if sessions[0].Status != council.StatusComplete || sessions[1].Status != council.StatusDegraded ||
		sessions[1].Degradation[0].Model != models[1].Name {
		t.Errorf("%s, %s: %v", sessions[0].Status, sessions[1].Status, sessions[1].Degradation)
	}
}
