package bias

import (
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

// maxSlate is the largest slate whose positions enter: each costs a regressor.
const maxSlate = 64

// tally counts what a figure rests on, of sessions in the order of their clusters.
type tally struct {
	clusters, sessions, records int
	cluster, session            int // met last, from 1
}

func (t *tally) add(cluster, session int) {
	t.records++
	if t.session != session+1 {
		t.sessions++
		t.session = session + 1
	}
	if t.cluster != cluster+1 {
		t.clusters++
		t.cluster = cluster + 1
	}
}

// testable reports whether there is enough for an estimate and its test.
func (t tally) testable() bool { return t.clusters >= preliminaryFrom }

// models are the linear models of a window (M1 to M7), and tallies of its scores. The
// models of a session's scores are
//
//	y = alpha_sj + rho_i + eta_si + pi(p) + gamma_i own + delta fam + beta_i log2(L) + e
//
// of which each absorbs what it does not ask about.
type models struct {
	w          *window
	spread     *discrimination
	scored     tally
	reviewers  []tally // by member: scores given
	judges     []tally // scores given to others
	own        []tally // scores given to oneself
	answered   []tally // by member: scores given to its answers
	self       tally
	family     tally
	alike      tally               // scores of others' answers that are known to be more or less like the reviewer's own
	pairs      map[[2]int]*tally   // by reviewer and candidate, own reviews left out
	ordered    tally               // scores at known places, where each reviewer saw an order of its own
	randomised [maxSlate + 1]tally // the same, by the size of the slate
	shared     [maxSlate + 1]tally // under one order for all reviewers
	mean, std  []float64           // of the scores that each member gave; std is 0 where undefined

	place  [maxSlate + 1]int // first regressor of a slate's positions; -1 for none
	places int               // regressors of positions
}

// standardised are the scores less the reviewer's mean, over its standard deviation.
func (m *models) standardised() responses {
	return responses{func(k int) [][][]float64 {
		s := &m.w.sessions[k]
		z := stat.Matrix(len(s.reviewers), len(s.candidates), math.NaN())
		for i, reviewer := range s.reviewers {
			for j, y := range s.y[i] {
				if m.std[reviewer] > 0 {
					z[i][j] = (y - m.mean[reviewer]) / m.std[reviewer]
				}
			}
		}
		return [][][]float64{z}
	}, 1}
}

func newModels(w *window) *models {
	n := len(w.names)
	m := &models{
		w: w, spread: w.discriminations(),
		reviewers: make([]tally, n), judges: make([]tally, n), own: make([]tally, n), answered: make([]tally, n), pairs: map[[2]int]*tally{},
		mean: make([]float64, n), std: make([]float64, n),
	}
	var placed [maxSlate + 1]tally
	given := make([][]float64, n)
	var counted []*tally
	for c := range w.cells(w.byCluster()) {
		given[c.reviewer] = append(given[c.reviewer], c.score)
		counted = append(counted[:0], &m.scored, &m.reviewers[c.reviewer], &m.answered[c.candidate])
		if c.own[c.i][c.j] {
			counted = append(counted, &m.self, &m.own[c.reviewer])
		} else {
			pair := [2]int{c.reviewer, c.candidate}
			if m.pairs[pair] == nil {
				m.pairs[pair] = &tally{}
			}
			counted = append(counted, &m.judges[c.reviewer], m.pairs[pair])
			if !math.IsNaN(c.style[c.i][c.j]) {
				counted = append(counted, &m.alike)
			}
		}
		if c.family[c.i][c.j] {
			counted = append(counted, &m.family)
		}
		size, ok := c.slate(c.i, c.j)
		switch {
		case !ok:
		case c.shared:
			counted = append(counted, &placed[size], &m.shared[size])
		default:
			counted = append(counted, &placed[size], &m.ordered, &m.randomised[size])
		}
		for _, t := range counted {
			t.add(c.cluster, c.session)
		}
	}
	for i, scores := range given {
		if len(scores) > 1 && !stat.Constant(scores) {
			m.mean[i], m.std[i] = stat.MeanStdDev(scores)
		}
	}
	for size := range placed {
		m.place[size] = -1
		if placed[size].testable() {
			m.place[size] = m.places
			m.places += size - 1
		}
	}
	return m
}

// slate returns how many answers the reviewer of a cell was shown, and false when
// the place of this one among them is not known.
func (x *scores) slate(i, j int) (int, bool) {
	size := x.shown[i]
	return size, x.position[i][j] >= 0 && x.position[i][j] < size && size > 1 && size <= maxSlate
}

// setPlace sets the regressors of a cell's position: one of mean zero for each
// size of slate, all zero where the position is not known.
func (m *models) setPlace(x []float64, s *scores, i, j int) {
	if size, ok := s.slate(i, j); ok && m.place[size] >= 0 {
		code(x[m.place[size]:m.place[size]+size-1], s.position[i][j], 1)
	}
}

// code sets the sum-to-zero regressors of a factor with one level more than x
// times a value.
func code(x []float64, level int, value float64) {
	if level < len(x) {
		x[level] = value
		return
	}
	for k := range x {
		x[k] = -value
	}
}

// contrast returns the coefficients, of n of which those from first on code a
// factor, that weigh its levels so.
func contrast(n, first int, weights []float64) []float64 {
	c := make([]float64, n)
	last := len(weights) - 1
	for k, weight := range weights[:last] {
		c[first+k] = weight - weights[last]
	}
	return c
}

// only returns the weights that pick one of n levels.
func only(n, level int) []float64 {
	weights := make([]float64, n)
	weights[level] = 1
	return weights
}

// testable returns the place of each member among those with enough behind them, -1 for
// the others, and how many these are.
func testable(tallies []tally) (level []int, levels int) { return levelsFrom(preliminaryFrom, tallies) }

// repeated does so for members with two questions or more: nothing of length can be told from a model's
// answers to one question beside its own coefficient.
func repeated(tallies []tally) (level []int, levels int) { return levelsFrom(2, tallies) }

func levelsFrom(clusters int, tallies []tally) (level []int, levels int) {
	level = make([]int, len(tallies))
	for member, t := range tallies {
		level[member] = -1
		if t.clusters >= clusters {
			level[member] = levels
			levels++
		}
	}
	return level, levels
}

// positionModel is M1 on slates of one size: position, with every candidate and
// reviewer of a session absorbed, where reviewers saw orders of their own.
func (m *models) positionModel(size int) design {
	return design{
		Design: stat.Design{Rows: true, Columns: true, Regressors: size - 1},
		row: func(s *scores, i, j int, x []float64) bool {
			if n, ok := s.slate(i, j); !ok || n != size || s.shared {
				return false
			}
			code(x, s.position[i][j], 1)
			return true
		},
	}
}

// sharedPositionModel is that of positions where all reviewers of a session saw one
// order, with models of those levels beside them. It takes the quality of an answer for
// that of its model.
func (m *models) sharedPositionModel(size int, level []int, levels int) design {
	return design{
		Design: stat.Design{Rows: true, Regressors: size - 1 + levels - 1},
		row: func(s *scores, i, j int, x []float64) bool {
			n, ok := s.slate(i, j)
			model := level[s.candidates[j]]
			if !ok || n != size || !s.shared || model < 0 {
				return false
			}
			code(x[:size-1], s.position[i][j], 1)
			code(x[size-1:], model, 1)
			return true
		},
	}
}

// harshnessModel is M2: the reviewers of those levels, with every candidate of a
// session absorbed and own reviews left out.
func (m *models) harshnessModel(level []int, levels int) design {
	return design{
		Design: stat.Design{Columns: true, Regressors: levels - 1 + m.places},
		row: func(s *scores, i, j int, x []float64) bool {
			reviewer := level[s.reviewers[i]]
			if s.own[i][j] || reviewer < 0 {
				return false
			}
			code(x[:levels-1], reviewer, 1)
			m.setPlace(x[levels-1:], s, i, j)
			return true
		},
	}
}

// favourModel is M3: own answers, as one coefficient or as one for each level, then
// those of the reviewer's provider. Every candidate and reviewer of a session is
// absorbed.
func (m *models) favourModel(level []int, levels int) design {
	return design{
		Design: stat.Design{Rows: true, Columns: true, Regressors: levels + 1 + m.places},
		row: func(s *scores, i, j int, x []float64) bool {
			reviewer := s.reviewers[i]
			if s.own[i][j] {
				if level[reviewer] < 0 {
					return false
				}
				x[level[reviewer]] = 1
			}
			if s.family[i][j] {
				x[levels] = 1
			}
			m.setPlace(x[levels+1:], s, i, j)
			return true
		},
	}
}

// lengthModel is M4: doublings of the length, with every reviewer of a session
// absorbed and models of those levels beside it.
func (m *models) lengthModel(level []int, levels int) design {
	return design{
		Design: stat.Design{Rows: true, Regressors: levels + m.places},
		row: func(s *scores, i, j int, x []float64) bool {
			model := level[s.candidates[j]]
			if model < 0 {
				return false
			}
			x[0] = s.doublings(i, j)
			code(x[1:levels], model, 1)
			m.setPlace(x[levels:], s, i, j)
			return true
		},
	}
}

// doublings returns the length of a cell's answer as a power of two.
func (x *scores) doublings(i, j int) float64 { return math.Log2(max(x.length[i][j], 1)) }

// slopeModel is M5: for the reviewers of those levels first their harshness, then
// what a doubling of the length is worth to each beside the others. Every
// candidate of a session is absorbed.
func (m *models) slopeModel(level []int, levels int) design {
	n := levels - 1
	return design{
		Design: stat.Design{Columns: true, Regressors: 2*n + m.places},
		row: func(s *scores, i, j int, x []float64) bool {
			reviewer := level[s.reviewers[i]]
			if reviewer < 0 {
				return false
			}
			code(x[:n], reviewer, 1)
			code(x[n:2*n], reviewer, s.doublings(i, j))
			m.setPlace(x[2*n:], s, i, j)
			return true
		},
	}
}

// styleModel is M7: how like the reviewer's own answer another one is, in tenths; family, and for the
// reviewers of those levels what a doubling of the length is worth to each beside the others. Every
// candidate and reviewer of a session is absorbed, and own answers are left out.
func (m *models) styleModel(level []int, levels int) design {
	n := levels - 1
	return design{
		Design: stat.Design{Rows: true, Columns: true, Regressors: 2 + n + m.places},
		row: func(s *scores, i, j int, x []float64) bool {
			reviewer := level[s.reviewers[i]]
			if s.own[i][j] || reviewer < 0 || math.IsNaN(s.style[i][j]) {
				return false
			}
			x[0] = 10 * s.style[i][j]
			if s.family[i][j] {
				x[1] = 1
			}
			code(x[2:2+n], reviewer, s.doublings(i, j))
			m.setPlace(x[2+n:], s, i, j)
			return true
		},
	}
}

// affinityModel is M6. Its solos are the pairs that can be tested, sorted: the
// candidates, other than its own, that a reviewer may favour. Every candidate and
// reviewer of a session is absorbed.
func (m *models) affinityModel() design {
	var owners []int
	for member, t := range m.own {
		if t.records > 0 {
			owners = append(owners, member)
		}
	}
	solos := map[[2]int]int{}
	for _, pair := range m.sortedPairs() {
		if m.pairs[pair].testable() {
			solos[pair] = len(solos)
		}
	}
	return design{
		Design: stat.Design{Rows: true, Columns: true, Regressors: len(owners) + m.places, Solos: len(solos)},
		row: func(s *scores, i, j int, x []float64) bool {
			if s.own[i][j] {
				owner, _ := slices.BinarySearch(owners, s.reviewers[i])
				x[owner] = 1
			}
			m.setPlace(x[len(owners):], s, i, j)
			return true
		},
		solo: func(s *scores, i, j int) int {
			if solo, ok := solos[[2]int{s.reviewers[i], s.candidates[j]}]; ok && !s.own[i][j] {
				return solo
			}
			return -1
		},
	}
}

// pairModel is M6 for one pair.
func (m *models) pairModel(pair [2]int) design {
	d := m.affinityModel()
	isPair := func(s *scores, i, j int) bool { return s.reviewers[i] == pair[0] && s.candidates[j] == pair[1] }
	d.Solos, d.solo = 1, func(s *scores, i, j int) int {
		if isPair(s, i, j) && !s.own[i][j] {
			return 0
		}
		return -1
	}
	return m.spread.ends.within(d, func(s *scores, i, j int) bool { return s.own[i][j] || isPair(s, i, j) })
}

// sortedPairs returns the pairs by reviewer, then candidate.
func (m *models) sortedPairs() [][2]int {
	return slices.SortedFunc(maps.Keys(m.pairs), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
}

// adjustedFits are the fits to scores without the differences in the reviewers'
// discrimination: the second fits or, with what each reviewer's curve explains beside, the third.
type adjustedFits struct {
	slopes      *stat.Fit
	favour      *stat.Fit       // own answers as one coefficient
	favourByOwn *stat.Fit       // own answers by reviewer; nil where there are too few
	affinities  []stat.Contrast // by pair that can be tested
	style       *stat.Fit       // nil where there are too few similarities
}

// fitAdjusted returns the second and the third fits, nil where no reviewer's scores follow the answers.
func (m *models) fitAdjusted() (second, third *adjustedFits) {
	if len(m.spread.strong) == 0 {
		return nil, nil
	}
	own := func(s *scores, i, j int) bool { return s.own[i][j] }
	favour := func(s *scores, i, j int) bool {
		return (s.own[i][j] || s.family[i][j]) && !m.spread.ends.pull(s.reviewers[i], s.candidates[j]).explains(1)
	}
	designs := []design{
		m.spread.ends.within(m.slopeModel(m.spread.place, len(m.spread.strong)), nil),
		m.spread.ends.within(m.favourModel(m.oneOwner()), favour), m.spread.ends.within(m.affinityModel(), own),
	}
	if m.self.testable() {
		designs = append(designs, m.spread.ends.within(m.favourModel(testable(m.own)), favour))
	}
	if m.alike.testable() {
		designs = append(designs, m.spread.ends.within(m.styleModel(m.spread.place, len(m.spread.strong)), nil))
	}
	for q, d := range designs {
		designs[q] = m.spread.bent(d)
	}
	fits := func(all []*stat.Regression) *adjustedFits {
		fits := &adjustedFits{slopes: all[0].Fit(), favour: all[1].Fit(), affinities: all[2].FitSolos()}
		if m.self.testable() {
			fits.favourByOwn = all[3].Fit()
		}
		if m.alike.testable() {
			fits.style = all[len(all)-1].Fit()
		}
		return fits
	}
	all := m.w.regress(m.spread.adjusted(), designs...)
	second = fits(all)
	for q, r := range all {
		all[q] = r.Whole()
	}
	return second, fits(all)
}

// oneOwner returns the levels of own answers as one coefficient, or as none where there
// are too few.
func (m *models) oneOwner() (level []int, levels int) {
	if !m.self.testable() {
		return slices.Repeat([]int{-1}, len(m.w.names)), 0
	}
	return make([]int, len(m.w.names)), 1
}
