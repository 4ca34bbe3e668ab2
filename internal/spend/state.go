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

// These are the reasons why a line of a ledger cannot be read. A store adds its own, such as too_long and damaged.
const (
	ReasonNotJSON  = "not_json"     // not a JSON value
	ReasonNoEntry  = "no_entry"     // JSON, but not a line of a ledger
	ReasonChecksum = "bad_checksum" // not the line that was written
	// ReasonUnterminated says that the last line of a file has no end. Either a crash cut the line, or the line is
	// still being written. This is not damage.
	ReasonUnterminated = "unterminated"
)

// Damage says which line of a ledger cannot be read, and why. Reading continues after that line.
type Damage struct {
	File   string // name of its file, without directories
	Line   int64  // number of the line in its file, from 1
	Reason string
}

// Error returns the place and the reason.
func (d *Damage) Error() string { return fmt.Sprintf("%s line %d: %s", d.File, d.Line, d.Reason) }

// Lines are the lines of a ledger in their order. A *Damage concerns one line, or the rest of one file. After any
// other error, no more elements follow.
type Lines = iter.Seq2[Line, error]

// Line is a line of a ledger that could be read.
type Line struct {
	text      []byte // valid until the next line is read
	day       string
	unchecked bool // it has no checksum
}

// crcKey stands before the checksum of a line. The checksum is the last member of the line. It is the CRC-32C of all
// bytes before crcKey.
const crcKey = `,"crc":"`

const crcLength = len(crcKey + `00000000"}`)

// seal adds the checksum to a JSON object, which must not be empty.
func seal(object []byte) []byte {
	object = object[:len(object)-len("}")]
	return append(append(append(object, crcKey...), checksum(object)...), `"}`...)
}

// checksum returns a checksum as 8 hexadecimal digits.
func checksum(body []byte) []byte {
	var sum [crc32.Size]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return hex.AppendEncode(nil, sum[:])
}

// unseal reports whether the text ends in a checksum, and whether the checksum is right.
func unseal(text []byte) (sealed, right bool) {
	body := text[:max(0, len(text)-crcLength)]
	digits, ok := bytes.CutPrefix(text[len(body):], []byte(crcKey))
	if !ok || !bytes.HasSuffix(digits, []byte(`"}`)) {
		return false, false
	}
	return true, bytes.Equal(digits[:len(digits)-len(`"}`)], checksum(body))
}

// ParseLine reads a line of a ledger, without its line break. Its error is always a *Damage without a file and a line
// number. The lines of earlier releases have no checksum. Such a line may have only the fields that those releases
// wrote, so that a new line with a damaged checksum key does not pass as an old line.
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

// typeOf returns the type of a line, which is its first member, or "" if there is none.
func typeOf(text []byte) string {
	for _, name := range []string{entryOpen, entryCalls, entryClose} {
		if bytes.HasPrefix(text, []byte(`{"type":"`+name+`"`)) {
			return name
		}
	}
	return ""
}

func (l Line) entry() (e entry) {
	_ = json.Unmarshal(l.text, &e) // ParseLine has checked it.
	return e
}

// usd returns the sum of the charges on the line.
func (l Line) usd() (sum USD) {
	// In a JSON string every quote follows a backslash, so no model name contains this key.
	const key = `,"usd":`
	for _, rest, ok := bytes.Cut(l.text, []byte(key)); ok; _, rest, ok = bytes.Cut(rest, []byte(key)) {
		if end := bytes.IndexAny(rest, ",}"); end > 0 {
			cost, _ := ParseUSD(string(rest[:end])) // The text is null if the cost is not known.
			sum = sum.Plus(cost)
		}
	}
	return sum
}

// daysKept is how many days a Book remembers, and for how many days the end of a ledger has sums.
const daysKept = 8

// End is the high-water mark of a ledger. Every line that the End counts was on disk before the End was written. The
// End is kept in a file of its own. If a ledger has fewer lines than its End says, the ledger was cut, replaced or
// removed.
type End struct {
	Written time.Time      `json:"written"`
	Lines   int64          `json:"lines"` // how many lines can be read
	Days    map[string]USD `json:"days"`  // what the calls of the latest days cost
	// Unreadable is how many lines cannot be read. An operator has accepted their loss.
	Unreadable int64        `json:"unreadable_lines"`
	Accepted   []Acceptance `json:"accepted,omitempty"`
}

// Acceptance is a loss that an operator accepted.
type Acceptance struct {
	At         time.Time      `json:"at"`
	Unreadable int64          `json:"unreadable_lines"`
	Missing    int64          `json:"missing_lines"` // a lower bound
	MissingUSD map[string]USD `json:"missing_usd"`   // for each day, a lower bound
}

// ErrEnd says that the file with the end of a ledger was changed or damaged.
var ErrEnd = errors.New("it is not as it was written")

// ParseEnd reads the text that Text wrote. The error is ErrEnd.
func ParseEnd(text []byte) (e End, err error) {
	text = bytes.TrimSpace(text)
	if _, right := unseal(text); !right || json.Unmarshal(text, &e) != nil {
		return End{}, ErrEnd
	}
	return e, nil
}

// Text returns the content of the file with the end.
func (e End) Text() []byte {
	data, _ := json.Marshal(e) // It holds nothing that cannot be encoded.
	return append(seal(data), '\n')
}

// Clone returns a copy that shares no map or slice with e.
func (e End) Clone() End {
	e.Days = maps.Clone(e.Days)
	e.Accepted = slices.Clone(e.Accepted)
	return e
}

// Tally returns the end of a ledger that holds only these lines. Each argument holds one or more lines with their line
// breaks.
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

// Add adds the tally of lines that are now on disk.
func (e *End) Add(t End) {
	e.Lines += t.Lines
	e.raise(t.Days, USD.Plus)
}

// CatchUp updates the end with what a check found in a whole ledger, because an earlier process may have been killed
// before it wrote its last end.
func (e *End) CatchUp(found State) {
	e.Lines = max(e.Lines, found.Lines)
	e.Unreadable = min(e.Unreadable, found.Unreadable)
	e.raise(found.days, func(a, b USD) USD { return max(a, b) })
}

// Accept sets the end to what a check found, and notes the loss as accepted.
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

// raise combines the sums of the given days with the sums in e.Days, and drops the oldest days.
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

// State is what a check found in a ledger, and what is missing from the ledger.
type State struct {
	// Damaged says that lines cannot be read or are missing, and that no operator has accepted this.
	Damaged bool  `json:"damaged"`
	Lines   int64 `json:"lines"` // how many lines can be read
	// Unchecked is how many of these lines have no checksum, as in earlier releases.
	Unchecked int64 `json:"unchecked_lines"`
	// Unreadable is how many lines cannot be read. The unreadable rest of a compressed file counts as one.
	Unreadable int64 `json:"unreadable_lines"`
	// Reasons say why lines cannot be read, the most frequent reason first.
	Reasons  []Skipped `json:"reasons"`
	Expected *int64    `json:"expected_lines"` // End.Lines, or null if no end is kept
	Missing  int64     `json:"missing_lines"`  // a lower bound, without the unreadable lines
	// MissingUSD maps each day to a lower bound for the cost in its missing and unreadable lines.
	MissingUSD map[string]USD `json:"missing_usd"`
	// Torn says that the ledger ends in a part of a line. A crash left that part, or the line is being written.
	Torn     bool         `json:"torn"`
	Accepted []Acceptance `json:"accepted"` // oldest first

	// Recent are the last days on which sessions began, in the order of the ledger. There are at most daysKept.
	Recent []string       `json:"-"`
	days   map[string]USD // what the calls of Recent and of End.Days cost
}

// Skipped counts the lines that cannot be read for one reason, and says where the first one is.
type Skipped struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	File   string `json:"file"`
	Line   int64  `json:"line"`
}

// Problem describes what is wrong with the ledger. It is "" if the ledger is whole or its loss is accepted.
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
		parts = append(parts, fmt.Sprintf("at least %s of %s is lost", s.MissingUSD[day].Dollars(), day))
	}
	return strings.Join(parts, ", ")
}

// counted returns a number with its noun in the singular or the plural.
func counted(n int64, nouns ...string) string {
	if n == 1 {
		return "1 " + nouns[0]
	}
	if len(nouns) == 1 {
		nouns = append(nouns, nouns[0]+"s")
	}
	return strconv.FormatInt(n, 10) + " " + nouns[1]
}

// checker checks the lines of a ledger while they are read.
type checker struct {
	end   *End // nil if no end is kept
	state State
	by    map[string]*Skipped
}

func newChecker(end *End) *checker {
	return &checker{end: end, state: State{days: map[string]USD{}}, by: map[string]*Skipped{}}
}

// take checks an element of Lines. The result ok says that the element is a line that could be read. After an error,
// the caller stops reading.
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

// result returns the State after the last line.
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

// moveToEnd moves a day to the end of a list, or appends it.
func moveToEnd(days []string, day string) []string {
	if n := len(days); n > 0 && days[n-1] == day {
		return days
	}
	return append(slices.DeleteFunc(days, func(d string) bool { return d == day }), day)
}

// Check reads and checks a ledger. The argument end is nil if no end is kept. The error is the first error in lines
// that is not a *Damage.
func Check(lines Lines, end *End) (State, error) {
	c := newChecker(end)
	for line, err := range lines {
		if _, err := c.take(line, err); err != nil {
			return State{}, err
		}
	}
	return c.result(), nil
}
