package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"gonum.org/v1/gonum/stat/distuv"
)

// ones returns clusters of one trial each, of which k are hits.
func ones(k, n int) (hits, trials []int) {
	hits = make([]int, n)
	trials = make([]int, n)
	for i := range n {
		trials[i] = 1
		if i < k {
			hits[i] = 1
		}
	}
	return hits, trials
}

// With one trial a cluster, the bound is that of Clopper and Pearson. The second value is from the example of R's
// binom.test, whose two-sided interval begins there. The others are where the sum of the binomial probabilities from k
// to n is 5 %, computed by bisection in Python.
func TestClusteredLowerIsExact(t *testing.T) {
	for _, tt := range []struct {
		k, n       int
		confidence float64
		want       float64
	}{
		{100, 112, 0.95, 0.8321903214},
		{682, 925, 0.975, 0.7076682641},
		{29, 30, 0.95, 0.8514039313},
		{7, 9, 0.95, 0.4503583505},
		{1, 10, 0.95, 0.0051161969},
		{0, 10, 0.95, 0},
		{29, 29, 0.95, math.Pow(0.05, 1.0/29)},
		{1, 1, 0.95, 0.05},
		{0, 0, 0.95, 0},
	} {
		hits, trials := ones(tt.k, tt.n)
		got, size := ClusteredLower(hits, trials, tt.confidence)
		if math.Abs(got-tt.want) > 1e-8 || size != float64(tt.n) {
			t.Errorf("%d of %d: %.10f of %v trials, want %.10f", tt.k, tt.n, got, size, tt.want)
		}
	}
}

// A cluster counts as one trial if all are of one size.
func TestClusteredLowerOfClusters(t *testing.T) {
	hits, trials := ones(9, 10)
	want, _ := ClusteredLower(hits, trials, 0.95)
	for i := range trials {
		hits[i] *= 7
		trials[i] *= 7
	}
	if got, size := ClusteredLower(hits, trials, 0.95); math.Abs(got-want) > 1e-12 || math.Abs(size-10) > 1e-12 {
		t.Errorf("%v of %v trials, want %v of 10", got, size, want)
	}
	if _, size := ClusteredLower([]int{20, 1, 1}, []int{20, 1, 1}, 0.95); math.Abs(size-22.0*22/402) > 1e-12 {
		t.Errorf("%v trials", size)
	}
}

// The bound holds in at least 95 % of worlds, whether the trials of a cluster are independent or fully alike, and
// whatever the sizes of the clusters are. Where clusters have one trial or are fully alike, the coverage is just above
// 95 %, so that the test allows three standard errors below it.
func TestClusteredLowerCovers(t *testing.T) {
	testkit.Slow(t)
	const runs = 2000
	least := 0.95 - 3*math.Sqrt(0.05*0.95/runs)
	rng := rand.New(rand.NewPCG(1, 2))
	for kind, size := range []func(cluster int) int{
		func(int) int { return 1 },
		func(int) int { return 5 },
		func(cluster int) int { return 1 + cluster%8 },
		func(cluster int) int { return map[bool]int{true: 20, false: 1}[cluster == 0] },
		func(cluster int) int { return map[bool]int{true: 10, false: 1}[cluster%2 == 0] },
	} {
		for _, clusters := range []int{10, 30, 60} {
			for _, alike := range []float64{0, 0.1, 0.3, 1} { // the correlation inside clusters
				for _, p := range []float64{0.6, 0.8, 0.9, 0.98} {
					covered := 0
					for range runs {
						hits := make([]int, clusters)
						trials := make([]int, clusters)
						for i := range clusters {
							trials[i] = size(i)
							hits[i] = clustered(rng, trials[i], p, alike)
						}
						if bound, _ := ClusteredLower(hits, trials, 0.95); bound <= p {
							covered++
						}
					}
					if share := float64(covered) / runs; share < least {
						t.Errorf("%d clusters of kind %d, correlation %v, p %v: the bound holds in %.3f of worlds", clusters, kind, alike, p, share)
					}
				}
			}
		}
	}
}

// clustered returns how many of n trials hit. Each hits with the probability p, and two of them correlate.
func clustered(rng *rand.Rand, n int, p, correlation float64) (hits int) {
	switch correlation {
	case 0:
	case 1:
		if rng.Float64() < p {
			return n
		}
		return 0
	default: // A beta distribution with these parameters gives this correlation.
		weight := 1/correlation - 1
		p = distuv.Beta{Alpha: p * weight, Beta: (1 - p) * weight, Src: rng}.Rand()
	}
	for range n {
		if rng.Float64() < p {
			hits++
		}
	}
	return hits
}
