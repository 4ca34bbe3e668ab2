package llm

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// A refusal is told by the words of the provider, in each form of errors, and only of an option
// that the request had.
func TestRefusals(t *testing.T) {
	t.Parallel()
	every := optTemperature | optEffort | optFormat | optStreamUsage | optStream | optTokensName | optCache
	for name, test := range map[string]struct {
		status int
		body   string
		sent   options
		want   options
	}{
		"a value": {400, `{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) ` +
			`value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`, every, optTemperature},
		"the older name": {400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use ` +
			`'max_completion_tokens' instead.","param":"max_tokens"}}`, every, optTokensName},
		"the newer name": {
			400, `{"error":{"message":"Unrecognized request argument supplied: max_completion_tokens","param":null}}`,
			every, optTokensName,
		},
		"the parameter alone": {400, `{"error":{"message":"this model does not support it","param":"stream_options"}}`, every, optStreamUsage},
		"Google's list":       {400, `[{"error":{"message":"Unknown name \"reasoning_effort\": Cannot find field."}}]`, every, optEffort},
		"OpenRouter's object": {400, `{"error":{"message":"reasoning.effort: invalid"}}`, every, optEffort},
		"the cache":           {400, `{"error":{"message":"Unknown parameter: 'prompt_cache_options'.","param":"prompt_cache_options"}}`, every, optCache},
		"a mode of the cache": {
			400, `{"error":{"message":"Invalid value: 'explicit'.","param":"prompt_cache_options.mode"}}`,
			every &^ optFormat, optCache,
		},
		"Azure's words for it": {
			400, `{"error":{"message":"Extra parameters ['prompt_cache_options'] are not allowed"}}`, every, optCache,
		},
		"another member of the cache": {
			400, `{"error":{"message":"Unrecognized request argument supplied: prompt_cache_key"}}`,
			every &^ optFormat, 0,
		},
		"streaming":                  {501, `{"error":"streaming is not implemented"}`, every, optStream},
		"a path that does not exist": {405, `{"detail":"no temperature here"}`, every, 0},
		"a validation":               {422, `{"detail":[{"message":"temperature must be at most 1"}]}`, every, optTemperature},
		"what was not sent":          {400, `{"error":{"message":"temperature is wrong"}}`, every &^ optTemperature, optFormat},
		"no words":                   {400, ``, every, optFormat},
		"no words, no format":        {400, ``, every &^ optFormat, 0},
		"a word that begins alike":   {400, `{"error":{"message":"temperatures are high"}}`, optTemperature, 0},
		"another fault":              {429, `{"error":{"message":"temperature"}}`, every, 0},
		"a reply":                    {200, `{"error":{"message":"temperature"}}`, every, 0},
		"too much to read":           {400, `{"error":{"message":"temperature"}}` + strings.Repeat(" ", maxErrorBytes), optTemperature, 0},
	} {
		x := &exchange{response: response{status: test.status, body: []byte(test.body)}}
		if got := refusal(x, &council.Failure{Code: x.said().code(test.status)}, test.sent); got != test.want {
			t.Errorf("%s: %b, want %b", name, got, test.want)
		}
	}
}

// What is left out is said of each answer, and the requests without it are no retries.
func TestOptionsLeftOut(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		refuse := func(option string) roundTripper {
			return reply(400, `{"error":{"message":"unsupported","param":"`+option+`"}}`)
		}
		s := &sequence{plays: []roundTripper{status(503), refuse("temperature"), refuse("reasoning_effort"), status(503), good()}}
		c := fakeClient(t, fakeOptions(), s.RoundTrip)
		call := aCall()
		call.Temperature, call.Profile = new(0.2), &council.Profile{ReasoningEffort: "high"}
		for attempts := range slices.Values([]int{5, 1}) {
			got, err := c.Complete(t.Context(), call)
			if diff := cmp.Diff([]string{"temperature", "reasoning_effort"}, got.LeftOut); err != nil || got.Attempts != attempts || diff != "" {
				t.Errorf("%v after %d attempts, want %d: %s", err, got.Attempts, attempts, diff)
			}
		}
		if got, err := c.Complete(t.Context(), aCall()); err != nil || got.LeftOut != nil {
			t.Errorf("%v: left out what nobody had asked for: %v", err, got.LeftOut)
		}
	})
}

// A model that refuses one effort, or one temperature, is still asked for every other one.
func TestRefusedValues(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var body string
		c := fakeClient(t, fakeOptions(), func(r *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			switch body = string(b); {
			case strings.Contains(body, `"reasoning_effort":"minimal"`):
				return reply(400, `{"error":{"message":"reasoning_effort: minimal is not supported, use low, medium or high"}}`)(r)
			case strings.Contains(body, `"temperature":1.2`):
				return reply(400, `{"error":{"message":"temperature: 0 to 1"}}`)(r)
			default:
				return good()(r)
			}
		})
		for _, tt := range []struct {
			effort      string
			temperature float64
			attempts    int
			leftOut     []string
		}{
			{"minimal", 0, 2, []string{"reasoning_effort"}},
			{"high", 0, 1, nil},
			{"minimal", 0, 1, []string{"reasoning_effort"}},
			{"high", 1.2, 2, []string{"temperature"}},
			{"high", 0, 1, nil},
			{"minimal", 1.2, 1, []string{"temperature", "reasoning_effort"}},
		} {
			call := aCall()
			call.Temperature, call.Profile = &tt.temperature, &council.Profile{ReasoningEffort: tt.effort}
			got, err := c.Complete(t.Context(), call)
			if err != nil || got.Attempts != tt.attempts {
				t.Errorf("effort %s, temperature %g: %v after %d attempts, want %d", tt.effort, tt.temperature, err, got.Attempts, tt.attempts)
			}
			if diff := cmp.Diff(tt.leftOut, got.LeftOut); diff != "" {
				t.Errorf("effort %s, temperature %g: left out (-want +got):\n%s", tt.effort, tt.temperature, diff)
			}
			if sent := strings.Contains(body, `"reasoning_effort":"high"`); sent != (tt.effort == "high") {
				t.Errorf("effort %s: sent %s", tt.effort, body)
			}
		}
	})
}

// A refusal that stays one is the failure of the call, and nothing is learned from it.
func TestRefusalThatStays(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sequence{plays: []roundTripper{reply(400, `{"error":{"message":"temperature, max_tokens: all is wrong"}}`)}}
		c := fakeClient(t, fakeOptions(), s.RoundTrip)
		call := aCall()
		call.Temperature, call.MaxOutputTokens = new(0.2), new(7)
		got, err := c.Complete(t.Context(), call)
		if f := council.AsFailure(err); f == nil || f.Code != council.FailRejected || got.Attempts != 3 {
			t.Errorf("%v after %d attempts", err, got.Attempts)
		}
		if learned := c.providers[""].model("m").refuses.known; len(learned) != 0 {
			t.Errorf("learned %v", learned)
		}
	})
}

// What cannot fit the context is not sent.
func TestTooLong(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sequence{plays: []roundTripper{good()}}
		c := fakeClient(t, fakeOptions(), s.RoundTrip)
		call := aCall()
		call.Messages[0].Content = strings.Repeat("x", 600)
		call.MaxOutputTokens, call.Profile = new(50), &council.Profile{ContextTokens: 149}
		_, err := c.Complete(t.Context(), call)
		if f := council.AsFailure(err); f == nil || f.Code != council.FailTooLong || len(s.times) != 0 ||
			f.Message != "not called: prompt and reply take 150 tokens or more, and the model's context has 149" {
			t.Errorf("%v after %d requests", err, len(s.times))
		}
		call.Profile.ContextTokens = 150
		if _, err := c.Complete(t.Context(), call); err != nil {
			t.Error(err)
		}
	})
}

// Headers and parameters of a provider go with each request to it, and stand in no message.
func TestHeadersAndQuery(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		o := fakeOptions()
		o.Providers[0].Headers = map[string]string{"api-key": "a-long-secret-key"}
		o.Providers[0].Query = map[string]string{"api-version": "2024-06-01", "sig": "a-signature&more"}
		c := fakeClient(t, o, func(r *http.Request) (*http.Response, error) {
			if q := r.URL.Query(); r.Header.Get("Api-Key") != "a-long-secret-key" || q.Get("api-version") != "2024-06-01" || q.Get("sig") != "a-signature&more" {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			if r.Header.Get("Authorization") != "" {
				t.Error("a key was sent, and there is none")
			}
			body, _ := json.Marshal(map[string]any{"error": "wrong: " + r.Header.Get("Api-Key") + " " + r.URL.Query().Get("sig")})
			return &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
		})
		_, err := c.Complete(t.Context(), aCall())
		_, listing := c.Models(t.Context(), "")
		for _, err := range []error{err, listing} {
			if f := council.AsFailure(err); f == nil || !strings.HasSuffix(f.Message, "wrong: [key] [key]") {
				t.Error(err)
			}
		}
	})
}

// Every request says who sends it, unless the provider has a header of that name, and what its caller adds of its span.
func TestUserAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		version, header, want string
	}{
		"a release":  {"v1.2.3", "", "councild/v1.2.3 (+https://github.com/councild/councild)"},
		"no version": {"", "", "councild (+https://github.com/councild/councild)"},
		"a roster's": {"v1.2.3", "another/1", "another/1"},
	} {
		o := fakeOptions()
		o.Version = tt.version
		if tt.header != "" {
			o.Providers[0].Headers = map[string]string{"user-agent": tt.header}
		}
		o.Trace = func(r *http.Request) { r.Header.Set("Traceparent", "a span") }
		var seen []string
		c := fakeClient(t, o, func(r *http.Request) (*http.Response, error) {
			if got := r.Header.Get("Traceparent"); got != "a span" {
				t.Errorf("%s: traceparent %q", name, got)
			}
			seen = append(seen, strings.Join(r.Header.Values("User-Agent"), "|"))
			return good()(r)
		})
		embed, stream := aCall(), aCall()
		embed.Texts, stream.OnDelta = []string{"a"}, func(string) {}
		for _, call := range []council.Call{aCall(), stream, embed} {
			_, _ = c.Complete(t.Context(), call)
		}
		_, _ = c.Models(t.Context(), "")
		if diff := cmp.Diff([]string{tt.want, tt.want, tt.want, tt.want}, seen); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Models that charge for what they write to their cache are told to write nothing, at hosts that know how that is said.
func TestCacheWrites(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]bool{
		"gpt-5.6": true, "gpt-5.6-sol": true, "gpt-5.6-luna-pro": true, "gpt-5.6-2026-07-09": true, "gpt-5.10-mini": true, "gpt-6": true,
		"gpt-6-mini": true, "gpt-7.1": true, "gpt-10": true, "openai/gpt-5.6-terra": true, "openai/gpt-6:flex": true,
		"ft:gpt-5.6-luna:org::id": true, "~openai/gpt-latest": true, "~openai/gpt-mini-latest": true, "gpt-latest": true,

		"gpt-5": false, "gpt-5-mini": false, "gpt-5-2025-08-07": false, "gpt-5-chat-latest": false, "openai/gpt-5.5-pro": false, "gpt-5.2-codex": false,
		"gpt-4.9": false, "gpt-4o": false, "gpt-4-32k": false, "gpt-4-1106-preview": false, "gpt-4.1-2025-04-14": false, "gpt-35-turbo": false,
		"gpt-3.5-turbo-0125": false, "gpt-oss-120b": false, "openai/gpt-oss-120b:free": false, "gpt-": false, "gpt": false, "o3": false,
		"~anthropic/claude-opus-latest": false, "~google/gemini-pro-latest": false, "other/gpt-6": false, "nanogpt-6": false, "": false,
	} {
		if got := paysForCache(model); got != want {
			t.Errorf("%q: %v, want %v", model, got, want)
		}
	}
	const option = `"prompt_cache_options":{"mode":"explicit"}`
	body := func(members string) *council.Profile {
		p := council.Profile{}
		if err := json.Unmarshal([]byte(`{"body":{`+members+`}}`), &p); err != nil {
			t.Fatal(err)
		}
		return &p
	}
	for _, tt := range []struct {
		name, host, model string
		profile           *council.Profile
		without           options
		want              int // how often it is there
	}{
		{"OpenAI", "api.openai.com", "gpt-5.6-sol", nil, 0, 1},
		{"Azure", "r.openai.azure.com", "gpt-5.6-sol", nil, 0, 1},
		{"Foundry", "r.services.ai.azure.com", "gpt-5.6-sol", nil, 0, 1},
		{"OpenRouter", "openrouter.ai", "~openai/gpt-latest", nil, 0, 1},
		{"another host", "gateway.test", "gpt-5.6-sol", nil, 0, 0},
		{"an older model", "api.openai.com", "gpt-5.5", nil, 0, 0},
		{"it was refused", "api.openai.com", "gpt-5.6-sol", nil, optCache, 0},
		{"other members", "api.openai.com", "gpt-5.6-sol", body(`"service_tier":"flex"`), 0, 1},
		{"the roster says so, too", "api.openai.com", "gpt-5.6-sol", body(option), 0, 1},
		{"the roster wants the cache", "api.openai.com", "gpt-5.6-sol", body(`"prompt_cache_options":{"mode":"implicit"}`), 0, 0},
		{"the roster has a key of the cache", "api.openai.com", "gpt-5.6-sol", body(`"prompt_cache_key":"k"`), 0, 0},
	} {
		call := aCall()
		call.Profile = tt.profile
		x := exchange{call: &call, dialect: dialectOf(tt.host), model: tt.model, without: tt.without}
		request := string(x.request())
		if got := strings.Count(request, option); got != tt.want || !json.Valid([]byte(request)) {
			t.Errorf("%s: %d times in %s", tt.name, got, request)
		}
	}
	call := aCall()
	call.Texts = []string{"a"}
	if asked := dialectOf("api.openai.com").asked(&call, "gpt-6"); asked != 0 {
		t.Errorf("embeddings ask for %b", asked)
	}
}

// A model that refuses the option is asked again without it, and not asked for it any more. Nobody is told.
func TestCacheOptionRefused(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sequence{plays: []roundTripper{
			reply(400, `{"error":{"message":"Unrecognized request argument supplied: prompt_cache_options","param":null}}`), good(),
		}}
		var bodies []string
		o := fakeOptions()
		o.Providers[0].BaseURL = "https://api.openai.com/v1"
		c := fakeClient(t, o, func(r *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, string(b))
			return s.RoundTrip(r)
		})
		for attempts := range slices.Values([]int{2, 1}) {
			call := aCall()
			call.Model = "gpt-5.6-luna"
			got, err := c.Complete(t.Context(), call)
			if err != nil || got.Attempts != attempts || got.LeftOut != nil {
				t.Errorf("%v after %d attempts, want %d; left out %v", err, got.Attempts, attempts, got.LeftOut)
			}
		}
		for i, body := range bodies {
			if sent := strings.Contains(body, "prompt_cache_options"); sent != (i == 0) {
				t.Errorf("request %d: %s", i+1, body)
			}
		}
	})
}
