package httpapi

import (
	"bytes"
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

// meaning maps each code to its HTTP status and title. It is the only such table.
func meaning(code council.Code) (status int, title string) {
	switch code {
	case council.CodeMalformed:
		return http.StatusBadRequest, "The request cannot be read"
	case council.CodeUnauthorized:
		return http.StatusUnauthorized, "A valid token is needed"
	case council.CodeForbidden:
		return http.StatusForbidden, "Not allowed"
	case council.CodeNotFound:
		return http.StatusNotFound, "Nothing here"
	case council.CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed, "Wrong method"
	case council.CodeTooSlow:
		return http.StatusRequestTimeout, "The body came too slowly"
	case council.CodeConflict:
		return http.StatusConflict, "In conflict with what is there"
	case council.CodeTooLarge:
		return http.StatusRequestEntityTooLarge, "The body is too large"
	case council.CodeUnsupportedMediaType:
		return http.StatusUnsupportedMediaType, "Wrong media type"
	case council.CodeInvalid:
		return http.StatusUnprocessableEntity, "The request is not valid"
	case council.CodeOverLimit:
		return http.StatusTooManyRequests, "Over a limit"
	case council.CodeNoQuorum:
		return http.StatusBadGateway, "Too few members answered"
	case council.CodePartialRefused:
		return http.StatusBadGateway, "The result is degraded"
	case council.CodeUnavailable:
		return http.StatusServiceUnavailable, "Not now"
	case council.CodeCancelled:
		return http.StatusServiceUnavailable, "The session was cancelled"
	case council.CodeDeadline:
		return http.StatusGatewayTimeout, "Out of time"
	case council.CodeInternal:
	}
	return http.StatusInternalServerError, "Internal error"
}

// coded returns err as what it means to a caller. One that carries no code is a
// defect: its text is for the log only.
func coded(err error) *council.Error {
	if e, ok := errors.AsType[*council.Error](err); ok {
		return e
	}
	return &council.Error{Code: council.CodeInternal, Detail: "something went wrong inside councild; the log tells more under this request_id", Cause: err}
}

const (
	// maxNamed is the most problems that an error answer names.
	maxNamed = 20
	// maxText is the most bytes of one text in an error answer, and shortText of one
	// where all together have more than maxTexts. JSON takes at most six bytes for
	// one: with them an answer has less than 64 KiB.
	maxText, shortText, maxTexts = 1 << 10, 150, 10_000
)

// bounded returns an error as an answer may show it, however long the texts are
// that the caller sent.
func bounded(e *council.Error) *council.Error {
	b := *e
	b.Fields = slices.Clone(e.Fields[:min(len(e.Fields), maxNamed)])
	limit, size := maxText, min(len(e.Detail), maxText)
	for _, f := range b.Fields {
		size += min(len(f.Field), maxText) + min(len(f.Message), maxText) + min(len(f.Fix), maxText)
	}
	if size > maxTexts {
		limit = shortText
	}
	for i, f := range b.Fields {
		b.Fields[i] = council.FieldError{Field: shorten(f.Field, limit), Message: shorten(f.Message, limit), Fix: shorten(f.Fix, limit)}
	}
	b.Detail = shorten(e.Detail, limit) + more(len(e.Fields)-len(b.Fields))
	return &b
}

// more says how many problems are not named.
func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("; at least %d more problems are not named", n)
}

// shorten cuts a text to at most limit bytes, at the end of a rune.
func shorten(text string, limit int) string {
	const mark = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

// problem returns the document of an error.
func problem(ctx context.Context, e *council.Error) council.Problem {
	e = bounded(e)
	status, title := meaning(e.Code)
	p := council.Problem{
		Type: "urn:councild:problem:" + string(e.Code), Title: title, Status: status, Detail: e.Detail, Code: e.Code,
		Errors: e.Fields, RequestID: council.RequestID(ctx), SessionID: e.SessionID,
	}
	if p.Errors == nil {
		p.Errors = []council.FieldError{}
	}
	return p
}

// writeProblem answers with an error.
func (a *API) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	e := coded(err)
	p := problem(r.Context(), e)
	if p.Status >= 500 && e.Code != council.CodeUnavailable { // refusing is no failure, and under overload there are many
		level := slog.LevelError
		if e.Code == council.CodeCancelled || gone(r) { // somebody wanted it so
			level = slog.LevelInfo
		}
		a.o.Log.Log(r.Context(), level, "request failed", "code", e.Code, "error", e, "session_id", e.SessionID)
	}
	if e.Code == council.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="councild"`)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if speaksOpenAI(r) {
		err = writeJSON(w, p.Status, chatError(e))
	} else {
		err = write(w, p.Status, "application/problem+json", p)
	}
	if err != nil {
		a.o.Log.ErrorContext(r.Context(), "the problem could not be written", "error", err)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	return write(w, status, "application/json", v)
}

// write encodes v to a buffer first: once a status is out it cannot be taken back.
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

// send writes a whole response. An error means that the client is gone, or does
// not read, and nobody is left to tell.
func send(w http.ResponseWriter, status int, media string, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(responseTimeout)) // else the server's own stands
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
