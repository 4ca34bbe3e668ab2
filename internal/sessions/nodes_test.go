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
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/journaltest"
)

const testLease = 3 * time.Second

// beginNode begins a process on a cluster.
func beginNode(t *testing.T, url string, change ...func(*sessions.Options)) process {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	o := generous()
	o.Node, o.Lease, o.Log = rand.Text(), testLease, log
	o.Needs = func(plan council.Plan, _ []council.Stage) []string { return []string{plan.Versions.Synthesis} }
	for _, f := range change {
		f(&o)
	}
	j, err := journal.Open(t.Context(), journal.Options{
		URL: url, MaxBytes: 64 << 20, Prefix: "council", Node: o.Node, Replicas: 3, Lease: o.Lease, Log: log, Waits: quick(),
		Says: strings.Join(o.Prompts, " "),
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Journal = j
	p := process{sessions.New(o), j}
	t.Cleanup(func() { p.stop(t) })
	return p
}

// withPrompts are the prompts of a process.
func withPrompts(prompts ...string) func(*sessions.Options) {
	return func(o *sessions.Options) { o.Prompts = prompts }
}

// mayCall asks whether a call may begin, and tells when it may.
func mayCall(ctx context.Context, s *sessions.Session) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Log().MayCall(ctx) }()
	return done
}

// No call begins while the lease is not confirmed. When it is again, the session goes on.
func TestLease(t *testing.T) {
	testkit.Slow(t)
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

// refused fails the test unless the error tells a client to come again.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeUnavailable || e.RetryAfter == 0 {
		t.Errorf("%s: %v", what, err)
	}
}

// logGone waits until a session has no log.
func logGone(t *testing.T, p process, id string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := p.journal.Read(t.Context(), journal.ID{Session: id}); errors.Is(err, journal.ErrGone) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("session %s has a log", id)
		}
	}
}

// A session whose head is stored without an answer is refused: nobody goes on with it, and
// its key is free.
func TestRefused(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	p, other := beginNode(t, link.URL), beginNode(t, cluster.URL)
	var lose atomic.Bool
	lose.Store(true)
	link.Requests(func(subject string) journaltest.Fate {
		session := strings.HasPrefix(subject, "council.session.") || strings.HasPrefix(subject, "$JS.API.STREAM.MSG.GET.COUNCIL_SESSIONS")
		return journaltest.Fate{After: []time.Duration{0}, Unanswered: lose.Load() && session} // nor can it be looked for
	})
	for p.journal.Beat(t.Context()) != nil {
		time.Sleep(10 * time.Millisecond) // until it is connected again
	}
	withKey := func(s *sessions.Start) { s.Key = "k" }
	_, _, err := p.Add(t.Context(), start("one", withKey))
	refused(t, "without an answer", err)
	if _, err := other.journal.Read(t.Context(), journal.ID{Session: "one"}); err != nil {
		t.Errorf("the head was not stored: %v", err)
	}
	lose.Store(false)
	logGone(t, other, "one")
	for p.journal.Beat(t.Context()) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	begun := time.Now()
	if s := add(t, p.Store, "two", withKey); s.ID != "two" {
		t.Errorf("the key has session %s", s.ID)
	}
	if took := time.Since(begun); took > 5*time.Second { // otherwise the key is waited for
		t.Errorf("the next session took %s", took)
	}
}

// Without the cluster, what is to be kept is refused, soon at first and then at once. A
// session that ends without its log and is forgotten leaves none behind.
func TestClusterGone(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	p := beginNode(t, link.URL, func(o *sessions.Options) { o.Kept = 0 })
	other := beginNode(t, cluster.URL)
	add(t, other.Store, "others", inBackground)
	for {
		changed := p.journal.Changed()
		if _, ok := p.journal.Row(journal.ID{Session: "others"}); ok {
			break
		}
		<-changed
	}
	runs := add(t, p.Store, "runs", inBackground)
	link.Cut()
	begun := time.Now()
	observe(runs)
	_, _, err := p.Add(t.Context(), start("early", inBackground))
	refused(t, "early", err)
	if took := time.Since(begun); took > testLease*2/3+5*time.Second {
		t.Errorf("refused after %s", took)
	}
	for time.Since(p.journal.Confirmed()) < testLease*2/3 {
		time.Sleep(10 * time.Millisecond) // the clock is what is waited for
	}
	late := time.Now()
	_, _, err = p.Add(t.Context(), start("late", inBackground))
	refused(t, "late", err)
	if took := time.Since(late); took > testLease/3 {
		t.Errorf("refused after %s, although there is no lease", took)
	}
	_, err = p.Get(t.Context(), "", "others")
	refused(t, "reading", err)
	if err := p.journal.Healthy(); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("healthy without the cluster: %v", err)
	}
	runs.Log().Stored(t.Context())
	finish(t, runs)
	<-runs.Done()
	link.Mend()
	logGone(t, other, "runs")
	logGone(t, other, "early")
}

// A key whose session another node is still storing is waited for: a third of a lease, and
// again where another session has taken it meanwhile.
func TestKeyOfOther(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	const lease = 20 * time.Second
	first := beginNode(t, cluster.URL, func(o *sessions.Options) { o.Lease = lease })
	second := beginNode(t, cluster.URL)
	mine := start("mine", func(s *sessions.Start) { s.Key = "k" })
	stored := add(t, second.Store, "other", func(s *sessions.Start) { s.Key = "another" }) // for a head
	log, err := second.journal.Read(t.Context(), journal.ID{Session: stored.ID})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("\nk"))
	key := hex.EncodeToString(sum[:])
	held, ok, err := second.journal.Reserve(t.Context(), key, journal.Reservation{Session: "dead"})
	if !ok || err != nil {
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
	waits := func(until time.Duration) {
		t.Helper()
		select {
		case <-got:
			t.Fatal("the key has two sessions")
		case <-time.After(until):
		}
	}
	waits(lease / 4)
	if _, ok, err := second.journal.TakeOver(t.Context(), key, held, journal.Reservation{Session: "theirs"}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	waits(lease / 5)
	seq, err := second.journal.Append(t.Context(), journal.ID{Session: "theirs"}, 0, log[0].Message)
	if err != nil {
		t.Fatal(err)
	}
	waits(lease / 20) // it may still be refused
	begun := journal.Message{Head: log[0].Head, First: 2, Entries: []council.Entry{{Type: council.EventStarted, Data: []byte("{}")}}}
	if _, err := second.journal.Append(t.Context(), journal.ID{Session: "theirs"}, seq, begun); err != nil {
		t.Fatal(err)
	}
	if id := <-got; id != "theirs" {
		t.Errorf("the key has the session %q", id)
	}
}

// A key that a node reserved before it died, and for which it stored no session, is free
// within one request.
func TestKeyOfNobody(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	p := beginNode(t, journaltest.Start(t).URL)
	sum := sha256.Sum256([]byte("\nk"))
	if _, ok, err := p.journal.Reserve(t.Context(), hex.EncodeToString(sum[:]), journal.Reservation{Session: "dead"}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if s := add(t, p.Store, "mine", func(s *sessions.Start) { s.Key = "k" }); s.ID != "mine" {
		t.Errorf("the key has the session %q", s.ID)
	}
}

// The watchers of a session that another node has claimed see what that node does. What
// the run here still tells is nothing.
func TestDemoted(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	first, second := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Cancel = cancel })
	observe(s)
	s.Log().Stored(t.Context())
	rows := func() journal.IndexRow { row, _ := second.journal.Row(journal.ID{Session: "one"}); return row }
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

// To know whether a session is still this node's, its log is not read from its beginning.
func TestLeaseOfALongLog(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	link := journaltest.Start(t).Link(t)
	p := beginNode(t, link.URL)
	var reads atomic.Int64
	link.Requests(func(subject string) journaltest.Fate {
		if strings.HasPrefix(subject, "$JS.API.STREAM.MSG.GET.COUNCIL_SESSIONS") {
			reads.Add(1)
		}
		return journaltest.Fate{After: []time.Duration{0}}
	})
	for p.journal.Beat(t.Context()) != nil {
		time.Sleep(10 * time.Millisecond) // until it is connected again
	}
	s := add(t, p.Store, "one", inBackground)
	const messages = 100
	for i := range messages {
		s.Observe(council.Event{Type: council.EventBallot, Data: council.Review{}})
		upTo(t, s, i+1)
	}
	link.Cut()
	for time.Since(p.journal.Confirmed()) < testLease*2/3 {
		<-time.After(10 * time.Millisecond) // the clock is what is waited for
	}
	reads.Store(0)
	begun := mayCall(t.Context(), s)
	link.Mend()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	if n := reads.Load(); n == 0 || n > messages/2 {
		t.Errorf("%d messages were read, of %d in the log", n, messages)
	}
}

// A call may take longer than many leases: nobody takes its session over.
func TestLeaseOfALongCall(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	first, second := beginNode(t, cluster.URL), beginNode(t, cluster.URL)
	s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Plan.Timeout = time.Minute })
	observe(s)
	upTo(t, s, 3)
	taken := make(chan string, 1)
	second.Resume(t.Context(), sessions.Runner{
		Place: func() (func(), bool) { return func() {}, true },
		Run:   func(r sessions.Resumed, _ func()) { taken <- r.ID },
	})
	select {
	case id := <-taken:
		t.Error("taken over during a call:", id)
	case <-time.After(4 * testLease):
	}
	if err := <-mayCall(t.Context(), s); err != nil {
		t.Error("behind the call no other may begin:", err)
	}
	finish(t, s)
	<-s.Done()
}

// Where every request to the cluster takes a second, longer than the first answer is waited
// for, a session is stored as well, and everything of it once.
func TestSlowCluster(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	slow := func(o *sessions.Options) { o.Lease = 20 * time.Second }
	first, second := beginNode(t, link.URL, slow), beginNode(t, cluster.URL, slow)
	link.Requests(func(string) journaltest.Fate { return journaltest.Fate{After: []time.Duration{time.Second}} })
	s := add(t, first.Store, "one", inBackground)
	observe(s)
	for range 20 {
		s.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: "text"}})
	}
	if err := <-mayCall(t.Context(), s); err != nil {
		t.Error("no call may begin:", err)
	}
	finish(t, s)
	<-s.Done()
	other := get(t, second.Store, "", "one")
	<-other.Done()
	if diff := cmp.Diff(entries(s, 0), entries(other, 0)); diff != "" {
		t.Errorf("another node shows another log: %s", diff)
	}
	stored, err := second.journal.Read(t.Context(), journal.ID{Session: "one"})
	if err != nil {
		t.Fatal(err)
	}
	next := 1
	for _, m := range stored {
		if m.First != next {
			t.Errorf("entry %d is stored behind %d", m.First, next-1)
		}
		next = m.First + len(m.Entries)
	}
}

// After a time without a lease, no call begins before it is known that no other node has
// taken the session.
func TestLeaseAfterTakeOver(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	first, second := beginNode(t, link.URL), beginNode(t, cluster.URL)
	for range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := add(t, first.Store, rand.Text(), inBackground, func(s *sessions.Start) { s.Cancel = cancel })
		id := journal.ID{Session: s.ID}
		rows := func() journal.IndexRow { row, _ := second.journal.Row(id); return row }
		for rows().Entries < 1 {
			<-time.After(time.Millisecond)
		}
		link.Cut()
		for time.Since(first.journal.Confirmed()) < testLease*2/3 {
			<-time.After(10 * time.Millisecond) // the clock is what is waited for
		}
		head := rows().Head
		head.Node, head.Epoch = "other", 2
		claim := journal.Message{Head: head, First: 2, Entries: []council.Entry{{Type: "session.claimed", Data: []byte("{}")}}}
		if _, err := second.journal.Append(t.Context(), id, rows().Seq, claim); err != nil {
			t.Fatal(err)
		}
		begun := mayCall(ctx, s)
		link.Mend()
		if err := <-begun; err != nil || ctx.Err() == nil {
			t.Errorf("a call begins although another node has the session: %v", err)
		}
	}
}

// Another node finds a session as soon as it is stored, whether its list has it or not.
func TestFoundAtOnce(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	long := func(o *sessions.Options) { o.Lease = time.Minute } // a busy machine may renew a short one too late
	first, second := beginNode(t, cluster.URL, long), beginNode(t, cluster.URL, long)
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

// A node that was cut off until its sessions went on without their logs finds that another
// one has taken them over. It ends what runs, and shows what the other one has.
func TestTakenOverAfterGivingUp(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	first, second := beginNode(t, link.URL), beginNode(t, cluster.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	runs := add(t, first.Store, "runs", inBackground, func(s *sessions.Start) { s.Cancel = cancel })
	ended := add(t, first.Store, "ended", inBackground)
	link.Cut()
	observe(runs)
	observe(ended)
	runs.Log().Stored(t.Context())
	ended.Log().Stored(t.Context())
	finish(t, ended)
	<-ended.Done()
	for _, s := range []*sessions.Session{runs, ended} {
		row, _ := second.journal.Row(journal.ID{Session: s.ID})
		m := journal.Message{Head: row.Head, First: row.Entries + 1}
		m.Node, m.Epoch, m.Status = "other", 2, council.StatusComplete
		m.Entries = []council.Entry{
			{Type: "session.claimed", Data: []byte("{}")},
			{Type: council.EventDone, Data: []byte(`{"id":"` + s.ID + `","status":"complete","answer":"the other's"}`)},
		}
		if _, err := second.journal.Append(t.Context(), row.ID, row.Seq, m); err != nil {
			t.Fatal(err)
		}
	}
	link.Mend()
	<-ctx.Done()
	<-runs.Done()
	if _, failure := runs.Result(); failure == nil || failure.Code != council.CodeUnavailable {
		t.Errorf("its watchers are told %v", failure)
	}
	for _, id := range []string{"runs", "ended"} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if session, _ := get(t, first.Store, "", id).Result(); session.Answer == "the other's" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not the other node's", id)
			}
		}
	}
}

// onMessage calls do when a message is logged, before the program that logs it goes on.
type onMessage struct {
	slog.Handler
	message string
	do      func()
}

func (h onMessage) Enabled(context.Context, slog.Level) bool { return true }

func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.do()
	}
	return nil
}

// A node that stood still finds that the time of an append is over, as one does whose
// cluster is gone. It begins no call of a session that another node has taken over meanwhile.
func TestStoodStill(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	first := beginNode(t, link.URL, func(o *sessions.Options) {
		o.Log = slog.New(onMessage{slog.DiscardHandler, "an entry of a session could not be stored", link.Mend})
	})
	second := beginNode(t, cluster.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Cancel = cancel })
	link.Stall(true, true)
	observe(s)
	for time.Since(first.journal.Confirmed()) < testLease*2/3 {
		time.Sleep(10 * time.Millisecond) // the clock is what is waited for
	}
	begun := mayCall(ctx, s)
	row, _ := second.journal.Row(journal.ID{Session: s.ID})
	m := journal.Message{Head: row.Head, First: row.Entries + 1}
	m.Node, m.Epoch, m.Status = "other", 2, council.StatusRunning
	m.Entries = []council.Entry{{Type: "session.claimed", Data: []byte("{}")}}
	if _, err := second.journal.Append(t.Context(), row.ID, row.Seq, m); err != nil {
		t.Fatal(err)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
	if ctx.Err() == nil {
		t.Error("a call begins of a session that another node has")
	}
}

// While the cluster does not answer, nobody is told that there is no session.
func TestFoundLater(t *testing.T) {
	testkit.Slow(t)
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
	testkit.Slow(t)
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

// A session in memory that is deleted before its end is stored stays deleted.
func TestDeletedBeforeStored(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	p, other := beginNode(t, link.URL), beginNode(t, cluster.URL)
	link.Requests(func(subject string) journaltest.Fate {
		var late time.Duration
		if strings.HasPrefix(subject, "council.session.") {
			late = 300 * time.Millisecond // less than an append waits for its answer
		}
		return journaltest.Fate{After: []time.Duration{late}}
	})
	for p.journal.Beat(t.Context()) != nil {
		time.Sleep(10 * time.Millisecond) // until it is connected again
	}
	finish(t, add(t, p.Store, "one"))
	forget(t, p.Store, get(t, p.Store, "", "one"))
	finish(t, add(t, p.Store, "two"))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if get(t, other.Store, "", "two") != nil { // what was stored before it can be seen
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the end of the other session is not stored")
		}
	}
	for name, process := range map[string]process{"its node": p, "the other node": other} {
		if get(t, process.Store, "", "one") != nil {
			t.Errorf("%s shows it", name)
		}
	}
}

// A session is gone on with by a node that has its prompts. Only where there is none,
// another one takes it.
func TestPrompts(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	first := beginNode(t, cluster.URL, withPrompts("old"))
	s := add(t, first.Store, "one", inBackground, func(s *sessions.Start) { s.Plan.Versions.Synthesis = "old" })
	observe(s)
	taken := make(chan string, 3)
	resume := func(name string, p process) {
		p.Resume(t.Context(), sessions.Runner{
			Place: func() (func(), bool) { return func() {}, true },
			Run:   func(sessions.Resumed, func()) { taken <- name },
		})
	}
	newer, older := beginNode(t, cluster.URL, withPrompts("new", "newest")), beginNode(t, cluster.URL, withPrompts("old", "new"))
	resume("newer", newer)
	first.Cancel(context.Canceled) // which releases it
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
	older.Cancel(context.Canceled)
	older.stop(t)
	if name := <-taken; name != "newer" { // nobody else is there
		t.Errorf("%s has taken the session", name)
	}
}

// Every node renames an ended session, whether it is in memory or in the journal, and all nodes list the last name.
func TestRenameOnNodes(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cluster := journaltest.Start(t)
	one := beginNode(t, cluster.URL)
	other := beginNode(t, cluster.URL)
	running := add(t, one.Store, "running", inBackground)
	for _, id := range []string{"kept", "plain"} {
		var change []func(*sessions.Start)
		if id == "kept" {
			change = append(change, inBackground)
		}
		s := add(t, one.Store, id, change...)
		finish(t, s)
		<-s.Done()
		for i, p := range []process{other, one, other} {
			title := fmt.Sprint("name ", i)
			if i == 2 {
				title = ""
			}
			var there *sessions.Session
			for deadline := time.Now().Add(time.Minute); there == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				there = get(t, p.Store, "", id) // the index of the other node may be late
			}
			if there == nil {
				t.Fatalf("%s is not on node %d", id, i)
			}
			if _, err := p.Rename(t.Context(), there, title); err != nil {
				t.Fatal(err)
			}
			for _, p := range []process{one, other} {
				for deadline := time.Now().Add(time.Minute); titleOf(p, id) != title; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%s is %q, not %q", id, titleOf(p, id), title)
					}
				}
			}
		}
	}
	for _, p := range []process{one, other} {
		if _, err := p.Rename(t.Context(), get(t, p.Store, "", "running"), "x"); !errors.Is(err, sessions.ErrRuns) {
			t.Errorf("renaming a session that runs: %v", err)
		}
	}
	finish(t, running)
}

// titleOf returns the title of a session in the list of a process.
func titleOf(p process, id string) string {
	for _, s := range p.List("") {
		if s.ID == id {
			return s.Title
		}
	}
	return "not listed"
}
