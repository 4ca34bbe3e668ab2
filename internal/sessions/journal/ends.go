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

// endsFile is the name of the file that lists the ended sessions. compareEnds compares this list with the index. If a
// listed session is not in the index, the stream has lost the log of the session. If the index says that a listed
// session still runs, the log has lost its end, and the session must not run again. renew also lists running sessions
// whose logs have lost a part. A line "- ..." says that a session was deleted. The file is not synced: a killed process
// loses no lines, but a crash of the machine can lose some. If a line cannot be written, note clears the file.
const endsFile = "ended"

// maxEnds is a size of the file, in bytes. A larger file is written again if most of its lines are out of date.
const maxEnds = 1 << 20

// ends is the open endsFile.
type ends struct {
	mu      sync.Mutex
	file    *os.File // nil while no engine is open
	size    int
	deleted map[ID]bool // sessions that are being deleted
}

// endLine returns the line for a session.
func endLine(id ID) string {
	return cmp.Or(id.Owner, noOwner) + " " + id.Session + "\n"
}

// readEnds returns the sessions that ended and were not deleted, according to the file.
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
			continue // A crash of the machine cut this line off.
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

// note adds a line to the file. If that fails, note clears the file, because a deleted session whose line is missing
// could later count as lost.
func (e *ends) note(line string) {
	if e.file == nil {
		return
	}
	n, err := e.file.WriteString(line)
	if e.size += n; err != nil {
		_ = e.file.Truncate(0)
	}
}

// ended is called when a session has ended. It adds a line for the session.
func (e *ends) ended(id ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note(endLine(id))
}

// delete notes that a session is being deleted. The caller calls the returned function when the session is no longer
// in the index.
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

// renew writes the file again and opens it. The new file lists the sessions that have ended, and the running sessions
// whose logs have lost a part.
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

// large reports whether the file is large, and most of its lines are out of date. The argument sessions is the number
// of sessions in the index.
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

// compareEnds compares the index with the sessions in the file, and reports lost logs and lost ends as damage. If a
// session of the file has no row in the index, its log is lost. If the row says that the session runs, the log has lost
// its end. compareEnds does not report a lost end again if LostPart is already true. Then it writes the file again.
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
