package bias

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/councild/councild/internal/stat"
)

func TestAnchoringVectors(t *testing.T) {
	type figures struct {
		Kappa, T, P float64
		DF          int
	}
	for _, name := range []string{"e2e_planted", "e2e_null"} {
		var want struct {
			Tol       float64
			Estimates struct{ Anchoring figures }
		}
		readVectors(t, name+".expected.json", &want)
		a := anchor(windowOf(t, name+".jsonl"))
		got := figures{a.Estimate, a.Estimate / a.SE, stat.StudentP(a.Estimate/a.SE, float64(a.questions-1)), a.questions - 1}
		if diff := cmp.Diff(want.Estimates.Anchoring, got, cmpopts.EquateApprox(want.Tol, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if a.records != 1000 {
			t.Errorf("%s: %d records", name, a.records)
		}
	}
}

// TestAnchoringOfUnbiasedWindows counts p below 0.05 in windows without anchoring,
// though other reviewers' means, places and members differ: 5 % of 400, and 3.3
// standard errors either side.
func TestAnchoringOfUnbiasedWindows(t *testing.T) {
	for name, o := range map[string]simulation{
		"own shown":      {sessions: 30},
		"own hidden":     {sessions: 30, hidden: true},
		"scores missing": {sessions: 30, missing: 0.2},
	} {
		found := 0
		for seed := range uint64(400) {
			a := anchor(o.window(rand.New(rand.NewPCG(seed, 1))))
			if a.SE == 0 {
				t.Fatalf("%s: nothing for seed %d", name, seed)
			}
			if stat.StudentP(a.Estimate/a.SE, float64(a.questions-1)) < 0.05 {
				found++
			}
		}
		if found < 6 || found > 34 {
			t.Errorf("%s: %d of 400", name, found)
		}
	}
}

// TestAnchoringIsFound plants -0.5 points a point. Others' scores are not the
// quality that moves a reviewer but that and noise, so the estimate is smaller.
func TestAnchoringIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	for _, hidden := range []bool{false, true} {
		a := anchor(simulation{sessions: 200, hidden: hidden, anchor: -0.5}.window(rng))
		if a.Estimate < -0.5 || a.Estimate > -0.25 || a.Estimate/a.SE > -8 || a.sessions != 200 {
			t.Errorf("hidden %t: %+v", hidden, a)
		}
	}
}

func TestAnchoringNotIdentified(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	one := simulation{sessions: 1}.window(rng)
	alone := simulation{sessions: 20}.window(rng)
	for s := range alone.sessions {
		alone.sessions[s].narrow(span{2, 3}, span{0, len(alone.names)})
	}
	nowhere := simulation{sessions: 20}.window(rng)
	for s := range nowhere.sessions {
		nowhere.sessions[s].position = stat.Matrix(5, 5, -1)
	}
	for name, w := range map[string]window{
		"no session": {}, "one session": one, "one reviewer": alone, "positions unknown": nowhere,
		"shared orders": simulation{sessions: 20, shared: true}.window(rng),
	} {
		if a := anchor(w); a.SE != 0 {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
