package trial

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// ImportFormat is a file format in which other programs write judgements.
type ImportFormat string

// The formats that Import reads.
const (
	// FormatJudgeBench is the output of JudgeBench's judges (Tan et al. 2024). Each line is the JSON of a pair of
	// answers, one right and one wrong, with a judge's decisions in both orders of the two answers.
	FormatJudgeBench ImportFormat = "judgebench"
	// FormatMTBenchPairs is the output of MT-bench's pairwise judges (Zheng et al. 2023). Each line is the JSON of a
	// pair of models and a question, with a judge's decisions in both orders of the two answers.
	FormatMTBenchPairs ImportFormat = "mtbench-pairs"
	// FormatCSV is a table of records or of graded rows. Records have the columns of [council.RecordColumns]. Graded rows
	// have the columns id, group, score:ARM and cost_usd:ARM.
	FormatCSV ImportFormat = "csv"
)

// GradedRow has the scores and costs of the arms for one question.
type GradedRow struct {
	ID      string `json:"id"`      // 1 to 200 characters, unique
	Cluster string `json:"cluster"` // the group of the question, or its id
	// Scores are from 0 to 1, by arm. Null means missing.
	Scores map[string]*float64 `json:"scores"`
	// CostUSD is the cost of each arm alone, in US dollars, 0 or more. Null means unknown.
	CostUSD map[string]*float64 `json:"cost_usd"`
}

// The codes of rejected lines with judgements. For a table of records, the codes of store.Reason are added.
const (
	BadRow       Code = "bad_row"       // The quotes of a table's row are wrong, or it has too few or too many cells.
	MissingField Code = "missing_field" // A field that the line needs is missing, null or empty.
	Duplicate    Code = "duplicate"     // An earlier line is about the same pair and judge, or has the same id.
	OneOrder     Code = "one_order"     // The judge saw the answers in one order only.
	NoAnswers    Code = "no_answers"    // It is not certain which parts of the prompt are the answers.
	NotSwapped   Code = "not_swapped"   // The second prompt does not show the answers of the first in reversed order.
)

// Rejection is the error of a line that cannot be imported.
type Rejection struct {
	Line   int64 // from 1
	Code   Code
	Detail string // what is wrong, or "" if the code says it all
}

func (r *Rejection) Error() string {
	if r.Detail == "" {
		return fmt.Sprintf("line %d: %s", r.Line, r.Code)
	}
	return fmt.Sprintf("line %d: %s: %s", r.Line, r.Code, r.Detail)
}

// reject returns a rejection of the line that is being read. Import sets its Line.
func reject(code Code, format string, args ...any) error {
	return &Rejection{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// HeaderError says that a table cannot be imported because its header is wrong.
type HeaderError struct{ problem string }

func (e *HeaderError) Error() string { return e.problem }

// ImportSummary counts lines. Each line that is not empty is accepted or rejected.
type ImportSummary struct {
	Graded             bool // true if Import wrote graded rows, false if it wrote records
	Accepted, Rejected int  // how many lines of the input, without the header of a table
	Written            int  // how many lines of the output
}

// judgementReader reads one format.
type judgementReader interface {
	// line writes the rows of a line, or keeps them for the end. It rejects a line with a *Rejection.
	line(text []byte, write func(any) error) error
	// end writes the rows that were kept.
	end(write func(any) error) error
}

// QuestionKey returns the question_key of a question. It takes the question's text, or its name in the input. It
// returns nil if there is no secret.
type QuestionKey func(question string) *string

// Import reads judgements and writes them as JSON lines, which are records or graded rows. A record has a question key
// if the input names its question. Import calls the function rejected for every line that it rejects. An error is a
// *[HeaderError], or an error of ctx, the input or the output.
func Import(
	ctx context.Context, from ImportFormat, key QuestionKey, in io.Reader, out io.Writer, rejected func(Rejection),
) (s ImportSummary, err error) {
	buffered := bufio.NewWriter(out)
	write := func(row any) error {
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		s.Written++
		_, err = buffered.Write(append(line, '\n'))
		return err
	}
	count := func(number int64, err error) error {
		r, isRejection := errors.AsType[*Rejection](err)
		switch {
		case isRejection:
			s.Rejected++
			r.Line = number
			rejected(*r)
			return nil
		case err == nil:
			s.Accepted++
		}
		return err
	}
	switch from {
	case FormatJudgeBench:
		s.Graded = true
		judged := &judgeBench{rows: map[string]*GradedRow{}, judges: map[string]bool{}}
		err = readJudgements(ctx, in, judged, write, count)
	case FormatMTBenchPairs:
		err = readJudgements(ctx, in, &mtBench{seen: map[string]bool{}, key: key}, write, count)
	case FormatCSV:
		s.Graded, err = readJudgementTable(ctx, key, in, write, count)
	default:
		return s, fmt.Errorf("%q is not a format", from)
	}
	return s, errors.Join(err, buffered.Flush())
}

// maxImportLine is how many bytes a line may have. A line of JudgeBench has two answers and two judgements.
const maxImportLine = 16 << 20

// readJudgements reads JSON lines. It ignores a byte order mark and empty lines. For every other line, it calls the
// function count with the number and the error of the line.
func readJudgements(
	ctx context.Context, in io.Reader, r judgementReader, write func(any) error, count func(int64, error) error,
) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	for number, last := int64(1), false; !last; number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, tooLong, err := nextLine(lines)
		last = errors.Is(err, io.EOF)
		if err != nil && !last {
			return fmt.Errorf("reading line %d: %w", number, err)
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		line = bytes.TrimSpace(line)
		switch {
		case tooLong:
			err = reject(TooLong, "it has over %d bytes", maxImportLine)
		case len(line) == 0:
			continue
		case !utf8.Valid(line):
			err = reject(NotUTF8, "")
		default:
			err = r.line(line, write)
		}
		if err = count(number, err); err != nil {
			return err
		}
	}
	return r.end(write)
}

// nextLine returns the next line. If the line is too long, it returns nil and true. The error is io.EOF after the last
// line.
func nextLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		var part []byte
		part, err = r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxImportLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// decodeLine reads the JSON object of a line. The error is a *Rejection.
func decodeLine[T any](line []byte) (T, error) {
	var value *T
	var none T
	err := json.Unmarshal(line, &value)
	mistyped, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case isType && mistyped.Field != "":
		return none, reject(BadField, "%.64s", mistyped.Field)
	case isType, err == nil && value == nil:
		return none, reject(NotObject, "")
	case err != nil:
		return none, reject(NotJSON, "%s", err.Error())
	}
	return *value, nil
}
