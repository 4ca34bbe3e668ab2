package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// scanner parses the lines of one file as ParseRecord does. For lines that this program wrote, it is several times
// faster than ParseRecord. The keys of such a line have a fixed order and no space between them. So the scanner finds
// each value without parsing the line, and decodes only the values that differ from the line before. For a field with
// few different values, the scanner remembers all of them. If a line has another form, the scanner passes it to
// ParseRecord.
type scanner struct {
	wire wire // the values of the last line
	ids  council.SeatPair
	// layouts holds the fields of each layout. The index of a layout says which optional parts its lines have.
	layouts [12][]field
	last    int // the layout of the last line
}

// The index of a layout is a sum of these numbers. A styled line has a similarity, and a seated line has the ids of a
// roster. A modeless line lacks the field that schema 1.5.0 added. An early line also lacks the fields that schema 1.4.0
// added.
const styled, seated, modeless, early = 1, 2, 4, 8

// field is a field of a record, in the order in which encoding/json writes them.
type field struct {
	key    []byte            // all bytes between the value of the previous field and the value of this field
	decode func([]byte) bool // decodes the value into scanner.wire; false if it cannot
	// last holds the value on the last line and the key of the next field. It is empty if these are not known.
	last []byte
}

func newScanner() *scanner {
	s := new(scanner)
	w := &s.wire
	var fields []field
	add := func(key string, decode func([]byte) bool) {
		fields = append(fields, field{key: []byte(key), decode: decode})
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
	common := fields
	reviewerVersion := into(&w.ModelVersions.Reviewer, known[*string]())
	candidateVersion := into(&w.ModelVersions.Candidate, known[*string]())
	reasoning := into(&w.ResponseReasoningTokens, tokens)
	question := into(&w.QuestionKey, decoded[*string])
	mode := into(&w.Mode, known[council.Mode]())
	similarity := into(&w.StyleSimilarity, known[*float64]())
	model := into(&w.EmbeddingModel, known[string]())
	reviewer := into(&s.ids.Reviewer, known[string]())
	candidate := into(&s.ids.Candidate, known[string]())
	for layout := range s.layouts {
		fields = slices.Clone(common)
		if layout < early {
			add(`,"model_versions":{"reviewer":`, reviewerVersion)
			add(`,"candidate":`, candidateVersion)
			add(`},"response_reasoning_tokens":`, reasoning)
			add(`,"question_key":`, question)
		}
		if layout < modeless {
			add(`,"mode":`, mode)
		}
		if layout&styled != 0 {
			add(`,"style_similarity":`, similarity)
			add(`,"embedding_model":`, model)
		}
		if layout&seated != 0 {
			add(`,"roster_ids":{"reviewer":`, reviewer)
			add(`,"candidate":`, candidate)
			add(`}}`, nil)
		} else {
			add(`}`, nil)
		}
		s.layouts[layout] = fields
	}
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

// known returns a function that decodes as decoded does. It is for a field with few different values. Each value is
// decoded once, and records share its memory.
func known[T any]() func([]byte) (T, bool) {
	const most, longest = 1 << 10, 64 // These bound the memory, whatever a file holds.
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

// tokens decodes a number of tokens as length does, or null.
func tokens(value []byte) (*int64, bool) {
	v, ok := length(value)
	if !ok {
		return nil, string(value) == "null"
	}
	return new(int64(*v)), true
}

// parse returns what ParseRecord returns.
func (s *scanner) parse(line []byte) (council.BiasMetricRecord, error) {
	for tried := 1; !s.decode(line); tried++ {
		if tried == len(s.layouts) {
			return ParseRecord(line)
		}
		s.last = (s.last + 1) % len(s.layouts)
		for i := range s.layouts[s.last] { // The wire no longer holds the values of the last line with this layout.
			s.layouts[s.last][i].last = s.layouts[s.last][i].last[:0]
		}
	}
	if s.last&styled == 0 {
		s.wire.StyleSimilarity = nil
		s.wire.EmbeddingModel = ""
	}
	if s.last >= modeless {
		s.wire.Mode = ""
	}
	if s.last >= early {
		s.wire.ModelVersions = council.VersionPair{}
		s.wire.ResponseReasoningTokens = nil
		s.wire.QuestionKey = nil
	}
	record, err := s.wire.record()
	if s.last&seated != 0 && err == nil {
		record.RosterIDs = new(s.ids)
	}
	return record, err
}

// decode sets s.wire. It returns false if the line does not have the layout s.last, or if decode cannot decode a
// value.
func (s *scanner) decode(line []byte) bool {
	fields := s.layouts[s.last]
	rest, ok := bytes.CutPrefix(line, fields[0].key)
	for i := 0; ok && i < len(fields)-1; i++ {
		f := &fields[i]
		next := fields[i+1].key
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
