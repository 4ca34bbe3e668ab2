package stat

import (
	"math"
	"math/rand/v2"
)

// exactObjects is up to how many objects all orders are compared: 720 of six, fewer than are drawn for more.
const exactObjects = 6

// Mantel returns the correlation of two symmetric matrices of distances between the same objects, over all
// pairs of objects, and p of the hypothesis that they go together by chance against a positive correlation
// (Mantel 1967): the share of the orders of the objects of one matrix that reach that correlation. Up to six
// objects all orders count; of more, 1999 are drawn by the seed, and the order observed counts with them
// (Legendre and Legendre, Numerical Ecology, section 10.5). It reports false for fewer than three objects, and
// where the distances of a matrix do not vary.
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
	products := func() float64 { // all else in the correlation is the same for every order
		sum := 0.
		for i := range n {
			for j := range i {
				sum += x[i][j] * y[order[i]][order[j]]
			}
		}
		return sum
	}
	observed := products()
	observed -= 1e-9 * math.Abs(observed) // rounding depends on the order
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
