package council_test

import (
	"math"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
)

func TestUsagePlus(t *testing.T) {
	usage := func(in, out int64, cost float64) council.Usage {
		return council.Usage{InputTokens: &in, OutputTokens: &out, CostUSD: &cost}
	}
	partial := func(u council.Usage) council.Usage {
		u.Partial = true
		return u
	}
	unknown := council.Usage{}
	noCost := council.Usage{InputTokens: new(int64(1)), OutputTokens: new(int64(2))}
	for _, tt := range []struct {
		name string
		a, b council.Usage
		want council.Usage
	}{
		{name: "known", a: usage(1, 2, 3), b: usage(10, 20, 30), want: usage(11, 22, 33)},
		{name: "nothing is known", a: unknown, b: unknown, want: unknown},
		{name: "beside no call", a: council.NoUsage(), b: unknown, want: unknown},
		{name: "beside something known", a: usage(1, 2, 3), b: unknown, want: partial(usage(1, 2, 3))},
		{name: "one figure", a: usage(10, 20, 30), b: noCost, want: partial(usage(11, 22, 30))},
		{
			name: "a figure that nobody tells", a: noCost, b: noCost,
			want: council.Usage{InputTokens: new(int64(2)), OutputTokens: new(int64(4))},
		},
		{
			name: "reasoning that one call reports", a: council.Usage{ReasoningTokens: new(int64(5))}, b: council.NoUsage(),
			want: council.Usage{ReasoningTokens: new(int64(5))},
		},
		{
			name: "cached tokens", a: council.Usage{CachedInputTokens: new(int64(5))}, b: council.Usage{CachedInputTokens: new(int64(2))},
			want: council.Usage{CachedInputTokens: new(int64(7))},
		},
		{
			name: "reasoning that both report", a: council.Usage{ReasoningTokens: new(int64(5))}, b: council.Usage{ReasoningTokens: new(int64(0))},
			want: council.Usage{ReasoningTokens: new(int64(5))},
		},
		{name: "a part stays a part", a: partial(usage(1, 2, 3)), b: usage(1, 2, 3), want: partial(usage(2, 4, 6))},
		{
			name: "the largest", a: usage(math.MaxInt64, math.MaxInt64, math.MaxFloat64), b: usage(1, math.MaxInt64, math.MaxFloat64),
			want: usage(math.MaxInt64, math.MaxInt64, math.MaxFloat64),
		},
	} {
		for _, got := range []council.Usage{tt.a.Plus(tt.b), tt.b.Plus(tt.a)} {
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
		}
	}
	if n := usage(math.MaxInt64, 1, 0).Tokens(); n != math.MaxInt64 {
		t.Errorf("%d tokens in all", n)
	}
	if n := unknown.Tokens(); n != 0 {
		t.Errorf("%d known tokens in an unknown usage", n)
	}
}

func TestBelievable(t *testing.T) {
	for _, tt := range []struct {
		in, out     int64
		cost        float64
		implausible int
	}{
		{0, 0, 0, 0},
		{100_000_000, 1, 10_000, 0},
		{100_000_001, 1, 1, 1},
		{1, -1, 1, 1},
		{1, 1, math.NaN(), 1},
		{1, 1, math.Inf(1), 1},
		{1, 1, -0.01, 1},
		{math.MinInt64, math.MaxInt64, 1e308, 3},
	} {
		u, implausible := council.Usage{InputTokens: &tt.in, OutputTokens: &tt.out, CostUSD: &tt.cost}.Believable()
		unknown := 0
		for _, missing := range []bool{u.InputTokens == nil, u.OutputTokens == nil, u.CostUSD == nil} {
			if missing {
				unknown++
			}
		}
		if implausible != tt.implausible || unknown != tt.implausible {
			t.Errorf("%+v: %d doubted, %d unknown", tt, implausible, unknown)
		}
	}
}

func TestSpentAdd(t *testing.T) {
	spent := council.Spent{
		LatencyMS: 1.5, Attempts: 1, Usage: council.Usage{InputTokens: new(int64(2)), OutputTokens: new(int64(1)), CostUSD: new(0.5)},
	}
	spent.Add(
		council.Spent{
			LatencyMS: 2, Attempts: 3, Usage: council.Usage{InputTokens: new(int64(4)), OutputTokens: new(int64(1)), CostUSD: new(0.5)},
		},
	)
	want := council.Spent{
		LatencyMS: 3.5, Attempts: 4, Usage: council.Usage{InputTokens: new(int64(6)), OutputTokens: new(int64(2)), CostUSD: new(1.0)},
	}
	if diff := cmp.Diff(want, spent); diff != "" {
		t.Error(diff)
	}
}
