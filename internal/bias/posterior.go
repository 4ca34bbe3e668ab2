package bias

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Prior is what is assumed about every reviewer before any session: relative
// harshness varies between sessions normally, with a mean that is itself normal
// about Mean with the weight of Sessions observations, and a variance that is
// inverse gamma with Shape and Scale.
type Prior struct {
	Mean     float64 `json:"mean"`     // points
	Sessions float64 `json:"sessions"` // the prior mean weighs as much as these
	Shape    float64 `json:"shape"`
	Scale    float64 `json:"scale"` // squared points
}

// weakPrior weighs one session for the mean, and two with a standard deviation of
// one point for the variance.
func weakPrior() Prior { return Prior{Mean: 0, Sessions: 1, Shape: 1, Scale: 1} }

// posterior returns the posterior mean of a reviewer's relative harshness, given
// that of some sessions, with its 95 % credible interval: the conjugate
// normal-inverse-gamma update, whose marginal is a Student t (Gelman et al.,
// Bayesian Data Analysis, 3rd ed., section 3.3).
func (prior Prior) posterior(h []float64) Estimate {
	n := float64(len(h))
	weight := prior.Sessions + n
	shape, scale, mean := prior.Shape+n/2, prior.Scale, prior.Mean
	if n > 0 {
		observed := stat.Mean(h, nil)
		mean = (prior.Sessions*prior.Mean + n*observed) / weight
		for _, v := range h {
			scale += (v - observed) * (v - observed) / 2
		}
		scale += prior.Sessions * n / weight * (observed - prior.Mean) * (observed - prior.Mean) / 2
	}
	half := distuv.StudentsT{Sigma: 1, Nu: 2 * shape}.Quantile(0.975) * math.Sqrt(scale/shape/weight)
	return Estimate{Value: &mean, Lower: new(mean - half), Upper: new(mean + half)}
}
