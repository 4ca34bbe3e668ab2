package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Holds(ctx, "other", old); !errors.Is(err, context.Canceled) {
		t.Errorf("a search that was ended: %v", err)
	}
	empty := openStore(t, filepath.Join(t.TempDir(), "records.jsonl"))
	if err := os.Remove(empty.path); err != nil {
		t.Fatal(err)
	}
	if held, err := empty.Holds(t.Context(), "other", old); held || err != nil {
		t.Errorf("without a file: %v, %v", held, err)
	}
}
