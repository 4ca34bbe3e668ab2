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

// ArmKind says how an arm answers in place of the council.
type ArmKind string

// The kinds of arms that make calls of their own.
const (
	// ArmSynthesis gives the chairman the answers without reviews and standings.
	ArmSynthesis ArmKind = "synthesis"
	// ArmPlacebo gives the chairman the council's reviews and standings, but exchanges the authors, so that the
	// chairman reads each review as a review of another answer.
	ArmPlacebo ArmKind = "placebo"
	// ArmEnsemble asks one model several times, and gives the chairman these answers.
	ArmEnsemble ArmKind = "ensemble"
)

// Arm is another way to answer a question. A trial compares arms with the council. The calls of an arm belong to a
// session of its own.
type Arm struct {
	Kind ArmKind
	// Model is the model that an ensemble asks.
	Model council.Member
	// Samples is how often an ensemble asks its model. It is 2 or more.
	Samples int
	// Seeded gives each request of an ensemble a seed of its own, for models that would otherwise repeat one answer.
	Seeded bool
}

// Session returns the id of the arm's session for a question: the id of the council's session, "-" and the kind.
func (a Arm) Session(council string) string { return council + "-" + string(a.Kind) }

// ArmResult is the result of an arm for one question. Session holds the calls that were paid for, even if Failure is
// set.
type ArmResult struct {
	Kind    ArmKind
	Session *council.Session
	Failure *council.Error
}

// QuestionBudget says how much the sessions of a question may cost, and which calls earlier runs have paid for.
type QuestionBudget struct {
	// Limit returns the most that a session may cost, in US dollars. It is called when the session begins. With a nil
	// Limit, the limit of the plan applies.
	Limit func(sessionID string) float64
	// Landed returns the calls of a session that have an outcome from an earlier run. They count against the limit of the
	// session. With a nil Landed, there are none.
	Landed func(sessionID string) []council.Landed
}

// Panel runs the council of a plan, and then each arm. Every arm except an ensemble uses the answers that the members
// gave to the council. These arms differ only in how they use the answers. Each arm has the time budget of a session.
//
// The first result is the council's, and its kind is "". If the council or an arm fails, its result has the failure.
// Panel itself returns an error, a *council.Error with CodeCancelled, only if ctx ends.
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
			return results, &council.Error{
				Code: council.CodeCancelled, Detail: "the session was cancelled", Cause: context.Cause(ctx),
			}
		}
	}
	return results, nil
}

// open begins the account of a session with a budget, and sets the plan's cost limit from the budget.
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

// JudgeSession returns the id of the session in which judges compare an arm with the council. The order is 0 or 1, as
// in [Pipeline.Judge].
func JudgeSession(council, arm string, order int) string {
	return fmt.Sprintf("%s-judge-%s-%d", council, arm, order+1)
}

// Judge asks each judge once which of two answers is better, the council's answer or another arm's answer. The judges
// do not learn who wrote which answer. In order 0, the first judge reads the council's answer first, the second judge
// reads the other answer first, and so on in turns. In order 1, each judge reads the two answers in reversed order.
// Judge returns what each judge said. The result short is true if a cost limit prevented a call.
func (p *Pipeline) Judge(
	ctx context.Context, plan council.Plan, arm string, order int, judges []council.Member, answer, other string,
	b QuestionBudget,
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

// Preference says which of two answers one judge prefers, the council's answer or another answer.
type Preference struct {
	// First says that the judge read the council's answer first.
	First bool
	// Value is 1 if the judge prefers the council's answer, 0 if it prefers the other answer, and 0.5 if it prefers
	// neither. It is nil if the reply holds no verdict.
	Value *float64
}

// armPlan returns the plan of an arm, which runs after the council's session. If the arm cannot run, armPlan returns
// the reason.
func (p *Pipeline) armPlan(plan council.Plan, arm Arm, held *council.Session) (council.Plan, *council.Error) {
	plan.SessionID = arm.Session(plan.SessionID)
	plan.Sides = nil
	synthesis := plan.Stage(council.KindSynthesis)
	if arm.Kind == ArmEnsemble {
		plan.Mode = council.ModeSynthesis
		plan.Stages = council.Stages(plan.Mode, p.samples(arm), nil, synthesis.Seats)
		plan.Stages[1].Prompt = synthesis.Prompt
		return plan, nil
	}
	if arm.Kind == ArmPlacebo && held.Metadata.Agreement.Ballots == 0 {
		return plan, &council.Error{Code: council.CodeNoQuorum, Detail: "there is no ranking that could be permuted"}
	}
	if arm.Kind == ArmSynthesis {
		plan.Mode = council.ModeSynthesis
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

// permuted returns the reviews and standings of a session, in which each author is replaced by another author.
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

// samples returns the seats of an ensemble, one for each request to its model.
func (p *Pipeline) samples(arm Arm) []council.Member {
	seats := make([]council.Member, arm.Samples)
	for i := range seats {
		seats[i] = arm.Model
		seats[i].ID = seatID(council.ModelOf(arm.Model.ID), i+1)
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
