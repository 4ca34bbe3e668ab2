package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/councild/councild/internal/disk"
)

// endsFile names every session that has ended, as a line each: what is lost of the stream
// can then be told, and no session that had ended is run again. A line "- ..." says that a
// session was deleted. It is not synced: a process that is killed loses nothing of it.
const endsFile = "ended"

// maxEnds is the size in bytes from which on the file is written anew, when most of its
// lines say nothing any more.
const maxEnds = 1 << 20

// ends is the open endsFile.
type ends struct {
	mu      sync.Mutex
	file    *os.File // nil while no engine is open
	size    int
	deleted map[ID]bool // that are being deleted
}

func endLine(id ID) string {
	return cmp.Or(id.Owner, noOwner) + " " + id.Session + "\n"
}

// readEnds returns the sessions that ended and were not deleted, as far as the file says.
func readEnds(dir string) (map[ID]bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, endsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list := map[ID]bool{}
	for line := range strings.Lines(string(data)) {
		text, whole := strings.CutSuffix(line, "\n")
		text, deleted := strings.CutPrefix(text, "- ")
		owner, id, ok := strings.Cut(text, " ")
		if !whole || !ok || !validToken.MatchString(owner) || !validToken.MatchString(id) {
			continue // a line that a crash of the machine cut off
		}
		if owner == noOwner {
			owner = ""
		}
		if key := (ID{Owner: owner, Session: id}); deleted {
			delete(list, key)
		} else {
			list[key] = true
		}
	}
	return list, nil
}

// note adds a line. Where it cannot be written, the file says nothing any more: a line that
// is missing could make a deleted session a lost one.
func (e *ends) note(line string) {
	if e.file == nil {
		return
	}
	n, err := e.file.WriteString(line)
	if e.size += n; err != nil {
		_ = e.file.Truncate(0)
	}
}

func (e *ends) ended(id ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note(endLine(id))
}

// delete notes that a session is deleted. It returns what is called when its row is gone.
func (e *ends) delete(id ID) (gone func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note("- " + endLine(id))
	if e.deleted == nil {
		e.deleted = map[ID]bool{}
	}
	e.deleted[id] = true
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.deleted, id)
	}
}

// renew writes the file anew and opens it.
func (e *ends) renew(dir string, x *index, lost func(ID) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for id, runs := range x.all() {
		if (!runs || lost(id)) && !e.deleted[id] {
			b.WriteString(endLine(id))
		}
	}
	e.closeLocked()
	name := filepath.Join(dir, endsFile)
	if err := disk.Replace(disk.OS{}, name, []byte(b.String())); err != nil {
		return err
	}
	var err error
	e.file, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|disk.NoFollow, 0)
	e.size = b.Len()
	return err
}

// large reports whether most lines say nothing any more of so many sessions.
func (e *ends) large(sessions int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	line := endLine(ID{Owner: strings.Repeat("o", 16), Session: strings.Repeat("s", 36)})
	return e.file != nil && e.size > maxEnds && e.size > 4*sessions*len(line)
}

func (e *ends) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closeLocked()
}

func (e *ends) closeLocked() {
	if e.file != nil {
		_ = e.file.Close()
		e.file = nil
	}
}

// compareEnds compares the list of sessions with those that had ended. One that runs, as its
// log says, has lost its end. One that is not there is lost.
func (j *Journal) compareEnds() error {
	had, err := readEnds(j.o.Dir)
	if err != nil {
		return fmt.Errorf("reading which sessions have ended: %w", err)
	}
	rows := j.index.all()
	var d Damage
	for id := range had {
		switch runs, there := rows[id]; {
		case !there:
			d.Lost = append(d.Lost, id)
		case runs && !j.LostPart(id):
			d.Interrupted = append(d.Interrupted, id)
		}
	}
	if len(d.Lost)+len(d.Interrupted) > 0 {
		sortIDs(d.Lost)
		sortIDs(d.Interrupted)
		report, err := newReport(j.o.Dir)
		if err != nil {
			return err
		}
		report.Lost = d.Lost
		report.Interrupted = d.Interrupted
		if err := report.write(j.o.Log); err != nil {
			return err
		}
		if err := j.readDamage(); err != nil {
			return err
		}
	}
	return j.ends.renew(j.o.Dir, j.index, j.LostPart)
}
