package journal

import "time"

// Waits are the times that a Journal waits. Tests that need the moment after a wait set shorter ones.
type Waits struct {
	// Answer is how long an operation is tried with the engine inside. On a cluster, an operation is tried for the sum
	// of Answer and the lease, which is longer than an election.
	Answer time.Duration
	// FirstTry is how long the first try to send a message to a cluster waits for an answer. Each later try waits twice
	// as long. A try can get no answer, because messages on their way to the old leader are lost when the leader
	// changes.
	FirstTry time.Duration
	// Check is the pause between two comparisons of the index with the stream.
	Check time.Duration
	// Poll is the pause after which a goroutine that waits for a change reads again, although no change was reported.
	Poll time.Duration
	// MinPause and MaxPause are the shortest and the longest pause before the engine inside is opened again. The pauses
	// grow. After the time Quiet without a fault, the next pause is MinPause again.
	MinPause time.Duration
	MaxPause time.Duration
	Quiet    time.Duration
	// Working is the longest time that a waiting session stays in the file of working sessions. It is not removed at
	// once, because fast providers often reply sooner, and to remove and add the session again would cost two writes.
	// If the process dies in that time, the session counts as a possible cause of the crash, although it only waited.
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
