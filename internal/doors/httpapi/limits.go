package httpapi

import (
	"crypto/sha256"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"golang.org/x/time/rate"
)

// Limits are the limits of one token.
type Limits struct {
	// Sessions is the most sessions of the token that run at once. If it is nil, Options.MaxSessions is the only limit.
	Sessions *int
	// PerMinute is the most sessions that the token may begin in a minute. All of them may begin at once. If it is nil,
	// there is no such limit.
	PerMinute *int
}

// caller holds the limits and rights of a token. There is one caller for each token, or a single caller if there are no
// tokens. All callers are made when the tokens are set, so a flood of requests makes no new callers.
type caller struct {
	token    *Token // nil if there are no tokens
	sum      [sha256.Size]byte
	owner    sessions.Owner
	label    string
	sessions chan struct{} // one element per session that runs
	rate     *rate.Limiter
	labels   *rate.Limiter // limits feedback, because every report reads all of it
	checks   chan struct{} // one element while a plan of the caller is checked
}

// These are the most pieces of feedback that a caller may send at once, and in a day.
const (
	labelsAtOnce = 100
	labelsPerDay = 1000
)

func newCaller(t *Token, places int) *caller {
	var limits Limits
	c := &caller{
		token:  t,
		rate:   rate.NewLimiter(rate.Inf, 0),
		labels: rate.NewLimiter(labelsPerDay/(24*60*60), labelsAtOnce),
		checks: make(chan struct{}, 1),
	}
	if t != nil {
		c.sum = t.sum()
		c.owner = t.owner()
		c.label = council.TokenLabel(t.Name, c.sum)
		limits = t.Limits
	}
	if limits.Sessions != nil {
		places = min(places, *limits.Sessions)
	}
	c.sessions = make(chan struct{}, places)
	if limits.PerMinute != nil {
		c.rate = rate.NewLimiter(rate.Limit(float64(*limits.PerMinute)/time.Minute.Seconds()), *limits.PerMinute)
	}
	return c
}

// may reports whether the caller has a right. Without tokens every caller has all rights.
func (c *caller) may(right council.Right) bool {
	switch {
	case c.token == nil:
		return true
	case c.token.May == nil:
		return right != council.MayAdmin
	default:
		return slices.Contains(c.token.May, right)
	}
}

// SetTokens replaces the tokens of callers. A token whose secret, name and limits did not change keeps its counts of
// running and recent sessions. Requests that have passed authentication continue, and so do running sessions.
func (a *API) SetTokens(tokens []Token) {
	var before []*caller
	if callers := a.callers.Load(); callers != nil {
		before = *callers
	}
	var all []*caller
	for i := range tokens {
		c := newCaller(&tokens[i], a.o.MaxSessions)
		for _, old := range before {
			if old.token != nil && old.sum == c.sum && old.label == c.label &&
				reflect.DeepEqual(old.token.Limits, c.token.Limits) {
				c.sessions = old.sessions
				c.rate = old.rate
				c.checks = old.checks
			}
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		all = append(all, newCaller(nil, a.o.MaxSessions))
	}
	a.callers.Store(&all)
}

// admit takes a place for a session. If it cannot, it returns an error at once and does not wait, because a queue would
// only hide that the daemon is full. An admitted session counts against the token's sessions in a minute, even if the
// session fails. A refused session does not count.
func (a *API) admit(r *http.Request) (release func(), err error) {
	if a.o.Daemon.Draining() {
		return nil, &council.Error{
			Code:       council.CodeUnavailable,
			Detail:     "the daemon is shutting down",
			RetryAfter: 5 * time.Second,
		}
	}
	c := a.callerOf(r)
	select {
	case a.places <- struct{}{}:
	default:
		return nil, &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "the daemon runs as many sessions as it may; try again in a moment, or raise " + a.o.Settings.Of(council.SettingMaxSessions),
		}
	}
	select {
	case c.sessions <- struct{}{}:
	default:
		<-a.places
		return nil, &council.Error{
			Code: council.CodeOverLimit, RetryAfter: time.Second,
			Detail: "this token has as many running sessions as it may have; wait for one to end, or raise max_sessions of the token in the roster",
		}
	}
	release = func() {
		<-c.sessions
		<-a.places
	}
	reservation := c.rate.Reserve()
	if wait := reservation.Delay(); wait > 0 {
		reservation.Cancel()
		release()
		return nil, &council.Error{
			Code: council.CodeOverLimit, RetryAfter: wait,
			Detail: "this token has begun as many sessions as it may in a minute; wait, or raise rate_limit of the token in the roster",
		}
	}
	return release, nil
}
