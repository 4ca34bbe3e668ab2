package pipeline

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/councild/councild/internal/council"
)

// meter is the Completer of one run. It starts no call after the budget is spent, adds
// up what the calls consumed, and limits what the session holds in memory.
type meter struct {
	council.Completer
	plan     council.Plan
	maxBytes int64 // of held; 0: no limit
	settings council.SettingNames

	mu            sync.Mutex    // guards all below
	spent         council.Usage // by all calls so far
	costUnknown   bool
	tokensUnknown bool
	byStage       map[council.Stage]council.Usage
	byModel       map[string]council.Usage
	held          int64 // bytes: the question, the replies so far, and the prompts on their way
}

func newMeter(o Options, plan council.Plan) *meter {
	return &meter{
		Completer: o.Completer, plan: plan, maxBytes: o.MaxSessionBytes, settings: o.Settings,
		held: int64(len(plan.Question())), spent: council.NoUsage(), byModel: map[string]council.Usage{},
		byStage: map[council.Stage]council.Usage{
			council.Stage1: council.NoUsage(), council.Stage2: council.NoUsage(), council.Stage3: council.NoUsage(),
		},
	}
}

// Complete performs call if the budget and the session's size allow it. A call that
// was started may exceed the budget. A reply for which the session has no room is not
// kept. A panic in the call becomes its failure.
func (m *meter) Complete(ctx context.Context, call council.Call) (completion council.Completion, err error) {
	defer func() {
		if v := recover(); v != nil {
			completion, err = council.Completion{}, council.Panicked(v)
		}
	}()
	uncalled := council.Completion{Spent: council.Spent{Usage: council.NoUsage()}}
	if m.overBudget() {
		return uncalled, &council.Failure{Code: council.FailBudget, Message: "not called: the session's budget is spent"}
	}
	var prompt int64
	for _, message := range call.Messages {
		prompt += int64(len(message.Content))
	}
	if !m.hold(prompt) {
		return uncalled, m.full("not called: with the prompt")
	}
	completion, err = func() (council.Completion, error) {
		defer m.release(prompt) // also when the call panics
		return m.Completer.Complete(ctx, call)
	}()
	m.add(call, completion.Usage)
	if err == nil && !m.hold(int64(len(completion.Text))) {
		completion.Text, err = "", m.full("not kept: with the reply")
	}
	return completion, err
}

// hold takes room for so many bytes more, and reports whether there was enough.
func (m *meter) hold(bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.maxBytes > 0 && bytes > m.maxBytes-m.held {
		return false
	}
	m.held += bytes
	return true
}

func (m *meter) release(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= bytes
}

func (m *meter) full(what string) *council.Failure {
	return &council.Failure{
		Code: council.FailTooLarge,
		Message: fmt.Sprintf("%s the session would hold more than %d bytes: raise %s",
			what, m.maxBytes, m.settings.Of(council.SettingMaxSessionBytes)),
	}
}

func (m *meter) overBudget() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	cost := m.spent.CostUSD
	return m.plan.MaxCostUSD != nil && cost != nil && *cost >= *m.plan.MaxCostUSD ||
		m.plan.MaxTotalTokens != nil && m.spent.Tokens() >= *m.plan.MaxTotalTokens
}

func (m *meter) add(call council.Call, u council.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.costUnknown = m.costUnknown || u.CostUSD == nil || u.Partial
	m.tokensUnknown = m.tokensUnknown || u.InputTokens == nil || u.OutputTokens == nil || u.Partial
	m.spent = m.spent.Plus(u)
	m.byStage[call.Stage] = m.byStage[call.Stage].Plus(u)
	if before, ok := m.byModel[call.Model]; ok {
		u = before.Plus(u)
	}
	m.byModel[call.Model] = u
}

// total returns the usage so far.
func (m *meter) total() council.TotalUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return council.TotalUsage{ByStage: maps.Clone(m.byStage), ByModel: maps.Clone(m.byModel), Total: m.spent, CostUSD: m.spent.CostUSD}
}

// warnings says which limits could not be enforced in full.
func (m *meter) warnings() []council.Warning {
	m.mu.Lock()
	defer m.mu.Unlock()
	var w []council.Warning
	if m.plan.MaxCostUSD != nil && m.costUnknown {
		w = append(w, council.Warning{
			Code:    council.WarnCostUnknown,
			Message: "a cost limit is set, but not every provider says what its calls cost: unknown costs count as nothing",
		})
	}
	if m.plan.MaxTotalTokens != nil && m.tokensUnknown {
		w = append(w, council.Warning{
			Code:    council.WarnTokensUnknown,
			Message: "a token limit is set, but not every provider reports its tokens: unknown ones count as nothing",
		})
	}
	return w
}
