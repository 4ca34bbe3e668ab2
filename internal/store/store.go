package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// maxLine is the size of the longest line that is written or read, in bytes, with its newline. A record of this
// program has well under 1 KiB.
const maxLine = 64 << 10

// moreFollow is before the newline of every record of a session except the last. JSON allows it as white space. If a
// crash cut a session off, the last line of the file has moreFollow, or is only a part of a line.
const moreFollow = '\t'

// Options are the settings of a Store.
type Options struct {
	Path     string        // path of the data file; required
	Fsync    council.Fsync // council.FsyncSession if ""
	Interval time.Duration // required for council.FsyncInterval, above 0
	// RotateBytes is the size at which the data file becomes a closed segment. With 0, the data file never becomes
	// one.
	RotateBytes int64
	// Retention is how old the newest record of a closed segment may be. Older segments are deleted. With 0, no segment
	// is deleted.
	Retention time.Duration
	Log       *slog.Logger // nothing is logged if nil
	Disk      disk.Disk    // the operating system's if nil
	// Synced, if it is not nil, is called with the lines of each append when they are on disk. One goroutine makes all
	// calls, and the last call returns before Close releases the lock. Synced must return at once and must not change
	// the lines.
	Synced func(lines []byte)

	given string // Path before its links were resolved
}

// Recovery says what Open had to repair.
type Recovery struct {
	CutBytes int64 // length of the unfinished last session that was cut off, or 0
}

// Store appends records to a data file. Only one Store has a file open at a time. It is safe for concurrent use.
type Store struct {
	path     string
	lock     *disk.Lock
	segments *housekeeper
	wake     chan struct{}      // holds a token if there is something to write, or if the store closes
	stop     context.CancelFunc // stops the housekeeper
	done     sync.WaitGroup     // the goroutines of the writer and the housekeeper
	damages  atomic.Int64

	mu     sync.Mutex // guards the fields below
	queue  []*batch   // to be written
	queued int        // length of the queue in bytes
	taken  int        // records that the writer took from the queue and has not written yet
	// err is why the last write failed, or why records still wait. It is nil if all is well.
	err    error
	closed bool
	lost   error // which records Close could not write, and why
}

// batch holds the records of a session that are being written.
type batch struct {
	lines   []byte
	records int
	result  chan error // of capacity 1, for the first outcome
	kept    bool       // the last outcome was that the records are kept
}

// Open opens the store for appending. It creates the file and missing directories, readable by this user only, and
// cuts off an unfinished last session. If another Store has the file open, in this process or another one, Open
// does not wait for it, and the error is a *HeldError.
func Open(o Options) (*Store, Recovery, error) {
	if err := o.complete(); err != nil {
		return nil, Recovery{}, fmt.Errorf("opening the record store: %w", err)
	}
	s, recovery, err := open(o)
	if _, held := errors.AsType[*HeldError](err); err != nil && !held {
		err = fmt.Errorf("opening the record store %s: %w; "+
			"name a file in a directory that this user can write to, or switch the records off", o.Path, err)
	}
	return s, recovery, err
}

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if o.Fsync == "" {
		o.Fsync = council.FsyncSession
	}
	switch {
	case o.Path == "":
		return errors.New("no path is given")
	case strings.HasSuffix(o.Path, compressedSuffix):
		return fmt.Errorf("%s ends in %s, as the names of compressed files do", o.Path, compressedSuffix)
	case o.Fsync == council.FsyncInterval && o.Interval <= 0:
		return errors.New("no interval is given")
	case o.Fsync != council.FsyncSession && o.Fsync != council.FsyncInterval && o.Fsync != council.FsyncOff:
		return fmt.Errorf("fsync is %q", o.Fsync)
	}
	o.given = o.Path
	o.Path = Resolve(o.Path)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Disk == nil {
		o.Disk = disk.OS{}
	}
	return nil
}

// Resolve returns the path to which the symbolic links in path lead, so that two names of one file have one lock and
// the same segments. It also follows a link to a file that does not exist, because no data file exists between a
// rotation and the next session. It stops at a link to a directory that does not exist, at links in a circle, and at a
// link to something without a name, such as /dev/stdin when that is a pipe.
func Resolve(path string) string {
	for range maxLinks {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			return target
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
		dir := resolveDir(filepath.Dir(path))
		path = filepath.Join(dir, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = filepath.Clean(target)
	}
	return path
}

// leads returns nil while the name of the store leads to the same file as when the store was opened.
func (o Options) leads() error {
	if now := Resolve(o.given); now != o.Path {
		return fmt.Errorf("%s led to %s when the store was opened and leads to %s now; put it back, or start again",
			o.given, o.Path, now)
	}
	return nil
}

// maxLinks is how many symbolic links in a row Resolve follows.
const maxLinks = 40

// resolveDir does what Resolve does, for a directory.
func resolveDir(dir string) string {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		return target
	}
	parent := filepath.Dir(dir)
	if _, err := os.Lstat(dir); err == nil || parent == dir {
		return dir
	}
	return filepath.Join(resolveDir(parent), filepath.Base(dir))
}

func open(o Options) (*Store, Recovery, error) {
	if err := makeDir(filepath.Dir(o.Path)); err != nil {
		return nil, Recovery{}, err
	}
	lock, err := acquire(o.Path)
	if err != nil {
		return nil, Recovery{}, err
	}
	var d data
	// Check that files can be created in the directory, because the store must create files there to close a segment.
	// The check also removes a temporary file that a crash left.
	temporary, err := createTemporary(o)
	if err == nil {
		err = errors.Join(temporary.Close(), o.Disk.Remove(o.Path+temporarySuffix))
	}
	if err == nil {
		d, err = openData(o)
	}
	if err != nil {
		_ = lock.Close()
		return nil, Recovery{}, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Store{path: o.Path, lock: lock, segments: newHousekeeper(o), wake: make(chan struct{}, 1), stop: stop}
	s.done.Go(func() { s.segments.run(ctx) })
	s.done.Go(newWriter(s, o, d).run)
	return s, Recovery{CutBytes: d.cut}, nil
}

// createTemporary creates the temporary file. It first removes any file or link with this name, so that nothing is
// written through a link.
func createTemporary(o Options) (disk.File, error) {
	name := o.Path + temporarySuffix
	if err := remove(o.Disk, name); err != nil {
		return nil, err
	}
	return o.Disk.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// remove removes a file that may be missing.
func remove(d disk.Disk, name string) error {
	if err := d.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeDir creates dir and its missing parents. It syncs the parent of each new
// directory, which os.MkdirAll does not do.
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
	return disk.OS{}.SyncDir(parent)
}

// data is an open data file.
type data struct {
	disk.File
	info fs.FileInfo // identifies the file
	end  int64       // size of the file
	cut  int64       // length of the unfinished last session that was cut off
}

// openData opens the data file and cuts off an unfinished last session.
func openData(o Options) (data, error) {
	f, err := o.Disk.OpenFile(o.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return data{}, err
	}
	d := data{File: f}
	if err = d.cutTail(); err == nil {
		err = o.Disk.SyncDir(filepath.Dir(o.Path))
	}
	if err != nil {
		_ = f.Close()
		return data{}, err
	}
	return d, nil
}

// cutTail cuts off an unfinished last session, and syncs the file.
func (d *data) cutTail() (err error) {
	if d.info, err = d.Stat(); err != nil {
		return err
	}
	if !d.info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	size := d.info.Size()
	d.end, err = afterLastSession(context.Background(), d, size)
	if d.cut = size - d.end; err != nil || size == 0 {
		return err
	}
	if d.cut > 0 {
		if err := d.Truncate(d.end); err != nil {
			return err
		}
	}
	return d.Sync() // A process that was killed may have left lines that are only in the cache.
}

// afterLastSession returns the offset at which the last whole session ends, in the first size bytes of r. It returns 0
// if there is no whole session. It reads backwards and reads each block once, because an unfinished session may be of
// any length.
func afterLastSession(ctx context.Context, r io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, maxLine)
	for end := size; end > 0; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := max(0, end-int64(len(buf)))
		block := buf[:end-start]
		if _, err := r.ReadAt(block, start); err != nil {
			return 0, err
		}
		i := bytes.LastIndexByte(block, '\n')
		for ; i > 0 && block[i-1] == moreFollow; i = bytes.LastIndexByte(block, '\n') {
			block = block[:i]
		}
		switch {
		case i > 0, i == 0 && start == 0:
			return start + int64(i) + 1, nil
		case i == 0:
			start++ // the byte before this newline is in the next block to read
		}
		end = start
	}
	return 0, nil
}

// Append returns nil once the records are kept, as Options.Fsync defines it. After an error, no record counts as kept.
// It returns the error of ctx only if nothing was written. The end of ctx does not stop a write that has begun.
//
// Records that could not be written wait in memory, and are written as soon as the disk accepts them again. Append does
// not wait for that. Append does wait for a disk that hangs, unless 16 MiB of lines already wait for it. In that case
// Append fails, and its records are lost.
func (s *Store) Append(ctx context.Context, records []council.BiasMetricRecord) error {
	if len(records) == 0 {
		return nil
	}
	lines, err := Encode(records)
	if err == nil {
		err = s.commit(ctx, lines, len(records))
	}
	if err != nil {
		return fmt.Errorf("appending to the record store %s: %w", s.path, err)
	}
	return nil
}

// AppendTexts is Append for records that another program wrote. Each text is a line without its end, and is written
// as it is.
func (s *Store) AppendTexts(ctx context.Context, texts [][]byte) error {
	if len(texts) == 0 {
		return nil
	}
	lines, err := Join(texts)
	if err == nil {
		err = s.commit(ctx, lines, len(texts))
	}
	if err != nil {
		return fmt.Errorf("appending to the record store %s: %w", s.path, err)
	}
	return nil
}

// AppendLines is Append for lines that are not records. Each line is a JSON value with a newline at its end. The
// lines of one call stay together, like the records of a session. A store holds either records or such lines.
//
// When AppendLines returns, the lines are queued after the lines of earlier calls. The function wait returns when these
// lines are kept, or when its ctx ends. If ctx ends first, the store still writes the lines. After a call without
// lines, wait waits for the lines of earlier calls, and fails while some of them are not written.
func (s *Store) AppendLines(lines ...[]byte) (wait func(ctx context.Context) error, err error) {
	var all []byte
	for i, line := range lines {
		if len(line) >= maxLine {
			return nil, fmt.Errorf("appending to %s: a line of %d bytes is longer than the %d that a line may have",
				s.path, len(line), maxLine-1)
		}
		if i < len(lines)-1 {
			all = append(append(all, line[:len(line)-1]...), moreFollow, '\n')
		} else {
			all = append(all, line...)
		}
	}
	b := &batch{lines: all, records: len(lines), result: make(chan error, 1)}
	if err := s.enqueue(b); err != nil {
		return nil, fmt.Errorf("appending to %s: %w", s.path, err)
	}
	return func(ctx context.Context) error {
		select {
		case err = <-b.result:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("appending to %s: %w", s.path, err)
		}
		return nil
	}, nil
}

// Encode returns the records of a session as the lines that Append writes. If a line is longer than readers accept,
// Encode returns an error, because such a line must not be acknowledged.
func Encode(records []council.BiasMetricRecord) ([]byte, error) {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for i := range records {
		before := lines.Len()
		if err := encoder.Encode(&records[i]); err != nil {
			return nil, fmt.Errorf("encoding record %d: %w", i, err)
		}
		if i < len(records)-1 {
			lines.Truncate(lines.Len() - len("\n"))
			lines.Write([]byte{moreFollow, '\n'})
		}
		if n := lines.Len() - before; n > maxLine {
			return nil, fmt.Errorf("encoding record %d: %d bytes are more than the %d that a line may have",
				i, n, maxLine)
		}
	}
	return lines.Bytes(), nil
}

// Join does what Encode does, for records whose texts are known. Each text is a line without its end.
func Join(texts [][]byte) (lines []byte, err error) {
	for i, text := range texts {
		before := len(lines)
		lines = append(lines, text...)
		if i < len(texts)-1 {
			lines = append(lines, moreFollow)
		}
		lines = append(lines, '\n')
		if n := len(lines) - before; n > maxLine {
			return nil, fmt.Errorf("record %d has %d bytes, which are more than the %d that a line may have",
				i, n, maxLine)
		}
	}
	return lines, nil
}

// commit hands the lines to the writer and waits for the outcome.
func (s *Store) commit(ctx context.Context, lines []byte, records int) error {
	b := &batch{lines: lines, records: records, result: make(chan error, 1)}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enqueue(b); err != nil {
		return err
	}
	select {
	case err := <-b.result:
		return err
	case <-ctx.Done():
		if s.withdraw(b) {
			return ctx.Err()
		}
		return <-b.result
	}
}

// errStuck is the error of Append if too many records already wait for a disk that hangs.
var errStuck = errors.New("the disk has not answered for too long, and no more sessions can wait in memory: check " +
	"the disk")

// enqueue adds the batch to the queue of the writer. The queue has a limit, because a write to a disk that hangs does
// not fail. Without the limit, every later session would wait in memory.
func (s *Store) enqueue(b *batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fs.ErrClosed
	}
	if s.queued > 0 && s.queued+len(b.lines) > maxWaiting {
		s.err = errStuck
		return s.err
	}
	s.queue = append(s.queue, b)
	s.queued += len(b.lines)
	s.wakeLocked()
	return nil
}

func (s *Store) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default: // the writer has not yet seen the last signal
	}
}

// withdraw removes the batch from the queue, and reports whether it was still there.
func (s *Store) withdraw(b *batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, b)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.queued -= len(b.lines)
	}
	return i >= 0
}

// take empties the queue and returns what it held. Once closed is true, no more batches come.
func (s *Store) take() (queue []*batch, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue = s.queue
	s.queue = nil
	s.queued = 0
	s.taken += countRecords(queue)
	return queue, s.closed
}

// left is called with the batches that the writer has still to write. It notes how many records they hold.
func (s *Store) left(failed []*batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = countRecords(failed)
}

func countRecords(batches []*batch) (n int) {
	for _, b := range batches {
		n += b.records
	}
	return n
}

// Pending returns how many records are only in memory, because the disk is busy, hangs or does not accept them.
func (s *Store) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken + countRecords(s.queue)
}

// setHealth sets what Healthy returns.
func (s *Store) setHealth(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Healthy returns nil if the last write of records succeeded and no records wait to be written again. Otherwise it
// returns the cause. A closed store returns an error that matches fs.ErrClosed.
func (s *Store) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fs.ErrClosed
	}
	return s.err
}

// Close writes the records that wait, closes the file and releases the lock. Its error names the records that are
// lost. Another call does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.wakeLocked()
	s.mu.Unlock()
	s.stop()
	s.done.Wait()
	if err := errors.Join(s.lost, s.lock.Close()); err != nil {
		return fmt.Errorf("closing the record store %s: %w", s.path, err)
	}
	return nil
}
