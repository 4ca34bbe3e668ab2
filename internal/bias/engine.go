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
	// row sets the regressors of a cell in x, which is zero before. It reports false
	// for a cell that does not enter; one without a score never does.
	row func(s *scores, i, j int, x []float64) bool
	// solo returns the index of the solo to which the cell belongs, or -1. A design
	// without solos has no such function.
	solo func(s *scores, i, j int) int
}

// responses are what a design explains: count matrices by reviewer and candidate for
// session k, which all lack the same cells.
type responses struct {
	of    func(k int) [][][]float64
	count int
}

// plain are the scores as they are.
func (w *window) plain() responses {
	return responses{func(k int) [][][]float64 { return [][][]float64{w.sessions[k].y} }, 1}
}

// regress returns the regressions of the same responses on several designs. The
// responses of a session are computed once.
func (w *window) regress(y responses, designs ...design) []*stat.Regression {
	all, cells := make([]*stat.Regression, len(designs)), make([][]float64, len(designs))
	for q := range designs {
		designs[q].Responses = y.count
		all[q] = stat.NewRegression(designs[q].Design)
		cells[q] = make([]float64, designs[q].Regressors+y.count)
	}
	for k := range w.sessions {
		s, values := &w.sessions[k], y.of(k)
		for q, d := range designs {
			d.add(all[q], s, values, cells[q])
			all[q].EndBlock(s.cluster, len(s.reviewers), len(s.candidates))
		}
	}
	return all
}

// fit fits a design to responses.
func (w *window) fit(y responses, d design) *stat.Fit { return w.regress(y, d)[0].Fit() }

// add adds the cells of a session that enter.
func (d *design) add(to *stat.Regression, s *scores, y [][][]float64, cell []float64) {
	solo := -1
	for i := range s.reviewers {
		for j := range s.candidates {
			clear(cell)
			if math.IsNaN(y[0][i][j]) || !d.row(s, i, j, cell[:d.Regressors]) {
				continue
			}
			for r := range y {
				cell[d.Regressors+r] = y[r][i][j]
			}
			if d.solo != nil {
				solo = d.solo(s, i, j)
			}
			to.Add(i, j, solo, cell)
		}
	}
}

// cell is one score that was given.
type cell struct {
	*scores
	session             int // index in the window
	i, j                int // row and column in the session's scores
	reviewer, candidate int // indices into the window's names
	score               float64
}

// cells returns the scores given in sessions, which are indices in the window.
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
