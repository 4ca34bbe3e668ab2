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

// session is what the ballots of a session have in common.
type session struct {
	chances
	share        float64   // of the window that is over, 0 to 1
	merit, chars []float64 // by member: the merit of its answer, and the length
	second       []float64 // by member, standard normal; nil: there is no second merit
	kinds        []int     // the kind of each member; nil without a cycle
	topicShifts  []float64 // by reviewer
	sway         float64
	alike        [][]float64              // cosines between members; nil if nothing is embedded
	record       council.BiasMetricRecord // what all records have in common
}

// reviews appends the records of session s. The caller must go through the sessions in order, because each draws from the
// same random streams.
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

// record returns what the records of session s have in common.
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

// ballot appends the records of reviewer i, who is shown these answers.
func (g *generator) ballot(records []council.BiasMetricRecord, v *session, i int, shown []int, failed bool) []council.BiasMetricRecord {
	scores := g.scores(v, i, shown)
	var similar []float64 // to the own answer; nil: there is none, or nobody knows
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
	ranked := slices.Clone(scores) // NaN for the own answer, which has no rank
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

// scores returns the scores of reviewer i for the shown answers, as they are before it puts them on its scale.
func (g *generator) scores(v *session, i int, shown []int) []float64 {
	w := g.o.World
	e := g.o.Effects
	mean := 0.0
	for _, j := range shown {
		mean += v.merit[j] / float64(len(shown))
	}
	worth := 0.0 // of the own answer, standard normal
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

// doublings returns how many times as long as typical a length is, as a binary logarithm.
func doublings(chars float64) float64 { return math.Log2(chars / typicalLength) }

// correlate returns the deviate of a length that goes with that of a merit.
func (g *generator) correlate(length, merit float64) float64 {
	return math.Sqrt(1-g.correlated*g.correlated)*length + g.correlated*merit
}

// thicken makes Student's t of three degrees of freedom and variance 1 of standard
// normal noise, where the world has heavy tails.
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

// planted returns the planted points, but for length and anchoring, of reviewer i for
// candidate j at place p, when the given share of the window, 0 to 1, is over.
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
