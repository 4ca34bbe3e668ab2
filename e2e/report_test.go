package e2e

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
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

// TestReport holds that the report draws each interval and has the same figures in a
// table.
func TestReport(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...), "#/report")
	p.until(`document.querySelector("#report table")`)
	type metric struct {
		Estimate *float64 `json:"point_estimate"`
		Lower    *float64 `json:"ci_lower"`
		Delta    *float64
		Verdict  *string
		Members  []metric
	}
	report := get[struct {
		Headline  string
		Metrics   []metric
		Reviewers []struct {
			Harshness metric `json:"relative_harshness"`
		}
		Positions []metric
	}](t, p.origin+"/v1/bias-report")
	shown := slices.Clone(report.Metrics)
	flagged, described := 0, 0 // members
	for _, m := range report.Metrics {
		if m.Verdict != nil && slices.Contains([]string{"favour", "differs", "changed", "association"}, *m.Verdict) {
			shown = append(shown, m.Members...)
			flagged += len(m.Members)
		} else if m.Delta == nil {
			shown = append(shown, m.Members...)
			described += len(m.Members)
		}
	}
	if flagged == 0 || described == 0 {
		t.Fatalf("the report flags %d members and describes %d", flagged, described)
	}
	for _, r := range report.Reviewers {
		shown = append(shown, r.Harshness)
	}
	rows, points, intervals := len(shown)+len(report.Positions), len(report.Positions), 0
	for _, m := range report.Positions {
		if m.Lower != nil {
			intervals++
		}
	}
	for _, m := range shown {
		if m.Estimate != nil {
			points++
		}
		if m.Lower != nil {
			intervals++
		}
	}
	if points == rows || intervals == 0 {
		t.Fatal("all figures of the report are known, or no interval is")
	}
	for what, want := range map[string]int{`.estimate`: points, `.interval`: intervals, `.figure tbody tr`: rows} {
		if got := value[int](p, `document.querySelectorAll("#report `+what+`").length`); got != want {
			t.Errorf("the page has %d %s, the report %d", got, what, want)
		}
	}
	if text := p.text("#report .lead"); text != report.Headline {
		t.Errorf("the page says %q, the report %q", text, report.Headline)
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
		want = append(want, fmt.Sprintf("%s %.2f", e.Model, e.Borda))
	}
	got := value[[]string](p, `[...document.querySelector("#leaderboard tbody").rows]`+
		`.map((row) => row.cells[1].textContent + " " + row.cells[2].textContent)`)
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("the leaderboard reads %q, want %q", got, want)
	}
	p.shot("leaderboard-dark")
}

func TestReportOfNothing(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "#/report")
	p.says("#report", "10 more sessions needed")
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/leaderboard"]`)))
	p.says("#leaderboard", "No session holds a ballot")
}

// described starts a daemon with the records of sessions of three categories and two
// languages.
func described(t *testing.T) string {
	t.Helper()
	store := simulated(t, "--category", "coding,math,writing", "--language", "en,de")
	return daemon(t, map[string]string{"BIAS_STORE": store}, members()...)
}

// TestReportInWords holds that the page says each headline in the sentence of the report, with its
// verdict and its tier, and that levels stand behind favours.
func TestReportInWords(t *testing.T) {
	t.Parallel()
	p := open(t, described(t), "#/report")
	p.until(`document.querySelector("#report .findings li")`)
	report := get[struct {
		Metrics []struct {
			Estimate   *float64 `json:"point_estimate"`
			Delta      *float64
			Verdict    *string
			Sentence   string
			Confidence string `json:"statistical_confidence"`
		}
	}](t, p.origin+"/v1/bias-report")
	said := value[[]string](p, `[...document.querySelectorAll("#report .findings > li")].map((li) => li.textContent)`)
	verdicts := map[string]bool{}
	for _, m := range report.Metrics {
		if m.Delta == nil || m.Verdict == nil {
			continue
		}
		verdicts[*m.Verdict] = true
		want := strings.ReplaceAll(*m.Verdict, "_", " ") + " " + m.Sentence
		if m.Estimate != nil {
			want += " Tier: " + m.Confidence + "."
		}
		if !slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no line says %q: %q", want, said)
		}
	}
	for _, verdict := range []string{"differs", "inconclusive", "negligible", "not_identified"} {
		if !verdicts[verdict] {
			t.Errorf("no headline is %s", verdict)
		}
	}
	if k := slices.IndexFunc(said, func(line string) bool { return strings.HasPrefix(line, "differs") }); k <= 0 {
		t.Errorf("levels do not stand apart from favours: %q", said)
	}
	places := value[[]string](p, `[...document.querySelectorAll("#report .plot .label")].map((l) => l.textContent)`+
		`.filter((text) => text.startsWith("Place "))`)
	if want := []string{"Place 1", "Place 2", "Place 3"}; !slices.Equal(places, want) {
		t.Errorf("the places are %q", places)
	}
}

// TestPlots holds that each label stands beside its dot, or above it on a phone, that plots
// use the width there is, and that their tables are folded.
func TestPlots(t *testing.T) {
	t.Parallel()
	p := open(t, described(t), "")
	for _, view := range []string{"report", "leaderboard"} {
		for _, width := range []int64{1280, 390} {
			p.look(width, 900, "light")
			p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/` + view + `"`))
			p.until(`document.querySelector("#` + view + ` .plot")`)
			const drawn = `[...document.querySelectorAll("main > section:not([hidden]) .plot")]`
			// It is drawn for its place, and does not only shrink with it.
			p.until(drawn + `.every((plot) => Math.abs(plot.getAttribute("width") - plot.parentElement.clientWidth) <= 1)`)
			narrow := value[bool](p, drawn+`.every((plot) => plot.clientWidth < 640)`)
			if narrow != (width == 390) {
				t.Errorf("%s on %d pixels: the plots are drawn for another width", view, width)
			}
			const middle = `((node) => { const box = node.getBoundingClientRect(); return box.top + box.height / 2; })`
			apart := value[[]float64](p, drawn+`.flatMap((plot) => { const dots = [...plot.querySelectorAll(".estimate")];
				return [...plot.querySelectorAll(".label")].map((label, i) => `+middle+`(dots[i]) - `+middle+`(label)); })`)
			if len(apart) == 0 {
				t.Fatal("there is no label")
			}
			for _, pixels := range apart {
				if narrow && (pixels < 10 || pixels > 30) || !narrow && math.Abs(pixels) > 4 {
					t.Errorf("%s on %d pixels: a dot is %.0f pixels below its label", view, width, pixels)
				}
			}
			over := value[[]string](p, drawn+`.flatMap((plot) => { const notes = [...plot.querySelectorAll(".note")];
				return [...plot.querySelectorAll(".label")].filter((label) => { const l = label.getBoundingClientRect();
					return notes.some((note) => { const n = note.getBoundingClientRect();
						return n.left < l.right && l.left < n.right && n.top + 4 < l.bottom && l.top + 4 < n.bottom; }); })
					.map((label) => label.textContent); })`)
			if len(over) > 0 {
				t.Errorf("%s on %d pixels: texts stand on %q", view, width, over)
			}
			if wide := value[int64](p, `document.scrollingElement.scrollWidth`); wide > width {
				t.Errorf("%s is %d pixels wide on %d", view, wide, width)
			}
			p.picture(fmt.Sprintf("%s-%d", view, width))
		}
	}
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/report"`))
	p.until(`document.querySelector("#report .figure details")`)
	if n := value[int](p, `document.querySelectorAll("#report .figure details[open]").length`); n > 0 {
		t.Errorf("%d tables under plots are unfolded", n)
	}
}

// TestFilters holds that the choices of a reader change what is reported and stand in the
// address, that a link shows the same, that what the daemon refuses is said beside them, and
// that what is downloaded is what is shown.
func TestFilters(t *testing.T) {
	t.Parallel()
	p := open(t, described(t), "#/report")
	p.until(`document.querySelector("#report .findings")`)
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
	p.until(`document.querySelector("#report .findings, #report .lead")`)
	want := get[struct {
		Headline string
		Window   struct{ Sessions int }
	}](t, p.origin+"/v1/bias-report?days=30&sessions=0&category=math&language=de")
	if want.Window.Sessions == 0 || want.Window.Sessions >= 50 {
		t.Fatalf("the filters leave %d sessions", want.Window.Sessions)
	}
	p.says("#report .lead", want.Headline)
	p.says("#report", fmt.Sprintf("%d sessions", want.Window.Sessions))
	p.do(chromedp.Reload()) // as one who got the link
	p.says("#report .lead", want.Headline)
	if got := value[string](p, `["days", "sessions", "category", "language"]`+
		`.map((name) => document.getElementById("report-" + name).value).join(" ")`); got != "30 0 math de" {
		t.Errorf("the choices read %q", got)
	}
	p.do(chromedp.Evaluate[chromedp.Void](keep))
	for format, file := range map[string]string{"json": "report.json", "html": "report.html", "text": "report.txt"} {
		if got := download(format, file); !strings.Contains(got, want.Headline) {
			t.Errorf("%s lacks %q: %.200s", file, want.Headline, got)
		}
	}
	if got := download("csv", "report.csv"); !strings.Contains(got, "metric_name") {
		t.Errorf("report.csv reads %.200s", got)
	}

	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/report?language=english&nothing=1"`))
	p.says("#report .notice.bad", "language")
	if value[bool](p, `document.querySelector("#report .findings") !== null`) {
		t.Error("a report stands beside the refusal")
	}

	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/leaderboard?category=math&model=sim%3Acedar"`))
	p.until(`document.querySelectorAll("#leaderboard .interval").length === 1`)
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
	p.until(`document.getElementById("council").checkVisibility()`)
	l.down.Store(new(""))
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/report"]`)))
	p.says("#report .notice.warn", "The daemon does not answer.")
	l.down.Store(nil)
	p.until(`document.querySelector("#report .findings")`)
	if value[bool](p, `document.querySelector("#report .notice") !== null`) {
		t.Error("the page still says that the daemon is away")
	}
}
