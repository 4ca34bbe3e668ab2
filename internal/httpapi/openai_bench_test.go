package httpapi

import (
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// What it takes to pass on a piece of the answer, from the run to the bytes of a
// chunk (T8).
func BenchmarkRelay(b *testing.B) {
	s, _ := sessions.New(sessions.Options{}).Add(sessions.Start{Plan: council.Plan{SessionID: "one"}, Cancel: func(error) {}})
	t := newChatStream(s, ChatRequest{Model: councilModel})
	e := council.Event{Type: council.EventDelta, Data: council.Delta{Text: " a few words"}}
	seen := 0
	b.ReportAllocs()
	for b.Loop() {
		s.Observe(e)
		events, _ := s.Events(seen)
		for _, e := range events {
			t.event(e)
		}
		seen += len(events)
		t.out.Reset()
	}
}
