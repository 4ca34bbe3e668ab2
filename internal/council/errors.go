package council

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code says why a request has no result. The list of its values is closed.
type Code string

// The codes. One table in httpapi maps each to its HTTP status.
const (
	CodeMalformed            Code = "malformed"
	CodeUnauthorized         Code = "unauthorized"
	CodeForbidden            Code = "forbidden"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeTooSlow              Code = "too_slow" // the body did not arrive in time
	CodeConflict             Code = "conflict" // the idempotency key belongs to another request, or the session is over
	CodeTooLarge             Code = "too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeInvalid              Code = "invalid"
	CodeUnpriced             Code = "unpriced"    // a cost limit is hard, and a model has no known price
	CodeOverLimit            Code = "over_limit"  // a limit of the caller's token is reached, other than a cost limit
	CodeOverBudget           Code = "over_budget" // a daily limit or the budget of a trial question is reached
	CodeInternal             Code = "internal"
	CodeNoQuorum             Code = "no_quorum"       // fewer answers than the quorum
	CodePartialRefused       Code = "partial_refused" // the result is degraded, and the request refuses that
	CodeNoValidOutput        Code = "no_valid_output" // no answer fits the schema
	CodeUnavailable          Code = "unavailable"     // the daemon drains or is full
	CodeDeadline             Code = "deadline"        // time ran out before a quorum answered
	CodeCancelled            Code = "cancelled"
	CodeInterrupted          Code = "interrupted" // the session's daemon is gone, and no other finished the session
)

// Error says why a request has no result. Detail and Fields are for the caller. Cause is only for the log.
type Error struct {
	Code   Code
	Detail string
	Fields []FieldError
	// RetryAfter is how long the caller should wait before it asks again. 0 means that no time is known.
	RetryAfter time.Duration
	SessionID  string // set after the start of a session
	// Paid is how many calls of the session a provider may have billed. A new session would pay for them again.
	Paid  int
	Cause error
}

// FieldError is one problem with one part of a request, or the reason why one member failed.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// Error returns the code, the detail and the cause.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

// Explain returns the detail, and each problem on a line of its own, for people.
func (e *Error) Explain() string {
	var text strings.Builder
	text.WriteString(e.Detail)
	for _, f := range e.Fields {
		fmt.Fprintf(&text, "\n  %s: %s; %s", f.Field, f.Message, f.Fix)
	}
	return text.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// FailureCode says why a seat did not deliver. The list of its values is closed.
type FailureCode string

// The failure codes.
const (
	FailTimeout         FailureCode = "timeout"          // the attempt or its stage ran out of time
	FailCancelled       FailureCode = "cancelled"        // the run was cancelled
	FailConnection      FailureCode = "connection"       // no connection, or it broke before the reply began
	FailReset           FailureCode = "reset"            // the connection broke in the middle of the reply
	FailTruncated       FailureCode = "truncated"        // the reply ended before it was complete
	FailTooLong         FailureCode = "too_long"         // not called: prompt and reply do not fit the model's context
	FailTooLarge        FailureCode = "too_large"        // the reply is over the size limit
	FailRateLimited     FailureCode = "rate_limited"     // HTTP 429
	FailOutOfQuota      FailureCode = "out_of_quota"     // HTTP 402, or the reply says that a quota or the credit is used up
	FailUnauthorized    FailureCode = "unauthorized"     // HTTP 401, or another status with a body that blames the key
	FailUnknownModel    FailureCode = "unknown_model"    // HTTP 404
	FailRejected        FailureCode = "rejected"         // any other HTTP 4xx
	FailUnavailable     FailureCode = "unavailable"      // HTTP 5xx
	FailBadResponse     FailureCode = "bad_response"     // HTTP 200 without a completion in the body
	FailEmpty           FailureCode = "empty"            // a completion without text
	FailRefused         FailureCode = "refused"          // the model declined
	FailContentFilter   FailureCode = "content_filter"   // the provider's filter stopped the reply, or refused the request
	FailLength          FailureCode = "length"           // the reply ended at the token limit
	FailCut             FailureCode = "cut"              // no answer within the grace for stragglers, after a quorum
	FailBreakerOpen     FailureCode = "breaker_open"     // not called: the model failed too often recently
	FailBudget          FailureCode = "budget"           // not called: the cost or token limits leave no room for the call
	FailNoAnswer        FailureCode = "no_answer"        // not called: there were no answers to read
	FailInvalidBallot   FailureCode = "invalid_ballot"   // the reply holds no ballot
	FailInvalidOutput   FailureCode = "invalid_output"   // the reply does not fit the schema that the caller asked for
	FailPromptCut       FailureCode = "prompt_cut"       // the provider cut the prompt, and the reviewer missed answers
	FailThinking        FailureCode = "thinking"         // the text so far was thinking (a reason for restarts only)
	FailMap             FailureCode = "map"              // the end of the text was the map (a reason for restarts only)
	FailAbstained       FailureCode = "abstained"        // the reviewer declined to rank
	FailUnknownProvider FailureCode = "unknown_provider" // not called: the model names no configured provider
	FailInterrupted     FailureCode = "interrupted"      // the daemon of the call is gone, or may not make the call
	FailInternal        FailureCode = "internal"         // a defect of councild
)

// ErrCut is the cause that a stage gives when it cancels calls that it no longer waits for. A Completer then reports
// FailCut.
var ErrCut = errors.New("the stage went on without this call")

// Failure says why a seat did not deliver. Message may hold the provider's words. It has at most 1 KiB and never holds
// a key.
type Failure struct {
	Code        FailureCode `json:"code"`
	Message     string      `json:"message"`
	HTTPStatus  *int        `json:"http_status"`   // null if no reply came
	RetryAfterS *float64    `json:"retry_after_s"` // in seconds, null if the provider named no time
}

// Error returns the code and the message.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }

// AsFailure returns the Failure that err is or wraps, and nil for a nil error. Any other error is a defect of the
// Completer that returned it, and becomes FailInternal.
func AsFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Code: FailInternal, Message: "internal error: " + err.Error()}
}

// Panicked is the Failure of a seat whose code panicked with v.
func Panicked(v any) *Failure {
	return &Failure{Code: FailInternal, Message: fmt.Sprintf("internal error: %v", v)}
}
