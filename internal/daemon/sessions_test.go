package daemon_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// background starts a session in the background and returns its id.
func background(t *testing.T, d *daemontest.Daemon, query string) string {
	t.Helper()
	status, data := d.Call(t, "POST", "/v1/council", fmt.Sprintf(`{"query":%q,"background":true}`, query))
	var started council.Summary
	if err := json.Unmarshal(data, &started); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, data)
	}
	return started.ID
}

// A malformed stream of the chairman is read in full, or fails with the right code. It
// never counts as a whole answer.
func TestFaultF13(t *testing.T) {
	for _, tt := range []struct {
		kind   simllm.FaultKind
		reason council.FailureCode // why the chairman was replaced; "": it was not
		detail string
	}{
		{kind: simllm.StreamComments},
		{kind: simllm.StreamEmptyData},
		{kind: simllm.StreamError, reason: council.FailBadResponse, detail: "simulated failure in the middle of the stream"},
		{kind: simllm.StreamNoEnd, reason: council.FailTruncated},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			fault := simllm.Fault{Kind: tt.kind, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}
			d := daemontest.Start(t, map[string]string{"BASE_URL": tap(t, fault).url, "MODELS": "a,b,c", "CHAIRMAN": "d"})
			began := time.Now()
			status, stream := d.Call(t, "POST", "/v1/council", `{"query":"What would change?","stream":true}`)
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, stream)
			}
			var answer strings.Builder
			var restarts []council.Restart
			var session *council.Session
			for _, e := range daemontest.Events(t, stream) {
				switch data := e.Data.(type) {
				case council.Delta:
					answer.WriteString(data.Text)
				case council.Restart:
					restarts = append(restarts, data)
					answer.Reset()
				case *council.Session:
					session = data
				}
			}
			if session == nil {
				t.Fatalf("the session has no result: %s", stream)
			}
			if answer.String() != session.Answer || session.Answer == "" || session.Stage3 == nil {
				t.Fatalf("the deltas are %q, the answer is %q", answer.String(), session.Answer)
			}
			if tt.reason == "" {
				if session.Status != council.StatusComplete || session.Stage3.Model != "d" || len(restarts) > 0 {
					t.Errorf("status %s, by %s, %v", session.Status, session.Stage3.Model, restarts)
				}
			} else if len(restarts) != 1 || restarts[0] != (council.Restart{Model: "d", Reason: tt.reason}) ||
				session.Status != council.StatusDegraded ||
				session.Stage3.Status != council.OutcomeFallback || session.Stage3.Error == nil ||
				!strings.Contains(session.Stage3.Error.Message, tt.detail) {
				t.Errorf("restarts %v, status %s, %+v", restarts, session.Status, session.Stage3)
			}
			t.Logf("fault F13: %s: %s, chairman %s, %d restarts after %s (promised: the stream survives, or a typed error with the "+
				"provider's message)",
				tt.kind, session.Status, session.Stage3.Status, len(restarts), time.Since(began).Round(time.Millisecond))
		})
	}
}

// The same request, sent many times at once under one key, is one session.
func TestFaultF30(t *testing.T) {
	p := tap(t)
	d := onTap(t, p, "", "")
	const clients = 16
	bodies := make([][]byte, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			_, body, err := d.Send(t.Context(), "POST", "/v1/council", `{"query":"Only once?"}`, "Idempotency-Key", "once")
			if err != nil {
				t.Error(err)
			}
			bodies[i] = body
		})
	}
	wg.Wait()
	for _, body := range bodies {
		if !bytes.Equal(body, bodies[0]) || !bytes.Contains(body, []byte(`"persisted":true`)) {
			t.Fatalf("got %s and %s", body, bodies[0])
		}
	}
	if len(p.bodies) != 7 || len(d.Records(t)) != 6 {
		t.Errorf("%d calls and %d records, want 7 and 6", len(p.bodies), len(d.Records(t)))
	}
	if status, data := d.Call(t, "POST", "/v1/council", `{"query":"Another?"}`, "Idempotency-Key", "once"); status != http.StatusConflict {
		t.Errorf("%d %s", status, data)
	}
	t.Logf("fault F30: %d requests, 1 session, %d records (promised: one session, one record set)", clients, len(d.Records(t)))
}

// A daemon that stops waits for sessions in the background, and tells their watchers how
// they ended.
func TestDrainInBackground(t *testing.T) {
	for _, tt := range []struct {
		drain, dir string
		want       council.EventType
	}{
		{"", "", council.EventDone},
		{"10ms", "off", council.EventFailed},
		{"10ms", "", council.EventAnswer}, // the next daemon goes on with it
	} {
		drain, want := tt.drain, tt.want
		url, arrived, release := daemontest.Held(t)
		env := map[string]string{
			"BASE_URL": url, "MODELS": "waiting,quick", "DRAIN_TIMEOUT": drain, "DATA_DIR": tt.dir,
			"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
		}
		d := daemontest.Start(t, env)
		id := background(t, d, "Wait for me?")
		<-arrived
		transport := &http.Transport{}
		resp, err := (&http.Client{Transport: transport}).Get(d.URL() + "/v1/council/" + id + "/events")
		if err != nil {
			t.Fatal(err)
		}
		in, stream := bufio.NewReader(resp.Body), []byte{}
		for !bytes.HasSuffix(stream, []byte("event: stage1.answer\n")) { // of the quick model
			line, err := in.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			stream = append(stream, line...)
		}
		d.Stop()
		for drain == "" {
			if code, _ := d.Call(t, "GET", "/readyz", ""); code == http.StatusServiceUnavailable {
				release()
				break
			}
		}
		rest, err := io.ReadAll(in)
		if err != nil {
			t.Errorf("drain timeout %q: %v", drain, err)
		}
		events := daemontest.Events(t, append(stream, rest...))
		if got := events[len(events)-1].Type; got != want {
			t.Errorf("drain timeout %q: the session ends with %s", drain, got)
		}
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
		release()
		d.End(t)
		if want == council.EventAnswer {
			next := daemontest.Start(t, env)
			_, stream := next.Call(t, "GET", "/v1/council/"+id+"/events", "")
			again := daemontest.Events(t, stream)
			if s, ok := again[len(again)-1].Data.(*council.Session); !ok || s.Status != council.StatusComplete || !s.Persisted {
				t.Errorf("the next daemon ends the session with %v", again[len(again)-1])
			}
			var texts daemontest.Texts
			restarts := map[string]int{}
			for _, e := range again {
				if err := texts.Take(e); err != nil {
					t.Error(err)
				}
				if restart, ok := e.Data.(council.AnswerRestart); ok {
					restarts[restart.Model]++
				}
			}
			if diff := cmp.Diff(map[string]int{"waiting": 1}, restarts); diff != "" { // what landed stays as it was shown
				t.Errorf("restarts: %s", diff)
			}
			again = slices.DeleteFunc(again, func(e council.Event) bool {
				return e.Type == council.EventAnswerDelta || e.Type == council.EventAnswerRestart
			})
			if n := slices.IndexFunc(again, func(e council.Event) bool { return e.Type == council.EventStage1 }); n != 3 {
				t.Errorf("stage 1 ends with event %d", n)
			}
		}
	}
}

// A stream is flushed to its connection also where requests are traced.
func TestTracedStream(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	status, stream := d.Call(t, "POST", "/v1/council", `{"query":"Who sees it?","stream":true}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, stream)
	}
	events := daemontest.Events(t, stream)
	if got := events[len(events)-1].Type; got != council.EventDone {
		t.Errorf("the session ends with %s", got)
	}
}

// leaveTwo has a daemon leave two sessions, and starts one that has a place for one of them.
// It returns the settings, the daemon, and the sessions that runs and that waits.
func leaveTwo(t *testing.T, url string, arrived chan struct{}) (env map[string]string, d *daemontest.Daemon, runs, waits string) {
	t.Helper()
	env = map[string]string{
		"BASE_URL": url, "MODELS": "waiting,quick", "DRAIN_TIMEOUT": "10ms", "MAX_SESSIONS": "2",
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
	}
	first := daemontest.Start(t, env)
	runs, waits = background(t, first, "One?"), background(t, first, "Two?")
	<-arrived
	<-arrived
	first.End(t)
	env = maps.Clone(env)
	env["MAX_SESSIONS"], env["DRAIN_TIMEOUT"] = "1", ""
	d = daemontest.Start(t, env)
	d.Call(t, "GET", "/healthz", "") // it answers when it has claimed both
	<-arrived
	for line := range strings.Lines(d.Log.String()) {
		if strings.Contains(line, `"session started"`) && strings.Contains(line, waits) {
			runs, waits = waits, runs
		}
	}
	return env, d, runs, waits
}

// lastStatus returns the status of a session at its end.
func lastStatus(t *testing.T, d *daemontest.Daemon, id string) council.Status {
	t.Helper()
	next(t, d, id, "", 0)
	var s council.Session
	if _, data := d.Call(t, "GET", "/v1/council/"+id, ""); json.Unmarshal(data, &s) != nil {
		t.Fatalf("%s", data)
	}
	return s.Status
}

// A session of an earlier daemon that waits for a place is cancelled by DELETE at once, for
// good.
func TestDeleteOfASessionThatWaits(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	env, second, runs, waits := leaveTwo(t, url, arrived)
	if code, data := second.Call(t, "DELETE", "/v1/council/"+waits, ""); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, data)
	}
	if status := lastStatus(t, second, waits); status != council.StatusCancelled {
		t.Errorf("it ends as %s", status)
	}
	release()
	if status := lastStatus(t, second, runs); status != council.StatusComplete {
		t.Errorf("the other session ends as %s", status)
	}
	second.End(t)
	if status := lastStatus(t, daemontest.Start(t, env), waits); status != council.StatusCancelled {
		t.Errorf("for the next daemon it is %s", status)
	}
	if n := len(arrived); n > 0 {
		t.Errorf("%d more questions were asked", n)
	}
}

// A daemon that stops leaves a session that waits for a place to the next one.
func TestNothingBeginsWhileDraining(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	env, second, runs, waits := leaveTwo(t, url, arrived)
	second.Stop()
	for code := 0; code != http.StatusServiceUnavailable; {
		code, _ = second.Call(t, "GET", "/readyz", "")
	}
	release()
	second.End(t)
	if n := len(arrived); n > 0 {
		t.Errorf("%d questions were asked while the daemon stopped", n)
	}
	third := daemontest.Start(t, env)
	for _, id := range []string{runs, waits} {
		if status := lastStatus(t, third, id); status != council.StatusComplete {
			t.Errorf("session %s ends as %s", id, status)
		}
	}
}
