package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// natsServerProgram is the program of nats-server, of the version in go.mod.
var natsServerProgram = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "nats-server").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("building nats-server: %w: %s", err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
})

// natsServer is one of three processes of nats-server.
type natsServer struct {
	name    string
	client  string // address for clients
	monitor string // URL of its state
	store   string // directory of its files
	config  string // file of its settings
	program string // "": natsServerProgram
	env     []string
	routes  []*journaltest.Link // to the other servers, in their order
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

// start starts a server, or one that has ended once more.
func (s *natsServer) start(t *testing.T) {
	t.Helper()
	program := s.program
	if program == "" {
		var err error
		if program, err = natsServerProgram(); err != nil {
			t.Fatal(err)
		}
	}
	s.process = exec.CommandContext(t.Context(), program, "-c", s.config, "-l", filepath.Join(filepath.Dir(s.store), s.name+".log"))
	s.process.Env = s.env
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	s.ended = ended
	t.Cleanup(func() { <-ended }) // the end of the test's context kills it
	go func(p *exec.Cmd) {
		defer close(ended)
		_ = p.Wait()
	}(s.process)
}

// signal sends a signal to the process.
func (s *natsServer) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process at once.
func (s *natsServer) kill(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGKILL)
	<-s.ended
}

// natsState is what a server says of its JetStream.
type natsState struct {
	Meta struct {
		Leader  string `json:"leader"`
		Cluster []struct {
			Offline bool `json:"offline"`
		} `json:"replicas"`
	} `json:"meta_cluster"`
	Accounts []struct {
		Streams []struct {
			Name    string `json:"name"`
			Cluster struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		} `json:"stream_detail"`
	} `json:"account_details"`
}

func (s *natsServer) state(ctx context.Context) (state natsState, err error) {
	_, body, err := daemontest.Caller{Base: s.monitor}.Send(ctx, "GET", "/jsz?streams=true&accounts=true", "")
	if err != nil {
		return state, err
	}
	return state, json.Unmarshal(body, &state)
}

// cluster is three servers with the configuration of docs/cluster/nats.conf. Between
// them, and between each daemon and them, are links.
type cluster struct {
	servers []*natsServer
}

// startCluster starts three servers with links between them, and waits until they have a
// leader. Pairs of texts say what is replaced in the configuration.
func startCluster(t *testing.T, replaced ...string) *cluster {
	t.Helper()
	return startServers(t, func(s *natsServer, peer string) string {
		link := journaltest.NewLink(t, peer)
		s.routes = append(s.routes, link)
		return link.URL
	}, replaced...)
}

// startServers starts three servers, and waits until they have a leader. route returns
// the URL at which a server reaches the address of another one.
func startServers(t *testing.T, route func(from *natsServer, to string) string, replaced ...string) *cluster {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cluster", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(config, []byte(strings.NewReplacer(replaced...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &cluster{}
	var peers []string
	var held []net.Listener
	address := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		return l.Addr().String()
	}
	for i := range 3 {
		s := &natsServer{name: fmt.Sprintf("nats%d", i+1), client: address(), config: config}
		monitor := address()
		s.store, s.monitor = filepath.Join(dir, s.name), "http://"+monitor
		peers = append(peers, address())
		s.env = []string{
			"NATS_NAME=" + s.name, "NATS_LISTEN=" + s.client, "NATS_PEERS=" + peers[i], "NATS_MONITOR=" + monitor, "NATS_STORE=" + s.store,
			"NATS_ADVERTISE=127.0.0.1:9", // nobody is there: the servers take their links
		}
		c.servers = append(c.servers, s)
	}
	for i, s := range c.servers {
		var routes []string
		for j, peer := range peers {
			if i != j {
				routes = append(routes, `"`+route(s, peer)+`"`)
			}
		}
		s.env = append(s.env, "NATS_ROUTES=["+strings.Join(routes, ",")+"]")
	}
	for _, l := range held {
		_ = l.Close()
	}
	for _, s := range c.servers {
		s.start(t)
	}
	c.wait(t)
	return c
}

// wait waits until the three servers have a leader that sees the two others, and each of
// their streams has one.
func (c *cluster) wait(t *testing.T) {
	t.Helper()
	daemontest.Until(t, func() bool {
		for _, s := range c.servers {
			state, err := s.state(t.Context())
			others := state.Meta.Cluster
			if err != nil || state.Meta.Leader != s.name || len(others) != 2 || others[0].Offline || others[1].Offline {
				continue
			}
			led := true
			for _, account := range state.Accounts {
				for _, stream := range account.Streams {
					led = led && stream.Cluster.Leader != ""
				}
			}
			return led
		}
		return false
	})
}

// leader returns the server that leads the stream of the sessions.
func (c *cluster) leader(t *testing.T) (leader *natsServer) {
	t.Helper()
	daemontest.Until(t, func() bool {
		for _, s := range c.servers {
			state, err := s.state(t.Context())
			if err != nil {
				continue
			}
			for _, account := range state.Accounts {
				for _, stream := range account.Streams {
					if stream.Name == "COUNCIL_SESSIONS" && stream.Cluster.Leader == s.name {
						leader = s
						return true
					}
				}
			}
		}
		return false
	})
	return leader
}

// node is one daemon of a trial on a cluster.
type node struct {
	daemontest.Caller
	name    string
	records string              // its record file
	links   []*journaltest.Link // to the servers of the cluster, in their order
	program string              // "": the councild under test
	ahead   time.Duration       // of its clock
	env     []string
	process *process
	log     *daemontest.Log // of all its processes
	logged  chan struct{}   // closed when the process has ended
}

// node returns a daemon on the cluster that is not started yet.
func (c *cluster) node(t *testing.T, name string, env ...string) *node {
	t.Helper()
	n := &node{name: name, records: filepath.Join(t.TempDir(), "records.jsonl"), log: &daemontest.Log{}}
	var urls []string
	for _, s := range c.servers {
		link := journaltest.NewLink(t, s.client)
		n.links = append(n.links, link)
		urls = append(urls, link.URL)
	}
	n.env = append([]string{
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_NATS_URL=" + strings.Join(urls, ","), "LLM_COUNCIL_BIAS_STORE=" + n.records,
		constants(map[string]any{"Lease": scaleLease()}),
	}, env...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", n.name, n.log)
		}
	})
	return n
}

// scaleLease is the lease in the trials: the default in the long ones.
func scaleLease() time.Duration {
	if *scaleRounds >= 100 {
		return 20 * time.Second
	}
	return 5 * time.Second
}

// start starts the daemon, or one that has ended once more, and waits until it listens.
func (n *node) start(t *testing.T) {
	t.Helper()
	if n.program != "" {
		n.process = startProgram(t, n.program, n.env, "serve")
	} else {
		n.process = start(t, n.env, "serve")
	}
	n.logged = make(chan struct{})
	out := io.TeeReader(n.process.stderr, n.log)
	url := make(chan string, 1)
	go func(logged chan struct{}) {
		defer close(logged)
		n.read(out, url)
	}(n.logged)
	var ok bool
	if n.Base, ok = <-url; !ok {
		t.Fatalf("%s does not listen", n.name)
	}
}

// read reads the log of a process to its end, and tells where the process listens.
func (n *node) read(log io.Reader, url chan<- string) {
	defer close(url)
	lines := json.NewDecoder(log)
	for {
		var line struct{ Msg, URL string }
		if lines.Decode(&line) != nil {
			_, _ = io.Copy(io.Discard, log)
			return
		}
		if line.Msg == "listening" {
			url <- line.URL
			_, _ = io.Copy(io.Discard, log)
			return
		}
	}
}

// signal sends a signal to the process.
func (n *node) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := n.process.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// wait waits until the process has ended.
func (n *node) wait() {
	<-n.logged
	_ = n.process.Wait()
}

// kill ends the process at once.
func (n *node) kill(t *testing.T) {
	t.Helper()
	n.signal(t, syscall.SIGKILL)
	n.wait()
}

// begin sends a question that is to be kept, and returns the session's id.
func begin(t *testing.T, caller daemontest.Caller, question string, headers ...string) string {
	t.Helper()
	status, body := caller.Call(t, "POST", "/v1/council", fmt.Sprintf(`{"query":%q,"background":true}`, question), headers...)
	var s council.Summary
	if err := json.Unmarshal(body, &s); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, body)
	}
	return s.ID
}

// trial is a number of nodes on a cluster, with a provider that notes every call.
type trial struct {
	*cluster
	paid  *paid
	sim   *simllm.Running
	nodes []*node
}

// newTrial starts a cluster and so many nodes with the models of paid.
func newTrial(t *testing.T, nodes int, env ...string) *trial {
	t.Helper()
	p := newPaid()
	return newTrialOf(t, p, p.models(), nodes, env...)
}

// newTrialOf is newTrial with other models, of the same names.
func newTrialOf(t *testing.T, p *paid, models []simllm.Model, nodes int, env ...string) *trial {
	t.Helper()
	w := &trial{cluster: startCluster(t), paid: p, sim: daemontest.Provider(t, models...)}
	env = append([]string{
		"LLM_COUNCIL_BASE_URL=" + w.sim.URL(), "LLM_COUNCIL_MODELS=a,b,c,d", "LLM_COUNCIL_CHAIRMAN=scribe",
		"LLM_COUNCIL_API_TOKENS=team:" + trialToken,
	}, env...)
	for i := range nodes {
		n := w.node(t, fmt.Sprintf("node %d", i+1), env...)
		n.Token = trialToken
		w.nodes = append(w.nodes, n)
		n.start(t)
	}
	return w
}

// trialToken is the token of the owner of all sessions of a trial.
const trialToken = "a-token-of-the-trials-0123456789"

// same checks that the sessions are complete on every node that runs, each with a log
// without gaps, and that each node's file has their records, once.
func (w *trial) same(t *testing.T, ids []string, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		for _, id := range ids {
			if s := ended(t, n.Caller, id); s.Status != council.StatusComplete || !s.Persisted {
				t.Errorf("%s: session %s is %s, persisted %v: %v", n.name, id, s.Status, s.Persisted, s.Metadata.Warnings)
			}
			gapless(t, n.Caller, id, n.name)
		}
		n.recorded(t, ids)
	}
}

// recorded waits until the record file of a node has records of these sessions. It returns
// of how many sessions it has another number than 12.
func (n *node) recorded(t *testing.T, ids []string) (wrong int) {
	t.Helper()
	_, wrong = n.recordedWhen(t, func(records map[string]int) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return records[id] == 0 })
	})
	return wrong
}

// recordedWhen waits until the records of each session in the file of a node are enough. It
// returns how many there are of each, and of how many sessions there are not 12.
func (n *node) recordedWhen(t *testing.T, enough func(records map[string]int) bool) (records map[string]int, wrong int) {
	t.Helper()
	records = map[string]int{}
	daemontest.Until(t, func() bool {
		clear(records)
		for r, err := range store.ReadFile(t.Context(), n.records) {
			bad, ok := errors.AsType[*store.LineError](err)
			if ok && bad.Reason == store.ReasonUnterminated || errors.Is(err, fs.ErrNotExist) {
				return false // it is being written, or begun again
			}
			if err != nil {
				t.Fatal(err)
			}
			records[r.SessionID]++
		}
		return enough(records)
	})
	for id, count := range records {
		if count != 12 {
			t.Errorf("%s: session %s has %d records of 12", n.name, id, count)
			wrong++
		}
	}
	return records, wrong
}
