package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/testkit/growth"
)

// writeRecords writes at least n records as a Store does, and returns how many:
// sessions of four members that review each other, twelve records each.
func writeRecords(tb testing.TB, path string, n int) (written int) {
	tb.Helper()
	file, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	members := []string{"openai/gpt-5.1", "anthropic/claude-opus-4.5", "google/gemini-3-pro-preview", "x-ai/grok-4"}
	record := valid()
	record.QueryMetadata, record.ConsentLevel, record.QueryHash, record.BlockID = council.QueryMetadata{}, 1, nil, nil
	for written < n {
		record.SessionID = fmt.Sprintf("%08x-%04x-7000-8000-%012x", rng.Uint32(), rng.IntN(1<<16), rng.Int64N(1<<48))
		record.Timestamp = record.Timestamp.Add(time.Duration(rng.Int64N(int64(time.Minute))))
		record.QueryMetadata.TokenCountBucket = new(council.TokenBucket(rng.Int64N(3000)))
		lengths := [4]int{rng.IntN(4000), rng.IntN(4000), rng.IntN(4000), rng.IntN(4000)}
		var session []council.BiasMetricRecord
		for i, reviewer := range members {
			for position, k := range rng.Perm(3) {
				j := (i + 1 + k) % len(members)
				record.ReviewerID, record.ModelID = reviewer, members[j]
				record.Provider = council.ProviderPair{Reviewer: council.Maker(reviewer, nil), Candidate: council.Maker(members[j], nil)}
				record.Position, record.ResponseLengthChars = &position, lengths[j]
				record.ScoreValue, record.RankValue = new(1+float64(rng.IntN(19))/2), new(float64(rng.IntN(3)))
				session = append(session, record)
			}
		}
		lines, err := Encode(session)
		if err == nil {
			_, err = file.Write(lines)
		}
		if err != nil {
			tb.Fatal(err)
		}
		written += len(session)
	}
	return written
}

// BenchmarkRead reads a million records, from the data file and from a closed segment.
// Beside them two other readers read the same file: encoding/json, without checks and
// derived fields, and one that only counts newlines. Compare within one run only. The
// metric cpu-ns/record is the processor time of all threads, the garbage collector's
// included.
func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "records.jsonl")
	written := writeRecords(b, path, 1_000_000)
	h := newHousekeeper(Options{Path: path, Disk: disk.OS{}})
	plain, err := os.Open(path)
	if err == nil {
		err = errors.Join(h.writeCompressed(b.Context(), plain), os.Rename(path+temporarySuffix, path+compressedSuffix), plain.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
	packed, err := os.Stat(path + compressedSuffix)
	if err != nil {
		b.Fatal(err)
	}
	for _, reader := range []struct {
		name  string
		count func(context.Context, *os.File) (int, error)
	}{{"encoding/json", countDecoded}, {"bytes", countNewlines}, {"read", countRead}, {"read closed", countRead}} {
		b.Run(reader.name, func(b *testing.B) {
			b.ReportAllocs()
			took := growth.Took(b, func() {
				for b.Loop() {
					name := path
					if reader.name == "read closed" {
						name += compressedSuffix
					}
					file, err := os.Open(name)
					if err != nil {
						b.Fatal(err)
					}
					if n, err := reader.count(b.Context(), file); n != written || err != nil {
						b.Fatalf("got %d records and %v, want %d", n, err, written)
					}
					file.Close()
				}
			})
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*written), "cpu-ns/record")
			if reader.name == "read closed" {
				b.ReportMetric(float64(packed.Size())/float64(written/12), "bytes/session")
			}
		})
	}
}

func countDecoded(_ context.Context, r *os.File) (n int, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var record council.BiasMetricRecord
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			return n, err
		}
		n++
	}
	return n, lines.Err()
}

func countNewlines(_ context.Context, r *os.File) (n int, err error) {
	block := make([]byte, maxLine)
	for err == nil {
		var length int
		length, err = r.Read(block)
		n += bytes.Count(block[:length], []byte("\n"))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func countRead(ctx context.Context, r *os.File) (n int, err error) {
	for _, err := range (File{filepath.Base(r.Name()), r}).lines(ctx) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
