package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/telemetry"
)

// EngineOptions are the settings and the parts from which NewEngine makes an engine.
type EngineOptions struct {
	Config config.Config
	// Simulated is the provider of the simulated models. If it is nil, there are no such models.
	Simulated Simulator
	// Recorder stores the records of sessions. If it is nil, no records are kept.
	Recorder pipeline.Recorder
	// Ledger stores the cost of sessions. If it is nil, the cost is not kept, and daily limits do not apply.
	Ledger spend.Ledger
	// QuestionSecret is pipeline.Options.QuestionSecret.
	QuestionSecret func() string
	// Evidence stores evidence on whole sessions. If it is nil, neither reviewers nor people are asked for any.
	Evidence *evidence
	Outbox   *consent.Outbox // nil sends no events
	// GateVotes stores the votes of the gate. If it is nil, they are not stored.
	GateVotes *gateVotes
	Log       *slog.Logger
	// Keep wraps the Completer that makes the calls of all sessions. If Keep is nil, that Completer is used as it is.
	Keep func(council.Completer) council.Completer
	// The engine calls Hold before it sends a request of a session. The argument bound is the most that the request can
	// cost, or 0 if that is not known. If Hold returns an error, the engine does not send the request. Otherwise the
	// engine calls the returned function once after the request, with the cost of the request, or with the most that the
	// request can have cost. The returned function must return at once. Hold may be nil.
	Hold func(session string, bound spend.USD) (finish func(cost spend.USD), err error)
	// Category and Language apply to questions that name none.
	Category, Language string
	Version            string
}

// Engine holds the councils of one roster, their clients and the simulated provider. A daemon has one Engine. Commands
// use an Engine without a daemon.
type Engine struct {
	*Comparer

	o EngineOptions
	// base has the options that all councils share. Options that depend on the setup are missing.
	base  pipeline.Options
	setup atomic.Pointer[setup]
	// before is the setup before the last Reload, or nil. Plans that were made with that setup may still have to run.
	before atomic.Pointer[setup]
	// reloaded has room for one element. Reload sends an element to wake watchPrices.
	reloaded chan struct{}
	book     *spend.Book
	// stopping says that the daemon stops. Stored sessions that the daemon then cancels continue in another process.
	stopping atomic.Bool
	metrics  *telemetry.Metrics
	tracing  *telemetry.Tracing // nil if tracing is off

	mu       sync.Mutex // guards simURL and teardown, and is held while a setup is built
	simURL   string     // URL of the simulated provider; "" before its start
	teardown teardown
}

// NewEngine makes the councils that the settings name. It starts the simulated provider if a model needs it, and
// logs which settings are likely to be wrong. The caller calls Close.
func NewEngine(ctx context.Context, o EngineOptions) (_ *Engine, err error) {
	var r *config.Roster
	if o.Config, r, err = o.Config.ReadRoster(); err != nil {
		return nil, err
	}
	cfg := o.Config
	for _, warning := range cfg.Warnings() {
		o.Log.WarnContext(ctx, "a setting is probably wrong", "setting", warning)
	}
	warnOfRoster(ctx, o.Log, cfg, r)
	if links := cfg.ServiceLinks(); len(links) > 0 {
		o.Log.InfoContext(ctx, "ignored the variables that Kubernetes sets for Services; to avoid them, set "+
			"enableServiceLinks: false in the pod",
			"variables", len(links), "first", links[0])
	}
	e := &Engine{o: o, reloaded: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			e.Close(ctx)
		}
	}()
	e.book = newBook(o, e.tariff, func(token string) *spend.USD { return e.setup.Load().dayLimits[token] })
	if l, ok := o.Ledger.(interface {
		replay(ctx context.Context, b *spend.Book) error
	}); ok {
		if err := l.replay(ctx, e.book); err != nil {
			return nil, err
		}
	}
	e.metrics = telemetry.NewMetrics(o.Version, func() []council.Breaker { return e.setup.Load().client.Breakers() })
	if e.tracing, err = telemetry.NewTracing(ctx, o.Version, o.Log); err != nil {
		return nil, err
	}
	if e.tracing != nil {
		// Close loses the traces that the collector does not take in time. This is no error, because traces are no
		// records.
		e.teardown.push("the traces", func(ctx context.Context) error {
			_ = e.tracing.Close(ctx)
			return nil
		})
	}
	e.base = pipelineOptions(o)
	e.base.Recorder = o.Recorder
	e.base.Observer = e.metrics
	if s, ok := o.Recorder.(*store.Store); ok {
		e.base.Holds = s.Holds
	}
	if o.Recorder != nil {
		e.base.Recorder = e.metrics.Recorder(o.Recorder)
	}
	if o.Outbox != nil && e.base.Recorder != nil {
		e.base.Recorder = &eventRecorder{Recorder: e.base.Recorder, engine: e, outbox: o.Outbox}
	}
	if o.Evidence == nil {
		e.base.ShadowRate = 0
		e.base.LabelRate = 0
	}
	e.base.Book = e.book
	e.base.HandsOver = e.handsOver
	if e.Comparer, err = NewComparer(cfg); err != nil {
		return nil, err
	}
	h, err := e.build(ctx, cfg, r)
	if err != nil {
		return nil, err
	}
	e.setup.Store(h)
	return e, nil
}

// build makes a setup from a roster, or from the settings if r is nil. The setup is ready to run sessions.
func (e *Engine) build(ctx context.Context, cfg config.Config, r *config.Roster) (*setup, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	providers := []llm.Provider{{BaseURL: cfg.BaseURL, APIKey: cfg.APIKey.Reveal()}}
	for _, p := range cfg.Providers {
		providers = append(providers, reached(p))
	}
	if usesSim(cfg) {
		if e.simURL == "" {
			if e.o.Simulated == nil {
				return nil, errors.New("there are no simulated models here")
			}
			url, stop, err := e.o.Simulated.Start(ctx)
			if err != nil {
				return nil, err
			}
			e.simURL = url
			e.teardown.push("the simulated provider", always(stop))
		}
		providers = append(providers, llm.Provider{Name: config.SimProvider, BaseURL: e.simURL})
	}
	prices, err := newPrices(cfg, r, simulated{e.o.Simulated})
	if err != nil {
		return nil, err
	}
	base := e.base
	base.Providers = cfg.ProviderNames()
	base.Models = cfg.Models
	base.AllowedModels = cfg.AllowedModels
	var client *llm.Client
	if old := e.setup.Load(); old != nil && reflect.DeepEqual(old.providers, providers) {
		// The state of unchanged providers stays: breakers, connections and prices.
		client = old.client
		old.prices.mu.Lock()
		maps.Copy(prices.lists, old.prices.lists)
		maps.Copy(prices.remarks, old.prices.remarks)
		old.prices.mu.Unlock()
	} else if client, err = llm.New(llm.Options{
		Version: e.o.Version, Trace: e.traceOf(),
		Providers: providers, MaxAttempts: cfg.MaxAttempts, MaxCallsPerProvider: maxCalls(cfg, descriptors()),
		AttemptTimeout: cfg.AttemptTimeout, DialTimeout: cfg.DialTimeout, IdleTimeout: cfg.IdleTimeout,
		MaxReplyBytes: int64(cfg.MaxUpstreamBytes),
	}); err != nil {
		return nil, err
	}
	base.Completer = e.metrics.Completer(client)
	if e.tracing != nil {
		base.Completer = e.tracing.Completer(base.Completer, cfg.ProviderNames())
	}
	if e.o.Keep != nil {
		base.Completer = e.o.Keep(base.Completer)
	}
	base.Sides = e.sides(cfg, r)
	base.Size = size(client, cfg.ProviderNames())
	h, err := newSetup(cfg, r, base)
	if err != nil {
		return nil, err
	}
	h.providers = providers
	h.client = client
	h.prices = prices
	if err := h.requirePrices(ctx, e.o.Log); err != nil {
		e.drop(h)
		return nil, err
	}
	return h, nil
}

// drop closes the idle connections of a setup that is not in force. Calls of running sessions continue.
func (e *Engine) drop(h *setup) {
	if now := e.setup.Load(); now == nil || now.client != h.client {
		h.client.Close()
	}
}

// traceOf returns the function that adds the span of a call to the headers of its requests, or nil if tracing is
// off.
func (e *Engine) traceOf() func(*http.Request) {
	if e.tracing == nil {
		return nil
	}
	return e.tracing.Inject
}

// warnOfRoster logs which councils of a roster are likely to be wrong. The roster may be nil.
func warnOfRoster(ctx context.Context, log *slog.Logger, cfg config.Config, r *config.Roster) {
	if r == nil {
		return
	}
	for _, warning := range r.Warnings(cfg.ProviderNames()) {
		log.WarnContext(ctx, "the roster is probably wrong", "setting", warning)
	}
}

// Reload reads the roster again and builds a setup from it. The setup takes effect if the function accept returns nil.
// After an error, nothing changes. Running sessions and existing plans keep the old setup.
func (e *Engine) Reload(ctx context.Context, accept func(*setup) error) error {
	cfg, r, err := e.o.Config.ReadRoster()
	if err == nil {
		err = simulated{e.o.Simulated}.check(cfg)
	}
	if err == nil {
		err = cfg.RequireCouncil()
	}
	if err == nil && cfg.TokenDayLimits != e.o.Config.TokenDayLimits {
		err = errors.New("LLM_COUNCIL_ROSTER: it adds or removes daily cost limits of tokens, which needs a restart of the daemon")
	}
	if err != nil {
		return err
	}
	h, err := e.build(ctx, cfg, r)
	if err != nil {
		return err
	}
	if err := accept(h); err != nil {
		e.drop(h)
		return err
	}
	warnOfRoster(ctx, e.o.Log, cfg, r)
	old := e.setup.Load()
	e.before.Store(old)
	e.setup.Store(h)
	e.drop(old)
	select {
	case e.reloaded <- struct{}{}:
	default:
	}
	return nil
}

// tariff returns the prices of a model, and whether they are known.
func (e *Engine) tariff(model string) (spend.Tariff, bool) {
	return e.setup.Load().prices.tariff(model)
}

// pipelineOptions returns the options that follow from the settings alone. The caller adds the Completer, the Recorder
// and the other options.
func pipelineOptions(o EngineOptions) pipeline.Options {
	cfg := o.Config
	return pipeline.Options{
		Log: o.Log, Version: o.Version, Settings: config.SettingNames(),
		Lineup: pipeline.Lineup{
			Models: cfg.Models, Chairman: cfg.Chairman,
			AllowedModels: cfg.AllowedModels, MaxModels: cfg.MaxModels, Mode: cfg.Mode, First: cfg.First,
		},
		Limits: council.Limits{Timeout: cfg.Timeout, MaxCostUSD: cfg.MaxCostUSD, MaxTotalTokens: cfg.MaxTotalTokens},
		Rules: council.Rules{
			Quorum: cfg.Quorum, StragglerGrace: cfg.StragglerGrace,
			Sampling:       council.Sampling{Temperature: cfg.Temperature, MaxOutputTokens: outputLimit(cfg)},
			ReviewSampling: council.Sampling{Temperature: cfg.ReviewTemperature, MaxOutputTokens: outputLimit(cfg)},
			BallotRepair:   cfg.BallotRepair, PartialBallots: cfg.PartialBallots, SelfReviewRate: cfg.SelfReviewRate,
			Audit: cfg.AuditThresholds(), Consent: cfg.BiasConsent,
			Providers: cfg.ProviderNames(), MaxSessionBytes: int64(cfg.MaxSessionBytes), DegradedNote: true,
		},
		MaxQueryBytes: int64(cfg.MaxQueryBytes),
		Draws: pipeline.Draws{
			Order: cfg.Order, RandomSeed: cfg.RandomSeed, ShadowRate: cfg.ShadowRate, LabelRate: cfg.LabelRate,
		},
		Map: cfg.Map, Tasks: tasks(),
		ClientRules: pipeline.ClientRules{Tools: council.ToolsRefuse, SideRequests: council.SideMember},
		Defaults:    pipeline.Defaults{Category: o.Category, Language: o.Language}, ConfigVersion: cfg.ConfigVersion,
		Secrets: pipeline.Secrets{HashSecret: cfg.HashSecret.Reveal(), QuestionSecret: o.QuestionSecret},
	}
}

// Prepare implements httpapi.Council.
func (e *Engine) Prepare(r council.Request) (council.Plan, error) { return e.setup.Load().prepare(r) }

// PrepareJudge implements httpapi.Council.
func (e *Engine) PrepareJudge(r council.JudgeRequest) (council.Plan, error) {
	return e.setup.Load().prepareJudge(r)
}

// PrepareTask implements httpapi.Council.
func (e *Engine) PrepareTask(r council.TaskRequest) (council.Plan, error) {
	return e.setup.Load().prepareTask(r)
}

// Check implements httpapi.Council.
func (e *Engine) Check(ctx context.Context, plan council.Plan) error {
	return e.runner().Check(ctx, plan)
}

// runner returns any pipeline of the setup. A plan holds everything that its run depends on, so that every pipeline can
// run every plan.
func (e *Engine) runner() *pipeline.Pipeline {
	h := e.setup.Load()
	return h.pipelines[h.first]
}

// Run implements httpapi.Council.
func (e *Engine) Run(
	ctx context.Context, plan council.Plan, observer council.Observer, log *runlog.Log,
) (*council.Session, error) {
	defer e.setup.Load().client.Forget(plan.SessionID) // calls that Open announced and the run did not make
	if e.tracing != nil {
		traced, trace := e.tracing.Session(ctx, plan, log != nil, observer)
		defer trace.End()
		ctx = traced
		observer = trace
	}
	session, err := e.of(plan).Run(ctx, plan, observer, log)
	if err == nil {
		e.o.GateVotes.keep(ctx, plan, session)
	}
	return session, err
}

// of finds a pipeline for a plan. A plan from the roster before the last Reload runs with the providers of that roster.
// If both rosters have the same hash, the plan runs with the new setup, because the setups then differ only in files
// that the roster names, such as a key file.
func (e *Engine) of(plan council.Plan) *pipeline.Pipeline {
	h := e.setup.Load()
	if before := e.before.Load(); before != nil && h.roster.Hash != plan.Roster && before.roster.Hash == plan.Roster {
		h = before
	}
	return h.pipelines[h.first]
}

// Convene calls pipeline.Pipeline.Convene. The roster in force must allow the seats to see the data of the question.
func (e *Engine) Convene(plan council.Plan, session *council.Session) (council.Plan, error) {
	whole, err := e.of(plan).Convene(plan, session)
	if err != nil {
		return council.Plan{}, err
	}
	h := e.setup.Load()
	if name := plan.CouncilLabel(); !slices.Contains(h.names(plan.Token), name) {
		return council.Plan{}, &council.Error{
			Code: council.CodeConflict, SessionID: plan.SessionID,
			Detail: "the roster has no council " + name + " any more that this token may ask: ask the question again",
		}
	}
	whole.Sides = slices.Clone(whole.Sides) // forbid may change them.
	return whole, h.forbid(plan.DataClass, &whole)
}

// Ended is called when a session has ended. It runs the shadow comparison if the session's plan asks for one, and
// stores the result. Errors go to the log.
func (e *Engine) Ended(ctx context.Context, plan council.Plan, session *council.Session) {
	record := e.of(plan).Shadow(ctx, plan, session)
	if record == nil || e.o.Evidence == nil {
		return
	}
	if err := e.o.Evidence.keep(ctx, store.Evidence{Shadow: record}); err != nil {
		e.o.Log.ErrorContext(ctx, "the reviewers' comparison of a session was not "+
			"written", "session_id", plan.SessionID, "error", err)
	}
}

// Probe calls pipeline.Pipeline.Probe.
func (e *Engine) Probe(
	ctx context.Context, plan council.Plan, repeats int, out pipeline.Recorder,
) ([]*council.Session, error) {
	return e.runner().Probe(ctx, plan, repeats, out)
}

// Panel calls pipeline.Pipeline.Panel.
func (e *Engine) Panel(
	ctx context.Context, plan council.Plan, arms []pipeline.Arm, b pipeline.QuestionBudget,
) ([]pipeline.ArmResult, error) {
	return e.runner().Panel(ctx, plan, arms, b)
}

// Judge calls pipeline.Pipeline.Judge.
func (e *Engine) Judge(
	ctx context.Context, plan council.Plan, arm string, order int, judges []council.Member, answer, other string,
	b pipeline.QuestionBudget,
) ([]pipeline.Preference, bool) {
	return e.runner().Judge(ctx, plan, arm, order, judges, answer, other, b)
}

// Open implements httpapi.Budget.
func (e *Engine) Open(ctx context.Context, plan council.Plan) *council.Error {
	if failure := e.expect(plan); failure != nil {
		return failure
	}
	failure := e.runner().Open(ctx, plan)
	if failure != nil {
		e.setup.Load().client.Forget(plan.SessionID)
	}
	return failure
}

// expect announces the calls of a session to its providers. It returns an error if so many other calls wait that the
// first stage of the session would run out of time.
func (e *Engine) expect(plan council.Plan) *council.Error {
	h := e.setup.Load()
	asked := plan.FirstStage().Seats
	if plan.First > 0 { // The other members may never be asked.
		asked = asked[:plan.First]
	}
	models := make([]string, len(asked))
	for i, m := range asked {
		models[i] = m.Model
	}
	stage := pipeline.FirstStage(plan)
	provider, end, ok := h.client.Expect(plan.SessionID, models, stage)
	if ok {
		return nil
	}
	raise := "the limit of open files (ulimit -n)"
	if slices.ContainsFunc(h.providers, func(p llm.Provider) bool { return p.Name == provider && p.MaxCalls > 0 }) {
		raise = "max_calls of the provider in the roster"
	}
	return &council.Error{
		Code: council.CodeUnavailable, RetryAfter: max(end-stage, time.Second),
		Detail: fmt.Sprintf("too many calls to %s wait already: the answers of the members would take about %s, and they have %s; "+
			"try again later, or raise %s", cmp.Or(provider, "the default provider"), end.Round(time.Second), stage, raise),
	}
}

// Drop implements httpapi.Budget.
func (e *Engine) Drop(ctx context.Context, sessionID string) {
	e.setup.Load().client.Forget(sessionID)
	e.runner().Drop(ctx, sessionID)
}

// Offers returns the councils that a token may ask. The default council comes first.
func (e *Engine) Offers(token string) ([]httpapi.Offer, error) {
	h := e.setup.Load()
	var offers []httpapi.Offer
	for _, name := range h.names(token) {
		plan, err := h.pipelines[name].Prepare(council.Request{Query: "?"})
		if err != nil {
			return nil, err
		}
		offers = append(offers, httpapi.Offer{Plan: plan, Default: name == h.first})
	}
	return offers, nil
}

// outOfOrder is the list of the models whose breaker is open. It also reports whether the other members are still a
// quorum.
func (e *Engine) outOfOrder() (models []string, quorum bool) {
	h := e.setup.Load()
	for _, b := range h.client.Breakers() {
		if b.State == council.BreakerOpen {
			models = append(models, b.Name())
		}
	}
	needed := h.cfg.Quorum
	if h.roster != nil {
		needed = cmp.Or(h.council(h.first).Quorum, needed)
	}
	left := slices.DeleteFunc(slices.Clone(h.cfg.Models), func(m string) bool { return slices.Contains(models, m) })
	return models, len(left) >= pipeline.Quorum(needed, len(h.cfg.Models))
}

// Estimate returns what the session of a plan may cost.
func (e *Engine) Estimate(plan council.Plan) spend.Estimate { return e.book.Estimate(plan) }

// Limits returns today's limits of callers without a token, and what is left of them.
func (e *Engine) Limits() []spend.Limit { return e.book.Limits("") }

// Close releases what the engine holds. Call it after all runs have ended.
func (e *Engine) Close(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.setup.Load(); h != nil {
		h.client.Close()
	}
	_ = e.teardown.run(ctx) // no step fails
}
