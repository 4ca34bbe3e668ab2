package council

import "time"

// Submission is the body of POST /v1/council: a question, and how its answer is
// delivered.
type Submission struct {
	Request
	Stream     bool `json:"stream,omitempty"`     // as server-sent events
	Background bool `json:"background,omitempty"` // the answer is 202 at once, and the session survives its client
}

// Summary is a session in the list of GET /v1/council, and the answer 202 to a
// Submission in the background.
type Summary struct {
	ID      string    `json:"session_id"`
	Status  Status    `json:"status"`
	Created time.Time `json:"created"`
	Query   string    `json:"query"`    // as in Session
	CostUSD *float64  `json:"cost_usd"` // null while the session runs, and where it is unknown
	// DurationMS is how long the session took, as Timing.TotalMS; null while it runs, and
	// where it is unknown.
	DurationMS *float64 `json:"duration_ms"`
}

// Problem is an Error as its caller reads it: an RFC 9457 problem document.
type Problem struct {
	Type      string       `json:"type"` // "urn:councild:problem:" and the code
	Title     string       `json:"title"`
	Status    int          `json:"status"` // of HTTP
	Detail    string       `json:"detail"`
	Code      Code         `json:"code"`
	Errors    []FieldError `json:"errors"`
	RequestID string       `json:"request_id"`
	SessionID string       `json:"session_id,omitempty"`
	PaidCalls int          `json:"paid_calls,omitempty"` // as Error.Paid
	// OpenAI says the same to clients that expect OpenAI's interface at the path: where
	// nothing is there, and where the method is wrong.
	OpenAI *OpenAIError `json:"error,omitempty"`
}

// OpenAIError is an error as OpenAI's interface words it.
type OpenAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the first field that is wrong
	Code    Code    `json:"code"`
}

// Cause returns the Error that the document tells of.
func (p Problem) Cause() *Error {
	return &Error{Code: p.Code, Detail: p.Detail, Fields: p.Errors, SessionID: p.SessionID, Paid: p.PaidCalls}
}
