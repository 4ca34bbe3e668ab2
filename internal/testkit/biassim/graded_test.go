package biassim_test

import (
	"math"
	"testing"

	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit/biassim"
)

// Arms are right as often as planted, and their errors are correlated as planted.
func TestGraded(t *testing.T) {
	g := biassim.Graded{Seed: 3, Questions: 40000, Accuracy: []float64{0.75, 0.7, 0.6}, Common: 0.6}
	right := make([][]float64, len(g.Accuracy))
	clusters := map[string]bool{}
	for _, q := range g.Generate() {
		clusters[q.Cluster] = true
		for a, score := range q.Score {
			right[a] = append(right[a], score)
		}
	}
	for a, want := range g.Accuracy {
		if got := stat.Mean(right[a]); math.Abs(got-want) > 0.01 {
			t.Errorf("arm %d is right at %v, want %v", a, got, want)
		}
		for b := range a {
			got, _ := stat.Pearson(right[a], right[b])
			if want := g.Phi(g.Accuracy[a], g.Accuracy[b]); math.Abs(got-want) > 0.015 || want < 0.3 || want > 0.5 {
				t.Errorf("errors of %d and %d correlate with %v, want %v", a, b, got, want)
			}
		}
	}
	if len(clusters) != g.Questions {
		t.Errorf("%d clusters", len(clusters))
	}
	if math.Abs((biassim.Graded{}).Phi(0.7, 0.6)) > 1e-12 {
		t.Error("errors without a common part correlate")
	}
}

// Groups share what an arm has with them, copies are copied, and equal arms have equal means.
func TestGradedWorlds(t *testing.T) {
	grouped := biassim.Graded{
		Seed: 5, Questions: 6000, Accuracy: []float64{0.7, 0.7}, Common: 0.6, Groups: 60, Grouped: 0.5, Largest: 0.4,
		Partial: true, HeavyTails: true,
	}
	sizes, same, sums := map[string]int{}, 0, [2]float64{}
	for _, q := range grouped.Generate() {
		sizes[q.Cluster]++
		sums[0], sums[1] = sums[0]+q.Score[0], sums[1]+q.Score[1]
	}
	if len(sizes) != 60 || sizes["g0"] != 2400 || math.Abs(sums[0]-sums[1])/6000 > 0.05 {
		t.Errorf("%d groups, the first of %d, sums %v", len(sizes), sizes["g0"], sums)
	}
	for _, q := range (biassim.Graded{Seed: 1, Questions: 1000, Accuracy: []float64{0.5, 0.5}, Copies: 0.9}).Generate() {
		if q.Score[0] == q.Score[1] {
			same++
		}
	}
	if same < 920 || same > 980 {
		t.Errorf("%d of 1000 scores are the same", same)
	}
}
