package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// dated returns the lines of a session that started at noon and so much later.
func dated(t *testing.T, id string, later time.Duration) string {
	t.Helper()
	batch := session(id)
	for i := range batch {
		batch[i].Timestamp = noon.Add(later)
	}
	written, err := Encode(batch)
	if err != nil {
		t.Fatal(err)
	}
	return string(written)
}

// closeSegment makes a compressed segment of the lines and returns its path.
func closeSegment(t *testing.T, path string, number int, lines string) string {
	t.Helper()
	name := fmt.Sprintf("%s.%06d", path, number)
	writeFile(t, name, lines)
	tidy(t, path)
	return name + compressedSuffix
}

// summaries returns what the files of the store at path say of themselves, the newest
// first; nil for one that says nothing.
func summaries(t *testing.T, path string) map[string]*SegmentSummary {
	t.Helper()
	all := map[string]*SegmentSummary{}
	for f, err := range Files(path) {
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name] = nil
		if s, err := f.Summary(); err == nil {
			all[f.Name] = &s
		}
	}
	return all
}

// withFrame replaces the frame behind the compressed segment.
func withFrame(t *testing.T, name string, change func(s *SegmentSummary) []byte) {
	t.Helper()
	data := []byte(content(t, name))
	s, err := readSummary(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, name, string(data[:s.Body])+string(change(&s)))
}

func frameOf(t *testing.T, s *SegmentSummary) []byte {
	t.Helper()
	frame, err := s.frame()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestSummaryOfASegment(t *testing.T) {
	path := newPath(t)
	first := dated(t, "b", time.Hour) + "{}\n" + dated(t, "c", 3*time.Hour) + "[]\n{}\n" + dated(t, "a", 0) + dated(t, "c", 2*time.Hour)
	closeSegment(t, path, 1, first)
	closeSegment(t, path, 2, "no record\n")
	writeFile(t, path+".000003", lines(t, "d"))
	writeFile(t, path, lines(t, "e"))
	got := summaries(t, path)
	summary := got["bias_metrics.jsonl.000001.zst"]
	want := &SegmentSummary{
		Oldest: noon, Newest: noon.Add(3 * time.Hour), Sessions: 3, Records: 12, Version: summaryVersion, Schema: council.RecordSchema, Body: summary.Body,
		Skipped: []Skip{{ReasonUnknownSchema, 2, []int64{4, 9}}, {ReasonNotAnObject, 1, []int64{8}}},
	}
	if diff := cmp.Diff(want, summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	empty := got["bias_metrics.jsonl.000002.zst"]
	if empty == nil || empty.Records != 0 || !empty.Newest.IsZero() || len(empty.Skipped) != 1 {
		t.Errorf("summary of a segment without a record: %+v", empty)
	}
	for _, name := range []string{"bias_metrics.jsonl.000003", "bias_metrics.jsonl"} {
		if s, ok := got[name]; !ok || s != nil {
			t.Errorf("%s says %+v", name, s)
		}
	}
}

func TestFilesNewestFirst(t *testing.T) {
	path := newPath(t)
	writeFile(t, path+".000001", lines(t, "a"))
	tidy(t, path)
	writeFile(t, path+".000002", lines(t, "b"))
	writeFile(t, path, lines(t, "c"))
	var got []string
	for f, err := range Files(path) {
		if err != nil {
			t.Fatal(err)
		}
		for record, err := range f.Records(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, f.Name+" "+record.SessionID)
		}
	}
	name := filepath.Base(path)
	if diff := cmp.Diff([]string{name + " c", name + ".000002 b", name + ".000001.zst a"}, slices.Compact(got)); diff != "" {
		t.Error(diff)
	}
}

// A segment of an earlier release has no summary. It is read like any other, and the
// daemon compresses it again.
func TestSegmentWithoutASummary(t *testing.T) {
	path := newPath(t)
	name := closeSegment(t, path, 1, lines(t, "a", "b"))
	withFrame(t, name, func(*SegmentSummary) []byte { return nil })
	holds(t, path, "a", "b")
	if s := summaries(t, path)[filepath.Base(name)]; s != nil {
		t.Errorf("it says %+v", s)
	}
	if found, err := Verify(t.Context(), path); err != nil || found[0].SummaryErr != nil {
		t.Errorf("verify found %+v, %v", found, err)
	}
	tidy(t, path)
	holds(t, path, "a", "b")
	if s := summaries(t, path)[filepath.Base(name)]; s == nil || s.Records != 6 || s.Sessions != 2 {
		t.Errorf("after compressing it again it says %+v", s)
	}
}

// Whichever byte of a summary is changed or missing, it is not believed, and what the
// segment holds is read, or counts as damaged. Compressing the segment again mends it.
func TestFaultF34DamagedSummary(t *testing.T) {
	path := newPath(t)
	name := closeSegment(t, path, 1, lines(t, "a"))
	good := content(t, name)
	s := summaries(t, path)[filepath.Base(name)]
	cases := map[string]string{
		"another segment behind it": good + good,
		"zeros behind it":           good + "\x00\x00\x00\x00",
	}
	for i := int(s.Body); i < len(good); i++ {
		cases[fmt.Sprintf("byte %d changed", i)] = good[:i] + string(good[i]^1) + good[i+1:]
		if i > int(s.Body) {
			cases[fmt.Sprintf("cut at byte %d", i)] = good[:i]
		}
	}
	mended, n := 0, 0
	for what, data := range cases {
		_, err := readSummary(strings.NewReader(data), int64(len(data)))
		if err == nil {
			t.Errorf("%s: it is believed", what)
		}
		writeFile(t, name, data)
		found, verifyErr := Verify(t.Context(), path)
		if verifyErr != nil {
			t.Fatal(verifyErr)
		}
		if found[0].Records != 3 && (found[0].Records != 6 || what != "another segment behind it") {
			t.Errorf("%s: verify found %+v", what, found[0])
		}
		if found[0].SummaryErr == nil && !found[0].damaged() && !errors.Is(err, errNoSummary) {
			t.Errorf("%s: verify says nothing of %v", what, err)
		}
		// Compressing takes long, so that a part of the cases must do.
		if n++; found[0].damaged() || n%8 > 0 && strings.HasPrefix(what, "byte") {
			continue
		}
		tidy(t, path)
		if s := summaries(t, path)[filepath.Base(name)]; s == nil || s.Records != found[0].Records {
			t.Errorf("%s: after compressing it again it says %+v", what, s)
		}
		mended++
	}
	if mended == 0 {
		t.Error("none was mended")
	}
	t.Logf("fault F34: a summary changed or cut at every byte, %d cases: 0 believed (promised 0)", len(cases))
}

// A summary that was made to lie is named by store verify, and does not have its segment
// deleted.
func TestFaultF34LyingSummary(t *testing.T) {
	for what, lie := range map[string]func(s *SegmentSummary){
		"older":            func(s *SegmentSummary) { s.Oldest, s.Newest = s.Oldest.AddDate(-50, 0, 0), s.Newest.AddDate(-50, 0, 0) },
		"one record fewer": func(s *SegmentSummary) { s.Records-- },
		"no bad lines":     func(s *SegmentSummary) { s.Skipped = nil },
		"empty":            func(s *SegmentSummary) { *s = SegmentSummary{Version: s.Version, Body: s.Body} },
	} {
		t.Run(what, func(t *testing.T) {
			path := newPath(t)
			name := closeSegment(t, path, 1, dated(t, "a", time.Since(noon))+"{}\n")
			withFrame(t, name, func(s *SegmentSummary) []byte {
				lie(s)
				return frameOf(t, s)
			})
			found, err := Verify(t.Context(), path)
			if err != nil || found[0].SummaryErr == nil || found[0].Err != nil {
				t.Errorf("verify found %+v, %v", found, err)
			}
			s := openWith(t, Options{Path: path, Retention: time.Hour})
			if err := s.segments.tidy(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(name); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Log("fault F34: a summary that was made to lie: store verify names it, the segment is not deleted (promised)")
}

// A summary of a later release is not believed and not replaced.
func TestSummaryOfALaterRelease(t *testing.T) {
	path := newPath(t)
	name := closeSegment(t, path, 1, lines(t, "a"))
	withFrame(t, name, func(s *SegmentSummary) []byte {
		s.Version++
		s.Records = 0
		return frameOf(t, s)
	})
	before := content(t, name)
	tidy(t, path)
	if content(t, name) != before {
		t.Error("it was replaced")
	}
	if s := summaries(t, path)[filepath.Base(name)]; s != nil {
		t.Errorf("it says %+v", s)
	}
	if found, err := Verify(t.Context(), path); err != nil || found[0].SummaryErr != nil || found[0].Records != 3 {
		t.Errorf("verify found %+v, %v", found, err)
	}
}

// A compressed segment that is damaged is not compressed again: what can be read of it
// would replace the rest.
func TestDamagedSegmentStays(t *testing.T) {
	path := newPath(t)
	name := closeSegment(t, path, 1, lines(t, "a", "b"))
	withFrame(t, name, func(*SegmentSummary) []byte { return nil })
	data := []byte(content(t, name))
	data[len(data)/2] ^= 0xff
	writeFile(t, name, string(data))
	tidy(t, path)
	if !bytes.Equal([]byte(content(t, name)), data) {
		t.Error("it was replaced")
	}
	if diff := cmp.Diff([]string{"", ".000001.zst"}, names(t, path)); diff != "" {
		t.Error(diff)
	}
}

func FuzzReadSummary(f *testing.F) {
	s := SegmentSummary{
		Version: summaryVersion, Oldest: noon, Newest: noon, Sessions: 1, Records: 3, Skipped: []Skip{{ReasonNotJSON, 1, []int64{2}}},
	}
	frame, err := s.frame()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Add(frame[4:])
	f.Add([]byte{})
	f.Add(binary.LittleEndian.AppendUint32(make([]byte, 20), 1<<31))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readSummary(bytes.NewReader(data), int64(len(data)))
		if err == nil && (s.Version != summaryVersion || s.Body >= int64(len(data))) {
			t.Errorf("believed %+v of %d bytes", s, len(data))
		}
		if err != nil && !errors.Is(err, errNoSummary) && !errors.Is(err, errBadSummary) && !errors.Is(err, errNewSummary) {
			t.Error(err)
		}
	})
}

// A segment is deleted by the time of the newest record that it holds.
func TestRetentionReadsTheSummary(t *testing.T) {
	path := newPath(t)
	name := closeSegment(t, path, 1, dated(t, "a", time.Since(noon)-2*time.Hour)+dated(t, "b", 0))
	h := newHousekeeper(Options{Path: path, Disk: disk.OS{}, Retention: 3 * time.Hour, Log: newTestLog(&bytes.Buffer{})})
	if err := h.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("deleted before its newest record was old enough: %v", err)
	}
	h.o.Retention = time.Hour
	if err := h.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("not deleted: %v", err)
	}
}
