//go:build !unix

package daemon

import "math"

// descriptors returns how many files and sockets the process may have open. councild knows no such limit on this
// system.
func descriptors() int { return math.MaxInt32 }
