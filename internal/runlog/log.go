package runlog

import "context"

// Log connects a run to the log of its session, so that another process can resume the run.
type Log struct {
	// State says how far the run has come. It is required. The run does not repeat calls that landed.
	State *State
	// Stored waits until everything that was observed so far is stored. It returns at once if the run's context
	// ends, or if the log can no longer be written and the run continues without it.
	Stored func(ctx context.Context)
	// MayCall returns nil if a request of a call may begin. It is called concurrently, and may wait until a request
	// may begin. If ctx, the context of the call, ends during the wait, MayCall returns nil. After an error the run
	// begins no more calls, cancels those in flight, observes nothing but its end, and returns CodeInterrupted.
	MayCall func(ctx context.Context) error
	// Calling is called when a call begins that did not land before. The run calls the returned function when the
	// call has its outcome. Calling is called concurrently. While all calls that began wait for their providers,
	// the run does nothing that could crash its process.
	Calling func() (landed func())
	// Last makes the run begin no call, and end with the best result that landed. If all ballots landed, that is
	// the top-ranked answer. Otherwise the run returns CodeInterrupted, and its session holds everything that
	// landed. MayCall is not called.
	Last bool
}
