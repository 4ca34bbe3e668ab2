package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/gonum/stat"
)

// observation is one value in the table of its block.
type observation struct {
	block, cluster, row, column int
	size                        float64 // what the regressors are made of
	y                           float64
}

// patchy returns blocks of random values in which cells are missing, some of one
// cluster.
func patchy(rng *rand.Rand, blocks int) []observation {
	var all []observation
	for block := range blocks {
		rows, columns := 2+rng.IntN(3), 2+rng.IntN(4)
		for i := range rows {
			for j := range columns {
				if rng.Float64() < 0.3 && i+j > 0 {
					continue
				}
				size, y := float64(rng.IntN(1000)), 1+9*rng.Float64()
				if size > 20 {
					all = append(all, observation{block: block, cluster: block * 3 / 4, row: i, column: j, size: size, y: y})
				}
			}
		}
	}
	return all
}

// hashed is a regressor without structure: some number from -1 to 1 for each observation.
func hashed(o observation, salt int) float64 { return math.Sin(o.size + float64(97*salt)) }

// regress returns the regression of all observations.
func regress(d Design, all []observation, x func(o observation) []float64) *Regression {
	r := NewRegression(d)
	for k, o := range all {
		r.Add(o.row, o.column, append(x(o), o.y))
		if k+1 == len(all) || all[k+1].block != o.block {
			r.EndBlock(o.cluster, 4, 5)
			r.EndBlock(o.cluster, 4, 5) // a block without observations
		}
	}
	return r
}

// dense fits a design by least squares on a matrix that holds every dummy, leaving
// out one cluster, or none when negative, and returns the coefficients of x.
func dense(t *testing.T, d Design, all []observation, x func(o observation) []float64, leave int) []float64 {
	t.Helper()
	n := d.Regressors
	var rows [][]float64
	var y []float64
	dummies := map[[3]int]int{}
	for _, o := range all {
		if o.cluster == leave {
			continue
		}
		row := x(o)
		for _, dummy := range [][3]int{{o.block, 0, o.column}, {o.block, 1, o.row}} {
			if (dummy[1] == 0) != d.Columns {
				continue
			}
			if _, ok := dummies[dummy]; !ok {
				dummies[dummy] = n + len(dummies)
			}
			row = append(row, make([]float64, max(0, dummies[dummy]+1-len(row)))...)
			row[dummies[dummy]] = 1
		}
		rows, y = append(rows, row), append(y, o.y)
	}
	m := mat.NewDense(len(rows), n+len(dummies), nil)
	for r, row := range rows {
		for k, v := range row {
			m.Set(r, k, v)
		}
	}
	var svd mat.SVD
	if !svd.Factorize(m, mat.SVDThin) {
		t.Fatal("no singular values")
	}
	var beta mat.VecDense
	svd.SolveVecTo(&beta, mat.NewVecDense(len(y), y), svd.Rank(1e-10))
	return beta.RawVector().Data[:n]
}

// TestFitsAreDenseFits holds that absorbing effects, and adding and subtracting
// sums, gives what fits with all dummies in them give: all blocks, and each
// cluster left out in turn.
func TestFitsAreDenseFits(t *testing.T) {
	x := func(o observation) []float64 { return []float64{hashed(o, 0), hashed(o, 1)} }
	for name, d := range map[string]Design{
		"columns": {Columns: true, Regressors: 2}, "rows": {Regressors: 2},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				all := patchy(rand.New(rand.NewPCG(seed, 0)), 16)
				f := regress(d, all, x).Fit()
				want := dense(t, d, all, x, -1)
				if diff := cmp.Diff(want, f.Beta, cmpopts.EquateApprox(1e-7, 1e-9)); diff != "" {
					t.Errorf("coefficients (-want +got):\n%s", diff)
				}
				cv3 := make([]float64, 4)
				for c := range 12 {
					without := dense(t, d, all, x, c)
					AddOuter(cv3, []float64{without[0] - want[0], without[1] - want[1]})
				}
				for k := range cv3 {
					cv3[k] *= 11. / 12
				}
				if diff := cmp.Diff(cv3, f.CV3, cmpopts.EquateApprox(1e-6, 1e-9)); diff != "" {
					t.Errorf("covariances (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// Clusters that tell nothing of a contrast do not count for it, and of very unequal ones the effective
// number does.
func TestInformative(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(cluster int) float64 // how widely each regressor varies in a cluster
		want          [2]int
	}{
		{"alike", func(int) float64 { return 1 }, func(int) float64 { return 2 }, [2]int{20, 20}},
		{"every other", func(int) float64 { return 1 }, func(c int) float64 { return float64(c % 2) }, [2]int{20, 10}},
		{"a few unequal", func(c int) float64 { return max(1, 5-float64(c)) }, func(c int) float64 { return 1 + float64(c%3) }, [2]int{20, 20}},
		{"three tell nearly all", func(c int) float64 { return math.Pow(10, float64(-min(c, 3)/3)) }, func(int) float64 { return 1 }, [2]int{3, 20}},
		{"one tells nearly all", func(int) float64 { return 1 }, func(c int) float64 { return math.Pow(10, float64(-min(c, 1))) }, [2]int{20, 1}},
	} {
		r := NewRegression(Design{Regressors: 2})
		for c := range 20 {
			for k := range 4 {
				r.Add(0, k, []float64{tc.first(c) * float64(k%2), tc.second(c) * float64(k/2), float64(c * k % 7)})
			}
			r.EndBlock(c, 1, 4)
		}
		f := r.Fit()
		if got := [2]int{f.Informative([]float64{1, 0}), f.Informative([]float64{0, 1})}; got != tc.want {
			t.Errorf("%s: %v clusters are informative, want %v", tc.name, got, tc.want)
		}
	}
}

func TestEstimable(t *testing.T) {
	all := patchy(rand.New(rand.NewPCG(3, 0)), 20)
	inOneCluster := func(o observation) float64 {
		if o.cluster == 4 {
			return hashed(o, 4)
		}
		return 0
	}
	f := regress(Design{Columns: true, Regressors: 5}, all, func(o observation) []float64 {
		// The columns absorb the fourth.
		return []float64{hashed(o, 0), hashed(o, 1), -2 * hashed(o, 1), float64(o.column), inOneCluster(o)}
	}).Fit()
	for _, tc := range []struct {
		name              string
		c                 []float64
		estimable, robust bool
	}{
		{"plain", []float64{1, 0, 0, 0, 0}, true, true},
		{"one of two alike", []float64{0, 1, 0, 0, 0}, false, false},
		{"the other", []float64{0, 0, 1, 0, 0}, false, false},
		{"what they say together", []float64{0, 1, -2, 0, 0}, true, true},
		{"absorbed", []float64{0, 0, 0, 1, 0}, false, false},
		{"in one cluster", []float64{0, 0, 0, 0, 1}, true, false},
		{"plain beside it", []float64{1, 0, 0, 0, 1}, true, false},
	} {
		if estimable, robust := f.Estimable(tc.c); estimable != tc.estimable || robust != tc.robust {
			t.Errorf("%s: estimable %v, robust %v", tc.name, estimable, robust)
		}
	}
	// What cannot be told apart changes nothing for the others.
	plain := regress(Design{Columns: true, Regressors: 3}, all, func(o observation) []float64 {
		return []float64{hashed(o, 0), hashed(o, 1), inOneCluster(o)}
	}).Fit()
	want := plain.Effect([]float64{1, 0, 0}, 20)
	if diff := cmp.Diff(want, f.Effect([]float64{1, 0, 0, 0, 0}, 20), approx); diff != "" {
		t.Errorf("beside columns that cannot be told apart (-want +got):\n%s", diff)
	}
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
		mean, spread := Mean(v.T), Variance(v.T)*float64(len(v.T)-1)
		intercept, _ := gonum.LinearRegression(v.T, v.Y, nil, false)
		variance, n := 0.0, float64(len(v.T))
		for k := range v.T {
			alone[k] = k
			// Without point k the slope moves by this (Cook and Weisberg 1982).
			d := v.T[k] - mean
			moved := d / spread * (v.Y[k] - intercept - v.Slope*v.T[k]) / (1 - 1/n - d*d/spread)
			variance += (n - 1) / n * moved * moved
		}
		slope, se, ok := Trend(v.T, v.Y, alone)
		if diff := cmp.Diff([]float64{v.Slope, math.Sqrt(variance)}, []float64{slope, se},
			cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" || !ok {
			t.Errorf("%s: %t (-want +got):\n%s", v.Name, ok, diff)
		}
	}
	for name, points := range map[string][3][]float64{
		"two points":                 {{0, 1}, {0, 2}, {0, 1}},
		"one time":                   {{2, 2, 2}, {0, 1, 5}, {0, 1, 2}},
		"one cluster":                {{0, 1, 2}, {0, 1, 5}, {0, 0, 0}},
		"one time without a cluster": {{0, 1, 1}, {0, 1, 5}, {0, 1, 1}},
	} {
		if _, _, ok := Trend(points[0], points[1], whole(points[2])); ok {
			t.Errorf("%s: a trend", name)
		}
	}
	if slope, se, ok := Trend([]float64{0, 1, 2, 3}, []float64{0.1, 0.3, 0.5, 0.7}, []int{0, 1, 2, 3}); math.Abs(slope-0.2) > 1e-12 ||
		se != 0 || !ok {
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
	_, whole := gonum.LinearRegression(at, y, nil, false)
	variance := 0.0
	for left := range 12 {
		var t, v []float64
		for k := range at {
			if cluster[k] != left {
				t, v = append(t, at[k]), append(v, y[k])
			}
		}
		_, slope := gonum.LinearRegression(t, v, nil, false)
		variance += 11. / 12 * (slope - whole) * (slope - whole)
	}
	slope, se, ok := Trend(at, y, cluster)
	if math.Abs(slope-whole) > 1e-12 || math.Abs(se-math.Sqrt(variance)) > 1e-12 || !ok {
		t.Errorf("slope %v, error %v, %t; want %v, %v", slope, se, ok, whole, math.Sqrt(variance))
	}
}

func whole(x []float64) []int {
	n := make([]int, len(x))
	for i, v := range x {
		n[i] = int(v)
	}
	return n
}
