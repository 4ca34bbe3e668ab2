package cli

import (
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
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
)

const (
	// cancelGrace is how long cancelled sessions have to answer after the drain time.
	cancelGrace = 5 * time.Second
	// headerTimeout and bodyTimeout are how long a client may take to send the
	// headers and the body of a request.
	headerTimeout = 10 * time.Second
	bodyTimeout   = 15 * time.Second
)

var errShutdown = errors.New("the daemon shuts down")

// daemon is a councild that listens. It is made by newDaemon and used up by serve.
type daemon struct {
	cfg      config.Config
	log      *slog.Logger
	store    *store.Store // nil when records are switched off
	engine   *engine
	listener net.Listener
	tokens   []string // that callers need; none: nobody is asked
	api      *httpapi.API
	server   *http.Server
	draining atomic.Bool
}

// newDaemon binds the address and wires everything that a daemon needs, with its
// records on the disk on. The caller calls serve, which also releases it.
func newDaemon(ctx context.Context, cfg config.Config, on disk.Disk, log *slog.Logger, version string) (_ *daemon, err error) {
	d := &daemon{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(ctx))
		}
	}()
	var recorder pipeline.Recorder
	if cfg.BiasPersistence && cfg.BiasConsent > 0 {
		var recovery store.Recovery
		if d.store, recovery, err = openStore(cfg, on, log); err != nil { //nolint:contextcheck // a store lives until it is closed
			return nil, err
		}
		recorder = d.store
		if recovery.CutBytes > 0 {
			log.WarnContext(ctx, "cut an unfinished last session off the record store, left by a crash", "bytes", recovery.CutBytes)
		}
	}
	if d.engine, err = newEngine(ctx, cfg, simllm.Options{}, recorder, log, version); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listening: %w; name another address in LLM_COUNCIL_ADDR", err)
	}
	bounded := newBoundedListener(listener, maxConnections(cfg, descriptors()))
	d.listener = bounded
	d.tokens = d.requireTokens(ctx)
	o := httpapi.Options{
		Council: d.engine, Daemon: d, Models: cfg.Models, Tokens: d.tokens, MaxSessions: cfg.MaxSessions,
		Limits:       httpapi.Limits{Sessions: cfg.MaxSessionsPerToken, PerMinute: cfg.RateLimit},
		Kept:         sessions.Options{Retention: cfg.SessionRetention, Kept: cfg.SessionsKept, KeptBytes: int64(cfg.SessionsKeptBytes)},
		MaxBodyBytes: int64(cfg.MaxBodyBytes), MaxMessages: cfg.MaxMessages, BodyTimeout: bodyTimeout, Log: log, Version: version,
	}
	if cfg.Metrics {
		o.Metrics = d.engine.metrics.Handler()
	}
	if d.engine.tracing != nil {
		o.Middleware = d.engine.tracing.Middleware
	}
	if d.api, err = httpapi.New(o); err != nil {
		return nil, err
	}
	d.server = &http.Server{
		Handler: d.api, ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		WriteTimeout: cfg.Timeout + time.Minute, // a run, and its answer
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				bounded.leave()
			}
		},
	}
	bounded.evict = func() {
		d.server.SetKeepAlivesEnabled(false) // closes what is idle
		d.server.SetKeepAlivesEnabled(true)
	}
	return d, nil
}

// requireTokens returns the bearer tokens that callers need. An address that others can
// reach is never left open: without configured tokens one is made.
func (d *daemon) requireTokens(ctx context.Context) []string {
	tokens := make([]string, 0, len(d.cfg.APITokens))
	for _, t := range d.cfg.APITokens {
		tokens = append(tokens, t.Reveal())
	}
	if address, ok := d.listener.Addr().(*net.TCPAddr); len(tokens) == 0 && ok && !address.IP.IsLoopback() {
		tokens = []string{rand.Text()}
		d.log.WarnContext(ctx, "the address is not loopback and LLM_COUNCIL_API_TOKENS is not set: made a token for this run", "token", tokens[0])
	}
	return tokens
}

// url returns where the daemon is reached from this machine.
func (d *daemon) url() string { return "http://" + reachable(d.listener.Addr().String()) }

// reachable turns an address to listen on into one to connect to.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// serve answers requests until ctx ends. Then it takes no new session, lets the
// running ones finish within the drain time, cancels what is left, and releases
// everything.
func (d *daemon) serve(ctx context.Context) error {
	defer func() {
		if err := d.close(ctx); err != nil {
			d.log.ErrorContext(ctx, "closing", "error", err)
		}
	}()
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	d.server.BaseContext = func(net.Listener) context.Context { return base }
	failed := make(chan error, 1)
	go func() { failed <- d.server.Serve(d.listener) }()
	d.log.InfoContext(ctx, "listening", "url", d.url(), "models", d.cfg.Models, "records", d.recordFile())
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}

	// The listener stays open meanwhile, so that /readyz can say what happens.
	d.draining.Store(true)
	d.log.InfoContext(ctx, "stopping: no new sessions; a second signal ends at once", "drain_timeout", d.cfg.DrainTimeout.String())
	if err := within(ctx, d.cfg.DrainTimeout, d.api.Idle); err != nil {
		d.log.WarnContext(ctx, "the drain time is over: cancelling the running sessions")
		d.api.Cancel(errShutdown)
		_ = within(ctx, cancelGrace, d.api.Idle) // what is still there is cut off below
	}
	if err := within(ctx, cancelGrace, d.server.Shutdown); err != nil {
		cancel(errShutdown)
		_ = d.server.Close() // nothing more can be waited for
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	d.log.InfoContext(ctx, "stopped")
	return nil
}

// within calls f with a context that ends after the timeout, and not with ctx.
func within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return f(ctx)
}

// close releases what newDaemon took, the last first.
func (d *daemon) close(ctx context.Context) error {
	var errs []error
	if d.listener != nil {
		if err := d.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.api != nil {
		d.api.Close()
	}
	if d.engine != nil {
		d.engine.Close(ctx)
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	return errors.Join(errs...)
}

func (d *daemon) recordFile() string {
	if d.store == nil {
		return "off"
	}
	return d.cfg.BiasStore
}

// Report implements httpapi.Daemon.
func (d *daemon) Report(ctx context.Context, q httpapi.ReportQuery) (bias.Report, error) {
	return report(ctx, d.cfg, d.cfg.BiasStore, q)
}

// Leaderboard implements httpapi.Daemon.
func (d *daemon) Leaderboard(ctx context.Context, q httpapi.LeaderboardQuery) (bias.Leaderboard, error) {
	return leaderboard(ctx, d.cfg, d.cfg.BiasStore, q)
}

// Draining implements httpapi.Daemon.
func (d *daemon) Draining() bool { return d.draining.Load() }

// NotReady implements httpapi.Daemon.
func (d *daemon) NotReady() []httpapi.Reason {
	var reasons []httpapi.Reason
	if d.Draining() {
		reasons = append(reasons, httpapi.Reason{Code: "draining", Message: "the daemon is shutting down"})
	}
	if d.store != nil {
		if err := d.store.Healthy(); err != nil {
			message := "records could not be written and wait for the next try; the log says why"
			if errno, ok := errors.AsType[syscall.Errno](err); ok { // it holds no path
				message = "records could not be written and wait for the next try: " + errno.Error()
			}
			reasons = append(reasons, httpapi.Reason{Code: "store", Message: message})
		}
	}
	if models, quorum := d.engine.outOfOrder(d.cfg); len(models) > 0 {
		// With a quorum left, sessions are as well off here as anywhere: degraded.
		reasons = append(reasons, httpapi.Reason{
			Code: "breaker_open", Message: "not called, because they failed too often of late: " + strings.Join(models, ", "), Bearable: quorum,
		})
	}
	return reasons
}
