package store

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// scanner parses the lines of one file as ParseRecord does, and several times faster
// those that this program wrote. Their keys have one order and no space between them, so
// the scanner finds each value without parsing the line, and decodes only the values that
// differ from the line before. Of fields with few different values it remembers them all.
// It leaves every other line to ParseRecord.
type scanner struct {
	wire   wire // the values of the last line
	ids    council.SeatPair
	fields []field // of the last line
	others []field // of lines that have the ids of a roster, where the last one had none, or the other way round
	seated bool    // the last line had them
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
	add(`{"schema_version":`, into(&w.SchemaVersion, version))
	add(`,"session_id":`, into(&w.SessionID, decoded[string]))
	add(`,"timestamp":`, into(&w.Timestamp, decoded[string]))
	add(`,"consent_level":`, into(&w.ConsentLevel, decoded[int]))
	add(`,"query_metadata":{"category":`, into(&w.QueryMetadata.Category, known[*string]()))
	add(`,"token_count_bucket":`, into(&w.QueryMetadata.TokenCountBucket, known[*string]()))
	add(`,"language":`, into(&w.QueryMetadata.Language, known[*string]()))
	add(`},"reviewer_id":`, into(&w.ReviewerID, known[string]()))
	add(`,"model_id":`, into(&w.ModelID, known[string]()))
	add(`,"position":`, into(&w.Position, known[*int]()))
	add(`,"response_length_chars":`, into(&w.Length, length))
	add(`,"score_value":`, into(&w.ScoreValue, known[*float64]()))
	add(`,"score_scale":`, into(&w.ScoreScale, known[string]()))
	add(`,"council_config_version":`, into(&w.CouncilConfig, known[string]()))
	add(`,"query_hash":`, into(&w.QueryHash, decoded[*string]))
	add(`,"own":`, into(&w.Own, known[*bool]()))
	add(`,"n_shown":`, into(&w.NShown, known[int]()))
	add(`,"order_design":`, into(&w.OrderDesign, known[council.Order]()))
	add(`,"rank_value":`, into(&w.RankValue, known[*float64]()))
	add(`,"ballot_status":`, into(&w.Status, known[council.BallotStatus]()))
	add(`,"provider":{"reviewer":`, into(&w.Provider.Reviewer, known[string]()))
	add(`,"candidate":`, into(&w.Provider.Candidate, known[string]()))
	add(`},"block_id":`, into(&w.BlockID, decoded[*string]))
	s.others = make([]field, len(s.fields))
	for i, f := range s.fields {
		s.others[i] = field{key: f.key, decode: f.decode}
	}
	add(`}`, nil)
	plain := s.fields
	s.fields = s.others
	add(`,"roster_ids":{"reviewer":`, into(&s.ids.Reviewer, known[string]()))
	add(`,"candidate":`, into(&s.ids.Candidate, known[string]()))
	add(`}}`, nil)
	s.fields, s.others = plain, s.fields
	return s
}

// into returns a function that decodes a value into a field.
func into[T any](field *T, decode func([]byte) (T, bool)) func([]byte) bool {
	return func(value []byte) (ok bool) {
		*field, ok = decode(value)
		return ok
	}
}

// decoded decodes a value as ParseRecord does.
func decoded[T any](value []byte) (v T, ok bool) {
	err := json.Unmarshal(value, &v)
	return v, err == nil && utf8.Valid(value)
}

// known returns a function that decodes as decoded does. It is for a field with few
// different values: each is decoded once, and records share its memory.
func known[T any]() func([]byte) (T, bool) {
	const most, longest = 1 << 10, 64 // these bound the memory, whatever a file holds
	values := map[string]T{}
	return func(value []byte) (v T, ok bool) {
		if v, ok = values[string(value)]; ok {
			return v, true
		}
		v, ok = decoded[T](value)
		if ok && len(values) < most && len(value) <= longest {
			values[string(value)] = v
		}
		return v, ok
	}
}

// version decodes a schema version that is a string.
func version(value []byte) (any, bool) { return decoded[string](value) }

// length decodes a length, which differs on nearly every line, faster than decoded does.
// It decodes only what strconv writes, because strconv also reads numbers that are not JSON.
func length(value []byte) (*int, bool) {
	v, err := strconv.Atoi(string(value))
	return &v, err == nil && strconv.Itoa(v) == string(value)
}

// parse returns what ParseRecord returns.
func (s *scanner) parse(line []byte) (council.BiasMetricRecord, error) {
	if !s.decode(line) {
		s.fields, s.others, s.seated = s.others, s.fields, !s.seated
		for i := range s.fields { // what is remembered of the last such line is no longer in the wire
			s.fields[i].last = s.fields[i].last[:0]
		}
		if !s.decode(line) {
			return ParseRecord(line)
		}
	}
	record, err := s.wire.record()
	if s.seated && err == nil {
		record.RosterIDs = new(s.ids)
	}
	return record, err
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
