package spend

import (
	"maps"
	"sync"

	"github.com/councild/councild/internal/council"
)

// sums are what the calls of a session consumed, for the JSON of the session. Unknown figures are left out, and the
// sums are then partial. The amounts that count against limits are not kept here. They use an upper bound for each
// unknown figure.
type sums struct {
	mu            sync.Mutex // guards all fields below
	total         council.Usage
	paid          int // calls that consumed something, or may have
	costUnknown   bool
	tokensUnknown bool
	byStage       map[council.Stage]council.Usage
	byModel       map[string]council.Usage
}

// noSums returns empty sums.
func noSums() sums {
	return sums{
		total: council.NoUsage(), byModel: map[string]council.Usage{},
		byStage: map[council.Stage]council.Usage{
			council.Stage1: council.NoUsage(), council.Stage2: council.NoUsage(), council.Stage3: council.NoUsage(),
		},
	}
}

// Nothing returns the account of a session that did not begin. Reserve always fails on this account.
func Nothing() *Account { return &Account{sums: noSums()} }

// Count adds the consumption of a call.
func (s *Account) Count(stage council.Stage, model string, u council.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(stage, model, u)
}

func (s *sums) addLocked(stage council.Stage, model string, u council.Usage) {
	s.costUnknown = s.costUnknown || u.CostUSD == nil || u.Partial
	s.tokensUnknown = s.tokensUnknown || u.InputTokens == nil || u.OutputTokens == nil || u.Partial
	s.total = s.total.Plus(u)
	if !u.None() {
		s.paid++
	}
	addTo(s.byStage, stage, u)
	addTo(s.byModel, model, u)
}

// addTo adds the usage u to the sum of a key.
func addTo[K comparable](sums map[K]council.Usage, key K, u council.Usage) {
	if before, ok := sums[key]; ok {
		u = before.Plus(u)
	}
	sums[key] = u
}

// lose notes a request whose consumption is not known. If l.Tokens is set, the tokens of the session still count as
// known, because the token limit counts l.Tokens.
func (s *sums) lose(l Lost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := s.tokensUnknown || l.Tokens == 0
	s.addLocked(l.Stage, l.Model, council.Usage{})
	s.tokensUnknown = unknown
}

// Usage returns what the calls of the session have consumed so far.
func (s *Account) Usage() council.TotalUsage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return council.TotalUsage{
		ByStage: maps.Clone(s.byStage),
		ByModel: maps.Clone(s.byModel),
		Total:   s.total,
		CostUSD: s.total.CostUSD,
	}
}

// Paid returns how many calls so far may have been billed by a provider.
func (s *Account) Paid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paid
}

// Unknown reports whether the cost of some call is not known, and whether the tokens of some call are not known.
func (s *Account) Unknown() (cost, tokens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.costUnknown, s.tokensUnknown
}

// HalfSpent reports whether half of the session's cost limit or token limit is used.
func (s *Account) HalfSpent() bool {
	if s.b == nil {
		return false
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.Limit != nil && s.spent() >= *s.Limit/2 ||
		s.MaxTokens != nil && s.Usage().Total.Tokens()+s.lostTokens >= *s.MaxTokens/2
}
