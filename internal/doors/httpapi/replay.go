package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/spend"
)

// For a while, the same request to OpenAI's interface gets the same failure again, because SDKs repeat a failed request
// by themselves, and each repetition would start and pay for a session. openai-node repeats it twice, the AI SDK twice,
// and LangChain six times. The AI SDK also repeats a stream that fails before any text. No header and no status stops
// all of these SDKs.

// repeatKey returns a hash of the owner, the path and the body of a request to OpenAI's interface. If the request has
// an Idempotency-Key, repeatKey returns "", because the Idempotency-Key already says which requests are the same.
func (a *API) repeatKey(r *http.Request, body [sha256.Size]byte) string {
	if _, keyed := r.Header["Idempotency-Key"]; keyed {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "repeat\n%s\n%s\n%s", a.owner(r), r.URL.Path, body[:]))
	return hex.EncodeToString(sum[:])
}

// replayed returns the ended session of an earlier request with the same repeatKey. It returns nil if a new session may
// begin. If replayed returns a session, it sets the header Councild-Replayed. If that session failed, the detail of the
// failure also says that it is repeated.
func (a *API) replayed(w http.ResponseWriter, r *http.Request, key string) (*sessions.Session, error) {
	s, err := a.sessions.Repeated(r.Context(), key)
	if s == nil || err != nil {
		return nil, err
	}
	w.Header().Set("Councild-Replayed", "true")
	_, failure := s.Result()
	if failure == nil {
		return s, nil
	}
	again := *failure
	again.Detail += "; this is the outcome of the same request before, and nothing was paid again: to ask again, " +
		"change the question, send an Idempotency-Key, or wait 2 minutes"
	return s.Failed(&again), nil
}

// failureOf returns the error that says why a session has no result, in a form that its caller may see. For a cancelled
// session, the detail says who cancelled the session and how much was paid.
func (a *API) failureOf(ctx context.Context, s *sessions.Session, session *council.Session, err error) *council.Error {
	failure := *coded(err)
	failure.SessionID = s.ID
	if session == nil && failure.Code == council.CodeInternal {
		failure.Paid = max(failure.Paid, 1) // A panic lost the number of paid calls. At least one may be paid.
	}
	if failure.Code != council.CodeCancelled || session == nil {
		return &failure
	}
	paid := paidFor(failure.Paid, session.Metadata.Usage.Total)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, sessions.ErrDeleted):
		failure.Detail = "the session was cancelled by DELETE " + paid
	case errors.Is(cause, context.Canceled):
		failure.Detail = "the session was cancelled " + paid + ", because its client left before the answer: stream " +
			"the answer, or raise the client's time-out (docs/clients.md)"
	case a.stopping() && failure.Paid == 0:
		failure.Code = council.CodeUnavailable
		failure.RetryAfter = 5 * time.Second
		failure.Detail = "the daemon shut down before any call of the session was paid; ask again"
	case a.stopping():
		failure.Detail = "the session was cancelled " + paid + ", because the daemon shut down"
	}
	return &failure
}

// paidFor returns a phrase for messages. It says how many calls were paid and, if it is known, how much the calls cost.
func paidFor(calls int, u council.Usage) string {
	if calls == 0 {
		return "before any call was paid"
	}
	paid := fmt.Sprintf("after %d calls were paid", calls)
	if calls == 1 {
		paid = "after 1 call was paid"
	}
	if u.CostUSD == nil {
		return paid
	}
	return fmt.Sprintf("%s (%s)", paid, spend.Cost(u))
}

// stopping reports whether Cancel was called.
func (a *API) stopping() bool {
	select {
	case <-a.cancelled:
		return true
	default:
		return false
	}
}
