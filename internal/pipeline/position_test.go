package pipeline_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/testkit"
)

// TestPositionEffectOnTheVote simulates reviewers that add 0.4 points, half a standard
// deviation of their noise, to the answer that they are shown first. It prints, for each
// order, how often the winner stands at each place of the canonical slate, and in which
// share of the sessions the effect changes the winner. With balanced orders no place may
// have an advantage.
func TestPositionEffectOnTheVote(t *testing.T) {
	testkit.Slow(t)
	const sessions, effect = 20_000, 0.4
	for _, n := range []int{4, 5} {
		members := make([]string, n)
		for i := range members {
			members[i] = fmt.Sprintf("m%d", i)
		}
		for _, order := range []council.Order{council.OrderBalanced, council.OrderPerReviewer, council.OrderShared} {
			draws := rand.New(rand.NewPCG(uint64(n), 7))
			wins, changed := make([]float64, n), 0
			for session := range sessions {
				slates := anonymize.Draw(anonymize.Options{Seed: int64(session), Order: order, Authors: members, Reviewers: members})
				quality, noise := make(map[string]float64, n), make(map[[2]string]float64, n*n)
				for _, m := range members {
					quality[m] = 0.8 * draws.NormFloat64()
					for _, reviewer := range members {
						noise[[2]string{reviewer, m}] = 0.8 * draws.NormFloat64()
					}
				}
				winners := func(effect float64) []string {
					votes := make([]ranking.Vote, n)
					for i, reviewer := range members {
						score := map[string]float64{}
						shown := make([]string, len(slates.Reviewer[i]))
						for position, s := range slates.Reviewer[i] {
							shown[position] = s.Member
							score[s.Member] = quality[s.Member] + noise[[2]string{reviewer, s.Member}]
							if position == 0 {
								score[s.Member] += effect
							}
						}
						places := make([][]string, len(shown))
						ranked := slices.SortedFunc(slices.Values(shown), func(a, b string) int {
							if score[a] > score[b] {
								return -1
							}
							return 1
						})
						for k, m := range ranked {
							places[k] = []string{m}
						}
						votes[i] = ranking.Vote{Reviewer: reviewer, Shown: shown, Places: places}
					}
					var first []string
					for _, st := range ranking.Tally(ranking.Options{Candidates: members, Votes: votes}).Standings {
						if *st.FinalRank == 1 {
							first = append(first, st.Model)
						}
					}
					return first
				}
				with := winners(effect)
				for _, m := range with {
					wins[slates.Canonical.Positions()[m]] += 1 / float64(len(with))
				}
				if !slices.Equal(with, winners(0)) {
					changed++
				}
			}
			expected := 1 / float64(n)
			se := math.Sqrt(expected * (1 - expected) / sessions)
			shares := make([]string, n)
			for place, w := range wins {
				share := w / sessions
				shares[place] = fmt.Sprintf("%.4f", share)
				if order == council.OrderBalanced && share > expected+3*se {
					t.Errorf("%d members, balanced: place %d wins %.4f of the sessions, want at most %.4f", n, place, share, expected+3*se)
				}
			}
			t.Logf("%d members, %-12s winner's place %v (1/N = %.4f, standard error %.4f), winner changed by the effect in %.1f %%",
				n, order, shares, expected, se, 100*float64(changed)/sessions)
		}
	}
}
