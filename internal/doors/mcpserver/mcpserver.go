// Package mcpserver offers a council to programs that speak the Model Context Protocol, such as editors and agents. It
// handles POST /mcp, and serves a client on stdio. Each tool call becomes a request to councild's own HTTP interface
// with the token of the caller. So limits, costs and errors are the same as for other clients. The SDK implements the
// protocol, package client sends the requests, and package httpapi serves the requests.
package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
)

// Options are the settings of a Server. Daemon and Log are required.
type Options struct {
	Daemon client.Options // how to reach the daemon; see InProcess for one in this process
	// Explain returns the error of a request in words for the person who set up the daemon's address and token. If
	// Explain is nil, errors stay as they are.
	Explain  func(error) error
	Settings council.SettingNames // names of settings, for messages
	Version  string
	Log      *slog.Logger
	// Timeout is the longest time that a session may take. Retention is how long a session can be read after its end. If
	// Retention is 0, there are no tasks.
	Timeout   time.Duration
	Retention time.Duration
}

// Server serves the Model Context Protocol, in the revisions from 2024-11-05 to 2026-07-28.
type Server struct {
	o       Options
	daemon  *client.Client
	server  *mcp.Server
	handler http.Handler
	// optional holds the names of tools that need no argument.
	optional map[string]bool
	stopped  chan struct{} // closed when calls must no longer wait for a session
	stop     func()
}

// instructions tell a model how to use the server. Clients show the instructions to the model.
const instructions = `A council of several language models answers a question, reviews and ranks the anonymised answers, ` +
	`and a chairman writes the final one; other modes leave stages out. It takes minutes and costs several model calls: ` +
	`ask only what is worth that. Put everything that it has to know into the question: ` +
	`it sees nothing of this conversation. ` +
	`When the result says "running", call council_result with its session_id.`

// sessionURI begins the resource URI of a session.
const sessionURI = "council://sessions/"

// New returns a server. The error says that the URL of the daemon is not valid.
func New(o Options) (*Server, error) {
	daemon, err := client.New(o.Daemon)
	if err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	s := &Server{o: o, daemon: daemon, stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) })}
	s.optional = map[string]bool{}
	capabilities := &mcp.ServerCapabilities{
		Tools:     &mcp.ToolCapabilities{},
		Resources: &mcp.ResourceCapabilities{},
		Prompts:   &mcp.PromptCapabilities{},
	}
	if o.Retention > 0 {
		capabilities.AddExtension(tasksExtension, map[string]any{})
	}
	s.server = mcp.NewServer(
		&mcp.Implementation{Name: "councild", Title: "councild", Version: o.Version},
		&mcp.ServerOptions{
			Instructions: instructions,
			Capabilities: capabilities,
			// All results depend on the caller's token.
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
		},
	)
	if o.Retention > 0 {
		s.addTasks()
	}
	s.server.AddReceivingMiddleware(s.describeCouncils, s.guard)
	s.addTools()
	s.server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "session",
		Title:       "Session of the council",
		URITemplate: sessionURI + "{id}",
		MIMEType:    "application/json",
		Description: "A whole session as JSON: answers, reviews, ranking, audit and cost, " +
			"as GET /v1/council/{id} answers it.",
	}, s.readSession)
	s.server.AddPrompt(&mcp.Prompt{
		Name:        "ask_council",
		Title:       "Ask the council",
		Description: "Put a question to the council, and show its answer.",
		Arguments: []*mcp.PromptArgument{
			{Name: "question", Description: "The question for the council.", Required: true},
			{Name: "council", Description: "The council's name, if there are several."},
		},
	}, askCouncil)
	server := func(*http.Request) *mcp.Server { return s.server }
	s.handler = mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Stateless:                  true, // the only mode that serves the revision 2026-07-28
		MaxRequestBodyBytes:        -1,   // The caller of ServeHTTP has limited the body.
		DisableLocalhostProtection: true, // The caller of ServeHTTP has checked the Host header.
	})
	return s, nil
}

// ServeHTTP serves POST /mcp. The caller has limited and read the body, and has checked the token. Requests to the
// daemon carry the same token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	m, wrong := check(body)
	if err != nil {
		wrong = &jsonrpc.Error{
			Code:    jsonrpc.CodeParseError,
			Message: "the body could not be read to its end; send it again",
		}
	}
	if wrong == nil {
		wrong = s.misnamed(r.Header, m)
	}
	if wrong != nil {
		_ = refuse(w, http.StatusBadRequest, m.id, wrong) // After an error the client is gone.
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, callerOf(r)))
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.handler.ServeHTTP(&httpAnswer{ResponseWriter: w, message: m}, r)
}

// Serve serves one client, line by line, until in or ctx ends. If a line is invalid, Serve answers with an error and
// reads the next line.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	answers := &lines{w: out}
	checked, on := io.Pipe()
	go func() { _ = on.CloseWithError(pass(in, on, answers)) }()
	err := s.server.Run(ctx, &mcp.IOTransport{Reader: checked, Writer: answers, MaxLineLength: -1})
	_ = checked.Close()
	if ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Stop ends the wait of every call. Such a call returns the session with what is known so far. A daemon calls Stop when
// it shuts down while its sessions continue on another node.
func (s *Server) Stop() { s.stop() }

// Close closes idle connections to the daemon.
func (s *Server) Close() { s.daemon.Close() }

// guard ends a call when its caller leaves, turns a panic into an error, and limits the length of a tool's errors.
// The SDK does none of this.
func (s *Server) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				s.o.Log.ErrorContext(ctx, "a panic became an error",
					"where", "mcp", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
				result = nil
				err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "something went wrong inside councild"}
			}
		}()
		if c, ok := ctx.Value(callerKey{}).(caller); ok {
			connected, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			end := context.AfterFunc(c.connected, func() { cancel(context.Cause(c.connected)) }) //nolint:contextcheck // it ends the call
			defer end()
			ctx = connected
		}
		if call, ok := r.(*mcp.CallToolRequest); ok {
			if err := s.leaveOut(call.Params); err != nil {
				return nil, err
			}
		}
		result, err = next(ctx, method, r)
		if called, ok := result.(*mcp.CallToolResult); ok && err == nil {
			shorten(called)
		}
		return result, err
	}
}

// shorten limits the length of a result that is an error.
func shorten(result *mcp.CallToolResult) {
	if !result.IsError {
		return
	}
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			text.Text = withRemedy(text.Text)
		}
	}
}

// maxError is the size of the longest error of a tool, in bytes. Errors are limited because the SDK's own errors repeat
// the arguments.
const maxError = 4000

// withRemedy cuts the error of a tool to its limit. If the SDK found the arguments invalid, it adds a remedy.
func withRemedy(text string) string {
	remedy := ""
	if strings.HasPrefix(text, `validating "arguments"`) {
		remedy = "; call the tool with the arguments that its input schema in tools/list describes"
	}
	return short(text) + remedy
}

// leaveOut removes arguments that are null, because the SDK reads null as a value of a wrong type. It refuses arguments
// that are not an object. For a tool that needs no argument, null counts as an empty object.
func (s *Server) leaveOut(params *mcp.CallToolParamsRaw) error {
	if string(params.Arguments) == "null" && s.optional[params.Name] {
		params.Arguments = nil
	}
	if len(params.Arguments) == 0 {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(params.Arguments, &given); err != nil || given == nil {
		return &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidParams,
			Message: "the arguments are not an object; " +
				"send the object that the tool's input schema in tools/list describes",
		}
	}
	count := len(given)
	maps.DeleteFunc(given, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	if len(given) == count {
		return nil
	}
	rest, err := json.Marshal(given)
	params.Arguments = rest
	return err
}

// describeCouncils changes the list of tools. It adds the names of the councils that the caller may ask to the
// description of one argument: the argument council of the tool council.
func (s *Server) describeCouncils(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, r)
		list, ok := result.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return result, err
		}
		councils := s.councils(ctx)
		for i, tool := range list.Tools {
			if tool.Name == "council" && councils != "" {
				described := *tool
				schema := tool.InputSchema.(*jsonschema.Schema).CloneSchemas()
				schema.Properties["council"].Description += " " + councils
				described.InputSchema = schema
				list.Tools[i] = &described
			}
		}
		return list, nil
	}
}

// maxDescribed is the most councils that the list of tools names. The list is kept short because models read all of it.
const maxDescribed = 20

// councils returns a sentence that names the councils that the caller may ask, with their members. It returns "" if the
// daemon returns no list of councils.
func (s *Server) councils(ctx context.Context) string {
	var list struct {
		Councils []struct {
			Name    string   `json:"name"`
			Members []string `json:"members"`
		} `json:"councils"`
	}
	if err := s.daemon.Get(ctx, "/v1/councils", &list); err != nil {
		return ""
	}
	var names []string
	for _, c := range list.Councils[:min(len(list.Councils), maxDescribed)] {
		names = append(names, fmt.Sprintf("%s (%s)", c.Name, strings.Join(c.Members, ", ")))
	}
	if len(list.Councils) > maxDescribed {
		names = append(names, "and more")
	}
	switch len(names) {
	case 0:
		return ""
	case 1: // The only council may have no name.
		return "The only one has the members " + strings.Join(list.Councils[0].Members, ", ") + "."
	default:
		return "There are: " + strings.Join(names, "; ") + "."
	}
}

// readSession returns a session as a resource.
func (s *Server) readSession(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id := strings.TrimPrefix(r.Params.URI, sessionURI)
	if len(id) > maxID {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	var session json.RawMessage
	err := s.daemon.Get(ctx, client.Path(id), &session)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: s.explain(err).Error()}
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: r.Params.URI, MIMEType: "application/json", Text: string(session)},
	}}, nil
}

// askCouncil turns the arguments of the prompt into a message.
func askCouncil(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	question := strings.TrimSpace(r.Params.Arguments["question"])
	if question == "" {
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: "the argument question is missing: write the question for the council",
		}
	}
	text := "Put this question to the council with the tool council, word for word. "
	if name := r.Params.Arguments["council"]; name != "" {
		text += fmt.Sprintf("Ask the council named %q. ", name)
	}
	text += "While the result says running, call council_result. Then show me the answer, and say in a sentence how " +
		"far the members agreed and what was missing.\n\n" + question
	return &mcp.GetPromptResult{
		Description: "Ask the council",
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}},
	}, nil
}

// explain returns the error of a request in words for the model that called a tool, and for the person who uses the
// model.
func (s *Server) explain(err error) error {
	if refusal, ok := errors.AsType[*council.Error](err); ok && len(refusal.Fields) > 0 {
		named := *refusal
		named.Fields = slices.Clone(refusal.Fields)
		for i, f := range named.Fields {
			if f.Field == "query" { // The tool has another name for this field.
				named.Fields[i].Field = "question"
			}
		}
		return errors.New(named.Explain())
	}
	if s.o.Explain != nil {
		return s.o.Explain(err)
	}
	return err
}
