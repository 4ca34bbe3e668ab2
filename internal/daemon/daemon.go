// Package daemon wires the packages below into a council and runs it from start to
// stop: [New] binds the address and opens the record store, [Daemon.Serve] answers
// until its context ends. Commands that need no address use an [Engine] alone. The
// package leaves the command line to cli, HTTP to httpapi and a run to pipeline.
//
// # Decisions
//
// An open breaker is no reason to send sessions elsewhere while the models left make a quorum: /readyz names it and
// stays green. A breaker is half open by itself after 10 s, so red readiness cannot keep away the request that would
// close it.
//
// No queue before a session. Beyond LLM_COUNCIL_MAX_SESSIONS the answer is 503 at once, and also where calls wait for
// a provider whose calls are limited for so long that stage 1 would run out of time (daemon.(*Engine).Open).
//
// Connections are bounded by the descriptors that the process has, less those for calls and the store. A connection
// beyond that waits in the kernel, and idle connections are closed to make room: a flood costs time, not sessions.
// Calls without a limit of their own have a quarter of the descriptors.
//
// No ReadTimeout. A body has its own deadline, lifted before the run: on Go's server an expired one looks like a
// client that left, and would cancel the session. WriteTimeout is longer than a run; an answer has a minute from when
// it is written.
//
// Never logged, at any level: questions, answers, keys.
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
	// headerTimeout and bodyTimeout are how long a client may take to send the
	// headers and the body of a request.
	headerTimeout = 10 * time.Second
	bodyTimeout   = 15 * time.Second
	// noticeShare is the part of the drain time, as a divisor, in which one of several
	// nodes still takes new sessions: their balancer asks for /readyz at intervals.
	noticeShare = 6
)

var errShutdown = errors.New("the daemon shuts down")

// Options are what a daemon is made of.
type Options struct {
	Config   config.Config
	Disk     disk.Disk    // for the records; nil: the operating system's
	Listener net.Listener // nil: New listens on Config.Addr
	// Unreachable is for a daemon that only its Handler leads to: no address is listened on.
	Unreachable bool
	Log         *slog.Logger // nil: nothing is logged
	Version     string
	// Category and Language are those of questions that name none; "": unknown.
	Category, Language string
	Simulated          Simulator // nil: there are no simulated models
}

// validate runs before New touches anything outside this process.
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
	store     *store.Store     // nil when records are switched off
	publisher *publisher       // of records to the cluster; nil: there is none
	ledger    *ledger          // nil when what sessions cost is not kept
	evidence  *evidence        // nil when what people and reviewers say of sessions is not kept
	outbox    *consent.Outbox  // of events; nil when none are sent
	intake    *consent.Intake  // of events of other councils; nil when none are taken in
	journal   *journal.Journal // nil when sessions are in memory only
	engine    *Engine
	listener  net.Listener
	tokens    []httpapi.Token // callers need one of them; none: no token is asked for
	api       *httpapi.API
	mcp       *mcpserver.Server // nil when the daemon is unreachable
	server    *http.Server
	stopping  atomic.Bool
	// rosterInvalid says that the roster was read again, and is not in force because something is wrong with it.
	rosterInvalid atomic.Bool
	draining      atomic.Bool // and no new session is taken
	teardown      teardown
}

// New binds the address and wires everything that a daemon needs. The caller then calls
// Serve, which releases everything at its end, or Close.
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
	bounded, err := d.listen(ctx, o, connections) // first: where another daemon answers, nothing is touched
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
		WriteTimeout: cfg.Timeout + time.Minute, // for the run, and for sending its answer
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:    bounded.changed,
	}
	bounded.evict = func() {
		d.server.SetKeepAlivesEnabled(false) // closes the idle connections
		d.server.SetKeepAlivesEnabled(true)
	}
	return d, nil
}

// listen binds the address, for so many connections.
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

// openFiles opens what the daemon keeps in files, but for its sessions.
func (d *Daemon) openFiles(ctx context.Context, o Options) (err error) {
	cfg := d.cfg
	if cfg.KeepsRecords() {
		var recovery store.Recovery
		if d.store, recovery, err = OpenStore(cfg, o.Disk, d.log); err != nil { //nolint:contextcheck // a store lives until it is closed
			return err
		}
		d.teardown.push("the record store", func(context.Context) error { return d.store.Close() })
		if recovery.CutBytes > 0 {
			d.log.WarnContext(ctx, "cut an unfinished last session off the record store, left by a crash", "bytes", recovery.CutBytes)
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

// openEngine makes the engine, which asks the councils.
func (d *Daemon) openEngine(ctx context.Context, o Options) (err error) {
	options := EngineOptions{
		Config: d.cfg, Simulated: o.Simulated, Evidence: d.evidence, Outbox: d.outbox, Log: d.log,
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

// openDoors makes the interfaces over which the daemon is asked.
func (d *Daemon) openDoors(ctx context.Context, o Options, connections int, node string) (err error) {
	cfg := d.cfg
	options := httpapi.Options{
		Council: d.engine, Offers: d.engine.Offers, Budget: d.engine, Spend: d, Daemon: d, Comparer: d.engine,
		Models: cfg.Models, Origins: cfg.CORSOrigins, AllowedModels: cfg.AllowedModels,
		MaxQueryBytes: int64(cfg.MaxQueryBytes),
		Tokens:        d.tokens, MaxSessions: cfg.MaxSessions, Connections: connections,
		Kept: sessions.Options{
			Retention: cfg.SessionRetention, Kept: cfg.SessionsKept, KeptBytes: int64(cfg.SessionsKeptBytes),
			Journal: d.journal, Node: node, Log: d.log,
			Prompts: pipeline.Prompts(), Needs: pipeline.Needs,
		},
		MaxBodyBytes: int64(cfg.MaxBodyBytes), BodyTimeout: bodyTimeout,
		Log: d.log, Version: o.Version, Settings: config.SettingNames(),
	}
	if cfg.NatsURL != "" { // one machine needs no lease
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
	}
	if !o.Unreachable {
		if err := d.openMCP(o.Version); err != nil {
			return err
		}
		options.MCP = d.mcp
	}
	if d.api, err = httpapi.New(options); err != nil {
		return err
	}
	d.api.Mount(openai.Routes(d.api)...)
	d.teardown.push("the interface", d.api.Close)
	return nil
}

// measureReports has the metrics say what the bias report finds, if records are kept.
func (d *Daemon) measureReports(ctx context.Context) {
	if d.store == nil {
		return
	}
	d.measureVerdicts(ctx)
	if d.cfg.MonitorInterval != nil {
		d.measureMonitor(ctx)
	}
}

// openMCP makes the server of the Model Context Protocol. Calls of its tools are requests to the very interface that it
// is a part of.
func (d *Daemon) openMCP(version string) (err error) {
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.api.ServeHTTP(w, r.WithContext(httpapi.Inside(r.Context())))
	})
	d.mcp, err = mcpserver.New(mcpserver.Options{
		Daemon:   client.Options{URL: "http://localhost", HTTP: &http.Client{Transport: mcpserver.InProcess(own)}},
		Settings: config.SettingNames(), Version: version, Log: d.log,
	})
	return err
}

// watchPrices has the lists of providers asked for until the daemon is closed.
func (d *Daemon) watchPrices(ctx context.Context) {
	d.runBackground(ctx, "the prices", func(ctx context.Context) { d.engine.watchPrices(ctx, d.log) })
}

// Reload reads the roster again, and puts it in force as a whole. Sessions that run keep the one before. When
// something is wrong with it, the one before stays in force, and the log has every problem. Calls must come one
// after the other.
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
			d.log.ErrorContext(ctx, "the roster cannot be put in force, and the one before stays", "problem", strings.TrimSpace(problem))
		}
		return
	}
	d.api.SetTokens(tokens)
	d.log.InfoContext(ctx, "another roster is in force", "roster", d.engine.setup.Load().roster.Hash)
}

// Tokens returns the bearer tokens of which callers need one; none: no token is asked for.
func (d *Daemon) Tokens() []httpapi.Token { return d.tokens }

// URL returns the URL at which this machine reaches the daemon.
func (d *Daemon) URL() string { return "http://" + Reachable(d.listener.Addr().String()) }

// Handler returns the interface that the daemon serves.
func (d *Daemon) Handler() http.Handler { return d.api }

// Reachable turns an address to listen on into an address to connect to.
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

// Serve answers requests until ctx ends. Then it refuses new sessions, one of several
// nodes after a sixth of the drain time, lets the running sessions finish within the drain
// time, cancels the others, and releases everything.
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
	d.api.Resume(ctx) // before anybody asks for these sessions
	go func() { failed <- d.server.Serve(d.listener) }()
	if _, unreachable := d.listener.Addr().(nowhereAddr); !unreachable {
		d.log.InfoContext(ctx, "listening", "url", d.URL(), "models", d.cfg.Models, "records", d.recordFile())
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}

	var notice time.Duration
	if d.cfg.NatsURL != "" {
		notice = d.cfg.DrainTimeout / noticeShare
	}
	// The listener stays open meanwhile, so that /readyz can say that the daemon stops. Whoever
	// reads that from a daemon that is alone knows that no session begins any more.
	d.draining.Store(notice == 0)
	d.stopping.Store(true)
	d.engine.stopping.Store(true)
	d.log.InfoContext(ctx, "stopping: no new sessions; a second signal ends at once", "drain_timeout", d.cfg.DrainTimeout.String())
	time.Sleep(notice)
	d.draining.Store(true)
	if err := within(ctx, d.cfg.DrainTimeout-notice, d.api.Idle); err != nil {
		d.log.WarnContext(ctx, "the drain time is over: cancelling the running sessions")
		d.api.Cancel(errShutdown)
		_ = within(ctx, closeGrace, d.api.Idle) // sessions that go on are cut off below
	} else {
		d.api.Cancel(errShutdown) // nothing runs: it ends those who watch sessions of other nodes
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

// Close releases what New took, the last first. Serve calls it.
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
	if d.ledger == nil { // nothing is known but what runs
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
			message := "records could not be written and wait for the next try; the log says why"
			if errno, ok := errors.AsType[syscall.Errno](err); ok { // its text holds no path
				message = "records could not be written and wait for the next try: " + errno.Error()
			}
			reasons = append(reasons, httpapi.Reason{Code: "store", Message: message})
		}
	}
	if path, _ := d.cfg.SpendFile(); d.ledger != nil {
		reasons = append(reasons, d.ledger.notReady()...)
	} else if path != "" {
		reasons = append(reasons, httpapi.Reason{
			Code: "ledger", Bearable: true, Message: "what sessions cost is not kept, because the ledger could not be opened; the log says why",
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
					"; the log names them, and councild sessions accept takes the loss",
			})
		}
	}
	if missing := d.engine.setup.Load().prices.missing(); len(missing) > 0 && isLimited(d.cfg) {
		reasons = append(reasons, httpapi.Reason{
			Code: "prices_missing", Bearable: !d.cfg.HasHardLimits(),
			Message: "a provider did not tell its prices yet, and is asked again; prices in LLM_COUNCIL_PRICES go first",
		})
	}
	if d.intake != nil && d.intake.Healthy() != nil {
		reasons = append(reasons, httpapi.Reason{
			Code: "intake", Bearable: true, Message: "events of other councils could not be written and are refused; the log says why",
		})
	}
	if d.outbox != nil && d.outbox.Failing() != nil {
		reasons = append(reasons, httpapi.Reason{
			Code: "events", Bearable: true, Message: "events of sessions could not be delivered and wait for the next try; the log says why",
		})
	}
	if d.rosterInvalid.Load() {
		reasons = append(reasons, httpapi.Reason{
			Code: "roster_invalid", Bearable: true,
			Message: "something is wrong with the roster that was read last: the one before stays in force, and the log says what it is",
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
			Code: modelEnds, Bearable: true, Message: "models end: " + strings.Join(ends, ", ") + "; configure others",
		})
	}
	if models, quorum := d.engine.outOfOrder(); len(models) > 0 {
		// With a quorum left, another daemon would run sessions no better than this one.
		reasons = append(reasons, httpapi.Reason{
			Code: "breaker_open", Bearable: quorum,
			Message: "not called, because they failed too often of late: " + strings.Join(models, ", "),
		})
	}
	return reasons
}
