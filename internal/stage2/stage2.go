package stage2

import (
	"context"
	"sync"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

// Input is what the reviewers are asked about.
type Input struct {
	Question  string
	Answers   map[string]string // member id -> answer
	Reviewers []council.Member
	Slates    []council.Slate // slate i is shown to reviewer i
	Markers   anonymize.Markers
}

// Options are the sampling parameters of the reviewers' calls; nil leaves the
// provider's own.
type Options struct {
	Temperature     *float64
	MaxOutputTokens *int
}

// Ask has every reviewer read its slate, at once, and waits for all of them.
// Review i belongs to reviewer i; one that fails is a Review with its Failure.
// landed is called once for each review as it comes in, from several goroutines.
func Ask(ctx context.Context, c council.Completer, in Input, o Options, landed func(council.Review)) []council.Review {
	reviews := make([]council.Review, len(in.Reviewers))
	var wg sync.WaitGroup
	for i := range in.Reviewers {
		wg.Go(func() {
			reviews[i] = review(ctx, c, in, i, o)
			landed(reviews[i])
		})
	}
	wg.Wait()
	return reviews
}

func review(ctx context.Context, c council.Completer, in Input, i int, o Options) (r council.Review) {
	r = council.Review{Model: in.Reviewers[i].ID, Slate: in.Slates[i], LabelToModel: in.Slates[i].LabelToModel()}
	defer func() {
		if v := recover(); v != nil {
			r.Status, r.Error = council.OutcomeError, council.Panicked(v)
		}
	}()
	completion, err := c.Complete(ctx, council.Call{
		Stage: council.Stage2, Model: in.Reviewers[i].Model,
		Messages:    prompt(in.Question, r.Slate, in.Answers, in.Markers),
		Temperature: o.Temperature, MaxOutputTokens: o.MaxOutputTokens,
	})
	r.Spent = completion.Spent
	if err != nil {
		r.Status, r.Error = council.OutcomeError, council.AsFailure(err)
		return r
	}
	r.Ranking, r.FinishReason = &completion.Text, completion.Finish()

	ballot, err := ParseBallot(completion.Text, r.Slate.Labels())
	r.ParsedRanking = &ballot
	switch {
	case err != nil:
		r.Status, r.Error = council.OutcomeInvalid, &council.Failure{Code: council.FailInvalidBallot, Message: err.Error()}
	case ballot.Abstained:
		r.Status = council.OutcomeAbstained
	default:
		r.Status = council.OutcomeOK
	}
	return r
}
