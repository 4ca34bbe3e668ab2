package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"

	"github.com/councild/councild/internal/disk"
)

// HeldError says that another Store has the file open.
type HeldError struct {
	Path   string // the data file
	Holder Holder // zero when the lock file does not name it
}

// Holder is the process that has a store open.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`  // in a container, its name: every daemon there may be process 1
	Since time.Time `json:"since"` // when it opened the store
}

// Error names the holder and the remedy.
func (e *HeldError) Error() string {
	holder := "another process"
	if e.Holder.PID != 0 {
		holder = fmt.Sprintf("process %d on %s since %s", e.Holder.PID, e.Holder.Host, e.Holder.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("the record store %s is held by %s; stop that process or name another file", e.Path, holder)
}

// acquire takes the lock of the data file at path, and writes into the lock file which
// process holds it.
func acquire(path string) (*flock.Flock, error) {
	lock := flock.New(path+".lock", flock.SetFlag(os.O_CREATE|os.O_RDONLY|disk.NoFollow|disk.NoWait))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, disk.ExplainLink(lock.Path(), err)
	}
	// The lock is the kernel's, and the note in the file only names its holder. So it is
	// no fault when the note cannot be written or read.
	if !locked {
		var holder Holder
		note, err := os.ReadFile(lock.Path())
		if err != nil || json.Unmarshal(note, &holder) != nil {
			holder = Holder{}
		}
		return nil, &HeldError{Path: path, Holder: holder}
	}
	if err := inPlace(lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	host, _ := os.Hostname()
	if note, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, Since: time.Now().UTC()}); err == nil {
		writeNote(lock.Path(), note)
	}
	return lock, nil
}

func writeNote(path string, note []byte) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|disk.NoFollow|disk.NoWait, 0)
	if err != nil {
		return
	}
	_, _ = f.Write(note)
	_ = f.Close()
}

// inPlace returns nil while another process that opens the store would ask for this
// lock. After the lock file was removed, another process can lock a new one.
func inPlace(lock *flock.Flock) error {
	held, err := lock.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Lstat(lock.Path()); err != nil || !os.SameFile(held, now) {
		return fmt.Errorf("another process removed or replaced the lock file %s", lock.Path())
	}
	return nil
}
