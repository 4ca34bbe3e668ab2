package e2e

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestReportsAccessible holds that axe-core finds no violation in a report, light or dark, on a wide screen and on a
// phone, that no report is wider than its screen, and that no text in a plot covers another. The reports are the golden
// files of package render, under the policy with which the daemon sends them.
func TestReportsAccessible(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	const golden = ".html.golden"
	files, err := filepath.Glob("../internal/render/testdata/*" + golden)
	if err != nil || len(files) < 5 {
		t.Fatalf("reports %v, %v", files, err)
	}
	for _, file := range files {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(page, []byte("<!doctype html>")) { // a part of a page
			continue
		}
		name := strings.TrimSuffix(filepath.Base(file), golden)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = w.Write(page)
			}))
			t.Cleanup(server.Close)
			p := open(t, server.URL, "")
			p.do(chromedp.Evaluate[chromedp.Void](string(axe)))
			for _, width := range []int64{1440, 1024, 390} {
				for _, scheme := range []string{"light", "dark"} {
					p.look(width, 900, scheme)
					p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = false; })`))
					if (width == 1440) == (scheme == "light") {
						p.picture(name + "-" + scheme)
					}
					p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
					for _, violation := range value[[]string](p, `axe.run().then((r) =>
						r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + ": " + n.failureSummary))
						.concat(r.passes.length < 10 ? ["hardly anything was checked"] : []))`) {
						t.Errorf("%d pixels, %s: %s", width, scheme, violation)
					}
					if wide := value[int64](p, `document.scrollingElement.scrollWidth`); wide > width {
						t.Errorf("on %d pixels it is %d pixels wide", width, wide)
					}
					for _, pair := range value[[]string](p, `[...document.querySelectorAll("svg.plot")].flatMap((svg) => {
						const texts = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
						return texts.flatMap(([a, r], i) => texts.slice(i + 1)
							.filter(([, s]) => r.left < s.right && s.left < r.right && r.top + 3 < s.bottom && s.top + 3 < r.bottom)
							.map(([b]) => a + " / " + b));
					})`) {
						t.Errorf("%d pixels: texts of a plot cover each other: %s", width, pair)
					}
				}
			}
		})
	}
}
