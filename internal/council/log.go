package council

import (
	"context"
	"time"
)

// EventCall is a call that ended, where no other event of the run tells its outcome:
// Landed. It is kept in a log, and shown to no client.
const EventCall EventType = "call.landed"

// Landed is the outcome of one call of a run.
type Landed struct {
	Stage      Stage      `json:"stage"`
	Seat       string     `json:"seat"`   // as in Call.Seat
	Number     int        `json:"number"` // of the seat's calls in the stage, from 1
	Model      string     `json:"model"`
	Completion Completion `json:"completion"`
	Failure    *Failure   `json:"failure"` // null when the call succeeded
}

// Log connects a run to the log that it is kept in, so that another process can go on
// with it.
type Log struct {
	// Past is what the log holds of the run: empty for a run that begins. What landed
	// is not asked again.
	Past []Past
	// Elapsed is the time that the run has taken in other processes. It counts against
	// the time budget of the plan.
	Elapsed time.Duration
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

// Past is an entry of a log.
type Past struct {
	Entry
	// At is how long the run had taken when the entry was stored, Elapsed of earlier
	// processes included.
	At time.Duration
}
