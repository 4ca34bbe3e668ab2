// Package stat holds the arithmetic of statistics: summaries, distributions, correlation and agreement, adjustment
// for many tests, e values, resampling, two-way tables, the graded-response model, and least squares with errors
// that are robust to clusters. It is the only package that imports gonum.
//
// The package does not know sessions and councils. Its callers decide what a figure means, and how many values it
// needs to be worth showing.
package stat

import (
	"math"
	"slices"

	gonum "gonum.org/v1/gonum/stat"
)

// Estimate is a figure with its 95 % interval. Undefined values are null.
type Estimate struct {
	Value *float64 `json:"point_estimate"`
	Lower *float64 `json:"ci_lower"`
	Upper *float64 `json:"ci_upper"`
}

// Mean returns the mean of at least one value.
func Mean(x []float64) float64 { return gonum.Mean(x, nil) }

// MeanStdDev returns the mean and the standard deviation, with the divisor n-1, of at least two values.
func MeanStdDev(x []float64) (mean, sd float64) { return gonum.MeanStdDev(x, nil) }

// StdDev returns the standard deviation, with the divisor n-1, of at least two values.
func StdDev(x []float64) float64 { return gonum.StdDev(x, nil) }

// Variance returns the variance, with the divisor n-1, of at least two values.
func Variance(x []float64) float64 { return gonum.Variance(x, nil) }

// PopVariance returns the variance, with the divisor n, of at least one value.
func PopVariance(x []float64) float64 { return gonum.PopVariance(x, nil) }

// Median returns the median of at least one value.
func Median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// quantile returns a quantile of sorted values, at least one, by linear interpolation (type 7 of Hyndman and Fan
// 1996).
func quantile(sorted []float64, level float64) float64 {
	at := level * float64(len(sorted)-1)
	k := int(at)
	if k == len(sorted)-1 {
		return sorted[k]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}

// PlaceOf returns the place, from 0, of the value x[k] if the greatest value is first. It is the number of greater
// values, plus half the number of other equal values. NaN values do not count.
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

// Constant reports whether the values, at least one, differ by no more than rounding errors. Such errors occur, for
// example, in means of the same numbers in another order.
func Constant(x []float64) bool {
	low := slices.Min(x)
	high := slices.Max(x)
	return high-low <= 1e-12*max(math.Abs(low), math.Abs(high))
}

// Round removes the rounding errors of additions, so that equal figures compare as equal.
func Round(x float64) float64 { return math.Round(x*1e12) / 1e12 }

// Studentized returns the deviations of at least three values, not all equal, from their mean. Each is divided by
// its standard error without that value (externally studentised; Cook and Weisberg, Residuals and Influence in
// Regression, 1982).
func Studentized(x []float64) []float64 {
	n := float64(len(x))
	mean, variance := gonum.MeanVariance(x, nil)
	t := make([]float64, len(x))
	for i, v := range x {
		d := v - mean
		// The other values may be equal. The floor keeps the quotient finite.
		without := max(1e-12*variance, (n-1)*variance-d*d*n/(n-1))
		t[i] = d / math.Sqrt(without/(n-2)*(1-1/n))
	}
	return t
}
