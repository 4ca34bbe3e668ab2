package runlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
)

// The entries of a log that are about the whole session. Clients do not see them.
const (
	TypeAccepted  council.EventType = "session.accepted"         // data: Accepted, the head of every log
	TypeClaimed   council.EventType = "session.claimed"          // data: Claimed
	TypeCancelled council.EventType = "session.cancel_requested" // data: null
	TypeReleased  council.EventType = "session.released"         // data: null
	// TypeResult has the session as its data. It comes before the event that says why the session failed.
	TypeResult council.EventType = "session.result"
)

// Accepted is the data of TypeAccepted.
type Accepted struct {
	Format int          `json:"format"` // PlanFormat
	Plan   council.Plan `json:"session"`
	Old    oldPlan      `json:"plan"`
	// Digest is the digest of the request. It identifies a repeated request.
	Digest     []byte `json:"digest"`
	Background bool   `json:"background"`
}

// NewAccepted returns the head of a log.
func NewAccepted(plan council.Plan, digest []byte, background bool) Accepted {
	return Accepted{Format: PlanFormat, Plan: plan, Old: unreadable(plan), Digest: digest, Background: background}
}

// Claimed is the data of TypeClaimed.
type Claimed struct {
	Node  string `json:"node"`
	Epoch int    `json:"epoch"`
	// Crashes is how many processes in a row crashed before this claim while the session worked. It is nil in logs of
	// earlier versions, in which every change of the owner counts as a crash.
	Crashes *int `json:"crashes,omitempty"`
}

// Append is the content of one append to a log.
type Append struct {
	Node    string    // the node that owns the session afterwards, or ""
	At      time.Time // when it was stored
	Entries []council.Entry
}

// Entry is an entry of the log about the run. Entries about the whole session, such as TypeClaimed, are not in
// State.Entries.
type Entry struct {
	council.Entry
	// At is the duration of the run until the entry was stored, over all processes together.
	At time.Duration
}

// State holds what the log of one session says. The zero value is the state of an empty log. It is not safe for
// concurrent use.
type State struct {
	Accepted
	Owner string // the node that owns the session, or "" after a release
	// Owners counts the owners of the session since it was last released.
	Owners int
	// Crashes is Claimed.Crashes of the last claim since the last release.
	Crashes   int
	Released  bool // the last owner released the session
	Cancelled bool // a request asked to cancel the session
	// Elapsed is how long the session has had an owner, in total.
	Elapsed time.Duration
	// Result is set if the run failed. It is the JSON of the session with everything that the session had.
	Result  json.RawMessage
	Entries []Entry // the entries about the run, in their order

	last  time.Time // when the last message was stored
	known bool      // true after the first message
	run   *run      // the result of Read, or nil before it
}

// Apply adds the next message of the log to the state. The error says why the head of the log cannot be read.
// [State.Read] reports errors in the entries of the run.
func (s *State) Apply(m Append) error {
	if !s.known {
		s.known = true
		s.last = m.At
		s.Owners = 1
	}
	step := max(0, m.At.Sub(s.last)) // the clock may have been set back
	s.last = m.At
	at := s.Elapsed
	if !s.Released {
		at += step
	}
	for _, e := range m.Entries {
		switch e.Type {
		case TypeAccepted:
			var err error
			if s.Accepted, err = readAccepted(e.Data); err != nil {
				return fmt.Errorf("reading the head of a session's log: %w", err)
			}
		case TypeClaimed:
			at = s.Elapsed
			// Without a release, a claim by the current owner repeats a claim whose reply the owner did not get.
			if s.Released || m.Node != s.Owner {
				s.Owners++
				s.Crashes = crashesAt(e.Data, s.Crashes)
			}
			s.Released = false
		case TypeReleased:
			s.Owners = 0
			s.Crashes = 0
			s.Released = true
		case TypeCancelled:
			s.Cancelled = true
		case TypeResult:
			s.Result = e.Data
		default:
			s.Entries = append(s.Entries, Entry{e, at})
		}
	}
	s.Elapsed = at
	if s.Released {
		s.Owner = ""
	} else if n := len(m.Entries); n == 0 || m.Entries[n-1].Type != TypeCancelled { // any node may ask to cancel
		s.Owner = m.Node
	}
	return nil
}

// crashesAt returns the number of crashes in a claim. The argument before is the number of crashes in the previous
// claim.
func crashesAt(data json.RawMessage, before int) int {
	var c Claimed
	if json.Unmarshal(data, &c) != nil || c.Crashes == nil {
		return before + 1
	}
	return *c.Crashes
}

// Ended returns the last entry of the log. It returns false if the session has not ended.
func (s *State) Ended() (last council.Entry, ok bool) {
	if len(s.Entries) == 0 {
		return last, false
	}
	last = s.Entries[len(s.Entries)-1].Entry
	return last, Ends(last.Type)
}

// Ends reports whether an entry of this type is the last one of its log.
func Ends(t council.EventType) bool { return t == council.EventDone || t == council.EventFailed }

// Shown reports whether clients see entries of this type.
func Shown(t council.EventType) bool {
	switch t {
	case TypeAccepted, TypeClaimed, TypeCancelled, TypeReleased, TypeResult, council.EventBegun, council.EventCall:
		return false
	default:
		return true
	}
}

// Place names one call of a run.
type Place struct {
	Seat
	Number int // numbers the calls of the seat in the stage, from 1
}

// Seat is a seat in a stage.
type Seat struct {
	Stage council.Stage
	Name  string // has the form of council.Call.Seat
}

// noted names an event that a run observes only once.
type noted struct {
	event council.EventType
	seat  string // the member id, or "" for an event of the whole run
}

// run holds what the entries say about the run.
type run struct {
	noted map[noted]bool
	// done holds, for each stage that is done, the time from the start of the run until the stage was done.
	done map[council.Stage]time.Duration
	// delivered holds, for each stage, the time from the start of the run to each answer or review without an error.
	// The times are in the order of the log.
	delivered map[council.Stage][]time.Duration
	begun     map[Place]council.BegunCall
	landed    map[Place]council.Landed
	// over holds the seats whose result is in the log. These seats make no more calls.
	over     map[Seat]bool
	tally    *council.Tally
	chairman string // the id of the first chairman
	// text says that watchers may have seen text of the final answer that is still open. A restart withdraws such text,
	// and the final answer confirms it. writer is the number of calls of stage 3 that had ended when the text came.
	text   bool
	ended  int // how many calls of stage 3 ended
	writer int
}

// Read decodes the entries of the run for the methods below. After an error, these methods know only the entries
// before it.
func (s *State) Read(plan council.Plan) error {
	s.Plan = plan
	s.run = &run{
		noted: map[noted]bool{}, done: map[council.Stage]time.Duration{}, delivered: map[council.Stage][]time.Duration{},
		begun: map[Place]council.BegunCall{}, landed: map[Place]council.Landed{}, over: map[Seat]bool{},
	}
	for _, entry := range s.Entries {
		event, err := entry.Decode()
		if err != nil {
			return fmt.Errorf("reading the log of a run: %w", err)
		}
		s.take(event, entry.At)
	}
	return nil
}

// take adds an event of the run to the state.
func (s *State) take(event council.Event, at time.Duration) {
	r := s.run
	whole := func(stage council.Stage) {
		r.text = false
		r.noted[noted{event: event.Type}] = true
		r.done[stage] = at
	}
	seat := func(stage council.Stage, member string, status council.Outcome) {
		// In a direct run (one member, no reviews), text of the final answer comes before the answer. The answer
		// confirms the text.
		r.text = false
		r.noted[noted{event.Type, member}] = true
		if status == council.OutcomeOK {
			r.delivered[stage] = append(r.delivered[stage], at)
		}
	}
	switch data := event.Data.(type) {
	case council.Started:
		r.noted[noted{event: event.Type}] = true
		r.chairman = data.Chairman
	case council.Answer:
		seat(council.Stage1, data.Model, data.Status)
		s.addAnswer(data)
	case council.FirstAsked, council.Map:
		r.noted[noted{event: event.Type}] = true
	case council.Review:
		seat(council.Stage2, data.Model, data.Status)
		s.addReview(data)
	case []council.Answer:
		whole(council.Stage1)
	case council.Tally:
		whole(council.Stage2)
		r.tally = &data
	case council.Synthesis:
		whole(council.Stage3)
		s.addSynthesis(data)
	case council.Begun:
		for _, c := range data.Calls {
			r.begun[Place{Seat{c.Stage, c.Seat}, c.Number}] = c
		}
	case council.Landed:
		if data.Stage == council.Stage3 {
			r.ended++
		}
		r.landed[Place{Seat{data.Stage, data.Seat}, data.Number}] = data
	case council.Delta:
		r.text = true
		r.writer = r.ended
	case council.Restart:
		r.text = false
	}
}

func (s *State) addAnswer(a council.Answer) {
	at := Seat{council.Stage1, a.Model}
	s.run.over[at] = true
	// If there was a repair, the log has its outcome too. A given answer has no calls.
	if _, known := s.run.landed[Place{at, 1}]; known || a.Given {
		return
	}
	s.add(at, 1, s.Plan.ModelOf(a.Model), council.Completion{
		Text: text(a.Response), Reasoning: text(a.Reasoning), FinishReason: text(a.FinishReason), Spent: a.Spent,
	}, a.Error)
}

func (s *State) addReview(v council.Review) {
	at := Seat{council.Stage2, v.Model}
	s.run.over[at] = true
	model := s.Plan.ModelOf(v.Model)
	_, known := s.run.landed[Place{at, 1}]
	switch {
	case v.Status == council.OutcomeError:
		delete(s.run.landed, Place{at, 1})
		delete(s.run.landed, Place{at, 2})
		s.add(at, 1, model, council.Completion{Spent: v.Spent}, v.Error)
	case known: // If there was a repair, the log has its outcome too.
	default:
		reply := council.Completion{
			Text: text(v.Ranking), Reasoning: text(v.Reasoning), FinishReason: text(v.FinishReason), Spent: v.Spent,
		}
		var failure *council.Failure
		if reply.Text == "" {
			failure = &council.Failure{Code: council.FailEmpty, Message: "the reply was empty"}
		}
		s.add(at, 1, model, reply, failure)
		if v.Repair != nil { // The first call has the time and usage of both calls.
			s.add(at, 2, model, council.Completion{Text: *v.Repair, Spent: council.Spent{Usage: council.NoUsage()}}, nil)
		}
	}
}

func (s *State) addSynthesis(y council.Synthesis) {
	at := Seat{council.Stage3, council.SeatChairman}
	s.run.over[at] = true
	if _, known := s.run.landed[Place{at, 1}]; known {
		return
	}
	// Without a call.landed entry, the first chairman made the only call, and the synthesis holds the outcome of that
	// call.
	reply := council.Completion{Spent: y.Spent}
	if y.Error == nil {
		reply.Text = y.Response + y.Tail
		reply.Reasoning = text(y.Reasoning)
		reply.FinishReason = text(y.FinishReason)
	}
	s.add(at, 1, s.Plan.ModelOf(s.run.chairman), reply, y.Error)
}

func (s *State) add(at Seat, number int, model string, reply council.Completion, failure *council.Failure) {
	s.run.landed[Place{at, number}] = council.Landed{
		Stage: at.Stage, Seat: at.Name, Number: number, Model: model, Completion: reply, Failure: failure,
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Outcome returns the outcome of a call. It returns false if the call did not land.
func (s *State) Outcome(place Place) (council.Landed, bool) {
	landed, ok := s.run.landed[place]
	return landed, ok
}

// Landed returns the outcome of every call that landed, in no particular order.
func (s *State) Landed() iter.Seq[council.Landed] { return maps.Values(s.run.landed) }

// Over reports whether the log holds the result of a seat. The seat then makes no more calls.
func (s *State) Over(at Seat) bool { return s.run.over[at] }

// Tells reports whether the log already holds an event, or a later event that makes this event obsolete.
func (s *State) Tells(event council.EventType, data any) bool {
	switch data := data.(type) {
	case council.Answer:
		return s.run.noted[noted{event, data.Model}]
	case council.Review:
		return s.run.noted[noted{event, data.Model}]
	case council.AnswerDelta:
		return s.Answered(data.Model)
	case council.AnswerRestart:
		return s.Answered(data.Model)
	case council.Delta, council.Restart:
		return s.run.noted[noted{event: council.EventStage3}]
	default:
		return s.run.noted[noted{event: event}]
	}
}

// Answered reports whether the log holds the answer of a member.
func (s *State) Answered(member string) bool { return s.run.noted[noted{council.EventAnswer, member}] }

// Tally returns the tally of stage 2, or nil if stage 2 is not done.
func (s *State) Tally() *council.Tally { return s.run.tally }

// Delivered returns, for a stage, the time from the start of the run to each answer or review without an error. The
// times are in the order of the log.
func (s *State) Delivered(stage council.Stage) []time.Duration { return s.run.delivered[stage] }

// Began returns the time from the start of the run to the beginning of a stage. It returns false if the log does not
// say that the stage began.
func (s *State) Began(stage council.Stage) (time.Duration, bool) {
	before := council.Stage("")
	for _, planned := range s.planned() {
		if planned == stage {
			break
		}
		before = planned
	}
	if before == "" {
		return 0, s.run.noted[noted{event: council.EventStarted}]
	}
	return s.Done(before)
}

// planned returns the stages of the plan that make calls, in their order.
func (s *State) planned() []council.Stage {
	var stages []council.Stage
	for _, planned := range s.Plan.Stages {
		if stage := planned.Kind.Stage(); stage != "" {
			stages = append(stages, stage)
		}
	}
	return stages
}

// Done returns the time from the start of the run to the end of a stage. It returns false if the stage is not done.
func (s *State) Done(stage council.Stage) (time.Duration, bool) {
	at, ok := s.run.done[stage]
	return at, ok
}

// Open returns the stage that began and is not done, or "". Calls of this stage without an outcome may have been in
// flight.
func (s *State) Open() council.Stage {
	for _, stage := range s.planned() {
		_, began := s.Began(stage)
		if _, done := s.Done(stage); began && !done {
			return stage
		}
	}
	return ""
}

// Begun reports whether the log says that a call began.
func (s *State) Begun(place Place) bool {
	_, ok := s.run.begun[place]
	return ok
}

// InFlight returns the calls that began and did not land, in the order of their stages and seats. The outcome of these
// calls is unknown.
func (s *State) InFlight() []council.BegunCall {
	var calls []council.BegunCall
	for place, call := range s.run.begun {
		if _, landed := s.run.landed[place]; !landed && !s.run.over[place.Seat] {
			calls = append(calls, call)
		}
	}
	slices.SortFunc(calls, func(a, b council.BegunCall) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Seat, b.Seat), cmp.Compare(a.Number, b.Number))
	})
	return calls
}

// Guesses reports whether an unrecorded call at a seat may have been in flight. Builds before 0.1.0 did not record that
// a call began. Such a call may belong to the open stage. If stage 2 or 3 is open, it may also belong to a side (see
// council.SidePlan). The method can be removed after 0.1.0.
func (s *State) Guesses(at Seat) bool {
	if s.Format >= PlanFormat {
		return false
	}
	open := s.Open()
	return at.Stage == open || at.Stage.IsSide() && (open == council.Stage2 || open == council.Stage3)
}

// Text reports whether watchers may have seen text of the final answer that is still open. A restart withdraws such
// text, and the final answer confirms it. The result ended is the number of calls of stage 3 that had ended when the
// text came. If the plan shows text while the final answer is being written, shown is true during that time, because
// the log may lack text that watchers have seen: the last pieces are shown before they are stored.
func (s *State) Text() (shown bool, ended int) {
	writing := s.Open() == council.Stage3 ||
		s.Plan.Mode == council.ModeSingle && s.Open() == council.Stage1 && !s.Answered(s.Plan.Members()[0].ID)
	return s.run.text || writing && s.Plan.Deltas, s.run.writer
}

// Stages returns the stages that are not done. The stage of votes is always among them, because no entry says that it is
// done. Stages works before Read.
func (s *State) Stages() []council.Stage {
	done := map[council.EventType]bool{}
	for _, entry := range s.Entries {
		done[entry.Type] = true
	}
	left := []council.Stage{council.StageVotes}
	for _, stage := range []struct {
		stage council.Stage
		event council.EventType
	}{{council.Stage1, council.EventStage1}, {council.Stage2, council.EventStage2}, {council.Stage3, council.EventStage3}} {
		if !done[stage.event] {
			left = append(left, stage.stage)
		}
	}
	return left
}
