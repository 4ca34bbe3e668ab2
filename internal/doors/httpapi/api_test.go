package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/runlog"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDaemon is the daemon around the interface. A nil function stands for a
// daemon in good health.
type fakeDaemon struct {
	report   func(bias.Query) (bias.Report, error)
	evidence func(bias.Query) (*render.CouncilEvidence, error)
	board    func(bias.Query) (bias.Leaderboard, error)
	notReady func() []httpapi.Reason
	draining atomic.Bool

	spendFails atomic.Bool
}

// Spend returns a report in which nothing is empty.
func (d *fakeDaemon) Spend(ctx context.Context, q spend.Query) (spend.Costs, error) {
	if d.spendFails.Load() {
		return spend.Costs{}, errors.New("no disk")
	}
	a := d.accounts()
	account, _ := a.Open(ctx, spend.Opening{Session: "1", Token: *q.Token, Models: []string{"amber"}})
	hold, _ := account.Reserve(spend.Attempt{Model: "amber", Bytes: 1000, OutputLimit: new(1000)})
	hold.Charge(ctx, spend.Billed{})
	broken := func(yield func(spend.Line, error) bool) {
		yield(spend.Line{}, &spend.Damage{File: "spend.jsonl", Line: 1, Reason: spend.ReasonChecksum})
	}
	lost := map[string]spend.USD{"2026-11-21": spend.Dollar}
	end := &spend.End{Lines: 3, Days: lost, Accepted: []spend.Acceptance{{At: time.Now().UTC(), Missing: 1, MissingUSD: lost}}}
	return spend.ReadReport(broken, end, a, q, time.Now())
}

// Estimate returns one in which nothing is empty.
func (d *fakeDaemon) Estimate(plan council.Plan) spend.Estimate { return d.accounts().Estimate(plan) }

func (d *fakeDaemon) accounts() *spend.Book {
	return spend.NewBook(spend.Options{
		Day: new(spend.Dollar), TokenDay: new(spend.Dollar),
		Tariff: func(model string) (spend.Tariff, bool) { return spend.Flat(1e6, 1e6), model != "birch" },
	})
}

func (d *fakeDaemon) Report(ctx context.Context, q bias.Query) (bias.Report, error) {
	if d.report != nil {
		return d.report(q)
	}
	return bias.NewCollector(bias.Options{Now: time.Now()}).Report(ctx), nil
}

func (d *fakeDaemon) Evidence(_ context.Context, q bias.Query) (*render.CouncilEvidence, error) {
	if d.evidence != nil {
		return d.evidence(q)
	}
	return nil, nil
}

func (d *fakeDaemon) Leaderboard(_ context.Context, q bias.Query) (bias.Leaderboard, error) {
	if d.board != nil {
		return d.board(q)
	}
	return bias.NewCollector(bias.Options{Now: time.Now()}).Leaderboard(council.PolicyAvailable), nil
}

func (d *fakeDaemon) NotReady() []httpapi.Reason {
	if d.notReady != nil {
		return d.notReady()
	}
	return nil
}

func (d *fakeDaemon) rules() disagreement.Rules {
	return disagreement.Rules{
		Terms: disagreement.NewMatcher(disagreement.DefaultLexicon()), Threshold: 0.3, MaxQuestion: 100, MaxAnswer: 1000, HasJudge: true,
		HasEmbedding: true,
		Settings:     config.SettingNames(),
	}
}

func (d *fakeDaemon) CheckDisagreement(r council.DisagreementRequest) error {
	_, err := d.rules().Read(r)
	return err
}

func (d *fakeDaemon) Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error) {
	in, err := d.rules().Read(r)
	if err != nil {
		return council.DisagreementReport{}, err
	}
	if r.Question == "panic" {
		panic("a defect")
	}
	report, _ := disagreement.Report(ctx, in)
	if r.Backend == council.BackendEmbedding {
		report.Clustering = &council.DemographicClustering{
			Calibration: &council.Calibration{Axes: []string{"gender"}, Lexicon: "councild-1"},
			Axes:        []council.ClusteredAxis{{Axis: "gender"}},
		}
	}
	if r.Backend == council.BackendJudge {
		report.Judgement = &council.DemographicJudgement{
			Calibration: &council.Calibration{Axes: []string{"gender"}},
			Axes: []council.JudgedAxis{{
				Axis: "gender", Ratings: []float64{1, 2}, Quotes: []council.JudgedQuote{{Model: "a", Quote: "Women, women"}},
			}},
		}
	}
	return report, nil
}

func (d *fakeDaemon) Stopping() bool { return d.draining.Load() }
func (d *fakeDaemon) Draining() bool { return d.draining.Load() }

// server is the interface over a real pipeline and a simulated provider.
type server struct {
	*httptest.Server
	api    *httpapi.API
	daemon *fakeDaemon
	log    *bytes.Buffer
	sim    *simllm.Running
}

// generous keeps whatever a test makes.
func generous() sessions.Options {
	return sessions.Options{Retention: time.Hour, Kept: 100, KeptBytes: 1 << 30}
}

const secret = "a-token-of-sixteen-and-more"

// tokens returns tokens without names.
func tokens(secrets ...string) (tokens []httpapi.Token) {
	for _, s := range secrets {
		tokens = append(tokens, httpapi.Token{Secret: s})
	}
	return tokens
}

// limited returns tokens with the same limits.
func limited(limits httpapi.Limits, secrets ...string) []httpapi.Token {
	all := tokens(secrets...)
	for i := range all {
		all[i].Limits = limits
	}
	return all
}

// start starts a server. The council is amber, birch, cedar; dune and the models
// given are allowed.
func start(t *testing.T, models []simllm.Model, mutate ...func(*httpapi.Options, *pipeline.Options)) *server {
	t.Helper()
	all := slices.Concat(simllm.Council(), models)
	for i := range all {
		all[i].Latency = simllm.Latency{}
	}
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: all})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	client, err := llm.New(llm.Options{
		Providers: []llm.Provider{{BaseURL: sim.URL()}}, AttemptTimeout: time.Minute, DialTimeout: time.Second,
		MaxCallsPerProvider: 64, MaxReplyBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := &server{daemon: &fakeDaemon{}, log: &bytes.Buffer{}, sim: sim}
	log := slog.New(slog.NewJSONHandler(s.log, nil))
	p := pipeline.Options{
		Completer: client, Log: log, Lineup: pipeline.Lineup{Models: []string{"amber", "birch", "cedar"}, MaxModels: 4}, MaxQueryBytes: 1 << 18,
		Limits: council.Limits{Timeout: time.Minute}, Draws: pipeline.Draws{Order: council.OrderBalanced},
		Rules: council.Rules{Audit: &council.AuditThresholds{LengthCorrelation: 0.3, PositionVariance: 0.5}},
	}
	for _, m := range all {
		p.AllowedModels = append(p.AllowedModels, m.Name)
	}
	o := httpapi.Options{
		Settings: config.SettingNames(), Daemon: s.daemon, Spend: s.daemon, Comparer: s.daemon, MaxSessions: 4,
		Kept: generous(), MaxBodyBytes: 1 << 20,
		BodyTimeout: time.Second, Log: log, Version: "test",
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			_, _ = io.WriteString(w, "metric 1\n")
		}),
		MCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if notified, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(notified), `"id"`) {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}),
	}
	for _, f := range mutate {
		f(&o, &p)
	}
	if o.Council == nil {
		if o.Council, err = pipeline.New(p); err != nil {
			t.Fatal(err)
		}
	}
	if s.api, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(s.api)
	t.Cleanup(s.Close)
	t.Cleanup(func() {
		s.api.Cancel(errors.New("the test is over"))
		if err := s.api.Idle(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// call sends a request with a JSON body, or none, and returns the response with
// its body read. Headers are pairs of name and value.
func (s *server) call(t *testing.T, method, path, body string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	if body == "" {
		return s.send(t, method, path, http.NoBody, headers...)
	}
	return s.send(t, method, path, strings.NewReader(body), headers...)
}

// stalled sends a request whose body begins and never ends.
func (s *server) stalled(t *testing.T, method, path string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	reader, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = io.WriteString(writer, `{"query":`) }()
	return s.send(t, method, path, reader, headers...)
}

func (s *server) send(t *testing.T, method, path string, body io.Reader, headers ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if body != http.NoBody {
		req.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, data
}

// askForProblem sends a request that must fail, and checks the form of the
// problem.
func (s *server) askForProblem(t *testing.T, method, path, body string, headers ...string) (*http.Response, council.Problem) {
	t.Helper()
	resp, data := s.call(t, method, path, body, headers...)
	var p council.Problem
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		t.Fatalf("%s is no problem document: %v", data, err)
	}
	if media := resp.Header.Get("Content-Type"); media != "application/problem+json" {
		t.Errorf("the media type is %q", media)
	}
	if p.Status != resp.StatusCode {
		t.Errorf("the status is %d, that of the response %d", p.Status, resp.StatusCode)
	}
	if p.Type != "urn:councild:problem:"+string(p.Code) {
		t.Errorf("the type is %q, the code %q", p.Type, p.Code)
	}
	if p.Title == "" || p.Detail == "" || p.Errors == nil {
		t.Errorf("title, detail or errors are missing: %+v", p)
	}
	if id := resp.Header.Get("X-Request-Id"); id == "" || p.RequestID != id {
		t.Errorf("the request id is %q, in the header %q", p.RequestID, id)
	}
	if strings.Contains(string(data), "goroutine") || strings.Contains(string(data), ".go:") {
		t.Errorf("a stack trace: %s", data)
	}
	return resp, p
}

// mustFail is askForProblem for a request whose status and code are known.
func (s *server) mustFail(
	t *testing.T, status int, code council.Code, method, path, body string, headers ...string,
) (*http.Response, council.Problem) {
	t.Helper()
	resp, p := s.askForProblem(t, method, path, body, headers...)
	if p.Status != status {
		t.Errorf("the status is %d, want %d", p.Status, status)
	}
	if p.Code != code {
		t.Errorf("the code is %q, want %q", p.Code, code)
	}
	return resp, p
}

func TestCouncil(t *testing.T) {
	s := start(t, nil)
	// curl -d says that the body is a form, unless it is told otherwise.
	for _, media := range []string{"application/json", "application/json; charset=UTF-8", "application/x-www-form-urlencoded", ""} {
		resp, data := s.call(t, "POST", "/v1/council", `{"query":"What is <b>Go</b>?","seed":9007199254740991}`, "Content-Type", media,
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
	_, p := start(t, nil).mustFail(t, 422, council.CodeInvalid, "GET", "/v1/bias-report?since=2026-11-20T09:00:00+02:00", "")
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Fix, "%2B") {
		t.Errorf("the problems are %+v", p.Errors)
	}
}

func TestBadInput(t *testing.T) { //nolint:tparallel // its subtests share a server
	t.Parallel()
	s := start(t, nil)
	for _, tt := range badInput {
		t.Run(tt.name+" "+tt.path, func(t *testing.T) {
			resp, p := s.mustFail(t, tt.status, tt.code, tt.method, tt.path, tt.body, tt.headers...)
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
	if n := s.sim.Stats().Models["amber"].Requests; n != 0 {
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
		get, body := s.call(t, "GET", path, "", "X-Request-Id", "an-id")
		head, nothing := s.call(t, "HEAD", path, "", "X-Request-Id", "an-id")
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
	resp, _ := s.call(t, "DELETE", "/healthz", "")
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
	s.api.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "HEAD", "http://localhost/v1/council/"+id+"/events", http.NoBody))
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
	_, p := s.mustFail(t, 502, council.CodeNoQuorum, "POST", "/v1/council", `{"query":"x","models":["down","amber","down"]}`)
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
	s.mustFail(t, 502, council.CodePartialRefused, "POST", "/v1/council", partial)
	s.mustFail(t, 504, council.CodeDeadline, "POST", "/v1/council", `{"query":"x","models":["hang","hang"],"timeout_seconds":0.2}`)
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
		resp, _ := s.call(t, "POST", "/v1/council", `{"query":"x","models":["slow","amber"]}`)
		done <- resp.StatusCode
	}()
	<-arrived
	resp, _ := s.mustFail(t, 503, council.CodeUnavailable, "POST", "/v1/council", `{"query":"x"}`)
	if after := resp.Header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After is %q", after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.api.Idle(ctx); err == nil {
		t.Error("idle while a session runs")
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the running session answered %d", status)
	}
	if err := s.api.Idle(t.Context()); err != nil {
		t.Error(err)
	}
	s.mustFail(t, 503, council.CodeUnavailable, "POST", "/v1/council", `{"query":"x"}`) // Idle keeps all places.
	s.daemon.draining.Store(true)
	resp, p := s.mustFail(t, 503, council.CodeUnavailable, "POST", "/v1/council", `{"query":"x"}`)
	if !strings.Contains(p.Detail, "shutting down") {
		t.Errorf("the detail is %q", p.Detail)
	}
	if resp.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if strings.Contains(s.log.String(), "request failed") {
		t.Errorf("refusals are logged as failures: %s", s.log)
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
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = tokens(secret, "another-token-of-sixteen") })
	for _, header := range []string{
		"", "Bearer ", "Bearer wrong", "Basic " + secret, secret, "Bearer " + secret + "x", "Bearer " + strings.Repeat("x", 10_000),
	} {
		for _, path := range []string{"/v1/council", "/v1/bias-report", "/v1/leaderboard"} {
			method := "GET"
			if path == "/v1/council" {
				method = "POST"
			}
			resp, p := s.askForProblem(t, method, path, "", "Authorization", header)
			if p.Status != 401 || p.Code != "unauthorized" || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%.40q on %s: got %+v", header, path, p)
			}
		}
	}
	for _, header := range []string{"Bearer " + secret, "bearer  another-token-of-sixteen"} {
		if resp, data := s.call(t, "GET", "/v1/bias-report", "", "Authorization", header); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", header, resp.StatusCode, data)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		if resp, _ := s.call(t, "GET", path, ""); resp.StatusCode != 200 {
			t.Errorf("%s asks for a token", path)
		}
	}
	if strings.Contains(s.log.String(), secret) {
		t.Error("a token is in the log")
	}
}

func TestBiasReport(t *testing.T) {
	s := start(t, nil)
	var asked bias.Query
	s.daemon.report = func(q bias.Query) (bias.Report, error) {
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
		resp, data := s.call(t, "GET", "/v1/bias-report"+tt.query, "", "Accept", tt.accept)
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
	s.call(t, "GET", "/v1/bias-report?"+narrowed, "")
	want := bias.Query{
		Sessions: new(7), Days: new(0), Since: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		Until:    time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC),
		Reviewer: "a", Model: "b#2", ConfigVersion: "review-1", ModelVersion: "v-2", Category: "math", Language: "fr", Split: "category",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	s.daemon.report = func(bias.Query) (bias.Report, error) {
		return bias.Report{}, errors.New("open /secret/path: permission denied")
	}
	if _, p := s.mustFail(t, 500, council.CodeInternal, "GET", "/v1/bias-report", ""); strings.Contains(p.Detail, "secret") {
		t.Errorf("the cause is told: %s", p.Detail)
	}
	if !strings.Contains(s.log.String(), "permission denied") {
		t.Errorf("the cause is not in the log: %s", s.log)
	}
}

func TestLeaderboard(t *testing.T) {
	s := start(t, nil)
	var asked bias.Query
	s.daemon.board = func(q bias.Query) (bias.Leaderboard, error) {
		asked = q
		return bias.NewCollector(bias.Options{Now: time.Now()}).Leaderboard(council.PolicyAvailable), nil
	}
	resp, data := s.call(t, "GET", "/v1/leaderboard?sessions=0&days=7&category=math&since=2026-11-01&model=a/&language=en", "")
	if resp.StatusCode != 200 || !strings.Contains(string(data), `"boards":[]`) {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if diff := cmp.Diff(bias.Query{
		Sessions: new(0), Days: new(7), Category: "math", Since: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Model: "a/", Language: "en",
	}, asked); diff != "" {
		t.Error(diff)
	}
	for media, begin := range map[string]string{"text/csv": "category,board,rank,", "text/html": "<!doctype html>"} {
		resp, data = s.call(t, "GET", "/v1/leaderboard", "", "Accept", media)
		if resp.Header.Get("Content-Type") != media+"; charset=utf-8" || !strings.HasPrefix(string(data), begin) {
			t.Errorf("%s: %s %.80s", media, resp.Header.Get("Content-Type"), data)
		}
	}
	resp, data = s.call(t, "GET", "/v1/leaderboard", "", "Accept", "text/plain")
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
		resp, data := s.call(t, "GET", path, "")
		if resp.StatusCode != status {
			t.Errorf("%s: the status is %d, want %d", path, resp.StatusCode, status)
		}
		if got := strings.TrimSpace(string(data)); got != body {
			t.Errorf("%s: got %s, want %s", path, got, body)
		}
	}
	answers("/healthz", 200, `{"status":"ok","version":"test"}`)
	answers("/readyz", 200, `{"ready":true,"reasons":[]}`)
	s.daemon.notReady = func() []httpapi.Reason { return []httpapi.Reason{{Code: "store", Message: "full"}} }
	answers("/readyz", 503, `{"ready":false,"reasons":[{"code":"store","message":"full"}]}`)
	// A daemon that is not ready still answers what it can.
	if resp, _ := s.call(t, "POST", "/v1/council", `{"query":"x"}`); resp.StatusCode != 200 {
		t.Errorf("%d", resp.StatusCode)
	}
}

func TestRequestID(t *testing.T) {
	s := start(t, nil)
	if resp, _ := s.call(t, "GET", "/healthz", "", "X-Request-Id", "mine-1"); resp.Header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("got %q", resp.Header.Get("X-Request-Id"))
	}
	for _, bad := range []string{"", "two words", strings.Repeat("x", 129), "ü"} {
		resp, _ := s.call(t, "GET", "/healthz", "", "X-Request-Id", bad)
		if id := resp.Header.Get("X-Request-Id"); id == bad || len(id) < 16 {
			t.Errorf("%.20q: got %q", bad, id)
		}
	}
}

// broken is a Council with a defect.
type broken struct{}

func (broken) Check(context.Context, council.Plan) error { return nil }

func (broken) Prepare(council.Request) (council.Plan, error) { panic("a defect with a secret") }

func (broken) Run(context.Context, council.Plan, council.Observer, *runlog.Log) (*council.Session, error) {
	return nil, nil
}

func TestPanic(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Council, o.MaxSessions = broken{}, 1 })
	for range 2 { // the place of the session is free again
		if _, p := s.mustFail(t, 500, council.CodeInternal, "POST", "/v1/council", `{"query":"x"}`); strings.Contains(p.Detail, "secret") {
			t.Errorf("the cause is told: %s", p.Detail)
		}
	}
	if !strings.Contains(s.log.String(), "a defect with a secret") {
		t.Error("the panic is not in the log")
	}
}

func TestNoContentInTheLog(t *testing.T) {
	s := start(t, nil)
	_, data := s.call(t, "POST", "/v1/council", `{"query":"the unmistakable question"}`)
	if !strings.Contains(string(data), "unmistakable") || strings.Contains(s.log.String(), "unmistakable") || s.log.Len() == 0 {
		t.Errorf("log: %s", s.log)
	}
}
