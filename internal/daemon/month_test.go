package daemon_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/telemetry"
	"github.com/councild/councild/internal/testkit"
)

// appendedFile is a ledger in a file.
type appendedFile struct{ *os.File }

func (f appendedFile) Append(_ context.Context, _ bool, lines ...[]byte) error {
	_, err := f.Write(bytes.Join(lines, nil))
	return err
}

// row is what a row of a report must say. Its sums are in picodollars.
type row struct {
	sessions, calls, unknown int
	total, uncertain         big.Int
}

// usd returns picodollars as dollars, computed apart from the package that is tested.
func usd(picodollars *big.Int) *big.Rat { return new(big.Rat).SetFrac(picodollars, big.NewInt(1e12)) }

// month is the month of a team: what its daemons do, and what that must come to. A step is half an hour.
type month struct {
	now      time.Time
	step     int
	ledger   appendedFile
	accounts *spend.Book
	metrics  *telemetry.Metrics
	rows     map[string]map[string]*row  // by kind of row and key: what is in the ledger
	paid     map[string]map[string]int64 // by label and its value: what requests cost, in picodollars
	series   map[string][]string         // by name and labels: the value of each step
}

const (
	stepsPerDay  = 48
	daysPerMonth = 30
)

// begin starts a daemon's accounts, on the ledger that there is.
func (m *month) begin(t *testing.T) {
	t.Helper()
	m.accounts = spend.NewBook(spend.Options{
		TokenDay: new(1000 * spend.Dollar), Ledger: m.ledger, Now: func() time.Time { return m.now },
		Tariff: func(model string) (spend.Tariff, bool) {
			text, ok := map[string]string{"large": "1.25/10", "small": "0.1/0.4"}[model]
			tariff, err := spend.ParseTariff(text)
			return tariff, ok && err == nil
		},
	})
	if err := m.accounts.Replay(daemon.LedgerLines(t.Context(), m.ledger.Name()), nil); err != nil {
		t.Fatal(err)
	}
	m.metrics = telemetry.NewMetrics("", nil)
	daemon.MeasureSpend(m.metrics, m.accounts)
}

// scrape adds what /metrics has of money to the series.
func (m *month) scrape() {
	reply := httptest.NewRecorder()
	m.metrics.Handler().ServeHTTP(reply, httptest.NewRequest("GET", "/metrics", nil))
	for _, found := range regexp.MustCompile(`(?m)^(councild_(?:spend|budget)\S+) (\S+)$`).FindAllStringSubmatch(reply.Body.String(), -1) {
		values := m.series[found[1]]
		for len(values) < m.step {
			values = append(values, "_") // nothing was scraped
		}
		m.series[found[1]] = append(values, found[2])
	}
}

// keysOf returns the rows and labels that a model's calls of a session belong to. Model "" is a session.
func (m *month) keysOf(o spend.Opening, model string) map[string]string {
	return map[string]string{"day": m.now.Format(time.DateOnly), "token": o.Token, "council": o.Council, "model": model}
}

// note adds to the rows of the ledger.
func (m *month) note(o spend.Opening, model string, add func(kind string, r *row)) {
	for kind, key := range m.keysOf(o, model) {
		if m.rows[kind] == nil {
			m.rows[kind] = map[string]*row{}
		}
		if m.rows[kind][key] == nil {
			m.rows[kind][key] = &row{}
		}
		add(kind, m.rows[kind][key])
	}
}

func (m *month) open(t *testing.T, o spend.Opening) {
	t.Helper()
	if _, failure := m.accounts.Open(t.Context(), o); failure != nil {
		t.Fatal(failure)
	}
	for kind := range m.keysOf(o, "") {
		if kind != "model" {
			m.note(o, "", func(k string, r *row) {
				if k == kind {
					r.sessions++
				}
			})
		}
	}
}

// price is that of a token of input and of output in picodollars, as a reader of the tariffs works it out.
var price = map[string][2]int64{"large": {1_250_000, 10_000_000}, "small": {100_000, 400_000}}

// call makes a call of a session, and notes what it must cost.
func (m *month) call(t *testing.T, rng *rand.Rand, o spend.Opening, model string) {
	t.Helper()
	at := spend.Attempt{
		Stage: council.Stage1, Model: model, Number: 1, Bytes: 1 + rng.Int64N(20_000), OutputLimit: new(1 + rng.IntN(4000)),
	}
	r, failure := m.accounts.Account(o.Session).Reserve(at)
	if failure != nil {
		t.Fatal(failure)
	}
	p, priced := price[model]
	bound := at.Bytes*p[0] + int64(*at.OutputLimit)*p[1]
	var cost int64
	var outcome spend.Billed
	source, known := spend.SourceBound, priced
	switch tokens := (&spend.Tokens{Input: rng.Int64N(at.Bytes), Output: rng.Int64N(int64(*at.OutputLimit))}); rng.IntN(6) {
	case 0: // cut off
		cost = bound
	case 1: // the provider says what it costs
		if cost = 1 + rng.Int64N(1e10); priced {
			cost = 1 + rng.Int64N(bound) // a bill above its bound would raise the later bounds
		}
		source, known = spend.SourceProvider, true
		outcome = spend.Billed{CostUSD: new(spend.USD(cost))}
	default:
		cost, source = tokens.Input*p[0]+tokens.Output*p[1], spend.SourceTariff
		outcome = spend.Billed{Tokens: tokens}
	}
	r.Charge(t.Context(), outcome)
	m.note(o, model, func(_ string, r *row) {
		r.calls++
		switch {
		case !known:
			r.unknown++
		case source == spend.SourceBound:
			r.uncertain.Add(&r.uncertain, big.NewInt(cost))
			fallthrough
		default:
			r.total.Add(&r.total, big.NewInt(cost))
		}
	})
	if !known {
		return
	}
	keys := m.keysOf(o, model)
	keys["source"] = string(source)
	for label, key := range keys {
		if m.paid[label] == nil {
			m.paid[label] = map[string]int64{}
		}
		m.paid[label][key] += cost
	}
}

// crash lets a session with a limit be cut off before its first call: it counts whole, as uncertain.
func (m *month) crash(t *testing.T) {
	t.Helper()
	limit := 2*spend.Dollar + 1
	o := spend.Opening{Session: "cut off", Token: "ci", Council: "fast", Limit: &limit, Models: []string{"large"}}
	m.open(t, o)
	m.note(o, "", func(kind string, r *row) {
		if kind == "model" {
			r.sessions++
		}
		r.total.Add(&r.total, big.NewInt(int64(limit)))
		r.uncertain.Add(&r.uncertain, big.NewInt(int64(limit)))
	})
	m.paid["token"]["ci"] += int64(limit) // it counts against the limit of the token
	m.begin(t)
}

// simulate plays the month: three tokens and three councils, calls of all kinds, restarts and a crash.
func simulate(t *testing.T) *month {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "spend.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	first := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	m := &month{
		now: first, ledger: appendedFile{file}, rows: map[string]map[string]*row{}, paid: map[string]map[string]int64{},
		series: map[string][]string{},
	}
	m.begin(t)
	rng := rand.New(rand.NewPCG(2026, 10))
	tokens, councils := []string{"ada", "bob", "ci"}, []string{"fast", "deep", "large,small;large"}
	models := []string{"large", "small", "other"} // nobody knows what the last one costs
	var open []spend.Opening
	for m.step = range daysPerMonth*stepsPerDay + 1 {
		m.now = first.Add(time.Duration(m.step) * 24 * time.Hour / stepsPerDay)
		switch day, at := m.step/stepsPerDay, m.step%stepsPerDay; {
		case day == daysPerMonth:
		case at == 44 && day%9 == 4: // it is restarted, and on one day it is killed
			if day == 13 {
				m.crash(t)
			} else {
				m.begin(t)
			}
		case at < 2 || at >= 41:
		case at%3 == 2:
			for n, council := range councils {
				open = append(open, spend.Opening{
					Session: fmt.Sprint(m.step, "-", n), Token: tokens[rng.IntN(len(tokens))], Council: council, Models: models,
				})
				m.open(t, open[n])
			}
		case at%3 == 0:
			for _, o := range open {
				for _, model := range models {
					m.note(o, model, func(kind string, r *row) {
						if kind == "model" {
							r.sessions++
						}
					})
					for range 1 + rng.IntN(4) {
						m.call(t, rng, o, model)
					}
				}
			}
		default:
			for _, o := range open {
				m.accounts.Account(o.Session).Close(t.Context(), false)
			}
			open = nil
		}
		m.scrape()
	}
	return m
}

// The bill of a month is the same to the last digit as a sum of its own, by each kind of row, as JSON and CSV of
// councild report spend. As text it is this sum, rounded. The dashboard's expressions come to the same to the millionth, for a day to 3 %: there, increase()
// extrapolates beyond a restart.
func TestBillOfAMonth(t *testing.T) {
	testkit.Slow(t)
	m := simulate(t)
	for _, kind := range []string{"day", "token", "council", "model"} {
		for _, format := range []string{"text", "json", "csv"} {
			var out, log bytes.Buffer
			args := []string{"report", "spend", "--days", "0", "--input", m.ledger.Name(), "--by", kind, "--format", format}
			if code := cli.Main(t.Context(), cli.IO{Args: args, Stdout: &out, Stderr: &log}); code != 0 {
				t.Fatalf("%v: exit code %d, %s", args, code, &log)
			}
			compareBill(t, kind+" as "+format, m.rows[kind], billRows(t, format, out.Bytes()))
		}
	}
	m.compareDashboard(t)
}

// billRows reads the rows of a report: key, sessions, calls, total, uncertain, unknown.
func billRows(t *testing.T, format string, report []byte) (rows [][]string) {
	t.Helper()
	switch format {
	case "text":
		for line := range strings.Lines(string(report)) {
			if f := strings.Fields(line); len(f) == 6 && f[0] != "COST" {
				rows = append(rows, []string{strings.TrimPrefix(f[5], "(none)"), f[4], f[3], f[0], f[1], f[2]})
			}
		}
	case "csv":
		var err error
		if rows, err = csv.NewReader(bytes.NewReader(report)).ReadAll(); err != nil {
			t.Fatal(err)
		}
		rows = rows[1:]
	default:
		var r struct {
			Rows []struct {
				Key       string
				Sessions  json.Number
				Calls     json.Number
				Total     json.Number `json:"total_usd"`
				Uncertain json.Number `json:"uncertain_usd"`
				Unknown   json.Number `json:"unknown_calls"`
			}
		}
		if err := json.Unmarshal(report, &r); err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Rows {
			rows = append(rows, []string{x.Key, string(x.Sessions), string(x.Calls), string(x.Total), string(x.Uncertain), string(x.Unknown)})
		}
	}
	return rows
}

func compareBill(t *testing.T, name string, want map[string]*row, got [][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("by %s: %d rows, want %d", name, len(got), len(want))
	}
	for _, r := range got {
		w := want[r[0]]
		if w == nil {
			t.Errorf("by %s: nobody made row %q", name, r)
			continue
		}
		if r[1] != strconv.Itoa(w.sessions) || r[2] != strconv.Itoa(w.calls) || r[5] != strconv.Itoa(w.unknown) {
			t.Errorf("by %s: %q, want %d sessions, %d calls, %d unknown", name, r, w.sessions, w.calls, w.unknown)
		}
		for i, sum := range []*big.Int{&w.total, &w.uncertain} {
			if strings.HasPrefix(r[3+i], "$") { // text has the amount rounded
				if rounded := spend.USD(sum.Int64()).Dollars(); r[3+i] != rounded {
					t.Errorf("by %s: %q, want %s", name, r, rounded)
				}
				continue
			}
			if amount, ok := new(big.Rat).SetString(r[3+i]); !ok || amount.Cmp(usd(sum)) != 0 {
				t.Errorf("by %s: %q, want %v", name, r, usd(sum).FloatString(12))
			}
		}
	}
}

// compareDashboard has promtool evaluate the dashboard's expressions over what was scraped.
func (m *month) compareDashboard(t *testing.T) {
	t.Helper()
	var file strings.Builder
	file.WriteString("tests:\n  - interval: 30m\n    input_series:\n")
	for _, name := range slices.Sorted(maps.Keys(m.series)) {
		labelled := strings.Replace(name, "{", `{instance="a",`, 1)
		fmt.Fprintf(&file, "      - {series: '%s', values: '%s'}\n", labelled, strings.Join(m.series[name], " "))
	}
	labels := []string{"council", "model", "token", "source"}
	for _, label := range labels {
		for key, paid := range m.paid[label] {
			fmt.Fprintf(&file, "      - {series: 'want_%s{%s=%q}', values: '%vx%d'}\n",
				label, label, key, spend.USD(paid).Float64(), daysPerMonth*stepsPerDay)
		}
	}
	expressions := panels(t)
	one := func(title string) string {
		t.Helper()
		if len(expressions[title]) != 1 {
			t.Fatalf("the dashboard has %d expressions in %q", len(expressions[title]), title)
		}
		return expressions[title][0]
	}
	file.WriteString("    promql_expr_test:\n")
	for _, label := range labels {
		fmt.Fprintf(&file, "      - expr: 'abs((%s) / on (%s) want_%s - 1) < bool 1e-6'\n        eval_time: %dd\n        exp_samples:\n",
			one("Spend of 30 days, by "+label), label, label, daysPerMonth)
		for _, key := range slices.Sorted(maps.Keys(m.paid[label])) {
			if key == "other" && label == "council" {
				t.Error("a council is not told apart")
			}
			fmt.Fprintf(&file, "          - {labels: '{%s=%q}', value: 1}\n", label, key)
		}
	}
	for n, day := range slices.Sorted(maps.Keys(m.paid["day"])) {
		fmt.Fprintf(&file, "      - {expr: 'abs((%s) / %v - 1) < bool 0.03', eval_time: %dd, exp_samples: [{labels: '{}', value: 1}]}\n",
			one("Spend by day (UTC)"), spend.USD(m.paid["day"][day]).Float64(), n+1)
	}
	path := filepath.Join(t.TempDir(), "month.yml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", path)
}
