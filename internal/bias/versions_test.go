package bias

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
)

// served30 returns 30 sessions, an hour apart, in which bob/two is served as the versions say: one digit for each session.
func served30(versions string) []council.BiasMetricRecord {
	records := recordsOf(len(versions))
	for k := range records {
		r := &records[k]
		version := new("two-" + versions[k/12:k/12+1])
		if r.ReviewerID == "bob/two" {
			r.ModelVersions.Reviewer = version
		}
		if r.ModelID == "bob/two" {
			r.ModelVersions.Candidate = version
		}
	}
	return records
}

// TestVersionChanges holds which changes of a version the report lists, and that a change of scores at that time names the version.
func TestVersionChanges(t *testing.T) {
	at := func(session int) time.Time { return now.Add(time.Duration(session-30) * time.Hour) }
	for _, tc := range []struct {
		versions string
		want     []VersionChange
	}{
		{strings.Repeat("1", 30), []VersionChange{}},
		{strings.Repeat("1", 20) + strings.Repeat("2", 10), []VersionChange{{"bob/two", "two-1", "two-2", at(20), 10}}},
		{ // rolled back
			strings.Repeat("1", 10) + strings.Repeat("2", 5) + strings.Repeat("1", 15),
			[]VersionChange{{"bob/two", "two-1", "two-2", at(10), 5}, {"bob/two", "two-2", "two-1", at(15), 15}},
		},
		{ // by turns
			strings.Repeat("12", 15),
			[]VersionChange{{"bob/two", "two-1", "two-2", at(1), 15}, {"bob/two", "two-2", "two-1", at(2), 14}},
		},
	} {
		records := served30(tc.versions)
		if diff := cmp.Diff(tc.want, collect(unlimited, records).Report(t.Context()).Versions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.versions, diff)
		}
		later, earlier := collect(unlimited, records[180:]), collect(unlimited, records[:180])
		later.AddBefore(earlier)
		if diff := cmp.Diff(tc.want, later.Report(t.Context()).Versions); diff != "" {
			t.Errorf("%s, of two files (-want +got):\n%s", tc.versions, diff)
		}
	}
	if v := collect(unlimited, recordsOf(30)).Report(t.Context()).Versions; v == nil || len(v) > 0 {
		t.Errorf("without versions: %+v", v)
	}
}

// TestVersionBesideChange holds that the new version stands beside a change of the scores that it explains.
func TestVersionBesideChange(t *testing.T) {
	records := served30(strings.Repeat("1", 30) + strings.Repeat("2", 30))
	for k := range records {
		if r := &records[k]; r.ReviewerID == "bob/two" && k >= 30*12 {
			r.ScoreValue = new(max(1, *r.ScoreValue-3))
		}
	}
	r := collect(unlimited, records).Report(t.Context())
	k := slices.IndexFunc(r.ChangePoints, ChangePoint.Found)
	if k < 0 || !slices.ContainsFunc(r.ChangePoints[k].AlsoChanged, func(a Alongside) bool {
		return a.What == AlongsideVersion && a.Name == "two-2 of bob/two" && a.Before == "0 %"
	}) {
		t.Errorf("change points: %+v", r.ChangePoints)
	}
}

// TestModelVersionFilter holds that the filter takes the records whose reviewer or candidate is of the version, in whatever order they came.
func TestModelVersionFilter(t *testing.T) {
	records := served30(strings.Repeat("1", 20) + strings.Repeat("2", 10))
	for version, want := range map[string][2]int{
		"two-1": {20, 20 * 6}, "two-2": {10, 10 * 6}, "two": {0, 0}, "": {30, 30 * 12}, // three that it gave, and three that it got
	} {
		o := unlimited
		o.ModelVersion = version
		r := collect(o, records).Report(t.Context())
		if got := [2]int{r.Window.Sessions, r.Window.Records}; got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
		if version == "two-1" && !strings.Contains(r.Headline, "model version two-1") && !strings.HasPrefix(r.Headline, "Nothing proven") {
			t.Errorf("headline: %s", r.Headline)
		}
	}
}

// Where a filter leaves too few sessions for figures, the report says what it left out.
func TestWhatFiltersLeaveOut(t *testing.T) {
	records := served30(strings.Repeat("1", 30)) // of four members, 12 records a session
	for i := range records {
		if records[i].CouncilConfig = "v1"; i >= 27*12 {
			records[i].CouncilConfig = "v2"
		}
	}
	v1 := []Filter{{Field: "config_version", Asked: "v2", Matches: []string{}, Present: []string{"v1"}, LeftOut: 27 * 12}}
	ask := func(q Query) Options {
		o := unlimited
		o.ConfigVersion, o.ModelVersion, o.Category = q.ConfigVersion, q.ModelVersion, q.Category
		return o
	}
	for name, tc := range map[string]struct {
		query Query
		want  []Filter
	}{
		"a new council":      {Query{ConfigVersion: "v2"}, v1},
		"enough sessions":    {Query{ConfigVersion: "v1"}, nil},
		"no filter":          {Query{}, nil},
		"an unknown version": {Query{ModelVersion: "two"}, []Filter{{Field: "model_version", Asked: "two", Matches: []string{}, Present: []string{"two-1"}, LeftOut: 360}}},
		"no category":        {Query{Category: "math"}, []Filter{{Field: "category", Asked: "math", Matches: []string{}, Present: []string{}, LeftOut: 360}}},
	} {
		got := collect(ask(tc.query), records).Report(t.Context())
		if diff := cmp.Diff(tc.want, got.Filters); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	later, earlier := collect(ask(Query{ConfigVersion: "v2"}), records[100:]), collect(ask(Query{ConfigVersion: "v2"}), records[:100])
	later.AddBefore(earlier)
	if diff := cmp.Diff(v1, later.Report(t.Context()).Filters); diff != "" {
		t.Error("read in two parts:", diff)
	}
	if diff := cmp.Diff(v1, later.Monitor(t.Context(), nil).Filters); diff != "" {
		t.Error("monitor:", diff)
	}
	if diff := cmp.Diff(v1, later.Leaderboard(council.PolicyAvailable).Filters); diff != "" {
		t.Error("leaderboard:", diff)
	}
	full := ask(Query{ConfigVersion: "v2"})
	full.WindowSessions = 3
	if got := collect(full, records).Report(t.Context()).Filters; got != nil {
		t.Errorf("what was read depends on how the store is read, but is counted: %+v", got)
	}
}
