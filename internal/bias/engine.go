package bias

import (
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

// explained is the share of its square that rounding leaves of a column that
// consists of absorbed effects.
const explained = 1e-18

// design is a linear model of scores with fixed effects that are absorbed inside
// each session: columns and scores enter as deviations from what the dummies of
// those effects explain.
type design struct {
	candidates bool // absorb an effect of each candidate in each session
	reviewers  bool // absorb an effect of each reviewer in each session
	columns    int  // regressors that enter together
	// row sets the regressors of a cell in x, which is zero before. It reports false
	// for a cell that does not enter; one without a score never does.
	row func(s *scores, i, j int, x []float64) bool
	// responses are what the regressors explain, each by itself; by default the scores
	// alone. Of session k they are matrices by reviewer and candidate, which all lack
	// the same cells.
	responses responses

	// Solos are further regressors, of which a fit takes one or none. Each is 1 for
	// one cell of a session and 0 for the others; solo returns which of them the cell
	// is that of, -1 for none. They take both effects absorbed.
	solos int
	solo  func(s *scores, i, j int) int
}

// responses are what a design explains in place of the scores, as it says.
type responses struct {
	of    func(k int) [][][]float64
	count int
}

// plain are the scores as they are.
func (w *window) plain() responses {
	return responses{func(k int) [][][]float64 { return [][][]float64{w.sessions[k].y} }, 1}
}

// sums are the sufficient statistics of a design, by cluster: A_s = Xd'Xd and b_s
// = Xd'yd, with X and y as deviations. They add up over sessions.
type sums struct {
	columns, solos, responses int
	clusters                  [][]float64 // those with a row in the design
	total                     []float64   // over all clusters
}

// Each vector of sums holds the lower triangle of A over the columns, then for each
// solo its products with the columns and with itself, then for each response its
// products with the columns and with the solos.
func (d *sums) stride() int { return d.first(d.responses) }

// first returns where the products of a response begin.
func (d *sums) first(response int) int {
	return d.columns*(d.columns+1)/2 + d.solos*(d.columns+1) + response*(d.columns+d.solos)
}

// sums computes the sufficient statistics of a design.
func (w *window) sums(d design) *sums {
	if d.responses.of == nil {
		d.responses = w.plain()
	}
	out := &sums{columns: d.columns, solos: d.solos, responses: d.responses.count}
	out.total = make([]float64, out.stride())
	byCluster := make([][]float64, w.clusters)
	a := absorber{design: d}
	for k := range w.sessions {
		s := &w.sessions[k]
		if !a.load(s, d.responses.of(k)) {
			continue
		}
		a.absorb(len(s.reviewers), len(s.candidates))
		if byCluster[s.cluster] == nil {
			byCluster[s.cluster] = make([]float64, out.stride())
			out.clusters = append(out.clusters, byCluster[s.cluster])
		}
		a.add(byCluster[s.cluster])
	}
	for _, c := range out.clusters {
		for k, v := range c {
			out.total[k] += v
		}
	}
	return out
}

// absorber turns the cells of one session after the other into deviations.
type absorber struct {
	design
	reviewer, candidate []int       // of each row
	cells               []int       // the solo that each row is the cell of; empty without solos
	left                []float64   // of each row: what absorbing leaves of 1 there and 0 elsewhere
	x                   [][]float64 // by column, of each row; the responses follow the regressors
	cell                []float64   // regressors of one row
	squares             []float64   // of each column, before
	means, counts       []float64   // by group
	laplacian           []float64
	effects             []float64
}

// load takes the rows of a session and reports whether there are any.
func (a *absorber) load(s *scores, y [][][]float64) bool {
	n := a.columns
	if a.x == nil {
		a.x, a.cell = make([][]float64, n+a.responses.count), make([]float64, n)
	}
	a.reviewer, a.candidate, a.cells = a.reviewer[:0], a.candidate[:0], a.cells[:0]
	for k := range a.x {
		a.x[k] = a.x[k][:0]
	}
	for i := range s.reviewers {
		for j := range s.candidates {
			if math.IsNaN(y[0][i][j]) {
				continue
			}
			clear(a.cell)
			if !a.row(s, i, j, a.cell) {
				continue
			}
			a.reviewer, a.candidate = append(a.reviewer, i), append(a.candidate, j)
			for k, v := range a.cell {
				a.x[k] = append(a.x[k], v)
			}
			for r := range y {
				a.x[n+r] = append(a.x[n+r], y[r][i][j])
			}
			if a.solos > 0 {
				a.cells = append(a.cells, a.solo(s, i, j))
			}
		}
	}
	return len(a.reviewer) > 0
}

// absorb takes what the dummies explain out of every column, and leaves zeros of
// one that they explain but for rounding. The candidates' dummies are orthogonal, so they leave deviations from means. What the reviewers'
// dummies explain beside them follows from the normal equations, whose matrix is
// the Laplacian of the graph of reviewers that share candidates; it has one
// dependent row for each connected part.
func (a *absorber) absorb(reviewers, candidates int) {
	a.squares = a.squares[:0]
	for _, x := range a.x {
		a.squares = append(a.squares, stat.Dot(x, x))
	}
	switch {
	case a.candidates && a.reviewers:
		a.centreBoth(reviewers, candidates)
	case a.candidates:
		a.centre(a.candidate, candidates)
	default:
		a.centre(a.reviewer, reviewers)
	}
	for k, x := range a.x {
		if stat.Dot(x, x) <= explained*a.squares[k] {
			clear(x)
		}
	}
}

func (a *absorber) centreBoth(reviewers, candidates int) {
	m := reviewers
	a.laplacian = stat.Zeros(a.laplacian, m*m)
	counts := a.count(a.candidate, candidates)
	for r, i := range a.reviewer {
		a.laplacian[i*m+i]++
		for q, other := range a.reviewer {
			if a.candidate[q] == a.candidate[r] {
				a.laplacian[i*m+other] -= 1 / counts[a.candidate[r]]
			}
		}
	}
	stat.Factor(a.laplacian, m, nil)
	// What is left of one row is 1 less its leverage.
	a.left = stat.Zeros(a.left, len(a.cells))
	for r := range a.cells {
		a.effects = stat.Zeros(a.effects, m)
		a.effects[a.reviewer[r]] = 1
		share := 1 / counts[a.candidate[r]]
		for q, other := range a.reviewer {
			if a.candidate[q] == a.candidate[r] {
				a.effects[other] -= share
			}
		}
		stat.Forward(a.laplacian, m, a.effects)
		a.left[r] = 1 - share - stat.Dot(a.effects, a.effects)
	}
	a.centre(a.candidate, candidates)
	for _, x := range a.x {
		if zero(x) {
			continue
		}
		a.effects = stat.Zeros(a.effects, m)
		for r, i := range a.reviewer {
			a.effects[i] += x[r]
		}
		stat.Solve(a.laplacian, m, a.effects)
		a.means = stat.Zeros(a.means, candidates)
		for r, i := range a.reviewer {
			a.means[a.candidate[r]] += a.effects[i] / counts[a.candidate[r]]
		}
		for r, i := range a.reviewer {
			x[r] -= a.effects[i] - a.means[a.candidate[r]]
		}
	}
}

// centre takes the mean of each group out of every column.
func (a *absorber) centre(group []int, groups int) {
	counts := a.count(group, groups)
	for _, x := range a.x {
		if zero(x) {
			continue
		}
		a.means = stat.Zeros(a.means, groups)
		for r, g := range group {
			a.means[g] += x[r] / counts[g]
		}
		for r, g := range group {
			x[r] -= a.means[g]
		}
	}
}

func (a *absorber) count(group []int, groups int) []float64 {
	a.counts = stat.Zeros(a.counts, groups)
	for _, g := range group {
		a.counts[g]++
	}
	return a.counts
}

// add adds the products of the columns to the sums of a cluster.
func (a *absorber) add(to []float64) {
	m := a.columns
	k := 0
	for i := range m {
		for j := range i + 1 {
			to[k] += stat.Dot(a.x[i], a.x[j])
			k++
		}
	}
	solos, responses := to[k:], to[k+a.solos*(m+1):]
	for q, y := range a.x[m:] {
		for i := range m {
			responses[q*(m+a.solos)+i] += stat.Dot(a.x[i], y)
		}
	}
	// A solo's column is 1 in one row, so its products are what is left in that row.
	for r, solo := range a.cells {
		if solo < 0 || a.left[r] <= stat.Dependent {
			continue
		}
		at := solos[solo*(m+1):]
		for j := range m {
			at[j] += a.x[j][r]
		}
		at[m] += a.left[r]
		for q, y := range a.x[m:] {
			responses[q*(m+a.solos)+m+solo] += y[r]
		}
	}
}

// fit is the least-squares fit of a design to its first response, its covariances
// by leaving out one cluster at a time.
type fit struct {
	n        int // coefficients
	clusters int
	beta     []float64
	others   [][]float64 // beta of the further responses
	cv3, cr1 []float64   // n x n
	// Combinations of coefficients that do not change the fit, as a sum of vv': of
	// all clusters, and of those that are left when one is left out.
	unknown, fragile []float64
}

// fit fits the columns and, unless solo is negative, that solo as the last
// coefficient. With G clusters, V = (G-1)/G sum (beta(-s) - beta)(beta(-s) -
// beta)' (CV3; MacKinnon, Nielsen and Webb 2023).
func (d *sums) fit(solo int) *fit {
	n := d.columns
	if solo >= 0 {
		n++
	}
	f := &fit{
		n: n, clusters: len(d.clusters), beta: make([]float64, n), cv3: make([]float64, n*n), cr1: make([]float64, n*n),
		unknown: make([]float64, n*n), fragile: make([]float64, n*n),
	}
	scale, a, part := make([]float64, n), make([]float64, n*n), make([]float64, n*n)
	b := make([]float64, n)
	d.unpack(d.total, solo, a)
	d.response(d.total, 0, solo, f.beta)
	for i := range n {
		scale[i] = a[i*n+i]
	}
	total, score := slices.Clone(a), slices.Clone(f.beta)
	stat.Factor(a, n, scale)
	stat.AddNull(f.unknown, a, n)
	stat.Solve(a, n, f.beta)
	for r := 1; r < d.responses; r++ {
		beta := make([]float64, n)
		d.response(d.total, r, solo, beta)
		stat.Solve(a, n, beta)
		f.others = append(f.others, beta)
	}

	meat, u := make([]float64, n*n), make([]float64, n)
	for _, c := range d.clusters {
		d.unpack(c, solo, part)
		d.response(c, 0, solo, b)
		for i := range n {
			u[i] = b[i]
			for j := range n {
				u[i] -= part[max(i, j)*n+min(i, j)] * f.beta[j]
			}
			b[i] = score[i] - b[i]
		}
		stat.AddOuter(meat, u)
		for k, v := range part {
			part[k] = total[k] - v
		}
		stat.Factor(part, n, scale)
		stat.AddNull(f.fragile, part, n)
		stat.Solve(part, n, b)
		for i := range n {
			b[i] -= f.beta[i]
		}
		stat.AddOuter(f.cv3, b)
	}
	g := float64(f.clusters)
	for k := range f.cv3 {
		f.cv3[k] *= (g - 1) / g
	}
	f.sandwich(a, meat, g/(g-1))
	return f
}

// sandwich sets CR1 = factor A^-1 meat A^-1, from the factored A.
func (f *fit) sandwich(a, meat []float64, factor float64) {
	n := f.n
	for range 2 { // A^-1 (A^-1 meat)', which is A^-1 meat A^-1
		for i := range n {
			stat.Solve(a, n, meat[i*n:(i+1)*n])
		}
		for i := range n {
			for j := range i {
				meat[i*n+j], meat[j*n+i] = meat[j*n+i], meat[i*n+j]
			}
		}
	}
	for k, v := range meat {
		f.cr1[k] = factor * v
	}
}

// unpack sets A, of which the lower triangle is kept.
func (d *sums) unpack(from []float64, solo int, a []float64) {
	m, n := d.columns, d.columns
	if solo >= 0 {
		n++
	}
	k := 0
	for i := range m {
		for j := range i + 1 {
			a[i*n+j] = from[k]
			k++
		}
	}
	if solo >= 0 {
		copy(a[m*n:], from[k+solo*(m+1):][:m+1])
	}
}

// response sets b to the products of a response.
func (d *sums) response(from []float64, response, solo int, b []float64) {
	at := from[d.first(response):]
	copy(b, at[:d.columns])
	if solo >= 0 {
		b[d.columns] = at[d.columns+solo]
	}
}

// estimable reports whether the contrast c of the coefficients is determined by
// the records, and whether it still is whichever cluster is left out.
func (f *fit) estimable(c []float64) (estimable, robust bool) {
	const slack = 1e-8 // rounding, of the square of a coefficient of about 1
	return stat.Quadratic(f.unknown, c) < slack, stat.Quadratic(f.fragile, c) < slack
}

// wald returns the F statistic of the hypothesis that all contrasts, of which
// there are fewer than clusters, are zero: (G-q)/(q(G-1)) (C beta)'(C V C')^-1 (C
// beta) on q and G-q degrees of freedom, with its p.
func (f *fit) wald(contrasts [][]float64) (test Test, p float64) {
	q := len(contrasts)
	v, b := make([]float64, q*q), make([]float64, q)
	for i, c := range contrasts {
		b[i] = stat.Dot(c, f.beta)
		for j, e := range contrasts[:i+1] {
			v[i*q+j] = stat.Bilinear(f.cv3, c, e)
		}
	}
	z := slices.Clone(b)
	stat.Factor(v, q, nil)
	stat.Solve(v, q, z)
	g, df := float64(f.clusters), float64(q)
	test = Test{Name: "F", Value: (g - df) / (df * (g - 1)) * stat.Dot(b, z), DF: []float64{df, g - df}}
	return test, stat.FisherP(test.Value, df, g-df)
}

func zero(x []float64) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}
