package consent

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/store"
)

const (
	// MaxEvents is how many events one request may have.
	MaxEvents = 1000
	// maxKept is how many events of one organisation are kept. Each takes about 60 bytes of memory.
	maxKept = 500_000
	// maxModels is how many names of models one organisation may send.
	maxModels = 500
)

// ErrFull says that the intake already has maxKept events of an organisation, or would have more with the new events.
var ErrFull = fmt.Errorf("this organisation has %d events, which is the limit: events are deleted after %d days",
	maxKept, KeptDays)

// IntakeOptions are the settings of an Intake.
type IntakeOptions struct {
	Path string    // path for store.OpenDaily
	Disk disk.Disk // the operating system's if nil
	Log  *slog.Logger
	// MinOrganisations is how many organisations a row of the Board needs, 3 or more.
	MinOrganisations int
	Now              func() time.Time // time.Now if nil
}

// Intake accepts the events of organisations and keeps them for KeptDays. It is safe for concurrent use.
type Intake struct {
	o     IntakeOptions
	daily *store.Daily
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu    sync.Mutex // guards all fields below
	orgs  map[string]*organisation
	board boardState
	taken map[EventStatus]int // events that came in this process, by status
}

// organisation holds what the intake knows about the events of one organisation.
type organisation struct {
	seen   map[[16]byte]string // maps an event_id to the day on which the event came
	models map[string]bool
	days   map[string]map[string]sum // keys: the day on which sessions began, row of the Board
	// fresh counts new sessions by row and day. These are the sessions that came after the newest snapshot of the
	// row. The entry fresh[""][""] counts the sessions that came after the newest snapshot of any row.
	fresh map[string]map[string]int
}

// intakeLine is a line on disk.
type intakeLine struct {
	Organisation string    `json:"organisation"`
	At           time.Time `json:"at"` // when the event came
	Event        Event     `json:"event"`
}

// OpenIntake opens an intake with the events that it accepted before. Close ends it.
func OpenIntake(ctx context.Context, o IntakeOptions) (*Intake, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	daily, err := store.OpenDaily(store.Options{Path: o.Path, Disk: o.Disk, Log: o.Log}, o.Now()) //nolint:contextcheck // it lives until it is closed
	if err != nil {
		return nil, err
	}
	i := &Intake{o: o, daily: daily, orgs: map[string]*organisation{}, taken: map[EventStatus]int{}}
	if err := i.readBoard(); err != nil {
		return nil, errors.Join(err, daily.Close())
	}
	i.tidy(ctx)
	for line, err := range store.DailyLines(ctx, o.Path) {
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reading the events that were taken in: %w", err), daily.Close())
		}
		var l intakeLine
		if json.Unmarshal(line.Text, &l) != nil || l.Organisation == "" || !eventID.MatchString(l.Event.EventID) {
			o.Log.WarnContext(ctx, "a line of the events that were taken in cannot be read and is left out",
				"day", line.Day)
			continue
		}
		i.addLocked(l, line.Day)
	}
	i.publish(ctx)
	ctx, i.stop = context.WithCancel(context.WithoutCancel(ctx))
	i.done.Go(func() { i.run(ctx) })
	return i, nil
}

// addLocked counts an event. The argument day is the day on which the event came.
func (i *Intake) addLocked(l intakeLine, day string) {
	org := i.orgs[l.Organisation]
	if org == nil {
		org = &organisation{
			seen:   map[[16]byte]string{},
			models: map[string]bool{},
			days:   map[string]map[string]sum{},
			fresh:  map[string]map[string]int{},
		}
		i.orgs[strings.Clone(l.Organisation)] = org
	}
	org.seen[idBytes(l.Event.EventID)] = day
	for _, r := range l.Event.Rankings {
		org.models[r.Model] = true
	}
	if org.days[l.Event.Day] == nil {
		org.days[l.Event.Day] = map[string]sum{}
	}
	count := func(row, day string) {
		if !l.At.After(i.board.Taken[l.Organisation][row]) {
			return
		}
		if org.fresh[row] == nil {
			org.fresh[row] = map[string]int{}
		}
		org.fresh[row][day]++
	}
	count("", "")
	for row, figure := range l.Event.rows() {
		org.days[l.Event.Day][row] = org.days[l.Event.Day][row].plus(sum{1, figure})
		count(row, l.Event.Day)
	}
}

// idBytes returns the bytes of a UUID.
func idBytes(id string) (b [16]byte) {
	_, _ = hex.Decode(b[:], []byte(strings.ReplaceAll(id, "-", ""))) // Its form was checked.
	return b
}

// Take accepts events of an organisation, at most MaxEvents. When it returns without an error, all events that were
// accepted now or before are on disk. Its errors are ErrFull and errors of the disk.
func (i *Intake) Take(ctx context.Context, organisation string, texts []json.RawMessage) (Taken, error) {
	now := i.o.Now().UTC()
	taken := Taken{Events: make([]Receipt, len(texts))}
	parsed := make([]Event, len(texts))
	for k, text := range texts {
		if ctx.Err() != nil {
			return Taken{}, ctx.Err()
		}
		var err error
		if parsed[k], err = Parse(text, now); err != nil {
			taken.Events[k] = Receipt{EventID: readID(text), Status: Rejected, Reason: err.Error()}
		}
	}
	wait, err := i.accept(now, organisation, parsed, &taken) //nolint:contextcheck // a write that has begun is finished
	if err == nil {
		err = wait(ctx)
	}
	if err != nil {
		return Taken{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.taken[Accepted] += taken.Accepted
	i.taken[Duplicate] += taken.Duplicates
	i.taken[Rejected] += taken.Rejected
	return taken, nil
}

// Outcomes returns how many events of each status came since the intake was opened.
func (i *Intake) Outcomes() map[EventStatus]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return map[EventStatus]int{Accepted: i.taken[Accepted], Duplicate: i.taken[Duplicate], Rejected: i.taken[Rejected]}
}

// accept appends the events that were not rejected to the store. The function wait returns when these events, and all
// earlier events, are on disk.
func (i *Intake) accept(
	now time.Time, name string, parsed []Event, taken *Taken,
) (wait func(context.Context) error, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.orgs[name]
	if known == nil {
		known = &organisation{}
	}
	if len(known.seen)+len(parsed) > maxKept {
		return nil, ErrFull
	}
	models := maps.Clone(known.models)
	if models == nil {
		models = map[string]bool{}
	}
	var lines [][]byte
	var accepted []intakeLine
	isNew := map[string]bool{}
	for k := range parsed {
		receipt := &taken.Events[k]
		if receipt.Status == Rejected {
			taken.Rejected++
			continue
		}
		receipt.EventID = parsed[k].EventID
		if _, seen := known.seen[idBytes(receipt.EventID)]; seen || isNew[receipt.EventID] {
			receipt.Status = Duplicate
			taken.Duplicates++
			continue
		}
		if !parsed[k].addModels(models) {
			receipt.Status = Rejected
			receipt.Reason = fmt.Sprintf("the organisation has sent %d names of models: send no other names", maxModels)
			taken.Rejected++
			continue
		}
		line := intakeLine{Organisation: name, At: now, Event: parsed[k]}
		text, err := json.Marshal(line)
		if err != nil {
			return nil, err
		}
		receipt.Status = Accepted
		taken.Accepted++
		isNew[receipt.EventID] = true
		lines = append(lines, append(text, '\n'))
		accepted = append(accepted, line)
	}
	written, err := i.daily.AppendLines(now, lines...)
	if err != nil {
		return nil, err
	}
	for _, line := range accepted {
		i.addLocked(line, now.Format(time.DateOnly))
	}
	if taken.Duplicates == 0 {
		return written, nil
	}
	// The event that a duplicate repeats may not be on disk yet. AppendLines without lines returns a function that
	// waits for the lines of earlier calls.
	earlier, err := i.daily.AppendLines(now)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return cmp.Or(written(ctx), earlier(ctx)) }, nil
}

// addModels adds the models of an event to the models that an organisation has sent. It returns false if there are then
// more than maxModels.
func (e Event) addModels(models map[string]bool) (fits bool) {
	fits = true
	for _, r := range e.Rankings {
		if models[r.Model] = true; len(models) > maxModels {
			delete(models, r.Model)
			fits = false
		}
	}
	return fits
}

// readID returns the event_id of an event that was rejected, or "" if it has no valid one.
func readID(text []byte) string {
	var e struct {
		ID string `json:"event_id"`
	}
	if len(text) > MaxBytes || json.Unmarshal(text, &e) != nil || !eventID.MatchString(e.ID) {
		return ""
	}
	return e.ID
}

// run deletes old events and publishes new boards if they are due, each hour until ctx ends.
func (i *Intake) run(ctx context.Context) {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		select {
		case <-hourly.C:
			i.tidy(ctx)
			i.publish(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// tidy deletes and forgets events that are older than KeptDays.
func (i *Intake) tidy(ctx context.Context) {
	now := i.o.Now().UTC()
	then := now.AddDate(0, 0, -KeptDays)
	removeBefore(ctx, i.daily, now, then, i.o.Log)
	oldest := then.Format(time.DateOnly)
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, org := range i.orgs {
		maps.DeleteFunc(org.seen, func(_ [16]byte, day string) bool { return day < oldest })
		maps.DeleteFunc(org.days, func(day string, _ map[string]sum) bool { return day < oldest })
		for row, days := range org.fresh {
			maps.DeleteFunc(days, func(day string, _ int) bool { return row != "" && day < oldest })
		}
	}
}

// Healthy returns nil if events can be written, and the cause otherwise.
func (i *Intake) Healthy() error { return i.daily.Healthy() }

// Close ends the intake. It waits for the goroutine of the intake, and closes the store.
func (i *Intake) Close() error {
	i.stop()
	i.done.Wait()
	return i.daily.Close()
}
