package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// Any council of a roster can judge, also one model alone. Texts to judge are as confidential as a question, and a model
// judges once, however many seats it has.
func TestJudgesOfARoster(t *testing.T) {
	e, calls := engineOf(t, modes)
	answers := []council.JudgeAnswer{{ID: "x", Text: "400", Author: "skeptic"}, {ID: "y", Text: "401"}, {ID: "z", Text: "402"}}
	for name, want := range map[string]struct {
		judges  int64
		version string
	}{"quick": {3, "+judge.quick."}, "solo": {1, "+judge.solo."}, "four": {1, "+judge.four."}, "": {3, "+judge.deep."}} {
		plan, err := e.PrepareJudge(council.JudgeRequest{Question: rolls, Answers: answers, Council: name})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if len(plan.Sides) > 0 || plan.Roster == "" || !strings.Contains(plan.Versions.CouncilConfig, want.version) {
			t.Errorf("%q: %+v", name, plan)
		}
		estimated := int64(e.Estimate(plan).Calls)
		s, err := e.Run(t.Context(), plan, nil, nil)
		if n := calls(); err != nil || n != want.judges || n != estimated || s.Mode != council.ModeJudge {
			t.Errorf("%q: %d calls, %d estimated, want %d: %v", name, n, estimated, want.judges, err)
		}
	}
	for name, tt := range map[string]struct {
		request council.JudgeRequest
		code    council.Code
		fields  []string
	}{
		"a higher class":     {council.JudgeRequest{Question: rolls, Answers: answers, Council: "quick", DataClass: "internal"}, council.CodeForbidden, []string{"data_class"}},
		"an unknown class":   {council.JudgeRequest{Question: rolls, Answers: answers, DataClass: "secret"}, council.CodeInvalid, []string{"data_class"}},
		"an unknown council": {council.JudgeRequest{Question: rolls, Answers: answers[:1], Council: "none"}, council.CodeInvalid, []string{"council", "rubric"}},
	} {
		_, err := e.PrepareJudge(tt.request)
		failure, ok := errors.AsType[*council.Error](err)
		var fields []string
		for i := 0; ok && i < len(failure.Fields); i++ {
			fields = append(fields, failure.Fields[i].Field)
		}
		if diff := cmp.Diff(tt.fields, fields); !ok || failure.Code != tt.code || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

// Under hard limits, no session of judges costs more than its limit or its estimate, and the ledger has what was billed.
func TestJudgesUnderHardLimits(t *testing.T) {
	b := daemontest.Bill(t, 7)
	d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD_PER_DAY": "0.25"}))
	limits := map[string]spend.USD{}
	codes := map[int]int{}
	for n := range 24 {
		payer := fmt.Sprintf("payer-judge-x-%d", n)
		request := fmt.Sprintf(`"question":"%s","answers":[{"id":"x","text":"%s"},{"id":"y","text":"no"}]`, payer, strings.Repeat("yes ", 40*n))
		request = strings.Replace(request, `"text":""`, `"text":"yes"`, 1)
		var e spend.Estimate
		if _, data := d.Call(t, "POST", "/v1/council/estimate", "{"+request+"}"); json.Unmarshal(data, &e) != nil || e.Calls != 6 || e.Upper == nil {
			t.Fatalf("%s", data)
		}
		limits[payer] = *e.Upper
		if n%2 == 0 {
			limits[payer] = *e.Upper / 3
		}
		status, data := d.Call(t, "POST", "/v1/judge", fmt.Sprintf(`{"max_cost_usd":%v,%s}`, limits[payer], request))
		codes[status]++
		if status == http.StatusTooManyRequests && !strings.Contains(string(data), "over_budget") {
			t.Errorf("%s", data)
		}
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusTooManyRequests] == 0 {
		t.Errorf("answers by status: %v", codes)
	}
	d.End(t)
	for payer, sum := range b.ByPayer() {
		if sum > limits[payer] {
			t.Errorf("%s: %v are billed of %v", payer, sum, limits[payer])
		}
	}
	ledger := daemontest.Ledger(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl"))
	if sum := billed(b); len(b.ByPayer()) < 2 || ledger.Total < sum || ledger.Total-ledger.Uncertain > sum || sum > spend.Dollar/4 {
		t.Errorf("the ledger has %v, the provider billed %v", ledger.Total, sum)
	}
}

// A session of judges in the background is read after a restart as before, and its key does not pay again.
func TestJudgesAfterRestart(t *testing.T) {
	sim := daemontest.Provider(t, daemontest.Members()...)
	env := map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c", "DATA_DIR": t.TempDir()}
	d := daemontest.Start(t, env)
	const body = `{"question":"?","answers":[{"id":"x","text":"yes","author":"a"},{"id":"y","text":"no"}],"exclude":"self","background":true}`
	begin := func() string {
		status, data := d.Call(t, "POST", "/v1/judge", body, "Idempotency-Key", "once")
		var s council.Summary
		if err := json.Unmarshal(data, &s); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, data)
		}
		return s.ID
	}
	read := func(id string) string {
		var j council.Judgement
		var text []byte
		daemontest.Until(t, func() bool {
			_, text = d.Call(t, "GET", "/v1/judge/"+id, "")
			return json.Unmarshal(text, &j) == nil && j.Status != council.StatusRunning
		})
		if j.Status != council.StatusComplete || len(j.Ballots) != 2 || len(j.Excluded) != 1 || j.Verdict == nil || !j.Persisted {
			t.Errorf("%s", text)
		}
		return string(text)
	}
	id := begin()
	before := read(id)
	d.End(t)

	d = daemontest.Start(t, env)
	if again := begin(); again != id {
		t.Errorf("the key begins %s after %s", again, id)
	}
	if after := read(id); after != before {
		t.Errorf("after the restart: %s, before: %s", after, before)
	}
	if n := requests(sim); n != 4 {
		t.Errorf("%d calls", n)
	}
}
