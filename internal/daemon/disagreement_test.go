package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/daemon/daemontest"
	"github.com/councild/councild/internal/simllm"
)

// sessionsOf returns the requests of a file of internal/disagreement/testdata with their answers, and the planted
// answers in them with their axes.
func sessionsOf(tb testing.TB, name string) (all []council.DisagreementRequest, planted map[string]string) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("../disagreement/testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	planted = map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if question, ok := strings.CutPrefix(line, "? "); ok {
			all = append(all, council.DisagreementRequest{Question: question, Backend: council.BackendJudge})
			continue
		}
		if rest, ok := strings.CutPrefix(line, "= "); ok {
			var axis string
			axis, line, _ = strings.Cut(rest, " ")
			planted[line] = axis
		}
		last := &all[len(all)-1]
		last.Answers = append(last.Answers, council.ComparedAnswer{ID: fmt.Sprint("m", len(last.Answers)), Text: line})
	}
	return all, planted
}

// honestJudge rates 8 where it sees a planted answer, and quotes it.
func honestJudge(name string, planted map[string]string) simllm.Model {
	return simllm.Model{Name: name, Price: simllm.Price{Input: 1, Output: 1}, Reply: func(task simllm.Task) (string, bool) {
		axes := map[string]any{}
		for _, axis := range task.Axes {
			axes[axis] = map[string]any{"rating": 0, "quotes": []string{}}
		}
		for _, a := range task.Answers {
			if axis := planted[a.Text]; slices.Contains(task.Axes, axis) {
				axes[axis] = map[string]any{"rating": 8, "quotes": []map[string]string{{"answer": a.Label, "quote": a.Text[:60]}}}
			}
		}
		text, err := json.Marshal(map[string]any{"token": task.Token, "axes": axes})
		if err != nil {
			panic(err)
		}
		return string(text), task.Kind == simllm.Judgement
	}}
}

func ask(
	t *testing.T, d *daemontest.Daemon, r council.DisagreementRequest, headers ...string,
) (code int, report council.DisagreementReport, data []byte) {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	code, data = d.Call(t, "POST", "/v1/disagreement", string(body), headers...)
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	return code, report, data
}

func calibrate(t *testing.T, d *daemontest.Daemon, sessions []council.DisagreementRequest) (council.Calibration, int) {
	t.Helper()
	e, err := daemon.NewEngine(t.Context(), daemon.EngineOptions{Config: d.Config, Log: daemontest.Options(t).Log})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	c, unread, err := e.Calibrate(t.Context(), sessions, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return c, unread
}

// A judge flags nothing before its calibration on everyday texts, and finds every planted difference afterwards. A
// running daemon knows of the calibration at once. What the judge costs is charged to the caller.
func TestJudge(t *testing.T) {
	differing, planted := sessionsOf(t, "planted.txt")
	everyday, _ := sessionsOf(t, "everyday.txt")
	sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"}, honestJudge("j", planted))
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "JUDGE_MODEL": "j"})
	code, report, data := ask(t, d, differing[0])
	if code != 200 || report.Flagged || report.Judgement == nil || report.Judgement.Calibration != nil ||
		!strings.Contains(report.Wording, "was not calibrated") {
		t.Errorf("before the calibration: %d %s", code, data)
	}
	if cost := report.Judgement.Usage.CostUSD; cost == nil || *cost <= 0 {
		t.Errorf("the usage is %+v", report.Judgement.Usage)
	}
	if _, spent := d.Call(t, "GET", "/v1/spend?by=model", ""); !strings.Contains(string(spent), `"j"`) {
		t.Errorf("the ledger has no calls of the judge: %s", spent)
	}
	c, unread := calibrate(t, d, everyday)
	if !c.Passed || c.Sessions != len(everyday) || c.Flagged != 0 || unread != 0 || c.Model != "j" || c.Threshold != 0.3 {
		t.Errorf("the calibration: %+v, %d unread", c, unread)
	}
	for _, r := range differing {
		code, report, data := ask(t, d, r)
		i := slices.IndexFunc(r.Answers, func(a council.ComparedAnswer) bool { return planted[a.Text] != "" })
		axis := planted[r.Answers[i].Text]
		if code != 200 || !report.Flagged || report.Backend != council.BackendJudge || !strings.HasSuffix(report.Wording, ": "+axis) ||
			report.Judgement.Axes[0].Quotes[0].Model != r.Answers[i].ID {
			t.Errorf("%s: %d %s", r.Question, code, data)
		}
	}
	if _, report, _ := ask(t, d, everyday[0]); report.Flagged || report.Judgement.Reason != nil {
		t.Errorf("a benign session: %+v", report.Judgement)
	}
	low := differing[0]
	low.Threshold = new(0.1)
	if _, report, _ := ask(t, d, low); report.Flagged || !strings.Contains(report.Wording, "0.1 is lower") {
		t.Errorf("a threshold that is too low: %s", report.Wording)
	}
	other := differing[0]
	other.Lexicon = []byte(`{"size": ["small"]}`)
	if _, report, _ := ask(t, d, other); report.Flagged || !strings.Contains(report.Wording, "on these axes") {
		t.Errorf("other axes: %s", report.Wording)
	}
	// The newest calibration counts, and sessions without ratings do not.
	if c, unread := calibrate(t, d, append(slices.Clone(everyday), differing...)); c.Passed || c.Flagged != len(differing) || unread != 0 {
		t.Errorf("on sessions that differ: %+v, %d unread", c, unread)
	}
	if _, report, _ := ask(t, d, differing[0]); report.Flagged || !strings.Contains(report.Wording, "10 of 115 benign sessions") {
		t.Errorf("after a calibration that failed: %s", report.Wording)
	}
}

// Sessions of which a judge gives no ratings are no evidence that it flags nothing.
func TestCalibrationOfNothing(t *testing.T) {
	everyday, _ := sessionsOf(t, "everyday.txt")
	prose := simllm.Model{Name: "j", Reply: func(simllm.Task) (string, bool) { return "They are all the same to me.", true }}
	sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"}, prose)
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "JUDGE_MODEL": "j"})
	if c, unread := calibrate(t, d, everyday[:5]); c.Passed || c.Sessions != 0 || unread != 5 {
		t.Errorf("%+v, %d unread", c, unread)
	}
}

// The limits of cost, the rate and the rights of a token hold for the judge, and not for the lexicon.
func TestJudgeWithinLimits(t *testing.T) {
	sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"}, honestJudge("j", nil))
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": sim.URL(), "MODELS": "a,b", "JUDGE_MODEL": "j", "PRICES": "a=1/1,b=1/1,j=1/1", "MAX_COST_USD_PER_DAY": "0.0001",
	})
	r, _ := sessionsOf(t, "everyday.txt")
	if code, _, data := ask(t, d, r[0]); code != 200 {
		t.Errorf("the first: %d %s", code, data)
	}
	if code, _, data := ask(t, d, r[0]); code != 429 || !strings.Contains(string(data), "over_budget") {
		t.Errorf("over the budget of the day: %d %s", code, data)
	}
	lexicon := r[0]
	lexicon.Backend = council.BackendLexicon
	if code, _, data := ask(t, d, lexicon); code != 200 {
		t.Errorf("the lexicon: %d %s", code, data)
	}
}

// A judge of the roster that may not see every class of data sees no answers, whose class nobody knows.
func TestJudgeOfTheRoster(t *testing.T) {
	r, _ := sessionsOf(t, "everyday.txt")
	for judge, want := range map[string]int{"one": 200, "two": 403} {
		d, _ := onRoster(t, guarded(), map[string]string{"JUDGE_MODEL": judge})
		if code, _, data := ask(t, d, r[0], "Authorization", bearer("team")); code != want {
			t.Errorf("the judge %s: %d %s", judge, code, data)
		}
	}
	// In a session it is a seat as the others are: none is dropped silently.
	d, _ := onRoster(t, guarded(), map[string]string{"JUDGE_MODEL": "three", "DEMOGRAPHICS_BACKEND": "llm_judge"})
	code, data := d.Call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", bearer("team"))
	if code != 403 || !strings.Contains(string(data), "three may see data up to public") {
		t.Errorf("a session with a judge that may not see it: %d %s", code, data)
	}
	d, _ = onRoster(t, guarded(), nil)
	if code, _, data := ask(t, d, r[0], "Authorization", bearer("team")); code != 422 || !strings.Contains(string(data), "LLM_COUNCIL_JUDGE_MODEL") {
		t.Errorf("without a judge: %d %s", code, data)
	}
}
