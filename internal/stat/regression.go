package stat

import (
	"math"
	"slices"
)

// Design describes what a [Regression] fits. The observations come in blocks. Each observation is in a cell of the
// table of its block, in a row and a column.
type Design struct {
	// If Columns is true, the regression absorbs an effect of each column of each table. Otherwise it absorbs an
	// effect of each row.
	Columns    bool
	Regressors int
}

// Regression is a linear regression with fixed effects that are absorbed inside each block. Regressors and response
// enter as deviations from what the dummies of these effects explain. The regression keeps the sufficient
// statistics of each cluster, A_s = Xd'Xd and b_s = Xd'yd, where Xd and yd are these deviations. The statistics add
// up over the blocks of a cluster.
type Regression struct {
	Design
	byCluster []*sums // nil for a cluster without observations
	clusters  []*sums // the clusters with observations, in the order in which they occur
	total     *sums   // over all clusters

	// The observations of the current block.
	row, column []int
	x           [][]float64 // the regressors, then the response, each over the observations
	block       sums        // the sums over these observations

	squares, means, counts []float64 // buffers
}

// sums are sufficient statistics: sums of products over observations.
type sums struct {
	// a holds the products of the regressors with each other. It is the lower triangle, row by row.
	a []float64
	b []float64 // the products of each regressor with the response
}

func newSums(regressors int) *sums {
	return &sums{a: make([]float64, regressors*(regressors+1)/2), b: make([]float64, regressors)}
}

func (s *sums) add(from *sums) {
	add(s.a, from.a)
	add(s.b, from.b)
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
	return &Regression{Design: d, x: make([][]float64, d.Regressors+1), total: newSums(d.Regressors)}
}

// Add adds an observation to the block: its row and column in the table, and in x its regressors and then its
// response.
func (r *Regression) Add(row, column int, x []float64) {
	r.row = append(r.row, row)
	r.column = append(r.column, column)
	for k, v := range x {
		r.x[k] = append(r.x[k], v)
	}
}

// EndBlock adds the observations since the last block to a cluster. The table of these observations has the given
// numbers of rows and columns. Clusters are numbered from 0.
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
		r.byCluster[cluster] = newSums(r.Regressors)
		r.clusters = append(r.clusters, r.byCluster[cluster])
	}
	r.byCluster[cluster].add(&r.block)
	r.total.add(&r.block)
	r.row = r.row[:0]
	r.column = r.column[:0]
	for k := range r.x {
		r.x[k] = r.x[k][:0]
	}
}

// explained is a limit for rounding errors in a column that consists only of absorbed effects. If the rest of a
// column has a sum of squares of at most this share of the original sum, the rest is rounding error.
const explained = 1e-18

// absorb subtracts from each regressor and the response what the dummies explain. If only rounding errors remain,
// it sets zeros.
func (r *Regression) absorb(rows, columns int) {
	r.squares = r.squares[:0]
	for _, x := range r.x {
		r.squares = append(r.squares, Dot(x, x))
	}
	if r.Columns {
		r.centre(r.column, columns)
	} else {
		r.centre(r.row, rows)
	}
	for k, x := range r.x {
		if Dot(x, x) <= explained*r.squares[k] {
			clear(x)
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
	n := r.Regressors
	to := &r.block
	to.a = to.a[:0]
	to.b = to.b[:0]
	for i, x := range r.x[:n] {
		for _, other := range r.x[:i+1] {
			to.a = append(to.a, Dot(x, other))
		}
		to.b = append(to.b, Dot(x, r.x[n]))
	}
}

// Fit is the least-squares fit of a regression. Its covariances come from leaving out one cluster at a time.
type Fit struct {
	N        int // the number of coefficients
	Clusters int
	Beta     []float64
	// CV3 and CR1 are covariances of the coefficients, N x N. With G clusters, CV3 is (G-1)/G sum (beta(-s) -
	// beta)(beta(-s) - beta)' (MacKinnon, Nielsen and Webb 2023). CR1 is the usual covariance for clusters.
	CV3, CR1 []float64
	// unknown and fragile are sums of vv'. Each v is a combination of coefficients that does not change the fit.
	// For unknown this is the fit to all clusters, and for fragile the fit with some cluster left out.
	unknown, fragile []float64

	of     *Regression
	factor []float64 // the factor of A
}

// Fit fits the regressors.
func (r *Regression) Fit() *Fit {
	n := r.Regressors
	square := func() []float64 { return make([]float64, n*n) }
	f := &Fit{
		N:        n,
		Clusters: len(r.clusters),
		CV3:      square(),
		CR1:      square(),
		unknown:  square(),
		fragile:  square(),
		of:       r,
		factor:   square(),
	}
	a := f.factor
	part := square()
	meat := square()
	b := make([]float64, n)
	u := make([]float64, n)
	scale := r.factor(a)
	addNull(f.unknown, a, n)
	f.Beta = slices.Clone(r.total.b)
	Solve(a, n, f.Beta)
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

// factor factors A, and returns the diagonal of A.
func (r *Regression) factor(a []float64) (scale []float64) {
	n := r.Regressors
	r.total.matrix(a, n)
	for i := range n {
		scale = append(scale, a[i*n+i])
	}
	Factor(a, n, scale)
	return scale
}

// without leaves out the cluster c: it sets the arguments a and b to the sums over all other clusters. It then factors
// a.
func (r *Regression) without(c *sums, scale, a, b []float64) {
	n := r.Regressors
	k := 0
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

// Estimable reports whether the observations determine the contrast c of the coefficients. robust says whether they
// still determine the contrast if any one cluster is left out.
func (f *Fit) Estimable(c []float64) (estimable, robust bool) {
	const slack = 1e-8 // for rounding errors, as coefficients are about 1
	return Quadratic(f.unknown, c) < slack, Quadratic(f.fragile, c) < slack
}

// fewest is a share of the informative clusters. If the effective number of clusters is below that share, the
// effective number counts.
const fewest = 1. / 5

// informative counts the clusters that are informative about a contrast.
type informative struct{ count, sum, squares float64 }

// add adds a cluster. part is its part of the contrast's variance, and whole the whole variance.
func (t *informative) add(part, whole float64) {
	if part > dependent*whole {
		t.count++
	}
	t.sum += part
	t.squares += part * part
}

func (t *informative) clusters() int {
	if effective := t.sum * t.sum / t.squares; effective < fewest*t.count {
		return int(math.Round(effective))
	}
	return int(t.count)
}

// Informative returns how many clusters are informative about an estimable contrast. The part of a cluster is h_s =
// c'A^-1 A_s A^-1 c. The part is what the cluster adds to the variance of the contrast if all observations vary
// equally. A cluster without a part does not count. It has no part if absorbing effects removes all of its
// observations, or all that the contrast compares. The effective number of clusters is (sum h)^2 / sum h^2 (Carter,
// Schnepel and Steigerwald 2017). If the effective number is less than a fifth of the clusters with a part,
// Informative returns the effective number. Otherwise it returns the number of clusters with a part. That is
// sufficient, because CV3 errs on the safe side if clusters are unequal.
func (f *Fit) Informative(c []float64) int {
	w := slices.Clone(c)
	Solve(f.factor, f.N, w)
	whole := Dot(c, w)
	t := informative{}
	for _, cluster := range f.of.clusters {
		t.add(cluster.quadratic(w), whole)
	}
	return t.clusters()
}

// quadratic returns x'Ax.
func (s *sums) quadratic(x []float64) float64 {
	sum := 0.
	k := 0
	for i := range x {
		row := s.a[k : k+i+1]
		k += i + 1
		sum += x[i] * (2*Dot(row[:i], x) + row[i]*x[i])
	}
	return sum
}

// Effect is an estimate with its standard errors and degrees of freedom.
type Effect struct {
	Estimate float64
	SE       float64 // by CV3
	CR1      float64 // the usual clustered error, or 0 if there is none
	DF       float64
}

// Effect returns a contrast of the coefficients. Its degrees of freedom are clusters - 1.
func (f *Fit) Effect(c []float64, clusters int) Effect {
	return Effect{
		Estimate: Dot(c, f.Beta),
		SE:       math.Sqrt(Quadratic(f.CV3, c)),
		CR1:      math.Sqrt(Quadratic(f.CR1, c)),
		DF:       float64(clusters - 1),
	}
}

// Contrast is the estimate of a combination of a fit's coefficients.
type Contrast struct {
	Effect // on one degree of freedom less than informative clusters
	// Estimable says that the observations determine the combination. If it is false, the other fields are zero.
	Estimable   bool
	Robust      bool // the observations still determine it if any one cluster is left out
	Informative int  // see [Fit.Informative]
}

// Contrast returns the estimate of the contrast c of the coefficients.
func (f *Fit) Contrast(c []float64) Contrast {
	var k Contrast
	if k.Estimable, k.Robust = f.Estimable(c); !k.Estimable {
		return Contrast{}
	}
	k.Informative = f.Informative(c)
	k.Effect = f.Effect(c, k.Informative)
	return k
}

// HalfWidth returns half the width of the two-sided interval with that confidence.
func (e Effect) HalfWidth(confidence float64) float64 {
	return e.SE * StudentQuantile(0.5+confidence/2, e.DF)
}

// Trend returns the least-squares slope of y over t, and its standard error by leaving out one cluster at a time
// (CV3, see [Fit]). It needs at least three points in at least two clusters. The error is 0 if the points lie on a
// line except for rounding. Trend returns false if t is constant, or if leaving out some cluster makes it constant.
func Trend(t, y []float64, cluster []int) (slope, se float64, ok bool) {
	centre := Mean(t)
	level := Mean(y)
	// all and parts hold the number of points, and the sums of t, y, t^2 and ty, where t and y are deviations from
	// their means.
	var all [5]float64
	parts := map[int]*[5]float64{}
	var order []*[5]float64 // in a fixed order, because sums of floats depend on the order
	for k := range t {
		dt := t[k] - centre
		dy := y[k] - level
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
		n := sums[0]
		spread := sums[3] - sums[1]*sums[1]/sums[0]
		return (sums[4] - sums[1]*sums[2]/n) / spread, n > 1 && spread > dependent*all[3]
	}
	if len(t) < 3 || Constant(t) || len(order) < 2 {
		return 0, 0, false
	}
	slope, _ = slopeOf(all)
	squares := 0.0
	total := 0.0
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
