package pipeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage1"
)

// maxRetryAfter is the longest wait that an error may ask of its caller. Some providers name dates that are years away.
const maxRetryAfter = time.Hour

// answerPause is the least time between two pieces of one member's answer. With this pause, nine members that write at
// the same time cause fewer events than one chairman, and a client still sees each member write.
const answerPause = 250 * time.Millisecond

// take uses the answers that the stage's plan already holds, and makes no calls. If the plan also holds reviews of
// these answers, take uses the reviews too.
func (r *run) take(stage council.StagePlan) *council.Error {
	for _, m := range stage.Seats {
		text, ok := stage.Given[m.ID]
		if !ok {
			continue
		}
		r.calls.Memory.Hold(int64(len(text)))
		r.authors = append(r.authors, m.ID)
		r.answers[m.ID] = text
		a := council.Answer{
			Model: m.ID, Status: council.OutcomeOK, Response: &text, Spent: council.Spent{Usage: council.NoUsage()}, Given: true,
		}
		r.session.Stage1 = append(r.session.Stage1, a)
		r.observe(council.EventAnswer, a)
	}
	if given := stage.Reviews; given != nil {
		r.session.Stage2 = given.Reviews
		r.session.Metadata.Agreement = given.Agreement
		r.session.Metadata.AggregateRankings = given.Standings
	}
	if r.plan.Seats(council.KindAnswers) != nil {
		return nil
	}
	return r.quorum(false)
}

// ask asks the seats of a stage for their answers. It returns an error if too few seats answer for a quorum.
func (r *run) ask(ctx context.Context, stage council.StagePlan) *council.Error {
	defer r.stopwatch(council.Stage1, &r.session.Metadata.Timing.Stage1MS)()
	seats := stage.Seats
	if r.plan.First > 0 {
		asked, failure := r.askFirst(ctx, seats)
		if failure != nil {
			return failure
		}
		if seats = seats[asked:]; r.decided() {
			seats = nil
		}
	}
	late, failure := r.askSeats(ctx, seats, len(stage.Seats), endOf(r.plan, council.Stage1))
	if failure != nil {
		return failure
	}
	var short []string
	for _, a := range r.session.Stage1 {
		if a.FinishReason != nil && *a.FinishReason == "length" && a.Error == nil {
			short = append(short, a.Model)
		}
	}
	r.observe(council.EventStage1, r.session.Stage1)
	if len(short) > 0 {
		r.warn(council.WarnAnswerCutShort, "cut off at the token limit: the answers of "+strings.Join(short, ", "))
	}
	if ctx.Err() != nil {
		return r.stop(ctx)
	}
	if r.plan.Mode == council.ModeSingle && r.plan.Output != nil && len(r.authors) == 0 {
		return r.noValidOutput(r.session.Degradation)
	}
	if r.decided() {
		return r.stop(ctx)
	}
	if failure := r.quorum(late); failure != nil {
		return failure
	}
	r.warnOfFastestOnly(council.Stage1)
	return r.stop(ctx)
}

// askFirst asks the members that begin, and notes whether their answers decide the session. They have half of the time
// for answers, because the other members may need the rest. It returns how many members it has asked. If answers cannot
// be compared, it asks no member.
func (r *run) askFirst(ctx context.Context, seats []council.Member) (asked int, failure *council.Error) {
	meta := &r.session.Metadata
	if n := r.plan.First; n == 1 || r.plan.Form != nil {
		if _, failure := r.askSeats(ctx, seats[:n], n, endOf(r.plan, council.Stage1)/2); failure != nil { //nolint:mnd // half
			return n, failure
		}
		meta.First = new(First(r.plan, r.session.Stage1))
		asked = n
	} else {
		meta.First = &council.FirstAsked{Asked: []string{}, Convened: true, Why: council.FirstNoForm}
	}
	if ctx.Err() == nil {
		r.observe(council.EventFirst, *meta.First)
	}
	return asked, r.stop(ctx)
}

// askSeats asks some seats of a stage at the same time. It waits until the run has taken the time end, or until a
// quorum of n seats has answered and the grace period is over. The result late says that the time ran out.
func (r *run) askSeats(
	ctx context.Context, seats []council.Member, n int, end time.Duration,
) (late bool, failure *council.Error) {
	if len(seats) == 0 {
		return false, nil
	}
	stageCtx, delivered, cancel := r.stragglerContext(ctx, council.Stage1, n, end)
	defer cancel()
	single := r.plan.Mode == council.ModeSingle
	o := stage1.Options{Sampling: r.plan.Rules.Sampling}
	switch {
	case single && r.plan.Deltas:
		r.voidText(seats)
		o.OnDelta = func(member, text string) {
			// A resumed session validates a JSON reply from its log again, which calls OnDelta again. The client has
			// seen an answer that the log holds.
			if !r.state.Answered(member) {
				r.observe(council.EventDelta, council.Delta{Text: text})
			}
		}
		o.OnVoid = func(member string) {
			r.observe(council.EventRestart, council.Restart{Model: member, Reason: council.FailThinking})
		}
	case r.plan.AnswerDeltas:
		r.voidAnswers(seats)
		o.DeltaPause = answerPause
		o.OnDelta = func(member, text string) {
			r.observe(council.EventAnswerDelta, council.AnswerDelta{Model: member, Text: text})
		}
		o.OnRestart = func(member string, reason council.FailureCode) {
			r.observe(council.EventAnswerRestart, council.AnswerRestart{Model: member, Reason: reason})
		}
		o.OnVoid = func(member string) { o.OnRestart(member, council.FailThinking) }
	}
	var members council.Completer = r.calls
	calls := stage1.Calls(seats, r.plan.Asked(), o)
	if single {
		if members, failure = r.writers(ctx); failure != nil {
			return false, failure
		}
	} else {
		r.calls.Announce(ctx, calls)
	}
	answers := stage1.Ask(stageCtx, members, calls, func(a council.Answer) {
		r.observe(council.EventAnswer, a)
		delivered(a.Status)
	})
	for _, a := range answers {
		if a.Error != nil {
			r.degrade(council.Stage1, a.Model, a.Error)
			continue
		}
		r.authors = append(r.authors, a.Model)
		r.answers[a.Model] = *a.Response
	}
	r.session.Stage1 = append(r.session.Stage1, answers...)
	return stageCtx.Err() != nil, nil
}

// quorum returns an error if too few members answered. The argument late says that the time for answers ran out.
func (r *run) quorum(late bool) *council.Error {
	members := len(r.plan.Members())
	quorum := Quorum(r.plan.Rules.Quorum, members)
	if len(r.authors) >= quorum {
		return nil
	}
	e := &council.Error{
		Code:   council.CodeNoQuorum,
		Detail: fmt.Sprintf("%d of %d members answered, the quorum is %d", len(r.authors), members, quorum),
	}
	var failures []*council.Failure
	for _, a := range r.session.Stage1 {
		if a.Error != nil {
			e.Fields = append(e.Fields, seatError(a.Model, a.Error, r.p.o.Settings))
			failures = append(failures, a.Error)
		}
	}
	e.RetryAfter = retryAfter(failures, quorum-len(r.authors))
	if late {
		e.Code = council.CodeDeadline
		e.Detail = "the time for the answers ran out: " + e.Detail
	}
	return e
}
