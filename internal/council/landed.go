package council

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
