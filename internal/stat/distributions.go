package stat

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"
)

// StudentP returns the two-sided tail probability of Student's t.
func StudentP(t, df float64) float64 {
	return 2 * distuv.StudentsT{Sigma: 1, Nu: df}.Survival(math.Abs(t))
}

// StudentAbove returns the probability that Student's t is above t.
func StudentAbove(t, df float64) float64 { return distuv.StudentsT{Sigma: 1, Nu: df}.Survival(t) }

// StudentQuantile returns the quantile of Student's t at the probability p.
func StudentQuantile(p, df float64) float64 { return distuv.StudentsT{Sigma: 1, Nu: df}.Quantile(p) }

// NormalQuantile returns the quantile of the standard normal distribution at the
// probability p.
func NormalQuantile(p float64) float64 { return distuv.UnitNormal.Quantile(p) }

// NormalCDF returns the probability that a standard normal deviate is at most z.
func NormalCDF(z float64) float64 { return distuv.UnitNormal.CDF(z) }

// NormalMean returns the mean of a smooth function of a standard normal variable, by Gauss-Legendre quadrature from -8 to 8.
func NormalMean(of func(z float64) float64) float64 {
	return quad.Fixed(func(z float64) float64 {
		return distuv.UnitNormal.Prob(z) * of(z)
	}, -8, 8, 64, quad.Legendre{}, 0)
}

// ChiSquaredP returns the upper tail probability of the chi-square distribution.
func ChiSquaredP(x, df float64) float64 { return distuv.ChiSquared{K: df}.Survival(x) }

// FisherP returns the upper tail probability of the F distribution, small ones
// too without loss of digits.
func FisherP(f, d1, d2 float64) float64 { return mathext.RegIncBeta(d2/2, d1/2, d2/(d2+d1*f)) }

// Binomial draws a binomial variate of n trials with the probability p.
func Binomial(n int, p float64, random *rand.PCG) int {
	return int(distuv.Binomial{N: float64(n), P: p, Src: random}.Rand())
}

// BenjaminiHochberg returns the q values of a family of p values, in their order:
// of m tests, the one with the k-th smallest p gets the least of p m/k over it and
// the tests with greater p (Benjamini and Hochberg 1995).
func BenjaminiHochberg(p []float64) []float64 {
	order := make([]int, len(p)) // by p, the greatest first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(p[b], p[a]) })
	q := make([]float64, len(p))
	least := 1.0
	for rank, i := range order {
		least = min(least, p[i]*(float64(len(p))/float64(len(p)-rank))) // never below p
		q[i] = least
	}
	return q
}

// Holm returns the adjusted p values of a family, in their order: those of a step-down test
// that holds the chance of any false rejection (Holm 1979).
func Holm(p []float64) []float64 {
	order := make([]int, len(p)) // by p, the least first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	adjusted := make([]float64, len(p))
	most := 0.0
	for rank, i := range order {
		most = max(most, min(1, p[i]*float64(len(p)-rank)))
		adjusted[i] = most
	}
	return adjusted
}

// McNemar returns exact p values of paired binary outcomes, of which so many are 1 for the
// first only and for the second only (McNemar 1947): of any difference, of the first being
// better, and the mid-p of any difference (Fagerland, Lydersen and Laake 2013).
func McNemar(first, second int) (twoSided, better, mid float64) {
	n := first + second
	if n == 0 {
		return 1, 1, 1
	}
	half := distuv.Binomial{N: float64(n), P: 0.5}
	atMost := func(k int) float64 { return half.CDF(float64(k)) }
	fewer := min(first, second)
	twoSided = min(1, 2*atMost(fewer))
	return twoSided, atMost(second), min(1, 2*atMost(fewer)-half.Prob(float64(fewer)))
}

// PoissonBinomial returns the probabilities of 0 to len(p) successes in independent trials
// that succeed with the probabilities p.
func PoissonBinomial(p []float64) []float64 {
	chances := make([]float64, 1, len(p)+1)
	chances[0] = 1
	for _, success := range p {
		chances = append(chances, 0)
		for k := len(chances) - 1; k > 0; k-- {
			chances[k] = chances[k]*(1-success) + chances[k-1]*success
		}
		chances[0] *= 1 - success
	}
	return chances
}

// SignTest returns the exact two-sided p of the sum of x, when chance gives each of
// them its sign (Fisher 1935; the binomial test where all are 1 or -1): the
// probability that the sum of x with random signs lies as far from 0.
func SignTest(x []int) float64 {
	sum := 0
	span := 0
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

// Wilson returns the share k/n, n above 0, with its score interval (Wilson 1927).
func Wilson(k, n int) Estimate {
	return score(float64(k)/float64(n), float64(n), NormalQuantile(0.975))
}

// score returns a share of so many trials with the interval that a quantile of its error makes.
func score(p, size, z float64) Estimate {
	centre := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z / (1 + z*z/size) * math.Sqrt(p*(1-p)/size+z*z/(4*size*size))
	return Estimate{Value: &p, Lower: new(max(0, centre-half)), Upper: new(min(1, centre+half))}
}

// ClusteredShare returns the share of hits among trials that come in clusters, with its 95 % interval: Wilson's, of as
// many independent trials as would be equally certain (Kish 1965), with Student's quantile for the clusters. That number
// lies between the number of clusters and that of trials. Its variance is from leaving out one cluster at a time. There is
// no interval below two clusters, and no share without trials.
func ClusteredShare(hits []float64, trials []int) Estimate {
	k := 0.0
	n := 0.0
	clusters := 0.0
	for i, of := range trials {
		if of > 0 {
			k += hits[i]
			n += float64(of)
			clusters++
		}
	}
	if clusters == 0 {
		return Estimate{}
	}
	p := k / n
	variance := 0.0
	if clusters < 2 {
		return Estimate{Value: &p}
	}
	for i, of := range trials {
		if of > 0 {
			d := (k-hits[i])/(n-float64(of)) - p
			variance += (clusters - 1) / clusters * d * d
		}
	}
	size := clusters
	if variance > 0 {
		size = min(n, max(clusters, p*(1-p)/variance))
	}
	return score(p, size, StudentQuantile(0.975, clusters-1))
}

// AdjustedMean returns the mean of differences from -1 to 1 that come in clusters, and its standard error, from the sum and
// the number of the differences of each cluster, two clusters at least. Two differences are added, 1 and -1, each a
// cluster of its own (Bonett and Price 2012), and one cluster at a time is left out. On one degree of freedom less than
// there are clusters, intervals hold their level where few differences are not 0; the plain t interval does not.
func AdjustedMean(sums, counts []float64) (mean, se float64) {
	total := 0.0
	n := 2.0
	clusters := float64(len(sums))
	for i := range sums {
		total += sums[i]
		n += counts[i]
	}
	mean = total / n
	spread := 0.0
	without := func(sum, count float64) {
		d := (total-sum)/(n-count) - mean
		spread += d * d
	}
	for i := range sums {
		without(sums[i], counts[i])
	}
	without(1, 1)
	without(-1, 1)
	return mean, math.Sqrt((clusters + 1) / (clusters + 2) * spread)
}

// ClopperPearsonUpper returns the one-sided upper confidence bound of a share of which k of n are
// observed (Clopper and Pearson 1934): 1 where k is n, also where nothing is observed.
func ClopperPearsonUpper(k, n int, confidence float64) float64 {
	if k >= n {
		return 1
	}
	return distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(confidence)
}

// PosteriorMean returns the posterior mean of a normal distribution, given values of
// it, with its 95 % credible interval. Beforehand its mean is normal about mean with the
// weight of so many observations, and its variance inverse gamma with a shape and a
// scale: the conjugate normal-inverse-gamma update, whose marginal is Student's t
// (Gelman et al., Bayesian Data Analysis, 3rd ed., section 3.3).
func PosteriorMean(x []float64, mean, weight, shape, scale float64) Estimate {
	n := float64(len(x))
	total := weight + n
	prior := mean
	shape += n / 2
	if n > 0 {
		observed := Mean(x)
		mean = (weight*prior + n*observed) / total
		for _, v := range x {
			scale += (v - observed) * (v - observed) / 2
		}
		scale += weight * n / total * (observed - prior) * (observed - prior) / 2
	}
	half := StudentQuantile(0.975, 2*shape) * math.Sqrt(scale/shape/total)
	return Estimate{Value: &mean, Lower: new(mean - half), Upper: new(mean + half)}
}

// ModeratedVariances returns the variances of groups, with their degrees of freedom,
// given the sum of squared residuals of each group and its degrees of freedom. The
// variance s^2 of one group, on few degrees of freedom d, is drawn towards those of the
// others,
//
//	(d0 s0^2 + d s^2) / (d0 + d)  on d0 + d degrees of freedom,
//
// where s0^2 and d0 follow from the scatter of log s^2 over the groups: an empirical
// Bayes estimate by moments (Smyth, Linear Models and Empirical Bayes
// Methods, 2004, section 6.2). D0 is infinite where log s^2 scatters no more than
// chance explains. It reports false where no group has residuals.
func ModeratedVariances(squares, residual []float64) (variance, df []float64, ok bool) {
	var raw, known []float64 // of the groups with residuals
	for k, d := range residual {
		if d > 0 {
			raw = append(raw, squares[k]/d)
			known = append(known, d)
		}
	}
	if len(raw) == 0 {
		return nil, nil, false
	}
	// A variance of zero has no logarithm.
	const least = 1e-5 // of the median
	floor := least * Median(raw)
	if floor == 0 {
		floor = least
	}
	logs := make([]float64, len(raw))
	expected := 0.0
	for k, d := range known {
		logs[k] = math.Log(max(raw[k], floor)) - mathext.Digamma(d/2) + math.Log(d/2)
		expected += trigamma(d/2) / float64(len(raw))
	}
	prior := math.Inf(1)
	usual := math.Exp(Mean(logs))
	if excess := Variance(logs) - expected; excess > 0 {
		prior = 2 * trigammaInverse(excess)
		usual *= math.Exp(mathext.Digamma(prior/2) - math.Log(prior/2))
	}
	for k, d := range residual {
		moderated := usual
		if !math.IsInf(prior, 1) {
			moderated = (prior*usual + squares[k]) / (prior + d)
		}
		variance = append(variance, moderated)
		df = append(df, prior+d)
	}
	return variance, df, true
}

// trigamma returns the second derivative of the logarithm of the gamma function at
// x > 0, which is a Hurwitz zeta function.
func trigamma(x float64) float64 { return mathext.Zeta(2, x) }

// trigammaInverse returns the x > 0 with that trigamma > 0, by Newton's method
// (Smyth 2004, appendix).
func trigammaInverse(y float64) float64 {
	x := 0.5 + 1/y
	for range 50 {
		slope := -2 * mathext.Zeta(3, x)
		step := trigamma(x) * (1 - trigamma(x)/y) / slope
		x += step
		if -step <= 1e-10*x {
			break
		}
	}
	return x
}
