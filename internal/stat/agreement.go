package stat

import (
	"cmp"
	"math"

	gonum "gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// perfect is the least |r| that counts as a correlation of 1. A smaller difference from 1 is rounding error.
const perfect = 1 - 1e-12

// Pearson returns Pearson's r of the pairs (x, y). It returns false for fewer than three pairs, and if x or y does
// not vary.
func Pearson(x, y []float64) (float64, bool) {
	if len(x) < 3 || Constant(x) || Constant(y) {
		return 0, false
	}
	return max(-1, min(1, gonum.Correlation(x, y, nil))), true
}

// PearsonP returns the two-sided p of Pearson's r over n pairs, for the hypothesis that x and y are independent. n
// must be above 2. t = r sqrt((n-2)/(1-r^2)) follows Student's t with n-2 degrees of freedom. For a perfect r, p is
// 0.
func PearsonP(r float64, n int) float64 {
	if math.Abs(r) >= perfect {
		return 0
	}
	df := float64(n - 2)
	return StudentP(r*math.Sqrt(df/(1-r*r)), df)
}

// FisherInterval returns the 95 % interval of Pearson's r over n independent pairs, n above 3, by Fisher's z
// transformation. It returns false for a perfect r, because the transformation is then infinite.
func FisherInterval(r float64, n int) (low, high float64, ok bool) {
	if math.Abs(r) >= perfect {
		return 0, 0, false
	}
	half := NormalQuantile(0.975) / math.Sqrt(float64(n-3))
	return math.Tanh(math.Atanh(r) - half), math.Tanh(math.Atanh(r) + half), true
}

// KendallTau returns Kendall's tau-b of the pairs (x, y),
//
//	(concordant - discordant) / sqrt((pairs - tied in x) (pairs - tied in y)),
//
// (Kendall 1945). It returns false if x or y does not vary.
func KendallTau(x, y []float64) (float64, bool) {
	balance := 0
	apartX := 0
	apartY := 0
	for i := range x {
		for j := range i {
			p := cmp.Compare(x[i], x[j])
			q := cmp.Compare(y[i], y[j])
			balance += p * q
			apartX += p * p
			apartY += q * q
		}
	}
	if apartX == 0 || apartY == 0 {
		return 0, false
	}
	return float64(balance) / math.Sqrt(float64(apartX)*float64(apartY)), true
}

// KendallW returns how far raters agree on the order of items, 0 to 1. Each rater is a row and each item a column.
// W is Kendall's coefficient of concordance with the correction for ties (Kendall and Babington Smith 1939),
//
//	W = 12 S / (m^2 (n^3-n) - m T),
//
// for m raters of n items. S is the sum of squared deviations of the items' rank sums from their mean. T is the sum
// of t^3-t over all groups of t tied values.
//
// An item's deviation is half a sum over the other items. Each term is the number of raters that put the item before
// the other item, minus the number that put it after the other item. If ratings are missing (NaN), each term is
// divided by the number of raters that compare the two items (Durbin 1951). The correction is then T divided by the
// sum of k^3-k over the raters, where k is the number of items that a rater rates. W is limited to 1, because ties
// weigh more in a row with few items and could make W larger.
//
// W is above 0 even if raters order the items by chance. If all raters order all items by chance, the mean of W is
// 1/m. If each of n raters leaves out one of n items, a different one each, the mean of W is n/((n-2)(n+1)).
//
// KendallW returns false if fewer than two raters rate both items of some pair, because one rater only agrees with
// itself. It also returns false if every rater rates all items the same.
func KendallW(y [][]float64) (float64, bool) {
	full := 0
	ties := 0
	for _, row := range y {
		rated := 0
		for _, v := range row {
			same := 0 // counts items with this rating
			for _, other := range row {
				if v == other {
					same++
				}
			}
			// Each of t tied values counts t^2-1, so together they count t^3-t.
			if same > 0 {
				rated++
				ties += same*same - 1
			}
		}
		full += rated*rated*rated - rated
	}
	if ties == full {
		return 0, false
	}
	n := len(y[0])
	squares := 0.0
	for j := range n {
		deviation := 0.0
		for k := range n {
			if k == j {
				continue
			}
			before := 0
			compared := 0
			for _, row := range y {
				if !math.IsNaN(row[j]) && !math.IsNaN(row[k]) {
					before += cmp.Compare(row[j], row[k])
					compared++
				}
			}
			if compared < 2 {
				return 0, false
			}
			deviation += float64(before) / float64(compared)
		}
		squares += deviation * deviation
	}
	return min(1, 3*squares/float64(n*n*n-n)*float64(full)/float64(full-ties)), true
}

// ICC returns the intraclass correlation ICC(1) of repeated values, and the standard deviation within items. Each
// item must have at least two values. Both figures come from the one-way analysis of variance:
//
//	ICC(1) = (MSB - MSW) / (MSB + (k-1) MSW),
//
// k is the number of values of each item. If the items have different numbers n of values, k is (N - sum n^2/N) /
// (items - 1), where N is the number of all values.
//
// The interval of ICC(1) is the F interval of McGraw and Wong (1996). It is approximate if the items have different
// numbers of values (Searle, Linear Models, 1971). The interval of the deviation is the chi-square interval. ICC(1)
// is undefined for fewer than two items, and if all values are equal. Both intervals are undefined if each item has
// equal values.
func ICC(items [][]float64) (icc, withinSD Estimate) {
	n := 0.0
	sum := 0.0
	squares := 0.0
	for _, item := range items {
		n += float64(len(item))
		squares += float64(len(item) * len(item))
		for _, y := range item {
			sum += y
		}
	}
	if len(items) == 0 {
		return icc, withinSD
	}
	between := 0.0
	within := 0.0
	for _, item := range items {
		mean := 0.0
		for _, y := range item {
			mean += y / float64(len(item))
		}
		between += float64(len(item)) * (mean - sum/n) * (mean - sum/n)
		for _, y := range item {
			within += (y - mean) * (y - mean)
		}
	}
	const rounding = 1e-18 // a sum of squares below this share of n is 0
	dfB := float64(len(items) - 1)
	dfW := n - float64(len(items))
	if within < rounding*n {
		within = 0
	}
	withinSD.Value = new(math.Sqrt(within / dfW))
	if within > 0 {
		chi := distuv.ChiSquared{K: dfW}
		withinSD.Lower = new(math.Sqrt(within / chi.Quantile(0.975)))
		withinSD.Upper = new(math.Sqrt(within / chi.Quantile(0.025)))
	}
	if dfB == 0 || within+between < rounding*n {
		return icc, withinSD
	}
	k := (n - squares/n) / dfB
	of := func(msb, msw float64) *float64 { return new((msb - msw) / (msb + (k-1)*msw)) }
	msb := between / dfB
	msw := within / dfW
	icc.Value = of(msb, msw)
	if within > 0 {
		icc.Lower = of(msb, msw*distuv.F{D1: dfB, D2: dfW}.Quantile(0.975))
		icc.Upper = of(msb*distuv.F{D1: dfW, D2: dfB}.Quantile(0.975), msw)
	}
	return icc, withinSD
}
