package llm

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/councild/councild/internal/council"
)

// figure is a number in a reply. A malformed number is implausible, and the rest of the reply is still read.
type figure struct {
	value              float64
	given, implausible bool
}

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (f *figure) UnmarshalJSON(b []byte) error {
	value, err := strconv.ParseFloat(string(b), 64)
	*f = figure{value: value, given: string(b) != "null", implausible: err != nil && string(b) != "null"}
	return nil
}

// tokens returns a number of tokens, or 0 if it is not given. ok is false if the number is implausible.
func (f figure) tokens() (n int64, ok bool) {
	const most = 1 << 62 // far beyond any plausible number
	n = int64(max(min(f.value, most), -most))
	if f.implausible || f.value != math.Trunc(f.value) || !council.BelievableTokens(n) {
		return 0, false
	}
	return n, true
}

// readUsage reads the usage of a reply. It returns nil if the usage is missing or no object.
func readUsage(raw json.RawMessage) *figures {
	var f *figures
	if json.Unmarshal(raw, &f) != nil {
		return nil
	}
	return f
}

// figures are the usage of a reply, as the provider reports it. The costs are OpenRouter's extension, in US
// dollars.
type figures struct {
	Input  figure `json:"prompt_tokens"`
	Output figure `json:"completion_tokens"`
	Total  figure `json:"total_tokens"`
	// Some providers report the reasoning tokens here, and not in OutputParts.
	Reasoning   figure `json:"reasoning_tokens"`
	Cost        figure `json:"cost"`
	InputParts  parts  `json:"prompt_tokens_details"`
	OutputParts parts  `json:"completion_tokens_details"`
	CacheRead   figure `json:"cache_read_input_tokens"`     // from gateways to Anthropic
	CacheMade   figure `json:"cache_creation_input_tokens"` // from gateways to Anthropic
	CacheHit    figure `json:"prompt_cache_hit_tokens"`     // from DeepSeek
	CostParts   parts  `json:"cost_details"`
	// OwnKey says that another provider charges the caller's own key. This charge comes in addition to the cost here.
	OwnKey flag `json:"is_byok"`
}

// parts are the kinds of tokens that have their own prices, and the cost at the provider that a gateway has called.
type parts struct {
	Cached    figure `json:"cached_tokens"`
	Written   figure `json:"cache_write_tokens"` // from OpenRouter, and since GPT-5.6 from OpenAI
	Reasoning figure `json:"reasoning_tokens"`
	Upstream  figure `json:"upstream_inference_cost"`
}

// UnmarshalJSON implements json.Unmarshaler. It never fails, and ignores what it cannot read.
func (p *parts) UnmarshalJSON(b []byte) error {
	type plain parts
	var read plain
	if json.Unmarshal(b, &read) == nil {
		*p = parts(read)
	}
	return nil
}

// flag is a boolean. Any value except true counts as false.
type flag bool

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (f *flag) UnmarshalJSON(b []byte) error {
	*f = string(b) == "true"
	return nil
}

// all returns all figures, in a fixed order.
func (f *figures) all() [15]*figure {
	return [...]*figure{
		&f.Input, &f.Output, &f.Total, &f.Reasoning, &f.Cost,
		&f.InputParts.Cached, &f.InputParts.Written, &f.InputParts.Reasoning,
		&f.OutputParts.Cached, &f.OutputParts.Written, &f.OutputParts.Reasoning,
		&f.CostParts.Upstream, &f.CacheRead, &f.CacheMade, &f.CacheHit,
	}
}

// merge combines the figures with the figures of an earlier chunk of the stream. It keeps the greater value of each
// figure, because figures grow along a stream, and some providers report input and output in different chunks.
func (f *figures) merge(earlier *figures) {
	before := earlier.all()
	for i, now := range f.all() {
		if !now.given || now.value < before[i].value && !now.implausible {
			*now = *before[i]
		}
	}
	f.OwnKey = f.OwnKey || earlier.OwnKey
}

func (f *figures) kinds() council.TokenKinds {
	cached, _ := f.InputParts.Cached.tokens()
	written, _ := f.InputParts.Written.tokens()
	reasoning, _ := f.OutputParts.Reasoning.tokens()
	separate, _ := f.Reasoning.tokens()
	return council.TokenKinds{CachedInput: cached, CacheWrite: written, Reasoning: max(reasoning, separate)}
}

// reasons reports whether the provider says how many tokens the reasoning took.
func (f *figures) reasons() bool {
	for _, figure := range []figure{f.OutputParts.Reasoning, f.Reasoning} {
		if _, ok := figure.tokens(); ok && figure.given {
			return true
		}
	}
	return false
}

// read returns what the request consumed. The result implausible is the number of figures that are implausible. A 0
// counts as a figure that was not given, because a completion has at least one token of input and one of output.
//
// read chooses the meaning with the most tokens, because every token that a provider may charge for must be counted.
// Providers differ: OpenAI includes all tokens in prompt and completion. Gemini includes its thoughts only in the
// total. xAI reports its thoughts as reasoning tokens in addition to the completion. Some gateways leave cached tokens
// out of the prompt. The rules are:
//
//   - if there are more cached and written tokens than prompt tokens, these are added to the prompt;
//   - if there are more reasoning tokens than completion tokens, the reasoning tokens are added to the output;
//   - the output is at least the total without the input. The difference may be cached tokens that the prompt leaves
//     out. Even then it counts as output, which costs more.
//
// A total that is smaller than its parts is ignored.
func (f *figures) read() (u council.Usage, k council.TokenKinds, implausible int) {
	believed := func(f figure) int64 {
		n, ok := f.tokens()
		if !ok {
			implausible++
		}
		return n
	}
	input := believed(f.Input)
	completion := believed(f.Output)
	total := believed(f.Total)
	k = f.kinds()
	// tokens holds the input, output and reasoning tokens in one allocation. The reasoning tokens are as the provider
	// reports them. Below, k.Reasoning becomes an upper bound of them, which only the price uses.
	tokens := [3]int64{2: k.Reasoning}
	if cache := k.CachedInput + k.CacheWrite; input > 0 && cache > input {
		input += cache
	}
	output := completion
	if _, ok := f.Output.tokens(); ok && k.Reasoning > completion {
		output += k.Reasoning
	}
	if input > 0 {
		output = max(output, total-input)
	}
	if completion > 0 {
		k.Reasoning = max(k.Reasoning, output-completion) // Output that is not in the completion is thinking.
	}
	tokens[0] = input
	tokens[1] = output
	if input > 0 {
		u.InputTokens = &tokens[0]
		if k.CachedInput > 0 {
			u.CachedInputTokens = new(k.CachedInput)
		}
	}
	if output > 0 {
		u.OutputTokens = &tokens[1]
		if f.reasons() {
			u.ReasoningTokens = &tokens[2]
		}
	}
	var known bool
	if u.CostUSD, known = f.cost(); !known {
		implausible++
	}
	u, beyond := u.Believable()
	return u, k, implausible + beyond
}

// cost returns what the request cost in US dollars, or nil if the provider does not say. ok is false if the figure
// is implausible.
//
// A gateway may report two amounts: what it charges itself, and what the provider that it calls charges. If the request
// used the caller's own key at that provider, the caller pays both amounts, and cost adds them. Otherwise both are the
// price of the same request, and cost returns the greater one.
func (f *figures) cost() (usd *float64, ok bool) {
	cost := f.Cost
	upstream := f.CostParts.Upstream
	switch {
	case cost.implausible:
		return nil, false
	case upstream.implausible || !(upstream.value > 0):
		if !cost.given {
			return nil, true
		}
		return new(council.AddUSD(cost.value, 0)), true
	case bool(f.OwnKey):
		return new(council.AddUSD(cost.value, upstream.value)), true
	default:
		return new(council.AddUSD(max(cost.value, upstream.value), 0)), true
	}
}

// quoteNaN returns data with quotes around every NaN and Infinity outside strings. Some servers write these words where
// a number belongs, which is not JSON.
func quoteNaN(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data)+16)
	for inString := false; len(data) > 0; {
		n := 1
		switch {
		case data[0] == '"':
			inString = !inString
		case inString && data[0] == '\\':
			n = min(2, len(data))
		case !inString && bytes.IndexByte([]byte("NI-"), data[0]) >= 0:
			for _, word := range []string{"NaN", "-NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(data, []byte(word)) {
					out = append(out, `"NaN"`...)
					data = data[len(word):]
					n = 0
					break
				}
			}
		}
		out = append(out, data[:n]...)
		data = data[n:]
	}
	return out
}
