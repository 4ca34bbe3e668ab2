package httpapi

import (
	"fmt"
	"net/http"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/sessions"
)

// judge is POST /v1/judge. It begins a session in which a council judges answers that exist already. Limits,
// idempotency keys and stored sessions are as in POST /v1/council.
func (a *API) judge(w http.ResponseWriter, r *http.Request) error {
	var asked council.JudgeSubmission
	problems, err := a.decode(w, r, &asked, false)
	if err != nil {
		return err
	}
	if err := a.judgeRefusal(r, problems, asked.JudgeRequest); err != nil {
		return err
	}
	start := sessions.Start{Owner: a.owner(r), Background: asked.Background}
	if err := readKey(r, asked, &start); err != nil {
		return err
	}
	s, added, err := a.start(r, start, false, func() (council.Plan, error) {
		asked.Token = a.label(r)
		return a.o.Council.PrepareJudge(asked.JudgeRequest)
	})
	if err == nil && !added {
		err = checkDigest(s, start)
	}
	if err != nil {
		return err
	}
	if asked.Background {
		w.Header().Set("Location", "/v1/judge/"+s.ID)
		return WriteJSON(w, http.StatusAccepted, s.Summary())
	}
	if _, err := Wait(r, s); err != nil {
		return err
	}
	return sendJudgement(w, s)
}

// judgeRefusal does the same as refusal, for a request to judge answers.
func (a *API) judgeRefusal(r *http.Request, p *Problems, request council.JudgeRequest) error {
	if p.count > 0 {
		request.Token = a.label(r)
		_, err := a.o.Council.PrepareJudge(request)
		p.join(err)
	}
	return p.err("the request is not valid")
}

// judgement is GET /v1/judge/{id}.
func (a *API) judgement(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	return sendJudgement(w, s)
}

// sendJudgement sends the result of a session in which answers were judged. It returns an error for any other session.
func sendJudgement(w http.ResponseWriter, s *sessions.Session) error {
	session, err := snapshot(s)
	if err != nil {
		return err
	}
	if session.Mode != council.ModeJudge {
		return &council.Error{
			Code: council.CodeNotFound, SessionID: s.ID,
			Detail: fmt.Sprintf("session %s is not a judgement; GET /v1/council/%[1]s has its result", s.ID),
		}
	}
	return WriteJSON(w, http.StatusOK, ranking.Judged(session))
}
