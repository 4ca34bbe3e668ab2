package simllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// Dialect is how a provider treats the options of a request for a completion. The rules, and the
// words of refusals, are those of public documentation and of error messages that users of the providers
// have published, read in November 2026. docs/providers.md names them. The words of refusals are from:
//   - temperature: https://github.com/tmc/langchaingo/issues/1355
//   - max_tokens: https://github.com/lobehub/lobehub/issues/5909
//   - max_completion_tokens: https://github.com/openai/openai-python/issues/1724
//   - unknown members: https://discuss.ai.google.dev/t/openai-compat-api-rejects-reasoning-effort-minimal-for-gemini-3-flash/118724
//   - the system role: https://github.com/vllm-project/vllm/pull/2964
type Dialect string

// The dialects. Members of a request that a dialect does not mention are treated as it treats
// unknown ones.
const (
	// DialectOwn is the simulated provider's own: options without a meaning are ignored.
	DialectOwn Dialect = ""
	// DialectReasoning is that of OpenAI's and Azure's reasoning models: no temperature but 1, no
	// max_tokens, no unknown member.
	DialectReasoning Dialect = "reasoning"
	// DialectChat is that of their other models: no reasoning_effort, no unknown member.
	DialectChat Dialect = "chat"
	// DialectAzureDeployment is that of Azure's older addresses: a header api-key, a parameter
	// api-version, and as DialectChat without max_completion_tokens.
	DialectAzureDeployment Dialect = "azure_deployment"
	// DialectOpenRouter ignores what the model does not take, and tells costs when asked to.
	DialectOpenRouter Dialect = "openrouter"
	// DialectAnthropic is that of Anthropic's compatible endpoint: it ignores what it does not know,
	// and reasoning_effort and response_format.
	DialectAnthropic Dialect = "anthropic"
	// DialectGemini is that of Gemini's compatible endpoint: no unknown member, four words for the effort.
	DialectGemini Dialect = "gemini"
	// DialectGemma is that of the Gemma models there: it refuses a system message, too.
	DialectGemma Dialect = "gemma"
	// DialectOllama ignores what it does not know, max_completion_tokens too.
	DialectOllama Dialect = "ollama"
	// DialectVLLM ignores what it does not know.
	DialectVLLM Dialect = "vllm"
)

// common are the members that every dialect takes.
func common() []string {
	return []string{
		"model", "messages", "n", "stream", "stream_options", "temperature", "response_format", "max_tokens",
	}
}

// refuse returns why a provider refuses a request, or nil. members are those of its JSON.
func (d Dialect) refuse(r *http.Request, members map[string]json.RawMessage) any {
	switch d {
	case DialectReasoning:
		if t, ok := members["temperature"]; ok && string(t) != "1" {
			return unsupported("temperature", "unsupported_value", fmt.Sprintf("Unsupported value: 'temperature' "+
				"does not support %s with this model. Only the default (1) value is supported.", t))
		}
		if _, ok := members["max_tokens"]; ok {
			return unsupported("max_tokens", "unsupported_parameter",
				"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
		}
		return unrecognized(members, "max_completion_tokens", "reasoning_effort")
	case DialectChat:
		return unrecognized(members, "max_completion_tokens")
	case DialectAzureDeployment:
		if r.URL.Query().Get("api-version") == "" {
			return newError(404, "Resource not found")
		}
		return unrecognized(members)
	case DialectGemini:
		return refuseLikeGemini(members)
	case DialectGemma:
		if bytes.Contains(members["messages"], []byte(`"role":"system"`)) {
			return likeGoogle("Developer instruction is not enabled for models/gemma")
		}
		return refuseLikeGemini(members)
	case DialectOwn, DialectOpenRouter, DialectAnthropic, DialectOllama, DialectVLLM:
	}
	return nil
}

func unsupported(param, code, message string) errorBody {
	e := newError(400, message).about(param)
	e.Error.Code = code
	return e
}

// unknownMembers returns the members that are neither common nor among the known ones, in order.
func unknownMembers(members map[string]json.RawMessage, known ...string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(members)), func(name string) bool {
		return slices.Contains(common(), name) || slices.Contains(known, name)
	})
}

func unrecognized(members map[string]json.RawMessage, known ...string) any {
	if unknown := unknownMembers(members, known...); len(unknown) > 0 {
		return newError(400, "Unrecognized request argument supplied: "+unknown[0])
	}
	return nil
}

// likeGoogle returns a refusal in Google's form: a list of one.
func likeGoogle(message string) any {
	type status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
	}
	type body struct {
		Error status `json:"error"`
	}
	return []body{{status{400, message, "INVALID_ARGUMENT"}}}
}

func refuseLikeGemini(members map[string]json.RawMessage) any {
	if unknown := unknownMembers(members, "max_completion_tokens", "reasoning_effort"); len(unknown) > 0 {
		return likeGoogle(fmt.Sprintf("Invalid JSON payload received. Unknown name %q: Cannot find field.", unknown[0]))
	}
	var word string
	if effort, ok := members["reasoning_effort"]; ok {
		if json.Unmarshal(effort, &word) != nil || !slices.Contains([]string{"high", "low", "medium", "none"}, word) {
			return likeGoogle(fmt.Sprintf("Invalid reasoning_effort: %s. Valid values are: high, low, medium, none",
				word))
		}
	}
	return nil
}

// adapt changes what the dialect ignores of a request.
func (d Dialect) adapt(body *chatRequest) {
	if d == DialectOllama {
		body.MaxCompletionTokens = nil
	}
}

// tellsCosts reports whether the usage of a reply holds what it cost.
func (d Dialect) tellsCosts(members map[string]json.RawMessage) bool {
	switch d {
	case DialectOwn:
		return true
	case DialectOpenRouter:
		var usage struct{ Include bool }
		return json.Unmarshal(members["usage"], &usage) == nil && usage.Include
	default:
		return false
	}
}

// authorized reports whether a request has the key.
func authorized(r *http.Request, key string) bool {
	return key == "" || r.Header.Get("Authorization") == "Bearer "+key || r.Header.Get("Api-Key") == key
}
