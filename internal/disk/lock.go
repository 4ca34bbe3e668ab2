package disk

import (
	"errors"
	"fmt"
	"os"

	"github.com/gofrs/flock"
)

// ErrLocked is the error of TryLock if another process, or this one, holds the lock.
var ErrLocked = errors.New("it is locked")

// Lock is an exclusive lock among the processes of a machine. The kernel releases it
// when its process ends.
type Lock struct{ file *flock.Flock }

// TryLock takes the lock of the file with this name, and creates the file if it is missing. It does not wait. The
// error is ErrLocked if the lock is taken.
func TryLock(name string) (*Lock, error) {
	file := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDONLY|NoFollow|NoWait))
	locked, err := file.TryLock()
	if err != nil {
		return nil, ExplainLink(name, err)
	}
	if !locked {
		return nil, ErrLocked
	}
	lock := &Lock{file: file}
	if err := lock.InPlace(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// TryLockDir takes the lock of a directory. It does not wait. It returns nil if the file system cannot lock
// directories, and ErrLocked if the lock is taken.
func TryLockDir(name string) (*Lock, error) {
	file := flock.New(name, flock.SetFlag(os.O_RDONLY))
	locked, err := file.TryLock()
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // the lock of a directory is only an additional one
	}
	if !locked {
		return nil, ErrLocked
	}
	return &Lock{file: file}, nil
}

// InPlace returns nil if the lock file is still at its path. It returns an error if the lock file was removed or
// replaced, because another process could then lock a new file at the path.
func (l *Lock) InPlace() error {
	held, err := l.file.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Lstat(l.file.Path()); err != nil || !os.SameFile(held, now) {
		return fmt.Errorf("another process removed or replaced the lock file %s", l.file.Path())
	}
	return nil
}

// Close releases the lock. The file stays.
func (l *Lock) Close() error { return l.file.Close() }
