package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/doortest"
	"github.com/google/go-cmp/cmp"
)

// votes has a model cast these votes, in the order of the questions.
func votes(name string, cast ...string) simllm.Model {
	return simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) {
		members := map[string]map[string]string{}
		for i, vote := range cast {
			members[fmt.Sprintf("q%d", i+1)] = map[string]string{"vote": vote}
		}
		data, _ := json.Marshal(members)
		return string(data), task.Kind == simllm.Decision
	}}
}

// judges serves a council of four, whose votes on the questions of threeQuestions are known.
func judges(t *testing.T, mutate ...func(*httpapi.Options, *pipeline.Options)) *doortest.Server {
	t.Helper()
	models := []simllm.Model{
		votes("a", "true", "billing", "Blocked"), votes("b", "true", "billing", "Blocked"),
		votes("c", "true", "billing", "Blocked"), votes("d", "true", "technical", "Blocked"),
		votes("unsure", "cannot tell", "billing"),
	}
	four := func(_ *httpapi.Options, p *pipeline.Options) { p.Models = []string{"a", "b", "c", "d"} }
	return doortest.Start(t, models, append([]func(*httpapi.Options, *pipeline.Options){four}, mutate...)...)
}

func requests(s *doortest.Server) (n int) {
	for _, m := range s.Sim.Stats().Models {
		n += m.Requests
	}
	return n
}

const threeQuestions = `[
 {"type":"predicate","name":"dup","instructions":"The customer was charged twice."},
 {"type":"choice","name":"cat","instructions":"Classify.","choices":[{"value":"billing","description":"charges"},{"value":"technical"}]},
 {"type":"score","instructions":"How urgent?","levels":[{"label":"Routine"},{"label":"Degraded"},{"label":"Blocked"}]}]`

// asking returns a body with these questions.
func asking(model, input, questions string) string {
	return fmt.Sprintf(`{"model":%q,"input":%s,"questions":%s}`, model, input, questions)
}

func decided(t *testing.T, s *doortest.Server, body string, headers ...string) map[string]any {
	t.Helper()
	resp, data := s.Call(t, "POST", "/v1/decisions", body, headers...)
	var decision map[string]any
	if err := json.Unmarshal(data, &decision); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %s: %v", resp.StatusCode, data, err)
	}
	return decision
}

// The answers have OpenAI's form. The numbers were computed by hand.
func TestDecisions(t *testing.T) {
	s := judges(t)
	got := decided(t, s, asking("council", `"I was charged twice."`, threeQuestions))
	usage := got["usage"].(map[string]any)
	if usage["input_tokens"].(float64) < 100 || usage["total_tokens"] != usage["input_tokens"].(float64)+usage["output_tokens"].(float64) {
		t.Errorf("usage %v", usage)
	}
	delete(got, "usage")
	of := func(votes string) string {
		return `{"asked":4,"votes":` + votes + `,"abstained":0,"failed":0,"calibrated":false}`
	}
	want := `{"model":"council","answers":[
 {"type":"predicate","name":"dup","probability":0.9,"council":` + of(`[0,4]`) + `},
 {"type":"choice","name":"cat","choice":"billing","confidence":0.4,"probabilities":[{"value":"billing","probability":0.7},{"value":"technical","probability":0.3}],"council":` + of(`[3,1]`) + `},
 {"type":"score","name":null,"score":1.8,"confidence":0.8,"probabilities":[{"value":0,"label":"Routine","probability":0.066666666667},{"value":1,"label":"Degraded","probability":0.066666666667},{"value":2,"label":"Blocked","probability":0.866666666667}],"council":` + of(`[0,0,4]`) + `}],
 "council":{"cost_usd":null,"failed":[],"warnings":[]}}`
	var wanted map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Error(diff)
	}
	if n := requests(s); n != 4 {
		t.Errorf("%d calls", n)
	}
	if _, data := s.Call(t, "GET", "/v1/council", ""); !strings.Contains(string(data), `"sessions":[]`) {
		t.Errorf("it left a session: %s", data)
	}
}

// One member votes alone, and half of the seats without a vote are a refusal of this question.
func TestDecisionOfFewSeats(t *testing.T) {
	s := judges(t)
	answers := decided(t, s, asking("council/a", `"Why?"`, threeQuestions))["answers"].([]any)
	if p := answers[0].(map[string]any)["probability"]; p != 0.75 {
		t.Errorf("one seat: %v", p)
	}
	answers = decided(t, s, asking("council/a,unsure", `"Why?"`, threeQuestions))["answers"].([]any)
	var types []any
	for _, a := range answers {
		types = append(types, a.(map[string]any)["type"], a.(map[string]any)["name"])
	}
	if diff := cmp.Diff([]any{"refusal", "dup", "choice", "cat", "refusal", nil}, types); diff != "" {
		t.Error(diff)
	}
}

// A boolean and a string with the same text are two choices.
func TestDecisionWithTypedChoices(t *testing.T) {
	var shown sync.Map
	model := simllm.Model{Name: "typed", Reply: func(task simllm.Task) (string, bool) {
		for i, option := range task.Questions[0].Options {
			shown.Store(option, true)
			if option == "true (boolean)" || task.Questions[0].Labels[i] == "true (boolean)" {
				return fmt.Sprintf(`{"q1":{"vote":%q}}`, task.Questions[0].Labels[i]), true
			}
		}
		return "", true
	}}
	s := doortest.Start(t, []simllm.Model{model})
	got := decided(t, s, asking("council/typed", `"Why?"`, `[{"type":"choice","choices":[{"value":"true"},{"value":true},{"value":false}]}]`))
	answer := got["answers"].([]any)[0].(map[string]any)
	if answer["choice"] != true {
		t.Errorf("%v, shown %v", answer, &shown)
	}
}

// Messages, tool calls and their results become one text.
func TestDecisionInput(t *testing.T) {
	var mu sync.Mutex
	var text string
	model := simllm.Model{Name: "reader", Reply: func(task simllm.Task) (string, bool) {
		mu.Lock()
		defer mu.Unlock()
		text = task.Text
		return `{"q1":true}`, true
	}}
	s := doortest.Start(t, []simllm.Model{model})
	const one = `[{"type":"predicate","instructions":[{"type":"input_text","text":"It is"},{"type":"input_json","data":{"a":1}}]}]`
	for _, tt := range []struct{ input, want string }{
		{`"Plain."`, "Plain."},
		{`[{"role":"user","content":[{"type":"input_text","text":"One"},{"type":"input_json","data":[{"b": 2}]}]}]`, "One\n[{\"b\": 2}]"},
		{
			`[{"role":"developer","content":"Be brief."},{"type":"message","role":"user","content":"Where?"},
			{"type":"function_call","call_id":"1","name":"find","arguments":"{\"q\":1}"},
			{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"Here."}]},
			{"type":"custom_tool_call","call_id":"2","name":"run","input":"ls"},
			{"type":"custom_tool_call_output","call_id":"2","output":"a.txt"},
			{"role":"assistant","content":[{"type":"output_text","text":"There."},{"type":"refusal","refusal":"No."}],"phase":"final_answer"},
			{"role":"user","content":""}]`,
			"developer:\nBe brief.\n\nuser:\nWhere?\n\ncall of the tool find:\n{\"q\":1}\n\nresult of the tool find:\nHere.\n\n" +
				"call of the tool run:\nls\n\nresult of the tool run:\na.txt\n\nassistant:\nThere.\nNo.",
		},
	} {
		decided(t, s, asking("council/reader", tt.input, one))
		if text != tt.want {
			t.Errorf("the text is %q, want %q", text, tt.want)
		}
	}
}

// Bad input is refused before a call is made, with the place of each problem. What is only not supported by a council
// has no effect.
func TestBadDecisions(t *testing.T) {
	s := judges(t)
	many := func(n int, form string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(form, i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	predicate := `{"type":"predicate","instructions":"x","name":"n%d"}`
	choice := func(choices string) string { return `[{"type":"choice","instructions":"x","choices":` + choices + `}]` }
	score := func(levels string) string { return `[{"type":"score","instructions":"x","levels":` + levels + `}]` }
	good := many(1, predicate)
	for _, tt := range []struct{ name, body, field string }{
		{"no input", `{"model":"council","questions":` + good + `}`, "input"},
		{"an empty input", asking("council", `""`, good), "input"},
		{"blanks", asking("council", `[{"role":"user","content":" "}]`, good), "input"},
		{"a number", asking("council", `7`, good), "input"},
		{"an image", asking("council", `[{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}]`, good), "input[0].content[0]"},
		{"an image of earlier", asking("council", `[{"role":"user","content":[{"type":"input_image"}]},{"role":"user","content":"x"}]`, good), "input[0].content[0]"},
		{"an image of a tool", asking("council", `[{"type":"function_call","call_id":"1","name":"f"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_image"}]}]`, good), "input[1].output[0]"},
		{"JSON without data", asking("council", `[{"role":"user","content":[{"type":"input_json"}]}]`, good), "input[0].content[0]"},
		{"a result without a call", asking("council", `[{"type":"function_call_output","call_id":"1","output":"x"}]`, good), "input[0].call_id"},
		{"a foreign item", asking("council", `[{"type":"reasoning"},{"role":"user","content":"x"}]`, good), "input[0].type"},
		{"a foreign role", asking("council", `[{"role":"tool","content":"x"}]`, good), "input[0].role"},
		{"a long input", asking("council", `"`+strings.Repeat("x", 1<<18+1)+`"`, good), "input"},
		{"no questions", `{"model":"council","input":"x"}`, "questions"},
		{"an empty list", asking("council", `"x"`, `[]`), "questions"},
		{"21 questions", asking("council", `"x"`, many(21, predicate)), "questions"},
		{"long questions", asking("council", `"x"`, `[{"type":"predicate","instructions":"`+strings.Repeat("x", 1<<18+1)+`"}]`), "questions"},
		{"a doubled name", asking("council", `"x"`, `[{"type":"predicate","name":"n","instructions":"x"},{"type":"predicate","name":"n","instructions":"y"}]`), "questions[1].name"},
		{"an empty name", asking("council", `"x"`, `[{"type":"predicate","name":"","instructions":"x"}]`), "questions[0].name"},
		{"no type", asking("council", `"x"`, `[{"instructions":"x"}]`), "questions[0].type"},
		{"a foreign type", asking("council", `"x"`, `[{"type":"box","instructions":"x"}]`), "questions[0].type"},
		{"no statement", asking("council", `"x"`, `[{"type":"predicate"}]`), "questions[0].instructions"},
		{"an empty statement", asking("council", `"x"`, `[{"type":"predicate","instructions":" "}]`), "questions[0].instructions"},
		{"empty instructions", asking("council", `"x"`, `[{"type":"score","instructions":"","levels":[{"label":"a"},{"label":"b"}]}]`), "questions[0].instructions"},
		{"an image in a question", asking("council", `"x"`, `[{"type":"predicate","instructions":[{"type":"input_image"}]}]`), "questions[0].instructions[0]"},
		{"no choices", asking("council", `"x"`, `[{"type":"choice","instructions":"x"}]`), "questions[0].choices"},
		{"one choice", asking("council", `"x"`, choice(many(1, `{"value":"%d"}`))), "questions[0].choices"},
		{"27 choices", asking("council", `"x"`, choice(many(27, `{"value":"%d"}`))), "questions[0].choices"},
		{"a doubled value", asking("council", `"x"`, choice(`[{"value":"a"},{"value":"a"}]`)), "questions[0].choices[1].value"},
		{"a doubled boolean", asking("council", `"x"`, choice(`[{"value":true},{"value":true}]`)), "questions[0].choices[1].value"},
		{"an empty value", asking("council", `"x"`, choice(`[{"value":""},{"value":"a"}]`)), "questions[0].choices[0].value"},
		{"a value that is a number", asking("council", `"x"`, choice(`[{"value":1},{"value":"a"}]`)), "questions[0].choices[0].value"},
		{"no value", asking("council", `"x"`, choice(`[{"description":"d"},{"value":"a"}]`)), "questions[0].choices[0].value"},
		{"one level", asking("council", `"x"`, score(many(1, `{"label":"%d"}`))), "questions[0].levels"},
		{"11 levels", asking("council", `"x"`, score(many(11, `{"label":"%d"}`))), "questions[0].levels"},
		{"a doubled label", asking("council", `"x"`, score(`[{"label":"a"},{"label":"a"}]`)), "questions[0].levels[1].label"},
		{"an empty label", asking("council", `"x"`, score(`[{"label":"a"},{"label":" "}]`)), "questions[0].levels[1].label"},
		{"a stream", `{"model":"council","input":"x","stream":true,"questions":` + good + `}`, "stream"},
		{"a model that may not be named", asking("council/gpt", `"x"`, good), "model"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, data := s.Call(t, "POST", "/v1/decisions", tt.body)
			var e httpapi.ChatError
			if err := json.Unmarshal(data, &e); err != nil || e.Error.Param == nil || *e.Error.Param != tt.field {
				t.Errorf("%d %s: %v", resp.StatusCode, data, err)
			}
			if want := map[bool]int{true: 403, false: 422}[tt.field == "model"]; resp.StatusCode != want {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, want, data)
			}
			if strings.Count(e.Error.Message, tt.field+":") != 1 || strings.Count(e.Error.Message, "; ") != 1 {
				t.Errorf("more than one problem: %s", e.Error.Message)
			}
		})
	}
	if resp, data := s.Call(t, "POST", "/v1/decisions", asking("gpt-6-luna", `"x"`, good)); resp.StatusCode != 404 {
		t.Errorf("an unknown model: %d %s", resp.StatusCode, data)
	}
	if n := requests(s); n > 0 {
		t.Errorf("%d calls were made", n)
	}
	body := `{"model":"council","input":"x","stream":false,"prompt_cache_key":"k","prompt_cache_options":{"mode":"explicit"},
		"safety_identifier":"ada","temperature":9,"questions":` + many(20, predicate) + `}`
	if answers := decided(t, s, body)["answers"].([]any); len(answers) != 20 {
		t.Errorf("%d answers", len(answers))
	}
	decided(t, s, asking("council", `"x"`, choice(many(26, `{"value":"%d"}`))))
	decided(t, s, asking("council", `"x"`, score(many(10, `{"label":"%d"}`))))
}

// With an Idempotency-Key the same request gets the same answer, and without one the same failure: nothing is paid twice.
func TestDecisionsArePaidOnce(t *testing.T) {
	broken := simllm.Model{Name: "broken", Faults: []simllm.Fault{{Kind: simllm.FaultErrorIn200, Rate: 1}}}
	prose := simllm.Model{Name: "prose", Reply: func(simllm.Task) (string, bool) { return "Yes.", true }}
	s := doortest.Start(t, []simllm.Model{broken, prose, votes("a", "true", "billing", "Blocked")})
	body := asking("council/a", `"x"`, threeQuestions)
	first := decided(t, s, body, "Idempotency-Key", "k")
	again := decided(t, s, body, "Idempotency-Key", "k")
	if diff := cmp.Diff(first, again); diff != "" || requests(s) != 1 {
		t.Errorf("%d calls: %s", requests(s), diff)
	}
	if resp, data := s.Call(t, "POST", "/v1/decisions", asking("council/a", `"y"`, threeQuestions), "Idempotency-Key", "k"); resp.StatusCode != 409 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	decided(t, s, body)
	decided(t, s, body)
	if n := requests(s); n != 3 {
		t.Errorf("%d calls: without a key each request asks", n)
	}
	for _, model := range []string{"council/broken", "council/a,prose"} {
		body := asking(model, `"x"`, threeQuestions)
		before := requests(s)
		resp, data := s.Call(t, "POST", "/v1/decisions", body)
		if resp.StatusCode != 502 || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(string(data), `"code":"no_quorum"`) {
			t.Errorf("%d %v %s", resp.StatusCode, resp.Header, data)
		}
		paid := requests(s)
		resp, data = s.Call(t, "POST", "/v1/decisions", body)
		if resp.StatusCode != 502 || resp.Header.Get("Councild-Replayed") != "true" || requests(s) != paid || paid == before {
			t.Errorf("%d %v %s", resp.StatusCode, resp.Header, data)
		}
	}
}

// A client that leaves cancels its calls, and the place of its session is free again.
func TestDecisionWhoseClientLeaves(t *testing.T) {
	hanging := simllm.Model{Name: "hanging", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}
	s := doortest.Start(t, []simllm.Model{hanging, votes("a", "true")}, func(o *httpapi.Options, _ *pipeline.Options) { o.MaxSessions = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/decisions", strings.NewReader(asking("council/hanging", `"x"`, threeQuestions)))
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error)
	go func() {
		resp, err := s.Client().Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		left <- err
	}()
	for requests(s) == 0 {
		time.Sleep(time.Millisecond)
	}
	resp, data := s.Call(t, "POST", "/v1/decisions", asking("council/a", `"x"`, threeQuestions))
	if resp.StatusCode != 503 {
		t.Errorf("a session more than may run at once: %d %s", resp.StatusCode, data)
	}
	cancel()
	if err := <-left; err == nil {
		t.Error("the client that left got an answer")
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		resp, _ := s.Call(t, "POST", "/v1/decisions", asking("council/a", `"x"`, threeQuestions))
		if resp.StatusCode == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the session of the client that left still runs")
		}
	}
	if sim := s.Sim.Stats().Models["hanging"]; sim.Cancelled != 1 {
		t.Errorf("%+v", sim)
	}
}

// The limits of a token hold: a token without the right to ask is refused, and each decision counts as a session.
func TestDecisionsOfAToken(t *testing.T) {
	tokens := []httpapi.Token{
		{Name: "ci", Secret: doortest.Secret, Limits: httpapi.Limits{PerMinute: new(1)}},
		{Name: "reader", Secret: doortest.Secret + "2", May: []council.Right{council.MayReport}},
	}
	s := judges(t, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = tokens })
	body := asking("council", `"x"`, threeQuestions)
	var statuses []int
	for _, secret := range []string{"", doortest.Secret + "2", doortest.Secret, doortest.Secret} {
		resp, _ := s.Call(t, "POST", "/v1/decisions", body, "Authorization", "Bearer "+secret)
		statuses = append(statuses, resp.StatusCode)
	}
	if want := []int{401, 403, 200, 429}; !slices.Equal(statuses, want) {
		t.Errorf("statuses %v, want %v", statuses, want)
	}
}
