package store

import (
	"bufio"
	"bytes"
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

	"github.com/klauspost/compress/zstd"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// Reason is the closed list of reasons why a line is skipped.
type Reason string

// The reasons. A line with several faults has the reason of one.
const (
	ReasonTooLong       Reason = "too_long"       // over 64 KiB
	ReasonUnterminated  Reason = "unterminated"   // the last session or line has no end: being written, or torn by a crash
	ReasonDamaged       Reason = "damaged"        // a compressed segment from here on, as its checksum or layout tells
	ReasonInvalidUTF8   Reason = "invalid_utf8"   // not UTF-8
	ReasonNotJSON       Reason = "not_json"       // not a JSON value, or more than one
	ReasonNotAnObject   Reason = "not_an_object"  // JSON, but not an object
	ReasonUnknownSchema Reason = "unknown_schema" // schema_version is missing or not one that this program knows
	ReasonMissingField  Reason = "missing_field"  // an id or the length is missing, null or empty
	ReasonBadTimestamp  Reason = "bad_timestamp"  // missing, or not RFC 3339 with an offset
	ReasonBadScore      Reason = "bad_score"      // not a number, no scale, or outside its scale
	ReasonBadField      Reason = "bad_field"      // another field is of the wrong type, out of range or not on its closed list
)

// LineError is why a line holds no record.
type LineError struct {
	File   string // the name of its file, without directories; "" when it is not known
	Line   int64  // 1-based, in its file; 0 when the line did not come from a file
	Reason Reason
	Err    error // the detail; nil when the reason says it all
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
	Text []byte // without its end; valid until the next one is read
}

// ReadFile reads the store at path as [Read] does: its closed segments, then the
// data file. Of a single closed segment, path may be that file. The files are
// opened while the iteration goes on; when there is none, that is an error that
// matches fs.ErrNotExist. No lock is taken: while another process appends, what is
// read are the sessions up to some point of its writing.
//
// Of a session that has no end nothing is returned but one *LineError.
func ReadFile(ctx context.Context, path string) iter.Seq2[council.BiasMetricRecord, error] {
	return recordsOf(ReadLines(ctx, path))
}

// ReadLines is ReadFile with the lines as they were written, which tell more than a
// record of an old schema: what it left out, and its position.
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

// recordsOf returns the records of the lines.
func recordsOf(lines iter.Seq2[Line, error]) iter.Seq2[council.BiasMetricRecord, error] {
	return func(yield func(council.BiasMetricRecord, error) bool) {
		lines(func(l Line, err error) bool { return yield(l.BiasMetricRecord, err) })
	}
}

// Find returns nil when there is a store at path: a data file, or closed segments of
// it, which between a rotation and the next session are all there is. It opens none:
// a named pipe would wait for its writer, which would then lose its reader.
func Find(path string) error {
	path = resolve(path)
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

// isLine reports whether reading goes on after the error.
func isLine(err error) bool {
	_, ok := errors.AsType[*LineError](err)
	return ok
}

// File is one file of a store, open for reading.
type File struct {
	Name string // without directories; "" when no file was found
	file *os.File
}

// Files returns the files of the store at path that ReadFile reads, the newest first.
// Each is closed when the iteration goes on.
func Files(path string) iter.Seq2[File, error] { return files(path, true) }

// files returns the files of the store at path in the order of their records, or the
// newest first.
func files(path string, newestFirst bool) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		path := resolve(path)
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
			f, err := File{filepath.Base(path), data}, error(nil)
			if i < len(closed) {
				f, err = closed[i].open()
			}
			if f.file == nil && err == nil || errors.Is(err, fs.ErrNotExist) {
				continue // there is no data file, or the segment has become too old
			}
			more := yield(f, err)
			_ = f.file.Close()
			if !more {
				return
			}
		}
	}
}

// snapshot returns the closed segments of the store at path and the data file that
// followed them at one moment. The file is nil when there was none.
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
		if data != nil { // it may be a closed segment by now
			_ = data.Close()
		}
		closed = after
	}
	return nil, nil, err
}

// open opens the file of the segment, which may be compressed meanwhile.
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

// Records returns the records of the file, as Read does. They can be read once.
func (f File) Records(ctx context.Context) iter.Seq2[council.BiasMetricRecord, error] {
	return recordsOf(f.lines(ctx))
}

// lines is Records with the lines.
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

// content returns the lines of the whole sessions in the file, or in the first so many
// bytes of one that is not compressed, and whether part of a session follows them.
func (f File) content(ctx context.Context, length int64) (r io.ReadCloser, torn bool, err error) {
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return nil, false, err
	case f.compressed() && info.Size() == 0 && info.Mode().IsRegular(): // which would read as the end
		return nil, false, &LineError{File: f.Name, Line: 1, Reason: ReasonDamaged, Err: errors.New("the file is empty")}
	case f.compressed():
		decompressor, err := zstd.NewReader(f.file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, false, err
		}
		return compressed{decompressor}, false, nil
	case !info.Mode().IsRegular(): // a pipe has no end to look at
		return io.NopCloser(f.file), false, nil
	}
	length = min(length, info.Size())
	end, err := afterLastSession(ctx, f.file, length)
	return io.NopCloser(io.NewSectionReader(f.file, 0, end)), end < length, err
}

var errDamaged = errors.New("the compressed data is damaged")

// compressed tells damage from a disk that cannot be read.
type compressed struct{ *zstd.Decoder }

func (c compressed) Close() error {
	c.Decoder.Close()
	return nil
}

func (c compressed) Read(p []byte) (int, error) {
	n, err := c.Decoder.Read(p)
	if _, disk := errors.AsType[*fs.PathError](err); err != nil && !errors.Is(err, io.EOF) && !disk {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return n, err
}

// Read returns the records of r in their order, each with a nil error. A line
// that holds no record is a *LineError, and reading goes on. Any other error,
// ctx's among them, is the last element. Empty lines, a byte order mark at the
// start and carriage returns at the ends of lines are passed over. Memory does
// not depend on the length of r or of its lines.
//
// A record may be kept and its fields may be set, but not what its pointers lead
// to: records share that.
func Read(ctx context.Context, r io.Reader) iter.Seq2[council.BiasMetricRecord, error] {
	return recordsOf(func(yield func(Line, error) bool) { read(ctx, r, "", false, yield) })
}

// read reads the file of that name as Read does. When it is torn, an unterminated
// line follows what r holds.
func read(ctx context.Context, r io.Reader, file string, torn bool, yield func(Line, error) bool) {
	lines := bufio.NewReaderSize(r, maxLine)
	scanner := newScanner()
	for n := int64(1); ; n++ {
		if err := ctx.Err(); err != nil {
			yield(Line{}, err)
			return
		}
		line, tooLong, err := readLine(ctx, lines)
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		var found Line
		var bad error
		switch {
		case errors.Is(err, errDamaged):
			bad = &LineError{Reason: ReasonDamaged, Err: err}
		case err != nil && !errors.Is(err, io.EOF):
			yield(Line{}, fmt.Errorf("reading line %d of the record store: %w", n, err))
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
			found.Text = bytes.TrimRight(line, "\t\r\n")
			found.BiasMetricRecord, bad = scanner.parse(found.Text)
		}
		if lineErr, ok := errors.AsType[*LineError](bad); ok {
			lineErr.File, lineErr.Line = file, n
		}
		if !yield(found, bad) || err != nil {
			return
		}
	}
}

// readLine returns the next line, valid until the next call, or the end of one
// that is too long. The error is io.EOF when the line ends without a newline; it
// may then be empty.
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
