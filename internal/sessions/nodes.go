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
	// leasePoll is how often a call looks whether it may begin, while it may not.
	leasePoll = 50 * time.Millisecond
	// hearEvery is the least time between two looks at the last messages of the sessions that
	// run here.
	hearEvery = 100 * time.Millisecond
)

// fresh reports whether the lease of this node was confirmed not too long ago: no other
// node takes its sessions over yet.
func (st *Store) fresh() bool {
	return st.o.Lease == 0 || time.Since(st.o.Journal.Confirmed()) < st.o.Lease*2/3
}

// mayCall waits until the lease of this node is confirmed, until ctx ends, or until the
// session goes on without its log. After a time without a confirmed lease, another node
// may have the session: then it waits until the log has said that this one still has it,
// or ended the run. It is runlog.Log.MayCall.
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

// hearOthers tells the keepers of the sessions that run here what other nodes append to
// their logs, until ctx ends.
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

// tellForeign has the keeper read what another node appended.
func (k *keeper) tellForeign() {
	select {
	case k.foreign <- struct{}{}:
	default:
	}
}

// hear reads what another node has appended to the log. The error is errTaken where that
// makes the session the other's.
func (k *keeper) hear(ctx context.Context) error {
	last, err := k.s.store.o.Journal.Last(ctx, k.id)
	switch {
	case err != nil:
		k.tellForeign() // to read it again
		return err
	case last == nil:
		return errGone
	case last.Seq == k.seq:
		return nil
	}
	if last.Node == k.head.Node && last.Epoch == k.head.Epoch {
		return nil // an append of ours, whose answer has not come: the next one finds it
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

// Runner runs the sessions that other processes have begun.
type Runner struct {
	// Place takes a place for a session. ok is false where none is free.
	Place func() (release func(), ok bool)
	// Run runs a session to its end, from what its Log says, and has it cancelled by a
	// function that it gives to Begin. It does not wait for the end. release frees the
	// session's place; nil: none was taken yet.
	Run func(r Resumed, release func())
}

// deaths tells which nodes are dead.
type deaths struct {
	rows   map[journal.ID]unchanged // sessions that run
	lease  time.Duration
	every  time.Duration        // the pause between two looks
	looked time.Time            // when it was last asked
	since  time.Time            // since when this node's own lease was confirmed all the while; zero: it is not
	absent map[string]time.Time // nodes without a key, and since when that is known
}

// unchanged is the last message of a log, and since when it is the last.
type unchanged struct {
	seq   uint64
	since time.Time
}

// note takes the sessions that run, after each look.
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

// quiet returns for how long a session has appended nothing, while this node's own lease was confirmed.
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

// look is told the state of now, each second if it can be. A node whose own lease is not confirmed,
// or that slept, knows nothing of the others.
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

// dead reports whether a node has been silent for a lease. nodes is when the key of each
// last changed.
func (d *deaths) dead(node string, nodes map[string]time.Time) bool {
	if node == "" {
		return true // released
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

// takeOver looks each second for sessions without a run, such as those of dead nodes. It runs
// them while there are places, until ctx ends.
func (st *Store) takeOver(ctx context.Context, r Runner) {
	d := deaths{lease: st.o.Lease, every: st.o.Waits.Look, absent: map[string]time.Time{}}
	tick := time.NewTicker(st.o.Waits.Look)
	defer tick.Stop()
	for {
		d.look(time.Now(), st.fresh())
		rows := st.o.Journal.Unended()
		d.note(rows)
		if orphans := st.orphans(&d, rows); len(orphans) > 0 {
			// All nodes see them at the same time: a random moment shares them out.
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
				d.look(time.Now(), st.fresh()) // reading a large log takes long
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// margin is how long a session may take beyond its time limit, with a confirmed lease.
func (st *Store) margin() time.Duration { return st.o.Lease + st.o.Waits.Margin }

// orphans returns the rows, of sessions that run, whose sessions seem to have no run on any node.
func (st *Store) orphans(d *deaths, rows []journal.IndexRow) (orphans []journal.IndexRow) {
	nodes := st.o.Journal.Nodes()
	for _, row := range rows {
		switch {
		case row.Node == st.o.Node:
			// Either this node appended a request to cancel the session of another node, as the log tells. Or it stored
			// something without an answer.
			if !st.has(row.ID) {
				orphans = append(orphans, row)
			}
		case st.o.Lease == 0: // Resume continues it, unless its end was lost after the start.
			if st.o.Journal.LostPart(row.ID) && !st.has(row.ID) {
				orphans = append(orphans, row)
			}
		case d.dead(row.Node, nodes), d.quiet(row) >= row.Timeout+st.margin():
			orphans = append(orphans, row)
		}
	}
	return orphans
}

// has reports whether a session runs here, or is being deleted.
func (st *Store) has(id journal.ID) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, refused := st.refused[id]
	return refused || st.sessions[id.Session] != nil
}

// rescue takes a session over. It reports false where there is no place for another.
func (st *Store) rescue(ctx context.Context, d *deaths, row journal.IndexRow, r Runner) bool {
	now, ok := st.o.Journal.Row(row.ID)
	if !ok || now.Seq != row.Seq || st.has(row.ID) || !st.fresh() {
		return true // another node was faster
	}
	if row.Node == st.o.Node && row.Entries <= 1 { // the head of a session that was refused: it came late
		st.refuse(ctx, refusal{row.ID, row.Key, row.Epoch})
		return true
	}
	placed, err := st.goOn(ctx, row.ID, r, func(p *past) bool {
		switch quiet := d.quiet(row); {
		case p.Owner == st.o.Node: // its claim was stored, and the answer was lost
			return true
		case st.o.Lease == 0:
			return p.damaged != nil // Resume has the others
		case d.dead(p.Owner, st.o.Journal.Nodes()):
			return st.suits(p, d)
		default: // its owner lives, and does not run it
			p.overdue = quiet >= p.Plan.Timeout+st.margin()
			return p.overdue || p.Cancelled && quiet >= st.o.Waits.Obey
		}
	})
	if _, moved := errors.AsType[*journal.Moved](err); err != nil && !moved && ctx.Err() == nil {
		st.o.Log.ErrorContext(ctx, "a session cannot be gone on with", "session_id", row.Session, "error", err)
	}
	return placed
}

// suits reports whether this node is to go on with a session: it has the prompts that the
// session needs, or no node that is alive has them. Who is alive is known after a lease.
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

// reads reports whether a node with some prompts has those that a session needs.
func (st *Store) reads(p *past, prompts []string) bool {
	return !slices.ContainsFunc(st.o.Needs(p.Plan, p.Stages()), func(n string) bool {
		return !slices.Contains(prompts, n)
	})
}

// storeLast stores the end of sessions that were in memory alone, so that every node can
// show them, until ctx ends.
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

// maxPlain is how many sessions wait for their end being stored. Further ones are shown by
// their node alone.
const maxPlain = 64

// plain is a session that ran in memory, at its end.
type plain struct {
	id     journal.ID
	plan   *council.Plan
	end    ending
	key    string        // Start.Repeat, where the same request is answered with this end
	stored chan struct{} // where it is not nil, there is no session: it is closed when all before are stored
}

// storedLast waits until the ends of all sessions in memory are stored, or ctx ends.
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

func (st *Store) storePlain(ctx context.Context, p plain) error {
	data, err := json.Marshal(runlog.NewAccepted(*p.plan, nil, false))
	if err != nil {
		return err
	}
	m := journal.Message{First: 1, Head: journal.Head{
		Node:    st.o.Node,
		Epoch:   1,
		Status:  p.end.session.Status,
		Created: p.plan.Created,
		CostUSD: p.end.session.Metadata.Usage.CostUSD,
		Query:   p.plan.Preview(),
		Council: p.plan.Council(),
		Timing:  p.end.session.Metadata.Timing,
		Key:     p.key,
	}}
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

// tellLocked has the end of a session in memory stored for other nodes. Its answer does
// not wait.
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
