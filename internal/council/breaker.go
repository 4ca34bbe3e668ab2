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
	Provider   string // the provider's name, "" for the default provider
	Model      string // the provider's name for the model
	State      BreakerState
	RetryAfter time.Duration // how long an open breaker waits until it is half open
}

// Name returns the name of the model in Call.Model.
func (b Breaker) Name() string {
	if b.Provider == "" {
		return b.Model
	}
	return b.Provider + ":" + b.Model
}
