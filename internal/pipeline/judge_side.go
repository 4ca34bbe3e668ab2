package pipeline

import (
	"context"
	"errors"
	"sync"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/judge"
)

// judgeSide has the judge of the plan rate the answers beside the reviewers and the chairman, where there is a
// judge and something to compare. It waits for begin, which is called with each reply of a reviewer and, as reviewed,
// after the last of them. Without a limit of cost or tokens the judge begins with the first reply, so that reviewers
// go first; within a limit it begins when all have been paid for, and only where half of the limit is left. finish
// ends the judge, which is cut off where it has not ended by then, so that nobody waits for it, and puts what it said
// into the session.
func (r *run) judgeSide(ctx context.Context) (begin func(reviewed bool), finish func()) {
	rules := r.plan.Rules
	if rules.Judge == nil || len(r.authors) < council.MinCompared {
		return func(bool) {}, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	begun := make(chan struct{})
	var said council.DemographicJudgement
	var wg sync.WaitGroup
	wg.Go(func() {
		failure := protect(r.log, func() {
			select {
			case <-begun:
			case <-ctx.Done():
			}
			said = r.judge(ctx)
		})
		if failure != nil { // it is the judge's own, and logged
			said = unasked(rules, "a defect; the log says more")
		}
	})
	once := sync.OnceFunc(func() { close(begun) })
	begin = func(reviewed bool) {
		if reviewed || r.plan.MaxCostUSD == nil && r.plan.MaxTotalTokens == nil {
			once()
		}
	}
	return begin, func() {
		cancel(errors.New("the session ended before the judge"))
		wg.Wait()
		r.session.Metadata.DemographicJudgement = &said
	}
}

// judge has the judge rate the answers, or says why it is not asked.
func (r *run) judge(ctx context.Context) council.DemographicJudgement {
	rules := r.plan.Rules
	switch {
	case ctx.Err() != nil:
		return unasked(rules, context.Cause(ctx).Error())
	case rules.JudgePrompt != judge.PromptVersion:
		return unasked(rules, "this daemon has another version of the prompt than the one that began the session")
	case r.meter.halfSpent():
		return unasked(rules, "more than half of the session's limit of cost or tokens is spent, and the rest is for the others")
	}
	in := judge.Input{
		Question: r.plan.Question(), Answers: r.answers, Axes: rules.JudgeAxes, Judge: *rules.Judge, Sampling: rules.ReviewSampling,
		Stage: council.StageJudge, Seed: r.plan.Seed, NewMarkers: anonymize.MarkersFrom(r.plan.JudgeKey), Threshold: rules.LexiconLimit,
	}
	in.Calibration = r.calibration(ctx, in.Instrument())
	return judge.Rate(ctx, r.calls, in)
}

// calibration returns the newest calibration of an instrument, nil where there is none or it cannot be read.
func (r *run) calibration(ctx context.Context, instrument council.Calibration) *council.Calibration {
	if r.p.o.Calibration == nil {
		return nil
	}
	c, err := r.p.o.Calibration(instrument)
	if err != nil {
		r.log.WarnContext(ctx, "the calibrations cannot be read: nothing is flagged", "error", err)
	}
	return c
}

// unasked is the judgement of a judge that was not asked.
func unasked(rules council.Rules, why string) council.DemographicJudgement {
	return council.DemographicJudgement{
		Reason: new("the judge was not asked: " + why), Axes: []council.JudgedAxis{}, Model: rules.Judge.Model, Prompt: rules.JudgePrompt,
		Usage: council.NoUsage(),
	}
}
