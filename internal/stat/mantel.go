package stat

import (
	"math"
	"math/rand/v2"
)

// exactObjects is the largest number of objects for which all orders are compared. Six objects have 720 orders, and
// for more objects 1999 orders are drawn.
const exactObjects = 6

// Mantel returns the correlation of two symmetric matrices of distances between the same objects, over all pairs of
// objects. p is for the hypothesis that the two matrices correlate only by chance, against a positive correlation
// (Mantel 1967). Mantel reorders the objects of one matrix. p is the share of these orders for which the correlation is
// at least as large as for the given order. With up to six objects, Mantel takes all orders. With more objects, it
// draws 1999 random orders from the seed, and the given order counts too (Legendre and Legendre, Numerical Ecology,
// section 10.5). Mantel returns false for fewer than three objects, and if the distances of a matrix do not vary.
func Mantel(x, y [][]float64, seed uint64) (r, p float64, ok bool) {
	n := len(x)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var a, b []float64
	for i := range n {
		a = append(a, x[i][:i]...)
		b = append(b, y[i][:i]...)
	}
	if r, ok = Pearson(a, b); !ok {
		return 0, 0, false
	}
	// products returns the only part of the correlation that depends on the order.
	products := func() float64 {
		sum := 0.
		for i := range n {
			for j := range i {
				sum += x[i][j] * y[order[i]][order[j]]
			}
		}
		return sum
	}
	observed := products()
	observed -= 1e-9 * math.Abs(observed) // rounding errors depend on the order
	reached := 0
	all := 0
	count := func() {
		all++
		if products() >= observed {
			reached++
		}
	}
	if n <= exactObjects {
		permute(order, n, count)
		return r, float64(reached) / float64(all), true
	}
	count()
	random := rand.NewPCG(seed, 1)
	for range permutations {
		for i := n - 1; i > 0; i-- {
			j := below(i+1, random)
			order[i], order[j] = order[j], order[i]
		}
		count()
	}
	return r, float64(reached) / float64(all), true
}

// permute calls visit with each order of the first n elements (Heap 1963).
func permute(order []int, n int, visit func()) {
	if n <= 1 {
		visit()
		return
	}
	for i := range n {
		permute(order, n-1, visit)
		k := 0
		if n%2 == 0 {
			k = i
		}
		order[k], order[n-1] = order[n-1], order[k]
	}
}
