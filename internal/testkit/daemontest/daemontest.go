// Package daemontest is for tests: it runs a whole daemon, or asks one that runs
// elsewhere, over real HTTP, with simulated providers on ports of their own. It holds
// what the tests of several packages need, and leaves to each what it asks.
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

// Log is a log that is written and read at the same time.
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

// String returns what was logged so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// prefix begins the names of the variables that hold settings.
const prefix = "LLM_COUNCIL_"

// variables returns variables, named in full, on top of what every test needs: a free port, a record file of its own and four
// simulated members. Variables of the environment are empty, which counts as unset.
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

// Roster writes a roster with one council, whose keys are YAML, over models that their ids name.
// It returns the variables that put it in place of MODELS.
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

// Setenv sets LLM_COUNCIL_ variables, named without the prefix, on top of what every test needs. A parallel test must not call it.
func Setenv(tb testing.TB, env map[string]string) {
	tb.Helper()
	for name, value := range variables(tb, env) {
		tb.Setenv(name, value)
	}
}

// environment is held while Load changes the variables of the process, which parallel tests share.
var environment sync.Mutex

// Load returns the settings that Setenv would make, adjusted. Afterwards the variables are what they were.
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
		if err := os.Setenv(name, value); err != nil { //nolint:usetesting // likewise
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
	Base   string       // of every URL, without a slash at its end
	Token  string       // "": none is sent
	Client *http.Client // nil: every request has a connection of its own
}

// Send sends a request, whose headers are pairs of name and value, and returns the
// response with its body read. A body is JSON, unless a header says otherwise.
func (c Caller) Send(ctx context.Context, method, path, body string, headers ...string) (*http.Response, []byte, error) {
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

// Call is Send for a request that must have an answer. It returns status and body.
func (c Caller) Call(tb testing.TB, method, path, body string, headers ...string) (int, []byte) {
	tb.Helper()
	resp, data, err := c.Send(tb.Context(), method, path, body, headers...)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, data
}

// Ask runs a session that must answer 200.
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

// Daemon is a daemon in this process.
type Daemon struct {
	Caller
	*daemon.Daemon
	Config config.Config
	Log    *Log
	Stop   context.CancelFunc // asks it to stop
	served chan error
}

// Start starts a daemon with these settings, adjusted. It is stopped with the test.
func Start(tb testing.TB, env map[string]string, adjust ...func(*config.Config)) *Daemon {
	tb.Helper()
	return StartOn(tb, nil, env, adjust...)
}

// StartOn is Start with the records on a disk of its own; nil is the operating system's.
func StartOn(tb testing.TB, on disk.Disk, env map[string]string, adjust ...func(*config.Config)) *Daemon {
	tb.Helper()
	return StartWith(tb, daemon.Options{Config: Load(tb, env, adjust...), Disk: on, Simulated: simllm.Default(), Version: "test"})
}

// Options returns the options of a daemon with the settings of the environment.
func Options(tb testing.TB) daemon.Options {
	tb.Helper()
	cfg, err := config.Load()
	if err != nil {
		tb.Fatal(err)
	}
	return daemon.Options{Config: cfg, Simulated: simllm.Default(), Version: "test"}
}

// StartWith starts a daemon with these options, but a log of its own. It is stopped
// with the test.
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

// End stops the daemon and waits for it.
func (d *Daemon) End(tb testing.TB) {
	tb.Helper()
	d.Stop()
	if err := <-d.served; err != nil {
		tb.Error(err)
	}
	d.served <- nil // for the next call
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

// Events decodes a stream of events, which must have been read to its end.
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

// Texts adds up the texts of a session as they arrive.
type Texts struct {
	Answers map[string]string // by member; nil while no piece of one has come
	Final   string
}

// Take takes in the next event. The error says of an event with a whole text that its pieces
// were others.
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

// Missing names the stage, the model and the code of everything that a session lacks.
func Missing(s council.Session) []string {
	var missing []string
	for _, d := range s.Degradation {
		missing = append(missing, fmt.Sprintf("%s %s %s", d.Stage, d.Model, d.Code))
	}
	return missing
}

// Until waits for something that happens by itself, for at most a minute.
func Until(tb testing.TB, happened func() bool) {
	tb.Helper()
	for start := time.Now(); !happened(); <-time.After(time.Millisecond) {
		if time.Since(start) > time.Minute {
			tb.Fatal("it did not happen within a minute")
		}
	}
}

// Provider starts a provider of the given models on a port of its own.
func Provider(tb testing.TB, models ...simllm.Model) *simllm.Running {
	tb.Helper()
	sim, err := simllm.Start(tb.Context(), simllm.Options{Models: models})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(sim.Close)
	return sim
}

// Members are four models, a to d, that answer at once.
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

// Held starts a provider with two models. The one named "quick" answers at once, the
// one named "waiting" tells arrived of each question and answers after release.
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

// Fault logs what a row of docs/faults.md was measured as, in the form that
// tools/faults.sh reads.
func Fault(tb testing.TB, row, promised, format string, args ...any) {
	tb.Helper()
	tb.Logf("fault %s: %s (promised %s)", row, fmt.Sprintf(format, args...), promised)
}
