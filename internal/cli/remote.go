package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/sessions"
)

const (
	// silence is how long a daemon's events may be silent before the line counts as
	// dead: it sends a comment every 15 s.
	silence = 45 * time.Second
	// maxResumes is how often in a row a line is taken up again in vain, with a
	// pause that doubles from minPause to maxPause: for half a minute.
	maxResumes = 9
	minPause   = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// startTimeout and cancelTimeout are how long starting and cancelling a session
	// may take.
	startTimeout  = 30 * time.Second
	cancelTimeout = 5 * time.Second
)

// remote is a daemon that is asked over HTTP.
type remote struct {
	url   string // without a slash at its end
	token string // "" where none is asked for
}

// ask starts a session in the background and follows it to its end. When ctx ends
// before, the session is cancelled.
func (d remote) ask(ctx context.Context, question string, observer council.Observer) (*council.Session, error) {
	if _, err := url.Parse(d.url); err != nil {
		return nil, usageError{fmt.Errorf("--server: %w", err)}
	}
	defer http.DefaultClient.CloseIdleConnections()
	var started sessions.Summary
	// What ctx cut off here could go on unseen.
	err := within(ctx, startTimeout, func(ctx context.Context) (err error) {
		started, err = d.start(ctx, question)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := follower{remote: d, path: "/v1/council/" + started.ID, observer: observer}
	session, err := f.follow(ctx)
	if ctx.Err() != nil && session == nil {
		return nil, errors.Join(fmt.Errorf("session %s was cancelled", started.ID), f.cancel(ctx))
	}
	return session, err
}

func (d remote) start(ctx context.Context, question string) (started sessions.Summary, err error) {
	body, err := json.Marshal(httpapi.Submission{Request: council.Request{Query: question}, Background: true})
	if err != nil {
		return started, err
	}
	resp, err := d.do(ctx, http.MethodPost, "/v1/council", body)
	if err != nil {
		return started, fmt.Errorf("asking the daemon: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return started, problemError(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(&started); err != nil {
		return started, fmt.Errorf("reading the daemon's answer: %w", err)
	}
	return started, nil
}

// do sends a request. Headers are pairs of name and value.
func (d remote) do(ctx context.Context, method, path string, body []byte, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return http.DefaultClient.Do(req)
}

// follower follows the events of one session.
type follower struct {
	remote
	path     string
	observer council.Observer
	last     int              // the id of the last event that arrived
	session  *council.Session // the result
	failure  error            // why there is none
}

// follow tells the observer of every event, once each, over as many connections as
// it takes.
func (f *follower) follow(ctx context.Context) (*council.Session, error) {
	pause, tries := minPause, 0
	for {
		before := f.last
		err := f.read(ctx)
		if f.session != nil || f.failure != nil || ctx.Err() != nil {
			return f.session, f.failure
		}
		if f.last > before {
			pause, tries = minPause, 0
			continue
		}
		if tries++; tries > maxResumes {
			return nil, fmt.Errorf("following %s%s: %w", f.url, f.path, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxPause)
	}
}

// read reads events until their stream ends or is cut.
func (f *follower) read(ctx context.Context) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	watchdog := time.AfterFunc(silence, cut)
	defer watchdog.Stop()
	resp, err := f.do(ctx, http.MethodGet, f.path+"/events", nil, "Last-Event-ID", strconv.Itoa(f.last))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := problemError(resp)
		if resp.StatusCode < http.StatusInternalServerError { // it will not be another next time
			f.failure = err
		}
		return err
	}
	var id int
	var name council.EventType
	var data []byte
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadBytes('\n')
		if err != nil { // an event is whole when the blank line behind it is there
			return err
		}
		watchdog.Reset(silence)
		field, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		switch string(field) {
		case "id":
			if id, err = strconv.Atoi(string(value)); err != nil {
				return fmt.Errorf("the id of an event: %w", err)
			}
		case "event":
			name = council.EventType(value)
		case "data":
			data = value
		case "":
			if id > f.last {
				f.last = id
				f.dispatch(name, data)
			}
		}
	}
}

// dispatch passes an event on.
func (f *follower) dispatch(name council.EventType, data []byte) {
	var err error
	e := council.Event{Type: name}
	switch name {
	case council.EventStarted:
		e.Data, err = decoded[council.Started](data)
	case council.EventAnswer:
		e.Data, err = decoded[council.Answer](data)
	case council.EventBallot:
		e.Data, err = decoded[council.Review](data)
	case council.EventStage2:
		e.Data, err = decoded[council.Tally](data)
	case council.EventDelta:
		e.Data, err = decoded[council.Delta](data)
	case council.EventRestart:
		e.Data, err = decoded[council.Restart](data)
	case council.EventStage3:
		e.Data, err = decoded[council.Synthesis](data)
	case council.EventDone:
		f.session, err = decoded[*council.Session](data)
	case council.EventFailed:
		f.failure = problemOf(data, "the session failed")
	case council.EventStage1: // its answers have landed one by one
	}
	if err != nil {
		f.failure = fmt.Errorf("reading %s: %w", name, err)
		return
	}
	f.observer.Observe(e)
}

func decoded[T any](data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

// cancel tells the daemon to end the session. It is for when ctx has ended.
func (f *follower) cancel(ctx context.Context) error {
	return within(ctx, cancelTimeout, func(ctx context.Context) error {
		resp, err := f.do(ctx, http.MethodDelete, f.path, nil)
		if err != nil {
			return fmt.Errorf("telling the daemon: %w", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			return problemError(resp)
		}
		return nil
	})
}

// problemError turns a daemon's response that is none into an error.
func problemError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the daemon's answer %s: %w", resp.Status, err)
	}
	return problemOf(body, "the daemon answered "+resp.Status)
}

// problemOf turns a problem document, if it is one, into an error.
func problemOf(document []byte, before string) error {
	var p httpapi.Problem
	if json.Unmarshal(document, &p) != nil || p.Detail == "" {
		return errors.New(before)
	}
	return readable(&council.Error{Detail: before + ": " + p.Detail, Fields: p.Errors})
}

// within calls f with a context that ends after the timeout, and not with ctx.
func within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return f(ctx)
}
