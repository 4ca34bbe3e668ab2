package bias

import (
	"math"
	"math/rand/v2"
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
		low, high, ok := bootstrap(terms, ratio)
		if ok && low < 1 && 1 < high {
			means++
		}
		low, high, ok = bootstrap(squares, func(n []float64) float64 {
			return (n[0]*n[5] - n[1]*n[2]) / math.Sqrt((n[0]*n[3]-n[1]*n[1])*(n[0]*n[4]-n[2]*n[2]))
		})
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
		if low, high, ok := bootstrap(terms, ratio); ok {
			t.Errorf("%s: [%v, %v]", name, low, high)
		}
	}
}

func TestRuns(t *testing.T) {
	terms := make([][]float64, 2*drawnUnits+1)
	for i := range terms {
		terms[i] = []float64{1, float64(i)}
	}
	if got := runs(terms[:drawnUnits]); len(got) != drawnUnits {
		t.Errorf("%d runs of %d terms", len(got), drawnUnits)
	}
	got := runs(terms)
	want := []float64{3, 3 + 4 + 5} // of runs of three, the second
	if len(got) != 171 || got[1][0] != want[0] || got[1][1] != want[1] || got[170][0] != 3 {
		t.Errorf("%d runs, the second %v, the last %v", len(got), got[1], got[len(got)-1])
	}
}
