package bias

import (
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
	squares   float64   // sum of squared residuals
	df        int       // their degrees of freedom
}

// severities returns the fit of each session. A session in which the reviewers
// cannot be compared, because no chain of common candidates links them all, has
// no harshness for anyone.
func severities(w window) []severity {
	fits := make([]severity, len(w.sessions))
	for s := range fits {
		fits[s] = w.sessions[s].severity()
		by := matrix(2, len(w.names), math.NaN())
		for i, h := range fits[s].harshness {
			member := w.sessions[s].reviewers[i]
			by[0][member], by[1][member] = h, fits[s].leverage[i]
		}
		fits[s].harshness, fits[s].leverage = by[0], by[1]
	}
	return fits
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
	fit := severity{df: n - len(present) + 1}
	both := matrix(2, len(y), math.NaN())
	fit.harshness, fit.leverage = both[0], both[1]
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
	return fit
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

// trend returns the least-squares slope of y over t and its standard error, from
// at least three points. It reports false where t, or the deviation of y from the
// line, is constant but for rounding.
func trend(t, y []float64) (slope, se float64, ok bool) {
	if len(t) < 3 || constant(t) {
		return 0, 0, false
	}
	intercept, slope := stat.LinearRegression(t, y, nil, false)
	squares, total := 0.0, 0.0
	for k := range t {
		e := y[k] - intercept - slope*t[k]
		squares += e * e
		total += y[k] * y[k]
	}
	n := float64(len(t))
	if squares <= 1e-24*total {
		return slope, 0, false
	}
	return slope, math.Sqrt(squares / (n - 2) / (stat.Variance(t, nil) * (n - 1))), true
}
