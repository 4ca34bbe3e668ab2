package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/spend"
)

// reached returns a provider of the settings in the form that llm.Client takes, with its secrets in plain text.
func reached(p config.Provider) llm.Provider {
	texts := func(secrets map[string]config.Secret) map[string]string {
		if len(secrets) == 0 {
			return nil
		}
		texts := map[string]string{}
		for name, secret := range secrets {
			texts[name] = secret.Reveal()
		}
		return texts
	}
	return llm.Provider{
		Name: p.Name, BaseURL: p.BaseURL, APIKey: p.APIKey.Reveal(), Headers: texts(p.Headers), Query: texts(p.Query),
		MaxCalls: p.MaxCalls, IdleTimeout: p.IdleTimeout,
	}
}

// tokens returns the tokens in the roster.
func (h *setup) tokens() []config.Token {
	if h.roster == nil {
		return nil
	}
	return h.roster.Tokens
}

// openRoster makes the councils of the roster in a file, or of the roster in the settings if file is "". Its error
// names every problem of the roster, each on a line of its own.
func openRoster(cfg config.Config, file string, sim Simulator) (config.Config, *setup, error) {
	if file != "" {
		cfg.Roster = file
	}
	if cfg.Roster == "" {
		return cfg, nil, errors.New("no roster is named: name a FILE, or set LLM_COUNCIL_ROSTER")
	}
	cfg, r, err := cfg.ReadRoster()
	if err == nil {
		err = simulated{sim}.check(cfg)
	}
	if err != nil {
		return cfg, nil, err
	}
	h, err := newSetup(cfg, r, pipelineOptions(EngineOptions{Config: cfg}))
	return cfg, h, err
}

// setup holds the councils that can be asked, and the settings from which they were made. It never changes. Reload
// builds a new one.
type setup struct {
	cfg config.Config
	// roster is nil if the settings define the only council.
	roster *config.Roster
	// first is the name of the default council.
	first     string
	providers []llm.Provider
	client    *llm.Client
	prices    *prices
	pipelines map[string]*pipeline.Pipeline
	// dayLimits has the daily limits of single tokens, by the name of the token.
	dayLimits map[string]*spend.USD
}

// newSetup makes the councils of a roster, or the council of base if r is nil. base has the options that all councils
// share. The roster's options for a council take precedence. Of two limits on cost, tokens or time, the lower one
// applies.
func newSetup(cfg config.Config, r *config.Roster, base pipeline.Options) (*setup, error) {
	base.Same = sameModel(cfg)
	h := &setup{
		cfg: cfg, roster: r, first: council.DefaultCouncil,
		pipelines: map[string]*pipeline.Pipeline{}, dayLimits: map[string]*spend.USD{},
	}
	if r == nil {
		p, err := pipeline.New(base)
		h.pipelines[h.first] = p
		return h, err
	}
	h.first = r.Default
	for _, t := range r.Tokens {
		if t.MaxCostUSDPerDay != nil {
			h.dayLimits[t.Name] = new(spend.FromFloat(*t.MaxCostUSDPerDay))
		}
	}
	base.Seats = seats(cfg, r)
	base.AllowedModels = nil
	base.Validations = pipeline.NewValidations()
	base.Hash = func(members, reviewers []council.Member) string {
		return config.CouncilHash(base.Order, base.Sampling, base.ReviewSampling, members, reviewers)
	}
	var errs []error
	for _, c := range r.Councils {
		o := base
		o.Council = c.Name
		o.Models = c.Members
		o.Mode = c.Mode
		o.First = c.First
		o.Form = c.AnswerForm
		o.Reviewers = c.Reviewers
		o.Chairman = c.Chairman
		o.ChairmanFallbacks = c.Fallbacks
		if c.Quorum > 0 {
			o.Quorum = c.Quorum
		}
		o.MaxCostUSD = least(o.MaxCostUSD, c.MaxCostUSD)
		o.MaxTotalTokens = least(o.MaxTotalTokens, c.MaxTotalTokens)
		o.Timeout = *least(&o.Timeout, c.Timeout)
		o.Tools = cmp.Or(c.Tools, o.Tools)
		o.SideRequests = cmp.Or(c.SideRequests, o.SideRequests)
		if c.DegradedNote != nil {
			o.DegradedNote = *c.DegradedNote
		}
		p, err := pipeline.New(o)
		if err != nil {
			errs = append(errs, fmt.Errorf("LLM_COUNCIL_ROSTER: the council %s: %w", c.Name, err))
		}
		h.pipelines[c.Name] = p
	}
	return h, errors.Join(append(errs, h.checkID())...)
}

// seats returns the members of a roster by their ids. If cost limits are hard and no output limit is configured, models
// with a reasoning effort get a higher output limit than the others. Hard cost limits need an output limit for each
// reply.
func seats(cfg config.Config, r *config.Roster) map[string]council.Member {
	members := r.Members()
	if cfg.MaxOutputTokens != nil || !cfg.HasHardLimits() {
		return members
	}
	for id, m := range members {
		if p := m.Profile; p != nil && p.ReasoningEffort != "" && p.ReasoningEffort != "none" && p.MaxOutputTokens == 0 {
			thinking := *p
			thinking.MaxOutputTokens = thinkingOutputTokens
			m.Profile = &thinking
			members[id] = m
		}
	}
	return members
}

// sameModel returns a function that maps the name of a model to an identity. Names of the same model at the same
// provider have the same identity. Two providers are the same if their addresses, headers and queries are equal.
// Names and keys of providers do not count, because they tell accounts apart, not models.
func sameModel(cfg config.Config) func(name string) string {
	names := cfg.ProviderNames()
	places := map[string]string{}
	for _, p := range append(config.Providers{{BaseURL: cfg.BaseURL}}, cfg.Providers...) {
		at := reached(p)
		places[p.Name] = fmt.Sprint(strings.ToLower(at.BaseURL), at.Headers, at.Query) // Sprint prints maps in sorted order
	}
	return func(name string) string {
		provider, model := council.SplitModel(name, names)
		place, ok := places[provider]
		if !ok { // the simulated provider
			return name
		}
		return place + model
	}
}

// least is the lower of two limits. Nil stands for no limit.
func least[T ~int64 | ~float64](a, b *T) *T {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// prepare makes the plan of a request to one of the councils. Its error is a *council.Error.
func (h *setup) prepare(r council.Request) (council.Plan, error) {
	if h.roster != nil && r.Direct && len(r.Models) == 1 && slices.Contains(h.names(r.Token), r.Models[0]) {
		r.Council = r.Models[0]
		r.Models = nil
		r.Direct = false // like the model council/NAME
	}
	return h.planned(r.Token, r.Council, r.DataClass, func(p *pipeline.Pipeline, known bool) (council.Plan, error) {
		r := r
		if !known && r.Council == "" {
			r.Models = nil
			r.Direct = false // The error must not name the members of the council.
		}
		if !known {
			r.Council = ""
		}
		return p.Prepare(r)
	})
}

// prepareJudge makes the plan of a request to judge answers. Its error is a *council.Error.
func (h *setup) prepareJudge(r council.JudgeRequest) (council.Plan, error) {
	return h.planned(r.Token, r.Council, r.DataClass, func(p *pipeline.Pipeline, known bool) (council.Plan, error) {
		r := r
		if !known {
			r.Council = ""
		}
		return p.PrepareJudge(r)
	})
}

// prepareTask makes the plan of a request to carry out a task. Its error is a *council.Error.
func (h *setup) prepareTask(r council.TaskRequest) (council.Plan, error) {
	return h.planned(r.Token, r.Council, r.DataClass, func(p *pipeline.Pipeline, known bool) (council.Plan, error) {
		r := r
		if !known {
			r.Council = ""
		}
		return p.PrepareTask(r)
	})
}

// planned makes a plan for the council that a request names, or for the default council if the name is "". The function
// prepare makes the plan with the pipeline of the council. If the token may not ask the council, prepare gets the
// pipeline of another council, and known is false. Only its error then counts.
func (h *setup) planned(
	token, name, dataClass string, prepare func(p *pipeline.Pipeline, known bool) (council.Plan, error),
) (council.Plan, error) {
	names := h.names(token)
	if !slices.Contains(names, cmp.Or(name, h.first)) {
		return council.Plan{}, h.unknown(name, names, prepare)
	}
	plan, err := prepare(h.pipelines[cmp.Or(name, h.first)], true)
	if err != nil {
		return plan, err
	}
	if h.roster != nil {
		plan.Roster = h.roster.Hash
	}
	return plan, h.forbid(dataClass, &plan)
}

// forbid sets the data class of a plan. If the argument dataClass is "", the plan keeps its class, or gets the class of
// its council. forbid returns an error if a seat may not see data of that class. It drops no seat, because the caller
// decides what to do instead. If the settings name the model of a side (see council.Side) without a
// roster id, and that model may not see the data, forbid leaves out the side.
func (h *setup) forbid(dataClass string, plan *council.Plan) error {
	if h.roster == nil {
		if dataClass == "" {
			return nil
		}
		return &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: []council.FieldError{{
			Field: "data_class", Message: "there are no data classes here", Fix: "leave it out, or give classes in " +
				"a roster",
		}}}
	}
	classes := h.roster.Classes
	if len(classes) == 0 && dataClass == "" {
		return nil
	}
	plan.DataClass = cmp.Or(dataClass, plan.DataClass, h.council(plan.CouncilName).DataClass)
	if plan.DataClass == "" {
		plan.DataClass = classes[len(classes)-1]
	}
	needed := slices.Index(classes, plan.DataClass)
	if needed < 0 {
		fix := "leave it out, or give classes in the roster"
		if len(classes) > 0 {
			fix = "use " + strings.Join(classes, ", ")
		}
		return &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: []council.FieldError{{
			Field: "data_class", Message: fmt.Sprintf("%.64q is not a data class", plan.DataClass), Fix: fix,
		}}}
	}
	var low []council.FieldError
	var ids []string
	seats := slices.Concat(plan.Seats(council.KindAnswers), plan.Seats(council.KindTask1), plan.Reviewers(), plan.Chairmen())
	for i := range plan.Sides {
		side := &plan.Sides[i]
		cleared := func(m config.Model) bool {
			return m.Member.Model == side.Member.Model && slices.Index(classes, m.Clearance) >= needed
		}
		switch {
		case len(side.Seats) == 0:
		case side.Member.ID != "":
			seats = append(seats, side.Member)
		case !slices.ContainsFunc(h.roster.Models, cleared): // the settings name this model by its name, not by an id
			side.Refused = fmt.Sprintf("the roster does not clear %s for %s data", side.Member.Model, plan.DataClass)
			side.Seats = nil
		}
	}
	for _, seat := range seats {
		id := council.ModelOf(seat.ID)
		m, _ := h.roster.Model(id)
		if slices.Contains(ids, id) || slices.Index(classes, m.Clearance) >= needed {
			continue
		}
		ids = append(ids, id)
		low = append(low, council.FieldError{
			Field: "data_class", Message: fmt.Sprintf("%s may see data up to %s", id, m.Clearance),
			Fix: "ask another council, or give the class that the question has",
		})
	}
	if low == nil {
		return nil
	}
	return &council.Error{
		Code: council.CodeForbidden, Fields: low,
		Detail: fmt.Sprintf("the question is %s, which these seats may not see: %s", plan.DataClass, strings.Join(ids, ", ")),
	}
}

// council returns the council of the roster with this name, or the zero Council if the roster has none.
func (h *setup) council(name string) config.Council {
	i := slices.IndexFunc(h.roster.Councils, func(c config.Council) bool { return c.Name == name })
	if i < 0 {
		return config.Council{}
	}
	return h.roster.Councils[i]
}

// allows reports whether a token may ask a council. The argument token is the name of a token, or "" if callers need no
// token.
func (h *setup) allows(name, token string) bool {
	if h.roster == nil || token == "" {
		return true
	}
	audience := h.council(name).Audience
	return audience == nil || slices.Contains(audience, token)
}

// unknown is the error of a request to a council that its token may not ask. The error also names the other problems of
// the request. It does not tell whether such a council exists.
func (h *setup) unknown(
	name string, names []string, prepare func(p *pipeline.Pipeline, known bool) (council.Plan, error),
) error {
	wrong := council.FieldError{
		Field: "council", Message: fmt.Sprintf("%.64q is not a council", name), Fix: "use " + strings.Join(names, ", "),
	}
	if name == "" {
		wrong.Message = "the request names no council, and this token may not ask the default one"
	}
	if len(names) == 0 {
		wrong.Fix = "ask for a token that is in the audience of a council"
	}
	failure := &council.Error{
		Code: council.CodeInvalid, Detail: "the request is not valid", Fields: []council.FieldError{wrong},
	}
	if len(names) > 0 {
		_, err := prepare(h.pipelines[names[0]], false)
		if more, ok := errors.AsType[*council.Error](err); ok {
			failure.Fields = append(failure.Fields, more.Fields...)
		}
	}
	return failure
}

// names returns the names of the councils that a token may ask. The default council comes first.
func (h *setup) names(token string) []string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(h.pipelines)), func(name string) bool { return name == h.first })
	return slices.DeleteFunc(append([]string{h.first}, names...), func(name string) bool { return !h.allows(name, token) })
}

// ShownRoster is a roster for people to read.
type ShownRoster struct {
	Hash     string         `json:"hash"`
	Default  string         `json:"default"`
	Councils []ShownCouncil `json:"councils"`
	Models   []ShownModel   `json:"models"`
	Warnings []string       `json:"warnings"`
}

// ShownCouncil is a council of a roster. Its seats have the names that sessions use.
type ShownCouncil struct {
	Name       string              `json:"name"`
	Version    string              `json:"version"` // council_config_version of its records
	Mode       council.Mode        `json:"mode"`
	First      int                 `json:"first"` // 0 if all members begin
	AnswerForm *council.AnswerForm `json:"answer_form"`
	Members    []string            `json:"members"`
	Reviewers  []string            `json:"reviewers"` // empty if the mode has no reviews
	// Chairmen are in the order in which they are tried. If there is only one, the other members follow it by rank. The
	// list is empty if no chairman writes in this mode.
	Chairmen   []string `json:"chairmen"`
	MaxCostUSD *float64 `json:"max_cost_usd"`
	// Audience are names of tokens. If it is empty, every caller may ask the council.
	Audience []string `json:"audience"`
}

// ShownModel is a model of a roster. A text is "" if the roster does not set it.
type ShownModel struct {
	ID        string `json:"id"`
	Provider  string `json:"provider"` // "default" for the default provider
	Upstream  string `json:"upstream"` // the provider's name for the model
	Options   string `json:"options"`
	Clearance string `json:"clearance"`
	Price     string `json:"price"` // as the roster writes it
}

// ShowRoster returns the roster in a file, or the roster in the settings if file is "". Its error names every
// problem of the roster, each on a line of its own.
func ShowRoster(cfg config.Config, file string, sim Simulator) (ShownRoster, error) {
	cfg, h, err := openRoster(cfg, file, sim)
	if err != nil {
		return ShownRoster{}, err
	}
	shown := ShownRoster{
		Hash: h.roster.Hash, Default: h.first, Warnings: append([]string{}, h.roster.Warnings(cfg.ProviderNames())...),
	}
	for _, c := range h.roster.Councils {
		plan, err := h.pipelines[c.Name].Prepare(council.Request{Query: "?"})
		if err != nil {
			return shown, err
		}
		ids := func(members []council.Member) []string {
			all := make([]string, len(members))
			for i, m := range members {
				all[i] = m.ID
			}
			return all
		}
		shown.Councils = append(shown.Councils, ShownCouncil{
			Name: c.Name, Version: plan.Versions.CouncilConfig, Mode: plan.Mode, First: plan.First, AnswerForm: plan.Form,
			Members: ids(plan.Members()), Reviewers: ids(plan.Reviewers()), Chairmen: ids(plan.Chairmen()), MaxCostUSD: plan.MaxCostUSD, Audience: append([]string{}, c.Audience...),
		})
	}
	for _, m := range h.roster.Models {
		provider, upstream := council.SplitModel(m.Member.Model, cfg.ProviderNames())
		s := ShownModel{ID: m.ID, Provider: cmp.Or(provider, "default"), Upstream: upstream, Clearance: m.Clearance}
		if options, err := json.Marshal(m.Member.Profile); err == nil && string(options) != "{}" {
			s.Options = string(options)
		}
		if m.Price != nil {
			s.Price = m.Price.Line()
		}
		shown.Models = append(shown.Models, s)
	}
	return shown, nil
}
