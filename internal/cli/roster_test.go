package cli

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/councild/councild/internal/daemon/daemontest"
)

func TestRosterCommands(t *testing.T) {
	t.Setenv("AZURE_KEY", "x")
	t.Setenv("LLM_COUNCIL_PROVIDERS", "claude=https://api.anthropic.com/v1")
	code, out, errs := command(t, "roster", "check", "../../docs/roster.yaml")
	if code != 0 || !strings.Contains(out, "Nothing is wrong: 3 models, 2 councils.") {
		t.Errorf("the example: %d %s%s", code, out, errs)
	}
	code, out, errs = command(t, "roster", "show", "../../docs/roster.yaml")
	for _, want := range []string{"deep (default)", "review-1+fast.", "claude-opus-5-5", "high", "input: 2"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("the example shows no %q: %d %s%s", want, code, out, errs)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: 2\nmodels: {}\ncouncils: {a: {members: [b]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs = command(t, "roster", "check", bad)
	for _, want := range []string{"line 1: the version", "line 3: members names one model", "line 3: members names \"b\""} {
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("a bad roster: %d, want 2 and %q:\n%s", code, want, errs)
		}
	}
	if code, _, errs = command(t, "roster", "check"); code != 2 || !strings.Contains(errs, "LLM_COUNCIL_ROSTER") {
		t.Errorf("no roster: %d %s", code, errs)
	}
}

func TestToken(t *testing.T) {
	code, out, errs := command(t, "token", "ci")
	token, rest, _ := strings.Cut(out, "\n")
	sum := sha256.Sum256([]byte(token))
	if code != 0 || len(token) < 26 || !strings.Contains(rest, "ci: {sha256: "+hex.EncodeToString(sum[:])+"}") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, _, errs = command(t, "token", "c i"); code != 2 || !strings.Contains(errs, "1 to 32 letters") {
		t.Errorf("a bad name: %d %s", code, errs)
	}
}

// A daemon reads its roster again on SIGHUP.
func TestReloadOnSignal(t *testing.T) {
	url := daemontest.Quick(t)
	path := filepath.Join(t.TempDir(), "roster.yaml")
	write := func(name string) {
		t.Helper()
		text := "version: 1\nmodels: {one: {model: a}}\ncouncils: {" + name + ": {members: [one, one]}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	daemontest.Setenv(t, map[string]string{
		"BASE_URL": url, "MODELS": "", "ROSTER": path, "ADDR": "127.0.0.1:0", "LOG_FORMAT": "json",
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
	})
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Main(ctx, IO{Args: []string{"serve"}, Stdout: io.Discard, Stderr: writer})
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	until := func(message string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), message) {
				return
			}
		}
		t.Fatalf("the daemon ended and did not log %q", message)
	}
	until("listening")
	write("second")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until("another roster is in force")
	stop()
	until("stopped")
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	if got := <-code; got != 0 {
		t.Errorf("exit %d", got)
	}
}
