package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/testkit/doortest"
)

// replayed is a Council whose sessions are four answers and reviews of 2 KB, and a
// final answer of the given number of deltas, all at once.
type replayed struct {
	neverConvenes
	deltas int
	ids    *atomic.Int64
}

func (replayed) Check(context.Context, council.Plan) error { return nil }

func (c replayed) Prepare(council.Request) (council.Plan, error) {
	return council.Plan{SessionID: strconv.FormatInt(c.ids.Add(1), 10), Order: council.OrderShared}, nil
}

func (c replayed) Run(_ context.Context, plan council.Plan, o council.Observer, _ *runlog.Log) (*council.Session, error) {
	s := plan.Session()
	s.Status = council.StatusComplete
	text := strings.Repeat("Some \"quoted\" text.\n", 100)
	for range 4 {
		answer, review := council.Answer{Model: "a", Response: &text}, council.Review{Model: "a", Ranking: &text}
		s.Stage1, s.Stage2 = append(s.Stage1, answer), append(s.Stage2, review)
		o.Observe(council.Event{Type: council.EventAnswer, Data: answer})
		o.Observe(council.Event{Type: council.EventBallot, Data: review})
	}
	for range c.deltas {
		o.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: " a few words"}})
	}
	s.Answer = strings.Repeat(" a few words", c.deltas)
	return s, nil
}

func benchServer(b *testing.B, deltas int) *httptest.Server {
	b.Helper()
	a, err := httpapi.New(httpapi.Options{
		Council: replayed{deltas: deltas, ids: new(atomic.Int64)}, Daemon: &doortest.Daemon{}, Spend: &doortest.Daemon{}, Comparer: &doortest.Daemon{},
		Log: slog.New(slog.DiscardHandler), MaxSessions: 4,
		Kept: sessions.Options{Retention: time.Hour, Kept: 4, KeptBytes: 1 << 30}, MaxBodyBytes: 1 << 20,
		BodyTimeout: time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	a.Mount(openai.Routes(a)...)
	server := httptest.NewServer(a)
	b.Cleanup(server.Close)
	return server
}

// read sends a request and reads the response to its end.
func read(b *testing.B, server *httptest.Server, method, path, body string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, err)
	}
	b.SetBytes(n)
}

// BenchmarkWatch is one more watcher of a session whose events are encoded already.
func BenchmarkWatch(b *testing.B) {
	for _, deltas := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("deltas=%d", deltas), func(b *testing.B) {
			server := benchServer(b, deltas)
			read(b, server, "POST", "/v1/council", `{"query":"x"}`)
			b.ReportAllocs()
			for b.Loop() {
				read(b, server, "GET", "/v1/council/1/events", "")
			}
		})
	}
}

// BenchmarkCompletion is a session with one client, in each form of an answer.
func BenchmarkCompletion(b *testing.B) {
	const chat = `{"model":"council","messages":[{"role":"user","content":"x"}]`
	for _, bench := range []struct{ name, path, body string }{
		{"plain", "/v1/council", `{"query":"x"}`},
		{"events", "/v1/council", `{"query":"x","stream":true}`},
		{"chat", "/v1/chat/completions", chat + "}"},
		{"chat-stream", "/v1/chat/completions", chat + `,"stream":true}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			server := benchServer(b, 500)
			b.ReportAllocs()
			for b.Loop() {
				read(b, server, "POST", bench.path, bench.body)
			}
		})
	}
}
