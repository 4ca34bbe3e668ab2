package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// nodes are three councild in processes of their own, on one NATS cluster and behind one
// balancer.
type nodes struct {
	*testing.T
	balancer *daemontest.Balancer
	all      [3]*councild
}

// startNodes starts three nodes with these settings and models.
func startNodes(t *testing.T, env map[string]string, models []simllm.Model) *nodes {
	t.Helper()
	vars := append(settings(t, env, models), "LLM_COUNCIL_NATS_URL="+journaltest.Start(t).URL)
	n := &nodes{T: t, balancer: daemontest.NewBalancer(t)}
	for i := range n.all {
		n.all[i] = newCouncild(t, append(slices.Clone(vars), "LLM_COUNCIL_BIAS_STORE="+filepath.Join(t.TempDir(), "records.jsonl")))
		if err := n.start(i); err != nil {
			t.Fatal(err)
		}
	}
	n.balancer.Wait(t, len(n.all))
	return n
}

// start starts a node and tells the balancer.
func (n *nodes) start(i int) error {
	if err := n.all[i].start(); err != nil {
		return fmt.Errorf("node %d: %w", i+1, err)
	}
	var urls []string
	for _, node := range n.all {
		if node != nil {
			urls = append(urls, node.url)
		}
	}
	n.balancer.Set(urls...)
	return nil
}

// restart ends a node with SIGTERM, and starts it again.
func (n *nodes) restart(i int) error {
	if code := n.all[i].end(syscall.SIGTERM); code != 0 {
		return fmt.Errorf("node %d exited with %d", i+1, code)
	}
	return n.start(i)
}

// TestClientsBehindABalancer runs the checks of the npm clients against three nodes, which
// are restarted one after the other until the checks are done.
func TestClientsBehindABalancer(t *testing.T) {
	t.Parallel()
	n := startNodes(t, map[string]string{"MODELS": "sim:amber,sim:birch,sim:cedar,sim:dune", "DRAIN_TIMEOUT": "6s"}, members())
	stop := make(chan struct{})
	restarts := make(chan int, 1)
	first := make(chan struct{})
	go func() {
		done := 0
		defer func() { restarts <- done }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := n.restart(done % len(n.all)); err != nil {
				t.Error(err)
				return
			}
			if done++; done == 1 {
				close(first)
			}
			n.balancer.Wait(t, len(n.all))
		}
	}()
	check := func() {
		cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "clients.test.js")
		cmd.Env = append(os.Environ(), "COUNCILD_URL="+n.balancer.URL)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	check()
	select {
	case <-first:
	default: // the checks took less time than a restart
		check()
	}
	close(stop)
	if done := <-restarts; done == 0 {
		t.Error("no node was restarted meanwhile")
	} else {
		t.Logf("%d restarts", done)
	}
}

// TestAskBehindABalancer holds that councild ask --server prints the whole answer when
// every node is restarted meanwhile, in the middle of the reviews.
func TestAskBehindABalancer(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Review)
	var mu sync.Mutex
	calls := map[string]int{}
	reviewing := make(chan struct{}, 100) // more than the reviews of a test
	for i := range models {
		inner := models[i].Reply
		models[i].Reply = func(task simllm.Task) (string, bool) {
			mu.Lock()
			calls[string(task.Kind)+" "+task.Model]++
			mu.Unlock()
			if task.Kind == simllm.Review {
				reviewing <- struct{}{}
			}
			return inner(task)
		}
	}
	writing(&models[0], long())
	n := startNodes(t, map[string]string{"DRAIN_TIMEOUT": "1s"}, models)
	ask, err := command(t.Context(), n.all[0].env, "ask", "--server", n.balancer.URL, "Who waits?")
	if err != nil {
		t.Fatal(err)
	}
	var printed, complaints strings.Builder
	ask.Stdout, ask.Stderr = &printed, &complaints
	if err := ask.Start(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		<-reviewing
	}
	release(simllm.Review, "amber", "birch")
	ballots := func() int {
		list := get[struct{ Sessions []council.Summary }](t, n.balancer.URL+"/v1/council")
		if len(list.Sessions) != 1 {
			t.Fatalf("the nodes have %v", list.Sessions)
		}
		return len(get[council.Session](t, n.balancer.URL+"/v1/council/"+list.Sessions[0].ID).Stage2)
	}
	daemontest.Until(t, func() bool { return ballots() == 2 })
	for i := range n.all {
		if err := n.restart(i); err != nil {
			t.Fatal(err)
		}
		n.balancer.Wait(t, len(n.all))
	}
	release(simllm.Review, "cedar", "dune")
	if err := ask.Wait(); err != nil {
		t.Errorf("%v: %s", err, &complaints)
	}
	if !strings.HasPrefix(printed.String(), long()+"\n\nThe reviewers ") {
		t.Errorf("the answer is not what was written: %s", &printed)
	}
	if !strings.Contains(printed.String(), ": complete\n") {
		t.Errorf("the session is not said to be complete: %s", &printed)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, landed := range []string{
		"question amber", "question birch", "question cedar", "question dune", "review amber", "review birch", "synthesis amber",
	} {
		if calls[landed] != 1 {
			t.Errorf("%s was asked for %d times", landed, calls[landed])
		}
	}
	for _, inFlight := range []string{"review cedar", "review dune"} {
		if calls[inFlight] < 2 {
			t.Errorf("%s was asked for %d times: the session was not handed over", inFlight, calls[inFlight])
		}
	}
}
