package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/go-chi/chi/v5"
)

var errDeleted = errors.New("cancelled by DELETE")

// SessionList is the body of GET /v1/council.
type SessionList struct {
	Sessions []council.Summary `json:"sessions"` // the newest first
}

// listSessions is GET /v1/council.
func (a *API) listSessions(w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, http.StatusOK, SessionList{a.sessions.List(a.owner(r))})
}

// session is GET /v1/council/{id}.
func (a *API) session(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	return sendSession(w, s)
}

// sendSession sends a session as far as it is known.
func sendSession(w http.ResponseWriter, s *sessions.Session) error {
	body, err := s.JSON()
	if err != nil {
		return fmt.Errorf("encoding the session: %w", err)
	}
	send(w, http.StatusOK, "application/json", body)
	return nil
}

// deleteSession is DELETE /v1/council/{id}: it cancels a session that runs, and forgets
// one that has ended.
func (a *API) deleteSession(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	if summary := s.Summary(); summary.Status == council.StatusRunning {
		s.Cancel(errDeleted)
		return writeJSON(w, http.StatusAccepted, summary)
	}
	a.sessions.Delete(s)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// events is GET /v1/council/{id}/events.
func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	entries, more := s.Entries(0)
	seen, count := 0, len(entries)
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if seen, err = strconv.Atoi(last); err != nil || seen < 0 || seen > count {
			return &council.Error{Code: council.CodeInvalid, Detail: "the header Last-Event-ID is not valid", Fields: []council.FieldError{{
				Field: "Last-Event-ID", Message: fmt.Sprintf("%q is not the id of an event of this session", last),
				Fix: fmt.Sprintf("give the id of the last event that arrived, at most %d, or leave the header out", count),
			}}}
		}
	}
	if seen == count && more == nil { // This status tells an EventSource not to connect again.
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	a.streamEntries(w, r, s, seen)
	return nil
}

// find returns the caller's session that the path names.
func (a *API) find(r *http.Request) (*sessions.Session, error) {
	id := chi.URLParam(r, "id")
	if s := a.sessions.Get(a.owner(r), id); s != nil {
		return s, nil
	}
	return nil, &council.Error{
		Code:   council.CodeNotFound,
		Detail: fmt.Sprintf("there is no session %q of this token; GET /v1/council lists those that are kept", id),
	}
}
