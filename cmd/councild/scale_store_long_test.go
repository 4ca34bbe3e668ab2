//go:build scale

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// The record file of a node is deleted, cut, or stays behind: it is filled again, and the
// reports of all nodes are equal.
func TestScaleS15(t *testing.T) {
	w := newTrial(t, 3)
	damages := []struct {
		what   string
		runs   bool // the daemon, when it happens
		damage func(path string) error
	}{
		{"behind", false, func(string) error { return nil }},
		{"deleted while it was stopped", false, os.Remove},
		{"cut while it was stopped", false, cutFile},
		{"deleted with its cursor while it was stopped", false, func(path string) error {
			return errors.Join(os.Remove(path), os.Remove(path+".cursor"))
		}},
		{"its cursor deleted while it was stopped", false, func(path string) error { return os.Remove(path + ".cursor") }},
		{"deleted while it ran", true, os.Remove},
		{"cut while it ran", true, cutFile},
	}
	var ids []string
	var filled time.Duration // at most
	wrong, unequal, rounds := 0, 0, *scaleRounds/10
	for round := range rounds {
		d, victim := damages[round%len(damages)], w.nodes[round%3]
		ask := func(nodes ...*node) {
			var asked []string
			for i, n := range nodes {
				asked = append(asked, begin(t, n.Caller, fmt.Sprintf("Question %d.%d of %d sessions?", round, i, len(ids))))
			}
			for i, n := range nodes {
				ended(t, n.Caller, asked[i])
			}
			ids = append(ids, asked...)
		}
		ask(w.nodes...)
		for _, n := range w.nodes {
			wrong += n.recorded(t, ids)
		}
		if !d.runs {
			if round%2 == 0 {
				victim.kill(t)
			} else {
				victim.signal(t, syscall.SIGTERM)
				victim.wait()
			}
			others := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return n == victim })
			ask(others...)
		}
		if err := d.damage(victim.records); err != nil {
			t.Fatalf("%s: %v", d.what, err)
		}
		begun := time.Now()
		if !d.runs {
			victim.start(t)
		}
		ask(w.nodes...)
		for _, n := range w.nodes {
			wrong += n.recorded(t, ids)
		}
		filled = max(filled, time.Since(begun))
		want := sortedRecords(t, w.nodes[0])
		report := reported(t, w.nodes[0])
		for _, n := range w.nodes[1:] {
			if got := sortedRecords(t, n); !slices.Equal(got, want) {
				t.Errorf("%s: the records of %s are not those of %s", d.what, n.name, w.nodes[0].name)
				wrong++
			}
			if other := reported(t, n); other != report {
				t.Errorf("%s: the reports differ: %s\n%s", d.what, report, other)
				unequal++
			}
		}
	}
	t.Logf("scale S15: measured %d times a record file was damaged or behind, of %d sessions on 3 nodes: "+
		"records of %d sessions lost, doubled or not the same, %d unequal reports, filled again within %s; promised the same records, equal reports",
		rounds, len(ids), wrong, unequal, filled.Round(time.Millisecond))
}

// reported returns a node's bias report without its date.
func reported(t *testing.T, n *node) string {
	t.Helper()
	_, body := n.Call(t, "GET", "/v1/bias-report", "")
	report := map[string]any{}
	if err := json.Unmarshal(body, &report); err != nil {
		t.Fatal(err)
	}
	delete(report, "generated_at")
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// cutFile cuts a file off at any place.
func cutFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, rand.Int64N(info.Size()))
}

// sortedRecords returns the records in a node's file as JSON.
func sortedRecords(t *testing.T, n *node) (records []string) {
	t.Helper()
	for _, r := range daemontest.Records(t, n.records) {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, string(data))
	}
	slices.Sort(records)
	return records
}

// alone returns a daemon with the engine inside that is not started yet.
func alone(t *testing.T, env ...string) *node {
	t.Helper()
	n := &node{name: "alone", log: &daemontest.Log{}, records: filepath.Join(t.TempDir(), "records.jsonl")}
	n.env = append([]string{
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BIAS_STORE=" + n.records, "COUNCILD_TEST_FILES=1",
	}, env...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", n.name, n.log)
		}
	})
	return n
}

// answerBytes is the length of an answer in TestScaleS17.
const answerBytes = 8 << 20

// largeAnswer is the answer of a model, which no other model gives.
func largeAnswer(model string) string {
	return strings.Repeat(fmt.Sprintf("%-63s\n", "An answer of "+model), answerBytes/64)
}

// Twelve answers of 8 MiB are stored in parts: when the daemon is killed before the last
// of them comes, the others are there whole, after a restart and on another node.
func TestScaleS17(t *testing.T) {
	p := newPaid()
	var models []simllm.Model
	var names []string
	for i := range 12 {
		m := simllm.Model{Name: fmt.Sprintf("m%02d", i+1), Spread: 1}
		m.Reply = func(task simllm.Task) (string, bool) {
			c := call{task.Question, task.Kind, task.Model}
			p.begin(c)
			p.mu.Lock()
			held := p.held[c]
			p.mu.Unlock()
			if held != nil {
				<-held
			}
			return largeAnswer(task.Model), true
		}
		models, names = append(models, m), append(names, m.Name)
	}
	sim := daemontest.Provider(t, models...)
	c := startCluster(t)
	roster := daemontest.Roster(t, "{members: ["+strings.Join(names, ", ")+"], reviewers: [m01, m02]}", names...)["ROSTER"]
	env := []string{
		"LLM_COUNCIL_BASE_URL=" + sim.URL(), "LLM_COUNCIL_ROSTER=" + roster,
		constants(map[string]any{
			"Lease": scaleLease(), "MaxUpstreamBytes": 16 << 20, "MaxSessionBytes": 160 << 20, "SessionsKeptBytes": 1 << 30,
		}),
		"LLM_COUNCIL_API_TOKENS=team:" + trialToken,
	}
	inside := alone(t, env...)
	var measured []string
	for _, tt := range []struct {
		where string
		nodes []*node // the first one is killed
	}{
		{"inside", []*node{inside}},
		{"on the cluster", []*node{c.node(t, "node 1", env...), c.node(t, "node 2", env...)}},
	} {
		for _, n := range tt.nodes {
			n.Token = trialToken
			n.start(t)
		}
		first, last := tt.nodes[0], tt.nodes[len(tt.nodes)-1]
		question := "A long one " + tt.where + "?"
		release := p.hold(call{question, simllm.Question, "m12"})
		id := begin(t, first.Caller, question)
		// An answer is stored as text on its way, and then whole. When all eleven are, no more comes.
		for stored, before := 0.0, 0.0; stored < 2*11*answerBytes || stored > before+1<<16; {
			time.Sleep(2 * time.Second)
			before, stored = stored, metric(t, first, "councild_kept_bytes")
		}
		first.kill(t)
		killed := time.Now()
		if first == last {
			first.start(t)
		}
		release()
		ended(t, last.Caller, id)
		took := time.Since(killed)
		if first != last {
			first.start(t)
		}
		whole := 0
		for _, n := range tt.nodes {
			s := shown(t, n, id)
			for _, a := range s.Stage1 {
				if a.Response == nil || *a.Response != largeAnswer(a.Model) {
					t.Errorf("%s: %s: the answer of %s is not whole: %s %v", tt.where, n.name, a.Model, a.Status, a.Error)
				} else {
					whole++
				}
			}
		}
		if whole != 12*len(tt.nodes) {
			t.Errorf("%s: %d answers are whole", tt.where, whole)
		}
		numbered(t, last, id)
		again := slices.DeleteFunc(p.twice(), func(c call) bool { return c.model == "m12" }) // that was in flight
		if len(again) > 0 {
			t.Errorf("%s: paid twice: %v", tt.where, again)
		}
		for _, n := range tt.nodes {
			n.kill(t)
		}
		measured = append(measured, fmt.Sprintf("%s %d of %d answers whole, %d that had landed paid twice, ended %s after the kill",
			tt.where, whole, 12*len(tt.nodes), len(again), took.Round(time.Millisecond)))
	}
	t.Logf("scale S17: measured 12 answers of 8 MiB, the daemon killed before the last one: %s; promised whole, in parts",
		strings.Join(measured, "; "))
}

// shown returns a session as a node shows it now.
func shown(t *testing.T, n *node, id string) (s council.Session) {
	t.Helper()
	status, body := n.Call(t, "GET", "/v1/council/"+id, "")
	if err := json.Unmarshal(body, &s); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %.500s: %v", n.name, status, body, err)
	}
	return s
}

// numbered checks that the events of a session have the numbers from 1 on.
func numbered(t *testing.T, n *node, id string) {
	t.Helper()
	_, stream := n.Call(t, "GET", "/v1/council/"+id+"/events", "")
	number := 0
	for e, err := range client.ReadEvents(bytes.NewReader(stream)) {
		if number++; err != nil || e.ID != strconv.Itoa(number) {
			t.Fatalf("%s: event %d has the id %q: %v", n.name, number, e.ID, err)
		}
	}
}
