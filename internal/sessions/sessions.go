// Package sessions keeps sessions while they run and for some time afterwards:
// what is known of each and its log of events, in memory and within limits. It
// leaves running them to the pipeline, and the form in which a client sees a log,
// such as server-sent events, to the front doors.
//
// The log of a session is an ordered list. It is read as events, of the types that
// the run reported, or as entries, whose data is JSON. An event is encoded once,
// when an entry is first asked for, and all readers share the bytes. Sessions and
// idempotency keys belong to the owner that made them.
package sessions

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

// Owner tells apart whose sessions are whose: 16 hexadecimal digits that stand for a
// bearer token or its name, or "" where none is asked for.
type Owner string

// Options limit what is kept of finished sessions. The oldest go first.
type Options struct {
	Retention time.Duration // how long
	Kept      int           // how many
	KeptBytes int64         // how much: logs and bodies
}

// Store keeps sessions until Close. It is safe for concurrent use.
type Store struct {
	o Options

	mu       sync.Mutex          // guards all below; taken after a session's own, never before it
	sessions map[string]*Session // by id
	keys     map[key]*Session
	finished []*Session  // in the order in which they ended
	bytes    int64       // of finished
	expiry   *time.Timer // for the oldest of finished
	closed   bool
}

type key struct {
	owner Owner
	key   string
}

// New returns an empty Store.
func New(o Options) *Store {
	st := &Store{o: o, sessions: map[string]*Session{}, keys: map[key]*Session{}}
	st.expiry = time.AfterFunc(math.MaxInt64, st.evict) // never, before a session has ended
	return st
}

// Add takes in a session that starts. Where the owner has given its key before,
// it returns the session of that time instead, and false.
func (st *Store) Add(start Start) (s *Session, added bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
	k := key{start.Owner, start.Key}
	if old := st.keys[k]; old != nil {
		return old, false
	}
	s = &Session{
		ID: start.Plan.SessionID, Digest: start.Digest, Created: start.Plan.Created, key: k, background: start.Background || k.key != "",
		store: st, done: make(chan struct{}),
		session: start.Plan.Session(), status: council.StatusRunning, cancel: start.Cancel,
	}
	st.sessions[s.ID] = s
	if k.key != "" {
		st.keys[k] = s
	}
	return s, true
}

// Get returns the owner's session with an id, or nil.
func (st *Store) Get(owner Owner, id string) *Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
	if s := st.sessions[id]; s != nil && s.key.owner == owner {
		return s
	}
	return nil
}

// Find returns the session for which the owner gave an idempotency key, or nil.
func (st *Store) Find(owner Owner, k string) *Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
	return st.keys[key{owner, k}]
}

// List returns the owner's sessions, the newest first.
func (st *Store) List(owner Owner) []council.Summary {
	list := []council.Summary{}
	for _, s := range st.all() {
		if s.key.owner == owner {
			list = append(list, s.Summary())
		}
	}
	slices.SortFunc(list, func(a, b council.Summary) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.ID, a.ID))
	})
	return list
}

// Delete forgets a session that has ended, and its idempotency key. It does nothing to
// one that runs or is forgotten already.
func (st *Store) Delete(s *Session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if i := slices.Index(st.finished, s); i >= 0 {
		st.forgetLocked(i, i+1)
	}
}

// Cancel cancels every session that runs.
func (st *Store) Cancel(cause error) {
	for _, s := range st.all() {
		s.Cancel(cause)
	}
}

func (st *Store) all() []*Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
	return slices.Collect(maps.Values(st.sessions))
}

// ended makes room for a session that is over.
func (st *Store) ended(s *Session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.finished = append(st.finished, s)
	st.bytes += s.size
	st.evictLocked()
}

// Close forgets the finished sessions, and keeps none that ends later.
func (st *Store) Close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	st.evictLocked()
}

// evict forgets the sessions whose time is over. Their memory is not to wait for the
// next request.
func (st *Store) evict() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
}

// evictLocked forgets the finished sessions that are beyond a limit, and has the next
// one forgotten when its time is over.
func (st *Store) evictLocked() {
	n := 0
	left := st.bytes
	for _, s := range st.finished {
		if !st.closed && len(st.finished)-n <= st.o.Kept && left <= st.o.KeptBytes && time.Since(s.ended) < st.o.Retention {
			break
		}
		n++
		left -= s.size
	}
	st.forgetLocked(0, n)
	st.expiry.Stop()
	if len(st.finished) > 0 {
		st.expiry.Reset(time.Until(st.finished[0].ended.Add(st.o.Retention)))
	}
}

// forgetLocked forgets the finished sessions from one index to before another.
func (st *Store) forgetLocked(from, to int) {
	for _, s := range st.finished[from:to] {
		st.bytes -= s.size
		delete(st.sessions, s.ID)
		delete(st.keys, s.key)
	}
	st.finished = slices.Delete(st.finished, from, to)
}

// encoder encodes one value after the other. Its zero value is ready.
type encoder struct {
	json *json.Encoder
	out  []byte // of the value that is being encoded
}

// encode returns v as JSON with a line break behind it. A panic becomes an error:
// what is encoded comes from a run, but the locks and the goroutine do not.
func (e *encoder) encode(v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while encoding: %v", p)
		}
	}()
	if e.json == nil {
		e.json = json.NewEncoder(e)
		e.json.SetEscapeHTML(false)
	}
	e.out = nil
	err = e.json.Encode(v)
	return e.out, err
}

// Write takes what the json.Encoder made. That writes a value at once, so that data
// of encode has no room for more.
func (e *encoder) Write(p []byte) (int, error) {
	e.out = append(e.out, p...)
	return len(p), nil
}
