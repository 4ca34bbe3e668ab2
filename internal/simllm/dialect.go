package simllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// Dialect says how a provider treats the options of a request for a completion. The rules and the texts of refusals
// come from public documentation and from error messages that users have published, read in November 2026.
// docs/providers.md lists the sources of the rules. The texts of refusals are from:
//   - temperature: https://github.com/tmc/langchaingo/issues/1355
//   - max_tokens: https://github.com/lobehub/lobehub/issues/5909
//   - max_completion_tokens: https://github.com/openai/openai-python/issues/1724
//   - unknown members: https://discuss.ai.google.dev/t/openai-compat-api-rejects-reasoning-effort-minimal-for-gemini-3-flash/118724
//   - the system role: https://github.com/vllm-project/vllm/pull/2964
type Dialect string

// These are the dialects. If the comment of a dialect does not mention a member of a request, the dialect treats it
// like an unknown member.
const (
	// DialectOwn is the simulated provider's own dialect. It ignores options without a meaning.
	DialectOwn Dialect = ""
	// DialectReasoning is the dialect of OpenAI's and Azure's reasoning models. It refuses a temperature other than
	// 1, max_tokens, and unknown members.
	DialectReasoning Dialect = "reasoning"
	// DialectChat is the dialect of OpenAI's and Azure's other models. It refuses reasoning_effort and unknown
	// members.
	DialectChat Dialect = "chat"
	// DialectAzureDeployment is the dialect of Azure's older addresses. It requires a header api-key and a
	// parameter api-version. It refuses what DialectChat refuses, and max_completion_tokens.
	DialectAzureDeployment Dialect = "azure_deployment"
	// DialectOpenRouter ignores options that the model does not support. It returns costs if a request asks for
	// them.
	DialectOpenRouter Dialect = "openrouter"
	// DialectAnthropic is the dialect of Anthropic's compatible endpoint. It ignores unknown members,
	// reasoning_effort and response_format.
	DialectAnthropic Dialect = "anthropic"
	// DialectGemini is the dialect of Gemini's compatible endpoint. It refuses unknown members, and accepts four
	// words for the effort.
	DialectGemini Dialect = "gemini"
	// DialectGemma is the dialect of the Gemma models at Gemini's endpoint. It also refuses a system message.
	DialectGemma Dialect = "gemma"
	// DialectOllama ignores unknown members and max_completion_tokens.
	DialectOllama Dialect = "ollama"
	// DialectVLLM ignores unknown members.
	DialectVLLM Dialect = "vllm"
)

// common returns the members that every dialect accepts.
func common() []string {
	return []string{
		"model", "messages", "n", "stream", "stream_options", "temperature", "response_format", "max_tokens",
	}
}

// refuse returns the body with which a provider refuses a request. It returns nil if the provider accepts the request.
// The argument members holds the members of the request's JSON.
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

// unknownMembers returns, in sorted order, the names of members that are neither in common() nor in the argument known.
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

// likeGoogle returns a refusal in Google's form, which is a list with one element.
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

// adapt removes options of a request that the dialect ignores.
func (d Dialect) adapt(body *chatRequest) {
	if d == DialectOllama {
		body.MaxCompletionTokens = nil
	}
}

// tellsCosts reports whether the usage in the reply to a request includes the cost.
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
