// Package stat holds the arithmetic of statistics: summaries, distributions,
// correlation and agreement, adjustment for many tests, e values, resampling, the fit of
// tables, and least squares with errors that are robust to clusters. It is the only
// package that imports gonum.
//
// The package knows nothing of sessions, reviewers and scores. What a figure means, and
// from how many values on it is worth showing, is left to its callers.
package stat

import (
	"math"
	"slices"

	gonum "gonum.org/v1/gonum/stat"
)

// Estimate is a figure with its 95 % interval. What is undefined is null.
type Estimate struct {
	Value *float64 `json:"point_estimate"`
	Lower *float64 `json:"ci_lower"`
	Upper *float64 `json:"ci_upper"`
}

// Mean returns the mean of at least one value.
func Mean(x []float64) float64 { return gonum.Mean(x, nil) }

// MeanStdDev returns the mean and the standard deviation, with n-1, of at least two
// values.
func MeanStdDev(x []float64) (mean, sd float64) { return gonum.MeanStdDev(x, nil) }

// StdDev returns the standard deviation, with n-1, of at least two values.
func StdDev(x []float64) float64 { return gonum.StdDev(x, nil) }

// Variance returns the variance, with n-1, of at least two values.
func Variance(x []float64) float64 { return gonum.Variance(x, nil) }

// PopVariance returns the variance, with n, of at least one value.
func PopVariance(x []float64) float64 { return gonum.PopVariance(x, nil) }

// Median returns the median of at least one value.
func Median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// quantile returns the quantile of sorted values, at least one, by linear
// interpolation between them (type 7 of Hyndman and Fan 1996).
func quantile(sorted []float64, level float64) float64 {
	at := level * float64(len(sorted)-1)
	k := int(at)
	if k == len(sorted)-1 {
		return sorted[k]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}

// PlaceOf returns the place of value k from the greatest down, from 0: how many values
// are greater, and half of the others that are as great. NaN is no value.
func PlaceOf(x []float64, k int) float64 {
	greater := 0.
	equal := -1.
	for _, v := range x {
		if v > x[k] {
			greater++
		}
		if v == x[k] {
			equal++
		}
	}
	return greater + equal/2
}

// Constant reports whether the values, of which there is at least one, differ by
// no more than rounding: means of the same numbers in another order do.
func Constant(x []float64) bool {
	low := slices.Min(x)
	high := slices.Max(x)
	return high-low <= 1e-12*max(math.Abs(low), math.Abs(high))
}

// Round removes the rounding errors of additions, so that equal figures are equal.
func Round(x float64) float64 { return math.Round(x*1e12) / 1e12 }

// Studentized returns the deviations of at least three values, not all equal, from
// their mean, each over its standard error without that value (externally
// studentised; Cook and Weisberg, Residuals and Influence in Regression, 1982).
func Studentized(x []float64) []float64 {
	n := float64(len(x))
	mean, variance := gonum.MeanVariance(x, nil)
	t := make([]float64, len(x))
	for i, v := range x {
		d := v - mean
		// The others may be equal; the floor keeps the quotient finite.
		without := max(1e-12*variance, (n-1)*variance-d*d*n/(n-1))
		t[i] = d / math.Sqrt(without/(n-2)*(1-1/n))
	}
	return t
}
