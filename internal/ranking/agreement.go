package ranking

import (
	"cmp"
	"slices"
)

// kendallW returns the agreement of the complete ballots, those that rank all the
// candidates that they could: Kendall's coefficient of concordance with the
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
		sizes := make(map[int]int, b.m)
		for i, p := range b.twice {
			if p < 0 {
				continue
			}
			sizes[p]++
			for j, q := range b.twice {
				if q >= 0 {
					behind[i*n+j] += int64(cmp.Compare(p, q))
					compared[i*n+j]++
				}
			}
		}
		for _, t := range sizes {
			ties += t*t*t - t
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
