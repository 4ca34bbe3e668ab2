package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
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
				"BASE_URL": open, "MODELS": "a,b", "CHAIRMAN": "c", "ALLOWED_MODELS": "a,d",
			},
			exitOK,
			[]string{"member, allowed ", "member ", "chairman ", "allowed "},
		},
		{
			"a list for all",
			map[string]string{"BASE_URL": open, "API_KEY": key, "MODELS": "a,b"},
			exitOK,
			[]string{" untested  4 ", "Nothing is wrong with what could be tested. Not tested: the key of default.\n"},
		},
		{
			"a list for all, without a key",
			map[string]string{"BASE_URL": open, "MODELS": "a,b"},
			exitOK,
			[]string{" none  4 ", "\nNothing is wrong.\n"},
		},
		{
			"a list for all, and a key that is right",
			map[string]string{"BASE_URL": router(t, key, `{"data":{"label":"x","limit_remaining":null}}`), "API_KEY": key, "MODELS": "~x/a,~x/b"},
			exitOK,
			[]string{" accepted  3 ", "\nNothing is wrong.\n"},
		},
		{
			"a list for all, and a wrong key",
			map[string]string{"BASE_URL": router(t, key, ""), "API_KEY": "sk-wrong-one", "MODELS": "~x/a,~x/b"},
			exitError,
			[]string{" refused  3 ", "wrong: it refuses the key: ", "default: set LLM_COUNCIL_API_KEY to a key of this provider"},
		},
		{
			"a key that has spent its limit",
			map[string]string{"BASE_URL": router(t, key, `{"data":{"label":"x","limit":5,"limit_remaining":0}}`), "API_KEY": key, "MODELS": "~x/a,~x/b"},
			exitError,
			[]string{" accepted  3 ", "wrong: the key has spent its limit", "raise the limit of the key at the provider"},
		},
		{
			"a key for keys",
			map[string]string{"BASE_URL": router(t, key, `{"data":{"label":"x","is_management_key":true}}`), "API_KEY": key, "MODELS": "~x/a,~x/b"},
			exitError,
			[]string{"the key manages other keys, and may call no model"},
		},
		{
			"a misspelt alias",
			map[string]string{"BASE_URL": router(t, key, `{"data":{"label":"x"}}`), "API_KEY": key, "MODELS": "~x/a,~x/bb"},
			exitError,
			[]string{"~x/bb: write ~x/b in LLM_COUNCIL_MODELS"},
		},
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
			[]string{
				"unknown: it is reachable, and has no list of models",
				"Nothing is wrong with what could be tested. Not tested: the model a, the model b.\n",
			},
		},
		{
			"no list, and a key",
			map[string]string{"BASE_URL": serving(t, 404, "") + "/v1", "API_KEY": key, "MODELS": "a,b"},
			exitOK,
			[]string{"Nothing is wrong with what could be tested. Not tested: the key of default, the model a, the model b.\n"},
		},
		{
			"no models, as Ollama says it",
			map[string]string{"PROVIDERS": "local=" + serving(t, 200, `{"object":"list","data":null}`) + "/v1", "MODELS": "local:llama3:8b,local:qwen3:14b"},
			exitError,
			[]string{"wrong: it lists no models", "local: load models there: with Ollama, ollama pull llama3:8b\n"},
		},
		{
			"an empty list",
			map[string]string{"BASE_URL": serving(t, 200, `{"data":[]}`) + "/v1", "MODELS": "a,b"},
			exitError,
			[]string{"wrong: it lists no models", "ollama pull a\n"},
		},
		{
			"a model that ends",
			map[string]string{"BASE_URL": listing(t, "a", inDays(13), "b", inDays(61)), "MODELS": "a,b"},
			exitOK,
			[]string{"ok: its provider shuts it down on " + inDays(13), "a: write another model in LLM_COUNCIL_MODELS\n", "\nNothing is wrong yet.\n"},
		},
		{
			"a model that has ended",
			map[string]string{"BASE_URL": listing(t, "a", inDays(-3), "b", ""), "MODELS": "b,c", "CHAIRMAN": "a"},
			exitError,
			[]string{"wrong: its provider shut it down on " + inDays(-3), "a: write another model in LLM_COUNCIL_CHAIRMAN\n"},
		},
		{
			"versions of a model, and another one",
			map[string]string{"BASE_URL": listing(t, "gpt-x-2026-08-07", "", "claude-x-20260807", "", "x-4-0613", "", "y-1", ""), "MODELS": "gpt-x,claude-x,x-4,y"},
			exitError,
			[]string{
				"unknown: its provider lists gpt-x-2026-08-07, and may know this name as the newest version", "lists claude-x-20260807", "lists x-4-0613",
				"y         member            default   wrong: it is not among the 4 models",
			},
		},
		{
			"a version that is not listed",
			map[string]string{"BASE_URL": listing(t, "gpt-x", "", "b", ""), "MODELS": "gpt-x-2026-08-07,b"},
			exitError,
			[]string{"gpt-x-2026-08-07  member, chairman  default   wrong: it is not among the 2 models"},
		},
		{
			"a part of a list",
			map[string]string{"BASE_URL": serving(t, 200, `{"data":[{"id":"a"}],"has_more":true}`) + "/v1", "MODELS": "a,b"},
			exitOK,
			[]string{"b      member            default   unknown: its provider listed a part of its models only"},
		},
		{
			"rules of a gateway",
			map[string]string{"BASE_URL": listing(t, "openai/*", ""), "MODELS": "openai/x,anthropic/y"},
			exitError,
			[]string{"openai/x     member, chairman  default   ok\n", "anthropic/y  member            default   wrong"},
		},
		{
			"quotes of an env file",
			map[string]string{"BASE_URL": open, "MODELS": `"a,b"`},
			exitError,
			[]string{`"a: write a in LLM_COUNCIL_MODELS`},
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

// router starts a provider of the models ~x/a, ~x/b and c whose list everybody may read, and that tests the right key.
func router(t *testing.T, key, said string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"~x/a"},{"id":"~x/b"},{"id":"c"}]}`))
		case r.URL.Path == "/api/v1/key" && r.Header.Get("Authorization") == "Bearer "+key:
			_, _ = w.Write([]byte(said))
		default:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"User not found.","code":401}}`))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/api/v1"
}

// listing starts a provider that lists models with the days on which they end, "" for none.
func listing(t *testing.T, modelsAndDays ...string) string {
	t.Helper()
	var cards []string
	for i := 0; i < len(modelsAndDays); i += 2 {
		cards = append(cards, fmt.Sprintf(`{"id":%q,"shutdown_date":%q}`, modelsAndDays[i], modelsAndDays[i+1]))
	}
	return serving(t, 200, `{"object":"list","data":[`+strings.Join(cards, ",")+`]}`) + "/v1"
}

// inDays returns the day in so many days.
func inDays(days int) string { return time.Now().UTC().AddDate(0, 0, days).Format(time.DateOnly) }

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
		"BASE_URL": serving(t, 200, `{"data":[{"id":"`+strings.Repeat("x", 8<<20)+`"}]}`) + "/v1", "MODELS": "a,b",
	})
	if code, stdout, _ := command(t, "check"); code != exitError || !strings.Contains(stdout, "larger than 8388608 bytes") {
		t.Errorf("exit %d: %.1000s", code, stdout)
	}
}

// The check says what is likely to be wrong with the settings, and JSON has what could not be tested and when models end.
func TestCheckWarns(t *testing.T) {
	daemontest.Setenv(t, map[string]string{
		"BASE_URL": listing(t, "a", inDays(13), "b", ""), "API_KEY": `"sk-test-000000000000"`, "MODELS": "a,b", "MODE": "synthesis",
	})
	code, stdout, stderr := command(t, "check", "--json")
	if code != exitOK || !strings.Contains(stderr, "councild: warning: a setting is probably wrong: "+
		"LLM_COUNCIL_API_KEY: has quotes") ||
		strings.Contains(stdout+stderr, "sk-test") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	var checked daemon.Checked
	if err := json.Unmarshal([]byte(stdout), &checked); err != nil {
		t.Fatal(err)
	}
	if !checked.OK || len(checked.Warnings) != 1 || !slices.Equal(checked.Untested, []string{"the key of default"}) ||
		checked.Models[0].Ends == nil || *checked.Models[0].Ends != inDays(13) || checked.Models[1].Ends != nil {
		t.Errorf("%s", stdout)
	}
}

// Settings that cannot be read end the check as every other command.
func TestCheckWithoutACouncil(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": ""})
	if code, _, stderr := command(t, "check"); code != exitUsage || !strings.Contains(stderr, "LLM_COUNCIL_MODELS: is not set") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
