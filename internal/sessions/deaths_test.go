package sessions

import (
	"testing"
	"time"

	"github.com/councild/councild/internal/sessions/journal"
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
			d := deaths{lease: lease, every: time.Second, absent: map[string]time.Time{}}
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

// A log is quiet from its last message on, for as long as the observer has known it with its own lease confirmed.
func TestQuiet(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Second
	begin := time.Unix(1700000000, 0)
	for _, tt := range []struct {
		name  string
		seq   func(second int) uint64
		fresh func(second int) bool
		want  time.Duration // after second 60
	}{
		{"nothing comes", func(int) uint64 { return 1 }, func(int) bool { return true }, 60 * time.Second},
		{"messages in seconds 30 and 60", func(s int) uint64 { return uint64(1 + s/30) }, func(int) bool { return true }, 0},
		{"a message in second 45", func(s int) uint64 { return uint64(1 + s/45) }, func(int) bool { return true }, 15 * time.Second},
		{"cut off in second 50", func(int) uint64 { return 1 }, func(s int) bool { return s != 50 }, 9 * time.Second},
		{"cut off", func(int) uint64 { return 1 }, func(int) bool { return false }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := deaths{lease: lease, every: time.Second, absent: map[string]time.Time{}}
			row := journal.IndexRow{ID: journal.ID{Session: "one"}}
			for second := range 61 {
				d.look(begin.Add(time.Duration(second)*time.Second), tt.fresh(second))
				row.Seq = tt.seq(second)
				d.note([]journal.IndexRow{row})
			}
			if got := d.quiet(row); got != tt.want {
				t.Errorf("quiet for %s, want %s", got, tt.want)
			}
			row.Seq = 99
			if got := d.quiet(row); got != 0 {
				t.Errorf("quiet for %s although a message has come since", got)
			}
		})
	}
}
