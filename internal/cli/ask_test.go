package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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
  b failed: reset; what it wrote is void, another model writes ...
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
	if code != exitError {
		t.Errorf("exit %d", code)
	}
	if !strings.Contains(stderr.String(), "was cancelled") {
		t.Errorf("got %s", stderr.String())
	}
	id := between(stderr.String(), "session ", " was")
	_, events := d.Call(t, "GET", "/v1/council/"+id+"/events", "")
	if !strings.Contains(string(events), `"code":"cancelled"`) {
		t.Errorf("the session goes on: %s", events)
	}
}

// The reasons hold what a provider or a model wrote. It never reaches a terminal as it
// is.
func TestAskFailsWithControlCharacters(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"no\u001b[2J\u0007, never"}}`)
	}))
	defer provider.Close()
	daemontest.Setenv(t, map[string]string{"BASE_URL": provider.URL, "MODELS": "a,b"})
	code, _, stderr := command(t, "ask", "Which way?")
	if code != exitError {
		t.Errorf("exit %d", code)
	}
	if !strings.Contains(stderr, "no[2J, never") {
		t.Errorf("the reason is not told as text: %q", stderr)
	}
}

// What ends a session ends the command too, with the reasons.
func TestAskFails(t *testing.T) {
	rejecting := simllm.Model{Name: "d", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 400}}}
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Provider(t, rejecting).URL(), "MODELS": "d,d"})
	code, _, stderr := command(t, "ask", "--server", d.URL(), "Which way?")
	if code != exitError {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{"the session failed: 0 of 2 members answered", "\n  d#2: rejected"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is missing: %s", want, stderr)
		}
	}
}
