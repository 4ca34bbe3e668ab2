package spend

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Price is the price of one token, in whole picodollars. As text and in JSON it is in US dollars per million
// tokens, as providers write it, with at most six decimals.
type Price int64

// maxPrice is the highest price that is accepted: USD 10,000 per million tokens. At this price, the cost of any
// plausible request does not overflow USD.
const maxPrice Price = 1e10

const perMillion = 1e6 // one dollar per million tokens is this many picodollars per token

// ParsePrice reads a price in US dollars per million tokens. The text of the error has no subject, because callers
// write the quoted price before it.
func ParsePrice(text string) (Price, error) {
	r, err := number(text, perMillion)
	if err != nil {
		return 0, errors.New("is not a price: write US dollars per million tokens, such as 1.25")
	}
	if !r.IsInt() {
		return 0, errors.New("has too many decimals: write at most six")
	}
	return priceOf(r.Num())
}

func priceOf(n *big.Int) (Price, error) {
	if !n.IsInt64() || Price(n.Int64()) > maxPrice {
		return 0, errors.New("is too high: write at most 10000 US dollars per million tokens")
	}
	return Price(n.Int64()), nil
}

// priceUp reads a price in US dollars per token, and rounds the price up to the next picodollar, because upper bounds
// use the price.
func priceUp(text string) (Price, error) {
	r, err := number(text, int64(Dollar))
	if err != nil {
		return 0, err
	}
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	return priceOf(n)
}

// String returns the price in US dollars per million tokens, exactly.
func (p Price) String() string { return decimal(int64(p), 6) }

// MarshalJSON returns the price in US dollars per million tokens.
func (p Price) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalJSON reads a price in US dollars per million tokens.
func (p *Price) UnmarshalJSON(data []byte) error { return p.UnmarshalText(data) }

// UnmarshalText reads a price in US dollars per million tokens.
func (p *Price) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePrice(string(text))
	return err
}

// Rates are the prices of the tokens of a call, by kind. If an optional price is nil, its default applies.
type Rates struct {
	Input *Price `json:"input,omitempty" yaml:"input"` // required
	// CachedInput is for tokens that the provider read from its cache. The default is Input.
	CachedInput *Price `json:"cached_input,omitempty" yaml:"cached_input"`
	// CacheWrite is for tokens that the provider wrote to its cache. The default is Input.
	CacheWrite *Price `json:"cache_write,omitempty" yaml:"cache_write"`
	Output     *Price `json:"output,omitempty" yaml:"output"`       // required
	Reasoning  *Price `json:"reasoning,omitempty" yaml:"reasoning"` // the default is Output
	// Request is the fee of one request, in US dollars. The default is 0.
	Request *USD `json:"request,omitempty" yaml:"request"`
}

// Tier holds the rates for calls with more than InputTokens input tokens. These rates apply to the whole call. If
// Input, Output or Request is nil, the tariff's own price applies.
type Tier struct {
	InputTokens int64 `json:"input_tokens" yaml:"input_tokens"`
	Rates       `yaml:",inline"`
}

// Tariff holds the prices of a model.
type Tariff struct {
	// AsOf is the day on which the prices were read, in UTC. It is zero if that is not known.
	AsOf  time.Time
	Rates `yaml:",inline"`
	Above []Tier // in the order of their InputTokens
}

// Free returns the tariff of a model that costs nothing.
func Free() Tariff { return Flat(0, 0) }

// Flat returns a tariff with the two prices that are required.
func Flat(input, output Price) Tariff { return Tariff{Rates: Rates{Input: &input, Output: &output}} }

// aboveKey begins the rates of a tier in a tariff's text.
const aboveKey = "above"

// place returns the field for the price with the given name, or nil if no price has that name.
func (r *Rates) place(name string) **Price {
	switch name {
	case "input":
		return &r.Input
	case "cached_input":
		return &r.CachedInput
	case "cache_write":
		return &r.CacheWrite
	case "output":
		return &r.Output
	case "reasoning":
		return &r.Reasoning
	default:
		return nil
	}
}

// set reads a price, or the fee of a request, into the field with the given name.
func (r *Rates) set(name, text string) error {
	if name == "request" {
		fee, err := ParseUSD(text)
		r.Request = &fee
		return err
	}
	place := r.place(name)
	if place == nil {
		return errors.New("is not a price: write cached_input, cache_write, reasoning, request or above, " +
			"as a roster has them")
	}
	price, err := ParsePrice(text)
	*place = &price
	return err
}

// ParseTariff reads a tariff. "1.25/10" are the prices of input and output in US dollars per million tokens, and
// "free" is a tariff of zeros. More prices may follow, with the names that a roster uses:
// "1.25/10+cached_input:0.125+request:0.005". The prices after "+above:200000" hold for calls with more input
// tokens than that. "@2026-11-20" at the end is the day on which the prices were read.
func ParseTariff(text string) (Tariff, error) {
	if text == "free" {
		return Free(), nil
	}
	prices, day, dated := strings.Cut(text, "@")
	prices, more, further := strings.Cut(prices, "+")
	input, output, ok := strings.Cut(prices, "/")
	if !ok {
		return Tariff{}, errors.New("is not a price: write INPUT/OUTPUT in US dollars per million tokens, " +
			"such as 1.25/10, or free")
	}
	var t Tariff
	for _, part := range [][2]string{{"input", input}, {"output", output}} {
		if err := t.set(part[0], strings.TrimSpace(part[1])); err != nil {
			return Tariff{}, fmt.Errorf("%q %w", part[1], err)
		}
	}
	if further {
		if err := t.parseFurther(more); err != nil {
			return Tariff{}, err
		}
	}
	if dated {
		var err error
		if t.AsOf, err = time.Parse(time.DateOnly, day); err != nil {
			return Tariff{}, fmt.Errorf("%q is not a day: write the day of the prices as in 2026-11-20", day)
		}
	}
	return t, t.Validate()
}

// parseFurther reads the prices after those of input and output.
func (t *Tariff) parseFurther(text string) error {
	rates := &t.Rates
	for part := range strings.SplitSeq(text, "+") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			return fmt.Errorf("%q is not a further price: write it as in request:0.005", part)
		}
		if name == aboveKey {
			tokens, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not a number of input tokens: write it as in above:200000", part)
			}
			t.Above = append(t.Above, Tier{InputTokens: tokens})
			rates = &t.Above[len(t.Above)-1].Rates
			continue
		}
		if place := rates.place(name); place != nil && *place != nil || name == "request" && rates.Request != nil {
			return fmt.Errorf("%q is a second price of the same kind: remove one", part)
		}
		if err := rates.set(name, value); err != nil {
			return fmt.Errorf("%q %w", part, err)
		}
	}
	return nil
}

// Validate returns why the tariff is not valid, or nil.
func (t Tariff) Validate() error {
	if t.Input == nil || t.Output == nil {
		return errors.New("the price of input or of output is missing: give both")
	}
	before := int64(0)
	for _, tier := range t.Above {
		if tier.InputTokens <= before {
			return errors.New("the tiers are not in ascending order of their input tokens: " +
				"sort them, from 1 token on")
		}
		before = tier.InputTokens
	}
	for _, r := range append([]Tier{{Rates: t.Rates}}, t.Above...) {
		for _, p := range []*Price{r.Input, r.CachedInput, r.CacheWrite, r.Output, r.Reasoning} {
			if p != nil && (*p < 0 || *p > maxPrice) {
				return fmt.Errorf("the price %v is out of range: give 0 to 10000 US dollars per million tokens", p)
			}
		}
		if r.Request != nil && *r.Request < 0 {
			return errors.New("the price of a request is negative")
		}
	}
	return nil
}

// Tokens are the tokens of one request. As in OpenAI's usage figures, Input includes CachedInput and CacheWrite, and
// Output includes Reasoning.
type Tokens struct {
	Input       int64 `json:"input"`
	CachedInput int64 `json:"cached_input,omitempty"`
	CacheWrite  int64 `json:"cache_write,omitempty"`
	Output      int64 `json:"output"`
	Reasoning   int64 `json:"reasoning,omitempty"`
}

// rates are Rates in which defaults have replaced nil.
type rates struct {
	input, cached, write, output, reasoning Price
	request                                 USD
}

func (r Rates) over(base Rates) rates {
	input := *cmp.Or(r.Input, base.Input)
	output := *cmp.Or(r.Output, base.Output)
	return rates{
		input: input, cached: *cmp.Or(r.CachedInput, &input), write: *cmp.Or(r.CacheWrite, &input),
		output: output, reasoning: *cmp.Or(r.Reasoning, &output), request: *cmp.Or(r.Request, base.Request, new(USD)),
	}
}

// above returns the rates for calls with more than inputTokens input tokens.
func (t Tariff) above(inputTokens int64) rates {
	r := t.over(t.Rates)
	for _, tier := range t.Above {
		if inputTokens >= tier.InputTokens {
			r = tier.over(t.Rates)
		}
	}
	return r
}

// dearer returns a tariff under which every call costs at least as much as under each of two tariffs.
func dearer(t, u Tariff) Tariff {
	if t.Same(u) {
		return t
	}
	most := func(inputTokens int64) Rates {
		a := t.above(inputTokens)
		b := u.above(inputTokens)
		return Rates{
			Input:       new(max(a.input, b.input)),
			CachedInput: new(max(a.cached, b.cached)),
			CacheWrite:  new(max(a.write, b.write)),
			Output:      new(max(a.output, b.output)),
			Reasoning:   new(max(a.reasoning, b.reasoning)),
			Request:     new(max(a.request, b.request)),
		}
	}
	dear := Tariff{AsOf: t.AsOf, Rates: most(0)}
	thresholds := map[int64]bool{}
	for _, tier := range slices.Concat(t.Above, u.Above) {
		thresholds[tier.InputTokens] = true
	}
	for _, tokens := range slices.Sorted(maps.Keys(thresholds)) {
		dear.Above = append(dear.Above, Tier{InputTokens: tokens, Rates: most(tokens)})
	}
	return dear
}

// Cost returns what a request costs. The tokens of one kind never count as more than all input tokens or all output
// tokens, even if the figures of the provider say so.
func (t Tariff) Cost(n Tokens) USD {
	r := t.above(n.Input - 1)
	cached := min(n.CachedInput, n.Input)
	write := min(n.CacheWrite, n.Input-cached)
	reasoning := min(n.Reasoning, n.Output)
	cost := r.request
	for _, part := range []struct {
		price  Price
		tokens int64
	}{
		{r.input, n.Input - cached - write},
		{r.cached, cached},
		{r.write, write},
		{r.output, n.Output - reasoning},
		{r.reasoning, reasoning},
	} {
		cost = cost.Plus(USD(part.price).Times(part.tokens))
	}
	return cost
}

// Bound returns the most that a request can cost, at the highest rates that can apply. Each byte of its body counts
// as one input token, because no byte-level tokeniser makes more tokens. The reply counts with its largest number
// of tokens.
func (t Tariff) Bound(bytes, outputLimit int64) USD {
	all := []rates{t.over(t.Rates)}
	for _, tier := range t.Above {
		if bytes > tier.InputTokens {
			all = append(all, tier.over(t.Rates))
		}
	}
	var bound USD
	for _, r := range all {
		input := max(r.input, r.cached, r.write)
		output := max(r.output, r.reasoning)
		bound = max(bound, USD(input).Times(bytes).Plus(USD(output).Times(outputLimit)).Plus(r.request))
	}
	return bound
}
