// Package stage1 asks all members of a council the question, at once. It leaves
// deadlines and the quorum to its caller.
package stage1

import (
	"context"
	"sync"

	"github.com/councild/councild/internal/council"
)

// Ask puts the conversation to every member and waits for all of them. Answer i
// belongs to member i; a member that fails is an Answer with its Failure. landed
// is called once for each answer as it comes in, from several goroutines.
func Ask(ctx context.Context, c council.Completer, members []council.Member, conversation []council.Message, o council.Sampling, landed func(council.Answer)) []council.Answer {
	answers := make([]council.Answer, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			answers[i] = ask(ctx, c, m, conversation, o)
			landed(answers[i])
		})
	}
	wg.Wait()
	return answers
}

func ask(ctx context.Context, c council.Completer, m council.Member, conversation []council.Message, o council.Sampling) (a council.Answer) {
	defer func() {
		if v := recover(); v != nil {
			a = council.Answer{Model: m.ID, Status: council.OutcomeError, Error: council.Panicked(v)}
		}
	}()
	completion, err := c.Complete(ctx, council.Call{Stage: council.Stage1, Model: m.Model, Messages: conversation, Sampling: o})
	a = council.Answer{Model: m.ID, Spent: completion.Spent}
	if err != nil {
		a.Status, a.Error = council.OutcomeError, council.AsFailure(err)
		return a
	}
	a.Status, a.Response, a.FinishReason = council.OutcomeOK, &completion.Text, completion.Finish()
	return a
}
