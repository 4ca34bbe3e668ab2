package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/testkit/faultdisk"
)

// A file is replaced as a whole. Whatever fails, the old one is there, and nothing is left beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "state.json")
	var d faultdisk.Disk
	is := func(when, want string) {
		t.Helper()
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s the file holds %q, want %q: %v", when, got, want, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("%s there are %v: %v", when, files, err)
		}
	}
	if err := disk.Replace(&d, name, []byte("old")); err != nil {
		t.Fatal(err)
	}
	is("at first", "old")
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v, %v", info.Mode(), err)
	}
	for _, kind := range []faultdisk.Kind{faultdisk.Open, faultdisk.Write, faultdisk.Sync, faultdisk.Rename} {
		d.Fail(func(o faultdisk.Op, bytes int) (int, error) {
			if o.Kind == kind {
				return bytes / 2, syscall.ENOSPC
			}
			return bytes, nil
		})
		if err := disk.Replace(&d, name, []byte("new")); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s fails: %v", kind, err)
		}
		is("after a failure to "+string(kind), "old")
	}
	d.Fail(nil)
	if err := os.WriteFile(name+".tmp", []byte("of a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := disk.Replace(&d, name, []byte("new")); err != nil {
		t.Fatal(err)
	}
	is("afterwards", "new")
}
