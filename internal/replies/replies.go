// Package replies answers the calls of a run from what landed when the run was carried
// out before. A run that is carried out again from its beginning then pays for no call
// twice whose outcome its log holds. The stages know nothing of it.
//
// It leaves to others what a run does, where its log is stored, and whether a call that
// did not land may be made again.
package replies

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"

	"github.com/councild/councild/internal/council"
)

// Options are what Replies works with. All fields are required.
type Options struct {
	// Next performs the calls that did not land.
	Next council.Completer
	// ModelOf returns the model of a member id.
	ModelOf func(member string) string
	// Observe is told of the outcomes that no other event of the run tells: of every
	// call of a seat that makes more than one in a stage. It is called concurrently for
	// different seats.
	Observe func(council.Landed)
	// Stored waits until everything that was observed so far is stored, as in
	// council.Log.
	Stored func(ctx context.Context)
}

// Replies is a council.Completer over what landed. A call is found by its stage, its
// seat, and its number among the calls of the seat in the stage.
type Replies struct {
	Options
	landed map[call]council.Landed
	over   map[seat]bool // seats whose result landed: they make no call any more

	mu    sync.Mutex // guards seats
	seats map[seat]*calls
}

// seat is a seat in a stage.
type seat struct {
	stage council.Stage
	name  string // as in council.Call
}

// call is one call of a seat.
type call struct {
	seat
	number int // from 1
}

// calls are the calls that a seat has made in this process. The calls of one seat come
// one after the other.
type calls struct {
	count int
	first *council.Landed // the outcome of the first call, while no event tells it
}

// New returns Replies over the entries of a log. It returns an error when one of them
// cannot be read.
func New(past []council.Past, o Options) (*Replies, error) {
	r := &Replies{
		Options: o, landed: map[call]council.Landed{}, over: map[seat]bool{}, seats: map[seat]*calls{},
	}
	var chairman string // the id of the first one
	for _, entry := range past {
		event, err := entry.Decode()
		if err != nil {
			return nil, fmt.Errorf("reading the log of a run: %w", err)
		}
		switch data := event.Data.(type) {
		case council.Started:
			chairman = data.Chairman
		case council.Landed:
			r.landed[call{seat{data.Stage, data.Seat}, data.Number}] = data
		case council.Answer:
			r.addAnswer(data)
		case council.Review:
			r.addReview(data)
		case council.Synthesis:
			r.addSynthesis(data, chairman)
		}
	}
	return r, nil
}

func (r *Replies) addAnswer(a council.Answer) {
	at := seat{council.Stage1, a.Model}
	r.over[at] = true
	if _, known := r.landed[call{at, 1}]; known { // and with it the repair
		return
	}
	r.add(at, 1, r.ModelOf(a.Model), council.Completion{
		Text: text(a.Response), Reasoning: text(a.Reasoning), FinishReason: text(a.FinishReason), Spent: a.Spent,
	}, a.Error)
}

func (r *Replies) addReview(v council.Review) {
	at := seat{council.Stage2, v.Model}
	r.over[at] = true
	model := r.ModelOf(v.Model)
	_, known := r.landed[call{at, 1}]
	switch {
	case v.Status == council.OutcomeError:
		delete(r.landed, call{at, 1})
		delete(r.landed, call{at, 2})
		r.add(at, 1, model, council.Completion{Spent: v.Spent}, v.Error)
	case known: // and with it the repair, if there was one
	default:
		reply := council.Completion{
			Text: text(v.Ranking), Reasoning: text(v.Reasoning), FinishReason: text(v.FinishReason), Spent: v.Spent,
		}
		var failure *council.Failure
		if reply.Text == "" {
			failure = &council.Failure{Code: council.FailEmpty, Message: "the reply was empty"}
		}
		r.add(at, 1, model, reply, failure)
		if v.Repair != nil { // the first call has the time and usage of both
			r.add(at, 2, model, council.Completion{Text: *v.Repair, Spent: nothing()}, nil)
		}
	}
}

func (r *Replies) addSynthesis(s council.Synthesis, chairman string) {
	at := seat{council.Stage3, council.SeatChairman}
	r.over[at] = true
	if _, known := r.landed[call{at, 1}]; known {
		return
	}
	// Only the chairman was asked.
	reply := council.Completion{Spent: s.Spent}
	if s.Error == nil {
		reply.Text = s.Response
		reply.Reasoning = text(s.Reasoning)
		reply.FinishReason = text(s.FinishReason)
	}
	r.add(at, 1, r.ModelOf(chairman), reply, s.Error)
}

func (r *Replies) add(at seat, number int, model string, reply council.Completion, failure *council.Failure) {
	r.landed[call{at, number}] = council.Landed{
		Stage: at.stage, Seat: at.name, Number: number, Model: model, Completion: reply, Failure: failure,
	}
}

// Landed returns the outcome of every call that landed, in no particular order.
func (r *Replies) Landed() iter.Seq[council.Landed] { return maps.Values(r.landed) }

// Complete implements council.Completer. A call that landed returns at once, also when
// ctx has ended. The second call of a seat waits until the outcome of the first is stored,
// and so on.
func (r *Replies) Complete(ctx context.Context, c council.Call) (council.Completion, error) {
	at := seat{c.Stage, c.Seat}
	mine := r.of(at)
	mine.count++
	this := call{at, mine.count}
	if landed, ok := r.landed[this]; ok {
		if c.OnDelta != nil && landed.Failure == nil && !r.over[at] { // no result confirms the pieces that came before
			c.OnDelta(landed.Completion.Text)
		}
		return result(landed)
	}
	if r.over[at] {
		return council.Completion{Spent: nothing()}, &council.Failure{
			Code: council.FailInterrupted, Message: "not called: the result of the seat had landed",
		}
	}
	if mine.first != nil {
		r.Observe(*mine.first)
		mine.first = nil
	}
	if this.number > 1 {
		r.Stored(ctx)
	}
	completion, err := r.Next.Complete(ctx, c)
	outcome := council.Landed{
		Stage: c.Stage, Seat: c.Seat, Number: this.number, Model: c.Model, Completion: completion, Failure: council.AsFailure(err),
	}
	switch {
	case outcome.Failure != nil && outcome.Failure.Code == council.FailInterrupted: // the call was not made
	case this.number == 1 && !c.Stage.IsSide(): // no event of the run tells of the calls of sides
		mine.first = &outcome
	default:
		r.Observe(outcome)
	}
	return completion, err
}

// of returns the calls of a seat.
func (r *Replies) of(at seat) *calls {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seats[at] == nil {
		r.seats[at] = &calls{}
	}
	return r.seats[at]
}

// result returns an outcome as a Completer does.
func result(l council.Landed) (council.Completion, error) {
	if l.Failure != nil {
		return l.Completion, l.Failure
	}
	return l.Completion, nil
}

// nothing returns what no call at all takes.
func nothing() council.Spent { return council.Spent{Usage: council.NoUsage()} }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
