package runlog

import "context"

// Log connects a run to the log that it is kept in, so that another process can go on
// with it.
type Log struct {
	// State says how far the run has come. What landed is not asked again. It is required.
	State *State
	// Stored waits until everything that was observed so far is stored. It returns at
	// once when the run's context ends, or when the log cannot be written any more and
	// the run goes on without it.
	Stored func(ctx context.Context)
	// MayCall returns nil when a request of a call may begin. It is called concurrently,
	// and may wait for that moment; when ctx, that of the call, ends meanwhile, it returns
	// nil. After an error the run begins no call any more, cancels those in flight,
	// observes nothing but its end, and returns CodeInterrupted.
	MayCall func(ctx context.Context) error
	// Calling is told when a call begins that did not land before. What it returns is told
	// when its outcome is there. It is called concurrently. While all calls that were begun
	// wait for their providers, the run does nothing that could take its process down.
	Calling func() (landed func())
	// Last has the run begin no call: it ends with the best that landed. That is the
	// top-ranked answer when all ballots landed. Before, the run returns CodeInterrupted,
	// with everything that landed in its session. MayCall is not asked.
	Last bool
}
