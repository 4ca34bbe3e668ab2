package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// Appends are lost, unanswered, sent twice, and come again behind later ones: each entry
// is stored once, and no owner gives its session up.
func TestScaleS07(t *testing.T) {
	testkit.Slow(t)
	w := newTrial(t, 2)
	var mu sync.Mutex // guards faults
	faults := map[string]int{}
	fate := func(subject string) journaltest.Fate {
		if !strings.HasPrefix(subject, "council.session.") && !strings.HasPrefix(subject, "council.records.") {
			return journaltest.Fate{After: []time.Duration{0}}
		}
		name, f := "", journaltest.Fate{After: []time.Duration{0}}
		switch later := time.Duration(rand.Int64N(int64(3 * time.Second))); rand.IntN(20) {
		case 0:
			name, f.Unanswered = "unanswered", true
		case 1:
			name, f.After = "lost", nil
		case 2, 3, 4:
			name, f.After = "sent twice", []time.Duration{0, 0}
		case 5, 6, 7:
			name, f.After = "sent again later", []time.Duration{0, later}
		case 8:
			name, f.After = "late", []time.Duration{2*time.Second + later} // the next try was faster
		}
		mu.Lock()
		defer mu.Unlock()
		faults[name]++
		return f
	}
	for _, n := range w.nodes {
		for _, l := range n.links {
			l.Requests(fate)
		}
	}
	var ids []string
	refused := 0 // because the first append was not answered, or all places were taken
	for i := range *scaleRounds {
		daemontest.Until(t, func() bool {
			id := w.nodes[i%2].askKept(t, fmt.Sprintf("Question %d?", i))
			if id == "" {
				refused++
				time.Sleep(100 * time.Millisecond) // as a client would
				return false
			}
			ids = append(ids, id)
			return true
		})
	}
	w.same(t, ids, w.nodes...)
	warned := 0
	for _, id := range ids {
		if s := ended(t, w.nodes[0].Caller, id); hasWarning(s, council.WarnTakenOver) || hasWarning(s, council.WarnNotKept) {
			t.Errorf("the owner of session %s gave it up: %v", id, s.Metadata.Warnings)
			warned++
		}
	}
	twice := w.paid.twice()
	if len(twice) > 0 {
		t.Errorf("paid twice: %v", twice)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"unanswered", "lost", "sent twice", "sent again later", "late"} {
		if faults[name] == 0 {
			t.Errorf("no append was %s", name)
		}
	}
	passed := faults[""]
	delete(faults, "")
	t.Logf("scale S07: measured %d sessions on 2 nodes, of whose appends %d arrived once with an answer, the others %v: "+
		"each entry once, records once on each node, %d requests refused at first, %d calls paid twice, %d owners gave up; "+
		"promised each entry once, no healthy owner gives up",
		len(ids), passed, faults, refused, len(twice), warned)
}

// keeps reports whether /readyz says nothing against keeping sessions.
func (n *node) keeps(t *testing.T) bool {
	t.Helper()
	_, body := n.Call(t, "GET", "/readyz", "")
	return !strings.Contains(string(body), `"code":"sessions"`)
}

// askKept asks for a session that is to be kept. It returns its id, or "" where the answer
// is 503 with Retry-After.
func (n *node) askKept(t *testing.T, question string) (id string) {
	t.Helper()
	resp, body, err := n.Send(t.Context(), "POST", "/v1/council", fmt.Sprintf(`{"query":%q,"background":true}`, question))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		return ""
	case resp.StatusCode != http.StatusAccepted:
		t.Fatalf("%s %v: %s", resp.Status, resp.Header, body)
	}
	var s council.Summary
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// askPlain has a session run that is not kept. It returns its id, and how long it took.
func (n *node) askPlain(t *testing.T, question string) (id string, took time.Duration) {
	t.Helper()
	begun := time.Now()
	resp, body, err := n.Send(t.Context(), "POST", "/v1/council", fmt.Sprintf(`{"query":%q}`, question))
	took = time.Since(begun)
	var s council.Session
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil || resp.StatusCode != http.StatusOK || s.Status != council.StatusComplete {
		t.Errorf("%s: a plain session: %v %.500s", n.name, err, body)
	}
	return s.ID, took
}

// outage is a time without servers of a cluster.
type outage struct {
	length  time.Duration // 0: until the sessions that ran before go on without their logs
	forGood bool          // until these sessions have ended, and the daemons too
}

// All servers are gone, for a while or for good: plain sessions run, those that are to be
// kept are refused, those that run go on without their log. Then all is as before.
func TestScaleS06(t *testing.T) {
	testkit.Slow(t)
	w := newTrial(t, 2)
	outages := []outage{{}}
	if *scaleRounds >= 100 {
		outages = []outage{{length: 30 * time.Second}, {}, {forGood: true}}
	}
	var all []string // sessions that were accepted, and whose records come to all nodes
	kept, notKept, plain, wrong := 0, 0, 0, 0
	var refused, refusedLater, answered, back, stopped time.Duration // at most
	for round, o := range outages {
		var held []string
		var calls []call
		release := func() {}
		for i, n := range w.nodes {
			c := call{fmt.Sprintf("Held %d at node %d?", round, i), simllm.Review, "d"}
			once, before := w.paid.hold(c), release
			release = func() { before(); once() }
			held = append(held, begin(t, n.Caller, c.question))
			w.paid.wait(t, c)
			calls = append(calls, call{c.question, simllm.Synthesis, "scribe"})
		}
		for _, s := range w.servers {
			s.kill(t)
		}
		begun := time.Now()
		release()
		var asking sync.WaitGroup
		ids, took := make([]string, len(w.nodes)), make([]time.Duration, len(w.nodes))
		for i, n := range w.nodes {
			asking.Go(func() { ids[i], took[i] = n.askPlain(t, fmt.Sprintf("Plain %d at node %d?", round, i)) })
		}
		for i, n := range w.nodes {
			if id := n.askKept(t, fmt.Sprintf("Refused %d at node %d?", round, i)); id != "" {
				t.Errorf("%s accepted session %s", n.name, id)
			}
			refused = max(refused, time.Since(begun))
			if n.keeps(t) {
				t.Errorf("/readyz of %s does not say that no sessions are kept", n.name)
			}
			later := time.Now()
			if id := n.askKept(t, fmt.Sprintf("Refused later %d at node %d?", round, i)); id != "" {
				t.Errorf("%s accepted session %s", n.name, id)
			}
			refusedLater = max(refusedLater, time.Since(later))
		}
		asking.Wait()
		answered = max(answered, slices.Max(took))
		plain += len(ids)
		if o.length > 0 {
			time.Sleep(time.Until(begun.Add(o.length)))
		} else {
			for _, c := range calls {
				w.paid.wait(t, c)
			}
		}
		if o.forGood {
			for i, n := range w.nodes {
				if s := ended(t, n.Caller, held[i]); s.Status != council.StatusComplete || !hasWarning(s, council.WarnNotKept) {
					t.Errorf("%s: session %s is %s: %v", n.name, held[i], s.Status, s.Metadata.Warnings)
				}
				notKept++
				stopping := time.Now()
				n.signal(t, syscall.SIGTERM)
				n.wait()
				stopped = max(stopped, time.Since(stopping))
				if code := n.process.ProcessState.ExitCode(); code != 0 {
					t.Errorf("%s ended with %d", n.name, code)
				}
				wrong += n.recorded(t, append(all, held[i], ids[i]))
			}
			break
		}
		for _, s := range w.servers {
			s.start(t)
		}
		again := time.Now()
		for i, n := range w.nodes {
			daemontest.Until(t, func() bool {
				id := n.askKept(t, fmt.Sprintf("Again %d at node %d?", round, i))
				if id != "" {
					ids = append(ids, id)
				}
				return id != ""
			})
			daemontest.Until(t, func() bool { return n.keeps(t) })
		}
		back = max(back, time.Since(again))
		for _, id := range held {
			for _, n := range w.nodes {
				s := ended(t, n.Caller, id)
				if s.Status != council.StatusComplete || hasWarning(s, council.WarnTakenOver) {
					t.Errorf("%s: session %s is %s: %v", n.name, id, s.Status, s.Metadata.Warnings)
				}
				if without := hasWarning(s, council.WarnNotKept); n != w.nodes[0] {
					gapless(t, n.Caller, id, n.name)
				} else if without {
					notKept++
				} else {
					kept++
				}
			}
		}
		all = append(append(all, held...), ids...)
		for _, n := range w.nodes {
			wrong += n.recorded(t, all)
		}
	}
	twice := w.paid.twice()
	if len(twice) > 0 {
		t.Errorf("paid twice: %v", twice)
	}
	if *scaleRounds >= 100 && (refused > scaleLease()+2*time.Second || refusedLater > 100*time.Millisecond) {
		t.Errorf("a session was refused after %s, later after %s", refused, refusedLater)
	}
	t.Logf("scale S06: measured %d outages of all servers: new sessions to be kept refused within %s at first and %s later, "+
		"%d plain sessions answered within %s, %d running ones went on with not_kept and %d were kept to their end, kept again %s after the servers' start, "+
		"daemons without servers stopped within %s, %d calls paid twice, records of %d sessions lost or doubled; "+
		"promised plain ones run, new kept ones 503, running ones go on, readiness says it, kept again by itself",
		len(outages), refused.Round(time.Millisecond), refusedLater.Round(time.Millisecond), plain, answered.Round(time.Millisecond),
		notKept, kept, back.Round(time.Millisecond), stopped.Round(time.Millisecond), len(twice), wrong)
}
