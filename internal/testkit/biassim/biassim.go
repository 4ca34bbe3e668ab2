// Package biassim generates the records of simulated sessions with planted
// biases. Tests use them to show what the bias report finds in data whose truth is
// known. The package writes no text and asks no model. Scores come from the formula below.
//
// Members answer and review. Outside reviewers only review. In session s, reviewer i gives candidate j, shown at
// position p, the score
//
//	Base_i + Factor_i * (quality_j + difficulty_s + answer_sj + shift_si + Sway_s * noise_sij)
//	  + Position_p + FirstBy_i * 1[p = 0] + (Self + SelfBy_i) * 1[i = j]
//	  + Family * 1[same maker, i != j] + Harshness_i
//	  + (Length + LengthSlope_i) * log2(length_sj / 1100) + Pair_ij
//	  + Drift_i * (s/(S-1) - 1/2) + Jump_i * 1[s >= S/2]
//	  + Anchoring * A_si * 1[p > 0] + 10 * Style * C_sij * 1[i != j]
//
// The score is rounded to a multiple of Step and clamped to 1 to 10. A constant reviewer gives its one score instead.
// A_si is the merit (quality and answer) of the answer that reviewer i is shown first, minus the mean merit of all
// answers that the reviewer is shown. C_sij compares the reviewer's own answer with answer j. It is the cosine of their
// embeddings, minus the mean of such cosines over the answers of others that the reviewer is shown. The parts in small
// letters are independent and normal with mean 0 and the standard deviations below. The natural logarithm of length_sj
// / 1100 is the sum of a model's, a session's and an answer's part, which are also normal. The length is rounded to a
// whole number.
//
// In the plain world, Base_i is 6, and Factor, Sway and Step are 1. Lengths do not depend on merit,
// every session has a question of its own, and every ballot comes back. The fields of World change
// this, but none of them favours a member. "Dealt evenly from a to b" means: R values
// at equal distances from a to b are assigned to the R reviewers at random, once for a data set.
//
//   - Spread: the factors are dealt evenly from 1 - Spread to 1 + Spread.
//   - Constant: these reviewers give every answer the same score.
//   - LongerBetter: the correlation c of length and merit. Let z be the standard normal
//     deviate of a quality or an answer. The model's or the answer's part of the
//     logarithm of the length then has the deviate c*z + sqrt(1-c^2)*z'.
//   - Gap: the standard deviation of quality_j. The default is 0.6.
//   - Levels: the Base_i are dealt evenly from Base - Levels to Base + Levels.
//   - Curve: before it is rounded, a score y becomes 1 + 9 v^c with v = (y-1)/9, where v is
//     clamped to 0 to 1. The logarithms of the exponents c are dealt evenly from
//     -log(1+Curve) to log(1+Curve).
//   - SCurve: v becomes v + w sin(2 pi v)/(2 pi). The w are dealt evenly from -SCurve to SCurve. With a w of 0.5, the
//     middle of the scale is half as wide, and its ends are one and a half times as wide.
//   - Base and Step: the mean of the scores, and the distance between two possible scores. With a Base close to 10,
//     many scores are clamped.
//   - Missing: this share of ballots fails and holds no score. Each ballot is drawn independently.
//   - HeavyTails: noise is Student's t with three degrees of freedom, scaled to the same
//     standard deviation.
//   - NoiseSpread: Sway_s is exp(v*z - v^2) with v = NoiseSpread and z standard normal,
//     so that the mean square of the noise stays the same.
//   - Runs: this number of sessions in a row have one question and its query hash.
//     They share difficulty_s and the session's part of the length. They also share half of the variance of
//     answer, shift, noise and the answer's part of the length.
//   - Frozen: the sessions of a run share the answers and their lengths completely. They have a block id in place of
//     the query hash.
//   - Questions: the sessions ask this number of questions in turn, and have their question keys. Sessions with one
//     question share the same parts as the sessions of a run.
//   - Topics: this number of sessions in a row have one topic, which is drawn from the categories. A topic adds one
//     part to the scores of each reviewer, and another part to the merit of each member's answers. The standard
//     deviation of both is TopicSD. The records name the category, unless Untold is set.
//   - Rescaled: from the middle session on, the Factor of a reviewer is multiplied by this number.
//   - CutPoints: instead of rounding, each reviewer has nine cut points of its own. A score is 1 plus the number of cut
//     points below the unrounded score. The distances between cut points are exp(CutPoints * z). A reviewer's mode is
//     the score that it gives for Base. It is drawn evenly from 6.5 to 8.5. The cut points are moved so that Base has
//     the place among them that the mode has among 1.5, 2.5 and so on to 9.5.
//   - Habits: the scores that reviewers use. A habit is applied after the cut points.
//   - MixedHabits: a reviewer that Habits does not name draws one of [Habits].
//   - UnlikeNoise: the noise of each reviewer is multiplied by a factor. The factors are dealt evenly from
//     1 - UnlikeNoise to 1 + UnlikeNoise.
//   - OwnLevel, OwnNoise and OwnSpread: these change how a member reviews, by the worth a of its own answer in the
//     session. The worth is answer_si in standard deviations. Base_i rises by OwnLevel * a. The noise is multiplied
//     by exp(OwnNoise * a - OwnNoise^2), and Factor_i by exp(OwnSpread * a - OwnSpread^2). This holds for all answers
//     on the ballot.
//   - Replaced and Lengthened: from the middle session on, the merit of a member is this many points higher, and its
//     answers are this many doublings longer. This is what happens if another model gets the member's name.
//   - Hump: long and short answers are worse. The merit falls by Hump * log2(length_sj / 1100)^2.
//   - LengthReward: the same as Length of [Effects], as a part of a world.
//   - Refusals: this share of answers are stubs. The merit of a stub is -4 instead of quality, answer and topic. The
//     natural logarithm of its length is normal. Its mean is the logarithm of 120, and its standard deviation is 0.3.
//     An answer is a stub with the chance Refusals * exp(-d - 1/2), where d is difficulty_s in standard deviations. A
//     question with d below 0 is hard.
//   - MissingHard: ballots fail with the chance Missing * exp(-MissingHard * d - MissingHard^2 / 2).
//   - SharedTaste: the noise of a reviewer with the share v is sqrt(v) * t_sj + sqrt(1-v) * noise_sij. The taste t is
//     the same for all reviewers.
//   - Second: an answer has a second, independent merit. The product of this merit, a reviewer's weight and Factor_i is
//     added to the score. The weights are dealt evenly from 0 to Second.
//   - Cycle: an answer is of one of three kinds, which are equally likely for every member. Kind 0 beats 1, 1 beats 2,
//     and 2 beats 0. Let b be the share of the other shown answers that an answer beats, minus the share that beat it.
//     The product of b, a reviewer's weight and Factor_i is added to the score. The weights are dealt evenly from
//     -Cycle to Cycle. A reviewer with a weight below 0 sees the circle the other way round.
//   - Twin: the quality, answers, lengths, topics and shifts of the second member have this correlation with those of
//     the first. The same holds for its noise, as a reviewer and as a candidate, and for its refusals, second merits
//     and kinds. It does not hold for its embeddings.
//
// Sessions with one question share refusals, tastes, second merits and kinds in the way in which they share answers.
//
// With World.Embedded, records have the cosine of two embeddings. An embedding is the sum of vectors in 16 dimensions:
// one of the session (with a length of 2.5), one of the model (0.6), one of the answer (0.8), and AlikeMaker times one
// of the maker. Two more dimensions are AlikeLength times the logarithm of length_sj / 1100, and AlikeMerit times the
// merit. The cosines are then about 0.86. For a reviewer of four answers, the cosines have a standard deviation of
// 0.05, and the mean of their range is at most 0.1.
//
// Options.Slates determines which reviewers take part in a session, and in which order
// each reviewer is shown the answers. The package estimates nothing.
package biassim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// The default Base, and standard deviations, in points. A score is a sum of random parts. Each constant whose name ends
// in SD is the standard deviation of one part.
const (
	plainBase    = 6
	qualitySD    = 0.6 // the part that all answers of a model share
	difficultySD = 0.5 // the part that all scores of a session share
	answerSD     = 0.8 // the part that all scores of an answer share
	shiftSD      = 0.3 // the part that the scores of a reviewer in one session share
	noiseSD      = 0.8 // the part that belongs to one score alone
)

// The median length of an answer in characters, and the standard deviations of the parts of its natural logarithm.
const (
	typicalLength   = 1100
	modelLengthSD   = 0.3
	sessionLengthSD = 0.4
	answerLengthSD  = 0.25
)

// interval is the time between two sessions.
const interval = 6 * time.Hour

// The streams of random numbers. Each is seeded with the seed and its own number, so that the draws of one part of a
// world do not change the draws of another part.
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
	streamCutPoints
	streamHabits
	streamUnlikeNoise
	streamRefusals
	streamTaste
	streamSecond
	streamWeights
	streamCycle
	streamTurns
	// Each of these is added to the number of a stream. The resulting stream draws the parts that the sessions of a
	// run, or the sessions with one question, share.
	streamsOfRuns      = 1 << 8
	streamsOfQuestions = 2 << 8
)

// Members returns the ids of the five simulated members. They have four makers.
func Members() []string { return Council(5) }

// Council returns the ids of n members, 1 to 12. The first two have the same maker.
func Council(n int) []string {
	all := []string{
		"openai/m0", "openai/m1", "anthropic/m2", "google/m3", "meta/m4", "mistral/m5", "qwen/m6",
		"deepseek/m7", "microsoft/m8",
		"amazon/m9", "nvidia/m10", "ibm/m11",
	}
	return all[:n]
}

// Effects are the planted biases, in points on the scale of 1 to 10. The zero value plants none. A list has one value
// for each position, or for each reviewer (members first). Missing values at the end of a list are 0.
type Effects struct {
	Length      float64            // for each doubling of the length, by every reviewer
	LengthSlope []float64          // for each doubling of the length, by reviewer, added to Length
	Position    []float64          // by the position on the slate
	FirstBy     []float64          // for the first position, by reviewer, added to Position
	Self        float64            // for the own answer
	SelfBy      []float64          // for the own answer, by reviewer, added to Self
	Family      float64            // for the answers of other models of the same maker
	Harshness   []float64          // by reviewer. A harsh reviewer has a value below 0.
	Drift       []float64          // by reviewer: the change from the first session to the last
	Jump        []float64          // by reviewer: added from the middle session on
	Anchoring   float64            // for each point of the first answer above the mean of the slate
	Pair        map[[2]int]float64 // by reviewer and candidate
	Style       float64            // for each 0.1 of similarity to the own answer. It needs World.Embedded.
}

// World says how the sessions differ from plain ones, without favouring a member.
// The zero value is the plain world. The package comment explains each field. Lists are
// by reviewer or member, members first.
type World struct {
	Spread       float64   // how much reviewers differ in how they use the scale, 0 to 1
	Constant     []float64 // by reviewer: the one score that it gives, 0 for a reviewer that judges
	Gap          float64   // standard deviation of the members' quality. 0 stands for 0.6.
	Levels       float64   // the greatest distance of a reviewer's mean score from Base
	Curve        float64   // how much the reviewers bend the scale, 0 for not at all
	SCurve       float64   // how much widths of categories differ between the middle and the ends of a scale, 0 to 1
	LongerBetter float64   // correlation of an answer's length with its merit, -1 to 1
	Base         float64   // mean of the scores before clamping. 0 stands for 6.
	Step         float64   // distance between possible scores. 0 stands for 1.
	Missing      float64   // share of ballots that fail, 0 to 1
	HeavyTails   bool      // Noise is Student's t with three degrees of freedom.
	NoiseSpread  float64   // how much the noise differs between sessions, as a standard deviation of logarithms
	// The number of consecutive sessions that have the same question. With 0 or 1, each session has its own question.
	Runs int
	// The number of different questions. Sessions ask them in turn: after the last question, the first one comes
	// again. With 0, each session has its own question.
	Questions int
	Frozen    bool // The sessions of a run review the same answers, as those of a probe do.
	// The number of consecutive sessions that have the same topic. With 0, there are no topics.
	Topics  int
	TopicSD float64 // standard deviation of the points that a topic adds to scores and to merits
	Untold  bool    // The records do not name the topics.
	// By reviewer. From the middle session on, the factor of the reviewer is multiplied by this value, unless the
	// value is 0.
	Rescaled    []float64
	CutPoints   float64 // standard deviation of the logarithms of the distances between cut points, 0 for none
	Habits      []Habit // by reviewer: the scores that it uses. Reviewers beyond the list use all.
	MixedHabits bool    // Each reviewer without a habit draws one of Habits(), all with the same chance.
	UnlikeNoise float64 // how much the reviewers' noise differs, 0 to 1
	// The points that a reviewer adds to all its scores, for each standard deviation of the worth of its own answer.
	OwnLevel float64
	// The change of the logarithm of a reviewer's noise, for each standard deviation of the worth of its own answer.
	OwnNoise float64
	// The change of the logarithm of a reviewer's factor, for each standard deviation of the worth of its own answer.
	OwnSpread float64
	Replaced  []float64 // by member: the points that its merit gains from the middle session on
	// By member. From the middle session on, the length of its answers grows by this number of doublings.
	Lengthened   []float64
	Hump         float64   // merit lost for each squared doubling of the length above or below 1100
	LengthReward float64   // points for each doubling of the length, by every reviewer
	Refusals     float64   // share of answers that are short stubs with low merit. Hard questions have more of them.
	MissingHard  float64   // logarithm of the chance that a ballot fails, for each standard deviation of hardness
	SharedTaste  []float64 // by reviewer: the share of its noise variance that comes from a common taste
	Second       float64   // standard deviation of a second merit, in points of the reviewer with the largest weight
	Cycle        float64   // points of the reviewer with the largest weight for an answer that beats all others
	Twin         float64   // correlation between the first two members, in their answers and in their reviews
	Embedded     bool      // The records have the similarity of answers.
	// AlikeLength, AlikeMerit and AlikeMaker say how much more similar answers are if they have similar lengths, similar
	// merits or one maker. 0 means not at all.
	AlikeLength, AlikeMerit, AlikeMaker float64
}

// Options say which records are generated.
type Options struct {
	Seed     uint64
	Sessions int
	Start    time.Time // the time of the first session. The others follow every six hours.
	Members  []string  // ids of the form maker/model. Nil stands for Members().
	Outside  []string  // the ids of reviewers that do not answer
	// Slates returns the answers that each reviewer is shown in a session, in the order
	// of the members and then of Outside. A reviewer that takes no part has an empty slate.
	Slates  func(session int) []council.Slate
	Order   council.Order // says how Slates draws the slates
	Effects Effects
	World   World
}

// Generate returns the records of the sessions in their order, one for each reviewer
// and candidate on its slate. The same options give the same records. The random
// parts depend only on the seed and the numbers of members and reviewers. They do not
// depend on the planted effects and the slates.
func Generate(o Options) []council.BiasMetricRecord {
	g := newGenerator(o)
	records := make([]council.BiasMetricRecord, 0, o.Sessions*len(g.reviewers)*len(g.members))
	for s := range o.Sessions {
		records = g.reviews(records, s)
	}
	return records
}

// generator has the state that the sessions of a data set share.
type generator struct {
	o                                   Options
	members, reviewers                  []string // members are the first of the reviewers
	makers                              []string // by reviewer
	missing, tails, noise               *rand.Rand
	plain                               source
	refusals, taste, second, cycle      *source
	quality, modelLength                []float64 // standard normal
	factor, level, exponent, sCurve     []float64 // by reviewer
	unlike, weight, turn                []float64 // by reviewer
	cuts, habits                        []scale   // by reviewer
	styles                              *styles   // nil without embeddings
	topics                              []topic   // by category, empty without topics
	topicDraws                          *rand.Rand
	topic                               int // the topic of the session, as an index
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
	w := o.World
	g := &generator{
		o:          o,
		members:    o.Members,
		base:       cmp.Or(w.Base, plainBase),
		step:       cmp.Or(w.Step, 1),
		gap:        cmp.Or(w.Gap, qualitySD),
		correlated: w.LongerBetter,
		shared:     0.5,
	}
	if g.members == nil {
		g.members = Members()
	}
	if w.Frozen {
		g.shared = 1
	}
	g.reviewers = slices.Concat(g.members, o.Outside)
	for _, reviewer := range g.reviewers {
		g.makers = append(g.makers, maker(reviewer))
	}
	stream := func(number uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, number)) }
	g.missing = stream(streamMissing)
	g.tails = stream(streamTails)
	g.noise = stream(streamNoise)
	g.plain = source{draws: stream(streamPlain), runs: stream(streamRuns), repeats: stream(streamQuestions)}
	further := func(number uint64) *source {
		return &source{
			draws:   stream(number),
			runs:    stream(number + streamsOfRuns),
			repeats: stream(number + streamsOfQuestions),
		}
	}
	g.refusals = further(streamRefusals)
	g.taste = further(streamTaste)
	g.second = further(streamSecond)
	g.cycle = further(streamCycle)
	if w.Embedded {
		g.styles = newStyles(stream(streamStyle), g.makers[:len(g.members)], w.AlikeMaker)
	}
	g.quality = normals(g.plain.draws, len(g.members))
	g.modelLength = normals(g.plain.draws, len(g.members))
	g.twin(g.quality)
	g.twin(g.modelLength)
	dealt := func(number uint64, of func(x float64) float64) []float64 {
		return deal(stream(number), len(g.reviewers), of)
	}
	g.factor = dealt(streamSpread, func(x float64) float64 { return 1 + w.Spread*x })
	g.level = dealt(streamLevels, func(x float64) float64 { return g.base + w.Levels*x })
	g.exponent = dealt(streamCurve, func(x float64) float64 { return math.Pow(1+w.Curve, x) })
	g.sCurve = dealt(streamSCurve, func(x float64) float64 { return w.SCurve * x })
	g.unlike = dealt(streamUnlikeNoise, func(x float64) float64 { return 1 + w.UnlikeNoise*x })
	g.weight = dealt(streamWeights, func(x float64) float64 { return w.Second * (1 + x) / 2 })
	g.turn = dealt(streamTurns, func(x float64) float64 { return w.Cycle * x })
	g.cuts = g.drawCuts(stream(streamCutPoints))
	g.habits = g.drawHabits(stream(streamHabits))
	if w.Topics > 0 {
		g.topicDraws = stream(streamTopics)
		g.topics = g.drawTopics()
	}
	return g
}

// topic has the parts that the questions of a category share, as standard normal deviates.
type topic struct {
	category          string
	shifts, qualities []float64 // by reviewer and by member
}

// drawTopics returns a topic for each category.
func (g *generator) drawTopics() []topic {
	categories := council.Categories()
	topics := make([]topic, len(categories))
	for k, category := range categories {
		topics[k] = topic{category, normals(g.topicDraws, len(g.reviewers)), normals(g.topicDraws, len(g.members))}
		g.twin(topics[k].shifts)
		g.twin(topics[k].qualities)
	}
	return topics
}

// atTopic returns the deviates of the topic of session s: shifts for the scores of each reviewer, and merits for the
// answers of each member. The result category is nil if the records do not name it.
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

// deal returns the values of a function at n points with equal distances from -1 to 1, in a random order.
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

// chances draws the random parts of a session or a question.
func (g *generator) chances(draws *rand.Rand) chances {
	n := len(g.members)
	c := chances{
		difficulty: draws.NormFloat64(),
		length:     draws.NormFloat64(),
		answers:    normals(draws, n),
		lengths:    normals(draws, n),
	}
	for range g.reviewers {
		c.shifts = append(c.shifts, draws.NormFloat64())
		c.noise = append(c.noise, normals(draws, n))
	}
	return c
}

// share replaces parts of c by parts of q, the chances that the sessions of one question have in common. The argument
// answers is the share of the variance of answers and lengths that it replaces.
func (c *chances) share(q chances, answers float64) {
	c.difficulty = q.difficulty
	c.length = q.length
	mix(c.answers, q.answers, answers)
	mix(c.lengths, q.lengths, answers)
	mix(c.shifts, q.shifts, 0.5)
	for i := range c.noise {
		mix(c.noise[i], q.noise[i], 0.5)
	}
}

// source draws the random parts of sessions.
type source struct {
	draws, runs, repeats *rand.Rand
	// The random parts that all sessions of the current run share.
	run chances
	// The random parts of each question. It is empty unless World.Questions is above 0.
	asked []chances
}

// drawn draws the random parts of session s. It must be called once for each session, in order.
func (g *generator) drawn(from *source, s int) chances {
	w := g.o.World
	c := g.chances(from.draws)
	if w.Questions > 0 {
		if s < w.Questions {
			from.asked = append(from.asked, g.chances(from.repeats))
		}
		c.share(from.asked[s%w.Questions], g.shared)
	}
	if w.Runs > 1 {
		if s%w.Runs == 0 {
			from.run = g.chances(from.runs)
		}
		c.share(from.run, g.shared)
	}
	for _, x := range append(slices.Clone(c.noise), c.answers, c.lengths, c.shifts) {
		g.twin(x)
	}
	if len(g.members) > 1 {
		mix(c.noise[1], c.noise[0], w.Twin*w.Twin)
	}
	return c
}

// twin mixes the first value of x into the second one, as World.Twin says. The values of x are standard normal
// deviates, those of members first.
func (g *generator) twin(x []float64) {
	if len(g.members) > 1 {
		mix(x[1:2], x[:1], g.o.World.Twin*g.o.World.Twin)
	}
}

// mix makes each value of x correlate with the value of y at the same index. y then explains the given share of the
// variance of x. The values of x stay standard normal.
func mix(x, y []float64, share float64) {
	for k := range x {
		x[k] = math.Sqrt(1-share)*x[k] + math.Sqrt(share)*y[k]
	}
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
