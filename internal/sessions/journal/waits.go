package journal

import "time"

// Waits are the times that a Journal waits. Tests that need the moment after a wait set shorter ones.
type Waits struct {
	// Answer is how long an operation is tried. On a cluster, the lease is added to this time, so that it is longer
	// than an election.
	Answer time.Duration
	// FirstTry is how long a message to a cluster waits for its first answer. When the cluster changes its leader,
	// messages on their way to the old leader are lost. Each later try waits twice as long.
	FirstTry time.Duration
	// Check is the pause between two comparisons of the index with the stream.
	Check time.Duration
	// Poll is the pause after which a goroutine that waits for a change reads again, although it was told of no
	// change.
	Poll time.Duration
	// MinPause and MaxPause are the shortest and the longest pause before the engine inside is opened again. The
	// pauses grow. After the time Quiet without a fault they begin again at MinPause.
	MinPause time.Duration
	MaxPause time.Duration
	Quiet    time.Duration
	// Working is the longest time that a session which waits for replies stays in the file of working sessions. Fast
	// providers often reply sooner, and to remove and add the session again would cost two writes. If the process dies
	// in that time, the session counts as a possible cause of the crash, although it only waited.
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
