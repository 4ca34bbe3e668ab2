package stat

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/gonum/stat"
)

// start sets the starting values of a fit. All kappa are then 0.
func (m *Graded) start() {
	const lambda, g, r = 0.6, 0.25, 0.15
	m.theta = make([]float64, m.size)
	normal := make([][]float64, len(m.reviewers)) // normal quantiles of the categories' middles
	for i := range m.reviewers {
		m.theta[m.lambda+i] = lambda
		m.theta[m.g+i] = g
		m.theta[m.r+i] = r
		v := &m.reviewers[i]
		below := 0.
		all := 0.
		for _, n := range v.counts {
			all += n
		}
		for k, n := range v.counts {
			normal[i] = append(normal[i], NormalQuantile((below+n/2)/all))
			if below += n; k+1 < len(v.counts) {
				m.theta[v.t+k] = NormalQuantile(below / all)
			}
		}
	}
	means := make([]float64, m.b-m.nu)
	counts := make([]float64, m.b-m.nu) // by candidate
	for _, s := range m.sessions {
		for k := range s.cells {
			x := &s.cells[k]
			x.kappa = 0
			if !x.Own {
				counts[x.Candidate]++
				means[x.Candidate] += (normal[x.Reviewer][x.category] - means[x.Candidate]) / counts[x.Candidate]
			}
		}
	}
	zero := means[m.reference]
	for j, mean := range means {
		if m.at[m.nu+j] >= 0 {
			m.theta[m.nu+j] = (mean - zero) / lambda
		}
	}
	for k := range m.lambda {
		m.theta[k] -= zero
	}
	m.setC()
}

// setC sets c, the number of latent units in a point, for each reviewer. It is the slope of the reviewer's
// thresholds over the midpoints between its categories, weighted by the density at the thresholds.
func (m *Graded) setC() {
	for i := range m.reviewers {
		r := &m.reviewers[i]
		if r.c = 1 / twoCategories; len(r.values) > 2 {
			var x, y, w []float64
			for k, value := range r.values[1:] {
				t := m.theta[r.t+k]
				x = append(x, (value+r.values[k])/2)
				y = append(y, t)
				w = append(w, math.Exp(-t*t/2))
			}
			_, slope := gonum.LinearRegression(x, y, w, false)
			r.c = min(max(slope, leastC), mostC)
		}
	}
}

// setDeviations sets how much each z differs from its mean over the scores of the same reviewer.
func (m *Graded) setDeviations() {
	sums := make([]float64, len(m.reviewers))
	counts := make([]float64, len(m.reviewers))
	for _, s := range m.sessions {
		for k := range s.cells {
			x := &s.cells[k]
			x.deviation, _ = m.latent(x)
			sums[x.Reviewer] += x.deviation
			counts[x.Reviewer]++
		}
	}
	for _, s := range m.sessions {
		for k := range s.cells {
			x := &s.cells[k]
			x.deviation -= sums[x.Reviewer] / counts[x.Reviewer]
		}
	}
}

// setKappa sets how much of each score's likelihood is subtracted. With this subtraction the estimating function is
// near the optimal one, and the matrix of second derivatives stays definite. An exact score in pairs with the
// correlations rho counts sum w/(1-rho^2) times. It should count about 1.25 sum w|rho|/(1-rho^2) times.
func (m *Graded) setKappa() {
	m.correlate()
	const keep, least = 1.25, 0.3
	for _, s := range m.sessions {
		counts := map[*gradedCell]float64{}
		wants := map[*gradedCell]float64{}
		for _, p := range s.pairs {
			rho := m.correlation(p.x, p.y, 0).rho
			count := p.w / (1 - rho*rho)
			for _, x := range [...]*gradedCell{p.x, p.y} {
				counts[x] += count
				wants[x] += count * math.Abs(rho)
			}
		}
		for k := range s.cells {
			x := &s.cells[k]
			x.kappa = max(0, counts[x]-max(keep*wants[x], least*counts[x]))
		}
	}
}

// bending says how to compute second derivatives by correlations. The observed ones are noisy.
type bending int

const (
	observed bending = iota
	// Use the negative products of first derivatives, which have the same mean.
	products
	// Leave out these second derivatives.
	left
)

// derivatives holds the objective, or the part of it from some sessions, and its derivatives by the first n
// parameters.
type derivatives struct {
	n        int
	bending  bending
	value    float64
	gradient []float64
	half     []float64 // an n x n matrix, which gives the second derivatives when its transpose is added
	log      binormalLog
}

func newDerivatives(n int) *derivatives {
	return &derivatives{n: n, gradient: make([]float64, n), half: make([]float64, n*n)}
}

// clear sets everything to zero.
func (d *derivatives) clear() {
	d.value = 0
	clear(d.gradient)
	clear(d.half)
}

// information fills the argument to with the observed information, which is the negative matrix of second
// derivatives.
func (d *derivatives) information(to []float64) {
	for i := range d.n {
		for j := range i + 1 {
			v := -d.half[i*d.n+j] - d.half[j*d.n+i]
			to[i*d.n+j] = v
			to[j*d.n+i] = v
		}
	}
}

// definite replaces an n x n matrix by its Cholesky factor. It returns false if the matrix is not positive
// definite.
func definite(a []float64, n int) bool {
	Factor(a, n, nil)
	for k := range n {
		if !(a[k*n+k] > 0) { // also refuses NaN
			return false
		}
	}
	return true
}

// addRow adds to a row the derivatives by the high and the low bound of a score.
func (d *derivatives) addRow(row int, x *gradedCell, high, low float64) {
	to := d.half[row*d.n : (row+1)*d.n]
	to[x.t[0]] += high
	to[x.t[1]] += low
	for _, p := range x.mean {
		to[p.row] -= (high + low) * p.value
	}
}

// addBlock adds the second derivatives by the bounds of x and those of y, multiplied by w.
func (d *derivatives) addBlock(x, y *gradedCell, by *[2][2]float64, w float64) {
	for m, t := range x.t {
		if x.density[m] > 0 {
			d.addRow(t, y, w*by[m][0], w*by[m][1])
		}
	}
	high := w * (by[0][0] + by[1][0])
	low := w * (by[0][1] + by[1][1])
	for _, p := range x.mean {
		d.addRow(p.row, y, -high*p.value, -low*p.value)
	}
}

// addPair adds the log-likelihood of a pair.
func (d *derivatives) addPair(p *gradedPair, c *correlation) {
	l := &d.log
	c.logP(&p.x.interval, &p.y.interval, l)
	d.value += p.w * l.log
	switch d.bending {
	case observed:
	case left:
		l.xRho = [2]float64{}
		l.yRho = [2]float64{}
		l.rhoRho = 0
	case products:
		for m := range side {
			l.xRho[m] = -l.x[m] * l.rho
			l.yRho[m] = -l.y[m] * l.rho
		}
		l.rhoRho = -l.rho * l.rho
	}
	for m := range side {
		p.x.first[m] += p.w * l.x[m]
		p.y.first[m] += p.w * l.y[m]
		for n := range side {
			p.x.second[m][n] += p.w * l.xx[m][n]
			p.y.second[m][n] += p.w * l.yy[m][n]
		}
	}
	d.addBlock(p.x, p.y, &l.xy, p.w)
	for _, by := range c.by {
		w := p.w * by.value
		d.gradient[by.row] += w * l.rho
		d.addRow(by.row, p.x, w*l.xRho[0], w*l.xRho[1])
		d.addRow(by.row, p.y, w*l.yRho[0], w*l.yRho[1])
		for _, other := range c.by {
			d.half[by.row*d.n+other.row] += w * other.value * l.rhoRho / 2
		}
	}
	if d.bending == observed {
		for _, b := range c.bends {
			d.half[b.rows[0]*d.n+b.rows[1]] += p.w * b.value * l.rho
		}
	}
}

// addCell adds the terms that depend on only one score. The cell already holds the derivatives by its bounds,
// summed over its pairs.
func (d *derivatives) addCell(x *gradedCell) {
	log, first, second := x.logP()
	d.value -= x.kappa * log
	for m := range side {
		x.first[m] -= x.kappa * first[m]
		for n := range side {
			x.second[m][n] -= x.kappa * second[m][n]
		}
		if x.density[m] > 0 {
			d.gradient[x.t[m]] += x.first[m]
		}
	}
	byMean := -x.first[0] - x.first[1]
	for _, p := range x.mean {
		d.gradient[p.row] += byMean * p.value
		if p.z != 0 && d.bending == observed {
			for _, factor := range x.mean[:x.factors] {
				d.half[factor.row*d.n+p.row] += byMean * p.z
			}
		}
	}
	d.addBlock(x, x, &x.second, 0.5)
}

// add adds the log-likelihood of a session.
func (m *Graded) add(d *derivatives, s *gradedSession) {
	for k := range s.cells {
		s.cells[k].terms = m.terms[k][:m.powers]
		m.place(&s.cells[k], d.n)
	}
	for k := range s.pairs {
		d.addPair(&s.pairs[k], m.correlation(s.pairs[k].x, s.pairs[k].y, d.n))
	}
	for k := range s.cells {
		d.addCell(&s.cells[k])
	}
}

// place sets the interval of a score, and its derivatives by the first n parameters.
func (m *Graded) place(x *gradedCell, n int) {
	r := &m.reviewers[x.Reviewer]
	lambda := m.theta[m.lambda+x.Reviewer] + m.theta[m.between+x.Reviewer]
	length := x.Length + x.Slate
	z, mean := m.latent(x)
	x.mean = x.mean[:0]
	x.first = [2]float64{}
	x.second = [2][2]float64{}
	x.t = [2]int{}
	by := func(parameter int, value, z float64) {
		if row := m.at[parameter]; row >= 0 && row < n {
			x.mean = append(x.mean, partial{row, value, z})
		}
	}
	by(m.lambda+x.Reviewer, z, 0)
	by(m.between+x.Reviewer, z, 0)
	x.factors = len(x.mean)
	by(m.nu+x.Candidate, lambda, 1)
	by(m.b, lambda*x.Length, x.Length)
	by(m.b+1, lambda*x.Slate, x.Slate)
	by(m.b+2, lambda*length*length, length*length)
	if x.Own {
		by(m.spread+x.Reviewer, lambda, 1)
	}
	for _, t := range x.Terms {
		by(m.effects+t.Effect, r.c*t.Value, 0)
	}
	low := -float64(unbounded)
	high := float64(unbounded)
	if k := r.t + x.category; x.category < len(r.values)-1 {
		high = m.theta[k] - mean
		x.t[0] = m.at[k]
	}
	if k := r.t + x.category - 1; x.category > 0 {
		low = m.theta[k] - mean
		x.t[1] = m.at[k]
	}
	x.set(low, high, m.roots)
}

// latent returns z and the mean of the latent value of a score.
func (m *Graded) latent(x *gradedCell) (z, mean float64) {
	b := m.theta[m.b : m.b+3]
	length := x.Length + x.Slate
	z = m.theta[m.nu+x.Candidate] + b[0]*x.Length + b[1]*x.Slate + b[2]*length*length
	if x.Own {
		z += m.theta[m.spread+x.Reviewer]
	}
	mean = (m.theta[m.lambda+x.Reviewer] + m.theta[m.between+x.Reviewer]) * z
	for _, t := range x.Terms {
		mean += m.reviewers[x.Reviewer].c * t.Value * m.theta[m.effects+t.Effect]
	}
	return z, mean
}

// correlate sets the correlations of pairs of reviewers.
func (m *Graded) correlate() {
	n := len(m.reviewers)
	m.ballot = make([]correlation, n)
	m.answer = make([]correlation, n*n)
	m.apart = make([]correlation, n*n)
	lambda := m.theta[m.lambda:]
	g := m.theta[m.g:]
	r := m.theta[m.r:]
	for i := range m.reviewers {
		if m.at[m.r+i] < 0 {
			continue
		}
		m.ballot[i] = correlation{binormal: newBinormal(r[i]), by: []partial{{row: m.at[m.r+i], value: 1}}}
		for k := range m.reviewers {
			if k == i || m.at[m.r+k] < 0 {
				continue
			}
			question := []partial{{row: m.at[m.g+i], value: g[k]}, {row: m.at[m.g+k], value: g[i]}}
			answer := []partial{{row: m.at[m.lambda+i], value: lambda[k]}, {row: m.at[m.lambda+k], value: lambda[i]}}
			bends := []bend{{[2]int{m.at[m.g+i], m.at[m.g+k]}, 1}, {[2]int{m.at[m.lambda+i], m.at[m.lambda+k]}, 1}}
			m.apart[i*n+k] = correlation{newBinormal(g[i] * g[k]), question, bends[:1]}
			m.answer[i*n+k] = correlation{newBinormal(g[i]*g[k] + lambda[i]*lambda[k]), append(answer, question...), bends}
		}
	}
	m.powers = 1
	if !zero(m.theta[m.spread:m.between]) {
		m.powers = maxTerms // correlations with a spread are not in the slices below
	}
	for _, all := range [][]correlation{m.ballot, m.answer, m.apart} {
		for _, c := range all {
			m.powers = max(m.powers, len(c.powers))
		}
	}
}

// correlation returns the correlation of two scores, with its derivatives by the first n parameters.
func (m *Graded) correlation(x, y *gradedCell, n int) *correlation {
	var c *correlation
	switch at := x.Reviewer*len(m.reviewers) + y.Reviewer; {
	case x.Ballot == y.Ballot:
		c = &m.ballot[x.Reviewer]
	case x.Answer == y.Answer:
		c = &m.answer[at]
	default:
		c = &m.apart[at]
	}
	if x.own == y.Answer {
		c = m.spreadOut(c, x, y, n)
	}
	if y.own == x.Answer {
		c = m.spreadOut(c, y, x, n)
	}
	return c
}

// spreadOut returns the correlation of two scores for the case that y is about the own answer of x's reviewer. That
// reviewer's spread adds lambda_i lambda_k d times x.deviation to the correlation.
func (m *Graded) spreadOut(c *correlation, x, y *gradedCell, n int) *correlation {
	i := m.lambda + x.Reviewer
	k := m.lambda + y.Reviewer
	spread := m.spread + x.Reviewer
	d := m.theta[spread] * x.deviation
	row := m.at[spread]
	if row >= n && d == 0 {
		return c
	}
	to := &m.spreading
	*to = correlation{binormal: c.binormal, by: append(to.by[:0], c.by...), bends: append(to.bends[:0], c.bends...)}
	if d != 0 {
		rho := c.rho + m.theta[i]*m.theta[k]*d
		to.binormal = newBinormal(min(max(rho, -maxCorrelation), maxCorrelation))
		to.by = append(to.by, partial{row: m.at[i], value: m.theta[k] * d}, partial{row: m.at[k], value: m.theta[i] * d})
		to.bends = append(to.bends, bend{[2]int{m.at[i], m.at[k]}, d})
	}
	if row < n {
		to.by = append(to.by, partial{row: row, value: m.theta[i] * m.theta[k] * x.deviation})
		to.bends = append(to.bends, bend{[2]int{row, m.at[i]}, m.theta[k] * x.deviation}, bend{[2]int{row, m.at[k]}, m.theta[i] * x.deviation})
	}
	return to
}

// differentiate sets the objective and its derivatives by the first n parameters. It uses one session in every
// stride sessions.
func (m *Graded) differentiate(d *derivatives, stride int) {
	d.clear()
	m.correlate()
	for k := 0; k < len(m.sessions); k += stride {
		m.add(d, &m.sessions[k])
	}
	for k, v := range m.theta {
		if row := m.at[k]; row >= 0 && row < d.n {
			d.value -= m.priors[k] * v * v / 2
			d.gradient[row] -= m.priors[k] * v
			d.half[row*d.n+row] -= m.priors[k] / 2
		}
	}
}

// possible reports whether thresholds ascend and correlations are within their bounds.
func (m *Graded) possible() bool {
	lambda := m.theta[m.lambda:m.g]
	g := m.theta[m.g:m.r]
	for i, r := range m.reviewers {
		for k := 1; k+1 < len(r.values); k++ {
			if !(m.theta[r.t+k]-m.theta[r.t+k-1] >= leastGap) { // also refuses NaN
				return false
			}
		}
		if !(math.Abs(m.theta[m.r+i]) <= maxCorrelation) {
			return false
		}
		for k := range i {
			apart := g[i] * g[k]
			if !(max(math.Abs(apart), math.Abs(apart+lambda[i]*lambda[k])) <= maxCorrelation) {
				return false
			}
		}
	}
	return true
}

// maximise moves the first n parameters to the maximum of the objective by Newton's method. The objective is over
// one session in every stride sessions. maximise returns the factor of the information at the maximum, and the
// objective. It stops if the next step would gain less than the argument enough. It halves a step that does not
// raise the objective.
func (m *Graded) maximise(ctx context.Context, n, stride int, enough float64) (factor []float64, objective float64, err error) {
	d := newDerivatives(n)
	information := make([]float64, n*n)
	m.differentiate(d, stride)
	for range maxGradedSteps {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		d.information(information)
		factor = slices.Clone(information)
		step := slices.Clone(d.gradient)
		if definite(factor, n) {
			if Solve(factor, n, step); Dot(step, d.gradient) < enough {
				return factor, d.value, nil
			}
		} else if !ascend(information, n, step, enough) {
			return nil, 0, ErrNotConverged
		}
		if !m.advance(d, stride, step) {
			return nil, 0, ErrNotConverged
		}
	}
	return nil, 0, ErrNotConverged
}

// ascend replaces a gradient by a step. It is for an information that is not definite. The step is Newton's step with
// the absolute values of the eigenvalues. At a saddle, that step would gain less than the argument enough. The step
// then goes a fixed length along the eigenvector of the least eigenvalue.
func ascend(information []float64, n int, gradient []float64, enough float64) bool {
	// least is the least eigenvalue that counts. away is the length of the step away from a saddle. most is the
	// largest change of a parameter.
	const least, away, most = 0.1, 0.3, 0.5
	var e mat.EigenSym
	if !e.Factorize(mat.NewSymDense(n, information), true) {
		return false
	}
	var vectors mat.Dense
	e.VectorsTo(&vectors)
	step := make([]float64, n)
	gain := 0.
	for k, value := range e.Values(nil) {
		v := mat.Col(nil, k, &vectors)
		along := Dot(v, gradient)
		gain += along * along / max(math.Abs(value), least)
		for i := range step {
			step[i] += v[i] * along / max(math.Abs(value), least)
		}
	}
	if gain < enough {
		mat.Col(step, 0, &vectors)
		length := math.Copysign(away, Dot(step, gradient))
		for i := range step {
			step[i] *= length
		}
	}
	longest := 0.
	for _, v := range step {
		longest = max(longest, math.Abs(v))
	}
	for i := range step {
		gradient[i] = step[i] * min(1, most/longest)
	}
	return true
}

// advance takes the whole step. If that lowers the objective, it tries half of the step, a quarter and so on. It sets
// the derivatives at the new parameters. It returns false if every part of the step lowers the objective.
func (m *Graded) advance(d *derivatives, stride int, step []float64) bool {
	from := slices.Clone(m.theta)
	value := d.value
	for part := 1.; part > 1e-5; part /= 2 {
		for k, row := range m.at {
			if row >= 0 && row < d.n {
				m.theta[k] = from[k] + part*step[row]
			}
		}
		if m.possible() {
			if m.differentiate(d, stride); d.value >= value-1e-9*math.Abs(value) {
				return true
			}
		}
	}
	copy(m.theta, from)
	return false
}
