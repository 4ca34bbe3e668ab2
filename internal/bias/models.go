package bias

import (
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

// models are the linear models of a window (M1 to M6), and who and what its scored
// cells hold. The models of a session's scores are
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
	self       tally
	family     tally
	pairs      map[[2]int]*tally   // by reviewer and candidate, own reviews left out
	ordered    tally               // scores at known places, where each reviewer saw an order of its own
	randomised [maxSlate + 1]tally // the same, by the size of the slate
	shared     [maxSlate + 1]tally // under one order for all reviewers
	mean, std  []float64           // of the scores that each member gave; std is 0 where undefined

	candidates []int             // members with a score
	place      [maxSlate + 1]int // first regressor of a slate's positions; -1 for none
	places     int               // regressors of positions
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
		w: w, spread: w.discriminations(), reviewers: make([]tally, n), judges: make([]tally, n), own: make([]tally, n), pairs: map[[2]int]*tally{},
		mean: make([]float64, n), std: make([]float64, n),
	}
	var placed [maxSlate + 1]tally
	given := make([][]float64, n)
	seen := make([]bool, n)
	for _, k := range w.byCluster() {
		s := &w.sessions[k]
		for i, reviewer := range s.reviewers {
			for j, candidate := range s.candidates {
				if math.IsNaN(s.y[i][j]) {
					continue
				}
				seen[candidate] = true
				given[reviewer] = append(given[reviewer], s.y[i][j])
				m.scored.add(s.cluster, k)
				m.reviewers[reviewer].add(s.cluster, k)
				if s.own[i][j] {
					m.self.add(s.cluster, k)
					m.own[reviewer].add(s.cluster, k)
				} else {
					m.judges[reviewer].add(s.cluster, k)
					pair := m.pairs[[2]int{reviewer, candidate}]
					if pair == nil {
						pair = &tally{}
						m.pairs[[2]int{reviewer, candidate}] = pair
					}
					pair.add(s.cluster, k)
				}
				if s.family[i][j] {
					m.family.add(s.cluster, k)
				}
				if size, ok := s.slate(i, j); ok {
					placed[size].add(s.cluster, k)
					if s.shared {
						m.shared[size].add(s.cluster, k)
					} else {
						m.ordered.add(s.cluster, k)
						m.randomised[size].add(s.cluster, k)
					}
				}
			}
		}
	}
	for i, scores := range given {
		if len(scores) > 1 && !stat.Constant(scores) {
			m.mean[i], m.std[i] = stat.MeanStdDev(scores)
		}
	}
	for i, ok := range seen {
		if ok {
			m.candidates = append(m.candidates, i)
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

// testable returns the members with enough behind them, and the place of each
// member among those, -1 for the others.
func testable(tallies []tally) (members, level []int) {
	level = make([]int, len(tallies))
	for member, t := range tallies {
		level[member] = -1
		if t.testable() {
			level[member] = len(members)
			members = append(members, member)
		}
	}
	return members, level
}

// positions fits M1 to slates of one size: position, with every candidate and
// reviewer of a session absorbed, where reviewers saw orders of their own.
func (m *models) positions(size int) *fit {
	return m.w.sums(design{
		candidates: true, reviewers: true, columns: size - 1,
		row: func(s *scores, i, j int, x []float64) bool {
			if n, ok := s.slate(i, j); !ok || n != size || s.shared {
				return false
			}
			code(x, s.position[i][j], 1)
			return true
		},
	}).fit(-1)
}

// sharedPositions fits positions where all reviewers of a session saw one order:
// the quality of an answer that stands there is no more than its model's.
func (m *models) sharedPositions(size int) *fit {
	return m.w.sums(design{
		reviewers: true, columns: size - 1 + len(m.candidates) - 1,
		row: func(s *scores, i, j int, x []float64) bool {
			if n, ok := s.slate(i, j); !ok || n != size || !s.shared {
				return false
			}
			code(x[:size-1], s.position[i][j], 1)
			m.setModel(x[size-1:], s.candidates[j])
			return true
		},
	}).fit(-1)
}

// setModel sets the regressors of a candidate.
func (m *models) setModel(x []float64, candidate int) {
	level, _ := slices.BinarySearch(m.candidates, candidate)
	code(x, level, 1)
}

// harshness fits M2: the reviewers of those levels, with every candidate of a
// session absorbed and own reviews left out.
func (m *models) harshness(level []int, levels int) *fit {
	return m.w.sums(design{
		candidates: true, columns: levels - 1 + m.places,
		row: func(s *scores, i, j int, x []float64) bool {
			reviewer := level[s.reviewers[i]]
			if s.own[i][j] || reviewer < 0 {
				return false
			}
			code(x[:levels-1], reviewer, 1)
			m.setPlace(x[levels-1:], s, i, j)
			return true
		},
	}).fit(-1)
}

// favour fits M3: own answers, as one coefficient or as one for each level, then
// those of the reviewer's provider. Every candidate and reviewer of a session is
// absorbed.
func (m *models) favour(level []int, levels int, y responses) *fit {
	return m.w.sums(design{
		candidates: true, reviewers: true, columns: levels + 1 + m.places, responses: y,
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
	}).fit(-1)
}

// length fits M4: doublings of the length, with every reviewer of a session
// absorbed and models beside it.
func (m *models) length() *fit {
	models := len(m.candidates) - 1
	return m.w.sums(design{
		reviewers: true, columns: 1 + models + m.places,
		row: func(s *scores, i, j int, x []float64) bool {
			x[0] = s.doublings(i, j)
			m.setModel(x[1:1+models], s.candidates[j])
			m.setPlace(x[1+models:], s, i, j)
			return true
		},
	}).fit(-1)
}

// doublings returns the length of a cell's answer as a power of two.
func (x *scores) doublings(i, j int) float64 { return math.Log2(max(x.length[i][j], 1)) }

// slopes fits M5: for the reviewers of those levels first their harshness, then
// what a doubling of the length is worth to each beside the others. Every
// candidate of a session is absorbed.
func (m *models) slopes(level []int, levels int, y responses) *fit {
	n := levels - 1
	return m.w.sums(design{
		candidates: true, columns: 2*n + m.places, responses: y,
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
	}).fit(-1)
}

// affinities returns the sums of M6, whose solos are the pairs: the candidates that
// a reviewer may favour beyond its own. Every candidate and reviewer of a session
// is absorbed.
func (m *models) affinities(pairs [][2]int, y responses) *sums {
	var owners []int
	for member, t := range m.own {
		if t.records > 0 {
			owners = append(owners, member)
		}
	}
	solo := make(map[[2]int]int, len(pairs))
	for k, pair := range pairs {
		solo[pair] = k
	}
	n := len(owners) + m.places
	return m.w.sums(design{
		candidates: true, reviewers: true, columns: n, solos: len(pairs), responses: y,
		row: func(s *scores, i, j int, x []float64) bool {
			if s.own[i][j] {
				owner, _ := slices.BinarySearch(owners, s.reviewers[i])
				x[owner] = 1
			}
			m.setPlace(x[len(owners):], s, i, j)
			return true
		},
		solo: func(s *scores, i, j int) int {
			if k, ok := solo[[2]int{s.reviewers[i], s.candidates[j]}]; ok && !s.own[i][j] {
				return k
			}
			return -1
		},
	})
}
