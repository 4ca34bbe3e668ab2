package sessions_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/journal"
	"github.com/councild/councild/internal/journal/journaltest"
	"github.com/councild/councild/internal/sessions"
)

const testLease = 3 * time.Second

// beginNode begins a process on a cluster, with prompts.
func beginNode(t *testing.T, url string, prompts ...string) process {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	node := rand.Text()
	j, err := journal.Open(t.Context(), journal.Options{
		URL: url, MaxBytes: 64 << 20, Prefix: "council", Node: node, Replicas: 3, Lease: testLease, Log: log,
		Says: strings.Join(prompts, " "),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := generous()
	o.Journal, o.Node, o.Lease, o.Log, o.Prompts = j, node, testLease, log, prompts
	o.Needs = func(plan council.Plan, _ []council.Past) []string { return []string{plan.Rules.ReviewPrompt} }
	p := process{sessions.New(o), j}
	t.Cleanup(func() { p.stop(t) })
	return p
}

// mayCall asks whether a call may begin, and tells when it may.
func mayCall(ctx context.Context, s *sessions.Session) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Log().MayCall(ctx) }()
	return done
}

// No call begins while the lease is not confirmed. When it is again, the session goes on.
func TestLease(t *testing.T) {
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	p := beginNode(t, link.URL)
	s := add(t, p.Store, "one", inBackground)
	if err := <-mayCall(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	link.Cut()
	for time.Since(p.journal.Confirmed()) < testLease*2/3 {
		time.Sleep(10 * time.Millisecond) // the clock is what is waited for
	}
	begun := mayCall(t.Context(), s)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := mayCall(ctx, s)
	select {
	case err := <-begun:
		t.Fatal("a call begins without a lease:", err)
	case <-time.After(testLease / 3):
	}
	cancel()
	if err := <-cancelled; err != nil {
		t.Error(err)
	}
	link.Mend()
	if err := <-begun; err != nil {
		t.Error(err)
	}
	observe(s)
	upTo(t, s, 3)
	finish(t, s)
	<-s.Done()
}

// A key whose session another node is still storing is waited for.
func TestKeyOfOther(t *testing.T) {
	t.Parallel()
	cluster := journaltest.Start(t)
	first, second := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	mine := start("mine", func(s *sessions.Start) { s.Key = "k" })
	stored := add(t, second.Store, "other", func(s *sessions.Start) { s.Key = "another" }) // for a head
	log, err := second.journal.Read(t.Context(), journal.ID{Session: stored.ID})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("\nk"))
	if _, ok, err := second.journal.Reserve(t.Context(), hex.EncodeToString(sum[:]), journal.Reservation{Session: "theirs"}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	got := make(chan string, 1)
	go func() {
		s, added, err := first.Add(t.Context(), mine)
		if err != nil || added {
			t.Errorf("added: %t, %v", added, err)
			close(got)
			return
		}
		got <- s.ID
	}()
	select {
	case <-got:
		t.Fatal("the key has two sessions")
	case <-time.After(time.Second):
	}
	if _, err := second.journal.Append(t.Context(), journal.ID{Session: "theirs"}, 0, log[0].Message); err != nil {
		t.Fatal(err)
	}
	if id := <-got; id != "theirs" {
		t.Errorf("the key has the session %q", id)
	}
}

// The watchers of a session that another node has claimed see what that node does. What
// the run here still tells is nothing.
func TestDemoted(t *testing.T) {
	t.Parallel()
	cluster := journaltest.Start(t)
	first, second := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Cancel = cancel })
	observe(s)
	s.Log().Stored(t.Context())
	rows := func() journal.Row { row, _ := second.journal.Row(journal.ID{Session: "one"}); return row }
	for rows().Entries < 5 {
		<-time.After(time.Millisecond)
	}
	row := rows()
	head := row.Head
	head.Node, head.Epoch = "other", 2
	claim := journal.Message{Head: head, First: row.Entries + 1, Entries: []council.Entry{{Type: "session.claimed", Data: []byte("{}")}}}
	seq, err := second.journal.Append(t.Context(), row.ID, row.Seq, claim)
	if err != nil {
		t.Fatal(err)
	}
	<-ctx.Done() // without an append of its own
	s.Observe(council.Event{Type: council.EventStage1, Data: []council.Answer{}})
	finish(t, s)
	claim.First++
	claim.Entries = []council.Entry{{Type: council.EventRestart, Data: []byte(`{}`)}}
	if seq, err = second.journal.Append(t.Context(), row.ID, seq, claim); err != nil {
		t.Fatal(err)
	}
	upTo(t, s, 4)
	claim.First++
	claim.Status = council.StatusComplete
	claim.Entries = []council.Entry{{Type: council.EventDone, Data: []byte(`{"id":"one","status":"complete","answer":"the other's"}`)}}
	if _, err = second.journal.Append(t.Context(), row.ID, seq, claim); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	session, failure := s.Result()
	if failure != nil || session.Answer != "the other's" {
		t.Errorf("the session is %+v, %v", session, failure)
	}
	if got := entries(s, 0); len(got) != 5 {
		t.Errorf("shown %v", got)
	}
}

// Another node finds a session as soon as it is stored, whether its list has it or not.
func TestFoundAtOnce(t *testing.T) {
	t.Parallel()
	cluster := journaltest.Start(t)
	first, second := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	for i := range 100 {
		id := fmt.Sprintf("s%d", i)
		add(t, first.Store, id, inBackground)
		if s := get(t, second.Store, "", id); s == nil {
			t.Fatalf("session %d is not there", i)
		}
	}
	if s := get(t, second.Store, "", "none"); s != nil {
		t.Errorf("there is a session %q", s.ID)
	}
	if s := get(t, second.Store, "", "no.id"); s != nil {
		t.Errorf("there is a session %q", s.ID)
	}
}

// While the cluster does not answer, nobody is told that there is no session.
func TestFoundLater(t *testing.T) {
	t.Parallel()
	link := journaltest.Start(t).Link(t)
	p := beginNode(t, link.URL)
	link.Cut()
	defer link.Mend()
	_, err := p.Get(t.Context(), "", "one")
	if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeUnavailable || e.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
}

// The ends of sessions in memory that are not stored yet are stored before a node stops.
func TestLastBeforeClose(t *testing.T) {
	t.Parallel()
	cluster := journaltest.Start(t)
	first, second := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	const many = 20
	for i := range many {
		finish(t, add(t, first.Store, fmt.Sprintf("s%d", i)))
	}
	first.Close(t.Context())
	for i := range many {
		if s := get(t, second.Store, "", fmt.Sprintf("s%d", i)); s == nil {
			t.Fatalf("session %d is not there", i)
		}
	}
}

// A session is gone on with by a node that has its prompts. Only where there is none,
// another one takes it.
func TestPrompts(t *testing.T) {
	t.Parallel()
	cluster := journaltest.Start(t)
	first := beginNode(t, cluster.URL, "old")
	s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Plan.Rules.ReviewPrompt = "old" })
	observe(s)
	taken := make(chan string, 3)
	resume := func(name string, p process) {
		p.Resume(t.Context(), sessions.Runner{
			Place: func() (func(), bool) { return func() {}, true },
			Run:   func(sessions.Resumed, func()) { taken <- name },
		})
	}
	newer, older := beginNode(t, cluster.URL, "new", "newest"), beginNode(t, cluster.URL, "old", "new")
	resume("newer", newer)
	first.Store.Cancel(context.Canceled) // which releases it
	first.stop(t)
	select {
	case name := <-taken:
		t.Fatalf("%s has taken the session", name)
	case <-time.After(testLease * 2):
	}
	resume("older", older)
	if name := <-taken; name != "older" {
		t.Fatalf("%s has taken the session", name)
	}
	older.Store.Cancel(context.Canceled)
	older.stop(t)
	if name := <-taken; name != "newer" { // nobody else is there
		t.Errorf("%s has taken the session", name)
	}
}
