//go:build scale

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// bodies returns what a node shows of sessions, and of their events.
func bodies(t *testing.T, n *node, ids []string) (all [][]byte) {
	t.Helper()
	for _, id := range ids {
		for _, path := range []string{"", "/events"} {
			status, body := n.Call(t, "GET", "/v1/council/"+id+path, "")
			if status != http.StatusOK {
				t.Fatalf("%s: session %s: %d %s", n.name, id, status, body)
			}
			all = append(all, body)
		}
	}
	return all
}

// A node that stands still for three times the lease, in the middle of its sessions: others go
// on with them. When it awakes it calls nobody and changes nothing.
func TestScaleS03(t *testing.T) {
	w := watch(t, 3)
	lease, rounds := scaleLease(), max(1, *scaleRounds/70)
	var ids []string
	awake, changed, unaware := 0, 0, 0
	var taken []time.Duration
	for round := range rounds {
		sleeper, others := w.nodes[round%3], []*node{w.nodes[(round+1)%3], w.nodes[(round+2)%3]}
		var theirs []string
		var releases []func()
		for _, c := range []call{{"", simllm.Question, "d"}, {"", simllm.Review, "d"}, {"", simllm.Synthesis, "scribe"}} {
			for _, broken := range []bool{false, true} {
				c.question = fmt.Sprintf("Question of round %d, asleep in %s, reply lost: %v?", round, c.kind, broken)
				h, release := w.hold(t, c, broken)
				releases = append(releases, release)
				theirs = append(theirs, begin(t, sleeper.Caller, c.question))
				h.wait(t)
			}
		}
		ids = append(ids, theirs...)
		stopped := time.Now()
		sleeper.signal(t, syscall.SIGSTOP)
		if _, err := syscall.Wait4(sleeper.process.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil { // its threads stop one by one
			t.Fatal(err)
		}
		for _, release := range releases { // the replies arrive while it sleeps
			release()
		}
		for _, id := range theirs {
			ended(t, others[0].Caller, id)
		}
		for id, times := range w.logged(logTookOver) {
			for _, at := range times {
				if at.After(stopped) {
					taken = append(taken, at.Sub(stopped))
				}
			}
			if len(times) > 1 {
				t.Errorf("session %s was taken over %d times", id, len(times))
			}
		}
		before := bodies(t, others[0], theirs)
		time.Sleep(time.Until(stopped.Add(3 * lease)))
		begun := time.Now()
		sleeper.signal(t, syscall.SIGCONT)
		daemontest.Until(t, func() bool { // it stops by itself
			demoted := w.logged(logDemoted)
			for _, id := range theirs {
				if len(demoted[id]) == 0 {
					return false
				}
			}
			return true
		})
		w.same(t, theirs, w.nodes...)
		for _, n := range w.nodes {
			for i, body := range bodies(t, n, theirs) {
				if !bytes.Equal(body, before[i]) {
					changed++
					t.Errorf("%s: session %s is\n%s\nnow; it was\n%s", n.name, theirs[i/2], body, before[i])
				}
			}
		}
		for _, a := range w.since(sleeper.name, begun) {
			awake++
			t.Errorf("%v began %s after the node awoke", a.call, a.at.Sub(begun))
		}
		// A run notices a moment after its session was given up.
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			status, metrics := sleeper.Call(t, "GET", "/metrics", "")
			if status == http.StatusOK && strings.Contains(string(metrics), "councild_sessions_running 0\n") {
				break
			}
			if time.Now().After(end) {
				unaware++
				t.Errorf("sessions still run in the node that awoke: %d %s", status, metrics)
				break
			}
		}
	}
	again, twice := w.twice()
	for c, n := range again {
		if n > 1 {
			t.Errorf("%v was paid %d times", c, n+1)
		}
	}
	t.Logf("scale S03: measured %d times SIGSTOP for 3 leases: %d sessions taken over, the last one the lease and %.1f s after it; "+
		"after SIGCONT %d calls by the sleeper, %d logs changed, %d times sessions ran on there; %d calls paid twice, in flight "+
		"when it stopped; "+
		"%d sessions complete on every node, logs without gaps, records once; promised that all are taken over, and the sleeper "+
		"stores nothing and stops by itself",
		rounds, len(taken), (quantile(taken, 1) - lease).Seconds(), awake, changed, unaware, twice, len(ids))
}

// demand asks questions in the background, one node after the other, until stopped.
type demand struct {
	stop, stopped chan struct{}

	mu      sync.Mutex // guards all below
	ids     []string
	longest time.Duration
}

// ask begins to ask.
func (w *witness) ask(t *testing.T, what string) *demand {
	t.Helper()
	l := &demand{stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(l.stopped)
		var asking sync.WaitGroup
		defer asking.Wait()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			asking.Go(func() {
				n, begun := w.nodes[i%len(w.nodes)], time.Now()
				body := fmt.Sprintf(`{"query":"Question %d, %s?","background":true}`, i, what)
				resp, data, err := n.Send(t.Context(), "POST", "/v1/council", body)
				took := time.Since(begun)
				var s council.Summary
				if err != nil || resp.StatusCode != http.StatusAccepted || json.Unmarshal(data, &s) != nil {
					t.Errorf("%s: %s: question %d was not accepted after %s: %s %v", what, n.name, i, took, data, err)
					return
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.ids, l.longest = append(l.ids, s.ID), max(l.longest, took)
			})
		}
	}()
	return l
}

// end waits until all that was asked is accepted, and returns the longest time that this
// took: an append, and the pause before it.
func (l *demand) end() time.Duration {
	close(l.stop)
	<-l.stopped
	return l.longest
}

// cutOff cuts the links between a server and the others, or lets them through again.
func (c *cluster) cutOff(which *natsServer, cut bool) {
	for _, s := range c.servers {
		i := 0
		for _, other := range c.servers {
			if other == s {
				continue
			}
			if link := s.routes[i]; s == which || other == which {
				if cut {
					link.Cut()
				} else {
					link.Mend()
				}
			}
			i++
		}
	}
}

// The leader of the stream is killed, drained, or cut off from the two other servers: the
// appends pause, and no node takes over a session of another.
func TestScaleS05(t *testing.T) {
	w := watch(t, 3)
	lease := scaleLease()
	links := func(which *natsServer, cut bool) {
		for i, s := range w.servers {
			for _, n := range w.nodes {
				if s == which && cut {
					n.links[i].Cut()
				} else if s == which {
					n.links[i].Mend()
				}
			}
		}
	}
	faults := []struct {
		name string
		most time.Duration // that appends may pause
		play func(leader *natsServer)
		mend func(leader *natsServer)
	}{
		{"killed", 10 * time.Second, func(leader *natsServer) {
			leader.kill(t)
			time.Sleep(lease)
		}, func(leader *natsServer) { leader.start(t) }},
		{"drained", time.Second, func(leader *natsServer) {
			leader.signal(t, syscall.SIGUSR2) // as nats-server --signal ldm does
			<-leader.ended
		}, func(leader *natsServer) { leader.start(t) }},
		{"cut off, with the links of the daemons", 10 * time.Second, func(leader *natsServer) {
			w.cutOff(leader, true)
			links(leader, true)
			time.Sleep(lease + 5*time.Second)
		}, func(leader *natsServer) {
			w.cutOff(leader, false)
			links(leader, false)
		}},
		{"cut off, with a daemon", 10 * time.Second, func(leader *natsServer) {
			attached := w.nodes[0]
			for i, s := range w.servers {
				if s != leader {
					attached.links[i].Cut()
				}
			}
			begin(t, attached.Caller, "Question by way of the leader?")
			for _, l := range attached.links {
				l.Mend()
			}
			w.cutOff(leader, true)
			time.Sleep(lease + 5*time.Second)
		}, func(leader *natsServer) { w.cutOff(leader, false) }},
	}
	var ids, measured []string
	for _, fault := range faults {
		leader := w.leader(t)
		l := w.ask(t, fault.name)
		time.Sleep(time.Second)
		fault.play(leader)
		pause := l.end()
		fault.mend(leader)
		w.wait(t)
		for _, id := range l.ids {
			daemontest.Until(t, func() bool { // a leader of before may not have it yet
				status, _ := w.nodes[0].Call(t, "GET", "/v1/council/"+id, "")
				return status == http.StatusOK
			})
			ended(t, w.nodes[0].Caller, id)
		}
		ids = append(ids, l.ids...)
		measured = append(measured, fmt.Sprintf("%s: %.1f s (promised %s)", fault.name, pause.Seconds(), fault.most))
		t.Log(measured[len(measured)-1])
		if pause > fault.most && *scaleRounds >= 100 {
			t.Errorf("%s: appends paused for %s", fault.name, pause)
		}
	}
	w.same(t, ids, w.nodes...)
	taken := len(w.logged(logTookOver))
	again, twice := w.twice()
	if taken > 0 || twice > 0 {
		t.Errorf("%d sessions of living nodes were taken over, and %d calls paid twice: %v", taken, twice, again)
	}
	t.Logf("scale S05: measured the stream's leader %s: appends paused at most so long; %d sessions taken over, %d calls paid twice; "+
		"%d sessions complete on every node, logs without gaps, records once; promised nothing taken over and nothing lost",
		strings.Join(measured, "; "), taken, twice, len(ids))
}

// shifted builds a package into a program whose wall clock is CLOCK_SHIFT seconds ahead.
func shifted(t *testing.T, name, path string) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const now = "	sec, nsec, mono := runtimeNow()\n"
	text := strings.Replace(string(source), now, now+"	sec += shift\n", 1)
	if text == string(source) || !strings.Contains(text, "import (\n") {
		t.Fatalf("%s has another Now", original)
	}
	text = strings.Replace(text, "import (\n", "import (\n\t\"syscall\"\n", 1) + `
var shift = func() (n int64) {
	text, _ := syscall.Getenv("CLOCK_SHIFT")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			n = 10*n + int64(c-'0')
		}
	}
	return sign * n
}()
`
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: filepath.Join(dir, "time.go")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "time.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, name)
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, path)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// clock sets how many hours the clock of a node is ahead at its next start.
func (n *node) clock(hours int) {
	n.ahead = time.Duration(hours) * time.Hour
	n.env = append(n.env, fmt.Sprintf("CLOCK_SHIFT=%d", hours*3600))
}

// The clocks of three nodes are an hour apart: the deadlines of sessions that change nodes
// stay where they are. All nodes and servers are gone for an hour: their sessions go on.
func TestScaleS13(t *testing.T) {
	const timeout = 30 * time.Second // of a session: its first stage has 40 % of it
	program, server := shifted(t, "councild", "."), shifted(t, "nats-server", "github.com/nats-io/nats-server/v2")
	w := &witness{trial: &trial{cluster: startCluster(t), paid: newPaid()}, held: map[call]*held{}}
	for i := range 3 {
		n := w.add(t, fmt.Sprintf("node %d", i+1))
		n.program = program
		n.env = append(n.env, "LLM_COUNCIL_SESSION_RETENTION=30m") // by the clock of the servers
		n.clock(i - 1)
		n.start(t)
	}
	apart := func() { // the programs do what they are built for
		for _, n := range w.nodes {
			resp, _, err := n.Send(t.Context(), "GET", "/healthz", "")
			if err != nil {
				t.Fatal(err)
			}
			date, err := http.ParseTime(resp.Header.Get("Date"))
			if ahead := time.Until(date).Round(time.Minute); err != nil || ahead != n.ahead {
				t.Fatalf("%s: the clock is %s ahead, not %s: %v", n.name, ahead, n.ahead, err)
			}
		}
	}
	apart()

	// All are gone for an hour.
	var ids []string
	var releases []func()
	for _, n := range w.nodes {
		for _, c := range []call{{"", simllm.Question, "d"}, {"", simllm.Review, "d"}, {"", simllm.Synthesis, "scribe"}} {
			c.question = fmt.Sprintf("Question to %s, gone in %s?", n.name, c.kind)
			h, release := w.hold(t, c, false)
			releases = append(releases, release)
			ids = append(ids, begin(t, n.Caller, c.question))
			h.wait(t)
		}
	}
	for _, n := range w.nodes {
		n.kill(t)
	}
	for _, s := range w.servers {
		s.kill(t)
	}
	for _, release := range releases {
		release()
	}
	for _, s := range w.servers {
		s.program = server
		s.env = append(s.env, "CLOCK_SHIFT=3600")
		s.start(t)
	}
	w.wait(t)
	back := time.Now()
	for i, n := range w.nodes {
		n.clock(i)
		n.start(t)
	}
	apart()
	w.same(t, ids, w.nodes...)
	took := time.Since(back)

	// A model does not answer: its stage ends at its deadline, also on the next node.
	var off []time.Duration
	for i, n := range w.nodes {
		question := fmt.Sprintf("Question %d that a model does not answer?", i)
		h, _ := w.hold(t, call{question, simllm.Question, "d"}, false)
		status, body := n.Call(t, "POST", "/v1/council",
			fmt.Sprintf(`{"query":%q,"background":true,"timeout_seconds":%d}`, question, int(timeout.Seconds())))
		var s council.Session
		if err := json.Unmarshal(body, &s); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, body)
		}
		id, accepted := s.ID, time.Now()
		h.wait(t)
		daemontest.Until(t, func() bool { // the other answers are stored
			_, body := n.Call(t, "GET", "/v1/council/"+id, "")
			return json.Unmarshal(body, &s) == nil && len(s.Stage1) == 3
		})
		elapsed := time.Since(accepted)
		n.kill(t)
		daemontest.Until(t, func() bool { return len(w.logged(logTookOver)[id]) > 0 })
		due := w.logged(logTookOver)[id][0].Add(timeout*2/5 - elapsed)
		w.paid.wait(t, call{question, simllm.Review, "a"})
		off = append(off, time.Since(due).Abs())
		t.Logf("the clock %s ahead: the first stage ended %s after its deadline", n.ahead, time.Since(due))
		n.start(t)
		for _, n := range w.nodes {
			if s := ended(t, n.Caller, id); s.Status != council.StatusDegraded { // without the answer
				t.Errorf("%s: session %s is %s", n.name, id, s.Status)
			}
		}
	}
	if longest := quantile(off, 1); longest > time.Second {
		t.Errorf("a stage ended %s from its deadline", longest)
	}
	again, twice := w.twice()
	for c, n := range again {
		if n > 1 {
			t.Errorf("%v was paid %d times", c, n+1)
		}
	}
	t.Logf("scale S13: measured clocks an hour apart: a stage that %d killed nodes had begun ended on another one at most %d "+
		"ms from its deadline; "+
		"all nodes and servers gone for an hour: %d sessions complete on every node, %.1f s after the servers were back, logs "+
		"without gaps, records once; "+
		"%d calls paid twice, in flight when the nodes were killed; promised deadlines within 1 s, and that sessions go on",
		len(off), quantile(off, 1).Milliseconds(), len(ids), took.Seconds(), twice)
}

// A session that kills whatever node runs it: after three it ends with what there is.
func TestScaleS14(t *testing.T) {
	w := watch(t, 3)
	var measured []string
	for _, poison := range []struct {
		call
		status council.Status
		ends   string
	}{
		{call{"Question that kills in stage 1?", simllm.Question, "d"}, council.StatusFailed, "failed, interrupted, with 3 answers"},
		{call{"Question that kills in stage 3?", simllm.Synthesis, "scribe"}, council.StatusDegraded, "degraded, with the " +
			"top-ranked answer"},
	} {
		w.hold(t, poison.call, false)
		id := begin(t, w.nodes[0].Caller, poison.question)
		owners := 0
		var last time.Time
		for owners < 4 {
			var killer *node
			daemontest.Until(t, func() bool { // a node asks for it, or the session has ended
				killer = nil
				for _, n := range w.nodes {
					for _, a := range w.since(n.name, last) {
						if a.call == poison.call {
							killer, last = n, a.at
							return true
						}
					}
				}
				for _, s := range w.nodes[owners%3].list(t) {
					if s.ID == id && s.Status != council.StatusRunning {
						return true
					}
				}
				return false
			})
			if killer == nil {
				break
			}
			owners++
			other := w.nodes[(slices.Index(w.nodes, killer)+1)%3]
			daemontest.Until(t, func() bool { // the other answers are stored
				var s council.Session
				_, body := other.Call(t, "GET", "/v1/council/"+id, "")
				return json.Unmarshal(body, &s) == nil && len(s.Stage1) >= 3
			})
			killer.kill(t)
			killer.start(t)
		}
		if owners != 3 {
			t.Errorf("%s: %d nodes were killed", poison.question, owners)
		}
		var first []byte
		for _, n := range w.nodes {
			var s council.Session
			daemontest.Until(t, func() bool {
				_, body := n.Call(t, "GET", "/v1/council/"+id, "")
				if first == nil {
					first = body
				}
				return json.Unmarshal(body, &s) == nil && s.Status != council.StatusRunning
			})
			_, stream := n.Call(t, "GET", "/v1/council/"+id+"/events", "")
			events := daemontest.Events(t, stream)
			end := events[len(events)-1]
			if s.Status != poison.status || len(s.Stage1) < 3 {
				t.Errorf("%s: %s: the session is %s with %d answers", n.name, poison.question, s.Status, len(s.Stage1))
			}
			switch failure, failed := end.Data.(*council.Error); {
			case failed != (s.Status == council.StatusFailed), failed && failure.Code != council.CodeInterrupted:
				t.Errorf("%s: %s: the session ends with %v", n.name, poison.question, failure)
			case failed:
			case s.Stage3 == nil || s.Stage3.Fallback == nil || *s.Stage3.Fallback != council.FallbackTopRanked || s.Answer == "":
				t.Errorf("%s: %s: the session ends with %+v", n.name, poison.question, s.Stage3)
			case !hasWarning(s, council.WarnTakenOver):
				t.Errorf("%s: %s: no warning: %v", n.name, poison.question, s.Metadata.Warnings)
			}
		}
		again, _ := w.twice()
		for c, n := range again {
			if c.question == poison.question && (c != poison.call || n != 2) {
				t.Errorf("%v was paid %d times", c, n+1)
			}
		}
		measured = append(measured, fmt.Sprintf("%s after %d owners", poison.ends, owners))
	}
	// The nodes are as good as before.
	id := begin(t, w.nodes[0].Caller, "Question after all that?")
	ended(t, w.nodes[1].Caller, id)
	t.Logf("scale S14: measured a session that kills its node in stage 1 and one in stage 3: %s; its call was paid once by "+
		"each owner, no other twice; "+
		"promised three owners, and then the best that landed", strings.Join(measured, ", "))
}
