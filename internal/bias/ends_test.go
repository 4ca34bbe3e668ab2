package bias

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/councild/councild/internal/biassim"
	"github.com/councild/councild/internal/council"
)

// TestUncensor holds that no mean, and no standard deviation, makes the scores more likely. The likelihood has one
// greatest value alone (Olsen 1978).
func TestUncensor(t *testing.T) {
	for _, tc := range []struct {
		name      string
		low, high float64
		pairs     []censored
	}{
		{"hardly any at the ends", 1.5, 9.5, []censored{{n: 96, sum: 480, squares: 2540, high: 2}, {n: 90, sum: 560, squares: 3630, low: 1, high: 5}}},
		{"many at the top", 5.5, 8.5, []censored{{n: 60, sum: 420, squares: 2980, low: 4, high: 36}, {n: 80, sum: 552, squares: 3850, low: 12, high: 8}}},
		{"both ends", 3.5, 6.5, []censored{{n: 20, sum: 100, squares: 510, low: 30, high: 50}, {n: 35, sum: 168, squares: 820, low: 55, high: 10}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pairs := []*censored{&tc.pairs[0], &tc.pairs[1]}
			uncensor(pairs, tc.low, tc.high)
			likelihood := func(sd float64, shift ...float64) float64 {
				sum := 0.
				for k, p := range pairs {
					m := distuv.Normal{Mu: p.mean + shift[k], Sigma: sd}
					sum += p.low*math.Log(m.CDF(tc.low)) + p.high*math.Log(m.Survival(tc.high)) -
						p.n*math.Log(sd) - (p.squares-2*m.Mu*p.sum+p.n*m.Mu*m.Mu)/(2*sd*sd)
				}
				return sum
			}
			sd := 0.1
			for next := sd; next < 10; next += 0.001 {
				if likelihood(next, 0, 0) > likelihood(sd, 0, 0) {
					sd = next
				}
			}
			const step = 0.01
			for _, shift := range [][]float64{{step, 0}, {-step, 0}, {0, step}, {0, -step}, {step, -step}, {step, step}, {-step, -step}} {
				for _, s := range []float64{sd - step, sd, sd + step} {
					if likelihood(s, shift...) > likelihood(sd, 0, 0) {
						t.Errorf("means of %.3f and %.3f with a standard deviation of %.3f are less likely than %+v beside them and %.3f",
							pairs[0].mean, pairs[1].mean, sd, shift, s)
					}
				}
			}
			for k, p := range pairs {
				m := distuv.Normal{Mu: p.mean, Sigma: sd}
				high, low := m.Mu+sd*sd*m.Prob(tc.high)/m.Survival(tc.high), m.Mu-sd*sd*m.Prob(tc.low)/m.CDF(tc.low)
				if math.Abs(p.atHigh-high) > 0.01 || math.Abs(p.atLow-low) > 0.01 {
					t.Errorf("pair %d: %.4f and %.4f at the ends, want %.4f and %.4f", k, p.atLow, p.atHigh, low, high)
				}
			}
		})
	}
}

// TestEnds holds what counts as the end of a reviewer's range, and when too many scores lie there.
func TestEnds(t *testing.T) {
	for _, tc := range []struct {
		name      string
		gives     []float64 // to the first candidate, in turn; to the second one 3 to 8
		sessions  int
		low, high float64 // NaN: there are no ends
		pull      pull
	}{
		{"between the ends", []float64{5, 6}, 60, 3, 8, 0},
		{"some at the top", []float64{8, 6, 5, 6}, 60, 3, 8, 0},
		{"too many at the top", []float64{8, 6, 5}, 60, 3, 8, pulledDown},
		{"too many at the bottom", []float64{3, 6, 5}, 60, 3, 8, pulledUp},
		{"too many at both ends", []float64{3, 8}, 60, 3, 8, pulledDown | pulledUp},
		{"one of 198 beyond the top", slices.Concat(slices.Repeat([]float64{6}, 98), []float64{10}), 99, 3, 10, 0},
		{"one of 200 beyond the top", slices.Concat(slices.Repeat([]float64{6}, 99), []float64{10}), 100, 3, 8, 0},
		{"always the same", nil, 60, math.NaN(), math.NaN(), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var records []council.BiasMetricRecord
			for s := range tc.sessions {
				id, start := fmt.Sprintf("s%03d", s), now.Add(time.Duration(s-200)*time.Minute)
				first, second := 7., 7.
				if tc.gives != nil {
					first, second = tc.gives[s%len(tc.gives)], float64(3+s%6)
				}
				records = append(records, record(id, start, "r", "a", first), record(id, start, "r", "b", second))
			}
			w := collect(unlimited, records).window()
			e := w.ends()
			a, b, r := slices.Index(w.names, "a"), slices.Index(w.names, "b"), slices.Index(w.names, "r")
			if diff := cmp.Diff([]float64{tc.low, tc.high}, []float64{e.low[r], e.high[r]}, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("ends (-want +got):\n%s", diff)
			}
			if got := e.pull(r, a); got != tc.pull {
				t.Errorf("pull %b, want %b", got, tc.pull)
			}
			if got := e.pull(r, b); got != 0 {
				t.Errorf("pull %b of the second candidate", got)
			}
			for k := range w.sessions {
				s := &w.sessions[k]
				for j, y := range s.y[0] {
					got := e.scores(s)[0][j]
					if moved := y <= tc.low && got < tc.low+1 || y >= tc.high && got > tc.high-1; !moved && got != y {
						t.Fatalf("%g became %g", y, got)
					}
				}
			}
		})
	}
}

// TestEndsAreNoFavour counts reports that call a favour or a slope a bias where some reviewers run into the ends of
// the scale and others do not, or bend it. Where scores at the ends were taken for the truth, 14 to 26
// of 40 did.
func TestEndsAreNoFavour(t *testing.T) {
	for name, world := range map[string]biassim.World{
		"levels":                             {Base: 7.5, Gap: 1.5, Levels: 2},
		"levels, spread, long answers good":  {Base: 7.5, Gap: 1.5, Levels: 2, Spread: 0.3, LongerBetter: 0.6},
		"curves":                             {Gap: 1.5, Curve: 1},
		"answers beyond both ends, levels 2": {Gap: 2.5, Levels: 2},
	} {
		t.Run(name, func(t *testing.T) {
			favoursNobody(t, 100, 7, world)
		})
	}
}

// TestFavourAtTheEndIsFound holds that a reviewer who favours somebody so much that its scores pile up at the end of
// the scale is found out: the end understates that.
func TestFavourAtTheEndIsFound(t *testing.T) {
	const reports = 10
	favourite := map[[2]int]float64{{2, 3}: 3}
	for _, tc := range []struct {
		name     string
		showOwn  bool
		effects  biassim.Effects
		headline string
		subject  string
		least    int
	}{
		{"itself", true, biassim.Effects{Self: 3}, "self_preference", "", 8},
		{"its maker", false, biassim.Effects{Family: 2}, "family_affinity", "", 8},
		{"another", false, biassim.Effects{Pair: favourite}, "affinity", "anthropic/m2>google/m3", 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := 0
			for seed := range uint64(reports) {
				m := byName(collect(unlimited, inWorld(seed, 100, 5, tc.showOwn, biassim.World{Base: 8}, tc.effects)).Report().Metrics)[tc.headline]
				if *m.Verdict == VerdictFavour && m.Subject == tc.subject && *m.PointEstimate > 0 {
					found++
				}
			}
			if found < tc.least {
				t.Errorf("%d of %d reports find it", found, reports)
			}
		})
	}
}

// TestExplainedByEnds holds that a figure which the ends may explain stands there, untested and with the reason, and
// that its headline is not called negligible.
func TestExplainedByEnds(t *testing.T) {
	untested := 0
	for seed := range uint64(5) {
		records := inWorld(seed, 100, 5, false, biassim.World{Base: 8, Gap: 1, Levels: 1}, biassim.Effects{})
		metrics := byName(collect(unlimited, records).Report().Metrics)
		some := false
		for _, member := range metrics["affinity"].Members {
			if member.Reason != atEnd {
				continue
			}
			some = true
			untested++
			if member.PointEstimate == nil || member.QValue != nil || member.Verdict != nil || member.SecondFit != nil {
				t.Errorf("%+v", member)
			}
		}
		if verdict := *metrics["affinity"].Verdict; some && (verdict == VerdictNegligible || verdict == VerdictFavour) {
			t.Errorf("affinity is %q", verdict)
		}
	}
	if untested == 0 {
		t.Error("not the case to be tested: no pair is at an end")
	}
}
