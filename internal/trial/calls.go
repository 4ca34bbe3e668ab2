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

// Calls keeps the calls of a run in a file. The outcome of each call is in the file before it is used, and a call with
// an outcome in the file is not made again. The file also has the cost of requests. Calls writes the most that a
// request can cost before the request is sent. So the costs in the file are never below what the providers billed,
// however a process ends. Calls is safe for concurrent use.
type Calls struct {
	name string
	lock *disk.Lock

	writing sync.Mutex // held without mu while the file is written, so that readers do not wait for the disk
	file    disk.File

	mu       sync.Mutex        // guards all below
	sessions map[string]*calls // by id
	total    float64           // the cost of all sessions, in US dollars
	broken   error             // why no further outcome can be kept, or nil
	leave    func(error)       // ends the run. It is nil before Run.
}

// calls has the calls of one session.
type calls struct {
	kept map[string]council.Landed // by key
	// landed has the same outcomes as kept, but only the last outcome of a call that was repeated with another prompt.
	landed []council.Landed
	drawn  map[string]int // how many calls were asked for so far, by stage and seat
	short  council.Stage  // the stage in which a cost limit prevented a call, or ""
	cost   float64        // in US dollars, without requests in flight
	unkept float64        // the cost that is not in the file yet; negative if the file has more than cost
}

// of finds the calls of a session. The caller holds mu.
func (c *Calls) of(session string) *calls {
	s := c.sessions[session]
	if s == nil {
		s = &calls{kept: map[string]council.Landed{}, drawn: map[string]int{}}
		c.sessions[session] = s
	}
	return s
}

// entry is a line of the file. The first line has only the hash of the plan. A line that was written before a request
// was sent has no Landed. A line for a call without an outcome has no Landed either.
type entry struct {
	Plan    string `json:"plan,omitempty"`
	Key     string `json:"key,omitempty"`
	Session string `json:"session,omitempty"`
	// BilledUSD is the amount that the line adds to the cost of the session. It is negative if requests cost less than
	// earlier lines assume.
	BilledUSD float64 `json:"billed_usd,omitempty"`
	*council.Landed
}

// OpenCalls opens or creates the file for the calls of a plan. The argument plan is the hash of the plan. While the
// file is open, no other process can open it. OpenCalls cuts off a torn last line. The caller closes Calls.
func OpenCalls(name, plan string) (_ *Calls, err error) {
	lock, err := disk.TryLock(name + ".lock")
	if errors.Is(err, disk.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by another councild: wait until that one ends", name)
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

// read reads the file, or begins it if it is empty. It refuses a file with the calls of another plan. The argument plan
// is the hash of the plan.
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
			return fmt.Errorf("%s: line %d is damaged: %w: move the file away to start again", c.name, n, err)
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

// add adds an outcome that is in the file. If a call was made again with another prompt, only its last outcome is in
// landed.
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

// Hold writes the most that a request can cost to the file, in US dollars. It is called before the request is sent.
// When the request is over, the caller calls finish with the cost of the request, or with the most that the request can
// have cost. finish does not wait for the disk.
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

// Cost returns how much the requests of some sessions cost, in US dollars. Without arguments, Cost returns the cost of
// all sessions. It does not count requests in flight. A request that was in flight when an earlier process ended counts
// with the most that it can have cost.
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

// Landed returns the calls of a session that have an outcome in the file.
func (c *Calls) Landed(session string) []council.Landed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.of(session).landed)
}

// Completer returns a Completer that answers calls from the file. It makes all other calls with next, and keeps their
// outcomes.
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
	// The key includes the prompt, because the prompts of later calls change if the question is asked again and more of
	// its calls are made than before.
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
			Code: council.FailBudget, Message: "not called: a cost limit prevented a call of an earlier stage",
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
	if call.Texts == nil && (failure == nil || isOutcome(failure)) { // Embeddings are not kept.
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

// isShort reports whether a cost limit prevented a call in a stage before the given one. Calls of the given stage are
// then not made, because the question will be asked once more, and their prompts would change.
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

// keep writes a line to the file. The line has the outcome in e, if e has one, and the cost of the session that is not
// in the file yet.
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

// append appends a line to the file. After the first error it keeps no more lines and ends the run.
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

// isOutcome reports whether a failure is the outcome of the call itself. The end of this process, a limit and an open
// breaker are not outcomes: such a call can be made later.
func isOutcome(f *council.Failure) bool {
	switch f.Code {
	case council.FailCancelled, council.FailInterrupted, council.FailBudget, council.FailBreakerOpen:
		return false
	default:
		return true
	}
}

// again is called before sessions run once more. It counts their calls from the beginning, so that Complete finds the
// outcomes in the file.
func (c *Calls) again(sessions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, session := range sessions {
		s := c.of(session)
		s.short = ""
		clear(s.drawn)
	}
}

// forget drops the calls of finished sessions from memory. It keeps their cost, and the file still has the calls.
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

// err returns why an outcome could not be kept, or nil.
func (c *Calls) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
