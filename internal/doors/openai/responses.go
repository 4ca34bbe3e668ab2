package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/sessions"
)

// ResponseRequest is the body of POST /v1/responses. Fields that are not here have no effect.
type ResponseRequest struct {
	Model        string          `json:"model"`
	Input        ResponseInput   `json:"input"`
	Instructions string          `json:"instructions,omitempty"`
	Stream       bool            `json:"stream,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"` // an object of texts
	// Store is false if the session is to be deleted once it is answered. If Store is nil, it counts as true.
	Store *bool `json:"store,omitempty"`
	// Background says that the session continues without the client. The client then fetches the response.
	Background bool `json:"background,omitempty"`
	// PreviousResponseID is the id of the response whose conversation the input continues.
	PreviousResponseID string `json:"previous_response_id,omitempty"`
	EndUser
	Sampling
	// MaxOutputTokens has no effect, but wrong values are refused.
	MaxOutputTokens *float64 `json:"max_output_tokens,omitempty"`
	Text            *struct {
		ResponseText
		Verbosity json.RawMessage `json:"verbosity,omitempty"`
	} `json:"text,omitempty"`
	WithoutEffect
	// The remaining fields are refused, because a council does not support them. But tools may be ignored if the
	// request does not require a call.
	Tools        json.RawMessage `json:"tools,omitempty"`
	ToolChoice   json.RawMessage `json:"tool_choice,omitempty"`
	Include      json.RawMessage `json:"include,omitempty"`
	Conversation json.RawMessage `json:"conversation,omitempty"`
	Prompt       json.RawMessage `json:"prompt,omitempty"`
	TopLogprobs  *int64          `json:"top_logprobs,omitempty"`
}

// WithoutEffect holds the fields of a ResponseRequest that are not even checked.
type WithoutEffect struct {
	MaxToolCalls         json.RawMessage `json:"max_tool_calls,omitempty"`
	Reasoning            json.RawMessage `json:"reasoning,omitempty"`
	Truncation           json.RawMessage `json:"truncation,omitempty"`
	ParallelToolCalls    json.RawMessage `json:"parallel_tool_calls,omitempty"`
	ServiceTier          json.RawMessage `json:"service_tier,omitempty"`
	StreamOptions        json.RawMessage `json:"stream_options,omitempty"`
	BackgroundOptions    json.RawMessage `json:"background_options,omitempty"`
	PromptCacheKey       json.RawMessage `json:"prompt_cache_key,omitempty"`
	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention,omitempty"`
	PromptCacheOptions   json.RawMessage `json:"prompt_cache_options,omitempty"`
	Moderation           json.RawMessage `json:"moderation,omitempty"`
	AccessPrograms       json.RawMessage `json:"access_programs,omitempty"`
	ContextManagement    json.RawMessage `json:"context_management,omitempty"`
	Image                json.RawMessage `json:"image,omitempty"`
}

// ignored returns the names of the fields that the request has and that have no effect.
func (c ResponseRequest) ignored() (names []string) {
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"temperature", c.Temperature != nil},
		{"top_p", c.TopP != nil},
		{"frequency_penalty", c.FrequencyPenalty != nil},
		{"presence_penalty", c.PresencePenalty != nil},
		{"max_output_tokens", c.MaxOutputTokens != nil},
		{"max_tool_calls", c.MaxToolCalls != nil},
		{"reasoning", c.Reasoning != nil},
		{"text.verbosity", c.Text != nil && c.Text.Verbosity != nil},
		{"truncation", c.Truncation != nil},
		{"parallel_tool_calls", c.ParallelToolCalls != nil},
		{"service_tier", c.ServiceTier != nil},
		{"stream_options", c.StreamOptions != nil},
		{"background_options", c.BackgroundOptions != nil},
		{"prompt_cache_key", c.PromptCacheKey != nil},
		{"prompt_cache_retention", c.PromptCacheRetention != nil},
		{"prompt_cache_options", c.PromptCacheOptions != nil},
		{"moderation", c.Moderation != nil},
		{"access_programs", c.AccessPrograms != nil},
		{"context_management", c.ContextManagement != nil},
		{"image", c.Image != nil},
		{"tools", c.Tools != nil},
		{"tool_choice", c.ToolChoice != nil},
		{"include", c.Include != nil},
		{"top_logprobs", c.TopLogprobs != nil},
	} {
		if f.has {
			names = append(names, f.name)
		}
	}
	return names
}

// ResponseInput holds the messages of a ResponseRequest. If a client sends one string instead, it becomes a message of
// the user.
type ResponseInput []ResponseItem

// SetText implements httpapi.TextList.
func (i *ResponseInput) SetText(text string) {
	m := ChatMessage{Role: council.RoleUser}
	m.Content.SetText(text)
	*i = ResponseInput{{ChatMessage: m}}
}

// Wanted implements httpapi.TextList.
func (i *ResponseInput) Wanted() string { return "a text, or a list of messages" }

// Skim implements httpapi.Skimmer. It skips the content of foreign items.
func (i *ResponseItem) Skim(kind, role string) bool {
	if !foreign(kind, role) {
		return false
	}
	i.Type = kind
	i.Role = role
	return true
}

// ResponseItem is one item of a ResponseInput: a message, a reference to a message, or a foreign item.
type ResponseItem struct {
	Type string `json:"type,omitempty"` // "message", "item_reference", "" or the type of a foreign item
	ID   string `json:"id,omitempty"`   // names a message of an earlier response
	ChatMessage
}

// refers reports whether the item is a reference to a message of an earlier response.
func (i ResponseItem) refers() bool {
	return i.Type == itemReference || i.Type == "" && i.ID != "" && i.Role == "" && i.Content == nil
}

// ResponseText holds the output format that a ResponseRequest asks for, or that a Response has.
type ResponseText struct {
	Format TextFormat `json:"format"`
}

// TextFormat is the output format of a response.
type TextFormat struct {
	Type string `json:"type"` // has the values of ResponseFormat.Type
	JSONSchema
}

// request returns the council's request. It adds a problem to p for everything in c that a council does not support.
// The argument earlier is the conversation of the previous response.
func (c ResponseRequest) request(p *httpapi.Problems, earlier []council.Message) (council.Request, echo) {
	a := echo{
		Model: c.Model, Instructions: c.Instructions, Metadata: c.metadata(p), Previous: c.PreviousResponseID,
		Forget: c.Store != nil && !*c.Store, Ignored: c.ignored(),
	}
	r := requestOf(c.Model, &ChatMetadata{
		Mode:     council.Mode(a.Metadata["mode"]),
		Category: a.Metadata["category"],
		Language: a.Metadata["language"],
	})
	var talk conversation
	p.Rename = func(field string) string { return bodyPlace(field, "input", "text.format", talk) }
	c.addUser(&r, p)
	c.checkSampling(p)
	checkLimit(p, "max_output_tokens", c.MaxOutputTokens)
	askTools(p, &r, "tools", c.Tools, "tool_choice", c.ToolChoice)
	if c.Text != nil {
		c.Text.Format.ask(&r, p, c.Text.Format.Type, "text.format", "text.format")
		a.Text = &c.Text.ResponseText
	}
	refuse(p, []refusal{
		{
			bytes.Contains(c.Include, []byte("logprobs")), "include", "a council has no token probabilities",
			"leave include out",
		},
		{given(c.Conversation), "conversation", "conversations are not stored", "send the whole conversation as input"},
		{given(c.Prompt), "prompt", "there are no stored prompts", "send the text as instructions or input"},
		{
			c.Background && a.Forget, "store", "a response in the background must be stored until it is fetched",
			"leave store out, and DELETE the response later",
		},
		{
			c.TopLogprobs != nil && *c.TopLogprobs > 0, "top_logprobs", "a council has no token probabilities",
			"leave top_logprobs out",
		},
		{len(c.Input) == 0 && !p.About("input"), "input", "there is no input", "give at least the user's question"},
	})
	talk = readConversation(p, "input", c.Input, c.Instructions, earlier...)
	talk.ask(&r)
	return r, a
}

// These are OpenAI's limits of metadata, in characters.
const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// metadata returns the metadata of the request. Metadata that OpenAI would refuse becomes a problem in p.
func (c ResponseRequest) metadata(p *httpapi.Problems) (m map[string]string) {
	if !given(c.Metadata) {
		return nil
	}
	const fix = "give an object of at most 16 texts, with keys of up to 64 and values of up to 512 characters"
	if err := json.Unmarshal(c.Metadata, &m); err != nil {
		p.Add("metadata", "the value is not an object of texts", fix)
		return nil
	}
	if len(m) > maxMetadata {
		p.Add("metadata", fmt.Sprintf("there are %d texts", len(m)), fix)
	}
	for key, value := range m {
		if utf8.RuneCountInString(key) > maxMetadataKey || utf8.RuneCountInString(value) > maxMetadataValue {
			p.Add("metadata", fmt.Sprintf("%.64q or its value is too long", key), fix)
			break
		}
	}
	return m
}

// maxReferences is the most items of a request that may refer to earlier responses.
const maxReferences = 100

// resolve replaces each item that refers to an earlier response with the answer of that response's session. It returns
// an error if the caller has no such session.
func (d door) resolve(r *http.Request, c *ResponseRequest, p *httpapi.Problems) error {
	answers := map[string]string{} // by message id
	references := 0
	for i, item := range c.Input {
		if !item.refers() {
			continue
		}
		if references++; references > maxReferences {
			p.Add("input", fmt.Sprintf("more than %d items refer to earlier responses", maxReferences),
				"send the messages themselves")
			return nil
		}
		answer, known := answers[item.ID]
		if !known {
			var err error
			if answer, err = d.answerOf(r, item.ID); err != nil {
				return err
			}
			answers[item.ID] = answer
		}
		if answer == "" {
			return &council.Error{
				Code: council.CodeNotFound, Detail: "the input refers to an answer that is not here",
				Fields: []council.FieldError{{
					Field:   fmt.Sprintf("input[%d]", i),
					Message: fmt.Sprintf("this token has no finished session with the answer %.64q", item.ID),
					Fix:     "send the text of the answer instead of its id",
				}},
			}
		}
		c.Input[i] = ResponseItem{ChatMessage: ChatMessage{
			Role:    council.RoleAssistant,
			Content: ChatContent{{Type: "output_text", Text: answer}},
		}}
	}
	return nil
}

// answerOf returns the answer of the caller's session with this message id, or "" if there is no such answer.
func (d door) answerOf(r *http.Request, message string) (string, error) {
	id, ok := strings.CutPrefix(message, "msg_")
	if !ok {
		return "", nil
	}
	s, err := d.api.Find(r, id)
	if err != nil || s == nil || s.Summary().Status == council.StatusRunning {
		return "", err
	}
	if session, failure := s.Result(); failure == nil && session != nil {
		return session.Answer, nil
	}
	return "", nil
}

// earlier returns the conversation of the previous response without its instructions, and its answer.
func (d door) earlier(r *http.Request, c *ResponseRequest) ([]council.Message, error) {
	if c.PreviousResponseID == "" {
		return nil, nil
	}
	var answer string
	v, err := d.find(r, c.PreviousResponseID)
	if err == nil && v != nil {
		answer, err = d.answerOf(r, "msg_"+v.s.ID)
	}
	if err != nil {
		return nil, err
	}
	if answer == "" {
		return nil, &council.Error{
			Code: council.CodeNotFound, Detail: "the previous response is not here",
			Fields: []council.FieldError{{
				Field:   "previous_response_id",
				Message: fmt.Sprintf("this token has no response %.64q that ended with an answer", c.PreviousResponseID),
				Fix:     "send the whole conversation as input",
			}},
		}
	}
	return append(slices.Clone(v.conversation()), council.Message{Role: council.RoleAssistant, Content: answer}), nil
}

// respond is POST /v1/responses. It runs a session, and answers with the session's answer as a response.
func (d door) respond(w http.ResponseWriter, r *http.Request) error {
	var c ResponseRequest
	s, err := d.api.Begin(w, r, &c, func(p *httpapi.Problems) (council.Submission, error) {
		earlier, err := d.earlier(r, &c)
		err = cmp.Or(err, d.resolve(r, &c, p), knownModel(c.Model))
		request, echo := c.request(p, earlier)
		submission := council.Submission{Request: request, Stream: c.Stream, Background: c.Background}
		submission.Door = echo.encode()
		return submission, err
	})
	if err != nil {
		return err
	}
	stream, background := c.Stream, c.Background
	c = ResponseRequest{} // The session holds the question.
	v := viewOf(s)
	v.forget = func() error { return d.api.Delete(r, s) }
	switch {
	case stream:
		d.streamText(w, r, newResponseStream(v))
		return nil
	case background:
		return httpapi.WriteJSON(w, http.StatusOK, v.now())
	}
	session, err := httpapi.Wait(r, s)
	if err != nil {
		return err
	}
	v.forgetNow()
	return httpapi.WriteJSON(w, http.StatusOK, v.ended(session))
}

// Response is a response in OpenAI's form. Fields that do not apply to a council are null, or have the value that OpenAI
// documents as the default.
type Response struct {
	ID          string            `json:"id"`           // "resp_" and the id of the session
	Object      string            `json:"object"`       // "response"
	CreatedAt   int64             `json:"created_at"`   // Unix seconds
	CompletedAt *int64            `json:"completed_at"` // null unless Status is "completed"
	Status      string            `json:"status"`       // "in_progress", "completed", "incomplete", "failed" or "cancelled"
	Model       string            `json:"model"`        // the model of the request
	Output      []ResponseMessage `json:"output"`       // one message, but none before the end
	// Usage is the sum over all calls. It is null before the end, and if no provider reported its usage.
	Usage              *ResponseUsage        `json:"usage"`
	Error              *ResponseError        `json:"error"`
	IncompleteDetails  *ResponseIncompletion `json:"incomplete_details"`
	Instructions       *string               `json:"instructions"`
	Metadata           map[string]string     `json:"metadata"`
	PreviousResponseID *string               `json:"previous_response_id"`
	Store              bool                  `json:"store"`      // says that the response can be fetched
	Background         bool                  `json:"background"` // says that the session continues without its client
	Text               ResponseText          `json:"text"`
	Council            *ChatCouncil          `json:"council,omitempty"`
	Unused
}

// Unused holds the fields of a Response that are the same for every council.
type Unused struct {
	Temperature       float64   `json:"temperature"`         // 1
	TopP              float64   `json:"top_p"`               // 1
	PresencePenalty   float64   `json:"presence_penalty"`    // 0
	FrequencyPenalty  float64   `json:"frequency_penalty"`   // 0
	TopLogprobs       int64     `json:"top_logprobs"`        // 0
	Truncation        string    `json:"truncation"`          // "disabled"
	ServiceTier       string    `json:"service_tier"`        // "default"
	ParallelToolCalls bool      `json:"parallel_tool_calls"` // false
	ToolChoice        string    `json:"tool_choice"`         // "auto"
	Tools             []string  `json:"tools"`               // empty
	Reasoning         *struct{} `json:"reasoning"`           // null, like all fields after it
	MaxOutputTokens   *int64    `json:"max_output_tokens"`
	MaxToolCalls      *int64    `json:"max_tool_calls"`
	SafetyIdentifier  *string   `json:"safety_identifier"`
	PromptCacheKey    *string   `json:"prompt_cache_key"`
	AccessPrograms    *struct{} `json:"access_programs"`
}

// ResponseMessage is the one item of a Response.
type ResponseMessage struct {
	ID      string         `json:"id"`     // "msg_" and the id of the session
	Type    string         `json:"type"`   // "message"
	Status  string         `json:"status"` // the status of the Response
	Role    string         `json:"role"`   // "assistant"
	Content []ResponsePart `json:"content"`
}

// ResponsePart is the text of a ResponseMessage.
type ResponsePart struct {
	Type        string   `json:"type"` // "output_text"
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"` // always empty
	Logprobs    []string `json:"logprobs"`    // always empty
}

// ResponseUsage is what a session consumed.
type ResponseUsage struct {
	InputTokens        int64         `json:"input_tokens"`
	InputTokensDetails InputDetails  `json:"input_tokens_details"`
	OutputTokens       int64         `json:"output_tokens"`
	OutputDetails      OutputDetails `json:"output_tokens_details"`
	TotalTokens        int64         `json:"total_tokens"`
	Cost               *float64      `json:"cost"`              // ChatUsage.Cost
	Partial            bool          `json:"partial,omitempty"` // ChatUsage.Partial
}

// InputDetails is a part of ResponseUsage.
type InputDetails struct {
	CachedTokens int64 `json:"cached_tokens"` // of the calls that report it
}

// OutputDetails is a part of ResponseUsage.
type OutputDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"` // of the calls that report it
}

// ResponseError says why a Response failed.
type ResponseError struct {
	Code    council.Code `json:"code"`
	Message string       `json:"message"`
}

// ResponseIncompletion says why a Response is incomplete.
type ResponseIncompletion struct {
	Reason string `json:"reason"` // "max_output_tokens"
}

// These are the values of Response.Status.
const (
	responseRuns       = "in_progress"
	responseCompleted  = "completed"
	responseIncomplete = "incomplete"
	responseFailed     = "failed"
	responseCancelled  = "cancelled"
)

func responseMessage(s *sessions.Session, status string, parts ...ResponsePart) ResponseMessage {
	return ResponseMessage{
		ID:      "msg_" + s.ID,
		Type:    "message",
		Status:  status,
		Role:    council.RoleAssistant,
		Content: append([]ResponsePart{}, parts...),
	}
}

func responsePart(text string) ResponsePart {
	return ResponsePart{Type: "output_text", Text: text, Annotations: []string{}, Logprobs: []string{}}
}
