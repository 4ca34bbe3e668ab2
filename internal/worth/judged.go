package worth

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

// JudgedMargin is the margin of judged comparisons, where a difference is from -1 to 1.
const JudgedMargin = 0.10

// JudgedQuestion holds the judgements of the treatment and each other arm at one question.
type JudgedQuestion struct {
	ID      string
	Cluster string
	Against map[string]JudgedPair // by arm
}

// JudgedPair holds what judges said about the treatment and one other arm.
type JudgedPair struct {
	// Verdicts holds two verdicts of each judge, with the treatment shown first and second. A verdict is 1 if the
	// treatment is better, 0 if the other arm is, .5 for a tie, and nil if the reply was no judgement.
	Verdicts [][2]*float64
	// LogLength is log2 of a ratio: the length of the treatment's text divided by that of the other arm's.
	LogLength float64
}

// Judged holds what a judged comparison adds to a [Comparison].
type Judged struct {
	EqualLength *EqualLength `json:"at_equal_length"` // is null if the lengths do not vary
	Unstable    int          `json:"unstable"`        // counts how often a judge's two verdicts differ
	Missing     int          `json:"missing"`         // counts replies that are no judgement

	// sameLength says that all texts are equally long, so the plain difference is the difference at equal length.
	sameLength bool
}

// EqualLength is the difference if both texts were equally long. It is the intercept of a regression on log2 of the
// ratio of lengths. Its error comes from leaving out one cluster at a time.
type EqualLength struct {
	Estimate    float64 `json:"estimate"`
	PerDoubling float64 `json:"per_doubling"` // for each doubling of the ratio
	SE          float64 `json:"se"`
	Lower       float64 `json:"lower_one_sided"`
	Upper       float64 `json:"upper_one_sided"`
}

// AtEqualLength returns what the mean difference of the pairs would be at equal length. The argument ratios has, for
// each pair, log2 of the ratio of the lengths of its two texts. The result is nil if it is undefined.
func AtEqualLength(pairs []Pair, ratios []float64) *EqualLength {
	type sums struct{ n, x, xx, y, xy float64 }
	minus := func(a, b sums) sums { return sums{a.n - b.n, a.x - b.x, a.xx - b.xx, a.y - b.y, a.xy - b.xy} }
	fit := func(s sums) (intercept, slope float64, ok bool) {
		det := s.n*s.xx - s.x*s.x
		if det <= 1e-12*s.n*s.xx {
			return 0, 0, false
		}
		slope = (s.n*s.xy - s.x*s.y) / det
		return (s.y - slope*s.x) / s.n, slope, true
	}
	var all sums
	index := map[string]int{}
	clusters := []sums{}
	for i, p := range pairs {
		x := ratios[i]
		at := len(clusters)
		if found, ok := index[p.Cluster]; ok {
			at = found
		} else {
			index[p.Cluster] = at
			clusters = append(clusters, sums{})
		}
		one := sums{1, x, x * x, p.D, x * p.D}
		all = minus(all, minus(sums{}, one))
		clusters[at] = minus(clusters[at], minus(sums{}, one))
	}
	estimate, slope, ok := fit(all)
	if !ok || len(clusters) < 2 {
		return nil
	}
	spread := 0.0
	for _, c := range clusters {
		without, _, ok := fit(minus(all, c))
		if !ok {
			return nil
		}
		spread += (without - estimate) * (without - estimate)
	}
	g := float64(len(clusters))
	e := &EqualLength{Estimate: estimate, PerDoubling: slope, SE: math.Sqrt((g - 1) / g * spread)}
	limit := stat.StudentQuantile(1-Level, g-1) * e.SE
	e.Lower = estimate - limit
	e.Upper = estimate + limit
	return e
}

// CompareJudged compares the treatment with each comparator by the verdicts of judges. The result is the judgement of
// these judges, not what is right. The comparison is decided only if two more comparisons give the same verdict. In
// one of them all missing judgements are for the treatment, and in the other all of them are against it. The plan
// must have no members, because the judges do not compare the treatment with each of them.
func CompareJudged(questions []JudgedQuestion, plan Design) Report {
	r := judgedReport(questions, plan, nil)
	if r.Verdict == Undecided {
		return r
	}
	for _, side := range []float64{0, 1} {
		r.require(judgedReport(questions, plan, &side))
	}
	return r
}

// judgedReport compares the treatment with each comparator. If the argument instead is nil, missing judgements are
// left out. Otherwise each of them counts as that value.
func judgedReport(questions []JudgedQuestion, plan Design, instead *float64) Report {
	clusters := map[string]bool{}
	for _, q := range questions {
		clusters[q.Cluster] = true
	}
	r := Report{
		Questions:   len(questions),
		Clusters:    len(clusters),
		Verdict:     Undecided,
		Margin:      plan.Margin,
		Treatment:   plan.Treatment,
		Rivals:      plan.Rivals(),
		Comparisons: []Comparison{},
		Described:   []Comparison{},
		Arms:        []ArmFigures{},
		Power:       []Power{},
	}
	if len(questions) > 0 && r.Rivals > 0 {
		r.Power = Powers(r.Clusters, plan.Margin, r.Rivals)
	}
	compare := func(arm string) Comparison {
		pairs, judged := judge(questions, arm, instead)
		c := comparison(nil, plan, arm, pairs, plan.Margin)
		c.Judged = judged
		c.CostPerAdditionalRight = nil
		return c
	}
	sizes := make([]*Interval, 0, len(plan.Comparators))
	for _, arm := range plan.Comparators {
		c := compare(arm)
		r.Comparisons = append(r.Comparisons, c)
		sizes = append(sizes, c.Interval)
	}
	for _, arm := range plan.Described {
		r.Described = append(r.Described, compare(arm))
	}
	tested := pointers(r.Comparisons)
	adjust(tested, func(c *Comparison) (*float64, **float64) { return c.PShort, &c.PShortAdjusted })
	adjust(append(pointers(r.Comparisons), pointers(r.Described)...),
		func(c *Comparison) (*float64, **float64) { return c.P, &c.PAdjusted })
	r.judge(tested, sizes, true)
	return r
}

// judge returns the differences of the treatment and one arm. It leaves out questions without any judgement.
func judge(questions []JudgedQuestion, arm string, instead *float64) ([]Pair, *Judged) {
	judged := &Judged{sameLength: true}
	var pairs []Pair
	var ratios []float64
	for _, q := range questions {
		j, ok := q.Against[arm]
		if !ok {
			continue
		}
		sum := 0.0
		n := 0.0
		for _, orders := range j.Verdicts {
			if orders[0] != nil && orders[1] != nil && *orders[0] != *orders[1] {
				judged.Unstable++
			}
			for _, v := range orders {
				if v == nil {
					judged.Missing++
					v = instead
				}
				if v != nil {
					sum += *v
					n++
				}
			}
		}
		if n == 0 {
			continue
		}
		pairs = append(pairs, Pair{q.Cluster, 2*sum/n - 1})
		ratios = append(ratios, j.LogLength)
		judged.sameLength = judged.sameLength && math.Abs(j.LogLength) < 1e-9
	}
	judged.EqualLength = AtEqualLength(pairs, ratios)
	return pairs, judged
}
