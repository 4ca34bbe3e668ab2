package bias

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// bootstrapFrom is how many sessions an interval takes: below, resamples say more
	// about the few sessions than about others.
	bootstrapFrom = 20
	// bootstrapDraws is how many resamples of the sessions an interval rests on.
	bootstrapDraws = 2000
	// drawnUnits is how many units are resampled or permuted at most.
	drawnUnits = 256
)

// resampled is the method of an interval by bootstrap.
const resampled = "BCa interval over questions from 20 on, descriptive"

// resample sets the interval of a metric that is a statistic of the sums of the
// terms of clusters, where there are enough of them (see bootstrap).
func (m *Metric) resample(terms [][]float64, statistic func(sums []float64) float64) {
	if len(terms) < bootstrapFrom {
		return
	}
	if low, high, ok := bootstrap(terms, statistic); ok {
		m.CILower, m.CIUpper = &low, &high
	}
}

// bootstrap returns the 95 % interval of a statistic of the sums of the terms of
// clusters, at least one, by resampling clusters. It reports false where the
// statistic is undefined, NaN, without some cluster or for some resample.
func bootstrap(terms [][]float64, statistic func(sums []float64) float64) (low, high float64, ok bool) {
	terms = runs(terms)
	n := len(terms)
	sums, all := make([]float64, len(terms[0])), make([]float64, len(terms[0]))
	for _, term := range terms {
		for k, v := range term {
			all[k] += v
		}
	}
	left := make([]float64, n)
	for s, term := range terms {
		for k, v := range term {
			sums[k] = all[k] - v
		}
		left[s] = statistic(sums)
	}
	random := rand.NewPCG(reportSeed, 1)
	replicates := make([]float64, bootstrapDraws)
	for draw := range replicates {
		clear(sums)
		for range n {
			s, _ := bits.Mul64(random.Uint64(), uint64(n))
			for k, v := range terms[s] {
				sums[k] += v
			}
		}
		replicates[draw] = statistic(sums)
	}
	return bca(statistic(all), left, replicates)
}

// runs returns the terms of units, or, where these are many, the sums over runs of
// neighbours: they are independent just as well, and the work stays bounded.
func runs(terms [][]float64) [][]float64 {
	if len(terms) <= drawnUnits {
		return terms
	}
	var sums [][]float64
	for run := range slices.Chunk(terms, (len(terms)+drawnUnits-1)/drawnUnits) {
		sum := make([]float64, len(run[0]))
		for _, term := range run {
			for k, v := range term {
				sum[k] += v
			}
		}
		sums = append(sums, sum)
	}
	return sums
}

// bca returns the 95 % bias-corrected and accelerated interval of an estimate, from
// the estimates without each observation and those of bootstrap replicates (Efron
// 1987). It reports false where one of these is NaN, where the jackknife values are
// equal, and where the replicates lie all on one side of the estimate.
func bca(estimate float64, jackknife, replicates []float64) (low, high float64, ok bool) {
	below := 0.0
	for _, r := range replicates {
		switch {
		case r < estimate:
			below++
		case r == estimate:
			below += 0.5
		}
	}
	bias := distuv.UnitNormal.Quantile(below / float64(len(replicates)))
	squares, cubes := 0.0, 0.0
	mean := stat.Mean(jackknife, nil)
	for _, v := range jackknife {
		d := mean - v
		squares += d * d
		cubes += d * d * d
	}
	acceleration := cubes / (6 * math.Pow(squares, 1.5))
	if math.IsInf(bias, 0) || math.IsNaN(acceleration) || slices.ContainsFunc(replicates, math.IsNaN) {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(replicates))
	at := func(level float64) float64 {
		z := bias + distuv.UnitNormal.Quantile(level)
		return quantile(sorted, distuv.UnitNormal.CDF(bias+z/(1-acceleration*z)))
	}
	return at(0.025), at(0.975), true
}

// quantile returns the quantile of sorted values, at least one, by linear
// interpolation between them (type 7 of Hyndman and Fan 1996).
func quantile(sorted []float64, level float64) float64 {
	at := level * float64(len(sorted)-1)
	k := int(at)
	if k == len(sorted)-1 {
		return sorted[k]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}
