// Package daemontest helps tests to run a whole daemon, or to call a daemon in another process, over real HTTP. It also
// runs simulated providers on ports of their own, and a proxy in front of several daemons. The tests of several
// packages share it. Each test decides what it asks and checks.
package daemontest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
)

// Log collects log lines. It can be written and read at the same time.
type Log struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns the log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// prefix begins the names of the variables that hold settings.
const prefix = "LLM_COUNCIL_"

// variables returns the variables that a test sets, with their full names. The argument env overrides the defaults of
// every test, which are a free port, a record file of its own and four simulated members. Other LLM_COUNCIL_ variables
// of the environment become empty, which counts as unset.
func variables(tb testing.TB, env map[string]string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, prefix) {
			all[name] = ""
		}
	}
	base := map[string]string{
		"ADDR": "127.0.0.1:0", "BIAS_STORE": filepath.Join(tb.TempDir(), "records.jsonl"),
		"MODELS": "sim:amber,sim:birch,sim:cedar,sim:dune",
	}
	maps.Copy(base, env)
	for name, value := range base {
		all[prefix+name] = value
	}
	return all
}

// Roster writes a roster with the given models and one council named main. The argument keys has the keys of the
// council in YAML, such as "{members: [a, b]}". Each model has its own id as its name. Roster returns the variables
// that replace MODELS by the roster.
func Roster(tb testing.TB, keys string, models ...string) map[string]string {
	tb.Helper()
	var text strings.Builder
	text.WriteString("version: 1\nmodels:\n")
	for _, name := range models {
		fmt.Fprintf(&text, "  %s: {model: %s}\n", name, name)
	}
	text.WriteString("councils:\n  main: " + keys + "\n")
	path := filepath.Join(tb.TempDir(), "roster.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	return map[string]string{"MODELS": "", "ROSTER": path}
}

// Setenv sets the LLM_COUNCIL_ variables in env, and the defaults of every test. The names in env have no prefix. A
// parallel test must not call it.
func Setenv(tb testing.TB, env map[string]string) {
	tb.Helper()
	for name, value := range variables(tb, env) {
		tb.Setenv(name, value)
	}
}

// environment guards the variables of the process while Load changes them, because parallel tests share them.
var environment sync.Mutex

// Load returns the settings that a daemon would read after Setenv, changed by the adjust functions. It restores the
// variables, so parallel tests may call it.
func Load(tb testing.TB, env map[string]string, adjust ...func(*config.Config)) config.Config {
	tb.Helper()
	environment.Lock()
	defer environment.Unlock()
	for name, value := range variables(tb, env) {
		before, set := os.LookupEnv(name)
		defer func() {
			if set {
				_ = os.Setenv(name, before) //nolint:usetesting // a parallel test must not call Setenv
			} else {
				_ = os.Unsetenv(name)
			}
		}()
		if err := os.Setenv(name, value); err != nil { //nolint:usetesting // a parallel test must not call Setenv
			tb.Fatal(err)
		}
	}
	cfg, err := config.Load()
	if err != nil {
		tb.Fatal(err)
	}
	for _, a := range adjust {
		a(&cfg)
	}
	return cfg
}

// Caller sends requests to a daemon.
type Caller struct {
	Base   string       // the beginning of every URL, without a slash at its end
	Token  string       // the bearer token, or "" to send none
	Client *http.Client // If it is nil, every request has a connection of its own.
}

// Send sends a request and returns the response and its body. The argument headers has pairs of a name and a value. The
// body of the request is JSON unless a header says otherwise.
func (c Caller) Send(
	ctx context.Context, method, path, body string, headers ...string,
) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	if c.Client == nil {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		c.Client = &http.Client{Transport: transport}
	}
	resp, err := c.Client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// Call sends a request and returns the status and the body of the response. The test fails if there is no response.
func (c Caller) Call(tb testing.TB, method, path, body string, headers ...string) (int, []byte) {
	tb.Helper()
	resp, data, err := c.Send(tb.Context(), method, path, body, headers...)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, data
}

// Ask runs a session and returns it. The test fails if the status is not 200.
func (c Caller) Ask(tb testing.TB, body string) (s council.Session) {
	tb.Helper()
	status, data := c.Call(tb, "POST", "/v1/council", body)
	if status != http.StatusOK {
		tb.Fatalf("%d %s", status, data)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Daemon is a daemon that runs in this process.
type Daemon struct {
	Caller
	*daemon.Daemon
	Config config.Config
	Log    *Log
	Stop   context.CancelFunc // asks the daemon to stop, and does not wait
	served chan error         // gets the error of Serve
}

// Start starts a daemon with the settings that Load returns. The daemon stops at the end of the test.
func Start(tb testing.TB, env map[string]string, adjust ...func(*config.Config)) *Daemon {
	tb.Helper()
	return StartOn(tb, nil, env, adjust...)
}

// StartOn is Start with a given disk for the records. nil stands for the disk of the operating system.
func StartOn(tb testing.TB, on disk.Disk, env map[string]string, adjust ...func(*config.Config)) *Daemon {
	tb.Helper()
	return StartWith(tb, daemon.Options{
		Config: Load(tb, env, adjust...), Disk: on, Simulated: simllm.Default(), Version: "test",
	})
}

// Options returns the options of a daemon that takes its settings from the environment, which Setenv sets.
func Options(tb testing.TB) daemon.Options {
	tb.Helper()
	cfg, err := config.Load()
	if err != nil {
		tb.Fatal(err)
	}
	return daemon.Options{Config: cfg, Simulated: simllm.Default(), Version: "test"}
}

// StartWith starts a daemon with these options, but replaces the log by Daemon.Log. The daemon stops at the end of the
// test.
func StartWith(tb testing.TB, o daemon.Options) *Daemon {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	d := &Daemon{Config: o.Config, Log: &Log{}, Stop: cancel, served: make(chan error, 1)}
	o.Log = slog.New(slog.NewJSONHandler(d.Log, &slog.HandlerOptions{Level: o.Config.LogLevel}))
	var err error
	if d.Daemon, err = daemon.New(ctx, o); err != nil {
		cancel()
		tb.Fatal(err)
	}
	d.Base = d.URL()
	go func() { d.served <- d.Serve(ctx) }()
	tb.Cleanup(func() { d.End(tb) })
	return d
}

// End stops the daemon and waits until it has stopped. It may be called again.
func (d *Daemon) End(tb testing.TB) {
	tb.Helper()
	d.Stop()
	if err := <-d.served; err != nil {
		tb.Error(err)
	}
	d.served <- nil // so that the next call of End returns too
}

// Records reads the daemon's record store.
func (d *Daemon) Records(tb testing.TB) []council.BiasMetricRecord {
	tb.Helper()
	return Records(tb, d.Config.BiasStore)
}

// Records reads the record store at path. Every line must hold a record.
func Records(tb testing.TB, path string) []council.BiasMetricRecord {
	tb.Helper()
	var records []council.BiasMetricRecord
	var errs []error
	for record, err := range store.ReadFile(context.WithoutCancel(tb.Context()), path) {
		records = append(records, record)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	return records
}

// Events decodes a complete stream of events. The test fails if the stream is damaged or empty.
func Events(tb testing.TB, stream []byte) []council.Event {
	tb.Helper()
	var events []council.Event
	var errs []error
	for read, err := range client.ReadEvents(bytes.NewReader(stream)) {
		event, bad := read.Decode()
		events = append(events, event)
		errs = append(errs, err, bad)
	}
	if err := errors.Join(errs...); err != nil || len(events) == 0 {
		tb.Fatalf("%d events in %.500s: %v", len(events), stream, err)
	}
	return events
}

// Texts joins the pieces of a session's answers in the order in which the pieces arrive.
type Texts struct {
	Answers map[string]string // the answers so far, by member. It is nil before the first piece.
	Final   string            // the final answer so far
}

// Take adds the next event. It returns an error if the event holds a whole text that differs from the joined pieces.
func (x *Texts) Take(e council.Event) error {
	whole := ""
	pieces := ""
	switch data := e.Data.(type) {
	case council.AnswerDelta:
		if x.Answers == nil {
			x.Answers = map[string]string{}
		}
		x.Answers[data.Model] += data.Text
	case council.AnswerRestart:
		delete(x.Answers, data.Model)
	case council.Answer:
		if x.Answers != nil && data.Response != nil {
			whole = *data.Response
			pieces = x.Answers[data.Model]
		}
	case council.Delta:
		x.Final += data.Text
	case council.Restart:
		x.Final = ""
	case council.Synthesis:
		whole = data.Response
		pieces = x.Final
	}
	if whole != pieces {
		return fmt.Errorf("%s: the text is %q, its pieces are %q", e.Type, whole, pieces)
	}
	return nil
}

// Missing returns the stage, the model and the code of each degradation of a session.
func Missing(s council.Session) []string {
	var missing []string
	for _, d := range s.Degradation {
		missing = append(missing, fmt.Sprintf("%s %s %s", d.Stage, d.Model, d.Code))
	}
	return missing
}

// Until waits until the function happened returns true. The test fails after a minute.
func Until(tb testing.TB, happened func() bool) {
	tb.Helper()
	for start := time.Now(); !happened(); <-time.After(time.Millisecond) {
		if time.Since(start) > time.Minute {
			tb.Fatal("it did not happen within a minute")
		}
	}
}

// Provider starts a simulated provider of the given models on a port of its own. It ends with the test.
func Provider(tb testing.TB, models ...simllm.Model) *simllm.Running {
	tb.Helper()
	sim, err := simllm.Start(tb.Context(), simllm.Options{Models: models})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(sim.Close)
	return sim
}

// Members returns four models, named a to d, that answer without latency.
func Members() []simllm.Model {
	var models []simllm.Model
	for _, name := range []string{"a", "b", "c", "d"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, LengthSigma: 0.3, Noise: 0.5})
	}
	return models
}

// Quick starts a provider of [Members] and returns its URL.
func Quick(tb testing.TB) string {
	tb.Helper()
	return Provider(tb, Members()...).URL()
}

// Held starts a provider with two models. The model "quick" answers at once. When a question arrives, the model
// "waiting" sends to the channel arrived. It answers the question after the test calls the function release.
func Held(tb testing.TB) (url string, arrived chan struct{}, release func()) {
	tb.Helper()
	arrived = make(chan struct{}, 64)
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	waiting := simllm.Model{Name: "waiting"}
	waiting.Reply = func(task simllm.Task) (string, bool) {
		if task.Kind == simllm.Question {
			arrived <- struct{}{}
			<-gate
		}
		return "", false
	}
	sim := Provider(tb, waiting, simllm.Model{Name: "quick"})
	tb.Cleanup(release)
	return sim.URL(), arrived, release
}

// Fault logs the measured result of one row of docs/faults.md, in the form that tools/faults.sh reads. The argument row
// is a name such as "F22". The argument promised repeats the promise of that row. The arguments format and args are the
// result.
func Fault(tb testing.TB, row, promised, format string, args ...any) {
	tb.Helper()
	tb.Logf("fault %s: %s (promised %s)", row, fmt.Sprintf(format, args...), promised)
}
