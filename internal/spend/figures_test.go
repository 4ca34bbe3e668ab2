package spend_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
)

// bills returns the bills that are above 0, by council, model and source.
func bills(a *spend.Book) map[string]spend.USD {
	all := map[string]spend.USD{}
	for _, b := range a.Bills() {
		if b.USD > 0 {
			all[words(b.Council, b.Model, b.Source)] = b.USD
		}
	}
	return all
}

// Each source has a bill of its own. What is free or unknown is in none.
func TestBills(t *testing.T) {
	a := spend.NewBook(spend.Options{Tariff: tariffs})
	o := spend.Opening{Session: "s", Council: "fast", Models: []string{"a", "c"}}
	if failure := a.Begin(t.Context(), o); failure != nil {
		t.Fatal(failure)
	}
	if begun := a.Bills(); len(begun) != 6 || begun[0] != (spend.Bill{Council: "fast", Model: "a", Source: spend.SourceBound}) {
		t.Errorf("begun at %+v", begun)
	}
	for _, c := range []struct {
		model   string
		outcome spend.Billed
	}{
		{"a", spend.Billed{Tokens: &spend.Tokens{Input: 5}}},
		{"a", spend.Billed{}},
		{"a", spend.Billed{Free: true}},
		{"c", spend.Billed{CostUSD: new(spend.USD(3))}},
		{"c", spend.Billed{CostUSD: new(spend.USD(4))}},
		{"c", spend.Billed{}},
	} {
		at := one(council.Stage1, 7)
		at.Model = c.model
		r, failure := a.Reserve("s", at)
		if failure != nil {
			t.Fatal(failure)
		}
		r.Charge(t.Context(), c.outcome)
	}
	want := map[string]spend.USD{"fast a tariff": 5 * million, "fast a bound": 7 * million, "fast c provider": 7}
	if got := bills(a); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Callers cannot make any number of bills.
func TestBillsAreBounded(t *testing.T) {
	a := spend.NewBook(spend.Options{Tariff: tariffs})
	var whole spend.USD
	for n := range 200 {
		id := fmt.Sprint("s", n)
		if failure := a.Begin(t.Context(), spend.Opening{Session: id, Council: fmt.Sprint("council", n), Models: []string{"a"}}); failure != nil {
			t.Fatal(failure)
		}
		r, _ := a.Reserve(id, one(council.Stage1, 1))
		r.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 1}})
		a.End(t.Context(), id, false)
	}
	for _, b := range a.Bills() {
		whole += b.USD
	}
	if got := len(a.Bills()); got != 51*3 || whole != 200*million || bills(a)["other a tariff"] != 150*million {
		t.Errorf("%d bills of %v together, %v of other councils", got, whole, bills(a)["other a tariff"])
	}
}

// A session that goes on bills what this process asks for: what another one paid is in that one's bills.
func TestBillsOfThisProcess(t *testing.T) {
	ledger := &memory{}
	a := spend.NewBook(hard(ledger))
	o := spend.Opening{Session: "s", Council: "fast", Limit: new(2 * spend.Dollar), Models: []string{"a"}}
	if failure := a.Begin(t.Context(), o); failure != nil {
		t.Fatal(failure)
	}
	r, _ := a.Reserve("s", one(council.Stage1, 5))
	r.Charge(t.Context(), spend.Billed{})
	if got := bills(a); got["fast a bound"] != 5*million {
		t.Errorf("%v", got)
	}
	again := spend.NewBook(hard(ledger))
	if err := again.Replay(ledger.all, nil); err != nil {
		t.Fatal(err)
	}
	if failure := again.Begin(t.Context(), o); failure != nil {
		t.Fatal(failure)
	}
	landed := council.Landed{Stage: council.Stage1, Model: "a"}
	landed.Completion.Usage.CostUSD = new(0.5)
	account := again.Account("s")
	account.Recover(t.Context(), []council.Landed{landed}, nil)
	if got := bills(again); len(got) != 0 {
		t.Errorf("paid before: %v", got)
	}
	account.Lose(t.Context(), spend.Lost{Stage: council.Stage2, Model: "a", Bound: new(spend.USD(3 * million))})
	if _, failure := again.Reserve("s", one(council.Stage2, 3)); failure != nil {
		t.Fatal(failure)
	}
	if got := bills(again); len(got) != 1 || got["fast a bound"] != 3*million {
		t.Errorf("in flight when the other ended: %v", got)
	}
}

// Budgets are those of today, of the tokens that began sessions today.
func TestBudgets(t *testing.T) {
	now := time.Date(2026, 11, 23, 23, 0, 0, 0, time.UTC)
	o := hard(nil)
	o.Now = func() time.Time { return now }
	a := spend.NewBook(o)
	begin := func(session, token string) {
		t.Helper()
		opening := spend.Opening{Session: session, Token: token, Limit: new(spend.Dollar), Models: []string{"a"}}
		if failure := a.Begin(t.Context(), opening); failure != nil {
			t.Fatal(failure)
		}
	}
	state := func(when, want string) {
		t.Helper()
		var rows []string
		for _, b := range a.Budgets() {
			rows = append(rows, words(b.Scope, b.Token, *b.Limit, b.Used, b.Reserved, b.Refused))
		}
		if got := strings.Join(rows, "|"); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	a.Limits("nobody") // asking makes no budget
	state("at first", "day  10 0 0 0")
	begin("s", "y")
	begin("t", "x")
	r, _ := a.Reserve("s", one(council.Stage1, million/4))
	r.Charge(t.Context(), spend.Billed{})
	state("with two sessions", "day  10 0.25 1.75 0|token x 6 0 1 0|token y 6 0.25 0.75 0")
	a.End(t.Context(), "s", false)
	state("when one ended", "day  10 0.25 1 0|token x 6 0 1 0|token y 6 0.25 0 0")
	for _, limit := range []spend.USD{6 * spend.Dollar, 9 * spend.Dollar} {
		refused := spend.Opening{Session: "v", Token: "x", Limit: &limit, Models: []string{"a"}}
		if failure := a.Begin(t.Context(), refused); failure == nil || failure.Code != council.CodeOverBudget {
			t.Errorf("%v: %v", limit, failure)
		}
	}
	state("when one fits neither, and one not that of its token", "day  10 0.25 1 1|token x 6 0 1 1|token y 6 0.25 0 0")
	now = now.Add(time.Hour)
	state("on the next day", "day  10 0 0 0")
	begin("u", "y")
	state("with its first session", "day  10 0 1 0|token y 6 0 1 0")
	if free := spend.NewBook(spend.Options{Tariff: tariffs}).Budgets(); len(free) != 1 || free[0].Limit != nil {
		t.Errorf("without limits: %+v", free)
	}
}

func TestOverBounds(t *testing.T) {
	a := spend.NewBook(spend.Options{Tariff: tariffs})
	if failure := a.Begin(t.Context(), spend.Opening{Session: "s", Models: []string{"a", "b"}}); failure != nil {
		t.Fatal(failure)
	}
	for _, cost := range []spend.USD{1000 * million, 1000 * million, 1001 * million} { // the bound grows with the first
		r, _ := a.Reserve("s", one(council.Stage1, 5))
		r.Charge(t.Context(), spend.Billed{CostUSD: &cost})
	}
	if got := a.OverBounds(); !maps.Equal(got, map[string]int{"a": 2, "b": 0}) {
		t.Errorf("%v", got)
	}
}
