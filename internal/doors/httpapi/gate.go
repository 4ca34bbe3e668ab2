package httpapi

import (
	"fmt"
	"net/http"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/sessions"
)

// gate is POST /v1/gate. It begins a session in which a council reviews a change. Limits, idempotency keys and stored
// sessions are as in POST /v1/council.
func (a *API) gate(w http.ResponseWriter, r *http.Request) error {
	var asked gate.Submission
	problems, err := a.decode(w, r, &asked, false)
	if err != nil {
		return err
	}
	if err := a.gateRefusal(r, problems, asked.Request); err != nil {
		return err
	}
	start := sessions.Start{Owner: a.owner(r), Background: asked.Background}
	if err := readKey(r, asked, &start); err != nil {
		return err
	}
	s, added, err := a.start(r, start, false, func() (council.Plan, error) { return a.prepareGate(r, asked.Request) })
	if err == nil && !added {
		err = checkDigest(s, start)
	}
	if err != nil {
		return err
	}
	if asked.Background {
		w.Header().Set("Location", "/v1/gate/"+s.ID)
		return WriteJSON(w, http.StatusAccepted, s.Summary())
	}
	if _, err := Wait(r, s); err != nil {
		return err
	}
	return sendGateReport(w, s)
}

// prepareGate returns the plan of a request to review a change.
func (a *API) prepareGate(r *http.Request, request gate.Request) (council.Plan, error) {
	request.Token = a.label(r)
	task, err := request.Task()
	if err != nil {
		return council.Plan{}, err
	}
	return a.o.Council.PrepareTask(task)
}

// gateRefusal does the same as refusal, for a request to review a change.
func (a *API) gateRefusal(r *http.Request, p *Problems, request gate.Request) error {
	if p.count > 0 {
		_, err := a.prepareGate(r, request)
		p.join(err)
	}
	return p.err("the request is not valid")
}

// gateReport is GET /v1/gate/{id}.
func (a *API) gateReport(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	return sendGateReport(w, s)
}

// sendGateReport sends the report of a session in which a change was reviewed. If the session still runs, it sends the
// summary. It returns an error if the session has no report.
func sendGateReport(w http.ResponseWriter, s *sessions.Session) error {
	summary := s.Summary()
	session, err := snapshot(s)
	if err != nil {
		return err
	}
	if session.Mode != council.ModeTask {
		return &council.Error{
			Code: council.CodeNotFound, SessionID: s.ID,
			Detail: fmt.Sprintf("session %s is no review of a change; GET /v1/council/%[1]s has its result", s.ID),
		}
	}
	if session.Task == nil {
		if summary.Status == council.StatusRunning {
			return WriteJSON(w, http.StatusAccepted, summary)
		}
		return &council.Error{
			Code: council.CodeNotFound, SessionID: s.ID,
			Detail: fmt.Sprintf("session %s is %s and has no report; GET /v1/council/%[1]s has what it got", s.ID, summary.Status),
		}
	}
	report, err := gate.ReportOf(session)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, report)
}
