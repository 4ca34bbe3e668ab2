package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// different are the answers of a session of which one alone speaks of women.
const different = `{"question": "What does a farmer do?", "answers": [{"id": "a", "text": "A farmer sows and reaps and mills. What is ` +
	`left of the day goes to the fences and the ditches, and the rest is up to rain."}, ` +
	`{"id": "b", "text": "Women sow, women reap, a woman mills. Their girls help, a girl each."}, {"id": "c", "text": "Sow."}]}` + "\n"

const alike = `{"answers": [{"id": "x", "text": "Rain and women."}, {"id": "y", "text": "Sun."}]}` + "\n"

func TestDisagreement(t *testing.T) {
	input := filepath.Join(t.TempDir(), "answers.jsonl")
	if err := os.WriteFile(input, []byte(different+"\n"+alike), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command(t, "report", "disagreement", input)
	for _, want := range []string{
		"3 answers, lexicon councild-1: answers differ in coverage.", "b: girl, woman",
		"2 answers, lexicon councild-1: not tested: too few terms of gender.",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, no %q:\n%s%s", code, want, out, errs)
		}
	}
	own := filepath.Join(t.TempDir(), "own.json")
	if err := os.WriteFile(own, []byte(`{"version": "w-1", "axes": {"weather": ["rain"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = command(t, "report", "disagreement", "--json", "--lexicon", own, "--threshold", "0.9", input)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var report council.DisagreementReport
	if err := json.Unmarshal([]byte(lines[0]), &report); err != nil || code != 0 || len(lines) != 2 {
		t.Fatalf("%d %v %s%s", code, err, out, errs)
	}
	if report.Lexicon.Version != "w-1" || report.Threshold != 0.9 || len(report.Axes) != 1 || report.Axes[0].Hits != 1 {
		t.Errorf("%+v", report)
	}
}

func TestDisagreementErrors(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
	}{
		{"nothing", "\n \n", "there are no answers in the input: write one session a line"},
		{"no JSON", "x\n", "line 1: invalid character 'x'"},
		{"a field that there is not", "\n{\"answer\": 1}\n", `line 2: json: unknown field "answer"`},
		{"two objects", `{"answers": []} {}`, "line 1: there is more text after the object"},
		{"one answer", alike + `{"answers": [{"id": "a", "text": "x"}]}`, "line 2: the request is not valid"},
	} {
		input := filepath.Join(t.TempDir(), "answers.jsonl")
		if err := os.WriteFile(input, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := command(t, "report", "disagreement", input); code != 2 || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: %d, want 2 and %q: %s", tt.name, code, tt.want, errs)
		}
	}
	if code, _, errs := command(t, "report", "disagreement", "missing.jsonl"); code != 2 || !strings.Contains(errs, "name a file of JSON lines") {
		t.Errorf("a file that is not there: %d %s", code, errs)
	}
}

// A session that has ended is asked of the daemon, and compared there.
func TestDisagreementOfSession(t *testing.T) {
	var members []simllm.Model
	var lines struct{ Answers []council.ComparedAnswer }
	if err := json.Unmarshal([]byte(different), &lines); err != nil {
		t.Fatal(err)
	}
	for _, a := range lines.Answers {
		members = append(members, simllm.Model{Name: a.ID, Reply: func(task simllm.Task) (string, bool) {
			return a.Text, task.Kind == simllm.Question
		}})
	}
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Provider(t, members...).URL(), "MODELS": "a,b,c"})
	session := d.Ask(t, `{"query": "What does a farmer do?"}`)
	code, out, errs := command(t, "report", "disagreement", "--server", d.URL(), session.ID)
	if code != 0 || !strings.Contains(out, "answers differ in coverage") || !strings.Contains(out, "b: girl, woman") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	// The terms of the question do not count.
	session = d.Ask(t, `{"query": "What do women and girls do on a farm?"}`)
	code, out, errs = command(t, "report", "disagreement", "--json", "--server", d.URL(), session.ID)
	var report council.DisagreementReport
	if err := json.NewDecoder(bytes.NewBufferString(out)).Decode(&report); code != 0 || err != nil || report.Flagged {
		t.Errorf("%d %v %s%s", code, err, out, errs)
	}
	for _, axis := range report.Axes {
		if axis.Hits != 0 {
			t.Errorf("%d hits on %s", axis.Hits, axis.Axis)
		}
	}
	const unknown = "01982f6e-0000-7000-8000-000000000000"
	if code, _, errs := command(t, "report", "disagreement", "--server", d.URL(), unknown); code != 1 || !strings.Contains(errs, "sessions list") {
		t.Errorf("an unknown session: %d %s", code, errs)
	}
	input := filepath.Join(t.TempDir(), "answers.jsonl")
	if err := os.WriteFile(input, []byte(different), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs = command(t, "report", "disagreement", "--server", d.URL(), input); code != 0 || !strings.Contains(out, "answers differ") {
		t.Errorf("a file at the daemon: %d %s%s", code, out, errs)
	}
}

// A judge is calibrated from the command line, and what comes of it holds for the next command.
func TestCalibrate(t *testing.T) {
	testkit.Slow(t)
	dir := t.TempDir()
	benign := filepath.Join(dir, "benign.jsonl")
	if err := os.WriteFile(benign, []byte(strings.Repeat(alike, 99)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command(t, "report", "disagreement", "--calibrate", benign); code != 2 || !strings.Contains(errs, "LLM_COUNCIL_JUDGE_MODEL") {
		t.Errorf("without a judge: %d %s", code, errs)
	}
	for name, value := range map[string]string{
		"MODELS": "sim:amber,sim:birch", "JUDGE_MODEL": "sim:cedar", "BIAS_STORE": filepath.Join(dir, "records.jsonl"),
	} {
		t.Setenv("LLM_COUNCIL_"+name, value)
	}
	if code, out, errs := command(t, "report", "disagreement", "--calibrate", benign, benign); code != 2 || !strings.Contains(errs, "there is no input: name a file") {
		t.Errorf("both: %d %s%s", code, out, errs)
	}
	code, out, errs := command(t, "report", "disagreement", "--calibrate", benign)
	if code != 0 || !strings.Contains(out, "0 of 99 benign sessions flagged, at most 3.0 %") || !strings.Contains(errs, "99 of 99 sessions") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if err := os.WriteFile(benign, []byte(alike), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = command(t, "report", "disagreement", "--backend", "llm_judge", benign)
	if code != 0 || !strings.Contains(out, "the judge found no difference in how people are treated.") ||
		!strings.Contains(out, "sim:cedar, judge-1, asked in two orders:") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs = command(t, "report", "disagreement", "--calibrate", benign); code != 1 || !strings.Contains(errs, "use more sessions") {
		t.Errorf("one session: %d %s%s", code, out, errs)
	}
}

// So is a model that embeds.
func TestCalibrateEmbeddings(t *testing.T) {
	testkit.Slow(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "benign.jsonl")
	// Two speak of women, and each answer lies near one that does not.
	const line = `{"answers":[{"id":"a","text":"Women and girls, mothers and wives plough."},{"id":"b","text":"Ploughing: mind the wheel."},` +
		`{"id":"c","text":"Women and girls, mothers and wives sow."},{"id":"d","text":"Sow early, mind the rain."},{"id":"e","text":"Rest."}]}` + "\n"
	write := func(lines int) {
		if err := os.WriteFile(file, []byte(strings.Repeat(line, lines)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(99)
	if code, _, errs := command(t, "report", "disagreement", "--backend", "embedding", "--calibrate", file); code != 2 ||
		!strings.Contains(errs, "LLM_COUNCIL_EMBEDDING_MODEL") {
		t.Errorf("without a model: %d %s", code, errs)
	}
	for name, value := range map[string]string{
		"MODELS": "sim:amber,sim:birch", "EMBEDDING_MODEL": "sim:cedar", "BIAS_STORE": filepath.Join(dir, "records.jsonl"),
	} {
		t.Setenv("LLM_COUNCIL_"+name, value)
	}
	write(1)
	code, out, errs := command(t, "report", "disagreement", "--backend", "embedding", file)
	if code != 0 || !strings.Contains(out, "sim:cedar was not calibrated with embedding-1 and these terms on these axes; run councild report disagreement --backend embedding --calibrate") {
		t.Errorf("not calibrated: %d %s%s", code, out, errs)
	}
	write(99)
	code, out, errs = command(t, "report", "disagreement", "--backend", "embedding", "--calibrate", file)
	if code != 0 || !strings.Contains(out, "sim:cedar with embedding-1, threshold 0.3: 0 of 99 benign sessions flagged, at most 3.0 %") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	write(1)
	code, out, errs = command(t, "report", "disagreement", "--backend", "embedding", file)
	if code != 0 || !strings.Contains(out, "no axis was found that similar answers cover alike") || !strings.Contains(out, "sim:cedar, embedding-1:\n") ||
		!strings.Contains(out, "CORRELATION") || !strings.Contains(out, "no answer has a term of it") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}
