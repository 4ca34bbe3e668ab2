package runlog

import (
	"context"
	"sync"

	"github.com/councild/councild/internal/council"
)

// Replies answers the calls of a run from what landed when the run was carried out before. A run that is carried out again
// from its beginning then pays for no call twice whose outcome its log holds. The stages know nothing of it.
type Replies struct {
	// Next performs the calls that did not land.
	Next council.Completer
	// State says what landed.
	State *State
	// Observe is told of the outcomes that no other event of the run tells: of every
	// call of a seat that makes more than one in a stage. It is called concurrently for
	// different seats.
	Observe func(council.Landed)
	// Stored waits until everything that was observed so far is stored, as in Log.
	Stored func(ctx context.Context)

	mu    sync.Mutex // guards seats
	seats map[Seat]*calls
}

// calls are the calls that a seat has made in this process. The calls of one seat come
// one after the other.
type calls struct {
	count int
	first *council.Landed // the outcome of the first call, while no event tells it
}

// Complete implements council.Completer. A call that landed returns at once, also when
// ctx has ended. The second call of a seat waits until the outcome of the first is stored,
// and so on.
func (r *Replies) Complete(ctx context.Context, c council.Call) (council.Completion, error) {
	at := Seat{c.Stage, c.Seat}
	mine := r.of(at)
	mine.count++
	this := Place{at, mine.count}
	if landed, ok := r.State.Outcome(this); ok {
		if c.OnDelta != nil && landed.Failure == nil && !r.State.Over(at) { // no result confirms the pieces that came before
			c.OnDelta(landed.Completion.Text)
		}
		return result(landed)
	}
	if r.State.Over(at) {
		return council.Completion{Spent: council.Spent{Usage: council.NoUsage()}}, &council.Failure{
			Code: council.FailInterrupted, Message: "not called: the result of the seat had landed",
		}
	}
	if mine.first != nil {
		r.Observe(*mine.first)
		mine.first = nil
	}
	if this.Number > 1 {
		r.Stored(ctx)
	}
	completion, err := r.Next.Complete(ctx, c)
	outcome := council.Landed{
		Stage: c.Stage, Seat: c.Seat, Number: this.Number, Model: c.Model, Completion: completion, Failure: council.AsFailure(err),
	}
	switch {
	case outcome.Failure != nil && outcome.Failure.Code == council.FailInterrupted: // the call was not made
	case this.Number == 1 && !c.Stage.IsSide(): // no event of the run tells of the calls of sides
		mine.first = &outcome
	default:
		r.Observe(outcome)
	}
	return completion, err
}

// of returns the calls of a seat.
func (r *Replies) of(at Seat) *calls {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seats == nil {
		r.seats = map[Seat]*calls{}
	}
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
