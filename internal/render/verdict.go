package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/councild/councild/internal/worth"
)

// headline returns the verdict in plain words, with the result of the comparison and the differences that it could
// have detected.
func (c Comparison) headline() string {
	by := ""
	if c.Judged {
		by = ", by the judgement of " + list(clipped(c.Judges))
	}
	switch c.Verdict {
	case worth.Pays:
		return "Pays" + by + ": " + c.pays()
	case worth.DoesNotPay:
		return "Does not pay" + by + ": " + c.doesNotPay()
	default:
		return "Undecided" + by + ": " + c.undecided()
	}
}

// pays says what the council beats. It names the arm against which the lower limit of the advantage is smallest.
func (c Comparison) pays() string {
	nearest := slices.MinFunc(c.tested(), func(a, b worth.Comparison) int {
		return cmp.Compare(a.Interval.Lower, b.Interval.Lower)
	})
	cost := ""
	if times := c.times(nearest.Arm); times != "" {
		cost = ", at " + times + " its cost"
	}
	return fmt.Sprintf("the council beats every simpler way in the plan. "+
		"The nearest is %s, which it beats by %.1f points%s (lower limit %s%s)%s.",
		clip(nearest.Arm), 100*nearest.Interval.Estimate, c.net(), signed(nearest.Interval.Lower), atEqualLength(nearest), cost)
}

// times divides the cost of the council by the cost of an arm. It returns the quotient as text, such as "3 times",
// or "" if a cost is not known or the arm costs nothing.
func (c Comparison) times(arm string) string {
	cost := map[string]*float64{}
	for _, a := range c.Arms {
		cost[a.Arm] = a.CostUSD
	}
	if council, other := cost[c.Treatment], cost[arm]; council != nil && other != nil && *other > 0 {
		return rough(*council / *other) + " times"
	}
	return ""
}

// doesNotPay says which arms the council does not beat by enough.
func (c Comparison) doesNotPay() string {
	short := only(c.tested(), func(one worth.Comparison) bool {
		return one.PShortAdjusted != nil && *one.PShortAdjusted < worth.Level
	})
	against := make([]string, len(short))
	for i, one := range short {
		against[i] = fmt.Sprintf("%s (%s, upper limit %s)",
			clip(one.Arm), signed(one.Interval.Estimate), signed(one.Interval.Upper))
	}
	if c.ValueUSD != nil {
		return fmt.Sprintf("where a right answer is worth $%s, the council costs more than it adds, "+
			"in points net of costs, compared with %s.", usd(*c.ValueUSD), list(against))
	}
	return fmt.Sprintf("the council is less than %s better than %s.", points(c.Margin), list(against))
}

// undecided says why there is no verdict, and which differences the questions could have detected.
func (c Comparison) undecided() string {
	var why string
	switch c.Reason {
	case worth.Insufficient:
		why = c.insufficient()
	case worth.DependsOnMissing:
		why = "the verdict would change without the questions at which an answer is missing. A missing answer counts as wrong."
		if c.Judged {
			why = "the verdict would change if all replies that are no judgement were for one side."
		}
	case worth.ShortOfMargin:
		why = c.shortOfMargin()
	case worth.CostUnknown:
		unknown := only(c.Arms, func(a worth.ArmFigures) bool { return a.CostUSD == nil })
		names := make([]string, len(unknown))
		for i, a := range unknown {
			names[i] = a.Arm
		}
		why = "the verdict is in money, and the cost of these is unknown: " + list(clipped(names)) + "."
	case worth.TooFew: // couldShow, which is added below, gives the reason.
	default:
		why = "no reason is known."
	}
	return strings.TrimSpace(why + " " + c.couldShow())
}

// insufficient says how many clusters there are, and how many a verdict needs.
func (c Comparison) insufficient() string {
	if len(c.tested()) == 0 {
		return "the plan has nothing to compare the council with."
	}
	least := c.Clusters
	for _, one := range c.tested() {
		if one.Interval == nil {
			least = min(least, 1)
		} else {
			least = min(least, one.Interval.Clusters)
		}
	}
	return fmt.Sprintf("a verdict needs %s, and there are %s. Questions of one group are one cluster, "+
		"and each other question is a cluster of its own.", counted(worth.LeastClusters, "cluster"), grouped(least))
}

// shortOfMargin says which arms the council beats by less than the margin.
func (c Comparison) shortOfMargin() string {
	var by []string
	add := func(name string, i *worth.Interval) {
		if i != nil && i.Estimate < c.Margin {
			by = append(by, fmt.Sprintf("%s by %.1f (90 %% interval %s)",
				name, 100*i.Estimate, limits(i.Lower, i.Upper)))
		}
	}
	for _, one := range c.Comparisons {
		add(clip(one.Arm), one.Interval)
	}
	if c.Best != nil {
		add("the best member", c.Best.Size)
	}
	return fmt.Sprintf("the council beats every simpler way in the plan, but not each by %s: %s.",
		points(c.Margin), list(by))
}

// notBeaten says which arms the council is not shown to beat, or "" if there are none.
func (c Comparison) notBeaten() string {
	open := only(c.tested(), func(one worth.Comparison) bool {
		return one.Interval.Lower <= 0 || one.Judged != nil && one.Judged.EqualLength != nil && one.Judged.EqualLength.Lower <= 0
	})
	against := make([]string, len(open))
	for i, one := range open {
		against[i] = fmt.Sprintf("%s %s (%s%s)", clip(one.Arm), signed(one.Interval.Estimate),
			limits(one.Interval.Lower, one.Interval.Upper), atEqualLength(one))
	}
	if len(against) == 0 {
		return ""
	}
	return fmt.Sprintf("The council is not shown to beat these (points%s, 90 %% intervals): %s.", c.net(), list(against))
}

// couldShow says how large a true difference the questions can detect, and how many questions can detect twice the
// margin. Both depend on how often the scores of an arm and of the council differ. couldShow uses the arm for which
// they differ most often.
func (c Comparison) couldShow() string {
	var most *worth.Interval
	for _, one := range c.tested() {
		if one.Interval != nil && (most == nil || one.Interval.Discordance > most.Discordance) {
			most = one.Interval
		}
	}
	if most == nil {
		return ""
	}
	asked := asked(most.N, most.Clusters)
	if most.Discordance == 0 {
		return "every way got the same scores at all " + asked + "."
	}
	power := worth.PowerAt(most.Discordance, most.Clusters, c.Margin, c.Rivals)
	text := fmt.Sprintf("%s can detect a true difference of %s%s to all other ways.", asked, about(power.MDE80), c.net())
	if c.Margin > 0 {
		text += fmt.Sprintf(" To detect %s you need %s", points(power.Gain), grouped(power.Needed))
		if power.Needed <= most.Clusters {
			text += ", so the difference may be smaller than that"
		}
		text += "."
	}
	return text
}

// atEqualLength returns the difference at equal length of a judged comparison, or "" if there is none.
func atEqualLength(one worth.Comparison) string {
	if one.Judged == nil || one.Judged.EqualLength == nil {
		return ""
	}
	e := one.Judged.EqualLength
	return fmt.Sprintf("; at equal length %s, lower limit %s", signed(e.Estimate), signed(e.Lower))
}
