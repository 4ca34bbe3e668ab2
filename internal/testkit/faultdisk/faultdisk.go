// Package faultdisk has a disk for tests. It fails when a test says so, and can tell what
// a crash would leave on it. What must then hold is left to the tests.
package faultdisk

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/councild/councild/internal/disk"
)

// Disk is the disk of the operating system, which fails when a test says so and records
// every operation.
type Disk struct {
	mu     sync.Mutex // guards the fields below
	fault  Fault
	ops    []Op
	inodes int
	names  map[string]int // inodes by name, without directories
}

// Fault returns an error when the operation is to fail. A write that fails may write some
// of its bytes first. A nil Fault never fails.
type Fault func(op Op, bytes int) (written int, err error)

// Op is an operation of a disk.
type Op struct {
	Kind     Kind
	Inode    int    // 0 for names
	Name, To string // without directories
	Data     string // of a write: the bytes that were written
	Size     int64  // of a truncate: the new size
	Failed   bool
	At       time.Time
}

// Kind is a kind of operation.
type Kind string

// The kinds of operations.
const (
	Open     Kind = "open"
	Write    Kind = "write"
	Stat     Kind = "stat"
	Truncate Kind = "truncate"
	Sync     Kind = "sync"
	Rename   Kind = "rename"
	Remove   Kind = "remove"
	SyncDir  Kind = "sync of the directory"
)

// Fail sets the fault for the operations from now on.
func (d *Disk) Fail(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Done returns the operations so far, those of the given kinds or all.
func (d *Disk) Done(kinds ...Kind) []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.ops), func(o Op) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, o.Kind)
	})
}

// do carries out an operation, unless it is to fail, and records it.
func (d *Disk) do(o Op, bytes int, work func(written int) error) error {
	d.mu.Lock()
	f := d.fault
	d.mu.Unlock()
	var err error
	if f != nil {
		bytes, err = f(o, bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || bytes > 0 {
		if workErr := work(bytes); workErr != nil {
			return workErr
		}
	}
	o.Failed = err != nil
	o.At = time.Now()
	if d.names == nil {
		d.names = map[string]int{}
	}
	if o.Kind == Open && err == nil {
		if o.Inode = d.names[o.Name]; o.Inode == 0 {
			d.inodes++
			o.Inode = d.inodes
			d.names[o.Name] = o.Inode
		}
	}
	if err == nil && (o.Kind == Rename || o.Kind == Remove) {
		d.names[o.To] = d.names[o.Name]
		delete(d.names, o.Name)
	}
	if len(o.Data) > bytes {
		o.Data = o.Data[:bytes]
	}
	d.ops = append(d.ops, o)
	return err
}

// OpenFile implements disk.Disk. The flags must not empty the file.
func (d *Disk) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	f := &file{disk: d, name: filepath.Base(name)}
	err := d.do(Op{Kind: Open, Name: f.name}, 0, func(int) error {
		opened, err := disk.OS{}.OpenFile(name, flag, perm)
		if err == nil {
			f.File = opened.(*os.File)
		}
		return err
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	f.inode = d.names[f.name]
	return f, err
}

// Rename implements disk.Disk.
func (d *Disk) Rename(from, to string) error {
	op := Op{Kind: Rename, Name: filepath.Base(from), To: filepath.Base(to)}
	return d.do(op, 0, func(int) error { return os.Rename(from, to) })
}

// Remove implements disk.Disk.
func (d *Disk) Remove(name string) error {
	return d.do(Op{Kind: Remove, Name: filepath.Base(name)}, 0, func(int) error { return os.Remove(name) })
}

// SyncDir implements disk.Disk.
func (d *Disk) SyncDir(string) error {
	return d.do(Op{Kind: SyncDir}, 0, func(int) error { return nil })
}

// file is a file of a Disk. Sync only records the operation: tests that need a real sync
// use disk.OS.
type file struct {
	*os.File
	disk  *Disk
	inode int
	name  string // its name when it was opened
}

func (f *file) Write(data []byte) (n int, err error) {
	op := Op{Kind: Write, Inode: f.inode, Name: f.name, Data: string(data)}
	err = f.disk.do(op, len(data), func(written int) (err error) {
		n, err = f.File.Write(data[:written])
		return err
	})
	return n, err
}

func (f *file) Stat() (info fs.FileInfo, err error) {
	err = f.disk.do(Op{Kind: Stat, Inode: f.inode, Name: f.name}, 0, func(int) (err error) {
		info, err = f.File.Stat()
		return err
	})
	return info, err
}

func (f *file) Truncate(size int64) error {
	op := Op{Kind: Truncate, Inode: f.inode, Name: f.name, Size: size}
	return f.disk.do(op, 0, func(int) error { return f.File.Truncate(size) })
}

func (f *file) Sync() error {
	return f.disk.do(Op{Kind: Sync, Inode: f.inode, Name: f.name}, 0, func(int) error { return nil })
}

// Crash says which changes that were not synced survive a crash.
type Crash struct {
	names  bool // changes of names
	data   bool // written data
	failed bool // data whose fsync failed
}

// Crashes returns every kind of crash.
func Crashes() (all []Crash) {
	for i := range 8 {
		all = append(all, Crash{i&1 > 0, i&2 > 0, i&4 > 0})
	}
	return all
}

// After returns the content of the files, by name, that a crash after these operations
// leaves.
func (c Crash) After(ops []Op) map[string]string {
	s := state{names: map[string]int{}, data: map[int]string{}, dataOnDisk: map[int]string{}}
	for _, o := range ops {
		if o.Failed && o.Kind != Write && (o.Kind != Sync || !c.failed) {
			continue
		}
		s.apply(o)
	}
	if c.names {
		s.namesOnDisk = s.names
	}
	if c.data {
		s.dataOnDisk = s.data
	}
	left := map[string]string{}
	for name, inode := range s.namesOnDisk {
		left[name] = s.dataOnDisk[inode]
	}
	return left
}

// state maps names to inodes, and inodes to data. Programs see names and data. The other two maps hold what syncs wrote.
type state struct {
	names, namesOnDisk map[string]int
	data, dataOnDisk   map[int]string
}

func (s *state) apply(o Op) {
	switch o.Kind {
	case Open:
		s.names[o.Name] = o.Inode
	case Write:
		s.data[o.Inode] += o.Data
	case Truncate:
		s.data[o.Inode] = s.data[o.Inode][:o.Size]
	case Sync:
		s.dataOnDisk[o.Inode] = s.data[o.Inode]
	case Rename:
		s.names[o.To] = s.names[o.Name]
		delete(s.names, o.Name)
	case Remove:
		delete(s.names, o.Name)
	case SyncDir:
		s.namesOnDisk = maps.Clone(s.names)
	case Stat:
	}
}
