package bias

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
}

func TestCorrelationVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Name string
			N    int
			X, Y []float64
			R    *float64
			P    *float64    `json:"p_two_sided"`
			CI   *[2]float64 `json:"ci95"`
		}
	}
	readVectors(t, "correlation.json", &vectors)
	if len(vectors.Cases) < 9 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		t.Run(v.Name, func(t *testing.T) {
			tolerance := cmpopts.EquateApprox(vectors.Tol, 0)
			if v.X != nil {
				var got *float64
				if r, ok := pearson(v.X, v.Y); ok {
					got = &r
				}
				if diff := cmp.Diff(v.R, got, tolerance); diff != "" {
					t.Fatalf("r (-want +got):\n%s", diff)
				}
			}
			if v.R == nil {
				return
			}
			if diff := cmp.Diff(*v.P, pearsonP(*v.R, v.N), tolerance); diff != "" {
				t.Errorf("p (-want +got):\n%s", diff)
			}
			if v.CI == nil {
				return
			}
			low, high, ok := fisherInterval(*v.R, v.N)
			if !ok {
				t.Fatal("no interval")
			}
			if diff := cmp.Diff(*v.CI, [2]float64{low, high}, tolerance); diff != "" {
				t.Errorf("interval (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFisherIntervalOfPerfectCorrelation(t *testing.T) {
	for _, r := range []float64{-1, 1} {
		if low, high, ok := fisherInterval(r, 20); ok {
			t.Errorf("interval of r = %v is [%v, %v], want none", r, low, high)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		x    []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{7, 1, 4, 3}, 3.5},
	} {
		if got := median(tc.x); got != tc.want {
			t.Errorf("median(%v) = %v, want %v", tc.x, got, tc.want)
		}
	}
}

// TestPearsonProperties holds what every correlation obeys: bounds, symmetry, and
// indifference to the units of either side.
func TestPearsonProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := rapid.IntRange(3, 40).Draw(t, "n")
		x, y, scaled := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			x[i], y[i] = rng.NormFloat64(), rng.NormFloat64()
			scaled[i] = 3 - 250*x[i]
		}
		r, ok := pearson(x, y)
		if !ok || r < -1 || r > 1 {
			t.Fatalf("r = %v, %v", r, ok)
		}
		if swapped, _ := pearson(y, x); math.Abs(swapped-r) > 1e-12 {
			t.Fatalf("r(y, x) = %v, r(x, y) = %v", swapped, r)
		}
		if mirrored, _ := pearson(scaled, y); math.Abs(mirrored+r) > 1e-12 {
			t.Fatalf("r(3 - 250 x, y) = %v, r(x, y) = %v", mirrored, r)
		}
		if p := pearsonP(r, n); p < 0 || p > 1 {
			t.Fatalf("p = %v", p)
		}
		if self, _ := pearson(x, scaled); self < -1 || pearsonP(self, n) != 0 {
			t.Fatalf("r(x, 3 - 250 x) = %v, p = %v", self, pearsonP(self, n))
		}
	})
}
