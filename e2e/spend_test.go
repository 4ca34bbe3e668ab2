package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
)

// limited starts a daemon whose models have prices, under hard limits of a session and of a day.
func limited(t *testing.T) string {
	t.Helper()
	models := members()
	var prices []string
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
		prices = append(prices, models[i].Name+"=1/10")
	}
	return daemon(t, map[string]string{
		"PRICES": strings.Join(prices, ","), "COST_LIMITS": "hard", "MAX_OUTPUT_TOKENS": "1000", "MAX_COST_USD": "2", "MAX_COST_USD_PER_DAY": "3",
	}, models...)
}

// twoCouncils starts a daemon whose roster has a council of four, which is asked by default, and one of two.
func twoCouncils(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "roster.yaml")
	var models strings.Builder
	for _, m := range members() {
		fmt.Fprintf(&models, "  %s: {model: %[1]s, max_output_tokens: 1000, price: {as_of: 2026-11-20, input: 1, output: 10}}\n", m.Name)
	}
	roster := "version: 1\ndefault: deep\nmodels:\n" + models.String() +
		"councils:\n  deep: {members: [amber, birch, cedar, dune]}\n  fast: {members: [cedar, dune], chairman: dune, max_cost_usd: 0.5}\n"
	if err := os.WriteFile(path, []byte(roster), 0o600); err != nil {
		t.Fatal(err)
	}
	return daemon(t, map[string]string{"MODELS": "", "ROSTER": path}, members()...)
}

// TestCouncils holds that one of the councils of a roster is chosen, with the keyboard too, and
// that the estimate, the draft and the session are of that one.
func TestCouncils(t *testing.T) {
	t.Parallel()
	p := open(t, twoCouncils(t), "")
	p.until(`!document.getElementById("councils").hidden`)
	line := func() string {
		return value[string](p, `document.getElementById("offer").innerText.replace(/\s+/g, " ").trim()`)
	}
	if got := line(); !strings.Contains(got, "4 answers, reviewed, one synthesis · 9 calls") {
		t.Errorf("the council reads %q", got)
	}
	if value[bool](p, `document.getElementById("models").checkVisibility()`) {
		t.Error("members can be chosen beside a council")
	}
	p.choose("query", "Which council?")
	p.says("#estimate", "9 calls")
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("council").focus()`))
	p.press(kb.ArrowDown)
	p.until(`document.activeElement.id === "council" && document.activeElement.value === "fast"`)
	p.says("#estimate", "5 calls")
	p.says("#council-line", "2 answers, reviewed, one synthesis")
	p.says("#estimate", "Within budget.")
	p.shot("fast")
	p.do(chromedp.Reload())
	p.until(`document.getElementById("council").value === "fast" && document.getElementById("query").value === "Which council?"`)
	p.says("#estimate", "5 calls")
	p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
	p.says(said, "The answer is complete.")
	if asked := p.request(); asked.Council != "fast" || asked.Models != nil {
		t.Errorf("asked was %q with %v", asked.Council, asked.Models)
	}
	id := value[string](p, `location.hash.split("/").pop()`)
	p.do(chromedp.Click(chromedp.CSS(".brand")))
	p.until(`document.getElementById("council").value === "deep"`)
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/again/` + id + `"`))
	p.until(`document.getElementById("council").value === "fast"`)
}

// TestMembersBesideCouncils holds that members that were chosen are asked again where there are several councils, that they
// can be changed, and that another council can take their place.
func TestMembersBesideCouncils(t *testing.T) {
	t.Parallel()
	origin := twoCouncils(t)
	post(t, origin, `{"query": "Who of you?", "models": ["amber", "dune"]}`)
	view := "#/again/" + get[struct{ Sessions []council.Summary }](t, origin+"/v1/council").Sessions[0].ID
	for name, again := range map[string]struct {
		press string // a selector
		want  council.Request
	}{
		"as before": {"#query", council.Request{Models: []string{"amber", "dune"}}},
		"one more":  {`#models-choice input[value="cedar"]`, council.Request{Models: []string{"amber", "cedar", "dune"}}},
		"a council": {"", council.Request{Council: "fast"}},
	} {
		p := open(t, origin, view)
		p.until(`document.getElementById("models-choice").checkVisibility()`)
		if again.press == "" {
			p.choose("council", "fast")
		} else {
			p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("options").open = true`))
			p.do(chromedp.Click(chromedp.CSS(again.press)))
		}
		if shown := value[bool](p, `document.getElementById("models").checkVisibility()`); shown != (again.want.Council == "") {
			t.Errorf("%s: the members are shown: %v", name, shown)
		}
		p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
		p.until(`location.hash.startsWith("#/session/")`)
		got := p.request()
		if diff := cmp.Diff(again.want, council.Request{Models: got.Models, Council: got.Council}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// asked returns how many estimates the page has asked for.
func (p *tab) asked() int {
	p.Helper()
	return value[int](p, `performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/v1/council/estimate")).length`)
}

// TestEstimate holds that the form says what its question would cost and whether the limits
// leave room for it, once for a burst of changes, and nothing before there is a question.
func TestEstimate(t *testing.T) {
	t.Parallel()
	p := open(t, limited(t), "")
	p.until(`!document.getElementById("models").hidden`)
	p.choose("category", "math")
	p.choose("query", " ")
	p.choose("query", "What")
	p.choose("query", "What does it")
	p.choose("query", "What does it cost?")
	p.says("#estimate", "9 calls, at most $")
	p.says("#estimate", "Within budget. $3.00 of today's $3.00 left.")
	if n := p.asked(); n != 1 {
		t.Errorf("%d estimates for one burst of changes", n)
	}
	p.shot("fits")
	p.choose("max_cost_usd", "0.001")
	p.says("#estimate", "It would be refused: ")
	p.says("#estimate", " of the limit of $0.001. Set a limit of $0.085 or more, or choose fewer members.")
	p.shot("refused")
	p.choose("max_cost_usd", "much")
	p.until(`document.getElementById("estimate").textContent === "9 calls."`)
	p.choose("query", "")
	p.choose("max_cost_usd", "")
	p.choose("query", "What does it cost after a reload?")
	p.do(chromedp.Reload())
	p.says("#estimate", "at most $")
	for range 20 { // from then on what each model's calls cost is expected of the next
		post(t, p.origin, `{"query": "What does it usually cost?"}`)
	}
	p.choose("query", "What does it cost now?")
	p.says("#estimate", "9 calls, about $0.0")
}

// TestEstimateIsAborted holds that an estimate that is on its way is aborted when the form
// changes, and that the form then shows the next one.
func TestEstimateIsAborted(t *testing.T) {
	t.Parallel()
	target, err := url.Parse(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	arrived, aborted := make(chan struct{}), make(chan struct{})
	var first sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/council/estimate" {
			first.Do(func() {
				_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the page has gone
				close(arrived)
				<-r.Context().Done()
				close(aborted)
			})
		}
		if r.Context().Err() == nil {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	within := func(happened chan struct{}, what string) {
		t.Helper()
		select {
		case <-happened:
		case <-time.After(pageTimeout):
			t.Fatalf("the first estimate was not %s", what)
		}
	}
	p := open(t, server.URL, "")
	p.until(`!document.getElementById("models").hidden`)
	p.choose("query", "What does this cost?")
	within(arrived, "asked for")
	p.choose("max_cost_usd", "0.001")
	within(aborted, "aborted")
	p.says("#estimate", " of the limit of $0.001. Set a limit of $0.085 or more, or choose fewer members.")
}

// TestEstimateOfUnknownPrices holds that the form names the models whose price nobody knows.
func TestEstimateOfUnknownPrices(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"PRICES": "amber=1/10,birch=1/10"}, members()...), "")
	p.until(`!document.getElementById("models").hidden`)
	p.choose("query", "Who is unpriced?")
	p.says("#estimate", "9 calls. No estimate: there is no price for cedar, dune.")
}

// TestBillOfFailures holds that a session says what of its cost is uncertain.
func TestBillOfFailures(t *testing.T) {
	t.Parallel()
	models := members()
	models[3].Faults = []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 500}}
	p := open(t, daemon(t, map[string]string{
		"PRICES": "amber=1/10,birch=1/10,cedar=1/10,dune=1/10", "MAX_OUTPUT_TOKENS": "1000", "MAX_COST_USD": "2",
	}, models...), "")
	p.ask("What is uncertain?")
	p.says(said, "The answer is degraded.")
	const figures = `section[aria-labelledby="part-figures"]`
	p.says(figures, "It cost ")
	p.says(figures, " of the cost is uncertain, because attempts that failed or were cut off count")
}

// TestSmallCosts holds that a cost that is known is never shown as nothing, and that one that is known in part is shown as a
// lower bound, wherever the page says what a session cost.
func TestSmallCosts(t *testing.T) {
	t.Parallel()
	models := members()
	for i := range models {
		models[i].Price = simllm.Price{Input: 0.0005, Output: 0.001}
	}
	models[3].Price = simllm.Price{} // nobody says what it costs
	p := open(t, daemon(t, nil, models...), "")
	p.ask("Is it cheap?")
	p.says(said, "The answer is complete.")
	const cheap = `\$0\.0000\d*[1-9]\d?(?!\d)`
	const figures = `document.querySelector("section[aria-labelledby=part-figures]")`
	p.until(`/, at least ` + cheap + `/.test(` + figures + `?.querySelector("summary").textContent)`)
	p.until(`/Cost ?at least ` + cheap + `/.test(` + figures + `.querySelector("dl").textContent)`)
	p.until(`/It cost at least ` + cheap + `\./.test(` + figures + `.textContent)`)
	p.until(`/Written by amber.* · ` + cheap + `/.test(document.querySelector("section[aria-labelledby=part-answer] .hint").textContent)`)
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	p.until(`/ · ` + cheap + `/.test(document.querySelector("#sessions li .hint")?.textContent)`)
	p.until(`/about ` + cheap + `/.test(document.getElementById("estimate").textContent)`)
}

// TestBill holds that a session says at its end what it cost and what is left of today's
// limit, and that the spend of the days stands on a page of its own.
func TestBill(t *testing.T) {
	t.Parallel()
	p := open(t, limited(t), "")
	p.ask("What has it cost?")
	p.says(said, "The answer is complete.")
	const figures = `section[aria-labelledby="part-figures"]`
	p.says(figures, "It cost $0.0")
	p.says(figures, ". $2.9")
	p.says(figures, " of today's $3.00 left.")
	p.shot("session")
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/spend"]`)))
	p.says("#spend", "By model")
	if focus := value[string](p, `document.activeElement.textContent`); focus != "Spend" {
		t.Errorf("the focus is at %q", focus)
	}
	rows := value[[][]string](p, `[...document.querySelectorAll("#spend .figure")].map((f) => [f.querySelector("h2").textContent,
		...[...f.querySelectorAll("tbody tr")].map((r) => r.cells[0].textContent + "|" + r.cells[4].textContent + "|" + r.cells[5].textContent)])`)
	report := get[spend.Costs](t, p.origin+"/v1/spend")
	want := [][]string{
		{"By day", report.Rows[0].Key + "|9|1"},
		{"By council", "default|9|1"},
		{"By model", "amber|3|1", "birch|2|1", "cedar|2|1", "dune|2|1"},
	}
	if len(rows) == 3 {
		slices.Sort(rows[2])
	}
	if !slices.EqualFunc(rows, want, slices.Equal) {
		t.Errorf("the tables read %q, want %q", rows, want)
	}
	p.says("#spend .lead", report.Total.Dollars()+" spent in the last 30 days.")
	p.shot("spend")
	p.choose("spend-days", "x")
	p.do(chromedp.Click(chromedp.CSS("#spend form button")))
	p.until(`location.hash === "#/spend?days=x"`)
	p.says("#spend .notice", "days")
}
