package llm

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// maxMessageBytes limits the size of a Failure's message.
const maxMessageBytes = 1 << 10

// These errors end one request, but not the call.
var (
	errAttemptTimeout = errors.New("the attempt timed out")
	errIdle           = errors.New("the provider fell silent in the middle of its reply")
	errDrained        = errors.New("the reply is complete")
)

// judge returns the Failure of a request that returned no usable text. It returns nil if the request returned one.
func judge(ctx context.Context, x *exchange, r received, err error) *council.Failure {
	if x.proxy != nil {
		return &council.Failure{
			Code:       council.FailConnection,
			Message:    x.proxy.Error(),
			HTTPStatus: new(http.StatusProxyAuthRequired),
		}
	}
	if x.refused() {
		return refusedBy(x)
	}
	if err != nil && ctx.Err() != nil {
		return ended(ctx)
	}
	if failure, ok := errors.AsType[*council.Failure](err); ok {
		return failure
	}
	if err != nil && x.header == nil {
		if _, ok := errors.AsType[*url.Error](err); !ok {
			return &council.Failure{
				Code:    council.FailRejected,
				Message: "the request could not be made: " + err.Error(),
			}
		}
		message := "no connection to the provider at " + x.address
		if x.sent {
			message = "the connection to the provider at " + x.address + " broke before its reply began"
		}
		return &council.Failure{Code: council.FailConnection, Message: message + ": " + reason(err)}
	}
	if err != nil {
		return &council.Failure{
			Code:       council.FailBadResponse,
			Message:    "the reply is not the JSON of a completion",
			HTTPStatus: new(x.status),
		}
	}
	if !r.chosen || r.fault != nil {
		if r.fault != nil {
			return reported(x, r.fault)
		}
		return reported(x, x.body)
	}
	return unusable(r)
}

// reported returns the Failure for an error inside a reply with HTTP 200. If the error names a status, the code of the
// Failure is that of a response with this status.
func reported(x *exchange, body []byte) *council.Failure {
	c := readComplaint(body)
	x.complaint = &c
	x.named = c.status
	failure := &council.Failure{
		Code: c.code(c.status), Message: "the reply holds no answer, and does not say why",
		HTTPStatus: new(x.status), RetryAfterS: cmp.Or(retryAfter(x.header, time.Now()), c.wait),
	}
	if c.message != "" {
		failure.Message = "the provider reports an error: " + c.message
	}
	if c.status != 0 {
		failure.Message = fmt.Sprintf("the provider at %s reports the error %s behind HTTP %d",
			x.address, statusText(c.status), x.status)
		if c.message != "" {
			failure.Message += ": " + c.message
		}
	}
	return failure
}

// statusText returns a status with its name, if it has one.
func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// broken returns the Failure for a reply whose body could not be read to its end.
func broken(err error) *council.Failure {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return truncated()
	}
	return &council.Failure{Code: council.FailReset, Message: "the connection broke in the middle of the reply"}
}

func truncated() *council.Failure {
	return &council.Failure{Code: council.FailTruncated, Message: "the reply ended before it was complete"}
}

func tooLarge(limit int64) *council.Failure {
	return &council.Failure{
		Code:    council.FailTooLarge,
		Message: fmt.Sprintf("the reply is larger than %d bytes", limit),
	}
}

// unusable returns why a reply holds no usable text, or nil.
func unusable(r received) *council.Failure {
	switch {
	case r.finish == finishFilter:
		return &council.Failure{
			Code:    council.FailContentFilter,
			Message: "the provider's content filter stopped the reply",
		}
	case r.finish == finishBroken:
		const message = "the provider broke the reply off: it lacks resources, or its network failed"
		return &council.Failure{Code: council.FailUnavailable, Message: message}
	// OpenRouter uses this finish reason. The reply then also holds the text that came before the error.
	case r.finish == finishError:
		return &council.Failure{
			Code:    council.FailBadResponse,
			Message: "the provider broke the reply off with an error",
		}
	case !blank(r.text):
		return nil
	case r.refusal != "":
		return &council.Failure{Code: council.FailRefused, Message: "the model refused: " + r.refusal}
	case r.finish == finishLength:
		return &council.Failure{Code: council.FailLength, Message: "the token limit was reached before any text"}
	case r.reasoning != "":
		return &council.Failure{Code: council.FailEmpty, Message: "the reply holds nothing but thinking"}
	default:
		return &council.Failure{Code: council.FailEmpty, Message: "the reply holds no text"}
	}
}

// refusedBy returns the Failure for a response with an error status.
func refusedBy(x *exchange) *council.Failure {
	c := x.said()
	failure := &council.Failure{
		Code: c.code(x.status), Message: "the provider at " + x.address + " answered " + statusText(x.status),
		HTTPStatus: new(x.status), RetryAfterS: c.wait,
	}
	if failure.Code == council.FailUnknownModel {
		failure.Message += x.hint
	}
	if c.message != "" {
		failure.Message += ": " + c.message
	}
	return failure
}

// said returns what the body and the headers of a response with an error status say about the error.
func (x *exchange) said() *complaint {
	if x.complaint == nil {
		c := readComplaint(x.body)
		if after := retryAfter(x.header, time.Now()); after != nil {
			c.wait = after
		}
		x.complaint = &c
	}
	return x.complaint
}

// retryAfter reads how long the provider asks to wait, in seconds. It reads retry-after-ms (milliseconds), or
// Retry-After as seconds or as a date (RFC 9110, section 10.2.3). It returns nil if the header is missing,
// malformed or negative.
func retryAfter(h http.Header, now time.Time) *float64 {
	text := h.Get("Retry-After")
	seconds, err := strconv.ParseFloat(text, 64)
	if at, notDate := http.ParseTime(text); notDate == nil {
		seconds = max(0, at.Sub(now).Seconds())
		err = nil
	}
	if ms := h.Get("Retry-After-Ms"); ms != "" {
		seconds, err = strconv.ParseFloat(ms, 64)
		seconds /= 1000
	}
	if err != nil || math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0 {
		return nil
	}
	return &seconds
}

// ended returns the Failure of a call or of a request, after its context has ended.
func ended(ctx context.Context) *council.Failure {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(cause, errAttemptTimeout) ||
		errors.Is(cause, errIdle) {
		return &council.Failure{Code: council.FailTimeout, Message: cause.Error()}
	}
	if errors.Is(cause, council.ErrCut) {
		return &council.Failure{Code: council.FailCut, Message: cause.Error()}
	}
	return &council.Failure{Code: council.FailCancelled, Message: "cancelled: " + cause.Error()}
}

// proxyError says that a proxy answered 407.
type proxyError struct {
	proxy    *url.URL
	variable string // the environment variable that names the proxy
}

// Error names the proxy and the variable to set. It contains no user and no password.
func (e *proxyError) Error() string {
	if e.proxy.User != nil {
		return fmt.Sprintf("the proxy at %s refuses the user and password in %s (HTTP 407): correct them there", e.proxy.Host, e.variable)
	}
	return fmt.Sprintf("the proxy at %s asks for a password (HTTP 407): write it into %s, as in %s://USER:PASSWORD@%[1]s",
		e.proxy.Host, e.variable, e.proxy.Scheme)
}

// isMistrusted reports whether the client reached the other side, but the other side has no trusted certificate or does
// not speak TLS. Another attempt would fail too.
func isMistrusted(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || record || errors.Is(err, http.ErrSchemeMismatch)
}

// reason says why there was no connection. It leaves out the addresses of this machine and of its resolver, which the
// errors of the library contain.
func reason(err error) string {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case lookup.IsNotFound:
			return "no such host"
		case lookup.IsTimeout:
			return "looking up the name of the host took too long"
		default:
			return "the name of the host could not be looked up"
		}
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	for {
		op, ok := errors.AsType[*net.OpError](err)
		if !ok || op.Err == nil {
			return err.Error()
		}
		if err = op.Err; op.Op == "proxyconnect" {
			return "the proxy: " + reason(err)
		}
	}
}

// minKeyBytes is the smallest length of a key that counts as a secret. Shorter keys are placeholders for servers
// without keys, and may occur inside words of a message.
const minKeyBytes = 8

// redact removes secrets from a message, because the provider may have repeated them in its error. It also cuts the
// message to maxMessageBytes.
func redact(message string, secrets ...string) string {
	for _, secret := range secrets {
		if len(secret) >= minKeyBytes {
			message = strings.ReplaceAll(message, secret, "[key]")
		}
	}
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= maxMessageBytes {
		return message
	}
	// The cut may have split a character.
	return strings.ToValidUTF8(message[:maxMessageBytes-len("…")], "") + "…"
}
