package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests with OpenAI's own clients are in e2e. These send what those clients send.

// complete asks for a completion, with further fields of the request.
func complete(t *testing.T, s *doortest.Server, model, fields string) (*http.Response, []byte) {
	t.Helper()
	return s.Call(
		t, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Why?"}]%s}`, model, fields),
	)
}

func TestModels(t *testing.T) {
	s := doortest.Start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
		o.Models = slices.Concat(p.Models, p.Models[:1]) // one stands twice
	})
	_, data := s.Call(t, "GET", "/v1/models", "")
	var list openai.ModelList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	if diff := cmp.Diff([]string{"council", "council/amber", "council/birch", "council/cedar"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestModel(t *testing.T) {
	s := doortest.Start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
		p.Models = []string{"openai/gpt-5", "amber"}
		o.Models = p.Models
	})
	for _, path := range []string{"council", "council/amber", "council/openai/gpt-5", "council%2Fopenai%2Fgpt-5"} {
		var card openai.ModelCard
		_, data := s.Call(t, "GET", "/v1/models/"+path, "")
		want := strings.ReplaceAll(path, "%2F", "/")
		if err := json.Unmarshal(data, &card); err != nil || card.ID != want || card.Object != "model" {
			t.Errorf("%s: %s %v", path, data, err)
		}
	}
	resp, data := s.Call(t, "GET", "/v1/models/gpt-5", "")
	var e httpapi.ChatError
	if err := json.Unmarshal(data, &e); err != nil || resp.StatusCode != 404 || !strings.Contains(e.Error.Message, `"gpt-5" does not exist`) {
		t.Errorf("%d %s: %v", resp.StatusCode, data, err)
	}
}

func TestChatMetadata(t *testing.T) {
	s := doortest.Start(t, nil)
	_, data := complete(t, s, "council", `,"metadata":{"category":"math","language":"de","user":"7"}`)
	var chat openai.Chat
	if err := json.Unmarshal(data, &chat); err != nil {
		t.Fatal(err)
	}
	_, data = s.Call(t, "GET", "/v1/council/"+chat.Council.SessionID+"/request", "")
	var request council.Request
	if err := json.Unmarshal(data, &request); err != nil || request.Category != "math" || request.Language != "de" {
		t.Errorf("got %+v", request)
	}
	resp, data := complete(t, s, "council", `,"metadata":{"category":"poetry"}`)
	if resp.StatusCode != 422 || !strings.Contains(string(data), "reasoning") {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}

func TestChat(t *testing.T) { //nolint:tparallel // its subtests share a server
	testkit.Slow(t)
	t.Parallel()
	cut := simllm.Model{Name: "cut", Faults: []simllm.Fault{{Kind: simllm.FaultLength, Rate: 1}}}
	s := doortest.Start(t, []simllm.Model{cut})
	for _, tt := range []struct {
		model, finish string
		models        int
	}{
		{"council", "stop", 3},
		{"council/dune,amber", "stop", 2},
		{"council/dune", "stop", 1},
		{"council/cut", "length", 1},
	} {
		t.Run(tt.model, func(t *testing.T) {
			_, data := complete(t, s, tt.model, `,"seed":5`)
			var whole openai.Chat
			if err := json.Unmarshal(data, &whole); err != nil || whole.Council == nil || len(whole.Choices) != 1 {
				t.Fatalf("%s: %v", data, err)
			}
			_, data = s.Call(t, "GET", "/v1/council/"+whole.Council.SessionID, "")
			var session council.Session
			if err := json.Unmarshal(data, &session); err != nil {
				t.Fatal(err)
			}
			if len(session.Stage1) != tt.models {
				t.Errorf("%d answers, want %d", len(session.Stage1), tt.models)
			}
			if reason := whole.Choices[0].FinishReason; reason == nil || *reason != tt.finish {
				t.Errorf("the finish reason is %v, want %s", reason, tt.finish)
			}
			if text := whole.Choices[0].Message.Content; text == "" || text != session.Answer {
				t.Errorf("the answer is %q, that of the session %q", text, session.Answer)
			}
			want := &openai.ChatCouncil{
				SessionID: session.ID, Status: session.Status, Mode: session.Mode, AnswerFrom: session.AnswerFrom,
				Persisted: session.Persisted, Degradation: session.Degradation, Metadata: session.Metadata,
			}
			if diff := cmp.Diff(want, whole.Council); diff != "" {
				t.Error(diff)
			}
			if session.Metadata.Seed != 5 {
				t.Errorf("the seed is %d", session.Metadata.Seed)
			}

			_, stream := complete(t, s, tt.model, `,"stream":true,"stream_options":{"include_usage":true}`)
			var text strings.Builder
			var chunks []openai.Chat
			for block := range strings.SplitSeq(string(stream), "\n\n") {
				var chunk openai.Chat
				if data, ok := strings.CutPrefix(block, "data: {"); ok {
					if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
						t.Fatal(err)
					}
					chunks = append(chunks, chunk)
				}
				if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != nil {
					text.WriteString(*chunk.Choices[0].Delta.Content)
				}
			}
			end, usage := chunks[len(chunks)-2], chunks[len(chunks)-1]
			if end.Council == nil || end.Council.Status != council.StatusComplete {
				t.Fatalf("the last chunk is %+v", end)
			}
			if reason := end.Choices[0].FinishReason; reason == nil || *reason != tt.finish {
				t.Errorf("the finish reason of the stream is %v, want %s", reason, tt.finish)
			}
			total := end.Council.Metadata.Usage.Total
			wantUsage := &openai.ChatUsage{
				PromptTokens: *total.InputTokens, CompletionTokens: *total.OutputTokens,
				TotalTokens: *total.InputTokens + *total.OutputTokens, Cost: end.Council.Metadata.Usage.CostUSD,
			}
			if diff := cmp.Diff(wantUsage, usage.Usage); diff != "" {
				t.Error(diff)
			}
			_, data = s.Call(t, "GET", "/v1/council/"+end.Council.SessionID, "")
			if err := json.Unmarshal(data, &session); err != nil {
				t.Fatal(err)
			}
			if text.String() == "" || text.String() != session.Answer {
				t.Errorf("the stream adds up to %q, the answer is %q", text.String(), session.Answer)
			}
		})
	}
}

// Progress is in comments, which clients do not show.
func TestChatComments(t *testing.T) {
	t.Parallel()
	_, stream := complete(t, doortest.Start(t, nil), "council", `,"stream":true`)
	for _, part := range []string{": stage1.answer amber\n\n", ": stage2.ballot cedar\n\n", "data: [DONE]\n\n"} {
		if strings.Count(string(stream), part) != 1 {
			t.Errorf("%q is missing: %s", part, stream)
		}
	}
}

func TestChatErrors(t *testing.T) {
	s := doortest.Start(t, []simllm.Model{{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}})
	tests := []struct {
		model, fields string
		status        int
		kind, code    string
		param         string
	}{
		{"gpt-5", "", 404, "invalid_request_error", "not_found", "model"},
		{"gpt-5", `,"n":2`, 422, "invalid_request_error", "invalid", "n"},
		{"council/gpt-5", "", 403, "invalid_request_error", "forbidden", "model"},
		{"council/amber,gpt-5", "", 403, "invalid_request_error", "forbidden", "model"},
		{"council/", "", 403, "invalid_request_error", "forbidden", "model"},
		{"council", `,"metadata":{"category":"poetry"}`, 422, "invalid_request_error", "invalid", "metadata.category"},
		{"council", `,"metadata":{"mode":"judge"}`, 422, "invalid_request_error", "invalid", "metadata.mode"},
		{"council", `,"metadata":{"mode":"vote"}`, 422, "invalid_request_error", "invalid", "metadata.mode"},
		{"council/amber", `,"metadata":{"mode":"ranked"}`, 422, "invalid_request_error", "invalid", "model"},
		{"council/amber,birch", `,"metadata":{"mode":"single"}`, 422, "invalid_request_error", "invalid", "metadata.mode"},
		{
			"council", `,"metadata":{"mode":"ranked"},"response_format":{"type":"json_object"}`, 422, "invalid_request_error", "invalid",
			"response_format.json_schema.schema",
		},
		{"council", `,"metadata":{"language":"en-GB"}`, 422, "invalid_request_error", "invalid", "metadata.language"},
		{"council", `,"tools":[{"type":"function"}]`, 422, "invalid_request_error", "invalid", "tools"},
		{"council", `,"functions":[{"name":"f"}]`, 422, "invalid_request_error", "invalid", "functions"},
		{"council", `,"response_format":{"type":"yaml"}`, 422, "invalid_request_error", "invalid", "response_format.type"},
		{
			"council", `,"response_format":{"type":"json_schema"}`, 422, "invalid_request_error", "invalid",
			"response_format.json_schema.schema",
		},
		{
			"council", `,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"https://example.com"}}}`, 422,
			"invalid_request_error", "invalid", "response_format.json_schema.schema",
		},
		{"council", `,"stop":"x"`, 422, "invalid_request_error", "invalid", "stop"},
		{"council", `,"logprobs":true`, 422, "invalid_request_error", "invalid", "logprobs"},
		{"council", `,"audio":{"voice":"x"}`, 422, "invalid_request_error", "invalid", "audio"},
		{"council", `,"web_search_options":{"a":1}`, 422, "invalid_request_error", "invalid", "web_search_options"},
		{"council/down,down", "", 502, "server_error", "no_quorum", "down"},
	}
	for _, tt := range tests {
		t.Run(tt.model+tt.fields, func(t *testing.T) {
			resp, data := complete(t, s, tt.model, tt.fields)
			if resp.StatusCode != tt.status {
				t.Errorf("the status is %d, want %d", resp.StatusCode, tt.status)
			}
			var got httpapi.ChatError
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if got.Error.Type != tt.kind {
				t.Errorf("the type is %q, want %q", got.Error.Type, tt.kind)
			}
			if string(got.Error.Code) != tt.code {
				t.Errorf("the code is %q, want %q", got.Error.Code, tt.code)
			}
			if got.Error.Param == nil || *got.Error.Param != tt.param {
				t.Errorf("the parameter is %v, want %q", got.Error.Param, tt.param)
			}
			if got.Error.Message == "" {
				t.Error("there is no message")
			}
		})
	}
	_, data := s.Call(t, "POST", "/v1/chat/completions", `{"model":"council","messages":[]}`)
	if !strings.Contains(string(data), `"param":"messages"`) {
		t.Errorf("no message: %s", data)
	}
	_, data = s.Call(t, "POST", "/v1/chat/completions", `{"model":"council","messages":[{"role":"user","content":"`+
		strings.Repeat("x", 1<<18+1)+`"}]}`)
	if !strings.Contains(string(data), `"param":"messages"`) {
		t.Errorf("a question that is too long: %s", data)
	}
	_, data = s.Call(t, "POST", "/v1/chat/completions", `{"model":"council","messages":[{"role":"tool","content":"x"}]}`)
	if !strings.Contains(string(data), `"param":"messages"`) {
		t.Errorf("a tool's message: %s", data)
	}
	const developer = `{"model":"council","n":2,"messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"x"}]}`
	if _, data = s.Call(t, "POST", "/v1/chat/completions", developer); strings.Contains(string(data), "role") {
		t.Errorf("a developer's message: %s", data)
	}
}

// A chairman that is lost in the middle of the answer ends the stream with an error.
// The session goes on to its whole answer.
func TestLostChairman(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	lost := simllm.Model{
		Name: "lost", Faults: []simllm.Fault{{Kind: simllm.StreamError, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}},
	}
	s := doortest.Start(t, []simllm.Model{lost}, func(_ *httpapi.Options, p *pipeline.Options) { p.Chairman = "lost" })
	_, stream := complete(t, s, "council", `,"stream":true`)
	_, rest, _ := strings.Cut(string(stream), `GET /v1/council/`)
	id, _, _ := strings.Cut(rest, ";")
	if !strings.HasSuffix(string(stream), "}}\n\n") || id == "" {
		t.Fatalf("the stream ends with %s", stream[max(0, len(stream)-500):])
	}
	s.Watch(t, id)
	_, data := s.Call(t, "GET", "/v1/council/"+id, "")
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatal(err)
	}
	if session.Status != council.StatusDegraded {
		t.Errorf("the status is %s", session.Status)
	}
	if session.Answer == "" {
		t.Error("there is no answer")
	}
	if session.Stage3 == nil || session.Stage3.Status != council.OutcomeFallback {
		t.Errorf("stage 3 is %+v", session.Stage3)
	}
}

const verdictSchema = `{"type":"object","required":["verdict"],"properties":{"verdict":{"enum":["yes","no"]}}}`

// The answer is JSON in each door, and in a stream one piece.
func TestFormats(t *testing.T) {
	s := doortest.Start(t, nil) // amber, the chairman, writes JSON when it is asked to
	const want = `{"verdict":"yes"}`
	chat := `,"response_format":{"type":"json_schema","json_schema":{"name":"verdict","schema":` + verdictSchema + `}}`
	for _, tt := range []struct{ model, fields, want string }{
		{"council", chat, want},
		{"council/amber", chat, want},
		{"council", `,"response_format":{"type":"json_object"}`, "{}"},
	} {
		whole, stream := complete(t, s, tt.model, tt.fields+`,"stream":false`)
		if whole.StatusCode != http.StatusOK || !strings.Contains(string(stream), fmt.Sprintf(`"content":%q`, tt.want)) {
			t.Errorf("%s: %s", tt.model, stream)
		}
		_, stream = complete(t, s, tt.model, tt.fields+`,"stream":true`)
		if strings.Count(string(stream), `"delta":{"content":`) != 1 || !strings.Contains(string(stream), fmt.Sprintf(`"content":%q`, tt.want)) {
			t.Errorf("%s: the stream is %s", tt.model, stream)
		}
	}
	format := `{"type":"json_schema","name":"verdict","schema":` + verdictSchema + `,"strict":true}`
	_, data := s.Call(t, "POST", "/v1/responses", `{"model":"council","input":"x","text":{"format":`+format+`}}`)
	var response openai.Response
	if err := json.Unmarshal(data, &response); err != nil || len(response.Output) != 1 || response.Output[0].Content[0].Text != want {
		t.Errorf("%s: %v", data, err)
	}
	if text, err := json.Marshal(response.Text.Format); err != nil || string(text) != format {
		t.Errorf("the format is %s, %v", text, err)
	}
	_, data = s.Call(t, "POST", "/v1/council", `{"query":"x","output_schema":`+verdictSchema+`}`)
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || session.Stage3 == nil || session.Stage3.Parsed == nil {
		t.Fatalf("%s: %v", data, err)
	}
	if string(*session.Stage3.Parsed) != want || session.Answer != want {
		t.Errorf("parsed is %s, the answer %s", *session.Stage3.Parsed, session.Answer)
	}
	_, data = s.Call(t, "GET", "/v1/council/"+session.ID+"/request", "")
	if !strings.Contains(string(data), `"output_schema":`+verdictSchema) {
		t.Errorf("the request is %s", data)
	}
}

// Where nobody writes JSON that fits, each door says so, with the id of the session. What there is of
// it is kept.
func TestNoValidOutput(t *testing.T) {
	s := doortest.Start(t, nil, func(_ *httpapi.Options, p *pipeline.Options) { p.Models = []string{"birch", "cedar"} })
	_, problem := s.MustFail(t, 502, council.CodeNoValidOutput, "POST", "/v1/council", `{"query":"x","output_schema":`+verdictSchema+`}`)
	if len(problem.Errors) != 2 || problem.SessionID == "" {
		t.Errorf("got %+v", problem)
	}
	_, data := s.Call(t, "GET", "/v1/council/"+problem.SessionID, "")
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || session.Status != council.StatusFailed || session.Answer != "" {
		t.Errorf("%s: %v", data, err)
	}
	for i, a := range session.Stage1 {
		if a.Response == nil || session.Stage2[i].Ranking == nil {
			t.Errorf("answer and review %d are not kept", i)
		}
	}
	format := `,"response_format":{"type":"json_schema","json_schema":{"name":"verdict","schema":` + verdictSchema + `}}`
	text := `,"text":{"format":{"type":"json_schema","name":"verdict","schema":` + verdictSchema + `}}`
	for _, streamed := range []bool{false, true} {
		stream := fmt.Sprintf(`,"stream":%t`, streamed)
		resp, data := complete(t, s, "council", format+stream)
		if !strings.Contains(string(data), `"code":"no_valid_output"`) || !strings.Contains(string(data), "; session ") ||
			strings.Contains(string(data), "Simulated") || (resp.StatusCode == http.StatusOK) != streamed {
			t.Errorf("a completion: %d %s", resp.StatusCode, data)
		}
		resp, data = s.Call(t, "POST", "/v1/responses", `{"model":"council","input":"x"`+text+stream+`}`)
		if !strings.Contains(string(data), `"code":"no_valid_output"`) || !strings.Contains(string(data), "; session ") ||
			strings.Contains(string(data), "Simulated") || (resp.StatusCode == http.StatusOK) != streamed {
			t.Errorf("a response: %d %s", resp.StatusCode, data)
		}
	}
}
