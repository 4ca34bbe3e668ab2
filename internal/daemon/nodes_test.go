package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// testLease is the lease of the tests, and the shortest that they use.
const testLease = 2 * time.Second

// nodes starts daemons on clusters at these addresses.
func nodes(t *testing.T, env map[string]string, urls ...string) []*daemontest.Daemon {
	t.Helper()
	return nodesOf(t, testLease, env, urls...)
}

// nodesOf is nodes with a lease.
func nodesOf(t *testing.T, lease time.Duration, env map[string]string, urls ...string) []*daemontest.Daemon {
	t.Helper()
	var all []*daemontest.Daemon
	for _, url := range urls {
		settings := map[string]string{"NATS_URL": url, "DRAIN_TIMEOUT": "600ms"}
		maps.Copy(settings, env)
		all = append(all, daemontest.Start(t, settings, func(c *config.Config) { c.Lease = lease }))
	}
	return all
}

// there waits until a node lists a session.
func there(t *testing.T, d *daemontest.Daemon, id string) {
	t.Helper()
	daemontest.Until(t, func() bool {
		_, list := d.Call(t, "GET", "/v1/council", "")
		return bytes.Contains(list, []byte(id))
	})
}

// state returns a session as a node has it.
func state(t *testing.T, d *daemontest.Daemon, id string) (s council.Session) {
	t.Helper()
	status, data := d.Call(t, "GET", "/v1/council/"+id, "")
	if err := json.Unmarshal(data, &s); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	return s
}

// next returns the first events of a session behind an id, up to n of them. It tells each
// of each one that comes.
func next(t *testing.T, d *daemontest.Daemon, id, behind string, n int, each ...func(client.LoggedEvent)) (events []client.LoggedEvent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", d.Base+"/v1/council/"+id+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if behind != "" {
		req.Header.Set("Last-Event-ID", behind)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("behind %q: %s", behind, resp.Status)
	}
	for e, err := range client.ReadEvents(resp.Body) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range each {
			f(e)
		}
		if events = append(events, e); len(events) == n {
			break
		}
	}
	return events
}

// ended watches a session to its end, and returns it.
func ended(t *testing.T, d *daemontest.Daemon, id string) *council.Session {
	t.Helper()
	events := next(t, d, id, "", 0)
	last, err := events[len(events)-1].Decode()
	if err != nil {
		t.Fatal(err)
	}
	s, ok := last.Data.(*council.Session)
	if !ok {
		t.Fatalf("the session ends with %+v", last)
	}
	return s
}

// Every node shows and cancels the sessions of the others.
func TestNodes(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	urls := []string{cluster.URL, cluster.URL, cluster.URL}

	t.Run("events", func(t *testing.T) {
		members := daemontest.Members()
		members[3].ChunkDelay, members[3].Length = 10*time.Millisecond, 3
		watched := map[council.EventType]chan struct{}{council.EventStarted: make(chan struct{}), council.EventStage2: make(chan struct{})}
		see := map[council.EventType]func(){}
		for event, seen := range watched {
			see[event] = sync.OnceFunc(func() { close(seen) })
			defer see[event]()
		}
		for i := range members { // they write when somebody watches
			members[i].Reply = func(task simllm.Task) (string, bool) {
				switch task.Kind {
				case simllm.Question:
					<-watched[council.EventStarted]
				case simllm.Synthesis:
					<-watched[council.EventStage2]
				default:
				}
				return "", false
			}
		}
		members[0].ChunkDelay, members[1].ChunkDelay = 20*time.Millisecond, 30*time.Millisecond
		sim := daemontest.Provider(t, members...)
		all := nodes(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c", "CHAIRMAN": "d"}, urls...)
		id := background(t, all[0], "Who watches from elsewhere?")
		there(t, all[1], id)
		there(t, all[2], id)
		live := make(chan map[council.EventType]int)
		go func() { // text comes as it is written, not as it is stored
			within := map[council.EventType]int{}
			next(t, all[2], id, "", 0, func(e client.LoggedEvent) {
				if see[e.Type] != nil {
					see[e.Type]()
				}
				if strings.Contains(e.ID, ".") {
					within[e.Type]++
				}
			})
			live <- within
		}()
		var texts daemontest.Texts
		var session *council.Session
		behind, number := "", 0
		for i := 0; session == nil; i++ {
			got := next(t, all[i%3], id, behind, 1)
			if len(got) == 0 {
				t.Fatalf("nothing behind %q", behind)
			}
			inTexts := strings.Count(behind, ".") // which may have been read whole
			behind = got[0].ID
			event, err := got[0].Decode()
			if err != nil {
				t.Fatal(err)
			}
			var whole int
			if _, err := fmt.Sscanf(behind, "%d", &whole); err != nil || whole < number || whole > number+1+inTexts {
				t.Fatalf("event %q behind event %d", behind, number)
			}
			number = whole
			if err := texts.Take(event); err != nil {
				t.Error(err)
			}
			if done, ok := event.Data.(*council.Session); ok {
				session = done
			}
		}
		if session.Status != council.StatusComplete || texts.Final != session.Answer || len(texts.Answers) != 3 {
			t.Errorf("%s: the text is %q, the answer %q; %d members wrote", session.Status, texts.Final, session.Answer, len(texts.Answers))
		}
		if within := <-live; within[council.EventDelta] < 10 || within[council.EventAnswerDelta] < 5 {
			t.Errorf("pieces of text that came as they were written: %v", within)
		}
		for _, d := range all {
			if s := state(t, d, id); s.Answer != session.Answer {
				t.Errorf("a node shows %+v", s)
			}
		}
		plain := all[0].Ask(t, anyQuestion)
		there(t, all[1], plain.ID)
		if s := state(t, all[1], plain.ID); s.Answer != plain.Answer {
			t.Errorf("another node shows %+v", s)
		}
		if status, data := all[1].Call(t, "DELETE", "/v1/council/"+id, ""); status != http.StatusNoContent {
			t.Errorf("%d %s", status, data)
		}
		daemontest.Until(t, func() bool {
			status, _ := all[0].Call(t, "GET", "/v1/council/"+id, "")
			return status == http.StatusNotFound
		})
	})

	t.Run("delete", func(t *testing.T) {
		url, arrived, _ := daemontest.Held(t)
		all := nodes(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"}, urls[:2]...)
		id := background(t, all[0], "Who cancels it?")
		<-arrived
		there(t, all[1], id)
		begun := time.Now()
		if status, data := all[1].Call(t, "DELETE", "/v1/council/"+id, ""); status != http.StatusAccepted {
			t.Fatalf("%d %s", status, data)
		}
		events := next(t, all[1], id, "", 0)
		if last := events[len(events)-1]; last.Type != council.EventFailed || !strings.Contains(string(last.Data), "cancelled") {
			t.Errorf("the session ends with %s", last.Data)
		}
		t.Logf("cancelled after %s", time.Since(begun).Round(time.Millisecond))
	})

	t.Run("one key", func(t *testing.T) {
		p := tap(t)
		all := nodes(t, map[string]string{"BASE_URL": p.url, "MODELS": "a,b,c"}, urls...)
		bodies := make([][]byte, 12)
		var wg sync.WaitGroup
		for i := range bodies {
			wg.Go(func() {
				_, body, err := all[i%3].Send(t.Context(), "POST", "/v1/council", anyQuestion, "Idempotency-Key", "once")
				if err != nil {
					t.Error(err)
				}
				bodies[i] = body
			})
		}
		wg.Wait()
		for _, body := range bodies {
			if !bytes.Equal(body, bodies[0]) || !bytes.Contains(body, []byte(`"status":"complete"`)) {
				t.Fatalf("got %s and %s", body, bodies[0])
			}
		}
		if len(p.bodies) != 7 {
			t.Errorf("%d calls, want 7", len(p.bodies))
		}
	})

	t.Run("notice", func(t *testing.T) { // a balancer needs a moment to see that a node stops
		d := nodes(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "DRAIN_TIMEOUT": "9s"}, cluster.URL)[0]
		d.Stop()
		daemontest.Until(t, func() bool {
			status, _ := d.Call(t, "GET", "/readyz", "")
			return status == http.StatusServiceUnavailable
		})
		d.Ask(t, `{"query":"Who comes late?"}`)
		begun := time.Now()
		for refused := false; !refused; { // nothing runs, but it answers until the notice is over
			resp, data, err := d.Send(t.Context(), "POST", "/v1/council", `{"query":"Who comes too late?"}`)
			refused = err != nil || resp.StatusCode == http.StatusServiceUnavailable
			if err == nil && !refused && resp.StatusCode != http.StatusOK {
				t.Fatalf("%s %s", resp.Status, data)
			}
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("new sessions are taken for %s", took)
		}
	})

	t.Run("hand over", func(t *testing.T) {
		url, arrived, release := daemontest.Held(t)
		all := nodesOf(t, time.Minute, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick", "DRAIN_TIMEOUT": "10ms"}, urls[:2]...)
		id := background(t, all[0], "Who ends it?")
		<-arrived
		there(t, all[1], id)
		all[0].Stop()
		<-arrived // long before the lease is over
		release()
		if s := ended(t, all[1], id); s.Status != council.StatusComplete {
			t.Errorf("the session is %s: %v", s.Status, daemontest.Missing(*s))
		}
	})
}

// A session whose node is gone can be cancelled: the node that was asked ends it.
func TestDeleteWithoutOwner(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	url, arrived, _ := daemontest.Held(t)
	all := nodes(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"}, link.URL, cluster.URL)
	id := background(t, all[0], "Who ends it?")
	<-arrived
	there(t, all[1], id)
	link.Cut()
	if status, data := all[1].Call(t, "DELETE", "/v1/council/"+id, ""); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, data)
	}
	begun := time.Now()
	events := next(t, all[1], id, "", 0)
	if last := events[len(events)-1]; last.Type != council.EventFailed || !strings.Contains(string(last.Data), "cancelled") {
		t.Errorf("the session ends with %s", last.Data)
	}
	t.Logf("cancelled after %s", time.Since(begun).Round(time.Millisecond))
	if len(arrived) > 0 {
		t.Error("a call was made for a session that is to be cancelled")
	}
	link.Mend() // the first node ends its run
	daemontest.Until(t, func() bool { return state(t, all[0], id).Status != council.StatusRunning })
}

// The sessions of a node that is cut off are taken over. It begins no call meanwhile, and
// follows its sessions when it is back.
func TestTakeOver(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	url, arrived, release := daemontest.Held(t)
	all := nodes(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"}, link.URL, cluster.URL, cluster.URL)
	id := background(t, all[0], "Who goes on?")
	<-arrived
	there(t, all[1], id)
	there(t, all[2], id)
	daemontest.Until(t, func() bool { return len(state(t, all[1], id).Stage1) == 1 })
	results := make(chan *council.Session, 3)
	for _, d := range all {
		go func() { results <- ended(t, d, id) }()
	}
	link.Cut()
	cut := time.Now()
	<-arrived
	took := time.Since(cut)
	if took < testLease/2 { // trials measure how long it may take
		t.Errorf("taken over after %s, with a lease of %s", took, testLease)
	}
	link.Mend()
	release()
	for range all {
		s := <-results
		if s.Status != council.StatusComplete {
			t.Errorf("the session is %s: %v", s.Status, daemontest.Missing(*s))
		}
		if !slices.ContainsFunc(s.Metadata.Warnings, func(w council.Warning) bool { return w.Code == council.WarnTakenOver }) {
			t.Errorf("the warnings are %v", s.Metadata.Warnings)
		}
	}
	t.Logf("taken over %s after the cut, with a lease of %s", took.Round(time.Millisecond), testLease)
}
