package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

const (
	// beginsWithin is how long the beginning or the end of a stage waits for the entry that the next calls begin: both are
	// stored together.
	beginsWithin = 20 * time.Millisecond
	minPause     = 50 * time.Millisecond // between two attempts to append; later pauses are longer
	maxMessage   = 4 << 20               // bytes of entries that are appended at once; one entry may be larger
)

var (
	errGone  = errors.New("its log is gone")
	errTaken = errors.New("another process has taken it over")

	errNotStored = errors.New("the request to cancel it is not stored")
)

// keeper stores the log of one session, one message at a time. What comes while a
// message is on its way goes with the next.
type keeper struct {
	s    *Session
	id   journal.ID
	log  *runlog.Log
	stop context.CancelFunc
	wake chan struct{} // holds a token when there may be something to store
	// foreign holds a token when another node has appended to the log.
	foreign chan struct{}

	seq uint64 // of the last message; of the goroutine that stores

	whole bool // the log is to stay, although the session went on without it; guarded by the mutex of the Store

	// What follows is guarded by the mutex of the session.
	number  int // of the last entry that is stored
	head    journal.Head
	queue   []pending
	text    unstored
	held    time.Time     // until when an entry waits for the one that the next calls begin
	drained chan struct{} // closed when queue is stored; nil while nobody waits
	open    bool          // the log cannot be written: all is shown at once
	closed  bool          // the last entry is in the queue
	stopped bool          // nothing is stored any more
	end     *ending
	work    work
	owned   time.Time // a time at which this node had the session, as its log said later
}

// unstored is text that its models are still writing: it is neither stored nor in the queue.
type unstored struct {
	texts   []*strings.Builder // in the order in which they began
	writers []string           // of texts, as in written
	since   time.Time          // when the first of texts began
	hidden  []piece            // what cannot be shown before the queue is stored
}

// work says whether a session works, which the journal is told.
type work struct {
	begun bool // the run has begun
	calls int  // under way
	fresh bool // an outcome is there, of which no event has told yet
	noted bool // what the journal was told last
}

// pending is an entry on its way to the journal.
type pending struct {
	entry council.Entry
	event council.Event // zero: no client sees the entry
	shown bool
}

// begin notes that the run begins.
func (k *keeper) begin() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.work.begun = true
	k.noteWorkLocked()
}

// calling notes that a call begins, and then that its outcome is there. It is
// runlog.Log.Calling.
func (k *keeper) calling() (landed func()) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.work.calls++
	k.noteWorkLocked()
	return func() {
		k.s.mu.Lock()
		defer k.s.mu.Unlock()
		k.work.calls--
		k.work.fresh = true
		k.noteWorkLocked()
	}
}

// noteWorkLocked tells the journal whether the session works, or waits for its calls. Only
// a session that works can take the process down: between two entries of its own.
func (k *keeper) noteWorkLocked() {
	works := k.work.begun && !k.stopped && (k.work.calls == 0 || k.work.fresh || len(k.queue) > 0) && (!k.closed || len(k.queue) > 0)
	if works != k.work.noted {
		k.work.noted = works
		k.s.store.o.Journal.Working(k.id, works)
	}
}

// observeLocked takes an event of the run.
func (k *keeper) observeLocked(e council.Event) {
	if k.closed {
		return
	}
	data, err := k.s.view.encoder.encode(e.Data)
	if err != nil {
		return // Finish reports it
	}
	entry := council.Entry{Type: e.Type, Data: data[:len(data)-1]}
	if t, ok := writtenIn(e); ok {
		k.writeLocked(t, entry)
		return
	}
	k.flushLocked()
	if awaitsCalls(e.Type) {
		k.held = time.Now().Add(beginsWithin)
	}
	if !runlog.Shown(e.Type) {
		e = council.Event{} // no client sees it
	}
	k.pushLocked(pending{entry: entry, event: e})
	k.work.fresh = false
	k.noteWorkLocked()
	k.wakeUp()
}

// awaitsCalls reports whether an entry of that type is stored together with the one that the next calls begin.
func awaitsCalls(t council.EventType) bool {
	return t == council.EventStarted || t == council.EventStage1 || t == council.EventStage2
}

// writeLocked takes text on its way. It is shown behind what is stored.
func (k *keeper) writeLocked(t written, entry council.Entry) {
	if len(k.text.texts) == 0 {
		k.text.since = time.Now()
		k.wakeUp() // for the time at which it is stored
	}
	writer := slices.Index(k.text.writers, t.model)
	if writer < 0 {
		writer = len(k.text.writers)
		k.text.writers = append(k.text.writers, t.model)
		k.text.texts = append(k.text.texts, new(strings.Builder))
	}
	k.text.texts[writer].WriteString(t.text)
	p := piece{entry, writer, utf8.RuneCountInString(t.text)}
	if len(k.queue) > 0 && !k.open {
		k.text.hidden = append(k.text.hidden, p)
		return
	}
	k.showTextLocked(p)
	k.s.wakeLocked()
}

// showTextLocked shows a piece of text here, and on the nodes that follow the session.
func (k *keeper) showTextLocked(p piece) {
	st := k.s.store
	v := &k.s.view
	if st.o.Lease > 0 && !k.open {
		r := relayed{
			Owner:      k.head.Epoch,
			Number:     len(v.entries),
			Writer:     p.writer,
			Characters: v.length(p.writer),
			Type:       p.entry.Type,
			Data:       p.entry.Data,
		}
		if data, err := json.Marshal(r); err == nil {
			st.o.Journal.Relay(k.id, data)
		}
	}
	v.write(p)
}

// flushLocked makes entries of the texts on their way.
func (k *keeper) flushLocked() {
	for i, model := range k.text.writers {
		event := written{model, k.text.texts[i].String()}.event()
		event.SessionID = k.s.ID
		data, _ := k.s.view.encoder.encode(event.Data) // a text can be encoded
		k.pushLocked(pending{entry: council.Entry{Type: event.Type, Data: data[:len(data)-1]}, event: event})
	}
	k.text = unstored{}
}

// pushLocked puts an entry into the queue.
func (k *keeper) pushLocked(p pending) {
	k.queue = append(k.queue, p)
	if k.open {
		k.showLocked()
	}
	if k.stopped {
		k.queue = nil
	}
}

// showLocked shows what is in the queue.
func (k *keeper) showLocked() {
	for i := range k.queue {
		k.showOneLocked(&k.queue[i])
	}
}

func (k *keeper) showOneLocked(p *pending) {
	if p.shown || p.event.Type == "" {
		return
	}
	p.shown = true
	k.s.view.show(p.event, p.entry)
	if k.end != nil && p.event.Type == k.end.event.Type {
		k.s.endLocked(*k.end)
		return
	}
	k.s.wakeLocked()
}

// finishLocked ends the log.
func (k *keeper) finishLocked(end *ending) error {
	if k.open {
		k.warn(end)
	}
	if err := end.encode(k.s); err != nil {
		return err
	}
	k.flushLocked()
	k.closed = true
	k.end = end
	k.head.Status = end.session.Status
	k.head.CostUSD = end.session.Metadata.Usage.CostUSD
	k.head.Timing = end.session.Metadata.Timing
	if end.failure != nil {
		k.pushLocked(end.result())
	}
	k.pushLocked(pending{entry: end.entry(), event: end.event})
	k.wakeUp()
	return nil
}

func (k *keeper) warn(end *ending) {
	end.session.Metadata.Warnings = append(end.session.Metadata.Warnings, council.Warning{
		Code:    council.WarnNotKept,
		Message: "the session's log could not be stored while it ran: a crash of the daemon would have lost it",
	})
}

// cancelRequest returns the entry that asks whoever runs the session to cancel it.
func cancelRequest() council.Entry {
	return council.Entry{Type: runlog.TypeCancelled, Data: json.RawMessage("null")}
}

// asksToCancel reports whether a message is a request to cancel its session.
func asksToCancel(m *journal.Stored) bool {
	n := len(m.Entries)
	return n > 0 && m.Entries[n-1].Type == runlog.TypeCancelled
}

// cancel cancels the run at once, and waits until the log says so: otherwise the next process
// would go on with the session. stored is false where this process appends to the log no
// more: it has ended, it is gone, or it is another process's.
func (k *keeper) cancel(ctx context.Context) (stored bool, err error) {
	k.s.mu.Lock()
	ends := k.closed
	last := k.number + len(k.queue)
	if !ends {
		last++
		k.pushLocked(pending{entry: cancelRequest()})
		k.wakeUp()
	}
	k.s.mu.Unlock()
	k.s.Cancel(ErrDeleted)
	k.stored(ctx)
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.number < last && len(k.queue) > 0 {
		return false, errNotStored
	}
	return k.number >= last && !ends, nil
}

// giveUpLocked has the session go on without its log: what was held back is shown. The
// log is tried on, so that no later start takes the session for one that runs.
func (k *keeper) giveUpLocked() {
	if k.open {
		return
	}
	k.open = true
	if k.end != nil {
		k.warn(k.end)
		if k.end.encode(k.s) == nil {
			last := len(k.queue) - 1
			k.queue[last].entry = k.end.entry()
			if k.end.failure != nil {
				k.queue[last-1] = k.end.result()
			}
		}
	}
	k.showLocked()
	for _, p := range k.text.hidden {
		k.s.view.write(p)
	}
	k.text.hidden = nil
	k.s.wakeLocked()
	k.drainedLocked()
}

func (k *keeper) drainedLocked() {
	if k.drained != nil && (len(k.queue) == 0 || k.open) {
		close(k.drained)
		k.drained = nil
	}
}

// stored waits until everything is stored that was observed, or the session goes on
// without its log. It is runlog.Log.Stored.
func (k *keeper) stored(ctx context.Context) {
	k.s.mu.Lock()
	if len(k.queue) == 0 || k.open {
		k.s.mu.Unlock()
		return
	}
	k.wakeUp()
	if k.drained == nil {
		k.drained = make(chan struct{})
	}
	drained := k.drained
	k.s.mu.Unlock()
	select {
	case <-drained:
	case <-ctx.Done():
	}
}

func (k *keeper) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run stores until the last entry is stored or ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer k.finish()
	pause := minPause
	failing := time.Time{}
	for {
		message, ok := k.next(ctx)
		if !ok {
			return
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		last := time.Since(failing) >= k.waits().Append && !k.without()
		err := k.try(ctx, message, last)
		if err == nil {
			pause = minPause
			failing = time.Time{}
			continue
		}
		if errors.Is(err, errTaken) {
			if !k.demote(ctx) {
				k.s.Cancel(err)
				k.abandon()
			}
			return
		}
		if errors.Is(err, errGone) { // and nobody else can have the session
			k.s.store.o.Log.ErrorContext(ctx, "the log of a session is gone: the session goes on without it",
				"session_id", k.s.ID)
			k.abandon()
			return
		}
		if errors.Is(err, journal.ErrFull) && k.over() {
			k.s.store.o.Log.WarnContext(ctx, "the end of a session has no room: its log is deleted, and only this process shows it",
				"session_id", k.s.ID)
			if k.s.store.forget(ctx, k.refusal()) == nil {
				return
			}
		}
		k.s.store.o.Log.WarnContext(ctx, "an entry of a session could not be stored", "session_id", k.s.ID, "error", err)
		if last {
			k.abandon()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			k.abandon()
			return
		}
		pause = min(2*pause, k.waits().MaxPause)
	}
}

// try stores a message, for a bounded time where it is the last try.
func (k *keeper) try(ctx context.Context, m journal.Message, last bool) error {
	if last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.waits().LastTry)
		defer cancel()
	}
	return k.store(ctx, m)
}

// waits returns the waits of the store.
func (k *keeper) waits() Waits { return k.s.store.o.Waits }

// without reports whether the session goes on without its log.
func (k *keeper) without() bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.open
}

// finish forgets what is not stored: a session with a queue is never packed.
func (k *keeper) finish() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.stopped = true
	k.queue = nil
	k.noteWorkLocked()
}

// over reports whether the session has ended without its log. A log without its end is of
// no use then, and the room that it takes may be what is missing.
func (k *keeper) over() bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.open && k.closed
}

// abandon has the session go on without its log for good.
func (k *keeper) abandon() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.giveUpLocked()
}

// next waits for something to store, or for what another node appended: then there are no
// entries. ok is false when there will be nothing any more.
func (k *keeper) next(ctx context.Context) (m journal.Message, ok bool) {
	for {
		m, due, over := k.take()
		if len(m.Entries) > 0 || over {
			return m, !over
		}
		select {
		case <-k.wake:
		case <-k.foreign:
			return m, true
		case <-time.After(due):
		case <-ctx.Done():
			k.abandon()
			return m, false
		}
	}
}

// take returns the next message, else after what time text is due to be stored, or that
// all is stored.
func (k *keeper) take() (m journal.Message, due time.Duration, over bool) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	due = time.Hour
	if len(k.text.texts) > 0 {
		if due = k.waits().Text - time.Since(k.text.since); due <= 0 {
			k.flushLocked()
		}
	}
	if len(k.queue) == 0 {
		return m, due, k.closed
	}
	if wait := time.Until(k.held); wait > 0 && awaitsCalls(k.queue[len(k.queue)-1].entry.Type) {
		return m, min(due, wait), false
	}
	m = journal.Message{Head: k.head, First: k.number + 1}
	m.Status = council.StatusRunning
	size := 0
	for i, p := range k.queue {
		if size += len(p.entry.Data); size > maxMessage && i > 0 {
			break
		}
		m.Entries = append(m.Entries, p.entry)
	}
	if k.end != nil && len(m.Entries) == len(k.queue) {
		m.Status = k.head.Status
	}
	for _, e := range m.Entries {
		m.Bytes += int64(len(e.Data))
	}
	if m.Entries[len(m.Entries)-1].Type == runlog.TypeReleased {
		m.Node = "" // nobody's
	}
	return m, due, false
}

// store stores a message and shows what is in it. Without entries, it reads what another
// node appended.
func (k *keeper) store(ctx context.Context, m journal.Message) (err error) {
	begun := time.Now()
	defer func() {
		if err == nil {
			k.s.mu.Lock()
			k.owned = begun
			k.s.mu.Unlock()
		}
	}()
	if len(m.Entries) == 0 {
		return k.hear(ctx)
	}
	seq, err := k.s.store.o.Journal.Append(ctx, k.id, k.seq, m)
	stored := len(m.Entries)
	if moved, ok := errors.AsType[*journal.Moved](err); ok {
		if moved.Last == nil {
			return errGone
		}
		if stored, ok = k.resolve(moved.Last, stored); !ok {
			return errTaken
		}
		seq = moved.Last.Seq
	} else if err != nil {
		return err
	}
	k.advance(stored, seq)
	return nil
}

// advance shows the first entries of the queue, which are stored. seq is the last message
// of the log.
func (k *keeper) advance(stored int, seq uint64) {
	k.seq = seq
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	for i := range stored {
		k.showOneLocked(&k.queue[i])
		k.head.Bytes += int64(len(k.queue[i].entry.Data))
	}
	k.number += stored
	k.queue = k.queue[stored:]
	if len(k.queue) == 0 {
		for _, p := range k.text.hidden {
			k.showTextLocked(p)
		}
		if len(k.text.hidden) > 0 {
			k.text.hidden = nil
			k.s.wakeLocked()
		}
	}
	k.drainedLocked()
	k.noteWorkLocked()
	if len(k.queue) == 0 && k.closed {
		k.s.store.forgetStored(k.s)
	}
}

// resolve judges the message that stands where one of so many entries was to be stored. It
// returns how many of them it holds: it may be an earlier try of ours, or a part of one,
// of which no answer came. A request to cancel the session is obeyed, and stands behind
// such a try. ok is false when the log is another process's.
func (k *keeper) resolve(last *journal.Stored, entries int) (stored int, ok bool) {
	if last.Epoch != k.head.Epoch {
		return 0, false
	}
	if last.Node == k.head.Node {
		k.s.mu.Lock()
		defer k.s.mu.Unlock()
		stored = last.First + last.Count - 1 - k.number
		return stored, 0 <= stored && stored <= entries
	}
	if !asksToCancel(last) {
		return 0, false
	}
	n := len(last.Entries)
	k.s.mu.Lock()
	stored = last.First - 1 - k.number
	ok = 0 <= stored && stored <= entries
	k.number += n // the caller adds the others
	k.s.mu.Unlock()
	k.s.Cancel(ErrDeleted)
	return stored, ok
}
