package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/daemon/daemontest"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
)

// biller is a provider that bills each request with its bound: each byte of its body as a token, and
// all the output that it may have. It keeps its own count.
type biller struct {
	url    string
	tariff spend.Tariff

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand // decides which requests fail; nil: none
	billed spend.USD
	asked  int
}

// models are those of a biller.
const billerModels = "a,b,c"

func bill(t *testing.T, seed uint64) *biller {
	t.Helper()
	sim, err := simllm.New(simllm.Options{Models: daemontest.Members()})
	if err != nil {
		t.Fatal(err)
	}
	tariff, err := spend.ParseTariff("1.25/10")
	if err != nil {
		t.Fatal(err)
	}
	b := &biller{tariff: tariff}
	if seed > 0 {
		b.rng = rand.New(rand.NewPCG(seed, seed))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			sim.ServeHTTP(w, r)
			return
		}
		b.answer(t, sim, w, r)
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *biller) answer(t *testing.T, sim http.Handler, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the daemon is gone
	}
	var body struct {
		MaxTokens int64 `json:"max_tokens"`
	}
	if err := json.Unmarshal(raw, &body); err != nil || body.MaxTokens == 0 {
		t.Errorf("a request without a limit of its output: %v", err)
	}
	cost := b.tariff.Bound(int64(len(raw)), body.MaxTokens)
	b.mu.Lock()
	outcome := 0
	if b.rng != nil {
		outcome = b.rng.IntN(10)
	}
	b.asked++
	if outcome != 1 {
		b.billed = b.billed.Plus(cost)
	}
	b.mu.Unlock()
	switch outcome {
	case 1: // refused, which costs nothing
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case 2:
		w.WriteHeader(http.StatusBadGateway)
		return
	case 3: // cut off
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"choices":[`))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	reply := httptest.NewRecorder()
	sim.ServeHTTP(reply, r)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, len(raw), body.MaxTokens)
	if outcome%2 == 0 {
		usage = strings.TrimSuffix(usage, "}") + fmt.Sprintf(`,"cost":%v}`, cost)
	}
	text := reply.Body.Bytes()
	at := bytes.LastIndex(text, []byte(`"usage":`))
	if reply.Code != http.StatusOK || at < 0 {
		t.Errorf("the simulated provider answered %d %.100s", reply.Code, text)
		return
	}
	end := at + bytes.IndexByte(text[at:], '}') + 1
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(bytes.Join([][]byte{text[:at], text[end:]}, []byte(usage)))
}

func (b *biller) count() spend.USD {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.billed
}

// replayed returns what counts for today after a start, from the ledger of a daemon that has ended.
func replayed(t *testing.T, path string) spend.USD {
	t.Helper()
	a := spend.NewAccounts(spend.Options{Day: new(spend.Dollar)})
	if err := a.Replay(store.PlainLines(t.Context(), path)); err != nil {
		t.Fatal(err)
	}
	return a.Limits("")[0].Used
}

// hardSettings are those of a daemon that a biller bills.
func hardSettings(b *biller, more map[string]string) map[string]string {
	env := map[string]string{
		"BASE_URL": b.url, "MODELS": billerModels, "PRICES": "a=1.25/10,b=1.25/10,c=1.25/10", "COST_LIMITS": "hard",
		"MAX_COST_USD": "0.2", "MAX_OUTPUT_TOKENS": "400", "MAX_SESSIONS": "64",
	}
	maps.Copy(env, more)
	return env
}

// With 64 clients, and a provider that bills exactly the bound and fails at random, nothing passes
// the limits of session and day, and the ledger holds the provider's own count to the last digit.
func TestHardLimitsUnderLoad(t *testing.T) {
	b := bill(t, 7)
	const limit = "1.5"
	d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD_PER_DAY": limit}))
	day, err := spend.ParseUSD(limit)
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	var mu sync.Mutex // guards codes
	codes := map[int]int{}
	for range 64 {
		clients.Go(func() {
			for range 3 {
				resp, data, err := d.Send(t.Context(), "POST", "/v1/council", anyQuestion)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				codes[resp.StatusCode]++
				mu.Unlock()
				if resp.StatusCode == http.StatusTooManyRequests && (!strings.Contains(string(data), "over_budget") || resp.Header.Get("Retry-After") == "") {
					t.Errorf("%s", data)
				}
				if b.count() > day {
					t.Errorf("%v are billed of %v", b.count(), day)
				}
			}
		})
	}
	clients.Wait()
	d.End(t)
	if got := replayed(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl")); got != b.count() || got > day {
		t.Errorf("the ledger has %v, the provider billed %v of %v", got, b.count(), day)
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusTooManyRequests] == 0 {
		t.Errorf("answers by status: %v", codes)
	}
	t.Logf("%v of %v billed in %d requests, answers by status: %v", b.count(), day, b.asked, codes)
}

// A session's hard limit is shared by its stages: the chairman still writes when the reviews have
// taken all that is theirs.
func TestHardLimitOfASession(t *testing.T) {
	b := bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, nil))
	s := d.Ask(t, `{"query":"x","max_cost_usd":0.04}`)
	var usd spend.USD = 4e10
	if b.count() > usd || s.Status != council.StatusDegraded || s.Stage3 == nil {
		t.Errorf("%v billed, %s", b.count(), s.Status)
	}
	missing := daemontest.Missing(s)
	if len(missing) == 0 || !strings.Contains(missing[0], "stage2") || !strings.Contains(missing[0], "budget") {
		t.Errorf("missing: %q", missing)
	}
	if status, data := d.Call(t, "POST", "/v1/council", `{"query":"x","max_cost_usd":0.001}`); status != 422 || !strings.Contains(string(data), "or more") {
		t.Errorf("%d %s", status, data)
	}
	if asked := b.asked; asked == 0 {
		t.Error("nothing was asked")
	}
}

// What was refused was not paid for.
func TestUnpriced(t *testing.T) {
	b := bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD": "off", "ALLOWED_MODELS": "d"}))
	status, data := d.Call(t, "POST", "/v1/council", `{"query":"x","models":["a","d"],"max_cost_usd":1}`)
	if status != 422 || !strings.Contains(string(data), `"unpriced"`) || !strings.Contains(string(data), "LLM_COUNCIL_PRICES") || b.count() > 0 {
		t.Errorf("%d %s, %v billed", status, data, b.count())
	}
	if status, data := d.Call(t, "POST", "/v1/council", `{"query":"x","models":["a","d"]}`); status != 200 {
		t.Errorf("without a limit: %d %s", status, data)
	}
}

// A daemon whose ledger cannot be written takes no session under a limit of a day.
func TestLedgerNotWritable(t *testing.T) {
	b := bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD_PER_DAY": "1"}))
	file := filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	status, data := d.Call(t, "POST", "/v1/council", anyQuestion)
	if status != http.StatusServiceUnavailable || !strings.Contains(string(data), "SPEND_STORE") || b.count() > 0 {
		t.Errorf("%d %s, %v billed", status, data, b.count())
	}
}

// GET /v1/spend shows a token its own sessions, to the last digit, and POST /v1/council/estimate what
// the next one may cost, before and after 20 calls of each model and stage.
func TestSpendAndEstimate(t *testing.T) {
	b := bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, map[string]string{
		"API_TOKENS": "one:0123456789abcdef,two:fedcba9876543210", "MAX_COST_USD_PER_TOKEN_DAY": "5",
	}))
	d.Token = "0123456789abcdef"
	estimate := func() (e spend.Estimate) {
		t.Helper()
		status, data := d.Call(t, "POST", "/v1/council/estimate", anyQuestion)
		if err := json.Unmarshal(data, &e); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, data, err)
		}
		return e
	}
	before := estimate()
	if before.Calls != 7 || before.Expected != nil || !before.Fits || before.Upper == nil || b.count() > 0 {
		t.Errorf("%+v, %v billed", before, b.count())
	}
	for range 20 {
		if s := d.Ask(t, anyQuestion); s.Status != council.StatusComplete || *s.Metadata.Usage.CostUSD == 0 {
			t.Fatalf("%s %v", s.Status, s.Degradation)
		}
	}
	after := estimate()
	if after.Expected == nil || *after.Expected > *after.Upper || after.Expected.Times(20) != b.count() {
		t.Errorf("%v expected, %v at most; 20 sessions cost %v", after.Expected, after.Upper, b.count())
	}
	report := func(query string) (r spend.Report) {
		t.Helper()
		status, data := d.Call(t, "GET", "/v1/spend"+query, "")
		if err := json.Unmarshal(data, &r); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, data, err)
		}
		return r
	}
	mine := report("?by=model")
	if mine.Total != b.count() || mine.Uncertain != 0 || mine.Unknown != 0 || len(mine.Rows) != 3 || mine.Limits[0].Used != b.count() {
		t.Errorf("%+v, %v billed", mine, b.count())
	}
	d.Token = "fedcba9876543210"
	if theirs := report(""); theirs.Total != 0 || len(theirs.Rows) != 0 {
		t.Errorf("another token sees %+v", theirs)
	}
}

// A provider whose list carries prices needs none by hand: it is asked at the start, an outage keeps
// the last list, and without any the daemon says so and asks again.
func TestPricesOfAProvider(t *testing.T) {
	b := bill(t, 0)
	var down atomic.Bool
	down.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			target, _ := url.Parse(b.url)
			httputil.NewSingleHostReverseProxy(target).ServeHTTP(w, r)
		case down.Load():
			w.WriteHeader(http.StatusBadGateway)
		default:
			var cards []string
			for model := range strings.SplitSeq(billerModels, ",") {
				cards = append(cards, fmt.Sprintf(`{"id":%q,"pricing":{"prompt":"0.00000125","completion":"0.00001"}}`, model))
			}
			_, _ = fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(cards, ","))
		}
	}))
	t.Cleanup(server.Close)
	settings := hardSettings(b, map[string]string{"BASE_URL": server.URL, "PRICES": ""})
	d := daemontest.Start(t, settings)
	if status, data := d.Call(t, "GET", "/readyz", ""); status != 503 || !strings.Contains(string(data), "prices_missing") {
		t.Errorf("%d %s", status, data)
	}
	if status, data := d.Call(t, "POST", "/v1/council", anyQuestion); status != 422 || !strings.Contains(string(data), "unpriced") {
		t.Errorf("%d %s", status, data)
	}
	d.End(t)

	down.Store(false)
	d = daemontest.Start(t, settings)
	down.Store(true)
	if status, data := d.Call(t, "GET", "/readyz", ""); status != 200 {
		t.Errorf("%d %s", status, data)
	}
	s := d.Ask(t, anyQuestion)
	if cost := spend.FromFloat(*s.Metadata.Usage.CostUSD); s.Status != council.StatusComplete || cost != b.count() {
		t.Errorf("%s, cost %v of %v", s.Status, cost, b.count())
	}
}

// A daemon does not start under hard limits with models of which nobody says what they cost.
func TestStartUnpriced(t *testing.T) {
	b := bill(t, 0)
	daemontest.Setenv(t, hardSettings(b, map[string]string{"PRICES": "a=1/2"}))
	d, err := daemon.New(t.Context(), daemontest.Options(t))
	if err == nil {
		_ = d.Close(t.Context())
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "LLM_COUNCIL_PRICES") || !strings.Contains(err.Error(), "b, c") {
		t.Error(err)
	}
}

func TestBadPrices(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"PRICES": "a=1/2,b,c=x/1,a=free"})
	_, err := daemon.LoadConfig()
	for _, want := range []string{"entry 2 is not MODEL=INPUT/OUTPUT", `entry 3, of "c": "x" is not a price`, `entry 4: "a" has a price already`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
