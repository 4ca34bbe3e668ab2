package sessions

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
)

// seat is the id of a member. In a packed session, it replaces the data of an event that reported an answer or a
// review.
type seat string

// pack frees memory. It drops the decoded form of an ended session, because the JSON of the session holds the same
// texts. The garbage collector then also has fewer small structs to visit. Most sessions are not read again.
func (s *Session) pack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packed {
		return
	}
	if k := s.keeper; k != nil {
		if len(k.queue) > 0 { // Its log is still to be written.
			time.AfterFunc(s.store.o.Waits.Pack, s.pack)
			return
		}
		k.end = nil
	}
	events := slices.Clone(s.view.events)
	for i := range events {
		switch data := events[i].Data.(type) {
		case council.Answer:
			events[i].Data = seat(data.Model)
		case council.Review:
			events[i].Data = seat(data.Model)
		case []council.Answer, council.Tally, council.Synthesis, council.Map, *council.Session:
			events[i].Data = nil
		}
	}
	missing := func(e council.Event) bool { return e.Data == nil }
	if slices.ContainsFunc(unpack(events, s.session), missing) { // The run returned less than it had observed.
		return
	}
	listed := &council.Session{Query: s.session.Query}
	listed.Metadata.Timing = s.session.Metadata.Timing
	listed.Metadata.Usage.CostUSD = s.session.Metadata.Usage.CostUSD
	s.view.events = events
	s.session = listed
	s.packed = true
}

// unpackLocked decodes a packed session. A timer packs the session again later.
func (s *Session) unpackLocked() {
	if !s.packed {
		return
	}
	session := new(council.Session)
	if err := json.Unmarshal(s.body, session); err != nil {
		panic(err) // It cannot happen: this process encoded the body.
	}
	s.view.events = unpack(s.view.events, session)
	s.session = session
	s.packed = false
	time.AfterFunc(s.store.o.Waits.Pack, s.pack)
}

// unpack returns the events, with the data that pack dropped. It takes this data from the session. If the session does
// not hold the data of an event, the data is nil.
func unpack(events []council.Event, session *council.Session) []council.Event {
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		member, _ := e.Data.(seat)
		switch e.Type {
		case council.EventAnswer:
			e.Data = find(session.Stage1, func(a council.Answer) bool { return a.Model == string(member) })
		case council.EventStage1:
			e.Data = session.Stage1
		case council.EventBallot:
			e.Data = find(session.Stage2, func(r council.Review) bool { return r.Model == string(member) })
		case council.EventStage2:
			e.Data = session.Metadata.Tally
		case council.EventStage3:
			if e.Data = nil; session.Stage3 != nil {
				e.Data = *session.Stage3
			}
		case council.EventMap:
			if e.Data = nil; session.Metadata.Map != nil {
				e.Data = *session.Metadata.Map
			}
		case council.EventDone:
			e.Data = session
		default: // The other events have kept their data.
		}
	}
	return events
}

func find[T any](list []T, is func(T) bool) any {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}
