package stage2

import (
	"testing"

	"github.com/councild/councild/internal/testkit/growth"
)

// FuzzParseBallot checks what checkBallot checks for any text: the result is valid, and
// it is read as the same ballot when it is written in the form that reviewers are asked
// for. It also fails for texts that take very long.
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
