package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/go-chi/chi/v5"
)

// SessionList is the body of GET /v1/council.
type SessionList struct {
	Sessions []council.Summary `json:"sessions"` // the newest first
	More     bool              `json:"more"`     // older sessions match too
}

// maxListed is the most sessions in one list. It is also the default limit.
const maxListed = 1000

// listSessions is GET /v1/council.
func (a *API) listSessions(w http.ResponseWriter, r *http.Request) error {
	p := newParameters(r)
	search := strings.ToLower(strings.TrimSpace(p.get("q")))
	status := council.Status(p.choice("status", "use one of", []string{
		string(council.StatusRunning), string(council.StatusComplete), string(council.StatusDegraded),
		string(council.StatusFailed),
		string(council.StatusCancelled),
	}))
	before := p.get("before")
	limit := maxListed
	if value := p.get("limit"); value != "" {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxListed {
			p.Add("limit", fmt.Sprintf("%q is not a number of sessions from 1 to %d", value, maxListed),
				"give such a number, or leave it out")
		}
		limit = n
	}
	all := a.sessions.List(a.owner(r))
	if before != "" {
		i := slices.IndexFunc(all, func(s council.Summary) bool { return s.ID == before })
		if i < 0 {
			p.Add("before", fmt.Sprintf("there is no session %q", before),
				"give the session_id of the last session of the list before, or leave it out")
		}
		all = all[i+1:]
	}
	if err := p.err(); err != nil {
		return err
	}
	found := slices.DeleteFunc(all, func(s council.Summary) bool {
		return status != "" && s.Status != status || search != "" && !strings.Contains(strings.ToLower(s.Query), search)
	})
	n := min(limit, len(found))
	return WriteJSON(w, http.StatusOK, SessionList{found[:n], n < len(found)})
}

// request is GET /v1/council/{id}/request. It returns the request of the session in the form that POST /v1/council
// takes.
func (a *API) request(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, council.Submission{Request: s.Request()})
}

// session is GET /v1/council/{id}.
func (a *API) session(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	return sendSession(w, s)
}

// sendSession sends a session. If the session still runs, the parts that are not known yet are missing.
func sendSession(w http.ResponseWriter, s *sessions.Session) error {
	body, err := s.JSON()
	if err != nil {
		return fmt.Errorf("encoding the session: %w", err)
	}
	send(w, http.StatusOK, "application/json", body)
	return nil
}

// snapshot returns a session as it is now. A session that runs does not change the result.
func snapshot(s *sessions.Session) (*council.Session, error) {
	var session council.Session
	body, err := s.JSON()
	if err == nil {
		err = json.Unmarshal(body, &session)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the session: %w", err)
	}
	return &session, nil
}

// deleteSession is DELETE /v1/council/{id}. It cancels a session that runs, and deletes a session that has ended.
func (a *API) deleteSession(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	if summary := s.Summary(); summary.Status == council.StatusRunning {
		if err := a.sessions.Stop(r.Context(), s); err != nil {
			return unstored(s, "cancelled for good", err)
		}
		return WriteJSON(w, http.StatusAccepted, summary)
	}
	if err := a.sessions.Delete(r.Context(), s); err != nil {
		return unstored(s, "deleted", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// unstored returns the error for a session that cannot be deleted or cancelled because the journal cannot be written.
// The argument what is the participle for the message, such as "deleted".
func unstored(s *sessions.Session, what string, err error) error {
	return &council.Error{
		Code: council.CodeUnavailable, SessionID: s.ID, RetryAfter: 5 * time.Second, Cause: err,
		Detail: "the session cannot be " + what + " now, because its log cannot be written; try again later",
	}
}

// events is GET /v1/council/{id}/events. The stream begins after the event that the header Last-Event-ID names.
func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	behind := sessions.Position{}
	valid := true
	last := r.Header.Get("Last-Event-ID")
	if last != "" {
		behind, valid = sessions.ParsePosition(last)
	}
	end := s.Last(r.Context(), behind.Number)
	if !valid || behind.Number > end.Number {
		return &council.Error{
			Code:   council.CodeInvalid,
			Detail: "the header Last-Event-ID is not valid",
			Fields: []council.FieldError{{
				Field: "Last-Event-ID", Message: fmt.Sprintf("%q is not the id of an event of this session", last),
				Fix: fmt.Sprintf("give the id of the last event that arrived, at most %d, or leave the header out",
					end.Number),
			}},
		}
	}
	if behind.Number == end.Number && s.Summary().Status != council.StatusRunning {
		// This status tells an EventSource not to connect again.
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	a.streamEntries(w, r, s, behind)
	return nil
}

// find returns the caller's session with the id in the path. If there is none, it returns an error.
func (a *API) find(r *http.Request) (*sessions.Session, error) {
	id := chi.URLParam(r, "id")
	if s, err := a.Find(r, id); s != nil || err != nil {
		return s, err
	}
	return nil, &council.Error{
		Code:   council.CodeNotFound,
		Detail: fmt.Sprintf("there is no session %q of this token; GET /v1/council lists those that are kept", id),
	}
}
