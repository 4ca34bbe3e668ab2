package bias

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

const (
	reasoningName        = "reasoning_points_per_doubling"
	perDoublingReasoning = "points per doubling of the reasoning tokens"
	noReasoning          = "no record has response_reasoning_tokens: no provider of these answers reported them"
)

// reasoning returns the association of the scores with the number of tokens that the authors reasoned with. known
// is false if no record has that number.
func (h *findings) reasoning() (m Metric, known bool) {
	var all tally
	answered := make([]tally, len(h.w.names))
	for c := range h.w.cells(h.w.byCluster()) {
		if !math.IsNaN(c.reasoning[c.i][c.j]) {
			all.add(c.cluster, c.session)
			answered[c.candidate].add(c.cluster, c.session)
		}
	}
	m = h.metric(reasoningName, perDoublingReasoning, "the length, candidate models and positions beside it, every reviewer of a session "+
		"absorbed (M3, with one more regressor: log2 of 1 + reasoning tokens); "+leastSquares, all, deltaEffect)
	level, n := repeated(answered)
	switch {
	case all.records == 0:
		m.missing(noReasoning)
		return m, false
	case n < 2:
		m.missing(notSeparable)
		return m, true
	}
	f := h.w.fit(h.reasoningModel(level, n))
	m.setContrast(f.Contrast(only(f.N, f.N-1)))
	return m, true
}

// reasoningModel returns the linear model of length with the reasoning tokens as a further, last regressor. An
// answer whose reasoning tokens are unknown does not enter.
func (m *models) reasoningModel(level []int, levels int) design {
	length := m.lengthModel(level, levels)
	last := length.Regressors
	return design{
		Design: stat.Design{Regressors: last + 1},
		row: func(s *scores, i, j int, x []float64) bool {
			x[last] = math.Log2(1 + s.reasoning[i][j])
			return !math.IsNaN(x[last]) && length.row(s, i, j, x[:last])
		},
	}
}
