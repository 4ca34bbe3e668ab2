// Package ranking counts ballots by Borda's rule as defined in ADR-007. It returns the standings, how much the
// ballots agree, and how certain the result is. The results do not depend on the order of the ballots or of the
// candidates.
//
// Other packages read the ballots, and judge what scores say about a reviewer.
//
// # Decisions
//
// Sums of votes are exact, so rounding never makes or breaks a tie. Points and wins are whole multiples of a unit
// fraction. They are compared exactly and rounded only for output.
//
// Kendall's W is computed over the ballots that rank all candidates that their reviewer could rank. If own answers
// are hidden, the differences between two candidates are divided by the number of ballots that compare the two. For
// ballots over all candidates that is the textbook formula.
package ranking

import (
	"cmp"
	"slices"

	"github.com/councild/councild/internal/council"
)

// Vote is one reviewer's ballot. It holds the names of members in place of the labels in the reviewer's reply.
type Vote struct {
	Reviewer string   `json:"reviewer"`
	Shown    []string `json:"shown"` // the candidates on its slate
	// Places holds the members that the reviewer ranked, best first. Members at one place are tied. Members that were
	// not shown, the reviewer itself and repetitions do not count, and the places after them move up.
	Places [][]string `json:"places"`
}

// RankValues returns the rank_value of each candidate that the vote ranks. It is the mean of the 0-based places
// that the candidate covers. Places are counted without the reviewer's own answer. Other candidates have no entry.
func RankValues(v Vote) map[string]float64 {
	index := indexOf(v.Shown)
	twice, _, ranked := v.places(index, council.PolicyAvailable)
	values := make(map[string]float64, ranked)
	for candidate, j := range index {
		if twice[j] >= 0 {
			values[candidate] = float64(twice[j]) / 2
		}
	}
	return values
}

func indexOf(candidates []string) map[string]int {
	index := make(map[string]int, len(candidates))
	for i, candidate := range candidates {
		index[candidate] = i
	}
	return index
}

// places returns twice the mean place of each candidate, by its index, or -1 if it has none. m is the number of
// candidates that the vote could rank, and ranked is how many of these have a place.
func (v Vote) places(index map[string]int, policy council.PartialPolicy) (twice []int, m, ranked int) {
	twice = slices.Repeat([]int{-1}, len(index))
	left := make([]bool, len(index)) // true for candidates that could be ranked and are not yet
	for _, candidate := range v.Shown {
		if j, ok := index[candidate]; ok && candidate != v.Reviewer {
			left[j] = true
			m++
		}
	}
	tied := make([]int, 0, len(index))
	// rankTied ranks the candidates of one place, below the candidates that are already ranked. It skips candidates
	// that are already ranked.
	rankTied := func(place []string) {
		tied = tied[:0]
		for _, candidate := range place {
			if j, ok := index[candidate]; ok && left[j] {
				left[j] = false
				tied = append(tied, j)
			}
		}
		for _, j := range tied {
			twice[j] = 2*ranked + len(tied) - 1
		}
		ranked += len(tied)
	}
	for _, place := range v.Places {
		rankTied(place)
	}
	if policy == council.PolicyTiedLast && ranked > 0 {
		rankTied(v.Shown)
	}
	return twice, m, ranked
}

// Options holds the votes to count, and how to count them.
type Options struct {
	Candidates []string // the members that answered, each once
	// Votes holds one ballot for each reviewer that returned one. It has no abstentions and no invalid ballots.
	Votes []Vote
	// Asked is the number of reviewers that were asked to review each candidate, without its author. It includes
	// reviewers that did not answer. VoteCoverage is relative to it.
	Asked  map[string]int
	Policy council.PartialPolicy // the zero value stands for PolicyAvailable
}

// Result is the outcome of a count.
type Result struct {
	// Standings has one entry for each candidate. Candidates with votes come first, by score, then wins, then name
	// in code-point order. Candidates without votes follow and have no rank. Candidates equal in score and wins
	// share a rank, and the next one has the rank of its place (1, 2, 2, 4).
	Standings []council.Standing
	// PolicyChangesWinner is true if the other policy for partial ballots gives other winners. Winners are the
	// candidates at rank 1.
	PolicyChangesWinner bool
}

// Tally counts the votes by the rules of ADR-007. Let N be the number of candidates in the session, and m the
// number that a ballot could rank. The candidate at 0-based place p gets (N-1)(m-1-p)/(m-1) points. If the ballot
// is over all candidates, that is N-1-p. Tied candidates share the mean of their places. The score is the mean over
// the votes on the candidate. Candidates that share a first place share the win equally.
//
// A vote does not count if it could rank fewer than two candidates, or if it ranks only the reviewer's own answer.
//
// VoteCoverage is "high" if at least 0.8 of the reviewers that were asked voted on the candidate, "medium" from 0.5
// on, and "low" otherwise. It is also "low" with fewer than two votes.
func Tally(o Options) Result {
	chosen := newCount(o, council.PolicyAvailable)
	other := newCount(o, council.PolicyTiedLast)
	if o.Policy == council.PolicyTiedLast {
		chosen, other = other, chosen
	}
	return Result{
		Standings:           chosen.standings(o.Asked),
		PolicyChangesWinner: !slices.Equal(winners(nil, chosen.sum()), winners(nil, other.sum())),
	}
}

// count holds the counted votes under one policy.
type count struct {
	candidates []string // by name
	ballots    []ballot // by reviewer
	unit       int64    // points are multiples of (N-1)/unit
	winUnit    int64    // wins are multiples of 1/winUnit
}

// ballot is a counted vote, by candidate.
type ballot struct {
	reviewer string
	m        int   // the number of candidates that it could rank, at least 2
	ranked   int   // the number of candidates that have a place
	twice    []int // twice the mean place of each candidate, or -1 if it has none
	marks    []mark
}

// firsts returns the number of candidates that share the first place. These candidates cover the places from 0 to
// firsts-1. Twice the mean of these places is firsts-1.
func (b ballot) firsts() int64 {
	lowest := 2 * b.m
	for _, p := range b.twice {
		if p >= 0 {
			lowest = min(lowest, p)
		}
	}
	return int64(lowest) + 1
}

// mark holds the points, the wins and the number of votes that one or several ballots give to a candidate.
type mark struct{ points, wins, votes int64 }

// newCount returns the votes that count under a policy. The units stay small, because m has few different values: a
// slate holds all candidates except those of its reviewer's model. For 40 candidates, sums over hundreds of ballots
// fit in 64 bits, even with ties and twins.
func newCount(o Options, policy council.PartialPolicy) count {
	c := count{candidates: slices.Clone(o.Candidates), unit: 1, winUnit: 1}
	slices.Sort(c.candidates)
	index := indexOf(c.candidates)
	c.ballots = make([]ballot, 0, len(o.Votes))
	for _, v := range o.Votes {
		twice, m, ranked := v.places(index, policy)
		if m < 2 || ranked == 0 {
			continue
		}
		b := ballot{reviewer: v.Reviewer, m: m, ranked: ranked, twice: twice}
		c.ballots = append(c.ballots, b)
		c.unit = lcm(c.unit, int64(2*(m-1)))
		c.winUnit = lcm(c.winUnit, b.firsts())
	}
	slices.SortFunc(c.ballots, func(a, b ballot) int { return cmp.Compare(a.reviewer, b.reviewer) })
	for i := range c.ballots {
		c.ballots[i].marks = c.marks(c.ballots[i])
	}
	return c
}

// marks returns what a ballot gives to each candidate.
func (c count) marks(b ballot) []mark {
	marks := make([]mark, len(b.twice))
	last := int64(2 * (b.m - 1))
	firsts := b.firsts()
	for j, p := range b.twice {
		if p < 0 {
			continue
		}
		marks[j] = mark{points: (last - int64(p)) * (c.unit / last), votes: 1}
		if int64(p) == firsts-1 {
			marks[j].wins = c.winUnit / firsts
		}
	}
	return marks
}

func lcm(a, b int64) int64 {
	g := a
	r := b
	for r != 0 {
		g, r = r, g%r
	}
	return a / g * b
}

// sum returns the total that all ballots give to each candidate.
func (c count) sum() []mark {
	sum := make([]mark, len(c.candidates))
	for _, b := range c.ballots {
		add(sum, b, 1)
	}
	return sum
}

// add adds the marks of a ballot to sum. It multiplies them by times first. If times is -1, it thus removes a ballot.
func add(sum []mark, b ballot, times int64) {
	for j, m := range b.marks {
		sum[j].points += times * m.points
		sum[j].wins += times * m.wins
		sum[j].votes += times * m.votes
	}
}

// compare compares the standings of two candidates exactly. A candidate with votes is above one without. Then the
// mean of the points decides, then the wins.
func compare(a, b mark) int {
	if d := cmp.Compare(min(a.votes, 1), min(b.votes, 1)); d != 0 {
		return d
	}
	if d := cmp.Compare(a.points*b.votes, b.points*a.votes); d != 0 {
		return d
	}
	return cmp.Compare(a.wins, b.wins)
}

// winners returns the indices of the candidates with the best sum: several if they are equal, none if there is no
// vote. It appends them to first, which must be empty.
func winners(first []int, sum []mark) []int {
	for j, m := range sum {
		if m.votes == 0 {
			continue
		}
		better := 1
		if len(first) > 0 {
			better = compare(m, sum[first[0]])
		}
		if better > 0 {
			first = first[:0]
		}
		if better >= 0 {
			first = append(first, j)
		}
	}
	return first
}

func (c count) standings(asked map[string]int) []council.Standing {
	sum := c.sum()
	order := make([]int, len(sum))
	for j := range order {
		order[j] = j
	}
	// A stable sort keeps equal candidates in the order of their names.
	slices.SortStableFunc(order, func(a, b int) int { return compare(sum[b], sum[a]) })
	standings := make([]council.Standing, len(order))
	for i, j := range order {
		s := council.Standing{
			Model: c.candidates[j], VoteCount: int(sum[j].votes), WinCount: float64(sum[j].wins) / float64(c.winUnit),
			VoteCoverage: c.coverage(int(sum[j].votes), asked[c.candidates[j]]),
		}
		if points, of := sum[j].points, c.unit*sum[j].votes; of > 0 {
			s.BordaNormalized = new(float64(points) / float64(of))
			s.BordaScore = new(float64(points*int64(len(order)-1)) / float64(of))
			s.FinalRank = new(i + 1)
			if i > 0 && compare(sum[order[i-1]], sum[j]) == 0 {
				s.FinalRank = standings[i-1].FinalRank
			}
		}
		standings[i] = s
	}
	return standings
}

// coverage returns the VoteCoverage (see [Tally]) of a candidate. The argument votes is the number of votes on the
// candidate, and asked is the number of reviewers that were asked to review it.
func (c count) coverage(votes, asked int) string {
	switch {
	case votes < 2:
		return "low"
	case 10*votes >= 8*asked:
		return "high"
	case 10*votes >= 5*asked:
		return "medium"
	default:
		return "low"
	}
}
