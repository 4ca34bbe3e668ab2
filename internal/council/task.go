package council

import "encoding/json"

// A Task is work that the seats of a council do beside answering questions. It has up to two rounds. In each round, a
// seat gets a prompt of its own and replies once. Code makes the result from the replies. Implementations keep no state
// and are safe for concurrent use, so that any process can continue a session.
type Task interface {
	// Prompts returns the versions of the prompts that this version of councild can send.
	Prompts() []string
	// Calls returns the calls of the next round, at most one for each seat of the round. The argument earlier has the
	// rounds that are over. If there is nothing to ask, Calls returns nil, and the round makes no calls. The same
	// arguments give the same calls. An error is a *Error, and ends the session.
	Calls(plan Plan, earlier []TaskRound) ([]Call, error)
	// Result returns the result of the task. Rounds that were not reached are missing. The same arguments give the same
	// result.
	Result(plan Plan, rounds []TaskRound) (json.RawMessage, error)
}

// TaskPlan says which Task a plan carries out, and on what.
type TaskPlan struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"` // the task's own form
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
