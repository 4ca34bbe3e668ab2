package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/councild/councild/internal/simllm"
)

// A node that is killed in a session: another one goes on with it.
func TestScaleS02(t *testing.T) {
	w := newTrial(t, 3)
	first := w.nodes[0]
	question := fmt.Sprintf("Question %d?", 0)
	id := begin(t, first.Caller, question)
	w.paid.wait(t, call{question, simllm.Review, "d"})
	first.kill(t)
	begun := time.Now()
	ended(t, w.nodes[1].Caller, id)
	t.Logf("ended %s after the kill", time.Since(begun))
	w.same(t, []string{id}, w.nodes[1:]...)
}
