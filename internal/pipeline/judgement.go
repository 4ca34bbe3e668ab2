package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
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
	in.Stage = council.StageJudge
	in.Sampling = p.o.ReviewSampling
	in.NewMarkers = anonymize.MarkersFrom("")
	texts := in.Question + strings.Join(slices.Collect(maps.Values(in.Answers)), "")
	failure = p.outside(ctx, token, texts, []council.Member{in.Judge, in.Judge}, in.Sampling, func(ctx context.Context, calls council.Completer) {
		j = judge.Rate(ctx, calls, in)
	})
	return j, failure
}

// Embedded has answers embedded, as Judgement asks a judge. Fewer than council.MinClustered are not, because nothing
// could be said of them.
func (p *Pipeline) Embedded(ctx context.Context, token string, answers map[string]string) (e disagreement.Embedded, failure *council.Error) {
	e = disagreement.Embedded{Model: p.o.EmbeddingModel, Usage: council.NoUsage()}
	if len(answers) < council.MinClustered {
		return e, nil
	}
	ids := slices.Sorted(maps.Keys(answers))
	texts := embedded(ids, answers)
	seats := []council.Member{{ID: e.Model, Model: e.Model}}
	noOutput := council.Sampling{MaxOutputTokens: new(int)}
	failure = p.outside(ctx, token, strings.Join(texts, ""), seats, noOutput, func(ctx context.Context, calls council.Completer) {
		reply, err := calls.Complete(ctx, council.Call{
			Stage: council.StageEmbedding, Seat: council.SeatEmbedding, Model: e.Model, Texts: texts,
		})
		e.Usage = reply.Usage
		var cosines map[[2]string]float64
		if err == nil {
			cosines, err = readCosines(ids, reply.Text)
		}
		if err != nil {
			e.Missing = err.Error()
			return
		}
		e.Cosine = func(a, b string) float64 { return cosines[[2]string{a, b}] }
	})
	return e, failure
}

// outside does work that calls each of the seats once with prompts made of texts, outside of any session and within
// the time and the limits of cost of one.
func (p *Pipeline) outside(
	ctx context.Context, token, texts string, seats []council.Member, sampling council.Sampling, work func(context.Context, council.Completer),
) *council.Error {
	rules := p.rules
	rules.BallotRepair = false
	rules.Judge = nil
	rules.ClusterRule = ""
	rules.EmbeddingModel = ""
	rules.ReviewSampling = sampling
	// The plan of these calls alone: what they can cost, and their limits.
	plan := council.Plan{
		SessionID: p.o.NewID(), Created: time.Now().UTC(), Timeout: p.o.Timeout, Rules: rules, Versions: p.made, CouncilName: p.o.Council,
		Conversation: []council.Message{{Role: council.RoleUser, Content: texts}},
		Reviewers:    seats, MaxCostUSD: p.o.MaxCostUSD, MaxTotalTokens: p.o.MaxTotalTokens, Token: token,
	}
	if failure := p.Open(ctx, plan); failure != nil {
		return failure
	}
	defer p.Drop(context.WithoutCancel(ctx), plan.SessionID)
	bounded, cancel := context.WithTimeoutCause(ctx, plan.Timeout, errors.New("the time to compare the answers ran out"))
	defer cancel()
	work(bounded, similarities{newMeter(p.o, plan)})
	if ctx.Err() != nil {
		return &council.Error{Code: council.CodeCancelled, Detail: "the request was cancelled", Cause: context.Cause(ctx)}
	}
	return nil
}
