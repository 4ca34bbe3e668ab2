package stat

import (
	"math"
	"slices"
)

// Design is what a [Regression] fits. The observations come in blocks. Each observation
// is in a cell of the table of its block, at a row and a column.
type Design struct {
	Rows       bool // absorb an effect of each row of each table
	Columns    bool // absorb an effect of each column of each table
	Regressors int  // that enter together
	Responses  int  // that the regressors explain, each by itself
	// Solos are further regressors, of which a fit takes one or none. Each is 1 for at
	// most one observation of a block and 0 for the others. They take both effects
	// absorbed.
	Solos int
}

// Regression is a linear regression with fixed effects that are absorbed inside each
// block: regressors and responses enter as deviations from what the dummies of those
// effects explain. It keeps the sufficient statistics by cluster, A_s = Xd'Xd and b_s =
// Xd'yd, with X and y as deviations, which add up over the blocks of a cluster.
type Regression struct {
	Design
	byCluster [][]float64 // nil for a cluster without observations
	clusters  [][]float64 // those with observations, in the order in which they occur
	total     []float64   // over all clusters

	// The observations of the block.
	row, column []int
	solo        []int       // the solo that is 1 at each observation, -1 for none; empty without solos
	left        []float64   // of each observation: what absorbing leaves of 1 there and 0 elsewhere
	x           [][]float64 // by regressor, then by response, of each observation

	squares, means, counts, effects, laplacian []float64 // buffers
}

// NewRegression returns a regression without observations.
func NewRegression(d Design) *Regression {
	return &Regression{Design: d, x: make([][]float64, d.Regressors+d.Responses)}
}

// Add adds an observation to the block: its row and column in the table, the solo that is
// 1 there, -1 for none, and its regressors, then its responses.
func (r *Regression) Add(row, column, solo int, x []float64) {
	r.row, r.column = append(r.row, row), append(r.column, column)
	for k, v := range x {
		r.x[k] = append(r.x[k], v)
	}
	if r.Solos > 0 {
		r.solo = append(r.solo, solo)
	}
}

// EndBlock adds the observations since the last block, in a table of so many rows and
// columns, to a cluster. The clusters are numbers from 0.
func (r *Regression) EndBlock(cluster, rows, columns int) {
	if len(r.row) == 0 {
		return
	}
	r.absorb(rows, columns)
	if cluster >= len(r.byCluster) {
		r.byCluster = append(r.byCluster, make([][]float64, cluster+1-len(r.byCluster))...)
	}
	if r.byCluster[cluster] == nil {
		r.byCluster[cluster] = make([]float64, r.first(r.Responses))
		r.clusters = append(r.clusters, r.byCluster[cluster])
	}
	r.addProducts(r.byCluster[cluster])
	r.row, r.column, r.solo = r.row[:0], r.column[:0], r.solo[:0]
	for k := range r.x {
		r.x[k] = r.x[k][:0]
	}
}

// explained is the share of its square that rounding leaves of a column that
// consists of absorbed effects.
const explained = 1e-18

// absorb subtracts from each regressor and response what the dummies explain, and leaves
// zeros of one that they explain but for rounding.
func (r *Regression) absorb(rows, columns int) {
	r.squares = r.squares[:0]
	for _, x := range r.x {
		r.squares = append(r.squares, Dot(x, x))
	}
	switch {
	case r.Rows && r.Columns:
		r.centreBoth(rows, columns)
	case r.Columns:
		r.centre(r.column, columns)
	default:
		r.centre(r.row, rows)
	}
	for k, x := range r.x {
		if Dot(x, x) <= explained*r.squares[k] {
			clear(x)
		}
	}
}

// centreBoth subtracts what the dummies of both rows and columns explain. The columns'
// dummies are orthogonal, so they leave deviations from means. What the rows' dummies
// explain beside them follows from the normal equations, whose matrix is the Laplacian
// of the graph of rows that share columns; it has one dependent row for each connected
// part.
func (r *Regression) centreBoth(m, columns int) {
	r.laplacian = Zeros(r.laplacian, m*m)
	counts := r.count(r.column, columns)
	for k, i := range r.row {
		r.laplacian[i*m+i]++
		for q, other := range r.row {
			if r.column[q] == r.column[k] {
				r.laplacian[i*m+other] -= 1 / counts[r.column[k]]
			}
		}
	}
	Factor(r.laplacian, m, nil)
	// What is left of one observation is 1 less its leverage.
	r.left = Zeros(r.left, len(r.solo))
	for k := range r.solo {
		r.effects = Zeros(r.effects, m)
		r.effects[r.row[k]] = 1
		share := 1 / counts[r.column[k]]
		for q, other := range r.row {
			if r.column[q] == r.column[k] {
				r.effects[other] -= share
			}
		}
		forward(r.laplacian, m, r.effects)
		r.left[k] = 1 - share - Dot(r.effects, r.effects)
	}
	r.centre(r.column, columns)
	for _, x := range r.x {
		if zero(x) {
			continue
		}
		r.effects = Zeros(r.effects, m)
		for k, i := range r.row {
			r.effects[i] += x[k]
		}
		Solve(r.laplacian, m, r.effects)
		r.means = Zeros(r.means, columns)
		for k, i := range r.row {
			r.means[r.column[k]] += r.effects[i] / counts[r.column[k]]
		}
		for k, i := range r.row {
			x[k] -= r.effects[i] - r.means[r.column[k]]
		}
	}
}

// centre subtracts the mean of each group.
func (r *Regression) centre(group []int, groups int) {
	counts := r.count(group, groups)
	for _, x := range r.x {
		if zero(x) {
			continue
		}
		r.means = Zeros(r.means, groups)
		for k, g := range group {
			r.means[g] += x[k] / counts[g]
		}
		for k, g := range group {
			x[k] -= r.means[g]
		}
	}
}

// count returns how many observations each group has.
func (r *Regression) count(group []int, groups int) []float64 {
	r.counts = Zeros(r.counts, groups)
	for _, g := range group {
		r.counts[g]++
	}
	return r.counts
}

// The sufficient statistics of a cluster are one list: the lower triangle of A over the
// regressors, then for each solo its products with the regressors and with itself, then
// for each response its products with the regressors and with the solos.

// first returns where the products of a response begin.
func (r *Regression) first(response int) int {
	n := r.Regressors
	return n*(n+1)/2 + r.Solos*(n+1) + response*(n+r.Solos)
}

// addProducts adds the products of the block to the statistics of its cluster.
func (r *Regression) addProducts(to []float64) {
	n := r.Regressors
	at := 0
	for i := range n {
		for j := range i + 1 {
			to[at] += Dot(r.x[i], r.x[j])
			at++
		}
	}
	solos, responses := to[at:], to[r.first(0):]
	for q, y := range r.x[n:] {
		for i := range n {
			responses[q*(n+r.Solos)+i] += Dot(r.x[i], y)
		}
	}
	// A solo is 1 in one observation, so its products are what is left there.
	for k, solo := range r.solo {
		if solo < 0 || r.left[k] <= dependent {
			continue
		}
		at := solos[solo*(n+1):]
		for j := range n {
			at[j] += r.x[j][k]
		}
		at[n] += r.left[k]
		for q, y := range r.x[n:] {
			responses[q*(n+r.Solos)+n+solo] += y[k]
		}
	}
}

// equations sets the lower triangle of A and b for a response, from the statistics of a
// cluster, with the regressors and, unless it is negative, a solo.
func (r *Regression) equations(from []float64, response, solo int, a, b []float64) {
	m, n := r.Regressors, len(b)
	k := 0
	for i := range m {
		k += copy(a[i*n:], from[k:k+i+1])
	}
	at := from[r.first(response):]
	copy(b, at[:m])
	if solo >= 0 {
		copy(a[m*n:], from[k+solo*(m+1):][:m+1])
		b[m] = at[m+solo]
	}
}

// Fit is the least-squares fit of a regression to its first response, its covariances
// by leaving out one cluster at a time.
type Fit struct {
	N        int // coefficients
	Clusters int
	Beta     []float64
	Others   [][]float64 // the coefficients for the further responses
	// CV3 and CR1 are covariances of the coefficients, N x N. With G clusters, CV3 is
	// (G-1)/G sum (beta(-s) - beta)(beta(-s) - beta)' (MacKinnon, Nielsen and Webb 2023);
	// CR1 is the usual clustered one.
	CV3, CR1 []float64
	// Combinations of coefficients that do not change the fit, as a sum of vv': of
	// all clusters, and of those that are left when one is left out.
	unknown, fragile []float64

	of     *Regression
	solo   int
	factor []float64 // of A
}

// Fit fits the regressors and, unless solo is negative, that solo as the last
// coefficient.
func (r *Regression) Fit(solo int) *Fit {
	n := r.Regressors
	if solo >= 0 {
		n++
	}
	if r.total == nil {
		r.total = make([]float64, r.first(r.Responses))
		for _, c := range r.clusters {
			add(r.total, c)
		}
	}
	square := func() []float64 { return make([]float64, n*n) }
	f := &Fit{
		N: n, Clusters: len(r.clusters), Beta: make([]float64, n), CV3: square(), CR1: square(),
		unknown: square(), fragile: square(), of: r, solo: solo, factor: square(),
	}
	a, part, meat := f.factor, square(), square()
	scale, b, u := make([]float64, n), make([]float64, n), make([]float64, n)
	for k := 1; k < r.Responses; k++ {
		f.Others = append(f.Others, make([]float64, n))
		r.equations(r.total, k, solo, a, f.Others[k-1])
	}
	r.equations(r.total, 0, solo, a, f.Beta)
	for i := range n {
		scale[i] = a[i*n+i]
	}
	total, score := slices.Clone(a), slices.Clone(f.Beta)
	Factor(a, n, scale)
	addNull(f.unknown, a, n)
	Solve(a, n, f.Beta)
	for _, beta := range f.Others {
		Solve(a, n, beta)
	}
	for _, c := range r.clusters {
		r.equations(c, 0, solo, part, b)
		for i := range n {
			u[i] = b[i]
			for j := range n {
				u[i] -= part[max(i, j)*n+min(i, j)] * f.Beta[j]
			}
			b[i] = score[i] - b[i]
		}
		AddOuter(meat, u)
		for k, v := range part {
			part[k] = total[k] - v
		}
		Factor(part, n, scale)
		addNull(f.fragile, part, n)
		Solve(part, n, b)
		for i := range n {
			b[i] -= f.Beta[i]
		}
		AddOuter(f.CV3, b)
	}
	g := float64(f.Clusters)
	for k := range f.CV3 {
		f.CV3[k] *= (g - 1) / g
	}
	f.sandwich(a, meat, g/(g-1))
	return f
}

// sandwich sets CR1 = factor A^-1 meat A^-1, from the factored A.
func (f *Fit) sandwich(a, meat []float64, factor float64) {
	n := f.N
	for range 2 { // A^-1 (A^-1 meat)', which is A^-1 meat A^-1
		for i := range n {
			Solve(a, n, meat[i*n:(i+1)*n])
		}
		for i := range n {
			for j := range i {
				meat[i*n+j], meat[j*n+i] = meat[j*n+i], meat[i*n+j]
			}
		}
	}
	for k, v := range meat {
		f.CR1[k] = factor * v
	}
}

// Estimable reports whether the contrast c of the coefficients is determined by
// the observations, and whether it still is whichever cluster is left out.
func (f *Fit) Estimable(c []float64) (estimable, robust bool) {
	const slack = 1e-8 // rounding, of the square of a coefficient of about 1
	return Quadratic(f.unknown, c) < slack, Quadratic(f.fragile, c) < slack
}

// fewest is the share of the informative clusters below which their effective number takes
// their place.
const fewest = 1. / 5

// Informative returns from how many clusters a contrast that is estimable is told. The part
// of a cluster is h_s = c'A^-1 A_s A^-1 c: what it adds to the variance of the contrast where
// all observations vary alike. Clusters without a part do not count: absorbing effects leaves
// none of their observations, or none that the contrast compares. Where the parts are so
// unequal that the effective number of clusters, (sum h)^2 / sum h^2 (Carter, Schnepel and
// Steigerwald 2017), is less than a fifth of those that are left, that number counts. Above,
// CV3 makes up for it: it errs to the safe side where clusters are unequal.
func (f *Fit) Informative(c []float64) int {
	n := f.N
	w := slices.Clone(c)
	Solve(f.factor, n, w)
	a, b := make([]float64, n*n), make([]float64, n)
	whole, count, sum, squares := Dot(c, w), 0., 0., 0.
	for _, cluster := range f.of.clusters {
		f.of.equations(cluster, 0, f.solo, a, b)
		part := 0.
		for i, x := range w {
			part += x * (2*Dot(a[i*n:i*n+i], w[:i]) + x*a[i*n+i])
		}
		if part > dependent*whole {
			count++
		}
		sum, squares = sum+part, squares+part*part
	}
	if effective := sum * sum / squares; effective < fewest*count {
		return int(math.Round(effective))
	}
	return int(count)
}

// LeastInformative returns the least of [Fit.Informative] over the coefficients.
func (f *Fit) LeastInformative() int {
	least := f.Clusters
	for k := range f.N {
		c := make([]float64, f.N)
		c[k] = 1
		least = min(least, f.Informative(c))
	}
	return least
}

// Wald returns the F statistic of the hypothesis that all coefficients are zero: (G-q)/(q(G-1))
// beta' V^-1 beta, with its degrees of freedom q and G-q and its p. G is the least number of
// informative clusters, which is above q.
func (f *Fit) Wald() (statistic float64, df [2]float64, p float64) {
	v, z := slices.Clone(f.CV3), slices.Clone(f.Beta)
	Factor(v, f.N, nil)
	Solve(v, f.N, z)
	g, q := float64(f.LeastInformative()), float64(f.N)
	statistic = (g - q) / (q * (g - 1)) * Dot(f.Beta, z)
	return statistic, [2]float64{q, g - q}, FisherP(statistic, q, g-q)
}

// Effect is an estimate with its standard errors and degrees of freedom.
type Effect struct {
	Estimate float64
	SE       float64 // by CV3
	CR1      float64 // the usual clustered one; 0 where there is none
	DF       float64
}

// Effect returns a contrast of the coefficients, from that many clusters.
func (f *Fit) Effect(c []float64, clusters int) Effect {
	return Effect{
		Estimate: Dot(c, f.Beta), SE: math.Sqrt(Quadratic(f.CV3, c)), CR1: math.Sqrt(Quadratic(f.CR1, c)), DF: float64(clusters - 1),
	}
}

// HalfWidth returns the half-width of the two-sided interval of that confidence.
func (e Effect) HalfWidth(confidence float64) float64 {
	return e.SE * StudentQuantile(0.5+confidence/2, e.DF)
}

// Trend returns the least-squares slope of y over t, from three points in two
// clusters or more, and its standard error by leaving out one cluster at a time
// (CV3, see [Fit]). The error is 0 where the points scatter about the line by
// rounding alone. It reports false where t is constant, also when a cluster is left out.
func Trend(t, y []float64, cluster []int) (slope, se float64, ok bool) {
	centre, level := Mean(t), Mean(y)
	// Number of points, and sums of t, y, t^2 and ty, as deviations.
	var all [5]float64
	parts := map[int]*[5]float64{}
	var order []*[5]float64 // the sum of squares must not depend on the order of a map
	for k := range t {
		dt, dy := t[k]-centre, y[k]-level
		part := parts[cluster[k]]
		if part == nil {
			part = new([5]float64)
			parts[cluster[k]] = part
			order = append(order, part)
		}
		for i, v := range [...]float64{1, dt, dy, dt * dt, dt * dy} {
			all[i] += v
			part[i] += v
		}
	}
	slopeOf := func(sums [5]float64) (float64, bool) {
		n, spread := sums[0], sums[3]-sums[1]*sums[1]/sums[0]
		return (sums[4] - sums[1]*sums[2]/n) / spread, n > 1 && spread > dependent*all[3]
	}
	if len(t) < 3 || Constant(t) || len(order) < 2 {
		return 0, 0, false
	}
	slope, _ = slopeOf(all)
	squares, total := 0.0, 0.0
	for k := range t {
		e := y[k] - level - slope*(t[k]-centre)
		squares += e * e
		total += y[k] * y[k]
	}
	if squares <= 1e-24*total {
		return slope, 0, true
	}
	variance := 0.0
	for _, part := range order {
		left := all
		for i, v := range part {
			left[i] -= v
		}
		without, ok := slopeOf(left)
		if !ok {
			return slope, 0, false
		}
		variance += (without - slope) * (without - slope)
	}
	g := float64(len(order))
	return slope, math.Sqrt((g - 1) / g * variance), true
}
