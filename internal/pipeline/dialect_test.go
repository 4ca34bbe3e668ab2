package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

// A council of each provider's models answers, reviews and writes with a temperature, an output limit, an effort and
// a member of the provider's own set, in one piece and streamed. What its models refuse is learned with the first
// session, and what was left out is said.
func TestDialects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dialect simllm.Dialect
		base    string // of the provider's addresses
		effort  string
		body    string // a further member
		leftOut string
		refused int // requests of one model in the first session, none in the second; answers and reviews have two temperatures
	}{
		"OpenAI, reasoning":      {simllm.DialectReasoning, "api.openai.com/v1", "high", "", "temperature", 2},
		"OpenAI, other":          {simllm.DialectChat, "api.openai.com/v1", "high", "", "reasoning_effort", 1},
		"Azure, reasoning":       {simllm.DialectReasoning, "r.openai.azure.com/openai/v1", "high", "", "temperature", 2},
		"Azure, other":           {simllm.DialectChat, "r.openai.azure.com/openai/v1", "", "", "", 0},
		"Azure, older addresses": {simllm.DialectAzureDeployment, "r.openai.azure.com/openai/deployments/d", "", "", "", 1},
		"a gateway to reasoning": {simllm.DialectReasoning, "gateway.test/v1", "high", "", "temperature", 3},
		"OpenRouter":             {simllm.DialectOpenRouter, "openrouter.ai/api/v1", "high", "provider", "", 0},
		"Anthropic":              {simllm.DialectAnthropic, "api.anthropic.com/v1", "high", "thinking", "reasoning_effort", 0},
		"Gemini":                 {simllm.DialectGemini, "generativelanguage.googleapis.com/v1beta/openai", "high", "", "", 0},
		"Gemini, another effort": {simllm.DialectGemini, "generativelanguage.googleapis.com/v1beta/openai", "xhigh", "", "reasoning_effort", 1},
		"Gemini, Gemma":          {simllm.DialectGemma, "generativelanguage.googleapis.com/v1beta/openai", "high", "", "", 1},
		"Ollama":                 {simllm.DialectOllama, "ollama.test/v1", "high", "", "", 0},
		"vLLM":                   {simllm.DialectVLLM, "vllm.test/v1", "high", "top_k", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			models := members(4)
			for i := range models {
				models[i].Dialect, models[i].FirstChunk, models[i].ChunkDelay = test.dialect, 0, 0
			}
			sim, err := simllm.New(simllm.Options{Models: models, APIKey: "a-key-of-the-provider"})
			if err != nil {
				t.Fatal(err)
			}
			host, base, _ := strings.Cut(test.base, "/")
			var requests, hosts []string
			requested := make(chan string, 1000)
			server := httptest.NewServer(http.StripPrefix("/"+base, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requested <- r.Host
				sim.ServeHTTP(w, r)
			})))
			t.Cleanup(server.Close)
			provider := llm.Provider{BaseURL: "http://" + test.base, APIKey: "a-key-of-the-provider"}
			if test.dialect == simllm.DialectAzureDeployment {
				provider.APIKey, provider.Headers = "", map[string]string{"api-key": "a-key-of-the-provider"}
				provider.Query = map[string]string{"api-version": "2024-06-01"}
			}
			h := open(t, models, sim, llm.Options{
				Providers: []llm.Provider{provider}, AttemptTimeout: time.Minute, DialTimeout: time.Second, MaxCallsPerProvider: 64,
				MaxReplyBytes: 1 << 20,
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
				},
			}, func(o *pipeline.Options) {
				o.Sampling = council.Sampling{Temperature: new(0.2), MaxOutputTokens: new(4000)}
				o.ReviewSampling = council.Sampling{Temperature: new(0.0), MaxOutputTokens: new(4000)}
			})
			const calls = 9 // of a session in which nothing is refused
			for round := range 2 {
				plan := h.plan(t, council.Request{})
				plan.Deltas, plan.AnswerDeltas = round == 1, round == 1
				profile := &council.Profile{ReasoningEffort: test.effort}
				if test.body != "" {
					profile.Body = map[string]json.RawMessage{test.body: []byte(`{"x": 1}`)}
				}
				for _, seats := range [][]council.Member{plan.Members(), plan.Reviewers(), plan.Chairmen()} {
					for i := range seats {
						seats[i].Profile = profile
					}
				}
				session, err := h.Run(t.Context(), plan, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if session.Status != council.StatusComplete {
					t.Fatalf("%s: %v", session.Status, session.Degradation)
				}
				var left []string
				for _, a := range session.Stage1 {
					left = append(left, a.LeftOut...)
				}
				left = slices.Compact(append(left, session.Stage3.LeftOut...))
				if got := strings.Join(left, ","); got != test.leftOut {
					t.Errorf("round %d: left out: %q, want %q", round, got, test.leftOut)
				}
				if warned(session, council.WarnOptionLeftOut) != (test.leftOut != "") {
					t.Errorf("round %d: warnings %v", round, session.Metadata.Warnings)
				}
				if costs := session.Metadata.Usage.CostUSD != nil; costs != (test.dialect == simllm.DialectOpenRouter) {
					t.Errorf("the cost is known: %v", costs)
				}
			}
			for range len(requested) {
				requests = append(requests, <-requested)
			}
			if hosts = slices.Compact(requests); !slices.Equal(hosts, []string{host}) {
				t.Errorf("requests went to %v", hosts)
			}
			if want := 2*calls + len(models)*test.refused; len(requests) != want {
				t.Errorf("%d requests, want %d", len(requests), want)
			}
		})
	}
}

// A persona answers, above what the caller's system message says. It neither reviews nor writes.
func TestPersona(t *testing.T) {
	t.Parallel()
	models := members(3)
	sim, err := simllm.New(simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	type request struct {
		Model    string
		Messages []council.Message
	}
	requested := make(chan request, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var q request
		if err := errors.Join(err, json.Unmarshal(body, &q)); err != nil {
			t.Error(err)
		}
		requested <- q
		r.Body = io.NopCloser(bytes.NewReader(body))
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h := open(t, models, sim, llm.Options{
		Providers: []llm.Provider{{BaseURL: server.URL}}, AttemptTimeout: time.Minute, DialTimeout: time.Second, MaxCallsPerProvider: 64,
		MaxReplyBytes: 1 << 20,
	})
	conversation := []council.Message{
		{Role: council.RoleSystem, Content: "Be short."}, {Role: council.RoleUser, Content: "Why is the sky blue?"},
	}
	plan := h.plan(t, council.Request{Messages: conversation})
	persona := &council.Profile{System: "Look for what is wrong."}
	plan.Members()[0].Profile, plan.Reviewers()[0].Profile, plan.Chairmen()[0].Profile = persona, persona, persona
	if _, err := h.Run(t.Context(), plan, nil, nil); err != nil {
		t.Fatal(err)
	}
	personas := 0
	for range len(requested) {
		q := <-requested
		text, _ := json.Marshal(q.Messages)
		if !strings.Contains(string(text), persona.System) {
			continue
		}
		personas++
		want := []council.Message{{Role: council.RoleSystem, Content: "Look for what is wrong.\n\nBe short."}, conversation[1]}
		if diff := cmp.Diff(want, q.Messages); q.Model != plan.Members()[0].Model || diff != "" {
			t.Errorf("%s: %s", q.Model, diff)
		}
	}
	if personas != 1 {
		t.Errorf("%d prompts hold the persona", personas)
	}
}
