package bias

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

const similarName = "ballot_similarity"

// likeness sums up how similar pairs of ballots are, by Kendall's tau-b.
type likeness struct {
	tally
	taus    sums
	entered int // the number of records that entered
}

// ballotSimilarity describes how similarly two reviewers of a session rank the answers that neither of them wrote.
// It is the mean of Kendall's tau-b over pairs of ballots, -1 to 1. Its members are the pairs of reviewers. Two
// ballots do not enter if they share fewer than two answers, or if one of them ties all answers that they share.
func (c *Collector) ballotSimilarity(w *window, span Window) Metric {
	all := &likeness{}
	pairs := map[[2]int]*likeness{}
	for _, k := range w.byCluster() {
		x := &w.sessions[k]
		entered := map[[2]int]struct{}{} // records, by reviewer and candidate
		for i, a := range x.place {
			for j, b := range x.place[:i] {
				shared := bothRanked(a, b)
				tau, ok := stat.KendallTau(pick(a, shared), pick(b, shared))
				if !ok {
					continue
				}
				for _, candidate := range shared {
					entered[[2]int{i, candidate}] = struct{}{}
					entered[[2]int{j, candidate}] = struct{}{}
				}
				pair := [2]int{x.reviewers[j], x.reviewers[i]}
				if pairs[pair] == nil {
					pairs[pair] = &likeness{}
				}
				pairs[pair].add(x.cluster, k, tau)
				pairs[pair].entered += 2 * len(shared)
				all.add(x.cluster, k, tau)
			}
		}
		all.entered += len(entered)
	}
	m := c.similar(similarName, all, span)
	compare := func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) }
	for _, pair := range slices.SortedFunc(maps.Keys(pairs), compare) {
		subject := w.names[pair[0]] + " and " + w.names[pair[1]]
		member := c.similar(m.Name+"|"+subject, pairs[pair], span)
		member.Subject = subject
		m.Members = append(m.Members, member)
	}
	return m
}

func (l *likeness) add(cluster, session int, tau float64) {
	l.tally.add(cluster, session)
	l.taus.add(cluster, tau)
}

// similar returns the metric of a likeness.
func (c *Collector) similar(name string, l *likeness, span Window) Metric {
	m := c.metric(name, "Kendall's tau-b", "mean of Kendall's tau-b over pairs of ballots, own answers of both left out, "+
		"interval by leaving out one question, descriptive", l.tally, span)
	m.Records = l.entered
	if c.describe(&m, "two ballots that can be compared") {
		mean, _ := l.taus.mean()
		m.PointEstimate = &mean
		m.CILower, m.CIUpper = l.taus.within(-1, 1)
		if m.Verdict == nil {
			m.Reason = "descriptive: likeness, never accuracy; ballots that are alike may be right together, " +
				"or wrong together"
		}
	}
	return m
}

// bothRanked returns the indices of the candidates that both ballots rank.
func bothRanked(a, b []float64) (candidates []int) {
	for j := range a {
		if !math.IsNaN(a[j]) && !math.IsNaN(b[j]) {
			candidates = append(candidates, j)
		}
	}
	return candidates
}

func pick(values []float64, indices []int) []float64 {
	picked := make([]float64, len(indices))
	for k, i := range indices {
		picked[k] = values[i]
	}
	return picked
}
