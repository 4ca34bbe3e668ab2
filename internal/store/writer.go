package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

const (
	// maxWaiting bounds, in bytes, the lines that are kept in memory because they
	// are not on disk: those of some thousand sessions.
	maxWaiting = 16 << 20

	// Between two attempts to write what waits the pause grows from the first of
	// these to the second.
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// writer appends batches to the data file. Whatever comes while it writes and
// syncs is written together next, so that under load many sessions share an
// fsync. It belongs to one goroutine.
type writer struct {
	o     Options
	store *Store

	file    disk.File   // nil: to be opened
	info    fs.FileInfo // tells the file from others
	sealed  bool        // nobody knows what the file holds on disk: it must be replaced before the next write
	durable int64       // this many bytes of the file are good whatever happens
	doubt   bool        // the last fsync failed
	size    int64       // of the file, after the last write; unwritten before the first
	lines   []byte      // of the last write, for its memory
	limit   int64       // the size from which the file becomes a closed segment

	writing  []*batch  // taken from the queue or from failed, until it is known what became of them
	unsynced []*batch  // written and not yet synced, oldest first; none with council.FsyncOff
	syncBy   time.Time // when they must be, with council.FsyncInterval
	failed   []*batch  // to be written again, oldest first
	retryAt  time.Time
	pause    time.Duration // before the next attempt after retryAt
	err      error         // see Store.err
}

// unwritten is the size of a file that was opened and not yet written to.
const unwritten = -1

func newWriter(s *Store, o Options, d data) *writer {
	w := &writer{o: o, store: s, pause: firstPause}
	w.use(d)
	return w
}

// use appends to the file from now on.
func (w *writer) use(d data) {
	w.file, w.info, w.durable, w.size, w.limit = d.File, d.info, d.end, unwritten, w.o.RotateBytes
}

// run writes what is queued, and what waits, until the store closes.
func (w *writer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for closed := false; !closed; {
		select {
		case <-w.store.wake:
		case <-timer.C:
		}
		w.writing, closed = w.store.take()
		_ = w.guard(func() { w.step(closed) }) // whoever waits was told
		timer.Reset(w.idle())
	}
	if err := w.guard(w.close); err != nil {
		w.store.lost = errors.Join(w.store.lost, err)
	}
}

// step does what is due now.
func (w *writer) step(closed bool) {
	works := len(w.writing) > 0 && w.write(w.writing)
	if len(w.unsynced) > 0 && (closed || !time.Now().Before(w.syncBy)) {
		w.sync()
	}
	if len(w.failed) > 0 && (works || closed || !time.Now().Before(w.retryAt)) {
		w.retry(closed)
	}
	w.rotateIfFull()
}

// guard does the work. A panic in it is a failure of the sessions at hand, and
// nobody knows what the file holds then; the process and the other sessions go on.
func (w *writer) guard(work func()) (cause error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		cause = fmt.Errorf("panic: %v", p)
		pending := w.unsynced
		for _, b := range w.writing {
			if !b.kept && !slices.Contains(pending, b) && !slices.Contains(w.failed, b) {
				pending = append(pending, b)
			}
		}
		w.writing, w.unsynced = nil, nil
		w.sealed = w.file != nil
		w.fail(pending, cause)
		w.o.Log.Error("writing records panicked: they are written again, to a new file", "error", cause, "stack", string(debug.Stack()))
	}()
	work()
	return nil
}

// idle returns how long nothing needs to be done.
func (w *writer) idle() time.Duration {
	idle := time.Hour
	if len(w.unsynced) > 0 {
		idle = min(idle, time.Until(w.syncBy))
	}
	if len(w.failed) > 0 {
		idle = min(idle, time.Until(w.retryAt))
	}
	return idle
}

// retry writes what waits, unless it may come back from a sealed file. At last that
// does not matter.
func (w *writer) retry(last bool) {
	err := w.ready()
	if err == nil {
		err = w.store.segments.settle()
	}
	if err != nil && !last {
		w.fail(nil, err)
		return
	}
	batches := w.failed
	w.failed, w.writing = nil, batches
	if w.write(batches) {
		w.o.Log.Info("the record store works again: what waited is written", "sessions", len(batches))
	}
}

// write appends the batches with one write, and syncs them with council.FsyncSession. It
// reports whether that worked. When the disk takes only a part, that is cut back
// to whole batches.
func (w *writer) write(batches []*batch) bool {
	if err := w.ready(); err != nil {
		return w.fail(batches, err)
	}
	// The size is asked for and not remembered: if somebody emptied the file to
	// make room, cutting it to an older size would fill it with zeros. A file that
	// somebody else cut or wrote to may end within a line.
	info, err := w.file.Stat()
	if err == nil && w.size != unwritten && w.size != info.Size() {
		w.o.Log.Error("another process changed the record file", "bytes", info.Size(), "before", w.size)
		d := data{File: w.file}
		if err = d.cutTail(); err == nil {
			info, err = w.file.Stat()
		}
	}
	if err != nil {
		return w.fail(batches, err)
	}
	w.size = info.Size()
	w.durable = min(w.durable, w.size)
	if len(w.unsynced) == 0 {
		w.durable = w.size
	}
	w.lines = w.lines[:0]
	for _, b := range batches {
		w.lines = append(w.lines, b.lines...)
	}
	n, err := w.file.Write(w.lines)
	whole, length := 0, 0
	for whole < len(batches) && length+len(batches[whole].lines) <= n {
		length += len(batches[whole].lines)
		whole++
	}
	if err != nil {
		if cutErr := w.file.Truncate(w.size + int64(length)); cutErr != nil {
			return w.seal(batches, fmt.Errorf("%w; rolling back: %w", err, cutErr))
		}
	}
	w.size, w.lines = w.size+int64(length), w.lines[:length]
	works := whole == 0 || w.keep(batches[:whole])
	if err != nil {
		return w.fail(batches[whole:], err)
	}
	return works
}

// keep does with written batches what Options.Fsync says, and reports whether that
// worked.
func (w *writer) keep(batches []*batch) bool {
	if w.o.Fsync == council.FsyncOff {
		if err := w.check(w.size); err != nil {
			return w.seal(batches, err)
		}
		w.durable = w.size
		w.settle(batches, nil)
		return true
	}
	if len(w.unsynced) == 0 {
		w.syncBy = time.Now().Add(w.o.Interval)
	}
	w.unsynced = append(w.unsynced, batches...)
	if w.o.Fsync == council.FsyncSession {
		return w.sync()
	}
	if err := w.check(w.size); err != nil {
		return w.seal(nil, err)
	}
	w.settle(batches, nil)
	return total(w.unsynced) <= maxWaiting/2 || w.sync()
}

// sync has the disk confirm the unsynced batches, and reports whether it did.
func (w *writer) sync() bool {
	start := time.Now()
	if err := w.file.Sync(); err != nil {
		w.doubt = true
		return w.seal(nil, err)
	}
	if err := w.check(w.size); err != nil {
		return w.seal(nil, err)
	}
	w.o.Log.Debug("records are on disk", "sessions", len(w.unsynced), "sync_ms", time.Since(start).Milliseconds())
	w.doubt, w.durable = false, w.size
	w.settle(w.unsynced, nil)
	w.unsynced = nil
	return true
}

// seal gives the file up. The kernel may drop pages that it could not write and
// report success the next time, so fsync is not tried again: what was written
// since the last one that succeeded is written again, to another file. It returns
// false, as fail does.
func (w *writer) seal(batches []*batch, cause error) bool {
	w.sealed = true
	if info, err := w.file.Stat(); err == nil {
		w.durable = min(w.durable, info.Size())
	}
	batches = slices.Concat(w.unsynced, batches)
	w.unsynced = nil
	// Readers need the cut; the segment is made of so many bytes in any case. Without
	// its lock the file may be another daemon's by now.
	if len(batches) > 0 && inPlace(w.store.lock) == nil && w.file.Truncate(w.durable) == nil {
		w.size = w.durable
	}
	w.o.Log.Error("the record file is given up for a new one", "bytes", w.durable, "error", cause)
	return w.fail(batches, cause)
}

// fail tells who waits that the batches were not written, and keeps them for
// another attempt as far as there is room. It returns false, for its callers to
// report.
func (w *writer) fail(batches []*batch, err error) bool {
	w.err = err
	w.settle(batches, err)
	kept, room := 0, maxWaiting-total(w.failed)
	for kept < len(batches) && len(batches[kept].lines) <= room {
		room -= len(batches[kept].lines)
		kept++
	}
	if kept < len(batches) {
		w.o.Log.Error("sessions are lost: too many wait to be written", "sessions", len(batches)-kept)
	}
	w.failed = append(w.failed, batches[:kept]...)
	w.retryAt = time.Now().Add(w.pause)
	w.pause = min(2*w.pause, lastPause)
	return false
}

// settle tells who waits for the batches what became of them. The health of the
// store changes first.
func (w *writer) settle(batches []*batch, err error) {
	if err == nil && len(w.failed) == 0 && !w.doubt {
		w.err, w.pause = nil, firstPause
	}
	w.store.report(w.err)
	for _, b := range batches {
		b.kept = err == nil
		select {
		case b.result <- err:
		default: // it was told before
		}
	}
}

// total returns the length of the batches in bytes.
func total(batches []*batch) (n int) {
	for _, b := range batches {
		n += len(b.lines)
	}
	return n
}

// errMoved is why a file is given up that others took away.
var errMoved = errors.New("another process removed, renamed or replaced the record file, and what it held is not read any more; " +
	"the daemon rotates it by itself, so keep other programs away from it")

// check returns nil while what is written to the file is what a command would read:
// the file stands at its name and nobody else holds its lock. Unless size is
// unwritten, the file also has that size, or ends in what was written last.
func (w *writer) check(size int64) error {
	if err := inPlace(w.store.lock); err != nil {
		return err
	}
	now, err := os.Lstat(w.o.Path)
	if err != nil || !os.SameFile(now, w.info) {
		return errMoved
	}
	if w.o.given != w.o.Path {
		if read, err := os.Stat(w.o.given); err != nil || !os.SameFile(read, w.info) {
			return errMoved
		}
	}
	if size == unwritten || size == now.Size() {
		return nil
	}
	if !w.ends(now.Size()) {
		return fmt.Errorf("another process changed the size of the record file from %d to %d bytes", size, now.Size())
	}
	w.size = now.Size()
	return nil
}

// ends reports whether the file, of that size, ends in sessions of their own that are
// what was written last. If it ends in that at all, what is good of it is what stands
// before: somebody may have cut it just before the write.
func (w *writer) ends(size int64) bool {
	end := make([]byte, min(size, int64(len(w.lines))+2))
	if _, err := w.file.ReadAt(end, size-int64(len(end))); err != nil {
		return false
	}
	before, ok := bytes.CutSuffix(end, w.lines)
	if !ok {
		return false
	}
	w.durable = min(w.durable, size-int64(len(w.lines)))
	return len(before) == 0 || bytes.HasSuffix(before, []byte{'\n'}) && !bytes.HasSuffix(before, []byte{goesOn, '\n'})
}

// ready makes sure that there is a file to append to, and that commands read it.
func (w *writer) ready() error {
	if w.file != nil && !w.sealed && w.check(unwritten) == nil {
		return nil
	}
	if now := resolve(w.o.given); now != w.o.Path {
		return fmt.Errorf("%s led to %s when the store was opened and leads to %s now; put it back, or start again", w.o.given, w.o.Path, now)
	}
	if err := w.lock(); err != nil {
		return err
	}
	if w.file != nil && w.check(unwritten) != nil {
		if !w.sealed {
			w.seal(nil, errMoved)
		}
		_ = w.file.Close()
		w.file, w.sealed = nil, false
	}
	if w.sealed {
		if err := w.retire(w.durable); err != nil {
			return err
		}
		w.sealed = false
	}
	if w.file != nil {
		return nil
	}
	d, err := openData(w.o)
	if err != nil {
		return err
	}
	w.use(d)
	return nil
}

// lock takes the lock again if its file is gone, perhaps with the directory.
func (w *writer) lock() error {
	if inPlace(w.store.lock) == nil {
		return nil
	}
	if err := makeDir(filepath.Dir(w.o.Path)); err != nil {
		return err
	}
	lock, err := acquire(w.o.Path)
	if err != nil {
		return err
	}
	_ = w.store.lock.Close() // the lock of a file that no other process asks for
	w.store.lock = lock
	if w.file == nil {
		return nil
	}
	if info, err := w.file.Stat(); err != nil || info.Size() != w.size {
		w.leave()
	}
	return nil
}

// leave forgets the file, which another daemon may have written to while it had the
// lock: what that one has acknowledged must be neither cut nor counted as bad. What is
// not known to be on disk may be there twice in the end, which is better than not at all.
func (w *writer) leave() {
	_ = w.file.Close()
	pending := w.unsynced
	w.file, w.sealed, w.unsynced = nil, false, nil
	w.fail(pending, errors.New("another daemon may have written to the record file while its lock was gone"))
}

// retire closes the file, of which so many bytes are good, and makes it a closed
// segment. An empty one is removed.
func (w *writer) retire(length int64) error {
	if length == 0 {
		if err := w.o.Disk.Remove(w.o.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	} else if err := w.store.segments.add(length, w.sealed); err != nil {
		return err
	}
	_ = w.file.Close() // all that counts was synced
	w.file = nil
	return nil
}

// rotateIfFull makes the file a closed segment once it is large enough.
func (w *writer) rotateIfFull() {
	if w.limit == 0 || w.size < w.limit || w.sealed || w.file == nil || w.check(unwritten) != nil {
		return
	}
	if len(w.unsynced) > 0 && !w.sync() {
		return
	}
	if err := w.retire(w.size); err != nil {
		w.limit = w.size + w.o.RotateBytes
		w.o.Log.Warn("the record file grows on: it could not be made a closed segment", "error", err)
	}
}

// close syncs and closes the file.
func (w *writer) close() {
	if len(w.unsynced) > 0 {
		w.sync()
	}
	if n := len(w.failed); n > 0 {
		w.store.lost = fmt.Errorf("the records of %d sessions are lost: %w", n, w.err)
	}
	if w.file != nil {
		w.store.lost = errors.Join(w.store.lost, w.file.Close())
	}
}
