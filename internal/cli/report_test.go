package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
)

// compressSegments has the store at path compress its first n closed segments.
func compressSegments(t *testing.T, path string, n int) {
	t.Helper()
	s, _, err := store.Open(store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for number := 1; number <= n; {
		if _, err := os.Stat(fmt.Sprintf("%s.%06d", path, number)); err == nil {
			runtime.Gosched()
			continue
		}
		number++
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// randomFile returns the lines of one file of a store: sessions that started around that
// many hours ago, some at another time, some in other files too; records of all schemas
// and from the future; lines that hold no record.
func randomFile(t *testing.T, rng *rand.Rand, now time.Time, age int) string {
	t.Helper()
	var text strings.Builder
	for range rng.IntN(10) {
		hours := age + rng.IntN(6)
		if rng.IntN(8) == 0 {
			hours = rng.IntN(60) - 1
		}
		id := fmt.Sprintf("s%02d", hours)
		for i := range 3 {
			for j := range 3 {
				r := council.BiasMetricRecord{
					SchemaVersion: []string{council.RecordSchema, council.RecordSchema, "1.1.0"}[rng.IntN(3)], SessionID: id,
					Timestamp:  now.Add(-time.Duration(hours) * time.Hour).UTC(),
					ReviewerID: fmt.Sprintf("maker/%d", i), ModelID: fmt.Sprintf("maker/%d", j), Position: new((i + j) % 3),
					ResponseLengthChars: 500 + rng.IntN(1000), ScoreValue: new(float64(1 + rng.IntN(10))), ScoreScale: council.ScoreScale,
					CouncilConfig: fmt.Sprintf("v%d", rng.IntN(2)), Own: i == j, NShown: 3, RankValue: new(float64((i + 2*j) % 3)), Status: council.BallotOK,
				}
				if rng.IntN(20) == 0 {
					r.Timestamp = r.Timestamp.Add(-time.Duration(rng.IntN(20)) * time.Hour)
				}
				line, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				text.Write(append(line, '\n'))
			}
		}
		if rng.IntN(3) == 0 {
			text.WriteString([]string{"{}\n", "no record\n", "null\n", "\xff\n"}[rng.IntN(4)])
		}
	}
	return text.String()
}

// The report that reads the store from the newest file back, and only what may lie in its
// window, is the report over all records in their order, with the bad lines of every file.
func TestReportReadsFromTheNewestFile(t *testing.T) {
	now := time.Now()
	passed := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		path := filepath.Join(t.TempDir(), "records.jsonl")
		files := 1 + rng.IntN(5)
		for n := range files {
			name := path
			if n < files-1 {
				name = fmt.Sprintf("%s.%06d", path, n+1)
			}
			if err := os.WriteFile(name, []byte(randomFile(t, rng, now, 6*(files-n))), 0o600); err != nil {
				t.Fatal(err)
			}
			if n == files-2 && rng.IntN(4) > 0 {
				compressSegments(t, path, n+1)
			}
		}
		for _, o := range []bias.Options{{}, {WindowSessions: 3}, {WindowSessions: 8}, {WindowDays: 1}, {WindowSessions: 2, ConfigVersion: "v1"}, {Until: now.Add(-20 * time.Hour)}} {
			o.Now = now
			want := bias.NewCollector(o)
			for record, err := range store.ReadFile(t.Context(), path) {
				if bad, ok := errors.AsType[*store.LineError](err); ok {
					want.Skip(bad.File, bad.Line, string(bad.Reason), 1)
				} else if err != nil {
					t.Fatal(err)
				} else {
					want.Add(record)
				}
			}
			got, err := collect(t.Context(), path, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Report(), got.Report()); diff != "" {
				t.Fatalf("seed %d, %+v: report (-all +from the newest):\n%s", seed, o, diff)
			}
			if diff := cmp.Diff(want.Leaderboard(true), got.Leaderboard(true)); diff != "" {
				t.Fatalf("seed %d, %+v: leaderboard (-all +from the newest):\n%s", seed, o, diff)
			}
			for f, err := range store.Files(path) {
				if s, ok := f.Summary(); err == nil && ok && got.Excludes(s.Oldest, s.Newest) {
					passed++
				}
			}
		}
	}
	if passed < 60 {
		t.Errorf("%d segments lie outside their windows, want more", passed)
	}
}

// Damage in a segment behind the window is not noticed, for nothing of it is read but its
// summary. Its bad lines are counted all the same.
func TestReportDoesNotReadBehindItsWindow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	rng := rand.New(rand.NewPCG(1, 1))
	now := time.Now()
	lastMonth := now.AddDate(0, -1, 0)
	old := randomFile(t, rng, lastMonth, 1) + randomFile(t, rng, lastMonth, 1)
	for name, text := range map[string]string{path + ".000001": old + "no record\n", path: randomFile(t, rng, now, 1) + randomFile(t, rng, now, 1)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compressSegments(t, path, 1)
	closed, err := os.ReadFile(path + ".000001.zst")
	if err != nil {
		t.Fatal(err)
	}
	clear(closed[100:200])
	if err := os.WriteFile(path+".000001.zst", closed, 0o600); err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int]bool{2: false, 0: true} {
		got, err := collect(t.Context(), path, bias.Options{Now: now, WindowDays: days})
		if err != nil {
			t.Fatal(err)
		}
		damaged, badLine := false, false
		for _, s := range got.Report().Skipped {
			damaged = damaged || s.Reason == string(store.ReasonDamaged)
			badLine = badLine || s.Reason == string(store.ReasonNotJSON)
		}
		if damaged != want {
			t.Errorf("%d days: damage noticed: %v", days, damaged)
		}
		if !badLine && !damaged {
			t.Errorf("%d days: the bad line of the segment is not counted", days)
		}
	}
}
