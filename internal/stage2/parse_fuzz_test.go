package stage2

import (
	"testing"
	"time"
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
		start := time.Now()
		_, _ = ParseBallot(text, slateOf(int(n%40)))
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%d bytes took %s", len(text), took)
		}
		checkBallot(t, text, slateOf(int(n%40)))
	})
}
