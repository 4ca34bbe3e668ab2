package llm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// The JSON of a request holds what its call asks for, and nothing else.
func TestRequest(t *testing.T) {
	type object = map[string]any
	plain := aCall()
	plain.Messages = []council.Message{
		{Role: council.RoleSystem, Content: "Be \"short\".\r\n\t\\o/ \b\f\x00\x1f\x7f\u2028"},
		{Role: council.RoleUser, Content: "café <b>&amp;\xff\xfe 😀"},
	}
	messages := []any{
		object{"role": "system", "content": "Be \"short\".\r\n\t\\o/ \b\f\x00\x1f\x7f\u2028"},
		object{"role": "user", "content": "café <b>&amp;\uFFFD\uFFFD 😀"},
	}
	sampled := plain
	sampled.Temperature, sampled.MaxOutputTokens = new(0.0), new(7)
	thinking := plain
	thinking.Profile = &council.Profile{
		ReasoningEffort: "high", Body: map[string]json.RawMessage{"x\"": []byte("[]"), "top_k": []byte("40")},
	}
	all := sampled
	all.Profile = thinking.Profile
	format := &council.Format{Name: "ballot", Strict: true, Schema: []byte(`{"type":"object"}`)}
	wrapped := object{"type": "json_schema", "json_schema": object{"name": "ballot", "strict": true, "schema": object{"type": "object"}}}
	for _, test := range []struct {
		name, host string
		call       council.Call
		format     *council.Format
		stream     bool
		without    options
		want       object
	}{
		{"plain", "a.test", plain, nil, false, 0, object{"model": "m\"", "messages": messages, "stream": false}},
		{"sampled", "a.test", sampled, format, false, 0, object{
			"model": "m\"", "messages": messages, "temperature": 0.0, "max_tokens": 7.0, "response_format": wrapped,
			"stream": false,
		}},
		{"OpenAI", "api.openai.com", sampled, nil, true, 0, object{
			"model": "m\"", "messages": messages, "temperature": 0.0, "max_completion_tokens": 7.0,
			"stream": true, "stream_options": object{"include_usage": true},
		}},
		{"OpenRouter", "openrouter.ai", plain, nil, false, 0, object{
			"model": "m\"", "messages": messages, "usage": object{"include": true}, "stream": false,
		}},
		{"profile", "a.test", thinking, nil, false, 0, object{
			"model": "m\"", "messages": messages, "reasoning_effort": "high", "top_k": 40.0, "x\"": []any{}, "stream": false,
		}},
		{"profile at OpenRouter", "openrouter.ai", thinking, nil, false, 0, object{
			"model": "m\"", "messages": messages, "reasoning": object{"effort": "high"}, "top_k": 40.0, "x\"": []any{},
			"usage": object{"include": true}, "stream": false,
		}},
		{"Azure", "r.openai.azure.com", sampled, nil, false, optTemperature, object{
			"model": "m\"", "messages": messages, "max_completion_tokens": 7.0, "stream": false,
		}},
		{"everything left out", "a.test", all, format, true, optTemperature | optEffort | optFormat | optStreamUsage | optTokensName, object{
			"model": "m\"", "messages": messages, "max_completion_tokens": 7.0, "top_k": 40.0, "x\"": []any{}, "stream": true,
		}},
		{"the older name", "api.openai.com", sampled, nil, true, optStream | optTokensName, object{
			"model": "m\"", "messages": messages, "temperature": 0.0, "max_tokens": 7.0, "stream": false,
		}},
	} {
		var got object
		if test.call.Format = test.format; test.stream {
			test.call.OnDelta = func(string) {}
		}
		x := exchange{call: &test.call, dialect: dialectOf(test.host), model: "m\"", without: test.without}
		body := x.request()
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v in %s", test.name, err, body)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// A string is written as encoding/json would, but for characters that only HTML has to
// escape.
func FuzzAppendString(f *testing.F) {
	f.Add("a\"\n\t\r\b\f\\/\x00\xff\u2028\xed\xa0\x80 é")
	f.Fuzz(func(t *testing.T, s string) {
		var got, want string
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

// quickReply reads what anyReply reads.
func FuzzQuickReply(f *testing.F) {
	for _, body := range []string{
		goodBody,
		`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant",` +
			`"content":"Hi \"you\"\n"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"abc"}`,
		`{"choices":[{"delta":{"content":"a"},"x":{"delta":{"content":"b"}}}],"y":[{"choices":[]}]}`,
		`{"choices":[{"delta":{"content":"a","refusal":null},"finish_reason":"stop"}]}`,
		`{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`,
		`{"Choices":[{"delta":{"CONTENT":"a"}}],"choices":[{"delta":{"content":"b"}}]}`,
		`{"choices":[{"delta":{"content":"a","content":"b"},"delta":{}}]}`,
		`{"choices":[{"delta":{"content":"` + "\xff" + `\ud800\u00e9\/\b"}}]}`,
		`{ "choices" : [ { "delta" : { "content" : "a" } } ] }` + "\r\n\t ",
		`{"error":null,"choices":[{"delta":{"cont\u0065nt":"a","content":"b"}}]}`,
		`{"choices":[],"usage":{"prompt_tokens":1.5,"completion_tokens":-0,"cost":1e400,"x":[{}]}}`,
		`{"choices":[{"index":0,"message":{"content":"a"}}],"usage":{"prompt_tokens":12,"completion_tokens":3,"cost":0.001}}`,
		`{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":` +
			`{"cached_tokens":1,"cache_write_tokens":2.5,"x":[1]},"completion_tokens_details":{"reasoning_tokens":-3,"cached_tokens":null}}}`,
		`{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":90,"reasoning_tokens":7,` +
			`"is_byok":true,"cost":0.1,"cost_details":{"upstream_inference_cost":0.2}}}`,
		`{"choices":[],"usage":{"total_tokens":-1,"is_byok" : [true] ,"cost_details":null}}`,
		`{"usage":{"prompt_tokens_details":null,"completion_tokens_details":{"reasoning_tokens":null,"reasoning_tokens":3}}}`,
		`{"choices":[{"index":0,"message":{"content":"a"}}]} x`,
		`{"a":01,"b":[1,],"c":{"d":tru},"e":"\q","f":"\u12"}`,
		`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
	} {
		f.Add([]byte(body), false)
		f.Add([]byte(body), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, chunk bool) {
		growth.Bounded(t, len(body), func() {
			quickReply(body, chunk)
			_, _ = readReply(t.Context(), body, chunk)
		})
		quick, ok := quickReply(body, chunk)
		if !ok {
			return
		}
		general, err := anyReply(t.Context(), body, chunk)
		if diff := cmp.Diff(general, quick, cmp.AllowUnexported(received{}, figure{})); err != nil || diff != "" {
			t.Errorf("%v, and in general way and quick: %s", err, diff)
		}
	})
}

// quickReply reads the replies and the chunks of the large providers.
func TestQuickReply(t *testing.T) {
	for _, body := range []string{
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt","service_tier":"default",` +
			`"system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],` +
			`"usage":null,"obfuscation":"R2d"}`,
		`{"id":"gen-1","provider":"X","model":"x/y","object":"chat.completion.chunk","created":1,"choices":[{"index":0,` +
			`"delta":{"role":"assistant","content":"a"},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}`,
		`{"id":"1","choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"],"token_ids":[1]},"delta":{"token_id":1,` +
			`"role":"assistant","content":"a","tool_calls":null},"finish_reason":null}],"usage":null}`,
		`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt","choices":[{"index":0,"message":{"role":` +
			`"assistant","content":"a","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":` +
			`{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n",
	} {
		if got, ok := quickReply([]byte(body), strings.Contains(body, `"delta"`)); got.text != "a" || !got.chosen || !ok {
			t.Errorf("got %+v, %v for %s", got, ok, body)
		}
	}
}
