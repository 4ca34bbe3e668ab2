package main

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file or, if its name ends with a slash, a directory of an archive.
type entry struct {
	name string
	data []byte
	mode int64
	user int // the number of the user and of the group
}

// directory returns the entries of a directory, sorted, with a prefix before their names.
func directory(dir, prefix string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == "." {
				name = ""
			} else {
				name += "/"
			}
			entries = append(entries, entry{name: prefix + name, mode: 0o755})
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // The path is below the directory.
		if err != nil {
			return err
		}
		entries = append(entries, entry{name: prefix + filepath.ToSlash(name), data: data, mode: int64(info.Mode().Perm())})
		return nil
	})
	return entries, err
}

func sortEntries(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
}

// pack writes entries as a tar archive. All have the same time.
func pack(w io.Writer, entries []entry, when time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(e.data)), Mode: e.mode, Uid: e.user, Gid: e.user,
			ModTime: when, Format: tar.FormatUSTAR,
		}
		if e.name[len(e.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.data); err != nil {
			return err
		}
	}
	return archive.Close()
}
