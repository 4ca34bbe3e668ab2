package bias

import (
	"cmp"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

// severities returns the fit of each session's scores on candidate and reviewer, own
// reviews excluded. The rows are the members of the window: the effect of a reviewer is
// its relative harshness, what it adds to an answer's score, below 0 for one harsher
// than the others. A session in which the reviewers cannot be compared, because no chain
// of common candidates links them all, has no harshness for anyone.
func severities(w window) []stat.TwoWay {
	fits := make([]stat.TwoWay, len(w.sessions))
	for s := range fits {
		x := &w.sessions[s]
		y := stat.Matrix(len(w.names), len(x.candidates), math.NaN())
		for i, row := range x.others() {
			copy(y[x.reviewers[i]], row)
		}
		fits[s] = stat.FitTwoWay(y)
	}
	return fits
}

// question is what the sessions that asked one question say of the reviewers: the
// mean of their fits. It counts once, however often it was asked.
type question struct {
	stat.TwoWay
	first    int     // of its sessions, the index in the window
	at       float64 // mean index of its sessions
	sessions int
}

// questions returns the questions of a stretch, ordered by the mean time of their
// sessions.
func questions(w *window, fits []stat.TwoWay, part stretch) []question {
	sessions := map[int][]int{} // by cluster
	for s := part.from; s < part.to; s++ {
		cluster := w.sessions[s].cluster
		sessions[cluster] = append(sessions[cluster], s)
	}
	all := make([]question, 0, len(sessions))
	for _, group := range sessions {
		q := question{TwoWay: fits[group[0]], first: group[0], at: float64(group[0]), sessions: len(group)}
		if len(group) > 1 {
			q.TwoWay, q.at = meanSeverity(fits, group), 0
			for _, s := range group {
				q.at += float64(s) / float64(len(group))
			}
		}
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b question) int { return cmp.Or(cmp.Compare(a.at, b.at), a.first-b.first) })
	return all
}

// meanSeverity returns the mean of the fits of some sessions: of each reviewer over
// those in which it has a harshness, and of the residuals over those that have any.
func meanSeverity(fits []stat.TwoWay, group []int) stat.TwoWay {
	mean := stat.NewTwoWay(len(fits[group[0]].Effect))
	for reviewer := range mean.Effect {
		var h, leverage, low, high, n float64
		for _, s := range group {
			if fit := fits[s]; !math.IsNaN(fit.Effect[reviewer]) {
				h += fit.Effect[reviewer]
				leverage += fit.Leverage[reviewer]
				low += fit.Low[reviewer]
				high += fit.High[reviewer]
				n++
			}
		}
		if n > 0 {
			mean.Effect[reviewer], mean.Leverage[reviewer] = h/n, leverage/n
			mean.Low[reviewer], mean.High[reviewer] = low/n, high/n
		}
	}
	n := 0.0
	for _, s := range group {
		if fits[s].DF > 0 {
			mean.Squares += fits[s].Squares
			mean.DF += fits[s].DF
			n++
		}
	}
	if n > 0 {
		mean.Squares, mean.DF = mean.Squares/n, mean.DF/n
	}
	return mean
}

// others returns a copy of the scores without those of own answers.
func (x *scores) others() [][]float64 {
	y := stat.Matrix(len(x.reviewers), len(x.candidates), math.NaN())
	for i := range y {
		for j := range y[i] {
			if !x.own[i][j] {
				y[i][j] = x.y[i][j]
			}
		}
	}
	return y
}

// judged returns how many scores a reviewer gave to answers of others.
func (x *scores) judged(reviewer int) int {
	n := 0
	if i := slices.Index(x.reviewers, reviewer); i >= 0 {
		for j, y := range x.y[i] {
			if !x.own[i][j] && !math.IsNaN(y) {
				n++
			}
		}
	}
	return n
}
