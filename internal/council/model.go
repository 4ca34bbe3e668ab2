package council

import (
	"encoding/json"
	"slices"
	"strings"
)

// Member is one seat of the council.
type Member struct {
	// ID names the seat everywhere: it is the model, or its id in the roster, with "#2",
	// "#3" behind it for further seats of the same.
	ID string `json:"id"`
	// Model is the configured model name, which a Completer understands.
	Model string `json:"model"`
	// Maker is who makes the model, as the roster says; "": its name tells, as the function Maker reads it.
	Maker string `json:"maker,omitempty"`
	// Profile holds what the roster says of this seat's model; nil: nothing.
	Profile *Profile `json:"profile,omitempty"`
}

// Profile holds the options of a model that stands in a roster. Each has the zero value where
// the roster does not give it.
type Profile struct {
	// System stands before the conversation in stage 1 only: a persona answers, it does not judge.
	System string `json:"system,omitempty"`
	// ReasoningEffort is the provider's word for how much the model thinks, such as high.
	ReasoningEffort string `json:"reasoning_effort,omitempty"`
	// MaxOutputTokens replaces the limit of all seats; 0 keeps that one.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`
	// ContextTokens is what prompt and reply may have together, in tokens; 0: unknown.
	ContextTokens int64 `json:"context_tokens,omitempty"`
	// Body holds members of the request that councild does not know, as JSON. None of them is a
	// member that councild sets.
	Body map[string]json.RawMessage `json:"body,omitempty"`
}

// Sampling returns the sampling options of the seat's calls: those of all seats, with the limit of
// output tokens that its profile sets.
func (m Member) Sampling(all Sampling) Sampling {
	if m.Profile != nil && m.Profile.MaxOutputTokens > 0 {
		all.MaxOutputTokens = &m.Profile.MaxOutputTokens
	}
	return all
}

// ModelOf returns the model of a member id: what stands before "#" and a number at its
// end, which name a further seat.
func ModelOf(member string) string {
	model := strings.TrimRight(member, "0123456789")
	if before, further := strings.CutSuffix(model, "#"); further && model != member {
		return before
	}
	return member
}

// SplitModel takes a configured model name apart: "name:model" goes to the provider
// of that name, which knows it as model. Anything else goes to the default provider,
// whose name is empty, as it stands: a colon behind a name that is not among the
// providers belongs to the model's own id, as in llama3:8b.
func SplitModel(name string, providers []string) (provider, model string) {
	provider, model, found := strings.Cut(name, ":")
	if found && provider != "" && slices.Contains(providers, provider) {
		return provider, model
	}
	return "", name
}

// Maker returns who makes a member's model, as far as its name tells: the part of
// the model's own id before the first "/", or all of it. The "~" of an alias, as in ~openai/gpt-latest, is no part of it.
func Maker(member string, providers []string) string {
	_, id := SplitModel(ModelOf(member), providers)
	maker, _, _ := strings.Cut(id, "/")
	return strings.TrimPrefix(maker, "~")
}

// OtherModel stands for a model without a name under which it is published.
const OtherModel = "other"

// IsPublicName reports whether a text can be the name under which a model is published: 1 to 64 of a to z, 0 to 9
// and . _ / : -, the first a letter or a digit.
func IsPublicName(name string) bool {
	isPlain := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	if len(name) == 0 || len(name) > 64 || !isPlain(name[0]) {
		return false
	}
	for i := range len(name) {
		if !isPlain(name[i]) && strings.IndexByte("._/:-", name[i]) < 0 {
			return false
		}
	}
	return true
}
