package pipeline

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage2"
)

// Shadow has reviewers compare the synthesis of a session that has ended with its top-ranked answer,
// where the plan asks for it, and returns what they said. Asked are reviewers of whose models no seat
// wrote either text. The session stays as it is: the calls have an account of their own, under the id of
// the session with council.ShadowSuffix behind it, within what the session left of its limits.
//
// It returns nil where there is nothing to compare: something took the place of the synthesis, it has
// the form of a schema, no ballot was counted, both texts are equal, or nobody may be asked. In a session
// of which people are asked too, a record without reviewers stands for the last. It returns nil as well
// when ctx ends before all have answered: the fastest alone would be another council.
func (p *Pipeline) Shadow(ctx context.Context, plan council.Plan, session *council.Session) *council.ShadowRecord {
	synthesis := session.Stage3
	if !plan.Shadow || plan.Rules.Consent == 0 || plan.Output != nil || synthesis == nil || synthesis.Status != council.OutcomeOK ||
		session.Metadata.Agreement.Ballots == 0 {
		return nil
	}
	top := anonymize.Top(plan.Seed, session.Metadata.AggregateRankings)
	text := ""
	for _, a := range session.Stage1 {
		if a.Model == top && a.Response != nil {
			text = *a.Response
		}
	}
	if text == "" || strings.TrimSpace(text) == strings.TrimSpace(synthesis.Response) {
		return nil
	}
	r := p.newRun(plan, nil)
	r.session = session
	record := &council.ShadowRecord{
		SchemaVersion: council.ShadowSchema, SessionID: session.ID, Timestamp: plan.Created, Rate: plan.ShadowRate, Wanted: plan.LabelWanted,
		CouncilConfig: plan.Versions.CouncilConfig, Prompt: stage2.ShadowPromptVersion, Chairman: synthesis.Model, TopModel: top,
		Lengths:       council.ShadowLengths{Synthesis: utf8.RuneCountInString(synthesis.Response), Top: utf8.RuneCountInString(text)},
		QueryMetadata: r.queryMetadata(), QueryHash: r.queryHash(), QuestionKey: r.questionKey(), Reviewers: []council.ShadowReview{},
	}
	in := stage2.Shadow{
		Question: plan.Question(), Synthesis: synthesis.Response, Top: text, SynthesisFirst: anonymize.SynthesisFirst(plan.Seed),
		NewMarkers: r.markers(council.StageShadow),
	}
	authors := []string{p.o.Same(plan.ModelOf(synthesis.Model)), p.o.Same(plan.ModelOf(top))}
	for _, reviewer := range plan.Reviewers() {
		if !slices.Contains(authors, p.o.Same(reviewer.Model)) {
			in.Reviewers = append(in.Reviewers, reviewer)
		}
	}
	if len(in.Reviewers) > 0 {
		shadow := plan
		shadow.SessionID += council.ShadowSuffix
		record.Reviewers, _ = p.compare(ctx, shadow, session.Metadata.Usage.Total, in, QuestionBudget{})
	}
	if ctx.Err() != nil || len(record.Reviewers) == 0 && !plan.LabelWanted {
		return nil
	}
	return record
}

// comparisonShare is the share of the time of a session that a comparison has, in percent: that of the reviews.
const comparisonShare = 40

// compare asks the reviewers, within what was left of the limits of the plan and the time of a stage 2. It
// returns nobody's reviews where nothing is left, and whether a limit kept it from a call.
func (p *Pipeline) compare(
	ctx context.Context, plan council.Plan, spent council.Usage, in stage2.Shadow, b QuestionBudget,
) (reviews []council.ShadowReview, short bool) {
	none := []council.ShadowReview{}
	sampling := plan.Rules.ReviewSampling
	plan.Stages = []council.StagePlan{{
		Kind: council.KindComparison, Seats: in.Reviewers, MoneyEnd: 1,
		Given: map[string]string{string(council.ChoiceSynthesis): in.Synthesis, string(council.ChoiceTop): in.Top},
	}}
	plan.Sides = nil
	if plan.MaxCostUSD != nil && spent.CostUSD != nil {
		plan.MaxCostUSD = new(*plan.MaxCostUSD - *spent.CostUSD)
		if *plan.MaxCostUSD <= 0 {
			return none, true
		}
	}
	if plan.MaxTotalTokens != nil {
		plan.MaxTotalTokens = new(*plan.MaxTotalTokens - spent.Tokens())
		if *plan.MaxTotalTokens <= 0 {
			return none, true
		}
	}
	account, failure := p.open(ctx, &plan, b)
	if failure != nil {
		return none, true
	}
	defer account.Close(context.WithoutCancel(ctx), false)
	ctx, cancel := context.WithTimeoutCause(ctx, plan.Timeout*comparisonShare/100, errors.New("the time for the comparison ran out"))
	defer cancel()
	calls := p.newCalls(plan)
	calls.Account = account
	bounded := &budgeted{Completer: calls}
	reviews = stage2.Compare(ctx, bounded, in, sampling)
	return reviews, bounded.short.Load()
}

// budgeted notices that a limit kept a call from being made.
type budgeted struct {
	council.Completer
	short atomic.Bool
}

func (b *budgeted) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	completion, err := b.Completer.Complete(ctx, call)
	if f := council.AsFailure(err); f != nil && f.Code == council.FailBudget {
		b.short.Store(true)
	}
	return completion, err
}
