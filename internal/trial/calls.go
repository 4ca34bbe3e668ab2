package trial

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// Calls keep the outcome of each call in a file, in which it is before it is used. What the file holds is answered
// from it. They also keep what requests cost: the most that one can cost is in the file before it is sent, so that the file
// never has less than the providers billed, however a process ends. They are safe for concurrent use.
type Calls struct {
	name string
	lock *disk.Lock

	writing sync.Mutex // held while the file is written, without mu: nobody who only asks waits for the disk
	file    disk.File

	mu       sync.Mutex
	sessions map[string]*calls // by id
	total    float64           // what they cost
	broken   error             // why no further outcome can be kept
	leave    func(error)       // ends the run; nil: nothing does
}

// calls are those of a session.
type calls struct {
	kept   map[string]council.Landed // by key
	landed []council.Landed          // the same
	drawn  map[string]int            // calls so far, by stage and seat
	short  council.Stage             // in which a limit of cost kept a call from being made; "": in none
	cost   float64                   // in US dollars, without requests that are under way
	unkept float64                   // what of the cost is missing in the file, or is too much there where it is negative
}

// of returns the calls of a session.
func (c *Calls) of(session string) *calls {
	s := c.sessions[session]
	if s == nil {
		s = &calls{kept: map[string]council.Landed{}, drawn: map[string]int{}}
		c.sessions[session] = s
	}
	return s
}

// entry is a line of the file. The first one has the hash of the plan only. Those before a request is sent have no outcome,
// and neither have those of calls that came to none.
type entry struct {
	Plan    string `json:"plan,omitempty"`
	Key     string `json:"key,omitempty"`
	Session string `json:"session,omitempty"`
	// BilledUSD is what the line adds to the cost of the session. It is negative where requests cost less than the lines
	// before them had.
	BilledUSD float64 `json:"billed_usd,omitempty"`
	*council.Landed
}

// OpenCalls opens the file of a plan's calls, which it creates where there is none, for this process alone. A torn
// last line is cut off.
func OpenCalls(name, plan string) (_ *Calls, err error) {
	lock, err := disk.TryLock(name + ".lock")
	if errors.Is(err, disk.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by another councild: wait until it ends", name)
	}
	if err != nil {
		return nil, err
	}
	c := &Calls{name: name, lock: lock, sessions: map[string]*calls{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.file, err = (disk.OS{}).OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	return c, c.read(plan)
}

// read reads the file. The kept calls are of the plan with this hash.
func (c *Calls) read(plan string) error {
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.NewSectionReader(c.file, 0, info.Size()))
	if err != nil {
		return err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if len(whole) < len(data) {
		if err := c.file.Truncate(int64(len(whole))); err != nil {
			return err
		}
	}
	n := 0
	for line := range bytes.Lines(whole) {
		n++
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: line %d is damaged: %w: move the file away to begin anew", c.name, n, err)
		}
		if n == 1 && e.Plan != plan {
			return fmt.Errorf("%s holds the calls of another plan: move it away, or write to another file", c.name)
		}
		if e.Landed != nil {
			c.add(e)
		}
		if e.Session != "" {
			c.of(e.Session).cost = council.AddUSD(c.of(e.Session).cost, e.BilledUSD)
			c.total = council.AddUSD(c.total, e.BilledUSD)
		}
	}
	if n > 0 {
		return nil
	}
	return appendLine(c.file, entry{Plan: plan})
}

// add adds an outcome that is in the file. Of the same call with another prompt, only the last one landed.
func (c *Calls) add(e entry) {
	s := c.of(e.Session)
	s.kept[e.Key] = *e.Landed
	before := slices.IndexFunc(s.landed, func(l council.Landed) bool {
		return l.Stage == e.Stage && l.Seat == e.Seat && l.Number == e.Number
	})
	if before < 0 {
		s.landed = append(s.landed, *e.Landed)
	} else {
		s.landed[before] = *e.Landed
	}
}

// Hold keeps the most that a request can cost, in US dollars, before it is sent. finish says what it cost or can have cost,
// and does not wait for the disk.
func (c *Calls) Hold(session string, bound float64) (finish func(usd float64), err error) {
	if bound > 0 {
		if err := c.append(entry{Session: session, BilledUSD: bound}); err != nil {
			return nil, err
		}
	}
	return func(usd float64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		s := c.of(session)
		s.cost = council.AddUSD(s.cost, usd)
		s.unkept = council.AddUSD(s.unkept, council.AddUSD(usd, -bound))
		c.total = council.AddUSD(c.total, usd)
	}, nil
}

// Cost returns what requests that are over cost or can have cost, in US dollars: of these sessions, or in all. A request
// that was under way when an earlier process ended counts with the most that it can have cost.
func (c *Calls) Cost(sessions ...string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(sessions) == 0 {
		return c.total
	}
	sum := 0.0
	for _, session := range sessions {
		sum = council.AddUSD(sum, c.of(session).cost)
	}
	return sum
}

// Close releases the file.
func (c *Calls) Close() error {
	var err error
	if c.file != nil {
		err = c.file.Close()
	}
	return errors.Join(err, c.lock.Close())
}

// Landed returns the calls of a session that were kept so far.
func (c *Calls) Landed(session string) []council.Landed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.of(session).landed)
}

// Completer returns a Completer that answers what was kept, and keeps what next answers.
func (c *Calls) Completer(next council.Completer) council.Completer { return keeper{c, next} }

type keeper struct {
	calls *Calls
	next  council.Completer
}

// Complete implements council.Completer.
func (k keeper) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	c := k.calls
	c.mu.Lock()
	s := c.of(call.Session)
	seat := string(call.Stage) + "\x00" + call.Seat
	s.drawn[seat]++
	number := s.drawn[seat]
	// A question that is asked once more has other prompts behind a call that had no room before.
	place, _ := json.Marshal([]any{call.Session + "\x00" + seat, number, call.Model, call.Messages}) // plain data
	sum := sha256.Sum256(place)
	key := hex.EncodeToString(sum[:])
	kept, ok := s.kept[key]
	isShort := s.isShort(call.Stage)
	c.mu.Unlock()
	if ok {
		if kept.Failure != nil {
			return kept.Completion, kept.Failure
		}
		return kept.Completion, nil
	}
	if isShort {
		return council.Completion{Spent: council.Spent{Usage: council.NoUsage()}}, &council.Failure{
			Code: council.FailBudget, Message: "not called: there was no room for a call of the stage before",
		}
	}
	completion, err := k.next.Complete(ctx, call)
	failure := council.AsFailure(err)
	if failure != nil && failure.Code == council.FailBudget {
		c.mu.Lock()
		s.short = call.Stage
		c.mu.Unlock()
	}
	e := entry{Session: call.Session}
	if call.Texts == nil && (failure == nil || isOutcome(failure)) { // nothing keeps embeddings
		e.Key = key
		e.Landed = &council.Landed{
			Stage:      call.Stage,
			Seat:       call.Seat,
			Number:     number,
			Model:      call.Model,
			Completion: completion,
			Failure:    failure,
		}
	}
	if broken := c.keep(e); broken != nil {
		return council.Completion{Spent: completion.Spent}, &council.Failure{
			Code:    council.FailInterrupted,
			Message: broken.Error(),
		}
	}
	return completion, err
}

// isShort reports whether a call is of a stage after one in which a call had no room. Its question is asked once more,
// and then the call would have another prompt.
func (s *calls) isShort(stage council.Stage) bool {
	switch s.short {
	case council.Stage1:
		return stage == council.Stage2 || stage == council.Stage3
	case council.Stage2:
		return stage == council.Stage3
	default:
		return false
	}
}

// keep keeps an outcome, if there is one, and what those requests of its session cost that are over.
func (c *Calls) keep(e entry) error {
	c.mu.Lock()
	s := c.of(e.Session)
	e.BilledUSD = s.unkept
	s.unkept = 0
	c.mu.Unlock()
	if e.Landed == nil && e.BilledUSD == 0 {
		return nil
	}
	return c.append(e)
}

// append appends a line to the file. After the first error nothing more is kept, and the run ends.
func (c *Calls) append(e entry) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	broken := c.err()
	if broken != nil {
		return broken
	}
	if err := appendLine(c.file, e); err != nil {
		broken = fmt.Errorf("keeping calls: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken = broken; broken != nil {
		if c.leave != nil {
			c.leave(broken)
		}
	} else if e.Landed != nil {
		c.add(e)
	}
	return broken
}

// isOutcome reports whether a failure is what came of a call, and not of the end of this process or of a limit.
func isOutcome(f *council.Failure) bool {
	switch f.Code {
	case council.FailCancelled, council.FailInterrupted, council.FailBudget, council.FailBreakerOpen:
		return false
	default:
		return true
	}
}

// again begins the calls of sessions anew: those that were kept come again.
func (c *Calls) again(sessions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, session := range sessions {
		s := c.of(session)
		s.short = ""
		clear(s.drawn)
	}
}

// forget drops the calls of sessions that nobody asks for any more, and keeps what they cost. The file has them still.
func (c *Calls) forget(sessions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, session := range sessions {
		before := c.of(session)
		delete(c.sessions, session)
		s := c.of(session)
		s.cost = before.cost
		s.unkept = before.unkept
	}
}

// err returns the error of keeping an outcome. It is nil if all were kept.
func (c *Calls) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
