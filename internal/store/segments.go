package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// The names of the files next to the data file have these ends. The name of a closed segment ends in its number, which
// has numberDigits digits. If the segment is compressed, compressedSuffix follows.
const (
	numberDigits     = 6
	compressedSuffix = ".zst"
	temporarySuffix  = ".tmp"
)

// window is how far back in the text a compressed file can refer, in bytes. That is about 37 sessions of four members.
// A larger window would help little, because a record resembles the records just before it, and near references take
// fewer bits than far references.
const window = 256 << 10

// maxWindow bounds the memory for decompressing a file, in bytes.
const maxWindow = 32 << 20

// segment is a closed segment of a store.
type segment struct {
	number     int
	name       string // name of the uncompressed file
	compressed bool
	twice      bool // it is compressed, and the uncompressed file still exists
}

// file returns the name of the segment's file.
func (s segment) file() string {
	if s.compressed {
		return s.name + compressedSuffix
	}
	return s.name
}

// closedSegments returns the closed segments of the store at path, the oldest first. If a segment has a compressed and
// an uncompressed file, it counts as compressed, unless the compressed file is empty.
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

// lastNumber returns the number of the newest segment, or 0 if there is none.
func lastNumber(all []segment) int {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].number
}

// housekeeper compresses the closed segments of a store, and deletes segments that are too old.
type housekeeper struct {
	o     Options
	added chan struct{} // holds a token if there is a segment to compress

	// mu is held while segments are compressed or deleted. It guards good.
	mu sync.Mutex
	// good maps the numbers of sealed segments that are not compressed yet to their good parts. A segment is sealed if
	// the store gave its file up after a fault.
	good map[int]extent
}

// extent is the good part of a file: its first bytes.
type extent struct {
	file  fs.FileInfo
	bytes int64
}

// same reports whether two calls of Stat found the same file, unchanged. A name does not identify a file, because
// the number of a segment that was removed by hand is used again.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func newHousekeeper(o Options) *housekeeper {
	return &housekeeper{o: o, added: make(chan struct{}, 1), good: map[int]extent{}}
}

// run calls tidy at once, after each rotation and every hour, until ctx ends.
func (h *housekeeper) run(ctx context.Context) {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		err := catchPanic(h.o.Log, func() error { return h.tidy(ctx) })
		if err != nil && ctx.Err() == nil {
			h.o.Log.Error("compressing or deleting record segments failed; the next attempt is within an "+
				"hour", "error", err)
		}
		select {
		case <-h.added:
		case <-hourly.C:
		case <-ctx.Done():
			return
		}
	}
}

// add makes the data file the newest closed segment. The first length bytes of the file are good. If sealed is true,
// the bytes after them do not belong to the segment.
func (h *housekeeper) add(length int64, sealed bool) error {
	all, err := closedSegments(h.o.Path)
	if err != nil {
		return err
	}
	s := h.segment(lastNumber(all) + 1)
	if len(s.name) != len(h.o.Path)+len(".")+numberDigits {
		return errors.New("there is no number left for a segment")
	}
	if sealed { // The segment must not be compressed before its good part is known.
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
	default: // The housekeeper has not yet seen the last signal.
	}
	return nil
}

// segment returns the uncompressed segment with a number.
func (h *housekeeper) segment(number int) segment {
	return segment{number: number, name: fmt.Sprintf("%s.%0*d", h.o.Path, numberDigits, number)}
}

// compressSealed compresses the sealed segments. The writer calls compressSealed before it writes failed sessions
// again. Otherwise a crash could bring back the same sessions after the good part of a sealed segment, and they would
// exist twice.
func (h *housekeeper) compressSealed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for number := range h.good {
		err := h.compressLocked(context.Background(), h.segment(number))
		if errors.Is(err, fs.ErrNotExist) { // Another program removed it.
			delete(h.good, number)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// tidy compresses and deletes the segments that are due.
func (h *housekeeper) tidy(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err := closedSegments(h.o.Path)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all {
		errs = append(errs, h.tidySegmentLocked(ctx, s))
	}
	return errors.Join(errs...)
}

// tidySegmentLocked deletes a segment that is too old. Otherwise it compresses the segment if it is not compressed
// or has no summary.
func (h *housekeeper) tidySegmentLocked(ctx context.Context, s segment) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	defer f.file.Close()
	switch {
	case s.twice && f.intact(ctx):
		return h.replaceLocked(s)
	case s.twice:
		return h.compressLocked(ctx, h.segment(s.number))
	}
	said, unknown := f.Summary()
	deleted := false
	err = error(nil)
	if h.o.Retention > 0 && (unknown != nil || said.later() || said.Records > 0 && h.expired(said.Newest)) {
		deleted, err = h.expireLocked(ctx, s, f)
	}
	// The summary may come from a later release.
	if deleted || unknown == nil || errors.Is(unknown, errNewSummary) {
		return err
	}
	return errors.Join(err, h.compressLocked(ctx, s))
}

// intact reports whether the file can be read to its end.
func (f File) intact(ctx context.Context) bool {
	found, err := summarize(f.lines(ctx))
	return err == nil && !found.damaged()
}

// compressLocked replaces the file of a segment by a compressed one. The new file holds the whole sessions of the old
// file, and their summary. If the segment is sealed, the new file holds only the sessions of its good part. At every
// moment one of the two files is complete, and readers prefer the compressed one. A compressed file that is damaged
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

// replaceLocked removes the uncompressed file, if there is one. It first makes sure that the compressed file
// survives a crash.
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

// writeCompressed compresses the lines in r, with their summary, into the temporary file. When it returns nil, the
// file is on disk. If r is damaged, the error is a *LineError.
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
	compressor, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window))
	if err != nil {
		return err
	}
	summary, err := summarize(func(yield func(Line, error) bool) {
		read(ctx, io.TeeReader(r, compressor), "", false, yield)
	})
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
	summary.Schema = council.RecordSchema
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

// expired reports whether a record with this time is too old.
func (h *housekeeper) expired(at time.Time) bool { return time.Since(at) >= h.o.Retention }

// expireLocked deletes a segment if its newest record is too old, and reports whether it did. It reads the records and
// not only the summary, because the summary does not cover the times of records with a later schema. If the time of
// such a record cannot be read, the modification time of the file counts, because the record cannot be newer than the
// file. A segment without any record stays, because its content is unknown.
func (h *housekeeper) expireLocked(ctx context.Context, s segment, f File) (bool, error) {
	info, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	var newest time.Time
	records := 0
	for line, err := range f.lines(ctx) {
		at := line.Timestamp
		switch {
		case line.Later && at.IsZero():
			at = info.ModTime()
		case isLine(err) && !line.Later:
			continue
		case err != nil && !line.Later:
			return false, err
		}
		if !h.expired(at) { // One record that is young enough keeps the segment.
			return false, nil
		}
		if records++; at.After(newest) {
			newest = at
		}
	}
	if records == 0 {
		return false, nil
	}
	if err := errors.Join(remove(h.o.Disk, s.name), remove(h.o.Disk, s.name+compressedSuffix)); err != nil {
		return false, err
	}
	h.o.Log.Info("deleted a closed segment of the record store: its newest record is older than the retention",
		"file", s.name, "newest", newest)
	return true, nil
}
