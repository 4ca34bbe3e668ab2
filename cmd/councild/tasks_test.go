package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
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

// taskServer is a daemon of TestFaultF71TasksAfterKillNine.
type taskServer struct {
	*process
	daemontest.Caller
}

// startTasks starts a daemon with the members waiting and quick.
func startTasks(t *testing.T, client *http.Client, env ...string) taskServer {
	t.Helper()
	p := start(t, append(env, "LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_MODELS=waiting,quick"), "serve")
	base, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
	go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
	return taskServer{p, daemontest.Caller{Base: base, Client: client}}
}

// ask calls the tool council. Each call has the same question.
func (s taskServer) ask(t *testing.T) taskReply {
	t.Helper()
	return taskRequest(t, s.Caller, "tools/call", "council", map[string]any{
		"name": "council", "arguments": map[string]any{"question": "What outlives its process?"},
	})
}

// get asks for a task.
func (s taskServer) get(t *testing.T, id string) taskReply {
	t.Helper()
	return taskRequest(t, s.Caller, "tasks/get", id, map[string]any{"taskId": id})
}

// repeat calls the tool many times, some at once. Each call must be the task.
func (s taskServer) repeat(t *testing.T, id string, times int) {
	t.Helper()
	const workers = 4
	var calls sync.WaitGroup
	for range workers {
		calls.Go(func() {
			for range times / workers {
				if r := s.ask(t); r.Result.TaskID != id {
					t.Errorf("the same call is %+v, want task %s", r, id)
					return
				}
			}
		})
	}
	calls.Wait()
}

// A daemon is killed while a task runs, and started again, or another node takes the session over. The task keeps its
// id, and the client gets its result. A thousand calls with the same question, before and after the kill, are the same
// task.
func TestFaultF71TasksAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	for _, nodes := range []int{1, 2} {
		url, arrived, release := daemontest.Held(t)
		transport := &http.Transport{MaxIdleConnsPerHost: 8}
		client := &http.Client{Transport: transport}
		env := []string{"LLM_COUNCIL_BASE_URL=" + url, "LLM_COUNCIL_DATA_DIR=" + t.TempDir()}
		if nodes > 1 {
			env = []string{
				"LLM_COUNCIL_BASE_URL=" + url, "LLM_COUNCIL_NATS_URL=" + journaltest.Start(t).URL, "LLM_COUNCIL_BIAS_PERSISTENCE=false",
				constants(map[string]any{"Lease": 2 * time.Second}),
			}
		}
		s := startTasks(t, client, env...)
		id := s.ask(t).Result.TaskID
		<-arrived
		daemontest.Until(t, func() bool { return s.get(t, id).Result.StatusMessage == "1 of 2 members have answered" })
		const half = 500
		s.repeat(t, id, half)
		var next taskServer
		if nodes > 1 {
			next = startTasks(t, client, env...)
		}
		if err := s.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.Wait() // It was killed.
		if nodes == 1 {
			next = startTasks(t, client, env...)
		}
		if r := next.get(t, id); r.Result.Status != "working" || r.Result.TaskID != id {
			t.Errorf("after the kill the task is %+v", r)
		}
		next.repeat(t, id, half)
		<-arrived
		release()
		var last taskReply
		daemontest.Until(t, func() bool {
			last = next.get(t, id)
			return last.Result.Status != "working"
		})
		if s := last.Result.Result.StructuredContent; last.Result.Status != "completed" || s.Status != "complete" || s.Answer == nil {
			t.Errorf("the task ended as %+v", last)
		}
		if r := next.ask(t); r.Result.ResultType != "complete" || r.Result.StructuredContent.ID != id {
			t.Errorf("the same call after the end: %+v", r)
		}
		if n := len(arrived); n != 0 {
			t.Errorf("the member that waited was asked %d times more than once in each life", n)
		}
		transport.CloseIdleConnections()
		if err := next.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		_ = next.Wait()
		daemontest.Fault(t, "F71", "the task keeps its id, and its client gets the result; 1,000 calls are one session",
			"%d nodes, 1 kill -9, %d calls with the same question: one session, and its answer", nodes, 2*half+2)
	}
}
