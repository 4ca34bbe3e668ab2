// Package disk is what the record store changes in the file system, as an interface
// with the operating system behind it. Package faultdisk puts a faulty one there.
package disk

import (
	"io"
	"io/fs"
	"os"
)

// Disk is what changes in the file system.
type Disk interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(name string) error
}

// File is a file that is written.
type File interface {
	io.WriteCloser
	io.ReaderAt
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// OS is the disk of the operating system.
type OS struct{}

// OpenFile implements Disk.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	return os.OpenFile(name, flag, perm)
}

// Rename implements Disk.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Disk.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir implements Disk.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
