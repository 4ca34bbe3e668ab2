package stat

import (
	"context"
	"math"
	"slices"
)

// GradedFit is the fit of a [Graded] model that includes some of the effects. The other effects are outside the
// model, and the fit holds them at 0. Each effect has an estimate in points and a standard error. The errors come
// from leaving out one question at a time (CR3 of Bell and McCaffrey 2002). To leave out question s, the estimates
// move by one Newton step. u_s holds the first derivatives of what the question adds to the objective, and A_s the
// negative second derivatives. A holds the negative second derivatives of the whole objective:
//
//	theta(-s) - theta = -(A - A_s)^-1 u_s    V = (G-1)/G sum (theta(-s) - theta)(theta(-s) - theta)'
//
// The inverse is approximated by the first terms of its series, A^-1 + A^-1 A_s A^-1 and so on. A_s leaves out
// second derivatives by correlations, because in one question they are mostly noise.
//
// The estimate of an effect outside the model is one Newton step from 0. The test of the effect uses its effective
// score: its score minus the part that the parameters in the model explain.
type GradedFit struct {
	// Effects holds the effects by index. The effects of [Graded.Spread] and [Graded.Between] come last. See
	// [GradedFit.Contrast].
	Effects []Contrast
	// Objective is the objective at the fit. Of two fits that [GradedFit.With] makes from one fit, the one with the
	// greater objective fits better.
	Objective float64

	of     *Graded
	in     []int // lists the effects in the model
	n      int   // the number of parameters in the model
	theta  []float64
	factor []float64 // the factor of A
	// moved holds, for each question, how much each effect in the model moves if the question is left out.
	moved   [][]float64
	omitted []omitted
}

const (
	converged = 1e-4 // a fit ends if another step would gain less than this
	// The rough fit that comes first ends if another step would gain less than this.
	roughly = 1
	// The rough fit takes all sessions if they are fewer than twice roughSessions. Otherwise it takes between
	// roughSessions and twice as many.
	roughSessions = 200
	// The number of terms in the series, without its first term.
	leverageTerms = 2
	// leastUnexplained is the least share of the information about an effect that the parameters in the model must
	// leave unexplained.
	leastUnexplained = 1e-3
	// If at most fewQuestions questions are informative about an effect outside the model, the error of the effect
	// includes leverage. Leverage is the share of each question in the information about the effect.
	fewQuestions = 200
)

// Fit fits the model with the given effects. It first makes a rough fit without kappa. It returns [ErrNotConverged]
// if it finds no maximum of the likelihood, or an error of the context. Callers must not use earlier fits of the same
// model after that.
func (m *Graded) Fit(ctx context.Context, effects ...int) (*GradedFit, error) {
	n := m.enter(effects)
	m.start()
	if _, _, err := m.maximise(ctx, n, max(1, len(m.sessions)/roughSessions), roughly); err != nil {
		return nil, err
	}
	m.setC()
	m.setDeviations()
	m.setKappa()
	return m.fit(ctx, effects, n)
}

// With fits the model with further effects. It starts from this fit, with one Newton step for each further effect.
func (f *GradedFit) With(ctx context.Context, further ...int) (*GradedFit, error) {
	m := f.of
	copy(m.theta, f.theta)
	m.enter(f.in)
	for _, x := range f.omitted {
		if !slices.Contains(further, x.effect) {
			continue
		}
		sd := 1 / math.Sqrt(m.priors[m.effects+x.effect])
		step := min(max(x.Estimate, -sd), sd)
		for k, row := range m.at {
			if row >= 0 && row < f.n {
				m.theta[k] -= step * x.slopes[row]
			}
		}
		m.theta[m.effects+x.effect] = step
	}
	if !m.possible() {
		copy(m.theta, f.theta)
	}
	effects := slices.Concat(f.in, further)
	return m.fit(ctx, effects, m.enter(effects))
}

// enter gives the effects the last rows in the matrix of second derivatives. The effects in the model come before
// the others. It returns the number of parameters in the model.
func (m *Graded) enter(effects []int) (n int) {
	n = m.rows
	for _, e := range effects {
		m.at[m.effects+e] = n
		n++
	}
	last := n
	for e := range m.occurs {
		if !slices.Contains(effects, e) {
			m.at[m.effects+e] = last
			last++
		}
	}
	return n
}

func (m *Graded) fit(ctx context.Context, effects []int, n int) (*GradedFit, error) {
	factor, objective, err := m.maximise(ctx, n, 1, converged)
	if err != nil {
		return nil, err
	}
	f := &GradedFit{
		Effects:   make([]Contrast, len(m.occurs)),
		Objective: objective,
		of:        m,
		in:        effects,
		n:         n,
		theta:     slices.Clone(m.theta),
		factor:    factor,
	}
	f.setOmitted()
	return f, f.leaveOut(ctx)
}

// leaveOut sets the standard errors, by leaving out one question at a time.
func (f *GradedFit) leaveOut(ctx context.Context) error {
	m := f.of
	part := f.derivatives(left)
	n := part.n
	a := make([]float64, part.n*part.n)
	var touched []int // the parameters in the model that the question is informative about
	for _, sessions := range m.questions {
		if err := ctx.Err(); err != nil {
			return err
		}
		part.clear()
		for _, s := range sessions {
			m.add(part, &m.sessions[s])
		}
		part.information(a)
		move := make([]float64, f.n)
		for range leverageTerms + 1 {
			next := slices.Clone(part.gradient[:f.n])
			for i := range next {
				next[i] += Dot(a[i*n:i*n+f.n], move)
			}
			Solve(f.factor, f.n, next)
			move = next
		}
		moved := make([]float64, len(m.occurs))
		for _, e := range f.in {
			moved[e] = -move[m.at[m.effects+e]]
		}
		f.moved = append(f.moved, moved)
		touched = touched[:0]
		for i := range f.n {
			if !zero(a[i*n : i*n+f.n]) {
				touched = append(touched, i)
			}
		}
		for k := range f.omitted {
			f.omitted[k].leaveOut(part, a, move, touched)
		}
	}
	for _, e := range f.in {
		c := make([]float64, len(m.occurs))
		c[e] = 1
		f.Effects[e] = f.Contrast(c)
	}
	g := float64(len(m.questions))
	for _, x := range f.omitted {
		x.SE = math.Sqrt((g - 1) / g * x.squares)
		x.DF = float64(x.Informative - 1)
	}
	return nil
}

// Contrast returns the estimate of a weighted sum of effects. The sum is estimable if all its effects are in the
// model and the scores contain more information about the sum than its prior does. Each effect of the sum occurs in a
// number of questions. Informative is the least of these numbers, and the degrees of freedom are one less.
func (f *GradedFit) Contrast(weights []float64) Contrast {
	m := f.of
	c := make([]float64, f.n)
	prior := 0.
	k := Contrast{Informative: len(m.questions)}
	for e, w := range weights {
		if w != 0 {
			row := m.at[m.effects+e]
			if row >= f.n {
				return Contrast{}
			}
			c[row] = w
			prior += w * w / m.priors[m.effects+e]
			k.Estimate += w * f.theta[m.effects+e]
			k.Informative = min(k.Informative, m.occurs[e])
		}
	}
	solved := slices.Clone(c)
	Solve(f.factor, f.n, solved)
	if k.Informative < 2 || Dot(solved, c) >= prior/2 {
		return Contrast{}
	}
	for _, moved := range f.moved {
		d := Dot(weights, moved)
		k.SE += d * d
	}
	g := float64(len(m.questions))
	k.Estimable = true
	k.Robust = true
	k.SE = math.Sqrt((g - 1) / g * k.SE)
	k.DF = float64(k.Informative - 1)
	return k
}

// omitted is an effect outside the model. score and information are the parts of the effect's own score and
// information that the parameters in the model do not explain.
type omitted struct {
	effect, row int
	between     bool
	// For each parameter in the model, the negative second derivative by that parameter and by this effect.
	b                  []float64
	slopes             []float64 // A^-1 b
	score, information float64
	// The sum, over questions, of the squared move of the effect if the question is left out.
	squares float64
	parts   []float64 // the score by question, for an effect between models
	*Contrast
}

// derivatives returns empty derivatives by all parameters, those in the model and those outside the model.
func (f *GradedFit) derivatives(how bending) *derivatives {
	d := newDerivatives(f.n + len(f.Effects) - len(f.in))
	d.bending = how
	return d
}

// setOmitted sets the effects outside the model about which the scores are informative. For the second derivatives by
// correlations it uses products, because the observed ones would hide a large effect that the model lacks.
func (f *GradedFit) setOmitted() {
	total := f.derivatives(products)
	f.of.differentiate(total, 1)
	n := f.n
	whole := make([]float64, total.n*total.n)
	total.information(whole)
	factor := make([]float64, 0, n*n)
	for i := range n {
		factor = append(factor, whole[i*total.n:i*total.n+n]...)
	}
	if !definite(factor, n) {
		return
	}
	for e := range f.Effects {
		row := f.of.at[f.of.effects+e]
		if row < n || f.of.occurs[e] < 2 {
			continue
		}
		of := whole[row*total.n:]
		x := omitted{
			effect:   e,
			row:      row,
			between:  f.of.effects+e >= f.of.between,
			b:        slices.Clone(of[:n]),
			slopes:   slices.Clone(of[:n]),
			Contrast: &f.Effects[e],
		}
		Solve(factor, n, x.slopes)
		x.score = total.gradient[row] - Dot(x.slopes, total.gradient[:n])
		x.information = of[row] - Dot(x.slopes, x.b)
		if x.information > leastUnexplained*of[row] {
			x.Estimate = x.score / x.information
			x.Estimable = true
			x.Robust = true
			x.Informative = f.of.occurs[e]
			f.omitted = append(f.omitted, x)
		}
	}
}

// leaveOut adds how much leaving out a question moves the effect. part and a hold the derivatives of the question.
// touched lists the parameters whose derivatives are not 0. move is how much the parameters in the model move
// without the question.
func (x *omitted) leaveOut(part *derivatives, a, move []float64, touched []int) {
	n := len(move)
	of := a[x.row*part.n:]
	score := Dot(x.b, move) - Dot(of[:n], move) - part.gradient[x.row]
	information := x.information
	if x.Informative <= fewQuestions {
		information -= of[x.row] - 2*Dot(x.slopes, of[:n])
		for _, i := range touched {
			for _, j := range touched {
				information -= x.slopes[i] * a[i*part.n+j] * x.slopes[j]
			}
		}
		information = max(information, x.information/2)
	}
	d := score / information
	x.squares += d * d
	if x.between {
		x.parts = append(x.parts, score)
	}
}

// BetweenP returns p for the hypothesis that reviewers tell language models apart as much as they tell answers of one
// language model apart. It uses Hotelling's T^2 on the scores of the effects in [Graded.Between]. p is 1 if the fit
// already has these effects, or if the scores contain no information about these effects.
func (f *GradedFit) BetweenP() float64 {
	var of []*omitted
	between := f.of.Between()
	for k := range f.omitted {
		if x := &f.omitted[k]; slices.Contains(between, x.effect) {
			of = append(of, x)
		}
	}
	n := len(of)
	g := len(f.of.questions)
	if n == 0 || g <= n {
		return 1
	}
	v := make([]float64, n*n)
	scores := make([]float64, n)
	for i, x := range of {
		scores[i] = x.score
		for j, y := range of {
			v[i*n+j] = Dot(x.parts, y.parts)
		}
	}
	if !definite(v, n) {
		return 1
	}
	solved := slices.Clone(scores)
	Solve(v, n, solved)
	t2 := Dot(solved, scores) * float64(g) / float64(g-1)
	return FisherP(t2*float64(g-n)/float64(n*(g-1)), float64(n), float64(g-n))
}

// Marginal returns how much an effect of one point changes a reviewer's scores on average, in points on the
// reviewer's own scale. It is 0 if the reviewer is not in the model.
func (f *GradedFit) Marginal(reviewer int) float64 {
	m := f.of
	if m.Categories(reviewer) == 0 {
		return 0
	}
	r := &m.reviewers[reviewer]
	sum := 0.
	n := 0.
	copy(m.theta, f.theta)
	for _, s := range m.sessions {
		for k := range s.cells {
			if s.cells[k].Reviewer != reviewer {
				continue
			}
			_, mean := m.latent(&s.cells[k])
			for c, value := range r.values[1:] {
				t := m.theta[r.t+c] - mean
				sum += (value - r.values[c]) * math.Exp(-t*t/2) / math.Sqrt(2*math.Pi)
			}
			n++
		}
	}
	return r.c * sum / max(n, 1)
}

// Outside returns, for each effect, how many of the scores with the effect differ from their reviewer's commonest
// category.
func (m *Graded) Outside() []int {
	counts := make([]map[[2]int]int, m.given) // by reviewer and category
	for _, s := range m.sessions {
		for _, x := range s.cells {
			for _, t := range x.Terms {
				if t.Value == 0 {
					continue
				}
				if counts[t.Effect] == nil {
					counts[t.Effect] = map[[2]int]int{}
				}
				counts[t.Effect][[2]int{x.Reviewer, x.category}]++
			}
		}
	}
	outside := make([]int, m.given)
	for e, of := range counts {
		most := map[int]int{}
		for at, n := range of {
			outside[e] += n
			most[at[0]] = max(most[at[0]], n)
		}
		for _, n := range most {
			outside[e] -= n
		}
	}
	return outside
}

// Categories returns how many categories a reviewer has. It is 0 if the reviewer is not in the model, or if there
// is no such reviewer.
func (m *Graded) Categories(reviewer int) int {
	if reviewer < 0 || reviewer >= len(m.reviewers) {
		return 0
	}
	return len(m.reviewers[reviewer].values)
}
