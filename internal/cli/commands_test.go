package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// command runs councild with arguments and returns its exit code and output.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	code = Main(t.Context(), IO{Args: args, Stdout: &out, Stderr: &log, Version: "v1.2.3"})
	return code, out.String(), log.String()
}

func TestCommandLine(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		env    map[string]string
		code   int
		stdout string // parts, separated by "|"
		stderr string
	}{
		{
			name: "help", args: []string{"--help"},
			stdout: "serve|demo|ask|check|sessions|report|batch|compare|config|store|probe|completion|mcp|healthcheck|version",
		},
		{name: "help of a command", args: []string{"report", "bias", "--help"}, stdout: "--input|--format|--sessions|--days|--verbose"},
		{name: "help of several commands", args: []string{"config", "--help"}, stdout: "Commands:\n  config show|config roster|config token"},
		{name: "version", args: []string{"version"}, stdout: "councild v1.2.3 (go1."},
		{name: "no command", stdout: "Ask and read:\n  ask |Measure:\n  compare |Run and maintain:\n  serve |Files " +
			"and shell:\n  store "},
		{name: "an unknown command", args: []string{"serv"}, code: 2, stderr: "unexpected argument serv|--help"},
		{name: "an unknown flag", args: []string{"serve", "--port", "1"}, code: 2, stderr: "unknown flag --port"},
		{
			name: "serve without settings", args: []string{"serve"}, env: map[string]string{"MODELS": ""}, code: 2,
			stderr: "LLM_COUNCIL_MODELS: is not set|LLM_COUNCIL_API_KEY|councild demo",
		},
		{
			name: "ask without settings", args: []string{"ask", "x"}, env: map[string]string{"MODELS": ""}, code: 2,
			stderr: "LLM_COUNCIL_MODELS: is not set",
		},
		{
			name: "every wrong setting at once", args: []string{"serve"}, code: 2,
			env:    map[string]string{"MODLES": "a,b", "TIMEOUT": "10", "MAX_MODELS": "many", "API_TOKENS": "short"},
			stderr: "LLM_COUNCIL_MODLES|LLM_COUNCIL_MODELS|LLM_COUNCIL_TIMEOUT|10m|LLM_COUNCIL_MAX_MODELS|LLM_COUNCIL_API_TOKENS",
		},
		{
			name: "config", args: []string{"config"}, env: map[string]string{"API_KEY": "sk-secret"},
			stdout: "Whom to ask:\n\nVARIABLE |LLM_COUNCIL_BASE_URL |\nNot set:\n|LLM_COUNCIL_API_KEY |[redacted]|environment|LLM_COUNCIL_DRAIN_TIMEOUT|30s|default",
		},
		{
			name: "config of traces", args: []string{"config"},
			stdout: "OTEL_EXPORTER_OTLP_ENDPOINT |OTEL_EXPORTER_OTLP_HEADERS |OTEL_SERVICE_NAME |councild |OTEL_TRACES_SAMPLER ",
		},
		{
			name: "what is probably wrong", args: []string{"config"},
			env:    map[string]string{"BASE_URL": "http://127.0.0.1:1", "MODELS": "slim:amber,sim:amber"},
			stdout: "LLM_COUNCIL_BASE_URL",
			stderr: "probably wrong: LLM_COUNCIL_BASE_URL: http://127.0.0.1:1 has no path|probably wrong: " +
				"LLM_COUNCIL_PROVIDERS: no provider has the name \"slim\"",
		},
		{
			name: "config of a council without its key", args: []string{"config"}, env: map[string]string{"MODELS": "gpt-5,sim:amber"},
			stdout: "LLM_COUNCIL_MODELS",
			stderr: "no council can be run|LLM_COUNCIL_API_KEY: is not set, and \"gpt-5\" goes to https://openrouter.ai/api/v1",
		},
		{
			name: "a lexicon and models that are not there", args: []string{"config"}, code: 2,
			env: map[string]string{"LEXICON": "missing.json", "MODELS": "sim:amber,sim:ambr", "CHAIRMAN": "sim:x", "ORDER": "random"},
			stderr: "LLM_COUNCIL_LEXICON: \"missing.json\" cannot be read (no such file or directory)|there is no simulated model " +
				"sim:ambr, sim:x: use sim:amber, |LLM_COUNCIL_ORDER",
		},
		{
			name: "a lexicon that is a device", args: []string{"serve"}, env: map[string]string{"LEXICON": "/dev/null", "ORDER": "random"},
			code: 2, stderr: "LLM_COUNCIL_LEXICON: \"/dev/null\" is not a regular file|LLM_COUNCIL_ORDER",
		},
		{
			name: "no lexicon", args: []string{"serve"}, env: map[string]string{"LEXICON": "/etc/passwd", "ORDER": "random"}, code: 2,
			stderr: "LLM_COUNCIL_LEXICON: \"/etc/passwd\" is no lexicon|LLM_COUNCIL_ORDER",
		},
		{
			name: "a lexicon for requests alone", args: []string{"config"}, code: 2,
			env: map[string]string{"LEXICON": "missing.json", "DEMOGRAPHICS": "off"}, stderr: "\"missing.json\" cannot be read",
		},
		{
			name: "config that is wrong", args: []string{"config"}, env: map[string]string{"ORDER": "random"}, code: 2,
			stderr: "LLM_COUNCIL_ORDER",
		},
		{name: "a report on nothing", args: []string{"report", "bias"}, stdout: "Collecting data (0 of 10 sessions)"},
		{name: "a report on a missing file", args: []string{"report", "bias", "--input", "missing.jsonl"}, code: 1, stderr: "missing.jsonl"},
		{name: "a report on a folder", args: []string{"report", "bias", "--input", "."}, code: 1, stderr: "is a directory"},
		{name: "a leaderboard of nothing", args: []string{"report", "leaderboard"}, stdout: "No ballots in 0 sessions"},
		{
			name: "a leaderboard of no category", args: []string{"report", "leaderboard", "--category", "poetry"}, code: 2,
			stderr: "--category: \"poetry\" is not a choice",
		},
		{
			name: "a leaderboard of a missing file", args: []string{"report", "leaderboard", "--input", "missing.jsonl"}, code: 1,
			stderr: "missing.jsonl",
		},
		{name: "a report since no day", args: []string{"report", "bias", "--since", "yesterday"}, code: 2, stderr: "is not a time: write a day"},
		{name: "a report in no form", args: []string{"report", "bias", "--format", "pdf"}, code: 2, stderr: "write one of text, json"},
		{name: "a report on a negative window", args: []string{"report", "bias", "--sessions=-1"}, code: 2, stderr: "0 for no limit"},
		{name: "simulate without a file", args: []string{"store", "simulate"}, code: 2, stderr: "--out"},
		{name: "simulate nothing", args: []string{"store", "simulate", "--out", "x.jsonl", "--sessions", "0"}, code: 2, stderr: "--sessions"},
		{name: "a probe without a file", args: []string{"probe", "x"}, code: 2, stderr: "--out"},
		{name: "a probe without a question", args: []string{"probe", "--out", "x.jsonl"}, code: 2, stderr: "there is no question"},
		{
			name: "a probe of an empty question", args: []string{"probe", "--out", "x.jsonl", "y", " "}, code: 2,
			stderr: "question 2: the request is not valid|query",
		},
		{
			name: "a probe that repeats nothing", args: []string{"probe", "--out", "x.jsonl", "--repeats", "1", "x"}, code: 2,
			stderr: "--repeats",
		},
		{
			name: "a probe into the store", args: []string{"probe", "--out", "x.jsonl", "x"},
			env: map[string]string{"BIAS_STORE": "x.jsonl"}, code: 2, stderr: "LLM_COUNCIL_BIAS_STORE",
		},
		{
			name: "a probe without settings", args: []string{"probe", "--out", "x.jsonl", "x"},
			env: map[string]string{"MODELS": ""}, code: 2, stderr: "LLM_COUNCIL_MODELS: is not set",
		},
		{
			name: "a probe of missing questions", args: []string{"probe", "--out", "x.jsonl", "--file", "missing.txt"}, code: 1,
			stderr: "missing.txt",
		},
		{
			name: "a probe of too many questions", code: 2, stderr: "--sessions 0 to 100000",
			args: []string{"probe", "--simulate", "--out", "x.jsonl", "--sessions", "9223372036854775807"},
		},
		{
			name: "a comparison with too large an ensemble", code: 2, stderr: "--samples is out of range: write a whole number from 2 to 100000",
			args: []string{
				"compare", "--simulate", "--arms", "ensemble", "--samples", "9223372036854775807", "--file", "../../examples/questions.jsonl",
				"--out", "x.jsonl", "--max-cost-usd", "1",
			},
		},
		{
			name: "healthcheck of nothing", args: []string{"healthcheck"}, env: map[string]string{"ADDR": "127.0.0.1:1"}, code: 1,
			stderr: "refused",
		},
		{name: "ask a daemon that is not there", args: []string{"ask", "--server", "http://127.0.0.1:1", "x"}, code: 1, stderr: "refused"},
		{name: "ask at no URL", args: []string{"ask", "--server", "http://[", "x"}, code: 2, stderr: "--server"},
		{name: "ask nothing", args: []string{"ask", " "}, code: 2, stderr: "there is no question: write councild ask"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			daemontest.Setenv(t, tt.env)
			t.Chdir(t.TempDir())
			code, stdout, stderr := command(t, tt.args...)
			if code != tt.code {
				t.Errorf("exit %d, want %d: %s", code, tt.code, stderr)
			}
			for part := range strings.SplitSeq(tt.stdout, "|") {
				if !strings.Contains(stdout, part) {
					t.Errorf("stdout lacks %q: %s", part, stdout)
				}
			}
			for part := range strings.SplitSeq(tt.stderr, "|") {
				if !strings.Contains(stderr, part) {
					t.Errorf("stderr lacks %q: %s", part, stderr)
				}
			}
			if strings.Contains(stdout+stderr, "sk-secret") || strings.Contains(stdout+stderr, "goroutine") {
				t.Errorf("a secret or a stack trace: %s%s", stdout, stderr)
			}
			if files, _ := os.ReadDir("."); len(files) != 0 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
}

// A command that has got a new name keeps its old one, which neither help nor completion has.
func TestOldNames(t *testing.T) {
	daemontest.Setenv(t, nil)
	_, shown, _ := command(t, "--help")
	_, completed, _ := command(t, "completion", "bash")
	for old, now := range renamed() {
		old, now := strings.Fields(old), strings.Fields(now)
		code, want, stderr := command(t, append(now, "--help")...)
		if code != exitOK || stderr != "" {
			t.Errorf("%s: exit %d: %s", now, code, stderr)
		}
		code, got, stderr := command(t, append(old, "--help")...)
		line := "councild: " + strings.Join(old, " ") + " is now: councild " + strings.Join(now, " ") + "\n"
		if code != exitOK || got != want || stderr != line {
			t.Errorf("%s: exit %d: %s%s", old, code, got, stderr)
		}
		if strings.Contains(shown, "\n  "+old[0]+" ") || strings.Contains(completed, "'/"+old[0]) {
			t.Errorf("help or completion have %s", old)
		}
	}
}

// Every command that reads settings ends with what is wrong with them.
func TestWrongSettings(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"ORDER": "random"})
	out := filepath.Join(t.TempDir(), "new.jsonl")
	for _, args := range [][]string{
		{"serve"},
		{"demo"},
		{"config"},
		{"healthcheck"},
		{"ask", "x"},
		{"probe", "--out", out, "x"},
		{"store", "simulate", "--out", out},
		{"report", "bias"},
		{"report", "leaderboard"},
		{"store", "verify"},
		{"store", "export"},
		{"store", "publish"},
	} {
		code, stdout, stderr := command(t, args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, "LLM_COUNCIL_ORDER") {
			t.Errorf("%s: exit %d: %s%s", args, code, stdout, stderr)
		}
	}
}

// A report or a leaderboard that cannot be written is an error.
func TestReportIsNotWritten(t *testing.T) {
	daemontest.Setenv(t, nil)
	for _, args := range [][]string{{"report", "bias"}, {"report", "leaderboard"}, {"report", "bias", "--format", "json"}} {
		var stderr bytes.Buffer
		broken, writer := io.Pipe()
		_ = broken.Close()
		if code := Main(t.Context(), IO{Args: args, Stdout: writer, Stderr: &stderr}); code != exitError {
			t.Errorf("%s: exit %d: %s", args, code, &stderr)
		}
	}
}

func TestAskInProcess(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c"})
	code, stdout, stderr := command(t, "ask", "Which way?")
	if code != 0 || !strings.HasPrefix(stdout, "Simulated synthesis.") || !strings.Contains(stdout, "\nRanking    1. ") ||
		!strings.Contains(stdout, ": complete\n") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if n := len(daemontest.Records(t, os.Getenv("LLM_COUNCIL_BIAS_STORE"))); n != 6 {
		t.Errorf("%d records, want 6", n)
	}
}

func TestAskJSON(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c"})
	_, stdout, _ := command(t, "ask", "--json", "Which way?")
	var s council.Session
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || s.Status != council.StatusComplete || !s.Persisted {
		t.Errorf("%v: %s", err, stdout)
	}
	if s.Query != "Which way?" || time.Since(s.Created) > time.Minute {
		t.Errorf("the question is %q, asked at %s", s.Query, s.Created)
	}
}

func TestAskADaemon(t *testing.T) {
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c", "API_TOKENS": "0123456789abcdef"})
	code, stdout, stderr := command(t, "ask", "--json", "--server", d.URL()+"/", "Which way?")
	var s council.Session
	if err := json.Unmarshal([]byte(stdout), &s); code != 0 || err != nil || !s.Persisted || len(d.Records(t)) != 6 {
		t.Errorf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	t.Setenv("LLM_COUNCIL_API_TOKENS", "another-token-000")
	if code, _, stderr := command(t, "ask", "--server", d.URL(), "Which way?"); code != 1 ||
		!strings.Contains(stderr, "does not know the first token of LLM_COUNCIL_API_TOKENS") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// While a daemon holds the store, ask answers without keeping records.
func TestAskBesideADaemon(t *testing.T) {
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c"})
	code, stdout, stderr := command(t, "ask", "--json", "Which way?")
	var s council.Session
	if err := json.Unmarshal([]byte(stdout), &s); code != 0 || err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	if s.Persisted || s.Answer == "" || len(s.Metadata.Warnings) != 1 || s.Metadata.Warnings[0].Code != council.WarnNotPersisted ||
		!strings.Contains(s.Metadata.Warnings[0].Message, "--server") {
		t.Errorf("persisted %v, warnings %v", s.Persisted, s.Metadata.Warnings)
	}
	if _, err := os.Stat(d.Config.BiasStore); err != nil {
		t.Fatal(err)
	}
	if n := len(d.Records(t)); n != 0 {
		t.Errorf("%d records in the daemon's store", n)
	}
}

func TestAskSaysWhatIsMissing(t *testing.T) {
	testkit.Slow(t)
	daemontest.Setenv(t, map[string]string{"MODELS": "sim:cedar,sim:amber,sim:down", "CHAIRMAN": "sim:silent"})
	code, stdout, stderr := command(t, "ask", "Which way?")
	for _, part := range []string{
		": degraded\n", "Missing    the answer of sim:down: ", " (unavailable)\n", "Answer     by sim:",
		"instead of the chairman, which failed (second_chairman)\n",
	} {
		if !strings.Contains(stdout, part) {
			t.Errorf("stdout lacks %q: %s", part, stdout)
		}
	}
	if code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
	t.Setenv("LLM_COUNCIL_MODELS", "sim:down,sim:silent")
	if code, _, stderr := command(t, "ask", "Which way?"); code != 1 || !strings.Contains(stderr, "0 of 2 members answered") ||
		!strings.Contains(stderr, "sim:silent: empty") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestSimulate(t *testing.T) {
	// The simulated council has a mode of its own.
	daemontest.Setenv(t, map[string]string{"MODELS": "sim:amber", "MODE": "single"})
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.jsonl"), filepath.Join(dir, "two.jsonl")
	for _, path := range []string{one, two} {
		if code, stdout, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "12", "--seed", "4"); code != 0 ||
			!strings.Contains(stdout, "councild report bias --input "+path) {
			t.Fatalf("exit %d: %s%s", code, stdout, stderr)
		}
	}
	first, second := daemontest.Records(t, one), daemontest.Records(t, two)
	if len(first) != 12*4*3 || len(second) != len(first) {
		t.Fatalf("%d and %d records, want 144", len(first), len(second))
	}
	for i := range first {
		a, b := first[i], second[i]
		if a.ReviewerID != b.ReviewerID || a.ModelID != b.ModelID || *a.Position != *b.Position || *a.ScoreValue != *b.ScoreValue ||
			a.ResponseLengthChars != b.ResponseLengthChars {
			t.Fatalf("record %d: the seed does not replay %+v, but gives %+v", i, a, b)
		}
	}
	if code, _, stderr := command(t, "store", "simulate", "--out", one); code != 2 || !strings.Contains(stderr, "new file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, err := os.Stat(os.Getenv("LLM_COUNCIL_BIAS_STORE")); !os.IsNotExist(err) {
		t.Errorf("simulate touched the store: %v", err)
	}

	code, stdout, stderr := command(t, "report", "bias", "--input", one, "--format", "json", "--sessions", "11")
	var r bias.Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil || r.Window.Sessions != 11 || r.Window.Records != 132 {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	for _, tt := range []struct{ flag, value, want string }{
		{"--format", "csv", "metric_name,subject,"},
		{"--format", "html", "<!doctype html>"},
		{"--since", "2999-01-01", "Collecting data (0 of 10 sessions)"},
		{"--until", "1999-01-01T00:00:00Z", "Collecting data (0 of 10 sessions)"},
		{"--reviewer", "nobody", "Collecting data (0 of 10 sessions)"},
		{"--model", "nobody", "Collecting data (0 of 10 sessions)"},
		{"--config-version", "none", "Collecting data (0 of 10 sessions)"},
		{"--model-version", "none", "Collecting data (0 of 10 sessions)"},
	} {
		if code, stdout, stderr := command(t, "report", "bias", "--input", one, tt.flag, tt.value); code != 0 ||
			!strings.HasPrefix(stdout, tt.want) {
			t.Errorf("%s %s: exit %d: %.80s%s", tt.flag, tt.value, code, stdout, stderr)
		}
	}
	_, brief, _ := command(t, "report", "bias", "--input", one)
	_, verbose, _ := command(t, "report", "bias", "--input", one, "--verbose")
	if !strings.Contains(strings.ToLower(brief), "volatil") || len(verbose) <= len(brief) || !strings.Contains(verbose, "sim:dune") {
		t.Errorf("brief: %s\nverbose: %s", brief, verbose)
	}
}

// The JSON of the command has the estimates of other programs over the same file, as far as they are of least squares.
func TestReportVectors(t *testing.T) {
	daemontest.Setenv(t, nil)
	for _, name := range []string{"e2e_planted", "e2e_null"} {
		data, err := os.ReadFile("../bias/testdata/" + name + ".expected.json")
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Tol       float64
			Estimates map[string]json.RawMessage
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := command(t, "report", "bias", "--input", "../bias/testdata/"+name+".jsonl", "--sessions", "0", "--days", "0",
			"--format", "json")
		var r bias.Report
		if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
			t.Fatalf("exit %d: %v %s", code, err, stderr)
		}
		compared := 0
		for _, headline := range r.Metrics {
			for _, m := range append(headline.Members, headline) {
				var w struct{ Estimate, P *float64 }
				if json.Unmarshal(want.Estimates[m.Name], &w) != nil || w.Estimate == nil || m.OwnScale != nil {
					continue // not there, of another shape, or of the graded-response model
				}
				compared++
				if math.Abs(*m.PointEstimate-*w.Estimate) > want.Tol*math.Abs(*w.Estimate)+1e-12 ||
					math.Abs(*m.PValue-*w.P) > want.Tol**w.P {
					t.Errorf("%s: %s is %v with p = %v, want %v and %v", name, m.Name, *m.PointEstimate, *m.PValue, *w.Estimate, *w.P)
				}
			}
		}
		if compared != 6 {
			t.Errorf("%s: %d estimates compared, want 6", name, compared)
		}
	}
}

func TestLeaderboard(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "21"); code != 0 {
		t.Fatal(stderr)
	}
	code, stdout, stderr := command(t, "report", "leaderboard", "--input", path, "--format", "json")
	var l bias.Leaderboard
	if err := json.Unmarshal([]byte(stdout), &l); code != 0 || err != nil || l.Sessions != 21 || len(l.Boards) != 1 || len(l.Boards[0].Entries) != 4 {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	votes, wins := 0, 0.0
	for i, e := range l.Boards[0].Entries {
		votes, wins = votes+e.VoteCount, wins+e.WinCount
		if e.Appearances != 21 || e.CILower == nil || *e.CILower > e.BordaNormalized || *e.CIUpper < e.BordaNormalized ||
			i > 0 && e.BordaNormalized > l.Boards[0].Entries[i-1].BordaNormalized {
			t.Errorf("%+v", e)
		}
	}
	if votes != 21*12 || math.Abs(wins-21*4) > 1e-9 {
		t.Errorf("%d votes and %v wins, want 252 and 84", votes, wins)
	}
	code, stdout, stderr = command(t, "report", "leaderboard", "--input", path, "--sessions", "20")
	if lines := strings.Split(stdout, "\n"); code != 0 || !strings.Contains(lines[0], "20 sessions") ||
		!strings.HasPrefix(lines[3], "1     "+l.Boards[0].Entries[0].Model) {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// Several files and patterns are one store: what is in two of them counts once, and
// closed segments are read with their store.
func TestSeveralInputs(t *testing.T) {
	daemontest.Setenv(t, nil)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	for path, seed := range map[string]string{one: "1", two: "2"} {
		if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "12", "--seed", seed); code != 0 {
			t.Fatal(stderr)
		}
	}
	if err := os.Rename(two, two+".000001"); err != nil {
		t.Fatal(err)
	}
	sessions := func(args ...string) (int, int) {
		t.Helper()
		code, stdout, stderr := command(t, append([]string{"report", "bias", "--format", "json", "--sessions", "0", "--days", "30"}, args...)...)
		var r bias.Report
		if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil || r.Window.Days != 30 || r.Window.Newest != 0 {
			t.Fatalf("exit %d: %s%s", code, stdout, stderr)
		}
		duplicates := 0
		for _, s := range r.Skipped {
			duplicates += s.Count
		}
		return r.Window.Sessions, duplicates
	}
	if n, d := sessions("--input", one, "--input", two); n != 24 || d != 0 {
		t.Errorf("two files: %d sessions, %d skipped", n, d)
	}
	if n, d := sessions("--input", filepath.Join(dir, "*.jsonl*")); n != 24 || d != 0 {
		t.Errorf("a pattern: %d sessions, %d skipped", n, d)
	}
	text, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "copy.jsonl"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, d := sessions("--input", filepath.Join(dir, "*.jsonl*")); n != 24 || d != 12*12 {
		t.Errorf("with a copy: %d sessions, %d skipped", n, d)
	}
	for input, want := range map[string]string{
		filepath.Join(dir, "*.json"): "no file matches " + filepath.Join(dir, "*.json"),
		dir:                          filepath.Join(dir, "*.jsonl"),
	} {
		if code, _, stderr := command(t, "report", "leaderboard", "--input", input); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d: %s", input, code, stderr)
		}
	}
	_, stdout, _ := command(t, "report", "leaderboard", "--input", one, "--days", "30", "--sessions", "0")
	if !strings.Contains(stdout, "Window: the last 30 days.") || !strings.Contains(stdout, "TIER") {
		t.Error(stdout)
	}
	_, stdout, _ = command(t, "report", "leaderboard", "--input", one, "--sessions", "1")
	if !strings.Contains(stdout, "This is only one session") || !strings.Contains(stdout, "1-4") {
		t.Error(stdout)
	}
	_, stdout, _ = command(t, "report", "leaderboard", "--input", one, "--format", "csv", "--model", "sim:c")
	if !strings.HasPrefix(stdout, "category,board,rank,") || !strings.Contains(stdout, ",sim:cedar,") || strings.Contains(stdout, "sim:amber") {
		t.Error(stdout)
	}
	_, stdout, _ = command(t, "report", "bias", "--input", one, "--model", "nobody")
	if !strings.Contains(stdout, "No member is called nobody") || !strings.Contains(stdout, "sim:cedar") {
		t.Error(stdout)
	}
	if code, _, stderr := command(t, "report", "bias", "--input", one, "--language", "English"); code != 2 || !strings.Contains(stderr, "ISO 639-1") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// With --fail-on, a bias that was found is exit code 3, after the report; too few
// sessions are none, and that is said.
func TestFailOnBias(t *testing.T) {
	daemontest.Setenv(t, nil)
	for _, tt := range []struct {
		records, verdict string
		code             int
	}{
		{"e2e_planted", "found: position, self_preference, anchoring\n", 3},
		{"e2e_null", "", 0},
	} {
		args := []string{"report", "bias", "--fail-on", "bias", "--sessions", "0", "--days", "0", "--input", "../bias/testdata/" + tt.records + ".jsonl"}
		code, stdout, stderr := command(t, args...)
		if code != tt.code || stdout == "" || !strings.Contains(stderr, tt.verdict) || tt.verdict == "" && stderr != "" {
			t.Errorf("%s: exit %d: %s%s", tt.records, code, stdout, stderr)
		}
	}
	if code, _, stderr := command(t, "report", "bias", "--fail-on", "bias"); code != 0 || !strings.Contains(stderr, "no verdict: 10 more sessions") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// With --monitor, an alarm is exit code 3 with --fail-on, in each form of the output, and too
// few sessions are said to be no alarm. Flags that choose sessions by their age are refused.
func TestMonitor(t *testing.T) {
	daemontest.Setenv(t, nil)
	dir := t.TempDir()
	write := func(name string, effects biassim.Effects) string {
		path, members := filepath.Join(dir, name), biassim.Members()
		var lines bytes.Buffer
		for _, record := range biassim.Generate(biassim.Options{
			Seed: 4, Sessions: 140, Start: time.Now().AddDate(-1, 0, 0), Order: council.OrderBalanced, Effects: effects,
			Slates: func(session int) []council.Slate {
				return anonymize.Draw(anonymize.Options{Seed: int64(session), Authors: members, Reviewers: members}).Reviewer
			},
		}) {
			line, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(line, '\n'))
		}
		if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	quiet, biased := write("quiet.jsonl", biassim.Effects{}), write("biased.jsonl", biassim.Effects{Position: []float64{0.8}})
	since := time.Now().AddDate(-1, 0, 1).Format(time.DateOnly) // four sessions a day
	for _, tt := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"--input " + quiet, 0, "No alarm after 140 sessions", ""},
		{"--input " + quiet + " --fail-on bias", 0, "No alarm after 140 sessions", ""},
		{"--input " + quiet + " --since " + since, 0, "No alarm after 13", ""},
		{"--input " + biased, 0, "effect of the place: place 1", ""},
		{"--input " + biased + " --fail-on bias", 3, "ALARM", "Alarm after 140 sessions: effect of the place (place 1)"},
		{"--input " + biased + " --fail-on bias --format json", 3, `"council_config_version": "biassim"`, "Alarm"},
		{"--input " + biased + " --fail-on bias --format csv", 3, "position,favour,place 1,points,", "Alarm"},
		{"--input " + biased + " --fail-on bias --format html", 3, "<h1>Bias monitor</h1>", "Alarm"},
		{"--input ../bias/testdata/e2e_planted.jsonl --fail-on bias", 0, "Collecting data (40 of 100 sessions)", "60 more sessions are needed"},
		{"--sessions 10", 2, "", "--since does"},
		{"--days 0", 2, "", "--since does"},
		{"--split category", 2, "", "--since does"},
	} {
		code, stdout, stderr := command(t, append([]string{"report", "bias", "--monitor"}, strings.Fields(tt.args)...)...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || tt.stderr == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d: %s%s", tt.args, code, tt.code, stdout, stderr)
		}
	}
	_, stdout, _ := command(t, "report", "bias", "--monitor", "--input", quiet, "--format", "json")
	var m bias.Monitor
	if err := json.Unmarshal([]byte(stdout), &m); err != nil || m.Window.Sessions != 140 || len(m.Watched) != 8 {
		t.Errorf("%v: %d sessions, %d headlines", err, m.Window.Sessions, len(m.Watched))
	}
}

func TestStoreVerify(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := os.Getenv("LLM_COUNCIL_BIAS_STORE")
	if code, _, stderr := command(t, "store", "verify"); code != 1 || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "3"); code != 0 {
		t.Fatal(stderr)
	}
	if err := os.Rename(path, path+".000001"); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := command(t, "store", "verify"); code != 0 || strings.Count(stdout, "  3         36       0\n") != 2 {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if err := os.WriteFile(path, []byte("[]\nnull\n{"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "store", "verify", path)
	for _, part := range []string{
		"records.jsonl.000001 ", "records.jsonl: not_an_object: 2, at line 1 2\n",
		"records.jsonl: unterminated: 1, at line 3\n",
	} {
		if !strings.Contains(stdout, part) {
			t.Errorf("stdout lacks %q: %s", part, stdout)
		}
	}
	if code != 1 || !strings.Contains(stderr, "hold no record") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestStorePublish(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := os.Getenv("LLM_COUNCIL_BIAS_STORE")
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "3"); code != 0 {
		t.Fatal(stderr)
	}
	if code, _, stderr := command(t, "store", "publish"); code != exitUsage || !strings.Contains(stderr, "LLM_COUNCIL_NATS_URL") {
		t.Errorf("without a cluster: exit %d: %s", code, stderr)
	}
	t.Setenv("LLM_COUNCIL_NATS_URL", journaltest.Start(t).URL)
	for _, want := range []string{
		"3 sessions: 3 are new on the cluster, 0 were there already\n",
		"3 sessions: 0 are new on the cluster, 3 were there already\n",
	} {
		if code, stdout, stderr := command(t, "store", "publish"); code != exitOK || stdout != want || stderr != "" {
			t.Errorf("exit %d: %s%s, want %s", code, stdout, stderr, want)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(file), "\t\n")
	var record struct {
		ID string `json:"session_id"`
	}
	if err := json.Unmarshal([]byte(first), &record); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.jsonl")
	odd := strings.ReplaceAll(string(file), record.ID, "with a blank") + "nonsense\n"
	if err := os.WriteFile(other, []byte(odd), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "store", "publish", other)
	if code != exitError || stdout != "3 sessions: 0 are new on the cluster, 2 were there already\n" ||
		!strings.Contains(stderr, "1 sessions were not sent; the first: session \"with a blank\"") || !strings.Contains(stderr, "1 lines are not records") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

func TestStoreVerifyNamesAWrongSummary(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := os.Getenv("LLM_COUNCIL_BIAS_STORE")
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "3"); code != 0 {
		t.Fatal(stderr)
	}
	if err := os.Rename(path, path+".000001"); err != nil {
		t.Fatal(err)
	}
	s, _, err := store.Open(store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = os.Stat(path + ".000001")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed, err := os.ReadFile(path + ".000001.zst")
	if err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := command(t, "store", "verify"); code != 0 {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	closed[bytes.LastIndex(closed, []byte(`"records":36`))+len(`"records":`)] = '9'
	if err := os.WriteFile(path+".000001.zst", closed, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "store", "verify")
	if code != 1 || !strings.Contains(stderr, "the summaries of 1 files") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if !strings.Contains(stdout, "records.jsonl.000001.zst: its summary is damaged\n") {
		t.Errorf("stdout does not name the file: %s", stdout)
	}
}

func TestStoreExport(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := os.Getenv("LLM_COUNCIL_BIAS_STORE")
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "3"); code != 0 {
		t.Fatal(stderr)
	}
	want := daemontest.Records(t, path)
	for i := range want {
		want[i].QuestionKey = nil // it is in no export below consent level 4
	}
	if err := os.Rename(path, path+".000001"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "all.jsonl")
	if code, stdout, stderr := command(t, "store", "export", "--out", out); code != 0 || stdout != "" ||
		!strings.Contains(stderr, "1 lines are not records") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if diff := cmp.Diff(want, daemontest.Records(t, out)); diff != "" {
		t.Error(diff)
	}
	if code, _, stderr := command(t, "store", "export", "--out", out); code != 2 || !strings.Contains(stderr, "new file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	code, stdout, stderr := command(t, "store", "export", path, "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	if code != 0 || err != nil || len(rows) != 37 {
		t.Fatalf("exit %d, %v, %d rows: %s", code, err, len(rows), stderr)
	}
	last := want[35]
	column := func(name string) string { return rows[36][slices.Index(rows[0], name)] }
	for name, value := range map[string]string{
		"session_id": last.SessionID, "reviewer_id": last.ReviewerID, "model_id": last.ModelID, "position": strconv.Itoa(*last.Position),
		"score_value": fmt.Sprint(*last.ScoreValue), "query_hash": "", "own": "false", "provider_candidate": last.Provider.Candidate,
		"block_id": "", "roster_reviewer": "", "roster_candidate": "",
	} {
		if column(name) != value {
			t.Errorf("%s is %q, want %q", name, column(name), value)
		}
	}
}

// Between a rotation and the next session there are closed segments and no data file.
func TestCommandsReadClosedSegmentsAlone(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := filepath.Join(t.TempDir(), "records.jsonl")
	for _, args := range [][]string{{"report", "bias"}, {"report", "leaderboard"}} {
		if code, _, stderr := command(t, append(args, "--input", path)...); code == 0 || !strings.Contains(stderr, path) {
			t.Errorf("%s without a store: exit %d: %s", args[0], code, stderr)
		}
		if code, _, stderr := command(t, append(args, "--input", filepath.Dir(path))...); code == 0 ||
			!strings.Contains(stderr, "is a directory") {
			t.Errorf("%s of a directory: exit %d: %s", args[0], code, stderr)
		}
	}
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "12"); code != 0 {
		t.Fatal(stderr)
	}
	if err := os.Rename(path, path+".000001"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"report", "bias", "--input", path},
		{"report", "leaderboard", "--input", path},
		{"store", "verify", path},
		{"store", "export", path},
	} {
		if code, stdout, stderr := command(t, args...); code != 0 || !strings.Contains(stdout, "12") {
			t.Errorf("%s: exit %d: %.300s%s", args[0], code, stdout, stderr)
		}
	}
}

// The key of a question says which of a user's sessions asked the same: only records of consent level 4 take it out of the
// machine, in whatever form they were written.
func TestStoreExportLeavesQuestionKeysAtHome(t *testing.T) {
	daemontest.Setenv(t, nil)
	const key = "0123456789abcdef"
	line := func(level int, keyField, more string) string {
		return fmt.Sprintf(`{"schema_version":"1.4.0","session_id":"s%d","timestamp":"2026-01-02T03:04:05Z","consent_level":%d,`+
			`"reviewer_id":"a","model_id":"b","response_length_chars":9%s%s}`, level, level, keyField, more) + "\n"
	}
	const ours, foreign = `,"question_key":"` + key + `"`, `, "Question_Key" : "` + key + `"`
	path := os.Getenv("LLM_COUNCIL_BIAS_STORE")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	lines := line(4, ours, "") + line(4, foreign, "") + line(1, ours, `,"later_field":1`) + line(3, foreign, `,"later_field":[2]`) + line(0, "", "")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "store", "export")
	got := strings.SplitAfter(stdout, "\n")
	if code != 0 || len(got) != 6 || got[0]+got[1] != line(4, ours, "")+line(4, foreign, "") || strings.Contains(strings.Join(got[2:], ""), key) {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	if want := line(1, `,"question_key":null`, `,"later_field":1`); got[2] != want || !strings.Contains(got[3], `"later_field":[2]`) {
		t.Errorf("fields of a later schema are not kept: %s%s", got[2], got[3])
	}
	_, stdout, _ = command(t, "store", "export", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	if err != nil || len(rows) != 6 {
		t.Fatal(err, stdout)
	}
	for i, want := range []string{key, key, "", "", ""} {
		if cell := rows[1+i][slices.Index(rows[0], "question_key")]; cell != want {
			t.Errorf("row %d has the key %q, want %q", i, cell, want)
		}
	}
}

// A value that a record lacks is empty in the table, not 0. Every form has the position
// of an old schema. No id is a formula to a spreadsheet.
func TestStoreExportTellsWhatIsThere(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := os.Getenv("LLM_COUNCIL_BIAS_STORE")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	ids := []string{"=1+1", "+1", "-1", "@x", "\tx", "\rx", "x=1"}
	for _, id := range ids {
		quoted, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&written, `{"schema_version": 1, "session_id": %s, "timestamp": "2026-01-02T03:04:05Z", "reviewer_id": %s, `, quoted,
			quoted)
		fmt.Fprintln(&written, `"model_id": "b", "position": 2, "response_length_chars": 9, "score_value": -3.5, "score_scale": "-5-5"}`)
	}
	lines := written.String()
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := command(t, "store", "export"); code != 0 || stdout != lines {
		t.Errorf("exit %d: JSON lines (-want +got):\n%s%s", code, cmp.Diff(lines, stdout), stderr)
	}
	code, stdout, stderr := command(t, "store", "export", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	if code != 0 || err != nil || len(rows) != 1+len(ids) {
		t.Fatalf("exit %d, %v, %d rows: %s", code, err, len(rows), stderr)
	}
	for i, id := range ids {
		want := id
		if id != "x=1" {
			want = "'" + id
		}
		for name, value := range map[string]string{
			"session_id": want, "reviewer_id": want, "position": "2", "n_shown": "", "consent_level": "", "rank_value": "",
			"score_value": "-3.5", "ballot_status": "",
		} {
			if got := rows[1+i][slices.Index(rows[0], name)]; got != value {
				t.Errorf("%s of %q is %q, want %q", name, id, got, value)
			}
		}
	}
}

// overQuota is a file that fails when it is closed.
type overQuota struct{ bytes.Buffer }

func (*overQuota) Close() error { return syscall.EDQUOT }

func TestStoreExportReportsClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	daemontest.Setenv(t, nil)
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "3"); code != 0 {
		t.Fatal(stderr)
	}
	err := exportCmd{Out: "all.jsonl"}.exportTo(t.Context(), path, &overQuota{}, io.Discard)
	if !errors.Is(err, syscall.EDQUOT) || !strings.Contains(err.Error(), "all.jsonl is not whole") {
		t.Errorf("got %v", err)
	}
}

func TestReportCountsBadLines(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if code, _, stderr := command(t, "store", "simulate", "--out", path, "--sessions", "10"); code != 0 {
		t.Fatal(stderr)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(good), "\n")
	broken := strings.Join(lines[:5], "") + "[]\n\xff\n{\n" + strings.Join(lines[5:], "") + `{"torn`
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := command(t, "report", "bias", "--input", path, "--format", "json")
	var r bias.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Window.Records != 120 {
		t.Errorf("%d records", r.Window.Records)
	}
	_, text, _ := command(t, "report", "bias", "--input", path)
	_, page, _ := command(t, "report", "bias", "--input", path, "--format", "html")
	_, table, _ := command(t, "report", "bias", "--input", path, "--format", "csv")
	_, board, _ := command(t, "report", "leaderboard", "--input", path)
	want := map[string]int64{
		string(store.ReasonNotAnObject): 6, string(store.ReasonInvalidUTF8): 7, string(store.ReasonNotJSON): 8,
		string(store.ReasonUnterminated): 124,
	}
	for _, s := range r.Skipped {
		if s.FirstFile == nil || *s.FirstFile != "records.jsonl" || *s.FirstLine != want[s.Reason] {
			t.Errorf("skipped %+v, want line %d of records.jsonl", s, want[s.Reason])
		}
		first := fmt.Sprintf("%s:%d", *s.FirstFile, *s.FirstLine)
		for form, shown := range map[string]string{"text": text, "HTML": page, "CSV": table, "the leaderboard": board} {
			if !strings.Contains(shown, s.Reason) || !strings.Contains(shown, first) {
				t.Errorf("%s does not name %s at %s", form, s.Reason, first)
			}
		}
	}
	if len(r.Skipped) != len(want) {
		t.Errorf("skipped %+v", r.Skipped)
	}
}

func TestHealthcheck(t *testing.T) {
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	t.Setenv("LLM_COUNCIL_ADDR", strings.TrimPrefix(d.URL(), "http://"))
	if code, stdout, stderr := command(t, "healthcheck"); code != 0 || stdout != "ok\n" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	for address, want := range map[string]string{
		"0.0.0.0:8080": "127.0.0.1:8080", ":8080": "127.0.0.1:8080", "[::]:8080": "127.0.0.1:8080", "10.0.0.1:80": "10.0.0.1:80",
		"[::1]:80": "[::1]:80", "host:1": "host:1",
	} {
		if got := daemon.Reachable(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// Categories and languages are spread over simulated sessions, each with each.
func TestSimulateSubjects(t *testing.T) {
	daemontest.Setenv(t, nil)
	path := filepath.Join(t.TempDir(), "records.jsonl")
	args := []string{"store", "simulate", "--out", path, "--sessions", "8", "--category", "math,coding", "--language", "en,de"}
	if code, _, stderr := command(t, args...); code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	records := map[string]int{}
	for _, r := range daemontest.Records(t, path) {
		records[*r.QueryMetadata.Category+" "+*r.QueryMetadata.Language]++
	}
	want := map[string]int{"math en": 24, "math de": 24, "coding en": 24, "coding de": 24}
	if diff := cmp.Diff(want, records); diff != "" {
		t.Error(diff)
	}
	for flag, want := range map[string]string{"--category=math,poetry": "use coding, math", "--language=english": "such as en"} {
		code, _, stderr := command(t, "store", "simulate", "--out", path+".new", flag)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d: %s", flag, code, stderr)
		}
	}
}
