package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// raw sends bytes as they are and returns everything that comes back on the connection.
func raw(t *testing.T, address string, write func(conn net.Conn)) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		write(conn)
	}()
	data, _ := io.ReadAll(conn) // a reset is an end too
	_ = conn.Close()
	<-done
	return string(data)
}

// trickle writes a byte every 100 ms until the connection is closed.
func trickle(conn net.Conn, head string) {
	_, err := io.WriteString(conn, head)
	for err == nil {
		<-time.After(100 * time.Millisecond)
		_, err = io.WriteString(conn, "x")
	}
}

func TestFaultF18(t *testing.T) {
	testkit.Slow(t)
	d := startDaemon(t, steady(0))
	address := strings.TrimPrefix(d.Base, "http://")
	auth := "POST /v1/council HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n"

	// The slow clients wait at the same time.
	var slow sync.WaitGroup
	headers, body := time.Duration(0), time.Duration(0)
	begun := time.Now()
	slow.Go(func() {
		answer := raw(t, address, func(conn net.Conn) { trickle(conn, auth+"X-Slow: ") })
		if headers = time.Since(begun); headers < 10*time.Second || headers > 50*time.Second {
			t.Errorf("slow headers: %q after %s", answer, headers)
		}
	})
	slow.Go(func() {
		answer := raw(t, address, func(conn net.Conn) { trickle(conn, auth+"Content-Length: 100000\r\n\r\n{") })
		if body = time.Since(begun); body < 15*time.Second || body > 75*time.Second || !strings.HasPrefix(answer, "HTTP/1.1 408 ") ||
			!strings.Contains(answer, "too_slow") {
			t.Errorf("slow body: %q after %s", answer, body)
		}
	})
	slow.Go(func() {
		head := strings.Replace(auth, token, "wrong", 1)
		answer := raw(t, address, func(conn net.Conn) { trickle(conn, head+"Content-Length: 100000\r\n\r\n{") })
		if took := time.Since(begun); took > 75*time.Second || !strings.HasPrefix(answer, "HTTP/1.1 401 ") {
			t.Errorf("slow body of a stranger: %q after %s", answer, took)
		}
	})

	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"a body of 1 MiB":        {`{"query":"x"}` + strings.Repeat(" ", 1<<20-13), 200},
		"a body of 1 MiB + 1":    {`{"query":"x"}` + strings.Repeat(" ", 1<<20-12), 413},
		"bad UTF-8":              {"{\"query\":\"\xc3\x28\"}", 400},
		"arrays within arrays":   {`{"query":` + strings.Repeat("[", 1<<19), 400},
		"objects within objects": {strings.Repeat(`{"query":`, 1<<16), 400},
		"deep messages":          {`{"messages":` + strings.Repeat("[", 1<<18) + strings.Repeat("]", 1<<18) + "}", 400},
	} {
		if resp, answer := d.call(t, "POST", "/v1/council", tt.body); resp.StatusCode != tt.want {
			t.Errorf("%s: %d %s", name, resp.StatusCode, answer)
		}
	}

	slow.Wait()
	idle, memory := idleConnections(t, d, address)
	d.finish(t)
	daemontest.Fault(t, "F18", "closed or 408/413/400; memory bounded",
		"headers closed after %.1f s, body 408 after %.1f s; %d idle connections cost %.0f MiB and a caller still gets in",
		headers.Seconds(), body.Seconds(), idle, memory/(1<<20))
}

// idleConnections opens 10,000 connections, or as many as this process may, and sends
// nothing on them. A caller must be served meanwhile.
func idleConnections(t *testing.T, d *daemon, address string) (opened int, memory float64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	most := int(min(limit.Cur/2, 10_000))
	before := d.usage(t).memory
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var connected atomic.Int64
	var wg sync.WaitGroup
	for range most {
		wg.Go(func() {
			// Connections beyond the limit wait in the kernel, or are not made.
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return
			}
			defer conn.Close()
			connected.Add(1)
			<-ctx.Done()
		})
	}
	d.Client.CloseIdleConnections() // the caller is a new one
	if resp, answer := d.call(t, "POST", "/v1/council", question); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	memory = d.usage(t).memory - before
	if memory > 5*128<<20 {
		t.Errorf("%d idle connections cost %.0f MiB", connected.Load(), memory/(1<<20))
	}
	cancel()
	wg.Wait()
	return int(connected.Load()), memory
}

func TestFaultF20(t *testing.T) {
	testkit.Slow(t)
	d := startDaemon(t, steady(50*time.Millisecond), "COUNCILD_TEST_DESCRIPTORS=256")
	var mu sync.Mutex // guards answers
	answers := map[int]int{}
	var wg sync.WaitGroup
	for range 600 {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.Base+"/v1/council", strings.NewReader(question))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			mu.Lock()
			answers[resp.StatusCode]++
			mu.Unlock()
		})
	}
	wg.Wait()
	// More connections than there are descriptors, each kept open after a request.
	idle := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 400}}
	for range 400 {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.Base+"/healthz", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := idle.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	wg.Wait()
	begun := time.Now()
	resp, answer := d.call(t, "POST", "/v1/council", question)
	recovered := time.Since(begun)
	idle.CloseIdleConnections()
	if resp.StatusCode != http.StatusOK || recovered > 5*time.Second {
		t.Errorf("after %s: %d %s", recovered, resp.StatusCode, answer)
	}
	if answers[200] == 0 || answers[503] == 0 || answers[200]+answers[503] != 600 {
		t.Errorf("the answers: %v", answers)
	}
	d.finish(t)
	if n := len(d.sessions); n != answers[200]+1 {
		t.Errorf("%d sessions have records, and %d were answered", n, answers[200]+1)
	}
	daemontest.Fault(t, "F20", "503s, no crash, recovers within 1 s",
		"600 callers at once: %d answered, %d times 503; behind 400 connections that idle, the next one answered after %d ms", answers[200],
		answers[503], recovered.Milliseconds())
}

// asked is a session that another goroutine asks for.
type asked struct {
	resp *http.Response
	body string
	err  error
}

func (d *daemon) ask(t *testing.T) <-chan asked {
	t.Helper()
	answer := make(chan asked, 1)
	go func() {
		resp, body, err := d.Send(t.Context(), "POST", "/v1/council", question)
		answer <- asked{resp, string(body), err}
	}()
	return answer
}

// draining sends SIGTERM and waits until readiness is red.
func (d *daemon) draining(t *testing.T) {
	t.Helper()
	d.terminate(t)
	for {
		if resp, body := d.call(t, "GET", "/readyz", ""); resp.StatusCode == http.StatusServiceUnavailable {
			if !strings.Contains(body, "draining") {
				t.Error(body)
			}
			break
		}
	}
	if resp, body := d.call(t, "POST", "/v1/council", question); resp.StatusCode != http.StatusServiceUnavailable ||
		resp.Header.Get("Retry-After") == "" {
		t.Errorf("a new session while draining: %d %s", resp.StatusCode, body)
	}
}

func TestFaultF21(t *testing.T) {
	// SIGTERM during a session: the session ends as without a signal.
	models, arrived, release := waiting()
	d := startDaemon(t, models)
	answer := d.ask(t)
	<-arrived
	d.draining(t)
	release()
	if a := <-answer; a.err != nil || a.resp.StatusCode != http.StatusOK || !strings.Contains(a.body, `"persisted":true`) {
		t.Errorf("the session in the middle: %v %s", a.err, a.body)
	}
	d.ended(t, 0)
	if n := len(d.sessions); n != 1 {
		t.Errorf("%d sessions have records", n)
	}

	// The drain time passes: the session is cancelled, and its client is told so.
	models, arrived, release = waiting()
	defer release()
	d = startDaemon(t, models, "LLM_COUNCIL_DRAIN_TIMEOUT=500ms")
	answer = d.ask(t)
	<-arrived
	begun := time.Now()
	d.draining(t)
	if a := <-answer; a.err != nil || a.resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(a.body, `"code":"cancelled"`) {
		t.Errorf("the cancelled session: %v %s", a.err, a.body)
	}
	d.ended(t, 0)
	grace := time.Since(begun)
	if grace < 500*time.Millisecond || grace > 5500*time.Millisecond {
		t.Errorf("ended %s after SIGTERM", grace)
	}
	if n := len(d.sessions); n != 0 {
		t.Errorf("%d sessions have records", n)
	}

	// A second SIGTERM does not wait.
	models, arrived, release2 := waiting()
	defer release2()
	d = startDaemon(t, models, "LLM_COUNCIL_DRAIN_TIMEOUT=1h")
	answer = d.ask(t)
	<-arrived
	d.draining(t)
	begun = time.Now()
	d.terminate(t)
	d.ended(t, cli.ExitInterrupted)
	second := time.Since(begun)
	if second > 5*time.Second {
		t.Errorf("ended %s after the second SIGTERM", second)
	}
	if a := <-answer; a.err == nil {
		t.Errorf("answered %s", a.body)
	}
	daemontest.Fault(t, "F21", "exit 0 within DRAIN_TIMEOUT, second SIGTERM within 1 s",
		"a running session finished and exit 0; with 500 ms to drain, cancelled and exit 0 after %d ms; "+
			"ended %d ms after the second SIGTERM",
		grace.Milliseconds(), second.Milliseconds())
}

func TestFaultF32(t *testing.T) {
	d := startDaemon(t, steady(0))
	address := strings.TrimPrefix(d.Base, "http://")
	tried := 0
	expect := func(name string, want int, method, path, body string, headers ...string) {
		t.Helper()
		tried++
		resp, answer := d.call(t, method, path, body, headers...)
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d: %s", name, resp.StatusCode, want, answer)
		}
		for _, secret := range []string{token, "sk-a-secret-key", d.records, "goroutine"} {
			if strings.Contains(answer, secret) {
				t.Errorf("%s: the answer holds %q: %s", name, secret, answer)
			}
		}
	}
	for name, header := range map[string]string{
		"no token": "", "an empty token": "Bearer ", "a wrong token": "Bearer " + strings.Repeat("x", len(token)),
		"the token but for its end": "Bearer " + token[:len(token)-1],
		"the token and more":        "Bearer " + token + "x", "another case": "Bearer " + strings.ToUpper(token),
		"another scheme": "Basic " + token, "no scheme": token,
		"two tokens": "Bearer " + token + ", Bearer " + token, "a token of 60,000 bytes": "Bearer " + strings.Repeat("x", 60_000),
		"a NUL-like escape": "Bearer " + token + "%00",
	} {
		expect(name, 401, "POST", "/v1/council", question, "Authorization", header)
		expect(name, 401, "GET", "/v1/bias-report", "", "Authorization", header)
	}
	expect("a token of 80,000 bytes", 431, "POST", "/v1/council", question, "Authorization", "Bearer "+strings.Repeat("x", 80_000))
	expect("a page of another origin", 403, "POST", "/v1/council", question, "Origin", "https://elsewhere.example")
	expect("a page without an origin", 403, "POST", "/v1/council", question, "Origin", "null")
	expect("another site", 403, "POST", "/v1/council", question, "Sec-Fetch-Site", "cross-site")
	expect("a page of another port", 403, "POST", "/v1/council", question, "Sec-Fetch-Site", "same-site")
	expect("a form of another origin", 403, "POST", "/v1/council", "query=x", "Origin", "https://elsewhere.example", "Content-Type",
		"application/x-www-form-urlencoded")
	flood := make([]string, 0, 2*5000)
	for i := range 5000 {
		flood = append(flood, fmt.Sprint("X-Flood-", i), "0123456789")
	}
	expect("5,000 headers", 431, "POST", "/v1/council", question, flood...)

	// No spelling of a path avoids the token.
	for _, path := range []string{
		"/v1/council", "//v1/council", "/v1//council", "/v1/council/", "/./v1/council", "/healthz/../v1/council", "/v1/%63ouncil",
		"/v1%2fcouncil", "/%2e%2e/v1/council",
		"/v1/council;x=y", "/v1/council%00", "/v1/council%0d%0aX: y", "/V1/COUNCIL", "/v1/bias-report/../council", "/../../etc/passwd",
		"/openapi.yaml/../../go.mod", "*", "http://elsewhere.example/v1/council",
	} {
		tried++
		answer := raw(t, address, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "+
				"13\r\n\r\n{\"query\":\"x\"}")
		})
		status, _, _ := strings.Cut(strings.TrimPrefix(answer, "HTTP/1.1 "), " ")
		switch status {
		case "400", "401", "403", "404", "405":
		default:
			t.Errorf("%s: %s", path, answer)
		}
	}
	for name, request := range map[string]string{
		"two lengths": "POST /v1/council HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
		"length and encoding": "POST /v1/council HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: " +
			"close\r\n\r\n0\r\n\r\n",
		"two hosts": "GET /v1/bias-report HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"no host":   "GET /v1/bias-report HTTP/1.1\r\n\r\n",
		"no HTTP":   "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
	} {
		tried++
		answer := raw(t, address, func(conn net.Conn) { _, _ = io.WriteString(conn, request) })
		if !strings.HasPrefix(answer, "HTTP/1.1 400 ") && !strings.HasPrefix(answer, "HTTP/1.1 401 ") {
			t.Errorf("%s: %q", name, answer)
		}
	}
	if n := d.sim.Stats().Models["one"].Requests; n != 0 {
		t.Errorf("they cost %d calls", n)
	}
	if resp, answer := d.call(t, "POST", "/v1/council", question); resp.StatusCode != http.StatusOK {
		t.Errorf("the right token: %d %s", resp.StatusCode, answer)
	}
	d.finish(t)
	daemontest.Fault(t, "F32", "401/403/404/431, nothing leaks", "%d attempts refused, none cost a call", tried)
}
