package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/spend"
)

type judgeCmd struct {
	File       string   `arg:"" optional:"" help:"The body of POST /v1/judge as JSON; - is standard input."`
	Question   string   `placeholder:"TEXT" help:"The question that the answers are for, instead of a FILE."`
	Answer     []string `sep:"none" placeholder:"ID[:AUTHOR]=PATH" help:"An answer: its id, the model that wrote it, and its text file."`
	Council    string   `placeholder:"NAME" help:"The council whose reviewers judge, instead of the default one."`
	Orders     string   `placeholder:"NAME" help:"Show the answers to each judge in one order, or in both; two answers are always shown in both."`
	Exclude    string   `placeholder:"NAME" help:"Whose answers a judge does not read: family (its maker's, the default), self (its model's) or none."`
	Criteria   string   `placeholder:"TEXT" help:"What the judges look for, instead of general quality."`
	Rubric     []string `sep:"none" placeholder:"TEXT" help:"A statement about the only answer. The judges vote on it (repeatable)."`
	Seed       *int64   `placeholder:"N" help:"Makes labels and orders reproducible."`
	MaxCostUSD *float64 `name:"max-cost-usd" placeholder:"X" help:"Cost limit of the session in US dollars. The session stops asking once this is spent. Calls that are under way may pass it, unless limits are hard."`
	Server     string   `placeholder:"URL" help:"Have the daemon at this URL judge, with the first of LLM_COUNCIL_API_TOKENS; default: run it here."`
	Estimate   bool     `help:"Ask nothing. Say what it would cost, and whether that is within the cost limits."`
	JSON       bool     `name:"json" help:"Print the result as JSON."`
}

// Help returns the details that --help prints below the summary of the command.
func (judgeCmd) Help() string {
	return "Each judge reads two answers twice, the second time in reversed order. Its vote counts only if it " +
		"prefers the same answer both times. The result says what these judges prefer, not what is true. Ctrl-C " +
		"cancels the " +
		"session, because calls cost money.\n\n" + exitCodes
}

// Run has a council judge answers, and prints the result.
func (c judgeCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	request, err := c.request(ctx, cfg, std.Stdin)
	if err != nil {
		return err
	}
	explain := askCmd{Server: c.Server}.explain
	prepare := func(e *daemon.Engine) (council.Plan, error) { return e.PrepareJudge(request) }
	if c.Estimate {
		var e spend.Estimate
		if c.Server != "" {
			e, err = estimateAt(ctx, cfg, c.Server, request)
		} else {
			e, err = estimateHere(ctx, std, cfg, prepare, nil)
		}
		if err != nil {
			return explain(ctx, err, "")
		}
		return printEstimate(std.Stdout, e, c.JSON)
	}
	p := newProgress(io.Discard, std.Stderr)
	var session *council.Session
	var bill spend.SessionCost
	if c.Server == "" {
		session, bill, err = inProcess(ctx, std, cfg, false, prepare, p)
	} else {
		err = asking(ctx, cfg, c.Server, func(d *client.Client) error {
			session, err = d.Judge(ctx, council.JudgeSubmission{JudgeRequest: request}, p)
			if err == nil {
				bill = billAt(ctx, d, session)
			}
			return err
		})
	}
	p.close()
	if err != nil {
		return explain(ctx, err, p.session)
	}
	defer func() { _, _ = fmt.Fprintln(std.Stderr, bill.Sentence) }()
	judgement := ranking.Judged(session)
	if c.JSON {
		return writeIndented(std.Stdout, judgement)
	}
	_, err = terminal{std.Stdout}.Write(render.Judgement(judgement))
	return err
}

// request returns the request from the file or from the flags. Flags take precedence over fields of the file.
func (c judgeCmd) request(ctx context.Context, cfg config.Config, stdin io.Reader) (r council.JudgeRequest, err error) {
	switch fromFlags := c.Question != "" || len(c.Answer) > 0; {
	case c.File != "" && fromFlags:
		return r, usageError{errors.New("a file and flags are both given: leave out --question and --answer, or " +
			"the file")}
	case c.File != "":
		r, err = c.read(ctx, cfg, stdin)
	case fromFlags:
		r.Question = c.Question
		r.Answers, err = c.answers(ctx, cfg, stdin)
	default:
		return r, usageError{errors.New(`there is nothing to judge: name a FILE, or give --question "..." --answer a=a.txt --answer b=b.txt`)}
	}
	if err != nil {
		return r, err
	}
	if c.Council != "" {
		r.Council = c.Council
	}
	if c.Orders != "" {
		r.Orders = council.Orders(c.Orders)
	}
	if c.Exclude != "" {
		r.Exclude = council.Exclude(c.Exclude)
	}
	if c.Criteria != "" {
		r.Criteria = c.Criteria
	}
	if len(c.Rubric) > 0 {
		r.Rubric = c.Rubric
	}
	if c.Seed != nil {
		r.Seed = c.Seed
	}
	if c.MaxCostUSD != nil {
		r.MaxCostUSD = c.MaxCostUSD
	}
	if r.MaxCostUSD != nil && (math.IsNaN(*r.MaxCostUSD) || math.IsInf(*r.MaxCostUSD, 0)) {
		return r, usageError{errors.New("--max-cost-usd is not above 0: write an amount such as 0.50")}
	}
	return r, nil
}

// read reads the request from the file.
func (c judgeCmd) read(ctx context.Context, cfg config.Config, stdin io.Reader) (r council.JudgeRequest, err error) {
	limit := int64(council.MaxJudged+1) * int64(cfg.MaxQueryBytes)
	file := questionTexts{stdin: stdin, max: config.Bytes(limit), left: limit}
	if err := file.add(ctx, c.File, c.File); err != nil {
		return r, err
	}
	decoder := json.NewDecoder(strings.NewReader(file.all[0]))
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(&r); err == nil && decoder.More() {
		err = errors.New("there is more after the object")
	}
	if err != nil {
		return r, usageError{fmt.Errorf("%s: %w: give one JSON object, such as "+
			`{"question": "...", "answers": [{"id": "a", "text": "..."}, {"id": "b", "text": "..."}]}`, c.File, err)}
	}
	return r, nil
}

// answers reads the answers that the flags name.
func (c judgeCmd) answers(ctx context.Context, cfg config.Config, stdin io.Reader) (answers []council.JudgeAnswer, err error) {
	for _, flag := range c.Answer {
		name, path, ok := strings.Cut(flag, "=")
		if !ok || name == "" || path == "" {
			return nil, usageError{fmt.Errorf("--answer %s has no id: write ID=PATH, or ID:AUTHOR=PATH, such as a:~openai/gpt-latest=a.txt", flag)}
		}
		id, author, _ := strings.Cut(name, ":")
		file := questionTexts{stdin: stdin, max: cfg.MaxQueryBytes, left: int64(cfg.MaxQueryBytes)}
		if err := file.add(ctx, "--answer "+flag, path); err != nil {
			return nil, err
		}
		answers = append(answers, council.JudgeAnswer{ID: id, Text: file.all[0], Author: author})
	}
	return answers, nil
}
