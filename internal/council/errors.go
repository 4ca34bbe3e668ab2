package council

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the closed list of reasons why a request has no result.
type Code string

// The codes. One table in httpapi maps each to its HTTP status.
const (
	CodeMalformed            Code = "malformed"
	CodeUnauthorized         Code = "unauthorized"
	CodeForbidden            Code = "forbidden"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeTooSlow              Code = "too_slow" // the body did not arrive in time
	CodeConflict             Code = "conflict" // an idempotency key given with another request, or a session that is over
	CodeTooLarge             Code = "too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeInvalid              Code = "invalid"
	CodeUnpriced             Code = "unpriced"    // a limit of cost is hard, and nobody knows what a model costs
	CodeOverLimit            Code = "over_limit"  // of the caller's token
	CodeOverBudget           Code = "over_budget" // a limit of cost of the day is reached
	CodeInternal             Code = "internal"
	CodeNoQuorum             Code = "no_quorum"       // fewer answers than the quorum
	CodePartialRefused       Code = "partial_refused" // degraded, and the request refuses that
	CodeNoValidOutput        Code = "no_valid_output" // nobody wrote an answer that fits the schema
	CodeUnavailable          Code = "unavailable"     // draining or full
	CodeDeadline             Code = "deadline"        // time ran out before a quorum answered
	CodeCancelled            Code = "cancelled"
	CodeInterrupted          Code = "interrupted" // the daemon that ran the session is gone, and no other could finish it
)

// Error is why a request has no result. Detail and Fields are for the caller;
// Cause is for the log only.
type Error struct {
	Code       Code
	Detail     string
	Fields     []FieldError
	RetryAfter time.Duration // 0: none
	SessionID  string        // set after the start of a session
	// Paid is how many calls of the session a provider may have billed. Asking again would pay again.
	Paid  int
	Cause error
}

// FieldError is one problem with one part of a request, or one member's reason.
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

// Explain returns the detail, and each field on a line of its own, for people.
func (e *Error) Explain() string {
	var text strings.Builder
	text.WriteString(e.Detail)
	for _, f := range e.Fields {
		fmt.Fprintf(&text, "\n  %s: %s; %s", f.Field, f.Message, f.Fix)
	}
	return text.String()
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Cause }

// FailureCode is the closed list of reasons why a seat did not deliver.
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
	FailOutOfQuota      FailureCode = "out_of_quota"     // HTTP 402, or a quota of a day or the money is used up, whatever the status
	FailUnauthorized    FailureCode = "unauthorized"     // HTTP 401, or another one that blames the key
	FailUnknownModel    FailureCode = "unknown_model"    // HTTP 404
	FailRejected        FailureCode = "rejected"         // any other HTTP 4xx
	FailUnavailable     FailureCode = "unavailable"      // HTTP 5xx
	FailBadResponse     FailureCode = "bad_response"     // HTTP 200 with something else than a completion
	FailEmpty           FailureCode = "empty"            // a completion without text
	FailRefused         FailureCode = "refused"          // the model declined
	FailContentFilter   FailureCode = "content_filter"   // the provider's filter stopped it, or refused the request
	FailLength          FailureCode = "length"           // it ended at the token limit
	FailCut             FailureCode = "cut"              // no answer within the grace for stragglers, after a quorum
	FailBreakerOpen     FailureCode = "breaker_open"     // not called: the model failed too often of late
	FailBudget          FailureCode = "budget"           // not called: there is no room for it in the limits of cost or tokens
	FailNoAnswer        FailureCode = "no_answer"        // not called: there was nothing to work on
	FailInvalidBallot   FailureCode = "invalid_ballot"   // the reply holds no ballot
	FailInvalidOutput   FailureCode = "invalid_output"   // the reply does not fit the schema that the caller asked for
	FailPromptCut       FailureCode = "prompt_cut"       // the provider cut the prompt: the reviewer has not seen all answers
	FailThinking        FailureCode = "thinking"         // the text so far was thinking: a reason of a restart, never of a failure
	FailAbstained       FailureCode = "abstained"        // the reviewer declined to rank
	FailUnknownProvider FailureCode = "unknown_provider" // not called: the model names no configured provider
	FailInterrupted     FailureCode = "interrupted"      // the daemon that made the call is gone, or may not make it any more
	FailInternal        FailureCode = "internal"         // a defect of councild
)

// ErrCut is the cause of a context whose stage has gone on without the calls that had not
// answered. A Completer then reports FailCut.
var ErrCut = errors.New("the stage went on without this call")

// Failure is why a seat did not deliver. Message may hold the provider's words,
// at most 1 KiB, never a key.
type Failure struct {
	Code        FailureCode `json:"code"`
	Message     string      `json:"message"`
	HTTPStatus  *int        `json:"http_status"`
	RetryAfterS *float64    `json:"retry_after_s"`
}

// Error returns the code and the message.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }

// AsFailure returns the Failure that err is or wraps, nil for nil. Any other error is a
// defect of the Completer that returned it, and becomes FailInternal.
func AsFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Code: FailInternal, Message: "internal error: " + err.Error()}
}

// Panicked returns the Failure of a seat whose code panicked with v.
func Panicked(v any) *Failure {
	return &Failure{Code: FailInternal, Message: fmt.Sprintf("internal error: %v", v)}
}
