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
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
)

func benchOptions(b *testing.B) Options {
	b.Helper()
	return Options{
		Dir: filepath.Join(b.TempDir(), "sessions"), MaxBytes: 8 << 30, Prefix: "b" + strings.ToLower(rand.Text()), Node: rand.Text(),
		Replicas: 3, Lease: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
}

// BenchmarkAppend measures one append of 4 KB after another.
func BenchmarkAppend(b *testing.B) {
	for _, where := range []string{"inside", "cluster"} {
		b.Run(where, func(b *testing.B) {
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
			text := strings.Repeat("x", 4<<10)
			var seq uint64
			var times []time.Duration
			n := 0
			for b.Loop() {
				if n%14 == 0 {
					seq = 0
				}
				begin := time.Now()
				seq, err = j.Append(b.Context(), ID{Session: strconv.Itoa(n / 14)}, seq, message(j, n%14+1, text))
				if err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(begin))
				n++
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
			if err := j.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkOpen measures opening a directory with 1,000 sessions of 14 messages, and the
// heap that the journal holds then.
func BenchmarkOpen(b *testing.B) {
	o := benchOptions(b)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	j, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("heap idle: %d KiB", (heap()-before)>>10)
	text := strings.Repeat("x", 2<<10)
	for s := range 1000 {
		var seq uint64
		for n := range 14 {
			m := message(j, n+1, text)
			if n == 13 {
				m.Status = council.StatusComplete
			}
			if seq, err = j.Append(b.Context(), ID{Owner: "0123456789abcdef", Session: fmt.Sprint("session-", s)}, seq, m); err != nil {
				b.Fatal(err)
			}
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
		if n := len(j.All()); n != 1000 {
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
