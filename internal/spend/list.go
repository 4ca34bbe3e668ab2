package spend

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// List holds tariffs by the names under which a price list has them.
type List map[string]Tariff

// ErrNoPrices says that a list holds no price of any model.
var ErrNoPrices = errors.New("the list holds no prices: it needs the form of OpenRouter's /models, " +
	"or of LiteLLM's model_prices_and_context_window.json")

// ParseList reads a list of prices as of a day: {"data": [{"id": ..., "pricing": {...}}]}, in which
// OpenRouter's /models has them in US dollars per token, or LiteLLM's file. Prices are rounded up
// to the next picodollar a token. A model whose price is not clear is left out: a price that is too
// low would overspend in silence.
func ParseList(data []byte, asOf time.Time) (List, error) {
	var cards struct {
		Data []struct {
			ID      string          `json:"id"`
			Pricing json.RawMessage `json:"pricing"`
			Alias   json.RawMessage `json:"alias_target"` // of a name that always means the newest model of a family
		} `json:"data"`
	}
	list := List{}
	if err := json.Unmarshal(data, &cards); err != nil {
		return nil, fmt.Errorf("reading the list of prices: %w", err)
	}
	for _, card := range cards.Data {
		if t, err := readPricing(card.Pricing); err == nil && card.ID != "" {
			t.AsOf = asOf
			list[card.ID] = t
		}
	}
	for _, card := range cards.Data {
		var target struct {
			Slug string `json:"slug"`
		}
		if _, priced := list[card.ID]; priced || card.ID == "" || json.Unmarshal(card.Alias, &target) != nil {
			continue
		}
		if t, ok := list[target.Slug]; ok { // an alias without prices of its own costs what it stands for
			list[card.ID] = t
		}
	}
	if cards.Data == nil {
		var models map[string]map[string]any
		if err := json.Unmarshal(data, &models); err != nil {
			return nil, ErrNoPrices
		}
		for name, fields := range models {
			if t, err := readLiteLLM(fields); err == nil && name != "sample_spec" {
				t.AsOf = asOf
				list[name] = t
			}
		}
	}
	if len(list) == 0 {
		return nil, ErrNoPrices
	}
	return list, nil
}

// pricing is what OpenRouter's list says of a model: US dollars per token, and per request.
type pricing struct {
	Prompt     string `json:"prompt"`
	Completion string `json:"completion"`
	CacheRead  string `json:"input_cache_read"`
	CacheWrite string `json:"input_cache_write"`
	Reasoning  string `json:"internal_reasoning"`
	Request    string `json:"request"`
}

func readPricing(data json.RawMessage) (t Tariff, err error) {
	var p struct {
		pricing
		Overrides []struct {
			MinPromptTokens int64 `json:"min_prompt_tokens"` // from so many on, these prices hold
			pricing
		} `json:"overrides"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return t, err
	}
	if t.Rates, err = p.rates(); err != nil {
		return t, err
	}
	for _, o := range p.Overrides {
		r, err := o.rates()
		if err != nil {
			return t, err
		}
		t.Above = append(t.Above, Tier{InputTokens: o.MinPromptTokens - 1, Rates: r})
	}
	return t, t.Validate()
}

func (p pricing) rates() (r Rates, err error) {
	var errs []error
	price := func(text string) *Price {
		if text == "" {
			return nil
		}
		v, err := priceUp(text)
		errs = append(errs, err)
		return &v
	}
	// What does not cost extra stands as 0 there. It costs what other tokens do.
	extra := func(text string) *Price {
		if v := price(text); v != nil && *v > 0 {
			return v
		}
		return nil
	}
	r = Rates{
		Input: price(p.Prompt), Output: price(p.Completion),
		CachedInput: extra(p.CacheRead), CacheWrite: extra(p.CacheWrite), Reasoning: extra(p.Reasoning),
	}
	if p.Request != "" {
		v, err := ParseUSD(p.Request)
		errs = append(errs, err)
		r.Request = &v
	}
	return r, errors.Join(errs...)
}

// above matches a field of LiteLLM's file for calls with many input tokens.
var above = regexp.MustCompile(`^(.+)_above_([0-9]+)k_tokens$`)

// readLiteLLM reads what LiteLLM's file says of a model: US dollars per token.
func readLiteLLM(fields map[string]any) (t Tariff, err error) {
	var errs []error
	set := func(r *Rates, field string, value any) {
		number, ok := value.(float64)
		place := map[string]**Price{
			"input_cost_per_token": &r.Input, "output_cost_per_token": &r.Output, "cache_read_input_token_cost": &r.CachedInput,
			"cache_creation_input_token_cost": &r.CacheWrite, "output_cost_per_reasoning_token": &r.Reasoning,
		}[field]
		if place == nil || !ok {
			return
		}
		price, err := priceUp(strconv.FormatFloat(number, 'g', -1, 64))
		errs = append(errs, err)
		*place = &price
	}
	tiers := map[int64]*Rates{}
	for field, value := range fields {
		if parts := above.FindStringSubmatch(field); parts != nil {
			thousands, err := strconv.ParseInt(parts[2], 10, 32)
			errs = append(errs, err)
			if tiers[thousands*1000] == nil {
				tiers[thousands*1000] = &Rates{}
			}
			set(tiers[thousands*1000], parts[1], value)
			continue
		}
		set(&t.Rates, field, value)
	}
	for _, tokens := range slices.Sorted(maps.Keys(tiers)) {
		t.Above = append(t.Above, Tier{InputTokens: tokens, Rates: *tiers[tokens]})
	}
	return t, errors.Join(append(errs, t.Validate())...)
}

// Line returns the tariff as an entry of a roster's models, dated, on one line.
func (t Tariff) Line() string {
	rates := func(r Rates) string {
		var parts []string
		for _, p := range []struct {
			name  string
			price *Price
		}{
			{"input", r.Input},
			{"cached_input", r.CachedInput},
			{"cache_write", r.CacheWrite},
			{"output", r.Output},
			{"reasoning", r.Reasoning},
		} {
			if p.price != nil {
				parts = append(parts, p.name+": "+p.price.String())
			}
		}
		if r.Request != nil && *r.Request > 0 {
			parts = append(parts, "request: "+r.Request.String())
		}
		return strings.Join(parts, ", ")
	}
	line := rates(t.Rates)
	if !t.AsOf.IsZero() {
		line = "as_of: " + t.AsOf.Format(time.DateOnly) + ", " + line
	}
	tiers := make([]string, 0, len(t.Above))
	for _, tier := range t.Above {
		tiers = append(tiers, fmt.Sprintf("{input_tokens: %d, %s}", tier.InputTokens, rates(tier.Rates)))
	}
	if len(tiers) > 0 {
		line += ", above: [" + strings.Join(tiers, ", ") + "]"
	}
	return "{" + line + "}"
}

// Same reports whether two tariffs have the same prices, whatever their days.
func (t Tariff) Same(u Tariff) bool {
	if len(t.Above) != len(u.Above) || t.over(t.Rates) != u.over(u.Rates) {
		return false
	}
	for i, tier := range t.Above {
		other := u.Above[i]
		if tier.InputTokens != other.InputTokens || tier.over(t.Rates) != other.over(u.Rates) {
			return false
		}
	}
	return true
}

// Entry returns input and output of the tariff as [ParseTariff] reads them.
func (t Tariff) Entry() string {
	entry := t.Input.String() + "/" + t.Output.String()
	if !t.AsOf.IsZero() {
		entry += "@" + t.AsOf.Format(time.DateOnly)
	}
	return entry
}
