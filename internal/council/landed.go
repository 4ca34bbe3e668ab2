package council

// The events of a run that are kept in its log, and shown to no client.
const (
	EventBegun EventType = "calls.begun" // Begun
	EventCall  EventType = "call.landed" // Landed, where no other event of the run tells the outcome of a call
)

// Begun says which calls are about to be made: the first ones of a stage, or a later one. They are in the log before their
// requests are sent, so that the process that goes on with the run knows what may have been in flight.
type Begun struct {
	Calls []BegunCall `json:"calls"`
}

// BegunCall is a call that is about to be made.
type BegunCall struct {
	Stage  Stage  `json:"stage"`
	Seat   string `json:"seat"`   // as in Call.Seat
	Number int    `json:"number"` // of the seat's calls in the stage, from 1
	Model  string `json:"model"`
	// Bound is the most that one request of the call can cost, in picodollars; null where nobody knows that.
	Bound  *int64 `json:"bound_pico_usd"`
	Tokens int64  `json:"tokens"` // the most that one request can consume; 0: nobody knows
}

// Landed is the outcome of one call of a run.
type Landed struct {
	Stage      Stage      `json:"stage"`
	Seat       string     `json:"seat"`   // as in Call.Seat
	Number     int        `json:"number"` // of the seat's calls in the stage, from 1
	Model      string     `json:"model"`
	Completion Completion `json:"completion"`
	Failure    *Failure   `json:"failure"` // null when the call succeeded
}
