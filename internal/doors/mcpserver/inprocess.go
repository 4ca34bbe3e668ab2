package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

// caller is the sender of a request to POST /mcp.
type caller struct {
	authorization string // the Authorization header
	host          string // the Host header
	address       string // host and port of the caller
	requestID     string
	connected     context.Context // ends when the caller leaves
}

// callerKey is the key of the caller in a context.
type callerKey struct{}

// InProcess returns a transport that passes requests to a handler in this process, as if the requests had come over a
// connection. If the context of a request holds a caller of POST /mcp, the handler receives the request with that
// caller's token, address and request id.
func InProcess(handler http.Handler) http.RoundTripper { return inProcess{handler} }

type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. It returns as soon as the handler begins the response. Closing the body
// ends the context of the handler.
//
//nolint:contextcheck // the handler has a context of its own
func (p inProcess) RoundTrip(sent *http.Request) (*http.Response, error) {
	// The handler's context ends when the sender's context ends. It inherits nothing else, because the sender's context
	// holds the routing of another request.
	ctx, cancel := context.WithCancelCause(context.Background())
	end := context.AfterFunc(sent.Context(), func() { cancel(context.Cause(sent.Context())) })
	received := sent.Clone(ctx)
	received.RequestURI = sent.URL.RequestURI()
	received.Host = sent.URL.Host
	if received.Body == nil {
		received.Body = http.NoBody
	}
	if c, ok := sent.Context().Value(callerKey{}).(caller); ok {
		received.Host = c.host
		received.RemoteAddr = c.address
		received.Header.Set("X-Request-Id", c.requestID)
		if c.authorization != "" {
			received.Header.Set("Authorization", c.authorization)
		}
	}
	in, out := io.Pipe()
	w := &response{header: http.Header{}, out: out, begun: make(chan *http.Response, 1)}
	w.body = closer{in, cancel}
	go func() {
		defer func() {
			defer cancel(nil)
			end()
			if recover() != nil { // The handler logs its panics itself. A panic here only breaks off the response.
				_ = out.CloseWithError(io.ErrUnexpectedEOF)
			}
			w.WriteHeader(http.StatusOK)
			_ = out.Close()
		}()
		p.handler.ServeHTTP(w, received)
	}()
	select {
	case resp := <-w.begun:
		resp.Request = sent
		return resp, nil
	case <-ctx.Done():
		_ = in.Close() // The handler may be writing.
		return nil, context.Cause(ctx)
	}
}

// closer is the body of a response. Closing it tells the handler that the client is gone.
type closer struct {
	*io.PipeReader
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (c closer) Close() error {
	c.cancel(context.Canceled)
	return c.PipeReader.Close()
}

// response is the http.ResponseWriter of a response in this process. Deadlines have no effect, because there is no
// connection. A flush only begins the response.
type response struct {
	header http.Header
	once   sync.Once
	begun  chan *http.Response
	body   io.ReadCloser
	out    *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	w.once.Do(func() {
		w.begun <- &http.Response{
			Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header.Clone(), Body: w.body, ContentLength: -1,
		}
	})
}

// Write implements http.ResponseWriter. It waits until the client has read the data.
func (w *response) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(data)
}

// Flush implements http.Flusher.
func (w *response) Flush() { w.WriteHeader(http.StatusOK) }

// SetReadDeadline is needed by http.ResponseController.
func (*response) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is needed by http.ResponseController.
func (*response) SetWriteDeadline(time.Time) error { return nil }

// callerOf returns the caller of a request to POST /mcp.
func callerOf(r *http.Request) caller {
	return caller{
		authorization: r.Header.Get("Authorization"), host: r.Host, address: r.RemoteAddr,
		requestID: council.RequestID(r.Context()), connected: r.Context(),
	}
}
