//go:build scale

package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// limitFiles has a process write no file beyond a size, in bytes.
func limitFiles(t *testing.T, p *os.Process, size uint64) {
	t.Helper()
	limit := syscall.Rlimit{Cur: size, Max: math.MaxUint64}
	_, _, errno := syscall.RawSyscall6(
		syscall.SYS_PRLIMIT64, uintptr(p.Pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
}

// The disk is full, inside and on the cluster: plain sessions run, those that are to be
// kept are refused, those that run go on without their log. When there is room, sessions
// are kept again. A stream that is 90 % full takes no new session.
func TestScaleS08(t *testing.T) {
	p := newPaid()
	models := p.models()
	for i := range models {
		reply := models[i].Reply
		models[i].Reply = func(task simllm.Task) (string, bool) {
			text, ok := reply(task)
			if task.Kind == simllm.Question && strings.HasPrefix(task.Question, "Large") {
				return strings.Repeat("word ", 100<<10), true
			}
			return text, ok
		}
	}
	sim := daemontest.Provider(t, models...)
	env := []string{
		"LLM_COUNCIL_BASE_URL=" + sim.URL(), "LLM_COUNCIL_MODELS=a,b,c,d", "LLM_COUNCIL_CHAIRMAN=scribe",
		"LLM_COUNCIL_API_TOKENS=team:" + trialToken, constants(map[string]any{"Lease": scaleLease(), "SessionsKeptBytes": 16 << 20}),
	}
	inside := alone(t, env...)
	c := startCluster(t, "max_file_store: 64GB", "max_file_store: 250MB")
	cluster := []*node{c.node(t, "node 1", env...), c.node(t, "node 2", env...)}
	for _, n := range append([]*node{inside}, cluster...) {
		n.Token = trialToken
		n.start(t)
	}
	conn, err := nats.Connect("nats://" + c.servers[0].client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	var measured []string
	for _, tt := range []struct {
		where      string
		nodes      []*node
		fill, room func()
	}{
		{
			"inside",
			[]*node{inside},
			func() { limitFiles(t, inside.process.Process, 1) },
			func() { limitFiles(t, inside.process.Process, math.MaxUint64) },
		},
		{
			"on the cluster", cluster,
			func() {
				// Another stream takes what room there is.
				other := jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}, Replicas: 3}
				if _, err := js.CreateStream(t.Context(), other); err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = js.Publish(t.Context(), "other", make([]byte, 1<<20-100))
				}
			},
			func() {
				daemontest.Until(t, func() bool { return js.DeleteStream(t.Context(), "OTHER") == nil })
			},
		},
	} {
		measured = append(measured, p.fullDisk(t, tt.where, tt.nodes, tt.fill, tt.room))
	}
	measured = append(measured, p.fullStream(t, "inside", inside), p.fullStream(t, "on the cluster", cluster[0]))
	if twice := p.twice(); len(twice) > 0 {
		t.Errorf("paid twice: %v", twice)
	}
	t.Logf("scale S08: measured %s; %d calls paid twice; promised as S06, kept again when there is room",
		strings.Join(measured, "; "), len(p.twice()))
}

// fullDisk plays a disk that is full, and says what was measured.
func (p *paid) fullDisk(t *testing.T, where string, nodes []*node, fill, room func()) string {
	t.Helper()
	var held, calls []string
	release := func() {}
	for i, n := range nodes {
		c := call{fmt.Sprintf("Held %s at node %d?", where, i), simllm.Review, "d"}
		once, before := p.hold(c), release
		release = func() { before(); once() }
		held = append(held, begin(t, n.Caller, c.question))
		p.wait(t, c)
		calls = append(calls, c.question)
	}
	fill()
	begun := time.Now()
	release()
	var refused time.Duration
	var ids []string
	for i, n := range nodes {
		if id := n.askKept(t, fmt.Sprintf("Refused %s at node %d?", where, i)); id != "" {
			t.Errorf("%s: %s accepted session %s", where, n.name, id)
		}
		refused = max(refused, time.Since(begun))
		daemontest.Until(t, func() bool { return !n.keeps(t) })
		id, _ := n.askPlain(t, fmt.Sprintf("Plain %s at node %d?", where, i))
		ids = append(ids, id)
	}
	for i, n := range nodes {
		p.wait(t, call{calls[i], simllm.Synthesis, "scribe"})
		if s := ended(t, n.Caller, held[i]); s.Status != council.StatusComplete || !hasWarning(s, council.WarnNotKept) {
			t.Errorf("%s: session %s is %s: %v", where, s.ID, s.Status, s.Metadata.Warnings)
		}
	}
	room()
	again := time.Now()
	for i, n := range nodes {
		daemontest.Until(t, func() bool {
			id := n.askKept(t, fmt.Sprintf("Again %s at node %d?", where, i))
			if id != "" {
				ids = append(ids, id)
			}
			return id != ""
		})
		daemontest.Until(t, func() bool { return n.keeps(t) })
	}
	back := time.Since(again)
	wrong := 0
	for _, n := range nodes {
		wrong += n.recorded(t, append(ids, held...))
		daemontest.Until(t, func() bool { return strings.Contains(n.log.String(), "stored to its end") })
		n.kill(t)
	}
	for _, n := range nodes {
		n.start(t)
	}
	for _, n := range nodes {
		for _, id := range held {
			if s := ended(t, n.Caller, id); s.Status != council.StatusComplete || hasWarning(s, council.WarnTakenOver) {
				t.Errorf("%s: %s: session %s is %s: %v", where, n.name, id, s.Status, s.Metadata.Warnings)
			}
			gapless(t, n.Caller, id, n.name)
		}
	}
	return fmt.Sprintf("disk full %s: refused within %s, %d running sessions went on with not_kept, kept again after %s, "+
		"records of %d sessions lost or doubled", where, refused.Round(time.Millisecond), len(held), back.Round(time.Millisecond), wrong)
}

// fullStream fills the stream with sessions that run, and says what was measured.
func (p *paid) fullStream(t *testing.T, where string, n *node) string {
	t.Helper()
	var held []string
	var releases []func()
	for full := false; !full; {
		question := fmt.Sprintf("Large %d %s?", len(held), where)
		c := call{question, simllm.Review, "d"}
		releases = append(releases, p.hold(c))
		id := n.askKept(t, question)
		if full = id == ""; !full {
			held = append(held, id)
			p.wait(t, c)
		}
		if len(held) > 20 {
			t.Fatalf("%s: the stream is never full", where)
		}
	}
	cl, err := client.New(client.Options{URL: n.Base, Token: n.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var watching sync.WaitGroup
	var notKept atomic.Int64
	for _, id := range held {
		watching.Go(func() {
			s, err := cl.Watch(t.Context(), id, council.ObserverFunc(func(council.Event) {}))
			switch {
			case err != nil || s.Status != council.StatusComplete:
				t.Errorf("%s: session %s: %v", where, id, err)
			case hasWarning(*s, council.WarnNotKept):
				notKept.Add(1)
			}
		})
	}
	for _, release := range releases {
		release()
	}
	watching.Wait()
	begun := time.Now()
	daemontest.Until(t, func() bool { return n.askKept(t, "Again "+where+", after the stream was full?") != "" })
	return fmt.Sprintf("stream full %s: refused beside %d sessions that ran, %d of which went on with not_kept, kept again after %s",
		where, len(held), notKept.Load(), time.Since(begun).Round(time.Millisecond))
}
