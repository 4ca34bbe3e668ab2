//go:build !unix

package daemon

import "math"

// descriptors returns how many files and sockets the process may have open. This system has no such limit that
// councild knows.
func descriptors() int { return math.MaxInt32 }
