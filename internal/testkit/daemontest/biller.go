package daemontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
)

// Biller is a provider of [Members] that bills each accepted request at its maximum. It bills each byte of the body as
// one token, and the most output that the request allows. It adds up its own bills, so that a test can compare them
// with the ledger.
type Biller struct {
	URL    string
	Prices string        // the value for LLM_COUNCIL_PRICES
	Delay  time.Duration // how long each reply takes
	// Thinks is the number of reasoning tokens in each reply, which completion_tokens does not include. They are billed
	// as output.
	Thinks int64

	mu     sync.Mutex // guards the other fields
	tariff spend.Tariff
	rng    *rand.Rand // decides which requests fail. If it is nil, none fails.
	billed spend.USD
	by     map[string]spend.USD // the sum of the bills of each payer; the key is "" if the question names no payer
	asked  int                  // the number of requests
}

// payer matches the name of a payer in a question. The Biller adds up the bills of each payer.
var payer = regexp.MustCompile(`payer-[a-z0-9-]+`)

// Bill starts a Biller, which ends with the test. If seed is not 0, about one request in ten is refused with 429, one
// in ten fails with 502, and one in ten is cut off. Only refused requests are not billed. The models replace those of
// [Members], and have their names.
func Bill(tb testing.TB, seed uint64, models ...simllm.Model) *Biller {
	tb.Helper()
	if models == nil {
		models = Members()
	}
	sim, err := simllm.New(simllm.Options{Models: models})
	if err != nil {
		tb.Fatal(err)
	}
	b := &Biller{by: map[string]spend.USD{}}
	var prices []string
	for _, m := range Members() {
		prices = append(prices, m.Name+"=1.25/10")
	}
	b.Prices = strings.Join(prices, ",")
	if b.tariff, err = spend.ParseTariff("1.25/10"); err != nil {
		tb.Fatal(err)
	}
	if seed > 0 {
		b.rng = rand.New(rand.NewPCG(seed, seed))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			sim.ServeHTTP(w, r)
			return
		}
		b.answer(tb, sim, w, r)
	}))
	tb.Cleanup(server.Close)
	b.URL = server.URL
	return b
}

// answer bills a request and answers it as the simulated provider does, but with the usage that it bills.
func (b *Biller) answer(tb testing.TB, sim http.Handler, w http.ResponseWriter, r *http.Request) {
	tb.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the daemon is gone
	}
	var body struct {
		MaxTokens int64 `json:"max_tokens"`
	}
	if err := json.Unmarshal(raw, &body); err != nil || body.MaxTokens == 0 {
		tb.Errorf("a request without a limit of its output: %v", err)
	}
	const refused, fails, cutOff = 1, 2, 3
	cost := b.tariff.Bound(int64(len(raw)), body.MaxTokens+b.Thinks)
	outcome := b.bill(string(payer.Find(raw)), cost, refused)
	time.Sleep(b.Delay)
	switch outcome {
	case refused:
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case fails:
		w.WriteHeader(http.StatusBadGateway)
		return
	case cutOff:
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"choices":[`))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	reply := httptest.NewRecorder()
	sim.ServeHTTP(reply, r)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d`, len(raw), body.MaxTokens)
	total := int64(len(raw)) + body.MaxTokens + b.Thinks
	switch {
	case b.Thinks > 0 && len(raw)%2 == 0: // Gemini reports reasoning tokens only in the total.
		usage += fmt.Sprintf(`,"total_tokens":%d`, total)
	case b.Thinks > 0: // xAI also reports them in a field of their own.
		usage += fmt.Sprintf(`,"total_tokens":%d,"reasoning_tokens":%d`, total, b.Thinks)
	case outcome%2 == 0:
		usage += fmt.Sprintf(`,"cost":%v`, cost)
	}
	text := reply.Body.Bytes()
	at := bytes.LastIndex(text, []byte(`"usage":{`))
	switch {
	case r.Context().Err() != nil: // the daemon is gone
		return
	case reply.Code != http.StatusOK || at < 0:
		tb.Errorf("the simulated provider answered %d %.100s", reply.Code, text)
		return
	}
	end := at + bytes.IndexByte(text[at:], '}')
	maps.Copy(w.Header(), reply.Header())
	w.Header().Del("Content-Length")
	_, _ = w.Write(bytes.Join([][]byte{text[:at], text[end:]}, []byte(usage)))
}

// bill counts a request and returns its outcome, a number from 0 to 9. It adds the cost to the bills unless the outcome
// equals the argument refused.
func (b *Biller) bill(payer string, cost spend.USD, refused int) (outcome int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rng != nil {
		outcome = b.rng.IntN(10)
	}
	b.asked++
	if outcome != refused {
		b.billed = b.billed.Plus(cost)
		b.by[payer] = b.by[payer].Plus(cost)
	}
	return outcome
}

// ByPayer returns the sum of the bills of each payer.
func (b *Biller) ByPayer() map[string]spend.USD {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.by)
}

// Billed returns the sum of all bills, and the number of requests.
func (b *Biller) Billed() (sum spend.USD, requests int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.billed, b.asked
}

// Ledger reads the whole ledger at path, as the command spend does.
func Ledger(tb testing.TB, path string) spend.Costs {
	tb.Helper()
	r, err := daemon.Spend(tb.Context(), path, spend.Query{})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
