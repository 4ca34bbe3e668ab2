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

// Shadow has reviewers compare the synthesis of a session with its top-ranked answer, if the plan says so. A front door
// calls Shadow when the session has ended. Shadow asks only reviewers whose model wrote neither text. It does not
// change the session. Its calls have an account of their own. The id of this account is the session id followed by
// council.ShadowSuffix. The calls may use what the session left of its cost limits.
//
// Shadow returns nil if there is nothing to compare: the chairman wrote no synthesis, the synthesis follows a JSON
// schema, no ballot was counted, both texts are equal, or no reviewer may be asked. In the last case, if people are
// asked about the session too, Shadow returns a record without reviewers instead of nil. Shadow also returns nil if ctx
// ends before all reviewers have answered, because the fastest reviewers alone would be another council.
func (p *Pipeline) Shadow(ctx context.Context, plan council.Plan, session *council.Session) *council.ShadowRecord {
	synthesis := session.Stage3
	if !plan.Shadow || plan.Rules.Consent == 0 || plan.Output != nil ||
		synthesis == nil || synthesis.Status != council.OutcomeOK || session.Metadata.Agreement.Ballots == 0 {
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
		SchemaVersion: council.ShadowSchema, SessionID: session.ID, Timestamp: plan.Created,
		Rate: plan.ShadowRate, Wanted: plan.LabelWanted,
		CouncilConfig: plan.Versions.CouncilConfig, Prompt: stage2.ShadowPromptVersion,
		Chairman: synthesis.Model, TopModel: top,
		Lengths: council.ShadowLengths{
			Synthesis: utf8.RuneCountInString(synthesis.Response), Top: utf8.RuneCountInString(text),
		},
		QueryMetadata: r.queryMetadata(), QueryHash: r.queryHash(), QuestionKey: r.questionKey(),
		Reviewers: []council.ShadowReview{},
	}
	in := stage2.Shadow{
		Question: plan.Question(), Synthesis: synthesis.Response, Top: text,
		SynthesisFirst: anonymize.SynthesisFirst(plan.Seed), NewMarkers: r.markers(council.StageShadow),
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

// comparisonShare is how much of a session's time budget a comparison may use, in percent. Stage 2 has the same
// share.
const comparisonShare = 40

// compare asks reviewers which of two texts is better. The argument in has the reviewers and the texts, and spent is
// what the session has used of the plan's limits. The calls may use the rest of the limits, and comparisonShare of the
// time. If nothing is left of the limits, compare returns no reviews. The result short is true if a limit prevented a
// call.
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
	ctx, cancel := context.WithTimeoutCause(
		ctx, plan.Timeout*comparisonShare/100, errors.New("the time for the comparison ran out"),
	)
	defer cancel()
	calls := p.newCalls(plan)
	calls.Account = account
	bounded := &budgeted{Completer: calls}
	reviews = stage2.Compare(ctx, bounded, in, sampling)
	return reviews, bounded.short.Load()
}

// budgeted is a Completer that sets short when a limit prevents a call.
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
