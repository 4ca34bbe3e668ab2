package stat

import (
	"cmp"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
)

// The reasons why there is no [GradedFit].
var (
	ErrFewReviewers  = errors.New("fewer than two reviewers give different scores")
	ErrFewCandidates = errors.New("fewer than two candidates have scores")
	ErrFewQuestions  = errors.New("fewer than two questions have scores")
	ErrNotConverged  = errors.New("the fit of the scores does not converge")
)

const (
	// apartWeight is the weight of a pair of scores that are not near (see [gradedCell.near]).
	apartWeight = 0.4
	apartShare  = 1. / 4 // the fit uses this share of such pairs
	// fewestInCategory is the least number of a reviewer's scores in a category.
	fewestInCategory = 4
	// A category holds at least 1/shareInCategory of a reviewer's scores.
	shareInCategory = 60
	// The largest number of categories that one reviewer may have.
	maxCategories = 12

	maxGradedPairs = 400_000
	maxGradedSteps = 40
	leastGap       = 1e-3 // the least distance between thresholds
	leastC, mostC  = 0.15, 3
	// twoCategories is the number of points in one latent unit for a reviewer with two categories. For other reviewers,
	// the slope of the thresholds gives the inverse, latent units in one point. A reviewer with two categories has a
	// single threshold, so there is no slope.
	twoCategories = 1.35
	effectSD      = 3 // standard deviation of an effect's prior, in points
	spreadSD      = 0.3
	betweenSD     = 0.2
)

// Score is an observation of a [Graded] model.
type Score struct {
	Session  int // only scores of one session are compared
	Question int // errors are clustered by question; a session has one
	// Ballot and Answer number the ballot of the score and the answer that it is for, within the session.
	Ballot   int
	Answer   int
	Reviewer int // from 0
	// Candidate is the model that gave the answer, from 0.
	Candidate int
	Points    float64
	// Length is l in the model: the binary logarithm of the answer's length, minus the mean of these logarithms in
	// the session.
	Length float64
	Slate  float64 // lbar in the model: the mean of these logarithms in the session, centred
	Own    bool    // the reviewer gave the answer
	Terms  []Term  // are the effects on the score
}

// Term is an effect on a score: the index of the effect, and the factor that it is multiplied by.
type Term struct {
	Effect int
	Value  float64
}

// Graded is a graded-response model (Samejima 1969) of scores with many facets (Linacre 1989). A score of reviewer
// i is in category k if its latent value y* is above the threshold t_i(k-1) and at most t_ik:
//
//	y* = lambda_i z + c_i (sum of effects times their values) + u    u is standard normal
//	z  = nu_j + b1 l + b2 lbar + b3 (l + lbar)^2                     of candidate j
//
// The u of one session are correlated. The correlation of two scores is r_i if they are on one ballot, lambda_i
// lambda_k + g_i g_k if they are about one answer, and g_i g_k otherwise. So the thresholds describe how a reviewer
// uses the scale. lambda_i says how much reviewer i tells answers apart. g_i describes what all answers to a question
// have in common. c_i turns points into latent units, so effects are in points as if the scale had no ends. nu_j is
// the quality of the answers of candidate j, and b1 to b3 are the effects of their length. [Graded.Spread] and
// [Graded.Between] describe further effects.
//
// The model is fitted by the pairwise composite likelihood (Lindsay 1988; Varin, Reid and Firth 2011) with weak
// priors:
//
//	sum over pairs of scores of w log P2 - sum over scores of kappa log P1 - sum over parameters of theta^2 / (2 sd^2)
//
// P2 and P1 are the probabilities of the categories of two scores and of one. Each score is in many pairs and is
// counted many times. kappa corrects for this.
//
// The methods of a Graded and of its fits must not run concurrently.
type Graded struct {
	reviewers []gradedReviewer
	sessions  []gradedSession
	// For each question, the sessions that asked it.
	questions [][]int
	given     int   // the number of effects
	occurs    []int // the number of questions in which each effect occurs
	layout
	priors []float64 // the precision 1/sd^2 of the prior of each parameter
	theta  []float64 // the current values of the parameters
	// at is the row of each parameter in the matrix of second derivatives, or -1 for none.
	at        []int
	rows      int // the number of parameters that are in every model
	reference int // the candidate whose nu is 0
	roots     []float64
	terms     [][]hermiteTerm // buffers for the scores of a session
	ballot    []correlation
	answer    []correlation // by two reviewers
	apart     []correlation
	// spreading is the buffer that spreadOut overwrites and returns. It holds a correlation to which the spread of a
	// reviewer has been added.
	spreading correlation
	// The largest number of powers that any correlation has.
	powers int
}

// layout holds the index of the first parameter of each kind. Parameters of a kind are by reviewer, candidate or
// effect.
type layout struct{ lambda, g, r, nu, b, effects, spread, between, size int }

// gradedReviewer is a reviewer. A reviewer without categories is not in the model.
type gradedReviewer struct {
	values []float64 // the average of the scores in each category, in points
	counts []float64 // the number of scores in each category
	t      int       // the parameter of its first threshold
	c      float64   // the number of latent units in one point
}

type gradedSession struct {
	cells []gradedCell
	pairs []gradedPair
}

type gradedPair struct {
	x, y *gradedCell
	w    float64
}

// gradedCell is a score. While derivatives are computed, it also holds the derivatives of its latent value.
type gradedCell struct {
	Score
	category int
	own      int // the reviewer's own answer in the session, or -1
	// deviation is z minus its mean over the scores of the reviewer. It is fixed when kappa is set.
	deviation float64
	kappa     float64

	interval // the interval of u in which the score is
	// t holds, for each bound of the interval, the row of the parameter that is the bound. It is 0 for an infinite
	// bound, and nothing is added there.
	t    [2]int
	mean []partial
	// factors is how many of the first elements of mean are factors of z.
	factors int
	first   [2]float64    // derivatives of the objective with respect to the two bounds, summed over the pairs
	second  [2][2]float64 // its second derivatives with respect to the bounds
}

// partial is a derivative by a parameter.
type partial struct {
	// row is the row of the parameter in the matrix of second derivatives.
	row   int
	value float64
	// z is the derivative of z in the model. It is set only in the mean of a latent value.
	z float64
}

// bend is the second derivative of a correlation by two parameters.
type bend struct {
	rows  [2]int
	value float64
}

// correlation is the correlation of the latent values of two scores, with its derivatives.
type correlation struct {
	binormal
	by    []partial
	bends []bend
}

// NewGraded returns the model of scores with that number of effects. Without enough data it returns
// [ErrFewReviewers], [ErrFewCandidates] or [ErrFewQuestions].
func NewGraded(scores []Score, effects int) (*Graded, error) {
	m := &Graded{given: effects}
	candidates := 0
	for _, s := range scores {
		candidates = max(candidates, s.Candidate+1)
		for s.Reviewer >= len(m.reviewers) {
			m.reviewers = append(m.reviewers, gradedReviewer{})
		}
	}
	m.occurs = make([]int, effects+2*len(m.reviewers))
	categories := m.categorise(scores)
	m.arrange(candidates)
	var scored []int // the candidates with scores
	used := map[int]bool{}
	questions := map[int]int{}
	sessions := map[int]int{}
	for _, s := range scores {
		if len(m.reviewers[s.Reviewer].values) == 0 {
			continue
		}
		used[s.Reviewer] = true
		if !slices.Contains(scored, s.Candidate) {
			scored = append(scored, s.Candidate)
		}
		if _, ok := sessions[s.Session]; !ok {
			sessions[s.Session] = len(m.sessions)
			m.sessions = append(m.sessions, gradedSession{})
			if _, ok := questions[s.Question]; !ok {
				questions[s.Question] = len(m.questions)
				m.questions = append(m.questions, nil)
			}
			q := questions[s.Question]
			m.questions[q] = append(m.questions[q], sessions[s.Session])
		}
		to := &m.sessions[sessions[s.Session]]
		to.cells = append(to.cells, gradedCell{Score: s, category: categories[s.Reviewer][s.Points]})
	}
	switch {
	case len(used) < 2:
		return nil, ErrFewReviewers
	case len(scored) < 2:
		return nil, ErrFewCandidates
	case len(m.questions) < 2:
		return nil, ErrFewQuestions
	}
	m.identify(used, scored)
	m.occur()
	m.pair()
	m.roots = hermiteRoots()
	for _, s := range m.sessions {
		for len(m.terms) < len(s.cells) {
			m.terms = append(m.terms, make([]hermiteTerm, maxTerms))
		}
	}
	return m, nil
}

// categorise sets each reviewer's categories. It returns, for each reviewer, the category of each number of points.
// It merges the smallest category with its smaller neighbour until all are large enough.
func (m *Graded) categorise(scores []Score) []map[float64]int {
	counts := make([]map[float64]int, len(m.reviewers))
	all := make([]map[float64]int, len(m.reviewers))
	for i := range counts {
		counts[i] = map[float64]int{}
		all[i] = map[float64]int{}
	}
	for _, s := range scores {
		counts[s.Reviewer][s.Points]++
	}
	for i, of := range counts {
		groups := scoreGroups(of)
		if len(groups) < 2 {
			continue
		}
		for k, g := range groups {
			m.reviewers[i].values = append(m.reviewers[i].values, g.sum/g.count)
			m.reviewers[i].counts = append(m.reviewers[i].counts, g.count)
			for _, points := range g.points {
				all[i][points] = k
			}
		}
	}
	return all
}

// scoreGroup holds neighbouring scores that count as one category.
type scoreGroup struct {
	points     []float64
	count, sum float64
}

// scoreGroups returns the categories of a reviewer. counts says how often the reviewer gave each number of points.
func scoreGroups(counts map[float64]int) (groups []scoreGroup) {
	total := 0.
	for points, n := range counts {
		groups = append(groups, scoreGroup{[]float64{points}, float64(n), points * float64(n)})
		total += float64(n)
	}
	slices.SortFunc(groups, func(a, b scoreGroup) int { return cmp.Compare(a.points[0], b.points[0]) })
	for len(groups) > 1 {
		least := 0
		for k, g := range groups {
			if g.count < groups[least].count {
				least = k
			}
		}
		if groups[least].count >= max(fewestInCategory, total/shareInCategory) && len(groups) <= maxCategories {
			break
		}
		if least == len(groups)-1 || least > 0 && groups[least-1].count <= groups[least+1].count {
			least--
		}
		to := &groups[least]
		from := groups[least+1]
		*to = scoreGroup{append(to.points, from.points...), to.count + from.count, to.sum + from.sum}
		groups = slices.Delete(groups, least+1, least+2)
	}
	return groups
}

// arrange sets the index and the prior of each parameter.
func (m *Graded) arrange(candidates int) {
	block := func(n int, sd float64) int {
		first := m.size
		m.size += n
		m.priors = append(m.priors, slices.Repeat([]float64{1 / (sd * sd)}, n)...)
		return first
	}
	for i := range m.reviewers {
		r := &m.reviewers[i]
		r.t = block(max(0, len(r.values)-1), 100)
	}
	n := len(m.reviewers)
	m.lambda = block(n, 10)
	m.g = block(n, 0.2)
	m.r = block(n, 10)
	m.nu = block(candidates, 10)
	m.b = block(3, 3)
	m.effects = block(m.given, effectSD)
	m.spread = block(n, spreadSD)
	m.between = block(n, betweenSD)
}

// identify gives a row in the matrix of second derivatives to each parameter on which scores depend. The nu of one
// candidate is fixed at 0.
func (m *Graded) identify(used map[int]bool, scored []int) {
	m.at = slices.Repeat([]int{-1}, m.size)
	row := func(k int) {
		m.at[k] = m.rows
		m.rows++
	}
	for k := range m.lambda {
		row(k)
	}
	for i := range m.reviewers {
		if used[i] {
			row(m.lambda + i)
			row(m.g + i)
			row(m.r + i)
		}
	}
	m.reference = scored[0]
	for _, j := range scored[1:] {
		row(m.nu + j)
	}
	for k := range 3 {
		row(m.b + k)
	}
}

// couples yields the pairs of scores in a session that may be compared. Scores on two ballots of one reviewer are
// not compared.
func (s *gradedSession) couples() iter.Seq2[*gradedCell, *gradedCell] {
	return func(yield func(x, y *gradedCell) bool) {
		for k := range s.cells {
			for q := range s.cells[:k] {
				x := &s.cells[q]
				y := &s.cells[k]
				if (x.Ballot == y.Ballot || x.Reviewer != y.Reviewer) && !yield(x, y) {
					return
				}
			}
		}
	}
}

// near reports whether two scores are closely related. Such scores are on one ballot or about one answer, or one of
// them is about the answer of the other score's reviewer.
func (c *gradedCell) near(other *gradedCell) bool {
	return c.Ballot == other.Ballot || c.Answer == other.Answer || c.own == other.Answer || other.own == c.Answer
}

// pair selects pairs of scores in each session: all near pairs, and a random share of the other pairs. If the
// selected pairs are too many, it selects a share of all pairs and raises their weights in proportion. The selection
// is the same every time.
func (m *Graded) pair() {
	chance := func(x, y *gradedCell) float64 {
		if x.near(y) {
			return 1
		}
		return apartShare
	}
	total := 0.
	for k := range m.sessions {
		for x, y := range m.sessions[k].couples() {
			total += chance(x, y)
		}
	}
	share := min(1, maxGradedPairs/total)
	for k := range m.sessions {
		s := &m.sessions[k]
		random := rand.New(rand.NewPCG(uint64(k), 0)) //nolint:gosec // the same pairs each time
		for x, y := range s.couples() {
			w := apartWeight / share
			if x.near(y) {
				w = 1 / share
			}
			if random.Float64() < share*chance(x, y) {
				s.pairs = append(s.pairs, gradedPair{x, y, w})
			}
		}
	}
}

// Spread returns the index of a further effect: how much more a reviewer tells answers apart when its own answer is
// good. The reviewer's lambda is multiplied by 1 + d eta. d is the effect, with the prior N(0, 0.3^2). eta is how
// much better the reviewer's own answer is than expected, in units of its standard deviation. To the first order in
// d, the effect changes two things: d is added to z for the reviewer's own answers, and the reviewer's scores of
// others are correlated with the score of its own answer. Without the effect, a reviewer that uses the scale in this
// way looks as if it favoured itself.
func (m *Graded) Spread(reviewer int) int { return m.given + reviewer }

// Between returns the indices of further effects: how much more reviewers tell language models apart than they tell
// answers of one language model apart. With these effects, z has the factor lambda_i + a_i, where a_i has the prior
// N(0, 0.2^2). Correlations keep lambda_i alone. Without these effects, reviewers that share a preference look as if
// they favoured language models or themselves. The first reviewer has no such effect, because a common factor of all
// reviewers only changes the unit of nu.
func (m *Graded) Between() (effects []int) {
	for i := range m.reviewers {
		if e := m.between - m.effects + i; m.occurs[e] > 0 {
			effects = append(effects, e)
		}
	}
	return effects[1:]
}

// occur counts the questions in which each effect occurs.
func (m *Graded) occur() {
	last := make([]int, len(m.occurs)) // the last question met, from 1
	for q, sessions := range m.questions {
		for _, s := range sessions {
			own := map[int]int{} // the own answer of each reviewer
			for _, x := range m.sessions[s].cells {
				terms := append(slices.Clip(x.Terms), Term{m.between - m.effects + x.Reviewer, 1})
				if x.Own {
					own[x.Reviewer] = x.Answer
					terms = append(terms, Term{m.Spread(x.Reviewer), 1})
				}
				for _, t := range terms {
					if t.Value != 0 && last[t.Effect] != q+1 {
						last[t.Effect] = q + 1
						m.occurs[t.Effect]++
					}
				}
			}
			for k := range m.sessions[s].cells {
				x := &m.sessions[s].cells[k]
				x.own = -1
				if answer, ok := own[x.Reviewer]; ok {
					x.own = answer
				}
			}
		}
	}
}
