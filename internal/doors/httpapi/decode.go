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

// decode reads the request's body, one JSON object of the right media type, within
// the size limit and in UTF-8, into the struct that v points to. Where open is set,
// unknown fields have no effect. It returns what does not fit as problems, so that
// they are reported together with those that Prepare finds.
func (a *API) decode(w http.ResponseWriter, r *http.Request, v any, open bool) (*Problems, error) {
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
	return &f.Problems, f.read(body, v)
}

// readBody returns the request's body, which has the right media type, is within the
// size limit and is UTF-8. Bodies are held in memory, so there are places for so many
// of them that sessions never wait for one. Callers share these places: a caller whose
// bodies do not end leaves some to the others. release gives the place back, once the
// body is decoded.
func (a *API) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	if err := mediaType(r); err != nil {
		return nil, nil, err
	}
	free, ok := a.bodies.take(a.holder(r), 1)
	if !ok {
		return nil, nil, &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "as many requests of this caller are being read as may at once; try again in a moment",
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
			Detail: fmt.Sprintf("the body is larger than %d bytes; shorten it, or raise %s: a body may have four times as many",
				tooLarge.Limit, a.o.Settings.Of(council.SettingMaxQueryBytes)),
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
		return nil, nil, &council.Error{Code: council.CodeMalformed, Detail: "the body is not UTF-8; encode it so"}
	}
	return body, free, nil
}

// mediaType accepts JSON that is not compressed, and the media type that curl -d sends by itself. A form in
// a browser could send that too, but not past the check of its origin.
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
