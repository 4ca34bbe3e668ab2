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

// NormalMean returns the mean of a smooth function of a standard normal variable, by Gauss-Legendre quadrature from
// -8 to 8.
func NormalMean(of func(z float64) float64) float64 {
	return quad.Fixed(func(z float64) float64 {
		return distuv.UnitNormal.Prob(z) * of(z)
	}, -8, 8, 64, quad.Legendre{}, 0)
}

// ChiSquaredP returns the upper tail probability of the chi-square distribution.
func ChiSquaredP(x, df float64) float64 { return distuv.ChiSquared{K: df}.Survival(x) }

// FisherP returns the upper tail probability of the F distribution. Small probabilities keep all their digits.
func FisherP(f, d1, d2 float64) float64 { return mathext.RegIncBeta(d2/2, d1/2, d2/(d2+d1*f)) }

// Binomial draws a binomial variate of n trials with the probability p.
func Binomial(n int, p float64, random *rand.PCG) int {
	return int(distuv.Binomial{N: float64(n), P: p, Src: random}.Rand())
}

// BenjaminiHochberg returns the q values of a family of p values, in their order. Of m tests, the one with the k-th
// smallest p has the value p m/k. The q of a test is the least of the values of this test and of all tests with
// greater p (Benjamini and Hochberg 1995).
func BenjaminiHochberg(p []float64) []float64 {
	order := make([]int, len(p)) // by p, greatest first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(p[b], p[a]) })
	q := make([]float64, len(p))
	least := 1.0
	for rank, i := range order {
		least = min(least, p[i]*(float64(len(p))/float64(len(p)-rank))) // in this order, q is never below p
		q[i] = least
	}
	return q
}

// Holm returns the adjusted p values of a family, in their order. If a caller rejects the hypotheses whose adjusted p
// is below a level, the probability of any false rejection is below that level. Holm is a step-down test (Holm 1979).
func Holm(p []float64) []float64 {
	order := make([]int, len(p)) // by p, least first
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

// McNemar returns exact p values of paired binary outcomes (McNemar 1947). first counts the pairs in which only the
// first outcome is 1, and second counts the pairs in which only the second outcome is 1. twoSided is the p for any
// difference. better is a one-sided p: if it is small, the first outcome is 1 more often. mid is the mid-p for any
// difference (Fagerland, Lydersen and Laake 2013).
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

// PoissonBinomial returns the probabilities of 0 to len(p) successes in independent trials whose probabilities of
// success are p.
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

// SignTest returns the exact two-sided p of the sum of x, for the hypothesis that each value has a random sign. p is
// the probability that the sum with random signs is at least as far from 0 (Fisher 1935). If all values are 1 or -1,
// it is the binomial test.
func SignTest(x []int) float64 {
	sum := 0
	span := 0
	for _, v := range x {
		sum += v
		span += max(v, -v)
	}
	chances := make([]float64, 2*span+1) // for the sums from -span to span
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

// score returns a share p with its score interval. size is the number of trials. z is the quantile for the interval, of
// the normal or of Student's distribution.
func score(p, size, z float64) Estimate {
	centre := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z / (1 + z*z/size) * math.Sqrt(p*(1-p)/size+z*z/(4*size*size))
	return Estimate{Value: &p, Lower: new(max(0, centre-half)), Upper: new(min(1, centre+half))}
}

// ClusteredShare returns the share of hits among trials that come in clusters, with its 95 % interval. The interval
// is Wilson's, with Student's quantile for the clusters. In place of the number of trials it uses the effective
// number, which is the number of independent trials with the same variance (Kish 1965). The effective number is at
// least the number of clusters and at most the number of trials. The variance comes from leaving out one cluster at a
// time. For fewer than two clusters there is no interval. Without trials there is no share.
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

// AdjustedMean returns the mean of differences from -1 to 1 that come in clusters, and its standard error. The
// arguments sums and counts have the sum and the number of the differences in each cluster, for at least two
// clusters. AdjustedMean adds two differences, 1 and -1, each as a cluster (Bonett and Price 2012). The standard
// error comes from leaving out one cluster at a time. Use the mean and the error for a t interval with one degree of
// freedom less than there are clusters. This interval keeps its level even if most differences are 0. The plain t
// interval does not.
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

// ClopperPearsonUpper returns the one-sided upper confidence bound of a share if k of n were observed (Clopper and
// Pearson 1934). It is 1 if k is n, and if n is 0.
func ClopperPearsonUpper(k, n int, confidence float64) float64 {
	if k >= n {
		return 1
	}
	return distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(confidence)
}

// ClusteredLower returns the one-sided lower confidence bound of the share of hits among trials that come in clusters,
// and the effective number of trials. The trials of a cluster count as fully alike. The effective number is the square
// of the number of trials, divided by the sum of the squared cluster sizes (Kish, Survey Sampling, 1965). The bound is
// that of Clopper and Pearson for the effective number (Korn and Graubard 1998). It is exact if each cluster has one
// trial, and otherwise cautious. The effective number of [ClusteredShare] is estimated from the data. A bound from it
// covers as few as 70 % of the truth if clusters are alike inside and have different sizes.
func ClusteredLower(hits, trials []int, confidence float64) (bound, size float64) {
	k := 0.0
	n := 0.0
	squares := 0.0
	for i, of := range trials {
		k += float64(hits[i])
		n += float64(of)
		squares += float64(of) * float64(of)
	}
	if n == 0 {
		return 0, 0
	}
	size = n * n / squares
	if k == 0 {
		return 0, size
	}
	k *= size / n
	return distuv.Beta{Alpha: k, Beta: size - k + 1}.Quantile(1 - confidence), size
}

// PosteriorMean returns the posterior mean of the normal distribution that the values x come from, with its 95 %
// credible interval. The prior of that mean is a normal distribution about the argument mean. The prior counts as
// much as a number of observations, and the argument weight is this number. The prior of the variance is inverse
// gamma with the arguments shape and scale. This is the conjugate normal-inverse-gamma update, whose marginal is
// Student's t (Gelman et al., Bayesian Data Analysis, 3rd ed., section 3.3).
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

// ModeratedVariances returns the variances of groups, with their degrees of freedom. The argument squares has the sum
// of squared residuals of each group, and residual has the degrees of freedom of these residuals. The variance s^2 of
// a group with d degrees of freedom is moved towards the variances of the other groups,
//
//	(d0 s0^2 + d s^2) / (d0 + d)  on d0 + d degrees of freedom.
//
// s0^2 and d0 follow from the scatter of log s^2 over the groups. This is an empirical Bayes estimate by moments
// (Smyth, Linear Models and Empirical Bayes Methods, 2004, section 6.2). d0 is infinite if log s^2 scatters no more
// than chance explains. ModeratedVariances returns false if no group has residuals.
func ModeratedVariances(squares, residual []float64) (variance, df []float64, ok bool) {
	var raw, known []float64 // the variances, and the degrees of freedom, of the groups that have residuals
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
	const least = 1e-5 // relative to the median
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

// trigamma returns the trigamma function at x > 0, which is the second derivative of log gamma. It is a Hurwitz
// zeta function.
func trigamma(x float64) float64 { return mathext.Zeta(2, x) }

// trigammaInverse returns the x > 0 whose trigamma is y, for y > 0. It uses Newton's method (Smyth 2004, appendix).
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
