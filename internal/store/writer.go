package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

const (
	// maxWaiting is how many bytes of lines may wait in memory to be written. That is enough for several thousand
	// sessions.
	maxWaiting = 16 << 20

	// The pause between two attempts to write the failed sessions grows from
	// firstPause to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// writer appends batches to the data file. Batches that arrive while it writes and syncs are written together next,
// so that many sessions share an fsync under load. It belongs to one goroutine.
type writer struct {
	o     Options
	store *Store

	file disk.File   // nil if it has to be opened
	info fs.FileInfo // identifies the file
	// sealed says that it is unknown what the file holds on disk. The file must be replaced before the next write.
	sealed  bool
	durable int64  // how many bytes of the file are good even after a crash
	doubt   bool   // the last fsync failed
	size    int64  // size of the file after the last write; unwritten before the first
	lines   []byte // lines of the last write; the memory is used again
	limit   int64  // size at which the file becomes a closed segment

	writing  []*batch  // taken from the queue or from failed; their outcome is not known yet
	unsynced []*batch  // written but not synced, oldest first; none with council.FsyncOff
	syncBy   time.Time // when unsynced must be synced, with council.FsyncInterval
	failed   []*batch  // to be written again, oldest first
	retryAt  time.Time
	pause    time.Duration // the pause after the next attempt
	err      error         // becomes Store.err
}

// unwritten is the value of writer.size for a file that was opened and not yet written to.
const unwritten = -1

func newWriter(s *Store, o Options, d data) *writer {
	w := &writer{o: o, store: s, pause: firstPause}
	w.use(d)
	return w
}

// use makes d the file to append to.
func (w *writer) use(d data) {
	w.file = d.File
	w.info = d.info
	w.durable = d.end
	w.size = unwritten
	w.limit = w.o.RotateBytes
}

// run writes the queued and the failed batches until the store closes.
func (w *writer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for closed := false; !closed; {
		select {
		case <-w.store.wake:
		case <-timer.C:
		}
		w.writing, closed = w.store.take()
		_ = w.guard(func() { w.step(closed) }) // The batches hold the error.
		w.store.left(w.failed)
		timer.Reset(w.idle())
	}
	if err := w.guard(w.close); err != nil {
		w.store.lost = errors.Join(w.store.lost, err)
	}
}

// step writes, syncs and retries what is due now.
func (w *writer) step(closed bool) {
	w.writing = slices.DeleteFunc(w.writing, w.waitsInVain)
	written := len(w.writing) > 0 && w.write(w.writing)
	if len(w.unsynced) > 0 && (closed || !time.Now().Before(w.syncBy)) {
		w.sync()
	}
	if len(w.failed) > 0 && (written || closed || !time.Now().Before(w.retryAt)) {
		w.retry(closed)
	}
	w.rotateIfFull()
}

// waitsInVain reports whether a batch has no lines while earlier batches are not on disk. Such a batch only waits for
// these earlier batches, so waitsInVain fails it with their error. Otherwise the batch would succeed even on a full
// disk, because nothing is written for it.
func (w *writer) waitsInVain(b *batch) bool {
	if len(b.lines) > 0 || len(w.failed) == 0 {
		return false
	}
	w.answer([]*batch{b}, w.err)
	return true
}

// guard runs work. If work panics, the batches that are being written or synced fail, and it is unknown what the
// file holds. The process and the other sessions continue.
func (w *writer) guard(work func()) error {
	cause := catchPanic(w.o.Log, func() error {
		work()
		return nil
	})
	if cause == nil {
		return nil
	}
	w.o.Log.Error("writing records panicked: they are written again, to a new file", "error", cause)
	pending := w.unsynced
	for _, b := range w.writing {
		if !b.kept && !slices.Contains(pending, b) && !slices.Contains(w.failed, b) {
			pending = append(pending, b)
		}
	}
	w.writing = nil
	w.unsynced = nil
	w.sealed = w.file != nil
	w.fail(pending, cause)
	return cause
}

// catchPanic runs work. If work panics, it logs the panic with its stack and returns it as an error.
func catchPanic(log *slog.Logger, work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			log.Error("the record store panicked", "error", err, "stack", string(debug.Stack()))
		}
	}()
	return work()
}

// idle returns the time until the next sync or retry is due.
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

// retry writes the failed batches again. It compresses the sealed files first. Otherwise a crash could bring the same
// batches back from such a file, and they would exist twice. In the last attempt, before the store closes, retry takes
// that risk.
func (w *writer) retry(last bool) {
	err := w.ready()
	if err == nil {
		err = w.store.segments.compressSealed()
	}
	if err != nil && !last {
		w.fail(nil, err)
		return
	}
	batches := w.failed
	w.failed = nil
	w.writing = batches
	if w.write(batches) {
		w.o.Log.Info("the record store works again: the sessions that waited are written", "sessions", len(batches))
	}
}

// write appends the batches with one write. With council.FsyncSession, it also syncs them. It reports whether that
// succeeded. If the disk accepts only a part, write cuts the file back to whole batches.
func (w *writer) write(batches []*batch) bool {
	if err := w.ready(); err != nil {
		return w.fail(batches, err)
	}
	// Use the current size, not the remembered one. If another program emptied the file to make room, cutting the
	// file to an older size would fill it with zeros. A file that another program cut or wrote to may end within a
	// line.
	info, err := w.file.Stat()
	if err == nil && w.size != unwritten && w.size != info.Size() {
		w.store.damages.Add(1)
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
	whole, length := fit(batches, n)
	if err != nil {
		if cutErr := w.file.Truncate(w.size + int64(length)); cutErr != nil {
			return w.seal(batches, fmt.Errorf("%w; rolling back: %w", err, cutErr))
		}
	}
	w.size += int64(length)
	w.lines = w.lines[:length]
	kept := whole == 0 || w.keep(batches[:whole])
	if err != nil {
		return w.fail(batches[whole:], err)
	}
	return kept
}

// keep acknowledges written batches at the time that Options.Fsync sets. It reports whether that succeeded.
func (w *writer) keep(batches []*batch) bool {
	if w.o.Fsync != council.FsyncSession {
		if err := w.check(w.size); err != nil {
			return w.seal(batches, err)
		}
		w.answer(batches, nil)
	}
	if w.o.Fsync == council.FsyncOff {
		w.durable = w.size
		return true
	}
	if len(w.unsynced) == 0 {
		w.syncBy = time.Now().Add(w.o.Interval)
	}
	w.unsynced = append(w.unsynced, batches...)
	return w.o.Fsync == council.FsyncInterval && total(w.unsynced) <= maxWaiting/2 || w.sync()
}

// sync syncs the file, acknowledges the unsynced batches, and reports whether that
// succeeded.
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
	w.doubt = false
	w.durable = w.size
	if w.o.Synced != nil {
		for _, b := range w.unsynced {
			w.o.Synced(b.lines)
		}
	}
	w.answer(w.unsynced, nil)
	w.unsynced = nil
	return true
}

// seal gives the file up. It does not try fsync again on this file, because the kernel may drop pages that it could not
// write, and report success the next time. Batches that were written since the last successful fsync are written again,
// to another file. seal returns false, as fail does.
func (w *writer) seal(batches []*batch, cause error) bool {
	w.sealed = true
	if info, err := w.file.Stat(); err == nil {
		w.durable = min(w.durable, info.Size())
	}
	batches = slices.Concat(w.unsynced, batches)
	w.unsynced = nil
	// Cut the file for its readers. The segment will hold only durable bytes in any case. Do not cut without the lock,
	// because the file may then belong to another daemon.
	if len(batches) > 0 && w.store.lock.InPlace() == nil && w.file.Truncate(w.durable) == nil {
		w.size = w.durable
	}
	w.store.damages.Add(1)
	w.o.Log.Error("the daemon abandons the record file and starts a new one", "bytes", w.durable, "error", cause)
	return w.fail(batches, cause)
}

// fail tells the callers of Append that the batches were not written. It keeps the batches that fit into memory, to
// write them again. It returns false, so that its callers can return its result.
func (w *writer) fail(batches []*batch, err error) bool {
	w.err = err
	w.answer(batches, err)
	kept, _ := fit(batches, maxWaiting-total(w.failed))
	if kept < len(batches) {
		w.o.Log.Error("sessions are lost: too many wait to be written", "sessions", len(batches)-kept)
	}
	w.failed = append(w.failed, batches[:kept]...)
	w.retryAt = time.Now().Add(w.pause)
	w.pause = min(2*w.pause, lastPause)
	return false
}

// answer reports the outcome to the callers of Append that wait for the batches. It first sets the health of the
// store, so that these callers find it up to date.
func (w *writer) answer(batches []*batch, err error) {
	if err == nil && len(w.failed) == 0 && !w.doubt {
		w.err = nil
		w.pause = firstPause
	}
	w.store.setHealth(w.err)
	for _, b := range batches {
		b.kept = err == nil
		select {
		case b.result <- err:
		default: // The caller has an earlier outcome.
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

// fit returns how many batches, from the first one on, have at most n bytes together, and how many bytes these have.
func fit(batches []*batch, n int) (count, length int) {
	for count < len(batches) && length+len(batches[count].lines) <= n {
		length += len(batches[count].lines)
		count++
	}
	return count, length
}

// errMoved is the reason for giving up a file that is no longer found by its name.
var errMoved = errors.New("another process removed, renamed or replaced the record file, and its records are " +
	"no longer read; the daemon rotates the file itself, so keep other programs away from it")

// check returns nil if a command would read what is written to the file. The name must lead to this file, and this
// process must hold the lock. Unless the argument size is unwritten, the file must also have that size, or end in what
// was written last.
func (w *writer) check(size int64) error {
	if err := w.store.lock.InPlace(); err != nil {
		return err
	}
	if err := w.o.leads(); err != nil {
		return err
	}
	now, err := os.Lstat(w.o.Path)
	if err != nil || !os.SameFile(now, w.info) {
		return errMoved
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

// ends reports whether the file ends in the lines that were written last, and has nothing or a whole session before
// these lines. The argument size is the size of the file. Another program may have cut the file just before the write.
// So if the file ends in these lines, only the bytes before them can still count as durable.
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
	return len(before) == 0 || bytes.HasSuffix(before, []byte{'\n'}) && !bytes.HasSuffix(before, []byte{moreFollow, '\n'})
}

// ready makes sure that a file is open for appending, and that it is the file at o.Path, which the councild commands
// read.
func (w *writer) ready() error {
	if w.file != nil && !w.sealed && w.check(unwritten) == nil {
		return nil
	}
	if err := w.o.leads(); err != nil {
		return err
	}
	if err := w.lock(); err != nil {
		return err
	}
	if w.file != nil && w.check(unwritten) != nil {
		if !w.sealed {
			w.seal(nil, errMoved)
		}
		_ = w.file.Close()
		w.file = nil
		w.sealed = false
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

// lock takes the lock again if the lock file was removed, perhaps together with its directory.
func (w *writer) lock() error {
	if w.store.lock.InPlace() == nil {
		return nil
	}
	if err := makeDir(filepath.Dir(w.o.Path)); err != nil {
		return err
	}
	lock, err := acquire(w.o.Path)
	if err != nil {
		return err
	}
	_ = w.store.lock.Close() // No other process can find the removed lock file.
	w.store.lock = lock
	if w.file == nil {
		return nil
	}
	if info, err := w.file.Stat(); err != nil || info.Size() != w.size {
		w.leave()
	}
	return nil
}

// leave gives up a file to which another daemon may have written while that daemon had the lock. It neither cuts the
// file nor makes it a segment, because the file may hold records that the other daemon acknowledged. Batches that may
// not be on disk are written again. They may then exist twice, which is better than not at all.
func (w *writer) leave() {
	_ = w.file.Close()
	pending := w.unsynced
	w.file = nil
	w.sealed = false
	w.unsynced = nil
	w.fail(pending, errors.New("another daemon may have written to the record file while its lock was gone"))
}

// retire makes the file a closed segment and closes it. The argument length is how many bytes are good, from the
// beginning of the file. An empty file is removed.
func (w *writer) retire(length int64) error {
	var err error
	if length == 0 {
		err = remove(w.o.Disk, w.o.Path)
	} else {
		err = w.store.segments.add(length, w.sealed)
	}
	if err != nil {
		return err
	}
	_ = w.file.Close() // The good bytes were synced.
	w.file = nil
	return nil
}

// rotateIfFull makes a closed segment of the file when it is large enough.
func (w *writer) rotateIfFull() {
	if w.limit == 0 || w.size < w.limit || w.sealed || w.file == nil || w.check(unwritten) != nil {
		return
	}
	if len(w.unsynced) > 0 && !w.sync() {
		return
	}
	if err := w.retire(w.size); err != nil {
		w.limit = w.size + w.o.RotateBytes
		w.o.Log.Warn("the record file keeps growing, because it could not be closed as a segment", "error", err)
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
