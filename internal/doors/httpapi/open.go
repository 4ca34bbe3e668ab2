package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/councild/councild/internal/council"
)

// An open request takes a connection and memory, and may hold both for minutes while it waits for a session. Callers
// share both resources, so a caller with thousands of open requests leaves a part of them to the others. /healthz and
// /readyz take neither resource.

const (
	// keptForHealth says that one connection in sixteen stays free for /healthz and /readyz.
	keptForHealth = 16
	// manyConnections replaces a missing limit of connections. manyBytes replaces a larger MaxBodyBytes when the shared
	// memory is calculated, because the product would overflow.
	manyConnections, manyBytes = 1 << 30, 1 << 30
	// mcpCall is about how many bytes of memory an MCP call takes while it waits, not counting its body. mcpCopies is
	// how many copies of the body the MCP SDK keeps.
	mcpCall, mcpCopies = 128 << 10, 4
)

// openRequest records the shares that a request takes while it is open. It is a value in the context of the request.
type openRequest struct {
	caller any
	free   []func() // each gives one share back
}

// openKey is the context's key for the openRequest.
type openKey struct{}

// Inside returns a context for an internal request: a request that this process makes in order to answer an open
// request. An internal request takes no shares. If it took shares, it could be refused although the open request was
// admitted.
func Inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, openKey{}, (*openRequest)(nil))
}

// open takes a connection for a request until the request is answered, or refuses the request.
func (a *API) open(next http.Handler) http.Handler {
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		if _, inside := r.Context().Value(openKey{}).(*openRequest); inside {
			next.ServeHTTP(w, r)
			return nil
		}
		o := &openRequest{caller: a.holder(r)}
		free, ok := a.connections.take(o.caller, 1)
		if !ok {
			return &council.Error{
				Code: council.CodeUnavailable, RetryAfter: time.Second,
				Detail: "this caller has too many open requests, and this one began nothing: end some that watch " +
					"or wait for a session, and try again",
			}
		}
		o.free = append(o.free, free)
		defer func() {
			for _, free := range o.free {
				free()
			}
		}()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), openKey{}, o)))
		return nil
	})
}

// keep takes memory for an open request until the request is answered, or returns why the request is refused.
func (a *API) keep(r *http.Request, bytes int) error {
	o, _ := r.Context().Value(openKey{}).(*openRequest)
	if o == nil {
		return nil
	}
	free, ok := a.memory.take(o.caller, bytes)
	if !ok {
		return &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "the open requests of this caller use too much memory, and this one began nothing: wait until " +
				"some are answered, or send less",
		}
	}
	o.free = append(o.free, free)
	return nil
}
