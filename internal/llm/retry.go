package llm

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// backoffBase and backoffDoublings bound the jitter: 500 ms at first and 8 s in
	// the end, as in OpenAI's own clients.
	backoffBase      = 500 * time.Millisecond
	backoffDoublings = 4
	// retryAfterSpread spreads the retries of calls that were refused at the same time.
	retryAfterSpread = 250 * time.Millisecond
)

// retryable reports whether another request may succeed after one that ended with f.
func retryable(x *exchange, f *council.Failure) bool {
	if x.hopeless {
		return false
	}
	switch f.Code {
	case council.FailConnection, council.FailReset, council.FailTruncated, council.FailRateLimited, council.FailUnavailable:
		return true
	case council.FailRejected:
		return x.status == http.StatusRequestTimeout || x.status == http.StatusConflict || x.status == http.StatusTooEarly
	default:
		return false
	}
}

// backoff returns how long to wait before the nth retry, counted from 1. It is false if
// the wait is too long to begin.
func (c *Client) backoff(ctx context.Context, n int, f *council.Failure) (wait time.Duration, ok bool) {
	if after := f.RetryAfterS; after == nil {
		wait = rand.N(backoffBase << min(n-1, backoffDoublings))
	} else if *after > c.attemptTimeout.Seconds() { // so the conversion below cannot overflow
		return 0, false
	} else {
		wait = time.Duration(math.Ceil(*after*float64(time.Second))) + rand.N(retryAfterSpread)
	}
	deadline, limited := ctx.Deadline()
	return wait, !limited || wait < time.Until(deadline)
}

const (
	budgetSpan  = 10 * time.Second
	budgetFloor = 10 // retries that are always allowed per span
	budgetShare = 10 // one retry for so many first requests
)

// budget limits the retries to one provider, so that failures do not multiply the load
// of a provider in trouble.
type budget struct {
	mu       sync.Mutex // guards all below
	sent     window     // first requests, and retries
	reserved int        // retries that are still waiting
}

func newBudget() *budget { return &budget{sent: window{span: budgetSpan}} }

// leftLocked returns how many retries may still be sent. Because whole slots are
// forgotten, first requests count for at most the span and retries for at least the
// span: the result may be too small, never too large.
func (b *budget) leftLocked(now time.Duration) int {
	first, _ := b.sent.sum(now, windowSlots)
	_, retries := b.sent.sum(now, windowSlots+1)
	return max(budgetFloor, first/budgetShare) - retries
}

// reserve holds a place in the budget for a retry that will be sent after a wait. The
// caller must release it.
func (b *budget) reserve(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leftLocked(now) <= b.reserved {
		return false
	}
	b.reserved++
	return true
}

// release gives a reservation back.
func (b *budget) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved--
}

// spend counts a request that is about to be sent. It refuses a retry when the
// budget has become smaller than it was when the retry was reserved.
func (b *budget) spend(now time.Duration, r request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r == retry && b.leftLocked(now) <= 0 {
		return false
	}
	if r != sameAgain {
		b.sent.add(now, int(r))
	}
	return true
}

// windowSlots is how many slots make up the span of a window.
const windowSlots = 10

// window counts two kinds of events over the latest span of time. It counts in slots,
// which are forgotten as a whole. There is one slot more than the span needs, because
// the newest slot is not complete.
type window struct {
	span  time.Duration
	slots [windowSlots + 1]struct {
		number int64
		counts [2]int
	}
}

func (w *window) number(now time.Duration) int64 { return int64(now / (w.span / windowSlots)) }

// add counts an event of the kind 0 or 1.
func (w *window) add(now time.Duration, kind int) {
	n := w.number(now)
	slot := &w.slots[n%int64(len(w.slots))]
	if slot.number != n {
		slot.number, slot.counts = n, [2]int{}
	}
	slot.counts[kind]++
}

// sum returns the counts of both kinds in the newest slots, up to n of them.
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
