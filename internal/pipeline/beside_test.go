package pipeline

import (
	"log/slog"
	"testing"

	"github.com/councild/councild/internal/council"
)

// A panic in the work beside the reviewers ends its session, but not the daemon.
func TestFaultF40Beside(t *testing.T) {
	p := &Pipeline{o: Options{Log: slog.New(slog.DiscardHandler)}}
	r := p.newRun(council.Plan{Conversation: []council.Message{{Role: council.RoleUser, Content: "Why?"}}}, nil)
	ended := r.beside(func() {})
	ended()
	if failure := r.stop(t.Context()); failure != nil {
		t.Errorf("got %v after work that went well", failure)
	}
	ended = r.beside(func() { panic("a defect") })
	ended()
	if failure := r.stop(t.Context()); failure == nil || failure.Code != council.CodeInternal {
		t.Errorf("got %v, want an internal error", failure)
	}
	t.Log("fault F40: a panic beside the reviewers: internal (an error of that session)")
}
