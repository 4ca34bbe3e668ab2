package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
)

// The table of docs/statistics.md on a few data sets of 20 sessions. Bounds are
// 3.3 binomial standard errors wider, which one line in a thousand leaves by
// chance; the seed is fixed.
func TestValidateStatistics(t *testing.T) {
	var table strings.Builder
	bad, err := validate(t.Context(), &table, scenarios(20), validateCmd{Replicates: 60, Seed: 1, Widen: 3.3})
	if err != nil {
		t.Fatal(err)
	}
	if bad > 0 {
		t.Errorf("%d lines out of bounds:\n%s", bad, table.String())
	}
}

// A line that is out of bounds, or that nothing was counted for, is told.
func TestValidationFails(t *testing.T) {
	all := []scenario{{name: "no bias", sessions: 10, order: council.OrderBalanced, lines: []line{
		{"everything is flagged", 1, 1, flagged(true)},
		{"of an unknown metric", 0, 1, rejected("unknown")},
	}}}
	var table strings.Builder
	bad, err := validate(t.Context(), &table, all, validateCmd{Replicates: 2, Seed: 1})
	if err != nil || bad != 2 || strings.Count(table.String(), "OUT OF BOUNDS") != 2 {
		t.Errorf("%d, %v: %s", bad, err, table.String())
	}
	// An interval over one data set covers the truth in no or in all of them.
	if code, stdout, stderr := command(t, "validate-statistics", "--replicates", "1"); code != 1 || !strings.Contains(stderr, "lines are out of bounds") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// docs/statistics.md holds the table in full.
func TestValidationIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/statistics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Validation\n")
	for _, s := range scenarios(20, 50, 100) {
		heading := s.heading(2000) + "\n"
		_, after, ok := strings.Cut(rest, heading)
		if !ok {
			t.Fatalf("the page lacks %q", heading)
		}
		rest = after
		for _, l := range s.lines {
			text, after, _ := strings.Cut(rest, "\n")
			if !strings.HasPrefix(text, "  "+l.what+" ") || !strings.HasSuffix(text, fmt.Sprintf("[%.1f, %.1f]  ok", 100*l.low, 100*l.high)) {
				t.Fatalf("under %q the page has %q for %s", heading, text, l.what)
			}
			rest = after
		}
	}
}
