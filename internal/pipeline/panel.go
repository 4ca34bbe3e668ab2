package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/stage2"
)

// ArmKind says what an arm does in place of the council.
type ArmKind string

// The kinds of arms that make calls of their own.
const (
	ArmSynthesis ArmKind = "synthesis" // the chairman reads the answers: no reviews, no standings
	ArmPlacebo   ArmKind = "placebo"   // as the council, but reviews and standings are of other answers
	ArmEnsemble  ArmKind = "ensemble"  // one model answers several times, then a synthesis of these answers
)

// Arm is another way to answer a question than the council's. Its calls belong to a session of its own, named
// after the plan's with "-" and the kind behind it.
type Arm struct {
	Kind  ArmKind
	Model council.Member // of an ensemble
	// Samples is how often an ensemble asks its model, 2 or more. Seeded gives each request a seed of its own, for
	// models that would answer all of them alike.
	Samples int
	Seeded  bool
}

// Session returns the id of the arm's session at a question.
func (a Arm) Session(council string) string { return council + "-" + string(a.Kind) }

// ArmResult is what an arm made of a question. Session holds what was paid for also where there is a Failure.
type ArmResult struct {
	Kind    ArmKind
	Session *council.Session
	Failure *council.Error
}

// QuestionBudget says what the sessions of a question may cost, and what was answered before.
type QuestionBudget struct {
	// Limit returns the most that a session may cost, in US dollars, when it begins; nil: the plan says it.
	Limit func(sessionID string) float64
	// Landed returns the calls of a session that were answered before, which count against its limit; nil: none were.
	Landed func(sessionID string) []council.Landed
}

// Panel runs the council of a plan, and then each arm over the same answers of the members, so that the arms differ
// only in what they do with them. An arm has the time of a session.
//
// A failed council has its *council.Error in the result of the kind "". An error is a *council.Error of CodeCancelled:
// ctx has ended.
func (p *Pipeline) Panel(ctx context.Context, plan council.Plan, arms []Arm, b QuestionBudget) ([]ArmResult, error) {
	results := make([]ArmResult, 0, 1+len(arms))
	for i := -1; i < len(arms); i++ {
		mine := plan
		var result ArmResult
		if i >= 0 {
			result.Kind = arms[i].Kind
			mine, result.Failure = p.armPlan(plan, arms[i], results[0].Session)
		}
		if result.Failure == nil {
			_, result.Failure = p.open(ctx, &mine, b)
		}
		if result.Failure != nil {
			result.Session = mine.Session()
		} else {
			var err error
			result.Session, err = p.Run(ctx, mine, nil, nil)
			result.Failure, _ = errors.AsType[*council.Error](err)
		}
		results = append(results, result)
		if ctx.Err() != nil {
			return results, &council.Error{Code: council.CodeCancelled, Detail: "the session was cancelled", Cause: context.Cause(ctx)}
		}
	}
	return results, nil
}

// open is Open for a session with a budget, of which the plan gets the limit.
func (p *Pipeline) open(ctx context.Context, plan *council.Plan, b QuestionBudget) (*spend.Account, *council.Error) {
	if b.Limit != nil {
		if plan.MaxCostUSD = new(b.Limit(plan.SessionID)); *plan.MaxCostUSD <= 0 {
			return nil, &council.Error{Code: council.CodeOverBudget, Detail: "the budget of the question is spent"}
		}
	}
	account, failure := p.o.Book.Open(ctx, p.o.Book.Opening(*plan))
	if failure == nil && b.Landed != nil {
		account.Recover(ctx, b.Landed(plan.SessionID), nil)
	}
	return account, failure
}

// JudgeSession returns the id of the session in which judges compare an arm with the council, in order 0 or 1.
func JudgeSession(council, arm string, order int) string {
	return fmt.Sprintf("%s-judge-%s-%d", council, arm, order+1)
}

// Judge has judges compare the council's answer with that of another arm, blind, once each: in order 0 the first judge
// sees the council's answer first, the second one the other answer first, and so on; in order 1 it is the reverse. It
// returns what each judge said, and reports short where a limit of cost kept it from a call.
func (p *Pipeline) Judge(
	ctx context.Context, plan council.Plan, arm string, order int, judges []council.Member, answer, other string, b QuestionBudget,
) (verdicts []Preference, short bool) {
	plan.SessionID = JudgeSession(plan.SessionID, arm, order)
	if plan.MarkerKey != "" {
		plan.MarkerKey += " " + plan.SessionID
	}
	reviews, short := p.compare(ctx, plan, council.NoUsage(), stage2.Shadow{
		Question: plan.Question(), Synthesis: answer, Top: other, Reviewers: judges, SynthesisFirst: order == 0,
		NewMarkers: anonymize.MarkersFrom(plan.MarkerKey),
	}, b)
	for _, review := range reviews {
		v := Preference{First: review.First == council.ChoiceSynthesis}
		if review.Choice != nil {
			v.Value = review.Choice.Value()
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, short
}

// Preference is what a judge said of the council's answer and another one.
type Preference struct {
	First bool     // it saw the council's answer first
	Value *float64 // 1 where that is better, 0 where the other is, .5 for neither; nil: the reply was no judgement
}

// armPlan returns the plan of an arm on the session of the council, or why there is none.
func (p *Pipeline) armPlan(plan council.Plan, arm Arm, held *council.Session) (council.Plan, *council.Error) {
	plan.SessionID = arm.Session(plan.SessionID)
	plan.Sides = nil
	synthesis := plan.Stage(council.KindSynthesis)
	if arm.Kind == ArmEnsemble {
		answers := plan.Stage(council.KindAnswers)
		answers.Seats = p.samples(arm)
		plan.Stages = []council.StagePlan{answers, synthesis}
		return plan, nil
	}
	if arm.Kind == ArmPlacebo && held.Metadata.Agreement.Ballots == 0 {
		return plan, &council.Error{Code: council.CodeNoQuorum, Detail: "there is no ranking that could be permuted"}
	}
	given := council.StagePlan{Kind: council.KindGiven, Seats: plan.Members(), Given: map[string]string{}}
	for _, a := range held.Stage1 {
		if a.Status == council.OutcomeOK {
			given.Given[a.Model] = *a.Response
		}
	}
	if arm.Kind == ArmPlacebo {
		given.Reviews = permuted(plan.Seed, held)
	}
	plan.Stages = []council.StagePlan{given, synthesis}
	return plan, nil
}

// permuted returns the reviews and standings of a session, with each answer in the place of another one.
func permuted(seed int64, held *council.Session) *council.GivenReviews {
	var authors []string
	for _, a := range held.Stage1 {
		if a.Status == council.OutcomeOK {
			authors = append(authors, a.Model)
		}
	}
	other := anonymize.Deranged(seed, authors)
	given := &council.GivenReviews{Agreement: held.Metadata.Agreement}
	for _, st := range held.Metadata.AggregateRankings {
		st.Model = other[st.Model]
		given.Standings = append(given.Standings, st)
	}
	for _, v := range held.Stage2 {
		v.Slate = slices.Clone(v.Slate)
		for i := range v.Slate {
			v.Slate[i].Member = other[v.Slate[i].Member]
		}
		v.Spent = council.Spent{Usage: council.NoUsage()}
		given.Reviews = append(given.Reviews, v)
	}
	return given
}

// samples returns the seats of an ensemble.
func (p *Pipeline) samples(arm Arm) []council.Member {
	seats := make([]council.Member, arm.Samples)
	for i := range seats {
		seats[i] = arm.Model
		seats[i].ID = fmt.Sprintf("%s#%d", council.ModelOf(arm.Model.ID), i+1)
		if arm.Seeded {
			profile := *cmp.Or(arm.Model.Profile, &council.Profile{})
			profile.Body = maps.Clone(profile.Body)
			if profile.Body == nil {
				profile.Body = map[string]json.RawMessage{}
			}
			profile.Body["seed"] = json.RawMessage(strconv.Itoa(i + 1))
			seats[i].Profile = &profile
		}
	}
	return seats
}
