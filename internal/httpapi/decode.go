package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// decode reads the request's body, one JSON object, into v: the right media type,
// within the size limit, UTF-8, no unknown or repeated field, nothing behind it.
func (a *API) decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := a.readBody(w, r)
	if err != nil {
		return err
	}
	if err := checkFields(body, reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields() // those of nested objects
	if err := decoder.Decode(v); err != nil {
		return jsonError(err)
	}
	return nil
}

// decodeLoosely reads the request's body into v as OpenAI's clients expect: fields
// that are not known have no effect.
func (a *API) decodeLoosely(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := a.readBody(w, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return jsonError(err)
	}
	return nil
}

// readBody returns the request's body: of the right media type, within the size
// limit, UTF-8. So many are read at once that sessions never wait for one, and no
// more: bodies are held in memory.
func (a *API) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := mediaType(r); err != nil {
		return nil, err
	}
	select {
	case a.bodies <- struct{}{}:
		defer func() { <-a.bodies }()
	default:
		return nil, &council.Error{Code: council.CodeUnavailable, RetryAfter: time.Second, Detail: "as many requests are being read as may at once; try again in a moment"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.o.MaxBodyBytes))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &council.Error{
			Code:   council.CodeTooLarge,
			Detail: fmt.Sprintf("the body is larger than %d bytes; shorten it, or raise LLM_COUNCIL_MAX_BODY_BYTES", tooLarge.Limit),
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &council.Error{
			Code:   council.CodeTooSlow,
			Detail: fmt.Sprintf("the body did not arrive within %s; send it faster, or send less", a.o.BodyTimeout),
		}
	}
	if err != nil {
		return nil, &council.Error{Code: council.CodeMalformed, Detail: "the body could not be read to its end; send it again", Cause: err}
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("lifting the read deadline: %w", err)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, &council.Error{Code: council.CodeMalformed, Detail: `there is no body; send a JSON object, which /openapi.yaml describes`}
	}
	if !utf8.Valid(body) {
		return nil, &council.Error{Code: council.CodeMalformed, Detail: "the body is not UTF-8; encode it so"}
	}
	return body, nil
}

// mediaType accepts JSON, and what curl -d says when it is not told: a browser
// form could send that too, but not past the check of its origin.
func mediaType(r *http.Request) error {
	header := r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	if header == "" || err == nil && (media == "application/json" || media == "application/x-www-form-urlencoded") &&
		(charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return &council.Error{Code: council.CodeUnsupportedMediaType, Detail: fmt.Sprintf("the body is %q; send application/json in UTF-8", header)}
}

// checkFields checks what encoding/json would let pass: that body is one object
// and nothing more, and that each of its keys is a field of t, spelt exactly so,
// and there once.
func checkFields(body []byte, t reflect.Type) error {
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" && !f.Anonymous {
			known[name] = true
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if token, err := decoder.Token(); err != nil {
		return jsonError(err)
	} else if token != json.Delim('{') {
		return &council.Error{Code: council.CodeMalformed, Detail: "the body is not a JSON object; send one, such as {\"query\": \"...\"}"}
	}
	var fields []council.FieldError
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return jsonError(err)
		}
		key, _ := token.(string)
		switch {
		case !known[key]:
			fields = append(fields, council.FieldError{Field: key, Message: "there is no such field", Fix: "remove it, or correct its spelling: see /openapi.yaml"})
		case seen[key]:
			fields = append(fields, council.FieldError{Field: key, Message: "the field stands more than once", Fix: "give it once"})
		}
		seen[key] = true
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return jsonError(err)
		}
	}
	if _, err := decoder.Token(); err != nil { // the closing brace
		return jsonError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return &council.Error{Code: council.CodeMalformed, Detail: "something stands behind the JSON object; send the object alone"}
	}
	if len(fields) > 0 {
		return &council.Error{Code: council.CodeInvalid, Detail: "the body holds fields that do not belong there", Fields: fields}
	}
	return nil
}

// jsonError says what is wrong with a body, and where.
func jsonError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := wrong.Type.String()
		if wrong.Type.Kind() == reflect.Int64 {
			want = "whole number"
		}
		return &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: []council.FieldError{{
			Field:   strings.TrimPrefix(wrong.Field, "Request."), // the embedded struct
			Message: fmt.Sprintf("a %s does not fit here", wrong.Value), Fix: "give a " + want,
		}}}
	}
	detail := "the body is not valid JSON"
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		detail += fmt.Sprintf(" (byte %d: %v)", syntax.Offset, syntax)
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		detail += " (it ends too early)"
	} else if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &council.Error{Code: council.CodeInvalid, Detail: "the body holds fields that do not belong there", Fields: []council.FieldError{{
			Field: strings.Trim(field, `"`), Message: "there is no such field", Fix: "remove it, or correct its spelling: see /openapi.yaml",
		}}}
	}
	return &council.Error{Code: council.CodeMalformed, Detail: detail + `; send an object, which /openapi.yaml describes`}
}
