package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// windowOf returns the window of a file of records.
func windowOf(t *testing.T, name string) window {
	t.Helper()
	return collect(unlimited, readRecords(t, name)).window()
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
			got[w.names[i]] = fits[s].harshness[i]
		}
		if diff := cmp.Diff(expected, got, cmpopts.EquateApprox(want.Tol, 0)); diff != "" {
			t.Errorf("session %d (-want +got):\n%s", s, diff)
		}
	}
}

func TestSeverity(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name      string
		y         [][]float64
		own       [][2]int
		harshness []float64
		df        float64
	}{
		{"complete", [][]float64{{3, 7, 5}, {4, 8, 6}}, nil, []float64{-0.5, 0.5}, 2},
		{"own does not count", [][]float64{{10, 7, 5}, {4, 10, 6}}, [][2]int{{0, 0}, {1, 1}}, []float64{-0.5, 0.5}, 0},
		{"linked by a third", [][]float64{{3, nan}, {4, 5}, {nan, 8}}, nil, []float64{-5. / 3, -2. / 3, 7. / 3}, 0},
		{"in two groups", [][]float64{{3, nan}, {4, nan}, {nan, 8}, {nan, 2}}, nil, nil, 0},
		{"nobody twice", [][]float64{{3, nan}, {nan, 8}}, nil, nil, 0},
		{"one silent", [][]float64{{3, 7}, {nan, nan}, {4, 8}}, nil, []float64{-0.5, nan, 0.5}, 1},
		{"one reviewer", [][]float64{{3, 7}}, nil, nil, 0},
		{"none", nil, nil, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := scores{y: tc.y, own: matrix(len(tc.y), 3, false), reviewers: make([]int, len(tc.y))}
			if len(tc.y) > 0 {
				x.candidates = make([]int, len(tc.y[0]))
			}
			for _, cell := range tc.own {
				x.own[cell[0]][cell[1]] = true
			}
			fit := x.severity()
			if diff := cmp.Diff(tc.harshness, fit.harshness, approx, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("harshness (-want +got):\n%s", diff)
			}
			if fit.df != tc.df {
				t.Errorf("%v degrees of freedom, want %v", fit.df, tc.df)
			}
			if fit.squares > 1e-24 { // all cases are additive
				t.Errorf("sum of squares %v", fit.squares)
			}
		})
	}
}

// TestRoundingIsNoHarshness holds that reviewers whose scores of a session always
// add up to the same are equally harsh, and not by the last digits of the sums.
func TestRoundingIsNoHarshness(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	w := window{names: []string{"a", "b", "c"}}
	for s := range 30 {
		x := scores{cluster: s, reviewers: []int{0, 1, 2}, candidates: []int{0, 1}, y: matrix(3, 2, 0.), own: matrix(3, 2, false)}
		for _, row := range x.y {
			row[0] = 1 + 9*rng.Float64()
			row[1] = 11 - row[0]
		}
		w.sessions = append(w.sessions, x)
	}
	fits, split := severities(w), stretches(w.sessions)
	for _, d := range drifts(&w, fits, split) {
		if d.se != 0 {
			t.Errorf("drift %+v", d)
		}
	}
	if c := changePoints(&w, fits, split); len(c) > 0 {
		t.Errorf("change points %+v", c)
	}
	if a := anomalies(&w, fits, split); len(a) > 0 {
		t.Errorf("anomalies %+v", a)
	}
}

// TestSeverityIsLeastSquares compares with a dense fit of the dummies of candidates
// and, with sum zero, reviewers.
func TestSeverityIsLeastSquares(t *testing.T) {
	w := simulation{sessions: 200, missing: 0.15, hidden: true}.window(rand.New(rand.NewPCG(8, 0)))
	compared := 0
	for _, x := range w.sessions {
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
		fit := x.severity()
		var normal, inverse mat.Dense
		normal.Mul(design.T(), design)
		if inverse.Inverse(&normal) != nil || slices.ContainsFunc(fit.harshness, math.IsNaN) {
			continue // someone gave or got no score
		}
		compared++
		var moments, beta, fitted mat.VecDense
		moments.MulVec(design.T(), y)
		beta.MulVec(&inverse, &moments)
		fitted.MulVec(design, &beta)
		fitted.SubVec(y, &fitted)
		if squares := mat.Dot(&fitted, &fitted); math.Abs(fit.squares-squares) > 1e-9 || fit.df != float64(n-9) {
			t.Errorf("sum of squares %v on %v, want %v on %d", fit.squares, fit.df, squares, n-9)
		}
		for i := range members - 1 {
			if want := beta.AtVec(members + i); math.Abs(fit.harshness[i]-want) > 1e-9 {
				t.Errorf("harshness %v, want %v", fit.harshness[i], want)
			}
			if want := inverse.At(members+i, members+i); math.Abs(fit.leverage[i]-want) > 1e-9 {
				t.Errorf("leverage %v, want %v", fit.leverage[i], want)
			}
			if low, high := withoutOne(x, i); math.Abs(fit.low[i]-low) > 1e-9 || math.Abs(fit.high[i]-high) > 1e-9 {
				t.Errorf("harshness without a score from %v to %v, want %v to %v", fit.low[i], fit.high[i], low, high)
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
		fit := x.severity()
		x.y[reviewer][j] = y
		if fit.harshness == nil || math.IsNaN(fit.harshness[reviewer]) {
			return math.Inf(-1), math.Inf(1)
		}
		low, high = min(low, fit.harshness[reviewer]), max(high, fit.harshness[reviewer])
	}
	return low, high
}

func TestTrendVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Name         string
			T, Y         []float64
			Slope, SE, P float64
		}
	}
	readVectors(t, "trend.json", &vectors)
	if len(vectors.Cases) != 3 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		alone := make([]int, len(v.T)) // every point is a cluster
		mean, spread := stat.Mean(v.T, nil), stat.Variance(v.T, nil)*float64(len(v.T)-1)
		intercept, _ := stat.LinearRegression(v.T, v.Y, nil, false)
		variance, n := 0.0, float64(len(v.T))
		for k := range v.T {
			alone[k] = k
			// Without point k the slope moves by this (Cook and Weisberg 1982).
			d := v.T[k] - mean
			moved := d / spread * (v.Y[k] - intercept - v.Slope*v.T[k]) / (1 - 1/n - d*d/spread)
			variance += (n - 1) / n * moved * moved
		}
		slope, se, ok := trend(v.T, v.Y, alone)
		if diff := cmp.Diff([]float64{v.Slope, math.Sqrt(variance)}, []float64{slope, se}, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" || !ok {
			t.Errorf("%s: %t (-want +got):\n%s", v.Name, ok, diff)
		}
	}
	for name, points := range map[string][3][]float64{
		"two points":                 {{0, 1}, {0, 2}, {0, 1}},
		"one time":                   {{2, 2, 2}, {0, 1, 5}, {0, 1, 2}},
		"one cluster":                {{0, 1, 2}, {0, 1, 5}, {0, 0, 0}},
		"one time without a cluster": {{0, 1, 1}, {0, 1, 5}, {0, 1, 1}},
	} {
		if _, _, ok := trend(points[0], points[1], whole(points[2])); ok {
			t.Errorf("%s: a trend", name)
		}
	}
	if slope, se, ok := trend([]float64{0, 1, 2, 3}, []float64{0.1, 0.3, 0.5, 0.7}, []int{0, 1, 2, 3}); math.Abs(slope-0.2) > 1e-12 || se != 0 || !ok {
		t.Errorf("on a line: slope %v, error %v, %t", slope, se, ok)
	}
}

// TestTrendByCluster compares with fits to the points of all clusters but one.
func TestTrendByCluster(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 0))
	var at, y []float64
	var cluster []int
	for k := range 40 {
		at, y, cluster = append(at, float64(k)), append(y, rng.NormFloat64()), append(cluster, rng.IntN(12))
	}
	_, whole := stat.LinearRegression(at, y, nil, false)
	variance := 0.0
	for left := range 12 {
		var t, v []float64
		for k := range at {
			if cluster[k] != left {
				t, v = append(t, at[k]), append(v, y[k])
			}
		}
		_, slope := stat.LinearRegression(t, v, nil, false)
		variance += 11. / 12 * (slope - whole) * (slope - whole)
	}
	slope, se, ok := trend(at, y, cluster)
	if math.Abs(slope-whole) > 1e-12 || math.Abs(se-math.Sqrt(variance)) > 1e-12 || !ok {
		t.Errorf("slope %v, error %v, %t; want %v, %v", slope, se, ok, whole, math.Sqrt(variance))
	}
}
