package daemon_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// billed returns the sum of all bills.
func billed(b *daemontest.Biller) spend.USD {
	sum, _ := b.Billed()
	return sum
}

// replayed returns what counts for today after a start, from the ledger of a daemon that has ended.
func replayed(t *testing.T, path string) spend.USD {
	t.Helper()
	a := spend.NewBook(spend.Options{Day: new(spend.Dollar)})
	if err := a.Replay(daemon.LedgerLines(t.Context(), path), nil); err != nil {
		t.Fatal(err)
	}
	return a.Limits("")[0].Used
}

// hardSettings are those of a daemon that a Biller bills.
func hardSettings(b *daemontest.Biller, more map[string]string) map[string]string {
	env := map[string]string{
		"BASE_URL": b.URL, "MODELS": "a,b,c", "PRICES": b.Prices, "COST_LIMITS": "hard",
		"MAX_COST_USD": "0.2", "MAX_OUTPUT_TOKENS": "400", "MAX_SESSIONS": "64",
	}
	maps.Copy(env, more)
	return env
}

var spendSessions = flag.Int("spendsessions", 192, "sessions that TestFaultF43HardLimitsUnderLoad asks for")

// With 64 clients of four tokens, sessions of random sizes and limits, and a provider that bills
// exactly the bound and fails at random, nothing passes the limit of any session, of a token or of the
// day, and the ledger holds the provider's own count to the last digit.
func TestFaultF43HardLimitsUnderLoad(t *testing.T) {
	testkit.Slow(t)
	b := daemontest.Bill(t, 7)
	day := spend.USD(3e10 + 1).Times(int64(*spendSessions)) // enough for most of them
	token := day.Times(27) / 100                            // the first ones to spend theirs do not leave it to the others
	tokens := []string{"ada", "bob", "ci", "eve"}
	var named []string
	for _, name := range tokens {
		named = append(named, name+":0123456789abc-"+name)
	}
	d := daemontest.Start(t, hardSettings(b, map[string]string{
		"MAX_COST_USD_PER_DAY": day.String(), "MAX_COST_USD_PER_TOKEN_DAY": token.String(), "API_TOKENS": strings.Join(named, ","),
		"TIMEOUT": "4s", // so many calls fail that retries wait for their budget until their stage ends
	}))
	var clients sync.WaitGroup
	var mu sync.Mutex // guards what follows
	codes, limits := map[int]int{}, map[string]spend.USD{}
	for client := range 64 {
		clients.Go(func() {
			name := tokens[client%len(tokens)]
			caller := d.Caller
			caller.Token = "0123456789abc-" + name
			rng := rand.New(rand.NewPCG(7, uint64(client)))
			for n := range *spendSessions / 64 {
				payer := fmt.Sprintf("payer-%s-%d-%d", name, client, n)
				limit := 2e10 + spend.USD(rng.Int64N(15e10))
				body := fmt.Sprintf(`{"query":"%s %s","max_cost_usd":%v,"models":[%s]}`, payer,
					strings.Repeat("why ", rng.IntN(300)), limit, []string{`"a","b","c"`, `"a","b"`, `"c","a"`}[rng.IntN(3)])
				resp, data, err := caller.Send(t.Context(), "POST", "/v1/council", body)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				codes[resp.StatusCode]++
				limits[payer] = limit
				mu.Unlock()
				explained := strings.Contains(string(data), "over_budget") && resp.Header.Get("Retry-After") != ""
				if resp.StatusCode == http.StatusTooManyRequests && !explained {
					t.Errorf("%s", data)
				}
				if billed(b) > day {
					t.Errorf("%v are billed of %v", billed(b), day)
				}
			}
		})
	}
	clients.Wait()
	var refused float64
	for _, sessions := range figures(t, d, "councild_budget_refused_sessions") {
		refused += sessions
	}
	if refused == 0 || refused != float64(codes[http.StatusTooManyRequests]) {
		t.Errorf("%v sessions are refused, answers by status: %v", refused, codes)
	}
	d.End(t)
	// A call that the end of its stage cut off counts with its bound, and is uncertain.
	ledger := daemontest.Ledger(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl"))
	if sum := billed(b); ledger.Total < sum || ledger.Total-ledger.Uncertain > sum || ledger.Total > day {
		t.Errorf("the ledger has %v, %v of it uncertain, the provider billed %v of %v", ledger.Total, ledger.Uncertain, sum, day)
	}
	byToken := map[string]spend.USD{}
	for payer, sum := range b.ByPayer() {
		if sum > limits[payer] {
			t.Errorf("session %s: %v are billed of %v", payer, sum, limits[payer])
		}
		byToken[strings.Split(payer, "-")[1]] += sum
	}
	for _, name := range tokens {
		if sum := byToken[name]; sum > token || sum == 0 {
			t.Errorf("token %s: %v are billed of %v", name, sum, token)
		}
	}
	if codes[http.StatusOK] == 0 {
		t.Errorf("answers by status: %v", codes)
	}
	sum, requests := b.Billed()
	daemontest.Fault(t, "F43", "0 overshoots, the ledger equal to the provider's count but for what it calls uncertain",
		"%d sessions of 64 clients, %d requests, %v of %v US dollars billed, the ledger has %v, %v of it uncertain, answers by status: %v",
		*spendSessions, requests, sum, day, ledger.Total, ledger.Uncertain, codes)
}

// A provider whose models think beside the completion that they report bills some 30 times the bound of the first
// requests. The ledger has all of it, the bounds grow, and the limit of the day holds.
func TestFaultF56ReasoningBesideTheCompletion(t *testing.T) {
	b := daemontest.Bill(t, 0)
	b.Thinks = 20_000
	const day, perSession spend.USD = 5e12, 2e12
	d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD": perSession.String(), "MAX_COST_USD_PER_DAY": day.String()}))
	first := d.Ask(t, anyQuestion)
	total := first.Metadata.Usage.Total
	bill, calls := b.Billed()
	if total.OutputTokens == nil || *total.OutputTokens != int64(calls)*20_400 || spend.FromFloat(*total.CostUSD) != bill {
		t.Errorf("%d calls, %v billed: %+v", calls, bill, total)
	}
	if !slices.ContainsFunc(first.Metadata.Warnings, func(w council.Warning) bool { return w.Code == council.WarnCostOverBound }) {
		t.Errorf("warnings: %+v", first.Metadata.Warnings)
	}
	var clients sync.WaitGroup
	var mu sync.Mutex // guards codes
	codes := map[int]int{http.StatusOK: 1}
	for client := range 8 {
		clients.Go(func() {
			for n := range 3 {
				body := fmt.Sprintf(`{"query":"payer-%d-%d"}`, client, n)
				resp, data, err := d.Send(t.Context(), "POST", "/v1/council", body)
				if err != nil || resp.StatusCode == http.StatusTooManyRequests && !strings.Contains(string(data), "over_budget") {
					t.Errorf("%v: %s", err, data)
					return
				}
				mu.Lock()
				codes[resp.StatusCode]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	d.End(t)
	if got := replayed(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl")); got != billed(b) || got > day {
		t.Errorf("the ledger has %v, the provider billed %v of %v", got, billed(b), day)
	}
	for payer, sum := range b.ByPayer() {
		if sum > perSession {
			t.Errorf("session %s: %v are billed of %v", payer, sum, perSession)
		}
	}
	if codes[http.StatusOK] < 2 || codes[http.StatusOK]+codes[http.StatusTooManyRequests] != 25 {
		t.Errorf("answers by status: %v", codes)
	}
	sum, requests := b.Billed()
	daemontest.Fault(t, "F56", "the limit of the day not passed, the ledger equal to the provider's count",
		"25 sessions asked for, %d requests, %v of %v US dollars billed, answers by status: %v", requests, sum, day, codes)
}

// A provider that says 0, because another one charges for the request, fills the limits at the known price. A model that
// it lists twice has the dearer one.
func TestCostOfNothing(t *testing.T) {
	b := daemontest.Bill(t, 0)
	usage := regexp.MustCompile(`"usage":\{("prompt_tokens":\d+,"completion_tokens":\d+)`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			const card = `{"id":%q,"pricing":{"prompt":%q,"completion":%q}}`
			var cards []string
			for model := range strings.SplitSeq("a,b,c", ",") {
				cards = append(cards, fmt.Sprintf(card, model, "0.00000125", "0.00001"), fmt.Sprintf(card, model, "0", "0"))
			}
			_, _ = fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(cards, ","))
			return
		}
		target, _ := url.Parse(b.URL)
		reply := httptest.NewRecorder()
		httputil.NewSingleHostReverseProxy(target).ServeHTTP(reply, r)
		stated := usage.ReplaceAll(reply.Body.Bytes(), []byte(`"usage":{"is_byok":true,$1,"x":{"cost":0}`))
		stated = bytes.ReplaceAll(stated, []byte(`"cost":`), []byte(`"was":`))
		_, _ = w.Write(bytes.ReplaceAll(stated, []byte(`"is_byok":true`), []byte(`"is_byok":true,"cost":0`)))
	}))
	t.Cleanup(server.Close)
	for _, limits := range []string{"hard", "soft"} {
		before := billed(b)
		d := daemontest.Start(t, hardSettings(b, map[string]string{
			"BASE_URL": server.URL, "PRICES": "", "COST_LIMITS": limits, "MAX_COST_USD_PER_DAY": "0.1", "MAX_COST_USD": "0.09",
			"MAX_OUTPUT_TOKENS": "400",
		}))
		daemontest.Until(t, func() bool { // under soft limits the start does not wait for them
			_, data := d.Call(t, "POST", "/v1/council/estimate", anyQuestion)
			return strings.Contains(string(data), `"unpriced":[]`)
		})
		s := d.Ask(t, anyQuestion)
		if cost := spend.FromFloat(*s.Metadata.Usage.CostUSD); cost == 0 || cost != billed(b)-before {
			t.Errorf("%s: the session cost %v, and %v was billed", limits, cost, billed(b)-before)
		}
		for range 3 {
			d.Call(t, "POST", "/v1/council", anyQuestion)
		}
		status, data := d.Call(t, "POST", "/v1/council", anyQuestion)
		if status != http.StatusTooManyRequests || !strings.Contains(string(data), "over_budget") {
			t.Errorf("%s: %d %s", limits, status, data)
		}
		d.End(t)
		if got := replayed(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl")); got != billed(b)-before {
			t.Errorf("%s: the ledger has %v, %v was billed", limits, got, billed(b)-before)
		}
	}
}

// A session's hard limit is shared by its stages: the chairman still writes when the reviews have
// taken all that is theirs.
func TestHardLimitOfASession(t *testing.T) {
	b := daemontest.Bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, nil))
	s := d.Ask(t, `{"query":"x","max_cost_usd":0.04}`)
	var usd spend.USD = 4e10
	if billed(b) > usd || s.Status != council.StatusDegraded || s.Stage3 == nil {
		t.Errorf("%v billed, %s", billed(b), s.Status)
	}
	missing := daemontest.Missing(s)
	if len(missing) == 0 || !strings.Contains(missing[0], "stage2") || !strings.Contains(missing[0], "budget") {
		t.Errorf("missing: %q", missing)
	}
	status, data := d.Call(t, "POST", "/v1/council", `{"query":"x","max_cost_usd":0.001}`)
	if status != 422 || !strings.Contains(string(data), "or more") {
		t.Errorf("%d %s", status, data)
	}
}

// What was refused was not paid for.
func TestUnpriced(t *testing.T) {
	b := daemontest.Bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, map[string]string{
		"MAX_COST_USD": "off", "ALLOWED_MODELS": "d", "PRICES": "a=1.25/10,b=1.25/10,c=1.25/10",
	}))
	status, data := d.Call(t, "POST", "/v1/council", `{"query":"x","models":["a","d"],"max_cost_usd":1}`)
	if status != 422 || !strings.Contains(string(data), `"unpriced"`) || !strings.Contains(string(data), "LLM_COUNCIL_PRICES") {
		t.Errorf("%d %s", status, data)
	}
	if billed(b) > 0 {
		t.Errorf("%v billed", billed(b))
	}
	if status, data := d.Call(t, "POST", "/v1/council", `{"query":"x","models":["a","d"]}`); status != 200 {
		t.Errorf("without a limit: %d %s", status, data)
	}
}

// A daemon whose ledger cannot be written takes no session under a limit of a day.
func TestLedgerNotWritable(t *testing.T) {
	b := daemontest.Bill(t, 0)
	d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD_PER_DAY": "1"}))
	file := filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	status, data := d.Call(t, "POST", "/v1/council", anyQuestion)
	if status != http.StatusServiceUnavailable || !strings.Contains(string(data), "DATA_DIR") || billed(b) > 0 {
		t.Errorf("%d %s, %v billed", status, data, billed(b))
	}
}

// GET /v1/spend shows a token its own sessions, to the last digit, and POST /v1/council/estimate what
// the next one may cost, before and after 20 calls of each model and stage.
func TestSpendAndEstimate(t *testing.T) {
	b := daemontest.Bill(t, 0)
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
	if before.Calls != 7 || before.Expected != nil || !before.Fits || before.Upper == nil || billed(b) > 0 {
		t.Errorf("%+v, %v billed", before, billed(b))
	}
	for range 20 {
		if s := d.Ask(t, anyQuestion); s.Status != council.StatusComplete || *s.Metadata.Usage.CostUSD == 0 {
			t.Fatalf("%s %v", s.Status, s.Degradation)
		}
	}
	after := estimate()
	if after.Expected == nil || *after.Expected > *after.Upper || after.Expected.Times(20) != billed(b) {
		t.Errorf("%v expected, %v at most; 20 sessions cost %v", after.Expected, after.Upper, billed(b))
	}
	report := func(query string) (r spend.Costs) {
		t.Helper()
		status, data := d.Call(t, "GET", "/v1/spend"+query, "")
		if err := json.Unmarshal(data, &r); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, data, err)
		}
		return r
	}
	mine := report("?by=model")
	if mine.Total != billed(b) || mine.Uncertain != 0 || mine.Unknown != 0 || len(mine.Rows) != 3 || mine.Limits[0].Used != billed(b) {
		t.Errorf("%+v, %v billed", mine, billed(b))
	}
	d.Call(t, "POST", "/v1/chat/completions", `{"model":"council","user":"ada@example.com",`+chatQuestion)
	if rows := report("?by=user").Rows; len(rows) != 2 || !slices.ContainsFunc(rows, func(r spend.Row) bool {
		return r.Key == "ada@example.com" && r.Sessions == 1 && r.Total > 0
	}) {
		t.Errorf("by user: %+v", rows)
	}
	d.Token = "fedcba9876543210"
	if theirs := report(""); theirs.Total != 0 || len(theirs.Rows) != 0 {
		t.Errorf("another token sees %+v", theirs)
	}
}

// A provider whose list carries prices needs none by hand: it is asked at the start, an outage keeps
// the last list, and without any the daemon says so and asks again.
func TestPricesOfAProvider(t *testing.T) {
	b := daemontest.Bill(t, 0)
	var down atomic.Bool
	down.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			target, _ := url.Parse(b.URL)
			httputil.NewSingleHostReverseProxy(target).ServeHTTP(w, r)
		case down.Load():
			w.WriteHeader(http.StatusBadGateway)
		default:
			var cards []string
			for model := range strings.SplitSeq("a,b,c", ",") {
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
	if cost := spend.FromFloat(*s.Metadata.Usage.CostUSD); s.Status != council.StatusComplete || cost != billed(b) {
		t.Errorf("%s, cost %v of %v", s.Status, cost, billed(b))
	}
}

// A daemon does not start under hard limits with models of which nobody says what they cost.
func TestStartUnpriced(t *testing.T) {
	b := daemontest.Bill(t, 0)
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
	_, err := daemon.LoadConfig(simllm.Default())
	for _, want := range []string{
		"entry 2 is not MODEL=INPUT/OUTPUT", `entry 3, of "c": "x" is not a price`, `entry 4: "a" has a price already`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
