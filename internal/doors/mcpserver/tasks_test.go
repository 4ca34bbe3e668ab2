package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/doors/mcpserver"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

const (
	extension      = "io.modelcontextprotocol/tasks"
	tasksRevision  = "2026-07-28"
	headerMismatch = -32020
	undeclared     = -32021
	noMethod       = -32601
	badParams      = -32602
	internalError  = -32603
)

// taskResult is the result of a method for tasks, or of a tool.
type taskResult struct {
	ResultType        string
	TaskID            string
	Status            string
	StatusMessage     string
	CreatedAt         time.Time
	LastUpdatedAt     time.Time
	TTLMs             int64
	PollIntervalMs    int64
	StructuredContent mcpserver.ToolResult
	Capabilities      struct{ Extensions map[string]any }
	IsError           bool
	Result            *struct {
		ResultType        string
		Content           []struct{ Type, Text string }
		StructuredContent mcpserver.ToolResult
		IsError           bool
	}
}

// reply is a JSON-RPC response.
type reply struct {
	status int // of HTTP
	Result taskResult
	Error  struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

// taskClient sends requests as a client of POST /mcp.
type taskClient struct {
	daemontest.Caller
	revision string
	declares bool // the extension
}

// request sends a request. The header Mcp-Name is the argument name.
func (c taskClient) request(t *testing.T, method, name string, params map[string]any) (r reply) {
	t.Helper()
	var extensions []string
	if c.declares {
		extensions = append(extensions, extension)
	}
	status, data := c.MCP(t, c.revision, extensions, method, name, params)
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v: %d %s", method, err, status, data)
	}
	r.status = status
	return r
}

func (c taskClient) tool(t *testing.T, name string, arguments map[string]any) reply {
	t.Helper()
	return c.request(t, "tools/call", name, map[string]any{"name": name, "arguments": arguments})
}

func (c taskClient) task(t *testing.T, method, id string) reply {
	t.Helper()
	return c.request(t, "tasks/"+method, id, map[string]any{"taskId": id})
}

// begin calls a tool and returns the new task.
func (c taskClient) begin(t *testing.T, tool string, arguments map[string]any) taskResult {
	t.Helper()
	r := c.tool(t, tool, arguments)
	if r.Result.ResultType != "task" || r.Result.TaskID == "" || r.Result.Status != "working" || r.Result.Result != nil {
		t.Fatalf("%s is no new task: %+v", tool, r)
	}
	return r.Result
}

// end waits for the end of a task.
func (c taskClient) end(t *testing.T, id string) (last taskResult) {
	t.Helper()
	daemontest.Until(t, func() bool {
		last = c.task(t, "get", id).Result
		return last.Status != "working"
	})
	if last.ResultType != "complete" || last.TaskID != id {
		t.Errorf("the task is %+v", last)
	}
	return last
}

// fails checks the error and the status of a response.
func (r reply) fails(t *testing.T, code, status int) {
	t.Helper()
	if r.Error.Code != code || r.status != status {
		t.Errorf("HTTP %d, %+v; want HTTP %d, %d", r.status, r.Error, status, code)
	}
}

// A call of a client that declares the extension is a task: the session under another name.
func TestTask(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick", "API_TOKENS": tokenOne + "," + tokenTwo})
	c := taskClient{d.Caller, tasksRevision, true}
	c.Token = tokenOne
	begun := c.begin(t, "council", map[string]any{"question": question, "wait_seconds": 600})
	<-arrived
	const day = 24*time.Hour + 10*time.Minute // SESSION_RETENTION and TIMEOUT
	if begun.TTLMs != day.Milliseconds() || begun.PollIntervalMs != 5000 || begun.CreatedAt.IsZero() || begun.LastUpdatedAt.Before(begun.CreatedAt) {
		t.Errorf("the task is %+v", begun)
	}
	daemontest.Until(t, func() bool {
		return c.task(t, "get", begun.TaskID).Result.StatusMessage == "1 of 2 members have answered"
	})
	for range 3 {
		if again := c.begin(t, "council", map[string]any{"question": question}); again.TaskID != begun.TaskID {
			t.Errorf("the same call is the task %s", again.TaskID)
		}
	}

	other := c
	other.Token = tokenTwo
	silent := c
	silent.declares = false
	for _, method := range []string{"get", "update", "cancel"} {
		other.task(t, method, begun.TaskID).fails(t, badParams, http.StatusBadRequest)
		for _, id := range []string{"01982f6e-0000-7000-8000-000000000000", "", "..", "../councils", "x y", strings.Repeat("x", 2000)} {
			c.request(t, "tasks/"+method, id, map[string]any{"taskId": id}).fails(t, badParams, http.StatusBadRequest)
		}
		c.request(t, "tasks/"+method, "another", map[string]any{"taskId": begun.TaskID}).fails(t, headerMismatch, http.StatusBadRequest)
		c.request(t, "tasks/"+method, "", map[string]any{"taskId": begun.TaskID}).fails(t, headerMismatch, http.StatusBadRequest)
		r := silent.task(t, method, begun.TaskID)
		r.fails(t, undeclared, http.StatusBadRequest)
		if want := `{"requiredCapabilities":{"extensions":{"` + extension + `":{}}}}`; string(r.Error.Data) != want {
			t.Errorf("the data is %s", r.Error.Data)
		}
	}
	if r := silent.tool(t, "council", map[string]any{"question": question, "wait_seconds": 0}); r.Result.TaskID != "" ||
		r.Result.StructuredContent.Status != council.StatusRunning || r.Result.StructuredContent.SessionID != begun.TaskID {
		t.Errorf("a client that does not declare the extension gets %+v", r)
	}
	if r := c.task(t, "update", begun.TaskID); r.Result.ResultType != "complete" || r.Error.Code != 0 {
		t.Errorf("tasks/update: %+v", r)
	}

	release()
	last := c.end(t, begun.TaskID)
	if last.Status != "completed" || last.Result == nil || last.Result.ResultType != "complete" || last.Result.IsError {
		t.Fatalf("the task is %+v", last)
	}
	if !last.CreatedAt.Equal(begun.CreatedAt) || last.TTLMs < (24*time.Hour).Milliseconds() || last.TTLMs >= begun.TTLMs || last.StatusMessage != "" {
		t.Errorf("the task is %+v", last)
	}
	plain, text, _ := connect(t, d.URL(), tokenOne, tasksRevision).call("council_result", map[string]any{"session_id": begun.TaskID})
	if !reflect.DeepEqual(last.Result.StructuredContent, plain) || last.Result.Content[0].Text != text || plain.Answer == nil {
		t.Errorf("the result of the task is %+v, that of council_result %+v", last.Result, plain)
	}
	for _, method := range []string{"cancel", "update"} {
		if r := c.task(t, method, begun.TaskID); r.Result.ResultType != "complete" || r.Error.Code != 0 {
			t.Errorf("tasks/%s after the end: %+v", method, r)
		}
	}
	if after := c.end(t, begun.TaskID); after.Status != "completed" {
		t.Errorf("after the end the task became %s", after.Status)
	}
	if r := c.tool(t, "council", map[string]any{"question": question}); r.Result.ResultType != "complete" || r.Result.StructuredContent.SessionID != begun.TaskID {
		t.Errorf("the same call after the end: %+v", r)
	}
	d.Token = tokenOne
	if status, data := d.Call(t, http.MethodDelete, "/v1/council/"+begun.TaskID, ""); status != http.StatusNoContent {
		t.Errorf("%d %s", status, data)
	}
	c.task(t, "get", begun.TaskID).fails(t, badParams, http.StatusBadRequest)
}

// A cancelled session is a cancelled task. A failed one is a result that is an error.
func TestTasksWithoutAnswer(t *testing.T) {
	url, arrived, _ := daemontest.Held(t)
	c := taskClient{daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"}).Caller, tasksRevision, true}
	begun := c.begin(t, "council", map[string]any{"question": question})
	<-arrived
	if r := c.task(t, "cancel", begun.TaskID); r.Result.ResultType != "complete" || r.Result.TaskID != "" {
		t.Errorf("tasks/cancel: %+v", r)
	}
	if last := c.end(t, begun.TaskID); last.Status != "cancelled" || last.Result != nil {
		t.Errorf("the task is %+v", last)
	}
	judged := c.begin(t, "judge", map[string]any{"question": question, "council": "default", "answers": []map[string]any{
		{"id": "x", "text": "One."}, {"id": "y", "text": "Two."},
	}})
	c.task(t, "cancel", judged.TaskID)

	gate := make(chan struct{})
	var models []simllm.Model
	for _, name := range []string{"a", "b"} {
		models = append(models, simllm.Model{Name: name, Reply: func(simllm.Task) (string, bool) {
			<-gate
			return "", true // An empty reply is a failure.
		}})
	}
	env := map[string]string{"BASE_URL": daemontest.Provider(t, models...).URL(), "MODELS": "a,b", "MAX_ATTEMPTS": "1"}
	d := daemontest.Start(t, env)
	c.Caller = d.Caller
	begun = c.begin(t, "council", map[string]any{"question": question})
	close(gate)
	last := c.end(t, begun.TaskID)
	if last.Status != "completed" || last.Result == nil || !last.Result.IsError || last.Result.StructuredContent.Status != council.StatusFailed {
		t.Fatalf("the task is %+v", last)
	}
	if text := last.Result.Content[0].Text; !strings.Contains(text, "a: ") {
		t.Errorf("the result says %s", text)
	}
}

// Others get what they got before: older revisions, and daemons that keep no sessions. The extension is an empty object
// in the answer to server/discover, because clients read any other value as no support.
func TestWithoutTasks(t *testing.T) {
	url, _, release := daemontest.Held(t)
	defer release() // The daemon waits for its sessions before it stops.
	env := map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"}
	d := daemontest.Start(t, env)
	c := taskClient{d.Caller, tasksRevision, true}
	found, ok := c.request(t, "server/discover", "", nil).Result.Capabilities.Extensions[extension].(map[string]any)
	if !ok || len(found) != 0 {
		t.Errorf("server/discover: %v", found)
	}
	for _, method := range []string{"tasks/list", "tasks/result"} {
		c.request(t, method, "x", map[string]any{"taskId": "x"}).fails(t, noMethod, http.StatusNotFound)
	}
	old := taskClient{d.Caller, "2025-11-25", true}
	r := old.request(t, "initialize", "", map[string]any{
		"protocolVersion": old.revision, "clientInfo": map[string]any{"name": "test", "version": "1"},
		"capabilities": map[string]any{"extensions": map[string]any{extension: map[string]any{}}},
	})
	if len(r.Result.Capabilities.Extensions) != 0 || r.Error.Code != 0 {
		t.Errorf("initialize: %+v", r)
	}
	old.task(t, "get", "x").fails(t, noMethod, http.StatusOK)
	asked := map[string]any{"question": question, "wait_seconds": 0}
	if r := old.tool(t, "council", asked); r.Result.TaskID != "" || r.Result.StructuredContent.Status != council.StatusRunning {
		t.Errorf("an older client gets %+v", r)
	}
	for _, setting := range []string{"SESSION_RETENTION", "SESSIONS_KEPT"} {
		env[setting] = map[string]string{"SESSION_RETENTION": "0s", "SESSIONS_KEPT": "0"}[setting]
		c.Caller = daemontest.Start(t, env).Caller
		if r := c.request(t, "server/discover", "", nil); len(r.Result.Capabilities.Extensions) != 0 {
			t.Errorf("%s is 0: %+v", setting, r.Result.Capabilities)
		}
		c.task(t, "get", "x").fails(t, noMethod, http.StatusNotFound)
		delete(env, setting)
	}
}

// While sessions cannot be read, a task is not unknown: its client would drop it, and the answer is paid for.
func TestTasksThatCannotBeRead(t *testing.T) {
	status := http.StatusServiceUnavailable
	daemon := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, `{"type":"urn:councild:problem:unavailable","detail":"the log cannot be read"}`)
	})
	s, err := mcpserver.New(mcpserver.Options{
		Daemon:    client.Options{URL: "http://localhost", HTTP: &http.Client{Transport: mcpserver.InProcess(daemon)}},
		Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/mcp", s))
	defer server.Close()
	c := taskClient{daemontest.Caller{Base: server.URL}, tasksRevision, true}
	for _, method := range []string{"get", "cancel", "update"} {
		r := c.task(t, method, "01982f6e-0000-7000-8000-000000000000")
		r.fails(t, internalError, http.StatusOK)
		if !strings.Contains(r.Error.Message, "the log cannot be read") {
			t.Errorf("the error says %s", r.Error.Message)
		}
	}
	status = http.StatusNotFound
	c.task(t, "get", "01982f6e-0000-7000-8000-000000000000").fails(t, badParams, http.StatusBadRequest)
}
