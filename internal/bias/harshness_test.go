package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/mat"

	"github.com/councild/councild/internal/stat"
)

// windowOf returns the window of a file of records.
func windowOf(t *testing.T, name string) window {
	t.Helper()
	return collect(unlimited, readRecords(t, name)).window()
}

// TestOwnScoresAreNoHarshness holds that what reviewers give to their own answers does
// not enter.
func TestOwnScoresAreNoHarshness(t *testing.T) {
	w := window{names: []string{"a", "b", "c"}, sessions: []scores{{
		reviewers: []int{0, 2}, candidates: []int{0, 1, 2},
		y:   [][]float64{{10, 7, 5}, {4, 10, 6}},
		own: [][]bool{{true, false, false}, {false, true, false}},
	}}}
	if diff := cmp.Diff([]float64{-0.5, math.NaN(), 0.5}, severities(w)[0].Effect, approx, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("harshness (-want +got):\n%s", diff)
	}
}

func TestRelativeHarshnessVectors(t *testing.T) {
	var want struct {
		Tol       float64
		Estimates struct {
			Series [][]float64 `json:"relative_harshness_series_first3"`
		}
	}
	readVectors(t, "e2e_planted.expected.json", &want)
	if len(want.Estimates.Series) != 3 {
		t.Fatalf("%d sessions in the file", len(want.Estimates.Series))
	}
	w := windowOf(t, "e2e_planted.jsonl")
	fits := severities(w)
	// The file has the reviewers in the order of their first record.
	order := []string{"openai/m0", "openai/m1", "anthropic/m2", "google/m3", "meta/m4"}
	for s, series := range want.Estimates.Series {
		expected, got := map[string]float64{}, map[string]float64{}
		for i, name := range order {
			expected[name] = series[i]
			got[w.names[i]] = fits[s].Effect[i]
		}
		if diff := cmp.Diff(expected, got, cmpopts.EquateApprox(want.Tol, 0)); diff != "" {
			t.Errorf("session %d (-want +got):\n%s", s, diff)
		}
	}
}

// TestRoundingIsNoHarshness holds that reviewers whose scores of a session always
// add up to the same are equally harsh, and not by the last digits of the sums.
func TestRoundingIsNoHarshness(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	w := window{names: []string{"a", "b", "c"}}
	for s := range 30 {
		x := scores{cluster: s, reviewers: []int{0, 1, 2}, candidates: []int{0, 1}, y: stat.Matrix(3, 2, 0.), own: stat.Matrix(3, 2, false)}
		for _, row := range x.y {
			row[0] = 1 + 9*rng.Float64()
			row[1] = 11 - row[0]
		}
		w.sessions = append(w.sessions, x)
	}
	fits, split := severities(w), stretches(w.sessions)
	for _, d := range drifts(&w, fits, split) {
		if d.SE != 0 {
			t.Errorf("drift %+v", d)
		}
	}
	if c := w.changePoints(fits, split); len(c) > 0 {
		t.Errorf("change points %+v", c)
	}
	if a := w.testedCells(fits, split); len(a) > 0 {
		t.Errorf("anomalies %+v", a)
	}
}

// TestSeverityIsLeastSquares compares with a dense fit of the dummies of candidates
// and, with sum zero, reviewers.
func TestSeverityIsLeastSquares(t *testing.T) {
	w := simulation{sessions: 200, missing: 0.15, hidden: true}.window(rand.New(rand.NewPCG(8, 0)))
	compared := 0
	fits := severities(w)
	for s, x := range w.sessions {
		const members = 5
		design, y := mat.NewDense(members*members, 2*members-1, nil), mat.NewVecDense(members*members, nil)
		n := 0
		for i := range members {
			for j := range members {
				if math.IsNaN(x.y[i][j]) {
					continue
				}
				design.Set(n, j, 1)
				for k := range members - 1 {
					switch i {
					case k:
						design.Set(n, members+k, 1)
					case members - 1:
						design.Set(n, members+k, -1)
					}
				}
				y.SetVec(n, x.y[i][j])
				n++
			}
		}
		fit := fits[s]
		var normal, inverse mat.Dense
		normal.Mul(design.T(), design)
		if inverse.Inverse(&normal) != nil || slices.ContainsFunc(fit.Effect, math.IsNaN) {
			continue // someone gave or got no score
		}
		compared++
		var moments, beta, fitted mat.VecDense
		moments.MulVec(design.T(), y)
		beta.MulVec(&inverse, &moments)
		fitted.MulVec(design, &beta)
		fitted.SubVec(y, &fitted)
		if squares := mat.Dot(&fitted, &fitted); math.Abs(fit.Squares-squares) > 1e-9 || fit.DF != float64(n-9) {
			t.Errorf("sum of squares %v on %v, want %v on %d", fit.Squares, fit.DF, squares, n-9)
		}
		for i := range members - 1 {
			if want := beta.AtVec(members + i); math.Abs(fit.Effect[i]-want) > 1e-9 {
				t.Errorf("harshness %v, want %v", fit.Effect[i], want)
			}
			if want := inverse.At(members+i, members+i); math.Abs(fit.Leverage[i]-want) > 1e-9 {
				t.Errorf("leverage %v, want %v", fit.Leverage[i], want)
			}
			if low, high := withoutOne(x, i); math.Abs(fit.Low[i]-low) > 1e-9 || math.Abs(fit.High[i]-high) > 1e-9 {
				t.Errorf("harshness without a score from %v to %v, want %v to %v", fit.Low[i], fit.High[i], low, high)
			}
		}
	}
	if compared < 100 {
		t.Errorf("%d sessions compared", compared)
	}
}

// withoutOne returns the range of a reviewer's harshness over fits that each leave out
// one of its scores.
func withoutOne(x scores, reviewer int) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for j, y := range x.y[reviewer] {
		if math.IsNaN(y) {
			continue
		}
		x.y[reviewer][j] = math.NaN()
		fit := stat.FitTwoWay(x.others())
		x.y[reviewer][j] = y
		if math.IsNaN(fit.Effect[reviewer]) {
			return math.Inf(-1), math.Inf(1)
		}
		low, high = min(low, fit.Effect[reviewer]), max(high, fit.Effect[reviewer])
	}
	return low, high
}
