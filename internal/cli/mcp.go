package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/doors/mcpserver"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
)

// lookTimeout is how long a daemon on this machine may take to say that it is alive.
const lookTimeout = 2 * time.Second

type mcpCmd struct {
	Server string `placeholder:"URL" help:"The daemon's URL, asked with the first of LLM_COUNCIL_API_TOKENS; default: see above."`
}

// Help returns the details that --help prints below the summary of the command.
func (mcpCmd) Help() string {
	return "An editor or an agent starts this command; docs/mcp.md says how to add it. Without --server, it asks " +
		"the daemon at LLM_COUNCIL_ADDR. If no daemon answers there, the command runs the council itself, and " +
		"keeps its sessions in memory only.\n\n" + exitCodes
}

// Run serves one MCP client on the standard streams until its input ends.
func (c mcpCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if std.Stdin == nil {
		return usageError{errors.New("there is no standard input: let an editor or an agent start councild mcp " +
			"(docs/mcp.md)")}
	}
	o, err := daemonAt(cfg, c.Server)
	if err != nil {
		return err
	}
	if c.Server == "" && !answers(ctx, o) {
		return c.inProcess(ctx, std, cfg)
	}
	_, _ = fmt.Fprintln(std.Stderr, "councild: asking the daemon at", o.URL)
	return serveMCP(ctx, std, cfg, o, func(err error) error { return explainRefusal(o, err) })
}

// answers reports whether a healthy daemon answers.
func answers(ctx context.Context, o client.Options) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	d, err := client.New(o)
	if err != nil {
		return false
	}
	defer d.Close()
	return d.Healthy(ctx) == nil
}

// inProcess runs a daemon that listens on no address, in this process. If another process holds the record store,
// sessions leave no records.
func (mcpCmd) inProcess(ctx context.Context, std IO, cfg config.Config) (err error) {
	if err := cfg.RequireCouncil(); err != nil {
		return usageError{err}
	}
	cfg.SessionsInMemory = true
	cfg.NatsURL = ""
	cfg.DrainTimeout = 0 // After the client has left, no one fetches the answers of running sessions.
	o := daemon.Options{
		Config:      cfg,
		Simulated:   simllm.Default(),
		Unreachable: true,
		Log:         newLog(std.Stderr, cfg),
		Version:     std.Version,
	}
	d, err := daemon.New(ctx, o)
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		_, _ = fmt.Fprintf(std.Stderr,
			"councild: sessions leave no records: %v; to let a running daemon answer and record, use --server\n", held)
		o.Config.BiasPersistence = false
		d, err = daemon.New(ctx, o)
	}
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- d.Serve(serving) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	_, _ = fmt.Fprintf(std.Stderr, "councild: no daemon answers at %s: the council runs in this process\n",
		daemon.Reachable(cfg.Addr))
	own := client.Options{URL: "http://localhost", HTTP: &http.Client{Transport: mcpserver.InProcess(d.Handler())}}
	if tokens := d.Tokens(); len(tokens) > 0 {
		own.Token = tokens[0].Secret
	}
	return serveMCP(ctx, std, cfg, own, nil)
}

// serveMCP serves one client. Its tools ask the daemon that the client options name. The argument explain turns the
// errors of that daemon into errors for the user, and may be nil.
func serveMCP(ctx context.Context, std IO, cfg config.Config, o client.Options, explain func(error) error) error {
	timeout, retention := sessionTimes(ctx, o)
	s, err := mcpserver.New(mcpserver.Options{
		Daemon:    o,
		Explain:   explain,
		Settings:  config.SettingNames(),
		Version:   std.Version,
		Log:       newLog(std.Stderr, cfg),
		Timeout:   timeout,
		Retention: retention,
	})
	if err != nil {
		return usageError{fmt.Errorf("--server: %w", err)}
	}
	defer s.Close()
	return s.Serve(ctx, std.Stdin, std.Stdout)
}

// sessionTimes asks a daemon how long a session may take, and how long it can be read after its end. The retention is 0
// if the daemon does not answer, or if its version does not say it. The client is then offered no tasks.
func sessionTimes(ctx context.Context, o client.Options) (timeout, retention time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var list struct {
		TimeoutMS   int64 `json:"timeout_ms"`
		RetentionMS int64 `json:"retention_ms"`
	}
	d, err := client.New(o)
	if err != nil {
		return 0, 0
	}
	defer d.Close()
	if err := d.Get(ctx, "/v1/councils", &list); err != nil {
		return 0, 0
	}
	return time.Duration(list.TimeoutMS) * time.Millisecond, time.Duration(list.RetentionMS) * time.Millisecond
}
