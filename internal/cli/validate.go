package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/biassim"
	"github.com/councild/councild/internal/council"
)

type validateCmd struct {
	Replicates int     `help:"Data sets behind each line of the table." default:"2000" placeholder:"N"`
	Seed       uint64  `help:"Replays the data sets." default:"1" placeholder:"N"`
	Widen      float64 `help:"Widen each bound by this many binomial standard errors, which fewer replicates need." placeholder:"X"`
}

// Run prints the table of what the report makes of simulated records whose truth
// is known, and fails where a line is out of bounds.
func (c validateCmd) Run(ctx context.Context, std IO) error {
	if c.Replicates < 1 || c.Widen < 0 {
		return usageError{errors.New("--replicates takes a whole number above 0, --widen a number from 0 on")}
	}
	start := time.Now()
	bad, err := validate(ctx, std.Stdout, scenarios(20, 50, 100), c)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(std.Stderr, "took %s\n", time.Since(start).Round(time.Second))
	if bad > 0 {
		return fmt.Errorf("%d lines are out of bounds", bad)
	}
	return nil
}

// scenario is a kind of data set and what is counted on the reports over it.
type scenario struct {
	name     string
	sessions int
	own      bool // own answers are reviewed too
	order    council.Order
	effects  biassim.Effects
	lines    []line
}

// line is one line of the table: the share of trials that are hits, and between
// what bounds it must lie.
type line struct {
	what      string
	low, high float64
	count     counter
}

// counter returns hits and trials of one report, whose metrics and their members are
// given by name too.
type counter func(r bias.Report, metrics map[string]bias.Metric) (hits, trials int)

// planted is the member whose effects are planted where they are one member's.
const planted = 2

// power holds the least power of the single test at 20, 50 and 100 sessions.
type power map[int]float64

// scenarios returns those of the table, for each of the given numbers of sessions.
func scenarios(sizes ...int) []scenario {
	var all []scenario
	for _, n := range sizes {
		all = append(all,
			scenario{name: "no bias", sessions: n, own: true, order: council.OrderBalanced, lines: append(nullLines(n), ownLines()...)},
			scenario{name: "no bias", sessions: n, order: council.OrderBalanced, lines: nullLines(n)},
			plant("primacy +0.2", n, false, biassim.Effects{Position: []float64{0.2}}, "primacy", power{20: 0.52, 50: 0.91, 100: 1}, always(0.2)),
			plant("self +0.25", n, true, biassim.Effects{Self: 0.25}, "self_preference", power{20: 0.70, 50: 0.98, 100: 1}, always(0.25)),
			plant("family +0.3", n, true, biassim.Effects{Family: 0.3}, "family_affinity", power{20: 0.41, 50: 0.80, 100: 0.97}, always(0.3)),
			plant("harshness -0.5", n, false, biassim.Effects{Harshness: one(-0.5)}, "harshness|", power{20: 0.81, 50: 1, 100: 1}, relative(-0.5)),
			plant("length slope +0.4", n, false, biassim.Effects{LengthSlope: one(0.4)}, "length_slope_deviation|", power{20: 0.50, 50: 0.93, 100: 1}, relative(0.4)),
			plant("anchoring -0.15", n, true, biassim.Effects{Anchoring: -0.15}, "anchoring", power{20: 0.53, 50: 0.91, 100: 0.99}, nil),
			plant("drift -0.8", n, false, biassim.Effects{Drift: one(-0.8)}, "drift|", power{20: 0.23, 50: 0.55, 100: 0.92}, relative(-0.8)),
		)
	}
	n := sizes[len(sizes)/2]
	return append(all,
		plant("length +0.35", n, false, biassim.Effects{Length: 0.35}, "length_points_per_doubling", nil, always(0.35)),
		plant("pair +0.5", n, false, biassim.Effects{Pair: map[[2]int]float64{{planted, 3}: 0.5}}, "pair|anthropic/m2>google/m3", nil, always(0.5)),
		scenario{name: "no bias", sessions: n, order: council.OrderPerReviewer, lines: nullLines(n)},
		scenario{name: "no bias", sessions: n, order: council.OrderShared, lines: append(flagLines(n), line{"position judged", 0, 0, judged("position")})},
		plant("anchoring -0.15", n, false, biassim.Effects{Anchoring: -0.15}, "anchoring", power{20: 0.42, 50: 0.80}, nil), // as measured here
	)
}

// nullLines are the lines of data without a bias.
func nullLines(sessions int) []line {
	const low, high = 0.03, 0.07
	return append([]line{
		{"M1 position, all places", low, high, rejected("position")},
		{"M1 primacy", low, high, rejected("primacy")},
		{"M2 harshness, each reviewer", low, high, rejected("harshness|")},
		{"M4 length", low, high, rejected("length_points_per_doubling")},
		{"M5 length slope, each reviewer", low, high, rejected("length_slope_deviation|")},
		{"M6 pairs", 0, high, rejected("pair|")},
		{"anchoring", low, high, rejected("anchoring")},
		{"drift, each reviewer", low, high, rejected("drift|")},
		{"change point, each reviewer", 0, high, changed},
		{"reports with an anomaly", 0, high, odd},
	}, flagLines(sessions)...)
}

// flagLines are those of the verdicts.
func flagLines(sessions int) []line {
	delta := line{"reports with a verdict of bias", 0, 0.05, flagged(true)}
	if sessions < 50 {
		delta.high = 0.075
	}
	return []line{{"reports with a significant headline", 0, 0.075, flagged(false)}, delta}
}

// ownLines are those that take own answers.
func ownLines() []line {
	return []line{
		{"M3 self", 0.03, 0.07, rejected("self_preference")},
		{"M3 self, each reviewer", 0.03, 0.07, rejected("self_preference|")},
		{"M3 family", 0.03, 0.07, rejected("family_affinity")},
	}
}

// plant returns the scenario of one planted bias, whose metrics are to be found
// with some power, and whose intervals are to hold the truth by subject.
func plant(name string, sessions int, own bool, effects biassim.Effects, metric string, p power, truth func(subject string) float64) scenario {
	s := scenario{name: name, sessions: sessions, own: own, order: council.OrderBalanced, effects: effects}
	if p != nil {
		found := metric
		if strings.HasSuffix(metric, "|") {
			found += biassim.Members()[planted]
		}
		s.lines = append(s.lines, line{"power", p[sessions] - 0.05, 1, rejected(found)})
	}
	if truth != nil {
		s.lines = append(s.lines, line{"coverage", 0.93, 0.97, covered(metric, truth)})
	}
	return s
}

// one returns an effect of one reviewer.
func one(points float64) []float64 {
	effects := make([]float64, planted+1)
	effects[planted] = points
	return effects
}

// always is the truth about a metric that has no members.
func always(points float64) func(string) float64 {
	return func(string) float64 { return points }
}

// relative is the truth about a reviewer beside the mean of all, one of whom has an
// effect.
func relative(points float64) func(string) float64 {
	members := biassim.Members()
	mean := points / float64(len(members))
	return func(subject string) float64 {
		if subject == members[planted] {
			return points - mean
		}
		return -mean
	}
}

// alpha is the level of the single test whose rates are counted.
const alpha = 0.05

// named returns the metrics of a name, or of all that begin with it when it ends
// in a bar.
func named(metrics map[string]bias.Metric, name string) []bias.Metric {
	var found []bias.Metric
	for n, m := range metrics {
		if n == name || strings.HasSuffix(name, "|") && strings.HasPrefix(n, name) {
			found = append(found, m)
		}
	}
	return found
}

// rejected counts the metrics whose own test rejects at alpha.
func rejected(name string) counter {
	return func(_ bias.Report, metrics map[string]bias.Metric) (hits, trials int) {
		for _, m := range named(metrics, name) {
			if m.PValue != nil {
				trials++
				if *m.PValue < alpha {
					hits++
				}
			}
		}
		return hits, trials
	}
}

// covered counts the metrics whose interval holds the truth about their subject.
func covered(name string, truth func(subject string) float64) counter {
	return func(_ bias.Report, metrics map[string]bias.Metric) (hits, trials int) {
		for _, m := range named(metrics, name) {
			if m.CILower != nil && m.CIUpper != nil {
				trials++
				if t := truth(m.Subject); *m.CILower <= t && t <= *m.CIUpper {
					hits++
				}
			}
		}
		return hits, trials
	}
}

// changed counts the change points whose own test rejects at alpha.
func changed(r bias.Report, _ map[string]bias.Metric) (hits, trials int) {
	for _, c := range r.ChangePoints {
		if c.PValue < alpha {
			hits++
		}
	}
	return hits, len(r.ChangePoints)
}

// odd counts reports with an anomaly, adjusted over all cells.
func odd(r bias.Report, _ map[string]bias.Metric) (hits, trials int) {
	return min(1, len(r.Anomalies.Found)), min(1, r.Anomalies.Cells)
}

// judged counts reports whose metric of that name has a figure to be judged.
func judged(name string) counter {
	return func(_ bias.Report, metrics map[string]bias.Metric) (hits, trials int) {
		if m, ok := metrics[name]; !ok || *m.Verdict != bias.VerdictNotIdentified {
			hits = 1
		}
		return hits, 1
	}
}

// flagged counts reports with a headline that is significant after adjustment, or
// with the rule of the least effect one whose verdict says so.
func flagged(delta bool) counter {
	return func(r bias.Report, _ map[string]bias.Metric) (hits, trials int) {
		level := r.Levels.BelowHigh
		if r.Window.Sessions >= 50 {
			level = r.Levels.High
		}
		for _, m := range r.Metrics {
			significant := m.QValue != nil && *m.QValue < level
			if delta {
				significant = m.Verdict != nil && (*m.Verdict == bias.VerdictBias || *m.Verdict == bias.VerdictAssociation)
			}
			if significant {
				return 1, 1
			}
		}
		return 0, 1
	}
}

// validate runs the scenarios, prints the table, and returns how many lines are
// out of bounds.
func validate(ctx context.Context, w io.Writer, all []scenario, c validateCmd) (bad int, err error) {
	for i, s := range all {
		hits, trials, err := s.run(ctx, rand.New(rand.NewPCG(c.Seed, uint64(i))), c.Replicates) //nolint:gosec // a simulation is to be repeatable, not secret
		if err != nil {
			return bad, err
		}
		if _, err := fmt.Fprintln(w, s.heading(c.Replicates)); err != nil {
			return bad, err
		}
		for k, l := range s.lines {
			share := float64(hits[k]) / float64(trials[k]) // NaN without a trial: out of bounds
			widened := func(bound float64) float64 { return c.Widen * math.Sqrt(bound*(1-bound)/float64(c.Replicates)) }
			low, high := max(0, l.low-widened(l.low)), min(1, l.high+widened(l.high))
			verdict := "ok"
			if !(low <= share && share <= high) {
				verdict = "OUT OF BOUNDS"
				bad++
			}
			if _, err := fmt.Fprintf(w, "  %-44s %6.1f %%  [%0.1f, %0.1f]  %s\n", l.what, 100*share, 100*low, 100*high, verdict); err != nil {
				return bad, err
			}
		}
	}
	return bad, nil
}

func (s scenario) heading(replicates int) string {
	own := "hidden"
	if s.own {
		own = "shown"
	}
	return fmt.Sprintf("%s: %d sessions, %s orders, own answers %s, %d data sets", s.name, s.sessions, s.order, own, replicates)
}

// run adds up what the lines count over the replicates, on all processors.
func (s scenario) run(ctx context.Context, draws *rand.Rand, replicates int) (hits, trials []int, err error) {
	seeds := make(chan [2]uint64, replicates)
	for range replicates {
		seeds <- [2]uint64{draws.Uint64(), draws.Uint64()}
	}
	close(seeds)
	hits, trials = make([]int, len(s.lines)), make([]int, len(s.lines))
	var mu sync.Mutex // guards hits and trials
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range seeds {
				if ctx.Err() != nil {
					return
				}
				r := s.report(seed)
				metrics := flatten(r.Metrics)
				mu.Lock()
				for k, l := range s.lines {
					h, t := l.count(r, metrics)
					hits[k] += h
					trials[k] += t
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return hits, trials, ctx.Err()
}

// report returns the report over one data set.
func (s scenario) report(seed [2]uint64) bias.Report {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	collector := bias.NewCollector(bias.Options{Now: start.AddDate(1, 0, 0)})
	for _, record := range biassim.Generate(biassim.Options{
		Seed: seed[0], Sessions: s.sessions, Start: start, Order: s.order, Effects: s.effects,
		Slates: func(session int) []council.Slate {
			return anonymize.Draw(anonymize.Options{
				Seed: int64(seed[1]>>16) + int64(session), Order: s.order, Authors: biassim.Members(), Reviewers: biassim.Members(), ShowOwn: s.own,
			}).Reviewer
		},
	}) {
		collector.Add(record)
	}
	return collector.Report()
}

// flatten returns the metrics and their members by name.
func flatten(metrics []bias.Metric) map[string]bias.Metric {
	flat := map[string]bias.Metric{}
	for _, m := range metrics {
		flat[m.Name] = m
		maps.Insert(flat, maps.All(flatten(m.Members)))
	}
	return flat
}
