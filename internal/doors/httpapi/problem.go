package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// meaning is the HTTP status of a code, and the title of its problem document.
type meaning struct {
	status int
	title  string
}

// meaningOf returns the HTTP status and the title of a code. An unknown code is an internal error.
func meaningOf(code council.Code) meaning {
	table := map[council.Code]meaning{
		council.CodeMalformed:            {http.StatusBadRequest, "The request cannot be read"},
		council.CodeUnauthorized:         {http.StatusUnauthorized, "A valid token is needed"},
		council.CodeForbidden:            {http.StatusForbidden, "Not allowed"},
		council.CodeNotFound:             {http.StatusNotFound, "Not found"},
		council.CodeMethodNotAllowed:     {http.StatusMethodNotAllowed, "Wrong method"},
		council.CodeTooSlow:              {http.StatusRequestTimeout, "The body arrived too slowly"},
		council.CodeConflict:             {http.StatusConflict, "Conflict"},
		council.CodeTooLarge:             {http.StatusRequestEntityTooLarge, "The body is too large"},
		council.CodeUnsupportedMediaType: {http.StatusUnsupportedMediaType, "Wrong media type"},
		council.CodeInvalid:              {http.StatusUnprocessableEntity, "The request is not valid"},
		council.CodeUnpriced:             {http.StatusUnprocessableEntity, "The cost is unknown"},
		council.CodeOverLimit:            {http.StatusTooManyRequests, "Over a limit"},
		council.CodeOverBudget:           {http.StatusTooManyRequests, "Over a cost limit"},
		council.CodeNoQuorum:             {http.StatusBadGateway, "Too few members answered"},
		council.CodeNoValidOutput:        {http.StatusBadGateway, "No answer has the requested form"},
		council.CodePartialRefused:       {http.StatusBadGateway, "The result is degraded"},
		council.CodeUnavailable:          {http.StatusServiceUnavailable, "Unavailable"},
		// After most other statuses, SDKs would repeat a request whose session was cancelled.
		council.CodeCancelled:   {http.StatusBadRequest, "The session was cancelled"},
		council.CodeInterrupted: {http.StatusServiceUnavailable, "The session was interrupted"},
		council.CodeDeadline:    {http.StatusGatewayTimeout, "Out of time"},
	}
	return cmp.Or(table[code], meaning{http.StatusInternalServerError, "Internal error"})
}

// coded returns err as an error that callers may see. If err has no code, it is a defect of councild, and callers see
// only a general text. The text of err goes to the log.
func coded(err error) *council.Error {
	if e, ok := errors.AsType[*council.Error](err); ok {
		return e
	}
	return &council.Error{
		Code:   council.CodeInternal,
		Detail: "something went wrong inside councild; look for this request_id in the log",
		Cause:  err,
	}
}

const (
	// maxNamed is the most problems that an error answer names.
	maxNamed = 20
	// maxText is the most bytes of one text in an error answer. If all texts together have more than maxTexts bytes,
	// the limit for one text is shortText. JSON encodes a byte as at most six bytes, so an answer stays below 64 KiB.
	maxText, shortText, maxTexts = 1 << 10, 150, 10_000
)

// bounded returns a copy of an error that names at most maxNamed problems and has texts of limited length. The limits
// are needed because some texts repeat what the caller sent.
func bounded(e *council.Error) *council.Error {
	b := *e
	b.Fields = slices.Clone(e.Fields[:min(len(e.Fields), maxNamed)])
	limit := maxText
	size := min(len(e.Detail), maxText)
	for _, f := range b.Fields {
		size += min(len(f.Field), maxText) + min(len(f.Message), maxText) + min(len(f.Fix), maxText)
	}
	if size > maxTexts {
		limit = shortText
	}
	for i, f := range b.Fields {
		b.Fields[i] = council.FieldError{
			Field:   shorten(f.Field, limit),
			Message: shorten(f.Message, limit),
			Fix:     shorten(f.Fix, limit),
		}
	}
	b.Detail = shorten(e.Detail, limit) + more(len(e.Fields)-len(b.Fields))
	return &b
}

// more returns words to append to a detail. They say that n further problems are not named. If n is not positive, more
// returns "".
func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("; at least %d more problems are not named", n)
}

// shorten cuts a text to at most limit bytes, between two runes. A text that is cut ends in "...".
func shorten(text string, limit int) string {
	const mark = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

// problem returns the problem document (RFC 9457) of an error.
func problem(ctx context.Context, e *council.Error) council.Problem {
	e = bounded(e)
	m := meaningOf(e.Code)
	p := council.Problem{
		Type:      "urn:councild:problem:" + string(e.Code),
		Title:     m.title,
		Status:    m.status,
		Detail:    e.Detail,
		Code:      e.Code,
		Errors:    e.Fields,
		RequestID: council.RequestID(ctx),
		SessionID: e.SessionID,
		PaidCalls: e.Paid,
	}
	if p.Errors == nil {
		p.Errors = []council.FieldError{}
	}
	return p
}

// writeProblem answers with an error in the form of the request's door, and logs an error that is not a refusal.
func (a *API) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	e := coded(err)
	p := problem(r.Context(), e)
	// Refusals are not logged, because they are not failures, and an overloaded daemon makes many.
	if p.Status >= http.StatusInternalServerError && e.Code != council.CodeUnavailable ||
		e.Code == council.CodeCancelled {
		level := slog.LevelError
		if e.Code == council.CodeCancelled || clientGone(r) {
			level = slog.LevelInfo
		}
		a.o.Log.Log(r.Context(), level, "request failed", "code", e.Code, "error", e, "session_id", e.SessionID)
	}
	setProblemHeaders(w.Header(), r, e)
	if speaksOpenAI(r) {
		err = WriteJSON(w, p.Status, OpenAIError(e))
	} else {
		noRoute := p.Status == http.StatusNotFound || p.Status == http.StatusMethodNotAllowed
		if noRoute && strings.HasPrefix(r.URL.Path, "/v1/") {
			p.OpenAI = new(OpenAIError(e).Error)
		}
		err = write(w, p.Status, "application/problem+json", p)
	}
	if err != nil {
		a.o.Log.ErrorContext(r.Context(), "the problem could not be written", "error", err)
	}
}

// ChatError is an error in OpenAI's shape.
type ChatError struct {
	Error council.OpenAIError `json:"error"`
}

// speaksOpenAI reports whether a request came to OpenAI's interface. It looks at the path and not at the route, because
// a request can fail before it has a route.
func speaksOpenAI(r *http.Request) bool {
	return r.URL.Path == "/v1/models" || strings.HasPrefix(r.URL.Path, "/v1/models/") ||
		r.URL.Path == "/v1/chat/completions" || r.URL.Path == "/v1/responses" ||
		strings.HasPrefix(r.URL.Path, "/v1/responses/") || r.URL.Path == "/v1/decisions"
}

// OpenAIError returns an error in OpenAI's shape. The message lists all fields, because that shape has room for only
// one field.
func OpenAIError(e *council.Error) ChatError {
	e = bounded(e)
	body := council.OpenAIError{Message: e.Detail, Type: "invalid_request_error", Code: e.Code}
	if status := meaningOf(e.Code).status; status == http.StatusTooManyRequests {
		body.Type = "rate_limit_error"
	} else if status >= http.StatusInternalServerError {
		body.Type = "server_error"
	}
	for i, f := range e.Fields { // at most maxNamed
		if i == 0 {
			body.Param = &f.Field
		}
		body.Message += fmt.Sprintf("; %s: %s (%s)", f.Field, f.Message, f.Fix)
	}
	if e.SessionID != "" {
		body.Message += "; session " + e.SessionID
	}
	return ChatError{body}
}

// setProblemHeaders adds the headers from which a client learns whether, when and how to send the request again.
func setProblemHeaders(h http.Header, r *http.Request, e *council.Error) {
	if e.Code == council.CodeUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="councild"`)
	}
	if e.Paid > 0 || e.Code == council.CodeOverBudget { // OpenAI's SDKs obey this header.
		h.Set("X-Should-Retry", "false")
	}
	if replayed := e.Paid > 0 && speaksOpenAI(r); e.RetryAfter > 0 && !replayed {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
}

// WriteJSON answers with v as JSON. If it returns an error, it has sent nothing.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	return write(w, status, "application/json", v)
}

// write answers with v as JSON of this media type. It encodes v into a buffer before it sends the status, because a
// status that was sent cannot be changed if the encoding fails.
func write(w http.ResponseWriter, status int, media string, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	send(w, status, media, b.Bytes())
	return nil
}

// responseTimeout is how long a client may take to read a response.
const responseTimeout = time.Minute

// send writes a whole response. It ignores errors, because they mean that the client is gone or does not read.
func send(w http.ResponseWriter, status int, media string, body []byte) {
	// If the deadline cannot be set, the server's own deadline applies.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(responseTimeout))
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
