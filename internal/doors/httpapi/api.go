// Package httpapi is councild's HTTP interface: routes, strict decoding, problem
// documents (RFC 9457), sessions that outlive their request, and their events, which
// it frames as server-sent events. It leaves every decision about a run to the pipeline,
// keeping sessions to package sessions, and reading the record store to the daemon.
//
// OpenAI's interface is package openai, which the daemon mounts with what is in door.go.
// Only its errors are written here (problem.go): a request can fail before it has a route.
//
// # Decisions
//
// A session in the background, or with an idempotency key, outlives its client. A key says that the client means to
// come back: only DELETE cancels such a session. Any other ends with the POST that began it, streamed or not. Watching
// at /events counts for nothing either way.
//
// An idempotency key is used up by the session, not by the request. A request that began none may be sent again. A
// session that was cancelled or failed stays what it is under its key: anything else could pay twice. Deleting the
// session frees its key.
//
// DELETE cancels what runs and deletes what has ended. A client that wants only to cancel asks first whether the
// session still runs, as client.(*Client).Ask and the page do: it may have ended while the line was cut.
//
// Sessions belong to the name of a token, and without one to the token: 16 hexadecimal digits of its SHA-256. A name
// has one token at a time, and keeps its sessions when the token is replaced.
//
// Each token has limits of its own, off by default: sessions at once and sessions a minute. They are made for the
// configured tokens at start, so that no flood of requests costs memory. What is let in counts, whatever comes of it;
// what is refused does not.
//
// Callers share places that are held briefly, for bodies in reading and for reports: a caller gets one only while it
// holds fewer than are free. The first takes half of them, the next half of what is left, and so on.
//
// Open requests share connections and memory in the same way, for as long as they wait (httpapi/open.go). The share is
// taken before anything begins, so that a refused request can be repeated. /healthz and /readyz take none.
//
// All problems of a request at once: the form and what Prepare finds in the rest are one answer. It names 20 problems
// at most and has 64 KiB at most, whatever the request holds. What takes much work to find, Check finds later: it
// compiles the schema of a request once that has a place, two at a time. Nobody keeps a compiled schema.
package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/runlog"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/councild/councild/api"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/sessions"
)

// Council prepares and runs sessions; the pipeline satisfies it.
type Council interface {
	Prepare(r council.Request) (council.Plan, error)
	// Check finds the problems of a plan that take much work to find. The caller takes a place for the session first.
	Check(ctx context.Context, plan council.Plan) error
	Run(ctx context.Context, plan council.Plan, observer council.Observer, log *runlog.Log) (*council.Session, error)
}

// Budget limits what sessions cost; the pipeline satisfies it.
type Budget interface {
	// Open takes room for a session in the limits of the day, or returns why it must not begin.
	Open(ctx context.Context, plan council.Plan) *council.Error
	// Drop gives back what Open took for a session that is not run.
	Drop(ctx context.Context, sessionID string)
}

// Daemon is what the interface asks the daemon around it.
type Daemon interface {
	// Report computes the bias report over the record store.
	Report(ctx context.Context, q bias.Query) (bias.Report, error)
	// Evidence computes what reviewers and people say of whole sessions; nil where there is nothing, or the query is
	// of single members.
	Evidence(ctx context.Context, q bias.Query) (*render.CouncilEvidence, error)
	// Leaderboard computes the leaderboard over the record store.
	Leaderboard(ctx context.Context, q bias.Query) (bias.Leaderboard, error)
	// NotReady returns the reasons why no session should be sent here, and what else
	// is wrong. It returns nothing when all is well.
	NotReady() []Reason
	// Stopping reports whether the daemon is shutting down: it takes over no session of
	// another one. For a while it may still take new ones.
	Stopping() bool
	// Draining reports whether the daemon is shutting down and takes no session.
	Draining() bool
}

// Reason says what is wrong with the daemon.
type Reason struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Bearable bool   `json:"-"` // sessions can still be sent here
}

// Token is a bearer token of a caller.
type Token struct {
	// Name tells whose the sessions are: they stay with it when its token changes. Without
	// a name, they are the token's.
	Name   string
	Secret string
	// SHA256 is the hash of a token whose Secret nobody here knows; such a token has a name. Nil: Secret is given.
	SHA256 *[sha256.Size]byte
	Limits Limits
	May    []council.Right // nil: everything but MayAdmin
}

func (t Token) sum() [sha256.Size]byte {
	if t.SHA256 != nil {
		return *t.SHA256
	}
	return sha256.Sum256([]byte(t.Secret))
}

func (t Token) owner() sessions.Owner {
	sum := sha256.Sum256([]byte(cmp.Or(t.Name, t.Secret)))
	return sessions.Owner(hex.EncodeToString(sum[:8]))
}

// Offer is a council that can be asked.
type Offer struct {
	Plan    council.Plan // of a question without choices of its own, which shows what the council is
	Default bool         // it is asked where a request names none
}

// Options configure the interface. A field is required unless its comment says what
// its zero value means.
type Options struct {
	Council Council
	Budget  Budget // nil: there are no limits of cost
	Spend   Spend
	Daemon  Daemon
	// Comparer compares answers that a caller has.
	Comparer Comparer
	// Offers returns the councils that a token may ask, by its name, the one that is asked by default
	// first; nil: there is one.
	Offers func(token string) ([]Offer, error)
	Models []string // the configured council
	// AllowedModels are what a request may name besides the configured ones.
	AllowedModels []string
	MaxQueryBytes int64            // of a question
	Origins       []string         // whose pages may call the interface from a browser, besides its own
	Tokens        []Token          // none: everybody may call, by a loopback name
	MaxSessions   int              // at once; further ones are refused
	Connections   int              // that clients may hold; 0: no limit
	Kept          sessions.Options // finished sessions that are kept; zero: none
	MaxBodyBytes  int64
	BodyTimeout   time.Duration // how long a client may take to send a body
	// Ended does what follows a session with a result, once its end is shown; nil: nothing does. Its context ends with
	// Cancel. The session must not be changed.
	Ended   func(ctx context.Context, plan council.Plan, session *council.Session)
	Labels  Labels       // keeps what people say of sessions; nil: nothing is kept
	Intake  Intake       // takes in events of other councils; nil: none are taken in
	Metrics http.Handler // serves GET /metrics; nil: there is none
	MCP     http.Handler // serves POST /mcp; nil: there is none
	// Middleware wraps all handlers; nil: there is none. When the handler that it wraps
	// returns, Pattern of the request is the pattern of its route, "" where there is none.
	Middleware func(http.Handler) http.Handler
	Log        *slog.Logger
	Version    string
	Settings   council.SettingNames // for messages
}

// API is the HTTP handler.
type API struct {
	o           Options
	callers     atomic.Pointer[[]*caller] // one per token, or one for everybody
	places      chan struct{}             // one element per session that runs
	taken       int                       // places that Idle holds
	bodies      *shares                   // places for bodies that are being read
	reports     *shares                   // places for the reports that the daemon computes now
	connections *shares                   // places for requests that are open
	memory      *shares                   // bytes that these hold of their bodies
	buffers     sync.Pool                 // of *bufio.Writer, for events
	fields      knownFields               // of bodies
	sessions    *sessions.Store
	ending      sync.WaitGroup // of the sessions whose end is not shown yet
	resumed     sync.WaitGroup // of the sessions that Resume goes on with
	takenOver   atomic.Int64   // how many they are
	follow      chan struct{}  // one element per session after whose end something is done
	cancelled   <-chan struct{}
	cancel      func() // closes cancelled
	router      *chi.Mux
}

// New returns the handler of all routes but those that Mount adds. Close releases it.
func New(o Options) (*API, error) {
	if o.Council == nil || o.Daemon == nil || o.Spend == nil || o.Comparer == nil || o.Log == nil ||
		o.MaxSessions < 1 || o.MaxBodyBytes < 1 || o.BodyTimeout <= 0 {
		return nil, errors.New("httpapi: an option is missing")
	}
	o.Connections = cmp.Or(o.Connections, manyConnections)
	cancelled := make(chan struct{})
	a := &API{
		cancelled:   cancelled,
		cancel:      sync.OnceFunc(func() { close(cancelled) }),
		follow:      make(chan struct{}, o.MaxSessions),
		o:           o,
		places:      make(chan struct{}, o.MaxSessions),
		bodies:      newShares(4 * o.MaxSessions),
		reports:     newShares(maxReports),
		connections: newShares(o.Connections - max(o.Connections/keptForHealth, 1)),
		// A caller alone gets half: enough for the body of each session that may run, and for a call of MCP.
		memory:   newShares(2 * (mcpCall + (o.MaxSessions+mcpCopies)*int(min(o.MaxBodyBytes, manyBytes)))),
		sessions: sessions.New(o.Kept),
		buffers:  sync.Pool{New: func() any { return bufio.NewWriterSize(nil, maxWrite) }},
	}
	a.SetTokens(o.Tokens)
	a.router = a.routes()
	return a, nil
}

// routes returns the router of the whole interface. A test compares it with
// openapi.yaml.
func (a *API) routes() *chi.Mux {
	r := chi.NewRouter()
	if a.o.Middleware != nil {
		r.Use(a.o.Middleware)
	}
	r.Use(middleware.GetHead, route, a.identify, a.shareWithOrigins, a.recover, a.limitBodyTime, a.sameOrigin)
	r.NotFound(a.handler(a.notFound))
	r.MethodNotAllowed(a.handler(a.methodNotAllowed))
	public := r.With(a.open)
	if a.o.Metrics != nil {
		public.Method(http.MethodGet, "/metrics", a.o.Metrics)
	}
	private, asking := a.forCallers(r)
	computed := private.With(a.sameOriginForReading, a.boundReports)
	reports := private.With(a.requires(council.MayReport), a.sameOriginForReading, a.boundReports)
	for _, route := range []struct {
		on      chi.Router
		method  string
		pattern string
		handle  handlerFunc
	}{
		{public, http.MethodGet, "/", a.page},
		{public, http.MethodGet, "/assets/{name}", a.page},
		{r, http.MethodGet, "/healthz", a.health},
		{r, http.MethodGet, "/readyz", a.ready},
		{public, http.MethodGet, "/openapi.yaml", a.contract},
		{asking, http.MethodPost, "/v1/council", a.runCouncil},
		{private, http.MethodGet, "/v1/council", a.listSessions},
		{private, http.MethodGet, "/v1/council/{id}", a.session},
		{private, http.MethodDelete, "/v1/council/{id}", a.deleteSession},
		{private, http.MethodGet, "/v1/council/{id}/events", a.events},
		{private, http.MethodPost, "/v1/council/{id}/feedback", a.feedback},
		{private, http.MethodGet, "/v1/council/{id}/request", a.request},
		{asking, http.MethodPost, "/v1/council/estimate", a.estimate},
		{asking, http.MethodPost, "/v1/disagreement", a.disagreement},
		{private, http.MethodGet, "/v1/councils", a.councils},
		{private.With(a.requires(council.MayEvents)), http.MethodPost, "/v1/events", a.takeEvents},
		{private, http.MethodPost, "/mcp", a.mcp},
		{reports, http.MethodGet, "/v1/bias-report", a.biasReport},
		{reports, http.MethodGet, "/v1/leaderboard", a.leaderboard},
		{computed, http.MethodGet, "/v1/spend", a.spend},
	} {
		route.on.Method(route.method, route.pattern, a.handler(route.handle))
	}
	return r
}

// forCallers returns the routers of routes that need a token, and of those that need the right to ask too.
func (a *API) forCallers(r chi.Router) (private, asking chi.Router) {
	private = r.With(a.authenticate, a.open)
	return private, private.With(a.requires(council.MayAsk))
}

// Close forgets the sessions in memory. No session may run any more but those that
// Resume has not come to: they are left to another process.
func (a *API) Close(ctx context.Context) error {
	a.Cancel(context.Canceled)
	a.resumed.Wait()
	a.sessions.Close(ctx)
	return nil
}

// Routes returns the routes, for comparing them with the contract.
func (a *API) Routes() chi.Routes { return a.router }

// ServeHTTP serves a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// handlerFunc is a handler that leaves its error to the function handler.
type handlerFunc = func(w http.ResponseWriter, r *http.Request) error

// handler turns a function that returns an error into a handler that writes the
// error as a problem document.
func (a *API) handler(f handlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			a.writeProblem(w, r, err)
		}
	}
}

func (a *API) notFound(_ http.ResponseWriter, r *http.Request) error {
	return nothing(r, hint(r.URL.Path))
}

// nothing is the error of a path where nothing is.
func nothing(r *http.Request, remedy string) error {
	return &council.Error{Code: council.CodeNotFound, Detail: "there is nothing at " + r.URL.Path + "; " + remedy}
}

// hint says what a caller may have wanted at a path where nothing is.
func hint(path string) string {
	if strings.Contains(path, "//") {
		return "the path has two slashes in a row: give the client a base URL without a slash at its end, " +
			"such as http://HOST:PORT/v1"
	}
	chat := "; ask with POST /v1/chat/completions, or with POST /v1/council"
	for _, known := range []struct{ prefix, hint string }{
		{"/mcp", "give the client http://HOST:PORT/mcp, without more behind it"},
		{"/v1/mcp", "give the client http://HOST:PORT/mcp, without /v1"},
		{"/sse", "the transport of MCP with /sse is obsolete: give the client http://HOST:PORT/mcp as streamable HTTP"},
		{"/v1/v1/", "the base URL has /v1 twice: give the client one"},
		{"/chat/completions", "the base URL lacks /v1: give the client http://HOST:PORT/v1"},
		{"/models", "the base URL lacks /v1: give the client http://HOST:PORT/v1"},
		{"/v1/responses/", "responses are not kept: GET /v1/council/{session_id} has the session, without resp_ before its id"},
		{"/v1/completions", "this daemon has no text completions" + chat},
		{"/v1/messages", "this daemon does not speak Anthropic's interface" + chat},
		{"/v1/embeddings", "a council makes no embeddings"},
		{"/v1/images", "a council makes no images"},
		{"/v1/audio", "a council reads and writes text only"},
	} {
		if strings.HasPrefix(path, known.prefix) {
			return known.hint
		}
	}
	return "the routes are in /openapi.yaml"
}

func (a *API) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if a.router.Match(chi.NewRouteContext(), method, r.URL.Path) {
			w.Header().Add("Allow", method)
			if method == http.MethodGet {
				w.Header().Add("Allow", http.MethodHead)
			}
		}
	}
	return &council.Error{
		Code:   council.CodeMethodNotAllowed,
		Detail: r.Method + " is not for " + r.URL.Path + "; the Allow header says what is",
	}
}

func (a *API) contract(w http.ResponseWriter, _ *http.Request) error {
	send(w, http.StatusOK, "application/yaml", api.OpenAPI)
	return nil
}

// Health is the body of GET /healthz.
type Health struct {
	Status  string `json:"status"` // "ok"
	Version string `json:"version"`
}

func (a *API) health(w http.ResponseWriter, _ *http.Request) error {
	return WriteJSON(w, http.StatusOK, Health{Status: "ok", Version: a.o.Version})
}

// Readiness is the body of GET /readyz.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"`
}

func (a *API) ready(w http.ResponseWriter, _ *http.Request) error {
	readiness := Readiness{Ready: true, Reasons: append([]Reason{}, a.o.Daemon.NotReady()...)} // none is [], not null
	status := http.StatusOK
	if slices.ContainsFunc(readiness.Reasons, func(r Reason) bool { return !r.Bearable }) {
		readiness.Ready = false
		status = http.StatusServiceUnavailable
	}
	return WriteJSON(w, status, readiness)
}
