package spend

import (
	"cmp"
	"maps"
	"slices"
)

// This file has the figures that metrics show.

// OtherCouncils stands in bills for every council after the first maxCouncils councils.
const OtherCouncils = "other"

// maxCouncils limits the number of councils that the bills name, because a request may choose any combination of
// members.
const maxCouncils = 50

// bill is the key of a sum of costs.
type bill struct {
	council, model string
	source         CostSource
}

// openBillsLocked begins the bills of a session at 0, so that a reader of the metrics sees each bill before its first
// charge and can compute the increase.
func (b *Book) openBillsLocked(s *Account) {
	s.billed = s.Council
	if !b.councils[s.Council] {
		if len(b.councils) < maxCouncils {
			b.councils[s.Council] = true
		} else {
			s.billed = OtherCouncils
		}
	}
	for _, model := range s.Models {
		for _, source := range []CostSource{SourceProvider, SourceTariff, SourceBound} {
			b.bills[bill{s.billed, model, source}] += 0
		}
	}
}

// billLocked adds a charge of this process to its bill.
func (b *Book) billLocked(s *Account, c Charge) {
	if c.USD != nil {
		key := bill{s.billed, c.Model, c.Source}
		b.bills[key] = b.bills[key].Plus(*c.USD)
	}
}

// Bill is the total cost of the calls that one council made to one model. It adds only costs from one source.
type Bill struct {
	Council string // Opening.Council, or OtherCouncils
	Model   string
	Source  CostSource
	USD     USD
}

// Bills returns what the requests of this process have cost since the process began, ordered by council, model and
// source. Replayed costs and requests without a known cost are not included.
func (b *Book) Bills() []Bill {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Bill, 0, len(b.bills))
	for key, usd := range b.bills {
		all = append(all, Bill{key.council, key.model, key.source, usd})
	}
	slices.SortFunc(all, func(x, y Bill) int {
		return cmp.Or(cmp.Compare(x.Council, y.Council), cmp.Compare(x.Model, y.Model), cmp.Compare(x.Source, y.Source))
	})
	return all
}

// Budget is today's use of one limit. It is also reported if there is no limit.
type Budget struct {
	Scope    string // ScopeDay or ScopeToken
	Token    string // name of the token, or "" in ScopeDay and if the daemon asks for no token
	Limit    *USD   // the limit, or nil
	Used     USD    // certain and uncertain cost
	Reserved USD    // reserved by sessions that run
	Refused  int    // sessions that this process refused because of the limit
}

// Budgets returns today's budget of all sessions, and then today's budget of each token that began a session today. The
// tokens are ordered by name.
func (b *Book) Budgets() []Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	today := b.today()
	budget := func(name, token string, limit *USD, s *scope) Budget {
		return Budget{name, token, limit, s.spent(), s.held, s.refused}
	}
	all := []Budget{budget(ScopeDay, "", b.o.Day, cmp.Or(b.days[today], &scope{}))}
	for _, key := range slices.SortedFunc(maps.Keys(b.tokens), func(x, y [2]string) int { return cmp.Compare(x[1], y[1]) }) {
		if key[0] == today {
			all = append(all, budget(ScopeToken, key[1], b.dayLimits(key[1])[1], b.tokens[key]))
		}
	}
	return all
}

// OverBounds returns, for each model, how many of its requests cost more than their bounds. It includes all models of
// sessions that began in this process.
func (b *Book) OverBounds() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	for key := range b.bills {
		counts[key.model] = b.over[key.model].count
	}
	return counts
}
