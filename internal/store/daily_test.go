package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/councild/councild/internal/store"
)

func openDaily(t *testing.T, path string) *store.Daily {
	t.Helper()
	d, err := store.OpenDaily(store.Options{Path: path}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// dailyLines returns the lines of all days, each behind its day.
func dailyLines(t *testing.T, path string) (lines []string) {
	t.Helper()
	for line, err := range store.DailyLines(t.Context(), path) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line.Day+" "+string(line.Text))
	}
	return lines
}

// A line stands in the file of its day. Days are read in their order, and old ones deleted as a whole.
func TestDaily(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	d := openDaily(t, path)
	today := time.Now().UTC()
	var want []string
	for i := range 3 {
		at := today.AddDate(0, 0, i)
		wait, err := d.AppendLines(at, []byte("{\"n\":1}\n"), []byte("{\"n\":2}\n"))
		if err != nil || wait(t.Context()) != nil {
			t.Fatal(err)
		}
		day := at.Format(time.DateOnly)
		want = append(want, day+` {"n":1}`, day+` {"n":2}`)
	}
	if got := dailyLines(t, path); !slices.Equal(got, want) {
		t.Errorf("the lines are %q", got)
	}
	last := today.AddDate(0, 0, 2)
	if err := d.Remove(last, today.Format(time.DateOnly)); err != nil {
		t.Fatal(err)
	}
	if got := dailyLines(t, path); !slices.Equal(got, want[2:]) {
		t.Errorf("after a day was removed, the lines are %q", got)
	}
	if err := d.Remove(last, last.Format(time.DateOnly)); err == nil {
		t.Error("the day that is written to was removed")
	}
	if files, err := filepath.Glob(filepath.Join(dir, "events-"+today.Format(time.DateOnly)+"*")); err != nil || len(files) > 0 {
		t.Errorf("%v are left of the day that was removed", files)
	}
	if err := d.Remove(last.AddDate(0, 0, 1), last.Format(time.DateOnly)); err != nil {
		t.Errorf("removing the last day with lines on the next one: %v", err)
	}
	if got := dailyLines(t, path); !slices.Equal(got, want[2:4]) {
		t.Errorf("after the last day was removed, the lines are %q", got)
	}
}

// What a crash cut off is passed over, and the path is free for the next process only.
func TestDailyAfterCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	d := openDaily(t, path)
	if _, err := store.OpenDaily(store.Options{Path: path}, time.Now()); err == nil {
		t.Error("the path was opened twice")
	} else if _, held := errors.AsType[*store.HeldError](err); !held {
		t.Error(err)
	}
	now := time.Now()
	wait, err := d.AppendLines(now, []byte("{\"n\":1}\n"))
	if err != nil || wait(t.Context()) != nil || d.Close() != nil {
		t.Fatal(err)
	}
	if _, err := d.AppendLines(now, []byte("{}\n")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	day := now.UTC().Format(time.DateOnly)
	file := filepath.Join(filepath.Dir(path), "events-"+day+".jsonl")
	data, err := os.ReadFile(file)
	if err != nil || os.WriteFile(file, append(data, `{"n":2`...), 0o600) != nil {
		t.Fatal(err)
	}
	if got := dailyLines(t, path); !slices.Equal(got, []string{day + ` {"n":1}`}) {
		t.Errorf("the lines are %q", got)
	}
	d = openDaily(t, path)
	if wait, err = d.AppendLines(now, []byte("{\"n\":3}\n")); err != nil || wait(t.Context()) != nil {
		t.Fatal(err)
	}
	if got := dailyLines(t, path); !slices.Equal(got, []string{day + ` {"n":1}`, day + ` {"n":3}`}) {
		t.Errorf("after the crash the lines are %q", got)
	}
}
