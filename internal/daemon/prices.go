package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/spend"
)

const (
	// pricesEvery is the time between two requests for a provider's list. After a failed request for prices, this time
	// is pricesAgain.
	pricesEvery, pricesAgain = 24 * time.Hour, time.Minute
	// pricesTimeout bounds the requests for prices before the daemon starts. It also bounds the requests to
	// providers that list no prices.
	pricesTimeout = 10 * time.Second
)

// /readyz reports these codes for a configured model that its provider does not list, or will shut down soon.
const (
	modelMissing = "model_missing"
	modelEnds    = "model_ends"
)

// remark is a problem with a configured model. The list of the model's provider shows the problem.
type remark struct {
	code  string // modelMissing or modelEnds
	model string
	says  string // for modelEnds, such as "shuts it down on 2026-12-11"; "" for modelMissing
}

// prices has the prices of models. Prices in the settings take precedence over prices that the provider lists.
type prices struct {
	written   map[string]spend.Tariff // from the settings, by model
	providers []string                // names of all providers
	asks      []string                // names of the providers that are asked for prices
	others    []string                // names of the other providers of configured models

	mu sync.Mutex // guards lists and remarks
	// lists has the prices by provider. A provider that lists no prices has an empty list. A provider that has not
	// answered yet has no entry.
	lists map[string]spend.List
	// remarks has, by provider, the remarks from the latest list of the provider.
	remarks map[string][]remark
}

// newPrices returns the prices that the settings give, and the prices that the simulator reports for its models.
func newPrices(cfg config.Config, r *config.Roster, sim simulated) (*prices, error) {
	written, err := writtenPrices(cfg, r)
	if err != nil {
		return nil, err
	}
	p := &prices{
		written: written, providers: cfg.ProviderNames(),
		lists: map[string]spend.List{}, remarks: map[string][]remark{},
	}
	names := sim.names()
	for _, name := range cfg.Named() {
		if _, _, ok, err := sim.price(name); ok && err == nil && !slices.Contains(names, name) {
			names = append(names, name) // a simulated model with settings in its name
		}
	}
	for _, name := range names {
		if input, output, _, _ := sim.price(name); lacks(written, name) {
			perMillion := func(dollars float64) spend.Price { return spend.Price(spend.FromFloat(dollars) / 1e6) }
			p.written[name] = spend.Flat(perMillion(input), perMillion(output))
		}
	}
	for _, model := range cfg.Named() {
		provider, _ := council.SplitModel(model, p.providers)
		if lacks(p.written, model) && !slices.Contains(p.asks, provider) && (isLimited(cfg) || cfg.ListsPrices(provider)) {
			p.asks = append(p.asks, provider)
		}
	}
	for _, model := range cfg.Named() {
		provider, _ := council.SplitModel(model, p.providers)
		if provider != config.SimProvider && !slices.Contains(p.asks, provider) && !slices.Contains(p.others, provider) {
			p.others = append(p.others, provider)
		}
	}
	return p, nil
}

// writtenPrices returns the prices in the roster, and those in LLM_COUNCIL_PRICES for models without a price in the
// roster.
func writtenPrices(cfg config.Config, r *config.Roster) (map[string]spend.Tariff, error) {
	tariffs, err := readPrices(cfg)
	if err != nil || r == nil {
		return tariffs, err
	}
	for _, m := range r.Models {
		if m.Price != nil {
			tariffs[m.Member.Model] = *m.Price
		}
	}
	return tariffs, nil
}

// lacks reports whether a model has no tariff yet.
func lacks(tariffs map[string]spend.Tariff, model string) bool {
	_, taken := tariffs[model]
	return !taken
}

// readPrices parses LLM_COUNCIL_PRICES. Its error names every entry that is not valid.
func readPrices(cfg config.Config) (map[string]spend.Tariff, error) {
	tariffs := map[string]spend.Tariff{}
	var errs []error
	for i, entry := range cfg.Prices {
		at := strings.LastIndex(entry, "=")
		if at <= 0 {
			errs = append(errs, fmt.Errorf("LLM_COUNCIL_PRICES: entry %d is not MODEL=INPUT/OUTPUT: write it as in gpt-6.1-sol=2/10", i+1))
			continue
		}
		model := strings.TrimSpace(entry[:at])
		tariff, err := spend.ParseTariff(strings.TrimSpace(entry[at+1:]))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("LLM_COUNCIL_PRICES: entry %d, of %q: %w", i+1, model, err))
		case !lacks(tariffs, model):
			errs = append(errs, fmt.Errorf("LLM_COUNCIL_PRICES: entry %d: %q has a price already: remove one", i+1, model))
		}
		tariffs[model] = tariff
	}
	return tariffs, errors.Join(errs...)
}

// tariff returns the prices of a model, and whether they are known.
func (p *prices) tariff(model string) (spend.Tariff, bool) {
	if t, ok := p.written[model]; ok {
		return t, true
	}
	provider, id := council.SplitModel(model, p.providers)
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.lists[provider][id]
	return t, ok
}

// missing is the list of the names of the providers that have not returned their list of prices yet.
func (p *prices) missing() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.asks), func(name string) bool { return p.lists[name] != nil })
}

// askPrices asks providers for their lists of prices. A provider that does not answer keeps its last list.
func (h *setup) askPrices(ctx context.Context, log *slog.Logger) {
	for _, name := range h.prices.asks {
		list := spend.List{}
		data, err := h.client.ListModels(ctx, name)
		if err == nil {
			if list, err = spend.ParseList(data, time.Now().UTC().Truncate(24*time.Hour)); errors.Is(err, spend.ErrNoPrices) {
				list = spend.List{}
				err = nil
			}
		}
		if err != nil {
			log.WarnContext(ctx, "the prices of a provider could not be fetched", "provider", name, "error", err)
			continue
		}
		h.prices.mu.Lock()
		h.prices.lists[name] = list
		h.prices.mu.Unlock()
		h.readModels(name, data)
	}
}

// askModels asks the providers in prices.others for their lists, because askPrices does not ask these providers. It
// reads only the models in the lists, and no prices. It ignores providers that have no list.
func (h *setup) askModels(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pricesTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, name := range h.prices.others {
		asking.Go(func() {
			if data, err := h.client.ListModels(ctx, name); err == nil {
				h.readModels(name, data)
			}
		})
	}
	asking.Wait()
}

// readModels compares the configured models with a provider's list, and stores the remarks.
func (h *setup) readModels(provider string, data []byte) {
	list, err := llm.ReadModels(data)
	if err != nil {
		return
	}
	var remarks []remark
	for _, model := range h.cfg.Named() {
		name, id := council.SplitModel(model, h.prices.providers)
		if name != provider {
			continue
		}
		listed, doubt := lookUp(id, h.cfg.BaseURLOf(name), list)
		switch {
		case listed != nil:
			if says := ending(*listed, time.Now()); says != "" {
				remarks = append(remarks, remark{modelEnds, model, says})
			}
		case doubt == "" && model != h.cfg.EmbeddingModel: // some providers do not list embedding models
			remarks = append(remarks, remark{code: modelMissing, model: model})
		}
	}
	h.prices.mu.Lock()
	defer h.prices.mu.Unlock()
	h.prices.remarks[provider] = remarks
}

// remarked is the list of the remarks of all providers, in the order of the configured models.
func (h *setup) remarked() []remark {
	var all []remark
	h.prices.mu.Lock()
	defer h.prices.mu.Unlock()
	for _, model := range h.cfg.Named() {
		provider, _ := council.SplitModel(model, h.prices.providers)
		for _, r := range h.prices.remarks[provider] {
			if r.model == model {
				all = append(all, r)
			}
		}
	}
	return all
}

// unpriced is the list of the configured models without a known price.
func (h *setup) unpriced() []string {
	var unpriced []string
	for _, model := range h.cfg.Named() {
		if _, ok := h.prices.tariff(model); !ok && !slices.Contains(unpriced, model) {
			unpriced = append(unpriced, model)
		}
	}
	return unpriced
}

// requirePrices returns an error if the settings have hard cost limits and a configured model has no price, neither in
// the settings nor in the list of its provider. Hard cost limits cannot hold without prices. It is no error if a
// provider does not answer now, because the daemon asks that provider again later.
func (h *setup) requirePrices(ctx context.Context, log *slog.Logger) error {
	if !h.cfg.HasHardLimits() || !isLimited(h.cfg) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pricesTimeout)
	defer cancel()
	h.askPrices(ctx, log)
	missing := h.prices.missing()
	unpriced := slices.DeleteFunc(h.unpriced(), func(model string) bool {
		provider, _ := council.SplitModel(model, h.prices.providers)
		return slices.Contains(missing, provider)
	})
	if len(unpriced) == 0 {
		return nil
	}
	return fmt.Errorf("LLM_COUNCIL_PRICES: LLM_COUNCIL_COST_LIMITS is hard, but these models have no price: %s; "+
		"set their prices, as in gpt-6.1-sol=2/10, or use soft limits", strings.Join(unpriced, ", "))
}

// watchPrices asks the providers for their lists until ctx ends. It asks at once, then once a day, and soon again after
// a failed request for prices.
func (e *Engine) watchPrices(ctx context.Context, log *slog.Logger) {
	warned := false
	said := map[remark]bool{}
	var asked time.Time // when askModels was last called
	for {
		h := e.setup.Load()
		h.askPrices(ctx, log)
		if time.Since(asked) >= pricesEvery {
			h.askModels(ctx)
			asked = time.Now()
			clear(said) // a remark that still holds is logged again each day
		}
		for _, r := range h.remarked() {
			if !said[r] {
				said[r] = true
				r.log(ctx, log)
			}
		}
		pause := pricesEvery
		if len(h.prices.missing()) > 0 {
			pause = pricesAgain
		} else if unpriced := h.unpriced(); len(unpriced) > 0 && isLimited(h.cfg) && !warned {
			warned = true
			log.WarnContext(ctx, "there is a cost limit, but no price for these models: their calls count as free "+
				"unless the provider reports the cost; set their prices in LLM_COUNCIL_PRICES", "models", unpriced)
		}
		select {
		case <-time.After(pause):
		case <-e.reloaded:
			warned = false
			asked = time.Time{}
		case <-ctx.Done():
			return
		}
	}
}

func (r remark) log(ctx context.Context, log *slog.Logger) {
	if r.code == modelMissing {
		log.WarnContext(ctx, "a provider does not list a configured model; run councild check to see what to write "+
			"instead", "model", r.model)
		return
	}
	log.WarnContext(ctx, "the provider will shut down a configured model; configure another "+
		"one", "model", r.model, "provider", r.says)
}

// ListedPrice has the prices of a configured model. Prices that are not known are nil.
type ListedPrice struct {
	Model  string
	Listed *spend.Tariff // from the provider or from the file
	Set    *spend.Tariff // from the settings
}

// ListPrices returns the prices of the configured models from a file, or from their providers if file is "". Asking
// the providers costs nothing.
func ListPrices(
	ctx context.Context, cfg config.Config, sim Simulator, file string, log *slog.Logger,
) ([]ListedPrice, error) {
	cfg, r, err := cfg.ReadRoster()
	if err != nil {
		return nil, err
	}
	set, err := writtenPrices(cfg, r)
	if err != nil {
		return nil, err
	}
	find, err := listFrom(ctx, cfg, sim, file, log)
	if err != nil {
		return nil, err
	}
	var all []ListedPrice
	for _, model := range cfg.Named() {
		l := ListedPrice{Model: model}
		if t, ok := find(model); ok {
			l.Listed = &t
		}
		if t, ok := set[model]; ok {
			l.Set = &t
		}
		if !slices.ContainsFunc(all, func(other ListedPrice) bool { return other.Model == model }) {
			all = append(all, l)
		}
	}
	return all, nil
}

// listFrom returns a function that finds the prices of a model in the file, or in the lists of the providers if
// file is "".
func listFrom(
	ctx context.Context, cfg config.Config, sim Simulator, file string, log *slog.Logger,
) (func(string) (spend.Tariff, bool), error) {
	if file == "" {
		cfg.Prices = nil
		cfg.CostLimits = "soft"
		cfg.MaxCostUSD = new(1.0) // with a limit, the engine asks every provider for prices
		e, err := NewEngine(ctx, EngineOptions{Config: cfg, Simulated: sim, Log: log})
		if err != nil {
			return nil, err
		}
		defer e.Close(ctx)
		e.setup.Load().askPrices(ctx, log)
		return e.tariff, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("reading the prices: %w", err)
	}
	if !info.Mode().IsRegular() { // a pipe or a device may never end
		return nil, fmt.Errorf("reading the prices: %s is no regular file", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the prices: %w", err)
	}
	list, err := spend.ParseList(data, info.ModTime().UTC().Truncate(24*time.Hour))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return func(model string) (spend.Tariff, bool) {
		_, id := council.SplitModel(model, cfg.ProviderNames())
		for _, name := range []string{model, id, "openrouter/" + id, id[strings.LastIndex(id, "/")+1:]} {
			if t, ok := list[name]; ok {
				return t, true
			}
		}
		return spend.Tariff{}, false
	}, nil
}
