package growth

import (
	"bytes"
	"testing"

	"github.com/councild/councild/internal/testkit"
)

// failures is a testing.TB that counts its failures.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestLinear(t *testing.T) {
	testkit.Slow(t)
	var sink int
	passes := func(steps func(n int) int) func(n int) func() {
		return func(n int) func() {
			text := bytes.Repeat([]byte("x"), n)
			return func() {
				for range steps(n) {
					sink += bytes.Count(text, []byte("y"))
				}
			}
		}
	}
	for _, tt := range []struct {
		name  string
		steps func(n int) int // passes over the text
		fails bool
	}{
		{"linear", func(int) int { return 100 }, false},
		{"quadratic", func(n int) int { return n * (64 << 30) / (Large * Large) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &failures{TB: t}
			Linear(f, passes(tt.steps))
			if (f.n > 0) != tt.fails {
				t.Errorf("%d failures", f.n)
			}
		})
	}
}
