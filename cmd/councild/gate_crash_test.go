package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/gatesim"
	"github.com/google/go-cmp/cmp"
)

var gateKills = flag.Int("gatekills", 8, "how often TestFaultF73GateAfterKillNine kills the daemon")

// A daemon is killed at a random time while it reviews a change. The next daemon ends the review with the verdict,
// findings and votes of an undisturbed one, asks again only what was in flight, and keeps the votes.
func TestFaultF73GateAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const seats, latency = 4, 40 * time.Millisecond
	var models []simllm.Model
	for i := range seats {
		m := gatesim.Eager(fmt.Sprintf("lab%d/m", i))
		m.Latency = simllm.Latency{Median: latency, Sigma: 0.5}
		models = append(models, m)
	}
	sim, dir := daemontest.Provider(t, models...), t.TempDir()
	requests := func() (n int) {
		for _, m := range sim.Stats().Models {
			n += m.Requests
		}
		return n
	}
	begin := func() (*process, daemontest.Caller) {
		p := start(t, []string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + sim.URL(),
			"LLM_COUNCIL_MODELS=lab0/m,lab1/m,lab2/m,lab3/m", "LLM_COUNCIL_DATA_DIR=" + dir,
		}, "serve")
		url, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
		go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
		return p, daemontest.Caller{Base: url}
	}
	diff, _ := json.Marshal("--- a/pay.go\n+++ b/pay.go\n@@ -1,2 +1,3 @@\n package pay\n-var old = 1\n+var first = 1\n+var second = first * 2\n" +
		"@@ -50,1 +51,2 @@\n var x = 1\n+var third = second / first\n")
	ask := func(d daemontest.Caller) string {
		status, data := d.Call(t, http.MethodPost, "/v1/gate", `{"seed":7,"background":true,"diff":`+string(diff)+`}`)
		var s council.Summary
		if err := json.Unmarshal(data, &s); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, data)
		}
		return s.ID
	}
	report := func(d daemontest.Caller, id string) (r gate.Report) {
		daemontest.Until(t, func() bool {
			status, data := d.Call(t, http.MethodGet, "/v1/gate/"+id, "")
			if status != http.StatusOK && status != http.StatusAccepted {
				t.Fatalf("%d %s", status, data)
			}
			return json.Unmarshal(data, &r) == nil && status == http.StatusOK
		})
		return r
	}
	p, d := begin()
	ids := []string{ask(d)}
	want := report(d, ids[0])
	if want.Verdict != gate.Blocked || requests() > 2*seats {
		t.Fatalf("%+v", want)
	}
	undisturbed, again := requests(), 0
	for range *gateKills {
		before := requests()
		id := ask(d)
		ids = append(ids, id)
		time.Sleep(time.Duration(rng.Int64N(int64(3 * latency))))
		if err := p.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = p.Wait() // It was killed.
		p, d = begin()
		got := report(d, id)
		if diff := cmp.Diff(want.Findings, got.Findings); diff != "" || got.Verdict != want.Verdict {
			t.Errorf("after a kill: %s, %s", got.Verdict, diff)
		}
		more := requests() - before - undisturbed
		if again += more; more > seats {
			t.Errorf("after a kill, %d requests came again", more)
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = p.Wait()
	votes, err := os.ReadFile(filepath.Join(dir, "gate.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if n := strings.Count(string(votes), id); n < len(want.Findings) {
			t.Errorf("gate.jsonl has %d votes of session %s, want %d", n, id, len(want.Findings))
		}
	}
	daemontest.Fault(t, "F73", "a review ends as without the kill; no stored reply is asked for again; gate.jsonl has its votes",
		"%d times kill -9: the same verdict and findings; %d of %d requests came again", *gateKills, again, undisturbed**gateKills)
}
