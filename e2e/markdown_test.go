package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// drawn opens the page and returns a function that draws a text as an answer is drawn, and
// returns its HTML once the libraries that it asks for are there.
func drawn(t *testing.T) (p *tab, draw func(text string) string) {
	t.Helper()
	p = open(t, daemon(t, nil, members()...), "")
	// The libraries are loaded before the first text, and a text is read when nothing has
	// changed for a while.
	value[bool](p, `(async () => {
		globalThis.md = await import("/assets/markdown.js");
		await Promise.all([md.ready(), import("/assets/highlight.min.js"), import("/assets/katex.min.js")]);
		globalThis.settled = async (place) => {
			for (let last = null, still = 0; still < 6; ) {
				await new Promise((done) => setTimeout(done, 20));
				await new Promise(requestAnimationFrame);
				const whole = place.childNodes.length > 0 && !place.querySelector(".math:not(.unread):not(:has(math))");
				still = whole && place.innerHTML === last ? still + 1 : 0;
				last = place.innerHTML;
			}
			return place.innerHTML;
		};
		return true;
	})()`)
	return p, func(text string) string {
		source, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return value[string](p, `(async () => {
			const place = document.createElement("div");
			place.className = "prose";
			document.querySelector("main").append(place);
			md.growing(place).set(`+string(source)+`, true);
			const html = await Promise.race([settled(place), new Promise((done) => setTimeout(() => done(place.innerHTML), 5000))]);
			place.remove();
			return html;
		})()`)
	}
}

func TestMarkdown(t *testing.T) { //nolint:tparallel // the cases share one tab
	t.Parallel()
	_, draw := drawn(t)
	for _, tt := range []struct{ name, text, want string }{
		{"a table", "| a | b |\n|---|--:|\n| **x** | 1 |", `<th dir="auto" class="right" scope="col">b</th>`},
		{"its cells", "| a | b |\n|---|--:|\n| **x** | 1 |", `<td dir="auto"><strong>x</strong></td><td dir="auto" class="right">1</td>`},
		{"it scrolls", "| a |\n|---|\n| x |", `<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>`},
		{"a link", "[here](https://a.example/x?y=1&z=2)", `<a href="https://a.example/x?y=1&amp;z=2" rel="noopener nofollow" target="_blank">here</a>`},
		{"a bare link", "see https://a.example/x.", `<a href="https://a.example/x" rel="noopener nofollow" target="_blank">https://a.example/x</a>.`},
		{"mail", "[me](mailto:me@a.example)", `<a href="mailto:me@a.example"`},
		{"emphasis", "*a* **b** ~~c~~ ***d***", "<em>a</em> <strong>b</strong> <s>c</s> <em><strong>d</strong></em>"},
		{"nested lists", "- a\n  - b\n    1. c", `<ul><li dir="auto">a<ul><li dir="auto">b<ol><li dir="auto">c</li></ol></li></ul></li></ul>`},
		{"an ordered list from 3", "3. x\n4. y", `<ol start="3">`},
		{"tasks", "- [x] done\n- [ ] open", `<li dir="auto" class="task"><input type="checkbox" disabled="" checked="" aria-label="done"> done</li>`},
		{"an open task", "- [x] done\n- [ ] open", `<input type="checkbox" disabled="" aria-label="to do"> open`},
		{"a rule", "a\n\n---\n\nb", "<hr>"},
		{"headings", "# a\n\n### b\n\n## c", `<h3 dir="auto">a</h3><h4 dir="auto">b</h4><h4 dir="auto">c</h4>`},
		{"a quote", "> a\n> b", `<blockquote><p dir="auto">a` + "\n" + `b</p></blockquote>`},
		{"a break", "a  \nb", "a<br>"},
		{"code", "```go\nfunc f() {}\n```", `<figcaption><span>go</span>`},
		{"code in colours", "```go\nfunc f() {}\n```", `<span class="code-keyword">func</span>`},
		{"code of no language", "```\na < b\n```", `<code>a &lt; b` + "\n" + `</code>`},
		{"its button", "```\na\n```", `aria-label="Copy the code">Copy</button>`},
		{"inline code", "`a*b*`", "<code>a*b*</code>"},
		{"a picture", "![a cat](https://a.example/cat.png)", `<a href="https://a.example/cat.png" rel="noopener nofollow" target="_blank">Image: a cat</a>`},
		{"math", `so $x^2$ it is`, `<msup><mi>x</mi><mn>2</mn></msup>`},
		{"math in brackets", `so \(x^2\) it is`, `<msup><mi>x</mi><mn>2</mn></msup>`},
		{"math on lines", "$$\nx^2\n$$", `<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">`},
		{"math in square brackets", "\\[ x^2 \\]", `display="block"`},
		{"prices", "from $5 to $10", `<p dir="auto">from $5 to $10</p>`},
		{"math that is wrong", `see $\frac{1$ there`, `<span class="math unread">\frac{1</span>`},
		{"math in a frame", `so $\fcolorbox{red}{white}{42}$ it is`, `class="boxed"`},
		{"math behind many prices", strings.Repeat("It costs $5.\n\n", 150) + "so $x^2$", `<msup><mi>x</mi><mn>2</mn></msup>`},
		{"quotes in quotes in quotes", strings.Repeat("> ", 60) + "the innermost", "the innermost"},
		{"items in items in items", strings.Repeat("- ", 60) + "the innermost", "the innermost"},
		{"an unfinished fence", "```py\nx = 1", `<code>`},
		{"a reference", "[a][1]\n\n[1]: https://a.example", `<a href="https://a.example"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if html := draw(tt.text); !strings.Contains(html, tt.want) {
				t.Errorf("%q is drawn as %s", tt.text, html)
			}
		})
	}
}

// injections are texts that try to become more than text.
var injections = []string{
	`<script>document.title = "hacked"</script>`, `<img src=x onerror="document.title='hacked'">`, `<svg onload="document.title='hacked'">`,
	`<iframe srcdoc="<script>parent.document.title='hacked'</script>">`, `<a href="javascript:alert(1)">x</a>`, `[x](javascript:alert(1))`,
	`[x](JaVaScRiPt:alert(1))`, `[x](java&#115;cript:alert(1))`, `[x](&#x6A;avascript:alert(1))`, `[x](javascript&colon;alert(1))`,
	"[x](java\tscript:alert(1))", `[x](data:text/html,<script>alert(1)</script>)`, `[x](vbscript:msgbox)`, `[x](file:///etc/passwd)`,
	`![x](javascript:alert(1))`, `![x](https://evil.example/track.png)`, `![x](data:image/svg+xml;base64,PHN2Zz4=)`, `[x]: javascript:alert(1)` + "\n\n[x]",
	`<javascript:alert(1)>`, `<https://a.example/"onmouseover="alert(1)>`, `[x](https://a.example/"onmouseover="alert(1))`,
	`[x](https://a.example 'title" onclick="alert(1)')`, "```\"><script>alert(1)</script>\nx\n```", "```js\" onclick=alert(1)\nx\n```",
	"```html\n<script>document.title='hacked'</script>\n```", "`<script>alert(1)</script>`", `<!-- <script>alert(1)</script> -->`,
	`<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>`, `<noscript><p title="</noscript><img src=x onerror=alert(1)>">`,
	`$\href{javascript:alert(1)}{x}$`, `$\htmlData{onclick=alert(1)}{x}$`, `$\includegraphics{https://evil.example/x.png}$`, `$\url{javascript:alert(1)}$`,
	`$\htmlStyle{background:url(https://evil.example)}{x}$`, `$\class{state}{x}$`, "| <img src=x onerror=alert(1)> |\n|---|\n| <b>x</b> |",
	`- [ ] <img src=x onerror=alert(1)>`, `<style>@import "https://evil.example/x.css";</style>`, `<form action="https://evil.example"><button>x`,
	`<meta http-equiv="refresh" content="0;url=https://evil.example">`, `<base href="https://evil.example/">`, "\u202e\u2066<b>x</b>",
	`<link rel=stylesheet href=https://evil.example/x.css>`, `<object data="javascript:alert(1)">`, `<<script>alert(1)//<</script>`,
}

// No text becomes markup: what comes out of the corpus are elements and attributes of
// closed lists, links that lead where they may, and no request.
func TestInjections(t *testing.T) {
	t.Parallel()
	p, draw := drawn(t)
	if len(injections) < 40 {
		t.Fatalf("%d injections", len(injections))
	}
	const look = `(() => {
		const wrong = [];
		const tags = new Set("DIV P H3 H4 H5 H6 UL OL LI BLOCKQUOTE TABLE THEAD TBODY TR TH TD STRONG EM S A CODE PRE FIGURE FIGCAPTION SPAN BUTTON INPUT BR HR".split(" "));
		const attributes = new Set("class dir href rel target tabindex role aria-label type disabled checked scope start".split(" "));
		const math = "http://www.w3.org/1998/Math/MathML";
		for (const e of document.querySelectorAll("#corpus *")) {
			if (e.namespaceURI === math) {
				for (const a of e.attributes) if (/^on|href|src|style/i.test(a.name)) wrong.push(e.outerHTML);
				continue;
			}
			if (!tags.has(e.tagName)) wrong.push(e.outerHTML);
			for (const a of e.attributes) if (!attributes.has(a.name)) wrong.push(e.outerHTML);
			if (e.tagName === "A" && !/^(https?:\/\/|mailto:)/.test(e.getAttribute("href"))) wrong.push(e.outerHTML);
			if (e.tagName === "A" && e.rel !== "noopener nofollow") wrong.push(e.outerHTML);
		}
		return wrong;
	})()`
	for _, text := range injections {
		html := draw(text)
		source, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		value[bool](p, `(async () => {
			document.getElementById("corpus")?.remove();
			const place = document.createElement("div");
			place.id = "corpus";
			document.querySelector("main").append(place);
			place.append(...md.markdown(`+string(source)+`));
			await new Promise((done) => setTimeout(done, 40));
			return true;
		})()`)
		if wrong := value[[]string](p, look); len(wrong) > 0 {
			t.Errorf("%q became %q", text, wrong)
		}
		if strings.TrimSpace(html) == "" && !strings.HasPrefix(text, "[x]:") {
			t.Errorf("%q is not shown at all", text)
		}
		if title := value[string](p, `document.title`); strings.Contains(title, "hacked") {
			t.Fatalf("%q ran a script", text)
		}
	}
}

// A text that grew piece by piece looks like the text as a whole.
func TestGrowingIsTheWhole(t *testing.T) {
	t.Parallel()
	p, draw := drawn(t)
	text := "# Title\n\nA paragraph with **bold** and a [link][1].\n\n- one\n- two\n\n  more of two\n- three\n\n```go\nx := 1\n\ny := 2\n```\n\n" +
		"| a | b |\n|---|---|\n| 1 | 2 |\n\nSetext\n======\n\n> quote\ncontinued\n\n1. a\n2. b\n\n3. c\n\n$$\nx^2\n$$\n\nA line\n***in bold***\nand\n#this is none\n\n" +
		"## Second\n\n#### Third without a gap\n\ntext\n\n###### Fourth\n\n\\[ open\n\ntext\n\n\\]\n\nx\na|b\n-|-|-\n\nend"
	for _, whole := range []string{text, text + "\n\n[1]: https://a.example\n"} {
		want := draw(whole)
		for _, step := range []int{1, 7, 40} {
			source, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			got := value[string](p, fmt.Sprintf(`(async () => {
				const place = document.createElement("div"), whole = %s, step = %d;
				document.querySelector("main").append(place);
				const text = md.growing(place);
				for (let i = step; i < whole.length; i += step) {
					text.set(whole.slice(0, i), false);
					if (i %% 3 === 0) await new Promise((done) => setTimeout(done, 5));
				}
				await new Promise((done) => setTimeout(done, 200));
				text.set(whole, true);
				const html = await settled(place);
				place.remove();
				return html;
			})()`, source, step))
			if got != want {
				t.Errorf("in steps of %d:\n%s\nwant\n%s", step, got, want)
			}
		}
	}
}

// Hostile texts are shown, and cost time in proportion to their length: the test prints
// what it measures.
func TestHostileLength(t *testing.T) {
	t.Parallel()
	p, _ := drawn(t)
	for name, piece := range map[string]string{
		"stars": "*", "brackets": "[", "ticks": "`", "quotes": ">", "pipes": "|", "dollars": "$", "dollars with words": "$a ", "tildes": "~~a",
		"list items": "- ", "items": "- a\n", "table": "|a|b|\n|-|-|\n", "links": "[a](b", "images": "![", "emphasis": "*a **b ", "backslashes": `\(`,
		"math lines": "\\[\n", "fences": "```\n", "autolinks": "https://a.b ", "underscores": "a_", "entities": "&amp", "angle brackets": "<",
		"references": "[a]: <\n", "prose": "A sentence of plain words. ", "paragraphs": "A sentence.\n\n",
	} {
		spent := value[map[string]float64](p, fmt.Sprintf(`(async () => {
			const took = {};
			for (const size of [25_000, 100_000]) {
				const text = %q.repeat(size).slice(0, size);
				const place = document.createElement("div");
				place.className = "prose";
				document.querySelector("main").append(place);
				let longest = 0;
				const seen = new PerformanceObserver((list) => { for (const e of list.getEntries()) longest = Math.max(longest, e.duration); });
				seen.observe({ type: "longtask" });
				const begun = performance.now();
				md.growing(place).set(text, true);
				for (let last = -1; place.childNodes.length !== last || last === 0;) {
					last = place.childNodes.length;
					await new Promise((done) => setTimeout(done, 40));
					if (performance.now() - begun > 50_000) break;
				}
				took[size] = performance.now() - begun;
				took.shown = place.childNodes.length;
				took.longest = longest;
				seen.disconnect();
				place.remove();
			}
			return took;
		})()`, piece))
		t.Logf("%-18s 25 KB %5.0f ms, 100 KB %5.0f ms, longest task %4.0f ms", name, spent["25000"], spent["100000"], spent["longest"])
		if spent["shown"] == 0 {
			t.Errorf("%s: nothing is shown", name)
		}
	}
}

// The page shows a review without its ballot, which is shown as a table.
func TestWithoutBallot(t *testing.T) {
	t.Parallel()
	p, _ := drawn(t)
	ballot := `{"ranking": ["Response B", "Response A"], "scores": {"Response A": 6, "Response B": 8}}`
	for _, tt := range []struct{ name, text, prose string }{
		{"fenced", "Good.\n\n```json\n" + ballot + "\n```", "Good."},
		{"fenced without a language", "Good.\n```\n" + ballot + "\n```\n", "Good."},
		{"bare", "Good.\n" + ballot, "Good."},
		{"alone", ballot, ""},
		{"other JSON", "Good.\n```json\n{\"a\": 1}\n```", "Good.\n```json\n{\"a\": 1}\n```"},
		{"broken JSON", "Good.\n```json\n{\"ranking\": [\n```", "Good.\n```json\n{\"ranking\": [\n```"},
		{"in the middle", ballot + "\n\nGood.", ballot + "\n\nGood."},
		{"none", "Good.", "Good."},
	} {
		source, err := json.Marshal(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := value[string](p, `md.withoutBallot(`+string(source)+`).prose`); got != tt.prose {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	got := value[[]string](p, `[...md.withoutBallot('{"critiques":{"Response A":"weak"},"ranking":["Response A"]}').critiques.entries()].flat()`)
	if !slices.Equal(got, []string{"Response A", "weak"}) {
		t.Errorf("the critiques are %q", got)
	}
	about := value[string](p, `md.about("Intro\n\n**Response A** is short.\n\nIt is right.\n\n### Response B\n\nLong. Unlike Response A.\n\n* Response AB: odd", "Response B")`)
	if about != "### Response B\n\nLong. Unlike Response A." {
		t.Errorf("about B: %q", about)
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	p, _ := drawn(t)
	for text, want := range map[string]string{
		"# Title\n\nSome **bold** [link](https://a.example) and `code`.": "Title Some bold link and code.",
		"- a\n- b":                  "a b",
		"```go\nx := 1\n```":        "x := 1",
		"a_b and snake_case":        "a_b and snake_case",
		strings.Repeat("word ", 40): strings.Repeat("word ", 10) + "word…",
	} {
		if got := value[string](p, fmt.Sprintf(`md.plain(%q, 60)`, text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
