package stage2

import "testing"

// FuzzParseBallot checks on any text what checkBallot does: a result that is
// valid, and that is read again when it is written in the form asked for.
func FuzzParseBallot(f *testing.F) {
	for _, c := range readCorpus(f) {
		f.Add(c.reply, uint8(c.labels))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		checkBallot(t, text, slateOf(int(n%40)))
	})
}
