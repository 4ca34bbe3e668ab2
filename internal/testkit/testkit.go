// Package testkit decides when tests of all packages are skipped, and compares prompts with golden files. Its
// subpackages have simulators, faulty disks and networks that tests of several packages share.
package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Slow skips a slow test if tests run with -short, as in make check. A test is slow if it takes over a second on an
// idle machine.
func Slow(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("it is slow")
	}
}

// Missing skips a test for a reason, such as a tool that is not installed. In make test, which installs all tools, the
// test fails instead.
func Missing(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("COUNCILD_TESTS") == "all" {
		tb.Fatal(reason)
	}
	tb.Skip(reason)
}

// Program returns the path of a program. Missing decides about the test if the program is not installed.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	for _, place := range []string{name, "/usr/sbin/" + name} { // Not every user's PATH has /usr/sbin.
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	Missing(tb, name+" is not installed: run tools/programs.sh")
	return ""
}

// Prompt compares a prompt with the golden file of its version in testdata. If update is true, Prompt writes the file
// of a new version. It never changes an existing file, because a changed prompt needs a new version.
func Prompt(tb testing.TB, update bool, file, prompt string) {
	tb.Helper()
	golden := filepath.Join("testdata", file+".golden")
	if _, err := os.Stat(golden); update && os.IsNotExist(err) {
		if err := os.WriteFile(golden, []byte(prompt), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		tb.Fatal(err)
	}
	if prompt != string(want) {
		tb.Errorf("the prompt is not that of %s: raise its version, then run the test with -update\n%s", golden, prompt)
	}
}
