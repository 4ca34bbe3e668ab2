package stat

import (
	"math"
	"slices"
)

// dependent is the share of its sum of squares that a column must keep when the other columns are subtracted from
// it. A column that keeps less counts as a combination of the others.
const dependent = 1e-9

// Matrix returns m rows of n cells. Each cell holds value.
func Matrix[T any](m, n int, value T) [][]T {
	rows := make([][]T, m)
	cells := slices.Repeat([]T{value}, m*n)
	for i := range rows {
		rows[i] = cells[i*n : (i+1)*n : (i+1)*n]
	}
	return rows
}

// Factor turns the lower triangle of the symmetric n x n matrix a into its Cholesky factor. A row counts as a
// combination of the rows before it if at most [dependent] of its scale remains on its diagonal. It then becomes
// zero on the diagonal and below. If scale is nil, it is the diagonal of a.
func Factor(a []float64, n int, scale []float64) {
	for k := range n {
		row := a[k*n : k*n+k+1]
		whole := row[k]
		if scale != nil {
			whole = scale[k]
		}
		d := row[k] - Dot(row[:k], row[:k])
		if d <= dependent*whole {
			d = 0
		}
		row[k] = math.Sqrt(d)
		for i := k + 1; i < n; i++ {
			below := a[i*n : i*n+k+1]
			if d == 0 {
				below[k] = 0
			} else {
				below[k] = (below[k] - Dot(below[:k], row[:k])) / row[k]
			}
		}
	}
}

// Solve replaces b by a solution of the factored system. The solution is zero in dependent rows.
func Solve(l []float64, n int, b []float64) {
	forward(l, n, b)
	back(l, n, n, b)
}

// forward replaces b by the solution of Lx = b, where L is the factor.
func forward(l []float64, n int, b []float64) {
	for i := range n {
		if l[i*n+i] == 0 {
			b[i] = 0
			continue
		}
		b[i] = (b[i] - Dot(l[i*n:i*n+i], b[:i])) / l[i*n+i]
	}
}

// back replaces the first m elements of b by the solution of L'x = b. L is the first m rows and columns of the factor.
func back(l []float64, n, m int, b []float64) {
	for i := m - 1; i >= 0; i-- {
		if l[i*n+i] == 0 {
			b[i] = 0
			continue
		}
		for k := i + 1; k < m; k++ {
			b[i] -= l[k*n+i] * b[k]
		}
		b[i] /= l[i*n+i]
	}
}

// addNull adds vv' for each combination v of the columns that a factored matrix shows to be zero. The largest
// coefficient of v is 1.
func addNull(to, l []float64, n int) {
	for d := range n {
		if l[d*n+d] != 0 {
			continue
		}
		v := make([]float64, n)
		largest := 1.
		for k := range d {
			v[k] = -l[d*n+k]
		}
		back(l, n, d, v)
		for k := range d {
			largest = max(largest, math.Abs(v[k]))
		}
		v[d] = 1
		for k := range v {
			v[k] /= largest
		}
		AddOuter(to, v)
	}
}

// AddOuter adds vv' to a square matrix.
func AddOuter(to, v []float64) {
	n := len(v)
	for i, x := range v {
		for j, y := range v {
			to[i*n+j] += x * y
		}
	}
}

// Dot returns x'y.
func Dot(x, y []float64) float64 {
	sum := 0.
	for k, v := range x {
		sum += v * y[k]
	}
	return sum
}

// Cosine returns the cosine of the angle between two vectors, -1 to 1. Neither vector may be zero.
func Cosine(x, y []float64) float64 {
	return max(-1, min(Dot(x, y)/(math.Sqrt(Dot(x, x))*math.Sqrt(Dot(y, y))), 1))
}

// Quadratic returns x'Ax.
func Quadratic(a, x []float64) float64 {
	sum := 0.
	for i, v := range x {
		if v != 0 {
			sum += v * Dot(a[i*len(x):(i+1)*len(x)], x)
		}
	}
	return sum
}

// Zeros returns n zeros. It uses the memory of x if they fit.
func Zeros(x []float64, n int) []float64 {
	if cap(x) < n {
		return make([]float64, n)
	}
	clear(x[:n])
	return x[:n]
}

// add adds the values of v to those of to.
func add(to, v []float64) {
	for k, x := range v {
		to[k] += x
	}
}

// zero reports whether all values are zero.
func zero(x []float64) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}
