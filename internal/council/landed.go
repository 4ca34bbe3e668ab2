package council

// The events that only the log of a run holds. Clients do not see them. The comment of each names the type of its data.
const (
	EventBegun EventType = "calls.begun" // Begun
	EventCall  EventType = "call.landed" // Landed, if no other event of the run has the outcome of the call
)

// Begun says which calls are about to begin. These are either all first calls of a stage, or one later call. The log
// stores Begun before the requests of these calls are sent. A process that continues the run then knows which calls may
// have been in flight.
type Begun struct {
	Calls []BegunCall `json:"calls"`
}

// BegunCall is a call that is about to begin.
type BegunCall struct {
	Stage  Stage  `json:"stage"`
	Seat   string `json:"seat"`   // as in Call.Seat
	Number int    `json:"number"` // counts the seat's calls in the stage, from 1
	Model  string `json:"model"`
	// Bound is the most that one request of the call can cost, in picodollars. It is null if the cost has no known bound.
	Bound *int64 `json:"bound_pico_usd"`
	// Tokens is the most tokens that one request of the call can consume. It is 0 if there is no known bound.
	Tokens int64 `json:"tokens"`
}

// Landed is the outcome of one call of a run.
type Landed struct {
	Stage      Stage      `json:"stage"`
	Seat       string     `json:"seat"`   // as in Call.Seat
	Number     int        `json:"number"` // counts the seat's calls in the stage, from 1
	Model      string     `json:"model"`
	Completion Completion `json:"completion"`
	Failure    *Failure   `json:"failure"` // null if the call succeeded
}
