package mcpserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/doors/mcpserver"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/growth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tokenOne = "a-token-of-sixteen-and-more"
	tokenTwo = "another-token-of-sixteen"
	question = "Which way?"
)

// revisions are a revision with and one without the handshake initialize.
func revisions() []string { return []string{"2025-11-25", "2026-07-28"} }

// peer is a client of a daemon's POST /mcp.
type peer struct {
	*testing.T
	*mcp.ClientSession

	mu       sync.Mutex // guards progress
	progress []*mcp.ProgressNotificationParams
}

// connect connects to the server at an address with a token, "" for none.
func connect(t *testing.T, url, token, revision string) *peer {
	t.Helper()
	p := &peer{T: t}
	transport := &http.Transport{}
	var err error
	p.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.progress = append(p.progress, r.Params)
		},
	}).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer{transport, token}}, MaxRetries: -1,
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// bearer sends a token with every request.
type bearer struct {
	http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.RoundTripper.RoundTrip(r)
}

// call calls a tool. Its result may be an error.
func (p *peer) call(name string, arguments map[string]any) (r mcpserver.ToolResult, text string, isError bool) {
	p.Helper()
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	params.SetProgressToken("progress")
	result, err := p.CallTool(p.Context(), params)
	if err != nil {
		p.Fatalf("%s: %v", name, err)
	}
	if result.StructuredContent != nil {
		data, err := json.Marshal(result.StructuredContent)
		if err != nil {
			p.Fatal(err)
		}
		if err := json.Unmarshal(data, &r); err != nil {
			p.Fatal(err)
		}
	}
	var b strings.Builder
	for _, content := range result.Content {
		if part, ok := content.(*mcp.TextContent); ok {
			b.WriteString(part.Text)
		}
	}
	return r, b.String(), result.IsError
}

// must is call for a result that is no error.
func (p *peer) must(name string, arguments map[string]any) mcpserver.ToolResult {
	p.Helper()
	r, text, isError := p.call(name, arguments)
	if isError {
		p.Fatalf("%s: %s", name, text)
	}
	return r
}

// fails is call for a result that is an error, in these words.
func (p *peer) fails(name string, arguments map[string]any, words ...string) {
	p.Helper()
	_, text, isError := p.call(name, arguments)
	if !isError {
		p.Errorf("%s %v is no error: %s", name, arguments, text)
	}
	for _, want := range words {
		if !strings.Contains(text, want) {
			p.Errorf("%s: %q is missing: %s", name, want, text)
		}
	}
}

// calls is how many calls a provider has had.
func calls(sim *simllm.Running) (n int) {
	for _, m := range sim.Stats().Models {
		n += m.Requests
	}
	return n
}

func TestToolsAreDescribed(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	for _, revision := range revisions() {
		t.Run(revision, func(t *testing.T) {
			list, err := connect(t, d.URL(), "", revision).ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if revision == "2026-07-28" && list.CacheScope != "private" {
				t.Errorf("the list is cached as %q", list.CacheScope)
			}
			hints := map[string]string{}
			for _, tool := range list.Tools {
				h := fmt.Sprintf("read-only %t, idempotent %t", tool.Annotations.ReadOnlyHint, tool.Annotations.IdempotentHint)
				if d := tool.Annotations.DestructiveHint; d != nil {
					h += fmt.Sprintf(", destructive %t", *d)
				}
				hints[tool.Name] = fmt.Sprintf("%s, open %t", h, *tool.Annotations.OpenWorldHint)
				if tool.OutputSchema == nil || tool.Title == "" || tool.Description == "" {
					t.Errorf("%s lacks a description", tool.Name)
				}
				if tool.Name != "council" {
					continue
				}
				data, err := json.Marshal(tool.InputSchema)
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{`The only one has the members a, b.`, `"default":50`, `"maximum":600`, `"required":["question"]`, `"coding"`} {
					if !strings.Contains(string(data), want) {
						t.Errorf("the schema lacks %s: %s", want, data)
					}
				}
			}
			want := map[string]string{
				"convene":        "read-only false, idempotent true, destructive false, open true",
				"council":        "read-only false, idempotent false, destructive false, open true",
				"judge":          "read-only false, idempotent false, destructive false, open true",
				"council_result": "read-only true, idempotent true, open false",
				"council_cancel": "read-only false, idempotent true, destructive true, open false",
				"bias_report":    "read-only true, idempotent true, open false",
				"leaderboard":    "read-only true, idempotent true, open false",
			}
			if diff := cmp.Diff(want, hints); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A question is answered with the whole result, its progress and a link to the session.
func TestCouncil(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c"})
	for _, revision := range revisions() {
		t.Run(revision, func(t *testing.T) {
			p := connect(t, d.URL(), "", revision)
			params := &mcp.CallToolParams{Name: "council", Arguments: map[string]any{"question": question + revision, "category": "coding"}}
			params.SetProgressToken("progress")
			result, err := p.CallTool(t.Context(), params)
			if err != nil || result.IsError {
				t.Fatalf("%v %+v", err, result)
			}
			r := p.must("council", map[string]any{"question": question + revision, "category": "coding"})
			var session council.Session
			if _, data := d.Call(t, "GET", "/v1/council/"+r.SessionID, ""); json.Unmarshal(data, &session) != nil {
				t.Fatalf("the session is %s", data)
			}
			if r.Status != council.StatusComplete || r.Answer == nil || *r.Answer != session.Answer || r.Next != nil {
				t.Errorf("the result is %+v", r)
			}
			if len(r.Ranking) != 3 || *r.Ranking[0].Rank != 1 || r.Ranking[0].Model != session.Metadata.AggregateRankings[0].Model {
				t.Errorf("the ranking is %+v", r.Ranking)
			}
			text, ok := result.Content[0].(*mcp.TextContent)
			if !ok || !strings.HasPrefix(text.Text, strings.TrimSpace(session.Answer)) || !strings.Contains(text.Text, r.SessionID) {
				t.Errorf("the text is %+v", result.Content[0])
			}
			link, ok := result.Content[1].(*mcp.ResourceLink)
			if !ok {
				t.Fatalf("no link: %+v", result.Content[1])
			}
			read, err := p.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
			if err != nil {
				t.Fatal(err)
			}
			var linked council.Session
			if err := json.Unmarshal([]byte(read.Contents[0].Text), &linked); err != nil || linked.ID != r.SessionID || len(linked.Stage2) != 3 {
				t.Errorf("the resource is not the session: %v", err)
			}
			if revision == "2026-07-28" && read.CacheScope != "private" {
				t.Errorf("the session is cached as %q", read.CacheScope)
			}
			var refused *jsonrpc.Error
			_, err = p.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "council://sessions/unknown"})
			if !errors.As(err, &refused) || refused.Code != jsonrpc.CodeInvalidParams || !strings.Contains(refused.Message, "not found") {
				t.Errorf("an unknown session: %v", err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.progress) < 6 {
				t.Errorf("%d reports of progress", len(p.progress))
			}
			for i, report := range p.progress {
				if i > 0 && report.Progress <= p.progress[i-1].Progress || report.Total != 0 && report.Progress > report.Total {
					t.Errorf("report %d: %+v", i, report)
				}
			}
		})
	}
}

// The same question of the same token is paid for once, also when it is asked at once.
func TestPaidOnce(t *testing.T) {
	down := simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 400}}}
	sim := daemontest.Provider(t, append(daemontest.Members(), down)...)
	env := map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "API_TOKENS": tokenOne + "," + tokenTwo, "MAX_ATTEMPTS": "1"}
	d := daemontest.Start(t, env)
	p := connect(t, d.URL(), tokenOne, "2026-07-28")
	asked := func(more map[string]any) map[string]any {
		all := map[string]any{"question": question}
		maps.Copy(all, more)
		return all
	}
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() { ids[i] = p.must("council", asked(nil)).SessionID })
	}
	wg.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		t.Errorf("sessions %v", ids)
	}
	const perSession = 5 // two answers, two reviews, a synthesis
	if n := calls(sim); n != perSession {
		t.Errorf("%d calls, want %d", n, perSession)
	}
	if id := p.must("council", asked(map[string]any{"wait_seconds": 7})).SessionID; id != ids[0] {
		t.Error("another wait began another session")
	}
	first := ids[0]
	for name, arguments := range map[string]map[string]any{
		"fresh": asked(map[string]any{"fresh": true}), "fresh again": asked(map[string]any{"fresh": true}),
		"a category": asked(map[string]any{"category": "math"}), "a limit": asked(map[string]any{"max_cost_usd": 3}),
	} {
		if id := p.must("council", arguments).SessionID; id == first {
			t.Errorf("%s joined the first session", name)
		}
	}
	if id := connect(t, d.URL(), tokenTwo, "2026-07-28").must("council", asked(nil)).SessionID; id == first {
		t.Error("another token joined the session")
	}
	if n := calls(sim); n != 6*perSession {
		t.Errorf("%d calls, want %d", n, 6*perSession)
	}
}

// A session that failed or was cancelled is no answer to the same question.
func TestFailedSessionsAreNotJoined(t *testing.T) {
	var mu sync.Mutex
	broken := true
	models := daemontest.Members()
	for i := range models {
		models[i].Reply = func(simllm.Task) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			return "", broken // An empty reply is a failure.
		}
	}
	sim := daemontest.Provider(t, models...)
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "MAX_ATTEMPTS": "1"})
	p := connect(t, d.URL(), "", "2026-07-28")
	failed, text, isError := p.call("council", map[string]any{"question": question})
	if !isError || failed.Status != council.StatusFailed || !strings.Contains(text, "a: ") {
		t.Fatalf("%+v: %s", failed, text)
	}
	if _, again, _ := p.call("council_result", map[string]any{"session_id": failed.SessionID}); again != text {
		t.Errorf("the result says %q, the call said %q", again, text)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	if r := p.must("council", map[string]any{"question": question}); r.SessionID == failed.SessionID || r.Answer == nil {
		t.Errorf("after the failure: %+v", r)
	}
}

// The argument council names the council that is asked.
func TestCouncilByName(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	p := connect(t, d.URL(), "", "2026-07-28")
	if r := p.must("council", map[string]any{"question": question, "council": "default"}); r.Answer == nil {
		t.Errorf("got %+v", r)
	}
	if _, text, isError := p.call("council", map[string]any{"question": question, "council": "fast"}); !isError || !strings.Contains(text, "use default") {
		t.Errorf("a council that is not there: %s", text)
	}
}

// A call that is cut off, or waits no longer, leaves the session to the next one.
func TestResultAfterTheCall(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick", "API_TOKENS": tokenOne + "," + tokenTwo})
	for _, revision := range revisions() {
		p := connect(t, d.URL(), tokenOne, revision)
		asked := map[string]any{"question": question + revision}
		ctx, giveUp := context.WithCancel(t.Context())
		cut := make(chan error, 1)
		go func() {
			_, err := p.CallTool(ctx, &mcp.CallToolParams{Name: "council", Arguments: asked})
			cut <- err
		}()
		<-arrived
		giveUp()
		if err := <-cut; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the call that was cut off: %v", revision, err)
		}
		asked["wait_seconds"] = 0
		running := p.must("council", asked)
		if running.Status != council.StatusRunning || running.Next == nil {
			t.Fatalf("%s: %+v", revision, running)
		}
		if n := len(arrived); n != 0 {
			t.Errorf("%s: the question was asked again", revision)
		}
		other := connect(t, d.URL(), tokenTwo, revision)
		for _, tool := range []string{"council_result", "council_cancel"} {
			other.fails(tool, map[string]any{"session_id": running.SessionID}, "there is no session", running.SessionID)
		}
		if revision == revisions()[1] {
			release()
		} else {
			for range 2 {
				if r := p.must("council_cancel", map[string]any{"session_id": running.SessionID}); r.Status != council.StatusCancelled {
					t.Errorf("cancelled: %+v", r)
				}
			}
			continue
		}
		if r := p.must("council_result", map[string]any{"session_id": running.SessionID}); r.Status != council.StatusComplete || r.Answer == nil {
			t.Errorf("%s: %+v", revision, r)
		}
	}
}

func TestReports(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c"})
	p := connect(t, d.URL(), "", "2026-07-28")
	p.must("council", map[string]any{"question": question, "category": "math"})
	for tool, path := range map[string]string{"bias_report": "/v1/bias-report", "leaderboard": "/v1/leaderboard"} {
		result, err := p.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"days": 3, "category": "math"}})
		if err != nil || result.IsError {
			t.Fatalf("%s: %v %+v", tool, err, result)
		}
		want := map[string]any{}
		if _, data := d.Call(t, "GET", path+"?days=3&category=math", ""); json.Unmarshal(data, &want) != nil {
			t.Fatalf("%s", data)
		}
		got, ok := result.StructuredContent.(map[string]any)
		if !ok || len(got) != len(want) || len(got) == 0 {
			t.Errorf("%s: %v, want %v", tool, result.StructuredContent, want)
		}
		_, text := d.Call(t, "GET", path+"?days=3&category=math&format=text", "")
		if shown := result.Content[0].(*mcp.TextContent).Text; shown != string(text) {
			t.Errorf("%s: %s, want %s", tool, shown, text)
		}
	}
	p.fails("bias_report", map[string]any{"days": -1}, "days")
}

func TestPrompt(t *testing.T) {
	p := connect(t, daemontest.Start(t, nil).URL(), "", "2026-07-28")
	got, err := p.GetPrompt(t.Context(), &mcp.GetPromptParams{
		Name: "ask_council", Arguments: map[string]string{"question": question, "council": "deep"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := got.Messages[0].Content.(*mcp.TextContent).Text
	if !strings.HasSuffix(text, question) || !strings.Contains(text, `"deep"`) {
		t.Errorf("the prompt is %s", text)
	}
	_, err = p.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "ask_council"})
	if err == nil || !strings.Contains(err.Error(), "question") {
		t.Errorf("without a question: %v", err)
	}
}

// The errors of the HTTP interface are results with the same words.
func TestRefusals(t *testing.T) {
	env := daemontest.Roster(t, fmt.Sprintf("{members: [a, b]}\ntokens:\n  one: {sha256: %x, rate_limit: 2}",
		sha256.Sum256([]byte(tokenOne))), "a", "b")
	env["BASE_URL"] = daemontest.Quick(t)
	env["MAX_QUERY_BYTES"] = "100"
	d := daemontest.Start(t, env)
	p := connect(t, d.URL(), tokenOne, "2026-07-28")
	// It counts against the rate.
	p.fails("council", map[string]any{"question": strings.Repeat("x", 101)}, "question: ", "LLM_COUNCIL_MAX_QUERY_BYTES")
	p.must("council", map[string]any{"question": "x"})
	p.must("council", map[string]any{"question": "x"}) // joins, and so does not count
	p.fails("council", map[string]any{"question": "y"}, "rate_limit of the token")
	p.fails("council_result", map[string]any{"session_id": "x/../y"}, "there is no session")
	d.Token = "a-wrong-token-of-sixteen"
	resp, data, err := d.Send(t.Context(), "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("%v %v %s", resp, err, data)
	}
	// Clients that see metadata of OAuth drop the token that they were given.
	if challenge := resp.Header.Get("WWW-Authenticate"); challenge != `Bearer realm="councild"` {
		t.Errorf("the challenge is %s", challenge)
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server"} {
		if status, data := d.Call(t, "GET", path, ""); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, data)
		}
	}
}

// Arguments that nobody should send get an answer that says what is wrong, and cost no call.
func TestHostileArguments(t *testing.T) {
	sim := daemontest.Provider(t, daemontest.Members()...)
	d := daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b"})
	p := connect(t, d.URL(), "", "2026-07-28")
	for _, tt := range []struct {
		name      string
		arguments map[string]any
		words     string
	}{
		{"no question", map[string]any{}, "question"},
		{"an empty question", map[string]any{"question": ""}, "question"},
		{"a question of blanks", map[string]any{"question": " "}, "question"},
		{"a number as a question", map[string]any{"question": 3}, "question"},
		{"an unknown argument", map[string]any{"question": "x", "models": "y"}, "models"},
		{"a negative wait", map[string]any{"question": "x", "wait_seconds": -1}, "wait_seconds"},
		{"a wait that is too long", map[string]any{"question": "x", "wait_seconds": 601}, "wait_seconds"},
		{"a wait that is a text", map[string]any{"question": "x", "wait_seconds": "long"}, "wait_seconds"},
		{"a limit of nothing", map[string]any{"question": "x", "max_cost_usd": 0}, "max_cost_usd"},
		{"an unknown category", map[string]any{"question": "x", "category": "poetry"}, "category"},
		{"an unknown council", map[string]any{"question": "x", "council": "unknown"}, "council"},
		{"a large wait", map[string]any{"question": "x", "wait_seconds": strings.Repeat("9", 1<<19)}, "wait_seconds"},
		{"many arguments", many(), "additional properties"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, text, isError := p.call("council", tt.arguments)
			if !isError || !strings.Contains(text, tt.words) {
				t.Errorf("error %t: %.300s", isError, text)
			}
			if strings.HasPrefix(text, "validating") && !strings.HasSuffix(text, "describes") {
				t.Errorf("no remedy: %.300s", text)
			}
			if len(text) > 5<<10 {
				t.Errorf("the error has %d bytes", len(text))
			}
		})
	}
	_, err := p.CallTool(t.Context(), &mcp.CallToolParams{Name: "council_of_elders"})
	if err == nil || !strings.Contains(err.Error(), "council_of_elders") {
		t.Errorf("an unknown tool: %v", err)
	}
	if n := calls(sim); n != 0 {
		t.Errorf("%d calls were paid for", n)
	}
}

func many() map[string]any {
	all := map[string]any{"question": "x"}
	for i := range 20_000 {
		all[fmt.Sprint("a", i)] = i
	}
	return all
}

// Work on arguments takes time in proportion to them, and depth is bounded.
func TestHostileBodies(t *testing.T) {
	testkit.Slow(t)
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "MAX_QUERY_BYTES": "1KiB",
	}, func(c *config.Config) { c.MaxBodyBytes = 4 << 20 })
	send := func(arguments string) (int, []byte) {
		return d.Call(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"council","arguments":`+arguments+`}}`,
			"Accept", "application/json, text/event-stream")
	}
	for name, of := range map[string]func(n int) string{
		"a long question": func(n int) string { return `{"question":"` + strings.Repeat("x", n) + `"}` },
		"escapes":         func(n int) string { return `{"question":"` + strings.Repeat(`\u0041`, n/6) + `"}` },
		"a list":          func(n int) string { return `{"question":[` + strings.Repeat("1,", n/2) + `1]}` },
		"objects": func(n int) string {
			var b strings.Builder
			b.WriteString(`{"question":"x"`)
			for i := 0; b.Len() < n; i++ {
				fmt.Fprintf(&b, `,"a%d":1`, i)
			}
			return b.String() + "}"
		},
		"levels": func(n int) string {
			level := strings.Repeat("[", 28) + strings.Repeat("]", 28)
			return `{"question":[` + strings.Repeat(level+",", n/57) + `1]}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, func(n int) func() {
				arguments := of(n)
				return func() {
					if status, data := send(arguments); status != http.StatusOK || !strings.Contains(string(data), `"isError":true`) {
						t.Errorf("%d %.300s", status, data)
					}
				}
			})
		})
	}
	deep := func(n int) string { return `{"question":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	const around = 3 // the message, its params, and the arguments
	if status, data := send(deep(32 - around)); status != http.StatusOK || !strings.Contains(string(data), `"isError":true`) {
		t.Errorf("32 levels: %d %.300s", status, data)
	}
	for _, n := range []int{33 - around, 900, 500_000} {
		if status, data := send(deep(n)); status != http.StatusBadRequest || !strings.Contains(string(data), "32 levels deep") {
			t.Errorf("%d levels: %d %.300s", n+around, status, data)
		}
	}
	brackets := `{"question":"` + strings.Repeat(`[\"{`, 200) + `"}`
	if status, data := send(brackets); status != http.StatusOK {
		t.Errorf("brackets in a text: %d %.300s", status, data)
	}
}

// A caller that leaves ends its call, whatever the revision: nothing goes on in its place
// but the session.
func TestCallersThatLeave(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	s, err := mcpserver.New(mcpserver.Options{Daemon: client.Options{
		URL: "http://localhost", HTTP: &http.Client{Transport: mcpserver.InProcess(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
				left <- struct{}{}
			}))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, revision := range revisions() {
		ctx, leave := context.WithCancel(t.Context())
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{
			"name":"council_result","arguments":{"session_id":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":%q,
			"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, revision)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": revision,
			"Mcp-Method": "tools/call", "Mcp-Name": "council_result",
		} {
			req.Header.Set(name, value)
		}
		done := make(chan error, 1)
		go func() {
			resp, err := (&http.Client{Transport: transport}).Do(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			done <- err
		}()
		select {
		case <-asked:
		case err := <-done:
			t.Fatalf("%s: the call ended: %v", revision, err)
		}
		leave()
		<-left
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", revision, err)
		}
	}
}

// The councils of a roster are named to the model, and its choice is passed on as it is.
func TestCouncilsOfARoster(t *testing.T) {
	var councils []string
	for i := range 22 {
		councils = append(councils, fmt.Sprintf(`{"name":"council-%d","members":["a","b"]}`, i))
	}
	var bodies []string
	daemon := http.NewServeMux()
	daemon.HandleFunc("GET /v1/councils", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"councils":[%s]}`, strings.Join(councils, ","))
	})
	daemon.HandleFunc("POST /v1/council", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies = append(bodies, string(body))
		http.Error(w, "no", http.StatusTeapot)
	})
	s, err := mcpserver.New(mcpserver.Options{Daemon: client.Options{
		URL: "http://localhost", HTTP: &http.Client{Transport: mcpserver.InProcess(daemon)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	routes := http.NewServeMux()
	routes.Handle("POST /mcp", s)
	server := httptest.NewServer(routes)
	defer server.Close()
	p := connect(t, server.URL, "", "2026-07-28")
	list, err := p.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(list.Tools)
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{"There are: council-0 (a, b); council-1 (a, b);", "council-19 (a, b); and more."} {
		if !strings.Contains(string(data), named) {
			t.Errorf("%q is missing: %s", named, data)
		}
	}
	p.fails("council", map[string]any{"question": "x", "council": "council-1"}, "418")
	p.fails("council", map[string]any{"question": "x", "category": "math", "max_cost_usd": 0.5, "wait_seconds": 3}, "418")
	want := []string{
		`{"query":"x","council":"council-1","background":true}`, `{"query":"x","max_cost_usd":0.5,"category":"math","background":true}`,
	}
	if diff := cmp.Diff(want, bodies); diff != "" {
		t.Error(diff)
	}
}

// A response in this process is one like any other: with its status and headers, read
// while it is written, and broken off by a panic.
func TestInProcess(t *testing.T) {
	get := func(handle http.HandlerFunc) (*http.Response, string, error) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/x?y", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: mcpserver.InProcess(handle)}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		return resp, string(data), err
	}
	resp, body, err := get(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.RequestURI+" "+r.Host)
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "late")
		_, _ = io.WriteString(w, "one ")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "two")
	})
	if err != nil || body != "one two" || resp.Status != "418 I'm a teapot" {
		t.Errorf("%s %q %v", resp.Status, body, err)
	}
	if resp.Header.Get("X-Path") != "/x?y localhost" || resp.Header.Get("X-Late") != "" {
		t.Errorf("the headers are %v", resp.Header)
	}
	if resp, body, err = get(func(http.ResponseWriter, *http.Request) {}); err != nil || body != "" || resp.StatusCode != http.StatusOK {
		t.Errorf("nothing written: %s %q %v", resp.Status, body, err)
	}
	if _, body, err = get(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	}); !errors.Is(err, io.ErrUnexpectedEOF) || body != "half" {
		t.Errorf("a panic: %q %v", body, err)
	}
}

// Stdio ends with its input, and words what a person has to set.
func TestStdio(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "API_TOKENS": tokenOne})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for token, want := range map[string]string{tokenOne: "Session", "": "set the token: "} {
		s, err := mcpserver.New(mcpserver.Options{
			Daemon:  client.Options{URL: d.URL(), Token: token, HTTP: &http.Client{Transport: transport}},
			Explain: func(err error) error { return fmt.Errorf("set the token: %w", err) }, Version: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.Serve(t.Context(), in, out) }()
		p := &peer{T: t}
		p.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(
			t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, text, _ := p.call("council", map[string]any{"question": question}); !strings.Contains(text, want) {
			t.Errorf("the tool says %s", text)
		}
		_ = p.Close()
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the server goes on after the end of its input")
		}
	}
}
