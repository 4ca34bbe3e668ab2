package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
)

type askCmd struct {
	Question   string   `arg:"" optional:"" help:"The question. With - or without a question, it is read from standard input."`
	File       []string `sep:"none" placeholder:"FILE" help:"Append this text file to the question, or use it as the question; - is standard input."`
	Council    string   `placeholder:"NAME" help:"A council of the roster, instead of its default."`
	Models     []string `placeholder:"A,B" help:"The members, instead of LLM_COUNCIL_MODELS."`
	Chairman   string   `placeholder:"MODEL" help:"Who writes the final answer, instead of LLM_COUNCIL_CHAIRMAN."`
	Mode       string   `placeholder:"NAME" help:"Which stages run: council, ranked, synthesis, vote or single; default: the council's own."`
	First      *int     `placeholder:"N" help:"Ask this many members first. The others are asked only if the first answers differ."`
	AnswerForm string   `placeholder:"TYPE" help:"The form of the answers, so that they can be compared: exact, normalised, number, json, or choice:A,B."`
	Seed       *int64   `placeholder:"N" help:"Makes labels and orders reproducible."`
	Category   string   `placeholder:"NAME" help:"What the question is about: ${categories}."`
	Language   string   `placeholder:"CODE" help:"Language of the question, two letters such as en."`
	MaxCostUSD *float64 `name:"max-cost-usd" placeholder:"X" help:"Cost limit of the session in US dollars. The session stops asking once this is spent. Calls that are under way may pass it, unless limits are hard."`
	Server     string   `placeholder:"URL" help:"Ask the daemon at this URL, with the first of LLM_COUNCIL_API_TOKENS; default: run it here."`
	Estimate   bool     `help:"Ask nothing. Say what the question would cost, and whether that is within the cost limits."`
	Follow     string   `placeholder:"ID" help:"Ask nothing. Follow this session at --server or LLM_COUNCIL_ADDR to its end."`
	Convene    string   `placeholder:"ID" help:"Ask the other members too, after this session at --server or LLM_COUNCIL_ADDR."`
	Quiet      bool     `short:"q" help:"Print only the answer. If it is degraded, or its cost is not counted, standard error says so."`
	JSON       bool     `name:"json" help:"Print the whole session as JSON."`
}

// Help returns the details that --help prints below the summary of the command.
func (askCmd) Help() string {
	return "Without --server, the council runs in this process. With --server, it runs at a daemon. Ctrl-C cancels " +
		"the session in both cases, because calls cost money. With --follow, Ctrl-C leaves the session running. " +
		"With --convene, the first members are not asked or paid again. The last line is the cost of the session; " +
		"with --json it is on standard error.\n\n" + exitCodes
}

// Run puts one question to the council, or follows a session, and prints the result.
func (c askCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	var request council.Request
	if c.Follow == "" && c.Convene == "" {
		request, err = c.request(ctx, cfg, std.Stdin)
	} else {
		err = c.checkNoQuestion()
	}
	if err != nil {
		return err
	}
	if c.Estimate {
		return c.estimate(ctx, std, cfg, request)
	}
	p := &progress{}
	switch {
	case c.Quiet:
	case c.JSON:
		p = newProgress(io.Discard, std.Stderr)
	default:
		p = newProgress(std.Stdout, std.Stderr)
	}
	session, bill, err := c.session(ctx, std, cfg, request, p)
	p.close()
	if err != nil {
		return c.explain(ctx, err, p.session)
	}
	if c.JSON {
		_, _ = fmt.Fprintln(std.Stderr, bill.Sentence)
		return writeIndented(std.Stdout, session)
	}
	if isTerminal(std.Stdout) {
		std.Stdout = terminal{std.Stdout}
	}
	more := printed{members: len(p.started.Models), convene: c.conveneCommand(session.ID), bill: bill}
	switch {
	case c.Quiet:
		if session.Note != "" { // on stderr, because a program may read stdout
			_, _ = fmt.Fprintln(std.Stderr, session.Note)
		}
		_, err = fmt.Fprintln(std.Stdout, strings.TrimSpace(session.Answer))
		return err
	case p.answer == nil:
		return printAnswer(std.Stdout, session, more)
	default:
		return printSession(std.Stdout, session, more)
	}
}

// conveneCommand returns the command that convenes the council after a session. It returns "" if no daemon keeps the
// session.
func (c askCmd) conveneCommand(id string) string {
	switch {
	case !c.atDaemon():
		return ""
	case c.Server == "":
		return "councild ask --convene " + id
	default:
		return "councild ask --server " + c.Server + " --convene " + id
	}
}

// atDaemon reports whether the session runs at a daemon.
func (c askCmd) atDaemon() bool { return c.Server != "" || c.Follow != "" || c.Convene != "" }

// checkNoQuestion returns an error for arguments that cannot be combined with --follow or --convene.
func (c askCmd) checkNoQuestion() error {
	if c.Convene != "" {
		switch {
		case c.Follow != "":
			return usageError{errors.New("--convene and --follow do not go together: leave one of them out")}
		case c.Question != "" || len(c.File) > 0:
			return usageError{errors.New("--convene asks the question of that session again: leave out the " +
				"question, or --convene")}
		case c.Estimate:
			return usageError{errors.New("--estimate does not go with --convene: leave one of them out")}
		case c.Mode != "" || c.First != nil || c.AnswerForm != "" || c.Council != "" || c.Models != nil:
			return usageError{errors.New(
				"--convene asks the council of that session: leave out --mode, --first, --answer-form, --council " +
					"and --models")}
		default:
			return nil
		}
	}
	switch {
	case c.Question != "" || len(c.File) > 0:
		return usageError{errors.New("--follow asks no question: leave out the question, or --follow")}
	case c.Estimate:
		return usageError{errors.New("--estimate does not go with --follow: leave one of them out")}
	default:
		return nil
	}
}

// session runs the council in this process, has a daemon run or convene it, or follows a session of a daemon. bill
// says what the session cost.
func (c askCmd) session(
	ctx context.Context, std IO, cfg config.Config, request council.Request, p *progress,
) (session *council.Session, bill spend.SessionCost, err error) {
	if !c.atDaemon() {
		return inProcess(ctx, std, cfg, c.Quiet, func(e *daemon.Engine) (council.Plan, error) { return e.Prepare(request) }, p)
	}
	err = asking(ctx, cfg, c.Server, func(d *client.Client) error {
		id := c.Convene + c.Follow // at most one of them is set
		if id != "" {
			if id, err = wholeID(ctx, d, id); err != nil {
				return err
			}
		}
		switch {
		case c.Convene != "":
			session, err = d.Convene(ctx, id, p)
		case c.Follow == "":
			session, err = d.Ask(ctx, council.Submission{Request: request}, p)
		default:
			if _, err = d.Session(ctx, id); err == nil { // Watch would retry an unknown id for long
				session, err = d.Watch(ctx, id, p)
			}
		}
		if err == nil && !c.Quiet {
			bill = billAt(ctx, d, session)
		}
		return err
	})
	return session, bill, err
}

// explain turns the error of a session into an error for the user. The argument id is the id of the session, or "" if
// it is not known yet.
func (c askCmd) explain(ctx context.Context, err error, id string) error {
	if ctx.Err() != nil {
		return c.explainInterrupt(err, id)
	}
	e, ok := errors.AsType[*council.Error](err)
	if ok && e.Code == council.CodeNoQuorum && !c.atDaemon() {
		return fmt.Errorf("%w\nRun councild check: it says which addresses, keys and names are wrong, and what to set",
			readable(err))
	}
	if !ok || e.Code != council.CodeInvalid && e.Code != council.CodeForbidden || len(e.Fields) == 0 {
		return readable(err)
	}
	named := *e
	named.Fields = nil
	for _, f := range e.Fields {
		named.Fields = append(named.Fields, ofFlag(f))
	}
	return usageError{errors.New(named.Explain())}
}

// explainInterrupt is explain for a command that a signal interrupted.
func (c askCmd) explainInterrupt(err error, id string) error {
	var at string
	if c.Server != "" {
		at = " --server " + c.Server
	}
	if cancelled, ok := errors.AsType[client.CancelledError](err); ok { // this error can come before the first event
		id = cancelled.SessionID
	}
	switch {
	case c.Follow != "":
		err = fmt.Errorf("session %s continues at the daemon; to follow it again: councild ask%s --follow %[1]s",
			c.Follow, at)
	case c.atDaemon() && id != "":
		err = fmt.Errorf("%w; to see how it ended: councild ask%s --follow %s", err, at, id)
	case !c.atDaemon():
		err = fmt.Errorf("interrupted: %w", readable(err))
	}
	return interruptedError{err}
}

// ofFlag turns the problem of a field in a request into the problem of its flag.
func ofFlag(f council.FieldError) council.FieldError {
	field, _, _ := strings.Cut(f.Field, "[")
	if field == "query" {
		field = "question"
	} else {
		field = "--" + strings.ReplaceAll(field, "_", "-")
	}
	f.Field = field
	f.Fix = strings.NewReplacer("the field", field, "in models", "in --models", `{"type": "number"}`, "--answer-form number").Replace(f.Fix)
	return f
}

// request returns the request for the question, from the arguments, the files and the standard input.
func (c askCmd) request(ctx context.Context, cfg config.Config, stdin io.Reader) (council.Request, error) {
	r := council.Request{
		Council:    c.Council,
		Models:     c.Models,
		Chairman:   c.Chairman,
		Mode:       council.Mode(c.Mode),
		First:      c.First,
		AnswerForm: c.answerForm(),
		Seed:       c.Seed,
		Category:   c.Category,
		Language:   c.Language,
		MaxCostUSD: c.MaxCostUSD,
		Map:        true,
	}
	if c.MaxCostUSD != nil && (math.IsNaN(*c.MaxCostUSD) || math.IsInf(*c.MaxCostUSD, 0)) {
		return r, usageError{errors.New("--max-cost-usd is not above 0: write an amount such as 0.50")}
	}
	texts := questionTexts{stdin: stdin, max: cfg.MaxQueryBytes, left: int64(cfg.MaxQueryBytes)}
	switch {
	case c.Question == "-", c.Question == "" && len(c.File) == 0 && stdin != nil && !isTerminal(stdin):
		if err := texts.add(ctx, "standard input", "-"); err != nil {
			return r, err
		}
	case c.Question != "":
		texts.all = append(texts.all, c.Question)
		texts.left -= int64(len(c.Question))
	}
	for _, path := range c.File {
		if err := texts.add(ctx, "--file "+path, path); err != nil {
			return r, err
		}
		if last := len(texts.all) - 1; last > 0 || len(c.File) > 1 {
			texts.all[last] = fmt.Sprintf("File %s:\n\n%s", path, texts.all[last])
		}
	}
	if r.Query = strings.Join(texts.all, "\n\n"); strings.TrimSpace(r.Query) == "" {
		return r, usageError{errors.New(
			`there is no question: write councild ask "Which way?", or pipe the question into councild ask`)}
	}
	return r, nil
}

// answerForm returns the form of the answers from its flag, or nil. The flag is a type, or "choice:" and the options
// with commas between them.
func (c askCmd) answerForm() *council.AnswerForm {
	if c.AnswerForm == "" {
		return nil
	}
	kind, options, given := strings.Cut(c.AnswerForm, ":")
	form := &council.AnswerForm{Type: kind}
	if given {
		form.Options = strings.Split(options, ",")
	}
	return form
}

// questionTexts collects the texts that make up a question.
type questionTexts struct {
	stdin io.Reader
	max   config.Bytes // limit for all texts together
	left  int64        // how many more bytes fit within max
	all   []string
}

// add reads a text from the file at path, where "-" is the standard input. source names the file in errors.
func (t *questionTexts) add(ctx context.Context, source, path string) error {
	in := t.stdin
	switch {
	case path != "-":
		f, err := os.Open(path)
		if err != nil {
			return usageError{fmt.Errorf("%s: %w: name a readable text file", source, err)}
		}
		defer f.Close()
		in = f
	case t.stdin == nil:
		in = strings.NewReader("")
	}
	text, err := readText(ctx, in, t.left)
	if err != nil && ctx.Err() == nil {
		return usageError{fmt.Errorf("%s: %w: name a readable text file", source, err)}
	}
	if err != nil {
		return err
	}
	if t.left -= int64(len(text)); t.left < 0 {
		return usageError{fmt.Errorf("%s: the question has more than %d bytes: "+
			"shorten it, or raise LLM_COUNCIL_MAX_QUERY_BYTES",
			source, t.max)}
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return usageError{fmt.Errorf("%s: this is not text in UTF-8: convert it to text first", source)}
	}
	t.all = append(t.all, text)
	return nil
}

// readText reads a text. From a longer text it reads only one byte more than the limit, so that the caller sees that
// the text is too long. When ctx ends, readText returns even if the reader blocks.
func readText(ctx context.Context, r io.Reader, most int64) (string, error) {
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(r, max(0, most)+1))
		read <- result{text, err}
	}()
	select {
	case r := <-read:
		return string(r.text), r.err
	case <-ctx.Done():
		return "", interruptedError{errors.New("interrupted before anything was asked")}
	}
}

// inProcess runs in this process the plan that the function prepare makes. If a daemon holds the record store, the
// session leaves no records. bill says what the session cost.
func inProcess(
	ctx context.Context, std IO, cfg config.Config, quiet bool, prepare func(*daemon.Engine) (council.Plan, error), p *progress,
) (_ *council.Session, bill spend.SessionCost, err error) {
	if err := cfg.RequireCouncil(); err != nil {
		return nil, bill, usageError{err}
	}
	log := slog.New(slog.DiscardHandler)
	if !quiet {
		log = slog.New(plainLog{func(line string) { p.tell(std.Stderr, line) }})
	}
	var recorder pipeline.Recorder
	var secret func() string // returns the secret of question keys
	var warnings []council.Warning
	if cfg.KeepsRecords() {
		s, _, err := daemon.OpenStore(cfg, nil, log) //nolint:contextcheck // a store lives until it is closed
		held, isHeld := errors.AsType[*store.HeldError](err)
		switch {
		case err == nil:
			defer s.Close()
			recorder = s
			secret = daemon.QuestionSecret(ctx, cfg.BiasStore, log)
		case isHeld:
			warnings = append(warnings, council.Warning{
				Code:    council.WarnNotPersisted,
				Message: held.Error() + "; to let a running daemon answer and record, use --server",
			})
		default:
			return nil, bill, err
		}
	}
	ledger, why, err := openLedger(ctx, cfg, log)
	if err != nil {
		return nil, bill, err
	}
	if ledger != nil {
		defer ledger.Close(ctx)
	}
	if why != "" {
		p.tell(std.Stderr, "not counted in the ledger of costs: "+why)
	}
	e, err := daemon.NewEngine(ctx, daemon.EngineOptions{
		Config:         cfg,
		Simulated:      simllm.Default(),
		Recorder:       recorder,
		QuestionSecret: secret,
		Ledger:         ledger,
		Log:            log,
		Version:        std.Version,
	})
	if err != nil {
		return nil, bill, err
	}
	defer e.Close(ctx)
	plan, err := prepare(e)
	if err != nil {
		return nil, bill, err
	}
	plan.Deltas = p.answer != nil
	session, err := e.Run(ctx, plan, p, nil)
	if err != nil {
		return nil, bill, err
	}
	session.Metadata.Warnings = append(session.Metadata.Warnings, warnings...)
	return session, spend.CostOf(session, plan.MaxCostUSD, e.Limits()), nil
}

// readable returns an error in a form for the user. A council.Error becomes an error that names every field. Other
// errors stay as they are.
func readable(err error) error {
	if _, ok := errors.AsType[*client.Error](err); ok {
		return err // A client.Error explains itself.
	}
	e, ok := errors.AsType[*council.Error](err)
	if !ok {
		return err
	}
	return errors.New(e.Explain())
}

// printed has what printSession says besides the session itself. The zero value says nothing more.
type printed struct {
	// members is the number of members of the council. It is 0 if that number is not known.
	members int
	// convene is the command that convenes the council after the session. It is "" if there is none.
	convene string
	// bill says what the session cost. It is empty while the session runs.
	bill spend.SessionCost
	// figures asks for the ranking as a table of figures too.
	figures bool
}

// printAnswer prints the answer, if the session has one, and then calls printSession.
func printAnswer(w io.Writer, s *council.Session, more printed) error {
	if r, err := gate.ReportOf(s); err == nil {
		_, _ = fmt.Fprintf(w, "%s\n", gate.Markdown(r)) // printSession returns errors of w
	}
	if s.Answer != "" {
		_, _ = fmt.Fprintf(w, "%s\n\n", strings.TrimSpace(s.Answer)) // printSession returns errors of w
	}
	return printSession(w, s, more)
}

// printSession prints what a session says besides its answer: first whether the reviewers agree and what the answers
// dispute, then whose text the answer is, the ranking, what is missing or doubtful, and the cost.
func printSession(w io.Writer, s *council.Session, more printed) error {
	var b strings.Builder // its writes never fail
	if len(s.Stage2) > 0 && s.Task == nil {
		fmt.Fprintf(&b, "%s\n", s.Metadata.Agreement.Sentence)
	}
	printMap(&b, s.Metadata.Map)
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	line := func(label, text string) { fmt.Fprintf(&b, "%-10s %s\n", label, text) }
	if s.Stage3 != nil && s.Stage3.Fallback != nil {
		line("Answer", fmt.Sprintf("by %s instead of the chairman, which failed "+
			"(%s)", s.Stage3.Model, *s.Stage3.Fallback))
	} else if from := s.AnswerFrom.Sentence(); from != "" {
		line("Answer", from)
	}
	if ranks := s.Metadata.AggregateRankings; len(ranks) > 0 && ranks[0].FinalRank != nil {
		line("Ranking", inOrder(ranks))
	}
	if first := s.Metadata.First; first != nil {
		line("Asked", first.Sentence(more.members))
		switch {
		case first.Convened || s.Status == council.StatusRunning:
		case more.convene == "":
			line("", "No daemon keeps this session, so you cannot ask the other members later. Next time ask a "+
				"daemon, with --server")
		default:
			line("", "To ask the other members too: "+more.convene)
		}
	}
	for _, d := range s.Degradation {
		line("Missing", fmt.Sprintf("the %s of %s: %s (%s)", product(d.Stage), d.Model, d.Message, d.Code))
	}
	for _, warning := range s.Metadata.Warnings {
		line("Warning", fmt.Sprintf("%s (%s)", warning.Message, warning.Code))
	}
	if text := auditLine(s.Metadata.BiasAudit); text != "" {
		line("Audit", text)
	}
	for _, text := range differences(s.Metadata) {
		line("Differ", text)
	}
	if more.figures && len(s.Metadata.AggregateRankings) > 0 {
		printFigures(&b, s.Metadata.AggregateRankings)
	}
	if more.bill.Left != "" {
		line("Budget", more.bill.Left)
	}
	if took := time.Duration(s.Metadata.Timing.TotalMS * float64(time.Millisecond)); s.Status != council.StatusRunning {
		fmt.Fprintf(&b, "%s · ", lasting(took))
	}
	if more.bill.Cost != "" {
		fmt.Fprintf(&b, "%s · ", more.bill.Cost)
	}
	fmt.Fprintf(&b, "session %s: %s\n", s.ID, s.Status)
	_, err := io.WriteString(w, b.String())
	return err
}

// lasting returns a duration in words, such as "41 s" or "3 min 12 s".
func lasting(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	if seconds < 60 { //nolint:mnd // a minute
		return fmt.Sprintf("%d s", seconds)
	}
	return fmt.Sprintf("%d min %d s", seconds/60, seconds%60) //nolint:mnd // a minute
}

// product says what a stage gives.
func product(s council.Stage) string {
	switch s {
	case council.Stage1:
		return "answer"
	case council.Stage2:
		return "review"
	case council.Stage3:
		return "synthesis"
	default:
		return string(s)
	}
}

// inOrder returns a ranking on one line. Models of the same rank stand together.
func inOrder(standings []council.Standing) string {
	var b strings.Builder // its writes never fail
	last := 0
	for _, st := range standings {
		rank := 0
		label := "not ranked "
		if st.FinalRank != nil {
			rank = *st.FinalRank
			label = fmt.Sprintf("%d. ", rank)
		}
		switch {
		case b.Len() > 0 && rank == last:
			b.WriteString(" and ")
			label = ""
		case b.Len() > 0:
			b.WriteString(", ")
		}
		b.WriteString(label + st.Model)
		last = rank
	}
	return b.String()
}

// printFigures prints the figures of a ranking as a table.
func printFigures(b *strings.Builder, standings []council.Standing) {
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "RANK\tMODEL\tBORDA\tWINS\tVOTES\tVOTE COVERAGE")
	for _, st := range standings {
		if st.FinalRank == nil {
			_, _ = fmt.Fprintf(t, "-\t%s\tnot ranked\t\t%d\t%s\n", st.Model, st.VoteCount, st.VoteCoverage)
			continue
		}
		_, _ = fmt.Fprintf(t, "%d\t%s\t%.2f\t%g\t%d\t%s\n", *st.FinalRank, st.Model, *st.BordaNormalized, st.WinCount,
			st.VoteCount, st.VoteCoverage)
	}
	_ = t.Flush()
	b.WriteString("\n")
}

// differences returns a line for each method that flags a difference in how the answers speak of people or treat
// people.
func differences(m council.Metadata) (lines []string) {
	if d := m.DemographicDisagreement; d != nil && d.Flagged {
		lines = append(lines, "terms: "+d.Wording)
	}
	if j := m.DemographicJudgement; j != nil && j.Flagged {
		lines = append(lines, fmt.Sprintf("judge %s: %s", j.Model, disagreement.RatingWording(*j)))
	}
	if c := m.DemographicClustering; c != nil && c.Flagged {
		lines = append(lines, fmt.Sprintf("embeddings of %s: %s", c.Model, disagreement.ClusterWording(*c)))
	}
	return lines
}

// auditLine names the flags of an audit in one line. It returns "" if there are none.
func auditLine(a *council.BiasAudit) string {
	if a == nil {
		return ""
	}
	var flags []string
	if a.LengthAssociation != nil && *a.LengthAssociation && a.LengthScoreCorrelation != nil {
		which := "longer"
		if *a.LengthScoreCorrelation < 0 {
			which = "shorter"
		}
		flags = append(flags, fmt.Sprintf("%s answers scored higher here (r = %.2f, ",
			which, *a.LengthScoreCorrelation))
	}
	if a.PositionBiasDetected != nil && *a.PositionBiasDetected && a.PositionScoreVariance != nil {
		flags = append(flags, fmt.Sprintf("scores went with the place of an answer (variance %.2f, ",
			*a.PositionScoreVariance))
	}
	if len(flags) == 0 {
		return ""
	}
	return strings.Join(flags, "one session proves nothing); ") + "one session proves nothing)"
}
