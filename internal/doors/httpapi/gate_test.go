package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/gatesim"
	"github.com/google/go-cmp/cmp"
)

// changeBody is a body of POST /v1/gate.
var changeBody = `{"diff":` + quoted(gatesim.Refund) + `}`

func quoted(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}

// reviewing returns a model that reports a place in every hunk, and calls it blocking. It confirms the findings of
// others with the probability confirms.
func reviewing(name string, confirms float64) simllm.Model {
	m := gatesim.Eager(name)
	m.Reviewing.FalseConfirms = confirms
	return m
}

// finder and silent are models that report a place and nothing.
func finder(name string) simllm.Model { return reviewing(name, 1) }

func silent(name string, confirms float64) simllm.Model {
	m := reviewing(name, confirms)
	m.Reviewing.Tempted = 0
	return m
}

// startGate starts a server whose council has these models.
func startGate(t *testing.T, models []simllm.Model, mutate ...func(*httpapi.Options, *pipeline.Options)) *server {
	t.Helper()
	return start(t, models, append(mutate, func(_ *httpapi.Options, p *pipeline.Options) {
		p.Models, p.MaxModels, p.Chairman = nil, 9, ""
		for _, m := range models {
			p.Models = append(p.Models, m.Name)
		}
		if len(models) == 1 {
			p.Mode = council.ModeSingle
		}
	})...)
}

// reviewed sends a body to POST /v1/gate and returns the report.
func (s *server) reviewed(t *testing.T, body string, headers ...string) gate.Report {
	t.Helper()
	return post[gate.Report](t, s, "/v1/gate", body, headers...)
}

// A finding that the models of other makers confirm as blocking blocks the change. The session is like the others.
func TestGateBlocks(t *testing.T) {
	s := startGate(t, []simllm.Model{finder("a/one"), silent("b/two", 1), silent("c/three", 1), silent("d/four", 0)})
	r := s.reviewed(t, changeBody)
	if r.Verdict != gate.Blocked || len(r.Findings) != 1 || requests(s) != 7 || r.Makers != 4 || r.Usage.None() {
		t.Fatalf("%d requests, %+v", requests(s), r)
	}
	f := r.Findings[0]
	if !f.Blocks || !f.Shown || !slices.Equal(f.FoundBy, []string{"a/one"}) || !slices.Equal(f.ConfirmedBy, []string{"b/two", "c/three"}) ||
		!slices.Equal(f.RejectedBy, []string{"d/four"}) || f.File != "pay/refund.go" || f.Start < 49 {
		t.Errorf("%+v", f)
	}
	_, again := s.Call(t, "GET", "/v1/gate/"+r.SessionID, "")
	if first, _ := json.Marshal(r); string(first) != strings.TrimSpace(string(again)) {
		t.Errorf("read again: %s, before %s", again, first)
	}
	_, data := s.Call(t, "GET", "/v1/council/"+r.SessionID, "")
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || session.Query != "gate: 1 file, +2 -1" || session.Status != council.StatusComplete ||
		session.Mode != council.ModeTask || session.Task.Name != "gate" || len(session.Stage1) != 4 || len(session.Stage2) != 3 {
		t.Errorf("%s", data)
	}
	if _, list := s.Call(t, "GET", "/v1/council?q=gate", ""); !strings.Contains(string(list), `"query":"gate: 1 file, +2 -1"`) {
		t.Errorf("%s", list)
	}
	events := string(s.Watch(t, r.SessionID))
	if strings.Count(events, "event: stage1.answer") != 4 || strings.Count(events, "event: stage2.ballot") != 3 ||
		!strings.Contains(events, "event: session.done") || strings.Contains(events, "event: stage3") {
		t.Errorf("%s", events)
	}
	if _, request := s.Call(t, "GET", "/v1/council/"+r.SessionID+"/request", ""); !strings.Contains(string(request), `"query":"gate: 1 file, +2 -1"`) {
		t.Errorf("%s", request)
	}
	s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/council/"+r.SessionID+"/convene", "")
	if resp, _ := s.Call(t, "DELETE", "/v1/council/"+r.SessionID, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("not deleted: %d", resp.StatusCode)
	}
	other := s.ask(t, `{"query":"x","mode":"single","models":["amber"]}`)
	s.MustFail(t, 404, council.CodeNotFound, "GET", "/v1/gate/"+other.ID, "")
	s.MustFail(t, 404, council.CodeNotFound, "GET", "/v1/gate/0", "")
}

// What others reject does not block. Without findings, nobody is asked to confirm. Accepted findings do not block.
func TestGatePasses(t *testing.T) {
	s := startGate(t, []simllm.Model{finder("a/one"), silent("b/two", 0), silent("c/three", 0)})
	r := s.reviewed(t, changeBody)
	if r.Verdict != gate.Pass || len(r.Findings) != 1 || r.Findings[0].Confirmed || requests(s) != 5 {
		t.Errorf("%d requests, %+v", requests(s), r)
	}
	s = startGate(t, []simllm.Model{silent("a/one", 0), silent("b/two", 0), silent("c/three", 0)})
	if r := s.reviewed(t, changeBody); r.Verdict != gate.Pass || len(r.Findings) != 0 || requests(s) != 3 {
		t.Errorf("%d requests, %+v", requests(s), r)
	}
	lock := strings.ReplaceAll(gatesim.Refund, "pay/refund.go", "go.sum")
	if r := s.reviewed(t, `{"diff":`+quoted(lock)+`}`); r.Verdict != gate.Pass || len(r.LeftOut) != 1 || requests(s) != 3 {
		t.Errorf("%d requests, %+v", requests(s), r)
	}
	s = startGate(t, []simllm.Model{finder("a/one"), silent("b/two", 1), silent("c/three", 1)})
	r = s.reviewed(t, changeBody)
	if r.Verdict != gate.Blocked {
		t.Fatalf("%+v", r)
	}
	ignored := fmt.Sprintf(`"ignore":[{"fingerprint":%q,"reason":"it is a test"}],`, r.Findings[0].Fingerprint)
	if r := s.reviewed(t, strings.Replace(changeBody, `{`, `{`+ignored, 1)); r.Verdict != gate.Pass || len(r.Ignored) != 1 {
		t.Errorf("%+v", r)
	}
}

// Too few makers, limits of money and time, members that fail and a diff that is too large are no error. The verdict is
// then undecided.
func TestGateIsUndecided(t *testing.T) {
	down := func(name string) simllm.Model {
		m := finder(name)
		m.Faults = []simllm.Fault{{Kind: simllm.FaultStatus, Status: 500, Rate: 1}}
		return m
	}
	hanging := func(name string) simllm.Model {
		m := finder(name)
		m.Faults = []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}
		return m
	}
	all := []simllm.Model{finder("a/one"), finder("b/two"), finder("c/three")}
	for name, tt := range map[string]struct {
		models []simllm.Model
		body   string
		status council.Status
		reason string
		calls  int
		mutate func(*httpapi.Options, *pipeline.Options)
	}{
		"one maker": {models: []simllm.Model{finder("a/one"), finder("a/two")}, reason: "1 maker", status: council.StatusComplete},
		"one model": {models: []simllm.Model{finder("a/one")}, reason: "1 maker", status: council.StatusComplete},
		"two makers": {
			models: []simllm.Model{finder("a/one"), finder("b/two"), silent("b/three", 1)}, reason: "fewer than 3 makers", status: council.StatusComplete,
		},
		"members that fail": {models: []simllm.Model{finder("a/one"), down("b/two"), down("c/three")}, reason: "1 maker", status: council.StatusDegraded},
		"all fail":          {models: []simllm.Model{down("a/one"), down("b/two")}, reason: "0 makers", status: council.StatusDegraded},
		"no time": {
			models: []simllm.Model{hanging("a/one"), hanging("b/two")}, body: `"timeout_seconds":0.2,`, reason: "0 makers", status: council.StatusDegraded,
		},
		"no money": {models: all, body: `"max_total_tokens":1,`, reason: "A cost or token limit was reached", status: council.StatusDegraded},
		"too large": {
			models: all, reason: "too large: ", status: council.StatusComplete,
			mutate: func(_ *httpapi.Options, p *pipeline.Options) { p.MaxQueryBytes = 100 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mutate []func(*httpapi.Options, *pipeline.Options)
			if tt.mutate != nil {
				mutate = append(mutate, tt.mutate)
			}
			s := startGate(t, tt.models, mutate...)
			r := s.reviewed(t, strings.Replace(changeBody, `{`, `{`+tt.body, 1))
			if r.Verdict != gate.Undecided || !strings.Contains(r.Reason, tt.reason) {
				t.Errorf("%s: %s", r.Verdict, r.Reason)
			}
			if name == "too large" && requests(s) != 0 {
				t.Errorf("%d requests", requests(s))
			}
			_, data := s.Call(t, "GET", "/v1/council/"+r.SessionID, "")
			var session council.Session
			if err := json.Unmarshal(data, &session); err != nil || session.Status != tt.status {
				t.Errorf("%s %v", session.Status, err)
			}
		})
	}
}

// A limit under which the first round cannot begin refuses the request if limits are hard. A limit that is reached in the
// second round leaves the verdict undecided.
func TestGateUnderAHardLimit(t *testing.T) {
	tariff := spend.Flat(1000, 1000)
	models := []simllm.Model{finder("a/one"), finder("b/two"), silent("c/three", 1)}
	for i := range models {
		models[i].Price = simllm.Price{Input: 0.001, Output: 0.001}
	}
	book := spend.NewBook(spend.Options{Hard: true, Tariff: func(string) (spend.Tariff, bool) { return tariff, true }})
	s := startGate(t, models, func(o *httpapi.Options, p *pipeline.Options) {
		p.Book = book
		p.Sampling.MaxOutputTokens, p.ReviewSampling.MaxOutputTokens = new(1000), new(1000)
		council, err := pipeline.New(*p)
		if err != nil {
			t.Fatal(err)
		}
		o.Budget = council
	})
	for limit, want := range map[float64]int{1: 200, 1e-9: 422} {
		resp, data := s.Call(t, "POST", "/v1/gate", strings.Replace(changeBody, `{`, fmt.Sprintf(`{"max_cost_usd":%g,`, limit), 1))
		if resp.StatusCode != want {
			t.Errorf("with %g: %d %s", limit, resp.StatusCode, data)
		}
	}
}

// A request that cannot be reviewed is refused with a fix before any call. The estimate refuses the same requests.
func TestGateRefuses(t *testing.T) {
	s := startGate(t, []simllm.Model{finder("a/one"), finder("b/two")})
	change := `"diff":` + quoted(gatesim.Refund)
	for body, want := range map[string][2]string{
		`{"diff":""}`:                                                            {"diff", "git diff"},
		`{"diff":"What is this?"}`:                                               {"diff", "git diff"},
		`{` + change + `,"max_findings":51}`:                                     {"max_findings", "from 1 to 50"},
		`{` + change + `,"ignore":[{"fingerprint":"x"}]}`:                        {"ignore[0].fingerprint", "copy it"},
		`{` + change + `,"max_cost_usd":0}`:                                      {"max_cost_usd", "above 0"},
		`{` + change + `,"stream":true}`:                                         {"stream", "no such field"},
		`{` + change + `,"data_class":"secret"}`:                                 {"", ""},
		`{` + change + `,"include":["["]}`:                                       {"include", ""},
		`{` + change + `,"query":"x"}`:                                           {"query", "no such field"},
		`{` + change + `,"context":` + quoted(strings.Repeat("x", 17<<10)) + `}`: {"context", "shorten"},
	} {
		if want[0] == "" {
			continue
		}
		for _, path := range []string{"/v1/gate", "/v1/council/estimate"} {
			_, p := s.MustFail(t, 422, council.CodeInvalid, "POST", path, body)
			if !slices.ContainsFunc(p.Errors, func(f council.FieldError) bool {
				return strings.HasPrefix(f.Field, want[0]) && strings.Contains(f.Message+f.Fix, want[1]) && f.Fix != ""
			}) {
				t.Errorf("%s: %+v", body, p.Errors)
			}
		}
	}
	s.MustFail(t, 400, council.CodeMalformed, "POST", "/v1/gate", `[]`)
	if n := requests(s); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A repeated request with a key reviews once, in the background too, and the estimate says what is asked.
func TestGateOnceAsEstimated(t *testing.T) {
	s := startGate(t, []simllm.Model{finder("a/one"), silent("b/two", 1), silent("c/three", 1)})
	var e spend.Estimate
	if _, data := s.Call(t, "POST", "/v1/council/estimate", changeBody); json.Unmarshal(data, &e) != nil || e.Calls != 6 ||
		e.Mode != council.ModeTask || e.ByMode != nil || e.ByStage["stage2"].Calls != 3 {
		t.Errorf("%s", data)
	}
	lock := `{"diff":` + quoted(strings.ReplaceAll(gatesim.Refund, "pay/refund.go", "go.sum")) + `}`
	if _, data := s.Call(t, "POST", "/v1/council/estimate", lock); json.Unmarshal(data, &e) != nil || e.Calls != 0 {
		t.Errorf("%s", data)
	}
	key := []string{"Idempotency-Key", "1"}
	background := strings.Replace(changeBody, `{`, `{"background":true,`, 1)
	resp, data := s.Call(t, "POST", "/v1/gate", background, key...)
	var summary council.Summary
	if err := json.Unmarshal(data, &summary); err != nil || resp.StatusCode != http.StatusAccepted ||
		resp.Header.Get("Location") != "/v1/gate/"+summary.ID {
		t.Fatalf("%d %s %v", resp.StatusCode, data, resp.Header)
	}
	s.Watch(t, summary.ID)
	s.Call(t, "POST", "/v1/gate", background, key...)
	s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/gate", changeBody, key...)
	s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/council", `{"query":"x"}`, key...)
	if n := requests(s); n != 5 {
		t.Errorf("%d calls", n)
	}
	_, first := s.Call(t, "GET", "/v1/gate/"+summary.ID, "")
	var r gate.Report
	if err := json.Unmarshal(first, &r); err != nil || r.Verdict != gate.Blocked {
		t.Errorf("%s", first)
	}
}

// While a session runs, its report is not there yet. A cancelled session has none.
func TestGateStillRuns(t *testing.T) {
	s, id := runningGate(t)
	resp, data := s.Call(t, "GET", "/v1/gate/"+id, "")
	var running council.Summary
	if err := json.Unmarshal(data, &running); err != nil || resp.StatusCode != http.StatusAccepted || running.Status != council.StatusRunning {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	s.Call(t, "DELETE", "/v1/council/"+id, "")
	s.Watch(t, id)
	s.MustFail(t, 404, council.CodeNotFound, "GET", "/v1/gate/"+id, "")
}

// runningGate starts a server with a session whose second member does not reply.
func runningGate(t *testing.T) (s *server, id string) {
	t.Helper()
	slow := finder("b/two")
	slow.Faults = []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}
	s = startGate(t, []simllm.Model{finder("a/one"), slow})
	_, data := s.Call(t, "POST", "/v1/gate", strings.Replace(changeBody, `{`, `{"background":true,`, 1))
	var summary council.Summary
	if err := json.Unmarshal(data, &summary); err != nil {
		t.Fatal(err)
	}
	return s, summary.ID
}

// The order in which the replies arrive changes nothing.
func TestGateOrderOfArrival(t *testing.T) {
	var want []gate.Finding
	for i := range 3 {
		models := []simllm.Model{finder("a/one"), finder("b/two"), silent("c/three", 1)}
		s := startGate(t, models, func(_ *httpapi.Options, p *pipeline.Options) {
			p.Completer = delaying{p.Completer, models[i].Name}
		})
		r := s.reviewed(t, strings.Replace(changeBody, `{`, `{"seed":7,`, 1))
		if i == 0 {
			want = r.Findings
		}
		if diff := cmp.Diff(want, r.Findings); diff != "" || r.Verdict != gate.Blocked {
			t.Errorf("%s, with %s last: %s", r.Verdict, models[i].Name, diff)
		}
	}
}

// delaying has one model reply last.
type delaying struct {
	council.Completer
	last string
}

func (d delaying) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	if call.Model == d.last {
		time.Sleep(50 * time.Millisecond)
	}
	return d.Completer.Complete(ctx, call)
}
