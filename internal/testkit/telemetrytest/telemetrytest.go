// Package telemetrytest runs sessions on a real daemon and checks the traces that arrive at a receiver. Each test has
// its own receiver, and sets the variables that make the daemon send traces there.
package telemetrytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Spans are the spans that a receiver got. Take adds to them.
type Spans struct {
	mu  sync.Mutex // guards all
	all []*otlp.Span
}

// Take adds the spans of one export.
func (s *Spans) Take(sent *collector.ExportTraceServiceRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			s.all = append(s.all, scope.GetSpans()...)
		}
	}
}

// clear removes all spans.
func (s *Spans) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}

// below returns the spans below a span, in the order of their names.
func (s *Spans) below(parent *otlp.Span) []*otlp.Span {
	var found []*otlp.Span
	for _, span := range s.all {
		if bytes.Equal(span.GetParentSpanId(), parent.GetSpanId()) && bytes.Equal(span.GetTraceId(), parent.GetTraceId()) {
			found = append(found, span)
		}
	}
	slices.SortStableFunc(found, func(a, b *otlp.Span) int { return strings.Compare(a.GetName(), b.GetName()) })
	return found
}

// tree returns the names of the spans below a span, each indented below its parent.
func (s *Spans) tree(parent *otlp.Span, indent string) string {
	var b strings.Builder
	for _, span := range s.below(parent) {
		fmt.Fprintf(&b, "%s%s\n%s", indent, span.GetName(), s.tree(span, indent+"  "))
	}
	return b.String()
}

// named returns the spans with a name.
func (s *Spans) named(name string) []*otlp.Span {
	return slices.DeleteFunc(slices.Clone(s.all), func(span *otlp.Span) bool { return span.GetName() != name })
}

// values returns attributes as a map.
func values(attributes []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.GetKey()] = v.IntValue
		case *common.AnyValue_DoubleValue:
			m[a.GetKey()] = v.DoubleValue
		case *common.AnyValue_BoolValue:
			m[a.GetKey()] = v.BoolValue
		case *common.AnyValue_ArrayValue:
			for _, each := range v.ArrayValue.GetValues() {
				m[a.GetKey()] = each.GetStringValue()
			}
		}
	}
	return m
}

// provider bills each reply. It refuses the first question to model a with a 503.
type provider struct {
	url string

	mu           sync.Mutex // guards traceparents
	traceparents []string   // of each request
}

// provide starts a provider, which ends with the test.
func provide(t *testing.T) *provider {
	t.Helper()
	sim, err := simllm.New(simllm.Options{Models: []simllm.Model{{Name: "a", Version: "a-1"}, {Name: "b"}, {Name: "c"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{}
	var refuse sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodPost { // A list of models is part of no session.
			p.mu.Lock()
			p.traceparents = append(p.traceparents, r.Header.Get("Traceparent"))
			p.mu.Unlock()
		}
		refused := false
		if bytes.Contains(body, []byte(`"model":"a"`)) {
			refuse.Do(func() {
				refused = true
				http.Error(w, "{}", http.StatusServiceUnavailable)
			})
		}
		if refused {
			return
		}
		reply := httptest.NewRecorder()
		sim.ServeHTTP(reply, r)
		var completion map[string]any
		if json.Unmarshal(reply.Body.Bytes(), &completion) != nil || completion["usage"] == nil { // a stream, or a list of models
			maps.Copy(w.Header(), reply.Header())
			_, _ = w.Write(reply.Body.Bytes())
			return
		}
		completion["id"] = "reply-1"
		completion["usage"] = map[string]any{
			"prompt_tokens": 400, "completion_tokens": 50, "cost": 0.25,
			"prompt_tokens_details":     map[string]any{"cached_tokens": 30, "cache_write_tokens": 20},
			"completion_tokens_details": map[string]any{"reasoning_tokens": 10},
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(completion); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// Session runs a session and checks its trace. A session is one tree of spans: the request, the session, its stages,
// their calls, and the requests of these. The names and values are those of OpenTelemetry's conventions. Texts are in
// the spans only if the standard variable asks for them, which Session does if content is true. Session returns the id
// of the session.
func Session(t *testing.T, s *Spans, content bool) (id string) {
	t.Helper()
	const secret = "What would a heron change?"
	s.clear()
	t.Setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", strconv.FormatBool(content))
	p := provide(t)
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": p.url, "MODELS": "a,b,c", "TEMPERATURE": "0.5", "MAX_OUTPUT_TOKENS": "2000",
	})
	body := fmt.Sprintf(`{"model":"council","user":"u-7","messages":[{"role":"user","content":%q}]}`, secret)
	status, data := d.Call(t, "POST", "/v1/chat/completions", body, "X-Request-Id", "r-1")
	var reply struct {
		ID      string
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(data, &reply); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	id = strings.TrimPrefix(reply.ID, "chatcmpl-")
	d.End(t)
	roots := s.named("POST /v1/chat/completions")
	if len(roots) != 1 {
		t.Fatalf("%d spans of requests", len(roots))
	}
	chats := func(models ...string) string {
		var tree strings.Builder
		for _, m := range models {
			fmt.Fprintf(&tree, "      chat %s\n        POST\n", m)
		}
		return tree.String()
	}
	want := "  invoke_workflow default\n" +
		"    stage1\n      chat a\n        POST\n        POST\n" + chats("b", "c") +
		"    stage2\n" + chats("a", "b", "c") + "    stage3\n" + chats("a")
	if got := s.tree(roots[0], "  "); got != want {
		t.Fatalf("the tree is\n%swant\n%s", got, want)
	}
	top := s.below(roots[0])[0]
	shared := map[string]any{
		"session.id": id, "gen_ai.conversation.id": id, "enduser.id": "u-7", "councild.request_id": "r-1",
	}
	has := func(what string, got, more map[string]any) {
		t.Helper()
		want := maps.Clone(shared)
		maps.Copy(want, more)
		if !maps.Equal(got, want) {
			t.Errorf("%s: got\n%v, want\n%v", what, got, want)
		}
	}
	has("session", values(top.GetAttributes()), map[string]any{
		"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "default",
		"councild.status": "complete", "councild.session.cost_usd": 1.75,
	})
	stages := s.below(top)
	has("stage", values(stages[0].GetAttributes()), map[string]any{"councild.stage": "stage1"})
	first := s.below(stages[0])[0]
	call := values(first.GetAttributes())
	if got := strings.Contains(fmt.Sprint(call["gen_ai.input.messages"]), secret); got != content {
		t.Errorf("content %v: %v", content, call["gen_ai.input.messages"])
	}
	const output = `[{"role":"assistant","parts":[{"type":"text","content":`
	if got := strings.HasPrefix(fmt.Sprint(call["gen_ai.output.messages"]), output); got != content {
		t.Errorf("content %v: %v", content, call["gen_ai.output.messages"])
	}
	delete(call, "gen_ai.input.messages")
	delete(call, "gen_ai.output.messages")
	has("call", call, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "default", "gen_ai.request.model": "a",
		"gen_ai.request.stream": false, "gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": int64(2000),
		"gen_ai.response.model": "a-1", "gen_ai.response.id": "reply-1", "gen_ai.response.finish_reasons": "stop",
		"gen_ai.usage.input_tokens": int64(400), "gen_ai.usage.output_tokens": int64(50),
		"gen_ai.usage.reasoning.output_tokens":     int64(10),
		"gen_ai.usage.cache_read.input_tokens":     int64(30),
		"gen_ai.usage.cache_creation.input_tokens": int64(20),
		"councild.cost_usd":                        0.25, "councild.attempts": int64(2),
		"councild.stage": "stage1", "councild.seat": "a",
	})
	for i, request := range s.below(first) {
		got := values(request.GetAttributes())
		status := []any{int64(503), int64(200)}[i]
		if got["http.response.status_code"] != status || got["http.request.resend_count"] != int64(i) ||
			got["server.address"] != "127.0.0.1" || got["http.request.method"] != "POST" ||
			(got["error.type"] == nil) != (i == 1) {
			t.Errorf("request %d: %v", i, got)
		}
	}
	evaluations := stages[1].GetEvents()
	if len(evaluations) != 6 { // three reviewers of two answers
		t.Fatalf("%d evaluations", len(evaluations))
	}
	for _, e := range evaluations {
		got := values(e.GetAttributes())
		score, _ := got["gen_ai.evaluation.score.value"].(float64)
		label, _ := got["gen_ai.evaluation.score.label"].(string)
		if e.GetName() != "gen_ai.evaluation.result" || got["gen_ai.evaluation.name"] != "review" || score < 1 || score > 10 ||
			got["gen_ai.response.id"] != "reply-1" || got["councild.reviewer"] == got["councild.answer"] ||
			!strings.HasSuffix(label, " of 2") {
			t.Errorf("%s: %v", e.GetName(), got)
		}
	}
	all := fmt.Sprint(s.all)
	if !content && (strings.Contains(all, "heron") || strings.Contains(all, reply.Choices[0].Message.Content[:20])) {
		t.Errorf("a text is in the spans: %s", all)
	}
	if line := fmt.Sprintf(`"trace_id":"%x"`, top.GetTraceId()); strings.Count(d.Log.String(), line) != 2 {
		t.Errorf("the log lacks %s: %s", line, d.Log.String())
	}
	// Each request to the provider named its own span.
	var exported []string
	for _, span := range s.named("POST") {
		exported = append(exported, fmt.Sprintf("00-%x-%x-01", span.GetTraceId(), span.GetSpanId()))
	}
	named := slices.Sorted(slices.Values(p.traceparents))
	slices.Sort(exported)
	if !slices.Equal(named, exported) {
		t.Errorf("requests named %v, but the spans are %v", named, exported)
	}
	// The request, the session, three stages, seven calls and eight requests.
	if len(s.all) != 20 {
		t.Errorf("%d spans", len(s.all))
	}
	return id
}

// Resumed begins a session in the background, has another process continue it, and checks its traces. It returns the
// session's id. Each process writes a trace of its own, with the session as the root. Each root has a link to the
// request's span.
func Resumed(t *testing.T, s *Spans) (id string) {
	t.Helper()
	s.clear()
	url, arrived, release := daemontest.Held(t)
	env := map[string]string{
		"BASE_URL": url, "MODELS": "waiting,quick", "DRAIN_TIMEOUT": "10ms",
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
	}
	d := daemontest.Start(t, env)
	status, data := d.Call(t, "POST", "/v1/council", `{"query":"Who continues?","background":true}`)
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, data)
	}
	id = session.ID
	<-arrived
	d.End(t)
	d = daemontest.Start(t, env)
	<-arrived
	release()
	daemontest.Until(t, func() bool {
		status, data := d.Call(t, "GET", "/v1/council/"+id, "")
		return status == http.StatusOK && json.Unmarshal(data, &session) == nil && session.Status == council.StatusComplete
	})
	d.End(t)
	request := s.named("POST /v1/council")
	roots := s.named("invoke_workflow default")
	if len(request) != 1 || len(roots) != 2 {
		t.Fatalf("%d requests, %d sessions", len(request), len(roots))
	}
	for i, root := range roots {
		links := root.GetLinks()
		if len(root.GetParentSpanId()) > 0 || bytes.Equal(root.GetTraceId(), request[0].GetTraceId()) || len(links) != 1 ||
			!bytes.Equal(links[0].GetSpanId(), request[0].GetSpanId()) ||
			!bytes.Equal(links[0].GetTraceId(), request[0].GetTraceId()) {
			t.Errorf("session %d: %v", i, root)
		}
		if got := values(root.GetAttributes()); got["session.id"] != id {
			t.Errorf("session %d: %v", i, got)
		}
	}
	if bytes.Equal(roots[0].GetTraceId(), roots[1].GetTraceId()) {
		t.Error("both processes wrote into one trace")
	}
	return id
}
