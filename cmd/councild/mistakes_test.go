package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// mistake is what a user does wrong, and what has to be said then.
type mistake struct {
	name  string
	env   string // variables, without LLM_COUNCIL_ where they begin so, separated by blanks
	args  []string
	stdin string
	code  int
	wrong string // what the message names as wrong
	mend  string // what the message says to type
}

// TestMistakes plays the mistakes of new users against the binary. Each message names what is
// wrong and what to type. tools/mistakes.sh prints them all.
func TestMistakes(t *testing.T) {
	testkit.Slow(t)
	const key = "sk-the-right-key"
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: daemontest.Members(), APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	versioned := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			http.NotFound(w, r)
			return
		}
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(versioned.Close)
	moved := httptest.NewServer(http.RedirectHandler("https://council.test/", http.StatusMovedPermanently))
	t.Cleanup(moved.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	t.Cleanup(proxy.Close)
	behindProxy := "HTTP_PROXY=" + proxy.URL + " BASE_URL=http://models.corp.test/v1 MODELS=a,b"
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, file1 := file("empty.jsonl", ""), file("file", "x")
	held := filepath.Join(dir, "held.jsonl")
	d := startDaemon(t, daemontest.Members()[:2], "LLM_COUNCIL_BIAS_STORE="+held)
	t.Cleanup(func() { _ = d.Wait() }) // the end of the test's context kills it
	url := d.Base
	address := strings.TrimPrefix(url, "http://")
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	wrongKey := "BASE_URL=" + sim.URL() + " API_KEY=sk-another-key MODELS=a,b"
	noVersion := "BASE_URL=" + versioned.URL + " API_KEY=" + key + " MODELS=a,b"
	right := "BASE_URL=" + sim.URL() + " API_KEY=" + key + " MODELS=a,b"

	for i, m := range []mistake{
		{
			"a wrong key", wrongKey,
			[]string{"ask", "Why?"},
			"", 1,
			"401 Unauthorized", "councild check",
		},
		{
			"a wrong key, checked", wrongKey,
			[]string{"check"},
			"", 1,
			"it refuses the key", "set LLM_COUNCIL_API_KEY to a key of this provider",
		},
		{
			"no key", "MODELS=openai/gpt-5,openai/gpt-5-mini",
			[]string{"serve"},
			"", 2,
			"LLM_COUNCIL_API_KEY: is not set", "set it, or set LLM_COUNCIL_BASE_URL",
		},
		{
			"no /v1", noVersion,
			[]string{"ask", "Why?"},
			"", 1,
			"has no path", "write " + versioned.URL + "/v1",
		},
		{
			"no /v1, checked", noVersion,
			[]string{"check"},
			"", 1,
			"not at this address", "set LLM_COUNCIL_BASE_URL=" + versioned.URL + "/v1",
		},
		{
			"a misspelt model", "BASE_URL=" + sim.URL() + " API_KEY=" + key + " MODELS=a,bb",
			[]string{"check"},
			"", 1,
			"not among the 4 models", "write b in LLM_COUNCIL_MODELS",
		},
		{
			"a misspelt simulated model", "MODELS=sim:ambr,sim:birch",
			[]string{"serve"},
			"", 2,
			"no simulated model sim:ambr", "use sim:amber",
		},
		{"no models", "MODELS=", []string{"ask", "Why?"}, "", 2, "LLM_COUNCIL_MODELS: is not set", "list two or more models"},
		{"one model", "MODELS=sim:amber", []string{"serve"}, "", 2, "names one model", "list two or more"},
		{
			"a provider that does not run", "BASE_URL=http://" + nobody + "/v1 MODELS=a,b",
			[]string{"check"},
			"", 1,
			"connection refused", "start the provider if it is yours, or set LLM_COUNCIL_BASE_URL=",
		},
		{
			"a proxy that wants credentials, checked", behindProxy,
			[]string{"check"},
			"", 1,
			"wrong: the proxy at " + strings.TrimPrefix(proxy.URL, "http://") + " wants credentials", "write user and password into HTTP_PROXY, as in http://USER:PASSWORD@",
		},
		{
			"a proxy that wants credentials", behindProxy,
			[]string{"ask", "Why?"},
			"", 1,
			"the proxy at " + strings.TrimPrefix(proxy.URL, "http://") + " wants credentials", "write user and password into HTTP_PROXY, as in http://USER:PASSWORD@",
		},
		{
			"quotes of an env file, checked", "BASE_URL=" + sim.URL() + ` API_KEY="` + key + `" MODELS=a,b`,
			[]string{"check"},
			"", 1,
			"LLM_COUNCIL_API_KEY: has quotes", "remove them",
		},
		{"a misspelt variable", "MODLES=a,b", []string{"serve"}, "", 2, "LLM_COUNCIL_MODLES: there is no such setting", "LLM_COUNCIL_MODELS"},
		{"a time without a unit", right + " TIMEOUT=10", []string{"serve"}, "", 2, `LLM_COUNCIL_TIMEOUT: "10"`, "such as 30s or 10m"},
		{
			"a port that is taken", "MODELS=sim:amber,sim:birch ADDR=" + address,
			[]string{"serve"},
			"", 1,
			"address already in use", "name another address in LLM_COUNCIL_ADDR",
		},
		{
			"a store that another daemon holds", "MODELS=sim:amber,sim:birch BIAS_STORE=" + held,
			[]string{"serve"},
			"", 1,
			"is held by process", "LLM_COUNCIL_BIAS_STORE",
		},
		{
			"a directory that cannot be written", "MODELS=sim:amber,sim:birch BIAS_STORE=" + file1 + "/records.jsonl",
			[]string{"serve"},
			"", 1,
			"not a directory", "LLM_COUNCIL_BIAS_STORE",
		},
		{"an unknown command", "", []string{"aks", "Why?"}, "", 2, "unexpected argument aks", "councild --help"},
		{"an unknown flag", "", []string{"ask", "--modles", "a,b", "Why?"}, "", 2, "unknown flag --modles", "--models"},
		{
			"a question without quotes", right,
			[]string{"ask", "Why", "is", "it?"},
			"", 2, "unexpected argument is",
			`put the question in quotes: councild ask "`,
		},
		{"no question", right, []string{"ask"}, "", 2, "there is no question", `councild ask "Which way?"`},
		{
			"a question that is too long", right + " MAX_QUERY_BYTES=10",
			[]string{"ask"},
			"Why is the sky blue?", 2,
			"more than 10 bytes", "raise LLM_COUNCIL_MAX_QUERY_BYTES",
		},
		{"a file that is not there", right, []string{"ask", "--file", "none.txt"}, "", 2, "--file none.txt", "name a text file"},
		{
			"an unknown category", right,
			[]string{"ask", "--category", "poetry", "Why?"},
			"", 2,
			`--category: "poetry" is not a category`, "use coding, math",
		},
		{"a seed that is no number", right, []string{"ask", "--seed", "many", "Why?"}, "", 2, "--seed", "councild ask --help"},
		{"a negative seed", right, []string{"ask", "--seed=-2", "Why?"}, "", 2, "--seed: the seed is out of range", "from 0 to"},
		{
			"a negative cost", right,
			[]string{"ask", "--max-cost-usd=-1", "Why?"},
			"", 2, "--max-cost-usd: the limit is not positive",
			"give a number above 0",
		},
		{
			"a chairman that may not be asked", right,
			[]string{"ask", "--chairman", "c", "Why?"},
			"", 2,
			`--chairman: "c" is not a model that this council may use`, "add it to LLM_COUNCIL_ALLOWED_MODELS",
		},
		{
			"a daemon that does not run", "",
			[]string{"ask", "--server", nobody, "Why?"},
			"", 1, "no daemon answers at http://" + nobody,
			"councild serve",
		},
		{"no token", "", []string{"ask", "--server", url, "Why?"}, "", 1, "LLM_COUNCIL_API_TOKENS is not set here", "set it to a token"},
		{
			"a wrong token", "API_TOKENS=another-token-of-a-user",
			[]string{"ask", "--server", url, "Why?"},
			"", 1,
			"does not know the first of LLM_COUNCIL_API_TOKENS", "set it to a token of that daemon",
		},
		{
			"too much behind the address", "",
			[]string{"ask", "--server", url + "/v1/v1", "Why?"},
			"", 2,
			"names a place inside", "write --server " + url,
		},
		{
			"an address without a port", "",
			[]string{"ask", "--server", "localhost", "Why?"},
			"", 2,
			`"localhost" is no address`, "write --server http://HOST:PORT",
		},
		{
			"TLS to a plain port", "",
			[]string{"ask", "--server", "https://" + address, "Why?"},
			"", 1,
			"does not speak TLS", "write --server http://" + address,
		},
		{
			"not a daemon", "",
			[]string{"sessions", "list", "--server", versioned.URL},
			"", 1,
			"is no councild", "--server http://HOST:PORT",
		},
		{
			"a daemon behind a redirect", "",
			[]string{"ask", "--server", moved.URL, "Why?"},
			"", 1,
			"redirects to https://council.test", "write --server https://council.test",
		},
		{
			"an unknown session", "API_TOKENS=" + token,
			[]string{"sessions", "show", "none", "--server", url},
			"", 1,
			`no session "none"`, "councild sessions list --server " + url,
		},
		{"no day", "", []string{"report", "bias", "--since", "yesterday"}, "", 2, `yesterday`, "2026-"},
		{"an empty input", "", []string{"report", "bias", "--input", empty}, "", 0, "Nothing was recorded yet", "ask the council some questions"},
		{"records over others", "", []string{"store", "simulate", "--out", file1}, "", 2, file1 + " is there already", "--out names a new file"},
		{"an unknown shell", "", []string{"completion", "tcsh"}, "", 2, "tcsh", "bash"},
	} {
		t.Run(m.name, func(t *testing.T) { play(t, i+1, m, key) })
	}
}

// play makes a mistake and reads what is said.
func play(t *testing.T, number int, m mistake, secret string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"LLM_COUNCIL_ADDR=127.0.0.1:0"}
	var shown []string
	for assignment := range strings.FieldsSeq(m.env) {
		if !strings.HasPrefix(assignment, "HTTP_PROXY=") {
			assignment = "LLM_COUNCIL_" + assignment
		}
		env, shown = append(env, assignment), append(shown, assignment)
	}
	p := startProgramWith(t, cmp.Or(os.Getenv("COUNCILD_BINARY"), self), strings.NewReader(m.stdin), env, m.args...)
	said, err := io.ReadAll(io.MultiReader(p.stderr, p.stdout))
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // the exit code says it
	for i, arg := range m.args {
		if strings.ContainsAny(arg, " ?") {
			arg = fmt.Sprintf("%q", arg)
		}
		m.args[i] = arg
	}
	t.Logf("mistake %d, %s\n$ %s\n%sexit code %d\n", number, m.name,
		strings.Join(append(append(shown, "councild"), m.args...), " "), said, p.ProcessState.ExitCode())
	if code := p.ProcessState.ExitCode(); code != m.code {
		t.Errorf("exit code %d, want %d", code, m.code)
	}
	if !strings.Contains(string(said), m.wrong) {
		t.Errorf("it does not say what is wrong: %q", m.wrong)
	}
	if !strings.Contains(string(said), m.mend) {
		t.Errorf("it does not say what to type: %q", m.mend)
	}
	if strings.Contains(string(said), secret) || strings.Contains(string(said), token) || strings.Contains(string(said), "goroutine") {
		t.Error("a secret or a stack trace is told")
	}
}
