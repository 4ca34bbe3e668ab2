package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
)

const (
	// checkTimeout is how long a provider may take to list its models, all requests included.
	checkTimeout = 10 * time.Second
	// maxListBytes bounds such a list.
	maxListBytes = 1 << 20
)

// Verdict says whether what was checked is right.
type Verdict string

// The verdicts.
const (
	VerdictOK      Verdict = "ok"
	VerdictWrong   Verdict = "wrong"
	VerdictUnknown Verdict = "unknown" // it cannot be told without a call that costs money
)

// Checked is what a check of the providers and models of the settings found.
type Checked struct {
	OK        bool              `json:"ok"` // nothing is wrong
	Providers []CheckedProvider `json:"providers"`
	Models    []CheckedModel    `json:"models"`
}

// Finding is the verdict on one thing. Problem and Remedy are "" where there is none; they may
// hold words of a provider, and never a key.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	Problem string  `json:"problem"`
	Remedy  string  `json:"remedy"` // what to set or to type
}

// CheckedProvider is a provider of the settings.
type CheckedProvider struct {
	Name    string `json:"name"` // "default" for the one without a name
	BaseURL string `json:"base_url"`
	Key     string `json:"key"`    // "none", "accepted", "refused", or "unproved" where the list is open to all
	Listed  *int   `json:"listed"` // models in its list; null where there is none
	Finding

	models []string
}

// CheckedModel is a model that the settings name.
type CheckedModel struct {
	Model    string   `json:"model"`
	Roles    []string `json:"roles"`    // member, chairman, fallback, reviewer or allowed
	Provider string   `json:"provider"` // as in CheckedProvider.Name
	Finding
}

// Check asks every provider that the settings name for its list of models, all at once, and
// looks up the models of the settings there. It calls no model. It takes some 10 seconds at most.
func Check(ctx context.Context, cfg config.Config) Checked {
	sim := CheckedProvider{Name: config.SimProvider, BaseURL: "built in", Key: "none", Finding: Finding{Verdict: VerdictOK}}
	for _, m := range builtIn() {
		sim.models = append(sim.models, m.Name)
	}
	sim.Listed = new(len(sim.models))
	for _, name := range cfg.Named() {
		if m, ok, err := findSimulated(builtIn(), name); isSimulated(name) && ok && err == nil {
			sim.models = append(sim.models, m.Name) // It may have settings.
		}
	}
	c := Checked{Providers: make([]CheckedProvider, 1+len(cfg.Providers))}
	var asking sync.WaitGroup
	asking.Go(func() {
		p := config.Provider{BaseURL: cfg.BaseURL, APIKey: cfg.APIKey}
		c.Providers[0] = checkProvider(ctx, p, "LLM_COUNCIL_API_KEY", func(u string) string { return "set LLM_COUNCIL_BASE_URL=" + u })
	})
	for i, p := range cfg.Providers {
		asking.Go(func() {
			if p.InRoster {
				c.Providers[1+i] = checkProvider(ctx, p, "key_file of "+p.Name+" in the roster", func(u string) string {
					return "write base_url: " + u + " for " + p.Name + " in the roster"
				})
				return
			}
			c.Providers[1+i] = checkProvider(ctx, p, p.KeyVariable(), func(u string) string {
				return "write " + p.Name + "=" + u + " in LLM_COUNCIL_PROVIDERS"
			})
		})
	}
	asking.Wait()
	if usesSim(cfg) {
		c.Providers = append(c.Providers, sim)
	}
	for _, model := range cfg.Named() {
		c.Models = append(c.Models, checkModel(cfg, model, c.Providers))
	}
	if !slices.ContainsFunc(c.Models, func(m CheckedModel) bool { return m.Provider == c.Providers[0].Name }) {
		c.Providers = c.Providers[1:] // Nothing goes to the default provider.
	}
	c.OK = !slices.ContainsFunc(c.Providers, func(p CheckedProvider) bool { return p.Verdict == VerdictWrong }) &&
		!slices.ContainsFunc(c.Models, func(m CheckedModel) bool { return m.Verdict == VerdictWrong })
	return c
}

// listModels returns the models that a provider lists.
func listModels(ctx context.Context, p config.Provider) ([]string, *council.Failure) {
	p.Name = ""
	client, err := llm.New(llm.Options{
		Providers: []llm.Provider{reached(p)}, AttemptTimeout: checkTimeout, DialTimeout: checkTimeout,
		MaxCallsPerProvider: 1, MaxReplyBytes: maxListBytes,
	})
	if err != nil {
		return nil, council.AsFailure(err)
	}
	defer client.Close()
	models, err := client.Models(ctx, "")
	return models, council.AsFailure(err)
}

// checkProvider asks a provider for its models. Function at words the remedy that its base URL
// is another one.
func checkProvider(ctx context.Context, p config.Provider, keyVariable string, at func(baseURL string) string) CheckedProvider {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errors.New("there was no answer within 10 s"))
	defer cancel()
	checked := CheckedProvider{Name: cmp.Or(p.Name, "default"), BaseURL: p.BaseURL, Key: "unproved"}
	if p.APIKey == "" {
		checked.Key = "none"
	}
	wrong := func(problem, remedy string) CheckedProvider {
		checked.Finding = Finding{VerdictWrong, problem, remedy}
		return checked
	}
	models, failure := listModels(ctx, p)
	switch {
	case failure == nil:
		checked.models, checked.Listed, checked.Verdict = models, new(len(models)), VerdictOK
		if p.APIKey == "" && p.AsksForKey() {
			return wrong("it asks for a key, and "+keyVariable+" is not set", "set "+keyVariable+" to a key of this provider")
		}
		if p.APIKey != "" {
			// A list that everybody can read does not show that the key is right.
			open := p
			open.APIKey = ""
			if _, refused := listModels(ctx, open); isUnauthorized(refused) {
				checked.Key = "accepted"
			}
		}
		return checked
	case isUnauthorized(failure) && p.APIKey == "":
		return wrong("it asks for a key, and "+keyVariable+" is not set: "+failure.Message, "set "+keyVariable+" to a key of this provider")
	case failure.Code != council.FailUnauthorized && isUnauthorized(failure):
		return wrong("it refuses to list its models: "+failure.Message, "set "+keyVariable+" to a key that may use this provider from here")
	case isUnauthorized(failure):
		checked.Key = "refused"
		return wrong("it refuses the key: "+failure.Message, "set "+keyVariable+" to a key of this provider")
	case failure.Code != council.FailUnknownModel && failure.Code != council.FailBadResponse && failure.Code != council.FailRejected:
		return wrong(failure.Message, "start the provider if it is yours, or "+at("https://HOST/v1"))
	}
	for _, other := range otherAddresses(p.BaseURL) {
		p.BaseURL = other
		if _, failure := listModels(ctx, p); failure == nil || isUnauthorized(failure) {
			return wrong("it answers at "+other+", not at this address", at(other))
		}
	}
	if failure.Code == council.FailBadResponse {
		return wrong("something answers there that is no OpenAI-compatible provider: "+failure.Message, at("https://HOST/v1"))
	}
	checked.Finding = Finding{Verdict: VerdictUnknown, Problem: "it is reachable, and has no list of models"}
	return checked
}

// isUnauthorized reports whether a provider refused access. HTTP 403 may have other reasons than the key.
func isUnauthorized(f *council.Failure) bool {
	return f != nil && (f.Code == council.FailUnauthorized || f.HTTPStatus != nil && *f.HTTPStatus == http.StatusForbidden)
}

// otherAddresses returns the base URLs that may be meant by one where nothing lists models.
func otherAddresses(base string) []string {
	u, err := url.Parse(base)
	if err != nil {
		return nil
	}
	var others []string
	cut := strings.TrimSuffix(strings.TrimSuffix(base, "/chat/completions"), "/models")
	for strings.HasSuffix(cut, "/v1/v1") {
		cut = strings.TrimSuffix(cut, "/v1")
	}
	if cut != base {
		others = append(others, cut)
	}
	if !strings.Contains(u.Path, "/v1") {
		others = append(others, cut+"/v1")
	}
	return others
}

// checkModel looks a model up at its provider.
func checkModel(cfg config.Config, model string, providers []CheckedProvider) CheckedModel {
	name, id := council.SplitModel(model, cfg.ProviderNames())
	checked := CheckedModel{Model: model, Provider: cmp.Or(name, "default")}
	var lists []string // the settings that name the model
	chairman := cfg.Chairman
	if chairman == "" && cfg.Roster == "" && len(cfg.Models) > 0 {
		chairman = cfg.Models[0]
	}
	for _, list := range []struct {
		role, variable string
		models         []string
	}{
		{"member", "LLM_COUNCIL_MODELS", cfg.Models},
		{"chairman", "LLM_COUNCIL_CHAIRMAN", []string{chairman}},
		{"fallback", "LLM_COUNCIL_CHAIRMAN_FALLBACKS", cfg.ChairmanFallbacks},
		{"reviewer", "LLM_COUNCIL_REVIEWERS", cfg.Reviewers},
		{"allowed", "LLM_COUNCIL_ALLOWED_MODELS", cfg.AllowedModels},
		{"embedding", "LLM_COUNCIL_EMBEDDING_MODEL", []string{cfg.EmbeddingModel}},
	} {
		if slices.Contains(list.models, model) {
			checked.Roles = append(checked.Roles, list.role)
			if list.role != "chairman" || cfg.Chairman != "" {
				lists = append(lists, list.variable)
			}
		}
	}
	where, prefix := strings.Join(lists, " and "), ""
	switch {
	case cfg.Roster != "" && model != cfg.EmbeddingModel: // there, the provider has a field of its own
		where, prefix = "the roster", "model: "
	case name != "":
		prefix = name + ":"
	}
	p := providers[slices.IndexFunc(providers, func(p CheckedProvider) bool { return p.Name == checked.Provider })]
	_, simulated, err := findSimulated(builtIn(), model)
	switch {
	case isSimulated(model) && err != nil:
		checked.Finding = Finding{VerdictWrong, "its settings are wrong", err.Error()}
	case p.models == nil && p.Verdict == VerdictWrong:
		checked.Finding = Finding{Verdict: VerdictUnknown, Problem: "its provider has not listed its models"}
	case p.models == nil:
		checked.Finding = Finding{Verdict: VerdictUnknown, Problem: "its provider has no list of models"}
	case isListed(id, p.models), isSimulated(model) && simulated:
		checked.Verdict = VerdictOK
	case slices.Equal(checked.Roles, []string{"embedding"}):
		checked.Finding = Finding{Verdict: VerdictUnknown, Problem: "its provider does not list it, as some do not list models that embed"}
	default:
		checked.Finding = Finding{
			VerdictWrong, fmt.Sprintf("it is not among the %d models that its provider lists", len(p.models)),
			"write another model in " + where,
		}
		if prefix, ok := cfg.UnknownProvider(model); ok {
			checked.Problem = fmt.Sprintf("no provider has the name %q, and the default one does not list %q", prefix, model)
			checked.Remedy = "add " + prefix + "=URL to LLM_COUNCIL_PROVIDERS, or " + checked.Remedy
		}
		if meant := alike(id, p.models); len(meant) > 0 {
			checked.Remedy = "write " + prefix + strings.Join(meant, " or "+prefix) + " in " + where
		}
	}
	return checked
}

// isListed reports whether a list holds a model, under its own name or in the forms that are known:
// Google's models/x, Ollama's x:latest, and OpenRouter's variants such as a/x:nitro, which it does not list.
func isListed(id string, models []string) bool {
	plain, _, isVariant := strings.Cut(id, ":")
	return slices.ContainsFunc(models, func(m string) bool {
		return m == id || m == "models/"+id || m == id+":latest" || isVariant && strings.Contains(plain, "/") && m == plain
	})
}

// alike returns up to three models of a list that may be meant by a name that it does not hold.
func alike(id string, models []string) []string {
	const most, longest = 3, 100 // a longer name is none that somebody means
	var parts []string
	for _, m := range models {
		if len(m) <= longest && id != "" && (strings.HasSuffix(m, "/"+id) || strings.Contains(strings.ToLower(m), strings.ToLower(id))) {
			parts = append(parts, m)
		}
	}
	if near := config.Nearest(id, models, max(2, min(len(id), longest)/4)); near != "" {
		return []string{near}
	}
	return parts[:min(len(parts), most)]
}
