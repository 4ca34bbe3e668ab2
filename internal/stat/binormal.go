package stat

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
)

const (
	// unbounded stands for an infinite bound. At this value the normal density is 0 in floating point.
	unbounded = 40
	// leastCell is the least probability of a cell, so that its logarithm is finite.
	leastCell = 1e-12
	// maxCorrelation is the largest absolute correlation that a binormal may have.
	maxCorrelation = 0.97
	// maxSeries is the largest absolute correlation for which probabilities are computed as sums of powers of the
	// correlation. maxTerms is the largest number of powers in such a sum.
	maxSeries = 0.6
	maxTerms  = 28
)

// side holds the sign of each bound of an interval: + for the high bound and - for the low bound. The probability of
// an interval is the distribution function at the high bound minus the same function at the low bound.
var side = [2]float64{1, -1} //nolint:gochecknoglobals // it is never written

// interval is an interval of a standard normal variate, from its low bound (excluded) to its high bound (included).
type interval struct {
	at [2]float64 // the bounds: high, then low
	// The normal density at each bound. It is 0 at an infinite bound.
	density [2]float64
	cdf     [2]float64
	terms   []hermiteTerm
}

// hermiteTerm is a coefficient of the tetrachoric series, which is a sum of powers of the correlation. Each
// coefficient belongs to one interval and one power. The field by holds the derivatives of the coefficient by the
// bounds of the interval. The probability of a cell is the sum over n of rho^n times the coefficients of both
// intervals. For n > 0 the coefficient is phi(t) h_(n-1)(t) / sqrt(n) at the high bound minus the same at the low
// bound. h_n are the normalised Hermite polynomials. For n = 0 the coefficient is the probability of the interval
// (Pearson 1900; Kendall 1941).
type hermiteTerm struct {
	value float64
	by    [2]float64
}

// hermiteRoots returns the square roots of 0 to maxTerms.
func hermiteRoots() []float64 {
	roots := make([]float64, maxTerms+1)
	for n := range roots {
		roots[n] = math.Sqrt(float64(n))
	}
	return roots
}

// set gives the interval new bounds and computes its other fields. It keeps the length of v.terms.
func (v *interval) set(low, high float64, roots []float64) {
	v.at = [2]float64{high, low}
	for m, t := range v.at {
		v.cdf[m] = NormalCDF(t)
		v.density[m] = math.Exp(-t*t/2) / math.Sqrt(2*math.Pi)
	}
	clear(v.terms)
	for m, t := range v.at {
		// The signed density times h_(n-1).
		before := 0.
		// The signed density times h_n.
		h := side[m] * v.density[m]
		if h == 0 {
			continue
		}
		for n := range v.terms {
			v.terms[n].by[m] = -h
			if n+1 < len(v.terms) {
				v.terms[n+1].value += h / roots[n+1]
			}
			before, h = h, (t*h-roots[n]*before)/roots[n+1]
		}
		v.terms[0].by[m] = side[m] * v.density[m]
	}
	v.terms[0].value = v.cdf[0] - v.cdf[1]
}

// logP returns the logarithm of the probability of the interval, and its first and second derivatives by the bounds.
func (v *interval) logP() (log float64, first [2]float64, second [2][2]float64) {
	p := max(v.cdf[0]-v.cdf[1], leastCell)
	for m, bound := range side {
		first[m] = bound * v.density[m] / p
		second[m][m] = -v.at[m] * first[m]
	}
	for m := range side {
		for n := range side {
			second[m][n] -= first[m] * first[n]
		}
	}
	return math.Log(p), first, second
}

// binormal is the standard bivariate normal distribution with one correlation.
type binormal struct {
	rho, root float64 // the correlation, and sqrt(1-rho^2)
	// powers holds the powers of the correlation. It is nil if the correlation is above maxSeries.
	powers []float64
	nodes  []binormalNode // the nodes of the integral over the correlation, used if powers is nil
}

type binormalNode struct{ sine, inverse, weight float64 }

// newBinormal returns the bivariate normal distribution with correlation rho. The absolute value of rho must not
// exceed maxCorrelation. The probabilities of the distribution are exact to 1e-7.
func newBinormal(rho float64) binormal {
	d := binormal{rho: rho, root: math.Sqrt(1 - rho*rho)}
	if math.Abs(rho) <= maxSeries {
		for power := 1.; len(d.powers) < 2 || math.Abs(power) > 1e-6; power *= rho {
			d.powers = append(d.powers, power)
		}
		return d
	}
	n := 10
	if math.Abs(rho) > 0.8 {
		n = 20
	}
	angle := make([]float64, n)
	weight := make([]float64, n)
	end := math.Asin(rho)
	quad.Legendre{}.FixedLocations(angle, weight, min(0, end), max(0, end))
	for k, t := range angle {
		sine := math.Sin(t)
		d.nodes = append(d.nodes, binormalNode{sine, 1 / (1 - sine*sine), math.Copysign(weight[k], rho) / (2 * math.Pi)})
	}
	return d
}

// cell holds the probability that one variate is in an interval x and the other one in an interval y. It also holds
// the derivatives of that probability by the bounds of both intervals, and the second derivatives by a bound of x and
// a bound of y. Such a second derivative is the density at a corner, with the sign of the corner.
type cell struct {
	p    float64
	x, y [2]float64
	xy   [2][2]float64
}

// cell returns the cell of two intervals. Each must have as many terms as the correlation has powers.
func (d *binormal) cell(x, y *interval) cell {
	var c cell
	if d.powers == nil {
		d.integrate(x, y, &c)
	}
	for n, power := range d.powers {
		a := &x.terms[n]
		b := &y.terms[n]
		value := power * b.value
		high := power * b.by[0]
		low := power * b.by[1]
		c.p += a.value * value
		c.x[0] += a.by[0] * value
		c.x[1] += a.by[1] * value
		c.y[0] += a.value * high
		c.y[1] += a.value * low
		c.xy[0][0] += a.by[0] * high
		c.xy[0][1] += a.by[0] * low
		c.xy[1][0] += a.by[1] * high
		c.xy[1][1] += a.by[1] * low
	}
	c.p = max(c.p, leastCell)
	return c
}

// integrate sets the cell by an integral instead of the series. The probability of the cell is its probability for
// independent variates, plus one term for each corner. The term is, with the sign of the corner, the integral of
//
//	exp(-(h^2 + k^2 - 2 h k sin t) / (2 cos^2 t)) / (2 pi)
//
// over t from 0 to asin(rho) (Drezner and Wesolowsky 1990; Genz 2004). The integral uses Gauss and Legendre's rule.
func (d *binormal) integrate(x, y *interval, c *cell) {
	c.p = (x.cdf[0] - x.cdf[1]) * (y.cdf[0] - y.cdf[1])
	// given returns the probability that one variate is in an interval if the other one is h.
	given := func(v *interval, h float64) float64 {
		return NormalCDF((v.at[0]-d.rho*h)/d.root) - NormalCDF((v.at[1]-d.rho*h)/d.root)
	}
	for m, h := range x.at {
		c.x[m] = side[m] * x.density[m] * given(y, h)
		c.y[m] = side[m] * y.density[m] * given(x, y.at[m])
		for n, k := range y.at {
			if x.density[m] == 0 || y.density[n] == 0 {
				continue
			}
			sum := 0.
			beyond := (k - d.rho*h) / d.root
			for _, node := range d.nodes {
				sum += node.weight * math.Exp((node.sine*h*k-(h*h+k*k)/2)*node.inverse)
			}
			c.p += side[m] * side[n] * sum
			c.xy[m][n] = side[m] * side[n] * x.density[m] * math.Exp(-beyond*beyond/2) / (math.Sqrt(2*math.Pi) * d.root)
		}
	}
}

// binormalLog is the logarithm of the probability of a cell, with its first and second derivatives by the bounds of
// x, by the bounds of y and by the correlation. Bounds are in the order high, low.
type binormalLog struct {
	log        float64
	x, y       [2]float64
	rho        float64
	xx, yy, xy [2][2]float64
	xRho, yRho [2]float64
	rhoRho     float64
}

// logP sets the logarithm of the probability of a cell and its derivatives. The derivative of the probability by the
// correlation is the density (Plackett 1954).
func (d *binormal) logP(x, y *interval, to *binormalLog) {
	c := d.cell(x, y)
	square := d.root * d.root
	*to = binormalLog{log: math.Log(c.p)}
	for m, h := range x.at {
		to.x[m] = c.x[m] / c.p
		to.y[m] = c.y[m] / c.p
		to.xx[m][m] -= h * to.x[m]
		to.yy[m][m] -= y.at[m] * to.y[m]
		for n, k := range y.at {
			f := c.xy[m][n] / c.p
			if f == 0 {
				continue // also for an infinite bound
			}
			to.rho += f
			to.rhoRho += f * (d.rho*square + h*k*(1+d.rho*d.rho) - d.rho*(h*h+k*k)) / (square * square)
			to.xRho[m] += f * (d.rho*k - h) / square
			to.yRho[n] += f * (d.rho*h - k) / square
			to.xx[m][m] -= d.rho * f
			to.yy[n][n] -= d.rho * f
			to.xy[m][n] = f
		}
	}
	// So far these are second derivatives of p, divided by p. To get those of the logarithm, subtract the products
	// of the first derivatives.
	for m := range side {
		for n := range side {
			to.xx[m][n] -= to.x[m] * to.x[n]
			to.yy[m][n] -= to.y[m] * to.y[n]
			to.xy[m][n] -= to.x[m] * to.y[n]
		}
		to.xRho[m] -= to.x[m] * to.rho
		to.yRho[m] -= to.y[m] * to.rho
	}
	to.rhoRho -= to.rho * to.rho
}
