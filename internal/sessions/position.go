package sessions

import (
	"strconv"
	"strings"
)

// Position is a place in the log of a session: behind an entry, and behind the first
// characters of each of the texts that follow it. The zero Position is the beginning.
//
// Several members write at once, so the texts behind an entry grow beside each other. Each
// is an entry of its own later, in the order in which they began.
type Position struct {
	Number int // of the entry, from 1
	// Characters are how many Unicode code points stand before the position in entry Number+1,
	// in the one behind that, and so on.
	Characters []int
}

// Append appends the position as the id of an event: "17", "17.1234" within a text, or
// "17.0.80" within the second of several. Later positions have later ids, compared number by
// number.
func (p Position) Append(to []byte) []byte {
	to = strconv.AppendInt(to, int64(p.Number), 10)
	for _, n := range p.Characters {
		to = strconv.AppendInt(append(to, '.'), int64(n), 10)
	}
	return to
}

// ParsePosition returns the position that an id stands for. ok is false where it stands
// for none.
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
