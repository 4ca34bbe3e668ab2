package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The report says in words what its figures say, and what could have been found.
func TestReportInWords(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...), "#/report")
	p.until(`document.querySelector("#report .findings")`)
	type metric struct {
		Name     string   `json:"metric_name"`
		Subject  string   `json:"subject"`
		Estimate *float64 `json:"point_estimate"`
		Lower    *float64 `json:"ci_lower"`
		Upper    *float64 `json:"ci_upper"`
		Delta    *float64
		Verdict  *string
		Found    *float64 `json:"minimum_detectable_effect"`
		Reason   string
	}
	report := get[struct{ Metrics []metric }](t, p.origin+"/v1/bias-report")
	text := value[string](p, `document.querySelector("#report .findings").textContent`)
	one := func(x float64) string { return fmt.Sprintf("%.1f", math.Abs(x)) }
	seen := map[string]bool{}
	for _, m := range report.Metrics {
		if m.Verdict == nil || m.Delta == nil {
			continue
		}
		seen[*m.Verdict] = true
		var want []string
		switch {
		case m.Name == "harshness" && *m.Verdict == "bias":
			ends := []float64{math.Abs(*m.Lower), math.Abs(*m.Upper)}
			slices.Sort(ends)
			word := map[bool]string{true: "lower", false: "higher"}[*m.Estimate < 0]
			want = append(want, fmt.Sprintf("%s scores %s points %s than the others (%s to %s) on the same answers.", m.Subject, one(*m.Estimate), word,
				one(ends[0]), one(ends[1])))
		case *m.Verdict == "not_identified":
			want = append(want, "cannot be told: "+m.Reason)
		case *m.Verdict == "inconclusive" && m.Found != nil:
			want = append(want, "would have been found in four of five such windows.")
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q is not said in %q", m.Name, w, text)
			}
		}
	}
	for _, verdict := range []string{"bias", "not_identified", "inconclusive"} {
		if !seen[verdict] {
			t.Errorf("the records show no %s", verdict)
		}
	}
	if first := value[string](p, `document.querySelector("#report .findings .verdict").textContent`); first != "bias" {
		t.Errorf("%q comes first", first)
	}
	// A label stands on the row of its dot; on a phone it stands above.
	const apart = `Math.max(...[...document.querySelectorAll("#report .plot")].map((plot) => {
		const labels = [...plot.querySelectorAll(".label")], dots = [...plot.querySelectorAll(".estimate")];
		const middle = (e) => { const r = e.getBoundingClientRect(); return (r.top + r.bottom) / 2; };
		return labels.length !== dots.length ? 1000 : Math.max(...labels.map((l, i) => Math.abs(middle(l) - middle(dots[i]))));
	}))`
	p.look(1280, 900, "light")
	p.until(apart + ` < 5`)
	if share := value[float64](p, `document.querySelector("#report .plot").getBoundingClientRect().width / document.querySelector("#report").clientWidth`); share < 0.95 {
		t.Errorf("the plots use %.2f of the width", share)
	}
	p.look(390, 800, "dark")
	p.until(`document.querySelector("#report .plot").getBoundingClientRect().width < 390`)
	p.until(apart + ` > 5 && ` + apart + ` < 40`)
	if places := value[string](p, `[...document.querySelectorAll("#report .plot .label")].map((l) => l.textContent).filter((l) => /^Place /.test(l)).join()`); places != "Place 1,Place 2,Place 3" {
		t.Errorf("the places are %s", places)
	}
	if open := value[int](p, `document.querySelectorAll("#report .figure details[open]").length`); open != 0 {
		t.Errorf("%d tables are not folded", open)
	}
}

// The choices stand in the address, what is downloaded is what is shown, and a wrong one
// is named.
func TestReportIsChosen(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...), "#/report?sessions=40")
	p.says("#report", "40 sessions, 480 records, of the newest 40")
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("report-sessions").value = "30";
		document.getElementById("report-reviewer").value = "sim:a";
		document.querySelector("#report form").requestSubmit();`))
	p.until(`location.hash === "#/report?sessions=30&reviewer=sim%3Aa"`)
	p.says("#report", "30 sessions")
	p.says("#report", "reviewer “sim:a”: sim:amber")
	p.do(chromedp.Evaluate[chromedp.Void](`
		globalThis.kept = {};
		URL.createObjectURL = (blob) => { kept.blob = blob; return "blob:x"; };
		HTMLAnchorElement.prototype.click = function () { kept.name = this.download; };
		[...document.querySelectorAll("#report .tools button")].find((b) => b.textContent === "CSV").click();`))
	p.until(`kept.name === "report.csv"`)
	text := value[string](p, `kept.blob.text()`)
	if !strings.HasPrefix(text, "metric_name,") || !strings.Contains(text, "reviewer_mean,sim:amber") || strings.Contains(text, "reviewer_mean,sim:birch") {
		t.Errorf("the CSV is %.300s", text)
	}
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/report?days=many"`))
	p.says("#report .notice", "days: ")
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/report?split=category"`))
	p.says("#report", "No category")
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/leaderboard?sessions=1"`))
	p.says("#leaderboard", "One session is one draw")
}
