package pipeline

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/councild/councild/internal/council"
)

// PrepareTask turns a request to carry out a task into a Plan, as Prepare does for questions. The members of the council
// are asked in round 1, and its reviewers in round 2, each model once. The error is a *council.Error.
func (p *Pipeline) PrepareTask(r council.TaskRequest) (council.Plan, error) {
	task, err := p.task(r.Name)
	if err != nil {
		return council.Plan{}, err
	}
	mode := council.ModeCouncil
	if len(p.o.Models) == 1 {
		mode = council.ModeSingle
	}
	plan, err := p.Prepare(council.Request{
		Query: r.Preview, Council: r.Council, Seed: r.Seed, TimeoutSeconds: r.TimeoutSeconds, MaxCostUSD: r.MaxCostUSD,
		MaxTotalTokens: r.MaxTotalTokens, DataClass: r.DataClass, Caller: r.Caller, Mode: mode, Whole: true,
	})
	if err != nil {
		return council.Plan{}, err
	}
	members := p.seats(p.o.Models)
	reviewers := members
	if len(p.o.Reviewers) > 0 {
		reviewers = p.seats(p.o.Reviewers)
	}
	reviewers = council.TwinsOf(reviewers, p.o.Same).Once(reviewers)
	first := council.StagePlan{Kind: council.KindTask1, Seats: members, TimeEnd: 0.5, MoneyEnd: 0.5} //nolint:mnd // half
	second := council.StagePlan{Kind: council.KindTask2, Seats: reviewers, TimeEnd: 1, MoneyEnd: 1}
	if prompts := task.Prompts(); len(prompts) > 1 {
		first.Prompt = prompts[0]
		second.Prompt = prompts[1]
	}
	plan.Mode = council.ModeTask
	plan.Stages = []council.StagePlan{first, second}
	plan.Task = &council.TaskPlan{Name: r.Name, Input: r.Input, MaxBytes: p.o.MaxQueryBytes}
	plan.MarkerKey = rand.Text()
	plan.Versions.CouncilConfig = p.o.ConfigVersion + "+" + r.Name
	if p.o.Council != "" {
		plan.Versions.CouncilConfig += "." + p.o.Council + "." + p.o.Hash(members, reviewers)
	}
	plan.Versions.Synthesis = ""
	plan.Sides = nil
	plan.Measured = council.Measured{}
	plan.Rules.SelfReviewRate = 0
	plan.Rules.DegradedNote = false
	plan.Warnings = slices.DeleteFunc(slices.Clone(plan.Warnings), func(w council.Warning) bool {
		return w.Code == council.WarnTwinsJudge
	})
	calls, err := task.Calls(plan, nil)
	if err != nil {
		return council.Plan{}, err
	}
	plan.Task.Idle = len(calls) == 0
	return plan, nil
}

// task returns the task with a name.
func (p *Pipeline) task(name string) (council.Task, error) {
	task := p.o.Tasks[name]
	if task == nil {
		return nil, &council.Error{Code: council.CodeInternal, Detail: "this version of councild has no task " + name}
	}
	return task, nil
}

// round performs one round of the plan's task: it asks all seats of the round at the same time. Seats that fail are
// missing. The task decides whether the others are enough, so that round returns no error for missing seats.
func (r *run) round(ctx context.Context, stage council.StagePlan) *council.Error {
	name := stage.Kind.Stage()
	took := &r.session.Metadata.Timing.Stage1MS
	if name == council.Stage2 {
		took = &r.session.Metadata.Timing.Stage2MS
	}
	defer r.stopwatch(name, took)()
	calls, err := r.roundCalls(stage)
	if err != nil {
		return err
	}
	answers := make([]council.Answer, len(calls))
	if len(calls) > 0 {
		r.calls.Announce(ctx, calls)
		stageCtx, delivered, cancel := r.stragglerContext(ctx, name, len(calls), endOf(r.plan, name))
		defer cancel()
		var wg sync.WaitGroup
		for i, call := range calls {
			wg.Go(func() {
				answers[i] = r.reply(stageCtx, call)
				if name == council.Stage2 {
					r.observe(council.EventBallot, reviewOf(answers[i]))
				} else {
					r.observe(council.EventAnswer, answers[i])
				}
				delivered(answers[i].Status)
			})
		}
		wg.Wait()
	}
	round := council.TaskRound{Replies: make([]council.TaskReply, len(answers))}
	for i, a := range answers {
		round.Replies[i] = council.TaskReply{Seat: a.Model, Spent: a.Spent, Error: a.Error}
		if a.Error != nil {
			r.degrade(name, a.Model, a.Error)
		} else {
			round.Replies[i].Text = *a.Response
		}
		if name == council.Stage2 {
			r.session.Stage2 = append(r.session.Stage2, reviewOf(a))
		} else {
			r.session.Stage1 = append(r.session.Stage1, a)
		}
	}
	r.rounds = append(r.rounds, round)
	if name == council.Stage2 {
		r.observe(council.EventStage2, r.session.Metadata.Tally)
	} else {
		r.observe(council.EventStage1, r.session.Stage1)
	}
	r.warnOfFastestOnly(name)
	return r.stop(ctx)
}

// roundCalls returns the calls of the next round of the plan's task.
func (r *run) roundCalls(stage council.StagePlan) ([]council.Call, *council.Error) {
	task, err := r.p.task(r.plan.Task.Name)
	var calls []council.Call
	if err == nil {
		calls, err = task.Calls(r.plan, r.rounds)
	}
	if err != nil {
		return nil, taskError(err)
	}
	sampling := r.plan.Rules.Sampling
	if stage.Kind == council.KindTask2 {
		sampling = r.plan.Rules.ReviewSampling
	}
	calls = slices.Clone(calls)
	for i := range calls {
		at := slices.IndexFunc(stage.Seats, func(m council.Member) bool { return m.ID == calls[i].Seat })
		if at < 0 {
			return nil, taskError(fmt.Errorf("the task asks %q, which has no seat in %s", calls[i].Seat, stage.Kind.Stage()))
		}
		seat := stage.Seats[at]
		calls[i].Stage = stage.Kind.Stage()
		calls[i].Model = seat.Model
		calls[i].Profile = seat.Profile
		calls[i].Sampling = seat.Sampling(sampling)
	}
	return calls, nil
}

// taskError returns an error of a task as a *council.Error.
func taskError(err error) *council.Error {
	if e, ok := errors.AsType[*council.Error](err); ok {
		return new(*e)
	}
	return &council.Error{Code: council.CodeInternal, Detail: "internal error; the log says more", Cause: err}
}

// reply makes one call of a round. A reply to a prompt that was cut does not count.
func (r *run) reply(ctx context.Context, call council.Call) council.Answer {
	completion, err := r.calls.Complete(ctx, call)
	if err == nil && completion.PromptCut {
		err = &council.Failure{
			Code:    council.FailPromptCut,
			Message: "the server of the model cut the prompt: the seat has not seen the whole text",
		}
	}
	if err != nil {
		return council.Answer{
			Model: call.Seat, Spent: completion.Spent, Status: council.OutcomeError, Error: council.AsFailure(err),
		}
	}
	return council.Answer{
		Model: call.Seat, Spent: completion.Spent, Status: council.OutcomeOK, Response: &completion.Text,
		Reasoning: completion.Thought(), FinishReason: completion.Finish(),
	}
}

// reviewOf returns the reply of a seat in round 2 as a Review. It has no ballot.
func reviewOf(a council.Answer) council.Review {
	return council.Review{
		Model: a.Model, Status: a.Status, LabelToModel: map[council.Label]council.Seat{}, Ranking: a.Response,
		Reasoning: a.Reasoning, FinishReason: a.FinishReason, Spent: a.Spent, Error: a.Error,
	}
}

// endTask adds the result of the plan's task to the session, also if a round failed. It returns the error that ends the
// session, or nil. A session that was cancelled, or that continues in another process, has no result.
func (r *run) endTask(ctx context.Context, failure *council.Error) *council.Error {
	if r.plan.Task == nil || ctx.Err() != nil {
		return failure
	}
	task, err := r.p.task(r.plan.Task.Name)
	if err != nil {
		return cmp.Or(failure, taskError(err))
	}
	result, err := task.Result(r.plan, r.rounds)
	if err != nil {
		return cmp.Or(failure, taskError(err))
	}
	r.session.Task = &council.TaskResult{Name: r.plan.Task.Name, Result: result}
	return failure
}
