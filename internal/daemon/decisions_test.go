package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// decided is a body of POST /v1/decisions, with a place for the model.
const decided = `{"model":%q,"input":"I was charged twice.","questions":[{"type":"predicate","instructions":"It is polite."}]}`

// In a council of the roster the reviewers vote, or the members if it names none. Seats that may not see the data are not
// asked.
func TestDecisionsOfTheRoster(t *testing.T) {
	d, _ := onRoster(t, twoCouncils, nil)
	for model, want := range map[string]int{"council": 2, "council/deep": 2, "council/fast": 3, "council/one": 1, "council/one,three": 2} {
		code, data := d.Call(t, "POST", "/v1/decisions", fmt.Sprintf(decided, model))
		var got openai.Decision
		if err := json.Unmarshal(data, &got); err != nil || code != 200 || got.Answers[0].Council.Asked != want {
			t.Errorf("%s: %d %s, want %d seats", model, code, data, want)
		}
	}
	if code, data := d.Call(t, "GET", "/v1/council", ""); code != 200 || !strings.Contains(string(data), `"sessions":[]`) {
		t.Errorf("the decisions left sessions: %d %s", code, data)
	}
	text := strings.Replace(guarded(), "deep: {members: [one, two],", "deep: {members: [one, two], reviewers: [one, three],", 1)
	d, _ = onRoster(t, text, nil)
	code, data := d.Call(t, "POST", "/v1/decisions", fmt.Sprintf(decided, "council"), "Authorization", bearer("team"))
	if code != 403 || !strings.Contains(string(data), "three may see data up to public") {
		t.Errorf("a seat that may not see the data: %d %s", code, data)
	}
}

// The cost is that of one call for each seat. It stands in the ledger under the caller's token, and limits hold before the
// first call.
func TestCostOfDecisions(t *testing.T) {
	b := daemontest.Bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, map[string]string{
		"API_TOKENS": "one:0123456789abcdef", "MAX_COST_USD_PER_TOKEN_DAY": "0.21",
	}))
	d.Token = "0123456789abcdef"
	code, data := d.Call(t, "POST", "/v1/decisions", fmt.Sprintf(decided, "council"))
	var got openai.Decision
	if err := json.Unmarshal(data, &got); err != nil || code != 200 || got.Council.CostUSD == nil {
		t.Fatalf("%d %s: %v", code, data, err)
	}
	if cost := spend.FromFloat(*got.Council.CostUSD); cost != billed(b) || cost == 0 {
		t.Errorf("it says %v, %v billed", cost, billed(b))
	}
	var costs spend.Costs
	if _, data := d.Call(t, "GET", "/v1/spend?by=token", ""); json.Unmarshal(data, &costs) != nil || costs.Total != billed(b) ||
		!slices.ContainsFunc(costs.Rows, func(r spend.Row) bool { return r.Key == "one" && r.Sessions == 1 && r.Total == billed(b) }) {
		t.Errorf("the ledger has %s, %v billed", data, billed(b))
	}
	for code == 200 {
		before := billed(b)
		code, data = d.Call(t, "POST", "/v1/decisions", fmt.Sprintf(decided, "council"))
		if code != 200 && (code != 429 || !strings.Contains(string(data), "over_budget") || billed(b) != before) {
			t.Errorf("over the limit of the day: %d %s", code, data)
		}
	}
	d.End(t)
	if got := replayed(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl")); got != billed(b) {
		t.Errorf("the ledger has %v, %v was billed", got, billed(b))
	}
	low := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD": "0.001"}))
	before := billed(b)
	if code, data := low.Call(t, "POST", "/v1/decisions", fmt.Sprintf(decided, "council")); code != 422 ||
		!strings.Contains(string(data), "max_cost_usd") || billed(b) != before {
		t.Errorf("with too low a limit: %d %s", code, data)
	}
}

// A daemon that dies in the middle keeps nothing of a decision, even if it has an Idempotency-Key: the repeated request
// asks again. The ledger counts the decision that did not end with the most that it can have cost.
func TestDecisionsAfterACrash(t *testing.T) {
	testkit.Slow(t)
	hang := simllm.Fault{Kind: simllm.FaultHang, Rate: 1, Times: 1}
	sim := daemontest.Provider(t, simllm.Model{Name: "a", Faults: []simllm.Fault{hang}}, simllm.Model{Name: "b", Faults: []simllm.Fault{hang}})
	calls := func() (n int) { return sim.Stats().Models["a"].Requests + sim.Stats().Models["b"].Requests }
	env := func(dir string) map[string]string {
		return map[string]string{
			"BASE_URL": sim.URL(), "MODELS": "a,b", "PRICES": "a=1/1,b=1/1", "MAX_COST_USD_PER_DAY": "1", "COST_LIMITS": "hard",
			"MAX_OUTPUT_TOKENS": "400", "DATA_DIR": dir, "TIMEOUT": "2s",
		}
	}
	first, second := t.TempDir(), t.TempDir()
	d := daemontest.Start(t, env(first))
	var asked sync.WaitGroup
	defer asked.Wait()
	ask := func(d *daemontest.Daemon) (int, []byte) {
		return d.Call(t, "POST", "/v1/decisions", fmt.Sprintf(decided, "council"), "Idempotency-Key", "k")
	}
	asked.Go(func() { ask(d) })
	daemontest.Until(t, func() bool { return calls() == 2 })
	if err := os.CopyFS(second, os.DirFS(first)); err != nil { // what a process that is killed leaves
		t.Fatal(err)
	}
	again := daemontest.Start(t, env(second))
	limit := func() spend.Limit {
		var costs spend.Costs
		if _, data := again.Call(t, "GET", "/v1/spend", ""); json.Unmarshal(data, &costs) != nil || len(costs.Limits) == 0 {
			t.Fatalf("%s", data)
		}
		return costs.Limits[0]
	}
	// Each of the two requests has at most 400 output tokens, and some thousand bytes of prompt.
	if used := limit().Used; used < spend.FromFloat(2*400e-6) || used > spend.FromFloat(0.1) {
		t.Errorf("after the crash %v count", used)
	}
	if code, data := ask(again); code != 200 || calls() != 4 {
		t.Errorf("the repeated request: %d %s after %d calls", code, data, calls())
	}
}
