package worth

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

// Question is one question of a comparison, with the score and cost of each arm.
type Question struct {
	ID      string
	Cluster string // the question's group, or its id
	// Score is the score of an arm, from 0 to 1. A score is missing if the arm failed or cannot be graded. A missing
	// score counts as 0. The verdict must stay the same if missing scores are left out.
	Score map[string]float64
	// CostUSD is what the arm costs alone. A missing cost is unknown, never 0.
	CostUSD map[string]float64
}

// Design says which arms to compare, and how.
type Design struct {
	Treatment   string   // the arm that the verdict is about
	Comparators []string // the arms that the treatment has to beat
	Members     []string // the treatment has to beat the best of these arms, if there are any
	Described   []string // arms that are compared for information
	// Margin is the least difference that counts, above 0. It is not used with ValueUSD.
	Margin float64
	// ValueUSD is the worth of one right answer, above 0. Arms are then compared by the score minus cost /
	// ValueUSD, and the margin is 0 (net benefit, Stinnett and Mullahy 1998).
	ValueUSD *float64
	Seed     uint64 // seeds folds and resampling
}

// Rivals returns how many rivals the treatment has to beat by the margin: the comparators, and the best member.
func (p Design) Rivals() int { return len(p.Comparators) + min(1, len(p.Members)) }

// LeastClusters is the least number of clusters for a verdict.
const LeastClusters = 30

// Verdict is the outcome of a comparison.
type Verdict string

// The verdicts.
const (
	Pays       Verdict = "pays"
	DoesNotPay Verdict = "does_not_pay"
	Undecided  Verdict = "undecided"
)

// UndecidedReason says why a comparison is undecided.
type UndecidedReason string

// The reasons.
const (
	Insufficient UndecidedReason = "insufficient" // fewer than 30 clusters
	// DependsOnMissing says that the verdict would be different without the answers that could not be graded.
	DependsOnMissing UndecidedReason = "depends_on_missing"
	ShortOfMargin    UndecidedReason = "short_of_margin" // better than all, but by less than the margin
	// CostUnknown says that the verdict is in money and that a cost is missing.
	CostUnknown UndecidedReason = "cost_unknown"
	TooFew      UndecidedReason = "too_few" // too few questions to decide
)

// Comparison is the comparison of the treatment with one arm.
type Comparison struct {
	Arm string `json:"arm"`
	// Interval is the difference in score, the treatment minus the arm. If [Design.ValueUSD] is set, costs are
	// subtracted. Interval is null below two clusters, and if a cost that it needs is unknown.
	Interval *Interval `json:"interval"`
	// P is the p value for any difference. It is McNemar's exact p for binary scores without groups, and otherwise
	// the p of a t test. PAdjusted is P with Holm's adjustment over all comparisons of the report.
	P         *float64 `json:"p"`
	PAdjusted *float64 `json:"p_adjusted"`
	// PShort is a one-sided p value. A small PShort is evidence that the treatment's advantage over the arm is
	// below the margin. PShortAdjusted is PShort with Holm's adjustment over the comparisons of the verdict.
	PShort         *float64 `json:"p_short_of_margin"`
	PShortAdjusted *float64 `json:"p_short_of_margin_adjusted"`
	// A small PEquivalent, a p value, is evidence that the two arms differ by less than the margin. It is null if
	// the margin is 0.
	PEquivalent *float64 `json:"p_equivalent"`
	// CostPerAdditionalRight is the additional cost for each additional right answer, in US dollars. It is null if
	// the treatment does not have more right answers than the arm, or if a cost is unknown.
	CostPerAdditionalRight *float64 `json:"cost_per_additional_right_usd"`
	Judged                 *Judged  `json:"judged"` // is null if answers are graded
}

// beaten reports whether the treatment is better than the arm at the one-sided 5 % level. In a judged comparison it
// must also be better at equal length.
func (c *Comparison) beaten() bool {
	if c.Judged == nil || c.Judged.sameLength {
		return c.Interval.Lower > 0
	}
	return c.Interval.Lower > 0 && c.Judged.EqualLength != nil && c.Judged.EqualLength.Lower > 0
}

// ArmFigures are the score and the cost of one arm.
type ArmFigures struct {
	Arm     string   `json:"arm"`
	Score   float64  `json:"score"`   // the mean, where missing scores count as 0
	Missing int      `json:"missing"` // counts missing scores
	CostUSD *float64 `json:"cost_usd"`
	// CostPerRight is the cost for each right answer, in US dollars, with its BCa interval over clusters.
	CostPerRight stat.Estimate `json:"cost_per_right_usd"`
	// Frontier says that no cheaper arm scores as much. It is null if a cost is unknown, and if the arm is only
	// described. DominatedBy is a cheaper arm that is better, with Holm's adjustment over all such pairs, or "".
	Frontier    *bool  `json:"frontier"`
	DominatedBy string `json:"dominated_by"`
}

// Best compares the treatment with the best member, although it is not known which member that is.
type Best struct {
	Members []Comparison `json:"members"`
	// Picked holds, for each fold (one of at most ten parts of the questions), the members that are best in the
	// other folds. Several members may be equally good. It is empty if the comparison is in money and a cost is
	// unknown.
	Picked [][]string `json:"picked"`
	// Size is the difference to the picked members. It is null in the same cases as the interval of a [Comparison].
	// It estimates the size of the advantage. It must not be used as a test, because for a council that is exactly as
	// good as its best member, such a test would find an advantage too often.
	Size *Interval `json:"size"`
}

// Report is the outcome of a comparison.
type Report struct {
	Questions int             `json:"questions"`
	Clusters  int             `json:"clusters"`
	Verdict   Verdict         `json:"verdict"`
	Reason    UndecidedReason `json:"reason"` // "" unless undecided
	// Needed is how many questions would show a gain of twice the margin. It is null if Reason is not [TooFew], if
	// [Design.ValueUSD] is set, or if no scores differ.
	Needed      *int         `json:"needed"`
	Margin      float64      `json:"margin"` // 0 if ValueUSD is set
	ValueUSD    *float64     `json:"value_usd"`
	Treatment   string       `json:"treatment"`
	Comparisons []Comparison `json:"comparisons"`
	Best        *Best        `json:"best"` // is null without members
	Described   []Comparison `json:"described"`
	Arms        []ArmFigures `json:"arms"` // the cheapest first
	Power       []Power      `json:"power"`
	Rivals      int          `json:"rivals"` // the number of rivals that the treatment has to beat
	// Short has the arms that make the verdict [DoesNotPay]: the data rule out that the treatment is better by the
	// margin. The test is that of the verdict. The Holm adjustment is needed here too, because the reader picks an arm
	// after all tests. Each arm has passed the test with missing scores and without them.
	Short []string `json:"-"`
}

// Compare compares the arms of questions as the plan says. It computes the verdict twice: with missing scores as 0,
// and without the pairs in which a score is missing. If the two verdicts differ, the comparison is undecided.
func Compare(questions []Question, plan Design) Report {
	r := report(questions, plan, everything)
	if r.Verdict != Undecided {
		r.require(report(questions, plan, gradedOnly))
	}
	r.Arms = figures(questions, plan)
	return r
}

// require makes a decided report undecided if another report on the same questions has another verdict. The two reports
// treat missing scores or judgements differently.
func (r *Report) require(other Report) {
	if other.Verdict != r.Verdict {
		r.Verdict = Undecided
		r.Reason = DependsOnMissing
		r.Short = nil
	}
	r.Short = slices.DeleteFunc(r.Short, func(arm string) bool { return !slices.Contains(other.Short, arm) })
}

// missing says how to treat missing scores.
type missing int

const (
	everything missing = iota // they are 0
	gradedOnly                // the pair is left out
)

// differ returns the differences of two arms. It returns false, and no differences, if a cost that it needs is
// unknown.
func differ(questions []Question, plan Design, m missing, first, second string) (pairs []Pair, known bool) {
	for _, q := range questions {
		a, hasA := q.Score[first]
		b, hasB := q.Score[second]
		if m == gradedOnly && (!hasA || !hasB) {
			continue
		}
		d := a - b
		if plan.ValueUSD != nil {
			costA, knownA := q.CostUSD[first]
			costB, knownB := q.CostUSD[second]
			if !knownA || !knownB {
				return nil, false
			}
			d -= (costA - costB) / *plan.ValueUSD
		}
		pairs = append(pairs, Pair{q.Cluster, d})
	}
	return pairs, true
}

// report compares the arms, but does not fill in the figures of each arm.
func report(questions []Question, plan Design, m missing) Report {
	r := Report{
		Questions:   len(questions),
		Clusters:    countClusters(questions),
		Verdict:     Undecided,
		Margin:      plan.Margin,
		ValueUSD:    plan.ValueUSD,
		Treatment:   plan.Treatment,
		Rivals:      plan.Rivals(),
		Comparisons: []Comparison{},
		Described:   []Comparison{},
		Power:       []Power{},
	}
	if plan.ValueUSD != nil {
		r.Margin = 0
	} else if len(questions) > 0 && r.Rivals > 0 {
		r.Power = Powers(r.Clusters, plan.Margin, plan.Rivals())
	}
	compare := func(arms []string) (all []Comparison, known bool) {
		all = make([]Comparison, 0, len(arms))
		known = true
		for _, arm := range arms {
			pairs, ok := differ(questions, plan, m, plan.Treatment, arm)
			known = known && ok
			all = append(all, comparison(questions, plan, arm, pairs, r.Margin))
		}
		return all, known
	}
	var known bool
	r.Comparisons, known = compare(plan.Comparators)
	r.Described, _ = compare(plan.Described)
	tested := pointers(r.Comparisons)
	sizes := make([]*Interval, 0, len(r.Comparisons)+1)
	for _, c := range r.Comparisons {
		sizes = append(sizes, c.Interval)
	}
	if len(plan.Members) > 0 {
		members, all := compare(plan.Members)
		r.Best = &Best{Members: members, Picked: [][]string{}}
		if all {
			r.Best.Picked, r.Best.Size = crossFit(questions, plan, m, foldOf(questions, plan.Seed))
		}
		known = known && all
		tested = append(tested, pointers(members)...)
		sizes = append(sizes, r.Best.Size)
	}
	adjust(tested, func(c *Comparison) (*float64, **float64) { return c.PShort, &c.PShortAdjusted })
	adjust(append(slices.Clone(tested), pointers(r.Described)...), func(c *Comparison) (*float64, **float64) {
		return c.P, &c.PAdjusted
	})
	r.judge(tested, sizes, known)
	return r
}

// judge sets the verdict. A treatment pays if it beats every comparator and every member at the one-sided 5 %
// level. Its estimated advantage over each comparator, and over the best member, must also be at least the margin.
// The level needs no adjustment (intersection-union, Berger 1982).
func (r *Report) judge(tested []*Comparison, sizes []*Interval, known bool) {
	lacks := func(i *Interval) bool { return i == nil || i.Clusters < LeastClusters }
	few := func(c *Comparison) bool { return lacks(c.Interval) }
	switch {
	case !known:
		r.Reason = CostUnknown
		return
	case len(tested) == 0 || slices.ContainsFunc(tested, few) || slices.ContainsFunc(sizes, lacks):
		r.Reason = Insufficient
		return
	}
	beaten := !slices.ContainsFunc(tested, func(c *Comparison) bool { return !c.beaten() })
	large := !slices.ContainsFunc(sizes, func(i *Interval) bool { return i.Estimate < r.Margin })
	var short []string
	for _, c := range tested {
		if *c.PShortAdjusted < Level {
			short = append(short, c.Arm)
		}
	}
	switch {
	case beaten && large:
		r.Verdict = Pays
	case short != nil:
		r.Verdict = DoesNotPay
		r.Short = short
	case beaten:
		r.Reason = ShortOfMargin
	default:
		r.Reason = TooFew
		psi := 0.0
		for _, c := range tested {
			psi = max(psi, c.Interval.Discordance)
		}
		if r.Margin > 0 && psi > 0 {
			r.Needed = new(PowerAt(psi, r.Clusters, r.Margin, r.Rivals).Needed)
		}
	}
}

// comparison returns the figures of the treatment against one arm.
func comparison(questions []Question, plan Design, arm string, pairs []Pair, margin float64) Comparison {
	c := Comparison{
		Arm:                    arm,
		Interval:               Paired(pairs),
		CostPerAdditionalRight: additional(questions, plan.Treatment, arm),
	}
	if c.Interval == nil {
		return c
	}
	c.P = new(c.Interval.P)
	c.PShort = new(c.Interval.Below(margin))
	if c.Interval.Clusters == c.Interval.N {
		if first, second, binary := discordant(pairs); binary {
			p, _, _ := stat.McNemar(first, second)
			c.P = &p
		}
	}
	if margin > 0 {
		c.PEquivalent = new(c.Interval.Equivalent(margin))
	}
	return c
}

// discordant counts the pairs that differ in each direction, and reports whether all differences are -1, 0 or 1.
func discordant(pairs []Pair) (first, second int, binary bool) {
	for _, p := range pairs {
		switch p.D {
		case 1:
			first++
		case -1:
			second++
		case 0:
		default:
			return 0, 0, false
		}
	}
	return first, second, true
}

// additional returns the additional cost for each additional right answer, or nil if it is undefined.
func additional(questions []Question, first, second string) *float64 {
	cost := 0.0
	right := 0.0
	for _, q := range questions {
		a, knownA := q.CostUSD[first]
		b, knownB := q.CostUSD[second]
		if !knownA || !knownB {
			return nil
		}
		cost += a - b
		right += q.Score[first] - q.Score[second]
	}
	if right <= 0 {
		return nil
	}
	return new(cost / right)
}

func pointers(all []Comparison) []*Comparison {
	p := make([]*Comparison, len(all))
	for i := range all {
		p[i] = &all[i]
	}
	return p
}

// adjust sets Holm's adjusted p for the comparisons that have a p.
func adjust(all []*Comparison, of func(*Comparison) (p *float64, adjusted **float64)) {
	var ps []float64
	var to []**float64
	for _, c := range all {
		if p, adjusted := of(c); p != nil {
			ps = append(ps, *p)
			to = append(to, adjusted)
		}
	}
	for i, p := range stat.Holm(ps) {
		*to[i] = &p
	}
}

func countClusters(questions []Question) int {
	seen := map[string]bool{}
	for _, q := range questions {
		seen[q.Cluster] = true
	}
	return len(seen)
}

// folds is the largest number of parts that the clusters are divided into.
const folds = 10

// foldOf divides the clusters into min(10, clusters) folds of nearly the same size. It sorts the clusters by a
// hash, and deals them out to the folds in turn.
func foldOf(questions []Question, seed uint64) map[string]int {
	type ranked struct {
		name string
		hash [sha256.Size]byte
	}
	var all []ranked
	seen := map[string]bool{}
	for _, q := range questions {
		if !seen[q.Cluster] {
			seen[q.Cluster] = true
			text := binary.BigEndian.AppendUint64(nil, seed)
			all = append(all, ranked{q.Cluster, sha256.Sum256(append(append(text, 0), q.Cluster...))})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.name, b.name))
	})
	fold := map[string]int{}
	for rank, c := range all {
		fold[c.name] = rank % min(folds, len(all))
	}
	return fold
}

// crossFit compares the treatment, in each fold, with the members that have the highest mean in the other folds.
// fold maps each cluster to its fold.
func crossFit(questions []Question, plan Design, m missing, fold map[string]int) (picked [][]string, size *Interval) {
	if m == gradedOnly {
		questions = slices.DeleteFunc(slices.Clone(questions), func(q Question) bool {
			_, has := q.Score[plan.Treatment]
			return !has || slices.ContainsFunc(plan.Members, func(arm string) bool { _, has := q.Score[arm]; return !has })
		})
	}
	parts := 0
	for _, part := range fold {
		parts = max(parts, part+1)
	}
	value := func(q Question, arm string) float64 {
		v := q.Score[arm]
		if plan.ValueUSD != nil {
			v -= q.CostUSD[arm] / *plan.ValueUSD
		}
		return v
	}
	picked = make([][]string, parts)
	for part := range parts {
		sums := make([]float64, len(plan.Members))
		for _, q := range questions {
			if fold[q.Cluster] != part {
				for i, arm := range plan.Members {
					sums[i] += value(q, arm)
				}
			}
		}
		best := slices.Max(sums)
		for i, arm := range plan.Members {
			if sums[i] >= best-1e-12*math.Abs(best) { // equal except for rounding
				picked[part] = append(picked[part], arm)
			}
		}
	}
	pairs := make([]Pair, 0, len(questions))
	for _, q := range questions {
		others := picked[fold[q.Cluster]]
		d := value(q, plan.Treatment)
		for _, arm := range others {
			d -= value(q, arm) / float64(len(others))
		}
		pairs = append(pairs, Pair{q.Cluster, d})
	}
	return picked, Paired(pairs)
}
