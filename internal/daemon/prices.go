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
	// pricesEvery is the time between two looks at a provider's list, or pricesAgain after a look for prices that failed.
	pricesEvery, pricesAgain = 24 * time.Hour, time.Minute
	// pricesTimeout bounds a look for which the start of a daemon waits, and the time that a provider without prices has for its list.
	pricesTimeout = 10 * time.Second
)

// The codes of what the lists of providers say of configured models, at /readyz.
const (
	modelMissing = "model_missing"
	modelEnds    = "model_ends"
)

// remark is what the list of a provider says of a configured model.
type remark struct {
	code  string // modelMissing or modelEnds
	model string
	says  string // as in "shuts it down on 2026-12-11"; "" for a missing one
}

// prices know what models cost: as somebody wrote it down, or else as their provider lists it.
type prices struct {
	written   map[string]spend.Tariff
	providers []string // their names
	asks      []string // names of the providers that are asked for their prices
	others    []string // names of the other providers that configured models go to

	mu      sync.Mutex            // guards what follows
	lists   map[string]spend.List // by provider; one without prices is empty, one that was never had is missing
	remarks map[string][]remark   // by provider, as its last list has it
}

// newPrices returns the prices that the settings give. Simulated models have the prices that they
// report.
func newPrices(cfg config.Config, r *config.Roster, sim simulated) (*prices, error) {
	written, err := writtenPrices(cfg, r)
	if err != nil {
		return nil, err
	}
	p := &prices{written: written, providers: cfg.ProviderNames(), lists: map[string]spend.List{}, remarks: map[string][]remark{}}
	names := sim.names()
	for _, name := range cfg.Named() {
		if _, _, ok, err := sim.price(name); ok && err == nil && !slices.Contains(names, name) {
			names = append(names, name) // one with settings
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

// writtenPrices returns the tariffs of the roster, and of PRICES for models of which it says nothing.
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

// readPrices reads the tariffs of PRICES. Its error names every entry that is none.
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

// tariff returns what a model costs.
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

// missing returns the names of the providers whose list was never had.
func (p *prices) missing() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.asks), func(name string) bool { return p.lists[name] != nil })
}

// askPrices asks each provider whose prices are wanted for its list. Where there is none now, the last one stays.
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
			log.WarnContext(ctx, "the prices of a provider could not be had", "provider", name, "error", err)
			continue
		}
		h.prices.mu.Lock()
		h.prices.lists[name] = list
		h.prices.mu.Unlock()
		h.readModels(name, data)
	}
}

// askModels asks the other providers for their lists, of which only the models are read. A provider without a list says nothing.
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

// readModels notes what a provider's list says of the configured models.
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
		case doubt == "" && model != h.cfg.EmbeddingModel: // some providers do not list models that embed
			remarks = append(remarks, remark{code: modelMissing, model: model})
		}
	}
	h.prices.mu.Lock()
	defer h.prices.mu.Unlock()
	h.prices.remarks[provider] = remarks
}

// remarked returns what the lists of the providers say of the configured models, in the order of these.
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

// unpriced returns the configured models of which nobody knows what they cost.
func (h *setup) unpriced() []string {
	var unpriced []string
	for _, model := range h.cfg.Named() {
		if _, ok := h.prices.tariff(model); !ok && !slices.Contains(unpriced, model) {
			unpriced = append(unpriced, model)
		}
	}
	return unpriced
}

// requirePrices returns an error where hard limits cannot be held: a configured model has no price,
// and its provider does not list one. A provider that does not answer now is asked again later.
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
	return fmt.Errorf("LLM_COUNCIL_PRICES: LLM_COUNCIL_COST_LIMITS is hard, and nobody knows what these models cost: %s; "+
		"give their prices, as in gpt-6.1-sol=2/10, or use soft limits", strings.Join(unpriced, ", "))
}

// watchPrices asks for the lists of the providers at once and once a day, and for prices again soon after a look that failed,
// until ctx ends.
func (e *Engine) watchPrices(ctx context.Context, log *slog.Logger) {
	warned := false
	said := map[remark]bool{}
	var asked time.Time // when the providers without prices were asked
	for {
		h := e.setup.Load()
		h.askPrices(ctx, log)
		if time.Since(asked) >= pricesEvery {
			h.askModels(ctx)
			asked = time.Now()
			clear(said) // what holds is said again each day
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
			log.WarnContext(ctx, "there is a limit of cost, and nobody knows what these models cost: unless their provider says it with each "+
				"call, their calls count as nothing; give their prices in LLM_COUNCIL_PRICES", "models", unpriced)
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
		log.WarnContext(ctx, "a configured model is not in the list of its provider; councild check says what to write instead", "model", r.model)
		return
	}
	log.WarnContext(ctx, "a configured model ends; configure another one", "model", r.model, "provider", r.says)
}

// ListedPrice is what a configured model costs.
type ListedPrice struct {
	Model  string
	Listed *spend.Tariff // as its provider or the file lists it; nil: it does not
	Set    *spend.Tariff // as the settings have it; nil: they do not
}

// ListPrices returns what the configured models cost: from the file, or where none is given from
// their providers, which are asked for it. It costs nothing.
func ListPrices(ctx context.Context, cfg config.Config, sim Simulator, file string, log *slog.Logger) ([]ListedPrice, error) {
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

// listFrom returns a function that finds what a model costs.
func listFrom(ctx context.Context, cfg config.Config, sim Simulator, file string, log *slog.Logger) (func(string) (spend.Tariff, bool), error) {
	if file == "" {
		cfg.Prices = nil
		cfg.CostLimits = "soft"
		cfg.MaxCostUSD = new(1.0) // with a limit, every provider is asked
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
