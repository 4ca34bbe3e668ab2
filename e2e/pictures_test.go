package e2e

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var pictures = flag.String("pictures", "", "directory for the pictures of README.md and docs/; default: a temporary one")

// window returns what the window shows.
func (p *tab) window() image.Image {
	p.Helper()
	data, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	shown, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		p.Fatal(err)
	}
	return shown
}

// TestPictures makes the pictures of the documentation: make pictures.
func TestPictures(t *testing.T) {
	dir := *pictures
	if dir == "" {
		dir = t.TempDir()
	}
	save := func(name string, write func(*os.File) error) {
		t.Helper()
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := write(file); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, demo(t), "")
	p.look(1000, 640, "light")
	p.until(`document.querySelector("#query")`)
	frames := []image.Image{p.window()}
	p.do(chromedp.SendKeys(chromedp.ID("query"), pictured(p)))
	frames = append(frames, p.window())
	p.press("\r")
	p.until(`location.hash.startsWith("#/session/") && document.querySelector("#session h1")`)
	for range 40 {
		<-time.After(500 * time.Millisecond)
		frames = append(frames, p.window())
		if p.session()["status"] != "running" {
			break
		}
	}
	<-time.After(500 * time.Millisecond)
	frames = append(frames, p.window())
	for _, part := range []string{"agreement", "answers"} {
		p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('section[aria-labelledby="part-` + part + `"]')?.scrollIntoView()`))
		<-time.After(300 * time.Millisecond)
		frames = append(frames, p.window())
	}
	save("page.gif", func(f *os.File) error { return gif.EncodeAll(f, movie(frames)) })

	p.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
	p.look(1280, 900, "light")
	<-time.After(300 * time.Millisecond)
	save("page.png", func(f *os.File) error { return png.Encode(f, reduced(p.window())) })
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/report"`))
	p.until(`document.querySelector("#report .summary")`)
	<-time.After(300 * time.Millisecond)
	save("report.png", func(f *os.File) error { return png.Encode(f, reduced(p.window())) })
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/leaderboard"`))
	p.until(`document.querySelector("#leaderboard .plot")`)
	<-time.After(300 * time.Millisecond)
	save("leaderboard.png", func(f *os.File) error { return png.Encode(f, reduced(p.window())) })
	worth, seats := compared(t)
	for name, page := range map[string][]byte{"worth.png": worth, "seats.png": seats} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(page)
		}))
		t.Cleanup(server.Close)
		p := open(t, server.URL, "")
		p.look(1000, 900, "light")
		<-time.After(300 * time.Millisecond)
		save(name, func(f *os.File) error { return png.Encode(f, reduced(p.window())) })
	}
	for _, name := range []string{"page.gif", "page.png", "report.png", "leaderboard.png", "worth.png", "seats.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 5_000 || info.Size() > 1<<20 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if text := p.text("#leaderboard"); !strings.Contains(text, "Leaderboard") {
		t.Errorf("the leaderboard reads %q", text)
	}
}

// demo runs the demo, and returns its address when its first sessions have ended.
func demo(t *testing.T) string {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	c := newCouncild(t, settings(t, map[string]string{"MODELS": "", "BIAS_STORE": "", "BASE_URL": "", "RANDOM_SEED": ""}, members()))
	c.args = []string{"demo"}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	daemontest.Until(t, func() bool {
		list := get[struct{ Sessions []council.Summary }](t, c.url+"/v1/council")
		return len(list.Sessions) == 100 && list.Sessions[0].Status != council.StatusRunning
	})
	return c.url
}

// pictured returns the question of the demo that the pictures show.
func pictured(p *tab) string {
	p.Helper()
	councils := get[struct{ Demo struct{ Questions []string } }](p.T, p.origin+"/v1/councils")
	at := slices.IndexFunc(councils.Demo.Questions, func(q string) bool { return strings.Contains(q, "SQLite") })
	return councils.Demo.Questions[max(0, at)]
}

// compared returns the reports of compare and of seats over the questions of the examples, of the simulated council.
func compared(t *testing.T) (worth, seats []byte) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "results.jsonl")
	run := func(args ...string) []byte {
		var page, log bytes.Buffer
		if code := cli.Main(t.Context(), cli.IO{Args: args, Stdout: &page, Stderr: &log}); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, log.String())
		}
		return page.Bytes()
	}
	worth = run("compare", "--file", "../examples/questions.jsonl", "--out", out, "--max-cost-usd", "150", "--simulate",
		"--arms", "best,vote,ranked,synthesis,placebo,ensemble", "--format", "html")
	return worth, run("report", "seats", "--input", out, "--format", "html")
}

// movie makes a picture that moves, half a second for each frame and three for the last.
func movie(frames []image.Image) *gif.GIF {
	m := &gif.GIF{}
	for i, frame := range frames {
		m.Image = append(m.Image, reduced(frame))
		m.Delay = append(m.Delay, 50)
		if i == 0 || i >= len(frames)-2 {
			m.Delay[i] = 300
		}
	}
	return m
}

// reduced returns a picture in its 256 commonest colours, of which a page has hardly more.
func reduced(shown image.Image) *image.Paletted {
	counts := map[color.RGBA]int{}
	bounds := shown.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			r, g, b, _ := shown.At(x, y).RGBA()
			counts[color.RGBA{uint8(r>>8) &^ 3, uint8(g>>8) &^ 3, uint8(b>>8) &^ 3, 255}]++
		}
	}
	colours := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	palette := make(color.Palette, 0, 256)
	for _, c := range colours[:min(256, len(colours))] {
		palette = append(palette, c)
	}
	small := image.NewPaletted(bounds, palette)
	draw.Draw(small, bounds, shown, bounds.Min, draw.Src)
	return small
}
