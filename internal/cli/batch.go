package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/trial"
)

// batchFlags are the flags of batch and compare, the commands that ask the questions of a file.
type batchFlags struct {
	File        string   `help:"The questions, one JSON object a line." placeholder:"FILE"`
	Out         string   `help:"File for the results. A second file next to it keeps the calls. Run the same command again to continue." placeholder:"FILE"`
	MaxCostUSD  float64  `name:"max-cost-usd" help:"Cost limit of the whole run, in US dollars." placeholder:"X"`
	Grader      string   `help:"How to compare with references that name no grader: exact, normalised, choice, number, regex or json." enum:",exact,normalised,choice,number,regex,json" default:"" placeholder:"NAME"`
	Concurrency int      `help:"How many questions to ask at the same time." default:"4" placeholder:"N"`
	Council     string   `placeholder:"NAME" help:"A council of the roster, instead of its default."`
	Models      []string `placeholder:"A,B" help:"The members, instead of LLM_COUNCIL_MODELS."`
	Chairman    string   `placeholder:"MODEL" help:"Who writes the final answer, instead of LLM_COUNCIL_CHAIRMAN."`
	Seed        *int64   `placeholder:"N" help:"Makes labels, orders and ids reproducible; default: drawn from the questions."`
	Simulate    bool     `help:"Ask four simulated models, without a key or a network."`
	Yes         bool     `help:"Start. Without this flag, the command only says what the run can cost at most."`
}

type batchCmd struct {
	batchFlags
	Records string `help:"Append the records of the reviews to this store, for the bias report." placeholder:"FILE"`
}

// Help returns the details that --help prints below the summary of the command.
func (batchCmd) Help() string {
	return "A question is a line such as {\"id\": \"q1\", \"query\": \"How many legs has a spider?\", \"reference\": " +
		"8, \"grader\": {\"type\": \"number\"}}; reference and grader are optional. Each reply is stored before it " +
		"is used. After a crash or a signal, or with a higher limit, the same command continues the run and " +
		"pays for no finished call again. The files of results and calls contain the texts.\n\n" + exitCodes
}

// Run asks the questions of a file and grades the answers.
func (c batchCmd) Run(ctx context.Context, std IO) error {
	b, err := c.begin(ctx, std, kind{records: c.Records})
	if err != nil {
		return err
	}
	defer b.close(ctx)
	return b.run(ctx, std, c.batchFlags)
}

// asked is an engine whose requests use the council that the flags name.
type asked struct {
	*daemon.Engine
	flags batchFlags
	whole bool // as in kind
}

// Prepare returns the plan of a session with the council, the models and the chairman of the flags.
func (a asked) Prepare(r council.Request) (council.Plan, error) {
	r.Council = a.flags.Council
	r.Models = a.flags.Models
	r.Chairman = a.flags.Chairman
	r.Whole = a.whole
	return a.Engine.Prepare(r)
}

// begun is a run that is ready to ask its questions.
type begun struct {
	engine    asked
	calls     *trial.Calls
	plan      trial.Plan
	questions []trial.Prepared // in the order of the plan
	held      trial.ResultFile // results of an earlier start of the same command
	// bound is the most that all questions can cost, in US dollars. It is nil if that is not known.
	bound   *float64
	perCall int // the largest number of calls that one question can take
	// over is trial.Options.Over.
	over     func(session string) error
	teardown []func(context.Context) error
}

// close undoes the steps of begin in reverse order.
func (b *begun) close(ctx context.Context) {
	for _, step := range slices.Backward(b.teardown) {
		_ = step(ctx)
	}
}

// kind holds the differences between the runs of batch and compare.
type kind struct {
	records string   // the file for the records of the reviews, or ""
	judges  []string // models that the run may ask in addition to the council
	whole   bool     // whether all members are asked at once, whatever the mode of the council is
	// shape completes the plan. It may be nil.
	shape func(*trial.Plan, asked, council.Plan, []trial.Question) error
}

// begin reads the questions and opens everything that the run needs.
func (c batchFlags) begin(ctx context.Context, std IO, s kind) (_ *begun, err error) {
	if c.File == "" || c.Out == "" {
		return nil, usageError{errors.New("--file or --out is missing: write --file FILE --out FILE --max-cost-usd X")}
	}
	cfg, err := loadConfig()
	if err != nil {
		return nil, err
	}
	if !c.inRange() {
		return nil, usageError{fmt.Errorf("--max-cost-usd, --concurrency or --seed is missing or out of range: write "+
			"--max-cost-usd above 0, --concurrency from 1, --seed from 0 to %d", int64(council.MaxSeed))}
	}
	file, questions, err := c.questions()
	if err != nil {
		return nil, usageError{err}
	}
	b := &begun{}
	defer func() {
		if err != nil {
			b.close(ctx)
		}
	}()
	cfg, sim, err := c.council(cfg)
	if err != nil {
		return nil, usageError{err}
	}
	cfg.AllowedModels = append(slices.Clone(cfg.AllowedModels), s.judges...) // a judge in the flags is allowed
	recorder, secret, err := b.openRecords(ctx, std, &cfg, s.records, c.Simulate)
	if err != nil {
		return nil, err
	}
	o := daemon.EngineOptions{
		Config:         cfg,
		Simulated:      sim,
		Recorder:       recorder,
		QuestionSecret: secret,
		Log:            slog.New(slog.DiscardHandler),
		Version:        std.Version,
		Hold: func(session string, bound spend.USD) (func(spend.USD), error) {
			finish, err := b.calls.Hold(session, bound.Float64())
			return func(cost spend.USD) { finish(cost.Float64()) }, err
		},
		Keep: func(next council.Completer) council.Completer {
			return completerFunc(func(ctx context.Context, call council.Call) (council.Completion, error) {
				return b.calls.Completer(next).Complete(ctx, call)
			})
		},
	}
	b.engine = asked{flags: c, whole: s.whole}
	if err := b.openEngine(ctx, o, questions); err != nil {
		return nil, err
	}
	if err := b.makePlan(file, questions, s); err != nil {
		return nil, err
	}
	ordered := b.plan.Ordered(questions)
	if err := b.measure(ordered); err != nil {
		return nil, err
	}
	if err := b.openCalls(c.Out, ordered); err != nil {
		return nil, err
	}
	return b, nil
}

// makePlan makes the plan of the run.
func (b *begun) makePlan(file []byte, questions []trial.Question, s kind) error {
	flags := b.engine.flags
	first, err := b.engine.Prepare(questions[0].Request())
	if err != nil {
		return usageError{readable(err)}
	}
	b.plan = trial.New(file, questions, first, flags.Grader)
	if flags.Seed != nil {
		b.plan.Seed = *flags.Seed
	}
	if s.shape == nil {
		return nil
	}
	if err := s.shape(&b.plan, b.engine, first, questions); err != nil {
		return usageError{err}
	}
	return nil
}

// inRange reports whether the numbers of the flags are in their ranges.
func (c batchFlags) inRange() bool {
	if c.Seed != nil && (*c.Seed < 0 || *c.Seed > council.MaxSeed) {
		return false
	}
	return c.Concurrency >= 1 && c.MaxCostUSD > 0 && !math.IsInf(c.MaxCostUSD, 0)
}

// questions returns the file of questions, and the questions in it. Its error lists the invalid lines.
func (c batchFlags) questions() (file []byte, questions []trial.Question, err error) {
	file, err = os.ReadFile(c.File)
	if err != nil {
		return nil, nil, fmt.Errorf("--file: %w: name a readable file of questions", err)
	}
	questions, problems := trial.Read(file, c.Grader)
	if len(problems) > 0 {
		return nil, nil, c.refused(problems)
	}
	return file, questions, nil
}

// council returns the settings of the council that is asked, and the provider of the simulated models.
func (c batchFlags) council(cfg config.Config) (config.Config, simllm.Provider, error) {
	sim := simllm.Default()
	if !c.Simulate {
		return cfg, sim, cfg.RequireCouncil()
	}
	cfg = simulatedCouncil(cfg, "")
	cfg.BiasPersistence = false
	cfg.MaxOutputTokens = new(2048) // bounds the cost of a question, because some models write long answers
	sim.Models = ableCouncil()
	return cfg, sim, nil
}

// openRecords opens the record store at name, and returns it with the secret of its question keys. It returns nil
// if name is "".
func (b *begun) openRecords(
	ctx context.Context, std IO, cfg *config.Config, name string, simulate bool,
) (_ pipeline.Recorder, secret func() string, err error) {
	if name == "" {
		return nil, nil, nil
	}
	cfg.BiasConsent = max(cfg.BiasConsent, 1) // the user consents by naming a file
	kept, err := openOnce(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	b.teardown = append(b.teardown, func(context.Context) error { return kept.Close() })
	b.over = func(session string) error { return kept.over(ctx, session) }
	return kept, questionSecret(ctx, std, *cfg, name, simulate), nil
}

// openCalls opens the file of calls, and reads the results of an earlier start of the same command.
func (b *begun) openCalls(out string, questions []trial.Question) error {
	calls, err := trial.OpenCalls(out+".calls", b.plan.Hash())
	if err == nil {
		b.calls = calls
		b.teardown = append(b.teardown, func(context.Context) error { return calls.Close() })
	}
	var mismatch error // names the settings that differ; err does not name them
	b.held, mismatch = b.plan.Held(out, questions)
	if err := cmp.Or(mismatch, err); err != nil {
		return usageError{fmt.Errorf("--out: %w", err)}
	}
	return nil
}

// ableCouncil returns the models of the simulated council. Each answers the example questions right with its own
// probability.
func ableCouncil() []simllm.Model {
	models := instantCouncil()
	for i, accuracy := range []float64{0.70, 0.65, 0.65, 0.60} {
		models[i].Ability = simllm.NewAbility(accuracy)
	}
	return models
}

// refused returns the error for a file with invalid lines. The error names the first twenty invalid lines.
func (c batchFlags) refused(problems []trial.LineProblem) error {
	const most = 20
	var lines []string
	for _, p := range problems[:min(most, len(problems))] {
		lines = append(lines, p.String())
	}
	if more := len(problems) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("--file %s: nothing was asked:\n%s", c.File, strings.Join(lines, "\n"))
}

// openEngine starts the engine. It makes the cost limits hard if the most that a question can cost is known. No
// other setting changes.
func (b *begun) openEngine(ctx context.Context, o daemon.EngineOptions, questions []trial.Question) error {
	e, err := daemon.NewEngine(ctx, o)
	if err != nil {
		return err
	}
	b.engine.Engine = e
	plan, err := b.engine.Prepare(questions[0].Request())
	if err == nil && e.Estimate(plan).Upper != nil && o.Config.CostLimits != "hard" {
		e.Close(ctx)
		o.Config.CostLimits = "hard"
		if e, err = daemon.NewEngine(ctx, o); err != nil {
			return err
		}
		b.engine.Engine = e
	}
	b.teardown = append(b.teardown, func(ctx context.Context) error {
		e.Close(ctx)
		return nil
	})
	return nil
}

// measure prepares all questions before the first one is asked, and adds up the most that they can cost. Its error
// names the questions that are not valid.
func (b *begun) measure(questions []trial.Question) error {
	b.bound = new(float64)
	var problems []string
	for _, q := range questions {
		session, err := b.engine.Prepare(q.Request())
		if err != nil {
			problems = append(problems, fmt.Sprintf("question %.64q: %v", q.ID, readable(err)))
			continue
		}
		if b.perCall == 0 {
			b.perCall = b.engine.Estimate(session).Calls + b.plan.JudgeCalls()
			for _, arm := range b.plan.Panel() {
				b.perCall += arm.Samples + 1
			}
		}
		one := trial.Prepared{Question: q, Session: b.plan.Of(q.ID, session)}
		if one.Bound = trial.Bound(b.engine.Estimate, session, b.plan); one.Bound == nil {
			b.bound = nil
		} else if b.bound != nil {
			*b.bound += *one.Bound
		}
		b.questions = append(b.questions, one)
	}
	if len(problems) > 0 {
		return usageError{errors.New("nothing was asked:\n" + strings.Join(problems[:min(20, len(problems))], "\n"))}
	}
	return nil
}

// asked is the list of the questions of the run.
func (b *begun) asked() []trial.Question {
	questions := make([]trial.Question, len(b.questions))
	for i, q := range b.questions {
		questions[i] = q.Question
	}
	return questions
}

// announce prints how many calls the run takes and the most that it can cost. Unless start is set, it returns an
// error, so that the run does not start.
func (b *begun) announce(std IO, start bool) error {
	text := fmt.Sprintf("%d questions of at most %d calls each, %d in all, not counting retries.\n",
		len(b.questions), b.perCall, len(b.questions)*b.perCall)
	if b.bound == nil {
		text += "Their maximum cost is unknown: the price of a model, or LLM_COUNCIL_MAX_OUTPUT_TOKENS, is not " +
			"set. New questions begin while the cost is below --max-cost-usd. Questions that are running then can " +
			"exceed that limit.\n"
	} else {
		text += fmt.Sprintf("They cost at most %s, and usually much less. The run never exceeds --max-cost-usd.\n", spend.FromFloat(*b.bound).Dollars())
	}
	if c := trial.FindCopies(b.asked()); c.Questions > 0 {
		text += fmt.Sprintf("Warning: %d questions are copies of others up to numbers and names, such as %.64q and "+
			"%.64q. Copies tell less than different questions, but reports would count them as independent. Give "+
			"all copies of a text the same \"group\".\n",
			c.Questions, c.Example[0], c.Example[1])
	}
	_, _ = fmt.Fprintf(std.Stderr, "%sPlan %s\n", text, b.plan.Hash())
	if !start {
		return usageError{errors.New("nothing was asked: add --yes to start")}
	}
	return nil
}

// results asks the questions that have no result yet, and returns all results.
func (b *begun) results(ctx context.Context, std IO, c batchFlags) ([]trial.Result, error) {
	if b.held.Ended {
		return b.held.Results, nil
	}
	if err := b.announce(std, c.Yes || c.Simulate); err != nil {
		return nil, err
	}
	out, err := b.ask(ctx, std, c)
	if err == nil {
		err = b.stopped(out)
	}
	return out.Results, err
}

// finish marks the file of results as complete, if it is not complete yet.
func (b *begun) finish(name string, results []trial.Result) error {
	if b.held.Ended {
		return nil
	}
	return trial.Finish(name, b.plan, results)
}

// run asks the questions, completes the file of results and prints a summary.
func (b *begun) run(ctx context.Context, std IO, c batchFlags) error {
	results, err := b.results(ctx, std, c)
	if err != nil {
		return err
	}
	if err := b.finish(c.Out, results); err != nil {
		return err
	}
	usage := council.NoUsage()
	failed := 0
	graded := 0
	right := 0.0
	for i, r := range results {
		usage = usage.Plus(r.Usage)
		if r.Status == council.StatusFailed {
			failed++
		}
		if b.questions[i].Closed() {
			graded++
			if r.Score != nil {
				right += *r.Score
			}
		}
	}
	text := fmt.Sprintf("%d questions, %d without an answer, %s\n", len(results), failed, spend.Cost(usage))
	if graded > 0 {
		text += fmt.Sprintf("Right: %.4g of %d\n", right, graded)
	}
	_, err = fmt.Fprintf(std.Stdout, "%sResults: %s\n", text, c.Out)
	if err == nil && failed > 0 {
		return fmt.Errorf("%d questions have no answer: see the reasons in %s", failed, c.Out)
	}
	return err
}

// ask runs the trial. On a terminal it shows the progress.
func (b *begun) ask(ctx context.Context, std IO, c batchFlags) (trial.Outcome, error) {
	start := time.Now()
	o := trial.Options{
		Council: b.engine, Calls: b.calls, Plan: b.plan, Questions: b.questions, Out: c.Out, Held: b.held,
		MaxCostUSD: c.MaxCostUSD, Concurrency: c.Concurrency, Over: b.over,
	}
	if isTerminal(std.Stderr) {
		o.Progress = func(p trial.Progress) {
			left := time.Duration(float64(time.Since(start)) / float64(p.Done) * float64(p.Questions-p.Done)).Round(time.Second)
			_, _ = fmt.Fprintf(std.Stderr, "\r\x1b[K%d of %d questions, %s, some %v left",
				p.Done, p.Questions, spend.Cost(p.Usage), left)
			if p.Done == p.Questions {
				_, _ = fmt.Fprintln(std.Stderr)
			}
		}
	}
	return trial.Run(ctx, o)
}

// stopped is the error of a run that ended early: a stoppedError that says why. It is nil if the run did not end early.
func (b *begun) stopped(out trial.Outcome) error {
	if out.Stopped == nil {
		return nil
	}
	var why string
	switch *out.Stopped {
	case trial.StoppedByCap:
		could := "more than that"
		if out.Next != nil {
			could = spend.FromFloat(*out.Next).Dollars()
		}
		why = fmt.Sprintf("only %s of --max-cost-usd is left, and the next question can cost %s: "+
			"run the same command with a higher limit to continue",
			spend.FromFloat(out.Left).Dollars(), could)
	case trial.StoppedUnknown:
		why = "the calls have no known price, so --max-cost-usd cannot be enforced: set the models' prices in " +
			"LLM_COUNCIL_PRICES"
	default:
		why = "the run was interrupted: run the same command again to continue"
	}
	waiting := ""
	if n := out.Over - len(out.Results); n > 0 {
		waiting = fmt.Sprintf(" (%d of them are not in the file yet, because they wait for earlier ones; they are "+
			"not paid for again)", n)
	}
	return stoppedError{fmt.Errorf("%d of %d questions are done%s, %s counts against --max-cost-usd; %s",
		out.Over, len(b.questions), waiting, spend.FromFloat(out.CostUSD).Dollars(), why)}
}

// completerFunc makes a function a council.Completer.
type completerFunc func(context.Context, council.Call) (council.Completion, error)

// Complete implements council.Completer.
func (f completerFunc) Complete(ctx context.Context, c council.Call) (council.Completion, error) {
	return f(ctx, c)
}

// once is a record store that holds the records of each session only once. It appends the records of a session when the
// question of the session is over.
type once struct {
	*store.Store
	// held are the sessions in the store at the start.
	held map[string]struct{}

	mu      sync.Mutex // guards waiting
	waiting map[string][]council.BiasMetricRecord
}

// openOnce opens the record store at path.
func openOnce(ctx context.Context, path string) (*once, error) {
	s, _, err := store.Open(store.Options{Path: path}) //nolint:contextcheck // a store lives until it is closed
	if err != nil {
		return nil, err
	}
	held, err := s.Sessions(ctx, time.Time{})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, s.Close())
	}
	return &once{Store: s, held: held, waiting: map[string][]council.BiasMetricRecord{}}, nil
}

// Append implements pipeline.Recorder. The records wait until the method over is called, because the session may run
// again.
func (o *once) Append(_ context.Context, records []council.BiasMetricRecord) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(records) > 0 {
		o.waiting[records[0].SessionID] = records
	}
	return nil
}

// over appends the records of the last run of a session, unless the store holds the session already. It is called when
// the question of the session is over.
func (o *once) over(ctx context.Context, session string) error {
	o.mu.Lock()
	records := o.waiting[session]
	delete(o.waiting, session)
	o.mu.Unlock()
	if _, ok := o.held[session]; ok {
		return nil
	}
	return o.Store.Append(context.WithoutCancel(ctx), records) // also after a signal, because this question is over
}
