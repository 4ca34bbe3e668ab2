package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// bridgeP returns the probability that the supremum of the absolute value of a
// Brownian bridge exceeds x (Kolmogorov 1933).
func bridgeP(x float64) float64 {
	p := 0.0
	for k := 1.; k < 100; k++ {
		p -= 2 * math.Pow(-1, k) * math.Exp(-2*k*k*x*x)
	}
	return p
}

func TestChangePointVectors(t *testing.T) {
	type point struct {
		Statistic float64 `json:"max_abs_cusum_std"`
		At        int     `json:"argmax_after"`
		P         float64 `json:"p_brownian_bridge"`
	}
	var vectors struct {
		Tol   float64
		Cases []struct {
			point
			Name string
			Y    []float64
		}
	}
	readVectors(t, "changepoint.json", &vectors)
	if len(vectors.Cases) != 3 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		statistic, at := cusum(v.Y)
		if diff := cmp.Diff(v.point, point{statistic, at, bridgeP(statistic)}, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", v.Name, diff)
		}
	}
}

// TestPermutationMatchesBridge compares the p of permuting with that of the
// limiting distribution, which is a little larger for a series this short.
func TestPermutationMatchesBridge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	var h [][2]float64
	for s := range 200 {
		v := [2]float64{rng.NormFloat64(), rng.NormFloat64()}
		if s >= 150 {
			v[0] += 0.4
		}
		if s%3 == 0 {
			v[1] = math.NaN()
		}
		h = append(h, v)
	}
	w, fits := fitsOf(h...)
	points := changePoints(w, fits, []stretch{{0, 200}})
	if len(points) != 2 || points[0].sessions != 200 || points[1].sessions != 133 {
		t.Fatalf("change points %+v", points)
	}
	for _, c := range points {
		if bridge := bridgeP(c.statistic); c.p > bridge+0.02 || c.p < bridge-0.12 {
			t.Errorf("reviewer %d: statistic %v, p %v, by the bridge %v", c.reviewer, c.statistic, c.p, bridge)
		}
	}
	if diff := cmp.Diff(points, changePoints(w, fits, []stretch{{0, 200}}), cmp.AllowUnexported(changePoint{}, stretch{})); diff != "" {
		t.Errorf("another time (-first +second):\n%s", diff)
	}
}

func TestChangePointFindsAJump(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	var h [][2]float64
	for s := range 80 {
		v := [2]float64{0.3 * rng.NormFloat64(), 1}
		if s >= 50 {
			v[0]++
		}
		if s == 20 {
			v[0] = math.NaN()
		}
		h = append(h, v)
	}
	w, fits := fitsOf(h...)
	points := changePoints(w, fits, []stretch{{10, 80}})
	if len(points) != 1 { // a constant series has none
		t.Fatalf("change points %+v", points)
	}
	c := points[0]
	if c.at != 50 || c.p != 1./2000 || c.sessions != 69 || math.Abs(c.before) > 0.2 || math.Abs(c.after-1) > 0.2 {
		t.Errorf("%+v", c)
	}
}

// TestChangePointsOfUnbiasedWindows counts windows with a significant change point
// among those with none: 5 % of 100, and 3.3 standard errors. Flagged are fewer,
// because small changes do not count.
func TestChangePointsOfUnbiasedWindows(t *testing.T) {
	significant, flagged := 0, 0
	for seed := range uint64(100) {
		w := simulation{sessions: 50}.window(rand.New(rand.NewPCG(seed, 0)))
		points := w.changePoints(severities(w), stretches(w.sessions))
		if slices.ContainsFunc(points, func(c ChangePoint) bool { return c.QValue < 0.05 }) {
			significant++
		}
		if slices.ContainsFunc(points, func(c ChangePoint) bool { return c.Flagged }) {
			flagged++
		}
	}
	if significant > 12 || flagged > significant {
		t.Errorf("of 100 windows %d have a significant change, %d a flagged one", significant, flagged)
	}
}
