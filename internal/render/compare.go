package render

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/worth"
)

// Comparison is the outcome of councild compare.
type Comparison struct {
	worth.Report
	// Judged says that judges compared texts, and that no grader scored them. Scores are then differences from -1 to
	// 1, and the verdict is the judgement of these judges.
	Judged bool     `json:"judged"`
	Judges []string `json:"judges"`
	// PlanHash is the SHA-256, in hex, of the plan, which was made before anything was asked.
	PlanHash string `json:"plan_hash"`
	Planned  int    `json:"planned"` // the number of questions in the plan
	// Stopped says that the run ended before all questions were asked. The questions that were asked are a random
	// sample.
	Stopped bool `json:"stopped"`
	// NearCopies counts the questions that belong to no group, but differ from another question only in numbers and
	// names.
	NearCopies int `json:"near_copies"`
	// EnsembleCost is the mean cost of the ensemble divided by that of the council. It is null if a cost is unknown
	// or there is no ensemble.
	EnsembleCost *float64       `json:"ensemble_cost_ratio"`
	Failed       map[string]int `json:"failed"`     // counts questions without an answer, by arm
	Ungradable   map[string]int `json:"ungradable"` // counts answers that no grader could read, by arm
	// Fallbacks counts answers that replace those of a failed chairman, by arm.
	Fallbacks map[string]int `json:"fallbacks"`
	Usage     council.Usage  `json:"usage"` // of all calls
	// Settings are the settings of the plan that matter to a reader, such as models and sampling, in order.
	Settings [][2]string `json:"settings"`
	Roster
}

// Roster holds the line of the roster to which a comparison leads.
type Roster struct {
	// RosterLine holds keys of the council and their values, as YAML in flow style. It is null if the comparison is
	// undecided, or if no line serves an arm to which it leads.
	RosterLine *string `json:"roster_line"`
	RosterArm  *string `json:"roster_arm"` // the arm that RosterLine serves
	// RosterCost is the cost of this arm divided by that of the council. It is null if a cost is unknown.
	RosterCost *float64 `json:"roster_cost_ratio"`
}

// The arms that a report treats specially.
const (
	armSynthesis = "synthesis"
	armPlacebo   = "placebo"
	armEnsemble  = "ensemble"
	armMember    = "member:" // stands before the id of a member
)

// ComparisonText returns a comparison in at most 80 columns.
func ComparisonText(c Comparison) []byte { return c.document().text() }

// ComparisonHTML returns a comparison as one self-contained HTML page. Like [HTML], it panics if the template does
// not fit.
func ComparisonHTML(c Comparison) []byte { return c.document().html() }

func (c Comparison) document() document {
	d := document{Title: "Is the council worth its money?", Headline: c.headline(), Facts: c.facts()}
	add := func(s section) {
		s.ID = "part" + strconv.Itoa(len(d.Sections))
		d.Sections = append(d.Sections, s)
	}
	add(section{
		Title: "The council minus each other way", Notes: c.differenceNotes(), Plot: c.plot(c.Comparisons, nil),
		Tables: c.tables(c.Comparisons, nil),
	})
	if b := c.Best; b != nil {
		add(section{
			Title:  "The council minus the best member",
			Notes:  c.bestNotes(),
			Plot:   c.plot(b.Members, b.Size),
			Tables: c.tables(b.Members, b.Size),
		})
	}
	if len(c.Described) > 0 || slices.ContainsFunc(c.Comparisons, isSynthesis) {
		reviews := slices.Concat(c.Described, only(c.Comparisons, isSynthesis))
		add(section{
			Title:  "Do the reviews matter?",
			Notes:  c.reviewNotes(reviews),
			Plot:   c.plot(reviews, nil),
			Tables: c.tables(reviews, nil),
		})
	}
	if len(c.Arms) > 0 {
		add(section{
			Title:  "Cost and score",
			Notes:  c.costNotes(),
			Plot:   c.costPlot(),
			Tables: []grid{c.costs(), c.further()},
		})
	}
	if len(c.Power) > 0 {
		add(section{
			Title:  "What could have been detected",
			Notes:  powerNotes(),
			Power:  newPowerPlot(c.Clusters, c.Margin, c.Rivals, c.Power),
			Tables: []grid{powers(c.Power)},
		})
	}
	notes, counts := c.missing()
	add(section{Title: "Missing answers", Notes: notes, Tables: []grid{counts}})
	add(planOf(c.Settings, c.PlanHash))
	add(section{Title: "What is not claimed", List: c.notClaimed()})
	if c.RosterLine != nil { // It comes last, where a terminal shows it.
		add(section{Title: "The line for the roster", Notes: c.rosterNotes(), Line: printable(*c.RosterLine)})
	}
	return d
}

func isSynthesis(c worth.Comparison) bool { return c.Arm == armSynthesis }

// tested returns the comparisons on which the verdict depends.
func (c Comparison) tested() []worth.Comparison {
	if c.Best == nil {
		return c.Comparisons
	}
	return slices.Concat(c.Comparisons, c.Best.Members)
}

// net returns the words " net of costs" if costs are subtracted from the differences, or "".
func (c Comparison) net() string {
	if c.ValueUSD != nil {
		return " net of costs"
	}
	return ""
}

// facts says what was asked, and how much it cost.
func (c Comparison) facts() []string {
	asked := asked(c.Questions, c.Clusters) + "."
	if c.Stopped {
		asked += fmt.Sprintf(" The run ended before all %s questions of the plan were asked. "+
			"They were asked in random order, so these are a random sample.", grouped(c.Planned))
	}
	switch {
	case c.PlanHash == "": // imported rows have no plan
	case c.Usage.CostUSD == nil:
		asked += " The cost of the run is unknown."
	case c.Usage.Partial:
		asked += " The run cost at least $" + usd(*c.Usage.CostUSD) + "."
	default:
		asked += " The run cost $" + usd(*c.Usage.CostUSD) + "."
	}
	if c.NearCopies > 0 {
		asked += fmt.Sprintf(" The errors assume that questions are independent, but %s are copies of others up to numbers and names: "+
			"these tell less than the same number of different questions, and the intervals are too narrow.", grouped(c.NearCopies))
	}
	if c.Reason == worth.TooFew {
		if open := c.notBeaten(); open != "" {
			return []string{open, asked}
		}
	}
	return []string{asked}
}

// unit says what a difference of one point means.
func (c Comparison) unit() string {
	switch {
	case c.Judged:
		return "A difference of 100 points says that the council's answer was preferred every time, 0 that both " +
			"were preferred as often, and -100 the contrary. Each judge saw both orders, and where the two " +
			"disagree it is a tie."
	case c.ValueUSD != nil:
		return fmt.Sprintf("A difference of 1 point is one right answer more in 100 questions. The additional cost is subtracted: "+
			"each $%s, the value of a right answer, counts as one right answer less.", usd(*c.ValueUSD))
	default:
		return "A difference of 1 point is one right answer more in 100 questions."
	}
}

// rosterNotes says what the line for the roster serves, and what it does to the bill.
func (c Comparison) rosterNotes() []string {
	arm := clip(*c.RosterArm)
	var serves string
	switch {
	case c.Verdict == worth.Pays:
		serves = "It serves the whole council, as it was measured here."
	case c.ValueUSD != nil:
		serves = fmt.Sprintf("It serves %s, the cheapest way that is shown to be worth more than the council, net of costs.", arm)
	default:
		serves = fmt.Sprintf("It serves %s, the cheapest way that the council is shown not to beat by %s.",
			arm, points(c.Margin))
	}
	switch {
	case c.Verdict == worth.Pays:
	case c.RosterCost == nil:
		serves += " How the bill changes is not known."
	default:
		serves += fmt.Sprintf(" The bill is then %.3g %% of the council's.", 100**c.RosterCost)
	}
	return []string{serves, "Put the line between the braces of the council in the roster, in place of its mode, first and " +
		"answer_form. Members and chairman are those of the plan, unless the line names others."}
}

// differenceNotes says how to read differences.
func (c Comparison) differenceNotes() []string {
	legend := "The verdict \"pays\" requires that every 90 % interval lies above 0. " +
		"The lower end of such an interval is a one-sided 95 % limit."
	if c.Judged {
		legend += " \"Pays\" also requires this at equal length of the texts."
	}
	if c.Margin > 0 {
		legend += fmt.Sprintf(" A difference of less than %s is too small to count.", points(c.Margin))
	}
	notes := []string{c.unit(), legend + " p is of any difference, adjusted by Holm over all comparisons."}
	if slices.ContainsFunc(c.Comparisons, func(one worth.Comparison) bool { return one.Arm == armEnsemble }) {
		notes = append(notes, c.ensembleNote())
	}
	return notes
}

// bestNotes says how the council compares with the best member.
func (c Comparison) bestNotes() []string {
	notes := []string{"It is not known which member is best, so the council must beat each of them."}
	i := c.Best.Size
	if i == nil {
		return append(notes, "The size of the advantage is not defined: "+c.undefined()+".")
	}
	picked := map[string]int{}
	for _, fold := range c.Best.Picked {
		for _, arm := range fold {
			picked[arm]++
		}
	}
	times := make([]string, 0, len(picked))
	oftenFirst := func(a, b string) int { return cmp.Or(picked[b]-picked[a], cmp.Compare(a, b)) }
	for _, arm := range slices.SortedFunc(maps.Keys(picked), oftenFirst) {
		times = append(times, fmt.Sprintf("%s %d times", clip(arm), picked[arm]))
	}
	return append(notes, fmt.Sprintf("Compared with the member that was best in the other parts of the questions, the difference is %s points%s "+
		"(90 %% interval %s). This is the size of the advantage, not a test. Picked in %s: %s.",
		signed(i.Estimate), c.net(), limits(i.Lower, i.Upper), counted(len(c.Best.Picked), "part"), strings.Join(times, ", ")))
}

// undefined says why there is no difference.
func (c Comparison) undefined() string {
	if c.ValueUSD != nil && c.Clusters > 1 {
		return "not every cost is known"
	}
	return "there are fewer than two clusters"
}

// reviewNotes says whether the reviews matter.
func (c Comparison) reviewNotes(all []worth.Comparison) (notes []string) {
	for _, r := range all {
		what := map[string]string{
			armPlacebo:   "placebo (the same reviews and standings under wrong labels)",
			armSynthesis: "synthesis (the chairman without reviews)",
		}[r.Arm]
		what = "Council minus " + cmp.Or(what, clip(r.Arm)) + ": "
		if r.Interval == nil || r.PAdjusted == nil {
			notes = append(notes, what+"not defined, "+c.undefined()+".")
			continue
		}
		outcome := "neither a difference nor equality is shown"
		switch {
		case *r.PAdjusted < worth.Level && r.Interval.Estimate > 0:
			outcome = "the council's own reviews make it better"
		case *r.PAdjusted < worth.Level:
			outcome = "the council's own reviews make it worse"
		case r.PEquivalent != nil && *r.PEquivalent < worth.Level:
			outcome = fmt.Sprintf("the two are within %s of each other (two one-sided tests, p %s)",
				points(c.Margin), readableP(r.PEquivalent))
		}
		notes = append(notes, fmt.Sprintf("%s%s points%s (90 %% interval %s, p %s): %s.",
			what, signed(r.Interval.Estimate), c.net(), limits(r.Interval.Lower, r.Interval.Upper),
			readableP(r.PAdjusted), outcome))
	}
	return notes
}

// plot returns the plot of comparisons. If size is not nil, it is the cross-fitted size of the advantage over the best
// member, and the plot begins with it.
func (c Comparison) plot(all []worth.Comparison, size *worth.Interval) *plot {
	var spans []span
	add := func(name string, i *worth.Interval, short *float64) {
		s := intervalSpan(name, i)
		s.Flagged = short != nil && *short < worth.Level
		if c.Margin > 0 {
			s.Delta = new(100 * c.Margin)
		}
		spans = append(spans, s)
	}
	if size != nil {
		add("best member, cross-fitted", size, nil)
	}
	for _, one := range all {
		add(c.armName(one.Arm), one.Interval, one.PShortAdjusted)
	}
	if len(spans) == 0 {
		return nil
	}
	p := newPlot("Differences with their intervals. The table that follows holds the same figures.", spans)
	p.Caption = "Points" + c.net() + ", with the 90 % interval as a thick line and the 95 % interval as a thin one."
	if c.Margin > 0 {
		p.Caption += fmt.Sprintf(" The band marks differences of less than %s.", points(c.Margin))
	}
	if slices.ContainsFunc(spans, func(s span) bool { return s.Flagged }) {
		p.Caption += " A square marks a way that the council is shown not to beat by the margin."
	}
	return p
}

// armName returns the name of an arm. For an ensemble it adds the cost relative to the council.
func (c Comparison) armName(arm string) string {
	if arm != armEnsemble || c.EnsembleCost == nil {
		return clip(arm)
	}
	if c.equalCost() {
		return arm + ", equal cost"
	}
	return arm + ", cost x " + rough(*c.EnsembleCost)
}

// equalCost reports whether the cost of the ensemble is within 10 % of the council's.
func (c Comparison) equalCost() bool {
	return c.EnsembleCost != nil && math.Abs(*c.EnsembleCost-1) <= 0.1+1e-9
}

// tables returns the figures of comparisons. If size is not nil, it is the cross-fitted size of the advantage over the
// best member, and the table begins with it.
func (c Comparison) tables(all []worth.Comparison, size *worth.Interval) []grid {
	main := grid{Columns: []column{
		{"Compared with", "COMPARED WITH", true},
		{"Points" + c.net(), "POINTS", false},
		{"90 % interval", "90 % INTERVAL", false},
		{"95 % interval", "95 % INTERVAL", false},
		{"p (Holm)", "P", false},
		{"Mean squared difference", "", false},
		{"p short of the margin (Holm)", "", false},
		{"p equal within the margin", "", false},
	}}
	add := func(name string, i *worth.Interval, p, short, equal *float64) {
		if i == nil {
			main.add(name, "-", "-", "-", "-", "-", "-", "-")
			return
		}
		main.add(name, signed(i.Estimate), limits(i.Lower, i.Upper), limits(i.CI95[0], i.CI95[1]), readableP(p),
			fmt.Sprintf("%.3f", i.Discordance), readableP(short), readableP(equal))
	}
	if size != nil {
		add("best, cross-fitted", size, nil, nil, nil)
	}
	judged := grid{Title: "At equal length", Columns: []column{
		{"Compared with", "COMPARED WITH", true},
		{"Points", "POINTS", false},
		{"90 % interval", "90 % INTERVAL", false},
		{"Orders that disagree", "ORDERS DISAGREE", false},
		{"No judgement", "NO JUDGEMENT", false},
		{"Points for each doubling of length", "", false},
	}}
	for _, one := range all {
		name := c.armName(one.Arm)
		add(name, one.Interval, one.PAdjusted, one.PShortAdjusted, one.PEquivalent)
		if j := one.Judged; j != nil {
			estimate := "-"
			within := "-"
			slope := "-"
			if e := j.EqualLength; e != nil {
				estimate = signed(e.Estimate)
				within = limits(e.Lower, e.Upper)
				slope = signed(e.PerDoubling)
			}
			judged.add(name, estimate, within, grouped(j.Unstable), grouped(j.Missing), slope)
		}
	}
	return []grid{main, judged}
}

// costNotes says which arms are on the frontier, dominated, or of unknown cost.
func (c Comparison) costNotes() (notes []string) {
	var frontier, dominated, unknown []string
	for _, a := range c.Arms {
		switch {
		case a.CostUSD == nil:
			unknown = append(unknown, clip(a.Arm))
		case a.Frontier != nil && *a.Frontier:
			frontier = append(frontier, clip(a.Arm))
		}
		if a.DominatedBy != "" {
			dominated = append(dominated, fmt.Sprintf("%s by %s", clip(a.Arm), clip(a.DominatedBy)))
		}
	}
	if len(frontier) > 0 {
		notes = append(notes, "On the frontier, because no cheaper way scores as much: "+list(frontier)+".")
	}
	if len(dominated) > 0 {
		notes = append(notes, "Dominated, because a cheaper way is shown to be better: "+list(dominated)+".")
	}
	if len(unknown) > 0 {
		notes = append(notes, "Cost unknown: "+list(unknown)+".")
	}
	return notes
}

func (c Comparison) ensembleNote() string {
	switch {
	case c.EnsembleCost == nil:
		return "The cost of the ensemble relative to the council is unknown, so it is no comparison at equal cost."
	case c.equalCost():
		return fmt.Sprintf("The ensemble is a comparison at equal cost: it costs %s times as much as the council.",
			rough(*c.EnsembleCost))
	default:
		return fmt.Sprintf("The ensemble is no comparison at equal cost: it costs %s times as much as the council.",
			rough(*c.EnsembleCost))
	}
}

// costs returns the scores and costs of the arms.
func (c Comparison) costs() grid {
	g := grid{Columns: []column{
		{"Way", "WAY", true},
		{"Score", "SCORE", false},
		{"USD", "USD", false},
		{"USD per right answer", "PER RIGHT", false},
		{"95 % interval", "95 % INTERVAL", false},
		{"Frontier", "", true},
		{"Dominated by", "", true},
	}}
	for _, a := range c.Arms {
		frontier := "-"
		if a.Frontier != nil {
			frontier = map[bool]string{true: "yes", false: "no"}[*a.Frontier]
		}
		within := "-"
		if e := a.CostPerRight; e.Lower != nil && e.Upper != nil {
			within = usd(*e.Lower) + " to " + usd(*e.Upper)
		}
		g.add(clip(a.Arm), share(a.Score), usdOrNone(a.CostUSD), usdOrNone(a.CostPerRight.Value), within,
			frontier, cmp.Or(clip(a.DominatedBy), "-"))
	}
	return g
}

// further returns the cost of each additional right answer of the council.
func (c Comparison) further() grid {
	g := grid{Title: "The cost of each additional right answer of the council, in US dollars", Columns: []column{
		{"Compared with", "COMPARED WITH", true}, {"USD", "USD", true},
	}}
	arms := map[string]worth.ArmFigures{}
	for _, a := range c.Arms {
		arms[a.Arm] = a
	}
	for _, one := range c.tested() {
		switch {
		case one.CostPerAdditionalRight != nil:
			g.add(clip(one.Arm), usd(*one.CostPerAdditionalRight))
		case arms[one.Arm].CostUSD == nil || arms[c.Treatment].CostUSD == nil:
			g.add(clip(one.Arm), "not defined: a cost is not known")
		default:
			g.add(clip(one.Arm), "not defined: the council has no more right answers")
		}
	}
	return g
}

// costPlot returns a plot with each arm's score and cost, and the frontier.
func (c Comparison) costPlot() *plot {
	const middle, bars = 58.0, 66.0
	scores := make([]float64, len(c.Arms))
	dearest := 0.0
	for i, a := range c.Arms {
		scores[i] = 100 * a.Score
		if a.CostUSD != nil {
			dearest = max(dearest, *a.CostUSD)
		}
	}
	across := scaleOf(plotLeft, middle, 0.5, scores)
	p := &plot{
		Label: "Score and cost of each way. The table that follows holds the same figures.",
		Caption: "Dots are scores in percent, with a line through those on the frontier. Bars are the cost of a " +
			"question. The cheapest way is first.",
		Ticks: across.ticks(),
	}
	last := -1
	for i, a := range c.Arms {
		side := "cost not known"
		if a.CostUSD != nil && c.Questions > 0 {
			side = "$" + usd(*a.CostUSD/float64(c.Questions))
		}
		row := p.add(lastRunes(clip(a.Arm), 28), share(a.Score)+", "+side)
		row.Shown = true
		row.Point = across.at(100 * a.Score)
		row.Low = row.Point
		row.High = row.Point
		row.Hollow = a.Frontier == nil || !*a.Frontier
		if a.CostUSD != nil && dearest > 0 {
			row.BarFrom = bars
			row.BarWidth = math.Round(100*(plotRight-bars)**a.CostUSD/dearest) / 100
		}
		// Two arms on the frontier may cost the same. The line then leaves out the second one,
		// unless its score is higher.
		if row.Hollow || last >= 0 && a.Score <= c.Arms[last].Score {
			continue
		}
		if last >= 0 {
			p.Lines = append(p.Lines, segment{p.Rows[last].Point, p.Rows[last].Y, row.Point, row.Y})
		}
		last = i
	}
	return p
}

func powerNotes() []string {
	return []string{
		"\"Detectable\" is the smallest true difference that the questions can detect. If the council is better by " +
			"this much than every other way in the plan and than the best member, four of five such runs say " +
			"\"pays\". The figure depends on the share of questions at which the scores differ, which is not known " +
			"before the run. If the true difference is exactly the margin, the verdict is \"pays\" at most half of " +
			"the time, however many questions you ask.",
	}
}

// powers returns the differences that a number of questions can detect, as a table.
func powers(all []worth.Power) grid {
	gain := points(all[0].Gain)
	g := grid{Columns: []column{
		{"Scores differ at", "SCORES DIFFER AT", true},
		{"Detectable", "DETECTABLE", false},
		{"Needed for " + gain, "FOR " + strings.ToUpper(gain), false},
	}}
	for _, p := range all {
		g.add(fmt.Sprintf("%.0f %% of questions", 100*p.Discordance), about(p.MDE80), counted(p.Needed, "question"))
	}
	return g
}

// planOf returns the plan of a comparison.
func planOf(settings [][2]string, hash string) section {
	plan := section{Title: "The plan", Notes: []string{"It was fixed before any question was asked."}}
	if hash == "" {
		plan = section{Title: "The rows", Notes: []string{"They were imported, after others had asked the questions."}}
	} else {
		settings = append(slices.Clone(settings), [2]string{"SHA-256", hash})
	}
	for _, s := range settings {
		plan.List = append(plan.List, printable(s[0]+": "+s[1]))
	}
	return plan
}

// PlanText returns the plan of a comparison, and the differences that its questions can detect. It is for a plan
// whose questions have not been asked yet. The argument questions counts several questions of one source as one.
func PlanText(questions int, all []worth.Power, settings [][2]string, hash string) []byte {
	facts := powerNotes()
	if questions < worth.LeastClusters {
		facts = append(facts, fmt.Sprintf("A verdict needs %d questions.", worth.LeastClusters))
	}
	return document{
		Headline: fmt.Sprintf("What %s can detect", counted(questions, "question")),
		Facts:    facts, Sections: []section{{Tables: []grid{powers(all)}}, planOf(settings, hash)},
	}.text()
}

// missing says which answers are missing, and how they count.
func (c Comparison) missing() (notes []string, counts grid) {
	counts = grid{Columns: []column{
		{"Way", "WAY", true},
		{"No answer", "NO ANSWER", false},
		{"Ungradable", "UNGRADABLE", false},
		{"Fallback", "FALLBACK", false},
	}}
	for _, one := range slices.Concat([]worth.Comparison{{Arm: c.Treatment}}, c.tested(), c.Described) {
		name := one.Arm
		if c.Failed[name]+c.Ungradable[name]+c.Fallbacks[name] > 0 {
			counts.add(clip(name), grouped(c.Failed[name]), grouped(c.Ungradable[name]), grouped(c.Fallbacks[name]))
		}
	}
	if len(counts.Rows) == 0 {
		return []string{"No answer failed, none was ungradable, and no fallback stood in for the chairman."}, counts
	}
	note := "An answer that failed or could not be graded counts as wrong. A verdict must be the same without it."
	if c.Judged {
		note = "Questions with a failed answer were not judged."
	}
	return []string{note + " A fallback stands in for a chairman that failed, and is the council's answer."}, counts
}

// notClaimed lists claims that the report does not make.
func (c Comparison) notClaimed() []string {
	claims := []string{
		"Anything about other questions, other models or other settings than these.",
		"That two ways are equal, unless the test of equivalence says so: a difference may exist even if none is shown.",
	}
	if c.Judged {
		claims = append(claims, "That an answer is correct: judges say which of two texts they prefer.")
	}
	return claims
}

// ComparisonCSV returns a comparison as one table (RFC 4180) whose columns have the field names of the JSON form.
// The first column says what kind of row it is: report, comparison, member, best_size, described, arm, power or
// setting. Differences are shares, not points. An undefined figure is an empty cell.
func ComparisonCSV(c Comparison) []byte {
	columns := []string{
		"record", "name", "value", "n", "clusters", "estimate", "lower_one_sided", "upper_one_sided",
		"ci95_lower", "ci95_upper", "discordance",
		"p", "p_adjusted", "p_short_of_margin", "p_short_of_margin_adjusted", "p_equivalent",
		"cost_per_additional_right_usd",
		"at_equal_length", "at_equal_length_lower_one_sided", "at_equal_length_upper_one_sided", "unstable", "missing",
		"score", "cost_usd", "cost_per_right_usd", "cost_per_right_usd_ci_lower",
		"cost_per_right_usd_ci_upper", "frontier", "dominated_by",
		"failed", "ungradable", "fallbacks", "mde80", "needed",
	}
	var rows []map[string]string
	value := func(name, value string) {
		rows = append(rows, map[string]string{"record": "report", "name": name, "value": value})
	}
	value("verdict", string(c.Verdict))
	value("reason", string(c.Reason))
	value("needed", wholeOrNone(c.Needed))
	value("questions", strconv.Itoa(c.Questions))
	value("clusters", strconv.Itoa(c.Clusters))
	value("planned", strconv.Itoa(c.Planned))
	value("margin", number(&c.Margin))
	value("value_usd", number(c.ValueUSD))
	value("judges", strings.Join(c.Judges, ", "))
	value("ensemble_cost_ratio", number(c.EnsembleCost))
	value("cost_usd", number(c.Usage.CostUSD))
	value("plan_hash", c.PlanHash)
	value("roster_line", *cmp.Or(c.RosterLine, new("")))
	value("roster_arm", *cmp.Or(c.RosterArm, new("")))
	value("roster_cost_ratio", number(c.RosterCost))
	add := func(record string, all ...worth.Comparison) {
		for _, one := range all {
			row := intervalCells(one.Interval)
			row["record"] = record
			row["name"] = one.Arm
			row["p"] = number(one.P)
			row["p_adjusted"] = number(one.PAdjusted)
			row["p_equivalent"] = number(one.PEquivalent)
			row["p_short_of_margin"] = number(one.PShort)
			row["p_short_of_margin_adjusted"] = number(one.PShortAdjusted)
			row["cost_per_additional_right_usd"] = number(one.CostPerAdditionalRight)
			if j := one.Judged; j != nil {
				row["unstable"] = strconv.Itoa(j.Unstable)
				row["missing"] = strconv.Itoa(j.Missing)
				if e := j.EqualLength; e != nil {
					row["at_equal_length"] = number(&e.Estimate)
					row["at_equal_length_lower_one_sided"] = number(&e.Lower)
					row["at_equal_length_upper_one_sided"] = number(&e.Upper)
				}
			}
			rows = append(rows, row)
		}
	}
	add("comparison", c.Comparisons...)
	if c.Best != nil {
		add("member", c.Best.Members...)
		add("best_size", worth.Comparison{Interval: c.Best.Size})
	}
	add("described", c.Described...)
	for _, a := range c.Arms {
		row := map[string]string{
			"record":                      "arm",
			"name":                        a.Arm,
			"score":                       number(&a.Score),
			"missing":                     strconv.Itoa(a.Missing),
			"cost_usd":                    number(a.CostUSD),
			"cost_per_right_usd":          number(a.CostPerRight.Value),
			"dominated_by":                a.DominatedBy,
			"cost_per_right_usd_ci_lower": number(a.CostPerRight.Lower),
			"cost_per_right_usd_ci_upper": number(a.CostPerRight.Upper),
			"failed":                      strconv.Itoa(c.Failed[a.Arm]),
			"ungradable":                  strconv.Itoa(c.Ungradable[a.Arm]),
			"fallbacks":                   strconv.Itoa(c.Fallbacks[a.Arm]),
		}
		if a.Frontier != nil {
			row["frontier"] = strconv.FormatBool(*a.Frontier)
		}
		rows = append(rows, row)
	}
	for _, p := range c.Power {
		rows = append(rows, map[string]string{
			"record":      "power",
			"discordance": number(&p.Discordance),
			"mde80":       number(&p.MDE80),
			"needed":      strconv.Itoa(p.Needed),
		})
	}
	for _, s := range c.Settings {
		rows = append(rows, map[string]string{"record": "setting", "name": s[0], "value": s[1]})
	}
	return sheet(columns, rows)
}

// intervalCells returns the cells of an interval by column.
func intervalCells(i *worth.Interval) map[string]string {
	if i == nil {
		return map[string]string{}
	}
	return map[string]string{
		"n":               strconv.Itoa(i.N),
		"clusters":        strconv.Itoa(i.Clusters),
		"estimate":        number(&i.Estimate),
		"discordance":     number(&i.Discordance),
		"lower_one_sided": number(&i.Lower),
		"upper_one_sided": number(&i.Upper),
		"ci95_lower":      number(&i.CI95[0]),
		"ci95_upper":      number(&i.CI95[1]),
	}
}

func wholeOrNone(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
