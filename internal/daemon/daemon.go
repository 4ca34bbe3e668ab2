// Package daemon wires the packages below into a council and runs it from start to stop. [New] binds the address
// and opens the record store. [Daemon.Serve] answers requests until its context ends. Commands that need no address
// use an [Engine] alone. The package leaves the command line to cli, HTTP to httpapi and the run of a session to
// pipeline.
//
// # Decisions
//
// The circuit breaker of a model opens when its calls fail too often, and stops further calls. /readyz names an open
// breaker, but stays green while the other models are enough for a quorum. After 10 s, an open breaker becomes half
// open without a request. A red /readyz then becomes green, and a load balancer sends the next request, which can close
// the breaker.
//
// Sessions do not wait in a queue. Beyond LLM_COUNCIL_MAX_SESSIONS the daemon answers 503 at once. It also answers 503
// if so many calls wait for a provider with a call limit that stage 1 would run out of time (daemon.(*Engine).Open).
//
// The number of connections is limited by the file descriptors that are left after the share for calls and the store.
// Further connections wait in the kernel, and the daemon closes idle connections to make room. A flood of connections
// costs time, not sessions. Calls to providers without a call limit share a quarter of the descriptors.
//
// The server has no ReadTimeout, because Go's server treats an expired read deadline like a client that has left, and
// would cancel the session. The body of a request has its own deadline, which the daemon removes before the run.
// WriteTimeout is longer than a run. An answer has one minute from the time when the daemon writes it.
//
// The daemon never logs questions, answers or keys, at any level.
package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/mcpserver"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
)

const (
	// headerTimeout and bodyTimeout are how long a client may take to send the headers and the body of a request.
	headerTimeout = 10 * time.Second
	bodyTimeout   = 15 * time.Second
	// In the first 1/noticeShare of the drain time, a node of a cluster still takes new sessions, because its load
	// balancer asks for /readyz only at intervals.
	noticeShare = 6
)

var errShutdown = errors.New("the daemon shuts down")

// Options are the settings and the parts from which New makes a daemon.
type Options struct {
	Config config.Config
	// Disk is the disk of the files that the daemon writes. Nil stands for the disk of the operating system.
	Disk disk.Disk
	// Listener accepts the connections. If it is nil, New listens on Config.Addr.
	Listener net.Listener
	// Unreachable makes a daemon that listens on no address. Requests reach it only through its Handler.
	Unreachable bool
	Log         *slog.Logger // nil discards all lines
	Version     string
	// Category and Language apply to questions that name none. "" stands for an unknown one.
	Category, Language string
	// Simulated is the provider of the simulated models. If it is nil, there are no such models.
	Simulated Simulator
	// Demo holds the questions that a demo offers on its page. It is nil if the daemon is no demo. With an empty list
	// that is not nil, the page has the banner of the demo and no questions.
	Demo []string
}

// validate fills in defaults, reads the roster and requires a council. It runs before New touches anything outside
// this process.
func (o *Options) validate() error {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Log = slog.New(requestHandler{o.Log.Handler()})
	var err error
	if o.Config, _, err = o.Config.ReadRoster(); err != nil {
		return err
	}
	return o.Config.RequireCouncil()
}

// Daemon is a councild that listens. New makes it, and Serve runs it once.
type Daemon struct {
	cfg       config.Config
	log       *slog.Logger
	store     *store.Store     // nil if records are off
	publisher *publisher       // nil without a cluster
	ledger    *ledger          // nil if the cost of sessions is not kept
	evidence  *evidence        // nil if evidence is not kept
	gateVotes *gateVotes       // nil if the votes of the gate are not kept
	outbox    *consent.Outbox  // nil if no events are sent
	hooks     *consent.Outbox  // nil if no webhooks are sent
	intake    *consent.Intake  // nil if no events of other councils are taken in
	journal   *journal.Journal // nil if sessions are in memory only
	engine    *Engine
	listener  net.Listener
	tokens    []httpapi.Token // if there are tokens, callers need one of them
	api       *httpapi.API
	mcp       *mcpserver.Server // nil if the daemon is unreachable
	server    *http.Server
	// stopping makes /readyz red. A stopping node of a cluster still takes new sessions until draining is set.
	stopping atomic.Bool
	// rosterInvalid says that the last Reload found an error in the roster, so that the roster before it stays in
	// force.
	rosterInvalid atomic.Bool
	draining      atomic.Bool // the daemon takes no new session
	teardown      teardown
}

// New binds the address and opens everything that a daemon needs. The caller then calls Serve, which releases
// everything at its end, or Close.
func New(ctx context.Context, o Options) (_ *Daemon, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	cfg := o.Config
	log := o.Log
	d := &Daemon{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(ctx))
		}
	}()
	connections := maxConnections(cfg, descriptors())
	bounded, err := d.listen(ctx, o, connections) // first, so that a second daemon on this address touches no file
	if err != nil {
		return nil, err
	}
	if err := d.openFiles(ctx, o); err != nil {
		return nil, err
	}
	node := rand.Text()
	if d.journal, err = openJournal(ctx, cfg, node, log); err != nil {
		return nil, err
	}
	if d.journal != nil {
		d.teardown.push("the sessions", d.journal.Close)
	}
	if err := d.openEngine(ctx, o); err != nil {
		return nil, err
	}
	d.measure()
	if d.tokens, err = requireTokens(ctx, cfg, d.engine.setup.Load().tokens(), bounded.Addr(), log); err != nil {
		return nil, err
	}
	if err := d.openDoors(ctx, o, connections, node); err != nil {
		return nil, err
	}
	d.server = &http.Server{
		Handler: d.api, ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		WriteTimeout: cfg.Timeout + time.Minute, // time for the run and for sending its answer
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:    bounded.changed,
	}
	bounded.evict = func() {
		d.server.SetKeepAlivesEnabled(false) // closes the idle connections
		d.server.SetKeepAlivesEnabled(true)
	}
	return d, nil
}

// listen binds the address. connections is the most connections that it accepts at the same time.
func (d *Daemon) listen(ctx context.Context, o Options, connections int) (bounded *boundedListener, err error) {
	listener := o.Listener
	if o.Unreachable {
		listener = newNowhere()
	}
	if listener == nil {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", d.cfg.Addr); err != nil {
			return nil, fmt.Errorf("listening: %w; name another address in LLM_COUNCIL_ADDR", err)
		}
	}
	bounded = newBoundedListener(listener, connections)
	d.listener = bounded
	d.teardown.push("the listener", func(context.Context) error {
		if err := bounded.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return bounded, nil
}

// openFiles opens the files of the daemon: records, costs, evidence and events. openJournal opens the files of the
// sessions.
func (d *Daemon) openFiles(ctx context.Context, o Options) (err error) {
	cfg := d.cfg
	if cfg.KeepsRecords() {
		var recovery store.Recovery
		if d.store, recovery, err = OpenStore(cfg, o.Disk, d.log); err != nil { //nolint:contextcheck // a store lives until it is closed
			return err
		}
		d.teardown.push("the record store", func(context.Context) error { return d.store.Close() })
		if recovery.CutBytes > 0 {
			d.log.WarnContext(ctx, "removed an unfinished last session, left by a crash, from the record "+
				"store", "bytes", recovery.CutBytes)
		}
	}
	if d.ledger, err = openLedger(ctx, cfg, o.Disk, d.log); err != nil {
		return err
	}
	if d.ledger != nil {
		d.teardown.push("the ledger of costs", d.ledger.Close)
	}
	if d.evidence, err = openEvidence(ctx, cfg, o.Disk, d.log); err != nil {
		return err
	}
	if d.evidence != nil {
		d.teardown.push("the evidence file", func(context.Context) error { return d.evidence.store.Close() })
	}
	if d.gateVotes = newGateVotes(cfg, o.Disk, d.log); d.gateVotes != nil {
		d.teardown.push("the votes of the gate", func(context.Context) error { return d.gateVotes.close() })
	}
	if d.outbox, err = openOutbox(ctx, cfg, o.Disk, d.log); err != nil {
		return err
	}
	if d.outbox != nil {
		d.teardown.push("the events that wait", func(context.Context) error { return d.outbox.Close() })
	}
	if !cfg.EventsIntake {
		return nil
	}
	if d.intake, err = consent.OpenIntake(ctx, consent.IntakeOptions{
		Path: cfg.IntakeFile(), Disk: o.Disk, Log: d.log.With("store", "intake"), MinOrganisations: cfg.EventsMinOrgs,
	}); err != nil {
		return fmt.Errorf("LLM_COUNCIL_EVENTS_INTAKE: %w", err)
	}
	d.teardown.push("the events that were taken in", func(context.Context) error { return d.intake.Close() })
	return nil
}

// openEngine makes the engine, which runs the sessions.
func (d *Daemon) openEngine(ctx context.Context, o Options) (err error) {
	options := EngineOptions{
		Config: d.cfg, Simulated: o.Simulated, Evidence: d.evidence, Outbox: d.outbox, GateVotes: d.gateVotes,
		Log:     d.log,
		Version: o.Version, Category: o.Category, Language: o.Language,
	}
	if d.store != nil {
		options.Recorder = d.store
	}
	options.Recorder = d.shareRecords(ctx, options.Recorder)
	options.QuestionSecret = d.shareQuestions(ctx)
	if d.ledger != nil {
		options.Ledger = d.ledger
	}
	if d.engine, err = NewEngine(ctx, options); err != nil {
		return err
	}
	d.teardown.push("the engine", func(ctx context.Context) error { d.engine.Close(ctx); return nil })
	if p := d.engine.setup.Load().prices; len(p.asks) > 0 || len(p.others) > 0 || d.cfg.Roster != "" {
		d.watchPrices(ctx)
	}
	return nil
}

// openDoors makes the HTTP interface and the MCP server.
func (d *Daemon) openDoors(ctx context.Context, o Options, connections int, node string) (err error) {
	cfg := d.cfg
	options := httpapi.Options{
		Council: d.engine, Offers: d.engine.Offers, Budget: d.engine, Spend: d, Daemon: d, Comparer: d.engine,
		Models: cfg.Models, Origins: cfg.CORSOrigins, AllowedModels: cfg.AllowedModels,
		Shown:  httpapi.Shown{MaxQueryBytes: int64(cfg.MaxQueryBytes), Demo: o.Demo},
		Tokens: d.tokens, MaxSessions: cfg.MaxSessions, Connections: connections,
		Kept: sessions.Options{
			Retention: cfg.SessionRetention, Kept: cfg.SessionsKept, KeptBytes: int64(cfg.SessionsKeptBytes),
			Journal: d.journal, Node: node, Log: d.log,
			Prompts: pipeline.Prompts(tasks()), Needs: pipeline.Needs,
		},
		MaxBodyBytes: int64(cfg.MaxBodyBytes), BodyTimeout: bodyTimeout,
		Log: d.log, Version: o.Version, Settings: config.SettingNames(),
	}
	if cfg.NatsURL != "" { // only sessions on a cluster need a lease
		options.Kept.Lease = cfg.Lease
	}
	if d.evidence != nil {
		options.Ended = d.engine.Ended
		options.Labels = d.evidence
	}
	if d.intake != nil {
		options.Intake = d.intake
	}
	if cfg.Metrics {
		options.Metrics = d.engine.metrics.Handler()
		d.measureReports(ctx)
	}
	if d.engine.tracing != nil {
		options.Middleware = d.engine.tracing.Middleware
		options.Traceparent = d.engine.tracing.Traceparent
	}
	if !o.Unreachable {
		if err := d.openMCP(o.Version); err != nil {
			return err
		}
		options.MCP = d.mcp
	}
	if cfg.WebhookURL != "" {
		options.Kept.Ending = d.ending
	}
	if d.api, err = httpapi.New(options); err != nil {
		return err
	}
	d.api.Mount(openai.Routes(d.api)...)
	err = d.openHooks(ctx, o.Disk)
	d.teardown.push("the interface", d.api.Close)
	return err
}

// measureReports adds the verdicts and the monitor of the bias report to the metrics, if records are kept.
func (d *Daemon) measureReports(ctx context.Context) {
	if d.store == nil {
		return
	}
	d.measureVerdicts(ctx)
	if d.cfg.MonitorInterval != nil {
		d.measureMonitor(ctx)
	}
}

// openMCP makes the server of the Model Context Protocol. Its tools send requests to the daemon's own HTTP
// interface, inside the process.
func (d *Daemon) openMCP(version string) (err error) {
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.api.ServeHTTP(w, r.WithContext(httpapi.Inside(r.Context())))
	})
	options := mcpserver.Options{
		Daemon:   client.Options{URL: "http://localhost", HTTP: &http.Client{Transport: mcpserver.InProcess(own)}},
		Settings: config.SettingNames(), Version: version, Log: d.log,
	}
	if d.cfg.SessionsKept > 0 && d.cfg.SessionsKeptBytes > 0 {
		options.Timeout = d.cfg.Timeout
		options.Retention = d.cfg.SessionRetention
	}
	d.mcp, err = mcpserver.New(options)
	return err
}

// watchPrices asks the providers for their lists of models and prices until the daemon is closed.
func (d *Daemon) watchPrices(ctx context.Context) {
	d.runBackground(ctx, "the prices", func(ctx context.Context) { d.engine.watchPrices(ctx, d.log) })
}

// Reload reads the roster again and puts it in force as a whole. Running sessions keep the roster with which they
// began. If the new roster has errors, Reload logs each of them, and the roster in force stays. Callers must not
// call Reload concurrently.
func (d *Daemon) Reload(ctx context.Context) {
	if d.Stopping() {
		return
	}
	var tokens []httpapi.Token
	err := d.engine.Reload(ctx, func(h *setup) (err error) {
		tokens, err = requireTokens(ctx, d.cfg, h.tokens(), d.listener.Addr(), d.log)
		return err
	})
	d.rosterInvalid.Store(err != nil)
	if err != nil {
		for problem := range strings.Lines(err.Error()) {
			d.log.ErrorContext(ctx, "the new roster cannot be used; the previous one stays in "+
				"use", "problem", strings.TrimSpace(problem))
		}
		return
	}
	d.api.SetTokens(tokens)
	d.log.InfoContext(ctx, "a new roster is in use", "roster", d.engine.setup.Load().roster.Hash)
}

// Tokens returns the bearer tokens. If there are tokens, a caller needs one of them.
func (d *Daemon) Tokens() []httpapi.Token { return d.tokens }

// URL returns the URL at which this machine reaches the daemon.
func (d *Daemon) URL() string { return "http://" + Reachable(d.listener.Addr().String()) }

// Handler returns the HTTP interface that the daemon serves.
func (d *Daemon) Handler() http.Handler { return d.api }

// Reachable turns an address to listen on into an address to connect to. An unspecified host becomes 127.0.0.1.
func Reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// Serve answers requests until ctx ends. Then it drains. A single daemon refuses new sessions at once, and a node of a
// cluster after a sixth of the drain time. Running sessions may finish within the drain time. After that time, Serve
// cancels the remaining sessions and releases everything.
func (d *Daemon) Serve(ctx context.Context) error {
	defer func() {
		if err := d.Close(ctx); err != nil {
			d.log.ErrorContext(ctx, "closing", "error", err)
		}
	}()
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	d.server.BaseContext = func(net.Listener) context.Context { return base }
	failed := make(chan error, 1)
	d.api.Resume(ctx) // before a client can ask for these sessions
	go func() { failed <- d.server.Serve(d.listener) }()
	manager := newManager(d.log)
	manager.tell(base, "READY=1")
	go manager.watch(base, d.alive)
	if _, unreachable := d.listener.Addr().(nowhereAddr); !unreachable {
		d.log.InfoContext(ctx, "listening", "url", d.URL(), "models", d.cfg.Models, "records", d.recordFile())
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	manager.tell(base, "STOPPING=1")

	var notice time.Duration
	if d.cfg.NatsURL != "" {
		notice = d.cfg.DrainTimeout / noticeShare
	}
	// The listener stays open, so that /readyz can say that the daemon stops. A single daemon refuses new sessions as soon
	// as /readyz says this.
	d.draining.Store(notice == 0)
	d.stopping.Store(true)
	d.engine.stopping.Store(true)
	d.log.InfoContext(ctx, "stopping: no new sessions; a second signal ends at once", "drain_timeout", d.cfg.DrainTimeout.String())
	time.Sleep(notice)
	d.draining.Store(true)
	if err := within(ctx, d.cfg.DrainTimeout-notice, d.api.Idle); err != nil {
		d.log.WarnContext(ctx, "the drain time is over: cancelling the running sessions")
		d.api.Cancel(errShutdown)
		_ = within(ctx, closeGrace, d.api.Idle) // sessions that still run are cut off below
	} else {
		d.api.Cancel(errShutdown) // no session runs; this ends the requests that watch sessions of other nodes
	}
	if d.mcp != nil {
		d.mcp.Stop()
	}
	if err := within(ctx, closeGrace, d.server.Shutdown); err != nil {
		cancel(errShutdown)
		_ = d.server.Close() // there is no time left to wait for responses
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	d.log.InfoContext(ctx, "stopped")
	return nil
}

// Close releases what New opened, in reverse order. Serve calls it.
func (d *Daemon) Close(ctx context.Context) error { return d.teardown.run(ctx) }

func (d *Daemon) recordFile() string {
	if d.store == nil {
		return "off"
	}
	return d.cfg.BiasStore
}

// Report implements httpapi.Daemon.
func (d *Daemon) Report(ctx context.Context, q bias.Query) (bias.Report, error) {
	return Report(ctx, d.cfg, []string{d.cfg.BiasStore}, q)
}

// Leaderboard implements httpapi.Daemon.
func (d *Daemon) Leaderboard(ctx context.Context, q bias.Query) (bias.Leaderboard, error) {
	return Leaderboard(ctx, d.cfg, []string{d.cfg.BiasStore}, q)
}

// Spend implements httpapi.Spend.
func (d *Daemon) Spend(ctx context.Context, q spend.Query) (spend.Costs, error) {
	if d.ledger == nil { // without a ledger, only running sessions are known
		return spend.ReadReport(nil, nil, d.engine.book, q, time.Now())
	}
	return d.ledger.report(ctx, d.engine.book, q)
}

// Estimate implements httpapi.Spend.
func (d *Daemon) Estimate(plan council.Plan) spend.Estimate { return d.engine.Estimate(plan) }

// Stopping implements httpapi.Daemon.
func (d *Daemon) Stopping() bool { return d.stopping.Load() }

// Draining implements httpapi.Daemon.
func (d *Daemon) Draining() bool { return d.draining.Load() }

// NotReady implements httpapi.Daemon.
func (d *Daemon) NotReady() []httpapi.Reason {
	var reasons []httpapi.Reason
	if d.Stopping() {
		reasons = append(reasons, httpapi.Reason{Code: "draining", Message: "the daemon is shutting down"})
	}
	if d.store != nil {
		if err := d.store.Healthy(); err != nil {
			message := "records could not be written, and wait for the next attempt; the log says why"
			if errno, ok := errors.AsType[syscall.Errno](err); ok { // the text of an errno holds no path
				message = "records could not be written, and wait for the next attempt: " + errno.Error()
			}
			reasons = append(reasons, httpapi.Reason{Code: "store", Message: message})
		}
	}
	if path, _ := d.cfg.SpendFile(); d.ledger != nil {
		reasons = append(reasons, d.ledger.notReady()...)
	} else if path != "" {
		reasons = append(reasons, httpapi.Reason{
			Code: "ledger", Bearable: true, Message: "costs are not stored, because the ledger could not be " +
				"opened; the log says why",
		})
	}
	if d.journal != nil {
		if why := d.notKept(); why != "" {
			reasons = append(reasons, httpapi.Reason{
				Code: "sessions", Bearable: true,
				Message: "sessions in the background and with an Idempotency-Key are refused: " + why,
			})
		}
	}
	if d.journal != nil {
		for _, damage := range d.journal.Damages() {
			reasons = append(reasons, httpapi.Reason{
				Code: "sessions_damaged", Bearable: true,
				Message: "files of kept sessions were damaged, found " + damage.At.Format("on 2006-01-02 at 15:04 UTC") + ": " + damage.Problem() +
					"; the log names them; to accept the loss, run councild sessions accept",
			})
		}
	}
	if missing := d.engine.setup.Load().prices.missing(); len(missing) > 0 && isLimited(d.cfg) {
		reasons = append(reasons, httpapi.Reason{
			Code: "prices_missing", Bearable: !d.cfg.HasHardLimits(),
			Message: "a provider has not reported its prices yet, and is asked again; prices in LLM_COUNCIL_PRICES " +
				"take precedence",
		})
	}
	if d.intake != nil && d.intake.Healthy() != nil {
		reasons = append(reasons, httpapi.Reason{
			Code: "intake", Bearable: true, Message: "events of other councils could not be written and are refused; the log says why",
		})
	}
	if d.outbox != nil && d.outbox.Failing() != nil {
		reasons = append(reasons, httpapi.Reason{
			Code: "events", Bearable: true, Message: "events of sessions could not be delivered, and wait for the " +
				"next attempt; the log says why",
		})
	}
	if d.hooks != nil && d.hooks.Failing() != nil {
		reasons = append(reasons, httpapi.Reason{
			Code: "webhooks", Bearable: true, Message: "webhooks could not be delivered and wait for the next try; the log says why",
		})
	}
	if d.rosterInvalid.Load() {
		reasons = append(reasons, httpapi.Reason{
			Code: "roster_invalid", Bearable: true,
			Message: "the new roster has errors, which the log names; the previous one stays in use",
		})
	}
	var missing, ends []string
	for _, r := range d.engine.setup.Load().remarked() {
		if r.code == modelMissing {
			missing = append(missing, r.model)
		} else {
			ends = append(ends, r.model+" (its provider "+r.says+")")
		}
	}
	if len(missing) > 0 {
		reasons = append(reasons, httpapi.Reason{
			Code: modelMissing, Bearable: true,
			Message: "not in the list of their provider: " + strings.Join(missing, ", ") + "; councild check says what to write instead",
		})
	}
	if len(ends) > 0 {
		reasons = append(reasons, httpapi.Reason{
			Code: modelEnds, Bearable: true, Message: "providers will shut down models: " + strings.Join(ends, ", ") + "; configure others",
		})
	}
	if models, quorum := d.engine.outOfOrder(); len(models) > 0 {
		// The problem is bearable if a quorum is left, because another daemon would then run sessions no better than this
		// one.
		reasons = append(reasons, httpapi.Reason{
			Code: "breaker_open", Bearable: quorum,
			Message: "not called, because they failed too often recently: " + strings.Join(models, ", "),
		})
	}
	return reasons
}
