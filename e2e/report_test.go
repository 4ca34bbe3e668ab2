package e2e

import (
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/cli"
)

// simulated writes the records of 100 sessions.
func simulated(t *testing.T, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "records.jsonl")
	args := append([]string{"store", "simulate", "--out", path, "--sessions", "100"}, more...)
	if code := cli.Main(t.Context(), cli.IO{Args: args, Stdout: io.Discard, Stderr: os.Stderr}); code != 0 {
		t.Fatalf("simulate exited with %d", code)
	}
	return path
}

// spoken is what a report says in sentences.
type spoken struct {
	Summary struct {
		Result, Brackets, Window, Council, More string
		Findings                                []string
		CouldFind                               []string `json:"could_find"`
	}
	Questions []struct {
		Question, Sentence string
		Word               string `json:"verdict_text"`
		Also               []string
		ToDo               string `json:"what_to_do"`
	}
}

// sentences returns all sentences in the order in which every form of the report prints them.
func (r spoken) sentences() []string {
	s := r.Summary
	all := slices.Concat([]string{s.Result}, s.Findings, []string{s.Brackets, s.Window, s.Council}, s.CouldFind, []string{s.More})
	for _, q := range r.Questions {
		all = slices.Concat(all, []string{q.Question, q.Word, q.Sentence}, q.Also, []string{q.ToDo})
	}
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}

// TestReport holds that the page, the HTML file and the terminal say what the report says, in one order.
func TestReport(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...), "#/report")
	p.until(`document.querySelector("#report .asked")`)
	sentences := get[spoken](t, p.origin+"/v1/bias-report").sentences()
	if len(sentences) < 25 {
		t.Fatalf("the report says only %q", sentences)
	}
	file := value[string](p, `fetch("v1/bias-report?format=html").then((r) => r.text())`)
	for form, text := range map[string]string{
		"page":     p.text("#report"),
		"file":     html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(file, " ")),
		"terminal": value[string](p, `fetch("v1/bias-report?format=text").then((r) => r.text())`),
	} {
		text = strings.ToLower(strings.Join(strings.Fields(text), " "))
		for _, sentence := range sentences {
			sentence = strings.ToLower(sentence)
			before, after, ok := strings.Cut(text, sentence)
			if !ok {
				t.Errorf("the %s lacks %q in its place: %.200s", form, sentence, before)
				break
			}
			text = after
		}
	}
	if n := value[int](p, `document.querySelectorAll("#report h1").length`); n != 1 {
		t.Errorf("%d headings of the first order", n)
	}
	if n := value[int](p, `document.querySelectorAll("#report details[open]").length`); n > 0 {
		t.Errorf("%d details are unfolded", n)
	}
	const drawn = `[...document.querySelectorAll("#report .asked")].map((q) => q.querySelectorAll("svg.plot").length)`
	if plots := value[[]int](p, drawn); !slices.Equal(plots, []int{1, 1, 1, 1, 1, 1, 1}) {
		t.Errorf("the questions have %v plots", plots)
	}
	marks := value[[]string](p, `[".flagged rect", ".seen rect", "g:not([class]) circle"].map((mark) =>
		getComputedStyle(document.querySelector("#report .plot " + mark)).fill)`)
	if slices.Sort(marks); len(slices.Compact(marks)) != 3 {
		t.Errorf("favours, other findings and the rest have the colours %q", marks)
	}
	text := value[string](p, `document.querySelector("#report .plot").textContent`)
	for _, name := range []string{"← scores lower", "points", "scores higher →", "too small to count"} {
		if !strings.Contains(text, name) {
			t.Errorf("the plot does not name %q: %s", name, text)
		}
	}
	p.shot("report")
	p.prefer("print", "prefers-color-scheme", "dark")
	if got := value[string](p, `getComputedStyle(document.body).color`); got != "rgb(28, 33, 36)" {
		t.Errorf("on paper the text is %s", got)
	}
	p.shot("report-print")

	p.look(1100, 900, "dark")
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/leaderboard"]`)))
	p.until(`document.querySelector("#leaderboard tbody tr")`)
	l := get[struct {
		Boards []struct {
			Entries []struct {
				Model string
				Borda float64 `json:"borda_normalized"`
			}
		}
	}](t, p.origin+"/v1/leaderboard")
	var want []string
	for _, e := range l.Boards[0].Entries {
		want = append(want, fmt.Sprintf("%s %.3f", e.Model, e.Borda))
	}
	got := value[[]string](p, `[...document.querySelector("#leaderboard tbody").rows]`+
		`.map((row) => row.cells[1].textContent + " " + row.cells[2].textContent)`)
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("the leaderboard reads %q, want %q", got, want)
	}
	p.shot("leaderboard-dark")
}

// TestHostileReport holds that the name of a model is text on the page, whatever it is.
func TestHostileReport(t *testing.T) {
	t.Parallel()
	store := simulated(t)
	records, err := os.ReadFile(store)
	if err != nil {
		t.Fatal(err)
	}
	const name = `<img src=x onerror="alert(1)"> & </main>`
	quoted := strings.ReplaceAll(name, `"`, `\"`)
	if err := os.WriteFile(store, []byte(strings.ReplaceAll(string(records), "sim:cedar", quoted)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, daemon(t, map[string]string{"BIAS_STORE": store}, members()...), "#/report")
	for _, view := range []string{"report", "leaderboard"} {
		p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/` + view + `"`))
		p.says("#"+view, name)
		if value[bool](p, `document.querySelector("main img") !== null`) {
			t.Errorf("%s: a name is markup", view)
		}
	}
}

func TestReportOfNothing(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "#/report")
	p.says("#report", "10 more sessions needed")
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/leaderboard"]`)))
	p.says("#leaderboard", "No session has a ballot")
}

// described starts a daemon with the records of sessions of three categories and two
// languages.
func described(t *testing.T) string {
	t.Helper()
	store := simulated(t, "--category", "coding,math,writing", "--language", "en,de")
	return daemon(t, map[string]string{"BIAS_STORE": store}, members()...)
}

// TestPlots holds that plots use the width there is, that no text in them covers another, that no view is wider than its
// screen, and that axe-core finds nothing in the unfolded view, light or dark.
func TestPlots(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, described(t), "")
	p.do(chromedp.Evaluate[chromedp.Void](string(axe)))
	for _, view := range []string{"report", "leaderboard"} {
		for _, width := range []int64{1440, 1024, 390} {
			p.look(width, 900, "light")
			p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/` + view + `"`))
			p.until(`document.querySelector("#` + view + ` .plot")`)
			const drawn = `[...document.querySelectorAll("main > section:not([hidden]) .plot")]`
			if !value[bool](p, drawn+`.every((plot) => Math.abs(plot.getBoundingClientRect().width - plot.parentElement.clientWidth) <= 1)`) {
				t.Errorf("%s on %d pixels: a plot does not fill its place", view, width)
			}
			for _, pair := range value[[]string](p, drawn+`.flatMap((svg) => {
				const texts = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
				return texts.flatMap(([a, r], i) => texts.slice(i + 1)
					.filter(([, s]) => r.left < s.right && s.left < r.right && r.top + 3 < s.bottom && s.top + 3 < r.bottom)
					.map(([b]) => a + " / " + b));
			})`) {
				t.Errorf("%s on %d pixels: texts cover each other: %s", view, width, pair)
			}
			if wide := value[int64](p, `document.scrollingElement.scrollWidth`); wide > width {
				t.Errorf("%s is %d pixels wide on %d", view, wide, width)
			}
			p.picture(fmt.Sprintf("%s-%d", view, width))
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
			for _, scheme := range []string{"light", "dark"} {
				p.look(width, 900, scheme)
				for _, violation := range value[[]string](p, `axe.run("main").then((r) =>
					r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + ": " + n.failureSummary))
					.concat(r.passes.length < 10 ? ["hardly anything was checked"] : []))`) {
					t.Errorf("%s, %d pixels, %s: %s", view, width, scheme, violation)
				}
			}
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = false; })`))
		}
	}
}

// TestFilters holds that the choices of a reader change what is reported and stand in the
// address, that a link shows the same, that what the daemon refuses is said beside them, and
// that what is downloaded is what is shown.
func TestFilters(t *testing.T) {
	t.Parallel()
	p := open(t, described(t), "#/report")
	p.until(`document.querySelector("#report .asked")`)
	const keep = `window.kept = {};
		URL.createObjectURL = (blob) => { window.blob = blob; return "blob:x"; };
		HTMLAnchorElement.prototype.click = function () { kept[this.download] = window.blob; };`
	download := func(format, file string) string {
		t.Helper()
		p.do(chromedp.Evaluate[chromedp.Void](
			`document.querySelector('main > section:not([hidden]) [aria-label="Download as ` + format + `"]').click()`))
		p.until(`kept["` + file + `"]`)
		return value[string](p, `kept["`+file+`"].text()`)
	}
	// By keyboard alone, from the summary on.
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#report .choices summary").focus()`))
	p.press("\r\t5\t0") // the newest 5 sessions are too few
	p.press("\r")
	p.until(`location.hash === "#/report?sessions=5&days=0"`)
	p.says("#report", "5 more sessions needed")

	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/report?days=30&sessions=0&category=math&language=de"`))
	p.until(`document.querySelector("#report .summary")`)
	want := get[struct {
		Summary struct{ Result string }
		Window  struct{ Sessions int }
	}](t, p.origin+"/v1/bias-report?days=30&sessions=0&category=math&language=de")
	if want.Window.Sessions == 0 || want.Window.Sessions >= 50 {
		t.Fatalf("the filters leave %d sessions", want.Window.Sessions)
	}
	p.says("#report .summary .result", want.Summary.Result)
	p.says("#report", fmt.Sprintf("%d sessions", want.Window.Sessions))
	p.do(chromedp.Reload()) // as one who got the link
	p.says("#report .summary .result", want.Summary.Result)
	if got := value[string](p, `["days", "sessions", "category", "language"]`+
		`.map((name) => document.getElementById("report-" + name).value).join(" ")`); got != "30 0 math de" {
		t.Errorf("the choices read %q", got)
	}
	p.do(chromedp.Evaluate[chromedp.Void](keep))
	for format, file := range map[string]string{"json": "report.json", "html": "report.html", "text": "report.txt"} {
		if got := strings.Join(strings.Fields(download(format, file)), " "); !strings.Contains(got, want.Summary.Result) {
			t.Errorf("%s lacks %q: %.200s", file, want.Summary.Result, got)
		}
	}
	if got := download("csv", "report.csv"); !strings.Contains(got, "metric_name") {
		t.Errorf("report.csv reads %.200s", got)
	}

	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/report?language=english&nothing=1"`))
	p.says("#report .notice.bad", "language")
	if value[bool](p, `document.querySelector("#report .asked") !== null`) {
		t.Error("a report stands beside the refusal")
	}

	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/leaderboard?category=math&model=sim%3Acedar"`))
	p.until(`document.querySelectorAll("#leaderboard .plot g circle").length === 1`)
	models := value[[]string](p, `[...document.querySelectorAll("#leaderboard tbody tr")].map((row) => row.cells[1].textContent)`)
	if !slices.Equal(models, []string{"sim:cedar"}) {
		t.Errorf("the leaderboard of one model holds %q", models)
	}
	if got := download("csv", "leaderboard.csv"); !strings.Contains(got, "sim:cedar") || strings.Contains(got, "sim:birch") {
		t.Errorf("leaderboard.csv reads %.300s", got)
	}
}

// TestReportOfADaemonThatIsAway opens the report for the first time while the daemon does not
// answer: the page says so, and shows the report once the daemon is back.
func TestReportOfADaemonThatIsAway(t *testing.T) {
	t.Parallel()
	l := &line{}
	p := open(t, l.start(t, described(t)), "")
	p.until(`document.getElementById("council-line").textContent !== ""`)
	l.down.Store(new(""))
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/report"]`)))
	p.says("#report .notice.warn", "The daemon does not answer.")
	l.down.Store(nil)
	p.until(`document.querySelector("#report .asked")`)
	if value[bool](p, `document.querySelector("#report .notice") !== null`) {
		t.Error("the page still says that the daemon is away")
	}
}
