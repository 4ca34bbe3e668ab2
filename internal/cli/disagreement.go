package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
)

type disagreeCmd struct {
	Input string `arg:"" optional:"" help:"A file of JSON lines, - for standard input, or the id of a session that has ended."`

	Backend   string   `default:"lexicon" enum:"lexicon,llm_judge,embedding" help:"How to compare: by terms (lexicon), by ratings of LLM_COUNCIL_JUDGE_MODEL (llm_judge, two calls), or by whether answers with similar embeddings of LLM_COUNCIL_EMBEDDING_MODEL use similar terms (embedding, one call)."`
	Calibrate string   `placeholder:"FILE" help:"Calibrate the backend, by default llm_judge, on the benign sessions in this file, one a line. Before that, the backend flags nothing."`
	Lexicon   string   `placeholder:"FILE" help:"Terms by demographic axis; default LLM_COUNCIL_LEXICON, or the daemon's."`
	Threshold *float64 `placeholder:"X" help:"Score from which an axis may be flagged, 0 to 1; default LLM_COUNCIL_DEMOGRAPHICS_THRESHOLD."`
	Server    string   `placeholder:"URL" help:"Have the daemon at this URL compare, with the first of LLM_COUNCIL_API_TOKENS."`
	JSON      bool     `name:"json" help:"Print each report as a line of JSON."`
}

// Help returns the details that --help prints below the summary of the command.
func (disagreeCmd) Help() string {
	return "Each line of a file is the body of POST /v1/disagreement: {\"question\": \"...\", \"answers\": [{\"id\": " +
		"\"a\", \"text\": \"...\"}, {\"id\": \"b\", \"text\": \"...\"}]}. This process compares the lines of a " +
		"file, unless --server is given. A session comes from the daemon at --server or LLM_COUNCIL_ADDR. A difference may be " +
		"justified, and proves no bias.\n\nTo calibrate a model, use 100 or more sessions of your own in which no group " +
		"is treated differently. The model passes if the upper 95 % bound of the share that it flags is below 3 %. " +
		"With 100 sessions it may flag none. Exit code 1 means that the model did not pass. For the backend " +
		"embedding, a session needs five answers. Some of them have to use the terms of an axis, and others not."
}

// compare compares the answers of a request, in this process or at a daemon.
type compare func(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error)

// Run compares the answers of a session or of each line of a file, or calibrates a backend.
func (c disagreeCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if (c.Input == "") == (c.Calibrate == "") {
		return usageError{errors.New("there is no input: name a file or a session, or use --calibrate FILE")}
	}
	if c.Calibrate != "" {
		return c.calibrate(ctx, std, cfg)
	}
	var lexicon json.RawMessage
	if c.Lexicon != "" {
		file, err := daemon.ReadLexicon(c.Lexicon)
		if err != nil {
			return usageError{fmt.Errorf("--lexicon: %w", err)}
		}
		if lexicon, err = json.Marshal(file); err != nil {
			return err
		}
	}
	change := func(r *council.DisagreementRequest) {
		if lexicon != nil {
			r.Lexicon = lexicon
		}
		r.Threshold = cmp.Or(c.Threshold, r.Threshold)
		if c.Backend != string(council.BackendLexicon) {
			r.Backend = council.DisagreementBackend(c.Backend)
		}
	}
	if c.isSession() {
		return asking(ctx, cfg, c.Server, func(d *client.Client) error {
			r, err := ofSession(ctx, d, c.Input)
			if err != nil {
				return err
			}
			change(&r)
			return c.report(ctx, std, at(d), r)
		})
	}
	return c.lines(ctx, std, cfg, change)
}

// sessionID matches the ids that the daemon gives to sessions.
var sessionID = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// isSession reports whether the input is the id of a session. If a file has that name, the input is the file.
func (c disagreeCmd) isSession() bool {
	if !sessionID.MatchString(c.Input) {
		return false
	}
	_, err := os.Stat(c.Input)
	return errors.Is(err, os.ErrNotExist)
}

// at returns a compare function that asks a daemon.
func at(d *client.Client) compare {
	return func(ctx context.Context, r council.DisagreementRequest) (report council.DisagreementReport, err error) {
		return report, d.Post(ctx, "/v1/disagreement", r, &report)
	}
}

// ofSession returns the request that compares the answers of a session. The session must have ended.
func ofSession(ctx context.Context, d *client.Client, id string) (r council.DisagreementRequest, err error) {
	session, err := d.Session(ctx, id)
	if err != nil {
		return r, err
	}
	if session.Status == council.StatusRunning {
		return r, fmt.Errorf("session %s still runs: wait for it with councild ask --follow %[1]s", id)
	}
	var asked council.Request
	if err := d.Get(ctx, client.Path(id)+"/request", &asked); err != nil {
		return r, err
	}
	r.Question = asked.Query
	if len(asked.Messages) > 0 {
		r.Question = council.Plan{Conversation: asked.Messages}.Question()
	}
	for _, a := range session.Stage1 {
		if a.Response != nil {
			r.Answers = append(r.Answers, council.ComparedAnswer{ID: a.Model, Text: *a.Response})
		}
	}
	return r, nil
}

// calibrate calibrates a backend, and shows the progress on the standard error.
func (c disagreeCmd) calibrate(ctx context.Context, std IO, cfg config.Config) error {
	backend := council.DisagreementBackend(c.Backend)
	switch {
	case backend == council.BackendEmbedding && cfg.EmbeddingModel == "":
		return usageError{errors.New("there is no embedding model: name one in LLM_COUNCIL_EMBEDDING_MODEL")}
	case backend != council.BackendEmbedding && cfg.JudgeModel == "":
		return usageError{errors.New("there is no judge: name a model in LLM_COUNCIL_JUDGE_MODEL")}
	case backend == council.BackendLexicon: // the lexicon needs no calibration
		backend = council.BackendJudge
	}
	var sessions []council.DisagreementRequest
	if err := c.eachRequest(c.Calibrate, std, func(r council.DisagreementRequest) error {
		sessions = append(sessions, r)
		return nil
	}); err != nil {
		return err
	}
	e, err := disagreementEngine(ctx, cfg, std)
	if err != nil {
		return err
	}
	defer e.Close(ctx)
	done := 0
	found, unread, err := e.Calibrate(ctx, backend, sessions, func() {
		const each = 10
		if done++; done%each == 0 || done == len(sessions) {
			_, _ = fmt.Fprintf(std.Stderr, "%d of %d sessions\n", done, len(sessions))
		}
	})
	if err != nil {
		return fmt.Errorf("nothing was stored: %w", readable(err))
	}
	if c.JSON {
		err = json.NewEncoder(std.Stdout).Encode(found)
	} else {
		const percent = 100
		_, err = fmt.Fprintf(terminal{std.Stdout}, "%s with %s, threshold %v: %d of %d benign sessions flagged, at "+
			"most %.1f %% with 95 %% confidence. Not counted, because it could not judge them: %d sessions.\n",
			found.Model, found.Prompt, found.Threshold, found.Flagged, found.Sessions, percent*found.Bound, unread)
	}
	if err == nil && !found.Passed {
		err = errors.New("the bound is not below 3 %, so the model will flag nothing: use more sessions, raise " +
			"LLM_COUNCIL_DEMOGRAPHICS_THRESHOLD, or use another model")
	}
	return err
}

// disagreementEngine returns an engine that makes the calls of a backend in this process.
func disagreementEngine(ctx context.Context, cfg config.Config, std IO) (*daemon.Engine, error) {
	if err := cfg.RequireCouncil(); err != nil {
		return nil, usageError{err}
	}
	return daemon.NewEngine(ctx, daemon.EngineOptions{
		Config:    cfg,
		Simulated: simllm.Default(),
		Log:       slog.New(slog.DiscardHandler),
		Version:   std.Version,
	})
}

// lines reads an input with one request on each line, and compares the answers of each request.
func (c disagreeCmd) lines(
	ctx context.Context, std IO, cfg config.Config, change func(*council.DisagreementRequest),
) error {
	all := func(compare compare) error {
		return c.eachRequest(c.Input, std, func(r council.DisagreementRequest) error {
			change(&r)
			return c.report(ctx, std, compare, r)
		})
	}
	if c.Server != "" {
		return asking(ctx, cfg, c.Server, func(d *client.Client) error { return all(at(d)) })
	}
	if c.Backend != string(council.BackendLexicon) {
		e, err := disagreementEngine(ctx, cfg, std)
		if err != nil {
			return err
		}
		defer e.Close(ctx)
		return all(e.Disagreement)
	}
	comparer, err := daemon.NewComparer(cfg)
	if err != nil {
		return usageError{err}
	}
	return all(comparer.Disagreement)
}

// eachRequest reads a file with one request on each line, and calls its last argument with each request. It skips blank
// lines. The file "-" is the standard input. The error names the line.
func (disagreeCmd) eachRequest(file string, std IO, do func(council.DisagreementRequest) error) error {
	in := std.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return usageError{fmt.Errorf("%w: name a file of JSON lines, - for the standard input, "+
				"or the id of a session", err)}
		}
		defer func() { _ = f.Close() }() // after reading, an error of Close does not matter
		in = f
	}
	if in == nil {
		return usageError{errors.New("there is no standard input: name a file")}
	}
	lines := bufio.NewReader(in)
	requests := 0
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading line %d: %w", number, err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			requests++
			r, wrong := readDisagreement(line)
			if wrong != nil {
				return usageError{fmt.Errorf(`line %d: %w; write {"question": "...", "answers": [{"id": "a", "text": "..."}, ...]} `+
					`on one line`, number, wrong)}
			}
			if wrong := do(r); wrong != nil {
				if e, ok := errors.AsType[*council.Error](wrong); ok && e.Code == council.CodeInvalid {
					return usageError{fmt.Errorf("line %d: %w", number, readable(wrong))}
				}
				return fmt.Errorf("line %d: %w", number, wrong)
			}
		}
		if err != nil {
			break
		}
	}
	if requests == 0 {
		return usageError{errors.New("there are no answers in the input: write one session a line")}
	}
	return nil
}

// readDisagreement parses the request on one line.
func readDisagreement(line []byte) (r council.DisagreementRequest, err error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&r)
	if _, end := decoder.Token(); err == nil && !errors.Is(end, io.EOF) {
		err = errors.New("there is more text after the object")
	}
	return r, err
}

// report compares the answers of a request and prints the result.
func (c disagreeCmd) report(ctx context.Context, std IO, compare compare, r council.DisagreementRequest) error {
	report, err := compare(ctx, r)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(std.Stdout).Encode(report)
	}
	_, err = io.WriteString(terminal{std.Stdout}, disagreementText(report, len(r.Answers)))
	return err
}

// disagreementText returns a report as text. answers is the number of answers.
func disagreementText(report council.DisagreementReport, answers int) string {
	figure := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return strconv.FormatFloat(*x, 'f', 3, 64)
	}
	yes := map[bool]string{true: "yes", false: "no"}
	var b strings.Builder // its writes never fail
	_, _ = fmt.Fprintf(&b, "%d answers, lexicon %s: %s.\nBaseline disagreement %s.\n",
		answers, report.Lexicon.Version, report.Wording, figure(report.BaselineDisagreement))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "AXIS\tFLAGGED\tSCORE\tHITS\tX2\tP\tQ\tTERMS")
	for _, axis := range report.Axes {
		terms := make([]string, len(axis.Evidence))
		for i, e := range axis.Evidence {
			terms[i] = e.Model + ": " + strings.Join(e.Terms, ", ")
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", axis.Axis, yes[axis.Flagged], figure(axis.Score), axis.Hits,
			figure(axis.X2), figure(axis.PValue), figure(axis.QValue), cell(cmp.Or(strings.Join(terms, "; "), "-")))
	}
	_ = t.Flush()
	if j := report.Judgement; j != nil {
		_, _ = fmt.Fprintf(&b, "%s, %s, asked in two orders:\n", cell(j.Model), j.Prompt)
		_, _ = fmt.Fprintln(t, "AXIS\tFLAGGED\tRATING\tORDERS\tQUOTES\tREASON")
		for _, axis := range j.Axes {
			quotes := make([]string, len(axis.Quotes))
			for i, q := range axis.Quotes {
				quotes[i] = q.Model + ": " + strconv.Quote(q.Quote)
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%v\t%s\t%s\n", axis.Axis, yes[axis.Flagged], figure(axis.Rating), axis.Ratings,
				cell(cmp.Or(strings.Join(quotes, "; "), "-")), reasonOf(axis.Reason))
		}
		_ = t.Flush()
	}
	if found := report.Clustering; found != nil {
		_, _ = fmt.Fprintf(&b, "%s, %s:\n", cell(found.Model), found.Rule)
		_, _ = fmt.Fprintln(t, "AXIS\tFLAGGED\tSCORE\tCORRELATION\tP\tQ\tREASON")
		for _, axis := range found.Axes {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				axis.Axis, yes[axis.Flagged], figure(axis.Score), figure(axis.Correlation),
				figure(axis.PValue), figure(axis.QValue), reasonOf(axis.Reason))
		}
		_ = t.Flush()
	}
	return b.String()
}

// reasonOf returns a reason as a cell of a table.
func reasonOf(reason *string) string {
	if reason == nil {
		return "-"
	}
	return cell(*reason)
}
