package sessions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

// The time that a session took is the sum of the times between its messages while it had an
// owner. A clock that is set back makes none of them negative.
func TestElapsed(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1700000000, 0)
	type message struct {
		at      int // seconds
		entries []council.EventType
	}
	answer := []council.EventType{council.EventAnswer}
	for _, tt := range []struct {
		name    string
		behind  []message // the head
		want    []int     // seconds of the answers
		elapsed int
	}{
		{"one owner", []message{{1, answer}, {30, answer}}, []int{1, 30}, 30},
		{"a clock that is set back", []message{{1, answer}, {30 - 3600, answer}, {40 - 3600, answer}}, []int{1, 1, 11}, 11},
		{
			"an owner that was killed",
			[]message{{10, answer}, {100, []council.EventType{runlog.TypeClaimed}}, {105, answer}},
			[]int{10, 15},
			15,
		},
		{
			"an owner that stopped",
			[]message{
				{10, []council.EventType{council.EventAnswer, runlog.TypeReleased}}, {100, []council.EventType{runlog.TypeClaimed}}, {105, answer},
			},
			[]int{10, 15},
			15,
		},
		{
			"a request to cancel what was released",
			[]message{{10, []council.EventType{runlog.TypeReleased}}, {100, []council.EventType{runlog.TypeCancelled}}},
			nil, 10,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stored := []journal.Stored{{At: begin, Message: journal.Message{
				First: 1, Entries: []council.Entry{{Type: runlog.TypeAccepted, Data: []byte("{}")}},
			}}}
			for _, m := range tt.behind {
				s := journal.Stored{At: begin.Add(time.Duration(m.at) * time.Second)}
				for _, e := range m.entries {
					s.Entries = append(s.Entries, council.Entry{Type: e, Data: []byte("{}")})
				}
				stored = append(stored, s)
			}
			p, err := readPast(stored, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, e := range p.Entries {
				got = append(got, int(e.At/time.Second))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answers: %s", diff)
			}
			if p.Elapsed != time.Duration(tt.elapsed)*time.Second {
				t.Errorf("elapsed: %s", p.Elapsed)
			}
		})
	}
}
