package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

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

// authenticate lets a request pass that carries one of the tokens. All are
// compared, by their hashes, so that the time taken tells nothing about them.
func (a *API) authenticate(next http.Handler) http.Handler {
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		if len(a.tokens) > 0 && !a.known(r.Header.Get("Authorization")) {
			return &council.Error{Code: council.CodeUnauthorized, Detail: "send a token of LLM_COUNCIL_API_TOKENS in the header Authorization: Bearer TOKEN"}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

func (a *API) known(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	found := 0
	for _, t := range a.tokens {
		found |= subtle.ConstantTimeCompare(sum[:], t[:])
	}
	return found == 1
}

// owner returns whose sessions a request is about: its token's, or everybody's
// where no token is asked for.
func (a *API) owner(r *http.Request) sessions.Owner {
	if len(a.tokens) == 0 {
		return sessions.Owner{}
	}
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return sha256.Sum256([]byte(strings.TrimSpace(token)))
}
