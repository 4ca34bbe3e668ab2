package bias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
)

// probeOf returns the records of a probe: four reviewers, which differ in harshness and in
// noise, score the answers of questions in two rounds.
func probeOf(random *rand.Rand, name string, questions int, hashed bool, drift float64) []council.BiasMetricRecord {
	var records []council.BiasMetricRecord
	harsh, noise := []float64{-1 + drift, 0, 0.4, 0.6}, []float64{0.6, 1.2, 0.9, 0.9}
	members := []string{"a", "b", "c", "d"}
	for q := range questions {
		block := fmt.Sprintf("%s-%d", name, q)
		worth := make([]float64, len(members))
		for j := range worth {
			worth[j] = 6 + random.NormFloat64()
		}
		for i, reviewer := range members {
			mood := 0.4 * random.NormFloat64()
			for round := range 2 {
				for j, candidate := range members {
					score := worth[j] + harsh[i] + mood + noise[i]*random.NormFloat64()
					r := record(fmt.Sprintf("%s-%d", block, round), now, reviewer, candidate, max(1, min(10, math.Round(score))))
					r.BlockID, r.Own, r.Position = &block, i == j, new(j)
					if hashed {
						r.QueryHash = new(fmt.Sprint("question ", q))
					}
					records = append(records, r)
				}
			}
		}
	}
	return records
}

// A reviewer that became milder by two points between two probes is found, and one that did
// not change is not, with the same questions and with others.
func TestCompareProbes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	for _, hashed := range []bool{false, true} {
		got := CompareProbes(slices.Values(probeOf(random, "march", 20, hashed, 0)), slices.Values(probeOf(random, "april", 20, hashed, 2)))
		if len(got) != 4 {
			t.Fatalf("%d reviewers", len(got))
		}
		for i, c := range got {
			// Relative to the mean of the four, two points of one are 1.5 of it, and -0.5 of the others.
			want := map[bool]float64{true: 1.5, false: -0.5}[i == 0]
			if e := c.HarshnessChange; *e.Lower > want || *e.Upper < want || (i == 0) != (*e.Lower > 0) {
				t.Errorf("%s, paired %v: %v to %v, want %v", c.ReviewerID, hashed, *e.Lower, *e.Upper, want)
			}
			if c.Paired != hashed || c.EarlierQuestions != 20 || c.LaterQuestions != 20 || c.Earlier.Blocks != 20 || c.Later == nil {
				t.Errorf("%+v", c)
			}
		}
	}
}

// Between probes without a change, 95 % of the intervals hold 0.
func TestCompareProbesCovers(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 2))
	for _, tt := range []struct {
		earlier, later int
		hashed         bool
	}{{6, 6, false}, {5, 15, false}, {8, 8, true}} {
		probes := 400
		held := 0
		for range probes {
			for _, c := range CompareProbes(slices.Values(probeOf(random, "x", tt.earlier, tt.hashed, 0)),
				slices.Values(probeOf(random, "y", tt.later, tt.hashed, 0))) {
				if *c.HarshnessChange.Lower <= 0 && *c.HarshnessChange.Upper >= 0 {
					held++
				}
			}
		}
		t.Logf("%d and %d questions, hashed %v: %.3f", tt.earlier, tt.later, tt.hashed, share(held, 4*probes))
		if share(held, 4*probes) < 0.95-3*math.Sqrt(0.95*0.05/float64(probes)) {
			t.Errorf("%d and %d questions, hashed %v: %.3f of the intervals hold 0", tt.earlier, tt.later, tt.hashed, share(held, 4*probes))
		}
	}
}

func TestCompareProbesUndefined(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	one, many := probeOf(random, "x", 1, false, 0), probeOf(random, "y", 5, false, 0)
	for _, c := range CompareProbes(slices.Values(one), slices.Values(many)) {
		if c.HarshnessChange.Value != nil || c.EarlierQuestions != 1 {
			t.Errorf("one question: %+v", c)
		}
	}
	alone := slices.DeleteFunc(slices.Clone(many), func(r council.BiasMetricRecord) bool { return r.ReviewerID != "a" })
	got := CompareProbes(slices.Values(alone), slices.Values(many))
	if len(got) != 4 || got[0].HarshnessChange.Value != nil || got[1].Earlier != nil || got[1].Later == nil {
		t.Errorf("a reviewer alone: %+v", got)
	}
	if got := CompareProbes(slices.Values([]council.BiasMetricRecord{}), slices.Values([]council.BiasMetricRecord{})); len(got) != 0 {
		t.Errorf("nothing: %+v", got)
	}
}
