package consent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/store"
)

const (
	// batchEvents is the most events of one delivery.
	batchEvents = 100
	// maxWaiting is the most events that wait for a sink. Each takes about 1 KiB of memory.
	maxWaiting = 50_000
	// minPause is the least time between a delivery that failed and the next.
	minPause = 5 * time.Second
	// outboxDays is how many days an outbox keeps what it was given.
	outboxDays = 30
)

// attempts returns when the delivery of an event is tried, as times since it was added. An event that none of them
// delivers is given up.
func attempts() []time.Duration {
	times := []time.Duration{ // pauses
		0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
		14 * time.Hour, 20 * time.Hour,
		24 * time.Hour,
	}
	for i := range times[1:] {
		times[i+1] += times[i]
	}
	return times
}

// Sink is where events go.
type Sink interface {
	// Send delivers events. It returns what became of those of which the receiver says it, in any order: the others
	// have arrived. An error says that it is not known that any has.
	Send(ctx context.Context, events []json.RawMessage) ([]Receipt, error)
	// Holds returns those of the ids that have arrived, as far as the sink can say.
	Holds(ctx context.Context, ids map[string]bool) ([]string, error)
	// Close releases the sink, which is not used any more.
	Close() error
}

// Receipt says what became of an event.
type Receipt struct {
	EventID string      `json:"event_id"` // "" where the event has none that can be read
	Status  EventStatus `json:"status"`
	Reason  string      `json:"reason,omitempty"` // why it was rejected, and how to mend it
}

// EventStatus is what became of an event.
type EventStatus string

// What becomes of an event.
const (
	Accepted  EventStatus = "accepted"
	Duplicate EventStatus = "duplicate" // the organisation has sent an event with this id before
	Rejected  EventStatus = "rejected"
)

// OutboxOptions are the settings of an Outbox.
type OutboxOptions struct {
	Path string    // of the store.Daily
	Sink Sink      // the outbox closes it
	Disk disk.Disk // nil: the operating system's
	Log  *slog.Logger
}

// Outbox keeps events on disk until their sink has them. Deliveries that fail are repeated with pauses over three days, also
// after a restart. A sink that is away slows nobody down. It is safe for concurrent use.
type Outbox struct {
	o     OutboxOptions
	daily *store.Daily
	wake  chan struct{} // of capacity 1: there is something to send
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu        sync.Mutex           // guards all below
	waiting   []*delivery          // in the order in which they were added
	sessions  map[string]time.Time // when the event of a session was added, for outboxDays
	notBefore time.Time            // of the next delivery, after one that failed
	failing   error                // why the last delivery failed; nil: it did not
	gone      bool                 // the sink wants nothing any more
	ended     map[string]int       // events of this process that are done with, by outcome
}

// OutboxState is what an outbox has done since it was opened, and what is left to do.
type OutboxState struct {
	Waiting                 int
	Oldest                  time.Duration // since the oldest event that waits was added; 0: none waits
	Sent, Rejected, GivenUp int
}

// State returns the state of this moment.
func (b *Outbox) State() OutboxState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := OutboxState{
		Waiting:  len(b.waiting),
		Sent:     b.ended[outcomeSent],
		Rejected: b.ended[outcomeRejected],
		GivenUp:  b.ended[outcomeGivenUp],
	}
	now := time.Now()
	for _, l := range b.waiting { // two may be added at once, in any order
		s.Oldest = max(s.Oldest, now.Sub(l.added))
	}
	return s
}

// delivery is an event that waits.
type delivery struct {
	id    string
	text  json.RawMessage
	added time.Time
	next  time.Time // of its delivery
}

// outboxLine is a line of an outbox: of an event, or of those that are done with.
type outboxLine struct {
	Session string          `json:"session,omitempty"` // its own id, which is not sent below level 4
	Event   json.RawMessage `json:"event,omitempty"`
	At      time.Time       `json:"at"`
	Done    []string        `json:"done,omitempty"` // ids of events
	Outcome string          `json:"outcome,omitempty"`
}

// The outcomes of events.
const (
	outcomeSent     = "sent"
	outcomeRejected = "rejected"
	outcomeGivenUp  = "given_up"
)

// OpenOutbox opens an outbox and goes on with the events that an earlier process left in it. Close ends it.
func OpenOutbox(ctx context.Context, o OutboxOptions) (*Outbox, error) {
	daily, err := store.OpenDaily(store.Options{Path: o.Path, Disk: o.Disk, Log: o.Log}, time.Now()) //nolint:contextcheck // it lives until it is closed
	if err != nil {
		return nil, errors.Join(err, o.Sink.Close())
	}
	b := &Outbox{
		o:        o,
		daily:    daily,
		wake:     make(chan struct{}, 1),
		sessions: map[string]time.Time{},
		ended:    map[string]int{},
	}
	if err := b.replay(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the events that wait: %w", err), daily.Close(), o.Sink.Close())
	}
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.done.Go(func() { b.run(ctx) })
	return b, nil
}

// replay reads the outbox, and asks the sink which events arrived before a crash.
func (b *Outbox) replay(ctx context.Context) error {
	waiting := map[string]bool{}
	for line, err := range store.DailyLines(ctx, b.o.Path) {
		if err != nil {
			return err
		}
		var l outboxLine
		var e struct {
			ID string `json:"event_id"`
		}
		if json.Unmarshal(line.Text, &l) != nil || l.Event != nil && json.Unmarshal(l.Event, &e) != nil {
			b.o.Log.WarnContext(ctx, "a line of the outbox of events cannot be read and is left out", "day", line.Day)
			continue
		}
		if e.ID != "" {
			b.sessions[l.Session] = l.At
			b.waiting = append(b.waiting, &delivery{id: e.ID, text: l.Event, added: l.At})
			waiting[e.ID] = true
		}
		for _, id := range l.Done {
			delete(waiting, id)
		}
	}
	if len(waiting) > 0 {
		arrived, err := b.o.Sink.Holds(ctx, waiting)
		if err != nil {
			return err
		}
		for _, id := range arrived {
			delete(waiting, id)
		}
		b.write(ctx, arrived, outcomeSent)
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(l *delivery) bool { return !waiting[l.id] })
	return nil
}

// Add returns nil once the event of a session is on disk. A session of which the outbox has an event already adds none.
func (b *Outbox) Add(ctx context.Context, session string, e *Event) error {
	now := time.Now().UTC()
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line, err := json.Marshal(outboxLine{Session: session, Event: text, At: now})
	if err != nil {
		return err
	}
	b.mu.Lock()
	_, known := b.sessions[session]
	full := len(b.waiting) >= maxWaiting
	if !known && !full {
		b.sessions[session] = now
	}
	b.mu.Unlock()
	switch {
	case known:
		return nil
	case full:
		return fmt.Errorf("%d events wait already: look at the sink", maxWaiting)
	}
	wait, err := b.daily.AppendLines(now, append(line, '\n')) //nolint:contextcheck // a write that has begun is finished
	if err == nil {
		err = wait(ctx)
	}
	// An event that the disk has not taken yet can arrive all the same.
	b.mu.Lock()
	b.waiting = append(b.waiting, &delivery{id: e.EventID, text: text, added: now, next: now})
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // the sender has not yet seen the last signal
	}
	return err
}

// run delivers events until ctx ends.
func (b *Outbox) run(ctx context.Context) {
	b.tidy(ctx)
	tidied := time.Now()
	for ctx.Err() == nil {
		batch, pause := b.due(time.Now())
		if len(batch) > 0 {
			b.deliver(ctx, batch)
			continue
		}
		if time.Since(tidied) > time.Hour {
			b.tidy(ctx)
			tidied = time.Now()
		}
		timer := time.NewTimer(pause)
		select {
		case <-b.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// due returns events that are to be delivered now, or else how long to wait.
func (b *Outbox) due(now time.Time) (batch []*delivery, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pause = time.Hour
	if b.gone {
		return nil, pause
	}
	if wait := b.notBefore.Sub(now); wait > 0 {
		return nil, wait
	}
	for _, l := range b.waiting {
		if wait := l.next.Sub(now); wait > 0 {
			pause = min(pause, wait)
		} else if batch = append(batch, l); len(batch) == batchEvents {
			break
		}
	}
	return batch, pause
}

// deliver sends a batch, and notes what came of it.
func (b *Outbox) deliver(ctx context.Context, batch []*delivery) {
	texts := make([]json.RawMessage, len(batch))
	for i, l := range batch {
		texts[i] = l.text
	}
	receipts, err := b.o.Sink.Send(ctx, texts)
	if err != nil {
		if ctx.Err() == nil {
			b.failed(ctx, err)
		}
		return
	}
	rejected := map[string]string{}
	for _, r := range receipts {
		if r.Status == Rejected {
			rejected[r.EventID] = r.Reason
		}
	}
	outcomes := map[string][]string{}
	for _, l := range batch {
		outcome := outcomeSent
		if reason, ok := rejected[l.id]; ok {
			outcome = outcomeRejected
			b.o.Log.WarnContext(ctx, "the sink rejects an event, which is not sent again",
				"event_id", l.id, "reason", fmt.Sprintf("%.200q", reason))
		}
		outcomes[outcome] = append(outcomes[outcome], l.id)
	}
	b.mu.Lock()
	if b.failing != nil {
		b.o.Log.InfoContext(ctx, "the sink takes events again")
	}
	b.failing = nil
	b.forgetLocked(batch)
	for _, l := range b.waiting { // the sink is there: those that waited for another try need not
		l.next = time.Time{}
	}
	b.mu.Unlock()
	for outcome, ids := range outcomes {
		b.write(ctx, ids, outcome)
	}
}

// failed plans the next try of the events that are due.
func (b *Outbox) failed(ctx context.Context, err error) {
	now := time.Now()
	b.mu.Lock()
	first := b.failing == nil
	b.failing = err
	pause := minPause
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		pause = max(pause, min(refusal.RetryAfter, 24*time.Hour))
		b.gone = refusal.Gone()
	}
	b.notBefore = now.Add(pause)
	var over []*delivery
	tries := attempts()
	for _, l := range b.waiting {
		if l.next.After(now) {
			continue
		}
		age := now.Sub(l.added)
		later := slices.IndexFunc(tries, func(at time.Duration) bool { return at > age })
		if later < 0 {
			over = append(over, l)
			continue
		}
		left := tries[later] - age
		l.next = now.Add(left + time.Duration(rand.Int64N(int64(left)/10+1))) //nolint:gosec // so that not all retry at once
	}
	b.forgetLocked(over)
	gone := b.gone
	b.mu.Unlock()
	switch {
	case gone:
		b.o.Log.ErrorContext(ctx, "the sink of events is gone and asks for no more: nothing is sent to it until the next start", "error", err)
	case first:
		b.o.Log.WarnContext(ctx, "events could not be delivered; they wait on disk and are tried again over three days",
			"error", err)
	}
	if len(over) > 0 {
		ids := make([]string, len(over))
		for i, l := range over {
			ids[i] = l.id
		}
		b.write(ctx, ids, outcomeGivenUp)
		b.o.Log.ErrorContext(ctx, "events were given up: the sink did not take them for three days",
			"events", len(over), "error", err)
	}
}

// forgetLocked removes deliveries from those that wait.
func (b *Outbox) forgetLocked(deliveries []*delivery) {
	gone := make(map[*delivery]bool, len(deliveries))
	for _, l := range deliveries {
		gone[l] = true
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(l *delivery) bool { return gone[l] })
}

// write notes that events are done with. Nobody waits for it: an event that is sent again is a duplicate there.
func (b *Outbox) write(ctx context.Context, ids []string, outcome string) {
	if len(ids) == 0 {
		return
	}
	b.mu.Lock()
	b.ended[outcome] += len(ids)
	b.mu.Unlock()
	now := time.Now().UTC()
	var lines [][]byte
	for some := range slices.Chunk(ids, 1000) { // so that a line keeps within its limit
		line, err := json.Marshal(outboxLine{Done: some, At: now, Outcome: outcome})
		if err != nil {
			b.o.Log.ErrorContext(ctx, "events that are done with cannot be noted", "error", err)
			return
		}
		lines = append(lines, append(line, '\n'))
	}
	if _, err := b.daily.AppendLines(now, lines...); err != nil { //nolint:contextcheck // as above
		b.o.Log.ErrorContext(ctx, "events that are done with cannot be noted", "error", err)
	}
}

// tidy deletes and forgets what is older than outboxDays.
func (b *Outbox) tidy(ctx context.Context) {
	now := time.Now().UTC()
	then := now.AddDate(0, 0, -outboxDays)
	removeBefore(ctx, b.daily, now, then, b.o.Log)
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.sessions, func(_ string, added time.Time) bool { return added.Before(then) })
}

// removeBefore deletes the lines of days that ended before a time.
func removeBefore(ctx context.Context, daily *store.Daily, now, then time.Time, log *slog.Logger) {
	days, err := daily.Days()
	for _, day := range days {
		if day < then.Format(time.DateOnly) {
			err = errors.Join(err, daily.Remove(now, day)) //nolint:contextcheck // a store lives until it is closed
		}
	}
	if err != nil {
		log.ErrorContext(ctx, "old events could not be deleted; the next try is in an hour", "error", err)
	}
}

// Failing returns why the last delivery failed, or why events cannot be written; nil: all is well.
func (b *Outbox) Failing() error {
	b.mu.Lock()
	failing := b.failing
	b.mu.Unlock()
	return errors.Join(failing, b.daily.Healthy())
}

// Close ends a delivery that is on its way, and releases the outbox. What waits is sent after the next start.
func (b *Outbox) Close() error {
	b.stop()
	b.done.Wait()
	return errors.Join(b.daily.Close(), b.o.Sink.Close())
}
