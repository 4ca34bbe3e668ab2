package worth

import (
	"cmp"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// figures returns the figures of each arm, the cheapest first. Arms of unknown cost come last.
func figures(questions []Question, plan Design) []ArmFigures {
	var names []string
	for _, name := range slices.Concat([]string{plan.Treatment}, plan.Comparators, plan.Members, plan.Described) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	arms := make([]ArmFigures, 0, len(names))
	for _, name := range names {
		arms = append(arms, armFigures(questions, name, plan.Seed))
	}
	slices.SortStableFunc(arms, func(a, b ArmFigures) int {
		switch {
		case a.CostUSD == nil || b.CostUSD == nil:
			return cmp.Compare(known(b), known(a))
		default:
			return cmp.Compare(*a.CostUSD, *b.CostUSD)
		}
	})
	dominate(questions, arms, plan.Described)
	return arms
}

func known(a ArmFigures) int {
	if a.CostUSD == nil {
		return 0
	}
	return 1
}

func armFigures(questions []Question, name string, seed uint64) ArmFigures {
	arm := ArmFigures{Arm: name}
	cost := 0.0
	right := 0.0
	priced := len(questions) > 0
	index := map[string]int{}
	terms := [][]float64{} // the cost and the score of each cluster
	for _, q := range questions {
		score, graded := q.Score[name]
		if !graded {
			arm.Missing++
		}
		usd, known := q.CostUSD[name]
		priced = priced && known
		cost = council.AddUSD(cost, usd)
		right += score
		at, ok := index[q.Cluster]
		if !ok {
			at = len(terms)
			index[q.Cluster] = at
			terms = append(terms, []float64{0, 0})
		}
		terms[at][0] += usd
		terms[at][1] += score
	}
	if len(questions) > 0 {
		arm.Score = right / float64(len(questions))
	}
	if !priced {
		return arm
	}
	arm.CostUSD = &cost
	if right > 0 {
		arm.CostPerRight.Value = new(cost / right)
		low, high, ok := stat.Bootstrap(terms, func(sums []float64) float64 {
			if sums[1] <= 0 {
				return math.NaN()
			}
			return sums[0] / sums[1]
		}, seed)
		if ok {
			arm.CostPerRight.Lower = &low
			arm.CostPerRight.Upper = &high
		}
	}
	return arm
}

// dominate says which arms are on the frontier of cost and score, and which are dominated. An arm is dominated if a
// cheaper arm is better by a one-sided test, with Holm's adjustment over all such pairs. Arms that are only
// described, such as a placebo, are not choices. They are neither on the frontier nor dominated, and they dominate
// no arm.
func dominate(questions []Question, arms []ArmFigures, described []string) {
	isChoice := func(a ArmFigures) bool { return a.CostUSD != nil && !slices.Contains(described, a.Arm) }
	type pair struct{ cheaper, dearer int }
	var tested []pair
	var ps []float64
	for d := range arms {
		if !isChoice(arms[d]) {
			continue
		}
		frontier := true
		for c := range arms {
			if !isChoice(arms[c]) || *arms[c].CostUSD >= *arms[d].CostUSD {
				continue
			}
			frontier = frontier && arms[c].Score < arms[d].Score
			pairs, _ := differ(questions, Design{}, everything, arms[c].Arm, arms[d].Arm)
			if i := Paired(pairs); i != nil {
				tested = append(tested, pair{c, d})
				ps = append(ps, i.Above(0))
			}
		}
		arms[d].Frontier = &frontier
	}
	for k, p := range stat.Holm(ps) {
		if d := &arms[tested[k].dearer]; p < Level && d.DominatedBy == "" {
			d.DominatedBy = arms[tested[k].cheaper].Arm
		}
	}
}
