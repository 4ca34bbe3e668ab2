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
	// heartbeat is the time after which a comment keeps proxies from closing a
	// silent connection.
	heartbeat = 15 * time.Second
	// writeTimeout is the time that a client has for taking maxWrite bytes before
	// its connection is closed. Nothing is kept for it meanwhile: it reads the
	// session's log.
	writeTimeout = 30 * time.Second
	maxWrite     = 64 << 10
)

// streamEntries sends the entries of a session behind a position as server-sent
// events. The id of an event is the position behind it.
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

// writeEntry writes an entry as an event. An error stays in out.
func writeEntry(out *bufio.Writer, behind sessions.Position, e council.Entry) {
	head := behind.Append(append(out.AvailableBuffer(), "id: "...))
	head = append(append(append(head, "\nevent: "...), e.Type...), "\ndata: "...)
	_, _ = out.Write(head)
	_, _ = out.Write(e.Data)
	_, _ = out.WriteString("\n\n")
}

// Stream calls send, which writes what there is to be sent, again each time that
// the channel it returned is closed. It ends when that channel is nil, or when the
// client is gone or does not read. A panic ends the connection: what has been sent
// cannot become an error document.
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
	if r.Method == http.MethodHead { // for which there is nothing to wait
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

// pacedWriter writes to a client that has writeTimeout for taking each maxWrite
// bytes. After an error it writes nothing more.
type pacedWriter struct {
	w          io.Writer
	controller *http.ResponseController
	left       int // bytes that may be written until the deadline that is set; 0: none is set
	err        error
}

// Write implements io.Writer. What it wrote may lie in buffers until the next flush.
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

// flush sends what was written. Without anything it still sends the headers.
func (p *pacedWriter) flush() error {
	if p.begin() {
		p.left = 0
		p.err = p.controller.Flush()
	}
	return p.err
}

// begin sets a deadline, unless one is set. It reports whether there was no error yet.
func (p *pacedWriter) begin() bool {
	if p.left == 0 && p.err == nil {
		p.left = maxWrite
		p.err = p.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return p.err == nil
}
