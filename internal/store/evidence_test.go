package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/growth"
)

func shadow(id string) store.Evidence {
	return store.Evidence{Shadow: &council.ShadowRecord{
		SchemaVersion: council.ShadowSchema, SessionID: id, Timestamp: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Rate: 0.25,
		CouncilConfig: "review-1", Prompt: "shadow-1", Chairman: "a", TopModel: "b", Lengths: council.ShadowLengths{Synthesis: 900, Top: 700},
		Reviewers: []council.ShadowReview{
			{ID: "c", First: council.ChoiceTop, Choice: new(council.ChoiceSynthesis), Status: council.OutcomeOK},
			{ID: "d", First: council.ChoiceSynthesis, Status: council.OutcomeInvalid},
		},
	}}
}

func label(id string) store.Evidence {
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	return store.Evidence{Label: &council.LabelRecord{
		SchemaVersion: council.LabelSchema, Timestamp: at, Labelled: at.Add(time.Minute), Wanted: true, CouncilConfig: "review-1",
		Chairman: new("a"), TopModel: new("b"),
		Kept:    council.Kept{SessionID: id, Preferred: new("b"), Over: []string{"c", "synthesis"}, By: "0123456789abcdef"},
		Borda:   map[string]float64{"b": 2, "c": 0.5},
		Ballots: []council.LabelBallot{{ID: "d", Places: map[string]int{"b": 0, "c": 1}}},
	}}
}

func lineOf(t *testing.T, e store.Evidence) string {
	t.Helper()
	line, err := store.EncodeEvidence(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// What was appended is read in its order, whatever else the file holds, and each damaged line is
// named by its place and reason.
func TestEvidence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "evidence.jsonl")
	s, _, err := store.Open(store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.NewReplacer(`"choice":"synthesis"`, `"choice":"both"`)
	for _, line := range []string{
		lineOf(t, shadow("1")), "{]\n", lineOf(t, label("2")), damaged.Replace(lineOf(t, shadow("3"))),
		`{"schema_version":"shadow/2"}` + "\n", "7\n", "\xff\n", lineOf(t, shadow("4")),
	} {
		if err := keep(t, s, line); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	torn, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = torn.WriteString(`{"schema_version":"sha`)
		err = errors.Join(err, torn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	var found []store.Evidence
	var skipped []string
	for e, err := range store.ReadEvidence(t.Context(), path) {
		if bad, ok := errors.AsType[*store.LineError](err); ok {
			skipped = append(skipped, bad.File+":"+string(rune('0'+bad.Line))+" "+string(bad.Reason))
		} else if err != nil {
			t.Fatal(err)
		} else {
			found = append(found, e)
		}
	}
	if diff := cmp.Diff([]store.Evidence{shadow("1"), label("2"), shadow("4")}, found); diff != "" {
		t.Errorf("-want +found:\n%s", diff)
	}
	want := []string{
		"evidence.jsonl:2 not_json", "evidence.jsonl:4 bad_field", "evidence.jsonl:5 unknown_schema", "evidence.jsonl:6 not_an_object",
		"evidence.jsonl:7 invalid_utf8", "evidence.jsonl:9 unterminated",
	}
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Errorf("-want +skipped:\n%s", diff)
	}
}

func TestNoEvidence(t *testing.T) {
	for e, err := range store.ReadEvidence(t.Context(), filepath.Join(t.TempDir(), "none.jsonl")) {
		t.Errorf("%+v, %v", e, err)
	}
	path := filepath.Join(t.TempDir(), "evidence.jsonl")
	if err := os.WriteFile(path, []byte(lineOf(t, label("1"))), 0o600); err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for e, err := range store.ReadEvidence(gone, path) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v, want that the reader is gone", e, err)
		}
	}
}

func TestParseEvidence(t *testing.T) {
	line, labelled := lineOf(t, shadow("1")), lineOf(t, label("1"))
	for _, c := range []struct {
		line, from, to string
		want           store.Reason
	}{
		{line, "", "", ""},
		{labelled, "", "", ""},
		{line, `"rate":0.25`, `"rate":0.25,"later":[1]`, ""},
		{line, `"session_id":"1"`, `"session_id":""`, store.ReasonMissingField},
		{line, `"top_model":"b"`, `"top_model":null`, store.ReasonMissingField},
		{line, `"id":"c"`, `"id":""`, store.ReasonMissingField},
		{line, `"first":"top"`, `"first":"tie"`, store.ReasonBadField},
		{line, `"rate":0.25`, `"rate":1.5`, store.ReasonBadField},
		{line, `"rate":0.25`, `"rate":"much"`, store.ReasonBadField},
		{line, `"top":700`, `"top":-1`, store.ReasonBadField},
		{line, `"timestamp":"2026-11-20T09:00:00Z"`, `"timestamp":null`, store.ReasonBadTimestamp},
		{line, `"timestamp":"2026-11-20T09:00:00Z"`, `"timestamp":"yesterday"`, store.ReasonBadField},
		{labelled, `"by":"0123456789abcdef"`, `"by":""`, store.ReasonMissingField},
		{labelled, `"preferred":"b"`, `"preferred":null`, store.ReasonMissingField},
		{labelled, `"rating":null`, `"rating":6`, store.ReasonBadField},
		{labelled, `"labelled_at":"2026-11-20T09:01:00Z"`, `"labelled_at":null`, store.ReasonBadTimestamp},
		{"[]", "", "", store.ReasonNotAnObject},
		{"null", "", "", store.ReasonNotAnObject},
		{`{"schema_version":7}`, "", "", store.ReasonUnknownSchema},
		{"{} {}", "", "", store.ReasonNotJSON},
	} {
		text := strings.Replace(c.line, c.from, c.to, 1)
		if c.from != "" && text == c.line {
			t.Fatalf("%s is not in %s", c.from, c.line)
		}
		_, err := store.ParseEvidence([]byte(text))
		var got store.Reason
		if bad, ok := errors.AsType[*store.LineError](err); ok {
			got = bad.Reason
		}
		if got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s for %s: %v, want %q", c.to, c.from, err, c.want)
		}
	}
}

// FuzzParseEvidence checks that a record which is read is written and read again as the same.
func FuzzParseEvidence(f *testing.F) {
	for _, e := range []store.Evidence{shadow("1"), label("1")} {
		line, err := store.EncodeEvidence(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Add([]byte(`{"schema_version":"label/1"`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var e store.Evidence
		var err error
		growth.Bounded(t, len(line), func() { e, err = store.ParseEvidence(line) })
		if err != nil {
			if _, ok := errors.AsType[*store.LineError](err); !ok {
				t.Errorf("%v is not an error of a line", err)
			}
			return
		}
		again, err := store.ParseEvidence([]byte(lineOf(t, e)))
		if diff := cmp.Diff(e, again); diff != "" || err != nil {
			t.Errorf("%v, -first +second:\n%s", err, diff)
		}
	})
}
