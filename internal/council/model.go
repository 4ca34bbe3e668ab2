package council

import (
	"encoding/json"
	"slices"
	"strings"
)

// Member is one seat of the council.
type Member struct {
	// ID names the seat everywhere. It is the name of the model, or its id in the roster. The ids of further seats of the
	// same model end in "#2", "#3" and so on.
	ID string `json:"id"`
	// Model is the configured model name, which a Completer understands.
	Model string `json:"model"`
	// Maker names the maker of the model, as the roster says. If it is "", the function Maker reads it from the name.
	Maker string `json:"maker,omitempty"`
	// Profile holds the options that the roster gives for this seat's model. It is nil if there are none.
	Profile *Profile `json:"profile,omitempty"`
}

// Profile holds the options of a model in a roster. An option has the zero value if the roster does not give it.
type Profile struct {
	// System is a system prompt, such as a persona. Only calls of stage 1 send it, because a persona answers but does not
	// review.
	System string `json:"system,omitempty"`
	// ReasoningEffort is the provider's word for how much the model thinks, such as high.
	ReasoningEffort string `json:"reasoning_effort,omitempty"`
	// MaxOutputTokens replaces the limit of all seats. 0 keeps that limit.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`
	// ContextTokens is how many tokens prompt and reply may have together. 0 means unknown.
	ContextTokens int64 `json:"context_tokens,omitempty"`
	// Body holds further fields of the request body, as JSON. It has no field that councild sets itself.
	Body map[string]json.RawMessage `json:"body,omitempty"`
}

// Sampling returns the sampling options of the seat's calls. The argument all has the options of all seats. A limit of
// output tokens in the seat's profile replaces the limit in all.
func (m Member) Sampling(all Sampling) Sampling {
	if m.Profile != nil && m.Profile.MaxOutputTokens > 0 {
		all.MaxOutputTokens = &m.Profile.MaxOutputTokens
	}
	return all
}

// ModelOf removes "#" and a number from the end of a member id. Such an ending marks a further seat of the same model.
func ModelOf(member string) string {
	model := strings.TrimRight(member, "0123456789")
	if before, further := strings.CutSuffix(model, "#"); further && model != member {
		return before
	}
	return member
}

// SplitModel splits a configured model name. "name:model" names a model of the provider with that name. Any other text
// is a model of the default provider, whose name is empty. If there is no provider with the name before the colon, the
// colon belongs to the id of the model, as in llama3:8b.
func SplitModel(name string, providers []string) (provider, model string) {
	provider, model, found := strings.Cut(name, ":")
	if found && provider != "" && slices.Contains(providers, provider) {
		return provider, model
	}
	return "", name
}

// Maker returns the maker of a member's model. The maker is the part of the model's id before the first "/", or the
// whole id if there is no "/". A "~" at the beginning, as in the alias ~openai/gpt-latest, is left out.
func Maker(member string, providers []string) string {
	_, id := SplitModel(ModelOf(member), providers)
	maker, _, _ := strings.Cut(id, "/")
	return strings.TrimPrefix(maker, "~")
}

// OtherModel stands in published results for a model that has no public name.
const OtherModel = "other"

// IsPublicName reports whether a text can be the public name of a model. Such a name has 1 to 64 characters from a to
// z, 0 to 9 and . _ / : -, and begins with a letter or a digit.
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
