// Package testkit holds what tests of several rooms share.
package testkit

import (
	"os"
	"testing"
)

// Slow skips a test that takes over a second on a quiet machine when tests are short, as in make check.
func Slow(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("it is slow")
	}
}

// Missing skips a test for a reason, such as a tool that is not installed. In make test, which installs all tools, it fails instead.
func Missing(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("COUNCILD_TESTS") == "all" {
		tb.Fatal(reason)
	}
	tb.Skip(reason)
}
