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

// ChatRequest is the body of POST /v1/chat/completions. Other fields in a body have no effect.
type ChatRequest struct {
	Model         string         `json:"model"`
	Messages      []ChatMessage  `json:"messages"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *StreamOptions `json:"stream_options,omitempty"`
	Seed          *int64         `json:"seed,omitempty"`
	Metadata      *ChatMetadata  `json:"metadata,omitempty"`
	EndUser
	Sampling
	// MaxTokens and MaxCompletionTokens have no effect, but wrong values are refused.
	MaxTokens           *float64        `json:"max_tokens,omitempty"`
	MaxCompletionTokens *float64        `json:"max_completion_tokens,omitempty"`
	ResponseFormat      *ResponseFormat `json:"response_format,omitempty"`
	// The remaining fields are refused, because a council does not support them. But tools may be ignored if the
	// request does not require a call.
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

// EndUser names the person for whom a program asks. If both fields are set, SafetyIdentifier is used.
type EndUser struct {
	User             string `json:"user,omitempty"` // OpenAI's older name for SafetyIdentifier
	SafetyIdentifier string `json:"safety_identifier,omitempty"`
}

// maxEndUser is the most bytes that the name of a person may have.
const maxEndUser = 256

// addUser sets the person of r, and refuses names that are too long.
func (e EndUser) addUser(r *council.Request, p *httpapi.Problems) {
	r.User = cmp.Or(e.SafetyIdentifier, e.User)
	const message, fix = "the name is longer than 256 bytes", "give a shorter one, such as a hash"
	refuse(p, []refusal{
		{len(e.User) > maxEndUser, "user", message, fix},
		{len(e.SafetyIdentifier) > maxEndUser, "safety_identifier", message, fix},
	})
}

// Sampling holds the sampling options of a single model. The options have no effect on a council. checkSampling still
// checks the options, because OpenAI refuses wrong values.
type Sampling struct {
	Temperature      *float64 `json:"temperature,omitempty"`       // 0 to 2
	TopP             *float64 `json:"top_p,omitempty"`             // 0 to 1
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"` // -2 to 2
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`  // -2 to 2
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
				fmt.Sprintf("give a number from %g to %g, or leave %s out, because it has no effect",
					option.least, option.most, option.field))
		}
	}
}

// checkLimit refuses a token limit below 1. It accepts -1, because some programs send -1 for no limit.
func checkLimit(p *httpapi.Problems, field string, tokens *float64) {
	if tokens != nil && *tokens < 1 && *tokens != -1 {
		p.Add(field, "the number is out of range", "give 1 or more, or leave "+field+" out: it has no effect")
	}
}

// StreamOptions are the options of a streamed completion.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"` // the last chunk holds the usage
}

// ChatMetadata is the metadata that goes into the bias records, and the mode. Other keys have no effect.
type ChatMetadata struct {
	Mode     council.Mode `json:"mode,omitempty"`     // council.Request.Mode
	Category string       `json:"category,omitempty"` // council.Request.Category
	Language string       `json:"language,omitempty"` // council.Request.Language
}

// ResponseFormat says which form the answer of a chat completion must have.
type ResponseFormat struct {
	Type       string      `json:"type"`                  // "text", "json_object" or "json_schema"
	JSONSchema *JSONSchema `json:"json_schema,omitempty"` // holds the schema for "json_schema"
	// Schema is where other providers have the schema. It also gives a schema to the type "json_object".
	Schema json.RawMessage `json:"schema,omitempty"`
}

// JSONSchema is a JSON Schema that the answer must fit.
type JSONSchema struct {
	Name   string          `json:"name,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	Strict bool            `json:"strict,omitempty"` // council.Format.Strict
}

// These are the values of ResponseFormat.Type.
const (
	formatText   = "text"
	formatObject = "json_object"
	formatSchema = "json_schema"
)

// anyObject is the schema for "json_object" if the request has no schema.
const anyObject = `{"type":"object"}`

// ask sets the output format of r, and adds the problems of the format to p. The argument kind is the type of the
// format. A problem names a place in the body. The argument place is the place of the format, and inside is the place
// of the object with the schema.
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

// bodyPlace returns the place in the body for a field of council.Request, because problems must name the field that the
// caller sent. The argument messages is the place of the conversation in the body. The argument format is the place of
// the output format.
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
	case "category", "language", "mode":
		return "metadata." + field
	case "first", "answer_form": // The body has no such field. Its mode conflicts with that field of the council.
		return "metadata.mode"
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
	Refusal string      `json:"refusal,omitempty"` // what an assistant wrote in place of Content
}

// ChatContent holds the parts of a message. If a client sends one string instead, it becomes one part.
type ChatContent []ChatPart

// SetText implements httpapi.TextList.
func (c *ChatContent) SetText(text string) { *c = ChatContent{{Type: "text", Text: text}} }

// Wanted implements httpapi.TextList.
func (c *ChatContent) Wanted() string { return "a text, or a list of parts" }

// Skim implements httpapi.Skimmer. It skips the content of messages that tools wrote.
func (c *ChatMessage) Skim(_, role string) bool {
	if !foreign("", role) {
		return false
	}
	c.Role = role
	return true
}

// Skim implements httpapi.Skimmer. It skips the content of parts that are not text.
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
	Refusal string `json:"refusal,omitempty"` // set in place of Text if Type is "refusal"
}

// request returns the council's request. It adds a problem to p for everything in c that a council does not support.
func (c ChatRequest) request(p *httpapi.Problems) council.Request {
	r := requestOf(c.Model, c.Metadata)
	if r.Seed = c.Seed; c.Seed != nil && *c.Seed == -1 { // On other servers -1 means a random seed.
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
		{given(c.Stop), "stop", "a council cannot stop its answer at a text", "leave stop out"},
		{c.Logprobs != nil && *c.Logprobs, "logprobs", "a council has no token probabilities", "leave logprobs out"},
		{given(c.Audio), "audio", "a council answers in text", "leave audio out"},
		{given(c.WebSearchOptions), "web_search_options", "a council searches nothing", "leave web_search_options out"},
		{
			len(c.Messages) == 0 && !p.About("messages"), "messages", "there is no message",
			"give at least the user's question",
		},
	})
	items := make([]ResponseItem, len(c.Messages))
	for i, m := range c.Messages {
		items[i].ChatMessage = m
	}
	talk = readConversation(p, "messages", items, "")
	talk.ask(&r)
	return r
}

// askTools sets r.Tools if the request offers tools. The council's policy then refuses or ignores the tools. If the
// choice is "none", askTools does not set r.Tools, because no tool would be called. A choice that requires a call
// becomes a problem.
func askTools(
	p *httpapi.Problems, r *council.Request,
	field string, tools json.RawMessage, choiceField string, choice json.RawMessage,
) {
	var mode string
	if given(choice) && json.Unmarshal(choice, &mode) != nil {
		var object struct {
			Type    string `json:"type"`
			Mode    string `json:"mode"` // holds the mode in Responses
			Allowed struct {
				Mode string `json:"mode"`
			} `json:"allowed_tools"` // holds the mode in chat completions
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

// requestOf returns a council.Request with the members that the model name asks for, and with the metadata.
func requestOf(model string, m *ChatMetadata) (r council.Request) {
	if m != nil {
		r.Category = m.Category
		r.Language = m.Language
		r.Mode = m.Mode
	}
	if names, named := strings.CutPrefix(model, councilModel+"/"); named {
		r.Models = strings.Split(names, ",")
		r.Direct = len(r.Models) == 1
	}
	return r
}

// refusal is a possible problem of a field that a council does not support. A request has the problem if the field "is"
// is true.
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

// given reports whether a raw field holds a value other than null, [] and {}.
func given(raw json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "[]", "{}"}, string(raw))
}

// unreadable adds a problem for a part or item that is not text, unless its place already has a problem. The argument
// "is" holds the type of the part or item.
func unreadable(p *httpapi.Problems, place func() string, is, fix string) {
	if p.Full() {
		p.Add("", "", "") // A further problem is only counted.
	} else if place := place(); !p.About(place) {
		p.Add(place, fmt.Sprintf("a council reads text only, and this is %q", is), fix)
	}
}

// chat is POST /v1/chat/completions. It runs a session, and answers with the session's answer as a completion.
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

// noteLine returns the session's note as a line to append to the answer, because chat programs show only the answer. It
// returns "" if there is no note.
func noteLine(s *council.Session) string {
	if s.Note == "" {
		return ""
	}
	return "\n\n(" + s.Note + ")"
}

// completion returns a completion, or a chunk of one, for a session. The argument object says which of the two it
// returns.
func (c ChatRequest) completion(s *sessions.Session, object string, choices ...ChatChoice) Chat {
	return Chat{
		ID: "chatcmpl-" + s.ID, Object: object, Created: s.Created.Unix(), Model: c.Model,
		Choices: append([]ChatChoice{}, choices...), // An empty list is [] in JSON, not null.
	}
}

// Chat is a completion, or a chunk of one.
type Chat struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`  // "chat.completion" or "chat.completion.chunk"
	Created int64        `json:"created"` // Unix seconds
	Model   string       `json:"model"`   // the model of the request
	Choices []ChatChoice `json:"choices"` // one choice, but none in the chunk with the usage
	// Usage is the sum over all calls of the session. It is null if no provider reported its usage.
	Usage *ChatUsage `json:"usage"`
	// Council is set in a whole completion and in the last chunk with a choice.
	Council *ChatCouncil `json:"council,omitempty"`
}

// ChatChoice is the one choice of a Chat.
type ChatChoice struct {
	Index        int         `json:"index"`             // always 0
	Message      *ChatAnswer `json:"message,omitempty"` // set in a completion
	Delta        *ChatDelta  `json:"delta,omitempty"`   // set in a chunk
	FinishReason *string     `json:"finish_reason"`     // null in all chunks before the last
}

// ChatAnswer is the message of a completion.
type ChatAnswer struct {
	Role    string `json:"role"` // "assistant"
	Content string `json:"content"`
}

// ChatDelta is the piece of the message in a chunk.
type ChatDelta struct {
	Role    string  `json:"role,omitempty"` // set in the first chunk
	Content *string `json:"content,omitempty"`
}

// ChatUsage is what a session consumed.
type ChatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	// Cost is council.TotalUsage.CostUSD, in US dollars. It is null if the cost is not known.
	Cost    *float64 `json:"cost"`
	Partial bool     `json:"partial,omitempty"` // council.Usage.Partial
}

// ChatCouncil holds the data of a session that OpenAI's form has no place for. The whole session is at
// GET /v1/council/{session_id}.
type ChatCouncil struct {
	SessionID   string                `json:"session_id"`
	Status      council.Status        `json:"status"`
	Mode        council.Mode          `json:"mode"`
	AnswerFrom  council.AnswerFrom    `json:"answer_from"`
	Persisted   bool                  `json:"persisted"`
	Degradation []council.Degradation `json:"degradation"`
	Metadata    council.Metadata      `json:"metadata"`
	// Ignored names the fields of a request for a response that had no effect.
	Ignored []string `json:"ignored,omitempty"`
}

func chatCouncil(s *council.Session) *ChatCouncil {
	return &ChatCouncil{
		SessionID:   s.ID,
		Status:      s.Status,
		Mode:        s.Mode,
		AnswerFrom:  s.AnswerFrom,
		Persisted:   s.Persisted,
		Degradation: s.Degradation,
		Metadata:    s.Metadata,
	}
}

// chatUsage returns the sum of what all calls consumed, or nil if the sum is not known.
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

// chatFinish returns why the answer ended. The reason is "length" if the answer is that of a member that reached its
// token limit. Otherwise it is "stop", because a synthesis is always whole.
func chatFinish(s *council.Session) *string {
	for _, a := range s.Stage1 {
		if s.Stage3 == nil && a.Model == s.AnswerFrom.Model && a.FinishReason != nil && *a.FinishReason == "length" {
			return new("length")
		}
	}
	return new("stop")
}
