package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

const (
	// maxCrashes is how many processes may die while a session works (see work). After that, the session ends with the
	// results that it has, because the session itself may crash the processes.
	maxCrashes = 3
	// maxOwners is how many processes in a row may own a session without releasing it, whether the session works or
	// waits. There is a limit because each owner that died may have paid for the same calls again.
	maxOwners = 30
)

// past is the state of a session as its log in the journal describes it.
type past struct {
	runlog.State
	head    journal.Head // the header of the last message
	seq     uint64       // the sequence of the last message
	number  int          // the number of the last entry
	view    view
	damaged error
	// overdue says that the owner of the session has appended nothing for longer than the run of the session may take.
	overdue bool
}

// readPast returns the past that the messages of a log describe. It returns nil if there are no messages. It also
// returns nil if the head of the log is lost and the session has not ended, because such a session cannot be
// continued.
func readPast(stored []journal.Stored, damaged error) (*past, error) {
	if len(stored) == 0 || !hasHead(stored[0]) && !slices.ContainsFunc(stored, ends) {
		return nil, nil
	}
	p := &past{damaged: damaged}
	for _, m := range stored {
		if err := p.Apply(runlog.Append{Node: m.Node, At: m.At, Entries: m.Entries}); err != nil {
			return nil, err
		}
		p.head = m.Head
		p.seq = m.Seq
		p.number = m.First + len(m.Entries) - 1
		for _, e := range m.Entries {
			if runlog.Shown(e.Type) {
				p.view.show(council.Event{Type: e.Type}, e)
			} else if e.Type == runlog.TypeClaimed {
				p.view.takenOver()
			}
		}
	}
	return p, nil
}

// begun reports whether a process has begun to run the session. Until then, the node that stored the head may still
// refuse the session.
func (p *past) begun() bool { return len(p.Entries) > 0 || p.head.Epoch > 1 || p.Released }

// hasHead reports whether a message holds the head of its log.
func hasHead(m journal.Stored) bool {
	return m.First == 1 && len(m.Entries) > 0 && m.Entries[0].Type == runlog.TypeAccepted
}

// ends reports whether a message holds the end of its session.
func ends(m journal.Stored) bool {
	n := len(m.Entries)
	return n > 0 && runlog.Ends(m.Entries[n-1].Type)
}

// load reads a log from the journal. It returns nil if there is no log.
func (st *Store) load(ctx context.Context, id journal.ID) (*past, error) {
	stored, err := st.o.Journal.Read(ctx, id)
	if _, damaged := errors.AsType[*journal.Damaged](err); err != nil && !damaged && !errors.Is(err, journal.ErrGone) {
		return nil, err
	}
	p, err := readPast(stored, err)
	if p == nil || err != nil {
		return p, err
	}
	if _, ended := p.Ended(); !ended && p.damaged == nil && st.o.Journal.LostPart(id) {
		p.damaged = &journal.Damaged{
			ID:     id,
			Entry:  p.number + 1,
			Seq:    p.seq,
			Reason: "its newest entries are lost, or may be",
		}
	}
	return p, nil
}

// read returns the session of a log in the journal, or nil if there is no log. If there are other nodes, read also
// looks for a log that the index does not have yet.
func (st *Store) read(ctx context.Context, id journal.ID) (*Session, error) {
	if st.o.Journal == nil {
		return nil, nil
	}
	if _, ok := st.o.Journal.Row(id); !ok && st.o.Lease == 0 {
		return nil, nil
	}
	s, err := st.readLog(ctx, id)
	if errors.Is(err, journal.ErrUnavailable) {
		err = unavailable(err,
			"the kept sessions cannot be read now, so whether there is such a session is not known: try again later")
	}
	return s, err
}

// readLog returns the session of a log, whether or not the index has it.
func (st *Store) readLog(ctx context.Context, id journal.ID) (*Session, error) {
	st.mu.Lock()
	if f := st.followed[id]; f != nil {
		defer st.mu.Unlock()
		return st.joinLocked(ctx, f), nil
	}
	s := st.sessions[id.Session]
	st.mu.Unlock()
	if s != nil { // This node has just taken the session over.
		return s.there(ctx)
	}
	loading := ctx
	if _, ok := st.o.Journal.Row(id); !ok { // Most likely there is no log.
		var cancel context.CancelFunc
		loading, cancel = context.WithTimeout(ctx, st.o.Waits.Lag)
		defer cancel()
	}
	p, err := st.load(loading, id)
	if p == nil || err != nil {
		return nil, err
	}
	if _, ended := p.Ended(); !ended && st.o.Lease > 0 {
		return st.follow(ctx, id, p)
	}
	if s, err = st.session(id, p); err != nil {
		return nil, err
	}
	s.over = true
	close(s.done)
	return s, nil
}

// session returns the session of a log.
func (st *Store) session(id journal.ID, p *past) (*Session, error) {
	s := &Session{
		origin: origin{
			Created:    p.head.Created,
			background: true,
			alone:      p.Background,
			token:      p.Plan.Token,
			request:    p.Plan.Request(),
			council:    p.Plan.Council(),
			listed:     listed(p.Plan),
			first:      first(p.Plan),
			door:       p.Plan.Door,
		},
		ID:      id.Session,
		store:   st,
		done:    make(chan struct{}),
		view:    p.view,
		session: p.Plan.Session(),
		status:  p.head.Status,
		title:   p.head.Title,
	}
	copy(s.Digest[:], p.Digest)
	s.key.owner = Owner(id.Owner)
	s.keeper = st.newKeeper(s, p.head)
	if last, ended := p.Ended(); ended {
		return s, s.readEndLocked(last, p.Result)
	}
	for _, e := range p.view.entries {
		if event, err := e.Decode(); err == nil {
			s.noteLocked(event)
		}
	}
	return s, nil
}

// readEndLocked reads how a session ended from the last entry of its log. The argument result is the JSON of the
// session if the session failed.
func (s *Session) readEndLocked(last council.Entry, result json.RawMessage) error {
	body := last.Data
	if last.Type == council.EventFailed {
		event, err := last.Decode()
		if err != nil {
			return err
		}
		s.failure, _ = event.Data.(*council.Error)
		body = result
	}
	session := new(council.Session)
	if err := json.Unmarshal(body, session); err != nil {
		return fmt.Errorf("reading session %s: %w", s.ID, err)
	}
	s.session = session
	s.body = append(slices.Clip([]byte(body)), '\n')
	s.last = s.body
	s.status = s.session.Status
	s.line = council.FirstLine(session.Answer)
	return nil
}

// Resumed is a session that another process began.
type Resumed struct {
	*Session
	Plan      council.Plan
	Cancelled bool // a client asked to cancel the session
}

// Resume continues the sessions in the journal that have not ended. Call it once, before all other methods. Without a
// lease (one machine), no earlier process can still run, so Resume makes this process the owner of every session
// before it returns. If this fails for a session, for example because the journal is full, Resume tries again in the
// background until Close. The sessions that Resume continues before it returns do not count against the limit of
// sessions that run. In all cases, Resume starts takeOver, which looks for sessions without a run until Close. With a
// lease (cluster), takeOver finds the sessions of dead nodes. Resume logs what is wrong with a session.
func (st *Store) Resume(ctx context.Context, r Runner) {
	if st.o.Journal == nil {
		return
	}
	st.runner = r
	defer st.keepers.Go(func() { st.takeOver(st.ctx, r) })
	if st.o.Lease > 0 {
		return
	}
	left := slices.DeleteFunc(st.o.Journal.Unended(), func(row journal.IndexRow) bool {
		s, err := st.claim(ctx, row.ID, anybody)
		if err != nil {
			st.o.Log.ErrorContext(ctx, "a session cannot be continued now: it is tried again",
				"session_id", row.Session, "error", err)
		} else if s != nil {
			r.Run(*s, nil)
		}
		return err == nil
	})
	if len(left) > 0 {
		st.keepers.Go(func() { st.claimLeft(st.ctx, left, r) })
	}
}

// anybody is an argument of claim. It returns true for every session, so this process becomes the owner, no matter
// which process owned the session before.
func anybody(*past) bool { return true }

// claimLeft tries at intervals to become the owner of the sessions in left and to run them, until it owns all of them
// or ctx ends.
func (st *Store) claimLeft(ctx context.Context, left []journal.IndexRow, r Runner) {
	tick := time.NewTicker(st.o.Waits.Claim)
	defer tick.Stop()
	for len(left) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		left = slices.DeleteFunc(left, func(row journal.IndexRow) bool {
			placed, err := st.goOn(ctx, row.ID, r, anybody)
			return placed && err == nil
		})
	}
}

// goOn takes one of the limited places for sessions that run (see Runner). It then makes this process the owner of a
// session, as claim does, and runs the session. placed is false if no place is free.
func (st *Store) goOn(ctx context.Context, id journal.ID, r Runner, free func(*past) bool) (placed bool, err error) {
	release, ok := r.Place()
	if !ok {
		return false, nil
	}
	s, err := st.claim(ctx, id, free)
	if s == nil {
		release()
		return true, err
	}
	r.Run(*s, release)
	return true, nil
}

// claim makes this process the owner of a session, if the function free returns true for the state of the session. If
// there is nothing to continue, claim returns nil.
func (st *Store) claim(ctx context.Context, id journal.ID, free func(*past) bool) (*Resumed, error) {
	st.claiming.Lock()
	defer st.claiming.Unlock()
	if st.has(id) {
		return nil, nil
	}
	row, _ := st.o.Journal.Row(id)
	st.o.Journal.Working(id, true) // Reading the log may itself crash the process.
	defer st.o.Journal.Working(id, false)
	p, err := st.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if p == nil { // The head is lost, and the plan with it.
		st.o.Log.ErrorContext(ctx, "a session cannot be continued, because the head of its log is lost",
			"session_id", id.Session)
		_, err := st.o.Journal.Remove(ctx, id, row.Key, func(last *journal.Stored) bool { return last.Seq == row.Seq })
		return nil, err
	}
	if _, ended := p.Ended(); ended || !free(p) {
		return nil, nil
	}
	if holds, err := st.holdsKey(ctx, id, p); err != nil || !holds {
		return nil, err
	}
	s, err := st.session(id, p)
	if err != nil {
		return nil, err
	}
	st.o.Journal.Working(id, false)
	k := s.keeper
	crashes, err := st.own(ctx, k, id, p)
	if err != nil {
		return nil, err
	}
	k.log.State = &p.State
	k.log.Last = p.damaged != nil || crashes >= maxCrashes || p.Owners >= maxOwners || p.overdue
	if k.log.Last {
		st.o.Log.ErrorContext(ctx, "a session is ended with what there is of it",
			"session_id", s.ID, "owners", p.Owners, "crashes", crashes, "damage", p.damaged, "overdue", p.overdue)
	}
	if st.o.Lease > 0 {
		st.o.Log.InfoContext(ctx, "took over a session of another node", "session_id", s.ID, "node", p.Owner)
	}
	st.insert(s)
	st.keep(k) //nolint:contextcheck // a keeper lives until the store is closed
	return &Resumed{Session: s, Plan: p.Plan, Cancelled: p.Cancelled}, nil
}

// holdsKey reports whether a session that has not begun still has its key. If the session no longer has the key,
// because its node gave the key up, holdsKey removes the log.
func (st *Store) holdsKey(ctx context.Context, id journal.ID, p *past) (bool, error) {
	if st.o.Lease <= 0 || p.head.Key == "" || p.begun() {
		return true, nil
	}
	holds, err := st.o.Journal.Holds(ctx, p.head.Key, id.Session)
	if err == nil && !holds {
		_, err = st.o.Journal.Remove(ctx, id, "", func(last *journal.Stored) bool { return last.Seq == p.seq })
	}
	return holds, err
}

// own appends to the log that this process now owns the session. It returns how often the session may have crashed
// the process that ran it.
func (st *Store) own(ctx context.Context, k *keeper, id journal.ID, p *past) (crashes int, err error) {
	k.head.Node = st.o.Node
	k.head.Epoch = p.head.Epoch + 1
	crashes = p.Crashes
	if !p.Released && p.Owner != st.o.Node && st.o.Journal.MayHaveKilled(id) {
		crashes++
	}
	data, err := json.Marshal(runlog.Claimed{Node: k.head.Node, Epoch: k.head.Epoch, Crashes: &crashes})
	if err != nil {
		return 0, err
	}
	k.head.Bytes += int64(len(data))
	entries := []council.Entry{{Type: runlog.TypeClaimed, Data: data}}
	m := journal.Message{Head: k.head, First: p.number + 1, Entries: entries}
	if k.seq, err = st.o.Journal.Append(ctx, id, p.seq, m); err != nil {
		return 0, err
	}
	k.number = m.First
	k.s.view.takenOver()
	return crashes, nil
}

// Begin sets the function that cancels the run of a resumed session.
func (s *Session) Begin(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
}

// release hands a session over to another process. It appends an entry to the log which says that no node owns the
// session. For the clients of this process, the session ends without a result.
func (s *Session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keeper
	if s.over || k.closed || k.open {
		return
	}
	k.flushLocked()
	k.queue = append(k.queue, pending{entry: council.Entry{Type: runlog.TypeReleased, Data: json.RawMessage("null")}})
	k.closed = true
	s.over = true
	s.failure = &council.Error{
		Code: council.CodeUnavailable, SessionID: s.ID, RetryAfter: 5 * time.Second,
		Detail: "the daemon stops; the session goes on when it is back",
	}
	k.wakeUp()
	s.wakeLocked()
	close(s.done)
}
