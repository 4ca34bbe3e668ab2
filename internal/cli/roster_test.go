package cli

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/councild/councild/internal/testkit/daemontest"
)

func TestRosterCommands(t *testing.T) {
	t.Setenv("AZURE_KEY", "x")
	t.Setenv("LLM_COUNCIL_PROVIDERS", "claude=https://api.anthropic.com/v1")
	code, out, errs := command(t, "config", "roster", "check", "../../docs/roster.yaml")
	if code != 0 || !strings.Contains(out, "Nothing is wrong: 3 models, 2 councils.") {
		t.Errorf("the example: %d %s%s", code, out, errs)
	}
	code, out, errs = command(t, "config", "roster", "show", "../../docs/roster.yaml")
	for _, want := range []string{"deep (default)", "review-1+fast.", "claude-opus-5-5", "high", "input: 2"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("the example shows no %q: %d %s%s", want, code, out, errs)
		}
	}
	doubtful := filepath.Join(t.TempDir(), "doubtful.yaml")
	text := "version: 1\nmodels: {a: {model: x/a}, b: {model: x/b}, c: {model: y/c}}\n" +
		"councils: {deep: {members: [a, b, c], first: 2}, solo: {members: [a], mode: single}}\ndefault: solo\n"
	if err := os.WriteFile(doubtful, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = command(t, "config", "roster", "check", doubtful)
	for _, want := range []string{"councild: warning: the council deep has first: 2", "councild: warning: the first 2 members of the council deep"} {
		if code != 0 || !strings.Contains(errs, want) || !strings.Contains(out, "see the warnings: 3 models, 2 councils.") {
			t.Errorf("a doubtful roster: %d, want 0 and %q:\n%s%s", code, want, out, errs)
		}
	}
	_, out, _ = command(t, "config", "roster", "show", doubtful)
	for _, row := range []string{"deep +review.* council +2 +a, b, c +a, b, c +a +everybody\n", "solo \\(default\\) .* single +all +a +- +- +everybody\n"} {
		if !regexp.MustCompile(row).MatchString(out) {
			t.Errorf("no row is like %q:\n%s", row, out)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: 2\nmodels: {}\ncouncils: {a: {members: [b]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs = command(t, "config", "roster", "check", bad)
	for _, want := range []string{"line 1: the version", "line 3: members names one model", "line 3: members names \"b\""} {
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("a bad roster: %d, want 2 and %q:\n%s", code, want, errs)
		}
	}
	if code, _, errs = command(t, "config", "roster", "check"); code != 2 || !strings.Contains(errs, "LLM_COUNCIL_ROSTER") {
		t.Errorf("no roster: %d %s", code, errs)
	}
}

func TestToken(t *testing.T) {
	code, out, errs := command(t, "config", "token", "ci")
	token, rest, _ := strings.Cut(out, "\n")
	sum := sha256.Sum256([]byte(token))
	if code != 0 || len(token) < 26 || !strings.Contains(rest, "ci: {sha256: "+hex.EncodeToString(sum[:])+"}") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, _, errs = command(t, "config", "token", "c i"); code != 2 || !strings.Contains(errs, "1 to 32 letters") {
		t.Errorf("a bad name: %d %s", code, errs)
	}
}

// A daemon reads its roster again on SIGHUP, which never ends it: without a roster, or while it shuts down, the signal is ignored.
func TestFaultF67(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	path := filepath.Join(t.TempDir(), "roster.yaml")
	write := func(name string) {
		t.Helper()
		text := "version: 1\nmodels: {one: {model: waiting}, two: {model: quick}}\ncouncils: {" + name + ": {members: [one, two]}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // Where the command does not, the signal ends the test.
	defer signal.Stop(hangups)
	for name, env := range map[string]map[string]string{
		"a roster": {"MODELS": "", "ROSTER": path}, "no roster": {"MODELS": "waiting,quick", "ROSTER": ""},
	} {
		t.Run(name, func(t *testing.T) {
			write("first")
			maps.Copy(env, map[string]string{
				"BASE_URL": url, "ADDR": "127.0.0.1:0", "BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
			})
			daemontest.Setenv(t, env)
			ctx, stop := context.WithCancel(t.Context())
			reader, writer := io.Pipe()
			code := make(chan int, 1)
			go func() {
				code <- Main(ctx, IO{Args: []string{"serve"}, Stdout: io.Discard, Stderr: writer})
				_ = writer.Close()
			}()
			lines := make(chan string, 1000)
			go func() {
				for log := bufio.NewScanner(reader); log.Scan(); {
					lines <- log.Text()
				}
				close(lines)
			}()
			until := func(message string) string {
				t.Helper()
				for line := range lines {
					if strings.Contains(line, message) {
						return line
					}
				}
				t.Fatalf("the daemon ended and did not log %q", message)
				return ""
			}
			hangUp := func() {
				t.Helper()
				if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
			}
			var started struct{ URL string }
			if line := until("listening"); json.Unmarshal([]byte(line), &started) != nil || started.URL == "" {
				t.Fatalf("no URL: %s", line)
			}
			write("second")
			hangUp()
			if name == "a roster" {
				until("a new roster is in use")
			} else {
				until("SIGHUP is ignored: there is no roster to read again")
			}
			answered := make(chan int, 1)
			go func() {
				resp, err := http.Post(started.URL+"/v1/council", "application/json", strings.NewReader(`{"query":"x"}`))
				if err != nil {
					t.Error(err)
					answered <- 0
					return
				}
				answered <- resp.StatusCode
				_ = resp.Body.Close()
			}()
			<-arrived
			stop()
			until("stopping: no new sessions")
			hangUp()
			until("SIGHUP is ignored: the daemon is shutting down")
			release()
			until("stopped")
			if got := <-code; got != 0 {
				t.Errorf("exit %d", got)
			}
			if status := <-answered; status != http.StatusOK {
				t.Errorf("the session that was drained: %d", status)
			}
			daemontest.Fault(t, "F67", "ignored with a line in the log; sessions end", "%s: exit 0, the session that ran ended well", name)
		})
	}
}
