package stat

import (
	"cmp"
	"math"
	"slices"
)

// EBH returns which hypotheses of a family are rejected at a false discovery rate of alpha. Each has an e value of
// 0 or more. EBH rejects the k hypotheses with the greatest e values. k is the largest number for which the k-th
// greatest e value is at least K/(alpha k), where K is the number of hypotheses. The e values need not be
// independent (Wang and Ramdas 2022).
func EBH(e []float64, alpha float64) []bool {
	order := make([]int, len(e)) // the greatest first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(e[b], e[a]) })
	k := len(e)
	for k > 0 && e[order[k-1]] < float64(len(e))/(alpha*float64(k)) {
		k--
	}
	stand := make([]bool, len(e))
	for _, i := range order[:k] {
		stand[i] = true
	}
	return stand
}

// Mixture is the normal mixture martingale (Robbins 1970). It gives an e value for the hypothesis that an estimate is
// 0, and an interval of the estimate. Both stay valid if they are computed again after each observation. They are
// asymptotic, so the estimate from n observations must be about normal (Waudby-Smith, Arbour, Sinha, Kennedy and
// Ramdas 2024, theorem 2.2). The value of a Mixture is the variance of the mixture divided by the variance of one
// observation.
type Mixture float64

// TunedMixture returns the best mixture for about n observations. At that number, its 1-alpha interval is narrower
// than the interval of any other mixture.
func TunedMixture(alpha, n float64) Mixture {
	twice := -2 * math.Log(alpha)
	return Mixture((twice + math.Log(1+twice)) / n)
}

// LogE returns the natural logarithm of the e value of an estimate from n observations that is z standard errors
// from 0.
func (m Mixture) LogE(n, z float64) float64 {
	r := n * float64(m)
	return (r*z*z/(1+r) - math.Log1p(r)) / 2
}

// Factor returns half the width, in standard errors, of the 1-alpha interval of an estimate from n observations.
// The interval excludes 0 if the e value is above 1/alpha.
func (m Mixture) Factor(n, alpha float64) float64 {
	r := n * float64(m)
	return math.Sqrt((1 + 1/r) * math.Log((1+r)/(alpha*alpha)))
}

// Betting gives the 1-alpha interval of the mean of values from 0 to 1, in the order in which they came. The interval
// is valid for any distribution, and stays valid if it is computed again after each value. It is the hedged capital
// with predictable bets, with theta and c of one half (Waudby-Smith and Ramdas 2024, section 4.2).
type Betting struct {
	x, bets []float64 // the bets before they are limited
	alpha   float64
}

// NewBetting returns the bets on the values x.
func NewBetting(x []float64, alpha float64) Betting {
	b := Betting{x: x, bets: make([]float64, len(x)), alpha: alpha}
	// The sum of the values, and of one added value of 0.5 before the first.
	sum := 0.5
	// The sum of squared deviations, which begins with 0.25 for the added value.
	squares := 0.25
	for i, v := range x {
		t := float64(i + 1)
		variance := squares / t
		b.bets[i] = math.Sqrt(2 * math.Log(2/alpha) / (variance * t * math.Log1p(t)))
		sum += v
		mean := sum / (t + 1)
		squares += (v - mean) * (v - mean)
	}
	return b
}

// logCapital returns the logarithms of two capitals. Each began as 1. The first has been bet on a mean above m, and
// the second on a mean below m.
func (b Betting) logCapital(m float64) (above, below float64) {
	// A bet is limited so that it loses at most this share of the capital.
	const c = 0.5
	for i, v := range b.x {
		above += math.Log1p(min(b.bets[i], c/m) * (v - m))
		below += math.Log1p(-min(b.bets[i], c/(1-m)) * (v - m))
	}
	return above, below
}

// LogE returns the natural logarithm of the e value for the hypothesis that the mean is m, between 0 and 1. The e
// value is the mean of both capitals.
func (b Betting) LogE(m float64) float64 {
	above, below := b.logCapital(m)
	return logSum(above, below) - math.Ln2
}

// Interval returns the 1-alpha interval of the mean. A mean m is inside if both capitals of the bets against m are
// below 2/alpha.
func (b Betting) Interval() (low, high float64) {
	most := math.Log(2 / b.alpha)
	low = edge(func(m float64) bool { above, _ := b.logCapital(m); return above < most })
	high = 1 - edge(func(m float64) bool { _, below := b.logCapital(1 - m); return below < most })
	return low, high
}

// edge returns the number between 0 and 1 at which a condition becomes true. The argument holds reports whether the
// condition is true for a number. It must return false below that number and true above it.
func edge(holds func(float64) bool) float64 {
	const precision = 1e-12
	low := 0.
	high := 1.
	if holds(low) {
		return low
	}
	for high-low > precision {
		if middle := (low + high) / 2; holds(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// LogMean returns the logarithm of the mean of at least one number, given their logarithms.
func LogMean(logs []float64) float64 {
	sum := math.Inf(-1)
	for _, v := range logs {
		sum = logSum(sum, v)
	}
	return sum - math.Log(float64(len(logs)))
}

// logSum returns the logarithm of the sum of two numbers, given their logarithms.
func logSum(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	return a + math.Log1p(math.Exp(b-a))
}
