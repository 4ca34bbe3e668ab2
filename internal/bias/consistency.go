package bias

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/councild/councild/internal/council"
)

// Estimate is a figure with its 95 % interval. What is undefined is null.
type Estimate struct {
	Value *float64 `json:"point_estimate"`
	Lower *float64 `json:"ci_lower"`
	Upper *float64 `json:"ci_upper"`
}

// SelfConsistency says how far one reviewer repeats itself over the same frozen
// answers (ADR-015). Repeats are its reviews of one block in one order; only
// scores that were given enter.
type SelfConsistency struct {
	ReviewerID string `json:"reviewer_id"`
	Blocks     int    `json:"blocks"`  // in which it gave a score
	Repeated   int    `json:"repeats"` // blocks in one order that it scored at least twice
	// Identical is the share, 0 to 1, of those whose repeats all gave the same
	// scores, Modal the mean share of repeats that gave the most frequent scores.
	Identical *float64 `json:"identical"`
	Modal     *float64 `json:"modal_share"`
	// ICC is the intraclass correlation ICC(1) of the scores that one answer got in
	// one order, up to 1, WithinSD their standard deviation in points of 1 to 10.
	// Both intervals take answers for independent.
	ICC      Estimate `json:"icc"`
	WithinSD Estimate `json:"within_sd"`
	// TauB is the mean of Kendall's tau-b, -1 to 1, over the pairs of repeats in
	// which it is defined: both tell some answers apart.
	TauB     *float64 `json:"tau_b"`
	TauPairs int      `json:"tau_pairs"`
	// Comparisons are pairs of answers of a block that were reviewed in both orders;
	// a verdict is the sign of the mean difference in score over the repeats in one
	// order. A pair is in conflict when its verdicts contradict each other: for
	// primacy, when the answer shown first wins each time, for recency, when it
	// loses. The interval is Wilson's and takes pairs for independent.
	Comparisons  int      `json:"comparisons"`
	Primacy      int      `json:"primacy"`
	Recency      int      `json:"recency"`
	ConflictRate Estimate `json:"conflict_rate"`
	// PrimacyTies and RecencyTies are pairs that one order ties and the other does not:
	// whose better answer wins only when it is shown first, or only when it is shown
	// last. They are no conflicts here. Other authors count them with the conflicts;
	// UnstableRate is the share of both together, its interval as above.
	PrimacyTies  int      `json:"primacy_ties"`
	RecencyTies  int      `json:"recency_ties"`
	UnstableRate Estimate `json:"unstable_rate"`
	// PValue is that of the exact two-sided test of primacy against recency among the
	// conflicts; null without one. The pairs of a block share its reviews, so chance
	// turns the conflicts of a whole block at once. With one conflict a block it is the
	// binomial test.
	PValue *float64 `json:"p_value"`
}

// review is what one reviewer made of one block in one session.
type review struct {
	order string             // the candidates as they were shown
	place map[string]int     // by candidate
	score map[string]float64 // by candidate; 1 to 10
}

// Consistency computes from repeated reviews of frozen answers how far each
// reviewer agrees with itself, by reviewer id. Records without a block id or a
// position are passed over; of several for one session, reviewer and candidate the
// first counts.
func Consistency(records iter.Seq[council.BiasMetricRecord]) []SelfConsistency {
	type sitting struct{ block, session string }
	reviewers := map[string]map[sitting]*review{}
	for record := range records {
		if record.BlockID == nil || record.Position == nil {
			continue
		}
		if reviewers[record.ReviewerID] == nil {
			reviewers[record.ReviewerID] = map[sitting]*review{}
		}
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
		consistency = append(consistency, selfConsistency(id, blocks))
	}
	return consistency
}

func selfConsistency(id string, blocks map[string][]*review) SelfConsistency {
	c := SelfConsistency{ReviewerID: id, Blocks: len(blocks)}
	var scores [][]float64 // by answer and order
	identical, modal, tau := 0, 0.0, 0.0
	surplus := make([]int, 0, len(blocks)) // by block, its conflicts for primacy less those for recency
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
			most := 0
			for i, a := range repeats {
				same := 0
				for j, b := range repeats {
					if maps.Equal(a.score, b.score) {
						same++
					}
					if j < i {
						if t, ok := kendallTau(a.score, b.score); ok {
							tau += t
							c.TauPairs++
						}
					}
				}
				most = max(most, same)
			}
			c.Repeated++
			modal += float64(most) / float64(len(repeats))
			if most == len(repeats) {
				identical++
			}
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
		}
		before := c.Primacy - c.Recency
		c.compareOrders(blocks[block])
		surplus = append(surplus, c.Primacy-c.Recency-before)
	}
	if c.Repeated > 0 {
		c.Identical, c.Modal = new(float64(identical)/float64(c.Repeated)), new(modal/float64(c.Repeated))
	}
	if c.TauPairs > 0 {
		c.TauB = new(tau / float64(c.TauPairs))
	}
	c.ICC, c.WithinSD = reliability(scores)
	conflicts := c.Primacy + c.Recency
	if c.Comparisons > 0 {
		c.ConflictRate = wilson(conflicts, c.Comparisons)
		c.UnstableRate = wilson(conflicts+c.PrimacyTies+c.RecencyTies, c.Comparisons)
	}
	if conflicts > 0 {
		c.PValue = new(signTest(surplus))
	}
	return c
}

// compareOrders counts, over the pairs of answers of a block, those that were
// reviewed in both orders, those in conflict and those that one order ties.
func (c *SelfConsistency) compareOrders(reviews []*review) {
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
		if p.first > p.second || backward == nil {
			continue
		}
		c.Comparisons++
		switch a, b := verdict(forward), verdict(backward); {
		case a > 0 && b > 0:
			c.Primacy++
		case a < 0 && b < 0:
			c.Recency++
		case a+b > 0 && a*b == 0:
			c.PrimacyTies++
		case a+b < 0 && a*b == 0:
			c.RecencyTies++
		}
	}
}

// verdict returns the sign of the sum of differences, 0 where it is rounding.
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

// kendallTau returns Kendall's tau-b of the scores that two reviews gave to the
// same answers,
//
//	(concordant - discordant) / sqrt((pairs - tied in a) (pairs - tied in b)),
//
// (Kendall 1945). It is undefined, and false returned, where either review tells no
// two of those answers apart.
func kendallTau(a, b map[string]float64) (float64, bool) {
	var shared []string
	for candidate := range a {
		if _, ok := b[candidate]; ok {
			shared = append(shared, candidate)
		}
	}
	balance, apartA, apartB := 0, 0, 0
	for i, x := range shared {
		for _, y := range shared[:i] {
			p, q := cmp.Compare(a[x], a[y]), cmp.Compare(b[x], b[y])
			balance += p * q
			apartA += p * p
			apartB += q * q
		}
	}
	if apartA == 0 || apartB == 0 {
		return 0, false
	}
	return float64(balance) / math.Sqrt(float64(apartA)*float64(apartB)), true
}

// reliability returns the intraclass correlation ICC(1) of repeated scores, at
// least two of each item, and the standard deviation within items, by the one-way
// analysis of variance:
//
//	ICC(1) = (MSB - MSW) / (MSB + (k-1) MSW),
//
// with the F interval of McGraw and Wong (1996) and the chi-square interval of the
// deviation. Where items differ in their number of scores k is (N - sum n^2/N) /
// (items - 1), and the interval approximate (Searle, Linear Models, 1971). The ICC
// is undefined below two items and where no score differs, its interval where no
// repeat does.
func reliability(items [][]float64) (icc, withinSD Estimate) {
	n, sum, squares := 0.0, 0.0, 0.0
	for _, item := range items {
		n += float64(len(item))
		squares += float64(len(item) * len(item))
		for _, y := range item {
			sum += y
		}
	}
	if len(items) == 0 {
		return icc, withinSD
	}
	between, within := 0.0, 0.0
	for _, item := range items {
		mean := 0.0
		for _, y := range item {
			mean += y / float64(len(item))
		}
		between += float64(len(item)) * (mean - sum/n) * (mean - sum/n)
		for _, y := range item {
			within += (y - mean) * (y - mean)
		}
	}
	const rounding = 1e-18 // of scores' squares: a sum below it is 0
	dfB, dfW := float64(len(items)-1), n-float64(len(items))
	if within < rounding*n {
		within = 0
	}
	withinSD.Value = new(math.Sqrt(within / dfW))
	if within > 0 {
		chi := distuv.ChiSquared{K: dfW}
		withinSD.Lower, withinSD.Upper = new(math.Sqrt(within/chi.Quantile(0.975))), new(math.Sqrt(within/chi.Quantile(0.025)))
	}
	if dfB == 0 || within+between < rounding*n {
		return icc, withinSD
	}
	k := (n - squares/n) / dfB
	of := func(msb, msw float64) *float64 { return new((msb - msw) / (msb + (k-1)*msw)) }
	msb, msw := between/dfB, within/dfW
	icc.Value = of(msb, msw)
	if within > 0 {
		icc.Lower = of(msb, msw*distuv.F{D1: dfB, D2: dfW}.Quantile(0.975))
		icc.Upper = of(msb*distuv.F{D1: dfW, D2: dfB}.Quantile(0.975), msw)
	}
	return icc, withinSD
}

// wilson returns the share k/n, n above 0, with its score interval (Wilson 1927).
func wilson(k, n int) Estimate {
	z, size := distuv.UnitNormal.Quantile(0.975), float64(n)
	p := float64(k) / size
	centre := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z / (1 + z*z/size) * math.Sqrt(p*(1-p)/size+z*z/(4*size*size))
	return Estimate{Value: &p, Lower: new(max(0, centre-half)), Upper: new(min(1, centre+half))}
}

// signTest returns the exact two-sided p of the sum of x, when chance gives each of
// them its sign (Fisher 1935; the binomial test where all are 1 or -1): the
// probability that the sum of x with random signs lies as far from 0.
func signTest(x []int) float64 {
	sum, span := 0, 0
	for _, v := range x {
		sum += v
		span += max(v, -v)
	}
	chances := make([]float64, 2*span+1) // of the sums from -span to span
	chances[span] = 1
	for _, v := range x {
		next := make([]float64, len(chances))
		for k, chance := range chances {
			if chance > 0 {
				next[k+v] += chance / 2
				next[k-v] += chance / 2
			}
		}
		chances = next
	}
	p := 0.0
	for k, chance := range chances {
		if d := k - span; max(d, -d) >= max(sum, -sum) {
			p += chance
		}
	}
	return min(1, p)
}
