// Package collector sends the traces of real daemons to OpenTelemetry's collector. The package is a module of its own,
// because the collector has more dependencies than councild.
package collector

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/telemetrytest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottlspan"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// settings make a collector receive OTLP over gRPC and over HTTP, at the addresses that are inserted. The collector has
// no telemetry of its own, because it would obey the variables of the daemon in the same process.
const settings = `yaml:
receivers:
  otlp:
    protocols:
      grpc: {endpoint: %q}
      http: {endpoint: %q}
exporters: {memory: }
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines:
    traces: {receivers: [otlp], exporters: [memory]}`

// memory is the exporter of a collector. It keeps all traces.
type memory struct {
	component.StartFunc
	component.ShutdownFunc

	mu    sync.Mutex          // guards all
	all   ptrace.Traces       // of all daemons
	spans telemetrytest.Spans // the same traces for the checks
}

func (m *memory) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (m *memory) ConsumeTraces(_ context.Context, traces ptrace.Traces) error {
	data, err := new(ptrace.ProtoMarshaler).MarshalTraces(traces)
	if err != nil {
		return err
	}
	var sent otlp.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil {
		return err
	}
	m.spans.Take(&sent)
	m.mu.Lock()
	defer m.mu.Unlock()
	traces.ResourceSpans().MoveAndAppendTo(m.all.ResourceSpans())
	return nil
}

// find returns the spans for which a condition holds. It is written in the query language of the collector, OTTL.
func (m *memory) find(t *testing.T, condition string) []ptrace.Span {
	t.Helper()
	parser, err := ottlspan.NewParser(nil, componenttest.NewNopTelemetrySettings(), ottlspan.EnablePathContextNames())
	if err != nil {
		t.Fatal(err)
	}
	query, err := parser.ParseCondition(condition)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []ptrace.Span
	for _, resource := range m.all.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				in := ottlspan.NewTransformContext(resource, scope, span)
				holds, err := query.Eval(t.Context(), in)
				in.Close()
				if err != nil {
					t.Fatal(err)
				}
				if holds {
					found = append(found, span)
				}
			}
		}
	}
	return found
}

// free returns an address of the loopback at which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// collect starts a collector, which ends with the test.
func collect(t *testing.T) (m *memory, grpc, http string) {
	t.Helper()
	m = &memory{all: ptrace.NewTraces()}
	exporters := exporter.NewFactory(component.MustNewType("memory"), func() component.Config { return &struct{}{} },
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			return m, nil
		}, component.StabilityLevelStable))
	receivers := otlpreceiver.NewFactory()
	grpc, http = free(t), free(t)
	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		DisableGracefulShutdown: true,
		Factories: func() (otelcol.Factories, error) {
			return otelcol.Factories{
				Receivers: map[component.Type]receiver.Factory{receivers.Type(): receivers},
				Exporters: map[component.Type]exporter.Factory{exporters.Type(): exporters},
				Telemetry: otelconftelemetry.NewFactory(),
			}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              []string{fmt.Sprintf(settings, grpc, http)},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		c.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	daemontest.Until(t, func() bool {
		if len(ended) > 0 {
			t.Fatal("the collector ended")
		}
		return c.GetState() == otelcol.StateRunning
	})
	return m, grpc, http
}

// A collector gets the whole traces over each protocol. One query for the id finds a session, in all processes that ran
// it.
func TestCollector(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			m, grpc, http := collect(t)
			at := map[string]string{"grpc": grpc, "http/protobuf": http}[protocol]
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+at)
			secret := telemetrytest.Session(t, &m.spans, false)
			open := telemetrytest.Session(t, &m.spans, true)
			resumed := telemetrytest.Resumed(t, &m.spans)
			// The session, three stages and seven calls are a trace; the resumed session is two.
			for id, want := range map[string]struct{ spans, traces int }{secret: {11, 1}, open: {11, 1}, resumed: {0, 2}} {
				for _, attribute := range []string{"session.id", "gen_ai.conversation.id"} {
					found := m.find(t, fmt.Sprintf(`span.attributes[%q] == %q`, attribute, id))
					traces := map[string]bool{}
					for _, span := range found {
						traces[span.TraceID().String()] = true
					}
					if want.spans > 0 && len(found) != want.spans || len(traces) != want.traces {
						t.Errorf("%s: %d spans of %d traces, want %v", attribute, len(found), len(traces), want)
					}
				}
			}
		})
	}
}
