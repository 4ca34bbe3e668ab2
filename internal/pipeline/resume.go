package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/councild/councild/internal/calls"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/stage3"
)

// Prompts returns the versions of the prompts that this process has.
func Prompts() []string {
	return []string{stage2.PromptVersion, stage3.PromptVersion, withSchema, runlog.Prompt}
}

// withSchema is the version of the chairman's prompt where the caller gave a schema.
const withSchema = stage3.PromptVersion + "+" + calls.SchemaPromptVersion

// Needs returns the versions of the prompts of each stage that is left in a run. A process that has them can go on with
// the run, whatever its settings are.
func Needs(plan council.Plan, left []council.Stage) (prompts []string) {
	for _, stage := range plan.Stages {
		if stage.Prompt != "" && slices.Contains(left, stage.Kind.Stage()) {
			prompts = append(prompts, stage.Prompt)
		}
	}
	return prompts
}

// keep connects the run to its log. leave ends the run's context.
func (r *run) keep(ctx context.Context, kept *runlog.Log, leave context.CancelCauseFunc) *council.Error {
	r.kept = kept
	r.left = ctx.Done()
	last := kept.Last
	for _, prompt := range Needs(r.plan, kept.State.Stages()) {
		if !slices.Contains(Prompts(), prompt) {
			r.log.WarnContext(ctx, "this version cannot continue the session: it ends with what landed", "prompt", prompt)
			last = true
		}
	}
	r.start = r.start.Add(-kept.State.Elapsed)
	interrupt := func(cause error) *council.Failure {
		leave(&council.Error{
			Code: council.CodeInterrupted, Cause: cause,
			Detail: "the daemon that ran the session is gone, and no other could finish it; what landed can be read",
		})
		return &council.Failure{Code: council.FailInterrupted, Message: "not called: the session was interrupted"}
	}
	r.calls.May = func(ctx context.Context, call *council.Call) *council.Failure {
		switch {
		case call.Stage.IsSide(): // the session does without it
			if last || kept.MayCall(ctx) != nil {
				return &council.Failure{Code: council.FailInterrupted, Message: "not called: this daemon may begin no call of the session"}
			}
			return nil
		case last && call.Stage == council.Stage3: // the best answer can take the place of the synthesis
			return &council.Failure{Code: council.FailInterrupted, Message: "not called: no daemon can go on with the session"}
		case last:
			return interrupt(errors.New("the run may begin no call"))
		default:
			if err := kept.MayCall(ctx); err != nil {
				return interrupt(err)
			}
			return nil
		}
	}
	r.state = kept.State
	if err := r.state.Read(r.plan); err != nil {
		return &council.Error{Code: council.CodeInterrupted, Detail: "the log of the session is damaged", Cause: err}
	}
	r.calls.Log = kept
	r.calls.State = r.state
	r.calls.Observe = r.observe
	r.calls.Last = last
	r.calls.Resume(ctx)
	return nil
}

// stored waits until everything that the run has observed is stored.
func (r *run) stored(ctx context.Context) {
	if r.kept != nil {
		r.kept.Stored(ctx)
	}
}

// voidText voids the text that an earlier process left unfinished, before a writer
// begins again.
func (r *run) voidText(writers []council.Member) {
	if shown, ended := r.state.Text(); shown {
		writer := writers[min(ended, len(writers)-1)]
		r.observe(council.EventRestart, council.Restart{Model: writer.ID, Reason: council.FailInterrupted})
	}
}

// voidAnswers is voidText for the members whose answers did not land: what an earlier
// process has shown of them may not be stored, so the log cannot say who wrote.
func (r *run) voidAnswers() {
	if r.kept == nil || r.state.Open() != council.Stage1 {
		return
	}
	for _, m := range r.plan.Members() { // the log holds the answers of the others: observe leaves these out
		r.observe(council.EventAnswerRestart, council.AnswerRestart{Model: m.ID, Reason: council.FailInterrupted})
	}
}
