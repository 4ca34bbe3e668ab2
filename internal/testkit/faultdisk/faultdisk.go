// Package faultdisk has a disk for tests. Its operations fail when a test says so. It also computes the files that a
// crash would leave.
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

// Disk is the disk of the operating system. It records every operation, and an operation fails if the Fault says so.
type Disk struct {
	mu     sync.Mutex // guards the fields below
	fault  Fault
	ops    []Op
	inodes int
	names  map[string]int // the inodes by file name, which has no directories
}

// Fault returns an error if an operation must fail. The argument bytes is how many bytes a write has. The result
// written is how many of these bytes the write stores before it fails. With a nil Fault, no operation fails.
type Fault func(op Op, bytes int) (written int, err error)

// Op is an operation of a disk.
type Op struct {
	Kind     Kind
	Inode    int    // 0 for operations on names
	Name, To string // without directories
	Data     string // the bytes that a write wrote
	Size     int64  // the new size after a truncate
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

// Fail sets the Fault for all operations from now on.
func (d *Disk) Fail(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Done returns the operations so far that have one of the given kinds. Without kinds, it returns all.
func (d *Disk) Done(kinds ...Kind) []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.ops), func(o Op) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, o.Kind)
	})
}

// do carries out an operation, unless the Fault makes it fail, and records it.
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

// OpenFile implements disk.Disk. The flags must not contain os.O_TRUNC.
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

// file is a file of a Disk. Sync only records the operation. Tests that need a real sync use disk.OS.
type file struct {
	*os.File
	disk  *Disk
	inode int
	name  string // the name of the file when it was opened
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

// Crash is a kind of crash. It says which changes survive although they were not synced.
type Crash struct {
	names  bool // changes of names survive
	data   bool // written data survives
	failed bool // data whose sync failed survives
}

// Crashes returns all eight kinds of crashes.
func Crashes() (all []Crash) {
	for i := range 8 {
		all = append(all, Crash{i&1 > 0, i&2 > 0, i&4 > 0})
	}
	return all
}

// After returns the files that a crash after these operations leaves. It returns their contents by name.
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

// state maps names to inodes, and inodes to data. Programs see the maps names and data. The maps namesOnDisk and
// dataOnDisk hold the state at the last sync.
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
