package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/worth"
)

// TestCompareImportedRows compares the arms of graded rows as councild store import writes them.
func TestCompareImportedRows(t *testing.T) {
	dir := t.TempDir()
	table, rows := filepath.Join(dir, "table.csv"), filepath.Join(dir, "rows.jsonl")
	var text strings.Builder
	text.WriteString("id,group,score:council,score:best,score:none,cost_usd:council,cost_usd:best\n")
	for i := range 100 {
		best := 0
		if i%2 == 0 {
			best = 1
		}
		_, _ = fmt.Fprintf(&text, "q%d,,1,%d,,0.02,0.01\n", i, best)
	}
	if err := os.WriteFile(table, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, nil, "store", "import", "--from", "csv", "--in", table, "--out", rows); r.code != 0 {
		t.Fatal(r)
	}
	r := run(t, nil, "compare", "--input", rows, "--arms", "best", "--format", "json")
	var c render.Comparison
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil || r.code != 0 {
		t.Fatalf("%v: %v", err, r)
	}
	if c.Verdict != worth.Pays || c.Questions != 100 || len(c.Comparisons) != 1 || c.Comparisons[0].Interval.Estimate != 0.5 || c.PlanHash != "" {
		t.Errorf("%+v", c)
	}
	if r := run(t, nil, "compare", "--input", rows); r.code != 0 || !strings.Contains(r.stdout, "none") || strings.Contains(r.stdout, "The run cost") {
		t.Errorf("all arms: %v", r)
	}
	if r := run(t, nil, "compare", "--input", rows, "--treatment", "best", "--arms", "council", "--fail-on", "does_not_pay"); r.code != 3 {
		t.Errorf("the other way round: %v", r)
	}
	questions := filepath.Join(dir, "questions.jsonl")
	if err := os.WriteFile(questions, []byte(`{"id": "q", "query": "?"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no arm \"vote\"":           {"--input", rows, "--arms", "vote"},
		"no arm \"gpt\"":            {"--input", rows, "--treatment", "gpt"},
		"compared with other arms":  {"--input", rows, "--arms", "council"},
		"no graded rows":            {"--input", questions},
		"no such file":              {"--input", filepath.Join(dir, "missing")},
		"leave out --file":          {"--input", rows, "--file", questions},
		"--treatment needs --input": {"--treatment", "best"},
		"--max-cost-usd X":          {"--file", questions},
	} {
		if r := run(t, nil, append([]string{"compare"}, args...)...); r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("%v: %v, want %q", args, r, want)
		}
	}
}

// TestNearCopies warns of questions that are copies of others before anything is asked, and in the report.
func TestNearCopies(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "questions.jsonl"), filepath.Join(dir, "results.jsonl")
	var text strings.Builder
	for i := range 6 {
		_, _ = fmt.Fprintf(&text, `{"id": "q%d", "query": "how many minutes does a train take that leaves at %d and arrives late?", "reference": "%d"}`+"\n", i, i+1, i)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"compare", "--file", file, "--out", out, "--simulate", "--arms", "vote", "--max-cost-usd", "50", "--grader", "exact"}
	r := run(t, nil, args...)
	if want := `6 questions are copies of others up to numbers and names, such as "q`; r.code != 0 || !strings.Contains(r.stderr, want) {
		t.Errorf("%v, want %s", r, want)
	}
	if want := "errors assume that questions are independent"; !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), want) {
		t.Errorf("%v, want %s", r, want)
	}
}
