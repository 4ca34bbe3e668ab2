package biassim_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/councild/councild/internal/testkit/biassim"
)

// The records of the plain world, and of each field of World that others build on, stay the same byte for byte: published figures
// rest on them. A part of a world that is added draws from a stream of its own.
func TestPinned(t *testing.T) {
	for _, tt := range []struct {
		name  string
		world biassim.World
		want  string
	}{
		{"plain", biassim.World{}, "38d40b8c835fbcb2"},
		{"scales", biassim.World{Spread: 0.3, Gap: 1.5, Levels: 2, Curve: 1, SCurve: 0.5, Base: 7.5, Rescaled: []float64{0, 0.6}}, "d1133351ad708037"},
		{"noise", biassim.World{HeavyTails: true, NoiseSpread: 0.5, Missing: 0.2, Constant: []float64{0, 7}, Step: 0.5}, "970ea2fed980209e"},
		{"runs", biassim.World{Runs: 5, LongerBetter: 0.6}, "04e57f0460c18269"},
		{"frozen", biassim.World{Runs: 5, Frozen: true}, "5bab775967addd21"},
		{"questions", biassim.World{Questions: 10}, "a546e2594529b20c"},
		{"topics", biassim.World{Topics: 10, TopicSD: 0.4}, "b54aab7bd8692115"},
		{"embedded", biassim.World{Embedded: true, AlikeLength: 1, AlikeMerit: 0.8, AlikeMaker: 0.8, Runs: 2}, "474b2987d0621802"},
		{"realistic", biassim.Realistic(), "b6122729f42e65ce"},
		{"habits", biassim.World{MixedHabits: true, Habits: []biassim.Habit{biassim.LowScores, biassim.HighScores}, CutPoints: 0.4}, "a8d4d19f7e3ea70b"},
		{"own worth", biassim.World{OwnLevel: 0.3, OwnNoise: 0.3, OwnSpread: 0.3, Replaced: []float64{1}, Lengthened: []float64{1}}, "34a52f5b014dc6ee"},
		{"tastes", biassim.World{SharedTaste: []float64{0, 0.6, 0.6}, Second: 0.8, Cycle: 0.5, Hump: 0.3, Questions: 10}, "3b3096e0b9621f92"},
		{"hard questions", biassim.World{Refusals: 0.1, Missing: 0.1, MissingHard: 1, Runs: 5}, "184a238780a22d81"},
	} {
		o := options(60, true, "other/x")
		o.World = tt.world
		sum := sha256.Sum256([]byte(text(biassim.Generate(o))))
		if got := hex.EncodeToString(sum[:8]); got != tt.want {
			t.Errorf("%s: the records have the hash %s, want %s", tt.name, got, tt.want)
		}
	}
}
