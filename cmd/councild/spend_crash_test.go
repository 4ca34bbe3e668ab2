package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var spendRounds = flag.Int("spendcrash", 5, "how often TestFaultF42CostsAfterKillNine kills or stops the daemon")

// The daemon is killed, and at times stopped, at random times while calls are in flight, some of them retries of calls that
// failed, of sessions that end with it and of sessions that the next one goes on with. The ledger never
// has less than the provider billed, and what it has as settled is never more. Over all daemons together,
// nothing passes the limit of the day, and no session its own.
func TestFaultF42CostsAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	b := daemontest.Bill(t, seed)
	b.Delay = 15 * time.Millisecond
	dir := t.TempDir()
	ledger := filepath.Join(dir, "spend.jsonl")
	day := (6 * spend.Dollar).Times(int64(*spendRounds)) // it may be reached in the last rounds
	var mu sync.Mutex                                    // guards what follows
	limits, refused := map[string]spend.USD{}, 0
	rng := rand.New(rand.NewPCG(seed, 0))
	begin := func() (*process, string) {
		p := start(t, []string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + b.URL, "LLM_COUNCIL_MODELS=a,b,c", "LLM_COUNCIL_PRICES=" + b.Prices,
			"LLM_COUNCIL_BIAS_STORE=" + filepath.Join(dir, "records.jsonl"),
			"LLM_COUNCIL_COST_LIMITS=hard", "LLM_COUNCIL_MAX_COST_USD=0.3", "LLM_COUNCIL_MAX_OUTPUT_TOKENS=400",
			"LLM_COUNCIL_MAX_COST_USD_PER_DAY=" + day.String(), "LLM_COUNCIL_DRAIN_TIMEOUT=0s",
			"LLM_COUNCIL_TIMEOUT=20s", // so many calls fail that retries wait for their budget until their stage ends
		}, "serve")
		url, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
		go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
		return p, url
	}
	compare := func(when string) spend.Costs {
		t.Helper()
		r := daemontest.Ledger(t, ledger)
		if sum, _ := b.Billed(); r.Total < sum || r.Total-r.Uncertain > sum || r.Unknown > 0 || r.Total > day {
			t.Fatalf("%s: the ledger has %v, %v of it uncertain, and the provider billed %v of %v", when, r.Total, r.Uncertain, sum, day)
		}
		if r.Ledger.Damaged {
			t.Fatalf("%s: the ledger is called damaged: %s", when, r.Ledger.Problem())
		}
		return r
	}
	for round := range *spendRounds {
		p, url := begin()
		var over atomic.Bool
		var callers sync.WaitGroup
		for n := range 64 {
			callers.Go(func() {
				caller := daemontest.Caller{Base: url}
				random := rand.New(rand.NewPCG(seed, uint64(1000*round+n)))
				for asked := 0; !over.Load(); asked++ {
					payer, limit := fmt.Sprintf("payer-%d-%d-%d", round, n, asked), 5e10+spend.USD(random.Int64N(25e10))
					mu.Lock()
					limits[payer] = limit
					mu.Unlock()
					body := fmt.Sprintf(`{"query":"%s %s","background":%v,"max_cost_usd":%v}`,
						payer, strings.Repeat("why ", random.IntN(200)), n%2 == 0, limit)
					resp, _, err := caller.Send(t.Context(), http.MethodPost, "/v1/council", body)
					if err == nil && resp.StatusCode == http.StatusTooManyRequests {
						mu.Lock()
						refused++
						mu.Unlock()
					}
					if err == nil && (n%2 == 0 || resp.StatusCode != http.StatusOK) {
						time.Sleep(50 * time.Millisecond)
					}
				}
			})
		}
		time.Sleep(100*time.Millisecond + time.Duration(rng.Int64N(int64(400*time.Millisecond))))
		over.Store(true)
		how := os.Kill
		if round%3 == 2 { // without time to drain, sessions that are kept go on in the next daemon
			how = syscall.SIGTERM
		}
		if err := p.Process.Signal(how); err != nil {
			t.Error(err)
		}
		_ = p.Wait() // that it was killed
		callers.Wait()
		compare(fmt.Sprintf("after round %d", round+1))
	}
	p, url := begin()
	daemontest.Until(t, func() bool {
		_, data := daemontest.Caller{Base: url}.Call(t, http.MethodGet, "/v1/council?limit=1000", "")
		var list struct {
			Sessions []council.Summary `json:"sessions"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Sessions {
			if s.Status == council.StatusRunning {
				return false
			}
		}
		return len(list.Sessions) > 0
	})
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = p.Wait()
	r := compare("in the end")
	sum, requests := b.Billed()
	for payer, billed := range b.ByPayer() {
		if billed > limits[payer] {
			t.Errorf("%s was billed %v, and its limit is %v", payer, billed, limits[payer])
		}
	}
	daemontest.Fault(t, "F42", "the ledger never has less than the provider billed, nor more as settled, and no limit is passed, of day or session",
		"%d times kill -9 or SIGTERM: %v US dollars billed in %d requests of %d sessions, the ledger has %v of %v, %v of it uncertain; "+
			"%d sessions were refused, none passed its own limit",
		*spendRounds, sum, requests, len(b.ByPayer()), r.Total, day, r.Uncertain, refused)
}
