package llm

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// backoffBase and backoffDoublings bound the random wait: 500 ms at first and 8 s in the end, as in OpenAI's
	// own clients.
	backoffBase      = 500 * time.Millisecond
	backoffDoublings = 4
	// retryAfterSpread is the longest random time that is added to a wait that the provider asks for. It spreads the
	// retries of calls that were refused at the same time.
	retryAfterSpread = 250 * time.Millisecond
)

// retryable reports whether another request may succeed after a request that failed with f.
func retryable(x *exchange, f *council.Failure) bool {
	if x.permanent {
		return false
	}
	switch f.Code {
	case council.FailConnection, council.FailReset, council.FailTruncated, council.FailRateLimited,
		council.FailUnavailable:
		return true
	case council.FailRejected:
		status := cmp.Or(x.named, x.status)
		return status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooEarly
	default:
		return false
	}
}

// backoff returns how long to wait before the nth retry, counted from 1. ok is false if the provider asks for a longer
// wait than one attempt may take, or if the wait would end after the deadline of ctx.
func (c *Client) backoff(ctx context.Context, n int, f *council.Failure) (wait time.Duration, ok bool) {
	if after := f.RetryAfterS; after == nil {
		wait = rand.N(backoffBase << min(n-1, backoffDoublings))
	} else if *after > c.attemptTimeout.Seconds() { // The conversion below could overflow.
		return 0, false
	} else {
		wait = time.Duration(math.Ceil(*after*float64(time.Second))) + rand.N(retryAfterSpread)
	}
	deadline, limited := ctx.Deadline()
	return wait, !limited || wait < time.Until(deadline)
}

const (
	budgetSpan  = 10 * time.Second
	budgetFloor = 10 // this many retries are always allowed in a span
	// If a span has more than budgetFloor*budgetShare first requests, one retry is allowed for every budgetShare of
	// these requests.
	budgetShare = 10
)

// budget limits the retries to one provider, so that failures do not multiply the load on a provider in trouble. A
// retry that would exceed the limit waits.
type budget struct {
	now func() time.Duration

	mu      sync.Mutex // guards the fields below
	sent    window     // counts first requests and retries
	claims  []*claim   // retries that are not sent yet, in the order in which they are due
	granted int        // how many of the claims are granted
	timer   *time.Timer
}

// claim is the place of a retry in the queue of the budget. It is granted when the retry may be sent.
type claim struct {
	model *model
	due   time.Duration // when the retry's own wait is over
	state claimState
	ended chan struct{} // closed when the claim is granted or refused
}

type claimState int

const (
	claimEarly   claimState = iota // the retry is not due yet
	claimWaiting                   // the retry is due, but the budget has no room
	claimGranted
	claimRefused
)

func newBudget(now func() time.Duration) *budget {
	return &budget{now: now, sent: window{span: budgetSpan}}
}

// claim takes a place in the queue for a retry that is due after a wait. The caller must call drop in the end. claim
// returns nil in two cases, because waiting for room in the budget is then pointless:
//
//   - ctx would end before there is room, if the provider continues to get as many calls as now.
//   - There is no room now, and most requests of the model fail.
func (b *budget) claim(ctx context.Context, m *model, wait time.Duration) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	c := &claim{model: m, due: now + wait, ended: make(chan struct{})}
	ahead, _ := slices.BinarySearchFunc(b.claims, c.due, func(other *claim, due time.Duration) int {
		if other.due <= due {
			return -1
		}
		return 1
	})
	if b.roomLocked(now, len(b.claims)) > now && m.attempts.mostFail(now) {
		return nil
	}
	if deadline, limited := ctx.Deadline(); limited && b.roomLocked(now, ahead)-now >= time.Until(deadline) {
		return nil
	}
	b.claims = slices.Insert(b.claims, ahead, c)
	return c
}

// roomLocked returns the time at which the budget has room for a retry. The argument ahead is the number of retries
// that go before this retry. roomLocked assumes that the provider continues to get as many calls as now. The window
// forgets whole slots, so first requests count for at most budgetSpan, and retries for at least budgetSpan. The budget
// may therefore be too small, but never too large.
func (b *budget) roomLocked(now time.Duration, ahead int) time.Duration {
	first, _ := b.sent.sum(now, windowSlots)
	_, retries := b.sent.sum(now, windowSlots+1)
	size := max(budgetFloor, first/budgetShare)
	room := now
	for slot := b.sent.number(now) - windowSlots; retries+ahead%size >= size; slot++ { // The oldest retries leave first.
		if n := b.sent.at(slot)[retry]; n > 0 {
			retries -= n
			room = time.Duration(slot+windowSlots+1) * (b.sent.span / windowSlots)
		}
	}
	return room + time.Duration(ahead/size)*budgetSpan
}

// await waits until the retry of a claim is due and the budget has room for it. It reports whether the retry may be
// sent. It returns false if ctx ends first, or if the model fails so often that waiting is pointless.
func (b *budget) await(ctx context.Context, c *claim) bool {
	select {
	case <-time.After(c.due - b.now()):
	case <-c.ended:
		return false
	case <-ctx.Done():
		return false
	}
	b.mu.Lock()
	if c.state == claimEarly {
		c.state = claimWaiting
		b.grantLocked()
	}
	pointless := b.pointlessLocked(c)
	b.mu.Unlock()
	if pointless {
		return false
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.state == claimGranted
}

// grantLocked grants the waiting claims in their order, while the budget has room. It sets a timer that calls
// grantLocked again when there is more room.
func (b *budget) grantLocked() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	now := b.now()
	for _, c := range b.claims {
		if c.state != claimWaiting {
			continue
		}
		if room := b.roomLocked(now, b.granted); room > now {
			b.timer = time.AfterFunc(room-now, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.grantLocked()
			})
			return
		}
		c.state = claimGranted
		b.granted++
		close(c.ended)
	}
}

// refuse removes retries of a model from the queue. It removes retries that the model's breaker will not admit when
// they are due. It also removes retries that wait for room while most requests of the model fail. Retries that are
// already granted stay.
func (b *budget) refuse(m *model) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.claims) == 0 {
		return
	}
	now := b.now()
	b.claims = slices.DeleteFunc(b.claims, func(c *claim) bool {
		if c.model != m || c.state == claimGranted || m.breaker.admits(max(now, c.due)) && !b.pointlessLocked(c) {
			return false
		}
		c.state = claimRefused
		close(c.ended)
		return true
	})
	b.grantLocked() // This stops the timer if no claim waits.
}

// pointlessLocked reports whether a claim waits for room although most requests of its model fail.
func (b *budget) pointlessLocked(c *claim) bool {
	return c.state == claimWaiting && c.model.attempts.mostFail(b.now())
}

// drop removes the claim of a retry that will not be sent. If c is nil, or if its retry was already sent or refused,
// drop does nothing.
func (b *budget) drop(c *claim) {
	if c == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := slices.Index(b.claims, c); at >= 0 {
		b.removeLocked(at)
		b.grantLocked()
	}
}

func (b *budget) removeLocked(at int) {
	if b.claims[at].state == claimGranted {
		b.granted--
	}
	b.claims = slices.Delete(b.claims, at, at+1)
}

// spend counts a request that is about to be sent. For a retry, c is the granted claim of the retry. If the budget has
// shrunk since the claim was granted, spend returns false, and the retry waits again, as the first in the queue.
func (b *budget) spend(r request, c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	switch r {
	case firstRequest:
	case sameAgain:
		return true
	case retry:
		if b.roomLocked(now, 0) > now {
			b.granted--
			c.state = claimEarly
			c.ended = make(chan struct{})
			return false
		}
		b.removeLocked(slices.Index(b.claims, c))
	}
	b.sent.add(now, int(r))
	if len(b.claims) > 0 {
		b.grantLocked()
	}
	return true
}

// windowSlots is how many slots make up the span of a window.
const windowSlots = 10

// window counts two kinds of events over the latest span of time. It divides the time into slots, and forgets only
// whole slots. There is one slot more than the span needs, because the newest slot is not complete.
type window struct {
	span  time.Duration
	slots [windowSlots + 1]struct {
		number int64
		counts [2]int
	}
}

func (w *window) number(now time.Duration) int64 { return int64(now / (w.span / windowSlots)) }

// add counts an event of kind 0 or 1.
func (w *window) add(now time.Duration, kind int) {
	n := w.number(now)
	slot := &w.slots[n%int64(len(w.slots))]
	if slot.number != n {
		slot.number = n
		slot.counts = [2]int{}
	}
	slot.counts[kind]++
}

// at returns the counts of the slot with this number.
func (w *window) at(number int64) [2]int {
	if number < 0 {
		return [2]int{}
	}
	slot := w.slots[number%int64(len(w.slots))]
	if slot.number != number {
		return [2]int{}
	}
	return slot.counts
}

// sum returns the counts of both kinds in the newest n slots.
func (w *window) sum(now time.Duration, n int64) (a, b int) {
	newest := w.number(now)
	for _, slot := range w.slots {
		if slot.number > newest-n && slot.number <= newest {
			a += slot.counts[0]
			b += slot.counts[1]
		}
	}
	return a, b
}
