package pipeline

import (
	"context"
	"fmt"
	"slices"
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
		if text, ok := stage.Given[m.ID]; ok {
			r.authors = append(r.authors, m.ID)
			r.answers[m.ID] = text
		}
	}
	if quorum := Quorum(r.plan.Rules.Quorum, len(stage.Seats)); len(r.authors) < quorum {
		return &council.Error{
			Code:   council.CodeNoQuorum,
			Detail: fmt.Sprintf("%d of %d members answered, the quorum is %d", len(r.authors), len(stage.Seats), quorum),
		}
	}
	if given := stage.Reviews; given != nil {
		r.session.Stage2 = given.Reviews
		r.session.Metadata.Agreement = given.Agreement
		r.session.Metadata.AggregateRankings = given.Standings
	}
	return nil
}

// ask asks the seats of a stage for their answers. It returns an error if too few seats answer for a quorum.
func (r *run) ask(ctx context.Context, stage council.StagePlan) *council.Error {
	defer r.stopwatch(council.Stage1, &r.session.Metadata.Timing.Stage1MS)()
	stageCtx, delivered, cancel := r.stragglerContext(ctx, council.Stage1, len(stage.Seats))
	defer cancel()
	o := stage1.Options{Sampling: r.plan.Rules.Sampling}
	switch {
	case r.plan.Direct() && r.plan.Deltas:
		r.voidText(stage.Seats)
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
		r.voidAnswers()
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
	calls := stage1.Calls(stage.Seats, r.plan.Conversation, o)
	if r.plan.Direct() {
		writers, failure := r.writers(ctx)
		if failure != nil {
			return failure
		}
		members = writers
	} else {
		r.calls.Announce(ctx, calls)
	}
	r.session.Stage1 = stage1.Ask(stageCtx, members, calls, func(a council.Answer) {
		r.observe(council.EventAnswer, a)
		delivered(a.Status)
	})

	var failed []council.FieldError
	var short []string
	for _, a := range r.session.Stage1 {
		if a.Error != nil {
			r.degrade(council.Stage1, a.Model, a.Error)
			failed = append(failed, seatError(a.Model, a.Error, r.p.o.Settings))
			continue
		}
		r.authors = append(r.authors, a.Model)
		r.answers[a.Model] = *a.Response
		if a.FinishReason != nil && *a.FinishReason == "length" {
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
	if r.plan.Direct() && r.plan.Output != nil && len(r.authors) == 0 {
		return r.noValidOutput(r.session.Degradation)
	}
	if quorum := Quorum(r.plan.Rules.Quorum, len(stage.Seats)); len(r.authors) < quorum {
		e := &council.Error{
			Code: council.CodeNoQuorum, Fields: failed, RetryAfter: r.retryAfter(quorum - len(r.authors)),
			Detail: fmt.Sprintf("%d of %d members answered, the quorum is %d", len(r.authors), len(stage.Seats), quorum),
		}
		if stageCtx.Err() != nil {
			e.Code = council.CodeDeadline
			e.Detail = "the time for the answers ran out: " + e.Detail
		}
		return e
	}
	r.warnOfFastestOnly(council.Stage1)
	return r.stop(ctx)
}

// retryAfter returns how long a client should wait before enough of the failed members may answer again. The argument
// lacking is the number of answers that are missing for a quorum. The wait is at most maxRetryAfter. It is 0 if the
// providers gave a retry time for too few of the failed members.
func (r *run) retryAfter(lacking int) time.Duration {
	var seconds []float64
	for _, a := range r.session.Stage1 {
		if a.Error != nil && a.Error.RetryAfterS != nil {
			seconds = append(seconds, *a.Error.RetryAfterS)
		}
	}
	if len(seconds) < lacking {
		return 0
	}
	slices.Sort(seconds)
	return time.Duration(min(seconds[lacking-1], maxRetryAfter.Seconds()) * float64(time.Second))
}
