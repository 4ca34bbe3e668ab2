package council

import "time"

// BreakerState is what a circuit breaker does with the calls to its model.
type BreakerState string

// The states of a Breaker.
const (
	BreakerClosed   BreakerState = "closed"    // calls pass
	BreakerOpen     BreakerState = "open"      // calls fail at once with FailBreakerOpen
	BreakerHalfOpen BreakerState = "half_open" // one call at a time passes, to try the model
)

// Breaker is the circuit breaker of one model.
type Breaker struct {
	Provider   string // its name, "" for the default one
	Model      string // as the provider knows it
	State      BreakerState
	RetryAfter time.Duration // until it is half open, when it is open
}

// Name returns the model as a Call names it.
func (b Breaker) Name() string {
	if b.Provider == "" {
		return b.Model
	}
	return b.Provider + ":" + b.Model
}
