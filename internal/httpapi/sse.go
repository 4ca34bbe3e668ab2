package httpapi

import (
	"io"
	"net/http"
	"time"

	"github.com/councild/councild/internal/sessions"
)

const (
	// heartbeat is the time after which a comment keeps proxies from cutting a
	// silent line.
	heartbeat = 15 * time.Second
	// writeTimeout is the time that a client has for taking maxWrite bytes before
	// it is cut off. Nothing is kept for it meanwhile: it reads the session's log.
	writeTimeout = 30 * time.Second
	maxWrite     = 64 << 10
)

// stream sends what encode makes of the events of a session, behind the first seen
// ones, until the session or the stream is over, or the client is gone or does not
// read. encode is called with no events too. A panic ends the connection: what has
// been sent cannot become an error document.
func (a *API) stream(w http.ResponseWriter, r *http.Request, s *sessions.Session, seen int, encode func(events []byte) (out []byte, over bool)) {
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
	writer := newEventWriter(w)
	comment := time.NewTimer(heartbeat)
	defer comment.Stop()
	for {
		events, count, more := s.Since(seen)
		out, over := encode(events)
		if writer.write(out) != nil || over || more == nil {
			return
		}
		seen = count
		comment.Reset(heartbeat)
		select {
		case <-more:
		case <-comment.C:
			if writer.write([]byte(":\n\n")) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// eventWriter sends what it is given at once, in pieces that a client must take in
// time.
type eventWriter struct {
	w          io.Writer
	controller *http.ResponseController
}

func newEventWriter(w http.ResponseWriter) eventWriter {
	return eventWriter{w, http.NewResponseController(w)}
}

// write sends events; none of them still sends the headers.
func (e eventWriter) write(events []byte) error {
	for {
		piece := events[:min(len(events), maxWrite)]
		if err := e.controller.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := e.w.Write(piece); err != nil {
			return err
		}
		if err := e.controller.Flush(); err != nil {
			return err
		}
		if events = events[len(piece):]; len(events) == 0 {
			return nil
		}
	}
}
