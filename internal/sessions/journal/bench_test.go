package journal

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
)

func benchOptions(b *testing.B) Options {
	b.Helper()
	return Options{
		Dir: filepath.Join(b.TempDir(), "sessions"), MaxBytes: 512 << 20, Prefix: "b" + strings.ToLower(rand.Text()), Node: rand.Text(),
		Replicas: 3, Lease: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
}

// benchOpen opens a journal inside this process or on a cluster. It is closed with the
// benchmark.
func benchOpen(b *testing.B, where string) *Journal {
	b.Helper()
	o := benchOptions(b)
	if where == "cluster" {
		c, err := shared()
		if err != nil {
			b.Fatal(err)
		}
		o.URL = c.URL
	}
	j, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return j
}

// benchLog stores a session of 14 messages, and returns the time of each.
func benchLog(ctx context.Context, j *Journal, session, text string) (times []time.Duration, _ error) {
	var seq uint64
	for n := range 14 {
		m := message(j, n+1, text)
		if n == 13 {
			m.Status = council.StatusComplete
		}
		begin := time.Now()
		var err error
		if seq, err = j.Append(ctx, ID{Owner: "0123456789abcdef", Session: session}, seq, m); err != nil {
			return times, err
		}
		times = append(times, time.Since(begin))
	}
	return times, nil
}

// BenchmarkAppend measures sessions of 14 appends of 4 KB, one after another and 64 at
// the same time.
func BenchmarkAppend(b *testing.B) {
	for _, where := range []string{"inside", "cluster"} {
		for _, writers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/writers=%d", where, writers), func(b *testing.B) {
				j := benchOpen(b, where)
				text := strings.Repeat("x", 4<<10)
				work := make(chan int)
				var mu sync.Mutex // guards times
				var times []time.Duration
				var wg sync.WaitGroup
				b.ResetTimer()
				for range writers {
					wg.Go(func() {
						for n := range work {
							took, err := benchLog(b.Context(), j, strconv.Itoa(n), text)
							if err != nil {
								b.Error(err)
							}
							mu.Lock()
							times = append(times, took...)
							mu.Unlock()
						}
					})
				}
				for n := range b.N {
					work <- n
				}
				close(work)
				wg.Wait()
				b.StopTimer()
				slices.Sort(times)
				b.ReportMetric(float64(len(times))/b.Elapsed().Seconds(), "appends/s")
				b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
			})
		}
	}
}

// BenchmarkPurge measures the deletion of a session of 14 messages.
func BenchmarkPurge(b *testing.B) {
	for _, where := range []string{"inside", "cluster"} {
		b.Run(where, func(b *testing.B) {
			j := benchOpen(b, where)
			for n := range b.N {
				if _, err := benchLog(b.Context(), j, strconv.Itoa(n), strings.Repeat("x", 2<<10)); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for n := range b.N {
				if err := j.Purge(b.Context(), ID{Owner: "0123456789abcdef", Session: strconv.Itoa(n)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIndex measures an index of 10,000 sessions, and the memory of one.
func BenchmarkIndex(b *testing.B) {
	const sessions = 10_000
	for b.Loop() {
		b.StopTimer()
		before := heap()
		b.StartTimer()
		x := newIndex()
		for n := range sessions {
			benchRow(x, n+1, n, council.StatusComplete)
		}
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/sessions, "bytes/session")
		runtime.KeepAlive(x)
		b.StartTimer()
	}
}

// benchRow puts the row of a session into an index, as the consumer brings it.
func benchRow(x *index, seq, n int, status council.Status) {
	subject := fmt.Sprintf("council.session.0123456789abcdef.01900000-0000-7000-8000-%012d", n)
	x.put(0, ID{Owner: subject[16:32], Session: subject[33:]}, part{
		header: header{Head: Head{
			Node: "01900000-0000-7000-8000-000000000000", Status: status, Created: time.Now(), Key: fmt.Sprintf("%032x", n),
			CostUSD: new(0.01), Query: strings.Repeat("a question ", 10), Bytes: 30 << 10,
		}, First: 14, Part: 1, Parts: 1, Count: 1}, seq: uint64(seq), at: time.Now(),
	})
}

// BenchmarkIndexTurn measures what the index does while one session comes and ends and the oldest goes, beside
// others that are kept: its row while it runs, the search for its key, its row when it has ended, the counts of
// sessions, and the oldest one, which is dropped.
func BenchmarkIndexTurn(b *testing.B) {
	for _, kept := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("kept=%d", kept), func(b *testing.B) {
			j := &Journal{index: newIndex()}
			for n := range kept {
				benchRow(j.index, 2*n+2, n, council.StatusComplete)
			}
			b.ReportAllocs()
			for n := kept; b.Loop(); n++ {
				benchRow(j.index, 2*n+1, n, council.StatusRunning)
				if _, ok := j.Keyed(fmt.Sprintf("%032x", n)); !ok || len(j.Unended()) != 1 {
					b.Fatal("the session is not there")
				}
				benchRow(j.index, 2*n+2, n, council.StatusComplete)
				row, sessions, _ := j.Oldest()
				if j.index.drop(row.ID, row.Seq); sessions != kept+1 {
					b.Fatal(sessions)
				}
			}
		})
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkOpen measures opening a directory with 1,000 sessions of 14 messages, and the
// heap that the journal holds then.
func BenchmarkOpen(b *testing.B) {
	o := benchOptions(b)
	before := heap()
	j, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("heap idle: %d KiB", (heap()-before)>>10)
	text := strings.Repeat("x", 2<<10)
	for s := range 1000 {
		if _, err := benchLog(b.Context(), j, fmt.Sprint("session-", s), text); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("heap in use: %d KiB", (heap()-before)>>10)
	if err := j.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if j, err = Open(b.Context(), o); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if n := j.Stats().Sessions; n != 1000 {
			b.Fatalf("%d sessions", n)
		}
		b.Logf("heap opened: %d KiB", (heap()-before)>>10)
		begin := time.Now()
		for n := range 100 {
			if _, err := j.Read(b.Context(), ID{Owner: "0123456789abcdef", Session: fmt.Sprint("session-", n)}); err != nil {
				b.Fatal(err)
			}
		}
		b.Logf("a log of 14 messages is read in %v", time.Since(begin)/100)
		if err := j.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
