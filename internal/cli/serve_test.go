package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

func TestReportOverHTTPIsTheCommands(t *testing.T) {
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	for range 11 {
		d.Ask(t, `{"query":"Once more?"}`)
	}
	status, data := d.Call(t, "GET", "/v1/bias-report", "")
	var overHTTP, printed bias.Report
	if err := json.Unmarshal(data, &overHTTP); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s: %v", status, data, err)
	}
	if overHTTP.Window.Sessions != 11 || overHTTP.Window.Records != 22 || len(overHTTP.Metrics) == 0 {
		t.Errorf("got %+v", overHTTP)
	}
	var stdout, stderr bytes.Buffer
	// The command reads while the daemon holds the store.
	if code := Main(t.Context(), IO{Args: []string{"report", "bias", "--format", "json"}, Stdout: &stdout, Stderr: &stderr}); code != 0 {
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

func TestUnwritableStore(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BIAS_STORE": t.TempDir()})
	var stderr bytes.Buffer
	code := Main(t.Context(), IO{Args: []string{"serve"}, Stdout: io.Discard, Stderr: &stderr})
	if code != exitError || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "record store") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}

// demo runs the command until the test ends. It returns the text that the command prints, and a function that stops
// the command and returns its exit code.
func demo(t *testing.T, log io.Writer, args ...string) (text string, stop func() int) {
	t.Helper()
	daemontest.Setenv(t, map[string]string{"MODELS": "", "BIAS_STORE": "", "ADDR": ""})
	t.Setenv("TMPDIR", t.TempDir())
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	exit := make(chan int, 1)
	go func() {
		exit <- Main(ctx, IO{Args: append([]string{"demo"}, args...), Stdout: writer, Stderr: log})
		_ = writer.Close()
	}()
	var printed strings.Builder
	lines := bufio.NewScanner(reader)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
		printed.WriteString(lines.Text() + "\n")
	}
	return printed.String(), func() int {
		cancel()
		return <-exit
	}
}

// The demo runs from start to stop, as a user sees it.
func TestDemo(t *testing.T) {
	testkit.Slow(t)
	t.Setenv("HOME", t.TempDir())
	log := &daemontest.Log{}
	text, stop := demo(t, log, "--addr", "127.0.0.1:0", "--sessions", "0")
	url := between(text, "answers at ", "\n")
	records := between(text, "Records go to ", "\n")
	body := between(text, "-d '", "' "+url+"/v1/council\n")
	if !strings.Contains(text, "curl -s -H 'Content-Type: application/json' -d '{") || !json.Valid([]byte(body)) {
		t.Errorf("no curl to paste: %s", text)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/council", strings.NewReader(body))
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
	if n := len(daemontest.Records(t, records)); n != 4*3 {
		t.Errorf("%d records, want 12", n)
	}
	s := (daemontest.Caller{Base: url}).Ask(t, `{"query": "Why is the sky blue?"}`)
	if !strings.HasPrefix(s.Answer, "This is simulated filler: no model was asked.\n") {
		t.Errorf("another question gets %q", s.Answer)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit %d: %s", code, log)
	}
	if home, _ := os.ReadDir(os.Getenv("HOME")); len(home) != 0 {
		t.Errorf("the demo wrote to the home directory: %v", home)
	}
}

// The demo begins with simulated sessions. The last ones ask the questions that have written texts, and the page offers
// these questions.
func TestDemoBeginsWithSessions(t *testing.T) {
	testkit.Slow(t)
	log := &daemontest.Log{}
	text, stop := demo(t, log, "--addr", "127.0.0.1:0")
	d := daemontest.Caller{Base: between(text, "answers at ", "\n")}
	var list struct{ Sessions []council.Summary }
	daemontest.Until(t, func() bool {
		_, data := d.Call(t, "GET", "/v1/council", "")
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Sessions) == 100 &&
			!slices.ContainsFunc(list.Sessions, func(s council.Summary) bool { return s.Status != council.StatusComplete })
	})
	var councils struct{ Demo struct{ Questions []string } }
	_, data := d.Call(t, "GET", "/v1/councils", "")
	if json.Unmarshal(data, &councils) != nil || len(councils.Demo.Questions) == 0 {
		t.Fatalf("the demo offers %s", data)
	}
	for i, question := range councils.Demo.Questions {
		summary := list.Sessions[len(councils.Demo.Questions)-1-i] // the newest is the first
		_, data := d.Call(t, "GET", "/v1/council/"+summary.ID, "")
		var s council.Session
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		if s.Query != question && !strings.HasPrefix(question, strings.TrimSuffix(s.Query, "…")) {
			t.Fatalf("session %d asks %q, not %q", i, s.Query, question)
		}
		checkWritten(t, s)
	}
	var report bias.Report
	_, data = d.Call(t, "GET", "/v1/bias-report", "")
	if json.Unmarshal(data, &report) != nil || report.Window.Sessions != 100 ||
		!slices.ContainsFunc(report.Metrics, func(m bias.Metric) bool {
			return m.Subject == "sim:cedar" && strings.Contains(m.Name, "position") && m.Verdict != nil && *m.Verdict == "favour"
		}) {
		t.Errorf("the report reads %.3000s", data)
	}
	if _, data := d.Call(t, "GET", "/v1/spend", ""); !bytes.Contains(data, []byte(`"sessions":100`)) {
		t.Errorf("the spending reads %s", data)
	}
	if code := stop(); code != exitOK || strings.Contains(log.String(), "session started") ||
		strings.Contains(log.String(), "WARN") {
		t.Errorf("exit %d: %s", code, log)
	}
}

// checkWritten checks a session that asked a written question.
func checkWritten(t *testing.T, s council.Session) {
	t.Helper()
	if s.Status != council.StatusComplete || !s.Persisted || !strings.HasSuffix(s.Answer, "\n\n*Written for the demo.*") ||
		strings.Contains(s.Answer, "imulated") {
		t.Errorf("%s: status %s, answer %q", s.Query, s.Status, s.Answer)
	}
	for _, a := range s.Stage1 {
		if len(*a.Response) < 1000 || strings.Contains(*a.Response, "Simulated") {
			t.Errorf("%s: %s answers %q", s.Query, a.Model, *a.Response)
		}
	}
	for _, r := range s.Stage2 {
		if strings.Contains(*r.Ranking, "imulated") || strings.Contains(*r.Ranking, "{amber}") ||
			len(r.ParsedRanking.Ranking) != 3 || len(r.ParsedRanking.Tied) > 0 {
			t.Errorf("%s: %s writes %q", s.Query, r.Model, *r.Ranking)
		}
	}
	m := s.Metadata.Map
	if m == nil || m.Reason != nil || m.Dropped != 0 ||
		len(m.Agreed) < 2 || len(m.Disputed) == 0 || len(m.OnlyOneSaid) == 0 || len(m.Open) == 0 {
		t.Errorf("%s: the map is %+v", s.Query, m)
	}
}

// Ctrl-C ends the demo while its first sessions run.
func TestDemoStopsWhileItBegins(t *testing.T) {
	testkit.Slow(t)
	log := &daemontest.Log{}
	_, stop := demo(t, log, "--addr", "127.0.0.1:0", "--sessions", "100000")
	begin := time.Now()
	if code := stop(); code != exitOK || time.Since(begin) > 20*time.Second || strings.Contains(log.String(), "stopped early") {
		t.Errorf("exit %d after %s: %s", code, time.Since(begin), log)
	}
	if code, _, stderr := command(t, "demo", "--sessions", "-1"); code != exitUsage || !strings.Contains(stderr, "--sessions") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// The demo begins with the same sessions each time: the written questions last, and all others different.
func TestExamplesOf(t *testing.T) {
	written := []string{"one?", "two?"}
	all := examplesOf(written, 100)
	if diff := cmp.Diff(all, examplesOf(written, 100)); diff != "" {
		t.Error(diff)
	}
	seen := map[string]bool{}
	for _, r := range all {
		seen[r.Query] = true
	}
	if len(seen) != 100 || all[98].Query != "one?" || all[99].Query != "two?" || all[0].Seed == nil {
		t.Errorf("%d different questions, the last are %q and %q", len(seen), all[98].Query, all[99].Query)
	}
	if last := examplesOf(written, 1); len(last) != 1 || last[0].Query != "two?" {
		t.Errorf("one request is %+v", last)
	}
}

func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}

// Where the usual port is taken, the demo takes another one, unless its user named an address.
func TestDemoTakesAFreePort(t *testing.T) {
	testkit.Slow(t)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:8080")
	if err == nil { // Otherwise another program has it, which is as good.
		defer taken.Close()
	}
	text, stop := demo(t, io.Discard, "--category", "math", "--language", "de", "--sessions", "0")
	url := between(text, "answers at ", "\n")
	if !strings.Contains(text, "127.0.0.1:8080 is taken by another program") || strings.HasSuffix(url, ":8080") {
		t.Errorf("got %s", text)
	}
	(daemontest.Caller{Base: url}).Ask(t, `{"query": "Why is the sky blue?"}`)
	(daemontest.Caller{Base: url}).Ask(t, `{"query": "Why is the sky blue?", "category": "coding"}`)
	records := daemontest.Records(t, between(text, "Records go to ", "\n"))
	first, last := records[0].QueryMetadata, records[len(records)-1].QueryMetadata
	if *first.Category != "math" || *first.Language != "de" || *last.Category != "coding" || *last.Language != "de" {
		t.Errorf("the questions are %s, %s and %s, %s", *first.Category, *first.Language, *last.Category, *last.Language)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	named, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	code, _, stderr := command(t, "demo", "--addr", named.Addr().String())
	if code != exitError || !strings.Contains(stderr, "address already in use") ||
		!strings.Contains(stderr, "councild demo --addr 127.0.0.1:0") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if code, _, stderr := command(t, "demo", "--category", "poetry"); code != exitUsage || !strings.Contains(stderr, "use coding, math") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestSimulatedCouncil(t *testing.T) {
	daemontest.Setenv(t, map[string]string{
		"MODELS": "a,b", "CHAIRMAN": "a", "BIAS_CONSENT": "0",
		"BIAS_PERSISTENCE": "false",
	})
	cfg := simulatedCouncil(daemontest.Options(t).Config, "records.jsonl")
	if len(cfg.Models) != 4 || slices.ContainsFunc(cfg.Named(), func(model string) bool { return !strings.HasPrefix(model, "sim:") }) {
		t.Errorf("it names %v", cfg.Named())
	}
	if !cfg.KeepsRecords() || cfg.BiasStore != "records.jsonl" {
		t.Errorf("records are kept: %v, in %s", cfg.KeepsRecords(), cfg.BiasStore)
	}
}

// startDaemon starts a daemon whose settings are those of the commands of the test too.
func startDaemon(t *testing.T, env map[string]string) *daemontest.Daemon {
	t.Helper()
	daemontest.Setenv(t, env)
	return daemontest.StartWith(t, daemontest.Options(t))
}
