package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
)

// voting has a model cast these votes, in the order of the questions.
func voting(m simllm.Model, votes ...string) simllm.Model {
	m.Reply = func(task simllm.Task) (string, bool) {
		members := map[string]map[string]string{}
		for i, vote := range votes {
			members[fmt.Sprintf("q%d", i+1)] = map[string]string{"why": "so", "vote": vote}
		}
		data, _ := json.Marshal(members)
		return string(data), task.Kind == simllm.Decision
	}
	return m
}

// ballot asks whether a text is polite, and what it is about.
func ballot() council.Request {
	return council.Request{
		Query: "I was charged twice.",
		Caller: council.Caller{Questions: []council.VoteQuestion{
			council.Predicate("It is polite."),
			{Kind: council.VoteChoice, Options: []council.VoteOption{{Text: "billing"}, {Text: "technical"}}},
		}},
	}
}

// voters returns four models, of which three vote alike.
func voters() []simllm.Model {
	models := members(4)
	for i := range models {
		models[i] = voting(models[i], "true", "billing")
	}
	models[3] = voting(models[3], "cannot tell", "technical")
	return models
}

// Each seat is called once. No seat answers or reviews, and there are no records.
func TestVotes(t *testing.T) {
	kept := &ledger{}
	book := spend.NewBook(spend.Options{Ledger: kept, Tariff: func(string) (spend.Tariff, bool) { return spend.Free(), true }})
	h := build(t, voters(), func(o *pipeline.Options) { o.Book = book })
	s := h.run(t, ballot())
	want := []council.VoteCount{{Votes: []int{0, 3}, Abstained: 1}, {Votes: []int{3, 1}}}
	if diff := cmp.Diff(want, s.Votes); diff != "" {
		t.Error(diff)
	}
	if s.Status != council.StatusComplete || h.requests() != 4 || len(s.Stage1) > 0 || len(s.Stage2) > 0 || s.Answer != "" {
		t.Errorf("%s, %d calls, %+v", s.Status, h.requests(), s)
	}
	if !slices.Equal(s.Metadata.Stages, []council.Stage{council.StageVotes}) || s.Metadata.Usage.ByStage[council.StageVotes].None() {
		t.Errorf("stages %v, usage %+v", s.Metadata.Stages, s.Metadata.Usage)
	}
	if len(h.notes.batches) > 0 {
		t.Error("the votes left records")
	}
	if n := len(kept.lines); n != 2 || kept.lines[0].Type != "open" || kept.lines[1].Type != "close" {
		t.Errorf("the ledger has %+v", kept.lines)
	}
}

// The seats are those that the request names, or the reviewers, or the members.
func TestWhoVotes(t *testing.T) {
	asked := func(t *testing.T, models []string, mutate ...func(*pipeline.Options)) []string {
		t.Helper()
		h := build(t, voters(), mutate...)
		r := ballot()
		r.Models = models
		r.Direct = len(models) == 1
		plan := h.plan(t, r)
		var seats []string
		for _, m := range plan.Reviewers() {
			seats = append(seats, m.ID)
		}
		if plan.Members() != nil || plan.Chairmen() != nil || !plan.Side {
			t.Errorf("%+v", plan)
		}
		return seats
	}
	for _, tt := range []struct {
		got, want []string
	}{
		{asked(t, nil), []string{"amber", "birch", "cedar", "dune"}},
		{asked(t, nil, func(o *pipeline.Options) { o.Reviewers = []string{"cedar", "dune"} }), []string{"cedar", "dune"}},
		{asked(t, []string{"birch"}, func(o *pipeline.Options) { o.Reviewers = []string{"cedar"} }), []string{"birch"}},
		{asked(t, []string{"birch", "amber"}), []string{"birch", "amber"}},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%v vote, want %v", tt.got, tt.want)
		}
	}
	h := build(t, voters())
	for name, mutate := range map[string]func(*council.Request){
		"models[0]": func(r *council.Request) { r.Models = []string{"gpt"} },
		"query":     func(r *council.Request) { r.Query = " " },
		"questions": func(r *council.Request) { r.Questions[0].Instructions = strings.Repeat("x", 1<<16) },
	} {
		r := ballot()
		mutate(&r)
		_, err := h.Prepare(r)
		e, ok := errors.AsType[*council.Error](err)
		if !ok || len(e.Fields) != 1 || e.Fields[0].Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Seats that fail, and replies that cannot be read, are missing. Without a quorum there are no votes.
func TestVotesWithoutSeats(t *testing.T) {
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 429, RetryAfter: "7"}
	models := voters()
	models[0] = with(models[0], down)
	h := build(t, models)
	s := h.run(t, ballot())
	if diff := cmp.Diff([]string{"votes amber rate_limited"}, missing(s)); diff != "" {
		t.Error(diff)
	}
	if s.Status != council.StatusDegraded || s.Votes[0].Failed != 1 || s.Note != "" {
		t.Errorf("%s, %+v, note %q", s.Status, s.Votes, s.Note)
	}
	models[1].Reply = func(simllm.Task) (string, bool) { return "I vote for it.", true }
	h = build(t, models)
	s, e := h.refused(t, ballot())
	if e.Code != council.CodeNoQuorum || e.Detail != "2 of 4 seats voted, the quorum is 3" || e.Paid == 0 || e.RetryAfter != 7*time.Second {
		t.Errorf("%+v", e)
	}
	if diff := cmp.Diff([]string{"votes amber rate_limited", "votes birch invalid_ballot"}, missing(s)); diff != "" {
		t.Error(diff)
	}
	for i := range models {
		models[i] = with(models[i], simllm.Fault{Kind: simllm.FaultHang})
	}
	h = build(t, models, func(o *pipeline.Options) { o.Timeout = 200 * time.Millisecond })
	if _, e := h.refused(t, ballot()); e.Code != council.CodeDeadline {
		t.Errorf("%+v", e)
	}
}

// A hard limit that is too low for all votes refuses the session before the first call.
func TestVotesUnderAHardLimit(t *testing.T) {
	tariff := spend.Flat(1000, 1000) // picodollars for each token
	for _, tt := range []struct {
		limit float64
		fits  bool
	}{{1e-6, false}, {1, true}} {
		h := build(t, voters(), func(o *pipeline.Options) {
			o.Book = spend.NewBook(spend.Options{Hard: true, Tariff: func(string) (spend.Tariff, bool) { return tariff, true }})
			o.MaxCostUSD = &tt.limit
			o.ReviewSampling.MaxOutputTokens = new(1000)
		})
		_, err := h.Run(t.Context(), h.plan(t, ballot()), nil, nil)
		e, refused := errors.AsType[*council.Error](err)
		if refused == tt.fits || refused && (e.Code != council.CodeInvalid || e.Paid > 0 || h.requests() > 0) {
			t.Errorf("with a limit of %v: %v after %d calls", tt.limit, err, h.requests())
		}
	}
}

// The estimate is an upper bound even for the longest and most awkward questions: no call of a session whose limit is the
// estimate lacks money.
func TestEstimateOfVotes(t *testing.T) {
	r := council.Request{Query: strings.Repeat("<&\" \n", 100)}
	for q := range 20 {
		question := council.VoteQuestion{Kind: council.VoteChoice, Instructions: strings.Repeat("<é\"\\\n", 20)}
		for i := range 26 {
			text := fmt.Sprintf("%c", 'a'+i)
			if q%2 == 1 {
				text = fmt.Sprintf("option \"%d\"\t\\ <&>", i)
			}
			question.Options = append(question.Options, council.VoteOption{Text: text})
		}
		r.Questions = append(r.Questions, question)
	}
	tariff := spend.Flat(1000, 1000)
	models := voters()
	for i := range models {
		models[i].Price = simllm.Price{Input: 0.001, Output: 0.001} // the provider charges the same
	}
	h := build(t, models, func(o *pipeline.Options) {
		o.Book = spend.NewBook(spend.Options{
			Hard: true, Day: new(1000 * spend.Dollar), Tariff: func(string) (spend.Tariff, bool) { return tariff, true },
		})
		o.ReviewSampling.MaxOutputTokens = new(1000)
	})
	if s := h.run(t, r); len(missing(s)) > 0 {
		t.Errorf("missing: %v", missing(s))
	}
}

// asks notes the prompts of the calls that pass through it.
type asks struct {
	council.Completer
	mu      sync.Mutex
	prompts []string
}

func (a *asks) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	a.mu.Lock()
	a.prompts = append(a.prompts, call.Messages[len(call.Messages)-1].Content)
	a.mu.Unlock()
	return a.Completer.Complete(ctx, call)
}

// A plan with one given answer has the seats vote on this answer, with its question.
func TestVotesOnAGivenAnswer(t *testing.T) {
	noted := &asks{}
	h := build(t, voters(), func(o *pipeline.Options) {
		noted.Completer = o.Completer
		o.Completer = noted
	})
	plan := h.plan(t, ballot())
	plan.Stages = append([]council.StagePlan{{
		Kind: council.KindGiven, Seats: []council.Member{{ID: "author"}}, Given: map[string]string{"author": "We are sorry."},
	}}, plan.Stages...)
	s, err := h.Run(t.Context(), plan, nil, nil)
	if err != nil || s.Votes[0].Votes[1] != 3 {
		t.Fatalf("%v, %+v", err, s)
	}
	for _, prompt := range noted.prompts {
		question := strings.Index(prompt, "I was charged twice.\n=== END QUESTION ")
		text := strings.Index(prompt, "We are sorry.\n=== END TEXT ")
		if question < 0 || text < question {
			t.Errorf("the prompt is %s", prompt)
		}
	}
	if len(noted.prompts) != 4 {
		t.Errorf("%d prompts", len(noted.prompts))
	}
}

// Another process asks only the seats whose replies are not in the log, and comes to the same votes.
func TestVotesAreContinued(t *testing.T) {
	count := &calls{count: map[string]int{}}
	h := build(t, voters(), func(o *pipeline.Options) {
		count.Completer = o.Completer
		o.Completer = count
	})
	plan := h.plan(t, ballot())
	plan.MarkerKey = "key"
	whole := &tape{}
	want, err := h.Run(t.Context(), plan, whole, whole.log(nil))
	if err != nil {
		t.Fatal(err)
	}
	for seat, n := range count.made() {
		if n != 1 {
			t.Errorf("%s was called %d times", seat, n)
		}
	}
	landed := 0
	for i, entry := range whole.entries {
		if entry.Type != council.EventCall {
			continue
		}
		landed++
		rest := &tape{}
		s, err := h.Run(t.Context(), plan, rest, rest.log(slices.Clone(whole.entries[:i+1])))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Votes, s.Votes); diff != "" {
			t.Error(diff)
		}
		if made := count.made(); len(made) != 4-landed {
			t.Errorf("after %d replies it made the calls %v", landed, made)
		}
	}
	if landed != 4 || !slices.Contains((&runlog.State{}).Stages(), council.StageVotes) {
		t.Errorf("%d replies in the log", landed)
	}
}
