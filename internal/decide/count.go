package decide

import "github.com/councild/councild/internal/council"

// Count counts the votes of all replies, for each question.
func Count(questions []council.VoteQuestion, replies []Reply) []council.VoteCount {
	counts := make([]council.VoteCount, len(questions))
	for q := range counts {
		counts[q].Votes = make([]int, len(questions[q].Options))
		for _, r := range replies {
			switch {
			case r.Error != nil:
				counts[q].Failed++
			case r.Votes[q] < 0:
				counts[q].Abstained++
			default:
				counts[q].Votes[r.Votes[q]]++
			}
		}
	}
	return counts
}
