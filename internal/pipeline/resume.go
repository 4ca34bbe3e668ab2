package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/councild/councild/internal/calls"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/decide"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/stage3"
)

// Prompts returns the versions of the prompts that this version of councild can send, with those of its tasks.
func Prompts(tasks map[string]council.Task) []string {
	prompts := []string{
		stage2.PromptVersion, stage2.CriteriaPromptVersion, stage3.PromptVersion, stage3.MapPromptVersion,
		withSchema, decide.PromptVersion, runlog.Prompt,
	}
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		prompts = append(prompts, tasks[name].Prompts()...)
	}
	return prompts
}

// withSchema is the version of the chairman's prompt if the caller gave a schema.
const withSchema = stage3.PromptVersion + "+" + calls.SchemaPromptVersion

// Needs returns the versions of the prompts that the remaining stages of a run need. The argument left has these
// stages. A process that has these versions can continue the run, whatever its settings are.
func Needs(plan council.Plan, left []council.Stage) (prompts []string) {
	for _, stage := range plan.Stages {
		if stage.Prompt != "" && slices.Contains(left, stage.Kind.Stage()) {
			prompts = append(prompts, stage.Prompt)
		}
	}
	return prompts
}

// keep connects the run to its log. The calls of the run then look for their outcome in the log first. If this process
// must not continue the run, the next call of the run fails, and keep ends the context of the run with the function
// leave.
func (r *run) keep(ctx context.Context, kept *runlog.Log, leave context.CancelCauseFunc) *council.Error {
	r.kept = kept
	r.left = ctx.Done()
	last := kept.Last
	for _, prompt := range Needs(r.plan, kept.State.Stages()) {
		if !slices.Contains(Prompts(r.p.o.Tasks), prompt) {
			r.log.WarnContext(
				ctx, "this version of councild lacks a prompt that the session needs: the session ends with the outcomes in its log", "prompt", prompt,
			)
			last = true
		}
	}
	r.start = r.start.Add(-kept.State.Elapsed)
	interrupt := func(cause error) *council.Failure {
		leave(&council.Error{
			Code: council.CodeInterrupted, Cause: cause,
			Detail: "the daemon that ran the session is gone, and no other could finish it; the answers so far can be read",
		})
		return &council.Failure{Code: council.FailInterrupted, Message: "not called: the session was interrupted"}
	}
	r.calls.May = func(ctx context.Context, call *council.Call) *council.Failure {
		switch {
		case call.Stage.IsSide(): // The session can end without its sides.
			if last || kept.MayCall(ctx) != nil {
				return &council.Failure{
					Code: council.FailInterrupted, Message: "not called: this daemon may begin no call of the session",
				}
			}
			return nil
		case last && call.Stage == council.Stage3: // The best answer can take the place of the synthesis.
			return &council.Failure{
				Code: council.FailInterrupted, Message: "not called: no daemon can go on with the session",
			}
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

// voidText tells clients to drop the text that an earlier process left unfinished. The run calls voidText before a
// writer begins again.
func (r *run) voidText(writers []council.Member) {
	if shown, ended := r.state.Text(); shown {
		writer := writers[min(ended, len(writers)-1)]
		r.observe(council.EventRestart, council.Restart{Model: writer.ID, Reason: council.FailInterrupted})
	}
}

// voidAnswers tells clients to drop the unfinished answer of every member whose answer is not in the log. An earlier
// process may have shown pieces of answers without storing them, so the log does not say which members had begun to
// write.
func (r *run) voidAnswers(seats []council.Member) {
	if r.kept == nil || r.state.Open() != council.Stage1 {
		return
	}
	for _, m := range seats { // observe leaves out the members whose answers are in the log.
		r.observe(council.EventAnswerRestart, council.AnswerRestart{Model: m.ID, Reason: council.FailInterrupted})
	}
}
