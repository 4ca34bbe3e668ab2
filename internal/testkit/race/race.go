// Package race is for tests that the race detector watches: those that simulate or compute for long, and those in
// bubbles of testing/synctest.
//
// The detector makes arithmetic five to ten times as slow and finds nothing in it that a few data sets
// do not show. So such tests make fewer of them under -race, with bounds that fit the smaller number.
// `make test` runs their packages once more without -race, at full size. Tests with package growth have
// shorter texts under -race, and run once more too: the Makefile knows them by their names.
package race

// Fewer returns n, and under the race detector a fifth of it.
func Fewer(n int) int { return n / Slowness }
