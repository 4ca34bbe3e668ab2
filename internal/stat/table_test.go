package stat

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFitTwoWay(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name   string
		y      [][]float64
		effect []float64
		df     float64
	}{
		{"complete", [][]float64{{3, 7, 5}, {4, 8, 6}}, []float64{-0.5, 0.5}, 2},
		{"one column in common", [][]float64{{nan, 7, 5}, {4, nan, 6}}, []float64{-0.5, 0.5}, 0},
		{"linked by a third", [][]float64{{3, nan}, {4, 5}, {nan, 8}}, []float64{-5. / 3, -2. / 3, 7. / 3}, 0},
		{"in two groups", [][]float64{{3, nan}, {4, nan}, {nan, 8}, {nan, 2}}, []float64{nan, nan, nan, nan}, 0},
		{"no column in common", [][]float64{{3, nan}, {nan, 8}}, []float64{nan, nan}, 0},
		{"a row without values", [][]float64{{3, 7}, {nan, nan}, {4, 8}}, []float64{-0.5, nan, 0.5}, 1},
		{"one row", [][]float64{{3, 7}}, []float64{nan}, 0},
		{"none", nil, []float64{}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fit := FitTwoWay(tc.y)
			if diff := cmp.Diff(tc.effect, fit.Effect, approx, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if fit.DF != tc.df {
				t.Errorf("%v degrees of freedom, want %v", fit.DF, tc.df)
			}
			if fit.Squares > 1e-24 { // all cases are additive
				t.Errorf("sum of squares %v", fit.Squares)
			}
		})
	}
}
