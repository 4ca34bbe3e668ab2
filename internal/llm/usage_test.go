package llm

import (
	"context"
	"fmt"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
)

// A figure that no request can have is unknown and counted. It costs neither the
// text beside it nor the other figures.
func TestFiguresBeyondReason(t *testing.T) {
	in, out, cost := new(int64(3)), new(int64(2)), new(0.5)
	for _, tt := range []struct {
		usage       string
		want        council.Usage
		implausible int
	}{
		{`{"prompt_tokens":3,"completion_tokens":2,"cost":0.5}`, council.Usage{InputTokens: in, OutputTokens: out, CostUSD: cost}, 0},
		{`{"prompt_tokens":3,"completion_tokens":2,"cost":1e308}`, council.Usage{InputTokens: in, OutputTokens: out}, 1},
		{`{"prompt_tokens":3,"completion_tokens":2,"cost":1e999}`, council.Usage{InputTokens: in, OutputTokens: out}, 1},
		{`{"prompt_tokens":3,"completion_tokens":2,"cost":-1}`, council.Usage{InputTokens: in, OutputTokens: out}, 1},
		{`{"prompt_tokens":3,"completion_tokens":2,"cost":NaN}`, council.Usage{InputTokens: in, OutputTokens: out}, 1},
		{`{"prompt_tokens":3,"completion_tokens":2,"cost":-Infinity}`, council.Usage{InputTokens: in, OutputTokens: out}, 1},
		{`{"prompt_tokens":3,"completion_tokens":2,"cost":"0.5"}`, council.Usage{InputTokens: in, OutputTokens: out}, 1},
		{`{"prompt_tokens":9223372036854775807,"completion_tokens":2,"cost":0.5}`, council.Usage{OutputTokens: out, CostUSD: cost}, 1},
		{`{"prompt_tokens":9223372036854775808,"completion_tokens":2,"cost":0.5}`, council.Usage{OutputTokens: out, CostUSD: cost}, 1},
		{`{"prompt_tokens":3,"completion_tokens":-2,"cost":0.5}`, council.Usage{InputTokens: in, CostUSD: cost}, 1},
		{`{"prompt_tokens":"3","completion_tokens":2.5,"cost":0.5}`, council.Usage{CostUSD: cost}, 2},
		{`{"prompt_tokens":3.0,"completion_tokens":2e0,"cost":0}`, council.Usage{InputTokens: in, OutputTokens: out, CostUSD: new(0.0)}, 0},
		{`{"prompt_tokens":[1],"completion_tokens":{},"cost":true}`, council.Usage{}, 3},
		{
			`{"prompt_tokens":3,"completion_tokens":2,"cost":0.5,"prompt_tokens_details":"none","total_tokens":{"sum":"5"}}`,
			council.Usage{InputTokens: in, OutputTokens: out, CostUSD: cost},
			1,
		},
		{`[]`, council.Usage{}, 0},
		{`{"prompt_tokens":0,"completion_tokens":0,"cost":null}`, council.Usage{}, 0},
		{`"none"`, council.Usage{}, 0},
		{`null`, council.Usage{}, 0},
	} {
		const text = `NaN, \"Infinity\"`
		body := fmt.Sprintf(`{"choices":[{"message":{"content":"%s"},"finish_reason":"stop"}],"usage":%s}`, text, tt.usage)
		stream := fmt.Sprintf(`data: {"choices":[{"delta":{"content":"%s"},"finish_reason":"stop"}]}`+"\n\n"+
			`data: {"choices":[],"usage":%s}`+"\n\ndata: [DONE]\n\n", text, tt.usage)
		for name, play := range map[string]roundTripper{"whole": reply(200, body), "stream": eventStream(stream)} {
			t.Run(name+" "+tt.usage, func(t *testing.T) {
				call := aCall()
				if name == "stream" {
					call.OnDelta = func(string) {}
				}
				got, err := fakeClient(t, fakeOptions(), play).Complete(t.Context(), call)
				if err != nil || got.Text != `NaN, "Infinity"` {
					t.Errorf("got %q, %v", got.Text, err)
				}
				if diff := cmp.Diff(tt.want, got.Usage); diff != "" {
					t.Error(diff)
				}
				if got.Implausible != tt.implausible {
					t.Errorf("%d figures were doubted, want %d", got.Implausible, tt.implausible)
				}
			})
		}
	}
}

// told performs a call whose reply reports the usage, as a whole or as a stream, and returns what its receipt is told.
func told(t *testing.T, play roundTripper, stream bool) (council.Consumed, council.Completion) {
	t.Helper()
	var consumed council.Consumed
	o := fakeOptions()
	call := aCall()
	call.Begin = func(context.Context, council.Attempt) (council.Receipt, *council.Failure) {
		first := true
		return settled(func(c council.Consumed) *float64 {
			if first {
				consumed, first = c, false
			}
			return nil
		}), nil
	}
	if stream {
		call.OnDelta = func(string) {}
	}
	got, _ := fakeClient(t, o, play).Complete(t.Context(), call)
	return consumed, got
}

// Tokens that a provider reports outside of prompt and completion are counted: of what its figures can mean, the most.
func TestTokensBesideTheCompletion(t *testing.T) {
	for _, tt := range []struct {
		name, usage   string
		input, output int64 // 0: unknown
		kinds         council.TokenKinds
		implausible   int
	}{
		{"Gemini's thoughts", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":20150}`, 100, 20050, council.TokenKinds{Reasoning: 20000}, 0},
		{
			"xAI's reasoning",
			`{"prompt_tokens":100,"completion_tokens":50,"total_tokens":20150,"completion_tokens_details":{"reasoning_tokens":20000}}`,
			100, 20050,
			council.TokenKinds{Reasoning: 20000},
			0,
		},
		{
			"short reasoning beside a long completion",
			`{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":12428,"completion_tokens_details":{"reasoning_tokens":809}}`,
			10120, 2308,
			council.TokenKinds{Reasoning: 809},
			0,
		},
		{
			"reasoning without a total",
			`{"prompt_tokens":100,"completion_tokens":50,"completion_tokens_details":{"reasoning_tokens":20000}}`,
			100, 20050,
			council.TokenKinds{Reasoning: 20000},
			0,
		},
		{
			"reasoning that the total leaves out", // as Perplexity reports it
			`{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"reasoning_tokens":20000}`,
			100, 20050,
			council.TokenKinds{Reasoning: 20000},
			0,
		},
		{
			"more than the reasoning explains",
			`{"prompt_tokens":100,"completion_tokens":50,"total_tokens":20150,"completion_tokens_details":{"reasoning_tokens":300}}`,
			100, 20050,
			council.TokenKinds{Reasoning: 20000},
			0,
		},
		{
			"thoughts and no text",
			`{"prompt_tokens":21,"completion_tokens":0,"total_tokens":81,"completion_tokens_details":{"reasoning_tokens":60}}`,
			21, 60,
			council.TokenKinds{Reasoning: 60},
			0,
		},
		{"thoughts alone", `{"prompt_tokens":21,"completion_tokens_details":{"reasoning_tokens":60}}`, 21, 60, council.TokenKinds{Reasoning: 60}, 0},
		{"no completion", `{"prompt_tokens":21,"total_tokens":81}`, 21, 60, council.TokenKinds{}, 0},
		{"no prompt", `{"completion_tokens":21,"total_tokens":81}`, 0, 21, council.TokenKinds{}, 0},
		{"a total alone", `{"total_tokens":81}`, 0, 0, council.TokenKinds{}, 0},

		{
			"OpenAI's reasoning is part of the completion",
			`{"prompt_tokens":500,"completion_tokens":500,"total_tokens":1000,"completion_tokens_details":{"reasoning_tokens":200}}`,
			500, 500,
			council.TokenKinds{Reasoning: 200},
			0,
		},
		{
			"all of it is reasoning",
			`{"prompt_tokens":500,"completion_tokens":400,"total_tokens":900,"completion_tokens_details":{"reasoning_tokens":400}}`,
			500, 400,
			council.TokenKinds{Reasoning: 400},
			0,
		},
		{
			"no thoughts", `{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9,"completion_tokens_details":{"reasoning_tokens":0}}`, 5, 4,
			council.TokenKinds{},
			0,
		},
		{"a total of the prompt alone", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":100}`, 100, 50, council.TokenKinds{}, 0},
		{"a total of 0", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":0}`, 100, 50, council.TokenKinds{}, 0},
		{"no total", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":null}`, 100, 50, council.TokenKinds{}, 0},
		{"a total below 0", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":-7}`, 100, 50, council.TokenKinds{}, 1},
		{"a total beyond reason", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":9223372036854775807}`, 100, 50, council.TokenKinds{}, 1},
		{"a total in words", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":"many"}`, 100, 50, council.TokenKinds{}, 1},
		{
			"reasoning beyond reason",
			`{"prompt_tokens":100,"completion_tokens":50,"completion_tokens_details":{"reasoning_tokens":1e18}}`, 100, 50,
			council.TokenKinds{},
			0,
		},
		{
			"a completion that is not believed",
			`{"prompt_tokens":100,"completion_tokens":-5,"completion_tokens_details":{"reasoning_tokens":60}}`, 100, 0,
			council.TokenKinds{Reasoning: 60},
			1,
		},

		{
			"cached tokens of the prompt",
			`{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920}}`,
			2006, 300,
			council.TokenKinds{CachedInput: 1920},
			0,
		},
		{
			"cached tokens beside the prompt",
			`{"prompt_tokens":50,"completion_tokens":300,"total_tokens":2350,"prompt_tokens_details":{"cached_tokens":1500,"cache_write_tokens":500}}`,
			2050, 300,
			council.TokenKinds{CachedInput: 1500, CacheWrite: 500},
			0,
		},
		{
			"few cached tokens beside the prompt", // they may be thoughts, too
			`{"prompt_tokens":500,"completion_tokens":300,"total_tokens":900,"prompt_tokens_details":{"cached_tokens":100}}`,
			500, 400,
			council.TokenKinds{CachedInput: 100, Reasoning: 100},
			0,
		},
		{
			"cached tokens that no figure names", // some gateways have them in the total alone
			`{"prompt_tokens":50,"completion_tokens":300,"total_tokens":2350}`, 50, 2300, council.TokenKinds{Reasoning: 2000}, 0,
		},
	} {
		want := council.Usage{}
		// What the provider calls reasoning counts, and no more: that totals leave thinking unnamed is a guess.
		if n, ok := map[string]int64{
			"xAI's reasoning": 20000, "short reasoning beside a long completion": 809, "reasoning without a total": 20000,
			"reasoning that the total leaves out": 20000, "more than the reasoning explains": 300, "thoughts and no text": 60,
			"thoughts alone": 60, "OpenAI's reasoning is part of the completion": 200, "all of it is reasoning": 400, "no thoughts": 0,
		}[tt.name]; ok {
			want.ReasoningTokens = &n
		}
		if tt.input > 0 {
			want.InputTokens = &tt.input
		}
		if tt.kinds.CachedInput > 0 {
			want.CachedInputTokens = &tt.kinds.CachedInput
		}
		if tt.output > 0 {
			want.OutputTokens = &tt.output
		}
		const text = `{"choices":[{"index":0,"message":{"content":"text"},"finish_reason":"stop"}],"usage":%s}`
		const chunks = `data: {"choices":[{"delta":{"content":"text"},"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"choices":[],"usage":%s}` + "\n\ndata: [DONE]\n\n"
		for name, play := range map[string]roundTripper{
			"whole": reply(200, fmt.Sprintf(text, tt.usage)), "stream": eventStream(fmt.Sprintf(chunks, tt.usage)),
			"in any form": reply(200, fmt.Sprintf(text, tt.usage[:len(tt.usage)-1]+`,"X":1}`)),
		} {
			consumed, got := told(t, play, name == "stream")
			if diff := cmp.Diff(council.Consumed{Status: 200, Usage: want, Kinds: tt.kinds}, consumed); diff != "" || got.Implausible != tt.implausible {
				t.Errorf("%s, %s: %d doubted, want %d (-want +got):\n%s", tt.name, name, got.Implausible, tt.implausible, diff)
			}
			if diff := cmp.Diff(want, got.Usage); diff != "" {
				t.Errorf("%s, %s: usage of the call (-want +got):\n%s", tt.name, name, diff)
			}
		}
	}
}

// The usage of a stream is that of all of it. Figures may come in parts and several times. If the stream breaks, they
// cover a part of it, and the usage is unknown.
func TestUsageOfStreams(t *testing.T) {
	event := func(text, finish, usage string) string {
		return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}],"usage":%s}`+"\n\n", text, finish, usage)
	}
	const none, stop, done = "null", `"stop"`, "data: [DONE]\n\n"
	const part = `{"prompt_tokens":100,"completion_tokens":1,"total_tokens":900}`
	for name, tt := range map[string]struct {
		stream        string
		input, output int64 // 0: unknown
		implausible   int
	}{
		"it grows":            {event("a", none, part) + event("b", stop, `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":20150}`) + done, 100, 20050, 0},
		"the end has 0":       {event("a", stop, part) + event("", none, `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`) + done, 100, 800, 0},
		"input at first":      {event("a", none, `{"prompt_tokens":100}`) + event("b", stop, `{"completion_tokens":50,"total_tokens":20150}`) + done, 100, 20050, 0},
		"no mark at the end":  {event("a", none, part) + event("b", stop, part), 100, 800, 0},
		"no usage at the end": {event("a", none, part) + event("b", stop, none), 0, 0, 0},
		"before the mark":     {event("a", none, part) + event("b", stop, none) + done, 100, 800, 0},
		"behind the text":     {event("a", stop, none) + event("", none, part), 100, 800, 0},
		"cut off":             {event("a", none, part), 0, 0, 0},
		"an error":            {event("a", none, part) + `data: {"error":{"message":"overloaded"}}` + "\n\n", 0, 0, 0},
		"an error with its usage": {
			event("a", none, part) + `data: {"error":{"message":"overloaded"},"usage":{"prompt_tokens":100,"completion_tokens":9}}` + "\n\n", 100, 800, 0,
		},
		"refused behind a part": {
			`data: {"choices":[],"usage":{"prompt_tokens":100}}` + "\n\n" + `data: {"error":{"message":"slow down","code":429}}` + "\n\n", 0, 0, 0,
		},
		"a figure in words": {event("a", none, part) + event("b", stop, `{"prompt_tokens":"x"}`) + done, 0, 1, 1},
	} {
		consumed, got := told(t, eventStream(tt.stream), true)
		var input, output int64
		if n := consumed.Usage.InputTokens; n != nil {
			input = *n
		}
		if n := consumed.Usage.OutputTokens; n != nil {
			output = *n
		}
		if input != tt.input || output != tt.output || got.Implausible != tt.implausible || consumed.Free {
			t.Errorf("%s: %d and %d tokens, want %d and %d; %d doubted", name, input, output, tt.input, tt.output, got.Implausible)
		}
	}
}

// The cost of a request includes what the provider behind a gateway charges.
func TestCostBehindAGateway(t *testing.T) {
	for usage, want := range map[string]float64{
		`{"cost":0.00258818,"is_byok":false,"cost_details":{"upstream_inference_cost":0.00258818}}`: 0.00258818,
		`{"cost":0.3,"cost_details":{"upstream_inference_cost":0.1}}`:                               0.3,
		`{"cost":0.3,"is_byok":false,"cost_details":{"upstream_inference_cost":null}}`:              0.3,
		`{"cost":0,"is_byok":true,"cost_details":{"upstream_inference_cost":0.0360795}}`:            0.0360795,
		`{"cost":0.95,"is_byok":true,"cost_details":{"upstream_inference_cost":19}}`:                19.95,
		`{"cost":0.1,"is_byok":true,"cost_details":{"upstream_inference_cost":0.2}}`:                0.3,
		`{"cost":0.95,"cost_details":{"upstream_inference_cost":19}}`:                               19,
		`{"is_byok":true,"cost_details":{"upstream_inference_cost":0.5}}`:                           0.5,
		`{"cost":0.3,"is_byok":true,"cost_details":{"upstream_inference_cost":-1}}`:                 0.3,
		`{"cost":0.3,"is_byok":"yes","cost_details":["x"]}`:                                         0.3,
		`{"cost":0,"is_byok":true}`:                                                  0,
		`{"cost":0.1234567890123456}`:                                                0.123456789012,
		`{"cost":-1,"cost_details":{"upstream_inference_cost":null}}`:                -1, // unknown
		`{"cost":{"total_cost":1},"cost_details":{"upstream_inference_cost":2}}`:     -1,
		`{"cost":1,"is_byok":true,"cost_details":{"upstream_inference_cost":1e308}}`: -1,
	} {
		_, got := told(t, reply(200, `{"choices":[{"message":{"content":"text"}}],"usage":`+usage+`}`), false)
		cost := -1.0
		if got.Usage.CostUSD != nil {
			cost = *got.Usage.CostUSD
		}
		if cost != want || (got.Implausible > 0) != (want < 0) {
			t.Errorf("%s: %v, want %v; %d doubted", usage, cost, want, got.Implausible)
		}
	}
}
