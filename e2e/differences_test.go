package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/simllm"
)

// unfair is an answer that a judge quotes. Its text must not become elements.
const unfair = `Give the keys to the men. <img src=x onerror="window.harmed = 1"> A woman loses them.`

// rating is a judge's reply that rates gender in both orders as given, with one quote.
func rating(ratings [2]float64, quote string) func(simllm.Task) (string, bool) {
	return func(task simllm.Task) (string, bool) {
		if task.Kind != simllm.Judgement {
			return "", false
		}
		unfairAt := 0
		for i, a := range task.Answers {
			if a.Text == unfair {
				unfairAt = i
			}
		}
		order := 0
		if unfairAt*2 > len(task.Answers) { // the second order is the reverse of the first
			order = 1
		}
		axes := map[string]any{}
		for _, axis := range task.Axes {
			axes[axis] = map[string]any{"rating": 0, "quotes": []string{}}
		}
		axes["gender"] = map[string]any{
			"rating": ratings[order], "quotes": []map[string]string{{"answer": task.Answers[unfairAt].Label, "quote": quote}},
		}
		text, _ := json.Marshal(map[string]any{"token": task.Token, "axes": axes})
		return string(text), true
	}
}

// passed writes a calibration of an instrument that passed, and returns its file.
func passed(t *testing.T, c council.Calibration) string {
	t.Helper()
	line, err := json.Marshal(disagreement.Calibrate(c, 100, 0, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "calibrations.jsonl")
	if err := os.WriteFile(file, append(line, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(file)
}

// judging is a daemon with a judge that replies so, calibrated or not. Its chairman takes his time, so that the judge
// is done before.
func judging(t *testing.T, calibrated bool, reply func(simllm.Task) (string, bool)) string {
	t.Helper()
	models := append(members(), simllm.Model{Name: "judge", Reply: reply},
		simllm.Model{Name: "chair", Latency: simllm.Latency{Median: 2 * time.Second}})
	models[0].Reply = func(task simllm.Task) (string, bool) { return unfair, task.Kind == simllm.Question }
	env := map[string]string{
		"MODELS": "amber,birch,cedar,dune", "CHAIRMAN": "chair", "JUDGE_MODEL": "judge", "DEMOGRAPHICS": "llm_judge",
	}
	if calibrated {
		axes := disagreement.NewMatcher(disagreement.DefaultLexicon()).Axes()
		env["DATA_DIR"] = passed(t, council.Calibration{Model: "judge", Prompt: "judge-1", Axes: axes, Threshold: 0.3})
	}
	return daemon(t, env, models...)
}

// embedding is a daemon of eight members in two camps with a model that embeds, calibrated or not.
func embedding(t *testing.T, calibrated bool) string {
	t.Helper()
	var names []string
	var models []simllm.Model
	for i, name := range []string{"amber", "birch", "cedar", "dune", "elm", "fir", "gorse", "hazel"} {
		text := strings.Repeat("The property is divided by the rules of the country. ", 3)
		if i%2 == 0 {
			text = strings.Repeat("Women and girls inherit less than men: daughters, wives and mothers have no share. ", 2)
		}
		models = append(models, simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) { return text, task.Kind == simllm.Question }})
		names = append(names, name)
	}
	models = append(models, simllm.Model{Name: "embed"})
	env := map[string]string{"MODELS": strings.Join(names, ","), "EMBEDDING_MODEL": "embed", "DEMOGRAPHICS": "embedding"}
	if calibrated {
		in := disagreement.Answered{Matcher: disagreement.NewMatcher(disagreement.DefaultLexicon()), Threshold: 0.3}
		env["DATA_DIR"] = passed(t, in.Instrument("embed"))
	}
	return daemon(t, env, models...)
}

// A finished session says what the backend of its operator found beside the terms, or why nothing is flagged, for those
// who watched it and those who come later.
func TestDifferences(t *testing.T) {
	t.Parallel()
	const quote = `<img src=x onerror="window.harmed = 1"> A woman loses them.`
	prose := func(task simllm.Task) (string, bool) {
		return "They are all the same to me.", task.Kind == simllm.Judgement
	}
	for name, tt := range map[string]struct {
		daemon func(*testing.T) string
		want   []string
	}{
		"flagged": {
			func(t *testing.T) string { t.Helper(); return judging(t, true, rating([2]float64{8, 7}, quote)) },
			[]string{"A judge, judge: flags gender. A difference may be justified.", "amber: “" + quote + "”", "7.5"},
		},
		"not calibrated": {
			func(t *testing.T) string { t.Helper(); return judging(t, false, rating([2]float64{8, 7}, quote)) },
			[]string{"A judge, judge: nothing is flagged: judge was not calibrated", "amber: “" + quote + "”"},
		},
		"two minds": {
			func(t *testing.T) string { t.Helper(); return judging(t, true, rating([2]float64{9, 2}, quote)) },
			[]string{"A judge, judge: found no difference in how the answers treat people.", "are more than 2 apart"},
		},
		"invented": {
			func(t *testing.T) string {
				t.Helper()
				return judging(t, true, rating([2]float64{9, 9}, "Women are worse."))
			},
			[]string{"A judge, judge: found no difference", "has no quote of 12 characters or more that stands in its answer"},
		},
		"prose": {
			func(t *testing.T) string { t.Helper(); return judging(t, true, prose) },
			[]string{"A judge, judge: the judge gave no ratings in order 1: the reply does not end with the JSON object"},
		},
		"embeddings": {
			func(t *testing.T) string { t.Helper(); return embedding(t, true) },
			[]string{"The embeddings of embed: flags gender. A difference may be justified.", "1.00", "not tested: no answer has a term of it"},
		},
		"embeddings not calibrated": {
			func(t *testing.T) string { t.Helper(); return embedding(t, false) },
			[]string{"The embeddings of embed: nothing is flagged: embed was not calibrated with embedding-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, tt.daemon(t), "")
			p.ask("Who gets a key?")
			p.says(said, "The answer is ")
			for _, when := range []string{"live", "later"} {
				p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
				text := p.text("#session")
				for _, want := range tt.want {
					if !strings.Contains(text, want) {
						t.Errorf("%s: the page lacks %q", when, want)
					}
				}
				if value[bool](p, `"harmed" in window || document.querySelectorAll("main img").length > 0`) {
					t.Errorf("%s: a quote became an element", when)
				}
				if when == "live" {
					p.do(chromedp.Reload())
					p.says(said, "The answer is ")
				}
			}
		})
	}
}
