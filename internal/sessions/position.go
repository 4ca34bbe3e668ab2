package sessions

import (
	"strconv"
	"strings"
)

// Position is a place in the log of a session. It stands behind an entry, and behind the first characters of each
// text that follows the entry. The zero Position is the beginning.
//
// Several members write at the same time, so several texts grow behind one entry. Each text becomes an entry of its
// own, in the order in which the texts began.
type Position struct {
	Number int // number of the entry before the position, from 1
	// Characters are how many Unicode code points of the entries Number+1, Number+2 and so on stand before the
	// position.
	Characters []int
}

// Append appends the position as the id of an event. "17" stands behind entry 17, "17.1234" within the text that
// follows it, and "17.0.80" within the second of several texts. Later positions have later ids, if ids are compared
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
