package spend

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The reasons why a line of a ledger cannot be read. A store adds its own, such as too_long and damaged.
const (
	ReasonNotJSON  = "not_json"     // not a JSON value
	ReasonNoEntry  = "no_entry"     // JSON, but not a line that a ledger has
	ReasonChecksum = "bad_checksum" // it is not the line that was written
	// ReasonUnterminated says that the last line of a file has no end: a crash cut it, or it is being written. That is no damage.
	ReasonUnterminated = "unterminated"
)

// Damage says which line of a ledger cannot be read, and why. Reading goes on behind it.
type Damage struct {
	File   string // name of its file, without directories
	Line   int64  // 1-based, in its file
	Reason string
}

// Error returns the place and the reason.
func (d *Damage) Error() string { return fmt.Sprintf("%s line %d: %s", d.File, d.Line, d.Reason) }

// Lines are the lines of a ledger in their order. A *Damage concerns one line, or the rest of one file. Any other error is the
// last element.
type Lines = iter.Seq2[Line, error]

// Line is a line of a ledger that can be read.
type Line struct {
	text      []byte // valid until the next line is read
	day       string
	unchecked bool // it has no checksum
}

// crcKey stands before the checksum of a line, its last member. The checksum is the CRC-32C of all bytes before this key.
const crcKey = `,"crc":"`

const crcLength = len(crcKey + `00000000"}`)

// seal adds the checksum to a JSON object that has members.
func seal(object []byte) []byte {
	object = object[:len(object)-len("}")]
	return append(append(append(object, crcKey...), checksum(object)...), `"}`...)
}

// checksum returns the checksum as a line has it.
func checksum(body []byte) []byte {
	var sum [crc32.Size]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return hex.AppendEncode(nil, sum[:])
}

// unseal reports whether the text ends in a checksum, and whether that checksum is right.
func unseal(text []byte) (sealed, right bool) {
	body := text[:max(0, len(text)-crcLength)]
	digits, ok := bytes.CutPrefix(text[len(body):], []byte(crcKey))
	if !ok || !bytes.HasSuffix(digits, []byte(`"}`)) {
		return false, false
	}
	return true, bytes.Equal(digits[:len(digits)-len(`"}`)], checksum(body))
}

// ParseLine reads a line of a ledger without its end. An error is always a *Damage without a place. The lines of earlier releases
// have no checksum. They must hold what those releases wrote and nothing else: so a line whose checksum lost its key does not pass
// for one of them.
func ParseLine(text []byte) (Line, error) {
	if sealed, right := unseal(text); sealed {
		_, rest, _ := bytes.Cut(text, []byte(`"day":"`))
		if !right {
			return Line{}, &Damage{Reason: ReasonChecksum}
		}
		if len(rest) < len(time.DateOnly) || typeOf(text) == "" {
			return Line{}, &Damage{Reason: ReasonNoEntry}
		}
		return Line{text: text, day: string(rest[:len(time.DateOnly)])}, nil
	}
	if !json.Valid(text) {
		return Line{}, &Damage{Reason: ReasonNotJSON}
	}
	var e entry
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil || e.Session == "" || len(e.Day) != len(time.DateOnly) ||
		typeOf(text) == "" {
		return Line{}, &Damage{Reason: ReasonNoEntry}
	}
	return Line{text: text, day: e.Day, unchecked: true}, nil
}

// typeOf returns the type of a line, which is its first member, or "".
func typeOf(text []byte) string {
	for _, name := range []string{entryOpen, entryCalls, entryClose} {
		if bytes.HasPrefix(text, []byte(`{"type":"`+name+`"`)) {
			return name
		}
	}
	return ""
}

func (l Line) entry() (e entry) {
	_ = json.Unmarshal(l.text, &e) // ParseLine has looked at it
	return e
}

// usd returns the sum of the calls on the line.
func (l Line) usd() (sum USD) {
	// Inside of a string, quotes have a backslash before them: no name of a model can be taken for this key.
	const key = `,"usd":`
	for _, rest, ok := bytes.Cut(l.text, []byte(key)); ok; _, rest, ok = bytes.Cut(rest, []byte(key)) {
		if end := bytes.IndexAny(rest, ",}"); end > 0 {
			cost, _ := ParseUSD(string(rest[:end])) // null: nobody knows it
			sum = sum.Plus(cost)
		}
	}
	return sum
}

// daysKept is how many days a process remembers, and of how many the end of a ledger has the sums.
const daysKept = 8

// End is the high-water mark of a ledger. Every line that it counts was on disk before the end was written. It is kept in a file of
// its own: a ledger with fewer lines was cut, replaced or taken away.
type End struct {
	Written    time.Time      `json:"written"`
	Lines      int64          `json:"lines"`            // so many lines can be read
	Days       map[string]USD `json:"days"`             // what the calls of the latest days cost
	Unreadable int64          `json:"unreadable_lines"` // so many lines cannot be read, and an operator has accepted that
	Accepted   []Acceptance   `json:"accepted,omitempty"`
}

// Acceptance is a loss that an operator accepted.
type Acceptance struct {
	At         time.Time      `json:"at"`
	Unreadable int64          `json:"unreadable_lines"`
	Missing    int64          `json:"missing_lines"` // at least
	MissingUSD map[string]USD `json:"missing_usd"`   // by day, at least
}

// ErrEnd says that the file of the end of a ledger is not as it was written.
var ErrEnd = errors.New("it is not as it was written")

// ParseEnd reads what Text wrote.
func ParseEnd(text []byte) (e End, err error) {
	text = bytes.TrimSpace(text)
	if _, right := unseal(text); !right || json.Unmarshal(text, &e) != nil {
		return End{}, ErrEnd
	}
	return e, nil
}

// Text returns the content of the file.
func (e End) Text() []byte {
	data, _ := json.Marshal(e) // it holds nothing that cannot be encoded
	return append(seal(data), '\n')
}

// Clone returns a copy that shares nothing that changes.
func (e End) Clone() End {
	e.Days = maps.Clone(e.Days)
	e.Accepted = slices.Clone(e.Accepted)
	return e
}

// Tally returns the end of a ledger that holds these lines alone. Each element holds one or more lines with their line breaks.
func Tally(lines ...[]byte) End {
	t := End{Days: map[string]USD{}}
	for _, all := range lines {
		for text := range bytes.Lines(all) {
			if line, err := ParseLine(bytes.TrimRight(text, "\t\n")); err == nil {
				t.Lines++
				t.Days[line.day] = t.Days[line.day].Plus(line.usd())
			}
		}
	}
	return t
}

// Add adds the tally of lines that are on disk now.
func (e *End) Add(t End) {
	e.Lines += t.Lines
	e.raise(t.Days, USD.Plus)
}

// CatchUp raises the end to what was found in a whole ledger. The process before may have been killed before it wrote its last end.
func (e *End) CatchUp(found State) {
	e.Lines = max(e.Lines, found.Lines)
	e.Unreadable = min(e.Unreadable, found.Unreadable)
	e.raise(found.days, func(a, b USD) USD { return max(a, b) })
}

// Accept makes what was found the end of the ledger.
func (e *End) Accept(found State, now time.Time) {
	e.Accepted = append(e.Accepted, Acceptance{
		At: now.UTC().Truncate(time.Second), Unreadable: found.Unreadable - min(e.Unreadable, found.Unreadable),
		Missing: found.Missing, MissingUSD: found.MissingUSD,
	})
	e.Lines = found.Lines
	e.Unreadable = found.Unreadable
	e.Days = map[string]USD{}
	e.raise(found.days, USD.Plus)
}

// raise combines the sums of days with those of the end, and drops the oldest days.
func (e *End) raise(days map[string]USD, combine func(a, b USD) USD) {
	if e.Days == nil {
		e.Days = map[string]USD{}
	}
	for day, usd := range days {
		e.Days[day] = combine(e.Days[day], usd)
	}
	if all := slices.Sorted(maps.Keys(e.Days)); len(all) > daysKept {
		for _, day := range all[:len(all)-daysKept] {
			delete(e.Days, day)
		}
	}
}

// State is what was found in a ledger, and what is known to be missing from it.
type State struct {
	Damaged    bool           `json:"damaged"`          // lines cannot be read or are missing, and no operator has accepted that
	Lines      int64          `json:"lines"`            // that can be read
	Unchecked  int64          `json:"unchecked_lines"`  // those of them without a checksum, as earlier releases wrote them
	Unreadable int64          `json:"unreadable_lines"` // the unreadable rest of a compressed file counts as one
	Reasons    []Skipped      `json:"reasons"`          // why lines cannot be read, the most frequent reason first
	Expected   *int64         `json:"expected_lines"`   // End.Lines; null when no end is kept
	Missing    int64          `json:"missing_lines"`    // at least, without the unreadable ones
	MissingUSD map[string]USD `json:"missing_usd"`      // by day, at least: what missing and unreadable lines cost
	Torn       bool           `json:"torn"`             // a part of a line stands at the end: a crash left it, or it is being written
	Accepted   []Acceptance   `json:"accepted"`         // the oldest first

	// Recent are the last days on which sessions began, in the order of the ledger.
	Recent []string       `json:"-"`
	days   map[string]USD // what the calls of Recent and of End.Days cost
}

// Skipped counts lines that cannot be read for one reason, and says where the first one stands.
type Skipped struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	File   string `json:"file"`
	Line   int64  `json:"line"`
}

// Problem says what is wrong with the ledger. It is "" for one that is whole or whose loss is accepted.
func (s State) Problem() string {
	if !s.Damaged {
		return ""
	}
	var parts []string
	for _, r := range s.Reasons {
		parts = append(parts, fmt.Sprintf("%s cannot be read (%s, first %s line %d)",
			counted(r.Count, "line"), r.Reason, r.File, r.Line))
	}
	if s.Missing > 0 {
		parts = append(parts, fmt.Sprintf("at least %s missing", counted(s.Missing, "line is", "lines are")))
	}
	for _, day := range slices.Sorted(maps.Keys(s.MissingUSD)) {
		parts = append(parts, fmt.Sprintf("at least %v US dollars of %s are lost", s.MissingUSD[day], day))
	}
	return strings.Join(parts, ", ")
}

// counted returns a number with its noun, the second one where there are many.
func counted(n int64, nouns ...string) string {
	if n == 1 {
		return "1 " + nouns[0]
	}
	if len(nouns) == 1 {
		nouns = append(nouns, nouns[0]+"s")
	}
	return strconv.FormatInt(n, 10) + " " + nouns[1]
}

// checker looks at the lines of a ledger while they are read.
type checker struct {
	end   *End // nil: none is kept
	state State
	by    map[string]*Skipped
}

func newChecker(end *End) *checker {
	return &checker{end: end, state: State{days: map[string]USD{}}, by: map[string]*Skipped{}}
}

// take notes an element of Lines. It reports whether there is a line, and returns an error that ends the reading.
func (c *checker) take(l Line, err error) (ok bool, _ error) {
	damage, isDamage := errors.AsType[*Damage](err)
	switch {
	case isDamage && damage.Reason == ReasonUnterminated:
		c.state.Torn = true
		return false, nil
	case isDamage:
		if c.by[damage.Reason] == nil {
			c.by[damage.Reason] = &Skipped{Reason: damage.Reason, File: damage.File, Line: damage.Line}
		}
		c.by[damage.Reason].Count++
		c.state.Unreadable++
		return false, nil
	case err != nil:
		return false, err
	}
	c.state.Lines++
	if l.unchecked {
		c.state.Unchecked++
	}
	c.state.Recent = moveToEnd(c.state.Recent, l.day)
	if len(c.state.Recent) > daysKept {
		if c.end == nil || !hasDay(c.end.Days, c.state.Recent[0]) {
			delete(c.state.days, c.state.Recent[0])
		}
		c.state.Recent = c.state.Recent[1:]
	}
	c.state.days[l.day] = c.state.days[l.day].Plus(l.usd())
	return true, nil
}

func hasDay(days map[string]USD, day string) bool {
	_, ok := days[day]
	return ok
}

// result returns what was found.
func (c *checker) result() State {
	s := c.state
	s.MissingUSD = map[string]USD{}
	s.Accepted = []Acceptance{}
	s.Reasons = []Skipped{}
	for _, r := range c.by {
		s.Reasons = append(s.Reasons, *r)
	}
	slices.SortFunc(s.Reasons, func(a, b Skipped) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	unreadable := s.Unreadable
	if c.end != nil {
		s.Expected = new(c.end.Lines)
		s.Accepted = append(s.Accepted, c.end.Accepted...)
		unreadable = max(0, s.Unreadable-c.end.Unreadable)
		s.Missing = max(0, c.end.Lines-s.Lines-unreadable)
	}
	s.Damaged = unreadable > 0 || s.Missing > 0
	if !s.Damaged {
		return s
	}
	if c.end != nil {
		for day, usd := range c.end.Days {
			if found := s.days[day]; usd > found {
				s.MissingUSD[day] = usd - found
			}
		}
	}
	return s
}

// moveToEnd moves a day to the end of a list, or adds it there.
func moveToEnd(days []string, day string) []string {
	if n := len(days); n > 0 && days[n-1] == day {
		return days
	}
	return append(slices.DeleteFunc(days, func(d string) bool { return d == day }), day)
}

// Check reads a ledger. The end is nil where none is kept.
func Check(lines Lines, end *End) (State, error) {
	c := newChecker(end)
	for line, err := range lines {
		if _, err := c.take(line, err); err != nil {
			return State{}, err
		}
	}
	return c.result(), nil
}
