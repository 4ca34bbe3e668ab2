package spend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/spend"
	"pgregory.net/rapid"
)

var listed = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

func TestParseList(t *testing.T) {
	for _, c := range []struct{ name, data, model, want string }{
		{
			"OpenRouter's form",
			`{"data":[{"id":"openai/gpt-5","pricing":{"prompt":"0.00000125","completion":"0.00001","request":"0","internal_reasoning":"0",
			  "input_cache_read":"0.000000125","web_search":"0.01"}}]}`, "openai/gpt-5",
			"{as_of: 2026-11-20, input: 1.25, cached_input: 0.125, output: 10}",
		},
		{
			"with prices of long calls",
			`{"data":[{"id":"m","pricing":{"prompt":"1e-6","completion":"2e-6","request":"0.01",
			  "overrides":[{"min_prompt_tokens":200000,"prompt":"0.000002","completion":"0.000003"}]}}]}`, "m",
			"{as_of: 2026-11-20, input: 1, output: 2, request: 0.01, above: [{input_tokens: 199999, input: 2, output: 3}]}",
		},
		{
			"a price that is finer than a picodollar a token is rounded up",
			`{"data":[{"id":"m","pricing":{"prompt":"0.0000000000001","completion":"0.0000000000011"}}]}`, "m",
			"{as_of: 2026-11-20, input: 0.000001, output: 0.000002}",
		},
		{
			"LiteLLM's form, with a fee",
			`{"p":{"input_cost_per_token":0,"output_cost_per_token":2.8e-07,"input_cost_per_request":0.005}}`, "p",
			"{as_of: 2026-11-20, input: 0, output: 0.28, request: 0.005}",
		},
		{
			"LiteLLM's form",
			`{"sample_spec":{"input_cost_per_token":1,"output_cost_per_token":1},
			  "gpt-5":{"input_cost_per_token":1.25e-06,"output_cost_per_token":1e-05,"cache_read_input_token_cost":1.25e-07,
			  "input_cost_per_token_above_272k_tokens":2.5e-06,"output_cost_per_token_above_272k_tokens":1.5e-05,"mode":"chat"}}`, "gpt-5",
			"{as_of: 2026-11-20, input: 1.25, cached_input: 0.125, output: 10, above: [{input_tokens: 272000, input: 2.5, output: 15}]}",
		},
	} {
		list, err := spend.ParseList([]byte(c.data), listed)
		if err != nil || len(list) != 1 || list[c.model].Line() != c.want {
			t.Errorf("%s: %v, %v", c.name, list[c.model].Line(), err)
		}
	}
}

// An alias costs what its own entry says, or what the model costs that it stands for.
func TestParseListOfAliases(t *testing.T) {
	list, err := spend.ParseList([]byte(`{"data":[
		{"id":"~x/own-latest","pricing":{"prompt":"0.000003","completion":"0.000004"},"alias_target":{"slug":"x/m-2"}},
		{"id":"~x/m-latest","pricing":{"prompt":"-1","completion":"-1"},"alias_target":{"name":"M 2","slug":"x/m-2"}},
		{"id":"x/m-2","pricing":{"prompt":"0.000001","completion":"0.000002"},"alias_target":null},
		{"id":"~x/gone-latest","alias_target":{"slug":"x/gone"}},
		{"id":"~x/odd-latest","alias_target":"x/m-2"}]}`), listed)
	if err != nil || len(list) != 3 || list["~x/m-latest"].Line() != "{as_of: 2026-11-20, input: 1, output: 2}" ||
		list["~x/own-latest"].Line() != "{as_of: 2026-11-20, input: 3, output: 4}" {
		t.Errorf("%v, %v", list, err)
	}
}

// pricing returns the prices of tokens, in picodollars, as OpenRouter lists them.
func pricing(t *rapid.T) string {
	price := func(name string) string {
		if !rapid.Bool().Draw(t, name+"?") {
			return ""
		}
		return fmt.Sprintf(`,%q:"%v"`, name, spend.USD(rapid.Int64Range(0, 1_000*million).Draw(t, name)))
	}
	rates := func() string {
		return fmt.Sprintf(`"prompt":"%v","completion":"%v"`, spend.USD(rapid.Int64Range(0, 1_000*million).Draw(t, "prompt")),
			spend.USD(rapid.Int64Range(0, 1_000*million).Draw(t, "completion"))) +
			price("input_cache_read") + price("input_cache_write") + price("internal_reasoning") + price("request")
	}
	base, threshold := rates(), int64(1)
	var tiers []string
	for range rapid.IntRange(0, 2).Draw(t, "tiers") {
		threshold += rapid.Int64Range(1, 300_000).Draw(t, "threshold")
		tiers = append(tiers, fmt.Sprintf(`{"min_prompt_tokens":%d,%s}`, threshold, rates()))
	}
	return "{" + base + `,"overrides":[` + strings.Join(tiers, ",") + "]}"
}

// A model that is listed twice costs what it costs at the dearer prices, in whatever order these stand.
func TestListedTwice(t *testing.T) {
	list := func(t rapid.TB, pricings ...string) spend.Tariff {
		var cards []string
		for _, p := range pricings {
			cards = append(cards, `{"id":"m","pricing":`+p+`}`)
		}
		all, err := spend.ParseList([]byte(`{"data":[`+strings.Join(cards, ",")+`]}`), listed)
		if err != nil {
			t.Fatal(err)
		}
		return all["m"]
	}
	rapid.Check(t, func(t *rapid.T) {
		one, other := pricing(t), pricing(t)
		a, b := list(t, one), list(t, other)
		twice, again := list(t, one, other), list(t, other, one)
		if err := twice.Validate(); err != nil || !twice.Same(again) || !twice.AsOf.Equal(listed) || !list(t, one, one).Same(a) {
			t.Fatalf("%v: %s and %s are %s, and %s", err, a.Line(), b.Line(), twice.Line(), again.Line())
		}
		n := drawTokens(t)
		if cost := twice.Cost(n); cost < max(a.Cost(n), b.Cost(n)) {
			t.Fatalf("%+v costs %v at %s: less than at %s or %s", n, cost, twice.Line(), a.Line(), b.Line())
		}
		if bound := twice.Bound(n.Input, n.Output); bound < max(a.Bound(n.Input, n.Output), b.Bound(n.Input, n.Output)) {
			t.Fatalf("%+v is bounded by %v at %s: less than at %s or %s", n, bound, twice.Line(), a.Line(), b.Line())
		}
	})
	const price, free = `{"prompt":"0.000003","completion":"0.000015"}`, `{"prompt":"0","completion":"0"}`
	if got := list(t, price, free); !got.Same(spend.Flat(3*million, 15*million)) {
		t.Errorf("with a second price of 0: %s", got.Line())
	}
}

// A model without a clear price is left out, and so is a list without any.
func TestParseListLeavesOut(t *testing.T) {
	for name, pricing := range map[string]string{
		"a router":        `{"prompt":"-1","completion":"-1"}`,
		"no output":       `{"prompt":"0.000001"}`,
		"no text":         `{"prompt":1,"completion":2}`,
		"a bad tier":      `{"prompt":"0","completion":"0","overrides":[{"prompt":"0"}]}`,
		"an unread tier":  `{"prompt":"0","completion":"0","overrides":[{"min_prompt_tokens":5,"prompt":"x"}]}`,
		"too dear":        `{"prompt":"0.02","completion":"0"}`,
		"nothing":         `null`,
		"an empty object": `{}`,
	} {
		list, err := spend.ParseList([]byte(`{"data":[{"id":"m","pricing":`+pricing+`}]}`), listed)
		if !errors.Is(err, spend.ErrNoPrices) {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
	for _, data := range []string{``, `[]`, `{"data":[]}`, `{}`, `{"a":1}`, `{"data":{}}`} {
		if _, err := spend.ParseList([]byte(data), listed); err == nil {
			t.Errorf("%q: no error", data)
		}
	}
}

func TestSame(t *testing.T) {
	parse := func(pricing string) spend.Tariff {
		list, err := spend.ParseList([]byte(`{"data":[{"id":"m","pricing":`+pricing+`}]}`), listed)
		if err != nil {
			t.Fatal(err)
		}
		return list["m"]
	}
	plain := parse(`{"prompt":"0.000001","completion":"0.000002"}`)
	cached := parse(`{"prompt":"0.000001","completion":"0.000002","input_cache_read":"0.000001"}`)
	if !plain.Same(spend.Flat(million, 2*million)) || !plain.Same(cached) {
		t.Error("the same prices differ")
	}
	for _, pricing := range []string{
		`{"prompt":"0.000002","completion":"0.000002"}`, `{"prompt":"0.000001","completion":"0.000002","request":"1"}`,
		`{"prompt":"0.000001","completion":"0.000002","overrides":[{"min_prompt_tokens":5,"prompt":"0.000002"}]}`,
	} {
		if plain.Same(parse(pricing)) {
			t.Errorf("%s is the same", pricing)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","pricing":{"prompt":"1e-6","completion":"2e-6","overrides":[{"min_prompt_tokens":2}]}}]}`))
	f.Add([]byte(`{"m":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-5,"input_cost_per_token_above_1k_tokens":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := spend.ParseList(data, listed)
		if err != nil {
			return
		}
		for name, tariff := range list {
			if err := tariff.Validate(); err != nil {
				t.Errorf("%q: %v", name, err)
			}
			if back, err := spend.ParseTariff(tariff.Entry()); err != nil || !back.Same(tariff) {
				t.Errorf("%q is printed as %s: %v", name, tariff.Entry(), err)
			}
			if tariff.Cost(spend.Tokens{Input: 1000, Output: 1000}) > tariff.Bound(1000, 1000) {
				t.Errorf("%q costs more than its bound", name)
			}
		}
	})
}
