package llm

import (
	"context"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

// queue limits how many requests to one provider are in flight. Further requests wait for a place, first in, first
// out.
type queue struct {
	places chan struct{} // holds one element for each request that has a place

	mu      sync.Mutex // guards the fields below
	waiting int
	// mean is how long a request holds its place on average. It is 0 until a request has ended.
	mean time.Duration
	// expected holds, for each session, the number of calls that the session has announced and not begun.
	expected map[string]int
	coming   int // sum of expected
}

func newQueue(places int) *queue {
	return &queue{places: make(chan struct{}, places), expected: map[string]int{}}
}

// enter waits for a place, and returns true when the request has one. leave gives the place back. enter returns false
// if ctx ends first.
func (q *queue) enter(ctx context.Context) bool {
	select {
	case q.places <- struct{}{}:
		return true
	default:
	}
	q.count(1)
	defer q.count(-1)
	select {
	case q.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (q *queue) leave() { <-q.places }

func (q *queue) count(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting += n
}

// held must be called when a request has ended. It adds d, the time for which the request held its place, to the mean.
// The newest request has a weight of 1/8, as in the mean of round-trip times in TCP (RFC 6298).
func (q *queue) held(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mean == 0 {
		q.mean = d
	} else {
		q.mean += (d - q.mean) / 8
	}
}

// expect announces calls that a session is about to begin. The result end is the time until the last of these calls
// would end. It is 0 if the calls need not wait, or if no request has ended yet. The argument within limits this time:
// if end is not shorter, expect announces nothing, and ok is false.
func (q *queue) expect(session string, calls int, within time.Duration) (end time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ahead := len(q.places) + q.waiting + q.coming
	if over := ahead + calls - cap(q.places); ahead > 0 && over > 0 {
		end = q.mean + time.Duration(float64(q.mean)*float64(over)/float64(cap(q.places)))
	}
	if end >= within {
		return end, false
	}
	q.expected[session] += calls
	q.coming += calls
	return end, true
}

// begun notes that a call of a session has begun. If the session has announced calls, one call fewer is now expected.
func (q *queue) begun(session string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.expected[session]; n > 1 {
		q.expected[session]--
		q.coming--
	} else {
		q.forgetLocked(session)
	}
}

func (q *queue) forgetLocked(session string) {
	q.coming -= q.expected[session]
	delete(q.expected, session)
}

// Expect announces that a session is about to call each of the models. The argument within limits the time until the
// last of these calls would end. If the calls to a provider would take longer, Expect announces nothing. It then
// returns the name of this provider, and the time until the last call to it would end. It estimates this time from the
// calls in flight, the calls that wait, and how long earlier calls took.
func (c *Client) Expect(
	session string, models []string, within time.Duration,
) (provider string, end time.Duration, ok bool) {
	calls := map[string]int{}
	for _, model := range models {
		prefix, _ := council.SplitModel(model, c.names)
		calls[prefix]++
	}
	for name, n := range calls {
		if p := c.providers[name]; p != nil {
			if end, ok := p.queue.expect(session, n, within); !ok {
				c.Forget(session)
				return name, end, false
			}
		}
	}
	return "", 0, true
}

// Forget takes back the calls that Expect announced for a session and that have not begun.
func (c *Client) Forget(session string) {
	for _, p := range c.providers {
		p.queue.mu.Lock()
		p.queue.forgetLocked(session)
		p.queue.mu.Unlock()
	}
}
