package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	gonum "gonum.org/v1/gonum/stat"
)

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
		if _, _, ok := Trend(points[0], points[1], whole(points[2])); ok {
			t.Errorf("%s: a trend", name)
		}
	}
	if slope, se, ok := Trend([]float64{0, 1, 2, 3}, []float64{0.1, 0.3, 0.5, 0.7}, []int{0, 1, 2, 3}); math.Abs(slope-0.2) > 1e-12 || se != 0 || !ok {
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
