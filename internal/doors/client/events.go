package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// maxSilence is how long a stream of events may be silent before its connection counts as broken. The daemon
	// sends a comment every 15 s.
	maxSilence = 45 * time.Second
	// maxResumes is how often in a row Watch resumes a stream without getting a new event, before it gives up. The
	// pause before each resume doubles from minPause to maxPause. Together the pauses take 21 seconds.
	maxResumes = 9
	minPause   = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

var errSilent = fmt.Errorf("nothing came for %s", maxSilence)

// LoggedEvent is an entry of a session's log.
type LoggedEvent struct {
	ID string // the id in the stream, or ""
	council.Entry
}

// place returns the position of an event in its session, as numbers that slices.Compare orders. The id of an event
// holds these numbers with points between them (sessions.Position.Append). For any other id, place returns nil, which
// comes before all positions.
func place(id string) (numbers []int) {
	for part := range strings.SplitSeq(id, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// ReadEvents yields the events of a stream. A stream that ends normally yields no error. If the stream breaks, the last
// yield has the error. The event that was cut off is not yielded.
func ReadEvents(stream io.Reader) iter.Seq2[LoggedEvent, error] {
	return func(yield func(LoggedEvent, error) bool) {
		lines := bufio.NewScanner(stream)
		lines.Buffer(nil, maxDocument)
		var e LoggedEvent
		for lines.Scan() {
			line := bytes.TrimRight(lines.Bytes(), "\r")
			if len(line) == 0 { // It ends an event, or a comment.
				if e.Data != nil && !yield(e, nil) {
					return
				}
				e = LoggedEvent{}
				continue
			}
			field, value, _ := bytes.Cut(line, []byte(": "))
			switch string(field) {
			case "id":
				e.ID = string(value)
			case "event":
				e.Type = council.EventType(value)
			case "data":
				e.Data = bytes.Clone(value)
			}
		}
		if err := lines.Err(); err != nil {
			yield(LoggedEvent{}, err)
		}
	}
}

// Watch passes each event of a session to the observer once, and returns the session when it has ended. If a connection
// breaks, Watch continues on a new one. If the session failed, the error is an *Error.
func (c *Client) Watch(ctx context.Context, id string, o council.Observer) (*council.Session, error) {
	seen := "0" // No event has the id 0.
	pause := minPause
	resumes := 0
	for {
		before := seen
		session, broken, err := c.watch(ctx, id, &seen, o)
		switch {
		case !broken:
			return session, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case seen != before:
			pause = minPause
			resumes = 0
			continue
		case resumes == maxResumes:
			return nil, fmt.Errorf("watching session %s: %w", id, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxPause)
		resumes++
	}
}

// watch reads events over one connection. It begins after the event with the id in seen. The result broken says that
// the connection failed, and that another connection may bring more events.
func (c *Client) watch(
	ctx context.Context, id string, seen *string, o council.Observer,
) (s *council.Session, broken bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		if broken && errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
		cancel(nil)
	}()
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	resp, err := c.send(ctx, http.MethodGet, Path(id)+"/events", nil, []int{http.StatusOK}, "Last-Event-ID", *seen)
	if err != nil {
		refused, ok := errors.AsType[*Error](err)
		return nil, !ok || refused.Status >= http.StatusInternalServerError, err
	}
	defer resp.Body.Close()
	for e, err := range ReadEvents(heard{resp.Body, silence}) {
		if err != nil {
			return nil, true, err
		}
		if slices.Compare(place(e.ID), place(*seen)) <= 0 {
			continue
		}
		*seen = e.ID
		event, err := e.Decode()
		if err != nil {
			return nil, false, err
		}
		o.Observe(event)
		switch data := event.Data.(type) {
		case *council.Session:
			return data, false, nil
		case *council.Error:
			return nil, false, &Error{What: "the session failed", Cause: data}
		}
	}
	return nil, true, io.ErrUnexpectedEOF
}

// heard is a reader that restarts the timer for silence with each read.
type heard struct {
	io.Reader
	silence *time.Timer
}

// Read implements io.Reader.
func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.silence.Reset(maxSilence)
	return n, err
}
