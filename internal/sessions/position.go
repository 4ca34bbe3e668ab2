package sessions

import (
	"strconv"
	"strings"
)

// Position is how far a reader has read the log of a session. The reader has the first Number entries, and the first
// characters of each text after them. The zero Position is the beginning.
//
// Several members write at the same time, so several texts can follow one entry. Each text becomes an entry of its own,
// in the order in which the texts began.
type Position struct {
	Number int // number of the last entry that the reader has, from 1
	// Characters[i] belongs to the text that is the entry Number+1+i, or will become that entry. It is how many
	// Unicode code points of the text the reader has.
	Characters []int
}

// Append appends the position as the id of an event. "17" is after entry 17, "17.1234" is within the text that follows
// entry 17, and "17.0.80" is within the second text of several. Later positions have later ids, if ids are compared
// number by number.
func (p Position) Append(to []byte) []byte {
	to = strconv.AppendInt(to, int64(p.Number), 10)
	for _, n := range p.Characters {
		to = strconv.AppendInt(append(to, '.'), int64(n), 10)
	}
	return to
}

// ParsePosition returns the position for an id. ok is false if the id is not valid.
func ParsePosition(id string) (p Position, ok bool) {
	for i, part := range strings.Split(id, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return Position{}, false
		}
		if i == 0 {
			p.Number = n
		} else {
			p.Characters = append(p.Characters, n)
		}
	}
	return p, true
}
