package bias

import (
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

// maxSlate is the size of the largest slate whose positions enter the linear models. Each position costs a
// regressor.
const maxSlate = 64

// tally counts the clusters, sessions and records that a figure is computed from. The caller adds the sessions in
// the order of their clusters.
type tally struct {
	clusters, sessions, records int
	cluster, session            int // the numbers of the last cluster and session, plus 1
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

// testable reports whether there are enough questions for an estimate and its test.
func (t tally) testable() bool { return t.clusters >= preliminaryFrom }

// models holds a window and tallies of its scores. It builds the linear models M2 (of harshness) and M3 (of
// length).
type models struct {
	w         *window
	scored    tally
	reviewers []tally // counts the scores that each member gave
	judges    []tally // counts the scores that each member gave to others
	own       []tally // counts the scores that each member gave to itself
	answered  []tally // counts the scores that the answers of each member got
	self      tally
	family    tally
	// alike counts scores of others' answers whose similarity to the reviewer's own answer is known.
	alike tally
	pairs map[[2]int]*tally // by reviewer and candidate, without own reviews
	// ordered counts scores at known positions in sessions where each reviewer saw a separate order.
	ordered tally
	// shared counts scores at known positions in sessions with one order for all reviewers, by the size of the
	// slate.
	shared [maxSlate + 1]tally
	placed []tally // counts the scores in ordered by reviewer

	// place holds, for each size of slate, the index of the first regressor of the positions. It is -1 if there is
	// none.
	place  [maxSlate + 1]int
	places int // number of position regressors
}

// newModels counts every score of the window in the tallies. If enough questions have slates of one size, the
// positions in such slates get regressors.
func newModels(w *window) *models {
	n := len(w.names)
	m := &models{
		w:         w,
		placed:    make([]tally, n),
		reviewers: make([]tally, n),
		judges:    make([]tally, n),
		own:       make([]tally, n),
		answered:  make([]tally, n),
		pairs:     map[[2]int]*tally{},
	}
	var placed [maxSlate + 1]tally
	var counted []*tally
	for c := range w.cells(w.byCluster()) {
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
			counted = append(counted, &placed[size], &m.ordered, &m.placed[c.reviewer])
		}
		for _, t := range counted {
			t.add(c.cluster, c.session)
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

// slate returns how many answers the reviewer of a cell was shown. It returns false if the position of the cell's
// answer is not known, or if the slate has only one answer or more than maxSlate answers.
func (x *scores) slate(i, j int) (int, bool) {
	size := x.shown[i]
	return size, x.position[i][j] >= 0 && x.position[i][j] < size && size > 1 && size <= maxSlate
}

// setPlace sets the regressors of a cell's position, which have mean zero for each size of slate. It leaves them at
// zero if slate returns false, or if slates of this size have no regressors.
func (m *models) setPlace(x []float64, s *scores, i, j int) {
	if size, ok := s.slate(i, j); ok && m.place[size] >= 0 {
		code(x[m.place[size]:m.place[size]+size-1], s.position[i][j])
	}
}

// code sets the sum-to-zero regressors x of a factor in a cell that has the given level. The factor has one level
// more than x has elements.
func code(x []float64, level int) {
	if level < len(x) {
		x[level] = 1
		return
	}
	for k := range x {
		x[k] = -1
	}
}

// contrast converts weights of one factor's levels into weights of the model's n coefficients. The last level has
// no coefficient, because its effect is minus the sum of the others. The argument first is the index of the
// factor's first coefficient.
func contrast(n, first int, weights []float64) []float64 {
	c := make([]float64, n)
	last := len(weights) - 1
	for k, weight := range weights[:last] {
		c[first+k] = weight - weights[last]
	}
	return c
}

// only returns n weights. The weight at the index level is 1, and the others are 0.
func only(n, level int) []float64 {
	weights := make([]float64, n)
	weights[level] = 1
	return weights
}

// testable numbers the testable members. level holds the number of each member, from 0, or -1 for other members.
// levels is the number of testable members.
func testable(tallies []tally) (level []int, levels int) { return levelsFrom(preliminaryFrom, tallies) }

// repeated does the same for the members with at least two questions. A member with only one question is left out,
// because its own coefficient in the linear model leaves nothing for the length to explain.
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

// sharedPositionModel returns the linear model of positions for sessions in which all reviewers saw one order. Its
// other regressors are the candidates that have an index in the argument level. The model assumes that all answers
// of a candidate have the same quality.
func (m *models) sharedPositionModel(size int, level []int, levels int) design {
	return design{
		Design: stat.Design{Regressors: size - 1 + levels - 1},
		row: func(s *scores, i, j int, x []float64) bool {
			n, ok := s.slate(i, j)
			model := level[s.candidates[j]]
			if !ok || n != size || !s.shared || model < 0 {
				return false
			}
			code(x[:size-1], s.position[i][j])
			code(x[size-1:], model)
			return true
		},
	}
}

// harshnessModel returns M2, the linear model of harshness. Its regressors are the positions and the reviewers that
// have an index in the argument level. It absorbs the effect of every candidate of a session, and leaves out scores
// of own answers.
func (m *models) harshnessModel(level []int, levels int) design {
	return design{
		Design: stat.Design{Columns: true, Regressors: levels - 1 + m.places},
		row: func(s *scores, i, j int, x []float64) bool {
			reviewer := level[s.reviewers[i]]
			if s.own[i][j] || reviewer < 0 {
				return false
			}
			code(x[:levels-1], reviewer)
			m.setPlace(x[levels-1:], s, i, j)
			return true
		},
	}
}

// lengthModel returns M3, the linear model of length. Its regressors are the length in doublings, the positions,
// and the candidates that have an index in the argument level. It absorbs the effect of every reviewer of a
// session.
func (m *models) lengthModel(level []int, levels int) design {
	return design{
		Design: stat.Design{Regressors: levels + m.places},
		row: func(s *scores, i, j int, x []float64) bool {
			model := level[s.candidates[j]]
			if model < 0 {
				return false
			}
			x[0] = s.doublings(i, j)
			code(x[1:levels], model)
			m.setPlace(x[levels:], s, i, j)
			return true
		},
	}
}

// doublings returns the binary logarithm of the answer's length in a cell.
func (x *scores) doublings(i, j int) float64 { return math.Log2(max(x.length[i][j], 1)) }

// sortedPairs returns the pairs by reviewer, then candidate.
func (m *models) sortedPairs() [][2]int {
	return slices.SortedFunc(maps.Keys(m.pairs), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
}
