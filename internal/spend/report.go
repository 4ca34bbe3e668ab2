package spend

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// By says what each row of a report stands for.
type By string

// These are the kinds of rows.
const (
	ByDay     By = "day"
	ByToken   By = "token"
	ByUser    By = "user"
	ByCouncil By = "council"
	ByModel   By = "model"
)

// Query selects what a report covers.
type Query struct {
	// Days is how many days the report covers, today (UTC) included. 0 covers all.
	Days  int
	By    By      // ByDay if ""
	Token *string // covers only the sessions of this token; nil covers all
}

// Costs is what sessions cost. A session belongs to the day on which it began, in UTC.
type Costs struct {
	Total USD `json:"total_usd"` // includes Uncertain
	// Uncertain is an upper bound. It sums up attempts that failed or were cut off, and sessions without an end.
	Uncertain USD `json:"uncertain_usd"`
	// Unknown counts calls without a known cost, and sessions without an end that had no limit.
	Unknown int     `json:"unknown_calls"`
	By      By      `json:"by"`
	Days    int     `json:"days"`   // Query.Days
	Rows    []Row   `json:"rows"`   // days in their order, otherwise the largest total first
	Limits  []Limit `json:"limits"` // today's limits
	Ledger  *State  `json:"ledger"` // null if no ledger is kept
	// Sentence says what was spent: "Nothing spent in the last 30 days."
	Sentence string `json:"sentence"`
}

// Row is what the sessions of one day, token, user, council or model cost.
type Row struct {
	// Key is the day, the name of the token, the user that the caller named, the council, or the model. The name of the
	// token is "" if the daemon asks for no token. The user is "" if the caller named none. The model is "" for a
	// session without an end.
	Key       string `json:"key"`
	Sessions  int    `json:"sessions"`
	Calls     int    `json:"calls"`
	Total     USD    `json:"total_usd"`
	Uncertain USD    `json:"uncertain_usd"`
	Unknown   int    `json:"unknown_calls"`
}

// collector adds up the entries of a ledger.
type collector struct {
	q     Query
	total scope
	rows  map[string]*Row
	ended map[string]bool  // sessions whose last line has come
	open  map[string]entry // sessions without an end
	// calls holds the calls that the ledger has of sessions without an end. They do not count yet, because these
	// sessions count with their whole limits.
	calls map[string][]Charge
}

// ReadReport makes a report from the lines of a ledger, and notes in Costs.Ledger what is damaged. The argument lines
// is nil if there is no ledger. The argument end is nil if no end is kept. The sessions that run now come from the
// Book. If the Book is nil, sessions without an end count with their whole limits.
func ReadReport(lines Lines, end *End, a *Book, q Query, now time.Time) (Costs, error) {
	q.By = cmp.Or(q.By, ByDay)
	c := collector{
		q:     q,
		rows:  map[string]*Row{},
		ended: map[string]bool{},
		open:  map[string]entry{},
		calls: map[string][]Charge{},
	}
	from := ""
	if q.Days > 0 {
		from = now.UTC().AddDate(0, 0, 1-q.Days).Format(time.DateOnly)
	}
	running := []entry{}
	limits := []Limit{}
	if a != nil {
		running = a.running()
		limits = a.limitsOf(q.Token)
	}
	var state *State
	if lines != nil {
		check := newChecker(end)
		for line, err := range lines {
			ok, err := check.take(line, err)
			if err != nil {
				return Costs{}, err
			}
			if ok && line.day >= from {
				c.add(line.entry())
			}
		}
		state = new(check.result())
	}
	for _, e := range running {
		if !c.ended[e.Session] && e.Day >= from {
			c.add(e)
		}
	}
	for _, e := range c.open {
		c.charge(e, "", func(s *scope) { e.addWhole(s, 1) })
		c.row(e, "").Sessions += e.sessions()
	}
	r := Costs{
		Total:     c.total.spent(),
		Uncertain: c.total.uncertain,
		Unknown:   c.total.unknown,
		By:        q.By,
		Days:      q.Days,
		Rows:      []Row{},
		Limits:    limits,
		Ledger:    state,
	}
	for _, row := range c.rows {
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, func(x, y Row) int {
		if q.By == ByDay {
			return cmp.Compare(x.Key, y.Key)
		}
		return cmp.Or(cmp.Compare(y.Total, x.Total), cmp.Compare(x.Key, y.Key))
	})
	r.say()
	return r, nil
}

// limitsOf returns the limits that apply to a token. If token is nil, it returns the limits that apply to all sessions
// together.
func (b *Book) limitsOf(token *string) []Limit {
	if token != nil {
		return b.Limits(*token)
	}
	return slices.DeleteFunc(b.Limits(""), func(l Limit) bool { return l.Scope == ScopeToken })
}

// running returns the sessions that run, with the charges that the ledger does not have yet.
func (b *Book) running() []entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]entry, 0, len(b.sessions))
	for _, s := range b.sessions {
		all = append(all, entry{
			Type:    entryClose,
			Day:     s.day,
			Session: s.Session,
			Token:   s.Token,
			User:    s.User,
			Council: s.Council,
			Calls:   slices.Clone(s.calls),
		})
	}
	return all
}

func (c *collector) add(e entry) {
	if c.q.Token != nil && e.Token != *c.q.Token {
		return
	}
	if e.Type == entryOpen {
		if !c.ended[e.Session] {
			c.open[e.Session] = e
		}
		return
	}
	if e.Type == entryCalls {
		c.calls[e.Session] = append(c.calls[e.Session], e.Calls...)
		return
	}
	seen := map[*Row]bool{}
	for _, call := range append(c.calls[e.Session], e.Calls...) {
		c.charge(e, call.Model, call.addTo)
		row := c.row(e, call.Model)
		row.Calls++
		if !seen[row] && c.q.By == ByModel { // For other rows, each session counts once, at its end.
			seen[row] = true
			row.Sessions += e.sessions()
		}
	}
	delete(c.calls, e.Session)
	if c.q.By != ByModel {
		c.row(e, "").Sessions += e.sessions()
	}
	c.ended[e.Session] = true
	delete(c.open, e.Session)
}

// sessions returns how many sessions an entry counts for. A comparison that runs after a session counts for none.
func (e entry) sessions() int {
	if strings.HasSuffix(e.Session, council.ShadowSuffix) {
		return 0
	}
	return 1
}

// charge adds an amount to the total and to a row.
func (c *collector) charge(e entry, model string, add func(*scope)) {
	add(&c.total)
	var s scope
	add(&s)
	row := c.row(e, model)
	row.Total = row.Total.Plus(s.spent())
	row.Uncertain = row.Uncertain.Plus(s.uncertain)
	row.Unknown += s.unknown
}

// row returns the row to which a call of a session belongs.
func (c *collector) row(e entry, model string) *Row {
	key := map[By]string{ByDay: e.Day, ByToken: e.Token, ByUser: e.User, ByCouncil: e.Council, ByModel: model}[c.q.By]
	if c.rows[key] == nil {
		c.rows[key] = &Row{Key: key}
	}
	return c.rows[key]
}
