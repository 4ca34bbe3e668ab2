package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/councild/councild/internal/council"
)

// Reason is the closed list of reasons why a line is skipped.
type Reason string

// The reasons. A line with several faults has the reason of one.
const (
	ReasonTooLong       Reason = "too_long"       // over 64 KiB
	ReasonUnterminated  Reason = "unterminated"   // the last line, without a newline: being written, or torn by a crash
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
	Line   int64 // 1-based; 0 when the line did not come from a file
	Reason Reason
	Err    error // the detail; nil when the reason says it all
}

// Error returns the line, the reason and the detail.
func (e *LineError) Error() string {
	text := string(e.Reason)
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the detail.
func (e *LineError) Unwrap() error { return e.Err }

// ReadFile reads the store at path as [Read] does. The file is opened when the
// iteration begins; one that does not exist is an error that matches
// fs.ErrNotExist. No lock is taken: while another process appends, what is read
// is everything up to some point of its writing.
func ReadFile(ctx context.Context, path string) iter.Seq2[council.BiasMetricRecord, error] {
	return func(yield func(council.BiasMetricRecord, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(council.BiasMetricRecord{}, fmt.Errorf("opening the record store: %w", err))
			return
		}
		defer f.Close()
		Read(ctx, f)(yield)
	}
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
	return func(yield func(council.BiasMetricRecord, error) bool) {
		lines := bufio.NewReaderSize(r, maxLine)
		scanner := newScanner()
		for n := int64(1); ; n++ {
			if err := ctx.Err(); err != nil {
				yield(council.BiasMetricRecord{}, err)
				return
			}
			line, tooLong, err := readLine(lines)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(council.BiasMetricRecord{}, fmt.Errorf("reading line %d of the record store: %w", n, err))
				return
			}
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			var record council.BiasMetricRecord
			var bad error
			switch {
			case tooLong:
				bad = &LineError{Reason: ReasonTooLong}
			case len(bytes.TrimSpace(line)) == 0:
				if err != nil {
					return
				}
				continue
			case err != nil:
				bad = &LineError{Reason: ReasonUnterminated}
			default:
				record, bad = scanner.parse(line)
			}
			if lineErr, ok := errors.AsType[*LineError](bad); ok {
				lineErr.Line = n
			}
			if !yield(record, bad) || err != nil {
				return
			}
		}
	}
}

// readLine returns the next line, valid until the next call, or the end of one
// that is too long. The error is io.EOF when the line ends without a newline; it
// may then be empty.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	line, err = r.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		line, err = r.ReadSlice('\n')
	}
	return line, tooLong, err
}
