package biassim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/councild/councild/internal/stat"
)

// Graded describes simulated questions with right answers, and arms that answer them. Arm a is
// right at question q if
//
//	sqrt(Common) * u_q + sqrt(1-Common) * (sqrt(Grouped) * v_ag + sqrt(1-Grouped) * w_aq)
//
// is below the normal quantile of the arm's accuracy. u says how hard the question is for all
// arms, v says how hard the group g of questions is for arm a, and w is the arm's luck. All
// three are standard normal. That is why each arm is right as often as its accuracy says, and
// why Common says how far the arms make the same errors.
type Graded struct {
	Seed      uint64
	Questions int
	Accuracy  []float64 // by arm, between 0 and 1
	Common    float64   // the share of the variance that all arms share, from 0 to 1
	// Groups is the number of groups of questions. Their sizes have the ratios 1 : 2 : 3 by turns. With 0, each question
	// is a group of its own.
	Groups  int
	Grouped float64 // the share of an arm's own variance that belongs to the group
	// Largest is the share of questions in the first group. With 0, the first group is like the others.
	Largest float64
	// HeavyTails draws u from Student's t with three degrees of freedom, as a mixture of
	// normals. The arms then share more errors at a few questions. An accuracy of one half
	// stays the same.
	HeavyTails bool
	// Copies is the share of questions at which the first arm has the score of the second.
	Copies float64
	// Partial gives scores from 0 to 1, by the distance from the quantile, in place of 0 and 1.
	// The mean is then not the accuracy, but equal accuracies have equal means.
	Partial bool
}

// GradedQuestion is a question with the score of each arm.
type GradedQuestion struct {
	Cluster string
	Score   []float64
}

// Generate draws the questions.
func (g Graded) Generate() []GradedQuestion {
	rng := rand.New(rand.NewPCG(g.Seed, 12))
	group := g.groups()
	shared := map[[2]int]float64{} // by arm and group
	limit := make([]float64, len(g.Accuracy))
	for a, p := range g.Accuracy {
		limit[a] = stat.NormalQuantile(p)
	}
	all := make([]GradedQuestion, g.Questions)
	for q := range all {
		u := rng.NormFloat64()
		scale := 1.0
		if g.HeavyTails {
			chi := 0.0
			for range 3 {
				z := rng.NormFloat64()
				chi += z * z
			}
			scale = math.Sqrt(3 / chi)
		}
		all[q] = GradedQuestion{Cluster: "q" + strconv.Itoa(q), Score: make([]float64, len(g.Accuracy))}
		if group != nil {
			all[q].Cluster = "g" + strconv.Itoa(group[q])
		}
		for a := range g.Accuracy {
			own := rng.NormFloat64()
			if group != nil {
				at := [2]int{a, group[q]}
				if _, ok := shared[at]; !ok {
					shared[at] = rng.NormFloat64()
				}
				own = math.Sqrt(g.Grouped)*shared[at] + math.Sqrt(1-g.Grouped)*own
			}
			below := limit[a] - (math.Sqrt(g.Common)*u*scale + math.Sqrt(1-g.Common)*own)
			switch {
			case g.Partial:
				all[q].Score[a] = math.Round(10*stat.NormalCDF(3*below)) / 10
			case below > 0:
				all[q].Score[a] = 1
			}
		}
		if rng.Float64() < g.Copies {
			all[q].Score[0] = all[q].Score[1]
		}
	}
	return all
}

// groups returns the group of each question, or nil without groups.
func (g Graded) groups() []int {
	if g.Groups == 0 {
		return nil
	}
	group := make([]int, 0, g.Questions)
	if g.Largest > 0 {
		group = slices.Repeat([]int{0}, int(g.Largest*float64(g.Questions)))
	}
	for n := 0; len(group) < g.Questions; n = (n + 1) % g.Groups {
		if g.Largest > 0 && n == 0 {
			continue
		}
		for range 1 + n%3 {
			group = append(group, n)
		}
	}
	return group[:g.Questions]
}

// Phi returns the correlation between the errors of two arms with the accuracies a and b.
func (g Graded) Phi(a, b float64) float64 {
	// For a given u, the arms are independent. The chance that both are right is the mean of the product over u.
	limitA := stat.NormalQuantile(a)
	limitB := stat.NormalQuantile(b)
	common := math.Sqrt(g.Common)
	own := math.Sqrt(1 - g.Common)
	both := 0.0
	weight := 0.0
	for u := -8.0; u <= 8; u += 1.0 / 128 {
		density := math.Exp(-u * u / 2)
		both += density * stat.NormalCDF((limitA-common*u)/own) * stat.NormalCDF((limitB-common*u)/own)
		weight += density
	}
	return (both/weight - a*b) / math.Sqrt(a*(1-a)*b*(1-b))
}
