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
	// A breaker opens when half of the requests in the last 30 s failed. Fewer than 10 requests are too few, because
	// two bad sessions must not exclude a model.
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

// attempts counts the requests to a model that ended in the last 30 s (breakerSpan). It counts failures after which a
// retry may help, and separately all other results. Unlike the breaker, it also counts refusals of the provider, such
// as HTTP 429.
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

// mostFail reports whether ten or more requests ended and at least half of them failed. A breaker opens at the same
// numbers, but does not count refusals: see attempts.
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

// diagnose returns the verdict on a request that ended with the failure f. If the request brought a text, f is nil.
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

// ticket admits one request. It is the number of the breaker's state at that time. The result of a request from an
// earlier state does not count.
type ticket int

// breaker is the circuit breaker of one model. It opens when at least 10 of its requests ended within 30 s and at
// least half of them failed. After 10 s it is half open, and one request at a time is sent. If that request is
// answered, the breaker closes. If it fails, the breaker opens again.
//
// A failure is an HTTP 5xx, no connection, a broken connection, a reply that was cut off, or a request that ran out
// of its own time. Every reply of the model is a success. Other results say nothing about the model's health: other
// statuses come from servers in front of the model, and a caller may have set a short deadline.
type breaker struct {
	mu sync.Mutex // guards the fields below
	// number is the number of the current state. It grows by 1 whenever the breaker opens or closes.
	number ticket
	// ended counts the results of requests while the breaker is closed: well or sick.
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

// state returns the state, and how long the breaker stays open.
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

// enter admits a request. If ok is true, the caller must call leave.
func (b *breaker) enter(now time.Duration) (ticket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.admitsLocked(now) {
		return 0, false
	}
	b.probing = b.until > 0
	return b.number, true
}

// leave must be called at the end of an admitted request. It notes the verdict v on the request.
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

// failure returns why the breaker refuses a request. It says when to try again only while the breaker is open. While
// another request tries the model, it is unknown when the next one may be sent.
func (b *breaker) failure(now time.Duration) *council.Failure {
	f := &council.Failure{Code: council.FailBreakerOpen, Message: "not called: the model failed too often of late"}
	if state, wait := b.state(now); state == council.BreakerOpen {
		f.RetryAfterS = new(wait.Seconds())
	}
	return f
}
