package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
)

type serveCmd struct{}

// Run runs the daemon until ctx ends. SIGHUP makes it read the roster again. SIGHUP never ends the process, not
// even during the start and the shutdown.
func (serveCmd) Run(ctx context.Context, std IO) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if err := cfg.RequireCouncil(); err != nil {
		return usageError{err}
	}
	if std.Adjust != nil {
		std.Adjust(&cfg)
	}
	log := newLog(std.Stderr, cfg)
	limitMemory(log)
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Simulated: simllm.Default(), Log: log, Version: std.Version})
	if err != nil {
		return err
	}
	served := make(chan struct{})
	reloading := sync.WaitGroup{}
	reloading.Go(func() {
		for {
			select {
			case <-served:
				return
			case <-hangups:
			}
			switch {
			case ctx.Err() != nil:
				log.InfoContext(ctx, "SIGHUP is ignored: the daemon is shutting down")
			case cfg.Roster == "":
				log.InfoContext(ctx, "SIGHUP is ignored: there is no roster to read again; set LLM_COUNCIL_ROSTER to "+
					"have one, or restart the daemon to change other settings")
			default:
				d.Reload(ctx)
			}
		}
	})
	err = d.Serve(ctx)
	close(served)
	reloading.Wait()
	return err
}

type demoCmd struct {
	Addr     string `help:"Where to listen, port 0 takes a free one; default LLM_COUNCIL_ADDR, or a free port." placeholder:"HOST:PORT"`
	Category string `placeholder:"NAME" help:"Category of questions that name none: ${categories}."`
	Language string `placeholder:"CODE" help:"Language of questions that name none: two letters such as en."`
	Sessions int    `placeholder:"N" default:"100" help:"How many simulated sessions to run first, so that history and reports show something."`
}

// Run runs a daemon with simulated members. Its records go to a new temporary directory.
func (c demoCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if err := checkSubjects([]string{c.Category}, []string{c.Language}); err != nil {
		return err
	}
	if c.Sessions < 0 {
		return usageError{errors.New("--sessions takes a whole number of 0 or more")}
	}
	dir, err := os.MkdirTemp("", "councild-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for the records: %w", err)
	}
	cfg = simulatedCouncil(cfg, filepath.Join(dir, "bias_metrics.jsonl"))
	chosen := c.Addr != "" || slices.ContainsFunc(cfg.Settings(), func(s config.Setting) bool {
		return s.Name == "LLM_COUNCIL_ADDR" && s.Source != config.SourceDefault
	})
	cfg.Addr = cmp.Or(c.Addr, cfg.Addr)
	cfg.APITokens = nil // New makes a token if other machines can reach the address
	provider := simllm.Default()
	provider.Filler = "This is simulated filler: no model was asked."
	past := &pastSessions{}
	provider.Instant = past.asks
	questions := make([]string, len(provider.Written))
	for i, w := range provider.Written {
		questions[i] = w.Question
	}
	o := daemon.Options{
		Config:    cfg,
		Simulated: provider,
		Demo:      questions,
		Log:       slog.New(demoHandler{newLog(std.Stderr, cfg).Handler()}),
		Version:   std.Version,
		Category:  c.Category,
		Language:  c.Language,
	}
	d, err := daemon.New(ctx, o)
	if errors.Is(err, syscall.EADDRINUSE) && !chosen {
		_, _ = fmt.Fprintf(std.Stdout, "%s is taken by another program: this demo takes a free port.\n\n", cfg.Addr)
		o.Config.Addr = "127.0.0.1:0"
		d, err = daemon.New(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("%w (another address: councild demo --addr 127.0.0.1:0)", err)
	}
	auth := ""
	if tokens := d.Tokens(); len(tokens) > 0 {
		auth = fmt.Sprintf(" -H 'Authorization: Bearer %s'", tokens[0].Secret)
	}
	_, err = fmt.Fprintf(std.Stdout, `A council of four simulated models answers at %[1]s
Nothing here is real: no model is asked, no key is used, nothing is paid, nothing leaves this machine.
%[4]d questions have answers that were written for this demo. Any other question gets simulated filler.
History and reports begin with %[5]d simulated sessions, which run now.
Records go to %[2]s

Open that address in a browser, or ask here:

  curl -s%[3]s -H 'Content-Type: application/json' -d '{"query": "%[6]s"}' %[1]s/v1/council

Ctrl-C stops it.
`, d.URL(), cfg.BiasStore, auth, len(questions), c.Sessions, forShell(questions))
	if err != nil {
		return errors.Join(err, d.Close(ctx))
	}
	ctx, cancel := context.WithCancel(ctx)
	running := sync.WaitGroup{}
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := past.run(ctx, d, examplesOf(questions, c.Sessions)); err != nil && ctx.Err() == nil {
			o.Log.WarnContext(ctx, "the simulated sessions of the demo stopped early", "error", err)
		}
	})
	return d.Serve(ctx)
}

type showConfigCmd struct{}

// Run prints every setting with its value, source and meaning. The three settings that everybody needs come first. The
// other settings that are set follow, and then the rest.
func (showConfigCmd) Run(std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	needed := []string{"LLM_COUNCIL_BASE_URL", "LLM_COUNCIL_API_KEY", "LLM_COUNCIL_MODELS"}
	var parts [3][]config.Setting
	for _, s := range slices.Concat(cfg.Settings(), config.Tracing()) {
		part := 2
		switch {
		case slices.Contains(needed, s.Name):
			part = 0
		case s.Source != config.SourceDefault:
			part = 1
		}
		parts[part] = append(parts[part], s)
	}
	w := tabwriter.NewWriter(std.Stdout, 0, 0, 2, ' ', 0)
	for i, title := range []string{"Whom to ask:", "Also set:", "Not set:"} {
		if len(parts[i]) == 0 {
			continue
		}
		if i > 0 {
			title = "\n" + title
		}
		_, _ = fmt.Fprintf(w, "%s\n\nVARIABLE\tVALUE\tFROM\tMEANING\n", title) // Flush returns the errors
		for _, s := range parts[i] {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, cmp.Or(s.Value, "-"), s.Source, s.Meaning)
		}
	}
	for _, warning := range cfg.Warnings() {
		_, _ = fmt.Fprintln(std.Stderr, "councild: warning: a setting is probably wrong:", warning)
	}
	if len(cfg.Models) > 0 { // without models, the user only looks up the settings
		if err := cfg.RequireCouncil(); err != nil {
			_, _ = fmt.Fprintf(std.Stderr, "councild: no council can be run:\n%v\n", err)
		}
	}
	return w.Flush()
}

type versionCmd struct {
	Man string `hidden:"" placeholder:"DIR" help:"Write the manual pages into this directory, for a package."`
}

// Run prints the version, or writes the manual pages.
func (c versionCmd) Run(std IO, command *kong.Context) error {
	if c.Man != "" {
		return writePages(c.Man, command.Model.Node, "councild", std.Version)
	}
	_, err := fmt.Fprintf(std.Stdout, "councild %s (%s, %s/%s)\n",
		std.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
