package runlog

import "context"

// Log connects a run to the log of its session, so that another process can resume the run.
type Log struct {
	// State says how far the run has come. It is required. The run does not repeat calls that landed.
	State *State
	// Stored waits until everything that the run has observed so far is stored. It returns at once if the context of
	// the run ends, or if the log can no longer be written and the run continues without it.
	Stored func(ctx context.Context)
	// MayCall waits until a request of a call may begin, and then returns nil. It also returns nil if ctx, the context
	// of the call, ends during the wait. MayCall is called concurrently. After an error the run begins no more calls,
	// cancels the calls in flight, observes only its own end, and returns CodeInterrupted.
	MayCall func(ctx context.Context) error
	// Calling is called when a call begins that has no outcome in the log. The run calls the returned function when the
	// call has its outcome. Calling is called concurrently. While all calls that began wait for their providers, the
	// run does nothing that could crash its process.
	Calling func() (landed func())
	// Last makes the run end without further calls, with the best result that the log allows. If the log has all
	// ballots, this result is the top-ranked answer. Otherwise the run returns CodeInterrupted, and its session holds
	// everything that the log has. MayCall is not called.
	Last bool
}
