package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

// Start is what a session starts from. Plan is required, Owner as far as there
// are tokens.
type Start struct {
	Plan  council.Plan
	Owner Owner
	// Key is the owner's idempotency key, "" for none, and Digest stands for the
	// request that it was given with.
	Key    string
	Digest [32]byte
	// Background sessions go on when nobody waits for them.
	Background bool
	// Cancel ends the run early.
	Cancel context.CancelCauseFunc
}

// Summary is a session in a list.
type Summary struct {
	ID      string         `json:"session_id"`
	Status  council.Status `json:"status"`
	Created time.Time      `json:"created"`
}

// Session is one session that is kept. It is the council.Observer of its run, and
// safe for concurrent use.
type Session struct {
	ID         string
	Digest     [32]byte // as in Start
	Created    time.Time
	key        key
	background bool
	store      *Store
	done       chan struct{} // closed at the end

	mu      sync.Mutex       // guards all below
	pending []council.Event  // the events that nobody has asked for yet
	log     bytes.Buffer     // the events before them, as they are sent; never read off
	encoder *json.Encoder    // onto log
	ends    []int            // where each ends in log
	more    chan struct{}    // closed with the next event; nil while nobody waits
	state   *council.Session // what is known; nil at the end
	status  council.Status
	body    []byte // the session at the end, as JSON and a line break
	failure *council.Error
	cancel  context.CancelCauseFunc // nil at the end, as all that would keep the run in memory
	clients int
	ended   time.Time
	size    int64 // about how many bytes it takes, at the end
}

// Observe takes down an event. The last one comes from Finish.
func (s *Session) Observe(e council.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch data := e.Data.(type) {
	case council.Started:
		s.state.Metadata.Versions = data.Versions
	case council.Answer:
		s.state.Stage1 = append(s.state.Stage1, data)
	case []council.Answer:
		s.state.Stage1 = data // in the order of the members
	case council.Review:
		s.state.Stage2 = append(s.state.Stage2, data)
	case council.Tally:
		s.state.Metadata.Tally = data
	case council.Synthesis:
		s.state.Stage3, s.state.Answer = &data, data.Response
	}
	if e.Type != council.EventDone && e.Type != council.EventFailed {
		s.addLocked(e)
	}
}

func (s *Session) addLocked(e council.Event) {
	s.pending = append(s.pending, e)
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// encodeLocked brings the log up to date. Most sessions are watched from the start
// or never: those cost no encoding.
func (s *Session) encodeLocked() {
	for _, e := range s.pending {
		before := s.log.Len()
		fmt.Fprintf(&s.log, "id: %d\nevent: %s\ndata: ", len(s.ends)+1, e.Type)
		if body, ok := e.Data.(encoded); ok {
			s.log.Write(body)
		} else if s.encoder.Encode(e.Data) != nil {
			s.log.Truncate(before) // Finish finds the same
			continue
		}
		s.log.WriteByte('\n')
		s.ends = append(s.ends, s.log.Len())
	}
	s.pending = nil
}

// encoded is data of an event that is JSON, with a line break behind it.
type encoded []byte

// Finish ends a session as its run returned it. Where there is a failure, the log
// ends with session.failed and problem, and the session may be nil: then what is
// known of it is kept. An error means that the session has no JSON; it goes on.
func (s *Session) Finish(session *council.Session, failure *council.Error, problem any) error {
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock() // also when encoding panics
		return s.finishLocked(session, failure, problem)
	}()
	if err == nil {
		s.store.ended(s)
		close(s.done)
	}
	return err
}

func (s *Session) finishLocked(session *council.Session, failure *council.Error, problem any) error {
	if session == nil {
		session = s.state
		session.Status = council.StatusFailed
	}
	var body bytes.Buffer
	if err := newEncoder(&body).Encode(session); err != nil {
		return fmt.Errorf("encoding session %s: %w", s.ID, err)
	}
	s.body, s.status, s.failure, s.ended, s.state = bytes.Clone(body.Bytes()), session.Status, failure, time.Now(), nil
	s.cancel = nil
	if failure != nil {
		s.addLocked(council.Event{Type: council.EventFailed, Data: problem})
	} else {
		s.addLocked(council.Event{Type: council.EventDone, Data: encoded(s.body)})
	}
	if s.log.Len() == 0 { // nobody has watched: about what the log would take
		s.size = int64(4*len(s.body) + 100*len(s.pending))
		return nil
	}
	s.encodeLocked()
	s.log, s.ends = *bytes.NewBuffer(bytes.Clone(s.log.Bytes())), slices.Clone(s.ends) // no room for more
	s.size = int64(s.log.Len() + 8*len(s.ends) + len(s.body))
	return nil
}

// Since returns the events behind the first n as they are sent, how many there
// are by now, and a channel that is closed with the next one, nil at the end. What
// it returns is shared by all who ask, and must not be changed.
func (s *Session) Since(n int) (events []byte, count int, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.encodeLocked()
	count = len(s.ends)
	if n < count {
		start := 0
		if n > 0 {
			start = s.ends[n-1]
		}
		events = s.log.Bytes()[start:s.log.Len():s.log.Len()]
	}
	if s.state == nil {
		return events, count, nil
	}
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return events, count, s.more
}

// JSON returns the session as far as it is known, with a line break behind it.
func (s *Session) JSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == nil {
		return s.body, nil
	}
	var body bytes.Buffer
	err := newEncoder(&body).Encode(s.state)
	return body.Bytes(), err
}

// Done returns a channel that is closed at the end.
func (s *Session) Done() <-chan struct{} { return s.done }

// Failure returns why the session has no result, nil when it has one or runs.
func (s *Session) Failure() *council.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Summary returns where the session stands.
func (s *Session) Summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Summary{ID: s.ID, Status: s.status, Created: s.Created}
}

// Cancel cancels the run of a session, if it has not ended.
func (s *Session) Cancel(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// Hold counts a client that waits for the session. The returned function takes
// that back: a session that is not in the background is cancelled with the cause
// when nobody waits any longer.
func (s *Session) Hold() (release func(cause error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	return func(cause error) {
		s.mu.Lock()
		s.clients--
		last := s.clients == 0
		s.mu.Unlock()
		if last && !s.background {
			s.Cancel(cause)
		}
	}
}
