package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracing exports spans. Each request to the daemon has one, and each session has a tree of them (session.go).
// NewTracing returns a new one.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	content  bool // The spans of calls also have the texts.
}

// NewTracing returns a Tracing that is configured by OpenTelemetry's standard variables. It returns nil if the
// variables ask for no traces: OTEL_SDK_DISABLED is true, OTEL_TRACES_EXPORTER is none, or neither
// OTEL_TRACES_EXPORTER nor an endpoint is set. Later errors, such as a collector that is down, are logged.
func NewTracing(ctx context.Context, version string, log *slog.Logger) (*Tracing, error) {
	named := os.Getenv("OTEL_TRACES_EXPORTER") + os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") +
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if named == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") { // No library for Go reads OTEL_SDK_DISABLED.
		return nil, nil //nolint:nilnil // no tracing is not an error
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("setting up traces: %w", err)
	}
	if autoexport.IsNoneSpanExporter(exporter) {
		return nil, nil //nolint:nilnil // no tracing is not an error
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("councild"), semconv.ServiceVersion(version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK()) // Later options override earlier ones.
	if err != nil {
		return nil, fmt.Errorf("setting up traces: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	if os.Getenv("OTEL_SPAN_EVENT_COUNT_LIMIT") == "" {
		limits.EventCountLimit = maxEvaluations
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	return newTracing(sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(described), sdktrace.WithRawSpanLimits(limits))), nil
}

// maxEvaluations is how many evaluations the span of stage 2 has at most. OpenTelemetry's default of 128 is too low for
// 12 reviewers of 12 answers.
const maxEvaluations = 1024

func newTracing(provider *sdktrace.TracerProvider) *Tracing {
	content := []string{"true", "span_only", "span_and_event"}
	return &Tracing{
		provider: provider,
		tracer:   provider.Tracer("github.com/councild/councild", trace.WithSchemaURL(semconv.SchemaURL)),
		content:  slices.Contains(content, strings.ToLower(os.Getenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"))),
	}
}

// Close exports the remaining spans and ends the tracing.
func (t *Tracing) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Middleware gives each request a span. If the caller sent a span, that span is the parent. The name of the request's
// span is the route, which the inner handler stores in Request.Pattern. The path is not used as a name, because callers
// choose the text of paths.
func (t *Tracing) Middleware(next http.Handler) http.Handler {
	return otelhttp.NewHandler(next, "unknown route",
		otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithSpanNameFormatter(func(unknown string, r *http.Request) string {
			if r.Pattern == "" {
				return unknown
			}
			return r.Method + " " + r.Pattern
		}))
}

// Traceparent returns the span in ctx in the form of the header traceparent, or "" if there is none.
func (t *Tracing) Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// TraceID returns the id of the trace to which the span in ctx belongs, or "" if there is no span.
func TraceID(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		return span.TraceID().String()
	}
	return ""
}
