package httpapi

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// Convening is the body of POST /v1/council/{id}/convene. Its fields are those of council.Submission.
type Convening struct {
	Stream     bool `json:"stream,omitempty"`
	Background bool `json:"background,omitempty"`
}

// convene is POST /v1/council/{id}/convene. It begins a session in which the whole council answers the question of an
// earlier session that ended with the answer of the members that began. A request needs no body.
//
// The council can be convened once after a session. The new session therefore has an internal idempotency key, which is
// made of the id of the earlier session. With this key, a second request finds the new session, on every node and after
// a restart. Like all sessions with a key, the new session does not end with its client.
func (a *API) convene(w http.ResponseWriter, r *http.Request) error {
	earlier, err := a.find(r)
	if err != nil {
		return err
	}
	var asked Convening
	problems := &Problems{}
	if r.ContentLength != 0 {
		if problems, err = a.decode(w, r, &asked, false); err != nil {
			return err
		}
	}
	body := asked
	asked.Stream = streams(r, problems, asked.Stream, asked.Background)
	if err := problems.err("the request is not valid"); err != nil {
		return err
	}
	start := sessions.Start{Owner: a.owner(r), Background: asked.Background}
	if err := readKey(r, body, &start); err != nil {
		return err
	}
	if s, err := a.sessions.Find(r.Context(), start.Owner, start.Key); err != nil {
		return err
	} else if s != nil {
		return keyTaken(s) // The key came with a request to another route.
	}
	keyed := start.Key != ""
	start.Digest = sha256.Sum256(fmt.Appendf(start.Digest[:], "\n%s", start.Key))
	start.Key = conveneKey(earlier.ID)
	plan, err := a.convened(earlier)
	if err != nil {
		return err
	}
	s, added, err := a.start(r, start, asked.Stream, func() (council.Plan, error) { return plan, nil })
	switch {
	case err != nil:
		return err
	case !added && (!keyed || s.Digest != start.Digest):
		return alreadyConvened(s)
	default:
		return a.deliver(w, r, s, asked.Stream, asked.Background) //nolint:contextcheck // it uses the context of r
	}
}

// conveneKey returns the internal idempotency key of the session that convenes the council after an earlier session. No
// client can send this key, because it holds a line break.
func conveneKey(earlier string) string { return "convene\n" + earlier }

// convened returns the plan of the session in which the whole council answers the question of an earlier session.
func (a *API) convened(earlier *sessions.Session) (council.Plan, error) {
	session, err := snapshot(earlier)
	if err != nil {
		return council.Plan{}, err
	}
	plan := earlier.First()
	first := session.Metadata.First
	switch {
	case plan != nil:
	case first != nil && !first.Convened:
		return council.Plan{}, &council.Error{
			Code: council.CodeConflict, SessionID: earlier.ID, Detail: "the session has no plan any more; ask the " +
				"question again",
		}
	default: // Convene says why the council cannot be convened.
		plan = &council.Plan{SessionID: earlier.ID}
	}
	return a.o.Council.Convene(*plan, session)
}

// alreadyConvened returns the error for an earlier session after which the council has been convened, in the session s.
func alreadyConvened(s *sessions.Session) *council.Error {
	return &council.Error{
		Code: council.CodeConflict, SessionID: s.ID,
		Detail: fmt.Sprintf("the council was convened already, in session %s; read its answer, or delete it to "+
			"convene the council again", s.ID),
	}
}
