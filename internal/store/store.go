package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/gofrs/flock"

	"github.com/councild/councild/internal/council"
)

// maxLine is the length of the longest line that is written or taken, in bytes,
// its newline included. A record of this program has well under 1 KiB.
const maxLine = 64 << 10

// Options are the settings of a Store.
type Options struct {
	Path string // the data file; required
}

// Recovery says what Open had to mend.
type Recovery struct {
	CutBytes int64 // the length of the unterminated last line that was cut; 0: there was none
}

// Store appends records to a file that no other Store has open. It is safe for
// concurrent use.
type Store struct {
	path string
	lock *flock.Flock

	mu     sync.Mutex // guards what follows
	file   file       // nil once closed
	err    error      // why the last append failed; nil when it did not
	sealed bool       // no append may follow, because of err
}

// file is what a Store needs of its data file. Tests put a faulty one in place.
type file interface {
	io.WriteCloser
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// Open opens the store for appending. It creates the file and missing
// directories, readable by this user only, and cuts an unterminated last line.
// While another Store has the file open, in this or another process, the error is
// a *HeldError; Open does not wait.
func Open(o Options) (*Store, Recovery, error) {
	if o.Path == "" {
		return nil, Recovery{}, errors.New("opening the record store: no path is given")
	}
	path := o.Path
	// Two names of one file must lead to one lock. A file that does not exist yet
	// has one name.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	s, recovery, err := open(path)
	if _, held := errors.AsType[*HeldError](err); err != nil && !held {
		err = fmt.Errorf("opening the record store %s: %w; name a file in a directory that this user can write to, or switch the records off", path, err)
	}
	return s, recovery, err
}

func open(path string) (*Store, Recovery, error) {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, Recovery{}, err
	}
	lock, err := acquire(path)
	if err != nil {
		return nil, Recovery{}, err
	}
	f, cut, err := openData(path)
	if err != nil {
		_ = lock.Close()
		return nil, Recovery{}, err
	}
	return &Store{path: path, lock: lock, file: f}, Recovery{CutBytes: cut}, nil
}

// makeDir creates dir and its missing parents. Each new one is synced into its
// parent, which os.MkdirAll does not do.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// openData opens the data file and returns how many bytes were cut from its end.
func openData(path string) (f *os.File, cut int64, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	if cut, err = cutTail(f); err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, cut, nil
}

// cutTail removes what follows the last newline and returns its length in bytes.
func cutTail(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("not a regular file")
	}
	end, err := afterLastNewline(f, info.Size())
	if err != nil || end == info.Size() {
		return 0, err
	}
	if err := f.Truncate(end); err != nil {
		return 0, err
	}
	return info.Size() - end, f.Sync()
}

// afterLastNewline returns the offset behind the last newline in the first size
// bytes of r, 0 when there is none. It reads blocks from the end, because a tail
// may be of any length.
func afterLastNewline(r io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, maxLine)
	for end := size; end > 0; {
		start := max(0, end-int64(len(buf)))
		block := buf[:end-start]
		if _, err := r.ReadAt(block, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(block, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

// Append writes the records with one write and returns nil once they are on
// disk. With any error none of them counts as kept. An error of ctx is returned
// only when nothing was written: a write that has begun is finished.
//
// When the write fails, for want of space for one, the file is cut back to where
// it was and the next Append may succeed. After a failed fsync every further
// Append fails with the same cause.
func (s *Store) Append(ctx context.Context, records []council.BiasMetricRecord) error {
	if len(records) == 0 {
		return nil
	}
	lines, err := encode(records)
	if err == nil {
		err = s.write(ctx, lines)
	}
	if err != nil {
		return fmt.Errorf("appending to the record store %s: %w", s.path, err)
	}
	return nil
}

// encode returns the records as lines. A line that no reader would take must not
// be acknowledged, so a longer one is an error.
func encode(records []council.BiasMetricRecord) ([]byte, error) {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for i := range records {
		before := lines.Len()
		if err := encoder.Encode(&records[i]); err != nil {
			return nil, fmt.Errorf("encoding record %d: %w", i, err)
		}
		if n := lines.Len() - before; n > maxLine {
			return nil, fmt.Errorf("encoding record %d: %d bytes are more than the %d that a line may have", i, n, maxLine)
		}
	}
	return lines.Bytes(), nil
}

func (s *Store) write(ctx context.Context, lines []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.sealed {
		return fmt.Errorf("refused, the store must be opened anew: %w", s.err)
	}
	s.err = s.writeLocked(lines)
	return s.err
}

func (s *Store) writeLocked(lines []byte) error {
	// The size is asked for and not remembered: if somebody emptied the file to
	// make room, cutting it to an older size would fill it with zeros.
	before, err := s.file.Stat()
	if err != nil {
		return err
	}
	if _, err := s.file.Write(lines); err != nil {
		if cutErr := s.file.Truncate(before.Size()); cutErr != nil {
			s.sealed = true
			return fmt.Errorf("%w; rolling back: %w", err, cutErr)
		}
		return err
	}
	// The kernel may drop the pages that it could not write and report success
	// the next time, so a failed fsync is final.
	if err := s.file.Sync(); err != nil {
		s.sealed = true
		return err
	}
	return nil
}

// Healthy returns nil while records can be kept, as far as the last Append
// showed, else why they cannot. An Append that succeeds clears the error of one
// that was rolled back. A closed store returns an error that matches
// fs.ErrClosed.
func (s *Store) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close closes the file and lets others open the store. It waits for an Append
// that is under way; calling it again does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.file.Close(), s.lock.Close())
	s.file, s.err, s.sealed = nil, fs.ErrClosed, true
	if err != nil {
		return fmt.Errorf("closing the record store %s: %w", s.path, err)
	}
	return nil
}
