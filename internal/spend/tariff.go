package spend

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Price is that of one token, in whole picodollars. As text and in JSON it is in US dollars per
// million tokens, which is how providers write it, with six decimals at most.
type Price int64

// maxPrice is USD 10,000 per million tokens: with it, what any believable request costs is an
// amount.
const maxPrice Price = 1e10

const perMillion = 1e6 // picodollars a token for one dollar per million tokens

// ParsePrice reads a price in US dollars per million tokens.
func ParsePrice(text string) (Price, error) {
	r, err := number(text, perMillion)
	if err != nil {
		return 0, errors.New("is not a price: write US dollars per million tokens, such as 1.25")
	}
	if !r.IsInt() {
		return 0, errors.New("is finer than a picodollar a token: write six decimals at most")
	}
	return priceOf(r.Num())
}

func priceOf(n *big.Int) (Price, error) {
	if !n.IsInt64() || Price(n.Int64()) > maxPrice {
		return 0, errors.New("is too high a price: write 10000 US dollars per million tokens at most")
	}
	return Price(n.Int64()), nil
}

// priceUp reads a price in US dollars per token, and rounds it up to the next picodollar: what it
// bounds must not be more.
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

// Rates are the prices of a call's tokens by kind. A nil price has the default that is given with
// it.
type Rates struct {
	Input       *Price `json:"input,omitempty" yaml:"input"`               // required
	CachedInput *Price `json:"cached_input,omitempty" yaml:"cached_input"` // read from the provider's cache; nil: Input
	CacheWrite  *Price `json:"cache_write,omitempty" yaml:"cache_write"`   // written to it; nil: Input
	Output      *Price `json:"output,omitempty" yaml:"output"`             // required
	Reasoning   *Price `json:"reasoning,omitempty" yaml:"reasoning"`       // nil: Output
	Request     *USD   `json:"request,omitempty" yaml:"request"`           // of a request, in US dollars; nil: 0
}

// Tier holds the rates of calls with more input tokens than that. They replace those of the
// tariff for the whole call. Input, Output and Request that are nil are those of the tariff.
type Tier struct {
	InputTokens int64 `json:"input_tokens" yaml:"input_tokens"`
	Rates       `yaml:",inline"`
}

// Tariff is what a model costs.
type Tariff struct {
	// AsOf is the day on which the prices were read, in UTC; zero: nobody said.
	AsOf  time.Time
	Rates `yaml:",inline"`
	Above []Tier // in the order of their tokens
}

// Free returns the tariff of a model that costs nothing.
func Free() Tariff { return Flat(0, 0) }

// Flat returns the tariff of a model that has two prices.
func Flat(input, output Price) Tariff { return Tariff{Rates: Rates{Input: &input, Output: &output}} }

// ParseTariff reads "1.25/10", the prices of input and output, "1.25/10@2026-11-20" with the day
// on which they were read, or "free".
func ParseTariff(text string) (Tariff, error) {
	if text == "free" {
		return Free(), nil
	}
	prices, day, dated := strings.Cut(text, "@")
	input, output, ok := strings.Cut(prices, "/")
	if !ok {
		return Tariff{}, errors.New("is no price: write INPUT/OUTPUT in US dollars per million tokens, such as 1.25/10, or free")
	}
	in, err := ParsePrice(strings.TrimSpace(input))
	if err != nil {
		return Tariff{}, fmt.Errorf("%q %w", input, err)
	}
	out, err := ParsePrice(strings.TrimSpace(output))
	if err != nil {
		return Tariff{}, fmt.Errorf("%q %w", output, err)
	}
	t := Flat(in, out)
	if dated {
		if t.AsOf, err = time.Parse(time.DateOnly, day); err != nil {
			return Tariff{}, fmt.Errorf("%q is no day: write the day of the prices as in 2026-11-20", day)
		}
	}
	return t, nil
}

// Validate returns what makes the tariff none.
func (t Tariff) Validate() error {
	if t.Input == nil || t.Output == nil {
		return errors.New("the price of input or of output is missing: give both")
	}
	before := int64(0)
	for _, tier := range t.Above {
		if tier.InputTokens <= before {
			return errors.New("the tiers above numbers of input tokens do not stand in rising order: sort them, from 1 token on")
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

// Tokens are those of one request. Input counts the cached and written ones too, and Output those
// of reasoning, as in OpenAI's usage figures.
type Tokens struct {
	Input       int64 `json:"input"`
	CachedInput int64 `json:"cached_input,omitempty"`
	CacheWrite  int64 `json:"cache_write,omitempty"`
	Output      int64 `json:"output"`
	Reasoning   int64 `json:"reasoning,omitempty"`
}

// rates are Rates with the defaults.
type rates struct {
	input, cached, write, output, reasoning Price
	request                                 USD
}

func (r Rates) over(base Rates) rates {
	input, output := *cmp.Or(r.Input, base.Input), *cmp.Or(r.Output, base.Output)
	return rates{
		input: input, cached: *cmp.Or(r.CachedInput, &input), write: *cmp.Or(r.CacheWrite, &input),
		output: output, reasoning: *cmp.Or(r.Reasoning, &output), request: *cmp.Or(r.Request, base.Request, new(USD)),
	}
}

// Cost returns what a request costs. Of tokens of one kind there are no more than of all, whatever
// the figures say.
func (t Tariff) Cost(n Tokens) USD {
	r := t.over(t.Rates)
	for _, tier := range t.Above {
		if n.Input > tier.InputTokens {
			r = tier.over(t.Rates)
		}
	}
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

// Bound returns the most that a request can cost: each byte of its body is one input token, since
// no byte-level tokeniser makes more of it, and the reply has as many tokens as it may, at the
// dearest rates that can apply.
func (t Tariff) Bound(bytes, outputLimit int64) USD {
	all := []rates{t.over(t.Rates)}
	for _, tier := range t.Above {
		if bytes > tier.InputTokens {
			all = append(all, tier.over(t.Rates))
		}
	}
	var bound USD
	for _, r := range all {
		input, output := max(r.input, r.cached, r.write), max(r.output, r.reasoning)
		bound = max(bound, USD(input).Times(bytes).Plus(USD(output).Times(outputLimit)).Plus(r.request))
	}
	return bound
}
