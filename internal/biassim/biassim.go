// Package biassim generates the records of simulated sessions with planted
// biases, to show what the bias report finds in data whose truth is known. It writes no
// text and asks no model: scores come from the formula below.
//
// Members answer and review; outside reviewers only review. In session s, reviewer
// i gives candidate j, shown at place p, the score
//
//	Base_i + Factor_i * (quality_j + difficulty_s + answer_sj + shift_si + Sway_s * noise_sij)
//	  + Position_p + Self * 1[i = j] + Family * 1[same maker, i != j] + Harshness_i
//	  + (Length + LengthSlope_i) * log2(length_sj / 1100) + Pair_ij
//	  + Drift_i * (s/(S-1) - 1/2) + Jump_i * 1[s >= S/2]
//	  + Anchoring * A_si * 1[p > 0] + 10 * Style * C_sij * 1[i != j]
//
// rounded to a multiple of Step and clamped to 1 to 10; a constant reviewer gives
// its one score instead. A_si is the merit (quality and answer) of the answer that i
// is shown first, less the mean merit of all it is shown. C_sij is the cosine of the embeddings of
// i's own answer and of answer j, less its mean over the answers of others that i is shown. The parts in small letters
// are independent and normal with mean 0 and the standard deviations below. The
// natural logarithm of length_sj / 1100 is the sum of a model's, a session's and an
// answer's part, normal too; the length is a whole number.
//
// In the plain world Base_i is 6, Factor, Sway and Step are 1, lengths have nothing to do
// with merit, every session has a question of its own and every ballot comes back.
// World changes this. None of its fields favours anybody:
//
//   - Spread: the factors of the R reviewers stand evenly from 1 - Spread to
//     1 + Spread and are dealt to them at random, once for a data set.
//   - Constant: reviewers that give every answer the same score.
//   - LongerBetter: the correlation c of length and merit. With z the standard normal
//     deviate of a quality or an answer, the model's or the answer's part of the
//     logarithm of the length has the deviate c*z + sqrt(1-c^2)*z'.
//   - Gap: the standard deviation of quality_j, which is .6 otherwise.
//   - Levels: the Base_i of the R reviewers stand evenly from Base - Levels to
//     Base + Levels and are dealt to them at random.
//   - Curve: a score y, before it is rounded, becomes 1 + 9 v^c with v = (y-1)/9, cut
//     to 0 to 1. The logarithms of the R reviewers' exponents c stand evenly from
//     -log(1+Curve) to log(1+Curve) and are dealt to them at random.
//   - SCurve: v becomes v + w sin(2 pi v)/(2 pi). The w of the R reviewers stand evenly from -SCurve to SCurve and are
//     dealt to them at random: with one of .5, the middle of the scale is half as wide and its ends are half as wide again.
//   - Base and Step: a Base close to 10, where scores are clipped, and coarse scores.
//   - Missing: this share of ballots, drawn one by one, failed and holds no score.
//   - HeavyTails: noise is Student's t with three degrees of freedom, scaled to the same
//     standard deviation.
//   - NoiseSpread: Sway_s is exp(v*z - v^2) with v = NoiseSpread and z standard normal,
//     so that the mean square of the noise stays.
//   - Runs: so many sessions, one after another, have one question and its query hash.
//     They share difficulty_s and the session's part of the length, and of the variance of
//     answer, shift, noise and the answer's part of the length the half. Frozen: they
//     share the answers and their lengths wholly, and a block id instead of the hash.
//   - Questions: the sessions ask so many questions by turns, and have their question keys. Sessions of one question share what
//     those of Runs share.
//   - Topics: so many sessions, one after another, are about one topic, drawn at random from the categories. It adds to
//     the scores of each reviewer, and to the merit of each member's answers, a part of its own with a standard deviation
//     of TopicSD. The records name the category, unless Untold.
//   - Rescaled: the Factor of a reviewer from the middle session on, as a multiple of the one before.
//
// With World.Embedded, records have that cosine. An embedding is the sum of vectors in 16
// dimensions: one of the session (of length 2.5), of the model (.6), of the answer (.8), and AlikeMaker
// times one of the maker; with two numbers beside them, AlikeLength times the logarithm of the length, less
// that of 1100, and AlikeMerit times the merit. The cosines then lie around .86. Those that a reviewer of
// four answers meets have a standard deviation of .05, and lie .1 apart at most on average.
//
// Options.Slates determines which reviewers take part in a session, and in which order
// each is shown the answers. All estimation is left to others.
package biassim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// The parts of a score, and their standard deviations in points.
const (
	plainBase    = 6
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

// The streams of random numbers, each seeded with the seed and its own number: what
// one part of a world draws does not move any other.
const (
	streamPlain = iota
	streamSpread
	streamMissing
	streamTails
	streamNoise
	streamRuns
	streamStyle
	streamLevels
	streamCurve
	streamSCurve
	streamQuestions
	streamTopics
)

// Members returns the ids of the simulated members: five models of four makers.
func Members() []string { return Council(5) }

// Council returns the ids of n members, 1 to 12. The first two have the same maker.
func Council(n int) []string {
	all := []string{
		"openai/m0", "openai/m1", "anthropic/m2", "google/m3", "meta/m4", "mistral/m5", "qwen/m6", "deepseek/m7", "microsoft/m8",
		"amazon/m9", "nvidia/m10", "ibm/m11",
	}
	return all[:n]
}

// Effects are the planted biases, in points on the scale of 1 to 10. The zero
// value plants none. Lists go by place or by the index of a reviewer, members
// first; what is beyond a list is 0.
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
	Style       float64            // per 0.1 of similarity to the own answer; it needs World.Embedded
}

// World is how the sessions differ from plain ones, without favour to anybody.
// The zero value is the plain world. The package comment has the model.
type World struct {
	Spread       float64   // of the reviewers' use of the scale; 0 to 1
	Constant     []float64 // by reviewer, members first: the one score it gives; 0, or beyond the list: it judges
	Gap          float64   // standard deviation of the members' quality; 0 stands for .6
	Levels       float64   // how far the mean scores of the reviewers lie from Base at most
	Curve        float64   // of the reviewers' use of the scale; 0: it is straight
	SCurve       float64   // how much narrower or wider than its ends the middle of their scales is; 0 to 1
	LongerBetter float64   // correlation of an answer's length with its merit; -1 to 1
	Base         float64   // mean of the scores before clamping; 0 stands for 6
	Step         float64   // scores are multiples of it; 0 stands for 1
	Missing      float64   // share of ballots that failed; 0 to 1
	HeavyTails   bool      // noise is Student's t with three degrees of freedom
	NoiseSpread  float64   // standard deviation of the logarithm of the noise's, over sessions
	Runs         int       // sessions in a row that have one question; 0 and 1: each has its own
	Questions    int       // that the sessions ask by turns; 0: each has its own
	Frozen       bool      // the sessions of a run review the same answers, as a probe's do
	Topics       int       // sessions in a row about one topic; 0: there are no topics
	TopicSD      float64   // of what a topic adds to a reviewer's scores, and to a member's merit
	Untold       bool      // the records do not name the topics
	Rescaled     []float64 // by reviewer: its factor from the middle session on, times this; 0, or beyond the list: as before
	Embedded     bool      // the records say how alike answers are
	// AlikeLength, AlikeMerit and AlikeMaker say how much answers of like length, of like merit and of one maker
	// lie together; 0: not at all.
	AlikeLength, AlikeMerit, AlikeMaker float64
}

// Options say what is generated.
type Options struct {
	Seed     uint64
	Sessions int
	Start    time.Time // of the first session; the others follow every six hours
	Members  []string  // ids, maker/model; nil stands for Members()
	Outside  []string  // ids of reviewers that do not answer
	// Slates returns the answers that each reviewer is shown in a session, in the order
	// of the members and then of Outside; one that takes no part has an empty slate.
	// Order is how it draws them.
	Slates  func(session int) []council.Slate
	Order   council.Order
	Effects Effects
	World   World
}

// Generate returns the records of the sessions, in order: one for each reviewer
// and candidate on its slate. The same options give the same records. The random
// parts depend on the seed and the numbers of members and reviewers alone, whatever
// is planted or shown.
func Generate(o Options) []council.BiasMetricRecord {
	g := newGenerator(o)
	records := make([]council.BiasMetricRecord, 0, o.Sessions*len(g.reviewers)*len(g.members))
	for s := range o.Sessions {
		records = g.session(records, s)
	}
	return records
}

// generator holds what the sessions of a data set have in common.
type generator struct {
	o                                   Options
	members, reviewers                  []string // members are the first of the reviewers
	makers                              []string // of the reviewers
	draws, missing, tails, noise        *rand.Rand
	runs, repeats                       *rand.Rand
	quality, modelLength                []float64 // standard normal
	factor, level, exponent, sCurve     []float64 // by reviewer
	question                            chances   // of the run of sessions
	questions                           []chances // that the sessions ask by turns
	styles                              *styles   // nil: nothing is embedded
	topics                              []topic   // by category; none in a world without topics
	topicDraws                          *rand.Rand
	topic                               int // of the session
	base, step, gap, correlated, shared float64
}

// chances are the random parts of a session, as standard normal deviates.
type chances struct {
	difficulty, length float64
	answers, lengths   []float64   // by member
	shifts             []float64   // by reviewer
	noise              [][]float64 // by reviewer and member
}

func newGenerator(o Options) *generator {
	g := &generator{o: o, members: o.Members, base: o.World.Base, step: o.World.Step, correlated: o.World.LongerBetter, shared: 0.5}
	if g.members == nil {
		g.members = Members()
	}
	if g.base == 0 {
		g.base = plainBase
	}
	if g.step == 0 {
		g.step = 1
	}
	if o.World.Frozen {
		g.shared = 1
	}
	g.reviewers = slices.Concat(g.members, o.Outside)
	for _, reviewer := range g.reviewers {
		g.makers = append(g.makers, maker(reviewer))
	}
	stream := func(number uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, number)) }
	g.draws, g.missing, g.tails = stream(streamPlain), stream(streamMissing), stream(streamTails)
	g.noise, g.runs, g.repeats = stream(streamNoise), stream(streamRuns), stream(streamQuestions)
	if o.World.Embedded {
		g.styles = newStyles(stream(streamStyle), g.makers[:len(g.members)], o.World.AlikeMaker)
	}
	g.quality, g.modelLength = normals(g.draws, len(g.members)), normals(g.draws, len(g.members))
	g.gap = cmp.Or(o.World.Gap, qualitySD)
	g.factor = deal(stream(streamSpread), len(g.reviewers), func(x float64) float64 { return 1 + o.World.Spread*x })
	g.level = deal(stream(streamLevels), len(g.reviewers), func(x float64) float64 { return g.base + o.World.Levels*x })
	g.exponent = deal(stream(streamCurve), len(g.reviewers), func(x float64) float64 { return math.Pow(1+o.World.Curve, x) })
	g.sCurve = deal(stream(streamSCurve), len(g.reviewers), func(x float64) float64 { return o.World.SCurve * x })
	if o.World.Topics > 0 {
		g.topicDraws = stream(streamTopics)
		for _, category := range council.Categories() {
			g.topics = append(g.topics, topic{category, normals(g.topicDraws, len(g.reviewers)), normals(g.topicDraws, len(g.members))})
		}
	}
	return g
}

// topic is what the questions of a category have in common, as standard normal deviates.
type topic struct {
	category          string
	shifts, qualities []float64 // by reviewer and by member
}

// atTopic returns what the topic of session s adds to the scores of each reviewer and to the merit of each member, and the
// category as the records name it.
func (g *generator) atTopic(s int) (shifts, merits []float64, category *string) {
	if len(g.topics) == 0 {
		return nil, nil, nil
	}
	if s%g.o.World.Topics == 0 {
		g.topic = g.topicDraws.IntN(len(g.topics))
	}
	t := g.topics[g.topic]
	if !g.o.World.Untold {
		category = &t.category
	}
	return t.shifts, t.qualities, category
}

// deal returns the values of a function at n points that stand evenly from -1 to 1, in an order drawn at random.
func deal(draws *rand.Rand, n int, of func(x float64) float64) []float64 {
	dealt := make([]float64, n)
	for k, i := range draws.Perm(n) {
		x := 0.
		if n > 1 {
			x = 2*float64(k)/float64(n-1) - 1
		}
		dealt[i] = of(x)
	}
	return dealt
}

// bend returns a score as a reviewer's exponent and S-curve have it.
func (g *generator) bend(score float64, i int) float64 {
	if g.exponent[i] == 1 && g.sCurve[i] == 0 {
		return score
	}
	v := math.Pow(min(max((score-1)/9, 0), 1), g.exponent[i])
	return 1 + 9*(v+g.sCurve[i]*math.Sin(2*math.Pi*v)/(2*math.Pi))
}

// chances draws the random parts of a session or a question.
func (g *generator) chances(draws *rand.Rand) chances {
	n := len(g.members)
	c := chances{difficulty: draws.NormFloat64(), length: draws.NormFloat64(), answers: normals(draws, n), lengths: normals(draws, n)}
	for range g.reviewers {
		c.shifts, c.noise = append(c.shifts, draws.NormFloat64()), append(c.noise, normals(draws, n))
	}
	return c
}

// share replaces in c the parts that the sessions of a question have in common.
func (c *chances) share(q chances, answers float64) {
	c.difficulty, c.length = q.difficulty, q.length
	mix(c.answers, q.answers, answers)
	mix(c.lengths, q.lengths, answers)
	mix(c.shifts, q.shifts, 0.5)
	for i := range c.noise {
		mix(c.noise[i], q.noise[i], 0.5)
	}
}

// mix gives each of x, standard normal, that share of its variance from y.
func mix(x, y []float64, share float64) {
	for k := range x {
		x[k] = math.Sqrt(1-share)*x[k] + math.Sqrt(share)*y[k]
	}
}

// session appends the records of session s.
func (g *generator) session(records []council.BiasMetricRecord, s int) []council.BiasMetricRecord {
	w, c := g.o.World, g.chances(g.draws)
	var hash, block, key *string
	if w.Questions > 0 {
		if s < w.Questions {
			g.questions = append(g.questions, g.chances(g.repeats))
		}
		c.share(g.questions[s%w.Questions], g.shared)
		key = new(fmt.Sprintf("%016x", s%w.Questions))
	}
	if w.Runs > 1 {
		if s%w.Runs == 0 {
			g.question = g.chances(g.runs)
		}
		c.share(g.question, g.shared)
		hash = new(fmt.Sprintf("q%05d", s/w.Runs))
		if w.Frozen {
			hash, block = nil, hash
		}
	}
	merit, length := make([]float64, len(g.members)), make([]float64, len(g.members))
	topicShifts, topicMerits, category := g.atTopic(s)
	for j := range g.members {
		merit[j] = g.gap*g.quality[j] + answerSD*c.answers[j] + w.TopicSD*at(topicMerits, j)
		model, answer := g.correlate(g.modelLength[j], g.quality[j]), g.correlate(c.lengths[j], c.answers[j])
		length[j] = math.Round(typicalLength * math.Exp(modelLengthSD*model+sessionLengthSD*c.length+answerLengthSD*answer))
	}
	var alike [][]float64 // cosines
	if g.styles != nil {
		logs := make([]float64, len(length))
		for j, l := range length {
			logs[j] = math.Log(l / typicalLength)
		}
		alike = g.similarities(s, merit, logs)
	}
	sway := math.Exp(w.NoiseSpread*g.noise.NormFloat64() - w.NoiseSpread*w.NoiseSpread)
	share := float64(s) / float64(max(1, g.o.Sessions-1))
	id, start, slates := fmt.Sprintf("s%05d", s), g.o.Start.Add(time.Duration(s)*interval).UTC(), g.o.Slates(s)
	for i, reviewer := range g.reviewers {
		g.thicken(c.noise[i])
		failed := g.missing.Float64() < w.Missing
		if len(slates[i]) == 0 {
			continue
		}
		shown, mean := make([]int, len(slates[i])), 0.0
		for p, answer := range slates[i] {
			shown[p] = slices.Index(g.members, answer.Member)
			mean += merit[shown[p]] / float64(len(shown))
		}
		factor := g.factor[i]
		if again := at(w.Rescaled, i); again != 0 && share >= 0.5 {
			factor *= again
		}
		scores := make([]float64, len(shown))
		for p, j := range shown {
			scores[p] = at(w.Constant, i)
			if scores[p] != 0 {
				continue
			}
			scores[p] = g.level[i] + w.TopicSD*at(topicShifts, i) +
				factor*(difficultySD*c.difficulty+shiftSD*c.shifts[i]+merit[j]+noiseSD*sway*c.noise[i][j])
			scores[p] += g.planted(i, j, p, share) + (g.o.Effects.Length+at(g.o.Effects.LengthSlope, i))*math.Log2(length[j]/typicalLength)
			if p > 0 {
				scores[p] += g.o.Effects.Anchoring * (merit[shown[0]] - mean)
			}
		}
		var similar []float64 // to the own answer; nil: there is none, or nobody knows
		if alike != nil && i < len(g.members) {
			similar = alike[i]
			for p, points := range g.mimicry(similar, shown, i) {
				if at(w.Constant, i) == 0 {
					scores[p] += points
				}
			}
		}
		ranked := slices.Clone(scores) // NaN for the own answer, which has no rank
		if own := slices.Index(shown, i); own >= 0 {
			ranked[own] = math.NaN()
		}
		for p, j := range shown {
			record := council.BiasMetricRecord{
				SchemaVersion: council.RecordSchema, SessionID: id, Timestamp: start, ConsentLevel: 1,
				ReviewerID: reviewer, ModelID: g.members[j], Position: &p, ResponseLengthChars: int(length[j]),
				ScoreScale: council.ScoreScale, CouncilConfig: "biassim", QueryHash: hash, QuestionKey: key, BlockID: block,
				Own: i == j, NShown: len(shown), OrderDesign: g.o.Order, Status: council.BallotError,
				Provider: council.ProviderPair{Reviewer: g.makers[i], Candidate: g.makers[j]},
			}
			record.QueryMetadata.Category = category
			if similar != nil {
				record.StyleSimilarity, record.EmbeddingModel = &similar[j], "biassim"
			}
			if !failed {
				record.Status = council.BallotOK
				if i != j {
					record.RankValue = new(stat.PlaceOf(ranked, p))
				}
				record.ScoreValue = new(min(max(math.Round(g.bend(scores[p], i)/g.step)*g.step, 1), 10))
			}
			records = append(records, record)
		}
	}
	return records
}

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
		a, b, c := g.tails.NormFloat64(), g.tails.NormFloat64(), g.tails.NormFloat64()
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
	switch {
	case i == j:
		points += e.Self
	case g.makers[i] == g.makers[j]:
		points += e.Family
	}
	return points
}

// normals returns n standard normal deviates.
func normals(draws *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = draws.NormFloat64()
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
