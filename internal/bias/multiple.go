package bias

import (
	"cmp"
	"slices"
)

// benjaminiHochberg returns the q values of a family of p values, in their order:
// of m tests, the one with the k-th smallest p gets the least of p m/k over it and
// those behind it (Benjamini and Hochberg 1995).
func benjaminiHochberg(p []float64) []float64 {
	order := make([]int, len(p)) // by p, the greatest first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(p[b], p[a]) })
	q, least := make([]float64, len(p)), 1.0
	for rank, i := range order {
		least = min(least, p[i]*(float64(len(p))/float64(len(p)-rank))) // never below p
		q[i] = least
	}
	return q
}
