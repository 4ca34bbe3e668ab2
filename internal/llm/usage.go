package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"

	"github.com/councild/councild/internal/council"
	openai "github.com/sashabaranov/go-openai"
)

// usage reads what a request consumed, and counts the figures that are not
// believed. A provider that refused the request, or was never reached, consumed
// nothing; one that answered without figures, or broke off, leaves them unknown. A
// completion has at least one token on either side, so a zero is a figure that was
// not given.
func (x *exchange) usage() (council.Usage, int) {
	if !x.sent || (x.status >= 400 && x.status < 500) {
		return council.NoUsage(), 0
	}
	var reply struct {
		Usage struct {
			Input  json.RawMessage `json:"prompt_tokens"`
			Output json.RawMessage `json:"completion_tokens"`
			Cost   json.RawMessage `json:"cost"` // in US dollars; OpenRouter's extension
		} `json:"usage"`
	}
	if !bytes.Contains(x.body, []byte(`"usage"`)) || json.Unmarshal(x.body, &reply) != nil {
		return council.Usage{}, 0
	}
	var doubted int
	u := council.Usage{
		InputTokens: figure[int64](reply.Usage.Input, &doubted), OutputTokens: figure[int64](reply.Usage.Output, &doubted),
		CostUSD: figure[float64](reply.Usage.Cost, &doubted),
	}
	for _, n := range []**int64{&u.InputTokens, &u.OutputTokens} {
		if *n != nil && **n == 0 {
			*n = nil
		}
	}
	u, beyond := u.Believable()
	return u, doubted + beyond
}

// figure returns the number that raw is, nil when it is missing or none.
func figure[T int64 | float64](raw json.RawMessage, doubted *int) *T {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var n T
	if json.Unmarshal(raw, &n) != nil {
		*doubted++
		return nil
	}
	return &n
}

// readAgain reads a reply that could not be read, this time without its figures:
// they are no reason to lose an answer that was paid for. Where that does not help,
// or the body was cut off, it returns what it was given.
func (x *exchange) readAgain(resp openai.ChatCompletionResponse, err error) (openai.ChatCompletionResponse, error) {
	if _, cut := errors.AsType[*url.Error](err); err == nil || cut || x.status != http.StatusOK {
		return resp, err
	}
	body := quoteNaN(x.body)
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields["usage"] == nil {
		return resp, err
	}
	delete(fields, "usage")
	rest, failed := json.Marshal(fields)
	var again openai.ChatCompletionResponse
	if failed != nil || json.Unmarshal(rest, &again) != nil {
		return resp, err
	}
	x.body = body
	return again, nil
}

// notJSON matches what some servers write in the place of a number, and strings, so
// that it does not match inside them.
var notJSON = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)`)

// quoteNaN returns body with every NaN and Infinity as a string, which is JSON.
func quoteNaN(body []byte) []byte {
	return notJSON.ReplaceAllFunc(body, func(match []byte) []byte {
		if match[0] == '"' {
			return match
		}
		return []byte(`"NaN"`)
	})
}
