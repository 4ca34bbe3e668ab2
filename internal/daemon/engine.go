package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/roster"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/telemetry"
)

// EngineOptions are what an engine is made of.
type EngineOptions struct {
	Config    config.Config
	Simulated simllm.Options    // of the simulated provider; no models: the built-in ones
	Recorder  pipeline.Recorder // nil: no records are kept
	Ledger    spend.Ledger      // nil: what sessions cost is not kept, and there is no limit of a day
	Log       *slog.Logger
	// Category and Language are those of questions that name none.
	Category, Language string
	Version            string
}

// Engine holds the councils that can be asked, with the clients, and the simulated provider, under them.
type Engine struct {
	house    atomic.Pointer[house]
	client   *llm.Client
	accounts *spend.Accounts
	prices   *prices
	stopping atomic.Bool // as in accounts
	metrics  *telemetry.Metrics
	tracing  *telemetry.Tracing // nil when it is off
	teardown teardown
}

// NewEngine wires a pipeline as the configuration says. It starts the simulated provider
// when the name of a model points to it, and logs what is likely to be wrong with the
// settings. The caller calls Close.
func NewEngine(ctx context.Context, o EngineOptions) (_ *Engine, err error) {
	var r *roster.Roster
	if o.Config, r, err = readRoster(o.Config); err != nil {
		return nil, err
	}
	cfg := o.Config
	for _, warning := range cfg.Warnings() {
		o.Log.WarnContext(ctx, "a setting is likely to be wrong", "setting", warning)
	}
	e := &Engine{}
	defer func() {
		if err != nil {
			e.Close(ctx)
		}
	}()
	providers := []llm.Provider{{BaseURL: cfg.BaseURL, APIKey: cfg.APIKey.Reveal()}}
	for _, p := range cfg.Providers {
		providers = append(providers, llm.Provider{Name: p.Name, BaseURL: p.BaseURL, APIKey: p.APIKey.Reveal()})
	}
	if usesSim(cfg) {
		if o.Simulated.Models == nil {
			o.Simulated.Models = builtIn()
		}
		sim, err := simllm.Start(ctx, o.Simulated)
		if err != nil {
			return nil, err
		}
		e.teardown.push("the simulated provider", always(sim.Close))
		providers = append(providers, llm.Provider{Name: config.SimProvider, BaseURL: sim.URL()})
	}
	e.prices, err = newPrices(cfg, o.Simulated.Models)
	if err != nil {
		return nil, err
	}
	e.accounts = newAccounts(cfg, e.prices, o.Ledger, func(token string) *spend.USD { return e.house.Load().dayLimits[token] })
	e.client, err = llm.New(llm.Options{
		Gate:      gate(e.accounts),
		Providers: providers, MaxAttempts: cfg.MaxAttempts, MaxCallsPerProvider: cfg.MaxCallsPerProvider,
		AttemptTimeout: cfg.AttemptTimeout, DialTimeout: cfg.DialTimeout, IdleTimeout: cfg.IdleTimeout,
		MaxReplyBytes: int64(cfg.MaxUpstreamBytes),
	})
	if err != nil {
		return nil, err
	}
	e.teardown.push("the client", always(e.client.Close))
	if err := e.requirePrices(ctx, cfg, o.Log); err != nil {
		return nil, err
	}
	e.metrics = telemetry.NewMetrics(o.Version, e.client.Breakers)
	completer := e.metrics.Completer(e.client)
	recorder := o.Recorder
	var holds func(context.Context, string, time.Time) (bool, error)
	if s, ok := recorder.(*store.Store); ok {
		holds = s.Holds
	}
	if recorder != nil {
		recorder = e.metrics.Recorder(recorder)
	}
	if e.tracing, err = telemetry.NewTracing(ctx, o.Version, o.Log); err != nil {
		return nil, err
	}
	if e.tracing != nil {
		// Traces that the collector does not take in time are lost: they are no records.
		e.teardown.push("the traces", func(ctx context.Context) error {
			_ = e.tracing.Close(ctx)
			return nil
		})
		completer = e.tracing.Completer(completer, cfg.ProviderNames())
	}
	base := pipelineOptions(o)
	base.Completer, base.Recorder, base.Holds, base.Observer = completer, recorder, holds, e.metrics
	base.Accounts = accounts{e.accounts, &e.stopping}
	if cfg.Demographics {
		if base.Lexicon, err = readLexicon(cfg.Lexicon); err != nil {
			return nil, err
		}
	}
	h, err := newHouse(cfg, r, base)
	if err != nil {
		return nil, err
	}
	e.house.Store(h)
	return e, nil
}

// pipelineOptions returns what the settings say of a council. What it works with is missing.
func pipelineOptions(o EngineOptions) pipeline.Options {
	cfg := o.Config
	var audit *bias.Thresholds
	if cfg.BiasAudit {
		audit = &bias.Thresholds{LengthCorrelation: cfg.LengthCorrelationThreshold, PositionVariance: cfg.PositionVarianceThreshold}
	}
	return pipeline.Options{
		Log: o.Log, Version: o.Version, Settings: config.SettingNames(),
		Models: cfg.Models, Chairman: cfg.Chairman, ChairmanFallbacks: cfg.ChairmanFallbacks, Reviewers: cfg.Reviewers,
		AllowedModels: cfg.AllowedModels, Providers: cfg.ProviderNames(), Quorum: cfg.Quorum, StragglerGrace: cfg.StragglerGrace,
		MaxModels: cfg.MaxModels, MaxQueryBytes: int64(cfg.MaxQueryBytes), MaxSessionBytes: int64(cfg.MaxSessionBytes),
		Timeout: cfg.Timeout, MaxCostUSD: cfg.MaxCostUSD, MaxTotalTokens: cfg.MaxTotalTokens,
		Sampling:       council.Sampling{Temperature: cfg.Temperature, MaxOutputTokens: outputLimit(cfg)},
		ReviewSampling: council.Sampling{Temperature: cfg.ReviewTemperature, MaxOutputTokens: outputLimit(cfg)},
		BallotRepair:   cfg.BallotRepair, PartialBallots: cfg.PartialBallots,
		Order: cfg.Order, RandomSeed: cfg.RandomSeed, SelfReviewRate: cfg.SelfReviewRate,
		Category: o.Category, Language: o.Language, ConfigVersion: cfg.ConfigVersion,
		Consent: cfg.BiasConsent, HashSecret: cfg.HashSecret.Reveal(),
		Audit: audit, LexiconLimit: cfg.DemographicsThreshold,
	}
}

// Prepare implements httpapi.Council.
func (e *Engine) Prepare(r council.Request) (council.Plan, error) { return e.house.Load().prepare(r) }

// runner returns a pipeline. A plan holds all that shapes its run, so that any pipeline can run it.
func (e *Engine) runner() *pipeline.Pipeline {
	h := e.house.Load()
	return h.pipelines[h.first]
}

// Run implements httpapi.Council.
func (e *Engine) Run(ctx context.Context, plan council.Plan, observer council.Observer, log *council.Log) (*council.Session, error) {
	return e.runner().Run(ctx, plan, observer, log)
}

// Probe is pipeline.Pipeline.Probe.
func (e *Engine) Probe(ctx context.Context, plan council.Plan, repeats int, out pipeline.Recorder) ([]*council.Session, error) {
	return e.runner().Probe(ctx, plan, repeats, out)
}

// Open implements httpapi.Budget.
func (e *Engine) Open(ctx context.Context, plan council.Plan) *council.Error {
	return e.runner().Open(ctx, plan)
}

// Drop implements httpapi.Budget.
func (e *Engine) Drop(ctx context.Context, sessionID string) { e.runner().Drop(ctx, sessionID) }

// Offers returns the councils that a token may ask, the one that is asked by default first.
func (e *Engine) Offers(token string) ([]httpapi.Offer, error) {
	h := e.house.Load()
	var offers []httpapi.Offer
	for _, name := range h.names() {
		if !h.allows(name, token) {
			continue
		}
		plan, err := h.pipelines[name].Prepare(council.Request{Query: "?"})
		if err != nil {
			return nil, err
		}
		offers = append(offers, httpapi.Offer{Plan: plan, Default: name == h.first})
	}
	return offers, nil
}

// outOfOrder returns the models whose breaker is open, and whether the other members can
// be a quorum.
func (e *Engine) outOfOrder(cfg config.Config) (models []string, quorum bool) {
	for _, b := range e.client.Breakers() {
		if b.State == council.BreakerOpen {
			models = append(models, b.Name())
		}
	}
	left := slices.DeleteFunc(slices.Clone(cfg.Models), func(m string) bool { return slices.Contains(models, m) })
	return models, len(left) >= pipeline.Quorum(cfg.Quorum, len(cfg.Models))
}

// Close releases what the engine holds. Runs must be over.
func (e *Engine) Close(ctx context.Context) { _ = e.teardown.run(ctx) } // no step fails
