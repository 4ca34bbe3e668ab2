package daemon_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// evidenceFile writes an evidence file. It holds 40 shadow sessions, the newest first, one an hour, each with
// a label, in which the older half is of another council, and two damaged lines.
func evidenceFile(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	write := func(e store.Evidence) {
		line, err := store.EncodeEvidence(e)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(line)
	}
	for i := range 40 {
		at := time.Now().UTC().Add(-time.Duration(i) * time.Hour)
		config, choice, category := "now", council.ChoiceSynthesis, "coding"
		if i >= 20 {
			config = "before"
		}
		if i%2 == 0 {
			category = "math"
		}
		m := council.QueryMetadata{Category: &category}
		write(store.Evidence{Shadow: &council.ShadowRecord{
			SchemaVersion: council.ShadowSchema, SessionID: strconv.Itoa(i), Timestamp: at, CouncilConfig: config, Prompt: "shadow-1",
			Chairman: "a", TopModel: "b", Lengths: council.ShadowLengths{Synthesis: 5, Top: 5}, QueryMetadata: m,
			Reviewers: []council.ShadowReview{{ID: "c", First: council.ChoiceTop, Choice: &choice, Status: council.OutcomeOK}},
		}})
		write(store.Evidence{Label: &council.LabelRecord{
			SchemaVersion: council.LabelSchema, Timestamp: at, Labelled: at, CouncilConfig: config, QueryMetadata: m,
			Kept: council.Kept{SessionID: strconv.Itoa(i), Rating: new(5), By: "x"},
		}})
	}
	text.WriteString("no JSON\n{}\n")
	path := filepath.Join(t.TempDir(), "evidence.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEvidenceOfAQuery(t *testing.T) {
	path := evidenceFile(t)
	for _, c := range []struct {
		name      string
		q         bias.Query
		sessions  int // with a choice; -1: nothing is reported
		config    string
		leftOut   int
		elsewhere bool
	}{
		{"the newest council", bias.Query{}, 20, "now", 40, false},
		{"the one before", bias.Query{ConfigVersion: "before"}, 20, "before", 0, false},
		{"a category", bias.Query{Category: "math"}, 10, "now", 20, false},
		{"a language that nobody named", bias.Query{Language: "de"}, 0, "", 0, false},
		{"the newest", bias.Query{Sessions: new(3)}, 3, "now", 0, false},
		{"all of them", bias.Query{Sessions: new(0)}, 20, "now", 40, false},
		{"a day", bias.Query{Days: new(1)}, 20, "now", 8, false},
		{"since", bias.Query{Since: time.Now().Add(-90 * time.Minute)}, 2, "now", 0, false},
		{"until", bias.Query{Until: time.Now().Add(-150 * time.Minute)}, 17, "now", 40, false},
		{"a reviewer", bias.Query{Reviewer: "c"}, -1, "", 0, false},
		{"no file", bias.Query{}, -1, "", 0, true},
	} {
		file := path
		if c.elsewhere {
			file = filepath.Join(t.TempDir(), "none.jsonl")
		}
		e, err := daemon.Evidence(t.Context(), []string{file}, c.q)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			if c.sessions >= 0 {
				t.Errorf("%s: nothing", c.name)
			}
			continue
		}
		if e.Shadow.Sessions != c.sessions || e.CouncilConfig != c.config || e.LeftOut != c.leftOut || e.People.Unasked.Labels != c.sessions {
			t.Errorf("%s: %d sessions of %q, %d left out, %d labels, want %d of %q, %d", c.name, e.Shadow.Sessions, e.CouncilConfig, e.LeftOut,
				e.People.Unasked.Labels, c.sessions, c.config, c.leftOut)
		}
		want := []bias.Skipped{
			{Reason: "not_json", Count: 1, FirstFile: new("evidence.jsonl"), FirstLine: new(int64(81))},
			{Reason: "unknown_schema", Count: 1, FirstFile: new("evidence.jsonl"), FirstLine: new(int64(82))},
		}
		if diff := cmp.Diff(want, e.Skipped); diff != "" {
			t.Errorf("%s: -want +skipped:\n%s", c.name, diff)
		}
	}
}

// The report of a daemon has its evidence in each form but CSV.
func TestEvidenceInTheReport(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "DATA_DIR": filepath.Dir(evidenceFile(t))})
	var r render.FullReport
	status, data := d.Call(t, http.MethodGet, "/v1/bias-report", "")
	if err := json.Unmarshal(data, &r); err != nil || status != http.StatusOK || r.Evidence == nil || r.Evidence.Shadow.Sessions != 20 {
		t.Fatalf("%d, %v, %s", status, err, data)
	}
	for _, form := range []string{"text", "html"} {
		if _, data := d.Call(t, http.MethodGet, "/v1/bias-report?format="+form, ""); !strings.Contains(string(data), "Does the council pay?") {
			t.Errorf("as %s it lacks the evidence: %s", form, data)
		}
	}
	if _, data := d.Call(t, http.MethodGet, "/v1/bias-report?model=a", ""); strings.Contains(string(data), `"evidence"`) {
		t.Errorf("the report of one model has the evidence of all: %s", data)
	}
}
