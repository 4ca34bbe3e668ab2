package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/decide"
	"github.com/councild/councild/internal/stage2"
)

// Limits of a council.JudgeRequest, in bytes.
const (
	maxAnswerID = 64
	maxAuthor   = 200
	maxCriteria = 4 << 10
)

// PrepareJudge turns a request to judge answers into a Plan, as Prepare does for questions. The reviewers of the
// council are the judges. A judge does not read the answers that its model wrote, or that a model of its maker wrote. A
// judge that may read only one answer of several, or none, is not asked. The error is a *council.Error. It is also
// returned if no judge is left.
func (p *Pipeline) PrepareJudge(r council.JudgeRequest) (council.Plan, error) {
	v := &validation{settings: p.o.Settings, council: p.o.Council}
	mode := council.ModeCouncil
	if len(p.o.Models) == 1 {
		mode = council.ModeSingle
	}
	plan, err := p.Prepare(council.Request{
		Query: r.Question, Council: r.Council, Seed: r.Seed, Category: r.Category, Language: r.Language,
		TimeoutSeconds: r.TimeoutSeconds, MaxCostUSD: r.MaxCostUSD, MaxTotalTokens: r.MaxTotalTokens,
		DataClass: r.DataClass, Caller: council.Caller{Token: r.Token, User: r.User}, Mode: mode, Whole: true,
	})
	if failure, ok := errors.AsType[*council.Error](err); ok {
		for _, field := range failure.Fields {
			if field.Field == "query" {
				field.Field = "question"
			}
			v.add(field.Field, field.Message, field.Fix)
		}
	}
	names := p.o.Reviewers
	if len(names) == 0 {
		names = p.o.Models
	}
	judges := p.seats(names)
	judges = council.TwinsOf(judges, p.o.Same).Once(judges) // Each model judges once.
	p.checkJudged(v, r, judges)
	if err := v.err(); err != nil {
		return council.Plan{}, err
	}
	given := council.StagePlan{Kind: council.KindGiven, Given: map[string]string{}}
	for _, a := range r.Answers {
		given.Seats = append(given.Seats, council.Member{ID: a.ID, Model: a.Author})
		given.Given[a.ID] = a.Text
	}
	var asked []council.Member
	plan.Twins, plan.Excluded = p.authors(r, judges)
	for _, judge := range judges {
		own := func(m council.Member) bool { return plan.Twins.Own(judge.ID, m.ID) }
		if len(slices.DeleteFunc(slices.Clone(given.Seats), own)) >= min(len(r.Answers), 2) { //nolint:mnd // to compare
			asked = append(asked, judge)
		}
	}
	if len(asked) == 0 {
		return council.Plan{}, noJudge(plan.Excluded)
	}
	plan.Mode = council.ModeJudge
	plan.Stages = []council.StagePlan{given, judgingStage(r, asked)}
	plan.Versions.CouncilConfig = p.o.ConfigVersion + "+judge"
	if p.o.Council != "" {
		plan.Versions.CouncilConfig += "." + p.o.Council + "." + p.o.Hash(nil, judges)
	}
	plan.Versions.Synthesis = ""
	plan.Sides = nil
	plan.Measured = council.Measured{}
	plan.Rules.SelfReviewRate = 0
	if !slices.ContainsFunc(r.Answers, func(a council.JudgeAnswer) bool { return a.Author != "" }) &&
		r.Exclude != council.ExcludeNone {
		plan.Warnings = append(slices.Clone(plan.Warnings), council.Warning{
			Code:    council.WarnAuthorsUnknown,
			Message: "no author is named, so a judge may have read an answer of its own model: models favour their own",
		})
	}
	return plan, nil
}

// judgingStage returns the stage in which the judges rank the answers of a request, or vote on its rubric.
func judgingStage(r council.JudgeRequest, judges []council.Member) council.StagePlan {
	stage := council.StagePlan{Seats: judges, TimeEnd: 1, MoneyEnd: 1}
	if len(r.Rubric) > 0 {
		stage.Kind = council.KindVotes
		stage.Prompt = decide.PromptVersion
		for _, statement := range r.Rubric {
			stage.Questions = append(stage.Questions, council.Predicate(statement))
		}
		return stage
	}
	stage.Kind = council.KindReviews
	stage.Prompt = stage2.PromptVersion
	if stage.Criteria = r.Criteria; r.Criteria != "" {
		stage.Prompt = stage2.CriteriaPromptVersion
	}
	stage.Twice = r.Orders == council.OrdersBoth || r.Orders == "" && len(r.Answers) == 2
	if stage.Twice {
		for _, judge := range judges {
			judge.ID = seatID(judge.ID, 2) //nolint:mnd // the second reading
			stage.Seats = append(stage.Seats, judge)
		}
	}
	return stage
}

// checkJudged notes what is wrong with the answers of a request, and with the choices for judging them.
func (p *Pipeline) checkJudged(v *validation, r council.JudgeRequest, judges []council.Member) {
	switch n := len(r.Answers); {
	case n == 0:
		v.add("answers", "there are none", fmt.Sprintf("give 2 to %d answers, or one with a rubric", council.MaxJudged))
	case n > council.MaxJudged:
		v.add("answers", fmt.Sprintf("%d given, at most %d are allowed", n, council.MaxJudged), "give fewer")
	case n == 1 && len(r.Rubric) == 0:
		v.add("rubric", "one answer cannot be compared, and no rubric is given",
			fmt.Sprintf("give a rubric of 1 to %d statements, or a second answer", council.MaxRubric))
	case n > 1 && len(r.Rubric) > 0:
		v.add("rubric", "a rubric is for one answer, and there are several", "leave it out, or judge each answer alone")
	}
	if len(r.Rubric) > council.MaxRubric {
		v.add("rubric", fmt.Sprintf("%d statements given, at most %d are allowed", len(r.Rubric), council.MaxRubric), "give fewer")
	}
	for i, statement := range r.Rubric {
		if strings.TrimSpace(statement) == "" {
			v.add(fmt.Sprintf("rubric[%d]", i), "it is empty", "give a statement, or leave it out")
		}
	}
	seen := map[string]bool{}
	for i, a := range r.Answers {
		field := fmt.Sprintf("answers[%d].", i)
		isJudge := slices.ContainsFunc(judges, func(m council.Member) bool { return m.ID == a.ID || seatID(m.ID, 2) == a.ID })
		switch {
		case a.ID == "" || len(a.ID) > maxAnswerID:
			v.add(field+"id", "it is empty or too long", fmt.Sprintf("give an id of 1 to %d bytes", maxAnswerID))
		case seen[a.ID]:
			v.add(field+"id", fmt.Sprintf("%q is given twice", a.ID), "give each answer an id of its own")
		case isJudge:
			v.add(field+"id", fmt.Sprintf("%q is the name of a judge", a.ID), "give the answer another id")
		}
		seen[a.ID] = true
		switch {
		case strings.TrimSpace(a.Text) == "":
			v.add(field+"text", "it is empty", "give the answer a text, or leave the answer out")
		case int64(len(a.Text)) > p.o.MaxQueryBytes:
			v.add(field+"text", fmt.Sprintf("it has %d bytes, %d are allowed", len(a.Text), p.o.MaxQueryBytes),
				"shorten it, or raise "+v.settings.Of(council.SettingMaxQueryBytes))
		}
		if len(a.Author) > maxAuthor {
			v.add(field+"author", "it is too long", fmt.Sprintf("give the name of a model, of at most %d bytes", maxAuthor))
		}
	}
	switch r.Orders {
	case "", council.OrdersBoth:
	case council.OrdersOne:
		if len(r.Answers) == 2 {
			v.add("orders", "two answers need both orders, because a judge may prefer the first or second "+
				"place", "use both")
		}
	default:
		v.add("orders", fmt.Sprintf("%.64q is not a choice", r.Orders), "use one or both")
	}
	switch r.Exclude {
	case "", council.ExcludeFamily, council.ExcludeSelf, council.ExcludeNone:
	default:
		v.add("exclude", fmt.Sprintf("%.64q is not a choice", r.Exclude), "use family, self or none")
	}
	if len(r.Criteria) > maxCriteria {
		v.add("criteria", fmt.Sprintf("they have %d bytes, %d are allowed", len(r.Criteria), maxCriteria), "shorten them")
	}
}

// authors returns the answers and judges that count as one model, and the answers that each judge does not read.
func (p *Pipeline) authors(r council.JudgeRequest, judges []council.Member) (council.Twins, []council.Exclusion) {
	twins := council.Twins{}
	excluded := []council.Exclusion{}
	if r.Exclude == council.ExcludeNone {
		return twins, excluded
	}
	maker := func(m council.Member) string { return cmp.Or(m.Maker, council.Maker(m.Model, p.rules.Providers)) }
	group := func(judge council.Member) string {
		if r.Exclude == council.ExcludeSelf {
			return "model " + p.o.Same(judge.Model)
		}
		return "maker " + maker(judge)
	}
	for _, judge := range judges {
		twins[judge.ID] = group(judge)
		twins[seatID(judge.ID, 2)] = group(judge)
	}
	for _, a := range r.Answers {
		if a.Author == "" {
			continue
		}
		at := slices.IndexFunc(judges, func(judge council.Member) bool { return p.wrote(a.Author, judge) })
		switch {
		case at >= 0:
			twins[a.ID] = group(judges[at])
		case r.Exclude != council.ExcludeSelf:
			twins[a.ID] = "maker " + council.Maker(a.Author, p.rules.Providers)
		}
		for _, judge := range judges {
			if !twins.Own(judge.ID, a.ID) {
				continue
			}
			why := council.SameMaker
			if p.wrote(a.Author, judge) {
				why = council.SameModel
			}
			excluded = append(excluded, council.Exclusion{Judge: judge.ID, Answer: a.ID, Why: why})
		}
	}
	return twins, excluded
}

// wrote reports whether the author of an answer is the model of a judge. An author may have the name of the judge, or
// the name of its model with or without the provider.
func (p *Pipeline) wrote(author string, judge council.Member) bool {
	_, model := council.SplitModel(judge.Model, p.rules.Providers)
	return strings.EqualFold(author, council.ModelOf(judge.ID)) || strings.EqualFold(author, judge.Model) ||
		strings.EqualFold(author, model) || p.o.Same(author) == p.o.Same(judge.Model)
}

// noJudge returns the error of a request whose judges are all excluded.
func noJudge(excluded []council.Exclusion) error {
	by := map[string][]string{}
	for _, x := range excluded {
		by[x.Judge] = append(by[x.Judge], fmt.Sprintf("%s (%s)", x.Answer, x.Why))
	}
	all := make([]string, 0, len(by))
	for _, judge := range slices.Sorted(maps.Keys(by)) {
		all = append(all, judge+" may not read "+strings.Join(by[judge], ", "))
	}
	return &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: []council.FieldError{{
		Field: "exclude", Message: "no judge is left that may read the answers: " + strings.Join(all, "; "),
		Fix: "ask a council with other models, or exclude fewer: self or none",
	}}}
}
