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
	points := w.changePoints(fits, []stretch{run(0, 200)})
	if len(points) != 2 || points[0].Sessions != 200 || points[1].Sessions != 133 {
		t.Fatalf("change points %+v", points)
	}
	if diff := cmp.Diff(points, w.changePoints(fits, []stretch{run(0, 200)})); diff != "" {
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
	w.names = append(w.names, "c", "d", "e")
	for s := range fits {
		fits[s].Effect = append(fits[s].Effect, 0.3*rng.NormFloat64(), 0.3*rng.NormFloat64(), 0.3*rng.NormFloat64())
	}
	points := w.changePoints(fits, []stretch{run(10, 80)})
	if len(points) != 4 { // a constant series has none
		t.Fatalf("change points %+v", points)
	}
	c := points[0]
	if c.SessionID != "50" || c.Sessions != 69 {
		t.Errorf("at session %s of %d, want 50 of 69", c.SessionID, c.Sessions)
	}
	if c.PValue > 0.01 || c.Verdict != VerdictChanged {
		t.Errorf("p = %v", c.PValue)
	}
	if math.Abs(c.Before) > 0.2 || math.Abs(c.After-1) > 0.2 {
		t.Errorf("from %v to %v, want from 0 to 1", c.Before, c.After)
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
		if slices.ContainsFunc(points, func(c ChangePoint) bool { return c.Verdict == VerdictChanged }) {
			flagged++
		}
	}
	if significant > 12 || flagged > significant {
		t.Errorf("of 100 windows %d have a significant change, %d a flagged one", significant, flagged)
	}
}
