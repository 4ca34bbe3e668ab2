package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// runCouncil is POST /v1/council. If the session is in the background or has an idempotency key, it continues when its
// client leaves, because the client can come back. Any other session ends when its client leaves, because every further
// call would cost money.
func (a *API) runCouncil(w http.ResponseWriter, r *http.Request) error {
	var submission council.Submission
	problems, err := a.decode(w, r, &submission, false)
	if err != nil {
		return err
	}
	submission.Map = true
	asked := submission
	asked.Stream = streams(r, problems, submission.Stream, submission.Background)
	if err := a.refusal(r, problems, submission.Request); err != nil {
		return err
	}
	s, err := a.begin(r, submission, asked, "")
	if err != nil {
		return err
	}
	return a.deliver(w, r, s, asked.Stream, asked.Background)
}

// streams reports whether a request asks for a streamed session, by a field of its body or by its Accept header. It
// adds a problem if the session is also to run in the background.
func streams(r *http.Request, p *Problems, stream, background bool) bool {
	stream = stream || accepted(r, "application/json", "text/event-stream") == "text/event-stream"
	if stream && background {
		p.Add("background", "stream and background are both given",
			"leave one of them out; the events of a session in the background are at its /events")
	}
	return stream
}

// deliver answers the request that began a session. If the session is streamed, deliver sends its events. If it runs in
// the background, deliver sends its summary. Otherwise deliver waits for its end.
func (a *API) deliver(w http.ResponseWriter, r *http.Request, s *sessions.Session, stream, background bool) error {
	switch {
	case background:
		w.Header().Set("Location", "/v1/council/"+s.ID)
		return WriteJSON(w, http.StatusAccepted, s.Summary())
	case stream:
		defer func() { s.Leave(context.Cause(r.Context())) }()
		a.streamEntries(w, r, s, sessions.Position{})
		return nil
	default:
		if _, err := Wait(r, s); err != nil {
			return err
		}
		return sendSession(w, s)
	}
}

// refusal returns one error with the problems of the request's form and the problems that Prepare finds. It does not
// call Check. If the form has no problems, refusal returns nil. Then begin calls prepare, which finds the other
// problems.
func (a *API) refusal(r *http.Request, p *Problems, request council.Request) error {
	if p.count > 0 {
		request.Token = a.label(r)
		_, err := a.o.Council.Prepare(request)
		p.join(err)
	}
	return p.err("the request is not valid")
}

// begin returns the session with the request's idempotency key, or starts a new session. The argument body is the
// decoded request: begin refuses a key that came with another body before. The argument repeat becomes
// sessions.Start.Repeat.
func (a *API) begin(r *http.Request, body any, asked council.Submission, repeat string) (*sessions.Session, error) {
	start := sessions.Start{Owner: a.owner(r), Background: asked.Background, Repeat: repeat}
	if err := readKey(r, body, &start); err != nil {
		return nil, err
	}
	s, added, err := a.start(r, start, asked.Stream, func() (council.Plan, error) {
		asked.Token = a.label(r)
		plan, err := a.prepare(r, asked.Request)
		plan.Door = asked.Door
		return plan, err
	})
	if err != nil || added {
		return s, err
	}
	return s, checkDigest(s, start)
}

// start returns the session with the idempotency key of the argument start. If there is none, it starts a new session
// with the plan that the function prepare returns, and added is true.
func (a *API) start(
	r *http.Request, start sessions.Start, stream bool, prepare func() (council.Plan, error),
) (s *sessions.Session, added bool, err error) {
	if s, err := a.sessions.Find(r.Context(), start.Owner, start.Key); s != nil || err != nil {
		return s, false, err
	}
	release, err := a.admit(r)
	if err != nil {
		return nil, false, err
	}
	begun := false
	defer func() {
		if !begun {
			release()
		}
	}()
	if start.Plan, err = prepare(); err != nil {
		return nil, false, err
	}
	start.Plan.Turn = a.sessions.Turn(r.Context(), start.Owner, start.Plan)
	start.Plan.Deltas = stream || start.Background
	start.Plan.AnswerDeltas = start.Plan.Deltas && !speaksOpenAI(r) // OpenAI's streams show only the final answer
	start.Plan.Token = a.label(r)
	start.Plan.Origin.RequestID = council.RequestID(r.Context())
	if a.o.Traceparent != nil {
		start.Plan.Origin.Traceparent = a.o.Traceparent(r.Context())
	}
	if a.o.Budget != nil {
		if failure := a.o.Budget.Open(r.Context(), start.Plan); failure != nil {
			return nil, false, failure
		}
		defer func() { //nolint:contextcheck // the client may be gone
			if !begun {
				a.o.Budget.Drop(context.WithoutCancel(r.Context()), start.Plan.SessionID)
			}
		}()
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	start.Cancel = cancel
	s, added, err = a.sessions.Add(r.Context(), start)
	if err != nil || !added { // If added is false, the same request came twice at the same time.
		cancel(nil)
		return s, false, err
	}
	begun = true
	go func() {
		defer cancel(nil)
		a.run(ctx, s, start.Plan, release)
	}()
	return s, true, nil
}

// prepare returns the checked plan of a request that has a place. For each caller it checks only one plan at a time,
// because a caller with many requests must not delay other callers.
func (a *API) prepare(r *http.Request, request council.Request) (council.Plan, error) {
	plan, err := a.o.Council.Prepare(request)
	if err != nil || plan.Output == nil {
		return plan, err
	}
	checks := a.callerOf(r).checks
	select {
	case checks <- struct{}{}:
		defer func() { <-checks }()
		return plan, a.o.Council.Check(r.Context(), plan)
	case <-r.Context().Done():
		return plan, &council.Error{Code: council.CodeCancelled, Detail: "the client is gone"}
	}
}

// Resume continues the sessions that an earlier process left unfinished. Later it continues the sessions of other nodes
// that die. On a single machine, each session waits for a place. In a cluster Resume takes a session only when a place
// is free, because another node may have a free place earlier.
func (a *API) Resume(ctx context.Context) {
	free := func() { <-a.places }
	a.sessions.Resume(ctx, sessions.Runner{
		Place: func() (release func(), ok bool) {
			if a.o.Daemon.Stopping() {
				return nil, false
			}
			select {
			case a.places <- struct{}{}:
				return free, true
			default:
				return nil, false
			}
		},
		Run: func(s sessions.Resumed, release func()) {
			a.takenOver.Add(1)
			a.o.Log.InfoContext(ctx, "continuing a session of an earlier daemon", "session_id", s.ID)
			ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
			s.Begin(cancel)
			if s.Cancelled {
				cancel(sessions.ErrDeleted)
			}
			a.resumed.Go(func() {
				defer cancel(nil)
				switch {
				case release != nil:
					a.run(ctx, s.Session, s.Plan, release)
				case a.turn(ctx):
					a.run(ctx, s.Session, s.Plan, free)
				default:
					select {
					case <-s.Done(): // The session was released to another process.
					default: // The session was cancelled. It ends without a place, because it makes no calls.
						_, _ = a.carryOut(ctx, s.Session, s.Plan, func() {})
					}
				}
			})
		},
	})
}

// turn waits for a place and takes it. It returns false if ctx ends first. While the daemon stops, turn takes no place,
// because the next daemon continues the sessions that still wait.
func (a *API) turn(ctx context.Context) bool {
	select {
	case a.places <- struct{}{}:
		if !a.o.Daemon.Stopping() {
			return true
		}
		<-a.places
		<-ctx.Done()
	case <-ctx.Done():
	}
	return false
}

// Status returns the status of a session as clients see it. The result is "" if the session is not kept.
func (a *API) Status(owner sessions.Owner, id string) council.Status {
	return a.sessions.Status(owner, id)
}

// TakenOver returns how many sessions Resume has continued so far.
func (a *API) TakenOver() int64 { return a.takenOver.Load() }

// run runs a session to its end, then calls Options.Ended if the session has a result.
func (a *API) run(ctx context.Context, s *sessions.Session, plan council.Plan, release func()) {
	a.ending.Add(1)
	defer a.ending.Done()
	session, err := a.carryOut(ctx, s, plan, release)
	select { // A session in the journal is done only when its end is stored.
	case <-s.Done():
	case <-ctx.Done(): // The session was cancelled, or another node has it.
		return
	}
	if err == nil && a.o.Ended != nil {
		a.ended(ctx, plan, session)
	}
}

// ended calls Options.Ended, and cancels that call when Cancel is called. At most MaxSessions such calls run at once.
// If all of them are in progress, for example because a provider is slow, ended skips the session.
func (a *API) ended(ctx context.Context, plan council.Plan, session *council.Session) {
	select {
	case a.follow <- struct{}{}:
		defer func() { <-a.follow }()
	default:
		a.o.Log.WarnContext(ctx,
			"the reviewers are not asked about this session: they still have as many others as may run at once",
			"session_id", plan.SessionID)
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-a.cancelled:
			cancel()
		case <-ctx.Done():
		}
	})
	defer func() {
		if v := recover(); v != nil {
			a.logPanic(ctx, "session that had ended", v)
		}
	}()
	a.o.Ended(ctx, plan, session)
}

// carryOut runs a session from its first event to its last. It calls release before clients can see the end, because a
// client that has its answer must find the place free.
func (a *API) carryOut(
	ctx context.Context, s *sessions.Session, plan council.Plan, release func(),
) (*council.Session, error) {
	session, err := a.perform(ctx, plan, s)
	release()
	if err = a.finish(ctx, s, session, err); err != nil {
		// The session cannot be encoded. End it as failed, with only its plan, which can be encoded.
		a.o.Log.ErrorContext(ctx, "a session could not be written", "error", err, "session_id", s.ID)
		session = plan.Session()
		session.Status = council.StatusFailed
		_ = a.finish(ctx, s, session, err)
	}
	return session, err
}

// finish ends a session with the result or the error of its run.
func (a *API) finish(ctx context.Context, s *sessions.Session, session *council.Session, err error) error {
	if err == nil {
		return s.Finish(session, nil, nil)
	}
	failure := a.failureOf(ctx, s, session, err)
	return s.Finish(session, failure, problem(ctx, failure))
}

// perform runs the council. A panic becomes an error.
func (a *API) perform(
	ctx context.Context, plan council.Plan, s *sessions.Session,
) (session *council.Session, err error) {
	defer func() {
		if v := recover(); v != nil {
			a.logPanic(ctx, "session", v)
			err = errors.New("panic")
		}
	}()
	return a.o.Council.Run(ctx, plan, s, s.Log())
}

// Wait waits for the end of a session. It returns the session or, if the session has no result, the error that says
// why. If the client leaves, Wait returns at once, even if the session continues. An open request takes a connection
// and memory (open.go), which Wait must not hold for a client that is gone.
func Wait(r *http.Request, s *sessions.Session) (*council.Session, error) {
	select {
	case <-s.Done():
	case <-r.Context().Done():
		s.Leave(context.Cause(r.Context()))
		if clientGone(r) {
			return nil, &council.Error{Code: council.CodeCancelled, Detail: "the client is gone", SessionID: s.ID}
		}
		<-s.Done() // The daemon stops. The client may still be connected, so it gets the outcome.
	}
	session, failure := s.Result()
	if failure != nil {
		return nil, failure
	}
	return session, nil
}

// clientGone reports whether the client of a request has left. If the daemon itself ends a request, the context of the
// request has another cause.
func clientGone(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), context.Canceled) }

// Idle waits until no session runs, clients can see all ends, and all calls of Options.Ended have returned. It keeps
// every place that it gets, so no session begins afterwards. The daemon calls Idle to shut down. If ctx ended first,
// the daemon may call Idle again. Calls must not overlap.
func (a *API) Idle(ctx context.Context) error {
	for range cap(a.places) - a.taken {
		select {
		case a.places <- struct{}{}:
			a.taken++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ended := make(chan struct{})
	go func() { // returns when the last session that gave up its place has ended
		a.ending.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel cancels every session that runs and every call of Options.Ended. If a cancelled session is in the journal,
// another process continues the session.
func (a *API) Cancel(cause error) {
	a.cancel()
	a.sessions.Cancel(cause)
}
