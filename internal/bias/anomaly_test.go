package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// TestStudentized compares with what externally studentised means: how far a value
// lies from the mean of the others, over the standard error of that difference.
func TestStudentized(t *testing.T) {
	x := []float64{0.3, -1.2, 0.5, 2.4, -0.1, 0.3}
	for i, got := range studentized(x) {
		others := slices.Delete(slices.Clone(x), i, i+1)
		mean, sd := stat.MeanStdDev(others, nil)
		if want := (x[i] - mean) / (sd * math.Sqrt(1+1./5)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: t = %v, want %v", x[i], got, want)
		}
	}
	if got := studentized([]float64{1, 1, 1, 2})[3]; got < 1e3 || math.IsInf(got, 0) {
		t.Errorf("among equal values t = %v", got)
	}
}

// flaggedIn returns the cells of a window with a q below 0.05.
func flaggedIn(w window) []anomaly {
	return slices.DeleteFunc(anomalies(&w, severities(w), stretches(w.sessions)), func(a anomaly) bool { return a.q >= 0.05 })
}

// TestAnomaliesOfUnbiasedWindows counts windows with an anomaly among those with
// none: 5 % are promised, and the bound adds 3.3 standard errors of 150 windows.
func TestAnomaliesOfUnbiasedWindows(t *testing.T) {
	for name, o := range map[string]simulation{
		"complete":       {sessions: 50},
		"scores missing": {sessions: 30, hidden: true, missing: 0.2},
		"hard sessions":  {sessions: 30, effect: func(s, _ int) float64 { return -2 * float64(s%2) }},
	} {
		found := 0
		for seed := range uint64(150) {
			found += min(1, len(flaggedIn(o.window(rand.New(rand.NewPCG(seed, 0))))))
		}
		if found > 16 {
			t.Errorf("%s: %d of 150 windows", name, found)
		}
	}
}

func TestAnomaliesFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	harsh := simulation{sessions: 60, effect: func(s, reviewer int) float64 {
		if s == 40 && reviewer == 1 {
			return -4
		}
		return 0
	}}
	got := flaggedIn(harsh.window(rng))
	if len(got) == 0 || got[0].session != 40 || got[0].reviewer != 1 || got[0].value > -1.5 || math.Abs(got[0].usual) > 0.5 || got[0].t > -5 || got[0].p > 1e-5 {
		t.Errorf("harsh reviewer: %+v", got)
	}
}

func TestAnomaliesNeedTenSessions(t *testing.T) {
	for n, want := range map[int]int{9: 0, 10: 50} { // five reviewers in ten sessions
		w := simulation{sessions: n}.window(rand.New(rand.NewPCG(1, 0)))
		if got := anomalies(&w, severities(w), stretches(w.sessions)); len(got) != want {
			t.Errorf("%d sessions: %d cells", n, len(got))
		}
	}
}
