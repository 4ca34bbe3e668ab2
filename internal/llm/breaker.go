package llm

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// A breaker opens when at least breakerRequests requests ended within the last breakerSpan and at least half of
	// them failed. Fewer requests are too few, because two bad sessions must not exclude a model.
	breakerSpan     = 30 * time.Second
	breakerRequests = 10
	// breakerPause is how long a breaker stays open before a request tries the model again. The pause may be short,
	// because only one request tries the model, and an open breaker would have refused that request anyway.
	breakerPause = 10 * time.Second
)

// Breakers returns the breakers of all models that were called so far, ordered by provider and model.
func (c *Client) Breakers() []council.Breaker {
	var all []council.Breaker
	for name, p := range c.providers {
		p.mu.Lock()
		models := slices.Collect(maps.Values(p.models))
		p.mu.Unlock()
		for _, m := range models {
			state, wait := m.breaker.state(p.now())
			all = append(all, council.Breaker{Provider: name, Model: m.name, State: state, RetryAfter: wait})
		}
	}
	slices.SortFunc(all, func(a, b council.Breaker) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	return all
}

// attempts keeps two counts of the requests to a model that ended in the last 30 s (breakerSpan). One count is of the
// failures after which a retry may help. The other count is of all other results. Unlike the breaker, attempts also
// counts requests that the provider refused, for example with HTTP 429.
type attempts struct {
	mu    sync.Mutex
	ended window
}

func (a *attempts) add(now time.Duration, failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := 0
	if failed {
		kind = 1
	}
	a.ended.add(now, kind)
}

// mostFail reports whether ten or more requests ended in the last 30 s and at least half of them failed. A breaker
// opens at the same numbers, but a breaker does not count refused requests: see attempts.
func (a *attempts) mostFail(now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	other, failed := a.ended.sum(now, windowSlots)
	return other+failed >= breakerRequests && failed >= other
}

// verdict is what the end of a request says about the health of the model.
type verdict int

const (
	well verdict = iota
	sick
	unclear
)

// diagnose returns the verdict on a request that ended with the failure f. f is nil if the request returned a usable
// text.
func diagnose(caller context.Context, f *council.Failure) verdict {
	switch {
	case f == nil:
		return well
	case caller.Err() != nil:
		return unclear
	}
	switch f.Code {
	case council.FailUnavailable, council.FailConnection, council.FailReset, council.FailTruncated, council.FailTimeout:
		return sick
	case council.FailEmpty, council.FailRefused, council.FailContentFilter, council.FailLength, council.FailTooLarge:
		return well
	default:
		return unclear
	}
}

// ticket is what a breaker gives to a request that it admits: the number of the breaker's state at that time. If the
// state has changed when the request ends, the result of the request does not count.
type ticket int

// breaker is the circuit breaker of one model. It opens when at least 10 of its requests ended within 30 s and at
// least half of them failed. After 10 s it is half open, and one request at a time is sent. If that request is
// answered, the breaker closes. If it fails, the breaker opens again.
//
// A failure is an HTTP 5xx, no connection, a broken connection, a reply that was cut off, or a request that took longer
// than one attempt may take. Every complete reply of the model is a success. All other results say nothing about the
// model's health: servers in front of the model send other HTTP statuses, and a caller may have set a short deadline.
type breaker struct {
	mu sync.Mutex // guards the fields below
	// number is the number of the current state. It grows by 1 whenever the breaker opens or closes.
	number ticket
	// ended counts requests with the verdicts well and sick that end while the breaker is closed.
	ended window
	// until is when the open breaker becomes half open. It is 0 if the breaker is closed.
	until   time.Duration
	probing bool // the breaker is half open, and its one request is under way
}

func newBreaker() *breaker { return &breaker{ended: window{span: breakerSpan}} }

func (b *breaker) stateLocked(now time.Duration) council.BreakerState {
	switch {
	case b.until == 0:
		return council.BreakerClosed
	case now < b.until:
		return council.BreakerOpen
	default:
		return council.BreakerHalfOpen
	}
}

// state returns the state of the breaker, and how long it stays open. If it is not open, the time is 0.
func (b *breaker) state(now time.Duration) (council.BreakerState, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stateLocked(now), max(0, b.until-now)
}

// admits reports whether the breaker would admit a request at the time now.
func (b *breaker) admits(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.admitsLocked(now)
}

func (b *breaker) admitsLocked(now time.Duration) bool {
	state := b.stateLocked(now)
	return state == council.BreakerClosed || (state == council.BreakerHalfOpen && !b.probing)
}

// enter admits a request if the breaker allows it. If the second result is true, the caller must call leave when the
// request has ended.
func (b *breaker) enter(now time.Duration) (ticket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.admitsLocked(now) {
		return 0, false
	}
	b.probing = b.until > 0
	return b.number, true
}

// leave notes the verdict v on an admitted request that has ended. t is the ticket of the request.
func (b *breaker) leave(now time.Duration, t ticket, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t != b.number: // The request is from an earlier state.
	case v == unclear:
		b.probing = false
	case b.until == 0:
		b.ended.add(now, int(v))
		answered, failed := b.ended.sum(now, windowSlots)
		if answered+failed >= breakerRequests && failed >= answered {
			b.turnLocked(now + breakerPause)
		}
	case v == sick:
		b.turnLocked(now + breakerPause)
	default:
		b.turnLocked(0)
	}
}

// turnLocked opens the breaker until a time, or closes it if the time is 0.
func (b *breaker) turnLocked(until time.Duration) {
	b.number++
	b.until = until
	b.probing = false
	b.ended = window{span: breakerSpan}
}

// failure returns the failure of a request that the breaker refuses. While the breaker is open, the failure says when
// to try again. While the breaker is half open, the failure names no time, because the request that tries the model now
// may take any time.
func (b *breaker) failure(now time.Duration) *council.Failure {
	f := &council.Failure{Code: council.FailBreakerOpen, Message: "not called: the model failed too often recently"}
	if state, wait := b.state(now); state == council.BreakerOpen {
		f.RetryAfterS = new(wait.Seconds())
	}
	return f
}
