// Package httpapi is councild's HTTP interface. It holds the routes, the strict decoding of bodies, problem documents
// (RFC 9457), sessions that outlive their request, and server-sent events. Other packages do the rest: the pipeline
// decides everything about a run, package sessions stores sessions, and the daemon keeps the record store.
//
// Package openai implements OpenAI's interface. The daemon mounts it with the functions in door.go. This package
// writes only the errors of that interface (problem.go), because a request can fail before it has a route.
//
// # Decisions
//
// A session outlives its client if it runs in the background or has an idempotency key. Then only DELETE cancels it,
// because the client may come back. Every other session ends with the POST that began it, whether the POST is streamed
// or not. Clients that watch at /events neither keep a session alive nor end it.
//
// An idempotency key is used up when a session begins with it. If a request began no session, the client may send the
// request again with the same key. A session that was cancelled or failed keeps its key, because a second session could
// cost money again. Deleting the session frees the key.
//
// DELETE cancels a session that runs and deletes a session that has ended. A client that only wants to cancel first
// asks whether the session still runs, because the session may have ended while the connection was lost.
// client.(*Client).Ask and the page ask this first.
//
// Sessions belong to the name of a token. If the token has no name, they belong to the first 16 hexadecimal digits of
// its SHA-256. A name has one token at a time, and keeps its sessions when the token is replaced.
//
// Each token has two limits of its own: for sessions at once and for sessions in a minute. Both limits are off by
// default. The limiters are allocated when the tokens are configured, so a flood of requests allocates no limiters. An
// admitted session counts even if it fails. A refused request does not count.
//
// Places limit how many things are done at once. A session that runs takes one of MaxSessions places. Callers share two
// other kinds of places, which they hold only briefly: for bodies that are being read, and for reports. A caller gets
// such a place only while it holds fewer places than are free. The first caller can take half of the places, the next
// caller half of the rest, and so on.
//
// Callers share connections and memory in the same way. An open request holds its share until it is answered (open.go).
// It takes the share before it begins anything, so a client can repeat a refused request. /healthz and /readyz take no
// share.
//
// The error answer to an invalid request names all its problems: those of its form, and those of its values, which
// Prepare checks. Whatever the request holds, the answer names at most 20 problems and has at most 64 KiB. Check makes
// the expensive checks later, when the request has a place: it compiles the schema of the request. Compiled schemas are
// not kept.
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

	"github.com/councild/councild"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/sessions"
)

// Council prepares and runs sessions. The pipeline satisfies it.
type Council interface {
	// Prepare returns the plan of a request, or one error with all problems that are cheap to find.
	Prepare(r council.Request) (council.Plan, error)
	// PrepareJudge is Prepare for a request to judge answers that exist already.
	PrepareJudge(r council.JudgeRequest) (council.Plan, error)
	// PrepareTask is Prepare for a request to carry out a task.
	PrepareTask(r council.TaskRequest) (council.Plan, error)
	// Convene returns the plan of a session in which the whole council answers the question of an earlier session, with
	// the answers of the members that began. The arguments are the plan and the result of the earlier session. The error
	// says why the council cannot be convened.
	Convene(plan council.Plan, session *council.Session) (council.Plan, error)
	// Check makes the expensive checks of a plan. The caller takes a place for the session first.
	Check(ctx context.Context, plan council.Plan) error
	// Run runs a session to its end and reports its events to observer. The argument log holds the results of an
	// earlier run of the session. Run does not pay for these results again.
	Run(ctx context.Context, plan council.Plan, observer council.Observer, log *runlog.Log) (*council.Session, error)
}

// Budget limits the cost of sessions. The daemon's engine satisfies it.
type Budget interface {
	// Open opens the account of a session, or returns why the session must not begin, such as a used up budget.
	Open(ctx context.Context, plan council.Plan) *council.Error
	// Drop closes the account that Open opened, if the session does not begin after all.
	Drop(ctx context.Context, sessionID string)
}

// Daemon gives the interface reports and the state of the daemon.
type Daemon interface {
	// Report computes the bias report over the record store.
	Report(ctx context.Context, q bias.Query) (bias.Report, error)
	// Evidence computes the opinions of reviewers and people on whole sessions. It returns nil if there are no such
	// opinions, or if the query names a reviewer, a model or a model version.
	Evidence(ctx context.Context, q bias.Query) (*render.CouncilEvidence, error)
	// Leaderboard computes the leaderboard over the record store.
	Leaderboard(ctx context.Context, q bias.Query) (bias.Leaderboard, error)
	// NotReady returns all reasons why something is wrong with the daemon. A healthy daemon has no reasons. If a reason
	// is not Bearable, clients should send no sessions to the daemon.
	NotReady() []Reason
	// Stopping reports whether the daemon is shutting down. A daemon that shuts down takes over no sessions of other
	// daemons. It may still accept new sessions until Draining returns true.
	Stopping() bool
	// Draining reports whether the daemon is shutting down and accepts no new sessions.
	Draining() bool
}

// Reason says what is wrong with the daemon.
type Reason struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Bearable bool   `json:"-"` // the daemon still accepts sessions
}

// Token is a bearer token of a caller.
type Token struct {
	// Name is the owner of the token's sessions. If another token with this name replaces the token, the owner stays
	// the same. If Name is "", the token itself is the owner.
	Name   string
	Secret string
	// SHA256 is the hash of a token whose Secret the daemon does not know. Such a token has a Name. SHA256 is nil if
	// Secret is set.
	SHA256 *[sha256.Size]byte
	Limits Limits
	// May lists the rights of the token. A nil list stands for all rights except MayAdmin.
	May []council.Right
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

// Offer is a council that a caller may ask.
type Offer struct {
	// Plan is the plan of a question without options. It shows the members and settings of the council.
	Plan    council.Plan
	Default bool // the council of requests that name none
}

// Shown has the other contents of the list of councils.
type Shown struct {
	MaxQueryBytes int64 // the size of the longest question, in bytes
	// Demo holds the questions that a demo offers. It is nil if the daemon is no demo.
	Demo []string
}

// Options configure the interface. A field is required unless its comment says what its zero value means.
type Options struct {
	Council Council
	// Budget limits the cost of sessions. If it is nil, cost has no limit.
	Budget Budget
	Spend  Spend
	Daemon Daemon
	// Comparer compares answers that a caller sends in one request.
	Comparer Comparer
	// Offers returns the councils that the token with this name may ask, the default one first. If it is nil, the only
	// council is the one that Council plans by default.
	Offers func(token string) ([]Offer, error)
	// Models are the members of the configured council. Without them there is no council to offer.
	Models []string
	// AllowedModels are the models that a request may name in addition to Models.
	AllowedModels []string
	// Shown has the other contents of the list of councils.
	Shown Shown
	// Origins are the web origins whose pages may call the interface from a browser. The daemon's own page always may.
	Origins []string
	// Tokens are the tokens of the callers. Without tokens every caller may call, but only by a loopback name.
	Tokens []Token
	// MaxSessions is the most sessions that run at once. The interface refuses more.
	MaxSessions int
	// Connections is the most connections that clients can hold. 0 is no limit.
	Connections int
	// Kept says which sessions are kept after their end. The zero value keeps none.
	Kept         sessions.Options
	MaxBodyBytes int64
	BodyTimeout  time.Duration // how long a client may take to send a body
	// Ended is called after the end of each session that has a result, once clients can see the end. It must not change
	// the session. API.Cancel cancels the context of the call. If MaxSessions such calls are in progress, Ended is not
	// called for the session. Ended may be nil.
	Ended func(ctx context.Context, plan council.Plan, session *council.Session)
	// Labels keeps the feedback of people. If it is nil, the interface accepts no feedback.
	Labels Labels
	// Intake keeps the events of other councils. If it is nil, the interface accepts no events.
	Intake Intake
	// Metrics serves GET /metrics, and MCP serves POST /mcp. If one is nil, its path answers 404.
	Metrics http.Handler
	MCP     http.Handler
	// Middleware wraps all handlers. It may be nil. When the wrapped handler returns, Request.Pattern is the pattern
	// of the route, or "" if the request has no route.
	Middleware func(http.Handler) http.Handler
	// Traceparent returns the trace span in the context of a request, as Origin.Traceparent. It may be nil.
	Traceparent func(context.Context) string
	Log         *slog.Logger
	Version     string
	// Settings are the names that messages use for settings.
	Settings council.SettingNames
}

// API is the HTTP handler.
type API struct {
	o           Options
	callers     atomic.Pointer[[]*caller] // one caller per token, or a single caller if there are no tokens
	places      chan struct{}             // one element per session that runs
	taken       int                       // how many elements of places Idle holds
	bodies      *shares                   // places for bodies that are being read
	reports     *shares                   // places for reports that are being computed
	connections *shares                   // places for open requests
	memory      *shares                   // bytes for the bodies of open requests
	buffers     sync.Pool                 // holds the *bufio.Writer of event streams
	fields      knownFields               // the fields that bodies may have
	sessions    *sessions.Store
	ending      sync.WaitGroup // counts sessions whose end clients cannot see yet
	resumed     sync.WaitGroup // counts sessions that Resume started
	takenOver   atomic.Int64   // how many sessions Resume has started so far
	follow      chan struct{}  // one element per running call of Options.Ended
	cancelled   <-chan struct{}
	cancel      func() // closes cancelled
	router      *chi.Mux
}

// New returns the handler of all routes except those that Mount adds. The caller must call Close in the end. New
// returns an error if a required option is missing.
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
		// One caller gets half of the memory. That is enough for the bodies of MaxSessions sessions and an MCP call.
		memory:   newShares(2 * (mcpCall + (o.MaxSessions+mcpCopies)*int(min(o.MaxBodyBytes, manyBytes)))),
		sessions: sessions.New(o.Kept),
		buffers:  sync.Pool{New: func() any { return bufio.NewWriterSize(nil, maxWrite) }},
	}
	a.SetTokens(o.Tokens)
	a.router = a.routes()
	return a, nil
}

// routes returns the router, without the routes that Mount adds. A test compares all routes with openapi.yaml.
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
		{private, http.MethodPatch, "/v1/council/{id}", a.renameSession},
		{private, http.MethodDelete, "/v1/council/{id}", a.deleteSession},
		{private, http.MethodGet, "/v1/council/{id}/events", a.events},
		{private, http.MethodPost, "/v1/council/{id}/feedback", a.feedback},
		{private, http.MethodGet, "/v1/council/{id}/request", a.request},
		{computed, http.MethodGet, "/v1/council/{id}/cost", a.cost},
		{asking, http.MethodPost, "/v1/council/{id}/convene", a.convene},
		{asking, http.MethodPost, "/v1/council/estimate", a.estimate},
		{asking, http.MethodPost, "/v1/judge", a.judge},
		{private, http.MethodGet, "/v1/judge/{id}", a.judgement},
		{asking, http.MethodPost, "/v1/gate", a.gate},
		{private, http.MethodGet, "/v1/gate/{id}", a.gateReport},
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

// forCallers returns two routers. Requests to routes of private must pass authenticate. Requests to routes of asking
// must pass it too, and also need the right to ask.
func (a *API) forCallers(r chi.Router) (private, asking chi.Router) {
	private = r.With(a.authenticate, a.open)
	return private, private.With(a.requires(council.MayAsk))
}

// Close frees the sessions in memory. It must be called only when no session runs any more. If sessions that Resume
// found still wait for a place, Close leaves these sessions to another process.
func (a *API) Close(ctx context.Context) error {
	a.Cancel(context.Canceled)
	a.resumed.Wait()
	a.sessions.Close(ctx)
	return nil
}

// Routes returns the routes, so that a test can compare them with the contract.
func (a *API) Routes() chi.Routes { return a.router }

// ServeHTTP serves a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// handlerFunc is an HTTP handler that returns its error instead of writing it.
type handlerFunc = func(w http.ResponseWriter, r *http.Request) error

// handler returns a handler that calls f and writes its error as a problem document.
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

// nothing returns the error for a path that has no route or whose route is switched off.
func nothing(r *http.Request, remedy string) error {
	return &council.Error{Code: council.CodeNotFound, Detail: "there is nothing at " + r.URL.Path + "; " + remedy}
}

// hint returns the remedy for a path that has no route. It recognises common mistakes, and the routes of llm-council.
func hint(path string) string {
	if strings.Contains(path, "//") {
		return "the path has two slashes in a row: give the client a base URL that does not end in a slash, such " +
			"as http://HOST:PORT/v1"
	}
	chat := "; ask with POST /v1/chat/completions, or with POST /v1/council"
	for _, known := range []struct{ prefix, hint string }{
		{"/mcp", "give the client http://HOST:PORT/mcp, and nothing after it"},
		{"/v1/mcp", "give the client http://HOST:PORT/mcp, without /v1"},
		{"/sse", "MCP no longer uses /sse: give the client http://HOST:PORT/mcp as streamable HTTP"},
		{"/v1/v1/", "the base URL has /v1 twice: give the client http://HOST:PORT/v1"},
		{"/chat/completions", "the base URL lacks /v1: give the client http://HOST:PORT/v1"},
		{"/models", "the base URL lacks /v1: give the client http://HOST:PORT/v1"},
		{"/v1/completions", "this daemon has no text completions" + chat},
		{"/v1/messages", "this daemon does not speak Anthropic's interface" + chat},
		{"/v1/embeddings", "a council makes no embeddings: ask another provider for them"},
		{"/v1/images", "a council makes no images: ask another provider for them"},
		{"/v1/audio", "a council reads and writes text only: ask another provider for speech"},
		// The next three are routes of llm-council (docs/coming-from.md).
		{"/v1/council/run", `ask with POST /v1/council, and give the question as "query"`},
		{"/v1/council/stream", `ask with POST /v1/council, and give "query" and "stream": true`},
		{"/health", "ask /healthz whether the daemon lives, and /readyz whether it can answer"},
	} {
		if strings.HasPrefix(path, known.prefix) {
			return known.hint
		}
	}
	return "the routes are in /openapi.yaml"
}

func (a *API) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == "/v1/council/run" { // It looks like the path of a session.
		return a.notFound(w, r)
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		if a.router.Match(chi.NewRouteContext(), method, r.URL.Path) {
			allowed = append(allowed, method)
			w.Header().Add("Allow", method)
			if method == http.MethodGet {
				w.Header().Add("Allow", http.MethodHead)
			}
		}
	}
	return &council.Error{
		Code:   council.CodeMethodNotAllowed,
		Detail: r.Method + " is not allowed for " + r.URL.Path + "; use " + strings.Join(allowed, " or "),
	}
}

func (a *API) contract(w http.ResponseWriter, _ *http.Request) error {
	send(w, http.StatusOK, "application/yaml", councild.OpenAPI)
	return nil
}

// Health is the body of GET /healthz.
type Health struct {
	Status  string `json:"status"` // always "ok"
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
	// In the answer, an empty list of reasons is [], not null.
	readiness := Readiness{Ready: true, Reasons: append([]Reason{}, a.o.Daemon.NotReady()...)}
	status := http.StatusOK
	if slices.ContainsFunc(readiness.Reasons, func(r Reason) bool { return !r.Bearable }) {
		readiness.Ready = false
		status = http.StatusServiceUnavailable
	}
	return WriteJSON(w, status, readiness)
}
