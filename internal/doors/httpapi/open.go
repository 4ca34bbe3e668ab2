package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/councild/councild/internal/council"
)

// A request that is open takes a connection and memory, for minutes where it waits for a session. Callers share both: a
// caller with thousands of watchers, or of calls that wait, leaves places to the others. /healthz and /readyz take no place.

const (
	// keptForHealth says how many connections open requests leave free: one in sixteen.
	keptForHealth = 16
	// manyConnections stands for "no limit". manyBytes stands for every larger limit of bodies.
	manyConnections, manyBytes = 1 << 30, 1 << 30
	// mcpCall is about how many bytes a call of MCP takes while it waits, without its body. mcpCopies is how many
	// copies of its body the SDK keeps.
	mcpCall, mcpCopies = 128 << 10, 4
)

// openRequest is what a request takes while it is open. Its context has it.
type openRequest struct {
	caller any
	free   []func() // gives back what it takes
}

// openKey is the context's key for the openRequest.
type openKey struct{}

// Inside returns a context for a request that this process itself makes for a request that is open. It takes nothing of
// its own: otherwise a call that was let in could be refused in the middle.
func Inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, openKey{}, (*openRequest)(nil))
}

// open takes a place for a request until it is answered, or refuses it.
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
				Detail: "as many requests of this caller are open as may at once, and this one began nothing: " +
					"end some that watch or wait for a session, and try again",
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

// keep takes memory for an open request until it is answered, or refuses it.
func (a *API) keep(r *http.Request, bytes int) error {
	o, _ := r.Context().Value(openKey{}).(*openRequest)
	if o == nil {
		return nil
	}
	free, ok := a.memory.take(o.caller, bytes)
	if !ok {
		return &council.Error{
			Code: council.CodeUnavailable, RetryAfter: time.Second,
			Detail: "the open requests of this caller hold as much memory as they may, and this one began nothing: " +
				"wait until some are answered, or send less",
		}
	}
	o.free = append(o.free, free)
	return nil
}
