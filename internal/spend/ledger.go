package spend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/councild/councild/internal/council"
)

// Ledger stores lines. Each line ends in a line break. The lines of one Append stay together: after a crash, the ledger
// has all of these lines or none.
type Ledger interface {
	// Append appends lines. If synced is true, Append returns nil only when the lines are on disk. Otherwise it returns
	// at once.
	Append(ctx context.Context, synced bool, lines ...[]byte) error
}

// CostSource says where the cost of an attempt comes from.
type CostSource string

// These are the sources.
const (
	SourceProvider CostSource = "provider" // the cost that the provider reported
	SourceTariff   CostSource = "tariff"   // tokens times our prices
	SourceBound    CostSource = "bound"    // the most that the attempt can have cost
)

// Charge is what one attempt cost.
type Charge struct {
	Stage    council.Stage `json:"stage"`
	Model    string        `json:"model"`
	Provider string        `json:"provider"` // name of the provider, or "" for the default one
	// Attempt is the number of the attempt in its call, from 1. It is 0 for an attempt of a process that died.
	Attempt int        `json:"attempt"`
	Tokens  *Tokens    `json:"tokens"`
	USD     *USD       `json:"usd"` // null if it is not known
	Source  CostSource `json:"source"`
}

// addTo adds the charge to a scope.
func (c Charge) addTo(s *scope) {
	switch {
	case c.USD == nil:
		s.unknown++
	case c.Source == SourceBound:
		s.uncertain = s.uncertain.Plus(*c.USD)
	default:
		s.certain = s.certain.Plus(*c.USD)
	}
}

// These are the types of lines in the ledger.
const (
	entryOpen  = "open"  // the first line of a session
	entryCalls = "calls" // some of the calls of a session, before its last line
	entryClose = "close" // the last line of a session
)

// entry is a line of the ledger. Its type and day come first, so that a reader can skip the lines of other days.
// Its checksum comes last.
type entry struct {
	Type    string `json:"type"`
	Day     string `json:"day"` // the day on which the session began, in UTC
	Session string `json:"session"`
	Token   string `json:"token"`
	User    string `json:"user,omitempty"` // council.Plan.User
	Council string `json:"council"`
	Limit   *USD   `json:"limit_usd"`
	// Upper is the most that a session without a limit should cost.
	Upper *USD     `json:"upper_usd,omitempty"`
	Calls []Charge `json:"calls,omitempty"`
}

func (e entry) line() []byte {
	data, _ := json.Marshal(e) // it holds nothing that cannot be encoded
	return append(seal(data), '\n')
}

// maxCalls is how many calls a line may hold. It keeps a line below 64 KiB, the limit of the store.
const maxCalls = 60

// lines returns lines with calls of a session. The argument last is the type of the last of these lines.
func (s *Account) lines(calls []Charge, last string) (lines [][]byte) {
	e := entry{
		Type:    entryCalls,
		Day:     s.day,
		Session: s.Session,
		Token:   s.Token,
		User:    s.User,
		Council: s.Council,
		Limit:   s.Limit,
	}
	for len(calls) > maxCalls {
		e.Calls = calls[:maxCalls]
		calls = calls[maxCalls:]
		lines = append(lines, e.line())
	}
	e.Type = last
	e.Calls = calls
	return append(lines, e.line())
}

// addWhole adds the whole limit of a session to a scope. The session has no last line in the ledger. If sign is -1,
// addWhole subtracts the limit again.
func (e entry) addWhole(s *scope, sign int) {
	whole := e.Limit
	if whole == nil {
		whole = e.Upper
	}
	if whole == nil {
		s.unknown += sign
		return
	}
	if sign < 0 {
		s.uncertain -= min(*whole, s.uncertain)
		return
	}
	s.uncertain = s.uncertain.Plus(*whole)
}

// Replay adds the sessions in the lines of a ledger to the Book, and skips damaged lines. If days is not nil, Replay
// skips the sessions of all other days. Call Replay once, before any session is opened. A session without an end
// counts with its whole limit, as uncertain, until it is opened again. If a session with an end is opened again, its calls
// that landed do not count a second time.
//
// The days should be [State.Recent], the last days in the ledger, because these days do not depend on the clock. The
// clock may be wrong.
func (b *Book) Replay(lines Lines, days []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	closed := map[string]bool{}
	var last []string              // the sessions that ended last
	calls := map[string][]Charge{} // the calls of each session whose last line has not come
	for line, err := range lines {
		if _, damaged := errors.AsType[*Damage](err); damaged {
			continue
		}
		if err != nil {
			return err
		}
		if days != nil && !slices.Contains(days, line.day) {
			continue
		}
		switch e := line.entry(); e.Type {
		case entryOpen:
			if !closed[e.Session] {
				b.orphans[e.Session] = e
			}
		case entryCalls:
			calls[e.Session] = append(calls[e.Session], e.Calls...)
		case entryClose:
			e.Calls = append(calls[e.Session], e.Calls...)
			b.replayLocked(e)
			closed[e.Session] = true
			b.closed[e.Session] = e.closed(b.closed[e.Session].sum)
			if last = append(last, e.Session); len(last) > closedKept {
				delete(b.closed, last[0])
				last = last[1:]
			}
			delete(calls, e.Session)
			delete(b.orphans, e.Session)
		}
	}
	for id, e := range b.orphans {
		e.Calls = calls[id]
		b.orphans[id] = e
		for _, scope := range b.scopesLocked(e.Day, e.Token) {
			e.addWhole(scope, 1)
		}
	}
	return nil
}

// closedKept is the most sessions that Replay keeps in Book.closed.
const closedKept = 10_000

// closed returns what the last line of a session says. The argument sum is the sum of earlier last lines of the session.
func (e entry) closed(sum scope) closed {
	c := closed{day: e.Day, token: e.Token, limit: e.Limit, sum: sum}
	for _, call := range e.Calls {
		call.addTo(&c.sum)
	}
	return c
}

// replayLocked adds a session that ended.
func (b *Book) replayLocked(e entry) {
	for _, c := range e.Calls {
		for _, scope := range b.scopesLocked(e.Day, e.Token) {
			c.addTo(scope)
		}
		if c.USD != nil && c.Source != SourceBound {
			b.costsLocked(c.Model, string(c.Stage)).add(*c.USD)
		}
	}
}
