package calls_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/councild/councild/internal/calls"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open is a Completer that answers every call, and notes it.
type open struct{ calls []council.Call }

func (o *open) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	if _, failure := call.Begin(ctx, council.Attempt{Number: 1}); failure != nil {
		return council.Completion{}, failure
	}
	o.calls = append(o.calls, call)
	return council.Completion{Text: "new"}, nil
}

func past(t *testing.T, events ...council.Event) []runlog.Entry {
	t.Helper()
	var past []runlog.Entry
	for _, e := range events {
		data, err := json.Marshal(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		past = append(past, runlog.Entry{Entry: council.Entry{Type: e.Type, Data: data}})
	}
	return past
}

// over returns the calls of a session whose log holds entries, and what its observer is told of calls that landed.
func over(t *testing.T, past []runlog.Entry) (*calls.Calls, *open, *[]council.Landed) {
	t.Helper()
	next, seen := &open{}, &[]council.Landed{}
	state := &runlog.State{Accepted: runlog.Accepted{Format: runlog.PlanFormat}, Entries: past}
	if err := state.Read(council.Plan{}); err != nil {
		t.Fatal(err)
	}
	book := spend.NewBook(spend.Options{Tariff: func(string) (spend.Tariff, bool) { return spend.Tariff{}, false }})
	account, failure := book.Open(t.Context(), spend.Opening{Session: "s"})
	if failure != nil {
		t.Fatal(failure)
	}
	return &calls.Calls{
		Provider: next, State: state, Account: account, Memory: calls.NewMemory(0, 0),
		Size: func(council.Call) council.Attempt { return council.Attempt{} },
		May:  func(context.Context, *council.Call) *council.Failure { return nil },
		Log:  &runlog.Log{State: state, Stored: func(context.Context) {}},
		Observe: func(_ council.EventType, data any) {
			if landed, ok := data.(council.Landed); ok {
				*seen = append(*seen, landed)
			}
		},
	}, next, seen
}

func spent(tokens int64) council.Spent {
	return council.Spent{LatencyMS: 1.5, Attempts: 1, Usage: council.Usage{OutputTokens: &tokens, CostUSD: new(0.25)}}
}

// What the events of a run tell comes back as the call returned it.
func TestReplay(t *testing.T) {
	timeout := &council.Failure{Code: council.FailTimeout, Message: "late", RetryAfterS: new(1.0)}
	none := council.Spent{Usage: council.NoUsage()}
	type reply struct {
		Text, Finish string
		Spent        council.Spent
		Failure      *council.Failure
	}
	interrupted := reply{Spent: none, Failure: &council.Failure{
		Code: council.FailInterrupted, Message: "not called: the result of the seat had landed",
	}}
	tests := []struct {
		name  string
		stage council.Stage
		seat  string
		event council.Event
		want  []reply // to the calls of the seat, in turn
	}{
		{
			"an answer", council.Stage1, "a#2", council.Event{Type: council.EventAnswer, Data: council.Answer{
				Model: "a#2", Status: council.OutcomeOK, Response: new("text"), FinishReason: new("stop"), Spent: spent(3),
			}}, []reply{{"text", "stop", spent(3), nil}},
		},
		{
			"a member that failed", council.Stage1, "a", council.Event{Type: council.EventAnswer, Data: council.Answer{
				Model: "a", Status: council.OutcomeError, Error: timeout, Spent: spent(0),
			}}, []reply{{"", "", spent(0), timeout}},
		},
		{
			"a ballot", council.Stage2, "a", council.Event{Type: council.EventBallot, Data: council.Review{
				Model: "a", Status: council.OutcomeOK, Ranking: new("A, B"), Spent: spent(3),
			}}, []reply{{"A, B", "", spent(3), nil}, interrupted},
		},
		{
			"a ballot with a repair", council.Stage2, "a", council.Event{Type: council.EventBallot, Data: council.Review{
				Model: "a", Status: council.OutcomeOK, Ranking: new("A?"), Repair: new("A, B"), FinishReason: new("stop"), Spent: spent(3),
			}}, []reply{{"A?", "stop", spent(3), nil}, {"A, B", "", none, nil}, interrupted},
		},
		{
			"an empty ballot", council.Stage2, "a", council.Event{Type: council.EventBallot, Data: council.Review{
				Model: "a", Status: council.OutcomeInvalid, Ranking: new(""), Spent: spent(3),
				Error: &council.Failure{Code: council.FailInvalidBallot, Message: "nothing"},
			}}, []reply{{"", "", spent(3), &council.Failure{Code: council.FailEmpty, Message: "the reply was empty"}}, interrupted},
		},
		{
			"a reviewer that failed", council.Stage2, "a", council.Event{Type: council.EventBallot, Data: council.Review{
				Model: "a", Status: council.OutcomeError, Spent: spent(3), Error: timeout,
			}}, []reply{{"", "", spent(3), timeout}},
		},
		{
			"a synthesis", council.Stage3, council.SeatChairman, council.Event{Type: council.EventStage3, Data: council.Synthesis{
				Model: "a", Status: council.OutcomeOK, Response: "text", FinishReason: new("stop"), Spent: spent(3),
			}}, []reply{{"text", "stop", spent(3), nil}, interrupted},
		},
		{
			"a chairman that failed", council.Stage3, council.SeatChairman,
			council.Event{Type: council.EventStage3, Data: council.Synthesis{
				Model: "b", Status: council.OutcomeFallback, Response: "of b", Spent: spent(3), Error: timeout,
			}},
			[]reply{{"", "", spent(3), timeout}, interrupted},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			started := council.Event{Type: council.EventStarted, Data: council.Started{Chairman: "a"}}
			r, next, seen := over(t, past(t, started, tt.event))
			for landed := range r.State.Landed() {
				if landed.Model != "a" || landed.Stage != tt.stage || landed.Seat != tt.seat {
					t.Errorf("landed is %+v", landed)
				}
			}
			call := council.Call{Stage: tt.stage, Seat: tt.seat, Model: "a"}
			call.OnDelta = func(string) { t.Error("a piece of text comes again") }
			var got []reply
			for range tt.want {
				c, err := r.Complete(t.Context(), call)
				got = append(got, reply{c.Text, c.FinishReason, c.Spent, council.AsFailure(err)})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if len(next.calls) > 0 || len(*seen) > 0 {
				t.Errorf("%d calls, %d events", len(next.calls), len(*seen))
			}
			// Another seat, and the same one in another stage, are asked.
			stages := []council.Stage{council.Stage1, council.Stage2, council.Stage3}
			other := stages[(slices.Index(stages, tt.stage)+1)%3]
			for _, c := range []council.Call{{Stage: tt.stage, Seat: "z"}, {Stage: other, Seat: tt.seat}} {
				if got, err := r.Complete(t.Context(), c); err != nil || got.Text != "new" {
					t.Errorf("%s %s: %q, %v", c.Stage, c.Seat, got.Text, err)
				}
			}
		})
	}
}

// A seat with several calls has them all in the log, and goes on behind the last one.
func TestSeveralCalls(t *testing.T) {
	call := council.Call{Stage: council.Stage3, Seat: council.SeatChairman, Model: "a"}
	r, _, seen := over(t, nil)
	for range 3 {
		if _, err := r.Complete(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	var numbers []int
	for _, l := range *seen {
		numbers = append(numbers, l.Number)
		if l.Stage != council.Stage3 || l.Seat != council.SeatChairman || l.Model != "a" || l.Completion.Text != "new" || l.Failure != nil {
			t.Errorf("landed is %+v", l)
		}
	}
	if diff := cmp.Diff([]int{1, 2, 3}, numbers); diff != "" {
		t.Error(diff)
	}

	again, next, seen := over(t, past(t, council.Event{Type: council.EventCall, Data: (*seen)[0]},
		council.Event{Type: council.EventCall, Data: (*seen)[1]}))
	var text string
	call.OnDelta = func(piece string) { text += piece }
	for range 3 {
		if _, err := again.Complete(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	if len(next.calls) != 1 || len(*seen) != 1 || (*seen)[0].Number != 3 {
		t.Errorf("%d calls, events %+v", len(next.calls), *seen)
	}
	// No result confirms the text of the calls that landed: it comes as a whole.
	if text != "newnew" {
		t.Errorf("the text is %q", text)
	}
}

// A call that was refused has not landed.
func TestRefusedCall(t *testing.T) {
	r, _, seen := over(t, nil)
	r.May = func(context.Context, *council.Call) *council.Failure {
		return &council.Failure{Code: council.FailInterrupted}
	}
	for range 2 {
		if _, err := r.Complete(t.Context(), council.Call{Stage: council.Stage3, Seat: council.SeatChairman}); err == nil {
			t.Error("the call is not refused")
		}
	}
	if len(*seen) > 0 {
		t.Errorf("landed: %+v", *seen)
	}
}

func TestDamaged(t *testing.T) {
	damaged := runlog.Entry{Entry: council.Entry{Type: council.EventAnswer, Data: []byte("{")}}
	state := &runlog.State{Entries: []runlog.Entry{damaged}}
	if err := state.Read(council.Plan{}); err == nil {
		t.Error("a damaged entry is passed over")
	}
}
