package sessions_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// waits returns the waits of a daemon by ten. Nodes on a busy machine still have time to show an entry, and to obey.
func waits() sessions.Waits {
	w := sessions.DefaultWaits()
	for _, wait := range []*time.Duration{&w.Text, &w.Append, &w.LastTry, &w.MaxPause, &w.Claim, &w.Look, &w.Margin, &w.Pack} {
		*wait /= 10
	}
	return w
}

// quick returns the waits of a journal by ten.
func quick() journal.Waits {
	w := journal.DefaultWaits()
	for _, wait := range []*time.Duration{&w.Answer, &w.Check, &w.Poll, &w.MinPause, &w.MaxPause, &w.Quiet} {
		*wait /= 10
	}
	return w
}

func generous() sessions.Options {
	return sessions.Options{Retention: time.Hour, Kept: 100, KeptBytes: 1 << 30, Waits: waits()}
}

// start returns what a session with an id starts from.
func start(id string, change ...func(*sessions.Start)) sessions.Start {
	s := sessions.Start{Plan: council.Plan{SessionID: id, Order: council.OrderShared}, Cancel: func(error) {}}
	for _, f := range change {
		f(&s)
	}
	return s
}

func add(t *testing.T, st *sessions.Store, id string, change ...func(*sessions.Start)) *sessions.Session {
	t.Helper()
	begins := start(id, change...)
	begins.Plan.Created = time.Now().UTC()
	s, added, err := st.Add(t.Context(), begins)
	if err != nil || !added {
		t.Fatalf("%s is there already, or %v", id, err)
	}
	return s
}

func get(t *testing.T, st *sessions.Store, owner sessions.Owner, id string) *sessions.Session {
	t.Helper()
	s, err := st.Get(t.Context(), owner, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func find(t *testing.T, st *sessions.Store, owner sessions.Owner, key string) *sessions.Session {
	t.Helper()
	s, err := st.Find(t.Context(), owner, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func forget(t *testing.T, st *sessions.Store, s *sessions.Session) {
	t.Helper()
	if err := st.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// read returns the entries behind the first n.
func read(s *sessions.Session, n int) ([]council.Entry, <-chan struct{}) {
	page, more := s.Entries(sessions.Position{Number: n})
	return page.Entries, more
}

// events returns the events behind the first n.
func events(s *sessions.Session, n int) ([]council.Event, <-chan struct{}) {
	events, _, more := s.Events(sessions.Position{Number: n})
	return events, more
}

// finish ends a session as complete.
func finish(t *testing.T, s *sessions.Session) {
	t.Helper()
	done := start(s.ID).Plan.Session()
	done.Status = council.StatusComplete
	if err := s.Finish(done, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// entries returns all entries of a session as lines of type and data.
func entries(s *sessions.Session, behind int) (lines []string) {
	entries, _ := read(s, behind)
	for _, e := range entries {
		lines = append(lines, string(e.Type)+" "+string(e.Data))
	}
	return lines
}

func TestLog(t *testing.T) {
	s := add(t, sessions.New(generous()), "one")
	if entries, more := read(s, 0); len(entries) != 0 || more == nil {
		t.Errorf("%d entries, more %v", len(entries), more)
	}
	_, more := read(s, 0)
	delta := council.Event{Type: council.EventDelta, Data: council.Delta{Text: "<a>\n\nid: 9"}}
	s.Observe(delta)
	<-more
	restart := council.Event{Type: council.EventRestart, Data: council.Restart{Model: "m", Reason: council.FailTimeout}}
	s.Observe(restart)
	s.Observe(council.Event{Type: council.EventDone, Data: "is left to Finish"})
	first, second := `stage3.delta {"text":"<a>\n\nid: 9"}`, `stage3.restart {"model":"m","reason":"timeout"}`
	for n, want := range [][]string{{first, second}, {second}, nil, nil} {
		if diff := cmp.Diff(want, entries(s, n)); diff != "" {
			t.Errorf("behind %d: %s", n, diff)
		}
	}
	for n, want := range [][]council.Event{{delta, restart}, {restart}, {}, {}} {
		events, more := events(s, n)
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("behind %d: %s", n, diff)
		}
		if more == nil {
			t.Errorf("behind %d: the session is over", n)
		}
	}
	_, more = read(s, 2)
	_, moreEvents := events(s, 2)
	finish(t, s)
	<-more
	<-moreEvents
	<-s.Done()
	body, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"session.done " + strings.TrimSuffix(string(body), "\n")}, entries(s, 2)); diff != "" {
		t.Error(diff)
	}
	if _, more := read(s, 2); more != nil {
		t.Error("there is more behind the end")
	}
	var read council.Session
	if err := json.Unmarshal(body, &read); err != nil || read.Status != council.StatusComplete {
		t.Errorf("%v: %s", err, body)
	}
	result, failure := s.Result()
	if failure != nil {
		t.Errorf("failure %v", failure)
	}
	events, more := events(s, 2)
	if diff := cmp.Diff([]council.Event{{Type: council.EventDone, Data: result}}, events); diff != "" || more != nil {
		t.Errorf("more %v, %s", more, diff)
	}
}

// While it runs, a session shows what is known of it.
func TestSnapshot(t *testing.T) {
	s := add(t, sessions.New(generous()), "one")
	versions := council.Versions{Councild: "v1"}
	text := "x"
	want := start(s.ID).Plan.Session()
	want.Created, want.Metadata.Versions = s.Created, versions
	for _, step := range []struct {
		data   any
		change func()
	}{
		{council.Started{Versions: versions}, func() {}},
		{council.Answer{Model: "b", Response: &text}, func() { want.Stage1 = []council.Answer{{Model: "b", Response: &text}} }},
		{[]council.Answer{{Model: "a"}, {Model: "b"}}, func() { want.Stage1 = []council.Answer{{Model: "a"}, {Model: "b"}} }},
		{council.Review{Model: "a"}, func() { want.Stage2 = []council.Review{{Model: "a"}} }},
		{
			council.Tally{AggregateRankings: []council.Standing{{Model: "a"}}},
			func() { want.Metadata.Tally = council.Tally{AggregateRankings: []council.Standing{{Model: "a"}}} },
		},
		{council.Synthesis{Response: "y"}, func() { want.Stage3, want.Answer = &council.Synthesis{Response: "y"}, "y" }},
	} {
		s.Observe(council.Event{Data: step.data})
		step.change()
		body, err := s.JSON()
		if err != nil {
			t.Fatal(err)
		}
		expected, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(expected)+"\n", string(body)); diff != "" {
			t.Errorf("%T: %s", step.data, diff)
		}
	}
	if err := s.Finish(nil, &council.Error{Code: council.CodeInternal}, "a problem"); err != nil {
		t.Fatal(err)
	}
	body, _ := s.JSON()
	for _, part := range []string{`"status":"failed"`, `"answer":"y"`} {
		if !strings.Contains(string(body), part) {
			t.Errorf("%s is missing: %s", part, body)
		}
	}
	if diff := cmp.Diff([]string{`session.failed "a problem"`}, entries(s, 6)); diff != "" {
		t.Error(diff)
	}
	if status := s.Summary().Status; status != council.StatusFailed {
		t.Errorf("the status is %s", status)
	}
	_, failure := s.Result()
	if failure == nil || failure.Code != council.CodeInternal {
		t.Errorf("failure %v", failure)
	}
	events, _ := events(s, 6)
	if diff := cmp.Diff([]council.Event{{Type: council.EventFailed, Data: failure}}, events); diff != "" {
		t.Error(diff)
	}
}

// A session that cannot be encoded goes on until it is ended with one that can be.
func TestNoJSON(t *testing.T) {
	s := add(t, sessions.New(generous()), "one")
	bad := start(s.ID).Plan.Session()
	bad.Metadata.Timing.TotalMS = math.NaN()
	s.Observe(council.Event{Type: council.EventStage3, Data: council.Synthesis{Spent: council.Spent{LatencyMS: math.NaN()}}})
	failure := &council.Error{Code: council.CodeInternal}
	for _, end := range []func() error{
		func() error { return s.Finish(bad, nil, nil) },
		func() error { return s.Finish(bad, failure, "a problem") },
		func() error { return s.Finish(start(s.ID).Plan.Session(), failure, math.NaN()) },
	} {
		if err := end(); err == nil {
			t.Error("NaN has JSON")
		}
		if entries, more := read(s, 0); len(entries) != 0 || more == nil {
			t.Errorf("%d entries, more %v", len(entries), more)
		}
	}
	finish(t, s)
}

func TestOwners(t *testing.T) {
	st := sessions.New(generous())
	mine := func(s *sessions.Start) { s.Key = "k" }
	theirs := func(s *sessions.Start) { s.Owner, s.Key = "one", "k" }
	one, two := add(t, st, "one", mine), add(t, st, "two", theirs)
	if again, added, err := st.Add(t.Context(), start("three", mine)); err != nil || added || again != one || get(t, st, "", "three") != nil {
		t.Error("a key gives two sessions")
	}
	if get(t, st, "", "one") != one || get(t, st, "", "two") != nil || get(t, st, "two", "two") != nil ||
		find(t, st, "one", "k") != two || find(t, st, "two", "k") != nil || find(t, st, "", "") != nil {
		t.Error("a session is not its owner's alone")
	}
	add(t, st, "four")
	add(t, st, "five")
	var ids []string
	for _, s := range st.List("") {
		ids = append(ids, s.ID)
	}
	if diff := cmp.Diff([]string{"five", "four", "one"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestDelete(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		// Room for two of the sessions.
		st := sessions.New(sessions.Options{Retention: time.Hour, Kept: 2, KeptBytes: 1 << 30})
		var kept []*sessions.Session
		for _, id := range []string{"a", "b"} {
			s := add(t, st, id, func(s *sessions.Start) { s.Key = id })
			finish(t, s)
			kept = append(kept, s)
			time.Sleep(time.Minute)
		}
		running := add(t, st, "running")
		forget(t, st, running)
		if get(t, st, "", "running") != running {
			t.Error("a session that runs was forgotten")
		}
		forget(t, st, kept[1])
		forget(t, st, kept[1])
		if get(t, st, "", "b") != nil || find(t, st, "", "b") != nil {
			t.Error("the session is still there")
		}
		finish(t, running)
		if get(t, st, "", "a") != kept[0] {
			t.Error("a session that was deleted takes the place of another one")
		}
		time.Sleep(time.Hour - 2*time.Minute)
		if get(t, st, "", "a") != nil || get(t, st, "", "running") == nil {
			t.Error("the time of the sessions that are left is not what it was")
		}
		st.Close(t.Context())
	})
}

func TestEviction(t *testing.T) {
	kept := func(st *sessions.Store) string {
		var ids []string
		for _, s := range st.List("") {
			ids = append(ids, s.ID)
		}
		return strings.Join(ids, " ")
	}
	race.Bubble(t, func(t *testing.T) {
		st := sessions.New(sessions.Options{Retention: time.Hour, Kept: 2, KeptBytes: 1 << 20})
		running := add(t, st, "a", func(s *sessions.Start) { s.Key = "a" })
		for _, id := range []string{"b", "c", "d"} {
			time.Sleep(time.Minute)
			finish(t, add(t, st, id, func(s *sessions.Start) { s.Key = id }))
		}
		if got := kept(st); got != "d c a" || find(t, st, "", "b") != nil || find(t, st, "", "c") == nil {
			t.Errorf("kept %s", got)
		}
		time.Sleep(time.Hour - time.Minute)
		if got := kept(st); got != "d a" {
			t.Errorf("kept %s, a minute before d is due", got)
		}
		time.Sleep(time.Minute)
		if got := kept(st); got != "a" || get(t, st, "", "d") != nil {
			t.Errorf("kept %s", got)
		}
		finish(t, running) // as long as it ran, it counts from now
		if got := kept(st); got != "a" {
			t.Errorf("kept %s", got)
		}
	})
	race.Bubble(t, func(t *testing.T) {
		st := sessions.New(sessions.Options{Retention: time.Hour, Kept: 100, KeptBytes: 14 << 10})
		for i := range 20 {
			s := add(t, st, strconv.Itoa(i))
			s.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: strings.Repeat("x", 1000)}})
			if i < 18 {
				read(s, 0) // somebody watches
			}
			if i%2 == 0 {
				finish(t, s)
			} else if err := s.Finish(nil, &council.Error{}, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := kept(st); !strings.HasPrefix(got, "19 18 17") || len(strings.Fields(got)) > 9 {
			t.Errorf("kept %s in 14 KiB", got)
		}
		// A session that is larger than the limit is forgotten, but its watchers read on.
		s := add(t, st, "large")
		s.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: strings.Repeat("x", 20<<10)}})
		read(s, 0)
		finish(t, s)
		if got := kept(st); got != "" {
			t.Errorf("kept %s", got)
		}
		if entries, _ := read(s, 0); len(entries) != 2 || len(entries[0].Data) < 20<<10 {
			t.Errorf("%d entries", len(entries))
		}
	})
}

// A session ends with its client, unless it is in the background or has a key.
func TestLeave(t *testing.T) {
	gone := errors.New("gone")
	for name, tt := range map[string]struct {
		change func(*sessions.Start)
		goesOn bool
	}{
		"alone":             {func(*sessions.Start) {}, false},
		"in the background": {func(s *sessions.Start) { s.Background = true }, true},
		"with a key":        {func(s *sessions.Start) { s.Key = "k" }, true},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		st := sessions.New(generous())
		s := add(t, st, "one", tt.change, func(s *sessions.Start) { s.Cancel = cancel })
		s.Leave(gone)
		if errors.Is(context.Cause(ctx), gone) == tt.goesOn {
			t.Errorf("%s: cause %v", name, context.Cause(ctx))
		}
		st.Cancel(errors.New("all of them"))
		if ctx.Err() == nil {
			t.Errorf("%s: not cancelled with all", name)
		}
	}
}

// Finished sessions leave memory when their time is over, even without a call.
func TestExpiryByItself(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		st := sessions.New(sessions.Options{Retention: time.Minute, Kept: 100, KeptBytes: 1 << 30})
		var left []weak.Pointer[sessions.Session]
		for i := range 3 {
			s := add(t, st, strconv.Itoa(i), func(s *sessions.Start) { s.Key = s.Plan.SessionID })
			finish(t, s)
			left = append(left, weak.Make(s))
			time.Sleep(20 * time.Second)
		}
		there := func() (n int) {
			synctest.Wait()
			runtime.GC()
			for _, s := range left {
				if s.Value() != nil {
					n++
				}
			}
			return n
		}
		for _, want := range []int{2, 1, 0} {
			if n := there(); n != want {
				t.Errorf("%d are in memory, want %d", n, want)
			}
			time.Sleep(20 * time.Second)
		}
		runtime.KeepAlive(st)
	})
}

// A closed store keeps nothing and has no timer.
func TestClose(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		st := sessions.New(generous())
		s, late := add(t, st, "one"), add(t, st, "two")
		finish(t, s)
		st.Close(t.Context())
		finish(t, late)
		if list := st.List(""); len(list) != 0 {
			t.Errorf("kept %v", list)
		}
	})
}

// An event that cannot be encoded is left out, also when encoding it panics.
func TestEventThatPanics(t *testing.T) {
	s := add(t, sessions.New(generous()), "one")
	s.Observe(council.Event{Type: council.EventDelta, Data: defect{}})
	s.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: "a"}})
	if diff := cmp.Diff([]string{`stage3.delta {"text":"a"}`}, entries(s, 0)); diff != "" {
		t.Error(diff)
	}
	finish(t, s)
	<-s.Done()
}

// defect panics when it is encoded.
type defect struct{}

// MarshalJSON implements json.Marshaler.
func (defect) MarshalJSON() ([]byte, error) { panic("a defect") }

// Watchers that read at any time read the same.
func TestManyWatchers(t *testing.T) {
	s := add(t, sessions.New(generous()), "one")
	var wg sync.WaitGroup
	logs := make([][]council.Entry, 100)
	for i := range logs {
		wg.Go(func() {
			for {
				entries, more := read(s, len(logs[i]))
				logs[i] = append(logs[i], entries...)
				if more == nil {
					return
				}
				<-more
			}
		})
	}
	for i := range 1000 {
		s.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: strconv.Itoa(i)}})
		_, _ = s.JSON()
	}
	finish(t, s)
	wg.Wait()
	whole, _ := read(s, 0)
	for i, log := range logs {
		if len(log) != 1001 || len(log) != len(whole) {
			t.Fatalf("watcher %d read %d entries of %d", i, len(log), len(whole))
		}
		for k := range log {
			if &log[k].Data[0] != &whole[k].Data[0] {
				t.Fatalf("watcher %d has entry %d in bytes of its own", i, k)
			}
		}
	}
}

// BenchmarkObserve is a delta that is watched.
func BenchmarkObserve(b *testing.B) {
	st := sessions.New(generous())
	s, _, _ := st.Add(b.Context(), start("one"))
	e := council.Event{Type: council.EventDelta, Data: council.Delta{Text: " a few words"}}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n++; n%10_000 == 0 {
			s, _, _ = st.Add(b.Context(), start(strconv.Itoa(n)))
		}
		s.Observe(e)
		read(s, n) // which has it encoded
	}
}

// Some time after its end a session is held as JSON alone. It is read as before, once and
// again, whether it was watched or not.
func TestPackedSession(t *testing.T) {
	for _, watched := range []bool{false, true} {
		race.Bubble(t, func(t *testing.T) {
			st := sessions.New(generous())
			defer st.Close(t.Context())
			s := add(t, st, "one")
			held, want := observed(t, s, watched)
			for _, wait := range []time.Duration{0, 1500 * time.Millisecond, 500 * time.Millisecond, time.Minute} {
				time.Sleep(wait)
				runtime.GC()
				if packed := held.Value() == nil; packed != (wait > 0) {
					t.Errorf("after %s: held as JSON alone: %v", wait, packed)
				}
				got, _ := events(s, 0)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("events: %s", diff)
				}
				if entries, _ := read(s, 0); len(entries) != len(want) {
					t.Errorf("%d entries of %d events", len(entries), len(want))
				} else {
					for i, e := range entries {
						if data, err := json.Marshal(want[i].Data); err != nil || e.Type != want[i].Type || string(e.Data) != string(data) {
							t.Errorf("entry %d is %s %s, want %s, %v", i, e.Type, e.Data, data, err)
						}
					}
				}
				if session, failure := s.Result(); failure != nil || !cmp.Equal(session, want[len(want)-1].Data) {
					t.Errorf("got %+v, %v", session, failure)
				}
			}
		})
	}
}

// observed has a session end, and returns what its run returned, as long as that is held,
// and the events.
func observed(t *testing.T, s *sessions.Session, watched bool) (held weak.Pointer[council.Session], want []council.Event) {
	t.Helper()
	session := func() *council.Session {
		text, result := "an answer", start(s.ID).Plan.Session()
		result.Status, result.Answer = council.StatusComplete, text
		result.Stage1 = []council.Answer{{Model: "a", Response: &text}, {Model: "b", Status: council.OutcomeError}}
		result.Stage2 = []council.Review{{Model: "b", Ranking: &text}}
		result.Stage3 = &council.Synthesis{Model: "a", Response: text}
		result.Metadata.Agreement.Ballots = 1
		return result
	}
	list := func(result *council.Session) []council.Event {
		return []council.Event{
			{Type: council.EventStarted, Data: council.Started{SessionID: s.ID}},
			{Type: council.EventAnswer, Data: result.Stage1[1]}, // in the order in which they landed
			{Type: council.EventAnswer, Data: result.Stage1[0]},
			{Type: council.EventStage1, Data: result.Stage1},
			{Type: council.EventBallot, Data: result.Stage2[0]},
			{Type: council.EventStage2, Data: result.Metadata.Tally},
			{Type: council.EventDelta, Data: council.Delta{Text: "an"}},
			{Type: council.EventStage3, Data: *result.Stage3},
			{Type: council.EventDone, Data: result},
		}
	}
	result := session()
	for _, e := range list(result) {
		s.Observe(e)
		if watched {
			read(s, 0)
		}
	}
	if err := s.Finish(result, nil, nil); err != nil {
		t.Fatal(err)
	}
	return weak.Make(result), list(session())
}
