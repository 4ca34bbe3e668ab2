package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/spend"
)

type spendCmd struct {
	Input  string  `help:"Ledger to read; default LLM_COUNCIL_SPEND_STORE." placeholder:"FILE"`
	Days   int     `help:"Today (UTC) and the days before it, 0 for all." default:"30" placeholder:"N"`
	By     string  `help:"What the rows are of: ${enum}." enum:"day,token,council,model" default:"day"`
	Token  *string `help:"Only the sessions of the token with this name." placeholder:"NAME"`
	Format string  `help:"Form of the report: ${enum}." enum:"text,json,csv" default:"text"`
}

// Help returns what the help of the command says below its summary.
func (spendCmd) Help() string {
	return "Sessions that run, and those that a crash ended, count with their whole limit, as uncertain. A running daemon knows more: " +
		"ask it for GET /v1/spend."
}

// Run prints what sessions cost.
func (c spendCmd) Run(ctx context.Context, std IO) error {
	if c.Days < 0 {
		return usageError{errors.New("--days takes a whole number, 0 for no limit")}
	}
	cfg, err := config.Load()
	if err != nil {
		return usageError{err}
	}
	path := c.Input
	if path == "" {
		if path, _ = cfg.SpendFile(); path == "" {
			return usageError{errors.New("LLM_COUNCIL_SPEND_STORE is off: name a file with --input")}
		}
	}
	r, err := daemon.Spend(ctx, path, spend.Query{Days: c.Days, By: spend.By(c.By), Token: c.Token})
	if err != nil {
		return err
	}
	return writeAs(std.Stdout, c.Format, r, render.SpendCSV, nil, render.Spend)
}

type pricesCmd struct {
	From string `help:"File to read in place of asking the providers: OpenRouter's /models, or LiteLLM's model_prices_and_context_window.json." placeholder:"FILE"`
}

// Help returns what the help of the command says below its summary.
func (pricesCmd) Help() string {
	return "The prices of the configured models, as of today or of the file's day, each as an entry of a roster and as one of LLM_COUNCIL_PRICES, " +
		"and where they differ from those that are set. Look at them before you use them: a wrong price overspends in silence."
}

// Run prints what models cost.
func (c pricesCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if len(cfg.Models) == 0 {
		return usageError{cfg.RequireCouncil()}
	}
	listed, err := daemon.ListPrices(ctx, cfg, c.From, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	var b strings.Builder
	var entries []string
	for _, l := range listed {
		if l.Listed == nil {
			fmt.Fprintf(&b, "# %s: no price was found\n", l.Model)
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", l.Model, l.Listed.Line())
		entries = append(entries, l.Model+"="+l.Listed.Entry())
		if l.Set != nil && !l.Set.Same(*l.Listed) {
			fmt.Fprintf(&b, "# differs from what is set: %s\n", l.Set.Line())
		}
	}
	if len(entries) > 0 {
		fmt.Fprintf(&b, "# LLM_COUNCIL_PRICES=%s\n", strings.Join(entries, ","))
	}
	if _, err := io.WriteString(terminal{std.Stdout}, b.String()); err != nil {
		return fmt.Errorf("writing the prices: %w", err)
	}
	return nil
}
