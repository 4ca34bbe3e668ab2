package store

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// Reason is a reason why a line is skipped. The list is closed.
type Reason string

// These are the reasons. A line with several faults gets one of them.
const (
	ReasonTooLong Reason = "too_long" // over 64 KiB
	// ReasonUnterminated says that the last session or line has no end. It is being written, or a crash cut it.
	ReasonUnterminated  Reason = "unterminated"
	ReasonDamaged       Reason = "damaged"        // the compressed data is damaged from here on
	ReasonInvalidUTF8   Reason = "invalid_utf8"   // not UTF-8
	ReasonNotJSON       Reason = "not_json"       // not a JSON value, or more than one
	ReasonNotAnObject   Reason = "not_an_object"  // JSON, but not an object
	ReasonUnknownSchema Reason = "unknown_schema" // schema_version is missing or not one that this program knows
	ReasonMissingField  Reason = "missing_field"  // an id or the length is missing, null or empty
	// ReasonBadTimestamp says that the timestamp is missing, or not in the form of RFC 3339 with an offset.
	ReasonBadTimestamp Reason = "bad_timestamp"
	ReasonBadScore     Reason = "bad_score" // the score is not a number, has no scale, or is outside its scale
	// ReasonBadField says that another field has the wrong type, is out of range, or is not on its closed list.
	ReasonBadField Reason = "bad_field"
)

// LineError says why a line holds no record.
type LineError struct {
	File   string // name of its file without directories, or "" if it is not known
	Line   int64  // number of the line in its file, from 1; 0 if it is not from a file
	Reason Reason
	Err    error // the detail, or nil
}

// Error returns the line, the reason and the detail.
func (e *LineError) Error() string {
	text := string(e.Reason)
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	if e.File != "" {
		text = e.File + ": " + text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the detail.
func (e *LineError) Unwrap() error { return e.Err }

// Line is a record, and the line that it was read from.
type Line struct {
	council.BiasMetricRecord
	Text []byte // the line without its end; valid until the next line is read

	// Later is true for a record whose schema this program does not know. The line then comes with an error. Only
	// SchemaVersion is set, and also SessionID and Timestamp if they can be read.
	Later bool
}

// ReadFile reads the store at path as [Read] does. It reads the closed segments, then the data file. The path may
// also be that of a single closed segment. Each file is opened when the iteration reaches it. If there is no file,
// the error matches fs.ErrNotExist. ReadFile takes no lock. While another process appends, it returns the sessions
// that were written up to some moment.
//
// For a session that has no end it returns one *LineError and no record.
func ReadFile(ctx context.Context, path string) iter.Seq2[council.BiasMetricRecord, error] {
	return recordsOf(ReadLines(ctx, path))
}

// ReadLines does the same as ReadFile, but also returns each line as it was written. For a record of an old schema,
// the line shows more than the record does: the position, and which fields are missing.
func ReadLines(ctx context.Context, path string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for f, err := range files(path, false) {
			if err != nil {
				yield(Line{}, fmt.Errorf("opening the record store: %w", err))
				return
			}
			for line, err := range f.lines(ctx) {
				if !yield(line, err) || err != nil && !isLine(err) {
					return
				}
			}
		}
	}
}

// PlainLines returns the lines of a store that [Store.AppendLines] wrote, in their order. Each line is without its end,
// and valid until the next one is read. It reads the files that ReadFile reads, and skips damaged parts. An error is
// the last element. If there is no file, the error matches fs.ErrNotExist.
func PlainLines(ctx context.Context, path string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for line, err := range LinesAs(ctx, path, func(text []byte) ([]byte, error) { return text, nil }) {
			if isLine(err) {
				continue
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// LinesAs parses each line of a store that [Store.AppendLines] wrote, and returns the results in order. The argument of
// parse is a line without its end, and is valid until the next call. After a *LineError, which parse may return too,
// reading continues with the next line or the next file. Any other error is the last element. If there is no file, that
// error matches fs.ErrNotExist.
func LinesAs[T any](ctx context.Context, path string, parse func(text []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for f, err := range files(path, false) {
			if err != nil {
				yield(none, fmt.Errorf("opening %s: %w", path, err))
				return
			}
			r, torn, err := f.content(ctx, math.MaxInt64)
			if isLine(err) {
				if !yield(none, err) {
					return
				}
				continue
			}
			if err != nil {
				yield(none, fmt.Errorf("reading %s: %w", path, err))
				return
			}
			more := true
			readAs(ctx, r, f.Name, torn, parse, func(found T, err error) bool {
				more = yield(found, err) && (err == nil || isLine(err))
				return more
			})
			_ = r.Close()
			if !more {
				return
			}
		}
	}
}

// recordsOf returns the records of the lines.
func recordsOf(lines iter.Seq2[Line, error]) iter.Seq2[council.BiasMetricRecord, error] {
	return func(yield func(council.BiasMetricRecord, error) bool) {
		lines(func(l Line, err error) bool { return yield(l.BiasMetricRecord, err) })
	}
}

// Find returns nil if there is a store at path. A closed segment is enough, because no data file exists between a
// rotation and the next session. Find opens no file, because opening a named pipe would wait for a writer, and closing
// the pipe would make the writer fail.
func Find(path string) error {
	path = Resolve(path)
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if closed, _ := closedSegments(path); len(closed) > 0 {
			return nil
		}
	}
	return err
}

// Holds reports whether the store holds records of a session that was created at the given time. It does not read
// closed segments whose records are all older than that, according to their summaries. Records of a later schema
// count. Lines that hold no record are skipped. The error of a closed store matches fs.ErrClosed.
func (s *Store) Holds(ctx context.Context, sessionID string, created time.Time) (bool, error) {
	if err := s.Healthy(); errors.Is(err, fs.ErrClosed) {
		return false, err
	}
	for id, err := range s.sessions(ctx, created) {
		if id == sessionID || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}

// Sessions returns the ids of all sessions that have a record at or after the time since. The result may also hold
// other ids. Sessions reads the files that Holds reads.
func (s *Store) Sessions(ctx context.Context, since time.Time) (map[string]struct{}, error) {
	all := map[string]struct{}{}
	for id, err := range s.sessions(ctx, since) {
		if err != nil {
			return nil, err
		}
		all[id] = struct{}{}
	}
	return all, nil
}

// sessions returns the id of each record in the files that may hold records at or after the time since. The newest
// file comes first. An error is the last element.
func (s *Store) sessions(ctx context.Context, since time.Time) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		fail := func(err error) {
			yield("", fmt.Errorf("looking for sessions in the record store %s: %w", s.path, err))
		}
		for f, err := range Files(s.path) {
			if errors.Is(err, fs.ErrNotExist) {
				return
			}
			if err != nil {
				fail(err)
				return
			}
			if sum, err := f.Summary(); err == nil && !sum.later() && (sum.Records == 0 || sum.Newest.Before(since)) {
				continue
			}
			for line, err := range f.lines(ctx) {
				if isLine(err) && (!line.Later || line.SessionID == "") {
					continue
				}
				if err != nil && !line.Later {
					fail(err)
					return
				}
				if !yield(line.SessionID, nil) {
					return
				}
			}
		}
	}
}

// End says where a store ends.
type End struct {
	Segments int   `json:"segments"` // number of the newest closed segment, or 0
	Bytes    int64 `json:"bytes"`    // size of the data file in bytes, or 0
}

// Before reports whether e is before other. If the end of a store is before an end that it had earlier, the end has
// moved back. Store.End says when that happens.
func (e End) Before(other End) bool {
	return cmp.Or(cmp.Compare(e.Segments, other.Segments), cmp.Compare(e.Bytes, other.Bytes)) < 0
}

// Damages returns how many times this Store has found that its data file may have lost records: another process changed
// or removed the file, or the disk failed. If records are appended after a cut, End may not show the loss.
func (s *Store) Damages() int64 { return s.damages.Load() }

// End returns where the store ends. The end moves back when a file is deleted or cut, and when all closed segments were
// deleted because they were too old.
func (s *Store) End() (End, error) {
	closed, data, err := snapshot(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return End{}, fmt.Errorf("looking for the end of the record store %s: %w", s.path, err)
	}
	e := End{Segments: lastNumber(closed)}
	if data == nil {
		return e, nil
	}
	defer data.Close()
	info, err := data.Stat()
	if err != nil {
		return End{}, err
	}
	e.Bytes = info.Size()
	return e, nil
}

// isLine reports whether the error concerns one line, so that reading continues.
func isLine(err error) bool {
	_, ok := errors.AsType[*LineError](err)
	return ok
}

// File is one file of a store, open for reading.
type File struct {
	Name string // without directories; "" if no file was found
	file *os.File
}

// Files returns the files of the store at path that ReadFile reads, the newest first. Each file is closed when the
// iteration continues.
func Files(path string) iter.Seq2[File, error] { return files(path, true) }

// files returns the files of the store at path in the order of their records, or with newestFirst in the reverse
// order.
func files(path string, newestFirst bool) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		path := Resolve(path)
		closed, data, err := snapshot(path)
		if err != nil {
			yield(File{}, err)
			return
		}
		defer data.Close()
		for i := range len(closed) + 1 {
			if newestFirst {
				i = len(closed) - i
			}
			f := File{filepath.Base(path), data}
			err := error(nil)
			if i < len(closed) {
				f, err = closed[i].open()
			}
			if f.file == nil && err == nil || errors.Is(err, fs.ErrNotExist) {
				continue // There is no data file, or the segment was deleted meanwhile.
			}
			more := yield(f, err)
			_ = f.file.Close()
			if !more {
				return
			}
		}
	}
}

// snapshot returns the closed segments of the store at path and the data file, as they were at one moment. The data
// file is nil if there was none.
func snapshot(path string) ([]segment, *os.File, error) {
	closed, err := closedSegments(path)
	for err == nil {
		data, openErr := os.Open(path)
		if openErr != nil && !errors.Is(openErr, fs.ErrNotExist) {
			return nil, nil, openErr
		}
		var after []segment
		after, err = closedSegments(path)
		if err == nil && lastNumber(after) == lastNumber(closed) {
			if len(after) == 0 {
				err = openErr
			}
			return after, data, err
		}
		if data != nil { // It may have become a closed segment.
			_ = data.Close()
		}
		closed = after
	}
	return nil, nil, err
}

// open opens the file of the segment. The file may have been compressed meanwhile.
func (s segment) open() (File, error) {
	f, err := disk.OpenRegular(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		f, err = disk.OpenRegular(s.name + compressedSuffix)
	}
	if err != nil {
		return File{Name: filepath.Base(s.file())}, err
	}
	return File{filepath.Base(f.Name()), f}, nil
}

func (f File) compressed() bool { return strings.HasSuffix(f.Name, compressedSuffix) }

// Records returns the records of the file as Read does. It can be called only once.
func (f File) Records(ctx context.Context) iter.Seq2[council.BiasMetricRecord, error] {
	return recordsOf(f.lines(ctx))
}

// lines does the same as Records, but also returns each line as it was written.
func (f File) lines(ctx context.Context) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		r, torn, err := f.content(ctx, math.MaxInt64)
		if err != nil {
			yield(Line{}, err)
			return
		}
		defer r.Close()
		read(ctx, r, f.Name, torn, yield)
	}
}

// content returns the text of the whole sessions in the file. The result torn says that part of a session follows these
// sessions. If the file is not compressed, content looks only at its first length bytes.
func (f File) content(ctx context.Context, length int64) (r io.ReadCloser, torn bool, err error) {
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return nil, false, err
	case f.compressed() && info.Size() == 0 && info.Mode().IsRegular(): // zstd would take it for a file without content
		return nil, false, &LineError{
			File:   f.Name,
			Line:   1,
			Reason: ReasonDamaged,
			Err:    errors.New("the file is empty"),
		}
	case f.compressed():
		decompressor, err := zstd.NewReader(f.file, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, false, err
		}
		return compressed{decompressor.IOReadCloser()}, false, nil
	case !info.Mode().IsRegular(): // the end of a pipe cannot be read first
		return io.NopCloser(f.file), false, nil
	}
	end, torn, err := wholeSessions(ctx, f.file, length)
	return io.NopCloser(io.NewSectionReader(f.file, 0, end)), torn, err
}

// sizedReaderAt is the part of a file that wholeSessions needs.
type sizedReaderAt interface {
	io.ReaderAt
	Stat() (fs.FileInfo, error)
}

// wholeSessions returns the offset at which the last whole session ends, in the first length bytes of the file. The
// result torn says that part of another session follows. If the file becomes shorter meanwhile, because its writer cuts
// such a part off, wholeSessions looks again.
func wholeSessions(ctx context.Context, file sizedReaderAt, length int64) (end int64, torn bool, err error) {
	for size := int64(math.MaxInt64); ; {
		info, err := file.Stat()
		if err != nil {
			return 0, false, err
		}
		if info.Size() >= size {
			return 0, false, fmt.Errorf("%s ends before its size: %w", info.Name(), io.ErrUnexpectedEOF)
		}
		size = info.Size()
		within := min(length, size)
		end, err := afterLastSession(ctx, file, within)
		if !errors.Is(err, io.EOF) {
			return end, end < within, err
		}
	}
}

var errDamaged = errors.New("the compressed data is damaged")

// compressed reads compressed data. Its errors match errDamaged, unless the disk cannot be read.
type compressed struct{ io.ReadCloser }

func (c compressed) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if _, disk := errors.AsType[*fs.PathError](err); err != nil && !errors.Is(err, io.EOF) && !disk {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return n, err
}

// Read returns the records of r in their order, each with a nil error. For a line that holds no record it returns a
// *LineError, and reading continues. Any other error, such as that of ctx, is the last element. Empty lines, a byte
// order mark at the start and carriage returns at the ends of lines are ignored. The memory that Read needs does
// not depend on the length of r or of its lines.
//
// The caller may keep a record and set its fields. It must not change the values to which the record's pointers lead,
// because several records share these values.
func Read(ctx context.Context, r io.Reader) iter.Seq2[council.BiasMetricRecord, error] {
	return recordsOf(LinesOf(ctx, r))
}

// LinesOf does the same as Read, but also returns each line as it was written.
func LinesOf(ctx context.Context, r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) { read(ctx, r, "", false, yield) }
}

// read reads r as Read does. The argument file is the name of the file in errors. The argument torn says that an
// unterminated line follows the content of r.
func read(ctx context.Context, r io.Reader, file string, torn bool, yield func(Line, error) bool) {
	scanner := newScanner()
	readAs(ctx, r, file, torn, func(text []byte) (Line, error) {
		record, err := scanner.parse(text)
		line := Line{BiasMetricRecord: record, Text: text}
		if bad, ok := errors.AsType[*LineError](err); ok && bad.Reason == ReasonUnknownSchema {
			line.BiasMetricRecord = unknownSchema(text)
			line.Later = line.SchemaVersion != ""
		}
		return line, err
	}, yield)
}

// locate sets the file and the line of a *LineError.
func locate(err error, file string, line int64) {
	if bad, ok := errors.AsType[*LineError](err); ok {
		bad.File = file
		bad.Line = line
	}
}

// readAs does what read does, for lines of any kind. The text that parse gets is valid until the next line is read,
// and the errors of parse are *LineErrors.
func readAs[T any](
	ctx context.Context, r io.Reader, file string, torn bool, parse func(text []byte) (T, error), yield func(T, error) bool,
) {
	lines := bufio.NewReaderSize(r, maxLine)
	for n := int64(1); ; n++ {
		var found T
		if err := ctx.Err(); err != nil {
			yield(found, err)
			return
		}
		line, tooLong, err := readLine(ctx, lines)
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		var bad error
		switch {
		case errors.Is(err, errDamaged):
			bad = &LineError{Reason: ReasonDamaged, Err: err}
		case err != nil && !errors.Is(err, io.EOF):
			yield(found, fmt.Errorf("reading line %d of the record store: %w", n, err))
			return
		case tooLong:
			bad = &LineError{Reason: ReasonTooLong}
		case len(bytes.TrimSpace(line)) == 0 && err == nil:
			continue
		case len(bytes.TrimSpace(line)) == 0 && !torn:
			return
		case err != nil:
			bad = &LineError{Reason: ReasonUnterminated}
		default:
			found, bad = parse(bytes.TrimRight(line, "\t\r\n"))
		}
		locate(bad, file, n)
		if !yield(found, bad) || err != nil {
			return
		}
	}
}

// readLine returns the next line, which is valid until the next call. If the line is too long, it returns only the
// end of the line. The error is io.EOF if the line, which may be empty, has no newline.
func readLine(ctx context.Context, r *bufio.Reader) (line []byte, tooLong bool, err error) {
	line, err = r.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		if err := ctx.Err(); err != nil {
			return nil, true, err
		}
		line, err = r.ReadSlice('\n')
	}
	return line, tooLong, err
}
