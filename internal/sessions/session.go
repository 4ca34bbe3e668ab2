package sessions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

// Start holds what a session starts from. Plan is required. Owner is required if the daemon asks for tokens.
type Start struct {
	Plan  council.Plan
	Owner Owner
	// Key is the owner's idempotency key, or "". Digest identifies the request that came with the key.
	Key    string
	Digest [32]byte
	// Repeat identifies the request if a repetition of the request must not be paid for again. Otherwise it is "". It
	// is only for sessions in memory. See Store.Repeated.
	Repeat string
	// Background says that the session continues without its client. A session with a Key also continues, because its
	// owner may send the request again.
	Background bool
	// Cancel ends the run early.
	Cancel context.CancelCauseFunc
}

// origin holds what a session was started with.
type origin struct {
	Digest     [32]byte  // Start.Digest
	Created    time.Time // council.Plan.Created
	key        key
	background bool            // also set if there is a key
	alone      bool            // Start.Background
	token      string          // council.Plan.Token
	side       bool            // council.Plan.Side
	repeat     string          // Start.Repeat
	request    council.Request // the request of the plan
	council    string          // council.Plan.Council
	listed     journal.Head    // what a list of sessions shows of the plan
	// first is the plan if some members begin (council.Plan.First). Otherwise it is nil.
	first *council.Plan
	door  council.Door // council.Plan.Door
}

// Session is one session of a Store. It is the council.Observer of its run, and safe for concurrent use.
type Session struct {
	origin
	ID    string
	store *Store
	// keeper stores the log. It is nil for a session that is in memory alone.
	keeper *keeper
	// begun is closed when keeper and refused are known. It is nil for a session that is in memory alone.
	begun   chan struct{}
	refused bool          // the session could not begin
	done    chan struct{} // closed when the session ends

	mu   sync.Mutex // guards all fields below
	view view
	// more is closed with the next event. It is nil while no reader waits.
	more    chan struct{}
	session *council.Session
	packed  bool // session and the data of the events were dropped: body has both
	status  council.Status
	body    []byte // the JSON of the session at its end
	last    []byte // the JSON of the last event's data
	over    bool   // no more entries follow in this process
	// plan is set for a session in memory whose end is stored for other nodes.
	plan    *council.Plan
	left    bool // the client left before the end
	demoted bool // another node has taken the session over, and events of the run here no longer count
	failure *council.Error
	cancel  context.CancelCauseFunc // nil after the end, so that the memory of the run can be freed
	ended   time.Time
	title   string // the title that a person gave the session
	line    string // the first line of the answer of a session that has ended
	size    int64  // estimate of the bytes that the session holds at its end
}

// Log returns the object through which the run uses the log of the session, or nil if the session is in memory alone.
// The run calls Log when it begins, so Log also notes in the keeper that the run has begun.
func (s *Session) Log() *runlog.Log {
	if s.keeper == nil {
		return nil
	}
	s.keeper.begin()
	return s.keeper.log
}

// Observe appends an event to the log. It does not append the last event, because Finish does so.
func (s *Session) Observe(e council.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.demoted {
		return
	}
	s.noteLocked(e)
	switch {
	case e.Type == council.EventDone || e.Type == council.EventFailed:
	case s.keeper != nil:
		s.keeper.observeLocked(e)
	default:
		s.view.events = append(s.view.events, e)
		s.wakeLocked()
	}
}

// noteLocked updates the session with the data of an event.
func (s *Session) noteLocked(e council.Event) {
	switch data := e.Data.(type) {
	case council.Started:
		s.session.Metadata.Versions = data.Versions
	case council.Answer:
		s.session.Stage1 = append(s.session.Stage1, data)
	case council.FirstAsked:
		s.session.Metadata.First = &data
	case []council.Answer:
		s.session.Stage1 = data // It is in the order of the members.
	case council.Review:
		s.session.Stage2 = append(s.session.Stage2, data)
	case council.Tally:
		s.session.Metadata.Tally = data
	case council.Synthesis:
		s.session.Stage3 = &data
		s.session.Answer = data.Response
	}
}

func (s *Session) wakeLocked() {
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// ending holds how a session ended.
type ending struct {
	session *council.Session
	failure *council.Error // nil if there is a result
	problem any            // the problem document of the failure
	event   council.Event
	body    []byte // the JSON of the session
	last    []byte // the JSON of the last event's data
}

// encode sets body, last and event from the other fields.
func (end *ending) encode(s *Session) (err error) {
	if end.body, err = s.view.encoder.encode(end.session); err != nil {
		return fmt.Errorf("encoding session %s: %w", s.ID, err)
	}
	end.last = end.body
	end.event = council.Event{Type: council.EventDone, Data: end.session}
	if end.failure != nil {
		end.event = council.Event{Type: council.EventFailed, Data: end.failure}
		if end.last, err = s.view.encoder.encode(end.problem); err != nil {
			return fmt.Errorf("encoding why session %s failed: %w", s.ID, err)
		}
	}
	return nil
}

// entry returns the last entry of the log, without the line break of its JSON.
func (end *ending) entry() council.Entry {
	return council.Entry{Type: end.event.Type, Data: end.last[:len(end.last)-1]}
}

// result returns the entry that holds the session. Only the log of a failed session has such an entry.
func (end *ending) result() pending {
	return pending{entry: council.Entry{Type: runlog.TypeResult, Data: end.body[:len(end.body)-1]}}
}

// Finish ends a session with the result of its run. If the run failed, problem is the problem document for clients,
// which becomes the data of the last entry. If a failed run returned no session, the argument session is nil, and the
// session ends with the results that it has observed. If the result cannot be encoded, Finish returns an error, and
// the session has not ended. Clients see the end of a session in the journal only after the journal has stored it.
func (s *Session) Finish(session *council.Session, failure *council.Error, problem any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.demoted {
		return nil // Another process ends it.
	}
	if session == nil {
		session = s.session
		session.Status = council.StatusFailed
	}
	if s.alone && s.store.o.Ending != nil {
		s.mu.Unlock() // Ending waits for the disk.
		s.store.o.Ending(End{s.key.owner, s.token, session, failure})
		s.mu.Lock()
		if s.over || s.demoted {
			return nil
		}
	}
	end := ending{session: session, failure: failure, problem: problem}
	if s.keeper != nil {
		return s.keeper.finishLocked(&end)
	}
	if err := end.encode(s); err != nil {
		return err
	}
	s.view.events = append(s.view.events, end.event)
	s.endLocked(end)
	return nil
}

// endLocked ends a session whose last event is already in the view.
func (s *Session) endLocked(end ending) {
	s.session = end.session
	s.status = end.session.Status
	s.failure = end.failure
	s.body = end.body
	s.last = end.last
	s.line = council.FirstLine(end.session.Answer)
	s.ended = time.Now()
	s.cancel = nil
	s.over = true
	// Entries are encoded when a reader first asks for them. If no reader did, estimate their size.
	s.size = int64(4*len(s.body) + 100*len(s.view.events))
	if s.view.encoded > 0 {
		s.encodeLocked()
		s.view.events = slices.Clone(s.view.events) // frees the unused capacity
		s.view.entries = slices.Clone(s.view.entries)
		// The body counts twice, because the session is in memory as JSON and as the run returned it.
		s.size = int64(2*len(s.body) + 150*len(s.view.events))
		for _, e := range s.view.entries[:len(s.view.entries)-1] {
			s.size += int64(len(e.Data))
		}
	}
	s.size += int64(len(s.request.Query))
	for _, m := range s.request.Messages {
		s.size += int64(len(m.Content))
	}
	s.wakeLocked()
	time.AfterFunc(s.store.o.Waits.Pack, s.pack)
	s.noteEndLocked(end)
	if s.keeper == nil {
		s.store.tellLocked(s, end)
	}
	s.store.ended(s)
	close(s.done)
}

// encodeLocked encodes the events that have no entries yet. Most sessions are watched from the start or never, and
// a session that is never watched is never encoded.
func (s *Session) encodeLocked() {
	v := &s.view
	if v.encoded < len(v.events) {
		s.unpackLocked()
	}
	for _, e := range v.events[v.encoded:] {
		data := s.last
		err := error(nil)
		if e.Type != council.EventDone && e.Type != council.EventFailed {
			data, err = v.encoder.encode(e.Data)
		}
		if err == nil { // Otherwise Finish reports it.
			v.entries = append(v.entries, council.Entry{Type: e.Type, Data: data[:len(data)-1]})
		}
	}
	v.encoded = len(v.events)
}

// Entries returns the entries after a position. more is closed when there are more entries, and is nil after the end.
// All callers share the page and must not change it.
func (s *Session) Entries(behind Position) (page Page, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.encodeLocked()
	return s.view.page(behind), s.moreLocked()
}

// Last returns the position after all entries and texts that this node has shown. In a cluster, another node may have
// shown more. Last then waits until this node has shown the entry with the given number, but no longer than Waits.Lag.
func (s *Session) Last(ctx context.Context, number int) Position {
	ctx, cancel := context.WithTimeout(ctx, s.store.o.Waits.Lag)
	defer cancel()
	for {
		s.mu.Lock()
		s.encodeLocked()
		last := Position{Number: len(s.view.entries), Characters: slices.Clone(s.view.lengths)}
		more := s.moreLocked()
		s.mu.Unlock()
		if s.store.o.Lease == 0 || number <= last.Number || more == nil {
			return last
		}
		select {
		case <-more:
		case <-ctx.Done():
			return last
		}
	}
}

// Events is like Entries, for callers that want the events as the run reported them. A position that Events returned
// is not valid for Entries, because an event in memory that cannot be encoded has no entry.
func (s *Session) Events(behind Position) (events []council.Event, next Position, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpackLocked()
	if s.keeper == nil {
		events = s.view.events[min(behind.Number, len(s.view.events)):]
		return events, Position{Number: behind.Number + len(events)}, s.moreLocked()
	}
	page := s.view.page(behind)
	for i, entry := range page.Entries {
		next = page.Position(i)
		event, err := entry.Decode()
		if err != nil { // Another version of the daemon wrote it.
			continue
		}
		if event.Type == council.EventDone {
			event.Data = s.session
		}
		event.Takeovers = s.view.takeovers(next)
		events = append(events, event)
	}
	if len(page.Entries) == 0 {
		next = behind
	}
	return events, next, s.moreLocked()
}

func (s *Session) moreLocked() <-chan struct{} {
	if s.over {
		return nil
	}
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return s.more
}

// JSON returns the session as JSON, with the results that are known so far and a line break at the end.
func (s *Session) JSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.body == nil {
		return s.view.encoder.encode(s.session)
	}
	return s.body, nil
}

// Done returns a channel that is closed when the session ends.
func (s *Session) Done() <-chan struct{} { return s.done }

// Result returns the session at its end. If the session failed, it also returns the error. Callers wait for Done
// first. They must not change the session.
func (s *Session) Result() (*council.Session, *council.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpackLocked()
	return s.session, s.failure
}

// Summary returns the status of the session, with its cost and its duration if they are known.
func (s *Session) Summary() council.Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.listed
	head.Status = s.status
	head.Query = s.session.Query
	head.Title = s.title
	head.Answer = s.line
	head.CostUSD = s.session.Metadata.Usage.CostUSD
	head.Timing = s.session.Metadata.Timing
	return summary(s.ID, head)
}

// Request returns the request of the session, in the form in which a client can send it again. Callers must not
// change it.
func (s *Session) Request() council.Request { return s.request }

// First returns the plan of the session if some members began (council.Plan.First), and otherwise nil. Callers must not
// change the plan.
func (s *Session) First() *council.Plan { return s.first }

// Door returns the Door of the session's plan. Callers must not change it.
func (s *Session) Door() council.Door { return s.door }

// Background reports whether the session continues without its client.
func (s *Session) Background() bool { return s.background }

// Cancel cancels the run of a session that has not ended.
func (s *Session) Cancel(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// Found reports whether the store keeps the session, as long as there is room, after the session ends with an answer.
func (s *Session) Found() bool {
	o := s.store.o
	return !s.side && o.Retention > 0 && o.Kept > 0 && o.KeptBytes > 0
}

// Leave says that the client that began the session is gone. It cancels the run with the cause, unless the run has
// ended or continues without its client.
func (s *Session) Leave(cause error) {
	if s.background {
		return
	}
	s.mu.Lock()
	if s.repeat != "" && !s.over {
		s.left = true
		s.store.noteReplay(s.repeat, s, time.Time{})
	}
	s.mu.Unlock()
	s.Cancel(cause)
}
