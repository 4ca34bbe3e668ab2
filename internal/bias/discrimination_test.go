package bias

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/councild/councild/internal/stat"
)

func TestMinres(t *testing.T) {
	loadings := []float64{0.7, 1.2, 1, 0, 1.1}
	c, weight := stat.Matrix(5, 5, 0.), stat.Matrix(5, 5, 0.)
	for i := range c {
		for k := range i {
			c[i][k], weight[i][k] = loadings[i]*loadings[k], float64(1+i+k)
			c[k][i], weight[k][i] = c[i][k], weight[i][k]
		}
	}
	c[0][1], weight[0][1] = 99, 0 // two that never met
	c[1][0], weight[1][0] = 99, 0
	if diff := cmp.Diff(loadings, minres(c, weight, nil), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("loadings (-want +got):\n%s", diff)
	}
	// The fourth ranks the answers the wrong way round.
	for k := range c {
		if k != 3 {
			c[3][k], c[k][3] = -loadings[k]/2, -loadings[k]/2
		}
	}
	if b := minres(c, weight, nil); b[3] != 0 {
		t.Errorf("a loading below 0: %v", b)
	}
	if b := minres(stat.Matrix(3, 3, -0.1), stat.Matrix(3, 3, 1.), nil); !slices.Equal(b, []float64{0, 0, 0}) {
		t.Errorf("loadings of reviewers that do not agree: %v", b)
	}
}

func TestScale(t *testing.T) {
	for _, tc := range []struct {
		name    string
		b, want []float64
		counts  []bool
	}{
		{"all", []float64{1, 2, 3}, []float64{0.5, 1, 1.5}, []bool{true, true, true}},
		{"one is far below", []float64{0.1, 2, 2}, []float64{0.05, 1, 1}, []bool{false, true, true}},
		{
			"one is below once another is gone",
			[]float64{0, 0.3, 1, 1, 1},
			[]float64{0, 0.3, 1, 1, 1},
			[]bool{false, false, true, true, true},
		},
		{"none", []float64{0, 0, 0}, []float64{0, 0, 0}, []bool{false, false, false}},
	} {
		counts := scale(tc.b, nil)
		if diff := cmp.Diff(tc.want, tc.b, approx); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if !slices.Equal(counts, tc.counts) {
			t.Errorf("%s: %v count", tc.name, counts)
		}
	}
}

// TestDistinguishable holds that discriminations are compared only where the reviewers'
// meetings tell them apart.
func TestDistinguishable(t *testing.T) {
	for _, tc := range []struct {
		name  string
		links [][]int
		out   int // one that does not count, -1 for none
		want  [][]int
	}{
		{"nobody meets", [][]int{nil, nil, nil}, -1, nil},
		{"two", [][]int{{1}, {0}}, -1, nil},
		{"three in a chain", [][]int{{1}, {0, 2}, {1}}, -1, nil},
		{"three in a ring", [][]int{{1, 2}, {0, 2}, {0, 1}}, -1, [][]int{{0, 1, 2}}},
		{"four in a ring", [][]int{{1, 3}, {0, 2}, {1, 3}, {0, 2}}, -1, nil},
		{"three of them left in a chain", [][]int{{1, 2, 3}, {0, 2, 3}, {0, 1}, {0, 1}}, 0, nil},
		{"two rings", [][]int{{2, 4}, {3, 5}, {0, 4}, {1, 5}, {0, 2}, {1, 3}}, -1, [][]int{{0, 2, 4}, {1, 3, 5}}},
	} {
		counts := slices.Repeat([]bool{true}, len(tc.links))
		if tc.out >= 0 {
			counts[tc.out] = false
		}
		if diff := cmp.Diff(tc.want, distinguishable(tc.links, counts)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestAdjustedScoresLoseTheScale holds that scores which differ between reviewers in
// level and spread alone, all own answers hidden and some cells missing, are
// adjusted to scores that differ in level alone.
func TestAdjustedScoresLoseTheScale(t *testing.T) {
	b, level, worth := []float64{0.6, 1.4, 0.9, 1.1, 0}, []float64{5, 6, 4, 7, 7}, []float64{-1, 0.5, 2, -0.3, 1}
	s := scores{
		reviewers: []int{0, 1, 2, 3, 4}, candidates: []int{0, 1, 2, 3, 4}, y: stat.Matrix(5, 5, math.NaN()),
		own: stat.Matrix(5, 5, false),
	}
	for i := range b {
		for j := range worth {
			s.own[i][j] = i == j
			if i != j && (i != 0 || j != 3) {
				s.y[i][j] = level[i] + b[i]*worth[j]
			}
		}
	}
	var solver worthSolver
	adjusted := func() [][]float64 {
		judged := s.others()
		for j := range judged[4] {
			judged[4][j] = math.NaN() // it has no discrimination
		}
		return withoutSpread(solver.worths(s.y, judged, b), s.y, b)
	}
	to := adjusted()
	for i := range b {
		for j := range worth {
			if math.IsNaN(s.y[i][j]) || b[i] == 0 {
				if !math.IsNaN(to[i][j]) {
					t.Errorf("a score of %d for %d that does not enter: %v", i, j, to[i][j])
				}
				continue
			}
			for k := range worth {
				if got, want := to[i][j]-to[i][k], worth[j]-worth[k]; !math.IsNaN(to[i][k]) && math.Abs(got-want) > 1e-6 {
					t.Errorf("reviewer %d puts %d above %d by %v, want %v", i, j, k, got, want)
				}
			}
		}
	}
	// With a single reviewer of an answer nobody else tells its worth.
	for i := range s.y {
		if i != 1 {
			s.y[i][2] = math.NaN()
		}
	}
	to = adjusted()
	if !math.IsNaN(to[1][2]) || math.IsNaN(to[1][0]) {
		t.Errorf("adjusted without others: %v", to[1])
	}
}
