package stat

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/councild/councild/internal/testkit"
)

// gradedWorld draws scores from the model itself: every member reviews every answer, its own included.
type gradedWorld struct {
	members, sessions int
	points            [2]float64 // the least and the greatest score
	effects           []float64  // of each effect, in points
	spread            float64    // of the first reviewer
	taste             float64    // the share of the noise of the first two reviewers that they have in common
}

// The effects of a world: own answers by reviewer, the first place by reviewer, then family, then pairs, then slopes.
func (w gradedWorld) own(i int) int     { return i }
func (w gradedWorld) first(i int) int   { return w.members + i }
func (w gradedWorld) family() int       { return 2 * w.members }
func (w gradedWorld) pair(i, j int) int { return 2*w.members + 1 + i*w.members + j }
func (w gradedWorld) slope(i int) int   { return w.pair(w.members, i) }
func (w gradedWorld) size() int         { return w.slope(w.members) }

// base are the effects that are in every model.
func (w gradedWorld) base() []int {
	var in []int
	for k := range w.family() + 1 {
		in = append(in, k)
	}
	return in
}

func (w gradedWorld) draw(rng *rand.Rand) []Score {
	n := w.members
	nu, lambda, r, g := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	harsh := make([]float64, n)
	for i := range n {
		nu[i], lambda[i], g[i], r[i], harsh[i] = 0.7*rng.NormFloat64(), 0.5+0.3*rng.Float64(), 0.3, 0.1+0.2*rng.Float64(), 0.5*rng.NormFloat64()
	}
	const c = 0.6
	middle := (w.points[0] + w.points[1]) / 2
	var all []Score
	for s := range w.sessions {
		question, slate := rng.NormFloat64(), 0.4*rng.NormFloat64()
		worth, length, eta, taste := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
		for j := range n {
			if w.taste > 0 {
				taste[j] = rng.NormFloat64()
			}
			length[j] = 0.5 * rng.NormFloat64()
			eta[j] = rng.NormFloat64()
			worth[j] = nu[j] + 0.2*length[j] + 0.1*slate + eta[j]
		}
		for i := range n {
			mood := math.Sqrt(max(0, r[i]-g[i]*g[i])) * rng.NormFloat64()
			first := rng.IntN(n)
			for j := range n {
				x := Score{
					Session: s, Question: s, Ballot: i, Answer: j, Reviewer: i, Candidate: j,
					Length: length[j], Slate: slate, Own: i == j,
				}
				if i == j {
					x.Terms = append(x.Terms, Term{w.own(i), 1})
				} else {
					x.Terms = append(x.Terms, Term{w.pair(i, j), 1})
				}
				if first == j {
					x.Terms = append(x.Terms, Term{w.first(i), 1})
				}
				if i != j && i/2 == j/2 {
					x.Terms = append(x.Terms, Term{w.family(), 1})
				}
				x.Terms = append(x.Terms, Term{w.slope(i), length[j] + slate})
				factor := 1.
				if i == 0 {
					factor += w.spread * eta[i]
				}
				noise := rng.NormFloat64()
				if i < 2 {
					noise = math.Sqrt(1-w.taste)*noise + math.Sqrt(w.taste)*taste[j]
				}
				y := lambda[i]*factor*worth[j] + g[i]*question + mood + math.Sqrt(1-lambda[i]*lambda[i]-r[i])*noise
				for _, t := range x.Terms {
					if w.effects != nil {
						y += c * t.Value * w.effects[t.Effect]
					}
				}
				x.Points = min(max(math.Round(middle+harsh[i]+y/c), w.points[0]), w.points[1])
				all = append(all, x)
			}
		}
	}
	return all
}

// model returns the model of a world.
func (w gradedWorld) model(t *testing.T, rng *rand.Rand) *Graded {
	t.Helper()
	m, err := NewGraded(w.draw(rng), w.size())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fit returns the fit of a world with its base and further effects.
func (w gradedWorld) fit(t *testing.T, rng *rand.Rand, further ...int) *GradedFit {
	t.Helper()
	f, err := w.model(t, rng).Fit(t.Context(), append(w.base(), further...)...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGradedDerivatives holds the derivatives of the objective, with kappa, against finite differences, also where
// correlations are beyond the series.
func TestGradedDerivatives(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, factor := range []float64{1, 1.5} { // of lambda, which starts at 0.6
		w := gradedWorld{members: 3, sessions: 25, points: [2]float64{5, 8}}
		m := w.model(t, rng)
		n := m.enter(slices.Concat(w.base(), []int{w.pair(1, 2), w.slope(0), m.Spread(1), m.Spread(2)}, m.Between()))
		m.start()
		m.setDeviations()
		m.setKappa()
		for k := range m.theta {
			m.theta[k] += 0.02 * (2*rng.Float64() - 1)
			if k >= m.lambda && k < m.g {
				m.theta[k] *= factor
			}
		}
		if !m.possible() {
			t.Fatal("the parameters are not possible")
		}
		d := newDerivatives(n)
		m.differentiate(d, 1)
		gradient, information := slices.Clone(d.gradient), make([]float64, n*n)
		d.information(information)
		const step = 1e-4
		for k, row := range m.at {
			if row < 0 || row >= n {
				continue
			}
			at := m.theta[k]
			m.theta[k] = at + step
			m.differentiate(d, 1)
			above, value := slices.Clone(d.gradient), d.value
			m.theta[k] = at - step
			m.differentiate(d, 1)
			m.theta[k] = at
			if want := (value - d.value) / (2 * step); math.Abs(gradient[row]-want) > 1e-2*(1+math.Abs(want)) {
				t.Errorf("derivative by parameter %d = %g, want %g", k, gradient[row], want)
			}
			for other := range n {
				want := -(above[other] - d.gradient[other]) / (2 * step)
				if got := information[row*n+other]; math.Abs(got-want) > 1e-2*(1+math.Abs(want)) {
					t.Errorf("second derivative by parameter %d and row %d = %g, want %g", k, other, got, want)
				}
			}
		}
	}
}

// refits returns, for each effect in the model, the sum of squares of what a refit without each question moves it by.
func (f *GradedFit) refits(ctx context.Context) ([]float64, error) {
	m := f.of
	moved := make([]float64, len(f.in))
	for _, sessions := range m.questions {
		left := m.sessions[sessions[0]]
		m.sessions[sessions[0]] = gradedSession{}
		copy(m.theta, f.theta)
		_, _, err := m.maximise(ctx, f.n, 1, 1e-8)
		m.sessions[sessions[0]] = left
		if err != nil {
			return nil, err
		}
		for k, e := range f.in {
			d := m.theta[m.effects+e] - f.theta[m.effects+e]
			moved[k] += d * d
		}
	}
	return moved, nil
}

// TestGradedLeaveOneOut holds that the errors are those of refits without one question each.
func TestGradedLeaveOneOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	w := gradedWorld{members: 4, sessions: 40, points: [2]float64{4, 9}}
	f := w.fit(t, rng)
	moved, err := f.refits(t.Context())
	for range 4 { // one data set in thirty has a refit that does not converge so closely
		if err == nil {
			break
		}
		f = w.fit(t, rng)
		moved, err = f.refits(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for k, e := range f.in {
		want := math.Sqrt(39. / 40 * moved[k])
		if got := f.Effects[e].SE; got < 0.75*want || got > 1.4*want {
			t.Errorf("standard error of effect %d = %.3f, want %.3f", e, got, want)
		}
	}
}

// coverage counts how often intervals hold the truth.
type coverage struct{ held, all int }

func (c *coverage) add(k Contrast, truth float64) {
	if k.Estimable {
		c.all++
		if math.Abs(k.Estimate-truth) <= k.HalfWidth(0.95) {
			c.held++
		}
	}
}

// between reports whether the share lies between two bounds, less four standard errors of its own.
func (c *coverage) between(low, high float64) bool {
	share := float64(c.held) / float64(c.all)
	slack := 4 * math.Sqrt(0.05*0.95/float64(c.all))
	return share >= low-slack && share <= high+slack
}

// validate draws data sets with effects planted, and counts how often the intervals of own answers, the first place, a pair
// in the model and pairs and slopes beside it hold the truth.
func (w gradedWorld) validate(t *testing.T, rng *rand.Rand, sets int) {
	t.Helper()
	w.effects = make([]float64, w.size())
	w.effects[w.own(0)], w.effects[w.first(1)], w.effects[w.pair(1, 2)] = 1, 0.5, 1
	var own, first, pair, omitted coverage
	biases := 0.
	for range sets {
		f := w.fit(t, rng, w.pair(1, 2))
		for i := range w.members {
			own.add(f.Effects[w.own(i)], w.effects[w.own(i)])
			first.add(f.Effects[w.first(i)], w.effects[w.first(i)])
			omitted.add(f.Effects[w.slope(i)], 0)
			if j := (i + 1) % w.members; i != 1 {
				omitted.add(f.Effects[w.pair(i, j)], 0)
			}
		}
		pair.add(f.Effects[w.pair(1, 2)], 1)
		biases += f.Effects[w.own(0)].Estimate - 1
	}
	for name, c := range map[string]coverage{"own answers": own, "the first place": first, "a pair": pair, "effects beside": omitted} {
		t.Logf("the intervals of %s hold the truth in %d of %d", name, c.held, c.all)
		if !c.between(0.92, 0.985) {
			t.Errorf("the intervals of %s hold the truth in %d of %d", name, c.held, c.all)
		}
	}
	if bias := biases / float64(sets); math.Abs(bias) > 0.05+4*0.25/math.Sqrt(float64(sets)) {
		t.Errorf("the estimate of +1 for own answers is off by %.3f on average", bias)
	}
}

func TestGradedRecovery(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	gradedWorld{members: 4, sessions: 50, points: [2]float64{1, 10}}.validate(t, rng, 25)
}

// TestGradedPromotion holds that a planted pair is found beside the model, and that its fit in the model is the one that
// has it from the start.
func TestGradedPromotion(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	w := gradedWorld{members: 5, sessions: 100, points: [2]float64{1, 10}}
	w.effects = make([]float64, w.size())
	w.effects[w.pair(1, 2)] = 1.5
	f := w.fit(t, rng)
	omitted := f.Effects[w.pair(1, 2)]
	if !omitted.Estimable || omitted.Estimate < 2*omitted.SE {
		t.Errorf("a pair of +1.5 is estimated at %.2f, standard error %.2f", omitted.Estimate, omitted.SE)
	}
	with, err := f.With(t.Context(), w.pair(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.of.Fit(t.Context(), append(w.base(), w.pair(1, 2))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range with.in {
		if a, b := with.Effects[e], again.Effects[e]; math.Abs(a.Estimate-b.Estimate) > 0.1+0.15*math.Abs(b.Estimate) {
			t.Errorf("effect %d is %.3f after promotion and %.3f from the start", e, a.Estimate, b.Estimate)
		}
	}
	if got := with.Marginal(1); got < 0.6 || got > 1.1 {
		t.Errorf("a point moves scores by %.2f, where they are nearly unbounded", got)
	}
}

// TestGradedSpread holds that a reviewer that tells answers apart better where its own one is good looks as if it favoured
// itself, and less so where the model has its spread.
func TestGradedSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 10))
	w := gradedWorld{members: 5, sessions: 250, points: [2]float64{1, 10}, spread: 0.5}
	f := w.fit(t, rng)
	without, spread := f.Effects[w.own(0)], f.of.Spread(0)
	with, err := f.With(t.Context(), spread)
	if err != nil {
		t.Fatal(err)
	}
	if d := with.Effects[spread]; d.Estimate < 0.1 || d.Estimate > 0.6 {
		t.Errorf("a spread of 0.5 is estimated at %.2f, standard error %.2f", d.Estimate, d.SE)
	}
	if a, b := without.Estimate, with.Effects[w.own(0)].Estimate; b > a-0.1 {
		t.Errorf("own answers have %.2f without the spread and %.2f with it", a, b)
	}
}

// TestGradedBetween holds that two reviewers of one taste are told from reviewers that tell models apart as much as answers.
func TestGradedBetween(t *testing.T) {
	testkit.Slow(t)
	rng := rand.New(rand.NewPCG(1, 11))
	rejected := func(sets int, w gradedWorld) (n int) {
		for range sets {
			if w.fit(t, rng).BetweenP() < 0.1 {
				n++
			}
		}
		return n
	}
	if n := rejected(40, gradedWorld{members: 4, sessions: 60, points: [2]float64{1, 10}}); n > 10 {
		t.Errorf("at a level of 10 %%, %d of 40 data sets without a taste are rejected", n)
	}
	w := gradedWorld{members: 4, sessions: 500, points: [2]float64{1, 10}, taste: 0.8}
	if n := rejected(10, w); n < 6 {
		t.Errorf("%d of 10 data sets with a taste are rejected", n)
	}
	f := w.fit(t, rng)
	with, err := f.With(t.Context(), f.of.Between()...)
	if err != nil {
		t.Fatal(err)
	}
	others, weights := f.of.Between(), make([]float64, len(f.Effects))
	weights[others[0]], weights[others[1]], weights[others[2]] = -1, 0.5, 0.5
	if k := with.Contrast(weights); k.Estimate < 2*k.SE {
		t.Errorf("the reviewers without it tell models apart by %.2f more, standard error %.2f", k.Estimate, k.SE)
	}
	if with.BetweenP() != 1 {
		t.Error("effects in the model have a p")
	}
}

// TestGradedContrast holds that a contrast has the estimate and the variance of its parts.
func TestGradedContrast(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	w := gradedWorld{members: 4, sessions: 40, points: [2]float64{1, 10}}
	f := w.fit(t, rng)
	weights := func(a, b float64) []float64 {
		c := make([]float64, len(f.Effects))
		c[w.own(0)], c[w.own(1)] = a, b
		return c
	}
	x, y, sum, difference := f.Effects[w.own(0)], f.Effects[w.own(1)], f.Contrast(weights(1, 1)), f.Contrast(weights(1, -1))
	if got, want := sum.Estimate, x.Estimate+y.Estimate; math.Abs(got-want) > 1e-9 {
		t.Errorf("the sum is %g, want %g", got, want)
	}
	if got, want := sum.SE*sum.SE+difference.SE*difference.SE, 2*(x.SE*x.SE+y.SE*y.SE); math.Abs(got-want) > 1e-9 {
		t.Errorf("the variances of sum and difference add up to %g, want %g", got, want)
	}
	if sum.DF != 39 || sum.Informative != 40 {
		t.Errorf("degrees of freedom %g of %d questions", sum.DF, sum.Informative)
	}
}

// TestGradedEdges holds that data that tell too little have a reason or finite figures.
func TestGradedEdges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	w := gradedWorld{members: 3, sessions: 30, points: [2]float64{1, 10}}
	keep := func(f func(s Score) bool) []Score {
		return slices.DeleteFunc(w.draw(rng), func(s Score) bool { return !f(s) })
	}
	change := func(f func(s *Score)) []Score {
		all := w.draw(rng)
		for k := range all {
			f(&all[k])
		}
		return all
	}
	for name, x := range map[string]struct {
		scores []Score
		want   error // nil where a fit or any reason will do
	}{
		"no scores":        {nil, ErrFewReviewers},
		"one reviewer":     {keep(func(s Score) bool { return s.Reviewer == 1 }), ErrFewReviewers},
		"one candidate":    {keep(func(s Score) bool { return s.Candidate == 1 }), ErrFewCandidates},
		"one question":     {change(func(s *Score) { s.Question = 7 }), ErrFewQuestions},
		"one score":        {change(func(s *Score) { s.Points = 7 }), ErrFewReviewers},
		"few scores":       {keep(func(s Score) bool { return s.Session < 3 }), nil},
		"two reviewers":    {keep(func(s Score) bool { return s.Reviewer < 2 }), nil},
		"two candidates":   {keep(func(s Score) bool { return s.Candidate < 2 }), nil},
		"only own answers": {keep(func(s Score) bool { return s.Own }), nil},
		"no own answers":   {keep(func(s Score) bool { return !s.Own }), nil},
		"two categories":   {change(func(s *Score) { s.Points = math.Round(s.Points / 10) }), nil},
		"separation": {change(func(s *Score) {
			if s.Own {
				s.Points = 10
			} else {
				s.Points = min(s.Points, 8)
			}
		}), nil},
		"equal reviewers":       {change(func(s *Score) { s.Points = float64(1 + (s.Session*7+s.Candidate*3)%10) }), nil},
		"points without bounds": {change(func(s *Score) { s.Points *= 1e6 * rng.Float64() }), nil},
		"great lengths":         {change(func(s *Score) { s.Length, s.Slate = 50*s.Length, 50*s.Slate }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewGraded(x.scores, w.size())
			var f *GradedFit
			if err == nil {
				f, err = m.Fit(t.Context(), w.base()...)
			}
			switch {
			case x.want != nil:
				if !errors.Is(err, x.want) {
					t.Errorf("error %v, want %v", err, x.want)
				}
			case err != nil:
				if !errors.Is(err, ErrNotConverged) && !errors.Is(err, ErrFewReviewers) {
					t.Errorf("error %v", err)
				}
			default:
				finite(t, f)
			}
		})
	}
}

// finite holds that the figures of a fit are.
func finite(t *testing.T, f *GradedFit) {
	t.Helper()
	for e, k := range f.Effects {
		for _, v := range []float64{k.Estimate, k.SE, k.DF} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("effect %d is %+v", e, k)
			}
		}
	}
	for i := range f.of.reviewers {
		if v := f.Marginal(i); math.IsNaN(v) || v < 0 {
			t.Errorf("the marginal effect of reviewer %d is %g", i, v)
		}
	}
}

func TestGradedStops(t *testing.T) {
	w := gradedWorld{members: 3, sessions: 20, points: [2]float64{1, 10}}
	m := w.model(t, rand.New(rand.NewPCG(1, 9)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Fit(ctx, w.base()...); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestGradedCategories holds the rule that merges categories.
func TestGradedCategories(t *testing.T) {
	var scores []Score
	for points, n := range map[float64]int{2: 1, 3: 2, 5: 40, 6: 50, 9: 3} {
		for range n {
			scores = append(scores, Score{Points: points})
		}
	}
	m := &Graded{reviewers: make([]gradedReviewer, 1)}
	of := m.categorise(scores)[0]
	// 2 and 3 are together still less than 4, and so is 9: each joins its neighbour.
	if want := map[float64]int{2: 0, 3: 0, 5: 0, 6: 1, 9: 1}; !maps.Equal(of, want) {
		t.Errorf("categories %v, want %v", of, want)
	}
	if got, want := m.reviewers[0].values[0], (2+2*3+40*5)/43.; math.Abs(got-want) > 1e-12 {
		t.Errorf("the mean of the first category is %g, want %g", got, want)
	}
}

// TestOutside counts the scores on which an effect is, less those in the commonest category of each reviewer.
func TestOutside(t *testing.T) {
	var scores []Score
	add := func(session, reviewer int, points float64, effects ...int) {
		s := Score{Session: session, Question: session, Ballot: reviewer, Answer: reviewer, Reviewer: reviewer, Candidate: session % 2, Points: points}
		for _, e := range effects {
			s.Terms = append(s.Terms, Term{e, 1})
		}
		scores = append(scores, s)
	}
	for session := range 30 { // reviewer 0 gives 5, 6 and 7 by turns, and reviewer 1 a 5 or, in every third session, a 9
		add(session, 0, float64(5+session%3), 0)
		points := 5.
		if session%3 == 0 {
			points = 9
		}
		add(session, 1, points, 0, 1)
	}
	add(30, 2, 5, 2) // of whom the model knows one category
	m, err := NewGraded(scores, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Outside(); !slices.Equal(got, []int{20 + 10, 10, 0}) {
		t.Errorf("%v scores are outside", got)
	}
	if got := []int{m.Categories(-1), m.Categories(0), m.Categories(1), m.Categories(2), m.Categories(3)}; !slices.Equal(got, []int{0, 3, 2, 0, 0}) {
		t.Errorf("%v categories", got)
	}
}
