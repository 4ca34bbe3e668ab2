package main

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit"
)

// validate runs the command and returns its exit code and what it printed.
func validate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, progress strings.Builder
	code = command(t.Context(), args, &out, &progress)
	return code, out.String(), progress.String()
}

// The shares of two worlds, on few data sets with bounds that are wide enough for them.
func TestValidationOfComparisons(t *testing.T) {
	testkit.Slow(t)
	code, stdout, stderr := validate(t, "-worth", "-replicates", "40", "-widen", "4", "-only", " (50|100) questions")
	if code != 0 || !strings.Contains(stdout, "pays, +15 points, one comparator") || strings.Contains(stdout, "400") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"-worth", "-only", "no such"}, exitUsage, "matches no scenario"},
		{[]string{"-only", "("}, exitUsage, "-only"},
		{[]string{"-replicates", "0"}, exitUsage, "-replicates"},
		{[]string{"-replicates", "9223372036854775807"}, exitUsage, "-replicates"},
		{[]string{"-widen", "-1"}, exitUsage, "-widen"},
		{[]string{"more"}, exitUsage, "-replicates"},
		{[]string{"-nothing"}, exitUsage, "-nothing"},
		{[]string{"-help"}, 0, "-replicates"},
	} {
		if code, _, stderr := validate(t, tc.args...); code != tc.code || !strings.Contains(stderr, tc.stderr) {
			t.Errorf("%v: exit %d: %s", tc.args, code, stderr)
		}
	}
}

func TestValidationFails(t *testing.T) {
	// An interval over two data sets covers the truth in none, in half or in all of them.
	code, stdout, stderr := validate(t, "-replicates", "1", "-only", "primacy.*20 sessions")
	if code != exitFailure || !strings.Contains(stderr, "figures are out of bounds") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
