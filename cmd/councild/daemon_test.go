package main

import (
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/daemontest"
)

const (
	token    = "a-token-of-sixteen-and-more"
	marker   = "unmistakable"
	question = `{"query":"Which is the ` + marker + ` one?"}`
)

// daemon is a councild serve in a process of its own, over a provider in this process.
type daemon struct {
	*process
	daemontest.Caller
	records string
	sim     *simllm.Running
	log     strings.Builder // to be read when the process has ended
	logged  chan struct{}
	before  usage

	sessions map[string]bool // those with records, when the process has ended
}

// usage is what a process uses, as far as the system tells it.
type usage struct {
	goroutines, descriptors float64
	memory                  float64 // bytes
	cpu                     float64 // seconds since the process began
}

// most returns the larger of each figure.
func (u usage) most(v usage) usage {
	return usage{max(u.goroutines, v.goroutines), max(u.descriptors, v.descriptors), max(u.memory, v.memory), max(u.cpu, v.cpu)}
}

// startDaemon starts a daemon whose members are the models given. A test ends it
// with finish or ended. Where a test fails before, the process is killed.
func startDaemon(t *testing.T, models []simllm.Model, env ...string) *daemon {
	t.Helper()
	sim := daemontest.Provider(t, models...)
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	d := &daemon{
		records: filepath.Join(t.TempDir(), "records.jsonl"), sim: sim, logged: make(chan struct{}), sessions: map[string]bool{},
	}
	d.process = start(t, append([]string{
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + sim.URL(), "LLM_COUNCIL_MODELS=" + strings.Join(names, ","),
		"LLM_COUNCIL_BIAS_STORE=" + d.records, "LLM_COUNCIL_API_TOKENS=" + token, "LLM_COUNCIL_API_KEY=sk-a-secret-key",
		"LLM_COUNCIL_LOG_LEVEL=debug",
	}, env...), "serve")
	url, _, _ := strings.Cut(line(t, d.stderr, `"msg":"listening","url":"`), `"`)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	d.Caller = daemontest.Caller{Base: url, Token: token, Client: client}
	go func() {
		defer close(d.logged)
		_, _ = d.stderr.WriteTo(&d.log)
	}()
	// Collecting metrics takes goroutines too, and their number differs from one time to
	// the next.
	for range 10 {
		d.before = d.before.most(d.usage(t))
	}
	return d
}

// call is Send for a request that must have an answer.
func (d *daemon) call(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	resp, data, err := d.Send(t.Context(), method, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

// usage asks the daemon's own metrics, once: a second request could have another
// goroutine of the server.
func (d *daemon) usage(t *testing.T) usage {
	t.Helper()
	_, text := d.call(t, "GET", "/metrics", "")
	// figure returns a metric without labels, 0 where the system does not tell it.
	figure := func(name string) float64 {
		_, rest, _ := strings.Cut(text, "\n"+name+" ")
		value, _, _ := strings.Cut(rest, "\n")
		f, err := strconv.ParseFloat(value, 64)
		if err != nil && runtime.GOOS == "linux" {
			t.Fatalf("%s: %v", name, err)
		}
		return f
	}
	return usage{
		figure("go_goroutines"), figure("process_open_fds"), figure("process_resident_memory_bytes"),
		figure("process_cpu_seconds_total"),
	}
}

// waitUntilReleased waits until the daemon has no more goroutines and descriptors than
// before. It closes the provider first: the daemon may keep idle connections to it. It
// returns the usage that it saw last, which is what a test must judge: a later request
// may find one more goroutine of the server.
func (d *daemon) waitUntilReleased(t *testing.T) (usage, time.Duration) {
	t.Helper()
	d.sim.Close()
	d.Client.CloseIdleConnections()
	begun := time.Now()
	for {
		now, took := d.usage(t), time.Since(begun)
		if now.descriptors <= d.before.descriptors && now.goroutines <= d.before.goroutines {
			return now, took
		}
		if took > 10*time.Second { // five times the figure
			t.Errorf("goroutines and descriptors do not return: before %+v, now %+v", d.before, now)
			return now, took
		}
		<-time.After(20 * time.Millisecond)
	}
}

// finish stops the daemon when it has released what it used.
func (d *daemon) finish(t *testing.T) {
	t.Helper()
	d.waitUntilReleased(t)
	d.terminate(t)
	d.ended(t, 0)
}

// terminate sends SIGTERM.
func (d *daemon) terminate(t *testing.T) {
	t.Helper()
	if err := d.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// ended waits for the process to end with this code, and checks what it leaves: a store
// that can be read, and a log without content.
func (d *daemon) ended(t *testing.T, code int) {
	t.Helper()
	<-d.logged
	err := d.Wait()
	if got := d.ProcessState.ExitCode(); got != code {
		t.Errorf("ended with %d (%v), want %d: %s", got, err, code, &d.log)
	}
	d.Client.CloseIdleConnections()
	for r, err := range store.ReadFile(t.Context(), d.records) {
		if err != nil {
			t.Errorf("the store: %v", err)
		}
		d.sessions[r.SessionID] = true
	}
	for _, secret := range []string{marker, token, "sk-a-secret-key", "Simulated", "panic"} {
		if strings.Contains(d.log.String(), secret) {
			t.Errorf("the log holds %q: %s", secret, &d.log)
		}
	}
	if d.log.Len() == 0 {
		t.Error("there is no log")
	}
}

// steady are two models that answer after a time.
func steady(latency time.Duration) []simllm.Model {
	return []simllm.Model{
		{Name: "one", Noise: 0.5, Latency: simllm.Latency{Median: latency}},
		{Name: "two", Noise: 0.5, Latency: simllm.Latency{Median: latency}},
	}
}

// waiting are two models that tell arrived of each request and answer after release.
func waiting() (models []simllm.Model, arrived chan struct{}, release func()) {
	arrived = make(chan struct{}, 1000)
	gate := make(chan struct{})
	reply := func(simllm.Task) (string, bool) {
		arrived <- struct{}{}
		<-gate
		return "", false
	}
	return []simllm.Model{{Name: "one", Noise: 0.5, Reply: reply}, {Name: "two", Noise: 0.5, Reply: reply}}, arrived,
		sync.OnceFunc(func() { close(gate) })
}

// quantile returns the q-quantile of durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}
