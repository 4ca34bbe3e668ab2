package llm

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
)

// roundTripper is a provider without a network. It takes the place of the connections, so
// that tests run with the fake clock of synctest.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// fakeOptions are the defaults of the settings.
func fakeOptions() Options {
	return Options{
		Providers: []Provider{{BaseURL: "http://provider.test/v1"}}, AttemptTimeout: 3 * time.Minute, MaxAttempts: 3,
		DialTimeout: 5 * time.Second,
		IdleTimeout: time.Minute, MaxCallsPerProvider: 64, MaxReplyBytes: 1 << 20,
	}
}

func fakeClient(tb testing.TB, o Options, f roundTripper) *Client {
	tb.Helper()
	c, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	c.providers[""].transport.base = f
	return c
}

// sequence is a provider that answers with its plays one after the other, and then always
// with the last one. It keeps the times of the requests since the first one.
type sequence struct {
	plays []roundTripper
	start time.Time
	times []time.Duration
}

func (s *sequence) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.start.IsZero() {
		s.start = time.Now()
	}
	s.times = append(s.times, time.Since(s.start))
	return s.plays[min(len(s.times), len(s.plays))-1](r)
}

// status answers with a status and headers, given as name, value, name, value...
func status(code int, headers ...string) roundTripper {
	return reply(code, `{"error":{"message":"played"}}`, headers...)
}

func reply(code int, body string, headers ...string) roundTripper {
	return func(*http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: code, Header: http.Header{}, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
		}
		for i := 0; i < len(headers); i += 2 {
			resp.Header.Set(headers[i], headers[i+1])
		}
		return resp, nil
	}
}

const goodBody = `{"choices":[{"message":{"content":"text"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,` +
	`"cost":0.5}}`

func good() roundTripper { return reply(http.StatusOK, goodBody) }

// eventStream answers with server-sent events.
func eventStream(body string) roundTripper {
	return reply(http.StatusOK, body, "Content-Type", "text/event-stream; charset=utf-8")
}

// chunks are the events of the texts, with the end of a stream.
func chunks(texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		b.WriteString(`data: {"choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}` + "\n\n")
	}
	return b.String() + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
}

// broke answers 200 and breaks off in the middle of the body.
func broke(err error) roundTripper {
	return func(*http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(`{"choices":[`), failing{err})
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// refuses does not connect.
func refuses() roundTripper {
	return func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
}

// hangs never answers.
func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// slowly answers with a body whose pieces each come after a pause.
func slowly(contentType string, pause time.Duration, pieces ...string) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		body := &paused{ctx: r.Context(), pause: pause, pieces: slices.Clone(pieces)}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body)}, nil
	}
}

type paused struct {
	ctx    context.Context //nolint:containedctx // a body ends with its request
	pause  time.Duration
	pieces []string
}

func (p *paused) Read(b []byte) (int, error) {
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(p.pause):
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
	n := copy(b, p.pieces[0])
	if p.pieces[0] = p.pieces[0][n:]; p.pieces[0] == "" {
		p.pieces = p.pieces[1:]
	}
	return n, nil
}

func aCall() council.Call {
	return council.Call{Model: "m", Messages: []council.Message{{Role: council.RoleUser, Content: "Why?"}}}
}
