package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// collect returns the records of a reading and its skipped lines, as line and
// reason. Any other error fails the test.
func collect(t *testing.T, reading iter.Seq2[council.BiasMetricRecord, error]) (good []council.BiasMetricRecord, bad []string) {
	t.Helper()
	for record, err := range reading {
		if err == nil {
			good = append(good, record)
			continue
		}
		line, ok := errors.AsType[*LineError](err)
		if !ok {
			t.Fatal(err)
		}
		bad = append(bad, fmt.Sprintf("%d %s", line.Line, line.Reason))
	}
	return good, bad
}

// Bad lines of all kinds stand between good lines and do not change their records.
func TestReadSkipsBadLines(t *testing.T) {
	good := session("a")
	line := func(i int) string { return string(marshal(t, good[i])) }
	input := "\ufeff" + line(0) + "\r\n" + // 1
		"\r\n" +
		"\x00\x00\x00\x00\n" + // 3
		strings.Repeat("x", 10<<20) + "\n" +
		line(1)[:50] + "\n" +
		"null\n" + // 6
		"   \n" +
		line(1) + "\n" +
		"\xff" + line(1) + "\n" + // 9
		strings.Repeat(" ", maxLine) + "\n" +
		string(mutate(t, map[string]any{"schema_version": "9.0.0"})) + "\n" +
		string(mutate(t, map[string]any{"timestamp": "yesterday"})) + "\n" + // 12
		string(mutate(t, map[string]any{"score_value": 11})) + "\n" +
		string(mutate(t, map[string]any{"session_id": ""})) + "\n" +
		string(mutate(t, map[string]any{"position": -1})) + "\n" + // 15
		"\ufeff" + line(1) + "\n" +
		line(2) + "\r\n" +
		line(2) // 18
	records, bad := collect(t, Read(t.Context(), strings.NewReader(input)))
	if diff := cmp.Diff(good, records); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"3 not_json", "4 too_long", "5 not_json", "6 not_an_object", "9 invalid_utf8", "10 too_long", "11 unknown_schema",
		"12 bad_timestamp", "13 bad_score", "14 missing_field", "15 bad_field", "16 not_json", "18 unterminated",
	}, bad); diff != "" {
		t.Error(diff)
	}
}

func TestReadTheEnd(t *testing.T) {
	for input, want := range map[string][]string{
		"":                                  nil,
		"\n":                                nil,
		"\ufeff":                            nil,
		"\ufeff\r\n":                        nil,
		"  ":                                nil,
		"{":                                 {"1 unterminated"},
		"\n\n\x00":                          {"3 unterminated"},
		strings.Repeat("x", maxLine-1):      {"1 unterminated"},
		strings.Repeat("x", maxLine):        {"1 too_long"},
		strings.Repeat("x", maxLine+1):      {"1 too_long"},
		strings.Repeat("x", maxLine) + "\n": {"1 too_long"},
	} {
		good, bad := collect(t, Read(t.Context(), strings.NewReader(input)))
		if diff := cmp.Diff(want, bad); diff != "" || len(good) > 0 {
			t.Errorf("%.20q (%d bytes): %d records, %s", input, len(input), len(good), diff)
		}
	}
}

// growing is a file to which another process appends each part after the first while it
// is read: before each of them a reader meets the end.
type growing []string

func (g *growing) Read(p []byte) (int, error) {
	if (*g)[0] == "" {
		*g = (*g)[1:]
		return 0, io.EOF
	}
	n := copy(p, (*g)[0])
	(*g)[0] = (*g)[0][n:]
	return n, nil
}

// A reading that went on after the end would take the rest of an unfinished line for a
// line.
func TestReadEndsWhereTheFileEnded(t *testing.T) {
	whole := lines(t, "a")
	for tail, want := range map[string][]string{"{": {"4 unterminated"}, "": nil, " ": nil} {
		good, bad := collect(t, Read(t.Context(), &growing{whole + tail, "\n" + whole, ""}))
		if diff := cmp.Diff(session("a"), good); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want, bad); diff != "" {
			t.Errorf("tail %q: %s", tail, diff)
		}
	}
}

// zeros is an endless line.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestReadHoldsNoLongLine(t *testing.T) {
	input := io.MultiReader(io.LimitReader(zeros{}, 64<<20), strings.NewReader("\n"+lines(t, "a")))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	good, bad := collect(t, Read(t.Context(), input))
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
		t.Errorf("%d bytes were allocated for a line of 64 MiB", allocated)
	}
	if diff := cmp.Diff(session("a"), good); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1 too_long"}, bad); diff != "" {
		t.Error(diff)
	}
}

// A reading that fails returns the error as its last element, and no LineError for the
// line at which it failed.
func TestReadFails(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	path := newPath(t)
	writeFile(t, path, lines(t, "a"))
	broken := io.MultiReader(strings.NewReader(lines(t, "a")+"{"), iotest.ErrReader(syscall.EIO))
	for name, test := range map[string]struct {
		reading iter.Seq2[council.BiasMetricRecord, error]
		records int
		want    error
	}{
		"broken disk": {Read(t.Context(), broken), 3, syscall.EIO},
		"cancelled":   {ReadFile(cancelled, path), 0, context.Canceled},
		"no file":     {ReadFile(t.Context(), path+".none"), 0, fs.ErrNotExist},
		"directory":   {ReadFile(t.Context(), t.TempDir()), 0, syscall.EISDIR},
	} {
		t.Run(name, func(t *testing.T) {
			records, last := 0, error(nil)
			for _, err := range test.reading {
				if last != nil {
					t.Fatalf("%v follows %v", err, last)
				}
				if last = err; err == nil {
					records++
				}
			}
			_, skipped := errors.AsType[*LineError](last)
			if records != test.records || !errors.Is(last, test.want) || skipped {
				t.Errorf("got %d records and %v, want %d and %v", records, last, test.records, test.want)
			}
		})
	}
}

// A pipe is read too, by its name or by the name of a descriptor, which a shell passes
// for a command. Find reads nothing from it.
func TestReadAPipe(t *testing.T) {
	named := newPath(t)
	if err := syscall.Mkfifo(named, 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for name, open := range map[string]func() (*os.File, error){
		named:                             func() (*os.File, error) { return os.OpenFile(named, os.O_WRONLY, 0) },
		fmt.Sprintf("/dev/fd/%d", r.Fd()): func() (*os.File, error) { return w, nil },
	} {
		if err := Find(name); err != nil {
			t.Error(err)
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			to, err := open()
			if err == nil {
				_, err = to.WriteString(lines(t, "a", "b"))
				err = errors.Join(err, to.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
		if found := readable(t, name); found["a"] != 3 || found["b"] != 3 {
			t.Errorf("%s: read %v", name, found)
		}
		writing.Wait()
	}
}

func TestReadStopsWhenAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	records := 0
	for _, err := range Read(ctx, strings.NewReader(lines(t, "a"))) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			continue
		}
		if records++; records == 2 {
			cancel()
		}
	}
	if records != 2 {
		t.Errorf("got %d records after the context ended, want 2", records)
	}
	for _, err := range Read(t.Context(), strings.NewReader("{\n{\n")) {
		reasonFrom(t, err)
		break // a reading that went on would panic
	}
}

// A reader returns whole sessions in their order while another process appends: at least
// those that were kept when it began. At most the last one is unterminated.
func TestReadWhileAnotherAppends(t *testing.T) {
	const sessions = 30
	path := newPath(t)
	s := openStore(t, path)
	var kept atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range sessions {
			if err := s.Append(t.Context(), session(strconv.Itoa(n))); err != nil {
				t.Error(err)
			}
			kept.Add(1)
		}
	}()
	defer func() { <-done }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		atLeast := 3 * int(kept.Load())
		good, bad := collect(t, ReadFile(t.Context(), path))
		if len(good) < atLeast {
			t.Fatalf("got %d records, want at least %d", len(good), atLeast)
		}
		for i, r := range good {
			if diff := cmp.Diff(session(strconv.Itoa(i / 3))[i%3], r); diff != "" {
				t.Fatalf("record %d: %s", i, diff)
			}
		}
		if len(bad) > 1 || len(bad) == 1 && bad[0] != fmt.Sprintf("%d unterminated", len(good)+1) {
			t.Fatalf("skipped %v after %d records", bad, len(good))
		}
	}
}

// cutFile is a file that its writer cuts to the next of the sizes each time a reader has asked for its size.
type cutFile struct {
	*os.File
	sizes []int64
}

func (f *cutFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	if len(f.sizes) > 0 && err == nil {
		err = f.Truncate(f.sizes[0])
		f.sizes = f.sizes[1:]
	}
	return info, err
}

// stuckFile is a file of which nothing can be read, whatever size it says it has.
type stuckFile struct{ *os.File }

func (stuckFile) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }

// A daemon that starts after a crash cuts the part of a session at the end of its file.
func TestReadWhileTheEndIsCut(t *testing.T) {
	whole := lines(t, "a")
	part := strings.Repeat(lines(t, "b")[:100], 3)
	size := int64(len(whole))
	for _, tt := range []struct {
		length int64
		cuts   []int64
		torn   bool
	}{
		{math.MaxInt64, nil, true},
		{math.MaxInt64, []int64{size}, false},
		{math.MaxInt64, []int64{size + 200, size + 100, size}, false},
		{math.MaxInt64, []int64{size + 200, size + 100}, true},
		{size, []int64{size}, false},
	} {
		path := newPath(t)
		writeFile(t, path, whole+part)
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		end, torn, err := wholeSessions(t.Context(), &cutFile{file, tt.cuts}, tt.length)
		if end != size || torn != tt.torn || err != nil {
			t.Errorf("cut to %d of %d: %d, %t, %v", tt.cuts, size, end, torn, err)
		}
	}
	path := newPath(t)
	writeFile(t, path, whole)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, _, err := wholeSessions(t.Context(), stuckFile{file}, math.MaxInt64); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// Records as other programs write them, with other spaces and the old fields only.
func TestReadForeignRecords(t *testing.T) {
	input := `{"schema_version": "1.2.0", "session_id": "s1", "timestamp": "2025-12-17T12:00:00Z", "reviewer_id": "one/a", ` +
		`"model_id": "one/a", "position": 1, "response_length_chars": 1789, "score_value": 7.0, "score_scale": "1-10", ` +
		`"council_config_version": "other", "query_hash": null}` + "\n" +
		`{"schema_version": "1.2.0", "session_id": "s1", "timestamp": "2025-12-17T12:00:00Z", "reviewer_id": "one/a", ` +
		`"model_id": "two/b", "position": 0, "response_length_chars": 1378, "score_value": 0.0, "score_scale": "0-1", ` +
		`"council_config_version": "other", "query_hash": null, "block_id": "b1"}` + "\n" +
		`{"schema_version": 1, "session_id": "s0", "timestamp": "2025-12-17T14:00:00+02:00", "reviewer_id": "one/a", ` +
		`"model_id": "b", "position": 0, "response_length_chars": 9, "score_value": null, "score_scale": "1-10", ` +
		`"council_config_version": "other", "query_hash": null}` + "\n"
	record := council.BiasMetricRecord{
		SchemaVersion: "1.2.0", SessionID: "s1", Timestamp: noon, ReviewerID: "one/a", ModelID: "one/a", Position: new(1),
		ResponseLengthChars: 1789, ScoreValue: new(7.0), ScoreScale: "1-10", CouncilConfig: "other",
		Own: true, Provider: council.ProviderPair{Reviewer: "one", Candidate: "one"},
	}
	probe, old := record, record
	probe.ModelID, probe.Position, probe.ResponseLengthChars, probe.ScoreValue, probe.ScoreScale = "two/b", new(0), 1378, new(0.0), "0-1"
	probe.BlockID, probe.Own, probe.Provider.Candidate = new("b1"), false, "two"
	old.SchemaVersion, old.SessionID, old.ModelID, old.Position, old.ResponseLengthChars, old.ScoreValue = "1.0.0", "s0", "b", nil, 9, nil
	old.Own, old.Provider.Candidate = false, "b"

	good, bad := collect(t, Read(t.Context(), strings.NewReader(input)))
	if diff := cmp.Diff([]council.BiasMetricRecord{record, probe, old}, good); diff != "" {
		t.Error(diff)
	}
	if len(bad) > 0 {
		t.Errorf("skipped %v", bad)
	}
}

func FuzzRead(f *testing.F) {
	written, err := Encode(session("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(written)
	f.Add(slices.Concat([]byte("\ufeff"), written[:len(written)-1]))
	f.Add([]byte("\r\n\n{}\nnull\n\xff\n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Long lines are rare in fuzzed data, so every x counts for many.
		data = bytes.ReplaceAll(data, []byte("x"), bytes.Repeat([]byte("x"), maxLine/4))
		growth.Bounded(t, len(data), func() {
			for _, err := range Read(t.Context(), bytes.NewReader(data)) {
				if err != nil && !isLine(err) {
					t.Error(err)
				}
			}
		})
		elements, last := 0, int64(0)
		for record, err := range Read(t.Context(), bytes.NewReader(data)) {
			elements++
			if err == nil {
				if v := record.ScoreValue; record.SessionID == "" || v != nil && math.IsNaN(*v) {
					t.Errorf("got %+v", record)
				}
				continue
			}
			bad, ok := errors.AsType[*LineError](err)
			if !ok {
				t.Fatal(err)
			}
			if bad.Line <= last {
				t.Errorf("line %d follows line %d", bad.Line, last)
			}
			last = bad.Line
		}
		if lines := bytes.Count(data, []byte("\n")) + 1; elements > lines || last > int64(lines) {
			t.Errorf("%d elements, the last bad line is %d, of %d lines", elements, last, lines)
		}
	})
}

func TestFind(t *testing.T) {
	path := newPath(t)
	if err := Find(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	writeFile(t, path+".000001", "")
	if err := Find(path); err != nil {
		t.Errorf("with a closed segment only: %v", err)
	}
	writeFile(t, path, "")
	if err := Find(path); err != nil {
		t.Errorf("with a data file: %v", err)
	}
	if err := Find(filepath.Dir(path)); err == nil || !strings.HasSuffix(err.Error(), "is a directory") {
		t.Errorf("of a directory: %v", err)
	}
}

// A link is resolved as far as it leads somewhere.
func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"relative": "sub/../missing", "one": "two", "two": "one"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := Resolve(filepath.Join(dir, "relative")), filepath.Join(dir, "missing"); got != want {
		t.Errorf("a relative link to a file that does not exist leads to %s, want %s", got, want)
	}
	if got := Resolve(filepath.Join(dir, "one")); filepath.Dir(got) != dir {
		t.Errorf("links in a circle lead to %s", got)
	}
}
