package journal

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/councild/councild/internal/disk"
)

// workingFile names the sessions that were working when a process died: all others waited,
// for replies of providers or for a place, and cannot have killed it. It has a place of
// workingSize bytes for each of them. It is not synced.
const (
	workingFile = "working"
	workingSize = 160
)

// working is the open workingFile.
type working struct {
	mu     sync.Mutex
	dir    string
	file   *os.File // nil before the first session works
	places map[ID]int
	free   []int
}

// readWorking returns the sessions that worked when the last process died, nil where that
// is not known.
func readWorking(dir string) (map[ID]bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, workingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	list := map[ID]bool{}
	for ; len(data) >= workingSize; data = data[workingSize:] {
		owner, id, ok := strings.Cut(string(bytes.TrimRight(data[:workingSize], "\x00")), " ")
		if owner == noOwner {
			owner = ""
		}
		if ok {
			list[ID{Owner: owner, Session: id}] = true
		}
	}
	return list, err
}

// begin forgets what an earlier process wrote.
func (w *working) begin(dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeLocked()
	w.dir, w.places, w.free = dir, map[ID]int{}, nil
	err := os.Truncate(filepath.Join(dir, workingFile), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// set notes that a session works, or that it waits.
func (w *working) set(id ID, works bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	place, there := w.places[id]
	if w.dir == "" || works == there {
		return nil
	}
	if w.file == nil {
		var err error
		name := filepath.Join(w.dir, workingFile)
		if w.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|disk.NoFollow, 0o600); err != nil {
			return err
		}
	}
	var text [workingSize]byte
	if works {
		if n := len(w.free); n > 0 {
			place, w.free = w.free[n-1], w.free[:n-1]
		} else {
			place = len(w.places)
		}
		_ = append(append(append(text[:0], cmp.Or(id.Owner, noOwner)...), ' '), id.Session...)
		w.places[id] = place
	} else {
		delete(w.places, id)
		w.free = append(w.free, place)
	}
	_, err := w.file.WriteAt(text[:], int64(place)*workingSize)
	return err
}

func (w *working) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeLocked()
	w.dir = ""
}

func (w *working) closeLocked() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}

// Working notes that a session works, or that it waits for replies or for a place. With a
// cluster it does nothing.
func (j *Journal) Working(id ID, works bool) {
	if err := j.working.set(id, works); err != nil {
		j.o.Log.Debug("noting which sessions work", "error", err)
	}
}

// MayHaveKilled reports whether a session worked when the last process died, or that is not
// known: on a cluster it never is.
func (j *Journal) MayHaveKilled(id ID) bool { return j.worked == nil || j.worked[id] }
