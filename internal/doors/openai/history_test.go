package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/doortest"
	"github.com/google/go-cmp/cmp"
)

// A past is the earlier part of a conversation, which a client sends again with each turn.
type past struct {
	name string
	// chat and input are what stands before the user's last message, at chat completions and at Responses. "": it has no such
	// form there.
	chat, input string
	want        []council.Message // what the members read of it
	says        string            // the warning; "": there is none
}

// pasts are what models, tools and people leave in conversations.
func pasts() []past {
	said := func(role, text string) council.Message { return council.Message{Role: role, Content: text} }
	both := func(name, messages string, want []council.Message, says string) past {
		return past{name, messages, messages, want, says}
	}
	first := []council.Message{said("user", "6x7?")}
	answered := append(slices.Clone(first), said("assistant", "42"))
	return []past{
		// d-empty_assistant, d-empty_assistant2, d-empty_system
		both("empty assistant", `{"role":"user","content":"6x7?"},{"role":"assistant","content":""}`, first, ""),
		both("assistant of null", `{"role":"user","content":"6x7?"},{"role":"assistant","content":null}`, first, ""),
		both("empty system", `{"role":"system","content":""}`, nil, ""),
		both("assistant without content", `{"role":"user","content":"6x7?"},{"role":"assistant"}`, first, ""),
		both("assistant of no parts", `{"role":"user","content":"6x7?"},{"role":"assistant","content":[]}`, first, ""),
		both("assistant of blanks", `{"role":"user","content":"6x7?"},{"role":"assistant","content":" \n\t"}`, first, ""),
		both("assistant of an empty part", `{"role":"user","content":"6x7?"},{"role":"assistant","content":[{"type":"text","text":""}]}`, first, ""),
		both("empty developer", `{"role":"developer","content":[{"type":"text","text":" "}]}`, nil, ""),
		both("empty user", `{"role":"user","content":""},{"role":"user","content":"6x7?"}`, first, ""),
		both("image", `{"role":"user","content":[{"type":"text","text":"6x7?"},{"type":"image_url","image_url":{"url":"data:,"}}]}`,
			[]council.Message{said("user", "6x7?\n[image]")}, "shown as [image]: 1"),
		both("image before its text", `{"role":"user","content":[{"type":"input_image","image_url":"data:,"},{"type":"input_text","text":"6x7?"}]}`,
			[]council.Message{said("user", "[image]\n6x7?")}, "shown as [image]: 1"),
		both("files and sound", `{"role":"user","content":[{"type":"file","file":{}},{"type":"input_file"},{"type":"input_audio","input_audio":{}}]}`,
			[]council.Message{said("user", "[file]\n[file]\n[audio]")}, "shown as [file]: 2"),
		both("refusal", `{"role":"user","content":"6x7?"},{"role":"assistant","content":[{"type":"refusal","refusal":"42"}]}`, answered, ""),
		both("unknown part", `{"role":"user","content":"6x7?"},{"role":"assistant","content":[{"type":"thinking","thinking":"x"},`+
			`{"type":"text","text":"42"},{"type":"widget","text":{"a":1}}]}`, answered, "other items and parts left out: 1"),
		{
			"refusal beside the content", `{"role":"user","content":"6x7?"},{"role":"assistant","content":null,"refusal":"42"}`, "", answered, "",
		},
		{
			"tool calls", `{"role":"user","content":"6x7?"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",` +
				`"function":{"name":"times","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"42"},{"role":"assistant","content":"42"}`,
			`{"role":"user","content":"6x7?"},{"type":"reasoning","id":"rs_1","summary":[],"content":{"a":1}},` +
				`{"type":"function_call","call_id":"c","name":"times","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"a":1}]},` +
				`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"42","annotations":[]}]}`,
			answered, "tool calls and their results",
		},
		{
			"tool calls with a text", `{"role":"user","content":"6x7?"},{"role":"assistant","content":"42","tool_calls":[{"id":"c"}]},` +
				`{"role":"tool","content":{"result":42}}`, "",
			answered, "tool calls",
		},
		{
			"function", `{"role":"user","content":"6x7?"},{"role":"assistant","content":null,"function_call":{"name":"times"}},` +
				`{"role":"function","name":"times","content":"42"},{"role":"assistant","content":"42"}`, "",
			answered, "tool calls",
		},
		{
			"items that only Responses have", "", `{"role":"user","content":"6x7?"},{"type":"web_search_call","id":"ws_1","action":{},"status":"completed"},` +
				`{"type":"mcp_list_tools","tools":[]},{"type":"mcp_call","id":"mcp_1"},{"type":"image_generation_call","result":"AAAA"},` +
				`{"type":"code_interpreter_call"},{"type":"custom_tool_call_output"},{"type":"compaction"},{"type":"of_tomorrow","role":"user","content":7},` +
				`{"role":"assistant","content":"42"}`,
			answered, "other items and parts left out: 2",
		},
		{
			"reasoning", "", `{"role":"user","content":"6x7?"},{"type":"reasoning","summary":[]},{"role":"assistant","content":"42"}`, answered, "",
		},
	}
}

// readBack asks one model with a body and returns what it read, and the warnings of its session.
func readBack(t *testing.T, s *doortest.Server, path, body string) (messages []council.Message, warnings []council.Warning) {
	t.Helper()
	resp, data := s.Call(t, "POST", path, body)
	var got struct{ Council openai.ChatCouncil }
	if err := json.Unmarshal(data, &got); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", body, resp.StatusCode, data, err)
	}
	_, data = s.Call(t, "GET", "/v1/council/"+got.Council.SessionID+"/request", "")
	var asked council.Request
	if err := json.Unmarshal(data, &asked); err != nil {
		t.Fatal(err)
	}
	if asked.Query != "" {
		asked.Messages = []council.Message{{Role: "user", Content: asked.Query}}
	}
	return asked.Messages, got.Council.Metadata.Warnings
}

// Old history never ends a chat.
func TestFaultF57(t *testing.T) {
	s := doortest.Start(t, nil)
	conversations := 0
	for _, tt := range pasts() {
		for path, earlier := range map[string]string{"/v1/chat/completions": tt.chat, "/v1/responses": tt.input} {
			if earlier == "" {
				continue
			}
			t.Run(tt.name+path, func(t *testing.T) {
				list := map[string]string{"/v1/chat/completions": "messages", "/v1/responses": "input"}[path]
				got, warnings := readBack(t, s, path, fmt.Sprintf(`{"model":"council/dune",%q:[%s,{"role":"user","content":"still there?"}]}`, list, earlier))
				want := append(slices.Clone(tt.want), council.Message{Role: "user", Content: "still there?"})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				if tt.says == "" && len(warnings) > 0 || tt.says != "" && (len(warnings) != 1 ||
					warnings[0].Code != council.WarnHistoryReduced || !strings.Contains(warnings[0].Message, tt.says)) {
					t.Errorf("the warnings are %v, want %q", warnings, tt.says)
				}
				conversations++
			})
		}
	}
	daemontest.Fault(t, "F57", "each is answered", "%d conversations answered", conversations)
}

// What stands in the user's last message is what is asked: there, and behind it, nothing is left out.
func TestLastMessage(t *testing.T) {
	s := doortest.Start(t, nil)
	const chat, responses = "/v1/chat/completions", "/v1/responses"
	for _, tt := range []struct{ path, list, param string }{
		{chat, `{"role":"user","content":""}`, "messages[0].content"},
		{chat, `{"role":"user","content":"6x7?"},{"role":"assistant","content":""},{"role":"user","content":" "}`, "messages[2].content"},
		{chat, `{"role":"assistant","content":""},{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url"}]}`, "messages[1].content[1]"},
		{chat, `{"role":"user","content":[{"type":"input_audio"}]}`, "messages[0].content[0]"},
		{chat, `{"role":"user","content":"x"},{"role":"tool","content":"42"}`, "messages[1]"},
		{chat, `{"role":"system","content":" "},{"role":"user","content":"x"},{"role":"assistant","content":"42"}`, "messages[2].role"},
		{chat, `{"role":"user","content":"x"},{"role":"critic","content":"y"},{"role":"user","content":"z"}`, "messages[1].role"},
		{chat, `{"role":"system","content":""}`, "messages"},
		{chat, `{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"x"}`, "messages"},
		{responses, `{"role":"user","content":[{"type":"input_image"}]}`, "input[0].content[0]"},
		{responses, `{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_file"}]}`, "input[0].content[1]"},
		{responses, `{"role":"user","content":"x"},{"type":"function_call_output","output":"y"}`, "input[1]"},
		{responses, `{"type":"reasoning"}`, "input"},
		{responses, `{"role":"assistant","content":"x"}`, "input[0].role"},
	} {
		name := map[string]string{chat: "messages", responses: "input"}[tt.path]
		resp, data := s.Call(t, "POST", tt.path, fmt.Sprintf(`{"model":"council","instructions":"I.",%q:[%s]}`, name, tt.list))
		var got httpapi.ChatError
		if err := json.Unmarshal(data, &got); err != nil || resp.StatusCode != 422 || got.Error.Param == nil || *got.Error.Param != tt.param {
			t.Errorf("%s: %d %s, want %s", tt.list, resp.StatusCode, data, tt.param)
		}
	}
	for path, body := range map[string]string{ // behind the question, what says nothing
		chat:      `{"model":"council/dune","messages":[{"role":"user","content":"x"},{"role":"assistant","content":""}]}`,
		responses: `{"model":"council/dune","input":[{"role":"user","content":"x"},{"type":"reasoning"}]}`,
	} {
		if got, _ := readBack(t, s, path, body); len(got) != 1 || got[0].Content != "x" {
			t.Errorf("%s: %v", body, got)
		}
	}
	// The own door is strict.
	s.MustFail(t, 422, council.CodeInvalid, "POST", "/v1/council", `{"messages":[{"role":"assistant","content":""},{"role":"user","content":"x"}]}`)
}

// A program that has instructions alone asks with the last of them.
func TestSystemMessagesAlone(t *testing.T) {
	s := doortest.Start(t, nil)
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"council/dune","messages":[{"role":"system","content":"A"},{"role":"developer","content":"B"}]}`,
		"/v1/responses":        `{"model":"council/dune","instructions":"A","input":[{"role":"system","content":"B"},{"role":"system","content":""}]}`,
	} {
		got, _ := readBack(t, s, path, body)
		if diff := cmp.Diff([]council.Message{{Role: "system", Content: "A"}, {Role: "user", Content: "B"}}, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// An item of a later turn stands for the answer of an earlier one of the same token.
func TestItemReference(t *testing.T) {
	s := doortest.Start(t, []simllm.Model{{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}},
		func(o *httpapi.Options, _ *pipeline.Options) {
			o.Tokens = doortest.Tokens(doortest.Secret, doortest.Secret+"2")
		})
	mine := []string{"Authorization", "Bearer " + doortest.Secret}
	ask := func(body string, headers []string) (openai.Response, int, []byte) {
		t.Helper()
		resp, data := s.Call(t, "POST", "/v1/responses", body, headers...)
		var r openai.Response
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		return r, resp.StatusCode, data
	}
	first, _, data := ask(`{"model":"council/dune","input":"6x7?"}`, mine)
	if len(first.Output) != 1 || !first.Store {
		t.Fatalf("%s", data)
	}
	id := first.Output[0].ID
	turn := `{"model":"council/dune","input":[{"role":"user","content":[{"type":"input_text","text":"6x7?"}]},%s,{"role":"user","content":"sure?"}]}`
	for _, item := range []string{fmt.Sprintf(`{"type":"item_reference","id":%q}`, id), fmt.Sprintf(`{"id":%q}`, id)} {
		second, status, data := ask(fmt.Sprintf(turn, item), mine)
		if status != http.StatusOK {
			t.Fatalf("%s: %s", item, data)
		}
		_, data = s.Call(t, "GET", "/v1/council/"+second.Council.SessionID+"/request", "", mine...)
		var asked council.Request
		if err := json.Unmarshal(data, &asked); err != nil {
			t.Fatal(err)
		}
		want := []council.Message{
			{Role: "user", Content: "6x7?"},
			{Role: "assistant", Content: first.Output[0].Content[0].Text},
			{Role: "user", Content: "sure?"},
		}
		if diff := cmp.Diff(want, asked.Messages); diff != "" {
			t.Error(diff)
		}
	}
	resp, data := s.Call(t, "POST", "/v1/chat/completions", `{"model":"council/down","messages":[{"role":"user","content":"x"}]}`, mine...)
	if resp.StatusCode != http.StatusBadGateway {
		t.Fatalf("%s", data)
	}
	_, failed, _ := strings.Cut(string(data), "; session ")
	failed, _, _ = strings.Cut(failed, `"`)
	for name, tt := range map[string]struct {
		item    string
		headers []string
	}{
		"unknown":           {`{"type":"item_reference","id":"msg_1"}`, mine}, // d-item_reference
		"not of a message":  {`{"type":"item_reference","id":"rs_` + strings.TrimPrefix(id, "msg_") + `"}`, mine},
		"of another token":  {fmt.Sprintf(`{"type":"item_reference","id":%q}`, id), []string{"Authorization", "Bearer " + doortest.Secret + "2"}},
		"without an answer": {`{"type":"item_reference","id":"msg_` + failed + `"}`, mine},
		"without an id":     {`{"type":"item_reference"}`, mine},
	} {
		_, status, data := ask(fmt.Sprintf(turn, tt.item), tt.headers)
		if status != http.StatusNotFound || !strings.Contains(string(data), "send the text of the answer instead of its id") ||
			!strings.Contains(string(data), `"param":"input[1]"`) {
			t.Errorf("%s: %d %s", name, status, data)
		}
	}
	items := strings.Repeat(fmt.Sprintf(`{"type":"item_reference","id":%q},`, id), 101)
	if _, status, data := ask(fmt.Sprintf(turn, strings.TrimSuffix(items, ",")), mine); status != 422 || !strings.Contains(string(data), "100") {
		t.Errorf("101 references: %d %.300s", status, data)
	}
	if r, _, _ := ask(`{"model":"council/dune","input":"x","store":false}`, mine); r.Store {
		t.Error("store: false is answered with true")
	}
	forgetful := doortest.Start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Kept.Retention = 0 })
	if _, data := forgetful.Call(t, "POST", "/v1/responses", `{"model":"council/dune","input":"x"}`); !strings.Contains(string(data), `"store":false`) {
		t.Errorf("a daemon that keeps nothing says %s", data)
	}
}

// Tools that need not be called are refused or ignored, as the policy says. A call is never promised.
func TestTools(t *testing.T) {
	refuses := doortest.Start(t, nil, func(_ *httpapi.Options, p *pipeline.Options) { p.Settings = config.SettingNames() })
	ignores := doortest.Start(t, nil, func(_ *httpapi.Options, p *pipeline.Options) { p.Tools = council.ToolsIgnore })
	const tools = `,"tools":[{"type":"function","function":{"name":"f"}}]`
	const functions = `,"functions":[{"name":"f"}]`
	for _, tt := range []struct {
		fields  string
		refused string // place of the problem where tools are refused; "": accepted
		ignored string // likewise where they are ignored
		warned  bool   // where they are ignored
	}{
		{tools, "tools", "", true},
		{tools + `,"tool_choice":"auto","parallel_tool_calls":true`, "tools", "", true},
		{tools + `,"tool_choice":null`, "tools", "", true},
		{tools + `,"tool_choice":{"type":"allowed_tools","mode":"auto","allowed_tools":{"mode":"auto"}}`, "tools", "", true},
		{tools + `,"tool_choice":{"type":"auto"}`, "tools", "", true},
		{tools + `,"tool_choice":"none"`, "", "", false},
		{`,"tools":[]`, "", "", false},
		{`,"tools":null,"tool_choice":"auto"`, "", "", false},
		{tools + `,"tool_choice":"required"`, "tool_choice", "tool_choice", false},
		{tools + `,"tool_choice":"any"`, "tool_choice", "tool_choice", false},
		{tools + `,"tool_choice":{"type":"function","function":{"name":"f"},"name":"f"}`, "tool_choice", "tool_choice", false},
		{tools + `,"tool_choice":{"type":"allowed_tools","mode":"required","allowed_tools":{"mode":"required"}}`, "tool_choice", "tool_choice", false},
		{tools + `,"tool_choice":7`, "tool_choice", "tool_choice", false},
		{`,"tool_choice":"required"`, "tool_choice", "tool_choice", false},
		{functions, "functions", "", true},
		{functions + `,"function_call":"auto"`, "functions", "", true},
		{functions + `,"function_call":{"name":"f"}`, "function_call", "function_call", false},
	} {
		for path, question := range map[string]string{
			"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`, "/v1/responses": `"input":"x"`,
		} {
			if strings.Contains(tt.fields, "function_call") || strings.Contains(tt.fields, `"functions"`) {
				if path == "/v1/responses" {
					continue // which never had these fields
				}
			}
			body := `{"model":"council/dune",` + question + tt.fields + `}`
			for s, want := range map[*doortest.Server]string{refuses: tt.refused, ignores: tt.ignored} {
				resp, data := s.Call(t, "POST", path, body)
				var got struct {
					Error   council.OpenAIError
					Council openai.ChatCouncil
				}
				if err := json.Unmarshal(data, &got); err != nil {
					t.Fatal(err)
				}
				if want != "" {
					if resp.StatusCode != 422 || got.Error.Param == nil || *got.Error.Param != want {
						t.Errorf("%s %s: %d %s, want a problem at %s", path, body, resp.StatusCode, data, want)
					}
					if names := strings.Contains(got.Error.Message, "tools: ignore"); names != (s == refuses && want != "tool_choice" && want != "function_call") {
						t.Errorf("%s: %s", body, got.Error.Message)
					}
					continue
				}
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s %s: %d %s", path, body, resp.StatusCode, data)
				}
				warnings := got.Council.Metadata.Warnings
				if warned := len(warnings) == 1 && warnings[0].Code == council.WarnToolsIgnored; warned != (s == ignores && tt.warned) {
					t.Errorf("%s %s: the warnings are %v", path, body, warnings)
				}
			}
		}
	}
}

// sideTask is what Open WebUI asks for a title.
const sideTask = `### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: Why?\n</chat_history>`

// What a chat program asks for itself is answered by one member, and leaves no session in the history.
func TestSideRequests(t *testing.T) {
	const chat, responses = "/v1/chat/completions", "/v1/responses"
	ask := func(s *doortest.Server, path, body string, headers ...string) (c openai.ChatCouncil, session council.Session, found int) {
		t.Helper()
		resp, data := s.Call(t, "POST", path, body, headers...)
		var got struct{ Council openai.ChatCouncil }
		if err := json.Unmarshal(data, &got); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", body, data)
		}
		resp, data = s.Call(t, "GET", "/v1/council/"+got.Council.SessionID, "")
		if resp.StatusCode == http.StatusOK {
			if err := json.Unmarshal(data, &session); err != nil {
				t.Fatal(err)
			}
		}
		return got.Council, session, resp.StatusCode
	}
	models := func(c openai.ChatCouncil) (called []string) {
		for m := range c.Metadata.Usage.ByModel {
			called = append(called, m)
		}
		slices.Sort(called)
		return called
	}
	message := func(content string) string {
		return `{"model":"council","messages":[{"role":"user","content":"` + content + `"}]}`
	}
	s := doortest.Start(t, nil)
	for _, tt := range []struct {
		name, path, body string
		headers          []string
		side             bool
	}{
		{"a title", chat, message(sideTask), nil, true},
		{"blanks before it", chat, message(`\n ` + sideTask), nil, true},
		{"in parts", chat, `{"model":"council","messages":[{"role":"user","content":[{"type":"text","text":"` + sideTask + `"}]}]}`, nil, true},
		{"after instructions", chat, `{"model":"council","messages":[{"role":"system","content":"x"},{"role":"user","content":"` + sideTask + `"}]}`, nil, true},
		{"of named members", chat, strings.Replace(message(sideTask), "council", "council/amber,birch", 1), nil, true},
		{"as a response", responses, `{"model":"council","input":"` + sideTask + `"}`, nil, true},
		{"with the header", chat, message("Name this chat."), []string{"Councild-Side-Request", "true"}, true},
		{"a response with the header", responses, `{"model":"council","input":"x"}`, []string{"councild-side-request", "TRUE"}, true},
		{"with the header against it", chat, message(sideTask), []string{"Councild-Side-Request", "false"}, false},
		{"the words elsewhere", chat, message("Explain: " + sideTask), nil, false},
		{
			"in a chat", chat, `{"model":"council","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},` +
				`{"role":"user","content":"` + sideTask + `"}]}`, nil, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, session, found := ask(s, tt.path, tt.body, tt.headers...)
			if !tt.side {
				if len(session.Stage1) != 3 || len(models(c)) != 3 {
					t.Errorf("the council was not asked: %v", models(c))
				}
				return
			}
			if got := models(c); !slices.Equal(got, []string{"amber"}) {
				t.Errorf("%v were asked, want amber, the first member", got)
			}
			if len(c.Metadata.Warnings) != 1 || c.Metadata.Warnings[0].Code != council.WarnSideRequest || c.Persisted {
				t.Errorf("the session says %+v", c)
			}
			if found != http.StatusNotFound {
				t.Errorf("the session is kept: %d", found)
			}
		})
	}
	_, data := s.Call(t, "GET", "/v1/council", "")
	var list httpapi.SessionList
	if err := json.Unmarshal(data, &list); err != nil || len(list.Sessions) != 3 {
		t.Errorf("the history has %d sessions, want those that are no side requests: %v", len(list.Sessions), err)
	}
	s.Call(t, "POST", chat, message(sideTask), "Idempotency-Key", "k")
	if _, data := s.Call(t, "GET", "/v1/council", ""); strings.Count(string(data), `"session_id"`) != 3 {
		t.Errorf("one with a key is in the history: %s", data)
	}
	if resp, data := s.Call(t, "POST", chat, message("x"), "Councild-Side-Request", "maybe"); resp.StatusCode != 422 ||
		!strings.Contains(string(data), `"param":"Councild-Side-Request"`) {
		t.Errorf("a wrong header: %d %s", resp.StatusCode, data)
	}
	if _, data := s.Call(t, "POST", "/v1/council", `{"query":"`+sideTask+`"}`); strings.Count(string(data), `"finish_reason"`) != 7 {
		t.Errorf("the own door asks the council whatever the question is: %s", data)
	}

	named := doortest.Start(t, nil, func(_ *httpapi.Options, p *pipeline.Options) { p.SideRequests = "dune" })
	if c, _, _ := ask(named, chat, message(sideTask)); !slices.Equal(models(c), []string{"dune"}) {
		t.Errorf("%v were asked, want dune", models(c))
	}
	whole := doortest.Start(t, nil, func(_ *httpapi.Options, p *pipeline.Options) { p.SideRequests = council.SideCouncil })
	if c, session, _ := ask(whole, chat, message(sideTask)); len(session.Stage1) != 3 || len(c.Metadata.Warnings) != 0 {
		t.Errorf("%v were asked, want the council", models(c))
	}
}

// A side request that fails can be looked at, though it is in no list.
func TestSideRequestThatFails(t *testing.T) {
	down := simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}
	s := doortest.Start(t, []simllm.Model{down}, func(_ *httpapi.Options, p *pipeline.Options) { p.SideRequests = "down" })
	resp, data := s.Call(t, "POST", "/v1/chat/completions", `{"model":"council","messages":[{"role":"user","content":"`+sideTask+`"}]}`)
	_, id, _ := strings.Cut(string(data), "; session ")
	id, _, _ = strings.Cut(id, `"`)
	if found, _ := s.Call(t, "GET", "/v1/council/"+id, ""); resp.StatusCode != http.StatusBadGateway || found.StatusCode != http.StatusOK {
		t.Errorf("%d %s, and the session: %d", resp.StatusCode, data, found.StatusCode)
	}
	if _, data := s.Call(t, "GET", "/v1/council", ""); strings.Contains(string(data), id) {
		t.Errorf("it is in the history: %s", data)
	}
}

// A degraded answer says what it lacks and whose it is, where people see nothing else of the session (d-degraded_chat).
func TestDegradedNote(t *testing.T) {
	down := func(name string, tasks ...simllm.TaskKind) simllm.Model {
		return simllm.Model{Name: name, Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Tasks: tasks}}}
	}
	const note = "(Degraded: 2 of 4 members answered; "
	all := []simllm.Model{down("down"), down("mute", simllm.Synthesis)}
	council4 := func(_ *httpapi.Options, p *pipeline.Options) {
		p.Models, p.Chairman, p.ChairmanFallbacks, p.Quorum, p.DegradedNote = []string{"amber", "down", "birch", "down"}, "mute", []string{"down"}, 2, true
	}
	s := doortest.Start(t, all, council4)
	_, data := complete(t, s, "council", "")
	var whole openai.Chat
	if err := json.Unmarshal(data, &whole); err != nil || len(whole.Choices) != 1 {
		t.Fatalf("%s: %v", data, err)
	}
	_, data = s.Call(t, "GET", "/v1/council/"+whole.Council.SessionID, "")
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || session.Status != council.StatusDegraded {
		t.Fatalf("%s: %v", data, err)
	}
	text := whole.Choices[0].Message.Content
	if !strings.HasPrefix(text, session.Answer+"\n\n"+note) || !strings.Contains(text, "this is the answer of "+session.Stage3.Model+" alone") {
		t.Errorf("the completion is %q", text)
	}
	if strings.Contains(session.Answer, "egraded") || !strings.Contains(text, session.Note) {
		t.Errorf("the answer of the session is %q, its note %q", session.Answer, session.Note)
	}

	_, stream := complete(t, s, "council", `,"stream":true`)
	var streamed strings.Builder
	for block := range strings.SplitSeq(string(stream), "\n\n") {
		var chunk openai.Chat
		if data, ok := strings.CutPrefix(block, "data: {"); ok && json.Unmarshal([]byte("{"+data), &chunk) == nil && len(chunk.Choices) > 0 {
			if content := chunk.Choices[0].Delta.Content; content != nil {
				streamed.WriteString(*content)
			}
		}
	}
	if !strings.Contains(streamed.String(), "\n\n"+note) {
		t.Errorf("the stream adds up to %q", streamed.String())
	}

	_, data = s.Call(t, "POST", "/v1/responses", `{"model":"council","input":"x","stream":true}`)
	got := events(t, data)
	streamed.Reset()
	for _, e := range got {
		streamed.WriteString(e.Delta)
	}
	ended := got[len(got)-1].Response
	if text := ended.Output[0].Content[0].Text; text != streamed.String() || !strings.Contains(text, "\n\n"+note) {
		t.Errorf("the response is %q, its deltas %q", text, streamed.String())
	}

	plain := doortest.Start(t, all, council4, func(_ *httpapi.Options, p *pipeline.Options) { p.DegradedNote = false })
	if _, data := complete(t, plain, "council", ""); strings.Contains(string(data), "members answered;") {
		t.Errorf("switched off: %s", data)
	}
	jsonOnly := doortest.Start(t, all, council4, func(_ *httpapi.Options, p *pipeline.Options) { p.Chairman = "amber" })
	_, data = complete(t, jsonOnly, "council", `,"response_format":{"type":"json_object"}`)
	if err := json.Unmarshal(data, &whole); err != nil || whole.Council.Status != council.StatusDegraded || whole.Choices[0].Message.Content != "{}" {
		t.Errorf("JSON: %s %v", data, err)
	}
}

// Small things that clients send and expect: the cost, the person, the place of a schema, the range of options.
func TestSmallFields(t *testing.T) {
	s := doortest.Start(t, nil)
	for path, question := range map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`, "/v1/responses": `"input":"x"`,
	} {
		ask := func(fields string) (int, []byte) {
			resp, data := s.Call(t, "POST", path, `{"model":"council/amber",`+question+fields+`}`)
			return resp.StatusCode, data
		}
		var got struct {
			Usage   struct{ Cost *float64 }
			Council openai.ChatCouncil
		}
		status, data := ask(`,"user":"ada@example.com"`)
		if err := json.Unmarshal(data, &got); err != nil || status != 200 {
			t.Fatalf("%s: %v", data, err)
		}
		if got.Usage.Cost == nil || *got.Usage.Cost != *got.Council.Metadata.Usage.CostUSD {
			t.Errorf("%s: the cost is %v", path, got.Usage.Cost)
		}
		for fields, want := range map[string]string{
			`,"user":"ada@example.com"`: "ada@example.com", `,"user":"ada","safety_identifier":"5e884898da28"`: "5e884898da28", "": "",
		} {
			_, data := ask(fields)
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			_, data = s.Call(t, "GET", "/v1/council/"+got.Council.SessionID, "")
			var session council.Session
			if err := json.Unmarshal(data, &session); err != nil || session.User != want {
				t.Errorf("%s: the session is for %q, want %q: %v", path, session.User, want, err)
			}
		}
		long := strings.Repeat("x", 257)
		for _, tt := range []struct{ fields, param string }{
			{`,"temperature":-0.1`, "temperature"},
			{`,"temperature":2.1`, "temperature"},
			{`,"temperature":"0.2"`, "temperature"},
			{`,"top_p":-1`, "top_p"},
			{`,"top_p":1.01`, "top_p"},
			{`,"presence_penalty":-2.5`, "presence_penalty"},
			{`,"frequency_penalty":3`, "frequency_penalty"},
			{`,"user":"` + long + `"`, "user"},
			{`,"safety_identifier":"` + long + `"`, "safety_identifier"},
			{`,"temperature":0,"top_p":1,"presence_penalty":-2,"frequency_penalty":2,"user":"` + long[1:] + `"`, ""},
			{`,"temperature":null,"top_p":null,"user":null`, ""},
		} {
			status, data := ask(tt.fields)
			if refused := status == 422 && strings.Contains(string(data), fmt.Sprintf(`"param":%q`, tt.param)); refused != (tt.param != "") ||
				!refused && status != 200 {
				t.Errorf("%s %s: %d %s", path, tt.fields, status, data)
			}
		}
	}
	for _, tt := range []struct {
		fields, param string
	}{
		{`,"n":0`, "n"},
		{`,"n":-1`, "n"},
		{`,"max_tokens":0`, "max_tokens"},
		{`,"max_completion_tokens":-2`, "max_completion_tokens"},
		{`,"max_tokens":-1,"n":1`, ""},
		{`,"seed":-1`, ""}, // d-seed_minus1
		{`,"seed":-2`, "seed"},
		{`,"response_format":{"type":"json_object","schema":{"type":"nonsense"}}`, "response_format.schema"},
		{`,"response_format":{"type":"json_schema"}`, "response_format.json_schema.schema"},
	} {
		resp, data := complete(t, s, "council/amber", tt.fields)
		if refused := resp.StatusCode == 422 && strings.Contains(string(data), fmt.Sprintf(`"param":%q`, tt.param)); refused != (tt.param != "") ||
			!refused && resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", tt.fields, resp.StatusCode, data)
		}
	}
	for _, form := range []string{`{"type":"json_object","schema":%s}`, `{"type":"json_schema","schema":%s}`} {
		_, data := complete(t, s, "council", `,"response_format":`+fmt.Sprintf(form, verdictSchema))
		if !strings.Contains(string(data), `"content":"{\"verdict\":\"yes\"}"`) {
			t.Errorf("%s: %s", form, data)
		}
	}
	_, data := s.Call(t, "POST", "/v1/responses", `{"model":"council","input":"x","text":{"format":{"type":"json_object","schema":`+verdictSchema+`}}}`)
	if !strings.Contains(string(data), `"text":"{\"verdict\":\"yes\"}"`) {
		t.Errorf("a response: %s", data)
	}
}
