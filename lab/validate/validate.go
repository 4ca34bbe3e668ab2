package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
)

// Options are the settings of a run.
type Options struct {
	// Replicates is the number of data sets of most scenarios. It is above 0.
	Replicates int
	// Seed determines the data sets.
	Seed uint64
	// Widen makes every bound wider by at least this many binomial standard errors. It is 0 or more.
	Widen float64
}

// Figure is one line of a scenario, with its counts. [Print] prints it.
type Figure struct {
	line
	hits, trials int
	low, high    float64 // the bounds of the line, widened
}

// ok reports whether the share of hits is within bounds. Without trials, the share is NaN, which is within bounds only
// if the line allows it.
func (f Figure) ok() bool {
	share := float64(f.hits) / float64(f.trials)
	return f.trials == 0 && f.untried || f.low <= share && share <= f.high
}

// widen sets the bounds of the share: the bounds of the line, widened as o says.
func (f *Figure) widen(o Options) {
	widening := func(bound float64) float64 {
		return max(f.errors, o.Widen) * math.Sqrt(bound*(1-bound)/float64(o.Replicates))
	}
	f.low = max(0, f.line.low-widening(f.line.low))
	f.high = min(1, f.line.high+widening(f.line.high))
}

// String returns the share in percent, with a mark if it is out of bounds.
func (f Figure) String() string {
	share := 100 * float64(f.hits) / float64(f.trials)
	switch {
	case !f.ok():
		return fmt.Sprintf("%.1f!", share)
	case f.trials == 0:
		return ". "
	default:
		return fmt.Sprintf("%.1f ", share)
	}
}

// Run simulates scenarios and returns their figures. It writes a line to progress after each scenario. Its error is the
// error of ctx or of progress.
func Run(ctx context.Context, progress io.Writer, scenarios []Scenario, o Options) ([]Figure, error) {
	var figures []Figure
	for k, s := range scenarios {
		start := time.Now()
		replicates := o.Replicates
		if s.percent > 0 {
			replicates = max(1, replicates*s.percent/100)
		}
		done, err := s.run(ctx, o.Seed, replicates)
		if err != nil {
			return nil, err
		}
		var shares strings.Builder
		for i := range done {
			f := &done[i]
			f.widen(Options{Replicates: replicates, Widen: o.Widen})
			shares.WriteString(" " + strings.TrimSpace(f.String()))
		}
		took := time.Since(start).Round(100 * time.Millisecond)
		_, err = fmt.Fprintf(progress, "%d/%d %s: %d data sets, %s:%s\n",
			k+1, len(scenarios), s.name(), replicates, took, shares.String())
		if err != nil {
			return nil, err
		}
		figures = append(figures, done...)
	}
	return figures, nil
}

// run adds up what the lines count over the replicates.
func (s Scenario) run(ctx context.Context, seed uint64, replicates int) ([]Figure, error) {
	// The data sets of a scenario follow from its name, whatever other scenarios run.
	name := fnv.New64a()
	_, _ = io.WriteString(name, s.name())
	draws := rand.New(rand.NewPCG(seed, name.Sum64())) //nolint:gosec // a simulation is to be repeatable, not secret
	if s.seen != nil {
		if err := s.plant(ctx, draws, replicates); err != nil {
			return nil, err
		}
	}
	figures := make([]Figure, len(s.lines))
	for k, l := range s.lines {
		figures[k].line = l
	}
	return figures, s.each(ctx, draws, replicates, func(r bias.Report) {
		metrics := flatten(r.Metrics)
		for k := range figures {
			hits, trials := figures[k].count(r, metrics)
			figures[k].hits += hits
			figures[k].trials += trials
		}
	})
}

// plant sets the effects to the smallest effect that reports without a bias print as detectable. This effect is the
// mean over a tenth as many reports. For a figure that shrinks, all replicates are used, because the error of the
// figure enters the effect in full.
func (s *Scenario) plant(ctx context.Context, draws *rand.Rand, replicates int) error {
	mean := func(replicates int, of func(bias.Metric) *float64) (float64, error) {
		sum := 0.0
		n := 0
		err := s.each(ctx, draws, replicates, func(r bias.Report) {
			if x := of(flatten(r.Metrics)[s.seen.headline]); x != nil {
				sum += *x
				n++
			}
		})
		return math.Abs(sum) / float64(max(1, n)), err
	}
	effect, err := mean(max(20, replicates/10), func(m bias.Metric) *float64 { return m.MinimumDetectableEffect })
	if err != nil {
		return err
	}
	s.effects = s.seen.effects(effect)
	if s.seen.shrinks {
		figure, err := mean(replicates, func(m bias.Metric) *float64 { return m.PointEstimate })
		if err != nil {
			return err
		}
		s.effects = s.seen.effects(effect * effect / figure)
	}
	return nil
}

// each computes the reports over the replicates on all processors. It calls take for each report, one at a time.
func (s Scenario) each(ctx context.Context, draws *rand.Rand, replicates int, take func(bias.Report)) error {
	var mu sync.Mutex // guards what take changes
	return forEach(ctx, draws, replicates, func(seed uint64) {
		r := s.report(ctx, seed)
		mu.Lock()
		defer mu.Unlock()
		take(r)
	})
}

// forEach calls simulate for as many seeds as there are replicates, on all processors at once.
func forEach(ctx context.Context, draws *rand.Rand, replicates int, simulate func(seed uint64)) error {
	seeds := make(chan uint64, replicates)
	for range replicates {
		seeds <- draws.Uint64()
	}
	close(seeds)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range seeds {
				if ctx.Err() != nil {
					return
				}
				simulate(seed)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// report returns the report over one data set.
func (s Scenario) report(ctx context.Context, seed uint64) bias.Report {
	collector := newCollector()
	for _, record := range s.records(seed) {
		collector.Add(record)
	}
	return collector.Report(ctx)
}

// start is when a data set begins.
func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func newCollector() *bias.Collector {
	return bias.NewCollector(bias.Options{Now: start().AddDate(2, 0, 0)})
}

// records returns one data set.
func (s Scenario) records(seed uint64) []council.BiasMetricRecord {
	if s.pairs != nil {
		pairs := *s.pairs
		pairs.Seed = seed
		pairs.Start = start()
		pairs.Questions = s.sessions / 2
		return pairs.Generate()
	}
	return biassim.Generate(biassim.Options{
		Seed: seed, Sessions: s.sessions, Start: start(), Members: biassim.Council(s.members), Outside: s.outside,
		Slates: s.slates(seed), Order: cmp.Or(s.order, council.OrderBalanced), Effects: s.effects, World: s.world,
	})
}

// awayFor is how many sessions a member that comes and goes is away at a time.
const awayFor = 10

// slates returns the slates of each session of a data set.
func (s Scenario) slates(seed uint64) func(session int) []council.Slate {
	members := biassim.Council(s.members)
	reviewers := slices.Concat(members, s.outside)
	if s.joins > 0 {
		last := s.members - 1
		always := s
		always.joins = 0
		return biassim.Late(always.slates(seed), last, members[last], s.joins)
	}
	away := rand.New(rand.NewPCG(seed, 100)).Perm(s.members) //nolint:gosec // see run
	return func(session int) []council.Slate {
		o := anonymize.Options{Order: s.order, Authors: members, Reviewers: reviewers, ShowOwn: s.own}
		o.Seed = int64(seed>>16) + int64(session)
		if s.world.Frozen { // a probe shows the same answers in one order and its reverse
			o.Seed -= int64(session % s.world.Runs)
		}
		gone := -1
		if s.leaving {
			gone = away[session/awayFor%s.members]
			o.Authors = slices.Delete(slices.Clone(members), gone, gone+1)
			o.Reviewers = o.Authors
		}
		slates := anonymize.Draw(o).Reviewer
		if gone >= 0 {
			slates = slices.Insert(slates, gone, council.Slate{})
		}
		if s.seldom > 0 && session%s.seldom > 0 {
			alone := s.alone || session%2 == 0
			for i := range slates {
				if (i == 0) != alone {
					slates[i] = council.Slate{}
				}
			}
		}
		if s.world.Frozen && session%s.world.Runs%2 == 1 {
			for _, slate := range slates {
				slices.Reverse(slate)
			}
		}
		return slates
	}
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

// Print writes the figures as tables and returns how many are out of bounds. Tables, rows and columns come in the
// order in which they first occur.
func Print(w io.Writer, figures []Figure) (outOfBounds int, err error) {
	var text strings.Builder
	for _, table := range distinct(figures, func(f Figure) string { return f.table }) {
		inTable := slices.DeleteFunc(slices.Clone(figures), func(f Figure) bool { return f.table != table })
		columns := distinct(inTable, func(f Figure) string { return f.column })
		width := func(column string) int { return max(7, len(column)+2) }
		labels := 0
		for _, f := range inTable {
			labels = max(labels, len(f.row))
		}
		text.WriteString(table + "\n" + strings.Repeat(" ", labels))
		for _, column := range columns {
			fmt.Fprintf(&text, " %*s ", width(column)-2, column)
		}
		text.WriteString(" bounds\n")
		for _, row := range distinct(inTable, func(f Figure) string { return f.row }) {
			fmt.Fprintf(&text, "%-*s", labels, row)
			var inRow []Figure
			for _, column := range columns {
				k := slices.IndexFunc(inTable, func(f Figure) bool { return f.row == row && f.column == column })
				if k < 0 {
					text.WriteString(strings.Repeat(" ", width(column)))
					continue
				}
				inRow = append(inRow, inTable[k])
				fmt.Fprintf(&text, "%*s", width(column), inTable[k])
				if !inTable[k].ok() {
					outOfBounds++
				}
			}
			text.WriteString(" " + bounds(inRow) + "\n")
		}
		text.WriteString("\n")
	}
	_, err = io.WriteString(w, strings.TrimSuffix(text.String(), "\n"))
	return outOfBounds, err
}

// bounds returns the bounds of a row. If they differ by column, it returns all of them, one after another.
func bounds(row []Figure) string {
	all := distinct(row, func(f Figure) string {
		switch low, high := 100*f.line.low, 100*f.line.high; {
		case low == 0 && high == 100:
			return "-"
		case low == 0:
			return fmt.Sprintf("<= %.1f", high)
		case high == 100:
			return fmt.Sprintf(">= %.1f", low)
		default:
			return fmt.Sprintf("%.1f to %.1f", low, high)
		}
	})
	return strings.Join(all, ", ")
}

// distinct returns the texts of the figures, each once, in the order of the figures.
func distinct(figures []Figure, text func(Figure) string) []string {
	var all []string
	for _, f := range figures {
		if text := text(f); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
