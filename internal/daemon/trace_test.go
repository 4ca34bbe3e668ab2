package daemon_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Requests to providers say who sends them. With traces, each also names the span of its call, as it is exported; without
// them, none does.
func TestOutgoingHeaders(t *testing.T) {
	for _, traced := range []bool{true, false} {
		var mu sync.Mutex
		var exported bytes.Buffer
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			exported.Write(body)
		}))
		t.Cleanup(collector.Close)
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
		if traced {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
		}
		sim, err := simllm.New(simllm.Options{Models: []simllm.Model{{Name: "a"}, {Name: "b"}, {Name: "c"}}})
		if err != nil {
			t.Fatal(err)
		}
		var headers []http.Header
		provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost { // a list of models is part of no session
				mu.Lock()
				headers = append(headers, r.Header.Clone())
				mu.Unlock()
			}
			sim.ServeHTTP(w, r)
		}))
		t.Cleanup(provider.Close)
		d := daemontest.Start(t, map[string]string{"BASE_URL": provider.URL, "MODELS": "a,b,c"})
		const question = `{"query":"What would change?"}`
		if status, body := d.Call(t, "POST", "/v1/council", question); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		d.End(t)
		mu.Lock()
		defer mu.Unlock()
		spans := map[string]bool{}
		for _, h := range headers {
			if agent := h.Get("User-Agent"); agent != "councild/test (+https://github.com/councild/councild)" {
				t.Errorf("User-Agent %q", agent)
			}
			parts := strings.Split(h.Get("Traceparent"), "-")
			if !traced {
				if h.Get("Traceparent") != "" {
					t.Errorf("without traces: %v", parts)
				}
				continue
			}
			if len(parts) != 4 || parts[0] != "00" || parts[3] != "01" {
				t.Fatalf("traceparent %v", parts)
			}
			spans[parts[2]] = true
			// The fields trace_id and span_id of a span in OTLP's Protocol Buffers.
			for tag, id := range map[string]string{"\x0a\x10": parts[1], "\x12\x08": parts[2]} {
				raw, err := hex.DecodeString(id)
				if err != nil || !bytes.Contains(exported.Bytes(), append([]byte(tag), raw...)) {
					t.Errorf("%s stands in no exported span: %v", id, err)
				}
			}
		}
		if len(headers) != 7 || traced && len(spans) != 7 {
			t.Errorf("%d requests with %d spans", len(headers), len(spans))
		}
	}
}

// spans receives traces over OTLP and HTTP.
type spans struct {
	mu  sync.Mutex
	all []*otlp.Span
}

// receive starts a receiver to which daemons send their traces.
func receive(t *testing.T) *spans {
	t.Helper()
	s := &spans{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				s.all = append(s.all, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return s
}

// below returns the spans below a span, in the order of their names.
func (s *spans) below(parent *otlp.Span) []*otlp.Span {
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
func (s *spans) tree(parent *otlp.Span, indent string) string {
	var b strings.Builder
	for _, span := range s.below(parent) {
		fmt.Fprintf(&b, "%s%s\n%s", indent, span.GetName(), s.tree(span, indent+"  "))
	}
	return b.String()
}

// named returns the spans with a name.
func (s *spans) named(name string) []*otlp.Span {
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

// costly starts a provider that bills each reply. It refuses the first question to model a with a 503.
func costly(t *testing.T) string {
	t.Helper()
	sim, err := simllm.New(simllm.Options{Models: []simllm.Model{{Name: "a", Version: "a-1"}, {Name: "b"}, {Name: "c"}}})
	if err != nil {
		t.Fatal(err)
	}
	var refuse sync.Once
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
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
	t.Cleanup(provider.Close)
	return provider.URL
}

// A session is one tree of spans: the request, the session, its stages, their calls, and the requests of these. The names
// and values are those of OpenTelemetry's conventions. Texts are in the spans only if the standard variable asks for them.
func TestTraceOfASession(t *testing.T) {
	const secret = "What would a heron change?"
	for _, content := range []string{"", "true"} {
		t.Setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", content)
		s := receive(t)
		d := daemontest.Start(t, map[string]string{"BASE_URL": costly(t), "MODELS": "a,b,c", "TEMPERATURE": "0.5", "MAX_OUTPUT_TOKENS": "2000"})
		body := fmt.Sprintf(`{"model":"council","user":"u-7","messages":[{"role":"user","content":%q}]}`, secret)
		status, data := d.Call(t, "POST", "/v1/chat/completions", body, "X-Request-Id", "r-1")
		var reply struct {
			ID      string
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(data, &reply); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, data)
		}
		id := strings.TrimPrefix(reply.ID, "chatcmpl-")
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
		want := "invoke_workflow default\n" +
			"    stage1\n      chat a\n        POST\n        POST\n" + chats("b", "c") +
			"    stage2\n" + chats("a", "b", "c") + "    stage3\n" + chats("a")
		if diff := cmp.Diff(want, s.tree(roots[0], "  ")[2:]); diff != "" {
			t.Fatal(diff)
		}
		top := s.below(roots[0])[0]
		shared := map[string]any{
			"session.id": id, "gen_ai.conversation.id": id, "enduser.id": "u-7",
			"councild.request_id": "r-1",
		}
		has := func(what string, got map[string]any, more map[string]any) {
			t.Helper()
			want := maps.Clone(shared)
			maps.Copy(want, more)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", what, diff)
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
		if got := strings.Contains(fmt.Sprint(call["gen_ai.input.messages"]), secret); got != (content != "") {
			t.Errorf("content %q: %v", content, call["gen_ai.input.messages"])
		}
		if content != "" && !strings.HasPrefix(call["gen_ai.output.messages"].(string), `[{"role":"assistant","parts":[{"type":"text","content":`) {
			t.Errorf("output %v", call["gen_ai.output.messages"])
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
			if e.GetName() != "gen_ai.evaluation.result" || got["gen_ai.evaluation.name"] != "review" || score < 1 || score > 10 ||
				got["gen_ai.response.id"] != "reply-1" || got["councild.reviewer"] == got["councild.answer"] ||
				!strings.HasSuffix(got["gen_ai.evaluation.score.label"].(string), " of 2") {
				t.Errorf("%s: %v", e.GetName(), got)
			}
		}
		all := fmt.Sprint(s.all)
		if content == "" && (strings.Contains(all, "heron") || strings.Contains(all, reply.Choices[0].Message.Content[:20])) {
			t.Errorf("a text is in the spans: %s", all)
		}
		if line := fmt.Sprintf(`"trace_id":"%x"`, top.GetTraceId()); strings.Count(d.Log.String(), line) != 2 {
			t.Errorf("the log lacks %s: %s", line, d.Log.String())
		}
		// The request, the session, three stages, seven calls and eight requests.
		if len(s.all) != 20 {
			t.Errorf("%d spans", len(s.all))
		}
	}
}

// A session in the background is the root of a trace of its own, and so is each continuation by another process. Each
// root has a link to the span of the request that asked.
func TestTraceOfAResumedSession(t *testing.T) {
	s := receive(t)
	url, arrived, release := daemontest.Held(t)
	env := map[string]string{
		"BASE_URL": url, "MODELS": "waiting,quick", "DRAIN_TIMEOUT": "10ms",
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
	}
	d := daemontest.Start(t, env)
	id := background(t, d, "Who continues?")
	<-arrived
	d.End(t)
	d = daemontest.Start(t, env)
	<-arrived
	release()
	if got := lastStatus(t, d, id); got != council.StatusComplete {
		t.Fatalf("the session ended as %s", got)
	}
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
}
