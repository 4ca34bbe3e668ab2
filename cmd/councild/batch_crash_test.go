package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var (
	batchKills  = flag.Int("batchcrash", 10, "how often TestFaultF44BatchAfterKillNine kills a batch")
	batchCapped = flag.Int("batchcap", 4, "how many batches TestFaultF45BatchUnderALimit runs")
)

// questionsFile writes so many questions to a file, each of which names a payer.
func questionsFile(t *testing.T, count int, words func(i int) int) string {
	t.Helper()
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, `{"id":"q%d","query":"payer-%d %s?","reference":"amber","grader":{"type":"normalised"}}`+"\n",
			i, i, strings.Repeat("why ", words(i)))
	}
	name := filepath.Join(t.TempDir(), "questions.jsonl")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// finished is a process of which all was read.
type finished struct {
	err string // what it said on the standard error
	end error
}

// finish reads what a process says until it has ended.
func finish(p *process) finished {
	said, _ := io.ReadAll(p.stderr) // it may be killed
	_, _ = io.Copy(io.Discard, p.stdout)
	return finished{string(said), p.Wait()}
}

// onlooker stands before a provider. It knows each request that came by the model and the text that answered it.
type onlooker struct {
	url string

	mu       sync.Mutex // guards what follows
	requests map[[sha256.Size]byte]int
	bodies   map[string]map[[sha256.Size]byte]bool // by model and text of the reply
}

func observe(t *testing.T, provider string) *onlooker {
	t.Helper()
	w := &onlooker{requests: map[[sha256.Size]byte]int{}, bodies: map[string]map[[sha256.Size]byte]bool{}}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the batch is gone
		}
		sum := sha256.Sum256(body)
		if r.Method == http.MethodPost {
			w.mu.Lock()
			w.requests[sum]++
			w.mu.Unlock()
		}
		onwards, err := http.NewRequestWithContext(r.Context(), r.Method, provider+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		onwards.Header = r.Header.Clone()
		reply, err := http.DefaultClient.Do(onwards)
		if err != nil {
			return
		}
		defer reply.Body.Close()
		data, err := io.ReadAll(reply.Body)
		if err != nil {
			return
		}
		w.note(sum, body, data)
		maps.Copy(out.Header(), reply.Header)
		out.WriteHeader(reply.StatusCode)
		_, _ = out.Write(data)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// forget begins anew: the next batch asks the members the same questions.
func (w *onlooker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.requests)
	clear(w.bodies)
}

func (w *onlooker) note(sum [sha256.Size]byte, body, data []byte) {
	var asked struct{ Model string }
	var said struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if json.Unmarshal(body, &asked) != nil || json.Unmarshal(data, &said) != nil || len(said.Choices) != 1 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := asked.Model + "\x00" + said.Choices[0].Message.Content
	if w.bodies[key] == nil {
		w.bodies[key] = map[[sha256.Size]byte]bool{}
	}
	w.bodies[key][sum] = true
}

// came returns how often a request came.
func (w *onlooker) came(sum [sha256.Size]byte) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[sum]
}

// counts returns how often the request of each kept call came, by its body. Calls whose replies other requests had
// too are left out.
func (w *onlooker) counts(t *testing.T, calls string) (counts map[[sha256.Size]byte]int, left int) {
	t.Helper()
	data, err := os.ReadFile(calls)
	if err != nil {
		return nil, 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	counts = map[[sha256.Size]byte]int{}
	for line := range bytes.Lines(data) {
		var kept council.Landed
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &kept) != nil || kept.Completion.Text == "" {
			continue
		}
		bodies := w.bodies[kept.Model+"\x00"+kept.Completion.Text]
		if len(bodies) != 1 {
			left++
			continue
		}
		for sum := range bodies {
			counts[sum] = w.requests[sum]
		}
	}
	return counts, left
}

// A batch of 50 questions, or of fewer in a short test, is killed at random moments until it has ended, again and
// again. A call whose reply was kept never reaches the provider again, and the file of results is that of a batch that
// nobody disturbed.
func TestFaultF44BatchAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	b := daemontest.Bill(t, 0)
	b.Delay = 10 * time.Millisecond
	seen := observe(t, b.URL)
	count := min(50, 2+*batchKills)
	questions := questionsFile(t, count, func(i int) int { return i % 7 })
	command := func(seed int, out string) *process {
		return start(t, []string{
			"LLM_COUNCIL_BASE_URL=" + seen.url, "LLM_COUNCIL_MODELS=a,b,c", "LLM_COUNCIL_PRICES=" + b.Prices, "LLM_COUNCIL_MAX_OUTPUT_TOKENS=400",
		}, "batch", "--file", questions, "--out", out, "--max-cost-usd", "1000", "--seed", strconv.Itoa(seed), "--yes")
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills, batches, checked, repeated, left := 0, 0, 0, 0, 0
	for kills < *batchKills {
		batches++
		seen.forget()
		dir := t.TempDir()
		out := filepath.Join(dir, "results.jsonl")
		for start := 1; ; start++ {
			before, _ := seen.counts(t, out+".calls")
			p := command(batches, out)
			for said, err := "", error(nil); err == nil && !strings.Contains(said, "Plan "); { // it begins to ask, or had ended
				said, err = p.stderr.ReadString('\n')
			}
			ended := make(chan finished, 1)
			go func() { ended <- finish(p) }()
			over := false
			end := func(f finished) {
				if over = true; f.end != nil {
					t.Fatalf("batch %d: %v: %s", batches, f.end, f.err)
				}
			}
			select {
			case f := <-ended:
				end(f)
			case <-time.After(time.Duration(rng.Int64N(int64(200*time.Millisecond + time.Duration(start)*20*time.Millisecond)))):
				switch err := p.Process.Kill(); {
				case errors.Is(err, os.ErrProcessDone):
					end(<-ended)
				case err != nil:
					t.Fatal(err)
				default:
					kills++
					<-ended
				}
			}
			after, more := seen.counts(t, out+".calls")
			for sum, n := range before {
				checked++
				if now := seen.came(sum); now != n {
					t.Errorf("batch %d: a call that was kept came %d times before a start, and %d times after it", batches, n, now)
				}
			}
			if over {
				left = more
				for _, n := range after {
					repeated += n - 1
				}
				break
			}
		}
		whole := filepath.Join(t.TempDir(), "results.jsonl")
		if f := finish(command(batches, whole)); f.end != nil {
			t.Fatal(f.end, f.err)
		}
		want, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(out)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("batch %d: the results differ from those of a batch that nobody disturbed: %v", batches, err)
		}
		if t.Failed() {
			break
		}
	}
	daemontest.Fault(t, "F44", "no call that was kept comes again, and the results are those of an undisturbed batch, byte for byte",
		"%d times kill -9 in %d batches of %d questions: 0 of %d kept calls came again, %d calls that were under way did; %d calls "+
			"could not be told apart; results byte for byte the same",
		kills, batches, count, checked, repeated, left)
}

// money matches the sums of the line that says why a batch stopped.
var money = regexp.MustCompile(`only \$([0-9.]+) of --max-cost-usd is left, and the next question can cost \$([0-9.]+)`)

// Batches of questions of random lengths run under random limits, at a provider that bills the most that a request can
// cost. Every other one is killed at random moments and goes on. None spends more than its limit, and none that was not
// killed stops before a question that would have fitted by its bound.
func TestFaultF45BatchUnderALimit(t *testing.T) {
	testkit.Slow(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	stopped, ended, kills := 0, 0, 0
	for i := range *batchCapped {
		b := daemontest.Bill(t, seed*uint64(i%3)) // in some, requests are refused, fail and are cut off
		b.Delay = time.Duration(i%2) * 10 * time.Millisecond
		count := 1 + rng.IntN(12)
		questions := questionsFile(t, count, func(int) int { return rng.IntN(2000) })
		limit := 0.05 + rng.Float64()*0.4*float64(count)
		out, concurrency := filepath.Join(t.TempDir(), "results.jsonl"), strconv.Itoa(1+rng.IntN(6))
		command := func() *process {
			return start(t, []string{
				"LLM_COUNCIL_BASE_URL=" + b.URL, "LLM_COUNCIL_MODELS=a,b,c", "LLM_COUNCIL_PRICES=" + b.Prices, "LLM_COUNCIL_MAX_OUTPUT_TOKENS=400",
				"LLM_COUNCIL_TIMEOUT=5s", // see TestFaultF42CostsAfterKillNine
			}, "batch", "--file", questions, "--out", out, "--max-cost-usd", strconv.FormatFloat(limit, 'f', -1, 64),
				"--concurrency", concurrency, "--yes")
		}
		killed := false
		for range 4 * (i % 2) {
			p := command()
			for said, err := "", error(nil); err == nil && !strings.Contains(said, "Plan "); { // it begins to ask
				said, err = p.stderr.ReadString('\n')
			}
			time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
			if p.Process.Kill() == nil {
				killed = true
				kills++
			}
			finish(p)
		}
		p := command()
		said := finish(p).err
		billed, _ := b.Billed()
		if billed.Float64() > limit {
			t.Errorf("batch %d of %d questions was billed %v, and its limit is %v", i, count, billed, limit)
		}
		switch code := p.ProcessState.ExitCode(); code {
		case 0, 1: // failed questions, too
			ended++
		case 4:
			stopped++
			// It was asked with all that was left, and requests failed; or what was under way counts, whether or not it was billed.
			if killed || strings.Contains(said, "can cost more than that") {
				continue
			}
			sums := money.FindStringSubmatch(said)
			if len(sums) != 3 {
				t.Errorf("batch %d: %s", i, said)
				continue
			}
			left, _ := strconv.ParseFloat(sums[1], 64)
			next, _ := strconv.ParseFloat(sums[2], 64)
			const cent = 0.01 // The message rounds both sums to cents, or more finely.
			if next <= left-cent || left < limit-billed.Float64()-cent {
				t.Errorf("batch %d stopped with %v of %v left, billed %v, before a question of %v at most", i, left, limit, billed, next)
			}
		default:
			t.Errorf("batch %d: exit code %d: %s", i, code, said)
		}
	}
	daemontest.Fault(t, "F45",
		"no batch costs more than its limit, and none that was not killed stops before a question that fits by its bound",
		"%d batches, %d times kill -9: %d ended, %d stopped at their limit", *batchCapped, kills, ended, stopped)
}
