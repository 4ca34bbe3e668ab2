package httpapi

import (
	"context"
	"net/http"

	"github.com/councild/councild/internal/council"
)

// Comparer measures how differently answers speak about groups of people.
type Comparer interface {
	// CheckDisagreement returns all problems of a request as one error, or nil.
	CheckDisagreement(r council.DisagreementRequest) error
	// Disagreement compares the answers of a request.
	Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error)
}

// disagreement is POST /v1/disagreement. It ends when its client leaves.
func (a *API) disagreement(w http.ResponseWriter, r *http.Request) error {
	var request council.DisagreementRequest
	problems, err := a.decode(w, r, &request, false)
	if err != nil {
		return err
	}
	wrong := a.o.Comparer.CheckDisagreement(request)
	if problems.count > 0 {
		problems.join(wrong)
		return problems.err("the request is not valid")
	}
	if wrong != nil { // An invalid request does not count against a limit.
		return wrong
	}
	request.Token = a.label(r)
	place := a.placeForReport
	if request.Backend.Asks() {
		place = a.admit
	}
	release, err := place(r)
	if err != nil {
		return err
	}
	defer release()
	report, err := a.o.Comparer.Disagreement(r.Context(), request)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, report)
}
