//go:build scale

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// traffic is what the clients of a rolling restart saw.
type traffic struct {
	mu      sync.Mutex // guards all below
	begun   int        // requests that begin a session
	kept    []string   // sessions that outlive their client, and their nodes
	plain   []string   // others that were answered
	cut     int        // sessions longer than DRAIN_TIMEOUT that their node cut off
	sent    int        // requests with a key that were sent again, because the node of the session stopped
	quick   []time.Duration
	refused []string
	lost    []string // sessions that ended otherwise than they should
}

// slowly is in the questions that take longer than DRAIN_TIMEOUT.
const slowly = "Slowly"

// watch asks in the background, and watches the session to its end.
func (l *traffic) watch(ctx context.Context, c *client.Client, question string) {
	s, err := c.Start(ctx, council.Submission{Request: council.Request{Query: question}})
	l.mu.Lock()
	l.begun++
	if err != nil {
		l.refused = append(l.refused, err.Error())
	} else {
		l.kept = append(l.kept, s.ID)
	}
	l.mu.Unlock()
	if err != nil {
		return
	}
	if _, err := c.Watch(ctx, s.ID, council.ObserverFunc(func(council.Event) {})); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = append(l.lost, s.ID+": "+err.Error())
	}
}

// ask asks in the foreground, with a key unless it is "", and again where the node of the
// key's session stops meanwhile.
func (l *traffic) ask(ctx context.Context, caller daemontest.Caller, question, key string) {
	var headers []string
	if key != "" {
		headers = []string{"Idempotency-Key", key}
	}
	begun := time.Now()
	for {
		resp, data, err := caller.Send(ctx, "POST", "/v1/council", fmt.Sprintf(`{"query":%q}`, question), headers...)
		if again := l.answered(resp, data, err, question, key, begun); !again {
			return
		}
	}
}

func (l *traffic) answered(resp *http.Response, data []byte, err error, question, key string, begun time.Time) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s council.Session
	var p council.Problem
	slow := strings.HasPrefix(question, slowly)
	switch {
	case err != nil:
		l.refused = append(l.refused, err.Error())
	case resp.StatusCode == http.StatusOK && json.Unmarshal(data, &s) == nil && s.Status == council.StatusComplete:
		if l.begun++; !slow {
			l.quick = append(l.quick, time.Since(begun))
		}
		if key == "" {
			l.plain = append(l.plain, s.ID)
		} else {
			l.kept = append(l.kept, s.ID)
		}
	case json.Unmarshal(data, &p) != nil || p.SessionID == "":
		l.refused = append(l.refused, fmt.Sprintf("%s %s", resp.Status, data))
	case key == "" && slow && p.Code == council.CodeCancelled:
		l.begun++
		l.cut++
	case key != "" && p.Code == council.CodeUnavailable:
		l.sent++
		return true
	default:
		l.lost = append(l.lost, fmt.Sprintf("%s: %s %s", question, resp.Status, data))
	}
	return false
}

// Three nodes behind a proxy that reads /readyz are restarted one after the other, under
// load. No session is refused, no kept one is interrupted, and of the others those are cut
// that take longer than DRAIN_TIMEOUT.
func TestScaleS10(t *testing.T) {
	const drain = 3 * time.Second
	p := newPaid()
	p.linger = func(c call) time.Duration {
		if strings.HasPrefix(c.question, slowly) && c.kind == simllm.Question && c.model == "d" {
			return drain + 2*time.Second
		}
		return 0
	}
	w := newTrialOf(t, p, p.models(), 3, "LLM_COUNCIL_DRAIN_TIMEOUT="+drain.String(), "LLM_COUNCIL_SESSIONS_KEPT=5000")
	balancer := daemontest.NewBalancer(t)
	set := func() {
		var urls []string
		for _, n := range w.nodes {
			urls = append(urls, n.Base)
		}
		balancer.Set(urls...)
		balancer.Wait(t, len(urls))
	}
	set()
	caller := daemontest.Caller{Base: balancer.URL, Token: trialToken}
	c, err := client.New(client.Options{URL: balancer.URL, Token: trialToken})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var l traffic
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i, kind := range []string{"watched", slowly + " watched", "keyed", slowly + " keyed", "plain", "plain", slowly + " plain"} {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				question := fmt.Sprintf("%s question %d of client %d?", kind, n, i)
				switch {
				case strings.HasSuffix(kind, "watched"):
					l.watch(t.Context(), c, question)
				case strings.HasSuffix(kind, "keyed"):
					l.ask(t.Context(), caller, question, fmt.Sprintf("%d-%d", i, n))
				default:
					l.ask(t.Context(), caller, question, "")
				}
			}
		})
	}
	rolls := max(1, *scaleRounds/20)
	var stops []time.Duration
	for range rolls {
		for _, n := range w.nodes {
			begun := time.Now()
			n.signal(t, syscall.SIGTERM)
			n.wait()
			stops = append(stops, time.Since(begun))
			n.start(t)
			set()
		}
	}
	close(stop)
	clients.Wait()
	for _, what := range l.refused {
		t.Errorf("refused: %s", what)
	}
	for _, what := range l.lost {
		t.Errorf("lost: %s", what)
	}
	if l.cut == 0 {
		t.Error("no session was longer than the drain time")
	}
	known := map[string]bool{}
	for _, id := range append(l.plain, l.kept...) {
		known[id] = true
	}
	for _, n := range w.nodes {
		missing := 0
		daemontest.Until(t, func() bool {
			missing = len(known)
			for _, s := range n.list(t) {
				if known[s.ID] && s.Status == council.StatusComplete {
					missing--
				}
			}
			return missing == 0
		})
		n.recorded(t, slices.Collect(maps.Keys(known)))
	}
	twice := p.judge(t, 3*rolls+1) // a slow session can be handed over at every restart
	t.Logf("scale S10: measured: %d restarts of a node of three, %d sessions begun meanwhile, %d refused, "+
		"%d of %d kept ones interrupted or lost, "+
		"each complete and with its records once on every node; %d plain ones of %d were longer than DRAIN_TIMEOUT and cut; "+
		"%d requests with a key were sent again; sessions that are not slow took %d ms (p50) and %d ms (p99), "+
		"a stop %d ms (p50) and %d ms (p99); "+
		"%d calls were paid twice, all of them in flight; promised: none refused, no kept session interrupted",
		3*rolls, l.begun, len(l.refused), len(l.lost), len(l.kept), l.cut, l.cut+len(l.plain), l.sent,
		quantile(l.quick, 0.5).Milliseconds(), quantile(l.quick, 0.99).Milliseconds(),
		quantile(stops, 0.5).Milliseconds(), quantile(stops, 0.99).Milliseconds(), twice)
}

// otherPrompts builds a councild with another version of a prompt.
func otherPrompts(t *testing.T, file, version, other string) (program string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(root, filepath.FromSlash(file))
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(source), `"`+version+`"`, `"`+other+`"`, 1)
	changed = strings.Replace(changed, "a council of language models", "another council of language models", 1)
	dir := t.TempDir()
	program = filepath.Join(dir, "councild")
	replacement, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {file: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(replacement, []byte(changed), 0o600), os.WriteFile(overlay, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// endedAs watches a session to its end: its status, or the code with which it failed.
func endedAs(t *testing.T, caller daemontest.Caller, id string) (string, *council.Session) {
	t.Helper()
	c, err := client.New(client.Options{URL: caller.Base, Token: caller.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Watch(t.Context(), id, council.ObserverFunc(func(council.Event) {}))
	if e, ok := errors.AsType[*council.Error](err); ok {
		if s, err = c.Session(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return string(e.Code), s
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(s.Status), s
}

// stagesOf are the stages in which a session's node is stopped: when the call of a kind and
// a model has begun, which then takes another two seconds.
var stagesOf = []call{{"stage 1", simllm.Question, "d"}, {"stage 2", simllm.Review, "d"}, {"stage 3", simllm.Synthesis, "scribe"}}

// promptVersion is one version of councild, whose calls go to a provider of their own.
type promptVersion struct {
	paid *paid
	url  string
}

func newVersion(t *testing.T) promptVersion {
	t.Helper()
	p := newPaid()
	p.linger = lingers
	return promptVersion{p, daemontest.Provider(t, p.models()...).URL()}
}

// lingers has the calls of stagesOf take two seconds more.
func lingers(c call) time.Duration {
	for _, at := range stagesOf {
		if c.kind == at.kind && c.model == at.model && strings.HasPrefix(c.question, at.question) {
			return 2 * time.Second
		}
	}
	return 0
}

// reviews returns how many reviews of a question were asked for.
func (v promptVersion) reviews(question string) (n int) {
	v.paid.mu.Lock()
	defer v.paid.mu.Unlock()
	for c, times := range v.paid.begun {
		if c.question == question && c.kind == simllm.Review {
			n += times
		}
	}
	return n
}

// inStages begins three sessions for each stage, and waits until each is in its stage.
func inStages(t *testing.T, n *node, v promptVersion, when string) (ids, questions []string) {
	t.Helper()
	for i := range 3 * len(stagesOf) {
		question := fmt.Sprintf("%s, %s, %d?", stagesOf[i%len(stagesOf)].question, when, i)
		questions, ids = append(questions, question), append(ids, begin(t, n.Caller, question))
	}
	for i, question := range questions {
		at := stagesOf[i%len(stagesOf)]
		v.paid.wait(t, call{question, at.kind, at.model})
	}
	return ids, questions
}

// Nodes with two versions of a prompt side by side, and an update between stop and start:
// no stage mixes the versions, sessions whose open stages are unchanged go on, and the
// others end with what landed.
func TestScaleS16(t *testing.T) {
	reviews := otherPrompts(t, "internal/stage2/prompt.go", "review-1", "review-2")
	synthesis := otherPrompts(t, "internal/stage3/stage3.go", "synthesis-2", "synthesis-3") // the version with a map, which is the default
	const complete, interrupted = string(council.StatusComplete), string(council.CodeInterrupted)
	sessions, wentOn, ends := 0, 0, 0
	expect := func(t *testing.T, caller daemontest.Caller, ids []string, when string, want ...string) {
		t.Helper()
		for i, id := range ids {
			got, s := endedAs(t, caller, id)
			if sessions++; got == complete && s.Stage3.Fallback == nil {
				wentOn++
			} else {
				ends++
			}
			stage := i % len(stagesOf)
			if got != want[stage] {
				t.Errorf("%s, in %s: the session is %s, want %s: %v", when, stagesOf[stage].question, got, want[stage], s.Metadata.Warnings)
			}
			if stage > 0 && len(s.Stage1) != 4 {
				t.Errorf("%s, in %s: the session has %d answers", when, stagesOf[stage].question, len(s.Stage1))
			}
		}
	}

	t.Run("side by side", func(t *testing.T) {
		old, other := newVersion(t), newVersion(t)
		c := startCluster(t)
		serve := func(name, program string, v promptVersion, env ...string) *node {
			n := c.node(t, name, append(env, "LLM_COUNCIL_BASE_URL="+v.url, "LLM_COUNCIL_MODELS=a,b,c,d", "LLM_COUNCIL_CHAIRMAN=scribe",
				"LLM_COUNCIL_API_TOKENS=team:"+trialToken, constants(nil))...) // a program has the usual lease
			n.program, n.Token = program, trialToken
			n.start(t)
			return n
		}
		// Sessions wait for a place at the second node, rather than be ended by the changed one.
		first, second := serve("old 1", "", old), serve("old 2", "", old, "LLM_COUNCIL_MAX_SESSIONS=3")
		changed := serve("changed", reviews, other)
		apart := func(questions []string, v promptVersion) { // no reviews but those of this version
			t.Helper()
			for _, question := range questions {
				if n := v.reviews(question); n > 0 {
					t.Errorf("%s: %d reviews with another prompt", question, n)
				}
			}
		}
		ids, questions := inStages(t, first, old, "with another old node")
		first.kill(t)
		expect(t, changed.Caller, ids, "killed beside another old node", complete, complete, complete)
		apart(questions, other)
		first.start(t)

		ids, questions = inStages(t, changed, other, "on the only changed node")
		changed.kill(t)
		expect(t, first.Caller, ids, "the only changed node killed", interrupted, interrupted, complete)
		apart(questions, old)
		changed.start(t)

		ids, questions = inStages(t, first, old, "on the last old node")
		first.kill(t)
		second.kill(t)
		expect(t, changed.Caller, ids, "all old nodes killed", interrupted, interrupted, complete)
		apart(questions, other)
	})

	for _, tt := range []struct {
		name, program string
		want          []string
	}{
		{"review", reviews, []string{interrupted, interrupted, complete}},
		{"synthesis", synthesis, []string{interrupted, interrupted, string(council.StatusDegraded)}}, // with the best answer
	} {
		t.Run("update of the "+tt.name+" prompt", func(t *testing.T) {
			old, other := newVersion(t), newVersion(t)
			dir := t.TempDir()
			n := &node{name: tt.name, log: &daemontest.Log{}}
			n.env = []string{
				"LLM_COUNCIL_BASE_URL=" + old.url,
				"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_MODELS=a,b,c,d", "LLM_COUNCIL_CHAIRMAN=scribe",
				"LLM_COUNCIL_BIAS_STORE=" + filepath.Join(dir, "records.jsonl"), "LLM_COUNCIL_DRAIN_TIMEOUT=10ms",
			}
			n.start(t)
			ids, questions := inStages(t, n, old, "at the stop")
			n.signal(t, syscall.SIGTERM)
			n.wait()
			n.program, n.env[0] = tt.program, "LLM_COUNCIL_BASE_URL="+other.url
			n.start(t)
			expect(t, n.Caller, ids, "update of the "+tt.name+" prompt", tt.want...)
			for _, question := range questions {
				if got := other.reviews(question); got > 0 {
					t.Errorf("%s: %d reviews after the update", question, got)
				}
			}
			if tt.program == synthesis {
				if _, s := endedAs(t, n.Caller, ids[2]); s.Stage3.Fallback == nil || *s.Stage3.Fallback != council.FallbackTopRanked {
					t.Errorf("the session whose synthesis was open ends with %+v", s.Stage3)
				}
			}
			n.signal(t, syscall.SIGTERM)
			n.wait()
		})
	}
	t.Logf("scale S16: measured: %d sessions in all stages, with two versions of a prompt side by side and over an update: "+
		"%d went on, %d ended with what landed, "+
		"no stage had prompts of both; promised: no stage mixes them, sessions whose open stages are unchanged go on",
		sessions, wentOn, ends)
}
