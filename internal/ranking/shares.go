package ranking

import (
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// Shares is what the votes on one question say.
type Shares struct {
	Asked int // seats
	// Refused says that half of the seats or more cast no vote. The other fields are then not set.
	Refused bool
	// Probabilities has a number for each option. They add up to 1.
	Probabilities []float64
	// Best is the option with the highest probability. Of equal options it is the first.
	Best int
	// Confidence says how much the votes concentrate on one option. It is 0 if all options have the same probability, and
	// near 1 if many seats agree.
	Confidence float64
	// Score is the mean index of the options, weighted with their probabilities.
	Score float64
}

// SharesOf returns the shares of the votes on one question. Each of k options with v of n votes has the probability
// (v + 1/k) / (n + 1), as if one more judge had divided its vote equally.
func SharesOf(count council.VoteCount) Shares {
	k := float64(len(count.Votes))
	votes := 0
	for _, v := range count.Votes {
		votes += v
	}
	r := Shares{Asked: votes + count.Abstained + count.Failed}
	if 2*votes <= r.Asked {
		r.Refused = true
		return r
	}
	for i, v := range count.Votes {
		p := (float64(v) + 1/k) / float64(votes+1)
		r.Score += float64(i) * p
		r.Probabilities = append(r.Probabilities, stat.Round(p))
		if v > count.Votes[r.Best] {
			r.Best = i
		}
	}
	r.Confidence = stat.Round((k*r.Probabilities[r.Best] - 1) / (k - 1))
	r.Score = stat.Round(r.Score)
	return r
}
