package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/sessions/journal"
)

type sessionsCmd struct {
	List   listSessionsCmd   `cmd:"" help:"List the sessions of this token, the newest first."`
	Show   showSessionCmd    `cmd:"" help:"Print the answer of a session, its ranking and its warnings."`
	Delete deleteSessionCmd  `cmd:"" help:"Delete a session that has ended, or cancel one that runs."`
	Accept acceptSessionsCmd `cmd:"" help:"Take the loss of kept sessions whose files were damaged: /readyz no longer names it."`
}

type listSessionsCmd struct {
	server

	Search string `placeholder:"TEXT" help:"Only questions that hold this text in their first 200 characters."`
	Status string `placeholder:"STATUS" help:"Only sessions that are running, complete, degraded, failed or cancelled."`
	Limit  int    `placeholder:"N" help:"The N newest of them."`
	JSON   bool   `name:"json" help:"Print the list as JSON."`
}

// Run prints the list of a daemon's sessions.
func (c listSessionsCmd) Run(ctx context.Context, std IO) error {
	query := url.Values{}
	for name, value := range map[string]string{"q": c.Search, "status": c.Status} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.Limit != 0 {
		query.Set("limit", strconv.Itoa(c.Limit))
	}
	return c.ask(ctx, func(ctx context.Context, d *client.Client) error {
		sessions, more, err := d.List(ctx, query)
		if err != nil {
			return err
		}
		if c.JSON {
			return writeIndented(std.Stdout, sessions)
		}
		text := table(sessions, width(std.Stdout))
		if more {
			text += "There are older ones.\n"
		}
		_, err = io.WriteString(terminal{std.Stdout}, text)
		return err
	})
}

// table returns the sessions as a table. It cuts lines to the given number of columns, unless that number is 0.
func table(sessions []council.Summary, columns int) string {
	var b strings.Builder // its writes never fail
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SESSION\tSTATUS\tCREATED\tTOOK\tCOST\tQUESTION")
	for _, s := range sessions {
		cost := "-"
		if s.CostUSD != nil {
			cost = fmt.Sprintf("$%.4f", *s.CostUSD)
		}
		took := "-"
		if s.DurationMS != nil {
			took = time.Duration(*s.DurationMS * float64(time.Millisecond)).Round(time.Second).String()
		}
		created := s.Created.Local().Format("2006-01-02 15:04")
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, s.Status, created, took, cost, s.Query)
	}
	_ = t.Flush()
	if columns == 0 {
		return b.String()
	}
	var cut strings.Builder
	for line := range strings.Lines(b.String()) {
		if characters := []rune(line); len(characters) > columns+1 { // one more for the line break
			line = string(characters[:max(0, columns-1)]) + "…\n"
		}
		cut.WriteString(line)
	}
	return cut.String()
}

type showSessionCmd struct {
	server

	ID   string `arg:"" help:"The session, as councild sessions list names it."`
	JSON bool   `name:"json" help:"Print the whole session as JSON."`
}

// Run prints one session of a daemon.
func (c showSessionCmd) Run(ctx context.Context, std IO) error {
	return c.ask(ctx, func(ctx context.Context, d *client.Client) error {
		session, err := d.Session(ctx, c.ID)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeIndented(std.Stdout, session)
		case isTerminal(std.Stdout):
			std.Stdout = terminal{std.Stdout}
		}
		more := printed{convene: askCmd{Server: c.Server, Convene: c.ID}.conveneCommand(c.ID), figures: true}
		if session.Status != council.StatusRunning {
			more.bill = costOf(session.Metadata.Usage)
		}
		return printAnswer(std.Stdout, session, more)
	})
}

type deleteSessionCmd struct {
	server

	ID string `arg:"" help:"The session, as councild sessions list names it."`
}

// Run deletes a session of a daemon, or cancels it if it still runs.
func (c deleteSessionCmd) Run(ctx context.Context, std IO) error {
	return c.ask(ctx, func(ctx context.Context, d *client.Client) error {
		deleted, err := d.Delete(ctx, c.ID)
		if err != nil {
			return err
		}
		outcome := "is being cancelled; to delete it too, run this again when it has ended"
		if deleted {
			outcome = "is deleted"
		}
		_, err = fmt.Fprintf(std.Stdout, "session %s %s\n", c.ID, outcome)
		return err
	})
}

type acceptSessionsCmd struct {
	Dir string `help:"Directory of the kept sessions; default sessions in LLM_COUNCIL_DATA_DIR." placeholder:"DIR"`
}

// Help returns the details that --help prints below the summary of the command.
func (acceptSessionsCmd) Help() string {
	return "A daemon that finds a damaged file copies it, with a report, to a directory damaged-TIME " +
		"next to the others, and continues with the undamaged files. This command writes down that you accept the loss. " +
		"The daemon may keep running: it notices that within 5 seconds. The copies stay: remove the directory when you " +
		"do not need them."
}

// Run writes down that the operator accepts the damage of the kept sessions.
func (c acceptSessionsCmd) Run(std IO) error {
	dir := c.Dir
	if dir == "" {
		cfg, err := config.Load()
		if err != nil {
			return usageError{err}
		}
		if dir, _ = cfg.SessionsDir(); dir == "" {
			return usageError{errors.New("LLM_COUNCIL_DATA_DIR is off: name a directory with --dir")}
		}
	}
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("there are no kept sessions: %w", err)
	}
	damages, err := journal.Accept(dir)
	if err != nil {
		return err
	}
	var text strings.Builder // its writes never fail
	for _, d := range damages {
		_, _ = fmt.Fprintf(&text, "Accepted: %s.\n", d.Problem())
	}
	if len(damages) == 0 {
		text.WriteString("Nothing to accept: no file of kept sessions is damaged.\n")
	}
	if _, err := io.WriteString(terminal{std.Stdout}, text.String()); err != nil {
		return fmt.Errorf("writing what was accepted: %w", err)
	}
	return nil
}
