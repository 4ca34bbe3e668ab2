package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/store"
)

// recordFile is the flags for the records that a command reads.
type recordFile struct {
	Input string `help:"Record file to read; default LLM_COUNCIL_BIAS_STORE." placeholder:"FILE"`

	Sessions *int `help:"How many of the newest sessions to look at, 0 for all; default LLM_COUNCIL_BIAS_WINDOW_SESSIONS." placeholder:"N"`
	Days     *int `help:"How many days to look back, 0 for all; default LLM_COUNCIL_BIAS_WINDOW_DAYS." placeholder:"N"`
}

// load returns the configuration and the file to read.
func (f recordFile) load() (config.Config, string, error) {
	cfg, err := config.Load()
	if err != nil {
		return cfg, "", usageError{err}
	}
	if f.Sessions != nil && *f.Sessions < 0 || f.Days != nil && *f.Days < 0 {
		return cfg, "", usageError{errors.New("--sessions and --days take a whole number, 0 for no limit")}
	}
	if f.Input == "" {
		return cfg, cfg.BiasStore, nil
	}
	if err := store.Find(f.Input); err != nil {
		return cfg, "", fmt.Errorf("reading the records: %w", err)
	}
	return cfg, f.Input, nil
}

func writeIndented(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// show writes a report or a leaderboard.
func show(w io.Writer, text []byte) error {
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

type biasReportCmd struct {
	recordFile
	Since         day    `help:"Only sessions that started then or later: a day in UTC, or RFC 3339." placeholder:"TIME"`
	Until         day    `help:"Only sessions that started before then." placeholder:"TIME"`
	Reviewer      string `help:"Only what this reviewer scored." placeholder:"MEMBER"`
	Model         string `help:"Only how this member was scored." placeholder:"MEMBER"`
	ConfigVersion string `help:"Only sessions of this council_config_version." placeholder:"VERSION"`
	Format        string `help:"Form of the report: ${enum}." enum:"text,json,csv,html" default:"text"`
	Verbose       bool   `help:"Show the reviewers' profiles and the positions in full."`
}

// Run runs the command.
func (c *biasReportCmd) Run(ctx context.Context, std IO) error {
	cfg, path, err := c.load()
	if err != nil {
		return err
	}
	r, err := daemon.Report(ctx, cfg, path, bias.Query{
		Sessions: c.Sessions, Days: c.Days, Since: c.Since.Time, Until: c.Until.Time,
		Reviewer: c.Reviewer, Model: c.Model, ConfigVersion: c.ConfigVersion,
	})
	if err != nil {
		return err
	}
	switch c.Format {
	case "json":
		return writeIndented(std.Stdout, r)
	case "csv":
		return show(std.Stdout, render.CSV(r))
	case "html":
		return show(std.Stdout, render.HTML(r))
	default:
		return show(std.Stdout, render.Text(r, c.Verbose, config.SettingNames()))
	}
}

// day is a time on the command line.
type day struct{ time.Time }

// UnmarshalText reads a day in UTC, or an instant with its offset.
func (d *day) UnmarshalText(text []byte) (err error) {
	d.Time, err = council.ParseTime(string(text))
	return err
}

type leaderboardCmd struct {
	recordFile
	Format   string `help:"Form of the leaderboard: ${enum}." enum:"text,json" default:"text"`
	Category string `help:"Only sessions of this category: ${enum}." enum:",coding,math,writing,reasoning,knowledge,other" default:""`
}

// Run runs the command.
func (c *leaderboardCmd) Run(ctx context.Context, std IO) error {
	cfg, path, err := c.load()
	if err != nil {
		return err
	}
	l, err := daemon.Leaderboard(ctx, cfg, path, bias.Query{Sessions: c.Sessions, Days: c.Days, Category: c.Category})
	if err != nil {
		return err
	}
	if c.Format == "json" {
		return writeIndented(std.Stdout, l)
	}
	return show(std.Stdout, render.Leaderboard(l, config.SettingNames()))
}
