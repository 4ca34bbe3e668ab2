package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
)

// SegmentSummary describes the records in one file of a store. A compressed segment ends in its own summary, so
// that a report does not read segments outside its window. The summary is in a skippable frame (RFC 8878), which
// zstd readers skip. The frame holds JSON, the checksum of the JSON, and the length of the frame.
//
// A reader can do without a summary. It reads the whole segment if the summary is missing or damaged, has another
// version, or was made for compressed data of another length. It also reads the whole segment if another release made
// the summary and skipped records of unknown schemas, because this program may know these schemas. In all these cases
// the daemon compresses the segment again, unless the summary has another version. A wrong summary with a right
// checksum can only be made on purpose. Such a summary can only make a report skip the segment, or read the segment in
// vain. [Verify] compares every summary with its segment, and the daemon reads a segment before it deletes it.
type SegmentSummary struct {
	// Oldest is the earliest timestamp of a record. It is zero if there is no record.
	Oldest   time.Time `json:"oldest"`
	Newest   time.Time `json:"newest"`   // latest timestamp of a record
	Sessions int       `json:"sessions"` // number of different session ids
	Records  int       `json:"records"`
	Skipped  []Skip    `json:"skipped"` // one for each reason, in the order of their first lines

	Version int `json:"version"` // summaryVersion
	// Schema is the newest schema known to the program that made the summary. It is "" in summaries of earlier
	// releases.
	Schema string `json:"schema"`
	Body   int64  `json:"body"` // length of the compressed data before the summary, in bytes
}

// Skip counts the lines of a file that were skipped for one reason.
type Skip struct {
	Reason Reason  `json:"reason"`
	Count  int     `json:"count"`
	Lines  []int64 `json:"lines"` // the first of these lines, from 1; at most ten
}

const (
	summaryVersion = 1
	maxFrame       = 64 << 10   // length of the longest frame that is read, in bytes
	frameHeader    = 8          // bytes of the magic number, and of the field that holds the length of the rest
	frameFooter    = 8          // bytes of the checksum, and of the field that holds the length of the frame
	frameMagic     = 0x184d2a5c // one of the sixteen magic numbers that RFC 8878 allows for such a frame
)

// maxLines is how many line numbers a summary gives for one reason.
const maxLines = 10

// These are the reasons why a file has no summary that can be trusted.
var (
	errNoSummary  = errors.New("it has no summary")
	errBadSummary = errors.New("its summary is damaged")
	errOldSummary = errors.New("its summary is from a version with other schemas")
	errNewSummary = fmt.Errorf("its summary is of another version than %d", summaryVersion)
)

// summarize returns the summary of the lines. After an error it is the summary of the lines before the error.
func summarize(lines iter.Seq2[Line, error]) (SegmentSummary, error) {
	s := SegmentSummary{Version: summaryVersion}
	sessions := map[string]bool{}
	for line, err := range lines {
		if bad, ok := errors.AsType[*LineError](err); ok {
			s.skip(bad)
			continue
		}
		if err != nil {
			return s, err
		}
		if s.Records == 0 || line.Timestamp.Before(s.Oldest) {
			s.Oldest = line.Timestamp
		}
		if s.Records == 0 || line.Timestamp.After(s.Newest) {
			s.Newest = line.Timestamp
		}
		sessions[line.SessionID] = true
		s.Sessions = len(sessions)
		s.Records++
	}
	return s, nil
}

func (s *SegmentSummary) skip(line *LineError) {
	i := slices.IndexFunc(s.Skipped, func(known Skip) bool { return known.Reason == line.Reason })
	if i < 0 {
		i = len(s.Skipped)
		s.Skipped = append(s.Skipped, Skip{Reason: line.Reason})
	}
	known := &s.Skipped[i]
	if known.Count++; known.Count <= maxLines {
		known.Lines = append(known.Lines, line.Line)
	}
}

// damaged reports whether the file could not be decompressed to its end.
func (s *SegmentSummary) damaged() bool { return s.skipped(ReasonDamaged) }

// later reports whether the file may hold records of a later schema, which the other figures do not count.
func (s *SegmentSummary) later() bool { return s.skipped(ReasonUnknownSchema) }

func (s *SegmentSummary) skipped(reason Reason) bool {
	return slices.ContainsFunc(s.Skipped, func(known Skip) bool { return known.Reason == reason })
}

// frame returns the frame that holds the summary.
func (s *SegmentSummary) frame() ([]byte, error) {
	text, err := json.Marshal(s)
	length := uint32(frameHeader + len(text) + frameFooter) //nolint:gosec // a summary is short
	frame := binary.LittleEndian.AppendUint32(nil, frameMagic)
	frame = binary.LittleEndian.AppendUint32(frame, length-frameHeader)
	frame = append(frame, text...)
	frame = binary.LittleEndian.AppendUint32(frame, crc32.ChecksumIEEE(text))
	return binary.LittleEndian.AppendUint32(frame, length), err
}

// readSummary returns the summary at the end of a file with this size.
func readSummary(r io.ReaderAt, size int64) (SegmentSummary, error) {
	if size < frameHeader+frameFooter {
		return SegmentSummary{}, errNoSummary
	}
	tail := make([]byte, min(size, maxFrame))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil {
		return SegmentSummary{}, err
	}
	length := binary.LittleEndian.Uint32(tail[len(tail)-4:])
	if length < frameHeader+frameFooter || int64(length) > int64(len(tail)) {
		return SegmentSummary{}, errNoSummary
	}
	frame := tail[len(tail)-int(length):]
	if binary.LittleEndian.Uint32(frame) != frameMagic || binary.LittleEndian.Uint32(frame[4:]) != length-frameHeader {
		return SegmentSummary{}, errNoSummary
	}
	text := frame[frameHeader : length-frameFooter]
	footer := frame[length-frameFooter:]
	var s SegmentSummary
	if crc32.ChecksumIEEE(text) != binary.LittleEndian.Uint32(footer) || json.Unmarshal(text, &s) != nil {
		return SegmentSummary{}, errBadSummary
	}
	if s.Version != summaryVersion {
		return SegmentSummary{}, errNewSummary
	}
	if s.Body != size-int64(length) {
		return SegmentSummary{}, errBadSummary
	}
	if s.later() && s.Schema != council.RecordSchema {
		return SegmentSummary{}, errOldSummary
	}
	return s, nil
}

// Summary returns the summary in the file. It returns an error if the file has no summary that can be trusted. These
// files have none: the data file, a segment that is not compressed or that an earlier release made, and a segment whose
// summary is damaged, has another version, or comes from a program that knew other schemas.
func (f File) Summary() (SegmentSummary, error) {
	if !f.compressed() {
		return SegmentSummary{}, errNoSummary
	}
	info, err := f.file.Stat()
	if err != nil {
		return SegmentSummary{}, err
	}
	return readSummary(f.file, info.Size())
}

// checkSummary compares the summary in the file with found, the summary of its lines. It returns nil if the two
// summaries agree. It also returns nil if they cannot be compared: the file is damaged, or its summary is missing, has
// another version, or comes from a program that knew other schemas.
func (f File) checkSummary(found SegmentSummary) error {
	said, err := f.Summary()
	if errors.Is(err, errNoSummary) || errors.Is(err, errNewSummary) || errors.Is(err, errOldSummary) ||
		found.damaged() {
		return nil
	}
	if err != nil {
		return err
	}
	if said.Schema != "" && said.Schema != council.RecordSchema && found.later() {
		// The release that made the summary may know those records.
		return nil
	}
	found.Body = said.Body
	found.Schema = said.Schema
	if reflect.DeepEqual(said, found) {
		return nil
	}
	return fmt.Errorf("its summary says %d sessions from %v to %v, but it holds %d from %v to %v; decompress it "+
		"(zstd -d --rm), and the daemon compresses it again", said.Sessions, said.Oldest, said.Newest, found.Sessions, found.Oldest, found.Newest)
}

// Part is what Verify found in one file of a store.
type Part struct {
	File  string // without directories
	Bytes int64  // on disk
	SegmentSummary
	// Err is why the file, or the rest of it, could not be read. It is nil if it could be read.
	Err        error
	SummaryErr error // why the summary in the file is wrong; nil if it is right or missing
}

// Verify reads the store at path as ReadFile does, and returns what each of its files holds, the oldest first. If a
// file cannot be read, its Part has the error, and Verify continues.
func Verify(ctx context.Context, path string) ([]Part, error) {
	var all []Part
	for f, err := range files(path, false) {
		if err != nil && f.Name == "" {
			return nil, err
		}
		found := Part{File: f.Name, Err: err}
		if err == nil {
			if info, err := f.file.Stat(); err == nil {
				found.Bytes = info.Size()
			}
			found.SegmentSummary, found.Err = summarize(f.lines(ctx))
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if found.Err == nil {
				found.SummaryErr = f.checkSummary(found.SegmentSummary)
			}
		}
		all = append(all, found)
	}
	return all, nil
}
