package council

import (
	"cmp"
	"math"
)

// Usage is what calls consumed. A figure is null when no call that consumed anything
// reported it. Partial says that calls without a report are missing from a figure, which
// is then the least that was consumed.
type Usage struct {
	InputTokens  *int64 `json:"input_tokens"`
	OutputTokens *int64 `json:"output_tokens"`
	// ReasoningTokens are those of the output tokens that the model took to think: of the calls that report them, because many
	// providers never do. Partial does not speak of them.
	ReasoningTokens *int64   `json:"reasoning_tokens"`
	CostUSD         *float64 `json:"cost_usd"`
	Partial         bool     `json:"partial"`
}

// Larger figures for one request are not believed. The largest models read some ten
// million tokens, at some hundred dollars a million.
const (
	maxTokens  = 100_000_000
	maxCostUSD = 10_000
)

// Believable returns the usage of one request without its impossible figures, and the
// number of these: below zero, not a number, or above the limits.
func (u Usage) Believable() (believed Usage, implausible int) {
	for _, n := range []**int64{&u.InputTokens, &u.OutputTokens, &u.ReasoningTokens} {
		if *n != nil && !BelievableTokens(**n) {
			*n = nil
			implausible++
		}
	}
	if u.CostUSD != nil && !(*u.CostUSD >= 0 && *u.CostUSD <= maxCostUSD) { // also refuses NaN
		u.CostUSD = nil
		implausible++
	}
	return u, implausible
}

// BelievableTokens reports whether one request can have consumed so many tokens of a kind.
func BelievableTokens(n int64) bool { return n >= 0 && n <= maxTokens }

// AddUSD returns the sum of two amounts in US dollars, in whole picodollars: 0.1 and 0.2 are 0.3. It is
// exact below 8,192 dollars, where a float64 still has twelve decimals, and saturates.
func AddUSD(a, b float64) float64 {
	const exactBelow, dollar = 8192, 1e12
	if sum := a + b; !(sum <= exactBelow) { // also NaN; a sum just below is rounded up to the bound
		return min(sum, math.MaxFloat64)
	}
	// The fraction alone is multiplied: of a whole amount the product would lose the last digits.
	picodollars := func(usd float64) int64 {
		whole, fraction := math.Modf(usd)
		return int64(whole)*dollar + int64(math.Round(fraction*dollar))
	}
	return float64(picodollars(a)+picodollars(b)) / dollar
}

// Plus returns the sum of u and v, or the largest number where the sum would be larger.
func (u Usage) Plus(v Usage) Usage {
	sum := NoUsage()
	sum.Partial = u.Partial || v.Partial
	sum.InputTokens = plus(sum.InputTokens, u.InputTokens, v.InputTokens, &sum.Partial, addTokens)
	sum.OutputTokens = plus(sum.OutputTokens, u.OutputTokens, v.OutputTokens, &sum.Partial, addTokens)
	sum.ReasoningTokens = cmp.Or(u.ReasoningTokens, v.ReasoningTokens)
	if u.ReasoningTokens != nil && v.ReasoningTokens != nil {
		sum.ReasoningTokens = new(addTokens(*u.ReasoningTokens, *v.ReasoningTokens))
	}
	sum.CostUSD = plus(sum.CostUSD, u.CostUSD, v.CostUSD, &sum.Partial, AddUSD)
	return sum
}

// Tokens returns the known tokens, input and output.
func (u Usage) Tokens() int64 {
	known := plus(new(int64), u.InputTokens, u.OutputTokens, new(bool), addTokens)
	return *cmp.Or(known, new(int64))
}

// NoUsage returns the usage of no call at all, which is known to be zero.
func NoUsage() Usage {
	var figures struct { // one allocation in place of three: sums are made for each call
		input, output int64
		cost          float64
	}
	return Usage{InputTokens: &figures.input, OutputTokens: &figures.output, CostUSD: &figures.cost}
}

// None reports whether it is known that nothing was consumed.
func (u Usage) None() bool {
	return !u.Partial && u.InputTokens != nil && *u.InputTokens == 0 && u.OutputTokens != nil && *u.OutputTokens == 0 &&
		u.CostUSD != nil && *u.CostUSD == 0
}

// plus adds two figures in sum, either of which may be unknown. A known figure and an unknown
// one give a partial sum; a known zero and an unknown one give an unknown sum.
func plus[T int64 | float64](sum, a, b *T, partial *bool, add func(T, T) T) *T {
	if a != nil && b != nil {
		*sum = add(*a, *b)
		return sum
	}
	known := cmp.Or(a, b)
	if known == nil || *known == 0 {
		return nil
	}
	*partial = true
	return known
}

func addTokens(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
