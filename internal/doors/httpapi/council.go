package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// runCouncil is POST /v1/council. The session ends when its client leaves, because
// every further call would cost money, unless it is in the background or has an
// idempotency key, with which its client can come back.
func (a *API) runCouncil(w http.ResponseWriter, r *http.Request) error {
	var submission council.Submission
	problems, err := a.decode(w, r, &submission, false)
	if err != nil {
		return err
	}
	streamed := submission.Stream || accepted(r, "application/json", "text/event-stream") == "text/event-stream"
	if streamed && submission.Background {
		problems.Add("background", "the session is to be streamed and to go on in the background",
			"leave stream and Accept: text/event-stream out, and watch the session at its /events; or leave background out")
	}
	if err := a.refusal(r, problems, submission.Request); err != nil {
		return err
	}
	s, err := a.begin(r, submission, council.Submission{
		Request: submission.Request, Stream: streamed, Background: submission.Background,
	}, "")
	switch {
	case err != nil:
		return err
	case submission.Background:
		w.Header().Set("Location", "/v1/council/"+s.ID)
		return WriteJSON(w, http.StatusAccepted, s.Summary())
	case streamed:
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

// refusal returns all problems of a request at once: those of its form, and those
// that Prepare finds in the rest, but not what Check finds. It returns nil where the
// form is right: begin calls prepare then.
func (a *API) refusal(r *http.Request, p *Problems, request council.Request) error {
	if p.count > 0 {
		request.Token = a.label(r)
		_, err := a.o.Council.Prepare(request)
		p.join(err)
	}
	return p.err("the request is not valid")
}

// begin returns the session that a request asks for: the one of its idempotency key,
// or else a new one. The key stands for body, which is the request as it was decoded. repeat
// is as in sessions.Start.
func (a *API) begin(r *http.Request, body any, asked council.Submission, repeat string) (*sessions.Session, error) {
	start := sessions.Start{Owner: a.owner(r), Background: asked.Background, Repeat: repeat}
	if err := readKey(r, body, &start); err != nil {
		return nil, err
	}
	if s, err := a.sessions.Find(r.Context(), start.Owner, start.Key); err != nil {
		return nil, err
	} else if s != nil {
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
	asked.Token = a.label(r)
	if start.Plan, err = a.prepare(r, asked.Request); err != nil {
		return nil, err
	}
	start.Plan.Deltas = asked.Stream || asked.Background
	start.Plan.AnswerDeltas = start.Plan.Deltas && !speaksOpenAI(r) // whose streams show the answer alone
	start.Plan.Token = asked.Token
	if a.o.Budget != nil {
		if failure := a.o.Budget.Open(r.Context(), start.Plan); failure != nil {
			return nil, failure
		}
		defer func() { //nolint:contextcheck // the client may be gone
			if !begun {
				a.o.Budget.Drop(context.WithoutCancel(r.Context()), start.Plan.SessionID)
			}
		}()
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	start.Cancel = cancel
	s, added, err := a.sessions.Add(r.Context(), start)
	switch {
	case err != nil:
		cancel(nil)
		return nil, err
	case !added: // The same request came twice at once.
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

// prepare returns the plan of a request that has a place. Each caller has one plan checked at a time, so that nobody waits
// for many of another caller.
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

// Resume goes on with the sessions that an earlier process left, and from then on with
// those of other nodes that are dead. Where there are no other nodes, each takes a place
// as soon as there is one. Otherwise another node may have one.
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
			a.o.Log.InfoContext(ctx, "going on with a session of an earlier daemon", "session_id", s.ID)
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
					case <-s.Done(): // released
					default: // cancelled: it ends without a place, because it calls nobody
						_, _ = a.carryOut(ctx, s.Session, s.Plan, func() {})
					}
				}
			})
		},
	})
}

// turn takes a place as soon as there is one. It reports false where ctx ends before. While
// the daemon stops, nobody gets one: the next daemon goes on with who still waits.
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

// TakenOver returns how many sessions Resume went on with.
func (a *API) TakenOver() int64 { return a.takenOver.Load() }

// run carries out a session, and after its end what follows a session.
func (a *API) run(ctx context.Context, s *sessions.Session, plan council.Plan, release func()) {
	a.ending.Add(1)
	defer a.ending.Done()
	session, err := a.carryOut(ctx, s, plan, release)
	select { // the end of a session that is kept is stored before it is shown
	case <-s.Done():
	case <-ctx.Done(): // cancelled, or another node has the session
		return
	}
	if err == nil && a.o.Ended != nil {
		a.ended(ctx, plan, session)
	}
}

// ended does what follows a session until Cancel is called. As many may do so at once as sessions may
// run: where a provider is too slow for that, nothing follows further sessions.
func (a *API) ended(ctx context.Context, plan council.Plan, session *council.Session) {
	select {
	case a.follow <- struct{}{}:
		defer func() { <-a.follow }()
	default:
		a.o.Log.WarnContext(ctx, "the reviewers are not asked about this session: they still have as many others as may run at once",
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

// carryOut carries out a session from its first event to its last. It frees the place of
// the session before a client learns that the session is over.
func (a *API) carryOut(
	ctx context.Context, s *sessions.Session, plan council.Plan, release func(),
) (*council.Session, error) {
	session, err := a.perform(ctx, plan, s)
	release()
	if err = a.finish(ctx, s, session, err); err != nil {
		// The session cannot be encoded: end it as failed, with the plan alone, which can be.
		a.o.Log.ErrorContext(ctx, "a session could not be written", "error", err, "session_id", s.ID)
		session = plan.Session()
		session.Status = council.StatusFailed
		_ = a.finish(ctx, s, session, err)
	}
	return session, err
}

// finish ends a session as its run returned it.
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

// Wait returns a session at its end, or why it has no result. It ends early when the
// client is gone, even if the session goes on: the client's connection takes a place.
func Wait(r *http.Request, s *sessions.Session) (*council.Session, error) {
	select {
	case <-s.Done():
	case <-r.Context().Done():
		s.Leave(context.Cause(r.Context()))
		if clientGone(r) {
			return nil, &council.Error{Code: council.CodeCancelled, Detail: "the client is gone", SessionID: s.ID}
		}
		<-s.Done() // The daemon stops, and the client may still be there.
	}
	session, failure := s.Result()
	if failure != nil {
		return nil, failure
	}
	return session, nil
}

// clientGone reports whether the client of a request has left. When the daemon itself
// ends a request, the cause is another.
func clientGone(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), context.Canceled) }

// Idle waits until no session runs, the ends of all are shown, and what follows them is done. It then keeps all places,
// so that no session begins any more. It is for shutting down.
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
	go func() { // ends with the sessions that have no place any more
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

// Cancel cancels every session that runs, and what follows those that have ended. Sessions that are kept go on
// elsewhere.
func (a *API) Cancel(cause error) {
	a.cancel()
	a.sessions.Cancel(cause)
}
