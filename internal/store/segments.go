package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/councild/councild/internal/disk"
)

// The names of the files beside the data file end in these, a closed segment's in
// its number, to which compressedSuffix is added.
const (
	numberDigits     = 6
	compressedSuffix = ".zst"
	temporarySuffix  = ".tmp"
)

// maxWindow bounds the memory for reading a compressed file, in bytes.
const maxWindow = 32 << 20

// segment is a closed segment of a store.
type segment struct {
	number     int
	name       string // of the file before it was compressed
	compressed bool
	twice      bool // and the file before it was compressed is there too
}

// file returns the name of the segment's file.
func (s segment) file() string {
	if s.compressed {
		return s.name + compressedSuffix
	}
	return s.name
}

// closedSegments returns the closed segments of the store at path, the oldest
// first. One that is there twice, because it has just been compressed, is
// returned as compressed, unless that file is empty.
func closedSegments(path string) ([]segment, error) {
	entries, err := os.ReadDir(filepath.Dir(path)) // sorted by name
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, e := range entries {
		digits, ours := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		digits, compressed := strings.CutSuffix(digits, compressedSuffix)
		number, err := strconv.ParseUint(digits, 10, 32)
		if !ours || err != nil || len(digits) != numberDigits {
			continue
		}
		s := segment{number: int(number), name: path + "." + digits, compressed: compressed}
		if last := len(all) - 1; last < 0 || all[last].number != s.number {
			all = append(all, s)
		} else if info, err := e.Info(); err == nil && info.Size() > 0 {
			s.twice = true
			all[last] = s
		}
	}
	return all, nil
}

// intact reports whether the compressed file can be read to its end.
func (s segment) intact(ctx context.Context) bool {
	f, err := s.open()
	if err != nil {
		return false
	}
	defer f.file.Close()
	found, err := summarize(f.lines(ctx))
	return err == nil && !found.damaged()
}

// summarized reports whether the compressed file has a summary, or one of a later
// release, which stays.
func (s segment) summarized() bool {
	f, err := s.open()
	if err != nil {
		return true // there is nothing to compress
	}
	defer f.file.Close()
	_, err = f.summary()
	return err == nil || errors.Is(err, errNewSummary)
}

// lastNumber returns the number of the newest segment, 0 when there is none.
func lastNumber(all []segment) int {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].number
}

// housekeeper looks after the closed segments of a store.
type housekeeper struct {
	o     Options
	added chan struct{} // of capacity 1: there is a segment to compress

	mu   sync.Mutex     // held while segments are compressed or deleted; guards what follows
	good map[int]extent // what is good of a segment that was sealed, by number, until it is compressed
}

// extent says that so many bytes of a file are good.
type extent struct {
	file  fs.FileInfo
	bytes int64
}

// same reports whether two looks at a file found the same one, unchanged. Segments
// may be removed by hand, and then their numbers come again.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func newHousekeeper(o Options) *housekeeper {
	return &housekeeper{o: o, added: make(chan struct{}, 1), good: map[int]extent{}}
}

// run compresses what is closed and deletes what is old, until ctx ends.
func (h *housekeeper) run(ctx context.Context) {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		if err := h.guard(func() error { return h.tidy(ctx) }); err != nil && ctx.Err() == nil {
			h.o.Log.Error("looking after the closed segments of the record store failed; the next try is in an hour at the latest", "error", err)
		}
		select {
		case <-h.added:
		case <-hourly.C:
		case <-ctx.Done():
			return
		}
	}
}

// guard does the work and makes an error of a panic in it.
func (h *housekeeper) guard(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			h.o.Log.Error("looking after closed segments panicked", "error", err, "stack", string(debug.Stack()))
		}
	}()
	return work()
}

// add makes the data file, of which so many bytes are good, the newest closed
// segment.
func (h *housekeeper) add(length int64, sealed bool) error {
	all, err := closedSegments(h.o.Path)
	if err != nil {
		return err
	}
	s := h.segment(lastNumber(all) + 1)
	if len(s.name) != len(h.o.Path)+len(".")+numberDigits {
		return errors.New("there is no number left for a segment")
	}
	if sealed { // others must not see the segment before they know what is good of it
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	if err := h.o.Disk.Rename(h.o.Path, s.name); err != nil {
		return err
	}
	if sealed {
		info, err := os.Lstat(s.name)
		if err != nil {
			return err
		}
		h.good[s.number] = extent{info, length}
	}
	select {
	case h.added <- struct{}{}:
	default: // the housekeeper has yet to look
	}
	return nil
}

// segment returns the segment of that number, before it is compressed.
func (h *housekeeper) segment(number int) segment {
	return segment{number: number, name: fmt.Sprintf("%s.%0*d", h.o.Path, numberDigits, number)}
}

// settle compresses what was sealed. Until then a crash may bring back what is not
// good of it, and sessions in that must not be written again.
func (h *housekeeper) settle() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for number := range h.good {
		err := h.compressLocked(context.Background(), h.segment(number))
		if errors.Is(err, fs.ErrNotExist) { // somebody removed it
			delete(h.good, number)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// tidy compresses and deletes what is due.
func (h *housekeeper) tidy(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err := closedSegments(h.o.Path)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all {
		switch {
		case s.twice && s.intact(ctx):
			errs = append(errs, h.replaceLocked(s))
		case s.twice, !s.compressed:
			errs = append(errs, h.compressLocked(ctx, h.segment(s.number)))
		case !s.summarized():
			errs = append(errs, h.compressLocked(ctx, s))
		}
		errs = append(errs, h.expireLocked(ctx, s))
	}
	return errors.Join(errs...)
}

// compressLocked replaces the file of a segment by a compressed one that holds what
// is good of it, or its whole sessions, and a summary. At every moment one of the two
// is complete, and readers prefer the compressed one. A compressed file that is damaged
// stays as it is.
func (h *housekeeper) compressLocked(ctx context.Context, s segment) error {
	from, err := disk.OpenRegular(s.file())
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	length := info.Size()
	if good, sealed := h.good[s.number]; sealed && same(good.file, info) {
		length = good.bytes
	}
	content, _, err := File{filepath.Base(from.Name()), from}.content(ctx, length)
	if err == nil {
		defer content.Close()
		err = h.writeCompressed(ctx, content)
	}
	if isLine(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("compressing %s: %w", s.file(), err)
	}
	if err := h.o.Disk.Rename(h.o.Path+temporarySuffix, s.name+compressedSuffix); err != nil {
		return err
	}
	return h.replaceLocked(s)
}

// replaceLocked removes the file that the segment was compressed from, if it is
// there, once nothing can take the compressed one away.
func (h *housekeeper) replaceLocked(s segment) error {
	if _, err := os.Lstat(s.name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := h.o.Disk.SyncDir(filepath.Dir(s.name)); err != nil {
		return err
	}
	delete(h.good, s.number)
	return h.o.Disk.Remove(s.name)
}

// writeCompressed makes the temporary file of the lines in r, with their summary, on
// disk when it returns nil. Damage in r is a *LineError.
func (h *housekeeper) writeCompressed(ctx context.Context, r io.Reader) (err error) {
	to, err := createTemporary(h.o)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, to.Close()); err != nil {
			_ = h.o.Disk.Remove(h.o.Path + temporarySuffix)
		}
	}()
	compressor, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	summary, err := summarize(func(yield func(Line, error) bool) { read(ctx, io.TeeReader(r, compressor), "", false, yield) })
	if err = errors.Join(err, compressor.Close()); err != nil {
		return err
	}
	if summary.damaged() {
		return &LineError{Reason: ReasonDamaged}
	}
	info, err := to.Stat()
	if err != nil {
		return err
	}
	summary.Body = info.Size()
	frame, err := summary.frame()
	if err == nil {
		_, err = to.Write(frame)
	}
	if err != nil {
		return err
	}
	return to.Sync()
}

// expireLocked deletes the segment if its newest record is old enough. One without
// any record stays: nobody knows what it is.
func (h *housekeeper) expireLocked(ctx context.Context, s segment) error {
	if h.o.Retention == 0 {
		return nil
	}
	f, err := s.open()
	if err != nil {
		return err
	}
	defer f.file.Close()
	expired := func(s Summary) bool { return s.Records > 0 && time.Since(s.Newest) >= h.o.Retention }
	if said, ok := f.Summary(); ok && !expired(said) {
		return nil
	}
	found, err := summarize(f.lines(ctx))
	if err != nil || !expired(found) {
		return err
	}
	if err := errors.Join(remove(h.o.Disk, s.name), remove(h.o.Disk, s.name+compressedSuffix)); err != nil {
		return err
	}
	h.o.Log.Info("deleted a closed segment of the record store: its newest record is older than the retention", "file", s.name, "newest", found.Newest)
	return nil
}
