package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// This file is for doors in other packages. A door is an interface for clients, such as the one in package openai. It
// mounts its routes with Mount, begins sessions with Begin, and sends the sessions in its own form.

// Route is a route of a door in another package. The callers of the route must pass authenticate, and have the same
// limits as all other callers.
type Route struct {
	Method string
	// Pattern is a pattern of chi. Request.PathValue returns the values of its wildcards.
	Pattern string
	Asks    bool // the route begins sessions, so its callers need council.MayAsk
	// Handle answers a request or returns an error. The API writes the error in the form of OpenAI's interface if the
	// path belongs to it, and otherwise as a problem document.
	Handle func(w http.ResponseWriter, r *http.Request) error
}

// Mount adds routes. It must be called before the first request.
func (a *API) Mount(routes ...Route) {
	private, asking := a.forCallers(a.router)
	for _, route := range routes {
		on := private
		if route.Asks {
			on = asking
		}
		on.Method(route.Method, route.Pattern, a.handler(route.Handle))
	}
}

// TextList is a list in a body for which a client may also send one string.
type TextList interface {
	// SetText sets the list from that string.
	SetText(text string)
	// Wanted says in an error what a client may send, such as "a text, or a list of parts".
	Wanted() string
}

// Skimmer is an object in a body whose type or role can make its other fields unnecessary. Such fields are skipped.
type Skimmer interface {
	// Skim gets the fields "type" and "role" of the object, or "" for a missing field. If Skim returns true, the other
	// fields are not read. Before that, Skim itself stores what it needs of kind and role.
	Skim(kind, role string) bool
}

// Find returns the caller's session with this id, or nil if there is none.
func (a *API) Find(r *http.Request, id string) (*sessions.Session, error) {
	return a.sessions.Get(r.Context(), a.owner(r), id)
}

// Stop cancels a session that runs. It does not wait for the end of the session.
func (a *API) Stop(r *http.Request, s *sessions.Session) error {
	if err := a.sessions.Stop(r.Context(), s); err != nil {
		return unstored(s, "cancelled for good", err)
	}
	return nil
}

// Delete deletes a session that has ended.
func (a *API) Delete(r *http.Request, s *sessions.Session) error {
	if err := a.sessions.Delete(r.Context(), s); err != nil {
		return unstored(s, "deleted", err)
	}
	return nil
}

// Begin begins the session that a request asks for. First it reads the body into the struct that body points to.
// Unknown fields have no effect. Then it calls the function asked, which returns the submission and adds the problems
// of the request to p. If the body has problems and asked returns an error, Begin reports the fields of that error as
// further problems. If the same request failed before, Begin may return the same failure again (replay.go).
func (a *API) Begin(
	w http.ResponseWriter, r *http.Request, body any, asked func(p *Problems) (council.Submission, error),
) (*sessions.Session, error) {
	problems, err := a.decode(w, r, body, true)
	if err != nil {
		return nil, err
	}
	submission, err := asked(problems)
	if err != nil && problems.count == 0 {
		return nil, err
	}
	problems.join(err)
	problems.side(r, &submission.Request)
	if err := a.refusal(r, problems, submission.Request); err != nil {
		return nil, err
	}
	repeat := ""
	if !submission.Background { // Its client gets the id at once, and repeats nothing.
		repeat = a.repeatKey(r, problems.sum)
	}
	if s, err := a.replayed(w, r, repeat); s != nil || err != nil {
		return s, err
	}
	s, err := a.begin(r, body, submission, repeat)
	return s, problems.renamed(err)
}

// sideHeader is the header with which a client says whether a request is a side request. The value of the header
// overrides the guess from the text.
const sideHeader = "Councild-Side-Request"

// side sets asked.Side from sideHeader, and leaves it as it is if the request has no such header.
func (p *Problems) side(r *http.Request, asked *council.Request) {
	value := r.Header.Get(sideHeader)
	if value == "" {
		return
	}
	var err error
	if asked.Side, err = strconv.ParseBool(value); err != nil {
		p.Add(sideHeader, fmt.Sprintf("%.20q is neither true nor false", value),
			"send one of them, or leave the header out")
	}
}
