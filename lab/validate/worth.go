package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/testkit/biassim"
	"github.com/councild/councild/internal/worth"
)

// The tables of comparisons.
const (
	tableNoGain = "Comparisons with the verdict pays where the council is as good as the best of its members, %. Columns: questions."
	tableWorlds = "The same in worlds that differ from the model, one comparator that is as good. Columns: questions."
	tableGain   = "Verdicts on a council that is better by so much, %, beside the shares that were expected of them. Columns: questions."
	tableShown  = "Comparisons with the verdict pays where the council is better by the gain that can be shown, %. Columns: questions."
	tableLost   = "Comparisons with the verdict does_not_pay where the council is better by the margin, %. Columns: questions."
	tableCover  = "95 % intervals that hold the planted difference, %. Columns: questions."
	tableSeats  = "95 % intervals that hold the number of effective seats, four of .7, %. Columns: questions."
	tablePeople = "95 % intervals that hold the share of people who prefer the synthesis (.6), with 300 sessions " +
		"judged by reviewers alone, %. Columns: labels."
)

const (
	margin = 0.05
	common = 0.6 // how much of the variance of the errors is common to all arms, 0 to 1
)

// Comparison is a kind of simulated comparison between a council and other arms, with what is counted. [RunWorth]
// simulates it.
type Comparison struct {
	line
	// world has the council as its first arm. Ranked and ensemble follow if there are any, and then members.
	world biassim.Graded
	few   int // number of comparators that are not members
	count func(c Comparison, questions []biassim.GradedQuestion) (hit bool, tried bool)
}

func (c Comparison) name() string {
	return fmt.Sprintf("worth, %s, %s, %s questions", c.table, c.row, c.column)
}

// RunWorth simulates comparisons and returns how often the verdicts and intervals are right. It writes a line to
// progress after each kind of comparison. Its error is the error of ctx or of progress.
func RunWorth(ctx context.Context, progress io.Writer, all []Comparison, o Options) ([]Figure, error) {
	figures := make([]Figure, 0, len(all))
	for k, c := range all {
		start := time.Now()
		f, err := c.run(ctx, o)
		if err != nil {
			return nil, err
		}
		took := time.Since(start).Round(100 * time.Millisecond)
		text := strings.TrimSpace(f.String())
		_, err = fmt.Fprintf(progress, "%d/%d %s, %s: %d data sets, %s: %s\n",
			k+1, len(all), c.row, c.column, o.Replicates, took, text)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// run counts over the data sets of a kind of comparison, which follow from its name.
func (c Comparison) run(ctx context.Context, o Options) (Figure, error) {
	name := fnv.New64a()
	_, _ = io.WriteString(name, c.name())
	draws := rand.New(rand.NewPCG(o.Seed, name.Sum64())) //nolint:gosec // a simulation is to be repeatable, not secret
	f := Figure{line: c.line}
	var mu sync.Mutex // guards f
	err := forEach(ctx, draws, o.Replicates, func(seed uint64) {
		world := c.world
		world.Seed = seed
		hit, tried := c.count(c, world.Generate())
		mu.Lock()
		defer mu.Unlock()
		if tried {
			f.trials++
		}
		if hit {
			f.hits++
		}
	})
	f.widen(o)
	return f, err
}

// Comparisons returns the kinds of comparisons whose name matches, in the order in which they run.
func Comparisons(only *regexp.Regexp) []Comparison {
	return slices.DeleteFunc(comparisons(), func(c Comparison) bool { return !only.MatchString(c.name()) })
}

// decided counts comparisons with a verdict.
func decided(want worth.Verdict) func(Comparison, []biassim.GradedQuestion) (bool, bool) {
	return func(c Comparison, questions []biassim.GradedQuestion) (bool, bool) {
		return c.compare(questions).Verdict == want, true
	}
}

// compare compares the first arm with the others.
func (c Comparison) compare(graded []biassim.GradedQuestion) worth.Report {
	names := append(make([]string, 0, len(c.world.Accuracy)), "council")
	plan := worth.Design{Treatment: "council", Margin: margin, Seed: c.world.Seed}
	for i := range c.world.Accuracy[1:] {
		name := "arm" + strconv.Itoa(i)
		names = append(names, name)
		if i < c.few {
			plan.Comparators = append(plan.Comparators, name)
		} else {
			plan.Members = append(plan.Members, name)
		}
	}
	questions := make([]worth.Question, len(graded))
	for i, g := range graded {
		questions[i] = worth.Question{Cluster: g.Cluster, Score: make(map[string]float64, len(names))}
		for a, name := range names {
			if score := g.Score[a]; !math.IsNaN(score) {
				questions[i].Score[name] = score
			}
		}
	}
	return worth.Compare(questions, plan)
}

// shown is the smallest gain over the first comparator that the questions can show. The share of questions at which the
// scores differ depends on that gain in turn.
func (c Comparison) shown() float64 {
	gain := 0.0
	least := c.world.Accuracy[1]
	rivals := c.few + min(1, len(c.world.Accuracy)-1-c.few)
	for range 50 {
		best := least + gain
		both := best*least + c.world.Phi(best, least)*math.Sqrt(best*(1-best)*least*(1-least))
		gain = worth.MDE80(best+least-2*both, c.world.Questions, margin, rivals)
	}
	return gain
}

// covers counts intervals that hold the difference of the first two accuracies. It leaves out data sets with fewer than
// 20 questions at which the arms differ, because the interval is wider there.
func covers(c Comparison, questions []biassim.GradedQuestion) (hit, tried bool) {
	pairs := make([]worth.Pair, len(questions))
	for i, q := range questions {
		pairs[i] = worth.Pair{Cluster: q.Cluster, D: q.Score[0] - q.Score[1]}
	}
	interval := worth.Paired(pairs)
	truth := c.world.Accuracy[0] - c.world.Accuracy[1]
	tried = interval.Discordance*float64(interval.N) >= 20
	return tried && interval.CI95[0] <= truth && truth <= interval.CI95[1], tried
}

// unlabelled is how many sessions only reviewers judge.
const unlabelled = 300

// coversPeople counts intervals that hold the preference of people. The first arm stands for people, and the other arms
// are reviewers.
func coversPeople(c Comparison, sessions []biassim.GradedQuestion) (hit, tried bool) {
	var labels, judged, others []float64
	for i, s := range sessions {
		judge := 0.0
		for _, choice := range s.Score[1:] {
			judge += choice / float64(len(s.Score)-1)
		}
		if i < unlabelled {
			others = append(others, judge)
			continue
		}
		labels = append(labels, s.Score[0])
		judged = append(judged, judge)
	}
	ci := worth.PredictionPowered(labels, judged, others).CI95
	truth := c.world.Accuracy[0]
	return ci[0] <= truth && truth <= ci[1], true
}

// coversSeats counts intervals that hold the number of effective seats.
func coversSeats(c Comparison, graded []biassim.GradedQuestion) (hit, tried bool) {
	questions := make([]worth.SeatQuestion, len(graded))
	for i, g := range graded {
		questions[i].Cluster = g.Cluster
		for _, score := range g.Score {
			questions[i].Wrong = append(questions[i].Wrong, score == 0)
		}
	}
	seats := len(c.world.Accuracy)
	e := worth.Seats(questions, seats).Effective
	if e.Lower == nil {
		return false, false
	}
	truth := float64(seats) / (1 + float64(seats-1)*c.world.Phi(c.world.Accuracy[0], c.world.Accuracy[1]))
	return *e.Lower <= truth && truth <= *e.Upper, true
}

// missing is about missing scores. It takes away a tenth of the scores of the other arms, all at questions where the
// council is right. It then counts verdicts that the council pays.
func missing(c Comparison, questions []biassim.GradedQuestion) (hit, tried bool) {
	for i, q := range questions {
		for a := range q.Score[1:] {
			if q.Score[0] == 1 && (i+a)%7 == 0 {
				q.Score[1+a] = math.NaN()
			}
		}
	}
	return c.compare(questions).Verdict == worth.Pays, true
}

// comparisons returns all kinds, in the order in which they run.
func comparisons() []Comparison {
	var all kinds
	all.noGain()
	all.otherWorlds()
	all.gains()
	all.shownGains()
	all.losses()
	all.intervals()
	all.people()
	return all
}

// kinds are the kinds of comparisons so far.
type kinds []Comparison

func (all *kinds) add(c Comparison) {
	c.errors = max(c.errors, 3)
	if c.world.Common == 0 {
		c.world.Common = common
	}
	c.column = strconv.Itoa(c.world.Questions)
	*all = append(*all, c)
}

// noGain is called to add councils that are as good as their best member.
func (all *kinds) noGain() {
	row := func(accuracy []float64) string {
		texts := make([]string, len(accuracy))
		for i, a := range accuracy {
			texts[i] = strings.TrimPrefix(strconv.FormatFloat(a, 'f', 2, 64), "0")
		}
		return strings.Join(texts, " ")
	}
	for _, members := range [][]float64{{0.7, 0.7, 0.7, 0.7}, {0.75, 0.7, 0.7, 0.7}, {0.72, 0.7, 0.7, 0.7}, {0.75, 0.72, 0.65, 0.6}} {
		for _, n := range []int{50, 100, 200, 400, 1000} {
			all.add(Comparison{
				line:  line{table: tableNoGain, row: "members " + row(members), high: 0.05},
				world: biassim.Graded{Questions: n, Accuracy: slices.Concat(members[:1], members)},
				count: decided(worth.Pays),
			})
		}
	}
}

// otherWorlds is called to add worlds that differ from the model.
func (all *kinds) otherWorlds() {
	equal := []float64{0.7, 0.7}
	for _, w := range []struct {
		name  string
		world biassim.Graded
		count func(Comparison, []biassim.GradedQuestion) (bool, bool)
	}{
		{"independent errors", biassim.Graded{Common: 1e-9}, nil},
		{"nearly the same errors", biassim.Graded{Common: 0.97}, nil},
		{"a few questions far harder than the rest", biassim.Graded{HeavyTails: true}, nil},
		{"the council has its neighbour's answer at 9 of 10", biassim.Graded{Copies: 0.9}, nil},
		{"scores between 0 and 1", biassim.Graded{Partial: true}, nil},
		{"40 unequal groups", biassim.Graded{Groups: 40, Grouped: 0.5}, nil},
		{"40 groups, one with half of the questions", biassim.Graded{Groups: 40, Grouped: 0.3, Largest: 0.5}, nil},
		{"others fail where the council is right", biassim.Graded{}, missing},
	} {
		for _, n := range []int{100, 400} {
			w.world.Questions = n
			w.world.Accuracy = equal
			count := w.count
			if count == nil {
				count = decided(worth.Pays)
			}
			all.add(Comparison{
				line:  line{table: tableWorlds, row: w.name, high: 0.05},
				world: w.world,
				few:   1,
				count: count,
			})
		}
	}
}

// several is the list of the accuracies of the arms ranked and ensemble, and of four members.
func several() []float64 { return []float64{0.7, 0.7, 0.7, 0.65, 0.65, 0.6} }

// gains is called to add councils that are better by a number of points.
func (all *kinds) gains() {
	for _, kind := range []struct {
		row    string
		gain   float64
		want   worth.Verdict
		others []float64
		few    int
		shares [4]float64
	}{
		{"pays, gain 0, one comparator", 0, worth.Pays, []float64{0.7}, 1, [4]float64{0.04, 0.04, 0.04, 0.03}},
		{"pays, gain 0, best and two more", 0, worth.Pays, several(), 2, [4]float64{}},
		{"pays, +10 points, one comparator", 0.1, worth.Pays, []float64{0.7}, 1, [4]float64{0.36, 0.64, 0.91, 0.98}},
		{"pays, +10 points, best and two more", 0.1, worth.Pays, several(), 2, [4]float64{0.12, 0.39, 0.76, 0.95}},
		{"pays, +15 points, one comparator", 0.15, worth.Pays, []float64{0.7}, 1, [4]float64{0.68, 0.93, 1, 1}},
		{"pays, +15 points, best and two more", 0.15, worth.Pays, several(), 2, [4]float64{0.40, 0.83, 0.99, 1}},
		{"does_not_pay, gain 0, one comparator", 0, worth.DoesNotPay, []float64{0.7}, 1, [4]float64{0.15, 0.25, 0.40, 0.63}},
		{"does_not_pay, gain 0, best and two more", 0, worth.DoesNotPay, several(), 2, [4]float64{0.10, 0.15, 0.33, 0.57}},
	} {
		for i, n := range []int{50, 100, 200, 400} {
			const rounding = 0.01
			all.add(Comparison{
				line: line{
					table: tableGain,
					row:   kind.row,
					low:   max(0, kind.shares[i]-rounding),
					high:  min(1, kind.shares[i]+rounding),
				},
				world: biassim.Graded{Questions: n, Accuracy: append([]float64{0.7 + kind.gain}, kind.others...)},
				few:   kind.few, count: decided(kind.want),
			})
		}
	}
}

// shownGains is called to add councils that are better by the gain that can be shown.
func (all *kinds) shownGains() {
	for _, kind := range []struct {
		row    string
		others []float64
		few    int
	}{
		{"pays, 80 % promised, one comparator", []float64{0.7}, 1},
		{"pays, 80 % promised, best and two more", several(), 2},
	} {
		for _, n := range []int{100, 200, 400, 1000} {
			world := biassim.Graded{Questions: n, Accuracy: append([]float64{0}, kind.others...), Common: common}
			c := Comparison{
				line:  line{table: tableShown, row: kind.row, low: 0.78, high: 0.82},
				world: world,
				few:   kind.few,
				count: decided(worth.Pays),
			}
			c.world.Accuracy[0] = kind.others[0] + c.shown()
			all.add(c)
		}
	}
}

// losses is called to add councils that are better by the margin. Few of these councils may get the verdict
// does_not_pay.
func (all *kinds) losses() {
	for _, n := range []int{50, 100, 200, 400} {
		all.add(Comparison{
			line:  line{table: tableLost, row: "one comparator", high: 0.06},
			world: biassim.Graded{Questions: n, Accuracy: []float64{0.75, 0.7}},
			few:   1,
			count: decided(worth.DoesNotPay),
		})
		all.add(Comparison{
			line:  line{table: tableLost, row: "best of four, ranked and ensemble", high: 0.06},
			world: biassim.Graded{Questions: n, Accuracy: []float64{0.75, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7}},
			few:   2,
			count: decided(worth.DoesNotPay),
		})
	}
}

// intervals is called to add intervals of differences and of effective seats.
func (all *kinds) intervals() {
	cover := func(row string, w biassim.Graded) {
		all.add(Comparison{line: line{table: tableCover, row: row, low: 0.93, high: 0.97}, world: w, count: covers})
	}
	for _, n := range []int{100, 200, 400, 1000} {
		cover(".80 and .70", biassim.Graded{Questions: n, Accuracy: []float64{0.8, 0.7}})
		cover(".95 and .60", biassim.Graded{Questions: n, Accuracy: []float64{0.95, 0.6}})
		cover("15 unequal groups", biassim.Graded{
			Questions: n,
			Accuracy:  []float64{0.8, 0.7},
			Groups:    15,
			Grouped:   0.3,
		})
		cover("60 unequal groups", biassim.Graded{
			Questions: n,
			Accuracy:  []float64{0.8, 0.7},
			Groups:    60,
			Grouped:   0.3,
		})
		all.add(Comparison{
			line:  line{table: tableSeats, row: "intervals", low: 0.93, high: 0.97},
			world: biassim.Graded{Questions: n, Accuracy: []float64{0.7, 0.7, 0.7, 0.7}}, count: coversSeats,
		})
	}
}

// people is called to add intervals of what people prefer.
func (all *kinds) people() {
	for _, people := range []struct {
		row       string
		reviewers []float64
	}{
		{"one reviewer", []float64{0.6}},
		{"three reviewers", []float64{0.6, 0.6, 0.6}},
		{"three reviewers who like it better", []float64{0.75, 0.8, 0.85}},
		{"three reviewers who like it less", []float64{0.3, 0.4, 0.5}},
	} {
		for _, labels := range []int{50, 100, 400} {
			all.add(Comparison{
				line:  line{table: tablePeople, row: people.row, low: 0.93, high: 0.97},
				world: biassim.Graded{Questions: unlabelled + labels, Accuracy: append([]float64{0.6}, people.reviewers...)},
				count: coversPeople,
			})
			(*all)[len(*all)-1].column = strconv.Itoa(labels)
		}
	}
}
