package sessions

import (
	"strconv"
	"strings"
)

// Position is a place in the log of a session: behind an entry, and behind the first
// characters of the text that follows it. The zero Position is the beginning.
type Position struct {
	Number     int // of the entry, from 1
	Characters int // Unicode code points
}

// Append appends the position as the id of an event: "17", or "17.1234" within a text.
func (p Position) Append(to []byte) []byte {
	to = strconv.AppendInt(to, int64(p.Number), 10)
	if p.Characters > 0 {
		to = strconv.AppendInt(append(to, '.'), int64(p.Characters), 10)
	}
	return to
}

// ParsePosition returns the position that an id stands for. ok is false where it stands
// for none.
func ParsePosition(id string) (p Position, ok bool) {
	number, characters, within := strings.Cut(id, ".")
	var err error
	if p.Number, err = strconv.Atoi(number); err == nil && within {
		p.Characters, err = strconv.Atoi(characters)
	}
	return p, err == nil && p.Number >= 0 && p.Characters >= 0
}
