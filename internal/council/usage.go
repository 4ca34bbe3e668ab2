package council

import (
	"cmp"
	"math"
)

// Usage says how much calls consumed. A figure is null if it is unknown for every call that consumed something. Partial
// says that a figure is unknown for some of the calls. The sum of the known figures is then a lower bound.
type Usage struct {
	InputTokens  *int64 `json:"input_tokens"`
	OutputTokens *int64 `json:"output_tokens"`
	// CachedInputTokens are the input tokens that the provider had in a cache. It is nil if no provider reports any.
	CachedInputTokens *int64 `json:"cached_input_tokens,omitempty"`
	// ReasoningTokens are the output tokens that the model used for thinking. The sum includes only calls that report
	// these tokens. Partial does not cover it, because many providers never report these tokens.
	ReasoningTokens *int64   `json:"reasoning_tokens"`
	CostUSD         *float64 `json:"cost_usd"`
	Partial         bool     `json:"partial"`
}

// These are the largest figures for one request that count as possible. The largest models read about ten million
// tokens, and cost about a hundred dollars for a million tokens.
const (
	maxTokens  = 100_000_000
	maxCostUSD = 10_000
)

// Believable returns the usage of one request without its impossible figures, and how many of them there are. A figure
// is impossible if it is below zero, not a number, or above maxTokens or maxCostUSD.
func (u Usage) Believable() (believed Usage, implausible int) {
	for _, n := range []**int64{&u.InputTokens, &u.OutputTokens, &u.CachedInputTokens, &u.ReasoningTokens} {
		if *n != nil && !BelievableTokens(**n) {
			*n = nil
			implausible++
		}
	}
	if u.CostUSD != nil && !(*u.CostUSD >= 0 && *u.CostUSD <= maxCostUSD) { // It also refuses NaN.
		u.CostUSD = nil
		implausible++
	}
	return u, implausible
}

// BelievableTokens reports whether one request can have consumed n tokens of a kind.
func BelievableTokens(n int64) bool { return n >= 0 && n <= maxTokens }

// AddUSD returns the sum of two amounts in US dollars. It adds whole picodollars, so that 0.1 and 0.2 are 0.3. The sum
// is exact below 8,192 dollars, where a float64 still has twelve decimals. The sum is at most the largest float64.
func AddUSD(a, b float64) float64 {
	const exactBelow, dollar = 8192, 1e12
	// The condition also holds for NaN. A sum of exactly 8,192 may have been rounded up from just below it.
	if sum := a + b; !(sum <= exactBelow) {
		return min(sum, math.MaxFloat64)
	}
	// Only the fraction is multiplied. The product of the whole amount would lose its last digits.
	picodollars := func(usd float64) int64 {
		whole, fraction := math.Modf(usd)
		return int64(whole)*dollar + int64(math.Round(fraction*dollar))
	}
	return float64(picodollars(a)+picodollars(b)) / dollar
}

// Plus returns the sum of u and v. A figure that would overflow is the largest number of its type.
func (u Usage) Plus(v Usage) Usage {
	sum := NoUsage()
	sum.Partial = u.Partial || v.Partial
	sum.InputTokens = plus(sum.InputTokens, u.InputTokens, v.InputTokens, &sum.Partial, addTokens)
	sum.OutputTokens = plus(sum.OutputTokens, u.OutputTokens, v.OutputTokens, &sum.Partial, addTokens)
	sum.CachedInputTokens = reported(u.CachedInputTokens, v.CachedInputTokens)
	sum.ReasoningTokens = reported(u.ReasoningTokens, v.ReasoningTokens)
	sum.CostUSD = plus(sum.CostUSD, u.CostUSD, v.CostUSD, &sum.Partial, AddUSD)
	return sum
}

// Tokens returns the sum of the known input and output tokens.
func (u Usage) Tokens() int64 {
	known := plus(new(int64), u.InputTokens, u.OutputTokens, new(bool), addTokens)
	return *cmp.Or(known, new(int64))
}

// NoUsage returns the usage of no call. Its figures are known to be zero.
func NoUsage() Usage {
	var figures struct { // One allocation takes the place of three, because NoUsage is called for each call.
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

// plus returns the sum of the figures a and b, and uses sum as memory for it. A nil figure is unknown. If only one
// figure is known, plus returns that figure and sets partial. If that figure is zero, plus returns nil, because the sum
// is unknown.
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

// reported returns the sum of two figures that only some providers report, or nil if neither is known.
func reported(a, b *int64) *int64 {
	if a != nil && b != nil {
		return new(addTokens(*a, *b))
	}
	return cmp.Or(a, b)
}

func addTokens(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
