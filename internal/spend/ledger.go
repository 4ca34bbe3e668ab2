package spend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/councild/councild/internal/council"
)

// Ledger stores lines, each with a line break at its end. The lines of one call stay together: after
// a crash all of them are there, or none.
type Ledger interface {
	// Append stores lines behind those of earlier calls. With synced it returns nil when they are on disk.
	// Otherwise it returns at once.
	Append(ctx context.Context, synced bool, lines ...[]byte) error
}

// CostSource says where the cost of an attempt is from.
type CostSource string

// The sources.
const (
	SourceProvider CostSource = "provider" // its own figure
	SourceTariff   CostSource = "tariff"   // tokens times prices
	SourceBound    CostSource = "bound"    // the most that the attempt can have cost
)

// Charge is what one attempt cost.
type Charge struct {
	Stage    council.Stage `json:"stage"`
	Model    string        `json:"model"`
	Provider string        `json:"provider"` // its name; "": the default provider
	Attempt  int           `json:"attempt"`  // of its call, from 1; 0: one of a process that is gone
	Tokens   *Tokens       `json:"tokens"`
	USD      *USD          `json:"usd"` // null: nobody knows
	Source   CostSource    `json:"source"`
}

// addTo adds the charge to what is spent.
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

// The types of the ledger's lines.
const (
	entryOpen  = "open"  // a session begins
	entryCalls = "calls" // some of the calls of a session; its end follows
	entryClose = "close" // a session ended
)

// entry is a line of the ledger. Its type and day come first, so that the lines of other days can
// be passed over unread, and its checksum last.
type entry struct {
	Type    string   `json:"type"`
	Day     string   `json:"day"` // on which the session began, in UTC
	Session string   `json:"session"`
	Token   string   `json:"token"`
	User    string   `json:"user,omitempty"` // for whom the caller asked
	Council string   `json:"council"`
	Limit   *USD     `json:"limit_usd"`
	Upper   *USD     `json:"upper_usd,omitempty"` // where there is no limit, the most that the session was thought to cost
	Calls   []Charge `json:"calls,omitempty"`
}

func (e entry) line() []byte {
	data, _ := json.Marshal(e) // it holds nothing that cannot be encoded
	return append(seal(data), '\n')
}

// maxCalls is how many calls a line holds, so that it stays below the 64 KiB that a line of a store
// may have.
const maxCalls = 60

// lines returns lines with calls of a session, the last of that type.
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

// addWhole adds a session without an end to what is spent, or with -1 takes it away.
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

// Replay takes in the lines of a ledger that can be read, in their order. It leaves out all days but the given ones; nil takes every
// day. It is called once, before any session is opened. A session that has no end counts whole, as uncertain, until it is opened
// again.
//
// The days should be [State.Recent], the last ones of the ledger. The clock does not choose them, because it may be wrong.
func (b *Book) Replay(lines Lines, days []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	closed := map[string]bool{}
	calls := map[string][]Charge{} // of sessions whose end has not come
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
			b.replayLocked(e, append(calls[e.Session], e.Calls...))
			closed[e.Session] = true
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

// replayLocked takes in a session that ended.
func (b *Book) replayLocked(e entry, calls []Charge) {
	for _, c := range calls {
		for _, scope := range b.scopesLocked(e.Day, e.Token) {
			c.addTo(scope)
		}
		if c.USD != nil && c.Source != SourceBound {
			b.costsLocked(c.Model, string(c.Stage)).add(*c.USD)
		}
	}
}
