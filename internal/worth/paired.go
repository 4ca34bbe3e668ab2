// Package worth says whether a council is worth its money, from the scores and costs of the arms of a comparison. It
// computes paired differences with intervals, a verdict, and the effect that the comparison could have found. It also
// reports the errors that seats share, and what reviewers and people prefer.
//
// It takes values and returns values. Its callers read the scores and show the results. Undefined figures are null.
package worth

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

// Level is the error level of every verdict: 5 %.
const Level = 0.05

// Pair is the difference of two arms at one question: the score of the first, from 0 to 1, minus that of the
// second. With costs subtracted, it may be any number.
type Pair struct {
	Cluster string // questions of one source are one cluster
	D       float64
}

// Interval is a mean paired difference with its uncertainty. [Paired] adds two questions, each a cluster, with
// differences of 1 and -1 (Bonett and Price 2012). The standard error comes from leaving out one cluster at a time.
// The interval and its tests use the t distribution with one degree of freedom less than there are clusters. Unlike
// the plain t interval, this keeps its level for binary scores even if most pairs are equal.
type Interval struct {
	N        int     `json:"n"`
	Clusters int     `json:"clusters"`
	Estimate float64 `json:"estimate"` // the plain mean
	Centre   float64 `json:"centre"`   // the mean with the two added questions
	SE       float64 `json:"se"`
	// Lower and Upper are one-sided 95 % limits. Together they are a 90 % interval.
	Lower float64    `json:"lower_one_sided"`
	Upper float64    `json:"upper_one_sided"`
	CI95  [2]float64 `json:"ci95"`
	P     float64    `json:"p_two_sided"` // for any difference
	// Discordance is the mean square of the differences. For binary scores it is the share of questions at which
	// the scores differ.
	Discordance float64 `json:"discordance"`
}

// Paired returns the interval of a mean difference, or nil for fewer than two clusters.
func Paired(pairs []Pair) *Interval {
	index := map[string]int{}
	var sums, counts []float64 // by cluster
	total := 0.0
	squares := 0.0
	n := float64(len(pairs))
	for _, p := range pairs {
		at, ok := index[p.Cluster]
		if !ok {
			at = len(sums)
			index[p.Cluster] = at
			sums = append(sums, 0)
			counts = append(counts, 0)
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
	i := &Interval{
		N:           len(pairs),
		Clusters:    len(sums),
		Estimate:    total / n,
		Centre:      centre,
		SE:          se,
		Discordance: squares / n,
	}
	limit := func(level float64) float64 { return stat.StudentQuantile(level, i.df()) * i.SE }
	i.Lower = centre - limit(1-Level)
	i.Upper = centre + limit(1-Level)
	i.CI95 = [2]float64{centre - limit(1-Level/2), centre + limit(1-Level/2)}
	i.P = stat.StudentP(centre/i.SE, i.df())
	return i
}

func (i *Interval) df() float64 { return float64(i.Clusters - 1) }

// Above returns a one-sided p. A small p is evidence that the mean difference is above the value.
func (i *Interval) Above(value float64) float64 {
	return stat.StudentAbove((i.Centre-value)/i.SE, i.df())
}

// Below returns a one-sided p. A small p is evidence that the mean difference is below the value.
func (i *Interval) Below(value float64) float64 {
	return stat.StudentAbove((value-i.Centre)/i.SE, i.df())
}

// Equivalent returns the p of two one-sided tests (Schuirmann 1987). A small p is evidence that the mean difference
// lies between -margin and margin.
func (i *Interval) Equivalent(margin float64) float64 { return max(i.Above(-margin), i.Below(margin)) }

// Power says what a number of questions can show.
type Power struct {
	Discordance float64 `json:"discordance"` // the share of questions at which the scores differ
	// MDE80 is the least true difference, the same to every rival, that gives the verdict [Pays] with a probability
	// of 80 %.
	MDE80 float64 `json:"mde80"`
	// Gain is twice the margin. Needed is how many questions show it with a probability of 80 %. A true difference
	// of exactly the margin gives [Pays] at most half of the time, with any number of questions.
	Gain   float64 `json:"gain"`
	Needed int     `json:"needed"`
}

// Powers returns what a number of questions can show. It has four elements: for scores that differ at .1, .2, .3 and
// .4 of the questions. The argument rivals is the result of [Design.Rivals]. The margin must be above 0.
func Powers(questions int, margin float64, rivals int) []Power {
	all := make([]Power, 4)
	for i := range all {
		all[i] = PowerAt(float64(i+1)/10, questions, margin, rivals)
	}
	return all
}

// PowerAt returns what a number of questions can show. The argument psi is the share of these questions at which the
// scores differ.
func PowerAt(psi float64, questions int, margin float64, rivals int) Power {
	p := Power{Discordance: psi, MDE80: MDE80(psi, questions, margin, rivals), Gain: 2 * margin}
	if margin > 0 {
		p.Needed = Needed(psi, p.Gain, margin, rivals)
	}
	return p
}

// MDE80 returns the least true difference, the same to every rival, that gives the verdict [Pays] with a probability
// of 80 %. The argument psi is the share of questions at which the scores differ.
func MDE80(psi float64, questions int, margin float64, rivals int) float64 {
	se := math.Sqrt(psi / float64(questions))
	return bisect(margin, margin+8*se, func(gain float64) bool { return chance(se, gain, margin, rivals) >= 0.8 })
}

// Needed returns how many questions give the verdict [Pays] with a probability of 80 %. The argument psi is the share
// of questions at which the scores differ. The argument gain is the true difference. It must be above the margin, and
// it is the same to every rival.
func Needed(psi, gain, margin float64, rivals int) int {
	root := bisect(0, math.Sqrt(psi)*8/(gain-margin), func(root float64) bool {
		return chance(math.Sqrt(psi)/root, gain, margin, rivals) >= 0.8
	})
	return int(math.Ceil(root * root))
}

// chance returns the probability of [Pays]. It assumes that estimates are normal about a gain with the standard
// error se. Every estimate must reach the margin and the one-sided limit of 5 %. The differences to two rivals
// share the treatment's scores, so they correlate at .5 if the arms are alike. The variance leaves out the square
// of the gain.
func chance(se, gain, margin float64, rivals int) float64 {
	above := math.Sqrt2 * (gain - max(margin, stat.NormalQuantile(1-Level)*se)) / se
	return stat.NormalMean(func(u float64) float64 { return math.Pow(stat.NormalCDF(u+above), float64(rivals)) })
}

// bisect returns the least value between low and high at which a condition holds. The condition must hold at high.
// If it holds at some value, it must hold at all greater values.
func bisect(low, high float64, holds func(float64) bool) float64 {
	for range 50 {
		if middle := (low + high) / 2; holds(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}
