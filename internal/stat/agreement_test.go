package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestKendallWVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Scores   [][]float64 `json:"ranks_or_scores"`
			Midranks [][]float64
			W        float64
		}
	}
	readVectors(t, "kendall_w.json", &vectors)
	if len(vectors.Cases) != 4 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for i, v := range vectors.Cases {
		for _, y := range [][][]float64{v.Scores, v.Midranks} {
			if w, ok := KendallW(y); math.Abs(w-v.W) > vectors.Tol*v.W || !ok {
				t.Errorf("case %d: W = %v, %t, want %v", i, w, ok, v.W)
			}
		}
	}
}

func TestKendallWOfIncompleteScores(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name string
		y    [][]float64
		want float64 // NaN where it is undefined
	}{
		{"own answers hidden, agreed", [][]float64{{nan, 7, 5, 3}, {8, nan, 5, 3}, {8, 7, nan, 3}, {8, 7, 5, nan}}, 1},
		// Each candidate is put before one other and behind the other one, by two of three reviewers.
		{"in a circle", [][]float64{{9, 5, 3}, {3, 9, 7}, {4, 1, 9}}, 0},
		{"three reviewers of pairs: each agrees with itself", [][]float64{{nan, 5, 3}, {7, nan, 3}, {7, 5, nan}}, nan},
		{"one score is missing", [][]float64{{8, 5, 3}, {7, 5, nan}, {9, 6, 2}}, 1},
		{"one score is missing, and one reviewer compares", [][]float64{{8, 5, 3}, {7, 5, nan}}, nan},
		{"a silent reviewer", [][]float64{{8, 5, 3}, {7, 5, 2}, {nan, nan, nan}}, 1},
		// Deviations 3, 0, -1, -2 from the means of the comparisons; 24 of 126 are ties.
		{"ties and missing scores", [][]float64{{8, 5, 5, 5}, {7, 5, 3, 2}, {8, 4, nan, nan}}, 3 * 14. / 60 * 126 / 102},
		{"ties weigh more on a short row", [][]float64{{7, 3, 3}, {7, 3, 3}, {nan, 7, 7}, {nan, 7, 7}, {nan, 3, 3}}, 1},
		{"one reviewer", [][]float64{{8, 5, 3}, {7, nan, nan}}, nan},
		{"nobody compares two", [][]float64{{8, 5, nan}, {nan, 5, 3}}, nan},
		{"one item", [][]float64{{8}, {5}}, nan},
		{"all ties", [][]float64{{8, 8}, {3, 3}}, nan},
		{"none", nil, nan},
	} {
		w, ok := KendallW(tc.y)
		if ok != !math.IsNaN(tc.want) || ok && math.Abs(w-tc.want) > 1e-12 {
			t.Errorf("%s: W = %v, %t, want %v", tc.name, w, ok, tc.want)
		}
		slices.Reverse(tc.y)
		if again, _ := KendallW(tc.y); math.Abs(again-w) > 1e-12 {
			t.Errorf("%s: W = %v and, in another order, %v", tc.name, w, again)
		}
	}
}

// By chance alone W is n/((n-2)(n+1)) of n raters that each leave out their own item, and 1/m of m raters of all.
func TestKendallWByChance(t *testing.T) {
	for n, want := range map[int]float64{4: 0.4, 5: 5. / 18, 7: 7. / 40} {
		for _, hidden := range []bool{true, false} {
			if !hidden {
				want = 1 / float64(n)
			}
			rng := rand.New(rand.NewPCG(5, uint64(n)))
			const draws = 2000
			sum := 0.
			for range draws {
				y := make([][]float64, n)
				for i := range y {
					for range n {
						y[i] = append(y[i], rng.Float64())
					}
					if hidden {
						y[i][i] = math.NaN()
					}
				}
				w, _ := KendallW(y)
				sum += w / draws
			}
			if math.Abs(sum-want) > 0.02 { // four standard errors of four raters
				t.Errorf("%d raters, own items left out %t: %.3f, want %.3f", n, hidden, sum, want)
			}
		}
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
				if r, ok := Pearson(v.X, v.Y); ok {
					got = &r
				}
				if diff := cmp.Diff(v.R, got, tolerance); diff != "" {
					t.Fatalf("r (-want +got):\n%s", diff)
				}
			}
			if v.R == nil {
				return
			}
			if diff := cmp.Diff(*v.P, PearsonP(*v.R, v.N), tolerance); diff != "" {
				t.Errorf("p (-want +got):\n%s", diff)
			}
			if v.CI == nil {
				return
			}
			low, high, ok := FisherInterval(*v.R, v.N)
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
		if low, high, ok := FisherInterval(r, 20); ok {
			t.Errorf("interval of r = %v is [%v, %v], want none", r, low, high)
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
		r, ok := Pearson(x, y)
		if !ok || r < -1 || r > 1 {
			t.Fatalf("r = %v, %v", r, ok)
		}
		if swapped, _ := Pearson(y, x); math.Abs(swapped-r) > 1e-12 {
			t.Fatalf("r(y, x) = %v, r(x, y) = %v", swapped, r)
		}
		if mirrored, _ := Pearson(scaled, y); math.Abs(mirrored+r) > 1e-12 {
			t.Fatalf("r(3 - 250 x, y) = %v, r(x, y) = %v", mirrored, r)
		}
		if p := PearsonP(r, n); p < 0 || p > 1 {
			t.Fatalf("p = %v", p)
		}
		if self, _ := Pearson(x, scaled); self < -1 || PearsonP(self, n) != 0 {
			t.Fatalf("r(x, 3 - 250 x) = %v, p = %v", self, PearsonP(self, n))
		}
	})
}

func TestReliabilityVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Scores   [][]float64
			ICC      float64    `json:"icc1"`
			ICCCI    [2]float64 `json:"icc1_ci95"`
			Within   float64    `json:"within_sd"`
			WithinCI [2]float64 `json:"within_sd_ci95"`
		}
	}
	readVectors(t, "icc.json", &vectors)
	if len(vectors.Cases) != 1 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		icc, within := ICC(v.Scores)
		want := []Estimate{estimate(v.ICC, v.ICCCI[0], v.ICCCI[1]), estimate(v.Within, v.WithinCI[0], v.WithinCI[1])}
		if diff := cmp.Diff(want, []Estimate{icc, within}, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestKendallTauVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Name string
			X, Y []float64
			Tau  *float64 `json:"kendall_tau_b"`
		}
	}
	readVectors(t, "correlation.json", &vectors)
	compared := 0
	for _, v := range vectors.Cases {
		if v.X == nil {
			continue
		}
		var got *float64
		if tau, ok := KendallTau(v.X, v.Y); ok {
			got = &tau
		}
		if diff := cmp.Diff(v.Tau, got, cmpopts.EquateApprox(vectors.Tol, 1e-15)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", v.Name, diff)
		}
		compared++
	}
	if compared < 8 {
		t.Fatalf("%d cases in the file", compared)
	}
}

func TestReliabilityEdges(t *testing.T) {
	for _, tc := range []struct {
		name        string
		items       [][]float64
		icc, within *float64
		intervals   bool
	}{
		{"none", nil, nil, nil, false},
		{"one item", [][]float64{{3, 5}}, nil, new(math.Sqrt2), true},
		{"no difference", [][]float64{{4, 4}, {4, 4}}, nil, new(0.0), false},
		{"repeats identical", [][]float64{{0.1, 0.1, 0.1}, {7, 7, 7}}, new(1.0), new(0.0), false},
		// MSB = 6 * 1.5^2 / ... by hand: means 2 and 5, grand mean 19/5, SSB = 2*1.8^2 +
		// 3*1.2^2 = 10.8, SSW = 2 + 2 = 4 on 3 df, k = 5 - 13/5 = 2.4.
		{"unequal repeats", [][]float64{{1, 3}, {4, 5, 6}}, new((10.8 - 4./3) / (10.8 + 1.4*4/3)), new(math.Sqrt(4. / 3)), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			icc, within := ICC(tc.items)
			approx := cmpopts.EquateApprox(1e-12, 0)
			if diff := cmp.Diff([]*float64{tc.icc, tc.within}, []*float64{icc.Value, within.Value}, approx); diff != "" {
				t.Errorf("ICC and deviation (-want +got):\n%s", diff)
			}
			if got := within.Lower != nil && within.Upper != nil; got != tc.intervals {
				t.Errorf("interval of the deviation: %t", got)
			}
			if got := icc.Lower != nil && icc.Upper != nil; got != (tc.intervals && tc.icc != nil) {
				t.Errorf("interval of the ICC: %t", got)
			}
		})
	}
}
