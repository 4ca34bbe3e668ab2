package spend

import (
	"cmp"
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

// List holds the tariffs of models by their names in a price list.
type List map[string]Tariff

// ErrNoPrices says that a list holds no price.
var ErrNoPrices = errors.New("the list holds no prices: it needs the form of OpenRouter's /models, " +
	"or of LiteLLM's model_prices_and_context_window.json")

// ParseList reads a list of prices that was fetched at the time asOf. The list is LiteLLM's file, or has the form of
// OpenRouter's /models: {"data": [{"id": ..., "pricing": {...}}]}, with prices in US dollars per token. Prices are
// rounded up to the next picodollar per token. A model whose prices are not clear is left out, because with a price
// that is too low the daemon would overspend without notice. If a model is listed twice, the higher prices count.
func ParseList(data []byte, asOf time.Time) (List, error) {
	var cards struct {
		Data []struct {
			ID      string          `json:"id"`
			Pricing json.RawMessage `json:"pricing"`
			// Alias is set for a name that always means the newest model of a family.
			Alias json.RawMessage `json:"alias_target"`
		} `json:"data"`
	}
	list := List{}
	if err := json.Unmarshal(data, &cards); err != nil {
		return nil, fmt.Errorf("reading the list of prices: %w", err)
	}
	for _, card := range cards.Data {
		if t, err := readPricing(card.Pricing); err == nil && card.ID != "" {
			t.AsOf = asOf
			if twice, ok := list[card.ID]; ok {
				t = dearer(twice, t)
			}
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
		if t, ok := list[target.Slug]; ok { // An alias without its own prices costs as much as its target.
			list[card.ID] = t
		}
	}
	if cards.Data == nil {
		if err := list.addLiteLLM(data, asOf); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, ErrNoPrices
	}
	return list, nil
}

// addLiteLLM adds the prices of LiteLLM's file.
func (l List) addLiteLLM(data []byte, asOf time.Time) error {
	var models map[string]map[string]any
	if err := json.Unmarshal(data, &models); err != nil {
		return ErrNoPrices
	}
	for name, fields := range models {
		if t, err := readLiteLLM(fields); err == nil && name != "sample_spec" {
			t.AsOf = asOf
			l[name] = t
		}
	}
	return nil
}

// pricing holds the prices of a model in OpenRouter's list: US dollars per token, and per request.
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
			// MinPromptTokens is the smallest number of input tokens for which these prices hold.
			MinPromptTokens int64 `json:"min_prompt_tokens"`
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
	// The list has 0 for a kind of tokens without a price of its own. Such tokens cost as much as other tokens.
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

// above matches the price fields of LiteLLM's file that hold for calls with many input tokens.
var above = regexp.MustCompile(`^(.+)_above_([0-9]+)k_tokens$`)

// readLiteLLM reads the prices of one model in LiteLLM's file: US dollars per token.
func readLiteLLM(fields map[string]any) (t Tariff, err error) {
	var errs []error
	set := func(r *Rates, field string, value any) {
		number, ok := value.(float64)
		name := map[string]string{
			"input_cost_per_token": "input", "output_cost_per_token": "output", "cache_read_input_token_cost": "cached_input",
			"cache_creation_input_token_cost": "cache_write", "output_cost_per_reasoning_token": "reasoning", "input_cost_per_request": "request",
		}[field]
		if name == "" || !ok {
			return
		}
		text := strconv.FormatFloat(number, 'g', -1, 64)
		if name == "request" {
			errs = append(errs, r.set(name, text))
			return
		}
		price, err := priceUp(text)
		errs = append(errs, err)
		*r.place(name) = &price
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

// texts returns the prices that are set, each as its name, the separator and the price. It includes the fee of a
// request only if that fee differs from the argument fee.
func (r Rates) texts(separator string, fee USD) []string {
	var texts []string
	for _, name := range []string{"input", "cached_input", "cache_write", "output", "reasoning"} {
		if price := *r.place(name); price != nil {
			texts = append(texts, name+separator+price.String())
		}
	}
	if r.Request != nil && *r.Request != fee {
		texts = append(texts, "request"+separator+r.Request.String())
	}
	return texts
}

// fee returns the fee of a request when no tier applies.
func (t Tariff) fee() USD { return *cmp.Or(t.Request, new(USD)) }

// Line returns the tariff on one line, in the form of a model's prices in a roster.
func (t Tariff) Line() string {
	line := strings.Join(t.texts(": ", 0), ", ")
	if !t.AsOf.IsZero() {
		line = "as_of: " + t.AsOf.Format(time.DateOnly) + ", " + line
	}
	tiers := make([]string, 0, len(t.Above))
	for _, tier := range t.Above {
		rates := append([]string{fmt.Sprint("input_tokens: ", tier.InputTokens)}, tier.texts(": ", t.fee())...)
		tiers = append(tiers, "{"+strings.Join(rates, ", ")+"}")
	}
	if len(tiers) > 0 {
		line += ", above: [" + strings.Join(tiers, ", ") + "]"
	}
	return "{" + line + "}"
}

// Same reports whether two tariffs have the same prices. The days on which the prices were read may differ.
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

// Entry returns the tariff in the form that [ParseTariff] reads.
func (t Tariff) Entry() string {
	parts := []string{t.Input.String() + "/" + t.Output.String()}
	base := t.Rates
	base.Input = nil
	base.Output = nil
	parts = append(parts, base.texts(":", 0)...)
	for _, tier := range t.Above {
		parts = append(append(parts, fmt.Sprint(aboveKey, ":", tier.InputTokens)), tier.texts(":", t.fee())...)
	}
	entry := strings.Join(parts, "+")
	if !t.AsOf.IsZero() {
		entry += "@" + t.AsOf.Format(time.DateOnly)
	}
	return entry
}
