package ranking

import (
	"cmp"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/councild/councild/internal/council"
)

const (
	// exactBallots is the largest number of ballots for which all resamples are counted. 8 ballots have 6435
	// different resamples.
	exactBallots = 8
	// resamples is the number of resamples that are drawn for more ballots. The standard error of a share is then
	// below 0.016.
	resamples = 1000
)

// winnerSupport resamples the counted votes with replacement (Efron's bootstrap). Each resample has as many votes
// as were counted. It returns the share of the resamples that each candidate wins, by score and then by wins.
// Candidates equal in both share a resample. The largest share comes first, and equal shares are in code-point
// order. Without a counted vote there are no shares.
//
// With up to 8 votes it counts all resamples, and the shares are exact. With more, the seed draws 1000 resamples.
func (c count) winnerSupport(seed int64) []council.Support {
	exact := c.exactSupport(seed)
	shares := make([]council.Support, len(exact))
	for j, share := range exact {
		support, _ := share.Float64()
		shares[j] = council.Support{Model: c.candidates[j], Support: support}
	}
	slices.SortStableFunc(shares, func(a, b council.Support) int { return cmp.Compare(b.Support, a.Support) })
	return shares
}

// exactSupport returns each candidate's share of the resamples.
func (c count) exactSupport(seed int64) []*big.Rat {
	if len(c.ballots) == 0 {
		return nil
	}
	n := len(c.candidates)
	// The element j*n+k-1 counts the resamples that k candidates win together, one of them being candidate j.
	won := make([]int64, n*n)
	total := int64(0)
	var first []int
	visit := func(sum []mark, weight int64) {
		total += weight
		first = winners(first[:0], sum)
		for _, j := range first {
			won[j*n+len(first)-1] += weight
		}
	}
	if len(c.ballots) <= exactBallots {
		c.multisets(visit)
	} else {
		c.draw(seed, visit)
	}
	// If k candidates win a resample together, each gets 1/k of it. This is a multiple of 1/unit.
	unit := big.NewInt(1)
	var sum, weight, share big.Int
	for i, w := range won {
		if w > 0 {
			k := share.SetInt64(int64(i%n + 1))
			unit.Mul(unit, k.Quo(k, sum.GCD(nil, nil, unit, k)))
		}
	}
	all := new(big.Int).Mul(big.NewInt(total), unit)
	shares := make([]*big.Rat, n)
	for j := range shares {
		sum.SetInt64(0)
		for k, w := range won[j*n : (j+1)*n] {
			if w > 0 {
				share.Quo(unit, share.SetInt64(int64(k+1)))
				sum.Add(&sum, share.Mul(&share, weight.SetInt64(w)))
			}
		}
		shares[j] = new(big.Rat).SetFrac(&sum, all)
	}
	return shares
}

// multisets calls visit for each resample: a multiset of as many ballots as were counted. The argument sum is the
// sum over the ballots of the resample, and weight is the number of orders in which they can be drawn.
func (c count) multisets(visit func(sum []mark, weight int64)) {
	sum := make([]mark, len(c.candidates))
	var choose func(ballots []ballot, left, weight int64)
	choose = func(ballots []ballot, left, weight int64) {
		if left == 0 {
			visit(sum, weight)
			return
		}
		b := ballots[0]
		if len(ballots) == 1 {
			add(sum, b, left)
			visit(sum, weight)
			add(sum, b, -left)
			return
		}
		for times := int64(0); times <= left; times++ {
			choose(ballots[1:], left-times, weight)
			weight = weight * (left - times) / (times + 1) // the next binomial coefficient
			add(sum, b, 1)
		}
		add(sum, b, -left-1)
	}
	choose(c.ballots, int64(len(c.ballots)), 1)
}

// draw draws random resamples. It calls visit with the sum of the marks in each of them.
func (c count) draw(seed int64, visit func(sum []mark, weight int64)) {
	random := rand.NewPCG(uint64(seed), 0)
	sum := make([]mark, len(c.candidates))
	for range resamples {
		clear(sum)
		for range c.ballots {
			// The high half of the product is as good as uniform for so few ballots, and it is the same on every
			// platform.
			i, _ := bits.Mul64(random.Uint64(), uint64(len(c.ballots)))
			add(sum, c.ballots[i], 1)
		}
		visit(sum, 1)
	}
}

// leaveOneOut returns, for each counted vote, the winners without that vote. It sorts them by reviewer in
// code-point order.
func (c count) leaveOneOut() []council.Omission {
	sum := c.sum()
	all := winners(nil, sum)
	omissions := make([]council.Omission, len(c.ballots))
	for i, b := range c.ballots {
		add(sum, b, -1)
		left := winners(nil, sum)
		add(sum, b, 1)
		omissions[i] = council.Omission{Reviewer: b.reviewer, Winners: []string{}, Changes: !slices.Equal(left, all)}
		for _, j := range left {
			omissions[i].Winners = append(omissions[i].Winners, c.candidates[j])
		}
	}
	return omissions
}
