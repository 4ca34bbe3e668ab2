package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/growth"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
)

// benchDaemon starts a whole daemon, records on disk included, over a simulated
// provider in this process whose models take the given time.
func benchDaemon(b *testing.B, latency time.Duration, sessions int) *daemon {
	b.Helper()
	var models []simllm.Model
	for _, name := range []string{"a", "b", "c", "d"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, Noise: 0.5, Latency: simllm.Latency{Median: latency}})
	}
	sim, err := simllm.Start(b.Context(), simllm.Options{Models: models})
	if err != nil {
		b.Fatal(err)
	}
	for name, value := range map[string]string{
		"ADDR": "127.0.0.1:0", "BASE_URL": sim.URL(), "MODELS": "a,b,c,d", "BIAS_STORE": filepath.Join(b.TempDir(), "records.jsonl"),
		"MAX_SESSIONS": strconv.Itoa(sessions), "MAX_CALLS_PER_PROVIDER": strconv.Itoa(4 * sessions), "LOG_LEVEL": "error",
	} {
		b.Setenv("LLM_COUNCIL_"+name, value)
	}
	cfg, err := config.Load()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	d, err := newDaemon(ctx, cfg, disk.OS{}, newLog(io.Discard, cfg), "bench")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
		sim.Close()
	})
	return d
}

// BenchmarkSession measures one session, from the request of a client to its
// answer, over loopback, with everything that belongs to it: 9 calls, 12 records
// and their fsync. The clients and the simulated provider run in the same
// process: their work and their allocations are in the figures.
func BenchmarkSession(b *testing.B) {
	for _, bench := range []struct {
		clients int
		latency time.Duration
	}{{1, 0}, {32, 20 * time.Millisecond}, {256, 20 * time.Millisecond}} {
		b.Run(fmt.Sprintf("clients=%d/provider=%s", bench.clients, bench.latency), func(b *testing.B) {
			d := benchDaemon(b, bench.latency, bench.clients)
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
						ms, err := benchAsk(b.Context(), client, d.url(), body)
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

// benchAsk asks once and returns the overhead that the session reports.
func benchAsk(ctx context.Context, client *http.Client, url, body string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/council", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
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
				r, err := report(b.Context(), config.Config{MinBiasSessions: 20}, path, httpapi.ReportQuery{Sessions: new(bench.window)})
				if err != nil || r.Window.Sessions == 0 || len(r.Skipped) > 0 {
					b.Fatal(r.Window, r.Skipped, err)
				}
			}
		})
	}
}

// benchRecords writes sessions of 4 members, a minute apart.
// BenchmarkReportWindow measures the report over the newest 100 sessions of a store as a
// daemon leaves it: behind them lie a thousand sessions, or a million records, most of
// them in closed segments. The reviewers differ in how far they spread their scores, so
// that the second fit works too. The metric reading-cpu-ms is the
// processor time of reading alone.
func BenchmarkReportWindow(b *testing.B) {
	for _, old := range []int{1000, 83_334} {
		b.Run(fmt.Sprintf("old=%d", 12*old), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "records.jsonl")
			s, _, err := store.Open(store.Options{Path: path, Fsync: store.FsyncOff, RotateBytes: 64 << 20})
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(11, 0))
			for i := range old + 100 {
				if err := s.Append(b.Context(), benchSession(rng, i, time.Now().Add(time.Duration(i-old-100)*time.Second))); err != nil {
					b.Fatal(err)
				}
			}
			for open := []string{""}; len(open) > 0; runtime.Gosched() {
				open, _ = filepath.Glob(path + ".[0-9][0-9][0-9][0-9][0-9][0-9]")
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			cfg := config.Config{MinBiasSessions: 20}
			b.ReportAllocs()
			for b.Loop() {
				r, err := report(b.Context(), cfg, path, httpapi.ReportQuery{Sessions: new(100)})
				if err != nil || r.Window.Sessions != 100 || r.Window.Records != 1200 || len(r.Skipped) > 0 {
					b.Fatal(r.Window, r.Skipped, err)
				}
			}
			reading := growth.Took(b, func() {
				for range b.N {
					if _, err := collect(b.Context(), path, bias.Options{Now: time.Now(), WindowSessions: 100}); err != nil {
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
			SchemaVersion: council.RecordSchema, SessionID: fmt.Sprintf("01900000-0000-7000-8000-%012d", number), Timestamp: start.UTC(), ConsentLevel: 1,
			ReviewerID: fmt.Sprintf("maker/model-%d", reviewer), ModelID: fmt.Sprintf("maker/model-%d", candidate), Position: &position,
			ResponseLengthChars: 500 + rng.IntN(3000), ScoreValue: new(max(1, min(10, math.Round(2*score)/2))), ScoreScale: council.ScoreScale,
			CouncilConfig: "review-1", NShown: 3, OrderDesign: council.OrderBalanced, RankValue: new(float64(position)), Status: council.BallotOK,
			Provider: council.ProviderPair{Reviewer: "maker", Candidate: "maker"},
		})
	}
	return records
}

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
				SchemaVersion: council.RecordSchema, SessionID: fmt.Sprintf("01900000-0000-7000-8000-%012d", i), Timestamp: now.Add(time.Duration(i-sessions) * time.Minute),
				ConsentLevel: 1, ReviewerID: fmt.Sprintf("maker/model-%d", reviewer), ModelID: fmt.Sprintf("maker/model-%d", candidate), Position: &position,
				ResponseLengthChars: 1500 + 37*((i*7+candidate)%50), ScoreValue: new(float64(1 + (i*5+candidate*3+reviewer)%10)), ScoreScale: council.ScoreScale,
				CouncilConfig: "review-1", NShown: 3, OrderDesign: council.OrderBalanced, RankValue: new(float64(position)), Status: council.BallotOK,
				Provider: council.ProviderPair{Reviewer: "maker", Candidate: "maker"},
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
