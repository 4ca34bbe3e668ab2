package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChangePointsAreReproducible holds that the permutations of a report are always the
// same.
func TestChangePointsAreReproducible(t *testing.T) {
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
