package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/spend"
)

type gateCmd struct {
	Diff        string   `placeholder:"FILE" help:"The file with the change, as git diff writes it; default: standard input."`
	Context     string   `placeholder:"FILE" help:"A file that says what the change is for."`
	Include     []string `sep:"none" placeholder:"GLOB" help:"Review only these files (repeatable)."`
	Exclude     []string `sep:"none" placeholder:"GLOB" help:"Leave these files out (repeatable). Lock files, vendored and generated files are always left out."`
	Ignore      string   `placeholder:"FILE" help:"A file with accepted findings. Each line has a fingerprint and the reason."`
	MaxFindings int      `placeholder:"N" help:"Show at most this many findings, 1 to 50; default: 5. The verdict counts all."`
	Council     string   `placeholder:"NAME" help:"The council that reviews, instead of the default one."`
	Seed        *int64   `placeholder:"N" help:"Makes the orders of findings reproducible."`
	MaxCostUSD  *float64 `name:"max-cost-usd" placeholder:"X" help:"Cost limit of the review in US dollars. If it is reached, the verdict is undecided."`
	Server      string   `placeholder:"URL" help:"Have the daemon at this URL review, with the first of LLM_COUNCIL_API_TOKENS; default: run it here."`
	FailOn      string   `placeholder:"VERDICTS" help:"Exit with 3 if the verdict is one of these, such as blocked,undecided. Measure first whether you can trust it."`
	Format      string   `enum:"markdown,json,sarif,github" default:"markdown" placeholder:"FORMAT" help:"markdown, json, sarif, or github: annotations for a workflow of GitHub."`
	Out         string   `placeholder:"FILE" help:"Write the report to this file. With --format github, the file gets the Markdown, and standard output the annotations."`
	Sarif       string   `name:"sarif" placeholder:"FILE" help:"Also write the report as SARIF to this file."`
	Trial       string   `placeholder:"DIR" help:"Measure how often the council is right, with the diffs of this directory: NAME.diff, and NAME.json for each diff with planted defects."`
	Estimate    bool     `help:"Ask nothing. Say what it would cost, and whether that is within the cost limits."`
}

// Help returns the details that --help prints below the summary of the command.
func (gateCmd) Help() string {
	return "Example: git diff origin/main...HEAD | councild gate\n\nMembers look for defects, and reviewers confirm or " +
		"reject the findings of others without knowing who found them. A finding blocks if models of three makers, and " +
		"most of those behind it, call it blocking. Measure with --trial before you let it block. The models can be " +
		"wrong, and a change can talk to them: never make this the only check. Ctrl-C cancels the review, because " +
		"calls cost money.\n\n" + exitCodes
}

// Run has a council review a change, and writes the report.
func (c gateCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if c.Trial != "" {
		return c.trial(ctx, std, cfg)
	}
	failOn, err := c.failOn()
	if err != nil {
		return err
	}
	request, tooLong, err := c.request(ctx, std.Stdin)
	if err != nil {
		return err
	}
	explain := askCmd{Server: c.Server}.explain
	if c.Estimate && tooLong == nil {
		e, err := c.estimate(ctx, std, cfg, request)
		if err != nil {
			return explain(ctx, err, "")
		}
		return printEstimate(std.Stdout, e, c.Format == "json")
	}
	p := newProgress(io.Discard, std.Stderr)
	var session *council.Session
	var bill spend.SessionCost
	if err = tooLong; err == nil {
		session, bill, err = c.session(ctx, std, cfg, request, p)
	}
	p.close()
	report, err := reportOf(session, err)
	if err != nil {
		return explain(ctx, err, p.session)
	}
	if err := c.write(std.Stdout, report); err != nil {
		return err
	}
	if bill.Sentence != "" {
		_, _ = fmt.Fprintln(std.Stderr, bill.Sentence)
	}
	if slices.Contains(failOn, report.Verdict) {
		return findingError{fmt.Errorf("the verdict is %s: %s", report.Verdict, report.Reason)}
	}
	return nil
}

// gatePlan returns a function that makes the plan of a request.
func gatePlan(request gate.Request) func(*daemon.Engine) (council.Plan, error) {
	return func(e *daemon.Engine) (council.Plan, error) {
		task, err := request.Task()
		if err != nil {
			return council.Plan{}, err
		}
		return e.PrepareTask(task)
	}
}

// estimate returns what a review would cost, here or at the daemon.
func (c gateCmd) estimate(ctx context.Context, std IO, cfg config.Config, request gate.Request) (spend.Estimate, error) {
	if c.Server != "" {
		return estimateAt(ctx, cfg, c.Server, request)
	}
	return estimateHere(ctx, std, cfg, gatePlan(request), nil)
}

// session reviews a change, here or at the daemon. bill says what the session cost.
func (c gateCmd) session(
	ctx context.Context, std IO, cfg config.Config, request gate.Request, p *progress,
) (session *council.Session, bill spend.SessionCost, err error) {
	if c.Server == "" {
		return inProcess(ctx, std, cfg, false, gatePlan(request), p)
	}
	err = asking(ctx, cfg, c.Server, func(d *client.Client) error {
		session, err = d.Task(ctx, "/v1/gate", gate.Submission{Request: request, Background: true}, p)
		if err == nil {
			bill = billAt(ctx, d, session)
		}
		return err
	})
	return session, bill, err
}

// reportOf returns the report of a session. If a limit kept the session from beginning, the report says so, and its
// verdict is undecided. The argument err is the error with which the session ended, or nil.
func reportOf(session *council.Session, err error) (gate.Report, error) {
	if err == nil {
		return gate.ReportOf(session)
	}
	e, ok := errors.AsType[*council.Error](err)
	if !ok {
		return gate.Report{}, err
	}
	tooLittle := e.Code == council.CodeInvalid && len(e.Fields) == 1 && e.Fields[0].Field == "max_cost_usd"
	if e.Paid > 0 || e.Code != council.CodeOverBudget && e.Code != council.CodeTooLarge && !tooLittle {
		return gate.Report{}, err
	}
	reason := e.Detail
	if tooLittle {
		f := ofFlag(e.Fields[0])
		reason = fmt.Sprintf("%s: %s; %s", f.Field, f.Message, f.Fix)
	}
	return gate.Report{
		Verdict: gate.Undecided, Reason: "Nothing was asked. " + strings.ToUpper(reason[:1]) + reason[1:] + ".",
		Findings: []gate.Finding{}, Dropped: map[string]int{}, LeftOut: []gate.LeftOut{}, Members: []gate.MemberReport{},
		Ignored: []gate.Ignored{},
	}, nil
}

// failOn returns the verdicts of --fail-on.
func (c gateCmd) failOn() (verdicts []gate.Verdict, err error) {
	for name := range strings.SplitSeq(c.FailOn, ",") {
		switch v := gate.Verdict(strings.TrimSpace(name)); v {
		case "":
		case gate.Pass, gate.Blocked, gate.Undecided:
			verdicts = append(verdicts, v)
		default:
			return nil, usageError{fmt.Errorf("--fail-on: %q is not a verdict: write blocked, undecided or both, with a comma "+
				"between them", name)}
		}
	}
	return verdicts, nil
}

// request returns the request from the flags and the files. The error tooLong says that the change is too long to be
// read.
func (c gateCmd) request(ctx context.Context, stdin io.Reader) (r gate.Request, tooLong, err error) {
	if c.Diff == "" && (stdin == nil || isTerminal(stdin)) {
		return r, nil, usageError{errors.New("there is no change to review: write git diff origin/main...HEAD | councild gate, or name " +
			"a file with --diff")}
	}
	if c.MaxCostUSD != nil && (math.IsNaN(*c.MaxCostUSD) || math.IsInf(*c.MaxCostUSD, 0)) {
		return r, nil, usageError{errors.New("--max-cost-usd is not above 0: write an amount such as 0.50")}
	}
	r = gate.Request{
		Include: c.Include, Exclude: c.Exclude, MaxFindings: c.MaxFindings, Council: c.Council, Seed: c.Seed, MaxCostUSD: c.MaxCostUSD,
	}
	if r.Diff, err = readGateFile(ctx, stdin, "--diff", c.Diff, gate.MaxDiffBytes); err != nil {
		return r, nil, err
	}
	if strings.TrimSpace(r.Diff) == "" {
		return r, nil, usageError{errors.New("the diff is empty: check its range, such as git diff origin/main...HEAD; a change without " +
			"lines needs no review")}
	}
	if len(r.Diff) > gate.MaxDiffBytes {
		tooLong = &council.Error{
			Code: council.CodeTooLarge, Detail: fmt.Sprintf("the diff has more than %d bytes; leave files out of it", gate.MaxDiffBytes),
		}
	}
	if c.Context != "" {
		if r.Context, err = readGateFile(ctx, nil, "--context", c.Context, gate.MaxDiffBytes); err != nil {
			return r, nil, err
		}
	}
	if c.Ignore != "" {
		r.Ignore, err = readIgnored(ctx, c.Ignore)
	}
	return r, tooLong, err
}

// readGateFile reads the file that a flag names, or the standard input if path is "" or "-". Bytes that are not UTF-8
// are replaced, because a diff can hold any text.
func readGateFile(ctx context.Context, stdin io.Reader, flag, path string, most int) (string, error) {
	in := stdin
	if path != "" && path != "-" || stdin == nil {
		f, err := os.Open(path)
		if err != nil {
			return "", usageError{fmt.Errorf("%s: %w: name a readable file", flag, err)}
		}
		defer f.Close()
		in = f
	}
	text, err := readText(ctx, in, int64(most))
	if err != nil && ctx.Err() == nil {
		return "", usageError{fmt.Errorf("%s: %w: name a readable file", flag, err)}
	}
	return strings.ToValidUTF8(text, "\uFFFD"), err
}

// readIgnored reads a file with accepted findings. Blank lines and lines that begin with # are left out.
func readIgnored(ctx context.Context, path string) (ignored []gate.Ignored, err error) {
	text, err := readGateFile(ctx, nil, "--ignore", path, gate.MaxDiffBytes)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fingerprint, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, usageError{fmt.Errorf("--ignore: line %d of %s has no reason: write behind the fingerprint why the finding is "+
				"accepted", n, path)}
		}
		ignored = append(ignored, gate.Ignored{Fingerprint: fingerprint, Reason: reason})
	}
	return ignored, nil
}

// write writes the report in each form that the flags ask for.
func (c gateCmd) write(stdout io.Writer, r gate.Report) error {
	if isTerminal(stdout) {
		stdout = terminal{stdout}
	}
	var text []byte
	switch c.Format {
	case "json":
		text = gate.JSON(r)
	case "sarif":
		text = gate.SARIF(r)
	default:
		text = gate.Markdown(r)
	}
	if c.Sarif != "" {
		if err := writeReport(c.Sarif, gate.SARIF(r)); err != nil {
			return fmt.Errorf("--sarif: %w", err)
		}
	}
	if c.Out != "" {
		if err := writeReport(c.Out, text); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	switch {
	case c.Format == "github":
		text = gate.GitHub(r)
	case c.Out != "":
		return nil
	}
	_, err := stdout.Write(text)
	return err
}

// writeReport writes a file, which later steps of a workflow may read as other users.
func writeReport(path string, text []byte) error {
	return os.WriteFile(path, text, 0o644) //nolint:gosec,mnd // a report for others
}
