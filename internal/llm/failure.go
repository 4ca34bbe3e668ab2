package llm

import (
	"cmp"
	"context"
	"encoding/json"
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
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	openai "github.com/sashabaranov/go-openai"
)

// maxMessageBytes bounds a Failure's message.
const maxMessageBytes = 1 << 10

// The causes that end one request and not the call.
var (
	errAttemptTimeout = errors.New("the attempt timed out")
	errIdle           = errors.New("the provider fell silent in the middle of its reply")
	errDrained        = errors.New("the reply is complete")
)

// judge returns why a request brought no text, or nil when it did.
func judge(ctx context.Context, x *exchange, resp openai.ChatCompletionResponse, err error) *council.Failure {
	if x.status >= 300 {
		return refusedBy(x, err)
	}
	if err != nil && ctx.Err() != nil {
		return ended(ctx)
	}
	if failure, ok := errors.AsType[*council.Failure](err); ok {
		return failure
	}
	if err != nil && x.status == 0 {
		if _, ok := errors.AsType[*url.Error](err); !ok {
			return &council.Failure{Code: council.FailRejected, Message: "the request could not be made: " + err.Error()}
		}
		return &council.Failure{Code: council.FailConnection, Message: "no connection to the provider: " + reason(err)}
	}
	if err != nil {
		return &council.Failure{Code: council.FailBadResponse, Message: "the reply is not the JSON of a completion", HTTPStatus: new(x.status)}
	}
	if len(resp.Choices) == 0 {
		return reported(x, x.body)
	}
	return unusable(resp.Choices[0])
}

// reported returns the Failure of a reply that is an error behind HTTP 200.
func reported(x *exchange, body []byte) *council.Failure {
	failure := &council.Failure{Code: council.FailBadResponse, Message: "the reply holds neither an answer nor why there is none", HTTPStatus: new(x.status)}
	if message := errorMessage(body); message != "" {
		failure.Message = "the provider reports an error: " + message
	}
	return failure
}

// broken returns the Failure of a reply whose body could not be read to its end.
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
	return &council.Failure{Code: council.FailTooLarge, Message: fmt.Sprintf("the reply is larger than %d bytes", limit)}
}

// textOf returns the text of a message, which some providers give in parts.
func textOf(m openai.ChatCompletionMessage) string { return cmp.Or(m.Content, joined(m.MultiContent)) }

func joined(parts []openai.ChatMessagePart) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(part.Text)
	}
	return b.String()
}

// unusable returns why a choice holds no text that could be used, or nil.
func unusable(choice openai.ChatCompletionChoice) *council.Failure {
	switch {
	case choice.FinishReason == openai.FinishReasonContentFilter:
		return &council.Failure{Code: council.FailContentFilter, Message: "the provider's content filter stopped the reply"}
	case choice.FinishReason == "error": // OpenRouter's, with the text up to there
		return &council.Failure{Code: council.FailBadResponse, Message: "the provider broke the reply off with an error"}
	case strings.TrimSpace(textOf(choice.Message)) != "":
		return nil
	case choice.Message.Refusal != "":
		return &council.Failure{Code: council.FailRefused, Message: "the model refused: " + choice.Message.Refusal}
	case choice.FinishReason == openai.FinishReasonLength:
		return &council.Failure{Code: council.FailLength, Message: "the token limit was reached before any text"}
	default:
		return &council.Failure{Code: council.FailEmpty, Message: "the reply holds no text"}
	}
}

// refusedBy turns a response with an error status into a Failure.
func refusedBy(x *exchange, err error) *council.Failure {
	failure := &council.Failure{HTTPStatus: new(x.status), RetryAfterS: retryAfter(x.header, time.Now())}
	switch {
	case x.status == http.StatusTooManyRequests:
		failure.Code = council.FailRateLimited
	case x.status == http.StatusUnauthorized || x.status == http.StatusForbidden:
		failure.Code = council.FailUnauthorized
	case x.status == http.StatusNotFound:
		failure.Code = council.FailUnknownModel
	case x.status >= 500:
		failure.Code = council.FailUnavailable
	default:
		failure.Code = council.FailRejected
	}
	failure.Message = fmt.Sprintf("the provider answered %d", x.status)
	if text := http.StatusText(x.status); text != "" {
		failure.Message += " " + text
	}
	if api, ok := errors.AsType[*openai.APIError](err); ok && api.Message != "" {
		failure.Message += ": " + api.Message
	} else if message := errorMessage(x.body); message != "" {
		failure.Message += ": " + message
	}
	return failure
}

// errorMessage finds the message of an error body in the forms that providers
// use: {"error": {"message": ...}}, {"error": "..."}, {"message": ...}.
func errorMessage(body []byte) string {
	var reply struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &reply) != nil {
		return ""
	}
	var inner struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(reply.Error, &inner) == nil && inner.Message != "" {
		return inner.Message
	}
	var text string
	if json.Unmarshal(reply.Error, &text) == nil && text != "" {
		return text
	}
	return reply.Message
}

// retryAfter reads how long the provider asks to wait, in seconds: retry-after-ms
// (milliseconds), or Retry-After as seconds or as a date (RFC 9110, section
// 10.2.3). Nil when it is missing, malformed or negative.
func retryAfter(h http.Header, now time.Time) *float64 {
	seconds := math.NaN()
	if v := h.Get("Retry-After-Ms"); v != "" {
		if ms, err := strconv.ParseFloat(v, 64); err == nil {
			seconds = ms / 1000
		}
	} else if v := h.Get("Retry-After"); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			seconds = s
		} else if at, err := http.ParseTime(v); err == nil {
			seconds = max(0, at.Sub(now).Seconds())
		}
	}
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0 {
		return nil
	}
	return &seconds
}

// ended returns the Failure of a call or a request whose context is done.
func ended(ctx context.Context) *council.Failure {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(cause, errAttemptTimeout) || errors.Is(cause, errIdle) {
		return &council.Failure{Code: council.FailTimeout, Message: cause.Error()}
	}
	if errors.Is(cause, council.ErrCut) {
		return &council.Failure{Code: council.FailCut, Message: cause.Error()}
	}
	return &council.Failure{Code: council.FailCancelled, Message: "cancelled: " + cause.Error()}
}

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// reason strips what a connection error says about addresses of this machine.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}

// redact removes the key from a message, should a provider have repeated it, and
// cuts the message to its limit.
func redact(message, key string) string {
	if key != "" {
		message = strings.ReplaceAll(message, key, "[key]")
	}
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= maxMessageBytes {
		return message
	}
	cut := maxMessageBytes - len("…")
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}
