package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
	"github.com/go-chi/chi/v5"
)

// councilModel is the model name of the configured council. "/" and members behind
// it name other ones: two or more, by commas, a council of these; one, that model
// alone; the name of a council of the roster, that council.
const councilModel = "council"

// ModelList is the body of GET /v1/models.
type ModelList struct {
	Object string      `json:"object"` // "list"
	Data   []ModelCard `json:"data"`
}

// ModelCard is a model that chat completions offer.
type ModelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`  // "model"
	Created int64  `json:"created"` // Unix seconds: when this daemon started
	OwnedBy string `json:"owned_by"`
}

// models is GET /v1/models: the councils, and each member of the default one alone.
func (a *API) models(w http.ResponseWriter, r *http.Request) error {
	cards, err := a.cards(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ModelList{Object: "list", Data: cards})
}

// model is GET /v1/models/{id}.
func (a *API) model(w http.ResponseWriter, r *http.Request) error {
	id := chi.URLParam(r, "*")
	if plain, err := url.PathUnescape(id); err == nil && r.URL.RawPath != "" { // chi then routes by the escaped path
		id = plain
	}
	cards, err := a.cards(r)
	if err != nil {
		return err
	}
	for _, card := range cards {
		if card.ID == id {
			return writeJSON(w, http.StatusOK, card)
		}
	}
	return noModel(id)
}

// cards returns the models that chat completions offer by name.
func (a *API) cards(r *http.Request) ([]ModelCard, error) {
	offers, err := a.offers(r)
	if err != nil {
		return nil, err
	}
	var ids []string
	if len(a.o.Models) == 0 || len(offers) > 0 && offers[0].Default {
		ids = append(ids, councilModel)
	}
	for _, offer := range offers {
		if offer.Plan.CouncilName != "" {
			ids = append(ids, councilModel+"/"+offer.Plan.CouncilName)
		}
	}
	for _, offer := range offers {
		if !offer.Default {
			continue
		}
		for _, m := range modelsOf(offer.Plan.Members()) {
			if id := councilModel + "/" + m; !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	cards := make([]ModelCard, len(ids))
	for i, id := range ids {
		cards[i].ID = id
	}
	for i := range cards {
		cards[i].Object = "model"
		cards[i].Created = a.started.Unix()
		cards[i].OwnedBy = "councild"
	}
	return cards, nil
}

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
func (e EndUser) addUser(r *council.Request, p *problems) {
	r.User = cmp.Or(e.SafetyIdentifier, e.User)
	const message, fix = "the name is longer than 256 bytes", "give a shorter one, such as a hash"
	p.addIf([]refusal{
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
func (s Sampling) checkSampling(p *problems) {
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
			p.add(option.field, "the number is out of range",
				fmt.Sprintf("give one from %g to %g, or leave %s out: it has no effect",
					option.least, option.most, option.field))
		}
	}
}

// limit refuses a limit of tokens that is below 1. Some programs send -1 for no limit.
func (p *problems) limit(field string, tokens *float64) {
	if tokens != nil && *tokens < 1 && *tokens != -1 {
		p.add(field, "the number is out of range", "give 1 or more, or leave "+field+" out: it has no effect")
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
func (f JSONSchema) ask(r *council.Request, p *problems, kind, place, inside string) {
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
		if len(f.Schema) == 0 && !p.about(inside) {
			p.add(inside+".schema", "there is no schema", "give a JSON Schema")
		}
	default:
		p.add(place+".type", fmt.Sprintf("%q is not a format", kind), "use text, json_object or json_schema")
	}
}

// openAIPlace returns the place in the body of what is wrong with a field of council.Request. messages is where the
// conversation stands in the body, and format where the format does that it asks for.
func openAIPlace(field, messages, format string, talk conversation) string {
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

// ChatPart is a part of a ChatMessage.
type ChatPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal,omitempty"` // of the type "refusal"
}

// request returns what the council is asked, and adds to p all that it cannot be.
func (c ChatRequest) request(p *problems) council.Request {
	r := asked(c.Model, c.Metadata)
	if r.Seed = c.Seed; c.Seed != nil && *c.Seed == -1 { // as other servers have it: drawn at random
		r.Seed = nil
	}
	schemaPlace := "response_format.json_schema"
	var talk conversation
	p.rename = func(field string) string { return openAIPlace(field, "messages", schemaPlace, talk) }
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
	p.limit("max_tokens", c.MaxTokens)
	p.limit("max_completion_tokens", c.MaxCompletionTokens)
	p.tools(&r, "tools", c.Tools, "tool_choice", c.ToolChoice)
	p.tools(&r, "functions", c.Functions, "function_call", c.FunctionCall)
	p.addIf([]refusal{
		{c.N != nil && *c.N != 1, "n", "a council gives one answer", "leave n out"},
		{given(c.Stop), "stop", "a council's answer is given whole", "leave stop out"},
		{c.Logprobs != nil && *c.Logprobs, "logprobs", "a council has no token probabilities", "leave logprobs out"},
		{given(c.Audio), "audio", "a council answers in text", "leave audio out"},
		{given(c.WebSearchOptions), "web_search_options", "a council searches nothing", "leave web_search_options out"},
		{len(c.Messages) == 0 && !p.about("messages"), "messages", "there is no message", "give at least the user's question"},
	})
	items := make([]ResponseItem, len(c.Messages))
	for i, m := range c.Messages {
		items[i].ChatMessage = m
	}
	talk = p.read("messages", items, "")
	talk.ask(&r)
	return r
}

// tools notes in r that the request offers tools: the council's policy refuses or ignores them. A choice that requires a call is
// refused here. With the choice "none" no tool would be called, so that there is nothing to ignore.
func (p *problems) tools(
	r *council.Request, field string, tools json.RawMessage, choiceField string, choice json.RawMessage,
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
		p.add(choiceField, "a council calls no tools", "leave "+choiceField+" out, or send none or auto")
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

func (p *problems) addIf(all []refusal) {
	for _, r := range all {
		if r.is {
			p.add(r.field, r.message, r.fix)
		}
	}
}

// given reports whether a field says anything.
func given(raw json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "[]", "{}"}, string(raw))
}

// unreadable refuses a part of what is asked by its type, unless it was not even read.
func (p *problems) unreadable(place func() string, is, fix string) {
	if len(p.named) == maxNamed {
		p.count++
	} else if place := place(); !p.about(place) {
		p.add(place, fmt.Sprintf("a council reads text, not %q", is), fix)
	}
}

// knownModel refuses the name of a model that is not there.
func knownModel(name string) error {
	if name == councilModel || strings.HasPrefix(name, councilModel+"/") {
		return nil
	}
	return noModel(name)
}

func noModel(name string) error {
	return &council.Error{
		Code:   council.CodeNotFound,
		Detail: fmt.Sprintf("the model %q does not exist; GET /v1/models lists those that do", name),
		Fields: []council.FieldError{{
			Field:   "model",
			Message: "there is no such model",
			Fix:     "use council, council/MEMBER, or council/MEMBER,MEMBER",
		}},
	}
}

// chat is POST /v1/chat/completions: a session, whose answer is the completion.
func (a *API) chat(w http.ResponseWriter, r *http.Request) error {
	var c ChatRequest
	s, err := a.beginOpenAI(w, r, &c, func(p *problems) (council.Submission, error) {
		return council.Submission{Request: c.request(p), Stream: c.Stream}, knownModel(c.Model)
	})
	if err != nil {
		return err
	}
	c = ChatRequest{Model: c.Model, Stream: c.Stream, StreamOptions: c.StreamOptions} // The session holds the question.
	if c.Stream {
		a.streamText(w, r, newChatStream(s, c))
		return nil
	}
	session, err := wait(r, s)
	if err != nil {
		return err
	}
	whole := c.completion(s, "chat.completion", ChatChoice{
		Message:      &ChatAnswer{Role: council.RoleAssistant, Content: session.Answer + noteLine(session)},
		FinishReason: chatFinish(session),
	})
	whole.Usage = chatUsage(session)
	whole.Council = chatCouncil(session)
	return writeJSON(w, http.StatusOK, whole)
}

// beginOpenAI begins the session that a body asks for. asked returns it once the body was read,
// adds what is wrong with it to the problems, and says whether there is such a model.
func (a *API) beginOpenAI(
	w http.ResponseWriter, r *http.Request, body any, asked func(p *problems) (council.Submission, error),
) (*sessions.Session, error) {
	problems, err := a.decode(w, r, body, true)
	if err != nil {
		return nil, err
	}
	submission, err := asked(problems)
	if err != nil && problems.count == 0 {
		return nil, err
	}
	problems.join(err)
	problems.side(r, &submission.Request)
	if err := a.refusal(r, problems, submission.Request); err != nil {
		return nil, err
	}
	repeat := a.repeatKey(r, problems.sum)
	if s, err := a.replayed(w, r, repeat); s != nil || err != nil {
		return s, err
	}
	s, err := a.begin(r, body, submission, repeat)
	return s, problems.renamed(err)
}

// sideHeader says whether a request is a side request, in place of what its text looks like.
const sideHeader = "Councild-Side-Request"

// side reads the header that says whether a request is a side request.
func (p *problems) side(r *http.Request, asked *council.Request) {
	value := r.Header.Get(sideHeader)
	if value == "" {
		return
	}
	var err error
	if asked.Side, err = strconv.ParseBool(value); err != nil {
		p.add(sideHeader, fmt.Sprintf("%.20q is neither true nor false", value),
			"send one of them, or leave the header out")
	}
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

// ChatError is an error in OpenAI's shape.
type ChatError struct {
	Error council.OpenAIError `json:"error"`
}

// speaksOpenAI reports whether a request came to the OpenAI interface.
func speaksOpenAI(r *http.Request) bool {
	return r.URL.Path == "/v1/models" || strings.HasPrefix(r.URL.Path, "/v1/models/") ||
		r.URL.Path == "/v1/chat/completions" || r.URL.Path == "/v1/responses"
}

// chatError returns an error in OpenAI's shape.
func chatError(e *council.Error) ChatError {
	e = bounded(e)
	body := council.OpenAIError{Message: e.Detail, Type: "invalid_request_error", Code: e.Code}
	if status := meaningOf(e.Code).status; status == http.StatusTooManyRequests {
		body.Type = "rate_limit_error"
	} else if status >= http.StatusInternalServerError {
		body.Type = "server_error"
	}
	for i, f := range e.Fields { // these are few
		if i == 0 {
			body.Param = &f.Field
		}
		body.Message += fmt.Sprintf("; %s: %s (%s)", f.Field, f.Message, f.Fix)
	}
	if e.SessionID != "" {
		body.Message += "; session " + e.SessionID
	}
	return ChatError{body}
}
