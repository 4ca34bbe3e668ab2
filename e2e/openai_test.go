package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// sdk is OpenAI's own client, pointed at a server.
func sdk(s *server, token string) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.URL+"/v1/"), option.WithAPIKey(token), option.WithHTTPClient(s.Client()), option.WithMaxRetries(0))
}

// question returns the parameters of a completion.
func question(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// withModels has a server list its council.
func withModels(o *httpapi.Options, p *pipeline.Options) {
	o.Models, o.Tokens = slices.Concat(p.Models, p.Models[:1]), []string{secret} // one stands twice
}

// extension reads the extension of a completion.
func extension(t *testing.T, raw string) (c httpapi.ChatCouncil) {
	t.Helper()
	var body struct{ Council httpapi.ChatCouncil }
	if err := json.Unmarshal([]byte(raw), &body); err != nil {
		t.Fatal(err)
	}
	return body.Council
}

func TestSDKModels(t *testing.T) {
	page, err := new(sdk(start(t, nil, withModels), secret)).Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range page.Data {
		ids = append(ids, m.ID)
		if m.Object != "model" || m.OwnedBy != "councild" || m.Created == 0 {
			t.Errorf("got %+v", m)
		}
	}
	if diff := cmp.Diff([]string{"council", "council/amber", "council/birch", "council/cedar"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestSDKChat(t *testing.T) {
	s := start(t, nil, withModels)
	client := sdk(s, secret)
	tests := []struct {
		model  string
		models int
		calls  int64 // of all models
	}{
		{"council", 3, 7},
		{"council/dune,amber", 2, 5},
		{"council/dune", 1, 1},
	}
	for _, tt := range tests {
		calls := func() (n int64) {
			for _, m := range s.sim.Stats().Models {
				n += int64(m.Requests)
			}
			return n
		}
		before := calls()
		params := question(tt.model, "Why?")
		params.Messages = []openai.ChatCompletionMessageParamUnion{
			openai.DeveloperMessage("Be brief."), openai.UserMessage("Hello."), openai.AssistantMessage("Hello!"),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("Why "), openai.TextContentPart("so?")}),
		}
		params.Temperature, params.MaxCompletionTokens, params.User, params.Seed = openai.Float(0.5), openai.Int(100), openai.String("me"), openai.Int(5)
		got, err := client.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		x := extension(t, got.RawJSON())
		if len(got.Choices) != 1 || got.Choices[0].Message.Content == "" || got.Choices[0].FinishReason != "stop" || got.Choices[0].Message.Role != "assistant" ||
			got.Model != tt.model || got.Object != "chat.completion" || got.ID != "chatcmpl-"+x.SessionID || got.Created == 0 {
			t.Errorf("%s: got %s", tt.model, got.RawJSON())
		}
		if x.Status != council.StatusComplete || x.Metadata.Seed != 5 || len(x.Metadata.Usage.ByModel) != tt.models {
			t.Errorf("%s: the extension is %+v", tt.model, x)
		}
		total := x.Metadata.Usage.Total
		if got.Usage.PromptTokens != *total.InputTokens || got.Usage.CompletionTokens != *total.OutputTokens || got.Usage.TotalTokens != *total.InputTokens+*total.OutputTokens || total.InputTokens == nil {
			t.Errorf("%s: usage %+v, the calls' %+v", tt.model, got.Usage, total)
		}
		if n := calls() - before; n != tt.calls {
			t.Errorf("%s: %d calls, want %d", tt.model, n, tt.calls)
		}
		_, data := s.call(t, "GET", "/v1/council/"+x.SessionID, "", "Authorization", "Bearer "+secret)
		var session council.Session
		if err := json.Unmarshal(data, &session); err != nil || session.Answer != got.Choices[0].Message.Content || len(session.Stage1) != tt.models {
			t.Errorf("%s: the session is %s", tt.model, data)
		}
	}
}

func TestSDKStream(t *testing.T) {
	s := start(t, nil, withModels)
	client := sdk(s, secret)
	for _, model := range []string{"council", "council/amber"} {
		for _, usage := range []bool{false, true} {
			params := question(model, "Why?")
			if usage {
				params.StreamOptions.IncludeUsage = openai.Bool(true)
			}
			stream := client.Chat.Completions.NewStreaming(t.Context(), params)
			var sum openai.ChatCompletionAccumulator
			var chunks []openai.ChatCompletionChunk
			for stream.Next() {
				chunk := stream.Current()
				chunks = append(chunks, chunk)
				if !sum.AddChunk(chunk) {
					t.Errorf("%s: a chunk that does not fit: %s", model, chunk.RawJSON())
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			last := len(chunks) - 1
			if usage {
				total := extension(t, chunks[last-1].RawJSON()).Metadata.Usage.Total
				if len(chunks[last].Choices) != 0 || sum.Usage.PromptTokens != *total.InputTokens || sum.Usage.CompletionTokens != *total.OutputTokens || *total.InputTokens == 0 {
					t.Errorf("%s: usage %+v, the calls' %+v", model, sum.Usage, total)
				}
				last--
			} else if sum.Usage.TotalTokens != 0 {
				t.Errorf("%s: usage that nobody asked for: %+v", model, sum.Usage)
			}
			x := extension(t, chunks[last].RawJSON())
			_, data := s.call(t, "GET", "/v1/council/"+x.SessionID, "", "Authorization", "Bearer "+secret)
			var session council.Session
			if err := json.Unmarshal(data, &session); err != nil || sum.Choices[0].Message.Content != session.Answer || session.Answer == "" {
				t.Errorf("%s: the stream adds up to %q, the session is %s", model, sum.Choices[0].Message.Content, data)
			}
			if len(chunks) < 5 || chunks[0].Choices[0].Delta.Role != "assistant" || chunks[last].Choices[0].FinishReason != "stop" || x.Status != council.StatusComplete {
				t.Errorf("%s: %d chunks, the last %s", model, len(chunks), chunks[last].RawJSON())
			}
		}
	}
	// Progress is in comments, which clients do not see.
	_, data := s.call(t, "POST", "/v1/chat/completions", `{"model":"council","messages":[{"role":"user","content":"x"}],"stream":true}`, "Authorization", "Bearer "+secret)
	for _, part := range []string{": stage1.answer amber\n\n", ": stage2.ballot cedar\n\n", "data: [DONE]\n\n"} {
		if strings.Count(string(data), part) != 1 {
			t.Errorf("%q is missing: %s", part, data)
		}
	}
}

func TestSDKErrors(t *testing.T) {
	down := simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}
	s := start(t, []simllm.Model{down}, withModels)
	client := sdk(s, secret)
	tests := []struct {
		name   string
		change func(*openai.ChatCompletionNewParams)
		status int
		code   string
		param  string
	}{
		{"another model", func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-5" }, 404, "not_found", "model"},
		{"a member that may not be named", func(p *openai.ChatCompletionNewParams) { p.Model = "council/gpt-5" }, 403, "forbidden", "models[0]"},
		{"no member", func(p *openai.ChatCompletionNewParams) { p.Model = "council/" }, 403, "forbidden", "models[0]"},
		{"two answers", func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) }, 422, "invalid", "n"},
		{"tools", func(p *openai.ChatCompletionNewParams) {
			p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "f"})}
		}, 422, "invalid", "tools"},
		{"JSON", func(p *openai.ChatCompletionNewParams) {
			p.ResponseFormat.OfJSONObject = &openai.ResponseFormatJSONObjectParam{}
		}, 422, "invalid", "response_format"},
		{"a stop word", func(p *openai.ChatCompletionNewParams) { p.Stop.OfString = openai.String("x") }, 422, "invalid", "stop"},
		{"token probabilities", func(p *openai.ChatCompletionNewParams) { p.Logprobs = openai.Bool(true) }, 422, "invalid", "logprobs"},
		{"an image", func(p *openai.ChatCompletionNewParams) {
			p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:"})})}
		}, 422, "invalid", "messages[0].content[0]"},
		{"no message", func(p *openai.ChatCompletionNewParams) { p.Messages = []openai.ChatCompletionMessageParamUnion{} }, 422, "invalid", "messages"},
		{"a tool's message", func(p *openai.ChatCompletionNewParams) { p.Messages = append(p.Messages, openai.ToolMessage("x", "y")) }, 422, "invalid", "messages[1].role"},
		{"no quorum", func(p *openai.ChatCompletionNewParams) { p.Model = "council/down,down" }, 502, "no_quorum", "down"},
	}
	for _, tt := range tests {
		params := question("council", "Why?")
		tt.change(&params)
		_, err := client.Chat.Completions.New(t.Context(), params)
		e, ok := errors.AsType[*openai.Error](err)
		if !ok || e.StatusCode != tt.status || e.Code != tt.code || e.Param != tt.param || e.Message == "" {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
	_, err := new(sdk(s, "wrong")).Models.List(t.Context())
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != 401 || e.Type != "invalid_request_error" {
		t.Errorf("a wrong token: %v", err)
	}
	stream := client.Chat.Completions.NewStreaming(t.Context(), question("council/down,down", "Why?"))
	for stream.Next() {
		if chunk := stream.Current(); chunk.Choices[0].Delta.Content != "" {
			t.Errorf("got %s", chunk.RawJSON())
		}
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "no_quorum") {
		t.Errorf("a stream without a quorum: %v", err)
	}
}

// A chairman lost in the middle of the answer ends the stream with an error. The
// session goes on to its whole answer.
func TestSDKLostChairman(t *testing.T) {
	lost := simllm.Model{Name: "lost", Faults: []simllm.Fault{{Kind: simllm.StreamError, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}}}
	s := start(t, []simllm.Model{lost}, withModels, func(_ *httpapi.Options, p *pipeline.Options) { p.Chairman = "lost" })
	client := sdk(s, secret)
	stream := client.Chat.Completions.NewStreaming(t.Context(), question("council", "Why?"))
	var id string
	for stream.Next() {
		id = strings.TrimPrefix(stream.Current().ID, "chatcmpl-")
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), id) {
		t.Errorf("the stream ends with %v", err)
	}
	_ = stream.Close()
	auth := []string{"Authorization", "Bearer " + secret}
	s.watch(t, id, auth...)
	_, data := s.call(t, "GET", "/v1/council/"+id, "", auth...)
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || session.Status != council.StatusDegraded || session.Answer == "" || session.Stage3.Status != council.OutcomeFallback {
		t.Errorf("the session is %s", data)
	}
}

func TestSDKAbort(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m}, withModels)
	client := sdk(s, secret)
	for _, streamed := range []bool{false, true} {
		ctx, abort := context.WithCancel(t.Context())
		go func() {
			<-asked
			abort()
		}()
		if streamed {
			stream := client.Chat.Completions.NewStreaming(ctx, question("council/waiting,amber", "Why?"))
			for stream.Next() {
				continue
			}
			if stream.Err() == nil {
				t.Error("a stream that was left has an end")
			}
		} else if _, err := client.Chat.Completions.New(ctx, question("council/waiting,amber", "Why?")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	auth := []string{"Authorization", "Bearer " + secret}
	_, data := s.call(t, "GET", "/v1/council", "", auth...)
	var list httpapi.SessionList
	if err := json.Unmarshal(data, &list); err != nil || len(list.Sessions) != 2 {
		t.Fatalf("%s: %v", data, err)
	}
	for _, summary := range list.Sessions {
		events := parse(t, s.watch(t, summary.ID, auth...))
		if !slices.ContainsFunc(events, func(e event) bool {
			return e.name == council.EventFailed && strings.Contains(e.data, `"code":"cancelled"`)
		}) {
			t.Errorf("the session goes on: %+v", events)
		}
	}
}
