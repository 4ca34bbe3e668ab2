package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/store"
)

// plain returns the plain lines of the store at path.
func plain(t *testing.T, path string) []string {
	t.Helper()
	var lines []string
	for line, err := range store.PlainLines(t.Context(), path) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return lines
}

// Lines that are no records are kept in their order over rotations, and those of one call are
// whole or missing after a crash.
func TestPlainLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	for _, err := range store.PlainLines(t.Context(), path) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without a file: %v", err)
		}
	}
	s, _, err := store.Open(store.Options{Path: path, RotateBytes: 200})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 40 {
		one, two := fmt.Sprintf(`{"n":%d}`, i), fmt.Sprintf(`{"n":%d,"more":true}`, i)
		if err := s.AppendLines(t.Context(), []byte(one+"\n"), []byte(two+"\n")); err != nil {
			t.Fatal(err)
		}
		want = append(want, one, two)
	}
	if got := plain(t, path); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if err := s.AppendLines(t.Context(), bytes.Repeat([]byte("x"), 64<<10)); err == nil {
		t.Error("a line was taken that is too long to be read")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if segments, _ := filepath.Glob(path + ".0*"); len(segments) < 3 {
		t.Errorf("%d segments", len(segments))
	}

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("{\"n\":40}\t\n{\"n\":40,\"mo") // as a crash leaves it
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if got := plain(t, path); !slices.Equal(got, want) {
		t.Errorf("after a crash: %q", got[len(got)-3:])
	}
	s, recovery, err := store.Open(store.Options{Path: path})
	if err != nil || recovery.CutBytes == 0 {
		t.Fatalf("%+v, %v", recovery, err)
	}
	defer s.Close()
	if err := s.AppendLines(t.Context(), []byte("{\"n\":41}\n")); err != nil {
		t.Fatal(err)
	}
	if got := plain(t, path); strings.Join(got, "") != strings.Join(append(want, `{"n":41}`), "") {
		t.Errorf("after another start: %q", got[len(got)-3:])
	}
}
