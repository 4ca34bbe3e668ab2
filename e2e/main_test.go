// Package e2e drives the page in a headless browser, against the whole daemon and a
// simulated provider. Where a test kills the daemon, it is a process of its own. The
// package needs Chromium: apt-get install chromium.
//
// Every test also fails when the page sends a request to another origin, violates its
// Content-Security-Policy, or throws. Screenshots go to the tests' artifact directories
// (go test -artifacts).
package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/simllm"
)

// pageTimeout is how long the page may take for one step on a loaded machine.
const pageTimeout = 30 * time.Second

// chromium is the browser that all tests share.
var chromium context.Context

// TestMain lets the test binary run as councild when a variable says so.
func TestMain(m *testing.M) {
	if os.Getenv("COUNCILD_TEST_MAIN") == "1" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := cli.Main(ctx, cli.IO{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr})
		stop()
		os.Exit(code)
	}
	options := chromedp.DefaultExecAllocatorOptions[:]
	if os.Geteuid() == 0 { // as in a container, where Chromium has no sandbox
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: no browser: install Chromium, on Debian with apt-get install chromium:", err)
		os.Exit(1)
	}
	chromium = ctx
	code := m.Run()
	cancel()
	stop()
	os.Exit(code)
}

// settings starts a simulated provider of the models given, and sets the variables of a
// daemon that calls it. All models are members unless env says otherwise.
func settings(t *testing.T, env map[string]string, models []simllm.Model) {
	t.Helper()
	var names []string
	for i := range models {
		models[i].Spread, models[i].Noise = 1, 0.5
		names = append(names, models[i].Name)
	}
	sim, err := simllm.Start(context.WithoutCancel(t.Context()), simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "LLM_COUNCIL_") {
			t.Setenv(name, "") // an empty variable counts as unset
		}
	}
	base := map[string]string{
		"ADDR": "127.0.0.1:0", "BASE_URL": sim.URL(), "MODELS": strings.Join(names, ","),
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
		"LOG_FORMAT": "json", "DRAIN_TIMEOUT": "0s", "RANDOM_SEED": "1",
	}
	for _, vars := range []map[string]string{base, env} {
		for name, value := range vars {
			t.Setenv("LLM_COUNCIL_"+name, value)
		}
	}
}

// listening reads the log of a daemon to its end, and sends the address where it listens.
func listening(log io.Reader) <-chan string {
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct{ Msg, URL string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				address <- line.URL
			}
		}
	}()
	return address
}

// daemon starts a councild with these settings and models, and returns its address.
func daemon(t *testing.T, env map[string]string, models ...simllm.Model) string {
	t.Helper()
	settings(t, env, models)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	logs, stderr := io.Pipe()
	address := listening(logs)
	exited := make(chan int, 1)
	go func() {
		exited <- cli.Main(ctx, cli.IO{Args: []string{"serve"}, Stdout: io.Discard, Stderr: stderr})
		_ = stderr.Close()
	}()
	t.Cleanup(func() {
		stop()
		if code := <-exited; code != 0 {
			t.Errorf("the daemon exited with %d", code)
		}
	})
	select {
	case url := <-address:
		return url
	case code := <-exited:
		exited <- code
		t.Fatal("the daemon did not start")
		return ""
	}
}

// members are four models that answer at once.
func members() []simllm.Model {
	return []simllm.Model{{Name: "amber"}, {Name: "birch"}, {Name: "cedar"}, {Name: "dune"}}
}

// tab is a tab of a browser without history, storage or cookies.
type tab struct {
	*testing.T
	ctx    context.Context
	origin string

	mu     sync.Mutex // guards faults
	faults []string   // what the page did and must not do
}

// open opens the page of a daemon at a view, such as "#/report".
func open(t *testing.T, origin, view string) *tab {
	t.Helper()
	p := newTab(chromium, t, origin, chromedp.WithNewBrowserContext())
	p.look(1100, 900, "light")
	p.do(chromedp.Navigate(origin + "/" + view))
	return p
}

func newTab(parent context.Context, t *testing.T, origin string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, options...)
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx, origin: origin}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, origin+"/") {
				p.fault("a request to " + e.Request.URL)
			}
		case *log.EventEntryAdded:
			if e.Entry.Source != log.EntrySourceNetwork { // a 401 is logged there, too
				p.fault(string(e.Entry.Source) + ": " + e.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			p.fault((&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fault := range p.seen() {
			t.Error(fault)
		}
	})
	return p
}

func (p *tab) fault(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, what)
}

func (p *tab) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

// do performs actions.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

// look sets the size of the window and the colour scheme that the reader prefers.
func (p *tab) look(width, height int64, scheme string) {
	p.Helper()
	p.prefer("", "prefers-color-scheme", scheme)
	p.do(chromedp.EmulateViewport(width, height))
}

// prefer sets one preference of the reader, and the medium: "" is the screen.
func (p *tab) prefer(medium, feature, value string) {
	p.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: medium, Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
	})
	if err != nil {
		p.Fatal(err)
	}
}

// value evaluates an expression in the page.
func value[T any](p *tab, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression holds in the page.
func (p *tab) until(expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	const promise = `new Promise((resolve) => { const look = () => (%s) ? resolve(true) : requestAnimationFrame(look); look(); })`
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(promise, expression), chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("waiting for %s: %v\n%s", expression, err, p.text("body"))
	}
}

// text returns the visible text of the element of a selector.
func (p *tab) text(selector string) string {
	p.Helper()
	return value[string](p, fmt.Sprintf(`document.querySelector(%q).innerText`, selector))
}

// says waits until the element of a selector contains a text.
func (p *tab) says(selector, text string) {
	p.Helper()
	p.until(fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, selector, text))
}

// press presses keys.
func (p *tab) press(keys string, options ...chromedp.KeyOption) {
	p.Helper()
	p.do(chromedp.KeyEvent(keys, options...))
}

// ask asks a question and waits until its session is shown.
func (p *tab) ask(question string) {
	p.Helper()
	p.do(chromedp.SendKeys(chromedp.ID("query"), question))
	p.press("\r")
	p.until(`location.hash.startsWith("#/session/") && document.querySelector("#session .steps")`)
}

// session returns the session that is shown, as the daemon answers it.
func (p *tab) session() map[string]any {
	p.Helper()
	id := strings.TrimPrefix(value[string](p, `location.hash`), "#/session/")
	return get[map[string]any](p.T, p.origin+"/v1/council/"+id)
}

// shot keeps a screenshot of the whole page.
func (p *tab) shot(name string) {
	p.Helper()
	image, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.ArtifactDir(), p.Name()+"-"+name+".png"), image, 0o600); err != nil {
		p.Fatal(err)
	}
}

// get reads the JSON at an address.
func get[T any](t *testing.T, url string) T {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v T
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return v
}

// hold makes models wait before tasks of the kinds given, until the returned function
// releases them.
func hold(t *testing.T, models []simllm.Model, kinds ...simllm.TaskKind) (release func(simllm.TaskKind, ...string)) {
	t.Helper()
	type seat struct {
		kind  simllm.TaskKind
		model string
	}
	held := map[seat]chan struct{}{}
	for i := range models {
		for _, kind := range kinds {
			held[seat{kind, models[i].Name}] = make(chan struct{})
		}
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if wait, ok := held[seat{task.Kind, task.Model}]; ok {
				select {
				case <-wait:
				case <-t.Context().Done():
				}
			}
			return "", false
		}
	}
	return func(kind simllm.TaskKind, names ...string) {
		for _, name := range names {
			close(held[seat{kind, name}])
		}
	}
}
