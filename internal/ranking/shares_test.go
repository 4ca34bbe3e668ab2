package ranking

import (
	"math"
	"testing"

	"github.com/councild/councild/internal/council"
)

// The numbers were computed by hand.
func TestShares(t *testing.T) {
	for _, tt := range []struct {
		name              string
		count             council.VoteCount
		probabilities     []float64
		best              int
		confidence, score float64
	}{
		{"four to none", council.VoteCount{Votes: []int{0, 4}}, []float64{0.1, 0.9}, 1, 0.8, 0.9},
		{"three to one", council.VoteCount{Votes: []int{3, 1}}, []float64{0.7, 0.3}, 0, 0.4, 0.3},
		{"four of one of three", council.VoteCount{Votes: []int{4, 0, 0}}, []float64{13. / 15, 1. / 15, 1. / 15}, 0, 0.8, 0.2},
		{"four of the last of three", council.VoteCount{Votes: []int{0, 0, 4}}, []float64{1. / 15, 1. / 15, 13. / 15}, 2, 0.8, 1.8},
		{"one seat", council.VoteCount{Votes: []int{0, 1}}, []float64{0.25, 0.75}, 1, 0.5, 0.75},
		{"a tie", council.VoteCount{Votes: []int{2, 2}}, []float64{0.5, 0.5}, 0, 0, 0.5},
		{"three of five voted", council.VoteCount{Votes: []int{0, 3}, Abstained: 1, Failed: 1}, []float64{0.125, 0.875}, 1, 0.75, 0.875},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := SharesOf(tt.count)
			if r.Refused || r.Best != tt.best || !near(r.Confidence, tt.confidence) || !near(r.Score, tt.score) {
				t.Errorf("got %+v", r)
			}
			sum := 0.
			for i, p := range r.Probabilities {
				sum += p
				if !near(p, tt.probabilities[i]) {
					t.Errorf("option %d has %v, want %v", i, p, tt.probabilities[i])
				}
			}
			if !near(sum, 1) {
				t.Errorf("the sum is %v", sum)
			}
		})
	}
	for _, count := range []council.VoteCount{
		{Votes: []int{1, 1}, Abstained: 2}, {Votes: []int{2, 0}, Failed: 2}, {Votes: []int{0, 0}, Abstained: 1},
	} {
		if r := SharesOf(count); !r.Refused || r.Asked != count.Votes[0]+count.Votes[1]+count.Abstained+count.Failed {
			t.Errorf("%+v: got %+v", count, r)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
