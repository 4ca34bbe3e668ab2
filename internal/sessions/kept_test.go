package sessions_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/testkit"
)

// process is a process that keeps sessions in a directory.
type process struct {
	*sessions.Store
	journal *journal.Journal
}

// begin begins a process. It ends by stop, or with the test.
func begin(t *testing.T, dir string, change ...func(*sessions.Options)) process {
	t.Helper()
	return beginWith(t, dir, 64<<20, change...)
}

// beginWith is begin with a limit of the journal in bytes.
func beginWith(t *testing.T, dir string, maxBytes int64, change ...func(*sessions.Options)) process {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	node := t.Name() + time.Now().String()
	j, err := journal.Open(t.Context(), journal.Options{
		Dir: dir, MaxBytes: maxBytes, Prefix: "council", Node: node, Replicas: 1, Lease: time.Minute, Log: log, Waits: quick(),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := generous()
	o.Journal, o.Node, o.Log = j, node, log
	for _, f := range change {
		f(&o)
	}
	p := process{sessions.New(o), j}
	t.Cleanup(func() { p.stop(t) })
	return p
}

func (p process) stop(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	p.Close(ctx)
	if err := p.journal.Close(ctx); err != nil {
		t.Error(err)
	}
}

// resume returns the sessions that the process goes on with.
func (p process) resume(t *testing.T) (resumed []sessions.Resumed) {
	t.Helper()
	p.Resume(t.Context(), sessions.Runner{Run: func(r sessions.Resumed, _ func()) { resumed = append(resumed, r) }})
	return resumed
}

func inBackground(s *sessions.Start) { s.Background = true }

// upTo waits until the session shows n entries.
func upTo(t *testing.T, s *sessions.Session, n int) {
	t.Helper()
	for {
		entries, more := read(s, 0)
		if len(entries) >= n {
			return
		}
		select {
		case <-more:
		case <-time.After(time.Minute):
			t.Fatalf("%d entries, want %d", len(entries), n)
		}
	}
}

// observe has a session observe what a run of two members tells until stage 2.
func observe(s *sessions.Session) {
	text := "x"
	for _, data := range []any{
		council.Started{SessionID: s.ID, Versions: council.Versions{Councild: "v1"}},
		council.Answer{Model: "a", Status: council.OutcomeOK, Response: &text},
		council.Answer{Model: "b", Status: council.OutcomeOK, Response: &text},
	} {
		event := council.EventAnswer
		if _, ok := data.(council.Started); ok {
			event = council.EventStarted
		}
		s.Observe(council.Event{Type: event, SessionID: s.ID, Data: data})
	}
	s.Observe(council.Event{Type: council.EventCall, Data: council.Landed{Seat: "a"}}) // which no client sees
}

// A session that cannot be claimed at start, because the journal is full, is gone on with
// when there is room.
func TestClaimLater(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	dir := t.TempDir()
	first := begin(t, dir)
	observe(add(t, first.Store, "one", inBackground))
	large := add(t, first.Store, "large", inBackground)
	text := strings.Repeat("x", 1<<20)
	const answers = 20 // more than the reserve of a journal
	for range answers {
		large.Observe(council.Event{Type: council.EventAnswer, Data: council.Answer{Model: "a", Status: council.OutcomeOK, Response: &text}})
	}
	upTo(t, large, answers)
	finish(t, large)
	<-large.Done()
	first.stop(t)

	second := beginWith(t, dir, 1)
	resumed, tried := make(chan sessions.Resumed, 2), make(chan struct{}, 100)
	var places atomic.Int32 // taken
	second.Resume(t.Context(), sessions.Runner{
		Place: func() (release func(), ok bool) {
			places.Add(1)
			tried <- struct{}{}
			return func() { places.Add(-1) }, true
		},
		Run: func(r sessions.Resumed, _ func()) { resumed <- r },
	})
	if len(resumed) > 0 || get(t, second.Store, "", "one") == nil {
		t.Fatal("the journal is not full, or the session is gone")
	}
	<-tried
	forget(t, second.Store, get(t, second.Store, "", "large"))
	if r := <-resumed; r.ID != "one" || places.Load() != 1 || len(resumed) > 0 {
		t.Errorf("gone on with %s in %d places", r.ID, places.Load())
	}
}

// A session that was kept is the same in the next process, byte by byte.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	first := begin(t, dir)
	s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Key, s.Owner = "k", "me" })
	if s.Log() == nil || add(t, first.Store, "plain").Log() != nil {
		t.Error("what is kept is not what somebody can come back to")
	}
	observe(s)
	upTo(t, s, 3)
	finish(t, s)
	<-s.Done()
	before, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	log := entries(s, 0)
	if len(log) != 4 {
		t.Errorf("the log is %v", log)
	}
	failed := add(t, first.Store, "two", inBackground)
	if err := failed.Finish(nil, &council.Error{Code: council.CodeNoQuorum, Detail: "d"}, council.Problem{Code: council.CodeNoQuorum, Detail: "d"}); err != nil {
		t.Fatal(err)
	}
	<-failed.Done()
	first.stop(t)

	second := begin(t, dir)
	if n := len(second.resume(t)); n != 0 {
		t.Errorf("%d sessions are gone on with that had ended", n)
	}
	again := get(t, second.Store, "me", "one")
	if again == nil || get(t, second.Store, "", "one") != nil || get(t, second.Store, "", "plain") != nil {
		t.Fatal("not the sessions that were kept")
	}
	after, err := again.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(log, entries(again, 0)); diff != "" {
		t.Error(diff)
	}
	for _, s := range []*sessions.Session{find(t, second.Store, "me", "k"), func() *sessions.Session {
		s, added, err := second.Add(t.Context(), start("three", func(s *sessions.Start) { s.Key, s.Owner = "k", "me" }))
		if added || err != nil {
			t.Errorf("the key begins another session: %v", err)
		}
		return s
	}()} {
		if s == nil || s.ID != "one" || s.Digest != again.Digest {
			t.Errorf("the key has the session %v", s)
		}
	}
	_, failure := get(t, second.Store, "", "two").Result()
	if failure == nil || failure.Code != council.CodeNoQuorum {
		t.Errorf("the failure is %v", failure)
	}
	forget(t, second.Store, again)
	if get(t, second.Store, "me", "one") != nil || find(t, second.Store, "me", "k") != nil || len(second.List("me")) != 0 {
		t.Error("deleted, and still there")
	}
	if _, added, err := second.Add(t.Context(), start("four", func(s *sessions.Start) { s.Key, s.Owner = "k", "me" })); !added || err != nil {
		t.Errorf("the key of a deleted session is not free: %v", err)
	}
}

// A session that a process left is gone on with by the next one.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	for round, released := range []bool{false, true} {
		id := fmt.Sprintf("session-%d", round)
		first := begin(t, dir)
		plan := start(id, inBackground)
		plan.Plan.Seed = 7
		s, _, err := first.Add(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		observe(s)
		s.Log().Stored(t.Context())
		if released {
			first.Cancel(errors.New("the daemon stops"))
			<-s.Done()
			if _, failure := s.Result(); failure == nil || failure.Code != council.CodeUnavailable {
				t.Errorf("the failure is %v", failure)
			}
			if _, more := read(s, 0); more != nil {
				t.Error("a watcher waits for what another process does")
			}
			s.Observe(council.Event{Type: council.EventStage1, Data: []council.Answer{}})
			finish(t, s) // without an effect, as the run was cancelled
		}
		first.stop(t)

		second := begin(t, dir)
		resumed := second.resume(t)
		if len(resumed) != 1 || resumed[0].ID != id || resumed[0].Plan.Seed != 7 || resumed[0].Cancelled {
			t.Fatalf("resumed %v", resumed)
		}
		var past []string
		for _, e := range resumed[0].Log().State.Entries {
			past = append(past, string(e.Type))
		}
		if diff := cmp.Diff("session.started stage1.answer stage1.answer call.landed", strings.Join(past, " ")); diff != "" {
			t.Error(diff)
		}
		if resumed[0].Log().Last {
			t.Error("the session may begin no call")
		}
		again := get(t, second.Store, "", id)
		if again != resumed[0].Session || len(entries(again, 0)) != 3 {
			t.Error("not the session that is gone on with")
		}
		if body, err := again.JSON(); err != nil || !strings.Contains(string(body), `"status":"running"`) || strings.Count(string(body), `"response":"x"`) != 2 {
			t.Errorf("%v: %s", err, body)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		again.Begin(cancel)
		again.Cancel(sessions.ErrDeleted)
		if !errors.Is(context.Cause(ctx), sessions.ErrDeleted) {
			t.Error("not cancelled")
		}
		finish(t, again)
		<-again.Done()
		second.stop(t)
	}
}

// killed returns the directory of a process as a kill leaves it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return left
}

// A session that takes its processes down is not tried for ever. Those that wait beside it
// are spared: for replies, or for a place.
func TestFaultF62(t *testing.T) {
	testkit.Slow(t)
	dir := t.TempDir()
	first := begin(t, dir)
	const waiting = 4
	wait := func(s *sessions.Session) (landed func()) {
		s.Log()
		if s.ID != "queued" {
			landed = s.Log().Calling()
		}
		s.Log().Stored(t.Context())
		return landed
	}
	for _, id := range []string{"poison", "early", "queued", "w0", "w1", "w2", "w3"} {
		s := add(t, first.Store, id, inBackground)
		switch id {
		case "poison":
			observe(s)
			s.Log().Calling()() // its reply is there, and is being read
		case "early":
			s.Log() // its run is about to begin a call
		case "queued":
		default:
			observe(s)
			_ = wait(s)
		}
	}
	const crashes = 8
	ended := map[string]int{}
	for n := 1; n <= crashes; n++ {
		time.Sleep(300 * time.Millisecond) // the journal does not note waits that are shorter than 100 ms
		dir = killed(t, dir)
		next := begin(t, dir)
		for _, r := range next.resume(t) {
			if r.Log().Last { // which says that its run begins
				ended[r.ID] = n
				finish(t, r.Session)
				<-r.Done()
				continue
			}
			if r.ID == "poison" || r.ID == "early" {
				continue
			}
			landed := r.Log().Calling()
			if n%2 == 0 {
				landed()
				r.Observe(council.Event{Type: council.EventCall, Data: council.Landed{Seat: "a", Number: n}})
				r.Log().Stored(t.Context())
				r.Log().Calling()
			}
		}
	}
	if want := map[string]int{"poison": 3, "early": 3}; !maps.Equal(ended, want) {
		t.Errorf("after so many crashes these were ended: %v, want %v", ended, want)
	}
	t.Logf("fault F62: %d crashes in a row: the two sessions that worked in each of them ended after 3, none of %d that waited (a session "+
		"that worked in three crashes in a row is ended, and none that waited in them)", crashes, waiting+1)
}

// Of a log of an earlier version every crash counts, and on a cluster too: nobody knows who
// worked.
func TestCrashesUnknown(t *testing.T) {
	dir := t.TempDir()
	first := begin(t, dir)
	add(t, first.Store, "one", inBackground)
	first.stop(t)
	for n := 1; n <= 3; n++ {
		if err := os.Remove(filepath.Join(dir, "working")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		next := begin(t, dir)
		resumed := next.resume(t)
		if len(resumed) != 1 || resumed[0].Log().Last != (n == 3) {
			t.Errorf("process %d: resumed %v", n, resumed)
		}
		next.stop(t)
	}
}

// Text on its way is shown as it comes, behind what is stored, and stored every 5 s and
// when it is whole. Every position in it can be gone on from.
func TestText(t *testing.T) {
	dir := t.TempDir()
	first := begin(t, dir)
	s := add(t, first.Store, "one", inBackground)
	observe(s)
	upTo(t, s, 3)
	pieces := []string{"Sch", "öne", "s \"Wetter\"", " 🌦"}
	whole := strings.Join(pieces, "")
	for _, piece := range pieces {
		s.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: piece}})
	}
	upTo(t, s, 7)
	positions := []sessions.Position{{Number: 3}}
	page, _ := s.Entries(positions[0])
	for i := range page.Entries {
		positions = append(positions, page.Position(i))
	}
	if diff := cmp.Diff([]sessions.Position{{3, nil}, {3, []int{3}}, {3, []int{6}}, {3, []int{16}}, {3, []int{18}}}, positions); diff != "" {
		t.Error(diff)
	}
	behind := func(s *sessions.Session, seen int) (text string) {
		page, _ := s.Entries(sessions.Position{Number: 3, Characters: []int{seen}})
		for _, e := range page.Entries {
			if event, err := e.Decode(); err != nil {
				t.Error(err)
			} else if delta, ok := event.Data.(council.Delta); ok {
				text += delta.Text
			}
		}
		return text
	}
	everywhere := func(s *sessions.Session) {
		t.Helper()
		for seen := range 19 {
			if diff := cmp.Diff(string([]rune(whole)[seen:]), behind(s, seen)); diff != "" {
				t.Errorf("behind %d characters: %s", seen, diff)
			}
		}
	}
	everywhere(s)
	if diff := cmp.Diff(sessions.Position{Number: 3, Characters: []int{18}}, s.Last(t.Context(), 0)); diff != "" {
		t.Errorf("the last position is %s", diff)
	}
	events, next, _ := s.Events(sessions.Position{Number: 3, Characters: []int{6}})
	if len(events) != 2 || len(next.Characters) != 1 || next.Characters[0] != 18 {
		t.Errorf("%v, behind %v", events, next)
	}
	finish(t, s)
	<-s.Done()
	everywhere(s)
	if page, _ := s.Entries(sessions.Position{Number: 3, Characters: []int{18}}); len(page.Entries) != 1 || page.Position(0).Number != 5 {
		t.Errorf("behind the text: %v", page)
	}
	first.stop(t)
	second := begin(t, dir)
	stored := get(t, second.Store, "", "one")
	everywhere(stored)
	if rest := behind(stored, math.MaxInt); rest != "" { // the number is a client's: counting to it would not end
		t.Errorf("behind the last character of all comes %q", rest)
	}
}

// Several members write at once. A client that breaks off behind any event, and comes back
// whenever it likes, has the same texts in the end, whether they are on their way, stored in
// part or whole, or shown by another process.
func TestTextsAtOnce(t *testing.T) {
	dir := t.TempDir()
	first := begin(t, dir)
	s := add(t, first.Store, "one", inBackground)
	observe(s)
	upTo(t, s, 3)
	s.Log().Stored(t.Context())
	want := map[string]string{}
	write := func(model, text string) {
		want[model] += text
		s.Observe(council.Event{Type: council.EventAnswerDelta, Data: council.AnswerDelta{Model: model, Text: text}})
	}
	type client struct {
		at    sessions.Position
		texts map[string]string
	}
	clients := []client{{at: sessions.Position{Number: 3}, texts: map[string]string{}}}
	// follow has a client read at most so many events.
	follow := func(s *sessions.Session, c client, events int) client {
		t.Helper()
		c.texts = maps.Clone(c.texts)
		page, _ := s.Entries(c.at)
		for i, entry := range page.Entries[:min(events, len(page.Entries))] {
			at, ok := sessions.ParsePosition(string(page.Position(i).Append(nil)))
			if !ok || at.Number < c.at.Number ||
				at.Number == c.at.Number && slices.Compare(at.Characters, c.at.Characters) <= 0 {
				t.Fatalf("position %v follows %v", at, c.at)
			}
			c.at = at
			event, err := entry.Decode()
			if err != nil {
				t.Fatal(err)
			}
			if delta, ok := event.Data.(council.AnswerDelta); ok {
				c.texts[delta.Model] += delta.Text
			}
		}
		return c
	}
	// check has every client that ever was read to the end, and each begin at every event.
	check := func(s *sessions.Session) {
		t.Helper()
		more := map[string]client{}
		for _, c := range clients {
			for n := 0; ; n++ {
				part := follow(s, c, n)
				if diff := cmp.Diff(want, follow(s, part, math.MaxInt).texts); diff != "" {
					t.Fatalf("from %v over %v: %s", c.at, part.at, diff)
				}
				more[fmt.Sprint(part)] = part
				if page, _ := s.Entries(c.at); n >= len(page.Entries) {
					break
				}
			}
		}
		clients = slices.Collect(maps.Values(more))
	}
	write("a", "Ä")
	write("b", "öne")
	write("a", "pfel")
	check(s)
	write("c", "\"🌦\"")
	write("b", "!")
	check(s)
	s.Observe(council.Event{Type: council.EventAnswer, Data: council.Answer{Model: "d"}})
	s.Log().Stored(t.Context())
	check(s)
	if got := entries(s, 3); len(got) != 4 { // one of each text, and the answer
		t.Errorf("the log goes on with %v", got)
	}
	write("c", "x")
	write("a", " und Birnen")
	check(s)
	finish(t, s)
	<-s.Done()
	check(s)
	first.stop(t)
	second := begin(t, dir)
	check(get(t, second.Store, "", "one"))
	t.Logf("%d clients", len(clients))
}

// What is stored goes when its time is over, or when there is too much of it. What runs
// stays.
func TestRetention(t *testing.T) {
	p := begin(t, t.TempDir(), func(o *sessions.Options) { o.Kept = 2 })
	running := add(t, p.Store, "running", inBackground)
	for i := range 4 {
		s := add(t, p.Store, fmt.Sprintf("s%d", i), inBackground, func(s *sessions.Start) { s.Key = s.Plan.SessionID })
		finish(t, s)
		<-s.Done()
	}
	for deadline := time.Now().Add(time.Minute); len(p.List("")) > 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("kept %v", p.List(""))
		}
	}
	var ids []string
	for _, s := range p.List("") {
		ids = append(ids, s.ID)
	}
	if diff := cmp.Diff([]string{"s3", "s2", "running"}, ids); diff != "" {
		t.Error(diff)
	}
	if find(t, p.Store, "", "s0") != nil || find(t, p.Store, "", "s3") == nil || get(t, p.Store, "", "running") != running {
		t.Error("not what is listed")
	}
}

// Where nothing can be stored, a session that runs goes on without its log and says so,
// and none begins that is to be kept.
func TestNotKept(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	p := begin(t, t.TempDir())
	s := add(t, p.Store, "one", inBackground)
	observe(s)
	s.Log().Stored(t.Context())
	if err := p.journal.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, err := p.Add(t.Context(), start("two", inBackground))
	if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeUnavailable || e.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	if add(t, p.Store, "plain").Log() != nil || get(t, p.Store, "", "two") != nil {
		t.Error("a session is there that cannot be")
	}
	begun := time.Now()
	s.Observe(council.Event{Type: council.EventStage1, Data: []council.Answer{}})
	s.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: "a text"}})
	if entries, _ := read(s, 3); len(entries) != 0 {
		t.Errorf("shown, and not stored: %v", entries)
	}
	s.Log().Stored(t.Context())
	if waited := time.Since(begun); waited < waits().Append || waited > time.Minute {
		t.Errorf("the session waited for %s", waited)
	}
	upTo(t, s, 5)
	finish(t, s)
	<-s.Done()
	if body, err := s.JSON(); err != nil || !strings.Contains(string(body), `"code":"not_kept"`) {
		t.Errorf("%v: %s", err, body)
	}
	if got := entries(s, 3); len(got) != 3 || !strings.Contains(got[1], "a text") {
		t.Errorf("the log ends with %v", got)
	}
}

// A session whose end has no room leaves the room that it took to others.
func TestFull(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	j, err := journal.Open(t.Context(), journal.Options{
		Dir: t.TempDir(), MaxBytes: 1, Prefix: "council", Node: "me", Replicas: 1, Lease: time.Minute, Log: log, Waits: quick(),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := generous()
	o.Journal, o.Node, o.Log = j, "me", log
	p := process{sessions.New(o), j}
	t.Cleanup(func() { p.stop(t) })
	s := add(t, p.Store, "one", inBackground)
	text := strings.Repeat("x", 1<<20)
	for range 17 { // the stream has 16 MiB
		s.Observe(council.Event{Type: council.EventAnswer, SessionID: s.ID, Data: council.Answer{Model: "a", Response: &text}})
	}
	s.Log().Stored(t.Context())
	_, _, err = p.Add(t.Context(), start("two", inBackground))
	refused(t, "a full stream", err)
	finish(t, s)
	<-s.Done()
	logGone(t, p, "one")
	if body, err := s.JSON(); err != nil || !strings.Contains(string(body), `"code":"not_kept"`) {
		t.Errorf("%v: %s", err, body)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, _, err = p.Add(t.Context(), start("three", inBackground)); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// A session whose log was lost goes on without it: what it was paid for is not lost with
// the log.
func TestLogLost(t *testing.T) {
	p := begin(t, t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	s := add(t, p.Store, "one", inBackground, func(s *sessions.Start) { s.Cancel = cancel })
	if err := p.journal.Purge(t.Context(), journal.ID{Session: "one"}); err != nil {
		t.Fatal(err)
	}
	observe(s)
	upTo(t, s, 3)
	finish(t, s)
	<-s.Done()
	session, failure := s.Result()
	if failure != nil || ctx.Err() != nil {
		t.Fatalf("it ends with %v, %v", failure, context.Cause(ctx))
	}
	if w := session.Metadata.Warnings; len(w) != 1 || w[0].Code != council.WarnNotKept {
		t.Errorf("its warnings are %v", w)
	}
	if get(t, p.Store, "", "one") != s {
		t.Error("it cannot be fetched")
	}
}

// A session that went on without its log leaves memory when its time is over, whatever
// became of the log.
func TestExpiryWithoutALog(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, p process, s *sessions.Session){
		"deleted": func(t *testing.T, p process, s *sessions.Session) {
			t.Helper()
			if err := p.journal.Purge(t.Context(), journal.ID{Session: s.ID}); err != nil {
				t.Fatal(err)
			}
		},
		"full": func(_ *testing.T, _ process, s *sessions.Session) {
			text := strings.Repeat("x", 1<<20)
			for range 17 { // the stream has 16 MiB
				s.Observe(council.Event{Type: council.EventAnswer, Data: council.Answer{Model: "a", Response: &text}})
			}
			s.Log().Stored(t.Context())
		},
		"not written": func(t *testing.T, p process, _ *sessions.Session) {
			t.Helper()
			if err := p.journal.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := beginWith(t, t.TempDir(), 1, func(o *sessions.Options) { o.Retention = time.Second })
			held := func() weak.Pointer[sessions.Session] {
				s := add(t, p.Store, "one", inBackground)
				lose(t, p, s)
				observe(s)
				s.Log().Stored(t.Context())
				observe(s)
				finish(t, s)
				<-s.Done()
				return weak.Make(s)
			}()
			for deadline := time.Now().Add(time.Minute); held.Value() != nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the session is still in memory")
				}
				runtime.GC()
			}
		})
	}
}

// What stands in a log where a session wants to go on decides: its own earlier try was
// stored, a request to cancel it is obeyed, and any other process's claim ends it here.
func TestMoved(t *testing.T) {
	p := begin(t, t.TempDir(), func(o *sessions.Options) { o.Node = "me" })
	started := council.Event{Type: council.EventStarted, Data: council.Started{SessionID: "x"}}
	for _, tt := range []struct {
		name     string
		node     string
		epoch    int
		entry    council.EventType
		length   int // of the entry
		canceled error
		want     string // the entries of the log
	}{
		{"its own", "me", 1, council.EventStarted, 2, nil, "session.accepted session.started stage1.answer session.done"},
		{"its own in two parts", "me", 1, council.EventStarted, 600 << 10, nil, "session.accepted session.started stage1.answer session.done"},
		{
			"a request to cancel it", "other", 1, "session.cancel_requested", 2, sessions.ErrDeleted,
			"session.accepted session.cancel_requested session.started stage1.answer session.done",
		},
		{
			"a claim", "other", 2, "session.claimed", 2, errors.New("another process has taken it over"),
			"session.accepted session.claimed",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := strings.ReplaceAll(tt.name, " ", "-")
			ctx, cancel := context.WithCancelCause(t.Context())
			s := add(t, p.Store, id, inBackground, func(s *sessions.Start) { s.Cancel = cancel })
			row, _ := p.journal.Row(journal.ID{Session: id})
			head := row.Head
			head.Node, head.Epoch = tt.node, tt.epoch
			if _, err := p.journal.Append(t.Context(), row.ID, row.Seq, journal.Message{
				Head: head, First: 2, Entries: []council.Entry{{Type: tt.entry, Data: []byte("{" + strings.Repeat(" ", tt.length-2) + "}")}},
			}); err != nil {
				t.Fatal(err)
			}
			s.Observe(started)
			if tt.canceled != nil {
				<-ctx.Done()
				if cause := context.Cause(ctx); cause == nil || cause.Error() != tt.canceled.Error() {
					t.Errorf("cancelled by %v", cause)
				}
			}
			s.Observe(council.Event{Type: council.EventAnswer, Data: council.Answer{Model: "a"}})
			finish(t, s)
			<-s.Done()
			if got := entries(s, 0); len(got) != 3 {
				t.Errorf("shown %v", got)
			}
			log, err := p.journal.Read(t.Context(), row.ID)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range log {
				for _, e := range m.Entries {
					got = append(got, string(e.Type))
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A session that its owner has cancelled is not gone on with, whether its process stops
// before the run has ended, or is killed.
func TestCancelledByOwner(t *testing.T) {
	for _, killed := range []bool{false, true} {
		dir := t.TempDir()
		first := begin(t, dir)
		ctx, cancel := context.WithCancelCause(t.Context())
		s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Cancel = cancel })
		observe(s)
		if err := first.Stop(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, sessions.ErrDeleted) {
			t.Errorf("killed %v: the run here ends by %v", killed, cause)
		}
		if !killed {
			first.Cancel(errors.New("the daemon stops"))
			if err := first.Stop(t.Context(), s); err != nil {
				t.Errorf("cancelled again, and handed over: %v", err)
			}
		}
		first.stop(t)

		resumed := begin(t, dir).resume(t)
		if len(resumed) != 1 || !resumed[0].Cancelled {
			t.Errorf("killed %v: the next process goes on with %v", killed, resumed)
		}
		if n := len(entries(resumed[0].Session, 0)); n != 3 {
			t.Errorf("killed %v: it shows %d entries", killed, n)
		}
	}
}

// A session that is cancelled while its process hands it over is cancelled by the next one.
func TestCancelledAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	first := begin(t, dir)
	s := add(t, first.Store, "one", inBackground)
	first.Cancel(errors.New("the daemon stops"))
	if err := first.Stop(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first.stop(t)
	if resumed := begin(t, dir).resume(t); len(resumed) != 1 || !resumed[0].Cancelled {
		t.Errorf("the next process goes on with %v", resumed)
	}
}

// Where the request to cancel a session cannot be stored, its run ends at once all the same,
// and its owner is told.
func TestCancelledWithoutALog(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	p := begin(t, t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	s := add(t, p.Store, "one", inBackground, func(s *sessions.Start) { s.Cancel = cancel })
	if err := p.journal.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	told := make(chan error)
	go func() { told <- p.Stop(t.Context(), s) }()
	<-ctx.Done()
	select {
	case err := <-told:
		t.Fatal("told before it was tried:", err)
	default:
	}
	select {
	case err := <-told:
		if err == nil {
			t.Error("a request that is not stored counts as stored")
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody is told")
	}
}
