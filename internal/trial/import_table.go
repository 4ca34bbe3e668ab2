package trial

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
)

// maxRecord is how many bytes a record may have. The record store reads lines of at most 64 KiB.
const maxRecord = 60 << 10

// columnQuestion is the column with the question in a table of records. It holds the question's text or any name for
// the question.
const columnQuestion = "question"

// The columns of a table of graded rows. The name of an arm follows each prefix.
const (
	columnID    = "id"
	columnGroup = "group"
	prefixScore = "score:"
	prefixCost  = "cost_usd:"
)

// readJudgementTable reads a table of records or of graded rows. The header says which of the two it has.
func readJudgementTable(
	ctx context.Context, key QuestionKey, in io.Reader, write func(any) error, count func(int64, error) error,
) (graded bool, err error) {
	buffered := bufio.NewReader(in)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	cells := csv.NewReader(buffered) // It refuses rows with another number of columns than the header.
	header, err := cells.Read()
	if err != nil {
		return false, &HeaderError{fmt.Sprintf("the first line is not the header of a table: %s", err)}
	}
	t := judgementTable{header: slices.Clone(header), ids: map[string]bool{}, key: key}
	if graded, err = t.check(); err != nil {
		return false, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return graded, err
		}
		row, err := cells.Read()
		if errors.Is(err, io.EOF) {
			return graded, nil
		}
		var line int64
		if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
			line = int64(wrong.StartLine)
			err = reject(BadRow, "%s", wrong.Err.Error())
		} else if err != nil {
			return graded, err
		} else {
			at, _ := cells.FieldPos(0)
			line = int64(at)
			err = t.row(row, graded, write)
		}
		if err := count(line, err); err != nil {
			return graded, err
		}
	}
}

// judgementTable is a table whose header was read.
type judgementTable struct {
	header []string
	ids    map[string]bool // the ids of the graded rows so far
	key    QuestionKey
}

func badHeader(format string, args ...any) error { return &HeaderError{fmt.Sprintf(format, args...)} }

// checkColumns returns an error if the header has a column that the table must not have. The argument columns says how
// often each column stands in the header. The result arms is the number of columns with scores.
func (t judgementTable) checkColumns(graded bool, columns map[string]int) (arms int, err error) {
	records := map[string]bool{}
	for _, column := range council.RecordColumns() {
		records[column.Name] = true
	}
	records[columnQuestion] = true
	for _, column := range t.header {
		score, isScore := strings.CutPrefix(column, prefixScore)
		cost, isCost := strings.CutPrefix(column, prefixCost)
		switch {
		case columns[column] > 1:
			return 0, badHeader("the column %.64q is there twice: remove one", column)
		case !graded && records[column], graded && (column == columnID || column == columnGroup):
		case graded && isScore && score != "":
			arms++
		case graded && isCost && columns[prefixScore+cost] > 0:
		case graded:
			return 0, badHeader("the column %.64q is not known in a table with id: "+
				"use group, score:ARM, and cost_usd:ARM for an arm with scores", column)
		default:
			return 0, badHeader("the column %.64q is not known: a table of graded rows has a column id, a table of "+
				"records has the columns of councild store export --format csv, with commas between them", column)
		}
	}
	return arms, nil
}

// check reports whether the table has graded rows. The error says what is wrong with the header.
func (t judgementTable) check() (graded bool, err error) {
	columns := map[string]int{}
	for _, column := range t.header {
		columns[column]++
	}
	graded = columns[columnID] > 0
	arms, err := t.checkColumns(graded, columns)
	if err != nil {
		return false, err
	}
	if graded {
		if arms == 0 {
			return false, badHeader("no column has scores: add one with the name score:ARM, where ARM is the name of an arm")
		}
		return true, nil
	}
	for _, column := range []string{"session_id", "timestamp", "reviewer_id", "model_id", "response_length_chars"} {
		if columns[column] == 0 {
			return false, badHeader("a table of records needs the column %s", column)
		}
	}
	return false, nil
}

func (t judgementTable) row(cells []string, graded bool, write func(any) error) error {
	values := map[string]string{}
	for i, cell := range cells {
		if !utf8.ValidString(cell) {
			return reject(NotUTF8, "%s", t.header[i])
		}
		// Remove the quote that the export writes before a cell that a spreadsheet program would take for a formula.
		if rest, quoted := strings.CutPrefix(cell, "'"); quoted && rest != "" &&
			strings.ContainsRune("=+-@\t\r", rune(rest[0])) {
			cell = rest
		}
		if cell != "" {
			values[t.header[i]] = cell
		}
	}
	if graded {
		return t.graded(values, write)
	}
	return t.record(values, write)
}

// graded is called for a row of a table of graded rows. It writes that row. An empty cell is null.
func (t judgementTable) graded(values map[string]string, write func(any) error) error {
	r := GradedRow{
		ID:      values[columnID],
		Cluster: values[columnGroup],
		Scores:  map[string]*float64{},
		CostUSD: map[string]*float64{},
	}
	switch {
	case r.ID == "":
		return reject(MissingField, "%s", columnID)
	case utf8.RuneCountInString(r.ID) > maxID:
		return reject(BadField, "the id has over %d characters", maxID)
	case t.ids[r.ID]:
		return reject(Duplicate, "the id is that of an earlier line")
	}
	if r.Cluster == "" {
		r.Cluster = r.ID
	}
	for _, column := range t.header {
		for prefix, to := range map[string]map[string]*float64{prefixScore: r.Scores, prefixCost: r.CostUSD} {
			arm, ok := strings.CutPrefix(column, prefix)
			if !ok {
				continue
			}
			to[arm] = nil
			cell, given := values[column]
			if !given {
				continue
			}
			value, err := strconv.ParseFloat(cell, 64)
			if err != nil || !(value >= 0) || math.IsInf(value, 0) || prefix == prefixScore && value > 1 {
				return reject(BadField, "%.64s is %.40q", column, cell)
			}
			to[arm] = &value
		}
	}
	t.ids[r.ID] = true
	return write(r)
}

// record writes a record, if the record store can read it. The record holds the key of the question, but not its text.
func (t judgementTable) record(values map[string]string, write func(any) error) error {
	object := map[string]any{"schema_version": council.RecordSchema}
	if question := values[columnQuestion]; question != "" && values["question_key"] == "" {
		if key := t.key(question); key != nil {
			values["question_key"] = *key
		}
	}
	delete(values, columnQuestion)
	for _, c := range council.RecordColumns() {
		cell, ok := values[c.Name]
		if !ok {
			continue
		}
		var value any = cell
		switch {
		case c.Text:
		case cell == "true", cell == "false":
			value = json.RawMessage(cell)
		default:
			value = json.Number(cell)
		}
		if c.Object == "" {
			object[c.Field] = value
			continue
		}
		if object[c.Object] == nil {
			object[c.Object] = map[string]any{}
		}
		object[c.Object].(map[string]any)[c.Field] = value
	}
	line, err := json.Marshal(object)
	if err != nil {
		return reject(BadField, "a cell is not the number, true or false that its column needs")
	}
	if len(line) > maxRecord {
		return reject(TooLong, "the record has over %d bytes", maxRecord)
	}
	_, err = store.ParseRecord(line)
	if wrong, ok := errors.AsType[*store.LineError](err); ok {
		if wrong.Err == nil {
			return reject(Code(wrong.Reason), "")
		}
		return reject(Code(wrong.Reason), "%s", wrong.Err.Error())
	}
	return write(json.RawMessage(line)) // It has no fields other than the columns of the table.
}
