package store

import (
	"io"
	"io/fs"
	"os"
)

// disk is what a Store changes in the file system. Tests put a faulty one in place.
type disk interface {
	OpenFile(name string, flag int, perm fs.FileMode) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(name string) error
}

// file is what a Store needs of a file that it writes.
type file interface {
	io.WriteCloser
	io.ReaderAt
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// osDisk is the disk of the operating system.
type osDisk struct{}

func (osDisk) OpenFile(name string, flag int, perm fs.FileMode) (file, error) {
	return os.OpenFile(name, flag, perm)
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Remove(name string) error { return os.Remove(name) }

func (osDisk) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
