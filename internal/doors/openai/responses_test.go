package openai_test

import (
	"encoding/json"
	"fmt"
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
)

// event is an event of a stream of a response, as its clients read it.
type event struct {
	Type           string                  `json:"type"`
	SequenceNumber int                     `json:"sequence_number"`
	Response       *openai.Response        `json:"response"`
	ItemID         string                  `json:"item_id"`
	Item           *openai.ResponseMessage `json:"item"`
	Part           *openai.ResponsePart    `json:"part"`
	Delta          string                  `json:"delta"`
	Text           string                  `json:"text"`
}

// events returns the events of a stream, which are named as in their data. Their numbers are places in the text.
func events(t *testing.T, stream []byte) (all []event) {
	t.Helper()
	for block := range strings.SplitSeq(string(stream), "\n\n") {
		if block == "" || strings.HasPrefix(block, ":") {
			continue
		}
		name, data, _ := strings.Cut(block, "\ndata: ")
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%q: %v", block, err)
		}
		if name != "event: "+e.Type || len(all) > 0 && e.SequenceNumber <= all[len(all)-1].SequenceNumber {
			t.Errorf("event %d: %s", len(all), block)
		}
		all = append(all, e)
	}
	return all
}

func TestResponse(t *testing.T) { //nolint:tparallel // its subtests share a server
	testkit.Slow(t)
	t.Parallel()
	cut := simllm.Model{Name: "cut", Faults: []simllm.Fault{{Kind: simllm.FaultLength, Rate: 1}}}
	s := doortest.Start(t, []simllm.Model{cut})
	for _, tt := range []struct{ model, status string }{
		{"council", "completed"}, {"council/dune,amber", "completed"}, {"council/dune", "completed"}, {"council/cut", "incomplete"},
	} {
		t.Run(tt.model, func(t *testing.T) {
			body := fmt.Sprintf(`{"model":%q,"instructions":"Be brief.","input":"Why?","metadata":{"category":"math","x":"y"}`, tt.model)
			_, data := s.Call(t, "POST", "/v1/responses", body+"}")
			var got openai.Response
			if err := json.Unmarshal(data, &got); err != nil || got.Council == nil {
				t.Fatalf("%s: %v", data, err)
			}
			id := got.Council.SessionID
			_, data = s.Call(t, "GET", "/v1/council/"+id, "")
			var session council.Session
			if err := json.Unmarshal(data, &session); err != nil {
				t.Fatal(err)
			}
			part := openai.ResponsePart{Type: "output_text", Text: session.Answer, Annotations: []string{}, Logprobs: []string{}}
			total := session.Metadata.Usage.Total
			want := openai.Response{
				ID: "resp_" + id, Object: "response", CreatedAt: got.CreatedAt, Status: tt.status, Model: tt.model,
				Output: []openai.ResponseMessage{{
					ID: "msg_" + id, Type: "message", Status: tt.status, Role: "assistant", Content: []openai.ResponsePart{part},
				}},
				CompletedAt: got.CompletedAt,
				Usage: &openai.ResponseUsage{
					InputTokens: *total.InputTokens, OutputTokens: *total.OutputTokens, TotalTokens: *total.InputTokens + *total.OutputTokens,
					Cost: session.Metadata.Usage.CostUSD,
				},
				Store:        true,
				Instructions: new("Be brief."), Metadata: map[string]string{"category": "math", "x": "y"},
				Text:    openai.ResponseText{Format: openai.TextFormat{Type: "text"}},
				Council: got.Council,
				Unused: openai.Unused{
					Temperature: 1, TopP: 1, Truncation: "disabled", ServiceTier: "default", ToolChoice: "auto", Tools: []string{},
				},
			}
			if (got.CompletedAt != nil) != (tt.status == "completed") || got.CompletedAt != nil && *got.CompletedAt < got.CreatedAt {
				t.Errorf("it was created at %d, and completed at %v", got.CreatedAt, got.CompletedAt)
			}
			if tt.status == "incomplete" {
				want.IncompleteDetails = &openai.ResponseIncompletion{Reason: "max_output_tokens"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if session.Answer == "" || got.CreatedAt == 0 {
				t.Errorf("the answer is %q, of %d", session.Answer, got.CreatedAt)
			}

			_, stream := s.Call(t, "POST", "/v1/responses", body+`,"stream":true}`)
			all := events(t, stream)
			var types []string
			var text strings.Builder
			for _, e := range all {
				if n := len(types); e.Type != "response.output_text.delta" || types[n-1] != e.Type {
					types = append(types, e.Type)
				}
				text.WriteString(e.Delta)
			}
			wantTypes := []string{
				"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
				"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
				"response." + tt.status,
			}
			if diff := cmp.Diff(wantTypes, types); diff != "" {
				t.Fatal(diff)
			}
			ended := all[len(all)-1].Response
			_, data = s.Call(t, "GET", "/v1/council/"+strings.TrimPrefix(ended.ID, "resp_"), "")
			if err := json.Unmarshal(data, &session); err != nil {
				t.Fatal(err)
			}
			if all[0].Response.ID != ended.ID || all[0].Response.Status != "in_progress" || len(all[0].Response.Output) != 0 {
				t.Errorf("the stream begins with %+v", all[0].Response)
			}
			done := all[len(all)-4:]
			for what, got := range map[string]string{
				"the deltas": text.String(), "the text": done[0].Text, "the part": done[1].Part.Text,
				"the item": done[2].Item.Content[0].Text, "the response": ended.Output[0].Content[0].Text,
			} {
				if got != session.Answer {
					t.Errorf("%s: %q, the answer is %q", what, got, session.Answer)
				}
			}
		})
	}
}

// The input may be a text, or a conversation in either form of its parts.
func TestResponseInput(t *testing.T) {
	t.Parallel()
	s := doortest.Start(t, nil)
	_, data := s.Call(t, "POST", "/v1/responses", `{"model":"council/dune","stream":true,"instructions":"I.","input":[
		{"role":"developer","content":"D."},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"U1"},{"type":"input_text","text":"U2"}]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"A"}]},
		{"role":"user","content":"Q?"}],
		"tools":[],"include":["reasoning.encrypted_content"],"store":true,"temperature":0.5,"max_output_tokens":9,"text":{"format":{"type":"text"},"verbosity":"low"}}`)
	all := events(t, data)
	ended := all[len(all)-1].Response
	if ended.Status != "completed" {
		t.Fatalf("%s", data)
	}
	_, data = s.Call(t, "GET", "/v1/council/"+ended.Council.SessionID+"/request", "")
	var asked struct{ Messages []council.Message }
	if err := json.Unmarshal(data, &asked); err != nil {
		t.Fatal(err)
	}
	want := []council.Message{
		{Role: "system", Content: "I."},
		{Role: "system", Content: "D."},
		{Role: "user", Content: "U1U2"},
		{Role: "assistant", Content: "A"},
		{Role: "user", Content: "Q?"},
	}
	if diff := cmp.Diff(want, asked.Messages); diff != "" {
		t.Error(diff)
	}
}

func TestResponseErrors(t *testing.T) {
	s := doortest.Start(t, []simllm.Model{{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}})
	for _, tt := range []struct {
		body   string
		status int
		code   string
		param  string
	}{
		{`{"model":"gpt-5","input":"x"}`, 404, "not_found", "model"},
		{`{"model":"council/gpt-5","input":"x"}`, 403, "forbidden", "model"},
		{`{"model":"council","input":"x","metadata":{"category":"poetry"}}`, 422, "invalid", "metadata.category"},
		{`{"model":"council","input":"x","metadata":{"language":"en-GB"}}`, 422, "invalid", "metadata.language"},
		{`{"model":"council"}`, 422, "invalid", "input"},
		{`{"model":"council","input":[]}`, 422, "invalid", "input"},
		{`{"model":"council","input":1}`, 422, "invalid", "input"},
		{`{"model":"council","input":[{"type":"function_call_output","output":"x"}]}`, 422, "invalid", "input"},
		{`{"model":"council","input":[{"role":"user","content":[{"type":"input_image"}]}]}`, 422, "invalid", "input[0].content[0]"},
		{`{"model":"council","input":"x","tools":[{"type":"web_search"}]}`, 422, "invalid", "tools"},
		{`{"model":"council","input":"x","include":["message.output_text.logprobs"]}`, 422, "invalid", "include"},
		{`{"model":"council","input":"x","text":{"format":{"type":"yaml"}}}`, 422, "invalid", "text.format.type"},
		{`{"model":"council","input":"x","text":{"format":{"type":"json_schema"}}}`, 422, "invalid", "text.format.schema"},
		{
			`{"model":"council","input":"x","text":{"format":{"type":"json_schema","schema":{"type":"text"}}}}`, 422, "invalid",
			"text.format.schema",
		},
		{
			`{"model":"council","input":"x","text":{"format":{"type":"json_schema","name":"a b","schema":{}}}}`, 422, "invalid",
			"text.format.name",
		},
		{`{"model":"council","input":"x","previous_response_id":"resp_1"}`, 404, "not_found", "previous_response_id"},
		{`{"model":"council","input":"x","previous_response_id":"1"}`, 404, "not_found", "previous_response_id"},
		{`{"model":"council","input":"x","metadata":"x"}`, 422, "invalid", "metadata"},
		{`{"model":"council","input":"x","metadata":{"x":1}}`, 422, "invalid", "metadata"},
		{`{"model":"council","input":"x","metadata":{"x":"` + strings.Repeat("y", 513) + `"}}`, 422, "invalid", "metadata"},
		{`{"model":"council","input":"x","conversation":"c"}`, 422, "invalid", "conversation"},
		{`{"model":"council","input":"x","prompt":{"id":"p"}}`, 422, "invalid", "prompt"},
		{`{"model":"council","input":"x","background":true,"store":false}`, 422, "invalid", "store"},
		{`{"model":"council","input":"x","top_logprobs":2}`, 422, "invalid", "top_logprobs"},
		{`{"model":"council","input":[{"role":"user","content":"x"},{"role":"tool","content":"x"}]}`, 422, "invalid", "input[1]"},
		{`{"model":"council","instructions":"x","input":[{"role":"tool","content":"x"}]}`, 422, "invalid", "input"},
		{`{"model":"council","instructions":"x","input":""}`, 422, "invalid", "input[0].content"},
		{`{"model":"council/down,down","input":"x"}`, 502, "no_quorum", "down"},
	} {
		resp, data := s.Call(t, "POST", "/v1/responses", tt.body)
		var got httpapi.ChatError
		if err := json.Unmarshal(data, &got); err != nil || got.Error.Param == nil {
			t.Errorf("%s: %s: %v", tt.body, data, err)
		} else if resp.StatusCode != tt.status || string(got.Error.Code) != tt.code || *got.Error.Param != tt.param || got.Error.Message == "" ||
			strings.Contains(string(data), "query") || strings.Contains(string(data), "messages[") {
			t.Errorf("%s: %d %s", tt.body, resp.StatusCode, data)
		}
	}
	_, data := s.Call(t, "POST", "/v1/responses", `{"model":"council/down,down","input":"x","stream":true}`)
	all := events(t, data)
	last := all[len(all)-1]
	if last.Type != "response.failed" || last.Response.Status != "failed" || len(last.Response.Output) != 0 ||
		last.Response.Error == nil || last.Response.Error.Code != council.CodeNoQuorum || last.Response.Error.Message == "" {
		t.Errorf("a stream without a quorum ends with %+v", last)
	}
}

// A chairman that is lost in the middle of the answer ends the stream. The session goes on.
func TestResponseLostChairman(t *testing.T) {
	t.Parallel()
	lost := simllm.Model{
		Name: "lost", Faults: []simllm.Fault{{Kind: simllm.StreamError, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}},
	}
	s := doortest.Start(t, []simllm.Model{lost}, func(_ *httpapi.Options, p *pipeline.Options) { p.Chairman = "lost" })
	_, data := s.Call(t, "POST", "/v1/responses", `{"model":"council","input":"x","stream":true}`)
	all := events(t, data)
	last := all[len(all)-1]
	if last.Type != "response.failed" || last.Response.Error == nil || last.Response.Error.Code != council.CodePartialRefused {
		t.Fatalf("the stream ends with %s", data)
	}
	id := strings.TrimPrefix(last.Response.ID, "resp_")
	s.Watch(t, id)
	_, data = s.Call(t, "GET", "/v1/council/"+id, "")
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || session.Answer == "" || session.Status != council.StatusDegraded {
		t.Errorf("%s: %v", data, err)
	}
}
