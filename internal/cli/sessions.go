package cli

import (
	"cmp"
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
	"github.com/councild/councild/internal/spend"
)

// idLength is the length of the id of a session.
const idLength = 36

type sessionsCmd struct {
	List   listSessionsCmd   `cmd:"" help:"List the sessions of this token, the newest first."`
	Show   showSessionCmd    `cmd:"" help:"Print the answer of a session, its ranking and its warnings."`
	Delete deleteSessionCmd  `cmd:"" help:"Delete a session that has ended, or cancel one that runs."`
	Accept acceptSessionsCmd `cmd:"" help:"Take the loss of kept sessions whose files were damaged: /readyz no longer names it."`
}

type listSessionsCmd struct {
	server

	Search string `placeholder:"TEXT" help:"Only sessions whose title, question or answer holds this text."`
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
		sessions, next, err := d.List(ctx, query)
		for err == nil && c.Search != "" && next != "" && (c.Limit == 0 || len(sessions) < c.Limit) {
			query.Set("before", next) // One request searches a limited number of answers.
			if c.Limit != 0 {
				query.Set("limit", strconv.Itoa(c.Limit-len(sessions)))
			}
			var older []council.Summary
			older, next, err = d.List(ctx, query)
			sessions = append(sessions, older...)
		}
		if err != nil {
			return err
		}
		if c.JSON {
			return writeIndented(std.Stdout, sessions)
		}
		text := table(sessions, width(std.Stdout), time.Now())
		if next != "" {
			text += "There are older ones.\n"
		}
		_, err = io.WriteString(terminal{std.Stdout}, text)
		return err
	})
}

// table returns the sessions as a table of the given width in columns. The question, or the title that a person gave
// the session, comes first. It gets the columns
// that the other fields leave, but at least 20 columns. If the argument columns is 0, table cuts no question.
func table(sessions []council.Summary, columns int, now time.Time) string {
	ids := shortIDs(sessions)
	var b strings.Builder // its writes never fail
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SESSION\tSTATUS\tAGE\tCOST")
	for i, s := range sessions {
		cost := "-"
		if s.CostUSD != nil {
			cost = spend.FromFloat(*s.CostUSD).Dollars()
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", ids[i], s.Status, age(now.Sub(s.Created)), cost)
	}
	_ = t.Flush()
	rows := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	widest := 0
	for _, row := range rows {
		widest = max(widest, len(row))
	}
	b.Reset()
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	questions := make([]string, 1, 1+len(sessions))
	questions[0] = "QUESTION"
	for _, s := range sessions {
		questions = append(questions, strings.Join(strings.Fields(visible(cmp.Or(s.Title, s.Query))), " "))
	}
	for i, question := range questions {
		if columns > 0 {
			question = ellipsis(question, max(20, columns-2-widest))
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\n", question, rows[i])
	}
	_ = t.Flush()
	return b.String()
}

// ellipsis cuts a text to a number of characters, and ends a text that it cuts with an ellipsis.
func ellipsis(text string, most int) string {
	characters := []rune(text)
	if len(characters) <= most {
		return text
	}
	return strings.TrimRight(string(characters[:most-1]), " ") + "…"
}

// age returns a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(0, d).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// shortIDs returns the beginnings of the ids of sessions that tell the sessions apart. Each has at least 13 characters.
// These hold the millisecond in which the session began, so they seldom name a session outside of the list too.
func shortIDs(sessions []council.Summary) []string {
	ids := make([]string, len(sessions))
	for n := 13; ; n++ {
		count := map[string]int{}
		longest := 0
		for i, s := range sessions {
			ids[i] = s.ID[:min(n, len(s.ID))]
			count[ids[i]]++
			longest = max(longest, len(s.ID))
		}
		if len(count) == len(ids) || n >= longest {
			return ids
		}
	}
}

// wholeID returns the id of the only session of a daemon that begins with the text. If no session does, it returns the
// text, and the daemon says that there is no such session.
func wholeID(ctx context.Context, d *client.Client, text string) (string, error) {
	if len(text) >= idLength {
		return text, nil
	}
	var found []string
	query := url.Values{}
	for {
		sessions, next, err := d.List(ctx, query)
		if err != nil {
			return "", err
		}
		for _, s := range sessions {
			if strings.HasPrefix(s.ID, text) {
				found = append(found, s.ID)
			}
		}
		if next == "" {
			break
		}
		query.Set("before", next)
	}
	switch len(found) {
	case 0:
		return text, nil
	case 1:
		return found[0], nil
	default:
		return "", fmt.Errorf("%d sessions begin with %q, such as %s and %s: give more of the id", len(found), text, found[0], found[1])
	}
}

type showSessionCmd struct {
	server

	ID   string `arg:"" help:"The session: its id, or any beginning that no other id has."`
	JSON bool   `name:"json" help:"Print the whole session as JSON."`
}

// Run prints one session of a daemon.
func (c showSessionCmd) Run(ctx context.Context, std IO) error {
	return c.ask(ctx, func(ctx context.Context, d *client.Client) error {
		id, err := wholeID(ctx, d, c.ID)
		if err != nil {
			return err
		}
		session, err := d.Session(ctx, id)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeIndented(std.Stdout, session)
		case isTerminal(std.Stdout):
			std.Stdout = terminal{std.Stdout}
		}
		more := printed{convene: askCmd{Server: c.Server, Convene: id}.conveneCommand(id), figures: true}
		if session.Status != council.StatusRunning {
			more.bill = spend.CostOf(session, nil, nil)
		}
		return printAnswer(std.Stdout, session, more)
	})
}

type deleteSessionCmd struct {
	server

	ID string `arg:"" help:"The session: its id, or any beginning that no other id has."`
}

// Run deletes a session of a daemon, or cancels it if it still runs.
func (c deleteSessionCmd) Run(ctx context.Context, std IO) error {
	return c.ask(ctx, func(ctx context.Context, d *client.Client) error {
		id, err := wholeID(ctx, d, c.ID)
		if err != nil {
			return err
		}
		deleted, err := d.Delete(ctx, id)
		if err != nil {
			return err
		}
		outcome := "is being cancelled; to delete it too, run this again when it has ended"
		if deleted {
			outcome = "is deleted"
		}
		_, err = fmt.Fprintf(std.Stdout, "session %s %s\n", id, outcome)
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
