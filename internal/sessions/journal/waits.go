package journal

import "time"

// Waits are the times that a Journal waits. Tests that need the moment after a wait set shorter ones.
type Waits struct {
	// Answer is how long an operation is tried. On a cluster it is tried for a lease more, which is longer than an
	// election.
	Answer time.Duration
	// FirstTry is how long a message to a cluster waits for its first answer. A leader that changes loses the
	// messages on their way. Each later try waits twice as long.
	FirstTry time.Duration
	// Check is the pause between two comparisons of the index with the stream.
	Check time.Duration
	// Poll is how often a log is read although nothing says that it changed.
	Poll time.Duration
	// MinPause and MaxPause are the shortest and the longest pause before the engine inside is opened again. The
	// pauses grow. After the time Quiet without a fault they begin again at MinPause.
	MinPause time.Duration
	MaxPause time.Duration
	Quiet    time.Duration
	// Working is the longest time that a session which waits for replies stays in the file of working sessions. Fast
	// providers often reply sooner, and to remove and add the session again would cost two writes. If the process dies
	// in that time, the session is suspected of causing the crash, although it only waited.
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
