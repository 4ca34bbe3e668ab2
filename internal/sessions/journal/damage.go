package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// A Journal reads the block files before it opens the engine, because the engine truncates a block file at the first
// record that is not whole, and does not report that. The Journal copies damaged files to a new directory, with a
// report, and leaves only the whole records to the engine.

const (
	damagedDir   = "damaged-" // begins the name of a directory; a time follows it
	reportFile   = "report.json"
	acceptedFile = "accepted" // this file is next to a report if an operator has accepted the reported damage
	closedFile   = "closed"   // this file exists while no engine is open, if the last engine was closed cleanly
	engineState  = "index.db" // a file that the engine can rebuild from the blocks
	messagesDir  = "msgs"     // the directory of a stream's blocks
	blockSuffix  = ".blk"
	stateRunning = `"status":"` // the status follows this text in a header
)

// Damage is a report on the damage that one start of the engine found.
type Damage struct {
	At    time.Time     `json:"at"`
	Files []DamagedFile `json:"files,omitempty"`
	// Interrupted lists the sessions that are not run again. The log of each one has lost a part, or may have lost one,
	// and does not say that the session has ended.
	Interrupted []ID `json:"interrupted,omitempty"`
	// Lost lists the ended sessions whose logs are gone.
	Lost []ID `json:"lost,omitempty"`

	dir string
}

// DamagedFile is a block file that was repaired. A copy of the damaged file is in the directory of the report.
type DamagedFile struct {
	Stream   string `json:"stream"`
	File     string `json:"file"`
	Places   []int  `json:"places"`   // offsets of the damaged places, in bytes
	Bytes    int    `json:"bytes"`    // how many bytes are lost
	Messages int    `json:"messages"` // a lower bound for the number of lost messages
	Repaired int    `json:"repaired"` // how many messages had only a wrong length, which was corrected
}

// Problem says in one line what was lost.
func (d Damage) Problem() string {
	var said []string
	add := func(n int, one, more string) {
		if n == 1 {
			said = append(said, "1 "+one)
		} else if n > 1 {
			said = append(said, strconv.Itoa(n)+" "+more)
		}
	}
	size := 0
	messages := 0
	repaired := 0
	for _, f := range d.Files {
		size += f.Bytes
		messages += f.Messages
		repaired += f.Repaired
	}
	add(len(d.Files), "file was damaged", "files were damaged")
	add(size, "byte is lost", "bytes are lost")
	add(messages, "entry is missing, or more", "entries are missing, or more")
	add(repaired, "entry was repaired", "entries were repaired")
	add(len(d.Lost), "session that had ended is gone", "sessions that had ended are gone")
	add(len(d.Interrupted), "session cannot go on", "sessions cannot go on")
	return strings.Join(said, ", ")
}

// Damages returns the reports that no operator has accepted, the oldest first. Callers must not change the slice.
func (j *Journal) Damages() []Damage {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.damages
}

// LostPart reports whether the log of a session has lost messages at its end, or may have lost some. Even if such a
// log says that its session runs, the session may have ended.
func (j *Journal) LostPart(id ID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lost[id]
}

// LosesParts reports whether LostPart is true for any session.
func (j *Journal) LosesParts() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.lost) > 0
}

// Accept accepts all reported damage in the directory of an engine, on behalf of an operator. It notes this next to
// each report, and returns the damage that it has accepted. The daemon may be running.
func Accept(dir string) ([]Damage, error) {
	all, err := reports(dir)
	if err != nil {
		return nil, fmt.Errorf("reading what is damaged: %w", err)
	}
	all = slices.DeleteFunc(all, Damage.accepted)
	for _, d := range all {
		note := time.Now().UTC().Format(time.RFC3339) + "\n"
		if err := disk.Replace(disk.OS{}, filepath.Join(d.dir, acceptedFile), []byte(note)); err != nil {
			return nil, fmt.Errorf("accepting what is damaged: %w", err)
		}
	}
	return all, nil
}

func (d Damage) accepted() bool {
	_, err := os.Stat(filepath.Join(d.dir, acceptedFile))
	return err == nil
}

// reports reads all reports of damage in a directory, the oldest first.
func reports(dir string) ([]Damage, error) {
	names, err := filepath.Glob(filepath.Join(dir, damagedDir+"*", reportFile))
	if err != nil {
		return nil, err
	}
	var all []Damage
	for _, name := range names { // The names are in order, because they hold the time.
		d := Damage{dir: filepath.Dir(name)}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // It was just removed.
		}
		if err == nil {
			err = json.Unmarshal(data, &d)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// newReport returns an empty report, and makes its directory.
func newReport(dir string) (Damage, error) {
	d := Damage{At: time.Now().UTC()}
	d.dir = filepath.Join(dir, damagedDir+d.At.Format("20060102T150405.000000000Z"))
	return d, os.Mkdir(d.dir, 0o700)
}

// write stores a report, and logs it.
func (d Damage) write(log *slog.Logger) error {
	data, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		return err
	}
	if err = disk.Replace(disk.OS{}, filepath.Join(d.dir, reportFile), append(data, '\n')); err != nil {
		return err
	}
	for _, f := range d.Files {
		log.Warn("a file of kept sessions is damaged: it was set aside, "+
			"and what is whole of it is used", "file", f.File, "stream", f.Stream,
			"places", f.Places, "bytes", f.Bytes, "messages", f.Messages, "repaired", f.Repaired, "set_aside", d.dir)
	}
	const most = 20
	for _, id := range d.Lost[:min(most, len(d.Lost))] {
		log.Warn("a session that had ended is lost, because its files are damaged or missing", "session_id", id.Session)
	}
	for _, id := range d.Interrupted[:min(most, len(d.Interrupted))] {
		log.Warn("a session cannot go on, because a part of its log is or may be lost: it ends as interrupted",
			"session_id", id.Session)
	}
	if more := max(0, len(d.Lost)-most) + max(0, len(d.Interrupted)-most); more > 0 {
		log.Warn("more sessions of a damaged file are in the report", "more", more, "report", d.dir)
	}
	return disk.OS{}.SyncDir(filepath.Dir(d.dir))
}

// readDamage reads the reports. It notes which sessions have lost a part, and which damage no operator has
// accepted.
func (j *Journal) readDamage() error {
	all, err := reports(j.o.Dir)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range all {
		for _, id := range d.Interrupted {
			j.lost[id] = true
		}
	}
	j.damages = slices.DeleteFunc(all, Damage.accepted)
	return nil
}

// stream names the block files of one stream of the engine.
type stream struct {
	dir, name string
	blocks    []int // their numbers, in ascending order
}

func (s stream) file(number int) string {
	return filepath.Join(s.dir, messagesDir, strconv.Itoa(number)+blockSuffix)
}

// blockNumber returns the number of a block file, or 0 for any other file.
func blockNumber(name string) int {
	digits, ok := strings.CutSuffix(filepath.Base(name), blockSuffix)
	number, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return 0
	}
	return number
}

// removeState removes the file with the state of a stream. The engine can rebuild this state from the blocks.
func (s stream) removeState() error {
	if err := os.Remove(filepath.Join(s.dir, messagesDir, engineState)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// streams returns the streams in a directory. It leaves out encrypted blocks, because scan cannot read them.
func streams(dir string) (list []stream, err error) {
	root := streamDir(dir, "")
	dirs, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, d := range dirs {
		s := stream{dir: filepath.Join(root, d.Name()), name: d.Name()}
		if _, err := os.Stat(filepath.Join(s.dir, "meta.key")); err == nil {
			continue
		}
		files, err := os.ReadDir(filepath.Join(s.dir, messagesDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, f := range files {
			if n := blockNumber(f.Name()); n > 0 {
				s.blocks = append(s.blocks, n)
			}
			if strings.HasSuffix(f.Name(), ".key") {
				s.blocks = nil
				break
			}
		}
		slices.Sort(s.blocks)
		list = append(list, s)
	}
	return list, err
}

// found is the result of a scan of one stream.
type found struct {
	files       []DamagedFile
	repaired    map[int][]byte // the records to keep of each damaged block, by the number of the block
	interrupted []ID
}

// scan reads all blocks of a stream, one after another. It reads about 256 MiB in 0.3 s.
func (s stream) scan() (found, error) {
	f := found{repaired: map[int][]byte{}}
	ends := map[string]logEnd{} // maps a subject to its last whole message
	var holes []hole
	var last uint64
	pending := 0 // index of the first hole after which no message was found yet
	for i, number := range s.blocks {
		data, err := os.ReadFile(s.file(number))
		if errors.Is(err, fs.ErrNotExist) {
			continue // The engine, which may be open, has removed the block.
		}
		if err != nil {
			return f, err
		}
		// Stop at a compressed block, because scan cannot read it. councild never enables compression.
		if bytes.HasPrefix(data, []byte("cmp")) {
			return f, nil
		}
		b, err := newBlock(s.name, number, data)
		if err != nil {
			return f, err
		}
		begin := len(holes)
		r := b.scan(last, i == len(s.blocks)-1, func(r record) {
			if r.gone {
				return
			}
			for ; pending < len(holes); pending++ {
				holes[pending].behind = r.seq
			}
			ends[string(r.subject)] = logEnd{r.seq, runs(r.header)}
		}, func(h hole) { holes = append(holes, h) })
		last = r.last
		if mine := holes[begin:]; len(mine) > 0 || r.repaired > 0 {
			file := DamagedFile{
				Stream: s.name, File: filepath.Base(s.file(number)), Places: []int{}, Repaired: r.repaired,
			}
			f.repaired[number] = file.cut(data, mine, r.end)
			f.files = append(f.files, file)
		}
	}
	for subject := range suspects(holes, ends) {
		if id, ok := session(subject); ok {
			f.interrupted = append(f.interrupted, id)
		}
	}
	sortIDs(f.interrupted)
	return f, nil
}

// cut notes holes in d. It returns the data of the file without the holes, up to the offset end.
func (d *DamagedFile) cut(data []byte, holes []hole, end int) (whole []byte) {
	at := 0
	for _, h := range holes {
		whole = append(whole, data[at:h.from]...)
		at = h.to
		d.Places = append(d.Places, h.from)
		d.Bytes += h.to - h.from
		d.Messages += max(1, len(h.subjects))
	}
	return append(whole, data[at:max(at, end)]...)
}

// logEnd is the last whole message of a subject.
type logEnd struct {
	seq  uint64
	runs bool
}

// suspects returns the subjects of the running sessions that may have lost a message in a hole.
func suspects(holes []hole, ends map[string]logEnd) map[string]bool {
	found := map[string]bool{}
	for _, h := range holes {
		known := len(h.subjects) > 0
		for _, subject := range h.subjects {
			if e, ok := ends[subject]; !ok { // The subject is damaged itself, or its log had only one message.
				known = false
			} else if e.runs {
				found[subject] = true
			}
		}
		if known {
			continue
		}
		for subject, e := range ends {
			if e.runs && (h.behind == 0 || e.seq < h.behind) {
				found[subject] = true
			}
		}
	}
	return found
}

func sortIDs(ids []ID) {
	slices.SortFunc(ids, func(a, b ID) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Owner, b.Owner))
	})
}

// runs reports whether a message says that its session runs.
func runs(header []byte) bool {
	return bytes.Contains(header, []byte(stateRunning+string(council.StatusRunning)+`"`))
}

// repair reads all block files. It copies each damaged file to the directory of a report, and then replaces the file by
// its whole records. The engine must not be open.
func (j *Journal) repair() error {
	list, err := streams(j.o.Dir)
	if err != nil {
		return err
	}
	var report Damage
	all := make([]found, len(list))
	for i, s := range list {
		if all[i], err = s.scan(); err != nil {
			return err
		}
		if len(all[i].files) == 0 {
			continue
		}
		if report.dir == "" {
			if report, err = newReport(j.o.Dir); err != nil {
				return err
			}
		}
		if err := s.setAside(report.dir, all[i]); err != nil {
			return err
		}
		report.Files = append(report.Files, all[i].files...)
		report.Interrupted = append(report.Interrupted, all[i].interrupted...)
	}
	if report.dir == "" {
		return nil
	}
	if err := report.write(j.o.Log); err != nil {
		return err
	}
	for i, s := range list {
		if err := s.replace(all[i]); err != nil {
			return err
		}
	}
	return nil
}

// setAside copies the damaged blocks to a directory below dir.
func (s stream) setAside(dir string, f found) error {
	dir = filepath.Join(dir, s.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for number := range f.repaired {
		data, err := os.ReadFile(s.file(number))
		if err == nil {
			err = disk.Replace(disk.OS{}, filepath.Join(dir, filepath.Base(s.file(number))), data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replace replaces the damaged blocks by the repaired ones. It first removes the state that the engine stored, because
// that state describes the damaged blocks.
func (s stream) replace(f found) error {
	if len(f.repaired) == 0 {
		return nil
	}
	if err := s.removeState(); err != nil {
		return err
	}
	for number, data := range f.repaired {
		if err := disk.Replace(disk.OS{}, s.file(number), data); err != nil {
			return err
		}
	}
	return nil
}

// verify checks in the background whether the block files are whole. It runs only if the last engine was closed
// cleanly, because then repair has not read the files. If a block is damaged, verify reports that the engine failed.
// The journal then opens the engine again, and repair repairs the block.
func (j *Journal) verify(log *engineLog) {
	for range 2 { // A block that the engine is writing can look damaged once, but not twice.
		damaged := false
		list, err := streams(j.o.Dir)
		for _, s := range list {
			if f, failed := s.scan(); failed == nil && len(f.files) > 0 {
				damaged = true
			}
		}
		if err != nil || !damaged {
			return
		}
	}
	j.fail(log, errors.New("a block file is damaged"))
}
