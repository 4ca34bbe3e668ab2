package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var scaleRounds = flag.Int("scale", 20, "how often the trials kill a daemon; from 100 on they are the long ones")

// paid are the calls that a provider has seen. A call that comes again must not have
// landed before: it may have been in flight when the daemon was killed.
type paid struct {
	linger func(call) time.Duration // how much longer a call takes; nil: no longer
	lands  time.Duration            // landing or clusterLanding
	writes time.Duration            // how long after its first byte the last one of a synthesis leaves

	mu     sync.Mutex // guards all below
	begun  map[call]int
	since  map[call]time.Time     // when it began first
	first  map[call]chan struct{} // closed when the call has begun
	ended  map[call]time.Time     // when the last byte of the reply was ready
	killed []time.Time            // when nodes were killed
	again  []call                 // of a stage before the one in which the daemon was killed
	late   []call                 // which ended longer than lands before
	held   map[call]chan struct{}
}

func newPaid() *paid {
	return &paid{
		lands: clusterLanding, writes: 250 * time.Millisecond,
		begun: map[call]int{}, since: map[call]time.Time{}, first: map[call]chan struct{}{}, ended: map[call]time.Time{}, held: map[call]chan struct{}{},
	}
}

// call is what a model is asked to do for a question.
type call struct {
	question string
	kind     simllm.TaskKind
	model    string
}

// The time that a reply takes from the provider into the log at most, inside and on a
// cluster, unless the machine is busy with other things: a short trial does not judge it.
const (
	landing        = 150 * time.Millisecond
	clusterLanding = 500 * time.Millisecond
)

// next is the kind of call that begins only when all of the kind before are stored.
var next = map[simllm.TaskKind]simllm.TaskKind{simllm.Question: simllm.Review, simllm.Review: simllm.Synthesis}

func (p *paid) begin(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun[c]++
	if p.begun[c] > 1 {
		if ended, ok := p.ended[c]; ok {
			// Its node was the next that was killed, perhaps before the reply was ready: later
			// ones may be gone before it is taken over.
			next := slices.IndexFunc(p.killed, func(at time.Time) bool { return at.After(p.since[c]) })
			if next >= 0 && p.killed[next].Sub(ended) > p.lands {
				p.late = append(p.late, c)
			}
		}
		for other := range p.begun {
			if other.question == c.question && other.kind == next[c.kind] {
				p.again = append(p.again, c)
			}
		}
	}
	if p.begun[c] == 1 {
		p.since[c] = time.Now()
		close(p.firstLocked(c))
	}
}

// kill notes that a node is being killed, and returns the time.
func (p *paid) kill() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = append(p.killed, time.Now())
	return p.killed[len(p.killed)-1]
}

func (p *paid) firstLocked(c call) chan struct{} {
	if p.first[c] == nil {
		p.first[c] = make(chan struct{})
	}
	return p.first[c]
}

// wait waits until a call has begun.
func (p *paid) wait(t *testing.T, c call) {
	t.Helper()
	p.mu.Lock()
	begun := p.firstLocked(c)
	p.mu.Unlock()
	select {
	case <-begun:
	case <-time.After(time.Minute):
		t.Fatalf("%v does not begin", c)
	}
}

func (p *paid) end(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[c] = time.Now()
	if c.kind == simllm.Synthesis {
		p.ended[c] = time.Now().Add(p.writes)
	}
}

// hold has the replies to a call, which has not begun yet, wait until release.
func (p *paid) hold(c call) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	p.held[c] = held
	return sync.OnceFunc(func() { close(held) })
}

// twice returns the calls that have begun more than once.
func (p *paid) twice() (calls []call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, n := range p.begun {
		if n > 1 {
			calls = append(calls, c)
		}
	}
	return calls
}

// judge returns how many calls were made again. None of them may belong to a stage that
// had ended, or be made more often than the session can have had nodes.
func (p *paid) judge(t *testing.T, nodes int) (twice int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, n := range p.begun {
		if twice += n - 1; n > nodes {
			t.Errorf("%v was paid %d times", c, n)
		}
	}
	if len(p.again) > 0 {
		t.Errorf("paid twice, although the next stage had begun: %v", p.again)
	}
	if len(p.late) > 0 && *scaleRounds >= 100 {
		t.Errorf("paid twice, although the reply had landed: %v", p.late)
	}
	return twice
}

// models are four members and a chairman that writes for a quarter of a second. Every
// call is noted.
func (p *paid) models() []simllm.Model {
	models := daemontest.Members()
	models = append(models, simllm.Model{Name: "scribe", Spread: 1, ChunkDelay: 5 * time.Millisecond})
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			c := call{task.Question, task.Kind, task.Model}
			p.begin(c)
			took := time.Duration(20+10*i) * time.Millisecond // models do not answer at once
			if p.linger != nil {
				took += p.linger(c)
			}
			time.Sleep(took)
			p.mu.Lock()
			held := p.held[c]
			p.mu.Unlock()
			if held != nil {
				<-held
			}
			defer p.end(c)
			if task.Kind == simllm.Synthesis {
				return strings.Repeat("word ", 50), true
			}
			return "", false
		}
	}
	return models
}

// moments are when the daemon is killed: so long after the call of a kind and a model
// began.
var moments = []struct {
	name  string
	kind  simllm.TaskKind // "": after the question was sent
	model string
	after time.Duration // at most
}{
	{"before the session is accepted, or just after", "", "", 4 * time.Millisecond},
	{"in stage 1", simllm.Question, "d", 40 * time.Millisecond},
	{"between answers and reviews", simllm.Question, "d", 80 * time.Millisecond},
	{"in stage 2", simllm.Review, "d", 40 * time.Millisecond},
	{"between reviews and the synthesis", simllm.Review, "d", 80 * time.Millisecond},
	{"in the text", simllm.Synthesis, "scribe", 300 * time.Millisecond},
	{"at the end", simllm.Synthesis, "scribe", 380 * time.Millisecond},
}

// servedHere starts a daemon of four members alone on this machine, and returns how to kill it. The directory of
// sessions must be named "sessions".
func servedHere(t *testing.T, sim *simllm.Running, records, sessions string) (caller daemontest.Caller, kill func()) {
	t.Helper()
	d := start(t, []string{
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + sim.URL(), "LLM_COUNCIL_MODELS=a,b,c,d", "LLM_COUNCIL_CHAIRMAN=scribe",
		"LLM_COUNCIL_BIAS_STORE=" + filepath.Join(records, "records.jsonl"), "LLM_COUNCIL_DATA_DIR=" + filepath.Dir(sessions),
	}, "serve")
	url, _, _ := strings.Cut(line(t, d.stderr, `"msg":"listening","url":"`), `"`) // or it does not start
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		_, _ = io.Copy(io.Discard, d.stderr)
	}()
	return daemontest.Caller{Base: url}, func() {
		t.Helper()
		if err := d.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-logged
		_ = d.Wait() // that it was killed
	}
}

// A daemon that is killed in a session goes on with it when it is started again: what
// landed is not paid for twice, the records are there once, and a watcher reads a log
// without gaps.
func TestScaleS01(t *testing.T) {
	testkit.Slow(t)
	p := newPaid()
	p.lands = landing
	sim := daemontest.Provider(t, p.models()...)
	dir := t.TempDir()
	serve := func() (daemontest.Caller, func()) { return servedHere(t, sim, dir, filepath.Join(dir, "sessions")) }
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	whole, again, longest := 0, 0, time.Duration(0)
	for round := range *scaleRounds {
		moment := moments[round%len(moments)]
		question := fmt.Sprintf("Question %d?", round)
		caller, kill := serve()
		sent := make(chan string, 1) // the id of the session, "" where it was not accepted
		go func() {
			resp, body, err := caller.Send(t.Context(), "POST", "/v1/council", fmt.Sprintf(`{"query":%q,"background":true}`, question))
			var s council.Summary
			if err == nil && resp.StatusCode == http.StatusAccepted && json.Unmarshal(body, &s) != nil {
				t.Errorf("%s", body)
			}
			sent <- s.ID
		}()
		if moment.kind != "" {
			p.wait(t, call{question, moment.kind, moment.model})
		}
		time.Sleep(time.Duration(rng.Int64N(int64(moment.after))))
		p.kill()
		kill()
		id := <-sent

		begun := time.Now()
		caller, kill = serve()
		if id != "" {
			s := ended(t, caller, id)
			longest = max(longest, time.Since(begun))
			if s.Status != council.StatusComplete || !s.Persisted {
				t.Errorf("%s: the session is %s, persisted %v: %v", moment.name, s.Status, s.Persisted, s.Metadata.Warnings)
			}
			if hasWarning(s, council.WarnTakenOver) {
				again++
			}
			whole++
			gapless(t, caller, id, moment.name)
		}
		kill()
	}
	records := map[string]int{}
	for _, r := range daemontest.Records(t, filepath.Join(dir, "records.jsonl")) {
		records[r.SessionID]++
	}
	for id, n := range records {
		if n != 12 {
			t.Errorf("session %s has %d records of 12", id, n)
		}
	}
	twice := p.judge(t, 2)
	t.Logf("scale S01: %d times kill -9: %d sessions accepted and all of them complete, %d of them said that calls may have been paid twice; "+
		"%d calls were, %d of them more than %s after their reply; records of %d sessions, each once; ended at most %d ms after the start",
		*scaleRounds, whole, again, twice, len(p.late), p.lands, len(records), longest.Milliseconds())
}

func hasWarning(s council.Session, code council.WarningCode) bool {
	for _, w := range s.Metadata.Warnings {
		if w.Code == code {
			return true
		}
	}
	return false
}

// ended waits until a session has ended, by its events, and returns it.
func ended(t *testing.T, caller daemontest.Caller, id string) (s council.Session) {
	t.Helper()
	c, err := client.New(client.Options{URL: caller.Base, Token: caller.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := c.Watch(t.Context(), id, council.ObserverFunc(func(council.Event) {}))
	if err != nil {
		t.Fatalf("session %s: %v", id, err)
	}
	return *session
}

// gapless reads the whole log of a session that has ended: its text is what the
// synthesis says, each answer and ballot is there once, and the numbers have no gap.
func gapless(t *testing.T, caller daemontest.Caller, id, when string) {
	t.Helper()
	status, stream := caller.Call(t, "GET", "/v1/council/"+id+"/events", "")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, stream)
	}
	count := map[council.EventType]int{}
	var texts daemontest.Texts
	n := 0
	for e, err := range client.ReadEvents(bytes.NewReader(stream)) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; e.ID != strconv.Itoa(n) {
			t.Errorf("%s: event %d has the id %s", when, n, e.ID)
		}
		count[e.Type]++
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if err := texts.Take(event); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	for event, want := range map[council.EventType]int{
		council.EventStarted: 1, council.EventAnswer: 4, council.EventStage1: 1, council.EventBallot: 4, council.EventStage2: 1,
		council.EventStage3: 1, council.EventDone: 1,
	} {
		if count[event] != want {
			t.Errorf("%s: %d times %s, want %d", when, count[event], event, want)
		}
	}
}

// A daemon starts whatever was cut off or overwritten in its directory of sessions. Each
// session is then as it was, or ends as interrupted, or is gone.
func TestScaleS09(t *testing.T) {
	testkit.Slow(t)
	p := newPaid()
	sim := daemontest.Provider(t, p.models()...)
	serve := func(dir string) (daemontest.Caller, func()) { return servedHere(t, sim, t.TempDir(), dir) }

	// Two sessions that have ended, and one in stage 2.
	whole := filepath.Join(t.TempDir(), "sessions")
	caller, kill := serve(whole)
	bodies := map[string]string{}
	var ids []string
	for i := range 3 {
		status, body := caller.Call(t, "POST", "/v1/council", fmt.Sprintf(`{"query":"Question %d?","background":true}`, i))
		var s council.Summary
		if err := json.Unmarshal(body, &s); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, body)
		}
		ids = append(ids, s.ID)
		if i < 2 {
			ended(t, caller, s.ID)
			_, body = caller.Call(t, "GET", "/v1/council/"+s.ID, "")
			bodies[s.ID] = string(body)
			continue
		}
		p.wait(t, call{"Question 2?", simllm.Review, "d"})
	}
	kill()

	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	var files []string
	if err := filepath.WalkDir(whole, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "lock" {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	var how string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the last damage was to", how)
		}
	})
	for range *scaleRounds {
		dir := filepath.Join(t.TempDir(), "sessions")
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		file := files[rng.IntN(len(files))]
		relative, err := filepath.Rel(whole, file)
		if err != nil {
			t.Fatal(err)
		}
		damaged := filepath.Join(dir, relative)
		data, err := os.ReadFile(damaged)
		if err != nil {
			t.Fatal(err)
		}
		how = fmt.Sprintf("%s of %d bytes", relative, len(data))
		if at := rng.IntN(len(data) + 1); rng.IntN(2) == 0 {
			data, how = data[:at], fmt.Sprintf("%s, cut at %d", how, at)
		} else {
			for i := at; i < min(at+64, len(data)); i++ {
				data[i] = byte(rng.Uint32())
			}
			how = fmt.Sprintf("%s, overwritten from %d", how, at)
		}
		if err := os.WriteFile(damaged, data, 0o600); err != nil {
			t.Fatal(err)
		}
		caller, kill := serve(dir)
		for i, id := range ids {
			status, body := caller.Call(t, "GET", "/v1/council/"+id, "")
			var s council.Session
			switch {
			case status == http.StatusNotFound:
				outcomes["gone"]++
			case status != http.StatusOK:
				t.Errorf("%s: session %d: %d %s", how, i, status, body)
			case i == 2:
				c, err := client.New(client.Options{URL: caller.Base, Token: caller.Token})
				if err != nil {
					t.Fatal(err)
				}
				session, err := c.Watch(t.Context(), id, council.ObserverFunc(func(council.Event) {}))
				c.Close()
				e, failed := errors.AsType[*council.Error](err)
				switch {
				case failed && e.Code == council.CodeInterrupted:
					outcomes["interrupted"]++
				case err == nil && session.Status == council.StatusComplete:
					outcomes["gone on with"]++
				default:
					t.Errorf("%s: session %d ends with %v", how, i, err)
				}
			case json.Unmarshal(body, &s) != nil:
				t.Errorf("%s: session %d: %s", how, i, body)
			case string(body) == bodies[id]:
				outcomes["as it was"]++
			default: // its end is lost: it was gone on with
				outcomes["gone on with"]++
			}
		}
		kill()
	}
	t.Logf("scale S09: %d times a file of %d was cut or overwritten: the daemon started every time; of its sessions %d were as before, "+
		"%d were gone on with, %d ended as interrupted, %d were gone",
		*scaleRounds, len(files), outcomes["as it was"], outcomes["gone on with"], outcomes["interrupted"], outcomes["gone"])
}
