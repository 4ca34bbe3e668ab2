package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
)

const other = "another-token-of-sixteen"

// Each token has limits of its own: who is over one leaves the others theirs.
func TestLimitsOfAToken(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	slow := simllm.Model{Name: "slow", Reply: func(task simllm.Task) (string, bool) {
		if task.Kind == simllm.Question {
			arrived <- struct{}{}
			<-release
		}
		return "", false
	}}
	s := start(t, []simllm.Model{slow}, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Tokens, o.Limits = []string{secret, other}, httpapi.Limits{Sessions: new(1), PerMinute: new(2)}
	})
	auth, others := []string{"Authorization", "Bearer " + secret}, []string{"Authorization", "Bearer " + other}
	done := make(chan int, 1)
	go func() {
		resp, _ := s.call(t, "POST", "/v1/council", `{"query":"x","models":["slow","amber"]}`, auth...)
		done <- resp.StatusCode
	}()
	<-arrived
	resp, p := s.askForProblem(t, "POST", "/v1/council", `{"query":"x"}`, auth...)
	if p.Status != 429 || p.Code != "over_limit" || !strings.Contains(p.Detail, "PER_TOKEN") || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("a second session at once: %+v, Retry-After %q", p, resp.Header.Get("Retry-After"))
	}
	if resp, data := s.call(t, "POST", "/v1/council", `{"query":"x"}`, others...); resp.StatusCode != 200 {
		t.Errorf("the other token: %d %s", resp.StatusCode, data)
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the running session answered %d", status)
	}
	// What was refused above does not count: this is the second of the minute.
	if resp, data := s.call(t, "POST", "/v1/council", `{"query":"x"}`, auth...); resp.StatusCode != 200 {
		t.Errorf("after it: %d %s", resp.StatusCode, data)
	}
	resp, p = s.askForProblem(t, "POST", "/v1/council", `{"query":"x"}`, auth...)
	wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if p.Status != 429 || p.Code != "over_limit" || !strings.Contains(p.Detail, "RATE_LIMIT") || err != nil || wait < 1 || wait > 30 {
		t.Errorf("a third session: %+v, Retry-After %q", p, resp.Header.Get("Retry-After"))
	}
	if resp, data := s.call(t, "POST", "/v1/council", `{"query":"x"}`, others...); resp.StatusCode != 200 {
		t.Errorf("the other token: %d %s", resp.StatusCode, data)
	}
}

// A body that never ends gets its answer, and gives its place back.
func TestSlowBody(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens, o.MaxSessions = []string{secret}, 1 })
	begun := time.Now()
	resp, data := s.stalled(t, "POST", "/v1/council", "Authorization", "Bearer "+secret)
	if took := time.Since(begun); resp.StatusCode != 408 || !strings.Contains(string(data), `"code":"too_slow"`) || took < 200*time.Millisecond {
		t.Errorf("after %s: %d %s", took, resp.StatusCode, data)
	}
	// Nor does it hold the connection of a request that is refused anyway.
	if resp, data = s.stalled(t, "POST", "/v1/council"); resp.StatusCode != 401 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if resp, data = s.call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", "Bearer "+secret); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}

// Bodies are held in memory, so only so many are read at once.
func TestManyBodies(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.MaxSessions, o.BodyTimeout = 1, time.Minute })
	reader, writer := io.Pipe()
	read := make(chan struct{}, 4)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { read <- struct{}{} }})
	var bodies sync.WaitGroup
	for range 4 {
		bodies.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/council", io.NopCloser(reader))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Expect", "100-continue") // the server says so when it begins to read
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 400 {
				t.Errorf("a body cut short: %d", resp.StatusCode)
			}
		})
	}
	for range 4 {
		<-read
	}
	if resp, p := s.askForProblem(t, "POST", "/v1/council", `{"query":"x"}`); p.Status != 503 || p.Code != "unavailable" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("got %+v", p)
	}
	_ = writer.Close()
	bodies.Wait()
	if resp, data := s.call(t, "POST", "/v1/council", `{"query":"x"}`); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}

// The time for the body is not the time for the session.
func TestLongSession(t *testing.T) {
	slow := simllm.Model{Name: "slow", Faults: []simllm.Fault{{Kind: simllm.FaultStall, Rate: 1, Delay: 300 * time.Millisecond}}}
	s := start(t, []simllm.Model{slow})
	if resp, data := s.call(t, "POST", "/v1/council", `{"query":"x","models":["slow","amber"]}`); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}

// timed notes the deadlines that a handler sets.
type timed struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (w *timed) SetReadDeadline(t time.Time) error {
	w.read = append(w.read, t)
	return nil
}

func (w *timed) SetWriteDeadline(t time.Time) error {
	w.write = append(w.write, t)
	return nil
}

func TestDeadlines(t *testing.T) {
	s := start(t, nil)
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	begun := time.Now()
	s.api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/v1/council", strings.NewReader(`{"query":"x"}`)))
	if w.Code != 200 || len(w.read) != 2 || w.read[0].Before(begun.Add(200*time.Millisecond)) || !w.read[1].IsZero() {
		t.Errorf("%d, read deadlines %v", w.Code, w.read)
	}
	if len(w.write) != 1 || w.write[0].Before(begun.Add(time.Minute)) || w.write[0].After(time.Now().Add(time.Minute)) {
		t.Errorf("write deadlines %v", w.write)
	}
	w = &timed{ResponseRecorder: httptest.NewRecorder()}
	s.api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/v1/bias-report", http.NoBody))
	if w.Code != 200 || len(w.read) != 0 {
		t.Errorf("%d, read deadlines %v without a body", w.Code, w.read)
	}
}

func TestSecurityHeaders(t *testing.T) {
	s := start(t, nil)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml", "/v1/bias-report", "/v1/council", "/nowhere"} {
		resp, _ := s.call(t, "GET", path, "")
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q", path, name, got)
			}
		}
	}
}

// Without tokens nobody may call it by a name that could be anybody's: a page
// could have its own name point here.
func TestForeignHost(t *testing.T) {
	open, closed := start(t, nil), start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = []string{secret} })
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "localhost.": 200, "localhost.:8080": 200, "127.0.0.1": 200, "127.9.9.9:8080": 200, "[::1]": 200, "[::1]:8080": 200,
		"rebound.example": 403, "rebound.example:8080": 403, "localhost.example": 403, "127.0.0.1.example": 403, "192.0.2.1:8080": 403, "0.0.0.0:8080": 403,
	} {
		for s, want := range map[*server]int{open: want, closed: 200} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/bias-report", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			req.Header.Set("Authorization", "Bearer "+secret)
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s, tokens %v: %d, want %d", host, s == closed, resp.StatusCode, want)
			}
		}
	}
}
