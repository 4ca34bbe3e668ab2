// Package stage1 asks all members of a council the question, all at the same time. Its caller sets deadlines,
// checks the quorum, and recovers from panics of the Completer.
//
// If the question says in which form the members answer, a [Form] reads their answers.
package stage1

import (
	"context"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

// Options say how the members are called.
type Options struct {
	council.Sampling
	// OnDelta, OnRestart and OnVoid are called like the functions of the same names in council.Call, but also get the
	// id of the member. For several members, these functions are called concurrently.
	OnDelta   func(member, text string)
	OnRestart func(member string, reason council.FailureCode)
	OnVoid    func(member string)
	// DeltaPause has the same meaning as in council.Call.
	DeltaPause time.Duration
}

// Calls returns the call of each member.
func Calls(members []council.Member, conversation []council.Message, o Options) []council.Call {
	calls := make([]council.Call, len(members))
	for i, m := range members {
		calls[i] = o.call(m, conversation)
	}
	return calls
}

// call returns the call of a member.
func (o Options) call(m council.Member, conversation []council.Message) council.Call {
	call := council.Call{
		Stage: council.Stage1, Seat: m.ID, Model: m.Model, Profile: m.Profile,
		Messages: withPersona(m.Profile, conversation), Sampling: m.Sampling(o.Sampling), DeltaPause: o.DeltaPause,
	}
	if o.OnDelta != nil {
		call.OnDelta = func(text string) { o.OnDelta(m.ID, text) }
	}
	if o.OnRestart != nil {
		call.OnRestart = func(reason council.FailureCode) { o.OnRestart(m.ID, reason) }
	}
	if o.OnVoid != nil {
		call.OnVoid = func() { o.OnVoid(m.ID) }
	}
	return call
}

// withPersona puts the persona of a profile before the conversation. If the conversation begins with a system
// message, withPersona joins the persona and that message, because some models take only one system message.
func withPersona(p *council.Profile, conversation []council.Message) []council.Message {
	if p == nil || p.System == "" {
		return conversation
	}
	system := council.Message{Role: council.RoleSystem, Content: p.System}
	if conversation[0].Role == council.RoleSystem {
		system.Content += "\n\n" + conversation[0].Content
		conversation = conversation[1:]
	}
	return append([]council.Message{system}, conversation...)
}

// Ask makes all calls at the same time and waits for them. Answer i belongs to call i. If a member fails, its Answer
// holds the Failure. Ask calls the function landed once for each answer as it arrives, from several goroutines.
func Ask(ctx context.Context, c council.Completer, calls []council.Call, landed func(council.Answer)) []council.Answer {
	answers := make([]council.Answer, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() {
			completion, err := c.Complete(ctx, call)
			answers[i] = council.Answer{
				Model: call.Seat, Spent: completion.Spent, Status: council.OutcomeOK, Response: &completion.Text,
				Reasoning: completion.Thought(), FinishReason: completion.Finish(),
			}
			if err != nil {
				answers[i] = council.Answer{
					Model: call.Seat, Spent: completion.Spent, Status: council.OutcomeError, Error: council.AsFailure(err),
				}
			}
			landed(answers[i])
		})
	}
	wg.Wait()
	return answers
}
