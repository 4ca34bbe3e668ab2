package llm

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
)

// Each request of a call begins with the size of its body, and its receipt is told what became
// of it: nothing was consumed where the provider was not reached or refused the request.
func TestBegin(t *testing.T) {
	var sent []int // bytes of the bodies, in the order in which they were sent
	counted := func(play roundTripper) roundTripper {
		return func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			sent = append(sent, len(body))
			return play(r)
		}
	}
	noConnection := func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: io.ErrClosedPipe}
	}
	full := `{"choices":[{"message":{"content":"text"}}],"usage":{"prompt_tokens":30,"completion_tokens":20,` +
		`"prompt_tokens_details":{"cached_tokens":5,"cache_write_tokens":6,"audio_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":7,"x":{}}}}`
	for _, c := range []struct {
		name  string
		plays []roundTripper
		want  []string // per request: free, the tokens, and those with prices of their own
		cost  string   // of the completion
	}{
		{"at once", []roundTripper{reply(200, full)}, []string{"false 30 20 {5 6 7}"}, "0.25"},
		{"the provider tells another cost", []roundTripper{good()}, []string{"false 3 2 {0 0 0}"}, "0.25"},
		{
			"after two that failed",
			[]roundTripper{status(503), status(429), reply(200, full)},
			[]string{"false unknown {0 0 0}", "true unknown {0 0 0}", "false 30 20 {5 6 7}"},
			"0.25",
		},
		{
			"without a connection at first",
			[]roundTripper{noConnection, reply(200, full)},
			[]string{"true unknown {0 0 0}", "false 30 20 {5 6 7}"},
			"0.25",
		},
		{
			"cut off",
			[]roundTripper{reply(200, full[:20]), reply(200, `{"choices":[{"message":{"content":"text"}}]}`)},
			[]string{"false unknown {0 0 0}"},
			"unknown",
		},
		{
			"with parts that cannot be read",
			[]roundTripper{reply(200, strings.Replace(full, `{"cached_tokens":5,`, `{"cached_tokens":"x","cached_tokens":-5,`, 1))},
			[]string{"false 30 20 {0 6 7}"},
			"0.25",
		},
		{
			"with parts of another form",
			[]roundTripper{reply(200, strings.Replace(full, `{"reasoning_tokens":7,"x":{}}`, `[1]`, 1))},
			[]string{"false 30 20 {5 6 0}"},
			"0.25",
		},
	} {
		race.Bubble(t, func(t *testing.T) {
			sent = nil
			var asked []int
			var got []string
			o := fakeOptions()
			begin := func(_ context.Context, a council.Attempt) (council.Receipt, *council.Failure) {
				asked = append(asked, int(a.Bytes))
				if a.Number != len(asked) {
					t.Errorf("%s: attempt %d is number %d", c.name, len(asked), a.Number)
				}
				done := false
				return settled(func(consumed council.Consumed) *float64 {
					if done {
						return nil
					}
					done = true
					tokens := "unknown"
					if consumed.Usage.InputTokens != nil && consumed.Usage.OutputTokens != nil {
						tokens = fmt.Sprintf("%d %d", *consumed.Usage.InputTokens, *consumed.Usage.OutputTokens)
					}
					got = append(got, fmt.Sprintf("%v %s %v", consumed.Free, tokens, consumed.Kinds))
					if tokens == "unknown" {
						return nil
					}
					return new(0.25)
				}), nil
			}
			provider := &sequence{plays: c.plays}
			client := fakeClient(t, o, counted(provider.RoundTrip))
			call := council.Call{Model: "m", Messages: []council.Message{{Role: "user", Content: "Wh\ny?"}}, Begin: begin}
			size := client.Bytes(call)
			completion, _ := client.Complete(t.Context(), call)
			if len(asked) == 0 || size != int64(asked[0]) {
				t.Errorf("%s: the first request was to have %d bytes: %d", c.name, size, asked)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			cost := "unknown"
			if completion.Usage.CostUSD != nil {
				cost = fmt.Sprint(*completion.Usage.CostUSD)
			}
			if cost != c.cost {
				t.Errorf("%s: cost %s, want %s", c.name, cost, c.cost)
			}
			if len(asked) == 0 || len(sent) > 0 && !slices.Equal(asked[:len(sent)], sent) {
				t.Errorf("%s: bodies of %d bytes were sent, and %d were reserved", c.name, sent, asked)
			}
		})
	}
}

// settled is a Receipt.
type settled func(council.Consumed) *float64

func (f settled) Finish(_ context.Context, c council.Consumed) *float64 { return f(c) }

// A request that may not begin is not sent, and ends the call.
func TestBeginRefuses(t *testing.T) {
	o := fakeOptions()
	requests := 0
	begin := func(_ context.Context, a council.Attempt) (council.Receipt, *council.Failure) {
		if a.Number == 2 {
			return nil, &council.Failure{Code: council.FailBudget, Message: "no room"}
		}
		return nil, nil
	}
	race.Bubble(t, func(t *testing.T) {
		client := fakeClient(t, o, func(r *http.Request) (*http.Response, error) {
			requests++
			return status(503)(r)
		})
		for range 2 * o.MaxCallsPerProvider { // a refusal gives its place back
			completion, err := client.Complete(t.Context(), council.Call{Model: "m", Begin: begin})
			if f := council.AsFailure(err); f == nil || f.Code != council.FailBudget && f.Code != council.FailUnavailable && f.Code != council.FailBreakerOpen {
				t.Fatal(f)
			}
			if completion.Attempts > 1 {
				t.Fatalf("%d attempts", completion.Attempts)
			}
		}
	})
	if requests == 0 {
		t.Error("nothing was sent")
	}
}
