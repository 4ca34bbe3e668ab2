package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// overStdio has a client of councild mcp do something, and returns what the command says
// on stderr at its end, which must be a good one.
func overStdio(t *testing.T, args []string, do func(*mcp.ClientSession)) string {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- Main(t.Context(), IO{Args: append([]string{"mcp"}, args...), Stdin: in, Stdout: out, Stderr: &stderr})
		_ = in.Close()
		_ = out.Close()
	}()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(
		t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatalf("%v: exit %d: %s", err, <-code, &stderr)
	}
	do(session)
	_ = session.Close()
	if code := <-code; code != 0 {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	return stderr.String()
}

// callTool calls a tool and returns its text.
func callTool(t *testing.T, session *mcp.ClientSession, name string, arguments map[string]any) (text string, isError bool) {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, content := range result.Content {
		if part, ok := content.(*mcp.TextContent); ok {
			b.WriteString(part.Text)
		}
	}
	return b.String(), result.IsError
}

// nobody is an address at which nothing answers.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestMCPInProcess(t *testing.T) {
	daemontest.Setenv(t, map[string]string{
		"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "ADDR": nobody(t), "API_TOKENS": "a-token-of-sixteen-and-more",
	})
	said := overStdio(t, nil, func(session *mcp.ClientSession) {
		text, isError := callTool(t, session, "council", map[string]any{"question": "Which way?"})
		if isError || !strings.Contains(text, string(council.StatusComplete)) {
			t.Errorf("the council says %s", text)
		}
		if text, isError = callTool(t, session, "leaderboard", nil); isError || !strings.Contains(text, "a") {
			t.Errorf("the leaderboard is %s", text)
		}
	})
	if !strings.Contains(said, "the council runs in this process") || strings.Contains(said, "listening") {
		t.Errorf("said %s", said)
	}
}

// The records are left to the daemon that holds them.
func TestMCPBesideADaemon(t *testing.T) {
	d := startDaemon(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	t.Setenv("LLM_COUNCIL_ADDR", nobody(t))
	said := overStdio(t, nil, func(session *mcp.ClientSession) {
		if text, isError := callTool(t, session, "council", map[string]any{"question": "Which way?"}); isError {
			t.Errorf("the council says %s", text)
		}
	})
	if !strings.Contains(said, "sessions leave no records") || !strings.Contains(said, "--server") {
		t.Errorf("said %s", said)
	}
	if records := d.Records(t); len(records) != 0 {
		t.Errorf("%d records", len(records))
	}
}

// Without --server, the daemon of this machine is asked.
func TestMCPAsksADaemon(t *testing.T) {
	d := startDaemon(t, map[string]string{
		"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "API_TOKENS": "a-token-of-sixteen-and-more",
	})
	d.Token = "a-token-of-sixteen-and-more"
	address := strings.TrimPrefix(d.URL(), "http://")
	for _, tt := range []struct {
		name, addr string
		args       []string
	}{
		{"by the settings", address, nil},
		{"by a flag", nobody(t), []string{"--server", d.URL() + "/v1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("LLM_COUNCIL_ADDR", tt.addr)
			said := overStdio(t, tt.args, func(session *mcp.ClientSession) {
				if text, isError := callTool(t, session, "council", map[string]any{"question": tt.name}); isError {
					t.Errorf("the council says %s", text)
				}
			})
			if !strings.Contains(said, "asking the daemon at "+d.URL()) {
				t.Errorf("said %s", said)
			}
			if _, data := d.Call(t, "GET", "/v1/council", ""); !strings.Contains(string(data), tt.name) {
				t.Errorf("the daemon has %s", data)
			}
		})
	}
	t.Run("with a wrong token", func(t *testing.T) {
		t.Setenv("LLM_COUNCIL_API_TOKENS", "another-token-of-sixteen")
		overStdio(t, []string{"--server", d.URL()}, func(session *mcp.ClientSession) {
			text, isError := callTool(t, session, "council", map[string]any{"question": "x"})
			if !isError || !strings.Contains(text, "does not know the first token of LLM_COUNCIL_API_TOKENS") {
				t.Errorf("the tool says %s", text)
			}
		})
	})
	t.Run("that is gone", func(t *testing.T) {
		overStdio(t, []string{"--server", "http://" + nobody(t)}, func(session *mcp.ClientSession) {
			text, isError := callTool(t, session, "council", map[string]any{"question": "x"})
			if !isError || !strings.Contains(text, "no daemon answers at") {
				t.Errorf("the tool says %s", text)
			}
		})
	})
}

// The command offers tasks if the sessions that it begins can be read after their end. The daemon says so.
func TestMCPTasks(t *testing.T) {
	env := map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"}
	keeps := startDaemon(t, env)
	env["SESSION_RETENTION"] = "0s"
	forgets := startDaemon(t, env)
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"councils":[],"takes_events":false,"demo":null}`)
	}))
	defer older.Close()
	daemontest.Setenv(t, map[string]string{"BASE_URL": env["BASE_URL"], "MODELS": "a,b", "ADDR": nobody(t)})
	for _, tt := range []struct {
		name string
		args []string
		want bool
	}{
		{"a daemon that keeps sessions", []string{"--server", keeps.URL()}, true},
		{"a daemon that does not", []string{"--server", forgets.URL()}, false},
		{"an older daemon", []string{"--server", older.URL}, false},
		{"no daemon", []string{"--server", "http://" + nobody(t)}, false},
		{"in this process", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			overStdio(t, tt.args, func(session *mcp.ClientSession) {
				if spoken := session.InitializeResult().ProtocolVersion; spoken != "2026-07-28" {
					t.Errorf("the client speaks %s", spoken)
				}
				offered := session.InitializeResult().Capabilities.Extensions
				if _, ok := offered["io.modelcontextprotocol/tasks"]; ok != tt.want {
					t.Errorf("the extensions are %v", offered)
				}
			})
		})
	}
}

func TestMCPMistakes(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": "", "ADDR": nobody(t)})
	for _, tt := range []struct {
		args  []string
		stdin io.Reader
		words string
	}{
		{nil, strings.NewReader(""), "LLM_COUNCIL_MODELS"},
		{nil, nil, "standard input"},
		{[]string{"--server", "ftp://x"}, strings.NewReader(""), "http://HOST:PORT"},
	} {
		var stdout, stderr bytes.Buffer
		code := Main(context.Background(), IO{Args: append([]string{"mcp"}, tt.args...), Stdin: tt.stdin, Stdout: &stdout, Stderr: &stderr})
		if code != 2 || !strings.Contains(stderr.String(), tt.words) {
			t.Errorf("%v: exit %d: %s", tt.args, code, &stderr)
		}
		if stdout.Len() > 0 {
			t.Errorf("%v wrote %s", tt.args, &stdout)
		}
	}
}
