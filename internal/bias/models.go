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

// models are the linear models of a window, M2 and M3, and tallies of its scores.
type models struct {
	w         *window
	scored    tally
	reviewers []tally // counts the scores that each member gave
	judges    []tally // counts those to others
	own       []tally // counts those to itself
	answered  []tally // counts the scores that the answers of each member got
	self      tally
	family    tally
	alike     tally               // scores of others' answers that are known to be more or less like the reviewer's own
	pairs     map[[2]int]*tally   // by reviewer and candidate, own reviews left out
	ordered   tally               // scores at known places, where each reviewer saw an order of its own
	shared    [maxSlate + 1]tally // under one order for all reviewers
	placed    []tally             // of each reviewer, what ordered counts

	place  [maxSlate + 1]int // first regressor of a slate's positions; -1 for none
	places int               // regressors of positions
}

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
		code(x[m.place[size]:m.place[size]+size-1], s.position[i][j])
	}
}

// code sets the sum-to-zero regressors of a factor with one level more than x.
func code(x []float64, level int) {
	if level < len(x) {
		x[level] = 1
		return
	}
	for k := range x {
		x[k] = -1
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

// sharedPositionModel is that of positions where all reviewers of a session saw one
// order, with models of those levels beside them. It takes the quality of an answer for
// that of its model.
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
			code(x[:levels-1], reviewer)
			m.setPlace(x[levels-1:], s, i, j)
			return true
		},
	}
}

// lengthModel returns M3: doublings of the length, with every reviewer of a session
// absorbed and models of those levels beside it.
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

// doublings returns the length of a cell's answer as a power of two.
func (x *scores) doublings(i, j int) float64 { return math.Log2(max(x.length[i][j], 1)) }

// sortedPairs returns the pairs by reviewer, then candidate.
func (m *models) sortedPairs() [][2]int {
	return slices.SortedFunc(maps.Keys(m.pairs), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
}
