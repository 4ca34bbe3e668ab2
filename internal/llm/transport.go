package llm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// maxErrorBytes bounds what is read of an error's body: its text is cut to
// maxMessageBytes anyway.
const maxErrorBytes = 64 << 10

// exchange is passed through the context of one request. It carries what go-openai's
// structs cannot: further fields to the request, and status, headers and body back from
// the response.
type exchange struct {
	extra   []byte                  // JSON members, each with a comma behind it, put first in the body
	cut     context.CancelCauseFunc // ends the request
	onDelta func(text string)       // nil: the reply is wanted in one piece
	pause   time.Duration           // the least time between two calls of onDelta
	address string                  // of the provider, for messages
	hint    string                  // what HTTP 404 may come from; "" when nothing is known

	sent     bool // the request left, at least in part
	hopeless bool // there was no connection, and another attempt would fail too
	status   int
	header   http.Header // nil when no response came
	body     []byte      // empty when the reply is a stream
	events   *events     // nil when the reply is no stream
	passedOn bool        // onDelta was called
}

type exchangeKey struct{}

// extraFields renders the request fields that go-openai would drop (a
// temperature of 0), refuse (sampling parameters of models it knows by name), or
// does not have.
func extraFields(host string, call council.Call, format *council.Format) []byte {
	var b []byte
	if call.Temperature != nil {
		b = append(b, `"temperature":`...)
		b = strconv.AppendFloat(b, *call.Temperature, 'g', -1, 64)
		b = append(b, ',')
	}
	if call.MaxOutputTokens != nil {
		// OpenAI's own newer models take only the newer name, most compatible
		// servers only the older one.
		name := `"max_tokens":`
		if host == "api.openai.com" {
			name = `"max_completion_tokens":`
		}
		b = append(b, name...)
		b = strconv.AppendInt(b, int64(*call.MaxOutputTokens), 10)
		b = append(b, ',')
	}
	if format != nil {
		b = append(b, `"response_format":{"type":"json_schema","json_schema":{"name":"`+format.Name+`","strict":true,"schema":`...)
		b = append(b, format.Schema...)
		b = append(b, "}},"...)
	}
	if host == "openrouter.ai" {
		b = append(b, `"usage":{"include":true},`...) // asks for the cost
	}
	return b
}

// transport is the RoundTripper under go-openai. It reads a body to its end within the
// limit, so that the connection can be used again and a broken reply is never taken for
// a complete one; or it prepares to read a stream. The library gets an empty object: it
// would lose an answer because of one malformed figure beside it, and accept an answer
// with anything behind it.
type transport struct {
	base     http.RoundTripper
	maxBytes int64
	idle     time.Duration // 0: no limit
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := req.Context().Value(exchangeKey{}).(*exchange) // every request of this package has one
	if len(x.extra) > 0 {
		if err := prepend(req, x.extra); err != nil {
			return nil, err
		}
	}
	x.sent = true
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		mistrusted := isMistrusted(err)
		x.sent = !isDial(err) && !mistrusted
		timeout, ok := errors.AsType[net.Error](err)
		x.hopeless = mistrusted || ok && timeout.Timeout()
		return nil, err
	}
	x.status, x.header = resp.StatusCode, resp.Header
	body := resp.Body
	if t.idle > 0 {
		body = &watched{ReadCloser: body, idle: t.idle, timer: time.AfterFunc(t.idle, func() { x.cut(errIdle) })}
	}
	if x.onDelta != nil && resp.StatusCode < 300 && isEventStream(resp.Header) {
		x.events = &events{in: bufio.NewReader(body), cut: x.cut, max: t.maxBytes}
		resp.Body = body
		return resp, nil
	}
	defer body.Close()

	limit := t.maxBytes
	if resp.StatusCode >= 300 {
		limit = min(limit, maxErrorBytes)
	}
	var b bytes.Buffer
	b.Grow(int(min(max(resp.ContentLength, 0), limit)) + bytes.MinRead)
	_, err = b.ReadFrom(io.LimitReader(body, limit+1))
	x.body = b.Bytes()
	switch {
	case resp.StatusCode >= 300: // the status says enough, whatever there is of a body
		x.body = x.body[:min(int64(len(x.body)), limit)]
	case int64(len(x.body)) > limit:
		return nil, tooLarge(limit)
	case err != nil:
		return nil, broken(err)
	}
	resp.Body = io.NopCloser(strings.NewReader("{}"))
	return resp, nil
}

func isEventStream(h http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return mediaType == "text/event-stream" && (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter))
}

// reply reads the body of a response in one piece. The body of an error status is not
// read as a reply: see refusedBy.
func (x *exchange) reply(ctx context.Context) (received, error) {
	if x.refused() {
		return received{}, nil
	}
	return readReply(ctx, x.body, false)
}

// refused reports whether the provider answered with a status that is no success.
func (x *exchange) refused() bool { return x.header != nil && (x.status < 200 || x.status >= 300) }

// watched ends the request when its reader waits too long for bytes.
type watched struct {
	io.ReadCloser
	idle  time.Duration
	timer *time.Timer // ends the request
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.idle)
	defer w.timer.Stop()
	return w.ReadCloser.Read(p)
}

// prepend puts extra members first in the request's JSON object. It does not copy the
// object, which holds a whole prompt.
func prepend(req *http.Request, extra []byte) (err error) {
	object := req.GetBody
	req.GetBody = func() (io.ReadCloser, error) {
		rest, err := object()
		if err != nil {
			return nil, err
		}
		begin := make([]byte, 1, 1+len(extra)) // the opening brace
		_, err = io.ReadFull(rest, begin)
		return io.NopCloser(io.MultiReader(bytes.NewReader(append(begin, extra...)), rest)), err
	}
	req.ContentLength += int64(len(extra))
	req.Body, err = req.GetBody()
	return err
}
