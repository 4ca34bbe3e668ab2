package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestBCaVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Name                  string
			Theta                 float64
			Jackknife, Replicates []float64
			BCa                   [2]float64
		}
	}
	readVectors(t, "bca_bootstrap.json", &vectors)
	if len(vectors.Cases) != 2 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		low, high, ok := bca(v.Theta, v.Jackknife, v.Replicates)
		if diff := cmp.Diff(v.BCa, [2]float64{low, high}, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" || !ok {
			t.Errorf("%s: %t (-want +got):\n%s", v.Name, ok, diff)
		}
	}
}

// The draws of clusters are given in the reference values.
func TestClusterBootstrapVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Name string
			Data struct {
				Cost, Right []float64
				Errors      [][]float64
			}
			Draws    [][]int
			Estimate float64
			BCa      [2]float64 `json:"bca95"`
		}
	}
	readVectors(t, "bootstrap_cluster.json", &vectors)
	if len(vectors.Cases) != 2 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		statistic := func(units []int) float64 { // cost per right answer
			var cost, right float64
			for _, i := range units {
				cost, right = cost+v.Data.Cost[i], right+v.Data.Right[i]
			}
			return cost / right
		}
		if v.Data.Errors != nil { // k/(1+(k-1) phi), phi the mean correlation of errors
			statistic = func(units []int) float64 {
				columns := make([][]float64, len(v.Data.Errors[0]))
				for _, i := range units {
					for k, e := range v.Data.Errors[i] {
						columns[k] = append(columns[k], e)
					}
				}
				sum, pairs, seats := 0.0, 0.0, float64(len(columns))
				for k := range columns {
					for other := range k {
						phi, _ := Pearson(columns[k], columns[other])
						sum, pairs = sum+phi, pairs+1
					}
				}
				return seats / (1 + (seats-1)*sum/pairs)
			}
		}
		all := make([]int, len(v.Draws[0]))
		for i := range all {
			all[i] = i
		}
		left, replicates := make([]float64, len(all)), make([]float64, len(v.Draws))
		for i := range all {
			left[i] = statistic(slices.Concat(all[:i], all[i+1:]))
		}
		for i, draw := range v.Draws {
			replicates[i] = statistic(draw)
		}
		low, high, ok := bca(statistic(all), left, replicates)
		want := [3]float64{v.Estimate, v.BCa[0], v.BCa[1]}
		if diff := cmp.Diff(want, [3]float64{statistic(all), low, high}, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" || !ok {
			t.Errorf("%s: %t (-want +got):\n%s", v.Name, ok, diff)
		}
	}
}

// ratio is the first of two sums over the second.
func ratio(sums []float64) float64 { return sums[0] / sums[1] }

// A figure that is the same for all units has no interval, whatever rounding makes of it.
func TestBootstrapOfAConstant(t *testing.T) {
	for n := 20; n <= 60; n++ {
		for _, v := range []float64{1. / 3, 0.6, 0.7, 7. / 9} {
			terms := slices.Repeat([][]float64{{v, 1}}, n)
			if low, high, ok := Bootstrap(terms, ratio, 18); ok {
				t.Errorf("%d times %v: [%v, %v]", n, v, low, high)
			}
		}
	}
}

// TestBootstrapCoverage counts how often the interval of the mean of 40 skewed
// terms, and of a correlation, holds the truth: 95 % of 100, less 3.3 standard
// errors and the two points that such intervals fall short of on 40 terms.
func TestBootstrapCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	means, correlations := 0, 0
	for range 100 {
		terms, squares := make([][]float64, 40), make([][]float64, 40)
		for s := range terms {
			terms[s] = []float64{rng.ExpFloat64(), 1}
			x := rng.NormFloat64()
			y := 0.6*x + 0.8*rng.NormFloat64()
			squares[s] = []float64{1, x, y, x * x, y * y, x * y}
		}
		low, high, ok := Bootstrap(terms, ratio, 18)
		if ok && low < 1 && 1 < high {
			means++
		}
		low, high, ok = Bootstrap(squares, func(n []float64) float64 {
			return (n[0]*n[5] - n[1]*n[2]) / math.Sqrt((n[0]*n[3]-n[1]*n[1])*(n[0]*n[4]-n[2]*n[2]))
		}, 18)
		if ok && low < 0.6 && 0.6 < high {
			correlations++
		}
	}
	for name, covered := range map[string]int{"mean": means, "correlation": correlations} {
		if covered < 85 {
			t.Errorf("%s: %d of 100 intervals", name, covered)
		}
	}
}

func TestBootstrapUndefined(t *testing.T) {
	for name, terms := range map[string][][]float64{
		"no variation":       {{2, 1}, {2, 1}, {2, 1}},
		"one cluster":        {{2, 1}},
		"resting on one":     {{2, 1}, {0, 0}, {0, 0}},
		"without some draws": {{2, 1}, {3, 1}, {0, 0}},
	} {
		if low, high, ok := Bootstrap(terms, ratio, 18); ok {
			t.Errorf("%s: [%v, %v]", name, low, high)
		}
	}
}

func TestPool(t *testing.T) {
	terms := make([][]float64, 2*maxUnits+1)
	for i := range terms {
		terms[i] = []float64{1, float64(i)}
	}
	if got := pool(terms[:maxUnits]); len(got) != maxUnits {
		t.Errorf("%d runs of %d terms", len(got), maxUnits)
	}
	got := pool(terms)
	want := []float64{3, 3 + 4 + 5} // of runs of three, the second
	if len(got) != 171 || got[1][0] != want[0] || got[1][1] != want[1] || got[170][0] != 3 {
		t.Errorf("%d runs, the second %v, the last %v", len(got), got[1], got[len(got)-1])
	}
}

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
		statistic, at := CUSUM(v.Y)
		if diff := cmp.Diff(v.point, point{statistic, at, bridgeP(statistic)}, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", v.Name, diff)
		}
	}
}

// TestPermutationMatchesBridge compares the p of permuting with that of the
// limiting distribution, which is a little larger for a series this short.
func TestPermutationMatchesBridge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	deviations, series := make([][]float64, 200), make([][]float64, 2)
	for s := range deviations {
		x, y := rng.NormFloat64(), rng.NormFloat64()
		if s >= 150 {
			x += 0.4
		}
		series[0] = append(series[0], x)
		if s%3 != 0 {
			series[1] = append(series[1], y)
		}
	}
	at := make([]int, 2)
	for s := range deviations {
		deviations[s] = make([]float64, 2) // 0 where the second series has no value
		for column, y := range series {
			if column == 0 || s%3 != 0 {
				deviations[s][column] = y[at[column]] - Mean(y)
				at[column]++
			}
		}
	}
	for column, p := range PermuteCUSUM(deviations, []float64{1, 1}, rand.NewPCG(18, 0)) {
		statistic, _ := CUSUM(series[column])
		if bridge := bridgeP(statistic); p > bridge+0.02 || p < bridge-0.12 {
			t.Errorf("column %d: statistic %v, p %v, by the bridge %v", column, statistic, p, bridge)
		}
	}
}
