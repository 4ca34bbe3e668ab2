package biassim

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// The parameters of cut points and habits.
const (
	// A reviewer with cut points gives its mode as the score for Base. Modes are drawn from this range.
	lowestMode, highestMode = 6.5, 8.5
	habitRange              = 3 // HighScores and LowScores divide the range of this many points below and above Base
)

// The parameters of a refusal.
const (
	refusalMerit     = -4  // in points, replaces the merit of the answer
	refusalLength    = 120 // the median length in characters
	refusalLengthSD  = 0.3 // the standard deviation of the natural logarithm of the length
	refusalSteepness = 1   // see [onHard]
)

// Habit names the scores that a reviewer uses.
type Habit string

// The habits. A reviewer gives the nearest of its scores. HighScores and LowScores are exceptions, because their
// nearest score would nearly always be the same. They divide the range from 3 points below Base to 3 points above Base
// evenly among their scores.
const (
	EveryScore   Habit = ""
	EvenScores   Habit = "even only"
	HalfScores   Habit = "halves" // 1, 1.5, 2 and so on to 10
	OddScores    Habit = "1, 3, 5, 7, 9, 10"
	MiddleScores Habit = "5 to 8"
	HighScores   Habit = "7 to 9"
	LowScores    Habit = "1 to 5"
	// NearHighScores has the scores of HighScores, but a reviewer gives the nearest of them. It is for worlds with a Base
	// of about 8.
	NearHighScores Habit = "7 to 9, the nearest"
)

// Habits returns the habits that World.MixedHabits draws.
func Habits() []Habit {
	return []Habit{EveryScore, EvenScores, HalfScores, OddScores, MiddleScores, HighScores, LowScores}
}

// Scores returns the scores of a habit, ascending.
func (h Habit) Scores() []float64 {
	switch h {
	case EvenScores:
		return []float64{2, 4, 6, 8, 10}
	case HalfScores:
		return steps(0.5)
	case OddScores:
		return []float64{1, 3, 5, 7, 9, 10}
	case MiddleScores:
		return []float64{5, 6, 7, 8}
	case HighScores, NearHighScores:
		return []float64{7, 8, 9}
	case LowScores:
		return []float64{1, 2, 3, 4, 5}
	default:
		return steps(1)
	}
}

// steps returns the scores from 1 to 10. The argument by is the distance between two of them.
func steps(by float64) (scores []float64) {
	for score := 1.; score <= 10; score += by {
		scores = append(scores, score)
	}
	return scores
}

// scale returns the scale of a habit in a world with the given Base.
func (h Habit) scale(base float64) scale {
	scores := h.Scores()
	cuts := make([]float64, len(scores)-1)
	for k := range cuts {
		cuts[k] = (scores[k] + scores[k+1]) / 2
		if h == HighScores || h == LowScores {
			cuts[k] = base - habitRange + 2*habitRange*float64(k+1)/float64(len(scores))
		}
	}
	return scale{scores, cuts}
}

// scale holds the scores that a reviewer uses, ascending, and the cut points between them. The zero value does not
// change scores.
type scale struct{ scores, cuts []float64 }

func (s scale) of(y float64) float64 {
	if s.scores == nil {
		return y
	}
	return s.scores[sort.SearchFloat64s(s.cuts, y)]
}

// drawCuts draws a scale with cut points for each reviewer, as World.CutPoints says.
func (g *generator) drawCuts(draws *rand.Rand) []scale {
	all := make([]scale, len(g.reviewers))
	if g.o.World.CutPoints == 0 {
		return all
	}
	for i := range all {
		all[i] = EveryScore.scale(g.base)
		cuts := all[i].cuts
		// place says where the mode lies among the cut points. At 0 it lies on the first cut point, which stands for 1.5.
		place := lowestMode + (highestMode-lowestMode)*draws.Float64() - 1.5
		cuts[0] = 0
		for k := range cuts[1:] {
			cuts[k+1] = cuts[k] + math.Exp(g.o.World.CutPoints*draws.NormFloat64())
		}
		below := int(place)
		mode := cuts[below] + (place-float64(below))*(cuts[below+1]-cuts[below])
		for k := range cuts {
			cuts[k] += g.base - mode
		}
	}
	return all
}

// drawHabits returns the scales of the reviewers that have a habit.
func (g *generator) drawHabits(draws *rand.Rand) []scale {
	w := g.o.World
	all := make([]scale, len(g.reviewers))
	for i := range all {
		habit := Habits()[draws.IntN(len(Habits()))]
		if !w.MixedHabits {
			habit = EveryScore
		}
		if i < len(w.Habits) && w.Habits[i] != EveryScore {
			habit = w.Habits[i]
		}
		if habit != EveryScore {
			all[i] = habit.scale(g.base)
		}
	}
	return all
}

// given returns the score that reviewer i gives if its unrounded score is y.
func (g *generator) given(y float64, i int) float64 {
	y = g.cuts[i].of(g.bend(y, i))
	if habit := g.habits[i]; habit.scores != nil {
		return habit.of(y)
	}
	return min(max(math.Round(y/g.step)*g.step, 1), 10)
}

// bend applies a reviewer's exponent and S-curve to a score.
func (g *generator) bend(score float64, i int) float64 {
	if g.exponent[i] == 1 && g.sCurve[i] == 0 {
		return score
	}
	v := math.Pow(min(max((score-1)/9, 0), 1), g.exponent[i])
	return 1 + 9*(v+g.sCurve[i]*math.Sin(2*math.Pi*v)/(2*math.Pi))
}

// onHard returns a chance that depends on the difficulty of a question. The chance is e^steep times as large for each
// standard deviation that a question is harder. The mean of the chance over questions is the argument share. A chance
// above 1 means always.
func onHard(share, steep, difficulty float64) float64 {
	return share * math.Exp(-steep*difficulty-steep*steep/2)
}

// refuse draws the answers that are refused, and makes stubs of them.
func (g *generator) refuse(v *session, s int) {
	if g.o.World.Refusals == 0 {
		return
	}
	c := g.drawn(g.refusals, s)
	chance := onHard(g.o.World.Refusals, refusalSteepness, v.difficulty)
	for j := range v.merit {
		if stat.NormalCDF(c.answers[j]) < chance {
			v.merit[j] = refusalMerit
			v.chars[j] = math.Round(refusalLength * math.Exp(refusalLengthSD*c.lengths[j]))
		}
	}
}

// kinds returns the kind of each answer: 0, 1 or 2. It takes one standard normal deviate for each answer. All kinds
// have the same chance.
func kinds(deviates []float64) []int {
	all := make([]int, len(deviates))
	for j, z := range deviates {
		all[j] = min(int(3*stat.NormalCDF(z)), 2)
	}
	return all
}

// won returns the share of the other shown answers that answer j beats, minus the share that beat it. Kind 0 beats 1, 1
// beats 2, and 2 beats 0.
func (v *session) won(j int, shown []int) float64 {
	if v.kinds == nil || len(shown) < 2 {
		return 0
	}
	won := 0
	for _, k := range shown {
		switch (v.kinds[k] - v.kinds[j] + 3) % 3 {
		case 1:
			won++
		case 2:
			won--
		}
	}
	return float64(won) / float64(len(shown)-1)
}

// Late returns the function slates, changed so that a member joins late. The argument joins is the first session with
// the member. Before that session, the member is on no slate, and its own slate is empty. The argument reviewer is the
// member's index among the reviewers.
func Late(slates func(session int) []council.Slate, reviewer int, member string, joins int) func(session int) []council.Slate {
	return func(session int) []council.Slate {
		all := slices.Clone(slates(session))
		if session >= joins {
			return all
		}
		for i, slate := range all {
			all[i] = slices.DeleteFunc(slices.Clone(slate), func(shown council.Shown) bool {
				return shown.Member == member
			})
		}
		all[reviewer] = nil
		return all
	}
}

// Realistic returns a world that differs from the plain one as real councils do. Reviewers have their own cut points,
// levels and noise. Candidates differ in quality. There are topics, 1.5 % refusals, 4 % lost ballots, a reward for
// length that all reviewers give, and a twin.
func Realistic() World {
	return World{
		CutPoints: 0.5, Levels: 1, Gap: 1.5, UnlikeNoise: 0.5, Topics: 1, TopicSD: 0.4, Refusals: 0.015, Missing: 0.04,
		LengthReward: 0.3, Twin: 0.8,
	}
}
