package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/mcpserver"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// told is what came back from a call of a tool over POST /mcp.
type told struct {
	progress []float64
	messages []string
	result   struct {
		IsError           bool
		StructuredContent mcpserver.ToolResult
	}
}

// tool calls a tool, and reports progress.
func (b *bubble) tool(name, arguments string) (got told) {
	b.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":7}}}`,
		name, arguments)
	resp, data, err := b.Send(b.t.Context(), "POST", "/mcp", body, "Accept", "application/json, text/event-stream",
		"MCP-Protocol-Version", "2025-11-25")
	if err != nil || resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%v %v: %s", resp, err, data)
	}
	if got, err = readTold(data); err != nil {
		b.t.Fatal(err)
	}
	return got
}

// readTold reads the response to a call.
func readTold(data []byte) (got told, err error) {
	for line := range strings.Lines(string(data)) {
		text, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var message struct {
			Result json.RawMessage
			Params struct {
				Progress float64
				Message  string
			}
		}
		if err := json.Unmarshal([]byte(text), &message); err != nil {
			return got, fmt.Errorf("%w: %s", err, text)
		}
		if message.Result == nil {
			got.progress, got.messages = append(got.progress, message.Params.Progress), append(got.messages, message.Params.Message)
		} else if err := json.Unmarshal(message.Result, &got.result); err != nil {
			return got, fmt.Errorf("%w: %s", err, text)
		}
	}
	return got, nil
}

// sessions is how many sessions there are.
func (b *bubble) sessions() int {
	b.t.Helper()
	_, data := b.Call(b.t, "GET", "/v1/council", "")
	var list struct{ Sessions []council.Summary }
	if err := json.Unmarshal(data, &list); err != nil {
		b.t.Fatal(err)
	}
	return len(list.Sessions)
}

const askedByTool = `{"question":"Which one?"}`

// A session of real length outlives the calls that wait for it, tells its progress every
// ten seconds, and is paid for once.
func TestToolAtTheSpeedOfRealModels(t *testing.T) {
	inBubble(t, scenario{dwell: func(simllm.Task) time.Duration { return 30 * time.Second }}, func(b *bubble) {
		begun := time.Now()
		first := b.tool("council", askedByTool)
		if took := time.Since(begun); took != 50*time.Second {
			t.Errorf("the call took %v, want 50 s", took)
		}
		running := first.result.StructuredContent
		if running.Status != council.StatusRunning || running.Answer != nil || running.Next == nil {
			t.Fatalf("after the wait: %+v", running)
		}
		if !strings.Contains(*running.Next, running.SessionID) {
			t.Errorf("next does not name the session: %s", *running.Next)
		}
		// The start, the beats at 10 to 50 s, of which one may be lost to the end, four answers, and the end of stage 1.
		if n := len(first.progress); n < 10 || n > 12 {
			t.Errorf("%d reports of progress: %q", n, first.messages)
		}
		for i := range first.progress {
			if i > 0 && first.progress[i] <= first.progress[i-1] {
				t.Errorf("progress falls: %v", first.progress)
			}
			if !strings.Contains(first.messages[i], running.SessionID) {
				t.Errorf("progress does not name the session: %s", first.messages[i])
			}
		}
		again := b.tool("council", `{"wait_seconds":600,"question":"Which one?"}`).result.StructuredContent
		if took := time.Since(begun); took != 90*time.Second {
			t.Errorf("the session took %v, want 90 s", took)
		}
		if again.SessionID != running.SessionID || again.Status != council.StatusComplete || again.Answer == nil || again.Next != nil {
			t.Errorf("the repeated call: %+v", again)
		}
		if n := b.sessions(); n != 1 {
			t.Errorf("%d sessions were begun", n)
		}
	})
}

// The answer of a session is that of the same question for ten minutes after its end.
func TestToolJoinsForTenMinutes(t *testing.T) {
	inBubble(t, scenario{dwell: func(simllm.Task) time.Duration { return 10 * time.Second }}, func(b *bubble) {
		first := b.tool("council", askedByTool).result.StructuredContent
		time.Sleep(10*time.Minute - time.Second)
		if again := b.tool("council", askedByTool).result.StructuredContent; again.SessionID != first.SessionID {
			t.Errorf("a second before ten minutes: session %s, want %s", again.SessionID, first.SessionID)
		}
		time.Sleep(2 * time.Second)
		later := b.tool("council", askedByTool).result.StructuredContent
		if later.SessionID == first.SessionID {
			t.Error("a second after ten minutes the old session was the answer")
		}
		time.Sleep(time.Minute)
		if again := b.tool("council", askedByTool).result.StructuredContent; again.SessionID != later.SessionID {
			t.Errorf("a minute later: session %s, want %s", again.SessionID, later.SessionID)
		}
		time.Sleep(11 * time.Minute)
		if again := b.tool("council", askedByTool).result.StructuredContent; again.SessionID == later.SessionID {
			t.Error("eleven minutes later the second session was the answer")
		}
		if n := b.sessions(); n != 3 {
			t.Errorf("%d sessions were begun, want 3", n)
		}
	})
}

// callTool calls a tool of a daemon.
func callTool(t *testing.T, d *daemontest.Daemon, name, arguments string) (told, error) {
	t.Helper()
	_, data, err := d.Send(t.Context(), "POST", "/mcp",
		fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments),
		"Accept", "application/json, text/event-stream")
	if err != nil {
		return told{}, err
	}
	return readTold(data)
}

// A daemon that stops does not wait for calls that wait for a session: a session that is
// kept is said to run, and the next daemon has its answer.
func TestToolWhileTheDaemonStops(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick", "DRAIN_TIMEOUT": "0s"})
	type outcome struct {
		told
		error
	}
	done := make(chan outcome, 1)
	go func() {
		got, err := callTool(t, d, "council", askedByTool)
		done <- outcome{got, err}
	}()
	<-arrived
	begun := time.Now()
	d.End(t)
	if took := time.Since(begun); took > daemon.CloseGrace {
		t.Errorf("stopping took %v", took)
	}
	first := <-done
	running := first.result.StructuredContent
	if first.error != nil || first.result.IsError || running.Status != council.StatusRunning || running.Next == nil {
		t.Fatalf("the call ended with %v %+v", first.error, first.result)
	}
	release()
	d = daemontest.StartWith(t, daemon.Options{Config: d.Config, Simulated: simllm.Default(), Version: "test"})
	got, err := callTool(t, d, "council_result", fmt.Sprintf(`{"session_id":%q}`, running.SessionID))
	if err != nil || got.result.StructuredContent.Answer == nil {
		t.Errorf("after the restart: %v %+v", err, got.result)
	}
}

// The same question at another node of a cluster is the same session.
func TestToolAtAnotherNode(t *testing.T) {
	testkit.Slow(t)
	url, arrived, release := daemontest.Held(t)
	cluster := journaltest.Start(t)
	all := nodes(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"}, cluster.URL, cluster.URL)
	first, err := callTool(t, all[0], "council", `{"question":"Which one?","wait_seconds":0}`)
	if err != nil || first.result.IsError {
		t.Fatalf("%v %+v", err, first.result)
	}
	<-arrived
	release()
	second, err := callTool(t, all[1], "council", askedByTool)
	if err != nil || second.result.IsError {
		t.Fatalf("%v %+v", err, second.result)
	}
	answered := second.result.StructuredContent
	if answered.SessionID != first.result.StructuredContent.SessionID || answered.Status != council.StatusComplete || answered.Answer == nil {
		t.Errorf("at the first node %+v, at the second %+v", first.result.StructuredContent, answered)
	}
}
