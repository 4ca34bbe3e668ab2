package batch

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
	"strconv"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// Calls keep the outcome of each call in a file, in which it is before it is used. What the file holds is answered
// from it. They are safe for concurrent use.
type Calls struct {
	name string
	lock *disk.Lock

	writing sync.Mutex // held while the file is written, without mu: nobody who only asks waits for the disk
	file    disk.File

	mu     sync.Mutex
	kept   map[string]council.Landed   // by key
	landed map[string][]council.Landed // the same by session
	drawn  map[string]int              // calls so far, by session, stage and seat
	cost   map[string]float64          // in US dollars, by session
	total  float64                     // the sum of those
	broken error                       // why no further outcome can be kept
	leave  func(error)                 // ends the run; nil: nothing does
}

// entry is a line of the file. The first one has the hash of the plan only.
type entry struct {
	Plan    string `json:"plan,omitempty"`
	Key     string `json:"key,omitempty"`
	Session string `json:"session,omitempty"`
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
	c := &Calls{
		name: name, lock: lock, kept: map[string]council.Landed{}, landed: map[string][]council.Landed{}, drawn: map[string]int{},
		cost: map[string]float64{},
	}
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
			if cost := e.Completion.Usage.CostUSD; cost != nil {
				c.cost[e.Session] += *cost
				c.total += *cost
			}
		}
	}
	if n > 0 {
		return nil
	}
	return appendLine(c.file, entry{Plan: plan})
}

// add adds an outcome that is in the file.
func (c *Calls) add(e entry) {
	c.kept[e.Key] = *e.Landed
	c.landed[e.Session] = append(c.landed[e.Session], *e.Landed)
}

// Bill adds what a request cost, or can have cost.
func (c *Calls) Bill(session string, usd float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cost[session] += usd
	c.total += usd
}

// Cost returns what the calls in the file cost as far as that is known, and what was billed since, in US dollars: of
// these sessions, or in all.
func (c *Calls) Cost(sessions ...string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(sessions) == 0 {
		return c.total
	}
	sum := 0.0
	for _, session := range sessions {
		sum += c.cost[session]
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
	return slices.Clone(c.landed[session])
}

// Completer returns a Completer that answers what was kept, and keeps what next answers.
func (c *Calls) Completer(next council.Completer) council.Completer { return keeper{c, next} }

type keeper struct {
	calls *Calls
	next  council.Completer
}

// Complete implements council.Completer.
func (k keeper) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	if call.Texts != nil { // nothing keeps embeddings
		return k.next.Complete(ctx, call)
	}
	c := k.calls
	c.mu.Lock()
	seat := call.Session + "\x00" + string(call.Stage) + "\x00" + call.Seat
	c.drawn[seat]++
	number := c.drawn[seat]
	sum := sha256.Sum256([]byte(seat + "\x00" + strconv.Itoa(number)))
	key := hex.EncodeToString(sum[:])
	kept, ok := c.kept[key]
	c.mu.Unlock()
	if ok {
		if kept.Failure != nil {
			return kept.Completion, kept.Failure
		}
		return kept.Completion, nil
	}
	completion, err := k.next.Complete(ctx, call)
	failure := council.AsFailure(err)
	if failure != nil && !isOutcome(failure) {
		return completion, err
	}
	outcome := council.Landed{
		Stage: call.Stage, Seat: call.Seat, Number: number, Model: call.Model, Completion: completion, Failure: failure,
	}
	if broken := c.keep(entry{Key: key, Session: call.Session, Landed: &outcome}); broken != nil {
		return council.Completion{Spent: completion.Spent}, &council.Failure{Code: council.FailInterrupted, Message: broken.Error()}
	}
	return completion, err
}

// keep keeps an outcome. After the first error nothing more is kept, and the run ends.
func (c *Calls) keep(e entry) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	broken := c.err()
	if broken != nil {
		return broken
	}
	if err := appendLine(c.file, e); err != nil {
		broken = fmt.Errorf("keeping a reply: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken = broken; broken == nil {
		c.add(e)
	} else if c.leave != nil {
		c.leave(broken)
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

// forget begins the calls of a session anew: those that were kept come again.
func (c *Calls) forget(sessions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seat := range c.drawn {
		for _, session := range sessions {
			if len(seat) > len(session) && seat[:len(session)+1] == session+"\x00" {
				delete(c.drawn, seat)
			}
		}
	}
}

// err returns why an outcome could not be kept.
func (c *Calls) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
