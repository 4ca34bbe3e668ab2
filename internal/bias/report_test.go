package bias

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// readGolden returns what the golden file holds, after writing got to it when
// the files are to be updated.
func readGolden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// reports are one of each kind that a reader can meet. The tests of package render
// read them from the golden files.
func reports(t *testing.T) map[string]Report {
	t.Helper()
	skipping := collect(unlimited, recordsOf(7))
	skipping.Skip("records.jsonl", 12, "not_json", 1)
	skipping.Skip("records.jsonl", 31, "too_long", 1)
	skipping.Skip("records.jsonl", 40, "not_json", 1)
	ahead := record("ahead", now.AddDate(1, 0, 0), "a", "b", 5)
	skipping.Add(ahead)

	// Ids that are too long, that would steer a terminal or that hold a tab.
	odd := recordsOf(20)
	for i := range odd {
		odd[i].ReviewerID = strings.ReplaceAll(odd[i].ReviewerID, "ann/one", "ann/"+strings.Repeat("very-", 10)+"long-name#2")
		odd[i].ReviewerID = strings.ReplaceAll(odd[i].ReviewerID, "bob/", "bob\t\x1b[31m/")
		odd[i].Position = nil
	}
	lone := record(odd[0].SessionID, odd[0].Timestamp, "lone", "ann/one", 8)
	lone.Position = nil
	odd = append(odd, lone)

	return map[string]Report{
		"empty":       NewCollector(unlimited).Report(t.Context()),
		"one":         collect(unlimited, recordsOf(1)).Report(t.Context()),
		"single":      collect(unlimited, oneReviewer()).Report(t.Context()),
		"collecting":  skipping.Report(t.Context()),
		"preliminary": collect(unlimited, recordsOf(12)).Report(t.Context()),
		"moderate":    collect(Options{Now: now.In(time.FixedZone("CET", 3600)), Settings: unlimited.Settings}, recordsOf(40)).Report(t.Context()),
		"odd":         collect(unlimited, odd).Report(t.Context()),
		"flagged":     flaggedReport(t),
	}
}

// flaggedReport has headlines with members under them, a change point and an
// unusual session.
func flaggedReport(t *testing.T) Report {
	t.Helper()
	records := recordsOf(60)
	for i := range records {
		switch r := &records[i]; {
		case r.ReviewerID == "bob/two" && r.SessionID == "s000007":
			r.ScoreValue = new(1.0)
		case r.ReviewerID == "ann/one":
			r.ReviewerID = `=cmd|'<script>alert(1)</script>'`
			if i >= len(records)/2 {
				r.ScoreValue = new(max(1, *r.ScoreValue-3))
			}
		}
	}
	return collect(unlimited, records).Report(t.Context())
}

func TestReportJSON(t *testing.T) {
	for name, report := range reports(t) {
		t.Run(name, func(t *testing.T) {
			body, err := json.MarshalIndent(report, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			// The last digit of a figure may differ between processors.
			if diff := cmp.Diff(decode(t, readGolden(t, name+".json", append(body, '\n'))), decode(t, body), approx); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		})
	}
}

func decode(t *testing.T, body []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestReportFromHostileRecords holds that no record, however odd, keeps the
// report from being computed.
func TestReportFromHostileRecords(t *testing.T) {
	records := recordsOf(12)
	for i, mutate := range []func(*council.BiasMetricRecord){
		func(r *council.BiasMetricRecord) { *r = council.BiasMetricRecord{} },
		func(r *council.BiasMetricRecord) { r.Position = new(-3) },
		func(r *council.BiasMetricRecord) { r.Position = new(1 << 60) },
		func(r *council.BiasMetricRecord) { r.ResponseLengthChars = 1 << 60 },
		func(r *council.BiasMetricRecord) { r.ScoreValue, r.ScoreScale = new(1e308), "-1e308-1e308" },
		func(r *council.BiasMetricRecord) { r.ReviewerID = "\xff\x00" },
	} {
		mutate(&records[i])
	}
	report := collect(unlimited, records).Report(t.Context())
	if _, err := json.Marshal(report); err != nil {
		t.Error(err)
	}
	if last := report.Positions[len(report.Positions)-1]; last.Position != 1<<31-1 || last.Count != 1 {
		t.Errorf("last position = %+v, want the largest that is kept", last)
	}
}
