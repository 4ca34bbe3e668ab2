package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
)

const (
	// tasksExtension is the name of MCP's extension for tool calls that take long. A task is a view of a session: they
	// have the same id, and nothing else is stored.
	tasksExtension = "io.modelcontextprotocol/tasks"
	// tasksRevision is the first revision of MCP that has the extension in the form that this package serves.
	tasksRevision = "2026-07-28"
	// tasksPrefix begins the names of the methods for tasks.
	tasksPrefix = "tasks/"
	// pollInterval is how often clients are told to ask for a task.
	pollInterval = 5 * time.Second
	// beginWait bounds the wait for the first event of a session, which says how many members are asked.
	beginWait = 500 * time.Millisecond
	// idCharacters are the characters of session ids. Other ids, such as "..", would be other paths of the daemon.
	idCharacters = "0123456789abcdef-"
	// complete is the resultType of every result except a new task.
	complete = "complete"
)

// task is a new task, or the state of one.
type task struct {
	mcp.ResultBase
	ResultType     string    `json:"resultType"`
	ID             string    `json:"taskId"`
	Status         string    `json:"status"`
	Message        string    `json:"statusMessage,omitempty"`
	Created        time.Time `json:"createdAt"`
	Updated        time.Time `json:"lastUpdatedAt"`
	TTLMS          int64     `json:"ttlMs"` // how long the task can be read, from Created
	PollIntervalMS int64     `json:"pollIntervalMs"`
	Result         *outcome  `json:"result,omitempty"`
}

// outcome is the result of a tool inside a task.
type outcome struct {
	ResultType        string        `json:"resultType"`
	Content           []mcp.Content `json:"content"`
	StructuredContent ToolResult    `json:"structuredContent"`
	IsError           bool          `json:"isError,omitempty"`
}

// acknowledged is the result of tasks/cancel and tasks/update.
type acknowledged struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// taskParams are the parameters of the methods for tasks.
type taskParams struct {
	mcp.ParamsBase
	ID string `json:"taskId"`
}

// taskCall is a tool call of a client that accepts a task in place of the result.
type taskCall struct {
	running *council.Session // set by the tool if the session still runs
}

// taskCallKey is the key of the taskCall in a context.
type taskCallKey struct{}

// callOf returns the taskCall in a context, or nil.
func callOf(ctx context.Context) *taskCall {
	call, _ := ctx.Value(taskCallKey{}).(*taskCall)
	return call
}

// takesLong reports whether a tool starts a session.
func takesLong(tool string) bool { return tool == "council" || tool == "judge" || tool == "convene" }

// addTasks adds the methods for tasks to the server.
func (s *Server) addTasks() {
	err := errors.Join(
		mcp.AddReceivingCustomMethod(s.server, tasksPrefix+"get", s.getTask),
		mcp.AddReceivingCustomMethod(s.server, tasksPrefix+"cancel", s.cancelTask),
		mcp.AddReceivingCustomMethod(s.server, tasksPrefix+"update", s.updateTask),
	)
	if err != nil {
		panic(err) // A name is that of another method. Every start of the program would panic.
	}
	s.server.AddReceivingMiddleware(s.serveTasks)
}

// serveTasks returns a task in place of a tool's result, if the client declares the extension and the session of the
// call still runs. It refuses the methods for tasks to clients that do not declare the extension.
func (s *Server) serveTasks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		switch r := r.(type) {
		case *mcp.ServerRequest[*taskParams]:
			if r.ProtocolVersion() < tasksRevision {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", method)}
			}
			if !declared(r.ClientCapabilities()) {
				return nil, undeclared()
			}
		case *mcp.CallToolRequest:
			if r.ProtocolVersion() >= tasksRevision && declared(r.ClientCapabilities()) && takesLong(r.Params.Name) {
				return s.callTask(ctx, next, method, r)
			}
		}
		result, err := next(ctx, method, r)
		if initialized, ok := result.(*mcp.InitializeResult); ok && err == nil {
			initialized.Capabilities.Extensions = nil // Revisions with this method have no such tasks.
		}
		return result, err
	}
}

// callTask calls a tool. It returns a task if the session of the call still runs.
func (s *Server) callTask(
	ctx context.Context, next mcp.MethodHandler, method string, r *mcp.CallToolRequest,
) (mcp.Result, error) {
	call := &taskCall{}
	result, err := next(context.WithValue(ctx, taskCallKey{}, call), method, r)
	if err != nil || call.running == nil {
		return result, err
	}
	t := s.taskOf(ctx, call.running)
	t.ResultType = "task"
	return t, nil
}

// declared reports whether a client declares the extension.
func declared(c *mcp.ClientCapabilities) bool {
	if c == nil {
		return false
	}
	_, ok := c.Extensions[tasksExtension]
	return ok
}

// undeclared returns the error for a client that asks for a task and does not declare the extension.
func undeclared() error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the request does not declare the extension " + tasksExtension + "; declare it in the client's capabilities",
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
}

// misnamed returns an error if the header Mcp-Name of a request for a task is not the id of the task. The SDK checks
// this header only for MCP's own methods.
func (s *Server) misnamed(header http.Header, m message) *jsonrpc.Error {
	named := m.method == tasksPrefix+"get" || m.method == tasksPrefix+"cancel" || m.method == tasksPrefix+"update"
	if s.o.Retention <= 0 || !named || header.Get("Mcp-Protocol-Version") < tasksRevision || header.Get("Mcp-Name") == m.task {
		return nil
	}
	return &jsonrpc.Error{
		Code: mcp.CodeHeaderMismatch,
		Message: fmt.Sprintf("the header Mcp-Name is %q, and not the taskId of the request; send the taskId in both",
			short(header.Get("Mcp-Name"))),
	}
}

// getTask is the method tasks/get.
func (s *Server) getTask(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*task, error) {
	known, err := s.find(ctx, p)
	if err != nil {
		return nil, err
	}
	t := s.taskOf(ctx, known)
	if t.Status != "completed" {
		return t, nil
	}
	shown, result, err := s.ended(ctx, known)
	if err != nil {
		return nil, internal(err)
	}
	shown.IsError = shown.IsError || result.Status == council.StatusFailed
	shorten(shown)
	t.Result = &outcome{
		ResultType: complete, Content: shown.Content, StructuredContent: result, IsError: shown.IsError,
	}
	return t, nil
}

// cancelTask is the method tasks/cancel. A session that has ended stays as it is.
func (s *Server) cancelTask(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*acknowledged, error) {
	known, err := s.find(ctx, p)
	if err != nil {
		return nil, err
	}
	if known.Status == council.StatusRunning { // Delete would delete an ended session.
		if _, err := s.daemon.Delete(ctx, known.ID); err != nil {
			return nil, s.lost(p.ID, err)
		}
	}
	return &acknowledged{ResultType: complete}, nil
}

// updateTask serves the method tasks/update. It changes nothing, because a session never asks the client for input.
func (s *Server) updateTask(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*acknowledged, error) {
	if _, err := s.find(ctx, p); err != nil {
		return nil, err
	}
	return &acknowledged{ResultType: complete}, nil
}

// find returns the session of a task. Sessions of other tokens are unknown to the caller.
func (s *Server) find(ctx context.Context, p *taskParams) (*council.Session, error) {
	if p == nil || p.ID == "" || len(p.ID) > maxID || strings.Trim(p.ID, idCharacters) != "" {
		return nil, unknownTask()
	}
	known, err := s.daemon.Session(ctx, p.ID)
	if err != nil {
		return nil, s.lost(p.ID, err)
	}
	return known, nil
}

// lost returns the error for a session that cannot be read or cancelled. A client drops a task that is unknown, so a
// session counts as unknown only if the daemon says so.
func (s *Server) lost(id string, err error) error {
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound {
		return unknownTask()
	}
	return internal(fmt.Errorf("task %s: %w", id, s.explain(err)))
}

// unknownTask returns the error for a task that does not exist, or belongs to another token.
func unknownTask() error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidParams,
		Message: "there is no such task; it may be deleted, or be the task of another token: call the tool again",
	}
}

// internal returns the error for a request that failed inside councild.
func internal(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: short(err.Error())}
}

// taskOf returns the task of a session, without its result.
func (s *Server) taskOf(ctx context.Context, known *council.Session) *task {
	took := took(known)
	t := &task{
		ResultType:     complete,
		ID:             known.ID,
		Created:        known.Created.UTC(),
		Updated:        known.Created.Add(took).UTC(),
		TTLMS:          (took + s.o.Retention).Milliseconds(),
		PollIntervalMS: pollInterval.Milliseconds(),
	}
	switch known.Status {
	case council.StatusRunning:
		t.Status = "working"
		t.Message = s.stage(ctx, known)
		t.TTLMS = (s.o.Timeout + s.o.Retention).Milliseconds()
	case council.StatusCancelled:
		t.Status = "cancelled"
	default:
		t.Status = "completed" // The status failed is for errors of JSON-RPC alone.
	}
	return t
}

// took returns the time from the beginning of a session to its last result. While the session runs, this is an
// estimate, which leaves out the time between calls.
func took(s *council.Session) time.Duration {
	milliseconds := s.Metadata.Timing.TotalMS
	if milliseconds == 0 {
		answers := 0.0
		for _, a := range s.Stage1 {
			answers = max(answers, a.LatencyMS)
		}
		reviews := 0.0
		for _, r := range s.Stage2 {
			reviews = max(reviews, r.LatencyMS)
		}
		milliseconds = answers + reviews
	}
	return time.Duration(milliseconds * float64(time.Millisecond))
}

// stage returns what a running session does now, or "" if that is not known within beginWait.
func (s *Server) stage(ctx context.Context, known *council.Session) string {
	p := &progress{tell: func(float64, float64, string) {}}
	began := false
	ctx, cancel := context.WithTimeout(ctx, beginWait)
	defer cancel()
	// The error is that of the context, which ends with the first event.
	_, _ = s.daemon.Watch(ctx, known.ID, council.ObserverFunc(func(e council.Event) {
		if _, ok := e.Data.(council.Started); ok {
			began = true
			p.Observe(e)
			cancel()
		}
	}))
	if !began {
		return ""
	}
	for _, a := range known.Stage1 {
		p.Observe(council.Event{Data: a})
	}
	if known.Metadata.First != nil {
		p.Observe(council.Event{Data: *known.Metadata.First})
	}
	for _, r := range known.Stage2 {
		p.Observe(council.Event{Data: r})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stageLocked()
}
