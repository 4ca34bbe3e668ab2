package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var (
	overloadTime   = flag.Duration("overload", 3*time.Second, "how long TestFaultF19 offers twice the capacity")
	overloadPlaces = flag.Int("places", 8, "how many sessions TestFaultF19 lets run at once, each of at least 300 ms")
	soakTime       = flag.Duration("soak", 5*time.Second, "how long TestSoak runs; from 1m on it also judges how steady memory is")
)

// tally counts the answers to many requests.
type tally struct {
	mu      sync.Mutex // guards what follows
	answers map[string]int
	took    map[string][]time.Duration
	lost    []error
}

func newTally() *tally {
	return &tally{answers: map[string]int{}, took: map[string][]time.Duration{}}
}

// ask sends a question and counts its outcome.
func (c *tally) ask(ctx context.Context, d *daemon, body string) {
	begun := time.Now()
	resp, answer, err := d.Send(ctx, "POST", "/v1/council", body)
	took := time.Since(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.lost = append(c.lost, err)
		return
	}
	key := strconv.Itoa(resp.StatusCode)
	var told struct {
		Code      string `json:"code"`
		Status    any    `json:"status"` // of a problem it is a number
		Persisted *bool  `json:"persisted"`
	}
	if err := json.Unmarshal(answer, &told); err != nil {
		c.lost = append(c.lost, fmt.Errorf("%s %q: %w", key, answer, err))
	}
	if told.Persisted != nil && !*told.Persisted {
		key += " not persisted"
	}
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		key += " without Retry-After"
	}
	status, _ := told.Status.(string)
	c.answers[key+" "+status+told.Code]++
	c.took[key] = append(c.took[key], took)
}

// Clients offer twice the capacity, whatever the answers. Sessions run as before, and
// further requests are refused at once.
func TestFaultF19(t *testing.T) {
	testkit.Slow(t)
	d := startDaemon(t, steady(100*time.Millisecond), "LLM_COUNCIL_LOG_LEVEL=info",
		"LLM_COUNCIL_MAX_SESSIONS="+strconv.Itoa(*overloadPlaces))

	// The capacity is what as many clients as places reach, each without a pause.
	best := newTally()
	var clients sync.WaitGroup
	begun := time.Now()
	for range *overloadPlaces {
		clients.Go(func() {
			for time.Since(begun) < *overloadTime {
				best.ask(t.Context(), d, question)
			}
		})
	}
	clients.Wait()
	capacity := float64(best.answers["200 complete"]) / time.Since(begun).Seconds()

	// Clients now offer twice that rate in an open loop.
	over := newTally()
	offered := 0
	begun = time.Now()
	for ; time.Since(begun) < *overloadTime; offered++ {
		clients.Go(func() { over.ask(t.Context(), d, question) })
		<-time.After(time.Until(begun.Add(time.Duration(float64(offered+1) / (2 * capacity) * float64(time.Second)))))
	}
	offering := time.Since(begun)
	clients.Wait()
	accepted := float64(over.answers["200 complete"]) / time.Since(begun).Seconds()
	refusals := over.took["503"]
	median := quantile(refusals, 0.5)
	prompt, _ := slices.BinarySearch(refusals, 5*time.Millisecond) // quantile sorted them
	d.finish(t)

	if len(best.lost) > 0 || len(over.lost) > 0 {
		t.Errorf("without an answer: %v %v", best.lost, over.lost)
	}
	if n := over.answers["200 complete"] + over.answers["503 unavailable"]; n != offered || len(refusals) == 0 {
		t.Errorf("%d offered: %v", offered, over.answers)
	}
	if n := best.answers["200 complete"] + over.answers["200 complete"]; n != len(d.sessions) {
		t.Errorf("%d sessions answered, %d have records", n, len(d.sessions))
	}
	if ratio := accepted / capacity; ratio < 0.5 { // five times the loss that is promised
		t.Errorf("%.1f sessions/s under overload, %.1f at best", accepted, capacity)
	}
	// Clients, provider and daemon share the machine, and other work slows down most
	// refusals. A refusal that waited for a place would slow down all of them.
	if quickest := quantile(refusals, 0.1); quickest > 25*time.Millisecond {
		t.Errorf("nine tenths of the refusals took more than %s", quickest)
	}
	daemontest.Fault(t, "F19", "accepted >= 0.9 of the best rate, the rest refused within 5 ms",
		"best %.1f sessions/s; offered %.1f/s for %.0f s: accepted %.2f of the best rate, %d refused, half within %.1f ms, %.1f %% within "+
			"5 ms",
		capacity, float64(offered)/offering.Seconds(), offering.Seconds(), accepted/capacity, len(refusals), 1000*median.Seconds(),
		100*float64(prompt)/float64(max(len(refusals), 1)))
}

// troubled are four models. One in ten of their replies fails, in every way that the
// simulated provider has.
func troubled() []simllm.Model {
	var faults []simllm.Fault
	for _, kind := range slices.Concat(simllm.ResponseKinds(), simllm.BallotKinds()) {
		faults = append(faults, simllm.Fault{Kind: kind})
	}
	for i := range faults {
		faults[i].Rate = 0.1 / float64(len(faults))
	}
	var models []simllm.Model
	for _, name := range []string{"amber", "birch", "cedar", "dune"} {
		models = append(models, simllm.Model{
			Name: name, Noise: 0.5, Latency: simllm.Latency{Median: 50 * time.Millisecond, Sigma: 0.3},
			Faults: faults,
		})
	}
	return models
}

// TestSoak runs 200 clients over a provider with faults of all kinds. Every request must be
// answered, and the daemon must not grow.
func TestSoak(t *testing.T) {
	testkit.Slow(t)
	const clients = 200
	d := startDaemon(t, troubled(), "LLM_COUNCIL_LOG_LEVEL=info", "LLM_COUNCIL_MAX_SESSIONS="+strconv.Itoa(clients),
		constants(map[string]any{"MaxUpstreamBytes": 1 << 20}), "LLM_COUNCIL_ATTEMPT_TIMEOUT=2s", "LLM_COUNCIL_TIMEOUT=20s")
	answers := newTally()
	begun := time.Now()
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(client)))
			for i := 0; ; i++ {
				// Each client waits for 4 to 12 s before it asks, the first time for 0 to 8 s.
				think := time.Duration((4 + 8*random.Float64()) * float64(time.Second))
				if i == 0 {
					think -= 4 * time.Second
				}
				if time.Since(begun)+think > *soakTime {
					return
				}
				<-time.After(think)
				answers.ask(t.Context(), d, fmt.Sprintf(`{"query":"%s %d %d"}`, marker, client, i))
			}
		})
	}
	var samples []usage
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(*soakTime / 30):
			samples = append(samples, d.usage(t))
		}
	}
	took := time.Since(begun)
	after, settled := d.waitUntilReleased(t)
	d.terminate(t)
	d.ended(t, 0)

	if len(answers.lost) > 0 {
		t.Errorf("%d without an answer, the first: %v", len(answers.lost), answers.lost[0])
	}
	total, sessions := 0, 0
	for answer, n := range answers.answers {
		total += n
		switch answer {
		case "200 complete", "200 degraded":
			sessions += n
		case "502 no_quorum", "504 deadline":
		default:
			t.Errorf("%d times %s", n, answer)
		}
	}
	if sessions == 0 || len(d.sessions) < sessions {
		t.Errorf("%d sessions answered, %d have records", sessions, len(d.sessions))
	}
	var early, late usage // the most of the second and of the last third
	for i, s := range samples {
		third := &early
		if i < len(samples)/3 {
			continue
		} else if i >= 2*len(samples)/3 {
			third = &late
		}
		*third = third.most(s)
	}
	if *soakTime >= time.Minute &&
		(late.memory > 1.25*early.memory || late.goroutines > 1.25*early.goroutines || late.descriptors > 1.25*early.descriptors) {
		t.Errorf("it grows: most in the second third %+v, in the last %+v", early, late)
	}
	all := answers.took["200"]
	t.Logf("%d clients for %.0f s: %d requests, %d sessions/s, answers %v, %d lost", clients, took.Seconds(), total,
		int(float64(total)/took.Seconds()), answers.answers, len(answers.lost))
	t.Logf("sessions took p50 %.2f s, p99 %.2f s; CPU %.2f ms per request", quantile(all, 0.5).Seconds(), quantile(all, 0.99).Seconds(),
		1000*after.cpu/float64(max(total, 1)))
	t.Logf("before %+v; most in the second third %+v, in the last %+v; after %+v, settled in %s", d.before, early, late, after, settled)
}
