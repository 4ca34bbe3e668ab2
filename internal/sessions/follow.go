package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

// relayed is a message to the other nodes. It holds a piece of a text that a model is still writing. The node that runs
// the session sends it. Older versions of the daemon, which know only one text at a time, ignore the message because it
// has no field "epoch".
type relayed struct {
	Owner int `json:"owner"` // the epoch of the node that runs the session
	// Number is the number of the last entry before the piece. Writer is the index of the text, in the order in which
	// the texts began. Characters is how many characters of that text come before the piece.
	Number     int               `json:"number"`
	Writer     int               `json:"writer"`
	Characters int               `json:"characters"`
	Type       council.EventType `json:"type"`
	Data       json.RawMessage   `json:"data"`
}

// maxAhead is how many early pieces a follower holds at most. A piece is early if the entry before it has not come yet.
const maxAhead = 1024

// follower follows one session that another node runs. It shows the stored entries and the relayed text to the watchers
// in this process.
type follower struct {
	s        *Session
	id       journal.ID
	stop     context.CancelFunc
	watchers int // guarded by the mutex of the Store

	// The mutex of the session guards all fields below.
	epoch  int
	result json.RawMessage
	ahead  []relayed
}

// follow returns the session of a log that another node writes. All watchers in this process share one Session and one
// follower. The follower runs until the contexts of all these watchers have ended.
//
//nolint:contextcheck // the follower is shared, so it outlives a single watcher
func (st *Store) follow(ctx context.Context, id journal.ID, p *past) (*Session, error) {
	s, err := st.session(id, p)
	if err != nil {
		return nil, err
	}
	f := &follower{s: s, id: id, epoch: p.head.Epoch, result: p.Result}
	st.mu.Lock()
	defer st.mu.Unlock()
	if other := st.followed[id]; other != nil { // It was added meanwhile.
		return st.joinLocked(ctx, other), nil
	}
	if st.closed {
		s.leave()
		return s, nil
	}
	st.followed[id] = f
	var background context.Context
	background, f.stop = context.WithCancel(st.ctx)
	st.keepers.Go(func() { f.run(background, p.number) })
	return st.joinLocked(ctx, f), nil
}

// joinLocked adds a watcher to a follower until ctx ends. When the last watcher leaves, the follower stops.
func (st *Store) joinLocked(ctx context.Context, f *follower) *Session {
	f.watchers++
	context.AfterFunc(ctx, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if f.watchers--; f.watchers == 0 {
			f.stop()
			if st.followed[f.id] == f {
				delete(st.followed, f.id)
			}
		}
	})
	return f.s
}

// run shows what is new in the log, until the session ends, the log cannot be followed, or ctx ends. The argument
// behind is the number of the last entry that the follower has already shown.
func (f *follower) run(ctx context.Context, behind int) {
	st := f.s.store
	defer f.s.leave()
	ctx, stop := context.WithCancel(ctx)
	heard := make(chan struct{})
	pieces, err := st.o.Journal.Relayed(ctx, f.id)
	if err != nil {
		st.o.Log.WarnContext(ctx, "text of a session of another node comes late", "session_id", f.s.ID, "error", err)
	}
	go func() {
		defer close(heard)
		if pieces == nil {
			return
		}
		for data := range pieces {
			f.hear(data)
		}
	}()
	defer func() {
		stop()
		<-heard
	}()
	for m, err := range st.o.Journal.Follow(ctx, f.id, behind) {
		if err != nil {
			if !errors.Is(err, journal.ErrGone) {
				st.o.Log.WarnContext(ctx, "a session of another node cannot be followed",
					"session_id", f.s.ID, "error", err)
			}
			return
		}
		if f.take(m) {
			return
		}
	}
}

// take shows the entries of a message. ended is true if one of these entries ends the session, even if the end cannot
// be read.
func (f *follower) take(m journal.Stored) (ended bool) {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	f.epoch = max(f.epoch, m.Epoch)
	for _, e := range m.Entries {
		switch e.Type {
		case runlog.TypeClaimed:
			s.view.takenOver() // The next owner asks the models again.
		case runlog.TypeResult:
			f.result = e.Data
		case runlog.TypeAccepted, runlog.TypeCancelled, runlog.TypeReleased, council.EventBegun, council.EventCall:
		case council.EventDone, council.EventFailed:
			if err := s.readEndLocked(e, f.result); err != nil {
				s.store.o.Log.Error("the end of a session of another node cannot be read",
					"session_id", s.ID, "error", err)
				return true
			}
			s.view.show(council.Event{Type: e.Type}, e)
			s.closeLocked()
			return true
		default:
			s.view.show(council.Event{Type: e.Type}, e)
			if event, err := e.Decode(); err == nil {
				s.noteLocked(event)
			}
		}
	}
	ahead := f.ahead
	f.ahead = nil
	for _, p := range ahead {
		f.writeLocked(p)
	}
	s.wakeLocked()
	return false
}

// hear shows a piece of text, or holds it until the entry before it comes.
func (f *follower) hear(data []byte) {
	var p relayed
	if err := json.Unmarshal(data, &p); err != nil {
		return // Another version of the daemon relays it.
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.writeLocked(p)
}

// writeLocked shows a piece of text that directly continues the shown text. It holds a piece that comes too early. It
// drops every other piece, because a later entry brings the whole text.
func (f *follower) writeLocked(p relayed) {
	v := &f.s.view
	switch {
	case f.s.over || p.Owner < f.epoch || !isText(p.Type):
	case p.Owner > f.epoch || p.Number > len(v.entries):
		if len(f.ahead) < maxAhead {
			f.ahead = append(f.ahead, p)
		}
	case p.Number == len(v.entries) && 0 <= p.Writer && p.Writer <= len(v.lengths) &&
		p.Characters == v.length(p.Writer):
		v.write(newPiece(p.Writer, council.Entry{Type: p.Type, Data: p.Data}))
		f.s.wakeLocked()
	}
}

// leave ends the session for the watchers in this process. On another node, the session continues.
func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.failure = &council.Error{
		Code: council.CodeUnavailable, SessionID: s.ID, RetryAfter: 5 * time.Second,
		Detail: "the session cannot be watched here any more; ask again",
	}
	s.closeLocked()
}

// closeLocked notes that no more entries follow in this process.
func (s *Session) closeLocked() {
	s.over = true
	s.wakeLocked()
	close(s.done)
}

// demote ends the run in this process, because another node now owns the session. From then on this node follows the
// log that the other node writes. If the session continued without its log, its watchers may have seen more than the log
// holds, so they must ask again.
//
// demote returns false and does nothing if there are no other nodes, or if this node has handed the session over.
func (k *keeper) demote(ctx context.Context) bool {
	s := k.s
	st := k.s.store
	s.mu.Lock()
	open := k.open
	if st.o.Lease == 0 || s.over && !open {
		s.mu.Unlock()
		return false
	}
	s.demoted = true
	k.closed = true
	k.queue = nil
	k.text = unstored{}
	s.view.clearText()
	k.drainedLocked()
	if s.cancel != nil {
		s.cancel(errTaken)
		s.cancel = nil
	}
	s.mu.Unlock()
	st.disown(s)
	st.o.Log.WarnContext(ctx, "another node has taken over a session of this one, which was silent for too long",
		"session_id", s.ID)
	if open {
		s.leave()
		return true
	}
	f := &follower{s: s, id: k.id, epoch: k.head.Epoch}
	f.run(ctx, k.number)
	return true
}

// stopAttempts is how often Stop tries to append a request to cancel. A try fails if the owner of the session appends
// at the same time.
const stopAttempts = 20

// Stop cancels the run of a session that has not ended, even if the session runs on another node. If Stop returns an
// error for a session of this process, the run has ended, but the next process may continue the session.
func (st *Store) Stop(ctx context.Context, s *Session) error {
	if s.keeper == nil {
		s.Cancel(ErrDeleted)
		return nil
	}
	st.mu.Lock()
	here := st.sessions[s.ID] == s
	st.mu.Unlock()
	if here {
		if stored, err := s.keeper.cancel(ctx); stored || err != nil {
			return err
		}
	}
	var err error
	for range stopAttempts {
		var p *past
		if p, err = st.load(ctx, s.keeper.id); err != nil || p == nil {
			return err
		}
		if _, ended := p.Ended(); ended {
			return nil
		}
		seq := p.seq
		if !p.Cancelled {
			head := p.head
			head.Node = st.o.Node
			seq, err = st.o.Journal.Append(ctx, s.keeper.id, p.seq, journal.Message{
				Head: head, First: p.number + 1, Entries: []council.Entry{cancelRequest()},
			})
		}
		if err == nil {
			st.background(func() { st.insist(st.ctx, s.keeper.id, seq) })
			return nil
		}
		if _, moved := errors.AsType[*journal.Moved](err); !moved {
			return err
		}
	}
	return err
}

// background runs a function in a goroutine, unless the store is closed.
func (st *Store) background(do func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.closed {
		st.keepers.Go(do)
	}
}

// insist waits until a node obeys the request to cancel a session. If no node does so within Waits.Obey, insist ends
// the session. seq is the sequence number of the message with the request, which is the last message of the log.
func (st *Store) insist(ctx context.Context, id journal.ID, seq uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := time.After(st.o.Waits.Obey)
	for waiting := true; waiting; {
		changed := st.o.Journal.Changed()
		if row, ok := st.o.Journal.Row(id); !ok || row.Seq != seq {
			return
		}
		select {
		case <-changed:
		case <-over:
			waiting = false
		case <-ctx.Done():
			return
		}
	}
	if st.runner.Run == nil {
		return
	}
	s, err := st.claim(ctx, id, func(p *past) bool { return p.Cancelled && p.seq == seq })
	if err != nil { // takeOver tries again.
		st.o.Log.WarnContext(ctx, "a session that is to be cancelled runs nowhere, and cannot be ended yet",
			"session_id", id.Session, "error", err)
	} else if s != nil {
		st.runner.Run(*s, nil)
	}
}
