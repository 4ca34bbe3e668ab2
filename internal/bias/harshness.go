package bias

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// severity is one session's least-squares fit of score on candidate and reviewer,
// own reviews excluded.
type severity struct {
	// harshness is what each reviewer adds to an answer's score, with sum zero: below
	// 0 for one harsher than the others. It is by member of the window, NaN for those
	// without a score that counts.
	harshness []float64
	leverage  []float64 // variance of harshness by chance over that of one score
	// low and high are the least and the largest harshness of each reviewer when any
	// one of its scores is left out.
	low, high []float64
	squares   float64 // sum of squared residuals
	df        float64 // their degrees of freedom
}

// severities returns the fit of each session. A session in which the reviewers
// cannot be compared, because no chain of common candidates links them all, has
// no harshness for anyone.
func severities(w window) []severity {
	fits := make([]severity, len(w.sessions))
	for s := range fits {
		fit := w.sessions[s].severity()
		fits[s] = newSeverity(len(w.names))
		fits[s].squares, fits[s].df = fit.squares, fit.df
		for i := range fit.harshness {
			fits[s].set(w.sessions[s].reviewers[i], fit.harshness[i], fit.leverage[i], fit.low[i], fit.high[i])
		}
	}
	return fits
}

// newSeverity returns a fit in which nobody has any harshness.
func newSeverity(reviewers int) severity {
	by := matrix(4, reviewers, math.NaN())
	return severity{harshness: by[0], leverage: by[1], low: by[2], high: by[3]}
}

func (f *severity) set(reviewer int, harshness, leverage, low, high float64) {
	f.harshness[reviewer], f.leverage[reviewer], f.low[reviewer], f.high[reviewer] = harshness, leverage, low, high
}

// question is what the sessions that asked one question say of the reviewers: the
// mean of their fits. It counts once, however often it was asked.
type question struct {
	severity
	first    int     // of its sessions, the index in the window
	at       float64 // mean index of its sessions
	sessions int
}

// questions returns the questions of a stretch, ordered by the mean time of their
// sessions.
func questions(w *window, fits []severity, part stretch) []question {
	sessions := map[int][]int{} // by cluster
	for s := part.from; s < part.to; s++ {
		cluster := w.sessions[s].cluster
		sessions[cluster] = append(sessions[cluster], s)
	}
	all := make([]question, 0, len(sessions))
	for _, group := range sessions {
		q := question{severity: fits[group[0]], first: group[0], at: float64(group[0]), sessions: len(group)}
		if len(group) > 1 {
			q.severity, q.at = meanSeverity(fits, group), 0
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
func meanSeverity(fits []severity, group []int) severity {
	mean := newSeverity(len(fits[group[0]].harshness))
	for reviewer := range mean.harshness {
		var h, leverage, low, high, n float64
		for _, s := range group {
			if fit := fits[s]; !math.IsNaN(fit.harshness[reviewer]) {
				h += fit.harshness[reviewer]
				leverage += fit.leverage[reviewer]
				low += fit.low[reviewer]
				high += fit.high[reviewer]
				n++
			}
		}
		if n > 0 {
			mean.set(reviewer, h/n, leverage/n, low/n, high/n)
		}
	}
	n := 0.0
	for _, s := range group {
		if fits[s].df > 0 {
			mean.squares += fits[s].squares
			mean.df += fits[s].df
			n++
		}
	}
	if n > 0 {
		mean.squares, mean.df = mean.squares/n, mean.df/n
	}
	return mean
}

// severity returns the fit of one session, by its own reviewers.
func (x *scores) severity() severity {
	y := x.others()
	present, n := make([]int, 0, len(y)), 0 // reviewers with a score
	for i := range y {
		before := n
		for _, v := range y[i] {
			if !math.IsNaN(v) {
				n++
			}
		}
		if n > before {
			present = append(present, i)
		}
	}
	candidates := centre(y)
	if len(present) < 2 {
		return severity{}
	}

	// The normal equations of the reviewers, candidates swept out. Adding 1 to every
	// cell makes them regular and the solution's sum zero.
	normal, sums := mat.NewSymDense(len(present), nil), mat.NewVecDense(len(present), nil)
	for a, i := range present {
		for b, k := range present[:a+1] {
			shared := 1.0
			for j, count := range candidates {
				if !math.IsNaN(y[i][j]) && !math.IsNaN(y[k][j]) {
					shared -= 1 / float64(count)
					if a == b {
						shared++
					}
				}
			}
			normal.SetSym(a, b, shared)
		}
		sums.SetVec(a, nansum(y[i]))
	}
	var chol mat.Cholesky
	const singular = 1e9 // condition of equations that fall apart into two
	if !chol.Factorize(normal) || chol.Cond() > singular {
		return severity{}
	}
	var solution mat.VecDense
	var inverse mat.SymDense
	if chol.SolveVecTo(&solution, sums) != nil || chol.InverseTo(&inverse) != nil {
		return severity{}
	}
	fit := newSeverity(len(y))
	fit.df = float64(n - len(present) + 1)
	for a, i := range present {
		m := float64(len(present))
		fit.harshness[i], fit.leverage[i] = settle(solution.AtVec(a)), inverse.At(a, a)-1/(m*m)
		for j := range y[i] {
			y[i][j] -= fit.harshness[i]
		}
	}
	for _, count := range centre(y) {
		if count > 0 {
			fit.df--
		}
	}
	fit.squares = squares(y)
	fit.leaveOut(present, y, &inverse)
	return fit
}

// leaveOut sets low and high from the residuals of the scores and the inverse of the
// reviewers' normal equations. A score with residual e and leverage l moves the
// harshness of its reviewer by d e / (1-l), d being what the reviewer's harshness
// changes by a point more of that score (Cook and Weisberg, Residuals and Influence
// in Regression, 1982). Without a score that nothing else can stand in for, the
// harshness might be anything.
func (f *severity) leaveOut(present []int, residuals [][]float64, inverse *mat.SymDense) {
	for a, i := range present {
		f.low[i], f.high[i] = math.Inf(1), math.Inf(-1)
		for j, e := range residuals[i] {
			if math.IsNaN(e) {
				continue
			}
			// Of the reviewers that scored the answer: how many there are, and the sums of
			// the inverse over them and this one, and over any two of them.
			var n, row, block float64
			for b, k := range present {
				if math.IsNaN(residuals[k][j]) {
					continue
				}
				n++
				row += inverse.At(a, b)
				for c, l := range present {
					if !math.IsNaN(residuals[l][j]) {
						block += inverse.At(b, c)
					}
				}
			}
			moves := inverse.At(a, a) - row/n
			left := 1 - 1/n - (inverse.At(a, a) - 2*row/n + block/(n*n))
			without := f.harshness[i]
			switch {
			case math.Abs(moves) <= dependent: // nobody else scored the answer
			case left <= dependent:
				f.low[i], f.high[i] = math.Inf(-1), math.Inf(1)
				continue
			default:
				without = settle(without - moves*e/left)
			}
			f.low[i], f.high[i] = min(f.low[i], without), max(f.high[i], without)
		}
	}
}

// squares returns the sum of the squared values. NaN is no value.
func squares(y [][]float64) float64 {
	sum := 0.0
	for _, row := range y {
		for _, e := range row {
			if !math.IsNaN(e) {
				sum += e * e
			}
		}
	}
	return sum
}

// others returns a copy of the scores without those of own answers.
func (x *scores) others() [][]float64 {
	y := matrix(len(x.reviewers), len(x.candidates), math.NaN())
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

// centre subtracts from the values of each column their mean and returns their
// number. NaN is no value.
func centre(y [][]float64) []int {
	if len(y) == 0 {
		return nil
	}
	counts := make([]int, len(y[0]))
	for j := range counts {
		sum := 0.0
		for i := range y {
			if !math.IsNaN(y[i][j]) {
				sum += y[i][j]
				counts[j]++
			}
		}
		for i := range y {
			y[i][j] -= sum / float64(counts[j])
		}
	}
	return counts
}

func nansum(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		if !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}

// trend returns the least-squares slope of y over t, from three points in two
// clusters or more, and its standard error by leaving out one cluster at a time
// (CV3, see [sums.fit]). The error is 0 where nothing but rounding scatters about
// the line. It reports false where t is constant, also when a cluster is left out.
func trend(t, y []float64, cluster []int) (slope, se float64, ok bool) {
	centre, level := stat.Mean(t, nil), stat.Mean(y, nil)
	// Number of points, and sums of t, y, t^2 and ty, as deviations.
	var all [5]float64
	parts := map[int]*[5]float64{}
	var order []*[5]float64 // the sum of squares must not depend on the order of a map
	for k := range t {
		dt, dy := t[k]-centre, y[k]-level
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
		n, spread := sums[0], sums[3]-sums[1]*sums[1]/sums[0]
		return (sums[4] - sums[1]*sums[2]/n) / spread, n > 1 && spread > dependent*all[3]
	}
	if len(t) < 3 || constant(t) || len(order) < 2 {
		return 0, 0, false
	}
	slope, _ = slopeOf(all)
	squares, total := 0.0, 0.0
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
