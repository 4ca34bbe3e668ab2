package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/decide"
)

// votes completes the plan of a request with questions. Seats vote on the questions, and there is no other stage. The
// seats are the models that the request names. If it names none, they are the reviewers of the council, or the members
// of a council without reviewers. The session leaves no records, and is forgotten when its client has the votes.
func (p *Pipeline) votes(v *validation, r council.Request, plan council.Plan) (council.Plan, error) {
	plan.Side = true
	plan.Rules.Consent = 0
	plan.Rules.DegradedNote = false
	mode := council.ModeCouncil
	if len(r.Models) == 1 {
		mode = council.ModeSingle
	}
	var seats []council.Member
	switch {
	case r.Models != nil:
		seats = p.members(v, r.Models, mode)
	case len(p.o.Reviewers) > 0:
		seats = p.seats(p.o.Reviewers)
	default:
		seats = p.seats(p.o.Models)
	}
	var size int64
	for _, q := range r.Questions {
		size += int64(len(q.Instructions))
		for _, o := range q.Options {
			size += int64(len(o.Text) + len(o.Description))
		}
	}
	if size > p.o.MaxQueryBytes {
		v.add("questions", fmt.Sprintf("the questions have %d bytes, %d are allowed", size, p.o.MaxQueryBytes),
			"shorten them, or raise "+v.settings.Of(council.SettingMaxQueryBytes))
	}
	plan.Stages = []council.StagePlan{{
		Kind: council.KindVotes, Seats: seats, Questions: r.Questions, TimeEnd: 1, MoneyEnd: 1, Prompt: decide.PromptVersion,
	}}
	p.choose(v, r, &plan)
	plan.Seed = p.seed(v, r, plan)
	return plan, v.err()
}

// vote has the seats of a stage vote on its questions, and counts their votes. It returns an error if too few seats
// reply for a quorum.
func (r *run) vote(ctx context.Context, stage council.StagePlan) *council.Error {
	in := decide.Input{
		Text: r.plan.Question(), Questions: stage.Questions, Seats: stage.Seats, Seed: r.plan.Seed,
		NewMarkers: r.markers(council.StageVotes),
	}
	if len(r.authors) == 1 { // The text is a given answer to the question.
		in.Question = in.Text
		in.Text = r.answers[r.authors[0]]
	}
	votes := decide.Prepare(in, r.plan.Rules.ReviewSampling)
	r.calls.Announce(ctx, votes.Calls)
	stageCtx, delivered, cancel := r.stragglerContext(
		ctx, council.StageVotes, len(stage.Seats), endOf(r.plan, council.StageVotes),
	)
	defer cancel()
	r.replies = votes.Ask(stageCtx, r.calls, func(reply decide.Reply) {
		if reply.Error == nil {
			delivered(council.OutcomeOK)
		}
	})
	r.session.Votes = decide.Count(stage.Questions, r.replies)
	if ctx.Err() != nil {
		return r.stop(ctx)
	}
	e := &council.Error{Code: council.CodeNoQuorum}
	var failures []*council.Failure
	for _, reply := range r.replies {
		if reply.Error != nil {
			r.degrade(council.StageVotes, reply.Seat, reply.Error)
			e.Fields = append(e.Fields, seatError(reply.Seat, reply.Error, r.p.o.Settings))
			failures = append(failures, reply.Error)
		}
	}
	replied := len(r.replies) - len(failures)
	if quorum := Quorum(r.plan.Rules.Quorum, len(r.replies)); replied < quorum {
		e.RetryAfter = retryAfter(failures, quorum-replied)
		e.Detail = fmt.Sprintf("%d of %d seats voted, the quorum is %d", replied, len(r.replies), quorum)
		if stageCtx.Err() != nil {
			e.Code = council.CodeDeadline
			e.Detail = "the time for the votes ran out: " + e.Detail
		}
		return e
	}
	r.warnOfFastestOnly(council.StageVotes)
	return r.stop(ctx)
}

// retryAfter returns how long a client should wait before enough of the seats that failed may answer again. The
// argument lacking is the number of answers that are missing for a quorum. The wait is at most maxRetryAfter. It is 0
// if the providers gave a retry time for too few of the failed seats.
func retryAfter(failures []*council.Failure, lacking int) time.Duration {
	var seconds []float64
	for _, f := range failures {
		if f.RetryAfterS != nil {
			seconds = append(seconds, *f.RetryAfterS)
		}
	}
	if len(seconds) < lacking {
		return 0
	}
	slices.Sort(seconds)
	return time.Duration(min(seconds[lacking-1], maxRetryAfter.Seconds()) * float64(time.Second))
}
