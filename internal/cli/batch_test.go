package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/worth"
	"github.com/google/go-cmp/cmp"
)

// write writes a file of the test, and returns its name.
func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ended is what a command did.
type ended struct {
	code           int
	stdout, stderr string
}

// run runs a command with variables.
func run(t *testing.T, env map[string]string, args ...string) (e ended) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	e.code, e.stdout, e.stderr = command(t, args...)
	return e
}

func TestBatch(t *testing.T) {
	testkit.Slow(t)
	file, out := write(t, "q.jsonl", councild.Questions()), filepath.Join(t.TempDir(), "R")
	records := filepath.Join(t.TempDir(), "records.jsonl")
	args := []string{"batch", "--file", file, "--out", out, "--max-cost-usd", "150", "--simulate", "--records", records}
	first := run(t, nil, args...)
	if first.code != 0 || !strings.Contains(first.stdout, "60 questions, 0 without an answer, $") || !strings.Contains(first.stdout, "Right: ") {
		t.Fatalf("%+v", first)
	}
	results, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if again := run(t, nil, args...); again.code != 0 || again.stdout != first.stdout {
		t.Errorf("again: %+v", again)
	}
	if err := os.Remove(out); err != nil { // the calls are kept
		t.Fatal(err)
	}
	if again := run(t, nil, args...); again.code != 0 {
		t.Errorf("from the calls: %+v", again)
	}
	if now, err := os.ReadFile(out); err != nil || !bytes.Equal(now, results) {
		t.Errorf("the results differ: %v", err)
	}
	if r := run(t, nil, "store", "verify", records); r.code != 0 || !strings.Contains(r.stdout, "720") { // 60 sessions, each record once
		t.Errorf("%+v", r)
	}
	other := run(t, nil, append(args, "--seed", "7")...)
	if other.code != 2 || !strings.Contains(other.stderr, "differs in seed:") {
		t.Errorf("another plan: %+v", other)
	}
	for _, name := range []string{out, out + ".calls"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestBatchRefuses(t *testing.T) {
	good := write(t, "good.jsonl", []byte(`{"id":"a","query":"What?"}`))
	bad := write(t, "bad.jsonl", []byte(strings.Repeat("{\n", 25)))
	out := filepath.Join(t.TempDir(), "R")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--file", good, "--max-cost-usd", "1"}, "add --yes to start"},
		{[]string{"--file", bad, "--max-cost-usd", "1", "--yes"}, "line 20: not_json: "},
		{[]string{"--file", bad, "--max-cost-usd", "1", "--yes"}, "and 5 more"},
		{[]string{"--file", "nowhere", "--max-cost-usd", "1", "--yes"}, "name a readable file of questions"},
		{[]string{"--file", good, "--max-cost-usd", "0", "--yes"}, "write --max-cost-usd above 0"},
		{[]string{"--file", good, "--yes"}, "--max-cost-usd"},
	} {
		r := run(t, map[string]string{"LLM_COUNCIL_MODELS": "sim:amber,sim:birch"}, append([]string{"batch", "--out", out}, tt.args...)...)
		if r.code != 2 || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: %+v, want %q", tt.args, r, tt.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Fatalf("%v: something was written", tt.args)
		}
	}
}

// A limit of cost stops a run, and the same command with a higher one goes on.
func TestBatchStops(t *testing.T) {
	file, out := write(t, "q.jsonl", councild.Questions()), filepath.Join(t.TempDir(), "R")
	args := []string{"batch", "--file", file, "--out", out, "--simulate", "--max-cost-usd"}
	stopped := run(t, nil, append(args, "2")...)
	if stopped.code != 4 || !strings.Contains(stopped.stderr, "run the same command with a higher limit to continue") {
		t.Fatalf("%+v", stopped)
	}
	if done := run(t, nil, append(args, "150")...); done.code != 0 || !strings.Contains(done.stdout, "60 questions") {
		t.Errorf("%+v", done)
	}
}

// A question whose share of a tight limit did not suffice is asked once more. What comes of it is what comes of it with room
// for all, and nothing is paid for twice.
func TestBatchAsksOnceMore(t *testing.T) {
	file := write(t, "q.jsonl", bytes.Join(bytes.SplitAfter(councild.Questions(), []byte("\n"))[:12], nil))
	results, statuses := map[string][]byte{}, map[string]map[string]council.BallotStatus{}
	for _, limit := range []string{"150", "1.1"} {
		out := filepath.Join(t.TempDir(), "R")
		r := run(t, nil, "batch", "--file", file, "--out", out, "--records", out+".records", "--simulate", "--max-cost-usd", limit)
		if r.code != 0 {
			t.Fatalf("limit %s: %+v", limit, r)
		}
		var err error
		if results[limit], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
		calls, err := os.ReadFile(out + ".calls")
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for line := range bytes.Lines(calls) {
			if bytes.Contains(line, []byte(`"seat":`)) {
				count++
			}
		}
		if count != 12*9 {
			t.Errorf("limit %s: %d calls were made, want 9 for each of 12 questions", limit, count)
		}
		statuses[limit] = map[string]council.BallotStatus{}
		for record, err := range store.ReadFile(t.Context(), out+".records") {
			if err != nil {
				t.Fatal(err)
			}
			key := record.SessionID + " " + record.ReviewerID + " " + record.ModelID
			if _, twice := statuses[limit][key]; twice {
				t.Errorf("limit %s: a second record of %s", limit, key)
			}
			statuses[limit][key] = record.Status
		}
	}
	if diff := cmp.Diff(statuses["150"], statuses["1.1"]); diff != "" {
		t.Errorf("the records under a tight limit differ: %s", diff)
	}
	if !bytes.Equal(results["150"], results["1.1"]) {
		t.Error("the results under a tight limit differ")
	}
}

func TestCompare(t *testing.T) {
	testkit.Slow(t)
	file, out := write(t, "q.jsonl", councild.Questions()), filepath.Join(t.TempDir(), "R")
	args := []string{
		"compare", "--file", file, "--out", out, "--max-cost-usd", "300", "--simulate", "--arms", "best,vote,first:2,synthesis,placebo,ensemble,member:sim:dune",
	}
	asJSON := run(t, nil, append(args, "--format", "json")...)
	var c render.Comparison
	if err := json.Unmarshal([]byte(asJSON.stdout), &c); err != nil || asJSON.code != 0 {
		t.Fatal(err, asJSON)
	}
	arms := map[string]float64{}
	for _, a := range c.Arms {
		arms[a.Arm] = a.Score
	}
	if len(arms) != 11 || c.Questions != 60 || c.EnsembleCost == nil || len(c.Best.Members) != 4 || len(c.Described) != 1 ||
		len(c.Comparisons) != 6 || c.Verdict == worth.DoesNotPay && arms["council"] > arms["ranked"]+0.2 {
		t.Errorf("%v: %+v", arms, c)
	}
	if (c.RosterLine == nil) != (c.Verdict == worth.Undecided) || !strings.Contains(asJSON.stdout, `"roster_line":`) {
		t.Errorf("the verdict is %s, and the line %v", c.Verdict, c.RosterLine)
	}
	if arms["member:sim:amber"] < 0.5 || arms["member:sim:amber"] > 0.9 { // planted is .70
		t.Errorf("amber scores %v", arms["member:sim:amber"])
	}
	for format, want := range map[string]string{"text": "What is not claimed", "csv": "council", "html": "<!doctype html>"} {
		if r := run(t, nil, append(args, "--format", format)...); r.code != 0 || !strings.Contains(strings.ToLower(r.stdout), strings.ToLower(want)) {
			t.Errorf("%s: code %d: %.300s", format, r.code, r.stdout)
		}
	}
	if r := run(t, nil, append(args, "--fail-on", string(c.Verdict))...); c.Verdict != worth.Pays && r.code != 3 {
		t.Errorf("%+v", r)
	}
	seats := run(t, nil, "report", "seats", "--input", out, "--format", "json")
	var s render.Seats
	if err := json.Unmarshal([]byte(seats.stdout), &s); err != nil || len(s.Members) != 4 || s.MeanPhi == nil || s.Seats[0].Vote == nil || s.Seats[0].Ranked == nil {
		t.Errorf("%v: %+v", err, seats)
	}
	sum := 0
	for _, e := range s.EqualAnswers {
		sum += e.Questions
	}
	if len(s.EqualAnswers) < 2 || sum != 60 || s.EqualAnswers[0].Alike != 4 || s.EqualAnswers[0].Lower < 0.4 {
		t.Errorf("%+v", s.EqualAnswers)
	}
}

// A stopped comparison shows no score, and --finish ends it with what was asked.
func TestCompareStopsAndFinishes(t *testing.T) {
	file, out := write(t, "q.jsonl", councild.Questions()), filepath.Join(t.TempDir(), "R")
	args := []string{"compare", "--file", file, "--out", out, "--simulate", "--arms", "vote", "--format", "json", "--max-cost-usd"}
	stopped := run(t, nil, append(args, "1.5")...)
	data, err := os.ReadFile(out)
	if stopped.code != 4 || stopped.stdout != "" || err != nil || bytes.Contains(data, []byte(`"score":1`)) || bytes.Count(data, []byte("\n")) < 2 {
		t.Fatalf("%+v, %v", stopped, err)
	}
	if seats := run(t, nil, "report", "seats", "--input", out); seats.code != 2 || !strings.Contains(seats.stderr, "nothing is scored before") {
		t.Errorf("%+v", seats)
	}
	finished := run(t, nil, append(args, "1.5", "--finish")...)
	var c render.Comparison
	if err := json.Unmarshal([]byte(finished.stdout), &c); err != nil || !c.Stopped || c.Planned != 60 || c.Questions >= 60 || c.Questions == 0 {
		t.Fatalf("%v: %+v", err, finished)
	}
	if again := run(t, nil, append(args, "300")...); again.stdout != finished.stdout { // it is closed for good
		t.Errorf("%+v", again)
	}
}

func TestCompareJudged(t *testing.T) {
	file := write(t, "q.jsonl", []byte(`{"id":"a","query":"How would you split a service?"}`+"\n"+`{"id":"b","query":"What is a good name?"}`))
	args := []string{"compare", "--file", file, "--out", filepath.Join(t.TempDir(), "R"), "--max-cost-usd", "50", "--simulate", "--format", "json"}
	r := run(t, nil, append(args, "--arms", "member:sim:cedar", "--judges", "sim:birch?accuracy=.5")...)
	var c render.Comparison
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil || !c.Judged || len(c.Judges) != 1 || c.Reason != worth.Insufficient || len(c.Comparisons) != 2 {
		t.Errorf("%v: %+v", err, r)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--arms", "best", "--judges", "sim:birch?accuracy=.5"}, "best needs right answers"},
		{[]string{"--judges", "sim:amber"}, "have the same maker"},
		{nil, "name --judges"},
		{[]string{"--arms", "guess", "--judges", "sim:birch?accuracy=.5"}, "is not an arm"},
		{[]string{"--arms", "first:2", "--judges", "sim:birch?accuracy=.5"}, "first:2 needs right answers"},
		{[]string{"--arms", "member:nobody", "--judges", "sim:birch?accuracy=.5"}, "no seat"},
	} {
		if r := run(t, nil, append(args, tt.args...)...); r.code != 2 || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: %+v, want %q", tt.args, r, tt.want)
		}
	}
}

// Whose synthesis is preferred in shadow sessions shows in the monitor.
func TestMonitorOfShadows(t *testing.T) {
	records := filepath.Join(t.TempDir(), "records.jsonl")
	if r := run(t, nil, "store", "simulate", "--out", records, "--sessions", "120"); r.code != 0 {
		t.Fatal(r)
	}
	var version struct {
		Version string `json:"council_config_version"`
	}
	first, err := os.ReadFile(records)
	if err != nil || json.Unmarshal(bytes.SplitN(first, []byte("\n"), 2)[0], &version) != nil {
		t.Fatal(err)
	}
	var lines []byte
	for i := range 60 {
		line, err := store.EncodeEvidence(store.Evidence{Shadow: &council.ShadowRecord{
			SchemaVersion: council.ShadowSchema, SessionID: fmt.Sprintf("s%d", i), Timestamp: time.Now().UTC(), Rate: 1, CouncilConfig: version.Version,
			Prompt: "shadow-1", Chairman: "a", TopModel: "b", Lengths: council.ShadowLengths{Synthesis: 100, Top: 100},
			Reviewers: []council.ShadowReview{{ID: "c", First: council.ChoiceTop, Choice: new(council.ChoiceSynthesis), Status: council.OutcomeOK}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line...)
	}
	evidence := write(t, "evidence.jsonl", lines)
	r := run(t, nil, "report", "bias", "--monitor", "--input", records, "--evidence", evidence, "--format", "json")
	var m bias.Monitor
	if err := json.Unmarshal([]byte(r.stdout), &m); err != nil || len(m.Watched) != 8 {
		t.Fatal(err, r)
	}
	if w := m.Watched[7]; w.Clusters != 60 || w.PointEstimate == nil || *w.PointEstimate != 1 || !w.Alarm {
		t.Errorf("%+v", w)
	}
	if r := run(t, nil, "report", "bias", "--monitor", "--input", records, "--evidence", evidence, "--fail-on", "bias"); r.code != 3 {
		t.Errorf("code %d: %s", r.code, r.stderr)
	}
}
