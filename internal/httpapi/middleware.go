package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// maxRequestID bounds the length of an X-Request-Id that is taken over.
const maxRequestID = 128

// identify gives the request its id, taken from X-Request-Id or made, and puts it
// and the common headers on the response.
func (a *API) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			id = rand.Text()
		}
		h := w.Header()
		h.Set("X-Request-Id", id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r.WithContext(council.WithRequestID(r.Context(), id)))
	})
}

// recover turns a panic of a handler into an internal error.
func (a *API) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				a.panicked(w, r, v)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (a *API) panicked(w http.ResponseWriter, r *http.Request, v any) {
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	a.o.Log.ErrorContext(r.Context(), "panic in a handler", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	a.writeProblem(w, r, errors.New("panic"))
}

// hurry gives the client BodyTimeout to send its body. decode lifts that when
// the body is there: the server then reads on to notice a client that leaves.
func (a *API) hurry(next http.Handler) http.Handler {
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		if r.Body != http.NoBody {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.o.BodyTimeout)); err != nil {
				return fmt.Errorf("setting the read deadline: %w", err)
			}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// sameOrigin refuses what a page of another origin makes a browser send here.
func (a *API) sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		if err := protection.Check(r); err != nil {
			return &council.Error{Code: council.CodeForbidden, Detail: "a page of another origin may not call this; call it from a program, or from its own page", Cause: err}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// callerKey is the context's key for the caller's number in API.callers.
type callerKey struct{}

// authenticate lets a request pass that carries one of the tokens. Where none is
// asked for, the daemon must be called by a loopback name: else a page whose own
// name is made to point here (DNS rebinding) would count as the same origin.
func (a *API) authenticate(next http.Handler) http.Handler {
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		number := 0
		if len(a.tokens) > 0 {
			number = a.number(r.Header.Get("Authorization"))
		} else if !isLoopback(r.Host) {
			return &council.Error{Code: council.CodeForbidden, Detail: "without LLM_COUNCIL_API_TOKENS this is for callers on its own machine, by the name localhost or a loopback address"}
		}
		if number < 0 {
			return &council.Error{Code: council.CodeUnauthorized, Detail: "send a token of LLM_COUNCIL_API_TOKENS in the header Authorization: Bearer TOKEN"}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, number)))
		return nil
	})
}

// number returns which token an Authorization header carries, or -1. All are
// compared, by their hashes, so that the time taken tells nothing about them.
func (a *API) number(authorization string) int {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return -1
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	number := -1
	for i, t := range a.tokens {
		number = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], t[:]), i, number)
	}
	return number
}

// isLoopback reports whether a Host header names the machine that it is sent on.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil { // no port
		name = strings.Trim(host, "[]")
	}
	name = strings.TrimSuffix(name, ".") // the root of all names
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// owner returns whose sessions a request is about: its token's, or everybody's
// where no token is asked for.
func (a *API) owner(r *http.Request) sessions.Owner {
	if len(a.tokens) == 0 {
		return sessions.Owner{}
	}
	number, _ := r.Context().Value(callerKey{}).(int)
	return a.tokens[number]
}
