package httpapi

import (
	"context"
	"net/http"

	"github.com/councild/councild/internal/council"
)

// runCouncil is POST /v1/council: it waits for the session and returns it. A
// client that goes away ends the request's context, and so the run.
func (a *API) runCouncil(w http.ResponseWriter, r *http.Request) error {
	release, err := a.admit(r)
	if err != nil {
		return err
	}
	defer release()
	var request council.Request
	if err := a.decode(w, r, &request); err != nil {
		return err
	}
	plan, err := a.o.Council.Prepare(request)
	if err != nil {
		return err
	}
	session, err := a.o.Council.Run(r.Context(), plan, nil)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, session)
}

// Idle waits until no session runs. It then keeps all places, so that none
// begins any more: it is for shutting down.
func (a *API) Idle(ctx context.Context) error {
	for range cap(a.sessions) - a.kept {
		select {
		case a.sessions <- struct{}{}:
			a.kept++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
