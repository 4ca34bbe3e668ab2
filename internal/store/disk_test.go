package store

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// testDisk is the disk of the operating system, which fails when a test says so,
// and which remembers everything it did.
type testDisk struct {
	mu     sync.Mutex // guards what follows
	fault  fault
	ops    []op
	inodes int
	names  map[string]int // inodes by the last part of the name
}

// fault says whether an operation fails. A write of so many bytes may take some of
// them first. A nil fault never fails.
type fault func(op op, bytes int) (written int, err error)

// op is something a disk was asked to do.
type op struct {
	kind     kind
	inode    int    // 0 for names
	name, to string // without directories
	data     string // of a write: what was written
	size     int64  // of a truncate
	failed   bool
	at       time.Time
}

type kind string

const (
	opOpen     kind = "open"
	opWrite    kind = "write"
	opStat     kind = "stat"
	opTruncate kind = "truncate"
	opSync     kind = "sync"
	opRename   kind = "rename"
	opRemove   kind = "remove"
	opSyncDir  kind = "sync of the directory"
)

// fail sets the fault from now on.
func (d *testDisk) fail(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// done returns what the disk did, of some kinds only when any are given.
func (d *testDisk) done(kinds ...kind) []op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.ops), func(o op) bool { return len(kinds) > 0 && !slices.Contains(kinds, o.kind) })
}

// do carries out an operation unless it fails, and remembers it.
func (d *testDisk) do(o op, bytes int, work func(written int) error) error {
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
	o.failed, o.at = err != nil, time.Now()
	if o.kind == opOpen && err == nil {
		if o.inode = d.names[o.name]; o.inode == 0 {
			d.inodes++
			o.inode = d.inodes
			if d.names == nil {
				d.names = map[string]int{}
			}
			d.names[o.name] = o.inode
		}
	}
	if err == nil && (o.kind == opRename || o.kind == opRemove) {
		d.names[o.to] = d.names[o.name]
		delete(d.names, o.name)
	}
	if len(o.data) > bytes {
		o.data = o.data[:bytes]
	}
	d.ops = append(d.ops, o)
	return err
}

func (d *testDisk) OpenFile(name string, flag int, perm fs.FileMode) (file, error) {
	f := &testFile{disk: d, name: filepath.Base(name)}
	truncate := int64(-1)
	if flag&os.O_TRUNC != 0 {
		truncate = 0
	}
	err := d.do(op{kind: opOpen, name: f.name, size: truncate}, 0, func(int) (err error) {
		f.File, err = os.OpenFile(name, flag, perm)
		return err
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	f.inode = d.names[f.name]
	return f, err
}

func (d *testDisk) Rename(from, to string) error {
	return d.do(op{kind: opRename, name: filepath.Base(from), to: filepath.Base(to)}, 0, func(int) error { return os.Rename(from, to) })
}

func (d *testDisk) Remove(name string) error {
	return d.do(op{kind: opRemove, name: filepath.Base(name)}, 0, func(int) error { return os.Remove(name) })
}

func (d *testDisk) SyncDir(string) error {
	return d.do(op{kind: opSyncDir}, 0, func(int) error { return nil })
}

// testFile is a file of a testDisk. It is never really synced: tests that need
// that have no testDisk.
type testFile struct {
	*os.File
	disk  *testDisk
	inode int
	name  string // when it was opened
}

func (f *testFile) Write(data []byte) (n int, err error) {
	err = f.disk.do(op{kind: opWrite, inode: f.inode, name: f.name, data: string(data)}, len(data), func(written int) (err error) {
		n, err = f.File.Write(data[:written])
		return err
	})
	return n, err
}

func (f *testFile) Stat() (info fs.FileInfo, err error) {
	err = f.disk.do(op{kind: opStat, inode: f.inode, name: f.name}, 0, func(int) (err error) {
		info, err = f.File.Stat()
		return err
	})
	return info, err
}

func (f *testFile) Truncate(size int64) error {
	return f.disk.do(op{kind: opTruncate, inode: f.inode, name: f.name, size: size}, 0, func(int) error { return f.File.Truncate(size) })
}

func (f *testFile) Sync() error {
	return f.disk.do(op{kind: opSync, inode: f.inode, name: f.name}, 0, func(int) error { return nil })
}

// crash is what a crash leaves of what was not synced.
type crash struct {
	names  bool // new names are there, and old ones gone
	data   bool // data is there
	failed bool // what fsync reported as failed is there all the same
}

// crashes returns every kind of crash.
func crashes() (all []crash) {
	for i := range 8 {
		all = append(all, crash{i&1 > 0, i&2 > 0, i&4 > 0})
	}
	return all
}

// after returns the files, by name, that a crash leaves after these operations.
func (c crash) after(ops []op) map[string]string {
	names, namesOnDisk := map[string]int{}, map[string]int{}
	data, dataOnDisk := map[int]string{}, map[int]string{}
	for _, o := range ops {
		if o.failed && o.kind != opWrite && (o.kind != opSync || !c.failed) {
			continue
		}
		switch o.kind {
		case opOpen:
			names[o.name] = o.inode
			if o.size == 0 {
				data[o.inode] = ""
			}
		case opWrite:
			data[o.inode] += o.data
		case opTruncate:
			data[o.inode] = data[o.inode][:o.size]
		case opSync:
			dataOnDisk[o.inode] = data[o.inode]
		case opRename:
			names[o.to] = names[o.name]
			delete(names, o.name)
		case opRemove:
			delete(names, o.name)
		case opSyncDir:
			namesOnDisk = maps.Clone(names)
		case opStat:
		}
	}
	if c.names {
		namesOnDisk = names
	}
	if c.data {
		dataOnDisk = data
	}
	left := map[string]string{}
	for name, inode := range namesOnDisk {
		left[name] = dataOnDisk[inode]
	}
	return left
}

// restore writes the files into a new directory and returns the path of the store.
func restore(t *testing.T, files map[string]string) string {
	t.Helper()
	path := newPath(t)
	for name, data := range files {
		writeFile(t, filepath.Join(filepath.Dir(path), name), data)
	}
	return path
}

// names returns the files beside the data file at path, and itself, but no lock.
func names(t *testing.T, path string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), filepath.Base(path)); ok && rest != ".lock" {
			all = append(all, rest)
		}
	}
	return all
}
