package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

var syntheses = []simllm.TaskKind{simllm.Synthesis}

// However the chairman fails, there is one answer.
func TestFaultF15(t *testing.T) {
	testkit.Slow(t)
	chairmen := []struct {
		fault simllm.Fault
		want  council.FailureCode
	}{
		{simllm.Fault{Kind: simllm.FaultStatus, Status: 500}, council.FailUnavailable},
		{simllm.Fault{Kind: simllm.FaultErrorIn200}, council.FailBadResponse},
		{simllm.Fault{Kind: simllm.FaultEmptyContent}, council.FailEmpty},
		{simllm.Fault{Kind: simllm.FaultRefusalField}, council.FailRefused},
		{simllm.Fault{Kind: simllm.FaultHang}, council.FailTimeout},
		{simllm.Fault{Kind: simllm.FaultEOFBody}, council.FailTruncated},
		{simllm.Fault{Kind: simllm.FaultLength}, council.FailLength},
	}
	for _, tt := range chairmen {
		t.Run(string(tt.fault.Kind), func(t *testing.T) {
			tt.fault.Tasks = syntheses
			faults := []simllm.Fault{tt.fault}
			env := map[string]string{"CHAIRMAN": "d", "ATTEMPT_TIMEOUT": "1s", "MAP": "false"} // A cut in the map leaves a whole answer.
			f := trialOf(t, tap(t, tt.fault), "a,b,c,d", env)
			s := f.session(t, "")
			if diff := cmp.Diff([]string{"stage3 d " + string(tt.want)}, daemontest.Missing(s)); diff != "" || s.Stage3.Fallback == nil ||
				*s.Stage3.Fallback != council.FallbackSecondChairman {
				t.Errorf("%+v: %s", s.Stage3, diff)
			}
			if !strings.HasPrefix(s.Answer, "Simulated synthesis.") || s.Stage3.Error.Code != tt.want {
				t.Errorf("%.60q beside %+v", s.Answer, s.Stage3.Error)
			}
			// No model can write the answer.
			f = trialOf(t, tapAll(t, map[string][]simllm.Fault{"a": faults, "b": faults, "c": faults, "d": faults}), "a,b,c,d", env)
			s = f.session(t, "")
			best := s.Metadata.AggregateRankings[0].Model
			if s.Stage3.Fallback == nil || *s.Stage3.Fallback != council.FallbackTopRanked || s.Stage3.Model != best ||
				len(daemontest.Missing(s)) != 4 {
				t.Errorf("%+v, missing %v", s.Stage3, daemontest.Missing(s))
			}
			for _, a := range s.Stage1 {
				if a.Model == best && *a.Response != s.Answer {
					t.Errorf("the answer is not that of %s: %.60q", best, s.Answer)
				}
			}
		})
	}
	daemontest.Fault(t, "F15", "fallback chain, then the top-ranked answer labelled so; no error text in answer",
		"%d kinds: second chairman, and top_ranked where nobody writes", len(chairmen))
}

// When a client disconnects, nothing more is paid for.
func TestFaultF16(t *testing.T) {
	var figures []string
	for _, tt := range []struct {
		task              simllm.TaskKind
		inFlight, records int // requests of that stage, and records that are kept
	}{{simllm.Question, 4, 0}, {simllm.Review, 4, 0}, {simllm.Synthesis, 1, 12}} {
		t.Run(string(tt.task), func(t *testing.T) {
			hang := []simllm.Fault{{Kind: simllm.FaultHang, Tasks: []simllm.TaskKind{tt.task}}}
			f := trialOf(t, tapAll(t, map[string][]simllm.Fault{"a": hang, "b": hang, "c": hang, "d": hang}), "a,b,c,d", nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			gone := make(chan error, 1)
			go func() {
				_, _, err := f.post(ctx, "")
				gone <- err
			}()
			asked := func() int {
				n := 0
				for _, model := range []string{"a", "b", "c", "d"} {
					n += len(f.requests(model, tt.task))
				}
				return n
			}
			eventually(t, "the stage is under way", 10*time.Second, func() bool { return asked() == tt.inFlight })
			at := time.Now()
			cancel()
			if err := <-gone; err == nil {
				t.Error("the client got an answer")
			}
			f.idle(t)
			eventually(t, "the session is counted as cancelled", 10*time.Second, func() bool {
				_, data := f.Call(t, "GET", "/metrics", "")
				return strings.Contains(string(data), `councild_sessions_total{status="cancelled"} 1`) &&
					strings.Contains(string(data), fmt.Sprintf(`outcome="persisted"} %d`, tt.records)) == (tt.records > 0) &&
					strings.Contains(string(data), "councild_sessions_running 0")
			})
			var last time.Time
			f.provider.mu.Lock()
			for _, s := range f.provider.seen {
				if s.begun.After(at) {
					t.Errorf("a %s by %s was begun %v after the client had gone", s.task, s.model, s.begun.Sub(at))
				}
				if s.task == tt.task && !s.cut {
					t.Errorf("the %s by %s was not cut", s.task, s.model)
				}
				if s.ended.After(last) {
					last = s.ended
				}
			}
			f.provider.mu.Unlock()
			if n := len(f.Records(t)); n != tt.records {
				t.Errorf("%d records, want %d", n, tt.records)
			}
			figures = append(figures, fmt.Sprintf("%s %s", tt.task, atMost(t, string(tt.task), last.Sub(at), 100*time.Millisecond)))
		})
	}
	daemontest.Fault(t, "F16", "cancelled within 100 ms, none started after; counted; nothing half written", "%s; counted",
		strings.Join(figures, ", "))
}

// A wrong clock changes no duration: the daemon measures durations with the monotonic
// clock.
func TestFaultF29(t *testing.T) {
	testkit.Slow(t)
	for after, want := range map[string]string{
		"Fri, 31 Dec 9999 23:59:59 GMT": "3600", "1e300": "3600",
		"Sat, 01 Jan 2000 00:00:00 GMT": "",
	} {
		t.Run(after, func(t *testing.T) {
			busy := simllm.Fault{Kind: simllm.FaultStatus, Status: 429, RetryAfter: after}
			f := trialOf(t, tap(t, busy), "a,b,c,d", nil)
			start := time.Now()
			s := f.session(t, "")
			atMost(t, "the session", time.Since(start), 3*time.Second)
			for _, a := range s.Stage1 {
				if a.LatencyMS < 0 || a.Error != nil && a.Error.RetryAfterS != nil && *a.Error.RetryAfterS < 0 {
					t.Errorf("%+v", a)
				}
			}
			if m := s.Metadata.Timing; m.Stage1MS < 0 || m.Stage2MS < 0 || m.Stage3MS < 0 || m.TotalMS < 0 || m.OverheadMS < 0 {
				t.Errorf("%+v", m)
			}
			f = trialOf(t, tap(t, busy), "a,d", map[string]string{"QUORUM": "2"})
			if _, header := f.problem(t, http.StatusBadGateway, council.CodeNoQuorum); header.Get("Retry-After") != want {
				t.Errorf("Retry-After %q, want %q", header.Get("Retry-After"), want)
			}
		})
	}

	path := filepath.Join(t.TempDir(), "records.jsonl")
	ahead, err := json.Marshal(council.BiasMetricRecord{
		SchemaVersion: council.RecordSchema, SessionID: "ahead", Timestamp: time.Now().AddDate(1, 0, 0), ReviewerID: "a", ModelID: "b",
		Position:   new(0),
		ScoreValue: new(5.0), ScoreScale: council.ScoreScale, OrderDesign: council.OrderBalanced, Status: council.BallotOK,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(ahead, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	f := trialOf(t, tap(t), "a,b,c,d", map[string]string{"BIAS_STORE": path})
	f.session(t, "")
	_, data := f.Call(t, "GET", "/v1/bias-report", "")
	var r bias.Report
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Skipped) != 1 || r.Skipped[0].Reason != "future_timestamp" || r.Skipped[0].Count != 1 || r.Window.Sessions != 1 {
		t.Errorf("skipped %+v, window %+v", r.Skipped, r.Window)
	}
	daemontest.Fault(t, "F29", "durations never negative; wait clamped; the window ignores the future and says so",
		"Retry-After of the year 9999 told as 3600 s, not waited for; 1 record skipped as future_timestamp")
}
