package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/councild/councild/internal/council"
)

// meter is the Completer of one run. It starts no call after the budget is spent, adds
// up what the calls consumed, and limits what the session holds in memory.
//
// A run that was taken over makes calls that an earlier process may have begun. Nobody
// knows what those consumed: in the totals they are missing, which are partial then, and
// against the limit of tokens they count with the most that they can have consumed. They
// do not stop the calls that repeat them.
type meter struct {
	council.Completer
	plan     council.Plan
	settings council.SettingNames
	mayCall  func(context.Context, council.Call) *council.Failure // why a call must not begin now, or nil; nil: every call may
	open     council.Stage                                        // whose calls may have been in flight at a takeover; "": none

	mu            sync.Mutex    // guards all below
	spent         council.Usage // by all calls so far
	paid          int           // calls that consumed something, or of which that is not known
	costUnknown   bool
	tokensUnknown bool
	byStage       map[council.Stage]council.Usage
	byModel       map[string]council.Usage
	held          int64  // bytes: the question, the replies so far, and the prompts on their way
	repeated      []seat // whose calls are made again
	lostTokens    int64  // the most that the calls before these can have consumed, where that is known
}

func newMeter(o Options, plan council.Plan) *meter {
	return &meter{
		Completer: o.Completer, plan: plan, settings: o.Settings,
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
			completion = council.Completion{}
			err = council.Panicked(v)
		}
	}()
	var prompt int64
	for _, message := range call.Messages {
		prompt += int64(len(message.Content))
	}
	for _, text := range call.Texts {
		prompt += int64(len(text))
	}
	call.Session = m.plan.SessionID
	call.Lost = m.repeats(call, prompt)
	if refusal := m.refuse(ctx, &call, prompt); refusal != nil {
		if call.Lost { // what the other process may have sent counts all the same
			call.MayBegin = func(context.Context) *council.Failure { return refusal }
			_, _ = m.Completer.Complete(ctx, call)
		}
		return council.Completion{Spent: council.Spent{Usage: council.NoUsage()}}, refusal
	}
	completion, err = m.completeWith(ctx, call, prompt)
	m.add(call.Stage, call.Model, completion.Usage)
	if err == nil && !m.hold(int64(len(completion.Text))) {
		completion.Text = ""
		err = m.full("not kept: with the reply")
	}
	if err != nil || !m.hold(int64(len(completion.Reasoning))) { // the session does without it
		completion.Reasoning = ""
	}
	return completion, err
}

// completeWith performs the call. The bytes of its prompt stay reserved until it returns.
func (m *meter) completeWith(ctx context.Context, call council.Call, prompt int64) (council.Completion, error) {
	defer m.release(prompt) // also when the call panics
	return m.Completer.Complete(ctx, call)
}

// refuse returns why a call must not begin, or nil: then its prompt takes room.
func (m *meter) refuse(ctx context.Context, call *council.Call, prompt int64) *council.Failure {
	if m.overBudget(call.Lost) {
		return &council.Failure{Code: council.FailBudget, Message: "not called: the session's budget is spent"}
	}
	if m.mayCall != nil {
		asked := *call
		call.MayBegin = func(ctx context.Context) *council.Failure { return m.mayCall(ctx, asked) }
		if failure := call.MayBegin(ctx); failure != nil {
			return failure
		}
	}
	if !m.hold(prompt) {
		return m.full("not called: with the prompt")
	}
	return nil
}

// hold takes room for so many bytes more, and reports whether there was enough.
func (m *meter) hold(bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if limit := m.plan.Rules.MaxSessionBytes; limit > 0 && bytes > limit-m.held {
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
			what, m.plan.Rules.MaxSessionBytes, m.settings.Of(council.SettingMaxSessionBytes)),
	}
}

// repeats reports whether an earlier process may have made the same call, and counts that
// one the first time. A token has a byte at least.
func (m *meter) repeats(call council.Call, prompt int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	this := seat{call.Stage, call.Seat}
	open := call.Stage == m.open
	counted := slices.Contains(m.repeated, this)
	if call.Stage == council.Stage3 { // one seat, in which models take turns
		this.name = call.Model
		counted = slices.ContainsFunc(m.repeated, func(other seat) bool { return other.stage == council.Stage3 })
	}
	if call.Stage.IsSide() {
		open = m.open == council.Stage2 || m.open == council.Stage3
	}
	if !open || counted {
		return false
	}
	m.repeated = append(m.repeated, this)
	unknown := m.tokensUnknown || call.MaxOutputTokens == nil && call.Texts == nil
	m.addLocked(call.Stage, call.Model, council.Usage{})
	m.tokensUnknown = unknown
	m.lostTokens += prompt
	if call.MaxOutputTokens != nil {
		m.lostTokens += int64(*call.MaxOutputTokens)
	}
	return true
}

// seat is a seat of a stage whose calls are counted.
type seat struct {
	stage council.Stage
	name  string
}

// overBudget reports whether nothing is left of the budget. The lost tokens do not count
// against a call that repeats one.
func (m *meter) overBudget(repeats bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := m.lostTokens
	if repeats {
		lost = 0
	}
	cost := m.spent.CostUSD
	return m.plan.MaxCostUSD != nil && cost != nil && *cost >= *m.plan.MaxCostUSD ||
		m.plan.MaxTotalTokens != nil && m.spent.Tokens() >= *m.plan.MaxTotalTokens-lost
}

// halfSpent reports whether half of a limit of the budget is spent.
func (m *meter) halfSpent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	cost := m.spent.CostUSD
	return m.plan.MaxCostUSD != nil && cost != nil && *cost >= *m.plan.MaxCostUSD/2 ||
		m.plan.MaxTotalTokens != nil && m.spent.Tokens()+m.lostTokens >= *m.plan.MaxTotalTokens/2
}

func (m *meter) add(stage council.Stage, model string, u council.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addLocked(stage, model, u)
}

func (m *meter) addLocked(stage council.Stage, model string, u council.Usage) {
	m.costUnknown = m.costUnknown || u.CostUSD == nil || u.Partial
	m.tokensUnknown = m.tokensUnknown || u.InputTokens == nil || u.OutputTokens == nil || u.Partial
	m.spent = m.spent.Plus(u)
	if !u.None() {
		m.paid++
	}
	addTo(m.byStage, stage, u)
	addTo(m.byModel, model, u)
}

// addTo adds to one of several sums.
func addTo[K comparable](sums map[K]council.Usage, key K, u council.Usage) {
	if before, ok := sums[key]; ok {
		u = before.Plus(u)
	}
	sums[key] = u
}

// total returns the usage so far.
func (m *meter) total() council.TotalUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return council.TotalUsage{ByStage: maps.Clone(m.byStage), ByModel: maps.Clone(m.byModel), Total: m.spent, CostUSD: m.spent.CostUSD}
}

// paidCalls returns how many calls so far a provider may have billed.
func (m *meter) paidCalls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paid
}

// warnings says which calls may have been paid twice, and which limits could not be
// enforced in full.
func (m *meter) warnings() []council.Warning {
	m.mu.Lock()
	defer m.mu.Unlock()
	var w []council.Warning
	if len(m.repeated) > 0 {
		var names []string
		for _, s := range m.repeated {
			names = append(names, s.name)
		}
		slices.Sort(names)
		w = append(w, council.Warning{
			Code: council.WarnTakenOver,
			Message: fmt.Sprintf("the session was taken over from a daemon that was gone: these calls of %s may have been paid twice: %s",
				m.open, strings.Join(names, ", ")),
		})
	}
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
