package biassim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// session has the parts of a session that its ballots share.
type session struct {
	chances
	// How far the simulation has come: 0 in the first session, 1 in the last one.
	share        float64
	merit, chars []float64 // by member: the merit of its answer, and the length in characters
	second       []float64 // by member: its second merit, standard normal, or nil
	kinds        []int     // by member: the kind of its answer, nil without a cycle
	topicShifts  []float64 // by reviewer
	sway         float64
	alike        [][]float64              // the cosines between members, nil without embeddings
	record       council.BiasMetricRecord // the fields that all records share
}

// reviews appends the records of session s. The caller must call it for all sessions in order, because the sessions
// draw from the same random streams.
func (g *generator) reviews(records []council.BiasMetricRecord, s int) []council.BiasMetricRecord {
	v := g.draw(s)
	slates := g.o.Slates(s)
	for i := range g.reviewers {
		g.thicken(v.noise[i])
		failed := g.missing.Float64() < onHard(g.o.World.Missing, g.o.World.MissingHard, v.difficulty)
		if len(slates[i]) == 0 {
			continue
		}
		shown := make([]int, len(slates[i]))
		for p, answer := range slates[i] {
			shown[p] = slices.Index(g.members, answer.Member)
		}
		records = g.ballot(records, &v, i, shown, failed)
	}
	return records
}

// draw returns session s without its ballots.
func (g *generator) draw(s int) session {
	w := g.o.World
	v := session{chances: g.drawn(&g.plain, s), share: float64(s) / float64(max(1, g.o.Sessions-1))}
	v.record = g.record(s)
	var topicMerits []float64
	v.topicShifts, topicMerits, v.record.QueryMetadata.Category = g.atTopic(s)
	v.merit = make([]float64, len(g.members))
	v.chars = make([]float64, len(g.members))
	for j := range g.members {
		v.merit[j] = g.gap*g.quality[j] + answerSD*v.answers[j] + w.TopicSD*at(topicMerits, j)
		model := g.correlate(g.modelLength[j], g.quality[j])
		answer := g.correlate(v.lengths[j], v.answers[j])
		log := modelLengthSD*model + sessionLengthSD*v.length + answerLengthSD*answer
		if v.share >= 0.5 {
			v.merit[j] += at(w.Replaced, j)
			log += at(w.Lengthened, j) * math.Ln2
		}
		v.chars[j] = math.Round(typicalLength * math.Exp(log))
		v.merit[j] -= w.Hump * math.Pow(doublings(v.chars[j]), 2)
	}
	g.refuse(&v, s)
	if w.Second != 0 {
		v.second = g.drawn(g.second, s).answers
	}
	if w.Cycle != 0 {
		v.kinds = kinds(g.drawn(g.cycle, s).answers)
	}
	if len(w.SharedTaste) > 0 {
		common := g.drawn(g.taste, s).answers
		for i := range v.noise {
			mix(v.noise[i], common, at(w.SharedTaste, i))
		}
	}
	if g.styles != nil {
		logs := make([]float64, len(v.chars))
		for j, chars := range v.chars {
			logs[j] = math.Log(chars / typicalLength)
		}
		v.alike = g.similarities(s, v.merit, logs)
	}
	v.sway = math.Exp(w.NoiseSpread*g.noise.NormFloat64() - w.NoiseSpread*w.NoiseSpread)
	return v
}

// record returns the fields that all records of session s share.
func (g *generator) record(s int) council.BiasMetricRecord {
	w := g.o.World
	record := council.BiasMetricRecord{
		SchemaVersion: council.RecordSchema, SessionID: fmt.Sprintf("s%05d", s), ConsentLevel: 1,
		Timestamp:  g.o.Start.Add(time.Duration(s) * interval).UTC(),
		ScoreScale: council.ScoreScale, CouncilConfig: "biassim", OrderDesign: g.o.Order,
	}
	if w.Questions > 0 {
		record.QuestionKey = new(fmt.Sprintf("%016x", s%w.Questions))
	}
	if w.Runs > 1 {
		name := fmt.Sprintf("q%05d", s/w.Runs)
		if w.Frozen {
			record.BlockID = &name
		} else {
			record.QueryHash = &name
		}
	}
	return record
}

// ballot appends the records of reviewer i. The argument shown has the indexes of the members whose answers the
// reviewer is shown.
func (g *generator) ballot(records []council.BiasMetricRecord, v *session, i int, shown []int, failed bool) []council.BiasMetricRecord {
	scores := g.scores(v, i, shown)
	var similar []float64 // the similarity to the own answer, by member, or nil if there is none
	if v.alike != nil && i < len(g.members) {
		similar = v.alike[i]
		for p, points := range g.mimicry(similar, shown, i) {
			scores[p] += points
		}
	}
	constant := at(g.o.World.Constant, i)
	if constant != 0 {
		scores = slices.Repeat([]float64{constant}, len(shown))
	}
	ranked := slices.Clone(scores) // The own answer has no rank. NaN stands for it.
	if own := slices.Index(shown, i); own >= 0 {
		ranked[own] = math.NaN()
	}
	for p, j := range shown {
		record := v.record
		record.ReviewerID = g.reviewers[i]
		record.ModelID = g.members[j]
		record.Position = &p
		record.NShown = len(shown)
		record.ResponseLengthChars = int(v.chars[j])
		record.Own = i == j
		record.Status = council.BallotError
		record.Provider = council.ProviderPair{Reviewer: g.makers[i], Candidate: g.makers[j]}
		if similar != nil {
			record.StyleSimilarity = &similar[j]
			record.EmbeddingModel = "biassim"
		}
		if !failed {
			record.Status = council.BallotOK
			if i != j {
				record.RankValue = new(stat.PlaceOf(ranked, p))
			}
			record.ScoreValue = new(cmp.Or(constant, g.given(scores[p], i)))
		}
		records = append(records, record)
	}
	return records
}

// scores returns the scores of reviewer i for the shown answers, before they are rounded to the reviewer's scale.
func (g *generator) scores(v *session, i int, shown []int) []float64 {
	w := g.o.World
	e := g.o.Effects
	mean := 0.0
	for _, j := range shown {
		mean += v.merit[j] / float64(len(shown))
	}
	worth := 0.0 // the worth of the own answer, standard normal
	if i < len(g.members) {
		worth = v.answers[i]
	}
	factor := g.factor[i] * math.Exp(w.OwnSpread*worth-w.OwnSpread*w.OwnSpread)
	if again := at(w.Rescaled, i); again != 0 && v.share >= 0.5 {
		factor *= again
	}
	noise := noiseSD * v.sway * g.unlike[i] * math.Exp(w.OwnNoise*worth-w.OwnNoise*w.OwnNoise)
	scores := make([]float64, len(shown))
	for p, j := range shown {
		seen := difficultySD*v.difficulty + shiftSD*v.shifts[i] + v.merit[j] + noise*v.noise[i][j]
		seen += g.weight[i]*at(v.second, j) + g.turn[i]*v.won(j, shown)
		scores[p] = g.level[i] + w.TopicSD*at(v.topicShifts, i) + w.OwnLevel*worth + factor*seen
		scores[p] += g.planted(i, j, p, v.share) + (w.LengthReward+e.Length+at(e.LengthSlope, i))*doublings(v.chars[j])
		if p > 0 {
			scores[p] += e.Anchoring * (v.merit[shown[0]] - mean)
		}
	}
	return scores
}

// doublings returns the binary logarithm of a length divided by typicalLength.
func doublings(chars float64) float64 { return math.Log2(chars / typicalLength) }

// correlate returns the standard normal deviate of a length that correlates with the deviate of a merit, as
// World.LongerBetter says.
func (g *generator) correlate(length, merit float64) float64 {
	return math.Sqrt(1-g.correlated*g.correlated)*length + g.correlated*merit
}

// thicken turns standard normal noise into Student's t with three degrees of freedom and variance 1. It does so only if
// the world has heavy tails.
func (g *generator) thicken(noise []float64) {
	if !g.o.World.HeavyTails {
		return
	}
	for j := range noise {
		a := g.tails.NormFloat64()
		b := g.tails.NormFloat64()
		c := g.tails.NormFloat64()
		noise[j] /= math.Sqrt(a*a + b*b + c*c)
	}
}

// planted returns the planted points of reviewer i for candidate j at position p, without the points for length and
// anchoring. The argument share is session.share.
func (g *generator) planted(i, j, p int, share float64) float64 {
	e := g.o.Effects
	points := at(e.Position, p) + at(e.Harshness, i) + e.Pair[[2]int{i, j}] + at(e.Drift, i)*(share-0.5)
	if share >= 0.5 {
		points += at(e.Jump, i)
	}
	if p == 0 {
		points += at(e.FirstBy, i)
	}
	switch {
	case i == j:
		points += e.Self + at(e.SelfBy, i)
	case g.makers[i] == g.makers[j]:
		points += e.Family
	}
	return points
}
