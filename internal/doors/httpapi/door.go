package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// A door in a package of its own uses this file. It names its routes, begins sessions with Begin, and shows them in its own form.

// Route is a route of such a door. Its callers need a token and have limits, as those of all others.
type Route struct {
	Method  string
	Pattern string // as chi has it. PathValue of the request returns what stands for its wildcards.
	Asks    bool   // it begins sessions, for which a token needs the right to ask
	Handle  func(w http.ResponseWriter, r *http.Request) error
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

// TextList is a list in a body that may also be given as one text.
type TextList interface {
	SetText(text string)
	Wanted() string // what may be given, for an error
}

// Skimmer is an object in a body that is not read where its type or its role says that it holds nothing to read.
type Skimmer interface {
	// Skim gets the type and the role that the object gives, "" for none. It returns true if nothing else of the object is to be read,
	// and has then kept what it needs of the two.
	Skim(kind, role string) bool
}

// Find returns the session of the caller with this id, nil where there is none.
func (a *API) Find(r *http.Request, id string) (*sessions.Session, error) {
	return a.sessions.Get(r.Context(), a.owner(r), id)
}

// Begin begins the session that a body asks for. It reads the body into the struct that body points to; unknown fields have no effect.
// Then asked returns the submission, adds to p what is wrong with it, and returns an error if there is no such model. A request that
// has failed before gets the same failure again (replay.go).
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
	repeat := a.repeatKey(r, problems.sum)
	if s, err := a.replayed(w, r, repeat); s != nil || err != nil {
		return s, err
	}
	s, err := a.begin(r, body, submission, repeat)
	return s, problems.renamed(err)
}

// sideHeader says whether a request is a side request, in place of what its text looks like.
const sideHeader = "Councild-Side-Request"

// side reads the header that says whether a request is a side request.
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
