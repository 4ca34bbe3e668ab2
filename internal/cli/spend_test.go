package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/testkit/daemontest"
)

func TestSpend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spend.jsonl")
	const ledger = `{"type":"close","day":"2026-11-22","session":"1","token":"=x","council":"a,b;a","limit_usd":null,"calls":[` +
		`{"stage":"stage1","model":"a","usd":0.000000000001,"source":"provider"},{"stage":"stage1","model":"b","usd":null,"source":"bound"}]}` + "\n" +
		`{"type":"open","day":"2026-11-23","session":"4","token":"y","council":"c,d;c","limit_usd":3}` + "\n"
	if err := os.WriteFile(path, []byte(ledger), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string // parts, separated by "|"
	}{
		{[]string{"--by", "token"}, "$3.00      $3.00        0      0         1  y|$3.00 spent in all. Up to $3.00 of it is uncertain. The cost of 1 call is unknown, and not in the sum."},
		{[]string{"--format", "csv", "--by", "token"}, "token,sessions,calls,total_usd|y,1,0,3,3,0|'=x,1,2,0.000000000001,0,1"},
		{[]string{"--format", "json", "--token", "=x"}, `"total_usd": 0.000000000001`},
	} {
		code, stdout, stderr := command(t, append([]string{"report", "spend", "--days", "0", "--input", path}, c.args...)...)
		for part := range strings.SplitSeq(c.want, "|") {
			if code != 0 || !strings.Contains(stdout, part) {
				t.Errorf("%q: exit code %d, %q is missing in %s%s", c.args, code, part, stdout, stderr)
			}
		}
	}
	if code, _, stderr := command(t, "report", "spend", "--days", "-1"); code != 2 || !strings.Contains(stderr, "--days") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for days, want := range map[string]string{
		"30": "Nothing spent in the last 30 days.\n", "1": "Nothing spent today (UTC).\n", "0": "Nothing spent yet.\n",
	} {
		for _, input := range []string{path, path + ".none"} {
			code, stdout, stderr := command(t, "report", "spend", "--days", days, "--input", input)
			if missing := strings.Contains(stderr, "there is no ledger of costs at "+input); code != 0 || stdout != want || missing != (input != path) {
				t.Errorf("%s days of %s: exit code %d, %q, %q", days, input, code, stdout, stderr)
			}
		}
	}
}

// Verify says what a ledger holds and what is lost, and accept takes the loss.
func TestSpendVerify(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BASE_URL": priced(t), "MODELS": "a,b"})
	path := filepath.Join(t.TempDir(), "spend.jsonl")
	t.Setenv("LLM_COUNCIL_DATA_DIR", filepath.Dir(path))
	check := func(want int, parts string, args ...string) {
		t.Helper()
		code, stdout, stderr := command(t, append([]string{"report", "spend"}, args...)...)
		for part := range strings.SplitSeq(parts, "|") {
			if code != want || !strings.Contains(stdout+stderr, part) {
				t.Errorf("%q: exit code %d, %q is missing in %s%s", args, code, part, stdout, stderr)
			}
		}
	}
	check(0, "there is no ledger of costs at "+path, "verify")
	if code, _, stderr := command(t, "report", "spend", "accept"); code != 1 || !strings.Contains(stderr, "there is no ledger of costs") {
		t.Errorf("accepting nothing: exit code %d: %s", code, stderr)
	}
	for range 2 {
		if code, _, stderr := command(t, "ask", "Which way?"); code != 0 {
			t.Fatal(stderr)
		}
	}
	check(0, "Lines that can be read: 4, 0 of them without a checksum|Lines that should be there: at least 4. Missing: at least 0.|The ledger is whole.", "verify")
	check(0, "Nothing to accept", "accept")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	data = []byte(strings.Replace(lines[0], `"session"`, `"sessiom"`, 1) + lines[1])
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	const problem = "1 line cannot be read (bad_checksum, first spend.jsonl line 1), at least 2 lines are missing"
	check(1, "Lines that can be read: 1,|bad_checksum: 1, the first in spend.jsonl at line 1|Missing: at least 2.|Lost: at least $0.0|is damaged: "+problem+
		"|councild report spend accept", "verify")
	check(1, `"damaged": true|"missing_lines": 2|"unreadable_lines": 1|"file": "spend.jsonl"`, "verify", "--format", "json")
	check(0, "These sums are too low, because the ledger is damaged: "+problem, "report")
	check(0, "warning: these sums are too low, because the ledger is damaged: "+problem, "--format", "csv")
	check(0, "Accepted: "+problem, "accept")
	check(0, "Accepted on 2|1 lines cannot be read, at least 2 lines are missing, at least $0.0", "verify")
	check(0, "a loss was accepted on 2")
	check(0, "Nothing to accept", "accept")
	l, err := daemon.OpenLedger(t.Context(), loaded(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	check(1, "has the ledger open: stop it", "accept")
	check(0, "Accepted on", "verify")
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func loaded(t *testing.T) config.Config {
	t.Helper()
	cfg, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A question that is asked without a daemon counts in the ledger and against the limits of the day. Where another process has the
// ledger, or there is none, a line says that it does not count.
func TestAskCounts(t *testing.T) {
	url, questions := heardBy(t)
	env := map[string]string{
		"BASE_URL": url, "MODELS": "a,b", "PRICES": "a=1/10,b=2/20", "MAX_OUTPUT_TOKENS": "100", "MAX_COST_USD": "1", "MAX_COST_USD_PER_DAY": "1.5",
	}
	ask := func(args ...string) (int, string) {
		t.Helper()
		code, stdout, stderr := command(t, append([]string{"ask", "Which way?"}, args...)...)
		return code, stdout + stderr
	}
	spent := func() string {
		t.Helper()
		_, stdout, _ := command(t, "report", "spend", "--format", "csv")
		return stdout
	}
	daemontest.Setenv(t, env)
	code, stderr := ask()
	if code != 0 || strings.Contains(stderr, "not counted") || !strings.Contains(stderr, " of today's $1.50 left") || !strings.Contains(spent(), ",1,") {
		t.Fatalf("exit code %d: %s%s", code, stderr, spent())
	}
	once := spent()
	l, err := daemon.OpenLedger(t.Context(), loaded(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if code, stderr = ask(); code != 0 || strings.Count(stderr, "not counted in the ledger of costs: process ") != 1 ||
		!strings.Contains(stderr, "with --server, a daemon answers and counts") {
		t.Errorf("beside a daemon: exit code %d: %s", code, stderr)
	}
	if code, stderr = ask("--quiet"); code != 0 || strings.Count(stderr, "not counted in the ledger of costs: ") != 1 {
		t.Errorf("quietly: exit code %d: %s", code, stderr)
	}
	questions()
	t.Setenv("LLM_COUNCIL_COST_LIMITS", "hard")
	if code, stderr = ask(); code != 1 || !strings.Contains(stderr, "hard daily limits need the ledger of costs: process ") {
		t.Errorf("beside a daemon, under hard limits: exit code %d: %s", code, stderr)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if once != spent() {
		t.Errorf("what was not counted is there: %s", spent())
	}
	t.Setenv("LLM_COUNCIL_MAX_COST_USD_PER_DAY", "1")
	if code, _, stderr := command(t, "ask", "--estimate", "Which way?"); code != exitFound {
		t.Errorf("an estimate that a limit of the day leaves no room for: exit code %d: %s", code, stderr)
	}
	if code, stderr = ask(); code != 1 || !strings.Contains(stderr, "may cost $1.00 a day") || len(questions()) > 0 {
		t.Errorf("over the limit of the day: exit code %d: %s", code, stderr)
	}
	daemontest.Setenv(t, env)
	t.Setenv("LLM_COUNCIL_MAX_COST_USD_PER_DAY", "")
	t.Setenv("LLM_COUNCIL_DATA_DIR", "off")
	if code, stderr = ask(); code != 0 || !strings.Contains(stderr, "not counted in the ledger of costs: LLM_COUNCIL_DATA_DIR is off") {
		t.Errorf("without a ledger: exit code %d: %s", code, stderr)
	}
	t.Setenv("LLM_COUNCIL_DATA_DIR", os.DevNull)
	if code, stderr = ask(); code != 0 || strings.Count(stderr, "not counted in the ledger of costs: ") != 1 {
		t.Errorf("a ledger that cannot be written: exit code %d: %s", code, stderr)
	}
}

func TestPrices(t *testing.T) {
	t.Setenv("LLM_COUNCIL_MODELS", "openai/gpt-5,x/none")
	t.Setenv("LLM_COUNCIL_PRICES", "openai/gpt-5=1/10")
	path := filepath.Join(t.TempDir(), "prices.json")
	const list = `{"gpt-5":{"input_cost_per_token":1.25e-06,"output_cost_per_token":1e-05}}`
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "config", "prices", "--from", path)
	for _, want := range []string{
		"openai/gpt-5: {as_of: 20", "input: 1.25, output: 10}", "# differs from what is set: {input: 1, output: 10}",
		"# x/none: no price was found", "# LLM_COUNCIL_PRICES=openai/gpt-5=1.25/10@20",
	} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %q is missing in %s%s", code, want, stdout, stderr)
		}
	}
	if err := os.WriteFile(path, []byte(`{"models":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command(t, "config", "prices", "--from", path); code != 1 || !strings.Contains(stderr, "LiteLLM") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// The printed line of LLM_COUNCIL_PRICES is read as the prices that were listed, the fee of each call included.
func TestPrintedPrices(t *testing.T) {
	t.Setenv("LLM_COUNCIL_MODELS", "pplx/sonar,x/long")
	path := filepath.Join(t.TempDir(), "prices.json")
	const list = `{"data":[{"id":"pplx/sonar","pricing":{"prompt":"0.000003","completion":"0.000015","request":"0.018","web_search":"0.018"}},` +
		`{"id":"x/long","pricing":{"prompt":"0.000001","completion":"0.000004","input_cache_write":"0.00000125","internal_reasoning":"0.000006",` +
		`"overrides":[{"min_prompt_tokens":200001,"prompt":"0.000002","completion":"0.000008","request":"0.001"}]}}]}`
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := command(t, "config", "prices", "--from", path)
	_, line, ok := strings.Cut(stdout, "# LLM_COUNCIL_PRICES=")
	line, _, _ = strings.Cut(line, "\n")
	if !ok || !strings.Contains(line, "pplx/sonar=3/15+request:0.018@20") {
		t.Fatalf("%s%s", stdout, stderr)
	}
	t.Setenv("LLM_COUNCIL_PRICES", line)
	if code, again, stderr := command(t, "config", "prices", "--from", path); code != 0 || again != stdout {
		t.Errorf("exit code %d, with the printed prices set: %s%s", code, again, stderr)
	}
}
