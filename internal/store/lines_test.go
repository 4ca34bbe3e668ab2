package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/faultdisk"
	"github.com/councild/councild/internal/testkit/race"
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

// keep appends lines, and waits until they are kept.
func keep(t *testing.T, s *store.Store, lines ...string) error {
	t.Helper()
	var all [][]byte
	for _, line := range lines {
		all = append(all, []byte(line))
	}
	wait, err := s.AppendLines(all...)
	if err != nil {
		return err
	}
	return wait(t.Context())
}

// Lines keep the order of the calls, whoever waits for them, and also when nobody does.
func TestLinesKeepTheirOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	s, _, err := store.Open(store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	var want []string
	for i := range 100 {
		line := fmt.Sprintf(`{"n":%d}`, i)
		want = append(want, line)
		wait, err := s.AppendLines([]byte(line + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := wait(gone); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
	if err := keep(t, s); err != nil {
		t.Error(err)
	}
	if got := plain(t, path); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
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
		if err := keep(t, s, one+"\n", two+"\n"); err != nil {
			t.Fatal(err)
		}
		want = append(want, one, two)
	}
	if got := plain(t, path); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if err := keep(t, s, strings.Repeat("x", 64<<10)); err == nil {
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
	if err := keep(t, s, "{\"n\":41}\n"); err != nil {
		t.Fatal(err)
	}
	if got := plain(t, path); strings.Join(got, "") != strings.Join(append(want, `{"n":41}`), "") {
		t.Errorf("after another start: %q", got[len(got)-3:])
	}
}

// Whoever waits for earlier lines hears that they are not on a full disk. Nothing is written for that, which a full disk takes.
func TestLinesWaitForEarlierOnes(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var d faultdisk.Disk
		path := filepath.Join(t.TempDir(), "lines.jsonl")
		s, _, err := store.Open(store.Options{Path: path, Disk: &d})
		if err != nil {
			t.Fatal(err)
		}
		d.Fail(func(o faultdisk.Op, bytes int) (int, error) {
			if o.Kind == faultdisk.Write && bytes > len("{}\n") { // so little fits
				return 0, syscall.ENOSPC
			}
			return bytes, nil
		})
		if err := keep(t, s, "{\"n\":1}\n"); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("on a full disk: %v", err)
		}
		if err := keep(t, s); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("waiting for the line: %v", err)
		}
		if err := keep(t, s, "{}\n"); err != nil {
			t.Errorf("a line that fits: %v", err)
		}
		if err := keep(t, s); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("waiting for the line behind one that fitted: %v", err)
		}
		d.Fail(nil)
		for s.Healthy() != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if err := keep(t, s); err != nil {
			t.Errorf("when there is space again: %v", err)
		}
		if got := plain(t, path); !slices.Equal(got, []string{"{}", `{"n":1}`}) {
			t.Errorf("the lines are %q", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
