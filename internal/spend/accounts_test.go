package spend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"pgregory.net/rapid"
)

// memory is a ledger in memory.
type memory struct {
	mu     sync.Mutex // guards lines and broken
	lines  [][]byte
	broken error
}

func (m *memory) Append(_ context.Context, _ bool, lines ...[]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	m.lines = append(m.lines, lines...)
	return nil
}

func (m *memory) all(yield func(spend.Line, error) bool) {
	m.mu.Lock()
	all := string(slices.Concat(m.lines...))
	m.mu.Unlock()
	lines(all)(yield)
}

const (
	day   = 10 * spend.Dollar
	token = 6 * spend.Dollar
)

// tariffs know the models a and b, and nothing of others.
func tariffs(model string) (spend.Tariff, bool) {
	switch model {
	case "a":
		return spend.Flat(1*million, 10*million), true
	case "b":
		return spend.Flat(3*million, 15*million), true
	default:
		return spend.Tariff{}, false
	}
}

func hard(ledger spend.Ledger) spend.Options {
	return spend.Options{Hard: true, Day: new(day), TokenDay: new(token), Tariff: tariffs, Ledger: ledger, Now: time.Now}
}

// provider is the one who bills: what it says is the truth that the ledger is compared with.
type provider struct {
	mu    sync.Mutex // guards total
	total spend.USD
}

func (p *provider) bill(cost spend.USD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = p.total.Plus(cost)
}

// check fails when more is spent and reserved than a limit allows.
func check(t interface{ Fatalf(string, ...any) }, a *spend.Book, token string) {
	for _, l := range a.Limits(token) {
		if l.Used.Plus(l.Reserved) > l.Limit {
			t.Fatalf("%s: %v used and %v reserved of %v", l.Scope, l.Used, l.Reserved, l.Limit)
		}
	}
}

// Random runs of opening, reserving, settling, closing, crashing and replaying: no limit is ever
// passed, and what counts is never less than what the provider billed.
func TestHardLimitsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger, billed := &memory{}, &provider{}
		a := spend.NewBook(hard(ledger))
		type attempt struct {
			r     *spend.Hold
			bound spend.USD
		}
		flying := map[string][]attempt{} // by session
		count := 0
		names := func() []string {
			var open []string
			for name := range flying {
				open = append(open, name)
			}
			slices.Sort(open)
			return open
		}
		used := func() spend.USD { return a.Limits("")[0].Used }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, token := range []string{"x", "y"} {
					check(t, a, token)
				}
			},
			"open": func(t *rapid.T) {
				count++
				o := spend.Opening{
					Session: fmt.Sprint("s", count), Token: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "token"),
					Limit:  new(spend.USD(rapid.Int64Range(1, int64(4*spend.Dollar)).Draw(t, "limit"))),
					Models: []string{"a", "b"},
				}
				if failure := a.Begin(t.Context(), o); failure == nil {
					flying[o.Session] = nil
				} else if failure.Code != council.CodeOverBudget {
					t.Fatal(failure)
				}
			},
			"reserve": func(t *rapid.T) {
				if len(flying) == 0 {
					return // no session is open
				}
				session := rapid.SampledFrom(names()).Draw(t, "session")
				at := spend.Attempt{
					Model: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "model"),
					Stage: rapid.SampledFrom([]council.Stage{council.Stage1, council.Stage2, council.Stage3}).Draw(t, "stage"),
					Bytes: rapid.Int64Range(1, 1e5).Draw(t, "bytes"), OutputLimit: new(rapid.IntRange(1, 1e5).Draw(t, "output")),
				}
				tariff, _ := tariffs(at.Model)
				if r, failure := a.Reserve(session, at); failure == nil {
					flying[session] = append(flying[session], attempt{r, tariff.Bound(at.Bytes, int64(*at.OutputLimit))})
				} else if failure.Code != council.FailBudget {
					t.Fatal(failure)
				}
			},
			"settle": func(t *rapid.T) {
				var session string
				for _, name := range names() {
					if len(flying[name]) > 0 {
						session = name
					}
				}
				if session == "" {
					return // nothing is in flight
				}
				at := flying[session][0]
				flying[session] = flying[session][1:]
				switch rapid.IntRange(0, 2).Draw(t, "outcome") {
				case 0:
					at.r.Charge(t.Context(), spend.Billed{Free: true})
				case 1:
					cost := spend.USD(rapid.Int64Range(0, int64(at.bound)).Draw(t, "cost"))
					billed.bill(cost)
					at.r.Charge(t.Context(), spend.Billed{CostUSD: &cost})
				default:
					billed.bill(at.bound)
					at.r.Charge(t.Context(), spend.Billed{})
				}
			},
			"close": func(t *rapid.T) {
				for _, name := range names() {
					if len(flying[name]) == 0 {
						a.End(t.Context(), name, false)
						delete(flying, name)
						return
					}
				}
			},
			"crash": func(t *rapid.T) {
				for _, attempts := range flying {
					for _, at := range attempts {
						billed.bill(at.bound) // it was on its way
					}
				}
				clear(flying)
				a = spend.NewBook(hard(ledger))
				if err := a.Replay(ledger.all, nil); err != nil {
					t.Fatal(err)
				}
			},
		})
		if used() < billed.total {
			t.Fatalf("%v count, and the provider billed %v", used(), billed.total)
		}
	})
}

// Sixty-four clients, with a provider that bills exactly the bound, end within the limit of the day
// to the picodollar, and the ledger holds what the provider billed.
func TestManyClientsEndAtTheLimit(t *testing.T) {
	ledger, billed := &memory{}, &provider{}
	options := hard(ledger)
	options.TokenDay = nil
	a := spend.NewBook(options)
	var clients sync.WaitGroup
	for client := range 64 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(client)))
			for n := range 40 {
				o := spend.Opening{
					Session: fmt.Sprint(client, "-", n), Token: strconv.Itoa(client % 4), Limit: new(spend.Dollar / 4), Models: []string{"a", "b"},
				}
				if a.Begin(t.Context(), o) != nil {
					continue
				}
				for _, stage := range []council.Stage{council.Stage1, council.Stage1, council.Stage2, council.Stage3} {
					at := spend.Attempt{
						Stage: stage, Model: []string{"a", "b"}[rng.IntN(2)], Number: 1,
						Bytes: rng.Int64N(3000), OutputLimit: new(rng.IntN(5000)),
					}
					r, failure := a.Reserve(o.Session, at)
					if failure != nil {
						continue
					}
					check(t, a, o.Token)
					tariff, _ := tariffs(at.Model)
					bound := tariff.Bound(at.Bytes, int64(*at.OutputLimit))
					switch rng.IntN(4) {
					case 0:
						r.Charge(t.Context(), spend.Billed{Free: true})
					case 1: // cut off
						billed.bill(bound)
						r.Charge(t.Context(), spend.Billed{})
					default:
						billed.bill(bound)
						r.Charge(t.Context(), spend.Billed{CostUSD: &bound})
					}
				}
				a.End(t.Context(), o.Session, false)
			}
		})
	}
	clients.Wait()
	limit := a.Limits("0")[0]
	if limit.Used != billed.total || limit.Used > day || limit.Reserved != 0 {
		t.Errorf("%v used, %v reserved of %v; the provider billed %v", limit.Used, limit.Reserved, limit.Limit, billed.total)
	}
	again := spend.NewBook(options)
	if err := again.Replay(ledger.all, nil); err != nil || again.Limits("0")[0].Used != billed.total {
		t.Errorf("after a restart %v are used: %v", again.Limits("0")[0].Used, err)
	}
}

// yielding is a ledger that lets others go first.
type yielding struct{ memory }

func (y *yielding) Append(ctx context.Context, synced bool, lines ...[]byte) error {
	for range 20 {
		runtime.Gosched()
	}
	return y.memory.Append(ctx, synced, lines...)
}

// At whatever line a crash cuts the ledger, what counts afterwards is within the limit of the day: the
// end of a session stands before the beginning of the one that takes its room.
func TestLedgerCutAtAnyLine(t *testing.T) {
	ledger := &yielding{}
	options := hard(ledger)
	options.TokenDay = nil
	a := spend.NewBook(options)
	var clients sync.WaitGroup
	for client := range 64 {
		clients.Go(func() {
			for n := range 100 {
				o := spend.Opening{Session: fmt.Sprint(client, "-", n), Limit: new(day / 4), Models: []string{"a"}}
				if a.Begin(t.Context(), o) == nil {
					a.End(t.Context(), o.Session, false)
				}
			}
		})
	}
	clients.Wait()
	open := map[string]bool{}
	for i, line := range ledger.lines {
		session := strings.Split(string(line), `"`)[11]
		if strings.Contains(string(line), `"type":"open"`) {
			open[session] = true
		} else {
			delete(open, session)
		}
		if len(open) > 4 {
			t.Fatalf("behind line %d of %d, %d sessions count, each with a quarter of the limit", i+1, len(ledger.lines), len(open))
		}
	}
	if len(ledger.lines) < 200 {
		t.Errorf("%d lines", len(ledger.lines))
	}
}

// shares are those of a council.
var shares = map[council.Stage]int64{council.Stage1: 50, council.Stage2: 80, council.Stage3: 100}

// open opens a session that has a limit, with the models.
func open(t *testing.T, a *spend.Book, limit spend.USD, models ...string) {
	t.Helper()
	if failure := a.Begin(t.Context(), spend.Opening{Session: "s", Limit: &limit, Models: models, Shares: shares}); failure != nil {
		t.Fatal(failure)
	}
}

// one is an attempt of model a whose bound is the given number of picodollars times a million.
func one(stage council.Stage, millions int64) spend.Attempt {
	return spend.Attempt{Stage: stage, Model: "a", Number: 1, Bytes: millions, OutputLimit: new(0)}
}

func TestStagesShareTheLimit(t *testing.T) {
	a := spend.NewBook(spend.Options{Hard: true, Tariff: tariffs})
	open(t, a, 100*million, "a")
	reserve := func(stage council.Stage, bytes int64) bool {
		_, failure := a.Reserve("s", one(stage, bytes))
		return failure == nil
	}
	for _, c := range []struct {
		stage council.Stage
		bytes int64
		want  bool
	}{
		{council.Stage1, 51, false},
		{council.Stage1, 40, true},
		{council.Stage1, 11, false},
		{council.Stage2, 41, false},
		{council.Stage2, 40, true},
		{council.Stage2, 1, false}, // what stage 1 left passes on
		{council.Stage3, 21, false},
		{council.Stage3, 20, true},
		{council.Stage3, 1, false},
	} {
		if got := reserve(c.stage, c.bytes); got != c.want {
			t.Errorf("%s, %d: %v", c.stage, c.bytes, got)
		}
	}
}

// A hard limit of tokens is reserved and settled as one of cost is.
func TestHardLimitOfTokens(t *testing.T) {
	a := spend.NewBook(spend.Options{Hard: true, Tariff: tariffs})
	if failure := a.Begin(t.Context(), spend.Opening{Session: "s", MaxTokens: new(int64(100)), Models: []string{"a"}, Shares: shares}); failure != nil {
		t.Fatal(failure)
	}
	try := func(stage council.Stage, bytes int64, output int) (*spend.Hold, bool) {
		at := one(stage, bytes)
		at.OutputLimit = &output
		r, failure := a.Reserve("s", at)
		return r, failure == nil
	}
	if _, ok := try(council.Stage1, 31, 20); ok {
		t.Error("stage 1 takes more than half")
	}
	first, ok := try(council.Stage1, 30, 20)
	if !ok {
		t.Fatal("there is no room for half of the limit")
	}
	if _, ok = try(council.Stage1, 1, 0); ok {
		t.Error("what is reserved does not count")
	}
	first.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 5, Output: 5}})
	cut, ok := try(council.Stage2, 50, 20)
	if !ok {
		t.Fatal("what was not used did not come back")
	}
	cut.Charge(t.Context(), spend.Billed{})
	if _, ok = try(council.Stage3, 21, 0); ok {
		t.Error("a request that was cut off does not count with its bound")
	}
	if _, ok = try(council.Stage3, 20, 0); !ok {
		t.Error("the chairman does not get the rest")
	}
}

// A soft limit ends the calls that come after it was reached, and not those in flight.
func TestSoftLimit(t *testing.T) {
	a := spend.NewBook(spend.Options{Tariff: tariffs})
	open(t, a, 100*million, "a")
	first, failure := a.Reserve("s", one(council.Stage1, 90))
	if failure != nil {
		t.Fatal(failure)
	}
	second, failure := a.Reserve("s", one(council.Stage1, 90))
	if failure != nil {
		t.Fatal(failure)
	}
	first.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 90}})
	if _, failure = a.Reserve("s", one(council.Stage1, 0)); failure != nil {
		t.Error(failure)
	}
	second.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 90}})
	if _, failure = a.Reserve("s", one(council.Stage1, 0)); failure == nil || failure.Code != council.FailBudget {
		t.Error(failure)
	}
}

// What calls in flight are expected to cost counts against a soft limit.
func TestSoftLimitExpects(t *testing.T) {
	a := spend.NewBook(spend.Options{Tariff: tariffs})
	open(t, a, 1000*million, "a")
	for range 20 {
		r, failure := a.Reserve("s", one(council.Stage1, 30))
		if failure != nil {
			t.Fatal(failure)
		}
		r.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 30}})
	}
	for n := range 15 { // 600 are spent: 13 calls of 30 make 990, with the next it is 1020
		if _, failure := a.Reserve("s", one(council.Stage1, 1)); (failure == nil) != (n < 14) {
			t.Errorf("call %d: %v", n+1, failure)
		}
	}
}

// What a call is expected to cost follows the latest calls.
func TestExpectedFollows(t *testing.T) {
	a := spend.NewBook(spend.Options{Tariff: tariffs})
	open(t, a, 1000*million, "a")
	plan := council.Plan{
		SessionID: "x", Mode: council.ModeSingle,
		Stages: []council.StagePlan{{Kind: council.KindAnswers, Seats: []council.Member{{ID: "a", Model: "a"}}, MoneyEnd: 1}},
	}
	for n := range 420 {
		cost := spend.USD(n)
		r, failure := a.Reserve("s", one(council.Stage1, 1))
		if failure != nil {
			t.Fatal(failure)
		}
		r.Charge(t.Context(), spend.Billed{CostUSD: &cost})
		expected := a.Estimate(plan).Expected
		switch first := max(0, n-199); {
		case n < 19 && expected != nil:
			t.Errorf("after %d calls: %v", n+1, *expected)
		case n >= 19 && (expected == nil || *expected != spend.USD(first+(n-first+1)/2)):
			t.Errorf("after %d calls: %v", n+1, expected)
		}
	}
}

// A bill above its bound counts in full, and raises later bounds of that model by the same ratio.
func TestCostOverBound(t *testing.T) {
	a := spend.NewBook(spend.Options{Hard: true, Tariff: tariffs})
	open(t, a, 1000*million, "a", "b")
	r, failure := a.Reserve("s", one(council.Stage3, 100))
	if failure != nil {
		t.Fatal(failure)
	}
	if c := r.Charge(t.Context(), spend.Billed{CostUSD: new(spend.USD(250 * million))}); *c.USD != 250*million {
		t.Errorf("charged %v", *c.USD)
	}
	if _, failure = a.Reserve("s", one(council.Stage3, 301)); failure == nil { // 752.5 of 750
		t.Error("the later bound did not grow")
	}
	if _, failure = a.Reserve("s", one(council.Stage3, 300)); failure != nil {
		t.Error(failure)
	}
	warnings := a.End(t.Context(), "s", false)
	if len(warnings) != 1 || warnings[0].Code != council.WarnCostOverBound {
		t.Errorf("%+v", warnings)
	}
}

func TestWarnings(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	a := spend.NewBook(spend.Options{
		Now: func() time.Time { return now },
		Tariff: func(model string) (spend.Tariff, bool) {
			tariff, ok := tariffs(model)
			tariff.AsOf = now.AddDate(0, 0, -44)
			if model == "b" {
				tariff.AsOf = now.AddDate(0, 0, -46)
			}
			return tariff, ok
		},
	})
	open(t, a, spend.Dollar, "a", "b", "c")
	finishLocal := func(model string, o spend.Billed) {
		at := one(council.Stage1, 100)
		at.Model = model
		r, failure := a.Reserve("s", at)
		if failure != nil {
			t.Fatal(failure)
		}
		r.Charge(t.Context(), o)
	}
	finishLocal("a", spend.Billed{CostUSD: new(spend.USD(98 * million)), Tokens: &spend.Tokens{Input: 100}}) // 2 % exactly
	finishLocal("b", spend.Billed{CostUSD: new(spend.USD(97 * 3 * million)), Tokens: &spend.Tokens{Input: 100}})
	finishLocal("b", spend.Billed{})
	finishLocal("c", spend.Billed{Tokens: &spend.Tokens{Input: 100}})
	var got []string
	for _, w := range a.End(t.Context(), "s", false) {
		_, models, _ := strings.Cut(w.Message[strings.LastIndex(w.Message, " "):], " ")
		got = append(got, string(w.Code)+" "+models)
	}
	want := []string{"price_old b", "price_differs b", "cost_uncertain b", "cost_unknown c"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A session must not begin where a hard limit cannot be held.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		options func(*spend.Options)
		opening spend.Opening
		code    council.Code
		says    string
	}{
		{"no price", nil, spend.Opening{Limit: new(spend.Dollar), Models: []string{"a", "c", "c"}}, council.CodeUnpriced, "price: c;"},
		{"no limit", nil, spend.Opening{Models: []string{"a"}}, council.CodeInvalid, "nothing limits"},
		{"too low", nil, spend.Opening{Limit: new(spend.Dollar), First: new(spend.Dollar)}, council.CodeInvalid, "too low"},
		{"over the day", nil, spend.Opening{Limit: new(day + 1)}, council.CodeOverBudget, "all sessions"},
		{"over the token's", nil, spend.Opening{Limit: new(token + 1)}, council.CodeOverBudget, "this token"},
		{"within them", nil, spend.Opening{Limit: new(token)}, "", ""},
		{"soft, no price", func(o *spend.Options) { o.Hard = false }, spend.Opening{Models: []string{"c"}}, "", ""},
	} {
		o := hard(nil)
		if c.options != nil {
			c.options(&o)
		}
		c.opening.Session = "s"
		c.opening.Shares = shares
		failure := spend.NewBook(o).Begin(t.Context(), c.opening)
		switch {
		case c.code == "" && failure != nil, c.code != "" && failure == nil:
			t.Errorf("%s: %v", c.name, failure)
		case failure != nil && (failure.Code != c.code || !strings.Contains(failure.Detail, c.says)):
			t.Errorf("%s: %v", c.name, failure)
		}
	}
}

// The limit that a refusal names is enough. It is rounded up to two significant digits, so a tenth less is not enough.
func TestLeastLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := spend.USD(rapid.Int64Range(1, int64(spend.Dollar)).Draw(t, "first"))
		begin := func(limit spend.USD) *council.Error {
			a := spend.NewBook(spend.Options{Hard: true, Tariff: tariffs})
			return a.Begin(t.Context(), spend.Opening{Session: "s", Limit: &limit, First: &first, Shares: shares})
		}
		failure := begin(1)
		if failure == nil {
			t.Fatal("it is enough")
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(failure.Fields[0].Fix, "give "), " ")
		least, err := spend.ParseUSD(text)
		if err != nil || begin(least) != nil || begin(least/11*10-2) == nil {
			t.Fatalf("%v of %v: %v", least, first, err)
		}
	})
}

func TestSoftLimitOfADay(t *testing.T) {
	now := time.Date(2026, 11, 23, 23, 0, 0, 0, time.UTC)
	a := spend.NewBook(spend.Options{Day: new(50 * spend.USD(million)), Tariff: tariffs, Now: func() time.Time { return now }})
	begin := func() *council.Error { return a.Begin(t.Context(), spend.Opening{Session: "s", Models: []string{"a"}}) }
	if failure := begin(); failure != nil {
		t.Fatal(failure)
	}
	r, _ := a.Reserve("s", one(council.Stage1, 60))
	r.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 60}})
	a.End(t.Context(), "s", false)
	failure := begin()
	if failure == nil || failure.Code != council.CodeOverBudget || failure.RetryAfter != time.Hour {
		t.Errorf("%+v", failure)
	}
	now = now.Add(time.Hour)
	if failure := begin(); failure != nil {
		t.Error(failure)
	}
}

// A session that a crash interrupted counts whole, until it goes on in its account.
func TestGoesOn(t *testing.T) {
	ledger := &memory{}
	a := spend.NewBook(hard(ledger))
	o := spend.Opening{Session: "s", Token: "x", Limit: new(2 * spend.Dollar), Models: []string{"a"}}
	if failure := a.Begin(t.Context(), o); failure != nil {
		t.Fatal(failure)
	}
	cutOff, _ := a.Reserve("s", one(council.Stage1, million/5))
	cutOff.Charge(t.Context(), spend.Billed{})
	again := spend.NewBook(hard(ledger))
	if err := again.Replay(ledger.all, nil); err != nil {
		t.Fatal(err)
	}
	state := func(want string) {
		t.Helper()
		l := again.Limits("x")[1]
		if got := fmt.Sprint(l.Used, l.Reserved); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	state("2 0")
	if failure := again.Begin(t.Context(), o); failure != nil {
		t.Fatal(failure)
	}
	state("0.2 1.8")
	landed := council.Landed{Stage: council.Stage1, Model: "a"}
	landed.Completion.Usage.CostUSD = new(0.5)
	lost := spend.Lost{Stage: council.Stage2, Model: "a", Bound: new(spend.Dollar * 3 / 10)}
	again.Account("s").Recover(t.Context(), []council.Landed{landed}, []spend.Lost{lost})
	state("1 1")
	r, failure := again.Reserve("s", one(council.Stage2, million*3/10))
	if failure != nil {
		t.Fatal(failure)
	}
	r.Charge(t.Context(), spend.Billed{CostUSD: new(spend.USD)})
	state("1 1")
	again.End(t.Context(), "s", false)
	state("1 0")
	third := spend.NewBook(hard(ledger))
	if err := third.Replay(ledger.all, nil); err != nil || third.Limits("x")[1].Used != spend.Dollar {
		t.Errorf("%v, %v", third.Limits("x"), err)
	}
}

// A process can be killed after the last line of a session, and before the session's log says that the session has
// ended. The calls that landed by then count once.
func TestGoesOnAfterTheLastLine(t *testing.T) {
	ledger := &memory{}
	a := spend.NewBook(hard(ledger))
	o := spend.Opening{Session: "s", Token: "x", Limit: new(2 * spend.Dollar), Models: []string{"a"}}
	if failure := a.Begin(t.Context(), o); failure != nil {
		t.Fatal(failure)
	}
	h, _ := a.Reserve("s", one(council.Stage1, million/5))
	h.Charge(t.Context(), spend.Billed{CostUSD: new(spend.Dollar / 5)})
	a.End(t.Context(), "s", false)
	before := len(ledger.lines)
	for range 2 {
		again := spend.NewBook(hard(ledger))
		if err := again.Replay(ledger.all, nil); err != nil {
			t.Fatal(err)
		}
		if failure := again.Begin(t.Context(), o); failure != nil {
			t.Fatal(failure)
		}
		landed := council.Landed{Stage: council.Stage1, Model: "a"}
		landed.Completion.Usage.CostUSD = new(0.2)
		again.Account("s").Recover(t.Context(), []council.Landed{landed}, nil)
		if l := again.Limits("x")[1]; l.Used != spend.Dollar/5 || l.Reserved != spend.Dollar*9/5 {
			t.Errorf("%v used, %v reserved", l.Used, l.Reserved)
		}
		again.End(t.Context(), "s", false)
		if l := again.Limits("x")[1]; l.Used != spend.Dollar/5 || l.Reserved != 0 || len(ledger.lines) != before {
			t.Errorf("%v used, %v reserved in the end, %d lines", l.Used, l.Reserved, len(ledger.lines))
		}
	}
}

// What was in flight when a process was killed counts also where it is not asked for again.
func TestLostAndNotRepeated(t *testing.T) {
	a := spend.NewBook(spend.Options{Hard: true, Tariff: tariffs})
	open(t, a, 100*million, "a")
	a.Account("s").Lose(t.Context(), spend.Lost{Stage: council.Stage1, Model: "a", Bound: new(spend.USD(30 * million))})
	if _, failure := a.Reserve("s", one(council.Stage3, 71)); failure == nil {
		t.Error("its room is given to another call")
	}
	if _, failure := a.Reserve("s", one(council.Stage3, 70)); failure != nil {
		t.Error(failure)
	}
}

// Without its ledger no session begins under a limit of a day, and any other does.
func TestLedgerBroken(t *testing.T) {
	ledger := &memory{broken: errors.New("no disk")}
	a := spend.NewBook(hard(ledger))
	o := spend.Opening{Session: "s", Limit: new(spend.Dollar)}
	if failure := a.Begin(t.Context(), o); failure == nil || failure.Code != council.CodeUnavailable || a.Limits("")[0].Reserved != 0 {
		t.Errorf("%v, %+v", failure, a.Limits(""))
	}
	if failure := spend.NewBook(spend.Options{Tariff: tariffs, Ledger: ledger}).Begin(t.Context(), o); failure != nil {
		t.Error(failure)
	}
}

// A session with very many calls takes several lines, none too long for a store.
func TestManyCalls(t *testing.T) {
	ledger := &memory{}
	options := spend.Options{Tariff: tariffs, Ledger: ledger, Day: new(day)}
	a := spend.NewBook(options)
	open(t, a, spend.Dollar, "a")
	for range 1000 {
		r, _ := a.Reserve("s", one(council.Stage1, 7))
		r.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 7}})
	}
	a.End(t.Context(), "s", false)
	for _, line := range ledger.lines {
		if len(line) > 32<<10 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	again := spend.NewBook(options)
	if err := again.Replay(ledger.all, nil); err != nil || again.Limits("")[0].Used != 7000*million {
		t.Errorf("%v: %v", again.Limits(""), err)
	}
}

// words returns the values with blanks between them.
func words(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

// A clock that steps back over midnight, or jumps ahead and back, takes nothing from what its day has cost. Of all the days that it
// ever showed, those are forgotten that counted longest ago.
func TestClockJumps(t *testing.T) {
	midnight := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	now := midnight
	a := spend.NewBook(spend.Options{Day: new(spend.Dollar), Tariff: tariffs, Now: func() time.Time { return now }})
	buy := func(session string, at time.Time) *council.Error {
		now = at
		if failure := a.Begin(t.Context(), spend.Opening{Session: session, Models: []string{"a"}}); failure != nil {
			return failure
		}
		r, failure := a.Reserve(session, spend.Attempt{Stage: council.Stage1, Model: "a", OutputLimit: new(1)})
		if failure != nil {
			t.Fatal(failure)
		}
		r.Charge(t.Context(), spend.Billed{CostUSD: new(spend.Dollar)})
		a.End(t.Context(), session, false)
		return nil
	}
	for session, step := range []struct {
		at      time.Duration // from midnight
		refused bool
	}{
		{-time.Second, false},
		{time.Second, false},
		{-time.Second, true},
		{time.Second, true},
		{49 * time.Hour, false},
		{time.Second, true},
		{365 * 24 * time.Hour, false},
		{-3650 * 24 * time.Hour, false},
		{time.Second, true},
		{365 * 24 * time.Hour, true},
		{72 * time.Hour, false},
		{96 * time.Hour, false},
		{120 * time.Hour, false},
		{144 * time.Hour, false},
		{time.Second, true},
		{168 * time.Hour, false},
		{192 * time.Hour, false},
		{time.Second, true},
		{-time.Second, false}, // eight other days counted since
	} {
		if failure := buy(strconv.Itoa(session), midnight.Add(step.at)); (failure != nil) != step.refused {
			t.Errorf("step %d, %v from midnight: %v, want a refusal: %v", session, step.at, failure, step.refused)
		}
	}
}

// A daemon that starts while the clock is wrong knows what the last days of its ledger cost when the clock is right again.
func TestClockJumpsBeforeTheStart(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	now := noon
	ledger := &memory{}
	options := spend.Options{Day: new(spend.Dollar), Tariff: tariffs, Ledger: ledger, Now: func() time.Time { return now }}
	for day := range 20 {
		now = noon.AddDate(0, 0, day-19)
		a := spend.NewBook(options)
		open(t, a, spend.Dollar, "a")
		r, _ := a.Reserve("s", one(council.Stage1, 7))
		r.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 7}})
		a.End(t.Context(), "s", false)
	}
	for _, jump := range []int{-3650, -2, 2, 3650} {
		now = noon.AddDate(0, 0, jump)
		state, err := spend.Check(ledger.all, nil)
		if err != nil || state.Lines != 40 || state.Unchecked != 0 || state.Damaged {
			t.Fatalf("%+v, %v", state, err)
		}
		a := spend.NewBook(options)
		if err := a.Replay(ledger.all, state.Recent); err != nil {
			t.Fatal(err)
		}
		now = noon
		if used := a.Limits("")[0].Used; used != 7*million {
			t.Errorf("a start %d days off: %v are spent, want %v", jump, used, 7*million)
		}
	}
}

// Of a provider's own figure and its tokens at the known price, the greater counts under hard limits. Otherwise a
// discount is believed, but not that a model with a price costs nothing.
func TestGreaterCost(t *testing.T) {
	const ours = 12 * million // 2 tokens of input and one of output of the model a
	tokens := &spend.Tokens{Input: 2, Output: 1}
	for _, c := range []struct {
		name, model  string
		said         *spend.USD
		tokens       *spend.Tokens
		hard, soft   spend.USD
		byUs, byUsIf bool // the source is the tariff: under hard limits, and otherwise
		differs      bool
	}{
		{"nothing", "a", new(spend.USD), tokens, ours, ours, true, true, true},
		{"half", "a", new(spend.USD(ours / 2)), tokens, ours, ours / 2, true, false, true},
		{"a picodollar less", "a", new(spend.USD(ours - 1)), tokens, ours, ours - 1, true, false, false},
		{"the same", "a", new(spend.USD(ours)), tokens, ours, ours, false, false, false},
		{"more", "a", new(spend.USD(2 * ours)), tokens, 2 * ours, 2 * ours, false, false, true},
		{"nothing for nothing", "a", new(spend.USD), &spend.Tokens{}, 0, 0, false, false, false},
		{"nothing, and unknown tokens", "a", new(spend.USD), nil, 0, 0, false, false, false},
		{"nothing, of a model without a price", "c", new(spend.USD), tokens, 0, 0, false, false, false},
		{"nothing said", "a", nil, tokens, ours, ours, true, true, false},
	} {
		for _, isHard := range []bool{true, false} {
			ledger := &memory{}
			o := spend.Options{Tariff: tariffs, Ledger: ledger, Day: new(day), Hard: isHard && c.model == "a"}
			a := spend.NewBook(o)
			if failure := a.Begin(t.Context(), spend.Opening{Session: "s", Limit: new(spend.Dollar), Models: []string{c.model}}); failure != nil {
				t.Fatal(failure)
			}
			at := one(council.Stage1, 100)
			at.Model = c.model
			r, failure := a.Reserve("s", at)
			if failure != nil {
				t.Fatal(failure)
			}
			charge := r.Charge(t.Context(), spend.Billed{CostUSD: c.said, Tokens: c.tokens})
			warnings := a.End(t.Context(), "s", false)
			want, source := c.soft, c.byUsIf
			if isHard {
				want, source = c.hard, c.byUs
			}
			if charge.USD == nil || *charge.USD != want || (charge.Source == spend.SourceTariff) != source {
				t.Errorf("%s, hard %v: %v from %s, want %v", c.name, isHard, charge.USD, charge.Source, want)
			}
			differs := slices.ContainsFunc(warnings, func(w council.Warning) bool { return w.Code == council.WarnPriceDiffers })
			if used := a.Limits("")[0].Used; used != want || differs != c.differs {
				t.Errorf("%s, hard %v: %v count, want %v; price_differs %v", c.name, isHard, used, want, differs)
			}
			again := spend.NewBook(o)
			if err := again.Replay(ledger.all, nil); err != nil || again.Limits("")[0].Used != want {
				t.Errorf("%s, hard %v: %v in the ledger, want %v; %v", c.name, isHard, again.Limits("")[0].Used, want, err)
			}
		}
	}
}
