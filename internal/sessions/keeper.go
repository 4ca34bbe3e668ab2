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
	// beginsWithin is how long the keeper waits for the entry that says which calls begin (calls.begun). That entry
	// usually follows at once when the run begins or a stage ends. With the wait, both entries are stored together.
	beginsWithin = 20 * time.Millisecond
	// minPause is the first pause between two tries to append. Later pauses are longer.
	minPause = 50 * time.Millisecond
	// maxMessage is how many bytes of entries one append may hold. A single entry may be larger.
	maxMessage = 4 << 20
)

var (
	errGone  = errors.New("its log is gone")
	errTaken = errors.New("another process has taken it over")

	errNotStored = errors.New("the request to cancel it is not stored")
)

// keeper stores the log of one session, one message at a time. Entries that come while a message is being stored go
// into the next message.
type keeper struct {
	s    *Session
	id   journal.ID
	log  *runlog.Log
	stop context.CancelFunc
	wake chan struct{} // holds a token when there may be something to store
	// foreign holds a token when another node may have appended to the log.
	foreign chan struct{}

	// seq is the sequence number of the last message of the log. Only the goroutine that stores uses seq.
	seq uint64

	// whole says that the log must stay in the journal, although the session continued without the log. Either the log
	// was completed later, or another node now owns the session. The mutex of the Store guards whole.
	whole bool

	// The mutex of the session guards all fields below.
	number int // number of the last entry that is stored
	head   journal.Head
	queue  []pending
	text   unstored
	// held is when the keeper stops holding back the queue. It holds the queue so that the last queued entry and the
	// entry with the next calls are stored together (see beginsWithin).
	held time.Time
	// drained is closed when the queue is stored. It is nil while no goroutine waits.
	drained chan struct{}
	// open says that the session continues without its log, because the log cannot be written. Entries are then
	// shown at once.
	open    bool
	closed  bool // the last entry is in the queue
	stopped bool // nothing more is stored
	end     *ending
	work    work
	// owned is a time at which this node still owned the session: the start of the last successful operation on the
	// log.
	owned time.Time
}

// unstored is text that models are still writing. It is neither stored nor in the queue.
type unstored struct {
	texts   []*strings.Builder // one for each writer, in the order in which they began
	writers []string           // the member id for each of texts, as in written.model
	since   time.Time          // when the first of texts began
	hidden  []piece            // pieces that are not shown until the queue is stored
}

// work says whether a session works in this process, or only waits for replies of providers. The journal notes this,
// so that after a crash only the sessions that worked count as possible causes.
type work struct {
	begun bool // the run has begun
	calls int  // how many calls are under way
	fresh bool // a call has ended, and no event has reported it yet
	noted bool // whether the journal last noted that the session works
}

// pending is an entry on its way to the journal.
type pending struct {
	entry council.Entry
	// event is the zero value if no client sees the entry.
	event council.Event
	shown bool
}

// begin notes that the run begins.
func (k *keeper) begin() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.work.begun = true
	k.noteWorkLocked()
}

// calling notes that a call begins. The run calls it as runlog.Log.Calling. The run calls the returned function when
// the call has ended.
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

// noteWorkLocked tells the journal whether the session works or waits for its calls. A session that waits runs no code
// that could crash the process.
func (k *keeper) noteWorkLocked() {
	works := k.work.begun && !k.stopped && (k.work.calls == 0 || k.work.fresh || len(k.queue) > 0) && (!k.closed || len(k.queue) > 0)
	if works != k.work.noted {
		k.work.noted = works
		k.s.store.o.Journal.Working(k.id, works)
	}
}

// observeLocked queues an event of the run.
func (k *keeper) observeLocked(e council.Event) {
	if k.closed {
		return
	}
	data, err := k.s.view.encoder.encode(e.Data)
	if err != nil {
		return // Finish reports the error.
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
		e = council.Event{} // No client sees it.
	}
	k.pushLocked(pending{entry: entry, event: e})
	k.work.fresh = false
	k.noteWorkLocked()
	k.wakeUp()
}

// awaitsCalls reports whether an entry of this type waits for the entry with the next calls (see beginsWithin).
func awaitsCalls(t council.EventType) bool {
	return t == council.EventStarted || t == council.EventStage1 || t == council.EventStage2
}

// writeLocked adds a piece to a text that a model is still writing. The piece is shown once all entries before it are
// stored.
func (k *keeper) writeLocked(t written, entry council.Entry) {
	if len(k.text.texts) == 0 {
		k.text.since = time.Now()
		k.wakeUp() // The keeper then knows when the text must be stored.
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

// showTextLocked shows a piece of text here and on the nodes that follow the session.
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

// flushLocked queues the texts that are still being written, each as one entry.
func (k *keeper) flushLocked() {
	for i, model := range k.text.writers {
		event := written{model, k.text.texts[i].String()}.event()
		event.SessionID = k.s.ID
		data, _ := k.s.view.encoder.encode(event.Data) // A text can always be encoded.
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

// showLocked shows the entries of the queue.
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

// finishLocked queues the last entries of the log.
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
	k.head.Answer = council.FirstLine(end.session.Answer)
	if end.failure != nil {
		k.pushLocked(end.result())
	}
	k.pushLocked(pending{entry: end.entry(), event: end.event})
	k.wakeUp()
	return nil
}

// warn adds to the session the warning that its log was not stored.
func (k *keeper) warn(end *ending) {
	end.session.Metadata.Warnings = append(end.session.Metadata.Warnings, council.Warning{
		Code:    council.WarnNotKept,
		Message: "the session's log could not be stored while it ran: a crash of the daemon would have lost it",
	})
}

// cancelRequest returns the entry that asks the node that runs the session to cancel it.
func cancelRequest() council.Entry {
	return council.Entry{Type: runlog.TypeCancelled, Data: json.RawMessage("null")}
}

// asksToCancel reports whether a message is a request to cancel its session.
func asksToCancel(m *journal.Stored) bool {
	n := len(m.Entries)
	return n > 0 && m.Entries[n-1].Type == runlog.TypeCancelled
}

// cancel cancels the run at once. It also appends the request to the log and waits until the request is stored,
// because otherwise another process would continue the session. stored is false if this process no longer appends to
// the log: the session has ended, its log is gone, or another process owns it.
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

// giveUpLocked lets the session continue without its log, and shows the entries and texts that waited for the log. The
// keeper still tries to store them, because otherwise a later process would find a log without an end, and run the
// session again.
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

// stored waits until all events observed so far are stored, until the session continues without its log, or until ctx
// ends. The run calls it as runlog.Log.Stored.
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

// run stores messages until the last entry is stored or ctx ends. It ends earlier if another process owns the session,
// or if the log is gone. It also ends earlier if the journal is full and run deletes the log of an ended session.
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
		if errors.Is(err, errGone) { // No other node can own the session.
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

// try stores a message. The last try has a time limit.
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

// without reports whether the session continues without its log.
func (k *keeper) without() bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.open
}

// finish drops the entries that are not stored. While a session has such entries, its memory cannot be freed (see
// pack).
func (k *keeper) finish() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.stopped = true
	k.queue = nil
	k.noteWorkLocked()
}

// over reports whether the session has ended and its log could not be written. If the journal is full, run deletes
// such a log, because a log without its end is useless and takes space.
func (k *keeper) over() bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.open && k.closed
}

// abandon locks the mutex and calls giveUpLocked.
func (k *keeper) abandon() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.giveUpLocked()
}

// next waits for a message to store. If another node may have appended to the log, the message has no entries. ok is
// false when nothing more will come.
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

// take returns the next message. If there is none, due is the time until text must be stored. over says that
// everything is stored.
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
		m.Node = "" // No node owns the session now.
	}
	return m, due, false
}

// store stores a message and shows its entries. If the message has no entries, store reads what another node appended.
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

// advance shows the entries that are now stored, and removes them from the front of the queue. The argument stored is
// the number of these entries. seq is the sequence number of the last message of the log.
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

// resolve is called when the log does not end with the message that this node expected. From the message at the end of
// the log, resolve finds out how many entries at the front of the queue are stored. The argument entries is the largest
// possible number. There are three cases. (1) This node appended the last message in an earlier try that got no answer.
// That try may have held fewer entries. (2) Another node appended the last message to ask this node to cancel the
// session. Entries from an earlier try of this node may be stored before that message. resolve then cancels the run.
// (3) Otherwise another process owns the log, and ok is false.
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
	k.number += n // The caller adds the stored entries.
	k.s.mu.Unlock()
	k.s.Cancel(ErrDeleted)
	return stored, ok
}
