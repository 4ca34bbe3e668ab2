//go:build unix

package daemon

import (
	"math"
	"syscall"
)

// descriptors returns how many files and sockets the process may have open (ulimit -n).
func descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(limit.Cur, math.MaxInt32))
}
