package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/disk"
)

// Daily keeps lines in one store for each day (UTC), so that the lines of old days can be deleted as whole files. The
// path of each store is the path of the Daily, with the day before the extension: events.jsonl becomes
// events-2026-11-20.jsonl. Only one Daily has a path open at a time. A Daily is safe for concurrent use.
type Daily struct {
	o    Options
	lock *disk.Lock

	mu    sync.Mutex // guards all fields below
	day   string     // the day of the store that is open; "" before the first line
	today *Store     // nil before the first line
}

// OpenDaily opens a Daily for the path in the options, and opens the store of the current day. The argument now is the
// current time. OpenDaily ignores Retention and RotateBytes of the options. If another Daily has the path open, the
// error is a *HeldError.
func OpenDaily(o Options, now time.Time) (*Daily, error) {
	o.RotateBytes = 0
	o.Retention = 0
	if err := o.complete(); err != nil {
		return nil, err
	}
	err := makeDir(filepath.Dir(o.Path))
	if err != nil {
		return nil, err
	}
	d := &Daily{o: o}
	if d.lock, err = acquire(o.Path); err != nil {
		return nil, err
	}
	if err := d.writeLocked(now); err != nil { // This shows at once if the disk cannot be written to.
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// name returns the file of a day.
func (d *Daily) name(day string) string { return nameOfDay(d.o.Path, day) }

func nameOfDay(path, day string) string {
	ending := filepath.Ext(path)
	return strings.TrimSuffix(path, ending) + "-" + day + ending
}

// writeLocked opens the store of today, and closes the store of an earlier day. If the disk does not accept the lines
// of the earlier store, that store stays open, because closing it would lose these lines.
func (d *Daily) writeLocked(now time.Time) error {
	day := now.UTC().Format(time.DateOnly)
	if d.today != nil && (day <= d.day || d.today.Healthy() != nil) {
		return nil //nolint:nilerr // the lines wait, and are tried again
	}
	o := d.o
	o.Path = d.name(day)
	next, _, err := Open(o)
	if err != nil {
		return err
	}
	if d.today != nil {
		if err := d.today.Close(); err != nil {
			d.o.Log.Error("closing the store of a day", "error", err)
		}
	}
	d.day = day
	d.today = next
	return nil
}

// AppendLines does what Store.AppendLines does, for the store of today.
func (d *Daily) AppendLines(now time.Time, lines ...[]byte) (wait func(ctx context.Context) error, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil, fs.ErrClosed
	}
	if err := d.writeLocked(now); err != nil {
		return nil, err
	}
	return d.today.AppendLines(lines...)
}

// Days returns the days that have lines, in the form 2026-11-20, the oldest first.
func (d *Daily) Days() ([]string, error) { return daysOf(d.o.Path) }

func daysOf(path string) (days []string, err error) {
	before, after, _ := strings.Cut(filepath.Base(nameOfDay(path, "\x00")), "\x00")
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		day, isOurs := strings.CutPrefix(e.Name(), before)
		day, ends := strings.CutSuffix(day, after)
		if _, err := time.Parse(time.DateOnly, day); isOurs && ends && err == nil {
			days = append(days, day)
		}
	}
	slices.Sort(days)
	return days, err
}

// DailyLines returns the lines that a Daily with this path has written, the oldest first. Each line has no newline, and
// is valid until the next one is read. An error is the last element.
func DailyLines(ctx context.Context, path string) iter.Seq2[DailyLine, error] {
	return func(yield func(DailyLine, error) bool) {
		path = Resolve(path)
		days, err := daysOf(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(DailyLine{}, err)
			return
		}
		for _, day := range days {
			for line, err := range PlainLines(ctx, nameOfDay(path, day)) {
				if errors.Is(err, fs.ErrNotExist) {
					break // This day was deleted meanwhile.
				}
				if !yield(DailyLine{day, line}, err) || err != nil {
					return
				}
			}
		}
	}
}

// DailyLine is a line from the store of a day.
type DailyLine struct {
	Day  string // in the form 2026-11-20
	Text []byte
}

// Remove deletes the lines of a day, which must have ended before the time now. If the store of that day is still open,
// Remove closes it first.
func (d *Daily) Remove(now time.Time, day string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock != nil {
		if err := d.writeLocked(now); err != nil {
			return err
		}
	}
	if d.lock == nil || day >= d.day {
		return fmt.Errorf("removing the lines of %s: the day is not over, or the store is closed", day)
	}
	return cmp.Or(remove(d.o.Disk, d.name(day)), remove(d.o.Disk, d.name(day)+".lock"))
}

// Healthy does what Store.Healthy does, for the store that is open.
func (d *Daily) Healthy() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return fs.ErrClosed
	}
	return d.today.Healthy()
}

// Close writes the lines that are only in memory, and releases the lock of the path. Another call does nothing.
func (d *Daily) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	var err error
	if d.today != nil {
		err = d.today.Close()
	}
	err = errors.Join(err, d.lock.Close())
	d.lock = nil
	return err
}
