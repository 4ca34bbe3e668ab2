package bias

import (
	"cmp"
	"math"
)

// kendallW returns how far the reviewers of one session agree in how they order
// the candidates by score, 0 to 1: Kendall's coefficient of concordance with the
// correction for ties (Kendall and Babington Smith 1939),
//
//	W = 12 S / (m^2 (n^3-n) - m T),
//
// for m reviewers of n candidates, S the squared deviations of the candidates' rank
// sums from their mean and T the sum of t^3-t over all groups of t tied.
//
// A candidate's deviation is half the sum, over the others, of how many reviewers
// put it before less how many put it behind. Where scores are missing, as those of
// own answers may be, each of these differences is divided by the number of
// reviewers that compare the two (Durbin 1951), and the correction is the share of
// sum k^3-k, over reviewers of k candidates, that T is; the quotient is cut off at 1.
//
// It reports false for fewer than two reviewers, where nobody compares some two
// candidates, and where every reviewer gives one score to all.
func kendallW(y [][]float64) (float64, bool) {
	reviewers, full, ties := 0, 0, 0
	for _, row := range y {
		scored := 0
		for _, v := range row {
			same := 0 // candidates with this score
			for _, other := range row {
				if v == other {
					same++
				}
			}
			// Each of t tied counts t^2-1: together t^3-t.
			if same > 0 {
				scored++
				ties += same*same - 1
			}
		}
		if scored > 1 {
			reviewers++
		}
		full += scored*scored*scored - scored
	}
	if reviewers < 2 || ties == full {
		return 0, false
	}
	n, squares := len(y[0]), 0.0
	for j := range n {
		deviation := 0.0
		for k := range n {
			if k == j {
				continue
			}
			before, compared := 0, 0
			for _, row := range y {
				if !math.IsNaN(row[j]) && !math.IsNaN(row[k]) {
					before += cmp.Compare(row[j], row[k])
					compared++
				}
			}
			if compared == 0 {
				return 0, false
			}
			deviation += float64(before) / float64(compared)
		}
		squares += deviation * deviation
	}
	return min(1, 3*squares/float64(n*n*n-n)*float64(full)/float64(full-ties)), true
}

// agreement returns the mean over sessions of Kendall's W, own answers left out.
func (c *Collector) agreement(w *window, span Window) Metric {
	var t tally
	var terms [][]float64 // by cluster: the sum of W and how many there are
	sum, records := 0.0, 0
	for _, k := range w.byCluster() {
		x := &w.sessions[k]
		y := x.others()
		agreed, ok := kendallW(y)
		if !ok {
			continue
		}
		t.add(x.cluster, k)
		if len(terms) < t.clusters {
			terms = append(terms, make([]float64, 2))
		}
		terms[len(terms)-1][0] += agreed
		terms[len(terms)-1][1]++
		sum += agreed
		for _, row := range y {
			for _, v := range row {
				if !math.IsNaN(v) {
					records++
				}
			}
		}
	}
	m := c.metric("agreement", "Kendall's W", "mean over sessions of Kendall's W of the scores, own answers left out, "+resampled, t, span)
	m.Records = records
	if c.describe(&m, "scores that agreement can be told from") {
		m.PointEstimate = new(sum / float64(t.sessions))
		m.resample(terms, ratio)
	}
	return m
}

// ratio is the first of two sums over the second.
func ratio(sums []float64) float64 { return sums[0] / sums[1] }
