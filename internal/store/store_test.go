package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/faultdisk"
)

// Some tests run the test binary as another process. With these variables set it opens
// the store at the path and plays the role.
const (
	roleVariable = "STORE_TEST_ROLE"
	pathVariable = "STORE_TEST_PATH"
	roleHold     = "hold"   // says "held" and holds the store until its input ends
	roleAppend   = "append" // appends sessions for ever and prints the id of each one that is kept
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			if open := leftOpen(); code == 0 && len(open) > 0 {
				fmt.Println("left open:", open)
				code = 1
			}
			os.Exit(code)
		}))
		return
	}
	s, _, err := Open(Options{Path: os.Getenv(pathVariable)})
	if err != nil {
		panic(err)
	}
	switch role {
	case roleHold:
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case roleAppend:
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for n := 0; ; n++ {
					id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, n)
					if err := s.Append(context.Background(), session(id)); err != nil {
						panic(err)
					}
					fmt.Println(id)
				}
			})
		}
		writers.Wait()
	}
}

// leftOpen returns the files of tests that this process has open, as far as the system
// has such a list.
func leftOpen() (names []string) {
	open, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range open {
		if name, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(name, filepath.Join(os.TempDir(), "Test")) {
			names = append(names, name)
		}
	}
	return names
}

// start runs the test binary in a role on path until the test ends.
func start(t *testing.T, role, path string) (process *exec.Cmd, input io.Closer, output *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process = exec.CommandContext(t.Context(), self)
	process.Env = append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path)
	process.Stderr = t.Output()
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	return process, stdin, bufio.NewScanner(stdout)
}

// session returns the three records of a session.
func session(id string) []council.BiasMetricRecord {
	batch := make([]council.BiasMetricRecord, 3)
	for i := range batch {
		batch[i] = valid()
		batch[i].SessionID, batch[i].Position = id, &i
	}
	return batch
}

// lines returns the lines that a store writes for the sessions.
func lines(t *testing.T, ids ...string) string {
	t.Helper()
	var all strings.Builder
	for _, id := range ids {
		written, err := Encode(session(id))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(written)
	}
	return all.String()
}

// openStore opens the store at path, which needs no repair, until the test ends.
func openStore(t *testing.T, path string) *Store {
	t.Helper()
	return openWith(t, Options{Path: path})
}

// openWith is openStore with options.
func openWith(t *testing.T, o Options) *Store {
	t.Helper()
	s, recovery, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if recovery != (Recovery{}) {
		t.Fatalf("got %+v", recovery)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func appendSessions(t *testing.T, s *Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.Append(t.Context(), session(id)); err != nil {
			t.Fatal(err)
		}
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func newPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "bias_metrics.jsonl")
}

func writeFile(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCreatesWhatIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "bias_metrics.jsonl")
	openStore(t, path)
	for name, want := range map[string]fs.FileMode{
		filepath.Dir(dir): fs.ModeDir | 0o700,
		dir:               fs.ModeDir | 0o700,
		path:              0o600,
		path + ".lock":    0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s: got mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	writeFile(t, file, "not a record")
	locked := filepath.Join(dir, "locked")
	if err := os.Mkdir(locked+".lock", 0o700); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), dangling); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a directory":                   dir,
		"a file as a directory":         filepath.Join(file, "store.jsonl"),
		"a file among the directories":  filepath.Join(file, "sub", "store.jsonl"),
		"a directory for the lock":      locked,
		"not a regular file":            fifo,
		"a dangling link as directory":  filepath.Join(dangling, "store.jsonl"),
		"a dangling link above as well": filepath.Join(dangling, "sub", "store.jsonl"),
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := Open(Options{Path: path})
			if err == nil {
				t.Fatal("opened", s.Close())
			}
			text := err.Error()
			if !strings.Contains(text, path) || !strings.Contains(text, "name a file") || strings.Contains(text, "\n") {
				t.Errorf("not one line with the path and what to do: %q", text)
			}
			if _, held := errors.AsType[*HeldError](err); held {
				t.Errorf("%v reads as if another process held the store", err)
			}
		})
	}
	if _, _, err := Open(Options{}); err == nil {
		t.Error("opened without a path")
	}
	if got := content(t, file); got != "not a record" {
		t.Errorf("the file in the way now holds %q", got)
	}
}

func TestOpenReleasesTheLockWhenItFails(t *testing.T) {
	path := newPath(t)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if s, _, err := Open(Options{Path: path}); err == nil {
		t.Fatal("opened a directory", s.Close())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	openStore(t, path)
}

func TestAppendIsReadBack(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path)
	appendSessions(t, s, "a", "b")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	appendSessions(t, openStore(t, path), "c")

	got, bad := collect(t, ReadFile(t.Context(), path))
	if diff := cmp.Diff(slices.Concat(session("a"), session("b"), session("c")), got); diff != "" {
		t.Error(diff)
	}
	if len(bad) > 0 {
		t.Errorf("skipped %v", bad)
	}
}

func TestEveryRecordIsReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(records(), 1, 5).Draw(rt, "records")
		written, err := Encode(want)
		if err != nil {
			rt.Fatal(err)
		}
		got, bad := collect(t, Read(t.Context(), bytes.NewReader(written)))
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Error(diff)
		}
		if len(bad) > 0 {
			rt.Errorf("skipped %v", bad)
		}
	})
}

func TestAppendRefusesWhatNoReaderWouldTake(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path)
	long, endless, late := session("long"), session("endless"), session("late")
	long[2].CouncilConfig = strings.Repeat("x", maxLine)
	endless[1].ScoreValue = new(math.Inf(1))
	late[0].Timestamp = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, batch := range [][]council.BiasMetricRecord{long, endless, late} {
		if err := s.Append(t.Context(), batch); err == nil {
			t.Errorf("%s: kept", batch[0].SessionID)
		}
	}
	if got := content(t, path); got != "" {
		t.Errorf("the file holds %q", got)
	}
	if err := s.Healthy(); err != nil {
		t.Errorf("the store is not to blame: %v", err)
	}
}

// TestLongestLine holds that writer and reader have the same limit.
func TestLongestLine(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path)
	batch := session("a")
	room := maxLine - len(marshal(t, batch[2])) - 1
	batch[2].CouncilConfig += strings.Repeat("x", room)
	if err := s.Append(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	got, _ := collect(t, ReadFile(t.Context(), path))
	if diff := cmp.Diff(batch, got); diff != "" {
		t.Error(diff)
	}
	batch[2].CouncilConfig += "x"
	if err := s.Append(t.Context(), batch); err == nil {
		t.Error("kept a line of one byte more")
	}
}

func TestConcurrentAppendsStayWhole(t *testing.T) {
	const writers, each = 8, 5
	path := newPath(t)
	s := openStore(t, path)
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for n := range each {
				if err := s.Append(t.Context(), session(fmt.Sprintf("%d-%d", w, n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	got, bad := collect(t, ReadFile(t.Context(), path))
	if len(bad) > 0 {
		t.Errorf("skipped %v", bad)
	}
	seen := map[string]bool{}
	for batch := range slices.Chunk(got, 3) {
		id := batch[0].SessionID
		if diff := cmp.Diff(session(id), batch); diff != "" {
			t.Error(diff)
		}
		seen[id] = true
	}
	if len(got) != 3*len(seen) || len(seen) != writers*each {
		t.Errorf("got %d records of %d sessions, want %d sessions", len(got), len(seen), writers*each)
	}
}

// openTestDisk opens the store at a new path on a disk without faults so far.
func openTestDisk(t *testing.T) (*Store, *faultdisk.Disk) {
	t.Helper()
	d := &faultdisk.Disk{}
	return openWith(t, Options{Path: newPath(t), Disk: d}), d
}

func TestAppendWritesAndSyncsOnce(t *testing.T) {
	s, d := openTestDisk(t)
	if err := s.Append(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if did := d.Done(faultdisk.Write, faultdisk.Sync); len(did) > 0 {
		t.Errorf("for no records: %v", did)
	}
	appendSessions(t, s, "a")
	if did := d.Done(faultdisk.Write, faultdisk.Sync); len(did) != 2 || did[0].Kind != faultdisk.Write || did[1].Kind != faultdisk.Sync {
		t.Errorf("for a session: %v, want a write and a sync", did)
	}
}

// blockWrites makes the first write wait until the test calls finish.
func blockWrites(t *testing.T, d *faultdisk.Disk) (writing chan struct{}, finish func()) {
	t.Helper()
	writing, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.Fail(func(o faultdisk.Op, bytes int) (int, error) {
		if o.Kind == faultdisk.Write {
			once.Do(func() {
				close(writing)
				<-gate
			})
		}
		return bytes, nil
	})
	finish = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(finish)
	return writing, finish
}

// The sessions that come while the store writes and syncs share the next write and sync.
func TestAppendsShareASync(t *testing.T) {
	s, d := openTestDisk(t)
	writing, finish := blockWrites(t, d)
	var done sync.WaitGroup
	ids := []string{"a", "b", "c", "d", "e"}
	for i, id := range ids {
		done.Go(func() { appendSessions(t, s, id) })
		if i == 0 {
			<-writing
		}
	}
	for queued := 0; queued < 4; {
		s.mu.Lock()
		queued = len(s.queue)
		s.mu.Unlock()
	}
	finish()
	done.Wait()
	if did := d.Done(faultdisk.Write, faultdisk.Sync); len(did) != 4 {
		t.Errorf("%d writes and syncs for one session and then four at once, want 4", len(did))
	}
	for _, id := range ids {
		if !strings.Contains(content(t, s.path), lines(t, id)) {
			t.Errorf("session %s is not there as it was given", id)
		}
	}
}

func TestAppendMindsTheContext(t *testing.T) {
	s, d := openTestDisk(t)

	// While one append writes, the context of the next one ends.
	writing, finish := blockWrites(t, d)
	var done sync.WaitGroup
	done.Go(func() { appendSessions(t, s, "a") })
	<-writing
	ctx, cancel := context.WithCancel(t.Context())
	done.Go(func() {
		if err := s.Append(ctx, session("cancelled")); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
	})
	cancel()
	finish()
	done.Wait()

	// A write that has begun is finished.
	ctx, cancel = context.WithCancel(t.Context())
	d.Fail(func(o faultdisk.Op, bytes int) (int, error) {
		if o.Kind == faultdisk.Write {
			cancel()
		}
		return bytes, nil
	})
	if err := s.Append(ctx, session("b")); err != nil {
		t.Error(err)
	}
	if got, want := content(t, s.path), lines(t, "a", "b"); got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
	if err := s.Healthy(); err != nil {
		t.Errorf("got health %v", err)
	}
}

func TestCloseEndsAppends(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(t.Context(), session("late")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got error %v", err)
	}
	if err := s.Healthy(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got health %v", err)
	}
	appendSessions(t, openStore(t, path), "a")
	if got, want := content(t, path), lines(t, "a"); got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
}

// heldBy opens the store at path, which must fail because it is held.
func heldBy(t *testing.T, path string) *HeldError {
	t.Helper()
	s, _, err := Open(Options{Path: path})
	if err == nil {
		t.Fatal("opened twice", s.Close())
	}
	held, ok := errors.AsType[*HeldError](err)
	if !ok {
		t.Fatalf("got error %v", err)
	}
	return held
}

func TestASecondOpenIsRefused(t *testing.T) {
	path := newPath(t)
	before := time.Now()
	s := openStore(t, path)
	after := time.Now()
	appendSessions(t, s, "a")

	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		held := heldBy(t, name)
		if held.Path != path || held.Holder.PID != os.Getpid() || held.Holder.Host != host {
			t.Errorf("got %+v", held)
		}
		if since := held.Holder.Since; since.Before(before.Round(0)) || since.After(after.Round(0)) {
			t.Errorf("got holder since %v, want from %v to %v", since, before, after)
		}
		if want := fmt.Sprintf("%s is held by process %d on %s since ", path, os.Getpid(), host); !strings.Contains(held.Error(), want) {
			t.Errorf("got %q, want %q in it", held, want)
		}
	}
	appendSessions(t, s, "b")
	if got, want := content(t, path), lines(t, "a", "b"); got != want {
		t.Errorf("the holder's file holds %q, want %q", got, want)
	}
}

func TestAnUnreadableHolderIsNotNamed(t *testing.T) {
	path := newPath(t)
	openStore(t, path)
	for _, note := range []string{"", "{", `"me"`, `{"pid":"x"}`, `{"pid":7,"since":"x"}`, "\x00\x00"} {
		writeFile(t, path+".lock", note)
		held := heldBy(t, path)
		if held.Holder != (Holder{}) || !strings.Contains(held.Error(), "another process") {
			t.Errorf("note %q: got %q from %+v", note, held, held.Holder)
		}
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	path := newPath(t)
	process, input, output := start(t, roleHold, path)
	if !output.Scan() || output.Text() != "held" {
		t.Fatalf("the other process said %q, %v", output.Text(), output.Err())
	}
	held := heldBy(t, path)
	if held.Holder.PID != process.Process.Pid {
		t.Errorf("got holder %+v, want process %d", held.Holder, process.Process.Pid)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	openStore(t, path)
}

// A process is killed while it writes, again and again. No acknowledged session is lost,
// and the next process opens the file.
func TestKilledProcessLosesNoSession(t *testing.T) {
	path := newPath(t)
	var kept []string
	for range 5 {
		process, _, output := start(t, roleAppend, path)
		for range 20 {
			if !output.Scan() {
				t.Fatalf("the other process ended: %v", output.Err())
			}
			kept = append(kept, output.Text())
		}
		if err := process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for output.Scan() {
			kept = append(kept, output.Text())
		}
		_ = process.Wait() // that it was killed
	}
	s, recovery, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	t.Logf("%d sessions kept, %d bytes cut", len(kept), recovery.CutBytes)
	got, bad := collect(t, ReadFile(t.Context(), path))
	if len(bad) > 0 {
		t.Errorf("skipped %v", bad)
	}
	counts := map[string]int{}
	for _, r := range got {
		counts[r.SessionID]++
	}
	for _, id := range kept {
		if counts[id] != 3 {
			t.Errorf("session %s has %d records, want 3", id, counts[id])
		}
	}
}

func TestOpenCutsNothingButAnUnfinishedSession(t *testing.T) {
	good := lines(t, "a")
	first := good[:strings.IndexByte(good, '\n')+1]
	foreign := strings.ReplaceAll(good, "\t\n", "\n") // as another program writes a session
	for name, test := range map[string]struct{ data, want string }{
		"empty":                                 {"", ""},
		"whole":                                 {good, good},
		"broken but terminated":                 {good + "{\"schema\n", good + "{\"schema\n"},
		"zeros but terminated":                  {good + "\x00\x00\x00\n", good + "\x00\x00\x00\n"},
		"empty line":                            {good + "\n", good + "\n"},
		"zeros":                                 {good + "\x00\x00\x00", good},
		"no newline at all":                     {"{", ""},
		"a session that goes on":                {good + first, good},
		"a session that goes on, alone":         {first, ""},
		"a session that goes on, and a tail":    {good + first + first[:9], good},
		"a session of another program":          {foreign + foreign[:len(first)-1], foreign + foreign[:len(first)-1]},
		"longer than a block":                   {good + strings.Repeat("x", maxLine+1), good},
		"of several blocks":                     {good + strings.Repeat("x", 3*maxLine), good},
		"several blocks and no end":             {strings.Repeat("x", 2*maxLine), ""},
		"newline in the last place of a block":  {"\n" + strings.Repeat("x", maxLine-1), "\n"},
		"newline in the first place of a block": {"\n" + strings.Repeat("x", maxLine), "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			writeFile(t, path, test.data)
			s, recovery, err := Open(Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if want := int64(len(test.data) - len(test.want)); recovery.CutBytes != want {
				t.Errorf("%d bytes were cut, want %d", recovery.CutBytes, want)
			}
			if got := content(t, path); got != test.want {
				t.Errorf("%d bytes are left, want %d", len(got), len(test.want))
			}
		})
	}
}

func newTestLog(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }
