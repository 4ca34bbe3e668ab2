// Package biassim generates the records of simulated sessions with planted
// biases, to show what the bias report makes of data whose truth is known. No
// text is written and nobody is asked: scores come from the model below.
//
// Members answer and review. In session s, reviewer i gives candidate j, shown at
// place p, the score
//
//	6 + quality_j + difficulty_s + answer_sj + shift_si + noise
//	  + Position_p + Self * 1[i = j] + Family * 1[same maker, i != j] + Harshness_i
//	  + (Length + LengthSlope_i) * log2(length_sj / 1100) + Pair_ij
//	  + Drift_i * (s/(S-1) - 1/2) + Jump_i * 1[s >= S/2]
//	  + Anchoring * A_si * 1[p > 0]
//
// rounded and clamped to 1 to 10. A_si is the merit (quality and answer) of the
// answer that i is shown first, less the mean merit of all it is shown. The
// random parts are normal with mean 0 and the standard deviations below; lengths
// are log-normal and have nothing to do with merit.
//
// It leaves to others the orders in which the answers are shown and all
// estimation.
package biassim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// The parts of a score, and their standard deviations in points.
const (
	baseScore    = 6
	qualitySD    = 0.6 // of a model, over all its answers
	difficultySD = 0.5 // of a session
	answerSD     = 0.8 // of an answer
	shiftSD      = 0.3 // of a reviewer in a session
	noiseSD      = 0.8 // of a score
)

// The parts of an answer's length: its median in characters, and the standard
// deviations of its natural logarithm.
const (
	typicalLength   = 1100
	modelLengthSD   = 0.3
	sessionLengthSD = 0.4
	answerLengthSD  = 0.25
)

// interval is the time from one session to the next.
const interval = 6 * time.Hour

// Members returns the ids of the simulated members: five models of four makers.
func Members() []string {
	return []string{"openai/m0", "openai/m1", "anthropic/m2", "google/m3", "meta/m4"}
}

// Effects are the planted biases, in points on the scale of 1 to 10. The zero
// value plants none. Lists go by place or by the index of a member in Members;
// what is beyond a list is 0.
type Effects struct {
	Length      float64            // per doubling of the length, every reviewer
	LengthSlope []float64          // per doubling, by reviewer, on top of Length
	Position    []float64          // by place shown
	Self        float64            // on the own answer
	Family      float64            // on the answers of other models of the same maker
	Harshness   []float64          // by reviewer; below 0 is harsh
	Drift       []float64          // by reviewer: its change from the first session to the last
	Jump        []float64          // by reviewer: added from the middle session on
	Anchoring   float64            // per point that the first answer stands above the mean of the slate
	Pair        map[[2]int]float64 // by reviewer and candidate
}

// Options say what is generated.
type Options struct {
	Seed     uint64
	Sessions int
	Start    time.Time // of the first session; the others follow every six hours
	// Slates returns the answers that each of Members is shown in a session, in the
	// order of Members. Order says how it draws them.
	Slates  func(session int) []council.Slate
	Order   council.Order
	Effects Effects
}

// Generate returns the records of the sessions, in order: one for each reviewer
// and candidate on its slate. The same options give the same records. The random
// parts depend on the seed alone, whatever is planted or shown.
func Generate(o Options) []council.BiasMetricRecord {
	members := Members()
	draws := rand.New(rand.NewPCG(o.Seed, 0))
	quality, modelLength := normals(draws, len(members), qualitySD), normals(draws, len(members), modelLengthSD)
	var records []council.BiasMetricRecord
	for s := range o.Sessions {
		difficulty, sessionLength := difficultySD*draws.NormFloat64(), sessionLengthSD*draws.NormFloat64()
		merit, length := normals(draws, len(members), answerSD), normals(draws, len(members), answerLengthSD)
		for j := range members {
			merit[j] += quality[j]
			length[j] = math.Round(typicalLength * math.Exp(modelLength[j]+sessionLength+length[j]))
		}
		slates := o.Slates(s)
		for i, reviewer := range members {
			shift, noise := difficulty+shiftSD*draws.NormFloat64(), normals(draws, len(members), noiseSD)
			shown := make([]int, len(slates[i]))
			mean := 0.0
			for p, answer := range slates[i] {
				shown[p] = slices.Index(members, answer.Member)
				mean += merit[shown[p]] / float64(len(shown))
			}
			scores := make([]float64, len(shown))
			for p, j := range shown {
				scores[p] = baseScore + shift + merit[j] + noise[j] + o.Effects.on(i, j, p, float64(s)/float64(max(1, o.Sessions-1)))
				scores[p] += (o.Effects.Length + at(o.Effects.LengthSlope, i)) * math.Log2(length[j]/typicalLength)
				if p > 0 {
					scores[p] += o.Effects.Anchoring * (merit[shown[0]] - mean)
				}
			}
			for p, j := range shown {
				records = append(records, council.BiasMetricRecord{
					SchemaVersion: council.RecordSchema, SessionID: fmt.Sprintf("s%05d", s), Timestamp: o.Start.Add(time.Duration(s) * interval).UTC(), ConsentLevel: 1,
					ReviewerID: reviewer, ModelID: members[j], Position: &p, ResponseLengthChars: int(length[j]),
					ScoreValue: new(min(max(math.Round(scores[p]), 1), 10)), ScoreScale: council.ScoreScale, CouncilConfig: "biassim",
					Own: i == j, NShown: len(shown), OrderDesign: o.Order, RankValue: place(scores, shown, i, p), Status: council.BallotOK,
					Provider: council.ProviderPair{Reviewer: maker(reviewer), Candidate: maker(members[j])},
				})
			}
		}
	}
	return records
}

// on returns the planted points, but for length and anchoring, of reviewer i for
// candidate j at place p, when the given share of the window, 0 to 1, is over.
func (e Effects) on(i, j, p int, share float64) float64 {
	points := at(e.Position, p) + at(e.Harshness, i) + e.Pair[[2]int{i, j}] + at(e.Drift, i)*(share-0.5)
	if share >= 0.5 {
		points += at(e.Jump, i)
	}
	if i == j {
		return points + e.Self
	}
	if members := Members(); maker(members[i]) == maker(members[j]) {
		points += e.Family
	}
	return points
}

// place returns the rank value at place p of a ballot by score: how many of the
// others' answers have more, without ties. It is nil for the own answer.
func place(scores []float64, shown []int, reviewer, p int) *float64 {
	if shown[p] == reviewer {
		return nil
	}
	above := 0.0
	for q, j := range shown {
		if j != reviewer && scores[q] > scores[p] {
			above++
		}
	}
	return &above
}

func normals(draws *rand.Rand, n int, sd float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = sd * draws.NormFloat64()
	}
	return x
}

func at(list []float64, i int) float64 {
	if i < len(list) {
		return list[i]
	}
	return 0
}

func maker(member string) string {
	name, _, _ := strings.Cut(member, "/")
	return name
}
