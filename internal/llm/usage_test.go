package llm

import (
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
		usage   string
		want    council.Usage
		doubted int
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
			0,
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
				if got.Doubted != tt.doubted {
					t.Errorf("%d figures were doubted, want %d", got.Doubted, tt.doubted)
				}
			})
		}
	}
}
