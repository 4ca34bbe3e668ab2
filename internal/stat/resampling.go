package stat

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

const (
	// draws is the number of resamples from which a bootstrap interval is computed.
	draws = 2000
	// permutations is the number of random orders of the data that the observed order is compared with. The least
	// possible p is therefore 1/2000.
	permutations = 1999
	// maxUnits is the largest number of units that are resampled or permuted.
	maxUnits = 256
)

// Bootstrap returns the 95 % BCa interval of a statistic of sums. The argument terms has one element for each unit,
// at least one, and the sums are over all units. Bootstrap resamples the units with random numbers from the
// argument seed. It returns false if the statistic is NaN without some unit or for some resample.
func Bootstrap(terms [][]float64, statistic func(sums []float64) float64, seed uint64) (low, high float64, ok bool) {
	terms = pool(terms)
	n := len(terms)
	sums := make([]float64, len(terms[0]))
	all := make([]float64, len(terms[0]))
	for _, term := range terms {
		add(all, term)
	}
	left := make([]float64, n)
	for s, term := range terms {
		for k, v := range term {
			sums[k] = all[k] - v
		}
		left[s] = statistic(sums)
	}
	random := rand.NewPCG(seed, 1)
	replicates := make([]float64, draws)
	for draw := range replicates {
		clear(sums)
		for range n {
			add(sums, terms[below(n, random)])
		}
		replicates[draw] = statistic(sums)
	}
	return bca(statistic(all), left, replicates)
}

// below returns a random number from 0 to n-1 that is the same on every platform. Its bias is negligible for such a
// small n.
func below(n int, random *rand.PCG) int {
	number, _ := bits.Mul64(random.Uint64(), uint64(n)) //nolint:gosec // n is positive
	return int(number)                                  //nolint:gosec // it is below n
}

// pool returns the terms of units. If there are more than maxUnits, it returns the sums over runs of neighbours
// instead. Such sums are as independent as the units, and resampling them takes bounded time.
func pool(terms [][]float64) [][]float64 {
	if len(terms) <= maxUnits {
		return terms
	}
	var sums [][]float64
	for run := range slices.Chunk(terms, (len(terms)+maxUnits-1)/maxUnits) {
		sum := make([]float64, len(run[0]))
		for _, term := range run {
			add(sum, term)
		}
		sums = append(sums, sum)
	}
	return sums
}

// bca returns the 95 % bias-corrected and accelerated interval of an estimate (Efron 1987). jackknife holds the
// estimates with one observation left out at a time. replicates holds the estimates of the bootstrap. bca returns
// false if one of these is NaN, if the jackknife values are equal except for rounding, or if all replicates are on
// one side of the estimate.
func bca(estimate float64, jackknife, replicates []float64) (low, high float64, ok bool) {
	if Constant(jackknife) {
		return 0, 0, false
	}
	smaller := 0.0
	for _, r := range replicates {
		switch {
		case r < estimate:
			smaller++
		case r == estimate:
			smaller += 0.5
		}
	}
	bias := NormalQuantile(smaller / float64(len(replicates)))
	squares := 0.0
	cubes := 0.0
	mean := Mean(jackknife)
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
		z := bias + NormalQuantile(level)
		return quantile(sorted, NormalCDF(bias+z/(1-acceleration*z)))
	}
	return at(0.025), at(0.975), true
}

// CUSUM returns the largest absolute partial sum of deviations from the mean, divided by SD sqrt(n) (Page 1954). at
// is the index of the first value after that partial sum. Without a change, and with large n, the statistic follows
// the supremum of a Brownian bridge. There must be at least two values, not all equal.
func CUSUM(y []float64) (statistic float64, at int) {
	mean, sd := MeanStdDev(y)
	sum := 0.0
	for k, v := range y[:len(y)-1] {
		sum += v - mean
		if math.Abs(sum) > statistic {
			statistic = math.Abs(sum)
			at = k + 1
		}
	}
	return statistic / (sd * math.Sqrt(float64(len(y)))), at
}

// PermuteCUSUM returns a p value for each of the first len(factors) columns of deviations. The mean of each column
// must be 0. The statistic of a column is its largest absolute partial sum. It is compared with the same statistic
// after random permutations of the rows. The factor of a column is a ratio of two variances of sums of neighbours:
// the variance in this column, divided by the variance if its values were independent.
func PermuteCUSUM(deviations [][]float64, factors []float64, random *rand.PCG) []float64 {
	n := len(factors)
	order := slices.Clone(pool(deviations))
	limits := make([]float64, n)
	reached := slices.Repeat([]int{1}, n)
	for i := range limits {
		sum := 0.0
		for _, row := range order {
			sum += row[i]
			limits[i] = max(limits[i], math.Abs(sum))
		}
		limits[i] *= (1 - 1e-9) / math.Sqrt(factors[i]) // orders that differ only by rounding are equal
	}
	for range permutations {
		for s := len(order) - 1; s > 0; s-- {
			other := below(s+1, random)
			order[s], order[other] = order[other], order[s]
		}
		for i, limit := range limits {
			sum := 0.0
			for _, row := range order {
				sum += row[i]
				if sum >= limit || sum <= -limit {
					reached[i]++
					break
				}
			}
		}
	}
	p := make([]float64, n)
	for i, times := range reached {
		p[i] = float64(times) / (permutations + 1)
	}
	return p
}
