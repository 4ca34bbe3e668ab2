// Package doortest runs a server for tests of the doors. The server has the routes of httpapi and openai, a real
// pipeline, simulated models, and a fake daemon whose answers the test sets. It has no record store, no ledger on disk
// and no journal: package daemontest runs a whole daemon.
package doortest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
)

// Daemon is a fake of the daemon that the HTTP interface calls. Each function that is nil stands for a healthy daemon
// without records.
type Daemon struct {
	Reports   func(bias.Query) (bias.Report, error)
	Evidences func(bias.Query) (*render.CouncilEvidence, error)
	Boards    func(bias.Query) (bias.Leaderboard, error)
	Reasons   func() []httpapi.Reason
	Drains    atomic.Bool // what Stopping and Draining return

	SpendFails atomic.Bool // makes Spend return an error
}

// Spend implements httpapi.Spend. No part of its report is empty. The query must name a token.
func (d *Daemon) Spend(ctx context.Context, q spend.Query) (spend.Costs, error) {
	if d.SpendFails.Load() {
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
	end := &spend.End{
		Lines: 3, Days: lost, Accepted: []spend.Acceptance{{At: time.Now().UTC(), Missing: 1, MissingUSD: lost}},
	}
	return spend.ReadReport(broken, end, a, q, time.Now())
}

// Estimate implements httpapi.Spend. Every model except birch has a price.
func (d *Daemon) Estimate(plan council.Plan) spend.Estimate { return d.accounts().Estimate(plan) }

func (d *Daemon) accounts() *spend.Book {
	return spend.NewBook(spend.Options{
		Day: new(spend.Dollar), TokenDay: new(spend.Dollar),
		Tariff: func(model string) (spend.Tariff, bool) { return spend.Flat(1e6, 1e6), model != "birch" },
	})
}

// Report implements httpapi.Daemon.
func (d *Daemon) Report(ctx context.Context, q bias.Query) (bias.Report, error) {
	if d.Reports != nil {
		return d.Reports(q)
	}
	return bias.NewCollector(bias.Options{Now: time.Now()}).Report(ctx), nil
}

// Evidence implements httpapi.Daemon.
func (d *Daemon) Evidence(_ context.Context, q bias.Query) (*render.CouncilEvidence, error) {
	if d.Evidences != nil {
		return d.Evidences(q)
	}
	return nil, nil
}

// Leaderboard implements httpapi.Daemon.
func (d *Daemon) Leaderboard(_ context.Context, q bias.Query) (bias.Leaderboard, error) {
	if d.Boards != nil {
		return d.Boards(q)
	}
	return bias.NewCollector(bias.Options{Now: time.Now()}).Leaderboard(council.PolicyAvailable), nil
}

// NotReady implements httpapi.Daemon.
func (d *Daemon) NotReady() []httpapi.Reason {
	if d.Reasons != nil {
		return d.Reasons()
	}
	return nil
}

func (d *Daemon) rules() disagreement.Rules {
	return disagreement.Rules{
		Terms:     disagreement.NewMatcher(disagreement.DefaultLexicon()),
		Threshold: 0.3, MaxQuestion: 100, MaxAnswer: 1000,
		HasJudge: true, HasEmbedding: true,
		Settings: config.SettingNames(),
	}
}

// CheckDisagreement implements httpapi.Comparer.
func (d *Daemon) CheckDisagreement(r council.DisagreementRequest) error {
	_, err := d.rules().Read(r)
	return err
}

// Disagreement implements httpapi.Comparer. It panics if the question is "panic".
func (d *Daemon) Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error) {
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

// Stopping implements httpapi.Daemon.
func (d *Daemon) Stopping() bool { return d.Drains.Load() }

// Draining implements httpapi.Daemon.
func (d *Daemon) Draining() bool { return d.Drains.Load() }

// Server serves the interface with a real pipeline and a simulated provider.
type Server struct {
	*httptest.Server
	API    *httpapi.API
	Daemon *Daemon
	Log    *bytes.Buffer // JSON lines. Read it only while the server logs nothing.
	Sim    *simllm.Running
}

// Generous returns options under which the server keeps every session of a test.
func Generous() sessions.Options {
	return sessions.Options{Retention: time.Hour, Kept: 100, KeptBytes: 1 << 30}
}

// Secret is a valid secret for a token.
const Secret = "a-token-of-sixteen-and-more"

// Tokens returns tokens with these secrets and without names.
func Tokens(secrets ...string) (tokens []httpapi.Token) {
	for _, s := range secrets {
		tokens = append(tokens, httpapi.Token{Secret: s})
	}
	return tokens
}

// Start starts a server, which ends with the test. The council has the members amber, birch and cedar. Requests may
// also name dune and the given models. All models answer without latency. Each function in mutate changes the options
// before the server starts.
func Start(t *testing.T, models []simllm.Model, mutate ...func(*httpapi.Options, *pipeline.Options)) *Server {
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
	s := &Server{Daemon: &Daemon{}, Log: &bytes.Buffer{}, Sim: sim}
	log := slog.New(slog.NewJSONHandler(s.Log, nil))
	p := pipeline.Options{
		Completer: client, Log: log,
		Lineup: pipeline.Lineup{Models: []string{"amber", "birch", "cedar"}, MaxModels: 4}, MaxQueryBytes: 1 << 18,
		Limits: council.Limits{Timeout: time.Minute}, Draws: pipeline.Draws{Order: council.OrderBalanced},
		Rules: council.Rules{Audit: &council.AuditThresholds{LengthCorrelation: 0.3, PositionVariance: 0.5}},
		Tasks: map[string]council.Task{gate.TaskName: gate.Gate{}},
	}
	for _, m := range all {
		p.AllowedModels = append(p.AllowedModels, m.Name)
	}
	o := httpapi.Options{
		Settings: config.SettingNames(), Daemon: s.Daemon, Spend: s.Daemon, Comparer: s.Daemon, MaxSessions: 4,
		Kept: Generous(), MaxBodyBytes: 1 << 20,
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
	if s.API, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	s.API.Mount(openai.Routes(s.API)...)
	s.Server = httptest.NewServer(s.API)
	t.Cleanup(s.Close)
	t.Cleanup(func() {
		s.API.Cancel(errors.New("the test is over"))
		if err := s.API.Idle(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Call sends a request and returns the response and its body. The argument body is JSON, or "" for no body. The
// argument headers has pairs of a name and a value.
func (s *Server) Call(t *testing.T, method, path, body string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	if body == "" {
		return s.Send(t, method, path, http.NoBody, headers...)
	}
	return s.Send(t, method, path, strings.NewReader(body), headers...)
}

// Stalled sends a request whose body begins but does not end before the response.
func (s *Server) Stalled(t *testing.T, method, path string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	reader, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = io.WriteString(writer, `{"query":`) }()
	return s.Send(t, method, path, reader, headers...)
}

// Send is Call with a body that comes from a reader.
func (s *Server) Send(t *testing.T, method, path string, body io.Reader, headers ...string) (*http.Response, []byte) {
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

// AskForProblem sends a request that must fail, and checks the form of the problem document. It reports a wrong form as
// an error of the test.
func (s *Server) AskForProblem(
	t *testing.T, method, path, body string, headers ...string,
) (*http.Response, council.Problem) {
	t.Helper()
	resp, data := s.Call(t, method, path, body, headers...)
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

// MustFail is AskForProblem that also checks the status and the code.
func (s *Server) MustFail(
	t *testing.T, status int, code council.Code, method, path, body string, headers ...string,
) (*http.Response, council.Problem) {
	t.Helper()
	resp, p := s.AskForProblem(t, method, path, body, headers...)
	if p.Status != status {
		t.Errorf("the status is %d, want %d", p.Status, status)
	}
	if p.Code != code {
		t.Errorf("the code is %q, want %q", p.Code, code)
	}
	return resp, p
}

// Watch waits for the end of a session and returns its stream of events.
func (s *Server) Watch(t *testing.T, id string, headers ...string) []byte {
	t.Helper()
	resp, data := s.Call(t, "GET", "/v1/council/"+id+"/events", "", headers...)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", resp.StatusCode, data)
	}
	return data
}
