package cli

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// priced starts a provider of two models that say what they cost.
func priced(t *testing.T) (url string) {
	t.Helper()
	models := daemontest.Members()[:2]
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
	}
	return daemontest.Provider(t, models...).URL()
}

// An estimate asks nothing, here and at a daemon, and says whether the limits leave room.
func TestAskEstimates(t *testing.T) {
	url, questions := heardBy(t)
	env := map[string]string{"BASE_URL": url, "MODELS": "a,b", "PRICES": "a=1/10,b=2/20", "MAX_OUTPUT_TOKENS": "100", "COST_LIMITS": "hard"}
	d := startDaemon(t, env)
	for _, at := range [][]string{nil, {"--server", d.URL()}} {
		code, stdout, stderr := command(t, append([]string{"ask", "--estimate", "--max-cost-usd", "5", "Which way?"}, at...)...)
		for _, want := range []string{"  a\n", "  b\n", "5  total, without retries", "\n5 calls, at most $0.084.\nWithin budget.\n"} {
			if code != exitOK || !strings.Contains(stdout, want) {
				t.Errorf("%s: exit %d, %q is missing: %s%s", at, code, want, stdout, stderr)
			}
		}
		code, stdout, stderr = command(t, append([]string{"ask", "--estimate", "--json", "--max-cost-usd", "0.001", "Which way?"}, at...)...)
		var e spend.Estimate
		if err := json.Unmarshal([]byte(stdout), &e); err != nil || code != exitFound {
			t.Fatalf("%s: exit %d, %v: %s%s", at, code, err, stdout, stderr)
		}
		if e.Fits || e.Refusal == nil || !strings.Contains(*e.Refusal, "max_cost_usd: the limit is $0.001") {
			t.Errorf("%s: a limit that is too low: %+v", at, e)
		}
		code, _, stderr = command(t, append([]string{"ask", "--estimate", "--models", "a,x", "Which way?"}, at...)...)
		if code != exitUsage || !strings.Contains(stderr, `--models: "x" is not a model`) {
			t.Errorf("%s: exit %d: %s", at, code, stderr)
		}
	}
	if asked := questions(); len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
	if code, _, stderr := command(t, "ask", "--estimate", "--follow", "1"); code != exitUsage || !strings.Contains(stderr, "leave one of them out") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// After the answer the last line says what it cost, and what is left of each limit.
func TestAskSaysTheCost(t *testing.T) {
	env := map[string]string{"BASE_URL": priced(t), "MODELS": "a,b", "MAX_COST_USD": "5", "MAX_COST_USD_PER_DAY": "7"}
	d := startDaemon(t, env)
	for _, at := range [][]string{nil, {"--server", d.URL()}} {
		code, stdout, stderr := command(t, append([]string{"ask", "Which way?"}, at...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		bill := strings.Join(lines[len(lines)-2:], "\n")
		if code != exitOK || !strings.Contains(bill, "s · $0.0") || !strings.Contains(bill, "Budget     $4.98 of the session's $5.00 left.") || strings.Contains(stderr, "$") {
			t.Errorf("%s: exit %d: %q, stderr %q", at, code, bill, stderr)
		}
		if today := strings.Contains(bill, " left. $6.9") && strings.Contains(bill, " of today's $7.00 left."); today != (at != nil) {
			t.Errorf("%s: %q", at, bill)
		}
		code, stdout, stderr = command(t, append([]string{"ask", "--quiet", "Which way?"}, at...)...)
		if code != exitOK || strings.Contains(stdout+stderr, "$") {
			t.Errorf("%s: exit %d: %s%q", at, code, stdout, stderr)
		}
		_, _, stderr = command(t, append([]string{"ask", "--json", "Which way?"}, at...)...)
		if !strings.Contains(stderr, "It cost $0.0") || !strings.Contains(stderr, " of the session's $5.00 left.") {
			t.Errorf("%s: with --json, stderr is %q", at, stderr)
		}
	}
	daemontest.Setenv(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	if _, stdout, _ := command(t, "ask", "Which way?"); !strings.Contains(stdout, "s · cost unknown · session ") {
		t.Errorf("models without a price: %q", stdout)
	}
}

// --council asks a council of the roster, here and at a daemon.
func TestAskACouncil(t *testing.T) {
	path := filepath.Join(t.TempDir(), "roster.yaml")
	const roster = "version: 1\ndefault: deep\nmodels: {one: {model: a}, two: {model: b}, three: {model: c}}\n" +
		"councils: {deep: {members: [one, two, three]}, fast: {members: [two, three]}}\n"
	if err := os.WriteFile(path, []byte(roster), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "", "ROSTER": path})
	for _, at := range [][]string{nil, {"--server", d.URL()}} {
		for council, members := range map[string]int{"fast": 2, "deep": 3, "": 3} {
			args := append([]string{"ask", "--json", "Which way?"}, at...)
			if council != "" {
				args = append(args, "--council", council)
			}
			code, stdout, stderr := command(t, args...)
			var s struct {
				Council string
				Stage1  []any
			}
			if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != exitOK {
				t.Fatalf("%s: exit %d, %v: %s", args, code, err, stderr)
			}
			if s.Council != cmp.Or(council, "deep") || len(s.Stage1) != members {
				t.Errorf("%s: asked %s with %d members", args, s.Council, len(s.Stage1))
			}
		}
		code, stdout, stderr := command(t, append([]string{"ask", "--estimate", "--council", "fast", "Which way?"}, at...)...)
		if code != exitOK || !strings.Contains(stdout, "  c\n") || strings.Contains(stdout, "  a\n") {
			t.Errorf("%s: exit %d: %s%s", at, code, stdout, stderr)
		}
		for want, args := range map[string][]string{
			`--council: "slow" is not a council; use deep, fast`: {"--council", "slow"},
			"--council: ": {"--council", "fast", "--models", "one,two"},
		} {
			code, _, stderr := command(t, append(append([]string{"ask", "Which way?"}, args...), at...)...)
			if code != exitUsage || !strings.Contains(stderr, want) {
				t.Errorf("%s %s: exit %d: %s", args, at, code, stderr)
			}
		}
	}
}
