// Package growth tests that work on text takes time in proportion to the text.
//
// It measures the processor time of the whole process, which a busy machine distorts
// less than the clock. Others of the process count too, so what looks too slow is
// measured again.
package growth

import (
	"syscall"
	"testing"
	"time"
)

// The sizes, in bytes, that Linear compares.
const (
	Small = 128 << 10
	Large = 1 << 20
)

// attempts is how often a measurement is made before it counts as too slow.
const attempts = 5

// Linear fails the test when the work on a text of Large takes far more than
// Large/Small times what it takes on one of Small. Quadratic work would take the
// square of that. Before returns the work on a text of n bytes, made before the
// measurement. It returns the time for Large.
func Linear(tb testing.TB, before func(n int) (work func())) time.Duration {
	tb.Helper()
	const disturbance = 100 * time.Millisecond
	few, many := before(Small), before(Large)
	var small, large time.Duration
	for range attempts {
		small, large = Took(tb, few), Took(tb, many)
		if large <= 4*Large/Small*small+disturbance {
			return large
		}
	}
	tb.Errorf("%d times the bytes take %s instead of %s", Large/Small, large, small)
	return large
}

// Bounded fails the test when the work on n bytes takes far longer than anything
// linear would: 0.2 s and a second for each MiB. It is meant for fuzzing.
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

// Took returns the processor time of the process, in all its threads, during the
// work.
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
