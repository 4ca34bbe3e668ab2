package spend_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/spend"
	"pgregory.net/rapid"
)

// million is the number of picodollars a token for a dollar per million tokens.
const million = 1_000_000

func drawRates(t *rapid.T, name string) spend.Rates {
	price := func(kind string) *spend.Price {
		return new(spend.Price(rapid.Int64Range(0, 1_000*million).Draw(t, name+kind)))
	}
	maybe := func(kind string) *spend.Price {
		if rapid.Bool().Draw(t, name+kind+"?") {
			return price(kind)
		}
		return nil
	}
	r := spend.Rates{
		Input: price("input"), Output: price("output"),
		CachedInput: maybe("cached"), CacheWrite: maybe("write"), Reasoning: maybe("reasoning"),
	}
	if rapid.Bool().Draw(t, name+"request?") {
		r.Request = new(spend.USD(rapid.Int64Range(0, int64(spend.Dollar)).Draw(t, name+"request")))
	}
	return r
}

func drawTariff(t *rapid.T) spend.Tariff {
	tariff := spend.Tariff{Rates: drawRates(t, "base ")}
	threshold := int64(0)
	for range rapid.IntRange(0, 3).Draw(t, "tiers") {
		threshold += rapid.Int64Range(1, 300_000).Draw(t, "threshold")
		tariff.Above = append(tariff.Above, spend.Tier{InputTokens: threshold, Rates: drawRates(t, "tier ")})
	}
	return tariff
}

func drawTokens(t *rapid.T) spend.Tokens {
	n := spend.Tokens{Input: rapid.Int64Range(0, 1e6).Draw(t, "input"), Output: rapid.Int64Range(0, 1e6).Draw(t, "output")}
	n.CachedInput = rapid.Int64Range(0, n.Input).Draw(t, "cached")
	n.CacheWrite = rapid.Int64Range(0, n.Input-n.CachedInput).Draw(t, "written")
	n.Reasoning = rapid.Int64Range(0, n.Output).Draw(t, "reasoning")
	return n
}

// exactly computes a cost in fractions of a dollar, from the prices as people write them.
func exactly(t *rapid.T, tariff spend.Tariff, n spend.Tokens) *big.Rat {
	r := tariff.Rates
	for _, tier := range tariff.Above {
		if n.Input > tier.InputTokens {
			r = tier.Rates
		}
	}
	cost := new(big.Rat)
	add := func(price, instead *spend.Price, tokens int64) {
		if price == nil {
			price = instead
		}
		perMillion, ok := new(big.Rat).SetString(price.String())
		if !ok {
			t.Fatalf("%v is no number", price)
		}
		cost.Add(cost, perMillion.Mul(perMillion, big.NewRat(tokens, million)))
	}
	add(r.Input, nil, n.Input-n.CachedInput-n.CacheWrite)
	add(r.CachedInput, r.Input, n.CachedInput)
	add(r.CacheWrite, r.Input, n.CacheWrite)
	add(r.Output, nil, n.Output-n.Reasoning)
	add(r.Reasoning, r.Output, n.Reasoning)
	request := r.Request
	if request == nil {
		request = tariff.Request
	}
	if request != nil {
		dollars, _ := new(big.Rat).SetString(request.String())
		cost.Add(cost, dollars)
	}
	return cost
}

func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tariff, n := drawTariff(t), drawTokens(t)
		if err := tariff.Validate(); err != nil {
			t.Fatal(err)
		}
		cost := tariff.Cost(n)
		got, ok := new(big.Rat).SetString(cost.String())
		if want := exactly(t, tariff, n); !ok || got.Cmp(want) != 0 {
			t.Fatalf("%v, want %v", cost, want.FloatString(12))
		}
	})
}

// No request within its bytes and its output limit costs more than its bound, and one that uses up
// both at the dearest rates costs exactly that.
func TestNoCostIsAboveItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tariff, n := drawTariff(t), drawTokens(t)
		bytes := n.Input + rapid.Int64Range(0, 1000).Draw(t, "more bytes")
		limit := n.Output + rapid.Int64Range(0, 1000).Draw(t, "more output")
		if cost, bound := tariff.Cost(n), tariff.Bound(bytes, limit); cost > bound {
			t.Fatalf("it costs %v, and the bound is %v", cost, bound)
		}
		flat := spend.Flat(*tariff.Input, *tariff.Output)
		if cost, bound := flat.Cost(spend.Tokens{Input: bytes, Output: limit}), flat.Bound(bytes, limit); cost != bound {
			t.Fatalf("all of it costs %v, and the bound is %v", cost, bound)
		}
	})
}

// A tier replaces the rates of the whole call, and only above its threshold.
func TestTier(t *testing.T) {
	price := func(text string) *spend.Price {
		p, err := spend.ParsePrice(text)
		if err != nil {
			t.Fatal(err)
		}
		return &p
	}
	tariff := spend.Tariff{
		Rates: spend.Rates{Input: price("1.25"), CachedInput: price("0.125"), Output: price("10")},
		Above: []spend.Tier{{InputTokens: 272_000, Rates: spend.Rates{Input: price("2.5"), Output: price("15")}}},
	}
	for _, c := range []struct {
		tokens spend.Tokens
		want   string
	}{
		{spend.Tokens{Input: 272_000, Output: 1000}, "0.35"},
		{spend.Tokens{Input: 272_001, Output: 1000}, "0.6950025"},
		{spend.Tokens{Input: 272_000, CachedInput: 272_000}, "0.034"},
		{spend.Tokens{Input: 400_000, CachedInput: 400_000}, "1"}, // the tier has no price for cached tokens: its input's
	} {
		if got := tariff.Cost(c.tokens); got.String() != c.want {
			t.Errorf("%+v: %v, want %s", c.tokens, got, c.want)
		}
	}
}

func TestAmountsAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := spend.USD(rapid.Int64Min(0).Draw(t, "amount"))
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var back spend.USD
		if err := json.Unmarshal(data, &back); err != nil || back != a {
			t.Fatalf("%s became %v: %v", data, back, err)
		}
		if cents := a % (1_000 * spend.Dollar); spend.FromFloat(cents.Float64()) != cents { // 15 digits
			t.Fatalf("%v became %v", cents, spend.FromFloat(cents.Float64()))
		}
	})
	for text, want := range map[string]spend.USD{
		"0": 0, "1.25": 1_250_000_000_000, "1.2e-05": 12_000_000, "0.0000000000004": 0, "0.0000000000005": 1, "1e-300": 0,
	} {
		if got, err := spend.ParseUSD(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, int64(got), err, int64(want))
		}
	}
	for _, text := range []string{"", "-1", "NaN", "Inf", "0x10", "1_0", "1e9999999", "10000000", "1/2", strings.Repeat("0", 100)} {
		if got, err := spend.ParseUSD(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestSumsDoNotOverflow(t *testing.T) {
	most := spend.USD(1<<63 - 1)
	for name, got := range map[string]spend.USD{
		"sum": most.Plus(1), "product": most.Times(2), "large product": spend.Dollar.Times(1 << 62),
		"bound": spend.Flat(10_000*million, 10_000*million).Bound(1<<62, 1<<62),
	} {
		if got != most {
			t.Errorf("%s: %d", name, int64(got))
		}
	}
}

func TestParseTariff(t *testing.T) {
	tariff, err := spend.ParseTariff("1.25/10@2026-11-20")
	if err != nil || tariff.Input.String() != "1.25" || tariff.Output.String() != "10" ||
		!tariff.AsOf.Equal(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", tariff, err)
	}
	if free, err := spend.ParseTariff("free"); err != nil || free.Bound(1e6, 1e6) != 0 {
		t.Errorf("%+v, %v", free, err)
	}
	for text, want := range map[string]string{
		"": "not a price", "1": "INPUT/OUTPUT", "a/1": "not a price", "1/-1": "not a price", "0.0000001/1": "too many decimals",
		"1/10001": "too high", "1/2@tomorrow": "not a day", "1/2+": "not a further price", "1/2+request": "request:0.005",
		"1/2+request:-1": "not an amount", "1/2+fee:1": "write cached_input", "1/2+output:3": "second price", "1/2+request:1+request:2": "second price",
		"1/2+above:x": "above:200000", "1/2+above:0": "ascending order", "1/2+above:5+above:5": "ascending order", "1/2+above:5+input:1+input:2": "second price",
		"1/2+reasoning:0.0000001": "too many decimals", "1/2@2026-11-20+request:1": "not a day",
	} {
		if _, err := spend.ParseTariff(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is printed of a tariff is read as the same tariff, with every kind of price, the fee of a request, and tiers.
func TestPrintedTariffs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tariff := drawTariff(t)
		if rapid.Bool().Draw(t, "dated") {
			tariff.AsOf = time.Date(2026, 11, rapid.IntRange(1, 30).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
		}
		for i := range tariff.Above { // as lists have them
			if rapid.Bool().Draw(t, "without input") {
				tariff.Above[i].Input = nil
			}
		}
		back, err := spend.ParseTariff(tariff.Entry())
		if err != nil || !back.Same(tariff) || !back.AsOf.Equal(tariff.AsOf) {
			t.Fatalf("%s: %v, %s", tariff.Entry(), err, back.Entry())
		}
		if n := drawTokens(t); back.Cost(n) != tariff.Cost(n) {
			t.Fatalf("%s: %+v costs %v, and %v as printed", tariff.Entry(), n, tariff.Cost(n), back.Cost(n))
		}
		if strings.ContainsAny(tariff.Entry(), "=, '\"$&;<>|*") {
			t.Fatalf("%s does not fit a variable of a shell", tariff.Entry())
		}
	})
}

func TestFurtherPrices(t *testing.T) {
	tariff, err := spend.ParseTariff("3/15+cached_input:0.3 + request:0.018+above:200000+input:6+request:0@2026-11-20")
	if err != nil {
		t.Fatal(err)
	}
	const want = "{as_of: 2026-11-20, input: 3, cached_input: 0.3, output: 15, request: 0.018, above: [{input_tokens: 200000, input: 6, request: 0}]}"
	if got := tariff.Line(); got != want {
		t.Error(got)
	}
	for tokens, want := range map[spend.Tokens]string{
		{Input: 1000, Output: 1000}: "0.036", {Input: 200_001, Output: 1000}: "1.215006",
	} {
		if got := tariff.Cost(tokens); got.String() != want {
			t.Errorf("%+v: %v, want %s", tokens, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	one, negative, high := new(spend.Price(1)), new(spend.Price(-1)), new(spend.Price(1e10+1))
	for name, tariff := range map[string]spend.Tariff{
		"no input":         {Rates: spend.Rates{Output: one}},
		"no output":        {Rates: spend.Rates{Input: one}},
		"negative":         {Rates: spend.Rates{Input: one, Output: negative}},
		"too high":         {Rates: spend.Rates{Input: one, Output: one, Reasoning: high}},
		"negative request": {Rates: spend.Rates{Input: one, Output: one, Request: new(spend.USD(-1))}},
		"tier at 0":        {Rates: spend.Rates{Input: one, Output: one}, Above: []spend.Tier{{}}},
		"tiers not sorted": {Rates: spend.Rates{Input: one, Output: one}, Above: []spend.Tier{{InputTokens: 2}, {InputTokens: 2}}},
		"negative in a tier": {
			Rates: spend.Rates{Input: one, Output: one},
			Above: []spend.Tier{{InputTokens: 2, Rates: spend.Rates{Input: negative}}},
		},
	} {
		if tariff.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := spend.Free().Validate(); err != nil {
		t.Error(err)
	}
}
