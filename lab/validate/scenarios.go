package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
)

// Scenario is a kind of data set, with the lines that are counted on the reports over it. [Run] simulates it.
type Scenario struct {
	what     string // the world, or the planted bias
	members  int
	sessions int
	own      bool // reviewers also see their own answers
	order    council.Order
	// pairs has judgements of pairs by the members, which replace the sessions of a council.
	pairs   *biassim.Pairs
	world   biassim.World
	outside []string // reviewers that answer no questions
	leaving bool     // members come and go
	// joins is the first session of the last member. With 0, that member takes part from the beginning.
	joins int
	// favourOnly says that only favours are counted, because reviewers of this world may change or have anomalies.
	favourOnly bool
	// If seldom is n, the first reviewer meets the others in only one of n sessions. If seldom is 0, the first reviewer
	// meets them in all sessions.
	seldom int
	// alone says that the first reviewer is the only reviewer in all other sessions. If alone is false, the first
	// reviewer is the only reviewer in one of these sessions, is missing from the next one, and so on.
	alone   bool
	effects biassim.Effects
	// seen plants an effect that depends on what reports print. If seen is set, effects is not used.
	seen *detectable
	// percent scales the usual number of data sets. 0 stands for 100.
	percent int
	lines   []line
}

// line is one line of a table: a share of hits among trials, and the bounds between which the share must lie.
type line struct {
	table, row string
	column     string
	low, high  float64
	errors     float64 // by how many binomial standard errors the bounds are widened
	untried    bool    // A line without trials is within bounds.
	count      counter
}

// detectable plants the smallest effect that reports say they would have found. These reports have no bias. They come
// from further data sets, a tenth as many. For anchoring, there are also as many further data sets with the bias.
type detectable struct {
	headline string
	effects  func(points float64) biassim.Effects
	shrinks  bool // the headline's figure is smaller than the planted effect, by a constant factor
}

// planted is the index of the member that has an effect, if only one member has one.
const planted = 2

// The tables.
const (
	tableFalse   = "Reports with a verdict of favour, %, where nobody is favoured. Columns: sessions x members, own answers shown at 50x4."
	tableApart   = "Reports with a verdict apart from favours, %, in the plain world. Columns: sessions x members."
	tableSeldom  = "Reports with a verdict of favour, %, where most sessions tell little and nobody is favoured. Columns: sessions x members."
	tableTopics  = "Reports with a verdict, %, where nobody is favoured and time or topics matter. Columns: sessions x members."
	tableRepeat  = "Reports with a verdict of favour, %, where questions are asked again. Columns: sessions x members."
	tableAnomaly = "Reports with an anomaly, %. Columns: sessions x members."
	tableDrift   = "Tests of drift that reject at 5 %, each reviewer, %. Columns: sessions x members."
	tableChange  = "Tests of change points that reject at 5 %, each reviewer, %. Columns: sessions x members."
	tableNull    = "The plain world, five members, %. Columns: sessions, own answers shown or hidden, order if it is not balanced."
	tablePower   = "Reports that find one planted bias, five members, own answers shown, %. Columns: sessions."
	tablePlanted = "One planted bias, five members, %: tests that reject at 5 %, intervals that hold it, " +
		"verdicts that find it. Columns: sessions."
	tableSeen = "Verdicts that find what reports without a bias print as detectable, five members, %. Columns: sessions."
)

// Matching returns the scenarios whose name matches, in the order in which they run.
func Matching(only *regexp.Regexp) []Scenario {
	return slices.DeleteFunc(scenarios(), func(s Scenario) bool { return !only.MatchString(s.name()) })
}

// scenarios returns all scenarios, in the order in which they run.
func scenarios() []Scenario {
	plain := []Scenario{
		{sessions: 20, own: true},
		{sessions: 20},
		{sessions: 50, order: council.OrderPerReviewer},
		{sessions: 50, order: council.OrderShared},
	}
	for i := range plain {
		plain[i].what = "plain"
		plain[i].members = 5
		plain[i].percent = 200
		plain[i].lines = plain[i].nullLines()
	}
	all := plain[:2:2]
	for _, own := range []bool{true, false} {
		for _, sessions := range []int{50, 100} {
			s := Scenario{what: "plain", members: 5, sessions: sessions, own: own, percent: 200}
			s.lines = s.nullLines()
			all = append(all, s)
		}
	}
	for _, world := range slices.Concat(worlds(), gradedWorlds()) {
		for _, size := range sizes() {
			s := world.of(size)
			s.lines = s.innocentLines()
			all = append(all, s)
		}
	}
	return slices.Concat(all, plain[2:], seldomScenarios(), repeatedScenarios(), powerScenarios(), plantedScenarios(), seenScenarios(), styleScenarios(),
		worldScenarios(), pairScenarios())
}

// size is a number of sessions and of members, and a percentage of the usual number of data sets.
type size struct{ sessions, members, percent int }

// sizes returns the sizes in the table of false verdicts. With 50 sessions, reviewers also see their own answers.
func sizes() []size {
	return []size{{50, 4, 50}, {100, 5, 50}, {400, 5, 20}, {100, 3, 20}, {100, 8, 20}, {100, 12, 20}}
}

// of gives a scenario a size, and returns the scenario.
func (s Scenario) of(size size) Scenario {
	s.sessions = size.sessions
	s.members = size.members
	s.percent = size.percent
	s.own = size.sessions == 50
	return s
}

// worlds returns the worlds in the table of false verdicts. No member is favoured in them.
func worlds() []Scenario {
	scale := func(spread float64) string { return fmt.Sprintf("scale +-%.0f %%", 100*spread) }
	return []Scenario{
		{what: "plain"},
		{what: scale(0.2), world: biassim.World{Spread: 0.2}},
		{what: scale(0.3), world: biassim.World{Spread: 0.3}},
		{what: scale(0.2) + ", longer better", world: biassim.World{Spread: 0.2, LongerBetter: 0.6}},
		{what: scale(0.3) + ", longer better", world: biassim.World{Spread: 0.3, LongerBetter: 0.6}},
		{what: "gaps", world: biassim.World{Gap: 1.5}},
		{what: "gaps, levels", world: biassim.World{Base: 7.5, Gap: 1.5, Levels: 2}},
		{what: "gaps, levels, " + scale(0.3) + ", longer better", world: biassim.World{
			Base:         7.5,
			Gap:          1.5,
			Levels:       2,
			Spread:       0.3,
			LongerBetter: 0.6,
		}},
		{what: "gaps, curves", world: biassim.World{Gap: 1.5, Curve: 1}},
		{what: "gaps, S-curves", world: biassim.World{Gap: 1.5, SCurve: 0.75}},
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

// seldomScenarios returns worlds without a bias. Few of their sessions compare the first reviewer with the others.
func seldomScenarios() []Scenario {
	worlds := seldomWorlds()
	all := make([]Scenario, 0, 4*len(worlds))
	for _, world := range worlds {
		for _, sessions := range []int{50, 100} {
			for _, members := range []int{4, 5} {
				s := world
				s.sessions = sessions
				s.members = members
				s.lines = []line{{
					table:  tableSeldom,
					row:    s.row(),
					column: fmt.Sprintf("%dx%d", sessions, members),
					high:   0.05,
					errors: 2,
					count:  favouring(),
				}}
				all = append(all, s)
			}
		}
	}
	return all
}

func seldomWorlds() []Scenario {
	return []Scenario{
		{what: "one reviewer seldom met, missing ballots", seldom: 25, world: biassim.World{Missing: 0.2}},
		{what: "one reviewer alone but for 1 of 20 sessions", seldom: 20, alone: true},
		{what: "one reviewer alone but for 1 of 5 sessions", seldom: 5, alone: true},
	}
}

// repeatedScenarios returns worlds without a bias in which the sessions ask a few questions again and again.
func repeatedScenarios() []Scenario {
	all := make([]Scenario, 0, 10)
	for _, questions := range []int{10, 30} {
		for _, s := range []Scenario{
			{members: 4, sessions: 50, own: true},
			{members: 5, sessions: 100},
			{members: 3, sessions: 100, percent: 20},
			{members: 7, sessions: 100, percent: 20},
			{members: 5, sessions: 400, percent: 20},
		} {
			s.what = fmt.Sprintf("repeated questions %d", questions)
			s.world.Questions = questions
			s.lines = []line{{
				table:  tableRepeat,
				row:    s.what,
				column: fmt.Sprintf("%dx%d", s.sessions, s.members),
				high:   0.05,
				errors: 2,
				count:  favouring(),
			}}
			all = append(all, s)
		}
	}
	return all
}

// planting is one planted bias. The test of the metric must have some power, and the metric's interval must hold the
// truth.
type planting struct {
	what    string
	own     bool
	effects biassim.Effects
	metric  string
	truth   func(subject string) float64
	power   map[int]float64 // the power of the single test, by the number of sessions; 0 if no power is promised
	scale   []int           // numbers of sessions, for scenarios whose reviewers use the scale differently
}

func plantings() []planting {
	return []planting{
		{
			what: "primacy +0.2", effects: biassim.Effects{Position: []float64{0.2}}, metric: "position_effect|0",
			truth: always(0.2), power: map[int]float64{20: 0, 50: 0, 100: 0},
		},
		{
			what: "self +0.25", own: true, effects: biassim.Effects{Self: 0.25}, metric: "self_preference_in_common",
			truth: always(0.25), power: map[int]float64{20: 0, 50: 0, 100: 0}, scale: []int{50, 100},
		},
		{
			what: "family +0.3", own: true, effects: biassim.Effects{Family: 0.3}, metric: "family_affinity",
			truth: always(0.3), power: map[int]float64{20: 0, 50: 0, 100: 0},
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
			what:    "length slope +0.4",
			effects: biassim.Effects{LengthSlope: one(0.4)},
			metric:  "length_slope_deviation|anthropic/m2",
			truth:   always(0.4),
			power:   map[int]float64{20: 0, 50: 0, 100: 0, 200: 0},
			scale:   []int{50, 100, 200},
		},
		{
			what: "pair +0.5", effects: pair(0.5), metric: "pair|anthropic/m2>google/m3",
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

// one is an effect of the planted reviewer alone.
func one(points float64) []float64 {
	effects := make([]float64, planted+1)
	effects[planted] = points
	return effects
}

// pair returns extra points that the planted reviewer gives to one candidate.
func pair(points float64) biassim.Effects {
	return biassim.Effects{Pair: map[[2]int]float64{{planted, 3}: points}}
}

func plantedScenarios() []Scenario {
	var plain, scaled []Scenario
	for _, p := range plantings() {
		headline := headlineOf(p.metric)
		for _, sessions := range slices.Sorted(maps.Keys(p.power)) {
			s := Scenario{what: p.what, sessions: sessions, members: 5, own: p.own, effects: p.effects}
			tested := p.metric
			if strings.HasSuffix(tested, "|") {
				tested += biassim.Members()[planted]
			}
			s.add(tablePlanted, "test", max(0, p.power[sessions]-0.05), 1, rejected(tested))
			if p.truth != nil {
				s.add(tablePlanted, "coverage", 0.92, 0.98, covered(p.metric, p.truth))
			}
			s.add(tablePlanted, "verdict", 0, 1, verdict(headline))
			plain = append(plain, s)
		}
		for _, sessions := range p.scale {
			s := Scenario{
				what:     p.what + differentScales,
				sessions: sessions,
				members:  5,
				own:      p.own,
				effects:  p.effects,
			}
			s.world.Spread = 0.2
			s.add(tablePlanted, "verdict", 0, 1, verdict(headline))
			scaled = append(scaled, s)
		}
	}
	return append(plain, scaled...)
}

// differentScales marks scenarios whose reviewers use the scale differently.
const differentScales = ", scale +-20 %"

// add adds a line of a table whose columns are sessions.
func (s *Scenario) add(table, what string, low, high float64, count counter) {
	l := line{
		table:  table,
		row:    s.row() + ": " + what,
		column: strconv.Itoa(s.sessions),
		low:    low,
		high:   high,
		count:  count,
	}
	s.lines = append(s.lines, l)
}

// headlineOf returns the headline of a metric.
func headlineOf(metric string) string {
	headline, _, _ := strings.Cut(strings.TrimSuffix(metric, inCommon), "|")
	switch headline {
	case "pair":
		return "affinity"
	case "position_effect":
		return "position"
	}
	return headline
}

// seenScenarios returns the scenarios of detectable. They plant the smallest effect that a report says it would have
// found.
func seenScenarios() []Scenario {
	const members = 5
	// The effect of one reviewer is relative to the mean of all.
	apart := func(points float64) []float64 { return one(points / (1 - 1/float64(members))) }
	var all []Scenario
	for _, seen := range []detectable{
		{headline: "length_points_per_doubling", effects: func(x float64) biassim.Effects {
			return biassim.Effects{Length: x}
		}},
		{headline: "position", effects: func(x float64) biassim.Effects {
			return biassim.Effects{Position: []float64{x}}
		}},
		{headline: "length_slope_deviation", effects: func(x float64) biassim.Effects {
			return biassim.Effects{LengthSlope: one(x)}
		}},
		{headline: "self_preference", effects: func(x float64) biassim.Effects { return biassim.Effects{Self: x} }},
		{headline: "family_affinity", effects: func(x float64) biassim.Effects { return biassim.Effects{Family: x} }},
		{headline: "harshness", effects: func(x float64) biassim.Effects {
			return biassim.Effects{Harshness: apart(-x)}
		}},
		{headline: "affinity", effects: pair},
		{
			headline: "anchoring",
			effects:  func(x float64) biassim.Effects { return biassim.Effects{Anchoring: -x} },
			shrinks:  true,
		},
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
			{differentScales, self, biassim.World{Spread: 0.2}},
		} {
			if self && !variant.own {
				continue // Self-preference needs own answers.
			}
			for _, sessions := range []int{50, 100} {
				s := Scenario{
					what:     seen.headline + variant.suffix,
					sessions: sessions,
					members:  members,
					own:      variant.own,
				}
				s.world = variant.world
				s.seen = &seen
				s.percent = 50
				s.add(tableSeen, "detectable", 0.75, 1, verdict(seen.headline))
				s.lines[0].errors = 2
				all = append(all, s)
			}
		}
	}
	return all
}

// name returns the name that [Matching] looks at.
func (s Scenario) name() string {
	name := fmt.Sprintf("%s, %d members, %d sessions", s.row(), s.members, s.sessions)
	if s.order != "" {
		name += fmt.Sprintf(", %s orders", s.order)
	}
	return name
}

// row is the label of a scenario's figures in most tables.
func (s Scenario) row() string {
	if s.own {
		return s.what + ", own shown"
	}
	return s.what + ", own hidden"
}

// innocentLines returns the lines of a world in which no member is favoured.
func (s Scenario) innocentLines() []line {
	lines := []line{{table: tableFalse, high: 0.05, count: favouring()}}
	if !s.favourOnly {
		lines = append(lines,
			line{table: tableAnomaly, high: 0.07, untried: true, count: anomalous},
			line{table: tableDrift, high: 0.07, untried: true, count: rejected("drift|")},
			line{table: tableChange, high: 0.07, untried: true, count: changed})
	}
	if s.what == "plain" {
		lines = append(lines,
			line{table: tableApart, row: "harshness", high: 0.05, count: verdict("harshness")},
			line{table: tableApart, row: "drift", high: 0.05, count: verdict("drift")},
			line{table: tableApart, row: "change points", high: 0.05, count: changedAt()},
			line{table: tableApart, row: "length", high: 0.05, count: verdict("length_points_per_doubling")})
	}
	return s.bySize(lines)
}

// bySize completes the lines of a table whose columns are sizes.
func (s Scenario) bySize(lines []line) []line {
	for i := range lines {
		l := &lines[i]
		l.row = strings.TrimSuffix(s.what+": "+l.row, ": ")
		l.column = fmt.Sprintf("%dx%d", s.sessions, s.members)
		l.errors = 2
	}
	return lines
}

// worldScenarios returns worlds without a favour in which topics or time matter.
func worldScenarios() []Scenario {
	all := make([]Scenario, 0, 18)
	for _, world := range []Scenario{
		{what: "topics in runs of ten", world: biassim.World{Topics: 10, TopicSD: 0.4}},
		{what: "topics in runs of ten, not named", world: biassim.World{Topics: 10, TopicSD: 0.4, Untold: true}},
		{
			what: "a reviewer's scale changes in mid-window", world: biassim.World{Rescaled: one(0.6)},
			effects: biassim.Effects{Jump: one(-1.2)},
		},
	} {
		for _, size := range sizes() {
			s := world.of(size)
			changes := 0.05
			if s.world.Rescaled != nil {
				changes = 1
			}
			s.lines = s.bySize([]line{
				{table: tableTopics, row: "favour", high: 0.05, count: favouring()},
				{table: tableTopics, row: "drift", high: changes, count: verdict("drift")},
				{table: tableTopics, row: "change points", high: changes, count: changedAt()},
			})
			all = append(all, s)
		}
	}
	return all
}

// nullLines returns the lines of the plain world with five members.
func (s Scenario) nullLines() []line {
	const low, high = 0.03, 0.07
	bound := 0.05
	own := 'h'
	if s.sessions < 50 {
		bound = 0.075
	}
	lines := []line{
		{row: "position, each place", low: low, high: high, count: rejected("position_effect|")},
		{row: "first place, each reviewer", low: low, high: high, count: rejected("position|")},
		{row: "harshness, each reviewer", low: low, high: high, count: rejected("harshness|")},
		{row: "length", low: low, high: high, count: rejected("length_points_per_doubling")},
		{row: "length slope, each reviewer", low: low, high: high, count: rejected("length_slope_deviation|")},
		{row: "pairs", high: high, count: rejected("pair|")},
		{row: "family", low: low, high: high, count: rejected("family_affinity")},
		{row: "anchoring", low: low, high: high, count: rejected("anchoring")},
		{row: "drift, each reviewer", high: high, count: rejected("drift|")},
		{row: "change point, each reviewer", high: high, count: changed},
		{row: "reports with an anomaly", high: high, count: anomalous},
	}
	if s.own {
		own = 's'
		lines = append(lines,
			line{row: "self, in common", low: low, high: high, count: rejected("self_preference_in_common")},
			line{row: "self, each reviewer", low: low, high: high, count: rejected("self_preference|")})
	}
	if s.order == council.OrderShared {
		lines = []line{{row: "position judged", count: identified("position")}}
	}
	lines = append(lines,
		line{row: "reports with a significant favour", high: 0.075, count: significant()},
		line{row: "reports with a verdict of favour", high: bound, count: favouring()})
	for i := range lines {
		lines[i].table = tableNull
		lines[i].column = strings.TrimSuffix(fmt.Sprintf("%d%c %s", s.sessions, own, s.order), " ")
	}
	return lines
}
