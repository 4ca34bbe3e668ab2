package daemon_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// figures returns the metrics of a daemon whose names begin with prefix, as they stand on /metrics.
func figures(t *testing.T, d *daemontest.Daemon, prefix string) map[string]float64 {
	t.Helper()
	_, text := d.Call(t, "GET", "/metrics", "")
	all := map[string]float64{}
	for _, row := range regexp.MustCompile(`(?m)^(`+prefix+`\S*) (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(row[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[row[1]] = value
	}
	return all
}

// What /metrics says of money is what the provider billed. After a restart, what counts against
// the limits of the day is what counted before.
func TestSpendMeasured(t *testing.T) {
	b := daemontest.Bill(t, 0)
	settings := hardSettings(b, map[string]string{
		"API_TOKENS": "ada:0123456789abcdef,bob:fedcba9876543210", "MAX_COST_USD_PER_DAY": "5", "MAX_COST_USD_PER_TOKEN_DAY": "2",
		"PRICES":     "a=1.25/10@" + time.Now().UTC().AddDate(0, 0, -50).Format(time.DateOnly) + ",b=1.25/10,c=1.25/10",
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
	})
	budgets := func(d *daemontest.Daemon, when string, ada, bob spend.USD) {
		t.Helper()
		got := figures(t, d, "councild_budget_")
		want := map[string]float64{
			`councild_budget_limit_usd{scope="day",token=""}`:        5,
			`councild_budget_used_usd{scope="day",token=""}`:         ada.Plus(bob).Float64(),
			`councild_budget_reserved_usd{scope="day",token=""}`:     0,
			`councild_budget_refused_sessions{scope="day",token=""}`: 0,
		}
		for token, used := range map[string]spend.USD{"ada": ada, "bob": bob} {
			if used > 0 {
				labels := `{scope="token",token="` + token + `"}`
				want["councild_budget_limit_usd"+labels] = 2
				want["councild_budget_used_usd"+labels] = used.Float64()
				want["councild_budget_reserved_usd"+labels] = 0
				want["councild_budget_refused_sessions"+labels] = 0
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
		for name, value := range want {
			if have, ok := got[name]; !ok || have != value {
				t.Errorf("%s: %s is %v, want %v", when, name, have, value)
			}
		}
	}
	spent := func(d *daemontest.Daemon) (sum float64) {
		for _, value := range figures(t, d, "councild_spend_usd_total") {
			sum += value
		}
		return sum
	}
	d := daemontest.Start(t, settings)
	budgets(d, "at first", 0, 0)
	d.Token = "0123456789abcdef"
	d.Ask(t, anyQuestion)
	ada := billed(b)
	d.Token = "fedcba9876543210"
	for range 2 {
		d.Ask(t, `{"query":"x","models":["b","c"]}`)
	}
	bob := billed(b) - ada
	budgets(d, "after three sessions", ada, bob)
	if got, want := spent(d), billed(b).Float64(); got < want*(1-1e-9) || got > want*(1+1e-9) {
		t.Errorf("%v are spent, and %v were billed", got, want)
	}
	bills := figures(t, d, "councild_spend_usd_total")
	for _, labels := range []string{`council="default",model="b",source="provider"`, `council="default",model="c",source="provider"`} {
		if bills["councild_spend_usd_total{"+labels+"}"] == 0 {
			t.Errorf("nothing is spent in {%s}: %v", labels, bills)
		}
	}
	if value, ok := bills[`councild_spend_usd_total{council="default",model="a",source="bound"}`]; !ok || value != 0 {
		t.Errorf("what may grow does not begin at 0: %v", bills)
	}
	ages := figures(t, d, "councild_price_age_days")
	if age := ages[`councild_price_age_days{model="a"}`]; len(ages) != 1 || age < 50 || age >= 51 {
		t.Errorf("ages of prices: %v", ages)
	}
	if over := figures(t, d, "councild_cost_over_bound_total"); len(over) != 3 || over[`councild_cost_over_bound_total{model="a"}`] != 0 {
		t.Errorf("over their bounds: %v", over)
	}
	d.End(t)

	d = daemontest.Start(t, settings)
	budgets(d, "after a restart", ada, bob)
	if got := spent(d); got != 0 {
		t.Errorf("a counter of the process that is gone goes on at %v", got)
	}
}
