package stat

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
)

const (
	// unbounded stands for an infinite bound: the density is 0 there in floating point.
	unbounded = 40
	// leastCell is the least probability of a cell, so that its logarithm is finite.
	leastCell = 1e-12
	// maxCorrelation is the largest absolute correlation that a binormal takes.
	maxCorrelation = 0.97
)

// interval is an interval of a standard normal variate: above its low and up to its high bound.
type interval struct {
	at      [2]float64 // the bounds: high, then low
	density [2]float64 // at them; 0 where there is none
	cdf     [2]float64
}

// side is the sign with which a bound enters a probability.
var side = [2]float64{1, -1} //nolint:gochecknoglobals // it is never written

func newInterval(low, high float64) interval {
	v := interval{at: [2]float64{high, low}}
	for m, t := range v.at {
		v.cdf[m] = NormalCDF(t)
		v.density[m] = math.Exp(-t*t/2) / math.Sqrt(2*math.Pi)
	}
	return v
}

// p returns the probability of the interval, at least leastCell.
func (v *interval) p() float64 { return max(v.cdf[0]-v.cdf[1], leastCell) }

// binormal is the standard bivariate normal distribution of one correlation.
type binormal struct {
	rho, root float64 // the correlation, and sqrt(1-rho^2)
	nodes     []binormalNode
}

// binormalNode is a node of the integral over the correlation.
type binormalNode struct{ sine, inverse, weight float64 }

// newBinormal returns the distribution of a correlation within maxCorrelation. It has as many nodes as probabilities take
// to be exact to 1e-8.
func newBinormal(rho float64) binormal {
	d := binormal{rho: rho, root: math.Sqrt(1 - rho*rho)}
	n := 3
	switch r := math.Abs(rho); {
	case r < 1e-9: // the integral is empty
		return d
	case r > 0.8:
		n = 20
	case r > 0.5:
		n = 10
	case r > 0.25:
		n = 5
	}
	angle, weight := make([]float64, n), make([]float64, n)
	end := math.Asin(rho)
	quad.Legendre{}.FixedLocations(angle, weight, min(0, end), max(0, end))
	for k, t := range angle {
		sine := math.Sin(t)
		d.nodes = append(d.nodes, binormalNode{sine, 1 / (1 - sine*sine), math.Copysign(weight[k], rho) / (2 * math.Pi)})
	}
	return d
}

// p returns the probability of a cell: that the first variate lies in x and the second in y. It is that of independent
// variates and, for each corner, the integral of
//
//	exp(-(h^2 + k^2 - 2 h k sin t) / (2 cos^2 t)) / (2 pi)
//
// over t from 0 to asin(rho) (Drezner and Wesolowsky 1990; Genz 2004), by Gauss and Legendre's rule. It is at least leastCell.
func (d *binormal) p(x, y *interval) float64 {
	p := (x.cdf[0] - x.cdf[1]) * (y.cdf[0] - y.cdf[1])
	for m, h := range x.at {
		if x.density[m] == 0 {
			continue
		}
		for n, k := range y.at {
			if y.density[n] == 0 {
				continue
			}
			product, squares, sum := h*k, (h*h+k*k)/2, 0.
			for _, node := range d.nodes {
				sum += node.weight * math.Exp((node.sine*product-squares)*node.inverse)
			}
			p += side[m] * side[n] * sum
		}
	}
	return max(p, leastCell)
}

// binormalLog is the logarithm of the probability of a cell, with its first and second derivatives by the bounds of x, by
// those of y and by the correlation. Bounds are in the order high, low.
type binormalLog struct {
	log        float64
	x, y       [2]float64
	rho        float64
	xx, yy, xy [2][2]float64
	xRho, yRho [2]float64
	rhoRho     float64
}

// logP sets the logarithm of p and its derivatives. The derivative of the probability by the correlation is the density
// (Plackett 1954), that by a bound the density of one variate times a conditional probability of the other.
func (d *binormal) logP(x, y *interval, to *binormalLog) {
	p, square := d.p(x, y), d.root*d.root
	*to = binormalLog{log: math.Log(p)}
	for m, h := range x.at {
		for n, k := range y.at {
			if x.density[m] == 0 || y.density[n] == 0 {
				continue
			}
			f := side[m] * side[n] * x.density[m] * math.Exp(-(k-d.rho*h)*(k-d.rho*h)/(2*square)) / (math.Sqrt(2*math.Pi) * d.root * p)
			to.rho += f
			to.rhoRho += f * (d.rho*square + h*k*(1+d.rho*d.rho) - d.rho*(h*h+k*k)) / (square * square)
			to.xRho[m] += f * (d.rho*k - h) / square
			to.yRho[n] += f * (d.rho*h - k) / square
			to.xx[m][m] -= d.rho * f
			to.yy[n][n] -= d.rho * f
			to.xy[m][n] = f
		}
	}
	for m, bound := range side {
		to.x[m] = bound * x.density[m] * d.given(y, x.at[m]) / p
		to.y[m] = bound * y.density[m] * d.given(x, y.at[m]) / p
		to.xx[m][m] -= x.at[m] * to.x[m]
		to.yy[m][m] -= y.at[m] * to.y[m]
	}
	// These were second derivatives of p, over p. Those of its logarithm are less by the products of the first ones.
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

// given returns the probability of an interval of one variate where the other one is h.
func (d *binormal) given(v *interval, h float64) float64 {
	return NormalCDF((v.at[0]-d.rho*h)/d.root) - NormalCDF((v.at[1]-d.rho*h)/d.root)
}
