package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/simllm"
)

// TestAccessible holds that axe-core finds no violation in any view, light or dark, on a
// wide screen and on a phone, and that no view is wider than its screen.
func TestAccessible(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	down := simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 401}}}
	healthy := func(t *testing.T) string {
		t.Helper()
		return daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...)
	}
	ended := func(p *tab, end string) {
		p.ask("Can everybody read this?")
		p.says(said, end)
		p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
	}
	waiting := func(t *testing.T) string {
		t.Helper()
		models := members()
		hold(t, models, simllm.Review)
		return daemon(t, nil, models...)
	}
	away := &line{}
	for name, view := range map[string]struct {
		daemon func(*testing.T) string
		show   func(*tab)
	}{
		"home": {healthy, func(p *tab) {
			ended(p, "The answer is complete.")
			p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
			p.says("#sessions", "complete")
			p.until(`document.getElementById("council-line").textContent.includes("under 1 s")`)
		}},
		"history": {healthy, func(p *tab) {
			converse(t, p.origin, "Can everybody read this?", "And this?")
			p.show("history")
			p.until(`document.querySelector("#history .turns")`)
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("#history details").forEach((d) => { d.open = true; })`))
		}},
		"running": {waiting, func(p *tab) {
			p.ask("Can everybody read this?")
			p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
		}},
		"finished": {healthy, func(p *tab) { ended(p, "The answer is complete.") }},
		"judged": {func(t *testing.T) string {
			t.Helper()
			return judging(t, true, rating([2]float64{8, 7}, "A woman loses them."))
		}, func(p *tab) { ended(p, "The answer is complete.") }},
		"degraded": {func(t *testing.T) string {
			t.Helper()
			return daemon(t, nil, append(members(), down)...)
		}, func(p *tab) { ended(p, "The answer is degraded.") }},
		"failed": {func(t *testing.T) string {
			t.Helper()
			out := down
			out.Name = "out"
			return daemon(t, nil, simllm.Model{Name: "amber"}, down, out)
		}, func(p *tab) { ended(p, "The session failed.") }},
		"cancelled": {waiting, func(p *tab) {
			p.ask("Can everybody read this?")
			p.stop()
			p.says(said, "The session was cancelled.")
		}},
		"away": {func(t *testing.T) string {
			t.Helper()
			return away.start(t, waiting(t))
		}, func(p *tab) {
			p.ask("Can everybody read this?")
			p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
			away.down.Store(new("/v1/"))
			away.cutNow()
			p.until(firstNotice + `.startsWith("` + lostLine + `")`)
		}},
		"report":      {healthy, func(p *tab) { p.show("report") }},
		"leaderboard": {healthy, func(p *tab) { p.show("leaderboard") }},
		"councils": {twoCouncils, func(p *tab) {
			p.until(`!document.getElementById("councils").hidden`)
			p.choose("query", "Which council?")
			p.says("#estimate", "9 calls")
		}},
		"estimate": {limited, func(p *tab) { p.choose("query", "What does it cost?"); p.says("#estimate", "at most") }},
		"refused": {limited, func(p *tab) {
			p.choose("query", "What does it cost?")
			p.choose("max_cost_usd", "0.0001")
			p.says("#estimate", "It would be refused")
		}},
		"spend": {limited, func(p *tab) {
			ended(p, "The answer is complete.")
			p.show("spend")
			p.says("#spend", "By model")
		}},
		"token":  {healthy, func(p *tab) { p.dialog("token") }},
		"delete": {healthy, func(p *tab) { p.dialog("delete") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, view.daemon(t), "")
			p.do(chromedp.Evaluate[chromedp.Void](string(axe)))
			view.show(p)
			for _, width := range []int64{1280, 390} {
				for _, scheme := range []string{"light", "dark"} {
					p.look(width, 900, scheme)
					found := value[[]string](p, `axe.run().then((r) =>
						r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + ": " + n.failureSummary))
						.concat(r.passes.length < 10 ? ["hardly anything was checked"] : []))`)
					for _, violation := range found {
						t.Errorf("%d pixels, %s: %s", width, scheme, violation)
					}
					if wide := value[int64](p, `document.scrollingElement.scrollWidth`); wide > width {
						t.Errorf("on %d pixels it is %d pixels wide", width, wide)
					}
					if (width == 1280) == (scheme == "light") {
						p.picture(name + "-" + scheme)
					}
				}
			}
		})
	}
}

// dialog opens a dialog.
func (p *tab) dialog(id string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("` + id + `").showModal()`))
}

// picture keeps a small screenshot of the whole page.
func (p *tab) picture(name string) {
	p.Helper()
	image, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(80))
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.ArtifactDir(), name+".jpg"), image, 0o600); err != nil {
		p.Fatal(err)
	}
}
