package consent

import (
	"cmp"
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
	// batchEvents is how many events one delivery may have.
	batchEvents = 100
	// maxWaiting is how many events may wait for a sink. Each takes about 1 KiB of memory.
	maxWaiting = 50_000
	// minPause is the shortest pause after a delivery that failed.
	minPause = 5 * time.Second
	// outboxDays is how many days an outbox keeps its lines.
	outboxDays = 30
	// maxParallel is how many deliveries of single events run at once.
	maxParallel = 8
	// minLater and maxLater limit the pause before the outbox asks again whether it may send an event.
	minLater = 20 * time.Millisecond
	maxLater = time.Minute
)

// attempts returns the times at which the outbox tries to deliver an event, counted from the time at which the event
// was added. After the last attempt the outbox gives the event up.
func attempts() []time.Duration {
	times := []time.Duration{ // first the pauses between the attempts; the loop below adds them up
		0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
		14 * time.Hour, 20 * time.Hour,
		24 * time.Hour,
	}
	for i := range times[1:] {
		times[i+1] += times[i]
	}
	return times
}

// Sink receives events.
type Sink interface {
	// Send delivers events. It returns receipts in any order. Events without a receipt have arrived. After an
	// error, it is not known whether any event has arrived.
	Send(ctx context.Context, events []json.RawMessage) ([]Receipt, error)
	// Holds returns the ids, of the given ones, whose events have arrived. A sink that does not know this returns none.
	Holds(ctx context.Context, ids map[string]bool) ([]string, error)
	// Close releases the sink. It is not used afterwards.
	Close() error
}

// Receipt says what the receiver did with an event.
type Receipt struct {
	EventID string      `json:"event_id"` // "" if the event has no valid one
	Status  EventStatus `json:"status"`
	Reason  string      `json:"reason,omitempty"` // why it was rejected, and how to fix it
}

// EventStatus is what a receiver did with an event.
type EventStatus string

// A receiver gives an event one of these statuses.
const (
	Accepted  EventStatus = "accepted"
	Duplicate EventStatus = "duplicate" // the organisation has sent an event with this id before
	Rejected  EventStatus = "rejected"
)

// When says when an event may be sent.
type When int

// These are the values of When.
const (
	Now   When = iota
	Later      // not yet: the outbox asks again
	Never      // the event is dropped
)

// OutboxOptions are the settings of an Outbox.
type OutboxOptions struct {
	Path string    // path for store.OpenDaily
	Sink Sink      // the outbox closes it
	Disk disk.Disk // the operating system's if nil
	Log  *slog.Logger
	// Single gives each delivery one event. Up to maxParallel deliveries then run at once, and an event that the sink
	// refuses does not delay the others.
	Single bool
	// When says when the event of a session may be sent. If it is nil, every event may be sent at once. When must not
	// call the outbox.
	When func(session string, event json.RawMessage) When
}

// Outbox keeps events on disk until their sink has them. It repeats deliveries that fail, with growing pauses over
// three days, also after a restart. A session never waits for the sink. It is safe for concurrent use.
type Outbox struct {
	o     OutboxOptions
	daily *store.Daily
	wake  chan struct{} // holds a token if there is something to send
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu        sync.Mutex           // guards all fields below
	waiting   []*delivery          // in the order in which they were added
	sessions  map[string]time.Time // when the event of a session was added, in the last outboxDays
	notBefore time.Time            // after a failed delivery, the next one does not begin before this time
	failing   error                // why the last delivery failed, or nil
	gone      bool                 // the sink wants no more events
	running   int                  // how many deliveries are under way
	// allowed is how many deliveries may be under way. With OutboxOptions.Single, it doubles with each success, and is 1
	// again when the sink is down or overloaded.
	allowed int
	ended   map[string]int // events of this process that no longer wait, by outcome
}

// OutboxState is what an outbox has done since it was opened, and what is left.
type OutboxState struct {
	Waiting                 int
	Oldest                  time.Duration // how long the oldest waiting event has waited, or 0
	Sent, Rejected, GivenUp int
}

// State returns the current state.
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
	for _, l := range b.waiting { // Concurrent calls of Add may add events in any order.
		s.Oldest = max(s.Oldest, now.Sub(l.added))
	}
	return s
}

// delivery is an event that waits for its delivery.
type delivery struct {
	id      string
	session string
	text    json.RawMessage
	added   time.Time
	next    time.Time // when it is due
	busy    bool      // it is under way
	refused bool      // the sink refused this event, and not because it is down or overloaded
}

// outboxLine is a line of an outbox. It holds an event, or the ids of events that no longer wait.
type outboxLine struct {
	Session string          `json:"session,omitempty"` // the session's own id, which is not sent below level 4
	ID      string          `json:"id,omitempty"`      // the id of the event, if it has no event_id
	Event   json.RawMessage `json:"event,omitempty"`
	At      time.Time       `json:"at"`
	Done    []string        `json:"done,omitempty"` // ids of events that no longer wait
	Outcome string          `json:"outcome,omitempty"`
}

// These are the reasons why an event no longer waits.
const (
	outcomeSent     = "sent"
	outcomeRejected = "rejected"
	outcomeGivenUp  = "given_up"
	outcomeDropped  = "dropped"
)

// OpenOutbox opens an outbox, and continues with the events that an earlier process left in it. Close ends it.
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
		allowed:  1,
	}
	if err := b.replay(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the events that wait: %w", err), daily.Close(), o.Sink.Close())
	}
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.done.Go(func() { b.run(ctx) })
	return b, nil
}

// replay reads the outbox, and asks the sink which of the waiting events arrived before a crash.
func (b *Outbox) replay(ctx context.Context) error {
	waiting := map[string]bool{}
	byID := map[string]*delivery{}
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
		if id := cmp.Or(l.ID, e.ID); id != "" && byID[id] != nil { // A later line replaces the event.
			byID[id].text = l.Event
			byID[id].added = l.At
		} else if id != "" {
			b.sessions[l.Session] = l.At
			byID[id] = &delivery{id: id, session: l.Session, text: l.Event, added: l.At}
			b.waiting = append(b.waiting, byID[id])
			waiting[id] = true
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

// Add returns nil once the event of a session is on disk. The argument id is the id of the event. If the outbox already
// has an event of that session, it adds none. If that event has the same id and is not sent yet, the new event replaces
// it.
func (b *Outbox) Add(ctx context.Context, session, id string, event any) error {
	now := time.Now().UTC()
	text, err := json.Marshal(event)
	if err != nil {
		return err
	}
	line, err := json.Marshal(outboxLine{Session: session, ID: id, Event: text, At: now})
	if err != nil {
		return err
	}
	b.mu.Lock()
	_, known := b.sessions[session]
	full := len(b.waiting) >= maxWaiting
	replaced := false
	if known {
		replaced = b.replaceLocked(id, text, now)
	} else if !full {
		b.sessions[session] = now
	}
	b.mu.Unlock()
	switch {
	case replaced:
	case known:
		return nil
	case full:
		return fmt.Errorf("%d events are waiting already: check the sink", maxWaiting)
	}
	wait, err := b.daily.AppendLines(now, append(line, '\n')) //nolint:contextcheck // a write that has begun is finished
	if err == nil {
		err = wait(ctx)
	}
	if !replaced { // Add the event even after an error, because the disk may accept it later.
		b.mu.Lock()
		b.waiting = append(b.waiting, &delivery{id: id, session: session, text: text, added: now, next: now})
		b.mu.Unlock()
	}
	b.wakeUp()
	return err
}

// replaceLocked replaces the text of an event that waits. It returns false if no such event waits, or if the event is
// being sent.
func (b *Outbox) replaceLocked(id string, text json.RawMessage, now time.Time) bool {
	i := slices.IndexFunc(b.waiting, func(l *delivery) bool { return l.id == id && !l.busy })
	if i >= 0 {
		b.waiting[i].text = text
		b.waiting[i].added = now
	}
	return i >= 0
}

func (b *Outbox) wakeUp() {
	select {
	case b.wake <- struct{}{}:
	default: // The sender has not yet seen the last signal.
	}
}

// run delivers events until ctx ends.
func (b *Outbox) run(ctx context.Context) {
	b.tidy(ctx)
	tidied := time.Now()
	for ctx.Err() == nil {
		batch, pause := b.due(ctx, time.Now())
		if len(batch) > 0 {
			b.done.Go(func() {
				b.deliver(ctx, batch)
				b.free(batch)
			})
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

// due returns the events that must be delivered now, and notes that they are under way. If there are none, pause is how
// long to wait.
func (b *Outbox) due(ctx context.Context, now time.Time) (batch []*delivery, pause time.Duration) {
	var dropped []*delivery
	defer func() { b.drop(ctx, dropped) }()
	b.mu.Lock()
	defer b.mu.Unlock()
	pause = time.Hour
	if b.gone || b.running >= b.allowed {
		return nil, pause
	}
	if wait := b.notBefore.Sub(now); wait > 0 {
		return nil, wait
	}
	most := batchEvents
	if b.o.Single {
		most = 1
	}
	for _, l := range b.waiting {
		if l.busy {
			continue
		}
		if wait := l.next.Sub(now); wait > 0 {
			pause = min(pause, wait)
			continue
		}
		switch b.when(l) {
		case Later:
			wait := max(minLater, min(now.Sub(l.added)/10, maxLater))
			l.next = now.Add(wait)
			pause = min(pause, wait)
			continue
		case Never:
			dropped = append(dropped, l)
			continue
		case Now:
		}
		l.busy = true
		if batch = append(batch, l); len(batch) == most {
			break
		}
	}
	b.forgetLocked(dropped)
	if len(batch) > 0 {
		b.running++
	}
	return batch, pause
}

func (b *Outbox) when(l *delivery) When {
	if b.o.When == nil {
		return Now
	}
	return b.o.When(l.session, l.text)
}

// drop notes that events are not sent.
func (b *Outbox) drop(ctx context.Context, dropped []*delivery) {
	ids := make([]string, len(dropped))
	for i, l := range dropped {
		ids[i] = l.id
	}
	b.write(ctx, ids, outcomeDropped)
}

// free notes that a delivery has ended.
func (b *Outbox) free(batch []*delivery) {
	b.mu.Lock()
	b.running--
	for _, l := range batch {
		l.busy = false
	}
	b.mu.Unlock()
	b.wakeUp()
}

// deliver sends a batch, and notes the outcomes.
func (b *Outbox) deliver(ctx context.Context, batch []*delivery) {
	texts := make([]json.RawMessage, len(batch))
	for i, l := range batch {
		texts[i] = l.text
	}
	receipts, err := b.o.Sink.Send(ctx, texts)
	if err != nil {
		if ctx.Err() == nil {
			b.failed(ctx, batch, err)
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
	if b.o.Single {
		b.allowed = min(2*b.allowed, maxParallel)
	}
	b.forgetLocked(batch)
	for _, l := range b.waiting { // The sink accepts events again, so none has to wait for its next attempt.
		if !l.refused {
			l.next = time.Time{}
		}
	}
	b.mu.Unlock()
	for outcome, ids := range outcomes {
		b.write(ctx, ids, outcome)
	}
}

// failed is called after a delivery that failed. It sets the time of the next attempt for each event of the delivery,
// and gives up events that have no attempt left. Unless the sink refused a single event, it does the same for all other
// events that are due, because they would fail too.
func (b *Outbox) failed(ctx context.Context, batch []*delivery, err error) {
	now := time.Now()
	b.mu.Lock()
	first := b.failing == nil
	b.failing = err
	refusal, answered := errors.AsType[*Refusal](err)
	single := b.o.Single && answered && !refusal.overloaded()
	pause := minPause
	if single {
		pause = 0
	} else {
		b.allowed = 1
	}
	if answered {
		pause = max(pause, min(refusal.RetryAfter, 24*time.Hour))
		b.gone = b.gone || refusal.Gone()
	}
	if next := now.Add(pause); next.After(b.notBefore) {
		b.notBefore = next
	}
	var over []*delivery
	tries := attempts()
	for _, l := range b.waiting {
		own := slices.Contains(batch, l)
		if !own && (single || l.busy || l.next.After(now)) {
			continue
		}
		l.refused = own && single
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
		b.o.Log.ErrorContext(ctx, "the sink answered that it is gone for good: nothing is sent to it until the "+
			"next start", "error", err)
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

// forgetLocked removes deliveries from waiting.
func (b *Outbox) forgetLocked(deliveries []*delivery) {
	gone := make(map[*delivery]bool, len(deliveries))
	for _, l := range deliveries {
		gone[l] = true
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(l *delivery) bool { return gone[l] })
}

// write notes the outcome of events. It does not wait for the disk, because a lost note is harmless: the event is sent
// again, as a duplicate.
func (b *Outbox) write(ctx context.Context, ids []string, outcome string) {
	if len(ids) == 0 {
		return
	}
	b.mu.Lock()
	b.ended[outcome] += len(ids)
	b.mu.Unlock()
	now := time.Now().UTC()
	var lines [][]byte
	for some := range slices.Chunk(ids, 1000) { // so that a line is not too long
		line, err := json.Marshal(outboxLine{Done: some, At: now, Outcome: outcome})
		if err != nil {
			b.o.Log.ErrorContext(ctx, "the outcome of events cannot be written", "error", err)
			return
		}
		lines = append(lines, append(line, '\n'))
	}
	if _, err := b.daily.AppendLines(now, lines...); err != nil { //nolint:contextcheck // as above
		b.o.Log.ErrorContext(ctx, "the outcome of events cannot be written", "error", err)
	}
}

// tidy deletes the lines that are older than outboxDays, and forgets the sessions whose events were added before that.
func (b *Outbox) tidy(ctx context.Context) {
	now := time.Now().UTC()
	then := now.AddDate(0, 0, -outboxDays)
	removeBefore(ctx, b.daily, now, then, b.o.Log)
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.sessions, func(_ string, added time.Time) bool { return added.Before(then) })
}

// removeBefore deletes the lines of all days before the day of the argument then.
func removeBefore(ctx context.Context, daily *store.Daily, now, then time.Time, log *slog.Logger) {
	days, err := daily.Days()
	for _, day := range days {
		if day < then.Format(time.DateOnly) {
			err = errors.Join(err, daily.Remove(now, day)) //nolint:contextcheck // a store lives until it is closed
		}
	}
	if err != nil {
		log.ErrorContext(ctx, "old events could not be deleted; the next attempt is in an hour", "error", err)
	}
}

// Failing returns why the last delivery failed, or why events cannot be written. It returns nil if all is well.
func (b *Outbox) Failing() error {
	b.mu.Lock()
	failing := b.failing
	b.mu.Unlock()
	return errors.Join(failing, b.daily.Healthy())
}

// Close ends a delivery that is under way, and closes the outbox. Events that wait are sent after the next start.
func (b *Outbox) Close() error {
	b.stop()
	b.done.Wait()
	return errors.Join(b.daily.Close(), b.o.Sink.Close())
}
