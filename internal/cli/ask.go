package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/store"
)

type askCmd struct {
	Question string `arg:"" help:"The question."`
	Server   string `placeholder:"URL" help:"Ask the daemon at this URL, with the first of LLM_COUNCIL_API_TOKENS; default: run it here."`
	JSON     bool   `name:"json" help:"Print the whole session as JSON."`
}

// Run puts one question to the council and prints the result.
func (c askCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	p := &progress{}
	if isTerminal(std.Stderr) {
		p.steps = terminal{std.Stderr}
	}
	if isTerminal(std.Stdout) {
		std.Stdout = terminal{std.Stdout}
		if !c.JSON {
			p.answer = std.Stdout
		}
	}
	ask := c.inProcess
	if c.Server != "" {
		ask = c.daemon
	}
	session, err := ask(ctx, std, cfg, p)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeIndented(std.Stdout, session)
	}
	if p.answer == nil {
		return printAnswer(std.Stdout, session)
	}
	return printSession(std.Stdout, session)
}

// inProcess runs the council in this process. When a daemon holds the record store,
// it runs without records.
func (c askCmd) inProcess(ctx context.Context, std IO, cfg config.Config, p *progress) (*council.Session, error) {
	if err := cfg.RequireCouncil(); err != nil {
		return nil, usageError{err}
	}
	log := newLog(std.Stderr, cfg)
	var recorder pipeline.Recorder
	var warnings []council.Warning
	if cfg.KeepsRecords() {
		s, _, err := daemon.OpenStore(cfg, nil, log) //nolint:contextcheck // a store lives until it is closed
		held, isHeld := errors.AsType[*store.HeldError](err)
		switch {
		case err == nil:
			defer s.Close()
			recorder = s
		case isHeld:
			warnings = append(warnings, council.Warning{
				Code: council.WarnNotPersisted, Message: held.Error() + "; to have a running daemon answer and record, use --server",
			})
		default:
			return nil, err
		}
	}
	e, err := daemon.NewEngine(ctx, daemon.EngineOptions{Config: cfg, Recorder: recorder, Log: log, Version: std.Version})
	if err != nil {
		return nil, err
	}
	defer e.Close(ctx)
	plan, err := e.Prepare(council.Request{Query: c.Question})
	if err != nil {
		return nil, readable(err)
	}
	plan.Deltas = p.answer != nil
	session, err := e.Run(ctx, plan, p, nil)
	if err != nil {
		return nil, readable(err)
	}
	session.Metadata.Warnings = append(session.Metadata.Warnings, warnings...)
	return session, nil
}

// daemon asks a running daemon.
func (c askCmd) daemon(ctx context.Context, _ IO, cfg config.Config, p *progress) (*council.Session, error) {
	d, err := connect(cfg, c.Server)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Ask(ctx, council.Submission{Request: council.Request{Query: c.Question}}, p)
}

// readable returns a council.Error as an error for people, with every field.
func readable(err error) error {
	e, ok := errors.AsType[*council.Error](err)
	if !ok {
		return err
	}
	return errors.New(e.Explain())
}

// progress shows on a terminal what the members do, and the answer as it arrives.
type progress struct {
	steps  io.Writer // nil: no terminal
	answer io.Writer // nil: no terminal, or the answer is wanted in another form
}

// Observe implements council.Observer.
func (p *progress) Observe(e council.Event) {
	var step, piece string
	switch data := e.Data.(type) {
	case council.Started:
		step = fmt.Sprintf("asking %d models ...", len(data.Models))
	case council.Answer:
		step = fmt.Sprintf("  %s %s", data.Model, outcome("answered", data.Error, data.LatencyMS))
	case council.Review:
		word := "reviewed"
		if data.Status == council.OutcomeAbstained {
			word = "declined to rank"
		}
		step = fmt.Sprintf("  %s %s", data.Model, outcome(word, data.Error, data.LatencyMS))
	case council.Tally:
		step = "the chairman writes ..."
	case council.Delta:
		piece = data.Text
	case council.Restart:
		piece, step = "\n\n", fmt.Sprintf("  %s failed: %s; what it wrote is void, another model writes ...", data.Model, data.Reason)
	case council.Synthesis:
		piece, step = "\n\n", fmt.Sprintf("  %s wrote the answer in %.1f s", data.Model, data.LatencyMS/1000)
	}
	if p.answer != nil {
		_, _ = io.WriteString(p.answer, piece)
	}
	if p.steps != nil && step != "" {
		_, _ = fmt.Fprintln(p.steps, step)
	}
}

// terminal writes to what may be a terminal, and leaves out control characters: the
// text of a model could otherwise move the cursor, or worse.
type terminal struct{ io.Writer }

// Write implements io.Writer.
func (t terminal) Write(p []byte) (int, error) {
	_, err := t.Writer.Write(bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, p))
	return len(p), err
}

func outcome(word string, failure *council.Failure, ms float64) string {
	if failure != nil {
		return fmt.Sprintf("failed after %.1f s: %s", ms/1000, failure.Code)
	}
	return fmt.Sprintf("%s in %.1f s", word, ms/1000)
}

// printAnswer prints the answer, where there is one, and then what printSession prints.
func printAnswer(w io.Writer, s *council.Session) error {
	if s.Answer != "" {
		_, _ = fmt.Fprintf(w, "%s\n\n", strings.TrimSpace(s.Answer)) // An error comes with the ranking.
	}
	return printSession(w, s)
}

// printSession prints the ranking, and what is missing or doubtful in the session.
func printSession(w io.Writer, s *council.Session) error {
	var b strings.Builder // writing to it does not fail
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(s.Metadata.AggregateRankings) > 0 {
		_, _ = fmt.Fprintln(t, "RANK\tMODEL\tBORDA\tWINS\tVOTES\tCONFIDENCE")
	}
	for _, st := range s.Metadata.AggregateRankings {
		_, _ = fmt.Fprintf(t, "%d\t%s\t%.2f\t%g\t%d\t%s\n", st.FinalRank, st.Model, st.BordaScore, st.WinCount, st.VoteCount, st.Confidence)
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\nsession %s: %s\n", s.ID, s.Status)
	for _, d := range s.Degradation {
		fmt.Fprintf(&b, "missing: %s of %s: %s: %s\n", d.Stage, d.Model, d.Code, d.Message)
	}
	if s.Stage3 != nil && s.Stage3.Fallback != nil {
		fmt.Fprintf(&b, "the chairman failed: the answer is by %s (%s)\n", s.Stage3.Model, *s.Stage3.Fallback)
	}
	for _, warning := range s.Metadata.Warnings {
		fmt.Fprintf(&b, "warning: %s: %s\n", warning.Code, warning.Message)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
