package cli

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit"
)

// The shares of two worlds, on few data sets with bounds that are wide enough for them.
func TestValidationOfComparisons(t *testing.T) {
	testkit.Slow(t)
	code, stdout, stderr := command(t, "validate-statistics", "--worth", "--replicates", "40", "--widen", "4", "--only", " (50|100) questions")
	if code != 0 || !strings.Contains(stdout, "pays, +15 points, one comparator") || strings.Contains(stdout, "400") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	code, _, stderr = command(t, "validate-statistics", "--worth", "--only", "no such")
	if code != exitUsage || !strings.Contains(stderr, "matches no scenario") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestValidationFails(t *testing.T) {
	// An interval over two data sets covers the truth in none, in half or in all of them.
	code, stdout, stderr := command(t, "validate-statistics", "--replicates", "1", "--only", "primacy.*20 sessions")
	if code != 1 || !strings.Contains(stderr, "figures are out of bounds") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
