package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/runlog"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/doortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is one with what these tests ask of it.
type server struct{ *doortest.Server }

func start(t *testing.T, models []simllm.Model, mutate ...func(*httpapi.Options, *pipeline.Options)) *server {
	t.Helper()
	return &server{doortest.Start(t, models, mutate...)}
}

const secret = doortest.Secret

// limited returns tokens with the same limits.
func limited(limits httpapi.Limits, secrets ...string) []httpapi.Token {
	all := doortest.Tokens(secrets...)
	for i := range all {
		all[i].Limits = limits
	}
	return all
}

func TestCouncil(t *testing.T) {
	s := start(t, nil)
	// curl -d says that the body is a form, unless it is told otherwise.
	for _, media := range []string{"application/json", "application/json; charset=UTF-8", "application/x-www-form-urlencoded", ""} {
		resp, data := s.Call(t, "POST", "/v1/council", `{"query":"What is <b>Go</b>?","seed":9007199254740991}`, "Content-Type", media,
			"Content-Encoding", "identity")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("X-Request-Id") == "" {
			t.Fatalf("%s: %d %s", media, resp.StatusCode, data)
		}
		var session council.Session
		if err := json.Unmarshal(data, &session); err != nil {
			t.Fatal(err)
		}
		if session.Status != council.StatusComplete || session.Metadata.Seed != council.MaxSeed || len(session.Stage2) != 3 {
			t.Errorf("got %s", data)
		}
	}
}

// badInput is the table of docs/errors.md. Each row is sent to a server.
var badInput = []struct {
	name    string
	method  string
	path    string
	body    string
	headers []string
	status  int
	code    council.Code
	fields  []string // of errors
}{
	{"no body", "POST", "/v1/council", "", []string{"Content-Type", "application/json"}, 400, "malformed", nil},
	{"a body of blanks", "POST", "/v1/council", " \n", nil, 400, "malformed", nil},
	{"bad JSON", "POST", "/v1/council", `{"query": "x"`, nil, 400, "malformed", nil},
	{"single quotes", "POST", "/v1/council", `{'query': 'x'}`, nil, 400, "malformed", nil},
	{"an array", "POST", "/v1/council", `["x"]`, nil, 400, "malformed", nil},
	{"`null`", "POST", "/v1/council", `null`, nil, 400, "malformed", nil},
	{"trailing data", "POST", "/v1/council", `{"query": "x"} {}`, nil, 400, "malformed", nil},
	{"bytes that are not UTF-8", "POST", "/v1/council", "{\"query\": \"\xff\"}", nil, 400, "malformed", nil},
	{
		"a wrong media type", "POST", "/v1/council", `{"query": "x"}`,
		[]string{"Content-Type", "text/plain"},
		415,
		"unsupported_media_type", nil,
	},
	{
		"another character set", "POST", "/v1/council", `{"query": "x"}`,
		[]string{"Content-Type", "application/json; charset=latin1"},
		415, "unsupported_media_type", nil,
	},
	{
		"a compressed body", "POST", "/v1/council", "\x1f\x8b\x08",
		[]string{"Content-Encoding", "gzip"},
		415, "unsupported_media_type", nil,
	},
	{"2 MiB", "POST", "/v1/council", `{"query": "` + strings.Repeat("x", 2<<20) + `"}`, nil, 413, "too_large", nil},
	{"an unknown field", "POST", "/v1/council", `{"query": "x", "querry": "y"}`, nil, 422, "invalid", []string{"querry"}},
	{"a field in another case", "POST", "/v1/council", `{"Query": "x"}`, nil, 422, "invalid", []string{"Query"}},
	{"a field twice", "POST", "/v1/council", `{"query": "x", "query": "y"}`, nil, 422, "invalid", []string{"query"}},
	{
		"an unknown field of a message", "POST", "/v1/council", `{"messages": [{"role": "user", "content": "x", "name": "y"}]}`, nil, 422,
		"invalid",
		[]string{"messages[0].name"},
	},
	{
		"a field of a message in another case", "POST", "/v1/council", `{"messages": [{"role": "user", "Content": "x"}]}`, nil, 422,
		"invalid",
		[]string{"messages[0].Content"},
	},
	{
		"a field of a message twice", "POST", "/v1/council", `{"messages": [{"role": "user", "content": "x", "content": "y"}]}`, nil, 422,
		"invalid",
		[]string{"messages[0].content"},
	},
	{
		"more than 1,000 messages", "POST", "/v1/council",
		`{"messages": [` + strings.Repeat(`{"role": "user", "content": "x"},`, 1000) + `{"role": "user", "content": "x"}]}`, nil, 422,
		"invalid",
		[]string{"messages"},
	},
	{"an empty query", "POST", "/v1/council", `{"query": ""}`, nil, 422, "invalid", []string{"query"}},
	{
		"a query over its limit", "POST", "/v1/council", `{"query": "` + strings.Repeat("x", 1<<18+1) + `"}`, nil, 422, "invalid",
		[]string{"query"},
	},
	{"a query that is a number", "POST", "/v1/council", `{"query": 1}`, nil, 422, "invalid", []string{"query"}},
	{"an unknown mode", "POST", "/v1/council", `{"query": "x", "mode": "fast"}`, nil, 422, "invalid", []string{"mode"}},
	{"the mode `judge`", "POST", "/v1/council", `{"query": "x", "mode": "judge"}`, nil, 422, "invalid", []string{"mode"}},
	{"`vote` without a form", "POST", "/v1/council", `{"query": "x", "mode": "vote"}`, nil, 422, "invalid", []string{"answer_form"}},
	{
		"an unknown form", "POST", "/v1/council", `{"query": "x", "answer_form": {"type": "essay"}}`, nil, 422, "invalid",
		[]string{"answer_form"},
	},
	{
		"`chairman` with `ranked`", "POST", "/v1/council",
		`{"query": "x", "mode": "ranked", "output_schema": {"type": "object"}, "chairman": "amber"}`, nil, 422, "invalid",
		[]string{"chairman", "output_schema"},
	},
	{
		"`chairman` with `vote`", "POST", "/v1/council",
		`{"query": "x", "mode": "vote", "answer_form": {"type": "number"}, "output_schema": {"type": "object"}, "chairman": "amber"}`, nil,
		422, "invalid",
		[]string{"answer_form", "chairman", "output_schema"},
	},
	{
		"`single` with two models", "POST", "/v1/council", `{"query": "x", "mode": "single", "models": ["amber", "birch"]}`, nil, 422, "invalid",
		[]string{"mode"},
	},
	{"`first: 0`", "POST", "/v1/council", `{"query": "x", "first": 0}`, nil, 422, "invalid", []string{"first"}},
	{"`first: 3`", "POST", "/v1/council", `{"query": "x", "first": 3}`, nil, 422, "invalid", []string{"first"}},
	{"`first: -1`", "POST", "/v1/council", `{"query": "x", "first": -1}`, nil, 422, "invalid", []string{"first"}},
	{
		"`first` with `single`", "POST", "/v1/council",
		`{"query": "x", "first": 1, "mode": "single", "models": ["amber"]}`, nil, 422, "invalid",
		[]string{"first"},
	},
	{
		"`first` with `vote`", "POST", "/v1/council",
		`{"query": "x", "first": 1, "mode": "vote", "answer_form": {"type": "number"}}`, nil, 422, "invalid",
		[]string{"first"},
	},
	{
		"`first` with `output_schema`", "POST", "/v1/council",
		`{"query": "x", "first": 1, "output_schema": {"type": "object"}}`, nil, 422, "invalid",
		[]string{"first"},
	},
	{"one model", "POST", "/v1/council", `{"query": "x", "models": ["amber"]}`, nil, 422, "invalid", []string{"models"}},
	{
		"too many models", "POST", "/v1/council", `{"query": "x", "models": ["amber", "birch", "cedar", "dune", "amber"]}`, nil, 422,
		"invalid",
		[]string{"models"},
	},
	{
		"council and models", "POST", "/v1/council", `{"query": "x", "council": "default", "models": ["amber", "birch"]}`, nil, 422, "invalid",
		[]string{"council"},
	},
	{
		"an unknown model", "POST", "/v1/council", `{"query": "x", "models": ["amber", "nobody"]}`, nil, 403, "forbidden",
		[]string{"models[1]"},
	},
	{"an unknown chairman", "POST", "/v1/council", `{"query": "x", "chairman": "nobody"}`, nil, 403, "forbidden", []string{"chairman"}},
	{"a negative seed", "POST", "/v1/council", `{"query": "x", "seed": -2}`, nil, 422, "invalid", []string{"seed"}},
	{"a seed that is too large", "POST", "/v1/council", `{"query": "x", "seed": 9007199254740992}`, nil, 422, "invalid", []string{"seed"}},
	{"a seed that is not whole", "POST", "/v1/council", `{"query": "x", "seed": 1.5}`, nil, 422, "invalid", []string{"seed"}},
	{"a seed that is a text", "POST", "/v1/council", `{"query": "x", "seed": "1"}`, nil, 422, "invalid", []string{"seed"}},
	{"an order that is a number", "POST", "/v1/council", `{"query": "x", "order": 1}`, nil, 422, "invalid", []string{"order"}},
	{
		"several problems", "POST", "/v1/council", `{"query": "", "querry": "x", "seed": -2, "order": "random", "stream": 1}`, nil, 422,
		"invalid",
		[]string{"order", "querry", "query", "seed", "stream"},
	},
	{
		"a page of another origin", "POST", "/v1/council", `{"query": "x"}`,
		[]string{"Origin", "https://elsewhere.example"},
		403,
		"forbidden", nil,
	},
	{
		"streamed and in the background", "POST", "/v1/council", `{"query": "x", "stream": true, "background": true}`, nil, 422,
		"invalid",
		[]string{"background"},
	},
	{
		"in the background, events accepted", "POST", "/v1/council", `{"query": "x", "background": true}`,
		[]string{"Accept", "text/event-stream"},
		422, "invalid",
		[]string{"background"},
	},
	{
		"an empty idempotency key", "POST", "/v1/council", `{"query": "x"}`,
		[]string{"Idempotency-Key", ""},
		422, "invalid",
		[]string{"Idempotency-Key"},
	},
	{
		"an idempotency key that is too long", "POST", "/v1/council", `{"query": "x"}`,
		[]string{"Idempotency-Key", strings.Repeat("x", 256)},
		422, "invalid",
		[]string{"Idempotency-Key"},
	},
	{"an unknown session", "GET", "/v1/council/x", "", nil, 404, "not_found", nil},
	{"an unknown session", "GET", "/v1/council/x/events", "", nil, 404, "not_found", nil},
	{"an unknown session", "DELETE", "/v1/council/x", "", nil, 404, "not_found", nil},
	{"a wrong method", "DELETE", "/v1/council", "", nil, 405, "method_not_allowed", nil},
	{"a wrong method", "POST", "/v1/council/x", "{}", nil, 405, "method_not_allowed", nil},
	{"a wrong method", "DELETE", "/v1/council/x/events", "", nil, 405, "method_not_allowed", nil},
	{"a wrong method", "POST", "/v1/bias-report", "{}", nil, 405, "method_not_allowed", nil},
	{"a wrong method", "DELETE", "/healthz", "", nil, 405, "method_not_allowed", nil},
	{"a wrong method", "POST", "/readyz", "{}", nil, 405, "method_not_allowed", nil},
	{"a wrong method", "POST", "/openapi.yaml", "{}", nil, 405, "method_not_allowed", nil},
	{"a wrong path", "POST", "/v1/counsel", `{"query": "x"}`, nil, 404, "not_found", nil},
	{"a bad parameter", "GET", "/v1/council?limit=0&status=done&before=x&search=y", "", nil, 422, "invalid", []string{"before", "limit", "search", "status"}},
	{"an unknown parameter", "GET", "/v1/bias-report?session=3", "", nil, 422, "invalid", []string{"session"}},
	{
		"a bad parameter", "GET", "/v1/bias-report?sessions=-1&days=x&format=xml&since=now", "", nil, 422, "invalid",
		[]string{"days", "format", "sessions", "since"},
	},
	{"a semicolon", "GET", "/v1/bias-report?model=nosuch;days=7", "", nil, 422, "invalid", []string{"query"}},
	{"a bad escape", "GET", "/v1/bias-report?model=%zz&session=3", "", nil, 422, "invalid", []string{"query", "session"}},
	{"a wrong method", "POST", "/v1/leaderboard", "{}", nil, 405, "method_not_allowed", nil},
	{"an unknown parameter", "GET", "/v1/leaderboard?split=language", "", nil, 422, "invalid", []string{"split"}},
	{"a bad parameter", "GET", "/v1/leaderboard?sessions=x&category=poetry", "", nil, 422, "invalid", []string{"category", "sessions"}},
	{"no body", "POST", "/v1/disagreement", "", []string{"Content-Type", "application/json"}, 400, "malformed", nil},
	{
		"several problems", "POST", "/v1/disagreement",
		`{"answers": [{"id": "a", "text": "x", "model": "y"}, {"id": "a", "text": ""}], "backend": "x", "threshold": 2, "lexicon": {}}`,
		nil, 422, "invalid",
		[]string{"answers[0].model", "answers[1].id", "answers[1].text", "backend", "lexicon", "threshold"},
	},
	{"one answer", "POST", "/v1/disagreement", `{"answers": [{"id": "a", "text": "x"}]}`, nil, 422, "invalid", []string{"answers"}},
	{"a wrong method", "GET", "/v1/disagreement", "", nil, 405, "method_not_allowed", nil},
	{"no body", "POST", "/mcp", "", []string{"Content-Type", "application/json"}, 400, "malformed", nil},
	{"a wrong method", "GET", "/mcp", "", nil, 405, "method_not_allowed", nil},
	{"a path behind it", "POST", "/mcp/v1", "{}", nil, 404, "not_found", nil},
}

// An offset whose + is not written as %2B arrives with a blank.
func TestOffsetWithoutEscape(t *testing.T) {
	_, p := start(t, nil).MustFail(t, 422, council.CodeInvalid, "GET", "/v1/bias-report?since=2026-11-20T09:00:00+02:00", "")
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Fix, "%2B") {
		t.Errorf("the problems are %+v", p.Errors)
	}
}

func TestBadInput(t *testing.T) { //nolint:tparallel // its subtests share a server
	t.Parallel()
	s := start(t, nil)
	for _, tt := range badInput {
		t.Run(tt.name+" "+tt.path, func(t *testing.T) {
			resp, p := s.MustFail(t, tt.status, tt.code, tt.method, tt.path, tt.body, tt.headers...)
			var fields []string
			for _, f := range p.Errors {
				fields = append(fields, f.Field)
				if f.Message == "" || f.Fix == "" {
					t.Errorf("%+v does not say what is wrong and how to mend it", f)
				}
			}
			slices.Sort(fields)
			if diff := cmp.Diff(tt.fields, fields); diff != "" {
				t.Error(diff)
			}
			if (p.Status == 405) != (resp.Header.Get("Allow") != "") {
				t.Errorf("Allow: %q", resp.Header.Get("Allow"))
			}
		})
	}
	if n := s.Sim.Stats().Models["amber"].Requests; n != 0 {
		t.Errorf("bad requests cost %d calls", n)
	}
}

// docs/errors.md holds exactly the requests that are tested: a row for each error, with the routes that are not POST /v1/council.
func TestBadInputIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	names := map[string][]string{}
	routes := map[string][]string{}
	for _, tt := range badInput {
		row := fmt.Sprintf("| %d | `%s` | ", tt.status, tt.code)
		if names[row] == nil {
			rows = append(rows, row)
		}
		if routes[row+tt.name] == nil {
			names[row] = append(names[row], tt.name)
		}
		path, _, _ := strings.Cut(tt.path, "?")
		routes[row+tt.name] = append(routes[row+tt.name], tt.method+" "+path)
	}
	var want strings.Builder
	for _, row := range rows {
		for i, name := range names[row] {
			if at := strings.Join(routes[row+name], ", "); at != "POST /v1/council" {
				names[row][i] = name + " (" + at + ")"
			}
		}
		want.WriteString(row + strings.Join(names[row], "; ") + " |\n")
	}
	_, got, _ := strings.Cut(string(page), "| status | `code` | what is wrong |\n|---|---|---|\n")
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Error(diff)
	}
}

// HEAD is for whatever GET is for, and answers alike, without the body.
func TestHead(t *testing.T) {
	s := start(t, nil)
	for _, path := range []string{
		"/", "/assets/main.js", "/healthz", "/readyz", "/metrics", "/openapi.yaml", "/v1/council", "/v1/council/x", "/v1/disagreement", "/x",
	} {
		get, body := s.Call(t, "GET", path, "", "X-Request-Id", "an-id")
		head, nothing := s.Call(t, "HEAD", path, "", "X-Request-Id", "an-id")
		if head.StatusCode != get.StatusCode {
			t.Errorf("%s: the status is %d, of GET %d", path, head.StatusCode, get.StatusCode)
		}
		if want := int64(len(body)); head.ContentLength != want && path != "/metrics" && get.StatusCode != 405 { // whose problem names the method
			t.Errorf("%s: the length is %d, of GET %d", path, head.ContentLength, want)
		}
		if media := head.Header.Get("Content-Type"); media != get.Header.Get("Content-Type") {
			t.Errorf("%s: the media type is %q, of GET %q", path, media, get.Header.Get("Content-Type"))
		}
		if len(nothing) > 0 {
			t.Errorf("%s: the body is %s", path, nothing)
		}
	}
	resp, _ := s.Call(t, "DELETE", "/healthz", "")
	if diff := cmp.Diff([]string{"GET", "HEAD"}, resp.Header.Values("Allow")); diff != "" {
		t.Errorf("what is allowed: %s", diff)
	}
}

// HEAD of the events of a session does not wait for them.
func TestHeadOfEvents(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m})
	id := s.begin(t, `"query":"x","models":["waiting","amber"]`).ID
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	s.API.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "HEAD", "http://localhost/v1/council/"+id+"/events", http.NoBody))
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %q", w.Code, w.Header().Get("Content-Type"))
	}
	if ctx.Err() != nil {
		t.Error("it waits for the events")
	}
}

func TestRunFailures(t *testing.T) {
	down := simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 500}}}
	hang := simllm.Model{Name: "hang", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}
	s := start(t, []simllm.Model{down, hang})
	_, p := s.MustFail(t, 502, council.CodeNoQuorum, "POST", "/v1/council", `{"query":"x","models":["down","amber","down"]}`)
	if p.SessionID == "" {
		t.Error("there is no session id")
	}
	if len(p.Errors) != 2 || p.Errors[0].Field != "down" || p.Errors[1].Field != "down#2" {
		t.Fatalf("the errors are %+v", p.Errors)
	}
	if want := "simulated failure"; !strings.Contains(p.Errors[0].Message, want) {
		t.Errorf("the provider's own words %q are missing: %s", want, p.Errors[0].Message)
	}
	const partial = `{"query":"x","models":["down","amber","birch"],"on_partial":"refuse"}`
	s.MustFail(t, 502, council.CodePartialRefused, "POST", "/v1/council", partial)
	s.MustFail(t, 504, council.CodeDeadline, "POST", "/v1/council", `{"query":"x","models":["hang","hang"],"timeout_seconds":0.2}`)
}

func TestFullAndDraining(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	slow := simllm.Model{Name: "slow", Reply: func(task simllm.Task) (string, bool) {
		if task.Kind == simllm.Question {
			arrived <- struct{}{}
			<-release
		}
		return "", false
	}}
	s := start(t, []simllm.Model{slow}, func(o *httpapi.Options, _ *pipeline.Options) { o.MaxSessions = 1 })
	done := make(chan int, 1)
	go func() {
		resp, _ := s.Call(t, "POST", "/v1/council", `{"query":"x","models":["slow","amber"]}`)
		done <- resp.StatusCode
	}()
	<-arrived
	resp, _ := s.MustFail(t, 503, council.CodeUnavailable, "POST", "/v1/council", `{"query":"x"}`)
	if after := resp.Header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After is %q", after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.API.Idle(ctx); err == nil {
		t.Error("idle while a session runs")
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the running session answered %d", status)
	}
	if err := s.API.Idle(t.Context()); err != nil {
		t.Error(err)
	}
	s.MustFail(t, 503, council.CodeUnavailable, "POST", "/v1/council", `{"query":"x"}`) // Idle keeps all places.
	s.Daemon.Drains.Store(true)
	resp, p := s.MustFail(t, 503, council.CodeUnavailable, "POST", "/v1/council", `{"query":"x"}`)
	if !strings.Contains(p.Detail, "shutting down") {
		t.Errorf("the detail is %q", p.Detail)
	}
	if resp.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if strings.Contains(s.Log.String(), "request failed") {
		t.Errorf("refusals are logged as failures: %s", s.Log)
	}
}

func TestClientGone(t *testing.T) {
	arrived, cancelled := make(chan struct{}, 3), make(chan error, 1)
	hang := simllm.Model{Name: "waiting", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}
	hang.Reply = func(simllm.Task) (string, bool) {
		arrived <- struct{}{}
		return "", false
	}
	s := start(t, []simllm.Model{hang}, func(o *httpapi.Options, p *pipeline.Options) {
		inner, err := pipeline.New(*p)
		if err != nil {
			t.Fatal(err)
		}
		o.Council = watched{inner, cancelled}
	})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(
		ctx, "POST", s.URL+"/v1/council", strings.NewReader(`{"query":"x","models":["waiting","waiting"]}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-arrived
		leave()
	}()
	if resp, err := s.Client().Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("the call that was left has an answer")
	}
	if e, ok := errors.AsType[*council.Error](<-cancelled); !ok || e.Code != council.CodeCancelled {
		t.Errorf("the run ended with %v", e)
	}
}

// watched sends the error of each run to ended.
type watched struct {
	httpapi.Council
	ended chan error
}

func (w watched) Run(ctx context.Context, plan council.Plan, o council.Observer, kept *runlog.Log) (*council.Session, error) {
	session, err := w.Council.Run(ctx, plan, o, kept)
	w.ended <- err
	return session, err
}

func TestTokens(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Tokens = doortest.Tokens(secret, "another-token-of-sixteen")
	})
	for _, header := range []string{
		"", "Bearer ", "Bearer wrong", "Basic " + secret, secret, "Bearer " + secret + "x", "Bearer " + strings.Repeat("x", 10_000),
	} {
		for _, path := range []string{"/v1/council", "/v1/bias-report", "/v1/leaderboard"} {
			method := "GET"
			if path == "/v1/council" {
				method = "POST"
			}
			resp, p := s.AskForProblem(t, method, path, "", "Authorization", header)
			if p.Status != 401 || p.Code != "unauthorized" || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%.40q on %s: got %+v", header, path, p)
			}
		}
	}
	for _, header := range []string{"Bearer " + secret, "bearer  another-token-of-sixteen"} {
		if resp, data := s.Call(t, "GET", "/v1/bias-report", "", "Authorization", header); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", header, resp.StatusCode, data)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		if resp, _ := s.Call(t, "GET", path, ""); resp.StatusCode != 200 {
			t.Errorf("%s asks for a token", path)
		}
	}
	if strings.Contains(s.Log.String(), secret) {
		t.Error("a token is in the log")
	}
}

func TestBiasReport(t *testing.T) {
	s := start(t, nil)
	var asked bias.Query
	s.Daemon.Reports = func(q bias.Query) (bias.Report, error) {
		asked = q
		return bias.NewCollector(bias.Options{Now: time.Now()}).Report(t.Context()), nil
	}
	tests := []struct{ query, accept, media string }{
		{"", "", "application/json"},
		{"", "*/*", "application/json"},
		{"", "text/plain", "text/plain; charset=utf-8"},
		{"", "application/json, text/plain;q=0.5", "application/json"},
		{"?format=text", "application/json", "text/plain; charset=utf-8"},
		{"?format=json", "text/plain", "application/json"},
		{"?format=csv", "", "text/csv; charset=utf-8"},
		{"", "text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"},
	}
	for _, tt := range tests {
		resp, data := s.Call(t, "GET", "/v1/bias-report"+tt.query, "", "Accept", tt.accept)
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != tt.media || len(data) == 0 {
			t.Errorf("%+v: %d %s", tt, resp.StatusCode, got)
		}
		if asked != (bias.Query{}) {
			t.Errorf("asked %+v", asked)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "script") {
			t.Errorf("%+v: Content-Security-Policy %q", tt, policy)
		}
	}
	const narrowed = "sessions=7&days=0&since=2026-11-01&until=2026-11-20T09:00:00%2B01:00&reviewer=a&model=b%232&config_version=review-1&" +
		"model_version=v-2&category=math&language=fr&split=category"
	s.Call(t, "GET", "/v1/bias-report?"+narrowed, "")
	want := bias.Query{
		Sessions: new(7), Days: new(0), Since: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		Until:    time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC),
		Reviewer: "a", Model: "b#2", ConfigVersion: "review-1", ModelVersion: "v-2", Category: "math", Language: "fr", Split: "category",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	s.Daemon.Reports = func(bias.Query) (bias.Report, error) {
		return bias.Report{}, errors.New("open /secret/path: permission denied")
	}
	if _, p := s.MustFail(t, 500, council.CodeInternal, "GET", "/v1/bias-report", ""); strings.Contains(p.Detail, "secret") {
		t.Errorf("the cause is told: %s", p.Detail)
	}
	if !strings.Contains(s.Log.String(), "permission denied") {
		t.Errorf("the cause is not in the log: %s", s.Log)
	}
}

func TestLeaderboard(t *testing.T) {
	s := start(t, nil)
	var asked bias.Query
	s.Daemon.Boards = func(q bias.Query) (bias.Leaderboard, error) {
		asked = q
		return bias.NewCollector(bias.Options{Now: time.Now()}).Leaderboard(council.PolicyAvailable), nil
	}
	resp, data := s.Call(t, "GET", "/v1/leaderboard?sessions=0&days=7&category=math&since=2026-11-01&model=a/&language=en", "")
	if resp.StatusCode != 200 || !strings.Contains(string(data), `"boards":[]`) {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if diff := cmp.Diff(bias.Query{
		Sessions: new(0), Days: new(7), Category: "math", Since: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Model: "a/", Language: "en",
	}, asked); diff != "" {
		t.Error(diff)
	}
	for media, begin := range map[string]string{"text/csv": "category,board,rank,", "text/html": "<!doctype html>"} {
		resp, data = s.Call(t, "GET", "/v1/leaderboard", "", "Accept", media)
		if resp.Header.Get("Content-Type") != media+"; charset=utf-8" || !strings.HasPrefix(string(data), begin) {
			t.Errorf("%s: %s %.80s", media, resp.Header.Get("Content-Type"), data)
		}
	}
	resp, data = s.Call(t, "GET", "/v1/leaderboard", "", "Accept", "text/plain")
	if resp.StatusCode != 200 || !strings.HasPrefix(string(data), "No ballots") {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if asked != (bias.Query{}) {
		t.Errorf("asked %+v", asked)
	}
}

func TestHealth(t *testing.T) {
	s := start(t, nil)
	answers := func(path string, status int, body string) {
		t.Helper()
		resp, data := s.Call(t, "GET", path, "")
		if resp.StatusCode != status {
			t.Errorf("%s: the status is %d, want %d", path, resp.StatusCode, status)
		}
		if got := strings.TrimSpace(string(data)); got != body {
			t.Errorf("%s: got %s, want %s", path, got, body)
		}
	}
	answers("/healthz", 200, `{"status":"ok","version":"test"}`)
	answers("/readyz", 200, `{"ready":true,"reasons":[]}`)
	s.Daemon.Reasons = func() []httpapi.Reason { return []httpapi.Reason{{Code: "store", Message: "full"}} }
	answers("/readyz", 503, `{"ready":false,"reasons":[{"code":"store","message":"full"}]}`)
	// A daemon that is not ready still answers what it can.
	if resp, _ := s.Call(t, "POST", "/v1/council", `{"query":"x"}`); resp.StatusCode != 200 {
		t.Errorf("%d", resp.StatusCode)
	}
}

func TestRequestID(t *testing.T) {
	s := start(t, nil)
	if resp, _ := s.Call(t, "GET", "/healthz", "", "X-Request-Id", "mine-1"); resp.Header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("got %q", resp.Header.Get("X-Request-Id"))
	}
	for _, bad := range []string{"", "two words", strings.Repeat("x", 129), "ü"} {
		resp, _ := s.Call(t, "GET", "/healthz", "", "X-Request-Id", bad)
		if id := resp.Header.Get("X-Request-Id"); id == bad || len(id) < 16 {
			t.Errorf("%.20q: got %q", bad, id)
		}
	}
}

// broken is a Council with a defect.
// neverConvenes is the part of a fake Council that no test calls.
type neverConvenes struct{}

func (neverConvenes) Convene(council.Plan, *council.Session) (council.Plan, error) {
	panic("not called")
}

func (neverConvenes) PrepareJudge(council.JudgeRequest) (council.Plan, error) { panic("not called") }

func (neverConvenes) PrepareTask(council.TaskRequest) (council.Plan, error) { panic("not called") }

type broken struct{ neverConvenes }

func (broken) Check(context.Context, council.Plan) error { return nil }

func (broken) Prepare(council.Request) (council.Plan, error) { panic("a defect with a secret") }

func (broken) Run(context.Context, council.Plan, council.Observer, *runlog.Log) (*council.Session, error) {
	return nil, nil
}

func TestPanic(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Council, o.MaxSessions = broken{}, 1 })
	for range 2 { // the place of the session is free again
		if _, p := s.MustFail(t, 500, council.CodeInternal, "POST", "/v1/council", `{"query":"x"}`); strings.Contains(p.Detail, "secret") {
			t.Errorf("the cause is told: %s", p.Detail)
		}
	}
	if !strings.Contains(s.Log.String(), "a defect with a secret") {
		t.Error("the panic is not in the log")
	}
}

func TestNoContentInTheLog(t *testing.T) {
	s := start(t, nil)
	_, data := s.Call(t, "POST", "/v1/council", `{"query":"the unmistakable question"}`)
	if !strings.Contains(string(data), "unmistakable") || strings.Contains(s.Log.String(), "unmistakable") || s.Log.Len() == 0 {
		t.Errorf("log: %s", s.Log)
	}
}
