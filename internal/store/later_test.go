package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/faultdisk"
)

// laterLine returns the line of a record of a later schema: one of this schema, changed. Its fields are in no order of ours.
func laterLine(t *testing.T, id string, at time.Time, change map[string]any) string {
	t.Helper()
	fields := map[string]any{}
	r := session(id)[0]
	r.Timestamp = at
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	fields["schema_version"], fields["a_new_field"] = "2.0.0", []int{1}
	maps.Copy(fields, change)
	text, err = json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// Retention neither deletes a young record of a later schema nor keeps an old one, also where its time cannot be read: then the
// time of the file counts.
func TestRetentionOfALaterSchema(t *testing.T) {
	now, unreadable := time.Now(), map[string]any{"timestamp": 1_800_000_000}
	known := func(id string, age time.Duration) string { return dated(t, id, now.Add(-age).Sub(noon)) }
	for name, test := range map[string]struct {
		lines string
		file  time.Duration // its age
		stays bool
	}{
		"old known and young later":     {known("a", 3*time.Hour) + laterLine(t, "b", now, nil), 0, true},
		"young later and old known":     {laterLine(t, "b", now, nil) + known("a", 3*time.Hour), 0, true},
		"old known and old later":       {known("a", 3*time.Hour) + laterLine(t, "b", now.Add(-2*time.Hour), nil), 0, false},
		"young later alone":             {laterLine(t, "b", now, nil), 0, true},
		"old later alone":               {laterLine(t, "b", now.Add(-2*time.Hour), nil), 0, false},
		"a minor version":               {known("a", 3*time.Hour) + laterLine(t, "b", now, map[string]any{"schema_version": "1.6.0"}), 0, true},
		"a number as version":           {known("a", 3*time.Hour) + laterLine(t, "b", now, map[string]any{"schema_version": 2}), 0, true},
		"fields of other types":         {laterLine(t, "b", now, map[string]any{"own": 7, "session_id": 1}) + known("a", 3*time.Hour), 0, true},
		"unreadable time, young file":   {known("a", 3*time.Hour) + laterLine(t, "b", now, unreadable), 0, true},
		"unreadable time, old file":     {known("a", 3*time.Hour) + laterLine(t, "b", now, unreadable), 2 * time.Hour, false},
		"unreadable alone, old file":    {laterLine(t, "b", now, unreadable), 2 * time.Hour, false},
		"no version is no record":       {known("a", 3*time.Hour) + laterLine(t, "b", now, map[string]any{"schema_version": nil}), 0, false},
		"no version alone, old file":    {laterLine(t, "b", now, map[string]any{"schema_version": nil}), 2 * time.Hour, true},
		"young known between old later": {laterLine(t, "b", now.Add(-2*time.Hour), nil) + known("a", 0), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, compressed := range []bool{false, true} {
				path := newPath(t)
				file := path + ".000001"
				if writeFile(t, file, test.lines); compressed {
					tidy(t, path)
					file += compressedSuffix
				}
				if err := os.Chtimes(file, now, now.Add(-test.file)); err != nil {
					t.Fatal(err)
				}
				h := newHousekeeper(Options{Path: path, Disk: &faultdisk.Disk{}, Retention: time.Hour, Log: newTestLog(&strings.Builder{})})
				if err := h.tidy(t.Context()); err != nil {
					t.Error(err)
				}
				if stays := slices.ContainsFunc(names(t, path), func(name string) bool { return name != "" }); stays != test.stays {
					t.Errorf("compressed %v: the segment stays: %v", compressed, stays)
				}
			}
		})
	}
}

// A session whose records have a later schema is found, also in a segment whose summary tells of other records.
func TestSessionsOfALaterSchema(t *testing.T) {
	path := newPath(t)
	closeSegment(t, path, 1, dated(t, "a", 0)+laterLine(t, "b", noon.Add(time.Hour), nil))
	s := openWith(t, Options{Path: path})
	for id, want := range map[string]bool{"b": true, "c": false} {
		if held, err := s.Holds(t.Context(), id, noon.Add(time.Minute)); err != nil || held != want {
			t.Errorf("%s is held: %v, %v", id, held, err)
		}
	}
}

// A summary that skipped records of a schema that this program knows is not trusted, and made anew. One of a later release,
// which knows records that this program does not, is left alone.
func TestSummariesOfOtherSchemas(t *testing.T) {
	path := newPath(t)
	name := closeSegment(t, path, 1, dated(t, "a", 0)+laterLine(t, "b", noon.Add(time.Hour), nil))
	right := summaries(t, path)[filepath.Base(name)]
	if right == nil || right.Records != 3 || right.Schema != council.RecordSchema || !right.later() {
		t.Fatalf("it says %+v", right)
	}
	withFrame(t, name, func(s *SegmentSummary) []byte { // an earlier release knew none of the records
		*s = SegmentSummary{Version: s.Version, Body: s.Body, Skipped: []Skip{{Reason: ReasonUnknownSchema, Count: 4, Lines: []int64{1}}}}
		return frameOf(t, s)
	})
	if s := summaries(t, path)[filepath.Base(name)]; s != nil {
		t.Errorf("a summary of an earlier release is trusted: %+v", s)
	}
	if found, err := Verify(t.Context(), path); err != nil || found[0].SummaryErr != nil {
		t.Errorf("verify found %+v, %v", found, err)
	}
	tidy(t, path)
	if diff := cmp.Diff(right, summaries(t, path)[filepath.Base(name)]); diff != "" {
		t.Error(diff)
	}
	withFrame(t, name, func(s *SegmentSummary) []byte {
		s.Records, s.Sessions, s.Newest, s.Skipped, s.Schema = 4, 2, noon.Add(time.Hour), nil, "2.0.0"
		return frameOf(t, s)
	})
	before := content(t, name)
	tidy(t, path)
	if content(t, name) != before {
		t.Error("a summary of a later release was replaced")
	}
	if found, err := Verify(t.Context(), path); err != nil || found[0].SummaryErr != nil {
		t.Errorf("verify found %+v, %v", found, err)
	}
}

// AppendTexts writes lines as they are.
func TestAppendTexts(t *testing.T) {
	path := newPath(t)
	s := openWith(t, Options{Path: path})
	texts := [][]byte{[]byte(`{ "b":1}`), []byte(`{"session_id" : "x" }`)}
	if err := s.AppendTexts(t.Context(), texts); err != nil {
		t.Fatal(err)
	}
	if got, want := content(t, path), fmt.Sprintf("%s\t\n%s\n", texts[0], texts[1]); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	long := slices.Repeat([]byte{' '}, maxLine-1)
	if _, err := Join([][]byte{long}); err != nil {
		t.Error(err)
	}
	if err := s.AppendTexts(t.Context(), [][]byte{long, long}); err == nil || !strings.Contains(err.Error(), "record 0") {
		t.Errorf("a line that is too long: %v", err)
	}
}
