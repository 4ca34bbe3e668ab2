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

	"github.com/councild/councild/internal/bias"
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

// The demo runs from start to stop, as a user sees it.
func TestDemo(t *testing.T) {
	testkit.Slow(t)
	daemontest.Setenv(t, map[string]string{"MODELS": "", "BIAS_STORE": "", "ADDR": "127.0.0.1:0"})
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	exit := make(chan int, 1)
	log := &daemontest.Log{}
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
	if !strings.Contains(string(text),
		"curl -s -H 'Content-Type: application/json' -d '{\"query\": \"Why is the sky blue?\"}' "+url+"/v1/council\n") {
		t.Errorf("no curl to paste: %s", text)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/council",
		strings.NewReader(`{"query": "Why is the sky blue?"}`))
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

// Where the usual port is taken, the demo takes another one, unless its user named an address.
func TestDemoTakesAFreePort(t *testing.T) {
	testkit.Slow(t)
	daemontest.Setenv(t, map[string]string{"MODELS": "", "BIAS_STORE": "", "ADDR": ""})
	t.Setenv("TMPDIR", t.TempDir())
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:8080")
	if err == nil { // Otherwise another program has it, which is as good.
		defer taken.Close()
	}
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	exit := make(chan int, 1)
	go func() {
		args := []string{"demo", "--category", "math", "--language", "de"}
		exit <- Main(ctx, IO{Args: args, Stdout: writer, Stderr: io.Discard})
		_ = writer.Close()
	}()
	var text strings.Builder
	lines := bufio.NewScanner(reader)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
		text.WriteString(lines.Text() + "\n")
	}
	url := between(text.String(), "answers at ", "\n")
	if !strings.Contains(text.String(), "127.0.0.1:8080 is taken by another program") || strings.HasSuffix(url, ":8080") {
		t.Errorf("got %s", text.String())
	}
	(daemontest.Caller{Base: url}).Ask(t, `{"query": "Why is the sky blue?"}`)
	(daemontest.Caller{Base: url}).Ask(t, `{"query": "Why is the sky blue?", "category": "coding"}`)
	records := daemontest.Records(t, between(text.String(), "Records go to ", "\n"))
	first, last := records[0].QueryMetadata, records[len(records)-1].QueryMetadata
	if *first.Category != "math" || *first.Language != "de" || *last.Category != "coding" || *last.Language != "de" {
		t.Errorf("the questions are %s, %s and %s, %s", *first.Category, *first.Language, *last.Category, *last.Language)
	}
	cancel()
	if code := <-exit; code != exitOK {
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
