package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/faultdisk"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// whole reads the store at path and returns its sessions in their order. It fails
// the test for a session that is not whole or there twice, and for skipped lines.
func whole(t *testing.T, path string) (ids []string) {
	t.Helper()
	records, bad := collect(t, ReadFile(t.Context(), path))
	if len(bad) > 0 {
		t.Errorf("skipped %v", bad)
	}
	seen := map[string]bool{}
	for batch := range slices.Chunk(records, 3) {
		id := batch[0].SessionID
		if want := session(id); !reflect.DeepEqual(want, batch) {
			t.Errorf("session %s is not whole: %s", id, cmp.Diff(want, batch))
		}
		if seen[id] {
			t.Errorf("session %s is there twice", id)
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids
}

// recovered waits until the store is healthy: no records wait to be written.
func recovered(t *testing.T, s *Store) {
	t.Helper()
	for start := time.Now(); s.Healthy() != nil; runtime.Gosched() {
		if time.Since(start) > time.Minute {
			t.Fatal(s.Healthy())
		}
	}
}

// holds fails the test unless the store at path holds exactly these sessions, in
// any order.
func holds(t *testing.T, path string, want ...string) {
	t.Helper()
	got := whole(t, path)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// restore writes the files into a new directory and returns the path of the store.
func restore(t *testing.T, files map[string]string) string {
	t.Helper()
	path := newPath(t)
	for name, data := range files {
		writeFile(t, filepath.Join(filepath.Dir(path), name), data)
	}
	return path
}

// names returns the files beside the data file at path, and itself, but no lock.
func names(t *testing.T, path string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), filepath.Base(path)); ok && rest != ".lock" {
			all = append(all, rest)
		}
	}
	return all
}

// A crash cuts the last session at any byte. No reader returns a part of it, the file
// opens, the sessions before it are whole, and the next one is not damaged.
func TestFaultF22CutAtEveryByte(t *testing.T) {
	testkit.Slow(t)
	path := newPath(t)
	before, last := lines(t, "a", "b"), lines(t, "torn")
	for kept := range len(last) + 1 {
		sessions := []string{"a", "b"}
		if kept == len(last) {
			sessions = append(sessions, "torn")
		}
		writeFile(t, path, before+last[:kept])
		records, bad := collect(t, ReadFile(t.Context(), path))
		torn := kept > 0 && kept < len(last)
		if len(records) != 3*len(sessions) || len(bad) != 0 && !torn || torn && !slices.Equal(bad, []string{"7 unterminated"}) {
			t.Fatalf("cut after %d bytes: %d records, skipped %v", kept, len(records), bad)
		}
		s, recovery, err := Open(Options{Path: path, Disk: &faultdisk.Disk{}})
		if err != nil {
			t.Fatal(err)
		}
		if torn && recovery.CutBytes != int64(kept) || !torn && recovery.CutBytes != 0 {
			t.Errorf("cut after %d bytes: %d were cut", kept, recovery.CutBytes)
		}
		appendSessions(t, s, "next")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if holds(t, path, append(sessions, "next")...); t.Failed() {
			t.Fatalf("cut after %d bytes", kept)
		}
	}
	t.Logf("fault F22: a session cut at each of %d offsets: 0 sessions lost, 0 read in part (promised 0 and 0)", len(last))
}

// kept holds the sessions that a store acknowledged, each with the number of operations
// of the disk until then, and the time.
type kept struct {
	mu  sync.Mutex // guards what follows
	ops map[string]int
	at  map[string]time.Time
}

func (k *kept) append(t *testing.T, s *Store, d *faultdisk.Disk, id string) {
	t.Helper()
	if err := s.Append(t.Context(), session(id)); err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ops[id], k.at[id] = len(d.Done()), time.Now()
}

// survives simulates a crash of the machine after every operation of d, in every way, and
// checks the store that is left. It returns the number of different states of the disk.
// must returns the sessions that have to be there after the first n operations.
func survives(t *testing.T, d *faultdisk.Disk, must func(n int) []string) (states int) {
	t.Helper()
	ops := d.Done()
	seen := map[string]bool{}
	for n := range len(ops) + 1 {
		for _, c := range faultdisk.Crashes() {
			files, required := c.After(ops[:n]), must(n)
			state := fmt.Sprint(files, required)
			if seen[state] {
				continue
			}
			seen[state] = true
			path := restore(t, files)
			s, _, err := Open(Options{Path: path, Disk: &faultdisk.Disk{}})
			if err != nil {
				t.Fatalf("after %d operations, %+v: %v", n, c, err)
			}
			appendSessions(t, s, "next")
			for range 2 { // as it is, and with every closed segment compressed
				ids := whole(t, path)
				for _, id := range append(required, "next") {
					if !slices.Contains(ids, id) {
						t.Errorf("session %s is missing", id)
					}
				}
				if err := s.segments.tidy(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for name, summary := range summaries(t, path) {
				if strings.HasSuffix(name, compressedSuffix) && summary == nil {
					t.Errorf("%s has no summary", name)
				}
			}
			found, err := Verify(t.Context(), path)
			for _, p := range found {
				if err = errors.Join(err, p.SummaryErr); err != nil {
					t.Error(err)
				}
			}
			if t.Failed() {
				t.Fatalf("after %d operations, the last of them %+v, %+v", n, ops[max(0, n-1)], c)
			}
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return len(seen)
}

// A store rotates, compresses, fails and recovers, and the machine crashes at each of
// these moments with or without the data that was not synced. No acknowledged session is
// missing, and no session is there in part or twice.
func TestFaultF23SyncedIsThere(t *testing.T) {
	d := &faultdisk.Disk{}
	path := newPath(t)
	s := openWith(t, Options{Path: path, RotateBytes: int64(len(lines(t, "00", "01"))), Disk: d})
	k := &kept{ops: map[string]int{}, at: map[string]time.Time{}}
	syncs := 0
	d.Fail(func(o faultdisk.Op, bytes int) (int, error) {
		switch {
		case o.Kind == faultdisk.Sync && o.Name == filepath.Base(path):
			if syncs++; syncs == 4 || syncs == 5 || syncs == 9 {
				return 0, syscall.EIO
			}
		case o.Kind == faultdisk.Write && syncs == 12 && bytes > 1:
			syncs++ // once
			return bytes / 2, syscall.ENOSPC
		}
		return bytes, nil
	})
	for i := range 16 {
		k.append(t, s, d, fmt.Sprintf("%02d", i))
	}
	d.Fail(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(whole(t, path)); n != 16 || len(k.ops) > 13 {
		t.Errorf("%d sessions in the end, want 16; %d acknowledged at once, want some to have failed", n, len(k.ops))
	}
	states := survives(t, d, func(n int) (must []string) {
		for id, ops := range k.ops {
			if ops <= n {
				must = append(must, id)
			}
		}
		slices.Sort(must)
		return must
	})
	t.Logf("fault F23: %d states of the disk after a crash: 0 acknowledged sessions lost (promised 0)", states)
}

func TestFaultF23Interval(t *testing.T) {
	const interval = time.Second
	d := &faultdisk.Disk{}
	k := &kept{ops: map[string]int{}, at: map[string]time.Time{}}
	path := newPath(t)
	race.Bubble(t, func(t *testing.T) {
		rotate := int64(6 * len(lines(t, "00")))
		s := openWith(t, Options{Path: path, Fsync: council.FsyncInterval, Interval: interval, RotateBytes: rotate, Disk: d})
		for i := range 12 {
			k.append(t, s, d, fmt.Sprintf("%02d", i))
			time.Sleep(interval / 4)
		}
		time.Sleep(2 * interval)
	})
	if len(k.at) != 12 {
		t.Fatalf("%d sessions acknowledged", len(k.at))
	}
	ops := d.Done()
	var oldest time.Duration // the age of the oldest session that a crash may take
	states := survives(t, d, func(n int) (must []string) {
		if n == len(ops) {
			return must
		}
		at := ops[n].At
		for id, when := range k.at {
			if age := at.Sub(when); age > interval {
				must = append(must, id)
			}
		}
		onDisk := text(t, faultdisk.Crash{}.After(ops[:n]))
		for id, when := range k.at {
			if at.After(when) && !strings.Contains(onDisk, `"`+id+`"`) {
				oldest = max(oldest, at.Sub(when))
			}
		}
		slices.Sort(must)
		return must
	})
	t.Logf("fault F23: interval: %d states of the disk after a crash: lost sessions were acknowledged at most %v before (promised %v)",
		states, oldest, interval)
}

// text returns what the files hold.
func text(t *testing.T, files map[string]string) string {
	t.Helper()
	decompressor, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decompressor.Close()
	var all strings.Builder
	for name, data := range files {
		plain := []byte(data)
		if strings.HasSuffix(name, compressedSuffix) {
			if plain, err = decompressor.DecodeAll(plain, nil); err != nil {
				t.Fatal(err)
			}
		}
		all.Write(plain)
	}
	return all.String()
}

// full is a disk that has room for half of each write.
func full(o faultdisk.Op, bytes int) (int, error) {
	if o.Kind == faultdisk.Write {
		return bytes / 2, syscall.ENOSPC
	}
	return bytes, nil
}

func TestFaultF24DiskFull(t *testing.T) {
	for name, f := range map[string]faultdisk.Fault{
		"half of it fits": full,
		"nothing fits":    func(o faultdisk.Op, _ int) (int, error) { return 0, onlyIf(o.Kind == faultdisk.Write, syscall.ENOSPC) },
		"size unknown":    func(o faultdisk.Op, n int) (int, error) { return n, onlyIf(o.Kind == faultdisk.Stat, syscall.EIO) },
	} {
		t.Run(name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				s, d := openTestDisk(t)
				appendSessions(t, s, "a")
				before := content(t, s.path)
				d.Fail(f)
				err := s.Append(t.Context(), session("b"))
				cause, _ := errors.AsType[syscall.Errno](err)
				if cause != syscall.ENOSPC && cause != syscall.EIO || !strings.Contains(err.Error(), s.path) {
					t.Errorf("got error %v", err)
				}
				if err := s.Healthy(); !errors.Is(err, cause) {
					t.Errorf("got health %v", err)
				}
				synctest.Wait()
				if n := s.Pending(); n != len(session("b")) {
					t.Errorf("%d records are pending", n)
				}
				time.Sleep(time.Minute)
				if got := content(t, s.path); got != before {
					t.Errorf("the file holds %q", got)
				}

				// Space returns, without any further append.
				d.Fail(nil)
				start := time.Now()
				for s.Healthy() != nil {
					time.Sleep(10 * time.Millisecond)
				}
				holds(t, s.path, "a", "b")
				took := time.Since(start)
				if took > lastPause {
					t.Errorf("it took %v", took)
				}
				synctest.Wait()
				if n := s.Pending(); n != 0 {
					t.Errorf("%d records are pending at the end", n)
				}
				appendSessions(t, s, "c")
				holds(t, s.path, "a", "b", "c")
				t.Logf("fault F24: write failed (%s): rolled back, written %v after space returned (promised %v, without any traffic)",
					name, took, lastPause)
			})
		})
	}
}

func onlyIf(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

// Of several sessions in one write, those that fit on the disk are kept.
func TestFaultF24KeepsWhatFits(t *testing.T) {
	s, d := openTestDisk(t)
	writing, finish := blockWrites(t, d)
	var done sync.WaitGroup
	done.Go(func() { appendSessions(t, s, "a") })
	<-writing
	var mu sync.Mutex // guards failed
	var failed []string
	for _, id := range []string{"b", "c", "d"} {
		done.Go(func() {
			if err := s.Append(t.Context(), session(id)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, id)
			}
		})
	}
	for queued := 0; queued < 3; {
		s.mu.Lock()
		queued = len(s.queue)
		s.mu.Unlock()
	}
	room := len(lines(t, "a", "b")) // of which the write under way takes the first half
	d.Fail(func(o faultdisk.Op, bytes int) (int, error) {
		if o.Kind == faultdisk.Write && o.Name == filepath.Base(s.path) {
			return min(bytes, room), onlyIf(bytes > room, syscall.ENOSPC)
		}
		return bytes, nil
	})
	finish()
	done.Wait()
	if len(failed) != 1 {
		t.Errorf("%d sessions failed, want one of three", len(failed))
	}
	d.Fail(nil)
	appendSessions(t, s, "e")
	recovered(t, s)
	holds(t, s.path, "a", "b", "c", "d", "e")
}

// When the disk is full, another program may empty the file. The roll-back must not
// restore the old size.
func TestRollBackMindsAFileThatWasEmptied(t *testing.T) {
	s, d := openTestDisk(t)
	appendSessions(t, s, "a")
	if err := os.Truncate(s.path, 0); err != nil {
		t.Fatal(err)
	}
	d.Fail(full)
	if err := s.Append(t.Context(), session("b")); err == nil {
		t.Error("kept on a full disk")
	}
	d.Fail(nil)
	appendSessions(t, s, "c")
	recovered(t, s)
	holds(t, s.path, "b", "c")
}

// The memory of sessions that wait for space is bounded. The sessions beyond it are lost,
// as their callers were told, and the others are written.
func TestFaultF24WaitingIsBounded(t *testing.T) {
	d := &faultdisk.Disk{}
	var log strings.Builder
	s := openWith(t, Options{Path: newPath(t), Log: newTestLog(&log), Disk: d})
	large := session("large")
	for i := range large {
		large[i].CouncilConfig = strings.Repeat("x", maxLine-1000)
	}
	d.Fail(full)
	for range maxWaiting/(3*maxLine) + 10 {
		if err := s.Append(t.Context(), large); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	d.Fail(nil)
	appendSessions(t, s, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.path)
	if err != nil {
		t.Fatal(err)
	}
	if n := info.Size(); n > maxWaiting+int64(len(lines(t, "a"))) || n < maxWaiting-3*maxLine {
		t.Errorf("%d bytes were written in the end, want nearly %d", n, maxWaiting)
	}
	if !strings.Contains(log.String(), "sessions are lost") || strings.Contains(log.String(), "xxx") {
		t.Errorf("log: %.500s", log.String())
	}
}

// The memory of sessions that wait for a disk that hangs is bounded too, and the store is
// not healthy meanwhile. It recovers without any further append.
func TestFaultF24HangingDiskIsBounded(t *testing.T) {
	s, d := openTestDisk(t)
	writing, finish := blockWrites(t, d)
	var waiting sync.WaitGroup
	waiting.Go(func() { appendSessions(t, s, "first") })
	<-writing
	large := session("large")
	for i := range large {
		large[i].CouncilConfig = strings.Repeat("x", maxLine-1000)
	}
	kept := atomic.Int64{}
	const sessions = maxWaiting/(3*(maxLine-1000)) + 10
	refused := make(chan error, sessions)
	for range sessions {
		waiting.Go(func() {
			if err := s.Append(t.Context(), large); err != nil {
				refused <- err
				return
			}
			kept.Add(1)
		})
	}
	if err := <-refused; !errors.Is(err, errStuck) || !errors.Is(s.Healthy(), errStuck) {
		t.Errorf("got %v, health %v", err, s.Healthy())
	}
	if n := s.Pending(); n <= 3*maxWaiting/(3*maxLine) { // those in the queue, and the first session
		t.Errorf("%d records are pending", n)
	}
	finish()
	waiting.Wait()
	recovered(t, s)
	if n := kept.Load(); n < maxWaiting/(3*maxLine) || n >= sessions {
		t.Errorf("%d sessions of %d are kept", n, sessions)
	}
	if found := readable(t, s.path); found["first"] != 3 || found["large"] != 3*int(kept.Load()) {
		t.Errorf("a command reads %v, kept are %d", found, kept.Load())
	}
	t.Logf("fault F24: a disk that hangs: %d sessions of 190 KB waited in memory and were written when it went on, "+
		"the rest was refused at once (promised: at most 16 MiB wait)", kept.Load())
}

func TestCloseSaysWhatIsLost(t *testing.T) {
	d := &faultdisk.Disk{}
	s, _, err := Open(Options{Path: newPath(t), Disk: d})
	if err != nil {
		t.Fatal(err)
	}
	d.Fail(func(o faultdisk.Op, _ int) (int, error) { return 0, onlyIf(o.Kind == faultdisk.Write, syscall.ENOSPC) })
	for _, id := range []string{"a", "b"} {
		if err := s.Append(t.Context(), session(id)); err == nil {
			t.Error("kept on a full disk")
		}
	}
	if err := s.Close(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "2 sessions are lost") {
		t.Errorf("got %v", err)
	}
}

func TestFaultF25FsyncFails(t *testing.T) {
	for _, mode := range []council.Fsync{council.FsyncSession, council.FsyncInterval} {
		t.Run(string(mode), func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				d := &faultdisk.Disk{}
				s := openWith(t, Options{Path: newPath(t), Fsync: mode, Interval: time.Second, Disk: d})
				appendSessions(t, s, "a")
				time.Sleep(2 * time.Second)
				d.Fail(func(o faultdisk.Op, n int) (int, error) {
					return n, onlyIf(o.Kind == faultdisk.Sync && o.Name == filepath.Base(s.path), syscall.EIO)
				})
				// With an interval the session counts as kept before the sync.
				if err := s.Append(t.Context(), session("b")); errors.Is(err, syscall.EIO) != (mode == council.FsyncSession) {
					t.Errorf("got error %v", err)
				}
				time.Sleep(time.Second + time.Millisecond)
				for range 600 {
					if err := s.Healthy(); !errors.Is(err, syscall.EIO) {
						t.Fatalf("got health %v", err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				d.Fail(nil)
				time.Sleep(lastPause + 2*time.Second)
				if err := s.Healthy(); err != nil {
					t.Errorf("got health %v", err)
				}
				appendSessions(t, s, "c")
				holds(t, s.path, "a", "b", "c")
				if diff := cmp.Diff([]string{"", ".000001.zst"}, names(t, s.path)); diff != "" {
					t.Error(diff)
				}

				// A file whose fsync failed is never written to or synced again.
				given := map[int]bool{}
				retried := 0
				for _, o := range d.Done() {
					if given[o.Inode] && (o.Kind == faultdisk.Write || o.Kind == faultdisk.Sync) {
						retried++
					}
					if o.Kind == faultdisk.Sync && o.Failed {
						given[o.Inode] = true
					}
				}
				if retried > 0 || len(given) < 2 {
					t.Errorf("%d files were given up, %d writes and syncs went to one of them", len(given), retried)
				}
				t.Logf("fault F25: fsync failed (%s) on %d files: %d retries on one of them, segment closed, 0 sessions lost "+
					"(promised 0 retries, a new file)", mode, len(given), retried)
			})
		})
	}
}

// The last fsync of a store that is closed may fail too.
func TestFaultF25AtTheEnd(t *testing.T) {
	d := &faultdisk.Disk{}
	s, _, err := Open(Options{Path: newPath(t), Fsync: council.FsyncInterval, Interval: time.Hour, Disk: d})
	if err != nil {
		t.Fatal(err)
	}
	appendSessions(t, s, "a")
	var once sync.Once
	d.Fail(func(o faultdisk.Op, n int) (_ int, err error) {
		if o.Kind == faultdisk.Sync {
			once.Do(func() { err = syscall.EIO })
		}
		return n, err
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	holds(t, s.path, "a")
	if synced := d.Done(faultdisk.Sync); len(synced) != 2 || synced[0].Inode == synced[1].Inode {
		t.Errorf("the syncs: %+v", synced)
	}
}

// After a roll-back that fails, the content of the file is unknown.
func TestFaultF25RollBackFails(t *testing.T) {
	for _, mode := range []council.Fsync{council.FsyncSession, council.FsyncInterval, council.FsyncOff} {
		t.Run(string(mode), func(t *testing.T) {
			d := &faultdisk.Disk{}
			s := openWith(t, Options{Path: newPath(t), Fsync: mode, Interval: time.Hour, Disk: d})
			appendSessions(t, s, "a")
			var mu sync.Mutex // guards writes
			writes := 0
			d.Fail(func(o faultdisk.Op, n int) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case o.Kind == faultdisk.Truncate:
					return n, syscall.EIO
				case o.Kind == faultdisk.Write && o.Name == filepath.Base(s.path):
					if writes++; writes == 1 {
						return n / 2, syscall.ENOSPC
					}
				}
				return n, nil
			})
			if err := s.Append(t.Context(), session("b")); !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, syscall.EIO) {
				t.Errorf("got error %v", err)
			}
			appendSessions(t, s, "c")
			recovered(t, s)
			holds(t, s.path, "a", "b", "c")
		})
	}
}

// The sessions behind the good part of a file that was given up are not there twice, even
// when the file cannot be cut.
func TestFaultF25FsyncAndCutFail(t *testing.T) {
	s, d := openTestDisk(t)
	appendSessions(t, s, "a")
	failed := false
	var mu sync.Mutex // guards failed
	d.Fail(func(o faultdisk.Op, n int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if o.Kind == faultdisk.Sync && !failed {
			failed = true
			return n, syscall.EIO
		}
		return n, onlyIf(o.Kind == faultdisk.Truncate, syscall.EIO)
	})
	if err := s.Append(t.Context(), session("b")); !errors.Is(err, syscall.EIO) {
		t.Errorf("got error %v", err)
	}
	appendSessions(t, s, "c")
	recovered(t, s)
	holds(t, s.path, "a", "b", "c")
}

// A store recovers as well when no file can be created in its directory for a while.
func TestFaultF25NoNewFile(t *testing.T) {
	for _, kind := range []faultdisk.Kind{faultdisk.Open, faultdisk.Rename, faultdisk.SyncDir} {
		t.Run(string(kind), func(t *testing.T) {
			s, d := openTestDisk(t)
			appendSessions(t, s, "a")
			d.Fail(func(o faultdisk.Op, n int) (int, error) {
				return n, onlyIf(o.Kind == faultdisk.Sync || o.Kind == kind, syscall.EROFS)
			})
			for _, id := range []string{"b", "c"} {
				if err := s.Append(t.Context(), session(id)); !errors.Is(err, syscall.EROFS) {
					t.Errorf("got error %v", err)
				}
			}
			d.Fail(nil)
			appendSessions(t, s, "d")
			recovered(t, s)
			holds(t, s.path, "a", "b", "c", "d")
		})
	}
}

// A store with bad lines of all kinds.
func TestFaultF26Garbage(t *testing.T) {
	path := newPath(t)
	s := openWith(t, Options{Path: path, RotateBytes: 1})
	appendSessions(t, s, "closed")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".000001"}, names(t, path)); diff != "" && !strings.Contains(diff, compressedSuffix) {
		t.Error(diff)
	}
	old := `{"schema_version": 1, "session_id": "old", "timestamp": "2025-12-17T14:00:00+02:00", "reviewer_id": "a", "model_id": "b", ` +
		`"position": 0, "response_length_chars": 9, "score_value": null}`
	garbage := "\ufeff" + old + "\r\n" + strings.Repeat("\x00", 4096) + "\n" + strings.Repeat("x", 10<<20) + "\n" +
		strings.ReplaceAll(lines(t, "crlf"), "\n", "\r\n") + `{"schema_version":"9.0.0"}` + "\n" +
		lines(t, "good") + lines(t, "torn")[:1000]
	writeFile(t, path, garbage)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	records, bad := collect(t, ReadFile(t.Context(), path))
	runtime.ReadMemStats(&after)
	var ids []string
	for _, r := range records {
		ids = append(ids, r.SessionID)
	}
	if diff := cmp.Diff([]string{"closed", "old", "crlf", "good"}, slices.Compact(ids)); diff != "" || len(ids) != 10 {
		t.Errorf("%d records: %s", len(ids), diff)
	}
	if diff := cmp.Diff([]string{"2 not_json", "3 too_long", "7 unknown_schema", "11 unterminated"}, bad); diff != "" {
		t.Error(diff)
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 16<<20 {
		t.Errorf("%d bytes were allocated", allocated)
	}
	t.Logf("fault F26: %d lines skipped with their reasons, %d records read, %d KiB allocated (promised all, bounded)",
		len(bad), len(records), allocated>>10)
}

// Damage in a compressed segment loses the records behind it in this segment, and no
// others.
func TestFaultF26DamagedSegment(t *testing.T) {
	path := newPath(t)
	s := openWith(t, Options{Path: path, RotateBytes: int64(len(lines(t, "00"))) * 100})
	for i := range 250 {
		appendSessions(t, s, fmt.Sprintf("%02d", i))
	}
	if err := s.segments.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := path + ".000001.zst"
	good := content(t, first)
	for name, damaged := range map[string]string{
		"changed": good[:len(good)/2] + "!?!" + good[len(good)/2+3:],
		"cut":     good[:len(good)/2],
		"foreign": "not compressed at all\n",
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, first, damaged)
			records, bad := collect(t, ReadFile(t.Context(), path))
			if n := len(records); n < 3*150 || n >= 3*250 {
				t.Errorf("%d records of 750", n)
			}
			if len(bad) != 1 || !strings.HasSuffix(bad[0], string(ReasonDamaged)) {
				t.Errorf("skipped %v", bad)
			}
		})
	}
}

// A reader returns whole sessions, from the first one on and none twice, while the store
// rotates and compresses all the time.
func TestFaultF27ReadWhileItRotates(t *testing.T) {
	const sessions = 60
	path := newPath(t)
	s := openWith(t, Options{Path: path, RotateBytes: int64(len(lines(t, "0"))) * 2})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range sessions {
			if err := s.Append(context.WithoutCancel(t.Context()), session(strconv.Itoa(n))); err != nil {
				t.Error(err)
			}
		}
	}()
	defer func() { <-done }()
	readings := 0
	for running := true; running; readings++ {
		select {
		case <-done:
			running = false
		default:
		}
		records, bad := collect(t, ReadFile(t.Context(), path))
		for i, r := range records {
			if want := session(strconv.Itoa(i / 3))[i%3]; !reflect.DeepEqual(want, r) {
				t.Fatalf("record %d: %s", i, cmp.Diff(want, r))
			}
		}
		if len(records)%3 != 0 || len(bad) > 1 || !running && len(records) != 3*sessions {
			t.Fatalf("%d records, skipped %v", len(records), bad)
		}
	}
	t.Logf("fault F27: %d readings beside a store that rotates: each a prefix of whole sessions (promised)", readings)
}
