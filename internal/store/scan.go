package store

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// scanner parses the lines of one reading as ParseRecord does, those that this program
// wrote several times faster: their keys stand in one order without space between them,
// so that it finds the values without parsing the line, and decodes only those that are
// not as on the line before. Any other line it leaves to ParseRecord.
type scanner struct {
	wire   wire // the values of the last line
	fields []field
}

// field is a field of a record, in the order in which encoding/json writes them.
type field struct {
	key    []byte            // with all that stands before the value and behind the last one
	decode func([]byte) bool // decodes the value into scanner.wire
	last   []byte            // the value on the last line, with the next field's key; empty when there is none
}

func newScanner() *scanner {
	s := new(scanner)
	w := &s.wire
	add := func(key string, decode func([]byte) bool) {
		s.fields = append(s.fields, field{key: []byte(key), decode: decode})
	}
	add(`{"schema_version":`, required(&w.SchemaVersion, func(value []byte) (any, bool) { return quoted[string](value) }))
	add(`,"session_id":`, required(&w.SessionID, quoted))
	add(`,"timestamp":`, required(&w.Timestamp, quoted))
	add(`,"consent_level":`, required(&w.ConsentLevel, integer))
	add(`,"query_metadata":{"category":`, optional(&w.QueryMetadata.Category, quoted))
	add(`,"token_count_bucket":`, optional(&w.QueryMetadata.TokenCountBucket, quoted))
	add(`,"language":`, optional(&w.QueryMetadata.Language, quoted))
	add(`},"reviewer_id":`, required(&w.ReviewerID, quoted))
	add(`,"model_id":`, required(&w.ModelID, quoted))
	add(`,"position":`, optional(&w.Position, integer))
	add(`,"response_length_chars":`, optional(&w.Length, integer))
	add(`,"score_value":`, optional(&w.ScoreValue, number))
	add(`,"score_scale":`, required(&w.ScoreScale, quoted))
	add(`,"council_config_version":`, required(&w.CouncilConfig, quoted))
	add(`,"query_hash":`, optional(&w.QueryHash, quoted))
	add(`,"own":`, optional(&w.Own, boolean))
	add(`,"n_shown":`, required(&w.NShown, integer))
	add(`,"order_design":`, required(&w.OrderDesign, quoted[council.Order]))
	add(`,"rank_value":`, optional(&w.RankValue, number))
	add(`,"ballot_status":`, required(&w.Status, quoted[council.BallotStatus]))
	add(`,"provider":{"reviewer":`, required(&w.Provider.Reviewer, quoted))
	add(`,"candidate":`, required(&w.Provider.Candidate, quoted))
	add(`},"block_id":`, optional(&w.BlockID, quoted))
	add(`}`, nil)
	return s
}

// required returns a function that decodes a value which is never null.
func required[T any](to *T, decode func([]byte) (T, bool)) func([]byte) bool {
	return func(value []byte) (ok bool) {
		*to, ok = decode(value)
		return ok
	}
}

// optional returns a function that decodes a value which may be null. It changes nothing
// that the value before led to, which a record may hold.
func optional[T any](to **T, decode func([]byte) (T, bool)) func([]byte) bool {
	return func(value []byte) bool {
		if string(value) == "null" {
			*to = nil
			return true
		}
		v, ok := decode(value)
		*to = &v
		return ok
	}
}

// quoted decodes a string without escapes.
func quoted[T ~string](value []byte) (T, bool) {
	last := len(value) - 1
	if last < 1 || value[0] != '"' || value[last] != '"' || !utf8.Valid(value) {
		return "", false
	}
	for _, c := range value[1:last] {
		if c < ' ' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return T(value[1:last]), true
}

func integer(value []byte) (int, bool) {
	v, err := strconv.Atoi(string(value))
	return v, err == nil && plainNumber(value)
}

func number(value []byte) (float64, bool) {
	v, err := strconv.ParseFloat(string(value), 64)
	return v, err == nil && plainNumber(value)
}

// plainNumber reports whether the value is a number as JSON has it, without a sign and
// an exponent. Package strconv takes more than JSON does.
func plainNumber(value []byte) bool {
	whole, fraction, point := bytes.Cut(value, []byte("."))
	return digits(whole) && (len(whole) == 1 || whole[0] != '0') && (!point || digits(fraction))
}

func digits(value []byte) bool {
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(value) > 0
}

func boolean(value []byte) (v, ok bool) {
	v = string(value) == "true"
	return v, v || string(value) == "false"
}

// parse returns what ParseRecord returns.
func (s *scanner) parse(line []byte) (council.BiasMetricRecord, error) {
	if !s.decode(line) {
		return ParseRecord(line)
	}
	return s.wire.record()
}

// decode sets s.wire, and reports whether the line is laid out as this program writes
// it and every value is plain and of its type.
func (s *scanner) decode(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, s.fields[0].key)
	for i := 0; ok && i < len(s.fields)-1; i++ {
		f, next := &s.fields[i], s.fields[i+1].key
		if len(f.last) == 0 || !bytes.HasPrefix(rest, f.last) {
			f.last = f.last[:0]
			end := bytes.Index(rest, next)
			if end < 0 || !f.decode(rest[:end]) {
				return false
			}
			f.last = append(f.last, rest[:end+len(next)]...)
		}
		rest = rest[len(f.last):]
	}
	return ok && len(rest) == 0
}
