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
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm/thinking"
)

// maxErrorBytes is how many bytes of an error's body are read. Its text is cut to maxMessageBytes anyway.
const maxErrorBytes = 64 << 10

// exchange travels in the context of one request. It carries what go-openai's structs cannot carry: further fields
// of the request, and the status, headers and body of the response.
type exchange struct {
	// call is the call of the request. If it is nil, the library makes the request itself.
	call     *council.Call
	dialect  dialect                 // of the provider
	model    string                  // the provider's name for the model
	without  options                 // options that the request must not have
	cut      context.CancelCauseFunc // ends the request
	onDelta  func(text string)       // nil if the reply is wanted in one piece
	pause    time.Duration           // the shortest time between two calls of onDelta
	prepared []byte                  // the body, if it was made before the request is sent
	address  string                  // address of the provider, for messages
	hint     string                  // possible cause of HTTP 404, or ""

	sending *bytes.Reader // the body while it is sent
	// unopened is a copy of the field unopened of the type model. The reply may change this copy.
	unopened bool
	response

	// These values are fields of exchange, so that they need no allocations of their own. Each request needs each of
	// them once.
	trace    httptrace.ClientTrace
	first    bytes.Reader // the body on the first connection
	watched  watched
	answered answered
}

// response is the part of a response that has come so far.
type response struct {
	sent      bool        // there was a connection, so the request may have been sent
	permanent bool        // there was no connection, and another attempt would fail too
	proxy     *proxyError // set if a proxy asked for credentials
	status    int
	named     int         // the status that an error in a reply with HTTP 200 names, or 0
	complaint *complaint  // what the provider says about an error; nil until it is read
	header    http.Header // nil if no response came
	body      []byte      // empty if the reply is a stream
	events    *events     // nil if the reply is not a stream
	passedOn  bool        // onDelta was called
}

// answered is the empty object that the library gets as a reply.
type answered struct{ strings.Reader }

// Close implements io.Closer.
func (*answered) Close() error { return nil }

type exchangeKey struct{}

// transport is the RoundTripper under go-openai. It reads a body to its end, up to the limit, so that the connection
// can be used again and a broken reply is never taken for a complete one. If the reply is a stream, transport sets up
// exchange.events, which reads it. The library passes an empty request, which transport fills, and gets an empty
// object as the reply.
type transport struct {
	base     http.RoundTripper
	maxBytes int64
	idle     time.Duration       // the longest wait for the next bytes of a reply; 0 is no limit
	agent    string              // the User-Agent of each request
	trace    func(*http.Request) // Options.Trace
	// headers and query are added to each request.
	headers, query map[string]string
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := req.Context().Value(exchangeKey{}).(*exchange) // Every request of this package has one.
	if x.call != nil {
		x.fill(req)
	}
	t.addOptions(req)
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		timeout, ok := errors.AsType[net.Error](err)
		x.proxy, _ = errors.AsType[*proxyError](err)
		x.permanent = isMistrusted(err) || ok && timeout.Timeout() || x.proxy != nil
		return nil, err
	}
	x.sent = true
	x.status = resp.StatusCode
	x.header = resp.Header
	if x.status == http.StatusProxyAuthRequired {
		x.proxy = t.refusingProxy(req)
		x.permanent = x.proxy != nil
	}
	body := resp.Body
	if t.idle > 0 {
		x.watched = watched{ReadCloser: body, idle: t.idle, timer: time.AfterFunc(t.idle, func() { x.cut(errIdle) })}
		body = &x.watched
	}
	streams := false
	if x.onDelta != nil && resp.StatusCode < 300 {
		body, streams = peek(body, isEventStream(resp.Header))
	}
	if streams {
		paced := &paced{
			Reader: body,
			ctx:    req.Context(),
			pause:  min(x.call.DeltaPause, maxReadPause),
			begun:  time.Now(),
		}
		x.events = &events{paced: paced, in: bufio.NewReader(paced), cut: x.cut, max: t.maxBytes}
		resp.Body = body
		return resp, nil
	}
	defer body.Close()

	limit := t.maxBytes
	if resp.StatusCode >= 300 {
		limit = min(limit, maxErrorBytes)
	}
	x.body, err = readBody(body, resp.ContentLength, limit)
	switch {
	case resp.StatusCode >= 300: // The status is enough, whatever the body holds.
		x.body = x.body[:min(int64(len(x.body)), limit)]
	case int64(len(x.body)) > limit:
		return nil, tooLarge(limit)
	case err != nil:
		return nil, broken(err)
	}
	x.answered.Reset("{}")
	resp.Body = &x.answered
	return resp, nil
}

// addOptions adds the headers and query parameters that every request has.
func (t *transport) addOptions(req *http.Request) {
	req.Header.Set("User-Agent", t.agent)
	if t.trace != nil {
		t.trace(req)
	}
	for name, value := range t.headers {
		req.Header.Set(name, value)
	}
	if len(t.query) == 0 {
		return
	}
	values := req.URL.Query()
	for name, value := range t.query {
		values.Set(name, value)
	}
	req.URL.RawQuery = values.Encode()
}

// readBody reads a body to its end. If the body is longer than the limit, readBody returns one byte more than the
// limit. The argument length is the length in the response's headers, or negative if there is none.
func readBody(body io.Reader, length, limit int64) ([]byte, error) {
	if length <= 0 || length > limit {
		return io.ReadAll(io.LimitReader(body, limit+1))
	}
	data := make([]byte, length)
	n, err := io.ReadFull(body, data)
	return data[:n], err
}

// refusingProxy returns an error that names the proxy of a request without TLS. It returns nil if the request went
// to no proxy.
func (t *transport) refusingProxy(req *http.Request) *proxyError {
	pool, ok := t.base.(*http.Transport)
	if !ok || pool.Proxy == nil {
		return nil
	}
	if proxy, err := pool.Proxy(req); err == nil && proxy != nil {
		return &proxyError{proxy: proxy, variable: "HTTP_PROXY"}
	}
	return nil
}

// connected notes that the request has a connection, after the TLS handshake if there is one.
func (x *exchange) connected(httptrace.GotConnInfo) { x.sent = true }

func isEventStream(h http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return mediaType == "text/event-stream" && (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter))
}

// peek reports whether a body is a stream of events. The argument typed says that the Content-Type of the response says
// so. If typed is false, the first bytes of the body decide. The returned body still contains these bytes.
func peek(body io.ReadCloser, typed bool) (io.ReadCloser, bool) {
	if typed {
		return body, true
	}
	const first = len(byteOrderMark + "event:")
	buffered := bufio.NewReader(body)
	begin, _ := buffered.Peek(first) // An error comes again when the body is read.
	return struct {
		io.Reader
		io.Closer
	}{buffered, body}, isFramed(bytes.TrimLeft(bytes.TrimPrefix(begin, []byte(byteOrderMark)), "\r\n\t "))
}

// reply reads the body of a response in one piece. It does not read the body if the status is an error: see refusedBy.
func (p *provider) reply(ctx context.Context, x *exchange) (received, error) {
	if x.refused() {
		return received{}, nil
	}
	if ctx.Err() != nil {
		return received{}, ctx.Err()
	}
	r, err := readReply(ctx, x.body, false)
	if err == nil || ctx.Err() != nil {
		return r, err
	}
	return p.reframed(ctx, x, r, err)
}

// reframed reads a reply that has another form than the request asked for. The reply may end in the end mark of a
// stream, be the events of a stream, or have one object in each line. If the reply is cut off, reframed returns an
// error. The arguments r and err are the result of reading the reply as the JSON of a completion.
func (p *provider) reframed(ctx context.Context, x *exchange, r received, err error) (received, error) {
	body := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(x.body), []byte(byteOrderMark)))
	if whole, _ := beforeEnd(body); len(whole) < len(x.body) {
		if again, failed := readReply(ctx, whole, false); failed == nil {
			return again, nil
		}
	}
	lines := errors.Is(err, errBehind) && bytes.HasPrefix(body, []byte("{")) && bytes.IndexByte(body, '\n') > 0
	switch {
	case lines, isFramed(body), errors.Is(err, errPiece):
		x.events = &events{paced: &paced{}, in: bufio.NewReader(bytes.NewReader(body)), max: p.transport.maxBytes}
		return p.read(ctx, x, &inlet{arrived: make(chan struct{}, 1)})
	case readComplaint(body).message != "": // It is a list of errors.
		return received{fault: body}, nil
	default:
		return r, err
	}
}

// divide sets the text and the thinking of a reply.
func (x *exchange) divide(r *received, p thinking.Parts) {
	// Only a streamed reply resets unopened. A model may mark its thinking in answers and not in reviews, and reviews
	// are never streamed.
	x.unopened = p.Unopened || x.unopened && !x.streams()
	r.text = p.Answer
	r.divided = true
	if r.reasoning != "" && p.Thought != "" {
		r.reasoning += "\n\n"
	}
	r.reasoning = clip(r.reasoning + p.Thought)
}

// refused reports whether the provider answered with a status other than 2xx.
func (x *exchange) refused() bool { return x.header != nil && (x.status < 200 || x.status >= 300) }

// watched is a body that ends the request if its reader waits too long for bytes.
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
