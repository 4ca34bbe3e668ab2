package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/sessions"
)

// ResponseRequest is the body of POST /v1/responses. Other fields in a body have no effect.
type ResponseRequest struct {
	Model        string        `json:"model"`
	Input        ResponseInput `json:"input"`
	Instructions string        `json:"instructions,omitempty"`
	Stream       bool          `json:"stream,omitempty"`
	Metadata     *ChatMetadata `json:"metadata,omitempty"`
	// Store is false if the client will not refer to the answer in later requests. If Store is nil, it counts as true.
	Store *bool `json:"store,omitempty"`
	EndUser
	Sampling
	// MaxOutputTokens has no effect, but wrong values are refused.
	MaxOutputTokens *float64      `json:"max_output_tokens,omitempty"`
	Text            *ResponseText `json:"text,omitempty"`
	// The remaining fields are refused, because a council does not support them. But tools may be ignored if the
	// request does not require a call.
	Tools              json.RawMessage `json:"tools,omitempty"`
	ToolChoice         json.RawMessage `json:"tool_choice,omitempty"`
	Include            json.RawMessage `json:"include,omitempty"`
	PreviousResponseID string          `json:"previous_response_id,omitempty"`
	Conversation       json.RawMessage `json:"conversation,omitempty"`
	Prompt             json.RawMessage `json:"prompt,omitempty"`
	Background         bool            `json:"background,omitempty"`
	TopLogprobs        *int64          `json:"top_logprobs,omitempty"`

	// Stores says that later requests can refer to the answer. It is set when the session has begun.
	Stores bool `json:"-"`
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
func (c ResponseRequest) request(p *httpapi.Problems) council.Request {
	r := asked(c.Model, c.Metadata)
	var talk conversation
	p.Rename = func(field string) string { return bodyPlace(field, "input", "text.format", talk) }
	c.addUser(&r, p)
	c.checkSampling(p)
	checkLimit(p, "max_output_tokens", c.MaxOutputTokens)
	askTools(p, &r, "tools", c.Tools, "tool_choice", c.ToolChoice)
	if c.Text != nil {
		c.Text.Format.ask(&r, p, c.Text.Format.Type, "text.format", "text.format")
	}
	refuse(p, []refusal{
		{
			bytes.Contains(c.Include, []byte("logprobs")), "include", "a council has no token probabilities",
			"leave include out",
		},
		{
			c.PreviousResponseID != "", "previous_response_id", "responses are not stored, so none can be continued",
			"send the whole conversation as input",
		},
		{given(c.Conversation), "conversation", "conversations are not stored", "send the whole conversation as input"},
		{given(c.Prompt), "prompt", "there are no stored prompts", "send the text as instructions or input"},
		{c.Background, "background", "responses are not stored, so none can be fetched", `use POST /v1/council with "background": true`},
		{
			c.TopLogprobs != nil && *c.TopLogprobs > 0, "top_logprobs", "a council has no token probabilities",
			"leave top_logprobs out",
		},
		{len(c.Input) == 0 && !p.About("input"), "input", "there is no input", "give at least the user's question"},
	})
	talk = readConversation(p, "input", c.Input, c.Instructions)
	talk.ask(&r)
	return r
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

// respond is POST /v1/responses. It runs a session, and answers with the session's answer as a response.
func (d door) respond(w http.ResponseWriter, r *http.Request) error {
	var c ResponseRequest
	s, err := d.api.Begin(w, r, &c, func(p *httpapi.Problems) (council.Submission, error) {
		err := cmp.Or(d.resolve(r, &c, p), knownModel(c.Model))
		return council.Submission{Request: c.request(p), Stream: c.Stream}, err
	})
	if err != nil {
		return err
	}
	c.Stores = (c.Store == nil || *c.Store) && s.Found()
	// The session holds the question, so keep only the fields that the response repeats.
	c = ResponseRequest{
		Model:        c.Model,
		Stream:       c.Stream,
		Instructions: c.Instructions,
		Text:         c.Text,
		Metadata:     c.Metadata,
		Stores:       c.Stores,
	}
	if c.Stream {
		d.streamText(w, r, newResponseStream(s, c))
		return nil
	}
	session, err := httpapi.Wait(r, s)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, c.ended(s, session))
}

// Response is the answer to POST /v1/responses, in OpenAI's form. Fields that do not apply to a council are null.
type Response struct {
	ID        string            `json:"id"`         // "resp_" and the id of the session
	Object    string            `json:"object"`     // "response"
	CreatedAt int64             `json:"created_at"` // Unix seconds
	Status    string            `json:"status"`     // "in_progress", "completed", "incomplete" or "failed"
	Model     string            `json:"model"`      // the model of the request
	Output    []ResponseMessage `json:"output"`     // one message, but none before the end
	// Usage is the sum over all calls. It is null before the end, and if no provider reported its usage.
	Usage              *ResponseUsage        `json:"usage"`
	Error              *ResponseError        `json:"error"`
	IncompleteDetails  *ResponseIncompletion `json:"incomplete_details"`
	Instructions       *string               `json:"instructions"`
	Metadata           ChatMetadata          `json:"metadata"`
	PreviousResponseID *string               `json:"previous_response_id"`
	Store              bool                  `json:"store"` // says that later requests can refer to the message
	Temperature        *float64              `json:"temperature"`
	TopP               *float64              `json:"top_p"`
	Text               ResponseText          `json:"text"`
	ParallelToolCalls  bool                  `json:"parallel_tool_calls"`
	ToolChoice         string                `json:"tool_choice"` // always "auto"
	Tools              []string              `json:"tools"`       // always empty
	Council            *ChatCouncil          `json:"council,omitempty"`
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

// ResponseUsage is what a session consumed. The fields for OpenAI's details are null, because a sum over several
// providers has no details.
type ResponseUsage struct {
	InputTokens        int64     `json:"input_tokens"`
	InputTokensDetails *struct{} `json:"input_tokens_details"`
	OutputTokens       int64     `json:"output_tokens"`
	OutputDetails      *struct{} `json:"output_tokens_details"`
	TotalTokens        int64     `json:"total_tokens"`
	Cost               *float64  `json:"cost"`              // ChatUsage.Cost
	Partial            bool      `json:"partial,omitempty"` // ChatUsage.Partial
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
)

// response returns a response with the given status. The response has no answer yet.
func (c ResponseRequest) response(s *sessions.Session, status string) Response {
	r := Response{
		ID:         "resp_" + s.ID,
		Object:     "response",
		CreatedAt:  s.Created.Unix(),
		Status:     status,
		Model:      c.Model,
		Output:     []ResponseMessage{},
		Store:      c.Stores,
		Text:       ResponseText{TextFormat{Type: formatText}},
		ToolChoice: "auto",
		Tools:      []string{},
	}
	if c.Text != nil && c.Text.Format.Type != "" {
		r.Text = *c.Text
	}
	if c.Instructions != "" {
		r.Instructions = &c.Instructions
	}
	if c.Metadata != nil {
		r.Metadata = *c.Metadata
	}
	return r
}

// ended returns the response for a session that has ended with an answer.
func (c ResponseRequest) ended(s *sessions.Session, session *council.Session) Response {
	r := c.response(s, responseCompleted)
	if *chatFinish(session) == "length" {
		r.Status = responseIncomplete
		r.IncompleteDetails = &ResponseIncompletion{Reason: "max_output_tokens"}
	}
	r.Output = append(r.Output, responseMessage(s, r.Status, responsePart(session.Answer+noteLine(session))))
	r.Council = chatCouncil(session)
	if u := chatUsage(session); u != nil {
		r.Usage = &ResponseUsage{
			InputTokens:  u.PromptTokens,
			OutputTokens: u.CompletionTokens,
			TotalTokens:  u.TotalTokens,
			Cost:         u.Cost,
			Partial:      u.Partial,
		}
	}
	return r
}

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

// responseStream turns the events of a session into the events of a response.
type responseStream struct {
	*textStream
	request ResponseRequest
	number  int    // the SequenceNumber of the next event
	text    []byte // the answer so far
}

// responseEvent is one event of a streamed response. Each type of event uses some of the fields.
type responseEvent struct {
	Type           string           `json:"type"`
	SequenceNumber int              `json:"sequence_number"` // counts from 0
	Response       *Response        `json:"response,omitempty"`
	ItemID         string           `json:"item_id,omitempty"`
	OutputIndex    *int             `json:"output_index,omitempty"`
	ContentIndex   *int             `json:"content_index,omitempty"`
	Item           *ResponseMessage `json:"item,omitempty"`
	Part           *ResponsePart    `json:"part,omitempty"`
	Delta          *string          `json:"delta,omitempty"`
	Text           *string          `json:"text,omitempty"`
	Logprobs       *[]string        `json:"logprobs,omitempty"`
}

// newResponseStream returns a stream that begins with an empty response in progress.
func newResponseStream(s *sessions.Session, request ResponseRequest) *textStream {
	t := &responseStream{textStream: newTextStream(s), request: request}
	t.textStream.event = t.event
	begun := request.response(s, responseRuns)
	t.next("response.created", responseEvent{Response: &begun})
	t.next("response.in_progress", responseEvent{Response: &begun})
	return t.textStream
}

// next adds an event to out and gives it the next number.
func (t *responseStream) next(name string, e responseEvent) {
	e.Type = name
	e.SequenceNumber = t.number
	t.number++
	t.out.WriteString("event: " + name + "\n")
	t.send(e)
}

// ofItem adds an event about the message of the response.
func (t *responseStream) ofItem(name string, item ResponseMessage) {
	t.next(name, responseEvent{OutputIndex: new(0), Item: &item})
}

// ofPart adds an event about the text of the message.
func (t *responseStream) ofPart(name string, e responseEvent) {
	e.ItemID = "msg_" + t.s.ID
	e.OutputIndex = new(0)
	e.ContentIndex = new(0)
	t.next(name, e)
}

// event adds the events of a response for one event of the session.
func (t *responseStream) event(e council.Event) {
	switch data := e.Data.(type) {
	case council.Delta:
		t.write(data.Text)
	case council.Restart:
		t.fail(t.lost(data))
	case *council.Session:
		if !t.sent { // The session had no deltas, so send the whole answer now.
			t.write(data.Answer)
		}
		if line := noteLine(data); line != "" {
			t.write(line)
		}
		ended := t.request.ended(t.s, data)
		part := responsePart(string(t.text))
		t.ofPart("response.output_text.done", responseEvent{Text: &part.Text, Logprobs: &part.Logprobs})
		t.ofPart("response.content_part.done", responseEvent{Part: &part})
		t.ofItem("response.output_item.done", responseMessage(t.s, ended.Status, part))
		t.next("response."+ended.Status, responseEvent{Response: &ended})
	case *council.Error:
		t.fail(data)
	default:
		t.comment(e)
	}
}

// write adds a piece of the answer. Before the first piece it adds the events that begin the message.
func (t *responseStream) write(text string) {
	empty := responsePart("")
	if !t.sent {
		t.ofItem("response.output_item.added", responseMessage(t.s, responseRuns))
		t.ofPart("response.content_part.added", responseEvent{Part: &empty})
	}
	t.sent = true
	t.text = append(t.text, text...)
	t.ofPart("response.output_text.delta", responseEvent{Delta: &text, Logprobs: &empty.Logprobs})
}

// fail adds the event that says why there is no answer.
func (t *responseStream) fail(e *council.Error) {
	failed := t.request.response(t.s, responseFailed)
	failed.Error = &ResponseError{Code: e.Code, Message: httpapi.OpenAIError(e).Error.Message}
	t.next("response.failed", responseEvent{Response: &failed})
}
