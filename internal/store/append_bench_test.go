package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// BenchmarkAppend appends sessions from several goroutines at once, each of which waits
// until its session is on disk. It compares the store with one fsync for each session,
// under a mutex and without one. Compare within one run only.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 50, 512} {
		for _, way := range []string{"store", "fsync each", "fsync each, at once"} {
			b.Run(fmt.Sprintf("writers=%d/%s", writers, way), func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "records.jsonl")
				records := session("a")
				var add func() error
				switch way {
				case "store":
					s, _, err := Open(Options{Path: path})
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					add = func() error { return s.Append(b.Context(), records) }
				default:
					f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
					if err != nil {
						b.Fatal(err)
					}
					defer f.Close()
					var mu sync.Mutex // for one session at a time
					add = func() error {
						lines, err := Encode(records)
						if err != nil {
							return err
						}
						if way == "fsync each" {
							mu.Lock()
							defer mu.Unlock()
						}
						if _, err := f.Write(lines); err != nil {
							return err
						}
						return f.Sync()
					}
				}
				work := make(chan struct{})
				var done sync.WaitGroup
				b.ResetTimer()
				for range writers {
					done.Go(func() {
						for range work {
							if err := add(); err != nil {
								b.Error(err)
							}
						}
					})
				}
				for range b.N {
					work <- struct{}{}
				}
				close(work)
				done.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
			})
		}
	}
}
