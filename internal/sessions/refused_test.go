package sessions_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// running has a process run the sessions of others, and returns those that it runs.
func (p process) running(t *testing.T) <-chan sessions.Resumed {
	t.Helper()
	runs := make(chan sessions.Resumed, 10)
	p.Resume(t.Context(), sessions.Runner{
		Place: func() (func(), bool) { return func() {}, true },
		Run:   func(r sessions.Resumed, _ func()) { runs <- r },
	})
	return runs
}

// soon waits for a value.
func soon[T any](t *testing.T, what string, values <-chan T, within time.Duration) (v T) {
	t.Helper()
	select {
	case v = <-values:
	case <-time.After(within):
		t.Fatalf("%s: not within %s", what, within)
	}
	return v
}

// connected waits until a process is connected to the cluster again.
func (p process) connected(t *testing.T) {
	t.Helper()
	for p.journal.Beat(t.Context()) != nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// headOf returns the head that a process stores for a session.
func headOf(t *testing.T, p process, id string, change ...func(*sessions.Start)) journal.Message {
	t.Helper()
	add(t, p.Store, id, append(change, inBackground)...)
	log, err := p.journal.Read(t.Context(), journal.ID{Session: id})
	if err != nil {
		t.Fatal(err)
	}
	return log[0].Message
}

// A node stores a session, has no answer, and refuses it. The client repeats its key at another node, which runs the
// session. When the first node is back, it leaves the session alone.
func TestRefusedButBegunElsewhere(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	first, second := beginNode(t, link.URL), beginNode(t, cluster.URL, withPrompts(""))
	runs := second.running(t)
	var lose atomic.Bool
	lose.Store(true)
	link.Requests(func(subject string) journaltest.Fate {
		f := journaltest.Fate{After: []time.Duration{0}}
		switch {
		case !lose.Load():
		case strings.HasPrefix(subject, "council.session."):
			f.Unanswered = true
		case strings.HasPrefix(subject, "$JS.API.STREAM.MSG.GET.COUNCIL_SESSIONS"):
			f.After = nil
		}
		return f
	})
	first.connected(t)
	withKey := func(s *sessions.Start) { s.Key = "k" }
	_, _, err := first.Add(t.Context(), start("one", withKey))
	refused(t, "without an answer", err)

	s, added, err := second.Add(t.Context(), start("two", withKey))
	if err != nil || added || s.ID != "one" {
		t.Fatalf("the key has the session %+v, added: %v, %v", s, added, err)
	}
	r := soon(t, "it runs", runs, time.Second)
	observe(r.Session)
	finish(t, r.Session)
	<-s.Done()
	lose.Store(false)
	for name, p := range map[string]process{"first": first, "second": second} {
		for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if s := get(t, p.Store, "", "one"); s == nil {
				t.Fatalf("%s node: the session is gone", name)
			}
		}
		if s := find(t, p.Store, "", "k"); s == nil || s.ID != "one" || s.Summary().Status != council.StatusComplete {
			t.Errorf("%s node: the key has %+v", name, s)
		}
	}
}

// A session that a node ended without its log, and has forgotten since, stays where another node has taken it over.
func TestForgottenButTakenOver(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	first := beginNode(t, link.URL, func(o *sessions.Options) { o.Kept = 0 })
	second := beginNode(t, cluster.URL)
	s := add(t, first.Store, "one", inBackground)
	id := journal.ID{Session: "one"}
	link.Cut()
	observe(s)
	s.Log().Stored(t.Context()) // it goes on without its log
	finish(t, s)
	<-s.Done()
	row, _ := second.journal.Row(id)
	m := journal.Message{Head: row.Head, First: row.Entries + 1}
	m.Node, m.Epoch, m.Status = "other", 2, council.StatusComplete
	m.Entries = []council.Entry{
		{Type: "session.claimed", Data: []byte("{}")},
		{Type: council.EventDone, Data: []byte(`{"id":"one","status":"complete","answer":"the other's"}`)},
	}
	if _, err := second.journal.Append(t.Context(), id, row.Seq, m); err != nil {
		t.Fatal(err)
	}
	link.Mend()
	first.connected(t)
	for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if get(t, second.Store, "", "one") == nil {
			t.Fatal("the session is gone")
		}
	}
}

// The head of a session comes to the cluster after its node has refused the session: there is no session.
func TestHeadAfterRefusal(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	p, other := beginNode(t, link.URL), beginNode(t, cluster.URL)
	p.running(t)
	var late atomic.Bool
	var sent atomic.Int64
	late.Store(true)
	const delay = 5 * time.Second
	link.Requests(func(subject string) journaltest.Fate {
		if strings.HasPrefix(subject, "council.session.") && late.Load() {
			sent.Add(1)
			return journaltest.Fate{After: []time.Duration{delay}}
		}
		return journaltest.Fate{After: []time.Duration{0}}
	})
	p.connected(t)
	withKey := func(s *sessions.Start) { s.Key = "k" }
	_, _, err := p.Add(t.Context(), start("one", withKey))
	refused(t, "while its head is on its way", err)
	late.Store(false)
	if sent.Load() == 0 {
		t.Fatal("nothing was sent")
	}
	for deadline := time.Now().Add(delay + time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, row := range other.journal.Unended() {
			t.Fatalf("a session that was refused is %+v", row)
		}
	}
	if s := add(t, p.Store, "two", withKey); s.ID != "two" {
		t.Errorf("the key has the session %s", s.ID)
	}
}

// What a node stored without knowing it, whatever the reason, is not left running: it removes a head, and goes on with
// a session that it claimed.
func TestOwnButNotHere(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	p, other := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	runs := p.running(t)
	head := headOf(t, p, "model", func(s *sessions.Start) { s.Key = "of the model" })
	store := func(id string, m ...journal.Message) {
		t.Helper()
		var seq uint64
		for _, m := range m {
			var err error
			if seq, err = other.journal.Append(t.Context(), journal.ID{Session: id}, seq, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Its head comes when the mark of its refusal is gone too.
	store("head", head)
	logGone(t, other, "head")
	if s := find(t, other.Store, "", "of the model"); s != nil && s.ID != "model" {
		t.Errorf("the key has the session %s", s.ID)
	}

	// So does that of a session of a node that is dead, whose key another session has.
	dead := head
	dead.Node = "dead"
	store("keyless", dead)
	logGone(t, other, "keyless")

	// The answer to a claim is lost.
	claim := journal.Message{Head: head.Head, First: 2, Entries: []council.Entry{{Type: "session.claimed", Data: []byte("{}")}}}
	claim.Epoch = 2
	again := claim
	again.First, again.Epoch = 3, 3
	store("claimed", dead, claim, again)
	r := soon(t, "it runs", runs, 5*time.Second)
	if r.ID != "claimed" || r.Log().Last {
		t.Errorf("%s runs, last: %v", r.ID, r.Log().Last)
	}
	finish(t, r.Session)
	<-r.Done()
}

// The same inside one process.
func TestOwnButNotHereInside(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	p := begin(t, t.TempDir())
	runs := p.running(t)
	head := headOf(t, p, "model")
	if _, err := p.journal.Append(t.Context(), journal.ID{Session: "head"}, 0, head); err != nil {
		t.Fatal(err)
	}
	logGone(t, p, "head")
	head.Entries = append(head.Entries, council.Entry{Type: council.EventStarted, Data: []byte("{}")})
	if _, err := p.journal.Append(t.Context(), journal.ID{Session: "left"}, 0, head); err != nil {
		t.Fatal(err)
	}
	if r := soon(t, "it runs", runs, 10*time.Second); r.ID != "left" {
		t.Errorf("%s runs", r.ID)
	}
	select {
	case r := <-runs:
		t.Errorf("%s runs too", r.ID)
	case <-time.After(3 * time.Second):
	}
}

// strangers begins a node that lives, and runs nothing.
func strangers(t *testing.T, url string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), journal.Options{
		URL: url, MaxBytes: 64 << 20, Prefix: "council", Node: rand.Text(), Replicas: 3, Lease: testLease, Log: slog.New(slog.DiscardHandler),
		Waits: quick(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return j
}

// A session whose node lives and does not run it: DELETE ends it within 2 s, and otherwise its time limit does, once.
func TestNobodyRunsIt(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	stranger := strangers(t, cluster.URL)
	node := ""
	for name := range stranger.Nodes() {
		node = name
	}
	for node == "" {
		time.Sleep(10 * time.Millisecond)
		for name := range stranger.Nodes() {
			node = name
		}
	}
	p, other := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	head := headOf(t, p, "model", func(s *sessions.Start) { s.Plan.Timeout = time.Second })
	if head.Timeout != time.Second {
		t.Errorf("the head says %s of the time limit", head.Timeout)
	}
	finish(t, get(t, p.Store, "", "model"))
	runs, others := p.running(t), other.running(t)
	head.Node = node
	started := journal.Message{Head: head.Head, First: 2, Entries: []council.Entry{{Type: council.EventStarted, Data: []byte("{}")}}}
	for _, id := range []string{"deleted", "deleted before it began", "left"} {
		id = strings.ReplaceAll(id, " ", "-")
		seq, err := stranger.Append(t.Context(), journal.ID{Session: id}, 0, head)
		if err == nil && !strings.HasPrefix(id, "deleted-") {
			_, err = stranger.Append(t.Context(), journal.ID{Session: id}, seq, started)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stored := time.Now()
	for _, id := range []string{"deleted", "deleted-before-it-began"} {
		begun := time.Now()
		for range 2 { // the client is impatient
			if err := p.Stop(t.Context(), get(t, p.Store, "", id)); err != nil {
				t.Fatal(err)
			}
		}
		r := soon(t, "it is ended", runs, 2*time.Second)
		if r.ID != id || !r.Cancelled {
			t.Errorf("%s runs, cancelled: %v", r.ID, r.Cancelled)
		}
		failed := &council.Error{Code: council.CodeCancelled, Detail: "d"}
		if err := r.Finish(nil, failed, council.Problem{Code: council.CodeCancelled}); err != nil {
			t.Fatal(err)
		}
		<-r.Done()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("%s ended after %s", id, took)
		}
	}
	var r sessions.Resumed
	select {
	case r = <-runs:
	case r = <-others:
	case <-time.After(time.Minute):
		t.Fatal("nobody ends it")
	}
	if took := time.Since(stored); took < testLease+waits().Margin {
		t.Errorf("it was ended after %s: its node might have run it", took)
	}
	if r.ID != "left" || !r.Log().Last || r.Cancelled {
		t.Errorf("%s runs, last: %v, cancelled: %v", r.ID, r.Log().Last, r.Cancelled)
	}
	finish(t, r.Session)
	<-r.Done()
	select {
	case r = <-runs:
		t.Errorf("%s runs once more", r.ID)
	case r = <-others:
		t.Errorf("%s runs once more", r.ID)
	case <-time.After(3 * time.Second):
	}
}

// A request that comes again after its session was deleted brings nothing back.
func TestHeadAfterDelete(t *testing.T) {
	t.Parallel()
	cluster := journaltest.Start(t)
	p, other := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	head := headOf(t, p, "one", func(s *sessions.Start) { s.Key = "k" })
	s := get(t, p.Store, "", "one")
	finish(t, s)
	<-s.Done()
	forget(t, other.Store, get(t, other.Store, "", "one"))
	if _, err := p.journal.Append(t.Context(), journal.ID{Session: "one"}, 0, head); err == nil {
		t.Error("the head is stored again")
	}
	if get(t, p.Store, "", "one") != nil || get(t, other.Store, "", "one") != nil {
		t.Error("the session is there again")
	}
	if _, err := p.journal.Read(t.Context(), journal.ID{Session: "one"}); !errors.Is(err, journal.ErrGone) {
		t.Error(err)
	}
	if s := add(t, other.Store, "two", func(s *sessions.Start) { s.Key = "k" }); s.ID != "two" {
		t.Errorf("the key has the session %s", s.ID)
	}
}
