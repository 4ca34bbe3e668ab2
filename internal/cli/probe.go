package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/store"
)

// maxCount bounds the counts in flags, such as sessions or repeats, because a command holds all of them in memory.
const maxCount = 100_000

type probeCmd struct {
	Run     runProbeCmd     `cmd:"" default:"withargs" help:"Have reviewers read the same answers several times, and see if they agree with themselves."`
	Compare compareProbeCmd `cmd:"" help:"Show how each reviewer changed between two probes, each of one run or several."`
}

type runProbeCmd struct {
	Questions []string `arg:"" optional:"" help:"The questions."`
	File      string   `help:"File of more questions, one a line." placeholder:"FILE"`
	Out       string   `help:"New file for the records." required:"" placeholder:"FILE"`
	Repeats   int      `help:"How often each reviewer reads the same answers, every second time reversed." default:"4" placeholder:"N"`
	Sessions  int      `help:"How many questions to ask, starting again with the first if there are fewer; 0 asks each once." placeholder:"N"`
	Simulate  bool     `help:"Ask four simulated models, without a key or a network."`
	Yes       bool     `help:"Start. Without this flag, the command only says what the run would cost."`
	JSON      bool     `name:"json" help:"Print the figures as JSON."`
}

// probed is the result of a probe.
type probed struct {
	Questions int                    `json:"questions"`
	Repeats   int                    `json:"repeats"`
	Usage     council.Usage          `json:"usage"`
	Failed    int                    `json:"failed"` // how many answers and reviews are missing
	Reviewers []bias.SelfConsistency `json:"reviewers"`
}

// Run has reviewers read the same answers several times, and prints how well each reviewer agrees with itself.
func (c runProbeCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	if err := c.check(cfg); err != nil {
		return err
	}
	questions, err := c.questions()
	if err != nil {
		return err
	}
	sim := simllm.Default()
	if c.Simulate {
		cfg = simulatedCouncil(cfg, c.Out)
		sim.Models = instantCouncil()
	} else if err := cfg.RequireCouncil(); err != nil {
		return usageError{err}
	}
	cfg.BiasConsent = max(cfg.BiasConsent, 1) // the user consents by naming a file
	log := slog.New(slog.DiscardHandler)
	e, err := daemon.NewEngine(ctx, daemon.EngineOptions{
		Config:         cfg,
		Simulated:      sim,
		QuestionSecret: questionSecret(ctx, std, cfg, c.Out, c.Simulate),
		Log:            log,
		Version:        std.Version,
	})
	if err != nil {
		return err
	}
	defer e.Close(ctx)
	plans := make([]council.Plan, len(questions))
	for i, question := range questions {
		if plans[i], err = e.Prepare(council.Request{Query: question, Whole: true}); err != nil {
			return usageError{fmt.Errorf("question %d: %w", i+1, readable(err))}
		}
	}
	_, _ = fmt.Fprint(std.Stderr, c.cost(cfg, plans))
	if !c.Yes && !c.Simulate {
		return usageError{errors.New("nothing was asked: add --yes to start")}
	}
	p, err := c.probe(ctx, std, e, plans)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeIndented(std.Stdout, p)
	}
	return p.write(std.Stdout, c.Out)
}

// check returns an error if a number is out of range or --out cannot be used.
func (c runProbeCmd) check(cfg config.Config) error {
	if c.Repeats < 2 || c.Repeats > maxCount || c.Sessions < 0 || c.Sessions > maxCount {
		return usageError{fmt.Errorf("--repeats or --sessions is out of range: write --repeats 2 to %d, --sessions "+
			"0 to %[1]d",
			maxCount)}
	}
	if err := newFile(c.Out); err != nil {
		return err
	}
	out, err := filepath.Abs(c.Out)
	if err != nil {
		return err
	}
	if kept, err := filepath.Abs(cfg.BiasStore); err != nil || out == kept {
		return usageError{errors.New("--out is LLM_COUNCIL_BIAS_STORE, which is for records of sessions: name " +
			"another file")}
	}
	return nil
}

// questionSecret returns a function that returns the secret of question keys for records in a file. If the settings
// keep records, it is the secret of the records of the settings, so that equal questions have equal keys in all files.
// Simulated records use a fixed secret.
func questionSecret(ctx context.Context, std IO, cfg config.Config, out string, simulated bool) func() string {
	if simulated {
		return func() string { return "simulated" }
	}
	if cfg.BiasPersistence {
		out = cfg.BiasStore
	}
	return daemon.QuestionSecret(ctx, out, slog.New(plainLog{func(line string) {
		_, _ = fmt.Fprintln(terminal{std.Stderr}, line)
	}}))
}

// questions returns the questions, one for each block of the probe.
func (c runProbeCmd) questions() ([]string, error) {
	questions := c.Questions
	if c.File != "" {
		text, err := os.ReadFile(c.File)
		if err != nil {
			return nil, fmt.Errorf("reading the questions: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" {
				questions = append(questions, line)
			}
		}
	}
	if len(questions) == 0 && c.Simulate {
		for _, topic := range topics() {
			questions = append(questions, "How would you go about "+topic+"?")
		}
	}
	if len(questions) == 0 {
		return nil, usageError{errors.New("there is no question: write questions, or use --file or --simulate")}
	}
	if c.Sessions > 0 {
		questions = slices.Repeat(questions, c.Sessions/len(questions)+1)[:c.Sessions]
	}
	return questions, nil
}

// cost says how many calls the probe makes, and what is known about their cost.
func (c runProbeCmd) cost(cfg config.Config, plans []council.Plan) string {
	members := len(plans[0].Members())
	reviewers := len(plans[0].Reviewers())
	text := fmt.Sprintf("%d questions, answered by %d members and reviewed %d times by %d reviewers: %d calls.\n",
		len(plans), members, c.Repeats, reviewers, len(plans)*(members+c.Repeats*reviewers))
	switch {
	case c.Simulate:
		return text + "They cost nothing: the members are simulated, and so are their prices.\n"
	case cfg.MaxCostUSD != nil:
		text += fmt.Sprintf("LLM_COUNCIL_MAX_COST_USD lets no call start once the answers to a question, "+
			"or a round of reviews, have cost %s: about %s in all.\n",
			spend.FromFloat(*cfg.MaxCostUSD).Dollars(),
			spend.FromFloat(*cfg.MaxCostUSD*float64(len(plans)*(1+c.Repeats))).Dollars())
	default:
		text += "Their cost is not known in advance: some providers report it with the reply.\n"
	}
	return text + "Retries and repeated requests for ballots cost extra.\n"
}

// probe asks the questions and writes the records to a new file. It then computes the figures from that file.
func (c runProbeCmd) probe(ctx context.Context, std IO, e *daemon.Engine, plans []council.Plan) (p probed, err error) {
	out, _, err := store.Open(store.Options{Path: c.Out}) //nolint:contextcheck // a store lives until it is closed
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	p = probed{Questions: len(plans), Repeats: c.Repeats, Usage: council.NoUsage()}
	for i, plan := range plans {
		sessions, err := e.Probe(ctx, plan, c.Repeats, out)
		for _, s := range sessions {
			p.Usage = p.Usage.Plus(s.Metadata.Usage.Total)
			p.Failed += len(s.Degradation)
		}
		if err != nil {
			return p, fmt.Errorf("question %d of %d: %w; %s holds the records so far",
				i+1, len(plans), readable(err), c.Out)
		}
		if isTerminal(std.Stderr) {
			_, _ = fmt.Fprintf(std.Stderr, "%d of %d questions done\n", i+1, len(plans))
		}
	}
	var records []council.BiasMetricRecord
	for record, err := range store.ReadFile(ctx, c.Out) {
		if err != nil {
			return p, err
		}
		records = append(records, record)
	}
	p.Reviewers = bias.Consistency(slices.Values(records))
	return p, nil
}

// write prints the figures as text. path is the file of the records.
func (p probed) write(w io.Writer, path string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "THE SAME ANSWERS IN THE SAME ORDER\n"+ // Flush returns the errors
		"REVIEWER\tREPEATED\tIDENTICAL\tICC(1)\tWITHIN SD\tTAU-B")
	for _, r := range p.Reviewers {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n",
			r.ReviewerID, r.Repeated, figure(r.Identical), interval(r.ICC), interval(r.WithinSD), figure(r.TauB))
	}
	_, _ = fmt.Fprintln(t, "\nTHE SAME ANSWERS IN REVERSED ORDER\n"+
		"REVIEWER\tPAIRS\tIN CONFLICT\tFIRST WINS\tLAST WINS\tP\tFIRST OR TIE\tLAST OR TIE")
	for _, r := range p.Reviewers {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%s\t%d\t%d\n",
			r.ReviewerID, r.Comparisons, interval(r.ConflictRate), r.Primacy, r.Recency, figure(r.PValue),
			r.PrimacyTies, r.RecencyTies)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	cost := spend.Cost(p.Usage)
	_, err := fmt.Fprintf(w, `
%d questions, %d rounds each; %d answers or reviews missing; %s
Records: %s
In brackets 95 %% intervals. A pair is in conflict when the order decides which of its two answers
scores higher. P is that of as many conflicts either way, exact, one test a reviewer; the
conflicts of one question count as one sign. FIRST OR TIE are pairs that one order ties and whose
better answer wins only when it is shown first, LAST OR TIE only when it is shown last. They are
no conflicts here; some papers count them with the conflicts.
`, p.Questions, p.Repeats, p.Failed, cost, path)
	return err
}

// figure returns a number with three decimals, or "-" if it is nil.
func figure(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *x)
}

// interval returns an estimate with its interval, or without the interval if that is not known.
func interval(e stat.Estimate) string {
	if e.Lower == nil || e.Upper == nil {
		return figure(e.Value)
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", *e.Value, *e.Lower, *e.Upper)
}
