package store

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// scanner parses the lines of one reading as ParseRecord does, most of them much
// faster. A writer's lines differ in their values only, so a scanner learns from
// one line where the values stand, and of the lines after it decodes no more than
// what changed. Whatever is not plain it leaves to ParseRecord, which alone says
// what is wrong with a line; the two must agree on every line there is.
type scanner struct {
	fields map[string]*field // of a record
	known  [256]string       // see interned

	// The last line: its layout, and what its values say. There are no gaps when
	// the line was not plain.
	gaps      []gap
	ownGiven  bool
	record    council.BiasMetricRecord // as written: nothing in it is derived
	low, high float64                  // the bounds of its scale
	scaled    bool                     // its scale has bounds

	// What learn works with.
	layout int // how many were learnt or tried
	places []place
}

// decoder decodes the value at the start of text and returns its length in bytes,
// 0 for one that is not plain.
type decoder func(text []byte) int

// field is a field of a record, or of an object in it.
type field struct {
	decode decoder
	varies bool              // from line to line of a session
	fields map[string]*field // of an object
	layout int               // the last one that has the field
}

// place is where a value was found.
type place struct {
	*field
	text []byte // the line from the value on
	rest []byte // the line from its end on
}

// gap is all that stands before a value that varies, or before the end of the
// line: what belongs to the layout, and steady values.
type gap struct {
	last   []byte // the gap on the last line
	steady []value
	end    []byte  // what follows the last steady value
	next   decoder // of the value behind the gap; nil at the end of the line
}

// value is a steady value, and what stands between it and the one before.
type value struct {
	before []byte
	decode decoder
}

func newScanner() *scanner {
	s := new(scanner)
	r := &s.record
	s.fields = map[string]*field{
		"schema_version": {decode: s.schema},
		"session_id":     {decode: required(&r.SessionID, quoted)},
		"timestamp":      {decode: s.timestamp},
		"consent_level":  {decode: required(&r.ConsentLevel, integer)},
		"query_metadata": {decode: null, fields: map[string]*field{
			"category":           {decode: optional(&r.QueryMetadata.Category, s.interned)},
			"token_count_bucket": {decode: optional(&r.QueryMetadata.TokenCountBucket, s.interned)},
			"language":           {decode: optional(&r.QueryMetadata.Language, s.interned)},
		}},
		"reviewer_id":            {decode: required(&r.ReviewerID, s.interned), varies: true},
		"model_id":               {decode: required(&r.ModelID, s.interned), varies: true},
		"position":               {decode: optional(&r.Position, integer), varies: true},
		"response_length_chars":  {decode: required(&r.ResponseLengthChars, integer), varies: true},
		"score_value":            {decode: optional(&r.ScoreValue, number), varies: true},
		"score_scale":            {decode: s.scale},
		"council_config_version": {decode: required(&r.CouncilConfig, s.interned)},
		"query_hash":             {decode: optional(&r.QueryHash, quoted)},
		"own":                    {decode: s.own, varies: true},
		"n_shown":                {decode: required(&r.NShown, integer)},
		"order_design":           {decode: s.order},
		"rank_value":             {decode: optional(&r.RankValue, number), varies: true},
		"ballot_status":          {decode: s.status},
		"provider": {decode: null, fields: map[string]*field{
			"reviewer":  {decode: required(&r.Provider.Reviewer, s.interned), varies: true},
			"candidate": {decode: required(&r.Provider.Candidate, s.interned), varies: true},
		}},
		"block_id": {decode: optional(&r.BlockID, quoted)},
	}
	return s
}

// parse returns what ParseRecord returns. A line that match or learn does not take
// leaves a mixture in s.record, which the next learn clears.
func (s *scanner) parse(line []byte) (record council.BiasMetricRecord, err error) {
	if !s.match(line) && !s.learn(line) {
		return ParseRecord(line)
	}
	record = s.record
	if council.EarlySchema(record.SchemaVersion) {
		record.Position = nil
	}
	derive(&record, s.ownGiven)
	return record, nil
}

// match decodes a line that is laid out like the last one.
func (s *scanner) match(line []byte) bool {
	for i := range s.gaps {
		g := &s.gaps[i]
		n := len(g.last)
		if !bytes.HasPrefix(line, g.last) {
			if n = g.decode(line); n == 0 {
				return false
			}
		}
		line = line[n:]
		if g.next != nil {
			if n = g.next(line); n == 0 {
				return false
			}
			line = line[n:]
		}
	}
	return len(s.gaps) > 0 && len(line) == 0 && s.valid()
}

// decode decodes the gap at the start of text, in which a value has changed, and
// returns its length in bytes, 0 when the line has another layout.
func (g *gap) decode(text []byte) int {
	rest := text
	for _, v := range g.steady {
		if !bytes.HasPrefix(rest, v.before) {
			return 0
		}
		rest = rest[len(v.before):]
		n := v.decode(rest)
		if n == 0 {
			return 0
		}
		rest = rest[n:]
	}
	if !bytes.HasPrefix(rest, g.end) {
		return 0
	}
	n := len(text) - len(rest) + len(g.end)
	g.last = append(g.last[:0], text[:n]...)
	return n
}

// learn decodes a line of any layout and keeps the layout.
func (s *scanner) learn(line []byte) bool {
	s.layout++
	s.gaps, s.places = nil, s.places[:0]
	s.record, s.scaled = council.BiasMetricRecord{}, false
	line = bytes.Clone(line)
	rest, ok := s.object(line, s.fields)
	if !ok || len(rest) > 0 || !s.has("schema_version") || !s.has("timestamp") || !s.has("response_length_chars") || !s.valid() {
		return false
	}
	s.ownGiven = s.has("own")

	var g gap
	begin, rest := line, line // from the gap on, and from the end of the last value on
	end := place{field: &field{varies: true}}
	for _, p := range append(s.places, end) {
		before := rest[:len(rest)-len(p.text)]
		rest = p.rest
		if !p.varies {
			g.steady = append(g.steady, value{before, p.decode})
			continue
		}
		g.last, g.end, g.next = bytes.Clone(begin[:len(begin)-len(p.text)]), before, p.decode
		s.gaps = append(s.gaps, g)
		g, begin = gap{}, rest
	}
	return true
}

// object finds and decodes the values of the object at the start of text, and
// returns what follows it.
func (s *scanner) object(text []byte, fields map[string]*field) (rest []byte, ok bool) {
	rest, ok = punctuation(text, '{')
	for ok {
		name, n := quoted(rest)
		f := fields[name]
		if rest, ok = punctuation(rest[n:], ':'); !ok || f == nil {
			break
		}
		if bytes.HasPrefix(rest, []byte("{")) {
			rest, ok = s.object(rest, f.fields)
		} else {
			rest, ok = s.value(rest, f)
		}
		if !ok {
			break
		}
		if rest, ok = punctuation(rest, ','); !ok {
			return punctuation(rest, '}')
		}
	}
	return nil, false
}

// value decodes the value of f at the start of text, and returns what follows it.
func (s *scanner) value(text []byte, f *field) (rest []byte, ok bool) {
	n := f.decode(text)
	if n == 0 || f.layout == s.layout { // of two equal keys the last one would count
		return nil, false
	}
	f.layout = s.layout
	s.places = append(s.places, place{f, text, text[n:]})
	return text[n:], true
}

// has reports whether the line that is being learnt has the field.
func (s *scanner) has(name string) bool { return s.fields[name].layout == s.layout }

// punctuation returns text after c and the space around it, or text when that is
// not what it starts with.
func punctuation(text []byte, c byte) (rest []byte, ok bool) {
	const space = " \t\r\n"
	rest = bytes.TrimLeft(text, space)
	if len(rest) == 0 || rest[0] != c {
		return text, false
	}
	return bytes.TrimLeft(rest[1:], space), true
}

// valid reports what the decoders do not: whether the values are those of a record.
func (s *scanner) valid() bool {
	r := &s.record
	return r.SessionID != "" && r.ReviewerID != "" && r.ModelID != "" && checkFields(r) == nil &&
		(r.ScoreValue == nil || s.scaled && s.low <= *r.ScoreValue && *r.ScoreValue <= s.high)
}

func (s *scanner) schema(text []byte) int {
	version, n := s.interned(text)
	known := schema(version)
	if n == 0 {
		var integer float64
		integer, n = number(text)
		known = schema(integer)
	}
	if known == "" {
		return 0
	}
	s.record.SchemaVersion = known
	return n
}

func (s *scanner) timestamp(text []byte) int {
	start, n := quoted(text)
	t, err := parseTime(start)
	if err != nil {
		return 0
	}
	s.record.Timestamp = t
	return n
}

func (s *scanner) scale(text []byte) (n int) {
	s.record.ScoreScale, n = s.interned(text)
	s.low, s.high, s.scaled = council.ParseScale(s.record.ScoreScale)
	return n
}

func (s *scanner) order(text []byte) int {
	order, n := s.interned(text)
	s.record.OrderDesign = council.Order(order)
	return n
}

func (s *scanner) status(text []byte) int {
	status, n := s.interned(text)
	s.record.Status = council.BallotStatus(status)
	return n
}

func (s *scanner) own(text []byte) int {
	n := literal(text, "true")
	s.record.Own = n > 0
	return max(n, literal(text, "false"))
}

func null(text []byte) int { return literal(text, "null") }

func literal(text []byte, word string) int {
	if !bytes.HasPrefix(text, []byte(word)) {
		return 0
	}
	return len(word)
}

func required[T any](to *T, decode func([]byte) (T, int)) decoder {
	return func(text []byte) (n int) {
		*to, n = decode(text)
		return n
	}
}

// optional is like required, for a value that may be null. Values are allocated 64
// at a time, so a record that is kept keeps that many.
func optional[T any](to **T, decode func([]byte) (T, int)) decoder {
	var chunk []T
	return func(text []byte) int {
		if n := null(text); n > 0 {
			*to = nil
			return n
		}
		if len(chunk) == cap(chunk) {
			chunk = make([]T, 0, 64)
		}
		v, n := decode(text)
		chunk = append(chunk, v)
		*to = &chunk[len(chunk)-1]
		return n
	}
}

// interned is like quoted, for a string that comes again and again: it returns the
// string that it made before, unless one of the same hash came between.
func (s *scanner) interned(text []byte) (string, int) {
	end := 1
	if len(text) > 0 && text[0] == '"' {
		end += bytes.IndexByte(text[1:], '"')
	}
	if end < 2 {
		return quoted(text)
	}
	v := text[1:end]
	// Names of models differ in their lengths and their ends.
	known := &s.known[(1031*len(v)+131*int(v[len(v)-1])+31*int(v[len(v)/2])+int(v[0]))%len(s.known)]
	if string(v) == *known { // which is free of escapes, so that the quote ends it
		return *known, end + 1
	}
	decoded, n := quoted(text)
	if n == len(decoded)+len(`""`) { // any escape is longer than what it stands for
		*known = decoded
	}
	return decoded, n
}

// quoted decodes a string of valid UTF-8.
func quoted(text []byte) (string, int) {
	if len(text) == 0 || text[0] != '"' {
		return "", 0
	}
	escaped := false
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if !utf8.Valid(text[:i]) {
				return "", 0
			}
			if !escaped {
				return string(text[1:i]), i + 1
			}
			var v string
			if json.Unmarshal(text[:i+1], &v) != nil {
				return "", 0
			}
			return v, i + 1
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return "", 0
		}
	}
	return "", 0
}

func integer(text []byte) (v, n int) {
	digits, places, n := decimal(text)
	if v = int(digits); places > 0 || int64(v) != digits {
		return 0, 0
	}
	return v, n
}

// number decodes a number. A short one is a quotient of two integers that float64
// holds exactly, so that one division gives the nearest float64 (Clinger, How to
// Read Floating Point Numbers Accurately, 1990).
func number(text []byte) (v float64, n int) {
	digits, places, n := decimal(text)
	if n > 0 {
		power := 1.0
		for range places {
			power *= 10
		}
		return float64(digits) / power, n
	}
	for n < len(text) && strings.IndexByte("+-.0123456789Ee", text[n]) >= 0 {
		n++
	}
	v, err := strconv.ParseFloat(string(text[:n]), 64)
	if err != nil || !json.Valid(text[:n]) { // ParseFloat takes more than JSON does
		return 0, 0
	}
	return v, n
}

// decimal decodes a number of at most 15 digits, without sign and exponent, as
// digits / 10^places. n is its length in bytes, 0 for any other number.
func decimal(text []byte) (digits int64, places, n int) {
	for n < len(text) && n < 16 && '0' <= text[n] && text[n] <= '9' {
		digits = 10*digits + int64(text[n]-'0')
		n++
	}
	whole := n
	if n < len(text) && text[n] == '.' {
		n++
		for n < len(text) && n < 17 && '0' <= text[n] && text[n] <= '9' {
			digits = 10*digits + int64(text[n]-'0')
			n++
		}
		places = n - whole - 1
	}
	switch {
	case whole == 0, whole > 1 && text[0] == '0', n > whole && places == 0, whole+places > 15:
		return 0, 0, 0
	case n < len(text) && (text[n] == 'e' || text[n] == 'E'):
		return 0, 0, 0
	}
	return digits, places, n
}
