package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
)

const other = "another-token-of-sixteen"

// Each token has limits of its own: a token over its limits does not affect the others.
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
		o.Tokens = limited(httpapi.Limits{Sessions: new(1), PerMinute: new(2)}, secret, other)
	})
	auth, others := []string{"Authorization", "Bearer " + secret}, []string{"Authorization", "Bearer " + other}
	done := make(chan int, 1)
	go func() {
		resp, _ := s.Call(t, "POST", "/v1/council", `{"query":"x","models":["slow","amber"]}`, auth...)
		done <- resp.StatusCode
	}()
	<-arrived
	resp, p := s.AskForProblem(t, "POST", "/v1/council", `{"query":"x"}`, auth...)
	if p.Status != 429 || p.Code != "over_limit" || !strings.Contains(p.Detail, "max_sessions") || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("a second session at once: %+v, Retry-After %q", p, resp.Header.Get("Retry-After"))
	}
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x"}`, others...); resp.StatusCode != 200 {
		t.Errorf("the other token: %d %s", resp.StatusCode, data)
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the running session answered %d", status)
	}
	// What was refused above does not count: this is the second of the minute.
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x"}`, auth...); resp.StatusCode != 200 {
		t.Errorf("after it: %d %s", resp.StatusCode, data)
	}
	resp, p = s.AskForProblem(t, "POST", "/v1/council", `{"query":"x"}`, auth...)
	wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if p.Status != 429 || p.Code != "over_limit" || !strings.Contains(p.Detail, "rate_limit") || err != nil || wait < 1 || wait > 30 {
		t.Errorf("a third session: %+v, Retry-After %q", p, resp.Header.Get("Retry-After"))
	}
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x"}`, others...); resp.StatusCode != 200 {
		t.Errorf("the other token: %d %s", resp.StatusCode, data)
	}
}

// A request whose body never ends is answered, and its place is free again.
func TestSlowBody(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens, o.MaxSessions = doortest.Tokens(secret), 1 })
	begun := time.Now()
	resp, data := s.Stalled(t, "POST", "/v1/council", "Authorization", "Bearer "+secret)
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("took %s", took)
	}
	if resp.StatusCode != 408 || !strings.Contains(string(data), `"code":"too_slow"`) {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	// A request that is refused for another reason does not wait for its body.
	if resp, data = s.Stalled(t, "POST", "/v1/council"); resp.StatusCode != 401 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if resp, data = s.Call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", "Bearer "+secret); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}

// Bodies are held in memory, so there are places for a number of them, and one caller
// gets half of the places.
func TestManyBodies(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.MaxSessions, o.BodyTimeout = 1, time.Minute })
	reader, writer := io.Pipe()
	read := make(chan struct{}, 4)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { read <- struct{}{} }})
	var bodies sync.WaitGroup
	for range 2 {
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
	for range 2 {
		<-read
	}
	resp, _ := s.MustFail(t, 503, council.CodeUnavailable, "POST", "/v1/council", `{"query":"x"}`)
	if after := resp.Header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After is %q", after)
	}
	_ = writer.Close()
	bodies.Wait()
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x"}`); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}

// The time for the body is not the time for the session.
func TestLongSession(t *testing.T) {
	t.Parallel()
	slow := simllm.Model{Name: "slow", Faults: []simllm.Fault{{Kind: simllm.FaultStall, Rate: 1, Delay: 300 * time.Millisecond}}}
	s := start(t, []simllm.Model{slow})
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x","models":["slow","amber"]}`); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}

// timed records the deadlines that a handler sets.
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
	s.API.ServeHTTP(
		w, httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/v1/council", strings.NewReader(`{"query":"x"}`)),
	)
	if w.Code != 200 || len(w.read) != 3 || w.read[1].Before(begun.Add(200*time.Millisecond)) || !w.read[2].IsZero() {
		t.Errorf("%d, read deadlines %v", w.Code, w.read)
	}
	if len(w.write) != 1 || w.write[0].Before(begun.Add(time.Minute)) || w.write[0].After(time.Now().Add(time.Minute)) {
		t.Errorf("write deadlines %v", w.write)
	}
	w = &timed{ResponseRecorder: httptest.NewRecorder()}
	s.API.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/v1/bias-report", http.NoBody))
	if w.Code != 200 || len(w.read) != 0 {
		t.Errorf("%d, read deadlines %v without a body", w.Code, w.read)
	}
}

func TestSecurityHeaders(t *testing.T) {
	s := start(t, nil)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml", "/v1/bias-report", "/v1/council", "/nowhere"} {
		resp, _ := s.Call(t, "GET", path, "")
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

// Without tokens only loopback names are answered: a page of another site could have
// its own name point here.
func TestForeignHost(t *testing.T) {
	open, closed := start(t, nil), start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = doortest.Tokens(secret) })
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "localhost.": 200, "localhost.:8080": 200, "127.0.0.1": 200, "127.9.9.9:8080": 200,
		"[::1]": 200, "[::1]:8080": 200,
		"rebound.example": 403, "rebound.example:8080": 403, "localhost.example": 403, "127.0.0.1.example": 403, "192.0.2.1:8080": 403,
		"0.0.0.0:8080": 403,
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

// stall sends the beginning of n requests whose bodies never come, with a token, and
// returns how many of them are being read. The others are refused.
func (s *server) stall(t *testing.T, n int, token string) (reading int) {
	t.Helper()
	for range n {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(
			conn,
			"POST /v1/council HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
			token,
		)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n') // 100 says that the server begins to read
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "HTTP/1.1 100 ") {
			reading++
		} else if !strings.HasPrefix(line, "HTTP/1.1 503 ") {
			t.Errorf("got %s", line)
		}
	}
	return reading
}

// A token whose bodies never end leaves places to the other tokens.
func TestFaultF37StalledBodies(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Tokens, o.MaxSessions, o.BodyTimeout = doortest.Tokens(secret, other, other+"-2"), 64, time.Minute
	})
	first := s.stall(t, 256, secret)
	if first < 64 {
		t.Errorf("%d bodies of one token are read, fewer than sessions may run", first)
	}
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", "Bearer "+other); resp.StatusCode != 200 {
		t.Errorf("the other token: %d %s", resp.StatusCode, data)
	}
	second := s.stall(t, 256, other)
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", "Bearer "+other+"-2"); resp.StatusCode != 200 {
		t.Errorf("the third token: %d %s", resp.StatusCode, data)
	}
	t.Logf("fault F37: of 256 stalled bodies of one token %d are read, of as many of a second %d, and a third is served "+
		"(promised: other tokens are served)", first, second)
}

// hold sends n requests that wait for a session, with a token, and returns how many are let in. The others are refused. They
// stay open until the end of the test.
func (s *server) hold(t *testing.T, n int, token, method, path, body string) (open int) {
	t.Helper()
	for range n {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n"+
			"Accept: text/event-stream\r\nIdempotency-Key: %s\r\n\r\n%s", method, path, token, len(body), path, body)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		switch {
		case err != nil:
			t.Fatal(err)
		case strings.HasPrefix(line, "HTTP/1.1 200 "):
			open++
		case !strings.HasPrefix(line, "HTTP/1.1 503 "):
			t.Errorf("%s: got %s", path, line)
		}
	}
	return open
}

// A token whose requests wait leaves connections and memory to the others, by whichever door they come. The health check
// needs none.
func TestOpenRequestsAreShared(t *testing.T) {
	slow := simllm.Model{Name: "slow", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}
	const chat = `{"model":"council/slow","stream":true,"messages":[{"role":"user","content":"x"}]`
	for name, tt := range map[string]struct {
		connections, memory int // 0: many
		method, path, body  string
		want                int // of 20
	}{
		"watchers":           {32, 0, "GET", "/v1/council/ID/events", "", 15},
		"watchers with text": {32, 0, "GET", "/v1/council/ID/events", `{"x":1}`, 15},
		"streams":            {32, 0, "POST", "/v1/council", `{"query":"x","models":["slow","amber"]}`, 15},
		"completions":        {32, 0, "POST", "/v1/chat/completions", chat + `}`, 15},
		"responses":          {32, 0, "POST", "/v1/responses", `{"model":"council/slow","stream":true,"input":"x"}`, 15},
		"long bodies":        {0, 1, "POST", "/v1/chat/completions", chat + `,"stop":[]}` + strings.Repeat(" ", 900_000), 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, []simllm.Model{slow}, func(o *httpapi.Options, _ *pipeline.Options) {
				o.Tokens, o.Connections = doortest.Tokens(secret, other), tt.connections
				if tt.memory > 0 {
					o.MaxSessions = tt.memory
				}
			})
			id := "none"
			if strings.Contains(tt.path, "ID") {
				resp, _ := s.Call(t, "POST", "/v1/council", `{"query":"x","background":true,"models":["slow","amber"]}`, "Authorization", "Bearer "+secret)
				id = strings.TrimPrefix(resp.Header.Get("Location"), "/v1/council/")
			}
			if open := s.hold(t, 20, secret, tt.method, strings.Replace(tt.path, "ID", id, 1), tt.body); open != tt.want {
				t.Errorf("%d of 20 requests are let in, want %d", open, tt.want)
			}
			for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/council": 200, "/openapi.yaml": 200} {
				if resp, data := s.Call(t, "GET", path, "", "Authorization", "Bearer "+other); resp.StatusCode != want {
					t.Errorf("another token, %s: %d %.200s", path, resp.StatusCode, data)
				}
			}
			if tt.connections == 0 {
				return
			}
			_, p := s.AskForProblem(t, "GET", "/v1/council", "", "Authorization", "Bearer "+secret)
			if p.Code != council.CodeUnavailable || !strings.Contains(p.Detail, "this one began nothing") {
				t.Errorf("one more: %+v", p)
			}
		})
	}
}

// The reports that are computed at once are bounded, and callers share the places.
func TestReportsAreBounded(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = doortest.Tokens(secret, other) })
	begun, release := make(chan struct{}, 16), make(chan struct{})
	s.Daemon.Reports = func(bias.Query) (bias.Report, error) {
		begun <- struct{}{}
		<-release
		return bias.NewCollector(bias.Options{Now: time.Now()}).Report(t.Context()), nil
	}
	var reports sync.WaitGroup
	for range 4 {
		reports.Go(func() {
			if resp, data := s.Call(t, "GET", "/v1/bias-report", "", "Authorization", "Bearer "+secret); resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, data)
			}
		})
	}
	for range 4 {
		<-begun
	}
	for _, path := range []string{"/v1/bias-report", "/v1/leaderboard"} {
		resp, p := s.AskForProblem(t, "GET", path, "", "Authorization", "Bearer "+secret)
		if p.Status != 503 || p.Code != "unavailable" || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	for _, body := range []string{`{"query":"x"}`, `{"query":""}`, `{"query":1}`} {
		if resp, data := s.Call(t, "POST", "/v1/council/estimate", body, "Authorization", "Bearer "+secret); resp.StatusCode != 503 {
			t.Errorf("the estimate of %s: %d %s", body, resp.StatusCode, data)
		}
	}
	if resp, data := s.Call(t, "GET", "/v1/leaderboard", "", "Authorization", "Bearer "+other); resp.StatusCode != 200 {
		t.Errorf("the other token: %d %s", resp.StatusCode, data)
	}
	close(release)
	reports.Wait()
	if resp, data := s.Call(t, "GET", "/v1/bias-report", "", "Authorization", "Bearer "+secret); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", resp.StatusCode, data)
	}
}

// A page of another origin cannot make the daemon compute a report.
func TestReportsForOtherOrigins(t *testing.T) {
	s := start(t, nil)
	s.Daemon.Reports = func(bias.Query) (bias.Report, error) {
		return bias.NewCollector(bias.Options{Now: time.Now()}).Report(t.Context()), nil
	}
	for _, path := range []string{"/v1/bias-report", "/v1/leaderboard"} {
		for _, headers := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://elsewhere.example"},
		} {
			if _, p := s.AskForProblem(t, "GET", path, "", headers...); p.Status != 403 || p.Code != "forbidden" {
				t.Errorf("%s, %v: %+v", path, headers, p)
			}
		}
		for _, headers := range [][]string{nil, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", s.URL}} {
			if resp, data := s.Call(t, "GET", path, "", headers...); resp.StatusCode != 200 {
				t.Errorf("%s, %v: %d %s", path, headers, resp.StatusCode, data)
			}
		}
	}
}

// The middleware learns the route of a request, not its path.
func TestPatterns(t *testing.T) {
	patterns := make(chan string, 1)
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Middleware = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r)
				patterns <- r.Pattern
			})
		}
	})
	for request, want := range map[string]string{
		"GET /v1/council/x": "/v1/council/{id}", "GET /v1/council/x/events": "/v1/council/{id}/events", "GET /healthz": "/healthz",
		"GET /":                      "/",
		"GET /v1/leaderboard?days=1": "/v1/leaderboard", "GET /assets/nothing.js": "/assets/{name}",
		"GET /nowhere": "", "GET /v1/council/x/y": "", "DELETE /healthz": "", "BREW /healthz": "",
	} {
		method, path, _ := strings.Cut(request, " ")
		s.Call(t, method, path, "")
		if got := <-patterns; got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
}
