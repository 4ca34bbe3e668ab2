package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/trial"
	"github.com/councild/councild/internal/worth"
)

type compareCmd struct {
	batchFlags
	Input     string   `help:"Graded rows, as import writes them, instead of questions: nothing is asked. --arms then names arms of the rows; default all." placeholder:"FILE"`
	Treatment string   `help:"With --input: the arm that is compared with the others; default council." placeholder:"ARM"`
	Arms      []string `help:"What to compare the council with: best, vote, ranked, synthesis, placebo, ensemble, first:N, member:ID; default best, vote, ranked, synthesis." placeholder:"A,B"`
	Margin    *float64 `help:"Smallest difference that counts: in the share of right answers, default 0.05, or with --judges in the share of wins minus that of losses, default 0.10." placeholder:"X"`
	ValueUSD  *float64 `name:"value-usd" help:"What a right answer is worth, in US dollars. The verdict is then in money, without a margin." placeholder:"V"`
	Samples   *int     `help:"How often an ensemble asks its model; default twice the number of members." placeholder:"N"`
	Judges    []string `help:"Models that compare the answers to questions without a right answer. No seat of the council may have a model of the same maker." placeholder:"A,B"`
	Ensemble  string   `help:"The seat whose model an ensemble asks; default the chairman." placeholder:"ID"`
	FailOn    []string `name:"fail-on" help:"Exit with 3 for these verdicts: does_not_pay, undecided." placeholder:"A,B"`
	Finish    bool     `help:"Ask nothing more. End a stopped run, with the questions asked so far."`
	Format    string   `help:"Form of the report: ${enum}." enum:"text,json,csv,html" default:"text"`
}

// Help returns the details that --help prints below the summary of the command.
func (compareCmd) Help() string {
	return "All arms of a question share the answers of the council's members, and differ only in what they do with " +
		"these answers. Nothing is scored before the end. docs/worth.md says how to ask.\n\n" + exitCodes
}

// Run compares the council with simpler ways to answer the questions of a file.
func (c compareCmd) Run(ctx context.Context, std IO) error {
	if err := c.check(); err != nil {
		return usageError{err}
	}
	if c.Input != "" {
		return c.compareRows(std)
	}
	b, err := c.begin(ctx, std, kind{judges: c.Judges, whole: true, shape: c.shape})
	if err != nil {
		return err
	}
	defer b.close(ctx)
	if !b.held.Ended && !c.Finish {
		power := worth.Powers(b.plan.Clusters, b.plan.Margin, b.plan.Rivals())
		_, _ = terminal{std.Stderr}.Write(render.PlanText(b.plan.Clusters, power, b.plan.Settings(), b.plan.Hash()))
	}
	results, err := c.results(ctx, std, b)
	if err != nil {
		return err
	}
	compared := trial.Compare(b.plan, b.questions, results)
	if err := b.finish(c.Out, results); err != nil {
		return err
	}
	return c.write(std, compared)
}

// compareRows compares the arms of graded rows. It asks nothing.
func (c compareCmd) compareRows(std IO) error {
	if c.File != "" || c.Out != "" || c.Finish || len(c.Judges) > 0 || c.Samples != nil || c.Ensemble != "" {
		return usageError{errors.New("--input reads graded answers and asks nothing: leave out --file, --out, " +
			"--finish, --judges, --samples and --ensemble")}
	}
	plan := worth.Design{
		Treatment:   cmp.Or(c.Treatment, trial.ArmCouncil),
		Comparators: c.Arms,
		Margin:      0.05,
		ValueUSD:    c.ValueUSD,
	}
	if c.Margin != nil {
		plan.Margin = *c.Margin
	}
	if c.Seed != nil {
		plan.Seed = uint64(*c.Seed) //nolint:gosec // any bits will do
	}
	compared, err := trial.CompareRows(c.Input, plan)
	if err != nil {
		return usageError{fmt.Errorf("--input: %w", err)}
	}
	return c.write(std, compared)
}

// write prints a comparison. It returns a findingError if --fail-on names its verdict.
func (c compareCmd) write(std IO, compared render.Comparison) error {
	if err := writeAs(
		std.Stdout, c.Format, compared, render.ComparisonCSV, render.ComparisonHTML, render.ComparisonText,
	); err != nil {
		return err
	}
	if slices.Contains(c.FailOn, string(compared.Verdict)) {
		return findingError{fmt.Errorf("the verdict is %s", compared.Verdict)}
	}
	return nil
}

// check returns an error for flags that are out of range or cannot be combined.
func (c compareCmd) check() error {
	for _, verdict := range c.FailOn {
		if verdict != string(worth.DoesNotPay) && verdict != string(worth.Undecided) {
			return errors.New("--fail-on has an unknown verdict: write does_not_pay, undecided or both")
		}
	}
	if c.Treatment != "" && c.Input == "" {
		return errors.New("--treatment needs --input: without --input, the treatment is always the council")
	}
	switch {
	case c.Margin != nil && c.ValueUSD != nil:
		return errors.New("--margin and --value-usd are both given: leave one of them out")
	case !mayBePositive(c.Margin) || !mayBePositive(c.ValueUSD) || c.Margin != nil && *c.Margin >= 1:
		return errors.New("--margin or --value-usd is out of range: write --margin between 0 and 1, --value-usd " +
			"above 0")
	case c.Samples != nil && (*c.Samples < 2 || *c.Samples > maxCount):
		return fmt.Errorf("--samples is out of range: write a whole number from 2 to %d", maxCount)
	}
	return nil
}

// mayBePositive reports whether a number is missing, or finite and above 0.
func mayBePositive(v *float64) bool { return v == nil || *v > 0 && !math.IsInf(*v, 0) }

// shape completes the plan with the arms, the margin and the judges of the flags.
func (c compareCmd) shape(p *trial.Plan, engine asked, session council.Plan, questions []trial.Question) error {
	closed := 0
	for _, q := range questions {
		if q.Closed() {
			closed++
		}
	}
	if err := c.checkAnswers(closed, len(questions)); err != nil {
		return err
	}
	arms := c.Arms
	if arms == nil {
		arms = []string{string(pipeline.ArmSynthesis)}
		if closed > 0 {
			arms = append(arms, trial.ArmVote)
		}
	}
	var err error
	if p.Arms, err = trial.Arms(arms, p.Members, closed > 0); err != nil {
		return fmt.Errorf("--arms: %w", err)
	}
	p.Alpha = worth.Level
	p.Margin = 0.05
	p.ValueUSD = c.ValueUSD
	if closed == 0 {
		p.Margin = worth.JudgedMargin
	}
	if c.Margin != nil {
		p.Margin = *c.Margin
	}
	if err := c.ensemble(p, session); err != nil {
		return err
	}
	for _, name := range c.Judges {
		judge, err := judgeOf(engine, *p, name)
		if err != nil {
			return fmt.Errorf("--judges: %w", err)
		}
		p.Judges = append(p.Judges, judge)
	}
	return nil
}

// checkAnswers returns an error if the questions do not fit the flags. closed is the number of questions with a
// right answer, and all is the number of questions.
func (c compareCmd) checkAnswers(closed, all int) error {
	switch {
	case closed > 0 && closed < all:
		return fmt.Errorf("%d of %d questions have no right answer: put graded and judged questions into two "+
			"files", all-closed, all)
	case closed > 0 && len(c.Judges) > 0:
		return errors.New("the questions have right answers, so they need no judges: leave out --judges")
	case closed == 0 && len(c.Judges) == 0:
		return errors.New("the questions have no right answers: give each a reference and a grader, or name --judges")
	case closed == 0 && c.ValueUSD != nil:
		return errors.New("the questions have no right answers, so --value-usd has no meaning: leave it out")
	default:
		return nil
	}
}

// judgeOf returns the seat of a judge. It returns an error if a seat of the council has a model of the same maker.
func judgeOf(engine asked, p trial.Plan, name string) (council.Member, error) {
	plan, err := engine.Engine.Prepare(council.Request{Query: "?", Models: []string{name}, Direct: true})
	if err != nil {
		return council.Member{}, readable(err)
	}
	judge := plan.Members()[0]
	maker := func(m council.Member) string { return cmp.Or(m.Maker, council.Maker(m.ID, plan.Rules.Providers)) }
	for _, m := range slices.Concat(p.Members, p.Reviewers, p.Chairmen, []council.Member{p.Ensemble}) {
		if m.ID != "" && maker(m) == maker(judge) {
			return judge, fmt.Errorf("%s and %s have the same maker, %s, and models prefer their own maker: name a "+
				"judge of another maker", name, m.ID, maker(m))
		}
	}
	return judge, nil
}

// ensemble adds the model and the number of samples to the plan, if its arms have an ensemble.
func (c compareCmd) ensemble(p *trial.Plan, session council.Plan) error {
	if !slices.Contains(p.Arms, string(pipeline.ArmEnsemble)) {
		return nil
	}
	p.Ensemble = session.Chairmen()[0]
	p.Samples = 2 * len(p.Members)
	if c.Samples != nil {
		p.Samples = *c.Samples
	}
	if c.Ensemble != "" {
		seats := slices.Concat(p.Members, p.Reviewers, p.Chairmen)
		at := slices.IndexFunc(seats, func(m council.Member) bool { return m.ID == c.Ensemble })
		if at < 0 {
			return fmt.Errorf("--ensemble: the council has no seat %.64q: name one of its seats", c.Ensemble)
		}
		p.Ensemble = seats[at]
	}
	return nil
}

// results asks the questions and returns all results. With --finish it returns the results so far and asks nothing.
func (c compareCmd) results(ctx context.Context, std IO, b *begun) ([]trial.Result, error) {
	if !c.Finish {
		return b.results(ctx, std, c.batchFlags)
	}
	if len(b.held.Results) == 0 {
		return nil, usageError{fmt.Errorf("--finish: %s has no question that was asked: run the command without "+
			"--finish", c.Out)}
	}
	return b.held.Results, nil
}

type seatsCmd struct {
	Input  string `help:"A file of results, of batch or compare, or of graded rows, as import writes them." required:"" placeholder:"FILE"`
	Format string `help:"Form of the report: ${enum}." enum:"text,json,csv,html" default:"text"`
}

// Run prints the report on shared errors of the seats of a council.
func (c seatsCmd) Run(std IO) error {
	rows, members, graded, err := trial.SeatsOfRows(c.Input)
	if err == nil && !graded {
		var f trial.ResultFile
		if f, err = trial.Open(c.Input); err == nil {
			rows, members, err = trial.Seats(f)
		}
	}
	if err != nil {
		return usageError{fmt.Errorf("--input: %w", err)}
	}
	seats := render.Seats{
		SeatsReport: worth.Seats(rows, len(members)),
		Members:     members,
		Source:      filepath.Base(c.Input),
	}
	return writeAs(std.Stdout, c.Format, seats, render.SeatsCSV, render.SeatsHTML, render.SeatsText)
}
