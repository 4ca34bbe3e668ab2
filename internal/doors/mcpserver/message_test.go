package mcpserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/doors/mcpserver"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/growth"
)

// answered is a message that a server sent.
type answered struct {
	ID     json.RawMessage `json:"id"`
	Result *struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Structured struct {
			Status string `json:"status"`
		} `json:"structuredContent"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// says is what a message says: the code of an error, "isError", or "ok".
func (a answered) says() string {
	switch {
	case a.Error != nil:
		return strconv.Itoa(a.Error.Code)
	case a.Result != nil && a.Result.IsError:
		return "isError"
	default:
		return "ok"
	}
}

// text is the text of an error.
func (a answered) text() string {
	if a.Error != nil {
		return a.Error.Message
	}
	if a.Result != nil && len(a.Result.Content) > 0 {
		return a.Result.Content[0].Text
	}
	return ""
}

// call is a call of a tool.
func call(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
}

var large = strings.Repeat("x", 900_000)

// messages are messages that a program should not send, and what is said to them.
var messages = []struct {
	name    string
	message string
	says    string // the code of an error, "isError", "ok", or "" where there is no response
	status  int    // over HTTP
	words   string
	id      string // that is repeated
}{
	{"no JSON", `{"jsonrpc":`, "-32700", 400, "not valid JSON (byte", "null"},
	{"a word", `hello`, "-32700", 400, "not valid JSON", "null"},
	{"more after the JSON", `{"jsonrpc":"2.0","id":1,"method":"ping"}x`, "-32700", 400, "after top-level value", "null"},
	{"a second message", `{"jsonrpc":"2.0","id":1,"method":"ping"} {"jsonrpc":"2.0","id":2,"method":"ping"}`, "-32700", 400, "after top-level", "null"},
	{"a batch", ` [{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "-32600", 400, "batch", "null"},
	{"an empty batch", `[]`, "-32600", 400, "batch", "null"},
	{"a million levels", strings.Repeat("[", 1<<20), "-32600", 400, "batch", "null"},
	{"a text", `"ping"`, "-32600", 400, "not a JSON object", "null"},
	{"nothing", `null`, "-32600", 400, "not a JSON object", "null"},
	{"an empty object", `{}`, "-32600", 400, "jsonrpc", "null"},
	{"no version", `{"id":1,"method":"ping"}`, "-32600", 400, "jsonrpc", "1"},
	{"another version", `{"jsonrpc":"1.0","id":"a","method":"ping"}`, "-32600", 400, "jsonrpc", `"a"`},
	{"a version that is a number", `{"jsonrpc":2.0,"id":1,"method":"ping"}`, "-32600", 400, "jsonrpc", "1"},
	{"no method", `{"jsonrpc":"2.0","id":1}`, "-32600", 400, "no method", "1"},
	{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":1}`, "-32600", 400, "not a request", "1"},
	{"an error that is none", `{"jsonrpc":"2.0","id":1,"error":{"code":"x"}}`, "-32600", 400, "not a request", "1"},
	{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, "", 202, "", ""},
	{"an id of a half", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id with a fraction of nothing", `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id of minus nothing", `{"jsonrpc":"2.0","id":-0,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id of 2^53", `{"jsonrpc":"2.0","id":9007199254740992,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id of 2^63", `{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id of 1e400", `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"the largest id", `{"jsonrpc":"2.0","id":9007199254740991,"method":"ping"}`, "ok", 200, "", "9007199254740991"},
	{"a negative id", `{"jsonrpc":"2.0","id":-7,"method":"ping"}`, "ok", 200, "", "-7"},
	{"an id of letters", `{"jsonrpc":"2.0","id":"é<\u0041\"","method":"ping"}`, "ok", 200, "", `"é<A\""`},
	{"an empty id", `{"jsonrpc":"2.0","id":"","method":"ping"}`, "ok", 200, "", `""`},
	{"an id of half a character", `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id of nothing", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id that is true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"an id that is a list", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, "-32600", 400, "the id", "null"},
	{"a long id", `{"jsonrpc":"2.0","id":"` + large + `","method":"ping"}`, "-32600", 400, "the id", "null"},
	{
		"a call that is cancelled by half", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.5}}`, "-32600", 400,
		"requestId", "null",
	},
	{
		"a progress token of 2^63", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":9223372036854775808}}}`,
		"-32600", 400, "progressToken", "1",
	},
	{
		"a progress token that is an object", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":{}}}}`,
		"-32600", 400, "progressToken", "1",
	},
	{"a progress token of nothing", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":null}}}`, "ok", 200, "", "1"},
	{"a doubled id", `{"jsonrpc":"2.0","id":1,"method":"ping","id":2}`, "-32600", 400, `"id" is there more than once`, "null"},
	{"a doubled method", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, "-32600", 400, `"method" is there`, "1"},
	{"a doubled argument", call("council", `{"question":"x","question":"y"}`), "-32600", 400, `"question" is there`, "1"},
	{"a doubled argument in other letters", call("council", `{"question":"x","\u0071uestion":"y"}`), "-32600", 400, `"question" is there`, "1"},
	{"a doubled field deep down", call("council", `{"question":[1,{"a":{"b":1},"c":"a","a":2}]}`), "-32600", 400, `"a" is there`, "1"},
	{"equal names in objects and texts", call("council", `{"question":[{"a":"a"},{"a":["a","a"]}]}`), "isError", 200, "question", "1"},
	{"a long name that is doubled", `{"` + large + `":1,"` + large + `":1}`, "-32600", 400, "is there more than once", "null"},

	{"an unknown method", `{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{}}`, "-32601", 200, `"tasks/list"`, "1"},
	{"an empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, "-32601", 200, "method not found", "1"},
	{"a long method", `{"jsonrpc":"2.0","id":1,"method":"` + large + `"}`, "-32601", 200, "method not found", "1"},
	{"an unknown notification", `{"jsonrpc":"2.0","method":"notifications/unknown"}`, "", 202, "", ""},
	{"a notification with an id", `{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}`, "-32600", 400, "unexpected id", "1"},
	{"params that are a list", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["` + large + `"]}`, "-32602", 200, "params", "1"},
	{"params that are null", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`, "-32600", 200, "params", "1"},
	{"optional params that are null", `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, "ok", 200, "", "1"},
	{"metadata that is null", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":null}}`, "ok", 200, "", "1"},
	{"metadata that is a text", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":"` + large + `"}}`, "-32602", 200, "params", "1"},
	{"a long tool", call(large, `{}`), "-32602", 200, "unknown tool", "1"},
	{
		"a long resource", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"council://sessions/` + large + `"}}`,
		"-32602", 200, "not found", "1",
	},
	{"a long prompt", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"` + large + `"}}`, "-32602", 200, "unknown prompt", "1"},
	{"a long argument", call("council", `{"question":"x","category":"`+large+`"}`), "isError", 200, "category", "1"},

	{"arguments that are null", call("council", `null`), "-32602", 200, "arguments are not an object", "1"},
	{"optional arguments that are null", call("leaderboard", `null`), "ok", 200, "", "1"},
	{"arguments that are a list", call("council", `["question"]`), "-32602", 200, "arguments are not an object", "1"},
	{"arguments that are a text", call("council", `"`+large+`"`), "-32602", 200, "arguments are not an object", "1"},
	{"a question that is null", call("council", `{"question":null}`), "isError", 200, "question", "1"},
	{"optional nulls", call("council", `{"question":"x","council":null,"category":null,"max_cost_usd":null,"wait_seconds":null,"fresh":null}`), "ok", 200, "", "1"},
	{"optional nulls of a report", call("bias_report", `{"days":null,"sessions":null,"category":null}`), "ok", 200, "", "1"},
	{"a wait that is null", call("council_result", `{"session_id":"x","wait_seconds":null}`), "isError", 200, "there is no session", "1"},
}

// holds compares what a server said with what it should say.
func holds(t *testing.T, a answered, size int, says, words, id string) {
	t.Helper()
	if a.says() != says || !strings.Contains(a.text(), words) {
		t.Errorf("it says %s: %.300s", a.says(), a.text())
	}
	var got, want any
	if err := json.Unmarshal(a.ID, &got); err != nil {
		t.Errorf("the id is %s", a.ID)
	}
	if err := json.Unmarshal([]byte(id), &want); err != nil || got != want {
		t.Errorf("the id is %s, want %s", a.ID, id)
	}
	if size > 64<<10 {
		t.Errorf("the response has %d bytes", size)
	}
	if strings.Contains(a.text(), "invalid reflect.Value") || strings.Contains(a.text(), "something went wrong") {
		t.Errorf("it says %s", a.text())
	}
}

// Each message that is wrong gets an error of JSON-RPC with its id, unchanged, and of a bounded size.
func TestMessages(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "MAX_QUERY_BYTES": "1MiB"})
	for _, tt := range messages {
		t.Run(tt.name, func(t *testing.T) {
			status, data := d.Call(t, "POST", "/mcp", tt.message, "Accept", "application/json, text/event-stream")
			if status != tt.status {
				t.Errorf("status %d, want %d: %.300s", status, tt.status, data)
			}
			if tt.says == "" {
				if len(data) > 0 {
					t.Errorf("a response: %.300s", data)
				}
				return
			}
			var a answered
			text := string(data)
			if _, event, ok := strings.Cut(text, "data: "); ok {
				text = event
			}
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatalf("%v: %.300s", err, data)
			}
			holds(t, a, len(data), tt.says, tt.words, tt.id)
		})
	}
	// Bytes that are not UTF-8 do not come this far.
	if status, data := d.Call(t, "POST", "/mcp", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}",
		"Accept", "application/json, text/event-stream"); status != http.StatusBadRequest || !strings.Contains(string(data), "UTF-8") {
		t.Errorf("no UTF-8: %d %s", status, data)
	}
	for revision, want := range map[string]int{"2025-11-25": http.StatusOK, "2026-07-28": http.StatusNotFound} {
		status, data := d.Call(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{}}`,
			"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", revision)
		if status != want || !strings.Contains(string(data), "-32601") {
			t.Errorf("%s: an unknown method: %d %s", revision, status, data)
		}
	}
	for name, headers := range map[string][]string{
		"no Accept": {"Accept", "application/json"},
		"a long name": {
			"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "x",
		},
		"an old revision": {"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2023-01-01"},
	} {
		status, data := d.Call(t, "POST", "/mcp", call(large, `{}`), headers...)
		var a answered
		if err := json.Unmarshal(data, &a); err != nil || status != http.StatusBadRequest || a.Error == nil || len(data) > 64<<10 {
			t.Errorf("%s: %d %.300s", name, status, data)
		}
	}
}

// On stdio, a line that is wrong is answered and the next one is read: calls that run go on.
func TestLines(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s, err := mcpserver.New(mcpserver.Options{Daemon: client.Options{URL: d.URL(), HTTP: &http.Client{Transport: transport}}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(t.Context(), in, out)
		_ = out.Close()
	}()
	answers := bufio.NewReaderSize(fromServer, 1<<20)
	send := func(line string) {
		if _, err := io.WriteString(toServer, line); err != nil {
			t.Error(err)
		}
	}
	next := func() (a answered, size int) {
		t.Helper()
		line, err := answers.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%v: %.300s", err, line)
		}
		return a, len(line)
	}
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"t","version":"1"}}}` + "\r\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\r\n")
	next()
	send(`{"jsonrpc":"2.0","id":"running","method":"tools/call","params":{"name":"council","arguments":{"question":"x"}}}` + "\n")
	<-arrived
	for _, tt := range append(messages, struct {
		name, message, says string
		status              int
		words, id           string
	}{"bytes that are not UTF-8", "{\"a\":\"\xff\"}", "-32700", 0, "UTF-8", "null"}) {
		if tt.name == "optional nulls" {
			continue // It would wait for the models that are held.
		}
		if tt.says == "" {
			send(tt.message + "\n")
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			send(tt.message + "\n")
			a, size := next()
			holds(t, a, size, tt.says, tt.words, tt.id)
		})
	}
	send("\n\r\n  \n")
	for range 17 {
		send(strings.Repeat("x", 1<<20))
	}
	send("\n" + `{"jsonrpc":"2.0","id":"last","method":"ping"}` + "\r\n")
	a, size := next()
	holds(t, a, size, "-32600", "the line has more than", "null")
	a, size = next()
	holds(t, a, size, "ok", "", `"last"`)
	release()
	if a, _ := next(); a.says() != "ok" || a.Result.Structured.Status != "complete" {
		t.Errorf("%s: the call that ran says %s: %s", a.ID, a.says(), a.text())
	}
	_ = toServer.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Checking a message takes time in proportion to it.
func TestMessagesLinear(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "MAX_QUERY_BYTES": "1MiB"})
	for name, of := range map[string]func(n int) string{
		"names": func(n int) string {
			var b strings.Builder
			for i := 0; b.Len() < n; i++ {
				fmt.Fprintf(&b, `"a%d":{"a":1},`, i)
			}
			return "{" + b.String() + `"a":1,"a":1}`
		},
		"an error": func(n int) string { return call(strings.Repeat("x", n), `{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, func(n int) func() {
				text := of(n)
				return func() {
					if _, data := d.Call(t, "POST", "/mcp", text, "Accept", "application/json, text/event-stream"); !strings.Contains(string(data), `"error"`) {
						t.Errorf("%.300s", data)
					}
				}
			})
		})
	}
}
