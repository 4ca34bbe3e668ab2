package store

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHolds(t *testing.T) {
	path := newPath(t)
	write := func(s *Store, id string, created time.Time) {
		t.Helper()
		records := session(id)
		for i := range records {
			records[i].Timestamp = created
		}
		if err := s.Append(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	old, recent := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	s := openWith(t, Options{Path: path, RotateBytes: 1}) // each session closes its file
	write(s, "closed", old)
	write(s, "later", recent)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tidy(t, path)
	s = openStore(t, path)
	write(s, "live", recent)
	for _, tt := range []struct {
		id      string
		created time.Time
		want    bool
	}{
		{"live", recent, true},
		{"later", recent, true},
		{"closed", old, true},
		{"other", old, false},
		{"closed", recent, false}, // its segment is not read: all of it is older
	} {
		got, err := s.Holds(t.Context(), tt.id, tt.created)
		if err != nil {
			t.Fatal(err)
		}
		if got != tt.want {
			t.Errorf("%s since %v: %v", tt.id, tt.created, got)
		}
	}
	for since, want := range map[time.Time][]string{old: {"closed", "later", "live"}, recent: {"later", "live"}} {
		got, err := s.Sessions(t.Context(), since)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, slices.Sorted(maps.Keys(got))); d != "" {
			t.Errorf("sessions since %v: %s", since, d)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Sessions(ctx, old); !errors.Is(err, context.Canceled) {
		t.Errorf("a list that was ended: %v", err)
	}
	if _, err := s.Holds(ctx, "other", old); !errors.Is(err, context.Canceled) {
		t.Errorf("a search that was ended: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Holds(t.Context(), "live", recent); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
	empty := openStore(t, filepath.Join(t.TempDir(), "records.jsonl"))
	if err := os.Remove(empty.path); err != nil {
		t.Fatal(err)
	}
	if held, err := empty.Holds(t.Context(), "other", old); held || err != nil {
		t.Errorf("without a file: %v, %v", held, err)
	}
}

// The end of a store goes on, over segments too, and back when a file is cut or deleted.
func TestEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	path := filepath.Join(dir, "records.jsonl")
	s := openWith(t, Options{Path: path, RotateBytes: 1 << 12})
	end := func() End {
		t.Helper()
		e, err := s.End()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	last := end()
	if last != (End{}) {
		t.Errorf("an empty store ends at %+v", last)
	}
	for n := 0; last.Segments < 2 || last.Bytes == 0; n++ {
		if err := s.Append(t.Context(), session(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
		now := end()
		if !last.Before(now) {
			t.Fatalf("the end went from %+v to %+v", last, now)
		}
		last = now
	}
	if err := os.Truncate(path, last.Bytes-1); err != nil {
		t.Fatal(err)
	}
	if now := end(); now != (End{last.Segments, last.Bytes - 1}) || !now.Before(last) {
		t.Errorf("after a cut the end is %+v, before %+v", now, last)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if now := end(); now != (End{Segments: last.Segments}) || !now.Before(last) {
		t.Errorf("without the data file the end is %+v, before %+v", now, last)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if now := end(); now != (End{}) {
		t.Errorf("without a directory the end is %+v", now)
	}
}
