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

// IndexRow is a row of the index. It holds what the last message of a log says about the session.
type IndexRow struct {
	ID
	Head
	Entries int // number of the last entry that can be read
	// Seq is the sequence of the last part in the log. The next append must name it.
	Seq uint64
	At  time.Time // when that part was stored, by the engine's clock
}

// there returns the row that r points to. ok is false if r is nil.
func (r *IndexRow) there() (row IndexRow, ok bool) {
	if r == nil {
		return IndexRow{}, false
	}
	return *r, true
}

// index holds a row for each log.
type index struct {
	mu      sync.Mutex // guards all fields below
	rows    *table
	filling *table // the new rows while the index is built again
	build   int    // number of the consumer that feeds the index, from 1
	seen    uint64 // sequence of the last part that the consumer brought
	// gone maps each purged log to the sequence number of the last message that was removed. A log stays in gone while
	// the consumer may still bring messages up to that sequence number.
	gone    map[ID]uint64
	marks   []time.Time          // the times at which the marks in the stream were seen
	waits   map[ID]chan struct{} // the channel of a session is closed when the session's row changes
	changed chan struct{}        // closed with the next change of any row; nil while no goroutine waits
}

func newIndex() *index {
	return &index{rows: newTable(), gone: map[ID]uint64{}, waits: map[ID]chan struct{}{}}
}

// table holds the rows of the index. A row in a table is never changed, but can be replaced. Three lookups take the
// same time for any number of rows: the running rows, the row with a key, and the oldest ended row.
type table struct {
	rows    map[ID]*IndexRow
	running map[ID]*IndexRow
	keys    map[string]*IndexRow
	// ended has all rows that do not run, the oldest first. It also has some rows that were dropped.
	ended []*IndexRow
	bytes int64 // the sum of Head.Bytes over all sessions that do not run
}

func newTable() *table {
	return &table{rows: map[ID]*IndexRow{}, running: map[ID]*IndexRow{}, keys: map[string]*IndexRow{}}
}

// put replaces the row of a log and returns true. If the table has a newer row, put returns false and changes nothing.
func (t *table) put(row *IndexRow) bool {
	if old := t.rows[row.ID]; old != nil && old.Seq > row.Seq {
		return false
	}
	t.drop(row.ID, row.Seq)
	t.rows[row.ID] = row
	if row.Key != "" {
		t.keys[row.Key] = row
	}
	if row.runs() {
		t.running[row.ID] = row
		return true
	}
	t.bytes += row.Bytes
	// Ends come in order, except the ends that this process appended itself.
	at, ok := slices.BinarySearchFunc(t.ended, row.Seq, func(r *IndexRow, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	if ok {
		t.ended[at] = row
	} else {
		t.ended = slices.Insert(t.ended, at, row)
	}
	return true
}

// drop forgets the row of a log, unless the row is newer than seq.
func (t *table) drop(id ID, seq uint64) {
	row := t.rows[id]
	if row == nil || row.Seq > seq {
		return
	}
	delete(t.rows, id)
	delete(t.running, id)
	if t.keys[row.Key] == row {
		delete(t.keys, row.Key)
	}
	if !row.runs() {
		t.bytes -= row.Bytes
	}
}

// has reports whether the table still holds a row. It is false for a row of ended that was dropped.
func (t *table) has(row *IndexRow) bool { return t.rows[row.ID] == row }

// put adds a part to the index. build is the number of the consumer that brought the part, or 0 for an append.
func (x *index) put(build int, id ID, p part) {
	row := &IndexRow{ID: id, Head: p.Head, Entries: p.First + p.Count - 1, Seq: p.seq, At: p.at}
	row.Node = unique.Make(p.Node).Value() // Many sessions share the string.
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
	if p.gone() {
		x.marks = append(x.marks, time.Now())
		x.gone[id] = p.seq
		x.dropLocked(id, p.seq)
		return
	}
	if x.filling != nil {
		x.filling.put(row)
	}
	if x.rows.put(row) {
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
	x.rows.drop(id, seq)
	if x.filling != nil {
		x.filling.drop(id, seq)
	}
	x.tellLocked(id)
}

// tellLocked wakes the goroutines that wait for a change of this row, or of any row.
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

// begin begins to build the index again, and returns the number of the new consumer.
func (x *index) begin() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.build++
	x.filling = newTable()
	x.seen = 0
	x.marks = nil
	clear(x.gone)
	return x.build
}

// filled replaces the old rows by the new ones. It is called when the new rows are complete.
func (x *index) filled(build int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if build != x.build || x.filling == nil {
		return
	}
	x.rows = x.filling
	x.filling = nil
	for id := range x.waits { // tellLocked deletes the channels that it closes.
		x.tellLocked(id)
	}
}

func (x *index) get(id ID) (IndexRow, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rows.rows[id].there()
}

// changes returns a channel that is closed when the row of a session changes. The channel is nil if the session has no
// row.
func (x *index) changes(id ID) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.rows.rows[id]; !ok {
		return nil
	}
	if x.waits[id] == nil {
		x.waits[id] = make(chan struct{})
	}
	return x.waits[id]
}

// logs returns how many subjects the stream holds, according to the index. The number includes the marks.
func (x *index) logs() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.marks = slices.DeleteFunc(x.marks, func(seen time.Time) bool { return time.Since(seen) > goneFor })
	return len(x.rows.rows) + len(x.marks)
}

// size returns the number of rows, the number of rows that run, and the sequence of the last part that the consumer
// brought.
func (x *index) size() (rows, running int, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.rows.rows), len(x.rows.running), x.seen
}

// forgetGone removes a log from gone when the consumer can no longer bring its purged messages.
func (x *index) forgetGone() {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.gone, func(_ ID, seq uint64) bool { return seq <= x.seen })
}

// all returns all sessions, and whether each one runs.
func (x *index) all() map[ID]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[ID]bool, len(x.rows.rows))
	for id, row := range x.rows.rows {
		all[id] = row.runs()
	}
	return all
}

// sequences returns the sequence of each row.
func (x *index) sequences() map[ID]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[ID]uint64, len(x.rows.rows))
	for id, row := range x.rows.rows {
		all[id] = row.Seq
	}
	return all
}

// Rows returns the sessions of an owner. The running sessions come first. The ended sessions follow, the one that ended
// last first. Callers must not change the rows.
func (j *Journal) Rows(owner string) (rows []*IndexRow) {
	j.index.mu.Lock()
	defer j.index.mu.Unlock()
	for id, row := range j.index.rows.running {
		if id.Owner == owner {
			rows = append(rows, row)
		}
	}
	for _, row := range slices.Backward(j.index.rows.ended) {
		if row.Owner == owner && j.index.rows.has(row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// Keyed returns the row of the newest session with this Head.Key.
func (j *Journal) Keyed(key string) (row IndexRow, ok bool) {
	j.index.mu.Lock()
	defer j.index.mu.Unlock()
	return j.index.rows.keys[key].there()
}

// Oldest returns the row of the ended session that ended first, without those that were purged. It also returns the
// number of ended sessions and the sum of their bytes.
func (j *Journal) Oldest() (row IndexRow, sessions int, bytes int64) {
	j.index.mu.Lock()
	defer j.index.mu.Unlock()
	t := j.index.rows
	for ; len(t.ended) > 0; t.ended = t.ended[1:] {
		if t.has(t.ended[0]) {
			return *t.ended[0], len(t.rows) - len(t.running), t.bytes
		}
	}
	return IndexRow{}, 0, 0
}

// Newest returns the rows of at most n ended sessions, the one that ended last first. It returns only rows for which
// the function wanted returns true. That function must not call the Journal, and must not change or keep a row.
func (j *Journal) Newest(n int, wanted func(*IndexRow) bool) (rows []IndexRow) {
	j.index.mu.Lock()
	defer j.index.mu.Unlock()
	for _, row := range slices.Backward(j.index.rows.ended) {
		if len(rows) >= n {
			break
		}
		if j.index.rows.has(row) && wanted(row) {
			rows = append(rows, *row)
		}
	}
	return rows
}

// Unended returns the sessions that run according to the last messages of their logs, in the order of their creation.
func (j *Journal) Unended() (rows []IndexRow) {
	j.index.mu.Lock()
	for _, row := range j.index.rows.running {
		rows = append(rows, *row)
	}
	j.index.mu.Unlock()
	slices.SortFunc(rows, func(a, b IndexRow) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Session, b.Session))
	})
	return rows
}

func (r *IndexRow) runs() bool { return r.Status == council.StatusRunning }

// Row returns the row of a session. The second result is false if the session has no row.
func (j *Journal) Row(id ID) (IndexRow, bool) { return j.index.get(id) }

// Changed returns a channel that is closed with the next change of any row.
func (j *Journal) Changed() <-chan struct{} {
	j.index.mu.Lock()
	defer j.index.mu.Unlock()
	if j.index.changed == nil {
		j.index.changed = make(chan struct{})
	}
	return j.index.changed
}

// session returns the ID of the session to which a subject belongs. It returns false if the subject has another form.
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

// purged is the message that a process sends to the others after a purge.
type purged struct {
	ID  ID
	Seq uint64 // the messages up to this sequence were purged
}

// followPurges subscribes to the purges of all nodes, and drops the row of each purged log.
func (j *Journal) followPurges(l *link) (err error) {
	if l.purges != nil {
		return nil
	}
	l.purges, err = l.conn.Subscribe(j.o.Prefix+".purged", func(msg *nats.Msg) {
		var p purged
		if json.Unmarshal(msg.Data, &p) == nil {
			j.index.drop(p.ID, p.Seq)
		}
	})
	return err
}

// fill reads the last header of each log into the index. It also starts the consumer that adds the headers of new
// messages later.
func (j *Journal) fill(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	build := j.index.begin()
	if err := j.followPurges(l); err != nil {
		return err
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
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			j.o.Log.Debug("sessions index", "error", err)
		}))
	if err != nil {
		return err
	}
	l.feed(feed)
	// Also ask for the Info of the consumer. If the last messages are purged before the consumer brings them, only the
	// Info shows that no more messages will come.
	info := consumer.CachedInfo()
	for info == nil || info.NumPending > 0 {
		select {
		case <-all:
			j.index.filled(build)
			return nil
		case <-ctx.Done():
			rows, _, _ := j.index.size()
			return fmt.Errorf("after %d sessions: %w", rows, context.Cause(ctx))
		case <-time.After(j.o.Waits.Poll):
		}
		if info, err = consumer.Info(ctx); err != nil {
			return err
		}
	}
	j.index.filled(build)
	return nil
}

// sweep drops the rows whose logs are no longer in the stream.
func (j *Journal) sweep(ctx context.Context, l *link) error {
	before := j.index.sequences()
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
	for id, seq := range before {
		if !here[id] && seq <= info.State.LastSeq { // a newer row stays
			x.dropLocked(id, seq)
		}
	}
	return nil
}

// Purge removes the log of a session and its reservation. If there is no log, it returns nil.
func (j *Journal) Purge(ctx context.Context, id ID) error {
	subject, err := j.subject("session", id)
	if err != nil {
		return nil // Such an ID has no log.
	}
	defer j.ends.delete(id)()
	err = j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		row, _ := j.index.get(id)
		last, err := l.last(ctx, subject)
		if last == nil || last.gone() {
			if err == nil {
				j.index.drop(id, row.Seq) // Another process purged it.
			}
			return err
		}
		if err == nil && last.Key != "" {
			if err := j.release(ctx, l, last.Key, id.Session); err != nil {
				return err
			}
		}
		return j.purge(ctx, l, id, subject, last.seq)
	})
	j.wake()
	if errors.Is(err, errIdle) {
		return nil
	}
	return err
}

// purge removes the messages of a log up to a sequence number, and sends a message about the purge to all processes.
func (j *Journal) purge(ctx context.Context, l *link, id ID, subject string, seq uint64) error {
	try, cancel := l.within(ctx)
	defer cancel()
	if err := l.log.Purge(try, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(seq+1)); err != nil {
		return err
	}
	j.index.drop(id, seq)
	note, err := json.Marshal(purged{ID: id, Seq: seq})
	if err != nil {
		return err
	}
	return l.conn.Publish(j.o.Prefix+".purged", note)
}

// Remove removes a log if the function ours returns true for the last message of the log. If the argument key is not
// "", Remove also frees that key. If ours returns false, gone is false, and nothing was removed. If there is no log,
// Remove makes sure that no late append creates one.
//
// Remove replaces the log by a mark in one step. The engine accepts the mark only if the last message is still the one
// that Remove read. If another process has appended meanwhile, Remove reads again. While the mark is in the stream, the
// engine refuses appends and removals that arrive late. If the stream has no room for a mark, Remove purges the
// messages that it saw.
func (j *Journal) Remove(ctx context.Context, id ID, key string, ours func(last *Stored) bool) (gone bool, err error) {
	subject, err := j.subject("session", id)
	if err != nil {
		return true, nil // Such an ID has no log.
	}
	defer j.ends.delete(id)()
	err = j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		last, err := l.last(ctx, subject)
		switch {
		case last == nil && err != nil:
			return err
		case last != nil && last.gone():
		case last != nil && !ours(last.stored()):
			return nil
		default:
			if err := j.mark(ctx, l, id, subject, last); err != nil {
				return err
			}
		}
		gone = true
		if key == "" {
			return nil
		}
		return j.release(ctx, l, key, id.Session)
	})
	j.wake()
	if errors.Is(err, errIdle) {
		return true, nil
	}
	return gone && err == nil, err
}

// mark replaces a log by a mark, which follows the last part of the log. last is nil if there is no log.
func (j *Journal) mark(ctx context.Context, l *link, id ID, subject string, last *part) error {
	p := part{header: header{Head: Head{Node: j.o.Node, Status: statusGone}, Part: 1, Parts: 1}}
	after := uint64(0)
	if last != nil {
		after = last.seq
	}
	_, err := j.writing(ctx)
	room := err == nil
	if room {
		p.seq, err = l.publish(ctx, subject, after, p)
	}
	switch {
	case err == nil:
		j.index.put(0, id, p)
		return nil
	case room && !full(err):
		return err
	case last == nil:
		return nil // There is no room for a log either.
	default: // No other process can append to the log either.
		return j.purge(ctx, l, id, subject, after)
	}
}
