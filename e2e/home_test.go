package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
)

// choose sets the value of a field as a reader does.
func (p *tab) choose(id, value string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		const field = document.getElementById(%q);
		field.value = %q;
		field.dispatchEvent(new Event("input", { bubbles: true }));
	}`, id, value)))
}

// request returns what was asked in the session that is shown.
func (p *tab) request() council.Request {
	p.Helper()
	id := strings.TrimPrefix(value[string](p, `location.hash`), "#/session/")
	return get[council.Request](p.T, p.origin+"/v1/council/"+id+"/request")
}

// TestHome holds that one line says which council answers, in which mode, how long that takes and what it costs: before the
// first session without a time, and afterwards with the time and the cost of the sessions. Nothing says that a cost is not
// known beside the cost.
func TestHome(t *testing.T) {
	t.Parallel()
	models := members()
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
	}
	p := open(t, daemon(t, map[string]string{"CHAIRMAN": "cedar", "MAX_COST_USD": "0.5"}, models...), "")
	offer := func() string {
		return value[string](p, `document.getElementById("offer").innerText.replace(/\s+/g, " ").trim()`)
	}
	const mode = "4 answers, reviewed, one synthesis · "
	p.says("#estimate", "9 calls.")
	if got := offer(); !strings.HasPrefix(got, mode+"9 calls. No estimate: there is no price for ") {
		t.Errorf("before the first session it reads %q", got)
	}
	p.shot("empty")
	p.ask("What does it take?")
	p.says(said, "The answer is complete.")
	cost := p.session()["metadata"].(map[string]any)["usage"].(map[string]any)["cost_usd"].(float64)
	p.do(chromedp.Click(chromedp.CSS(".brand")))
	about := "9 calls, about " + spend.FromFloat(cost).Dollars() + "."
	p.says("#estimate", about)
	if got := offer(); got != mode+"under 1 s · "+about {
		t.Errorf("after a session it reads %q", got)
	}
	p.choose("query", "What does the next one cost?")
	p.says("#estimate", about+" No upper limit: there is no price for ")
	p.says("#estimate", "Within budget. The session stops asking once $0.50 is spent. Calls that are under way may pass it.")
	if got := value[string](p, `document.getElementById("ask").innerText`); strings.Contains(got, "not known yet") {
		t.Errorf("beside a known cost it reads %q", got)
	}
	p.shot("estimate")
	p.do(chromedp.Click(chromedp.CSS("#options summary")))
	facts := value[string](p, `[...document.querySelectorAll("#council-facts > div")]`+
		`.map((d) => [...d.children].map((c) => c.textContent).join(": ")).join("\n")`)
	if facts != "" {
		t.Errorf("beside the members to choose it reads %q", facts)
	}
	p.says("#cost-use", "The session stops asking once this is spent. Calls that are under way may pass it.")
	if got := value[string](p, `document.getElementById("max_cost_usd").placeholder`); got != "$0.50" {
		t.Errorf("the limit of the council reads %q", got)
	}
	p.look(390, 844, "dark")
	p.shot("options")
}

// TestAmounts holds that the page writes amounts as the daemon does.
func TestAmounts(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "")
	for _, usd := range []float64{0, 1e-12, 0.0000128, 0.0031, 0.0319, 0.05, 0.0994, 0.0996, 0.1, 0.3149, 0.996, 4.9713, 999.999, 1234567.5} {
		want := spend.FromFloat(usd).Dollars()
		if got := value[string](p, fmt.Sprintf(`import("/assets/dom.js").then((dom) => dom.usd(%g))`, usd)); got != want {
			t.Errorf("%g is written %s, and the daemon writes %s", usd, got, want)
		}
	}
}

// TestChoices holds that members, chairman, cost limit, category and language are asked
// as chosen, from those that the daemon allows, and that a draft survives a reload.
func TestChoices(t *testing.T) {
	t.Parallel()
	env := map[string]string{"MODELS": "amber,birch,cedar", "ALLOWED_MODELS": "amber,birch,cedar,dune"}
	p := open(t, daemon(t, env, members()...), "")
	p.until(`!document.getElementById("models").hidden`)
	p.do(chromedp.Click(chromedp.CSS("#options summary")))
	boxes := func() string {
		return value[string](p, `[...document.querySelectorAll("#models-choice input")].map((b) => b.value + " " + b.checked).join(", ")`)
	}
	if got := boxes(); got != "amber true, birch true, cedar true, dune false" {
		t.Errorf("the members to choose read %q", got)
	}
	p.do(chromedp.Click(chromedp.CSS(`#models-choice input[value="birch"]`)))
	p.do(chromedp.Click(chromedp.CSS(`#models-choice input[value="dune"]`)))
	for id, value := range map[string]string{
		"chairman": "dune", "max_cost_usd": "0.25", "category": "math", "language": "de", "query": "Who was chosen?",
	} {
		p.choose(id, value)
	}
	p.shot("choices")
	p.do(chromedp.Reload())
	p.until(`!document.getElementById("models").hidden`)
	if got := boxes(); got != "amber true, birch false, cedar true, dune true" {
		t.Errorf("after a reload the members read %q", got)
	}
	p.do(chromedp.Click(chromedp.ID("query")))
	p.press("\r")
	p.until(`location.hash.startsWith("#/session/")`)
	got := p.request()
	want := council.Request{
		Query: "Who was chosen?", Models: []string{"amber", "cedar", "dune"}, Chairman: "dune", MaxCostUSD: new(0.25), Mode: council.ModeCouncil,
		Category: "math", Language: "de",
	}
	got.Seed, got.Order, got.TimeoutSeconds, got.OnPartial = nil, "", nil, ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was asked (-want +got):\n%s", diff)
	}
	p.do(chromedp.Click(chromedp.CSS(".brand")))
	p.until(`document.getElementById("ask").checkVisibility()`)
	if value[string](p, `document.getElementById("query").value + document.getElementById("language").value`) != "" {
		t.Error("the form still holds what was asked")
	}
}

// TestAgain holds that a session can be asked again with changes, as part of its
// conversation.
func TestAgain(t *testing.T) {
	t.Parallel()
	seats := members()
	for i := range seats {
		seats[i].ResponseFormat = simllm.FormatHonoured
	}
	origin := daemon(t, nil, seats...)
	post(t, origin, `{"messages": [{"role": "user", "content": "First <b>question</b>?"}, {"role": "assistant", "content": "First answer."},
		{"role": "user", "content": "And then?"}],
		"models": ["amber", "birch", "cedar"], "category": "coding", "output_schema": {"type": "object"}}`)
	id := get[struct{ Sessions []council.Summary }](t, origin+"/v1/council").Sessions[0].ID
	p := open(t, origin, "#/again/"+id)
	p.until(`document.getElementById("query").value === "And then?"`)
	p.says("#earlier", "First <b>question</b>?")
	p.says("#earlier", "First answer.")
	p.says("#earlier", "As before, the answer must match a JSON Schema and the time limit is ")
	p.until(`!document.getElementById("models").hidden && document.activeElement.id === "query"`)
	p.shot("again")
	p.do(chromedp.Click(chromedp.CSS(`#models-choice input[value="dune"]`)))
	p.choose("query", "And now?")
	p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
	p.until(`location.hash.startsWith("#/session/")`)
	got := p.request()
	if len(got.Messages) != 3 || got.Messages[0].Content != "First <b>question</b>?" || got.Messages[2].Content != "And now?" {
		t.Errorf("the conversation is %v", got.Messages)
	}
	if !slices.Equal(got.Models, []string{"amber", "birch", "cedar", "dune"}) || got.Category != "coding" {
		t.Errorf("asked were %v in %q", got.Models, got.Category)
	}
	if string(got.OutputSchema) != `{"type":"object"}` {
		t.Errorf("the schema is %s", got.OutputSchema)
	}
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/again/none-such"`))
	p.says("#ask-problem", "there is no session")
}

// TestAgainWithLimits holds that the limits and choices that have no field are asked again, that the form names them, and that
// it can leave them out.
func TestAgainWithLimits(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, members()...)
	post(t, origin, `{"query": "Q?", "max_total_tokens": 100000, "on_partial": "refuse", "timeout_seconds": 60, "order": "per_reviewer"}`)
	view := "#/again/" + get[struct{ Sessions []council.Summary }](t, origin+"/v1/council").Sessions[0].ID
	limits := func(r council.Request) council.Request {
		return council.Request{MaxTotalTokens: r.MaxTotalTokens, OnPartial: r.OnPartial, TimeoutSeconds: r.TimeoutSeconds, Order: r.Order}
	}
	ask := func(drop bool) council.Request {
		t.Helper()
		p := open(t, origin, view)
		p.until(`document.getElementById("query").value === "Q?" && !document.getElementById("models").hidden`)
		p.says("#earlier", "As before, the order is per_reviewer, the time limit is 1 min, the limit is 100,000 tokens, "+
			"and an answer from only part of the council is refused.")
		if drop {
			p.do(chromedp.Click(chromedp.CSS("#earlier button")))
			p.until(`document.getElementById("earlier").hidden`)
		}
		p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
		p.until(`location.hash.startsWith("#/session/")`)
		return limits(p.request())
	}
	want := council.Request{
		MaxTotalTokens: new(int64(100000)), OnPartial: council.PartialRefuse, TimeoutSeconds: new(60.0), Order: council.OrderPerReviewer,
	}
	if diff := cmp.Diff(want, ask(false)); diff != "" {
		t.Errorf("what was asked again (-want +got):\n%s", diff)
	}
	post(t, origin, `{"query": "Q?"}`)
	usual := limits(get[council.Request](t, origin+"/v1/council/"+
		get[struct{ Sessions []council.Summary }](t, origin+"/v1/council").Sessions[0].ID+"/request"))
	if diff := cmp.Diff(usual, ask(true)); diff != "" {
		t.Errorf("without these (-want +got):\n%s", diff)
	}
}

// TestFieldProblems holds that each problem is shown at its field.
func TestFieldProblems(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "")
	p.until(`!document.getElementById("models").hidden`)
	p.do(chromedp.Click(chromedp.ID("query")))
	p.press("\r")
	p.says("#query-problem", "Write a question.")
	p.choose("query", "What is wrong?")
	p.choose("language", "E1")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("#models-choice input").forEach((b) => { b.checked = false; })`))
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#models-choice input").click()`))
	p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
	for _, field := range []string{"models", "language"} {
		p.until(fmt.Sprintf(`((place) => place.checkVisibility() && place.textContent)(document.getElementById("%s-problem"))`, field))
	}
	if got := value[string](p, `document.getElementById("query-problem").textContent`); got != "" {
		t.Errorf("the question still has the problem %q", got)
	}
	p.says("#models-problem", "Choose at least two members.")
	p.says("#language-problem", "Enter two letters, such as en.")
	p.shot("problems")
	for _, amount := range []string{"much", "-1", "0", "0,50"} {
		p.choose("max_cost_usd", amount)
		p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
		p.says("#max_cost_usd-problem", "Enter an amount in US dollars, such as 0.50.")
		p.says("#ask-problem", "Your question has not been sent. See the fields that are marked.")
	}
}

// firstPaint is how many bytes the page may take over the wire until it is painted.
const firstPaint = 60 << 10

// TestFirstPaint counts the bytes of all that the page loads before its views are shown.
func TestFirstPaint(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, members()...)
	p := newTab(chromium, t, origin, chromedp.WithNewBrowserContext())
	var mu sync.Mutex
	files, total := 0, 0.0
	err := chromedp.Listen(p.ctx, func(event any) {
		if e, ok := event.(*network.EventLoadingFinished); ok {
			mu.Lock()
			defer mu.Unlock()
			files++
			total += e.EncodedDataLength
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Navigate(origin + "/"))
	p.says("#sessions", "No sessions yet.")
	mu.Lock()
	defer mu.Unlock()
	t.Logf("the page takes %d requests and %.0f bytes until it is shown", files, total)
	if files < 5 || total > firstPaint {
		t.Errorf("the page takes %d requests and %.0f bytes, and may take %d", files, total, firstPaint)
	}
}

// TestDemoOffers holds that a demo says on every view that it is one, and that its questions are asked with one click. Another
// daemon says nothing of it.
func TestDemoOffers(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, members()...)
	p := open(t, origin, "")
	p.until(`!document.getElementById("models").hidden`)
	if value[bool](p, `document.getElementById("demo").checkVisibility() || document.getElementById("examples").checkVisibility()`) {
		t.Error("a daemon that is no demo says that it is one")
	}
	p = open(t, offering(t, origin, func(list map[string]any) {
		list["demo"] = map[string]any{"questions": []string{"Can one SQLite file carry our SaaS for a year?", "Is a monorepo worth it for nine teams?"}}
	}), "")
	for _, view := range []string{"", "#/history", "#/report", "#/spend", "#/none"} {
		p.do(chromedp.Navigate(p.origin + "/" + view))
		p.until(`document.getElementById("demo").checkVisibility()`)
		p.says("#demo", "Demo. The models are simulated, and nothing is paid.")
	}
	p.do(chromedp.Navigate(p.origin + "/"))
	p.until(`document.querySelectorAll("#examples-list button").length === 2`)
	p.shot("wide")
	p.axe("wide")
	p.look(390, 844, "dark")
	p.shot("narrow")
	p.axe("narrow")
	p.do(chromedp.Click(chromedp.CSS("#examples-list li:nth-child(2) button")))
	p.until(`location.hash.startsWith("#/session/")`)
	if got := p.request().Query; got != "Is a monorepo worth it for nine teams?" {
		t.Errorf("asked was %q", got)
	}
}

// offering returns the address of a proxy that changes the answer of GET /v1/councils.
func offering(t *testing.T, origin string, change func(list map[string]any)) string {
	t.Helper()
	return before(t, origin, func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if r.URL.Path != "/v1/councils" {
			daemon.ServeHTTP(w, r)
			return
		}
		r.Header.Del("Accept-Encoding")
		answer := httptest.NewRecorder()
		daemon.ServeHTTP(answer, r)
		var list map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil {
			t.Error(err)
		}
		change(list)
		_ = json.NewEncoder(w).Encode(list)
	})
}

// TestNoCouncil holds that the page names the three settings without which there is no council, and the command that tests
// them, and that it offers no question then.
func TestNoCouncil(t *testing.T) {
	t.Parallel()
	p := open(t, offering(t, daemon(t, nil, members()...), func(list map[string]any) { list["councils"] = []any{} }), "")
	p.until(`document.getElementById("no-council").checkVisibility() && !document.getElementById("question-form").checkVisibility()`)
	for _, want := range []string{"LLM_COUNCIL_BASE_URL", "LLM_COUNCIL_API_KEY", "LLM_COUNCIL_MODELS", "councild check"} {
		p.says("#no-council", want)
	}
	p.shot("wide")
	p.axe("no council")
}

// TestEnterOnAPhone holds that Enter starts a new line where a finger types, and that no hint says otherwise.
func TestEnterOnAPhone(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "")
	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch))
	p.do(chromedp.Reload())
	p.until(`matchMedia("(pointer: coarse)").matches && !document.getElementById("models").hidden`)
	p.do(chromedp.Click(chromedp.ID("query")))
	p.press("One line\rand another")
	if got := value[string](p, `document.getElementById("query").value`); got != "One line\nand another" {
		t.Errorf("the question is %q", got)
	}
	if got := value[string](p, `document.getElementById("query-keys").textContent + location.hash`); got != "" {
		t.Errorf("it says %q", got)
	}
	p.shot("phone")
	p.choose("query", "מה דעתכם?")
	if got := value[string](p, `getComputedStyle(document.getElementById("query")).direction`); got != "rtl" {
		t.Errorf("a question in Hebrew runs %s", got)
	}
}

// TestUnreachable holds that a reader is told what became of the question if the daemon does not answer.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	p := open(t, before(t, daemon(t, nil, members()...), func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		daemon.ServeHTTP(w, r)
	}), "")
	p.until(`!document.getElementById("models").hidden`)
	p.choose("query", "Do you hear me?")
	p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
	p.says("#ask-problem", "The daemon does not answer. Your question has not been sent.")
	p.says("#estimate", "No estimate: the daemon does not answer.")
	if got := value[string](p, `document.getElementById("query").value`); got != "Do you hear me?" {
		t.Errorf("the question is %q", got)
	}
}

// TestRememberedToken holds that a token with its name opens a link to a session, that a browser keeps the token only if the
// reader wants that, and that the reader can have it forgotten.
func TestRememberedToken(t *testing.T) {
	t.Parallel()
	const token = "ada:a-token-of-sixteen-and-more"
	p := open(t, daemon(t, map[string]string{"API_TOKENS": token}, members()...), "")
	give := func(p *tab) {
		p.until(`document.getElementById("token").open && document.activeElement.id === "token-value"`)
		if value[bool](p, `document.getElementById("token-remember").checked`) {
			t.Error("a token is remembered by default")
		}
		p.do(chromedp.Click(chromedp.ID("token-remember")))
		p.do(chromedp.Click(chromedp.ID("token-value")))
		p.press("bob:a-token-of-sixteen-and-more\r") // the name of somebody else
		p.says("#token-refused", "That token was refused.")
		p.until(`document.getElementById("token").open`)
		p.axe("token")
		p.shot("token")
		p.press(token + "\r")
	}
	give(p)
	p.ask("Who shares this?")
	p.says(said, "The answer is complete.")
	link := value[string](p, `location.href`)

	shared := newTab(p.ctx, t, p.origin) // of the same browser
	shared.do(chromedp.Navigate(link))
	shared.says(said, "The answer is complete.")
	if value[bool](shared, `document.getElementById("token").open`) {
		t.Error("the browser asks again for a token that it remembers")
	}
	shared.until(`document.getElementById("forget").checkVisibility()`)
	shared.look(390, 844, "light")
	shared.axe("remembered")
	shared.shot("remembered")
	shared.do(chromedp.Click(chromedp.ID("forget")))
	shared.until(`document.getElementById("token")?.open`)
	if kept := value[string](shared, `JSON.stringify(localStorage) + (sessionStorage.getItem("token") ?? "")`); strings.Contains(kept, "sixteen") {
		t.Errorf("the browser still keeps %s", kept)
	}
	shared.press(token + "\r")
	shared.says(said, "The answer is complete.")
	if value[bool](shared, `document.getElementById("forget").checkVisibility()`) {
		t.Error("there is nothing to forget for a token of this tab")
	}
}

// axe holds that axe-core finds no violation in the page as it is now.
func (p *tab) axe(state string) {
	p.Helper()
	script, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		p.Fatal(err)
	}
	p.do(chromedp.Evaluate[chromedp.Void](string(script)))
	for _, found := range value[[]string](p, `axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html).join(" ")))`) {
		p.Errorf("%s: %s", state, found)
	}
}
