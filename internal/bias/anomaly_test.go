package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/councild/councild/internal/testkit"
)

func TestShareKept(t *testing.T) {
	inf := math.Inf(1)
	for _, tc := range []struct{ deviation, low, high, want float64 }{
		{2, 1, 3, 0.5},
		{-2, -3, -1, 0.5},
		{2, -1, 3, 0},
		{-2, -3, 1, 0},
		{2, 2.5, 3, 1},
		{0, 0, 0, 0},
		{2, -inf, inf, 0},
		{-2, -inf, inf, 0},
	} {
		if got := shareKept(tc.deviation, tc.low, tc.high); got != tc.want {
			t.Errorf("of %v between %v and %v: %v, want %v", tc.deviation, tc.low, tc.high, got, tc.want)
		}
	}
}

// flaggedIn returns the cells of a window with a q below 0.05.
func flaggedIn(w window) []Anomaly {
	return slices.DeleteFunc(w.testedCells(severities(w), stretches(w.sessions)), func(a Anomaly) bool { return a.QValue >= 0.05 })
}

// uneven makes sessions differ in how far scores scatter: the logarithm of the
// factor has a standard deviation of one half.
func uneven(seed uint64) func(s, reviewer int) float64 {
	rng := rand.New(rand.NewPCG(seed, 2))
	factors := map[int]float64{}
	return func(s, _ int) float64 {
		if _, ok := factors[s]; !ok {
			factors[s] = math.Exp(0.5 * rng.NormFloat64())
		}
		return factors[s]
	}
}

// TestAnomaliesOfUnbiasedWindows counts windows with an anomaly among those with
// none: 7 % are promised, and the bound adds 3.3 standard errors of 150 windows.
func TestAnomaliesOfUnbiasedWindows(t *testing.T) {
	testkit.Slow(t)
	windows := 150
	for name, o := range map[string]simulation{
		"complete":       {sessions: 50},
		"scores missing": {sessions: 30, hidden: true, missing: 0.2},
		"hard sessions":  {sessions: 30, effect: func(s, _ int) float64 { return -2 * float64(s%2) }},
		"a ceiling":      {sessions: 50, hidden: true, worth: 9.3},
		"heavy tails":    {sessions: 50, hidden: true, heavy: true},
		"seven members":  {sessions: 50, hidden: true, heavy: true, members: 7},
		"three members":  {sessions: 50, hidden: true, heavy: true, members: 3},
		"uneven scatter": {sessions: 50, hidden: true},
		"in runs":        {sessions: 100, hidden: true, heavy: true, run: 5},
	} {
		found := 0
		for seed := range uint64(windows) {
			if name == "uneven scatter" {
				o.noise = uneven(seed)
			}
			found += min(1, len(flaggedIn(o.window(rand.New(rand.NewPCG(seed, 0))))))
		}
		t.Logf("%s: %d of %d windows", name, found, windows)
		if found > windows*2/15 {
			t.Errorf("%s: %d of %d windows", name, found, windows)
		}
	}
}

// TestAnomaliesFound plants a shift of one reviewer in one session. The report
// promises to find 2.5 points about every other time from five members on.
func TestAnomaliesFound(t *testing.T) {
	for _, members := range []int{5, 7} {
		found := 0
		for seed := range uint64(100) {
			w := simulation{sessions: 50, members: members, hidden: true, effect: func(s, reviewer int) float64 {
				if s == 40 && reviewer == 1 {
					return -2.5
				}
				return 0
			}}.window(rand.New(rand.NewPCG(seed, 4)))
			for _, a := range flaggedIn(w) {
				if a.SessionID == "40" && a.ReviewerID == "b" {
					found++
					if a.Value > -0.5 || math.Abs(a.Usual) > 0.5 || a.T > -3 {
						t.Errorf("seed %d: %+v", seed, a)
					}
					if a.questions != 50 {
						t.Errorf("seed %d: compared with %d questions, want 50", seed, a.questions)
					}
				}
			}
		}
		t.Logf("%d members: found in %d of 100 windows", members, found)
		if found < 35 {
			t.Errorf("%d members: found in %d of 100 windows", members, found)
		}
	}
}

func TestAnomaliesNeedTenSessions(t *testing.T) {
	for n, want := range map[int]int{9: 0, 10: 50} { // five reviewers in ten sessions
		w := simulation{sessions: n}.window(rand.New(rand.NewPCG(1, 0)))
		if got := w.testedCells(severities(w), stretches(w.sessions)); len(got) != want {
			t.Errorf("%d sessions: %d cells", n, len(got))
		}
	}
}
