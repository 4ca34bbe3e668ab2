package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/telemetry"
)

// engine is a pipeline with the clients, and the simulated provider, under it.
type engine struct {
	*pipeline.Pipeline
	client *llm.Client
	sim    *simllm.Running // nil when no model is simulated

	metrics *telemetry.Metrics
	tracing *telemetry.Tracing // nil when it is off
}

// newEngine wires a pipeline as cfg says. The simulated provider, of the given
// models or else of the built-in ones, is started when a model's name points at
// it. A nil recorder keeps no records.
func newEngine(ctx context.Context, cfg config.Config, sim simllm.Options, recorder pipeline.Recorder, log *slog.Logger, version string) (*engine, error) {
	var err error
	e := &engine{}
	providers := []llm.Provider{{BaseURL: cfg.BaseURL, APIKey: cfg.APIKey.Reveal()}}
	for _, p := range cfg.Providers {
		providers = append(providers, llm.Provider{Name: p.Name, BaseURL: p.BaseURL, APIKey: p.APIKey.Reveal()})
	}
	if usesSim(cfg) {
		if sim.Models == nil {
			sim.Models = builtIn()
		}
		if e.sim, err = simllm.Start(ctx, sim); err != nil {
			return nil, err
		}
		providers = append(providers, llm.Provider{Name: config.SimProvider, BaseURL: e.sim.URL()})
	}
	e.client, err = llm.New(llm.Options{
		Providers: providers, AttemptTimeout: cfg.AttemptTimeout, MaxAttempts: cfg.MaxAttempts, DialTimeout: cfg.DialTimeout, IdleTimeout: cfg.IdleTimeout,
		MaxCallsPerProvider: cfg.MaxCallsPerProvider, MaxReplyBytes: int64(cfg.MaxUpstreamBytes),
	})
	if err != nil {
		e.Close(ctx)
		return nil, err
	}
	e.metrics = telemetry.NewMetrics(version, e.breakers)
	completer := e.metrics.Completer(e.client)
	if recorder != nil {
		recorder = e.metrics.Recorder(recorder)
	}
	if e.tracing, err = telemetry.NewTracing(ctx, version, log); err != nil {
		e.Close(ctx)
		return nil, err
	}
	if e.tracing != nil {
		completer = e.tracing.Completer(completer, cfg.ProviderOf)
	}
	var audit *bias.Thresholds
	if cfg.BiasAudit {
		audit = &bias.Thresholds{LengthCorrelation: cfg.LengthCorrelationThreshold, PositionVariance: cfg.PositionVarianceThreshold}
	}
	var lexicon disagreement.Lexicon
	if cfg.Demographics {
		if lexicon, err = readLexicon(cfg.Lexicon); err != nil {
			e.Close(ctx)
			return nil, err
		}
	}
	var names []string
	for _, p := range providers {
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	e.Pipeline, err = pipeline.New(pipeline.Options{
		Completer: completer, Recorder: recorder, Observer: e.metrics, Log: log, Version: version,
		Models: cfg.Models, Chairman: cfg.Chairman, ChairmanFallbacks: cfg.ChairmanFallbacks, Reviewers: cfg.Reviewers,
		AllowedModels: cfg.AllowedModels, Providers: names, MaxModels: cfg.MaxModels, MaxQueryBytes: int64(cfg.MaxQueryBytes), MaxSessionBytes: int64(cfg.MaxSessionBytes), Quorum: cfg.Quorum,
		StragglerGrace: cfg.StragglerGrace, Timeout: cfg.Timeout, MaxCostUSD: cfg.MaxCostUSD, MaxTotalTokens: cfg.MaxTotalTokens,
		Temperature: cfg.Temperature, ReviewTemperature: cfg.ReviewTemperature, MaxOutputTokens: cfg.MaxOutputTokens,
		BallotRepair: cfg.BallotRepair, Order: cfg.Order, RandomSeed: cfg.RandomSeed, SelfReviewRate: cfg.SelfReviewRate, PartialBallots: ranking.Policy(cfg.PartialBallots),
		ConfigVersion: cfg.ConfigVersion, Audit: audit, Lexicon: lexicon, LexiconLimit: cfg.DemographicsThreshold, Consent: cfg.BiasConsent, HashSecret: cfg.HashSecret.Reveal(),
	})
	if err != nil {
		e.Close(ctx)
		return nil, err
	}
	return e, nil
}

// breakers returns the circuit breakers as the metrics show them.
func (e *engine) breakers() []telemetry.Breaker {
	breakers := e.client.Breakers()
	all := make([]telemetry.Breaker, len(breakers))
	for i, b := range breakers {
		all[i] = telemetry.Breaker{Provider: b.Provider, Model: b.Model, State: string(b.State)}
	}
	return all
}

// outOfOrder returns the models that are not called at the moment, because they
// failed too often of late, and whether the members that are left can be a quorum.
func (e *engine) outOfOrder(cfg config.Config) (models []string, quorum bool) {
	for _, b := range e.client.Breakers() {
		if b.State == llm.BreakerOpen {
			models = append(models, b.Name())
		}
	}
	left := slices.DeleteFunc(slices.Clone(cfg.Models), func(m string) bool { return slices.Contains(models, m) })
	return models, len(left) >= pipeline.Quorum(cfg.Quorum, len(cfg.Models))
}

// loadConfig reads the settings, and reports with their problems those of what they
// name.
func loadConfig() (config.Config, error) {
	cfg, err := config.Load(checkLexicon, checkSimulated)
	if err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

func checkLexicon(cfg config.Config) error {
	if !cfg.Demographics {
		return nil
	}
	if _, err := readLexicon(cfg.Lexicon); err != nil {
		return fmt.Errorf("LLM_COUNCIL_LEXICON: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// checkSimulated reports the simulated models that do not exist.
func checkSimulated(cfg config.Config) error {
	known := simulated(builtIn())
	unknown := slices.DeleteFunc(cfg.Named(), func(model string) bool {
		return cfg.ProviderOf(model) != config.SimProvider || slices.Contains(known, model)
	})
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("LLM_COUNCIL_MODELS or another list of models: there is no simulated model %s: use %s",
		strings.Join(unknown, ", "), strings.Join(known, ", "))
}

// builtIn returns the simulated models that settings can name.
func builtIn() []simllm.Model { return slices.Concat(simllm.Council(), simllm.Troubled()) }

// readLexicon reads the terms by demographic axis, from the file or built in.
func readLexicon(path string) (disagreement.Lexicon, error) {
	if path == "" {
		return disagreement.DefaultLexicon(), nil
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe or a device may never end
		return nil, fmt.Errorf("%q is no regular file: write the path of one", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read (%w): write the path of a file that councild can read", path, errors.Unwrap(err))
	}
	lexicon, err := disagreement.ParseLexicon(data)
	if err != nil {
		return nil, fmt.Errorf("%q is no lexicon: %w", path, err)
	}
	return lexicon, nil
}

// warnOfSettings logs what is likely to be wrong with the settings.
func warnOfSettings(ctx context.Context, log *slog.Logger, cfg config.Config) {
	for _, warning := range cfg.Warnings() {
		log.WarnContext(ctx, "a setting is likely to be wrong", "setting", warning)
	}
}

// usesSim reports whether any configured model is simulated.
func usesSim(cfg config.Config) bool {
	return slices.ContainsFunc(cfg.Named(), func(model string) bool { return cfg.ProviderOf(model) == config.SimProvider })
}

// simulated returns the names by which a configuration calls simulated models.
func simulated(models []simllm.Model) []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = config.SimProvider + ":" + m.Name
	}
	return names
}

// Close releases what the engine holds. Runs must be over.
func (e *engine) Close(ctx context.Context) {
	if e.tracing != nil {
		// What the collector does not take in time is lost: traces are no records.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
		defer cancel()
		_ = e.tracing.Close(ctx)
	}
	if e.client != nil {
		e.client.Close()
	}
	if e.sim != nil {
		e.sim.Close()
	}
}
