package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// maxSilence is how long a stream of events may be silent before its connection
	// counts as broken: the daemon sends a comment every 15 s.
	maxSilence = 45 * time.Second
	// maxResumes is how often in a row a stream is resumed without a new event, with
	// a pause before each time that doubles from minPause to maxPause: for half a
	// minute.
	maxResumes = 9
	minPause   = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// maxLine is the most bytes of one line of events. The longest line holds a whole
	// session.
	maxLine = 256 << 20
)

// Event is an entry of a session's log with its number, from 1.
type Event struct {
	Number int
	council.Entry
}

// ReadEvents yields the events of a stream of them, and at last the error that broke
// it, none at its end. An event that the stream breaks off in is not yielded.
func ReadEvents(stream io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(stream)
		lines.Buffer(nil, maxLine)
		var e Event
		for lines.Scan() {
			if len(lines.Bytes()) == 0 { // the end of an event, or of a comment
				if e.Data != nil && !yield(e, nil) {
					return
				}
				e = Event{}
				continue
			}
			field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
			switch string(field) {
			case "id":
				number, err := strconv.Atoi(string(value))
				if err != nil {
					yield(Event{}, fmt.Errorf("the id of an event: %w", err))
					return
				}
				e.Number = number
			case "event":
				e.Type = council.EventType(value)
			case "data":
				e.Data = bytes.Clone(value)
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, err)
		}
	}
}

// Decode returns the event that an entry was made of. Its data has the type that the
// constants of council.EventType name.
func Decode(e council.Entry) (event council.Event, err error) {
	event.Type = e.Type
	switch e.Type {
	case council.EventStarted:
		event.Data, err = decode[council.Started](e.Data)
	case council.EventAnswer:
		event.Data, err = decode[council.Answer](e.Data)
	case council.EventStage1:
		event.Data, err = decode[[]council.Answer](e.Data)
	case council.EventBallot:
		event.Data, err = decode[council.Review](e.Data)
	case council.EventStage2:
		event.Data, err = decode[council.Tally](e.Data)
	case council.EventDelta:
		event.Data, err = decode[council.Delta](e.Data)
	case council.EventRestart:
		event.Data, err = decode[council.Restart](e.Data)
	case council.EventStage3:
		event.Data, err = decode[council.Synthesis](e.Data)
	case council.EventDone:
		event.Data, err = decode[*council.Session](e.Data)
	case council.EventFailed:
		var p council.Problem
		p, err = decode[council.Problem](e.Data)
		event.Data = causeOf(p)
	}
	if err != nil {
		return event, fmt.Errorf("reading %s: %w", e.Type, err)
	}
	return event, nil
}

func decode[T any](data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

// Watch tells the observer of every event of a session, once each and over as many
// connections as it takes, and returns the session at its end. A session that failed
// is an *Error.
func (c *Client) Watch(ctx context.Context, id string, o council.Observer) (*council.Session, error) {
	w := watcher{client: c, path: path(id) + "/events", observer: o}
	pause, resumes := minPause, 0
	for {
		before := w.seen
		err := w.watch(ctx)
		if w.session != nil || w.failure != nil {
			return w.session, w.failure
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if w.seen > before {
			pause, resumes = minPause, 0
			continue
		}
		if resumes++; resumes > maxResumes {
			return nil, fmt.Errorf("watching session %s: %w", id, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxPause)
	}
}

// watcher watches one session.
type watcher struct {
	client   *Client
	path     string // of its events
	observer council.Observer
	seen     int              // the number of the last event that arrived
	session  *council.Session // at its end
	failure  error            // why there is none; another connection would not help
}

// watch reads events until their stream ends or breaks.
func (w *watcher) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(maxSilence, cancel)
	defer silence.Stop()
	resp, err := w.client.send(ctx, http.MethodGet, w.path, nil, http.StatusOK, "Last-Event-ID", strconv.Itoa(w.seen))
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Status < http.StatusInternalServerError {
			w.failure = err
		}
		return err
	}
	defer resp.Body.Close()
	for e, err := range ReadEvents(heard{resp.Body, silence}) {
		if err != nil {
			return err
		}
		if e.Number > w.seen {
			w.seen = e.Number
			w.observe(e.Entry)
		}
	}
	return io.ErrUnexpectedEOF
}

// observe passes an event on.
func (w *watcher) observe(entry council.Entry) {
	e, err := Decode(entry)
	if err != nil {
		w.failure = err
		return
	}
	switch data := e.Data.(type) {
	case *council.Session:
		w.session = data
	case *council.Error:
		w.failure = &Error{What: "the session failed", Cause: data}
	}
	w.observer.Observe(e)
}

// heard is a reader that says that there is no silence.
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
