package pipeline_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/race"
)

func shadowed(o *pipeline.Options) { o.ShadowRate = 1 }

// ended runs a session and returns it with its plan.
func (h harness) ended(t *testing.T, r council.Request) (council.Plan, *council.Session) {
	t.Helper()
	plan := h.plan(t, r)
	session, err := h.Run(t.Context(), plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan, session
}

func TestShadow(t *testing.T) {
	h := build(t, members(5), shadowed, func(o *pipeline.Options) { o.Consent, o.HashSecret = 4, "s3cret" })
	plan, session := h.ended(t, council.Request{Category: "coding", Seed: new(int64(7))})
	before := session.Metadata.Usage
	calls := h.requests()
	record := h.Shadow(t.Context(), plan, session)
	if record == nil {
		t.Fatal("nobody was asked")
	}
	top := anonymize.Top(7, session.Metadata.AggregateRankings)
	answer := *session.Stage1[slices.IndexFunc(session.Stage1, func(a council.Answer) bool { return a.Model == top })].Response
	want := &council.ShadowRecord{
		SchemaVersion: "shadow/1", SessionID: session.ID, Timestamp: session.Created, Rate: 1, CouncilConfig: "review-1", Prompt: "shadow-1",
		Chairman: "amber", TopModel: top, QueryHash: h.notes.batches[0][0].QueryHash,
		Lengths:       council.ShadowLengths{Synthesis: utf8.RuneCountInString(session.Answer), Top: utf8.RuneCountInString(answer)},
		QueryMetadata: h.notes.batches[0][0].QueryMetadata,
	}
	first := anonymize.SynthesisFirst(7)
	for _, seat := range plan.Reviewers() {
		if seat.ID == "amber" || seat.ID == top {
			continue
		}
		r := council.ShadowReview{ID: seat.ID, First: council.ChoiceTop, Status: council.OutcomeOK}
		if first {
			r.First = council.ChoiceSynthesis
		}
		first = !first
		want.Reviewers = append(want.Reviewers, r)
	}
	for i := range record.Reviewers {
		if c := record.Reviewers[i].Choice; c == nil || c.Value() == nil {
			t.Errorf("%s chose %v", record.Reviewers[i].ID, c)
		}
		record.Reviewers[i].Choice = nil
	}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("-want +record:\n%s", diff)
	}
	if n := h.requests() - calls; n != len(want.Reviewers) {
		t.Errorf("%d calls for %d reviewers", n, len(want.Reviewers))
	}
	if diff := cmp.Diff(before, session.Metadata.Usage); diff != "" {
		t.Errorf("the usage of the session has changed:\n%s", diff)
	}
	if len(h.notes.batches) != 1 {
		t.Errorf("%d batches of bias records, want that of the session alone", len(h.notes.batches))
	}
}

// Two seats of a model are one author: neither is asked about its text.
func TestShadowAsksNoSeatOfAnAuthor(t *testing.T) {
	h := build(t, members(3), shadowed, func(o *pipeline.Options) {
		o.Models, o.Reviewers = []string{"birch", "cedar"}, []string{"amber", "amber", "birch", "cedar"}
		o.Chairman = "amber"
	})
	plan, session := h.ended(t, council.Request{})
	record := h.Shadow(t.Context(), plan, session)
	if record == nil || len(record.Reviewers) != 1 || record.Reviewers[0].ID == record.TopModel || record.Reviewers[0].ID == "amber" {
		t.Errorf("%+v, want one reviewer that wrote neither text", record)
	}
}

func TestShadowExceptions(t *testing.T) {
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 400}
	prose := simllm.Fault{Kind: simllm.BallotProse}
	echo := func(task simllm.Task) (string, bool) {
		if task.Kind == simllm.Synthesis {
			return "Simulated. The same text.\n", true
		}
		return "Simulated. The same text.", task.Kind == simllm.Question
	}
	same := members(4)
	for i := range same {
		same[i].Reply = echo
	}
	noSynthesis, noBallots := members(4), members(4)
	noSynthesis[0] = with(noSynthesis[0], simllm.Fault{Kind: down.Kind, Status: down.Status, Tasks: []simllm.TaskKind{simllm.Synthesis}})
	for i := range noBallots {
		noBallots[i] = with(noBallots[i], prose)
	}
	labelled := func(o *pipeline.Options) { o.LabelRate = 1 }
	for _, c := range []struct {
		name    string
		models  []simllm.Model
		options func(*pipeline.Options)
		request council.Request
		want    int // reviewers; -1: no record
	}{
		{"compared", members(4), shadowed, council.Request{}, 2},
		{"not drawn", members(4), func(*pipeline.Options) {}, council.Request{}, -1},
		{"people are asked", members(4), labelled, council.Request{}, 2},
		{"no records are kept", members(4), func(o *pipeline.Options) { o.ShadowRate, o.Consent = 1, 0 }, council.Request{}, -1},
		{"a fallback wrote", noSynthesis, shadowed, council.Request{}, -1},
		{"no ranking", noBallots, shadowed, council.Request{}, -1},
		{"equal texts", same, shadowed, council.Request{}, -1},
		{"a schema", members(4), shadowed, council.Request{OutputSchema: []byte(`{"type":"object"}`)}, -1},
		{"one model alone", members(4), shadowed, council.Request{Direct: true, Models: []string{"birch"}}, -1},
		{"nobody is left", members(3), func(o *pipeline.Options) { o.ShadowRate, o.Reviewers = 1, o.Models[:1] }, council.Request{}, -1},
		{
			"nobody is left, and people are asked", members(3),
			func(o *pipeline.Options) { o.LabelRate, o.Reviewers = 1, o.Models[:1] },
			council.Request{},
			0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := build(t, c.models, c.options)
			plan, session := h.ended(t, c.request)
			calls := h.requests()
			record := h.Shadow(t.Context(), plan, session)
			switch {
			case record == nil && c.want >= 0:
				t.Fatalf("nothing was recorded, want %d reviewers", c.want)
			case record != nil && len(record.Reviewers) != c.want:
				t.Fatalf("%+v, want %d reviewers", record, c.want)
			case record != nil && record.Wanted != session.Metadata.LabelWanted:
				t.Error("the record and the session do not agree on whether people are asked")
			}
			if n := h.requests() - calls; n != max(c.want, 0) {
				t.Errorf("%d calls, want %d", n, c.want)
			}
		})
	}
}

// What a session has left of its limits is all that a comparison has.
func TestShadowBudget(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		h := build(t, members(4), shadowed)
		plan, session := h.ended(t, council.Request{})
		used := session.Metadata.Usage
		limit := func(left int64) {
			if tokens {
				plan.MaxTotalTokens = new(used.Total.Tokens() + left)
			} else {
				plan.MaxCostUSD = new(*used.CostUSD + 1e-9*float64(left))
			}
		}
		limit(0)
		calls := h.requests()
		if record := h.Shadow(t.Context(), plan, session); record != nil || h.requests() != calls {
			t.Errorf("with nothing left of the budget: %+v, %d calls", record, h.requests()-calls)
		}
		limit(1)
		if record := h.Shadow(t.Context(), plan, session); record == nil {
			t.Error("with something left of the budget nobody was asked")
		}
	}
}

// ledger is a ledger in memory.
type ledger struct {
	mu    sync.Mutex // guards lines
	lines []ledgerLine
}

type ledgerLine struct {
	Type, Session string
	Limit         *float64 `json:"limit_usd"`
}

func (l *ledger) Append(_ context.Context, _ bool, lines ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range lines {
		var line ledgerLine
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		l.lines = append(l.lines, line)
	}
	return nil
}

// A comparison has an account of its own, and does not begin where the limits of the day leave no room.
func TestShadowAccount(t *testing.T) {
	kept := &ledger{}
	var refuses atomic.Bool
	h := build(t, members(4), shadowed, func(o *pipeline.Options) {
		o.Book = spend.NewBook(spend.Options{
			Ledger: kept, Tariff: func(string) (spend.Tariff, bool) { return spend.Tariff{}, false },
			TokenLimit: func(string) *spend.USD {
				if refuses.Load() {
					return new(spend.USD)
				}
				return nil
			},
		})
	})
	plan, session := h.ended(t, council.Request{MaxCostUSD: new(5.0)})
	if record := h.Shadow(t.Context(), plan, session); record == nil {
		t.Fatal("nobody was asked")
	}
	id := session.ID + council.ShadowSuffix
	opened, closed := kept.lines[len(kept.lines)-2], kept.lines[len(kept.lines)-1]
	if opened.Type != "open" || closed.Type != "close" || opened.Session != id || closed.Session != id {
		t.Errorf("%+v, %+v", opened, closed)
	}
	if left := 5 - *session.Metadata.Usage.CostUSD; math.Abs(*opened.Limit-left) > 1e-9 {
		t.Errorf("it may cost %v, want %v", *opened.Limit, left)
	}
	calls := h.requests()
	refuses.Store(true)
	if record := h.Shadow(t.Context(), plan, session); record != nil || h.requests() != calls {
		t.Errorf("over the budget of the day: %+v, %d calls", record, h.requests()-calls)
	}
}

// A comparison that is cut off leaves nothing: those that had answered would be the fastest.
func TestShadowThatIsCut(t *testing.T) {
	models := members(4)
	for i := 1; i < len(models); i++ {
		models[i] = with(models[i], simllm.Fault{Kind: simllm.FaultHang, Tasks: []simllm.TaskKind{simllm.Choice}})
	}
	h := build(t, models, shadowed)
	plan, session := h.ended(t, council.Request{})
	ctx, cancel := context.WithCancel(t.Context())
	done, calls := make(chan *council.ShadowRecord), h.requests()
	go func() { done <- h.Shadow(ctx, plan, session) }()
	for h.requests() == calls {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if record := <-done; record != nil {
		t.Errorf("%+v", record)
	}
}

// Reviewers that take as long as real ones are waited for within the time of a stage 2. One that takes longer made no
// choice, and keeps none of the others from being counted.
func TestShadowAtRealSpeed(t *testing.T) {
	for slowest, status := range map[time.Duration]council.Outcome{
		150 * time.Second: council.OutcomeOK, 15 * time.Minute: council.OutcomeError,
	} {
		race.Bubble(t, func(t *testing.T) {
			var shadow atomic.Bool
			late := ""
			h := bubble(t, members(5), taking(func(model string, _ simllm.TaskKind) time.Duration {
				switch {
				case !shadow.Load():
					return 20 * time.Second
				case model == late:
					return slowest
				default:
					return 60 * time.Second
				}
			}), shadowed)
			plan, session := h.ended(t, council.Request{})
			top := anonymize.Top(plan.Seed, session.Metadata.AggregateRankings)
			for _, seat := range plan.Reviewers() {
				if seat.ID != top && seat.ID != session.Stage3.Model {
					late = seat.Model
				}
			}
			shadow.Store(true)
			begun := time.Now()
			record := h.Shadow(t.Context(), plan, session)
			took := time.Since(begun)
			if record == nil || len(record.Reviewers) < 3 {
				t.Fatalf("after %v: %+v", took, record)
			}
			for _, r := range record.Reviewers {
				want := council.OutcomeOK
				if r.ID == late {
					want = status
				}
				if r.Status != want || (r.Choice != nil) != (want == council.OutcomeOK) {
					t.Errorf("%s: %s, %v", r.ID, r.Status, r.Choice)
				}
			}
			if least := min(slowest, 3*time.Minute); took < least || took > least+time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
