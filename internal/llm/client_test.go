package llm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options returns options that suit most tests.
func options(providers ...llm.Provider) llm.Options {
	return llm.Options{
		Providers: providers, AttemptTimeout: 30 * time.Second, DialTimeout: 5 * time.Second,
		MaxCallsPerProvider: 64, MaxReplyBytes: 1 << 20,
	}
}

func newClient(t *testing.T, o llm.Options) *llm.Client {
	t.Helper()
	c, err := llm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// startSim starts a simulated provider.
func startSim(t *testing.T, o simllm.Options) *simllm.Running {
	t.Helper()
	sim, err := simllm.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return sim
}

// serve starts a provider that is one handler.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func question(model string) council.Call {
	return council.Call{
		Stage: council.Stage1, Model: model,
		Messages: []council.Message{{Role: council.RoleUser, Content: "Why is the sky blue?"}},
	}
}

// failed calls the model and returns its failure.
func failed(t *testing.T, c *llm.Client, call council.Call) (council.Completion, *council.Failure) {
	t.Helper()
	completion, err := c.Complete(t.Context(), call)
	f, ok := errors.AsType[*council.Failure](err)
	if !ok {
		t.Fatalf("got %v, want a failure", err)
	}
	return completion, f
}

func TestComplete(t *testing.T) {
	sim := startSim(t, simllm.Options{APIKey: "k", Models: []simllm.Model{{Name: "m", Price: simllm.Price{Input: 1, Output: 1}}}})
	c := newClient(t, options(llm.Provider{BaseURL: sim.URL(), APIKey: "k"}))
	got, err := c.Complete(t.Context(), question("m"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got.Text, "Simulated answer.") || got.FinishReason != "stop" || got.Attempts != 1 || got.LatencyMS <= 0 {
		t.Errorf("got %+v", got)
	}
	u := got.Usage
	if u.InputTokens == nil || u.OutputTokens == nil || u.CostUSD == nil || *u.InputTokens < 1 || *u.OutputTokens < 1 || *u.CostUSD <= 0 {
		t.Errorf("usage %+v", u)
	}
}

func TestUnknownCostIsNull(t *testing.T) {
	sim := startSim(t, simllm.Options{Models: []simllm.Model{{Name: "m"}}})
	c := newClient(t, options(llm.Provider{BaseURL: sim.URL()}))
	got, err := c.Complete(t.Context(), question("m"))
	if err != nil || got.Usage.CostUSD != nil || got.Usage.InputTokens == nil {
		t.Errorf("got %+v, %v", got.Usage, err)
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		fault       simllm.Fault
		want        council.FailureCode
		status      int
		retryAfter  float64
		message     string
		usageIsZero bool
	}{
		{
			fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 400}, want: council.FailRejected, status: 400, message: "simulated",
			usageIsZero: true,
		},
		{fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 401}, want: council.FailUnauthorized, status: 401, usageIsZero: true},
		{fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 402}, want: council.FailOutOfQuota, status: 402, usageIsZero: true},
		{fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 403}, want: council.FailRejected, status: 403, usageIsZero: true},
		{fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 404}, want: council.FailUnknownModel, status: 404, usageIsZero: true},
		{
			fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 429, RetryAfter: "2"}, want: council.FailRateLimited, status: 429,
			retryAfter: 2, usageIsZero: true,
		},
		{fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 500}, want: council.FailUnavailable, status: 500},
		{fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 529}, want: council.FailUnavailable, status: 529},
		{fault: simllm.Fault{Kind: simllm.FaultHugeError}, want: council.FailUnavailable, status: 500},
		{fault: simllm.Fault{Kind: simllm.FaultHTML}, want: council.FailBadResponse, status: 200},
		{fault: simllm.Fault{Kind: simllm.FaultHalfJSON}, want: council.FailBadResponse, status: 200},
		{fault: simllm.Fault{Kind: simllm.FaultErrorIn200}, want: council.FailBadResponse, status: 200, message: "simulated"},
		{fault: simllm.Fault{Kind: simllm.FaultEmptyObject}, want: council.FailBadResponse, status: 200},
		{fault: simllm.Fault{Kind: simllm.FaultNull}, want: council.FailBadResponse, status: 200},
		{fault: simllm.Fault{Kind: simllm.FaultNoChoices}, want: council.FailBadResponse, status: 200},
		{fault: simllm.Fault{Kind: simllm.FaultHugeBody, Size: 2 << 20}, want: council.FailTooLarge},
		{fault: simllm.Fault{Kind: simllm.FaultNullContent}, want: council.FailEmpty},
		{fault: simllm.Fault{Kind: simllm.FaultEmptyContent}, want: council.FailEmpty},
		{fault: simllm.Fault{Kind: simllm.FaultReasoningOnly}, want: council.FailEmpty},
		{fault: simllm.Fault{Kind: simllm.FaultRefusalField}, want: council.FailRefused},
		{fault: simllm.Fault{Kind: simllm.FaultContentFilter}, want: council.FailContentFilter},
		{fault: simllm.Fault{Kind: simllm.FaultReset}, want: council.FailConnection},
		{fault: simllm.Fault{Kind: simllm.FaultResetBody}, want: council.FailReset},
		{fault: simllm.Fault{Kind: simllm.FaultEOFBody}, want: council.FailTruncated},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.fault.Kind, tt.fault.Status), func(t *testing.T) {
			tt.fault.Rate = 1
			sim := startSim(t, simllm.Options{Models: []simllm.Model{{Name: "m", Faults: []simllm.Fault{tt.fault}}}})
			completion, got := failed(t, newClient(t, options(llm.Provider{BaseURL: sim.URL()})), question("m"))
			if got.Code != tt.want {
				t.Errorf("code %s, want %s (%s)", got.Code, tt.want, got.Message)
			}
			if status := deref(got.HTTPStatus); status != tt.status {
				t.Errorf("HTTP status %d, want %d", status, tt.status)
			}
			if wait := deref(got.RetryAfterS); wait != tt.retryAfter {
				t.Errorf("retry after %v, want %v", wait, tt.retryAfter)
			}
			if !strings.Contains(strings.ToLower(got.Message), tt.message) || got.Message == "" || len(got.Message) > 1<<10 {
				t.Errorf("message of %d bytes: %.100q", len(got.Message), got.Message)
			}
			if zero := cmp.Equal(completion.Usage, council.NoUsage()); zero != tt.usageIsZero {
				t.Errorf("usage %+v", completion.Usage)
			}
			if completion.Attempts != 1 {
				t.Errorf("%d attempts", completion.Attempts)
			}
			// The next call must not read the rest of this reply.
			if n := sim.Stats().Models["m"].Requests; n != 1 {
				t.Errorf("the provider saw %d requests, want 1", n)
			}
		})
	}
}

// An answer that ends at the token limit is returned: its use is the caller's decision.
func TestLength(t *testing.T) {
	sim := startSim(t, simllm.Options{Models: []simllm.Model{{Name: "m", Faults: []simllm.Fault{{Kind: simllm.FaultLength, Rate: 1}}}}})
	got, err := newClient(t, options(llm.Provider{BaseURL: sim.URL()})).Complete(t.Context(), question("m"))
	if err != nil || got.FinishReason != "length" || got.Text == "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRouting(t *testing.T) {
	here := startSim(t, simllm.Options{Models: []simllm.Model{{Name: "llama3:8b"}, {Name: "x/y:free"}, {Name: ":odd"}}})
	there := startSim(t, simllm.Options{Models: []simllm.Model{{Name: "llama3:8b"}}})
	c := newClient(t, options(llm.Provider{BaseURL: here.URL()}, llm.Provider{Name: "other", BaseURL: there.URL()}))
	for _, model := range []string{"llama3:8b", "x/y:free", ":odd", "other:llama3:8b"} {
		if _, err := c.Complete(t.Context(), question(model)); err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
	if n := there.Stats().Models["llama3:8b"].Requests; n != 1 {
		t.Errorf("the named provider saw %d requests, want 1", n)
	}
	only := newClient(t, options(llm.Provider{Name: "other", BaseURL: there.URL()}))
	completion, f := failed(t, only, question("llama3:8b"))
	if f.Code != council.FailUnknownProvider || completion.Attempts != 0 {
		t.Errorf("got %v, %d attempts", f, completion.Attempts)
	}
}

func TestRequestBody(t *testing.T) {
	var body map[string]any
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body = nil
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("a provider without key was sent %q", got)
		}
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}]}`)
	})
	c := newClient(t, options(llm.Provider{BaseURL: url}))
	// The library would drop a temperature of 0, and refuse one for this model.
	call := question("gpt-5")
	call.Temperature, call.MaxOutputTokens = new(0.0), new(7)
	completion, err := c.Complete(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"model": "gpt-5", "temperature": 0.0, "max_tokens": 7.0, "stream": false,
		"messages": []any{map[string]any{"role": "user", "content": "Why is the sky blue?"}},
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
	if completion.Usage != (council.Usage{}) || completion.FinishReason != "" || completion.Finish() != nil {
		t.Errorf("what the provider did not tell was made up: %+v", completion)
	}
	if _, err := c.Complete(t.Context(), question("m")); err != nil {
		t.Fatal(err)
	}
	if _, ok := body["temperature"]; ok || body["max_tokens"] != nil {
		t.Errorf("sampling parameters were sent unasked: %v", body)
	}
}

// A model that refuses to stream is asked again without a stream, at once, and not for one
// after that. Its text comes in one piece. A refusal for another reason stays one.
func TestStreamRefused(t *testing.T) {
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: []simllm.Model{
		{Name: "refuses", API: simllm.API{NoStream: true}},
		{Name: "both", API: simllm.API{NoStream: true, ResponseFormat: simllm.FormatRefused}},
		{Name: "fails", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 400, Rate: 1}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	c := newClient(t, options(llm.Provider{BaseURL: sim.URL()}))
	call := func(model string) (council.Completion, []string, error) {
		var pieces []string
		k := question(model)
		k.OnDelta = func(text string) { pieces = append(pieces, text) }
		k.OnRestart = func(council.FailureCode) { t.Error("nothing was told, and it is taken back") }
		if model == "both" {
			k.Stage, k.Format = council.Stage2, &council.Format{Name: "ballot", Strict: true, Schema: []byte(`{"type":"object"}`)}
		}
		got, err := c.Complete(t.Context(), k)
		return got, pieces, err
	}
	for _, tt := range []struct {
		model    string
		attempts int
	}{{"refuses", 2}, {"refuses", 1}, {"both", 3}, {"both", 1}} {
		got, pieces, err := call(tt.model)
		if err != nil || got.Attempts != tt.attempts || len(pieces) != 1 || pieces[0] != got.Text || got.Text == "" {
			t.Errorf("%s: %d attempts, %d pieces, %v", tt.model, got.Attempts, len(pieces), err)
		}
	}
	if got, _, err := call("fails"); err == nil || got.Attempts != 1 {
		t.Errorf("another refusal: %d attempts, %v", got.Attempts, err)
	}
}

func TestReplyFormat(t *testing.T) {
	var mu sync.Mutex
	var formats []any
	sim, err := simllm.New(simllm.Options{Models: []simllm.Model{
		{Name: "takes", API: simllm.API{ResponseFormat: simllm.FormatHonoured}},
		{Name: "refuses", API: simllm.API{ResponseFormat: simllm.FormatRefused}},
		{Name: "picky", API: simllm.API{ResponseFormat: simllm.FormatRefused}},
		{Name: "fails", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 400, Rate: 1}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, options(llm.Provider{BaseURL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var body map[string]any
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		formats = append(formats, body["response_format"])
		mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(raw))
		sim.ServeHTTP(w, r)
	})}))
	call := func(model string) (council.Completion, error) {
		formats = nil
		k := question(model)
		k.Stage, k.Format = council.Stage2, &council.Format{Name: "ballot", Strict: true, Schema: []byte(`{"type":"object"}`)}
		return c.Complete(t.Context(), k)
	}
	want := map[string]any{
		"type":        "json_schema",
		"json_schema": map[string]any{"name": "ballot", "strict": true, "schema": map[string]any{"type": "object"}},
	}
	if _, err := call("takes"); err != nil || !cmp.Equal(formats, []any{want}) {
		t.Errorf("%v: sent %v", err, formats)
	}
	// After one refusal, the format is never sent to that model again.
	if got, err := call("refuses"); err != nil || got.Attempts != 2 || !cmp.Equal(formats, []any{want, nil}) || got.Text == "" {
		t.Errorf("%v: sent %v, %d attempts", err, formats, got.Attempts)
	}
	if got, err := call("refuses"); err != nil || got.Attempts != 1 || !cmp.Equal(formats, []any{nil}) {
		t.Errorf("%v: sent %v, %d attempts", err, formats, got.Attempts)
	}
	if _, err := call("takes"); err != nil || !cmp.Equal(formats, []any{want}) {
		t.Errorf("%v: sent %v", err, formats)
	}
	// The schema of a caller teaches nothing: the next one may be taken.
	callers := question("picky")
	callers.Stage, callers.Format = council.Stage3, &council.Format{Name: "mine", Schema: []byte(`{"type":"object"}`)}
	for range 2 {
		if got, err := c.Complete(t.Context(), callers); err != nil || got.Attempts != 2 {
			t.Errorf("%v after %d attempts", err, got.Attempts)
		}
	}
	// A model that fails without the format too has not refused it.
	for range 2 {
		if got, err := call("fails"); council.AsFailure(err).Code != council.FailRejected || got.Attempts != 2 ||
			!cmp.Equal(formats, []any{want, nil}) {
			t.Errorf("%v: sent %v, %d attempts", err, formats, got.Attempts)
		}
	}
}

func TestKeyIsRedacted(t *testing.T) {
	const key = "sk-very-secret"
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"Incorrect API key provided: `+key+`, `+strings.Repeat("ä", 2000)+`"}}`)
	})
	_, f := failed(t, newClient(t, options(llm.Provider{BaseURL: url, APIKey: key})), question("m"))
	if strings.Contains(f.Message, key) || !strings.Contains(f.Message, "[key]") || len(f.Message) > 1<<10 ||
		strings.ToValidUTF8(f.Message, "") != f.Message {
		t.Errorf("message of %d bytes: %q", len(f.Message), f.Message)
	}
}

func TestErrorBodies(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"one"}}`:             ": one",
		`{"error":"two"}`:                         ": two",
		`{"message":"three"}`:                     ": three",
		`{"detail":"four"}`:                       ": four",
		`[{"error":{"code":5,"message":"five"}}]`: ": five",
		`{"error":{"message":["six","seven"]}}`:   ": six, seven",
		`{"error":null,"message":null}`:           "",
		`<html>`:                                  "",
		``:                                        "",
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, body)
		})
		_, f := failed(t, newClient(t, options(llm.Provider{BaseURL: url})), question("m"))
		if want := "the provider at " + strings.TrimPrefix(url, "http://") + " answered 503 Service Unavailable" + want; f.Message != want {
			t.Errorf("%s: got %q, want %q", body, f.Message, want)
		}
	}
}

// A short key is no secret, and may be a part of words in the message.
func TestShortKeysAreNotRedacted(t *testing.T) {
	for _, key := range []string{"a", "EMPTY", "ollama"} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"EMPTY was a bad idea of ollama"}}`)
		})
		_, f := failed(t, newClient(t, options(llm.Provider{BaseURL: url, APIKey: key})), question("m"))
		if !strings.HasSuffix(f.Message, "400 Bad Request: EMPTY was a bad idea of ollama") {
			t.Errorf("key %q: %q", key, f.Message)
		}
	}
}

// HTTP 404 may come from a base URL that is not complete.
func TestNotFoundNamesTheBaseURL(t *testing.T) {
	const hint = "most providers have theirs under /v1"
	url := serve(t, http.NotFound)
	for path, hinted := range map[string]bool{"": true, "/api": true, "/v1": false, "/v1beta/openai": false} {
		_, f := failed(t, newClient(t, options(llm.Provider{BaseURL: url + path})), question("m"))
		if f.Code != council.FailUnknownModel || strings.Contains(f.Message, hint) != hinted ||
			hinted && !strings.Contains(f.Message, url+path+" ") {
			t.Errorf("%q: %v", path, f)
		}
	}
}

// A status that HTTP does not define is a failure, whose message does not hold the body.
func TestStrangeStatus(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 000 Odd\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret")
	})
	_, f := failed(t, newClient(t, options(llm.Provider{BaseURL: "http://" + listener.Addr().String()})), question("m"))
	if f.Code != council.FailBadResponse || strings.Contains(f.Message, "%!") || strings.Contains(f.Message, "secret") {
		t.Errorf("got %v", f)
	}
}

// The address that was configured is named; those of this machine and of its
// resolver are not.
func TestNoConnection(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	completion, f := failed(t, newClient(t, options(llm.Provider{BaseURL: "http://" + address})), question("m"))
	if want := "no connection to the provider at " + address + ": connect: connection refused"; f.Code != council.FailConnection ||
		f.Message != want {
		t.Errorf("got %v, want %s", f, want)
	}
	if !cmp.Equal(completion.Usage, council.NoUsage()) {
		t.Errorf("usage %+v", completion.Usage)
	}
}

// After a certificate that is not trusted there is no further attempt.
func TestCertificatesAreNotRetried(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	plain := serve(t, http.NotFound)
	for url, reason := range map[string]string{
		server.URL: "certificate", strings.Replace(plain, "http:", "https:", 1): "HTTP response to HTTPS client",
	} {
		o := options(llm.Provider{BaseURL: url})
		o.MaxAttempts = 3
		completion, f := failed(t, newClient(t, o), question("m"))
		if f.Code != council.FailConnection || !strings.Contains(f.Message, reason) || completion.Attempts != 1 ||
			!cmp.Equal(completion.Usage, council.NoUsage()) {
			t.Errorf("%v after %d attempts, usage %+v", f, completion.Attempts, completion.Usage)
		}
	}
	if connections.Load() != 1 {
		t.Errorf("%d connections, want 1", connections.Load())
	}
}

// An answer must be JSON to its end, and hold visible text.
func TestNoAnswers(t *testing.T) {
	whole := func(content string) string { return `{"choices":[{"message":{"content":"` + content + `"}}]}` }
	for body, want := range map[string]council.FailureCode{
		whole("x") + " \r\n":                                  "",
		whole("x") + "{}":                                     council.FailBadResponse,
		whole("x") + "<!-- cached -->":                        council.FailBadResponse,
		whole("x") + "\x00":                                   council.FailBadResponse,
		whole(`\u200b`):                                       council.FailEmpty,
		whole("\u200b\u200c\ufeff \u00ad"):                    council.FailEmpty,
		whole(`\u3164\u2800\u0301`):                           council.FailEmpty,
		whole(`\u200b.`):                                      "",
		whole(strings.Repeat("\u200b", 22_000) + "x"):         council.FailEmpty,
		whole("\u2705"):                                       "",
		whole("\u0301e"):                                      "",
		`{"choices":[{"index":1,"message":{"content":"x"}}]}`: council.FailBadResponse,
		`{"choices":[{"index":1,"message":{"content":"y"}},{"index":0,"message":{"content":"x"}}]}`: "",
	} {
		c := newClient(
			t, options(llm.Provider{BaseURL: serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })}),
		)
		got, err := c.Complete(t.Context(), question("m"))
		var code council.FailureCode
		if f := council.AsFailure(err); f != nil {
			code = f.Code
		}
		if code != want || strings.Contains(got.Text, "y") {
			t.Errorf("%q: %q, %v, want %q", body, got.Text, err, want)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Bool
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { followed.Store(true) })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
	})
	_, f := failed(t, newClient(t, options(llm.Provider{BaseURL: url, APIKey: "k"})), question("m"))
	if f.Code != council.FailRejected || deref(f.HTTPStatus) != 307 || followed.Load() {
		t.Errorf("got %v, followed: %v", f, followed.Load())
	}
}

func TestTimeoutAndCancel(t *testing.T) {
	sim := startSim(t, simllm.Options{Models: []simllm.Model{{Name: "m", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}}})
	o := options(llm.Provider{BaseURL: sim.URL()})
	o.AttemptTimeout = 50 * time.Millisecond
	_, f := failed(t, newClient(t, o), question("m"))
	if f.Code != council.FailTimeout || f.Message != "the attempt timed out" {
		t.Errorf("got %v", f)
	}

	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("the stage is over"))
	defer cancel()
	c := newClient(t, options(llm.Provider{BaseURL: sim.URL()}))
	completion, err := c.Complete(ctx, question("m"))
	if f := council.AsFailure(err); f.Code != council.FailTimeout || f.Message != "the stage is over" {
		t.Errorf("got %v", f)
	}
	if completion.Usage != (council.Usage{}) {
		t.Errorf("the usage of a call that was cut off is unknown, got %+v", completion.Usage)
	}

	arrived, closed := make(chan struct{}), make(chan struct{})
	c = newClient(t, options(llm.Provider{BaseURL: serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is the client's going noticed
		arrived <- struct{}{}
		<-r.Context().Done()
		close(closed)
	})}))
	cancelled, stop := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Complete(cancelled, question("m"))
		done <- err
	}()
	<-arrived
	stop(errors.New("the client is gone"))
	if f := council.AsFailure(<-done); f.Code != council.FailCancelled || !strings.Contains(f.Message, "the client is gone") {
		t.Errorf("got %v", f)
	}
	<-closed // the provider sees it

	// No request is sent for a caller that has left, and a call that its stage went on
	// without is not reported as cancelled.
	for cause, want := range map[error]council.FailureCode{
		errors.New("the client is gone"): council.FailCancelled, council.ErrCut: council.FailCut,
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(cause)
		completion, err := c.Complete(ctx, question("m"))
		if f := council.AsFailure(err); f.Code != want || completion.Attempts != 0 || !strings.Contains(f.Message, cause.Error()) {
			t.Errorf("%v after %d attempts", f, completion.Attempts)
		}
	}
}

func TestConnectionsAreReused(t *testing.T) {
	for _, fault := range []simllm.FaultKind{"", simllm.FaultStatus, simllm.FaultLateEnd} {
		t.Run("fault "+string(fault), func(t *testing.T) {
			m := simllm.Model{Name: "m"}
			if fault != "" {
				m.Faults = []simllm.Fault{{Kind: fault, Rate: 1, Status: 400, Delay: time.Millisecond}}
			}
			sim := startSim(t, simllm.Options{Models: []simllm.Model{m}})
			c := newClient(t, options(llm.Provider{BaseURL: sim.URL()}))
			const parallel = 4
			for range 10 {
				var wg sync.WaitGroup
				for range parallel {
					wg.Go(func() { _, _ = c.Complete(t.Context(), question("m")) })
				}
				wg.Wait()
			}
			stats := sim.Stats()
			// a dial may win against a connection that is just coming back
			if stats.Models["m"].Requests != 10*parallel || stats.Connections > 2*parallel {
				t.Errorf("%d requests over %d connections, want at most %d", stats.Models["m"].Requests, stats.Connections, 2*parallel)
			}
		})
	}
}

func TestCallsInFlightAreLimited(t *testing.T) {
	const calls, limit = 12, 3
	var now, most atomic.Int64
	arrived, release := make(chan struct{}, calls), make(chan struct{})
	o := options(llm.Provider{BaseURL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		arrived <- struct{}{}
		<-release
		now.Add(-1)
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}]}`)
	})})
	o.MaxCallsPerProvider = limit
	c := newClient(t, o)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			if _, err := c.Complete(t.Context(), question("m")); err != nil {
				t.Error(err)
			}
		})
	}
	for range limit {
		<-arrived
	}
	// All places are taken: a call that waits for one ends with its context.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	completion, err := c.Complete(ctx, question("m"))
	if council.AsFailure(err).Code != council.FailCancelled || completion.Attempts != 0 {
		t.Errorf("got %v after %d attempts", err, completion.Attempts)
	}
	for range calls - limit {
		release <- struct{}{}
		<-arrived
	}
	close(release)
	wg.Wait()
	if most.Load() != limit {
		t.Errorf("%d calls at once, want %d", most.Load(), limit)
	}
}

func TestNewRefuses(t *testing.T) {
	valid := options(llm.Provider{BaseURL: "http://127.0.0.1:1"})
	for name, mutate := range map[string]func(*llm.Options){
		"no providers":    func(o *llm.Options) { o.Providers = nil },
		"a name twice":    func(o *llm.Options) { o.Providers = append(o.Providers, o.Providers[0]) },
		"no absolute URL": func(o *llm.Options) { o.Providers = []llm.Provider{{BaseURL: "/v1"}} },
		"negative calls":  func(o *llm.Options) { o.Providers = []llm.Provider{{BaseURL: "http://127.0.0.1:1", MaxCalls: -1}} },
		"no time":         func(o *llm.Options) { o.AttemptTimeout = 0 },
		"no calls":        func(o *llm.Options) { o.MaxCallsPerProvider = 0 },
	} {
		o := valid
		mutate(&o)
		if _, err := llm.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := llm.New(valid); err != nil {
		t.Error(err)
	}
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
