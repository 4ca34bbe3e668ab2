// Package growth is for tests. It checks that work on a text takes time proportional to the length of the text.
//
// It measures the processor time of the whole process, which a busy machine affects less
// than the wall clock. Other goroutines of the process count too, so a measurement that
// is too slow is repeated. The tests check that the result of the work is correct.
package growth

import (
	"syscall"
	"testing"
	"time"
)

// Linear compares texts of these sizes, in bytes.
const (
	Small = 128 << 10
	Large = 1 << 20
)

// attempts is how many measurements must be too slow before the test fails.
const attempts = 5

// Linear fails the test if the work on a text of Large bytes takes far more than Large/Small times the time of a text
// of Small bytes. Quadratic work would take the square of that factor. The function before returns the work on a text
// of n bytes. The time of before itself is not measured. Linear returns the time for Large.
func Linear(tb testing.TB, before func(n int) (work func())) time.Duration {
	tb.Helper()
	return LinearTo(tb, Large, before)
}

// LinearTo is Linear with the argument most in place of Large, for texts that must be shorter.
func LinearTo(tb testing.TB, most int, before func(n int) (work func())) time.Duration {
	tb.Helper()
	const disturbance, times = 100 * time.Millisecond, Large / Small
	few := before(most / times)
	many := before(most)
	var small, large time.Duration
	for range attempts {
		small = Took(tb, few)
		large = Took(tb, many)
		if large <= 4*times*small+disturbance {
			return large
		}
	}
	tb.Errorf("%d times the bytes take %s instead of %s", times, large, small)
	return large
}

// Bounded fails the test if the work on n bytes takes far longer than any linear work. The limit is 0.2 s plus one
// second for each MiB. It is meant for fuzzing.
func Bounded(tb testing.TB, n int, work func()) {
	tb.Helper()
	limit := 200*time.Millisecond + time.Duration(n)*time.Second/(1<<20)
	var took time.Duration
	for range attempts {
		if took = Took(tb, work); took <= limit {
			return
		}
	}
	tb.Errorf("%d bytes took %s", n, took)
}

// Took returns how much processor time all threads of the process use during the work.
func Took(tb testing.TB, work func()) time.Duration {
	tb.Helper()
	start := cpu(tb)
	work()
	return cpu(tb) - start
}

func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
