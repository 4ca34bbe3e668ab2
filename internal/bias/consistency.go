package bias

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// SelfConsistency says how far one reviewer agrees with itself on the same frozen answers (ADR-015). A block is a
// set of frozen answers. Repeats are the reviewer's reviews of one block in one order. A review without a score
// does not count.
type SelfConsistency struct {
	ReviewerID string `json:"reviewer_id"`
	Blocks     int    `json:"blocks"`  // counts blocks in which it gave a score
	Repeated   int    `json:"repeats"` // counts pairs of a block and an order that it scored at least twice
	// Identical is the share, 0 to 1, of the pairs in Repeated whose repeats all gave the same scores. Modal is the
	// mean, over the pairs in Repeated, of the share of repeats that gave the most frequent scores.
	Identical *float64 `json:"identical"`
	Modal     *float64 `json:"modal_share"`
	// ICC is the intraclass correlation ICC(1), at most 1. It says how similar the scores of one answer in one
	// order are. WithinSD is the standard deviation of the scores of one answer in one order, in points of the
	// scale from 1 to 10. Both intervals treat answers as independent.
	ICC      stat.Estimate `json:"icc"`
	WithinSD stat.Estimate `json:"within_sd"`
	// TauB is the mean of Kendall's tau-b, -1 to 1, over pairs of repeats. A pair is left out if one of its two
	// repeats gives all answers the same score.
	TauB     *float64 `json:"tau_b"`
	TauPairs int      `json:"tau_pairs"`
	BothOrders
}

// BothOrders says how a reviewer judged pairs of answers that it was shown in both orders.
type BothOrders struct {
	// Comparisons counts pairs of answers that were reviewed in both orders. The verdict in one order is the sign
	// of the mean difference in score over the repeats. A pair is in conflict if its two verdicts contradict each
	// other. The conflict is primacy if the answer shown first wins each time, and recency if it loses each time.
	// The interval treats the pairs of one question as a cluster.
	Comparisons  int           `json:"comparisons"`
	Primacy      int           `json:"primacy"`
	Recency      int           `json:"recency"`
	ConflictRate stat.Estimate `json:"conflict_rate"`
	// PrimacyTies and RecencyTies count pairs that are tied in one order only. In the other order the answer shown
	// first wins (primacy) or the one shown last (recency). Such a pair is no conflict here, although other authors
	// count it as one. UnstableRate is the share of pairs that are in conflict or tied in one order only. Its
	// interval treats the pairs of one question as a cluster too.
	PrimacyTies  int           `json:"primacy_ties"`
	RecencyTies  int           `json:"recency_ties"`
	UnstableRate stat.Estimate `json:"unstable_rate"`
	// PValue is the p value of an exact two-sided test of whether primacy and recency are equally likely among the
	// conflicts. It is null if there are no conflicts. The test exchanges primacy and recency for all conflicts of
	// a question together, because all pairs of one question come from the same reviews. If no question has more
	// than one conflict, this is the binomial test.
	PValue *float64 `json:"p_value"`
}

// inBothOrders sums up the counts of all questions, and adds the shares and the test.
func inBothOrders[Q cmp.Ordered](questions map[Q]bothOrders) (b BothOrders) {
	n := len(questions)
	trials := make([]int, 0, n)
	surplus := make([]int, 0, n)
	conflicts := make([]float64, 0, n)
	unstable := make([]float64, 0, n)
	for _, question := range slices.Sorted(maps.Keys(questions)) {
		o := questions[question]
		trials = append(trials, o.pairs)
		surplus = append(surplus, o.primacy-o.recency)
		conflicts = append(conflicts, float64(o.primacy+o.recency))
		unstable = append(unstable, float64(o.primacy+o.recency+o.primacyTies+o.recencyTies))
		b.Comparisons += o.pairs
		b.Primacy += o.primacy
		b.Recency += o.recency
		b.PrimacyTies += o.primacyTies
		b.RecencyTies += o.recencyTies
	}
	b.ConflictRate = stat.ClusteredShare(conflicts, trials)
	b.UnstableRate = stat.ClusteredShare(unstable, trials)
	if b.Primacy+b.Recency > 0 {
		b.PValue = new(stat.SignTest(surplus))
	}
	return b
}

// review holds the scores that one reviewer gave to one block in one session.
type review struct {
	order string             // the candidates in the order shown
	place map[string]int     // by candidate
	score map[string]float64 // by candidate; 1 to 10
}

// Consistency computes, from repeated reviews of frozen answers, how far each reviewer agrees with itself. It
// returns the reviewers by id. It skips records without a block id or a position. If a session has several records
// for the same reviewer and candidate, the first counts.
func Consistency(records iter.Seq[council.BiasMetricRecord]) []SelfConsistency {
	type sitting struct{ block, session string }
	reviewers := map[string]map[sitting]*review{}
	question := map[string]string{} // the question of each block. Blocks with the same hash have the same question
	for record := range records {
		if record.BlockID == nil || record.Position == nil {
			continue
		}
		if reviewers[record.ReviewerID] == nil {
			reviewers[record.ReviewerID] = map[sitting]*review{}
		}
		asked := *cmp.Or(record.QueryHash, record.QuestionKey, new(""))
		question[*record.BlockID] = cmp.Or(question[*record.BlockID], asked)
		at := sitting{*record.BlockID, record.SessionID}
		r := reviewers[record.ReviewerID][at]
		if r == nil {
			r = &review{place: map[string]int{}, score: map[string]float64{}}
			reviewers[record.ReviewerID][at] = r
		}
		if _, ok := r.place[record.ModelID]; ok {
			continue
		}
		r.place[record.ModelID] = *record.Position
		if record.ScoreValue != nil {
			if score, ok := rescale(*record.ScoreValue, record.ScoreScale); ok {
				r.score[record.ModelID] = score
			}
		}
	}

	consistency := make([]SelfConsistency, 0, len(reviewers))
	for _, id := range slices.Sorted(maps.Keys(reviewers)) {
		sittings := slices.SortedFunc(maps.Keys(reviewers[id]), func(a, b sitting) int {
			return cmp.Or(strings.Compare(a.block, b.block), strings.Compare(a.session, b.session))
		})
		blocks := map[string][]*review{}
		for _, at := range sittings {
			if r := reviewers[id][at]; len(r.score) > 0 {
				r.order = strings.Join(slices.SortedFunc(maps.Keys(r.place), func(a, b string) int {
					return cmp.Or(r.place[a]-r.place[b], strings.Compare(a, b))
				}), "\x00")
				blocks[at.block] = append(blocks[at.block], r)
			}
		}
		consistency = append(consistency, selfConsistency(id, blocks, question))
	}
	return consistency
}

func selfConsistency(id string, blocks map[string][]*review, question map[string]string) SelfConsistency {
	c := SelfConsistency{ReviewerID: id, Blocks: len(blocks)}
	var scores [][]float64 // one list of repeated scores for each answer in each order
	identical := 0
	modal := 0.0
	tau := 0.0
	byQuestion := map[string]bothOrders{}
	for _, block := range slices.Sorted(maps.Keys(blocks)) {
		orders := map[string][]*review{}
		for _, r := range blocks[block] {
			orders[r.order] = append(orders[r.order], r)
		}
		for _, order := range slices.Sorted(maps.Keys(orders)) {
			repeats := orders[order]
			if len(repeats) == 1 {
				continue
			}
			c.Repeated++
			most := mostAlike(repeats)
			modal += float64(most) / float64(len(repeats))
			if most == len(repeats) {
				identical++
			}
			for t := range taus(repeats) {
				tau += t
				c.TauPairs++
			}
			scores = append(scores, repeatedScores(order, repeats)...)
		}
		asked := cmp.Or(question[block], block)
		byQuestion[asked] = byQuestion[asked].plus(compareOrders(blocks[block]))
	}
	if c.Repeated > 0 {
		c.Identical = new(float64(identical) / float64(c.Repeated))
		c.Modal = new(modal / float64(c.Repeated))
	}
	if c.TauPairs > 0 {
		c.TauB = new(tau / float64(c.TauPairs))
	}
	c.ICC, c.WithinSD = stat.ICC(scores)
	c.BothOrders = inBothOrders(byQuestion)
	return c
}

// mostAlike returns the size of the largest set of repeats that all gave the same scores.
func mostAlike(repeats []*review) int {
	most := 0
	for _, a := range repeats {
		same := 0
		for _, b := range repeats {
			if maps.Equal(a.score, b.score) {
				same++
			}
		}
		most = max(most, same)
	}
	return most
}

// taus yields Kendall's tau-b of each pair of repeats. It leaves out pairs whose tau-b is undefined.
func taus(repeats []*review) iter.Seq[float64] {
	return func(yield func(float64) bool) {
		for i, a := range repeats {
			for _, b := range repeats[:i] {
				if t, ok := stat.KendallTau(shared(a.score, b.score)); ok && !yield(t) {
					return
				}
			}
		}
	}
}

// repeatedScores returns one list of scores for each answer in the order. It leaves out answers that only one repeat,
// or none, scored.
func repeatedScores(order string, repeats []*review) (scores [][]float64) {
	for candidate := range strings.SplitSeq(order, "\x00") {
		var given []float64
		for _, r := range repeats {
			if score, ok := r.score[candidate]; ok {
				given = append(given, score)
			}
		}
		if len(given) > 1 {
			scores = append(scores, given)
		}
	}
	return scores
}

// bothOrders counts pairs of answers that were reviewed in both orders, and among them conflicts and pairs tied in
// one order only.
type bothOrders struct{ pairs, primacy, recency, primacyTies, recencyTies int }

func (o bothOrders) plus(p bothOrders) bothOrders {
	return bothOrders{
		pairs:       o.pairs + p.pairs,
		primacy:     o.primacy + p.primacy,
		recency:     o.recency + p.recency,
		primacyTies: o.primacyTies + p.primacyTies,
		recencyTies: o.recencyTies + p.recencyTies,
	}
}

// compareOrders compares all pairs of answers in a block that were reviewed in both orders.
func compareOrders(reviews []*review) (o bothOrders) {
	type pair struct{ first, second string }
	differences := map[pair][]float64{}
	for _, r := range reviews {
		for a, x := range r.score {
			for b, y := range r.score {
				if r.place[a] < r.place[b] {
					differences[pair{a, b}] = append(differences[pair{a, b}], x-y)
				}
			}
		}
	}
	for p, forward := range differences {
		backward := differences[pair{p.second, p.first}]
		if p.first < p.second && backward != nil {
			o.add(verdict(forward), verdict(backward))
		}
	}
	return o
}

// add counts a pair with its verdicts in both orders. A verdict is positive if the answer that was shown first in
// its order won.
func (o *bothOrders) add(forward, backward int) {
	o.pairs++
	switch {
	case forward > 0 && backward > 0:
		o.primacy++
	case forward < 0 && backward < 0:
		o.recency++
	case forward+backward > 0 && forward*backward == 0:
		o.primacyTies++
	case forward+backward < 0 && forward*backward == 0:
		o.recencyTies++
	}
}

// verdict returns the sign of the summed differences. It is 0 if the sum is only a rounding error.
func verdict(differences []float64) int {
	sum := 0.0
	for _, d := range differences {
		sum += d
	}
	if math.Abs(sum) < 1e-9 {
		return 0
	}
	return cmp.Compare(sum, 0)
}

// shared compares two reviews, given as scores by candidate. It returns both scores of each answer that both reviews
// scored.
func shared(a, b map[string]float64) (x, y []float64) {
	for candidate, score := range a {
		if other, ok := b[candidate]; ok {
			x = append(x, score)
			y = append(y, other)
		}
	}
	return x, y
}
