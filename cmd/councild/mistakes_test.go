package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
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

// TestMistakes plays 50 or more mistakes of new users against the binary. Each message names the problem, and then
// what to type, in at most 200 characters. tools/mistakes.sh prints them all.
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
	behindProxy := "HTTP_PROXY=" + proxy.URL + " BASE_URL=http://models.corp.test/v1 MODELS=a,b,c"
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file1, picture := file("file", "x"), file("picture.png", "\x89PNG\xff")
	lines, ungraded := file("questions.txt", "Why?\n"), file("questions.jsonl", `{"id": "q1", "query": "Why?"}`+"\n")
	const roster = "version: 1\nmodels:\n  amber: {model: sim:amber}\ncouncils:\n  team: {member: [amber, amber]}\ndefault: team\n"
	misspelt, tab := file("misspelt.yaml", roster), file("tab.yaml", "version: 1\nmodels:\n\tamber: x\n")
	held := filepath.Join(dir, "held.jsonl")
	d := startDaemon(t, daemontest.Members()[:3], "LLM_COUNCIL_BIAS_STORE="+held)
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
	wrongKey := "BASE_URL=" + sim.URL() + " API_KEY=sk-another-key MODELS=a,b,c"
	noVersion := "BASE_URL=" + versioned.URL + " API_KEY=" + key + " MODELS=a,b,c"
	right := "BASE_URL=" + sim.URL() + " API_KEY=" + key + " MODELS=a,b,c"

	sims := "MODELS=sim:amber,sim:birch,sim:cedar"
	mistakes := []mistake{
		{
			"a wrong key", wrongKey,
			[]string{"ask", "Why?"},
			"", 1,
			"401 Unauthorized", "check the provider's API key",
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
			"LLM_COUNCIL_API_KEY: is not set", "set it, change LLM_COUNCIL_BASE_URL",
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
			"a misspelt model", "BASE_URL=" + sim.URL() + " API_KEY=" + key + " MODELS=a,c,bb",
			[]string{"check"},
			"", 1,
			"not among the 4 models", "write b in LLM_COUNCIL_MODELS",
		},
		{
			"a misspelt simulated model", "MODELS=sim:ambr,sim:birch,sim:cedar",
			[]string{"serve"},
			"", 2,
			"no simulated model sim:ambr", "use sim:amber",
		},
		{
			"the key of llm-council", "OPENROUTER_API_KEY=sk-or-x MODELS=openai/gpt-5,openai/gpt-5-mini",
			[]string{"serve"},
			"", 2,
			"LLM_COUNCIL_API_KEY: is not set", "set it to the value of OPENROUTER_API_KEY",
		},
		{"a mode of llm-council", sims + " MODE=consensus", []string{"serve"}, "", 2, `"consensus", which is not a mode`, "unset it"},
		{"its other mode", sims + " MODE=debate", []string{"serve"}, "", 2, `"debate", which is not a mode`, "unset it"},
		{"no models", "MODELS=", []string{"ask", "Why?"}, "", 2, "LLM_COUNCIL_MODELS: is not set", "list two or more models"},
		{"one model", "MODELS=sim:amber", []string{"serve"}, "", 2, "names one model", "list two or more"},
		{
			"a provider that does not run", "BASE_URL=http://" + nobody + "/v1 MODELS=a,b,c",
			[]string{"check"},
			"", 1,
			"connection refused", "start the provider if it is yours, or set LLM_COUNCIL_BASE_URL=",
		},
		{
			"a proxy that wants credentials, checked", behindProxy,
			[]string{"check"},
			"", 1,
			"wrong: the proxy at " + strings.TrimPrefix(proxy.URL, "http://") + " asks for a password", "write it into HTTP_PROXY, as in http://USER:PASSWORD@",
		},
		{
			"a proxy that wants credentials", behindProxy,
			[]string{"ask", "Why?"},
			"", 1,
			"the proxy at " + strings.TrimPrefix(proxy.URL, "http://") + " asks for a password", "write it into HTTP_PROXY, as in http://USER:PASSWORD@",
		},
		{
			"quotes of an env file, checked", "BASE_URL=" + sim.URL() + ` API_KEY="` + key + `" MODELS=a,b,c`,
			[]string{"check"},
			"", 1,
			"LLM_COUNCIL_API_KEY: has quotes", "remove them",
		},
		{"a misspelt variable", "MODLES=a,b", []string{"serve"}, "", 2, "LLM_COUNCIL_MODLES: there is no such setting", "LLM_COUNCIL_MODELS"},
		{"a time without a unit", right + " TIMEOUT=10", []string{"serve"}, "", 2, `LLM_COUNCIL_TIMEOUT: "10"`, "such as 30s or 10m"},
		{
			"a port that is taken", "MODELS=sim:amber,sim:birch,sim:cedar ADDR=" + address,
			[]string{"serve"},
			"", 1,
			"address already in use", "name another address in LLM_COUNCIL_ADDR",
		},
		{
			"a store that another daemon holds", "MODELS=sim:amber,sim:birch,sim:cedar BIAS_STORE=" + held,
			[]string{"serve"},
			"", 1,
			"is held by process", "stop that process",
		},
		{
			"a directory that cannot be written", "MODELS=sim:amber,sim:birch,sim:cedar BIAS_STORE=" + file1 + "/records.jsonl",
			[]string{"serve"},
			"", 1,
			"not a directory", "name a file in a directory",
		},
		{"an unknown command", "", []string{"aks", "Why?"}, "", 2, "unexpected argument aks", "write ask"},
		{"an unknown flag", "", []string{"ask", "--modles", "a,b", "Why?"}, "", 2, "unknown flag --modles", "write one of --models"},
		{
			"a question without quotes", right,
			[]string{"ask", "Why", "is", "it?"},
			"", 2, "unexpected argument is",
			`put the question in quotes: councild ask "`,
		},
		{"no question", right, []string{"ask"}, "", 2, "there is no question", `write councild ask "Which way?"`},
		{
			"a question that is too long", right + " MAX_QUERY_BYTES=10",
			[]string{"ask"},
			"Why is the sky blue?", 2,
			"more than 10 bytes", "raise LLM_COUNCIL_MAX_QUERY_BYTES",
		},
		{"a file that is not there", right, []string{"ask", "--file", "none.txt"}, "", 2, "--file none.txt", "name a readable text file"},
		{
			"an unknown category", right,
			[]string{"ask", "--category", "poetry", "Why?"},
			"", 2,
			`--category: "poetry" is not a category`, "use coding, math",
		},
		{"a seed that is no number", right, []string{"ask", "--seed", "many", "Why?"}, "", 2, `"many" is not a whole number`, "write digits only"},
		{"a negative seed", right, []string{"ask", "--seed=-2", "Why?"}, "", 2, "--seed: the seed is out of range", "from 0 to"},
		{
			"a negative cost", right,
			[]string{"ask", "--max-cost-usd=-1", "Why?"},
			"", 2, "--max-cost-usd: the limit is not above 0",
			"give a number above 0",
		},
		{
			"a chairman that may not be asked", right,
			[]string{"ask", "--chairman", "e", "Why?"},
			"", 2,
			`--chairman: "e" is not a model that this council may use`, "add it to LLM_COUNCIL_ALLOWED_MODELS",
		},
		{
			"a daemon that does not run", "",
			[]string{"ask", "--server", nobody, "Why?"},
			"", 1, "no daemon answers at http://" + nobody,
			"councild serve",
		},
		{"no token", "", []string{"ask", "--server", url, "Why?"}, "", 1, "asks for a token", "set LLM_COUNCIL_API_TOKENS here"},
		{
			"a wrong token", "API_TOKENS=another-token-of-a-user",
			[]string{"ask", "--server", url, "Why?"},
			"", 1,
			"does not know the first token of LLM_COUNCIL_API_TOKENS", "set it to one of its tokens",
		},
		{
			"too much behind the address", "",
			[]string{"ask", "--server", url + "/v1/v1", "Why?"},
			"", 2,
			"is a path inside the daemon", "write --server " + url,
		},
		{
			"an address without a port", "",
			[]string{"ask", "--server", "localhost", "Why?"},
			"", 2,
			`"localhost" is not the address of a daemon`, "write --server http://HOST:PORT",
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
			"is not councild", "--server http://HOST:PORT",
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
			`no session "none"`, "find its id with councild sessions list --server " + url,
		},
		{"no day", "", []string{"report", "bias", "--since", "yesterday"}, "", 2, `"yesterday" is not a time`, "write a day such as 2026-"},
		{"records over others", "", []string{"store", "simulate", "--out", file1}, "", 2, file1 + " is there already", "--out names a new file"},
		{"an unknown shell", "", []string{"completion", "tcsh"}, "", 2, `"tcsh" is not a choice`, "write one of bash"},
		{"a picture as a question", sims, []string{"ask", "--file", picture}, "", 2, "this is not text in UTF-8", "convert it to text"},
		{"a vote without a form", sims, []string{"ask", "--mode", "vote", "Why?"}, "", 2, "no form of the answers is given", "give one"},
		{"an unknown mode", sims, []string{"ask", "--mode", "rankd", "Why?"}, "", 2, `"rankd" is not a mode`, "use council, ranked"},
		{"one member", sims, []string{"ask", "--models", "sim:amber", "Why?"}, "", 2, "needs at least 2", "name two or more models"},
		{"all begin", sims, []string{"ask", "--first", "3", "Why?"}, "", 2, "3 of 3 members cannot begin", "give a whole number from 1 to 2"},
		{"a council without a roster", sims, []string{"ask", "--council", "fast", "Why?"}, "", 2, `"fast" is not a council`, "use default"},
		{
			"a dollar sign", sims,
			[]string{"ask", "--max-cost-usd", "$5", "Why?"},
			"", 2, `"$5" is not a number`, "write digits only",
		},
		{
			"an answer without an id", sims,
			[]string{"judge", "--question", "Why?", "--answer", "a.txt"},
			"", 2, "has no id", "write ID=PATH",
		},
		{
			"one answer to judge", sims,
			[]string{"judge", "--question", "Why?", "--answer", "a=" + file1},
			"", 2, "one answer cannot be compared", "give a rubric",
		},
		{
			"an unknown session to follow", "API_TOKENS=" + token,
			[]string{"ask", "--follow", "none", "--server", url},
			"", 1, `no session "none"`, "find its id with councild sessions list",
		},
		{
			"an unknown session to convene", "API_TOKENS=" + token,
			[]string{"ask", "--convene", "none", "--server", url},
			"", 1, `no session "none"`, "find its id with councild sessions list",
		},
		{"sessions without a command", "", []string{"sessions"}, "", 2, "a command is missing", "write one of list"},
		{
			"a batch without a limit", sims,
			[]string{"batch", "--file", ungraded, "--out", filepath.Join(dir, "out.jsonl")},
			"", 2, "--max-cost-usd", "write --max-cost-usd above 0",
		},
		{
			"questions that are no JSON", sims,
			[]string{"batch", "--file", lines, "--out", filepath.Join(dir, "out.jsonl"), "--max-cost-usd", "1"},
			"", 2, "line 1: not_json", "write one JSON object a line",
		},
		{
			"a comparison without references", sims,
			[]string{"compare", "--file", ungraded, "--out", filepath.Join(dir, "out.jsonl"), "--max-cost-usd", "1"},
			"", 2, "no right answers", "give each a reference and a grader",
		},
		{"a report on a directory", "", []string{"report", "bias", "--input", dir}, "", 1, "is a directory", "name its files"},
		{"a report on no file", "", []string{"report", "bias", "--input", dir + "/none"}, "", 1, "no such file", "name a file of records"},
		{"days with a unit", "", []string{"report", "bias", "--days", "7d"}, "", 2, `"7d" is not a whole number`, "write digits only"},
		{"a misspelt key", "", []string{"config", "roster", "check", misspelt}, "", 2, `has no key "member"`, "did you mean members?"},
		{"a tab", "", []string{"config", "roster", "check", tab}, "", 2, "this is not valid YAML", "blanks, not tabs"},
		{"a roster beside models", sims + " ROSTER=" + misspelt, []string{"serve"}, "", 2, "cannot be set together", "unset them"},
		{"a name of two words", "", []string{"config", "token", "a b"}, "", 2, "is not a name of a token", "write 1 to 32 letters"},
		{"a short token", sims + " API_TOKENS=secret", []string{"serve"}, "", 2, "has fewer than 16 characters", "use a long random text"},
		{"a port alone", sims + " ADDR=8080", []string{"serve"}, "", 2, `"8080" is not host:port`, "write it as in 127.0.0.1:8080"},
		{"a price with colons", sims + " PRICES=gpt:2:10", []string{"serve"}, "", 2, "is not MODEL=INPUT/OUTPUT", "write it as in"},
		{
			"a hard limit without a bound", sims + " COST_LIMITS=hard MAX_COST_USD_PER_DAY=1",
			[]string{"serve"},
			"", 2, "needs a limit for the cost of each session", "set LLM_COUNCIL_MAX_COST_USD",
		},
		{"a secret that is not there", sims + " API_KEY_FILE=none", []string{"serve"}, "", 2, "no such file", "write its whole path"},
		{"a quorum above the members", sims + " QUORUM=5", []string{"serve"}, "", 2, `"5" is out of range`, "use 1 to the number"},
	}
	const body, chat = `{"query": "Why?", `, `{"model": "council", "messages": [{"role": "user", "content": "Why?"}], `
	const tool = `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "council", "arguments": `
	requests := []badRequest{
		{"no token", "POST /v1/council", "Authorization: ", body + `"seed": 1}`, 401, "there is no token", "send a token"},
		{"no Bearer", "POST /v1/council", "Authorization: " + token, body + `"seed": 1}`, 401, "does not begin with Bearer", "send a token"},
		{"a name", "POST /v1/council", "Authorization: Bearer ada:" + token, body + `"seed": 1}`, 401, "no token with this name is known", "send a token"},
		{"a misspelt field", "POST /v1/council", "", `{"question": "Why?"}`, 422, "there is no such field", "correct its spelling"},
		{"a prompt", "POST /v1/council", "", `{"prompt": "Why?"}`, 422, "there is no such field", `write "query"`},
		{"the route of llm-council", "POST /v1/council/run", "", `{"prompt": "Why?"}`, 404, "there is nothing at /v1/council/run", "ask with POST /v1/council, and"},
		{"its stream", "GET /v1/council/stream?prompt=Why", "", "", 404, "there is nothing at /v1/council/stream", `"stream": true`},
		{"its health", "GET /health", "", "", 404, "there is nothing at /health", "ask /healthz"},
		{"single quotes", "POST /v1/council", "", `{'query': 'Why?'}`, 400, "not valid JSON", "send one object"},
		{"no body", "POST /v1/council", "", "", 400, "there is no body", "send a JSON object"},
		{"a text as a number", "POST /v1/council", "", body + `"max_cost_usd": "1"}`, 422, "the value is a text", "give a number"},
		{"a text as a list", "POST /v1/council", "", body + `"models": "a,b"}`, 422, "the value is a text", "give a list"},
		{
			"a stream in the background", "POST /v1/council", "", body + `"stream": true, "background": true}`, 422,
			"stream and background are both given", "leave one of them out",
		},
		{"a media type", "POST /v1/council", "Content-Type: text/plain", body + `"seed": 1}`, 415, `the body is "text/plain"`, "send application/json"},
		{"another origin", "POST /v1/council", "Origin: https://chat.test", body + `"seed": 1}`, 403, "pages of this origin", "add the origin"},
		{"a wrong method", "PUT /v1/council", "", "", 405, "PUT is not allowed", "use GET or POST"},
		{"no /v1", "POST /chat/completions", "", chat + `"n": 1}`, 404, "lacks /v1", "give the client"},
		{"/v1 twice", "POST /v1/v1/chat/completions", "", chat + `"n": 1}`, 404, "has /v1 twice", "give the client"},
		{"a provider's model", "POST /v1/chat/completions", "", strings.Replace(chat, "council", "gpt-4o", 1) + `"n": 1}`, 404, "does not exist", "use council"},
		{"tools", "POST /v1/chat/completions", "", chat + `"tools": [{"type": "function", "function": {"name": "f"}}]}`, 422, "calls no tools", "leave tools out"},
		{"no question", "POST /v1/responses", "", `{"model": "council"}`, 422, "there is no input", "give at least"},
		{"a decision on nothing", "POST /v1/decisions", "", `{"model": "council", "input": "x"}`, 422, "there are 0 questions", "give 1 to"},
		{"one answer", "POST /v1/judge", "", `{"question": "Why?", "answers": [{"id": "a", "text": "x"}]}`, 422, "one answer cannot be compared", "give a rubric"},
		{"a misspelt parameter", "GET /v1/bias-report?day=3", "", "", 422, "there is no such parameter", "use sessions, days"},
		{"an unknown status", "GET /v1/council?status=done", "", "", 422, `"done" is not a status`, "use one of running"},
		{"an old transport", "GET /mcp/sse", "", "", 404, "there is nothing at /mcp/sse", "give the client"},
		{"a wrong argument", "POST /mcp", "", tool + `{"query": "Why?"}}}`, 200, `unexpected additional properties ["query"]`, "call the tool with the arguments"},
		{"a batch", "POST /mcp", "", "[]", 400, "the message is a batch", "send each message alone"},
	}
	if n := len(mistakes) + len(requests); n < 50 {
		t.Errorf("%d mistakes, want 50 or more", n)
	}
	for i, m := range mistakes {
		t.Run(m.name, func(t *testing.T) { play(t, i+1, m, key, dir) })
	}
	for i, r := range requests {
		t.Run("HTTP: "+r.name, func(t *testing.T) { r.play(t, len(mistakes)+i+1, url) })
	}
}

// badRequest is a mistake in an HTTP request.
type badRequest struct {
	name   string
	route  string // the method and the path
	header string // in addition to those of a correct request
	body   string
	status int
	wrong  string
	mend   string
}

// play sends the request and reads what the daemon says.
func (r badRequest) play(t *testing.T, number int, url string) {
	t.Helper()
	method, path, _ := strings.Cut(r.route, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}
	if name, value, ok := strings.Cut(r.header, ": "); ok {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, event, ok := strings.Cut(string(data), "data: ")
	if ok {
		data = []byte(event)
	}
	var answer struct {
		Detail string
		Errors []council.FieldError
		Error  struct{ Message string }
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, cmp.Or(answer.Detail, answer.Error.Message))
	for _, f := range answer.Errors {
		fmt.Fprintf(&b, "%s: %s; %s\n", f.Field, f.Message, f.Fix)
	}
	for _, c := range answer.Result.Content {
		fmt.Fprintln(&b, c.Text)
	}
	said := b.String()
	t.Logf("mistake %d, %s\n$ curl -X %s $URL%s -H %q -d '%s'\n%sstatus %d\n", number, r.name, method, path, r.header, r.body, said, resp.StatusCode)
	if resp.StatusCode != r.status {
		t.Errorf("status %d, want %d", resp.StatusCode, r.status)
	}
	judgeMessage(t, said, r.wrong, r.mend, "")
}

// chosen matches addresses, which users choose.
var chosen = regexp.MustCompile(`(https?://)?127\.0\.0\.1:\d+[\w/-]*`)

// judgeMessage holds that a message names the problem, and then the remedy, in at most 200 characters. The message is
// the lines that contain them. In a table it is the cell. Addresses, and paths below dir, do not count, because
// the user has chosen them.
func judgeMessage(t *testing.T, said, wrong, mend, dir string) {
	t.Helper()
	problem, remedy := strings.Index(said, wrong), strings.Index(said, mend)
	switch {
	case problem < 0:
		t.Errorf("it does not say what is wrong: %q", wrong)
	case remedy < 0:
		t.Errorf("it does not say what to type: %q", mend)
	case remedy < problem:
		t.Error("the remedy comes before the problem")
	}
	if dir != "" {
		said = regexp.MustCompile(regexp.QuoteMeta(dir)+`[\w./-]*`).ReplaceAllString(said, "")
	}
	wrong, mend = chosen.ReplaceAllString(wrong, ""), chosen.ReplaceAllString(mend, "")
	message := ""
	for line := range strings.Lines(chosen.ReplaceAllString(said, "")) {
		for cell := range strings.SplitSeq(strings.TrimSpace(line), "  ") {
			if !strings.Contains(message, wrong) && strings.Contains(cell, wrong) ||
				!strings.Contains(message, mend) && strings.Contains(cell, mend) {
				message += cell
			}
			if n := utf8.RuneCountInString(cell); n > 200 {
				t.Errorf("a line of %d characters, at most 200 are allowed: %s", n, cell)
			}
		}
	}
	if n := utf8.RuneCountInString(message); n > 200 {
		t.Errorf("a message of %d characters, at most 200 are allowed: %s", n, message)
	}
}

// play makes a mistake and reads what is said.
func play(t *testing.T, number int, m mistake, secret, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"LLM_COUNCIL_ADDR=127.0.0.1:0"}
	var shown []string
	for assignment := range strings.FieldsSeq(m.env) {
		if !strings.HasPrefix(assignment, "HTTP_PROXY=") && !strings.HasPrefix(assignment, "OPENROUTER_API_KEY=") {
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
	judgeMessage(t, string(said), m.wrong, m.mend, dir)
	if strings.Contains(string(said), secret) || strings.Contains(string(said), token) || strings.Contains(string(said), "goroutine") {
		t.Error("a secret or a stack trace is told")
	}
}
