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
	"time"

	"github.com/councild/councild/internal/disk"
)

// workingFile is the name of the file that lists the sessions that work. After a crash, each session in the file may
// have caused the crash. All other sessions waited and ran no code. A session that begins to wait, for replies of
// providers or for its turn to run, stays in the file until flush removes it. The file has a slot of workingSize bytes
// for each session. It is not synced.
const (
	workingFile = "working"
	workingSize = 160
)

// working is the open workingFile.
type working struct {
	wait time.Duration // Waits.Working
	// mu guards all below.
	mu     sync.Mutex
	dir    string
	file   *os.File // nil before the first session works
	places map[ID]int
	free   []int
	waits  map[ID]bool // sessions that have begun to wait, but are still in the file
	later  bool        // a call of flush is pending
}

// readWorking returns the sessions that the file named when the last process died. It returns nil if there is no file.
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

// begin clears the file of an earlier process.
func (w *working) begin(dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeLocked()
	w.dir = dir
	w.places = map[ID]int{}
	w.free = nil
	w.waits = map[ID]bool{}
	err := os.Truncate(filepath.Join(dir, workingFile), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// set notes whether a session works. A session that begins to wait stays in the file until flush.
func (w *working) set(id ID, works bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, there := w.places[id]
	switch {
	case w.dir == "":
		return nil
	case there && works:
		delete(w.waits, id)
		return nil
	case there:
		w.waits[id] = true
		if !w.later {
			w.later = true
			time.AfterFunc(w.wait, w.flush)
		}
		return nil
	case !works:
		return nil
	}
	if w.file == nil {
		var err error
		name := filepath.Join(w.dir, workingFile)
		if w.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|disk.NoFollow, 0o600); err != nil {
			return err
		}
	}
	place := len(w.places)
	if n := len(w.free); n > 0 {
		place = w.free[n-1]
		w.free = w.free[:n-1]
	}
	w.places[id] = place
	var text [workingSize]byte
	_ = append(append(append(text[:0], cmp.Or(id.Owner, noOwner)...), ' '), id.Session...)
	return w.writeLocked(text, place)
}

func (w *working) writeLocked(text [workingSize]byte, place int) error {
	_, err := w.file.WriteAt(text[:], int64(place)*workingSize)
	return err
}

// flush removes the waiting sessions from the file. If a write fails, the session stays in the file. If the process
// then dies, the session counts as a possible cause of the crash, although it only waited.
func (w *working) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later = false
	for id := range w.waits {
		if w.file != nil && w.writeLocked([workingSize]byte{}, w.places[id]) == nil {
			w.free = append(w.free, w.places[id])
			delete(w.places, id)
		}
	}
	clear(w.waits)
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

// Working notes that a session works, if the argument works is true. Otherwise it notes that the session waits for
// replies or for its turn to run. On a cluster, Working does nothing.
func (j *Journal) Working(id ID, works bool) {
	if err := j.working.set(id, works); err != nil {
		j.o.Log.Debug("noting which sessions work", "error", err)
	}
}

// MayHaveKilled reports whether a session may have crashed the last process. It is true if workingFile named the
// session when that process died. It is also true if there is no such file, which is always the case on a cluster.
func (j *Journal) MayHaveKilled(id ID) bool { return j.worked == nil || j.worked[id] }
