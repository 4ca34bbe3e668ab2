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

// Question is one question of a comparison, with what each arm made of it.
type Question struct {
	ID      string
	Cluster string // its group, or its id
	// Score is the score of an arm, from 0 to 1. One that is missing, because the arm failed or
	// cannot be graded, counts as 0, and the verdict must be the same without it.
	Score map[string]float64
	// CostUSD is what the arm costs alone. One that is missing is unknown, never 0.
	CostUSD map[string]float64
}

// Design says what is compared with what.
type Design struct {
	Treatment   string   // the arm that has to pay
	Comparators []string // the arms that it has to beat
	Members     []string // the arms of which it has to beat the best; empty: none
	Described   []string // arms that are compared for information
	// Margin is the least difference that counts, above 0. With ValueUSD it is not used.
	Margin float64
	// ValueUSD is the worth of one right answer, above 0. The differences are then of the score
	// less the cost over this, and the margin is 0 (net benefit, Stinnett and Mullahy 1998).
	ValueUSD *float64
	Seed     uint64 // of folds and resampling
}

// Rivals returns how many ways the treatment has to beat by the margin: the comparators, and the best member.
func (p Design) Rivals() int { return len(p.Comparators) + min(1, len(p.Members)) }

// LeastClusters is the number of clusters from which on there is a verdict.
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
	Insufficient     UndecidedReason = "insufficient"       // fewer than 30 clusters
	DependsOnMissing UndecidedReason = "depends_on_missing" // without the answers that could not be graded it would be another verdict
	ShortOfMargin    UndecidedReason = "short_of_margin"    // better than all, by less than the margin
	CostUnknown      UndecidedReason = "cost_unknown"       // the verdict is in money, and not every cost that it takes is known
	TooFew           UndecidedReason = "too_few"            // questions to tell
)

// Comparison is the treatment against one arm.
type Comparison struct {
	Arm string `json:"arm"`
	// Interval is of the score of the treatment less that of the arm, net of costs with a value;
	// null below two clusters, and with a value where a cost is unknown.
	Interval *Interval `json:"interval"`
	// P is of any difference: McNemar's exact one for binary scores without groups, else by t.
	// PAdjusted is Holm's over all comparisons of the report.
	P         *float64 `json:"p"`
	PAdjusted *float64 `json:"p_adjusted"`
	// PShort is of the treatment being less than the margin better, and PShortAdjusted Holm's
	// over the comparisons of the verdict.
	PShort         *float64 `json:"p_short_of_margin"`
	PShortAdjusted *float64 `json:"p_short_of_margin_adjusted"`
	// PEquivalent is of the two being within the margin of each other.
	PEquivalent *float64 `json:"p_equivalent"`
	// CostPerAdditionalRight is the further cost per further right answer, in US dollars; null
	// where the treatment has no more right answers, or a cost is unknown.
	CostPerAdditionalRight *float64 `json:"cost_per_additional_right_usd"`
	Judged                 *Judged  `json:"judged"` // null where answers are graded
}

// beaten reports whether the treatment is better at the one-sided 5 % level, in a judged comparison
// at equal length too.
func (c *Comparison) beaten() bool {
	if c.Judged == nil || c.Judged.sameLength {
		return c.Interval.Lower > 0
	}
	return c.Interval.Lower > 0 && c.Judged.EqualLength != nil && c.Judged.EqualLength.Lower > 0
}

// ArmFigures is what one arm did.
type ArmFigures struct {
	Arm     string   `json:"arm"`
	Score   float64  `json:"score"`   // the mean; missing ones count as 0
	Missing int      `json:"missing"` // scores
	CostUSD *float64 `json:"cost_usd"`
	// CostPerRight is the cost per right answer, in US dollars, with its BCa interval over clusters.
	CostPerRight stat.Estimate `json:"cost_per_right_usd"`
	// Frontier says that no arm that costs less scores as much; null where a cost is unknown, and where the arm is only described.
	// DominatedBy is a cheaper arm that is better, by Holm over all such pairs; "" for none.
	Frontier    *bool  `json:"frontier"`
	DominatedBy string `json:"dominated_by"`
}

// Best is the treatment against whichever member is the best, which nobody knows.
type Best struct {
	Members []Comparison `json:"members"`
	// Picked are the best members of the other folds, by fold. More than one share the place. There are
	// none where nobody can tell in money, because a cost is unknown.
	Picked [][]string `json:"picked"`
	// Size is the difference to those picked, null as that of a [Comparison] is. It is the size of
	// the advantage, and no test: of a council as good as its best member it would say better too
	// often.
	Size *Interval `json:"size"`
}

// Report is the outcome of a comparison.
type Report struct {
	Questions   int             `json:"questions"`
	Clusters    int             `json:"clusters"`
	Verdict     Verdict         `json:"verdict"`
	Reason      UndecidedReason `json:"reason"` // "" unless undecided
	Needed      *int            `json:"needed"` // questions that would show a gain of twice the margin; null unless there are too few
	Margin      float64         `json:"margin"` // 0 with a value
	ValueUSD    *float64        `json:"value_usd"`
	Treatment   string          `json:"treatment"`
	Comparisons []Comparison    `json:"comparisons"`
	Best        *Best           `json:"best"` // null where it is not asked for
	Described   []Comparison    `json:"described"`
	Arms        []ArmFigures    `json:"arms"` // the cheapest first
	Power       []Power         `json:"power"`
	Rivals      int             `json:"rivals"` // ways that the treatment has to beat
}

// Compare compares the arms of questions as the plan says.
func Compare(questions []Question, plan Design) Report {
	r := report(questions, plan, everything)
	if r.Verdict != Undecided {
		graded := report(questions, plan, gradedOnly)
		if graded.Verdict != r.Verdict {
			r.Verdict = Undecided
			r.Reason = DependsOnMissing
		}
	}
	r.Arms = figures(questions, plan)
	return r
}

// missing says what becomes of scores that are missing.
type missing int

const (
	everything missing = iota // they are 0
	gradedOnly                // the pair is left out
)

// differ returns the differences of two arms, and reports whether all costs that they need are
// known: otherwise there are none.
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

// report compares without the figures of the arms.
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

// judge draws the verdict. A treatment pays when it beats every comparator at the one-sided 5 %
// level, which needs no adjustment (intersection-union, Berger 1982), and by the margin.
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
	short := slices.ContainsFunc(tested, func(c *Comparison) bool { return *c.PShortAdjusted < Level })
	switch {
	case beaten && large:
		r.Verdict = Pays
	case short:
		r.Verdict = DoesNotPay
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

// discordant counts the pairs that differ, and reports whether all differences are -1, 0 or 1.
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

// additional returns the further cost per further right answer.
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

// adjust sets Holm's adjusted p of the comparisons that have a p.
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

// folds is into how many parts the clusters are divided at most.
const folds = 10

// foldOf divides the clusters into min(10, clusters) folds of nearly the same size, by the rank
// of a hash.
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

// crossFit compares the treatment, in each fold, with the members that have the highest mean in
// the other folds. fold has the fold of each cluster.
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
			if sums[i] >= best-1e-12*math.Abs(best) { // but for rounding, the same
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
