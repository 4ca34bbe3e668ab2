package race

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Bubble runs the function f in a bubble of testing/synctest. If the race detector is on, the process uses only one
// processor during f, because the runtime keeps one state of the detector for all timers of a bubble, and two
// goroutines that fire timers at once corrupt it (golang.org/issue/78156). A parallel test must not use Bubble, because
// the number of processors belongs to the whole process.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if Enabled {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}
