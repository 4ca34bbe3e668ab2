package journal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// shared is a cluster that the tests share.
var shared = sync.OnceValues(func() (*journaltest.Cluster, error) {
	started = true
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		return nil, err
	}
	return journaltest.New(dir)
})

var started bool // by a test; read after all

func TestMain(m *testing.M) {
	code := m.Run()
	if started {
		if c, err := shared(); c != nil && err == nil {
			c.Stop()
			_ = os.RemoveAll(c.Dir)
		}
	}
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*accessTimeService)")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// place is where the journals of a test keep their logs.
type place struct {
	options Options
	open    func(t *testing.T) *Journal // another process; inside the same one
}

// onBoth runs a test inside and on the cluster.
func onBoth(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	t.Run("inside", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		var one *Journal
		test(t, place{options: o, open: func(t *testing.T) *Journal {
			t.Helper()
			if one == nil {
				one = open(t, o)
			}
			return one
		}})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		o := outside(t)
		test(t, place{options: o, open: func(t *testing.T) *Journal {
			t.Helper()
			o.Node = rand.Text()
			return open(t, o)
		}})
	})
}

// quick returns the waits of a daemon by ten. What a cluster is asked may still take as long as an election.
func quick() Waits {
	w := DefaultWaits()
	for _, wait := range []*time.Duration{&w.Check, &w.Poll, &w.MinPause, &w.MaxPause, &w.Quiet} {
		*wait /= 10
	}
	return w
}

func inside(t *testing.T) Options {
	t.Helper()
	return Options{
		Dir: filepath.Join(t.TempDir(), "sessions"), MaxBytes: 64 << 20, Prefix: "council", Node: rand.Text(), Lease: 20 * time.Second,
		Log: slog.New(slog.DiscardHandler), Waits: quick(),
	}
}

func outside(t *testing.T) Options {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	o := inside(t)
	o.URL, o.Replicas, o.Prefix = c.URL, 3, "t"+strings.ToLower(rand.Text())
	return o
}

func open(t *testing.T, o Options) *Journal {
	t.Helper()
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeJournal(t, j) })
	return j
}

func closeJournal(t *testing.T, j *Journal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	if err := j.Close(ctx); err != nil {
		t.Error(err)
	}
}

var one = ID{Owner: "0123456789abcdef", Session: "a1"}

// message returns a message with entries from the number first on.
func message(j *Journal, first int, data ...string) Message {
	m := Message{
		Head: Head{
			Node: j.o.Node, Epoch: 1, Status: council.StatusRunning, Created: time.Unix(1700000000, 0).UTC(),
			Query: "Why is \"it\" so?\nä",
		},
		First: first,
	}
	for _, d := range data {
		m.Entries = append(m.Entries, council.Entry{Type: council.EventAnswer, Data: []byte(d)})
		m.Bytes += int64(len(d))
	}
	return m
}

func appended(t *testing.T, j *Journal, id ID, after uint64, m Message) uint64 {
	t.Helper()
	seq, err := j.Append(t.Context(), id, after, m)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// texts returns the data of all entries.
func texts(log []Stored) (list []string) {
	for _, m := range log {
		for _, e := range m.Entries {
			list = append(list, string(e.Data))
		}
	}
	return list
}

// eventually waits until the condition holds, which the index changes.
func eventually(t *testing.T, j *Journal, what string, holds func() bool) {
	t.Helper()
	end := time.After(time.Minute)
	for {
		changed := j.Changed()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestAppendRead(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		first := message(j, 1, `{"a":"<&>"}`, `{"b":"x  y"}`, "")
		seq := appended(t, j, one, 0, first)
		last := message(j, 4, "3")
		last.Status, last.CostUSD, last.Key = council.StatusComplete, new(0.25), "k"
		seq = appended(t, j, one, seq, last)
		row, ok := j.Row(one)
		if !ok || row.Seq != seq || row.Entries != 4 {
			t.Errorf("the row is %+v (%v), want message %d with 4 entries", row, ok, seq)
		}
		if d := cmp.Diff(last.Head, row.Head); d != "" {
			t.Error("head of the row: ", d)
		}
		many := ID{Session: "many"}
		var end uint64
		for n := range 50 {
			end = appended(t, j, many, end, message(j, n+1, "x"))
			if row, _ := j.Row(many); row.Seq != end || row.Entries != n+1 {
				t.Fatalf("right after an append the row is %+v, want message %d with %d entries", row, end, n+1)
			}
		}
		other := p.open(t)
		log, err := other.Read(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if len(log) != 2 {
			t.Fatalf("%d messages, want 2", len(log))
		}
		for i, want := range []Message{first, last} {
			if d := cmp.Diff(want, log[i].Message); d != "" {
				t.Errorf("message %d: %s", i, d)
			}
		}
		if age := time.Since(log[0].At); age < -time.Second || age > time.Minute {
			t.Errorf("stored %v ago", age)
		}
		if _, err := other.Read(t.Context(), ID{Owner: one.Owner, Session: "none"}); !errors.Is(err, ErrGone) {
			t.Errorf("a session without a log: %v, want ErrGone", err)
		}
	})
}

func TestAppendMoved(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		other := p.open(t)
		seq := appended(t, j, one, 0, message(j, 1, "1"))
		claim := message(other, 2, "2")
		claim.Node, claim.Epoch = "another", 2
		appended(t, other, one, seq, claim)
		_, err := j.Append(t.Context(), one, seq, message(j, 2, "mine"))
		moved, ok := errors.AsType[*Moved](err)
		if !ok || moved.Last == nil {
			t.Fatalf("appending behind another's message: %v, want Moved with it", err)
		}
		if d := cmp.Diff(claim, moved.Last.Message); d != "" {
			t.Error("last message: ", d)
		}
		if err := other.Purge(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		_, err = j.Append(t.Context(), one, seq, message(j, 2, "mine"))
		if moved, ok := errors.AsType[*Moved](err); !ok || moved.Last != nil {
			t.Errorf("appending to a log that was purged: %v, want Moved without a last message", err)
		}
	})
}

// An append that was stored, but whose answer was lost, is sent again.
func TestAppendTwice(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		seq := appended(t, j, one, 0, message(j, 1, "1"))
		second := appended(t, j, one, seq, message(j, 2, "2"))
		if again := appended(t, j, one, seq, message(j, 2, "2")); again != second {
			t.Errorf("sent again, it is message %d, not %d", again, second)
		}
		if log, err := j.Read(t.Context(), one); err != nil || !slices.Equal(texts(log), []string{"1", "2"}) {
			t.Errorf("the log is %q, %v", texts(log), err)
		}
	})
}

// One of many that append behind the same message comes first.
func TestAppendRace(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		a, b := p.open(t), p.open(t)
		seq := appended(t, a, one, 0, message(a, 1, "1"))
		for round := 2; round < 12; round++ {
			var wg sync.WaitGroup
			var seqs [8]uint64
			var errs [8]error
			for i := range seqs {
				wg.Go(func() {
					m := message(a, round, strconv.Itoa(i))
					m.Node = strconv.Itoa(i)
					seqs[i], errs[i] = []*Journal{a, b}[i%2].Append(t.Context(), one, seq, m)
				})
			}
			wg.Wait()
			won := 0
			before := seq
			for i, err := range errs {
				if err == nil {
					won++
					seq = seqs[i]
				} else if m, ok := errors.AsType[*Moved](err); !ok || m.Last == nil || m.Last.Seq <= before {
					t.Errorf("round %d: %v, want Moved", round, err)
				}
			}
			if won != 1 {
				t.Fatalf("round %d: %d appends came first", round, won)
			}
		}
		if log, err := a.Read(t.Context(), one); err != nil || len(log) != 11 {
			t.Errorf("%d messages, %v", len(log), err)
		}
	})
}

func TestParts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		large := strings.Repeat("0123456789abcdef", 2<<20/16)
		seq := appended(t, j, one, 0, message(j, 1, "1"))
		m := message(j, 2, "small", large)
		m.Status = council.StatusComplete
		appended(t, j, one, seq, m)
		log, err := other.Read(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if got := texts(log); len(got) != 3 || got[1] != "small" || got[2] != large {
			t.Errorf("%d entries in %d messages", len(got), len(log))
		}
		eventually(t, other, "the row", func() bool {
			row, _ := other.Row(one)
			return row.Status == council.StatusComplete && row.Entries == 3
		})
	})
}

// A node stops in the middle of a message: nothing of it is visible, and others go on.
func TestPartsAbandoned(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		seq := appended(t, j, one, 0, message(j, 1, "1"))
		big := message(j, 2, strings.Repeat("x", 3*maxPart))
		big.Status = council.StatusComplete
		subject, _ := j.subject("session", one)
		last, err := j.put(t.Context(), subject, seq, cut(big)[0])
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, j, "the part in the index", func() bool { row, _ := j.Row(one); return row.Seq == last })
		if row, _ := j.Row(one); row.Entries != 1 || row.Status != council.StatusRunning {
			t.Errorf("the row has %d entries, status %s", row.Entries, row.Status)
		}
		if log, err := j.Read(t.Context(), one); err != nil || len(log) != 1 {
			t.Errorf("%d messages, %v", len(log), err)
		}
		// Ours: begun again.
		again := message(j, 2, "2")
		next := appended(t, j, one, seq, again)
		big = message(j, 3, strings.Repeat("x", 3*maxPart))
		if last, err = j.put(t.Context(), subject, next, cut(big)[0]); err != nil {
			t.Fatal(err)
		}
		// Another node, which has read up to the last whole message.
		claim := message(j, 3, "3")
		claim.Node, claim.Epoch = "another", 2
		claimed := appended(t, j, one, next, claim)
		_, err = j.put(t.Context(), subject, last, cut(big)[1])
		if moved, ok := errors.AsType[*Moved](err); !ok || moved.Last == nil || moved.Last.Node != "another" {
			t.Errorf("the first one goes on behind the claim: %v", err)
		}
		// A part of a message of which this node does not know what stands before it.
		ahead := message(j, 4, strings.Repeat("x", 3*maxPart))
		ahead.Node, ahead.Epoch = "another", 2
		if last, err = j.put(t.Context(), subject, claimed, cut(ahead)[0]); err != nil {
			t.Fatal(err)
		}
		_, err = j.Append(t.Context(), one, next, big)
		if moved, ok := errors.AsType[*Moved](err); !ok || moved.Last == nil || moved.Last.Seq != last || moved.Last.Entries != nil {
			t.Errorf("behind a part of a later message: %v", err)
		}
		if log, err := j.Read(t.Context(), one); err != nil || !slices.Equal(texts(log), []string{"1", "2", "3"}) {
			t.Errorf("the log is %.40q, %v", texts(log), err)
		}
	})
}

func TestFollow(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		seq := appended(t, j, one, 0, message(j, 1, "1", "2", "3"))
		var got []string
		var next int
		for m, err := range other.Follow(t.Context(), one, 2) {
			if err != nil {
				if !errors.Is(err, ErrGone) || next != 20 {
					t.Fatalf("after %d messages: %v", next, err)
				}
				break
			}
			if m.First != 3+next {
				t.Errorf("message %d begins with entry %d", next, m.First)
			}
			got = append(got, texts([]Stored{m})...)
			if next++; next == 20 {
				if err := j.Purge(t.Context(), one); err != nil {
					t.Fatal(err)
				}
				continue
			}
			seq = appended(t, j, one, seq, message(j, 3+next, strconv.Itoa(3+next)))
		}
		var want []string
		for n := 3; n < 23; n++ {
			want = append(want, strconv.Itoa(n))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		for _, err := range other.Follow(t.Context(), ID{Session: "none"}, 0) {
			if !errors.Is(err, ErrGone) {
				t.Errorf("a session without a log: %v", err)
			}
		}
	})
}

func TestIndex(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		ids := []ID{{"aa", "1"}, {"aa", "2"}, {"", "3"}}
		seqs := map[ID]uint64{}
		for i, id := range ids {
			m := message(j, 1, "x")
			m.Created = m.Created.Add(time.Duration(-i) * time.Hour)
			seqs[id] = appended(t, j, id, 0, m)
		}
		done := message(j, 2, "y")
		done.Status = council.StatusComplete
		appended(t, j, ids[0], seqs[ids[0]], done)
		late := p.open(t)
		for _, x := range []*Journal{j, other, late} {
			eventually(t, x, "the rows", func() bool { r, _ := x.Row(ids[0]); return x.Stats().Sessions == 3 && r.Entries == 2 })
			if rows := x.Rows("aa"); len(rows) != 2 || rows[0].Owner != "aa" || rows[1].Owner != "aa" {
				t.Errorf("rows of aa: %+v", rows)
			}
			if rows := x.Rows(""); len(rows) != 1 || rows[0].ID != ids[2] {
				t.Errorf("rows without an owner: %+v", rows)
			}
			if rows := x.Unended(); len(rows) != 2 || !rows[0].Created.Before(rows[1].Created) {
				t.Errorf("unended: %+v", rows)
			}
		}
		// Each purge is told: comparing every 5 s would take longer.
		begin := time.Now()
		for range 6 {
			if err := other.Purge(t.Context(), ids[1]); err != nil {
				t.Fatal(err)
			}
			for _, x := range []*Journal{j, other, late} {
				eventually(t, x, "the row without a log", func() bool { _, ok := x.Row(ids[1]); return !ok && x.Stats().Sessions == 2 })
			}
			appended(t, j, ids[1], 0, message(j, 1, "x"))
			for _, x := range []*Journal{j, other, late} {
				eventually(t, x, "the row", func() bool { _, ok := x.Row(ids[1]); return ok })
			}
		}
		for _, x := range []*Journal{j, other, late} { // what was purged leaves nothing behind
			eventuallyNil(t, "the purged logs are forgotten", func() error {
				x.wake()
				x.index.mu.Lock()
				defer x.index.mu.Unlock()
				if n := len(x.index.gone); n > 0 {
					return fmt.Errorf("%d are not", n)
				}
				return nil
			})
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("six purges took %v", took)
		}
		if err := other.Purge(t.Context(), ids[1]); err != nil {
			t.Fatal(err)
		}
		if err := other.Purge(t.Context(), ids[1]); err != nil {
			t.Errorf("purging again: %v", err)
		}
	})
}

// What is no name of a session is never found, and nothing else is removed for it.
func TestHostileIDs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		appended(t, j, one, 0, message(j, 1, "x"))
		for _, id := range []ID{
			{one.Owner, "*"},
			{one.Owner, ">"},
			{"*", one.Session},
			{one.Owner, "a1.b"},
			{one.Owner, ""},
			{one.Owner, "a 1"},
			{one.Owner, "a1\r\n"},
			{"a.b", "c"},
			{one.Owner, strings.Repeat("a", 65)},
		} {
			if _, err := j.Read(t.Context(), id); !errors.Is(err, ErrGone) {
				t.Errorf("reading %q: %v", id, err)
			}
			if _, err := j.Append(t.Context(), id, 0, message(j, 1, "x")); !errors.Is(err, ErrGone) {
				t.Errorf("appending to %q: %v", id, err)
			}
			if err := j.Purge(t.Context(), id); err != nil {
				t.Errorf("purging %q: %v", id, err)
			}
		}
		if _, err := j.Read(t.Context(), one); err != nil {
			t.Errorf("the session is gone: %v", err)
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		a, b := p.open(t), p.open(t)
		const key = "6b6579"
		var wg sync.WaitGroup
		var held [8]Reservation
		var mine [8]bool
		for i := range held {
			wg.Go(func() {
				var err error
				want := Reservation{Session: strconv.Itoa(i), Digest: [32]byte{byte(i), 7}}
				held[i], mine[i], err = []*Journal{a, b}[i%2].Reserve(t.Context(), key, want)
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		first := slices.Index(mine[:], true)
		for i, h := range held {
			if mine[i] != (i == first) || h.Session != strconv.Itoa(first) || h.Digest != [32]byte{byte(first), 7} {
				t.Errorf("%d: held by %+v, mine %v; %d came first", i, h, mine[i], first)
			}
		}
		if h, ok, err := a.Reserve(t.Context(), key, held[first]); err != nil || !ok || h.Session != held[first].Session {
			t.Errorf("the same again: %+v, %v, %v", h, ok, err)
		}
		now, ok, err := a.TakeOver(t.Context(), key, held[first], Reservation{Session: "new"})
		if err != nil || !ok || now.Session != "new" {
			t.Errorf("taking over: %+v, %v, %v", now, ok, err)
		}
		now, ok, err = b.TakeOver(t.Context(), key, held[first], Reservation{Session: "newer"})
		if err != nil || ok || now.Session != "new" {
			t.Errorf("taking over what was taken over: %+v, %v, %v", now, ok, err)
		}
		if err := b.Release(t.Context(), key, "newer"); err != nil {
			t.Error(err)
		}
		if now, ok, err = b.Reserve(t.Context(), key, Reservation{Session: "newer"}); err != nil || ok || now.Session != "new" {
			t.Errorf("released by another session: %+v, %v, %v", now, ok, err)
		}
		if err := b.Release(t.Context(), key, "new"); err != nil {
			t.Error(err)
		}
		if now, ok, err = b.Reserve(t.Context(), key, Reservation{Session: "newer"}); err != nil || !ok || now.Session != "newer" {
			t.Errorf("after it was released: %+v, %v, %v", now, ok, err)
		}
		// A purge frees the key of its session.
		m := message(a, 1, "x")
		m.Key = key
		id := ID{Session: "newer"}
		appended(t, a, id, 0, m)
		if err := b.Purge(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if now, ok, err = a.Reserve(t.Context(), key, Reservation{Session: "last"}); err != nil || !ok {
			t.Errorf("after its session was purged: %+v, %v, %v", now, ok, err)
		}
	})
}

func TestRelay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		appended(t, j, one, 0, message(j, 1, "x"))
		ctx, cancel := context.WithCancel(t.Context())
		got, err := other.Relayed(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		l, err := other.reading(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.conn.Flush(); err != nil { // the subscription is on its way
			t.Fatal(err)
		}
		tick := time.NewTicker(50 * time.Millisecond) // between servers, interest spreads without an answer
		defer tick.Stop()
		for received := false; !received; {
			select {
			case <-tick.C:
				j.Relay(ID{Session: "other"}, []byte("no"))
				j.Relay(one, []byte("delta"))
			case data := <-got:
				if string(data) != "delta" {
					t.Errorf("relayed %q", data)
				}
				received = true
			}
		}
		cancel()
		for range got {
		}
	})
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "secret"} {
		t.Run("key "+key, func(t *testing.T) {
			t.Parallel()
			o := inside(t)
			o.Key = key
			j, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(o.Dir, storeDir)); err == nil {
				t.Error("the engine was started before anything was kept")
			}
			if rows := j.Rows(one.Owner); rows != nil {
				t.Errorf("rows %v", rows)
			}
			appended(t, j, one, 0, message(j, 1, "some text", strings.Repeat("x", 2*maxPart)))
			closeJournal(t, j)
			if info, err := os.Stat(o.Dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the directory: %v, %v", info.Mode(), err)
			}
			if key != "" {
				_ = filepath.WalkDir(o.Dir, func(path string, _ os.DirEntry, err error) error {
					if data, _ := os.ReadFile(path); bytes.Contains(data, []byte("some text")) {
						t.Errorf("%s holds the text as it is", path)
					}
					return err
				})
			}
			j = open(t, o)
			if row, ok := j.Row(one); !ok || row.Entries != 2 {
				t.Errorf("after a restart the row is %+v, %v", row, ok)
			}
			if log, err := j.Read(t.Context(), one); err != nil || len(texts(log)) != 2 {
				t.Errorf("after a restart: %d messages, %v", len(log), err)
			}
		})
	}
}

// Times are those of the engine's clock, also of what this process has just stored.
func TestNow(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	j := open(t, outside(t))
	seq, n := uint64(0), 0
	eventuallyNil(t, "the clock that is an hour ahead", func() error { // a check may come in between
		j.mu.Lock()
		j.ahead = time.Hour
		j.mu.Unlock()
		n++
		seq = appended(t, j, one, seq, message(j, n, "1"))
		row, _ := j.Row(one)
		if now := time.Now().Add(time.Hour); now.Sub(row.At).Abs() > time.Minute {
			return fmt.Errorf("stored at %s, and it is %s", row.At, now)
		}
		return nil
	})
	j.wake()
	eventuallyNil(t, "the clock of the servers", func() error {
		if ahead := time.Until(j.Now()); ahead.Abs() > time.Minute {
			return fmt.Errorf("%s ahead", ahead)
		}
		return nil
	})
}
