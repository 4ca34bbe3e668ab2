package council_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"

	"github.com/councild/councild/internal/council"
	"pgregory.net/rapid"
)

// dollars returns picodollars as the decimal number of dollars that people write, exactly.
func dollars(picodollars int64) *big.Rat { return big.NewRat(picodollars, 1e12) }

// Sums of costs are exact, however many there are: the JSON of a sum is the sum of the JSON.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int64{1e6, 1e9, 1e12, 8e15}).Draw(t, "most")
		sum, usage, left := new(big.Rat), council.NoUsage(), int64(8_191_999_999_999_999)
		for range rapid.IntRange(0, 300).Draw(t, "calls") {
			cost := rapid.Int64Range(0, min(most, left)).Draw(t, "cost")
			left -= cost
			sum.Add(sum, dollars(cost))
			var one council.Usage
			if err := json.Unmarshal([]byte(`{"cost_usd":`+dollars(cost).FloatString(12)+`}`), &one); err != nil {
				t.Fatal(err)
			}
			usage = usage.Plus(one)
		}
		written, err := json.Marshal(usage.CostUSD)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := new(big.Rat).SetString(string(written)); !ok || got.Cmp(sum) != 0 {
			t.Fatalf("%s, want %s", written, sum.FloatString(12))
		}
	})
}

func TestAddUSD(t *testing.T) {
	for _, c := range []struct{ a, b, want float64 }{
		{0.1, 0.2, 0.3},
		{0.0141, 0.017825, 0.031925},
		{0, 0, 0},
		{5e-13, 0, 1e-12},
		{4e-13, 4e-13, 0},
		{4095.999999999999, 4095.999999999999, 8191.999999999998},
		{8191.999999999998, 1e-12, 8191.999999999999},
		{8191.999999999999, 0, 8191.999999999999},
		{8191.999999999999, 1e-12, 8192},
		{8192, 0, 8192},
		{8192, 0.5, 8192.5},
		{0.3, -0.1, 0.2},
		{0.1, -0.3, -0.2},
		{math.MaxFloat64, math.MaxFloat64, math.MaxFloat64},
	} {
		if got := council.AddUSD(c.a, c.b); got != c.want {
			t.Errorf("%v and %v are %v, want %v", c.a, c.b, got, c.want)
		}
	}
	if got := council.AddUSD(math.NaN(), 1); !math.IsNaN(got) {
		t.Errorf("no number and 1 are %v", got)
	}
}
