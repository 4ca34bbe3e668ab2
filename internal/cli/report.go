package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/store"
)

// report computes the bias report over the store at path in one pass. A store
// that does not exist yet holds no sessions.
func report(ctx context.Context, cfg config.Config, path string, q httpapi.ReportQuery) (bias.Report, error) {
	o := bias.Options{
		Now: time.Now(), WindowSessions: cfg.BiasWindowSessions, WindowDays: cfg.BiasWindowDays, MinSessions: cfg.MinBiasSessions,
	}
	if q.Sessions != nil {
		o.WindowSessions = *q.Sessions
	}
	if q.Days != nil {
		o.WindowDays = *q.Days
	}
	collector := bias.NewCollector(o)
	for record, err := range store.ReadFile(ctx, path) {
		bad, ok := errors.AsType[*store.LineError](err)
		switch {
		case err == nil:
			collector.Add(record)
		case ok:
			collector.Skip(bad.Line, string(bad.Reason))
		case errors.Is(err, fs.ErrNotExist):
		default:
			return bias.Report{}, err
		}
	}
	return collector.Report(), nil
}

type biasReportCmd struct {
	Input    string `help:"Record file to read; default LLM_COUNCIL_BIAS_STORE." placeholder:"FILE"`
	Format   string `help:"Form of the report: ${enum}." enum:"text,json" default:"text"`
	Sessions *int   `help:"How many of the newest sessions to look at, 0 for all; default LLM_COUNCIL_BIAS_WINDOW_SESSIONS." placeholder:"N"`
	Days     *int   `help:"How many days to look back, 0 for all; default LLM_COUNCIL_BIAS_WINDOW_DAYS." placeholder:"N"`
	Verbose  bool   `help:"Show the reviewers' profiles and the positions in full."`
}

// Run runs the command.
func (c *biasReportCmd) Run(ctx context.Context, std IO) error {
	cfg, err := config.Load()
	if err != nil {
		return usageError{err}
	}
	if c.Sessions != nil && *c.Sessions < 0 || c.Days != nil && *c.Days < 0 {
		return usageError{errors.New("--sessions and --days take a whole number, 0 for no limit")}
	}
	path := cfg.BiasStore
	if c.Input != "" {
		path = c.Input
		if _, err := fileInfo(path); err != nil {
			return fmt.Errorf("reading the records: %w", err)
		}
	}
	r, err := report(ctx, cfg, path, httpapi.ReportQuery{Sessions: c.Sessions, Days: c.Days})
	if err != nil {
		return err
	}
	if c.Format == "json" {
		encoder := json.NewEncoder(std.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	return r.WriteText(std.Stdout, c.Verbose)
}
