package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/faultdisk"
)

// deed is what another program does to a store that is open.
type deed struct {
	name string
	do   func(path string) error
	undo func(path string) error // nil: the store gets over it by itself
}

// deeds returns all deeds. None of them changes the file elsewhere.
func deeds(elsewhere string) []deed {
	dir := filepath.Dir
	link := func(path, target string) error {
		for {
			err := errors.Join(os.RemoveAll(path+".1"), os.Rename(path, path+".1"), os.Symlink(target, path))
			if !errors.Is(err, fs.ErrExist) { // else the store made it again before the link
				return err
			}
		}
	}
	return []deed{
		{name: "removed", do: os.Remove},
		{name: "renamed", do: func(path string) error { return os.Rename(path, path+".1") }},
		{name: "renamed and made again", do: func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
		}},
		{name: "replaced", do: func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("[]\n"), 0o600), os.Rename(path+".new", path))
		}},
		{name: "emptied", do: func(path string) error { return os.Truncate(path, 0) }},
		{name: "cut within a line", do: func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, max(0, info.Size()-5))
		}},
		{name: "directory removed", do: func(path string) (err error) {
			for range 100 { // files may come while it is emptied
				if err = os.RemoveAll(dir(path)); err == nil {
					break
				}
			}
			return err
		}},
		{name: "directory renamed", do: func(path string) error {
			return errors.Join(os.RemoveAll(dir(path)+".1"), os.Rename(dir(path), dir(path)+".1"))
		}},
		{name: "lock removed", do: func(path string) error { return os.Remove(path + ".lock") }},
		{name: "link in its place", do: func(path string) error { return link(path, elsewhere) }, undo: os.Remove},
		{
			name: "link in its directory's place",
			do:   func(path string) error { return link(dir(path), dir(elsewhere)) },
			undo: func(path string) error { return os.Remove(dir(path)) },
		},
	}
}

// victim returns a file that a store must not change.
func victim(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "victim")
	writeFile(t, name, "not a record\n")
	return name
}

// untouched fails the test if the victim or its directory changed.
func untouched(t *testing.T, victim string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(victim))
	if err != nil || len(entries) != 1 || content(t, victim) != "not a record\n" {
		t.Errorf("the victim holds %q, beside it are %v, %v", content(t, victim), entries, err)
	}
}

// readable returns the number of records of each session that a command reads.
func readable(t *testing.T, path string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for record, err := range ReadFile(t.Context(), path) {
		if err == nil {
			found[record.SessionID]++
		}
	}
	return found
}

// Another program acts on the file or its directory before a session comes, while it is
// written, or while it is synced. A command reads a session that is acknowledged at once,
// and any other session when the store is healthy again. None is there twice.
func TestFaultF34EveryMoment(t *testing.T) {
	testkit.Slow(t)
	cases, acknowledged := 0, 0
	for _, mode := range []council.Fsync{council.FsyncSession, council.FsyncInterval, council.FsyncOff} {
		for _, moment := range []faultdisk.Kind{"", faultdisk.Write, faultdisk.Sync} {
			if moment == faultdisk.Sync && mode != council.FsyncSession {
				continue
			}
			elsewhere := victim(t)
			for _, deed := range deeds(elsewhere) {
				t.Run(fmt.Sprintf("%s/%s at %s", mode, deed.name, moment), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "sub", "records.jsonl")
					d := &faultdisk.Disk{}
					s := openWith(t, Options{Path: path, Fsync: mode, Interval: lastPause, Disk: d})
					appendSessions(t, s, "before")
					act := sync.OnceFunc(func() {
						if err := deed.do(path); err != nil {
							t.Error(err)
						}
					})
					d.Fail(func(o faultdisk.Op, n int) (int, error) {
						if o.Kind == moment && o.Name == filepath.Base(path) {
							act()
						}
						return n, nil
					})
					if moment == "" {
						act()
					}
					err := s.Append(t.Context(), session("now"))
					if err == nil {
						acknowledged++
						if found := readable(t, path); found["now"] != 3 {
							t.Errorf("kept, and a command reads %v", found)
						}
					}
					cases++
					if deed.undo != nil {
						if err == nil || s.Healthy() == nil {
							t.Errorf("got %v, health %v", err, s.Healthy())
						}
						if err := deed.undo(path); err != nil {
							t.Error(err)
						}
					}
					recovered(t, s)
					appendSessions(t, s, "after")
					recovered(t, s)
					if err := s.segments.tidy(t.Context()); err != nil {
						t.Error(err)
					}
					if found := readable(t, path); found["now"] != 3 || found["after"] != 3 || found["before"] > 3 {
						t.Errorf("in the end a command reads %v", found)
					}
					untouched(t, elsewhere)
				})
			}
		}
	}
	t.Logf("fault F34: %d deeds of others before, in and after a write: %d sessions acknowledged, each read by a command at once; "+
		"the others refused and read later; "+
		"0 links followed (promised)", cases, acknowledged)
}

// Sessions come all the time, the store rotates, and another program does all deeds to it
// again and again. A command reads every acknowledged session that began after a deed,
// before the next deed.
func TestFaultF34WhileSessionsRun(t *testing.T) {
	testkit.Slow(t)
	path := filepath.Join(t.TempDir(), "sub", "records.jsonl")
	elsewhere := victim(t)
	s := openWith(t, Options{Path: path, RotateBytes: int64(20 * len(lines(t, "0000")))})
	var mu sync.Mutex // guards kept
	kept := map[int64]map[string]bool{}
	var epoch atomic.Int64
	var running sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id, during := fmt.Sprintf("%d-%d", w, n), epoch.Load()
				if err := s.Append(t.Context(), session(id)); err == nil {
					mu.Lock()
					if kept[during] == nil {
						kept[during] = map[string]bool{}
					}
					kept[during][id] = true
					mu.Unlock()
				}
				runtime.Gosched()
			}
		})
	}
	defer running.Wait()
	defer close(stop)
	in := func(during int64) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Collect(maps.Keys(kept[during]))
	}
	checked := 0
	all := deeds(elsewhere)
	for round := range 3 * len(all) {
		deed := all[round%len(all)]
		if err := deed.do(path); err != nil && !strings.Contains(err.Error(), "no such file") {
			t.Fatalf("%s: %v", deed.name, err)
		}
		if deed.undo != nil {
			for s.Healthy() == nil {
				runtime.Gosched()
			}
			if err := deed.undo(path); err != nil {
				t.Fatal(err)
			}
		}
		during := epoch.Add(1)
		for len(in(during)) < 20 {
			runtime.Gosched()
		}
		acknowledged := in(during)
		found := readable(t, path)
		for _, id := range acknowledged {
			if found[id] != 3 {
				t.Errorf("%s: session %s is acknowledged and %d of its records are read", deed.name, id, found[id])
			}
		}
		if checked += len(acknowledged); t.Failed() {
			break
		}
	}
	// New files may stand beside it: the link can take the directory's place in the moment
	// before the store opens them.
	if got := content(t, elsewhere); got != "not a record\n" {
		t.Errorf("the victim holds %q", got)
	}
	t.Logf("fault F34: %d deeds of others while sessions run: %d acknowledged sessions, 0 of them not read (promised 0)",
		3*len(all), checked)
}

// A link is resolved when the store is opened, also a link to a file that does not exist
// yet, and a command finds the store by either name. No link is followed after that.
func TestFaultF34Links(t *testing.T) {
	t.Run("dangling", func(t *testing.T) {
		target := newPath(t)
		link := newPath(t)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		s := openWith(t, Options{Path: link, RotateBytes: 1})
		if heldBy(t, target) == nil {
			t.Error("a second store has it open by its other name")
		}
		for _, id := range []string{"a", "b"} {
			appendSessions(t, s, id)
		}
		if err := s.segments.tidy(t.Context()); err != nil {
			t.Error(err)
		}
		holds(t, link, "a", "b")
		holds(t, target, "a", "b")
		if beside, err := os.ReadDir(filepath.Dir(link)); err != nil || len(beside) != 1 {
			t.Errorf("beside the link are %v, %v", beside, err)
		}
	})
	t.Run("led elsewhere", func(t *testing.T) {
		target, other, link := newPath(t), newPath(t), newPath(t)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, link)
		appendSessions(t, s, "a")
		if err := errors.Join(os.Remove(link), os.Symlink(other, link)); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), session("b")); err == nil || !strings.Contains(err.Error(), "put it back") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Lstat(other); err == nil {
			t.Error("the new target was made")
		}
		if err := errors.Join(os.Remove(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
		recovered(t, s)
		holds(t, link, "a", "b")
	})
	for _, suffix := range []string{".tmp", ".lock"} {
		t.Run("planted at "+suffix, func(t *testing.T) {
			path, elsewhere := newPath(t), victim(t)
			if err := os.Symlink(elsewhere, path+suffix); err != nil {
				t.Fatal(err)
			}
			s, _, err := Open(Options{Path: path, RotateBytes: 1})
			if suffix == ".lock" {
				if err == nil || !strings.Contains(err.Error(), "symbolic link") || !strings.Contains(err.Error(), path+suffix) {
					t.Errorf("got %v", err)
				}
				untouched(t, elsewhere)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			untouched(t, elsewhere)
			if err := os.Symlink(elsewhere, path+suffix); err != nil {
				t.Fatal(err)
			}
			appendSessions(t, s, "a")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			tidy(t, path)
			holds(t, path, "a")
			untouched(t, elsewhere)
		})
	}
	t.Log("fault F34: a dangling link, one led elsewhere, planted ones at the temporary file and the lock: " +
		"0 followed after the store was opened (promised 0)")
}

// A compressed segment of 0 bytes is damaged. If the uncompressed file is still there, it
// is read, and compressed again. Verify names every damaged segment, and every one that
// cannot be read.
func TestFaultF34DamagedSegments(t *testing.T) {
	path := newPath(t)
	for n, data := range []string{"", "", "not compressed", lines(t, "good")} {
		name := fmt.Sprintf("%s.%06d", path, n+1)
		if n < 3 {
			name += compressedSuffix
		}
		writeFile(t, name, data)
	}
	writeFile(t, path+".000002", lines(t, "twice"))
	if err := os.Mkdir(path+".000005", 0o700); err != nil {
		t.Fatal(err)
	}
	found, err := Verify(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, p := range found {
		text := fmt.Sprintf("%s %d", strings.TrimPrefix(p.File, filepath.Base(path)), p.Sessions)
		if len(p.Skipped) > 0 {
			text += " " + string(p.Skipped[0].Reason)
		}
		if p.Err != nil {
			text += " unreadable"
		}
		said = append(said, text)
	}
	want := []string{".000001.zst 0 damaged", ".000002 1", ".000003.zst 0 damaged", ".000004 1", ".000005 0 unreadable"}
	if !slices.Equal(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	if err := os.Remove(path + ".000005"); err != nil {
		t.Fatal(err)
	}
	tidy(t, path)
	if found := readable(t, path); found["twice"] != 3 || found["good"] != 3 {
		t.Errorf("in the end %v are read", found)
	}
	if _, err := os.Stat(path + ".000002"); err == nil {
		t.Error("the file that was compressed again is still there")
	}
	t.Logf("fault F34: store verify names %d damaged or unreadable segments of %d (promised: every one)", 3, len(want))
}

// While the uncompressed file is still there, the compressed one replaces it only if it
// can be read to its end.
func TestADamagedSegmentDoesNotReplaceItsFile(t *testing.T) {
	path := newPath(t)
	writeFile(t, path+".000001", lines(t, "a", "b"))
	writeFile(t, path+".000001"+compressedSuffix, "cut short by a full disk")
	tidy(t, path)
	holds(t, path, "a", "b")
}

// A panic in any operation of the disk fails the sessions that are being written. They
// are written again, and the store goes on.
func TestFaultF40Append(t *testing.T) {
	for _, mode := range []council.Fsync{council.FsyncSession, council.FsyncInterval, council.FsyncOff} {
		for _, kind := range []faultdisk.Kind{
			faultdisk.Open, faultdisk.Write, faultdisk.Stat, faultdisk.Sync, faultdisk.Rename, faultdisk.Remove, faultdisk.SyncDir,
		} {
			t.Run(fmt.Sprintf("%s/%s", mode, kind), func(t *testing.T) {
				d := &faultdisk.Disk{}
				rotate := int64(len(lines(t, "a", "b")))
				s := openWith(t, Options{Path: newPath(t), Fsync: mode, Interval: lastPause, RotateBytes: rotate, Disk: d})
				appendSessions(t, s, "a")
				var panicked atomic.Bool
				d.Fail(func(o faultdisk.Op, n int) (int, error) {
					if o.Kind == kind && panicked.CompareAndSwap(false, true) {
						panic("unheard of")
					}
					return n, nil
				})
				want := []string{"a"}
				for _, id := range []string{"b", "c", "d", "e"} {
					if err := s.Append(t.Context(), session(id)); err != nil && !strings.Contains(err.Error(), "unheard of") {
						t.Error(err)
					}
					want = append(want, id)
				}
				for start := time.Now(); !panicked.Load(); runtime.Gosched() {
					if time.Since(start) > time.Minute {
						t.Fatal("nothing panicked")
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				tidy(t, s.path)
				holds(t, s.path, want...)
			})
		}
	}
	t.Log("fault F40: a panic in each operation of the disk under an append: " +
		"an error of that session, written again, nothing lost or twice, the store goes on (promised)")
}

// A panic while the store closes is an error of Close, which still releases the lock.
func TestFaultF40Close(t *testing.T) {
	d := &faultdisk.Disk{}
	s, _, err := Open(Options{Path: newPath(t), Fsync: council.FsyncInterval, Interval: lastPause, Disk: d})
	if err != nil {
		t.Fatal(err)
	}
	appendSessions(t, s, "a")
	d.Fail(func(faultdisk.Op, int) (int, error) { panic("unheard of") })
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "unheard of") {
		t.Errorf("got %v", err)
	}
	openStore(t, s.path)
}

// While the store writes, another program cuts the file behind its first session: within a
// line, between two lines, or between two sessions. A session counts as kept only if it
// is whole and does not merge with the rest of another one. None is there twice.
func TestFaultF34CutUnderAWrite(t *testing.T) {
	text := lines(t, "a", "b")
	first := len(lines(t, "a"))
	cuts := map[string]int{
		"within a line":    first + 5,
		"between lines":    first + strings.Index(text[first:], "\n") + 1,
		"between sessions": first,
	}
	for _, mode := range []council.Fsync{council.FsyncSession, council.FsyncInterval, council.FsyncOff} {
		for name, size := range cuts {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				d := &faultdisk.Disk{}
				s := openWith(t, Options{Path: newPath(t), Fsync: mode, Interval: lastPause, Disk: d})
				appendSessions(t, s, "a", "b", "c", "d", "e", "f")
				var once sync.Once
				d.Fail(func(o faultdisk.Op, n int) (int, error) {
					if o.Kind == faultdisk.Write {
						once.Do(func() {
							if err := os.Truncate(s.path, int64(size)); err != nil {
								t.Error(err)
							}
						})
					}
					return n, nil
				})
				if err := s.Append(t.Context(), session("now")); (err == nil) != (name == "between sessions") {
					t.Errorf("got %v", err)
				}
				recovered(t, s)
				appendSessions(t, s, "after")
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				tidy(t, s.path)
				found := readable(t, s.path)
				if found["a"] != 3 || found["now"] != 3 || found["after"] != 3 || found["b"] != 0 && found["b"] != 3 {
					t.Errorf("in the end a command reads %v", found)
				}
			})
		}
	}
	t.Log("fault F34: the file cut within a line, between lines and between sessions under a write: " +
		"0 sessions merged, 0 twice (promised 0)")
}

// Another daemon takes the file while this one syncs, because the lock file was removed.
// The sessions that the other daemon acknowledged are neither cut nor left out later.
func TestFaultF34AnotherDaemonTakesTheFile(t *testing.T) {
	for _, mode := range []council.Fsync{council.FsyncSession, council.FsyncInterval, council.FsyncOff} {
		t.Run(string(mode), func(t *testing.T) {
			d := &faultdisk.Disk{}
			s := openWith(t, Options{Path: newPath(t), Fsync: mode, Interval: lastPause, Disk: d})
			appendSessions(t, s, "a")
			var other *Store
			moment := faultdisk.Sync
			if mode != council.FsyncSession {
				moment = faultdisk.Write
			}
			d.Fail(func(o faultdisk.Op, n int) (int, error) {
				if other == nil && o.Kind == moment {
					if err := os.Remove(s.path + ".lock"); err != nil {
						t.Error(err)
					}
					other = openStore(t, s.path)
					appendSessions(t, other, "other")
				}
				return n, nil
			})
			if err := s.Append(t.Context(), session("now")); err == nil {
				t.Error("the session counts as kept")
			}
			if found := readable(t, s.path); found["other"] != 3 || found["a"] != 3 {
				t.Errorf("while the other daemon has it, a command reads %v", found)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
			recovered(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			tidy(t, s.path)
			if found := readable(t, s.path); found["a"] < 3 || found["other"] != 3 || found["now"] < 3 {
				t.Errorf("in the end a command reads %v", found)
			}
		})
	}
	t.Log("fault F34: another daemon takes the file after its lock was removed: " +
		"what it acknowledged is neither cut nor left out (promised)")
}

// A command and the daemon refuse a link or a named pipe that has the name of a segment,
// and neither waits for a writer of the pipe.
func TestFaultF34IrregularSegments(t *testing.T) {
	irregular := map[string]func(name string) error{
		"link": func(name string) error { return os.Symlink(victim(t), name) },
		"pipe": func(name string) error { return syscall.Mkfifo(name, 0o600) },
	}
	for kind, plant := range irregular {
		for _, suffix := range []string{"", compressedSuffix} {
			t.Run(kind+suffix, func(t *testing.T) {
				path := newPath(t)
				name := path + ".000001" + suffix
				s := openWith(t, Options{Path: path, Retention: time.Hour})
				appendSessions(t, s, "a")
				if err := plant(name); err != nil {
					t.Fatal(err)
				}
				if err := s.segments.tidy(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("the daemon said %v", err)
				}
				found, err := Verify(t.Context(), path)
				if err != nil || len(found) != 2 || found[0].Err == nil || found[1].Sessions != 1 {
					t.Errorf("verify found %+v, %v", found, err)
				}
				for _, err = range ReadFile(t.Context(), path) {
					if err != nil {
						break
					}
				}
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("a command said %v", err)
				}
			})
		}
	}
	t.Log("fault F34: links and named pipes at the names of segments: 0 followed, 0 waited for (promised 0)")
}
