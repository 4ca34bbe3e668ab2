//go:build unix

package disk_test

import (
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/councild/councild/internal/disk"
)

// owned is a file of a user.
type owned struct {
	fs.FileInfo
	user uint32
}

func (o owned) Sys() any { return &syscall.Stat_t{Uid: o.user} }

func TestForeign(t *testing.T) {
	t.Parallel()
	own := uint32(os.Geteuid())
	if disk.Foreign(owned{user: own}) || !disk.Foreign(owned{user: own + 1}) {
		t.Error("the owner of a file is mistaken")
	}
}

// A directory is locked once, and its lock is in place while the directory is.
func TestTryLockDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/locked"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := disk.TryLockDir(dir)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Close()
	if _, err := disk.TryLockDir(dir); err == nil {
		t.Error("locked twice")
	}
}
