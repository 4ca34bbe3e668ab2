package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

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

	file    disk.File // nil: to be opened
	sealed  bool      // nobody knows what the file holds on disk: it must be replaced before the next write
	durable int64     // this many bytes of a sealed file are good
	doubt   bool      // the last fsync failed
	size    int64     // of the file, after the last write
	lines   []byte    // of the last write, for its memory
	limit   int64     // the size from which the file becomes a closed segment

	unsynced []*batch  // written and not yet synced, oldest first; none with FsyncOff
	syncBy   time.Time // when they must be, with FsyncInterval
	failed   []*batch  // to be written again, oldest first
	retryAt  time.Time
	pause    time.Duration // before the next attempt after retryAt
	err      error         // see Store.err
}

func newWriter(s *Store, o Options, f disk.File) *writer {
	return &writer{o: o, store: s, file: f, limit: o.RotateBytes, pause: firstPause}
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
		var batches []*batch
		batches, closed = w.store.take()
		works := len(batches) > 0 && w.write(batches)
		if len(w.unsynced) > 0 && (closed || !time.Now().Before(w.syncBy)) {
			w.sync()
		}
		if len(w.failed) > 0 && (works || closed || !time.Now().Before(w.retryAt)) {
			w.retry(closed)
		}
		w.rotateIfFull()
		timer.Reset(w.idle())
	}
	w.close()
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
	w.failed = nil
	if w.write(batches) {
		w.o.Log.Info("the record store works again: what waited is written", "sessions", len(batches))
	}
}

// write appends the batches with one write, and syncs them with FsyncSession. It
// reports whether that worked. When the disk takes only a part, that is cut back
// to whole batches.
func (w *writer) write(batches []*batch) bool {
	if err := w.ready(); err != nil {
		return w.fail(batches, err)
	}
	// The size is asked for and not remembered: if somebody emptied the file to
	// make room, cutting it to an older size would fill it with zeros.
	info, err := w.file.Stat()
	if err != nil {
		return w.fail(batches, err)
	}
	w.size = info.Size()
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
	w.size += int64(length)
	works := whole == 0 || w.keep(batches[:whole])
	if err != nil {
		return w.fail(batches[whole:], err)
	}
	return works
}

// keep does with written batches what Options.Fsync says, and reports whether that
// worked.
func (w *writer) keep(batches []*batch) bool {
	if w.o.Fsync != FsyncOff {
		if len(w.unsynced) == 0 {
			w.syncBy = time.Now().Add(w.o.Interval)
		}
		w.unsynced = append(w.unsynced, batches...)
	}
	if w.o.Fsync != FsyncSession {
		w.settle(batches, nil)
	}
	return w.o.Fsync != FsyncSession && total(w.unsynced) <= maxWaiting/2 || w.sync()
}

// sync has the disk confirm the unsynced batches, and reports whether it did.
func (w *writer) sync() bool {
	start := time.Now()
	if err := w.file.Sync(); err != nil {
		w.doubt = true
		return w.seal(nil, err)
	}
	w.o.Log.Debug("records are on disk", "sessions", len(w.unsynced), "sync_ms", time.Since(start).Milliseconds())
	w.doubt = false
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
	_ = w.file.Truncate(w.durable) // for readers; the segment is made of so many bytes in any case
	w.o.Log.Error("the record file is given up for a new one", "bytes", w.durable, "error", cause)
	batches = slices.Concat(w.unsynced, batches)
	w.unsynced = nil
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

// ready makes sure that there is a file to append to.
func (w *writer) ready() error {
	if w.sealed {
		if err := w.retire(w.durable); err != nil {
			return err
		}
		w.sealed = false
	}
	if w.file != nil {
		return nil
	}
	f, _, err := openData(w.o)
	if err != nil {
		return err
	}
	w.file, w.size, w.limit = f, 0, w.o.RotateBytes
	return nil
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
	if w.limit == 0 || w.size < w.limit || w.sealed || w.file == nil {
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
