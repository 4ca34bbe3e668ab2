package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/go-chi/chi/v5"
)

// SessionList is the body of GET /v1/council.
type SessionList struct {
	Sessions []council.Summary `json:"sessions"` // the newest first
	// More says that older sessions match too, or may match because the search has not reached them yet. Next is then the
	// id from which the search goes on.
	More bool   `json:"more"`
	Next string `json:"next,omitempty"`
}

const (
	// maxListed is the most sessions in one list, or the most conversations. It is also the default limit.
	maxListed = 1000
	// maxSearched is how many answers one request reads. A request thus takes a bounded time.
	maxSearched = 500
)

// listSessions is GET /v1/council.
func (a *API) listSessions(w http.ResponseWriter, r *http.Request) error {
	p := newParameters(r)
	f := filter{
		read:   func(id string) (string, error) { return a.sessions.Answer(r.Context(), a.owner(r), id) },
		search: strings.ToLower(strings.TrimSpace(p.get("q"))),
		status: council.Status(p.choice("status", "use one of", []string{
			string(council.StatusRunning), string(council.StatusComplete), string(council.StatusDegraded),
			string(council.StatusFailed),
			string(council.StatusCancelled),
		})),
		council: p.get("council"),
		since:   p.time("since"),
		until:   p.time("until"),
	}
	thread := p.get("thread")
	whole := p.choice("threads", "use", []string{"true"}) != ""
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
	if thread != "" {
		all = turns(all, thread)
	}
	groups, begin := grouped(all, whole, before)
	if before != "" && begin == 0 {
		p.Add("before", fmt.Sprintf("there is no session %q", before),
			"give the session_id of the last session of the list before, or leave it out")
	}
	if err := p.err(); err != nil {
		return err
	}
	list, err := f.list(groups[begin:], limit)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, list)
}

// turns returns the sessions of the conversation to which a session belongs.
func turns(all []council.Summary, id string) []council.Summary {
	if i := slices.IndexFunc(all, func(s council.Summary) bool { return s.ID == id }); i >= 0 {
		id = all[i].Thread
	}
	return slices.DeleteFunc(all, func(s council.Summary) bool { return s.Thread != id })
}

// grouped returns the sessions in groups. If whole is set, a group is a conversation, and the conversation with the
// newest session comes first. Otherwise each session is a group. The result begin is the index of the group that
// follows the session before, or 0 if there is no such session.
func grouped(all []council.Summary, whole bool, before string) (groups [][]council.Summary, begin int) {
	place := map[string]int{}
	for _, s := range all {
		name := s.ID
		if whole {
			name = s.Thread
		}
		i, ok := place[name]
		if !ok {
			i = len(groups)
			place[name] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], s)
		if s.ID == before {
			begin = i + 1
		}
	}
	return groups, begin
}

// filter says which sessions a list has.
type filter struct {
	search       string // in lower case
	status       council.Status
	council      string
	since, until time.Time
	read         func(id string) (string, error) // returns the answer of a session
	reads        int                             // how many answers were read
}

// list returns at most limit groups that have a session that matches. It returns fewer if it has read as many answers
// as one request may read.
func (f *filter) list(groups [][]council.Summary, limit int) (SessionList, error) {
	list := SessionList{Sessions: []council.Summary{}}
	found := 0
	for _, group := range groups {
		matches, err := f.any(group)
		switch {
		case err != nil:
			return list, err
		case matches && found == limit, f.reads > maxSearched && list.Next != "":
			list.More = true
			return list, nil
		case matches:
			found++
			list.Sessions = append(list.Sessions, group...)
		}
		list.Next = group[len(group)-1].ID
	}
	list.Next = ""
	return list, nil
}

// any reports whether a session of a group matches.
func (f *filter) any(group []council.Summary) (bool, error) {
	for _, s := range group {
		if matches, err := f.matches(s); matches || err != nil {
			return matches, err
		}
	}
	return false, nil
}

func (f *filter) matches(s council.Summary) (bool, error) {
	switch {
	case f.status != "" && s.Status != f.status,
		f.council != "" && s.Council != f.council,
		s.Created.Before(f.since),
		!f.until.IsZero() && !s.Created.Before(f.until):
		return false, nil
	case f.search == "", f.within(s.Title), f.within(s.Query), f.within(s.Answer):
		return true, nil
	case s.Status != council.StatusComplete && s.Status != council.StatusDegraded:
		return false, nil
	}
	f.reads++
	answer, err := f.read(s.ID)
	return err == nil && f.within(answer), err
}

// within reports whether a text holds the text that the caller looks for.
func (f *filter) within(text string) bool { return strings.Contains(strings.ToLower(text), f.search) }

// renameSession is PATCH /v1/council/{id}. It gives a title to a session that has ended.
func (a *API) renameSession(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	var asked council.Renaming
	p, err := a.decode(w, r, &asked, false)
	if err != nil {
		return err
	}
	title := strings.TrimSpace(asked.Title)
	if utf8.RuneCountInString(title) > council.MaxTitle || strings.ContainsFunc(title, unicode.IsControl) {
		p.Add("title", fmt.Sprintf("a title has at most %d characters, all on one line", council.MaxTitle),
			"give a shorter title, or an empty one to show the question again")
	}
	if err := p.err("the title is not valid"); err != nil {
		return err
	}
	summary, err := a.sessions.Rename(r.Context(), s, title)
	switch {
	case errors.Is(err, sessions.ErrRuns):
		return &council.Error{
			Code: council.CodeConflict, SessionID: s.ID, Detail: "the session still runs; rename it when it has ended",
		}
	case err != nil:
		return unstored(s, "renamed", err)
	}
	return WriteJSON(w, http.StatusOK, summary)
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
		if err := a.Stop(r, s); err != nil {
			return err
		}
		return WriteJSON(w, http.StatusAccepted, summary)
	}
	if err := a.Delete(r, s); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// unstored returns the error for a session that cannot be deleted or cancelled because the journal cannot be written.
// The argument what is the participle for the message, such as "deleted" or "renamed".
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
	if id == "stream" {
		return nil, nothing(r, hint(r.URL.Path))
	}
	return nil, &council.Error{
		Code:   council.CodeNotFound,
		Detail: fmt.Sprintf("there is no session %q of this token; GET /v1/council lists those that are kept", id),
	}
}
