package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/gatesim"
)

// reviewers is a provider of the models a/one, b/two and c/three. The first reports a place in each change, and the
// others confirm it as blocking. The model d/four rejects everything.
func reviewers(t *testing.T) *simllm.Running {
	t.Helper()
	models := gatesim.OneFinder("a/one", "b/two", "c/three", "d/four")
	models[3].Reviewing.FalseConfirms = 0
	return daemontest.Provider(t, models...)
}

// The command reviews here and at a daemon, and says the same in each form.
func TestGate(t *testing.T) {
	sim := reviewers(t)
	env := map[string]string{"BASE_URL": sim.URL(), "MODELS": "a/one,b/two,c/three", "DATA_DIR": "off"}
	d := daemontest.Start(t, env)
	daemontest.Setenv(t, env)
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("change.diff", gatesim.Refund)
	for name, at := range map[string][]string{"here": nil, "at a daemon": {"--server", d.URL()}} {
		args := append([]string{"gate", "--diff", "change.diff"}, at...)
		code, stdout, stderr := command(t, args...)
		for _, want := range []string{"**councild gate: blocked**", "pay/refund.go", "found by a/one"} {
			if code != exitOK || !strings.Contains(stdout, want) || !strings.Contains(stderr, "cost") {
				t.Errorf("%s: %d, no %q: %s%s", name, code, want, stdout, stderr)
			}
		}
		code, stdout, stderr = command(t, append(args, "--fail-on", "undecided,blocked", "--format", "json", "--sarif", "x.sarif")...)
		var r gate.Report
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitFound || r.Verdict != gate.Blocked || r.SessionID == "" ||
			!strings.Contains(stderr, "the verdict is blocked: ") || r.Usage == nil {
			t.Errorf("%s: %d %v: %s%s", name, code, err, stdout, stderr)
		}
		if sarif, err := os.ReadFile("x.sarif"); err != nil || !strings.Contains(string(sarif), `"2.1.0"`) {
			t.Errorf("%s: %v %s", name, err, sarif)
		}
		code, stdout, _ = command(t, append(args, "--format", "github", "--out", "x.md", "--fail-on", "undecided")...)
		markdown, err := os.ReadFile("x.md")
		if code != exitOK || err != nil || !strings.HasPrefix(stdout, "::error file=pay/refund.go,") || !strings.Contains(string(markdown), "blocked") {
			t.Errorf("%s: %d %s%s", name, code, stdout, markdown)
		}
		code, stdout, _ = command(t, append(args, "--format", "json", "--estimate")...)
		var e spend.Estimate
		if err := json.Unmarshal([]byte(stdout), &e); code != exitOK || err != nil || e.Calls != 6 || e.Mode != council.ModeTask {
			t.Errorf("%s: %d %v: %s", name, code, err, stdout)
		}
		write("ignore.txt", "# accepted\n\n"+r.Findings[0].Fingerprint+"  it is a test\n")
		code, stdout, _ = command(t, append(args, "--ignore", "ignore.txt", "--fail-on", "blocked")...)
		if code != exitOK || !strings.Contains(stdout, "gate: pass") {
			t.Errorf("%s: %d %s", name, code, stdout)
		}
		code, stdout, _ = command(t, append(args, "--exclude", "pay/**", "--fail-on", "blocked")...)
		if code != exitOK || !strings.Contains(stdout, "gate: pass") {
			t.Errorf("%s: %d %s", name, code, stdout)
		}
		if name == "at a daemon" {
			code, stdout, stderr = command(t, "sessions", "show", r.SessionID, "--server", d.URL())
			if code != exitOK || !strings.Contains(stdout, "**councild gate: blocked**") || strings.Contains(stdout, "agree") {
				t.Errorf("%d %s%s", code, stdout, stderr)
			}
			if _, stdout, _ = command(t, "sessions", "list", "--server", d.URL()); !strings.Contains(stdout, "gate: 1 file, +2 -1") {
				t.Errorf("%s", stdout)
			}
		}
	}
}

// What a limit refuses is undecided, and no error.
func TestGateIsUndecided(t *testing.T) {
	sim := reviewers(t)
	env := map[string]string{
		"BASE_URL": sim.URL(), "MODELS": "a/one,b/two,c/three", "DATA_DIR": "off", "MAX_QUERY_BYTES": "1024",
		"PRICES": "a/one=1/1,b/two=1/1,c/three=1/1", "COST_LIMITS": "hard", "MAX_OUTPUT_TOKENS": "1000",
	}
	d := daemontest.Start(t, env)
	daemontest.Setenv(t, env)
	dir := t.TempDir()
	file := filepath.Join(dir, "change.diff")
	for name, tt := range map[string]struct {
		diff   string
		args   []string
		reason string
	}{
		"a low limit":               {gatesim.Refund, []string{"--max-cost-usd", "0.000001"}, "Nothing was asked. --max-cost-usd: "},
		"too large for the members": {strings.Replace(gatesim.Refund, "max(i, 0)", strings.Repeat("x", 2000), 1), nil, "The diff is too large: "},
		"too large for a body":      {strings.Replace(gatesim.Refund, "max(i, 0)", strings.Repeat("x", 1<<20), 1), nil, "too large|larger than"},
	} {
		if err := os.WriteFile(file, []byte(tt.diff), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, at := range [][]string{nil, {"--server", d.URL()}} {
			args := append([]string{"gate", "--diff", file}, append(tt.args, at...)...)
			code, stdout, stderr := command(t, args...)
			found := false
			for part := range strings.SplitSeq(tt.reason, "|") {
				found = found || strings.Contains(stdout, part)
			}
			if code != exitOK || !found || !strings.Contains(stdout, "gate: undecided") {
				t.Errorf("%s %v: %d %s%s", name, at, code, stdout, stderr)
			}
			if code, _, _ = command(t, append(args, "--fail-on", "undecided")...); code != exitFound {
				t.Errorf("%s %v: %d", name, at, code)
			}
		}
	}
	for _, m := range sim.Stats().Models {
		if m.Requests > 0 {
			t.Errorf("%+v", m)
		}
	}
}

// A command line that cannot be reviewed is refused with its fix, and nothing is asked.
func TestGateFails(t *testing.T) {
	sim := reviewers(t)
	daemontest.Setenv(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a/one,b/two", "DATA_DIR": "off"})
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"x.diff": gatesim.Refund, "empty.diff": "\n", "prose.diff": "What is this?", "ignore.txt": "0123456789abcdef:1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"write git diff origin/main...HEAD | councild gate":   {},
		"the diff is empty: check its range":                  {"--diff", "empty.diff"},
		"--diff: ":                                            {"--diff", "prose.diff"},
		"name a readable file":                                {"--diff", "none.diff"},
		"--ignore: line 1 of ignore.txt has no reason: write": {"--diff", "x.diff", "--ignore", "ignore.txt"},
		"--max-findings: 51 is not from 1 to 50":              {"--diff", "x.diff", "--max-findings", "51"},
		"write blocked, undecided or both":                    {"--diff", "x.diff", "--fail-on", "failed"},
		"write one of markdown, json":                         {"--diff", "x.diff", "--format", "pdf"},
		"--max-cost-usd is not above 0":                       {"--diff", "x.diff", "--max-cost-usd", "NaN"},
		"--council: ":                                         {"--diff", "x.diff", "--council", "none"},
	} {
		code, stdout, stderr := command(t, append([]string{"gate"}, args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d, want %q: %s%s", args, code, want, stdout, stderr)
		}
	}
	if code, _, stderr := command(t, "gate", "--diff", "x.diff", "--server", "http://127.0.0.1:1"); code != exitError || !strings.Contains(stderr, "refused") {
		t.Errorf("%d %s", code, stderr)
	}
	for _, m := range sim.Stats().Models {
		if m.Requests > 0 {
			t.Errorf("%+v", m)
		}
	}
}
