package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/councild/councild/internal/council"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// These are attribute names and values of OpenTelemetry's semantic conventions for generative AI. The conventions
// are still in development, so no other file uses the names.
const (
	genAIOperation      = "gen_ai.operation.name"
	genAIProvider       = "gen_ai.provider.name"
	genAIRequestModel   = "gen_ai.request.model"
	genAIInputTokens    = "gen_ai.usage.input_tokens"
	genAIOutputTokens   = "gen_ai.usage.output_tokens"
	genAIFinishReasons  = "gen_ai.response.finish_reasons"
	errorType           = "error.type"
	operationChat       = "chat"
	operationEmbeddings = "embeddings"
)

// Tracing exports spans over OTLP: one span for each request to the daemon, and one span for each call to a model.
// NewTracing returns a new one.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// NewTracing returns a Tracing that is configured by OpenTelemetry's standard variables. It returns nil if neither
// OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. Later errors, such as a collector that is
// down, are logged.
func NewTracing(ctx context.Context, version string, log *slog.Logger) (*Tracing, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil //nolint:nilnil // no tracing is not an error
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("setting up traces: %w", err)
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "councild"),
			attribute.String("service.version", version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK()) // Later options override earlier ones.
	if err != nil {
		return nil, fmt.Errorf("setting up traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	return newTracing(sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described))), nil
}

func newTracing(provider *sdktrace.TracerProvider) *Tracing {
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/councild/councild")}
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

// Inject adds the header traceparent (W3C Trace Context) to a request to a model. The header names the span in ctx,
// which is the span of the call.
func (t *Tracing) Inject(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// Completer returns a council.Completer that passes calls to c and gives each call a span. The span names the provider
// of the model. The argument providers holds the names of all providers.
func (t *Tracing) Completer(c council.Completer, providers []string) council.Completer {
	return traced{c, t.tracer, providers}
}

type traced struct {
	council.Completer
	tracer    trace.Tracer
	providers []string
}

// Complete implements council.Completer.
func (c traced) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	provider, _ := council.SplitModel(call.Model, c.providers)
	operation := operationChat
	if call.Texts != nil {
		operation = operationEmbeddings
	}
	ctx, span := c.tracer.Start(ctx, operation+" "+call.Model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String(genAIOperation, operation), attribute.String(genAIProvider, provider),
		attribute.String(genAIRequestModel, call.Model), attribute.String("councild.stage", string(call.Stage))))
	defer span.End()
	completion, err := c.Completer.Complete(ctx, call)
	if n := completion.Usage.InputTokens; n != nil {
		span.SetAttributes(attribute.Int64(genAIInputTokens, *n))
	}
	if n := completion.Usage.OutputTokens; n != nil {
		span.SetAttributes(attribute.Int64(genAIOutputTokens, *n))
	}
	if completion.FinishReason != "" {
		span.SetAttributes(attribute.StringSlice(genAIFinishReasons, []string{completion.FinishReason}))
	}
	span.SetAttributes(attribute.Int("councild.attempts", completion.Attempts))
	if failure := council.AsFailure(err); failure != nil {
		span.SetAttributes(attribute.String(errorType, string(failure.Code)))
		span.SetStatus(codes.Error, string(failure.Code)) // The message may hold text from the provider.
	}
	return completion, err
}
