package race

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Bubble runs f in a bubble of testing/synctest, which then has one processor if the race
// detector is on: the runtime gives all timers of a bubble one state of the detector, which
// is destroyed when two goroutines fire timers at once (golang.org/issue/78156). A test that
// calls t.Parallel cannot use it.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if Enabled {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}
