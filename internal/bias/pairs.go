package bias

import (
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

const (
	// deltaPairs is the least effect of the position that counts. The effect is the share of pairs that the answer
	// shown first wins in both orders, minus the share that it loses in both.
	deltaPairs = 0.05
	ofPairs    = "of pairs"
	// pairsOnly says why pairs cannot show favour. A reviewer may prefer one of two answers more often than the
	// other reviewers do because it judges better, or because it favours the author.
	pairsOnly = "each session shows only two answers, so a preference for one of them may be favouritism or correct " +
		"judgement: if the records say which answer is correct, look at the accuracy of each reviewer"
)

// PairJudge says how one reviewer judged pairs of frozen answers. Repeats of one order have one verdict together.
type PairJudge struct {
	ReviewerID string `json:"reviewer_id"`
	Questions  int    `json:"questions"` // counts questions with a pair in both orders
	// Agree counts pairs in both orders whose two verdicts are the same, ties included.
	Agree int `json:"agree"`
	BothOrders
	// Accuracy says how often the reviewer was right. It is null if no record says which answer is correct.
	Accuracy *Accuracy `json:"accuracy"`
}

// Accuracy is the share of reviews that gave the correct one of two answers the higher score. A tie counts as half
// right. The intervals treat the reviews of one question as a cluster.
type Accuracy struct {
	Reviews    int           `json:"reviews"`
	Share      stat.Estimate `json:"share"`
	ShownFirst stat.Estimate `json:"shown_first"` // where the correct answer was shown first
	ShownLast  stat.Estimate `json:"shown_last"`
}

// pairwise reports whether no session has more than two answers, and at least one session has two.
func (w *window) pairwise() bool {
	two := false
	for i := range w.sessions {
		switch n := len(w.sessions[i].candidates); {
		case n > 2:
			return false
		case n == 2:
			two = true
		}
	}
	return two
}

// judged holds how one reviewer judged pairs, by question. right counts the reviews that were right, and reviews
// counts all reviews. The first of the two numbers is for reviews that showed the correct answer first. The second
// is for reviews that showed it last.
type judged struct {
	orders         map[int]bothOrders
	right, reviews map[int][2]float64
}

// judgedPairs returns how each member judged pairs of frozen answers.
func (w *window) judgedPairs() []judged {
	type block struct {
		id       string
		reviewer int
	}
	reviews := map[block][]*review{}
	question := map[block]int{}
	all := make([]judged, len(w.names))
	for s := range w.sessions {
		x := &w.sessions[s]
		if len(x.candidates) != 2 {
			continue
		}
		for i, reviewer := range x.reviewers {
			if !x.comparesPair(i) {
				continue
			}
			if x.oneCorrect(i) {
				all[reviewer].grade(x, i)
			}
			if x.block == "" {
				continue
			}
			b := block{x.block, reviewer}
			r := &review{place: map[string]int{}, score: map[string]float64{}}
			for j, candidate := range x.candidates {
				r.place[w.names[candidate]] = x.position[i][j]
				r.score[w.names[candidate]] = x.y[i][j]
			}
			reviews[b] = append(reviews[b], r)
			question[b] = x.cluster
		}
	}
	for b, given := range reviews {
		if o := compareOrders(given); o.pairs > 0 {
			j := &all[b.reviewer]
			if j.orders == nil {
				j.orders = map[int]bothOrders{}
			}
			j.orders[question[b]] = j.orders[question[b]].plus(o)
		}
	}
	return all
}

// comparesPair reports whether a reviewer scored both answers and saw them in different positions.
func (x *scores) comparesPair(i int) bool {
	at := x.position[i]
	return !slices.ContainsFunc(x.y[i], math.IsNaN) && min(at[0], at[1]) >= 0 && at[0] != at[1]
}

// oneCorrect reports whether the records of a reviewer say that exactly one of two answers is correct.
func (x *scores) oneCorrect(i int) bool {
	correct := x.correct[i]
	return min(correct[0], correct[1]) == 0 && max(correct[0], correct[1]) == 1
}

// grade adds the review of two answers by one reviewer to the counts. Exactly one of the answers must be correct.
func (j *judged) grade(x *scores, i int) {
	if j.reviews == nil {
		j.right = map[int][2]float64{}
		j.reviews = map[int][2]float64{}
	}
	correct := int(x.correct[i][1]) // the index of the correct answer
	place := 0
	if x.position[i][correct] > x.position[i][1-correct] {
		place = 1
	}
	right := j.right[x.cluster]
	reviews := j.reviews[x.cluster]
	reviews[place]++
	switch a, b := x.y[i][correct], x.y[i][1-correct]; {
	case a > b:
		right[place]++
	case a == b:
		right[place] += 0.5
	}
	j.right[x.cluster] = right
	j.reviews[x.cluster] = reviews
}

// pairs returns how each reviewer judged pairs. It returns nil if the sessions do not hold pairs.
func (w *window) pairs() []PairJudge {
	if !w.pairwise() {
		return nil
	}
	var all []PairJudge
	for reviewer, j := range w.judgedPairs() {
		if len(j.orders) == 0 && len(j.reviews) == 0 {
			continue
		}
		p := PairJudge{
			ReviewerID: w.names[reviewer],
			Questions:  len(j.orders),
			BothOrders: inBothOrders(j.orders),
			Accuracy:   j.accuracy(),
		}
		p.Agree = p.Comparisons - p.Primacy - p.Recency - p.PrimacyTies - p.RecencyTies
		all = append(all, p)
	}
	return all
}

func (j judged) accuracy() *Accuracy {
	if len(j.reviews) == 0 {
		return nil
	}
	share := func(places ...int) (of stat.Estimate, total int) {
		right := make([]float64, 0, len(j.reviews))
		reviews := make([]int, 0, len(j.reviews))
		for _, question := range slices.Sorted(maps.Keys(j.reviews)) {
			hits := 0.0
			trials := 0
			for _, place := range places {
				hits += j.right[question][place]
				trials += int(j.reviews[question][place])
			}
			right = append(right, hits)
			reviews = append(reviews, trials)
			total += trials
		}
		return stat.ClusteredShare(right, reviews), total
	}
	var a Accuracy
	a.Share, a.Reviews = share(0, 1)
	a.ShownFirst, _ = share(0)
	a.ShownLast, _ = share(1)
	return &a
}

// pairPosition sets the position effect of each reviewer from pairs that it reviewed in both orders. It returns
// false if there are no such pairs.
func (h *findings) pairPosition(m *Metric) bool {
	if !h.w.pairwise() {
		return false
	}
	var members []Metric
	for reviewer, j := range h.w.judgedPairs() {
		if len(j.orders) == 0 {
			continue
		}
		var sums, counts []float64
		for _, question := range slices.Sorted(maps.Keys(j.orders)) {
			o := j.orders[question]
			sums = append(sums, float64(o.primacy-o.recency))
			counts = append(counts, float64(o.pairs))
		}
		member := h.metric(m.Name+"|"+h.w.names[reviewer], ofPairs,
			"pairs that the answer shown first wins in both orders, less those that it loses in both, over all pairs; "+
				"the interval of Bonett and Price (2012) between questions", h.reviewers[reviewer], deltaPairs)
		member.Subject = h.w.names[reviewer]
		member.Clusters = len(sums)
		if len(sums) < preliminaryFrom {
			member.missing(notSeparable)
		} else {
			mean, se := stat.AdjustedMean(sums, counts)
			member.set(stat.Effect{Estimate: mean, SE: se, DF: float64(len(sums) - 1)})
		}
		members = append(members, member)
	}
	if len(members) == 0 {
		return false
	}
	m.Unit = ofPairs
	m.Method = members[0].Method
	m.Delta = members[0].Delta
	h.headline(m, members, notSeparable)
	return true
}
