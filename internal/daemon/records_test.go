package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
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
			// Not at once: the test runner logs each look, and a test limits the size of files.
			<-time.After(time.Millisecond)
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
					Timestamp: now.Add(-time.Duration(hours) * time.Hour).UTC(), CouncilConfig: fmt.Sprintf("v%d", rng.IntN(2)),
					ReviewerID: fmt.Sprintf("maker/%d", i), ModelID: fmt.Sprintf("maker/%d", j), Own: i == j,
					Position: new((i + j) % 3), NShown: 3, ResponseLengthChars: 500 + rng.IntN(1000), ScoreScale: council.ScoreScale,
					ScoreValue: new(float64(1 + rng.IntN(10))), RankValue: new(float64((i + 2*j) % 3)), Status: council.BallotOK,
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
	testkit.Slow(t)
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
		for _, o := range []bias.Options{
			{},
			{WindowSessions: 3},
			{WindowSessions: 8},
			{WindowDays: 1},
			{WindowSessions: 2, Query: bias.Query{ConfigVersion: "v1"}},
			{Query: bias.Query{Until: now.Add(-20 * time.Hour)}},
		} {
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
			got, err := collect(t.Context(), []string{path}, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Report(t.Context()), got.Report(t.Context())); diff != "" {
				t.Fatalf("seed %d, %+v: report (-all +from the newest):\n%s", seed, o, diff)
			}
			if diff := cmp.Diff(want.Leaderboard(council.PolicyTiedLast), got.Leaderboard(council.PolicyTiedLast)); diff != "" {
				t.Fatalf("seed %d, %+v: leaderboard (-all +from the newest):\n%s", seed, o, diff)
			}
			for f, err := range store.Files(path) {
				if s, summaryErr := f.Summary(); err == nil && summaryErr == nil && got.Excludes(s.Oldest, s.Newest) {
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
	fresh := randomFile(t, rng, now, 1) + randomFile(t, rng, now, 1)
	for name, text := range map[string]string{path + ".000001": old + "no record\n", path: fresh} {
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
		got, err := collect(t.Context(), []string{path}, bias.Options{Now: now, WindowDays: days})
		if err != nil {
			t.Fatal(err)
		}
		damaged, badLine := false, false
		for _, s := range got.Report(t.Context()).Skipped {
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

// BenchmarkReportWindow measures the report over the newest 100 sessions of a store as a
// daemon leaves it: behind them lie a thousand sessions, or a million records, most of
// them in closed segments. The reviewers differ in how far they spread their scores, so
// that the second fit works too. The metric reading-cpu-ms is the processor time of
// reading alone.
func BenchmarkReportWindow(b *testing.B) {
	for _, old := range []int{1000, 83_334} {
		b.Run(fmt.Sprintf("old=%d", 12*old), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "records.jsonl")
			s, _, err := store.Open(store.Options{Path: path, Fsync: council.FsyncOff, RotateBytes: 64 << 20})
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(11, 0))
			for i := range old + 100 {
				start := time.Now().Add(time.Duration(i-old-100) * time.Second)
				if err := s.Append(b.Context(), benchSession(rng, i, start)); err != nil {
					b.Fatal(err)
				}
			}
			for open := []string{""}; len(open) > 0; <-time.After(time.Millisecond) {
				open, _ = filepath.Glob(path + ".[0-9][0-9][0-9][0-9][0-9][0-9]")
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			cfg := config.Config{Records: config.Records{MinBiasSessions: 20}}
			b.ReportAllocs()
			for b.Loop() {
				r, err := Report(b.Context(), cfg, []string{path}, bias.Query{Sessions: new(100)})
				if err != nil || r.Window.Sessions != 100 || r.Window.Records != 1200 || len(r.Skipped) > 0 {
					b.Fatal(r.Window, r.Skipped, err)
				}
			}
			reading := growth.Took(b, func() {
				for range b.N {
					if _, err := collect(b.Context(), []string{path}, bias.Options{Now: time.Now(), WindowSessions: 100}); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.ReportMetric(float64(reading.Microseconds())/1000/float64(b.N), "reading-cpu-ms")
		})
	}
}

// benchSession returns the records of a session of four members, whose scores follow the
// quality of the answers more or less closely.
func benchSession(rng *rand.Rand, number int, start time.Time) (records []council.BiasMetricRecord) {
	var quality [4]float64
	for i := range quality {
		quality[i] = 2 * rng.NormFloat64()
	}
	for k := range 12 {
		reviewer, position := k/3, k%3
		candidate := (reviewer + 1 + position) % 4
		score := 5.5 + float64(1+reviewer)/3*quality[candidate] + rng.NormFloat64()/2
		records = append(records, council.BiasMetricRecord{
			SchemaVersion: council.RecordSchema, SessionID: fmt.Sprintf("01900000-0000-7000-8000-%012d", number),
			Timestamp: start.UTC(), ConsentLevel: 1, CouncilConfig: "review-1",
			ReviewerID: fmt.Sprintf("maker/model-%d", reviewer), ModelID: fmt.Sprintf("maker/model-%d", candidate),
			Position: &position, NShown: 3, OrderDesign: council.OrderBalanced, ResponseLengthChars: 500 + rng.IntN(3000),
			ScoreValue: new(max(1, min(10, math.Round(2*score)/2))), ScoreScale: council.ScoreScale,
			RankValue: new(float64(position)), Status: council.BallotOK,
			Provider: council.ProviderPair{Reviewer: "maker", Candidate: "maker"},
		})
	}
	return records
}
