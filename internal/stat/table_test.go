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

func TestMeanTwoWay(t *testing.T) {
	nan := math.NaN()
	a := TwoWay{
		Effect: []float64{1, nan, nan}, Leverage: []float64{0.1, nan, nan}, Low: []float64{0, nan, nan},
		High: []float64{2, nan, nan},
	}
	b := TwoWay{
		Effect: []float64{3, -3, nan}, Leverage: []float64{0.3, 0.5, nan}, Low: []float64{2, -4, nan}, High: []float64{4, -2, nan},
		Squares: 8, DF: 2,
	}
	want := TwoWay{
		Effect: []float64{2, -3, nan}, Leverage: []float64{0.2, 0.5, nan}, Low: []float64{1, -4, nan}, High: []float64{3, -2, nan},
		Squares: 8, DF: 2,
	}
	if diff := cmp.Diff(want, MeanTwoWay([]TwoWay{a, b}), approx, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if mean := MeanTwoWay([]TwoWay{a, a}); mean.Squares != 0 || mean.DF != 0 {
		t.Errorf("without residuals: squares %v on %v degrees of freedom", mean.Squares, mean.DF)
	}
}
