package llm

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/councild/councild/internal/council"
)

// Providers that call themselves OpenAI-compatible take different options. dialectOf has what their documentation says.
// A client learns the rest from refusals: it repeats the request without the refused option, and never asks the model
// for that option again. For a temperature or an effort, it learns each value separately, because the model may take
// another value. It remembers a refused format only if the call was a review. In any other call, the model may have
// refused only the schema of this call, and not formats in general.

// dialect is what is known about a provider's options.
type dialect struct {
	newName  bool // the provider takes max_completion_tokens in place of max_tokens
	effort   effort
	askCosts bool // the provider reports the cost of a call only if the request asks for it
	// cacheOptions says that the provider takes prompt_cache_options, for models that charge for cache writes.
	cacheOptions bool
}

// effort is how a provider is told how much a model should think.
type effort int

const (
	effortWord   effort = iota // "reasoning_effort": "high"
	effortObject               // "reasoning": {"effort": "high"}
	effortNone                 // the provider ignores it
)

// dialectOf returns what the documentation of a host says, as it was in November 2026:
//
//   - platform.openai.com/docs/api-reference/chat: max_tokens is deprecated, and reasoning models refuse it.
//   - learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning: the same for Azure.
//   - openrouter.ai/docs/use-cases/reasoning-tokens and .../usage-accounting: the request has the object reasoning, and
//     usage.include.
//   - platform.claude.com/docs/en/api/openai-sdk: reasoning_effort is ignored.
//   - developers.openai.com/api/docs/guides/prompt-caching: GPT-5.6 and later models charge 1.25 times the price of
//     input for what they write to their cache. prompt_cache_options keeps them from writing. Azure has the same
//     models. OpenRouter passes the member on, and removes it for a model that does not know it
//     (openrouter.ai/docs/cookbook, migration to GPT-5.6).
func dialectOf(host string) dialect {
	switch {
	case host == "api.openai.com", strings.HasSuffix(host, ".openai.azure.com"),
		strings.HasSuffix(host, ".services.ai.azure.com"):
		return dialect{newName: true, cacheOptions: true}
	case host == "openrouter.ai":
		return dialect{effort: effortObject, askCosts: true, cacheOptions: true}
	case host == "api.anthropic.com":
		return dialect{effort: effortNone}
	default:
		return dialect{}
	}
}

// options is a set of things that a request can have and a model can refuse.
type options uint32

const (
	optTemperature options = 1 << iota
	optEffort
	optFormat
	optStreamUsage // "stream_options": {"include_usage": true}
	optStream
	// optTokensName is the limit of output tokens under the name that the dialect uses: max_tokens or
	// max_completion_tokens. A request without this option has the limit under the other name.
	optTokensName
	// optSystem is a message of the role system. In a request without this option, the text of that message stands
	// before the user's first message.
	optSystem
	optCache // "prompt_cache_options": {"mode": "explicit"}
)

// memberCache is the member of a request that keeps a model from writing to its cache.
const memberCache = "prompt_cache_options"

// paysForCache reports whether a model charges for what it writes to its cache. The argument model is the provider's
// name for the model. GPT-5.6 and later models charge. So do models whose name always means the newest GPT, such as
// gpt-latest. paysForCache does not use the provider's list of prices, because a price for cache writes proves nothing:
// Claude has such a price, but writes only what a request asks it to write.
func paysForCache(model string) bool {
	model = strings.TrimPrefix(strings.TrimPrefix(model, "~"), "ft:")
	model, _, _ = strings.Cut(strings.TrimPrefix(model, "openai/"), ":")
	version, ok := strings.CutPrefix(model, "gpt-")
	if !ok {
		return false
	}
	version, _, _ = strings.Cut(version, "-")
	major, minor, _ := strings.Cut(version, ".")
	m, err := strconv.Atoi(major)
	if err != nil {
		return strings.HasSuffix(model, "-latest")
	}
	const azures35 = 35 // gpt-35-turbo is GPT-3.5
	n, _ := strconv.Atoi(minor)
	return m > 5 && m != azures35 || m == 5 && n >= 6
}

// setsCache reports whether the roster adds a cache option to the requests of a model. If it does, councild adds none.
func setsCache(p *council.Profile) bool {
	if p == nil {
		return false
	}
	for name := range p.Body {
		if strings.HasPrefix(name, "prompt_cache_") {
			return true
		}
	}
	return false
}

// optionNames returns the names of an option in requests and in the errors of providers. It returns nil for an option
// without a name.
func optionNames(o options) []string {
	switch o {
	case optTemperature:
		return []string{"temperature"}
	case optEffort:
		return []string{"reasoning_effort", "reasoning.effort", "reasoning"}
	case optFormat:
		return []string{"response_format"}
	case optStreamUsage:
		return []string{"stream_options"}
	case optStream:
		return []string{"stream"}
	case optTokensName:
		return []string{"max_tokens", "max_completion_tokens"}
	case optCache:
		return []string{memberCache, memberCache + ".mode"}
	default:
		return nil
	}
}

// refusals are the options that a model has refused.
type refusals struct {
	mu    sync.Mutex       // guards known
	known map[refused]bool // at most one for each option and value in the settings
}

// refused is an option that a model has refused. The field value is the refused value, or "" if the model refuses every
// value of the option.
type refused struct {
	option options
	value  string
}

// in returns the option o with the value that a call gives to it. Only a temperature and an effort have a value here.
func (o options) in(call *council.Call) refused {
	switch {
	case o == optTemperature && call.Temperature != nil:
		return refused{o, strconv.FormatFloat(*call.Temperature, 'g', -1, 64)}
	case o == optEffort && call.Profile != nil:
		return refused{o, call.Profile.ReasoningEffort}
	default:
		return refused{o, ""}
	}
}

// of returns the options of a call that the model has refused. The argument asked holds all options of the call.
func (r *refusals) of(call *council.Call, asked options) options {
	r.mu.Lock()
	defer r.mu.Unlock()
	var o options
	for known := range r.known {
		if asked&known.option != 0 && known == known.option.in(call) {
			o |= known.option
		}
	}
	return o
}

// learn notes the options that the model has refused in a call.
func (r *refusals) learn(call *council.Call, learned options) {
	if call.Stage != council.Stage2 {
		learned &^= optFormat // The model may have refused only this caller's schema.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := options(1); o <= learned; o <<= 1 {
		if learned&o == 0 {
			continue
		}
		if r.known == nil {
			r.known = map[refused]bool{}
		}
		r.known[o.in(call)] = true
	}
}

// asked returns the options that a call asks its provider for. The argument model is the provider's name for the
// model.
func (d dialect) asked(call *council.Call, model string) options {
	var o options
	if d.cacheOptions && call.Texts == nil && paysForCache(model) && !setsCache(call.Profile) {
		o |= optCache
	}
	if call.Temperature != nil {
		o |= optTemperature
	}
	if call.Profile != nil && call.Profile.ReasoningEffort != "" {
		o |= optEffort
	}
	if call.Format != nil {
		o |= optFormat
	}
	if call.OnDelta != nil {
		o |= optStream | optStreamUsage
	}
	if call.MaxOutputTokens != nil {
		o |= optTokensName
	}
	if hasSystem(call) {
		o |= optSystem
	}
	return o
}

// known returns the options that have no effect at the provider, according to its documentation.
func (d dialect) known() options {
	if d.effort == effortNone {
		return optEffort
	}
	return 0
}

// leftOut returns the names of options that the call asked for and that the request was sent without. It returns only
// those that change what a model answers.
func leftOut(asked, without options) []string {
	var names []string
	for _, o := range []options{optTemperature, optEffort} {
		if asked&without&o != 0 {
			names = append(names, optionNames(o)[0])
		}
	}
	return names
}

// refusal returns the sent option that the provider may have refused, or 0. If the error names a sent option, refusal
// returns this option. Otherwise it returns optFormat if the request had a format and the status may mean that the
// format was refused. The words of the error cannot decide this, because providers word the refusal of a format in too
// many ways.
func refusal(x *exchange, f *council.Failure, sent options) options {
	if f.Code == council.FailOutOfQuota || f.Code == council.FailContentFilter {
		return 0
	}
	c := x.said()
	switch cmp.Or(x.named, x.status) {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
	case http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotImplemented:
		sent &= optStream
	case http.StatusInternalServerError: // from a server whose prompt template refuses a role
		sent &= optSystem
	default:
		return 0
	}
	if sent&optSystem != 0 && refusesSystem(c.words) {
		return optSystem
	}
	words := optionWords(c.words + " " + c.param)
	for _, o := range []options{optTemperature, optEffort, optTokensName, optCache, optStreamUsage, optFormat, optStream} {
		if sent&o != 0 && slices.ContainsFunc(words, o.isNamedBy) {
			return o
		}
	}
	return sent & optFormat
}

// optionWords returns the words in a text that may be names of options.
func optionWords(text string) []string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return r != '_' && r != '.' && (r < 'a' || r > 'z')
	})
	for i, word := range words {
		words[i] = strings.Trim(word, ".")
	}
	return words
}

// isNamedBy reports whether a word is a name of the option.
func (o options) isNamedBy(word string) bool {
	return slices.Contains(optionNames(o), word) || o == optStream && strings.HasPrefix(word, "stream")
}

var (
	systemRole = regexp.MustCompile(`(?i)\b(system|developer)\W{0,2} (role|message|prompt|instruction)s?\b|` +
		`\broles?\b\W{0,3}((is|of|=)\W{0,3})?(system|developer)\b|` +
		`\.role\W.*\b(system|developer)\b`)
	isRefused = regexp.MustCompile(`(?i)\bnot (be )?(supported|enabled|allowed|available|permitted|accepted|valid|implemented)\b|` +
		`n[o']t support|\bunsupported\b|\bunexpected\b|\binvalid\b|\bunknown\b`)
	// otherRoles matches errors of templates and checks that name only the roles that they take.
	otherRoles = regexp.MustCompile(`(?i)roles must alternate|` +
		`only (the )?.?user.?(,? and|,? or|,) .?(assistant|model)|` +
		`should be 'user'(,| or) 'assistant'|` +
		`must be (one of )?.{0,3}user.{1,6}(assistant|model)|valid roles?: `)
)

// refusesSystem reports whether an error says that a model takes no message of the role system.
func refusesSystem(words string) bool {
	return systemRole.MatchString(words) && isRefused.MatchString(words) || otherRoles.MatchString(words)
}

func hasSystem(call *council.Call) bool {
	return slices.ContainsFunc(call.Messages, func(m council.Message) bool { return m.Role == council.RoleSystem })
}

// messages returns the messages of a request, which are those of its call. If the model takes no system message,
// the system message is left out, and its text is put before the user's first message.
func (x *exchange) messages() []council.Message {
	if x.without&optSystem == 0 || !hasSystem(x.call) {
		return x.call.Messages
	}
	var system []string
	var others []council.Message
	for _, m := range x.call.Messages {
		if m.Role == council.RoleSystem {
			system = append(system, m.Content)
		} else {
			others = append(others, m)
		}
	}
	first := slices.IndexFunc(others, func(m council.Message) bool { return m.Role == council.RoleUser })
	if first < 0 {
		return append([]council.Message{{Role: council.RoleUser, Content: strings.Join(system, "\n\n")}}, others...)
	}
	others[first].Content = strings.Join(append(system, others[first].Content), "\n\n")
	return others
}

// appendOptions appends the options of a request as members of its JSON.
func (x *exchange) appendOptions(b []byte) []byte {
	if p := x.call.Profile; p != nil {
		if p.ReasoningEffort != "" && x.without&optEffort == 0 {
			if x.dialect.effort == effortObject {
				b = append(b, `,"reasoning":{"effort":`...)
				b = append(appendString(b, p.ReasoningEffort), '}')
			} else {
				b = append(b, `,"reasoning_effort":`...)
				b = appendString(b, p.ReasoningEffort)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(p.Body)) {
			b = append(b, ',')
			b = append(appendString(b, name), ':')
			b = append(b, p.Body[name]...)
		}
	}
	if x.dialect.asked(x.call, x.model)&^x.without&optCache != 0 {
		b = append(b, `,"`+memberCache+`":{"mode":"explicit"}`...)
	}
	if x.dialect.askCosts {
		b = append(b, `,"usage":{"include":true}`...)
	}
	return b
}

// bytesPerToken is larger than the average number of bytes of text in one token. A prompt that does not fit even with
// this many bytes in each token never fits.
const bytesPerToken = 6

// tooLong returns the failure of a call whose prompt and reply cannot fit into the context of its model. It returns nil
// if they may fit.
func tooLong(call *council.Call) *council.Failure {
	if call.Profile == nil || call.Profile.ContextTokens == 0 {
		return nil
	}
	var least int64
	for _, m := range call.Messages {
		least += int64(len(m.Content))
	}
	least /= bytesPerToken
	if call.MaxOutputTokens != nil {
		least += int64(*call.MaxOutputTokens)
	}
	if least <= call.Profile.ContextTokens {
		return nil
	}
	return &council.Failure{
		Code: council.FailTooLong,
		Message: fmt.Sprintf("not called: prompt and reply take %d tokens or more, and the model's context has %d",
			least, call.Profile.ContextTokens),
	}
}
