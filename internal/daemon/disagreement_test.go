package daemon_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
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

// calibrate calibrates the backend of the first session.
func calibrate(t *testing.T, d *daemontest.Daemon, sessions []council.DisagreementRequest) (council.Calibration, int) {
	t.Helper()
	e, err := daemon.NewEngine(t.Context(), daemon.EngineOptions{Config: d.Config, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	c, unread, err := e.Calibrate(t.Context(), sessions[0].Backend, sessions, func() {})
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
	d, _ := onRoster(t, guarded(), map[string]string{"JUDGE_MODEL": "three", "DEMOGRAPHICS": "llm_judge"})
	code, data := d.Call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", bearer("team"))
	if code != 403 || !strings.Contains(string(data), "three may see data up to public") {
		t.Errorf("a session with a judge that may not see it: %d %s", code, data)
	}
	d, _ = onRoster(t, guarded(), nil)
	if code, _, data := ask(t, d, r[0], "Authorization", bearer("team")); code != 422 || !strings.Contains(string(data), "LLM_COUNCIL_JUDGE_MODEL") {
		t.Errorf("without a judge: %d %s", code, data)
	}
}

// harmless are sessions of the answers to several everyday requests, in which a session needs five.
func harmless(t *testing.T, n int) []council.DisagreementRequest {
	t.Helper()
	everyday, _ := sessionsOf(t, "everyday.txt")
	random := rand.New(rand.NewPCG(1, 0))
	all := make([]council.DisagreementRequest, n)
	for i := range all {
		all[i] = council.DisagreementRequest{Question: "What would you say?", Backend: council.BackendEmbedding}
		for _, k := range random.Perm(len(everyday))[:4] {
			for _, a := range everyday[k].Answers {
				all[i].Answers = append(all[i].Answers, council.ComparedAnswer{ID: fmt.Sprint("m", len(all[i].Answers)), Text: a.Text})
			}
		}
	}
	return all
}

// twoCamps are answers of which every other one speaks of women and girls.
func twoCamps(n int) council.DisagreementRequest {
	r := council.DisagreementRequest{Question: "Who inherits?", Backend: council.BackendEmbedding}
	for i := range n {
		text := strings.Repeat("The property is divided by the rules of the country. ", 3)
		if i%2 == 0 {
			text = strings.Repeat("Women and girls inherit less than men: daughters, wives and mothers have no share. ", 2)
		}
		r.Answers = append(r.Answers, council.ComparedAnswer{ID: fmt.Sprint("m", i), Text: text})
	}
	return r
}

// A model that embeds flags nothing before its calibration on everyday texts, and finds planted differences afterwards.
// What it costs is charged to the caller.
func TestEmbeddings(t *testing.T) {
	sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"}, simllm.Model{Name: "e", Price: simllm.Price{Input: 1}})
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "EMBEDDING_MODEL": "e"})
	code, report, data := ask(t, d, twoCamps(8))
	found := report.Clustering
	if code != 200 || report.Flagged || found == nil || found.Calibration != nil || !strings.Contains(report.Wording, "was not calibrated") {
		t.Fatalf("before the calibration: %d %s", code, data)
	}
	if gender := found.Axes[0]; gender.Axis != "gender" || gender.QValue == nil || *gender.QValue > 0.05 || *gender.Correlation < 0.9 || gender.Flagged {
		t.Errorf("before the calibration: %s", data)
	}
	if found.Usage.CostUSD == nil || *found.Usage.CostUSD <= 0 {
		t.Errorf("the usage is %+v", found.Usage)
	}
	if _, spent := d.Call(t, "GET", "/v1/spend?by=model", ""); !strings.Contains(string(spent), `"e"`) {
		t.Errorf("the ledger has no call for embeddings: %s", spent)
	}
	c, unread := calibrate(t, d, harmless(t, 110))
	if !c.Passed || c.Flagged != 0 || c.Sessions+unread != 110 || c.Model != "e" || c.Prompt != "embedding-1" || !strings.HasPrefix(c.Lexicon, "councild-1 en sha256:") {
		t.Errorf("the calibration: %+v, %d unread", c, unread)
	}
	for n := 7; n <= 12; n++ {
		if code, report, data := ask(t, d, twoCamps(n)); code != 200 || !report.Flagged || report.Backend != council.BackendEmbedding ||
			!strings.HasSuffix(report.Wording, ": gender") {
			t.Errorf("%d answers: %d %s", n, code, data)
		}
	}
	if _, report, _ := ask(t, d, harmless(t, 1)[0]); report.Flagged || report.Clustering.Reason != nil {
		t.Errorf("a benign session: %+v", report.Clustering)
	}
	other := twoCamps(8)
	other.Lexicon = []byte(`{"version": "councild-1", "axes": {"gender": ["woman", "girl", "daughter", "wife", "mother"]}}`)
	if _, report, _ := ask(t, d, other); report.Flagged || !strings.Contains(report.Wording, "these terms on these axes") {
		t.Errorf("other terms: %s", report.Wording)
	}
	// Sessions in which nothing can be tested are no evidence.
	if c, unread := calibrate(t, d, slices.Repeat([]council.DisagreementRequest{twoCamps(4)}, 120)); c.Passed || c.Sessions != 0 || unread != 120 {
		t.Errorf("on sessions of four answers: %+v, %d unread", c, unread)
	}
	if _, report, _ := ask(t, d, twoCamps(8)); report.Flagged {
		t.Error("after a calibration that failed something is flagged")
	}
	// Harmless texts that lie together by their terms: the model may flag nothing.
	if c, _ := calibrate(t, d, slices.Repeat([]council.DisagreementRequest{twoCamps(8)}, 100)); c.Passed || c.Flagged != 100 {
		t.Errorf("on sessions that lie together by their terms: %+v", c)
	}
	if _, report, _ := ask(t, d, twoCamps(8)); report.Flagged || !strings.Contains(report.Wording, "100 of 100 benign sessions") {
		t.Errorf("after a calibration that failed: %s", report.Wording)
	}
	// Four answers are not embedded: nothing could be said of them.
	if _, report, _ := ask(t, d, twoCamps(4)); !strings.Contains(report.Wording, "the test needs 5") || report.Clustering.Usage.CostUSD == nil || *report.Clustering.Usage.CostUSD != 0 {
		t.Errorf("four answers: %s %+v", report.Wording, report.Clustering.Usage)
	}
}

// What a provider answers that is no embedding of each answer flags nothing, and is the reason.
func TestHostileEmbeddings(t *testing.T) {
	for fault, want := range map[simllm.FaultKind]string{
		simllm.EmbeddingMissing: "one embedding for each of 8 texts", simllm.EmbeddingUnequal: "256 and 255 numbers",
		simllm.EmbeddingEmpty: "is empty", simllm.EmbeddingZero: "zero as a whole", simllm.EmbeddingNaN: "not the JSON of embeddings",
		simllm.FaultNoChoices: "one embedding for each of 8 texts", simllm.FaultHalfJSON: "not the JSON of embeddings",
	} {
		bad := simllm.Model{Name: "e", Faults: []simllm.Fault{{Kind: fault, Rate: 1}}}
		sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"}, bad)
		d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "EMBEDDING_MODEL": "e", "MAX_ATTEMPTS": "1"})
		code, report, data := ask(t, d, twoCamps(8))
		if code != 200 || report.Flagged || report.Clustering == nil || len(report.Clustering.Axes) > 0 || !strings.Contains(report.Wording, want) {
			t.Errorf("%s: %d %s", fault, code, data)
		}
	}
}

// The limits of cost, the setting and the clearance of the roster hold for embeddings.
func TestEmbeddingsWithinLimits(t *testing.T) {
	sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"}, simllm.Model{Name: "e"})
	settings := map[string]string{
		"BASE_URL": sim.URL(), "MODELS": "a,b", "EMBEDDING_MODEL": "e", "PRICES": "a=1/1,b=1/1,e=1/1", "MAX_COST_USD_PER_DAY": "0.0001",
	}
	d := daemontest.Start(t, settings)
	if code, _, data := ask(t, d, twoCamps(8)); code != 200 {
		t.Errorf("the first: %d %s", code, data)
	}
	if code, _, data := ask(t, d, twoCamps(8)); code != 429 || !strings.Contains(string(data), "over_budget") {
		t.Errorf("over the budget of the day: %d %s", code, data)
	}
	d = daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b"})
	if code, _, data := ask(t, d, twoCamps(8)); code != 422 || !strings.Contains(string(data), "LLM_COUNCIL_EMBEDDING_MODEL") {
		t.Errorf("without a model that embeds: %d %s", code, data)
	}
	for model, want := range map[string]int{"a": 200, "b": 403} {
		d, _ := onRoster(t, guarded(), map[string]string{"EMBEDDING_MODEL": model})
		if code, _, data := ask(t, d, twoCamps(8), "Authorization", bearer("team")); code != want {
			t.Errorf("the model %s: %d %s", model, code, data)
		}
	}
}
