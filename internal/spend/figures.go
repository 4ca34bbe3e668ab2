package spend

import (
	"cmp"
	"maps"
	"slices"
)

// This file has what metrics show of the accounts.

// OtherCouncils is the council of bills beyond the first maxCouncils councils.
const OtherCouncils = "other"

// maxCouncils bounds the councils that bills have: a request may name its members in any combination.
const maxCouncils = 50

// bill is what a sum of costs belongs to.
type bill struct {
	council, model string
	source         CostSource
}

// openBillsLocked begins the bills of a session at 0, so that whoever reads them before its first call
// is charged and afterwards sees what they grew by.
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

// billLocked adds the charge of a request of this process.
func (b *Book) billLocked(s *Account, c Charge) {
	if c.USD != nil {
		key := bill{s.billed, c.Model, c.Source}
		b.bills[key] = b.bills[key].Plus(*c.USD)
	}
}

// Bill is what a council's calls to a model cost, as far as that is from one source.
type Bill struct {
	Council string // Opening.Council, or OtherCouncils
	Model   string
	Source  CostSource
	USD     USD
}

// Bills returns what the requests of this process cost since it began, in the order of councils, models
// and sources. What was replayed is not in them, and requests whose cost nobody knows are not.
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

// Budget is what counts against a limit of today, whether or not there is one.
type Budget struct {
	Scope    string // ScopeDay or ScopeToken
	Token    string // its name; "" in ScopeDay, and where no token is asked for
	Limit    *USD   // nil: none
	Used     USD    // certain and uncertain
	Reserved USD    // by sessions that run
	Refused  int    // sessions that this process refused because of the limit
}

// Budgets returns what counts today: of all sessions, and of each token that began a session today, in
// the order of their names.
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

// OverBounds returns how many bills of each model were above the bounds of their requests, of the models
// of all sessions that began in this process.
func (b *Book) OverBounds() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	for key := range b.bills {
		counts[key.model] = b.over[key.model].count
	}
	return counts
}
