package sessions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
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
	// Background sessions go on without their client. So does a session with a Key:
	// its owner may send the request again.
	Background bool
	// Cancel ends the run early.
	Cancel context.CancelCauseFunc
}

// Session is one session that is kept. It is the council.Observer of its run, and
// safe for concurrent use.
type Session struct {
	ID         string
	Digest     [32]byte  // as in Start
	Created    time.Time // as in council.Plan
	key        key
	background bool // or with a key
	store      *Store
	done       chan struct{} // closed at the end

	mu      sync.Mutex      // guards all below
	events  []council.Event // as they were observed; the last one comes from Finish
	entries []council.Entry // the encoded events, without those that cannot be encoded
	encoded int             // how many of events are encoded
	encoder encoder
	more    chan struct{} // closed with the next event; nil while nobody waits
	session *council.Session
	status  council.Status
	body    []byte // the session at its end, encoded
	last    []byte // the data of the last event, encoded; nil while the session runs
	failure *council.Error
	cancel  context.CancelCauseFunc // nil at the end, so that nothing of the run stays in memory
	ended   time.Time
	size    int64 // estimate of the bytes that the session holds at its end
}

// Observe appends an event to the log. The last event comes from Finish.
func (s *Session) Observe(e council.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
		s.session.Stage3, s.session.Answer = &data, data.Response
	}
	if e.Type != council.EventDone && e.Type != council.EventFailed {
		s.appendLocked(e)
	}
}

func (s *Session) appendLocked(e council.Event) {
	s.events = append(s.events, e)
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// Finish ends a session as its run returned it. Where there is a failure, problem
// is its document and the data of the last entry, and the session may be nil: what
// is known of it is kept then. An error means that the session cannot be encoded.
// It has not ended then.
func (s *Session) Finish(session *council.Session, failure *council.Error, problem any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session == nil {
		session = s.session
		session.Status = council.StatusFailed
	}
	body, err := s.encoder.encode(session)
	if err != nil {
		return fmt.Errorf("encoding session %s: %w", s.ID, err)
	}
	last, event := body, council.Event{Type: council.EventDone, Data: session}
	if failure != nil {
		event = council.Event{Type: council.EventFailed, Data: failure}
		if last, err = s.encoder.encode(problem); err != nil {
			return fmt.Errorf("encoding why session %s failed: %w", s.ID, err)
		}
	}
	s.session, s.status, s.failure, s.body, s.last = session, session.Status, failure, body, last
	s.ended, s.cancel = time.Now(), nil
	s.appendLocked(event)
	// Nobody may have watched: then this is with about what the entries would take.
	s.size = int64(4*len(body) + 100*len(s.events))
	if s.encoded > 0 {
		s.encodeLocked()
		s.events, s.entries = slices.Clone(s.events), slices.Clone(s.entries) // without room for more
		s.size = int64(2*len(body) + 150*len(s.events))                       // as JSON, and as the run returned it
		for _, e := range s.entries[:len(s.entries)-1] {
			s.size += int64(len(e.Data))
		}
	}
	s.store.ended(s)
	close(s.done)
	return nil
}

// encodeLocked brings the entries up to date. Most sessions are watched from the
// start or never: the latter cost no encoding.
func (s *Session) encodeLocked() {
	for _, e := range s.events[s.encoded:] {
		data, err := s.last, error(nil)
		if e.Type != council.EventDone && e.Type != council.EventFailed {
			data, err = s.encoder.encode(e.Data)
		}
		if err == nil { // Otherwise Finish reports it.
			s.entries = append(s.entries, council.Entry{Type: e.Type, Data: data[:len(data)-1]})
		}
	}
	s.encoded = len(s.events)
}

// Entries returns the entries behind the first n, and a channel that is closed when
// there are more, nil at the end. What it returns is shared by all callers and must
// not be changed.
func (s *Session) Entries(n int) (entries []council.Entry, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.encodeLocked()
	return s.entries[min(n, len(s.entries)):], s.moreLocked()
}

// Events is Entries for callers that want the events as they were observed. The two
// count apart, because an event that cannot be encoded is no entry.
func (s *Session) Events(n int) (events []council.Event, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[min(n, len(s.events)):], s.moreLocked()
}

func (s *Session) moreLocked() <-chan struct{} {
	if s.last != nil {
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
	if s.last == nil {
		return s.encoder.encode(s.session)
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
	return s.session, s.failure
}

// Summary returns where the session stands.
func (s *Session) Summary() council.Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return council.Summary{
		ID: s.ID, Status: s.status, Created: s.Created, Query: s.session.Query, CostUSD: s.session.Metadata.Usage.CostUSD,
	}
}

// Cancel cancels the run of a session that has not ended.
func (s *Session) Cancel(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// Leave says that the client that began the session is gone. The run is cancelled
// with the cause, unless it has ended or goes on without its client.
func (s *Session) Leave(cause error) {
	if !s.background {
		s.Cancel(cause)
	}
}
