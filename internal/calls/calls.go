// Package calls performs the calls of one session. Every call from a stage to a model goes through [Calls]. If the
// session's log has the outcome of a call, [Calls] returns that outcome. For any other call, [Calls] checks that the
// session still belongs to this process, that the session's memory has room for the prompt and the reply, and that the
// session's account has money. [Calls] also notes in the log that the call begins.
//
// If a request has a JSON Schema, [SchemaCompleter] makes the calls for the final answer. It validates each reply,
// and asks once more if the first reply does not fit.
//
// The stages make the prompts and interpret the answers. The provider sends and retries the requests.
//
// # Decisions
//
// To continue a session is to run it again. A run with the same plan makes the same calls in the same stages, so
// another process only needs a Completer that knows which calls have an outcome in the log. The stages do not know
// whether they run again.
//
// Each session has a memory limit of its own (config.Constants). The session's texts and its prompts in flight count
// against this limit. Without the limit, only the product of all other limits would bound the memory of a session, and
// no machine has that much memory.
//
// Schemas come from callers and replies come from models, and both may be hostile. Limits on sizes and on the number of
// steps bound the work on schemas and replies. The work also ends when its context ends (schema_budget.go). A compiled
// schema may take 40 MB, so sessions keep only its text and compile it again for each reply.
package calls

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/spend"
)

// Calls is the Completer of one session. It is safe for concurrent use.
type Calls struct {
	Session string // the id of the session
	// Provider sends the requests. It calls Call.Begin before each request.
	Provider council.Completer
	// Size returns the first request of a call, as Provider would send it. Size is required if Log is set.
	Size    func(call council.Call) council.Attempt
	Account *spend.Account
	Memory  *Memory
	// Settings names the settings in messages.
	Settings council.SettingNames

	// Only a session with a log sets the fields from here on. In any other session, Log is nil.
	Log   *runlog.Log
	State *runlog.State
	// May returns why no call may begin now, or nil. It is called before each call, and before each of its requests.
	May     func(ctx context.Context, call *council.Call) *council.Failure
	Observe func(t council.EventType, data any)
	// Last says that the session makes no further call, as in runlog.Log.
	Last bool

	mu       sync.Mutex // guards all fields below
	seats    map[runlog.Seat]*seat
	begun    map[runlog.Place]bool // calls that this process has begun
	guessed  map[runlog.Seat]bool  // seats for which guess has charged a call of an earlier process
	repeated []string              // seats, and in stage 3 models, whose calls are made again
}

// seat has the calls that a seat has made in this process. A seat makes one call after the other.
type seat struct {
	count int
	// first is the outcome of the first call. Calls passes it to Observe only if a second call follows. If no second
	// call follows, the event with the seat's result contains the outcome.
	first *council.Landed
}

// Complete implements council.Completer. A call with an outcome in the log returns at once, even after the end of ctx.
// If the session's memory has no room for the text of a reply, the call fails. A panic in the call becomes its failure.
func (c *Calls) Complete(ctx context.Context, call council.Call) (completion council.Completion, err error) {
	defer func() {
		if v := recover(); v != nil {
			completion = council.Completion{}
			err = council.Panicked(v)
		}
	}()
	call.Session = c.Session
	if c.Log == nil {
		return c.perform(ctx, call)
	}
	at := runlog.Seat{Stage: call.Stage, Name: call.Seat}
	mine := c.of(at)
	mine.count++
	place := runlog.Place{Seat: at, Number: mine.count}
	if landed, ok := c.State.Outcome(place); ok {
		// Without a result of the seat, the client does not know whether the earlier pieces are still valid.
		if call.OnDelta != nil && landed.Failure == nil && !c.State.Over(at) {
			call.OnDelta(landed.Completion.Text)
		}
		if landed.Failure != nil {
			return landed.Completion, landed.Failure
		}
		return landed.Completion, nil
	}
	if c.State.Over(at) {
		return free(), interrupted("the result of the seat had landed")
	}
	if mine.first != nil {
		c.Observe(council.EventCall, *mine.first)
		mine.first = nil
	}
	if c.State.Begun(place) {
		c.mu.Lock()
		c.noteLocked(call)
		c.mu.Unlock()
	}
	c.guess(ctx, call)
	if failure := c.May(ctx, &call); failure != nil {
		return free(), failure
	}
	if c.announce([]runlog.Place{place}, []council.Call{call}) || place.Number > 1 {
		c.Log.Stored(ctx)
	}
	if c.Log.Calling != nil {
		defer c.Log.Calling()()
	}
	completion, err = c.perform(ctx, call)
	outcome := council.Landed{
		Stage: call.Stage, Seat: call.Seat, Number: place.Number, Model: call.Model,
		Completion: completion, Failure: council.AsFailure(err),
	}
	switch {
	case outcome.Failure != nil && outcome.Failure.Code == council.FailInterrupted: // The call was not made.
	// Sides and votes have no event that would hold their first call.
	case place.Number == 1 && !call.Stage.IsSide() && call.Stage != council.StageVotes:
		mine.first = &outcome
	default:
		c.Observe(council.EventCall, outcome)
	}
	return completion, err
}

// of returns the calls that a seat has made in this process.
func (c *Calls) of(at runlog.Seat) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seats == nil {
		c.seats = map[runlog.Seat]*seat{}
	}
	if c.seats[at] == nil {
		c.seats[at] = &seat{}
	}
	return c.seats[at]
}

// free returns the completion of a call that was not made.
func free() council.Completion {
	return council.Completion{Spent: council.Spent{Usage: council.NoUsage()}}
}

func interrupted(why string) *council.Failure {
	return &council.Failure{Code: council.FailInterrupted, Message: "not called: " + why}
}

// noteLocked notes for Repeated that an earlier process may have made a call. The caller holds mu.
func (c *Calls) noteLocked(call council.Call) {
	name := call.Seat
	if call.Stage == council.Stage3 { // Stage 3 has one seat, in which models take turns.
		name = call.Model
	}
	if !slices.Contains(c.repeated, name) {
		c.repeated = append(c.repeated, name)
	}
}

// Announce notes in the log the calls that a stage makes first, and waits until the log is stored. The stage makes
// these calls afterwards. Announce does nothing if the session has no log.
func (c *Calls) Announce(ctx context.Context, calls []council.Call) {
	if c.Log == nil {
		return
	}
	places := make([]runlog.Place, len(calls))
	for i, call := range calls {
		places[i] = runlog.Place{Seat: runlog.Seat{Stage: call.Stage, Name: call.Seat}, Number: 1}
		if _, landed := c.State.Outcome(places[i]); !landed && !c.State.Over(places[i].Seat) {
			c.guess(ctx, call)
		}
	}
	c.announce(places, calls)
	c.Log.Stored(ctx)
}

// guess charges a call that an earlier process may have begun, once for each seat. It is for logs of earlier builds,
// which do not say which calls began. It can be removed after 0.1.0.
func (c *Calls) guess(ctx context.Context, call council.Call) {
	at := runlog.Seat{Stage: call.Stage, Name: call.Seat}
	if !c.State.Guesses(at) {
		return
	}
	c.mu.Lock()
	guessed := c.guessed[at]
	if !guessed {
		if c.guessed == nil {
			c.guessed = map[runlog.Seat]bool{}
		}
		c.guessed[at] = true
		c.noteLocked(call)
	}
	c.mu.Unlock()
	if !guessed {
		bound, tokens := c.Account.Bound(&call, c.Size(call))
		c.Account.Lose(ctx, spend.Lost{
			Stage: call.Stage, Seat: call.Seat, Model: call.Model, Bound: bound, Tokens: tokens,
		})
	}
}

// announce reports to Observe that calls begin. It leaves out calls with an outcome in the log, and calls that have
// begun already. It reports whether any calls remain.
func (c *Calls) announce(places []runlog.Place, calls []council.Call) bool {
	if c.Last {
		return false
	}
	var begun council.Begun
	c.mu.Lock()
	for i, place := range places {
		_, landed := c.State.Outcome(place)
		if landed || c.State.Over(place.Seat) || c.State.Begun(place) || c.begun[place] {
			continue
		}
		if c.begun == nil {
			c.begun = map[runlog.Place]bool{}
		}
		c.begun[place] = true
		bound, tokens := c.Account.Bound(&calls[i], c.Size(calls[i]))
		begun.Calls = append(begun.Calls, council.BegunCall{
			Stage: place.Stage, Seat: place.Name, Number: place.Number, Model: calls[i].Model,
			Bound: (*int64)(bound), Tokens: tokens,
		})
	}
	c.mu.Unlock()
	if len(begun.Calls) == 0 {
		return false
	}
	c.Observe(council.EventBegun, begun)
	return true
}

// perform has the provider perform a call. The bytes of the prompt stay reserved until the call ends.
func (c *Calls) perform(ctx context.Context, call council.Call) (completion council.Completion, err error) {
	var prompt int64
	for _, message := range call.Messages {
		prompt += int64(len(message.Content))
	}
	for _, text := range call.Texts {
		prompt += int64(len(text))
	}
	if !c.Memory.Hold(prompt) {
		return free(), c.full("not called: with the prompt")
	}
	completion, err = c.send(ctx, call, prompt)
	c.Account.Count(call.Stage, call.Model, completion.Usage)
	if err == nil && !c.Memory.Hold(int64(len(completion.Text))) {
		completion.Text = ""
		err = c.full("not kept: with the reply")
	}
	if err != nil || !c.Memory.Hold(int64(len(completion.Reasoning))) { // The session can do without the reasoning.
		completion.Reasoning = ""
	}
	return completion, err
}

func (c *Calls) send(ctx context.Context, call council.Call, prompt int64) (council.Completion, error) {
	defer c.Memory.Release(prompt) // It also runs when the call panics.
	asked := call
	call.Begin = func(ctx context.Context, a council.Attempt) (council.Receipt, *council.Failure) {
		if c.May != nil {
			if failure := c.May(ctx, &asked); failure != nil {
				return nil, failure
			}
		}
		return c.Account.Begin(ctx, &asked, a)
	}
	return c.Provider.Complete(ctx, call)
}

func (c *Calls) full(what string) *council.Failure {
	return &council.Failure{
		Code: council.FailTooLarge,
		Message: fmt.Sprintf("%s the session would be larger than %d bytes: ask for shorter texts, lower %s, or "+
			"ask fewer members",
			what, c.Memory.Limit, c.Settings.Of(council.SettingMaxOutputTokens)),
	}
}

// Resume charges the calls of earlier processes that the log holds: calls with an outcome, and calls that were in
// flight. The run calls it once, before the first call.
func (c *Calls) Resume(ctx context.Context) {
	landed := slices.Collect(c.State.Landed())
	for _, l := range landed {
		c.Memory.Hold(int64(len(l.Completion.Text) + len(l.Completion.Reasoning)))
		c.Account.Count(l.Stage, l.Model, l.Completion.Usage)
	}
	inFlight := c.State.InFlight()
	lost := make([]spend.Lost, 0, len(inFlight))
	for _, b := range inFlight {
		lost = append(lost, spend.Lost{
			Stage: b.Stage, Seat: b.Seat, Model: b.Model, Bound: (*spend.USD)(b.Bound), Tokens: b.Tokens,
		})
	}
	c.Account.Recover(ctx, landed, lost)
}

// Repeated returns the names of the seats whose calls were made again after a takeover, separated by commas. In stage 3
// these are names of models. It returns "" if no call was made again.
func (c *Calls) Repeated() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(c.repeated)), ", ")
}
