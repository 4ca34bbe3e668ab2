package bias

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/mat"

	"github.com/councild/councild/internal/stat"
)

// patchy returns a window of random scores in which cells are missing and some
// sessions answer one question.
func patchy(rng *rand.Rand, sessions int) window {
	c := NewCollector(unlimited)
	for s := range sessions {
		reviewers, candidates := 2+rng.IntN(3), 2+rng.IntN(4)
		for i := range reviewers {
			for j := range candidates {
				if rng.Float64() < 0.3 && i+j > 0 {
					continue
				}
				r := record(strconv.Itoa(100+s), now, string(rune('r'+i)), string(rune('a'+j)), 1+9*rng.Float64())
				r.ResponseLengthChars = rng.IntN(1000)
				r.QueryHash = new(strconv.Itoa(s * 3 / 4))
				c.Add(r)
			}
		}
	}
	return c.window()
}

// hashed is a regressor without structure: some number from -1 to 1 for each cell.
func hashed(s *scores, i, j, salt int) float64 { return math.Sin(s.length[i][j] + float64(97*salt)) }

// dense fits a design by least squares on a matrix that holds every dummy, leaving
// out one cluster, or none when negative, and returns the coefficients of x.
func dense(t *testing.T, w *window, d design, leave int) []float64 {
	t.Helper()
	n := d.columns
	var rows [][]float64
	var y []float64
	dummies := map[[3]int]int{}
	for k := range w.sessions {
		s := &w.sessions[k]
		if s.cluster == leave {
			continue
		}
		for i := range s.y {
			for j := range s.y[i] {
				x := make([]float64, n)
				if v := s.y[i][j]; d.row(s, i, j, x) && !math.IsNaN(v) {
					for _, dummy := range [][3]int{{k, 0, j}, {k, 1, i}} {
						if dummy[1] == 0 && !d.candidates || dummy[1] == 1 && !d.reviewers {
							continue
						}
						if _, ok := dummies[dummy]; !ok {
							dummies[dummy] = n + len(dummies)
						}
						x = append(x, make([]float64, max(0, dummies[dummy]+1-len(x)))...)
						x[dummies[dummy]] = 1
					}
					rows, y = append(rows, x), append(y, v)
				}
			}
		}
	}
	m := mat.NewDense(len(rows), n+len(dummies), nil)
	for r, x := range rows {
		for k, v := range x {
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
// sums, gives what fits with all dummies in them give: all sessions, and each
// cluster left out in turn.
func TestFitsAreDenseFits(t *testing.T) {
	for _, absorbed := range []string{"candidates", "reviewers", "both"} {
		t.Run(absorbed, func(t *testing.T) {
			for seed := range uint64(6) {
				w := patchy(rand.New(rand.NewPCG(seed, 0)), 16)
				d := design{
					candidates: absorbed != "reviewers", reviewers: absorbed != "candidates", columns: 2,
					row: func(s *scores, i, j int, x []float64) bool {
						for k := range x {
							x[k] = hashed(s, i, j, k)
						}
						return s.length[i][j] > 20
					},
				}
				f := w.sums(d).fit(-1)
				want := dense(t, &w, d, -1)
				if diff := cmp.Diff(want, f.beta, cmpopts.EquateApprox(1e-7, 1e-9)); diff != "" {
					t.Errorf("coefficients (-want +got):\n%s", diff)
				}
				cv3 := make([]float64, 4)
				for c := range w.clusters {
					without := dense(t, &w, d, c)
					stat.AddOuter(cv3, []float64{without[0] - want[0], without[1] - want[1]})
				}
				g := float64(f.clusters)
				for k := range cv3 {
					cv3[k] *= (g - 1) / g
				}
				if diff := cmp.Diff(cv3, f.cv3, cmpopts.EquateApprox(1e-6, 1e-9)); diff != "" {
					t.Errorf("covariances (-want +got):\n%s", diff)
				}

			}
		})
	}
}

// TestSolosAreColumns holds that a solo stands beside the columns as if it were one
// of them, and the other solos did not exist.
func TestSolosAreColumns(t *testing.T) {
	for seed := range uint64(30) {
		w := patchy(rand.New(rand.NewPCG(seed, 1)), 16)
		enters := func(s *scores, i, j int) bool { return s.length[i][j] > 20 }
		solo := func(s *scores, i, j int) int {
			return slices.Index([]string{"rb", "sa", "tb"}, w.names[s.reviewers[i]]+w.names[s.candidates[j]])
		}
		d := design{
			candidates: true, reviewers: true, columns: 1, solos: 3,
			row: func(s *scores, i, j int, x []float64) bool {
				x[0] = hashed(s, i, j, 0)
				return enters(s, i, j)
			},
			solo: solo,
		}
		for k := range 3 {
			alone := design{
				candidates: true, reviewers: true, columns: 2,
				row: func(s *scores, i, j int, x []float64) bool {
					x[0] = hashed(s, i, j, 0)
					if solo(s, i, j) == k {
						x[1] = 1
					}
					return enters(s, i, j)
				},
			}
			want, got := w.sums(alone).fit(-1), w.sums(d).fit(k)
			if estimable, _ := got.estimable([]float64{0, 1}); !estimable {
				t.Errorf("seed %d: solo %d cannot be told", seed, k)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(fit{}), cmpopts.EquateApprox(1e-9, 1e-12)); diff != "" {
				t.Errorf("seed %d, solo %d (-want +got):\n%s", seed, k, diff)
			}
		}
	}
}

func TestEstimable(t *testing.T) {
	w := patchy(rand.New(rand.NewPCG(3, 0)), 20)
	d := design{candidates: true, reviewers: true, columns: 5, row: func(s *scores, i, j int, x []float64) bool {
		x[0] = hashed(s, i, j, 0)
		x[1], x[2] = hashed(s, i, j, 1), -2*hashed(s, i, j, 1)
		x[3] = float64(s.candidates[j]) // the candidates take it up
		if s.cluster == 4 {
			x[4] = hashed(s, i, j, 4)
		}
		return true
	}}
	f := w.sums(d).fit(-1)
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
		if estimable, robust := f.estimable(tc.c); estimable != tc.estimable || robust != tc.robust {
			t.Errorf("%s: estimable %v, robust %v", tc.name, estimable, robust)
		}
	}
	// What cannot be told apart changes nothing for the others.
	plain := w.sums(design{candidates: true, reviewers: true, columns: 3, row: func(s *scores, i, j int, x []float64) bool {
		x[0], x[1] = hashed(s, i, j, 0), hashed(s, i, j, 1)
		if s.cluster == 4 {
			x[2] = hashed(s, i, j, 4)
		}
		return true
	}}).fit(-1)
	want := plain.effect([]float64{1, 0, 0}, 20)
	if diff := cmp.Diff(want, f.effect([]float64{1, 0, 0, 0, 0}, 20), cmp.AllowUnexported(effect{}), approx); diff != "" {
		t.Errorf("beside columns that cannot be told apart (-want +got):\n%s", diff)
	}
}

// TestWaldOfOneContrast holds that the F statistic of one contrast is its t squared.
func TestWaldOfOneContrast(t *testing.T) {
	w := patchy(rand.New(rand.NewPCG(5, 0)), 30)
	f := w.sums(design{candidates: true, columns: 2, row: func(s *scores, i, j int, x []float64) bool {
		x[0], x[1] = hashed(s, i, j, 0), hashed(s, i, j, 1)
		return true
	}}).fit(-1)
	c := []float64{1, -0.5}
	e := f.effect(c, f.clusters)
	test, p := f.wald([][]float64{c})
	ratio := e.estimate / e.se
	if math.Abs(test.Value-ratio*ratio) > 1e-9*test.Value || math.Abs(p-stat.StudentP(ratio, e.df)) > 1e-9*p {
		t.Errorf("F = %v with p = %v, t = %v with p = %v", test, p, ratio, stat.StudentP(ratio, e.df))
	}
}

// TestCrossCheck compares with R: lm, and the standard errors of clubSandwich.
func TestCrossCheck(t *testing.T) {
	type coefficient struct {
		Estimate float64
		CR1      float64 `json:"se_CR1"`
		CR3      float64 `json:"se_CR3"`
	}
	var want struct {
		Planted map[string]json.RawMessage
	}
	readVectors(t, "e2e_planted.R_crosscheck.json", &want)
	metrics := byName(collect(unlimited, readRecords(t, "e2e_planted.jsonl")).Report().Metrics)
	compared := 0
	for model, names := range map[string]map[string]string{
		"self_family": {"own": "self_preference", "sf": "family_affinity"},
		"position":    {"pos1": "position_effect|0", "pos2": "position_effect|1", "pos3": "position_effect|2", "pos4": "position_effect|3"},
		"length":      {"l2": "length_points_per_doubling"},
		"harsh":       {"rev1": "harshness|anthropic/m2", "rev2": "harshness|google/m3", "rev3": "harshness|meta/m4", "rev4": "harshness|openai/m0"},
	} {
		var coefficients map[string]coefficient
		if err := json.Unmarshal(want.Planted[model], &coefficients); err != nil {
			t.Fatal(err)
		}
		for key, name := range names {
			m := metrics[name]
			// CV3 has the factor (G-1)/G that CR3 has not.
			got := coefficient{*m.PointEstimate, *m.StandardErrorCR1, *m.StandardError * math.Sqrt(40./39)}
			if diff := cmp.Diff(coefficients[key], got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			compared++
		}
	}
	if compared != 11 {
		t.Errorf("%d coefficients compared", compared)
	}
}

func TestShapeWeights(t *testing.T) {
	third := 1. / 3
	for _, tc := range []struct {
		shape string
		size  int
		want  []float64
	}{
		{"primacy", 2, []float64{1, -1}},
		{"primacy", 4, []float64{1, -third, -third, -third}},
		{"recency", 4, []float64{-third, -third, -third, 1}},
		{"ends_minus_middle", 2, nil},
		{"ends_minus_middle", 4, []float64{0.5, -0.5, -0.5, 0.5}},
		{"linear_per_step", 2, []float64{-1, 1}},
		{"linear_per_step", 4, []float64{-0.3, -0.1, 0.1, 0.3}},
	} {
		if diff := cmp.Diff(tc.want, shapeWeights(tc.shape, tc.size), approx); diff != "" {
			t.Errorf("%s of %d (-want +got):\n%s", tc.shape, tc.size, diff)
		}
	}
	if got := contrast(5, 1, []float64{0.5, -0.5, -0.5, 0.5}); !slices.Equal(got, []float64{0, 0, -1, -1, 0}) {
		t.Errorf("as regressors of mean zero: %v", got)
	}
}
