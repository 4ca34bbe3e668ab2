package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// A part of the tables on few data sets, because the race detector makes a report ten
// times as slow. Bounds are 3.3 binomial standard errors
// wider, which one figure in a thousand leaves by chance; the seed is fixed.
func TestValidateStatistics(t *testing.T) {
	for _, tt := range []struct {
		only       string
		scenarios  int
		replicates int
	}{
		{"20 sessions", 13, 12},
		{"(30 %, longer better|constant reviewer|go|tails|noise|runs), own hidden, 4 members, 50 sessions", 6, 16},
		{"^harshness, own hidden, 5 members, 50 sessions", 1, 20},
	} {
		chosen := matching(regexp.MustCompile(tt.only))
		if len(chosen) != tt.scenarios {
			t.Errorf("%q: %d scenarios, want %d", tt.only, len(chosen), tt.scenarios)
		}
		figures, err := validate(t.Context(), io.Discard, chosen, validateCmd{Replicates: tt.replicates, Seed: 1, Widen: 3.3})
		if err != nil {
			t.Fatal(err)
		}
		var tables strings.Builder
		if bad, err := printTables(&tables, figures); err != nil || bad > 0 {
			t.Errorf("%d figures are out of bounds, %v:\n%s", bad, err, tables.String())
		}
	}
}

// A figure that is out of bounds, or that nothing was counted for, is told.
func TestValidationFails(t *testing.T) {
	all := []scenario{{what: "plain", members: 5, sessions: 10, lines: []line{
		{table: "a table", row: "everything is flagged", column: "10", low: 1, high: 1, count: flagged(true)},
		{table: "a table", row: "of an unknown metric", column: "10", high: 1, count: rejected("unknown")},
		{table: "a table", row: "of one that need not be tested", column: "10", high: 1, untried: true, count: rejected("unknown")},
	}}}
	figures, err := validate(t.Context(), io.Discard, all, validateCmd{Replicates: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var tables strings.Builder
	if bad, err := printTables(&tables, figures); err != nil || bad != 2 || strings.Count(tables.String(), "!") != 2 {
		t.Errorf("%d, %v: %s", bad, err, tables.String())
	}
	// An interval over two data sets covers the truth in none, in half or in all of them.
	code, stdout, stderr := command(t, "validate-statistics", "--replicates", "1", "--only", "primacy.*20 sessions")
	if code != 1 || !strings.Contains(stderr, "figures are out of bounds") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// docs/statistics.md holds the tables in full, and nothing in them is out of bounds.
func TestValidationIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/statistics.md")
	if err != nil {
		t.Fatal(err)
	}
	var figures []counted
	for _, s := range scenarios() {
		for _, l := range s.lines {
			figures = append(figures, counted{line: l})
		}
	}
	var tables strings.Builder
	if _, err := printTables(&tables, figures); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```text\n"+strings.SplitAfter(tables.String(), "\n")[0])
	rest = strings.SplitAfter(tables.String(), "\n")[0] + rest
	share := regexp.MustCompile(`^([0-9]+\.[0-9]|\.)$`)
	for layout := range strings.Lines(tables.String()) {
		var text string
		text, rest, _ = strings.Cut(rest, "\n")
		want, got := strings.Fields(layout), strings.Fields(text)
		for k := range want {
			counted := want[k] == "NaN!" || want[k] == "."
			if len(got) != len(want) || got[k] != want[k] && (!counted || !share.MatchString(got[k])) {
				t.Fatalf("the page has %q where a line such as %q belongs", text, layout)
			}
		}
	}
}
