package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon/daemontest"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

func TestProgress(t *testing.T) {
	text := "x"
	script := []any{
		council.Started{Models: []string{"a", "b"}},
		council.Answer{Model: "a", Response: &text, Spent: council.Spent{LatencyMS: 1234}},
		council.Answer{Model: "b", Error: &council.Failure{Code: council.FailTimeout}, Spent: council.Spent{LatencyMS: 10}},
		council.Review{Model: "a", Status: council.OutcomeOK},
		council.Review{Model: "b", Status: council.OutcomeAbstained},
		[]council.Answer{},
		council.Tally{},
		council.Delta{Text: "Half an"},
		council.Restart{Model: "b", Reason: council.FailReset},
		council.Delta{Text: "A whole "},
		council.Delta{Text: "answer."},
		council.Synthesis{Model: "a", Spent: council.Spent{LatencyMS: 2000}},
		&council.Session{},
	}
	steps := `asking 2 models ...
  a answered in 1.2 s
  b failed after 0.0 s: timeout
  a reviewed in 0.0 s
  b declined to rank in 0.0 s
the chairman writes ...
  b failed: reset; what it wrote is void, somebody else writes ...
  a wrote the answer in 2.0 s
`
	var gotSteps, gotAnswer bytes.Buffer
	for _, p := range []*progress{{}, {steps: &gotSteps}, {answer: &gotAnswer}} {
		for _, data := range script {
			p.Observe(council.Event{Data: data})
		}
	}
	if diff := cmp.Diff(steps, gotSteps.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("Half an\n\nA whole answer.\n\n", gotAnswer.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTerminal(t *testing.T) {
	var b bytes.Buffer
	n, err := io.WriteString(terminal{&b}, "a\x1b[2Jb\r\x07\n\tü\u009bc\x7f")
	if err != nil || n != 16 || b.String() != "a[2Jb\n\tüc" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
}

// cut is a body of events that breaks off behind one event and a piece of the next.
type cut struct {
	io.ReadCloser
	in    *bufio.Reader
	lines bytes.Buffer
}

func (c *cut) Read(p []byte) (int, error) {
	for c.lines.Len() == 0 {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		c.lines.Write(line)
		if len(line) > 1 {
			continue
		}
		next, _ := c.in.Peek(20)
		c.lines.Write(next)
		c.in = bufio.NewReader(broken{})
	}
	return c.lines.Read(p)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// throughCuts returns a proxy that cuts every line of events behind each event.
func throughCuts(t *testing.T, target string) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(resp *http.Response) error {
			if resp.Header.Get("Content-Type") == "text/event-stream" {
				resp.Body = &cut{ReadCloser: resp.Body, in: bufio.NewReader(resp.Body)}
			}
			return nil
		},
	})
	t.Cleanup(func() {
		proxy.Close()
		transport.CloseIdleConnections()
	})
	return proxy.URL
}

// However often the line is cut, every event comes once and in order.
func TestAskThroughCuts(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	var types []council.EventType
	var answer strings.Builder
	session, err := remote{url: throughCuts(t, d.URL())}.ask(t.Context(), "Which way?", council.ObserverFunc(func(e council.Event) {
		if data, ok := e.Data.(council.Delta); ok {
			answer.WriteString(data.Text)
			if types[len(types)-1] == council.EventDelta {
				return
			}
		}
		types = append(types, e.Type)
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []council.EventType{
		council.EventStarted, council.EventAnswer, council.EventAnswer, council.EventStage1, council.EventBallot, council.EventBallot, council.EventStage2,
		council.EventDelta, council.EventStage3, council.EventDone,
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	if answer.String() != session.Answer || session.Answer == "" {
		t.Errorf("the deltas are %q, the answer is %q", answer.String(), session.Answer)
	}
	code, stdout, stderr := command(t, "ask", "--json", "--server", throughCuts(t, d.URL()), "Which way?")
	var printed council.Session
	if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil || !printed.Persisted {
		t.Errorf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
}

// Ctrl-C cancels the session at the daemon.
func TestAskIsInterrupted(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	defer release()
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"})
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-arrived
		interrupt()
	}()
	var stdout, stderr bytes.Buffer
	code := Main(ctx, IO{Args: []string{"ask", "--server", d.URL(), "Wait for me?"}, Stdout: &stdout, Stderr: &stderr})
	if code != exitError || !strings.Contains(stderr.String(), "was cancelled") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
	id := between(stderr.String(), "session ", " was")
	_, events := d.Call(t, "GET", "/v1/council/"+id+"/events", "")
	if !strings.Contains(string(events), `"code":"cancelled"`) {
		t.Errorf("the session goes on: %s", events)
	}
}

// What ends a session ends the command too, with the reasons.
func TestAskFails(t *testing.T) {
	rejecting := simllm.Model{Name: "d", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 400}}}
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Provider(t, rejecting).URL(), "MODELS": "d,d"})
	code, _, stderr := command(t, "ask", "--server", d.URL(), "Which way?")
	if code != exitError || !strings.Contains(stderr, "the session failed: 0 of 2 members answered") || !strings.Contains(stderr, "d#2: rejected") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	// A daemon that was started anew does not know the session.
	f := follower{remote: remote{url: d.URL()}, path: "/v1/council/unknown", observer: &progress{}}
	if _, err := f.follow(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}
