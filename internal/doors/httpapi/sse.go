package httpapi

import (
	"bufio"
	"io"
	"net/http"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

const (
	// heartbeat is the longest silence on a stream. After heartbeat the daemon sends a comment, so that proxies do not
	// close the connection.
	heartbeat = 15 * time.Second
	// writeTimeout is how long a client may take to read maxWrite bytes. A client that takes longer loses its
	// connection. Until then a slow client costs no memory, because its stream reads from the log of the session.
	writeTimeout = 30 * time.Second
	// maxWrite is how many bytes a client must read within writeTimeout. A stream also has a buffer of this size.
	maxWrite = 64 << 10
)

// streamEntries sends the entries of a session as server-sent events, until the session ends. It begins after the
// position in the argument behind. The id of an event is the position after that event.
func (a *API) streamEntries(w http.ResponseWriter, r *http.Request, s *sessions.Session, behind sessions.Position) {
	a.Stream(w, r, func(out *bufio.Writer) (more <-chan struct{}) {
		page, more := s.Entries(behind)
		for i, e := range page.Entries {
			behind = page.Position(i)
			writeEntry(out, behind, e)
		}
		return more
	})
}

// writeEntry writes an entry as a server-sent event. Errors stay in out until its next flush.
func writeEntry(out *bufio.Writer, behind sessions.Position, e council.Entry) {
	head := behind.Append(append(out.AvailableBuffer(), "id: "...))
	head = append(append(append(head, "\nevent: "...), e.Type...), "\ndata: "...)
	_, _ = out.Write(head)
	_, _ = out.Write(e.Data)
	_, _ = out.WriteString("\n\n")
}

// Stream sends server-sent events. It calls the function send, which writes all events that are ready and returns a
// channel. When that channel is closed, Stream calls send again. Stream returns when send returns a nil channel, or
// when the client is gone or does not read. If send panics, Stream cuts the connection, because an error document
// cannot follow events that were already sent.
func (a *API) Stream(w http.ResponseWriter, r *http.Request, send func(out *bufio.Writer) (more <-chan struct{})) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	ctx := r.Context()
	defer func() {
		if v := recover(); v != nil {
			a.logPanic(ctx, "stream of events", v)
			panic(http.ErrAbortHandler)
		}
	}()
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead { // A response to HEAD has no body.
		return
	}
	paced := &pacedWriter{w: w, controller: http.NewResponseController(w)}
	comment := time.NewTimer(heartbeat)
	defer comment.Stop()
	for {
		out := a.buffers.Get().(*bufio.Writer)
		out.Reset(paced)
		more := send(out)
		_ = out.Flush() // The next flush has the same error.
		out.Reset(nil)
		a.buffers.Put(out)
		if paced.flush() != nil || more == nil {
			return
		}
		comment.Reset(heartbeat)
		select {
		case <-more:
		case <-comment.C:
			_, _ = paced.Write([]byte(":\n\n"))
		case <-ctx.Done():
			return
		}
	}
}

// pacedWriter writes to a client. The client has writeTimeout to read each maxWrite bytes. After an error, pacedWriter
// writes nothing more.
type pacedWriter struct {
	w          io.Writer
	controller *http.ResponseController
	// left is how many bytes may be written before the current deadline. It is 0 if no deadline is set.
	left int
	err  error
}

// Write implements io.Writer. The bytes may stay in buffers until the next flush.
func (p *pacedWriter) Write(data []byte) (int, error) {
	rest := data
	for len(rest) > 0 && p.begin() {
		n := min(len(rest), p.left)
		_, p.err = p.w.Write(rest[:n])
		rest = rest[n:]
		p.left -= n
		if p.left == 0 && p.err == nil {
			p.err = p.controller.Flush()
		}
	}
	return len(data) - len(rest), p.err
}

// flush sends the bytes that were written. Even if no bytes were written, it sends the headers of the response.
func (p *pacedWriter) flush() error {
	if p.begin() {
		p.left = 0
		p.err = p.controller.Flush()
	}
	return p.err
}

// begin sets a deadline if no deadline is set. It returns false after an error.
func (p *pacedWriter) begin() bool {
	if p.left == 0 && p.err == nil {
		p.left = maxWrite
		p.err = p.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return p.err == nil
}
