package daemon_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// slack is the factor by which a measured figure may exceed the promised upper bound on a
// machine that is busy with other tests. The log shows both figures.
const slack = 5

const secretKey = "sk-a-secret-key"

// trial is a daemon whose providers or disk fail. After every fault, checkAfterFault must
// pass.
type trial struct {
	*daemontest.Daemon
	provider    *tapped
	goroutines  int
	descriptors int
	asked       int            // questions
	persisted   map[string]int // records by session, of those that are kept
	problems    []byte         // every body that was no session
	skipped     int            // lines of the store that hold no record
}

// trialOf starts a daemon over p, whose members are models.
func trialOf(t *testing.T, p *tapped, models string, env map[string]string, adjust ...func(*config.Config)) *trial {
	t.Helper()
	return trialOn(t, disk.OS{}, p, models, env, adjust...)
}

// trialOn is trialOf with the records on a disk of its own.
func trialOn(
	t *testing.T, on disk.Disk, p *tapped, models string, env map[string]string, adjust ...func(*config.Config),
) *trial {
	t.Helper()
	all := map[string]string{"BASE_URL": p.url, "MODELS": models, "API_KEY": secretKey, "LOG_LEVEL": "debug"}
	maps.Copy(all, env)
	f := &trial{Daemon: daemontest.StartOn(t, on, all, adjust...), provider: p, persisted: map[string]int{}}
	f.Call(t, "GET", "/healthz", "")
	f.goroutines, f.descriptors = runtime.NumGoroutine(), openDescriptors()
	t.Cleanup(func() {
		if !t.Failed() {
			f.checkAfterFault(t)
		}
	})
	return f
}

// openDescriptors counts the open descriptors of this process; 0 where the system does
// not tell.
func openDescriptors() int {
	open, _ := os.ReadDir("/proc/self/fd")
	return len(open)
}

// post asks a question of its own, with further fields of the request, such as
// `,"seed":1`.
func (f *trial) post(ctx context.Context, fields string) (*http.Response, []byte, error) {
	f.asked++
	return f.Send(ctx, "POST", "/v1/council", fmt.Sprintf(`{"query":"the unmistakable question %d"%s}`, f.asked, fields))
}

// session asks a question that must be answered with a session.
func (f *trial) session(t *testing.T, fields string) council.Session {
	t.Helper()
	resp, data, err := f.post(t.Context(), fields)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%.500s, %v", data, err)
	}
	return f.answered(t, data)
}

// streamed asks a question whose answer is streamed. It returns the session, and how
// often what had been streamed became void.
func (f *trial) streamed(t *testing.T) (s council.Session, restarts int) {
	t.Helper()
	s, count := f.events(t)
	return s, count[council.EventRestart]
}

// events asks such a question too. It returns the session, and how many events of each
// type there were.
func (f *trial) events(t *testing.T) (s council.Session, count map[council.EventType]int) {
	t.Helper()
	_, stream, err := f.post(t.Context(), `,"stream":true`)
	if err != nil {
		t.Fatal(err)
	}
	count = map[council.EventType]int{}
	for _, e := range daemontest.Events(t, stream) {
		count[e.Type]++
		if done, ok := e.Data.(*council.Session); ok {
			s = *done
		}
	}
	if s.ID == "" {
		t.Fatalf("the session has no result: %.500s", stream)
	}
	if s.Persisted {
		f.kept(s)
	}
	return s, count
}

// answered reads a session and notes the records that it says are kept.
func (f *trial) answered(t *testing.T, data []byte) (s council.Session) {
	t.Helper()
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if s.Persisted {
		f.kept(s)
	}
	return s
}

// kept notes how many records a session has.
func (f *trial) kept(s council.Session) {
	for _, v := range s.Stage2 {
		f.persisted[s.ID] += len(v.LabelToModel)
	}
}

// problem asks a question that must be answered with this problem.
func (f *trial) problem(t *testing.T, status int, code council.Code) (council.Problem, http.Header) {
	t.Helper()
	resp, data, err := f.post(t.Context(), "")
	var problem council.Problem
	if err != nil || resp.StatusCode != status || json.Unmarshal(data, &problem) != nil || problem.Code != code {
		t.Fatalf("%.500s, %v", data, err)
	}
	f.problems = append(f.problems, data...)
	return problem, resp.Header
}

// requests returns the requests for a model that the provider got, of these kinds of
// task, or of all kinds where none is named.
func (f *trial) requests(model string, tasks ...simllm.TaskKind) []seen {
	f.provider.mu.Lock()
	defer f.provider.mu.Unlock()
	var some []seen
	for _, s := range f.provider.seen {
		if s.model == model && (len(tasks) == 0 || slices.Contains(tasks, s.task)) {
			some = append(some, *s)
		}
	}
	return some
}

// idle waits until the provider has no request in flight.
func (f *trial) idle(t *testing.T) {
	t.Helper()
	eventually(t, "the provider is idle", slack*2*time.Second, func() bool {
		f.provider.mu.Lock()
		defer f.provider.mu.Unlock()
		return f.provider.now == 0
	})
}

// eventually waits until a condition holds that no event announces, and fails the test
// after the time within. It returns how long that took.
func eventually(t *testing.T, what string, within time.Duration, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// checkAfterFault stops the daemon, starts it again on its store, and checks what must
// hold after every fault.
func (f *trial) checkAfterFault(t *testing.T) {
	t.Helper()
	f.CloseIdleConnections() // idle connections are kept on purpose
	var goroutines, open int
	eventually(t, "goroutines and descriptors back to what they were", slack*2*time.Second, func() bool {
		goroutines, open = runtime.NumGoroutine(), openDescriptors()
		return goroutines <= f.goroutines && open <= f.descriptors
	})

	f.provider.mu.Lock()
	bodies := map[[sha256.Size]byte]bool{}
	for _, s := range f.provider.seen {
		bodies[s.sum] = true
	}
	if retries := len(f.provider.seen) - len(bodies); retries > max(10, len(bodies)/10) {
		t.Errorf("%d retries of %d calls", retries, len(bodies))
	}
	f.provider.mu.Unlock()
	for _, secret := range []string{"unmistakable", "Simulated", secretKey} {
		if strings.Contains(f.Log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
		if bytes.Contains(f.problems, []byte(secret)) {
			t.Errorf("an error holds %q", secret)
		}
	}

	f.End(t)
	again, err := daemon.New(context.Background(), daemon.Options{Config: f.Config, Simulated: simllm.Default(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	records := map[string]int{}
	var skipped []error
	for r, err := range store.ReadFile(context.Background(), f.Config.BiasStore) {
		if err != nil {
			skipped = append(skipped, err)
			continue
		}
		records[r.SessionID]++
	}
	if len(skipped) != f.skipped {
		t.Errorf("lines without a record: %v, want %d", skipped, f.skipped)
	}
	for id, n := range f.persisted {
		if records[id] != n {
			t.Errorf("session %s has %d records after a restart, want %d", id, records[id], n)
		}
	}
	if err := again.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// atMost fails the test when a duration exceeds the promised one times slack, and returns
// it in milliseconds for the log. A second is always allowed: so long a busy machine may
// let the process wait.
func atMost(t *testing.T, what string, got, promised time.Duration) string {
	t.Helper()
	if got > max(slack*promised, time.Second) {
		t.Errorf("%s: %v, promised are %v", what, got, promised)
	}
	return fmt.Sprintf("%.0f ms", milliseconds(got))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
