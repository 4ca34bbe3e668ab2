package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit"
)

// A part of the tables on few data sets. Bounds are 3.3 binomial standard errors wider, which one figure in a thousand leaves by
// chance; the seed is fixed.
func TestFiguresAreWithinBounds(t *testing.T) {
	testkit.Slow(t)
	for _, tt := range []struct {
		only       string
		scenarios  int
		replicates int
	}{
		{", 20 sessions", 15, 12},
		{"^one reviewer (seldom|alone) .*, 5 members, 100 sessions", 3, 24},
		{"(30 %, longer better|constant reviewer|go|tails|noise|runs|7 to 9|mix), own shown, 4 members, 50 sessions", 9, 32},
		{"^harshness, own hidden, 5 members, 50 sessions", 1, 20},
	} {
		chosen := Matching(regexp.MustCompile(tt.only))
		if len(chosen) != tt.scenarios {
			t.Errorf("%q: %d scenarios, want %d", tt.only, len(chosen), tt.scenarios)
		}
		figures, err := Run(t.Context(), io.Discard, chosen, Options{Replicates: tt.replicates, Seed: 1, Widen: 3.3})
		if err != nil {
			t.Fatal(err)
		}
		var tables strings.Builder
		if bad, err := Print(&tables, figures); err != nil || bad > 0 {
			t.Errorf("%d figures are out of bounds, %v:\n%s", bad, err, tables.String())
		}
	}
}

// A figure that is out of bounds is marked, and so is one for which nothing was counted
// although it needs a test.
func TestFiguresOutOfBounds(t *testing.T) {
	all := []Scenario{{what: "plain", members: 5, sessions: 10, lines: []line{
		{table: "a table", row: "everything is found", column: "10", low: 1, high: 1, count: favouring()},
		{table: "a table", row: "of an unknown metric", column: "10", high: 1, count: rejected("unknown")},
		{table: "a table", row: "of one that need not be tested", column: "10", high: 1, untried: true, count: rejected("unknown")},
	}}}
	figures, err := Run(t.Context(), io.Discard, all, Options{Replicates: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var tables strings.Builder
	bad, err := Print(&tables, figures)
	if err != nil || bad != 2 {
		t.Errorf("%d figures are out of bounds (%v), want 2", bad, err)
	}
	if marks := strings.Count(tables.String(), "!"); marks != 2 {
		t.Errorf("%d figures are marked, want 2: %s", marks, tables.String())
	}
}

// A few streams, of which those without a bias raise no alarm and those with one do.
func TestStreams(t *testing.T) {
	testkit.Slow(t)
	chosen := Streams(regexp.MustCompile("^streams, (plain, own hidden|harshness -0.5|shadow preference)"))
	figures, err := RunStreams(t.Context(), io.Discard, chosen, Options{Replicates: 50, Seed: 1, Widen: 2})
	if err != nil {
		t.Fatal(err)
	}
	var tables strings.Builder
	if bad, err := Print(&tables, figures); err != nil || bad > 0 || len(chosen) != 3 {
		t.Errorf("%d kinds of streams: %d figures are out of bounds, %v:\n%s", len(chosen), bad, err, tables.String())
	}
	found := 0
	for _, f := range figures {
		if f.table == tableShifts && f.column == "1000" && f.hits == f.trials {
			found++
		}
	}
	if found != 2 {
		t.Errorf("of two planted effects %d are found:\n%s", found, tables.String())
	}
}

// In simulated shadow sessions the preference is what it should be.
func TestShadowSessions(t *testing.T) {
	for _, prefer := range []float64{0.5, 0.6} {
		sum := 0.
		const streams = 20
		for seed := range uint64(streams) {
			for _, x := range (Stream{prefer: prefer}).shadow(seed) {
				sum += x / (streams * streamSessions)
			}
		}
		if sum < prefer-0.01 || sum > prefer+0.01 { // four standard errors
			t.Errorf("the preference is %v, want %v", sum, prefer)
		}
	}
}

// README.md holds the tables in full. Figures out of bounds are marked there.
func TestFiguresAreDocumented(t *testing.T) {
	var reports, comparing, monitoring []Figure
	for _, s := range scenarios() {
		for _, l := range s.lines {
			reports = append(reports, Figure{line: l})
		}
	}
	for _, c := range comparisons() {
		comparing = append(comparing, Figure{line: c.line})
	}
	for _, s := range streams() {
		for _, l := range s.lines {
			monitoring = append(monitoring, Figure{line: l.line})
		}
	}
	checkDocumented(t, reports)
	checkDocumented(t, comparing)
	checkDocumented(t, monitoring)
}

// checkDocumented fails the test unless README.md has the tables of the figures.
func checkDocumented(t *testing.T, figures []Figure) {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var tables strings.Builder
	if _, err := Print(&tables, figures); err != nil {
		t.Fatal(err)
	}
	title := strings.SplitAfter(tables.String(), "\n")[0]
	_, rest, _ := strings.Cut(string(page), "```text\n"+title)
	rest = title + rest
	share := regexp.MustCompile(`^([0-9]+\.[0-9]!?|\.)$`)
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
