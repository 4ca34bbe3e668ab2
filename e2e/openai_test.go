package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/doors/httpapi"
	door "github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// openAI is a daemon that is called with OpenAI's own client.
type openAI struct {
	*daemontest.Daemon
	*testing.T
	client openai.Client
	sim    *simllm.Running
}

// startOpenAI starts a daemon whose council is amber, birch and cedar. Dune and the
// models given are allowed.
func startOpenAI(t *testing.T, env map[string]string, models ...simllm.Model) openAI {
	t.Helper()
	const token = "a-token-of-sixteen-and-more"
	settings := map[string]string{"MODELS": "amber,birch,cedar", "ALLOWED_MODELS": "dune", "API_TOKENS": token, "MAX_ATTEMPTS": "1"}
	for _, m := range models {
		settings["ALLOWED_MODELS"] += "," + m.Name
	}
	for _, name := range []string{"amber", "birch", "cedar", "dune"} {
		models = append(models, simllm.Model{Name: name, LengthSigma: 0.3, Spread: 1, Noise: 0.5, ChunkDelay: 10 * time.Millisecond})
	}
	d := openAI{T: t, sim: daemontest.Provider(t, models...)}
	settings["BASE_URL"] = d.sim.URL()
	maps.Copy(settings, env)
	d.Daemon = daemontest.Start(t, settings)
	d.Token = token
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	d.Client = &http.Client{Transport: transport}
	d.client = openai.NewClient(
		option.WithBaseURL(d.URL()+"/v1/"), option.WithAPIKey(token), option.WithHTTPClient(d.Client), option.WithMaxRetries(0),
	)
	return d
}

// session returns a session as the daemon has it.
func (d openAI) session(id string) (s council.Session) {
	d.Helper()
	status, data := d.Call(d.T, "GET", "/v1/council/"+id, "")
	if err := json.Unmarshal(data, &s); err != nil || status != http.StatusOK {
		d.Fatalf("%d %s: %v", status, data, err)
	}
	return s
}

// watch waits for the end of a session, and returns why it failed.
func (d openAI) watch(id string) error {
	d.Helper()
	c, err := client.New(client.Options{URL: d.URL(), Token: d.Token, HTTP: d.Client})
	if err != nil {
		d.Fatal(err)
	}
	_, err = c.Watch(d.Context(), id, council.ObserverFunc(func(council.Event) {}))
	return err
}

// calls returns how many calls all models have had.
func (d openAI) calls() (n int) {
	for _, m := range d.sim.Stats().Models {
		n += m.Requests
	}
	return n
}

// question returns the parameters of a completion.
func question(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// extension reads the extension of a completion.
func extension(t *testing.T, raw string) (c door.ChatCouncil) {
	t.Helper()
	var body struct{ Council door.ChatCouncil }
	if err := json.Unmarshal([]byte(raw), &body); err != nil {
		t.Fatal(err)
	}
	return body.Council
}

func TestOpenAIModels(t *testing.T) {
	d := startOpenAI(t, nil)
	page, err := d.client.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range page.Data {
		ids = append(ids, m.ID)
		if m.Object != "model" {
			t.Errorf("%s: the object is %q", m.ID, m.Object)
		}
		if m.OwnedBy != "councild" {
			t.Errorf("%s: owned by %q", m.ID, m.OwnedBy)
		}
		if m.Created == 0 {
			t.Errorf("%s: created at 0", m.ID)
		}
	}
	if diff := cmp.Diff([]string{"council", "council/amber", "council/birch", "council/cedar"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestOpenAIChat(t *testing.T) {
	d := startOpenAI(t, nil)
	tests := []struct {
		model  string
		models int
		calls  int // of all models
	}{
		{"council", 3, 7},
		{"council/dune,amber", 2, 5},
		{"council/dune", 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.model, func(t *testing.T) {
			before := d.calls()
			params := question(tt.model, "Why?")
			params.Messages = []openai.ChatCompletionMessageParamUnion{
				openai.DeveloperMessage("Be brief."), openai.UserMessage("Hello."), openai.AssistantMessage("Hello!"),
				openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
					openai.TextContentPart("Why "), openai.TextContentPart("so?"),
				}),
			}
			params.Temperature, params.MaxCompletionTokens = openai.Float(0.5), openai.Int(100)
			params.User, params.Seed = openai.String("me"), openai.Int(5)
			got, err := d.client.Chat.Completions.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			if n := d.calls() - before; n != tt.calls {
				t.Errorf("%d calls, want %d", n, tt.calls)
			}
			x := extension(t, got.RawJSON())
			if got.Model != tt.model {
				t.Errorf("the model is %q", got.Model)
			}
			if got.Object != "chat.completion" {
				t.Errorf("the object is %q", got.Object)
			}
			if got.ID != "chatcmpl-"+x.SessionID {
				t.Errorf("the id is %q, the session %q", got.ID, x.SessionID)
			}
			if got.Created == 0 {
				t.Error("created at 0")
			}
			if len(got.Choices) != 1 {
				t.Fatalf("%d choices", len(got.Choices))
			}
			choice := got.Choices[0]
			if choice.FinishReason != "stop" {
				t.Errorf("the finish reason is %q", choice.FinishReason)
			}
			if choice.Message.Role != "assistant" {
				t.Errorf("the role is %q", choice.Message.Role)
			}
			if x.Status != council.StatusComplete {
				t.Errorf("the status is %s", x.Status)
			}
			if x.Metadata.Seed != 5 {
				t.Errorf("the seed is %d", x.Metadata.Seed)
			}
			if n := len(x.Metadata.Usage.ByModel); n != tt.models {
				t.Errorf("the usage is of %d models, want %d", n, tt.models)
			}
			compareUsage(t, got.Usage, x)
			session := d.session(x.SessionID)
			if session.Answer == "" || session.Answer != choice.Message.Content {
				t.Errorf("the answer is %q, that of the session %q", choice.Message.Content, session.Answer)
			}
			if len(session.Stage1) != tt.models {
				t.Errorf("%d answers, want %d", len(session.Stage1), tt.models)
			}
		})
	}
}

// compareUsage holds the usage of a completion against that of the session's calls.
func compareUsage(t *testing.T, got openai.CompletionUsage, x door.ChatCouncil) {
	t.Helper()
	total := x.Metadata.Usage.Total
	if total.InputTokens == nil || total.OutputTokens == nil || *total.InputTokens == 0 {
		t.Fatalf("the usage is not known: %+v", total)
	}
	if got.PromptTokens != *total.InputTokens {
		t.Errorf("%d prompt tokens, want %d", got.PromptTokens, *total.InputTokens)
	}
	if got.CompletionTokens != *total.OutputTokens {
		t.Errorf("%d completion tokens, want %d", got.CompletionTokens, *total.OutputTokens)
	}
	if got.TotalTokens != *total.InputTokens+*total.OutputTokens {
		t.Errorf("%d tokens in all", got.TotalTokens)
	}
}

func TestOpenAIStream(t *testing.T) {
	d := startOpenAI(t, nil)
	for _, model := range []string{"council", "council/amber"} {
		for _, usage := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, usage %t", model, usage), func(t *testing.T) {
				params := question(model, "Why?")
				if usage {
					params.StreamOptions.IncludeUsage = openai.Bool(true)
				}
				stream := d.client.Chat.Completions.NewStreaming(t.Context(), params)
				var sum openai.ChatCompletionAccumulator
				var chunks []openai.ChatCompletionChunk
				for stream.Next() {
					chunk := stream.Current()
					chunks = append(chunks, chunk)
					if !sum.AddChunk(chunk) {
						t.Errorf("a chunk that does not fit: %s", chunk.RawJSON())
					}
				}
				if err := stream.Err(); err != nil {
					t.Fatal(err)
				}
				if len(chunks) < 5 {
					t.Fatalf("%d chunks", len(chunks))
				}
				last := len(chunks) - 1
				if usage {
					last--
					if n := len(chunks[last+1].Choices); n != 0 {
						t.Errorf("the chunk with the usage has %d choices", n)
					}
					compareUsage(t, sum.Usage, extension(t, chunks[last].RawJSON()))
				} else if sum.Usage.TotalTokens != 0 {
					t.Errorf("usage that was not asked for: %+v", sum.Usage)
				}
				if role := chunks[0].Choices[0].Delta.Role; role != "assistant" {
					t.Errorf("the role is %q", role)
				}
				if reason := chunks[last].Choices[0].FinishReason; reason != "stop" {
					t.Errorf("the finish reason is %q", reason)
				}
				x := extension(t, chunks[last].RawJSON())
				if x.Status != council.StatusComplete {
					t.Errorf("the status is %s", x.Status)
				}
				session := d.session(x.SessionID)
				if text := sum.Choices[0].Message.Content; text == "" || text != session.Answer {
					t.Errorf("the stream adds up to %q, the answer is %q", text, session.Answer)
				}
			})
		}
	}
}

func TestOpenAIErrors(t *testing.T) {
	d := startOpenAI(t, nil, simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}})
	image := openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:"})
	tests := []struct {
		name   string
		change func(*openai.ChatCompletionNewParams)
		status int
		code   string
		param  string
	}{
		{"another model", func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-5" }, 404, "not_found", "model"},
		{
			"a member that may not be named", func(p *openai.ChatCompletionNewParams) { p.Model = "council/gpt-5" }, 403, "forbidden",
			"model",
		},
		{"no member", func(p *openai.ChatCompletionNewParams) { p.Model = "council/" }, 403, "forbidden", "model"},
		{"two answers", func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) }, 422, "invalid", "n"},
		{"tools", func(p *openai.ChatCompletionNewParams) {
			p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "f"})}
		}, 422, "invalid", "tools"},
		{"a schema that leaves itself", func(p *openai.ChatCompletionNewParams) {
			p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{
				Name: "a", Schema: map[string]any{"$ref": "https://example.com"},
			}}
		}, 422, "invalid", "response_format.json_schema.schema"},
		{"a stop word", func(p *openai.ChatCompletionNewParams) { p.Stop.OfString = openai.String("x") }, 422, "invalid", "stop"},
		{"token probabilities", func(p *openai.ChatCompletionNewParams) { p.Logprobs = openai.Bool(true) }, 422, "invalid", "logprobs"},
		{"an image", func(p *openai.ChatCompletionNewParams) {
			p.Messages[0] = openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{image})
		}, 422, "invalid", "messages[0].content[0]"},
		{"no message", func(p *openai.ChatCompletionNewParams) { p.Messages = p.Messages[:0] }, 422, "invalid", "messages"},
		{"a tool's message", func(p *openai.ChatCompletionNewParams) {
			p.Messages = append(p.Messages, openai.ToolMessage("x", "y"))
		}, 422, "invalid", "messages[1]"},
		{"no quorum", func(p *openai.ChatCompletionNewParams) { p.Model = "council/down,down" }, 502, "no_quorum", "down"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			params := question("council", "Why?")
			tt.change(&params)
			_, err := d.client.Chat.Completions.New(t.Context(), params)
			e, ok := errors.AsType[*openai.Error](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if e.StatusCode != tt.status {
				t.Errorf("the status is %d, want %d", e.StatusCode, tt.status)
			}
			if e.Code != tt.code {
				t.Errorf("the code is %q, want %q", e.Code, tt.code)
			}
			if e.Param != tt.param {
				t.Errorf("the parameter is %q, want %q", e.Param, tt.param)
			}
			if e.Message == "" {
				t.Error("there is no message")
			}
		})
	}
	_, err := d.client.Models.List(t.Context(), option.WithAPIKey("wrong"))
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != 401 || e.Type != "invalid_request_error" {
		t.Errorf("a wrong token: %v", err)
	}
	stream := d.client.Chat.Completions.NewStreaming(t.Context(), question("council/down,down", "Why?"))
	for stream.Next() {
		if chunk := stream.Current(); chunk.Choices[0].Delta.Content != "" {
			t.Errorf("got %s", chunk.RawJSON())
		}
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "no_quorum") {
		t.Errorf("a stream without a quorum: %v", err)
	}
}

// The same council is behind OpenAI's Responses.
func TestOpenAIResponses(t *testing.T) {
	d := startOpenAI(t, nil)
	params := responses.ResponseNewParams{
		Model: "council", Instructions: openai.String("Be brief."), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Why?")},
	}
	whole, err := d.client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	session := d.session(strings.TrimPrefix(whole.ID, "resp_"))
	if text := whole.OutputText(); text == "" || text != session.Answer || whole.Status != responses.ResponseStatusCompleted {
		t.Errorf("%s: the text is %q, the answer %q", whole.Status, text, session.Answer)
	}
	if total := session.Metadata.Usage.Total; whole.Usage.InputTokens != *total.InputTokens || whole.Usage.OutputTokens != *total.OutputTokens {
		t.Errorf("the usage is %s", whole.Usage.RawJSON())
	}
	stream := d.client.Responses.NewStreaming(t.Context(), params)
	var text strings.Builder
	var ended responses.Response
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text.WriteString(e.Delta)
		case responses.ResponseCompletedEvent:
			ended = e.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if text.String() == "" || text.String() != ended.OutputText() || text.String() != d.session(strings.TrimPrefix(ended.ID, "resp_")).Answer {
		t.Errorf("the stream adds up to %q, the response is %q", text.String(), ended.OutputText())
	}
}

// A chairman that is lost in the middle of the answer ends the stream with an error.
// The session goes on to its whole answer.
func TestOpenAILostChairman(t *testing.T) {
	lost := simllm.Model{
		Name: "lost", Faults: []simllm.Fault{{Kind: simllm.StreamError, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}},
	}
	d := startOpenAI(t, map[string]string{"CHAIRMAN": "lost"}, lost)
	stream := d.client.Chat.Completions.NewStreaming(t.Context(), question("council", "Why?"))
	var id string
	for stream.Next() {
		id = strings.TrimPrefix(stream.Current().ID, "chatcmpl-")
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), id) {
		t.Errorf("the stream ends with %v", err)
	}
	_ = stream.Close()
	if err := d.watch(id); err != nil {
		t.Errorf("the session fails: %v", err)
	}
	session := d.session(id)
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

// A client that leaves cancels its session.
func TestOpenAIAbort(t *testing.T) {
	asked := make(chan struct{}, 16)
	waiting := simllm.Model{Name: "waiting", Reply: func(simllm.Task) (string, bool) {
		asked <- struct{}{}
		<-t.Context().Done()
		return "", false
	}}
	d := startOpenAI(t, nil, waiting)
	for _, streamed := range []bool{false, true} {
		ctx, abort := context.WithCancel(t.Context())
		go func() {
			<-asked
			abort()
		}()
		if streamed {
			stream := d.client.Chat.Completions.NewStreaming(ctx, question("council/waiting,amber", "Why?"))
			for stream.Next() {
				continue
			}
			if stream.Err() == nil {
				t.Error("a stream that its client left has an end")
			}
			continue
		}
		_, err := d.client.Chat.Completions.New(ctx, question("council/waiting,amber", "Why?"))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	_, data := d.Call(t, "GET", "/v1/council", "")
	var list httpapi.SessionList
	if err := json.Unmarshal(data, &list); err != nil || len(list.Sessions) != 2 {
		t.Fatalf("%s: %v", data, err)
	}
	for _, summary := range list.Sessions {
		if e, ok := errors.AsType[*council.Error](d.watch(summary.ID)); !ok || e.Code != council.CodeCancelled {
			t.Errorf("the session goes on: %v", e)
		}
	}
}
