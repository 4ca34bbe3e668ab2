package ranking

import (
	"cmp"
	"math"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// Agree reports how much the counted votes agree, and how certain the standings are. The seed fixes the random
// shuffles for P and the random resamples for WinnerSupport. Without a counted vote, the result has no figures.
func Agree(o Options, seed int64) council.Agreement {
	c := newCount(o, o.Policy)
	available := c // has the complete ballots for kendallW
	if o.Policy == council.PolicyTiedLast {
		available = newCount(o, council.PolicyAvailable)
	}
	a := council.Agreement{
		Ballots: len(c.ballots), Copeland: map[string]float64{}, Pairwise: map[string]map[string]int{},
		KendallW:      available.kendallW(),
		WinnerSupport: c.winnerSupport(seed), LeaveOneOut: c.leaveOneOut(),
	}
	available.chance(&a, seed)
	if a.Ballots > 0 {
		c.comparePairs(&a)
	}
	return a
}

// KendallW returns the W of [Agree] alone. It needs no random draws.
func KendallW(o Options) *float64 { return newCount(o, council.PolicyAvailable).kendallW() }

// comparePairs fills in, for each pair of candidates, how the votes compare the two (Copeland 1951). A vote may leave
// out candidates. Under PolicyTiedLast, a candidate that is left out counts as tied for the last place. Under
// PolicyAvailable, the vote compares such a candidate with no other one. A pair that no vote compares is a draw.
func (c count) comparePairs(a *council.Agreement) {
	for i, candidate := range c.candidates {
		a.Pairwise[candidate] = map[string]int{}
		for j, other := range c.candidates {
			if i == j {
				continue
			}
			above := c.above(i, j)
			below := c.above(j, i)
			a.Pairwise[candidate][other] = above
			a.Copeland[candidate] += float64(1+cmp.Compare(above, below)) / 2
		}
		if a.Copeland[candidate] == float64(len(c.candidates)-1) {
			a.CondorcetWinner = &candidate
		}
	}
}

// above counts the ballots on which candidate i has a better place than candidate j.
func (c count) above(i, j int) int {
	n := 0
	for _, b := range c.ballots {
		if 0 <= b.twice[i] && b.twice[i] < b.twice[j] {
			n++
		}
	}
	return n
}

// kendallW returns the agreement, 0 to 1, of the complete ballots (see [stat.KendallW]). A ballot is complete if it
// ranks all candidates that it could rank. W is nil if it is undefined.
func (c count) kendallW() *float64 {
	var places [][]float64
	for _, b := range c.ballots {
		if b.ranked < b.m {
			continue
		}
		row := make([]float64, len(b.twice))
		for i, p := range b.twice {
			row[i] = float64(p)
			if p < 0 {
				row[i] = math.NaN()
			}
		}
		places = append(places, row)
	}
	w, ok := stat.KendallW(places)
	if !ok {
		return nil
	}
	return &w
}
