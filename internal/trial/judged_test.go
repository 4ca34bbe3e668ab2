package trial_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/trial"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A report over judged pairs equals the report over an import of the same verdicts.
func TestJudgedEqualsImport(t *testing.T) {
	const questions = 60
	random := rand.New(rand.NewPCG(1, 2))
	judges := []string{"jury/one", "firm/two", "house/three"}
	verdicts := map[string]string{} // by judge, question and game
	var lines strings.Builder
	key := func(judge string, question, game int) string { return fmt.Sprint(judge, " ", question, " ", game) }
	texts := func(question int) [2]string {
		return [2]string{fmt.Sprintf("first %d", question), fmt.Sprintf("second %d %s", question, strings.Repeat("x", question))}
	}
	at := func(question int) time.Time { return time.Date(2026, 10, 1, 0, question, 0, 0, time.UTC) }
	for question := range questions {
		for _, judge := range judges {
			pair := texts(question)
			line := map[string]any{
				"question_id": question, "model_1": "lab/x", "model_2": "org/y", "judge": []string{judge, "pair"}, "turn": 1,
				"tstamp":         at(question).Unix(),
				"g1_user_prompt": fmt.Sprintf(single, pair[0], pair[1]), "g2_user_prompt": fmt.Sprintf(single, pair[1], pair[0]),
				"g1_judgment": "", "g2_judgment": "",
			}
			for game := 1; game <= 2; game++ {
				verdict := []string{"model_1", "model_2", "tie", "model_1"}[random.IntN(4)]
				verdicts[key(judge, question, game)] = verdict
				line[fmt.Sprintf("g%d_winner", game)] = verdict
			}
			text, _ := json.Marshal(line)
			lines.Write(append(text, '\n'))
		}
	}
	_, imported, rejected := imported[council.BiasMetricRecord](t, trial.FormatMTBenchPairs, lines.String())
	if rejected != nil {
		t.Fatal(rejected)
	}
	for i := range imported { // The store derives missing fields.
		text, err := json.Marshal(imported[i])
		if err != nil {
			t.Fatal(err)
		}
		if imported[i], err = store.ParseRecord(text); err != nil {
			t.Fatal(err)
		}
	}

	var models []simllm.Model
	for _, judge := range judges {
		models = append(models, simllm.Model{Name: judge, Reply: func(task simllm.Task) (string, bool) {
			var question int
			game := 1
			if _, err := fmt.Sscanf(task.Answers[0].Text, "first %d", &question); err != nil {
				game = 2
				_, _ = fmt.Sscanf(task.Answers[0].Text, "second %d", &question)
			}
			labels := []string{task.Answers[game-1].Label, task.Answers[2-game].Label} // of model_1 and model_2
			return ballotOf(verdicts[key(judge, question, game)], labels), task.Kind == simllm.Review
		}})
	}
	judged := &kept{}
	p := judgesOf(t, models, judged)
	for question := range questions {
		pair := texts(question)
		plan, err := p.PrepareJudge(council.JudgeRequest{Question: "Which?", Answers: []council.JudgeAnswer{
			{ID: "1", Text: pair[0], Author: "lab/x"}, {ID: "2", Text: pair[1], Author: "org/y"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		plan.Created = at(question)
		if _, err := p.Run(t.Context(), plan, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(judged.records) != len(imported) || len(imported) != questions*len(judges)*4 {
		t.Fatalf("%d judged records, %d imported ones", len(judged.records), len(imported))
	}
	for i := range imported {
		imported[i].Source = council.SourceJudge
	}
	want := reportOf(t, imported, council.SourceJudge)
	got := reportOf(t, judged.records, council.SourceJudge)
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 1e-12), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-imported +judged)\n%s", diff)
	}
	if left := reportOf(t, judged.records, ""); !strings.Contains(fmt.Sprint(left), "sessions:0") {
		t.Errorf("without a source, the report has judged records: %.400s", fmt.Sprint(left))
	}
}

// ballotOf returns a reply with a verdict on model_1 and model_2, which have these labels.
func ballotOf(verdict string, labels []string) string {
	ranking := any([]any{labels})
	scores := map[string]float64{labels[0]: 5.5, labels[1]: 5.5}
	if verdict != "tie" {
		if verdict == "model_2" {
			slices.Reverse(labels)
		}
		ranking = labels
		scores = map[string]float64{labels[0]: 10, labels[1]: 1}
	}
	text, _ := json.Marshal(map[string]any{"ranking": ranking, "scores": scores})
	return string(text)
}

// kept is a Recorder in memory.
type kept struct{ records []council.BiasMetricRecord }

// judgesOf returns a pipeline whose judges are the models. As in MT-bench, all judges read the answers in one order
// first.
func judgesOf(t *testing.T, models []simllm.Model, recorder pipeline.Recorder) *pipeline.Pipeline {
	t.Helper()
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	client, err := llm.New(llm.Options{
		Providers: []llm.Provider{{BaseURL: sim.URL()}}, AttemptTimeout: time.Minute, DialTimeout: time.Second, MaxCallsPerProvider: 8,
		MaxReplyBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var names []string
	for _, m := range models {
		names = append(names, m.Name)
	}
	p, err := pipeline.New(pipeline.Options{
		Completer: client, Recorder: recorder, Log: slog.New(slog.DiscardHandler), MaxQueryBytes: 1 << 16,
		Lineup: pipeline.Lineup{Models: names, MaxModels: 3},
		Limits: council.Limits{Timeout: time.Minute}, Draws: pipeline.Draws{Order: council.OrderShared},
		Rules: council.Rules{PartialBallots: council.PolicyAvailable, Consent: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reportOf returns the report over records as JSON decodes it. Fields that an import does not have are left out of the
// records, and the names of sessions out of the report.
func reportOf(t *testing.T, records []council.BiasMetricRecord, source string) (v any) {
	t.Helper()
	c := bias.NewCollector(bias.Options{Now: time.Date(2026, 10, 2, 0, 0, 0, 0, time.UTC), Query: bias.Query{Source: source}})
	for _, r := range records {
		r.CouncilConfig = "pairs"
		r.QueryHash = nil
		r.QuestionKey = nil
		r.ModelVersions = council.VersionPair{}
		r.OrderDesign = ""
		c.Add(r)
	}
	text, err := json.Marshal(c.Report(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (k *kept) Append(_ context.Context, records []council.BiasMetricRecord) error {
	k.records = append(k.records, records...)
	return nil
}
