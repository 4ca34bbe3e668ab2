package daemon_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/daemon/daemontest"
	"github.com/councild/councild/internal/simllm"
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
