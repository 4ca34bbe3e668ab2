package stat

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// TwoWay is the least-squares fit of additive effects of rows and columns to a table (for incomplete tables Yates
// 1934). Each slice has an element for each row, which is NaN if the row has no value.
type TwoWay struct {
	Effect []float64 // what a row adds to a value; the effects sum to zero
	// Leverage is the variance of the effect by chance, divided by the variance of one value.
	Leverage []float64
	// Low and High are the least and the greatest effect of a row if any one of its values is left out.
	Low, High []float64
	Squares   float64 // the sum of squared residuals
	DF        float64 // degrees of freedom of the residuals
	// ColumnSquares is the sum of squared residuals if only columns are fitted.
	ColumnSquares float64
}

// NewTwoWay returns a fit in which the effect of no row is known.
func NewTwoWay(rows int) TwoWay {
	by := Matrix(4, rows, math.NaN())
	return TwoWay{Effect: by[0], Leverage: by[1], Low: by[2], High: by[3]}
}

// FitTwoWay fits a table and replaces its values by the residuals. NaN stands for a missing value. No effect is
// known if fewer than two rows have a value, or if no chain of common columns links the rows.
func FitTwoWay(y [][]float64) TwoWay {
	fit := NewTwoWay(len(y))
	present, n := known(y)
	columns := CentreColumns(y)
	fit.ColumnSquares = Squares(y)
	if len(present) < 2 {
		return fit
	}
	normal, sums := normalEquations(y, present, columns)
	var chol mat.Cholesky
	const singular = 1e9 // a condition number above this means that the equations fall into separate parts
	if !chol.Factorize(normal) || chol.Cond() > singular {
		return fit
	}
	var solution mat.VecDense
	var inverse mat.SymDense
	if chol.SolveVecTo(&solution, sums) != nil || chol.InverseTo(&inverse) != nil {
		return fit
	}
	m := float64(len(present))
	fit.DF = float64(n) - m + 1
	for a, i := range present {
		fit.Effect[i] = Round(solution.AtVec(a))
		fit.Leverage[i] = inverse.At(a, a) - 1/(m*m)
		for j := range y[i] {
			y[i][j] -= fit.Effect[i]
		}
	}
	for _, count := range CentreColumns(y) {
		if count > 0 {
			fit.DF--
		}
	}
	fit.Squares = Squares(y)
	fit.leaveOneOut(present, y, &inverse)
	return fit
}

// known searches a table for values that are not NaN. It returns the rows that have such a value, and the number of
// these values.
func known(y [][]float64) (rows []int, values int) {
	rows = make([]int, 0, len(y))
	for i := range y {
		before := values
		for _, v := range y[i] {
			if !math.IsNaN(v) {
				values++
			}
		}
		if values > before {
			rows = append(rows, i)
		}
	}
	return rows, values
}

// normalEquations returns the normal equations of the row effects, with the column effects eliminated. The argument
// columns holds the number of values in each column. Adding 1 to every cell makes the equations regular and the sum
// of the solution zero.
func normalEquations(y [][]float64, rows, columns []int) (*mat.SymDense, *mat.VecDense) {
	normal := mat.NewSymDense(len(rows), nil)
	sums := mat.NewVecDense(len(rows), nil)
	for a, i := range rows {
		for b, k := range rows[:a+1] {
			shared := 1.0
			for j, count := range columns {
				if !math.IsNaN(y[i][j]) && !math.IsNaN(y[k][j]) {
					shared -= 1 / float64(count)
					if a == b {
						shared++
					}
				}
			}
			normal.SetSym(a, b, shared)
		}
		sums.SetVec(a, NaNSum(y[i]))
	}
	return normal, sums
}

// MeanTwoWay returns the mean of fits with the same rows. The mean of a row is over the fits in which its effect is
// known. The mean of the residuals is over the fits that have residuals.
func MeanTwoWay(fits []TwoWay) TwoWay {
	lists := func(f TwoWay) [4][]float64 { return [4][]float64{f.Effect, f.Leverage, f.Low, f.High} }
	by := Matrix(4, len(fits[0].Effect), 0.)
	mean := TwoWay{Effect: by[0], Leverage: by[1], Low: by[2], High: by[3]}
	known := make([]float64, len(fits[0].Effect))
	n := 0.0
	for _, f := range fits {
		for row, effect := range f.Effect {
			if math.IsNaN(effect) {
				continue
			}
			known[row]++
			for k, list := range lists(f) {
				by[k][row] += list[row]
			}
		}
		if f.DF > 0 {
			mean.Squares += f.Squares
			mean.DF += f.DF
			n++
		}
	}
	for _, list := range by {
		for row := range list {
			// This is NaN if the effect of the row is not known in any fit.
			list[row] /= known[row]
		}
	}
	mean.Squares /= max(1, n)
	mean.DF /= max(1, n)
	return mean
}

// leaveOneOut sets Low and High from the residuals of the values and the inverse of the rows' normal equations. If a
// value has residual e and leverage l, leaving it out moves the effect of its row by d e / (1-l). d is the change of
// the effect if that value rises by one unit (Cook and Weisberg, Residuals and Influence in Regression, 1982). If no
// other value determines the effect, it may be anything from -Inf to +Inf.
func (f *TwoWay) leaveOneOut(present []int, residuals [][]float64, inverse *mat.SymDense) {
	for a, i := range present {
		f.Low[i] = math.Inf(1)
		f.High[i] = math.Inf(-1)
		for j, e := range residuals[i] {
			if math.IsNaN(e) {
				continue
			}
			// n counts the rows with a value in the column. row is the sum of the inverse's elements for row i and
			// each of these rows. block is the sum of its elements for each two of these rows.
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
			without := f.Effect[i]
			switch {
			case math.Abs(moves) <= dependent: // no other row has a value in the column
			case left <= dependent:
				f.Low[i] = math.Inf(-1)
				f.High[i] = math.Inf(1)
				continue
			default:
				without = Round(without - moves*e/left)
			}
			f.Low[i] = min(f.Low[i], without)
			f.High[i] = max(f.High[i], without)
		}
	}
}

// Squares returns the sum of the squared values. NaN stands for a missing value.
func Squares(y [][]float64) float64 {
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

// CentreColumns subtracts from the values of each column their mean. It returns the number of values in each
// column. NaN stands for a missing value.
func CentreColumns(y [][]float64) []int {
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

// NaNSum returns the sum of the values. NaN stands for a missing value.
func NaNSum(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		if !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}
