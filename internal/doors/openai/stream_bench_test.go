package openai

import (
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// What it takes to pass on a piece of the answer, from the run to the bytes of a
// chunk (T8).
func BenchmarkRelay(b *testing.B) {
	st := sessions.New(sessions.Options{})
	s, _, err := st.Add(b.Context(), sessions.Start{Plan: council.Plan{SessionID: "one"}, Cancel: func(error) {}})
	if err != nil {
		b.Fatal(err)
	}
	t := newChatStream(s, ChatRequest{Model: councilModel})
	e := council.Event{Type: council.EventDelta, Data: council.Delta{Text: " a few words"}}
	seen := sessions.Position{}
	b.ReportAllocs()
	for b.Loop() {
		s.Observe(e)
		events, next, _ := s.Events(seen)
		for _, e := range events {
			t.event(e)
		}
		seen = next
		t.out.Reset()
	}
}
