package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/councild/councild/internal/disk"
)

// HeldError says that another Store has the data file open.
type HeldError struct {
	Path   string // the data file
	Holder Holder // zero if the lock file does not name the process
}

// Holder is the process that has a store open.
type Holder struct {
	PID int `json:"pid"`
	// Host is the name of the machine, or of the container. In a container, every daemon may be process 1.
	Host  string    `json:"host"`
	Since time.Time `json:"since"` // when it opened the store
}

// Error names the holder and the remedy.
func (e *HeldError) Error() string {
	holder := "another process"
	if e.Holder.PID != 0 {
		holder = fmt.Sprintf("process %d on %s since %s",
			e.Holder.PID, e.Holder.Host, e.Holder.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("the record store %s is held by %s; stop that process or name another file", e.Path, holder)
}

// acquire takes the lock of the data file at path, and names this process in the lock file. If another Store holds the
// lock, the error is a *HeldError.
func acquire(path string) (*disk.Lock, error) {
	name := path + ".lock"
	lock, err := disk.TryLock(name)
	// A note that cannot be written or read is no fault. The kernel holds the lock, and the note only names the process
	// that has it.
	if errors.Is(err, disk.ErrLocked) {
		var holder Holder
		note, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(note, &holder) != nil {
			holder = Holder{}
		}
		return nil, &HeldError{Path: path, Holder: holder}
	}
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	if note, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, Since: time.Now().UTC()}); err == nil {
		writeNote(name, note)
	}
	return lock, nil
}

// writeNote writes the note to the lock file. It ignores errors.
func writeNote(path string, note []byte) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|disk.NoFollow|disk.NoWait, 0)
	if err != nil {
		return
	}
	_, _ = f.Write(note)
	_ = f.Close()
}
