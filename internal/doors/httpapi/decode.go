package httpapi

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// decode reads the body of the request into the struct that v points to. The body must be a JSON object. If the
// argument open is true, unknown fields have no effect. A value that does not fit becomes a problem, so that one answer
// can report it together with the problems that Prepare finds. If the body cannot be read at all, decode returns an
// error.
func (a *API) decode(w http.ResponseWriter, r *http.Request, v any, open bool) (*Problems, error) {
	return a.decodeAs(w, r, func([]byte) any { return v }, open)
}

// decodeAs does the same as decode, for a body that can be read into one of several structs. The function choose gets
// the body, which may not be valid JSON, and returns a pointer to the struct.
func (a *API) decodeAs(w http.ResponseWriter, r *http.Request, choose func(body []byte) any, open bool) (*Problems, error) {
	body, release, err := a.readBody(w, r)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := a.keep(r, len(body)); err != nil {
		return nil, err
	}
	f := &form{open: open, known: &a.fields}
	if open {
		f.sum = sha256.Sum256(body)
	}
	return &f.Problems, f.read(body, choose(body))
}

// readBody returns the body of the request. It refuses a wrong media type, a body above the size limit, and text that
// is not UTF-8.
//
// At most four times MaxSessions bodies are read at once, because bodies are held in memory. With this limit, sessions
// do not wait for bodies. Callers share the places for bodies, because a caller whose bodies do not end must leave
// places to others. The caller of readBody calls release when it has decoded the body.
func (a *API) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	if err := mediaType(r); err != nil {
		return nil, nil, err
	}
	free, ok := a.bodies.take(a.holder(r), 1)
	if !ok {
		return nil, nil, &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "this caller has too many requests whose body was not read yet; try again in a moment",
		}
	}
	defer func() {
		if err != nil {
			free()
		}
	}()
	controller := http.NewResponseController(w)
	if err := controller.SetReadDeadline(time.Now().Add(a.o.BodyTimeout)); err != nil {
		return nil, nil, fmt.Errorf("setting the read deadline: %w", err)
	}
	// io.ReadAll would take five times the memory of a long body.
	buffer := bytes.NewBuffer(make([]byte, 0, max(min(r.ContentLength, a.o.MaxBodyBytes), 0)+bytes.MinRead))
	_, err = buffer.ReadFrom(http.MaxBytesReader(w, r.Body, a.o.MaxBodyBytes))
	body = buffer.Bytes()
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, nil, &council.Error{
			Code: council.CodeTooLarge,
			Detail: fmt.Sprintf("the body is larger than %d bytes; shorten it, or raise %s: a body may have four times as many "+
				"bytes", tooLarge.Limit, a.o.Settings.Of(council.SettingMaxQueryBytes)),
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil, &council.Error{
			Code:   council.CodeTooSlow,
			Detail: fmt.Sprintf("the body did not arrive within %s; send it faster, or send less", a.o.BodyTimeout),
		}
	}
	if err != nil {
		return nil, nil, &council.Error{
			Code:   council.CodeMalformed,
			Detail: "the body could not be read to its end; send it again",
			Cause:  err,
		}
	}
	if err := controller.SetReadDeadline(time.Time{}); err != nil {
		return nil, nil, fmt.Errorf("lifting the read deadline: %w", err)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil, &council.Error{
			Code: council.CodeMalformed, Detail: `there is no body; send a JSON object, which /openapi.yaml describes`,
		}
	}
	if !utf8.Valid(body) {
		return nil, nil, &council.Error{Code: council.CodeMalformed, Detail: "the body is not UTF-8; encode it in " +
			"UTF-8"}
	}
	return body, free, nil
}

// mediaType accepts uncompressed JSON, a request without a media type, and the media type that curl -d sends by
// default. Forms on web pages send the same type as curl, but sameOrigin refuses forms of other origins.
func mediaType(r *http.Request) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &council.Error{
			Code:   council.CodeUnsupportedMediaType,
			Detail: fmt.Sprintf("the body has the encoding %q; send it uncompressed", coding),
		}
	}
	header := r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	if header == "" || err == nil && (media == "application/json" || media == "application/x-www-form-urlencoded") &&
		(charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return &council.Error{
		Code:   council.CodeUnsupportedMediaType,
		Detail: fmt.Sprintf("the body is %q; send application/json in UTF-8", header),
	}
}
