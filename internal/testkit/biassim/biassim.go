// Package biassim generates the records of simulated sessions with planted
// biases, to show what the bias report finds in data whose truth is known. It writes no
// text and asks no model: scores come from the formula below.
//
// Members answer and review; outside reviewers only review. In session s, reviewer
// i gives candidate j, shown at place p, the score
//
//	Base_i + Factor_i * (quality_j + difficulty_s + answer_sj + shift_si + Sway_s * noise_sij)
//	  + Position_p + FirstBy_i * 1[p = 0] + (Self + SelfBy_i) * 1[i = j]
//	  + Family * 1[same maker, i != j] + Harshness_i
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
//   - CutPoints: each reviewer has nine cut points of its own in place of rounding: a score is 1, and 1 more for each cut point
//     below. Their distances are exp(CutPoints * z). A reviewer's mode is drawn evenly from 6.5 to 8.5. It gives it for Base:
//     Base lies among its cut points where the mode lies among 1.5, 2.5 and so on to 9.5.
//   - Habits: the scores that reviewers use. MixedHabits: a reviewer that Habits does not name draws one of [Habits]. A habit is
//     applied after the cut points.
//   - UnlikeNoise: the noise of the R reviewers is multiplied by factors that stand evenly from 1 - UnlikeNoise to
//     1 + UnlikeNoise and are dealt to them at random.
//   - OwnLevel, OwnNoise and OwnSpread: how a member reviews depends on the worth a of its own answer of the session,
//     answer_si in standard deviations. Base_i rises by OwnLevel * a. The noise is multiplied by
//     exp(OwnNoise * a - OwnNoise^2), and Factor_i by exp(OwnSpread * a - OwnSpread^2). That holds for all answers of the ballot.
//   - Replaced and Lengthened: from the middle session on, the merit of a member is so many points higher and its answers are
//     so many doublings longer, as if another model had taken its name.
//   - Hump: long and short answers are worse. The merit falls by Hump * log2(length_sj / 1100)^2.
//   - LengthReward: the same as Length of [Effects], as a part of a world.
//   - Refusals: this share of answers are stubs. A stub has a merit of -4 in place of quality, answer and topic. The natural logarithm
//     of its length is normal around that of 120, with a standard deviation of .3. An answer is a stub with the chance
//     Refusals * exp(-d - 1/2), where d is difficulty_s in standard deviations. A question with d below 0 is hard.
//   - MissingHard: ballots fail with the chance Missing * exp(-MissingHard * d - MissingHard^2 / 2).
//   - SharedTaste: the noise of a reviewer with the share v is sqrt(v) * t_sj + sqrt(1-v) * noise_sij. The taste t is the same
//     for all reviewers.
//   - Second: an answer has a second merit, drawn for it alone. A reviewer's weight times Factor_i times this merit adds to its
//     score. The weights of the R reviewers stand evenly from 0 to Second and are dealt to them at random.
//   - Cycle: an answer is of one of three kinds, each as likely, whoever wrote it. Kind 0 beats 1, 1 beats 2, and 2 beats 0. The
//     share of the other shown answers that it beats, less the share that beat it, adds to its score, times a reviewer's weight and
//     Factor_i. The weights of the R reviewers stand evenly from -Cycle to Cycle and are dealt to them at random: below 0, a
//     reviewer sees the circle the other way round.
//   - Twin: the quality, answers, lengths, topics and shifts of the second member correlate by Twin with those of the first. So does
//     its noise, as a reviewer and as a candidate, and what decides on refusals, second merits and kinds. Its embeddings do not.
//
// Sessions of one question share what decides on refusals, tastes, second merits and kinds as they share answers.
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
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
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
	streamCutPoints
	streamHabits
	streamUnlikeNoise
	streamRefusals
	streamTaste
	streamSecond
	streamWeights
	streamCycle
	streamTurns
	streamsOfRuns      = 1 << 8 // added to that of a further source: what the sessions of a run have in common
	streamsOfQuestions = 2 << 8
)

// Members returns the ids of the simulated members: five models of four makers.
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

// Effects are the planted biases, in points on the scale of 1 to 10. The zero
// value plants none. Lists go by place or by the index of a reviewer, members
// first; what is beyond a list is 0.
type Effects struct {
	Length      float64            // per doubling of the length, every reviewer
	LengthSlope []float64          // per doubling, by reviewer, on top of Length
	Position    []float64          // by place shown
	FirstBy     []float64          // on the first place, by reviewer, on top of Position
	Self        float64            // on the own answer
	SelfBy      []float64          // on the own answer, by reviewer, on top of Self
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
	SCurve       float64   // how much the width of categories differs between the middle and the ends of a scale; 0 to 1
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
	CutPoints    float64   // standard deviation of the logarithms of the distances between cut points; at 0 scores are rounded
	Habits       []Habit   // which scores each reviewer uses, members first; reviewers beyond the list use all
	MixedHabits  bool      // each reviewer without a habit draws one, with the same chance for each of Habits()
	UnlikeNoise  float64   // says from 0 to 1 how unlike the reviewers' noise is
	OwnLevel     float64   // points for all answers, per standard deviation that a reviewer's own answer is better
	OwnNoise     float64   // logarithm of the noise, per standard deviation that a reviewer's own answer is better
	OwnSpread    float64   // logarithm of the factor, per standard deviation that a reviewer's own answer is better
	Replaced     []float64 // points by which the merit of each member rises from the middle session on
	Lengthened   []float64 // doublings by which the answers of each member grow from the middle session on
	Hump         float64   // points of merit lost per squared doubling that an answer is longer or shorter than 1100
	LengthReward float64   // points per doubling of the length, every reviewer
	Refusals     float64   // is the share of answers that are short stubs. Stubs score low and are more frequent at hard questions
	MissingHard  float64   // logarithm of the chance that a ballot fails, per standard deviation that the question is harder
	SharedTaste  []float64 // is the share of each reviewer's noise variance that comes from a common taste
	Second       float64   // standard deviation of a second merit in points, for the reviewer with the largest weight
	Cycle        float64   // points for beating all other shown answers, in a circle of three kinds, by the reviewer with the largest weight
	Twin         float64   // is the correlation between the first two members, in their answers and in their reviews
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
		records = g.reviews(records, s)
	}
	return records
}

// generator holds what the sessions of a data set have in common.
type generator struct {
	o                                   Options
	members, reviewers                  []string // members are the first of the reviewers
	makers                              []string // of the reviewers
	missing, tails, noise               *rand.Rand
	plain                               source
	refusals, taste, second, cycle      *source
	quality, modelLength                []float64 // standard normal
	factor, level, exponent, sCurve     []float64 // by reviewer
	unlike, weight, turn                []float64 // by reviewer
	cuts, habits                        []scale   // by reviewer
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

// topic is what the questions of a category have in common, as standard normal deviates.
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

// share replaces in c the parts that the sessions of a question have in common.
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
	run                  chances   // of the run of sessions
	asked                []chances // of the questions that the sessions ask by turns
}

// drawn returns the random parts of session s. A source draws sessions in order, each once.
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

// twin makes the second of x, standard normal and of members first, like the first as World.Twin says.
func (g *generator) twin(x []float64) {
	if len(g.members) > 1 {
		mix(x[1:2], x[:1], g.o.World.Twin*g.o.World.Twin)
	}
}

// mix replaces a share of the variance of each x by y. The values stay standard normal.
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
