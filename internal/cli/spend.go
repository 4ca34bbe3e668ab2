package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
)

type spendCmd struct {
	What   string  `arg:"" optional:"" help:"What to do: ${enum}. Verify says what the ledger holds and what is lost, and accept takes a loss." enum:"report,verify,accept" default:"report"`
	Input  string  `help:"Ledger to read; default spend.jsonl in LLM_COUNCIL_DATA_DIR." placeholder:"FILE"`
	Days   int     `help:"Today (UTC) and the days before it, 0 for all." default:"30" placeholder:"N"`
	By     string  `help:"What the rows are of: ${enum}." enum:"day,token,user,council,model" default:"day"`
	Token  *string `help:"Only the sessions of the token with this name." placeholder:"NAME"`
	Format string  `help:"Form of the report: ${enum}." enum:"text,json,csv" default:"text"`
}

// Help returns the details that --help prints below the summary of the command.
func (spendCmd) Help() string {
	return "Sessions that run, and those that a crash ended, count with their whole limit, as uncertain. A running " +
		"daemon knows more: ask it for GET /v1/spend.\n\ncouncild report spend verify ends with exit code 1 if the " +
		"ledger is damaged, until you accept the loss. With a hard daily limit, no daemon starts on such a " +
		"ledger. Stop the daemon and run councild report spend accept: it writes down what is lost, and then the " +
		"daemon can start. What is lost counts against no limit."
}

// Run prints what sessions cost, or verifies or accepts the ledger.
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
			return usageError{errors.New("LLM_COUNCIL_DATA_DIR is off: name a file with --input")}
		}
	}
	switch c.What {
	case "verify":
		return c.verify(ctx, std, path)
	case "accept":
		return c.accept(ctx, std, path)
	}
	r, err := daemon.Spend(ctx, path, spend.Query{Days: c.Days, By: spend.By(c.By), Token: c.Token})
	if err != nil {
		return err
	}
	noteMissing(std, path)
	if c.Format == "csv" && r.Ledger.Damaged {
		_, _ = fmt.Fprintf(terminal{std.Stderr},
			"councild: warning: these sums are too low, because the ledger is damaged: %s\n", r.Ledger.Problem())
	}
	return writeAs(std.Stdout, c.Format, r, render.SpendCSV, nil, render.Spend)
}

// noteMissing says on the standard error that the ledger does not exist.
func noteMissing(std IO, path string) {
	if err := store.Find(path); errors.Is(err, fs.ErrNotExist) {
		_, _ = fmt.Fprintf(terminal{std.Stderr}, "councild: there is no ledger of costs at %s\n", path)
	}
}

// verify prints what the ledger holds on each day. Damage that no operator has accepted is an error.
func (c spendCmd) verify(ctx context.Context, std IO, path string) error {
	r, err := daemon.Spend(ctx, path, spend.Query{})
	if err != nil {
		return err
	}
	noteMissing(std, path)
	if err := writeAs(std.Stdout, c.Format, r, render.SpendCSV, nil, render.Ledger); err != nil {
		return err
	}
	if r.Ledger.Damaged {
		return fmt.Errorf("the ledger of costs %s is damaged: %s; councild report spend accept takes the loss",
			path, r.Ledger.Problem())
	}
	return nil
}

// accept writes down that the operator accepts the damage of the ledger.
func (c spendCmd) accept(ctx context.Context, std IO, path string) error {
	state, err := daemon.AcceptLedger(ctx, path, slog.New(slog.DiscardHandler))
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return fmt.Errorf("%s has the ledger open: stop it, accept the loss, and start it again", holderOf(held))
	}
	if err != nil {
		return err
	}
	text := "Nothing to accept: the ledger is whole.\n"
	if state.Damaged {
		text = "Accepted: " + state.Problem() + ".\n"
	}
	if _, err := io.WriteString(terminal{std.Stdout}, text); err != nil {
		return fmt.Errorf("writing what was accepted: %w", err)
	}
	return nil
}

// holderOf names the process that has a store open.
func holderOf(held *store.HeldError) string {
	if held.Holder.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d on %s", held.Holder.PID, held.Holder.Host)
}

type pricesCmd struct {
	From string `help:"File to read in place of asking the providers: OpenRouter's /models, or LiteLLM's model_prices_and_context_window.json." placeholder:"FILE"`
}

// Help returns the details that --help prints below the summary of the command.
func (pricesCmd) Help() string {
	return "The command prints the price of each configured model, as of today or of the file's day. Each price is an " +
		"entry for a roster and an entry for LLM_COUNCIL_PRICES. A remark says if it differs from the price that is " +
		"set. Check the prices before you use them: a wrong price lets you overspend without a warning."
}

// Run prints the prices of the configured models.
func (c pricesCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if len(cfg.Models) == 0 {
		return usageError{cfg.RequireCouncil()}
	}
	listed, err := daemon.ListPrices(ctx, cfg, simllm.Default(), c.From, slog.New(slog.DiscardHandler))
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
