package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// scrape returns the lines of the metrics that begin with councild_.
func scrape(t *testing.T, m *Metrics) map[string]bool {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "councild_") {
			lines[strings.TrimSpace(line)] = true
		}
	}
	return lines
}

func TestMetrics(t *testing.T) {
	m := NewMetrics("v1", func() []council.Breaker {
		return []council.Breaker{
			{Provider: "one", Model: "a", State: council.BreakerClosed},
			{Provider: "one", Model: "b", State: council.BreakerOpen},
			{Provider: "two", Model: "a", State: council.BreakerHalfOpen},
		}
	})
	call := council.Call{Stage: council.Stage1, Model: "a", Messages: []council.Message{{Role: "user", Content: "a secret"}}}
	good := fixed{completion: council.Completion{Text: "a secret", Implausible: 2, Spent: council.Spent{
		LatencyMS: 1500, Attempts: 3, Usage: council.Usage{InputTokens: new(int64(40)), OutputTokens: new(int64(0))},
	}}}
	limited := fixed{
		completion: council.Completion{Spent: council.Spent{Attempts: 1, Usage: council.Usage{InputTokens: new(int64(2))}}},
		err:        &council.Failure{Code: council.FailRateLimited, Message: "a secret"},
	}
	unsent := fixed{err: &council.Failure{Code: council.FailBreakerOpen}}
	verdicts := map[string]string{"harshness": "insufficient"}
	m.Gauges("councild_bias_verdict", "Verdicts.", []string{"metric", "verdict"}, func(set func(float64, ...string)) {
		for metric, verdict := range verdicts {
			set(1, metric, verdict)
		}
	})
	for _, c := range []fixed{good, limited, unsent} {
		if got, err := m.Completer(c).Complete(t.Context(), call); !cmp.Equal(got, c.completion) || !errors.Is(err, c.err) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	full := errors.New("the disk is full")
	for _, want := range []error{nil, full} {
		if err := m.Recorder(disk{want}).Append(t.Context(), make([]council.BiasMetricRecord, 2)); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	session := &council.Session{Status: council.StatusDegraded}
	session.Metadata.Timing = council.Timing{Stage1MS: 2000, OverheadMS: 3}
	for _, data := range []any{
		council.Started{},
		council.Answer{Model: "a", Status: council.OutcomeOK},
		[]council.Answer{},
		council.Review{
			Model: "a", Status: council.OutcomeInvalid,
			Error: &council.Failure{Code: council.FailInvalidBallot, Message: "a secret"},
		},
		council.Tally{},
		council.Synthesis{Model: "a", Status: council.OutcomeFallback},
		session,
		council.Started{},
		&council.Error{Code: council.CodeCancelled},
		council.Started{},
		&council.Error{Code: council.CodeNoQuorum},
		council.Started{},
	} {
		m.Observe(council.Event{Data: data})
	}
	got := scrape(t, m)
	for _, want := range []string{
		`councild_sessions_running 1`,
		`councild_sessions_total{status="degraded"} 1`, `councild_sessions_total{status="cancelled"} 1`,
		`councild_sessions_total{status="failed"} 1`,
		`councild_calls_total{model="a",outcome="ok",stage="stage1"} 1`,
		`councild_calls_total{model="a",outcome="rate_limited",stage="stage1"} 1`,
		`councild_retries_total{model="a",stage="stage1"} 2`, `councild_usage_doubted_total{model="a"} 2`,
		`councild_tokens_total{kind="input",model="a"} 42`, `councild_tokens_total{kind="output",model="a"} 0`,
		`councild_bias_verdict{metric="harshness",verdict="insufficient"} 1`,
		`councild_ballots_total{status="invalid"} 1`,
		`councild_records_total{outcome="persisted"} 2`, `councild_records_total{outcome="not_persisted"} 2`,
		`councild_calls_total{model="a",outcome="breaker_open",stage="stage1"} 1`,
		`councild_call_seconds_sum{stage="stage1"} 1.5`, `councild_call_seconds_count{stage="stage1"} 2`,
		`councild_stage_seconds_sum{stage="stage1"} 2`, `councild_overhead_seconds_sum 0.003`,
		`councild_breaker_open{model="a",provider="one"} 0`, `councild_breaker_open{model="b",provider="one"} 1`,
		`councild_breaker_open{model="a",provider="two"} 0.5`,
		`councild_build_info{version="v1"} 1`,
	} {
		if !got[want] {
			t.Errorf("missing: %s", want)
		}
	}
	for line := range got {
		if strings.Contains(line, "secret") {
			t.Errorf("content in a metric: %s", line)
		}
		if strings.HasPrefix(line, `councild_stage_seconds_count{stage="stage2"}`) {
			t.Errorf("a stage that did not run has a time: %s", line)
		}
		if strings.HasPrefix(line, "councild_cost_usd_total") {
			t.Errorf("no provider said a cost: %s", line)
		}
	}
	priced := fixed{completion: council.Completion{Spent: council.Spent{Usage: council.Usage{CostUSD: new(0.25)}}}}
	for range 2 {
		if _, err := m.Completer(priced).Complete(t.Context(), call); err != nil {
			t.Error(err)
		}
	}
	verdicts["harshness"] = "bias"
	got = scrape(t, m)
	for line, want := range map[string]bool{
		`councild_cost_usd_total{model="a"} 0.5`:                             true,
		`councild_bias_verdict{metric="harshness",verdict="bias"} 1`:         true,
		`councild_bias_verdict{metric="harshness",verdict="insufficient"} 1`: false,
	} {
		if got[line] != want {
			t.Errorf("%s is there: %v", line, got[line])
		}
	}
}

type disk struct{ err error }

func (d disk) Append(context.Context, []council.BiasMetricRecord) error { return d.err }

type fixed struct {
	completion council.Completion
	err        error
}

func (f fixed) Complete(context.Context, council.Call) (council.Completion, error) {
	return f.completion, f.err
}

func TestTracing(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracing := newTracing(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	defer func() {
		if err := tracing.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	call := council.Call{Stage: council.Stage1, Seat: "m", Model: "acme:x", Messages: []council.Message{{Role: "user", Content: "a secret question"}}}
	good := fixed{completion: council.Completion{
		Text: "a secret answer", FinishReason: "stop",
		Spent: council.Spent{Attempts: 2, Usage: council.Usage{InputTokens: new(int64(3)), OutputTokens: new(int64(5))}},
	}}
	bad := fixed{err: &council.Failure{Code: council.FailUnavailable, Message: "a secret message"}}
	handler := tracing.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/nowhere/1" {
			return
		}
		r.Pattern = "/v1/council/{id}"
		for _, inner := range []council.Completer{good, bad} {
			_, _ = tracing.Completer(inner, []string{"acme"}).Complete(r.Context(), call)
		}
	}))
	r := httptest.NewRequest(http.MethodPost, "/v1/council/1", strings.NewReader("{}"))
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("BREW", "/nowhere/1", http.NoBody))

	got := spans.GetSpans()
	if last := got[len(got)-1]; last.Name != "unknown route" {
		t.Errorf("a path without a route: %q", last.Name)
	}
	got = got[:len(got)-1]
	if len(got) != 3 || got[2].Name != "POST /v1/council/{id}" ||
		got[2].SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Fatalf("spans %+v", got)
	}
	want := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", "acme"),
		attribute.String("gen_ai.request.model", "x"), attribute.String("councild.stage", "stage1"),
		attribute.String("councild.seat", "m"), attribute.Bool("gen_ai.request.stream", false),
		attribute.Int("councild.attempts", 2), attribute.Int64("gen_ai.usage.input_tokens", 3),
		attribute.Int64("gen_ai.usage.output_tokens", 5),
		attribute.StringSlice("gen_ai.response.finish_reasons", []string{"stop"}),
	}
	if diff := cmp.Diff(want, got[0].Attributes,
		cmp.Comparer(func(a, b attribute.KeyValue) bool { return a.Key == b.Key && a.Value.String() == b.Value.String() })); diff != "" {
		t.Error(diff)
	}
	if got[0].Name != "chat x" || got[0].Parent.SpanID() != got[2].SpanContext.SpanID() || got[1].Status.Description != "unavailable" {
		t.Errorf("spans %+v", got)
	}
	for _, s := range got {
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("content in %s", a.Key)
			}
		}
		if strings.Contains(s.Status.Description, "secret") {
			t.Errorf("content in the status %q", s.Status.Description)
		}
	}
}

func TestTracingIsOffByDefault(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	if tracing, err := NewTracing(t.Context(), "v1", slog.New(slog.DiscardHandler)); tracing != nil || err != nil {
		t.Errorf("got %v, %v", tracing, err)
	}
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "none"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.test")
			t.Setenv(name, value)
			if tracing, err := NewTracing(t.Context(), "v1", slog.New(slog.DiscardHandler)); tracing != nil || err != nil {
				t.Errorf("got %v, %v", tracing, err)
			}
		})
	}
	t.Run("unknown protocol", func(t *testing.T) {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.test")
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "pigeon")
		if _, err := NewTracing(t.Context(), "v1", slog.New(slog.DiscardHandler)); err == nil {
			t.Error("accepted")
		}
	})
	received := make(chan string, 2)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- r.URL.Path
		received <- string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_SERVICE_NAME", "the-third-council")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	var log bytes.Buffer
	tracing, err := NewTracing(t.Context(), "v1", slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = tracing.Completer(fixed{}, nil).Complete(t.Context(), council.Call{})
	if err := tracing.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if path := <-received; path != "/v1/traces" {
		t.Errorf("exported to %s", path)
	}
	if body := <-received; !strings.Contains(body, "the-third-council") || !strings.Contains(body, "service.version") {
		t.Errorf("the service is not named as asked for: %q", body)
	}
	otel.Handle(errors.New("the collector is down")) // as the exporter does
	if !strings.Contains(log.String(), `"level":"WARN","msg":"traces","error":"the collector is down"`) {
		t.Errorf("log: %q", &log)
	}
}
