package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/faultdisk"
	"github.com/councild/councild/internal/testkit/pipenet"
	"github.com/councild/councild/internal/testkit/race"
)

// bubble is a daemon and its provider in a bubble of testing/synctest, where an hour
// passes at once. Only signals and sockets are missing: requests and calls go through
// memory.
type bubble struct {
	*daemontest.Daemon
	t       *testing.T
	disk    *faultdisk.Disk
	sim     *simllm.Server
	network *pipenet.Listener
}

// scenario is what surrounds a daemon in a bubble.
type scenario struct {
	env   map[string]string
	dwell func(simllm.Task) time.Duration     // of every model; nil: none
	fault *simllm.Fault                       // of the model d
	words int                                 // of the chairman's answer, of which a stream brings one a second; 0: an answer at once
	front func(sim http.Handler) http.Handler // in front of the provider; nil: nothing is
	// adjust changes what is no setting; nil: nothing is changed.
	adjust func(*config.Config)
}

// inBubble runs f with a daemon whose members are a, b, c and d.
func inBubble(t *testing.T, w scenario, f func(*bubble)) {
	t.Helper()
	env := map[string]string{
		"MODELS": "a,b,c,d", "BASE_URL": "https://provider/v1", "API_KEY": "sk-a-secret-key",
	}
	maps.Copy(env, w.env)
	daemontest.Setenv(t, env)
	o := daemontest.Options(t)
	o.Config.SessionsInMemory = true // an engine is no part of a bubble
	if w.adjust != nil {
		w.adjust(&o.Config)
	}
	race.Bubble(t, func(t *testing.T) {
		over, end := context.WithCancel(t.Context())
		defer end()
		var models []simllm.Model
		for _, name := range []string{"a", "b", "c", "d"} {
			m := simllm.Model{Name: name, Spread: 1, Noise: 0.5, Reply: func(task simllm.Task) (string, bool) {
				if w.dwell != nil {
					select {
					case <-time.After(w.dwell(task)):
					case <-over.Done(): // the daemon went on without it
					}
				}
				if task.Kind == simllm.Synthesis && w.words > 0 {
					return strings.Repeat("a-word-of-sixteen ", w.words), true
				}
				return "", false
			}}
			if w.words > 0 {
				m.ChunkDelay = time.Second
			}
			if name == "d" && w.fault != nil {
				m.Faults = []simllm.Fault{*w.fault}
			}
			models = append(models, m)
		}
		sim, err := simllm.New(simllm.Options{Models: models})
		if err != nil {
			t.Fatal(err)
		}
		calls := pipenet.Listen()
		var handler http.Handler = sim
		if w.front != nil {
			handler = w.front(sim)
		}
		provider := &http.Server{Handler: handler, ConnState: sim.ConnState, ReadHeaderTimeout: time.Minute}
		go func() { _ = provider.Serve(calls) }()
		defer provider.Close()

		// Package llm clones this transport. A connection that is dialed for an https
		// address is used as it is.
		transport := http.DefaultTransport.(*http.Transport)
		transport.DialTLSContext = calls.DialContext
		defer func() { transport.DialTLSContext = nil }()
		b := &bubble{t: t, disk: &faultdisk.Disk{}, sim: sim, network: pipenet.Listen()}
		o.Disk, o.Listener = b.disk, b.network
		b.Daemon = daemontest.StartWith(t, o)
		client := &http.Client{Transport: &http.Transport{DialContext: b.network.DialContext}}
		b.Caller = daemontest.Caller{Base: "http://localhost", Client: client}
		defer func() {
			client.CloseIdleConnections()
			b.End(t)
		}()
		f(b)
	})
}

// through sends a request as Send does, with a client of its own.
func (b *bubble) through(client *http.Client, method, path, body string, headers ...string) (*http.Response, []byte, error) {
	caller := b.Caller
	caller.Client = client
	return caller.Send(b.t.Context(), method, path, body, headers...)
}

// post asks a question, with further fields of the request and headers.
func (b *bubble) post(fields string, headers ...string) (status int, s council.Session) {
	b.t.Helper()
	resp, data, err := b.Send(b.t.Context(), "POST", "/v1/council", `{"query":"Which one?"`+fields+`}`, headers...)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, &s); err != nil {
			b.t.Fatal(err)
		}
	}
	return resp.StatusCode, s
}

// direct asks d alone, which is one call, and returns the status.
func (b *bubble) direct() string {
	b.t.Helper()
	body := `{"model":"council/d","messages":[{"role":"user","content":"Which one?"}]}`
	resp, _, err := b.Send(b.t.Context(), "POST", "/v1/chat/completions", body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.Status
}

// dial opens a connection that no HTTP client manages.
func (b *bubble) dial() net.Conn {
	b.t.Helper()
	conn, err := b.network.DialContext(b.t.Context(), "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sendInTwoParts sends a request with a pause between its parts, and returns the status
// of the response, or "closed" where there is none.
func (b *bubble) sendInTwoParts(first string, pause time.Duration, rest string) string {
	b.t.Helper()
	conn := b.dial()
	status := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			line = "HTTP/1.1 closed"
		}
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		status <- line
	}()
	_, _ = io.WriteString(conn, first)
	time.Sleep(pause)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Hour))
	_, _ = io.WriteString(conn, rest) // an error shows in the status
	return <-status
}

// readWithPause sends a request, reads the first byte of the response, pauses, and reads
// the rest. It says whether the response came as a whole.
func (b *bubble) readWithPause(request string, pause time.Duration) string {
	b.t.Helper()
	conn := b.dial()
	if _, err := io.WriteString(conn, request); err != nil {
		b.t.Fatal(err)
	}
	in := bufio.NewReaderSize(conn, 16)
	if _, err := in.Peek(1); err != nil {
		b.t.Fatal(err)
	}
	time.Sleep(pause)
	resp, err := http.ReadResponse(bufio.NewReader(in), nil)
	if err != nil {
		return "cut"
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "cut"
	}
	return "whole"
}

// verdictOf returns what a client learns of a session: missing parts, fallback, records.
func verdictOf(status int, s council.Session) string {
	switch {
	case status != http.StatusOK:
		return http.StatusText(status)
	case s.Stage3 != nil && s.Stage3.Fallback != nil:
		return "fallback " + string(*s.Stage3.Fallback)
	case len(s.Degradation) > 0:
		return strings.Join(daemontest.Missing(s), ", ")
	case !s.Persisted:
		return "not persisted"
	default:
		return string(s.Status)
	}
}

// after is a scenario in which model d takes the time d for its task of a kind, and the
// other models take no time.
func after(kind simllm.TaskKind, d time.Duration, env map[string]string) scenario {
	return scenario{env: env, dwell: func(task simllm.Task) time.Duration {
		if task.Kind == kind && task.Model == "d" {
			return d
		}
		return 0
	}}
}

// asked returns a function that asks one question and returns what the client learns.
func asked(fields string) func(*bubble, time.Duration) string {
	return func(b *bubble, _ time.Duration) string {
		b.t.Helper()
		return verdictOf(b.post(fields))
	}
}

// Every timer of the daemon ends what it must end: not one second before its time, and
// not one second after it. At its very time both outcomes are right.
func TestTimers(t *testing.T) {
	testkit.Slow(t)
	const complete = "complete"
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	none := func(time.Duration) scenario { return scenario{} }
	tenFailures := func(time.Duration) scenario {
		return scenario{
			env:   map[string]string{"MAX_ATTEMPTS": "1"},
			fault: &simllm.Fault{Kind: simllm.FaultStatus, Rate: 1, Status: 500, Tasks: slices.Concat(questions, reviews), Times: 10},
		}
	}
	for _, tt := range []struct {
		timer         string
		ends          time.Duration
		scenario      func(time.Duration) scenario
		outcome       func(*bubble, time.Duration) string
		before, after string
	}{
		{"headers of a request", daemon.HeaderTimeout, none, func(b *bubble, d time.Duration) string {
			return b.sendInTwoParts("GET /healthz HTTP/1.1\r\nHost: localhost\r\n", d, "\r\n")
		}, "200 OK", "closed"},
		{"body of a request", daemon.BodyTimeout, none, func(b *bubble, d time.Duration) string {
			const begun = "POST /v1/council HTTP/1.1\r\nHost: localhost\r\nContent-Length: 22\r\n\r\n{\"query\":\""
			return b.sendInTwoParts(begun, d, "Which one?\"}")
		}, "200 OK", "408 Request Timeout"},
		{"an unread body", time.Second, none, func(b *bubble, d time.Duration) string {
			return b.sendInTwoParts("GET /v1/council HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{", d, "}")
		}, "200 OK", "400 Bad Request"},
		{"keep-alive", 2 * time.Minute, none, func(b *bubble, d time.Duration) string {
			conn := b.dial()
			in := bufio.NewReader(conn)
			for i, request := 0, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"; ; i++ {
				if _, err := io.WriteString(conn, request); err != nil {
					return "closed"
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					return "closed"
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if i > 0 {
					return resp.Status
				}
				time.Sleep(d)
			}
		}, "200 OK", "closed"},
		{"reading a response", time.Minute, none, func(b *bubble, d time.Duration) string {
			return b.readWithPause("GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", d)
		}, "whole", "cut"},
		{"reading events", 30 * time.Second, none, func(b *bubble, d time.Duration) string {
			_, s := b.post("")
			return b.readWithPause("GET /v1/council/"+s.ID+"/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", d)
		}, "whole", "cut"},
		{"SESSION_RETENTION", 24 * time.Hour, none, func(b *bubble, d time.Duration) string {
			_, s := b.post("")
			time.Sleep(d)
			resp, _, err := b.Send(b.t.Context(), "GET", "/v1/council/"+s.ID, "")
			if err != nil {
				b.t.Fatal(err)
			}
			return resp.Status
		}, "200 OK", "404 Not Found"},
		{"idempotency key", 24 * time.Hour, none, func(b *bubble, d time.Duration) string {
			_, first := b.post("", "Idempotency-Key", "once")
			time.Sleep(d)
			_, second := b.post("", "Idempotency-Key", "once")
			return map[bool]string{true: "the same session", false: "another session"}[first.ID == second.ID]
		}, "the same session", "another session"},
		{
			"rate_limit of a token", time.Minute, func(time.Duration) scenario {
				keys := fmt.Sprintf("{members: [a, b, c, d]}\ntokens:\n  one: {sha256: %x, rate_limit: 1}", sha256.Sum256([]byte(secretKey)))
				return scenario{env: daemontest.Roster(t, keys, "a", "b", "c", "d")}
			},
			func(b *bubble, d time.Duration) string {
				b.Token = secretKey
				b.post("")
				time.Sleep(d)
				return verdictOf(b.post(""))
			}, "Too Many Requests", complete,
		},
		{
			"DRAIN_TIMEOUT", 30 * time.Second, func(d time.Duration) scenario { return after(simllm.Question, d, nil) },
			func(b *bubble, _ time.Duration) string {
				time.AfterFunc(time.Nanosecond, b.Stop)
				return verdictOf(b.post(""))
			}, complete, "Bad Request",
		},
		{
			"ATTEMPT_TIMEOUT", 3 * time.Minute, func(d time.Duration) scenario { return after(simllm.Question, d, nil) }, asked(""),
			complete, "stage1 d timeout",
		},
		{"a pause in a reply", time.Minute, func(d time.Duration) scenario {
			return scenario{fault: &simllm.Fault{Kind: simllm.FaultStall, Rate: 1, Tasks: questions, Delay: d}}
		}, asked(""), complete, "stage1 d timeout"},
		{"stage 1", 4 * time.Minute, func(d time.Duration) scenario {
			return after(simllm.Question, d, map[string]string{"ATTEMPT_TIMEOUT": "10m"})
		}, asked(""), complete, "stage1 d timeout"},
		{"stage 2", 8 * time.Minute, func(d time.Duration) scenario {
			return after(simllm.Review, d, map[string]string{"ATTEMPT_TIMEOUT": "10m"})
		}, asked(""), complete, "stage2 d timeout"},
		{"stage 3", 10*time.Minute - time.Second, func(d time.Duration) scenario {
			return after(simllm.Synthesis, d, map[string]string{"ATTEMPT_TIMEOUT": "10m", "CHAIRMAN": "d"})
		}, asked(""), complete, "fallback top_ranked"},
		{"stage 3", 10*time.Minute - time.Second, func(d time.Duration) scenario {
			return after(simllm.Question, d, map[string]string{"ATTEMPT_TIMEOUT": "10m"})
		}, func(b *bubble, _ time.Duration) string {
			return b.direct()
		}, "200 OK", "504 Gateway Timeout"},
		{"STRAGGLER_GRACE", 30 * time.Second, func(d time.Duration) scenario {
			return after(simllm.Question, d, map[string]string{"STRAGGLER_GRACE": "30s"})
		}, asked(""), complete, "stage1 d cut"},
		{"a provider's Retry-After", 20*time.Second + 250*time.Millisecond, func(time.Duration) scenario {
			return scenario{fault: &simllm.Fault{
				Kind: simllm.FaultStatus, Rate: 1, Status: 429, RetryAfter: "20", Tasks: questions, Times: 1,
			}}
		}, func(b *bubble, d time.Duration) string {
			begun := time.Now()
			verdict := verdictOf(b.post(fmt.Sprintf(`,"timeout_seconds":%g`, d.Seconds()/0.4))) // stage 1 ends after d
			if waited := time.Since(begun); verdict == complete && waited < 20*time.Second || verdict != complete && waited != 0 {
				b.t.Errorf("%s after %s", verdict, waited)
			}
			return verdict
		}, "stage1 d rate_limited", complete},
		{"an open breaker", 10 * time.Second, tenFailures, func(b *bubble, d time.Duration) string {
			for range 5 { // with two calls to d each
				b.post("")
			}
			time.Sleep(d)
			return verdictOf(b.post(""))
		}, "stage1 d breaker_open, stage2 d breaker_open", complete},
		{"an idle connection to a provider", 90 * time.Second, none, func(b *bubble, d time.Duration) string {
			b.direct()
			open := b.sim.Stats().Connections
			time.Sleep(d)
			b.direct()
			return map[bool]string{true: "used again", false: "closed"}[b.sim.Stats().Connections == open]
		}, "used again", "closed"},
		{"BIAS_FSYNC=interval", time.Second, func(time.Duration) scenario {
			return scenario{env: map[string]string{"BIAS_FSYNC": "interval", "DATA_DIR": "off"}}
		}, func(b *bubble, d time.Duration) string {
			b.post("")
			time.Sleep(d)
			return fmt.Sprintf("%d syncs", len(b.disk.Done(faultdisk.Sync)))
		}, "0 syncs", "1 syncs"},
		{"the wait for the disk", 10 * time.Second, none, func(b *bubble, d time.Duration) string {
			b.syncFor(d)
			return verdictOf(b.post(""))
		}, complete, "not persisted"},
		{"the wait for the disk", time.Minute + 10*time.Second, func(time.Duration) scenario {
			return after(simllm.Synthesis, time.Minute, map[string]string{"CHAIRMAN": "d"})
		}, func(b *bubble, d time.Duration) string {
			b.syncFor(d)
			return verdictOf(b.post(""))
		}, complete, "not persisted"},
		{"responses that are written", daemon.CloseGrace, none, func(b *bubble, d time.Duration) string {
			time.AfterFunc(time.Nanosecond, b.Stop)
			return b.readWithPause("GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", d)
		}, "whole", "cut"},
		{"failures that open a breaker", 30 * time.Second, tenFailures, func(b *bubble, d time.Duration) string {
			for range 4 { // with two calls to d each
				b.post("")
			}
			time.Sleep(d)
			b.post("")
			return verdictOf(b.post(""))
		}, "stage1 d breaker_open, stage2 d breaker_open", complete},
		{"check of closed segments", 24 * time.Hour, func(time.Duration) scenario {
			return scenario{env: map[string]string{"BIAS_RETENTION_DAYS": "1"}, adjust: func(c *config.Config) { c.BiasRotateBytes = 1 }}
		}, func(b *bubble, d time.Duration) string {
			b.post("")
			time.Sleep(d)
			segments, err := filepath.Glob(b.Config.BiasStore + ".0*")
			if err != nil {
				b.t.Fatal(err)
			}
			return fmt.Sprintf("%d segments", len(segments))
		}, "1 segments", "0 segments"},
		{
			"a plain POST, silent until its end", time.Minute, func(d time.Duration) scenario { return after(simllm.Question, d, nil) },
			func(b *bubble, _ time.Duration) string {
				resp, _, err := b.through(b.proxied(), "POST", "/v1/council", `{"query":"Which one?"}`)
				if err == nil {
					return resp.Status
				}
				synctest.Wait() // until nothing more happens
				_, list, err := b.Send(b.t.Context(), "GET", "/v1/council", "")
				if err != nil || strings.Count(string(list), `"status":"cancelled"`) != 1 {
					b.t.Errorf("%s, %v", list, err)
				}
				return "cancelled"
			}, "200 OK", "cancelled",
		},
	} {
		t.Run(tt.timer, func(t *testing.T) {
			if !strings.Contains(string(page), tt.timer) {
				t.Error("docs/metrics.md does not name it")
			}
			for _, offset := range []time.Duration{-time.Second, 0, time.Second} {
				d := tt.ends + offset
				inBubble(t, tt.scenario(d), func(b *bubble) {
					got := tt.outcome(b, d)
					if offset < 0 && got != tt.before || offset > 0 && got != tt.after || got != tt.before && got != tt.after {
						t.Errorf("after %s: %q; until %s it is to be %q, then %q", d, got, tt.ends, tt.before, tt.after)
					}
				})
			}
		})
	}
}

// syncFor makes every sync of a file take the time d.
func (b *bubble) syncFor(d time.Duration) {
	b.disk.Fail(func(op faultdisk.Op, bytes int) (int, error) {
		if op.Kind == faultdisk.Sync {
			time.Sleep(d)
		}
		return bytes, nil
	})
}

// A client whose proxy closes a silent POST sends it again with the same
// Idempotency-Key, until the session that it began has an answer.
func TestPlainPostBehindAProxy(t *testing.T) {
	inBubble(t, after(simllm.Question, 150*time.Second, nil), func(b *bubble) {
		var session council.Session
		for tries := 1; ; tries++ {
			_, data, err := b.through(b.proxied(), "POST", "/v1/council", `{"query":"Which one?"}`, "Idempotency-Key", "once")
			if err != nil && tries < 3 { // after 60 and 120 seconds
				continue
			}
			if err := errors.Join(err, json.Unmarshal(data, &session)); err != nil || tries != 3 {
				b.t.Fatalf("try %d: %v", tries, err)
			}
			break
		}
		if got := verdictOf(http.StatusOK, session); got != "complete" {
			b.t.Error(got)
		}
		for name, m := range b.sim.Stats().Models {
			if want := map[bool]int{true: 3, false: 2}[name == "a"]; m.Requests != want { // a is the chairman too
				b.t.Errorf("%s was asked %d times, want %d", name, m.Requests, want)
			}
		}
	})
}

// proxied returns a client that reaches the daemon through a proxy that closes a
// connection after 60 s of silence.
func (b *bubble) proxied() *http.Client {
	b.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := b.network.DialContext(ctx, network, address)
		return pipenet.Proxied{Conn: conn, Idle: time.Minute}, err
	}}
	b.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// stream reads a streamed response to its end. It returns the data of the last
// event, and how long the longest silence was.
func (b *bubble) stream(client *http.Client, method, path, body string) (last string, silence time.Duration, err error) {
	req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for before := time.Now(); ; before = time.Now() {
		line, err := in.ReadString('\n')
		silence = max(silence, time.Since(before))
		if errors.Is(err, io.EOF) {
			return last, silence, nil
		} else if err != nil {
			return last, silence, err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			last = data
		}
	}
}

// realDwell returns how long a real model takes: 20 to 300 s, a chairman 12 to 120 s,
// both ends included.
func realDwell(task simllm.Task) time.Duration {
	least, most := 20*time.Second, 300*time.Second
	if task.Kind == simllm.Synthesis {
		least, most = 12*time.Second, 120*time.Second
	}
	sum := crc32.ChecksumIEEE([]byte(string(task.Kind) + task.Model + task.Question))
	return least + (most-least)*time.Duration(sum%9)/8
}

// Sessions at the speed of real models, whose clients wait behind a proxy, end as
// sessions of models that answer at once do.
func TestFaultF38Daemon(t *testing.T) {
	// An answer takes 5 minutes and its stream 4, all reviews 5, the chairman 2 and its stream 10.
	w := scenario{dwell: realDwell, words: 600, env: map[string]string{"TIMEOUT": "30m", "ATTEMPT_TIMEOUT": "13m", "LOG_LEVEL": "info"}}
	inBubble(t, w, func(b *bubble) {
		t := b.t
		http.DefaultTransport.(*http.Transport).DialContext = b.proxied().Transport.(*http.Transport).DialContext // of councild ask
		defer func() { http.DefaultTransport.(*http.Transport).DialContext = nil }()
		ways := map[string]func(client *http.Client, query string) (silence time.Duration, err error){
			"POST": func(_ *http.Client, query string) (time.Duration, error) {
				_, _, err := b.Send(b.t.Context(), "POST", "/v1/council", fmt.Sprintf(`{"query":%q}`, query))
				return 0, err
			},
			"streamed": func(client *http.Client, query string) (time.Duration, error) {
				_, silence, err := b.stream(client, "POST", "/v1/council", fmt.Sprintf(`{"query":%q,"stream":true}`, query))
				return silence, err
			},
			"background": func(client *http.Client, query string) (time.Duration, error) {
				resp, _, err := b.through(client, "POST", "/v1/council", fmt.Sprintf(`{"query":%q,"background":true}`, query))
				if err != nil {
					return 0, err
				}
				_, silence, err := b.stream(client, "GET", resp.Header.Get("Location")+"/events", "")
				return silence, err
			},
			"chat completion": func(client *http.Client, query string) (time.Duration, error) {
				body := fmt.Sprintf(`{"model":"council","messages":[{"role":"user","content":%q}],"stream":true}`, query)
				last, silence, err := b.stream(client, "POST", "/v1/chat/completions", body)
				if err == nil && last != "[DONE]\n" {
					err = errors.New(last)
				}
				return silence, err
			},
			"councild ask": func(_ *http.Client, query string) (time.Duration, error) {
				var stderr bytes.Buffer
				std := cli.IO{Args: []string{"ask", "--server", "http://localhost", query}, Stdout: io.Discard, Stderr: &stderr}
				if code := cli.Main(t.Context(), std); code != 0 {
					return 0, errors.New(stderr.String())
				}
				return 0, nil
			},
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		var longest time.Duration
		for way, ask := range ways {
			for i := range 4 {
				client := b.proxied()
				wg.Go(func() {
					silence, err := ask(client, fmt.Sprintf("%s %d", way, i))
					if err != nil {
						t.Errorf("%s: %v", way, err)
					}
					mu.Lock()
					defer mu.Unlock()
					longest = max(longest, silence)
				})
			}
		}
		wg.Wait()

		_, data, err := b.Send(b.t.Context(), "GET", "/v1/council", "")
		var list httpapi.SessionList
		if err := errors.Join(err, json.Unmarshal(data, &list)); err != nil {
			t.Fatal(err)
		}
		if len(list.Sessions) != 4*len(ways) {
			t.Errorf("%d sessions", len(list.Sessions))
		}
		persisted, warnings := 0, 0
		var overhead float64
		for _, summary := range list.Sessions {
			_, data, err := b.Send(b.t.Context(), "GET", "/v1/council/"+summary.ID, "")
			var s council.Session
			if err := errors.Join(err, json.Unmarshal(data, &s)); err != nil {
				t.Fatal(err)
			}
			if s.Status != council.StatusComplete {
				t.Errorf("%s: missing %v", s.Status, daemontest.Missing(s))
			}
			if s.Persisted {
				persisted++
			}
			warnings += len(s.Metadata.Warnings)
			overhead = max(overhead, s.Metadata.Timing.OverheadMS)
		}
		records := map[string]int{}
		for _, r := range daemontest.Records(t, b.Config.BiasStore) {
			records[r.SessionID+" "+r.ReviewerID+" "+r.ModelID]++
		}
		if want := 12 * len(list.Sessions); len(records) != want || slices.Max(slices.Collect(maps.Values(records))) != 1 {
			t.Errorf("%d different records, want %d", len(records), want)
		}
		if persisted != len(list.Sessions) || warnings != 0 {
			t.Errorf("%d of %d sessions persisted, %d warnings", persisted, len(list.Sessions), warnings)
		}
		for line := range strings.Lines(b.Log.String()) {
			if !strings.Contains(line, `"level":"INFO"`) {
				t.Error(line)
			}
		}
		if longest > 15*time.Second {
			t.Errorf("a stream was silent for %s", longest)
		}
		if overhead > 1000 {
			t.Errorf("a session took %.0f ms longer than its models", overhead)
		}
		daemontest.Fault(t, "F38", "as at once; no timer but the configured ones",
			"the daemon: %d sessions, answers of 20 to 300 s, streams of ten minutes: %d persisted, %d warnings, "+
				"no stream cut by a proxy of 60 s (silent for at most %s), at most %.0f ms added",
			len(list.Sessions), persisted, warnings, longest, overhead)
	})
}
