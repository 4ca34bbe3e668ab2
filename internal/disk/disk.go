// Package disk declares the interface [Disk]: the operations with which the record store changes the file system. [OS]
// implements Disk with the operating system. Package faultdisk implements it for tests, and fails on demand. The
// package also locks and replaces files. Package store decides what is stored and how a fault is handled.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Disk changes the file system. Its methods do what the functions of package os with the same names do. SyncDir syncs a
// directory.
type Disk interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(name string) error
}

// File is a file to write to.
type File interface {
	io.WriteCloser
	io.ReaderAt
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// OS is the disk of the operating system.
type OS struct{}

// errLink is the reason for not opening a symbolic link.
var errLink = errors.New("it is a symbolic link, which is not followed here; remove it")

// errIrregular is the reason for not opening a directory or a named pipe.
var errIrregular = errors.New("it is not a regular file; remove it")

// OpenFile implements Disk. It does not follow a symbolic link, because a user who can put links into the directory of
// the store could make the store write to any other file.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag|NoFollow, perm)
	if err != nil {
		return nil, ExplainLink(name, err)
	}
	return f, nil
}

// OpenRegular opens a regular file for reading. It returns an error for a symbolic link, a directory and a named
// pipe. It neither follows the link nor waits for a writer of the pipe.
func OpenRegular(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|NoFollow|NoWait, 0)
	if err != nil {
		return nil, ExplainLink(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "opening", Path: name, Err: errIrregular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ExplainLink returns an error in plain words if NoFollow caused err. Otherwise it returns err.
func ExplainLink(name string, err error) error {
	if info, statErr := os.Lstat(name); statErr == nil && info.Mode()&fs.ModeSymlink != 0 &&
		!errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "opening", Path: name, Err: errLink}
	}
	return err
}

// Replace gives a file new content, which only the owner of the file may read. After a crash the file has either the
// old or the new content. Replace writes the new content to a temporary file first. The name of that file ends in
// ".tmp", and an older file with this name is removed. The caller must not replace the same file twice at the same
// time.
func Replace(d Disk, name string, data []byte) error {
	next := name + ".tmp"
	if err := d.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.Rename(next, name)
	}
	if err != nil {
		return errors.Join(err, d.Remove(next))
	}
	return d.SyncDir(filepath.Dir(name))
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
