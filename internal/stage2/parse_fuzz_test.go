package stage2

import (
	"testing"

	"github.com/councild/councild/internal/growth"
)

// FuzzParseBallot checks on any text what checkBallot does: a result that is
// valid, and that is read again when it is written in the form asked for. It
// bounds the time too, far above what any text should take.
func FuzzParseBallot(f *testing.F) {
	for _, c := range readCorpus(f) {
		f.Add(c.reply, uint8(c.labels))
	}
	for _, unit := range hostileUnits() {
		f.Add(unit+unit+unit, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		growth.Bounded(t, len(text), func() { _, _ = ParseBallot(text, slateOf(int(n%40))) })
		checkBallot(t, text, slateOf(int(n%40)))
	})
}
