package main

import (
	"fmt"

	"github.com/councild/councild/internal/testkit/biassim"
)

const tablePairs = "Reports on pairs of answers with a verdict of favour, %, where reviewers judge right unlike " +
	"often and nobody is favoured. Columns: sessions x reviewers."

// pairScenarios returns judgements of pairs by reviewers of unlike accuracy. The accurate reviewers prefer the better
// candidate more often than the others do. That is not a favour.
func pairScenarios() []Scenario {
	unlike := []float64{0.95, 0.8, 0.7, 0.65, 0.6, 0.5}
	all := make([]Scenario, 0, 10)
	for _, world := range []struct {
		what  string
		pairs biassim.Pairs
	}{
		{"one candidate is always better", biassim.Pairs{Better: 1}},
		{"one candidate is better at 7 of 10", biassim.Pairs{Better: 0.7}},
		{"better answers are twice as long", biassim.Pairs{Better: 0.7, Longer: 1}},
		{"scores from 1 to 10", biassim.Pairs{Better: 0.7, Points: true}},
		{"the truth is given", biassim.Pairs{Better: 0.7, Truth: true}},
	} {
		world.pairs.Accuracy = unlike
		for _, sessions := range []int{50, 200} {
			s := Scenario{
				what:     "pairs, " + world.what,
				members:  len(unlike),
				sessions: sessions,
				own:      true,
				pairs:    &world.pairs,
			}
			s.lines = []line{{
				table:  tablePairs,
				row:    world.what,
				column: fmt.Sprintf("%dx%d", sessions, s.members),
				high:   0.05,
				errors: 2,
				count:  favouring(),
			}}
			all = append(all, s)
		}
	}
	return all
}
