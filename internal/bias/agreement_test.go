package bias

import (
	"math"
	"slices"
	"testing"
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
			if w, ok := kendallW(y); math.Abs(w-v.W) > vectors.Tol*v.W || !ok {
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
		{"own answers hidden, agreed", [][]float64{{nan, 5, 3}, {7, nan, 3}, {7, 5, nan}}, 1},
		// Of three reviewers of pairs, each candidate is put before one other and
		// behind the other one.
		{"own answers hidden, in a circle", [][]float64{{nan, 5, 3}, {3, nan, 7}, {7, 5, nan}}, 0},
		{"one score is missing", [][]float64{{8, 5, 3}, {7, 5, nan}}, 1},
		{"a silent reviewer", [][]float64{{8, 5, 3}, {7, 5, 2}, {nan, nan, nan}}, 1},
		// Deviations 3, 0, -1, -2 from the means of the comparisons; 24 of 126 are ties.
		{"ties and missing scores", [][]float64{{8, 5, 5, 5}, {7, 5, 3, 2}, {8, 4, nan, nan}}, 3 * 14. / 60 * 126 / 102},
		{"ties weigh more on a short row", [][]float64{{7, 3, 3}, {nan, 7, 7}, {nan, 7, 7}, {nan, 3, 3}}, 1},
		{"one reviewer", [][]float64{{8, 5, 3}, {7, nan, nan}}, nan},
		{"nobody compares two", [][]float64{{8, 5, nan}, {nan, 5, 3}}, nan},
		{"all ties", [][]float64{{8, 8}, {3, 3}}, nan},
		{"none", nil, nan},
	} {
		w, ok := kendallW(tc.y)
		if ok != !math.IsNaN(tc.want) || ok && math.Abs(w-tc.want) > 1e-12 {
			t.Errorf("%s: W = %v, %t, want %v", tc.name, w, ok, tc.want)
		}
		slices.Reverse(tc.y)
		if again, _ := kendallW(tc.y); math.Abs(again-w) > 1e-12 {
			t.Errorf("%s: W = %v and, in another order, %v", tc.name, w, again)
		}
	}
}
