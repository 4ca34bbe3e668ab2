package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/gatesim"
	"github.com/google/go-cmp/cmp"
)

// changeOf returns the body of POST /v1/gate for a change of one hunk, with more fields. The change names a payer.
func changeOf(payer, more string) string {
	diff, _ := json.Marshal(fmt.Sprintf("diff --git a/pay.go b/pay.go\n--- a/pay.go\n+++ b/pay.go\n@@ -1,2 +1,3 @@\n package pay\n"+
		"-var old = 1\n+var payerOfThis = %q\n+var amount = old * 2\n", payer))
	return fmt.Sprintf(`{%s"diff":%s}`, more, diff)
}

func reportOf(t *testing.T, d *daemontest.Daemon, body string) (r gate.Report) {
	t.Helper()
	status, data := d.Call(t, "POST", "/v1/gate", body)
	if err := json.Unmarshal(data, &r); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	return r
}

// The daemon keeps the votes on each finding, without texts. A file that cannot be written loses no session.
func TestGateVotesAreKept(t *testing.T) {
	sim := daemontest.Provider(t, gatesim.OneFinder("lab/a", "firm/b", "other/c")...)
	env := map[string]string{"BASE_URL": sim.URL(), "MODELS": "lab/a,firm/b,other/c", "DATA_DIR": t.TempDir()}
	d := daemontest.Start(t, env)
	path := d.Config.GateFile()
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there before the first review")
	}
	r := reportOf(t, d, changeOf("ada", ""))
	again := reportOf(t, d, changeOf("ada", `"ignore":[{"fingerprint":"`+r.Findings[0].Fingerprint+`","reason":"known"}],`))
	d.End(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		delete(m, "timestamp")
		got = append(got, m)
	}
	vote := func(seat, maker, vote string) any {
		return map[string]any{"seat": seat, "maker": maker, "vote": vote, "severity": "blocking"}
	}
	want := map[string]any{
		"schema_version": "gate-1", "session_id": r.SessionID, "council_config_version": "review-1+gate", "verdict": "blocked",
		"fingerprint": r.Findings[0].Fingerprint, "severity": "blocking", "confirmed": true, "blocks": true, "ignored": false,
		"votes": []any{vote("lab/a", "lab", "found"), vote("firm/b", "firm", "confirm"), vote("other/c", "other", "confirm")},
	}
	accepted := maps.Clone(want)
	maps.Copy(accepted, map[string]any{"session_id": again.SessionID, "verdict": "pass", "blocks": false, "ignored": true})
	if diff := cmp.Diff([]map[string]any{want, accepted}, got); diff != "" {
		t.Error(diff)
	}
	for _, word := range []string{"pay.go", "amount", "known", r.Findings[0].Wordings[0].What} {
		if strings.Contains(string(text), word) {
			t.Errorf("the file has the text %q: %s", word, text)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	d = daemontest.Start(t, env)
	if r := reportOf(t, d, changeOf("ada", "")); r.Verdict != gate.Blocked || !strings.Contains(d.Log.String(), "the votes of a review were not written") {
		t.Errorf("%s: %s", r.Verdict, d.Log.String())
	}
}

// A change is as confidential as a question: a member that may not see its class is not asked.
func TestGateOfARoster(t *testing.T) {
	e, _ := engineOf(t, modes)
	task, err := gate.Request{Diff: "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", Council: "quick", DataClass: "internal"}.Task()
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.PrepareTask(task)
	failure, ok := err.(*council.Error) //nolint:errorlint // it is not wrapped
	if !ok || failure.Code != council.CodeForbidden || failure.Fields[0].Field != "data_class" {
		t.Errorf("%v", err)
	}
	task.DataClass = ""
	plan, err := e.PrepareTask(task)
	if err != nil || plan.Roster == "" || !strings.Contains(plan.Versions.CouncilConfig, "+gate.quick.") || len(plan.Sides) > 0 {
		t.Errorf("%v, %+v", err, plan)
	}
}

// Under hard limits, no review costs more than its limit, even if requests fail and are repeated. A limit that is reached
// in the middle of a review makes the verdict undecided.
func TestFaultF74GateUnderHardLimits(t *testing.T) {
	testkit.Slow(t)
	models := []simllm.Model{gatesim.Eager("a"), gatesim.Eager("b"), gatesim.Eager("c")}
	b := daemontest.Bill(t, 7, models...)
	d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD": "1", "TIMEOUT": "60s"}))
	var e spend.Estimate
	body := func(n int, more string) string { // The diff costs more than the replies.
		return changeOf(fmt.Sprintf("payer-gate-x-%d", n)+strings.Repeat(" and more", 10_000), more)
	}
	if _, data := d.Call(t, "POST", "/v1/council/estimate", body(99, "")); json.Unmarshal(data, &e) != nil || e.Calls != 6 || e.Upper == nil {
		t.Fatalf("%s", data)
	}
	var mu sync.Mutex // guards all below
	limits := map[string]spend.USD{}
	blocked, short, refused := 0, 0, 0
	var clients sync.WaitGroup
	for n := range 20 {
		limit := e.Upper.Times(int64(1000-n)) / 1000
		if n%10 == 9 {
			limit /= 2 // too little for the first round
		}
		clients.Go(func() {
			status, data := d.Call(t, "POST", "/v1/gate", body(n, fmt.Sprintf(`"max_cost_usd":%v,`, limit)))
			var r gate.Report
			mu.Lock()
			defer mu.Unlock()
			limits[fmt.Sprintf("payer-gate-x-%d", n)] = limit
			switch {
			case status == http.StatusUnprocessableEntity && strings.Contains(string(data), `"field":"max_cost_usd"`):
				refused++
			case json.Unmarshal(data, &r) != nil || status != http.StatusOK:
				t.Errorf("%d %s", status, data)
			case r.Verdict == gate.Blocked:
				blocked++
			case r.Verdict == gate.Undecided && strings.Contains(r.Reason, "cost or token limit"):
				short++
			}
		})
	}
	clients.Wait()
	d.End(t)
	for payer, sum := range b.ByPayer() {
		if sum > limits[payer] {
			t.Errorf("%s: %v are billed of %v", payer, sum, limits[payer])
		}
	}
	ledger := daemontest.Ledger(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl"))
	if sum := billed(b); ledger.Total < sum || ledger.Total-ledger.Uncertain > sum {
		t.Errorf("the ledger has %v, the provider billed %v", ledger.Total, sum)
	}
	if blocked == 0 || short == 0 || refused != 2 {
		t.Errorf("%d blocked, %d by the limit, %d refused", blocked, short, refused)
	}
	daemontest.Fault(t, "F74", "no review costs more than its limit; a limit that is reached makes the verdict undecided",
		"%d blocked, %d undecided by the limit, %d refused before the first call; the ledger has all that the provider billed",
		blocked, short, refused)
}

// The page and the lists show a review as they show other sessions.
func TestGateIsListed(t *testing.T) {
	sim := daemontest.Provider(t, gatesim.OneFinder("a", "b", "c")...)
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c", "DATA_DIR": "off"})
	r := reportOf(t, d, changeOf("ada", ""))
	for path, want := range map[string]string{
		"/v1/council":                              "gate: 1 file, +2 -1",
		"/v1/council/" + r.SessionID:               `"task":{"name":"gate"`,
		"/v1/council/" + r.SessionID + "/cost":     "sentence",
		"/v1/council/" + r.SessionID + "/request":  "gate: 1 file, +2 -1",
		"/v1/council?threads=true&q=gate":          r.SessionID,
		"/v1/spend?days=1":                         "rows",
		"/v1/council/" + r.SessionID + "/feedback": "",
	} {
		method, body, wanted := "GET", "", []int{200}
		if strings.HasSuffix(path, "/feedback") {
			method, body, wanted = "POST", `{"rating":5}`, []int{201, 409, 404, 503}
		}
		status, data := d.Call(t, method, path, body)
		if !slices.Contains(wanted, status) || !strings.Contains(string(data), want) {
			t.Errorf("%s: %d %s", path, status, data)
		}
	}
}
