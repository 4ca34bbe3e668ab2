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
	Further    int  // how many of these, the last ones, enter only where [Regression.Whole] is fitted
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
	byCluster []*sums // nil for a cluster without observations
	clusters  []*sums // those with observations, in the order in which they occur; of the first response only
	total     *sums   // over all clusters

	// The observations of the block.
	row, column []int
	solo        []int       // the solo that is 1 at each observation, -1 for none; empty without solos
	left        []float64   // of each observation: what absorbing leaves of 1 there and 0 elsewhere
	x           [][]float64 // by regressor, then by response, of each observation
	block       sums        // of these

	squares, means, counts, effects, laplacian, products []float64 // buffers
}

// sums are sufficient statistics: sums of products over observations.
type sums struct {
	responses int
	a         []float64  // of the regressors with each other: the lower triangle, row by row
	b         []float64  // for each response, of the regressors with it
	solos     []soloSums // those that occur, ascending
}

// soloSums are the products of a solo with each regressor, with itself, and with each response.
type soloSums struct {
	solo     int
	products []float64
}

func newSums(regressors, responses int) *sums {
	return &sums{responses: responses, a: make([]float64, regressors*(regressors+1)/2), b: make([]float64, regressors*responses)}
}

// add adds the sums from as many responses or more.
func (s *sums) add(from *sums) {
	add(s.a, from.a)
	add(s.b, from.b[:len(s.b)])
	var room []float64 // for the products of solos that are new
	for k, f := range from.solos {
		products := f.products[:len(f.products)-from.responses+s.responses]
		at, found := slices.BinarySearchFunc(s.solos, f.solo, func(e soloSums, solo int) int { return e.solo - solo })
		if found {
			add(s.solos[at].products, products)
			continue
		}
		if room == nil {
			left := len(from.solos) - k
			room, s.solos = make([]float64, left*len(products)), slices.Grow(s.solos, left)
		}
		n := copy(room, products)
		s.solos = slices.Insert(s.solos, at, soloSums{f.solo, room[:n:n]})
		room = room[n:]
	}
}

// matrix sets the lower triangle of A.
func (s *sums) matrix(a []float64, n int) {
	k := 0
	for i := range n {
		k += copy(a[i*n:], s.a[k:k+i+1])
	}
}

// NewRegression returns a regression without observations.
func NewRegression(d Design) *Regression {
	return &Regression{Design: d, x: make([][]float64, d.Regressors+d.Responses), total: newSums(d.Regressors, d.Responses)}
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
	r.multiply()
	if cluster >= len(r.byCluster) {
		r.byCluster = append(r.byCluster, make([]*sums, cluster+1-len(r.byCluster))...)
	}
	if r.byCluster[cluster] == nil {
		r.byCluster[cluster] = newSums(r.Regressors, 1)
		r.clusters = append(r.clusters, r.byCluster[cluster])
	}
	r.byCluster[cluster].add(&r.block)
	r.total.add(&r.block)
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

// multiply sets the sums of the block.
func (r *Regression) multiply() {
	n, to := r.Regressors, &r.block
	to.responses, to.a, to.b, to.solos = r.Responses, to.a[:0], to.b[:0], to.solos[:0]
	for i, x := range r.x[:n] {
		for _, other := range r.x[:i+1] {
			to.a = append(to.a, Dot(x, other))
		}
	}
	for _, y := range r.x[n:] {
		for _, x := range r.x[:n] {
			to.b = append(to.b, Dot(x, y))
		}
	}
	// A solo is 1 in one observation, so its products are what is left there.
	r.products = slices.Grow(r.products[:0], len(r.solo)*(len(r.x)+1))
	for k, solo := range r.solo {
		if solo < 0 || r.left[k] <= dependent {
			continue
		}
		from := len(r.products)
		for _, x := range r.x[:n] {
			r.products = append(r.products, x[k])
		}
		r.products = append(r.products, r.left[k])
		for _, y := range r.x[n:] {
			r.products = append(r.products, y[k])
		}
		to.solos = append(to.solos, soloSums{solo, r.products[from:]})
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
	factor []float64 // of A
}

// Whole returns the regression with its further regressors.
func (r *Regression) Whole() *Regression {
	whole := *r
	whole.Further = 0
	return &whole
}

// Fit fits the regressors, without any solo.
func (r *Regression) Fit() *Fit {
	n := r.n()
	square := func() []float64 { return make([]float64, n*n) }
	f := &Fit{
		N: n, Clusters: len(r.clusters), CV3: square(), CR1: square(), unknown: square(), fragile: square(), of: r, factor: square(),
	}
	a, part, meat := f.factor, square(), square()
	b, u := make([]float64, n), make([]float64, n)
	scale := r.factor(a)
	addNull(f.unknown, a, n)
	for k := range r.Responses {
		beta := slices.Clone(r.against(k))
		Solve(a, n, beta)
		f.Others = append(f.Others, beta)
	}
	f.Beta, f.Others = f.Others[0], f.Others[1:]
	for _, c := range r.clusters {
		c.matrix(part, n)
		for i := range n {
			u[i] = c.b[i]
			for j := range n {
				u[i] -= part[max(i, j)*n+min(i, j)] * f.Beta[j]
			}
		}
		AddOuter(meat, u)
		r.without(c, scale, part, b)
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

// n returns how many regressors enter.
func (r *Regression) n() int { return r.Regressors - r.Further }

// against returns the products of the regressors that enter with a response.
func (r *Regression) against(response int) []float64 {
	return r.total.b[response*r.Regressors:][:r.n()]
}

// factor factors A, and returns its diagonal.
func (r *Regression) factor(a []float64) (scale []float64) {
	n := r.n()
	r.total.matrix(a, n)
	for i := range n {
		scale = append(scale, a[i*n+i])
	}
	Factor(a, n, scale)
	return scale
}

// without factors A and sets b for the first response without a cluster.
func (r *Regression) without(c *sums, scale, a, b []float64) {
	n, k := r.n(), 0
	for i := range n {
		for j := range i + 1 {
			a[i*n+j] = r.total.a[k] - c.a[k]
			k++
		}
		b[i] = r.total.b[i] - c.b[i]
	}
	Factor(a, n, scale)
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

// told counts the clusters that a contrast is told from.
type told struct{ count, sum, squares float64 }

// add adds a cluster with its part of the variance of the contrast, which is whole.
func (t *told) add(part, whole float64) {
	if part > dependent*whole {
		t.count++
	}
	t.sum, t.squares = t.sum+part, t.squares+part*part
}

func (t *told) clusters() int {
	if effective := t.sum * t.sum / t.squares; effective < fewest*t.count {
		return int(math.Round(effective))
	}
	return int(t.count)
}

// Informative returns from how many clusters a contrast that is estimable is told. The part
// of a cluster is h_s = c'A^-1 A_s A^-1 c: what it adds to the variance of the contrast where
// all observations vary alike. Clusters without a part do not count: absorbing effects leaves
// none of their observations, or none that the contrast compares. Where the parts are so
// unequal that the effective number of clusters, (sum h)^2 / sum h^2 (Carter, Schnepel and
// Steigerwald 2017), is less than a fifth of those that are left, that number counts. Above,
// CV3 makes up for it: it errs to the safe side where clusters are unequal.
func (f *Fit) Informative(c []float64) int {
	w := slices.Clone(c)
	Solve(f.factor, f.N, w)
	whole, t := Dot(c, w), told{}
	for _, cluster := range f.of.clusters {
		t.add(cluster.bilinear(w, w), whole)
	}
	return t.clusters()
}

// bilinear returns x'Ay.
func (s *sums) bilinear(x, y []float64) float64 {
	sum, k := 0., 0
	for i := range x {
		row := s.a[k : k+i+1]
		k += i + 1
		if row[i] != 0 { // a regressor that is zero throughout has no products
			sum += x[i]*Dot(row, y) + y[i]*Dot(row[:i], x)
		}
	}
	return sum
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

// Contrast is what a fit tells of a combination of its coefficients.
type Contrast struct {
	Effect                // on one degree of freedom less than informative clusters
	Estimable   bool      // the observations determine it; where they do not, there is nothing more
	Robust      bool      // they still do whichever cluster is left out
	Informative int       // see [Fit.Informative]
	Others      []float64 // the same for the further responses
}

// Contrast returns the contrast c of the coefficients.
func (f *Fit) Contrast(c []float64) Contrast {
	var k Contrast
	if k.Estimable, k.Robust = f.Estimable(c); !k.Estimable {
		return Contrast{}
	}
	k.Informative = f.Informative(c)
	k.Effect = f.Effect(c, k.Informative)
	for _, beta := range f.Others {
		k.Others = append(k.Others, Dot(c, beta))
	}
	return k
}

// soloFit is the fit of a solo beside the regressors. Its coefficient is told by what they do not
// explain of it: the solo less a combination of theirs (Frisch and Waugh 1933; Lovell 1963).
type soloFit struct {
	solo        int
	of          soloProducts
	combination []float64
	square      float64   // of the solo less the combination
	beta        []float64 // of the regressors beside the solo
	told        told
	moved       float64 // sum over clusters: what leaving one out changes in the coefficient, squared
	scores      float64 // sum over clusters: its product of the solo less the combination with the residuals, squared
	*Contrast
}

// soloProducts are the products of a solo with the regressors that enter, itself and the first response.
type soloProducts struct {
	regressors     []float64
	self, response float64
}

func (r *Regression) soloProducts(of []float64) soloProducts {
	return soloProducts{of[:r.n()], of[r.Regressors], of[r.Regressors+1]}
}

// FitSolos fits each solo beside the regressors, without the other solos, and returns its coefficient.
func (r *Regression) FitSolos() []Contrast {
	n, all := r.n(), make([]Contrast, r.Solos)
	a, b, z := make([]float64, n*n), slices.Clone(r.against(0)), make([]float64, n)
	scale := r.factor(a)
	Solve(a, n, b)
	var fits []soloFit
	for _, s := range r.total.solos {
		of := r.soloProducts(s.products)
		f := soloFit{solo: s.solo, of: of, Contrast: &all[s.solo], combination: slices.Clone(of.regressors), beta: slices.Clone(b)}
		forward(a, n, f.combination)
		f.square = of.self - Dot(f.combination, f.combination)
		if f.square <= dependent*of.self {
			continue
		}
		back(a, n, n, f.combination)
		for q := range r.Responses {
			f.Others = append(f.Others, (s.products[r.Regressors+1+q]-Dot(f.combination, r.against(q)))/f.square)
		}
		f.Estimate, f.Others = f.Others[0], f.Others[1:]
		f.Estimable, f.Robust = true, true
		for i, x := range f.combination {
			f.beta[i] -= x * f.Estimate
		}
		fits = append(fits, f)
	}
	none := soloProducts{regressors: make([]float64, n)}
	for _, c := range r.clusters {
		r.without(c, scale, a, b)
		forward(a, n, b)
		solos := c.solos
		for k := range fits {
			f, own := &fits[k], none
			for len(solos) > 0 && solos[0].solo <= f.solo {
				if solos[0].solo == f.solo {
					own = r.soloProducts(solos[0].products)
				}
				solos = solos[1:]
			}
			f.leaveOut(c, own, a, b, z)
		}
	}
	g := float64(len(r.clusters))
	for _, f := range fits {
		f.SE, f.CR1 = math.Sqrt((g-1)/g*f.moved), math.Sqrt(g/(g-1)*f.scores)/f.square
		f.Informative = f.told.clusters()
		f.DF = float64(f.Informative - 1)
	}
	return all
}

// leaveOut adds what a cluster tells of the coefficient, and what leaving it out changes. Own are the products of the solo
// in the cluster; a is the factor of the regressors without the cluster, and b what forward makes of their products with
// the response. Z is a buffer.
func (f *soloFit) leaveOut(c *sums, own soloProducts, a, b, z []float64) {
	n := len(z)
	for i := range z {
		z[i] = f.of.regressors[i] - own.regressors[i]
	}
	forward(a, n, z)
	if left := f.of.self - own.self - Dot(z, z); left > dependent*f.of.self {
		d := (f.of.response-own.response-Dot(z, b))/left - f.Estimate
		f.moved += d * d
	} else {
		f.Robust = false
	}
	score := own.response - own.self*f.Estimate - Dot(own.regressors, f.beta) -
		(Dot(f.combination, c.b) - Dot(f.combination, own.regressors)*f.Estimate - c.bilinear(f.combination, f.beta))
	f.scores += score * score
	f.told.add(own.self-2*Dot(f.combination, own.regressors)+c.bilinear(f.combination, f.combination), f.square)
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
