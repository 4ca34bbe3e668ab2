package store

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// scanner parses the lines of one file as ParseRecord does, and several times faster
// those that this program wrote. Their keys have one order and no space between them, so
// the scanner finds each value without parsing the line, and decodes only the values that
// differ from the line before. It leaves every other line to ParseRecord.
type scanner struct {
	wire   wire // the values of the last line
	fields []field
}

// field is a field of a record, in the order in which encoding/json writes them.
type field struct {
	key    []byte            // all bytes between the value before and this one
	decode func([]byte) bool // decodes the value into scanner.wire, false when it cannot
	last   []byte            // the value on the last line and the key of the next field; empty when unknown
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

// required returns a function that decodes a value which must not be null.
func required[T any](to *T, decode func([]byte) (T, bool)) func([]byte) bool {
	return func(value []byte) (ok bool) {
		*to, ok = decode(value)
		return ok
	}
}

// optional returns a function that decodes a value which may be null. Each value gets
// memory of its own, because records keep the pointers.
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

// plainNumber reports whether the value is a JSON number without a sign and an exponent.
// Package strconv accepts numbers that JSON does not.
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

// decode sets s.wire. It reports whether the line has the layout that this program
// writes, and the scanner can decode every value.
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
