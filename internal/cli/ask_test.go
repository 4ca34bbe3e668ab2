package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

func TestProgress(t *testing.T) {
	text := "x"
	script := []any{
		council.Started{Models: []string{"a", "b"}, Reviewers: []string{"a", "b"}, Chairman: "a", Mode: council.ModeCouncil},
		council.Answer{Model: "a", Response: &text, Spent: council.Spent{LatencyMS: 1234}},
		council.Answer{Model: "b", Error: &council.Failure{Code: council.FailTimeout}, Spent: council.Spent{LatencyMS: 10}},
		council.Review{Model: "a", Status: council.OutcomeOK},
		council.Review{Model: "b", Status: council.OutcomeAbstained},
		[]council.Answer{},
		council.Tally{},
		council.Delta{Text: "Half an"},
		council.Restart{Model: "b", Reason: council.FailReset},
		council.Restart{Model: "a", Reason: council.FailInterrupted},
		council.Delta{Text: "A whole "},
		council.Delta{Text: "answer."},
		council.Synthesis{Model: "a", Spent: council.Spent{LatencyMS: 2000}},
		&council.Session{},
	}
	steps := `asking 2 models ...
  a answered in 1.2 s
  b failed after 0.0 s: timeout
  a reviewed in 0.0 s
  b declined to rank in 0.0 s
the chairman writes ...
  b failed: reset; its text so far does not count, another model writes ...
  the answer so far was interrupted, and does not count, the chairman writes ...
  a wrote the answer in 2.0 s
`
	var gotSteps, gotAnswer bytes.Buffer
	for _, p := range []*progress{{}, {steps: &gotSteps}, {answer: &gotAnswer}} {
		for _, data := range script {
			p.Observe(council.Event{Data: data})
		}
	}
	if diff := cmp.Diff(steps, gotSteps.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("Half an\n\n\n\nA whole answer.\n\n", gotAnswer.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTerminal(t *testing.T) {
	var b bytes.Buffer
	n, err := io.WriteString(terminal{&b}, "a\x1b[2Jb\r\x07\n\tü\u009bc\x7f")
	if err != nil || n != 16 || b.String() != "a[2Jb\n\tüc" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
}

// Ctrl-C cancels the session at the daemon.
func TestAskIsInterrupted(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	defer release()
	d := startDaemon(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"})
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-arrived
		interrupt()
	}()
	var stdout, stderr bytes.Buffer
	code := Main(ctx, IO{Args: []string{"ask", "--server", d.URL(), "Wait for me?"}, Stdout: &stdout, Stderr: &stderr})
	if code != ExitInterrupted {
		t.Errorf("exit %d", code)
	}
	id := between(stderr.String(), "session ", " was")
	want := fmt.Sprintf("session %s was cancelled; to see how it ended: councild ask --server %s --follow %s", id, d.URL(), id)
	if !strings.Contains(stderr.String(), want) {
		t.Errorf("got %s, want %s", stderr.String(), want)
	}
	_, events := d.Call(t, "GET", "/v1/council/"+id+"/events", "")
	if !strings.Contains(string(events), `"code":"cancelled"`) {
		t.Errorf("the session goes on: %s", events)
	}
}

// The reasons hold what a provider or a model wrote. It never reaches a terminal as it
// is.
func TestAskFailsWithControlCharacters(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"no\u001b[2J\u0007, never"}}`)
	}))
	defer provider.Close()
	daemontest.Setenv(t, map[string]string{"BASE_URL": provider.URL, "MODELS": "a,b"})
	code, _, stderr := command(t, "ask", "Which way?")
	if code != exitError {
		t.Errorf("exit %d", code)
	}
	if !strings.Contains(stderr, "no[2J, never") {
		t.Errorf("the reason is not told as text: %q", stderr)
	}
}

// What ends a session ends the command too, with the reasons.
func TestAskFails(t *testing.T) {
	rejecting := simllm.Model{Name: "d", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 400}}}
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Provider(t, rejecting).URL(), "MODELS": "d,d"})
	code, _, stderr := command(t, "ask", "--server", d.URL(), "Which way?")
	if code != exitError {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{"the session failed: 0 of 2 members answered", "\n  d#2: rejected"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is missing: %s", want, stderr)
		}
	}
}

// heardBy starts a provider of the models a and b, which keeps the questions that it was asked.
func heardBy(t *testing.T) (url string, questions func() []string) {
	t.Helper()
	heard := make(chan string, 64)
	models := daemontest.Members()[:2]
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if task.Kind == simllm.Question {
				heard <- task.Question
			}
			return "", false
		}
	}
	return daemontest.Provider(t, models...).URL(), func() (all []string) {
		for len(heard) > 0 {
			all = append(all, <-heard)
		}
		return all
	}
}

// The question comes from the command line, from the standard input and from files.
func TestAskReadsTheQuestion(t *testing.T) {
	url, questions := heardBy(t)
	daemontest.Setenv(t, map[string]string{"BASE_URL": url, "MODELS": "a,b", "MAX_QUERY_BYTES": "100"})
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Chdir(dir)
	file("a.txt", "Alpha?")
	file("b,c.txt", "Beta.")
	file("long.txt", strings.Repeat("x", 101))
	file("binary", "\xff\x00")
	for _, tt := range []struct {
		name, stdin, question, refused string
		args                           []string
	}{
		{name: "an argument", args: []string{"Which way?"}, stdin: "not read", question: "Which way?"},
		{name: "a pipe", stdin: "Which way?\n", question: "Which way?\n"},
		{name: "a dash", args: []string{"-"}, stdin: "Which way?", question: "Which way?"},
		{name: "a file", args: []string{"--file", "a.txt"}, stdin: "not read", question: "Alpha?"},
		{name: "two files", args: []string{"--file", "a.txt", "--file", "b,c.txt"}, question: "File a.txt:\n\nAlpha?\n\nFile b,c.txt:\n\nBeta."},
		{name: "a question and a file", args: []string{"Why?", "--file", "a.txt"}, question: "Why?\n\nFile a.txt:\n\nAlpha?"},
		{name: "a question and a pipe", args: []string{"Why?", "--file", "-"}, stdin: "A diff.", question: "Why?\n\nFile -:\n\nA diff."},
		{name: "nothing", refused: "there is no question: write councild ask"},
		{name: "a blank pipe", stdin: " \n", refused: "there is no question: write councild ask"},
		{name: "a long pipe", stdin: strings.Repeat("x", 101), refused: "standard input: the question has more than 100 bytes"},
		{name: "a long file", args: []string{"--file", "long.txt"}, refused: "--file long.txt: the question has more than 100 bytes"},
		{name: "files that are long together", args: []string{strings.Repeat("x", 95), "--file", "a.txt"}, refused: "raise LLM_"},
		{name: "a long argument", args: []string{strings.Repeat("x", 101)}, refused: "question: the question has 101 bytes"},
		{name: "a missing file", args: []string{"--file", "none.txt"}, refused: "--file none.txt: open none.txt: no such file"},
		{name: "a folder", args: []string{"--file", "."}, refused: "--file .: read .: is a directory"},
		{name: "no text", args: []string{"--file", "binary"}, refused: "--file binary: this is not text in UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			args := append([]string{"ask", "--quiet"}, tt.args...)
			code := Main(t.Context(), IO{Args: args, Stdin: strings.NewReader(tt.stdin), Stdout: &stdout, Stderr: &stderr})
			asked := questions()
			if tt.refused != "" {
				if code != exitUsage || !strings.Contains(stderr.String(), tt.refused) || len(asked) != 0 {
					t.Errorf("exit %d, %d questions: %s", code, len(asked), &stderr)
				}
				return
			}
			if code != exitOK || len(asked) != 2 || strings.TrimSpace(asked[0]) != strings.TrimSpace(tt.question) {
				t.Errorf("exit %d, asked %q: %s", code, asked, &stderr)
			}
		})
	}
}

// Every flag reaches the session, here and at a daemon, and is named when it is wrong.
func TestAskFlags(t *testing.T) {
	env := map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c", "ALLOWED_MODELS": "d"}
	d := startDaemon(t, env)
	for _, at := range [][]string{nil, {"--server", d.URL()}} {
		args := append([]string{
			"ask", "--json", "--models", "a,d", "--chairman", "c", "--seed", "7", "--category", "math", "--language", "en",
			"--max-cost-usd", "5", "Which way?",
		}, at...)
		code, stdout, stderr := command(t, args...)
		var s council.Session
		if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != exitOK {
			t.Fatalf("exit %d, %v: %s", code, err, stderr)
		}
		if len(s.Stage1) != 2 || s.Stage1[1].Model != "d" {
			t.Errorf("%s: the members are not a and d: %+v", at, s.Stage1)
		}
		if s.Stage3.Model != "c" || s.Metadata.Seed != 7 {
			t.Errorf("%s: chairman %s, seed %d", at, s.Stage3.Model, s.Metadata.Seed)
		}
		for flag, want := range map[string]string{
			"--category=poetry":  "--category: \"poetry\" is not a category; use coding, math",
			"--language=English": "--language: \"English\" is not a language code; use two",
			"--seed=-2":          "--seed: the seed is out of range; give a whole number",
			"--max-cost-usd=-1": "--max-cost-usd: the limit is not above 0; give a number above 0, or leave " +
				"--max-cost-usd out",
			"--models=a":   "--models: 1 given, a council needs at least 2",
			"--models=a,x": "--models: \"x\" is not a model that this council may use; name a configured model, or add it to LLM_",
			"--chairman=x": "--chairman: \"x\" is not a model",
		} {
			code, _, stderr := command(t, append([]string{"ask", flag, "Which way?"}, at...)...)
			if code != exitUsage || !strings.Contains(stderr, want) {
				t.Errorf("%s %s: exit %d: %s", at, flag, code, stderr)
			}
		}
	}
	records := d.Records(t)
	if len(records) == 0 || *records[0].QueryMetadata.Category != "math" || *records[0].QueryMetadata.Language != "en" {
		t.Errorf("category and language are not in the %d records", len(records))
	}
}

// With --quiet there is the answer and nothing else.
func TestAskQuietly(t *testing.T) {
	daemontest.Setenv(t, map[string]string{
		"BASE_URL": strings.TrimSuffix(daemontest.Quick(t), "/v1"), "MODELS": "a,b,c",
	})
	code, stdout, stderr := command(t, "ask", "--quiet", "Which way?")
	if code != exitOK || stderr != "" || !strings.HasPrefix(stdout, "Simulated synthesis.") || strings.Contains(stdout, "Ranking ") {
		t.Errorf("exit %d: %s, stderr %q", code, stdout, stderr)
	}
	code, _, stderr = command(t, "ask", "Which way?")
	want := "councild: warning: a setting is probably wrong: LLM_COUNCIL_BASE_URL: http"
	if code != exitOK || !strings.HasPrefix(stderr, want) || strings.Contains(stderr, "{") {
		t.Errorf("exit %d: stderr %q", code, stderr)
	}
}

// What is missing from a degraded answer goes to the standard error: the answer may be read by a program.
func TestAskQuietlyDegraded(t *testing.T) {
	down := simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 400, Rate: 1}}}
	url := daemontest.Provider(t, append(daemontest.Members(), down)...).URL()
	name := daemontest.Members()[0].Name
	daemontest.Setenv(t, map[string]string{"BASE_URL": url, "MODELS": name + "," + name + ",down"})
	code, stdout, stderr := command(t, "ask", "--quiet", "Which way?")
	if code != exitOK || !strings.Contains(stderr, "2 of 3 members answered") || strings.Contains(stdout, "members answered") {
		t.Errorf("exit %d: %s, stderr %q", code, stdout, stderr)
	}
	env := daemontest.Roster(t, "{members: ["+name+", "+name+", down], degraded_note: false}", name, "down")
	env["BASE_URL"] = url
	daemontest.Setenv(t, env)
	if code, _, stderr := command(t, "ask", "--quiet", "Which way?"); code != exitOK || strings.Contains(stderr, "members answered") {
		t.Errorf("switched off: exit %d, stderr %q", code, stderr)
	}
}

// A session of a daemon can be followed while it runs and after its end. Ctrl-C leaves it alone.
func TestAskFollows(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	defer release()
	d := startDaemon(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"})
	status, started := d.Call(t, "POST", "/v1/council", `{"query":"Wait for me?","background":true}`)
	var s council.Summary
	if err := json.Unmarshal(started, &s); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d, %v", status, err)
	}
	<-arrived
	ctx, interrupt := context.WithCancel(t.Context())
	var stdout, stderr bytes.Buffer
	go func() {
		_, _, _ = d.Send(t.Context(), "GET", "/v1/council/"+s.ID, "")
		interrupt()
	}()
	code := Main(ctx, IO{Args: []string{"ask", "--server", d.URL(), "--follow", s.ID}, Stdout: &stdout, Stderr: &stderr})
	if code != ExitInterrupted || !strings.Contains(stderr.String(), "continues at the daemon; to follow it again: councild ask --server "+d.URL()+" --follow "+s.ID) {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	release()
	t.Setenv("LLM_COUNCIL_ADDR", strings.TrimPrefix(d.URL(), "http://"))
	for range 2 { // the second time it has ended
		if code, out, stderr := command(t, "ask", "--follow", s.ID); code != exitOK || !strings.Contains(out, "session "+s.ID+": complete") {
			t.Errorf("exit %d: %s%s", code, out, stderr)
		}
	}
	if code, _, stderr := command(t, "ask", "--follow", "none"); code != exitError || !strings.Contains(stderr, "councild sessions list") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	code, _, refusal := command(t, "ask", "--follow", s.ID, "Why?")
	if code != exitUsage || !strings.Contains(refusal, "--follow asks no question") {
		t.Errorf("exit %d: %s", code, refusal)
	}
}

func TestDaemonURL(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:8080":           "http://127.0.0.1:8080",
		"http://127.0.0.1:8080/":          "http://127.0.0.1:8080",
		"http://127.0.0.1:8080/v1":        "http://127.0.0.1:8080",
		"http://127.0.0.1:8080/v1/":       "http://127.0.0.1:8080",
		"https://host/council/v1/":        "https://host/council",
		"localhost:8080":                  "http://localhost:8080",
		"[::1]:8080":                      "http://[::1]:8080",
		"http://host/v1/v1":               "--server http://host",
		"http://host:1/v1/council":        "--server http://host:1",
		"localhost":                       "--server http://HOST:PORT",
		"ftp://host":                      "--server http://HOST:PORT",
		"http://[":                        "--server http://HOST:PORT",
		"http://user:geheim@host":         "LLM_COUNCIL_API_TOKENS",
		"http://127.0.0.1:8080/?token=ab": "LLM_COUNCIL_API_TOKENS",
	} {
		got, err := daemonURL(text)
		if err != nil && strings.HasPrefix(want, "http") || err == nil && got != want {
			t.Errorf("%q gives %q, %v", text, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The audit of a session is one line, and only when a flag is up.
func TestAuditLine(t *testing.T) {
	audit := func(length, position bool, r float64) *council.BiasAudit {
		return &council.BiasAudit{
			LengthAssociation: &length, LengthScoreCorrelation: &r, PositionBiasDetected: &position, PositionScoreVariance: new(1.25),
		}
	}
	for want, a := range map[string]*council.BiasAudit{
		"": audit(false, false, 0.2),
		"longer answers scored higher here (r = 0.83, one session proves nothing)":   audit(true, false, 0.83),
		"shorter answers scored higher here (r = -0.83, one session proves nothing)": audit(true, false, -0.83),
		"longer answers scored higher here (r = 0.50, one session proves nothing); " +
			"scores went with the place of an answer (variance 1.25, one session proves nothing)": audit(true, true, 0.5),
	} {
		if got := auditLine(a); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if auditLine(nil) != "" || auditLine(&council.BiasAudit{}) != "" {
		t.Error("a line without a flag")
	}
}

// What the terms, a judge or embeddings flag is said, each in a line, and nothing else of them.
func TestDifferences(t *testing.T) {
	var m council.Metadata
	if lines := differences(m); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
	m.DemographicDisagreement = &council.DemographicDisagreement{Wording: "answers differ in coverage"}
	m.DemographicJudgement = &council.DemographicJudgement{Model: "j", Axes: []council.JudgedAxis{{Axis: "age", Flagged: true}}}
	m.DemographicClustering = &council.DemographicClustering{Model: "e", Axes: []council.ClusteredAxis{{Axis: "gender", Flagged: true}}}
	if lines := differences(m); len(lines) > 0 {
		t.Errorf("nothing is flagged: %q", lines)
	}
	m.DemographicDisagreement.Flagged, m.DemographicJudgement.Flagged, m.DemographicClustering.Flagged = true, true, true
	want := []string{
		"terms: answers differ in coverage", "judge j: answers differ in how they treat people: age",
		"embeddings of e: similar answers cover these axes alike, and unlike the other answers: gender",
	}
	if lines := differences(m); !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
}
