package daemon_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

var (
	questions = []simllm.TaskKind{simllm.Question}
	reviews   = []simllm.TaskKind{simllm.Review}
)

// A call waits for all of a provider's Retry-After, or does not wait.
func TestFaultF01(t *testing.T) {
	testkit.Slow(t)
	busy := func(after string) simllm.Fault {
		return simllm.Fault{Kind: simllm.FaultStatus, Status: 429, RetryAfter: after, Tasks: reviews, Times: 1}
	}
	f := trialOf(t, tap(t, busy("2")), "a,b,c,d", nil)
	if s := f.session(t, ""); s.Status != council.StatusComplete || s.Stage2[3].Attempts != 2 {
		t.Errorf("status %s, %d attempts", s.Status, s.Stage2[3].Attempts)
	}
	asked := f.requests("d", simllm.Review)
	if len(asked) != 2 {
		t.Fatalf("%d requests, want 2", len(asked))
	}
	wait := asked[1].begun.Sub(asked[0].begun)
	if wait < 2*time.Second {
		t.Errorf("the retry came after %v", wait)
	}
	waited := atMost(t, "the retry", wait-2*time.Second, 500*time.Millisecond)

	f = trialOf(t, tap(t, busy("30")), "a,b,c,d", nil)
	start := time.Now()
	s := f.session(t, `,"timeout_seconds":20`)
	refused := atMost(t, "a session that does not wait", time.Since(start), time.Second)
	if diff := cmp.Diff([]string{"stage2 d rate_limited"}, daemontest.Missing(s)); diff != "" || s.Stage2[3].Attempts != 1 {
		t.Errorf("%d attempts: %s", s.Stage2[3].Attempts, diff)
	}
	daemontest.Fault(t, "F01", "one retry after 2.0 to 2.5 s; no wait where it does not fit",
		"one retry after 2 s and %s; no wait where it does not fit: session in %s", waited, refused)
}

// A provider that refuses every call does not get more calls for it.
func TestFaultF02(t *testing.T) {
	testkit.Slow(t)
	const clients, lasts = 16, 3 * time.Second
	busy := []simllm.Fault{{Kind: simllm.FaultStatus, Status: 429, RetryAfter: "1"}}
	p := tapAll(t, map[string][]simllm.Fault{"a": busy, "b": busy, "c": busy, "d": busy})
	f := trialOf(t, p, "a,b,c,d", map[string]string{"LOG_LEVEL": "error", "SESSIONS_KEPT": "0"})
	f.problem(t, http.StatusBadGateway, council.CodeNoQuorum) // what is set up once is set up
	before := heap()

	var wg sync.WaitGroup
	var sessions, wrong atomic.Int64
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for time.Since(start) < lasts {
				resp, data, err := f.Send(t.Context(), "POST", "/v1/council", anyQuestion)
				if err != nil || resp.StatusCode != http.StatusBadGateway || strings.Count(string(data), "rate_limited") != 4 {
					wrong.Add(1)
				}
				sessions.Add(1)
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	windows := 1 + int(time.Since(start)/(10*time.Second)) // one, unless the machine is very busy
	first, all := 4*(int(sessions.Load())+1), len(p.seen)
	p.bodies, p.seen = nil, nil
	p.mu.Unlock()
	if most := first + max(10*windows, first/10); all > most || wrong.Load() > 0 {
		t.Errorf("%d requests for %d calls, at most %d are promised; %d answers are not as they should be", all, first, most, wrong.Load())
	}
	problem, header := f.problem(t, http.StatusBadGateway, council.CodeNoQuorum)
	if len(problem.Errors) != 4 || header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q, reasons %+v", header.Get("Retry-After"), problem.Errors)
	}
	grown := heap() - before
	if grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	daemontest.Fault(t, "F02", "at most 1.1 x + 10; memory flat",
		"%d requests for %d calls (%.2f x) in %v of load, 502 with Retry-After; heap %+.1f MiB", all, first, float64(all)/float64(first),
		lasts, float64(grown)/(1<<20))
}

// heap returns the bytes that are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestFaultF03(t *testing.T) {
	testkit.Slow(t)
	var longest time.Duration
	for _, status := range []int{500, 502, 503, 529} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			f := trialOf(t, tap(t, simllm.Fault{Kind: simllm.FaultStatus, Status: status, Tasks: questions, Times: 1}), "a,b,c,d", nil)
			s := f.session(t, "")
			asked := f.requests("d", simllm.Question)
			if s.Status != council.StatusComplete || len(asked) != 2 || s.Stage1[3].Attempts != 2 {
				t.Fatalf("status %s after %d requests", s.Status, len(asked))
			}
			longest = max(longest, asked[1].begun.Sub(asked[0].begun))
		})
	}
	daemontest.Fault(t, "F03", "exactly one retry within 500 ms; 200, complete", "one retry each, the latest after %s; complete",
		atMost(t, "a retry", longest, 500*time.Millisecond))
}

// After a while, a model that is down gets no more calls but one that tries it.
func TestFaultF04(t *testing.T) {
	testkit.Slow(t)
	f := trialOf(t, tap(t, simllm.Fault{Kind: simllm.FaultStatus, Status: 500}), "a,b,c,d", nil)
	s := f.session(t, "")
	if diff := cmp.Diff([]string{"stage1 d unavailable", "stage2 d unavailable"}, daemontest.Missing(s)); diff != "" ||
		s.Status != council.StatusDegraded {
		t.Errorf("status %s: %s", s.Status, diff)
	}
	failed := 0
	for _, r := range f.Records(t) {
		if r.ReviewerID == "d" {
			failed++
			if r.Status != council.BallotError || r.ScoreValue != nil || r.RankValue != nil {
				t.Errorf("record %+v", r)
			}
		}
	}
	if failed != 3 {
		t.Errorf("%d records of the missing reviewer, want 3", failed)
	}
	for s.Stage1[3].Error.Code != council.FailBreakerOpen {
		s = f.session(t, "")
	}
	asked := len(f.requests("d"))
	if s = f.session(t, ""); len(f.requests("d")) != asked || s.Stage1[3].Attempts != 0 || s.Status != council.StatusDegraded {
		t.Errorf("%d requests while the breaker is open, status %s", len(f.requests("d"))-asked, s.Status)
	}
	if _, data := f.Call(t, "GET", "/readyz", ""); !strings.Contains(string(data), `"ready":true`) ||
		!strings.Contains(string(data), "breaker_open") {
		t.Errorf("readiness %s", data)
	}
	pause := eventually(t, "the breaker is half open", slack*10*time.Second, func() bool {
		_, data := f.Call(t, "GET", "/readyz", "")
		return !strings.Contains(string(data), "breaker_open")
	})
	f.session(t, "") // two stages would ask it
	if probes := len(f.requests("d")) - asked; probes != 1 {
		t.Errorf("%d requests when half open, want 1", probes)
	}
	daemontest.Fault(t, "F04", "200, degraded; records with status error; breaker opens; one probe",
		"degraded; 3 records; open after %d requests, one probe after %.1f s", asked, pause.Seconds())
}

func TestFaultF05(t *testing.T) {
	down := []simllm.Fault{{Kind: simllm.FaultStatus, Status: 503}}
	f := trialOf(t, tapAll(t, map[string][]simllm.Fault{"c": down, "d": {{Kind: simllm.FaultEmptyContent}}}), "a,b,c,d", nil)
	problem, _ := f.problem(t, http.StatusBadGateway, council.CodeNoQuorum)
	var reasons []string
	for _, e := range problem.Errors {
		reasons = append(reasons, e.Field+": "+e.Message)
	}
	want := []string{
		"c: unavailable: the provider at " + strings.TrimPrefix(f.provider.url, "http://") +
			" answered 503 Service Unavailable: simulated failure: Service Unavailable",
		"d: empty: the reply holds no text",
	}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Error(diff)
	}
	for _, model := range []string{"a", "b", "c", "d"} {
		if n := len(f.requests(model, simllm.Review, simllm.Synthesis)); n != 0 {
			t.Errorf("%s was asked %d times more", model, n)
		}
	}
	if n := len(f.Records(t)); n != 0 {
		t.Errorf("%d records", n)
	}
	daemontest.Fault(t, "F05", "502 with the reason per model; nothing more paid for; no records",
		"502, %d reasons; 0 further calls; 0 records", len(reasons))
}

func TestFaultF07(t *testing.T) {
	f := trialOf(t, tap(t, simllm.Fault{Kind: simllm.FaultHang, Tasks: questions}), "a,b,c,d", nil)
	start := time.Now()
	s := f.session(t, `,"timeout_seconds":2`)
	elapsed := time.Since(start)
	if diff := cmp.Diff([]string{"stage1 d timeout"}, daemontest.Missing(s)); diff != "" {
		t.Error(diff)
	}
	const deadline = 800 * time.Millisecond // 40 % of the budget
	if elapsed < deadline {
		t.Errorf("the stage was over before its deadline, after %v", elapsed)
	}
	latency := time.Duration(s.Stage1[3].LatencyMS * float64(time.Millisecond))
	f.idle(t)
	asked := f.requests("d", simllm.Question)
	if len(asked) != 1 || !asked[0].cut {
		t.Fatalf("requests %+v", asked)
	}
	// The deadline is that of the run, which began a little before the request.
	closed := asked[0].ended.Sub(asked[0].begun.Add(deadline))
	daemontest.Fault(t, "F07", "deadline +-50 ms; the provider sees the close within 100 ms",
		"call over at %+.0f ms; provider saw it at %+.0f ms", milliseconds(latency-deadline), milliseconds(closed))
	atMost(t, "the call", max(latency-deadline, 0), 50*time.Millisecond)
	atMost(t, "the close", closed, 100*time.Millisecond)
}

func TestFaultF08(t *testing.T) {
	var figures []string
	for _, tt := range []struct {
		name, limit string
		fault       simllm.FaultKind
		message     string
		adjust      func(c *config.Config, limit time.Duration)
	}{
		{"1 byte/s", "ATTEMPT_TIMEOUT", simllm.FaultSlowBody, "attempt", func(c *config.Config, limit time.Duration) { c.AttemptTimeout = limit }},
		{"stall", "the idle timeout", simllm.FaultStall, "silent", func(c *config.Config, limit time.Duration) { c.IdleTimeout = limit }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const limit = 400 * time.Millisecond
			f := trialOf(t, tap(t, simllm.Fault{Kind: tt.fault, Tasks: questions}), "a,b,c,d", nil,
				func(c *config.Config) { tt.adjust(c, limit) })
			s := f.session(t, "")
			a := s.Stage1[3]
			if a.Error == nil || a.Error.Code != council.FailTimeout || !strings.Contains(a.Error.Message, tt.message) || a.Attempts != 1 {
				t.Fatalf("%s: %d attempts, %+v", tt.name, a.Attempts, a.Error)
			}
			latency := time.Duration(a.LatencyMS * float64(time.Millisecond))
			if latency < limit {
				t.Errorf("%s: cut after %v", tt.name, latency)
			}
			figures = append(figures, fmt.Sprintf("%s: %s after %s", tt.name, atMost(t, tt.name, latency-limit, 100*time.Millisecond),
				tt.limit))
			broken := f.requests("d", simllm.Question)[0].connection
			for _, model := range []string{"a", "b", "c", "d"} {
				if slices.ContainsFunc(f.requests(model, simllm.Review, simllm.Synthesis),
					func(s seen) bool { return s.connection == broken }) {
					t.Errorf("%s: the connection was used again", tt.name)
				}
			}
		})
	}
	daemontest.Fault(t, "F08", "cut at ATTEMPT_TIMEOUT, at the idle timeout; connection not reused", "%s; not reused",
		strings.Join(figures, ", "))
}

func TestFaultF09(t *testing.T) {
	testkit.Slow(t)
	for kind, code := range map[simllm.FaultKind]council.FailureCode{
		simllm.FaultResetBody: council.FailReset,
		simllm.FaultEOFBody:   council.FailTruncated,
	} {
		t.Run(string(kind), func(t *testing.T) {
			once := simllm.Fault{Kind: kind, Tasks: questions, Times: 1}
			f := trialOf(t, tap(t, once), "a,b,c,d", nil)
			if s := f.session(t, ""); s.Status != council.StatusComplete || s.Stage1[3].Attempts != 2 {
				t.Errorf("%s once: status %s after %d attempts", kind, s.Status, s.Stage1[3].Attempts)
			}
			once.Times = 0
			f = trialOf(t, tap(t, once), "a,b,c,d", map[string]string{"MAX_ATTEMPTS": "2"})
			a := f.session(t, "").Stage1[3]
			if a.Response != nil || a.Error == nil || a.Error.Code != code || a.Attempts != 2 {
				t.Errorf("%s: %d attempts, %+v", kind, a.Attempts, a)
			}
			// Half of a stream was passed on: another member writes the answer from its start.
			once.Tasks, once.Times = syntheses, 1
			f = trialOf(t, tap(t, once), "a,b,c,d", map[string]string{"CHAIRMAN": "d"})
			s, restarts := f.streamed(t)
			if restarts != 1 || len(f.requests("d", simllm.Synthesis)) != 1 || s.Stage3.Error.Code != code ||
				!strings.HasPrefix(s.Answer, "Simulated synthesis.") {
				t.Errorf("%s: %d restarts after %d requests, %+v", kind, restarts, len(f.requests("d", simllm.Synthesis)), s.Stage3)
			}
		})
	}
	daemontest.Fault(t, "F09", "reset / truncated, never success; retried while nothing was passed on",
		"reset, truncated; one retry mends it; none once deltas were passed on")
}

func TestFaultF10(t *testing.T) {
	replies := []struct {
		kind simllm.FaultKind
		want council.FailureCode // "" for an answer
	}{
		{simllm.FaultHTML, council.FailBadResponse},
		{simllm.FaultHalfJSON, council.FailBadResponse},
		{simllm.FaultErrorIn200, council.FailBadResponse},
		{simllm.FaultEmptyObject, council.FailBadResponse},
		{simllm.FaultNull, council.FailBadResponse},
		{simllm.FaultNoChoices, council.FailBadResponse},
		{simllm.FaultNullContent, council.FailEmpty},
		{simllm.FaultEmptyContent, council.FailEmpty},
		{simllm.FaultReasoningOnly, council.FailEmpty},
		{simllm.FaultRefusalField, council.FailRefused},
		{simllm.FaultContentFilter, council.FailContentFilter},
		{simllm.FaultRefusal, ""}, // a text is a text
		{simllm.FaultLength, ""},  // half a text, with a warning
	}
	for _, tt := range replies {
		t.Run(string(tt.kind), func(t *testing.T) {
			f := trialOf(t, tap(t, simllm.Fault{Kind: tt.kind, Tasks: questions}), "a,b,c,d", nil)
			s := f.session(t, "")
			a := s.Stage1[3]
			var got council.FailureCode
			if a.Error != nil {
				got = a.Error.Code
			}
			if got != tt.want || (got == "") != (a.Response != nil) || a.Attempts != 1 || len(f.requests("d", simllm.Question)) != 1 {
				t.Errorf("%s: %q after %d attempts, want %q after one", tt.kind, got, a.Attempts, tt.want)
			}
			cut := slices.ContainsFunc(s.Metadata.Warnings, func(w council.Warning) bool { return w.Code == council.WarnAnswerCutShort })
			if cut != (tt.kind == simllm.FaultLength) {
				t.Errorf("%s: warnings %v", tt.kind, s.Metadata.Warnings)
			}
		})
	}
	daemontest.Fault(t, "F10", "typed outcome, no panic, no retry storm", "%d replies, each typed, one request each", len(replies))
}

// An error behind HTTP 200 is what a response with its status would be.
func TestFaultF47(t *testing.T) {
	testkit.Slow(t)
	for _, status := range []int{408, 429, 500, 502, 503, 529} {
		for _, tasks := range [][]simllm.TaskKind{questions, reviews, syntheses} {
			fault := simllm.Fault{Kind: simllm.FaultErrorIn200, Status: status, Tasks: tasks, Times: 1}
			f := trialOf(t, tap(t, fault), "a,b,c,d", map[string]string{"CHAIRMAN": "d"})
			s, restarts := f.streamed(t)
			if n := len(f.requests("d", tasks...)); s.Status != council.StatusComplete || n != 2 || restarts != 0 {
				t.Errorf("%d for %v: %s after %d requests and %d restarts", status, tasks, s.Status, n, restarts)
			}
		}
	}
	for _, tt := range []struct {
		status, requests int
		want             council.FailureCode
	}{
		{429, 3, council.FailRateLimited},
		{503, 3, council.FailUnavailable},
		{401, 1, council.FailUnauthorized},
		{402, 1, council.FailOutOfQuota},
		{404, 1, council.FailUnknownModel},
		{0, 1, council.FailBadResponse},
	} {
		fault := simllm.Fault{Kind: simllm.FaultErrorIn200, Status: tt.status, Tasks: questions}
		f := trialOf(t, tap(t, fault), "a,b,c,d", nil)
		a := f.session(t, "").Stage1[3]
		if n := len(f.requests("d", simllm.Question)); a.Error == nil || a.Error.Code != tt.want || n != tt.requests ||
			!strings.Contains(a.Error.Message, "simulated failure") {
			t.Errorf("%d: %+v after %d requests, want %s after %d", tt.status, a.Error, n, tt.want, tt.requests)
		}
	}
	// The text of a member is passed on while it writes, and taken back when the member is asked again.
	fault := simllm.Fault{Kind: simllm.StreamError, Status: 503, Tasks: questions, Times: 1}
	f := trialOf(t, tap(t, fault), "a,b,c,d", nil)
	s, count := f.events(t)
	if s.Status != council.StatusComplete || s.Stage1[3].Attempts != 2 || count[council.EventAnswerRestart] > 1 {
		t.Errorf("%s, %+v, %v", s.Status, s.Stage1[3].Error, count)
	}
	daemontest.Fault(t, "F47", "as a response with the status that it names",
		"6 statuses in 3 stages: one retry each; 429 and 503 that stay: 3 requests; 401, 402, 404 and no status: one")
}

func TestFaultF11(t *testing.T) {
	testkit.Slow(t)
	// A buffer that grows to the limit allocates a multiple of it, and twice as much
	// under the race detector.
	const most = 16 * (8 << 20) // a reply has 8 MiB
	f := trialOf(t, tap(t, simllm.Fault{Kind: simllm.FaultHugeBody, Tasks: questions}), "a,b,c,d", nil)
	before := allocated()
	if a := f.session(t, "").Stage1[3]; a.Error == nil || a.Error.Code != council.FailTooLarge || a.Attempts != 1 {
		t.Errorf("%+v", a)
	}
	body := allocated() - before
	f = trialOf(t, tap(t, simllm.Fault{Kind: simllm.StreamHugeLine, Tasks: syntheses}), "a,b,c,d", map[string]string{"CHAIRMAN": "d"})
	before = allocated()
	if s, restarts := f.streamed(t); s.Stage3.Error == nil || s.Stage3.Error.Code != council.FailTooLarge || restarts != 0 {
		t.Errorf("%d restarts, %+v", restarts, s.Stage3)
	}
	line := allocated() - before
	if body > most || line > most {
		t.Errorf("the process allocated %d bytes for a body of 1 GiB, %d for a line of 10 MiB", body, line)
	}
	f = trialOf(t, tap(t, simllm.Fault{Kind: simllm.FaultHugeError, Tasks: questions}), "a,b,c,d", nil)
	a := f.session(t, "").Stage1[3]
	if a.Error == nil || a.Error.Code != council.FailUnavailable || len(a.Error.Message) > 1<<10 {
		t.Errorf("%+v", a.Error)
	}
	daemontest.Fault(t, "F11", "stops at 8 MiB; error text <= 1 KiB; memory per call bounded",
		"too_large, %d MiB allocated for the body and %d for the line; error text %d bytes", body>>20, line>>20, len(a.Error.Message))
}

// allocated returns the bytes that the process allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestFaultF12(t *testing.T) {
	late := []simllm.Fault{{Kind: simllm.FaultLateEnd, Delay: 20 * time.Millisecond}}
	f := trialOf(t, tapAll(t, map[string][]simllm.Fault{"a": late, "b": late, "c": late, "d": late}), "a,b,c,d", nil)
	calls := 0
	for calls < 50 {
		one := f.session(t, "")
		other, _ := f.streamed(t)
		if one.Status != council.StatusComplete || other.Status != council.StatusComplete {
			t.Fatalf("status %s and %s", one.Status, other.Status)
		}
		calls += 2 * 9
	}
	f.provider.mu.Lock()
	connections := f.provider.connections
	f.provider.mu.Unlock()
	if connections > 4 {
		t.Errorf("%d connections", connections)
	}
	daemontest.Fault(t, "F12", "at most 4 connections for 50 calls", "%d connections for %d calls", connections, calls)
}

// A stream of single characters makes few events, and streams of rare but legal forms
// are read.
func TestFaultF36(t *testing.T) {
	const (
		deltas = 400_000
		limit  = 512 << 10 // of a reply
		most   = 16 * limit
	)
	tiny := simllm.Fault{Kind: simllm.StreamTiny, Size: deltas, Tasks: syntheses}
	f := trialOf(t, tap(t, tiny), "a,b,c,d", map[string]string{"CHAIRMAN": "d"},
		func(c *config.Config) { c.MaxUpstreamBytes = limit })
	f.session(t, "") // what is set up once is set up
	before, start := heap(), time.Now()
	s, count := f.events(t)
	took := time.Since(start)
	if s.Status != council.StatusComplete || strings.Count(s.Answer, "x") < deltas {
		t.Errorf("status %s, %d bytes", s.Status, len(s.Answer))
	}
	events := count[council.EventDelta]
	if events > int(took/(20*time.Millisecond))+2 {
		t.Errorf("%d deltas became %d events in %s", deltas, events, took)
	}
	grown := heap() - before
	if grown > most {
		t.Errorf("the session takes %d bytes", grown)
	}

	f = trialOf(t, tap(t, simllm.Fault{Kind: simllm.StreamRare, Tasks: syntheses}), "a,b,c,d", map[string]string{"CHAIRMAN": "d"})
	rare, restarts := f.streamed(t)
	if rare.Status != council.StatusComplete || restarts != 0 || strings.Count(rare.Answer, "Simulated synthesis.") != 1 {
		t.Errorf("status %s, %d restarts, answer %.100q", rare.Status, restarts, rare.Answer)
	}
	daemontest.Fault(t, "F36", "deltas coalesce; memory within 16 replies; rare forms are read",
		"%d deltas are %d events; memory of %.1f replies; many lines, CR, capitals and another choice are read", deltas, events,
		float64(grown)/limit)
}
