package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/daemon/daemontest"
	"github.com/councild/councild/internal/simllm"
)

// keyed starts a provider of the models a to d that asks for a key.
func keyed(t *testing.T, key string) *simllm.Running {
	t.Helper()
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: daemontest.Members(), APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return sim
}

// serving starts something on loopback that answers every request with a status and a body.
func serving(t *testing.T, status int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestCheck(t *testing.T) {
	const key = "sk-very-secret"
	sim := keyed(t, key)
	open := daemontest.Quick(t)
	quick, _, _ := daemontest.Held(t)
	misspelt := filepath.Join(t.TempDir(), "roster.yaml")
	const roster = "version: 1\nmodels: {one: {provider: box, model: quic}, two: {provider: box, model: xyz}}\n" +
		"councils: {main: {members: [one, two]}}\nproviders: {box: {base_url: %s}}\n"
	if err := os.WriteFile(misspelt, fmt.Appendf(nil, roster, quick), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		code int
		want []string
	}{
		{
			"all is right",
			map[string]string{"BASE_URL": sim.URL(), "API_KEY": key, "MODELS": "a,b,c"},
			exitOK,
			[]string{"default   " + sim.URL() + "  accepted  4       ok\n", "a      member, chairman  default   ok\n", "Nothing is wrong."},
		},
		{
			"every role",
			map[string]string{
				"BASE_URL": open, "MODELS": "a,b", "CHAIRMAN": "c", "CHAIRMAN_FALLBACKS": "b", "REVIEWERS": "d", "ALLOWED_MODELS": "a",
			},
			exitOK,
			[]string{"member, allowed ", "member, fallback ", "chairman ", "reviewer "},
		},
		{"a list for all", map[string]string{"BASE_URL": open, "API_KEY": key, "MODELS": "a,b"}, exitOK, []string{" unproved  4 "}},
		{
			"a wrong key",
			map[string]string{"BASE_URL": sim.URL(), "API_KEY": "sk-wrong-one", "MODELS": "a,b"},
			exitError,
			[]string{" refused ", "wrong: it refuses the key: ", "401", "default: set LLM_COUNCIL_API_KEY to a key of this provider", "unknown: "},
		},
		{
			"no key",
			map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b"},
			exitError,
			[]string{"it asks for a key, and LLM_COUNCIL_API_KEY is not set", "set LLM_COUNCIL_API_KEY"},
		},
		{
			"a wrong key of a further provider",
			map[string]string{"PROVIDERS": "my-lab=" + sim.URL(), "MODELS": "my-lab:a,my-lab:b"},
			exitError,
			[]string{"my-lab: set LLM_COUNCIL_API_KEY_MY_LAB"},
		},
		{
			"no version",
			map[string]string{"BASE_URL": underV1(t, sim), "API_KEY": key, "MODELS": "a,b"},
			exitError,
			[]string{"it answers at http", "not at this address", "set LLM_COUNCIL_BASE_URL=http", "/v1\n"},
		},
		{
			"two versions",
			map[string]string{"PROVIDERS": "lab=" + sim.URL() + "/v1", "API_KEY_LAB": key, "MODELS": "lab:a,lab:b"},
			exitError,
			[]string{"lab: write lab=" + sim.URL() + " in LLM_COUNCIL_PROVIDERS"},
		},
		{
			"the address of calls",
			map[string]string{"BASE_URL": sim.URL() + "/chat/completions", "API_KEY": key, "MODELS": "a,b"},
			exitError,
			[]string{"set LLM_COUNCIL_BASE_URL=" + sim.URL() + "\n"},
		},
		{
			"nothing listens",
			map[string]string{"BASE_URL": "http://127.0.0.1:1/v1", "MODELS": "a,b"},
			exitError,
			[]string{"no connection to the provider at 127.0.0.1:1", "set LLM_COUNCIL_BASE_URL="},
		},
		{
			"a page",
			map[string]string{"BASE_URL": serving(t, 200, "<html>"), "MODELS": "a,b"},
			exitError,
			[]string{"no OpenAI-compatible provider", "LLM_COUNCIL_BASE_URL=https://HOST/v1"},
		},
		{
			"no list",
			map[string]string{"BASE_URL": serving(t, 404, "") + "/v1", "MODELS": "a,b"},
			exitOK,
			[]string{"unknown: it is reachable, and has no list of models", "Nothing is wrong."},
		},
		{
			"TLS to a plain port",
			map[string]string{"BASE_URL": strings.Replace(open, "http:", "https:", 1), "MODELS": "a,b"},
			exitError,
			[]string{"server gave HTTP response to HTTPS client", "set LLM_COUNCIL_BASE_URL="},
		},
		{
			"misspelt simulated models",
			map[string]string{"BASE_URL": sim.URL(), "MODELS": "sim:ambr,sim:birch", "CHAIRMAN": "sim:x"},
			exitError,
			[]string{
				"sim:ambr: write sim:amber in LLM_COUNCIL_MODELS\n", "sim:x: write another model in LLM_COUNCIL_CHAIRMAN", "sim       built in",
			},
		},
		{
			"simulated models with settings",
			map[string]string{"BASE_URL": sim.URL(), "MODELS": "sim:amber?accuracy=.7,sim:birch", "CHAIRMAN": "sim:cedar?accuracy=7"},
			exitError,
			[]string{"sim:amber?accuracy=.7  member    sim       ok\n", "sim:cedar?accuracy=7: accuracy is not a number from 0 to 1: write one"},
		},
		{
			"a misspelt provider",
			map[string]string{"BASE_URL": open, "MODELS": "ollama:llama3,a"},
			exitError,
			[]string{`no provider has the name "ollama"`, "add ollama=URL to LLM_COUNCIL_PROVIDERS"},
		},
		{
			"misspelt models of a roster",
			map[string]string{"BASE_URL": sim.URL(), "MODELS": "", "ROSTER": misspelt},
			exitError,
			[]string{"box:quic: write model: quick in the roster", "box:xyz: write another model in the roster"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			daemontest.Setenv(t, tt.env)
			code, stdout, stderr := command(t, "check")
			if code != tt.code {
				t.Errorf("exit %d, want %d: %s", code, tt.code, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("%q is not said", want)
				}
			}
			if strings.Contains(stdout+stderr, "sk-") {
				t.Error("a key is told")
			}
			if t.Failed() {
				t.Log(stdout)
			}
			if requests := sim.Stats().Models["a"].Requests; requests != 0 {
				t.Errorf("%d completions were asked for", requests)
			}
		})
	}
}

// underV1 starts a server that has the interface of a provider under /v1 only.
func underV1(t *testing.T, sim *simllm.Running) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			http.NotFound(w, r)
			return
		}
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// What a provider says is shown as text, and in JSON as it is. A long list takes no long time.
func TestCheckAHostileList(t *testing.T) {
	var list strings.Builder
	list.WriteString(`{"data":[{"id":"gpt\u001b[2J-5x"},{"id":"openai/gpt-4o"},{"id":"gemini\nlarge"}`)
	for i := range 10_000 {
		fmt.Fprintf(&list, `,{"id":"%064d"}`, i)
	}
	list.WriteString("]}")
	daemontest.Setenv(t, map[string]string{"BASE_URL": serving(t, 200, list.String()) + "/v1", "MODELS": "gpt-5,gpt-4o,gemini"})
	code, stdout, _ := command(t, "check")
	if code != exitError || strings.ContainsRune(stdout, 0x1b) {
		t.Errorf("exit %d: %q", code, stdout)
	}
	for _, want := range []string{
		"gpt-4o: write openai/gpt-4o in LLM_COUNCIL_MODELS", "gemini: write gemini large in LLM_COUNCIL_MODELS", "10003",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not said: %s", want, stdout)
		}
	}
	_, stdout, _ = command(t, "check", "--json")
	var checked daemon.Checked
	if err := json.Unmarshal([]byte(stdout), &checked); err != nil || checked.OK || len(checked.Models) != 3 ||
		*checked.Providers[0].Listed != 10_003 {
		t.Errorf("%v: %.1000s", err, stdout)
	}
	daemontest.Setenv(t, map[string]string{
		"BASE_URL": serving(t, 200, `{"data":[{"id":"`+strings.Repeat("x", 1<<20)+`"}]}`) + "/v1", "MODELS": "a,b",
	})
	if code, stdout, _ := command(t, "check"); code != exitError || !strings.Contains(stdout, "larger than 1048576 bytes") {
		t.Errorf("exit %d: %.1000s", code, stdout)
	}
}

// Settings that cannot be read end the check as every other command.
func TestCheckWithoutACouncil(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": ""})
	if code, _, stderr := command(t, "check"); code != exitUsage || !strings.Contains(stderr, "LLM_COUNCIL_MODELS: is not set") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
