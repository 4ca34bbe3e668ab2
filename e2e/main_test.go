// Package e2e drives the page in a headless browser, against the whole daemon and a
// simulated provider. Every daemon is a process of its own, so that tests run side by
// side. The package needs a Chromium, the headless shell by choice: apt-get install
// chromium-headless-shell.
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
	"maps"
	"net/http"
	"os"
	"os/exec"
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
	"github.com/councild/councild/internal/testkit/daemontest"
)

// pageTimeout is how long the page may take for one step on a loaded machine.
const pageTimeout = 30 * time.Second

// headlessShell is Debian's Chromium without windows, in which the tests take half the time. chromedp does not look for it.
const headlessShell = "/usr/lib/chromium/chromium-headless-shell"

// chromium is the browser that all tests share.
var chromium context.Context

// TestMain lets the test binary run as councild when a variable says so.
func TestMain(m *testing.M) {
	if os.Getenv("COUNCILD_TEST_MAIN") == "1" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := cli.Main(ctx, cli.IO{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		stop()
		os.Exit(code)
	}
	options := chromedp.DefaultExecAllocatorOptions[:]
	if os.Geteuid() == 0 { // as in a container, where Chromium has no sandbox
		options = append(options, chromedp.NoSandbox)
	}
	if _, err := os.Stat(headlessShell); err == nil {
		options = append(options, chromedp.ExecPath(headlessShell))
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: no browser: install Chromium, on Debian with apt-get install chromium-headless-shell:", err)
		os.Exit(1)
	}
	chromium = ctx
	code := m.Run()
	cancel()
	stop()
	os.Exit(code)
}

// settings starts a simulated provider of the models given, and returns the environment
// of a councild that calls it. All models are members unless env says otherwise.
func settings(t *testing.T, env map[string]string, models []simllm.Model) []string {
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
	base := map[string]string{
		"ADDR": "127.0.0.1:0", "BASE_URL": sim.URL(), "MODELS": strings.Join(names, ","),
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"), "DRAIN_TIMEOUT": "0s", "RANDOM_SEED": "1",
	}
	maps.Copy(base, env)
	vars := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "LLM_COUNCIL_") })
	for name, value := range base {
		vars = append(vars, "LLM_COUNCIL_"+name+"="+value)
	}
	return vars
}

// councild is a councild in a process of its own.
type councild struct {
	*testing.T
	env  []string // of the process
	args []string // of the process
	url  string
	log  daemontest.Log // of all processes

	cmd  *exec.Cmd     // nil: it does not run
	gone chan struct{} // closed when the process has ended
}

// newCouncild returns a councild that does not run yet. If it runs at the end of the
// test, it must end after SIGTERM with exit code 0.
func newCouncild(t *testing.T, env []string) *councild {
	t.Helper()
	c := &councild{T: t, env: env, args: []string{"serve"}}
	t.Cleanup(func() {
		if c.cmd != nil {
			if code := c.end(syscall.SIGTERM); code != 0 {
				t.Errorf("the daemon exited with %d", code)
			}
		}
		if t.Failed() {
			t.Logf("the log of the daemon: %s", &c.log)
		}
	})
	return c
}

// command returns a command of councild with an environment of its own.
func command(ctx context.Context, env []string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(slices.Clone(env), "COUNCILD_TEST_MAIN=1")
	return cmd, nil
}

// start starts the process, and waits until it listens.
func (c *councild) start() error {
	cmd, err := command(context.WithoutCancel(c.Context()), c.env, c.args...) // it is ended after the context of the test
	if err != nil {
		return err
	}
	logs, stderr := io.Pipe()
	cmd.Stderr = io.MultiWriter(&c.log, stderr)
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			var line struct{ Msg, URL string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				address <- line.URL
			}
		}
		_, _ = io.Copy(io.Discard, logs) // after a line that is too long
	}()
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // whoever ends it looks at the exit code
		_ = stderr.Close()
	}()
	select {
	case c.url = <-address:
		c.cmd, c.gone = cmd, gone
		return nil
	case <-gone:
		return fmt.Errorf("the daemon did not start: %s", &c.log)
	}
}

// end sends the process a signal, and returns its exit code when it has ended: -1 after
// SIGKILL.
func (c *councild) end(signal syscall.Signal) int {
	cmd := c.cmd
	c.cmd = nil
	late := time.AfterFunc(pageTimeout, func() {
		c.Errorf("the daemon did not end within %v after %v", pageTimeout, signal)
		_ = cmd.Process.Kill()
	})
	defer late.Stop()
	_ = cmd.Process.Signal(signal) // a process that has ended by itself has an exit code, too
	<-c.gone
	return cmd.ProcessState.ExitCode()
}

// daemon starts a councild with these settings and models, and returns its address.
func daemon(t *testing.T, env map[string]string, models ...simllm.Model) string {
	t.Helper()
	c := newCouncild(t, settings(t, env, models))
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	return c.url
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
	// Each tab has the focus, as the only one of its reader.
	_, err = chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
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
