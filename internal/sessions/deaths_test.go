package sessions

import (
	"testing"
	"time"
)

// A node is dead when it was silent for a lease while the observer was awake and had its
// own lease confirmed.
func TestDeaths(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Second
	begin := time.Unix(1700000000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	for _, tt := range []struct {
		name  string
		looks func(second int) (looks, fresh bool)
		node  string
		want  int // the second at which it is dead first, -1 for never
	}{
		{"released", func(int) (bool, bool) { return true, true }, "", 0},
		{"alive", func(int) (bool, bool) { return true, true }, "alive", -1},
		{"silent since second 5", func(int) (bool, bool) { return true, true }, "silent", 25},
		{"never heard of", func(int) (bool, bool) { return true, true }, "unknown", 20},
		{"the observer was cut off until second 10", func(s int) (bool, bool) { return true, s >= 10 }, "silent", 30},
		{"the observer was cut off in second 20", func(s int) (bool, bool) { return true, s != 20 }, "silent", 41},
		{"the observer slept from second 6 to 30", func(s int) (bool, bool) { return s < 6 || s > 30, true }, "silent", 51},
		{"the observer slept, and the node is unknown", func(s int) (bool, bool) { return s < 6 || s > 30, true }, "unknown", 51},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := deaths{lease: lease, absent: map[string]time.Time{}}
			got := -1
			for second := 0; second < 60 && got < 0; second++ {
				looks, fresh := tt.looks(second)
				if !looks {
					continue
				}
				d.look(at(second), fresh)
				nodes := map[string]time.Time{"alive": at(second - second%7), "silent": at(5)}
				if d.dead(tt.node, nodes) {
					got = second
				}
			}
			if got != tt.want {
				t.Errorf("dead at second %d, want %d", got, tt.want)
			}
		})
	}
}
