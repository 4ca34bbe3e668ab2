// Package worth says whether a council is worth its money, from the scores and costs of the
// arms of a comparison: paired differences with intervals, a verdict that names what was seen
// and what could have been, what the errors of the seats have in common, and what reviewers and
// people prefer.
//
// It takes values and returns values. Where they come from, and how they are shown, is left to
// others. What is undefined is null.
package worth

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

// Level is the error level of every verdict: 5 %.
const Level = 0.05

// Pair is the difference of two arms at one question: the score of the first, from 0 to 1, less
// that of the second. With costs taken off, it may be any number.
type Pair struct {
	Cluster string // questions of one source are one cluster
	D       float64
}

// Interval is a mean paired difference with its uncertainty. The interval and its tests add two
// questions, each a cluster of its own, with differences of 1 and -1 (Bonett and Price 2012), and
// take the covariance by leaving out one cluster, on the t distribution with one degree of
// freedom less than there are clusters. That holds its level for binary scores of which few
// differ, where the plain t interval does not.
type Interval struct {
	N        int     `json:"n"`
	Clusters int     `json:"clusters"`
	Estimate float64 `json:"estimate"` // the plain mean
	Centre   float64 `json:"centre"`   // the mean with the two questions more
	SE       float64 `json:"se"`
	// Lower and Upper are one-sided 95 % limits. Together they are a 90 % interval.
	Lower float64    `json:"lower_one_sided"`
	Upper float64    `json:"upper_one_sided"`
	CI95  [2]float64 `json:"ci95"`
	P     float64    `json:"p_two_sided"` // of any difference
	// Discordance is the mean square of the differences: of binary scores, the share of questions
	// at which they differ.
	Discordance float64 `json:"discordance"`
}

// Paired returns the interval of a mean difference, nil for fewer than two clusters.
func Paired(pairs []Pair) *Interval {
	index := map[string]int{}
	var sums, counts []float64 // by cluster
	total, squares, n := 0.0, 0.0, float64(len(pairs))
	for _, p := range pairs {
		at, ok := index[p.Cluster]
		if !ok {
			at = len(sums)
			index[p.Cluster] = at
			sums, counts = append(sums, 0), append(counts, 0)
		}
		sums[at] += p.D
		counts[at]++
		total += p.D
		squares += p.D * p.D
	}
	if len(sums) < 2 {
		return nil
	}
	centre, se := stat.AdjustedMean(sums, counts)
	i := &Interval{N: len(pairs), Clusters: len(sums), Estimate: total / n, Centre: centre, SE: se, Discordance: squares / n}
	limit := func(level float64) float64 { return stat.StudentQuantile(level, i.df()) * i.SE }
	i.Lower, i.Upper = centre-limit(1-Level), centre+limit(1-Level)
	i.CI95 = [2]float64{centre - limit(1-Level/2), centre + limit(1-Level/2)}
	i.P = stat.StudentP(centre/i.SE, i.df())
	return i
}

func (i *Interval) df() float64 { return float64(i.Clusters - 1) }

// Above returns the one-sided p of the mean difference being above a value.
func (i *Interval) Above(value float64) float64 {
	return stat.StudentAbove((i.Centre-value)/i.SE, i.df())
}

// Below returns the one-sided p of the mean difference being below a value.
func (i *Interval) Below(value float64) float64 {
	return stat.StudentAbove((value-i.Centre)/i.SE, i.df())
}

// Equivalent returns the p of the mean difference being within a margin on both sides, by two
// one-sided tests (Schuirmann 1987).
func (i *Interval) Equivalent(margin float64) float64 { return max(i.Above(-margin), i.Below(margin)) }

// detectable is z.95 + z.80: a difference of so many standard errors is found with a probability
// of 80 % at the one-sided 5 % level.
func detectable() float64 { return stat.NormalQuantile(0.95) + stat.NormalQuantile(0.80) }

// MDE80 returns the least difference that so many questions show with a probability of 80 %,
// where the scores differ at a share psi of them. The square of the difference is left out.
func MDE80(psi float64, questions int) float64 {
	return detectable() * math.Sqrt(psi/float64(questions))
}

// Needed returns how many questions show a difference with a probability of 80 %, where the
// scores differ at a share psi of them.
func Needed(psi, difference float64) int {
	return int(math.Ceil(psi * math.Pow(detectable()/difference, 2)))
}

// Power is what a number of questions can show.
type Power struct {
	Discordance float64 `json:"discordance"` // the share of questions at which the scores differ
	MDE80       float64 `json:"mde80"`
	Needed      int     `json:"needed"` // questions that show the margin
}

// Powers returns what a number of questions can show, for shares from .1 to .4, and how many show
// the margin, which is above 0.
func Powers(questions int, margin float64) []Power {
	all := make([]Power, 4)
	for i := range all {
		psi := float64(i+1) / 10
		all[i] = Power{psi, MDE80(psi, questions), Needed(psi, margin)}
	}
	return all
}
