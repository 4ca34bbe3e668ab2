package bias

import (
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

const (
	// leastDiscrimination is the share of the mean discrimination below which the
	// scores of a reviewer hardly follow the answers.
	leastDiscrimination = 0.4
	// blocks is how many parts of the sessions are left out in turn for the error of
	// the discriminations.
	blocks = 20
	// discriminationStep is the change of a discrimination for numeric derivatives.
	discriminationStep = 0.1
)

const (
	hardlyFollows = "its scores hardly follow the answers"
	noneFollow    = "no reviewer's scores follow the answers closely enough"
	scaleUnknown  = "how widely each reviewer spreads its scores cannot be told from favour: " +
		"it takes three reviewers who score two or more of the same answers, and few of these with their highest or lowest score"
	atEnd = "too many of these scores are the highest or the lowest that the reviewer gives, and such scores do not say how good the answers are"
)

// discrimination is how much of a difference in worth between two answers each
// reviewer's scores show. A fit that assumes that all reviewers use the scale alike
// finds favours where reviewers merely spread their scores differently.
type discrimination struct {
	w    *window
	ends *ends
	// b is the discrimination by member: 1 is the mean of those that count. It is NaN
	// where it cannot be estimated.
	b []float64
	// reason says why a member is not among strong.
	reason []string
	// strong are the members whose scores follow the answers, ascending, and place
	// is the index of each member among them, -1 for the others.
	strong []int
	place  []int
	// se is the standard error by member, on df degrees of freedom; covariance that of
	// the discriminations of strong.
	se         []float64
	df         float64
	covariance []float64
	solver     worthSolver
	squares    [][]float64 // see [discrimination.bent]; of the session that was adjusted last
}

// meeting is what two reviewers gave to the answers that both scored.
type meeting struct {
	tally
	weight     [blocks]float64 // answers less one, summed over sessions, by block
	candidates []int           // that both scored, in the order met
	moments    [][blocks]products
}

// products are sums over sessions of two reviewers' scores of one candidate, each
// less the reviewer's mean over what both scored.
type products struct{ n, x, y, xy float64 }

// discriminations estimates the discrimination of each reviewer: one factor behind
// the covariances of their scores, by least squares (minres; Harman and Jones
// 1966).
func (w *window) discriminations() *discrimination {
	n := len(w.names)
	d := &discrimination{
		w: w, ends: w.ends(), b: slices.Repeat([]float64{math.NaN()}, n), se: slices.Repeat([]float64{math.NaN()}, n),
		reason: slices.Repeat([]string{scaleUnknown}, n), place: slices.Repeat([]int{-1}, n),
	}
	meetings := d.meetings()
	links := make([][]int, n)
	for pair, m := range meetings {
		if m.testable() {
			links[pair[0]], links[pair[1]] = append(links[pair[0]], pair[1]), append(links[pair[1]], pair[0])
		}
	}
	leave := min(blocks, w.clusters)
	told := 0 // blocks in which reviewers meet: leaving out the others changes nothing
	for l := range leave {
		if slices.ContainsFunc(slices.Collect(maps.Values(meetings)), func(m *meeting) bool { return m.weight[l] > 0 }) {
			told++
		}
	}
	d.df = float64(max(1, told-1))
	without := make([][]float64, leave) // b by member, without one block
	for l := range without {
		without[l] = make([]float64, n)
	}
	for _, group := range distinguishable(links, slices.Repeat([]bool{true}, n)) {
		c, weight := covariances(meetings, group, -1)
		b := minres(c, weight, nil)
		strong := scale(b, nil)
		for a, member := range group {
			if !strong[a] {
				d.reason[member] = hardlyFollows
			}
		}
		if !slices.Contains(strong, true) {
			continue
		}
		for a, member := range group {
			d.b[member] = b[a]
		}
		for l := range without {
			c, weight := covariances(meetings, group, l)
			again := minres(c, weight, b)
			scale(again, strong)
			for a, member := range group {
				without[l][member] = again[a]
			}
		}
		counts := make([]bool, n)
		for a, member := range group {
			counts[member] = strong[a]
		}
		for _, members := range distinguishable(links, counts) {
			d.strong = append(d.strong, members...)
		}
	}
	slices.Sort(d.strong)
	for k, member := range d.strong {
		d.place[member] = k
	}
	d.setErrors(without)
	return d
}

// setErrors sets the errors of b from what it is without each block.
func (d *discrimination) setErrors(without [][]float64) {
	n := len(d.strong)
	d.covariance = make([]float64, n*n)
	share := d.df / (d.df + 1)
	squares, deviations := make([]float64, len(d.b)), make([]float64, n)
	for _, b := range without {
		for member, v := range b {
			squares[member] += share * (v - d.b[member]) * (v - d.b[member])
		}
		for k, member := range d.strong {
			deviations[k] = b[member] - d.b[member]
		}
		stat.AddOuter(d.covariance, deviations)
	}
	for k := range d.covariance {
		d.covariance[k] *= share
	}
	for member, v := range squares {
		d.se[member] = math.Sqrt(v)
	}
}

// meetings returns what each two reviewers gave to the same answers, by their
// indices, the smaller first, without pairs that an end moves too often. Blocks hold
// whole clusters.
func (d *discrimination) meetings() map[[2]int]*meeting {
	w, all := d.w, map[[2]int]*meeting{}
	var both []int
	for _, k := range w.byCluster() {
		s := &w.sessions[k]
		scored := d.ends.scores(s)
		block := s.cluster * min(blocks, w.clusters) / w.clusters
		for i := range s.reviewers {
			for q := range i {
				both = both[:0]
				x, y := 0., 0.
				for j, candidate := range s.candidates {
					first, second := scored[q][j], scored[i][j]
					moved := d.ends.pull(s.reviewers[q], candidate) | d.ends.pull(s.reviewers[i], candidate)
					if !math.IsNaN(first) && !math.IsNaN(second) && moved == 0 {
						both = append(both, j)
						x, y = x+first, y+second
					}
				}
				if len(both) < 2 {
					continue
				}
				pair := [2]int{s.reviewers[q], s.reviewers[i]}
				m := all[pair]
				if m == nil {
					m = &meeting{}
					all[pair] = m
				}
				m.add(s.cluster, k)
				n := float64(len(both))
				m.weight[block] += n - 1
				for _, j := range both {
					at := slices.Index(m.candidates, s.candidates[j])
					if at < 0 {
						at = len(m.candidates)
						m.candidates, m.moments = append(m.candidates, s.candidates[j]), append(m.moments, [blocks]products{})
					}
					u, v := scored[q][j]-x/n, scored[i][j]-y/n
					to := &m.moments[at][block]
					to.n, to.x, to.y, to.xy = to.n+1, to.x+u, to.y+v, to.xy+u*v
				}
			}
		}
	}
	return all
}

// distinguishable returns the groups of members whose discriminations can be estimated:
// those that count, that links join, and that have a cycle of odd length. Along a chain,
// or a cycle of even length, one half could take any factor and the other its inverse.
func distinguishable(links [][]int, counts []bool) [][]int {
	var groups [][]int
	side := make([]int, len(links)) // 0 for a member not met
	for start := range links {
		if side[start] != 0 || !counts[start] {
			continue
		}
		group, odd := []int{start}, false
		side[start] = 1
		for k := 0; k < len(group); k++ {
			for _, other := range links[group[k]] {
				switch {
				case !counts[other]:
				case side[other] == 0:
					side[other] = -side[group[k]]
					group = append(group, other)
				case side[other] == side[group[k]]:
					odd = true
				}
			}
		}
		if odd {
			slices.Sort(group)
			groups = append(groups, group)
		}
	}
	return groups
}

// covariances returns the covariances of the scores of each two reviewers of a
// group, and their weights, leaving out one block, or none when negative. Each
// candidate is centred over sessions, so that what a reviewer adds to a candidate
// in every session drops out.
func covariances(meetings map[[2]int]*meeting, group []int, leave int) (c, weight [][]float64) {
	c, weight = stat.Matrix(len(group), len(group), 0.), stat.Matrix(len(group), len(group), 0.)
	for a := range group {
		for b := range a {
			m := meetings[[2]int{group[b], group[a]}]
			if m == nil {
				continue
			}
			sum, w := 0., 0.
			for block, v := range m.weight {
				if block != leave {
					w += v
				}
			}
			for _, moments := range m.moments {
				var t products
				for block, p := range moments {
					if block != leave {
						t.n, t.x, t.y, t.xy = t.n+p.n, t.x+p.x, t.y+p.y, t.xy+p.xy
					}
				}
				if t.n > 0 {
					sum += t.xy - t.x*t.y/t.n
				}
			}
			if w > 0 {
				c[a][b], weight[a][b] = sum/w, w
				c[b][a], weight[b][a] = sum/w, w
			}
		}
	}
	return c, weight
}

// minres returns the loadings of one factor, none below 0, that come closest to the
// covariances in weighted least squares, from a first guess or, without one, from
// equal loadings.
func minres(c, weight [][]float64, guess []float64) []float64 {
	const rounds, tolerance = 1000, 1e-9
	b := slices.Clone(guess)
	if b == nil {
		sum, weights := 0., 0.
		for i := range c {
			for k := range i {
				sum, weights = sum+weight[i][k]*c[i][k], weights+weight[i][k]
			}
		}
		b = slices.Repeat([]float64{math.Sqrt(max(0, sum/weights))}, len(c))
	}
	for range rounds {
		change, largest := 0., 0.
		for i := range b {
			above, below := 0., 0.
			for k, v := range b {
				if k != i {
					above += weight[i][k] * c[i][k] * v
					below += weight[i][k] * v * v
				}
			}
			next := 0.
			if below > 0 {
				next = max(0, above/below)
			}
			change, largest = max(change, math.Abs(next-b[i])), max(largest, next)
			b[i] = next
		}
		if change <= tolerance*largest {
			break
		}
	}
	return b
}

// scale divides the loadings by the mean of those that count, and returns which
// these are: without a choice, those that are [leastDiscrimination] of their own
// mean or more.
func scale(b []float64, counts []bool) []bool {
	choose := counts == nil
	if choose {
		counts = slices.Repeat([]bool{true}, len(b))
	}
	for {
		sum, n := 0., 0.
		for k, v := range b {
			if counts[k] {
				sum, n = sum+v, n+1
			}
		}
		if !(sum > 0) {
			return make([]bool, len(b))
		}
		for k := range b {
			b[k] *= n / sum
		}
		dropped := false
		for k, v := range b {
			if choose && counts[k] && v < leastDiscrimination {
				counts[k], dropped = false, true
			}
		}
		if !dropped {
			return counts
		}
	}
}

// noSecondFit returns why there is no second fit of a reviewer, "" where there is one.
func (d *discrimination) noSecondFit(member int) string {
	if d.place[member] >= 0 {
		return ""
	}
	return d.reason[member]
}

// adjusted returns the scores of the second fit: each score less what the reviewer's
// discrimination makes of the answer's worth to the others. The first matrix is for the
// discriminations as they are. Two follow for each of strong: with its own one greater
// by [discriminationStep], and less.
func (d *discrimination) adjusted() responses { return responses{d.adjust, 1 + 2*len(d.strong)} }

func (d *discrimination) adjust(k int) [][][]float64 {
	s := &d.w.sessions[k]
	scored := d.ends.scores(s)
	judged := stat.Matrix(len(s.reviewers), len(s.candidates), math.NaN())
	for i, row := range scored {
		for j, y := range row {
			if !s.own[i][j] && d.ends.pull(s.reviewers[i], s.candidates[j]) == 0 {
				judged[i][j] = y
			}
		}
	}
	b := make([]float64, len(s.reviewers)) // 0 for one that does not count
	for i, member := range s.reviewers {
		if d.place[member] >= 0 {
			b[i] = d.b[member]
			continue
		}
		for j := range judged[i] {
			judged[i][j] = math.NaN()
		}
	}
	y := make([][][]float64, 1+2*len(d.strong))
	worth := d.solver.worths(scored, judged, b)
	d.squares = squares(worth)
	y[0] = withoutSpread(worth, scored, b)
	for r := 1; r < len(y); r++ {
		i := slices.Index(s.reviewers, d.strong[(r-1)/2])
		if i < 0 {
			y[r] = y[0]
			continue
		}
		step := discriminationStep
		if r%2 == 0 {
			step = -step
		}
		b[i] += step
		y[r] = withoutSpread(d.solver.worths(scored, judged, b), scored, b)
		b[i] -= step
	}
	return y
}

// withoutSpread returns the scores less (b - 1) m, in place of the worths m.
func withoutSpread(worth, scored [][]float64, b []float64) [][]float64 {
	for i, row := range worth {
		for j, m := range row {
			row[j] = scored[i][j] - (b[i]-1)*m
		}
	}
	return worth
}

// squares returns the squares of each reviewer's worths, less their mean; 0 where there is none.
func squares(worth [][]float64) [][]float64 {
	all := stat.Matrix(len(worth), len(worth[0]), 0.)
	for i, row := range worth {
		n, dot := 0., 0.
		for _, m := range row {
			if !math.IsNaN(m) {
				n, dot = n+1, dot+m*m
			}
		}
		for j, m := range row {
			if !math.IsNaN(m) {
				all[i][j] = m*m - dot/n
			}
		}
	}
	return all
}

// bent adds to a design of the adjusted scores, which are those of strong alone, how each reviewer bends the scale
// beside the others: as further regressors, the square of the answer's worth to the others, with a coefficient for
// each. Where the discriminations are a line for each row (Mandel 1961), these are parabolas.
func (d *discrimination) bent(of design) design {
	n, row := of.Regressors, of.row
	of.Further = len(d.strong) - 1
	of.Regressors += of.Further
	of.row = func(s *scores, i, j int, x []float64) bool {
		code(x[n:], d.place[s.reviewers[i]], d.squares[i][j])
		return row(s, i, j, x[:n])
	}
	return of
}

// variance returns what the errors of the discriminations add to the variance of a
// contrast of a fit to adjusted scores.
func (d *discrimination) variance(of stat.Contrast) float64 {
	g := make([]float64, len(d.strong))
	for k := range g {
		g[k] = (of.Others[2*k] - of.Others[2*k+1]) / (2 * discriminationStep)
	}
	return stat.Quadratic(d.covariance, g)
}

// worthSolver computes what the answers of a session are worth to its reviewers. It
// holds buffers.
type worthSolver struct {
	normal, worth, level, above, below, judges []float64
}

// worths returns m_j(-i), the worth of answer j of a session to all reviewers but i. The worth m_j and
// the levels a_k are the least squares of y = a_k + b_k m_j over the judged scores: those
// that reviewers with a discrimination b above 0 gave to others. M_j(-i) is
// sum b_k (y_kj - a_k) / sum b_k^2 over the others, less its mean over what i scored. It is NaN where y is, where
// no other reviewer scored the answer, and throughout for a reviewer without a discrimination.
func (v *worthSolver) worths(y, judged [][]float64, b []float64) [][]float64 {
	n := len(y[0])
	v.normal, v.worth, v.judges = stat.Zeros(v.normal, n*n), stat.Zeros(v.worth, n), stat.Zeros(v.judges, n)
	v.level, v.above, v.below = stat.Zeros(v.level, len(b)), stat.Zeros(v.above, n), stat.Zeros(v.below, n)
	// A little on the diagonal makes the equations regular, and the worths of answers
	// that no reviewer links with the others sum to zero by themselves.
	const little = 1e-7
	squares := stat.Dot(b, b)
	for j := range n {
		v.normal[j*n+j] = little * squares
	}
	for k, row := range judged {
		mean, cells := 0., 0.
		for j, score := range row {
			if !math.IsNaN(score) {
				mean, cells = mean+score, cells+1
				v.judges[j]++
			}
		}
		mean /= cells
		for j, score := range row {
			if math.IsNaN(score) {
				continue
			}
			v.worth[j] += b[k] * (score - mean)
			v.normal[j*n+j] += b[k] * b[k]
			for q := range j + 1 {
				if !math.IsNaN(row[q]) {
					v.normal[j*n+q] -= b[k] * b[k] / cells
				}
			}
		}
	}
	stat.Factor(v.normal, n, nil)
	stat.Solve(v.normal, n, v.worth)
	for k, row := range judged {
		cells := 0.
		for j, score := range row {
			if !math.IsNaN(score) {
				v.level[k] += score - b[k]*v.worth[j]
				cells++
			}
		}
		v.level[k] /= cells
		for j, score := range row {
			if !math.IsNaN(score) {
				v.above[j] += b[k] * (score - v.level[k])
				v.below[j] += b[k] * b[k]
			}
		}
	}
	to := stat.Matrix(len(y), n, math.NaN())
	for i := range b {
		if b[i] == 0 {
			continue
		}
		mean, cells := 0., 0.
		for j, score := range judged[i] {
			above, below, judges := v.above[j], v.below[j], v.judges[j]
			if !math.IsNaN(score) {
				above, below, judges = above-b[i]*(score-v.level[i]), below-b[i]*b[i], judges-1
			}
			if judges > 0 && !math.IsNaN(y[i][j]) {
				to[i][j] = above / below
				mean, cells = mean+to[i][j], cells+1
			}
		}
		for j := range n {
			to[i][j] -= mean / cells
		}
	}
	return to
}

// discrimination returns the metric that describes how widely each reviewer spreads
// its scores.
func (h *findings) discrimination() Metric {
	m := h.c.metric("discrimination", "times the mean of the reviewers",
		"one factor behind the covariances of the reviewers' scores of the same answers, by least squares (minres); "+
			"errors by leaving out 20 blocks of sessions", h.scored, h.span)
	m.Reason = "descriptive: how much of a difference between two answers each reviewer's scores show"
	for id, t := range h.reviewers {
		if t.records == 0 {
			continue
		}
		member := h.c.metric(m.Name+"|"+h.w.names[id], m.Unit, m.Method, t, h.span)
		member.Subject = h.w.names[id]
		switch b := h.spread.b[id]; {
		case !t.testable() || math.IsNaN(b):
			member.missing(h.spread.reason[id])
		default:
			half := stat.Effect{SE: h.spread.se[id], DF: h.spread.df}.HalfWidth(0.95)
			member.PointEstimate, member.StandardError = &b, new(h.spread.se[id])
			member.CILower, member.CIUpper = new(max(0, b-half)), new(b+half)
			if member.Reason = m.Reason; b < leastDiscrimination {
				member.Reason = hardlyFollows
			}
		}
		m.Members = append(m.Members, member)
	}
	return m
}
