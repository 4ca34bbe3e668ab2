package bias

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

const (
	// permutations is how many orders of the sessions a change point is held
	// against. The least p is 1/2000.
	permutations = 1999
	// reportSeed seeds what a report draws, so that it can be repeated.
	reportSeed = 18
)

// changePoint is where a reviewer's relative harshness departs furthest from its
// mean over a stretch.
type changePoint struct {
	stretch
	reviewer      int
	sessions      int     // that the reviewer took part in
	at            int     // session with which the new level begins
	before, after float64 // mean relative harshness, in points
	statistic     float64 // see cusum
	p             float64
}

// changePoints returns the change point of each stretch and reviewer with at least
// ten sessions. The p value is the share of random orders of the sessions, the
// given one among them, whose statistic is as large (Good, Permutation Tests,
// 2000): sessions in which the council stayed the same are exchangeable.
func changePoints(fits []severity, split []stretch) []changePoint {
	random := rand.NewPCG(reportSeed, 0)
	var all []changePoint
	for _, part := range split {
		from := len(all)
		var deviations [][]float64 // by reviewer, then session; 0 where not taken part
		for reviewer := range fits[part.from].harshness {
			at, h := series(fits[part.from:part.to], reviewer)
			if len(h) < preliminaryFrom || constant(h) {
				continue
			}
			statistic, k := cusum(h)
			point := changePoint{
				stretch: part, reviewer: reviewer, sessions: len(h), at: part.from + int(at[k]),
				before: stat.Mean(h[:k], nil), after: stat.Mean(h[k:], nil), statistic: statistic,
			}
			all = append(all, point)
			d, mean := make([]float64, part.to-part.from), stat.Mean(h, nil)
			for i, s := range at {
				d[int(s)] = h[i] - mean
			}
			deviations = append(deviations, d)
		}
		if len(deviations) == 0 {
			continue
		}
		for i, p := range permute(deviations, part.to-part.from, random) {
			all[from+i].p = p
		}
	}
	return all
}

// cusum returns the largest of the absolute partial sums of deviations from the
// mean, over SD sqrt(n), and the index at which the values behind it begin (Page
// 1954). Without a change, and with n large, the statistic follows the supremum of
// a Brownian bridge. The values, at least two, must not be constant.
func cusum(y []float64) (statistic float64, at int) {
	mean, sd := stat.MeanStdDev(y, nil)
	sum := 0.0
	for k, v := range y[:len(y)-1] {
		sum += v - mean
		if math.Abs(sum) > statistic {
			statistic, at = math.Abs(sum), k+1
		}
	}
	return statistic / (sd * math.Sqrt(float64(len(y)))), at
}

// permute returns for each of several series of n deviations from their means the
// p of the largest absolute partial sum under permutation, all series alike.
func permute(deviations [][]float64, n int, random *rand.PCG) []float64 {
	order := make([]int, n)
	for s := range order {
		order[s] = s
	}
	largest := func(d []float64) float64 {
		sum, low, high := 0.0, 0.0, 0.0
		for _, s := range order {
			sum += d[s]
			low, high = min(low, sum), max(high, sum)
		}
		return max(-low, high)
	}
	observed, reached := make([]float64, len(deviations)), slices.Repeat([]int{1}, len(deviations))
	for i, d := range deviations {
		observed[i] = largest(d) * (1 - 1e-9) // orders that differ by rounding are equal
	}
	for range permutations {
		for s := n - 1; s > 0; s-- {
			// The high half of the product: as good as uniform for so few sessions, and
			// the same on every platform.
			other, _ := bits.Mul64(random.Uint64(), uint64(s+1))
			order[s], order[other] = order[other], order[s]
		}
		for i, d := range deviations {
			if largest(d) >= observed[i] {
				reached[i]++
			}
		}
	}
	p := make([]float64, len(deviations))
	for i, n := range reached {
		p[i] = float64(n) / (permutations + 1)
	}
	return p
}
