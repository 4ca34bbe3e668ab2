package daemon_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/telemetrytest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
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

// receive starts a receiver of OTLP over HTTP to which daemons send their traces.
func receive(t *testing.T) *telemetrytest.Spans {
	t.Helper()
	s := &telemetrytest.Spans{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil {
			t.Error(err)
		}
		s.Take(&sent)
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return s
}

func TestTraceOfASession(t *testing.T) {
	for _, content := range []bool{false, true} {
		telemetrytest.Session(t, receive(t), content)
	}
}

func TestTraceOfAResumedSession(t *testing.T) { telemetrytest.Resumed(t, receive(t)) }
