package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	openai "github.com/sashabaranov/go-openai"
)

// BenchmarkComplete measures one call without the network, in the sizes of a
// session's stages, and the same call with go-openai alone, which spends most of its time
// on reading and decoding the body.
func BenchmarkComplete(b *testing.B) {
	for _, stage := range []struct {
		name           string
		prompt, answer int // bytes
	}{{"answer", 400, 2000}, {"review", 9500, 1200}, {"chairman", 14000, 2000}} {
		call := council.Call{
			Model: "m", Messages: []council.Message{{Role: council.RoleUser, Content: strings.Repeat("word ", stage.prompt/5)}},
		}
		text, err := json.Marshal(strings.Repeat("word ", stage.answer/5))
		if err != nil {
			b.Fatal(err)
		}
		provider := reply(http.StatusOK, strings.Replace(goodBody, `"text"`, string(text), 1))
		b.Run(stage.name+"/councild", func(b *testing.B) {
			c := fakeClient(b, fakeOptions(), discarding(provider))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Complete(b.Context(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(stage.name+"/go-openai", func(b *testing.B) {
			api := bareClient(discarding(provider))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := api.CreateChatCompletion(b.Context(), bareRequest(call)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStreamChunk measures one chunk of a stream and go-openai's Recv by turns, so
// that other work of the machine slows both. With "obfuscation" a chunk has the padding
// that OpenAI adds, with "escapes" its text needs decoding.
func BenchmarkStreamChunk(b *testing.B) {
	const n = 1000
	for _, bench := range []struct{ name, text, tail string }{
		{"plain", " word", ""}, {"escapes", `.\n\n`, ""}, {"obfuscation", " word", `,"obfuscation":"a8sK2mQ"`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			chunk := fmt.Sprintf(
				`data: {"id":"chatcmpl-9xQ3","object":"chat.completion.chunk","created":1770000000,"model":"maker/model",`+
					`"system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,`+
					`"finish_reason":null}]%s}`+"\n\n",
				bench.text, bench.tail,
			)
			provider := discarding(eventStream(strings.Repeat(chunk, n) + chunks()))
			c, api := fakeClient(b, fakeOptions(), provider), bareClient(provider)
			call := aCall()
			seen := 0
			call.OnDelta = func(text string) { seen += len(text) }
			var ours, theirs time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := c.Complete(b.Context(), call); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				if err := receive(b.Context(), api, bareRequest(call)); err != nil {
					b.Fatal(err)
				}
				ours, theirs = ours+middle.Sub(start), theirs+time.Since(middle)
			}
			if seen < n*b.N {
				b.Fatalf("%d bytes of text", seen)
			}
			perChunk := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(n*b.N) }
			b.ReportMetric(perChunk(ours), "ns/chunk")
			b.ReportMetric(perChunk(theirs), "recv-ns/chunk")
			b.ReportMetric(float64(ours)/float64(theirs), "ratio")
			b.ReportMetric(0, "ns/op") // both together: of no meaning
		})
	}
}

// discarding reads the request as a connection would.
func discarding(f roundTripper) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		return f(r)
	}
}

func bareClient(f roundTripper) *openai.Client {
	config := openai.DefaultConfig("")
	config.BaseURL = "http://provider.test/v1"
	config.HTTPClient = &http.Client{Transport: f}
	return openai.NewClientWithConfig(config)
}

func bareRequest(call council.Call) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model: call.Model, Messages: []openai.ChatCompletionMessage{{Role: call.Messages[0].Role, Content: call.Messages[0].Content}},
	}
}

func receive(ctx context.Context, api *openai.Client, request openai.ChatCompletionRequest) error {
	stream, err := api.CreateChatCompletionStream(ctx, request)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
