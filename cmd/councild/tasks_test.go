package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// taskReply is a response to a tool call that became a task, or to tasks/get.
type taskReply struct {
	Result struct {
		ResultType, TaskID, Status, StatusMessage string
		StructuredContent                         struct {
			ID string `json:"session_id"`
		}
		Result struct {
			StructuredContent struct {
				Status string
				Answer *string
			}
		}
	}
}

// taskRequest sends a request of an MCP client that declares tasks.
func taskRequest(t *testing.T, c daemontest.Caller, method, name string, params map[string]any) (r taskReply) {
	t.Helper()
	status, data := c.MCP(t, "2026-07-28", []string{"io.modelcontextprotocol/tasks"}, method, name, params)
	if err := json.Unmarshal(data, &r); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s", method, status, data)
	}
	return r
}

// The daemon is killed while a task runs, and started again. The task keeps its id, and the client gets its result.
// A thousand calls with the same question, before and after the kill, are the same task.
func TestFaultF71TasksAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	url, arrived, release := daemontest.Held(t)
	dir := t.TempDir()
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	defer transport.CloseIdleConnections()
	begin := func() (*process, daemontest.Caller) {
		p := start(t, []string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + url, "LLM_COUNCIL_MODELS=waiting,quick", "LLM_COUNCIL_DATA_DIR=" + dir,
		}, "serve")
		base, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
		go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
		return p, daemontest.Caller{Base: base, Client: &http.Client{Transport: transport}}
	}
	ask := func(c daemontest.Caller) taskReply {
		return taskRequest(t, c, "tools/call", "council", map[string]any{
			"name": "council", "arguments": map[string]any{"question": "What outlives its process?"},
		})
	}
	get := func(c daemontest.Caller, id string) taskReply {
		return taskRequest(t, c, "tasks/get", id, map[string]any{"taskId": id})
	}
	const workers, each = 4, 125 // in each of the two lives
	repeat := func(c daemontest.Caller, id string) {
		var calls sync.WaitGroup
		for range workers {
			calls.Go(func() {
				for range each {
					if r := ask(c); r.Result.TaskID != id {
						t.Errorf("the same call is %+v, want task %s", r, id)
						return
					}
				}
			})
		}
		calls.Wait()
	}

	p, c := begin()
	id := ask(c).Result.TaskID
	<-arrived
	daemontest.Until(t, func() bool { return get(c, id).Result.StatusMessage == "1 of 2 members have answered" })
	repeat(c, id)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // It was killed.
	p, c = begin()
	if r := get(c, id); r.Result.Status != "working" || r.Result.TaskID != id {
		t.Errorf("after the kill the task is %+v", r)
	}
	repeat(c, id)
	<-arrived
	release()
	var last taskReply
	daemontest.Until(t, func() bool {
		last = get(c, id)
		return last.Result.Status != "working"
	})
	if s := last.Result.Result.StructuredContent; last.Result.Status != "completed" || s.Status != "complete" || s.Answer == nil {
		t.Errorf("the task ended as %+v", last)
	}
	if r := ask(c); r.Result.ResultType != "complete" || r.Result.StructuredContent.ID != id {
		t.Errorf("the same call after the end: %+v", r)
	}
	if n := len(arrived); n != 0 {
		t.Errorf("the member that waited was asked %d times more than once in each life", n)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = p.Wait()
	daemontest.Fault(t, "F71", "the task keeps its id and gets its result; 1,000 calls are one session",
		"1 kill -9, %d calls with the same question: one session, and its answer", 2*workers*each+2)
}
