package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/stat/distuv"
)

func TestBenjaminiHochbergVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			P []float64
			Q []float64 `json:"bh_q"`
		}
	}
	readVectors(t, "multiple_testing.json", &vectors)
	if len(vectors.Cases) != 6 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for i, v := range vectors.Cases {
		if diff := cmp.Diff(v.Q, BenjaminiHochberg(v.P), cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" {
			t.Errorf("case %d (-want +got):\n%s", i, diff)
		}
	}
	for p := range 1000 { // also where 5p/5 rounds below p
		x := float64(p) / 2000
		if q := BenjaminiHochberg([]float64{0, 0, 0, 0, x}); q[4] < x {
			t.Fatalf("q = %v of p = %v", q[4], x)
		}
	}
	if q := BenjaminiHochberg(nil); len(q) != 0 {
		t.Errorf("q values of no test: %v", q)
	}
}

func TestDistributionVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			F                      string
			DF, D1, D2, K, X, P, V float64
		}
	}
	readVectors(t, "distributions.json", &vectors)
	compared := map[string]int{}
	for _, v := range vectors.Cases {
		var got float64
		tolerance := vectors.Tol
		switch v.F {
		case "t_sf2":
			got = StudentP(v.X, v.DF)
		case "F_sf":
			got = FisherP(v.X, v.D1, v.D2)
		case "t_ppf":
			got = StudentQuantile(v.P, v.DF)
			// The reference is off by up to 4e-9; the tail beyond ours is what was asked.
			tolerance = 1e-8
			if tail := StudentP(got, v.DF) / 2; math.Abs(tail-(1-v.P)) > 1e-11 {
				t.Errorf("beyond the quantile %v of t on %v df lie %v", v.P, v.DF, tail)
			}
		case "chi2_sf":
			got = ChiSquaredP(v.X, v.K)
		case "norm_cdf":
			got = NormalCDF(v.X)
		case "norm_ppf":
			got = NormalQuantile(v.P)
		default:
			continue // not used here
		}
		compared[v.F]++
		if math.Abs(got-v.V) > tolerance*math.Abs(v.V) {
			t.Errorf("%+v: got %v", v, got)
		}
	}
	if diff := cmp.Diff(map[string]int{"t_sf2": 54, "F_sf": 25, "t_ppf": 36, "chi2_sf": 20, "norm_cdf": 8, "norm_ppf": 7},
		compared); diff != "" {
		t.Errorf("cases (-want +got):\n%s", diff)
	}
}

func TestProportionVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			K, N int
			P    float64    `json:"p_exact_two_sided"`
			CI   [2]float64 `json:"wilson95"`
		}
	}
	readVectors(t, "proportions.json", &vectors)
	if len(vectors.Cases) != 8 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		want := estimate(float64(v.K)/float64(v.N), v.CI[0], v.CI[1])
		if diff := cmp.Diff(want, Wilson(v.K, v.N), cmpopts.EquateApprox(vectors.Tol, 1e-15)); diff != "" {
			t.Errorf("%d of %d (-want +got):\n%s", v.K, v.N, diff)
		}
		alone := slices.Concat(slices.Repeat([]int{1}, v.K), slices.Repeat([]int{-1}, v.N-v.K))
		if got := SignTest(alone); math.Abs(got-v.P) > vectors.Tol*v.P {
			t.Errorf("%d of %d: p = %v, want %v", v.K, v.N, got, v.P)
		}
	}
	for _, tc := range []struct {
		x    []int
		want float64
	}{
		{[]int{1, 1, 1, -1, -1, -1}, 1},
		{[]int{5}, 1},
		{[]int{3, 2}, 0.5},
		{[]int{3, 2, 0, 0}, 0.5},
		{[]int{4, -1, 2}, 0.5},
		{nil, 1},
		{slices.Repeat([]int{3}, 10), 2. / 1024},
	} {
		if got := SignTest(tc.x); math.Abs(got-tc.want) > 1e-15 {
			t.Errorf("%v: p = %v, want %v", tc.x, got, tc.want)
		}
	}
}

func TestTrigamma(t *testing.T) {
	const catalan = 0.915965594177219015
	for x, want := range map[float64]float64{
		0.25: math.Pi*math.Pi + 8*catalan,
		0.5:  math.Pi * math.Pi / 2,
		1:    math.Pi * math.Pi / 6,
		2.5:  math.Pi*math.Pi/2 - 4 - 4./9,
		4:    math.Pi*math.Pi/6 - 1 - 1./4 - 1./9,
		1e6:  1e-6 + 0.5e-12 + 1e-18/6,
	} {
		if got := trigamma(x); math.Abs(got-want) > 1e-12*want {
			t.Errorf("trigamma(%v) = %v, want %v", x, got, want)
		}
		if got := trigammaInverse(want); math.Abs(got-x) > 1e-9*x {
			t.Errorf("trigamma(%v) = %v, want %v", got, want, x)
		}
	}
}

// TestModeratedVariances draws the variances of 4000 groups from the prior that the
// estimate assumes, and once the same for all.
func TestModeratedVariances(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	chi := func(df float64) float64 { return distuv.ChiSquared{K: df, Src: rng}.Rand() }
	for _, prior := range []float64{3, 8, math.Inf(1)} {
		squares, residual := make([]float64, 4000), make([]float64, 4000)
		for k := range squares {
			residual[k] = float64(2 + k%9)
			truth := 0.7
			if !math.IsInf(prior, 1) {
				truth *= prior / chi(prior)
			}
			squares[k] = truth * chi(residual[k])
		}
		squares[0], residual[0] = 0, 0
		variance, df, ok := ModeratedVariances(squares, residual)
		if !ok {
			t.Fatal("no variances")
		}
		// A group without residuals has what is usual.
		usual, d0 := variance[0], df[0]
		if math.Abs(usual-0.7) > 0.07 {
			t.Errorf("prior on %v degrees of freedom: s0^2 is %.3f, want 0.7", prior, usual)
		}
		if math.IsInf(prior, 1) != (d0 > 100) || !math.IsInf(prior, 1) && math.Abs(d0-prior) > 0.2*prior {
			t.Errorf("d0 is %.2f, want %v", d0, prior)
		}
		if want := (d0*usual + squares[5]) / (d0 + 7); !math.IsInf(d0, 1) && math.Abs(variance[5]-want) > 1e-12 {
			t.Errorf("variance %v, want %v", variance[5], want)
		}
		if df[5] != d0+7 {
			t.Errorf("%v degrees of freedom, want %v", df[5], d0+7)
		}
	}
	if _, _, ok := ModeratedVariances(make([]float64, 12), make([]float64, 12)); ok {
		t.Error("variances without residuals")
	}
	variance, df, ok := ModeratedVariances([]float64{0, 0}, []float64{4, 4})
	if !ok || !(variance[0] > 0) || !(df[0] > 4) {
		t.Errorf("of values that fit exactly: %v on %v", variance, df)
	}
}

// TestPosteriorByQuadrature compares with Bayes' rule itself: prior times likelihood
// summed over a fine grid of mean and log variance.
func TestPosteriorByQuadrature(t *testing.T) {
	h := []float64{-0.6, -0.2, -0.9, 0.1, -0.5}
	const priorMean, weight0, shape, scale = 0.2, 2, 1.5, 0.4
	got := PosteriorMean(h, priorMean, weight0, shape, scale)

	const step = 0.005
	var total, mean, below, above float64
	for mu := -4.; mu < 4; mu += step {
		for logVariance := -8.; logVariance < 6; logVariance += 0.05 {
			variance := math.Exp(logVariance)
			// The Jacobian of the logarithm takes one off the exponent of the prior.
			log := -shape*logVariance - scale/variance - (logVariance+weight0*(mu-priorMean)*(mu-priorMean)/variance)/2
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
		t.Errorf("mean %v, tails %v and %v; by the formula %v in [%v, %v]", mean/total, below/total, above/total, *got.Value, *got.Lower,
			*got.Upper)
	}
}

func TestPosteriorByHand(t *testing.T) {
	// Without data the marginal is Student's t with 2 degrees of freedom.
	if diff := cmp.Diff(estimate(0, -4.302652729911275, 4.302652729911275), PosteriorMean(nil, 0, 1, 1, 1), approx); diff != "" {
		t.Errorf("no value (-want +got):\n%s", diff)
	}
	// Three values of 1: mean 3/4, shape 5/2, scale 1 + 3/8, t with 5 df.
	half := 2.570581835636314 * math.Sqrt(1.375/2.5/4)
	if diff := cmp.Diff(estimate(0.75, 0.75-half, 0.75+half), PosteriorMean([]float64{1, 1, 1}, 0, 1, 1, 1), approx); diff != "" {
		t.Errorf("three values (-want +got):\n%s", diff)
	}
}

func TestBinomial(t *testing.T) {
	random := rand.NewPCG(1, 0)
	sum := 0
	for range 1000 {
		k := Binomial(100, 0.3, random)
		if k < 0 || k > 100 {
			t.Fatalf("%d successes of 100", k)
		}
		sum += k
	}
	if mean := float64(sum) / 1000; math.Abs(mean-30) > 0.6 { // over four standard errors
		t.Errorf("mean %v, want 30", mean)
	}
}

func TestHalfWidth(t *testing.T) {
	if got, want := (Effect{SE: 2, DF: 10}).HalfWidth(0.9), 2*StudentQuantile(0.95, 10); got != want {
		t.Errorf("half-width %v, want %v", got, want)
	}
}

func TestHolmVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct{ P, Adjusted []float64 }
	}
	readVectors(t, "holm.json", &vectors)
	for i, v := range vectors.Cases {
		if diff := cmp.Diff(v.Adjusted, Holm(v.P), cmpopts.EquateApprox(vectors.Tol, 1e-320)); diff != "" {
			t.Errorf("case %d (-want +got):\n%s", i, diff)
		}
	}
	if len(vectors.Cases) != 5 || len(Holm(nil)) != 0 {
		t.Errorf("%d cases in the file, adjusted p of no test: %v", len(vectors.Cases), Holm(nil))
	}
}

func TestMcNemarVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			First  int     `json:"council_only"`
			Second int     `json:"other_only"`
			P      float64 `json:"p_two_sided"`
			Better float64 `json:"p_council_better"`
			Mid    float64 `json:"p_mid"`
		}
	}
	readVectors(t, "mcnemar.json", &vectors)
	if len(vectors.Cases) != 11 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		p, better, mid := McNemar(v.First, v.Second)
		if diff := cmp.Diff([]float64{v.P, v.Better, v.Mid}, []float64{p, better, mid}, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" {
			t.Errorf("%d and %d (-want +got):\n%s", v.First, v.Second, diff)
		}
	}
}

// The distribution of the sum is that of the binomial where all probabilities are equal, and that
// of every outcome, counted, where they are not.
func TestPoissonBinomial(t *testing.T) {
	equal := PoissonBinomial([]float64{0.3, 0.3, 0.3, 0.3, 0.3})
	for k, p := range equal {
		if want := (distuv.Binomial{N: 5, P: 0.3}).Prob(float64(k)); math.Abs(p-want) > 1e-14 {
			t.Errorf("%d of 5: %v, want %v", k, p, want)
		}
	}
	p := []float64{0.1, 0.5, 0.9, 1}
	want := make([]float64, len(p)+1)
	for outcome := range 1 << len(p) {
		chance, successes := 1.0, 0
		for i, success := range p {
			if outcome>>i&1 == 1 {
				chance *= success
				successes++
			} else {
				chance *= 1 - success
			}
		}
		want[successes] += chance
	}
	if diff := cmp.Diff(want, PoissonBinomial(p), cmpopts.EquateApprox(0, 1e-15)); diff != "" {
		t.Error(diff)
	}
}

// TestClusteredShare holds the interval between that of independent trials and that of whole clusters.
func TestClusteredShare(t *testing.T) {
	t.Parallel()
	alone := func(p, size, clusters float64) Estimate { return score(p, size, StudentQuantile(0.975, clusters-1)) }
	for _, tt := range []struct {
		name   string
		hits   []float64
		trials []int
		want   Estimate
	}{
		{"no trials", nil, nil, Estimate{}},
		{"clusters without trials", []float64{0, 0}, []int{0, 0}, Estimate{}},
		{"one cluster", []float64{1, 0}, []int{4, 0}, Estimate{Value: new(0.25)}},
		{"a trial a cluster", []float64{1, 0, 0, 1}, []int{1, 1, 1, 1}, alone(0.5, 4, 4)},
		{"clusters that are all or nothing", []float64{6, 0, 6, 0}, []int{6, 6, 6, 6}, alone(0.5, 4, 4)},
		{"the same share in each", []float64{3, 3, 3, 3}, []int{6, 6, 6, 6}, alone(0.5, 4, 4)}, // nothing is known of what varies
		{"no hits", []float64{0, 0, 0}, []int{6, 6, 6}, alone(0, 3, 3)},
		{"an empty cluster changes nothing", []float64{6, 0, 0}, []int{6, 6, 0}, alone(0.5, 2, 2)},
	} {
		if diff := cmp.Diff(tt.want, ClusteredShare(tt.hits, tt.trials), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
