package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// proxy passes connections on to servers, in turn.
type proxy struct {
	listener net.Listener
	targets  []string
	wg       sync.WaitGroup

	mu    sync.Mutex // guards all below
	conns map[net.Conn]bool
	deaf  bool // nothing passes from servers to clients
	cut   bool // no new connections
	next  int
}

// through returns options that reach the cluster through a proxy.
func through(t *testing.T, o Options) (*proxy, Options) {
	t.Helper()
	p := &proxy{conns: map[net.Conn]bool{}}
	for one := range strings.SplitSeq(o.URL, ",") {
		u, err := url.Parse(one)
		if err != nil {
			t.Fatal(err)
		}
		p.targets = append(p.targets, u.Host)
	}
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.listener.Close()
		p.set(true, false)
		p.wg.Wait()
	})
	o.URL = "nats://" + p.listener.Addr().String()
	return p, o
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.targets[p.next%len(p.targets)]
		p.next++
		cut := p.cut
		p.mu.Unlock()
		back, err := net.Dial("tcp", target)
		if cut || err != nil {
			client.Close()
			if err == nil {
				back.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[back] = true, true
		p.mu.Unlock()
		pass := func(to, from net.Conn, toClient bool) {
			defer to.Close()
			defer from.Close()
			buffer := make([]byte, 32<<10)
			for {
				n, err := from.Read(buffer)
				p.mu.Lock()
				drop := toClient && p.deaf
				p.mu.Unlock()
				if err != nil {
					return
				}
				if drop {
					continue
				}
				if _, err := to.Write(buffer[:n]); err != nil {
					return
				}
			}
		}
		p.wg.Go(func() { pass(back, client, false) })
		p.wg.Go(func() { pass(client, back, true) })
	}
}

// set ends all connections, and says how new ones are treated.
func (p *proxy) set(cut, deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.deaf = cut, deaf
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// hush drops from now on what servers say.
func (p *proxy) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// numbers fails the test when the log is not whole, with one entry for each number.
func numbers(t *testing.T, j *Journal, id ID, n int) {
	t.Helper()
	log, err := j.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := 1; i <= n; i++ {
		want = append(want, strconv.Itoa(i))
	}
	if got := texts(log); !slices.Equal(got, want) {
		t.Errorf("the log holds %q, want 1 to %d", got, n)
	}
}

// The answers to appends are lost, and the appends are stored once.
func TestAckLost(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	p, o := through(t, outside(t))
	j := open(t, o)
	seq := appended(t, j, one, 0, message(j, 1, "1"))
	for n := 2; n <= 3; n++ {
		p.hush()
		cut := time.AfterFunc(500*time.Millisecond, func() { p.set(false, false) })
		seq = appended(t, j, one, seq, message(j, n, strconv.Itoa(n)))
		if cut.Stop() {
			t.Error("the answer was not lost")
		}
	}
	numbers(t, j, one, 3)
}

// The engine inside ends, as it does after a full disk: it is opened again.
func TestEngineStops(t *testing.T) {
	t.Parallel()
	j := open(t, inside(t))
	seq := appended(t, j, one, 0, message(j, 1, "1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan int, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		for m, err := range j.Follow(ctx, one, 0) {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- m.First
		}
	})
	for n := 2; n <= 3; n++ {
		j.mu.Lock()
		l := j.link
		j.reopened = time.Time{} // long ago
		j.mu.Unlock()
		if err := l.engine.DisableJetStream(); err != nil {
			t.Fatal(err)
		}
		seq = appended(t, j, one, seq, message(j, n, strconv.Itoa(n))) // waits for the engine
		if now, err := j.reading(t.Context()); err != nil || now == l {
			t.Errorf("the engine was not opened again: %v", err)
		}
		if err := j.Healthy(); err != nil {
			t.Errorf("healthy again: %v", err)
		}
	}
	for n := 1; n <= 3; n++ {
		if got := <-seen; got != n {
			t.Errorf("followed entry %d, want %d", got, n)
		}
	}
	cancel()
	wg.Wait()
	numbers(t, j, one, 3)
}

// What the engine only logs is an error at once.
func TestEngineLogs(t *testing.T) {
	t.Parallel()
	j := open(t, inside(t))
	appended(t, j, one, 0, message(j, 1, "1"))
	l, err := j.reading(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.engine.Warnf("harmless")
	l.engine.Errorf("Received an error looking up message")
	if err := j.Healthy(); err != nil {
		t.Errorf("after a warning and an error of reading: %v", err)
	}
	l.engine.Errorf("Critical write error: %v", "device gone")
	if err := j.Healthy(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "device gone") {
		t.Errorf("after an error in the engine's log: %v", err)
	}
	eventuallyNil(t, "healthy again", j.Healthy)
	numbers(t, j, one, 1)
}

// eventuallyNil waits until check returns nil.
func eventuallyNil(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestStreamFull(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		l, err := j.writing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		small := l.log.CachedInfo().Config
		small.MaxBytes = 4 << 20
		if _, err := l.js.UpdateStream(t.Context(), small); err != nil {
			t.Fatal(err)
		}
		j.mu.Lock()
		j.max = small.MaxBytes
		j.mu.Unlock()
		text := strings.Repeat("x", 200<<10)
		n := 0
		for ; err == nil; n++ {
			if n > 100 {
				t.Fatal("the stream takes everything")
			}
			// 3.6 of 4 MiB are 18.4 sessions. A check at the same time can count some twice.
			if full := j.Full(); full && n < 10 || !full && n > 18 {
				t.Errorf("after %d sessions: full %v", n, full)
			}
			_, err = j.Append(t.Context(), ID{Session: strconv.Itoa(n)}, 0, message(j, 1, text))
		}
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "all the room") {
			t.Errorf("the stream is full: %v", err)
		}
		if !j.Full() {
			t.Error("not said to be full")
		}
		for i := range n {
			if err := j.Purge(t.Context(), ID{Session: strconv.Itoa(i)}); err != nil {
				t.Fatal(err)
			}
		}
		eventuallyNil(t, "room again", func() error {
			if j.Full() {
				return errors.New("full")
			}
			return nil
		})
		appended(t, j, one, 0, message(j, 1, text))
	})
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		large := strings.Repeat("x", 2*maxPart+1)
		for name, c := range map[string]struct {
			lost  int // the number of the message in the stream
			entry int
			kept  []string
		}{
			"head":  {1, 1, []string{"2", "3", large, "5"}},
			"hole":  {3, 3, []string{"1", "2", large, "5"}},
			"part1": {4, 4, []string{"1", "2", "3", "5"}},
			"part2": {5, 4, []string{"1", "2", "3", "5"}},
			"part3": {6, 4, []string{"1", "2", "3", "5"}},
		} {
			id := ID{Session: name}
			var seqs []uint64
			var seq uint64
			for i, text := range []string{"1", "2", "3", large, "5"} {
				seq = appended(t, j, id, seq, message(j, i+1, text))
				if text == large {
					seqs = append(seqs, seq-2, seq-1)
				}
				seqs = append(seqs, seq)
			}
			l, err := j.reading(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.log.DeleteMsg(t.Context(), seqs[c.lost-1]); err != nil {
				t.Fatal(err)
			}
			log, err := j.Read(t.Context(), id)
			damaged, ok := errors.AsType[*Damaged](err)
			if !ok || damaged.Entry != c.entry || damaged.ID != id {
				t.Errorf("%s: %v, want damage at entry %d", name, err, c.entry)
			}
			if got := texts(log); !slices.Equal(got, c.kept) {
				t.Errorf("%s: read %.20q", name, got)
			}
			ended := error(nil)
			for _, err := range j.Follow(t.Context(), id, 0) {
				ended = err
			}
			if _, ok := errors.AsType[*Damaged](ended); !ok {
				t.Errorf("%s: followed until %v", name, ended)
			}
		}
	})
}

// Another process purges, and nobody is told.
func TestIndexLate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		for n := range 5 {
			appended(t, j, ID{Session: strconv.Itoa(n)}, 0, message(j, 1, "x"))
		}
		eventually(t, other, "rows", func() bool { return other.Stats().Sessions == 5 })
		l, err := j.reading(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, session := range []string{"2", "3"} {
			if err := l.log.Purge(t.Context(), jetstream.WithPurgeSubject(j.o.Prefix+".session._."+session)); err != nil {
				t.Fatal(err)
			}
		}
		if err := other.Purge(t.Context(), ID{Session: "2"}); err != nil {
			t.Error(err)
		}
		if row, ok := other.Row(ID{Session: "2"}); ok {
			t.Errorf("purged by another process and here, the row is %+v", row)
		}
		for _, x := range []*Journal{j, other} {
			x.wake()
			eventually(t, x, "the purged row", func() bool { _, ok := x.Row(ID{Session: "3"}); return !ok && x.Stats().Sessions == 3 })
		}
	})
}

// The index is built again when the stream of a cluster was made anew. The engine inside
// is read again whenever it is opened.
func TestStreamAnew(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	o := outside(t)
	j := open(t, o)
	o.Node = rand.Text()
	other := open(t, o)
	for n := range 5 {
		appended(t, j, ID{Session: strconv.Itoa(n)}, 0, message(j, 1, "x"))
	}
	eventually(t, other, "rows", func() bool { return other.Stats().Sessions == 5 })
	l, err := j.reading(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := l.log.CachedInfo().Config
	if err := l.js.DeleteStream(t.Context(), config.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := l.js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	appended(t, j, one, 0, message(j, 1, "x"))
	for _, x := range []*Journal{j, other} {
		eventuallyNil(t, "the index of the new stream", func() error {
			x.wake()
			if rows := x.Rows(one.Owner); len(rows) != 1 || rows[0].ID != one {
				return fmt.Errorf("the rows are %+v", rows)
			}
			return nil
		})
	}
}

func TestLease(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	o := outside(t)
	o.Lease = 3 * time.Second
	start := time.Now()
	a := open(t, o)
	ob := o
	ob.Node = "b" + rand.Text()
	b, err := Open(t.Context(), ob)
	if err != nil {
		t.Fatal(err)
	}
	p, oc := through(t, o)
	oc.Node = "c" + rand.Text()
	c := open(t, oc)
	sees := func(j *Journal, want ...string) error {
		nodes := j.Nodes()
		for _, name := range want {
			if _, ok := nodes[name]; !ok {
				return fmt.Errorf("node %s is not among %v", name, nodes)
			}
		}
		if len(nodes) != len(want) {
			return fmt.Errorf("the nodes are %v", nodes)
		}
		return nil
	}
	for _, j := range []*Journal{a, b, c} {
		eventuallyNil(t, "all see all", func() error { return sees(j, a.o.Node, ob.Node, oc.Node) })
		if confirmed := j.Confirmed(); confirmed.Before(start) || time.Since(confirmed) > o.Lease {
			t.Errorf("confirmed %v", confirmed)
		}
	}
	p.set(true, false)
	cutAt := time.Now()
	closeJournal(t, b)
	eventuallyNil(t, "one left", func() error { return sees(a, a.o.Node, oc.Node) })
	if took := time.Since(cutAt); took > 2*o.Lease {
		t.Errorf("a node that left was missed after %v", took)
	}
	eventuallyNil(t, "one is silent for a lease", func() error {
		if silent := time.Since(a.Nodes()[oc.Node]); silent < o.Lease {
			return fmt.Errorf("%v", silent)
		}
		return nil
	})
	if own := a.Nodes()[a.o.Node]; time.Since(own) > o.Lease || time.Since(a.Confirmed()) > o.Lease {
		t.Errorf("the own key changed %v ago", time.Since(own))
	}
	if c.Confirmed().After(cutAt) {
		t.Error("the node that was cut off confirms its lease")
	}
	if err := c.Beat(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("renewing the lease without a connection: %v", err)
	}
	if err := c.Healthy(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a connection: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Append(ctx, one, 0, message(c, 1, "1")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("appending without a connection: %v", err)
	}
	p.set(false, false)
	eventuallyNil(t, "back", func() error {
		if time.Since(a.Nodes()[oc.Node]) > o.Lease/2 {
			return errors.New("its key does not change")
		}
		return c.Healthy()
	})
	appended(t, c, one, 0, message(c, 1, "1"))
}

func TestRecords(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	o := outside(t)
	o.RecordsFor = time.Hour
	a := open(t, o)
	o.Node = rand.Text()
	b := open(t, o)
	publish := func(j *Journal, n int) (added bool) {
		added, err := j.PublishRecords(t.Context(), fmt.Sprint("s", n), []byte(fmt.Sprint("line\n", n)))
		if err != nil {
			t.Error(err)
		}
		return added
	}
	for n := range 3 {
		var wg sync.WaitGroup
		var added atomic.Int32
		for _, j := range []*Journal{a, b, a, b} {
			wg.Go(func() {
				if publish(j, n) {
					added.Add(1)
				}
			})
		}
		wg.Wait()
		if added.Load() != 1 {
			t.Errorf("the records of s%d were added %d times", n, added.Load())
		}
	}
	// follow returns the sessions behind a place, until there are count of them, and the
	// last place. An asterisk marks those that were there before.
	follow := func(after RecordsPlace, count int, each func(n int)) (sessions []string, last RecordsPlace) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for r := range b.FollowRecords(ctx, after) {
			if want := strings.Replace(r.Session, "s", "line\n", 1); string(r.Lines) != want {
				t.Errorf("records of %s: %q", r.Session, r.Lines)
			}
			last = r.Place
			if r.Earlier {
				r.Session += "*"
			}
			sessions = append(sessions, r.Session)
			if len(sessions) == count {
				break
			}
			each(len(sessions))
		}
		return sessions, last
	}
	got, last := follow(RecordsPlace{}, 4, func(n int) {
		if n == 3 {
			publish(a, 3)
		}
	})
	if d := cmp.Diff([]string{"s0*", "s1*", "s2*", "s3"}, got); d != "" {
		t.Error("all: ", d)
	}
	if last.Seq != 4 {
		t.Errorf("the last place is %+v", last)
	}
	nothing := func(int) {}
	for _, tt := range []struct {
		name  string
		after RecordsPlace
		want  []string
	}{
		{"behind the second", RecordsPlace{last.Stream, 2}, []string{"s2*", "s3*"}},
		{"behind the end", RecordsPlace{last.Stream, 5}, []string{"s0*", "s1*", "s2*", "s3*"}},
		{"another stream", RecordsPlace{last.Stream.Add(-1), 2}, []string{"s0*", "s1*", "s2*", "s3*"}},
	} {
		if got, _ := follow(tt.after, len(tt.want), nothing); cmp.Diff(tt.want, got) != "" {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	// The stream is made anew while it is followed.
	got, again := follow(RecordsPlace{last.Stream, 3}, 3, func(n int) {
		if n > 1 {
			return
		}
		l, err := a.reading(t.Context())
		if err == nil {
			err = l.js.DeleteStream(t.Context(), o.stream("RECORDS"))
		}
		if err == nil {
			_, err = l.js.CreateStream(t.Context(), l.records.CachedInfo().Config)
		}
		if err != nil {
			t.Error(err)
		}
		publish(a, 1)
		publish(a, 0)
	})
	if !slices.Equal(got[:1], []string{"s3*"}) || strings.ReplaceAll(strings.Join(got[1:], " "), "*", "") != "s1 s0" {
		t.Errorf("of a stream that was made anew: %v", got)
	}
	if again.Stream.Equal(last.Stream) || again.Seq != 2 {
		t.Errorf("the last place is %+v, after %+v", again, last)
	}
	if _, err := a.PublishRecords(t.Context(), "a.*", nil); err == nil {
		t.Error("a session with a subject as id has records")
	}
	if _, err := a.PublishRecords(t.Context(), "large", make([]byte, 2<<20)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("records that are too large: %v", err)
	}
}

// The leader of the stream ends while sessions are appended to: none is lost, and a
// follower on another server sees each entry once.
func TestLeaderLost(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	c := journaltest.Start(t)
	o := inside(t)
	o.URL, o.Replicas = c.URL, 3
	a := open(t, o)
	o.Node = rand.Text()
	b := open(t, o)
	const n = 300
	var longest time.Duration
	var wg sync.WaitGroup
	half := make(chan struct{})
	seq := appended(t, a, one, 0, message(a, 1, "1"))
	wg.Go(func() {
		for i := 2; i <= n; i++ {
			begin := time.Now()
			next, err := a.Append(t.Context(), one, seq, message(a, i, strconv.Itoa(i)))
			if err != nil {
				t.Errorf("append %d: %v", i, err)
				break
			}
			seq, longest = next, max(longest, time.Since(begin))
			if i == n/2 {
				close(half)
			}
		}
	})
	wg.Go(func() {
		<-half
		for _, s := range c.Servers {
			if s.JetStreamIsStreamLeader("$G", "COUNCIL_SESSIONS") {
				stopEngine(s)
				return
			}
		}
		t.Error("no leader to stop")
	})
	next := 1
	for m, err := range b.Follow(t.Context(), one, 0) {
		if err != nil || m.First != next {
			t.Fatalf("entry %d, want %d: %v", m.First, next, err)
		}
		if next++; next > n {
			break
		}
	}
	wg.Wait()
	begin := time.Now()
	eventually(t, b, "the index", func() bool { row, _ := b.Row(one); return row.Entries == n })
	t.Logf("longest append: %v; the index of another node came %v later", longest, time.Since(begin))
	if longest > a.maxWait {
		t.Errorf("an append took %v", longest)
	}
	numbers(t, b, one, n)
}

// told is a log that tells of each message.
type told struct {
	slog.Handler
	messages chan string
}

func (h told) Handle(_ context.Context, r slog.Record) error {
	h.messages <- r.Message
	return nil
}

func (h told) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// A cluster that has no leader yet, and one that lacks servers for a new stream, are
// waited for.
func TestClusterNotReady(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	c := journaltest.Start(t)
	for name, running := range map[string]int{"no leader": 1, "two of three": 2} {
		c.Stop()
		for i := range running {
			if err := c.Run(i); err != nil {
				t.Fatal(err)
			}
		}
		o := inside(t)
		log := told{slog.DiscardHandler, make(chan string, 100)}
		o.URL, o.Replicas, o.Prefix, o.Log = c.URL, 3, "t"+strings.ToLower(rand.Text()), slog.New(log)
		opened := make(chan error, 1)
		go func() {
			j, err := Open(t.Context(), o)
			if err == nil {
				closeJournal(t, j)
			}
			opened <- err
		}()
		select {
		case message := <-log.messages:
			if !strings.Contains(message, "waiting for the cluster") {
				t.Errorf("%s: said %q", name, message)
			}
		case err := <-opened:
			t.Fatalf("%s: opened at once: %v", name, err)
		}
		for i := running; i < 3; i++ {
			if err := c.Run(i); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-opened; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// It is told how many records are still to come.
func TestRecordsLag(t *testing.T) {
	t.Parallel()
	j := open(t, outside(t))
	for n := range 3 {
		if _, err := j.PublishRecords(t.Context(), strconv.Itoa(n), []byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	lags := make(chan uint64, 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range j.FollowRecords(ctx, RecordsPlace{}) {
			lags <- j.Stats().RecordsLag
		}
	}()
	if lag := <-lags; lag != 3 {
		t.Errorf("%d before the first", lag)
	}
	eventuallyNil(t, "nothing more", func() error {
		if lag := j.Stats().RecordsLag; lag != 0 {
			return fmt.Errorf("%d are to come", lag)
		}
		return nil
	})
	if len(lags) != 2 {
		t.Errorf("%d of 2 came", len(lags))
	}
	l, err := j.reading(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.records.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	ctx, cancel = context.WithCancel(t.Context())
	done = make(chan struct{})
	j.behind(3)
	go func() {
		defer close(done)
		for r := range j.FollowRecords(ctx, RecordsPlace{}) {
			t.Errorf("%s is back", r.Session)
		}
	}()
	eventuallyNil(t, "none are there", func() error {
		if lag := j.Stats().RecordsLag; lag != 0 {
			return fmt.Errorf("%d are to come", lag)
		}
		return nil
	})
	cancel()
	<-done
}

// leaseAfter waits until the lease was renewed after a time.
func leaseAfter(t *testing.T, j *Journal, at time.Time) {
	t.Helper()
	eventuallyNil(t, "a renewed lease", func() error {
		if !j.Confirmed().After(at) {
			return errors.New("none")
		}
		return nil
	})
}

// The lease is renewed as soon as a connection is there again.
func TestBeatWhenBack(t *testing.T) {
	t.Parallel()
	o := outside(t)
	o.Lease = time.Minute
	p, o := through(t, o)
	j := open(t, o)
	leaseAfter(t, j, time.Time{})
	held := j.Held()
	cutAt := time.Now()
	p.set(false, false)
	leaseAfter(t, j, cutAt)
	if took := time.Since(cutAt); took > o.Lease/6 {
		t.Errorf("the lease was renewed after %v", took)
	}
	if j.Held() != held {
		t.Error("a lease that was renewed in time began anew")
	}
}

// A lease that was not renewed because the cluster had no leader is renewed soon after it
// has one.
func TestBeatAfterElection(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	c := journaltest.Start(t)
	o := inside(t)
	log := told{slog.DiscardHandler, make(chan string, 100)}
	o.URL, o.Replicas, o.Lease, o.Log = c.Servers[0].ClientURL(), 3, time.Minute, slog.New(log)
	j := open(t, o)
	leaseAfter(t, j, time.Time{})
	for _, s := range c.Servers[1:] {
		s.Shutdown()
		s.WaitForShutdown()
	}
	lostAt := time.Now()
	for failed := false; !failed; {
		j.beatNow()
		select {
		case message := <-log.messages:
			failed = strings.Contains(message, "was not renewed")
		case <-time.After(100 * time.Millisecond):
		}
	}
	for i := range c.Servers[1:] {
		if err := c.Run(i + 1); err != nil {
			t.Fatal(err)
		}
	}
	eventuallyNil(t, "a leader", func() error {
		_, err := j.PublishRecords(t.Context(), rand.Text(), []byte("line\n"))
		return err
	})
	ledAt := time.Now()
	leaseAfter(t, j, lostAt)
	if took := time.Since(ledAt); took > o.Lease/6 {
		t.Errorf("the lease was renewed %v after there was a leader", took)
	}
}

// A node whose server does not answer any more goes to another one, and has its lease
// again. The lease began anew where the others may have seen none.
func TestAnotherServer(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	o := outside(t)
	o.Lease = 3 * time.Second
	var links []*journaltest.Link
	var urls []string
	for one := range strings.SplitSeq(o.URL, ",") {
		u, err := url.Parse(one)
		if err != nil {
			t.Fatal(err)
		}
		l := journaltest.NewLink(t, u.Host)
		links, urls = append(links, l), append(urls, l.URL)
	}
	o.URL = strings.Join(urls, ",")
	j := open(t, o)
	appended(t, j, one, 0, message(j, 1, "1"))
	l, err := j.reading(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	used := slices.Index(urls, l.conn.ConnectedUrl())
	if used < 0 {
		t.Fatalf("connected to %s", l.conn.ConnectedUrl())
	}
	stalledAt := time.Now()
	links[used].Stall(true, true)
	eventuallyNil(t, "the next lease", func() error {
		if j.Confirmed().Before(stalledAt) {
			return errors.New("none")
		}
		return nil
	})
	if took := time.Since(stalledAt); took > 2*o.Lease {
		t.Errorf("the lease was renewed after %v", took)
	}
	for _, l := range links {
		l.Cut()
	}
	for time.Since(j.Confirmed()) < o.Lease {
		<-time.After(10 * time.Millisecond) // the clock is what is waited for
	}
	mendedAt := time.Now()
	for _, l := range links {
		l.Mend()
	}
	eventuallyNil(t, "a lease that begins anew", func() error {
		if j.Held().Before(mendedAt) {
			return errors.New("none")
		}
		return nil
	})
}

// What waits for an answer on a connection ends with it, and not with its own time.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	p, o := through(t, outside(t))
	j := open(t, o)
	l, err := j.reading(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := l.within(t.Context())
	defer cancel()
	p.set(false, false)
	<-ctx.Done()
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("ended with %v", ctx.Err())
	}
	appended(t, j, one, 0, message(j, 1, "1"))
}
