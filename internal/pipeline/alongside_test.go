package pipeline

import (
	"log/slog"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
)

// A panic in the work beside the reviewers ends its session, but not the daemon.
func TestFaultF40Beside(t *testing.T) {
	p := &Pipeline{o: Options{Log: slog.New(slog.DiscardHandler)}}
	r := p.newRun(council.Plan{Conversation: []council.Message{{Role: council.RoleUser, Content: "Why?"}}}, nil)
	r.alongside(func() {}, func() {})
	if failure := r.stop(t.Context()); failure != nil {
		t.Errorf("got %v after work that went well", failure)
	}
	r.alongside(func() { panic("a defect") }, func() {})
	if failure := r.stop(t.Context()); failure == nil || failure.Code != council.CodeInternal {
		t.Errorf("got %v, want an internal error", failure)
	}
	t.Log("fault F40: a panic beside the reviewers: internal (an error of that session)")
}

// Work beside the reviewers never outlives its session, not even one that panics.
func TestBesideIsAwaited(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		r := (&Pipeline{o: Options{Log: slog.New(slog.DiscardHandler)}}).newRun(council.Plan{Conversation: []council.Message{{}}}, nil)
		ended := false
		work := func() {
			time.Sleep(time.Second)
			ended = true
		}
		failure := protect(r.log, func() { r.alongside(work, func() { panic("a defect") }) })
		if failure == nil || failure.Code != council.CodeInternal {
			t.Errorf("got %v, want an internal error", failure)
		}
		if !ended {
			t.Error("the work goes on after the session")
		}
	})
}
