package sessions

import (
	"context"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// A replay answers a repeated request with the end of the first session. A replay is possible for replayFor after
	// that end, and for replayFor after each replay, but no longer than replayAtMost after that end.
	replayFor    = 2 * time.Minute
	replayAtMost = 10 * time.Minute
	// maxReplays is how many ends are remembered. The oldest are forgotten first.
	maxReplays = 1024
)

// replay is the session that answers a repeated request, in place of a new session.
type replay struct {
	key string // Start.Repeat
	// s is a session that still runs although its client has left, or one that has ended.
	s     *Session
	ended time.Time
	last  time.Time // when s last answered the request
}

// over reports whether the replay is out of date, so that the request may begin a new session.
func (r *replay) over() bool {
	if r.ended.IsZero() {
		return false
	}
	return time.Since(r.last) >= replayFor || time.Since(r.ended) >= replayAtMost
}

// Repeated returns the session that answers a repeated request, or nil if a new session may begin. A session answers if
// it failed after calls were paid, or if its client left before it ended with an answer. A session that was cancelled
// while its client was still there answers even if no call was paid. The returned session has ended: if it is still
// being cancelled, Repeated waits for its end.
func (st *Store) Repeated(ctx context.Context, key string) (*Session, error) {
	for key != "" {
		s, ended := st.replayed(key)
		if s == nil {
			return st.replayedElsewhere(ctx, key)
		}
		if ended {
			return s, nil
		}
		select {
		case <-s.done: // The end is noted before done is closed.
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, nil
}

// replayed returns the session that was noted with a key, and whether the session has ended.
func (st *Store) replayed(key string) (s *Session, ended bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.replays = slices.DeleteFunc(st.replays, (*replay).over)
	i := slices.IndexFunc(st.replays, func(r *replay) bool { return r.key == key })
	if i < 0 {
		return nil, false
	}
	r := st.replays[i]
	r.last = time.Now()
	return r.s, !r.ended.IsZero()
}

// replayedElsewhere is Repeated for a session that ran on another node. Each node counts the time since its own
// last replay.
func (st *Store) replayedElsewhere(ctx context.Context, key string) (*Session, error) {
	if st.o.Lease == 0 {
		return nil, nil
	}
	row, ok := st.o.Journal.Keyed(key)
	if !ok {
		return nil, nil
	}
	age := st.o.Journal.Now().Sub(row.At)
	if age >= replayFor {
		return nil, nil
	}
	s, err := st.read(ctx, row.ID)
	if s == nil || err != nil {
		return nil, err
	}
	if _, failure := s.Result(); failure != nil {
		s = s.Failed(failure)
	}
	st.noteReplay(key, s, time.Now().Add(-age))
	return s, nil
}

// noteReplay lets a session answer the requests with a key. ended is zero while the session runs.
func (st *Store) noteReplay(key string, s *Session, ended time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.replays = slices.DeleteFunc(st.replays, func(r *replay) bool { return r.key == key || r.over() })
	st.replays = append(st.replays, &replay{key: key, s: s, ended: ended, last: time.Now()})
	st.replays = slices.Delete(st.replays, 0, max(0, len(st.replays)-maxReplays))
}

// forgetReplay lets the next request with a key begin a new session.
func (st *Store) forgetReplay(key string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.replays = slices.DeleteFunc(st.replays, func(r *replay) bool { return r.key == key })
}

// repeatableLocked reports whether the end of the session answers a repeated request.
func (s *Session) repeatableLocked(end ending) bool {
	switch {
	case s.repeat == "":
		return false
	case end.failure == nil: // The client of the session has not seen the answer.
		return s.left
	case end.failure.Code == council.CodeCancelled:
		// A client that left before anything was paid may ask again. DELETE is final.
		return end.failure.Paid > 0 || !s.left
	default:
		return end.failure.Paid > 0
	}
}

// noteEndLocked notes the end of the session for repeated requests.
func (s *Session) noteEndLocked(end ending) {
	switch {
	case !s.repeatableLocked(end):
		if s.left {
			s.store.forgetReplay(s.repeat)
		}
	case end.failure == nil:
		s.store.noteReplay(s.repeat, s, time.Now())
	default:
		s.store.noteReplay(s.repeat, s.Failed(end.failure), time.Now())
	}
}

// Failed returns a session that has only the id, the creation time and the door of s, and the failure.
func (s *Session) Failed(failure *council.Error) *Session {
	failed := &Session{
		origin:  origin{Created: s.Created, door: s.door},
		ID:      s.ID,
		store:   s.store,
		done:    make(chan struct{}),
		over:    true,
		status:  council.StatusFailed,
		failure: failure,
		session: &council.Session{ID: s.ID, Status: council.StatusFailed},
	}
	failed.view.events = []council.Event{{Type: council.EventFailed, SessionID: s.ID, Data: failure}}
	close(failed.done)
	return failed
}
