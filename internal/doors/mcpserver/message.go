package mcpserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxDepth is the most levels of JSON in a message. The SDK reads the content of each level again for the level
	// above, so a megabyte with a thousand levels would take seconds.
	maxDepth = 32
	// maxID is the size of the longest id or progress token, in bytes. Both are limited because answers repeat them.
	maxID = 1000
	// maxInteger is the largest integer that the SDK keeps exactly. The SDK reads numbers as floats.
	maxInteger = 1<<53 - 1
	// maxAnswer is the size of the largest message with an error, in bytes.
	maxAnswer = 64 << 10
	// maxLine is the size of the largest message on stdio, in bytes. Over HTTP, the caller of ServeHTTP sets a
	// limit.
	maxLine = mcp.DefaultMaxLineLength
)

// message holds the parts of a message that this package reads before the SDK reads the message.
type message struct {
	id     json.RawMessage // nil if there is no id that can be repeated exactly
	method string
	task   string // the taskId of a request for a task, otherwise ""
}

// check reads a message strictly, and says what is wrong with it. The SDK is not strict: it ignores text after the
// JSON, uses the last value of a field that occurs twice, and rounds ids. On stdio the SDK would end the connection at
// the first message that it cannot read.
func check(text []byte) (m message, wrong *jsonrpc.Error) {
	invalid := func(format string, args ...any) (message, *jsonrpc.Error) {
		return m, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
	}
	if !utf8.Valid(text) {
		return m, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the message is not UTF-8; encode it in UTF-8"}
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return invalid("the message is a batch, and MCP no longer has batches; send each message alone")
	}
	if deeper(text, maxDepth) {
		return invalid("the message is more than %d levels deep; send flatter arguments", maxDepth)
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(text, &fields)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return m, &jsonrpc.Error{
			Code:    jsonrpc.CodeParseError,
			Message: fmt.Sprintf("the message is not valid JSON (byte %d: %v); send one object", syntax.Offset, syntax),
		}
	}
	if fields == nil {
		return invalid("the message is not a JSON object; send one")
	}
	m.id = fields["id"]
	if m.id != nil && !exact(m.id) {
		m.id = nil
		return invalid("the id is not usable; give a string of at most %d bytes, or an integer between -%d and %[2]d",
			maxID, maxInteger)
	}
	if name, ok := doubled(text); ok {
		if name == "id" {
			m.id = nil // It is unknown which id counts.
		}
		return invalid("the field %q is there more than once; give it once", short(name))
	}
	_ = json.Unmarshal(fields["method"], &m.method) // A value that is no string is refused below.
	if string(fields["jsonrpc"]) != `"2.0"` {
		return invalid(`the field jsonrpc is not "2.0"; set it to "2.0"`)
	}
	isGiven := func(name string) bool { return fields[name] != nil }
	if !slices.ContainsFunc([]string{"method", "result", "error"}, isGiven) {
		return invalid("the message has no method; name one")
	}
	if _, err := jsonrpc.DecodeMessage(text); err != nil {
		return invalid("the message is not a request, notification or response of JSON-RPC 2.0; send one of these")
	}
	if name, ok := badID(fields["params"]); ok {
		return invalid("the %s is not usable; give a string of at most %d bytes, or an integer between -%d and %[3]d",
			name, maxID, maxInteger)
	}
	if strings.HasPrefix(m.method, tasksPrefix) {
		_ = json.Unmarshal(member(fields["params"], "taskId"), &m.task) // The method refuses a value that is no string.
	}
	return m, nil
}

// badID looks for an id that is not valid in the parameters of a message. It returns the name of the id, and true if
// there is one.
func badID(params json.RawMessage) (name string, ok bool) {
	for name, value := range map[string]json.RawMessage{
		"requestId":     member(params, "requestId"),
		"progressToken": member(member(params, "_meta"), "progressToken"),
	} {
		if value != nil && string(value) != "null" && !exact(value) {
			return name, true
		}
	}
	return "", false
}

// exact reports whether an id, or a progress token, is a string or an integer that the SDK repeats exactly.
func exact(id json.RawMessage) bool {
	if len(id) > maxID {
		return false
	}
	var text string
	if id[0] == '"' { // Half of a surrogate pair is valid JSON, but no character.
		return json.Unmarshal(id, &text) == nil && !strings.ContainsRune(text, utf8.RuneError)
	}
	n, err := strconv.ParseInt(string(id), 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == string(id) && -maxInteger <= n && n <= maxInteger
}

// member returns a member of a JSON object, or nil if there is none.
func member(object json.RawMessage, name string) json.RawMessage {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(object, &members) // A value that is no object has no members.
	return members[name]
}

// deeper reports whether a JSON text has more levels than the argument levels.
func deeper(text []byte, levels int) bool {
	depth := 0
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > levels {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// doubled returns a name that occurs more than once in one object of valid JSON.
func doubled(text []byte) (name string, found bool) {
	type level struct {
		// names holds the names in the object so far. It is nil for a list.
		names map[string]bool
		named bool // the next token is the value of a name
	}
	levels := []*level{{}}
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err != nil {
			return "", false // This is the end of the text.
		}
		at := levels[len(levels)-1]
		if name, ok := token.(string); ok && at.names != nil && !at.named {
			if at.names[name] {
				return name, true
			}
			at.names[name] = true
			at.named = true
			continue
		}
		at.named = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, &level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, &level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}

// refusal returns an error as a message. If the id of the request is not known, the id of the message is null.
func refusal(id json.RawMessage, wrong *jsonrpc.Error) []byte {
	data, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, wrong})
	if err != nil {
		panic(err) // Texts and a valid id can always be encoded.
	}
	return data
}

// bounded returns text, which is a message or an event that holds a message. If the message is an error that is too
// large, bounded cuts the text of the error. Errors can be too large because the errors of the SDK repeat what the
// client sent.
func bounded(text []byte) []byte {
	if len(text) <= maxAnswer {
		return text
	}
	var m struct {
		ID    json.RawMessage `json:"id"`
		Error *jsonrpc.Error  `json:"error"`
	}
	begin := bytes.IndexByte(text, '{')
	end := bytes.LastIndexByte(text, '}') + 1
	if begin < 0 || json.Unmarshal(text[begin:max(begin, end)], &m) != nil || m.Error == nil {
		return text
	}
	m.Error = &jsonrpc.Error{Code: m.Error.Code, Message: short(m.Error.Message)}
	return slices.Concat(text[:begin], refusal(m.ID, m.Error), text[end:])
}

// short cuts a text to maxError bytes. It marks the cut with "...".
func short(text string) string {
	if len(text) > maxError {
		return strings.ToValidUTF8(text[:maxError], "") + "..."
	}
	return text
}

// httpAnswer is the response to a message over HTTP. The SDK writes some errors as plain text. httpAnswer turns
// them into JSON-RPC errors.
type httpAnswer struct {
	http.ResponseWriter
	message
	// status is the HTTP status of an error in plain text whose text was not written yet. Otherwise it is 0.
	status int
}

// Unwrap is called by http.ResponseController.
func (a *httpAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *httpAnswer) WriteHeader(status int) {
	if status >= http.StatusBadRequest && strings.HasPrefix(a.Header().Get("Content-Type"), "text/plain") {
		a.status = status
		return
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. The SDK writes each message, and each error, in one call.
func (a *httpAnswer) Write(text []byte) (int, error) {
	if a.status == 0 {
		_, err := a.ResponseWriter.Write(bounded(text))
		return len(text), err
	}
	status := a.status
	wrong := &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: short(strings.TrimSpace(string(text)))}
	a.status = 0
	if strings.HasPrefix(wrong.Message, "JSON RPC not handled") {
		// Older MCP revisions define no HTTP status for an unknown method. Their clients treat every status except
		// 200 as a connection error.
		status = http.StatusOK
		wrong.Code = jsonrpc.CodeMethodNotFound
		wrong.Message = fmt.Sprintf("method not found: %q", short(a.method))
		if a.id == nil {
			a.Header().Del("Content-Type")
			a.ResponseWriter.WriteHeader(http.StatusAccepted) // A notification has no response.
			return len(text), nil
		}
	}
	return len(text), refuse(a.ResponseWriter, status, a.id, wrong)
}

// refuse writes an error as the response to a message over HTTP.
func refuse(w http.ResponseWriter, status int, id json.RawMessage, wrong *jsonrpc.Error) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err := w.Write(refusal(id, wrong))
	return err
}

// lines writes messages on stdio, one at a time. The SDK writes each message in one call.
type lines struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(bounded(text))
	return len(text), err
}

// Close implements io.Closer.
func (*lines) Close() error { return nil }

// pass reads messages from the reader in until it ends. It writes each valid message to the writer on, as one line. It
// answers every other message with an error on the writer out.
func pass(in io.Reader, on, out io.Writer) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, tooLong, err := readLine(r)
		m := message{}
		wrong := (*jsonrpc.Error)(nil)
		switch line = bytes.TrimSpace(line); {
		case tooLong:
			wrong = &jsonrpc.Error{
				Code:    jsonrpc.CodeInvalidRequest,
				Message: fmt.Sprintf("the line has more than %d bytes; send a shorter message", maxLine),
			}
		case len(line) > 0:
			m, wrong = check(line)
		}
		into := on
		if wrong != nil {
			into = out
			line = refusal(m.id, wrong)
		}
		if len(line) > 0 {
			if _, err := into.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// readLine reads a line. If the line is too long, readLine skips it and returns tooLong.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}
