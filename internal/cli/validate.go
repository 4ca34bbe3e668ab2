package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/biassim"
	"github.com/councild/councild/internal/council"
)

type validateCmd struct {
	Replicates int     `help:"Data sets behind most figures." default:"1000" placeholder:"N"`
	Seed       uint64  `help:"Replays the data sets." default:"1" placeholder:"N"`
	Widen      float64 `help:"Widen every bound by at least this many binomial standard errors." placeholder:"X"`
	Only       string  `help:"Run the scenarios whose name matches, such as '^ceiling'." placeholder:"REGEXP"`
}

// Run prints the tables of what the report makes of simulated records whose truth
// is known, and fails where a figure is out of bounds.
func (c validateCmd) Run(ctx context.Context, std IO) error {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // data sets are small and many: a sixth of the time
	only, err := regexp.Compile(c.Only)
	if c.Replicates < 1 || c.Widen < 0 || err != nil {
		const text = "--replicates takes a whole number above 0, --widen a number from 0 on, --only a regular expression"
		return usageError{errors.Join(errors.New(text), err)}
	}
	chosen := matching(only)
	if len(chosen) == 0 {
		return usageError{fmt.Errorf("--only %q matches no scenario; without it, their names stand on stderr as they end", c.Only)}
	}
	start := time.Now()
	figures, err := validate(ctx, std.Stderr, chosen, c)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(std.Stderr, "took %s\n", time.Since(start).Round(time.Second))
	bad, err := printTables(std.Stdout, figures)
	if err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d figures are out of bounds", bad)
	}
	return nil
}

// scenario is a kind of data set and what is counted on the reports over it.
type scenario struct {
	what     string // the world, or what is planted
	members  int
	sessions int
	own      bool // own answers are reviewed too
	order    council.Order
	world    biassim.World
	outside  []string // reviewers that do not answer
	leaving  bool     // members come and go
	effects  biassim.Effects
	seen     *detectable // what is planted instead of effects, where it hangs on what reports print
	percent  int         // of the usual number of data sets; 0 stands for 100
	lines    []line
}

// line is one figure: the share of trials that are hits, and between what bounds it
// must lie.
type line struct {
	table, row string
	column     string
	low, high  float64
	errors     float64 // binomial standard errors that the bounds are wider
	untried    bool    // no trial is within bounds: there may be no test
	count      counter
}

// counter returns hits and trials of one report, whose metrics and their members are
// given by name too.
type counter func(r bias.Report, metrics map[string]bias.Metric) (hits, trials int)

// detectable plants the effect that reports without a bias print as the least they would
// have found. Another tenth of the data sets without it, and for anchoring with
// it, show what that is.
type detectable struct {
	headline string
	effects  func(points float64) biassim.Effects
	shrinks  bool // the headline's figure is smaller than what is planted, in proportion
}

// planted is the member whose effects are planted where they are one member's.
const planted = 2

// The tables.
const (
	tableFalse   = "Reports with a verdict of bias other than harshness, %, where nobody is favoured. Columns: sessions x members."
	tableAny     = "Reports with any verdict, %, in the plain world. Columns: sessions x members."
	tableAnomaly = "Reports with an anomaly, %. Columns: sessions x members."
	tableDrift   = "Tests of drift that reject at 5 %, each reviewer, %. Columns: sessions x members."
	tableChange  = "Tests of change points that reject at 5 %, each reviewer, %. Columns: sessions x members."
	tableNull    = "The plain world, five members, %. Columns: sessions, own answers shown or hidden, order if it is not balanced."
	tablePlanted = "One planted bias, five members, %: tests that reject at 5 %, intervals that hold it, verdicts that find it. Columns: sessions."
	tableSeen    = "Verdicts that find what reports without a bias print as detectable, five members, %. Columns: sessions."
)

// worlds are those of the table of false verdicts: in none of them is anybody
// favoured.
func worlds() []scenario {
	tilt := func(spread float64) string { return fmt.Sprintf("scale +-%.0f %%", 100*spread) }
	return []scenario{
		{what: "plain"},
		{what: tilt(0.2), world: biassim.World{Spread: 0.2}},
		{what: tilt(0.3), world: biassim.World{Spread: 0.3}},
		{what: tilt(0.2) + ", longer better", world: biassim.World{Spread: 0.2, LongerBetter: 0.6}},
		{what: tilt(0.3) + ", longer better", world: biassim.World{Spread: 0.3, LongerBetter: 0.6}},
		{what: "constant reviewer", world: biassim.World{Constant: []float64{planted: 7}}},
		{what: "ceiling", world: biassim.World{Base: 9}},
		{what: "coarse scores", world: biassim.World{Step: 2}},
		{what: "missing ballots", world: biassim.World{Missing: 0.2}},
		{what: "members come and go", leaving: true},
		{what: "heavy tails", world: biassim.World{HeavyTails: true}},
		{what: "varying noise", world: biassim.World{NoiseSpread: 0.5}},
		{what: "outside reviewers", outside: []string{"cohere/o0", "xai/o1"}},
		{what: "questions in runs", world: biassim.World{Runs: 5}},
		{what: "frozen answers", world: biassim.World{Runs: 5, Frozen: true}},
	}
}

// scenarios returns those of the tables.
func scenarios() []scenario {
	plain := []scenario{
		{sessions: 20, own: true},
		{sessions: 20},
		{sessions: 50, order: council.OrderPerReviewer},
		{sessions: 50, order: council.OrderShared},
	}
	for i := range plain {
		plain[i].what, plain[i].members, plain[i].percent = "plain", 5, 200
		plain[i].lines = plain[i].nullLines()
	}
	all := plain[:2:2]
	for _, world := range worlds() {
		for _, own := range []bool{true, false} {
			for _, sessions := range []int{50, 100} {
				for _, members := range []int{3, 4, 5, 7} {
					s := world
					s.own, s.sessions, s.members = own, sessions, members
					s.lines = s.innocentLines()
					switch {
					case members == 5 && s.what == "plain":
						s.percent, s.lines = 200, append(s.lines, s.nullLines()...)
					case members == 7: // the report over seven takes three times as long as over five
						s.percent = 30
					}
					all = append(all, s)
				}
			}
		}
	}
	return slices.Concat(all, plain[2:], plantedScenarios(), seenScenarios())
}

// matching returns the scenarios of that name.
func matching(only *regexp.Regexp) []scenario {
	return slices.DeleteFunc(scenarios(), func(s scenario) bool { return !only.MatchString(s.name()) })
}

// planting is one planted bias, whose metric is to be found with some power and
// whose interval is to hold the truth.
type planting struct {
	what    string
	own     bool
	effects biassim.Effects
	metric  string
	truth   func(subject string) float64
	power   map[int]float64 // by sessions: that of the single test, 0 where none is promised
	scale   []int           // sessions, where reviewers use the scale unlike
}

func plantings() []planting {
	return []planting{
		{
			what: "primacy +0.2", effects: biassim.Effects{Position: []float64{0.2}}, metric: "primacy",
			truth: always(0.2), power: map[int]float64{20: 0.52, 50: 0.91, 100: 1},
		},
		{
			what: "self +0.25", own: true, effects: biassim.Effects{Self: 0.25}, metric: "self_preference",
			truth: always(0.25), power: map[int]float64{20: 0.70, 50: 0.98, 100: 1}, scale: []int{50, 100},
		},
		{
			what: "family +0.3", own: true, effects: biassim.Effects{Family: 0.3}, metric: "family_affinity",
			truth: always(0.3), power: map[int]float64{20: 0.41, 50: 0.80, 100: 0.97},
		},
		{
			what: "family +0.5", effects: biassim.Effects{Family: 0.5}, metric: "family_affinity",
			truth: always(0.5), power: map[int]float64{20: 0, 50: 0, 100: 0, 200: 0}, scale: []int{50, 100, 200},
		},
		{
			what: "harshness -0.5", effects: biassim.Effects{Harshness: one(-0.5)}, metric: "harshness|",
			truth: relative(-0.5), power: map[int]float64{20: 0.81, 50: 1, 100: 1},
		},
		{
			what: "length +0.35", effects: biassim.Effects{Length: 0.35}, metric: "length_points_per_doubling",
			truth: always(0.35), power: map[int]float64{20: 0, 50: 0, 100: 0},
		},
		{
			what: "length slope +0.4", effects: biassim.Effects{LengthSlope: one(0.4)}, metric: "length_slope_deviation|",
			truth: relative(0.4), power: map[int]float64{20: 0.50, 50: 0.93, 100: 1, 200: 0}, scale: []int{50, 100, 200},
		},
		{
			what: "pair +0.5", effects: biassim.Effects{Pair: map[[2]int]float64{{planted, 3}: 0.5}}, metric: "pair|anthropic/m2>google/m3",
			truth: always(0.5), power: map[int]float64{20: 0, 50: 0, 100: 0, 200: 0}, scale: []int{50, 100, 200},
		},
		{
			what: "anchoring -0.15", own: true, effects: biassim.Effects{Anchoring: -0.15}, metric: "anchoring",
			power: map[int]float64{20: 0.53, 50: 0.91, 100: 0.99},
		},
		{
			what: "anchoring -0.15", effects: biassim.Effects{Anchoring: -0.15}, metric: "anchoring",
			power: map[int]float64{20: 0.42, 50: 0.80, 100: 0}, // as measured here
		},
		{
			what: "drift -0.8", effects: biassim.Effects{Drift: one(-0.8)}, metric: "drift|",
			truth: relative(-0.8), power: map[int]float64{20: 0.23, 50: 0.55, 100: 0.92},
		},
	}
}

func plantedScenarios() []scenario {
	var plain, unlike []scenario
	for _, p := range plantings() {
		for _, sessions := range slices.Sorted(maps.Keys(p.power)) {
			s := scenario{what: p.what, sessions: sessions, members: 5, own: p.own, effects: p.effects}
			found := p.metric
			if strings.HasSuffix(found, "|") {
				found += biassim.Members()[planted]
			}
			s.add(tablePlanted, "test", max(0, p.power[sessions]-0.05), 1, rejected(found))
			if p.truth != nil {
				low := 0.93
				if p.what == "family +0.5" {
					low = 0.90
				}
				s.add(tablePlanted, "coverage", low, 0.97, covered(p.metric, p.truth))
			}
			s.addVerdicts(headlineOf(p.metric))
			plain = append(plain, s)
		}
		for _, sessions := range p.scale {
			s := scenario{what: p.what + unlikeScale, sessions: sessions, members: 5, own: p.own, effects: p.effects}
			s.world.Spread = 0.2
			s.addVerdicts(headlineOf(p.metric))
			unlike = append(unlike, s)
		}
	}
	return append(plain, unlike...)
}

// unlikeScale is said of what is planted beside reviewers who use the scale unlike.
const unlikeScale = ", scale +-20 %"

// add adds a line of a table whose columns are sessions.
func (s *scenario) add(table, what string, low, high float64, count counter) {
	s.lines = append(s.lines, line{table: table, row: s.row() + ": " + what, column: s.column(false), low: low, high: high, count: count})
}

// addVerdicts adds how often the verdict of a headline finds what is planted, also
// without the second fit where there is one.
func (s *scenario) addVerdicts(headline string) {
	s.add(tablePlanted, "verdict", 0, 1, verdict(headline))
	if secondFit(headline) {
		s.add(tablePlanted, "verdict, first fit", 0, 1, firstVerdict(headline))
	}
}

// headlineOf returns the headline of a metric.
func headlineOf(metric string) string {
	headline, _, _ := strings.Cut(metric, "|")
	switch headline {
	case "pair":
		return "affinity"
	case "primacy":
		return "position"
	}
	return headline
}

// seenScenarios returns those that plant what a report prints as the least effect it
// would have found.
func seenScenarios() []scenario {
	const members = 5
	// An effect of one reviewer is told against the mean of all.
	apart := func(points float64) []float64 { return one(points / (1 - 1/float64(members))) }
	var all []scenario
	for _, seen := range []detectable{
		{headline: "length_points_per_doubling", effects: func(x float64) biassim.Effects { return biassim.Effects{Length: x} }},
		{headline: "position", effects: func(x float64) biassim.Effects { return biassim.Effects{Position: []float64{x}} }},
		{headline: "length_slope_deviation", effects: func(x float64) biassim.Effects { return biassim.Effects{LengthSlope: apart(x)} }},
		{headline: "self_preference", effects: func(x float64) biassim.Effects { return biassim.Effects{Self: x} }},
		{headline: "family_affinity", effects: func(x float64) biassim.Effects { return biassim.Effects{Family: x} }},
		{headline: "harshness", effects: func(x float64) biassim.Effects { return biassim.Effects{Harshness: apart(-x)} }},
		{headline: "affinity", effects: func(x float64) biassim.Effects {
			return biassim.Effects{Pair: map[[2]int]float64{{planted, 3}: x}}
		}},
		{headline: "anchoring", effects: func(x float64) biassim.Effects { return biassim.Effects{Anchoring: -x} }, shrinks: true},
		{headline: "drift", effects: func(x float64) biassim.Effects { return biassim.Effects{Drift: apart(-x)} }},
	} {
		self := seen.headline == "self_preference"
		for _, variant := range []struct {
			suffix string
			own    bool
			world  biassim.World
		}{
			{"", true, biassim.World{}},
			{"", false, biassim.World{}},
			{unlikeScale, self, biassim.World{Spread: 0.2}},
		} {
			if self && !variant.own {
				continue // it takes own answers
			}
			for _, sessions := range []int{50, 100} {
				s := scenario{what: seen.headline + variant.suffix, sessions: sessions, members: members, own: variant.own}
				s.world, s.seen, s.percent = variant.world, &seen, 50
				s.add(tableSeen, "detectable", 0.75, 1, verdict(seen.headline))
				s.lines[0].errors = 2
				all = append(all, s)
			}
		}
	}
	return all
}

// name is what --only is matched with.
func (s scenario) name() string {
	name := fmt.Sprintf("%s, %d members, %d sessions", s.row(), s.members, s.sessions)
	if s.order != "" {
		name += fmt.Sprintf(", %s orders", s.order)
	}
	return name
}

// row and column say where in a table the figures of a scenario stand.
func (s scenario) row() string {
	if s.own {
		return s.what + ", own shown"
	}
	return s.what + ", own hidden"
}

func (s scenario) column(withMembers bool) string {
	if withMembers {
		return fmt.Sprintf("%dx%d", s.sessions, s.members)
	}
	return strconv.Itoa(s.sessions)
}

// innocentLines are the lines of a world in which nobody is favoured.
func (s scenario) innocentLines() []line {
	bound := 0.05
	if s.world.Constant != nil {
		bound = 0.075 // its harshness is true, and loosens the adjustment of the others
	}
	lines := []line{
		{table: tableFalse, high: bound, count: claimed},
		{table: tableAnomaly, high: 0.07, untried: true, count: odd},
		{table: tableDrift, high: 0.07, untried: true, count: rejected("drift|")},
		{table: tableChange, high: 0.07, untried: true, count: changed},
	}
	if s.what == "plain" {
		lines = append(lines, line{table: tableAny, high: 0.05, count: flagged(true)})
	}
	for i := range lines {
		lines[i].row, lines[i].column, lines[i].errors = s.row(), s.column(true), 2
	}
	return lines
}

// nullLines are those of the plain world with five members.
func (s scenario) nullLines() []line {
	const low, high = 0.03, 0.07
	bound, own := 0.05, 'h'
	if s.sessions < 50 {
		bound = 0.075
	}
	reports := []line{
		{row: "reports with a significant headline", high: 0.075, count: flagged(false)},
		{row: "reports with a verdict", high: bound, count: flagged(true)},
	}
	tests := []line{
		{row: "M1 position, all places", low: low, high: high, count: rejected("position")},
		{row: "M1 primacy", low: low, high: high, count: rejected("primacy")},
		{row: "M2 harshness, each reviewer", low: low, high: high, count: rejected("harshness|")},
		{row: "M4 length", low: low, high: high, count: rejected("length_points_per_doubling")},
		{row: "M5 length slope, each reviewer", low: low, high: high, count: rejected("length_slope_deviation|")},
		{row: "M6 pairs", high: high, count: rejected("pair|")},
		{row: "M3 family", low: low, high: high, count: rejected("family_affinity")},
		{row: "anchoring", low: low, high: high, count: rejected("anchoring")},
		{row: "drift, each reviewer", low: low, high: high, count: rejected("drift|")},
		{row: "change point, each reviewer", high: high, count: changed},
		{row: "reports with an anomaly", high: high, count: odd},
	}
	if s.own {
		own = 's'
		tests = append(tests,
			line{row: "M3 self", low: low, high: high, count: rejected("self_preference")},
			line{row: "M3 self, each reviewer", low: low, high: high, count: rejected("self_preference|")})
	}
	if s.order == council.OrderShared {
		tests = []line{{row: "position judged", count: judged("position")}}
	}
	lines := slices.Concat(tests, reports)
	for i := range lines {
		lines[i].table, lines[i].column = tableNull, strings.TrimSuffix(fmt.Sprintf("%d%c %s", s.sessions, own, s.order), " ")
	}
	return lines
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

// claimed counts reports that call something but harshness a bias. An association of
// length and score is none.
func claimed(r bias.Report, _ map[string]bias.Metric) (hits, trials int) {
	for _, m := range r.Metrics {
		if m.Verdict != nil && *m.Verdict == bias.VerdictBias && m.Name != "harshness" {
			return 1, 1
		}
	}
	return 0, 1
}

// verdict counts reports in which that headline is a bias or an association.
func verdict(headline string) counter {
	return func(_ bias.Report, metrics map[string]bias.Metric) (hits, trials int) {
		if v := metrics[headline].Verdict; v != nil && (*v == bias.VerdictBias || *v == bias.VerdictAssociation) {
			hits = 1
		}
		return hits, 1
	}
}

// secondFit reports whether a headline needs a second fit to agree.
func secondFit(headline string) bool {
	return slices.Contains([]string{"self_preference", "family_affinity", "length_slope_deviation", "affinity"}, headline)
}

// firstVerdict counts reports in which that headline would be a bias by the first fit
// alone, of all headlines.
func firstVerdict(headline string) counter {
	return func(r bias.Report, _ map[string]bias.Metric) (hits, trials int) {
		level := r.Levels.BelowHigh
		if r.Window.Sessions >= 50 {
			level = r.Levels.High
		}
		large := func(m bias.Metric) bool { return m.PValue != nil && math.Abs(*m.PointEstimate) >= *m.Delta }
		var p []float64 // of the headlines
		at, passes := -1, false
		for _, m := range r.Metrics {
			if m.Verdict == nil || m.PValue == nil {
				continue
			}
			if m.Name == headline {
				at, passes = len(p), large(m)
			}
			if m.Subject == "" || m.Name == "position" {
				p = append(p, *m.PValue)
				continue
			}
			var single []float64
			var members []bias.Metric
			for _, member := range m.Members {
				if member.QValue != nil {
					single, members = append(single, *member.PValue), append(members, member)
				}
			}
			q := falseDiscoveryRates(single)
			p = append(p, slices.Min(append(q, 1)))
			if m.Name == headline {
				passes = false
				for k, member := range members {
					passes = passes || q[k] < level && large(member)
				}
			}
		}
		if passes && falseDiscoveryRates(p)[at] < level {
			hits = 1
		}
		return hits, 1
	}
}

// falseDiscoveryRates returns the p values after Benjamini and Hochberg (1995).
func falseDiscoveryRates(p []float64) []float64 {
	q := make([]float64, len(p))
	for i := range p {
		q[i] = 1
		for _, bound := range p { // the least adjusted value of those that are not smaller
			if bound >= p[i] {
				rank := 0
				for _, other := range p {
					if other <= bound {
						rank++
					}
				}
				q[i] = min(q[i], bound*float64(len(p))/float64(rank))
			}
		}
	}
	return q
}

// counted is a line and what was counted.
type counted struct {
	line
	hits, trials int
	low, high    float64 // the line's bounds with its errors
}

func (f counted) ok() bool {
	share := float64(f.hits) / float64(f.trials)
	return f.trials == 0 && f.untried || f.low <= share && share <= f.high // NaN is out of bounds
}

// validate runs the scenarios, tells each on progress as it ends, and returns their
// figures.
func validate(ctx context.Context, progress io.Writer, all []scenario, c validateCmd) ([]counted, error) {
	var figures []counted
	for k, s := range all {
		start, replicates := time.Now(), c.Replicates
		if s.percent > 0 {
			replicates = max(1, replicates*s.percent/100)
		}
		done, err := s.run(ctx, c.Seed, replicates)
		if err != nil {
			return nil, err
		}
		var said strings.Builder
		for i := range done {
			f := &done[i]
			widened := func(bound float64) float64 {
				return max(f.errors, c.Widen) * math.Sqrt(bound*(1-bound)/float64(replicates))
			}
			f.low, f.high = max(0, f.line.low-widened(f.line.low)), min(1, f.line.high+widened(f.line.high))
			said.WriteString(" " + strings.TrimSpace(f.String()))
		}
		took := time.Since(start).Round(100 * time.Millisecond)
		if _, err := fmt.Fprintf(progress, "%d/%d %s: %d data sets, %s:%s\n", k+1, len(all), s.name(), replicates, took, said.String()); err != nil {
			return nil, err
		}
		figures = append(figures, done...)
	}
	return figures, nil
}

// String returns the share in percent, marked where it is out of bounds.
func (f counted) String() string {
	switch {
	case f.trials == 0 && f.ok():
		return ". "
	case f.ok():
		return fmt.Sprintf("%.1f ", 100*float64(f.hits)/float64(f.trials))
	default:
		return fmt.Sprintf("%.1f!", 100*float64(f.hits)/float64(f.trials))
	}
}

// bounds returns the bounds of a row; where they differ by column, one after another.
func bounds(row []counted) string {
	var all []string
	for _, f := range row {
		switch low, high := 100*f.line.low, 100*f.line.high; {
		case low == 0 && high == 100:
			all = append(all, "-")
		case low == 0:
			all = append(all, fmt.Sprintf("<= %.1f", high))
		case high == 100:
			all = append(all, fmt.Sprintf(">= %.1f", low))
		default:
			all = append(all, fmt.Sprintf("%.1f to %.1f", low, high))
		}
	}
	return strings.Join(slices.Compact(all), ", ")
}

// printTables prints the figures and returns how many are out of bounds. Tables, rows
// and columns stand as they come first.
func printTables(w io.Writer, figures []counted) (bad int, err error) {
	var text strings.Builder
	for _, table := range distinct(figures, func(f counted) string { return f.table }) {
		inTable := slices.DeleteFunc(slices.Clone(figures), func(f counted) bool { return f.table != table })
		columns := distinct(inTable, func(f counted) string { return f.column })
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
		for _, row := range distinct(inTable, func(f counted) string { return f.row }) {
			fmt.Fprintf(&text, "%-*s", labels, row)
			var inRow []counted
			for _, column := range columns {
				k := slices.IndexFunc(inTable, func(f counted) bool { return f.row == row && f.column == column })
				if k < 0 {
					text.WriteString(strings.Repeat(" ", width(column)))
					continue
				}
				inRow = append(inRow, inTable[k])
				fmt.Fprintf(&text, "%*s", width(column), inTable[k])
				if !inTable[k].ok() {
					bad++
				}
			}
			text.WriteString(" " + bounds(inRow) + "\n")
		}
		text.WriteString("\n")
	}
	_, err = io.WriteString(w, strings.TrimSuffix(text.String(), "\n"))
	return bad, err
}

// distinct returns what of says of the figures, each once, in their order.
func distinct(figures []counted, of func(counted) string) []string {
	var all []string
	for _, f := range figures {
		if text := of(f); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// run adds up what the lines count over the replicates.
func (s scenario) run(ctx context.Context, seed uint64, replicates int) ([]counted, error) {
	name := fnv.New64a()
	_, _ = io.WriteString(name, s.name())              // a scenario has its own data sets, whatever runs beside it
	draws := rand.New(rand.NewPCG(seed, name.Sum64())) //nolint:gosec // a simulation is to be repeatable, not secret
	if s.seen != nil {
		if err := s.plant(ctx, draws, replicates); err != nil {
			return nil, err
		}
	}
	figures := make([]counted, len(s.lines))
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

// plant sets the effects to what reports print as the least they would have found: the
// mean of a tenth as many reports. A figure that shrinks takes all of them, because its
// error enters the effect whole.
func (s *scenario) plant(ctx context.Context, draws *rand.Rand, replicates int) error {
	mean := func(replicates int, of func(bias.Metric) *float64) (float64, error) {
		sum, n := 0.0, 0
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

// each hands the reports over the replicates, made on all processors, to take, one
// at a time.
func (s scenario) each(ctx context.Context, draws *rand.Rand, replicates int, take func(bias.Report)) error {
	seeds := make(chan uint64, replicates)
	for range replicates {
		seeds <- draws.Uint64()
	}
	close(seeds)
	var mu sync.Mutex // guards what take changes
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range seeds {
				if ctx.Err() != nil {
					return
				}
				r := s.report(seed)
				mu.Lock()
				take(r)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// report returns the report over one data set.
func (s scenario) report(seed uint64) bias.Report {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	collector := bias.NewCollector(bias.Options{Now: start.AddDate(1, 0, 0)})
	for _, record := range biassim.Generate(biassim.Options{
		Seed: seed, Sessions: s.sessions, Start: start, Members: biassim.Council(s.members), Outside: s.outside,
		Slates: s.slates(seed), Order: cmp.Or(s.order, council.OrderBalanced), Effects: s.effects, World: s.world,
	}) {
		collector.Add(record)
	}
	return collector.Report()
}

// stretch is how many sessions a member that comes and goes is away at a time.
const stretch = 10

// slates returns the slates of each session of a data set.
func (s scenario) slates(seed uint64) func(session int) []council.Slate {
	members := biassim.Council(s.members)
	reviewers := slices.Concat(members, s.outside)
	away := rand.New(rand.NewPCG(seed, 100)).Perm(s.members) //nolint:gosec // see run
	return func(session int) []council.Slate {
		o := anonymize.Options{Order: s.order, Authors: members, Reviewers: reviewers, ShowOwn: s.own}
		o.Seed = int64(seed>>16) + int64(session)
		if s.world.Frozen { // a probe shows the same answers in one order and its reverse
			o.Seed -= int64(session % s.world.Runs)
		}
		gone := -1
		if s.leaving {
			gone = away[session/stretch%s.members]
			o.Authors = slices.Delete(slices.Clone(members), gone, gone+1)
			o.Reviewers = o.Authors
		}
		slates := anonymize.Draw(o).Reviewer
		if gone >= 0 {
			slates = slices.Insert(slates, gone, council.Slate{})
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
