package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer is a log that is written and read at the same time.
type logBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// running is a daemon under test, reached over HTTP.
type running struct {
	*daemon
	log    *logBuffer
	stop   context.CancelFunc
	served chan error // what serve returned
}

// setenv sets LLM_COUNCIL_ variables, named without the prefix, on top of what
// every test needs.
func setenv(t *testing.T, env map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "LLM_COUNCIL_") {
			t.Setenv(name, "") // an empty variable counts as unset
		}
	}
	base := map[string]string{
		"ADDR": "127.0.0.1:0", "BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"), "MODELS": "sim:amber,sim:birch,sim:cedar,sim:dune", "LOG_FORMAT": "json",
	}
	for _, vars := range []map[string]string{base, env} {
		for name, value := range vars {
			t.Setenv("LLM_COUNCIL_"+name, value)
		}
	}
}

// serve starts a daemon with these settings. It is stopped with the test.
func serve(t *testing.T, env map[string]string) *running {
	t.Helper()
	return serveOn(t, disk.OS{}, env)
}

// serveOn is serve with the records on a disk of its own.
func serveOn(t *testing.T, on disk.Disk, env map[string]string) *running {
	t.Helper()
	setenv(t, env)
	cfg, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{log: &logBuffer{}, served: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.stop = cancel
	if r.daemon, err = newDaemon(ctx, cfg, on, newLog(r.log, cfg), "test"); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() { r.served <- r.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.served; err != nil {
			t.Error(err)
		}
		r.served <- nil // for who asks again
	})
	return r
}

// end stops the daemon and waits for it.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.served; err != nil {
		t.Error(err)
	}
	r.served <- nil // for who asks again
}

// until waits for something that happens by itself.
func until(t *testing.T, happened func() bool) {
	t.Helper()
	for start := time.Now(); !happened(); runtime.Gosched() {
		if time.Since(start) > time.Minute {
			t.Fatal("it did not happen within a minute")
		}
	}
}

// call sends a request and returns status and body.
func (r *running) call(t *testing.T, method, path, body string, headers ...string) (int, []byte) {
	t.Helper()
	status, data, err := r.try(t.Context(), method, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return status, data
}

func (r *running) try(ctx context.Context, method, path, body string, headers ...string) (int, []byte, error) {
	resp, data, err := r.send(ctx, method, path, body, headers...)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, data, nil
}

// send sends a request and reads the whole response.
func (r *running) send(ctx context.Context, method, path, body string, headers ...string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url()+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// ask runs a session that must answer 200.
func (r *running) ask(t *testing.T, body string) council.Session {
	t.Helper()
	status, data := r.call(t, "POST", "/v1/council", body)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatal(err)
	}
	return session
}

// records reads the daemon's record file.
func (r *running) records(t *testing.T) []council.BiasMetricRecord {
	t.Helper()
	return readRecords(t, r.cfg.BiasStore)
}

func readRecords(t *testing.T, path string) []council.BiasMetricRecord {
	t.Helper()
	var records []council.BiasMetricRecord
	for record, err := range store.ReadFile(context.WithoutCancel(t.Context()), path) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	return records
}

func missing(s council.Session) []string {
	var out []string
	for _, d := range s.Degradation {
		out = append(out, fmt.Sprintf("%s %s %s", d.Stage, d.Model, d.Code))
	}
	return out
}

// provider starts a provider of the given models on a port of its own.
func provider(t *testing.T, models ...simllm.Model) *simllm.Running {
	t.Helper()
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return sim
}

// quick starts a provider with four models, a to d, that answer at once.
func quick(t *testing.T) string {
	t.Helper()
	var models []simllm.Model
	for _, name := range []string{"a", "b", "c", "d"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, LengthSigma: 0.3, Noise: 0.5})
	}
	return provider(t, models...).URL()
}

func TestTwoProvidersInOneCouncil(t *testing.T) {
	one, two := provider(t, simllm.Model{Name: "acme/alpha", Noise: 0.5}, simllm.Model{Name: "llama3:8b", Noise: 0.5}), provider(t, simllm.Model{Name: "globex/beta", Noise: 0.5})
	d := serve(t, map[string]string{
		"BASE_URL": one.URL(), "PROVIDERS": "second=" + two.URL(), "MODELS": "acme/alpha,llama3:8b,second:globex/beta,sim:amber", "CHAIRMAN": "second:globex/beta",
	})
	s := d.ask(t, `{"query":"Which one?"}`)
	if s.Status != council.StatusComplete || s.Stage3.Model != "second:globex/beta" {
		t.Errorf("status %s, chairman %s, missing %v", s.Status, s.Stage3.Model, missing(s))
	}
	if n := two.Stats().Models["globex/beta"].Requests; n != 3 {
		t.Errorf("the second provider saw %d calls, want 3", n)
	}
	if n := one.Stats().Models["acme/alpha"].Requests + one.Stats().Models["llama3:8b"].Requests; n != 4 {
		t.Errorf("the first provider saw %d calls, want 4", n)
	}
	makers := map[string]string{}
	for _, r := range d.records(t) {
		makers[r.ModelID] = r.Provider.Candidate
	}
	want := map[string]string{"acme/alpha": "acme", "llama3:8b": "llama3:8b", "second:globex/beta": "globex", "sim:amber": "amber"}
	if diff := cmp.Diff(want, makers); diff != "" {
		t.Error(diff)
	}
}

func TestTroubledCouncil(t *testing.T) {
	d := serve(t, map[string]string{"MODELS": "sim:amber,sim:down,sim:abstainer,sim:garbler,sim:birch"})
	s := d.ask(t, `{"query":"Who is left?"}`)
	want := []string{
		"stage1 sim:down unavailable", "stage2 sim:down unavailable", "stage2 sim:abstainer abstained", "stage2 sim:garbler invalid_ballot",
	}
	if diff := cmp.Diff(want, missing(s)); diff != "" {
		t.Error(diff)
	}
	outcomes := map[string]council.Outcome{}
	for _, v := range s.Stage2 {
		outcomes[v.Model] = v.Status
	}
	wantOutcomes := map[string]council.Outcome{
		"sim:amber": council.OutcomeOK, "sim:birch": council.OutcomeOK, "sim:down": council.OutcomeError,
		"sim:abstainer": council.OutcomeAbstained, "sim:garbler": council.OutcomeInvalid,
	}
	if diff := cmp.Diff(wantOutcomes, outcomes); diff != "" {
		t.Error(diff)
	}
	if s.Status != council.StatusDegraded || s.Metadata.Agreement.Ballots != 2 || len(s.Metadata.AggregateRankings) != 4 || !s.Persisted {
		t.Errorf("status %s, %d ballots, rankings %+v", s.Status, s.Metadata.Agreement.Ballots, s.Metadata.AggregateRankings)
	}
}

func TestReportOverHTTPIsTheCommands(t *testing.T) {
	d := serve(t, map[string]string{"BASE_URL": quick(t), "MODELS": "a,b"})
	for range 11 {
		d.ask(t, `{"query":"Once more?"}`)
	}
	status, data := d.call(t, "GET", "/v1/bias-report", "")
	var overHTTP, printed bias.Report
	if err := json.Unmarshal(data, &overHTTP); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s: %v", status, data, err)
	}
	if overHTTP.Window.Sessions != 11 || overHTTP.Window.Records != 22 || len(overHTTP.Metrics) == 0 {
		t.Errorf("got %+v", overHTTP)
	}
	var stdout, stderr bytes.Buffer
	// The command reads while the daemon holds the store.
	if code := Main(t.Context(), IO{Args: []string{"bias-report", "--format", "json"}, Stdout: &stdout, Stderr: &stderr}); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &printed); err != nil {
		t.Fatal(err)
	}
	printed.GeneratedAt = overHTTP.GeneratedAt
	if diff := cmp.Diff(overHTTP, printed); diff != "" {
		t.Error(diff)
	}
}

func TestTornTailIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(path, []byte(`{"schema_ver`), 0o600); err != nil {
		t.Fatal(err)
	}
	d := serve(t, map[string]string{"BIAS_STORE": path, "BASE_URL": quick(t), "MODELS": "a,b,c,d"})
	if !strings.Contains(d.log.String(), "unfinished last session") || !strings.Contains(d.log.String(), `"bytes":12`) {
		t.Errorf("log: %s", d.log)
	}
	d.ask(t, `{"query":"And now?"}`)
	if n := len(d.records(t)); n != 12 {
		t.Errorf("%d records", n)
	}
}

// An address that others can reach is never left open.
func TestTokenForAnOpenAddress(t *testing.T) {
	for address, want := range map[string]int{"0.0.0.0": 1, "::": 1, "192.0.2.1": 1, "127.0.0.1": 0, "::1": 0, "127.0.0.9": 0} {
		log := &logBuffer{}
		d := &daemon{log: slog.New(slog.NewJSONHandler(log, nil)), listener: at(address)}
		tokens := d.requireTokens(t.Context())
		if len(tokens) != want {
			t.Errorf("%s: %d tokens, want %d", address, len(tokens), want)
		}
		if want == 1 && (len(tokens[0]) < 16 || strings.Count(log.String(), tokens[0]) != 1) {
			t.Errorf("%s: the token is not logged once: %s", address, log)
		}
	}
	d := &daemon{cfg: config.Config{APITokens: []config.Secret{"given-by-the-user"}}, listener: at("0.0.0.0")}
	if diff := cmp.Diff([]string{"given-by-the-user"}, d.requireTokens(t.Context())); diff != "" {
		t.Error(diff)
	}
}

// at is a listener with an address and nothing else.
type at string

func (a at) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (a at) Close() error              { return nil }
func (a at) Addr() net.Addr            { return &net.TCPAddr{IP: net.ParseIP(string(a))} }

// held is a council of which one member answers when the test lets it.
func held(t *testing.T) (url string, arrived chan struct{}, release func()) {
	t.Helper()
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
	sim := provider(t, waiting, simllm.Model{Name: "quick"})
	t.Cleanup(release)
	return sim.URL(), arrived, release
}

func TestDrain(t *testing.T) {
	url, arrived, release := held(t)
	d := serve(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"})
	status := make(chan int, 1)
	go func() {
		code, _, err := d.try(t.Context(), "POST", "/v1/council", `{"query":"Wait for me?"}`)
		if err != nil {
			t.Error(err)
		}
		status <- code
	}()
	<-arrived
	d.stop()
	// Readiness turns red, new sessions are refused, the running one finishes.
	for {
		if code, data := d.call(t, "GET", "/readyz", ""); code == http.StatusServiceUnavailable {
			if !strings.Contains(string(data), "draining") {
				t.Errorf("%s", data)
			}
			break
		}
	}
	if code, data := d.call(t, "POST", "/v1/council", `{"query":"Me too?"}`); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, data)
	}
	release()
	if code := <-status; code != http.StatusOK {
		t.Errorf("the running session answered %d", code)
	}
	if err := <-d.served; err != nil {
		t.Error(err)
	}
	d.served <- nil
	if len(readRecords(t, d.cfg.BiasStore)) != 2 {
		t.Error("the drained session left no records")
	}
}

func TestDrainTimeout(t *testing.T) {
	arrived := make(chan struct{}, 2)
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer hang.Close()
	d := serve(t, map[string]string{"BASE_URL": hang.URL, "MODELS": "a,b", "DRAIN_TIMEOUT": "10ms"})
	type result struct {
		status int
		body   []byte
	}
	answered := make(chan result, 1)
	go func() {
		code, data, err := d.try(t.Context(), "POST", "/v1/council", `{"query":"Wait for me?"}`)
		if err != nil {
			t.Error(err)
		}
		answered <- result{code, data}
	}()
	<-arrived
	d.stop()
	if got := <-answered; got.status != http.StatusServiceUnavailable || !strings.Contains(string(got.body), `"code":"cancelled"`) || !strings.Contains(string(got.body), "session_id") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if err := <-d.served; err != nil {
		t.Error(err)
	}
	d.served <- nil
}

func TestUnwritableStore(t *testing.T) {
	setenv(t, map[string]string{"BIAS_STORE": t.TempDir()})
	var stderr bytes.Buffer
	code := Main(t.Context(), IO{Args: []string{"serve"}, Stdout: io.Discard, Stderr: &stderr})
	if code != exitError || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "record store") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}

// A run of the demo from start to stop, as its user sees it.
func TestDemo(t *testing.T) {
	setenv(t, map[string]string{"MODELS": "", "BIAS_STORE": "", "ADDR": "127.0.0.1:0"})
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	exit := make(chan int, 1)
	log := &logBuffer{}
	go func() {
		exit <- Main(ctx, IO{Args: []string{"demo"}, Stdout: writer, Stderr: log})
	}()
	var text []byte
	for buf := make([]byte, 4096); !bytes.Contains(text, []byte("Ctrl-C")); {
		n, err := reader.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, buf[:n]...)
	}
	url := between(string(text), "answers at ", "\n")
	records := between(string(text), "Records go to ", "\n")
	if !strings.Contains(string(text), "curl -s -H 'Content-Type: application/json' -d '{\"query\": \"Why is the sky blue?\"}' "+url+"/v1/council\n") {
		t.Errorf("no curl to paste: %s", text)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/council", strings.NewReader(`{"query": "Why is the sky blue?"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl -d says
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(data, []byte(`"status":"complete"`)) {
		t.Errorf("%d %s, %v", resp.StatusCode, data, err)
	}
	http.DefaultClient.CloseIdleConnections()
	if n := len(readRecords(t, records)); n != 4*3 {
		t.Errorf("%d records, want 12", n)
	}
	cancel()
	if code := <-exit; code != exitOK {
		t.Errorf("exit %d: %s", code, log)
	}
	if home, _ := os.ReadDir(os.Getenv("HOME")); len(home) != 0 {
		t.Errorf("the demo wrote to the home directory: %v", home)
	}
}

func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}

// Everything in the log of a session is safe to keep.
func TestLogHoldsNoContent(t *testing.T) {
	d := serve(t, map[string]string{"LOG_LEVEL": "debug", "BASE_URL": quick(t), "MODELS": "a,b", "API_KEY": "sk-a-secret-key", "API_TOKENS": "a-token-of-sixteen-and-more"})
	status, data := d.call(t, "POST", "/v1/council", `{"query":"the unmistakable question"}`, "Authorization", "Bearer a-token-of-sixteen-and-more", "X-Request-Id", "request-7")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	log := d.log.String()
	for _, secret := range []string{"unmistakable", "Simulated", "sk-a-secret-key", "a-token-of-sixteen"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q: %s", secret, log)
		}
	}
	if !strings.Contains(log, `"request_id":"request-7"`) || !strings.Contains(log, "session finished") {
		t.Errorf("log: %s", log)
	}
}
