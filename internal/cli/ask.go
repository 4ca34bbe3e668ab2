package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
)

type askCmd struct {
	Question string `arg:"" help:"The question."`
	Server   string `help:"Ask the daemon at this URL, with the first of LLM_COUNCIL_API_TOKENS; default: run the council in this process." placeholder:"URL"`
	JSON     bool   `name:"json" help:"Print the whole session as JSON."`
}

// Run puts one question to the council and prints what came of it.
func (c askCmd) Run(ctx context.Context, std IO) error {
	cfg, err := config.Load()
	if err != nil {
		return usageError{err}
	}
	ask := c.inProcess
	if c.Server != "" {
		ask = c.daemon
	}
	session, err := ask(ctx, std, cfg)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeIndented(std.Stdout, session)
	}
	return printSession(std.Stdout, session)
}

// inProcess runs the council in this process. When a daemon holds the record
// store, the run goes on without records.
func (c askCmd) inProcess(ctx context.Context, std IO, cfg config.Config) (*council.Session, error) {
	if err := cfg.RequireCouncil(); err != nil {
		return nil, usageError{err}
	}
	log := newLog(std.Stderr, cfg)
	var recorder pipeline.Recorder
	var warnings []council.Warning
	if cfg.BiasPersistence && cfg.BiasConsent > 0 {
		s, _, err := openStore(cfg, log) //nolint:contextcheck // a store lives until it is closed
		held, isHeld := errors.AsType[*store.HeldError](err)
		switch {
		case err == nil:
			defer s.Close()
			recorder = s
		case isHeld:
			warnings = append(warnings, council.Warning{Code: council.WarnNotPersisted, Message: held.Error() + "; to have a running daemon answer and record, use --server"})
		default:
			return nil, err
		}
	}
	e, err := newEngine(ctx, cfg, simllm.Options{}, recorder, log, std.Version)
	if err != nil {
		return nil, err
	}
	defer e.Close(ctx)
	plan, err := e.Prepare(council.Request{Query: c.Question})
	if err != nil {
		return nil, readable(err)
	}
	var observer council.Observer
	if isTerminal(std.Stderr) {
		observer = &progress{w: std.Stderr}
	}
	session, err := e.Run(ctx, plan, observer)
	if err != nil {
		return nil, readable(err)
	}
	session.Metadata.Warnings = append(session.Metadata.Warnings, warnings...)
	return session, nil
}

// daemon asks a running daemon.
func (c askCmd) daemon(ctx context.Context, std IO, cfg config.Config) (*council.Session, error) {
	body, err := json.Marshal(council.Request{Query: c.Question})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.Server, "/")+"/v1/council", bytes.NewReader(body))
	if err != nil {
		return nil, usageError{fmt.Errorf("--server: %w", err)}
	}
	req.Header.Set("Content-Type", "application/json")
	if len(cfg.APITokens) > 0 {
		req.Header.Set("Authorization", "Bearer "+cfg.APITokens[0].Reveal())
	}
	if isTerminal(std.Stderr) {
		_, _ = fmt.Fprintln(std.Stderr, "the daemon at", c.Server, "asks its council ...")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, problemError(resp)
	}
	var session council.Session
	if err := json.NewDecoder(resp.Body).Decode(&session); err != nil {
		return nil, fmt.Errorf("reading the daemon's answer: %w", err)
	}
	return &session, nil
}

// problemError turns a daemon's problem document into an error.
func problemError(resp *http.Response) error {
	var p struct {
		Detail string               `json:"detail"`
		Errors []council.FieldError `json:"errors"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return fmt.Errorf("the daemon answered %s", resp.Status)
	}
	return readable(&council.Error{Detail: fmt.Sprintf("the daemon answered %s: %s", resp.Status, p.Detail), Fields: p.Errors})
}

// readable writes a council.Error as a person wants to read it, with every field.
func readable(err error) error {
	e, ok := errors.AsType[*council.Error](err)
	if !ok {
		return err
	}
	var b strings.Builder
	b.WriteString(e.Detail)
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "\n  %s: %s; %s", f.Field, f.Message, f.Fix)
	}
	return errors.New(b.String())
}

// progress shows on a terminal what the members do.
type progress struct {
	w io.Writer
}

// Observe implements council.Observer.
func (p *progress) Observe(e council.Event) {
	var line string
	switch data := e.Data.(type) {
	case council.Started:
		line = fmt.Sprintf("asking %d models ...", len(data.Models))
	case council.Answer:
		line = fmt.Sprintf("  %s %s", data.Model, outcome("answered", data.Error, data.LatencyMS))
	case council.Review:
		word := "reviewed"
		if data.Status == council.OutcomeAbstained {
			word = "declined to rank"
		}
		line = fmt.Sprintf("  %s %s", data.Model, outcome(word, data.Error, data.LatencyMS))
	case council.Tally:
		line = "the chairman writes ..."
	case council.Synthesis:
		line = fmt.Sprintf("  %s wrote the answer in %.1f s", data.Model, data.LatencyMS/1000)
	default:
		return
	}
	_, _ = fmt.Fprintln(p.w, line)
}

func outcome(word string, failure *council.Failure, ms float64) string {
	if failure != nil {
		return fmt.Sprintf("failed after %.1f s: %s", ms/1000, failure.Code)
	}
	return fmt.Sprintf("%s in %.1f s", word, ms/1000)
}

// printSession prints the answer, the ranking, and what is to be known about it.
func printSession(w io.Writer, s *council.Session) error {
	_, _ = fmt.Fprintf(w, "%s\n\n", strings.TrimSpace(s.Answer)) // errors come with Flush
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Metadata.AggregateRankings) > 0 {
		_, _ = fmt.Fprintln(t, "RANK\tMODEL\tBORDA\tWINS\tVOTES\tCONFIDENCE")
	}
	for _, st := range s.Metadata.AggregateRankings {
		_, _ = fmt.Fprintf(t, "%d\t%s\t%.2f\t%g\t%d\t%s\n", st.FinalRank, st.Model, st.BordaScore, st.WinCount, st.VoteCount, st.Confidence)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var b strings.Builder
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
