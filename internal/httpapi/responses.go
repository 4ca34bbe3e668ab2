package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// ResponseRequest is what is read of the body of POST /v1/responses. What only tunes one
// model's sampling, and fields that are not known, have no effect.
type ResponseRequest struct {
	Model        string        `json:"model"`
	Input        ResponseInput `json:"input"`
	Instructions string        `json:"instructions,omitempty"`
	Stream       bool          `json:"stream,omitempty"`
	Metadata     *ChatMetadata `json:"metadata,omitempty"`
	// What follows asks for what a council cannot give.
	Tools              json.RawMessage `json:"tools,omitempty"`
	Include            json.RawMessage `json:"include,omitempty"`
	Text               *ResponseText   `json:"text,omitempty"`
	PreviousResponseID string          `json:"previous_response_id,omitempty"`
	Conversation       json.RawMessage `json:"conversation,omitempty"`
	Prompt             json.RawMessage `json:"prompt,omitempty"`
	Background         bool            `json:"background,omitempty"`
	TopLogprobs        *int64          `json:"top_logprobs,omitempty"`
}

// ResponseInput is the messages of a ResponseRequest. A text counts as one message of the
// user.
type ResponseInput []ResponseItem

// ResponseItem is one message of a ResponseInput.
type ResponseItem struct {
	Type string `json:"type,omitempty"` // "message", or left out
	ChatMessage
}

// ResponseText is the form of the text that a ResponseRequest asks for, or that a Response has.
type ResponseText struct {
	Format TextFormat `json:"format"`
}

// TextFormat is the form of the text of a response.
type TextFormat struct {
	Type string `json:"type"` // as of a ResponseFormat
	JSONSchema
}

// request returns what the council is asked, and adds to p all that it cannot be.
func (c ResponseRequest) request(p *problems) council.Request {
	r := asked(c.Model, c.Metadata)
	p.rename = c.place
	if c.Text != nil {
		c.Text.Format.ask(&r, p, c.Text.Format.Type, "text.format", "text.format")
	}
	p.addIf([]refusal{
		{given(c.Tools), "tools", "a council calls no tools", "leave tools out"},
		{given(c.Include), "include", "a council has none of what can be included", "leave include out"},
		{
			c.PreviousResponseID != "", "previous_response_id", "responses are not kept to be gone on with",
			"send the whole conversation as input",
		},
		{given(c.Conversation), "conversation", "conversations are not kept", "send the whole conversation as input"},
		{given(c.Prompt), "prompt", "there are no stored prompts", "send the text as instructions or input"},
		{c.Background, "background", "responses are not kept to be fetched", `use POST /v1/council with "background": true`},
		{c.TopLogprobs != nil && *c.TopLogprobs > 0, "top_logprobs", "a council has no token probabilities", "leave top_logprobs out"},
		{len(c.Input) == 0 && !p.about("input"), "input", "there is no input", "give at least the user's question"},
	})
	if c.Instructions != "" {
		r.Messages = append(r.Messages, council.Message{Role: council.RoleSystem, Content: c.Instructions})
	}
	for i, item := range c.Input {
		if item.Type != "" && item.Type != "message" {
			p.unreadable(func() string { return fmt.Sprintf("input[%d]", i) }, item.Type, "send messages")
		}
		r.Messages = append(r.Messages, p.message("input", i, item.ChatMessage, "input_text", "output_text", "text"))
	}
	return r
}

// place returns the place in the body of what is wrong with the question that it asks.
func (c ResponseRequest) place(field string) string {
	var i int
	switch n, err := fmt.Sscanf(field, "messages[%d]", &i); {
	case field == "messages":
		return "input"
	case n == 0 || err != nil:
		return openAIPlace(field, "input", "text.format")
	case c.Instructions != "" && i == 0:
		return "instructions"
	case c.Instructions != "":
		i--
	}
	return fmt.Sprintf("input[%d]%s", i, field[strings.IndexByte(field, ']')+1:])
}

// respond is POST /v1/responses: a session, whose answer is the response.
func (a *API) respond(w http.ResponseWriter, r *http.Request) error {
	var c ResponseRequest
	s, err := a.beginOpenAI(w, r, &c, func(p *problems) (council.Submission, error) {
		return council.Submission{Request: c.request(p), Stream: c.Stream}, knownModel(c.Model)
	})
	if err != nil {
		return err
	}
	if c.Stream {
		a.streamText(w, r, newResponseStream(s, c))
		return nil
	}
	session, err := wait(r, s)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c.ended(s, session))
}

// Response is the answer to POST /v1/responses, in OpenAI's shape. What a council does not
// have is null.
type Response struct {
	ID                 string                `json:"id"`         // "resp_" and the id of the session
	Object             string                `json:"object"`     // "response"
	CreatedAt          int64                 `json:"created_at"` // Unix seconds
	Status             string                `json:"status"`     // "in_progress", "completed", "incomplete" or "failed"
	Model              string                `json:"model"`      // as asked for
	Output             []ResponseMessage     `json:"output"`     // one; none before the end
	Usage              *ResponseUsage        `json:"usage"`      // the sum over all calls; null when no provider told it, and before the end
	Error              *ResponseError        `json:"error"`
	IncompleteDetails  *ResponseIncompletion `json:"incomplete_details"`
	Instructions       *string               `json:"instructions"`
	Metadata           ChatMetadata          `json:"metadata"`
	PreviousResponseID *string               `json:"previous_response_id"`
	Store              bool                  `json:"store"`
	Temperature        *float64              `json:"temperature"`
	TopP               *float64              `json:"top_p"`
	Text               ResponseText          `json:"text"`
	ParallelToolCalls  bool                  `json:"parallel_tool_calls"`
	ToolChoice         string                `json:"tool_choice"` // "auto"
	Tools              []string              `json:"tools"`       // none
	Council            *ChatCouncil          `json:"council,omitempty"`
}

// ResponseMessage is the one item of a Response.
type ResponseMessage struct {
	ID      string         `json:"id"`     // "msg_" and the id of the session
	Type    string         `json:"type"`   // "message"
	Status  string         `json:"status"` // as of the Response
	Role    string         `json:"role"`   // "assistant"
	Content []ResponsePart `json:"content"`
}

// ResponsePart is the text of a ResponseMessage.
type ResponsePart struct {
	Type        string   `json:"type"` // "output_text"
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"` // none
	Logprobs    []string `json:"logprobs"`    // none
}

// ResponseUsage is what a session consumed. OpenAI's details of it are null: the sum over the
// providers of a council has none.
type ResponseUsage struct {
	InputTokens        int64     `json:"input_tokens"`
	InputTokensDetails *struct{} `json:"input_tokens_details"`
	OutputTokens       int64     `json:"output_tokens"`
	OutputDetails      *struct{} `json:"output_tokens_details"`
	TotalTokens        int64     `json:"total_tokens"`
	Partial            bool      `json:"partial,omitempty"` // as in council.Usage
}

// ResponseError is why a Response failed.
type ResponseError struct {
	Code    council.Code `json:"code"`
	Message string       `json:"message"`
}

// ResponseIncompletion is why a Response is incomplete.
type ResponseIncompletion struct {
	Reason string `json:"reason"` // "max_output_tokens"
}

const (
	responseRuns       = "in_progress"
	responseCompleted  = "completed"
	responseIncomplete = "incomplete"
	responseFailed     = "failed"
)

// response returns a response with this status, and without an answer.
func (c ResponseRequest) response(s *sessions.Session, status string) Response {
	r := Response{
		ID: "resp_" + s.ID, Object: "response", CreatedAt: s.Created.Unix(), Status: status, Model: c.Model,
		Output: []ResponseMessage{}, Text: ResponseText{TextFormat{Type: formatText}}, ToolChoice: "auto", Tools: []string{},
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

// ended returns the response that a session is.
func (c ResponseRequest) ended(s *sessions.Session, session *council.Session) Response {
	r := c.response(s, responseCompleted)
	if *chatFinish(session) == "length" {
		r.Status, r.IncompleteDetails = responseIncomplete, &ResponseIncompletion{Reason: "max_output_tokens"}
	}
	r.Output = append(r.Output, responseMessage(s, r.Status, responsePart(session.Answer)))
	r.Council = chatCouncil(session)
	if u := chatUsage(session); u != nil {
		r.Usage = &ResponseUsage{
			InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, TotalTokens: u.TotalTokens, Partial: u.Partial,
		}
	}
	return r
}

func responseMessage(s *sessions.Session, status string, parts ...ResponsePart) ResponseMessage {
	return ResponseMessage{
		ID: "msg_" + s.ID, Type: "message", Status: status, Role: council.RoleAssistant, Content: append([]ResponsePart{}, parts...),
	}
}

func responsePart(text string) ResponsePart {
	return ResponsePart{Type: "output_text", Text: text, Annotations: []string{}, Logprobs: []string{}}
}

// responseStream turns the events of a session into those of a response.
type responseStream struct {
	*textStream
	request ResponseRequest
	number  int // of the next event
	text    []byte
}

// responseEvent is an event of a stream of a response. Each type has some of the fields.
type responseEvent struct {
	Type           string           `json:"type"`
	SequenceNumber int              `json:"sequence_number"` // from 0
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

// newResponseStream returns a stream that begins with the response as it is before the
// session.
func newResponseStream(s *sessions.Session, request ResponseRequest) *textStream {
	t := &responseStream{textStream: newTextStream(s), request: request}
	t.textStream.event = t.event
	begun := request.response(s, responseRuns)
	t.next("response.created", responseEvent{Response: &begun})
	t.next("response.in_progress", responseEvent{Response: &begun})
	return t.textStream
}

// next sends an event.
func (t *responseStream) next(name string, e responseEvent) {
	e.Type, e.SequenceNumber = name, t.number
	t.number++
	t.out.WriteString("event: " + name + "\n")
	t.send(e)
}

// ofItem sends an event about the one message.
func (t *responseStream) ofItem(name string, item ResponseMessage) {
	t.next(name, responseEvent{OutputIndex: new(0), Item: &item})
}

// ofPart sends an event about its one text.
func (t *responseStream) ofPart(name string, e responseEvent) {
	e.ItemID, e.OutputIndex, e.ContentIndex = "msg_"+t.s.ID, new(0), new(0)
	t.next(name, e)
}

func (t *responseStream) event(e council.Event) {
	switch data := e.Data.(type) {
	case council.Delta:
		t.write(data.Text)
	case council.Restart:
		t.fail(t.lost())
	case *council.Session:
		if !t.sent { // there was nothing to write while it ran
			t.write(data.Answer)
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

// write sends a piece of the answer.
func (t *responseStream) write(text string) {
	empty := responsePart("")
	if !t.sent {
		t.ofItem("response.output_item.added", responseMessage(t.s, responseRuns))
		t.ofPart("response.content_part.added", responseEvent{Part: &empty})
	}
	t.sent, t.text = true, append(t.text, text...)
	t.ofPart("response.output_text.delta", responseEvent{Delta: &text, Logprobs: &empty.Logprobs})
}

// fail sends why there is no answer.
func (t *responseStream) fail(e *council.Error) {
	failed := t.request.response(t.s, responseFailed)
	failed.Error = &ResponseError{Code: e.Code, Message: chatError(e).Error.Message}
	t.next("response.failed", responseEvent{Response: &failed})
}
