package llm

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// Reading a provider's text takes time in proportion to its length, whatever the text is
// and however it is read.
func TestTimePerByte(t *testing.T) {
	const sse, plain = "text/event-stream", "application/json"
	filled := func(before, unit, after string) func(n int) string {
		return func(n int) string { return before + strings.Repeat(unit, n/len(unit)) + after }
	}
	tests := []struct {
		name        string
		status      int
		contentType string
		body        func(n int) string
	}{
		{"empty choices", 200, plain, filled(`{"choices":[{}`, `,{}`, `]}`)},
		{"choices on end", 200, plain, filled(`{"choices":[]`, `,"choices":[{}]`, `}`)},
		{"empty parts", 200, plain, filled(`{"choices":[{"message":{"content":[{}`, `,{}`, `]}}]}`)},
		{"parts of one letter", 200, plain, filled(`{"choices":[{"message":{"content":[{}`, `,{"text":"a"}`, `]}}]}`)},
		{"escapes", 200, plain, filled(`{"choices":[{"message":{"content":"`, `\u0041`, `"}}]}`)},
		{"characters without width", 200, plain, filled(`{"choices":[{"message":{"content":"`, "\u200b", `"}}]}`)},
		{"blanks behind an answer", 200, plain, filled(goodBody, " ", "x")},
		{"depth", 200, plain, filled(`{"choices":`, `[`, ``)},
		{"errors in errors", 200, plain, filled("", `{"error":`, "")},
		{"a list of errors", 200, plain, filled(`{"error":["x"`, `,["x"]`, `]}`)},
		{"a long error", 500, plain, filled(`{"error":{"message":"`, `sk-a-secret-key`, `"}}`)},
		{"nearly keys", 200, plain, filled(`{"error":"`, `sk-a-secret-ke`, `"}`)},
		{"no numbers", 200, plain, filled(`{"usage":[0`, `,NaN`, `]}`)},
		{"bad UTF-8", 200, plain, filled(`{"error":"`, "\xff", `"}`)},
		{"one-letter chunks", 200, sse, filled("", `data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n", "data: [DONE]\n\n")},
		{"chunks with escapes", 200, sse, filled("", `data: {"choices":[{"delta":{"content":"\n"}}]}`+"\n\n", "data: [DONE]\n\n")},
		{"other choices", 200, sse, filled("", `data: {"choices":[{"index":1,"delta":{"content":"x"}}]}`+"\n\n", "data: [DONE]\n\n")},
		{"one chunk of choices", 200, sse, filled(`data: {"choices":[{}`, `,{}`, "]}\n\ndata: [DONE]\n\n")},
		{"comments", 200, sse, filled("", ":\n", "data: [DONE]\n\n")},
		{"CR", 200, sse, filled("", "\r", "data: [DONE]\n\n")},
		{"empty data", 200, sse, filled("", "data:\n", "data: [DONE]\n\n")},
		{"a long line", 200, sse, filled(":", "x", "\ndata: [DONE]\n\n")},
		{"an event on many lines", 200, sse, filled("data: {\n", "data:\"x\":1,\n", "data: \"y\":1}\n\ndata: [DONE]\n\n")},
		{"an event that never ends", 200, sse, filled("data: {\n", "data: {\n", "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := once()
			o.MaxReplyBytes = 4 << 20
			o.Providers[0].APIKey = "sk-a-secret-key"
			growth.Linear(t, func(n int) func() {
				c := fakeClient(t, o, reply(tt.status, tt.body(n), "Content-Type", tt.contentType))
				call := aCall()
				if tt.contentType == sse {
					call.OnDelta = func(string) {}
				}
				return func() {
					_, err := c.Complete(t.Context(), call)
					if f := council.AsFailure(err); f != nil && len(f.Message) > maxMessageBytes {
						t.Errorf("message of %d bytes", len(f.Message))
					}
				}
			})
		})
	}
}

// A call that is cancelled in the middle of a long reply ends there. It takes far less work than a call
// that reads and decodes the whole reply: an end that came late would take all of it. Time by the clock says nothing on a busy machine.
func TestCancelInALongReply(t *testing.T) {
	const size = growth.Large
	for name, body := range map[string]string{
		"choices": `{"choices":[{}` + strings.Repeat(`,{}`, size/3) + `]}`,
		"parts":   `{"choices":[{"message":{"content":[{}` + strings.Repeat(`,{}`, size/3) + `]}}]}`,
		"a text":  `{"choices":[{"message":{"content":"` + strings.Repeat(`\n`, size/2) + `"}}]}`,
		"stream":  strings.Repeat(`data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n", size/47),
	} {
		t.Run(name, func(t *testing.T) {
			o := once()
			o.MaxReplyBytes = 2 * size
			contentType := "application/json"
			call := aCall()
			if name == "stream" {
				contentType = "text/event-stream"
				call.OnDelta = func(string) {}
			}
			// work returns the processor time of a call in which cancel is called when half of the reply is read.
			work := func(ctx context.Context, cancel func(), cancelled bool) time.Duration {
				return growth.Took(t, func() {
					_, err := fakeClient(t, o, func(*http.Request) (*http.Response, error) {
						body := &cancelling{Reader: strings.NewReader(body), at: len(body) / 2, cancel: cancel}
						return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body)}, nil
					}).Complete(ctx, call)
					if f := council.AsFailure(err); f == nil || (f.Code == council.FailCancelled) != cancelled {
						t.Errorf("got %v", err)
					}
				})
			}
			var cut, whole time.Duration
			for range 5 { // other goroutines of the process count too
				ctx, cancel := context.WithCancel(t.Context())
				cut, whole = work(ctx, cancel, true), work(t.Context(), func() {}, false)
				if cut <= whole*3/4 {
					return
				}
			}
			t.Errorf("the cancelled call took %s, the whole one %s", cut, whole)
		})
	}
}

// cancelling is a body that has arrived, and during the reading of which its request is
// cancelled.
type cancelling struct {
	*strings.Reader
	at     int // how many bytes are left then
	cancel func()
}

func (c *cancelling) Read(p []byte) (int, error) {
	if c.cancel != nil && c.Len() <= c.at {
		c.cancel()
		c.cancel = nil
	}
	return c.Reader.Read(p)
}

// A prompt is copied once into a request, and again only where the connection has to be
// changed.
func TestRequestCopiesPromptOnce(t *testing.T) {
	const size = 8 << 20
	call := aCall()
	call.Messages = []council.Message{{Role: council.RoleUser, Content: strings.Repeat("a \"word\"\n", size/9)}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x := exchange{call: &call, model: "m"}
	body := x.request()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > size*3/2 {
		t.Errorf("%d bytes of memory for a prompt of %d", took, size)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://provider.test", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	x.fill(req)
	again, err := req.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []io.ReadCloser{req.Body, again} {
		sent, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(sent, body) || req.ContentLength != int64(len(body)) {
			t.Errorf("a body of %d bytes, announced as %d, error %v", len(sent), req.ContentLength, err)
		}
	}
}

// A prompt arrives with the head of its request, and what was sent is let go while the model thinks.
func TestSentIsLetGo(t *testing.T) {
	const size = 64 << 20
	call := aCall()
	call.Messages = []council.Message{{Role: council.RoleUser, Content: strings.Repeat("a", size)}}
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n < size {
			t.Errorf("%d bytes arrived: %v", n, err)
		}
		now := held() // the client may learn a moment later that all is sent
		for end := time.Now().Add(5 * time.Second); now > before+size/2 && time.Now().Before(end); now = held() {
			time.Sleep(time.Millisecond)
		}
		if now > before+size/2 {
			t.Errorf("while the model thinks, %d MiB are held", (now-before)>>20)
		}
		_, _ = io.WriteString(w, goodBody)
	}))
	t.Cleanup(provider.Close)
	o := fakeOptions()
	o.Providers[0].BaseURL = provider.URL
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if completion, err := c.Complete(t.Context(), call); err != nil || completion.Text != "text" {
		t.Errorf("%q, %v", completion.Text, err)
	}
	runtime.KeepAlive(call)
}
