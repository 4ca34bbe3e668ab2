package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
)

// Whatever is removed or replaced under the feet of a journal, it notices before it says that
// something is stored, and begins again with what is at its path. No second process gets in.
func TestTakenAway(t *testing.T) {
	t.Parallel()
	for name, deed := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"renamed":  func(dir string) error { return os.Rename(dir, dir+".old") },
		"replaced": func(dir string) error { return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)) },
		"replaced by a copy": func(dir string) error {
			return errors.Join(os.CopyFS(dir+".new", os.DirFS(dir)), os.Rename(dir, dir+".old"), os.Rename(dir+".new", dir))
		},
		"lock removed": func(dir string) error { return os.Remove(filepath.Join(dir, lockFile)) },
		"lock replaced": func(dir string) error {
			lock := filepath.Join(dir, lockFile)
			return errors.Join(os.Remove(lock), os.WriteFile(lock, nil, 0o600))
		},
		"files of the engine removed":  func(dir string) error { return os.RemoveAll(filepath.Join(dir, storeDir)) },
		"stream removed":               func(dir string) error { return os.RemoveAll(streamDir(dir, "COUNCIL_SESSIONS")) },
		"messages removed":             func(dir string) error { return os.RemoveAll(filepath.Dir(blockOf(dir, 1))) },
		"block removed, nothing comes": func(dir string) error { return os.Remove(blockOf(dir, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := inside(t)
			j := open(t, o)
			first := message(j, 1, "1")
			first.Status = council.StatusComplete
			appended(t, j, one, 0, first)
			if err := j.check(t.Context(), j.link); err != nil {
				t.Fatal(err)
			}
			if err := deed(o.Dir); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "lock") {
				fails(t, o, "another daemon holds")
			}
			id := ID{Session: "after"}
			if strings.HasPrefix(name, "block") {
				if err := j.check(t.Context(), j.link); err == nil {
					t.Error("the check notices nothing")
				}
			}
			eventuallyNil(t, "kept again", func() error {
				id.Session += "x" // what was stored at the wrong place is refused, and not there later
				if _, err := j.Append(t.Context(), id, 0, message(j, 1, "1")); err != nil {
					return err
				}
				return j.Healthy()
			})
			fails(t, o, "another daemon holds")
			copied := copied(t, o.Dir)
			o.Dir = copied
			other := open(t, o)
			if log, err := other.Read(t.Context(), id); err != nil || len(log) != 1 {
				t.Errorf("what was stored cannot be read again: %d messages, %v", len(log), err)
			}
			_, err := other.Read(t.Context(), one)
			kept := strings.HasPrefix(name, "lock") || name == "replaced by a copy"
			if lost := errors.Is(err, ErrGone); lost == kept {
				t.Errorf("the session of before: %v", err)
			}
		})
	}
}

// A directory of another user is refused, and stays as it is.
func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("only root can give a directory away: see TestForeign of internal/disk")
		return
	}
	for _, mode := range []fs.FileMode{0o777, 0o755, 0o700} {
		o := inside(t)
		if err := errors.Join(os.Mkdir(o.Dir, mode), os.Chmod(o.Dir, mode), os.Chown(o.Dir, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		fails(t, o, o.Dir, "belongs to another user", "chown")
		if info, err := os.Stat(o.Dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("its mode is %v: %v", info.Mode(), err)
		}
		if names, err := os.ReadDir(o.Dir); err != nil || len(names) > 0 {
			t.Errorf("it holds %v: %v", names, err)
		}
	}
}

// Which sessions worked when a process died is known to the next one.
func TestWorking(t *testing.T) {
	t.Parallel()
	o := inside(t)
	j := open(t, o)
	id := func(n int) ID { return ID{Owner: "ada", Session: strconv.Itoa(n)} }
	appended(t, j, one, 0, message(j, 1, "1"))
	if !j.MayHaveKilled(one) {
		t.Error("before anything is known, no session is excluded")
	}
	for n := range 100 {
		j.Working(id(n), true)
		j.Working(id(n/2), n%2 == 0)
	}
	j.Working(ID{Session: strings.Repeat("s", 64)}, true)
	j.Working(id(60), false)
	j.Working(id(60), true) // its wait was too short to be noted
	j.working.flush()       // what happens after Waits.Working
	dir := copied(t, o.Dir)
	for range 2 {
		o.Dir = copied(t, dir)
		next := open(t, o)
		for n := range 100 {
			if worked := next.MayHaveKilled(id(n)); worked != (n >= 50) {
				t.Errorf("session %d: %v", n, worked)
			}
		}
		if !next.MayHaveKilled(ID{Session: strings.Repeat("s", 64)}) || next.MayHaveKilled(one) {
			t.Error("the wrong sessions worked")
		}
		next.Working(id(1), true)
		o.Dir = copied(t, o.Dir)
		last := open(t, o)
		if !last.MayHaveKilled(id(1)) || last.MayHaveKilled(id(70)) {
			t.Error("what an earlier process noted is not forgotten")
		}
	}
}
