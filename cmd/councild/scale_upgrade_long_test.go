//go:build scale

package main

import (
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

var earlier = flag.String("earlier", "", "program of an earlier councild, which TestScaleS22 upgrades from")

// Three nodes of an earlier build are replaced one after another, while sessions are in all stages: one node is stopped, and
// two are killed. Each session goes on, and no earlier node runs a session that a new one has begun.
func TestScaleS22(t *testing.T) {
	if *earlier == "" {
		t.Skip("needs an earlier councild: make scale EARLIER=PROGRAM")
	}
	w := &witness{trial: &trial{cluster: startCluster(t), paid: newPaid()}, held: map[call]*held{}}
	w.paid.linger = lingers
	for i := range 3 {
		n := w.add(t, fmt.Sprintf("node %d", i+1))
		n.program = *earlier
		n.start(t)
	}
	var ids []string
	before := 0 // sessions that earlier nodes began
	inStages := func(n *node, when string) {
		t.Helper()
		begun, _ := inStages(t, n, promptVersion{paid: w.paid}, when)
		ids = append(ids, begun...)
		if n.program != "" {
			before += len(begun)
		}
	}
	upgrade := func(n *node, signal syscall.Signal) {
		t.Helper()
		for _, from := range w.nodes {
			inStages(from, fmt.Sprintf("from %s before %s", from.name, n.name))
		}
		w.paid.kill()
		n.signal(t, signal)
		n.wait()
		n.program = ""
		n.start(t)
	}
	first := w.nodes[0]
	upgrade(first, syscall.SIGTERM)

	const mark = "of the only new node"
	inStages(first, mark)
	w.paid.kill()
	first.kill(t)
	time.Sleep(scaleLease() / 2) // longer, and the earlier nodes would end what nobody can run
	first.start(t)
	for _, id := range ids[len(ids)-3*len(stagesOf):] {
		ended(t, first.Caller, id)
	}
	for _, n := range w.nodes[1:] {
		for _, c := range w.since(n.name, time.Time{}) {
			if strings.Contains(c.question, mark) {
				t.Errorf("%s, of an earlier build, began %v", n.name, c.call)
			}
		}
	}
	upgrade(w.nodes[1], syscall.SIGKILL)
	upgrade(w.nodes[2], syscall.SIGKILL)

	for _, id := range ids {
		for _, n := range w.nodes {
			if status, s := endedAs(t, n.Caller, id); status != "complete" {
				t.Errorf("%s: session %s is %s: %v", n.name, id, status, s.Metadata.Warnings)
			}
		}
	}
	w.same(t, ids, w.nodes...)
	t.Logf("scale S22: measured three nodes of an earlier build replaced one by one: %d sessions in all stages complete on every node "+
		"with records once, %d of them begun by earlier nodes; %d calls paid twice, in flight at a kill; promised: all go on",
		len(ids), before, w.paid.judge(t, 3))
}
