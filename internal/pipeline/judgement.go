package pipeline

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/judge"
)

// JudgeSeat returns the member that rates how answers differ; false where the options name none.
func (p *Pipeline) JudgeSeat() (council.Member, bool) {
	if p.o.Judge == "" {
		return council.Member{}, false
	}
	return p.seats([]string{p.o.Judge})[0], true
}

// Judgement has the judge rate answers outside of any session, within the time and the limits of cost of
// one. What it costs is charged to the token of the request. The error says why it was not asked: a limit
// of cost, a model without a price, or the end of ctx.
func (p *Pipeline) Judgement(ctx context.Context, token string, in judge.Input) (j council.DemographicJudgement, failure *council.Error) {
	in.Stage, in.Sampling, in.NewMarkers = council.StageJudge, p.o.ReviewSampling, anonymize.MarkersFrom("")
	var texts strings.Builder
	for _, text := range in.Answers {
		texts.WriteString(text)
	}
	rules := p.rules
	rules.BallotRepair, rules.Judge = false, nil
	// The plan of the two calls alone: what they can cost, and their limits.
	plan := council.Plan{
		SessionID: p.o.NewID(), Created: time.Now().UTC(), Timeout: p.o.Timeout, Rules: rules, Versions: p.made, CouncilName: p.o.Council,
		Conversation: []council.Message{{Role: council.RoleUser, Content: in.Question + texts.String()}},
		Reviewers:    []council.Member{in.Judge, in.Judge}, MaxCostUSD: p.o.MaxCostUSD, MaxTotalTokens: p.o.MaxTotalTokens, Token: token,
	}
	if failure := p.Open(ctx, plan); failure != nil {
		return j, failure
	}
	defer p.Drop(context.WithoutCancel(ctx), plan.SessionID)
	bounded, cancel := context.WithTimeoutCause(ctx, plan.Timeout, errors.New("the time for the judge ran out"))
	defer cancel()
	j = judge.Rate(bounded, newMeter(p.o, plan), in)
	if ctx.Err() != nil {
		return j, &council.Error{Code: council.CodeCancelled, Detail: "the request was cancelled", Cause: context.Cause(ctx)}
	}
	return j, nil
}
