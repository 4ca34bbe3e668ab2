package stat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"
)

// integrated returns the probability of a cell by integrating the density of one variate times what it leaves the other.
func integrated(rho float64, x, y *interval) float64 {
	root := math.Sqrt(1 - rho*rho)
	low, high := max(x.at[1], -9), min(x.at[0], 9)
	if low >= high {
		return 0
	}
	return quad.Fixed(func(t float64) float64 {
		return math.Exp(-t*t/2) / math.Sqrt(2*math.Pi) * (NormalCDF((y.at[0]-rho*t)/root) - NormalCDF((y.at[1]-rho*t)/root))
	}, low, high, 1500, nil, 0)
}

// randomInterval returns an interval of which one bound may be infinite.
func randomInterval(rng *rand.Rand) interval {
	low := 1.5 * rng.NormFloat64()
	high := low + 0.05 + 2*rng.Float64()
	switch rng.IntN(4) {
	case 0:
		low = -unbounded
	case 1:
		high = unbounded
	}
	return newInterval(low, high)
}

func newInterval(low, high float64) interval {
	v := interval{terms: make([]hermiteTerm, maxTerms)}
	v.set(low, high, hermiteRoots())
	return v
}

func TestBinormalAgainstIntegration(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1500 {
		rho := maxCorrelation * (2*rng.Float64() - 1)
		d, x, y := newBinormal(rho), randomInterval(rng), randomInterval(rng)
		if got, want := d.cell(&x, &y).p, max(integrated(rho, &x, &y), leastCell); math.Abs(got-want) > 1e-7 {
			t.Errorf("p = %g, want %g, of rho %g, %v and %v", got, want, rho, x.at, y.at)
		}
	}
}

// at returns the binormalLog with bounds and correlation v: high and low of x, high and low of y, rho.
func at(v []float64) *binormalLog {
	d, x, y := newBinormal(v[4]), newInterval(v[1], v[0]), newInterval(v[3], v[2])
	var to binormalLog
	d.logP(&x, &y, &to)
	return &to
}

func (l *binormalLog) gradient() []float64 { return []float64{l.x[0], l.x[1], l.y[0], l.y[1], l.rho} }

func (l *binormalLog) hessian() [5][5]float64 {
	return [5][5]float64{
		{l.xx[0][0], l.xx[0][1], l.xy[0][0], l.xy[0][1], l.xRho[0]},
		{l.xx[1][0], l.xx[1][1], l.xy[1][0], l.xy[1][1], l.xRho[1]},
		{l.xy[0][0], l.xy[1][0], l.yy[0][0], l.yy[0][1], l.yRho[0]},
		{l.xy[0][1], l.xy[1][1], l.yy[1][0], l.yy[1][1], l.yRho[1]},
		{l.xRho[0], l.xRho[1], l.yRho[0], l.yRho[1], l.rhoRho},
	}
}

func TestBinormalDerivatives(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		x, y := randomInterval(rng), randomInterval(rng)
		v := []float64{x.at[0], x.at[1], y.at[0], y.at[1], 0.9 * (2*rng.Float64() - 1)}
		if math.Exp(at(v).log) < 1e-2 {
			continue // differences of errors
		}
		gradient, hessian := at(v).gradient(), at(v).hessian()
		numeric := fd.Gradient(nil, func(v []float64) float64 { return at(v).log }, v, &fd.Settings{Formula: fd.Central, Step: 3e-4})
		for p := range v {
			if math.Abs(gradient[p]-numeric[p]) > 1e-3*(1+math.Abs(numeric[p])) {
				t.Errorf("derivative %d = %g, want %g, at %v", p, gradient[p], numeric[p], v)
			}
			second := fd.Gradient(nil, func(v []float64) float64 { return at(v).gradient()[p] }, v, &fd.Settings{Formula: fd.Central, Step: 3e-4})
			for q := range v {
				if math.Abs(hessian[p][q]-second[q]) > 5e-3*(1+math.Abs(second[q])) {
					t.Errorf("second derivative %d %d = %g, want %g, at %v", p, q, hessian[p][q], second[q], v)
				}
			}
		}
	}
}

// TestBinormalFar holds that cells in the far tails have finite logarithms and derivatives.
func TestBinormalFar(t *testing.T) {
	far := []float64{-1e6, -unbounded, -12, -7, 0, 7, 12, unbounded, 1e6}
	for _, rho := range []float64{-maxCorrelation, -0.5, -1e-12, 0, 1e-12, 0.3, maxCorrelation} {
		for k, low := range far[:len(far)-1] {
			for m, below := range far[:len(far)-1] {
				l := at([]float64{far[k+1], low, far[m+1], below, rho})
				text := fmt.Sprint(*l)
				for _, v := range append(l.gradient(), l.log, l.rhoRho) {
					if math.IsNaN(v) || math.IsInf(v, 0) {
						t.Fatalf("not finite: %s", text)
					}
				}
				for _, row := range l.hessian() {
					for _, v := range row {
						if math.IsNaN(v) || math.IsInf(v, 0) {
							t.Fatalf("not finite: %s", text)
						}
					}
				}
			}
		}
	}
}
