package simllm

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fingerprint marks completions and models as simulated.
const fingerprint = "simulated"

// chatRequest holds the members of a request for a completion that are read.
type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	N                   *int            `json:"n"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Seed                json.RawMessage `json:"seed"` // a whole number; see the package comment
	ResponseFormat      any             `json:"response_format"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	unpriced bool // the usage of the reply has no cost
}

// content is a text, given as a string or as a list of parts. A part without a text counts as an empty text, and so
// does any other value.
type content string

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (c *content) UnmarshalJSON(b []byte) error {
	var whole string
	if json.Unmarshal(b, &whole) == nil {
		*c = content(whole)
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(b, &parts) // values of other types stay empty
	var text strings.Builder
	for _, part := range parts {
		text.WriteString(part.Text)
	}
	*c = content(text.String())
	return nil
}

// conversation returns the messages as plain text.
func (r chatRequest) conversation() []turn {
	turns := make([]turn, len(r.Messages))
	for i, m := range r.Messages {
		turns[i] = turn{m.Role, string(m.Content)}
	}
	return turns
}

type errorBody struct {
	status int         // the status of the HTTP response
	Error  errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// newError returns the error object for an HTTP status.
func newError(status int, message string) errorBody {
	e := errorObject{Message: message, Type: "invalid_request_error"}
	switch {
	case status == 401:
		e.Code = "invalid_api_key"
	case status == 429:
		e.Type = "requests"
		e.Code = "rate_limit_exceeded"
	case status >= 500:
		e.Type = "server_error"
		e.Code = "server_error"
	default:
		e.Code = "invalid_request"
	}
	return errorBody{status, e}
}

// namedError returns an error object whose code is an HTTP status, as OpenRouter sends it. It has no code if status
// is 0.
func namedError(status int, message string) errorBody {
	if status == 0 {
		return errorBody{Error: errorObject{Message: message}}
	}
	e := newError(status, message)
	e.Error.Code = strconv.Itoa(status)
	return e
}

// about returns e with the name of the request's field that is wrong.
func (e errorBody) about(param string) errorBody {
	e.Error.Param = &param
	return e
}

type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// completion is the reply to a request, or one chunk of it. Created is always 0, because equal requests have equal
// replies.
type completion struct {
	ID                string   `json:"id"`
	Object            string   `json:"object"`
	Created           int64    `json:"created"`
	Model             string   `json:"model"`
	SystemFingerprint string   `json:"system_fingerprint"`
	Choices           []choice `json:"choices"`
	Usage             *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *delta   `json:"delta,omitempty"`
	FinishReason *string  `json:"finish_reason"`
}

type message struct {
	Role             string  `json:"role"`
	Content          *string `json:"content"`
	ReasoningContent string  `json:"reasoning_content,omitempty"`
	Refusal          *string `json:"refusal,omitempty"`
}

type delta struct {
	Role             string  `json:"role,omitempty"`
	Content          *string `json:"content,omitempty"`
	ReasoningContent string  `json:"reasoning_content,omitempty"`
	Refusal          *string `json:"refusal,omitempty"`
}

type usage struct {
	PromptTokens     int      `json:"prompt_tokens"`
	CompletionTokens int      `json:"completion_tokens"`
	TotalTokens      int      `json:"total_tokens"`
	Cost             *float64 `json:"cost,omitempty"` // US dollars
	Details          *details `json:"completion_tokens_details,omitempty"`
}

type details struct {
	Reasoning int `json:"reasoning_tokens"`
}

// bytesPerToken is how many bytes of text the usage figures count as one token.
const bytesPerToken = 4

func tokens(n int) int { return (n + bytesPerToken - 1) / bytesPerToken }

// cut returns the first n bytes of text, without half a character at the end.
func cut(text string, n int) string {
	n = min(n, len(text))
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// shards splits a text into the pieces that a stream sends. Each is a few words.
func shards(text string) []string {
	var all []string
	for text != "" {
		_, rest, _ := strings.Cut(text[min(16, len(text)):], " ")
		all = append(all, text[:len(text)-len(rest)])
		text = rest
	}
	return all
}

// event returns v as one event of a stream.
func event(v any) []byte { return slices.Concat([]byte("data: "), encode(v), []byte("\n\n")) }

// encode returns the JSON of a value. It panics if the value has none, which is a bug in this package.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// hugeText is a placeholder in a body for a huge text. The server sends the huge text in its place.
const hugeText = "{huge text}"
