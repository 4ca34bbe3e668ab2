package bias

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPosteriorByQuadrature compares with Bayes' rule itself: prior times likelihood
// summed over a fine grid of mean and log variance.
func TestPosteriorByQuadrature(t *testing.T) {
	h := []float64{-0.6, -0.2, -0.9, 0.1, -0.5}
	prior := Prior{Mean: 0.2, Sessions: 2, Shape: 1.5, Scale: 0.4}
	got := prior.posterior(h)

	const step = 0.005
	var total, mean, below, above float64
	for mu := -4.; mu < 4; mu += step {
		for logVariance := -8.; logVariance < 6; logVariance += 0.05 {
			variance := math.Exp(logVariance)
			// The Jacobian of the logarithm takes one off the exponent of the prior.
			log := -prior.Shape*logVariance - prior.Scale/variance - (logVariance+prior.Sessions*(mu-prior.Mean)*(mu-prior.Mean)/variance)/2
			for _, v := range h {
				log -= (logVariance + (v-mu)*(v-mu)/variance) / 2
			}
			weight := math.Exp(log)
			total += weight
			mean += mu * weight
			if mu < *got.Lower {
				below += weight
			}
			if mu > *got.Upper {
				above += weight
			}
		}
	}
	if math.Abs(mean/total-*got.Value) > 1e-3 || math.Abs(below/total-0.025) > 1e-3 || math.Abs(above/total-0.025) > 1e-3 {
		t.Errorf("mean %v, tails %v and %v; by the formula %v in [%v, %v]", mean/total, below/total, above/total, *got.Value, *got.Lower, *got.Upper)
	}
}

func TestPosteriorByHand(t *testing.T) {
	// Without data the marginal is Student's t with 2 degrees of freedom.
	if diff := cmp.Diff(estimate(0, -4.302652729911275, 4.302652729911275), weakPrior().posterior(nil), approx); diff != "" {
		t.Errorf("no session (-want +got):\n%s", diff)
	}
	// Three sessions at 1: mean 3/4, shape 5/2, scale 1 + 3/8, t with 5 df.
	half := 2.570581835636314 * math.Sqrt(1.375/2.5/4)
	if diff := cmp.Diff(estimate(0.75, 0.75-half, 0.75+half), weakPrior().posterior([]float64{1, 1, 1}), approx); diff != "" {
		t.Errorf("three sessions (-want +got):\n%s", diff)
	}
}
