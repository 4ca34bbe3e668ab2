package httpapi

import (
	"net/http"
	"time"

	"github.com/councild/councild/internal/council"
	"golang.org/x/time/rate"
)

// Limits are those of one token.
type Limits struct {
	Sessions  *int // that run at once; nil: as many as there are places
	PerMinute *int // sessions in a minute, and at once; nil: no limit
}

// caller holds the limits of one token. All callers are made at the start, one for
// each token, so that no flood of requests makes more.
type caller struct {
	sessions chan struct{} // one element per session that runs
	rate     *rate.Limiter
}

func newCaller(limits Limits, places int) caller {
	c := caller{rate: rate.NewLimiter(rate.Inf, 0)}
	if limits.Sessions != nil {
		places = min(places, *limits.Sessions)
	}
	c.sessions = make(chan struct{}, places)
	if limits.PerMinute != nil {
		c.rate = rate.NewLimiter(rate.Limit(float64(*limits.PerMinute)/time.Minute.Seconds()), *limits.PerMinute)
	}
	return c
}

// admit takes a place for a session, or refuses at once: a queue would only hide that
// the daemon is full. An admitted session counts against the rate, whatever comes of
// it, a refused one does not.
func (a *API) admit(r *http.Request) (release func(), err error) {
	if a.o.Daemon.Draining() {
		return nil, &council.Error{Code: council.CodeUnavailable, Detail: "the daemon is shutting down", RetryAfter: 5 * time.Second}
	}
	c := a.callers[callerOf(r)]
	select {
	case a.places <- struct{}{}:
	default:
		return nil, &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "as many sessions run as may at once; try again in a moment, or raise " + a.o.Settings.Of(council.SettingMaxSessions),
		}
	}
	select {
	case c.sessions <- struct{}{}:
	default:
		<-a.places
		return nil, &council.Error{
			Code: council.CodeOverLimit, RetryAfter: time.Second,
			Detail: "as many sessions of this token run as may at once; wait for one to end, or raise " +
				a.o.Settings.Of(council.SettingMaxSessionsPerToken),
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
			Detail: "this token has begun as many sessions as it may in a minute; wait, or raise " +
				a.o.Settings.Of(council.SettingRateLimit),
		}
	}
	return release, nil
}
