package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
)

// trialFile keeps the reports of a trial in the directory of its diffs.
const trialFile = "trial.jsonl"

// trialAtOnce is how many diffs of a trial are reviewed at the same time.
const trialAtOnce = 4

// trialLine is a line of trialFile. The key changes with the diff, the council and the prompts.
type trialLine struct {
	Name   string      `json:"name"`
	Key    string      `json:"key"`
	Report gate.Report `json:"report"`
}

// gateTrial is a trial of the gate.
type gateTrial struct {
	engine *daemon.Engine
	cases  []gate.Case
	plans  []council.Plan
	bounds []float64 // the most that each case can cost, in US dollars. It is 0 for a case that has its report.
	keys   []string
	file   *os.File

	mu   sync.Mutex
	left float64 // the money that is neither spent nor reserved, in US dollars
	cost float64 // in US dollars
	bad  error   // the first error
}

// trial measures the council with the diffs of a directory.
func (c gateCmd) trial(ctx context.Context, std IO, cfg config.Config) (err error) {
	if c.Diff != "" || c.Server != "" || c.FailOn != "" || c.Sarif != "" {
		return usageError{errors.New("--trial cannot be combined with --diff, --server, --fail-on or --sarif: " +
			"leave them out")}
	}
	if err := cfg.RequireCouncil(); err != nil {
		return usageError{err}
	}
	t := &gateTrial{}
	if t.cases, err = gate.ReadCases(os.DirFS(c.Trial)); err != nil {
		return usageError{fmt.Errorf("--trial: %w", err)}
	}
	if len(t.cases) == 0 {
		return usageError{fmt.Errorf("--trial: %s has no file NAME.diff: put diffs there, and a file NAME.json for each diff with "+
			"planted defects", c.Trial)}
	}
	log := slog.New(slog.DiscardHandler)
	ledger, _, err := openLedger(ctx, cfg, log)
	if err != nil {
		return err
	}
	if ledger != nil {
		defer ledger.Close(ctx)
	}
	sim := simllm.Default()
	sim.Planted = plantedIn(t.cases)
	if t.engine, err = daemon.NewEngine(ctx, daemon.EngineOptions{
		Config: cfg, Simulated: sim, Ledger: ledger, Log: log, Version: std.Version,
	}); err != nil {
		return err
	}
	defer t.engine.Close(ctx)
	path := filepath.Join(c.Trial, trialFile)
	expected, err := t.plan(c, path)
	if err != nil {
		return err
	}
	open := 0
	bound := 0.0
	for _, b := range t.bounds {
		bound += b
		if b > 0 {
			open++
		}
	}
	if open > 0 {
		_, _ = fmt.Fprintf(std.Stderr, "%d of %d diffs have no report yet. %s\n", open, len(t.cases), trialCost(bound, expected))
		if c.MaxCostUSD == nil || c.Estimate {
			_, _ = fmt.Fprintln(std.Stderr, "Nothing was asked. To start, add --max-cost-usd, the most that this run may cost.")
			return nil
		}
		if err := t.run(ctx, path, *c.MaxCostUSD); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(std.Stderr, "The run cost $%.2f.\n", t.cost)
	}
	return t.report(c, std)
}

// trialCost says what the rest of a trial costs.
func trialCost(bound float64, expected *float64) string {
	if expected == nil {
		return fmt.Sprintf("They cost at most $%.2f.", bound)
	}
	return fmt.Sprintf("They cost about $%.2f, at most $%.2f.", *expected, bound)
}

// plantedIn returns what simulated models find in the diffs of a trial.
func plantedIn(cases []gate.Case) (planted []simllm.Planted) {
	seen := map[string]bool{}
	add := func(places []gate.Place, harmless bool) {
		for _, p := range places {
			if p.Quote != "" && len(p.Wordings) > 0 && !seen[p.Quote] {
				seen[p.Quote] = true
				planted = append(planted, simllm.Planted{Lines: p.Quote, Wordings: p.Wordings, Scenario: p.Scenario, Harmless: harmless})
			}
		}
	}
	for _, c := range cases {
		add(c.Defects, false)
		add(c.Tempting, true)
	}
	return planted
}

// plan makes the plan of each case, and reads the reports that an earlier run kept. It returns what the rest usually
// costs, or nil.
func (t *gateTrial) plan(c gateCmd, path string) (expected *float64, err error) {
	kept, err := keptReports(path)
	if err != nil {
		return nil, err
	}
	expected = new(0.0)
	for i := range t.cases {
		request := gate.Request{
			Diff: t.cases[i].Diff, Include: c.Include, Exclude: c.Exclude, MaxFindings: c.MaxFindings, Council: c.Council, Seed: c.Seed,
		}
		task, err := request.Task()
		if err != nil {
			return nil, usageError{fmt.Errorf("%s.diff: %w", t.cases[i].Name, readable(err))}
		}
		plan, err := t.engine.PrepareTask(task)
		if err != nil {
			return nil, usageError{fmt.Errorf("%s.diff: %w", t.cases[i].Name, readable(err))}
		}
		shape, err := json.Marshal([]any{plan.Stages, plan.Task, plan.Rules.Sampling, plan.Rules.ReviewSampling})
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(shape)
		key := hex.EncodeToString(sum[:])
		t.plans = append(t.plans, plan)
		t.keys = append(t.keys, key)
		t.bounds = append(t.bounds, 0)
		if line, ok := kept[key]; ok {
			t.cases[i].Report = line.Report
			continue
		}
		e := t.engine.Estimate(plan)
		if e.Upper == nil {
			return nil, usageError{fmt.Errorf("--trial: the most that a review can cost is not known. %s Set "+
				"LLM_COUNCIL_MAX_OUTPUT_TOKENS, such as 4000, and LLM_COUNCIL_PRICES for models without a price", e.Sentence)}
		}
		t.bounds[i] = max(e.Upper.Float64(), math.SmallestNonzeroFloat64)
		if e.Expected == nil || expected == nil {
			expected = nil
		} else {
			*expected += e.Expected.Float64()
		}
	}
	return expected, nil
}

// keptReports returns the lines of a trial file by their keys. It ignores a torn line.
func keptReports(path string) (map[string]trialLine, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	kept := map[string]trialLine{}
	for line := range bytes.Lines(data) {
		var l trialLine
		if json.Unmarshal(line, &l) == nil && l.Key != "" {
			kept[l.Key] = l
		}
	}
	return kept, nil
}

// run has the council review the diffs that have no report, and keeps the reports. It begins no review that might cost
// more than is left.
func (t *gateTrial) run(ctx context.Context, path string, limit float64) (err error) {
	if t.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.file.Close()) }()
	if _, err := t.file.WriteString("\n"); err != nil { // It ends a torn line.
		return err
	}
	t.left = limit
	var wg sync.WaitGroup
	room := make(chan struct{}, trialAtOnce)
	asked := true
	next := 0.0
	for i, bound := range t.bounds {
		if bound == 0 {
			continue
		}
		next = bound
		room <- struct{}{}
		if asked = t.hold(bound) && ctx.Err() == nil; !asked {
			wg.Wait() // Reviews that run now may cost less than their bounds.
			if asked = t.hold(bound) && ctx.Err() == nil; !asked {
				break
			}
		}
		wg.Go(func() {
			defer func() { <-room }()
			t.ask(ctx, i)
		})
	}
	wg.Wait()
	switch {
	case t.bad != nil:
		return t.bad
	case ctx.Err() != nil:
		return ctx.Err()
	case !asked:
		return stoppedError{fmt.Errorf("the run cost $%.2f, and the next diff may cost $%.2f, which is more than what is left of "+
			"--max-cost-usd; run the same command again to continue", t.cost, next)}
	}
	return nil
}

// hold reserves the money for a review. It returns false if too little is left, or after an error.
func (t *gateTrial) hold(bound float64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bad != nil || bound > t.left {
		return false
	}
	t.left -= bound
	return true
}

// ask has the council review one diff. An undecided report is not kept, so that the next run asks again.
func (t *gateTrial) ask(ctx context.Context, i int) {
	plan := t.plans[i]
	plan.MaxCostUSD = &t.bounds[i]
	session, err := t.engine.Run(ctx, plan, nil, nil)
	var report gate.Report
	if err == nil {
		report, err = gate.ReportOf(session)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += t.bounds[i]
	if cost := report.Usage; cost != nil && cost.CostUSD != nil {
		t.cost += *cost.CostUSD
		t.left -= *cost.CostUSD
	}
	if err == nil && report.Verdict != gate.Undecided {
		var line []byte
		if line, err = json.Marshal(trialLine{t.cases[i].Name, t.keys[i], report}); err == nil {
			_, err = t.file.Write(append(line, '\n'))
		}
	}
	if err != nil && t.bad == nil {
		t.bad = fmt.Errorf("%s.diff: %w", t.cases[i].Name, readable(err))
	}
	t.cases[i].Report = report
}

// report writes the result of the trial.
func (t *gateTrial) report(c gateCmd, std IO) error {
	result := gate.NewTrial(t.cases)
	text := []byte(result.Text())
	if c.Format == "json" {
		data, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return err
		}
		data = append(data, '\n')
		text = data
	}
	if c.Out != "" {
		return os.WriteFile(c.Out, text, 0o600)
	}
	_, err := std.Stdout.Write(text)
	return err
}
