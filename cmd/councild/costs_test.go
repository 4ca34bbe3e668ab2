package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var costsRounds = flag.Int("costs", 1,
	"how often the costs of keeping sessions are measured in turn; from 10 on with 64 clients and models that take 2 s")

// costs measures what it costs to keep sessions, as lab/bench/README.md shows it. All
// daemons and servers are processes. The clients and the provider are in this one.
type costs struct {
	slow    time.Duration // that a slow model takes for a call in the median
	clients int           // that ask at the same time
	alone   int           // questions that one client asks in a row
	used    int           // sessions in a directory that was used before
	sim     *simllm.Running
}

func newCosts(t *testing.T) *costs {
	t.Helper()
	c := &costs{slow: 50 * time.Millisecond, clients: 4, alone: 5, used: 20}
	if *costsRounds >= 10 {
		c.slow, c.clients, c.alone, c.used = 2*time.Second, 64, 20, 1000
	}
	models := daemontest.Members()
	for _, name := range []string{"e", "f", "g", "h"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, Noise: 0.5, Latency: simllm.Latency{Median: c.slow, Sigma: 0.1}})
	}
	// A chairman that writes for 12 s.
	models = append(models, simllm.Model{Name: "scribe", ChunkDelay: time.Second, Reply: func(simllm.Task) (string, bool) {
		return strings.Repeat("a-word-of-sixteen ", 12), true
	}})
	c.sim = daemontest.Provider(t, models...)
	return c
}

// daemon starts a daemon with places for all clients. With a cluster it reaches its
// servers without links.
func (c *costs) daemon(t *testing.T, on *cluster, env ...string) *node {
	t.Helper()
	env = append([]string{
		"LLM_COUNCIL_BASE_URL=" + c.sim.URL(), "LLM_COUNCIL_MODELS=a,b,c,d", "LLM_COUNCIL_ALLOWED_MODELS=e,f,g,h,scribe",
		"LLM_COUNCIL_LOG_LEVEL=info", constants(map[string]any{"Lease": 20 * time.Second}),
	}, env...)
	if on == nil {
		on = &cluster{}
		env = append(env, "LLM_COUNCIL_NATS_URL=")
	} else {
		env = append(env, "LLM_COUNCIL_NATS_URL="+on.urls())
	}
	n := on.node(t, "daemon", env...)
	n.start(t)
	n.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * c.clients}}
	t.Cleanup(n.Client.CloseIdleConnections)
	return n
}

func (c *cluster) urls() string {
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, "nats://"+s.client)
	}
	return strings.Join(urls, ",")
}

// direct starts three servers without links between them.
func direct(t *testing.T) *cluster {
	t.Helper()
	return startServers(t, func(_ *natsServer, to string) string { return "nats://" + to })
}

// ask asks a daemon and returns how long it took. The question of a kept session has a
// key of its own.
func (c *costs) ask(t *testing.T, n *node, slow bool, key string) time.Duration {
	t.Helper()
	body := `{"query":"How should a small team split a monolith?"}`
	if slow {
		body = `{"query":"How should a small team split a monolith?","models":["e","f","g","h"],"chairman":"e"}`
	}
	var headers []string
	if key != "" {
		headers = []string{"Idempotency-Key", key}
	}
	begun := time.Now()
	resp, answer, err := n.Send(t.Context(), "POST", "/v1/council", body, headers...)
	took := time.Since(begun)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(answer), `"status":"complete"`) {
		t.Errorf("%v %s", err, answer)
	}
	return took
}

// load has clients ask daemons in turn, each client so many questions one after another.
// Clients of slow models begin at different times. It returns the times of all sessions.
func (c *costs) load(t *testing.T, clients, questions int, slow, kept bool, nodes ...*node) []time.Duration {
	t.Helper()
	var mu sync.Mutex // guards took
	var took []time.Duration
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			if slow {
				<-time.After(3 * c.slow * time.Duration(i) / time.Duration(clients))
			}
			for range questions {
				key := ""
				if kept {
					key = fmt.Sprint("key-", time.Now().UnixNano(), "-", i)
				}
				one := c.ask(t, nodes[i%len(nodes)], slow, key)
				mu.Lock()
				took = append(took, one)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return took
}

// metric returns a figure of a daemon without labels.
func metric(t *testing.T, n *node, name string) float64 {
	t.Helper()
	_, text := n.Call(t, "GET", "/metrics", "")
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("there is no %s", name)
	}
	f, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// cpu returns the processor time of a process so far, 0 where the system has no /proc.
func cpu(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, field := range fields[11:13] { // in user mode and in the kernel, in hundredths of a second
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func (c *cluster) cpu() (sum time.Duration) {
	for _, s := range c.servers {
		sum += cpu(s.process.Process.Pid)
	}
	return sum
}

// kind is a way in which sessions run.
type kind struct {
	name string
	node *node
	kept bool
	on   *cluster // whose servers work for it

	took         []time.Duration
	cpu, servers time.Duration
	allocs       float64
	memory       float64 // bytes, the most
}

// measure runs sessions of a kind, and adds up what they take.
func (k *kind) measure(t *testing.T, c *costs, clients, questions int, slow bool) {
	t.Helper()
	processor, servers, allocs := cpu(k.node.process.Process.Pid), k.on.cpu(), metric(t, k.node, "go_memstats_mallocs_total")
	took := c.load(t, clients, questions, slow, k.kept, k.node)
	k.allocs += metric(t, k.node, "go_memstats_mallocs_total") - allocs
	k.cpu += cpu(k.node.process.Process.Pid) - processor
	k.servers += k.on.cpu() - servers
	k.memory = max(k.memory, metric(t, k.node, "process_resident_memory_bytes"))
	k.took = append(k.took, took...)
}

// row logs the figures of a kind beside those of another one.
func (k *kind) row(t *testing.T, what string, base *kind) {
	t.Helper()
	n, m := float64(len(k.took)), float64(len(base.took))
	p50, without := ms(quantile(k.took, 0.5)), ms(quantile(base.took, 0.5))
	t.Logf("costs: | %s | %s | %.1f | %+.1f | %.2f | %.2f | %.2f | %.0f | %.3f | %.0f |", what, k.name, p50, p50-without,
		ms(k.cpu)/n, ms(k.cpu)/n/(ms(base.cpu)/m), ms(k.servers)/n, k.allocs/n, k.allocs/n/(base.allocs/m), k.memory/(1<<20))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// What it costs to keep sessions, against sessions in memory.
func TestCosts(t *testing.T) {
	testkit.Slow(t)
	c := newCosts(t)
	servers := direct(t)
	none := &cluster{}
	dir := t.TempDir()
	inside := c.daemon(t, nil, "LLM_COUNCIL_DATA_DIR="+dir)
	c.load(t, 1, 1, false, true, inside) // starts the engine
	kinds := []*kind{
		{name: "plain, DATA_DIR=off", node: c.daemon(t, nil, "LLM_COUNCIL_DATA_DIR=off"), on: none},
		{name: "plain, with the store", node: inside, on: none},
		{name: "kept, inside", node: inside, kept: true, on: none},
		{name: "kept, on a cluster", node: c.daemon(t, servers), kept: true, on: servers},
	}
	t.Log("costs: | trial | sessions | p50 ms | added ms | CPU ms a session | ratio | CPU ms of the servers | allocations | ratio | MiB |")
	for _, trial := range []struct {
		what               string
		clients, questions int
		slow               bool
	}{
		{"1 client, provider at once", 1, c.alone, false},
		{fmt.Sprintf("%d clients, provider %s", c.clients, c.slow), c.clients, 2, true},
	} {
		for _, k := range kinds {
			c.load(t, trial.clients, 1, trial.slow, k.kept, k.node) // warms up
			k.took, k.cpu, k.servers, k.allocs, k.memory = nil, 0, 0, 0, 0
		}
		rounds := *costsRounds
		if trial.slow {
			rounds = (rounds + 2) / 3 // each takes long
		}
		for range rounds {
			for _, k := range kinds {
				k.measure(t, c, trial.clients, trial.questions, trial.slow)
			}
		}
		for _, k := range kinds {
			k.row(t, trial.what, kinds[0])
		}
	}

	// In the long trial there is a session whose text takes 12 s, with two appends more.
	long := ""
	if *costsRounds >= 10 {
		status, body := inside.Call(t, "POST", "/v1/council",
			`{"query":"How?","chairman":"scribe","background":true}`, "Idempotency-Key", "long")
		var s council.Summary
		if err := json.Unmarshal(body, &s); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s", status, body)
		}
		ended(t, inside.Caller, s.ID)
		long = s.ID
	}
	for _, k := range kinds[2:] {
		k.node.signal(t, syscall.SIGTERM)
		k.node.wait()
	}
	records, err := os.Stat(inside.records)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, r := range daemontest.Records(t, inside.records) {
		written[r.SessionID] = true
	}
	t.Logf("costs: %d bytes of records a session", records.Size()/int64(len(written)))
	for _, where := range []journal.Options{{Dir: filepath.Join(dir, "sessions")}, {URL: servers.urls()}} {
		appends(t, where, long)
	}
}

// appends logs what the sessions of a store hold, and checks that a session of four
// members takes at most 14 appends, and one more for every 5 s of a text.
func appends(t *testing.T, o journal.Options, long string) {
	t.Helper()
	o.MaxBytes, o.Prefix, o.Node, o.Replicas, o.Lease = 256<<20, "council", "measuring", 3, 20*time.Second
	o.Log = slog.New(slog.DiscardHandler)
	j, err := journal.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	var bytes, results int64
	for _, row := range j.Newest(math.MaxInt, func(*journal.IndexRow) bool { return true }) {
		if row.Key == "" {
			t.Errorf("the session %s is stored, although nobody can come back to it", row.Session)
		}
		log, err := j.Read(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		if row.Session == long {
			t.Logf("costs: a text of 12 s: %d appends in %.1f s", len(log), log[len(log)-1].At.Sub(log[0].At).Seconds())
			if len(log) > 16 {
				t.Errorf("the session with a text of 12 s takes %d appends", len(log))
			}
			continue
		}
		counts = append(counts, len(log))
		bytes += row.Bytes
		last := log[len(log)-1].Entries
		results += int64(len(last[len(last)-1].Data)) // the whole session
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(counts)
	if len(counts) == 0 || counts[len(counts)-1] > 14 {
		t.Fatalf("appends of the sessions: %v", counts)
	}
	t.Logf("costs: %s%s: %d sessions with %d appends in the median, %d at most, and %d bytes in the mean, %d of them the session",
		o.Dir, o.URL, len(counts), counts[len(counts)/2], counts[len(counts)-1], bytes/int64(len(counts)), results/int64(len(counts)))
}

// How long a daemon takes to start, with and without sessions of an earlier one, and
// the memory that it has then.
func TestCostsOfStarting(t *testing.T) {
	c := newCosts(t)
	used := t.TempDir()
	j, err := journal.Open(t.Context(), journal.Options{
		Dir: filepath.Join(used, "sessions"), MaxBytes: 256 << 20, Prefix: "council", Node: "earlier", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	data := []byte(`"` + strings.Repeat("x", 2<<10) + `"`)
	for i := range c.used {
		var seq uint64
		for n := range 14 {
			m := journal.Message{
				Head: journal.Head{
					Node: "earlier", Epoch: 1, Status: council.StatusRunning, Created: time.Now(), Bytes: int64(len(data) * (n + 1)),
				},
				First: n + 1, Entries: []council.Entry{{Type: council.EventAnswer, Data: data}},
			}
			if n == 13 {
				m.Status = council.StatusComplete
			}
			if seq, err = j.Append(t.Context(), journal.ID{Session: fmt.Sprint("session-", i)}, seq, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	took, memory := map[string][]time.Duration{}, map[string]float64{}
	for range *costsRounds {
		for name, dir := range map[string]string{"off": "off", "new": filepath.Join(t.TempDir(), "new"), "used": used} {
			begun := time.Now()
			n := c.daemon(t, nil, "LLM_COUNCIL_DATA_DIR="+dir)
			took[name] = append(took[name], time.Since(begun))
			memory[name] = max(memory[name], metric(t, n, "process_resident_memory_bytes"))
			if name == "used" && metric(t, n, "councild_kept_sessions") != float64(c.used) {
				t.Errorf("not all of the %d sessions are there", c.used)
			}
			n.signal(t, syscall.SIGTERM)
			n.wait()
		}
	}
	for _, name := range []string{"off", "new", "used"} {
		t.Logf("costs: | start, DATA_DIR %s | p50 %.0f ms, added %.0f ms | %.1f MiB, added %.1f MiB |",
			name, ms(quantile(took[name], 0.5)),
			ms(quantile(took[name], 0.5)-quantile(took["off"], 0.5)), memory[name]/(1<<20), (memory[name]-memory["off"])/(1<<20))
	}
	t.Logf("costs: the used directory held %d sessions of 14 messages", c.used)
}

// How many sessions one, two and three nodes run, and what takes the processor time.
func TestCostsOfNodes(t *testing.T) {
	testkit.Slow(t)
	c := newCosts(t)
	servers := direct(t)
	var nodes []*node
	first := 0.0
	for range 3 {
		nodes = append(nodes, c.daemon(t, servers, "LLM_COUNCIL_MAX_SESSIONS="+strconv.Itoa(c.clients)))
		daemons := func() (sum time.Duration) {
			for _, n := range nodes {
				sum += cpu(n.process.Process.Pid)
			}
			return sum
		}
		c.load(t, len(nodes)*c.clients, 1, true, true, nodes...)
		before := [3]time.Duration{daemons(), servers.cpu(), cpu(os.Getpid())}
		begun := time.Now()
		took := c.load(t, len(nodes)*c.clients, max(2, *costsRounds), true, true, nodes...)
		lasted := time.Since(begun)
		rate := float64(len(took)) / lasted.Seconds()
		if first == 0 {
			first = rate
		}
		share := func(now, before time.Duration) float64 {
			return 100 * float64(now-before) / float64(lasted) / float64(runtime.NumCPU())
		}
		t.Logf("costs: | %d nodes of %d places, provider %s | %.1f sessions/s, %.2f of one node | p50 %.0f ms "+
			"| CPU of %d cores: daemons %.0f %%, servers %.0f %%, provider and clients %.0f %% |",
			len(nodes), c.clients, c.slow, rate, rate/first, ms(quantile(took, 0.5)),
			runtime.NumCPU(), share(daemons(), before[0]), share(servers.cpu(), before[1]), share(cpu(os.Getpid()), before[2]))
	}
}
