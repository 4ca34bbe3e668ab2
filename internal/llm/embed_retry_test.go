package llm

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/testkit/race"
)

const goodEmbeddings = `{"data":[{"index":0,"embedding":[1,2]}],"usage":{"prompt_tokens":3,"total_tokens":3}}`

func anEmbedding() council.Call { return council.Call{Model: "m", Texts: []string{"Why?"}} }

// Embeddings are asked for again, pass the gate and count for the breaker as completions do.
func TestEmbeddingsAsAnyCall(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		played := &sequence{plays: []roundTripper{status(503), status(429, "Retry-After", "20"), reply(200, goodEmbeddings)}}
		var passed []int64
		var consumed []council.Consumed
		o := fakeOptions()
		call := anEmbedding()
		call.Begin = func(_ context.Context, a council.Attempt) (council.Receipt, *council.Failure) {
			passed = append(passed, a.Bytes)
			var first sync.Once
			return settles(func(c council.Consumed) { first.Do(func() { consumed = append(consumed, c) }) }), nil
		}
		c := fakeClient(t, o, played.RoundTrip)
		got, err := c.Complete(t.Context(), call)
		if err != nil || got.Attempts != 3 || got.Text != "[[1]]" {
			t.Fatalf("%d attempts, %q, %v", got.Attempts, got.Text, err)
		}
		if wait := played.times[2] - played.times[1]; wait < 20*time.Second || wait > 21*time.Second {
			t.Errorf("asked again %v after being told to wait 20 s", wait)
		}
		want := int64(len(`{"model":"m","input":["Why?"]}`))
		if len(passed) != 3 || passed[0] != want || passed[2] != want {
			t.Errorf("the gate was told of requests of %v bytes, want 3 of %d", passed, want)
		}
		last := consumed[len(consumed)-1]
		if last.Free || *last.Usage.InputTokens != 3 || *last.Usage.OutputTokens != 0 {
			t.Errorf("the last request consumed %+v", last)
		}
		if !consumed[1].Free {
			t.Error("a request that was refused with 429 cost something")
		}

		down := fakeClient(t, once(), status(500))
		for range breakerRequests {
			_, _ = down.Complete(t.Context(), anEmbedding())
		}
		if got := down.Breakers()[0].State; got != council.BreakerOpen {
			t.Errorf("after %d failures the breaker is %s", breakerRequests, got)
		}
	})
}

type settles func(council.Consumed)

func (f settles) Finish(_ context.Context, c council.Consumed) *float64 {
	f(c)
	return nil
}

// Reading embeddings takes time in proportion to the reply, whatever it holds.
func TestEmbeddingTimePerByte(t *testing.T) {
	for name, unit := range map[string]string{
		"numbers":           `{"data":[{"embedding":[1|,-0.0123|]}]}`,
		"empty elements":    `{"data":[{}|,{}|]}`,
		"elements":          `{"data":[{"embedding":[1]}|,{"embedding":[1]}|]}`,
		"depth":             `{"data":|[|`,
		"keys on end":       `{"data":[]|,"data":[]|}`,
		"lists on end":      `{"data":[{"embedding":[1]|,"embedding":[1]|}]}`,
		"texts for numbers": `{"data":[{"embedding":[1|,"x"|]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			parts := strings.Split(unit, "|")
			o := once()
			o.MaxReplyBytes = 4 << 20
			growth.Linear(t, func(n int) func() {
				c := fakeClient(t, o, reply(http.StatusOK, parts[0]+strings.Repeat(parts[1], n/len(parts[1]))+parts[2]))
				return func() { _, _ = c.Complete(t.Context(), anEmbedding()) }
			})
		})
	}
}
