package council

import "encoding/json"

// A Task is work for the seats of a council that is not an answer to a question. It has up to two rounds. In each
// round, a seat gets a prompt of its own and replies once. Code makes the result from the replies. Implementations keep
// no state and are safe for concurrent use, so that any process can continue a session.
type Task interface {
	// Prompts returns the versions of the prompts that this version of councild can send. The first two are those of new
	// plans: the prompts of round 1 and of round 2.
	Prompts() []string
	// Calls returns the calls of the next round, at most one for each seat of the round. The argument earlier has the
	// rounds that are over. If there is nothing to ask, Calls returns nil, and the round makes no calls. The same
	// arguments give the same calls. A call has Seat, Messages and Format. The pipeline sets the other fields. An error
	// is a *Error, and ends the session.
	Calls(plan Plan, earlier []TaskRound) ([]Call, error)
	// Result returns the result of the task. Rounds that were not reached are missing. The same arguments give the same
	// result.
	Result(plan Plan, rounds []TaskRound) (json.RawMessage, error)
}

// TaskPlan says which Task a plan carries out, and on what.
type TaskPlan struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"` // the task's own form
	// MaxBytes is the most bytes of the caller's text that a prompt may have. A task makes no calls for a longer text,
	// and its result says so. 0 means no limit.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Idle says that round 1 makes no calls.
	Idle bool `json:"idle,omitempty"`
}

// TaskRequest asks a council to carry out a Task. The zero value of a field stands for the configured default, if there
// is one.
type TaskRequest struct {
	Name           string
	Input          json.RawMessage // the task's own form
	Preview        string          // what the task is about, on one line, for lists of sessions
	Council        string
	Seed           *int64   // as in Request
	TimeoutSeconds *float64 // as in Request
	MaxCostUSD     *float64 // as in Request
	MaxTotalTokens *int64   // as in Request
	DataClass      string   // as in Request
	Caller
}

// TaskResult is the result of a Task.
type TaskResult struct {
	Name   string          `json:"name"`
	Result json.RawMessage `json:"result"` // the task's own form
}

// TaskRound has the replies of one round, in the order of the calls.
type TaskRound struct {
	Replies []TaskReply
}

// TaskReply is the reply of one seat. Text is empty if Error is set.
type TaskReply struct {
	Seat string
	Text string
	Spent
	Error *Failure
}
