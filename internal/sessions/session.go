package sessions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
)

// Start is what a session starts from. Plan is required. Owner is required where
// tokens are.
type Start struct {
	Plan  council.Plan
	Owner Owner
	// Key is the owner's idempotency key, "" for none. Digest stands for the request
	// that the key was given with.
	Key    string
	Digest [32]byte
	// Repeat stands for the request, where the same one is not to be paid for twice; "" otherwise.
	// It is for sessions in memory. Store.Repeated says more.
	Repeat string
	// Background sessions go on without their client. So does a session with a Key:
	// its owner may send the request again.
	Background bool
	// Cancel ends the run early.
	Cancel context.CancelCauseFunc
}

// origin is what a session was started with.
type origin struct {
	Digest     [32]byte  // as in Start
	Created    time.Time // as in council.Plan
	key        key
	background bool            // or with a key
	side       bool            // as in council.Plan
	repeat     string          // as Start.Repeat
	request    council.Request // what was asked
	council    string          // as council.Plan names it
}

// Session is one session that is kept. It is the council.Observer of its run, and
// safe for concurrent use.
type Session struct {
	origin
	ID      string
	store   *Store
	keeper  *keeper       // stores the log; nil for a session that is in memory alone
	begun   chan struct{} // closed when keeper and refused are known; nil for a session that is in memory alone
	refused bool          // the session could not begin
	done    chan struct{} // closed at the end

	mu      sync.Mutex // guards all below
	view    view
	more    chan struct{} // closed with the next event; nil while nobody waits
	session *council.Session
	packed  bool // session and the data of the events are in body alone
	status  council.Status
	body    []byte        // the session at its end, encoded
	last    []byte        // the data of the last event, encoded
	over    bool          // nothing follows any more, here
	plan    *council.Plan // of a session in memory whose end is stored for other nodes; else nil
	left    bool          // the client left before the end
	demoted bool          // another node has taken it over: what its run here observes is nothing
	failure *council.Error
	cancel  context.CancelCauseFunc // nil at the end, so that nothing of the run stays in memory
	ended   time.Time
	size    int64 // estimate of the bytes that the session holds at its end
}

// Log returns how the run of the session is kept, nil where it is not. The run that asks
// begins.
func (s *Session) Log() *runlog.Log {
	if s.keeper == nil {
		return nil
	}
	s.keeper.begin()
	return s.keeper.log
}

// Observe appends an event to the log. The last event comes from Finish.
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

// noteLocked adds an event to what is known of the session.
func (s *Session) noteLocked(e council.Event) {
	switch data := e.Data.(type) {
	case council.Started:
		s.session.Metadata.Versions = data.Versions
	case council.Answer:
		s.session.Stage1 = append(s.session.Stage1, data)
	case []council.Answer:
		s.session.Stage1 = data // in the order of the members
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

// ending is how a session ended.
type ending struct {
	session *council.Session
	failure *council.Error // nil where there is a result
	problem any            // the document of the failure
	event   council.Event
	body    []byte // the session, encoded
	last    []byte // the data of the last event, encoded
}

// encode fills in what the other fields say.
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

// entry returns the last entry of the log.
func (end *ending) entry() council.Entry {
	return council.Entry{Type: end.event.Type, Data: end.last[:len(end.last)-1]}
}

// result returns the entry that keeps the session where it failed.
func (end *ending) result() pending {
	return pending{entry: council.Entry{Type: runlog.TypeResult, Data: end.body[:len(end.body)-1]}}
}

// Finish ends a session as its run returned it. Where there is a failure, problem
// is its document and the data of the last entry, and the session may be nil: what
// is known of it is kept then. An error means that the session cannot be encoded.
// It has not ended then. The end of a session that is kept is shown when it is stored.
func (s *Session) Finish(session *council.Session, failure *council.Error, problem any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.demoted {
		return nil // another process ends it
	}
	if session == nil {
		session = s.session
		session.Status = council.StatusFailed
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

// endLocked ends a session whose last event is in the view.
func (s *Session) endLocked(end ending) {
	s.session = end.session
	s.status = end.session.Status
	s.failure = end.failure
	s.body = end.body
	s.last = end.last
	s.ended = time.Now()
	s.cancel = nil
	s.over = true
	// Nobody may have watched: then this is with about what the entries would take.
	s.size = int64(4*len(s.body) + 100*len(s.view.events))
	if s.view.encoded > 0 {
		s.encodeLocked()
		s.view.events = slices.Clone(s.view.events) // without room for more
		s.view.entries = slices.Clone(s.view.entries)
		s.size = int64(2*len(s.body) + 150*len(s.view.events)) // as JSON, and as the run returned it
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

// encodeLocked brings the entries up to date. Most sessions are watched from the
// start or never: the latter cost no encoding.
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

// Entries returns the entries behind a position, and a channel that is closed when
// there are more, nil at the end. What it returns is shared by all callers and must
// not be changed.
func (s *Session) Entries(behind Position) (page Page, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.encodeLocked()
	return s.view.page(behind), s.moreLocked()
}

// Last returns the position behind all that is shown. Where there are other nodes, which
// may have shown more, it waits for a while until the entry with a number is shown.
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

// Events is Entries for callers that want the events as they were observed. Its
// positions are its own: an event of a session in memory that cannot be encoded is no
// entry.
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
		if err != nil { // what another version wrote
			continue
		}
		if event.Type == council.EventDone {
			event.Data = s.session
		}
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

// JSON returns the session as far as it is known, with a line break behind it.
func (s *Session) JSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.body == nil {
		return s.view.encoder.encode(s.session)
	}
	return s.body, nil
}

// Done returns a channel that is closed at the end.
func (s *Session) Done() <-chan struct{} { return s.done }

// Result returns the session at its end, and why it has no result, nil when it has
// one. It is for callers that have waited for Done. They must not change the
// session.
func (s *Session) Result() (*council.Session, *council.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpackLocked()
	return s.session, s.failure
}

// Summary returns where the session stands.
func (s *Session) Summary() council.Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return council.Summary{
		ID:         s.ID,
		Status:     s.status,
		Created:    s.Created,
		Query:      s.session.Query,
		CostUSD:    s.session.Metadata.Usage.CostUSD,
		DurationMS: took(s.session.Metadata.Timing),
	}
}

// Request returns what was asked, in the form in which it can be asked again. It must not
// be changed.
func (s *Session) Request() council.Request { return s.request }

// Cancel cancels the run of a session that has not ended.
func (s *Session) Cancel(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// Found reports whether the session can still be found once it has ended with an answer, as long as there is room for it.
func (s *Session) Found() bool {
	o := s.store.o
	return !s.side && o.Retention > 0 && o.Kept > 0 && o.KeptBytes > 0
}

// Leave says that the client that began the session is gone. The run is cancelled
// with the cause, unless it has ended or goes on without its client.
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
