package biassim

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// Pairs describes simulated judgements of pairs. There are two candidates, and each answers every question. Reviewers
// say which of the two answers is better, once in each order.
type Pairs struct {
	Seed      uint64
	Start     time.Time // the time of the first session. Each session is a minute later than the one before.
	Questions int
	Better    float64   // how often the first candidate's answer is the better one, 0 to 1
	Accuracy  []float64 // by reviewer: how often it prefers the better answer, if Primacy does not decide
	Primacy   []float64 // by reviewer: how often the answer shown first wins in any case, nil for never
	Longer    float64   // by how many doublings the better answer is longer
	Truth     bool      // Records say which answer is correct.
	Points    bool      // Scores are from 1 to 10. If Points is false, they are 1 for the winner and 0 for the loser.
}

// Generate draws the records.
func (p Pairs) Generate() []council.BiasMetricRecord {
	rng := rand.New(rand.NewPCG(p.Seed, 44))
	records := make([]council.BiasMetricRecord, 0, 4*len(p.Accuracy)*p.Questions)
	at := p.Start
	for q := range p.Questions {
		block := "b" + strconv.Itoa(q)
		better := 0
		if rng.Float64() >= p.Better {
			better = 1
		}
		hard := rng.NormFloat64() // how hard the question is for all reviewers
		lengths := [2]int{}
		for i := range lengths {
			doublings := 9 + rng.NormFloat64()/2
			if i == better {
				doublings += p.Longer
			}
			lengths[i] = int(math.Exp2(doublings))
		}
		for order := range 2 { // order is the position in which the reviewer sees the first candidate.
			at = at.Add(time.Minute)
			for i, accuracy := range p.Accuracy {
				winner := 1 - better
				if (hard+rng.NormFloat64())/math.Sqrt2 < stat.NormalQuantile(accuracy) {
					winner = better
				}
				if p.Primacy != nil && rng.Float64() < p.Primacy[i] {
					winner = order
				}
				for candidate := range 2 {
					r := council.BiasMetricRecord{
						SchemaVersion:       council.RecordSchema,
						SessionID:           block + "-" + strconv.Itoa(order),
						Timestamp:           at,
						ConsentLevel:        1,
						ReviewerID:          "judge/" + strconv.Itoa(i),
						ModelID:             [2]string{"one/a", "two/b"}[candidate],
						Position:            new(candidate ^ order),
						ResponseLengthChars: lengths[candidate],
						ScoreScale:          "0-1",
						CouncilConfig:       "pairs",
						NShown:              2,
						OrderDesign:         council.OrderPerReviewer,
						Status:              council.BallotOK,
						BlockID:             &block,
					}
					score := 0.0
					if candidate == winner {
						score = 1
					}
					if p.Points {
						r.ScoreScale = council.ScoreScale
						score = float64(5 + rng.IntN(3))
						if candidate == winner {
							score += float64(rng.IntN(3))
						}
					}
					r.ScoreValue = &score
					if p.Truth {
						r.Correct = new(candidate == better)
					}
					records = append(records, r)
				}
			}
		}
	}
	return records
}
