package spend

import (
	"fmt"
	"strings"

	"github.com/councild/councild/internal/council"
)

// This file makes every sentence about money. The page, the terminal and the HTTP interface print these sentences as
// they are.

const (
	cent     = Dollar / 100
	mostUSD  = "at most "
	maxNamed = 3 // the most models that a sentence names
)

// Dollars returns the amount for a reader, such as "$4.97". It is rounded to cents. Below ten cents it has up to two
// significant digits. The function usd of the page follows the same rule.
func (a USD) Dollars() string {
	unit := a.unit()
	return written(a.Plus(unit/2) / unit * unit)
}

// atLeast returns the amount rounded up, as a number that a reader can give as a limit.
func (a USD) atLeast() USD {
	unit := a.unit()
	return a.Plus(unit-1) / unit * unit
}

// unit returns the smallest step between amounts of this size that a reader sees.
func (a USD) unit() USD {
	unit := cent
	for a > 0 && a < 10*unit && unit > 1 {
		unit /= 10
	}
	return unit
}

// written returns a rounded amount with a dollar sign, commas between thousands, and at least two decimals.
func written(a USD) string {
	before, after, _ := strings.Cut(a.String(), ".")
	for i := len(before) - 3; i > 0; i -= 3 {
		before = before[:i] + "," + before[i:]
	}
	for len(after) < 2 {
		after += "0"
	}
	return "$" + before + "." + after
}

// Cost returns what calls cost: "$0.05", "at least $0.05" or "cost unknown".
func Cost(u council.Usage) string {
	switch {
	case u.CostUSD == nil:
		return "cost unknown"
	case u.Partial:
		return "at least " + FromFloat(*u.CostUSD).Dollars()
	default:
		return FromFloat(*u.CostUSD).Dollars()
	}
}

// named returns the names of models for a sentence.
func named(models []string) string {
	if more := len(models) - maxNamed; more > 0 {
		return strings.Join(models[:maxNamed], ", ") + " and " + counted(int64(more), "other model", "other models")
	}
	return strings.Join(models, ", ")
}

// costing is what a sentence about future calls says.
type costing struct {
	calls           string // such as "9 calls"
	expected, upper *USD
	least           *USD // the most that the calls cost if the members that begin decide the session, or nil
	unpriced        []string
}

// sentence returns the sentence of an estimate, such as "9 calls, about $0.32, at most $0.60.", or says why there is
// none.
func (c costing) sentence() string {
	text := c.calls
	expected := c.expected
	if expected != nil && c.upper != nil {
		expected = new(min(*expected, *c.upper))
	}
	if expected != nil {
		text += ", about " + expected.Dollars()
	}
	if c.upper != nil {
		text += ", " + mostUSD + c.upper.Dollars()
		if c.least != nil {
			text += ", or " + c.least.Dollars() + " if the first answers are enough"
		}
		return text + "."
	}
	why := "nothing limits the length of the answers"
	if len(c.unpriced) > 0 {
		why = "there is no price for " + named(c.unpriced)
	}
	if expected == nil {
		return text + ". No estimate: " + why + "."
	}
	return text + ". No upper limit: " + why + "."
}

// say sets the sentences of an estimate from its figures.
func (e *Estimate) say() {
	upper := e.Upper
	for _, l := range e.Limits {
		if l.Scope == ScopeSession && l.Hard && upper != nil {
			upper = new(min(*upper, l.Limit))
		}
	}
	c := costing{calls: counted(int64(e.Calls), "call", "calls"), expected: e.Expected, upper: upper, unpriced: e.Unpriced}
	e.UsualSentence = c.usual()
	if e.LeastCalls < e.Calls {
		c.calls = fmt.Sprintf("%d to %s", e.LeastCalls, c.calls)
		c.least = e.LeastUSD
		e.UsualSentence = c.usual()
		rest := costing{calls: counted(int64(e.Calls-e.LeastCalls), "more call", "more calls"), expected: e.rest, unpriced: e.Unpriced}
		if e.Upper != nil && e.LeastUSD != nil {
			rest.upper = new(*e.Upper - min(*e.LeastUSD, *e.Upper))
		}
		e.RestSentence = rest.sentence()
	}
	e.Sentence = c.sentence()
	e.BudgetSentence = e.budget()
}

// usual returns the sentence for a council, before there is a question: "9 calls, about $0.32." It leaves the upper limit
// out, because the limit depends on the length of the question.
func (c costing) usual() string {
	switch {
	case c.expected != nil:
		return c.calls + ", about " + c.expected.Dollars() + "."
	case c.upper == nil && len(c.unpriced) > 0:
		return c.sentence()
	default:
		return c.calls + "."
	}
}

// Expect sets what the session is expected to cost, if earlier calls of its models do not say it.
func (e *Estimate) Expect(usual *USD) {
	if e.Expected == nil && usual != nil {
		e.Expected = usual
		e.say()
	}
}

// budget returns whether the session fits into the limits, and what is left of them. It returns "" without a limit.
func (e *Estimate) budget() string {
	if e.Refusal != nil {
		return "It would be refused: " + strings.TrimSuffix(e.why, ".") + "."
	}
	if len(e.Limits) == 0 {
		return ""
	}
	sentences := []string{"Within budget."}
	for _, l := range e.Limits {
		if l.Scope == ScopeSession && (l.Hard || e.Upper != nil && *e.Upper <= l.Limit) {
			continue // The upper limit of the estimate says it.
		}
		sentences = append(sentences, l.Sentence)
	}
	return strings.Join(sentences, " ")
}

// why returns why a session would be refused, and what its reader can do.
func (b *Book) why(e Estimate, s *Account, failure *council.Error) string {
	switch least := b.leastLimit(s); {
	case failure.Code == council.CodeUnpriced:
		return "the cost limit is hard, and there is no price for " + named(e.Unpriced)
	case failure.Code == council.CodeOverBudget:
		remedy := " Wait until 00:00 UTC"
		if b.o.Hard {
			remedy += ", or set a lower limit for this question"
		}
		sentences := []string{"too little is left of today's budget."}
		for _, l := range e.Limits {
			sentences = append(sentences, l.Sentence)
		}
		return strings.Join(sentences, " ") + remedy
	case least != nil:
		return fmt.Sprintf("the first calls can cost %s, but may use only %d %% of the limit of %s. "+
			"Set a limit of %s or more, or choose fewer members",
			s.First.Dollars(), s.share(council.Stage1), s.Limit.Dollars(), least.Dollars())
	case len(failure.Fields) > 0:
		return failure.Fields[0].Message
	default:
		return failure.Detail
	}
}

// These sentences stand where a reader sets the limit of a session.
const (
	softLimit = "The session stops asking once %s is spent. Calls that are under way may pass it."
	hardLimit = "The session never costs more than %s."
)

// LimitRule says what the limit of a session does. The argument amount is the limit, or "this".
func LimitRule(hard bool, amount string) string {
	if hard {
		return fmt.Sprintf(hardLimit, amount)
	}
	return fmt.Sprintf(softLimit, amount)
}

// say sets the sentence of a limit.
func (l *Limit) say() {
	left, limit := l.Left.Dollars(), l.Limit.Dollars()
	switch l.Scope {
	case ScopeSession:
		l.Sentence = LimitRule(l.Hard, limit)
	case ScopeToken:
		l.Sentence = left + " of your " + limit + " for today left."
	default:
		l.Sentence = left + " of today's " + limit + " left."
	}
}

// SessionCost is the bill of a session. It also says what is left of the limits.
type SessionCost struct {
	Cost     string `json:"cost"`     // what Cost returns
	Left     string `json:"left"`     // sentences about what is left of the limits, or ""
	Sentence string `json:"sentence"` // all sentences of the bill
}

// CostOf returns the bill of a session. The argument limit is the limit of the session, or nil. The argument today has
// the limits of today.
func CostOf(s *council.Session, limit *float64, today []Limit) SessionCost {
	total := council.Usage{CostUSD: s.Metadata.Usage.CostUSD, Partial: s.Metadata.Usage.Total.Partial}
	b := SessionCost{Cost: Cost(total)}
	var left []string
	if total.CostUSD != nil && limit != nil {
		left = append(left, leftOf(FromFloat(*total.CostUSD), FromFloat(*limit)))
	}
	for _, l := range today {
		left = append(left, l.Sentence)
	}
	b.Left = strings.Join(left, " ")
	sentences := []string{"It cost " + b.Cost + "."}
	if total.CostUSD == nil {
		sentences[0] = "The cost is unknown."
	}
	for _, w := range s.Metadata.Warnings {
		if w.Code == council.WarnCostUncertain {
			sentences = append(sentences, w.Message+".")
		}
	}
	b.Sentence = strings.Join(append(sentences, left...), " ")
	return b
}

// leftOf says how much of the limit of a session is left, or by how much the cost passed it.
func leftOf(cost, limit USD) string {
	if cost > limit {
		return fmt.Sprintf("%s over the session's limit of %s.", (cost - limit).Dollars(), limit.Dollars())
	}
	return fmt.Sprintf("%s of the session's %s left.", (limit - cost).Dollars(), limit.Dollars())
}

// say sets the sentence about the sum of a report.
func (r *Costs) say() {
	when := map[int]string{0: "in all", 1: "today (UTC)"}[r.Days]
	if when == "" {
		when = fmt.Sprintf("in the last %d days", r.Days)
	}
	sentences := []string{r.Total.Dollars() + " spent " + when + "."}
	if r.Total == 0 {
		sentences[0] = "Nothing spent " + strings.Replace(when, "in all", "yet", 1) + "."
	}
	if r.Uncertain > 0 {
		sentences = append(sentences, fmt.Sprintf("Up to %s of it is uncertain.", r.Uncertain.Dollars()))
	}
	if r.Unknown > 0 {
		sentences = append(sentences, fmt.Sprintf("The cost of %s is unknown, and not in the sum.", counted(int64(r.Unknown), "call", "calls")))
	}
	r.Sentence = strings.Join(sentences, " ")
}
