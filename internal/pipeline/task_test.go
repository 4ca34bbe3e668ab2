package pipeline_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
)

// wordTask is a task of this test alone. Each seat names a word that begins with a letter, then each seat is shown all
// words and says how many there are. It shows that the pipeline knows no particular task.
type wordTask struct{}

func (wordTask) Prompts() []string { return []string{"word-1", "count-1"} }

func (wordTask) Calls(plan council.Plan, earlier []council.TaskRound) ([]council.Call, error) {
	var letter string
	if err := json.Unmarshal(plan.Task.Input, &letter); err != nil {
		return nil, &council.Error{Code: council.CodeInvalid, Detail: "no letter"}
	}
	prompt, seats := "Name a word with "+letter, plan.Members()
	if len(earlier) > 0 {
		prompt, seats = "Count "+strings.Join(words(earlier[0]), " "), plan.Reviewers()
	}
	if letter == "" || len(earlier) > 0 && len(words(earlier[0])) == 0 {
		return nil, nil
	}
	calls := make([]council.Call, len(seats))
	for i, m := range seats {
		calls[i] = council.Call{Seat: m.ID, Messages: []council.Message{{Role: council.RoleUser, Content: prompt}}}
	}
	return calls, nil
}

func (wordTask) Result(_ council.Plan, rounds []council.TaskRound) (json.RawMessage, error) {
	result := make([][]string, len(rounds))
	for i, round := range rounds {
		result[i] = words(round)
	}
	return json.Marshal(result)
}

// words returns the replies of a round that are words.
func words(round council.TaskRound) []string {
	all := []string{}
	for _, r := range round.Replies {
		if r.Error == nil && r.Text != "none" {
			all = append(all, r.Text)
		}
	}
	return all
}

// naming has a model reply with a word, and with the number of words.
func naming(m simllm.Model, word string) simllm.Model {
	m.Reply = func(task simllm.Task) (string, bool) {
		if shown, ok := strings.CutPrefix(task.Question, "Count "); ok {
			return string(rune('0' + len(strings.Fields(shown)))), true
		}
		return word, strings.HasPrefix(task.Question, "Name ")
	}
	return m
}

// namers returns four models that name words.
func namers() []simllm.Model {
	models := members(4)
	for i, word := range []string{"ash", "ape", "arm", "ant"} {
		models[i] = naming(models[i], word)
	}
	return models
}

func withWords(o *pipeline.Options) { o.Tasks = map[string]council.Task{"words": wordTask{}} }

func aWord() council.TaskRequest {
	return council.TaskRequest{Name: "words", Input: json.RawMessage(`"a"`), Preview: "words: a"}
}

// carryOut prepares a task and runs its session.
func (h harness) carryOut(t *testing.T, r council.TaskRequest) (*council.Session, error) {
	t.Helper()
	plan, err := h.PrepareTask(r)
	if err != nil {
		t.Fatal(err)
	}
	return h.Run(t.Context(), plan, nil, nil)
}

// result returns the result of a session of a wordTask.
func result(t *testing.T, s *council.Session) (rounds [][]string) {
	t.Helper()
	if s.Task == nil || s.Task.Name != "words" {
		t.Fatalf("the session has the task %+v", s.Task)
	}
	if err := json.Unmarshal(s.Task.Result, &rounds); err != nil {
		t.Fatal(err)
	}
	return rounds
}

// Each seat is called once in each round, with the replies of the first round in the second. There are no records.
func TestTask(t *testing.T) {
	h := build(t, namers(), withWords)
	var events []council.EventType
	plan, err := h.PrepareTask(aWord())
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) { events = append(events, e.Type) }), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"ash", "ape", "arm", "ant"}, {"4", "4", "4", "4"}}, result(t, s)); diff != "" {
		t.Error(diff)
	}
	if s.Status != council.StatusComplete || s.Mode != council.ModeTask || s.Query != "words: a" || s.Answer != "" || s.Note != "" ||
		s.Stage3 != nil || len(s.Stage1) != 4 || len(s.Stage2) != 4 || *s.Stage2[3].Ranking != "4" || len(s.Metadata.Warnings) > 0 {
		t.Errorf("%+v", s)
	}
	if h.requests() != 8 || len(h.notes.batches) > 0 {
		t.Errorf("%d calls, records %v", h.requests(), h.notes.batches)
	}
	if !slices.Equal(s.Metadata.Stages, []council.Stage{council.Stage1, council.Stage2}) ||
		s.Metadata.Usage.ByStage[council.Stage2].None() || s.Metadata.Timing.Stage2MS <= 0 {
		t.Errorf("%+v", s.Metadata)
	}
	slices.Sort(events[1:5])
	want := []council.EventType{
		"session.started", "stage1.answer", "stage1.answer", "stage1.answer", "stage1.answer", "stage1.done",
		"stage2.ballot", "stage2.ballot", "stage2.ballot", "stage2.ballot", "stage2.done", "session.done",
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
}

// The members are asked first, then the reviewers, each model once. What a member cannot be asked is an error.
func TestPrepareTask(t *testing.T) {
	h := build(t, namers(), withWords, func(o *pipeline.Options) {
		o.Models = []string{"amber", "birch", "birch"}
		o.Reviewers = []string{"cedar", "dune", "dune"}
	})
	plan, err := h.PrepareTask(aWord())
	if err != nil {
		t.Fatal(err)
	}
	var seats []string
	for _, m := range slices.Concat(plan.Members(), plan.Reviewers()) {
		seats = append(seats, m.ID)
	}
	if !slices.Equal(seats, []string{"amber", "birch", "birch#2", "cedar", "dune"}) || plan.ModelOf("birch#2") != "birch" {
		t.Errorf("%v", seats)
	}
	if plan.Preview() != "words: a" || plan.MarkerKey == "" || plan.Task.MaxBytes != 1<<16 || plan.Sides != nil ||
		plan.Stages[1].Prompt != "count-1" || !strings.Contains(plan.Council(), ";task words") || plan.Chairman() != "" {
		t.Errorf("%+v", plan)
	}
	if prompts := pipeline.Prompts(map[string]council.Task{"words": wordTask{}}); !slices.Contains(prompts, "word-1") {
		t.Errorf("%v", prompts)
	}
	for name, r := range map[string]council.TaskRequest{
		"internal: this version of councild has no task letters": {Name: "letters", Preview: "x"},
		"invalid: no letter": {Name: "words", Input: json.RawMessage(`7`), Preview: "x"},
		"invalid: the request is not valid\n  max_cost_usd: the limit is not above 0; give a number above 0, or leave the field out": {
			Name: "words", Input: json.RawMessage(`"a"`), Preview: "x", MaxCostUSD: new(0.0),
		},
	} {
		_, err := h.PrepareTask(r)
		if e, ok := errors.AsType[*council.Error](err); !ok || string(e.Code)+": "+e.Explain() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A round without calls is over at once, and the task still has a result.
func TestTaskWithoutCalls(t *testing.T) {
	h := build(t, namers(), withWords)
	none := aWord()
	none.Input = json.RawMessage(`""`)
	s, err := h.carryOut(t, none)
	if err != nil || h.requests() != 0 || s.Status != council.StatusComplete || !cmp.Equal(result(t, s), [][]string{{}, {}}) {
		t.Errorf("%v, %d calls, %+v", err, h.requests(), s)
	}
	models := namers()
	for i := range models {
		models[i] = naming(models[i], "none")
	}
	h = build(t, models, withWords)
	s, err = h.carryOut(t, aWord())
	if err != nil || h.requests() != 4 || s.Status != council.StatusComplete || !cmp.Equal(result(t, s), [][]string{{}, {}}) {
		t.Errorf("%v, %d calls, %+v", err, h.requests(), s)
	}
}

// Seats that fail are missing from the result, which the session has even if all fail, or if money or time runs out.
func TestTaskWithoutSeats(t *testing.T) {
	models := namers()
	models[1] = with(models[1], simllm.Fault{Kind: simllm.FaultStatus, Status: 500})
	s, err := build(t, models, withWords).carryOut(t, aWord())
	if err != nil || s.Status != council.StatusDegraded || !cmp.Equal(result(t, s), [][]string{{"ash", "arm", "ant"}, {"3", "3", "3"}}) {
		t.Errorf("%v, %+v", err, s)
	}
	if diff := cmp.Diff([]string{"stage1 birch unavailable", "stage2 birch unavailable"}, missing(s)); diff != "" {
		t.Error(diff)
	}
	for i := range models {
		models[i] = with(models[i], simllm.Fault{Kind: simllm.FaultHang})
	}
	h := build(t, models, withWords, func(o *pipeline.Options) { o.Timeout = 200 * time.Millisecond })
	s, err = h.carryOut(t, aWord())
	if err != nil || s.Status != council.StatusDegraded || !cmp.Equal(result(t, s), [][]string{{}, {}}) {
		t.Errorf("%v, %+v", err, s)
	}
	h = build(t, namers(), withWords, func(o *pipeline.Options) { o.MaxTotalTokens = new(int64(1)) })
	s, err = h.carryOut(t, aWord())
	if rounds := result(t, s); err != nil || len(rounds[0]) == 0 || len(rounds[1]) > 0 || s.Stage2[0].Error.Code != council.FailBudget {
		t.Errorf("%v, %+v", err, s)
	}
	h = build(t, namers(), withWords)
	plan, err := h.PrepareTask(aWord())
	if err != nil {
		t.Fatal(err)
	}
	plan.OnPartial = council.PartialRefuse
	if s, err = h.Run(t.Context(), plan, nil, nil); err != nil || s.Status != council.StatusComplete {
		t.Errorf("%v, %+v", err, s)
	}
}

// The estimate is an upper bound even for an awkward input: no call of a session whose limit is the estimate lacks money.
func TestEstimateOfTask(t *testing.T) {
	tariff := spend.Flat(1000, 1000)
	models := namers()
	for i := range models {
		models[i].Price = simllm.Price{Input: 0.001, Output: 0.001}
	}
	book := spend.NewBook(spend.Options{
		Hard: true, Day: new(1000 * spend.Dollar), Tariff: func(string) (spend.Tariff, bool) { return tariff, true },
	})
	h := build(t, models, withWords, func(o *pipeline.Options) {
		o.Book = book
		o.Sampling.MaxOutputTokens = new(1000)
		o.ReviewSampling.MaxOutputTokens = new(1000)
	})
	r := aWord()
	r.Input, _ = json.Marshal(strings.Repeat("<&\" \n", 1000))
	plan, err := h.PrepareTask(r)
	if err != nil {
		t.Fatal(err)
	}
	e := book.Estimate(plan)
	if e.Calls != 8 || e.Upper == nil || e.ByStage["stage2"].Calls != 4 || e.Mode != council.ModeTask {
		t.Fatalf("%+v", e)
	}
	plan.MaxCostUSD = new(e.Upper.Float64())
	s, err := h.Run(t.Context(), plan, nil, nil)
	if err != nil || len(missing(s)) > 0 {
		t.Errorf("%v, missing %v", err, missing(s))
	}
	plan.Task.Idle = true
	if e := book.Estimate(plan); e.Calls != 0 {
		t.Errorf("%d calls of an idle task", e.Calls)
	}
}
