package cli

import (
	"strings"
	"testing"
)

func TestValidationFails(t *testing.T) {
	// An interval over two data sets covers the truth in none, in half or in all of them.
	code, stdout, stderr := command(t, "validate-statistics", "--replicates", "1", "--only", "primacy.*20 sessions")
	if code != 1 || !strings.Contains(stderr, "figures are out of bounds") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
