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
)

// SDKs of OpenAI's interface send a request that failed again by themselves: openai-node twice, the AI SDK
// twice, also streams that fail before any text, and LangChain six times. Neither a header nor a status stops
// all of them, and each repeat would be a session of its own. So the same bytes get the same failure for a
// while, and nothing is paid.

// repeatKey stands for a request to one of OpenAI's doors: its owner, its path and its body. A request
// with an Idempotency-Key has none: the key says which requests are the same.
func (a *API) repeatKey(r *http.Request, body [sha256.Size]byte) string {
	if _, keyed := r.Header["Idempotency-Key"]; keyed {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "repeat\n%s\n%s\n%s", a.owner(r), r.URL.Path, body[:]))
	return hex.EncodeToString(sum[:])
}

// replayed returns the session that an earlier request with the same key ended in, nil where a new one
// may begin. It says so in a header, and a failure in its detail too.
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

// failureOf returns why a session has no result, as its caller may see it.
func (a *API) failureOf(ctx context.Context, s *sessions.Session, session *council.Session, err error) *council.Error {
	failure := *coded(err)
	failure.SessionID = s.ID
	if session == nil && failure.Code == council.CodeInternal {
		failure.Paid = max(failure.Paid, 1) // A panic took the count along.
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

// paidFor says how many calls were paid, and what they cost as far as that is known.
func paidFor(calls int, u council.Usage) string {
	if calls == 0 {
		return "before any call was paid"
	}
	paid := fmt.Sprintf("after %d calls were paid", calls)
	if calls == 1 {
		paid = "after 1 call was paid"
	}
	switch {
	case u.CostUSD == nil:
		return paid
	case u.Partial:
		return fmt.Sprintf("%s (at least $%.4f)", paid, *u.CostUSD)
	default:
		return fmt.Sprintf("%s ($%.4f)", paid, *u.CostUSD)
	}
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
