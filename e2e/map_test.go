package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
)

// strip is the map of disagreement of a session.
const strip = "#session .map"

// marked is an expression for the marked text of the answers.
const marked = `[...document.querySelectorAll('` + answers + ` mark')].map((m) => m.textContent).join("")`

// disputing returns members that state these values of the port.
func disputing(maps simllm.Maps, values ...string) []simllm.Model {
	models := members()[:len(values)]
	for i, value := range values {
		models[i].Maps = maps
		models[i].Facts = []simllm.Fact{{Name: "the port", Value: value}}
	}
	return models
}

// charted replaces the map of all finished sessions that a daemon shows, and returns the new address.
func charted(t *testing.T, origin string, m council.Map) string {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	event := regexp.MustCompile(`(event: stage3\.map\ndata: )[^\n]*`)
	return before(t, origin, func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			daemon.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		daemon.ServeHTTP(recorder, r)
		w.Header().Set("Content-Type", recorder.Header().Get("Content-Type"))
		events := recorder.Body.String()
		place := event.FindStringSubmatchIndex(events)
		if place == nil {
			t.Errorf("no event has the map: %s", events)
			return
		}
		_, _ = fmt.Fprint(w, events[:place[3]], string(data), events[place[1]:])
	})
}

// quote selects the quote of a member on a side of the map.
func (p *tab) quote(claim, model string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`[...document.querySelectorAll("%s details")]
		.find((d) => d.querySelector("summary [dir]")?.textContent === %q).querySelectorAll("button")
		.forEach((b) => { if (b.querySelector("bdi").textContent === %q) b.click(); })`, strip, claim, model)))
}

// seeMap keeps pictures of the final answer with its map.
func (p *tab) seeMap(name string) {
	p.Helper()
	for _, width := range []int64{1440, 390} {
		p.look(width, 900, "light")
		p.shot(fmt.Sprint(name, "-", width))
	}
	p.look(1100, 900, "light")
}

// TestMap holds that the page shows where the answers differ, and that a click on a quote shows it in its answer.
func TestMap(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, disputing(simllm.Maps{}, "80", "8080", "80")...), "")
	p.ask("Which port?")
	p.says(said, "The answer is complete.")
	p.until(`document.getElementById("follow-up")`)
	p.says(strip, "Disputed")
	rows := value[[]string](p, `[...document.querySelectorAll("`+strip+` dt")].map((e) => e.textContent)`)
	if len(rows) < 3 || rows[0] != "Disputed" || rows[len(rows)-1] != "Open (not checked)" {
		t.Errorf("the map has the rows %q", rows)
	}
	for _, want := range []string{
		"This is how the chairman reads the answers. councild has checked that each quote is in its answer, but not that the quotes contradict each other.",
		"What is the value of the port?80 ", "8080 birch", "Open (not checked)",
	} {
		p.says(strip, want)
	}
	if text := p.text(strip); strings.Count(text, "This is how the chairman reads the answers") != 1 || strings.Contains(text, "left out") {
		t.Errorf("the map reads %s", text)
	}
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.seeMap("map")
	for claim, model := range map[string]string{"8080": "birch", "80": "cedar"} {
		p.quote(claim, model)
		p.until(fmt.Sprintf(`%s === "The value of the port is %s."`, marked, claim))
		p.until(fmt.Sprintf(`%s === document.activeElement && %s.querySelector("mark").checkVisibility()`, seat(answers, model), panel(model)))
	}
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.seeMap("marked")
	p.do(chromedp.Evaluate[chromedp.Void](`URL.createObjectURL = (blob) => { globalThis.kept = blob; return "blob:x"; };
		HTMLAnchorElement.prototype.click = () => {};
		[...document.querySelectorAll("#session button")].find((b) => b.textContent === "Download as Markdown").click();`))
	text := value[string](p, `kept.text()`)
	for _, want := range []string{
		"\n\n# Map of disagreement\n\nThis is how the chairman reads the answers. ", "\n\n## Disputed: What is the value of the port?\n\n- ",
		"\n- 8080\n  - birch: “The value of the port is 8080.”", "\n\n## Open, not checked\n\n- Which part of ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document lacks %q: %s", want, text)
		}
	}
}

// TestMapMovesNothing holds that the answers stay where the reader sees them when the map arrives, that the reader's
// folds stay, and that the final answer stays whole when its end was the map.
func TestMapMovesNothing(t *testing.T) {
	t.Parallel()
	models := disputing(simllm.Maps{Form: simllm.MapUnmarked}, "80", "8080", "80")
	release := hold(t, models, simllm.Synthesis)
	p := open(t, daemon(t, nil, models...), "")
	p.look(390, 844, "light")
	p.ask("Which port?")
	p.says(said, "The chairman is writing.")
	p.openAnswer("birch")
	top := panel("birch") + `.getBoundingClientRect().top`
	p.do(chromedp.Evaluate[chromedp.Void](panel("birch") + `.scrollIntoView({ block: "start" });
		window.said = [];
		new MutationObserver(() => { window.said.push(document.querySelector('` + said + `').textContent); })
			.observe(document.querySelector('` + said + `'), { childList: true });`))
	was := value[float64](p, top)
	release(simllm.Synthesis, "amber", "birch", "cedar")
	p.says(strip, "Disputed")
	p.says(said, "The answer is complete.")
	p.until(`document.getElementById("follow-up")`)
	if is := value[float64](p, top); is-was > 1 || was-is > 1 {
		t.Errorf("the answer moved from %v to %v", was, is)
	}
	if heard := value[[]string](p, `window.said`); !strings.Contains(strings.Join(heard, "\n"), "ended with the map of disagreement") {
		t.Errorf("the page said %q", heard)
	}
	if text := p.text(answer); strings.Contains(text, `"agreed"`) {
		t.Errorf("the answer has the map: %s", text)
	}
}

// TestNoMap holds that a session that asked for a map says why it has none, and that no other session speaks of a map.
func TestNoMap(t *testing.T) {
	t.Parallel()
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 401, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}
	for name, session := range map[string]struct {
		maps    simllm.Maps
		faults  []simllm.Fault
		setting string
		says    string
	}{
		"none":     {maps: simllm.Maps{Form: simllm.MapNone}, setting: "true", says: "No map of disagreement: the chairman wrote none."},
		"prose":    {maps: simllm.Maps{Form: simllm.MapProse}, setting: "true", says: "No map of disagreement: the chairman wrote something else instead."},
		"cut":      {maps: simllm.Maps{Form: simllm.MapCut}, setting: "true", says: "No map of disagreement: the chairman’s reply was cut off."},
		"invented": {maps: simllm.Maps{Invent: 1}, setting: "true", says: "No map of disagreement: more than half of the chairman’s quotes are not in any answer."},
		"fallback": {faults: []simllm.Fault{down}, setting: "true", says: "No map of disagreement: no chairman could write the final answer."},
		"off":      {setting: "false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			models := disputing(session.maps, "80", "8080", "80")
			for i := range models {
				models[i].Faults = session.faults
			}
			p := open(t, daemon(t, map[string]string{"MAP": session.setting}, models...), "")
			p.ask("Which port?")
			p.until(`document.getElementById("follow-up")`)
			p.until(fmt.Sprintf(`document.querySelector("%s").textContent === %q`, strip, session.says))
			if value[bool](p, `document.querySelector("`+strip+`").checkVisibility()`) != (session.says != "") {
				t.Error("the wrong strip is visible")
			}
		})
	}
}

// TestMapForm holds that a chairman's other form is no map.
func TestMapForm(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, disputing(simllm.Maps{}, "80", "8080", "80")...)
	p := open(t, charted(t, origin, council.Map{Reason: new(council.MapSchema)}), begin(t, origin, `"query": "Which port?"`))
	p.says(strip, "No map of disagreement: the chairman’s map does not have the required form.")
}

// TestHostileMap holds that the texts of a map stay text, that a long map is short at first, and that quotes are found
// in formatted answers.
func TestHostileMap(t *testing.T) {
	t.Parallel()
	const line = `<script>window.harmed = 1</script><img src=x onerror="window.harmed = 1"> [a](javascript:window.harmed=1)`
	const rtl = "هل المنفذ 8080 مفتوح دائمًا؟"
	const formatted = "The **port** is `80`, see [the\nmanual](https://example.org/x).\n\n1. It is < 5 here.\n2. It is > 5 there.\n\n" +
		"```go\nport := 80\n```\n\n" + rtl + "\n\n" + line
	models := disputing(simllm.Maps{}, "80", "8080", "80")
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) { return formatted, task.Kind == simllm.Question }
	}
	origin := daemon(t, nil, models...)
	claim := func(text string, quotes ...string) council.Claim {
		c := council.Claim{Claim: text}
		for i, q := range quotes {
			c.Quotes = append(c.Quotes, council.Quote{Model: []string{"amber", "birch", "cedar"}[i%3], Quote: q})
		}
		return c
	}
	marks := "a" + strings.Repeat("\u0301", 10_000)
	wide := strings.Repeat("Averylongwordwithoutanyspace", 10)
	m := council.Map{
		Disputed: []council.Dispute{
			{About: line, Sides: []council.Claim{
				claim("formatted", "**port** is `80`, see [the\nmanual](https://example.org/x)"),
				claim("bare", "* is `80`, see"), claim("less", "1. It is < 5 here."), claim("nowhere", "It is = 6 somewhere."),
			}},
			{About: rtl, Sides: []council.Claim{claim("عربي", rtl), claim("code", "port := 80")}},
			{About: wide, Sides: []council.Claim{claim(wide, wide, line, marks), claim("script", line)}},
			{About: "fourth", Sides: []council.Claim{claim("a", line), claim("b", line)}},
			{About: "fifth", Sides: []council.Claim{claim("a", line), claim("b", line)}},
		},
		Agreed: []council.Claim{claim(line, line, line), claim(rtl, rtl, rtl), claim("a", line), claim("b", line), claim("c", line)},
		OnlyOneSaid: []council.Claim{
			{Claim: line, Quotes: []council.Quote{{Model: line, Quote: line}}},
			{Claim: rtl, Quotes: []council.Quote{{Model: "__proto__", Quote: marks}}},
		},
		Open:    []string{line, rtl, wide, marks, "e"},
		Dropped: 1,
	}
	p := open(t, charted(t, origin, m), begin(t, origin, `"query": "Which port?"`))
	p.says(said, "The answer is complete.")
	p.says(strip, "1 quote left out, because it is not in an answer or does not support the entry.")
	p.until(panel("amber") + `.textContent.includes("onerror=")`)
	if got := value[string](p, `[...document.querySelectorAll("`+strip+` .about")].filter((e) => e.checkVisibility()).map((e) => e.textContent).join("|")`); got != line+"|"+rtl+"|"+wide {
		t.Errorf("these disputes are seen at first: %q", got)
	}
	p.seeMap("hostile")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("` + strip + ` details").forEach((d) => { d.open = true; })`))
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.seeMap("unfolded")
	for _, tt := range [][2]string{
		{"formatted", "port is 80, see the\nmanual"},
		{"bare", "is 80, see"},
		{"less", "It is < 5 here."},
		{"code", "port := 80"},
		{"عربي", rtl},
		{"script", line},
		{"nowhere", ""},
	} {
		p.quote(tt[0], "amber")
		p.until(fmt.Sprintf(`%s === %q`, marked, tt[1]))
	}
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("` + strip + ` button").forEach((b) => b.click())`))
	const elements = "script, img, svg:not(.bar), [onerror], a[href^=javascript]"
	if found := value[[]string](p, `[...document.querySelectorAll("main :is(`+elements+`)")].map((n) => n.outerHTML)`); len(found) > 0 {
		t.Errorf("texts became elements: %q", found)
	}
	if n := value[int](p, `Math.max(...document.querySelector("`+strip+`").textContent.match(/\p{M}+/gu).map((run) => run.length))`); n > 32 {
		t.Errorf("a run of %d marks is shown", n)
	}
	if value[bool](p, `"harmed" in window`) {
		t.Error("a text was run")
	}
}
