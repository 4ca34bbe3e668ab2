package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
)

// Named returns every model that the settings name, each once.
func (c Config) Named() []string {
	var named []string
	judge := c.JudgeModel
	if c.Roster != "" { // JudgeModel is then an id of the roster. Models or AllowedModels has that model already.
		judge = ""
	}
	for _, model := range slices.Concat(
		c.Models, []string{c.Chairman}, c.AllowedModels, []string{judge, c.EmbeddingModel},
	) {
		if model != "" && !slices.Contains(named, model) {
			named = append(named, model)
		}
	}
	return named
}

// KeepsRecords reports whether sessions leave bias records.
func (c Config) KeepsRecords() bool { return c.BiasPersistence && c.BiasConsent > 0 }

// used is a provider that answers for at least one named model.
type used struct {
	Provider
	urlVariable, keyVariable string
	model                    string // the first named model of the provider
}

// used is the list of the providers of the named models, without the simulated provider.
func (c Config) used() []used {
	first := map[string]string{} // the first named model, by provider
	for _, model := range slices.Backward(c.Named()) {
		provider, _ := council.SplitModel(model, c.ProviderNames())
		first[provider] = model
	}
	all := make([]used, 0, 1+len(c.Providers))
	all = append(all, used{
		Provider{BaseURL: c.BaseURL, APIKey: c.APIKey}, "LLM_COUNCIL_BASE_URL", "LLM_COUNCIL_API_KEY", first[""],
	})
	for _, p := range c.Providers {
		u := used{p, "LLM_COUNCIL_PROVIDERS", p.KeyVariable(), first[p.Name]}
		if p.InRoster {
			u.urlVariable = "LLM_COUNCIL_ROSTER"
			u.keyVariable = "LLM_COUNCIL_ROSTER, key_file or key_variable of " + p.Name
		}
		all = append(all, u)
	}
	return slices.DeleteFunc(all, func(u used) bool { return u.model == "" })
}

// AsksForKey reports whether a provider is known to refuse requests without a key.
func (p Provider) AsksForKey() bool {
	hosts := []string{"openrouter.ai", "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com"}
	return slices.Contains(hosts, p.url().Hostname())
}

// BaseURLOf returns the base URL of the provider with a name. If there is no such provider, it returns the base URL of
// the default provider.
func (c Config) BaseURLOf(name string) string {
	for _, p := range c.Providers {
		if p.Name == name {
			return p.BaseURL
		}
	}
	return c.BaseURL
}

// ListsPrices reports whether the provider with a name is known to publish the prices of its models.
func (c Config) ListsPrices(name string) bool {
	return name != SimProvider && Provider{BaseURL: c.BaseURLOf(name)}.url().Hostname() == "openrouter.ai"
}

// url returns the parsed base URL. It returns an empty URL if it cannot be parsed.
func (p Provider) url() *url.URL {
	u, _ := url.Parse(p.BaseURL)
	return cmp.Or(u, &url.URL{})
}

// RequireCouncil returns an error if the settings name no models, or if a provider of a named model requires a key and
// has none. Such settings cannot run a council. The error has the same form as the error of Load. Commands that call no
// model do not call RequireCouncil.
func (c Config) RequireCouncil() error {
	p := &problems{}
	// llm-council reads its key from this variable. councild does not, because other programs set it for themselves.
	formerKey := os.Getenv("OPENROUTER_API_KEY") != ""
	if len(c.Models) == 0 {
		key := "LLM_COUNCIL_API_KEY"
		if formerKey && c.APIKey == "" {
			key += "=$OPENROUTER_API_KEY"
		}
		p.add("LLM_COUNCIL_MODELS", "is not set: list two or more models, separated by commas, and set %s, or try \"councild demo\", which needs neither", key)
	}
	for _, u := range c.used() {
		if u.APIKey != "" || !u.AsksForKey() {
			continue
		}
		remedy := "set it"
		if u.Name == "" {
			remedy += ", change LLM_COUNCIL_BASE_URL, or try \"councild demo\""
		}
		if formerKey && u.url().Hostname() == "openrouter.ai" {
			remedy = "set it to the value of OPENROUTER_API_KEY, which councild does not read"
		}
		p.add(u.keyVariable, "is not set, and %q goes to %s, which asks for a key: %s", u.model, u.BaseURL, remedy)
	}
	return p.err()
}

// Warnings returns messages about settings that are probably mistakes, but may be intended. Each message has the form
// of an error of Load.
func (c Config) Warnings() []string {
	var warnings []string
	warn := func(variable, format string, args ...any) {
		warnings = append(warnings, variable+": "+fmt.Sprintf(format, args...))
	}
	quoted := c.quoted
	for _, s := range Tracing() {
		if isQuoted(os.Getenv(s.Name)) {
			quoted = append(slices.Clip(quoted), s.Name)
		}
	}
	for _, variable := range quoted {
		warn(variable, "has quotes, which are part of the value: remove them; docker run --env-file does not remove them, as a shell does")
	}
	for _, u := range c.used() {
		if strings.HasSuffix(u.url().Path, "/chat/completions") {
			warn(u.urlVariable,
				"%s ends in /chat/completions, which councild adds to every base URL: leave that end out", u.BaseURL)
		}
		switch {
		case u.url().Path == "":
			warn(u.urlVariable,
				"%s has no path, and most providers answer under /v1 only: write %[1]s/v1 if calls fail with HTTP 404", u.BaseURL)
		case u.AsksForKey() && !strings.Contains(u.url().Path, "/v1"):
			warn(u.urlVariable,
				"%s has no version such as /v1 in its path: councild check finds the right address", u.BaseURL)
		}
		if u.APIKey == "" && len(u.Headers) == 0 &&
			(u.url().Scheme == "https" || !isNear(u.url().Hostname())) && !u.AsksForKey() {
			warn(u.keyVariable, "is not set, and %q goes to %s: set it if calls fail with HTTP 401", u.model, u.BaseURL)
		}
	}
	if c.Roster == "" && len(c.Models) == 2 && c.Mode.Reviews() {
		warn("LLM_COUNCIL_MODELS", "has two members: each reviews only the other's answer, so the reviews cost money and rank nothing: "+
			"add a third member, or set LLM_COUNCIL_MODE=synthesis")
	}
	for _, model := range c.Named() {
		if name, ok := c.UnknownProvider(model); ok {
			warn("LLM_COUNCIL_PROVIDERS", "no provider has the name %q, so the default provider gets the whole name %q: "+
				"add %[1]s=URL if it is a provider", name, model)
		}
	}
	return warnings
}

// isNear reports whether a host is this machine or belongs to a private network. Providers on such hosts seldom require
// a key. A name without a dot counts as a host of a private network.
func isNear(host string) bool {
	ip := net.ParseIP(host)
	if ip == nil {
		return !strings.Contains(host, ".")
	}
	return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
}

// UnknownProvider returns the text before the colon in the name of a model if that text looks like the name of a
// provider, but no provider has that name. The ids of many models also have a colon, such as llama3:8b and x/y:free.
// The text looks like the name of a provider if it is similar to a configured name, if it is a well-known name, or if
// the text after the colon has a slash or another colon.
func (c Config) UnknownProvider(model string) (name string, ok bool) {
	name, id, found := strings.Cut(model, ":")
	names := c.ProviderNames()
	if !found || slices.Contains(names, name) || !ProviderName.MatchString(name) {
		return "", false
	}
	isAlike := func(other string) bool { return 2*distance(name, other) < len(other) }
	known := []string{
		"openrouter", "openai", "anthropic", "claude", "google", "gemini", "ollama", "vllm", "azure", "groq", "together",
		"local",
	}
	return name, slices.ContainsFunc(names, isAlike) || slices.Contains(known, name) || strings.ContainsAny(id, ":/")
}

// ProviderName matches the name of a provider.
var ProviderName = regexp.MustCompile(`^[a-z0-9_-]+$`)
