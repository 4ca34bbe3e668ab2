package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/councild/councild/internal/council"
)

// Row is what the index knows of a session.
type Row struct {
	ID
	Head
	Entries int       // number of the last entry that can be read
	Seq     uint64    // of the last part in the log: what an append expects
	At      time.Time // of the last part
}

// index holds a row for each log.
type index struct {
	mu      sync.Mutex // guards all below
	rows    map[ID]Row
	filling map[ID]Row           // while the index is built again, the new rows
	build   int                  // number of the consumer that feeds the index
	seen    uint64               // sequence of the last part that the consumer brought
	gone    map[ID]uint64        // up to what the logs were purged that the consumer may still bring
	waits   map[ID]chan struct{} // closed when the row changes
	changed chan struct{}        // closed with the next change; nil while nobody waits
}

func newIndex() *index {
	return &index{rows: map[ID]Row{}, gone: map[ID]uint64{}, waits: map[ID]chan struct{}{}}
}

// put notes a part. build is that of the consumer that brought it, 0 for an append.
func (x *index) put(build int, id ID, p part) {
	row := Row{ID: id, Head: p.Head, Entries: p.First + p.Count - 1, Seq: p.seq, At: p.at}
	row.Node = unique.Make(p.Node).Value() // a node has many sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	if build != 0 {
		if build != x.build {
			return
		}
		x.seen = p.seq
	}
	if p.seq <= x.gone[id] {
		return
	}
	if x.filling != nil && x.filling[id].Seq <= p.seq {
		x.filling[id] = row
	}
	if x.rows[id].Seq <= p.seq {
		x.rows[id] = row
		x.tellLocked(id)
	}
}

// drop forgets a session whose log was purged up to a sequence.
func (x *index) drop(id ID, seq uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone[id] = max(x.gone[id], seq)
	x.dropLocked(id, seq)
}

func (x *index) dropLocked(id ID, seq uint64) {
	for _, rows := range []map[ID]Row{x.rows, x.filling} {
		if row, ok := rows[id]; ok && row.Seq <= seq {
			delete(rows, id)
		}
	}
	x.tellLocked(id)
}

func (x *index) tellLocked(id ID) {
	if wait := x.waits[id]; wait != nil {
		close(wait)
		delete(x.waits, id)
	}
	if x.changed != nil {
		close(x.changed)
		x.changed = nil
	}
}

// begin begins to build the index anew, and returns the number of the consumer.
func (x *index) begin() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.build++
	x.filling, x.seen = map[ID]Row{}, 0
	clear(x.gone)
	return x.build
}

// filled makes the new rows the index.
func (x *index) filled(build int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if build != x.build || x.filling == nil {
		return
	}
	x.rows, x.filling = x.filling, nil
	for id := range x.waits { // tellLocked deletes what it has told
		x.tellLocked(id)
	}
}

func (x *index) get(id ID) (Row, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	row, ok := x.rows[id]
	return row, ok
}

func (x *index) len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.rows)
}

// list returns the rows that are wanted, in no order.
func (x *index) list(wanted func(Row) bool) []Row {
	x.mu.Lock()
	defer x.mu.Unlock()
	var rows []Row
	for _, row := range x.rows {
		if wanted(row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// changes returns a channel that is closed when the row of a session changes, nil when
// it has none.
func (x *index) changes(id ID) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.rows[id]; !ok {
		return nil
	}
	if x.waits[id] == nil {
		x.waits[id] = make(chan struct{})
	}
	return x.waits[id]
}

// snapshot is the index at one time.
type snapshot struct {
	seen uint64
	rows map[ID]uint64 // their sequences
}

func (x *index) snapshot() snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.gone, func(_ ID, seq uint64) bool { return seq <= x.seen })
	s := snapshot{seen: x.seen, rows: make(map[ID]uint64, len(x.rows))}
	for id, row := range x.rows {
		s.rows[id] = row.Seq
	}
	return s
}

// Rows returns the sessions of an owner, in no order.
func (j *Journal) Rows(owner string) []Row {
	return j.index.list(func(r Row) bool { return r.Owner == owner })
}

// Keyed returns the row of the session that a reservation is of, as Head.Key names it.
func (j *Journal) Keyed(key string) (row Row, ok bool) {
	rows := j.index.list(func(r Row) bool { return r.Key == key })
	if len(rows) == 0 {
		return row, false
	}
	return rows[0], true
}

// All returns the sessions of all owners, in no order.
func (j *Journal) All() []Row { return j.index.list(func(Row) bool { return true }) }

// Unended returns the sessions whose last message says that they run, the oldest first.
func (j *Journal) Unended() []Row {
	rows := j.index.list(Row.runs)
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Session, b.Session))
	})
	return rows
}

func (r Row) runs() bool { return r.Status == council.StatusRunning }

// Row returns the row of a session.
func (j *Journal) Row(id ID) (Row, bool) { return j.index.get(id) }

// Changed returns a channel that is closed with the next change of any row.
func (j *Journal) Changed() <-chan struct{} {
	j.index.mu.Lock()
	defer j.index.mu.Unlock()
	if j.index.changed == nil {
		j.index.changed = make(chan struct{})
	}
	return j.index.changed
}

// session returns the session of a subject.
func session(subject string) (ID, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 {
		return ID{}, false
	}
	id := ID{Owner: parts[2], Session: parts[3]}
	if id.Owner == noOwner {
		id.Owner = ""
	}
	return id, true
}

// purged is what processes tell each other of a purge.
type purged struct {
	ID  ID
	Seq uint64 // all up to it
}

// fill reads the last header of each log into the index, and has what comes follow.
func (j *Journal) fill(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	build := j.index.begin()
	if l.purges == nil {
		var err error
		l.purges, err = l.conn.Subscribe(j.o.Prefix+".purged", func(msg *nats.Msg) {
			var p purged
			if json.Unmarshal(msg.Data, &p) == nil {
				j.index.drop(p.ID, p.Seq)
			}
		})
		if err != nil {
			return err
		}
	}
	consumer, err := l.js.OrderedConsumer(ctx, l.log.CachedInfo().Config.Name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, HeadersOnly: true,
	})
	if err != nil {
		return err
	}
	all := make(chan struct{})
	done := sync.OnceFunc(func() { close(all) })
	feed, err := consumer.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			return
		}
		p, err := parse(msg.Headers(), nil, meta.Sequence.Stream, meta.Timestamp)
		if id, ok := session(msg.Subject()); ok && err == nil {
			j.index.put(build, id, p)
		}
		if meta.NumPending == 0 {
			done()
		}
	}, jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(2*time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { j.o.Log.Debug("sessions index", "error", err) }))
	if err != nil {
		return err
	}
	l.feed(feed)
	// Where the last ones are purged before they come, only asking tells that all came.
	info := consumer.CachedInfo()
	for info == nil || info.NumPending > 0 {
		select {
		case <-all:
			j.index.filled(build)
			return nil
		case <-ctx.Done():
			return fmt.Errorf("after %d sessions: %w", j.index.len(), context.Cause(ctx))
		case <-time.After(poll):
		}
		if info, err = consumer.Info(ctx); err != nil {
			return err
		}
	}
	j.index.filled(build)
	return nil
}

// sweep drops the rows that were there before, and are in the stream no more.
func (j *Journal) sweep(ctx context.Context, l *link, before snapshot) error {
	info, err := l.log.Info(ctx, jetstream.WithSubjectFilter(j.o.Prefix+".session.*.*"))
	if err != nil {
		return fmt.Errorf("comparing the list of sessions: %w", err)
	}
	here := make(map[ID]bool, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		if id, ok := session(subject); ok {
			here[id] = true
		}
	}
	x := j.index
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, seq := range before.rows {
		if !here[id] && seq <= info.State.LastSeq && x.rows[id].Seq == seq {
			x.dropLocked(id, seq)
		}
	}
	return nil
}

// Purge removes the log of a session and its reservation. It is no error where there is
// none.
func (j *Journal) Purge(ctx context.Context, id ID) error {
	subject, err := j.subject("session", id)
	if err != nil {
		return nil //nolint:nilerr // such an ID has no log
	}
	err = j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		last, err := l.last(ctx, subject)
		if last == nil {
			return err
		}
		if err == nil && last.Key != "" {
			if err := j.release(ctx, l, last.Key, id.Session); err != nil {
				return err
			}
		}
		try, cancel := l.within(ctx)
		defer cancel()
		if err := l.log.Purge(try, jetstream.WithPurgeSubject(subject)); err != nil {
			return err
		}
		j.index.drop(id, last.seq)
		note, err := json.Marshal(purged{ID: id, Seq: last.seq})
		if err != nil {
			return err
		}
		return l.conn.Publish(j.o.Prefix+".purged", note)
	})
	j.wake()
	if errors.Is(err, errIdle) {
		return nil
	}
	return err
}
