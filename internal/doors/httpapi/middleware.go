package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/go-chi/chi/v5"
)

// maxRequestID is the most bytes of a client's X-Request-Id. A longer one is replaced.
const maxRequestID = 128

// route sets Request.Pattern for Options.Middleware. The handlers inside route cannot do this, because they get copies
// of the request.
func route(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		r.Pattern = chi.RouteContext(r.Context()).RoutePattern()
	})
}

// identify gives the request its id, which is its X-Request-Id or a new one. It sets the id and the common headers on
// the response.
func (a *API) identify(next http.Handler) http.Handler {
	common := http.Header{
		"X-Content-Type-Options":       {"nosniff"},
		"X-Frame-Options":              {"DENY"},
		"Referrer-Policy":              {"no-referrer"},
		"Content-Security-Policy":      {"default-src 'none'; frame-ancestors 'none'"},
		"Cross-Origin-Resource-Policy": {"same-origin"},
		"Cache-Control":                {"no-store"},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			id = rand.Text()
		}
		maps.Copy(w.Header(), common)
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r.WithContext(council.WithRequestID(r.Context(), id)))
	})
}

// shareWithOrigins lets pages of the configured origins call the interface, as the Fetch standard defines for CORS. It
// also answers the preflight requests of browsers.
func (a *API) shareWithOrigins(next http.Handler) http.Handler {
	if len(a.o.Origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if !strings.HasPrefix(r.URL.Path, "/v1/") || !slices.Contains(a.o.Origins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers",
			"Location, Retry-After, X-Request-Id, X-Should-Retry, Councild-Replayed, Allow")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE")
			// Allow all requested headers, because SDKs send headers of their own.
			h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
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

// panicked answers a request whose handler panicked. It passes http.ErrAbortHandler on to the server, because that
// panic is not a defect.
func (a *API) panicked(w http.ResponseWriter, r *http.Request, v any) {
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	a.logPanic(r.Context(), "handler", v)
	a.writeProblem(w, r, errors.New("panic"))
}

func (a *API) logPanic(ctx context.Context, where string, v any) {
	a.o.Log.ErrorContext(ctx, "a panic became an error",
		"where", where, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
}

// unreadTimeout is how long a client may take to send a body that no handler reads, such as the body of a refused
// request. Go's server waits for the end of such a body.
const unreadTimeout = time.Second

// maxUnread is the most bytes that a GET, DELETE or other request without a use for its body may send.
const maxUnread = 64 << 10

// limitBodyTime gives the client unreadTimeout to send its body. readBody extends this time to BodyTimeout. When
// readBody has the body, it removes the deadline. The server then still reads from the connection, to notice when the
// client leaves.
//
// Only the body of a POST or PATCH is used. limitBodyTime itself reads the body of any other request to its end.
func (a *API) limitBodyTime(next http.Handler) http.Handler {
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		if r.Body != http.NoBody {
			controller := http.NewResponseController(w)
			if err := controller.SetReadDeadline(time.Now().Add(unreadTimeout)); err != nil {
				return fmt.Errorf("setting the read deadline: %w", err)
			}
			if r.Method != http.MethodPost && r.Method != http.MethodPatch {
				if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxUnread)); err != nil {
					return &council.Error{
						Code:   council.CodeMalformed,
						Detail: "the body does not end; send " + r.Method + " without one",
						Cause:  err,
					}
				}
				if err := controller.SetReadDeadline(time.Time{}); err != nil {
					return fmt.Errorf("lifting the read deadline: %w", err)
				}
			}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// sameOrigin refuses requests that a browser sends for a page of another origin. It accepts the methods that only read.
func (a *API) sameOrigin(next http.Handler) http.Handler { return a.checkOrigin(next, false) }

// sameOriginForReading refuses requests of other origins with any method, even GET. A page of another origin could not
// read the answer to a GET, but the daemon would still do the work.
func (a *API) sameOriginForReading(next http.Handler) http.Handler { return a.checkOrigin(next, true) }

// checkOrigin is sameOrigin or, if alsoReading is set, sameOriginForReading.
func (a *API) checkOrigin(next http.Handler, alsoReading bool) http.Handler {
	protection := http.NewCrossOriginProtection()
	for _, origin := range a.o.Origins {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			// This cannot happen, because the configuration has checked the origins.
			a.o.Log.Error("an origin cannot be trusted", "origin", origin, "error", err)
		}
	}
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		checked := *r
		if alsoReading {
			checked.Method = http.MethodPost // The protection counts GET as harmless.
		}
		if err := protection.Check(&checked); err != nil {
			return &council.Error{
				Code: council.CodeForbidden, Cause: err,
				Detail: "pages of this origin may not call the daemon; add the origin to " +
					a.o.Settings.Of(council.SettingCORSOrigins) + ", or call from a program",
			}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// callerKey is the context's key for the caller of a request.
type callerKey struct{}

// callerOf returns the caller of a request. A request that did not pass authenticate has no caller of its own, so
// callerOf returns the first one.
func (a *API) callerOf(r *http.Request) *caller {
	if c, ok := r.Context().Value(callerKey{}).(*caller); ok {
		return c
	}
	return (*a.callers.Load())[0]
}

// authenticate lets a request pass if it carries one of the tokens. If there are no tokens, the request must call the
// daemon by a loopback name. Without this check, a page from a domain that resolves to this machine (DNS rebinding)
// would count as the same origin.
func (a *API) authenticate(next http.Handler) http.Handler {
	return a.handler(func(w http.ResponseWriter, r *http.Request) error {
		callers := *a.callers.Load()
		c := callers[0]
		if c.token != nil {
			c = holderOf(callers, r.Header.Get("Authorization"))
		} else if !isLoopback(r.Host) {
			return &council.Error{
				Code: council.CodeForbidden,
				Detail: "the daemon has no tokens, so it answers on its own machine only; call it as localhost, or set " +
					a.o.Settings.Of(council.SettingAPITokens),
			}
		}
		if c == nil {
			from := a.o.Settings.Of(council.SettingAPITokens)
			if slices.ContainsFunc(callers, func(c *caller) bool { return c.token.SHA256 != nil }) {
				from += ", or one that the roster has,"
			}
			return &council.Error{
				Code: council.CodeUnauthorized,
				Detail: refusal(r.Header.Get("Authorization")) + "; send a token of " + from +
					" in the header Authorization: Bearer TOKEN",
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
		return nil
	})
}

// refusal says what is wrong with the header Authorization of a request that has no valid token.
func refusal(header string) string {
	token, bearer := strings.CutPrefix(header, "Bearer ")
	switch {
	case header == "":
		return "there is no token"
	case !bearer:
		return "the header Authorization does not begin with Bearer"
	case strings.Contains(token, ":"):
		return "no token with this name is known"
	default:
		return "the token is unknown"
	}
}

// requires returns a middleware that lets a request pass only if its caller has this right.
func (a *API) requires(right council.Right) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return a.handler(func(w http.ResponseWriter, r *http.Request) error {
			if c := a.callerOf(r); !c.may(right) {
				return &council.Error{Code: council.CodeForbidden, Detail: fmt.Sprintf(
					"the token %s has no right to %s: add %[2]s to its may in the roster, "+
						"or use another token", c.label, right,
				)}
			}
			next.ServeHTTP(w, r)
			return nil
		})
	}
}

// holderOf returns the caller whose token an Authorization header carries, or nil. People paste entries of the settings,
// so holderOf also accepts NAME:TOKEN if the token has this name.
func holderOf(callers []*caller, authorization string) *caller {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	token = strings.TrimSpace(token)
	if c := callerWith(callers, token); c != nil {
		return c
	}
	name, secret, ok := strings.Cut(token, ":")
	if !ok {
		return nil
	}
	if c := callerWith(callers, secret); c != nil && c.token.Name == name {
		return c
	}
	return nil
}

// callerWith returns the caller with a token, or nil. It always compares the hashes of all tokens, so that its duration
// tells a client nothing about them.
func callerWith(callers []*caller, token string) *caller {
	sum := sha256.Sum256([]byte(token))
	number := -1
	for i, c := range callers {
		number = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], c.sum[:]), i, number)
	}
	if number < 0 {
		return nil
	}
	return callers[number]
}

// isLoopback reports whether a Host header is localhost or a loopback address.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil { // There is no port.
		name = strings.Trim(host, "[]")
	}
	name = strings.TrimSuffix(name, ".") // "localhost." is a full name for the same host.
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// holder returns the key of a caller in shares. The key is the owner of the token or, if the request has no token, the
// address of the client.
func (a *API) holder(r *http.Request) any {
	if c, ok := r.Context().Value(callerKey{}).(*caller); ok && c.token != nil {
		return c.owner
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return host
}

// label returns the name of the caller's token in the ledger, in reports of cost and in other records. It is "" if
// there are no tokens.
func (a *API) label(r *http.Request) string { return a.callerOf(r).label }

// owner returns the owner of the caller's sessions. Without tokens all callers share the owner "".
func (a *API) owner(r *http.Request) sessions.Owner { return a.callerOf(r).owner }
