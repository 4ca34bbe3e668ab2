//go:build validate

package stat

import (
	"math/rand/v2"
	"testing"
)

// TestValidateGraded holds the intervals of the graded-response model against the truth in more data sets, of more kinds.
func TestValidateGraded(t *testing.T) {
	for name, w := range map[string]gradedWorld{
		"all scores":  {members: 5, sessions: 100, points: [2]float64{1, 10}},
		"few":         {members: 4, sessions: 50, points: [2]float64{1, 10}},
		"only 7 to 9": {members: 5, sessions: 100, points: [2]float64{7, 9}},
		"many":        {members: 8, sessions: 60, points: [2]float64{4, 10}},
	} {
		t.Run(name, func(t *testing.T) { w.validate(t, rand.New(rand.NewPCG(rand.Uint64(), 1)), 200) })
	}
}
