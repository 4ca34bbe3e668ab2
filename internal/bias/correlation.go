package bias

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// perfect is the |r| from which a correlation is taken for 1: the few last
// digits are rounding.
const perfect = 1 - 1e-12

// pearson returns Pearson's r of the pairs (x, y). It is undefined, and false
// returned, below three pairs and where x or y does not vary.
func pearson(x, y []float64) (float64, bool) {
	if len(x) < 3 || constant(x) || constant(y) {
		return 0, false
	}
	return max(-1, min(1, stat.Correlation(x, y, nil))), true
}

// constant reports whether the values, of which there is at least one, differ by
// no more than rounding: means of the same scores in another order do.
func constant(x []float64) bool {
	low, high := slices.Min(x), slices.Max(x)
	return high-low <= 1e-12*max(math.Abs(low), math.Abs(high))
}

// pearsonP returns the two-sided p of Pearson's r over n pairs, n above 2, under
// independence: t = r sqrt((n-2)/(1-r^2)) follows Student's t with n-2 degrees of
// freedom. A perfect r has p = 0.
func pearsonP(r float64, n int) float64 {
	if math.Abs(r) >= perfect {
		return 0
	}
	df := float64(n - 2)
	return studentP(r*math.Sqrt(df/(1-r*r)), df)
}

// studentP returns the two-sided tail probability of Student's t.
func studentP(t, df float64) float64 {
	return 2 * distuv.StudentsT{Sigma: 1, Nu: df}.Survival(math.Abs(t))
}

// fisherInterval returns the 95 % interval of Pearson's r over n independent
// pairs, n above 3, by Fisher's z transformation. At a perfect r the
// transformation is infinite, and false is returned.
func fisherInterval(r float64, n int) (low, high float64, ok bool) {
	if math.Abs(r) >= perfect {
		return 0, 0, false
	}
	half := distuv.UnitNormal.Quantile(0.975) / math.Sqrt(float64(n-3))
	return math.Tanh(math.Atanh(r) - half), math.Tanh(math.Atanh(r) + half), true
}

// median returns the median of at least one value.
func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}
