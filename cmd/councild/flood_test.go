package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/race"
)

// The floods of one token against a daemon with 1 GiB. Meanwhile the daemon answers another token and the health check.

// otherToken is the token of another caller.
const otherToken = "another-token-of-sixteen-and-more"

// maxAnswered is how long the other token may wait for an answer.
const maxAnswered = 2 * time.Second

// flooded starts a daemon with a memory limit of 1 GiB. Go has nine tenths of it, as in a container. Its council has the
// models of waiting, and the models "quick" and "fast", which answer at once.
func flooded(t *testing.T) (d *daemon, other daemontest.Caller, arrived chan struct{}, release func()) {
	t.Helper()
	models, arrived, release := waiting()
	models = append(models, simllm.Model{Name: "quick", Noise: 0.5}, simllm.Model{Name: "fast", Noise: 0.5})
	d = startDaemon(t, models, "GOMEMLIMIT=921MiB", "GOGC=400", "LLM_COUNCIL_API_TOKENS="+token+","+otherToken, "LLM_COUNCIL_LOG_LEVEL=info",
		"LLM_COUNCIL_DATA_DIR=off")
	t.Cleanup(release)
	other = d.Caller
	other.Token, other.Client = otherToken, nil // each request has a connection of its own
	return d, other, arrived, release
}

// peak returns the most memory that the daemon has had so far, in bytes, 0 where the system does not tell it.
func (d *daemon) peak(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Process.Pid))
	if err != nil {
		return 0
	}
	var kilobytes float64
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(rest, "%f kB", &kilobytes); err != nil {
		t.Fatal(err)
	}
	return kilobytes * 1024
}

// others has the other token ask in every way, until the flood is over and three times at least. It returns the longest time
// until an answer. A refusal is repeated, as clients do.
func others(t *testing.T, other daemontest.Caller, over <-chan struct{}) (longest time.Duration) {
	t.Helper()
	const ask = `{"query":"x","models":["quick","fast"],"chairman":"quick","output_schema":{"type":"object"}}`
	for round := 0; ; round++ {
		for _, way := range []struct{ method, path, body string }{
			{"GET", "/healthz", ""},
			{"GET", "/readyz", ""},
			{"GET", "/", ""},
			{"GET", "/v1/council", ""},
			{"POST", "/v1/council/estimate", ask},
			{"POST", "/v1/council", `{"query":"x","stream":true,"models":["quick","fast"],"chairman":"quick"}`},
			{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`},
		} {
			begun := time.Now()
			for {
				resp, data, err := other.Send(t.Context(), way.method, way.path, way.body, "Accept", "application/json, text/event-stream")
				if err != nil {
					t.Fatalf("%s %s: %v", way.method, way.path, err)
				}
				if resp.StatusCode == http.StatusOK {
					break
				}
				if resp.StatusCode != http.StatusServiceUnavailable || strings.HasSuffix(way.path, "z") || time.Since(begun) > time.Minute {
					t.Fatalf("%s %s: %d %s", way.method, way.path, resp.StatusCode, data)
				}
				<-time.After(10 * time.Millisecond)
			}
			longest = max(longest, time.Since(begun))
		}
		select {
		case <-over:
			if round > 1 {
				return longest
			}
		default:
		}
	}
}

// judgeFlood compares a flood with what is promised: limits are five times the figure, because test machines are busy.
func (d *daemon) judgeFlood(t *testing.T, longest time.Duration) (peak float64) {
	t.Helper()
	peak = d.peak(t) / (1 << 20)
	if race.Enabled { // under the race detector all takes many times as long, and twice the memory
		return peak
	}
	if peak > 1024 {
		t.Errorf("the daemon took %.0f MiB", peak)
	}
	if longest > 5*maxAnswered {
		t.Errorf("another token waited for %s", longest)
	}
	return peak
}

// Requests with schemas that are made to cost much. The daemon refuses them.
func TestFaultF63(t *testing.T) {
	const callers, requests = 16, 160
	d, other, _, _ := flooded(t)
	schema := func(n int, pattern string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"pattern":"%s%d"}`, pattern, i)
		}
		return `{"allOf":[` + strings.Join(all, ",") + `]}`
	}
	classes := schema(15, strings.Repeat(`\\pL`, 1000))
	bodies := []struct {
		path, body string
		want       string
	}{
		{"/v1/council", `{"query":"x","seed":-2,"output_schema":` + classes + `}`, "seed"},
		{"/v1/council", `{"query":"x","output_schema":` + classes + `}`, "output_schema"},
		{"/v1/council/estimate", `{"query":"x","seed":-2,"output_schema":` + classes + `}`, "seed"},
		{"/v1/council", `{"query":"x","output_schema":` + schema(60, `^\\pL{990}$`) + `}`, "output_schema"},
		{"/v1/council", `{"query":"x","output_schema":` + schema(16, `(?i)[`+strings.Repeat(`\\x{80}-\\x{10ffff}`, 200)+`]`) + `}`, "output_schema"},
		{"/v1/council", `{"query":"x","output_schema":` + schema(25, `^\\pL{120}(`) + `}`, "output_schema"},
		{
			"/v1/chat/completions", `{"model":"council","n":2,"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",` +
				`"json_schema":{"name":"a","schema":` + classes + `}}}`, "a council gives one answer",
		},
		{"/v1/responses", `{"model":"council","input":"x","text":{"format":{"type":"json_schema","name":"a","schema":` + classes + `}}}`, "text.format"},
	}
	var flood sync.WaitGroup
	var next atomic.Int64
	for range callers {
		flood.Go(func() {
			for n := next.Add(1); n <= requests; n = next.Add(1) {
				b := bodies[int(n)%len(bodies)]
				resp, data, err := d.Send(t.Context(), "POST", b.path, b.body)
				if err != nil {
					t.Error(err)
					return
				}
				if resp.StatusCode == http.StatusServiceUnavailable { // for an estimate
					continue
				}
				if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(data), b.want) {
					t.Errorf("%s: %d %.300s", b.path, resp.StatusCode, data)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { flood.Wait(); close(over) }()
	longest := others(t, other, over)
	peak := d.judgeFlood(t, longest)
	d.finish(t)
	daemontest.Fault(t, "F63", "below 1 GiB; another token within 2 s", "%d requests: the daemon took %.0f MiB, another token waited for %.2f s at most",
		requests, peak, longest.Seconds())
}

// request is one of a flood.
type request struct {
	method, path, body string
	headers            []string
}

// hold sends requests that wait, each over a connection of its own, and leaves them open until the end of the test. It
// returns when all are sent. refused counts those that are refused.
func (d *daemon) hold(t *testing.T, requests []request, refused *atomic.Int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var open sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		open.Wait()
	})
	sending := make(chan struct{}, 64) // a longer queue would fill the kernel's, which is not what is tried here
	for _, r := range requests {
		sending <- struct{}{}
		once := sync.OnceFunc(func() { <-sending })
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }})
		open.Go(func() {
			defer once()
			resp, data, err := daemontest.Caller{Base: d.Base, Token: d.Token}.Send(traced, r.method, r.path, r.body, r.headers...)
			if err != nil { // at the end of the test
				return
			}
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
				t.Errorf("%s %s: %d %.300s", r.method, r.path, resp.StatusCode, data)
			}
			refused.Add(1)
		})
	}
	for range cap(sending) {
		sending <- struct{}{}
	}
}

// waitsFor begins a session of the waiting models. It returns a request that waits for a session by each door.
func (d *daemon) waitsFor(t *testing.T, pad string) (doors []request) {
	t.Helper()
	key := []string{"Idempotency-Key", "flood"}
	resp, data := d.call(t, "POST", "/v1/council", `{"query":"x","background":true}`)
	var started council.Summary
	if err := json.Unmarshal([]byte(data), &started); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %s", resp.StatusCode, data)
	}
	mcp := []string{"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2025-11-25"}
	call := func(name, arguments string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":7,"x":%q}}}`,
			name, arguments, pad)
	}
	return []request{
		{"POST", "/mcp", call("council_result", `{"wait_seconds":600,"session_id":"`+started.ID+`"}`), mcp},
		{"POST", "/mcp", call("council", `{"wait_seconds":600,"question":"y"}`), mcp},
		{"POST", "/v1/council", `{"query":"x"}` + strings.Repeat(" ", len(pad)), key},
		{"POST", "/v1/council", `{"query":"x","stream":true}` + strings.Repeat(" ", len(pad)), []string{"Idempotency-Key", "flood-streamed"}},
		{
			"POST", "/v1/chat/completions", `{"model":"council","messages":[{"role":"user","content":"x"}],"functions":[],"metadata":{"x":"` + pad + `"}}`,
			[]string{"Idempotency-Key", "flood-chat"},
		},
		{
			"POST", "/v1/responses", `{"model":"council","input":"x","stream":true,"instructions":"` + pad[:min(len(pad), 200_000)] + `"}`,
			[]string{"Idempotency-Key", "flood-responses"},
		},
		{"GET", "/v1/council/" + started.ID + "/events", "", nil},
	}
}

// flood plays the fault of F64 and F65: n requests of one token wait for a session by the doors given.
func (d *daemon) flood(t *testing.T, other daemontest.Caller, n int, doors []request) (refused int64, peak float64, longest time.Duration) {
	t.Helper()
	requests := make([]request, n)
	for i := range requests {
		requests[i] = doors[i%len(doors)]
	}
	over := make(chan struct{})
	var refusals atomic.Int64
	go func() {
		defer close(over)
		d.hold(t, requests, &refusals)
	}()
	longest = others(t, other, over)
	return refusals.Load(), d.judgeFlood(t, longest), longest
}

// Calls that wait, with much in their bodies.
func TestFaultF64(t *testing.T) {
	testkit.Slow(t)
	const calls = 500
	d, other, _, release := flooded(t)
	refused, peak, longest := d.flood(t, other, calls, d.waitsFor(t, strings.Repeat("x", 1_000_000))[:6])
	if refused < calls/2 {
		t.Errorf("%d of %d calls were refused", refused, calls)
	}
	release()
	daemontest.Fault(t, "F64", "below 1 GiB; another token within 2 s",
		"%d calls of 1 MB, %d of them refused: the daemon took %.0f MiB, another token waited for %.2f s at most", calls, refused, peak, longest.Seconds())
}

// Watchers, and requests that wait for a session, as many as there are connections.
func TestFaultF65(t *testing.T) {
	testkit.Slow(t)
	const connections = 4224
	d, other, _, release := flooded(t)
	refused, peak, longest := d.flood(t, other, connections, d.waitsFor(t, "")[2:])
	if refused < connections/2 {
		t.Errorf("%d of %d requests were refused", refused, connections)
	}
	release()
	daemontest.Fault(t, "F65", "another token and /healthz within 2 s",
		"%d watchers and requests that wait, %d of them refused: another token and /healthz waited for %.2f s at most; the daemon took %.0f MiB",
		connections, refused, longest.Seconds(), peak)
}
