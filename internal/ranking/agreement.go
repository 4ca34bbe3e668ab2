package ranking

import (
	"cmp"
	"slices"

	"github.com/councild/councild/internal/council"
)

// Agree says how far the counted votes agree, and how firm the standings are. The
// seed draws the resamples behind WinnerSupport. Without a counted vote, all is empty.
func Agree(o Options, seed int64) council.Agreement {
	c := newCount(o, o.Policy)
	available := c // kendallW knows complete ballots by it
	if o.Policy == council.PolicyTiedLast {
		available = newCount(o, council.PolicyAvailable)
	}
	a := council.Agreement{
		Ballots: len(c.ballots), Copeland: map[string]float64{}, Pairwise: map[string]map[string]int{},
		KendallW:      available.kendallW(),
		WinnerSupport: c.winnerSupport(seed), LeaveOneOut: c.leaveOneOut(),
	}
	if a.Ballots > 0 {
		c.comparePairs(&a)
	}
	return a
}

// comparePairs fills in what the votes say of each two candidates (Copeland 1951). A
// vote that leaves out candidates places them behind the others under PolicyTiedLast,
// and under PolicyAvailable does not compare them with anybody. A pair that no vote
// compares is a draw.
func (c count) comparePairs(a *council.Agreement) {
	for i, candidate := range c.candidates {
		a.Pairwise[candidate] = map[string]int{}
		for j, other := range c.candidates {
			if i == j {
				continue
			}
			above, below := c.above(i, j), c.above(j, i)
			a.Pairwise[candidate][other] = above
			a.Copeland[candidate] += float64(1+cmp.Compare(above, below)) / 2
		}
		if a.Copeland[candidate] == float64(len(c.candidates)-1) {
			a.CondorcetWinner = &candidate
		}
	}
}

// above returns the number of ballots that place candidate i before j.
func (c count) above(i, j int) int {
	n := 0
	for _, b := range c.ballots {
		if 0 <= b.twice[i] && b.twice[i] < b.twice[j] {
			n++
		}
	}
	return n
}

// kendallW returns the agreement, 0 to 1, of the complete ballots, those that rank all
// the candidates that they could: Kendall's coefficient of concordance with the
// correction for ties (Kendall and Babington Smith 1939),
//
//	W = 12 S / (R^2 (N^3-N) - R T),
//
// for R ballots over all N candidates, S the squared deviations of the candidates'
// rank sums from their mean and T the sum of t^3-t over all groups of t tied.
//
// A ballot that lacks its reviewer's own answer ranks one candidate less, and rank
// sums over such ballots cannot be compared as they stand. A candidate's deviation
// is half the sum, over the others, of how many ballots rank it behind less how many
// rank it before; here each of these differences is divided by the number of ballots
// that compare the two. That is the formula above where all ballots are over all
// candidates, and Durbin's (1951) for incomplete blocks where all authors review. The
// correction is the share of sum m^3-m that T is; as ties between two answers weigh
// more on a shorter ballot, the quotient can come out above 1 and is cut off there.
//
// It is nil where there are less than two such ballots, where no ballot compares some
// two candidates, and where every ballot is one tie.
func (c count) kendallW() *float64 {
	n := len(c.candidates)
	behind, compared := make([]int64, n*n), make([]int64, n*n)
	ballots, full, ties := 0, 0, 0
	for _, b := range c.ballots {
		if b.ranked < b.m {
			continue
		}
		ballots++
		full += b.m*b.m*b.m - b.m
		for i, p := range b.twice {
			tied := 0 // candidates at the place of i, itself included
			for j, q := range b.twice {
				if p < 0 || q < 0 {
					continue
				}
				behind[i*n+j] += int64(cmp.Compare(p, q))
				compared[i*n+j]++
				if p == q {
					tied++
				}
			}
			ties += max(0, tied*tied-1) // t of them add up to t^3-t
		}
	}
	if ballots < 2 || ties == full || slices.Contains(compared, 0) {
		return nil
	}
	scale := int64(1) // makes all quotients whole
	for _, k := range compared {
		scale = lcm(scale, k)
	}
	squares := int64(0)
	for i := range n {
		deviation := int64(0)
		for j := range n {
			deviation += behind[i*n+j] * (scale / compared[i*n+j])
		}
		squares += deviation * deviation
	}
	w := float64(3*squares) / float64(scale*scale*int64(n*n*n-n)) * float64(full) / float64(full-ties)
	return new(min(w, 1))
}
