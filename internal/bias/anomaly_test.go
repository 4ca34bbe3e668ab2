package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
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

func TestTrigamma(t *testing.T) {
	const catalan = 0.915965594177219015
	for x, want := range map[float64]float64{
		0.25: math.Pi*math.Pi + 8*catalan,
		0.5:  math.Pi * math.Pi / 2,
		1:    math.Pi * math.Pi / 6,
		2.5:  math.Pi*math.Pi/2 - 4 - 4./9,
		4:    math.Pi*math.Pi/6 - 1 - 1./4 - 1./9,
		1e6:  1e-6 + 0.5e-12 + 1e-18/6,
	} {
		if got := trigamma(x); math.Abs(got-want) > 1e-12*want {
			t.Errorf("trigamma(%v) = %v, want %v", x, got, want)
		}
		if got := trigammaInverse(want); math.Abs(got-x) > 1e-9*x {
			t.Errorf("trigamma(%v) = %v, want %v", got, want, x)
		}
	}
}

// TestModerate draws the variances of 4000 questions from the prior that the
// estimate assumes, and once the same for all.
func TestModerate(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	chi := func(df float64) float64 { return distuv.ChiSquared{K: df, Src: rng}.Rand() }
	for _, prior := range []float64{3, 8, math.Inf(1)} {
		asked := make([]question, 4000)
		for k := range asked {
			asked[k].df = float64(2 + k%9)
			truth := 0.7
			if !math.IsInf(prior, 1) {
				truth *= prior / chi(prior)
			}
			asked[k].squares = truth * chi(asked[k].df)
		}
		asked[0].df, asked[0].squares = 0, 0
		variance, df, ok := moderate(asked)
		if !ok {
			t.Fatal("no variances")
		}
		// A question without residuals has what is usual.
		usual, d0 := variance[0], df[0]
		if math.Abs(usual-0.7) > 0.07 {
			t.Errorf("prior on %v degrees of freedom: s0^2 is %.3f, want 0.7", prior, usual)
		}
		if math.IsInf(prior, 1) != (d0 > 100) || !math.IsInf(prior, 1) && math.Abs(d0-prior) > 0.2*prior {
			t.Errorf("d0 is %.2f, want %v", d0, prior)
		}
		if want := (d0*usual + asked[5].squares) / (d0 + 7); !math.IsInf(d0, 1) && math.Abs(variance[5]-want) > 1e-12 || df[5] != d0+7 {
			t.Errorf("variance %v on %v degrees of freedom, want %v on %v", variance[5], df[5], want, d0+7)
		}
	}
	if _, _, ok := moderate(make([]question, 12)); ok {
		t.Error("variances without residuals")
	}
	if variance, df, ok := moderate([]question{{severity: severity{df: 4}}, {severity: severity{df: 4}}}); !ok || !(variance[0] > 0) || !(df[0] > 4) {
		t.Errorf("of scores that fit exactly: %v on %v", variance, df)
	}
}

func TestKept(t *testing.T) {
	inf := math.Inf(1)
	for _, tc := range []struct{ deviation, low, high, want float64 }{
		{2, 1, 3, 0.5}, {-2, -3, -1, 0.5}, {2, -1, 3, 0}, {-2, -3, 1, 0}, {2, 2.5, 3, 1}, {0, 0, 0, 0}, {2, -inf, inf, 0}, {-2, -inf, inf, 0},
	} {
		if got := kept(tc.deviation, tc.low, tc.high); got != tc.want {
			t.Errorf("of %v between %v and %v: %v, want %v", tc.deviation, tc.low, tc.high, got, tc.want)
		}
	}
}

// flaggedIn returns the cells of a window with a q below 0.05.
func flaggedIn(w window) []anomaly {
	return slices.DeleteFunc(anomalies(&w, severities(w), stretches(w.sessions)), func(a anomaly) bool { return a.q >= 0.05 })
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
		for seed := range uint64(150) {
			if name == "uneven scatter" {
				o.noise = uneven(seed)
			}
			found += min(1, len(flaggedIn(o.window(rand.New(rand.NewPCG(seed, 0))))))
		}
		t.Logf("%s: %d of 150 windows", name, found)
		if found > 20 {
			t.Errorf("%s: %d of 150 windows", name, found)
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
				if a.session == 40 && a.reviewer == 1 {
					found++
					if a.value > -0.5 || math.Abs(a.usual) > 0.5 || a.t > -3 || a.questions != 50 {
						t.Errorf("seed %d: %+v", seed, a)
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
		if got := anomalies(&w, severities(w), stretches(w.sessions)); len(got) != want {
			t.Errorf("%d sessions: %d cells", n, len(got))
		}
	}
}
