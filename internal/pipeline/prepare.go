package pipeline

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/calls"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage1"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/stage3"
)

// Prepare turns a request into a Plan. It applies the defaults, validates the request, and fixes the session's id and
// seed. It makes no call, and leaves the schema of the request to [Pipeline.Check]. The error is a *council.Error that
// lists all problems. Its code is CodeForbidden if all problems are models that the request may not name. Otherwise its
// code is CodeInvalid.
func (p *Pipeline) Prepare(r council.Request) (council.Plan, error) {
	v := &validation{settings: p.o.Settings, council: p.o.Council}
	plan := council.Plan{
		SessionID:    p.o.NewID(),
		Created:      time.Now().UTC(),
		Conversation: p.conversation(v, r),
		Order:        cmp.Or(r.Order, p.o.Order),
		Limits:       council.Limits{Timeout: p.o.Timeout},
		OnPartial:    cmp.Or(r.OnPartial, council.PartialAccept),
		Category:     cmp.Or(r.Category, p.o.Category),
		Language:     cmp.Or(r.Language, p.o.Language),
		Rules:        p.rules,
		Versions:     p.made,
		Lineup:       council.Lineup{CouncilName: p.o.Council, Chosen: p.o.Council != "" && r.Models != nil},
		User:         r.User,
		Side:         r.Side && p.o.SideRequests != council.SideCouncil,
		Warnings:     r.Warnings,
	}
	if r.Council != "" && r.Models != nil {
		v.add("council", "council and models are both given", "give one of them")
	}
	if r.Questions != nil {
		return p.votes(v, r, plan)
	}
	p.tools(v, r, &plan)
	p.shape(v, r, &plan)
	members := p.members(v, r.Models, plan.Mode)
	if plan.Side && plan.Mode != council.ModeSingle && len(members) > 0 {
		plan.Mode = council.ModeSingle
		plan.First = 0
		members = p.side(&plan, members)
	}
	if n := len(members); plan.First != 0 && (plan.First < 1 || plan.First >= n) && n > 1 {
		v.add("first", fmt.Sprintf("%d of %d members cannot begin", *cmp.Or(r.First, &plan.First), n),
			fmt.Sprintf("give a whole number from 1 to %d, or leave it out to ask all at once", n-1))
	}
	var reviewers []council.Member
	switch {
	case !plan.Mode.Reviews():
	case len(p.o.Reviewers) > 0:
		reviewers = p.seats(p.o.Reviewers)
	default:
		reviewers = members
	}
	if r.Chairman != "" && !p.allowed[r.Chairman] {
		v.forbid("chairman", r.Chairman)
	}
	var judge bool
	if plan.Twins, reviewers, judge = p.twins(members, reviewers); judge {
		plan.Warnings = append(slices.Clone(plan.Warnings), twinsJudge())
	}
	if plan.Chosen {
		plan.Versions.CouncilConfig = p.version(members, reviewers)
	}

	if plan.Output = output(v, r); plan.Output != nil {
		plan.Versions.Synthesis = withSchema
	}
	chairmen := p.chairmen(append([]string{cmp.Or(r.Chairman, p.o.Chairman)}, p.o.ChairmanFallbacks...))
	if plan.Map = r.Map && p.o.Map && plan.Mode.Writes() && plan.Output == nil && !r.Whole; plan.Map {
		plan.MarkerKey = rand.Text()
		plan.Versions.Synthesis = stage3.MapPromptVersion
	}
	plan.Stages = council.Stages(plan.Mode, members, reviewers, chairmen)
	for i := range plan.Stages {
		switch plan.Stages[i].Kind { //nolint:exhaustive // the conversation is the prompt of the others
		case council.KindReviews:
			plan.Stages[i].Prompt = stage2.PromptVersion
		case council.KindSynthesis:
			plan.Stages[i].Prompt = plan.Versions.Synthesis
		}
	}

	p.choose(v, r, &plan)
	plan.Seed = p.seed(v, r, plan)
	if err := v.err(); err != nil {
		return council.Plan{}, err
	}
	if plan.Mode.Reviews() {
		plan.Sides = p.plannedSides(plan)
	}
	plan.ShadowRate = p.o.ShadowRate
	if plan.Mode == council.ModeCouncil {
		plan.LabelWanted = anonymize.LabelWanted(plan.Seed, p.o.LabelRate)
		plan.Shadow = plan.LabelWanted || anonymize.Shadowed(plan.Seed, p.o.ShadowRate)
	}
	return plan, nil
}

// shape decides which stages the session runs: it sets the mode, how many members begin, and the form of their answers.
func (p *Pipeline) shape(v *validation, r council.Request, plan *council.Plan) {
	plan.Mode = p.o.Mode
	switch {
	case r.Mode != "":
		plan.Mode = r.Mode
	case r.Direct:
		plan.Mode = council.ModeSingle
	case r.Whole:
		plan.Mode = council.ModeCouncil
	}
	mode := plan.Mode
	if !mode.Known() {
		fix := "use " + council.ModeChoices
		if mode == council.ModeJudge {
			fix += "; POST /v1/judge judges answers that exist already"
		}
		v.add("mode", fmt.Sprintf("%.64q is not a mode of a council", mode), fix)
		return
	}
	schema := len(r.OutputSchema) > 0
	alone := mode == council.ModeVote || mode == council.ModeSingle
	switch {
	case r.First != nil && *r.First == 0:
		plan.First = -1 // 0 would mean that all members begin.
	case r.First != nil:
		plan.First = *r.First
	case !schema && !alone && !r.Whole && r.Models == nil: // Other sessions cannot begin as the council does.
		plan.First = p.o.First
	}
	if plan.Form = r.AnswerForm; plan.Form == nil && !schema && !r.Whole {
		plan.Form = p.o.Form
	}
	p.form(v, plan)
	if mode == council.ModeVote && plan.Form == nil && !schema {
		v.add("answer_form", "a vote counts equal answers, and no form of the answers is given",
			`give one, such as {"type": "number"}, or ask in another mode`)
	}
	if schema && !mode.Writes() && mode != council.ModeSingle {
		v.add("output_schema", "the answer of this mode is a member's answer, and members follow no schema",
			"leave it out, or ask in the mode council, synthesis or single")
	}
	if schema && r.AnswerForm != nil {
		v.add("answer_form", "output_schema and answer_form are both given", "leave one of them out")
	}
	if r.Chairman != "" && !mode.Writes() {
		v.add("chairman", fmt.Sprintf("no chairman writes in the mode %s", mode),
			"leave it out, or ask in the mode council or synthesis")
	}
	if plan.First != 0 && (schema || alone) {
		with := "the mode " + string(mode)
		if schema {
			with = "output_schema"
		}
		v.add("first", "it does not go with "+with, "leave it out")
	}
}

// form checks the form of a plan's answers, and sets its instruction.
func (p *Pipeline) form(v *validation, plan *council.Plan) {
	if plan.Form == nil {
		return
	}
	form, err := stage1.NewForm(*plan.Form)
	if err != nil {
		v.add("answer_form", "it cannot be used: "+err.Error(), "correct it, or leave it out")
		return
	}
	plan.Instruction = form.Instruction()
}

// choose applies the fields of a request that change its session: order, on_partial, limits, category and language.
func (p *Pipeline) choose(v *validation, r council.Request, plan *council.Plan) {
	if !plan.Order.Known() {
		v.add("order", fmt.Sprintf("%q is not an order", r.Order), "use "+council.OrderChoices)
	}
	switch plan.OnPartial {
	case council.PartialAccept, council.PartialRefuse:
	default:
		v.add("on_partial", fmt.Sprintf("%q is not a choice", r.OnPartial), "use accept or refuse")
	}
	switch asked := r.TimeoutSeconds; {
	case asked == nil:
	case *asked <= 0:
		v.add(
			"timeout_seconds", "the time limit is not above 0",
			"give a number of seconds above 0, or leave the field out",
		)
	case *asked < plan.Timeout.Seconds():
		plan.Timeout = time.Duration(*asked * float64(time.Second))
	}
	plan.MaxCostUSD = lower(v, "max_cost_usd", "a number", p.o.MaxCostUSD, r.MaxCostUSD)
	plan.MaxTotalTokens = lower(v, "max_total_tokens", "a whole number", p.o.MaxTotalTokens, r.MaxTotalTokens)
	if r.Category != "" && !slices.Contains(council.Categories(), r.Category) {
		v.add("category", fmt.Sprintf("%q is not a category", r.Category), "use "+strings.Join(council.Categories(), ", "))
	}
	if r.Language != "" && !council.IsLanguage(r.Language) {
		v.add(
			"language", fmt.Sprintf("%q is not a language code", r.Language),
			"use two lower-case letters of ISO 639-1, such as en",
		)
	}
}

// seed returns the seed of a session. If the request's seed is out of range, it notes the problem in v and returns 0.
func (p *Pipeline) seed(v *validation, r council.Request, plan council.Plan) int64 {
	switch drawn := r.Seed == nil || *r.Seed == -1; {
	case drawn && p.o.RandomSeed != nil:
		return anonymize.SeedFor(*p.o.RandomSeed, plan.Question())
	case drawn:
		return p.o.NewSeed()
	case *r.Seed < 0 || *r.Seed > council.MaxSeed:
		v.add(
			"seed", "the seed is out of range",
			fmt.Sprintf("give a whole number from 0 to %d, or -1 to have one drawn", int64(council.MaxSeed)),
		)
	default:
		return *r.Seed
	}
	return 0
}

// tools warns of the tools that a request offers, or refuses the request, as Options.Tools says.
func (p *Pipeline) tools(v *validation, r council.Request, plan *council.Plan) {
	switch {
	case r.Tools == "":
	case p.o.Tools == council.ToolsIgnore:
		plan.Warnings = append(slices.Clone(plan.Warnings), council.Warning{
			Code:    council.WarnToolsIgnored,
			Message: "the request offers tools, but a council calls none: the models did not see them",
		})
	default:
		v.add(r.Tools, "a council calls no tools", fmt.Sprintf("leave %s out, or write tools: ignore for the council in the roster (%s): it "+
			"then answers in text, with a warning", r.Tools, v.settings.Of(council.SettingRoster)))
	}
}

// side returns the one member that answers a side request in place of the council, and adds a warning to the plan.
func (p *Pipeline) side(plan *council.Plan, members []council.Member) []council.Member {
	alone := members[:1]
	if p.o.SideRequests != council.SideMember {
		alone = p.seats([]string{p.o.SideRequests})
	}
	plan.Warnings = append(slices.Clone(plan.Warnings), council.Warning{
		Code: council.WarnSideRequest, Message: alone[0].ID + " alone answered, because this is a side request of a chat program; the council's side_requests says who answers",
	})
	return alone
}

// version returns the council_config_version for the records of a council with these members and reviewers.
func (p *Pipeline) version(members, reviewers []council.Member) string {
	if p.o.Council == "" {
		return p.o.ConfigVersion
	}
	return p.o.ConfigVersion + "+" + p.o.Council + "." + p.o.Hash(members, reviewers)
}

// output returns the form of the final answer, or nil for free text.
func output(v *validation, r council.Request) *council.Format {
	if len(r.OutputSchema) == 0 {
		return nil
	}
	name := cmp.Or(r.OutputName, "answer")
	if len(name) > maxOutputName || strings.Trim(name, outputNameLetters) != "" {
		v.add("output_name", fmt.Sprintf("%q is not a name of a schema", name),
			fmt.Sprintf("use 1 to %d letters, digits, underscores and hyphens", maxOutputName))
	}
	if err := calls.CheckSchemaText(r.OutputSchema); err != nil {
		v.schema(err)
	}
	return &council.Format{Name: name, Schema: r.OutputSchema, Strict: r.OutputStrict}
}

// Check compiles the schema that the caller gave for the answer of a plan, if there is one. A front door first counts
// the session against its limit of concurrent sessions, because to compile a schema takes up to 40 MB and 0.2 seconds.
// At most maxValidations schemas are compiled at once, and Check waits for its turn until ctx ends. The error is a
// *council.Error.
func (p *Pipeline) Check(ctx context.Context, plan council.Plan) error {
	if plan.Output == nil {
		return nil
	}
	select {
	case p.o.Validations.schemas <- struct{}{}:
	case <-ctx.Done():
		return &council.Error{Code: council.CodeCancelled, Detail: "the client is gone", Cause: context.Cause(ctx)}
	}
	defer func() { <-p.o.Validations.schemas }()
	if _, err := calls.CompileSchema(plan.Output.Schema); err != nil {
		v := &validation{settings: p.o.Settings}
		v.schema(err)
		return v.err()
	}
	return nil
}

// The name of an output schema has the form that OpenAI requires.
const (
	maxOutputName     = 64
	outputNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

// conversation validates the question of a request, and returns the messages that the members get.
func (p *Pipeline) conversation(v *validation, r council.Request) []council.Message {
	var messages []council.Message
	switch {
	case r.Query != "" && len(r.Messages) > 0:
		v.add("messages", "query and messages are both given", "give one of them")
	case len(r.Messages) > 0:
		messages = r.Messages
		for i, m := range messages {
			field := fmt.Sprintf("messages[%d]", i)
			switch m.Role {
			case council.RoleSystem, council.RoleUser, council.RoleAssistant:
			default:
				v.add(field+".role", fmt.Sprintf("%q is not a role", m.Role), "use system, user or assistant")
			}
			if strings.TrimSpace(m.Content) == "" {
				v.add(field+".content", "the message is empty", "give it a text, or leave the message out")
			}
		}
		if last := len(messages) - 1; messages[last].Role != council.RoleUser {
			v.add(
				fmt.Sprintf("messages[%d].role", last), "the last message is not the user's",
				"end the conversation with the user's question",
			)
		}
	case strings.TrimSpace(r.Query) == "":
		v.add("query", "there is no question", "give a query, or messages")
	default:
		messages = []council.Message{{Role: council.RoleUser, Content: r.Query}}
	}
	var size int64
	for _, m := range messages {
		size += int64(len(m.Content))
	}
	if size > p.o.MaxQueryBytes {
		v.add(
			"query", fmt.Sprintf("the question has %d bytes, %d are allowed", size, p.o.MaxQueryBytes),
			"shorten it, or raise "+v.settings.Of(council.SettingMaxQueryBytes),
		)
	}
	return messages
}

// members validates the models that a request names, and returns the seats of the members.
func (p *Pipeline) members(v *validation, models []string, mode council.Mode) []council.Member {
	names := models
	if models == nil {
		names = p.o.Models
	}
	switch {
	case mode == council.ModeSingle && len(names) != 1:
		v.add("mode", fmt.Sprintf("the mode single asks one model, and %d are named", len(names)),
			"name one model in models, or ask in another mode")
	case mode == council.ModeSingle || len(names) > 1:
	case models == nil:
		v.add("mode", fmt.Sprintf("the council has one model, and the mode %s needs two", mode),
			"ask in the mode single, or name two or more models")
	default:
		v.add(
			"models", fmt.Sprintf("%d given, a council needs at least 2", len(models)),
			"name two or more models, or leave the field out for the configured council",
		)
	}
	if models == nil {
		return p.seats(p.o.Models)
	}
	if len(models) > p.o.MaxModels {
		v.add(
			"models", fmt.Sprintf("%d given, at most %d are allowed", len(models), p.o.MaxModels),
			"name fewer, or raise "+v.settings.Of(council.SettingMaxModels),
		)
		return nil
	}
	for i, m := range models {
		if !p.allowed[m] || m == "" {
			v.forbid(fmt.Sprintf("models[%d]", i), m)
		}
	}
	return p.seats(models)
}

// seats returns the member for each name. A name is a model or an id of the roster. A name that is given twice gets two
// seats.
func (p *Pipeline) seats(names []string) []council.Member {
	members := make([]council.Member, len(names))
	count := map[string]int{}
	for i, name := range names {
		count[name]++
		members[i] = p.o.Seats[name]
		members[i].ID = name
		members[i].Model = cmp.Or(members[i].Model, name)
		members[i].ID = seatID(name, count[name])
	}
	return members
}

// seatID returns the id of the n-th seat with a name. Seats count from 1.
func seatID(name string, n int) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%s#%d", name, n)
}

// twins returns the groups of seats that share a model (twins), and the reviewers. No model reviews its own answers,
// and each model reviews only once. If these rules would leave too few ballots, twins returns all reviewers and no
// groups, and judge is true. Seats of one model then review each other.
func (p *Pipeline) twins(members, reviewers []council.Member) (twins council.Twins, once []council.Member, judge bool) {
	twins = council.TwinsOf(slices.Concat(members, reviewers), p.o.Same)
	once = twins.Once(reviewers)
	switch authors := ids(members); {
	case len(once) == len(reviewers) && !twins.Meet(authors, reviewers):
		return nil, reviewers, false
	case !twins.Carry(authors, once):
		return nil, reviewers, true
	}
	return twins, once, false
}

// twinsJudge returns the warning that seats of one model judge each other's answers.
func twinsJudge() council.Warning {
	return council.Warning{
		Code: council.WarnTwinsJudge, Message: "seats of one model judge each other's answers, and models favour their own: without these ballots, " +
			"an answer would have fewer than two ballots, or a reviewer only one answer to read; replace one of these seats by another model",
	}
}

// chairmen returns the members that may write the final answer, each model only once, so that a model that failed is
// not asked again as its own fallback.
func (p *Pipeline) chairmen(names []string) []council.Member {
	return slices.DeleteFunc(p.seats(names), func(m council.Member) bool { return m.ID != council.ModelOf(m.ID) })
}

// lower returns the lower of two limits: the configured limit and the limit that the request asks for. A nil limit is
// no limit. The argument field is the name of the request's field. The argument kind says which numbers that field
// takes, such as "a whole number".
func lower[T int64 | float64](v *validation, field, kind string, configured, asked *T) *T {
	if asked != nil && *asked <= 0 {
		v.add(field, "the limit is not above 0", "give "+kind+" above 0, or leave the field out")
	}
	if asked == nil || configured != nil && *configured < *asked {
		return configured
	}
	return asked
}

// validation collects the problems of a request.
type validation struct {
	settings council.SettingNames
	council  string // its name in the roster, or "" without a roster
	fields   []council.FieldError
	invalid  bool // set if any problem is not a forbidden model
}

func (v *validation) add(field, message, fix string) {
	v.invalid = true
	v.fields = append(v.fields, council.FieldError{Field: field, Message: message, Fix: fix})
}

func (v *validation) schema(err error) {
	v.add("output_schema", "the schema cannot be used: "+err.Error(), "send a JSON Schema of draft 2020-12, as an object")
}

func (v *validation) forbid(field, model string) {
	fix := "name a configured model, or add it to " + v.settings.Of(council.SettingAllowedModels)
	if v.council != "" {
		fix = "name an id that the council " + v.council + " has in the roster, or ask another council"
	}
	v.fields = append(v.fields, council.FieldError{
		Field: field, Message: fmt.Sprintf("%q is not a model that this council may use", model), Fix: fix,
	})
}

func (v *validation) err() error {
	switch {
	case v.invalid:
		return &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: v.fields}
	case len(v.fields) > 0:
		return &council.Error{
			Code: council.CodeForbidden, Detail: "the request names a model that may not be used", Fields: v.fields,
		}
	default:
		return nil
	}
}
