package daemon_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// benchDaemon starts a whole daemon, records on disk included, over a simulated
// provider in this process whose models take the given time. The directory of kept sessions holds some already.
func benchDaemon(b *testing.B, latency time.Duration, sessions int, dir string, kept int) *daemontest.Daemon {
	b.Helper()
	var models []simllm.Model
	for _, name := range []string{"a", "b", "c", "d"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, Noise: 0.5, Latency: simllm.Latency{Median: latency}})
	}
	return daemontest.Start(b, map[string]string{
		"BASE_URL": daemontest.Provider(b, models...).URL(), "MODELS": "a,b,c,d", "LOG_LEVEL": "error",
		"MAX_SESSIONS": strconv.Itoa(sessions),
		"DATA_DIR":     filepath.Dir(dir), "SESSIONS_KEPT": strconv.Itoa(max(1000, kept)),
	}, func(c *config.Config) { c.SessionsKeptBytes = 1 << 30 })
}

// BenchmarkSession measures one session, from the request of a client to its
// answer, over loopback, with all its parts: 9 calls, 12 records and their fsync. The clients and the simulated provider run in the same
// process: their work and their allocations are in the figures. A session that is kept
// is stored in the journal, entry by entry, beside others, of which the oldest goes.
func BenchmarkSession(b *testing.B) {
	for _, bench := range []struct {
		clients int
		latency time.Duration
		kept    bool
		beside  int
	}{
		{1, 0, false, 0},
		{1, 0, true, 0},
		{32, 20 * time.Millisecond, false, 0},
		{64, 20 * time.Millisecond, false, 0},
		{64, 20 * time.Millisecond, true, 0},
		{256, 20 * time.Millisecond, false, 0},
		{8, 0, true, 2_000},
		{8, 0, true, 50_000},
	} {
		dir := filepath.Join(b.TempDir(), "sessions")
		if bench.beside > 0 {
			benchKept(b, dir, bench.beside)
		}
		b.Run(fmt.Sprintf("clients=%d/provider=%s/kept=%t/beside=%d", bench.clients, bench.latency, bench.kept, bench.beside), func(b *testing.B) {
			d := benchDaemon(b, bench.latency, bench.clients, dir, bench.beside)
			transport := &http.Transport{MaxIdleConnsPerHost: bench.clients}
			b.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: transport}
			body := fmt.Sprintf(`{"query": %q}`, strings.Repeat("How should a small team split a monolith? ", 10))
			work := make(chan struct{})
			var mu sync.Mutex // guards overhead
			var overhead []float64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range bench.clients {
				wg.Go(func() {
					for range work {
						ms, err := benchAsk(b.Context(), client, d.URL(), body, bench.kept)
						if err != nil {
							b.Error(err)
						}
						mu.Lock()
						overhead = append(overhead, ms)
						mu.Unlock()
					}
				})
			}
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
			slices.Sort(overhead)
			b.ReportMetric(overhead[len(overhead)/2], "overhead-p50-ms")
		})
	}
}

// benchKept stores ended sessions, each in one message.
func benchKept(b *testing.B, dir string, sessions int) {
	b.Helper()
	j, err := journal.Open(b.Context(), journal.Options{
		Dir: dir, MaxBytes: 1 << 30, Prefix: "council", Node: rand.Text(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for n := range work {
				_, err := j.Append(b.Context(), journal.ID{Session: fmt.Sprintf("01900000-0000-7000-8000-%012d", n)}, 0, journal.Message{
					Head: journal.Head{
						Node: "bench", Epoch: 1, Status: council.StatusComplete, Created: time.Now(), Query: "Why?", Bytes: 20 << 10,
					},
					First: 1, Entries: []council.Entry{{Type: council.EventStarted, Data: json.RawMessage("{}")}},
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for n := range sessions {
		work <- n
	}
	close(work)
	wg.Wait()
	if err := j.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// benchAsk asks once and returns the overhead that the session reports.
func benchAsk(ctx context.Context, client *http.Client, url, body string, kept bool) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/council", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if kept {
		req.Header.Set("Idempotency-Key", rand.Text())
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s, %w", resp.Status, data, err)
	}
	var s struct {
		Status   council.Status `json:"status"`
		Metadata struct {
			Timing council.Timing `json:"timing"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Status != council.StatusComplete {
		return 0, fmt.Errorf("status %s: %w", s.Status, err)
	}
	return s.Metadata.Timing.OverheadMS, nil
}

// BenchmarkReport measures the whole report, from the record file on disk.
func BenchmarkReport(b *testing.B) {
	for _, bench := range []struct{ sessions, window int }{{1000, 0}, {83_334, 100}, {83_334, 0}} {
		b.Run(fmt.Sprintf("records=%d/window=%d", 12*bench.sessions, bench.window), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "records.jsonl")
			benchRecords(b, path, bench.sessions)
			info, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(info.Size())
			b.ReportAllocs()
			for b.Loop() {
				r, err := daemon.Report(b.Context(), config.Config{Records: config.Records{MinBiasSessions: 20}}, []string{path}, bias.Query{Sessions: new(bench.window)})
				if err != nil || r.Window.Sessions == 0 || len(r.Skipped) > 0 {
					b.Fatal(r.Window, r.Skipped, err)
				}
			}
		})
	}
}

// benchRecords writes sessions of 4 members, a minute apart.
func benchRecords(b *testing.B, path string, sessions int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	encoder := json.NewEncoder(f)
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range sessions {
		for k := range 12 {
			reviewer, position := k/3, k%3
			candidate := (reviewer + 1 + position) % 4
			err := encoder.Encode(council.BiasMetricRecord{
				SchemaVersion: council.RecordSchema, SessionID: fmt.Sprintf("01900000-0000-7000-8000-%012d", i),
				Timestamp:    now.Add(time.Duration(i-sessions) * time.Minute),
				ConsentLevel: 1, ReviewerID: fmt.Sprintf("maker/model-%d", reviewer), ModelID: fmt.Sprintf("maker/model-%d", candidate),
				Position:            &position,
				ResponseLengthChars: 1500 + 37*((i*7+candidate)%50), ScoreValue: new(float64(1 + (i*5+candidate*3+reviewer)%10)),
				ScoreScale:    council.ScoreScale,
				CouncilConfig: "review-1", NShown: 3, OrderDesign: council.OrderBalanced, RankValue: new(float64(position)),
				Status:   council.BallotOK,
				Provider: council.ProviderPair{Reviewer: "maker", Candidate: "maker"},
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
