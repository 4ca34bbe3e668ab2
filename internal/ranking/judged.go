package ranking

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// Judged returns the result of a session of mode judge. If the session still runs, the result has the ballots so far.
func Judged(s *council.Session) council.Judgement {
	meta := s.Metadata
	j := council.Judgement{
		SessionID: s.ID, Status: s.Status, Ranking: []council.JudgedAnswer{}, Ballots: []council.JudgeBallot{},
		Excluded: append([]council.Exclusion{}, meta.Excluded...), Agreement: meta.Agreement,
		Warnings:    append([]council.Warning{}, meta.Warnings...),
		Degradation: append([]council.Degradation{}, s.Degradation...),
		Usage:       meta.Usage, Persisted: s.Persisted, Seed: meta.Seed,
	}
	pair := len(s.Stage1) == 2
	var judges []string
	reviews := map[string][]council.Review{}
	for _, r := range s.Stage2 {
		judge := council.ModelOf(r.Model)
		if reviews[judge] == nil {
			judges = append(judges, judge)
		}
		reviews[judge] = append(reviews[judge], r)
	}
	for _, judge := range judges {
		// While the session runs, the second ballot may be there before the first.
		slices.SortFunc(reviews[judge], func(a, b council.Review) int { return cmp.Compare(a.Model, b.Model) })
		j.Ballots = append(j.Ballots, judgeBallot(judge, reviews[judge], pair))
	}
	if pair && (s.Status == council.StatusComplete || s.Status == council.StatusDegraded) {
		j.Verdict = new(verdict(s.Stage1, j.Ballots))
	}
	for _, standing := range meta.AggregateRankings {
		j.Ranking = append(j.Ranking, council.JudgedAnswer{
			ID: standing.Model, Rank: standing.FinalRank, Borda: standing.BordaNormalized,
			MeanScore: meanScore(standing.Model, j.Ballots), Ballots: standing.VoteCount,
		})
	}
	j.Criteria, j.Mean = criteria(s)
	return j
}

// criteria returns the votes on the statements of a rubric, and the mean of their probabilities.
func criteria(s *council.Session) (all []council.Criterion, mean *float64) {
	all = make([]council.Criterion, 0, len(s.Votes))
	sum := 0.0
	known := 0
	for i, count := range s.Votes {
		c := council.Criterion{Text: s.Rubric[i], Votes: count.Votes, Abstained: count.Abstained, Failed: count.Failed}
		if shares := SharesOf(count); !shares.Refused {
			c.Probability = &shares.Probabilities[1]
			sum += *c.Probability
			known++
		}
		all = append(all, c)
	}
	if known > 0 && known == len(all) {
		mean = new(stat.Round(sum / float64(known)))
	}
	return all, mean
}

// judgeBallot returns the ballot of a judge that has read the answers once or twice. The argument pair says that there
// are two answers.
func judgeBallot(judge string, reviews []council.Review, pair bool) council.JudgeBallot {
	b := council.JudgeBallot{Judge: judge}
	var votes []Vote
	for _, r := range reviews {
		reading, vote, ok := readBallot(r)
		b.Orders = append(b.Orders, reading)
		if ok {
			votes = append(votes, vote)
		}
	}
	var why council.NoVote
	switch {
	case !pair && len(votes) == 2:
		b.Consistency = tauB(RankValues(votes[0]), RankValues(votes[1]))
		return b
	case !pair && len(votes) == 1:
		return b
	case len(votes) < 2, len(RankValues(votes[0])) < 2, len(RankValues(votes[1])) < 2:
		why = council.NoVoteMissing
	default:
		_, agree := Combine(votes[0], votes[1])
		first, second := len(votes[0].Places), len(votes[1].Places)
		switch {
		case agree && first == 2:
			b.Vote = &votes[0].Places[0][0]
			return b
		case agree:
			why = council.NoVoteTie
		case first == 2 && second == 2:
			why = council.NoVoteFlipped
		default:
			why = council.NoVoteUnsure
		}
	}
	b.Why = &why
	return b
}

// readBallot returns what a judge said when it read the answers in one order. The result ok says that the ballot
// counts.
func readBallot(r council.Review) (reading council.JudgeReading, vote Vote, ok bool) {
	reading = council.JudgeReading{
		Shown: make([]string, len(r.LabelToModel)), Ranking: [][]string{}, Scores: map[string]float64{}, Status: r.Status,
	}
	for _, seat := range r.LabelToModel {
		reading.Shown[seat.DisplayIndex] = seat.Model
	}
	if r.Status != council.OutcomeOK || r.ParsedRanking == nil {
		return reading, vote, false
	}
	for _, group := range r.ParsedRanking.Groups() {
		place := make([]string, len(group))
		for i, label := range group {
			place[i] = r.LabelToModel[label].Model
		}
		reading.Ranking = append(reading.Ranking, place)
	}
	for label, score := range r.ParsedRanking.Scores {
		reading.Scores[r.LabelToModel[label].Model] = score
	}
	return reading, Vote{Reviewer: r.Model, Shown: reading.Shown, Places: reading.Ranking}, true
}

// verdict counts the votes on two answers.
func verdict(answers []council.Answer, ballots []council.JudgeBallot) council.Verdict {
	first, second := answers[0].Model, answers[1].Model
	v := council.Verdict{For: map[string]int{first: 0, second: 0}}
	var signs []int
	for _, b := range ballots {
		switch {
		case b.Vote != nil && *b.Vote == first:
			v.For[first]++
			signs = append(signs, 1)
		case b.Vote != nil:
			v.For[second]++
			signs = append(signs, -1)
		case *b.Why == council.NoVoteTie:
			v.Ties++
		default:
			v.Abstained++
		}
	}
	switch {
	case v.For[first] > v.For[second]:
		v.Winner = &first
	case v.For[first] < v.For[second]:
		v.Winner = &second
	}
	v.SignTestP = stat.SignTest(signs)
	return v
}

// meanScore returns the mean of all scores of an answer, or nil if there are none.
func meanScore(answer string, ballots []council.JudgeBallot) *float64 {
	sum, n := 0.0, 0
	for _, b := range ballots {
		for _, reading := range b.Orders {
			if score, ok := reading.Scores[answer]; ok {
				sum += score
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	return new(sum / float64(n))
}

// tauB returns Kendall's tau-b of two rankings (Kendall 1945), -1 to 1. It compares the candidates that both rank. It
// returns nil if either ranking ties all of them.
func tauB(a, b map[string]float64) *float64 {
	common := slices.Sorted(maps.Keys(a))
	common = slices.DeleteFunc(common, func(candidate string) bool {
		_, ok := b[candidate]
		return !ok
	})
	agree, inA, inB := 0.0, 0.0, 0.0
	for i, x := range common {
		for _, y := range common[:i] {
			signA := float64(cmp.Compare(a[x], a[y]))
			signB := float64(cmp.Compare(b[x], b[y]))
			agree += signA * signB
			inA += signA * signA
			inB += signB * signB
		}
	}
	if inA == 0 || inB == 0 {
		return nil
	}
	return new(agree / math.Sqrt(inA*inB))
}

// Combine returns the vote of a reviewer that has ranked the same candidates twice. It places the candidates by the sum
// of their places in both votes, and leaves out a candidate that either vote leaves out. It returns false if fewer than
// two candidates are left, or if there are two candidates and the votes differ.
func Combine(a, b Vote) (Vote, bool) {
	sum := map[string]float64{}
	second := RankValues(b)
	for candidate, place := range RankValues(a) {
		if other, ok := second[candidate]; ok {
			sum[candidate] = place + other
		}
	}
	if len(sum) < 2 || len(a.Shown) == 2 && !slices.EqualFunc(a.Places, b.Places, sameElements) {
		return Vote{}, false
	}
	vote := Vote{Reviewer: a.Reviewer, Shown: a.Shown}
	last := -1.0
	for _, candidate := range slices.SortedFunc(maps.Keys(sum), func(x, y string) int {
		return cmp.Or(cmp.Compare(sum[x], sum[y]), cmp.Compare(x, y))
	}) {
		if sum[candidate] != last {
			vote.Places = append(vote.Places, nil)
			last = sum[candidate]
		}
		place := &vote.Places[len(vote.Places)-1]
		*place = append(*place, candidate)
	}
	return vote, true
}

// sameElements reports whether two lists hold the same elements, in any order.
func sameElements(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
