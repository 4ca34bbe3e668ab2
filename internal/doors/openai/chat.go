package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/sessions"
)

// ChatRequest is what is read of the body of POST /v1/chat/completions. Fields that are
// not known have no effect.
type ChatRequest struct {
	Model         string         `json:"model"`
	Messages      []ChatMessage  `json:"messages"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *StreamOptions `json:"stream_options,omitempty"`
	Seed          *int64         `json:"seed,omitempty"`
	Metadata      *ChatMetadata  `json:"metadata,omitempty"`
	EndUser
	Sampling
	MaxTokens           *float64        `json:"max_tokens,omitempty"` // as Sampling; so is the next
	MaxCompletionTokens *float64        `json:"max_completion_tokens,omitempty"`
	ResponseFormat      *ResponseFormat `json:"response_format,omitempty"`
	// What follows asks for what a council cannot give. Tools that need not be called may be ignored.
	N                *int64          `json:"n,omitempty"`
	Tools            json.RawMessage `json:"tools,omitempty"`
	ToolChoice       json.RawMessage `json:"tool_choice,omitempty"`
	Functions        json.RawMessage `json:"functions,omitempty"` // OpenAI's older name of tools
	FunctionCall     json.RawMessage `json:"function_call,omitempty"`
	Stop             json.RawMessage `json:"stop,omitempty"`
	Logprobs         *bool           `json:"logprobs,omitempty"`
	Audio            json.RawMessage `json:"audio,omitempty"`
	WebSearchOptions json.RawMessage `json:"web_search_options,omitempty"`
}

// EndUser names the person for whom a program asks.
type EndUser struct {
	User             string `json:"user,omitempty"`              // OpenAI's older name of the next
	SafetyIdentifier string `json:"safety_identifier,omitempty"` // goes before User
}

// maxEndUser bounds the bytes of the name of a person.
const maxEndUser = 256

// addUser adds the person to what the council is asked.
func (e EndUser) addUser(r *council.Request, p *httpapi.Problems) {
	r.User = cmp.Or(e.SafetyIdentifier, e.User)
	const message, fix = "the name is longer than 256 bytes", "give a shorter one, such as a hash"
	refuse(p, []refusal{
		{len(e.User) > maxEndUser, "user", message, fix},
		{len(e.SafetyIdentifier) > maxEndUser, "safety_identifier", message, fix},
	})
}

// Sampling tunes the sampling of one model, and has no effect. Its values are checked, because OpenAI refuses wrong ones.
type Sampling struct {
	Temperature      *float64 `json:"temperature,omitempty"` // 0 to 2
	TopP             *float64 `json:"top_p,omitempty"`       // 0 to 1
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"` // -2 to 2, as the one before
}

// checkSampling refuses values that are out of range.
func (s Sampling) checkSampling(p *httpapi.Problems) {
	for _, option := range []struct {
		field       string
		value       *float64
		least, most float64
	}{
		{"temperature", s.Temperature, 0, 2},
		{"top_p", s.TopP, 0, 1},
		{"frequency_penalty", s.FrequencyPenalty, -2, 2},
		{"presence_penalty", s.PresencePenalty, -2, 2},
	} {
		if v := option.value; v != nil && (*v < option.least || *v > option.most) {
			p.Add(option.field, "the number is out of range",
				fmt.Sprintf("give one from %g to %g, or leave %s out: it has no effect",
					option.least, option.most, option.field))
		}
	}
}

// checkLimit refuses a limit of tokens that is below 1. Some programs send -1 for no limit.
func checkLimit(p *httpapi.Problems, field string, tokens *float64) {
	if tokens != nil && *tokens < 1 && *tokens != -1 {
		p.Add(field, "the number is out of range", "give 1 or more, or leave "+field+" out: it has no effect")
	}
}

// StreamOptions are those of a ChatRequest.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// ChatMetadata is what a ChatRequest says for the records. Other keys have no effect.
type ChatMetadata struct {
	Category string `json:"category,omitempty"` // as in council.Request
	Language string `json:"language,omitempty"`
}

// ResponseFormat is that of a ChatRequest.
type ResponseFormat struct {
	Type       string      `json:"type"`                  // "text", "json_object" or "json_schema"
	JSONSchema *JSONSchema `json:"json_schema,omitempty"` // of "json_schema"
	// Schema is where other providers have the schema, also that of "json_object".
	Schema json.RawMessage `json:"schema,omitempty"`
}

// JSONSchema is a schema for the answer.
type JSONSchema struct {
	Name   string          `json:"name,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	Strict bool            `json:"strict,omitempty"` // as in council.Format
}

// The types of a format.
const (
	formatText   = "text"
	formatObject = "json_object"
	formatSchema = "json_schema"
)

// anyObject is the schema of "json_object".
const anyObject = `{"type":"object"}`

// ask adds a format to what the council is asked. place is where the format stands in the body,
// and inside where its schema stands.
func (f JSONSchema) ask(r *council.Request, p *httpapi.Problems, kind, place, inside string) {
	switch kind {
	case "", formatText:
	case formatObject:
		r.OutputSchema = f.Schema
		if len(f.Schema) == 0 {
			r.OutputSchema = json.RawMessage(anyObject)
		}
	case formatSchema:
		r.OutputSchema = f.Schema
		r.OutputName = f.Name
		r.OutputStrict = f.Strict
		if len(f.Schema) == 0 && !p.About(inside) {
			p.Add(inside+".schema", "there is no schema", "give a JSON Schema")
		}
	default:
		p.Add(place+".type", fmt.Sprintf("%q is not a format", kind), "use text, json_object or json_schema")
	}
}

// bodyPlace returns the place in the body of what is wrong with a field of council.Request. messages is where the
// conversation stands in the body, and format where the format does that it asks for.
func bodyPlace(field, messages, format string, talk conversation) string {
	if place, ok := talk.place(field, messages); ok {
		return place
	}
	list, _, _ := strings.Cut(field, "[")
	switch list {
	case "output_schema":
		return format + ".schema"
	case "output_name":
		return format + ".name"
	case "category", "language":
		return "metadata." + field
	case "council", "models":
		return "model"
	case "query", "messages":
		return messages
	default:
		return field
	}
}

// ChatMessage is one turn of a ChatRequest.
type ChatMessage struct {
	Role    string      `json:"role"`
	Content ChatContent `json:"content"`
	Refusal string      `json:"refusal,omitempty"` // of an assistant that had no content
}

// ChatContent is the parts of a message. A text counts as one part.
type ChatContent []ChatPart

// SetText implements httpapi.TextList.
func (c *ChatContent) SetText(text string) { *c = ChatContent{{Type: "text", Text: text}} }

// Wanted implements httpapi.TextList.
func (c *ChatContent) Wanted() string { return "a text, or a list of parts" }

// Skim implements httpapi.Skimmer for the messages of tools.
func (c *ChatMessage) Skim(_, role string) bool {
	if !foreign("", role) {
		return false
	}
	c.Role = role
	return true
}

// Skim implements httpapi.Skimmer for parts that are no text.
func (c *ChatPart) Skim(kind, _ string) bool {
	if _, ok := (ChatPart{Type: kind}).text(); ok || kind == "" {
		return false
	}
	c.Type = kind
	return true
}

// ChatPart is a part of a ChatMessage.
type ChatPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal,omitempty"` // of the type "refusal"
}

// request returns what the council is asked, and adds to p all that it cannot be.
func (c ChatRequest) request(p *httpapi.Problems) council.Request {
	r := asked(c.Model, c.Metadata)
	if r.Seed = c.Seed; c.Seed != nil && *c.Seed == -1 { // as other servers have it: drawn at random
		r.Seed = nil
	}
	schemaPlace := "response_format.json_schema"
	var talk conversation
	p.Rename = func(field string) string { return bodyPlace(field, "messages", schemaPlace, talk) }
	if f := c.ResponseFormat; f != nil {
		asked := JSONSchema{}
		if f.JSONSchema != nil {
			asked = *f.JSONSchema
		}
		if len(asked.Schema) == 0 && len(f.Schema) > 0 {
			asked.Schema = f.Schema
			schemaPlace = "response_format"
		}
		asked.ask(&r, p, f.Type, "response_format", schemaPlace)
	}
	c.addUser(&r, p)
	c.checkSampling(p)
	checkLimit(p, "max_tokens", c.MaxTokens)
	checkLimit(p, "max_completion_tokens", c.MaxCompletionTokens)
	askTools(p, &r, "tools", c.Tools, "tool_choice", c.ToolChoice)
	askTools(p, &r, "functions", c.Functions, "function_call", c.FunctionCall)
	refuse(p, []refusal{
		{c.N != nil && *c.N != 1, "n", "a council gives one answer", "leave n out"},
		{given(c.Stop), "stop", "a council's answer is given whole", "leave stop out"},
		{c.Logprobs != nil && *c.Logprobs, "logprobs", "a council has no token probabilities", "leave logprobs out"},
		{given(c.Audio), "audio", "a council answers in text", "leave audio out"},
		{given(c.WebSearchOptions), "web_search_options", "a council searches nothing", "leave web_search_options out"},
		{len(c.Messages) == 0 && !p.About("messages"), "messages", "there is no message", "give at least the user's question"},
	})
	items := make([]ResponseItem, len(c.Messages))
	for i, m := range c.Messages {
		items[i].ChatMessage = m
	}
	talk = readConversation(p, "messages", items, "")
	talk.ask(&r)
	return r
}

// askTools notes in r that the request offers tools: the council's policy refuses or ignores them. A choice that requires a call is
// refused here. With the choice "none" no tool would be called, so that there is nothing to ignore.
func askTools(
	p *httpapi.Problems, r *council.Request, field string, tools json.RawMessage, choiceField string, choice json.RawMessage,
) {
	var mode string
	if given(choice) && json.Unmarshal(choice, &mode) != nil {
		var object struct {
			Type    string `json:"type"`
			Mode    string `json:"mode"` // of a response
			Allowed struct {
				Mode string `json:"mode"`
			} `json:"allowed_tools"` // of a chat completion
		}
		mode = "named"
		if json.Unmarshal(choice, &object) == nil {
			switch object.Type {
			case "auto", "none":
				mode = object.Type
			case "allowed_tools":
				mode = cmp.Or(object.Mode, object.Allowed.Mode, mode)
			}
		}
	}
	switch mode {
	case "none":
	case "", "auto":
		if given(tools) && r.Tools == "" {
			r.Tools = field
		}
	default:
		p.Add(choiceField, "a council calls no tools", "leave "+choiceField+" out, or send none or auto")
	}
}

// asked returns what the council is asked by the name of a model and the metadata.
func asked(model string, m *ChatMetadata) (r council.Request) {
	if m != nil {
		r.Category = m.Category
		r.Language = m.Language
	}
	if names, named := strings.CutPrefix(model, councilModel+"/"); named {
		r.Models = strings.Split(names, ",")
		r.Direct = len(r.Models) == 1
	}
	return r
}

// refusal is what a request may ask for, and a council cannot give.
type refusal struct {
	is                  bool
	field, message, fix string
}

func refuse(p *httpapi.Problems, all []refusal) {
	for _, r := range all {
		if r.is {
			p.Add(r.field, r.message, r.fix)
		}
	}
}

// given reports whether a field says anything.
func given(raw json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "[]", "{}"}, string(raw))
}

// unreadable refuses a part of what is asked by its type, unless it was not even read.
func unreadable(p *httpapi.Problems, place func() string, is, fix string) {
	if p.Full() {
		p.Add("", "", "") // which is only counted
	} else if place := place(); !p.About(place) {
		p.Add(place, fmt.Sprintf("a council reads text, not %q", is), fix)
	}
}

// chat is POST /v1/chat/completions: a session, whose answer is the completion.
func (d door) chat(w http.ResponseWriter, r *http.Request) error {
	var c ChatRequest
	s, err := d.api.Begin(w, r, &c, func(p *httpapi.Problems) (council.Submission, error) {
		return council.Submission{Request: c.request(p), Stream: c.Stream}, knownModel(c.Model)
	})
	if err != nil {
		return err
	}
	c = ChatRequest{Model: c.Model, Stream: c.Stream, StreamOptions: c.StreamOptions} // The session holds the question.
	if c.Stream {
		d.streamText(w, r, newChatStream(s, c))
		return nil
	}
	session, err := httpapi.Wait(r, s)
	if err != nil {
		return err
	}
	whole := c.completion(s, "chat.completion", ChatChoice{
		Message:      &ChatAnswer{Role: council.RoleAssistant, Content: session.Answer + noteLine(session)},
		FinishReason: chatFinish(session),
	})
	whole.Usage = chatUsage(session)
	whole.Council = chatCouncil(session)
	return httpapi.WriteJSON(w, http.StatusOK, whole)
}

// noteLine returns what stands behind the answer of a session, where people see nothing else of it.
func noteLine(s *council.Session) string {
	if s.Note == "" {
		return ""
	}
	return "\n\n(" + s.Note + ")"
}

// completion returns the completion that a session is, or a chunk of it.
func (c ChatRequest) completion(s *sessions.Session, object string, choices ...ChatChoice) Chat {
	return Chat{
		ID: "chatcmpl-" + s.ID, Object: object, Created: s.Created.Unix(), Model: c.Model,
		Choices: append([]ChatChoice{}, choices...), // none is [], not null
	}
}

// Chat is a completion, or a chunk of one.
type Chat struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`  // "chat.completion" or "chat.completion.chunk"
	Created int64        `json:"created"` // Unix seconds
	Model   string       `json:"model"`   // as asked for
	Choices []ChatChoice `json:"choices"` // one; none in the chunk with the usage
	// Usage is the sum over all calls of the session; null when no provider told it.
	Usage   *ChatUsage   `json:"usage"`
	Council *ChatCouncil `json:"council,omitempty"` // at the end
}

// ChatChoice is the one choice of a Chat.
type ChatChoice struct {
	Index        int         `json:"index"`             // 0
	Message      *ChatAnswer `json:"message,omitempty"` // of a completion
	Delta        *ChatDelta  `json:"delta,omitempty"`   // of a chunk
	FinishReason *string     `json:"finish_reason"`     // null but for the end
}

// ChatAnswer is the message of a completion.
type ChatAnswer struct {
	Role    string `json:"role"` // "assistant"
	Content string `json:"content"`
}

// ChatDelta is the piece of the message in a chunk.
type ChatDelta struct {
	Role    string  `json:"role,omitempty"` // in the first chunk
	Content *string `json:"content,omitempty"`
}

// ChatUsage is what a session consumed.
type ChatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	// Cost is in US dollars, as in council.TotalUsage; null when nobody knows it.
	Cost    *float64 `json:"cost"`
	Partial bool     `json:"partial,omitempty"` // as in council.Usage
}

// ChatCouncil is what else a session is about. All of it is at
// GET /v1/council/{session_id}.
type ChatCouncil struct {
	SessionID   string                `json:"session_id"`
	Status      council.Status        `json:"status"`
	Persisted   bool                  `json:"persisted"`
	Degradation []council.Degradation `json:"degradation"`
	Metadata    council.Metadata      `json:"metadata"`
}

func chatCouncil(s *council.Session) *ChatCouncil {
	return &ChatCouncil{
		SessionID:   s.ID,
		Status:      s.Status,
		Persisted:   s.Persisted,
		Degradation: s.Degradation,
		Metadata:    s.Metadata,
	}
}

// chatUsage returns what all calls consumed, nil when it is not known.
func chatUsage(s *council.Session) *ChatUsage {
	total := s.Metadata.Usage.Total
	if total.InputTokens == nil || total.OutputTokens == nil {
		return nil
	}
	return &ChatUsage{
		PromptTokens: *total.InputTokens, CompletionTokens: *total.OutputTokens, TotalTokens: total.Tokens(),
		Cost: s.Metadata.Usage.CostUSD, Partial: total.Partial,
	}
}

// chatFinish returns why the answer ended. A synthesis is whole; a model that
// answered alone may have ended at its token limit.
func chatFinish(s *council.Session) *string {
	if s.Stage3 == nil && len(s.Stage1) == 1 && s.Stage1[0].FinishReason != nil &&
		*s.Stage1[0].FinishReason == "length" {
		return new("length")
	}
	return new("stop")
}
