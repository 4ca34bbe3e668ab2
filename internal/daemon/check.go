package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
)

const (
	// checkTimeout bounds the check of one provider, with all its requests.
	checkTimeout = 10 * time.Second
	// maxListBytes bounds the size of a provider's list of models. The list of OpenRouter has more than a megabyte.
	maxListBytes = 8 << 20
	// endsSoon is how early the check and /readyz report that a provider shuts a model down.
	endsSoon = 60 * 24 * time.Hour
)

// CheckVerdict says whether a provider or a model of the settings is right.
type CheckVerdict string

// The verdicts of a check.
const (
	VerdictOK      CheckVerdict = "ok"
	VerdictWrong   CheckVerdict = "wrong"
	VerdictUnknown CheckVerdict = "unknown" // only a call that costs money could show it
)

// Checked is the result of Check.
type Checked struct {
	// OK says that Check found nothing wrong.
	OK bool `json:"ok"`
	// Untested names what Check could not test, such as "the key of default".
	Untested []string `json:"untested"`
	// Warnings say which settings are likely to be wrong.
	Warnings  []string          `json:"warnings"`
	Providers []CheckedProvider `json:"providers"`
	Models    []CheckedModel    `json:"models"`
}

// CheckFinding is the verdict on one provider or model. Problem and Remedy are "" when there is nothing to report.
// They may quote the provider, but they never hold a key.
type CheckFinding struct {
	Verdict CheckVerdict `json:"verdict"`
	Problem string       `json:"problem"`
	Remedy  string       `json:"remedy"` // what to set or to type
}

// CheckedProvider is the finding on one provider of the settings.
type CheckedProvider struct {
	Name    string `json:"name"` // "default" for the default provider
	BaseURL string `json:"base_url"`
	Key     string `json:"key"` // "none", "accepted", "refused" or "untested"
	// Listed is the number of models in the provider's list, or null if the provider has no list.
	Listed *int `json:"listed"`
	CheckFinding

	list *llm.ModelList // nil if the provider has no list
}

// CheckedModel is the finding on one model that the settings name.
type CheckedModel struct {
	Model string `json:"model"`
	// Roles are the roles that the settings give the model: member, chairman, allowed or embedding.
	Roles []string `json:"roles"`
	// Provider is the CheckedProvider.Name of the model's provider.
	Provider string `json:"provider"`
	// Ends is the day on which the provider shuts the model down, such as 2026-12-11. It is null if that day is not
	// known.
	Ends *string `json:"ends"`
	CheckFinding
}

// Check asks all configured providers for their lists of models, all at the same time, and looks up the configured
// models in these lists. It tests a key if the test costs nothing. It never calls a model. It takes about 10 seconds at
// most.
func Check(ctx context.Context, cfg config.Config, s Simulator) Checked {
	sim := CheckedProvider{
		Name: config.SimProvider, BaseURL: "built in", Key: "none", CheckFinding: CheckFinding{Verdict: VerdictOK},
	}
	sim.list = &llm.ModelList{}
	for _, name := range s.Names() {
		sim.list.Models = append(sim.list.Models, llm.ListedModel{ID: name})
	}
	sim.Listed = new(len(sim.list.Models))
	for _, name := range cfg.Named() {
		if _, _, ok, err := (simulated{s}).price(name); ok && err == nil {
			model := strings.TrimPrefix(name, config.SimProvider+":") // the name may contain settings
			sim.list.Models = append(sim.list.Models, llm.ListedModel{ID: model})
		}
	}
	c := Checked{
		Providers: make([]CheckedProvider, 1+len(cfg.Providers)),
		Untested:  []string{}, Warnings: append([]string{}, cfg.Warnings()...),
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		p := config.Provider{BaseURL: cfg.BaseURL, APIKey: cfg.APIKey}
		c.Providers[0] = checkProvider(ctx, p, "LLM_COUNCIL_API_KEY", modelOf(cfg, ""), func(u string) string {
			return "set LLM_COUNCIL_BASE_URL=" + u
		})
	})
	for i, p := range cfg.Providers {
		asking.Go(func() {
			if p.InRoster {
				c.Providers[1+i] = checkProvider(ctx, p, "key_file of "+p.Name+" in the roster", modelOf(cfg, p.Name), func(u string) string {
					return "write base_url: " + u + " for " + p.Name + " in the roster"
				})
				return
			}
			c.Providers[1+i] = checkProvider(ctx, p, p.KeyVariable(), modelOf(cfg, p.Name), func(u string) string {
				return "write " + p.Name + "=" + u + " in LLM_COUNCIL_PROVIDERS"
			})
		})
	}
	asking.Wait()
	if usesSim(cfg) {
		c.Providers = append(c.Providers, sim)
	}
	for _, model := range cfg.Named() {
		c.Models = append(c.Models, checkModel(cfg, s, model, c.Providers))
	}
	if !slices.ContainsFunc(c.Models, func(m CheckedModel) bool { return m.Provider == c.Providers[0].Name }) {
		c.Providers = c.Providers[1:] // No model goes to the default provider.
	}
	for _, p := range c.Providers {
		if p.Key == keyUntested && p.Verdict != VerdictWrong {
			c.Untested = append(c.Untested, "the key of "+p.Name)
		}
	}
	for _, m := range c.Models {
		if m.Verdict == VerdictUnknown {
			c.Untested = append(c.Untested, "the model "+m.Model)
		}
	}
	c.OK = !slices.ContainsFunc(c.Providers, func(p CheckedProvider) bool { return p.Verdict == VerdictWrong }) &&
		!slices.ContainsFunc(c.Models, func(m CheckedModel) bool { return m.Verdict == VerdictWrong })
	return c
}

// The values of CheckedProvider.Key.
const (
	keyNone     = "none"
	keyAccepted = "accepted"
	keyRefused  = "refused"
	keyUntested = "untested"
)

// asking makes a client for one provider. It calls the argument ask with this client and the name of the provider, and
// returns the result. It then closes the client.
func asking[T any](p config.Provider, ask func(*llm.Client, string) (T, error)) (result T, err error) {
	client, err := llm.New(llm.Options{
		Providers: []llm.Provider{reached(p)}, AttemptTimeout: checkTimeout, DialTimeout: checkTimeout,
		MaxCallsPerProvider: 1, MaxReplyBytes: maxListBytes,
	})
	if err != nil {
		return result, err
	}
	defer client.Close()
	return ask(client, p.Name)
}

// listModels asks a provider for its list of models.
func listModels(ctx context.Context, p config.Provider) (llm.ModelList, *council.Failure) {
	list, err := asking(p, func(c *llm.Client, name string) (llm.ModelList, error) { return c.Models(ctx, name) })
	return list, council.AsFailure(err)
}

// withoutKey returns a provider without its key and its secret headers, and whether the provider had a key or such a
// header.
func withoutKey(p config.Provider) (config.Provider, bool) {
	isSecret := func(name string, value config.Secret) bool { return config.LooksSecret(name, value.Reveal()) }
	keyed := p.APIKey != ""
	open := p
	open.APIKey = ""
	open.Headers = map[string]config.Secret{}
	for name, value := range p.Headers {
		if isSecret(name, value) {
			keyed = true
		} else {
			open.Headers[name] = value
		}
	}
	return open, keyed
}

// checkKey tests the key of a provider. If list is not nil, the provider has returned that list to a request with the
// key. This proves that the key is right only if the provider refuses the same request without a key.
func checkKey(
	ctx context.Context, p config.Provider, list *llm.ModelList,
) (state string, key llm.Key, refusal *council.Failure) {
	open, keyed := withoutKey(p)
	if !keyed {
		return keyNone, llm.Key{}, nil
	}
	if list != nil {
		if _, refused := listModels(ctx, open); isUnauthorized(refused) {
			return keyAccepted, llm.Key{}, nil
		}
	}
	key, err := asking(p, func(c *llm.Client, name string) (llm.Key, error) { return c.TestKey(ctx, name) })
	switch {
	case err == nil:
		return keyAccepted, key, nil
	case errors.Is(err, llm.ErrNoKeyTest):
		return keyUntested, llm.Key{}, nil
	default:
		return keyRefused, llm.Key{}, council.AsFailure(err)
	}
}

// checkProvider asks a provider for its models and tests its key. keyVariable names the setting of the key, and model
// is a model of this provider. at(baseURL) returns the remedy that tells the user to set that base URL.
func checkProvider(
	ctx context.Context, p config.Provider, keyVariable, model string, at func(baseURL string) string,
) CheckedProvider {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errors.New("there was no answer within 10 s"))
	defer cancel()
	checked := CheckedProvider{Name: cmp.Or(p.Name, "default"), BaseURL: p.BaseURL, Key: keyNone}
	_, keyed := withoutKey(p)
	if keyed {
		checked.Key = keyUntested
	}
	setKey := "set " + keyVariable + " to a key of this provider"
	wrong := func(problem, remedy string) CheckedProvider {
		checked.CheckFinding = CheckFinding{VerdictWrong, problem, remedy}
		return checked
	}
	// withKey tests the key and returns the result of the check. If the key cannot be used, that result says so.
	withKey := func() CheckedProvider {
		state, key, refusal := checkKey(ctx, p, checked.list)
		checked.Key = state
		switch {
		case state == keyRefused:
			return wrong("it refuses the key: "+refusal.Message, setKey)
		case key.Manages:
			return wrong("the key manages other keys, and may call no model", setKey+" that may call models")
		case key.Left != nil && *key.Left <= 0:
			return wrong("the key has spent its limit", "raise the limit of the key at the provider, or "+setKey+" with another limit")
		}
		return checked
	}
	list, failure := listModels(ctx, p)
	switch {
	case failure == nil:
		checked.list = &list
		checked.Listed = new(len(list.Models))
		checked.Verdict = VerdictOK
		if !keyed && p.AsksForKey() {
			return wrong("it asks for a key, and "+keyVariable+" is not set", setKey)
		}
		if len(list.Models) == 0 {
			return wrong("it lists no models", "load models there: with Ollama, ollama pull "+model)
		}
		return withKey()
	case isUnauthorized(failure) && !keyed:
		return wrong("it asks for a key, and "+keyVariable+" is not set: "+failure.Message, setKey)
	case failure.Code != council.FailUnauthorized && isUnauthorized(failure):
		return wrong("it refuses to list its models: "+failure.Message, "set "+keyVariable+" to a key that may use this provider from here")
	case isUnauthorized(failure):
		checked.Key = keyRefused
		return wrong("it refuses the key: "+failure.Message, setKey)
	case failure.HTTPStatus != nil && *failure.HTTPStatus == http.StatusProxyAuthRequired &&
		failure.Code == council.FailConnection:
		problem, remedy, _ := strings.Cut(failure.Message, ": ")
		return wrong(problem, remedy+", or name the provider's host in NO_PROXY if it is reached without a proxy")
	case failure.Code != council.FailUnknownModel && failure.Code != council.FailBadResponse &&
		failure.Code != council.FailRejected:
		return wrong(failure.Message, "start the provider if it is yours, or "+at("https://HOST/v1"))
	}
	for _, other := range otherAddresses(p.BaseURL) {
		elsewhere := p
		elsewhere.BaseURL = other
		if _, failure := listModels(ctx, elsewhere); failure == nil || isUnauthorized(failure) {
			return wrong("it answers at "+other+", not at this address", at(other))
		}
	}
	if failure.Code == council.FailBadResponse {
		return wrong("something answers there that is no OpenAI-compatible provider: "+failure.Message, at("https://HOST/v1"))
	}
	checked.CheckFinding = CheckFinding{Verdict: VerdictUnknown, Problem: "it is reachable, and has no list of models"}
	return withKey()
}

// isUnauthorized reports whether a provider refused access. HTTP 403 counts as such a refusal, although a provider can
// send it for reasons other than the key.
func isUnauthorized(f *council.Failure) bool {
	return f != nil && (f.Code == council.FailUnauthorized || f.HTTPStatus != nil && *f.HTTPStatus == http.StatusForbidden)
}

// modelOf returns the provider's own name for the first configured model of this provider. It returns "MODEL" if there
// is no such model.
func modelOf(cfg config.Config, provider string) string {
	for _, model := range cfg.Named() {
		if name, id := council.SplitModel(model, cfg.ProviderNames()); name == provider {
			return id
		}
	}
	return "MODEL"
}

// otherAddresses returns base URLs that the user may have meant. The argument base is a base URL without a list of
// models.
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

// checkModel looks a model up in the list of its provider.
func checkModel(cfg config.Config, s Simulator, model string, providers []CheckedProvider) CheckedModel {
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
	where := strings.Join(lists, " and ")
	prefix := ""
	switch {
	case cfg.Roster != "" && model != cfg.EmbeddingModel: // in a roster, the provider has a field of its own
		where = "the roster"
		prefix = "model: "
	case name != "":
		prefix = name + ":"
	}
	p := providers[slices.IndexFunc(providers, func(p CheckedProvider) bool { return p.Name == checked.Provider })]
	_, _, known, err := simulated{s}.price(model)
	switch {
	case err != nil:
		checked.CheckFinding = CheckFinding{VerdictWrong, "its settings are wrong", err.Error()}
		return checked
	case known:
		checked.Verdict = VerdictOK
		return checked
	case p.list == nil && p.Verdict == VerdictWrong:
		checked.CheckFinding = CheckFinding{Verdict: VerdictUnknown, Problem: "its provider has not listed its models"}
		return checked
	case p.list == nil:
		checked.CheckFinding = CheckFinding{Verdict: VerdictUnknown, Problem: "its provider has no list of models"}
		return checked
	case len(p.list.Models) == 0:
		checked.CheckFinding = CheckFinding{Verdict: VerdictWrong, Problem: "its provider lists no models"}
		return checked
	}
	listed, doubt := lookUp(id, p.BaseURL, *p.list)
	switch {
	case listed != nil && listed.Ends.IsZero():
		checked.Verdict = VerdictOK
	case listed != nil:
		checked.Verdict = VerdictOK
		checked.Ends = new(listed.Ends.Format(time.DateOnly))
		if problem := ending(*listed, time.Now()); problem != "" {
			checked.Problem = "its provider " + problem
			checked.Remedy = "write another model in " + where
		}
		if isOver(*listed, time.Now()) {
			checked.Verdict = VerdictWrong
		}
	case doubt != "":
		checked.CheckFinding = CheckFinding{Verdict: VerdictUnknown, Problem: doubt}
	case slices.Equal(checked.Roles, []string{"embedding"}):
		checked.CheckFinding = CheckFinding{
			Verdict: VerdictUnknown, Problem: "its provider does not list it, as some do not list models that embed",
		}
	default:
		ids := make([]string, len(p.list.Models))
		for i, m := range p.list.Models {
			ids[i] = m.ID
		}
		checked.CheckFinding = CheckFinding{
			VerdictWrong, fmt.Sprintf("it is not among the %d models that its provider lists", len(ids)),
			"write another model in " + where,
		}
		if prefix, ok := cfg.UnknownProvider(model); ok {
			checked.Problem = fmt.Sprintf("no provider has the name %q, and the default one does not list %q", prefix, model)
			checked.Remedy = "add " + prefix + "=URL to LLM_COUNCIL_PROVIDERS, or " + checked.Remedy
		}
		if meant := alike(id, ids); len(meant) > 0 {
			checked.Remedy = "write " + prefix + strings.Join(meant, " or "+prefix) + " in " + where
		}
	}
	return checked
}

// ending returns a text that says when a provider shuts a model down, or when it has shut the model down. It returns ""
// if that day is far off or not known.
func ending(m llm.ListedModel, now time.Time) string {
	switch {
	case m.Ends.IsZero() || m.Ends.Sub(now) > endsSoon:
		return ""
	case isOver(m, now):
		return "shut it down on " + m.Ends.Format(time.DateOnly)
	default:
		return "shuts it down on " + m.Ends.Format(time.DateOnly)
	}
}

// isOver reports whether the last day of a model has passed.
func isOver(m llm.ListedModel, now time.Time) bool {
	return !m.Ends.IsZero() && now.Sub(m.Ends) >= 24*time.Hour
}

// version matches a name with a version, such as gpt-4-0613 and x-2026-08-07. Its group is the name without the
// version.
var version = regexp.MustCompile(`^(?:models/)?(.+)-(?:[0-9]{3,8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|latest)$`)

// lookUp finds a model in a list. It looks for the configured name and for other forms of that name: models/x for
// Google's x, x:latest for Ollama's x, and a/x for a/x:nitro, because OpenRouter does not list such variants. If lookUp
// does not find the model, the result doubt says why the provider may still know the model. The result doubt is "" if
// there is no such reason.
func lookUp(id, baseURL string, list llm.ModelList) (m *llm.ListedModel, doubt string) {
	forms := []string{id, "models/" + id, id + ":latest"}
	if plain, _, isVariant := strings.Cut(id, ":"); isVariant && strings.Contains(plain, "/") {
		forms = append(forms, plain)
	}
	for _, form := range forms {
		if m, ok := list.Find(form); ok {
			return &m, ""
		}
	}
	for _, m := range list.Models {
		if all, ok := strings.CutSuffix(m.ID, "*"); ok && strings.HasPrefix(id, all) { // a wildcard of a gateway
			return &llm.ListedModel{ID: id}, ""
		}
		if named := version.FindStringSubmatch(m.ID); named != nil && named[1] == id {
			return nil, "its provider lists " + m.ID + ", and may know this name as the newest version"
		}
	}
	begins := func(m llm.ListedModel) bool { return id != "" && strings.HasPrefix(m.ID, id[:1]) }
	u, _ := url.Parse(baseURL)
	switch {
	case list.Partial:
		return nil, "its provider listed a part of its models only"
	case u != nil && strings.HasSuffix(u.Hostname(), ".azure.com"):
		return nil, "its provider lists models, and this may be the name of a deployment"
	case strings.HasPrefix(id, "~") || strings.HasPrefix(id, "@"): // OpenRouter's aliases and presets
		if !slices.ContainsFunc(list.Models, begins) {
			return nil, "its provider does not list names of this kind"
		}
	}
	return nil, ""
}

// alike returns up to three listed models that the user may have meant. The argument id is a name that the list does
// not have.
func alike(id string, models []string) []string {
	const most, longest = 3, 100 // longest is in bytes: no user means a longer name
	var parts []string
	for _, m := range models {
		if len(m) <= longest && id != "" &&
			(strings.HasSuffix(m, "/"+id) || strings.Contains(strings.ToLower(m), strings.ToLower(id))) {
			parts = append(parts, m)
		}
	}
	if near := config.Nearest(id, models, max(2, min(len(id), longest)/4)); near != "" {
		return []string{near}
	}
	return parts[:min(len(parts), most)]
}
