package bias

import (
	"iter"
	"math"

	"github.com/councild/councild/internal/stat"
)

// design is a linear model of scores. Each session is a block of the regression, with a
// row for each reviewer and a column for each candidate.
type design struct {
	stat.Design
	// row writes the regressors of the cell (i, j) into x. The caller has set x to zero. row returns false if the
	// regression leaves this cell out. row is called only for cells that have a score.
	row func(s *scores, i, j int, x []float64) bool
}

// fit fits a design to the scores.
func (w *window) fit(d design) *stat.Fit {
	to := stat.NewRegression(d.Design)
	x := make([]float64, d.Regressors+1)
	for k := range w.sessions {
		s := &w.sessions[k]
		for i := range s.reviewers {
			for j, y := range s.y[i] {
				clear(x)
				if math.IsNaN(y) || !d.row(s, i, j, x[:d.Regressors]) {
					continue
				}
				x[d.Regressors] = y
				to.Add(i, j, x)
			}
		}
		to.EndBlock(s.cluster, len(s.reviewers), len(s.candidates))
	}
	return to.Fit()
}

// cell is one score that was given.
type cell struct {
	*scores
	session             int // index in the window
	i, j                int // row and column in the session's scores
	reviewer, candidate int // indices into the window's names
	score               float64
}

// cells yields the scores of sessions, which are indices in the window.
func (w *window) cells(sessions []int) iter.Seq[cell] {
	return func(yield func(cell) bool) {
		for _, k := range sessions {
			s := &w.sessions[k]
			for i, row := range s.y {
				for j, y := range row {
					if !math.IsNaN(y) && !yield(cell{s, k, i, j, s.reviewers[i], s.candidates[j], y}) {
						return
					}
				}
			}
		}
	}
}
