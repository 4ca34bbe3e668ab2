package pipeline_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// heard is a Completer that notes all calls.
type heard struct {
	council.Completer
	mu    sync.Mutex
	calls []council.Call
}

func (h *heard) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	h.mu.Lock()
	h.calls = append(h.calls, call)
	h.mu.Unlock()
	return h.Completer.Complete(ctx, call)
}

// prompts returns the last message of each call of a session in a stage, sorted.
func (h *heard) prompts(session string, stage council.Stage) (texts []string) {
	for _, c := range h.calls {
		if c.Session == session && c.Stage == stage {
			texts = append(texts, c.Messages[len(c.Messages)-1].Content)
		}
	}
	slices.Sort(texts)
	return texts
}

func listen(h *heard) func(*pipeline.Options) {
	return func(o *pipeline.Options) { h.Completer, o.Completer = o.Completer, h }
}

var allArms = []pipeline.Arm{
	{Kind: pipeline.ArmSynthesis},
	{Kind: pipeline.ArmPlacebo},
	{Kind: pipeline.ArmEnsemble, Model: council.Member{ID: "birch", Model: "birch"}, Samples: 6},
}

// standing matches a line of the ranking that the chairman is shown.
var standing = regexp.MustCompile(`(?m)^\d+\. (Answer \d+): (\d+%; \d+)$`)

func TestPanel(t *testing.T) {
	said := &heard{}
	h := build(t, members(3), listen(said))
	plan := h.plan(t, council.Request{})
	results, err := h.Panel(t.Context(), plan, allArms, pipeline.QuestionBudget{})
	if err != nil || len(results) != 4 {
		t.Fatal(err, results)
	}
	for _, r := range results {
		if r.Failure != nil || r.Session.Stage3 == nil || r.Session.Stage3.Status != council.OutcomeOK {
			t.Fatalf("%s: %v %+v", r.Kind, r.Failure, r.Session.Stage3)
		}
	}
	calls := map[string]int{} // by arm and stage
	for _, c := range said.calls {
		calls[strings.TrimPrefix(c.Session, plan.SessionID)+" "+string(c.Stage)]++
	}
	want := map[string]int{
		" stage1": 3, " stage2": 3, " stage3": 1, "-synthesis stage3": 1, "-placebo stage3": 1, "-ensemble stage1": 6, "-ensemble stage3": 1,
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls of each arm (-want +got):\n%s", diff)
	}
	chairman := func(arm string) string { return said.prompts(plan.SessionID+arm, council.Stage3)[0] }
	if s := chairman("-synthesis"); strings.Contains(s, "REVIEW") || standing.MatchString(s) {
		t.Errorf("the synthesis was shown reviews: %s", s)
	}
	shown, placebo := standing.FindAllStringSubmatch(chairman(""), -1), standing.FindAllStringSubmatch(chairman("-placebo"), -1)
	if len(shown) != 3 || len(placebo) != 3 {
		t.Fatalf("%d and %d standings", len(shown), len(placebo))
	}
	for i := range shown {
		if shown[i][1] == placebo[i][1] || shown[i][2] != placebo[i][2] {
			t.Errorf("place %d: %v, and in the placebo %v", i+1, shown[i][0], placebo[i][0])
		}
	}
	for _, text := range said.prompts(plan.SessionID+"-ensemble", council.Stage3) {
		if !strings.Contains(text, "Answer 6") || strings.Contains(text, "REVIEW") {
			t.Errorf("the ensemble's synthesis: %s", text)
		}
	}
	for _, c := range said.calls {
		if strings.HasSuffix(c.Session, "-ensemble") && c.Stage == council.Stage1 && c.Model != "birch" {
			t.Errorf("the ensemble asked %s", c.Model)
		}
	}
	if len(h.notes.batches) != 1 {
		t.Errorf("records of %d sessions", len(h.notes.batches))
	}
}

// With a key, the same plan sends the same prompts.
func TestPanelRepeatsItsPrompts(t *testing.T) {
	prompts := func(key string) (all []string) {
		said := &heard{}
		h := build(t, members(3), listen(said))
		plan := h.plan(t, council.Request{Seed: new(int64(7))})
		plan.SessionID, plan.MarkerKey = "session", key
		if _, err := h.Panel(t.Context(), plan, allArms, pipeline.QuestionBudget{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range said.calls {
			all = append(all, fmt.Sprint(c.Session, c.Stage, c.Seat, c.Messages))
		}
		slices.Sort(all)
		return all
	}
	first := prompts("a key")
	if diff := cmp.Diff(first, prompts("a key")); diff != "" {
		t.Error(diff)
	}
	if slices.Equal(first, prompts("another")) || slices.Equal(prompts(""), prompts("")) {
		t.Error("other keys, or none, give the same markers")
	}
}

// An arm fails alone, and a council without a quorum leaves the others nothing to read.
func TestPanelThatFails(t *testing.T) {
	models := members(3)
	models[1] = with(models[1], simllm.Fault{Kind: simllm.FaultHTML})
	h := build(t, models)
	results, err := h.Panel(t.Context(), h.plan(t, council.Request{}), allArms, pipeline.QuestionBudget{})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Failure != nil || results[1].Failure != nil || results[3].Failure == nil || results[3].Failure.Code != council.CodeNoQuorum {
		t.Errorf("%v", results)
	}
	models[2] = with(models[2], simllm.Fault{Kind: simllm.FaultHTML})
	h = build(t, models)
	if results, err = h.Panel(t.Context(), h.plan(t, council.Request{}), allArms, pipeline.QuestionBudget{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Failure == nil || r.Failure.Code != council.CodeNoQuorum || r.Session == nil {
			t.Errorf("%s: %v", r.Kind, r.Failure)
		}
	}
}

// What the council costs is missing to the arms behind it.
func TestPanelWithinALimit(t *testing.T) {
	h := build(t, members(3))
	plan := h.plan(t, council.Request{})
	whole, err := h.Panel(t.Context(), plan, nil, pipeline.QuestionBudget{})
	if err != nil {
		t.Fatal(err)
	}
	left := 0.999 * *whole[0].Session.Metadata.Usage.CostUSD // the chairman begins below it, and ends above
	results, err := h.Panel(t.Context(), plan, allArms, pipeline.QuestionBudget{Limit: func(string) float64 {
		limit := left
		left = 0
		return limit
	}})
	if err != nil || results[0].Failure != nil {
		t.Fatal(err, results)
	}
	for _, r := range results[1:] {
		if r.Failure == nil || r.Failure.Code != council.CodeOverBudget {
			t.Errorf("%s: %v", r.Kind, r.Failure)
		}
	}
}

func TestPanelIsCancelled(t *testing.T) {
	h := build(t, members(3))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if results, err := h.Panel(ctx, h.plan(t, council.Request{}), allArms, pipeline.QuestionBudget{}); err == nil || len(results) != 1 {
		t.Errorf("%d results, %v", len(results), err)
	}
}

// Each arm has the time of a session: the arms together may take longer than one may. Models take as long as real ones.
func TestPanelAtRealSpeed(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		answers := map[string]time.Duration{
			"amber": 20 * time.Second, "birch": 60 * time.Second, "cedar": 90 * time.Second, "dune": 170 * time.Second,
		}
		h := bubble(t, members(4), taking(func(model string, task simllm.TaskKind) time.Duration {
			if task == simllm.Question {
				return answers[model]
			}
			return 100 * time.Second
		}))
		begun := time.Now()
		results, err := h.Panel(t.Context(), h.plan(t, council.Request{}), allArms, pipeline.QuestionBudget{})
		took := time.Since(begun)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Failure != nil || len(r.Session.Degradation) > 0 || r.Session.Stage3.Status != council.OutcomeOK {
				t.Errorf("%s: %v %v", r.Kind, r.Failure, r.Session.Degradation)
			}
		}
		// The council takes 170 + 100 + 100 s, synthesis and placebo 100 s each, the ensemble 60 + 100 s.
		if own := took - 730*time.Second; own < 0 || own > time.Second {
			t.Errorf("the panel took %v", took)
		}
	})
}
