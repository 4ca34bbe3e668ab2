package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// Submission is the body of POST /v1/council: a question, and how its answer is
// to be delivered.
type Submission struct {
	council.Request
	Stream     bool `json:"stream,omitempty"`     // as events
	Background bool `json:"background,omitempty"` // later: the session survives its client
}

// runCouncil is POST /v1/council. Unless it is in the background, the session ends
// when its clients have gone away: every further call would cost money.
func (a *API) runCouncil(w http.ResponseWriter, r *http.Request) error {
	var submission Submission
	if err := a.decode(w, r, &submission); err != nil {
		return err
	}
	streamed := submission.Stream || accepted(r, "application/json", "text/event-stream") == "text/event-stream"
	if streamed && submission.Background {
		return &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: []council.FieldError{{
			Field: "background", Message: "the session is to be streamed and to go on in the background",
			Fix: "leave stream and Accept: text/event-stream out, and watch the session at its /events; or leave background out",
		}}}
	}
	s, err := a.begin(r, submission, submission.Background, func() (council.Plan, error) {
		plan, err := a.o.Council.Prepare(submission.Request)
		plan.Deltas = streamed || submission.Background
		return plan, err
	})
	switch {
	case err != nil:
		return err
	case submission.Background:
		w.Header().Set("Location", "/v1/council/"+s.ID)
		return writeJSON(w, http.StatusAccepted, s.Summary())
	case streamed:
		release := s.Hold()
		stream(w, r, s, 0, func(events []byte) ([]byte, bool) { return events, false })
		release(context.Cause(r.Context()))
		return nil
	default:
		body, err := wait(r, s)
		if err != nil {
			return err
		}
		send(w, http.StatusOK, "application/json", body)
		return nil
	}
}

// begin returns the session that a request asks for: the one that runs or ran for
// its idempotency key, or else a new one.
func (a *API) begin(r *http.Request, request any, background bool, prepare func() (council.Plan, error)) (*sessions.Session, error) {
	start := sessions.Start{Owner: a.owner(r), Background: background}
	if err := readKey(r, request, &start); err != nil {
		return nil, err
	}
	if s := a.sessions.Find(start.Owner, start.Key); s != nil {
		return s, checkDigest(s, start)
	}
	release, err := a.admit(r)
	if err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			release()
		}
	}()
	if start.Plan, err = prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	start.Cancel = cancel
	s, added := a.sessions.Add(start)
	if !added { // the same request came twice at once
		cancel(nil)
		return s, checkDigest(s, start)
	}
	begun = true
	go func() {
		defer cancel(nil)
		a.run(ctx, s, start.Plan, release)
	}()
	return s, nil
}

// run carries out a session from its first event to its last. Its place is free
// again when a client learns that it is over.
func (a *API) run(ctx context.Context, s *sessions.Session, plan council.Plan, release func()) {
	session, err := a.perform(ctx, plan, s)
	release()
	if err = finish(ctx, s, session, err); err != nil { // it has no JSON
		a.o.Log.ErrorContext(ctx, "a session could not be written", "error", err, "session_id", s.ID)
		session = plan.Session()
		session.Status = council.StatusFailed
		_ = finish(ctx, s, session, err) // this one has
	}
}

// finish ends a session as its run returned it. A panic becomes an error.
func finish(ctx context.Context, s *sessions.Session, session *council.Session, err error) (failed error) {
	defer func() {
		if v := recover(); v != nil {
			failed = fmt.Errorf("panic: %v", v)
		}
	}()
	if err == nil {
		return s.Finish(session, nil, nil)
	}
	failure := coded(err)
	failure.SessionID = s.ID
	return s.Finish(session, failure, problem(ctx, failure))
}

// perform runs the council. A panic becomes an error.
func (a *API) perform(ctx context.Context, plan council.Plan, s *sessions.Session) (session *council.Session, err error) {
	defer func() {
		if v := recover(); v != nil {
			a.o.Log.ErrorContext(ctx, "panic in a session", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = errors.New("panic")
		}
	}()
	return a.o.Council.Run(ctx, plan, s)
}

// wait returns a session as JSON when it is over, or why it has no result.
func wait(r *http.Request, s *sessions.Session) ([]byte, error) {
	release := s.Hold()
	select {
	case <-s.Done():
	case <-r.Context().Done():
		release(context.Cause(r.Context()))
		<-s.Done() // the client may be there still, when it is the daemon that stops
	}
	if failure := s.Failure(); failure != nil {
		return nil, failure
	}
	return s.JSON()
}

// Idle waits until no session runs. It then keeps all places, so that none
// begins any more: it is for shutting down.
func (a *API) Idle(ctx context.Context) error {
	for range cap(a.places) - a.taken {
		select {
		case a.places <- struct{}{}:
			a.taken++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Cancel cancels every session that runs.
func (a *API) Cancel(cause error) { a.sessions.Cancel(cause) }
