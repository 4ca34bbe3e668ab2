//go:build !race

package race

// Enabled reports whether the race detector is on.
const Enabled = false

// Slowness divides how much tests do: nothing is left out.
const Slowness = 1
