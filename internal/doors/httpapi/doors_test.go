package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
	"github.com/google/go-cmp/cmp"
)

// fetch sends a GET and reads the JSON of its answer.
func fetch[T any](t *testing.T, s *server, path string, headers ...string) (v T) {
	t.Helper()
	resp, data := s.Call(t, "GET", path, "", headers...)
	if err := json.Unmarshal(data, &v); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, data, err)
	}
	return v
}

func TestCouncils(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	s := start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
		o.Models, o.AllowedModels, o.Shown.MaxQueryBytes = p.Models, p.AllowedModels, p.MaxQueryBytes
		p.Reviewers, p.Chairman, p.ChairmanFallbacks, p.MaxCostUSD = []string{"amber", "birch"}, "birch", []string{"cedar"}, new(2.5)
	})
	card := fetch[httpapi.CouncilList](t, s, "/v1/councils").Councils[0]
	want := httpapi.CouncilCard{
		Name: "default", Default: true, Members: []string{"amber", "birch", "cedar"}, Reviewers: []string{"amber", "birch"}, Chairman: "birch",
		Fallbacks: []string{"cedar"}, AllowedModels: card.AllowedModels, Mode: council.ModeCouncil, Calls: 6, LeastCalls: 6, MaxCostUSD: new(2.5), MaxQueryBytes: 1 << 18,
		Sentence:      "6 calls. No estimate: there is no price for birch.",
		LimitSentence: "The session stops asking once this is spent. Calls that are under way may pass it.",
	}
	if diff := cmp.Diff(want, card); diff != "" || len(card.AllowedModels) < 4 {
		t.Errorf("before any session: %s", diff)
	}
	ids := map[string]bool{}
	for range 3 {
		id := s.background(t, `"query":"x"`)
		s.Watch(t, id)
		ids[id] = true
	}
	s.Watch(t, s.background(t, `"query":"another council","models":["amber","dune"]`))
	lately := fetch[httpapi.CouncilList](t, s, "/v1/councils").Councils[0].Lately
	var took []float64
	for id := range ids {
		took = append(took, s.session(t, id).Metadata.Timing.TotalMS)
	}
	slices.Sort(took)
	switch {
	case lately == nil || lately.Sessions != 3:
		t.Fatalf("lately is %+v after three sessions of the council and one of another", lately)
	case lately.MedianMS != took[1] || lately.P90MS != took[2]:
		t.Errorf("the median is %v and 90 %% are %v, of %v", lately.MedianMS, lately.P90MS, took)
	case lately.Stage1MS <= 0 || lately.Stage1MS >= took[2]:
		t.Errorf("stage 1 takes %v", lately.Stage1MS)
	}
	if (lately.MedianCostUSD == nil) != (lately.Priced == 0) {
		t.Errorf("%d sessions have a cost, its median is %v", lately.Priced, lately.MedianCostUSD)
	}
}

func TestNoCouncil(t *testing.T) {
	s := start(t, nil)
	if list := fetch[httpapi.CouncilList](t, s, "/v1/councils").Councils; len(list) != 0 {
		t.Errorf("got %+v", list)
	}
}

// The panel, the estimate and the bill of a session say the same of its cost. After the first session, the cost of the
// sessions of the council is what the next one is expected to cost.
func TestMoneyInOneVoice(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
		o.Models, o.Tokens = p.Models, doortest.Tokens(secret)
	})
	auth := []string{"Authorization", "Bearer " + secret}
	call := func(method, path, body string, into any) {
		t.Helper()
		if resp, data := s.Call(t, method, path, body, auth...); resp.StatusCode != http.StatusOK || json.Unmarshal(data, into) != nil {
			t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, data)
		}
	}
	var session council.Session
	call("POST", "/v1/council", `{"query":"x","max_cost_usd":1}`, &session)
	cost := spend.FromFloat(*session.Metadata.Usage.CostUSD).Dollars()
	var list httpapi.CouncilList
	call("GET", "/v1/councils", "", &list)
	if got, want := list.Councils[0].Sentence, "7 calls, about "+cost+"."; got != want {
		t.Errorf("the panel says %q, want %q", got, want)
	}
	var e spend.Estimate
	call("POST", "/v1/council/estimate", `{"query":"y"}`, &e)
	if want := "7 calls, about " + cost + ". No upper limit: there is no price for birch."; e.Sentence != want {
		t.Errorf("the estimate says %q, want %q", e.Sentence, want)
	}
	var bill spend.SessionCost
	call("GET", "/v1/council/"+session.ID+"/cost", "", &bill)
	if bill.Cost != cost || !strings.HasPrefix(bill.Sentence, "It cost "+cost+". $0.9") ||
		!strings.Contains(bill.Left, " of the session's $1.00 left. $1.00 of today's $1.00 left. $1.00 of your $1.00 for today left.") {
		t.Errorf("the bill is %+v", bill)
	}
	s.Daemon.SpendFails.Store(true)
	call("GET", "/v1/council/"+session.ID+"/cost", "", &bill)
	if strings.Contains(bill.Sentence, "today") || bill.Cost != cost {
		t.Errorf("without a report the bill is %+v", bill)
	}
}

func TestDemo(t *testing.T) {
	demo := func(questions []string) *httpapi.Demo {
		s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Shown.Demo = questions })
		return fetch[httpapi.CouncilList](t, s, "/v1/councils").Demo
	}
	if got := demo(nil); got != nil {
		t.Errorf("a daemon that is no demo answers %+v", got)
	}
	for _, questions := range [][]string{{}, {"Which database?", "Which queue?"}} {
		if diff := cmp.Diff(&httpapi.Demo{Questions: questions}, demo(questions)); diff != "" {
			t.Errorf("the demo (-want +got):\n%s", diff)
		}
	}
}

func TestListIsSearched(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	s := start(t, nil)
	var ids []string
	for _, query := range []string{"the Monolith", "a second question", "monolithic ÄRGER"} {
		id := s.background(t, `"query":"`+query+`"`)
		s.Watch(t, id)
		ids = append(ids, id)
	}
	for _, tt := range []struct {
		query string
		want  []string
		more  bool
	}{
		{"", []string{ids[2], ids[1], ids[0]}, false},
		{"?q=MONO", []string{ids[2], ids[0]}, false},
		{"?q=%C3%A4rger", []string{ids[2]}, false},
		{"?q=no+such+text", nil, false},
		{"?status=complete&limit=2", []string{ids[2], ids[1]}, true},
		{"?limit=3", []string{ids[2], ids[1], ids[0]}, false},
		{"?limit=1&before=" + ids[2], []string{ids[1]}, true},
		{"?q=mono&before=" + ids[2], []string{ids[0]}, false},
		{"?status=failed", nil, false},
		{"?before=" + ids[0], nil, false},
	} {
		list := fetch[httpapi.SessionList](t, s, "/v1/council"+tt.query)
		var got []string
		for _, summary := range list.Sessions {
			got = append(got, summary.ID)
			if took := s.session(t, summary.ID).Metadata.Timing.TotalMS; summary.DurationMS == nil || *summary.DurationMS != took {
				t.Errorf("%s took %v, the list says %v", summary.ID, took, summary.DurationMS)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || list.More != tt.more {
			t.Errorf("%q: more is %v, %s", tt.query, list.More, diff)
		}
	}
}

// What was asked can be asked again as it is, and gives the same session but for its texts.
func TestRequestRoundTrip(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	s := start(t, nil)
	for _, fields := range []string{
		`"query":"x"`,
		`"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],
			"models":["amber","dune","amber"],"chairman":"dune","seed":7,"order":"shared","category":"math","language":"de",
			"timeout_seconds":30.5,"max_cost_usd":1.5,"max_total_tokens":100000,"on_partial":"refuse"`,
	} {
		id := s.background(t, fields)
		s.Watch(t, id)
		request := fetch[map[string]any](t, s, "/v1/council/"+id+"/request")
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		again := s.background(t, strings.Trim(string(body), "{}"))
		s.Watch(t, again)
		if diff := cmp.Diff(request, fetch[map[string]any](t, s, "/v1/council/"+again+"/request")); diff != "" {
			t.Errorf("the second request: %s", diff)
		}
		first, second := s.session(t, id), s.session(t, again)
		if diff := cmp.Diff(first.Metadata.LabelToModel, second.Metadata.LabelToModel); diff != "" || first.Stage3.Model != second.Stage3.Model {
			t.Errorf("the second session: %s", diff)
		}
		var given map[string]any
		if err := json.Unmarshal([]byte("{"+fields+"}"), &given); err != nil {
			t.Fatal(err)
		}
		for name, value := range given {
			if diff := cmp.Diff(value, request[name]); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	// A chat with one member alone asks that member again.
	_, data := s.Call(t, "POST", "/v1/chat/completions", `{"model":"council/dune","messages":[{"role":"user","content":"Why?"}]}`)
	var chat openai.Chat
	if err := json.Unmarshal(data, &chat); err != nil {
		t.Fatal(err)
	}
	if request := fetch[map[string]any](t, s, "/v1/council/"+chat.Council.SessionID+"/request"); request["query"] != "Why?" || request["mode"] != "single" ||
		!cmp.Equal(request["models"], []any{"dune"}) {
		t.Errorf("got %v", request)
	}
}

// Where nothing is below /v1, an SDK of OpenAI finds the reason, and what to do.
func TestHints(t *testing.T) {
	s := start(t, nil)
	for path, want := range map[string]string{
		"/v1/v1/chat/completions": "twice", "/v1//chat/completions": "two slashes in a row", "/v1/completions": "text completions",
		"/v1/embeddings": "embeddings", "/v1/messages": "Anthropic", "/chat/completions": "lacks /v1", "/v1/elsewhere": "openapi.yaml",
		"/v1/council/none": "GET /v1/council", "/v1/councils/": "openapi.yaml",
	} {
		method := "POST"
		if strings.HasPrefix(path, "/v1/council/") {
			method = "GET"
		}
		_, p := s.MustFail(t, 404, council.CodeNotFound, method, path, "")
		if !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %s", path, p.Detail)
		}
		if (p.OpenAI != nil) != strings.HasPrefix(path, "/v1/") {
			t.Errorf("%s: in OpenAI's shape: %+v", path, p.OpenAI)
		} else if p.OpenAI != nil && (p.OpenAI.Message != p.Detail || p.OpenAI.Type != "invalid_request_error") {
			t.Errorf("%s: in OpenAI's shape: %+v", path, p.OpenAI)
		}
	}
	if _, p := s.MustFail(t, 405, council.CodeMethodNotAllowed, "PUT", "/v1/council", "{}"); p.OpenAI == nil {
		t.Error("a wrong method is not told in OpenAI's shape")
	}
	if _, p := s.AskForProblem(t, "POST", "/v1/council", "{"); p.OpenAI != nil {
		t.Error("another problem is told in OpenAI's shape")
	}
}

// Pages of the configured origins may call the interface below /v1, and no others.
func TestOrigins(t *testing.T) {
	const page, stranger = "https://chat.example.com", "https://elsewhere.example"
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Origins, o.Tokens = []string{page}, doortest.Tokens(secret)
	})
	for _, tt := range []struct {
		name, method, path, origin string
		headers                    []string
		status                     int
		shared                     bool
	}{
		{
			"preflight", "OPTIONS", "/v1/council", page,
			[]string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-stainless-lang"},
			204, true,
		},
		{"preflight of a stranger", "OPTIONS", "/v1/council", stranger, []string{"Access-Control-Request-Method", "POST"}, 405, false},
		{"plain OPTIONS", "OPTIONS", "/v1/council", page, nil, 405, true},
		{"reading", "GET", "/v1/models", page, nil, 200, true},
		{"reading of a stranger", "GET", "/v1/models", stranger, nil, 200, false},
		{"asking", "POST", "/v1/council", page, []string{"Sec-Fetch-Site", "cross-site"}, 200, true},
		{"asking of a stranger", "POST", "/v1/council", stranger, []string{"Sec-Fetch-Site", "cross-site"}, 403, false},
		{"the report", "GET", "/v1/bias-report", page, []string{"Sec-Fetch-Site", "cross-site"}, 200, true},
		{"the report of a stranger", "GET", "/v1/bias-report", stranger, []string{"Sec-Fetch-Site", "cross-site"}, 403, false},
		{"an error", "GET", "/v1/nothing", page, nil, 404, true},
		{"without a token", "GET", "/v1/models", page, []string{"Authorization", "none"}, 401, true},
		{"the page", "GET", "/", page, nil, 200, false},
		{"health", "GET", "/healthz", page, nil, 200, false},
	} {
		headers := slices.Concat([]string{"Origin", tt.origin, "Authorization", "Bearer " + secret}, tt.headers)
		body := ""
		if tt.method == "POST" {
			body = `{"query":"x"}`
		}
		resp, data := s.Call(t, tt.method, tt.path, body, headers...)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s", tt.name, resp.StatusCode, data)
		}
		want := ""
		if tt.shared {
			want = page
		}
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("%s: shared with %q", tt.name, got)
		}
		if !slices.Contains(resp.Header.Values("Vary"), "Origin") {
			t.Errorf("%s: Vary is %q", tt.name, resp.Header.Values("Vary"))
		}
		if resp.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: with cookies", tt.name)
		}
		if tt.name == "preflight" {
			if got := resp.Header.Get("Access-Control-Allow-Headers"); got != "authorization,x-stainless-lang" {
				t.Errorf("allowed headers: %q", got)
			}
		}
	}
	closed := start(t, nil)
	resp, _ := closed.Call(t, "GET", "/v1/models", "", "Origin", page)
	if resp.Header.Get("Access-Control-Allow-Origin") != "" || resp.Header.Get("Vary") != "" {
		t.Errorf("without the setting: %v", resp.Header)
	}
}
