package daemon_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// failing is a provider of which one request in ten fails, drawn at random.
type failing struct {
	mu     sync.Mutex
	random *rand.Rand
	seen   int
	failed int
}

func (f *failing) front(sim http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.seen++
		kind := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}[f.seen%3]
		fails := f.random.IntN(10) == 0
		if fails {
			f.failed++
		}
		f.mu.Unlock()
		if fails {
			http.Error(w, `{"error":{"message":"try again"}}`, kind)
			return
		}
		sim.ServeHTTP(w, r)
	})
}

// Retries beyond the budget wait for their turn: a member is missing only after all of its attempts.
func TestFaultF50(t *testing.T) {
	const sessions, atOnce = 40, 8
	f := &failing{random: rand.New(rand.NewPCG(1, 2))}
	w := scenario{front: f.front, dwell: func(simllm.Task) time.Duration { return time.Second }}
	inBubble(t, w, func(b *bubble) {
		var mu sync.Mutex // guards what follows
		var longest time.Duration
		var missing []string
		retries := 0
		questions := make(chan int, sessions)
		for i := range sessions {
			questions <- i
		}
		close(questions)
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() {
				for range questions {
					begun := time.Now()
					code, s := b.post("")
					mu.Lock()
					longest = max(longest, time.Since(begun))
					if code != http.StatusOK {
						missing = append(missing, fmt.Sprint("all: ", code))
					}
					for _, a := range s.Stage1 {
						retries += a.Attempts - 1
						if a.Error != nil {
							missing = append(missing, fmt.Sprintf("an answer after %d attempts", a.Attempts))
						}
					}
					for _, r := range s.Stage2 {
						retries += r.Attempts - 1
						if r.Error != nil {
							missing = append(missing, fmt.Sprintf("a review after %d attempts", r.Attempts))
						}
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for _, m := range missing {
			if !strings.HasSuffix(m, "after 3 attempts") {
				b.t.Errorf("missing: %s", m)
			}
		}
		if retries <= 20 {
			b.t.Errorf("only %d retries: the budget was not used up", retries)
		}
		daemontest.Fault(b.t, "F50", "a call fails only after all of its attempts",
			"%d of %d requests failed: %d retries in %d sessions, %d seats missing; the longest session took %.0f s",
			f.failed, f.seen, retries, sessions, len(missing), longest.Seconds())
	})
}

// together asks n questions at once, and returns what came of each and how long it took.
func together(b *bubble, n int) (verdicts map[string]int, longest time.Duration) {
	verdicts = map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			begun := time.Now()
			code, s := b.post("")
			mu.Lock()
			defer mu.Unlock()
			verdicts[verdictOf(code, s)]++
			longest = max(longest, time.Since(begun))
		})
	}
	wg.Wait()
	return verdicts, longest
}

// With the default settings, calls do not wait for each other.
func TestFaultF51(t *testing.T) {
	const call = 3 * time.Second
	dwell := func(simllm.Task) time.Duration { return call }
	inBubble(t, scenario{dwell: dwell}, func(b *bubble) {
		_, alone := together(b, 1)
		verdicts, longest := together(b, 64)
		if diff := cmp.Diff(map[string]int{"complete": 64}, verdicts); diff != "" {
			b.t.Error(diff)
		}
		if longest > 3*call+500*time.Millisecond {
			b.t.Errorf("a session took %s beside others, and %s alone", longest, alone)
		}
		daemontest.Fault(b.t, "F51", "the time of three calls, as alone",
			"64 sessions at once: the longest took %.2f s, one alone %.2f s, with calls of %.0f s", longest.Seconds(), alone.Seconds(),
			call.Seconds())
	})
}

// A provider of the roster may have a time of its own between two bytes of a reply.
func TestIdleTimeoutOfAProvider(t *testing.T) {
	stall := &simllm.Fault{Kind: simllm.FaultStall, Rate: 1, Tasks: questions, Delay: 90 * time.Second}
	for seconds, want := range map[int]string{60: "stage1 d timeout", 120: "complete"} {
		path := writeRoster(t, fmt.Sprintf(boxed, fmt.Sprint("idle_timeout_seconds: ", seconds)))
		inBubble(t, scenario{fault: stall, env: map[string]string{"MODELS": "", "ROSTER": path}}, func(b *bubble) {
			if got := verdictOf(b.post("")); got != want {
				b.t.Errorf("after %d seconds: %s, want %s", seconds, got, want)
			}
		})
	}
}

// boxed is a roster of the models of a bubble at one provider, which has a key more.
const boxed = `
version: 1
models:
  a: {model: a, provider: box}
  b: {model: b, provider: box}
  c: {model: c, provider: box}
  d: {model: d, provider: box}
councils: {main: {members: [a, b, c, d]}}
providers: {box: {base_url: "https://provider/v1", %s}}
`

// Where a limit of calls is set, a session whose calls would wait for too long is refused at once, and those that were let in
// have all of their answers.
func TestSessionsThatWouldWaitAreRefused(t *testing.T) {
	dwell := func(simllm.Task) time.Duration { return 20 * time.Second }
	path := writeRoster(t, fmt.Sprintf(boxed, "max_calls: 1"))
	inBubble(t, scenario{dwell: dwell, env: map[string]string{"MODELS": "", "ROSTER": path}}, func(b *bubble) {
		if verdicts, took := together(b, 1); verdicts["complete"] != 1 || took != 9*20*time.Second {
			b.t.Fatalf("alone: %v after %s", verdicts, took)
		}
		// Eight answers take 160 s, twelve would take the 240 s that the stage has.
		verdicts, _ := together(b, 10)
		if diff := cmp.Diff(map[string]int{"complete": 2, "Service Unavailable": 8}, verdicts); diff != "" {
			b.t.Error(diff)
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { together(b, 2) })
		synctest.Wait()
		begun := time.Now()
		resp, data, err := b.Send(b.t.Context(), "POST", "/v1/council", `{"query":"Which one?"}`)
		if err != nil {
			b.t.Fatal(err)
		}
		if took := time.Since(begun); resp.StatusCode != http.StatusServiceUnavailable || took != 0 || resp.Header.Get("Retry-After") != "1" ||
			!strings.Contains(string(data), `"code":"unavailable"`) || !strings.Contains(string(data), "max_calls of the provider") {
			b.t.Errorf("%s after %s, Retry-After %q: %s", resp.Status, took, resp.Header.Get("Retry-After"), data)
		}
	})
}
