package journal

import "time"

// Waits are the times for which a Journal waits. Tests of what happens after a wait have shorter ones.
type Waits struct {
	// Answer is how long an operation is tried; on a cluster, a lease longer. That is longer than an election.
	Answer time.Duration
	// FirstTry is how long what is stored on a cluster waits for the first answer: a leader that changes loses what is on
	// its way. Later tries wait twice as long each.
	FirstTry time.Duration
	// Check is the pause between two comparisons of the index with the stream.
	Check time.Duration
	// Poll is how often a log is read without a sign that it changed.
	Poll time.Duration
	// MinPause and MaxPause are the shortest and the longest pause before the engine inside is opened again. The pauses grow,
	// and begin anew after the time Quiet without a fault.
	MinPause time.Duration
	MaxPause time.Duration
	Quiet    time.Duration
	// Working is how long a session waits before the file of working sessions says so. Most waits are over by then, if
	// providers are quick, and each would cost two writes. If the process dies in that time, the session is suspected
	// although it waited.
	Working time.Duration
}

// DefaultWaits returns the waits of a daemon.
func DefaultWaits() Waits {
	return Waits{
		Answer:   10 * time.Second,
		FirstTry: 500 * time.Millisecond,
		Check:    5 * time.Second,
		Poll:     time.Second,
		MinPause: 200 * time.Millisecond,
		MaxPause: 30 * time.Second,
		Quiet:    time.Minute,
		Working:  100 * time.Millisecond,
	}
}
