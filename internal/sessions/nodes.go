package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

const (
	// leasePoll is the pause between two checks whether a waiting call may begin (see mayCall).
	leasePoll = 50 * time.Millisecond
	// hearEvery is the shortest pause between two rounds in which hearOthers looks at the sessions that run here.
	hearEvery = 100 * time.Millisecond
)

// fresh reports whether the lease of this node was confirmed recently enough that no other node takes its sessions
// over.
func (st *Store) fresh() bool {
	return st.o.Lease == 0 || time.Since(st.o.Journal.Confirmed()) < st.o.Lease*2/3
}

// mayCall waits until the run may begin a call. The run calls it as runlog.Log.MayCall. mayCall waits until the lease
// of this node is confirmed, until ctx ends, or until the session continues without its log. If the lease was not
// confirmed for some time, mayCall also waits until the log confirms that this node still owns the session. If another
// node owns the session, the keeper ends the run.
func (k *keeper) mayCall(ctx context.Context) error {
	for {
		fresh := k.s.store.fresh()
		k.s.mu.Lock()
		may := k.open || fresh && (k.s.store.o.Lease == 0 || !k.owned.Before(k.s.store.o.Journal.Held()))
		k.s.mu.Unlock()
		if may {
			return nil
		}
		if fresh {
			k.tellForeign()
		}
		select {
		case <-time.After(leasePoll):
		case <-ctx.Done():
			return nil
		}
	}
}

// hearOthers watches the sessions that run here, until ctx ends. When another node appends to the log of such a
// session, hearOthers wakes its keeper.
func (st *Store) hearOthers(ctx context.Context) {
	for {
		changed := st.o.Journal.Changed()
		for _, s := range st.all() {
			k := s.keeper
			if k == nil {
				continue
			}
			row, ok := st.o.Journal.Row(k.id)
			if ok && row.Node != "" && (row.Node != k.head.Node || row.Epoch != k.head.Epoch) {
				k.tellForeign()
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(hearEvery):
		case <-ctx.Done():
			return
		}
	}
}

// tellForeign wakes the keeper, which reads what another node appended.
func (k *keeper) tellForeign() {
	select {
	case k.foreign <- struct{}{}:
	default:
	}
}

// hear reads what another node has appended to the log. The error is errTaken if the other node now owns the
// session.
func (k *keeper) hear(ctx context.Context) error {
	last, err := k.s.store.o.Journal.Last(ctx, k.id)
	switch {
	case err != nil:
		k.tellForeign() // so that the keeper tries again
		return err
	case last == nil:
		return errGone
	case last.Seq == k.seq:
		return nil
	}
	if last.Node == k.head.Node && last.Epoch == k.head.Epoch {
		return nil // The last message is an append of ours that got no answer. The next append finds it.
	}
	k.s.mu.Lock()
	queued := len(k.queue)
	k.s.mu.Unlock()
	stored, ok := k.resolve(last, queued)
	if !ok {
		return errTaken
	}
	k.advance(stored, last.Seq)
	return nil
}

// Runner runs the sessions that other processes began.
type Runner struct {
	// Place takes one of the limited places for sessions that run. ok is false if no place is free.
	Place func() (release func(), ok bool)
	// Run starts the run of a session from the state in its Log, and does not wait for the end. It passes a function
	// that cancels the run to Session.Begin. release frees the place of the session when the run ends. release is nil
	// if no place was taken.
	Run func(r Resumed, release func())
}

// deaths decides which nodes are dead.
type deaths struct {
	rows   map[journal.ID]unchanged // the sessions that run
	lease  time.Duration
	every  time.Duration // the pause between two calls of look
	looked time.Time     // when look was last called
	// since is the time since which this node's own lease has been confirmed without a gap. It is zero if the lease is
	// not confirmed.
	since  time.Time
	absent map[string]time.Time // for each node without a key, the time at which that was first seen
}

// unchanged says since when a log has not changed. seq is the sequence number of its last message. since is the time at
// which this node first saw that message.
type unchanged struct {
	seq   uint64
	since time.Time
}

// note notes the rows of the sessions that run. It is called after each look.
func (d *deaths) note(rows []journal.IndexRow) {
	before := d.rows
	d.rows = make(map[journal.ID]unchanged, len(rows))
	for _, row := range rows {
		u, ok := before[row.ID]
		if !ok || u.seq != row.Seq {
			u = unchanged{row.Seq, d.looked}
		}
		d.rows[row.ID] = u
	}
}

// quiet returns how long the log of a session has not changed. Time in which this node's own lease was not confirmed
// does not count.
func (d *deaths) quiet(row journal.IndexRow) time.Duration {
	u, ok := d.rows[row.ID]
	if !ok || u.seq != row.Seq || d.since.IsZero() {
		return 0
	}
	if d.since.After(u.since) {
		u.since = d.since
	}
	return d.looked.Sub(u.since)
}

// look records the time of this look at the other nodes. It is called about once a second. fresh says that this node's
// own lease is confirmed. look forgets how long other nodes have been silent if the lease is not confirmed, or if the
// last look was too long ago because the process slept. This node may then have missed signs of life.
func (d *deaths) look(now time.Time, fresh bool) {
	if !fresh || now.Sub(d.looked) > d.lease/3+d.every {
		d.since = time.Time{}
		d.absent = map[string]time.Time{}
	}
	if fresh && d.since.IsZero() {
		d.since = now
	}
	d.looked = now
}

// dead reports whether a node has been silent for a lease. nodes says when the key of each node last changed.
func (d *deaths) dead(node string, nodes map[string]time.Time) bool {
	if node == "" {
		return true // The session was released.
	}
	if d.since.IsZero() {
		return false
	}
	last, ok := nodes[node]
	if !ok {
		if last, ok = d.absent[node]; !ok {
			last = d.looked
			d.absent[node] = last
		}
	}
	if d.since.After(last) {
		last = d.since
	}
	return d.looked.Sub(last) >= d.lease
}

// takeOver looks once a second for sessions without a run, such as the sessions of dead nodes. It runs these sessions
// while places are free, until ctx ends.
func (st *Store) takeOver(ctx context.Context, r Runner) {
	d := deaths{lease: st.o.Lease, every: st.o.Waits.Look, absent: map[string]time.Time{}}
	tick := time.NewTicker(st.o.Waits.Look)
	defer tick.Stop()
	for {
		d.look(time.Now(), st.fresh())
		rows := st.o.Journal.Unended()
		d.note(rows)
		if orphans := st.orphans(&d, rows); len(orphans) > 0 {
			// A random pause and a random order spread the orphans over the nodes, because all nodes see the orphans at
			// the same time.
			select {
			case <-time.After(time.Duration(rand.Int64N(int64(st.o.Waits.Look)))): //nolint:gosec // no secret
			case <-ctx.Done():
				return
			}
			//nolint:gosec // no secret
			rand.Shuffle(len(orphans), func(i, j int) { orphans[i], orphans[j] = orphans[j], orphans[i] })
			for _, row := range orphans {
				if !st.rescue(ctx, &d, row, r) {
					break
				}
				d.look(time.Now(), st.fresh()) // rescue may have taken long, because it reads a whole log.
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// margin is how long a session may take beyond its time limit while the lease of its node is confirmed.
func (st *Store) margin() time.Duration { return st.o.Lease + st.o.Waits.Margin }

// orphans returns the rows of the sessions that have not ended but that no node seems to run.
func (st *Store) orphans(d *deaths, rows []journal.IndexRow) (orphans []journal.IndexRow) {
	nodes := st.o.Journal.Nodes()
	for _, row := range rows {
		switch {
		case row.Node == st.o.Node:
			// The last message is from this node, but the session does not run here. Either this node asked another
			// node to cancel the session, or an append of this node was stored and the answer was lost.
			if !st.has(row.ID) {
				orphans = append(orphans, row)
			}
		case st.o.Lease == 0: // Resume has continued it, unless the loss of its end was found after the start.
			if st.o.Journal.LostPart(row.ID) && !st.has(row.ID) {
				orphans = append(orphans, row)
			}
		case d.dead(row.Node, nodes), d.quiet(row) >= row.Timeout+st.margin():
			orphans = append(orphans, row)
		}
	}
	return orphans
}

// has reports whether a session runs here, or is being removed.
func (st *Store) has(id journal.ID) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, refused := st.refused[id]
	return refused || st.sessions[id.Session] != nil
}

// rescue takes a session over. It returns false if no place is free for the session.
func (st *Store) rescue(ctx context.Context, d *deaths, row journal.IndexRow, r Runner) bool {
	now, ok := st.o.Journal.Row(row.ID)
	if !ok || now.Seq != row.Seq || st.has(row.ID) || !st.fresh() {
		return true // another node was faster
	}
	if row.Node == st.o.Node && row.Entries <= 1 { // This is the head of a refused session. It arrived late.
		st.refuse(ctx, refusal{row.ID, row.Key, row.Epoch})
		return true
	}
	placed, err := st.goOn(ctx, row.ID, r, func(p *past) bool {
		switch quiet := d.quiet(row); {
		case p.Owner == st.o.Node: // This node's claim was stored, but the answer was lost.
			return true
		case st.o.Lease == 0:
			return p.damaged != nil // Resume continues the others.
		case d.dead(p.Owner, st.o.Journal.Nodes()):
			return st.suits(p, d)
		default: // The owner lives, but does not run the session.
			p.overdue = quiet >= p.Plan.Timeout+st.margin()
			return p.overdue || p.Cancelled && quiet >= st.o.Waits.Obey
		}
	})
	if _, moved := errors.AsType[*journal.Moved](err); err != nil && !moved && ctx.Err() == nil {
		st.o.Log.ErrorContext(ctx, "a session cannot be continued", "session_id", row.Session, "error", err)
	}
	return placed
}

// suits reports whether this node may continue a session. Either it has the prompts that the session needs, or no live
// node has them. If this node lacks prompts, suits returns false until this node has watched the other nodes for a
// lease, because only then does it know which nodes are alive.
func (st *Store) suits(p *past, d *deaths) bool {
	if p.Cancelled || st.reads(p, st.o.Prompts) {
		return true
	}
	if d.since.IsZero() || d.looked.Sub(d.since) < d.lease {
		return false
	}
	nodes := st.o.Journal.Nodes()
	for node, said := range st.o.Journal.Said() {
		if st.reads(p, strings.Fields(said)) && !d.dead(node, nodes) {
			return false
		}
	}
	return true
}

// reads reports whether a node with these prompts has all prompts that a session needs.
func (st *Store) reads(p *past, prompts []string) bool {
	return !slices.ContainsFunc(st.o.Needs(p.Plan, p.Stages()), func(n string) bool {
		return !slices.Contains(prompts, n)
	})
}

// storeLast stores the ends of sessions that are only in memory, so that every node can show these ends. It runs until
// ctx ends.
func (st *Store) storeLast(ctx context.Context) {
	for {
		select {
		case p := <-st.plain:
			if p.stored != nil {
				close(p.stored)
			} else if err := st.storePlain(ctx, p); err != nil && ctx.Err() == nil {
				st.o.Log.WarnContext(ctx, "the end of a session could not be stored: only this node shows it",
					"session_id", p.id.Session, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// maxPlain is how many ended sessions may wait until their end is stored. The ends of any more sessions are not
// stored, and only the node that ran those sessions shows them.
const maxPlain = 64

// plain is an ended session that is only in memory. It waits in a queue until storeLast stores its end.
type plain struct {
	id   journal.ID
	plan *council.Plan
	end  ending
	key  string // Start.Repeat if the end answers a repeated request, else ""
	// stored is nil for a session. A plain whose stored is not nil is only a marker in the queue: stored is closed
	// when all ends that were queued before the marker are stored.
	stored chan struct{}
}

// storedLast waits until storeLast has handled all ends that were queued before this call, or until ctx ends.
func (st *Store) storedLast(ctx context.Context) error {
	stored := make(chan struct{})
	select {
	case st.plain <- plain{stored: stored}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-stored:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// storePlain stores the end of a session as a log of one message.
func (st *Store) storePlain(ctx context.Context, p plain) error {
	data, err := json.Marshal(runlog.NewAccepted(*p.plan, nil, false))
	if err != nil {
		return err
	}
	m := journal.Message{First: 1, Head: listed(*p.plan)}
	m.Node = st.o.Node
	m.Epoch = 1
	m.Status = p.end.session.Status
	m.CostUSD = p.end.session.Metadata.Usage.CostUSD
	m.Timing = p.end.session.Metadata.Timing
	m.Answer = council.FirstLine(p.end.session.Answer)
	m.Key = p.key
	m.Entries = []council.Entry{{Type: runlog.TypeAccepted, Data: data}}
	if p.end.failure != nil {
		m.Entries = append(m.Entries, p.end.result().entry)
	}
	m.Entries = append(m.Entries, p.end.entry())
	for _, e := range m.Entries {
		m.Bytes += int64(len(e.Data))
	}
	_, err = st.o.Journal.Append(ctx, p.id, 0, m)
	return err
}

// tellLocked queues the end of a session that is only in memory. storeLast then stores the end for the other nodes.
// tellLocked does not wait: if the queue or the journal is full, the end is not stored.
func (st *Store) tellLocked(s *Session, end ending) {
	if s.plan == nil || st.o.Journal.Full() {
		return
	}
	p := plain{id: journal.ID{Owner: string(s.key.owner), Session: s.ID}, plan: s.plan, end: end}
	if s.repeatableLocked(end) {
		p.key = s.repeat
	}
	select {
	case st.plain <- p:
	default:
		st.o.Log.Warn("too many sessions end at once: only this node shows one of them", "session_id", s.ID)
	}
	s.plan = nil
}
