package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/faultdisk"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// tidy compresses the closed segments of the store at path.
func tidy(t *testing.T, path string) {
	t.Helper()
	s, _, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.segments.tidy(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// A closed segment is small: ADR-018 wants less than 1 KB for a session.
func TestClosedSegmentIsSmall(t *testing.T) {
	path := newPath(t)
	written := writeRecords(t, path+".000001", 12*1000)
	plain, err := os.Stat(path + ".000001")
	if err != nil {
		t.Fatal(err)
	}
	tidy(t, path)
	closed, err := os.Stat(path + ".000001.zst")
	if err != nil {
		t.Fatal(err)
	}
	perSession := closed.Size() / int64(written/12)
	if perSession >= 1000 {
		t.Errorf("%d bytes per session of 4 members", perSession)
	}
	t.Logf("a session of 4 members has %d bytes as it is written, %d in a closed segment", plain.Size()/int64(written/12), perSession)
	if diff := cmp.Diff([]string{"", ".000001.zst"}, names(t, path)); diff != "" {
		t.Error(diff)
	}
	if records, bad := collect(t, ReadFile(t.Context(), path)); len(records) != written || len(bad) > 0 {
		t.Errorf("%d records of %d, skipped %v", len(records), written, bad)
	}
}

func TestReadFileTakesEveryForm(t *testing.T) {
	path := newPath(t)
	s := openWith(t, Options{Path: path, RotateBytes: int64(len(lines(t, "a")))})
	for _, id := range []string{"a", "b", "c"} {
		appendSessions(t, s, id)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, lines(t, "d"))
	// Names that are like those of segments.
	for _, name := range []string{".20251217", ".00001", ".000009.gz", ".000009.tmp", "-000009", ".000009.zst.zst"} {
		writeFile(t, path+name, lines(t, "other"))
	}
	want := []string{"a", "b", "c", "d"}
	for name, prepare := range map[string]func() string{
		"as the last writer left it": func() string { return path },
		"with all compressed": func() string {
			tidy(t, path)
			return path
		},
		"through a link": func() string { return link },
	} {
		if diff := cmp.Diff(want, whole(t, prepare())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"b"}, whole(t, path+".000002.zst")); diff != "" {
		t.Errorf("a closed segment alone: %s", diff)
	}
	// A crash after a rotation, before the next data file was created.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[:3], whole(t, path)); diff != "" {
		t.Errorf("without a data file: %s", diff)
	}
	// A crash between compressing a segment and removing what it was made from.
	writeFile(t, path+".000001", lines(t, "a"))
	if diff := cmp.Diff(want[:3], whole(t, path)); diff != "" {
		t.Errorf("with a segment in both forms: %s", diff)
	}
	tidy(t, path)
	if slices.Contains(names(t, path), ".000001") {
		t.Error("what was compressed is still there")
	}
}

// A segment that cannot be compressed stays as it is, and is compressed later.
func TestCompressingFails(t *testing.T) {
	for _, kind := range []faultdisk.Kind{faultdisk.Write, faultdisk.Sync, faultdisk.Rename, faultdisk.SyncDir, faultdisk.Remove} {
		t.Run(string(kind), func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				d := &faultdisk.Disk{}
				path := newPath(t)
				writeFile(t, path+".000001", lines(t, "a"))
				var log strings.Builder
				s := openWith(t, Options{Path: path, Log: newTestLog(&log), Disk: d})
				synctest.Wait()
				appendSessions(t, s, "b")
				writeFile(t, path+".000002", lines(t, "c"))
				d.Fail(func(o faultdisk.Op, n int) (int, error) {
					second := strings.HasSuffix(o.Name, temporarySuffix) || strings.HasSuffix(o.Name, ".000002")
					return n, onlyIf(o.Kind == kind && (second || kind == faultdisk.SyncDir), syscall.ENOSPC)
				})
				time.Sleep(time.Hour + time.Second)
				synctest.Wait()
				if !strings.Contains(log.String(), "no space left") {
					t.Errorf("log: %s", log.String())
				}
				holds(t, path, "a", "b", "c")
				d.Fail(nil)
				time.Sleep(time.Hour)
				synctest.Wait()
				holds(t, path, "a", "b", "c")
				if diff := cmp.Diff([]string{"", ".000001.zst", ".000002.zst"}, names(t, path)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestRotationFails(t *testing.T) {
	d := &faultdisk.Disk{}
	path := newPath(t)
	var log strings.Builder
	s := openWith(t, Options{Path: path, RotateBytes: int64(len(lines(t, "a"))), Log: newTestLog(&log), Disk: d})
	d.Fail(func(o faultdisk.Op, n int) (int, error) { return n, onlyIf(o.Kind == faultdisk.Rename, syscall.EACCES) })
	appendSessions(t, s, "a", "b")
	d.Fail(nil)
	appendSessions(t, s, "c")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "a", "b", "c")
	if !strings.Contains(log.String(), "keeps growing") {
		t.Errorf("log: %s", log.String())
	}
	closed := func(name string) bool { return strings.HasPrefix(name, ".000001") }
	if files := names(t, path); !slices.ContainsFunc(files, closed) {
		t.Errorf("files %v, none of them a closed segment", files)
	}
}

// With a retention a closed segment is deleted when its newest record is too old. The
// data file and a segment without any record stay.
func TestRetention(t *testing.T) {
	dated := func(id string, days int) string {
		batch := session(id)
		for i := range batch {
			batch[i].Timestamp = time.Now().AddDate(0, 0, -days)
		}
		written, err := Encode(batch)
		if err != nil {
			t.Fatal(err)
		}
		return string(written)
	}
	path := newPath(t)
	race.Bubble(t, func(t *testing.T) {
		for i, data := range []string{dated("a", 40) + dated("b", 29), dated("c", 31), "no record\n", dated("d", -1)} {
			writeFile(t, fmt.Sprintf("%s.%06d", path, i+1), data)
		}
		writeFile(t, path, dated("e", 99))
		openWith(t, Options{Path: path, Retention: 30 * 24 * time.Hour})
		for _, step := range []struct {
			after time.Duration
			want  []string
		}{
			{0, []string{"", ".000001.zst", ".000003.zst", ".000004.zst"}},
			{23 * time.Hour, []string{"", ".000001.zst", ".000003.zst", ".000004.zst"}},
			{2 * time.Hour, []string{"", ".000003.zst", ".000004.zst"}},
			{32 * 24 * time.Hour, []string{"", ".000003.zst"}},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			if diff := cmp.Diff(step.want, names(t, path)); diff != "" {
				t.Errorf("after %v: %s", step.after, diff)
			}
		}
	})
}

// A segment that is too old is deleted without being compressed first, also while the
// disk is too full to compress it.
func TestExpiredSegmentIsNotCompressed(t *testing.T) {
	path := newPath(t)
	writeFile(t, path+".000001", "no record\n"+lines(t, "a", "b"))
	d := &faultdisk.Disk{}
	d.Fail(func(o faultdisk.Op, n int) (int, error) { return n, onlyIf(o.Kind == faultdisk.Write, syscall.ENOSPC) })
	h := newHousekeeper(Options{Path: path, Disk: d, Retention: time.Hour, Log: newTestLog(&strings.Builder{})})
	if err := h.tidy(t.Context()); err != nil {
		t.Error(err)
	}
	for _, o := range d.Done() {
		if o.Kind != faultdisk.Remove {
			t.Errorf("%s of %s", o.Kind, o.Name)
		}
	}
	if diff := cmp.Diff([]string(nil), names(t, path)); diff != "" {
		t.Error(diff)
	}
}

func TestExpiredSegmentCannotBeDeleted(t *testing.T) {
	path := newPath(t)
	writeFile(t, path+".000001", lines(t, "a"))
	d := &faultdisk.Disk{}
	d.Fail(func(o faultdisk.Op, n int) (int, error) {
		return n, onlyIf(o.Kind == faultdisk.Remove && o.Name == filepath.Base(path)+".000001", syscall.EACCES)
	})
	h := newHousekeeper(Options{Path: path, Disk: d, Retention: time.Hour, Log: newTestLog(&strings.Builder{})})
	if err := h.tidy(t.Context()); !errors.Is(err, syscall.EACCES) {
		t.Errorf("got %v", err)
	}
	holds(t, path, "a")
}

// After the last number for a segment the data file keeps growing.
func TestNoNumberLeft(t *testing.T) {
	path := newPath(t)
	writeFile(t, path+".999999", lines(t, "a"))
	var log strings.Builder
	s := openWith(t, Options{Path: path, RotateBytes: 1, Log: newTestLog(&log)})
	appendSessions(t, s, "b", "c")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "a", "b", "c")
	if !strings.Contains(log.String(), "no number left") {
		t.Errorf("log: %s", log.String())
	}
}

// A summary that says that the segment is too old has it read, up to the first record that
// is not.
func TestYoungRecordKeepsItsSegment(t *testing.T) {
	path := newPath(t)
	name := closeSegment(t, path, 1, dated(t, "old", 0)+dated(t, "young", time.Since(noon))+dated(t, "old again", 0))
	withFrame(t, name, func(s *SegmentSummary) []byte {
		s.Newest = s.Oldest
		return frameOf(t, s)
	})
	h := newHousekeeper(Options{Path: path, Disk: &faultdisk.Disk{}, Retention: time.Hour, Log: newTestLog(&strings.Builder{})})
	if err := h.tidy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	path := newPath(t)
	writeFile(t, path+".000001", lines(t, "a", "b"))
	tidy(t, path)
	writeFile(t, path, lines(t, "c")+strings.Repeat("{\n", 12)+"null\n"+lines(t, "d")[:100])
	got, err := Verify(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := os.Stat(path + ".000001.zst")
	if err != nil {
		t.Fatal(err)
	}
	want := []Part{
		{
			File: "bias_metrics.jsonl.000001.zst", Bytes: closed.Size(),
			SegmentSummary: SegmentSummary{Oldest: noon, Newest: noon, Sessions: 2, Records: 6, Version: summaryVersion},
		},
		{
			File: "bias_metrics.jsonl", Bytes: int64(len(content(t, path))),
			SegmentSummary: SegmentSummary{Oldest: noon, Newest: noon, Sessions: 1, Records: 3, Version: summaryVersion, Skipped: []Skip{
				{ReasonNotJSON, 12, []int64{4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
				{ReasonNotAnObject, 1, []int64{16}},
				{ReasonUnterminated, 1, []int64{17}},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := Verify(t.Context(), path+".none"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no path":             {},
		"a compressed file":   {Path: newPath(t) + compressedSuffix},
		"an unknown mode":     {Path: newPath(t), Fsync: "always"},
		"no interval":         {Path: newPath(t), Fsync: council.FsyncInterval},
		"a negative interval": {Path: newPath(t), Fsync: council.FsyncInterval, Interval: -1},
	} {
		if s, _, err := Open(o); err == nil {
			t.Errorf("%s: opened, %v", name, s.Close())
		}
	}
}
