package council

import (
	"encoding/json"
	"time"
)

// Submission is the body of POST /v1/council: a question, and how its answer is
// delivered.
type Submission struct {
	Request
	Stream bool `json:"stream,omitempty"` // asks for server-sent events
	// Background asks for the answer 202 at once. The session then continues when its client leaves.
	Background bool `json:"background,omitempty"`
	Door       Door `json:"-"` // becomes Plan.Door
}

// Door is what an interface of another maker needs to show a session in its own form, as JSON. Only the door that wrote
// it reads it.
type Door = json.RawMessage

// Summary is a session in the list of GET /v1/council. It is also the answer 202 to a Submission in the background.
type Summary struct {
	ID      string    `json:"session_id"`
	Status  Status    `json:"status"`
	Created time.Time `json:"created"`
	Query   string    `json:"query"`    // as in Session
	Title   string    `json:"title"`    // the title that a person gave the session, or else Query
	Answer  string    `json:"answer"`   // FirstLine of the answer. It is "" while the session runs.
	Council string    `json:"council"`  // as in Session, "" in logs of older versions
	CostUSD *float64  `json:"cost_usd"` // null while the session runs or if the cost is unknown
	// DurationMS is Timing.TotalMS. It is null while the session runs or if it is unknown.
	DurationMS *float64 `json:"duration_ms"`
	Thread     string   `json:"thread"`            // the id of the first session of the conversation, which may be this one
	Earlier    string   `json:"earlier,omitempty"` // as in Turn
}

// Renaming is the body of PATCH /v1/council/{id}.
type Renaming struct {
	Title string `json:"title"` // at most MaxTitle characters on one line. "" takes the title away.
}

// MaxTitle is how many characters the title of a session may have.
const MaxTitle = 200

// Problem is an Error in the form that callers read, an RFC 9457 problem document.
type Problem struct {
	Type      string       `json:"type"` // "urn:councild:problem:" and the code
	Title     string       `json:"title"`
	Status    int          `json:"status"` // the HTTP status
	Detail    string       `json:"detail"`
	Code      Code         `json:"code"`
	Errors    []FieldError `json:"errors"`
	RequestID string       `json:"request_id"`
	SessionID string       `json:"session_id,omitempty"`
	PaidCalls int          `json:"paid_calls,omitempty"` // as Error.Paid
	// OpenAI repeats the problem for clients that expect OpenAI's interface at the path. It is set if there is nothing at
	// the path, or if the method is wrong.
	OpenAI *OpenAIError `json:"error,omitempty"`
}

// OpenAIError is an error in the form of OpenAI's interface.
type OpenAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the first field that is wrong
	Code    Code    `json:"code"`
}

// Cause returns the Error that the document describes. It leaves out Cause and RetryAfter, because the document does
// not have them.
func (p Problem) Cause() *Error {
	return &Error{Code: p.Code, Detail: p.Detail, Fields: p.Errors, SessionID: p.SessionID, Paid: p.PaidCalls}
}
