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
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/client"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
)

type disagreeCmd struct {
	Input string `arg:"" help:"A file of JSON lines, - for the standard input, or the id of a session that has ended."`

	Lexicon   string   `placeholder:"FILE" help:"Terms by demographic axis; default LLM_COUNCIL_LEXICON, or the daemon's."`
	Threshold *float64 `placeholder:"X" help:"Score from which an axis may be flagged, 0 to 1; default LLM_COUNCIL_DEMOGRAPHICS_THRESHOLD."`
	Server    string   `placeholder:"URL" help:"Have the daemon at this URL compare, with the first of LLM_COUNCIL_API_TOKENS."`
	JSON      bool     `name:"json" help:"Print each report as a line of JSON."`
}

// Help returns what the help of the command says below its summary.
func (disagreeCmd) Help() string {
	return "Each line of a file is the body of POST /v1/disagreement: {\"question\": \"...\", \"answers\": [{\"id\": \"a\", " +
		"\"text\": \"...\"}, {\"id\": \"b\", \"text\": \"...\"}]}. A file is read here, unless --server is given; a session is asked of " +
		"the daemon at --server or LLM_COUNCIL_ADDR. A difference may be justified, and proves no bias."
}

// compare compares the answers of a request.
type compare func(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error)

// Run compares answers.
func (c disagreeCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
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

// sessionID is the form of the ids that the daemon gives to sessions.
var sessionID = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// isSession reports whether the input is the id of a session. A file of that name goes first.
func (c disagreeCmd) isSession() bool {
	if !sessionID.MatchString(c.Input) {
		return false
	}
	_, err := os.Stat(c.Input)
	return errors.Is(err, os.ErrNotExist)
}

// at returns how the daemon compares.
func at(d *client.Client) compare {
	return func(ctx context.Context, r council.DisagreementRequest) (report council.DisagreementReport, err error) {
		return report, d.Post(ctx, "/v1/disagreement", r, &report)
	}
}

// ofSession returns the request for the answers of a session that has ended.
func ofSession(ctx context.Context, d *client.Client, id string) (r council.DisagreementRequest, err error) {
	session, err := d.Session(ctx, id)
	if err != nil {
		return r, err
	}
	if session.Status == council.StatusRunning {
		return r, fmt.Errorf("session %s still runs: wait for its end, for which councild ask --follow %[1]s waits", id)
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

// lines compares the answers of each line of the input.
func (c disagreeCmd) lines(ctx context.Context, std IO, cfg config.Config, change func(*council.DisagreementRequest)) error {
	in := std.Stdin
	if c.Input != "-" {
		f, err := os.Open(c.Input)
		if err != nil {
			return usageError{fmt.Errorf("%w: name a file of JSON lines, - for the standard input, or the id of a session", err)}
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	if in == nil {
		return usageError{errors.New("there is no standard input: name a file")}
	}
	all := func(compare compare) error {
		return eachRequest(in, func(r council.DisagreementRequest) error {
			change(&r)
			return c.report(ctx, std, compare, r)
		})
	}
	if c.Server != "" {
		return asking(ctx, cfg, c.Server, func(d *client.Client) error { return all(at(d)) })
	}
	comparer, err := daemon.NewComparer(cfg)
	if err != nil {
		return usageError{err}
	}
	return all(comparer.Disagreement)
}

// eachRequest calls do with the request on each line that is not blank. Its error names the line.
func eachRequest(in io.Reader, do func(council.DisagreementRequest) error) error {
	lines := bufio.NewReader(in)
	requests := 0
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading line %d: %w", number, err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			requests++
			var r council.DisagreementRequest
			decoder := json.NewDecoder(bytes.NewReader(line))
			decoder.DisallowUnknownFields()
			wrong := decoder.Decode(&r)
			if wrong == nil && decoder.More() {
				wrong = errors.New("there is more behind the object")
			}
			if wrong != nil {
				return usageError{fmt.Errorf(`line %d: %w; write {"question": "...", "answers": [{"id": "a", "text": "..."}, ...]} on one line`,
					number, wrong)}
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
		return usageError{errors.New("there are no answers in the input")}
	}
	return nil
}

// report compares the answers of a request and prints what comes of it.
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

// disagreementText returns a report as text.
func disagreementText(report council.DisagreementReport, answers int) string {
	figure := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return strconv.FormatFloat(*x, 'f', 3, 64)
	}
	yes := map[bool]string{true: "yes", false: "no"}
	var b strings.Builder // writing to it does not fail
	_, _ = fmt.Fprintf(&b, "%d answers, lexicon %s: %s.\nBaseline disagreement %s; CouncilEx %s, flagged: %s.\n",
		answers, report.Lexicon.Version, report.Wording, figure(report.BaselineDisagreement),
		figure(&report.CouncilEx.BaselineDisagreement), yes[report.CouncilEx.Flagged])
	councilEx := map[string]council.ReferenceAxis{}
	for _, axis := range report.CouncilEx.Axes {
		councilEx[axis.Axis] = axis
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "AXIS\tFLAGGED\tSCORE\tHITS\tX2\tP\tQ\tCOUNCILEX\tTERMS")
	for _, axis := range report.Axes {
		terms := make([]string, len(axis.Evidence))
		for i, e := range axis.Evidence {
			terms[i] = e.Model + ": " + strings.Join(e.Terms, ", ")
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%.4f\t%s\n", axis.Axis, yes[axis.Flagged], figure(axis.Score), axis.Hits,
			figure(axis.X2), figure(axis.PValue), figure(axis.QValue), councilEx[axis.Axis].Score, cell(cmp.Or(strings.Join(terms, "; "), "-")))
	}
	_ = t.Flush()
	return b.String()
}
